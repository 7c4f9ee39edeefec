// The log of requests as operators read it: real requests to upstreams that fail, hang and recover, found again through
// the admin API, with nothing in it that is a client's or a secret, and with money that does not depend on it.
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { isRequestId } from '../../src/base/request-id.ts'
import { client, fate, nextFate } from '../support/client.ts'
import { gateway, KEY, messagesRequest, type TestGateway, yaml } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, cut, errorEvent, errorReply, json, messageStart, raw, refusing, stall, status, textBlock, upstream,
  wait, type Script } from '../support/upstream.ts'

interface Attempt { readonly upstream: string, readonly error: string | null, readonly said: string | null }

interface Shown extends Readonly<Record<string, unknown>> {
  readonly request_id: string
  readonly code: string
  readonly status: number
  readonly attempts: readonly Attempt[]
}

interface Page {
  readonly data: readonly Shown[]
  readonly next: string | null
  readonly host: string
  readonly keep: number
}

interface Answered { readonly status: number, readonly body: never }

async function ask (gw: TestGateway, path: string): Promise<Answered> {
  const got = await fetch(`${gw.urls.admin}/admin/v1/requests${path}`, {
    headers: { authorization: 'Bearer test-admin-token' }
  })
  return { status: got.status, body: await got.json() as never }
}

async function list (gw: TestGateway, query = ''): Promise<Page> {
  return (await ask(gw, query)).body as Page
}

/** When it is over for the gateway. */
async function shown (gw: TestGateway, id: string): Promise<Shown> {
  await fate(gw, id)
  return (await ask(gw, '/' + id)).body
}

function embedded (text: string): string {
  return text.replace('driver: memory', 'driver: embedded')
}

function folderOf (gw: TestGateway): string {
  return join(dirname(gw.file), 'data', 'requests')
}

/** All bytes of the log. */
function bytesOf (gw: TestGateway): string {
  const folder = folderOf(gw)
  return readdirSync(folder).map((name) => readFileSync(join(folder, name), 'latin1')).join('')
}

async function metric (gw: TestGateway, name: string): Promise<number> {
  const text = await (await fetch(gw.urls.admin + '/metrics')).text()
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)![1])
}

