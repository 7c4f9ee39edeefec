// What clients really send: each shape is understood, and each vendor gets it in its own words.
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { dialectsOf } from '../../src/config/sections/dialects.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { gateway, type GatewayTestOptions, KEY, yaml } from '../support/gateway.ts'
import { json, type Received, upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

const dialects = dialectsOf('text')
type Dialect = typeof dialects[number]
const PATHS = { messages: '/v1/messages', chat: '/v1/chat/completions', responses: '/v1/responses' } as const

const ANSWERS: Readonly<Record<Dialect, Json>> = {
  messages: { id: 'msg_1', type: 'message', role: 'assistant', content: [{ type: 'text', text: 'Hello' }],
    stop_reason: 'end_turn', stop_sequence: null, usage: { input_tokens: 20, output_tokens: 5 } },
  chat: { id: 'c', object: 'chat.completion', created: 1, usage: { prompt_tokens: 20, completion_tokens: 5 },
    choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }] },
  responses: { id: 'resp_1', object: 'response', status: 'completed', usage: { input_tokens: 20, output_tokens: 5 },
    output: [{ type: 'message', id: 'msg_1', role: 'assistant', status: 'completed',
      content: [{ type: 'output_text', text: 'Hello', annotations: [] }] }] }
}

interface Sent {
  readonly got: Got
  readonly sent: Json
  /** nano-dollars that the request has cost */
  cost (): Promise<bigint>
}

interface World {
  /** @returns the body that the upstream of this dialect got, and the client's answer */
  send (style: Dialect, model: string, body: Json): Promise<Sent>
}

interface Settings extends GatewayTestOptions {
  /** fields of the upstreams and of the models, in YAML */
  readonly upstreams?: Partial<Readonly<Record<Dialect, string>>>
  readonly model?: string
  /** the vendor's name of the model */
  readonly vendors?: string
  readonly price?: string
  readonly answers?: Partial<Record<Dialect, Json>>
  /** more models, in YAML */
  more? (price: string): string
  /** US dollars that the account has */
  readonly credit?: string
}

const NOTHING: Json = {}

async function world (test: Test, { upstreams = {}, model = '', vendors = 'vendor', price = 'input: 1, output: 10',
  answers = {}, more, credit, ...options }: Settings = {}): Promise<World> {
  const received: Received[] = []
  const urls = await Promise.all(dialects.map(async (dialect) => (await upstream(test, (request) => {
    received.push(request)
    return json(answers[dialect] ?? ANSWERS[dialect])
  })).url))
  const text = yaml([], '', 'auth, schema-validate, responses-to-messages, chat-to-messages, channel-router, ' +
    'billing-meter, error-normalize').replace(/upstreams:\n[^]*(?=accounts:)/, `upstreams:\n${dialects.map((dialect, i) =>
    `  ${dialect}: { url: "${urls[i]!}", dialect: ${dialect}, retries: { attempts: 0 }${upstreams[dialect] ?? ''} }\n`)
    .join('')}models:\n${dialects.map((dialect) => `  - { id: ${dialect}, provider: acme, created: 2025-01-01,
    context: 200000, max_output: 8192, accepts: [text, image]${model}, channels: { premium: {
      price: { ${price} }, targets: [{ upstream: ${dialect}, model: ${vendors} }] } } }\n`).join('')}${
    more?.(price) ?? ''}`).replace('opening_balance_usd: 100', `opening_balance_usd: ${credit ?? '100'}`)
  const gw = await gateway(test, text, options)
  return {
    async send (style, model, body) {
      const before = received.length
      const { store } = gw.services
      const { balance } = await store.balance('acme')
      const got = await ask(gw.url + PATHS[style], { model, ...body }, { headers: { authorization: `Bearer ${KEY}` } })
      return { got, sent: received[before]?.body ?? NOTHING,
        cost: async () => balance - (await store.balance('acme')).balance }
    }
  }
}

const hello = [{ role: 'user', content: 'Hello' }]
const schema = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] }
const EPHEMERAL = { type: 'ephemeral' }
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

/** As Cursor's agent sends it to a model with `claude` in its name. */
const cursor: Json = {
  system: [{ type: 'text', text: 'You are an agent.', cache_control: { type: 'ephemeral' } }],
  max_tokens: 100,
  messages: [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: [{ type: 'text', text: 'What is in it?' },
      { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } }] },
    { role: 'assistant', content: [{ type: 'text', text: 'I look.' },
      { type: 'tool_use', id: 'toolu_1', name: 'read', input: { path: 'a' } },
      { type: 'tool_use', id: 'toolu_2', name: 'read', input: { path: 'b' } }],
    // The same call once more, in the words of chat style.
    tool_calls: [{ id: 'toolu_1', type: 'function', function: { name: 'read', arguments: '{"path":"a"}' } }] },
    { role: 'user', content: [{ type: 'text', text: 'Go on.' },
      { type: 'tool_result', tool_use_id: 'toolu_1', content: [{ type: 'text', text: 'A' }], cache_control: EPHEMERAL },
      { type: 'tool_result', tool_use_id: 'toolu_2', content: 'no such file', is_error: true }] }
  ],
  tools: [
    { name: 'read', description: 'Reads', input_schema: schema, cache_control: { type: 'ephemeral' } },
    { type: 'custom', name: 'write', input_schema: schema },
    { type: 'function', name: 'list', parameters: schema, strict: null },
    { name: 'grep', parameters: schema }
  ],
  tool_choice: { type: 'auto', disable_parallel_tool_use: true }
}

