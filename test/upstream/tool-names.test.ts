// Names of tools that vendors refuse: short ones for the vendor, everywhere in the request; the client gets its own.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { type DialectOf, dialectsOf } from '../../src/config/sections/dialects.ts'
import { VALID_NAME } from '../../src/translation/short-name.ts'
import { shortNames, withShortNames } from '../../src/upstream/dialects/tool-names.ts'
import { ask } from '../support/billing-client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { gateway, type GatewayTestOptions, KEY, yaml } from '../support/gateway.ts'
import { readAnswer } from '../support/read-answer.ts'
import { type Received, upstream } from '../support/upstream.ts'
import { answersWith } from '../support/vendor-calls.ts'

type Json = Readonly<Record<string, unknown>>
type Dialect = DialectOf<'text'>

const RUNS = Number(process.env['RUNS'] ?? 300)
const DIALECTS = dialectsOf('text')
const list = (value: unknown): readonly Json[] => Array.isArray(value) ? value as readonly Json[] : []
const record = (value: unknown): Json => (value ?? {}) as Json

const LONG = `mcp__a_server_with_a_long_name__${'find_'.repeat(12)}`
const SAME_BEGIN = `${LONG}by_name`
const DOTS = 'files.read'

interface Sent {
  readonly tools: readonly unknown[]
  readonly forced: unknown
  readonly calls: readonly unknown[]
}

/** The names in a request to a vendor: of its tools, of the one that must be called, and of the calls. */
function sentNames (dialect: Dialect, body: Json): Sent {
  const choice = record(body['tool_choice'])
  if (dialect === 'chat') {
    return { tools: list(body['tools']).map((tool) => record(tool['function'])['name']),
      forced: record(choice['function'])['name'],
      calls: list(body['messages']).flatMap((message) => list(message['tool_calls']))
        .map((call) => record(call['function'])['name']) }
  }
  const calls = dialect === 'messages' ? list(body['messages']).flatMap(({ content }) => list(content))
    .filter(({ type }) => type === 'tool_use') : list(body['input']).filter(({ type }) => type === 'function_call')
  return { tools: list(body['tools']).map(({ name }) => name), forced: choice['name'],
    calls: calls.map(({ name }) => name) }
}

const parameters = { type: 'object', properties: {} }

/** A client's request: tools, one of them forced, and calls of all of them. */
const asking: Readonly<Record<Style, (names: readonly string[]) => Json>> = {
  messages: (names) => ({
    tools: names.map((name) => ({ name, input_schema: parameters })), tool_choice: { type: 'tool', name: names[0] },
    messages: [{ role: 'user', content: 'Go.' },
      { role: 'assistant', content: names.map((name, i) => ({ type: 'tool_use', id: `id_${i}`, name, input: {} })) },
      { role: 'user', 
        content: names.map((_, i) => ({ type: 'tool_result', tool_use_id: `id_${i}`, content: 'done' })) }]
  }),
  chat: (names) => ({
    tools: names.map((name) => ({ type: 'function', function: { name, parameters } })),
    tool_choice: { type: 'function', function: { name: names[0] } },
    messages: [{ role: 'user', content: 'Go.' },
      { role: 'assistant', content: null, tool_calls: names.map((name, i) => ({ id: `id_${i}`, type: 'function',
        function: { name, arguments: '{}' } })) },
      ...names.map((_, i) => ({ role: 'tool', tool_call_id: `id_${i}`, content: 'done' }))]
  }),
  responses: (names) => ({
    tools: names.map((name) => ({ type: 'function', name, parameters })),
    tool_choice: { type: 'function', name: names[0] },
    input: [{ role: 'user', content: 'Go.' },
      ...names.map((name, i) => ({ type: 'function_call', call_id: `id_${i}`, name, arguments: '{}' })),
      ...names.map((_, i) => ({ type: 'function_call_output', call_id: `id_${i}`, output: 'done' }))]
  })
}

interface World {
  readonly url: string
  last (): Received
}

