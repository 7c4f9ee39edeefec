// A model tried through the admin API: a request like any other, with the secret of a key, whose answer comes as it
// comes; who may, what is told and written down of it, and what it costs.
import t, { type Test } from 'tap'
import { gateway, type GatewayTestOptions, KEY, type TestGateway, yaml } from '../support/gateway.ts'
import { keyOf, imageGateway } from '../support/image-gateway.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, cut, errorReply, json, message, messageEnd, messageStart, raw, stall, status, textBlock,
  textDelta, upstream, wait, type Script, type Received } from '../support/upstream.ts'

const ROOT = 'test-admin-token'
const ALL = 'auth, key-policy, rate-limit, schema-validate, chat-to-messages, channel-router, billing-meter, ' +
  'error-normalize'
const PROMPT = 'a wish that nobody else may read'

type Body = Readonly<Record<string, unknown>>

interface Event {
  readonly kind: 'head' | 'piece' | 'end'
  readonly ms: number
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  readonly text?: string
  readonly is_whole?: boolean
}

interface Tried {
  readonly status: number
  readonly error: { readonly code: string, readonly message: string, readonly mistakes: readonly object[] } | undefined
  readonly events: readonly Event[]
  /** of the tried answer */
  readonly text: string
}

const request = { model: 'm1', max_tokens: 100, messages: [{ role: 'user', content: PROMPT }] }
const wanted = { key: 'acme-dev', secret: KEY, path: '/v1/messages', body: request }

async function open (own: TestGateway, body: unknown, token = ROOT, signal?: AbortSignal): Promise<Response> {
  return await fetch(`${own.urls.admin}/admin/v1/try`, { method: 'POST', body: JSON.stringify(body),
    headers: { authorization: `Bearer ${token}` }, ...(signal !== undefined && { signal }) })
}

async function attempt (own: TestGateway, more: object = {}, token = ROOT): Promise<Tried> {
  const got = await open(own, { ...wanted, ...more }, token)
  const text = await got.text()
  if (got.headers.get('content-type') !== 'text/event-stream') {
    return { status: got.status, ...JSON.parse(text) as { error: Tried['error'] }, events: [], text: '' }
  }
  const events = text.split('\n\n').filter(Boolean).map((one) => JSON.parse(one.replace(/^data: /, '')) as Event)
  return { status: got.status, error: undefined, events, text: events.map(({ text = '' }) => text).join('') }
}

async function ask (own: TestGateway, method: string, path: string, body?: unknown): Promise<Body> {
  const got = await fetch(`${own.urls.admin}/admin/v1${path}`, { method, headers: { authorization: `Bearer ${ROOT}` },
    ...(body !== undefined && { body: JSON.stringify(body) }) })
  return await got.json() as Body
}

async function desk (
  t: Test,
  script: Script | ((received: Received) => Script) = answer('Hello'),
  change: (text: string) => string = (text) => text,
  options: GatewayTestOptions = {}
): Promise<TestGateway> {
  const up = await upstream(t, script)
  return await gateway(t, change(yaml([up.url], '', ALL)), options)
}

/** What the account has spent, and what it holds. */
async function money (own: TestGateway): Promise<{ readonly balance: unknown, readonly held: unknown }> {
  const { balance_usd: balance, held_usd: held } = await ask(own, 'GET', '/accounts/acme')
  return { balance, held }
}

t.test('it is a request like any other: charged to its key, in the log of requests, its answer whole', async (t) => {
  const own = await desk(t)
  const { events, text } = await attempt(own)
  const [head, ...rest] = events
  t.match(head, { kind: 'head', status: 200, headers: { 'content-type': /^application\/json/,
    'x-request-id': /^req_/, 'x-gateway-cost-usd': '0.000105' } })
  t.match(JSON.parse(text), { type: 'message', content: [{ text: 'Hello' }] })
  t.match(rest.at(-1), { kind: 'end', is_whole: true })
  t.ok(rest.every(({ kind }, i) => kind === (i === rest.length - 1 ? 'end' : 'piece')))
  t.ok(events.every(({ ms }, i) => ms >= (events[i - 1]?.ms ?? 0)), 'times go up')
  const id = head!.headers!['x-request-id']!
  await until(async () => (await ask(own, 'GET', `/requests/${id}`))['status'] === 200)
  t.match(await ask(own, 'GET', `/requests/${id}`), { key: 'acme-dev', model: 'm1', cost_usd: '0.000105',
    attempts: [{ upstream: 'u0' }] })
  t.strictSame(await money(own), { balance: '99.999895', held: '0' })
  t.match(await ask(own, 'GET', `/ledger?order=newest&reference=${id}`), { data: [{ amount_usd: '-0.000105' }] })
})

