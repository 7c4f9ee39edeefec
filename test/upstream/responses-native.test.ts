// Clients of the Responses API at an upstream that speaks it too: what messages style has no words for goes there and
// comes back as it was said, and all that the gateway owns is the gateway's.
import t, { type Test } from 'tap'
import { startSimulator, type Simulator } from '../../src/simulator/simulator.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { fate } from '../support/client.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'

type Body = Readonly<Record<string, unknown>>

interface World {
  readonly gw: TestGateway
  readonly simulator: Simulator
}

async function world (t: Test, options = '', balance = '100', dialect = 'responses'): Promise<World> {
  const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0, keepBodyBytes: 1e6 })
  t.teardown(() => simulator.close())
  const text = yaml([simulator.url], '',
    'auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize')
    .replace('dialect: messages', `dialect: ${dialect}${options}`)
    .replace('opening_balance_usd: 100', `opening_balance_usd: ${balance}`)
    .replace('accepts: [text, image]', 'accepts: [text, image]\n    thinking: adaptive\n    structured_outputs: true')
  return { simulator, gw: await gateway(t, text, { isForgetful: true }) }
}

function respond (gw: TestGateway, body: Body): Promise<Got> {
  return ask(`${gw.url}/v1/responses`, { model: 'm1', store: false, ...body },
    { headers: { authorization: `Bearer ${KEY}` } })
}

/** The items of an answer, whole or of a stream. */
function itemsOf ({ body, events }: Got): readonly Body[] {
  const response = body ?? events.at(-1)!.data['response'] as Body
  return response['output'] as readonly Body[]
}

const lastBody = ({ requests }: Simulator): Body => requests.at(-1)!.body as Body

const GRAMMAR = { type: 'grammar', syntax: 'lark', definition: 'start: /.+/' }
const PATCH = { type: 'custom', name: 'apply_patch', description: 'Patches', format: GRAMMAR }
const LOOK = { type: 'function', name: 'look', description: 'Looks', strict: false,
  parameters: { type: 'object', properties: { at: { type: 'string' } } } }
const FILES = { type: 'namespace', name: 'fs', description: 'Files',
  tools: [{ ...LOOK, name: 'list' }, { ...PATCH, name: 'write' }] }
const TOOLS = [PATCH, FILES, LOOK, { type: 'web_search' }, { type: 'image_generation' },
  { type: 'tool_search', execution: 'client', description: 'Finds', parameters: LOOK.parameters }]