for (const largeBody of [undefined, 1]) {
  t.test(`T6: Cursor's agent posts messages style to chat completions${largeBody ? ', in threads' : ''}`, async (t) => {
    const { send } = await world(t, largeBody === undefined ? {} : { largeBody })
    const toMessages = await send('chat', 'messages', cursor)
    t.match(toMessages.got.body, { object: 'chat.completion', choices: [{ message: { content: 'Hello' } }] })
    t.strictSame(toMessages.sent, {
      model: 'vendor', max_tokens: 100,
      system: [{ type: 'text', text: 'You are an agent.', cache_control: { type: 'ephemeral' } },
        { type: 'text', text: 'Be brief.' }],
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'What is in it?' },
          { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } }] },
        { role: 'assistant', content: [{ type: 'text', text: 'I look.' },
          { type: 'tool_use', id: 'toolu_1', name: 'read', input: { path: 'a' } },
          { type: 'tool_use', id: 'toolu_2', name: 'read', input: { path: 'b' } }] },
        { role: 'user', content: [
          { type: 'tool_result', tool_use_id: 'toolu_1', content: [{ type: 'text', text: 'A' }], cache_control: EPHEMERAL },
          { type: 'tool_result', tool_use_id: 'toolu_2', content: 'no such file', is_error: true },
          { type: 'text', text: 'Go on.' }] }
      ],
      tools: [
        { name: 'read', description: 'Reads', input_schema: schema, cache_control: { type: 'ephemeral' } },
        { name: 'write', input_schema: schema }, { name: 'list', input_schema: schema },
        { name: 'grep', input_schema: schema }
      ],
      tool_choice: { type: 'auto', disable_parallel_tool_use: true }
    })
    t.match((await send('chat', 'chat', cursor)).sent, {
      messages: [
        { role: 'system', content: 'You are an agent.\nBe brief.' },
        { role: 'user', content: [{ type: 'text' }, { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } }] },
        { role: 'assistant', content: 'I look.', tool_calls: [{ id: 'toolu_1' }, { id: 'toolu_2' }] },
        { role: 'tool', tool_call_id: 'toolu_1', content: 'A' },
        { role: 'tool', tool_call_id: 'toolu_2', content: 'Error: no such file' },
        { role: 'user', content: 'Go on.' }
      ],
      tools: ['read', 'write', 'list', 'grep'].map((name) => ({ type: 'function', function: { name } })),
      tool_choice: 'auto', parallel_tool_calls: false
    })
    t.match((await send('chat', 'responses', cursor)).sent, {
      input: [{ role: 'user' }, { content: 'I look.' }, { type: 'function_call', call_id: 'toolu_1' },
        { type: 'function_call', call_id: 'toolu_2' }, { type: 'function_call_output', output: 'A' },
        { type: 'function_call_output', output: 'Error: no such file' }, { role: 'user' }]
    })
  })
}

t.test('T6: what can\'t be understood is refused, with its place', async (t) => {
  const { send } = await world(t)
  const result = (more: Json): Json => ({ type: 'tool_result', tool_use_id: 'x', content: 'A', ...more })
  const use = (more: Json): Json => ({ type: 'tool_use', id: 'x', name: 'read', input: {}, ...more })
  const said = (role: string, content: unknown): Json => ({ messages: [...hello, { role, content }] })
  const cases: readonly (readonly [Json, string])[] = [
    [said('user', [result({})]), 'messages[1].content[0].tool_use_id'],
    [said('user', [use({})]), 'messages[1].content[0].type'],
    [said('assistant', [use({})]), 'messages[1].content[0].id'],
    [said('assistant', [result({})]), 'messages[1].content[0].type'],
    [said('assistant', [use({ id: 7 })]), 'messages[1].content[0].id'],
    [{ messages: [...hello, { role: 'assistant', content: [use({})] },
      { role: 'user', content: [result({ content: [{ type: 'audio' }] })] }] }, 'messages[2].content[0].content[0].type'],
    [said('user', [{ type: 'image', source: { type: 'file', file_id: 'f' } }]), 'messages[1].content[0].source.type'],
    [{ messages: hello, system: [{ type: 'image' }] }, 'system[0].text'],
    [{ messages: hello, tools: [{ type: 'function' }] }, 'tools[0].type'],
    [{ messages: hello, tools: [{ input_schema: schema }] }, 'tools[0].name'],
    [{ messages: hello, tools: [{ type: 'bash_20250124', name: 'bash' }] }, 'tools[0].type']
  ]
  for (const [body, param] of cases) {
    const { got } = await send('chat', 'messages', { max_tokens: 100, ...body })
    t.match(got, { status: 400, body: { error: { param } } }, `${param}: ${JSON.stringify(got.body)}`)
  }
})

t.test('V18: a choice of tools by Mistral\'s word, by those of messages style, and without a type', async (t) => {
  const { send } = await world(t)
  const tools = [{ type: 'function', function: { name: 'read', parameters: schema } }]
  const flat = [{ type: 'function', name: 'read', parameters: schema, strict: false }]
  for (const [choice, inner] of [
    ['any', { type: 'any' }], [{ type: 'any' }, { type: 'any' }], [{ type: 'required' }, { type: 'any' }],
    [{ type: 'none' }, { type: 'none' }], [{ type: 'tool', name: 'read' }, { type: 'tool', name: 'read' }],
    [{ function: { name: 'read' } }, { type: 'tool', name: 'read' }], [{ name: 'read' }, { type: 'tool', name: 'read' }],
    [{ type: 'function', name: 'read' }, { type: 'tool', name: 'read' }],
    [{ type: 'allowed_tools', allowed_tools: { mode: 'any', tools: [{ name: 'read' }] } }, { type: 'any' }]
  ] as const) {
    const { got, sent } = await send('chat', 'messages', { messages: hello, max_tokens: 100, tools, tool_choice: choice })
    t.equal(got.status, 200, JSON.stringify(got.body))
    t.strictSame(sent['tool_choice'], inner, JSON.stringify(choice))
  }
  t.equal((await send('chat', 'chat', { messages: hello, tools, tool_choice: 'any' })).sent['tool_choice'], 'required')
  for (const choice of ['any', { name: 'read' }, { type: 'any' }]) {
    const { got, sent } = await send('responses', 'messages', { input: 'Hello', tools: flat, tool_choice: choice })
    t.equal(got.status, 200, JSON.stringify(got.body))
    t.match(got.body?.['tool_choice'], typeof choice === 'object' && 'name' in choice ? { type: 'function' } : 'required')
    t.equal((sent['tool_choice'] as Json)['type'], typeof choice === 'object' && 'name' in choice ? 'tool' : 'any')
  }
})

