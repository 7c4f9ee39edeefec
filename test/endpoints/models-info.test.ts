// Prices: GET /v1/models/info for the holder of a key, and the public listener for everybody.
import fc from 'fast-check'
import t from 'tap'
import { channelRouter } from '../../plugins/channel-router/index.ts'
import { keyPolicy } from '../../plugins/key-policy/index.ts'
import type { ChannelConfig, KeyConfig, ModelConfig } from '../../src/config/config.ts'
import type { TokenPrice } from '../../src/money/price.ts'
import { ApiKey } from '../../src/core/facts.ts'
import type { JsonReply } from '../../src/core/reply.ts'
import { account, config, exchange, key, model, snapshot } from '../support/exchange.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'

const sold = (price: TokenPrice | 'free', enabled = true): ChannelConfig => ({
  enabled,
  maintenance: false,
  sticky: false,
  price,
  targets: [{ upstream: 'secret-upstream', model: 'secret-model', weight: 1, priority: 0 }]
})
const text = (id: string, channels: ModelConfig['channels'], more: Partial<ModelConfig> = {}): ModelConfig => ({
  ...model(id, {}),
  context: 200_000,
  max_output: 64_000,
  channels,
  ...more
})

const models = [
  text('both', { premium: sold({ input: '3', output: '15.00', cache_read: '0.30', cache_write: '3.75' }),
    cheap: sold({ input: '0.5', output: '2.50' }) }),
  text('premium-only', {
    premium: sold({ input: '0.1', output: '0.7', cache_write: '9', cache_write_5m: '1.25', cache_write_1h: '2' })
  }),
  text('cheap-only', {
    cheap: sold({ input: '0.07', output: '0.000000000001', cache_read: '0', cache_write_1h: '2' })
  }),
  text('cheap-off', { premium: sold({ input: '1', output: '2' }),
    cheap: sold({ input: '0.25', output: '0.5' }, false) }),
  text('gift', { premium: sold('free'), cheap: sold('free') })
]

const on = snapshot(
  config({
    models: [...models,
      text('no-sizes', { premium: sold('free') }, { context: undefined as never, max_output: undefined as never })]
  }),
  [keyPolicy, channelRouter]
)

function info (own: Partial<KeyConfig> | null, of = on): readonly Readonly<Record<string, unknown>>[] {
  const asked = exchange(of, { method: 'GET', path: '/v1/models/info' })
  if (own !== null) asked.set(ApiKey, { key: key(own), account: account() })
  const { endpoint } = asked.route
  if (endpoint.kind !== 'local') throw new Error('not a local endpoint')
  return (JSON.parse(JSON.stringify((endpoint.answer(asked) as JsonReply).body)) as {
    data: Readonly<Record<string, unknown>>[]
  }).data
}

t.test('GET /v1/models/info: the models that the key may call, at the price of the channel that it would be charged for first', async (t) => {
  const prices = (own: Partial<KeyConfig> | null): string =>
    info(own).map(({ id, input_price, output_price }) => `${String(id)} ${String(input_price)}/${String(output_price)}`)
      .join(', ')
  t.strictSame(info({ allowed_models: ['both'] }), [{ id: 'both', name: 'BOTH', provider: 'anthropic',
    max_tokens: 64000, input_price: 3, output_price: 15 }])
  t.equal(prices({}), 'both 3/15, premium-only 0.1/0.7, cheap-off 1/2, gift 0/0')
  t.equal(prices({ routing_mode: 'cheap' }), 'both 0.5/2.5, premium-only 0.1/0.7, cheap-only 0.07/1e-12, gift 0/0')
  t.equal(prices({ routing_mode: 'auto_cheap' }),
    'both 0.5/2.5, premium-only 0.1/0.7, cheap-only 0.07/1e-12, cheap-off 1/2, gift 0/0',
    'a channel that is off charges nobody')
  t.equal(prices({ routing_mode: 'auto_premium', channels: ['cheap'] }),
    'both 0.5/2.5, cheap-only 0.07/1e-12, gift 0/0')
  t.equal(prices({ allowed_models: ['cheap*', 'gift'] }), 'cheap-off 1/2, gift 0/0')
  t.equal(prices({ channels: [] }), '')
  t.equal(prices(null), 'both 3/15, premium-only 0.1/0.7, cheap-only 0.07/1e-12, cheap-off 1/2, gift 0/0',
    'a list that the operator opened')
})

