// Dry runs: they say what the real request is told, and leave no trace. Over real sockets, on the real gateway with
// both stores.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { KeyConfig } from '../../src/config/config.ts'
import { codePoint } from '../support/code-point.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { explain, quote, stateOf } from '../support/rehearsals.ts'
import { answer, upstream, type Upstream } from '../support/upstream.ts'

const PIPELINE =
  'auth, key-policy, rate-limit: { families: { f: { rpm: 5 } } }, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'

const secretOf = (id: string): string => 'sk-gw-' + id.replaceAll('-', '').padStart(32, '0')

const MODELS = `
  - id: m2
    provider: acme
    created: 2025-09-29
    family: f
    context: 1000
    max_output: 100
    channels:
      cheap: { price: { input: 1, output: 2 }, targets: [{ upstream: u0, model: vendor-m2 }] }
  - id: off
    provider: acme
    created: 2025-09-29
    channels: { premium: { enabled: false, price: { input: 1, output: 2 }, targets: [{ upstream: u0, model: vendor-off }] } }
`

interface Rehearsed extends TestGateway { readonly up: Upstream }

async function rehearsed (
  t: Test,
  keys: Readonly<Record<string, Partial<KeyConfig>>> = {},
  options: { readonly driver?: string, readonly opening?: string, readonly routes?: string } = {}
): Promise<Rehearsed> {
  const up = await upstream(t, answer('Hello', { usage: { input_tokens: 3, output_tokens: 2 } }))
  const lines = Object.entries(keys)
    .map(([id, more]) => `  - ${JSON.stringify({ id, account: 'acme', secret: secretOf(id), ...more })}\n`)
    .join('')
  const text = yaml([up.url], lines + (options.routes ?? ''), PIPELINE).replace(
    'accounts:\n',
    `${MODELS}accounts:\n  - { id: poor, opening_balance_usd: ${options.opening ?? '0'} }\n  - { id: gone, suspended: true, opening_balance_usd: 5 }\n`
  )
  const gw = await gateway(t, text.replace('driver: memory', `driver: ${options.driver ?? 'memory'}`))
  return Object.assign(gw, { up })
}

/** What the real request is told. */
async function real (
  gw: TestGateway,
  id: string,
  path: string,
  body: unknown,
  headers: Readonly<Record<string, string>> = {}
): Promise<{ readonly status: number, readonly code: string | undefined, readonly message: string | undefined }> {
  const response = await fetch(gw.url + path, { method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': id === 'acme-dev' ? KEY : secretOf(id), ...headers },
    body: JSON.stringify(body) })
  const said = await response.json() as {
    readonly error?: { readonly message: string, readonly code?: string,
      readonly details?: { readonly error_code: string } }
  }
  return { status: response.status, code: said.error?.details?.error_code ?? said.error?.code,
    message: said.error?.message.replace(/ Request ID: \S+$/, '') }
}

const messages = messagesRequest.messages

interface Row {
  readonly refused: string
  readonly by: string
  readonly key?: string
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: Readonly<Record<string, unknown>>
}