t.test('what every upstream said of a request, though another has served it; found by its id, and by all that can be searched', async (t) => {
  const broken = await upstream(t, errorReply(500, 'api_error', 'the worker of sk-ant-api03-abcdefgh died'))
  let spare: Script = answer('from the spare')
  const good = await upstream(t, () => spare)
  const gw = await gateway(t, yaml([broken.url, await refusing(), good.url]), { isForgetful: true })
  t.strictSame(await list(gw), { data: [], next: null, host: (await list(gw)).host, keep: 10_000 })

  const got = await client(t, gw).post(messagesRequest).whole()
  const { charged } = await fate(gw, got.id)
  const one = await shown(gw, got.id)
  t.match(one, {
    request_id: got.id, at: /^\d{4}-.*Z$/, account: 'acme', key: 'acme-dev', model: 'm1', route: 'POST /v1/messages',
    style: 'messages', channel: 'premium', stream: false, status: 200, code: 'ok', outcome: 'completed', by: null,
    config_generation: 1, cost_usd: String(Number(charged) / 1e9), attempts_begun: 3,
    usage: { input: 10, output: 5, cache_read: 0, cache_write_5m: 0, cache_write_1h: 0, extras: {} },
    usage_source: 'provider',
    attempts: [
      { upstream: 'u0', target: 'vendor-m1', credential: null, status: 500, error: 'status 500',
        said: /"api_error","message":"the worker of \[redacted\] died"/ },
      { upstream: 'u1', status: null, error: /^refused: ECONNREFUSED/, said: null },
      { upstream: 'u2', target: 'vendor-m1', status: 200, error: null, said: null }
    ]
  })
  t.ok(Math.abs(Date.parse(String(one['at'])) - Date.now()) < 60_000)
  for (const name of ['duration_ms', 'own_ms', 'first_byte_ms']) t.ok(Number(one[name]) > 0, name)

  spare = errorReply(400, 'invalid_request_error', 'max_tokens: too few')
  const refused = await client(t, gw, '/v1/chat/completions').post({ ...messagesRequest, stream: true }).whole()
  t.match(await shown(gw, refused.id), { status: 502, code: 'server_error', style: 'chat', stream: true,
    outcome: 'failed', cost_usd: null, usage: null, attempts: [{}, {}, { upstream: 'u2', said: /too few/ }] })
  const unknown = await client(t, gw).post({ ...messagesRequest, model: 'none' }).whole()
  t.match(await shown(gw, unknown.id), { model: null, code: 'model_not_found', attempts: [], attempts_begun: 0 })
  const stranger = await client(t, gw).post(messagesRequest, { 'x-api-key': 'sk-gw-' + 'x'.repeat(32) }).whole()
  t.match(await shown(gw, stranger.id), { account: null, key: null, status: 401, stream: null })

  const ids = async (query: string): Promise<readonly string[]> =>
    (await list(gw, query)).data.map(({ request_id: id }) => id)
  t.strictSame(await ids(''), [stranger.id, unknown.id, refused.id, got.id])
  t.strictSame(await ids('?key=acme-dev'), [unknown.id, refused.id, got.id])
  t.strictSame(await ids('?account=acme&model=m1'), [refused.id, got.id])
  t.strictSame(await ids('?code=ok'), [got.id])
  t.strictSame(await ids('?status=401'), [stranger.id])
  t.strictSame(await ids('?status=401&code=ok'), [])
  t.strictSame(await ids('?key=acme'), [])
  const first = await list(gw, '?limit=3')
  t.equal(first.next, refused.id)
  t.match(await list(gw, `?limit=3&after=${first.next}`), { data: [{ request_id: got.id }], next: null })

  for (const [query, what] of [['?status=ok', /status must be/], ['?after=1', /after must be/], ['?limit=0', /limit/],
    ['?models=m1', /did you mean "?model/], ['?key=a&key=b', /twice/]] as const) {
    t.match(await ask(gw, query), { status: 400, body: { error: { code: 'invalid_request', message: what } } })
  }
  for (const id of ['req_1', got.id.slice(0, -1) + '_', refused.id.replace(/.$/, (last) => last === 'a' ? 'b' : 'a')]) {
    t.match(await ask(gw, '/' + id), { status: 404, body: { error: { code: 'not_found', message: /no such request/ } } })
  }
  t.equal((await fetch(`${gw.urls.admin}/admin/v1/requests`)).status, 401)
})

t.test('each way to end: cut by the upstream, left by the client, before the first byte and behind it; forwarded', async (t) => {
  let script: Script = []
  const up = await upstream(t, () => script)
  const gw = await gateway(t,
    yaml([up.url], 'routes:\n  - { match: "POST /v1/echo", forward: u0, price: { usd: "0.01" } }\n'), { isForgetful: true })
  const stream = { ...messagesRequest, stream: true }

  script = [messageStart(), textBlock(0, 'Hello'), errorEvent('api_error', 'the worker died')]
  const broken = await client(t, gw).post(stream).whole()
  t.match(await shown(gw, broken.id), { status: 200, outcome: 'interrupted', by: 'upstream', attempts_begun: 1,
    code: 'upstream_stream_interrupted', usage: { output: 1 },
    attempts: [{ upstream: 'u0', status: null, error: 'error_event', said: /the worker died/ }] })

  script = [messageStart(), textBlock(0, 'Hello'), cut()]
  const torn = await client(t, gw).post(stream).whole()
  const { attempts } = await shown(gw, torn.id)
  t.match(attempts, [{ upstream: 'u0', error: /^reset/, said: null }])
  t.equal(attempts.length, 1)

  script = [messageStart(), textBlock(0, 'Hello'), stall()]
  const call = client(t, gw).post(stream)
  await call.sees('Hello')
  const left = String((await call.head).headers['x-request-id'])
  call.leave()
  t.match(await shown(gw, left), { status: 200, outcome: 'interrupted', by: 'client',
    attempts: [{ upstream: 'u0', status: 200, error: 'client_closed', said: null }] })

  script = stall()
  const last = nextFate(gw)
  const early = client(t, gw).post(stream)
  await until(() => up.requests.length === 4)
  early.leave()
  const { line } = await last()
  t.match(await shown(gw, String(line['request_id'])), { outcome: 'failed', status: line['status'], cost_usd: null,
    code: 'client_closed', attempts: [{ upstream: 'u0', status: null, error: 'client_closed' }] })

  script = json({ fine: true }, 201)
  const echo = await client(t, gw, '/v1/echo').post({}).whole()
  t.match(await shown(gw, echo.id), { route: 'POST /v1/echo', status: 201, cost_usd: '0.01',
    attempts: [{ upstream: 'u0', target: 'POST /v1/echo', status: 201, error: null }] })
})

t.test('no prompt, no answer and no secret is in the files, whatever upstreams repeat of them', async (t) => {
  const asked = 'My secret plan is to visit Utrecht with 4711 geese'
  const thought = 'The user wants geese; I should never mention the Rhine'
  const answered = 'A wonderful plan: take the train to Amersfoort first'
  let script: Script = []
  const up = await upstream(t, ({ body }) =>
    script === echo ? json({ detail: [{ type: 'missing', loc: ['body'], msg: 'Field required', input: body }] }, 422) : script)
  const echo: Script = []
  const gw = await gateway(t, embedded(yaml([up.url], 'routes:\n  - { match: "POST /v1/pass", forward: u0, price: free }\n')),
    { isForgetful: true })
  const body = { ...messagesRequest, system: 'You are the keeper of the geese of Drenthe',
    messages: [{ role: 'user', content: asked }, { role: 'assistant', content: answered },
      { role: 'user', content: 'Hush, and go on with the goose named Wilhelmina' }] }
  const scripts: readonly Script[] = [
    answer(answered), echo, errorReply(400, 'invalid_request_error', `messages.0.content: "${asked}" is too odd`),
    [messageStart(), textBlock(0, thought), textBlock(1, answered), errorEvent('api_error', `stopped at: ${asked}`)],
    [status(200, { 'content-type': 'application/json' }), raw(`{"content":[{"type":"text","text":"${answered}`)],
    [status(503, { 'content-type': 'text/html' }), raw(`<p>${asked.slice(10)}</p>`)],
    errorReply(401, 'authentication_error', `invalid x-api-key upstream-secret-0`)
  ]
  for (const path of ['/v1/messages', '/v1/chat/completions', '/v1/responses']) {
    for (const [i, one] of scripts.entries()) {
      script = one
      const got = await client(t, gw, path).post({ ...body, input: asked, stream: i === 3 },
        { 'user-agent': 'agent of my secret plan', 'x-forwarded-for': '10.9.8.7' }).whole()
      const { attempts } = await shown(gw, got.id)
      t.equal(attempts.length > 0, got.status !== 400 || attempts.length > 0, `${path} ${i}`)
    }
  }
  script = echo
  const passed = await client(t, gw, '/v1/pass').post(body).whole()
  t.match((await shown(gw, passed.id)).attempts, [{ status: 422,
    said: '{"detail":[{"type":"missing","msg":"Field required","loc":["body"]}]}' }])
  const { data } = await list(gw)
  t.ok(data.length >= scripts.length)
  t.ok(data.some(({ attempts }) => attempts.some(({ said }) => said?.includes('Field required'))), 'what is wrong is there')
  const bytes = bytesOf(gw)
  t.ok(bytes.length > 2000)
  for (const text of [asked, thought, answered, 'geese', 'Amersfoort', 'Utrecht', 'Wilhelmina', 'secret plan',
    'upstream-secret', KEY, 'test-admin-token', '10.9.8.7']) {
    t.notOk(bytes.includes(text), text)
  }
})

t.test('whatever keys, tokens and signed links an upstream says, and however: none is in the files', async (t) => {
  const letters = (length: number): fc.Arbitrary<string> =>
    fc.stringMatching(new RegExp(`^[a-zA-Z0-9]{${length}}$`)).filter((text) => /\d/.test(text) && /[a-z]/.test(text) && /[A-Z]/.test(text))
  const secret = fc.oneof(
    fc.tuple(fc.constantFrom('sk-', 'sk-ant-api03-', 'sk-proj-', 'gsk_', 'xai-', 'AIza', 'hf_', 'ghp_', 'AKIA'), letters(24))
      .map(([prefix, text]) => ({ text: prefix + text, hidden: text })),
    letters(20).map((text) => ({ text: `Bearer ${text}`, hidden: text })),
    letters(20).map((text) => ({ text: `Authorization: Basic ${text}==`, hidden: text })),
    letters(40).map((text) => ({ text, hidden: text })),
    fc.tuple(letters(12), letters(30)).map(([host, text]) => ({
      text: `https://${host}.s3.amazonaws.com/o/p.png?X-Amz-Credential=AKIA&X-Amz-Signature=${text}`, hidden: text })),
    fc.constant({ text: 'upstream-secret-0', hidden: 'upstream-secret-0' })
  )
  const words = fc.constantFrom('the key', 'was', 'refused:', 'see', '"', '(', 'x'.repeat(90), '\n')
  const said = fc.array(fc.oneof({ weight: 2, arbitrary: words.map((text) => ({ text, hidden: '' })) },
    { weight: 1, arbitrary: secret }), { minLength: 1, maxLength: 60, size: 'max' })
  const how = fc.constantFrom('text', 'message', 'deep', 'event')
  let script: Script = []
  const up = await upstream(t, () => script)
  const gw = await gateway(t, embedded(yaml([up.url])), { isForgetful: true })
  const hidden: string[] = []
  await fc.assert(fc.asyncProperty(said, how, async (parts, where) => {
    const text = parts.map((part) => part.text).join(' ')
    hidden.push(...parts.map((part) => part.hidden).filter((one) => one !== ''))
    script = {
      text: [status(500, { 'content-type': 'text/plain' }), raw(text)],
      message: errorReply(500, 'api_error', text),
      deep: json({ errors: [{ detail: { [text]: text } }] }, 500),
      event: errorEvent('api_error', text)
    }[where]
    const got = await client(t, gw).post({ ...messagesRequest, stream: where === 'event' }).whole()
    const { attempts } = await shown(gw, got.id)
    t.equal(attempts.length, 1)
    t.ok((attempts[0]!.said ?? '').length <= 300)
  }), { numRuns: 40 })
  const bytes = bytesOf(gw)
  t.ok(hidden.length > 50)
  t.strictSame(hidden.filter((text) => bytes.includes(text)), [])
})

t.test('a folder that can\'t be written costs the log its requests, and no request anything', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const gw = await gateway(t, embedded(yaml([up.url])), { isForgetful: true })
  const folder = folderOf(gw)
  const use = async (): Promise<string> => {
    const got = await client(t, gw).post(messagesRequest).whole()
    t.equal(got.status, 200)
    const { charged, openHolds } = await fate(gw, got.id)
    t.strictSame([charged, openHolds], [105_000n, 0])
    return got.id
  }
  const first = await use()
  t.equal((await list(gw)).data.length, 1)
  t.equal(statSync(folder).mode & 0o777, 0o700)
  t.equal(statSync(join(folder, readdirSync(folder)[0]!)).mode & 0o777, 0o600)

  renameSync(folder, folder + '-aside')
  writeFileSync(folder, 'a file is in its place')
  for (let i = 0; i < 3; i++) {
    await use()
    t.equal((await ask(gw, '')).status, 500, 'it says that it can\'t be read')
  }
  const lines = (): number => gw.logged.filter(({ msg }) => String(msg).startsWith('the log of requests can')).length
  t.equal(lines(), 1)
  t.equal(await metric(gw, 'gateway_request_log_dropped_total'), 3)
  rmSync(folder)
  renameSync(folder + '-aside', folder)
  const last = await use()
  t.strictSame((await list(gw)).data.map(({ request_id: id }) => id), [last, first])

  rmSync(folder, { recursive: true })
  const again = await use()
  t.strictSame((await list(gw)).data.map(({ request_id: id }) => id), [again], 'deleted while it is written')
  writeFileSync(join(folder, readdirSync(folder)[0]!), 'no JSON at all\u0000\n')
  const more = await use()
  t.strictSame((await list(gw)).data.map(({ request_id: id }) => id), [more])
  let entries = 0
  for await (const { kind } of gw.services.store.entries()) if (kind === 'settle') entries++
  t.equal(entries, 7)
  t.match(await gw.services.store.verify(), { differences: [] })
})

t.test('a reload changes how much is kept; off there is no folder', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const text = (requests: string): string => embedded(yaml([up.url], `log: { requests: ${requests} }`))
  const gw = await gateway(t, text('{ keep: 0 }'))
  const use = async (count: number): Promise<void> => {
    for (let i = 0; i < count; i++) await fate(gw, (await client(t, gw).post(messagesRequest).whole()).id)
  }
  const isThere = (): boolean => existsSync(folderOf(gw))
  await use(2)
  t.match(await list(gw), { data: [], next: null, keep: 0 })
  t.match(await ask(gw, '/req_' + '0'.repeat(24)), { status: 404, body: { error: { message: /log.requests.keep is 0/ } } })
  t.notOk(isThere())

  await gw.rewrite(text('{ keep: 50 }'))
  await use(6)
  const { data, keep } = await list(gw)
  t.strictSame([data.length, keep], [6, 50])
  await gw.rewrite(text('{ keep: 2, max_age: 1m, max_size: 1MB }'))
  t.strictSame((await list(gw)).data, data.slice(0, 2))
  await use(3)
  t.equal((await list(gw)).data.length, 2)
  await gw.rewrite(text('{ keep: 0 }'))
  t.match(await list(gw), { data: [], keep: 0 })
  await until(() => !isThere())
  for (const [mistake, name] of [['{ keep: -1 }', 'keep'], ['{ max_age: 1s }', 'max_age'], ['{ max_size: 1KB }', 'max_size'],
    ['{ most: 5 }', 'most']] as const) {
    await gw.rewrite(text(mistake))
    t.match(gw.live.state().problems, [{ path: `/log/requests/${name}` }])
  }
})