for (const stream of [false, true]) {
  const form = stream ? 'stream' : 'JSON'

  t.test(`${form}: tools go out as they were declared, and calls come back as they were made`, async (t) => {
    const { gw, simulator } = await world(t)
    const asking = { stream, tools: TOOLS, instructions: 'Be brief', service_tier: 'priority', store: true,
      prompt_cache_key: 'session', metadata: { a: 'b' }, safety_identifier: 'u1', max_output_tokens: 900,
      text: { verbosity: 'low' }, reasoning: { effort: 'high', summary: 'concise' } }
    const question = { role: 'user', content: '[[sim: tool_calls=4]] Patch “naïve” 🙂 "x"' }
    const first = await respond(gw, { ...asking, input: [question] })
    t.equal(first.headers['x-gateway-dropped-tools'], 'web_search, image_generation')
    const sent = lastBody(simulator)
    t.strictSame(sent['tools'], [PATCH, FILES, LOOK, { ...LOOK, name: 'tool_search', description: 'Finds' }])
    t.match(sent, { model: 'vendor-m1', store: false, include: ['reasoning.encrypted_content'],
      instructions: 'Be brief', text: { verbosity: 'low' }, reasoning: { effort: 'high', summary: 'concise' },
      safety_identifier: 'u1', prompt_cache_key: /^gw-/, max_output_tokens: 900 })
    for (const name of ['service_tier', 'metadata']) t.notOk(name in sent, name)

    const output = itemsOf(first)
    const text = 'Patch “naïve” 🙂 "x"'
    t.match(output, [{ type: 'reasoning', summary: [{ text: /^The user says/ }], encrypted_content: /^gwseal/ },
      { type: 'message' },
      { type: 'custom_tool_call', name: 'apply_patch', namespace: undefined, input: text, status: 'completed' },
      { type: 'function_call', name: 'list', namespace: 'fs', status: 'completed' },
      { type: 'custom_tool_call', name: 'write', namespace: 'fs', input: text },
      { type: 'function_call', name: 'look', namespace: undefined, arguments: JSON.stringify({ at: text }) }])
    if (stream) {
      const pieces = first.events.filter(({ event }) => event === 'response.custom_tool_call_input.delta')
      t.equal(pieces.map(({ data }) => data['delta']).join(''), text + text)
    }

    const calls = output.filter(({ call_id: id }) => id !== undefined)
    const next = await respond(gw, { ...asking, input: [question, ...output, ...calls.map(({ type, call_id: id }) =>
      ({ type: `${String(type)}_output`, call_id: id, output: `of ${String(type)}` }))] })
    t.match(itemsOf(next).at(-1), { content: [{ text: /“of custom_tool_call”.*“of function_call”/ }] })
    const own = (items: unknown): unknown => (items as Body[]).map(({ type, name, namespace, input, call_id: id }) =>
      ({ type, name, namespace, input, ...id !== undefined && { id } }))
    const input = lastBody(simulator)['input'] as Body[]
    t.strictSame(own(input.slice(3, 7)), own(calls), 'they are what the vendor said, under its own ids')
    t.strictSame(input.slice(7).map(({ type, call_id: id }) => [type, id]), calls.map(({ type, call_id: id }) =>
      [`${String(type)}_output`, id]))
    t.match(input[1], { type: 'reasoning', id: /^rs_/, encrypted_content: /^gAAAAAB/ })
    const { entries, openHolds } = await fate(gw, String(next.headers['x-request-id']))
    t.match([entries.length, entries[0]!.usage_source, openHolds], [1, 'provider', 0])
  })

  t.test(`${form}: for a vendor that knows functions alone`, async (t) => {
    const { gw, simulator } = await world(t, ', responses: { client_tools: functions }')
    const got = await respond(gw, { stream, tools: TOOLS, input: '[[sim: tool_calls=3]] Patch it' })
    t.match(lastBody(simulator)['tools'], [{ type: 'function', name: 'apply_patch' }, { type: 'function',
      name: 'fs__list' }, { name: 'fs__write' }, { name: 'look' }, { name: 'tool_search' }])
    t.match(itemsOf(got).slice(1), [{ type: 'custom_tool_call', name: 'apply_patch', input: 'Patch it' },
      { type: 'function_call', name: 'list', namespace: 'fs' },
      { type: 'custom_tool_call', name: 'write', namespace: 'fs' }])
  })
}

t.test('a tool that must be called, and the form of an answer', async (t) => {
  const { gw, simulator } = await world(t)
  const forced = await respond(gw, { tools: TOOLS, tool_choice: { type: 'custom', name: 'apply_patch' },
    input: 'Patch it' })
  t.match(lastBody(simulator)['tool_choice'], { type: 'custom', name: 'apply_patch' })
  t.match(itemsOf(forced), [{ type: 'custom_tool_call', name: 'apply_patch' }])
  const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'],
    additionalProperties: false }
  const format = { type: 'json_schema', name: 'place', schema, strict: true, description: 'A place' }
  const shaped = await respond(gw, { text: { format, verbosity: 'high' }, input: 'In Oslo' })
  t.strictSame(lastBody(simulator)['text'], { format, verbosity: 'high' })
  t.match(itemsOf(shaped), [{ content: [{ text: '{"city":"Oslo"}' }] }])
  await respond(gw, { reasoning: { effort: 'low' }, input: [{ role: 'user', content: 'Hello' },
    { type: 'configuration_update', reasoning: { effort: 'high', summary: 'detailed' } }] })
  t.strictSame(lastBody(simulator)['reasoning'], { effort: 'high', summary: 'detailed' })
  await respond(gw, { reasoning: { effort: 'low' }, input: 'Hello' })
  t.strictSame(lastBody(simulator)['reasoning'], { effort: 'low' }, 'no summary that nobody wants')
})

