// Checks requests of the Responses API as its vendor does. Refusals have the vendor's wording.
import { isObject, VendorError } from './dialect.ts'
import type { Item, ResponsesMemory } from './responses-memory.ts'

type Fields = Readonly<Record<string, unknown>>

/** A refusal with the field that it is about, and the vendor's code. */
export class ResponsesRefusal extends VendorError {
  readonly code: string | null
  readonly param: string | null

  constructor (message: string, param: string | null = null, code: string | null = null, status = 400) {
    super(status, message)
    this.param = param
    this.code = code
  }
}

/** The official fields. */
const FIELDS = new Set(['model', 'input', 'instructions', 'stream', 'max_output_tokens', 'temperature', 'top_p',
  'reasoning', 'text', 'tools', 'tool_choice', 'parallel_tool_calls', 'include', 'store', 'previous_response_id',
  'conversation', 'background', 'prompt', 'context_management', 'truncation', 'max_tool_calls', 'metadata',
  'safety_identifier', 'user', 'prompt_cache_key', 'prompt_cache_options', 'prompt_cache_retention', 'service_tier',
  'stream_options', 'top_logprobs', 'moderation', 'client_metadata'])
const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max', null, undefined]
const SUMMARIES = ['auto', 'concise', 'detailed', null, undefined]
/** The vendor's smallest `max_output_tokens`. */
const LEAST_OUTPUT = 16

/** Calls, each with the type of what it is answered with. */
export const OUTPUT_OF: Readonly<Record<string, string>> = { function_call: 'function_call_output',
  custom_tool_call: 'custom_tool_call_output', tool_search_call: 'tool_search_output' }
const OUTPUTS = new Set(Object.values(OUTPUT_OF))

/** A request that was understood. */
export interface ResponsesRequest {
  readonly fields: Fields
  /** of the conversation so far too, and references resolved */
  readonly items: readonly Item[]
}

/** @throws {VendorError} */
export function checkResponses (body: unknown, memory: ResponsesMemory): ResponsesRequest {
  if (!isObject(body)) refuse('We could not parse the JSON body of your request.')
  for (const name of Object.keys(body)) {
    if (!FIELDS.has(name)) refuse(`Unknown parameter: '${name}'.`, name, 'unknown_parameter')
  }
  if (typeof body['model'] !== 'string' || body['model'] === '') {
    refuse('Missing required parameter: \'model\'.', 'model', 'missing_required_parameter')
  }
  const most = body['max_output_tokens'] ?? undefined
  if (most !== undefined && (!Number.isInteger(most) || (most as number) < LEAST_OUTPUT)) {
    refuse(`Invalid 'max_output_tokens': integer below minimum value. Expected a value >= ${LEAST_OUTPUT}, but got ` +
      `${String(most)} instead.`, 'max_output_tokens', 'integer_below_min_value')
  }
  const { temperature, reasoning, include } = body
  if (typeof temperature === 'number' && (temperature < 0 || temperature > 2)) {
    refuse('Invalid \'temperature\': decimal above maximum value. Expected a value <= 2.', 'temperature')
  }
  for (const name of ['stream', 'store', 'background', 'parallel_tool_calls']) checkFlag(body, name)
  for (const name of ['instructions', 'prompt_cache_key', 'safety_identifier', 'user', 'previous_response_id']) {
    checkText(body, name)
  }
  if (isObject(reasoning)) {
    if (!EFFORTS.includes(reasoning['effort'] as string)) invalid('reasoning.effort', reasoning['effort'])
    if (!SUMMARIES.includes(reasoning['summary'] as string)) invalid('reasoning.summary', reasoning['summary'])
  } else if (reasoning !== undefined && reasoning !== null) invalid('reasoning', reasoning)
  if (include !== undefined && include !== null && !Array.isArray(include)) invalid('include', include)
  checkFormat(body['text'])
  checkTools(body)
  return { fields: body, items: readInput(body, memory) }
}

function checkFlag (body: Fields, name: string): void {
  const value = body[name] ?? undefined
  if (value !== undefined && typeof value !== 'boolean') invalid(name, value)
}

function checkText (body: Fields, name: string): void {
  const value = body[name] ?? undefined
  if (value !== undefined && typeof value !== 'string') invalid(name, value)
}

function checkFormat (text: unknown): void {
  if (text === undefined || text === null) return
  if (!isObject(text)) invalid('text', text)
  const { format } = text
  if (format === undefined || format === null) return
  if (!isObject(format)) invalid('text.format', format)
  if (format['type'] === 'text' || format['type'] === 'json_object') return
  if (format['type'] !== 'json_schema') invalid('text.format.type', format['type'])
  if (!/^[\w-]{1,64}$/.test(String(format['name'] ?? ''))) {
    refuse('Missing required parameter: \'text.format.name\'.', 'text.format.name', 'missing_required_parameter')
  }
  if (!isObject(format['schema'])) {
    refuse('Missing required parameter: \'text.format.schema\'.', 'text.format.schema', 'missing_required_parameter')
  }
}

