// Names of properties that Anthropic refuses: others for the vendor, in schemas and in earlier calls; the client of
// another style gets its own.
import fc from 'fast-check'
import t from 'tap'
import { ask } from '../support/billing-client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { gateway, KEY, yaml } from '../support/gateway.ts'
import { readAnswer } from '../support/read-answer.ts'
import { json, raw, upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

const VALID = /^[a-zA-Z0-9_.-]{1,64}$/
const list = (value: unknown): readonly Json[] => Array.isArray(value) ? value as readonly Json[] : []
const record = (value: unknown): Json => (value ?? {}) as Json

/** Values in which names must stay as they are. */
const VALUES = ['a "quoted" $filter', { $filter: 1, 'page[size]': [{ $filter: '{' }] }, [], null, 'page[size]":{', 1.5]

function inputOf (names: readonly string[]): Json {
  return Object.fromEntries(names.map((name, i) => [name, VALUES[i % VALUES.length]]))
}

const asking: Readonly<Record<Style, (tool: string, names: readonly string[]) => Json>> = {
  messages: (tool, names) => ({
    tools: [{ name: tool, input_schema: schemaOf(names) }],
    messages: [{ role: 'user', content: 'Go.' },
      { role: 'assistant', content: [{ type: 'tool_use', id: 'i', name: tool, input: inputOf(names) }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'i', content: 'done' }] }]
  }),
  chat: (tool, names) => ({
    tools: [{ type: 'function', function: { name: tool, parameters: schemaOf(names) } }],
    messages: [{ role: 'user', content: 'Go.' },
      { role: 'assistant', content: null, tool_calls: [{ id: 'i', type: 'function',
        function: { name: tool, arguments: JSON.stringify(inputOf(names)) } }] },
      { role: 'tool', tool_call_id: 'i', content: 'done' }]
  }),
  responses: (tool, names) => ({
    tools: [{ type: 'function', name: tool, parameters: schemaOf(names) }],
    input: [{ role: 'user', content: 'Go.' },
      { type: 'function_call', call_id: 'i', name: tool, arguments: JSON.stringify(inputOf(names)) },
      { type: 'function_call_output', call_id: 'i', output: 'done' }]
  })
}

function schemaOf (names: readonly string[]): Json {
  return { type: 'object', properties: Object.fromEntries(names.map((name) => [name, { description: name }])),
    required: names.slice(1) }
}

/** The vendor calls the tool with the keys of its schema, in their order, in pieces of so many characters. */
function called (body: Json, size: number) {
  const [tool] = list(body['tools'])
  const keys = Object.keys(record(record(tool!['input_schema'])['properties']))
  const input = inputOf(keys)
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'v', stop_reason: 'tool_use',
    stop_sequence: null, usage: { input_tokens: 9, output_tokens: 2 } }
  const block = { type: 'tool_use', id: 'call_1', name: tool!['name'] }
  if (body['stream'] !== true) return json({ ...message, content: [{ ...block, input }] })
  const text = JSON.stringify(input, undefined, size % 3)
  const pieces = Array.from({ length: Math.ceil(text.length / size) }, (_, i) => text.slice(i * size, (i + 1) * size))
  const events: Json[] = [{ type: 'message_start', message: { ...message, content: [], stop_reason: null } },
    { type: 'content_block_start', index: 0, content_block: { ...block, input: {} } },
    ...pieces.map((partial_json) => ({ type: 'content_block_delta', index: 0,
      delta: { type: 'input_json_delta', partial_json } })),
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'tool_use', stop_sequence: null }, usage: { output_tokens: 2 } },
    { type: 'message_stop' }]
  return raw(events.map((one) => `event: ${String(one['type'])}\ndata: ${JSON.stringify(one)}\n\n`).join(''))
}

/** Keys of one escaped character: JSON.parse of Node 26.10 reads some of them as a backslash. */
const MISREAD = /^(?:["\\]|\p{Cc}|\p{Cs})$/u

const anyName = fc.oneof(
  fc.constantFrom('$filter', '_filter', 'page[size]', 'page_size_', 'StartTime<', 'StartTime>', 'StartTime_', '', 'a b',
    'ä', '""', '\\\\', 'a'.repeat(65), 'b'.repeat(64), '{', ',', 'x:y'),
  fc.string({ maxLength: 80 }), fc.stringMatching(/^[\w.-]{1,64}$/)
).filter((name) => name !== '__proto__' && !MISREAD.test(name))

for (const [where, options] of [['on the loop', {}], ['in threads', { largeBody: 1 }]] as const) {
  t.test(`T4: names of properties that Anthropic refuses (rule tool-schemas), ${where}`, async (t) => {
    let size = 1
    const vendor = await upstream(t, ({ body }) => called(body!, size))
    const text = yaml([]).replace(/upstreams:\n[^]*(?=accounts:)/, `upstreams:
  vendor: { url: "${vendor.url}", dialect: messages }
models:
  - { id: m, provider: acme, created: 2025-01-01, context: 200000, max_output: 8192, channels: {
    premium: { price: { input: 1, output: 10 }, targets: [{ upstream: vendor, model: v }] } } }
`)
    const { url } = await gateway(t, text, options)
    const anyNames = fc.uniqueArray(anyName, { minLength: 1, maxLength: 8 })
    const sizes = fc.integer({ min: 1, max: 40 })
    await fc.assert(fc.asyncProperty(anyNames, fc.constantFrom(...styles), fc.boolean(), sizes,
      fc.constantFrom('search', 'mcp.search.with.dots'),
      async (names, style, stream, pieces, tool) => {
        size = pieces
        const got = await ask(url + clientStyles[style].path, { ...asking[style](tool, names), model: 'm', stream,
          ...(style === 'responses' ? { max_output_tokens: 2000 } : { max_tokens: 2000 }) },
        { headers: { authorization: `Bearer ${KEY}` } })
        if (got.status !== 200) throw new Error(JSON.stringify(got.body))
        const { body } = vendor.requests.at(-1)!
        const [sent] = list(body!['tools'])
        const { properties, required } = record(sent!['input_schema'])
        const keys = Object.keys(record(properties))
        const call = list(body!['messages']).flatMap(({ content }) => list(content)).find(({ type }) => type === 'tool_use')
        const order = Object.keys(inputOf(names))
        // A client of the same style is the vendor's own, and gets the vendor's answer.
        const expected = style === 'messages' ? order : keys
        const isRight = style === 'messages' || keys.every((key, i) => VALID.test(key) &&
          (!VALID.test(order[i]!) || key === order[i]))
        if (!isRight || new Set(keys).size !== names.length) throw new Error(`sent: ${JSON.stringify(keys)}`)
        t.strictSame(Object.values(record(properties)).map((one) => record(one)['description']), order)
        t.strictSame(required ?? [], names.slice(1).map((name) => expected[order.indexOf(name)]))
        t.strictSame(Object.entries(record(call!['input'])),
          Object.entries(inputOf(names)).map(([name, value]) => [expected[order.indexOf(name)], value]))
        const [read] = readAnswer(style, stream, got)!.calls
        t.strictSame(Object.keys(record(read!.input)), order, JSON.stringify([style, stream, pieces]))
        t.strictSame(Object.values(record(read!.input)), Object.values(inputOf(keys)))
      }), { numRuns: Number(process.env['RUNS'] ?? 150) })
  })
}