t.test('what goes out in the client\'s own words is held for', async (t) => {
  const { gw, simulator } = await world(t, '', '0.5')
  const long = 'word '.repeat(50_000)
  const closed = { type: 'object', properties: {}, additionalProperties: false }
  const format = { type: 'json_schema', name: 'place', schema: closed, strict: true }
  const strict = { ...LOOK, strict: true, parameters: closed }
  const bodies: readonly Body[] = [
    { text: { format: { ...format, description: long } } },
    { text: { format: { ...format, name: long } } },
    { text: { format: { ...format, schema: { ...closed, $comment: long } } } },
    { tools: [{ ...strict, parameters: { ...closed, $comment: long } }] }
  ]
  for (const body of bodies) {
    const refused = await respond(gw, { max_output_tokens: 16, ...body, input: 'In Oslo' })
    t.match(refused.body, { error: { code: 'insufficient_quota' } })
  }
  const forms = { response_format: { type: 'json_schema',
    json_schema: { name: 'place', schema: closed, strict: true, description: long } } }
  const chat = async (to: TestGateway, more: Body): Promise<void> => {
    const refused = await ask(`${to.url}/v1/chat/completions`, { model: 'm1', max_tokens: 16, ...more,
      messages: [{ role: 'user', content: 'In Oslo' }, ...more['messages'] as Body[] ?? []] },
    { headers: { authorization: `Bearer ${KEY}` } })
    t.match(refused.body, { error: { code: 'insufficient_quota' } })
  }
  await chat(gw, forms)
  t.equal(simulator.requests.length, 0)
  const other = await world(t, ', chat: { reasoning_field: reasoning_content }', '0.5', 'chat')
  await chat(other.gw, forms)
  const call = { id: 'c1', type: 'function', function: { name: 'look', arguments: '{}' } }
  await chat(other.gw, { messages: [{ role: 'assistant', reasoning_content: long, tool_calls: [call] },
    { role: 'tool', tool_call_id: 'c1', content: 'x' }], tools: [{ type: 'function', function: { name: 'look' } }] })
  t.equal(other.simulator.requests.length, 0)

  await respond(gw, { max_output_tokens: 16, text: { format }, tools: [strict, PATCH], input: 'In Oslo' })
  t.strictSame(lastBody(simulator)['text'], { format })
  const named = { ...LOOK, name: `look_${'word'.repeat(50)}` }
  const got = await respond(gw, { tools: [named], tool_choice: 'required', input: 'In Oslo' })
  t.match(lastBody(simulator)['tools'], [{ name: /^look_word[\w]{1,56}$/ }], 'a name that the vendor refuses stays short')
  t.match(itemsOf(got), [{ type: 'function_call', name: named.name }])
})

t.test('the least output that the vendor takes is held for, though a client asks for less', async (t) => {
  const needed = async (dialect: string, tokens: number): Promise<unknown> => {
    const { gw, simulator } = await world(t, '', '0.00001', dialect)
    const refused = await respond(gw, { max_output_tokens: tokens, input: 'Hi' })
    t.equal(simulator.requests.length, 0)
    const { code, message } = refused.body!['error'] as { readonly code: string, readonly message: string }
    t.equal(code, 'insufficient_quota')
    return message.replace(/ Request ID.*/, '')
  }
  const [ten, sixteen] = [await needed('responses', 10), await needed('responses', 16)]
  t.match(ten, /\d\.\d/, 'it says its numbers')
  t.equal(ten, sixteen)
  t.not(await needed('messages', 10), ten)
})

t.test('half a call is none, of either kind', async (t) => {
  const { gw } = await world(t)
  for (const stream of [false, true]) {
    for (const tool of [PATCH, LOOK]) {
      const got = await respond(gw, { stream, tools: [tool], max_output_tokens: 16, tool_choice: 'required',
        input: `[[sim: tool_calls=1]] ${'word '.repeat(30)}` })
      const response = got.body ?? got.events.at(-1)!.data['response'] as Body
      t.match(response, { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' }, output: [] },
        `${tool.type}, ${stream ? 'stream' : 'JSON'}`)
    }
  }
})