function checkTools ({ tools, tool_choice: choice }: Fields): void {
  if (tools !== undefined && tools !== null && !Array.isArray(tools)) invalid('tools', tools)
  const list: readonly unknown[] = Array.isArray(tools) ? tools : []
  for (const [index, tool] of list.entries()) checkTool(tool, `tools[${index}]`)
  if (choice === 'required' && list.length === 0) {
    refuse('Tool choice \'required\' must be specified with \'tools\' parameter.', 'tool_choice')
  }
  if (!isObject(choice)) {
    if (![undefined, null, 'none', 'auto', 'required'].includes(choice as string)) invalid('tool_choice', choice)
    return
  }
  if (choice['type'] !== 'function' && choice['type'] !== 'custom') return
  if (!list.some((tool) => isObject(tool) && tool['type'] === choice['type'] && tool['name'] === choice['name'])) {
    refuse(`Tool choice '${String(choice['type'])}' not found in 'tools' parameter.`, 'tool_choice')
  }
}

function checkTool (tool: unknown, at: string): void {
  if (!isObject(tool) || typeof tool['type'] !== 'string') {
    refuse(`Missing required parameter: '${at}.type'.`, `${at}.type`, 'missing_required_parameter')
  }
  const { type, name, parameters, strict, tools } = tool
  if (type !== 'function' && type !== 'custom' && type !== 'namespace') return       // the vendor's own
  if (typeof name !== 'string' || name === '') {
    refuse(`Missing required parameter: '${at}.name'.`, `${at}.name`, 'missing_required_parameter')
  }
  if (!/^[\w-]{1,64}$/.test(name)) {
    refuse(`Invalid '${at}.name': string does not match pattern. Expected a string that matches the pattern ` +
      '\'^[a-zA-Z0-9_-]+$\'.', `${at}.name`, 'invalid_value')
  }
  if (type === 'namespace') {
    if (!Array.isArray(tools)) invalid(`${at}.tools`, tools)
    for (const [index, member] of tools.entries()) checkTool(member, `${at}.tools[${index}]`)
  }
  if (type !== 'function') return
  if (parameters !== undefined && parameters !== null && !isObject(parameters)) invalid(`${at}.parameters`, parameters)
  // Unlike with chat completions a tool is strict unless it says otherwise.
  if (strict !== false && isObject(parameters) && parameters['additionalProperties'] !== false) {
    refuse(`Invalid schema for function '${name}': In context=(), 'additionalProperties' is required to be supplied ` +
      'and to be false.', `${at}.parameters`, 'invalid_function_parameters')
  }
}

/** @throws {VendorError} */
function readInput (body: Fields, memory: ResponsesMemory): readonly Item[] {
  const { input, previous_response_id: previous } = body
  const before = typeof previous === 'string' ? memory.response(previous) : []
  if (before === undefined) {
    refuse(`Previous response with id '${String(previous)}' not found.`, 'previous_response_id',
      'previous_response_not_found')
  }
  if (typeof input === 'string') return [...before, { type: 'message', role: 'user', content: input }]
  if (input === undefined || input === null) {
    refuse('Missing required parameter: \'input\'.', 'input', 'missing_required_parameter')
  }
  if (!Array.isArray(input) || input.length === 0) invalid('input', input)
  const items = [...before, ...input.map((item, index) => readItem(item, `input[${index}]`, memory))]
  checkPairs(items)
  checkReasoning(items)
  return items
}

function readItem (item: unknown, at: string, memory: ResponsesMemory): Item {
  if (!isObject(item)) refuse(`Invalid type for '${at}': expected an object.`, at, 'invalid_type')
  const { id, role } = item
  const type = item['type'] ?? (role === undefined ? 'item_reference' : 'message')
  const stored = typeof id === 'string' ? memory.item(id) : undefined
  if (type === 'item_reference') return stored ?? notStored(id, at)
  const isSealed = type === 'reasoning' && typeof item['encrypted_content'] === 'string'
  const isOwn = type !== 'message' || role === 'assistant'
  if (isOwn && !isSealed && id !== undefined && id !== null && stored === undefined) notStored(id, at)
  if (type === 'message') checkMessage(item, at)
  else if (type === 'reasoning') checkSealed(item, at, memory)
  else if (type === 'additional_tools') checkAdditional(item, at)
  else if (Object.hasOwn(OUTPUT_OF, String(type))) checkCall(item, String(type), at)
  else if (OUTPUTS.has(String(type))) checkOutput(item, String(type), at)
  else invalid(`${at}.type`, type)
  return { ...item, type }
}

function notStored (id: unknown, at: string): never {
  throw new ResponsesRefusal(
    `Item with id '${String(id)}' not found. Items are not persisted when \`store\` is set to false. Try again with ` +
      '`store` set to true, or remove this item from your input.', `${at}.id`, null, 404)
}

function checkMessage ({ role, content }: Item, at: string): void {
  if (!['user', 'assistant', 'system', 'developer'].includes(String(role))) invalid(`${at}.role`, role)
  if (typeof content === 'string') return
  if (!Array.isArray(content)) invalid(`${at}.content`, content)
  for (const [index, part] of content.entries()) checkPart(part, role === 'assistant', `${at}.content[${index}]`)
}

