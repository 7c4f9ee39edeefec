// The rules of each vendor that the simulator knows: a request that breaks one of them is refused by it, one that
// breaks none is not. What is refused comes with the vendor's status and in its form.
import t from 'tap'
import type { Api } from '../../src/simulator/dialect.ts'
import { startSimulator } from '../../src/simulator/simulator.ts'
import { checkVendor, type StrictVendor, strictVendors, type VendorName, VendorRefusal } from '../../src/simulator/vendors.ts'

type Json = Readonly<Record<string, unknown>>
interface Example {
  readonly body: Json
  readonly headers?: Readonly<Record<string, string>>
}
type TextApi = Extract<Api, 'messages' | 'chat' | 'responses'>

const ID = 'call12345'
const schema = { type: 'object', properties: { day: { type: 'string' } } }
const user = { role: 'user', content: 'When does it leave?' }

const chatCall = (call: Json = {}, fields: Json = {}): Json => ({ role: 'assistant', content: null,
  tool_calls: [{ id: ID, type: 'function', function: { name: 'look', arguments: '{}', ...fields }, ...call }] })
const chatResult = (fields: Json = {}): Json => ({ role: 'tool', tool_call_id: ID, content: 'At nine.', ...fields })
const chatTool = (fields: Json = {}): Json => ({ type: 'function', function: { name: 'look', parameters: schema,
  ...fields } })
const chat = (...messages: readonly Json[]): Json => ({ model: 'm', messages, tools: [chatTool()] })

const use = (fields: Json = {}): Json => ({ role: 'assistant', content: [{ type: 'tool_use', id: ID, name: 'look',
  input: {}, ...fields }] })
const result = (fields: Json = {}): Json => ({ type: 'tool_result', tool_use_id: ID, content: 'At nine.', ...fields })
const answered = (fields: Json = {}): Json => ({ role: 'user', content: [result(fields)] })
const messagesTool = (fields: Json = {}): Json => ({ name: 'look', input_schema: schema, ...fields })
const messages = (...turns: readonly Json[]): Json => ({ model: 'm', max_tokens: 100, messages: turns,
  tools: [messagesTool()] })

const item = (fields: Json = {}): Json => ({ type: 'function_call', call_id: ID, name: 'look', arguments: '{}', ...fields })
const output = (fields: Json = {}): Json => ({ type: 'function_call_output', call_id: ID, output: 'At nine.', ...fields })
const responsesTool = (fields: Json = {}): Json => ({ type: 'function', name: 'look', parameters: schema, strict: false,
  ...fields })
const responses = (...input: readonly Json[]): Json => ({ model: 'm', input, tools: [responsesTool()], store: false })

const VALID: Readonly<Record<TextApi, Json>> = {
  chat: chat({ role: 'system', content: 'Be brief.' }, user, chatCall(), chatResult()),
  messages: messages(user, use(), answered()),
  responses: responses({ type: 'message', ...user }, item(), output())
}

const LONG = 'x'.repeat(300)
const image = (type: string): string => `data:${type};base64,AAAA`
const withSchema = (one: unknown): Partial<Record<TextApi, Json>> => ({
  chat: { ...VALID.chat, tools: [chatTool({ parameters: one })] },
  messages: { ...VALID.messages, tools: [messagesTool({ input_schema: one })] },
  responses: { ...VALID.responses, tools: [responsesTool({ parameters: one })] }
})
const withName = (name: string): Partial<Record<TextApi, Json>> => ({
  chat: { ...VALID.chat, tools: [chatTool({ name })] },
  messages: { ...VALID.messages, tools: [messagesTool({ name })] },
  responses: { ...VALID.responses, tools: [responsesTool({ name })] }
})
const withId = (id: string): Partial<Record<TextApi, Json>> => ({
  chat: chat(user, chatCall({ id }), chatResult({ tool_call_id: id })),
  messages: messages(user, use({ id }), answered({ tool_use_id: id })),
  responses: responses(item({ call_id: id }), output({ call_id: id }))
})
const everywhere = (fields: Json): Partial<Record<TextApi, Json>> => ({ chat: { ...VALID.chat, ...fields },
  messages: { ...VALID.messages, ...fields }, responses: { ...VALID.responses, ...fields } })