t.test('V19, V20: files by an address, and thoughts in parts', async (t) => {
  const { send } = await world(t, { upstreams: { chat: ', chat: { reasoning_field: reasoning_content }' } })
  const url = 'https://example.com/a.pdf'
  const document = { type: 'document', source: { type: 'url', url } }
  for (const part of [{ type: 'document_url', document_url: url }, { type: 'document_url', document_url: { url } },
    { type: 'file_url', file_url: { url } }, { type: 'file_url', file_url: url }, document]) {
    const { got, sent } = await send('chat', 'messages', { messages: [{ role: 'user', content: [part] }], max_tokens: 9 })
    t.equal(got.status, 200, JSON.stringify(got.body))
    t.strictSame(sent['messages'], [{ role: 'user', content: [document] }])
  }
  const thinking = { type: 'thinking', thinking: [{ type: 'text', text: 'Two and' }, { type: 'text', text: ' two.' }] }
  const messages = [...hello, { role: 'assistant', content: [thinking, { type: 'text', text: 'I look.' }],
    tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'read', arguments: '{}' } }] },
  { role: 'tool', tool_call_id: 'call_1', content: 'A' }]
  const toMessages = await send('chat', 'messages', { messages, max_tokens: 100 })
  t.equal(toMessages.got.status, 200, JSON.stringify(toMessages.got.body))
  t.match((toMessages.sent['messages'] as Json[])[1], { content: [{ type: 'text', text: 'I look.' }, { type: 'tool_use' }] })
  t.match((await send('chat', 'chat', { messages })).sent['messages'],
    [{}, { content: 'I look.', reasoning_content: 'Two and two.', tool_calls: [{ id: 'call_1' }] }, {}])
})

t.test('T5, V21: arguments that are no object do not end a conversation', async (t) => {
  const { send } = await world(t)
  const whole = '{"path":"a"}'
  for (const [text, input, sent] of [
    ['{"a":', { _raw: '{"a":' }, '{"a":'], ['[1]', { _raw: '[1]' }, '[1]'], ['"', { _raw: '"' }, '"'],
    ['{"_raw":"x"}', { _raw: '{"_raw":"x"}' }, '{"_raw":"x"}'], ['{"_raw":"x","a":1}', { _raw: 'x', a: 1 }, '{"_raw":"x","a":1}'],
    ['null', {}, '{}'], [' null ', {}, '{}'], ['', {}, '{}'], [' ', {}, '{}'], [whole, { path: 'a' }, whole]
  ] as const) {
    const bodies = {
      chat: { max_tokens: 100, messages: [...hello,
        { role: 'assistant', content: null, tool_calls: [call('call_1', text), call('call_2', whole)] },
        { role: 'tool', tool_call_id: 'call_1', content: 'A' }, { role: 'tool', tool_call_id: 'call_2', content: 'B' }] },
      responses: { max_output_tokens: 100, input: [...hello, item('call_1', text), item('call_2', whole),
        { type: 'function_call_output', call_id: 'call_1', output: 'A' },
        { type: 'function_call_output', call_id: 'call_2', output: 'B' }] }
    }
    for (const style of ['chat', 'responses'] as const) {
      const about = `${style}: ${text}`
      const inMessages = await send(style, 'messages', bodies[style])
      t.equal(inMessages.got.status, 200, JSON.stringify(inMessages.got.body))
      t.strictSame(((inMessages.sent['messages'] as Json[])[1]?.['content'] as Json[]).map((block) => block['input']),
        [input, { path: 'a' }], `${about} to messages`)
      const inChat = (await send(style, 'chat', bodies[style])).sent['messages'] as { tool_calls: ReturnType<typeof call>[] }[]
      t.strictSame(inChat[1]!.tool_calls.map((made) => made.function.arguments), [sent, whole], `${about} to chat`)
      const items = (await send(style, 'responses', bodies[style])).sent['input'] as Json[]
      t.strictSame(items.map((one) => one['arguments']).filter((made) => made !== undefined), [sent, whole],
        `${about} to responses`)
    }
  }
  // In messages style it is a name like any other.
  const messages = [...hello, { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'read', input: { _raw: 'x' } }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: 'A' }] }]
  t.match((await send('messages', 'chat', { messages, max_tokens: 9 })).sent['messages'],
    [{}, { tool_calls: [{ function: { arguments: '{"_raw":"x"}' } }] }])
  t.match((await send('messages', 'responses', { messages, max_tokens: 9 })).sent['input'], [{}, { arguments: '{"_raw":"x"}' }])
})