t.test('characters stay whole, wherever the pieces of a long answer are cut', async (t) => {
  const words = '😀'.repeat(400_000)
  const own = await desk(t, json(message(words)))
  const { events, text } = await attempt(own)
  t.ok(events.length > 10, 'many pieces')
  t.ok(text.includes(words))
})

t.test('a stream comes piece by piece; the quote bounds what it costs', async (t) => {
  const gate = Promise.withResolvers<void>()
  const own = await desk(t, [messageStart(), blockStart(0), textDelta(0, 'One'), wait(gate.promise),
    textBlock(1, 'two'), messageEnd()])
  const body = { ...request, stream: true }
  const quoted = await ask(own, 'POST', '/explain', { key: 'acme-dev', body, headers: { 'user-agent': 'gateway-try/1' } })
  const got = await open(own, { ...wanted, body })
  t.equal(got.headers.get('x-accel-buffering'), 'no', 'no proxy gathers it')
  const reader = got.body!.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  while (!text.includes('One')) text += (await reader.read()).value!
  t.notMatch(text, /"kind":"end"/)
  gate.resolve()
  for (let step = await reader.read(); !step.done; step = await reader.read()) text += step.value
  t.match(text, /message_stop[^]*"kind":"end","is_whole":true/)
  const [, id] = /"x-request-id":"(req_\w+)"/.exec(text)!
  await until(async () => 'cost_usd' in await ask(own, 'GET', `/requests/${id}`))
  const { cost_usd: cost } = await ask(own, 'GET', `/requests/${id}`)
  t.equal(cost, '0.000105')
  t.ok(Number(cost) <= Number(quoted['max_cost_usd']), `${String(cost)} of ${String(quoted['max_cost_usd'])}`)
})

t.test('an image costs what was quoted', async (t) => {
  const { gw } = await imageGateway(t)
  for (const [mode, resolution] of [['premium', '2K'], ['cheap', '1K'], ['cheap', '4K']] as const) {
    const body = { model: 'nano', prompt: 'A cat', resolution, response_format: 'b64_json' }
    const { max_cost_usd: quoted } = await ask(gw, 'POST', '/explain',
      { key: mode, route: 'POST /v1/images/generations', body })
    const { events, text } = await attempt(gw, { key: mode, secret: keyOf(mode), path: '/v1/images/generations', body })
    t.equal(events[0]!.headers!['x-gateway-cost-usd'], quoted, `${mode} ${resolution}`)
    const [{ b64_json: image }] = (JSON.parse(text) as { readonly data: [{ readonly b64_json: string }] }).data
    t.match(Buffer.from(image, 'base64').toString('latin1'), /^\x89PNG/)
  }
})