t.test('max_tokens is never missing: without a max_output it is the context, and without both the model is left out', async (t) => {
  const of = snapshot(
    config({
      models: [text('a', { premium: sold('free') }, { max_output: undefined as never }),
        text('b', { premium: sold('free') }, { context: undefined as never })]
    })
  )
  t.match(info({}, of), [{ id: 'a', max_tokens: 200_000 }, { id: 'b', max_tokens: 64_000 }])
  t.notOk(info({}).some(({ id }) => id === 'no-sizes'))
})

t.test('a price is printed as it was written, but for zeros at its ends', async () => {
  const digits = fc.tuple(fc.nat(99_999), fc.stringMatching(/^\d{1,9}$/))
  fc.assert(fc.property(digits, ([whole, fraction]) => {
    const written = `${whole}.${fraction}`
    const of = snapshot(config({ models: [text('m', { premium: sold({ input: written, output: '1' }) })] }))
    const asked = exchange(of, { method: 'GET', path: '/v1/models/info' })
    const { endpoint } = asked.route
    const printed = /"input_price":([^,]+)/.exec(
      JSON.stringify(endpoint.kind === 'local' && (endpoint.answer(asked) as JsonReply).body)
    )![1]!
    // Below a millionth JSON writes 5e-7: the same number.
    const plain = printed.includes('e') ? Number(printed).toFixed(9).replace(/0+$/, '') : printed
    return plain === written.replace(/0+$/, '').replace(/\.$/, '')
  }))
})

/** Over real sockets; `cheap: off` switches it off for both models that have it. */
function catalogue (options: { readonly cheap?: 'off', readonly more?: string } = {}): string {
  const cheap = (price: string): string => `cheap: { enabled: ${String(options.cheap !== 'off')}, price: ${price}, targets: [{ upstream: u0, model: secret-model }] }`
  const entry = (id: string, rest: string, channels: string): string => `  - { id: ${id}, name: "${id} name", provider: acme, kind: text, created: 2025-10-01, max_output: 100, accepts: [text], ${rest} channels: { ${channels} } }\n`
  const premium = (price: string): string => `premium: { price: ${price}, targets: [{ upstream: u0, model: secret-model }] }`
  return yaml(['http://secret-host.invalid']).replace('models:\n', `models:\n${[
    entry(
      'both',
      'context: 1000,',
      `${premium('{ input: 0.10, output: 0.30 }')}, ${cheap('{ input: 0.05, output: 0.15, cache_read: 0.010 }')}`
    ),
    entry('cheap-only', 'context: 2000,', cheap('{ input: 7, output: 8 }')),
    entry('gift', 'context: 3000,', premium('free')),
    entry('no-context', '', premium('free'))
  ].join('')}${options.more ?? ''}`)
}

const PATH = '/api/public/models-info'

async function ask (
  gw: TestGateway,
  query = '',
  init: RequestInit = {}
): Promise<
  { readonly status: number, readonly headers: Headers, readonly text: string,
    readonly body: { readonly data?: readonly Readonly<Record<string, unknown>>[],
      readonly error?: Readonly<Record<string, unknown>> } }
> {
  const response = await fetch(gw.urls.public + PATH + query, init)
  const said = await response.text()
  return { status: response.status, headers: response.headers, text: said,
    body: said === '' ? {} : JSON.parse(said) as object }
}