function checkPart (part: unknown, isAnswer: boolean, at: string): void {
  const { type, text, refusal, image_url: image, file_data: data, file_url: link, filename } = isObject(part)
    ? part
    : {}
  const wanted = isAnswer
    ? (type === 'output_text' && typeof text === 'string') || (type === 'refusal' && typeof refusal === 'string')
    : (type === 'input_text' && typeof text === 'string') ||
      (type === 'input_image' && /^(?:https?:\/\/|data:image\/(?:jpeg|png|gif|webp);base64,.)/.test(String(image))) ||
      (type === 'input_file' && (/^https?:/.test(String(link)) ||
        (String(data).startsWith('data:application/pdf;base64,') && typeof filename === 'string')))
  if (!wanted) invalid(at, type)
}

function checkSealed (
  { summary, encrypted_content: sealed, content }: Item,
  at: string,
  memory: ResponsesMemory
): void {
  if (!Array.isArray(summary)) {
    refuse(`Missing required parameter: '${at}.summary'.`, `${at}.summary`, 'missing_required_parameter')
  }
  if (Array.isArray(content) && content.length > 0) {
    refuse(`Invalid '${at}.content': array too long. Expected an array with maximum length 0.`, `${at}.content`)
  }
  if (typeof sealed === 'string' && memory.decrypt(sealed) === undefined) unverified(sealed)
}

/** @throws {VendorError} always: as for reasoning of another organization */
export function unverified (sealed: string): never {
  refuse(`The encrypted content ${sealed.slice(0, 4)}...${sealed.slice(-4)} could not be verified. Reason: Encrypted ` +
    'content could not be decrypted or parsed.', null, 'invalid_encrypted_content')
}

function checkAdditional ({ role, tools }: Item, at: string): void {
  if (role !== 'developer') invalid(`${at}.role`, role)
  if (!Array.isArray(tools)) invalid(`${at}.tools`, tools)
  for (const [index, tool] of tools.entries()) checkTool(tool, `${at}.tools[${index}]`)
}

function checkCall (item: Item, type: string, at: string): void {
  const wanted: Readonly<Record<string, string>> = type === 'function_call'
    ? { call_id: 'string', name: 'string', arguments: 'string' }
    : type === 'custom_tool_call'
    ? { call_id: 'string', name: 'string', input: 'string' }
    : { call_id: 'string', arguments: 'object' }
  for (const [name, kind] of Object.entries(wanted)) {
    if (typeof item[name] !== kind || item[name] === '') {
      if (name !== 'arguments' && name !== 'input') {
        refuse(`Missing required parameter: '${at}.${name}'.`, `${at}.${name}`, 'missing_required_parameter')
      }
      if (item[name] !== '') invalid(`${at}.${name}`, item[name])
    }
  }
}

function checkOutput (item: Item, type: string, at: string): void {
  const { call_id: id, output, tools } = item
  if (typeof id !== 'string' || id === '') {
    refuse(`Missing required parameter: '${at}.call_id'.`, `${at}.call_id`, 'missing_required_parameter')
  }
  if (type === 'tool_search_output') {
    if (!Array.isArray(tools)) invalid(`${at}.tools`, tools)
    return
  }
  if (typeof output === 'string') return
  if (!Array.isArray(output)) invalid(`${at}.output`, output)
  for (const [index, part] of output.entries()) checkPart(part, false, `${at}.output[${index}]`)
}

/** Each call has its output behind it, and each output its call before it. */
function checkPairs (items: readonly Item[]): void {
  const open = new Map<unknown, string>()
  const called = new Set<unknown>()
  for (const { type, call_id: id } of items) {
    const wanted = OUTPUT_OF[String(type)]
    if (wanted !== undefined) {
      open.set(id, wanted)
      called.add(id)
    } else if (OUTPUTS.has(String(type))) {
      if (!called.has(id)) {
        refuse(`No tool call found for ${wordsOf(String(type))} with call_id ${String(id)}.`, 'input')
      }
      open.delete(id)
    }
  }
  for (const [id, output] of open) {
    refuse(`No tool output found for ${wordsOf(output).replace(/ output$/, '')} ${String(id)}.`, 'input')
  }
}

function wordsOf (type: string): string {
  return type.replaceAll('_', ' ')
}

function checkReasoning (items: readonly Item[]): void {
  for (const [index, item] of items.entries()) {
    if (item['type'] !== 'reasoning') continue
    const next = items[index + 1]
    const follows = next !== undefined && (next['type'] === 'reasoning' || next['role'] === 'assistant' ||
      Object.hasOwn(OUTPUT_OF, String(next['type'])))
    if (!follows) {
      refuse(`Item '${String(item['id'] ?? '')}' of type 'reasoning' was provided without its required following item.`,
        'input')
    }
  }
}

function invalid (param: string, value: unknown): never {
  const given = typeof value === 'string' ? `'${value}'` : value === undefined ? 'nothing' : `${typeof value}`
  return refuse(`Invalid value for '${param}': got ${given}.`, param, 'invalid_value')
}

function refuse (message: string, param: string | null = null, code: string | null = null): never {
  throw new ResponsesRefusal(message, param, code)
}
