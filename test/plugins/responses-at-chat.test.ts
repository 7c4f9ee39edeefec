// Bodies of the Responses API at the address of chat completions, as Cursor's agents send them: checked and translated
// as what they are, and answered, charged and refused as a chat completion is.
import t, { type Test } from 'tap'
import { client, fate, type Received } from '../support/client.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { answer, blockDelta, blockStart, blockStop, json, message, messageEnd, messageStart, textBlock, upstream,
  type Received as Asked, type Script, type Upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

const PIPELINE = 'auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'
const head = { authorization: `Bearer ${KEY}`, 'x-api-key': '' }

interface Setup {
  readonly gw: TestGateway
  readonly up: Upstream
  ask (body: Json, path?: string): Promise<Received>
}

async function start (
  t: Test,
  script: Script | ((request: Asked) => Script),
  { pipeline = PIPELINE, dialect = 'messages' } = {}
): Promise<Setup> {
  const up = await upstream(t, script)
  const gw = await gateway(t, yaml([up.url], '', pipeline).replace('dialect: messages', `dialect: ${dialect}`)
    .replace('accepts: [text, image]', 'accepts: [text]'))
  return { gw, up, ask: (body, path = '/v1/chat/completions') => client(t, gw, path).post(body, head).whole() }
}

const read = { type: 'function', name: 'read', description: 'Reads a file.', strict: false,
  parameters: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] } }
const patch = { type: 'custom', name: 'ApplyPatch', description: 'Edits files.',
  format: { type: 'grammar', syntax: 'lark', definition: 'start: /.+/' } }
/** The second step of an agent: its first calls, and what they returned. */
const agent = {
  model: 'm1', stream: false, store: false, include: ['reasoning.encrypted_content'], reasoning: { effort: 'low' },
  tools: [read, patch], tool_choice: 'auto', parallel_tool_calls: true,
  input: [
    { role: 'system', content: 'You are an agent.' },
    { role: 'user', content: [{ type: 'input_text', text: 'Fix it.' }] },
    { type: 'function_call', call_id: 'call_1', name: 'read', arguments: '{"path":"a"}' },
    { type: 'custom_tool_call', call_id: 'call_2', name: 'ApplyPatch', input: '*** Begin' },
    { type: 'function_call_output', call_id: 'call_1', output: 'one' },
    { type: 'custom_tool_call_output', call_id: 'call_2', output: 'done' }
  ]
}
const calls = [
  { type: 'tool_use', id: 'toolu_1', name: 'read', input: { path: 'b' } },
  { type: 'tool_use', id: 'toolu_2', name: 'ApplyPatch', input: { input: '*** End' } }
]

/** The data of a stream's events but for the last, which says that it is over. */
function chunksOf (t: Test, { text }: Received): readonly Json[] {
  const data = text.split('\n\n').filter((event) => event.startsWith('data: ')).map((event) => event.slice(6))
  t.equal(data.at(-1), '[DONE]')
  return data.slice(0, -1).map((one) => JSON.parse(one) as Json)
}

t.test('a turn of an agent: its words upstream, and a completion in JSON', async (t) => {
  const said = { ...message(''), content: [{ type: 'text', text: 'Look.' }, ...calls], stop_reason: 'tool_use' }
  const { gw, up, ask } = await start(t, json(said))
  const got = await ask(agent)
  t.equal(got.status, 200, got.text)
  t.match(got.json, { id: /^chatcmpl-/, object: 'chat.completion', model: 'm1', usage: { prompt_tokens: 10 },
    choices: [{ finish_reason: 'tool_calls', message: { role: 'assistant', content: 'Look.', tool_calls: [
      { id: 'toolu_1', type: 'function', function: { name: 'read', arguments: '{"path":"b"}' } },
      { id: 'toolu_2', type: 'custom', custom: { name: 'ApplyPatch', input: '*** End' } }
    ] } }] })
  t.notOk('output' in (got.json as Json))
  t.match(up.requests[0]!.body, {
    system: [{ type: 'text', text: 'You are an agent.' }],
    tools: [{ name: 'read', input_schema: read.parameters }, { name: 'ApplyPatch' }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'Fix it.' }] },
      { role: 'assistant', content: [{ type: 'tool_use', name: 'read', input: { path: 'a' } },
        { type: 'tool_use', name: 'ApplyPatch', input: { input: '*** Begin' } }] },
      { role: 'user', content: [{ type: 'tool_result' }, { type: 'tool_result' }] }
    ]
  })
  t.equal(up.requests[0]!.body!['input'], undefined)
  t.match(await fate(gw, got.id), { line: { outcome: 'completed', route: 'POST /v1/chat/completions', model: 'm1' },
    charged: 10n * 3000n + 5n * 15_000n, openHolds: 0 })
})