t.test('an error of the API is an answer: its status, its code and its request id; it costs nothing', async (t) => {
  const own = await desk(t, errorReply(500, 'api_error', 'no'))
  for (const [more, status, said] of [
    [{}, 502, /"type":"api_error"/],
    [{ body: { ...request, model: 'of-nobody' } }, 400, /of-nobody/],
    [{ path: '/v1/nothing' }, 404, /"code":"not_found"/],
    [{ path: '/v1/chat/completions', body: {} }, 400, /"code":"/]
  ] as const) {
    const { events, text } = await attempt(own, more)
    const { status: got, headers } = events[0]!
    t.equal(got, status, text)
    t.match(text, said)
    t.match(text, headers!['x-request-id'])
  }
  t.strictSame(await money(own), { balance: '100', held: '0' })
})

t.test('a frozen and an expired key are refused by the API itself', async (t) => {
  let now = Date.parse('2027-01-01T00:00:00Z')
  const own = await desk(t, answer('Hello'), (text) => text, { now: () => now })
  const { secret } = await ask(own, 'POST', '/keys', { id: 'k1', account: 'acme', expires_at: '2027-01-02T00:00:00Z' })
  const more = { key: 'k1', secret }
  t.equal((await attempt(own, more)).events[0]!.status, 200)
  await ask(own, 'PATCH', '/keys/k1', { frozen: true })
  t.equal((await attempt(own, more)).events[0]!.status, 401)
  await ask(own, 'PATCH', '/keys/k1', { frozen: false })
  now += 86_400_000
  t.equal((await attempt(own, more)).events[0]!.status, 401)
  now -= 1
  const { secret: next } = await ask(own, 'POST', '/keys/k1/rotate', { grace: '1h' })
  for (const one of [secret, next]) t.equal((await attempt(own, { key: 'k1', secret: one })).events[0]!.status, 200)
  await ask(own, 'DELETE', '/keys/k1')
  t.match(await attempt(own, more), { status: 404, error: { code: 'not_found' } })
})

t.test('nothing is sent with the secret of another key, nor with a wrong body; no answer repeats a secret', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const own = await gateway(t, yaml([up.url], '', ALL))
  const { secret } = await ask(own, 'POST', '/keys', { id: 'other', account: 'acme' })
  for (const [more, said] of [
    [{ secret }, /secret is not that of the key acme-dev/], [{ key: 'other' }, /secret is not that of the key other/],
    [{ secret: 'sk-gw-wrong' }, /secret is not/], [{ secret: 17 }, /secret must be/], [{ secret: 'a b' }, /secret must be/],
    [{ secret: undefined }, /secret/], [{ path: 'http://elsewhere.example/' }, /path must be/],
    [{ path: '/admin/v1/keys' }, /path must be/], [{ path: '/v1/x?y' }, /path must be/], [{ path: '/v1/x\r\ny' }, /path/],
    [{ body: 'x' }, /body must be/], [{ method: 'GET' }, /unknown key "method"/]
  ] as const) {
    const { status, error } = await attempt(own, more)
    t.equal(status, 400, JSON.stringify(more))
    t.match(error!.message, said)
    for (const hidden of [KEY, String(secret), 'sk-gw-wrong', '17', 'a b']) t.notOk(error!.message.includes(hidden), hidden)
  }
  t.match(await attempt(own, { key: 'nobody' }), { status: 404, error: { code: 'not_found', message: /"nobody"/ } })
  t.equal(up.requests.length, 0)
  t.strictSame(((await ask(own, 'GET', '/audit'))['data'] as readonly Body[]).map(({ what }) => what), ['key.create'])
})

t.test('an operator may, a viewer may not; the audit log tells who has tried which key, and neither it nor the log what was said', async (t) => {
  const own = await desk(t)
  const made = async (name: string, role: string): Promise<string> =>
    String((await ask(own, 'POST', '/tokens', { name, role }))['secret'])
  const [viewer, operator] = [await made('Vera', 'viewer'), await made('Otto', 'operator')]
  t.match(await attempt(own, {}, viewer), { status: 403, error: { code: 'forbidden', message: /needs the role operator/ } })
  t.strictSame(await money(own), { balance: '100', held: '0' })
  t.equal((await attempt(own, {}, operator)).events[0]!.status, 200)
  const { data } = await ask(own, 'GET', '/audit?order=newest&limit=1') as { readonly data: readonly Body[] }
  t.match(data, [{ what: 'key.try', who: 'Otto', role: 'operator', address: '127.0.0.1', id: 'acme-dev', before: null,
    after: null, request: 'POST /v1/messages', model: 'm1' }])
  const said = JSON.stringify([own.logged, data])
  for (const hidden of [KEY, PROMPT]) t.notOk(said.includes(hidden), hidden)
  t.match((await fetch(`${own.urls.admin}/admin/v1/try`, { headers: { authorization: `Bearer ${viewer}` } })).status, 200)
})

