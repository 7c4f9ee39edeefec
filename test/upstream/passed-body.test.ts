// A client's body goes on as it came, but for what is the gateway's and what its upstream must not get: however many
// fields it has, nobody copies it on the way.
import fc from 'fast-check'
import t from 'tap'
import { fieldsFor } from '../../src/upstream/dialects/messages/vendor-limits.ts'
import { client, fate } from '../support/client.ts'
import { gateway, messagesRequest, yaml } from '../support/gateway.ts'
import { upstreamConfig } from '../support/exchange.ts'
import { answer, upstream } from '../support/upstream.ts'

/** The upstream gets fields that nobody knows. */
const passing = (text: string, fields = '"*"'): string =>
  text.replaceAll('dialect: messages,', `dialect: messages, messages: { fields: [${fields}] },`)
const aliased = 'aliases:\n  - { id: latest, model: m1 }\n'
/** As many as an object may have, with those of the request. */
const many = Object.fromEntries(
  Array.from({ length: 9990 }, (_, i) => [`field ${i} "é"`, { i, list: [i, null, 'é"\\'] }])
)

t.test('all that a body has reaches its upstream, with the model\'s name there', async (t) => {
  const up = await upstream(t, answer('Hi'))
  const gw = await gateway(t, passing(yaml([up.url], aliased)))
  const { model: _model, ...rest } = messagesRequest
  const got = await client(t, gw).post({ ...many, ...rest, model: 'latest', temperature: 0.5, system: null }).whole()
  t.match(got, { status: 200, json: { model: 'm1' } })
  t.strictSame(up.requests[0]!.body, { ...many, ...rest, model: 'vendor-m1', temperature: 0.5 })
  t.match((await fate(gw, got.id)).line, { model: 'm1', asked: 'latest' })
})

