// POST /v1/quote over real sockets: what it says to the owner of a key, what it costs (a place in the rate limit), and
// what it never tells.
import t from 'tap'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { quote, stateOf } from '../support/rehearsals.ts'
import { answer, upstream } from '../support/upstream.ts'

const PIPELINE =
  'auth, key-policy, rate-limit: { families: { f: { rpm: 2 } } }, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'
const SECRETS = /127\.0\.0\.1|\bu[01]\b|vendor|upstream|sk-gw|weight/

t.test('the worst case, the prices, and what is left; nothing of upstreams', async (t) => {
  const up = await upstream(t, answer('Hello', { usage: { input_tokens: 3, output_tokens: 2 } }))
  const gw = await gateway(t, yaml([up.url, 'http://127.0.0.1:9'], '', PIPELINE))
  const before = await stateOf(gw) as { readonly counted: readonly unknown[] }
  const { status, headers, body } = await quote(gw, { path: '/v1/messages', body: messagesRequest })
  t.equal(status, 200)
  const input = body['max_input_tokens'] as number
  t.match(body, {
    object: 'quote',
    path: '/v1/messages',
    model: 'm1',
    allowed: true,
    refusal: null,
    max_output_tokens: 100,
    prices: [{ channel: 'premium', price: { input: '3', output: '15', cache_read: '0.30', cache_write: '3.75' },
      until: null }],
    limits: { balance_usd: '100', available_usd: '100', usage_limit_usd: null, remaining_usd: null,
      this_day: { resets_at: /Z$/ } }
  })
  t.equal(Math.round(Number(body['max_cost_usd']) * 1e9), Math.round((input * 3.75 + 100 * 15) * 1e3),
    'the dearest class of input')
  t.notMatch(JSON.stringify(body), SECRETS)
  t.equal(headers.get('x-gateway-cost-usd'), null)
  t.match(headers.get('ratelimit'), /"key";r=59;/, 'it was counted')
  const { counted, ...after } = await stateOf(gw) as { readonly counted: readonly unknown[] }
  t.match(before, after, 'and that is all that it was')
  t.match(counted, [['acme-dev', [1, 0, 0], 'admitted', { spent: 0n, held: 0n }]])
  t.equal(up.requests.length, 0)

  const told = await gw.messages(messagesRequest)
  t.ok(Number(told.headers.get('x-gateway-cost-usd')) <= Number(body['max_cost_usd']))
  t.match((await quote(gw, { path: '/v1/messages', body: messagesRequest })).body['limits'], {
    spent_usd: told.headers.get('x-gateway-cost-usd')
  })
})

t.test('a stream says what it holds at first, and what it may come to cost', async (t) => {
  const gw = await gateway(t, yaml(['http://127.0.0.1:9'], '', PIPELINE))
  const { body } = await quote(gw, { path: '/v1/messages',
    body: { ...messagesRequest, max_tokens: 64_000, stream: true } })
  t.equal(Math.round((Number(body['max_cost_usd']) - Number(body['held_at_start_usd'])) * 1e9),
    (64_000 - 4096) * 15_000)
})

t.test('in every style, of forward routes, and of what costs nothing', async (t) => {
  const gw = await gateway(t,
    yaml(['http://127.0.0.1:9'], 'routes:\n  - { match: POST /v1/embeddings, forward: u0, price: { usd: 0.25 } }\n',
      PIPELINE))
  const asked = async (path: string, body?: unknown): Promise<unknown> => {
    const got = await quote(gw, { path, ...(body !== undefined && { body }) })
    return [got.status, got.body['max_cost_usd'], got.body['model']]
  }
  t.strictSame(await asked('/v1/embeddings'), [200, '0.25', null])
  t.strictSame(
    await asked('/v1/messages/count_tokens', { model: 'm1', messages: messagesRequest.messages }), [200, '0', 'm1']
  )
  const chat = await quote(gw, { path: '/v1/chat/completions?x=y', body: messagesRequest })
  t.match(chat.body, { allowed: true, max_output_tokens: 100 })
  const response = await quote(gw, { path: '/v1/responses',
    body: { model: 'm1', input: 'Hello', max_output_tokens: 100 } })
  t.match(response.body, { allowed: true, max_output_tokens: 100 })
  t.strictSame(await asked('/v1/quote', { path: '/v1/messages' }), [200, '0', null], 'a quote of a quote')
})