t.test('T4: schemas of tools that vendors of the other family refuse', async (t) => {
  const { send } = await world(t)
  const string = { type: 'string' }
  const number = { type: 'number' }
  const object = (properties: Json, more: Json = {}): Json => ({ type: 'object', properties, ...more })
  const either = { anyOf: [object({ a: string, b: string }, { required: ['a'] }), { $ref: '#/$defs/other' }],
    $defs: { other: object({ b: number, c: number }, { oneOf: [{ $ref: '#/$defs/other' }] }) } }
  const cases: readonly { readonly schema: Json, readonly adapted: Json, readonly isTold?: boolean }[] = [
    { schema: { type: 'object' }, adapted: object({}) },
    { schema: {}, adapted: object({}) },
    { schema: { type: ['object', 'null'], properties: { a: string } }, adapted: object({ a: string }) },
    { schema: { type: 'object', properties: null, required: null, description: null }, adapted: object({}) },
    { schema: object({ a: { default: null } }), adapted: object({ a: { default: null } }) },
    { schema: { type: 'object', ...either }, isTold: true,
      adapted: object({ a: string, b: { anyOf: [string, number] }, c: number }, { $defs: either.$defs }) },
    { schema: object({ a: string }, { oneOf: [{ required: ['a'] }, { properties: { b: string } }] }), isTold: true,
      adapted: object({ a: string, b: string }) },
    { schema: { allOf: [object({ a: string }, { required: ['a'] }), object({ b: string }, { required: ['b'] })] },
      isTold: true, adapted: object({ a: string, b: string }, { required: ['a', 'b'] }) }
  ]
  const wide = Object.fromEntries(dialects.map((style) => [style, cases.map(({ schema: made }, i) => {
    const about = { name: `f${i}`, description: 'Does it' }
    if (style === 'messages') return { ...about, input_schema: made }
    return style === 'chat' ? { type: 'function', function: { ...about, parameters: made } }
      : { type: 'function', ...about, parameters: made, strict: false }
  })]))
  const bodies: Readonly<Record<Dialect, Json>> = { chat: { messages: hello, max_tokens: 100 },
    messages: { messages: hello, max_tokens: 100 }, responses: { input: 'Hello', max_output_tokens: 100 } }
  for (const style of dialects) {
    for (const dialect of dialects) {
      const { got, sent } = await send(style, dialect, { ...bodies[style], tools: wide[style] })
      t.equal(got.status, 200, JSON.stringify(got.body))
      const tools = (sent['tools'] as Json[]).map((tool) => (tool['function'] ?? tool) as Json)
      for (const [i, { schema: made, adapted, isTold = false }] of cases.entries()) {
        const about = `${style} to ${dialect}: ${JSON.stringify(made)}`
        const { description, input_schema: one, parameters: other } = tools[i]!
        if (style === dialect) {
          t.strictSame(one ?? other, style === 'chat' ? { type: 'object', ...made } : made, about)
          t.equal(description, 'Does it', about)
          continue
        }
        t.strictSame(one ?? other, adapted, about)
        t.equal(String(description).includes(JSON.stringify(made).slice(-20)), isTold, about)
      }
    }
  }
})

t.test('V24: answers with calls in a row are one, and results come before words', async (t) => {
  const { send } = await world(t)
  const use = (id: string): Json => ({ type: 'tool_use', id, name: 'read', input: {} })
  const result = (id: string): Json => ({ type: 'tool_result', tool_use_id: id, content: id })
  const text = (said: string): Json => ({ type: 'text', text: said })
  const bodies: Readonly<Record<Dialect, Json>> = {
    messages: { max_tokens: 100, messages: [...hello, { role: 'assistant', content: [text('One.'), use('a')] },
      { role: 'assistant', content: [text('Two.'), use('b')] }, { role: 'assistant', content: 'Three.' },
      { role: 'user', content: [result('a'), text('And?')] }, { role: 'user', content: [result('b')] },
      { role: 'user', content: 'Go on.' }, { role: 'assistant', content: 'Yes.' }, { role: 'assistant', content: 'No.' }] },
    chat: { max_tokens: 100, messages: [...hello, { role: 'assistant', content: 'One.', tool_calls: [call('a', '{}')] },
      { role: 'assistant', content: 'Two.', tool_calls: [call('b', '{}')] }, { role: 'assistant', content: 'Three.' },
      { role: 'tool', tool_call_id: 'a', content: 'a' }, { role: 'user', content: 'And?' },
      { role: 'tool', tool_call_id: 'b', content: 'b' }, { role: 'user', content: 'Go on.' }] },
    responses: { max_output_tokens: 100, input: [...hello, { role: 'assistant', content: 'One.' }, item('a', '{}'),
      { role: 'assistant', content: 'Two.' }, item('b', '{}'), { role: 'assistant', content: 'Three.' },
      { type: 'function_call_output', call_id: 'a', output: 'a' }, { role: 'user', content: 'And?' },
      { type: 'function_call_output', call_id: 'b', output: 'b' }, { role: 'user', content: 'Go on.' }] }
  }
  for (const style of dialects) {
    const { got, sent } = await send(style, 'chat', bodies[style])
    t.equal(got.status, 200, JSON.stringify(got.body))
    const turns = sent['messages'] as { role: string, content?: string, tool_calls?: Json[], tool_call_id?: string }[]
    const behind = turns.findLastIndex(({ role }) => role === 'tool') + 1
    t.match(turns.slice(0, 4), [{ role: 'user' }, { role: 'assistant', tool_calls: [{ id: 'a' }, { id: 'b' }] },
      { role: 'tool', tool_call_id: 'a' }, { role: 'tool', tool_call_id: 'b' }], `${style}: ${JSON.stringify(turns)}`)
    t.match(turns[1]!.content, /One.*Two.*Three/s, style)
    t.match(turns.slice(behind).map(({ content }) => content).join(' '), /^And\?\sGo on\./, style)
    const items = (await send(style, 'responses', bodies[style])).sent['input'] as Json[]
    t.strictSame(items.flatMap(({ type, call_id: id }) => type === 'message' ? [] : [[type, id]]).slice(0, 4),
      [['function_call', 'a'], ['function_call', 'b'], ['function_call_output', 'a'], ['function_call_output', 'b']], style)
  }
})