const REFUSALS: readonly Row[] = [
  { refused: '401 authentication_error', by: 'auth onHead', key: 'frozen' },
  { refused: '402 account_frozen', by: 'auth onHead', key: 'suspended' },
  { refused: '403 ip_not_allowed', by: 'key-policy onHead', key: 'elsewhere' },
  { refused: '403 origin_not_allowed', by: 'key-policy onHead', key: 'page',
    headers: { origin: 'https://evil.example' } },
  { refused: '403 client_not_allowed', by: 'key-policy onHead', key: 'agent', headers: { 'user-agent': 'evil/1' } },
  { refused: '400 model_required', by: 'core body', body: { max_tokens: 5 } },
  { refused: '400 model_not_found', by: 'core body', body: { model: 'm', max_tokens: 5, messages } },
  { refused: '400 invalid_request', by: 'core body', body: { model: 'm1', stream: 'yes', max_tokens: 5, messages } },
  { refused: '403 model_not_allowed', by: 'key-policy onRequest', key: 'narrow' },
  { refused: '400 invalid_request', by: 'key-policy onRequest', key: 'unstreamed',
    body: { ...messagesRequest, stream: true } },
  { refused: '400 invalid_request', by: 'schema-validate onRequest', body: { model: 'm1', messages } },
  { refused: '400 invalid_request', by: 'schema-validate onRequest', body: { ...messagesRequest, max_tokens: 64_001 } },
  { refused: '400 context_length_exceeded', by: 'schema-validate onRequest', key: 'cheap',
    body: { model: 'm2', max_tokens: 5, messages: [{ role: 'user', content: 'so many words '.repeat(2000) }] } },
  { refused: '400 invalid_request', by: 'chat-to-messages onRequest', path: '/v1/chat/completions',
    body: { model: 'm1',
      messages: [{ role: 'user',
        content: [{ type: 'file', file: { filename: 'a.txt', file_data: 'data:text/plain;base64,/w==' } }] }] } },
  { refused: '403 model_not_in_channel', by: 'channel-router onRequest',
    body: { model: 'm2', max_tokens: 5, messages } },
  { refused: '503 channel_unavailable', by: 'channel-router onRequest',
    body: { model: 'off', max_tokens: 5, messages } },
  { refused: '400 invalid_request', by: 'billing-meter onRequest',
    body: { ...messagesRequest, tools: [{ type: 'web_search_20250305', name: 'web_search' }] } },
  { refused: '402 insufficient_quota', by: 'billing-meter onRequest', key: 'poor' },
  { refused: '402 insufficient_quota', by: 'billing-meter onRequest', key: 'limited' },
  { refused: '402 insufficient_quota', by: 'billing-meter onRequest', key: 'daily', path: '/v1/chat/completions' },
  { refused: '400 item_not_found', by: 'responses-to-messages onRequest', path: '/v1/responses',
    body: { model: 'm1', input: [{ type: 'item_reference', id: 'msg_1' }] } },
  { refused: '400 invalid_request', by: 'key-policy onRequest', key: 'unstreamed', path: '/v1/responses',
    body: { model: 'm1', input: 'Hello', stream: true } },
  { refused: '402 insufficient_quota', by: 'billing-meter onRequest', key: 'daily', path: '/v1/responses',
    body: { model: 'm1', input: 'Hello', max_output_tokens: 100 } }
]

const KEYS: Readonly<Record<string, Partial<KeyConfig>>> = {
  frozen: { frozen: true },
  suspended: { account: 'gone' },
  elsewhere: { ip_whitelist: ['10.0.0.0/8'] },
  page: { allowed_origins: ['https://app.example.com'] },
  agent: { allowed_clients: ['curl'] },
  narrow: { allowed_models: ['m2'] },
  unstreamed: { streaming: false },
  cheap: { routing_mode: 'cheap' },
  poor: { account: 'poor' },
  limited: { usage_limit_usd: '0.0001' },
  daily: { usage_limit_day_usd: '0.0001' }
}

t.test('every refusal is explained: by whom, and in the words that the client reads', async (t) => {
  const gw = await rehearsed(t, KEYS)
  const before = await stateOf(gw, ['acme-dev', ...Object.keys(KEYS)])
  for (const { refused, by, key = 'acme-dev', path = '/v1/messages', headers = {}, body = messagesRequest }
    of REFUSALS) {
    const { status, body: explained } = await explain(gw, { key, route: `POST ${path}`,
      headers: { 'user-agent': 'node', ...headers }, body })
    t.equal(status, 200, refused)
    const { allowed, then, refusal, steps } = explained
    t.strictSame([allowed, then, `${refusal?.status} ${refusal?.code}`], [false, 'refused', refused], by)
    const last = steps.at(-1)!
    t.strictSame([`${last.who} ${last.hook}`, last.verdict, steps.slice(0, -1).every(({ verdict }) =>
      verdict === 'passed'
    )], [by, 'refused', true])
  }
  t.strictSame(await stateOf(gw, ['acme-dev', ...Object.keys(KEYS)]), before, 'nothing was counted, held or charged')
  for (const { key = 'acme-dev', path = '/v1/messages', headers = {}, body = messagesRequest } of REFUSALS) {
    const { body: { refusal } } = await explain(gw, { key, route: `POST ${path}`,
      headers: { 'user-agent': 'node', ...headers }, body })
    const told = await real(gw, key, path, body, headers)
    t.strictSame({ status: refusal?.status, code: refusal?.code, message: refusal?.message }, told,
      String(refusal?.code))
  }
  t.equal(gw.up.requests.length, 0, 'and nobody was called')
})