t.test('a cut stream ends with its error, and an answer that the API breaks off is told as cut', async (t) => {
  const own = await desk(t, ({ path }): Script => path === '/v1/embeddings'
    ? [status(200, { 'content-type': 'application/json', 'content-length': '100' }), raw('{"object":'), cut()]
    : [messageStart(), blockStart(0), textDelta(0, 'One'), cut()],
  (text) => text + 'routes: [{ match: POST /v1/embeddings, forward: u0, price: free }]\n')
  const stream = await attempt(own, { body: { ...request, stream: true } })
  t.match(stream.text, /One[^]*event: error[^]*"request_id":"req_/)
  t.match(stream.events.at(-1), { kind: 'end', is_whole: true })
  const broken = await attempt(own, { path: '/v1/embeddings', body: { input: 'x' } })
  t.match(broken, { events: [{ kind: 'head', status: 200 }, { kind: 'piece' }, { kind: 'end', is_whole: false }],
    text: '{"object":' })
})

t.test('who leaves gives the request up, and it is charged for what came', async (t) => {
  const left = Promise.withResolvers<string>()
  const own = await desk(t, ({ closed }): Script => {
    void closed.then(left.resolve)
    return [messageStart(), blockStart(0), textDelta(0, 'One word and another'), stall()]
  })
  const over = new AbortController()
  const got = await open(own, { ...wanted, body: { ...request, stream: true } }, ROOT, over.signal)
  const reader = got.body!.getReader()
  let seen = ''
  while (!seen.includes('One')) seen += Buffer.from((await reader.read()).value!).toString()
  over.abort()
  t.equal(await left.promise, 'left')
  await until(async () => (await money(own)).held === '0')
  t.not((await money(own)).balance, '100')
})

t.test('who leaves before an answer gives the request up too, and nothing is logged as a fault', async (t) => {
  const left = Promise.withResolvers<string>()
  const came = Promise.withResolvers<void>()
  const own = await desk(t, ({ closed }): Script => {
    void closed.then(left.resolve)
    came.resolve()
    return stall()
  })
  const over = new AbortController()
  const gone = open(own, wanted, ROOT, over.signal).catch((thrown: unknown) => thrown)
  await came.promise
  over.abort()
  await gone
  t.equal(await left.promise, 'left')
  await until(async () => (await money(own)).held === '0')
  t.strictSame(own.logged.filter(({ level }) => Number(level) >= 50), [])
})

t.test('a few at a time; those beyond are told to wait, and places come back however a trial ends', async (t) => {
  const gate = Promise.withResolvers<void>()
  let came = 0
  const own = await desk(t, (): Script => {
    came++
    return [messageStart(), blockStart(0), wait(gate.promise), textBlock(1, 'two'), messageEnd()]
  }, (text) => text.replace('rate-limit', 'rate-limit: { default_concurrency: 0, default_rpm: 0 }'))
  const body = { ...request, stream: true }
  const running = Array.from({ length: 8 }, async () => await attempt(own, { body }))
  await until(() => came === 8)
  t.match(await attempt(own, { body }), { status: 429, error: { code: 'busy' } })
  gate.resolve()
  for (const one of await Promise.all(running)) t.match(one.events.at(-1), { kind: 'end', is_whole: true })
  for (let i = 0; i < 10; i++) t.equal((await attempt(own, { secret: 'wrong' })).status, 400)
  for (let i = 0; i < 10; i++) t.equal((await attempt(own, { path: '/v1/nothing' })).events[0]!.status, 404)
})

t.test('what the key allows is looked at as for every client: here one on the gateway\'s own machine', async (t) => {
  const own = await desk(t)
  const { secret } = await ask(own, 'POST', '/keys', { id: 'k1', account: 'acme', allowed_clients: ['gateway-try/*'],
    ip_whitelist: ['127.0.0.1'], allowed_origins: ['https://other.example'], streaming: false })
  t.equal((await attempt(own, { key: 'k1', secret })).events[0]!.status, 200)
  t.ok((await attempt(own, { key: 'k1', secret, body: { ...request, stream: true } })).events[0]!.status! >= 400)
  for (const change of [{ allowed_clients: ['claude-code'] }, { ip_whitelist: ['10.0.0.0/8'], allowed_clients: null }]) {
    await ask(own, 'PATCH', '/keys/k1', change)
    t.equal((await attempt(own, { key: 'k1', secret })).events[0]!.status, 403, JSON.stringify(change))
  }
})

t.test('what can be tried: the models that are sold, what a request may choose, and where the API is', async (t) => {
  const off = (text: string): string => text.replace('accounts:', `  - id: off
    provider: acme
    created: 2025-09-29
    channels: { premium: { enabled: false, price: free, targets: [{ upstream: u0, model: x }] } }
accounts:`)
  const own = await desk(t, answer('Hello'), off)
  t.strictSame(await ask(own, 'GET', '/try'), { base_url: own.urls.api, user_agent: 'gateway-try/1', models: [
    { id: 'm1', name: 'Model One', kind: 'text', channels: ['premium'], max_output: 64_000, sampling: true, parameters: {} }
  ] })
  const { gw } = await imageGateway(t)
  t.match(await ask(gw, 'GET', '/try'), { models: [{ id: 'nano', kind: 'image', channels: ['premium', 'cheap'],
    max_output: null, parameters: { resolution: { values: ['1K', '2K', '4K'], default: '1K' } } }] })
  const named = await desk(t, answer('Hello'), (text) =>
    text.replace('api: { listen: "127.0.0.1:0",', 'api: { listen: "0.0.0.0:0", url: "https://api.example.com/x",'))
  t.equal((await ask(named, 'GET', '/try'))['base_url'], 'https://api.example.com/x')
  t.equal((await attempt(named)).events[0]!.status, 200, 'whatever its address is for others, here it is on the loopback')
})