t.test('the public list has the prices of one channel, and is for everybody', async (t) => {
  const gw = await gateway(t, catalogue())
  const { status, headers, body } = await ask(gw)
  t.equal(status, 200)
  t.strictSame(body, {
    data: [
      { id: 'both', display_name: 'both name', supports_streaming: true, max_input_tokens: 1000,
        input_price_per_1m: 0.1, output_price_per_1m: 0.3, cache_read_price_per_1m: null,
        cache_write_price_per_1m: null },
      { id: 'gift', display_name: 'gift name', supports_streaming: true, max_input_tokens: 3000, input_price_per_1m: 0,
        output_price_per_1m: 0, cache_read_price_per_1m: 0, cache_write_price_per_1m: 0 },
      { id: 'm1', display_name: 'Model One', supports_streaming: true, max_input_tokens: 200000, input_price_per_1m: 3,
        output_price_per_1m: 15, cache_read_price_per_1m: 0.3, cache_write_price_per_1m: 3.75 }
    ]
  })
  t.strictSame([headers.get('content-type'), headers.get('cache-control'), headers.get('access-control-allow-origin')],
    ['application/json', 'public, max-age=60', '*'])
  t.match(headers.get('x-request-id'), /^req_/)
  t.strictSame((await ask(gw, '?channel=premium&utm_source=x')).body, body)
  const cheap = await ask(gw, '?channel=cheap', { headers: { origin: 'https://shop.example.com' } })
  t.strictSame(
    cheap.body.data!.map(({ id, input_price_per_1m, output_price_per_1m, cache_read_price_per_1m }) => [
      id,
      input_price_per_1m,
      output_price_per_1m,
      cache_read_price_per_1m
    ]),
    [['both', 0.05, 0.15, 0.01], ['cheap-only', 7, 8, null]]
  )
  t.equal(
    cheap.headers.get('access-control-allow-origin'), '*', 'one answer for all pages: it may be cached by anybody'
  )
  t.equal(cheap.headers.get('vary'), null)
})

t.test('of cache writes the price is that of 5 minutes, and null where none is written', async (t) => {
  const list = (price: TokenPrice): unknown => {
    const of = snapshot(config({ models: [text('m', { premium: sold(price) })] }))
    const [route] = of.publicRoutes.all
    const { endpoint } = route!
    const reply = endpoint.kind === 'local' &&
      endpoint.answer({ snapshot: of, received: { query: '', headers: {} } } as never) as JsonReply
    const { data: [only] } = (reply as JsonReply).body as { data: Record<string, unknown>[] }
    return [only!['cache_read_price_per_1m'], only!['cache_write_price_per_1m']]
  }
  const tokens = { input: '3', output: '15' }
  t.strictSame(list(tokens), [null, null])
  t.strictSame(list({ ...tokens, cache_read: '0', cache_write: '0.0' }), [0, 0], 'a zero is a price')
  t.strictSame(list({ ...tokens, cache_write: '9', cache_write_5m: '3.75', cache_write_1h: '6' }), [null, 3.75])
  t.strictSame(list({ ...tokens, cache_write: '9', cache_write_1h: '6' }), [null, 9])
  t.strictSame(list({ ...tokens, cache_write_1h: '6' }), [null, null])
})

t.test('a channel that there is not is 400, and no prices are shown in its place', async (t) => {
  const gw = await gateway(t, catalogue())
  for (const query of ['?channel=gold', '?channel=', '?channel', '?channel=Premium', '?channel=cheap&channel=premium',
    '?channel=premium&channel=premium', '?channel=__proto__', '?channel=cheap%20', `?channel=${'x'.repeat(10_000)}`]) {
    const { status, body, text: said } = await ask(gw, query)
    t.equal(status, 400, query.slice(0, 40))
    t.match(body, {
      error: { code: 'channel_not_allowed', type: 'invalid_request_error', param: 'channel', charged_usd: '0' }
    })
    t.notMatch(said, /price/)
  }
})

t.test('a channel that is switched off is 503 with Retry-After; one that nobody sells in is an empty list', async (t) => {
  const gw = await gateway(t, catalogue({ cheap: 'off' }))
  const { status, headers, body, text: said } = await ask(gw, '?channel=cheap')
  t.equal(status, 503)
  t.match(headers.get('retry-after'), /^([1-9]|[1-5]\d|60)$/)
  t.match(headers.get('cache-control'), 'no-store')
  t.match(body, { error: { code: 'channel_unavailable', type: 'api_error' } })
  t.notMatch(said, /price|0\.05|0\.1/)
  t.equal((await ask(gw)).status, 200, 'the other is still sold')

  await gw.rewrite(catalogue())
  t.equal((await ask(gw, '?channel=cheap')).body.data!.length, 2, 'switched on: there at once')
  await gw.rewrite(
    catalogue({ cheap: 'off',
      more:
        '  - { id: on, name: On, provider: acme, kind: text, created: 2025-10-01, context: 1, max_output: 1, accepts: [text], channels: { cheap: { price: { input: 1, output: 2 }, targets: [{ upstream: u0, model: x }] } } }\n' })
  )
  t.strictSame((await ask(gw, '?channel=cheap')).body.data!.map(({ id }) => id), ['on'],
    'off for some: they are left out')
  await gw.rewrite(yaml(['http://127.0.0.1:9']))
  t.strictSame((await ask(gw, '?channel=cheap')).body, { data: [] })
})