const reasoning = (fields: Json): Partial<Record<TextApi, Json>> => everywhere({ model: 'gpt-5.2', ...fields })
const grok = (fields: Json): Partial<Record<TextApi, Json>> => ({ chat: { ...VALID.chat, model: 'grok-4', ...fields } })

/** A request of each API that breaks a rule, by the name of the rule. */
const EXAMPLES: Readonly<Record<string, Partial<Record<TextApi, Json>>>> = {
  'unknown field': everywhere({ invented: 1 }),
  'unknown field of a message': { chat: chat({ ...user, invented: 1 }) },
  'half a character': everywhere({ metadata: { note: 'half \uD83D' } }),
  'context_management without its beta': { messages: { ...VALID.messages, context_management: { edits: [] } } },
  'defer_loading without its beta': { messages: { ...VALID.messages, tools: [messagesTool({ defer_loading: true })] } },
  'mcp_servers without its beta': { messages: { ...VALID.messages, mcp_servers: [] } },
  'temperature beside top_p': { messages: { ...VALID.messages, model: 'claude-sonnet-4-5', temperature: 1, top_p: 1 } },
  'max_tokens of a model that reasons': reasoning({ max_tokens: 100 }),
  'temperature of a model that reasons': reasoning({ temperature: 0.5 }),
  'top_p of a model that reasons': reasoning({ top_p: 0.5 }),
  'presence_penalty of a model that reasons': grok({ presence_penalty: 1 }),
  'frequency_penalty of a model that reasons': grok({ frequency_penalty: 1 }),
  'stop of a model that reasons': grok({ stop: ['.'] }),
  id: withId('call_1'),
  'long id': withId(LONG),
  'id with other signs': withId('functions.look:0'),
  'long user': { chat: { ...VALID.chat, user: LONG }, messages: { ...VALID.messages, metadata: { user_id: LONG } },
    responses: { ...VALID.responses, safety_identifier: LONG } },
  'long key of the cache': { responses: { ...VALID.responses, prompt_cache_key: LONG } },
  name: withName('1 look'),
  'long name': withName('look'.repeat(20)),
  'long name of a call': { messages: messages(user, use({ name: LONG }), answered()) },
  'name with other signs': withName('server.look'),
  'schema that combines others': withSchema({ ...schema, anyOf: [{ required: ['day'] }] }),
  'schema of no object': withSchema({ properties: {} }),
  'schema without properties': withSchema({ type: 'object' }),
  'array without items': withSchema({ type: 'object', properties: { days: { type: 'array' } } }),
  'name of a property': withSchema({ type: 'object', properties: { 'the day': { type: 'string' } } }),
  'property without a type': withSchema({ type: 'object', properties: { day: { description: 'any' } } }),
  'arguments that are no object': { chat: chat(user, chatCall({}, { arguments: '{"day":' }), chatResult()),
    messages: messages(user, use({ input: 'x' }), answered()) },
  'repeated id': { messages: messages(user, use(), answered(), use(), answered()) },
  'result without its call': { chat: chat(user, chatResult()), messages: messages(answered()),
    responses: responses(output()) },
  'second result': { messages: messages(user, use(), { role: 'user', content: [result(), result()] }) },
  'call without its result': { chat: chat(user, chatCall(), user), messages: messages(user, use(), user),
    responses: responses(item()) },
  'calls without a question': { chat: chat(chatCall(), chatResult()) },
  'text before results': { messages: messages(user, use(), { role: 'user', content: [{ type: 'text', text: 'x' },
    result()] }) },
  'empty text': { messages: messages({ role: 'user', content: [{ type: 'text', text: ' ' }] }) },
  'empty turn': { messages: messages({ role: 'user', content: [] }) },
  'empty message': { chat: chat({ role: 'user', content: '' }) },
  'empty answer': { chat: chat(user, { role: 'assistant', content: '' }, user) },
  'white space at the end': { messages: messages(user, { role: 'assistant', content: 'At ' }) },
  'content null': { chat: chat({ role: 'user', content: null }) },
  'type of an image': {
    chat: chat({ role: 'user', content: [{ type: 'image_url', image_url: { url: image('image/bmp') } }] }),
    messages: messages({ role: 'user', content: [{ type: 'image', source: { type: 'base64', media_type: 'image/bmp',
      data: 'AAAA' } }] }),
    responses: responses({ role: 'user', content: [{ type: 'input_image', image_url: image('image/bmp') }] })
  },
  role: { chat: chat({ role: 'developer', content: 'Be brief.' }, user) },
  'user after tool': { chat: chat(user, chatCall(), chatResult(), user) },
  'last role': { chat: chat(user, { role: 'assistant', content: 'At nine.' }) },
  'calls without thoughts': { chat: { ...VALID.chat, model: 'deepseek-reasoner' } }
}