t.test('what is allowed: the way down, the targets, the worst case, what is left', async (t) => {
  const gw = await rehearsed(t, { cheap: { routing_mode: 'auto_cheap', usage_limit_usd: '5' } })
  const { body } = await explain(gw, { key: 'cheap', body: { model: 'm2', max_tokens: 10, messages } })
  t.match(body, { allowed: true, then: 'sent to a target', refusal: null, key_state: 'active', account: 'acme',
    route: 'POST /v1/messages', model: 'm2', config_generation: 1, ip: '127.0.0.1' })
  t.strictSame(body.steps.map(({ who, hook, verdict, wrote }) => `${who} ${hook} ${verdict} ${wrote.join()}`), [
    'auth onHead passed api-key',
    'key-policy onHead passed ',
    'rate-limit onHead passed rate-limit',
    'core body passed body,model',
    'key-policy onRequest passed ',
    'rate-limit onRequest passed ',
    'schema-validate onRequest passed ',
    'chat-to-messages onRequest passed ',
    'channel-router onRequest passed plan',
    'billing-meter onRequest passed worst-case,billing-meter'
  ])
  t.strictSame(body.targets, [{ channel: 'cheap', upstream: 'u0', model: 'vendor-m2', priority: 0, weight: 1,
    price_version: 'input=1 output=2' }])
  const input = body['max_input_tokens'] as number
  t.equal(Number(body.max_cost_usd), (input + 20) / 1e6)
  t.strictSame([body['max_output_tokens'], body['held_at_start_usd']], [10, body.max_cost_usd])
  t.strictSame(body['prices'], [{ channel: 'cheap', price: { input: '1', output: '2' }, until: null }])
  t.match(body['limits'], { balance_usd: '100', available_usd: '100', usage_limit_usd: '5', remaining_usd: '5',
    spent_usd: '0' })
  t.match(body['answer_headers'], { ratelimit: /"key";r=60;t=0, "family";r=5;t=0/ })
})

t.test('a hold is what is explained, and what the real request holds', async (t) => {
  const gate = Promise.withResolvers<void>()
  const up = await upstream(t, async () => { await gate.promise; return answer('Hello') })
  const gw = await gateway(t, yaml([up.url], '', PIPELINE))
  for (const body of [messagesRequest, { ...messagesRequest, max_tokens: 60_000, stream: true }]) {
    const { body: explained } = await explain(gw, { key: 'acme-dev', body })
    const running = gw.messages(body)
    for (;;) {
      const { held, open_holds: open } = await gw.services.store.balance('acme')
      if (open === 0) { await new Promise((resolve) => { setImmediate(resolve) }); continue }
      t.equal(Number(explained['held_at_start_usd']) * 1e9, Number(held))
      break
    }
    gate.resolve()
    await (await running).text()
  }
})

t.test('every kind of route can be asked about, and what is none is refused', async (t) => {
  const gw = await rehearsed(t, {}, {
    routes: 'routes:\n  - { match: POST /v1/embeddings, forward: u0, price: { usd: 0.25 } }\n'
  })
  const asked = async (route: string, body?: unknown): Promise<unknown> => {
    const { body: { then, targets, max_cost_usd: most } } = await explain(gw, { key: 'acme-dev', route,
      ...(body !== undefined && { body }) })
    return [then, targets, most]
  }
  t.strictSame(await asked('POST /v1/embeddings'), ['forwarded', [{ upstream: 'u0' }], '0.25'])
  t.strictSame(await asked('GET /v1/models?limit=1'), ['answered by the gateway', [], '0'])
  t.match(await asked('/v1/messages/count_tokens', { model: 'm1', messages }), ['answered by the gateway', [{
    upstream: 'u0'
  }], '0'])
  t.match(await asked('POST /v1/quote', { path: '/v1/messages' }), ['answered by the gateway', [], '0'])
  t.match(await explain(gw, { key: 'acme-dev', route: 'POST /v1/message', body: messagesRequest }), { status: 400,
    body: { error: { code: 'invalid_request', message: /^\/route There is nothing at POST \/v1\/message/ } } })
  t.match(await explain(gw, { key: 'acme-dev', route: 'GET /v1/messages' }), { status: 400,
    body: { error: { message: /^\/route This address takes POST, not GET/ } } })
  t.match(await explain(gw, { key: 'acme-dv', body: messagesRequest }), { status: 404,
    body: { error: { message: /^There is no key "acme-dv" \(did you mean "acme-dev"\?\)/ } } })
  t.match(await explain(gw, { key: 'acme-dev', boddy: {} }), { status: 400,
    body: { error: { message: /unknown key "boddy" \(did you mean "body"\?\)/ } } })
  t.match(await explain(gw, { key: 'acme-dev', route: 'post messages' }), { status: 400,
    body: { error: { message: /^\/route must be a method and a path/ } } })
  t.match(await explain(gw, { key: 'acme-dev' }), { status: 200,
    body: { refusal: { code: 'bad_request' }, steps: { length: 4 } } }, 'a request without a body')
  t.match(await explain(gw, { key: 'acme-dev', body: messagesRequest }, 'wrong'), { status: 401 })
  for (const path of ['/v1/explain', '/admin/v1/explain']) {
    t.equal(
      (await fetch(gw.url + path, { method: 'POST', headers: { 'x-api-key': KEY }, body: '{"key":"acme-dev"}' }))
        .status,
      404,
      'never at the API'
    )
  }
})

