// What Claude Code sends, in all of its manners, at upstreams of every dialect for text: nothing of it is refused, and
// each upstream gets only what it takes.
import t from 'tap'
import { client, namesOf } from '../support/client.ts'
import { claudeCodeHeaders, claudeCodeRequest, manners } from '../support/claude-code.ts'
import { gateway, KEY, yaml } from '../support/gateway.ts'
import { simulate } from '../support/sdk.ts'

type Json = Readonly<Record<string, unknown>>

const PIPELINE = 'auth, key-policy, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'
const simulator = await simulate(t, 'upstream-secret-0')
const model = (id: string, upstream: string, more = ''): string =>
  `  - { id: ${id}, provider: acme, created: 2025-09-29, context: 200000, max_output: 64000, over_max_output: clamp, thinking: budget${more}, channels: { premium: { price: { input: 3, output: 15 }, targets: [{ upstream: ${upstream}, model: vendor-${id} }] } } }\n`
const gw = await gateway(t, yaml([simulator.url], '', PIPELINE)
  .replace('upstreams:\n', `upstreams:\n  responses: { url: "${simulator.url}", dialect: responses, headers: { authorization: "Bearer upstream-secret-0" } }\n  chat: { url: "${simulator.url}", dialect: chat, headers: { authorization: "Bearer upstream-secret-0" } }\n`)
  .replace('models:\n', `models:\n${model('old', 'u0')}${model('new', 'u0', ', mid_system: true')}${model('chat', 'chat')}${model('responses', 'responses')}`))
const metrics = async (): Promise<string> =>
  await (await fetch(`${gw.urls.admin}/metrics`, { headers: { authorization: 'Bearer test-admin-token' } })).text()
const countOf = (text: string): number => Number(/^gateway_rejected_total\{reason="not_found"\} (\d+)/m.exec(text)?.[1])
const http = client(t, gw, '/v1/messages?beta=true')

t.test('its first request, which asks whether anybody is there, is refused without an alarm', async (t) => {
  const before = await metrics()
  for (let i = 0; i < 3; i++) {
    const probe = await fetch(`${gw.url}/api/hello`, { method: 'HEAD' })
    t.equal(probe.status, 404, 'which it does not look at')
    t.equal(await probe.text(), '')
  }
  const after = await metrics()
  t.equal(countOf(after) - countOf(before), 3)
  t.equal(after.replaceAll(/gateway_rejected_total.*/g, '').match(/^gateway_requests_total.*/gm),
    before.match(/^gateway_requests_total.*/gm), 'no request failed')
  const lines = gw.logged.filter(({ status }) => status === 404)
  t.equal(lines.length, 1, 'a line for many of them')
  t.ok(Number(lines[0]!['level']) <= 30)
})

for (const id of ['old', 'new', 'chat', 'responses']) {
  for (const manner of manners) {
    t.test(`${id}: as for a model that is ${manner}`, async (t) => {
      for (const step of [0, 1, 2] as const) {
        for (const stream of [true, false]) {
          const asked = claudeCodeRequest(id, manner, step, stream)
          const got = await http.post(asked, { ...claudeCodeHeaders(manner), authorization: `Bearer ${KEY}` }).whole()
          t.equal(got.status, 200, got.text)
          if (stream) t.match(namesOf(got.text), /^message_start .*content_block_delta.* message_delta message_stop$/)
          else t.match(got.json, { role: 'assistant', content: [{ type: /./ }], stop_reason: /./ })
          const { body, headers } = simulator.requests.at(-1)!
          const sent = body as Json
          const text = JSON.stringify(sent)
          t.match(text, 'Primary working directory', 'no instruction is lost')
          if (id === 'new') t.strictSame(sent['messages'], asked['messages'], 'what is known is not touched')
          else if (id !== 'responses') t.notMatch(text, /"role":"system".*"role":"system"/)
          if (id === 'chat' || id === 'responses') {
            t.notMatch(text, /context_management|omitted|defer_loading|cache_control|billing-header|tool_reference/)
            t.equal(headers['anthropic-beta'], undefined)
            t.equal(step < 2 || text.includes('Tool loaded: WebFetch'), true, 'the model is told that it may call it')
            t.equal((sent['tools'] as Json[]).length, step < 2 ? 4 : 5)
          } else {
            t.equal(headers['anthropic-version'], '2023-06-01')
            t.equal(headers['anthropic-beta'], claudeCodeHeaders(manner)['anthropic-beta'])
            t.match(sent, { tools: asked['tools'] as Json[] })
            // With a budget, and an answer without a thought in the conversation, there are no thoughts to be cleared.
            const thinks = manner !== 'known' || step === 0
            t.strictSame(sent['context_management'], thinks ? asked['context_management'] : undefined)
          }
          if (manner === 'newest') t.equal(got.headers['x-gateway-max-tokens'], '64000')
        }
      }
    })
  }
}

t.test('tools that are defined and withdrawn on the way', async (t) => {
  const changes = [
    { type: 'tool_addition', tool: { type: 'tool_definition',
      definition: { name: 'Later', description: 'l', input_schema: { type: 'object', properties: {} } } } },
    { type: 'tool_removal', tool: { type: 'tool_reference', name: 'Edit' } },
    { type: 'text', text: 'Use Later.' }
  ]
  for (const id of ['old', 'chat', 'responses']) {
    const asked = claudeCodeRequest(id, 'unknown', 0, false)
    const got = await http.post({ ...asked, messages: [...asked['messages'] as Json[], { role: 'system', content: changes }] },
      claudeCodeHeaders('unknown')).whole()
    t.equal(got.status, 200, got.text)
    const sent = simulator.requests.at(-1)!.body as { tools: (Json & { function?: Json })[] }
    t.strictSame(sent.tools.map((tool) => (tool.function ?? tool)['name']),
      ['Bash', 'ToolSearch', 'DeferredToolPlaceholder', 'Later'], id)
    t.match(JSON.stringify(sent), 'Use Later.')
    t.notMatch(JSON.stringify(sent), /tool_addition|tool_removal/)
  }
})
