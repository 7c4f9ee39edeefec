// over_max_output: a request for more output than its model gives is refused, or lowered and told so, before anything
// is held or sent.
import t from 'tap'
import { allKinds, askFor, kindsYaml } from '../support/all-kinds.ts'
import { fate } from '../support/client.ts'
import { gateway } from '../support/gateway.ts'
import { explain, quote } from '../support/rehearsals.ts'
import { upstream } from '../support/upstream.ts'

const up = await upstream(t, allKinds)
const CLAMP = 'max_output: 32000, over_max_output: clamp'
const gw = await gateway(t, kindsYaml(up.url).replace('max_output: 32000', `${CLAMP}, thinking: budget`)
  .replace('models:\n', `models:
  - { id: small, provider: acme, created: 2025-11-24, context: 200000, max_output: 1000, over_max_output: clamp, channels: { premium: { price: { input: 1, output: 1 }, targets: [{ upstream: one, model: vendor-small }] } } }
`))
const lastBody = (): Readonly<Record<string, unknown>> => up.requests.at(-1)!.body!
const HEADER = 'x-gateway-max-tokens'

t.test('without a word the request is refused, as vendors do', async (t) => {
  const before = up.requests.length
  const told = await askFor(gw, '/v1/messages', 'sonnet', { max_tokens: 128_000 })
  t.match(told, { status: 400, code: 'invalid_request',
    message: 'max_tokens: 128000 > 64000, which is the maximum allowed number of output tokens for sonnet. Lower it.' })
  t.equal(told.headers.get(HEADER), null)
  t.equal(up.requests.length, before)
})

t.test('clamp: the upstream gets the most of the model, and the client is told', async (t) => {
  for (const [path, field] of [
    ['/v1/messages', 'max_tokens'],
    ['/v1/chat/completions', 'max_tokens'],
    ['/v1/chat/completions', 'max_completion_tokens'],
    ['/v1/responses', 'max_output_tokens']
  ] as const) {
    for (const stream of [false, true]) {
      const told = await askFor(gw, path, 'opus', { [field]: 128_000, stream, ...(path === '/v1/responses' && { input: 'Hello' }) })
      t.equal(told.status, 200, path)
      t.equal(told.headers.get(HEADER), '32000')
      t.equal(lastBody()['max_tokens'], 32_000)
      t.notOk(field !== 'max_tokens' && field in lastBody(), 'the vendor has no such field')
      t.equal((await fate(gw, told.id)).openHolds, 0)
    }
  }
  const both = await askFor(gw, '/v1/chat/completions', 'opus', { max_completion_tokens: 40_000, max_tokens: 10 })
  t.equal(both.headers.get(HEADER), '32000', 'the newer name counts')
  t.equal(lastBody()['max_tokens'], 32_000)
})

t.test('what fits is left alone, and nothing is told', async (t) => {
  for (const max of [1, 31_999, 32_000]) {
    const told = await askFor(gw, '/v1/messages', 'opus', { max_tokens: max })
    t.equal(told.headers.get(HEADER), null)
    t.equal(lastBody()['max_tokens'], max)
  }
  t.equal((await askFor(gw, '/v1/chat/completions', 'opus')).headers.get(HEADER), null, 'nothing was asked')
})

t.test('a thinking budget that no longer fits keeps its share, one that fits stays', async (t) => {
  const thinkingOf = async (max: number, budget: number): Promise<unknown> => {
    const told = await askFor(gw, '/v1/messages', 'opus', { max_tokens: max,
      thinking: { type: 'enabled', budget_tokens: budget } })
    t.equal(told.status, 200, told.text)
    t.equal(lastBody()['max_tokens'], 32_000)
    return (lastBody()['thinking'] as { budget_tokens: number }).budget_tokens
  }
  t.equal(await thinkingOf(64_000, 63_999), 31_999)
  t.equal(await thinkingOf(128_000, 64_000), 16_000, 'as much room for the answer as was asked for')
  t.equal(await thinkingOf(128_000, 31_999), 31_999)
  t.equal(await thinkingOf(128_000_000, 32_000), 1024, 'vendors take no smaller one')
})

t.test('what was wrong before it was lowered is said with the numbers of the client', async (t) => {
  t.match(
    await askFor(gw, '/v1/messages', 'opus', { max_tokens: 64_000, thinking: { type: 'enabled', budget_tokens: 64_000 } }),
    { status: 400, message: /64000 is not greater than 64000/ })
  t.match(
    await askFor(gw, '/v1/messages', 'small', { max_tokens: 64_000, thinking: { type: 'enabled', budget_tokens: 2000 } }),
    { status: 400, message: /`max_tokens` must be greater than `thinking.budget_tokens`, and 1000 is not greater than 1024/ },
    'a model without room for any budget')
  t.match(await askFor(gw, '/v1/messages', 'opus', { max_tokens: '64000' }), { status: 400,
    message: /max_tokens must be a whole number/ })
})

t.test('a budget over several answers is not bound by the limit of one', async (t) => {
  const { status } = await gw.messages({ model: 'opus', max_tokens: 64_000,
    thinking: { type: 'enabled', budget_tokens: 70_000 }, messages: [{ role: 'user', content: 'Hello' }] },
  { headers: { 'anthropic-beta': 'interleaved-thinking-2025-05-14' } })
  t.equal(status, 200)
  t.match(lastBody(), { max_tokens: 32_000, thinking: { budget_tokens: 70_000 } })
})

t.test('reasoning_effort is counted from the lowered limit', async (t) => {
  t.equal((await askFor(gw, '/v1/chat/completions', 'opus', { max_tokens: 128_000, reasoning_effort: 'high' })).status, 200)
  const { max_tokens: max, thinking } = lastBody() as { max_tokens: number, thinking: { budget_tokens: number } }
  t.equal(max, 32_000)
  t.ok(thinking.budget_tokens >= 1024 && thinking.budget_tokens < 32_000)
})

t.test('only the lowered output is held', async (t) => {
  const costOf = async (max: number): Promise<unknown> => (await quote(gw, { path: '/v1/messages',
    body: { model: 'opus', max_tokens: max, messages: [{ role: 'user', content: 'Hello' }] } })).body['max_cost_usd']
  t.equal(await costOf(128_000), await costOf(32_000))
  t.match((await explain(gw, { key: 'acme-dev', body: { model: 'opus', max_tokens: 128_000,
    messages: [{ role: 'user', content: 'Hello' }] } })).body,
  { allowed: true, answer_headers: { [HEADER]: '32000' } }, 'the operator sees it too')
})

t.test('web pages may read the header', async (t) => {
  const answered = await gw.messages({ model: 'opus', max_tokens: 128_000, messages: [{ role: 'user', content: 'Hello' }] },
    { headers: { origin: 'https://app.example.com' } })
  t.equal(answered.headers.get(HEADER), '32000')
  t.match(answered.headers.get('access-control-expose-headers'), HEADER)
})
