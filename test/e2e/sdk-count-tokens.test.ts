// POST /v1/messages/count_tokens by the official SDKs: today's major and the one before it. The address:
// endpoints/count-tokens.
import Anthropic from '@anthropic-ai/sdk'
import * as last0 from 'anthropic-sdk-0'
import t from 'tap'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { fate } from '../support/client.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'

const hello = { model: 'm1', messages: [{ role: 'user' as const, content: 'Hello there' }] }
const PATH = '/v1/messages/count_tokens'

/** @param url of the only upstream, which counts; undefined: it does not, and nobody is there */
function counting (url?: string): string {
  const text = yaml([url ?? 'http://127.0.0.1:9'])
  return url === undefined ? text : text.replace('dialect: messages,', 'dialect: messages, count_tokens: true,')
}

/** What a client without an SDK is told. */
async function plain ({ url }: TestGateway, body: unknown): Promise<number> {
  const response = await fetch(url + PATH, { method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': KEY }, body: JSON.stringify(body) })
  return (await response.json() as { readonly input_tokens: number }).input_tokens
}

const sdks = [['@anthropic-ai/sdk 1.11', Anthropic], ['@anthropic-ai/sdk 0.137',
  last0.default as unknown as typeof Anthropic]] as const

for (const [name, SDK] of sdks) {
  void t.test(`${name} counts, with the provider and without, and it costs nothing`, async (t) => {
    const simulator = await startSimulator({ firstDelayMs: 0, key: 'upstream-secret-0' })
    t.teardown(() => simulator.close())
    for (const [by, gw] of [['provider', await gateway(t, counting(simulator.url))], ['estimated',
      await gateway(t, counting())]] as const) {
      const client = new SDK({ apiKey: KEY, baseURL: gw.url, maxRetries: 0 })
      const { data, response, request_id: id } = await client.messages.countTokens({ ...hello, system: 'Be brief' })
        .withResponse()
      t.strictSame(data, { input_tokens: by === 'provider' ? 4 : await plain(gw, { ...hello, system: 'Be brief' }) })
      t.equal(response.headers.get('x-gateway-count'), by)
      t.match(await client.beta.messages.countTokens({ ...hello, betas: ['token-counting-2024-11-01'] }), {
        input_tokens: by === 'provider' ? 2 : await plain(gw, hello)
      }, 'as ?beta=true of older SDKs too')
      const { line, entries, openHolds } = await fate(gw, id!)
      t.match(line, { route: 'POST /v1/messages/count_tokens', status: 200, code: 'ok', key_id: 'acme-dev', model: 'm1',
        attempts: by === 'provider' ? 1 : 0 })
      t.notOk('nanos' in line)
      t.strictSame(entries, [])
      t.equal(openHolds, 0)
    }
    t.match(simulator.requests.map(({ path, body, headers }) => [
      path,
      (body as { model: string }).model,
      headers['x-api-key'],
      headers['anthropic-beta']
    ]),
      [
        [PATH, 'vendor-m1', 'upstream-secret-0', undefined],
        [PATH, 'vendor-m1', 'upstream-secret-0', 'token-counting-2024-11-01']
      ])
    t.notMatch(JSON.stringify(simulator.requests.map(({ headers }) => headers)), KEY)
  })
}

void t.test('at an address of the operator\'s own it is refused in the messages format too', async (t) => {
  const own = await gateway(t,
    counting() + 'routes:\n  - { match: POST /claude/v1/messages/count_tokens, serve: count-tokens }\n')
  const client = new Anthropic({ apiKey: KEY, baseURL: `${own.url}/claude`, maxRetries: 0 })
  t.match(await client.messages.countTokens(hello), { input_tokens: Number })
  t.match(
    await client.messages.countTokens({ ...hello, model: 'none' }).then(() => undefined, (error: unknown) => error),
    { status: 400, errorCode: 'model_not_found' }
  )
})