t.test('a stream of chunks, with its usage where it is asked for', async (t) => {
  const { ask } = await start(t, [messageStart(), textBlock(0, 'Lo', 'ok.'),
    blockStart(1, { ...calls[0], input: {} }), blockDelta(1, { type: 'input_json_delta', partial_json: '{"path":"b"}' }),
    blockStop(1), blockStart(2, { ...calls[1], input: {} }),
    blockDelta(2, { type: 'input_json_delta', partial_json: '{"input":"*** End"}' }), blockStop(2),
    messageEnd({ stop_reason: 'tool_use' })])
  for (const asking of [{ stream_options: { include_usage: true } }, { usage: { include: true } }, undefined]) {
    const got = await ask({ ...agent, stream: true, ...asking })
    t.match(got.headers['content-type'], /^text\/event-stream/)
    const chunks = chunksOf(t, got)
    t.ok(chunks.every(({ object }) => object === 'chat.completion.chunk'))
    const deltas = chunks.flatMap(({ choices }) => choices as readonly { delta: Json, finish_reason: unknown }[])
    t.equal(deltas.map(({ delta }) => delta['content'] ?? '').join(''), 'Look.')
    const parts = deltas.flatMap(({ delta }) => (delta['tool_calls'] ?? []) as readonly Json[])
    t.match(parts.filter(({ id }) => id !== undefined), [{ index: 0, type: 'function', function: { name: 'read' } },
      { index: 1, type: 'custom', custom: { name: 'ApplyPatch' } }])
    t.match(JSON.stringify(parts), /\*\*\* End/)
    t.equal(deltas.at(-1)!.finish_reason, 'tool_calls')
    t.equal(chunks.some(({ usage }) => usage !== undefined && usage !== null), asking !== undefined)
  }
})

t.test('text as input, JSON that fits a schema, tools of a vendor that are left out', async (t) => {
  const { up, ask } = await start(t, ({ body }) =>
    Array.isArray(body!['tools'])
      ? json({ ...message(''), stop_reason: 'tool_use',
        content: [{ ...calls[0], name: (body!['tools'][0] as Json)['name'], input: { a: 1 } }] })
      : answer('Hi!'))
  t.match((await ask({ model: 'm1', input: 'Hello' })).json, { choices: [{ message: { content: 'Hi!' } }] })
  t.match(up.requests[0]!.body!['messages'], [{ role: 'user', content: [{ text: 'Hello' }] }])
  const schema = { type: 'object', properties: { a: { type: 'number' } }, required: ['a'], additionalProperties: false }
  const format = { type: 'json_schema', name: 'one', schema, strict: true }
  t.match((await ask({ model: 'm1', input: 'Hello', text: { format } })).json,
    { choices: [{ finish_reason: 'stop', message: { content: '{"a":1}' } }] })
  const dropped = await ask({ model: 'm1', input: 'Hello', tools: [{ type: 'web_search' }] })
  t.equal(dropped.headers['x-gateway-dropped-tools'], 'web_search')
  t.equal((dropped.json as Json)['object'], 'chat.completion')
})