t.test('V17: thoughts are switched on and off by DeepSeek\'s and Z.ai\'s field', async (t) => {
  const off = { type: 'disabled' }
  const on = { type: 'enabled' }
  const sends = async (settings: Settings, dialect: Dialect, more: Json): Promise<Json> => {
    const body = { messages: hello, max_tokens: 4000, ...more }
    const { got, sent } = await (await world(t, settings)).send('chat', dialect, body)
    t.equal(got.status, 200, JSON.stringify(got.body))
    return sent
  }
  const budget = { model: ', thinking: budget' }
  const adaptive = { model: ', thinking: adaptive' }
  const listed = { ...budget, upstreams: { chat: ', chat: { fields: [thinking] }' } }
  t.strictSame((await sends(budget, 'messages', { thinking: on }))['thinking'], { type: 'enabled', budget_tokens: 2000 })
  t.strictSame((await sends(budget, 'messages', { thinking: on, reasoning_effort: 'high' }))['thinking'],
    { type: 'enabled', budget_tokens: 3200 })
  t.strictSame((await sends(adaptive, 'messages', { thinking: on }))['thinking'], { type: 'adaptive' })
  t.strictSame((await sends(budget, 'messages', { thinking: off }))['thinking'], off)
  t.equal((await sends(budget, 'chat', { thinking: off }))['reasoning_effort'], 'none')
  t.equal((await sends(budget, 'chat', { thinking: on }))['reasoning_effort'], 'medium')
  t.equal((await sends(budget, 'chat', { thinking: on, reasoning_effort: 'low' }))['reasoning_effort'], 'low')
  t.match((await sends(budget, 'responses', { thinking: off }))['reasoning'], { effort: 'none' })
  for (const thinking of [on, off, { ...on, budget_tokens: 2048 }]) {
    const sent = await sends(listed, 'chat', { thinking })
    t.strictSame([sent['thinking'], sent['reasoning_effort']], [thinking, undefined])
  }
})

t.test('V22: a chat client\'s max_completion_tokens keeps its name towards chat upstreams', async (t) => {
  const { send } = await world(t)
  const named = async (body: Json, of = send): Promise<readonly unknown[]> => {
    const { max_tokens: old, max_completion_tokens: made } = (await of('chat', 'chat', { messages: hello, ...body })).sent
    return [old, made]
  }
  t.strictSame(await named({ max_completion_tokens: 100 }), [undefined, 100])
  t.strictSame(await named({ max_tokens: 100 }), [100, undefined])
  t.strictSame(await named({ max_tokens: 50, max_completion_tokens: 100 }), [undefined, 100])
  const set = await world(t, { upstreams: { chat: ', chat: { max_tokens_field: max_tokens }' } })
  t.strictSame(await named({ max_completion_tokens: 100 }, set.send), [100, undefined], 'the operator\'s word wins')
})

t.test('T10: white space at the end of a last answer, and a conversation of system messages', async (t) => {
  const { send } = await world(t)
  const begun = (content: unknown): Json => ({ max_tokens: 100, messages: [...hello, { role: 'assistant', content }] })
  for (const content of ['{"a": \n', [{ type: 'text', text: '{"a": \n' }]]) {
    t.match((await send('chat', 'messages', begun(content))).sent['messages'], [{}, {
      content: typeof content === 'string' ? '{"a":' : [{ type: 'text', text: '{"a":' }] }])
    t.match((await send('chat', 'chat', begun(content))).sent['messages'], [{}, { content: '{"a": \n' }])
    t.match((await send('messages', 'messages', begun(content))).sent['messages'], [{}, { content }])
  }
  const system = [{ role: 'system', content: 'Be brief.' }, { role: 'developer', content: 'Greet.' }]
  for (const model of ['', ', mid_system: true']) {
    const { send: ask } = await world(t, { model })
    for (const [style, body] of [['chat', { messages: system, max_tokens: 100 }],
      ['responses', { input: system, max_output_tokens: 100 }]] as const) {
      const { got, sent } = await ask(style, 'messages', body)
      t.equal(got.status, 200, JSON.stringify(got.body))
      t.strictSame([sent['system'], sent['messages']], [[{ type: 'text', text: 'Be brief.' }],
        [{ role: 'user', content: [{ type: 'text', text: 'Greet.' }] }]], `${style}${model}`)
      t.strictSame((await ask(style, 'chat', body)).sent['messages'], [{ role: 'system', content: 'Be brief.\nGreet.' }])
      t.match((await ask(style, 'responses', body)).sent, { instructions: 'Be brief.',
        input: [{ role: 'developer', content: 'Greet.' }] })
    }
  }
  for (const body of [{ messages: [{ role: 'system', content: ' ' }] }, { messages: [{ role: 'user', content: '' }] }]) {
    t.match((await send('chat', 'messages', body)).got, { status: 400, body: { error: { param: 'messages' } } })
  }
})