t.test('keys of the admin API are known by their id too, and one that has expired is refused', async (t) => {
  let now = Date.parse('2027-01-01T00:00:00Z')
  const up = await upstream(t, answer('Hello'))
  const gw = await gateway(t, yaml([up.url], '', PIPELINE), { now: () => now })
  const admin = (path: string, body: unknown): Promise<Response> =>
    fetch(gw.urls.admin + '/admin/v1' + path, { method: 'POST', headers: { authorization: 'Bearer test-admin-token' },
      body: JSON.stringify(body) })
  t.equal((await admin('/keys', { id: 'made', account: 'acme', expires_at: '2027-01-02T00:00:00Z' })).status, 201)
  t.match(await explain(gw, { key: 'made', body: messagesRequest }), { body: { allowed: true, key_state: 'active' } })
  now = Date.parse('2027-01-02T00:00:00Z')
  t.match(await explain(gw, { key: 'made', body: messagesRequest }), {
    body: { allowed: false, key_state: 'expired', refusal: { code: 'authentication_error' } }
  })
  await fetch(gw.urls.admin + '/admin/v1/keys/made', { method: 'DELETE',
    headers: { authorization: 'Bearer test-admin-token' } })
  t.match(await explain(gw, { key: 'made', body: messagesRequest }), { status: 404 })
})

t.test('windows and slots that are full are said to be, as they are', async (t) => {
  const gate = Promise.withResolvers<void>()
  const up = await upstream(t, async () => {
    await gate.promise
    return answer('Hello')
  })
  const gw = await gateway(t,
    yaml([up.url], `  - { id: one, account: acme, secret: ${secretOf('one')}, concurrency: 1, rate_limit: 2 }\n`,
      PIPELINE))
  const ask = (): Promise<Response> => gw.messages(messagesRequest, { headers: { 'x-api-key': secretOf('one') } })
  const told = async (): Promise<string | undefined> =>
    (await explain(gw, { key: 'one', body: messagesRequest })).body.refusal?.code
  t.equal(await told(), undefined)
  const running = ask()
  while (up.requests.length === 0) await new Promise((resolve) => { setImmediate(resolve) })
  t.equal(await told(), 'org_queue_full')
  t.equal(await told(), 'org_queue_full', 'nor has the question taken a slot')
  gate.resolve()
  await (await running).text()
  t.equal(await told(), undefined)
  await (await ask()).text()
  const { body: { refusal } } = await explain(gw, { key: 'one', body: messagesRequest })
  t.strictSame([refusal?.code, Number.isInteger(refusal?.retry_after)], ['rate_limited', true])
})

const PLUGIN = `import { definePlugin } from 'model-gateway'
globalThis.dryLog = []
export default definePlugin({
  name: 'greedy',
  create (_options, _config, services) {
    dryLog.push('create')
    return {
      async onRequest (exchange) {
        if ('store' in services || 'store' in exchange.snapshot.services) throw new Error('there is another way to money')
        const store = exchange.ledger
        dryLog.push(exchange.dry === undefined ? 'real' : 'dry')
        const id = exchange.id + '-mine'
        const take = () => store.settle({ request_id: id, nanos: 5n, model: 'x', usage: { input: 1, cache_read: 0, cache_write_5m: 0, cache_write_1h: 0, output: 0, extras: {} }, usage_source: 'provider' })
        await store.admit({ request_id: id, windows: [{ name: 'key:acme-dev', limit: 100 }], slot: { name: 'key:acme-dev', limit: 100 } })
        if ((await store.hold({ request_id: id, account: 'acme', key: 'acme-dev', nanos: 5n })).kind === 'held') await take()
        exchange.onFinish(async ({ kind }) => { dryLog.push(kind); await store.leave(id) })
        if (exchange.received.headers['x-extend'] !== undefined) await store.extend(id, 5n)
        if (exchange.received.headers['x-answer'] !== undefined) return { kind: 'json', status: 200, headers: {}, body: { type: 'message' } }
      },
      close () { dryLog.push('close') }
    }
  }
})
`

