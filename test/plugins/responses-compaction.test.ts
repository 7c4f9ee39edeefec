// Compaction of the Responses API: a conversation becomes one sealed item, by a call that is paid as any other, and
// that item stands for it.
import t, { type Test } from 'tap'
import { SseDecoder } from '../../src/core/sse.ts'
import { client, fate, type Received } from '../support/client.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { readResponse } from '../support/responses-reader.ts'
import { answer, blockDelta, blockStart, blockStop, json, message, messageEnd, messageStart, upstream, type Script,
  type Upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

const OTHER = `sk-gw-${'o'.repeat(32)}`
const usage = { input_tokens: 20, output_tokens: 7 }
const COST = 20n * 3000n + 7n * 15_000n
const talk = [{ role: 'user', content: 'Build a boat' },
  { type: 'function_call', call_id: 'call_1', name: 'saw', arguments: '{}' },
  { type: 'function_call_output', call_id: 'call_1', output: 'sawn' }]
const tools = [{ type: 'function', name: 'saw', parameters: { type: 'object' } }]
const trigger = { type: 'compaction_trigger' }

interface Session {
  readonly own: TestGateway
  readonly up: Upstream
  post (body: Json, path?: string, key?: string): Promise<Received>
}

async function session (t: Test, script: Script = answer('The boat is half built.', { usage })): Promise<Session> {
  const up = await upstream(t, script)
  const own = await gateway(t, yaml([up.url], '',
    'auth, schema-validate, { responses-to-messages: { keep: 1h } }, channel-router, billing-meter, error-normalize')
    .replace('accepts: [text', 'thinking: adaptive\n    structured_outputs: true\n    accepts: [text')
    .replace('accounts:\n', 'accounts:\n  - { id: other, name: Other, opening_balance_usd: 100 }\n')
    .replace('keys:\n', `keys:\n  - { id: other-dev, account: other, secret: ${OTHER} }\n`))
  const asked = { '': client(t, own, '/v1/responses'), '/compact': client(t, own, '/v1/responses/compact') }
  return { own, up, post: async (body, path = '', key = KEY) => await asked[path as keyof typeof asked]
    .post({ model: 'm1', ...body }, { authorization: `Bearer ${key}`, 'x-api-key': '' }).whole() }
}

/** The one item of a compaction. */
function itemIn (output: unknown): Json {
  const [item, ...more] = output as readonly Json[]
  t.strictSame(more, [])
  t.match(item, { type: 'compaction', id: /^cmp_\w+$/, encrypted_content: /^gwseal1_[\w-]+$/ })
  t.notMatch(JSON.stringify(item), 'boat')
  return item!
}

t.test('a trigger, whole and streamed: one item, which stands for the conversation', async (t) => {
  const { own, up, post } = await session(t)
  for (const stream of [false, true]) {
    const at = up.requests.length
    const got = await post({ input: [...talk, trigger], tools, stream, tool_choice: 'required', instructions: 'Be brief',
      reasoning: { effort: 'high', summary: 'auto' }, text: { format: { type: 'json_object' } } })
    t.equal(got.status, 200, got.text)
    const read = stream ? readResponse(new SseDecoder().push(Buffer.from(got.text))) : undefined
    if (read !== undefined) {
      t.strictSame(read.types, ['response.created', 'response.in_progress', 'response.output_item.added',
        'response.output_item.done', 'response.completed'])
    }
    const response = read?.response ?? got.json as Json
    t.match(response, { status: 'completed', store: false, usage: { input_tokens: 20, output_tokens: 7 } })
    const item = itemIn(response['output'])
    t.match(await fate(own, got.id), { line: { outcome: 'completed' }, charged: COST, openHolds: 0 })

    const sent = up.requests[at]!.body!
    t.match(sent, { tool_choice: { type: 'none' }, tools: [{ name: 'saw' }], thinking: { type: 'disabled' },
      system: [{ text: 'Be brief' }] })
    t.equal((sent['system'] as Json[]).length, 1)
    const messages = sent['messages'] as { readonly role: string, readonly content: Json[] }[]
    t.match(messages.slice(0, 2), [{ content: [{ text: 'Build a boat' }] }, { content: [{ type: 'tool_use' }] }])
    t.match(messages.at(-1), { role: 'user', content: [{ type: 'tool_result' }, { text: /^Summarize the conversation/ }] })

    const next = await post({ input: [item, { role: 'user', content: 'Go on' }] })
    t.equal(next.status, 200)
    t.match(up.requests.at(-1)!.body!['messages'], [{ role: 'user', content: [
      { text: 'Summary of the conversation so far:\nThe boat is half built.' }, { text: 'Go on' }] }])
    t.match(await post({ input: [item, { role: 'user', content: 'Go on' }] }, '', OTHER),
      { status: 400, json: { error: { code: 'invalid_request', param: 'input[0].encrypted_content' } } })
  }
})

t.test('the address: of items, of a text, and of a response that is kept', async (t) => {
  const { own, up, post } = await session(t)
  const kept = (await post({ input: 'Build a boat' })).json as Json
  for (const body of [{ input: talk }, { input: 'Build a boat' }, { input: [...talk, trigger] },
    { input: [], previous_response_id: kept['id'] }]) {
    const got = await post(body, '/compact')
    t.equal(got.status, 200, got.text)
    const { id, object, created_at: created, output, usage: used, ...more } = got.json as Json
    t.strictSame(more, {})
    t.match({ id, object, created, used }, { id: /^resp_\w{24}$/, object: 'response.compaction', created: Number,
      used: { total_tokens: 27 } })
    itemIn(output)
    t.match(JSON.stringify(up.requests.at(-1)!.body!['messages']), 'Build a boat')
    t.match(await fate(own, got.id), { line: { outcome: 'completed', route: 'POST /v1/responses/compact' },
      charged: COST, openHolds: 0 })
    t.equal((await fetch(`${own.url}/v1/responses/${String(id)}`, { headers: { authorization: `Bearer ${KEY}` } })).status,
      404, 'a summary is not kept')
  }
})

t.test('what can\'t be summarized is refused, with the place', async (t) => {
  const { up, post } = await session(t)
  for (const [body, path, param] of [
    [{ input: [trigger, ...talk] }, '', 'input[0].type'],
    [{ input: [...talk, trigger, trigger] }, '', 'input[3].type'],
    [{ input: [trigger] }, '', 'input'],
    [{ input: [] }, '/compact', 'input'],
    [{ input: talk, stream: true }, '/compact', 'stream']
  ] as const) {
    t.match(await post(body, path), { status: 400, json: { error: { code: 'invalid_request', param } } }, param)
  }
  t.equal(up.requests.length, 0)
})

t.test('a model that thinks, calls or says nothing makes no item of it', async (t) => {
  const noise: Script = [messageStart({ usage }), blockStart(0, { type: 'thinking', thinking: '', signature: '' }),
    blockDelta(0, { type: 'thinking_delta', thinking: 'Hm' }), blockStop(0),
    blockStart(1, { type: 'tool_use', id: 'toolu_1', name: 'saw', input: {} }), blockStop(1)]
  const loud = await session(t, [noise, blockStart(2), blockDelta(2, { type: 'text_delta', text: 'It ' }),
    blockDelta(2, { type: 'text_delta', text: 'is built.' }), blockStop(2), messageEnd()])
  const got = await loud.post({ input: [...talk, trigger], tools, stream: true })
  const { response } = readResponse(new SseDecoder().push(Buffer.from(got.text)))
  const next = await loud.post({ input: [itemIn(response['output'])], stream: true })
  t.equal(next.status, 200)
  t.match(loud.up.requests.at(-1)!.body!['messages'], [{ content: [{ text: /\nIt is built\.$/ }] }])

  const silent = await session(t, [noise, messageEnd()])
  const none = await silent.post({ input: [...talk, trigger], tools, stream: true })
  t.match(readResponse(new SseDecoder().push(Buffer.from(none.text))).response,
    { status: 'failed', output: [], error: { message: /made no summary/ } })
  const whole = await session(t, json({ ...message('', { usage }), content: [] }))
  t.ok((await whole.post({ input: [...talk, trigger] })).status >= 400)
  const refused = await session(t, answer('No.', { stop_reason: 'refusal' }))
  for (const stream of [true, false]) {
    const { status, text } = await refused.post({ input: [...talk, trigger], stream })
    t.equal(status, stream ? 200 : 400)
    t.match(text, 'content_policy_violation')
  }
})
