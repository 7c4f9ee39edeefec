// GET /v1/models and /v1/models/{id}: the shape that all official SDKs read, and only what the key may call.
import t from 'tap'
import { channelRouter } from '../../plugins/channel-router/index.ts'
import { keyPolicy } from '../../plugins/key-policy/index.ts'
import type { ChannelConfig, KeyConfig, ModelConfig } from '../../src/config/config.ts'
import { nearestModel } from '../../src/catalog/offers.ts'
import { isGatewayError } from '../../src/errors.ts'
import type { Routed as Exchange } from '../../src/core/endpoint.ts'
import { ApiKey } from '../../src/core/facts.ts'
import type { JsonReply } from '../../src/core/reply.ts'
import { account, ask, asking, config, exchange, key, model, snapshot } from '../support/exchange.ts'
import { gateway, KEY, yaml } from '../support/gateway.ts'

const on = snapshot(config({
  models: [
    model('both', { premium: 'p/big*1', cheap: 'c/small*1' }),
    model('premium-only', { premium: 'p/big*1' }),
    model('cheap-only', { cheap: 'c/small*1' }),
    model('cheap-off', { premium: 'p/big*1', cheap: '!c/small*1' }),
    model('premium-off', { premium: '!p/big*1', cheap: 'c/small*1' }),
    model('all-off', { premium: '!p/big*1', cheap: '!c/small*1' })
  ]
}), [keyPolicy, channelRouter])

const get = (path: string, query = '', own: Partial<KeyConfig> | null = {}): JsonReply => {
  const asked: Exchange = exchange(on, { method: 'GET', path, query })
  if (own !== null) asked.set(ApiKey, { key: key(own), account: account() })
  const { endpoint } = asked.route
  if (endpoint.kind !== 'local') throw new Error('not a local endpoint')
  return endpoint.answer(asked) as JsonReply
}
const ids = (query = '', own: Partial<KeyConfig> | null = {}): string => {
  const body = get('/v1/models', query, own).body as { data: { id: string }[], has_more: boolean,
    first_id: string | null, last_id: string | null }
  t.equal(body.first_id, body.data[0]?.id ?? null)
  t.equal(body.last_id, body.data.at(-1)?.id ?? null)
  return body.data.map(({ id }) => id).join(' ') + (body.has_more ? ' …' : '')
}

t.test('a wrong id is answered with the one that was meant, among those that the key may call', async (t) => {
  const near = (id: string, own: Partial<KeyConfig> = {}): string | undefined => {
    const asked = exchange(on, { method: 'GET', path: '/v1/models' })
    asked.set(ApiKey, { key: key(own), account: account() })
    return nearestModel(asked, id)
  }
  t.equal(near('premium-only-20250929'), 'premium-only')
  t.equal(near('premum-only'), 'premium-only')
  t.equal(near('premum-only', { allowed_models: ['both'] }), undefined)
  t.equal(near('all-of'), undefined, 'nobody can call it')
  t.equal(near('gpt-5'), undefined)
})

t.test('lists exactly the models that a call would reach', async (t) => {
  const cases: Partial<KeyConfig>[] = [{}, { allowed_models: ['both', 'cheap*'] }, { allowed_models: ['both*'],
    routing_mode: 'auto_cheap' }, { routing_mode: 'cheap' }, { routing_mode: 'auto_cheap' }, { channels: ['cheap'] }, {
    routing_mode: 'auto_premium',
    channels: ['cheap']
  }]
  for (const own of cases) {
    const reached: string[] = []
    for (const { id } of on.config.models) {
      const asked = asking(on, id, { key: own })
      await ask(asked).then(() => { reached.push(id) }, (thrown: unknown) => { t.ok(isGatewayError(thrown)) })
    }
    t.equal(ids('', own), reached.join(' '), JSON.stringify(own))
  }
  t.equal(ids(), 'both premium-only cheap-off')
  t.equal(ids('', { allowed_models: ['cheap*', 'premium-only'] }), 'premium-only cheap-off')
  t.equal(ids('', { allowed_models: ['__proto__'] }), '')
  t.equal(ids('', { channels: [] }), '', 'an empty list has no first and no last id')
  t.equal(ids('', null), 'both premium-only cheap-only cheap-off premium-off all-off',
    'a list that the operator opened')
})