t.test('mistakes are named where they are in it, in the shape of chat', async (t) => {
  const { gw, up, ask } = await start(t, answer('Hi!'))
  const table: readonly (readonly [body: Json, param: string | null, said: RegExp])[] = [
    [{ input: [{ role: 'user', content: 5 }] }, 'input[0].content', /./],
    [{ input: 5 }, 'input', /./],
    [{ input: [{ type: 'function_call_output', output: 'x' }] }, 'input[0].call_id', /./],
    [{ input: 'Hi', max_output_tokens: 100_000 }, 'max_output_tokens', /64000/],
    [{ input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'https://x.test/a.png' }] }] },
      'input[0].content[0]', /./],
    [{ input: 'Hi', previous_response_id: 'resp_1' }, 'previous_response_id', /whole conversation/],
    [{ input: null }, 'messages', /./],
    [{}, 'messages', /./]
  ]
  for (const [body, param, said] of table) {
    const got = await ask({ model: 'm1', ...body })
    t.equal(got.status, 400, got.text)
    t.match(got.json, { error: { type: 'invalid_request_error', param, message: said, request_id: got.id } })
  }
  t.equal(up.requests.length, 0)
  t.equal(await gw.services.store.openHolds(), 0)
})

t.test('with messages it is a chat completion, whatever else it has', async (t) => {
  const { up, ask } = await start(t, answer('Hi!'))
  const body = { model: 'm1', messages: [{ role: 'user', content: 'A' }], input: 'B' }
  t.match((await ask(body)).json, { object: 'chat.completion' })
  t.match(up.requests[0]!.body!['messages'], [{ role: 'user', content: 'A' }])
  t.match((await ask({ ...body, input: 5 })).json, { object: 'chat.completion' })
})

t.test('the other addresses read what they did', async (t) => {
  const { ask } = await start(t, answer('Hi!'))
  t.match((await ask({ model: 'm1', max_tokens: 9, input: 'Hi' }, '/v1/messages')).json,
    { type: 'error', error: { message: /messages/ } })
  t.match((await ask({ model: 'm1', messages: [{ role: 'user', content: 'Hi' }] }, '/v1/responses')).status, 400)
  t.match((await ask({ model: 'm1', input: 'Hi' }, '/v1/responses')).json, { object: 'response' })
  const quoted = await ask({ path: '/v1/chat/completions', body: { model: 'm1', input: 'Hi' } }, '/v1/quote')
  t.match(quoted.json, { allowed: true })
})

t.test('wherever the translator of the Responses API stands among the plugins', async (t) => {
  for (const order of ['responses-to-messages, chat-to-messages', 'chat-to-messages, responses-to-messages']) {
    const { ask } = await start(t, answer('Hi!'), { pipeline: PIPELINE.replace('chat-to-messages', order) })
    t.match((await ask({ model: 'm1', input: 'Hello' })).json, { choices: [{ message: { content: 'Hi!' } }] }, order)
    const stream = chunksOf(t, await ask({ model: 'm1', input: 'Hello', stream: true }))
    t.match(stream, [{ object: 'chat.completion.chunk' }], order)
  }
})

t.test('at an upstream of chat style no field of it is taken for one of chat', async (t) => {
  const { up, ask } = await start(t, json({ id: 'c', object: 'chat.completion', created: 1, model: 'x',
    choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'Hi!' } }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } }), { dialect: 'chat' })
  const got = await ask({ model: 'm1', input: 'Hello', seed: { not: 'a number' }, response_format: 5,
    reasoning_effort: [] })
  t.match(got.json, { object: 'chat.completion', choices: [{ message: { content: 'Hi!' } }] }, got.text)
  t.match(up.requests[0]!.body, { messages: [{ role: 'user', content: 'Hello' }] })
  for (const field of ['seed', 'response_format', 'reasoning_effort', 'input']) {
    t.notOk(field in up.requests[0]!.body!, field)
  }
})