t.test('who has the list already is told so with 304, until it changes', async (t) => {
  const gw = await gateway(t, catalogue())
  const etag = (await ask(gw)).headers.get('etag')!
  t.match(etag, /^"[0-9a-f]{32}"$/)
  const asking = (tag: string, query = '') => ask(gw, query, { headers: { 'if-none-match': tag } })
  for (const tag of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
    const { status, text: said, headers } = await asking(tag)
    t.strictSame(
      [status, said, headers.get('etag'), headers.get('cache-control')], [304, '', etag, 'public, max-age=60'], tag
    )
  }
  for (const tag of ['"other"', etag.slice(1, -1), '', `${etag}x`]) t.equal((await asking(tag)).status, 200, tag)
  t.equal((await asking(etag, '?channel=cheap')).status, 200, 'another channel is another list')
  t.equal((await asking(etag, '?channel=gold')).status, 400)
  await gw.rewrite(catalogue().replace('output: 0.30', 'output: 0.31'))
  const changed = await asking(etag)
  t.equal(changed.status, 200)
  t.match(changed.text, '0.31')
  await gw.rewrite(catalogue())
  t.equal((await asking(etag)).status, 304, 'the same list has the same tag, whatever the generation')
})

t.test('the public listener has this address and no other, needs no key, looks at none, and shows nothing of keys and upstreams', async (t) => {
  const gw = await gateway(t, catalogue())
  const secrets = /sk-gw|kkkk|acme-dev|Acme\b|secret|\bu0\b|balance|opening|token"/
  const paths = ['/', '/v1/models', '/v1/models/info', '/v1/messages', '/v1/messages/count_tokens', '/metrics',
    '/healthz', '/readyz', '/admin/v1/config', '/api/public', '/api/public/models-info/x', '/api/public/',
    '//api/public/models-info', '/API/public/models-info', '/v1/api/public/models-info']
  for (const path of paths) {
    for (const method of ['GET', 'POST']) {
      const response = await fetch(gw.urls.public + path, { method,
        headers: { 'x-api-key': KEY, authorization: 'Bearer test-admin-token' } })
      const said = await response.text()
      t.equal(response.status, 404, `${method} ${path}`)
      t.notMatch(said, secrets)
    }
  }
  for (const method of ['POST', 'PUT', 'DELETE']) {
    const response = await fetch(gw.urls.public + PATH, { method })
    t.strictSame([response.status, response.headers.get('allow')], [405, 'GET, HEAD'])
    await response.text()
  }
  const head = await fetch(gw.urls.public + PATH, { method: 'HEAD' })
  t.strictSame([head.status, Number(head.headers.get('content-length')) > 2, await head.text()], [200, true, ''])
  for (const headers of [{}, { 'x-api-key': KEY }, { 'x-api-key': 'sk-gw-' + 'w'.repeat(32) }]) {
    const { status, text: said, headers: answered } = await ask(gw, '', { headers })
    t.equal(status, 200, 'a wrong key too')
    t.notMatch(said + JSON.stringify([...answered]), secrets)
  }
  t.equal((await fetch(gw.url + PATH, { headers: { 'x-api-key': KEY } })).status, 404, 'and the API does not have it')
  const known = await fetch(`${gw.url}/v1/models/info`, { headers: { authorization: `Bearer ${KEY}` } })
  t.strictSame(
    (await known.json() as { data: { id: string }[] }).data.map(({ id }) => id), ['both', 'gift', 'no-context', 'm1']
  )
  const stranger = await fetch(`${gw.url}/v1/models/info`)
  t.equal(stranger.status, 401)
  t.match(await stranger.json(), { error: { code: 'authentication_error' } })
})