t.test('an image costs what its variant costs, times how many', async (t) => {
  const model =
    '  - { id: nano, provider: acme, kind: image, created: 2025-11-20, parameters: { resolution: { values: [1K, 2K], default: 1K } }, channels: { premium: { price: [{ when: { resolution: 1K }, usd: 0.039 }, { usd: 0.06 }], targets: [{ upstream: pics, model: vendor-nano }] } } }'
  const gw = await gateway(t,
    yaml(['http://127.0.0.1:9'], '', PIPELINE).replace('models:',
      `  pics: { url: "http://127.0.0.1:9", dialect: images }\nmodels:\n${model}`))
  const { body } = await quote(gw, { path: '/v1/images/generations', body: { model: 'nano', prompt: 'A cat', n: 2 } })
  t.match(body, { allowed: true, model: 'nano', max_cost_usd: '0.078',
    prices: [{ channel: 'premium', price: [{ when: { resolution: '1K' }, usd: '0.039' }, { usd: '0.06' }] }] })
  t.match(
    (await quote(gw, { path: '/v1/images/generations', body: { model: 'nano', prompt: 'A cat', resolution: '2K' } }))
      .body,
    { max_cost_usd: '0.06' }
  )
  t.notMatch(JSON.stringify(body), SECRETS)
})

t.test('who can\'t pay is told how much it would be, and that it would be refused', async (t) => {
  const gw = await gateway(t,
    yaml(['http://127.0.0.1:9'], '', PIPELINE).replace('opening_balance_usd: 100', 'opening_balance_usd: 0.001'))
  t.match(await quote(gw, { path: '/v1/messages', body: messagesRequest }), {
    status: 200,
    body: { allowed: false, max_cost_usd: /^0\.00[1-9]/,
      refusal: { code: 'insufficient_quota', type: 'billing_error',
        message: /^This request may cost up to \$0\.00\d+, and the balance of the account has \$0\.001 left\./ },
      limits: { balance_usd: '0.001' } }
  })
})

t.test('what has no price is refused as the request itself would be, in the style of chat', async (t) => {
  const gw = await gateway(t, yaml(['http://127.0.0.1:9'], '', PIPELINE))
  const asked = async (question: unknown): Promise<unknown> => {
    const { status, body } = await quote(gw, question)
    const { code, param, request_id: id, message } = body['error'] as { readonly code: string,
      readonly param: string | null, readonly request_id: string, readonly message: string }
    t.ok(message.endsWith(` Request ID: ${id}`))
    return [status, code, param]
  }
  t.strictSame(
    await asked({ path: '/v1/messages', body: { model: 'm9', max_tokens: 1, messages: [] } }),
    [400, 'model_not_found', 'model']
  )
  t.strictSame(
    await asked({ path: '/v1/messages', body: { ...messagesRequest, max_tokens: -1 } }),
    [400, 'invalid_request', 'max_tokens']
  )
  t.strictSame(await asked({ path: '/v1/messages' }), [400, 'bad_request', null])
  t.strictSame(await asked({ path: '/v1/nothing', body: {} }), [404, 'not_found', null])
  t.strictSame(await asked({ path: '/v1/models', body: {} }), [405, 'bad_request', null])
  t.strictSame(await asked(messagesRequest), [400, 'invalid_request', 'path'])
  t.strictSame(await asked({ path: '/v1/messages', boddy: {} }), [400, 'invalid_request', 'boddy'])
  t.strictSame(await asked({ path: 'v1/messages', body: {} }), [400, 'invalid_request', 'path'])
  t.strictSame(await asked({ path: `/v1/messages?${'x'.repeat(65_536)}`, body: messagesRequest }),
    [400, 'invalid_request', 'path'], 'the quote would repeat it')
  t.strictSame(await asked({ path: '/v1/messages', body: [] }), [400, 'invalid_request', 'body'])
  t.strictSame(
    await asked({ path: '/v1/messages', body: messagesRequest, key: 'other' }), [400, 'invalid_request', 'key']
  )
  t.equal((await quote(gw, { path: '/v1/messages', body: messagesRequest }, {})).status, 401)
  t.equal(
    (await quote(gw, { path: '/v1/messages', body: messagesRequest }, { 'x-api-key': 'sk-gw-' + 'x'.repeat(32) }))
      .status,
    401
  )
  const got = await fetch(gw.url + '/v1/quote', { headers: { 'x-api-key': KEY } })
  t.strictSame([got.status, got.headers.get('allow')], [405, 'POST'])
})