t.test('a plugin that charges and counts by itself does neither in a dry run, and can know that it is one', async (t) => {
  const up = await upstream(t, answer('Hello'))
  const text = yaml([up.url]).replace('pipeline: [auth,', 'pipeline: [auth, { use: ./greedy.ts },')
  const gw = await gateway(t, text, { files: { 'greedy.ts': PLUGIN } })
  const log = (globalThis as unknown as { dryLog: string[] }).dryLog
  log.length = 0
  const before = await stateOf(gw)
  t.match(await explain(gw, { key: 'acme-dev', body: messagesRequest }), { body: { allowed: true } })
  t.match(await explain(gw, { key: 'acme-dev', body: messagesRequest, headers: { 'X-Answer': '1' } }), {
    body: { allowed: true, then: 'answered by a plugin', max_cost_usd: '0',
      steps: [{}, {}, { who: 'greedy', verdict: 'answered' }] }
  })
  t.match(await explain(gw, { key: 'acme-dev', body: messagesRequest, headers: { 'x-extend': '1' } }), {
    body: { allowed: false, refusal: { status: 500, code: 'server_error', cause: /has no hold to extend: this is a dry run/ },
      steps: [{}, {}, { who: 'greedy', verdict: 'failed' }] }
  })
  t.strictSame(await stateOf(gw), before)
  t.strictSame(log, ['dry', 'failed', 'dry', 'failed', 'dry', 'failed'], 'by the plugin of real requests')
  t.equal((await gw.messages(messagesRequest)).status, 200)
  t.not(JSON.stringify(await stateOf(gw), (_, value: unknown) => typeof value === 'bigint' ? String(value) : value),
    JSON.stringify(before, (_, value: unknown) => typeof value === 'bigint' ? String(value) : value),
    'and in a real one it does')
  log.length = 0
  await gw.rewrite(text.replace('input: 3', 'input: 4'))
  t.strictSame(log.toSorted(), ['close', 'create'], 'it ends with its configuration')
})

const body = fc.record({
  model: fc.constantFrom<unknown>('m1', 'm1', 'm1', 'm2', 'off', 'nope', 7),
  max_tokens: fc.oneof(fc.integer({ min: 1, max: 70_000 }), fc.constantFrom<unknown>(0, -1, 1.5, 'many', null)),
  stream: fc.constantFrom<unknown>(false, true, null, 'yes'),
  messages: fc.oneof(
    fc.array(
      fc.record({ role: fc.constantFrom('user', 'assistant', 'system', 'nobody'),
        content: fc.string({ maxLength: 200, unit: codePoint }) }),
      { maxLength: 3 }
    ),
    fc.constant<unknown>('Hello')
  ),
  tools: fc.constantFrom<unknown>([], [{ type: 'web_search_20250305', name: 'web_search' }], [{ name: 'f',
    input_schema: { type: 'object' } }])
}, { requiredKeys: ['model', 'messages'] })
const request = fc.record({ body,
  path: fc.constantFrom('/v1/messages', '/v1/chat/completions', '/v1/responses',
    '/v1/messages/count_tokens'),
  key: fc.constantFrom('acme-dev', 'cheap', 'limited', 'frozen') })

for (const driver of ['memory', 'embedded']) {
  void t.test(`${driver}: whatever is asked, nothing changes; and it is what the real request is told`, async (t) => {
    const keys = { cheap: { routing_mode: 'auto_cheap', rate_limit: 0, concurrency: 0 },
      limited: { usage_limit_usd: '0.002', rate_limit: 0 }, frozen: { frozen: true },
      counted: { rate_limit: 0 } } as const
    const gw = await rehearsed(t, keys, { driver })
    const names = ['acme-dev', ...Object.keys(keys)]
    let asked = 0
    await fc.assert(fc.asyncProperty(request, async ({ body: said, path, key }) => {
      const body = path !== '/v1/responses' ? said
        : { ...said, input: said.messages, max_output_tokens: said.max_tokens }
      const before = await stateOf(gw, names)
      const { body: explained } = await explain(gw, { key, route: `POST ${path}`, headers: { 'user-agent': 'node' },
        body })
      const quoted = await quote(gw, { path, body }, { 'x-api-key': secretOf('counted') })
      t.strictSame(await stateOf(gw, names), before)
      t.ok([200, 400, 403, 503].includes(quoted.status), JSON.stringify(quoted.body))
      t.equal(gw.up.requests.length, asked)
      if (key === 'limited' || path === '/v1/messages/count_tokens' || explained.refusal?.status === 429) return
      const told = await real(gw, key, path, { ...body, stream: body.stream === true ? false : body.stream })
      asked = gw.up.requests.length
      t.strictSame([explained.allowed, explained.refusal?.code], [told.status === 200, told.code],
        JSON.stringify([path, key, body, explained.refusal, told]))
    }), { numRuns: 60 })
  })
}