for (const stream of [false, true]) {
  const how = stream ? 'stream' : 'JSON'
  t.test(`T10: after_tool: fold makes the user's words a part of the result before them, ${how}`, async (t) => {
    const { send } = await world(t, { upstreams: { chat: ', chat: { after_tool: fold }' } })
    const plain = await world(t)
    const image = { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } }
    const source = { type: 'base64', media_type: 'image/png', data: PNG }
    const bodies: Readonly<Record<Dialect, Json>> = {
      chat: { messages: [...hello, { role: 'assistant', content: null, tool_calls: [call('a', '{}'), call('b', '{}')] },
        { role: 'tool', tool_call_id: 'a', content: 'A' }, { role: 'tool', tool_call_id: 'b', content: 'B' },
        { role: 'user', content: 'Go on.' }, { role: 'assistant', content: null, tool_calls: [call('c', '{}')] },
        { role: 'tool', tool_call_id: 'c', content: 'C' },
        { role: 'user', content: [{ type: 'text', text: 'See:' }, image] }] },
      messages: { max_tokens: 100, messages: [...hello, { role: 'assistant', content: [use('a'), use('b')] },
        { role: 'user', content: [result('a', 'A'), result('b', 'B'), { type: 'text', text: 'Go on.' }] },
        { role: 'assistant', content: [use('c')] },
        { role: 'user', content: [result('c', 'C'), { type: 'text', text: 'See:' }, { type: 'image', source }] }] },
      responses: { input: [...hello, item('a', '{}'), item('b', '{}'),
        { type: 'function_call_output', call_id: 'a', output: 'A' },
        { type: 'function_call_output', call_id: 'b', output: 'B' }, { role: 'user', content: 'Go on.' },
        item('c', '{}'), { type: 'function_call_output', call_id: 'c', output: 'C' }, { role: 'user',
          content: [{ type: 'input_text', text: 'See:' }, { type: 'input_image', image_url: image.image_url.url }] }] }
    }
    for (const style of dialects) {
      const { got, sent } = await send(style, 'chat', { ...bodies[style], stream })
      t.equal(got.status, 200, JSON.stringify(got.body))
      t.strictSame((sent['messages'] as Json[]).slice(1).map(({ role, tool_call_id: id, content }) => [role, id, content]), [
        ['assistant', undefined, null], ['tool', 'a', 'A'], ['tool', 'b', 'B\n\nGo on.'], ['assistant', undefined, null],
        ['tool', 'c', [{ type: 'text', text: 'C' }, { type: 'text', text: 'See:' }, image]]
      ], style)
      t.strictSame(((await plain.send(style, 'chat', { ...bodies[style], stream })).sent['messages'] as Json[])
        .map(({ role }) => role), ['user', 'assistant', 'tool', 'tool', 'user', 'assistant', 'tool', 'user'], style)
    }
    const first = { messages: [{ role: 'user', content: 'One.' }, { role: 'user', content: 'Two.' }], max_tokens: 9 }
    t.strictSame((await send('messages', 'chat', { ...first, stream })).sent['messages'], first.messages,
      'without a result nothing is folded')
  })

  t.test(`T10: cache_control: true sends the marks to a chat upstream, ${how}`, async (t) => {
    const { send } = await world(t, { upstreams: { chat: ', chat: { cache_control: true }' } })
    const without = await world(t)
    const mark = { cache_control: EPHEMERAL }
    const text = (said: string): Json => ({ type: 'text', text: said, ...mark })
    const url = `data:image/png;base64,${PNG}`
    const body: Json = {
      max_tokens: 100,
      system: [{ type: 'text', text: 'Be brief.' }, text('Be kind.')],
      messages: [{ role: 'user', content: [text('Look.'), { type: 'image', ...mark,
        source: { type: 'base64', media_type: 'image/png', data: PNG } }] },
      { role: 'assistant', content: [text('I look.'), { ...use('a'), ...mark }] },
      { role: 'user', content: [{ ...result('a', 'A'), ...mark }, { type: 'text', text: 'Go on.' }] }],
      tools: [{ name: 'read', input_schema: schema }, { name: 'write', input_schema: schema, ...mark }]
    }
    const chat: Json = { messages: [
      { role: 'system', content: body['system'] },
      { role: 'user', content: [text('Look.'), { type: 'image_url', image_url: { url }, ...mark }] },
      { role: 'assistant', content: [text('I look.'), { ...use('a'), ...mark }] },
      { role: 'user', content: [{ ...result('a', 'A'), ...mark }, { type: 'text', text: 'Go on.' }] }],
    tools: [{ type: 'function', function: { name: 'read', parameters: schema } },
      { type: 'function', function: { name: 'write', parameters: schema }, ...mark }] }
    for (const [style, asked] of [['messages', body], ['chat', chat]] as const) {
      const { got, sent } = await send(style, 'chat', { ...asked, stream })
      t.equal(got.status, 200, JSON.stringify(got.body))
      t.match(sent['messages'], [
        { role: 'system', content: [{ type: 'text', text: 'Be brief.' }, text('Be kind.')] },
        { role: 'user', content: [text('Look.'), { type: 'image_url', image_url: { url }, ...mark }] },
        { role: 'assistant', content: [text('I look.')], tool_calls: [{ id: 'a', ...mark }] },
        { role: 'tool', tool_call_id: 'a', content: [text('A')] }, { role: 'user', content: 'Go on.' }
      ], style)
      t.strictSame((sent['tools'] as Json[]).map(({ cache_control: own }) => own), [undefined, EPHEMERAL], style)
      t.notMatch(JSON.stringify((await without.send(style, 'chat', { ...asked, stream })).sent), /cache_control/, style)
    }
    const breakpoint = { prompt_cache_breakpoint: { mode: 'explicit' } }
    const marked = await send('responses', 'chat', { stream, input: [
      { role: 'user', content: [{ type: 'input_text', text: 'Look.', ...breakpoint }] }, item('a', '{}'),
      { type: 'function_call_output', call_id: 'a', output: 'A' }], prompt_cache_key: 'k' })
    t.match(marked.sent['messages'], [{ content: [text('Look.')] }, {}, { role: 'tool', content: [text('A')] }],
      'a whole prompt is marked at its end')
    t.match((await send('messages', 'chat', { messages: hello, max_tokens: 9, stream, cache_control: EPHEMERAL }))
      .sent['messages'], [{ role: 'user', content: [text('Hello')] }])
  })

  t.test(`T10: marks are charged as written, for an hour only where all ask for it, ${how}`, async (t) => {
    const long = { cache_control: { type: 'ephemeral', ttl: '1h' } }
    const short = { cache_control: EPHEMERAL }
    const usage = { prompt_tokens: 1000, completion_tokens: 5, total_tokens: 1005,
      prompt_tokens_details: { cached_tokens: 0, cache_write_tokens: 900 } }
    const price = 'input: 1, output: 10, cache_write: 1.25, cache_write_1h: 2'
    for (const largeBody of [undefined, 1]) {
      const { send } = await world(t, { upstreams: { chat: ', chat: { cache_control: true }' }, price,
        answers: { chat: { ...ANSWERS.chat, usage } }, ...largeBody !== undefined && { largeBody } })
      for (const [first, second, left, nanos] of [
        [long, long, long, 1_950_000n], [long, short, short, 1_275_000n], [short, short, short, 1_275_000n]
      ] as const) {
        const { got, sent, cost } = await send('messages', 'chat', { max_tokens: 100, stream,
          system: [{ type: 'text', text: 'Be brief.', ...first }],
          messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello', ...second }] }] })
        t.equal(got.status, 200, JSON.stringify(got.body))
        t.match(sent['messages'], [{ content: [left] }, { content: [left] }])
        t.equal((sent['messages'] as { content: { cache_control: Json }[] }[])[0]!.content[0]!.cache_control['ttl'],
          left === long ? '1h' : undefined)
        t.equal(await cost(), nanos)
      }
    }
  })

  t.test(`V17: thoughts that a client of any style switches off are off at a chat upstream, ${how}`, async (t) => {
    const off = { type: 'disabled' }
    const bodies: Readonly<Record<Dialect, Json>> = { messages: { messages: hello, max_tokens: 4000, thinking: off },
      chat: { messages: hello, thinking: off }, responses: { input: 'Hello', reasoning: { effort: 'none' } } }
    for (const thinking of ['budget', 'adaptive']) {
      const model = `, thinking: ${thinking}`
      const listed = await world(t, { model, upstreams: { chat: ', chat: { fields: [thinking] }' } })
      const plain = await world(t, { model })
      const few = await world(t, { model, upstreams: { chat: ', chat: { efforts: [minimal, high] }' } })
      const both = async ({ send }: World, style: Dialect, body: Json): Promise<readonly unknown[]> => {
        const { got, sent } = await send(style, 'chat', { ...body, stream })
        t.equal(got.status, 200, JSON.stringify(got.body))
        return [sent['thinking'], sent['reasoning_effort']]
      }
      for (const style of dialects) {
        const about = `${style}, ${thinking}`
        t.strictSame(await both(listed, style, bodies[style]), [off, undefined], about)
        t.strictSame(await both(plain, style, bodies[style]), [undefined, 'none'], about)
        t.strictSame(await both(few, style, bodies[style]), [undefined, 'minimal'], about)
        const { sent } = await plain.send(style, 'responses', { ...bodies[style], stream })
        t.match(sent['reasoning'], { effort: 'none' }, about)
        t.strictSame((await plain.send(style, 'messages', { ...bodies[style], stream })).sent['thinking'], off, about)
      }
      const budget = { type: 'enabled', budget_tokens: 2048 }
      const asks = (more: Json): Json => ({ messages: hello, max_tokens: 4000, ...more })
      t.strictSame(await both(listed, 'messages', asks({ thinking: { ...budget, display: 'omitted' } })),
        [budget, 'medium'])
      t.strictSame(await both(listed, 'messages', asks({ thinking: { type: 'adaptive' } })), [{ type: 'enabled' }, undefined])
      t.strictSame(await both(few, 'messages', asks({ thinking: budget })), [undefined, 'high'])
      t.strictSame(await both(plain, 'messages', asks({})), [undefined, undefined])
    }
    const { send } = await world(t)
    t.equal((await send('messages', 'chat', { ...bodies.messages, stream })).sent['reasoning_effort'], undefined,
      'a model that never thinks is told nothing')
  })

  t.test(`V19: a file by its address goes to another target, or is refused with its place, ${how}`, async (t) => {
    const url = 'https://example.com/a.pdf'
    for (const largeBody of [undefined, 1]) {
      const { send } = await world(t, { ...largeBody !== undefined && { largeBody }, more: (price) => `
  - { id: both, provider: acme, created: 2025-01-01, context: 200000, max_output: 8192, accepts: [text, image],
    channels: { premium: { price: { ${price} }, targets: [{ upstream: chat, model: vendor, priority: 1 },
      { upstream: messages, model: vendor, priority: 2 }] } } }\n` })
      const system = [{ role: 'system', content: 'Be brief.' }, ...hello, { role: 'assistant', content: 'Yes.' }]
      const document = { type: 'document', source: { type: 'url', url } }
      const cases: readonly (readonly [Dialect, Json, string])[] = [
        ['messages', { max_tokens: 9, messages: [{ role: 'user', content: [{ type: 'text', text: 'Look' }, document] }] },
          'messages[0].content[1].source'],
        ['chat', { messages: [...system, { role: 'user', content: [{ type: 'document_url', document_url: url }] }] },
          'messages[3].content[0].document_url'],
        ['chat', { messages: [...system, { role: 'user', content: [{ type: 'file_url', file_url: { url } }] }] },
          'messages[3].content[0].file_url.url'],
        ['chat', { messages: [...system, { role: 'user', content: [document] }] }, 'messages[3].content[0].source.url'],
        ['responses', { instructions: 'Be brief.', input: [...system,
          { role: 'user', content: [{ type: 'input_text', text: 'Look' }, { type: 'input_file', file_url: url }] }] },
        'input[3].content[1].file_url']
      ]
      for (const [style, body, param] of cases) {
        const refused = await send(style, 'chat', { ...body, stream })
        const error = refused.got.body?.['error'] as { message: string, param?: string } | undefined
        t.equal(refused.got.status, 400, JSON.stringify(refused.got.body))
        t.equal(error?.param, style === 'messages' ? undefined : param, JSON.stringify(error))
        t.ok(error?.message.startsWith(`${param} is a file by its address`), JSON.stringify(error))
        const served = await send(style, 'both', { ...body, stream })
        t.equal(served.got.status, 200, JSON.stringify(served.got.body))
        t.match(JSON.stringify(served.sent['messages']), `"source":${JSON.stringify(document.source)}`)
      }
    }
  })
}

t.test('T10: the hold covers tokens that are written to a cache', async (t) => {
  const { send } = await world(t, { upstreams: { chat: ', chat: { cache_control: true }' }, credit: '0.0002',
    price: 'input: 1, output: 1, cache_write: 100' })
  const { got } = await send('messages', 'chat', { max_tokens: 10, messages: [{ role: 'user',
    content: [{ type: 'text', text: 'Hello', cache_control: EPHEMERAL }] }] })
  t.match(got, { status: 402, body: { error: { message: /may cost up to/ } } }, JSON.stringify(got.body))
})

t.test('T10: white space at the end and system messages alone, for clients of the Responses API and in streams', async (t) => {
  const { send } = await world(t)
  for (const stream of [false, true]) {
    const said = { input: [...hello, { role: 'assistant', content: 'Once \n' }], max_output_tokens: 100, stream }
    t.match((await send('responses', 'messages', said)).sent['messages'], [{}, { content: [{ text: 'Once' }] }])
    t.match((await send('responses', 'responses', said)).sent['input'], [{}, { content: 'Once \n' }])
    t.match((await send('responses', 'chat', said)).sent['messages'], [{}, { content: 'Once \n' }])
    const alone = { messages: [{ role: 'system', content: 'Be brief.' }], stream }
    t.match((await send('chat', 'messages', alone)).sent['messages'], [{ role: 'user', content: [{ text: 'Be brief.' }] }])
    t.match((await send('chat', 'chat', alone)).sent['messages'], [{ role: 'system', content: 'Be brief.' }])
    t.match((await send('chat', 'responses', alone)).sent['input'], [{ role: 'developer', content: 'Be brief.' }])
  }
})

t.test('V23: temperature goes alone to Claude 4.5 and later', async (t) => {
  for (const [vendors, hasBoth] of [['claude-3-5-sonnet-20241022', true], ['claude-sonnet-4-20250514', true],
    ['claude-sonnet-4-5', false], ['claude-haiku-4-5-20251001', false], ['anthropic/claude-opus-4.6', false],
    ['anthropic.claude-sonnet-4-5-20250929-v1:0', false], ['claude-sonnet-5', false], ['qwen-9', true]] as const) {
    const { send } = await world(t, { vendors: `"${vendors}"` })
    for (const style of ['messages', 'chat'] as const) {
      const body = { messages: hello, max_tokens: 100, temperature: 0.5, top_p: 0.9 }
      const { sent } = await send(style, 'messages', body)
      t.strictSame([sent['temperature'], sent['top_p']], [0.5, hasBoth ? 0.9 : undefined], `${vendors}, ${style}`)
      const { temperature: _, ...alone } = body
      t.equal((await send(style, 'messages', alone)).sent['top_p'], 0.9)
    }
  }
})

t.test('V25: a vendor that gets json_object needs no sentence of ours', async (t) => {
  const { send } = await world(t)
  const messages = [{ role: 'system', content: 'Answer in JSON.' }, ...hello]
  const chat = { messages, max_tokens: 100, response_format: { type: 'json_object' } }
  const responses = { input: hello, instructions: 'Answer in JSON.', max_output_tokens: 100,
    text: { format: { type: 'json_object' } } }
  t.match((await send('chat', 'messages', chat)).sent['system'], [{ text: 'Answer in JSON.' }, { text: /JSON object/ }])
  t.match((await send('chat', 'chat', chat)).sent, { response_format: { type: 'json_object' }, messages })
  t.match((await send('chat', 'responses', chat)).sent, { text: { format: { type: 'json_object' } },
    instructions: /^Answer in JSON\.$/ })
  t.match((await send('responses', 'responses', responses)).sent, { instructions: /^Answer in JSON\.$/ })
  t.match((await send('responses', 'chat', responses)).sent['messages'], [{ content: /JSON object/ }])
})

t.test('a history drawn by chance is understood for all dialects, or refused with its place', async (t) => {
  const { send } = await world(t)
  const id = fc.constantFrom('a', 'b')
  const text = fc.constantFrom('Yes.', ' ', '')
  const args = fc.constantFrom('{"path":"a"}', '{"a":', 'null', '[1]', '')
  const block = fc.oneof(text.map((said) => ({ type: 'text', text: said })),
    id.map((one) => ({ type: 'tool_result', tool_use_id: one, content: 'A' })),
    id.map((one) => ({ type: 'tool_use', id: one, name: 'read', input: {} })))
  const content = fc.oneof(text, fc.array(block, { maxLength: 3 }))
  const message = fc.oneof(
    fc.record({ role: fc.constantFrom('user', 'assistant', 'system'), content }),
    fc.record({ role: fc.constant('assistant'), content, tool_calls: fc.array(fc.tuple(id, args), { maxLength: 2 })
      .map((calls) => calls.map(([one, made]) => call(one, made))) }),
    id.map((one) => ({ role: 'tool', tool_call_id: one, content: 'A' })))
  let understood = 0
  // Nearly no long one is understood.
  const short = fc.array(message, { minLength: 1, maxLength: 1 })
  const histories = fc.oneof(short, short, fc.array(message, { maxLength: 6 }))
  await fc.assert(fc.asyncProperty(histories.filter(({ length }) => length > 0), async (messages) => {
    const results = await Promise.all(dialects.map(async (dialect) =>
      (await send('chat', dialect, { messages, max_tokens: 100 })).got))
    const told = results.map(({ status, body }) => [status, (body?.['error'] as Json | undefined)?.['param']])
    assert.deepEqual(told[1], told[0])
    assert.deepEqual(told[2], told[0])
    if (told[0]![0] === 200) understood++
    else assert.match(String(told[0]![1]), /^messages/)
  }), { numRuns: 150 })
  t.ok(understood > 0, `${understood} were understood`)
})

function call (id: string, text: string): { readonly id: string, readonly type: 'function',
  readonly function: { readonly name: string, readonly arguments: string } } {
  return { id, type: 'function', function: { name: 'read', arguments: text } }
}

function item (id: string, text: string): Json {
  return { type: 'function_call', call_id: id, name: 'read', arguments: text }
}

function use (id: string): Json {
  return { type: 'tool_use', id, name: 'read', input: {} }
}

function result (id: string, content: string): Json {
  return { type: 'tool_result', tool_use_id: id, content }
}