t.test('the list is in the shape of both vendors and of coding agents at once', async (t) => {
  const own = snapshot(
    config({
      models: [model('acme/large', { premium: 'p/big*1' }, { context: 200_000, max_output: 64_000 }),
        model('bare', { premium: 'p/big*1' })]
    }),
    []
  )
  const asked = exchange(own, { method: 'GET', path: '/v1/models' })
  const { endpoint } = asked.route
  const purpose = {
    architecture: { modality: 'text->text', input_modalities: ['text'], output_modalities: ['text'] },
    pricing: { prompt: '0.000003', completion: '0.000015', input_cache_read: '0.000003',
      input_cache_write: '0.000003' },
    supported_parameters: ['max_tokens', 'stop', 'tools', 'tool_choice', 'parallel_tool_calls', 'response_format',
      'structured_outputs', 'temperature', 'top_p', 'top_k']
  }
  t.strictSame(endpoint.kind === 'local' && (endpoint.answer(asked) as JsonReply).body, {
    object: 'list',
    data: [
      { id: 'acme/large', object: 'model', type: 'model', created: 1759104000, created_at: '2025-09-29T00:00:00Z',
        owned_by: 'anthropic', display_name: 'ACME/LARGE', max_input_tokens: 200000, max_tokens: 64000,
        context_length: 200000, ...purpose },
      { id: 'bare', object: 'model', type: 'model', created: 1759104000, created_at: '2025-09-29T00:00:00Z',
        owned_by: 'anthropic', display_name: 'BARE', max_input_tokens: null, max_tokens: null,
        context_length: null, ...purpose }
    ],
    has_more: false,
    first_id: 'acme/large',
    last_id: 'bare',
    models: []
  })
  for (const path of ['/v1/models/acme/large', '/v1/models/acme%2Flarge', '/v1/models/acme%2flarge', '/v1/models/bare',
    '/v1/models/bare/']) {
    const one = exchange(own, { method: 'GET', path })
    const local = one.route.endpoint
    t.match(local.kind === 'local' && (local.answer(one) as JsonReply).body, {
      id: path.includes('bare') ? 'bare' : 'acme/large'
    }, path)
  }
})

t.test('C4: the list says what a model is for', (t) => {
  const sold = (price: unknown): Partial<ModelConfig> => ({ channels: { premium: { enabled: true, maintenance: false,
    sticky: false, price: price as ChannelConfig['price'], targets: [] } } })
  const own = snapshot(config({ models: [
    model('eyes', {}, { ...sold({ input: '0.333333333333', output: '15', cache_read: '0.1', cache_write: '1.25' }),
      accepts: ['text', 'image'], sampling: false, thinking: 'adaptive', context: 200_000 }),
    model('gift', {}, sold('free')),
    model('brush', {}, { ...sold([{ usd: '0.04' }]), kind: 'image', parameters: { resolution: { values: ['1K'] } } })
  ] }), [])
  const asked = exchange(own, { method: 'GET', path: '/v1/models' })
  const { endpoint } = asked.route
  const { body } = (endpoint as { answer (of: Exchange): JsonReply }).answer(asked)
  const [eyes, gift, brush] = (body as { data: Readonly<Record<string, unknown>>[] }).data
  t.match(eyes, { architecture: { modality: 'text+image->text', input_modalities: ['text', 'image'],
    output_modalities: ['text'] }, context_length: 200_000, pricing: { prompt: '0.000000333333333333',
    completion: '0.000015', input_cache_read: '0.0000001', input_cache_write: '0.00000125' } })
  const parameters = eyes!['supported_parameters'] as string[]
  t.ok(parameters.includes('reasoning') && !parameters.includes('temperature'))
  t.strictSame(gift!['pricing'], { prompt: '0', completion: '0', input_cache_read: '0', input_cache_write: '0' })
  t.match(brush, { architecture: { input_modalities: ['text'], output_modalities: ['image'] }, context_length: null,
    pricing: null, supported_parameters: ['resolution'] })
  const one = exchange(own, { method: 'GET', path: '/v1/models/brush' })
  t.strictSame((one.route.endpoint as { answer (of: Exchange): JsonReply }).answer(one).body, brush)
  t.end()
})