t.test('at the same time as others read and write: each request once, in its place', async (t) => {
  const up = await upstream(t, [wait(2), answer('Hello')])
  const gw = await gateway(t, embedded(yaml([up.url], 'log: { requests: { keep: 200 } }')))
  const ids: string[] = []
  let isOver = false
  const clients = Array.from({ length: 8 }, async () => {
    const own = client(t, gw)
    for (let i = 0; i < 25; i++) ids.push((await own.post(messagesRequest).whole()).id)
  })
  const reader = (async () => {
    while (!isOver) {
      const seen = (await list(gw, '?limit=1000')).data.map(({ request_id: id }) => id)
      t.strictSame([...new Set(seen)].toSorted().reverse(), seen)
    }
  })()
  await Promise.all(clients)
  for (const id of ids) await fate(gw, id)
  isOver = true
  await reader
  const seen = (await list(gw, '?limit=1000')).data.map(({ request_id: id }) => id)
  t.strictSame(seen.toSorted(), ids.toSorted())
  t.ok(seen.every(isRequestId))
})

t.test('with the memory driver there is no file', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const gw = await gateway(t, yaml([up.url]))
  await fate(gw, (await client(t, gw).post(messagesRequest).whole()).id)
  t.equal((await list(gw)).data.length, 1)
  t.throws(() => readdirSync(folderOf(gw)))
})