function refusalOf (vendor: StrictVendor, { body, headers = {} }: Example): VendorRefusal | undefined {
  try {
    checkVendor(vendor, vendor.api, { body, headers })
    return undefined
  } catch (error) {
    if (error instanceof VendorRefusal) return error
    throw error
  }
}

for (const [name, vendor] of Object.entries<StrictVendor>(strictVendors)) {
  t.test(`${name} refuses what breaks one of its rules, and nothing else`, (t) => {
    const api = vendor.api as TextApi
    t.equal(refusalOf(vendor, { body: VALID[api] })?.message, undefined, 'a request that breaks none')
    for (const rule of vendor.rules) {
      const body = EXAMPLES[rule.name]?.[api]
      // Among the rules before it another one may find the same value: then it must be found without them.
      const refused = body && refusalOf({ ...vendor, rules: [rule] }, { body })
      t.equal(refused?.rule, rule.name, `${rule.name}: ${String(refused?.message)}`)
      t.notMatch(refused?.message ?? 'undefined', /undefined|NaN|\[object/, rule.name)
    }
    t.end()
  })
}

t.test('a field of a beta passes with the beta', (t) => {
  const headers = { 'anthropic-beta': 'context-management-2025-06-27,mcp-client-2025-11-20,advanced-tool-use-2025-11-20' }
  for (const name of ['context_management', 'defer_loading', 'mcp_servers']) {
    const { messages: body } = EXAMPLES[`${name} without its beta`]!
    t.equal(refusalOf(strictVendors.anthropic, { body: body!, headers }), undefined, name)
  }
  t.end()
})

const ERRORS: Readonly<Record<VendorName, readonly [rule: string, status: number, body: unknown]>> = {
  openai: ['long user', 400, { error: { message: 'Invalid \'user\': string too long. Expected a string with maximum ' +
    'length 64, but got a string with length 300 instead.', type: 'invalid_request_error', param: 'user',
  code: 'string_above_max_length' } }],
  openai_responses: ['call without its result', 400, { error: { message: `No tool output found for function call ${ID}.`,
    type: 'invalid_request_error', param: 'input', code: null } }],
  anthropic: ['white space at the end', 400, { type: 'error', error: { type: 'invalid_request_error',
    message: 'messages: final assistant content cannot end with trailing whitespace' } }],
  azure: ['unknown field', 400, { error: { message: 'Unrecognized request argument supplied: invented',
    type: 'invalid_request_error', param: null, code: null } }],
  bedrock: ['id with other signs', 400, { message: 'messages.1.content.0.tool_use.id: String should match pattern ' +
    '\'^[a-zA-Z0-9_-]+$\'' }],
  gemini: ['call without its result', 400, [{ error: { code: 400, status: 'INVALID_ARGUMENT', message: 'Please ' +
    'ensure that the number of function response parts is equal to the number of function call parts of the function ' +
    'call turn.' } }]],
  mistral: ['unknown field', 422, { object: 'error', message: { detail: [{ type: 'extra_forbidden',
    loc: ['body', 'invented'], msg: 'Extra inputs are not permitted', input: 1 }] }, type: 'invalid_request_error',
  param: null, code: null }],
  deepseek: ['role', 422, { error: { message: 'Failed to deserialize the JSON body into the target type: ' +
    'messages[0].role: unknown variant `developer`, expected one of `system`, `user`, `assistant`, `tool` at line 1 ' +
    'column 120', type: 'invalid_request_error', param: null, code: 'invalid_request_error' } }],
  groq: ['unknown field of a message', 400, { error: { message: '\'messages.0\' : for \'role:user\' the following must ' +
    'be satisfied[(\'messages.0\' : property \'invented\' is unsupported)]', type: 'invalid_request_error' } }],
  xai: ['presence_penalty of a model that reasons', 400, { code: 'Client specified an invalid argument',
    error: 'Argument not supported on this model: presencePenalty' }],
  moonshot: ['property without a type', 400, { error: { message: 'Invalid request: tools.function.parameters is not a ' +
    'valid moonshot flavored json schema, details: <At path \'properties.day\': type is not defined>',
  type: 'invalid_request_error' } }],
  vllm: ['arguments that are no object', 400, { error: { message: 'Unterminated string starting at: line 1 column 7 ' +
    '(char 6)', type: 'BadRequestError', param: null, code: 400 } }],
  openrouter: ['schema without properties', 400, { error: { message: 'Provider returned error', code: 400, metadata: {
    raw: JSON.stringify({ error: { message: 'Invalid schema for function \'look\': In context=(), object schema missing ' +
      'properties.', type: 'invalid_request_error', param: 'tools[0].function.parameters',
    code: 'invalid_function_parameters' } }), provider_name: 'OpenAI' } }, user_id: 'user_simulated' }]
}
const PATHS: Readonly<Record<TextApi, string>> = { messages: '/v1/messages', chat: '/v1/chat/completions',
  responses: '/v1/responses' }

t.test('a directive makes the simulator as strict as a vendor', async (t) => {
  const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0 })
  t.teardown(() => simulator.close())
  for (const [name, [rule, status, error]] of Object.entries(ERRORS) as [VendorName, (typeof ERRORS)[VendorName]][]) {
    const { api, headers }: StrictVendor = strictVendors[name]
    const post = (body: unknown): Promise<Response> => fetch(`${simulator.url}${PATHS[api as TextApi]}?sim=vendor=${name}`,
      { method: 'POST', body: JSON.stringify(body),
        headers: { authorization: 'Bearer k', 'anthropic-version': '2023-06-01' } })
    t.equal((await post(VALID[api as TextApi])).status, 200, `${name}: what breaks no rule`)
    const response = await post(EXAMPLES[rule]![api as TextApi])
    t.equal(response.status, status, name)
    const { request_id: _, ...body } = await response.json() as Json
    t.strictSame(Array.isArray(error) ? Object.values(body) : body, error, name)
    for (const [header, value] of Object.entries(headers ?? {})) t.equal(response.headers.get(header), value, header)
  }
  const unknown = await fetch(`${simulator.url}/v1/chat/completions?sim=vendor=acme`, { method: 'POST', body: '{}' })
  t.match(await unknown.text(), /does not know the vendor \\"acme\\"; it knows openai, /)
  const other = await fetch(`${simulator.url}/v1/messages?sim=vendor=mistral`, { method: 'POST', body: '{}' })
  t.equal(other.status, 404, 'an API that the vendor does not speak')
  t.match(await other.json(), { object: 'error' }, 'any error has the vendor\'s form')
})