t.test('pages are turned only by who asks for it', async (t) => {
  const all: Partial<KeyConfig> = { routing_mode: 'auto_premium' }
  t.equal(ids('', all), 'both premium-only cheap-only cheap-off premium-off')
  t.equal(ids('?limit=2', all), 'both premium-only …')
  t.equal(ids('?limit=2&after_id=premium-only', all), 'cheap-only cheap-off …')
  t.equal(ids('?limit=2&after_id=cheap-off', all), 'premium-off')
  t.equal(ids('?after_id=premium-off', all), '')
  t.equal(ids('?limit=2&before_id=cheap-off', all), 'premium-only cheap-only …', 'the page just before')
  t.equal(ids('?before_id=cheap-only', all), 'both premium-only')
  t.equal(ids('?limit=1000&beta=true&limit_=x', all), 'both premium-only cheap-only cheap-off premium-off')
  t.equal(ids('?limit=&after_id=', all), 'both premium-only cheap-only cheap-off premium-off', 'an empty value is none')
  for (const bad of ['?limit=0', '?limit=-1', '?limit=1001', '?limit=x', '?limit=1.5', '?limit=1e3', '?after_id=gone',
    '?before_id=gone', '?after_id=cheap-only&limit=0']) {
    t.throws(() => ids(bad, all), { status: 400, code: 'invalid_request' }, bad)
  }
})

t.test('a model that is unknown, or unknown to this key, is 404', async (t) => {
  for (const path of ['/v1/models/none', '/v1/models/%zz', '/v1/models/%', '/v1/models/cheap-only',
    '/v1/models/all-off', '/v1/models/both/x']) {
    t.throws(() => get(path), { status: 404, code: 'not_found' }, path)
  }
  t.match(get('/v1/models/both').body, { id: 'both' })
  t.match(get('/v1/models/both', '', { allowed_models: ['bo*'] }).body, { id: 'both' })
  t.throws(() => get('/v1/models/both', '', { allowed_models: ['premium*'] }), { status: 404, code: 'not_found' })
  t.match(get('/v1/models/cheap-only', '', { routing_mode: 'cheap' }).body, { id: 'cheap-only' })
})

const LIMITED = 'sk-gw-' + 'l'.repeat(32)

t.test('what the key may call is listed and found, with ids that hold a slash', async (t) => {
  const gw = await gateway(t,
    yaml(['http://127.0.0.1:9'], `  - { id: limited, account: acme, secret: ${LIMITED}, allowed_models: ["acme/*"] }\n`,
      'auth, key-policy, channel-router, billing-meter, error-normalize')
      .replace('models:\n', `models:
  - { id: acme/large:v1, name: Large, provider: acme, kind: text, created: 2025-10-01, context: 1000, max_output: 100, accepts: [text], channels: { premium: { price: free, targets: [{ upstream: u0, model: x }] } } }
`))
  for (const [key, expected] of [[KEY, ['acme/large:v1', 'm1']], [LIMITED, ['acme/large:v1']]] as const) {
    const listed = await (await fetch(`${gw.url}/v1/models`, { headers: { 'x-api-key': key } })).json() as {
      readonly data: readonly { readonly id: string }[]
    }
    t.strictSame(listed.data.map(({ id }) => id), expected)
  }
  t.equal((await fetch(`${gw.url}/v1/models/m1`, { headers: { 'x-api-key': LIMITED } })).status, 404)
  for (const path of ['acme/large:v1', 'acme%2Flarge:v1', 'acme%2flarge%3Av1', 'acme/large:v1?beta=true',
    'acme/large:v1/']) {
    const response = await fetch(`${gw.url}/v1/models/${path}`, { headers: { 'x-api-key': LIMITED } })
    t.match(await response.json(), { id: 'acme/large:v1', owned_by: 'acme', display_name: 'Large',
      created: 1759276800 }, path)
  }
  const refused = await fetch(`${gw.url}/v1/models`)
  t.equal(refused.status, 401)
  t.match(await refused.json(), { error: { code: 'authentication_error', type: 'authentication_error' } })
})