t.test('a name that an object has by itself is a field like any other', async (t) => {
  const up = await upstream(t, answer('Hi'))
  const gw = await gateway(t, passing(yaml([up.url])))
  const odd = '"toString":1,"constructor":2,"__proto__":{"x":3},"7":4'
  const got = await fetch(`${gw.url}/v1/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': 'sk-gw-' + 'k'.repeat(32) },
    body: JSON.stringify(messagesRequest).replace('{', `{${odd},`)
  })
  t.equal(got.status, 200)
  const sent = JSON.parse(up.requests[0]!.bytes.toString()) as Record<string, unknown>
  t.strictSame(
    JSON.stringify(
      Object.entries(sent).filter(([name]) => !['model', 'max_tokens', 'messages'].includes(name)).toSorted()
    ),
    JSON.stringify([['7', 4], ['__proto__', { x: 3 }], ['constructor', 2], ['toString', 1]])
  )
})

const reads = `
export default {
  name: 'reads',
  create: () => ({
    perAttempt: () => ({
      onUpstreamRequest (request) {
        request.headers['x-seen'] = request.body.model + ' ' + Object.keys(request.body).length
        if (request.body.replace) request.body = { ...request.body, system: 'brief' }
      }
    })
  })
}`

t.test('a plugin sees the body as it is sent, and can put another in its place, for this attempt', async (t) => {
  const up = await upstream(t, answer('Hi'))
  const text = passing(yaml([up.url], aliased)).replace('error-normalize]', 'error-normalize, { use: ./reads.ts }]')
  const gw = await gateway(t, text, { files: { 'reads.ts': reads } })
  t.equal((await client(t, gw).post({ ...messagesRequest, model: 'latest' }).whole()).status, 200)
  t.strictSame([up.requests[0]!.headers['x-seen'], up.requests[0]!.body], ['vendor-m1 3', { ...messagesRequest,
    model: 'vendor-m1' }])
  t.equal((await client(t, gw).post({ ...messagesRequest, replace: 1 }).whole()).status, 200)
  t.strictSame(up.requests[1]!.body, { ...messagesRequest, model: 'vendor-m1', replace: 1, system: 'brief' })
})

/** Fields with which vendors of this API charge more, or do what the price does not know of. */
const dear = ['models', 'plugins', 'search_parameters', 'n', 'web_search', 'web_search_options', 'enable_search', 'route',
  'provider', 'transforms', 'prediction', 'best_of', 'num_search_results', 'bot_setting', 'tier', 'priority', 'fallback',
  'guardrails', 'mock_response', 'api_base', 'api_key', 'base_url', 'user_config', 'router_settings_override']
const known = { system: 'brief', temperature: 0.5, metadata: { user_id: 'u' }, stop_sequences: ['x'],
  thinking: { type: 'disabled' } }

t.test('a field that is not of the API does not reach an upstream unless the operator has named it', async (t) => {
  const up = await upstream(t, answer('Hi'))
  const [strict, open] = [await gateway(t, yaml([up.url])), await gateway(t, passing(yaml([up.url]), 'min_p, "ok_*"'))]
  const value = fc.oneof(fc.boolean(), fc.integer(), fc.constant(null), fc.constant({ max_results: 100 }),
    fc.constant(['anthropic/claude-opus']))
  const name = fc.oneof(fc.constantFrom(...dear), fc.stringMatching(/^[a-z_]{1,20}$/), fc.string({ maxLength: 20 }),
    fc.constantFrom(...dear).map((one) => one.toUpperCase()), fc.stringMatching(/^ok_[a-z]{0,9}$/), fc.constant('min_p'))
  let served = 0
  const style = fc.constantFrom('/v1/messages', '/v1/chat/completions')
  await t.resolves(fc.assert(fc.asyncProperty(fc.dictionary(name, value, { maxKeys: 60 }), style,
    async (fields, path) => {
      const own = Object.keys(fields).filter((one) => fieldsFor(upstreamConfig({ url: up.url }))!.has(one))
      for (const one of own) delete fields[one]
      for (const gw of [strict, open]) {
        const body = path === '/v1/messages' ? { ...fields, ...messagesRequest, ...known }
          : { ...fields, ...messagesRequest }
        const got = await client(t, gw, path).post(body).whole()
        if (got.status !== 200) continue                      // a field that a style of clients refuses by its value
        served++
        const sent = up.requests.at(-1)!.body!
        const more = Object.keys(sent).filter((one) => !fieldsFor(upstreamConfig({ url: up.url }))!.has(one))
        const wanted = gw === strict || path !== '/v1/messages' ? []
          : Object.keys(fields).filter((one) => (one === 'min_p' || one.startsWith('ok_')) && fields[one] !== null)
        if (more.toSorted().join() !== wanted.toSorted().join()) throw new Error(`${more.join()}, not ${wanted.join()}`)
        if (path === '/v1/messages') for (const one in known) if (!(one in sent)) throw new Error(`${one} is missing`)
      }
    }), { numRuns: 60 }))
  t.ok(served > 60, `${served} of 120 requests were served`)
})

t.test('Anthropic and its clouds get all fields, as they refuse those that they do not know; others get the table', async (t) => {
  const original = ['https://api.anthropic.com', 'https://api.anthropic.com:443/v1', 'simulator:',
    'https://bedrock-runtime.us-east-1.amazonaws.com/x', 'https://bedrock-mantle.us-east-1.api.aws/anthropic',
    'https://us-east5-aiplatform.googleapis.com/v1', 'https://aiplatform.googleapis.com',
    'https://aiplatform.eu.rep.googleapis.com/v1', 'https://bedrock-runtime.cn-north-1.amazonaws.com.cn',
    'https://vpce-0a1-x.bedrock-runtime.us-east-1.vpce.amazonaws.com',
    'https://mine.services.ai.azure.com/anthropic']
  const others = ['https://openrouter.ai/api', 'https://api.z.ai/api/anthropic', 'https://api.anthropic.com.example.org',
    'https://notanthropic.com', 'http://api.anthropic.com', 'https://x.execute-api.us-east-1.amazonaws.com',
    'https://evil-aiplatform.googleapis.com.example.org', 'https://mine.azure.com', 'http://127.0.0.1:4000']
  for (const url of original) t.equal(fieldsFor(upstreamConfig({ url })), undefined, url)
  for (const url of others) {
    const fields = fieldsFor(upstreamConfig({ url }))
    t.strictSame(['max_tokens', 'context_management', ...dear].filter((name) => fields?.has(name) === true),
      ['max_tokens', 'context_management'], url)
  }
  t.equal(fieldsFor(upstreamConfig({ url: original[0]!, messages: { user_id: 'pass', cache_ttl: true, attribution: true,
    fields: [] } }))?.has('models'), false, 'the operator may close it')
})