t.test('it is limited like any request; a key that may run one at a time can ask, and while one runs it can\'t', async (t) => {
  const gate = Promise.withResolvers<void>()
  const up = await upstream(t, async () => {
    await gate.promise
    return answer('Hello')
  })
  const gw = await gateway(t,
    yaml([up.url], '', PIPELINE).replace(`secret: ${KEY} }`, `secret: ${KEY}, rate_limit: 4, concurrency: 1 }`))
  const ask = async (): Promise<unknown> => {
    const { status, body } = await quote(gw, { path: '/v1/messages', body: messagesRequest })
    return [status, body['allowed'] ?? (body['error'] as { code: string }).code]
  }
  t.strictSame(await ask(), [200, true])
  const running = gw.messages(messagesRequest)
  while (up.requests.length === 0) await new Promise((resolve) => { setImmediate(resolve) })
  t.strictSame(await ask(), [429, 'org_queue_full'])
  gate.resolve()
  await (await running).text()
  t.strictSame(await ask(), [200, true])
  t.strictSame(await ask(), [200, true], 'the last place is its own')
  t.strictSame(await ask(), [429, 'rate_limited'])
})

t.test('the policies of the key hold for it, and for the request in it', async (t) => {
  const gw = await gateway(t,
    yaml(['http://127.0.0.1:9'], '', PIPELINE).replace(`secret: ${KEY} }`,
      `secret: ${KEY}, allowed_models: [other], allowed_clients: [curl] }`))
  t.match(await quote(gw, { path: '/v1/messages', body: messagesRequest }, { 'x-api-key': KEY, 'user-agent': 'evil' }),
    { status: 403, body: { error: { code: 'client_not_allowed' } } })
  t.match(
    await quote(gw, { path: '/v1/messages', body: messagesRequest }, { 'x-api-key': KEY, 'user-agent': 'curl/8' }),
    { status: 403, body: { error: { code: 'model_not_allowed' } } }
  )
})

t.test('a plugin that breaks breaks the quote, wherever it stands', async (t) => {
  const broken =
    'import { definePlugin } from \'model-gateway\'\nexport default definePlugin({ name: \'broken\', create: () => ({ onRequest () { return undefined.x } }) })\n'
  const gw = await gateway(t,
    yaml(['http://127.0.0.1:9'], '', PIPELINE).replace('billing-meter,', 'billing-meter, { use: ./broken.ts },'), {
    files: { 'broken.ts': broken }
  })
  t.match(await quote(gw, { path: '/v1/messages', body: messagesRequest }), { status: 500,
    body: { error: { code: 'server_error' } } })
})

t.test('it says until when its price holds', async (t) => {
  const gw = await gateway(t,
    yaml(['http://127.0.0.1:9'], '', PIPELINE).replace(/price: \{ input: 3.*\}/,
      'price: [free, { from: 2098-07-01, input: 6, output: 30 }, { from: 2099-01-01, input: 7, output: 30 }]'), {
    now: () => Date.parse('2098-12-31')
  })
  t.match((await quote(gw, { path: '/v1/messages', body: messagesRequest })).body['prices'], [{ channel: 'premium',
    price: { input: '6', output: '30' }, until: '2099-01-01T00:00:00.000Z' }])
  t.notMatch(JSON.stringify((await quote(gw, { path: '/v1/messages', body: messagesRequest })).body), /from/)
})

t.test('an image that stayed bytes is an image in the quote too', async (t) => {
  const gw = await gateway(t, yaml(['http://127.0.0.1:9'], '', PIPELINE))
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'A'.repeat(400_000) } }
  const { body } = await quote(gw, { path: '/v1/messages',
    body: { ...messagesRequest, messages: [{ role: 'user', content: [image] }] } })
  t.ok((body['max_input_tokens'] as number) < 6000, 'its base64 is no text')
  const text = { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'A'.repeat(100_000) } }
  const { body: long } = await quote(gw, { path: '/v1/messages',
    body: { ...messagesRequest, messages: [{ role: 'user', content: [text] }] } })
  t.ok((long['max_input_tokens'] as number) > 100_000, 'and what is text counts, in whatever it is kept')
})

t.test('one line of the log tells of it, of the quote and not of the request', async (t) => {
  const gw = await gateway(t, yaml(['http://127.0.0.1:9'], '', PIPELINE))
  await quote(gw, { path: '/v1/messages', body: messagesRequest })
  const lines = gw.logged.filter(({ msg }) => msg === 'request')
  t.match(lines, [{ route: 'POST /v1/quote', status: 200, code: 'ok', key_id: 'acme-dev', attempts: 0 }])
  t.equal(lines.length, 1)
})
