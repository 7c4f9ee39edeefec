// POST /v1/messages/count_tokens: passed on where the provider counts, estimated everywhere else, refused like a
// message; free.
import t from 'tap'
import { client, fate } from '../support/client.ts'
import { CALM, gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { time } from '../support/resilience.ts'
import { tokensOf } from '../support/tokens.ts'
import { until } from '../support/until.ts'
import { answer, cut, errorReply, json, raw, refusing, stall, status, upstream,
  type Script } from '../support/upstream.ts'

const CHEAP = 'sk-gw-' + 'c'.repeat(32)
const hello = { model: 'm1', messages: [{ role: 'user' as const, content: 'Hello there' }] }
const HELLO = tokensOf('Hello there\n') + 6
const PATH = '/v1/messages/count_tokens'

/** @param url of the only upstream, which counts; undefined: it does not, and nobody is there */
function counting (url?: string): string {
  const text = yaml([url ?? 'http://127.0.0.1:9'],
    `  - { id: cheap, account: acme, secret: ${CHEAP}, channels: [cheap] }\n`)
  return url === undefined ? text : text.replace('dialect: messages,', 'dialect: messages, count_tokens: true,')
}

interface Count {
  readonly status: number
  readonly tokens: number
  readonly by: string | null
  readonly code: string | undefined
  readonly message: string
  readonly id: string
}

async function count (gw: TestGateway, body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Count> {
  const response = await fetch(gw.url + PATH, { method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': KEY, ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body) })
  const { input_tokens: tokens = NaN, error } = await response.json() as { input_tokens?: number,
    error?: { message: string, details: { error_code: string } } }
  return { status: response.status, tokens, by: response.headers.get('x-gateway-count'),
    code: error?.details.error_code, message: error?.message ?? '', id: response.headers.get('request-id')! }
}

// One provider that says what the test wants, and one gateway in front of it: each costs half a second.
let script: Script = stall()
const vendor = await upstream(t, () => script)
const stamp = `// Adds a header.
export default { name: 'stamp', create: () => ({ perAttempt: () => ({ onUpstreamRequest (request) { request.headers['x-stamp'] = 'here' } }) }) }`
const gw = await gateway(t, counting(vendor.url).replace('billing-meter,', '{ use: ./stamp.ts }, billing-meter,')
  .replace('store:', 'hook_timeout: 2m\nstore:').replace('drain_timeout: 5s', 'drain_timeout: 5s\n  body_limit: 1MB'), {
  files: { 'stamp.ts': stamp }
})
const estimating = await gateway(t, counting())

void t.test('it costs nothing, counted by the provider or estimated', async (t) => {
  script = json({ input_tokens: 4 })
  for (const [by, asked] of [['provider', gw], ['estimated', estimating]] as const) {
    const { id, ...counted } = await count(asked, hello)
    t.match(counted, { status: 200, tokens: by === 'provider' ? 4 : HELLO, by })
    const { line, entries, openHolds } = await fate(asked, id)
    t.match(line, { route: 'POST /v1/messages/count_tokens', status: 200, code: 'ok', key_id: 'acme-dev', model: 'm1',
      attempts: by === 'provider' ? 1 : 0 })
    t.notOk('nanos' in line)
    t.strictSame(entries, [])
    t.equal(openHolds, 0)
  }
})

void t.test('the provider gets the whole body, base64 that stayed bytes too, and what plugins add', async (t) => {
  script = json({ input_tokens: 1234 })
  const data = Buffer.alloc(150_000, 'image bytes').toString('base64')
  const body = { ...hello,
    messages: [{ role: 'user',
      content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data } }] }], tools: [],
    thinking: { type: 'disabled' } }
  t.match(await count(gw, body), { status: 200, tokens: 1234, by: 'provider' })
  const { body: sent, headers } = vendor.requests.at(-1)!
  t.strictSame(sent, { ...body, model: 'vendor-m1' })
  t.match(headers, { 'x-stamp': 'here', accept: 'application/json' })
})

void t.test('a provider that can\'t count now is not waited for: it is estimated', async (t) => {
  const scripts: Readonly<Record<string, Script>> = {
    'overloaded': errorReply(529, 'overloaded_error', 'Overloaded'),
    'server error': errorReply(500, 'api_error', 'Internal server error'),
    'our key refused': errorReply(401, 'authentication_error', 'invalid x-api-key'),
    'no such address': errorReply(404, 'not_found_error', 'Not found'),
    'redirect': status(302, { location: 'http://127.0.0.1:9/' }),
    'html': raw('<html>'),
    'no count': json({ tokens: 5 }),
    'a negative count': json({ input_tokens: -1 }),
    'half a token': json({ input_tokens: 1.5 }),
    'a text': json({ input_tokens: '5' }),
    'null': json(null),
    'too long': json({ input_tokens: 5, more: 'x'.repeat(100_000) }),
    'cut in the body': [status(200, { 'content-length': '100' }), raw('{"input_tokens": 5'), cut()],
    'cut before the head': cut(),
    'an error that is cut': [status(503, { 'content-length': '100' }), raw('{'), cut()],
    'silent': stall(),
    'silent in the body': [status(200), raw('{"input_tokens": 5'), stall()]
  }
  const gw = await gateway(t, counting(vendor.url).replace('store:', 'hook_timeout: 1s\nstore:'))
  let asked = vendor.requests.length
  for (const [name, one] of Object.entries(scripts)) {
    gw.heal()
    script = one
    t.match(await count(gw, hello), { status: 200, tokens: HELLO, by: 'estimated' }, name)
    t.equal(vendor.requests.length, ++asked, name)
  }
  const gone = await gateway(t, counting(await refusing()))
  t.match(await count(gone, hello), { status: 200, tokens: HELLO, by: 'estimated' }, 'nobody listens')
})

void t.test('a count says nothing of messages: not that they are limited, and not that they are well again', async (t) => {
  const clock = time()
  let [counted, told]: readonly Script[] = []
  const vendor = await upstream(t, ({ path }) => path === PATH ? counted! : told!)
  const gw = await gateway(t,
    counting(vendor.url).replace(CALM,
      'retries: { attempts: 0, max_backoff: 1ms }, breaker: { failures: 1, ratio: 1 }'), clock)
  const post = async (): Promise<number> => (await client(t, gw).post({ ...hello, max_tokens: 5 }).whole()).status
  told = answer('well')
  for (const code of [401, 402, 403, 429]) {
    counted = errorReply(code, 'rate_limit_error', 'no', { 'retry-after': '60' })
    t.match(await count(gw, hello), { status: 200, by: 'estimated' })
    t.equal(await post(), 200, String(code))
  }
  counted = json({ input_tokens: 3 })
  t.match(await count(gw, hello), { tokens: 3, by: 'provider' })

  told = errorReply(500, 'api_error', 'no')
  t.equal(await post(), 502)
  const before = vendor.requests.length
  t.match(await count(gw, hello), { by: 'estimated' })
  await clock.advance(5000)
  t.match(await count(gw, hello), { by: 'estimated' }, 'half open: the next message finds out')
  t.equal(vendor.requests.length, before)
  told = answer('well')
  t.equal(await post(), 200)
  t.match(await count(gw, hello), { tokens: 3, by: 'provider' })
})

void t.test('what the provider refuses because of the request is the client\'s to know', async (t) => {
  const cases: readonly (readonly [Script, number, string, RegExp])[] = [
    [errorReply(400, 'invalid_request_error', 'messages.0: vendor-m1 does not take this'), 400, 'invalid_request',
      /^messages\.0: m1 does not take this Request ID/],
    [errorReply(400, 'invalid_request_error', 'prompt is too long: 210000 tokens > 200000 maximum'), 400,
      'context_length_exceeded', /210000/],
    [json([{ error: { code: 400, message: 'top_k is odd' } }]), 400, 'invalid_request', /^top_k is odd/],
    [errorReply(413, 'request_too_large', 'Request exceeds the maximum size'), 413, 'request_too_large',
      /^Request exceeds the maximum size/],
    [[status(413, { 'content-length': '100' }), raw('<html>'), cut()], 413, 'request_too_large', /too large/]
  ]
  for (const [one, code, name, message] of cases) {
    script = one
    const told = await count(gw, hello)
    t.match(told, { status: code, code: name, by: null })
    t.match(told.message, message)
    t.equal((await fate(gw, told.id)).entries.length, 0)
  }
})

void t.test('a request that a plugin has made unprintable is its own 500, and nothing comes after', async (t) => {
  script = stall()
  const breaking = `export default { name: 'breaking', create: () => ({ perAttempt: (_attempt, exchange) => ({
    onUpstreamRequest (request) { if (exchange.received.headers['x-break'] === '1') request.body = { n: 1n } }
  }) }) }`
  const gw = await gateway(t,
    counting(vendor.url).replace('billing-meter,', '{ use: ./breaking.ts }, billing-meter,').replace('store:',
      'hook_timeout: 1s\nstore:'), { files: { 'breaking.ts': breaking } })
  const before = vendor.requests.length
  t.match(await count(gw, hello, { 'x-break': '1' }), { status: 500, code: 'server_error' })
  // By the time that its provider would have had, and this one's has, it is long over.
  t.match(await count(gw, hello), { status: 200, by: 'estimated' })
  t.equal(vendor.requests.length, before + 1)
  const { line } = await fate(gw, String(gw.logged.find(({ code }) => code === 'server_error')?.['request_id']))
  t.match(line, { outcome: 'failed', err: { message: /BigInt/ } })
})

void t.test('a client that leaves takes the provider\'s work with it', async (t) => {
  script = stall()
  const [before, count] = [gw.logged.length, vendor.requests.length]
  const leaving = new AbortController()
  const asked = fetch(gw.url + PATH, { method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': KEY }, body: JSON.stringify(hello),
    signal: leaving.signal })
  asked.catch(() => {})
  const request = await until(() => vendor.requests[count])
  leaving.abort()
  t.equal(await request.closed, 'left')
  t.match(await until(() => gw.logged.slice(before).find(({ msg }) => msg === 'request')), { code: 'client_closed',
    outcome: 'failed' })
})

void t.test('it is refused as a message would be, in the messages format, and nobody is asked', async (t) => {
  const before = vendor.requests.length
  const cases: readonly (readonly [unknown, Readonly<Record<string, string>>, number, string])[] = [
    [hello, { 'x-api-key': '' }, 401, 'authentication_error'],
    [hello, { 'x-api-key': CHEAP }, 403, 'model_not_in_channel'],
    [{ messages: [] }, {}, 400, 'model_required'],
    [{ ...hello, model: 'nope' }, {}, 400, 'model_not_found'],
    [{ model: 'm1' }, {}, 400, 'invalid_request'],
    [{ model: 'm1', messages: 'Hello' }, {}, 400, 'invalid_request'],
    [hello, { 'anthropic-version': 'yesterday' }, 400, 'invalid_request'],
    ['{', {}, 400, 'bad_request'],
    [{ ...hello, system: 'x'.repeat(1_100_000) }, {}, 413, 'request_too_large']
  ]
  for (const [body, headers, code, name] of cases) {
    t.match(await count(gw, body, headers), { status: code, code: name }, name)
  }
  t.equal(vendor.requests.length, before)
  t.equal((await fetch(gw.url + PATH, { headers: { 'x-api-key': KEY } })).headers.get('allow'), 'POST')
})

void t.test('it counts as a request of its key, and every plugin of the shipped list lets it pass', async (t) => {
  script = json({ input_tokens: 3 })
  const before = vendor.requests.length
  const pipeline =
    'auth, key-policy, rate-limit, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'
  const gw = await gateway(t,
    counting(vendor.url).replace(/pipeline: .*/, `pipeline: [${pipeline}]`).replace('id: acme-dev,',
      'id: acme-dev, rate_limit: 2, allowed_models: ["m*"],')
      .replace(`secret: ${CHEAP}, channels: [cheap]`, `secret: ${CHEAP}, allowed_models: ["other"]`))
  t.match(await count(gw, { ...hello, system: 'Be brief', tools: [], thinking: { type: 'disabled' } }), { status: 200,
    tokens: 3 })
  t.match(await count(gw, hello, { 'x-api-key': CHEAP }), { status: 403, code: 'model_not_allowed' })
  t.match(await count(gw, { model: 'm1' }), { status: 400, code: 'invalid_request' })
  t.match(await count(gw, hello), { status: 429, code: 'rate_limited' })
  t.equal(vendor.requests.length, before + 1)
})

void t.test('an account without money may count, which a message may not', async (t) => {
  script = json({ input_tokens: 3 })
  const gw = await gateway(t, counting(vendor.url).replace('opening_balance_usd: 100', 'opening_balance_usd: 0'))
  t.match(await count(gw, hello), { status: 200, tokens: 3 })
  const message = await gw.messages({ ...hello, max_tokens: 5 })
  t.equal(message.status, 402)
  await message.text()
})

void t.test('at an address of the operator\'s own it is refused in the messages format too', async (t) => {
  const own = await gateway(t,
    counting() + 'routes:\n  - { match: POST /claude/v1/messages/count_tokens, serve: count-tokens }\n')
  const ask = async (body: unknown): Promise<unknown> =>
    await (await fetch(`${own.url}/claude/v1/messages/count_tokens`, { method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': KEY }, body: JSON.stringify(body) })).json()
  t.strictSame(await ask(hello), { input_tokens: HELLO })
  t.match(await ask({ ...hello, model: 'none' }), { type: 'error',
    error: { details: { error_code: 'model_not_found' } } })
})