async function startWorld (t: Test, options: GatewayTestOptions, server: string): Promise<World> {
  const vendor = await upstream(t, ({ path, body }) => {
    const dialect = DIALECTS.find((one) => path.startsWith(`/${one}/`))!
    const names = sentNames(dialect, body!).tools as readonly string[]
    return answersWith[dialect](names.map((name, i) => ({ id: `call_${i}`, name })), body!['stream'] === true)
  })
  const text = yaml([]).replace(/upstreams:\n[^]*(?=accounts:)/, `upstreams:\n${DIALECTS.map((dialect) =>
    `  ${dialect}: { url: "${vendor.url}/${dialect}", dialect: ${dialect} }\n`).join('')}models:\n${DIALECTS.map((dialect) =>
    `  - { id: ${dialect}, provider: acme, created: 2025-01-01, context: 200000, max_output: 8192, channels: {
    premium: { price: { input: 1, output: 10 }, targets: [{ upstream: ${dialect}, model: v }] } } }\n`).join('')}`)
    .replace('server:\n', `server:\n${server}`)
  const { url } = await gateway(t, text, options)
  return { url, last: () => vendor.requests.at(-1)! }
}

for (const [where, options, server] of [
  ['on the loop', {}, ''],
  ['in threads', { largeBody: 1 }, ''],
  ['without the fast lanes', {}, '  fast_lane: off\n']
] as const) {
  t.test(`T3: long names, and names with dots (rule tool-names), ${where}`, async (t) => {
    const world = await startWorld(t, options, server)
    const names = [LONG, SAME_BEGIN, DOTS, 'plain']
    for (const style of styles) {
      for (const dialect of DIALECTS) {
        for (const stream of [true, false]) {
          const about = `a ${style} client, ${dialect}, ${stream ? 'streamed' : 'whole'}`
          const got = await ask(world.url + clientStyles[style].path, { ...asking[style](names), model: dialect, stream,
            ...(style === 'responses' ? { max_output_tokens: 2000 } : { max_tokens: 2000 }) },
          { headers: { authorization: `Bearer ${KEY}` } })
          t.equal(got.status, 200, `${about}: ${JSON.stringify(got.body ?? {}).slice(0, 300)}`)
          const { tools, forced, calls } = sentNames(dialect, world.last().body!)
          t.equal(new Set(tools).size, 4, about)
          t.ok(tools.every((name) => VALID_NAME.test(String(name))), `${about}: ${tools.join()}`)
          t.equal(tools[3], 'plain')
          t.equal(forced, tools[0], about)
          t.strictSame(calls, tools, about)
          t.strictSame(readAnswer(style, stream, got)?.calls.map(({ name }) => name), names, about)
        }
      }
    }
  })
}

const anyName = fc.oneof(fc.constantFrom(LONG, SAME_BEGIN, DOTS, 'plain', '\ud800', '\udbff', '__proto__',
  shortNames({ tools: [{ name: LONG }] }).get(LONG)!), fc.string({ minLength: 1, maxLength: 140, unit: 'binary' }),
fc.stringMatching(/^[\w.-]{1,100}$/))

t.test('T3: names of every length and alphabet: each has one of its own that all vendors take', (t) => {
  fc.assert(fc.property(fc.uniqueArray(anyName, { maxLength: 12 }), (names) => {
    const body = { tools: names.map((name) => ({ name })), messages: [{ role: 'assistant',
      content: names.map((name) => ({ type: 'tool_use', id: 'x', name, input: { name } })) }] }
    const short = shortNames(body)
    const sent = withShortNames(body)
    const all = list(sent.tools).map(({ name }) => String(name))
    const calls = list(list(sent.messages)[0]!['content'])
    return new Set(all).size === names.length && all.every((name) => VALID_NAME.test(name)) &&
      all.every((name, i) => VALID_NAME.test(names[i]!) ? name === names[i] : short.get(names[i]!) === name) &&
      calls.every(({ name, input }, i) => name === all[i] && record(input)['name'] === names[i])
  }), { numRuns: RUNS })
  t.end()
})

t.test('T3: everything that names a tool has its short name, and nothing else changes', (t) => {
  const short = shortNames({ tools: [{ name: DOTS }] }).get(DOTS)!
  const body = (name: string): Json => ({
    tools: [{ name, type: 'custom' }], tool_choice: { type: 'tool', name },
    messages: [{ role: 'user', content: DOTS }, { role: 'assistant', content: [{ type: 'text', text: DOTS },
      { type: 'tool_use', id: DOTS, name, input: { name: DOTS, content: [{ name: DOTS }] } }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: DOTS,
      content: [{ type: 'tool_reference', tool_name: name }, { type: 'text', text: DOTS }] }] },
    { role: 'system', content: [{ type: 'tool_addition', tool: { definition: { name } } },
      { type: 'tool_removal', tool: { name } }] }]
  })
  t.strictSame(withShortNames(body(DOTS)), body(short))
  const plain = body('plain')
  t.equal(withShortNames(plain), plain, 'the same object where nothing changes')
  t.end()
})
