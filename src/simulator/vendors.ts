// What real vendors refuse, each with its status, its form of an error and its usual words. The directive `vendor=NAME`
// makes the simulator as strict as one of them; random suites ask all of them.
import type { Api, Asked } from './dialect.ts'
import { isObject, VendorError } from './dialect.ts'
import { UnknownDirective } from './faults.ts'
import { inBrackets, inDots, type Placed, type RequestView, viewOf } from './request-view.ts'
import {
  arrayWithoutItems, brokenArguments, calledNames, callIds, callsAtStart, callsWithoutThoughts, type Check,
  contentIsNull, emptyText, emptyTurn, endSpace, field, given, halfCharacter, ids, imageTypeNotIn, lastRoleNotIn,
  longer, names, notLike, openCalls, orphanedResult, propertyNotLike, propertyWithoutType, repeatedId,
  resultBehindOther, roleAfter, roleNotIn, rootCombines, rootHasNoProperties, rootIsNoObject, secondResult,
  together, toolNames, unknownFields, unknownInTurns, unpairedItem, withoutBeta
} from './vendor-checks.ts'

type Fields = Readonly<Record<string, unknown>>

/** What a vendor says about a value that breaks its rule. */
interface Said {
  readonly message: string
  readonly status?: number
  readonly type?: string
  readonly param?: string
  readonly code?: string
  /** in the place of the message, where it is no text */
  readonly detail?: unknown
}

export interface Rule {
  readonly name: string
  readonly check: Check
  says (found: Placed, request: RequestView): string | Said
}

export interface StrictVendor {
  readonly does: string
  readonly api: Api
  readonly rules: readonly Rule[]
  errorBody (said: Said, status: number, requestId: string): unknown
  readonly headers?: Readonly<Record<string, string>>
}

export class VendorRefusal extends VendorError {
  readonly said: Said
  readonly rule: string

  constructor (rule: string, said: Said) {
    super(said.status ?? 400, said.message)
    this.rule = rule
    this.said = said
  }
}

const rule = (name: string, check: Check, says: Rule['says']): Rule => ({ name, check, says })
const lengthOf = (value: unknown): number => String(value).length
const at = ({ path }: Placed): string => inBrackets(path)
const dots = ({ path }: Placed): string => inDots(path)

const SAMPLING = ['temperature', 'top_p', 'max_tokens', 'stop', 'n', 'presence_penalty', 'frequency_penalty']
const COMMON = ['model', 'messages', 'stream', 'tools', 'tool_choice', 'parallel_tool_calls', 'response_format',
  'reasoning_effort', ...SAMPLING]
const IMAGES = ['image/jpeg', 'image/png', 'image/gif', 'image/webp']
/** OpenAI's models that reason: they take other fields than those before. */
const REASONING = /^(?:gpt-5|o\d)/
/** Claude 4.5 and later. */
const ONE_OF_BOTH = /claude-(?:opus|sonnet|haiku)-(?:4[-.][5-9]|[5-9])/

// OpenAI, and those whose checks are its own.

const openaiSays = (message: string, found: Placed, code: string | null = null): Said =>
  ({ message, param: at(found), ...(code !== null && { code }) })

const tooLong = (name: string, most: number, check: Check): Rule => rule(name, check, (found) =>
  openaiSays(`Invalid '${at(found)}': string too long. Expected a string with maximum length ${most}, but got a string ` +
    `with length ${lengthOf(found.value)} instead.`, found, 'string_above_max_length'))

const unsupported = (name: string, instead = ''): Rule => rule(`${name} of a model that reasons`,
  given(name, REASONING, (value) => value === 1), (found) => openaiSays(
    `Unsupported parameter: '${at(found)}' is not supported with this model.${instead}`, found, 'unsupported_parameter'))

const halfJson = rule('half a character', halfCharacter, () => ({ message: 'We could not parse the JSON body of your ' +
  'request. (HINT: This likely means you aren\'t using your HTTP library correctly. The OpenAI API expects a JSON ' +
  'payload, but what was sent was not valid JSON.' }))

const schemaRules: readonly Rule[] = [
  rule('schema that combines others', rootCombines('oneOf', 'anyOf', 'allOf', 'enum', 'not'), (found) => openaiSays(
    `Invalid schema for function '${String(found.value)}': schema must have type 'object' and not have ` +
    '\'oneOf\'/\'anyOf\'/\'allOf\'/\'enum\'/\'not\' at the top level.', found, 'invalid_function_parameters')),
  rule('schema of no object', rootIsNoObject, (found) => openaiSays(`Invalid schema for function ` +
    `'${String(found.value)}': schema must be a JSON Schema of 'type: "object"', got 'type: "None"'.`, found,
  'invalid_function_parameters')),
  rule('schema without properties', rootHasNoProperties, (found) => openaiSays(`Invalid schema for function ` +
    `'${String(found.value)}': In context=(), object schema missing properties.`, found, 'invalid_function_parameters')),
  rule('array without items', arrayWithoutItems, (found) => openaiSays(`Invalid schema for function ` +
    `'${String(found.value)}': In context=('properties'), array schema missing items.`, found,
  'invalid_function_parameters'))
]

const nameRules: readonly Rule[] = [
  tooLong('long name', 64, longer(64, names)),
  rule('name with other signs', notLike(/^[\w-]+$/, names), (found) => openaiSays(`Invalid '${at(found)}': string does ` +
    'not match pattern. Expected a string that matches the pattern \'^[a-zA-Z0-9_-]+$\'.', found, 'invalid_value'))
]

const pairRules: readonly Rule[] = [
  rule('result without its call', orphanedResult, (found) => openaiSays('Invalid parameter: messages with role \'tool\' ' +
    'must be a response to a preceeding message with \'tool_calls\'.', { ...found, path: found.path.slice(0, -1) })),
  rule('call without its result', openCalls, (found) => openaiSays('An assistant message with \'tool_calls\' must be ' +
    'followed by tool messages responding to each \'tool_call_id\'. The following tool_call_ids did not have response ' +
    `messages: ${String(found.value)}`, found))
]

const openaiError: StrictVendor['errorBody'] = ({ message, type, param = null, code = null }, status) => ({ error: {
  message, type: type ?? typeOf(status), param, code } })

function typeOf (status: number): string {
  return status === 429 ? 'rate_limit_error' : status < 500 ? 'invalid_request_error' : 'server_error'
}

const CHAT_FIELDS = [...COMMON, 'audio', 'function_call', 'functions', 'logit_bias', 'logprobs', 'max_completion_tokens',
  'metadata', 'modalities', 'prediction', 'prompt_cache_key', 'prompt_cache_retention', 'safety_identifier', 'seed',
  'service_tier', 'store', 'stream_options', 'top_logprobs', 'user', 'verbosity', 'web_search_options']
const MESSAGE_FIELDS = ['role', 'content', 'name', 'tool_calls', 'tool_call_id', 'refusal', 'audio', 'function_call']

const chatRules: readonly Rule[] = [
  halfJson,
  rule('unknown field of a message', unknownInTurns(MESSAGE_FIELDS), (found) =>
    openaiSays(`Unknown parameter: '${at(found)}'.`, found, 'unknown_parameter')),
  unsupported('max_tokens', ' Use \'max_completion_tokens\' instead.'),
  unsupported('temperature'),
  unsupported('top_p'),
  tooLong('long id', 40, longer(40, ids)),
  tooLong('long user', 64, longer(64, field('user'))),
  ...nameRules, ...schemaRules, ...pairRules,
  rule('content null', contentIsNull, (found) =>
    openaiSays('Invalid value for \'content\': expected a string, got null.', found)),
  rule('type of an image', imageTypeNotIn(...IMAGES), (found) => openaiSays('You uploaded an unsupported image. Please ' +
    'make sure your image has of one the following formats: [\'png\', \'jpeg\', \'gif\', \'webp\'].', found,
  'invalid_image_format'))
]

// Anthropic, and those who host its models.

const MESSAGES_FIELDS = ['model', 'max_tokens', 'messages', 'system', 'metadata', 'stop_sequences', 'stream',
  'temperature', 'top_p', 'top_k', 'thinking', 'tools', 'tool_choice', 'output_config', 'cache_control', 'service_tier',
  'speed', 'container', 'inference_geo', 'diagnostics', 'mcp_servers', 'context_management', 'fallbacks', 'thread']
const EXTRA = 'Extra inputs are not permitted'

const dotted = (name: string, check: Check, words: string): Rule => rule(name, check, (found) =>
  `${dots(found)}: ${words}`)

const messagesRules: readonly Rule[] = [
  rule('half a character', halfCharacter, () => 'The request body is not valid JSON: no low surrogate in string: line 1 ' +
    'column 120 (char 119)'),
  dotted('unknown field', unknownFields(MESSAGES_FIELDS), EXTRA),
  dotted('context_management without its beta', withoutBeta('context_management', /context-management-/), EXTRA),
  dotted('defer_loading without its beta', withoutBeta('defer_loading', /advanced-tool-use-|tool-search-/), EXTRA),
  dotted('mcp_servers without its beta', withoutBeta('mcp_servers', /mcp-client-/), EXTRA),
  rule('temperature beside top_p', together('temperature', 'top_p', ONE_OF_BOTH), () =>
    '`temperature` and `top_p` cannot both be specified for this model. Please use only one.'),
  dotted('id with other signs', notLike(/^[\w-]+$/, ids), 'String should match pattern \'^[a-zA-Z0-9_-]+$\''),
  dotted('name with other signs', notLike(/^[\w-]{1,128}$/, toolNames),
    'String should match pattern \'^[a-zA-Z0-9_-]{1,128}$\''),
  dotted('long name of a call', longer(200, calledNames), 'String should have at most 200 characters'),
  dotted('schema that combines others', rootCombines('oneOf', 'anyOf', 'allOf'),
    'input_schema does not support oneOf, allOf, or anyOf at the top level'),
  rule('schema of no object', rootIsNoObject, (found) => `${dots(found)}.type: Input should be 'object'`),
  dotted('name of a property', propertyNotLike(/^[\w.-]{1,64}$/),
    'Property keys should match pattern \'^[a-zA-Z0-9_.-]{1,64}$\''),
  dotted('arguments that are no object', brokenArguments, 'Input should be a valid dictionary'),
  rule('repeated id', repeatedId, ({ path }) => `${inDots(path.slice(0, -2))}: \`tool_use\` ids must be unique`),
  rule('result without its call', orphanedResult, ({ path, value }) => `${inDots(path.slice(0, -2))}: unexpected ` +
    `\`tool_use_id\` found in \`tool_result\` blocks: ${String(value)}. Each \`tool_result\` block must have a ` +
    'corresponding `tool_use` block in the previous message.'),
  rule('second result', secondResult, ({ path, value }) => `${inDots(path.slice(0, -2))}: each tool_use must have a ` +
    `single result. Found multiple \`tool_result\` blocks with id: ${String(value)}`),
  rule('call without its result', openCalls, (found) => `${dots(found)}: \`tool_use\` ids were found without ` +
    `\`tool_result\` blocks immediately after: ${String(found.value)}. Each \`tool_use\` block must have a ` +
    'corresponding `tool_result` block in the next message.'),
  rule('text before results', resultBehindOther, ({ path }) => `${inDots(path)}: \`tool_use\` ids were found without ` +
    '`tool_result` blocks immediately after'),
  rule('empty text', emptyText, ({ value }) => value === '' ? 'messages: text content blocks must be non-empty'
    : 'messages: text content blocks must contain non-whitespace text'),
  dotted('empty turn', emptyTurn('user', 'assistant'),
    'all messages must have non-empty content except for the optional final assistant message'),
  rule('white space at the end', endSpace, () =>
    'messages: final assistant content cannot end with trailing whitespace'),
  dotted('type of an image', imageTypeNotIn(...IMAGES),
    'Input should be \'image/jpeg\', \'image/png\', \'image/gif\' or \'image/webp\''),
  rule('long user', (request) => {
    const { metadata } = request.body
    return longer(256, () => [{ path: ['metadata', 'user_id'], value: isObject(metadata) ? metadata['user_id'] : '' }])(
      request)
  }, (found) => `${dots(found)}: String should have at most 256 characters`)
]

// The Responses API.

const RESPONSES_FIELDS = ['model', 'input', 'instructions', 'stream', 'max_output_tokens', 'temperature', 'top_p',
  'reasoning', 'text', 'tools', 'tool_choice', 'parallel_tool_calls', 'include', 'store', 'previous_response_id',
  'conversation', 'background', 'prompt', 'context_management', 'truncation', 'max_tool_calls', 'metadata',
  'safety_identifier', 'user', 'prompt_cache_key', 'prompt_cache_options', 'prompt_cache_retention', 'service_tier',
  'stream_options', 'top_logprobs', 'moderation', 'client_metadata']

const responsesRules: readonly Rule[] = [
  halfJson,
  rule('unknown field', unknownFields(RESPONSES_FIELDS), (found) =>
    openaiSays(`Unknown parameter: '${at(found)}'.`, found, 'unknown_parameter')),
  unsupported('temperature'),
  unsupported('top_p'),
  tooLong('long id', 64, longer(64, ids)),
  tooLong('long user', 64, longer(64, field('safety_identifier'))),
  tooLong('long key of the cache', 64, longer(64, field('prompt_cache_key'))),
  ...nameRules, ...schemaRules,
  rule('result without its call', unpairedItem('result'), (found) => openaiSays('No tool call found for function call ' +
    `output with call_id ${String(found.value)}.`, { path: ['input'], value: found.value })),
  rule('call without its result', unpairedItem('call'), (found) => openaiSays('No tool output found for function call ' +
    `${String(found.value)}.`, { path: ['input'], value: found.value })),
  rule('type of an image', imageTypeNotIn(...IMAGES), (found) => openaiSays(`Invalid '${at(found)}'. Expected a valid ` +
    'URL, but got a value with an invalid format.', found, 'invalid_value'))
]

// The others of chat style.

const mistralOrder = (message: string): Said => ({ message, type: 'invalid_request_message_order', code: '3230' })
const mistralFields = ['model', 'messages', 'stream', 'tools', 'tool_choice', 'parallel_tool_calls', 'response_format',
  'reasoning_effort', ...SAMPLING, 'random_seed', 'metadata', 'prediction', 'prompt_mode', 'guardrails', 'safe_prompt',
  'prompt_cache_key']

function extraForbidden (found: Placed): Said {
  const problem = { type: 'extra_forbidden', loc: ['body', ...found.path], msg: EXTRA, input: found.value }
  return { message: `${dots(found)}: ${EXTRA}`, status: 422, detail: { detail: [problem] } }
}

const notDeserialized = (message: string): Said => ({ status: 422,
  message: `Failed to deserialize the JSON body into the target type: ${message} at line 1 column 120` })

const roleWords = (found: Placed): string => `${inBrackets(found.path)}: unknown variant \`${String(found.value)}\`, ` +
  'expected one of `system`, `user`, `assistant`, `tool`'

const GEMINI_PAIRS = 'Please ensure that the number of function response parts is equal to the number of function ' +
  'call parts of the function call turn.'

/** xAI's names for them are those of its own API. */
const camel = (name: string): string => name.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase())

const chatRoles = roleNotIn('system', 'user', 'assistant', 'tool')

export const strictVendors = {
  openai: { does: 'OpenAI, chat completions', api: 'chat', errorBody: openaiError, rules: [
    rule('unknown field', unknownFields(CHAT_FIELDS), (found) =>
      openaiSays(`Unknown parameter: '${at(found)}'.`, found, 'unknown_parameter')),
    ...chatRules
  ] },
  openai_responses: { does: 'OpenAI, the Responses API', api: 'responses', errorBody: openaiError,
    rules: responsesRules },
  anthropic: { does: 'Anthropic, the Messages API', api: 'messages', rules: messagesRules,
    errorBody: ({ message, type }, status, requestId) => ({ type: 'error', error: { type: type ?? (status < 500
      ? 'invalid_request_error' : 'api_error'), message }, request_id: requestId }) },
  azure: { does: 'Azure, chat completions', api: 'chat', errorBody: openaiError, rules: [
    rule('unknown field', unknownFields(CHAT_FIELDS), ({ path: [name] }) =>
      ({ message: `Unrecognized request argument supplied: ${name}` })),
    ...chatRules
  ] },
  bedrock: { does: 'Amazon Bedrock, the Messages API', api: 'messages',
    headers: { 'x-amzn-errortype': 'ValidationException' }, errorBody: ({ message }) => ({ message }), rules: [
      rule('long id', longer(64, ids), ({ path }) => `1 validation error detected: Value at '${inDots(path)}' failed ` +
        'to satisfy constraint: Member must have length less than or equal to 64'),
      rule('long name', longer(64, names), ({ path }) => `1 validation error detected: Value at '${inDots(path)}' ` +
        'failed to satisfy constraint: Member must have length less than or equal to 64'),
      ...messagesRules
    ] },
  gemini: { does: 'Gemini, its OpenAI endpoint', api: 'chat',
    errorBody: ({ message }, status) => [{ error: { code: status, message,
      status: status === 429 ? 'RESOURCE_EXHAUSTED' : status < 500 ? 'INVALID_ARGUMENT' : 'INTERNAL' } }],
    rules: [
      rule('unknown field', unknownFields(COMMON.filter((name) => !name.endsWith('_penalty')), ['max_completion_tokens',
        'stream_options', 'user', 'extra_body', 'safety_identifier']), ({ path: [name] }) =>
        `Invalid JSON payload received. Unknown name "${name}": Cannot find field.`),
      rule('half a character', halfCharacter, () => 'Invalid JSON payload received. Expected Unicode escape.'),
      rule('name', notLike(/^[a-z_][\w.-]{0,63}$/i, names), ({ path }) => '* GenerateContentRequest.tools[0].function_' +
        `declarations[${Number(path[1])}].name: Invalid function name. Must start with a letter or an underscore. ` +
        'Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.) or dashes (-), with a maximum length of 64.'),
      rule('calls without a question', callsAtStart, () => 'Please ensure that function call turn comes immediately ' +
        'after a user turn or after a function response turn.'),
      rule('result without its call', orphanedResult, () => GEMINI_PAIRS),
      rule('call without its result', openCalls, () => GEMINI_PAIRS)
    ] },
  mistral: { does: 'Mistral', api: 'chat',
    errorBody: ({ message, type, code = null, detail }, status) =>
      ({ object: 'error', message: detail ?? message, type: type ?? typeOf(status), param: null, code }),
    rules: [
      rule('unknown field', unknownFields(mistralFields), extraForbidden),
      rule('unknown field of a message', unknownInTurns(['role', 'content', 'tool_calls', 'tool_call_id', 'name',
        'prefix']), extraForbidden),
      rule('id', notLike(/^[a-z0-9]{9}$/i, ids), ({ value }) => ({ type: 'invalid_function_call', code: '3280',
        message: `Tool call id was ${String(value)} but must be a-z, A-Z, 0-9, with a length of 9.` })),
      rule('name', notLike(/^[\w-]{1,64}$/, names), ({ value }) => ({ type: 'invalid_function_call', code: '3280',
        message: `Function name was ${String(value)} but must be a-z, A-Z, 0-9, or contain underscores and dashes, ` +
          'with a maximum length of 64.' })),
      rule('user after tool', roleAfter('user', 'tool'), () =>
        mistralOrder('Unexpected role \'user\' after role \'tool\'')),
      rule('result without its call', orphanedResult, () =>
        mistralOrder('Unexpected role \'tool\' after role \'user\'')),
      rule('call without its result', openCalls, () =>
        mistralOrder('Not the same number of function calls and responses')),
      rule('empty answer', emptyTurn('assistant'), () => ({ type: 'invalid_request_assistant_message', code: '3240',
        message: 'Assistant message must have either content or tool_calls, but not none.' })),
      rule('last role', lastRoleNotIn('user', 'tool'), ({ value }) => mistralOrder('Expected last role User or Tool (or ' +
        `Assistant with prefix True) for serving but got ${String(value)}`))
    ] },
  deepseek: { does: 'DeepSeek', api: 'chat',
    errorBody: ({ message }, status) =>
      ({ error: { message, type: typeOf(status), param: null, code: typeOf(status) } }),
    rules: [
      rule('role', chatRoles, (found) => notDeserialized(roleWords(found))),
      ...nameRules, schemaRules[1]!,
      rule('result without its call', orphanedResult, () => 'Messages with role \'tool\' must be a response to a ' +
        'preceding message with \'tool_calls\''),
      rule('call without its result', openCalls, () => 'An assistant message with \'tool_calls\' must be followed by ' +
        'tool messages responding to each \'tool_call_id\'. (insufficient tool messages following tool_calls message)'),
      rule('calls without thoughts', callsWithoutThoughts('reasoning_content', ({ model, body: { thinking } }) =>
        isObject(thinking) ? thinking['type'] === 'enabled' : model === 'deepseek-reasoner'), ({ value }) =>
        `Missing \`reasoning_content\` field in the assistant message at message index ${String(value)}. For more ` +
        'information, please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls')
    ] },
  groq: { does: 'Groq', api: 'chat', errorBody: ({ message }, status) => ({ error: { message, type: typeOf(status) } }),
    rules: [
      rule('unknown field', unknownFields(CHAT_FIELDS, ['reasoning_format', 'include_reasoning', 'search_settings']),
        ({ path: [name] }) => `property '${name}' is unsupported`),
      rule('unknown field of a message', unknownInTurns([...MESSAGE_FIELDS, 'reasoning']), ({ path: [list, i, name] },
        { turns }) => `'${list}.${i}' : for 'role:${turns[Number(i)]!.role}' the following must be ` +
        `satisfied[('${list}.${i}' : property '${name}' is unsupported)]`),
      rule('role', chatRoles, ({ path: [list, i] }) => `'${list}.${i}' : discriminator property 'role' has invalid ` +
        'value'),
      rule('name', notLike(/^[\w-]{1,64}$/, toolNames), (found) => `'${dots(found)}' : value does not match pattern ` +
        '^[a-zA-Z0-9_-]{1,64}$')
    ] },
  xai: { does: 'xAI', api: 'chat',
    errorBody: ({ message }, status) => ({ code: status < 500 ? 'Client specified an invalid argument'
      : 'The service is currently unavailable', error: message }),
    rules: [
      ...['presence_penalty', 'frequency_penalty', 'stop'].map((name) => rule(`${name} of a model that reasons`,
        given(name, /^grok-(?:4|code)/), () =>
          `Argument not supported on this model: ${camel(name)}`)),
      rule('empty message', emptyTurn('user', 'assistant', 'tool'), () => 'An empty message was provided. Every message ' +
        'needs at least one non-empty content element.'),
      rule('arguments that are no object', brokenArguments, (found, request) => {
        const ids = callIds(request)
        const call = ids.find(({ path }) => inDots(path.slice(0, 4)) === inDots(found.path.slice(0, 4)))
        return `The arguments to a tool_call with ID '${String(call?.value)}' are not a valid JSON string. Parsing ` +
          'error: Error("EOF while parsing a value", line: 1, column: 0)'
      }),
      rule('role', chatRoles, (found) => notDeserialized(roleWords(found)))
    ] },
  moonshot: { does: 'Moonshot', api: 'chat',
    errorBody: ({ message }, status) => ({ error: { message, type: typeOf(status) } }),
    rules: [
      rule('name', notLike(/^[a-z][\w-]{0,63}$/i, names), () => 'Invalid request: function name is invalid, must start ' +
        'with a letter and can contain letters, numbers, underscores, and dashes'),
      rule('property without a type', propertyWithoutType, ({ value }) => 'Invalid request: tools.function.parameters ' +
        `is not a valid moonshot flavored json schema, details: <At path '${String(value)}': type is not defined>`),
      rule('result without its call', orphanedResult, () => 'Invalid request: tool_call_id  is not found'),
      rule('call without its result', openCalls, ({ value }) => 'Invalid request: an assistant message with ' +
        '\'tool_calls\' must be followed by tool messages responding to each \'tool_call_id\'. The following ' +
        `tool_call_ids did not have response messages: ${String(value)}`),
      rule('empty message', emptyTurn('user', 'assistant'), ({ path, value }) => 'Invalid request: the message at ' +
        `position ${String(path.at(-1))} with role '${String(value)}' must not be empty`)
    ] },
  vllm: { does: 'vLLM', api: 'chat',
    errorBody: ({ message }, status) => ({ error: { message, type: status < 500 ? 'BadRequestError'
      : 'InternalServerError', param: null, code: status } }),
    rules: [
      rule('arguments that are no object', brokenArguments, () => 'Unterminated string starting at: line 1 column 7 ' +
        '(char 6)'),
      rule('half a character', halfCharacter, () => '\'utf-8\' codec can\'t encode character \'\\ud83d\' in position ' +
        '0: surrogates not allowed')
    ] },
  openrouter: { does: 'OpenRouter, in front of OpenAI', api: 'chat',
    errorBody: (said, status, requestId) => ({ error: { message: 'Provider returned error', code: status, metadata: {
      raw: JSON.stringify(openaiError(said, status, requestId)), provider_name: 'OpenAI' } }, user_id: 'user_simulated' }),
    rules: [halfJson, tooLong('long id', 64, longer(64, ids)), ...nameRules, ...schemaRules, ...pairRules] }
} as const satisfies Record<string, StrictVendor>

export type VendorName = keyof typeof strictVendors

/** @throws {UnknownDirective} there is no such vendor */
export function vendorNamed (name: string): StrictVendor {
  if (Object.hasOwn(strictVendors, name)) return strictVendors[name as VendorName]
  throw new UnknownDirective(
    `the simulator does not know the vendor "${name}"; it knows ${Object.keys(strictVendors).join(', ')}`)
}

/** For `simulate --help`. */
export function vendorTable (): string {
  const width = Math.max(...Object.keys(strictVendors).map(({ length }) => length))
  return Object.entries<StrictVendor>(strictVendors).map(([name, { does }]) => `  ${name.padEnd(width)}  ${does}`)
    .join('\n')
}

/** @throws {VendorRefusal} the vendor refuses the request, with the words of the first rule that it breaks */
export function checkVendor (vendor: StrictVendor, api: Api, { body, headers }: Pick<Asked, 'body' | 'headers'>): void {
  if (api !== vendor.api) {
    throw new VendorRefusal('another API', { status: 404, message: `${vendor.does}: there is no such address` })
  }
  if (!isObject(body)) return
  const view = viewOf(api, body as Fields, headers)
  for (const { name, check, says } of vendor.rules) {
    const found = check(view)
    if (found === undefined) continue
    const said = says(found, view)
    throw new VendorRefusal(name, typeof said === 'string' ? { message: said } : said)
  }
}

/** An error in the form of the vendor. */
export function errorBodyOf (vendor: StrictVendor, error: VendorError, requestId: string): unknown {
  const said = error instanceof VendorRefusal ? error.said : { message: error.message }
  return vendor.errorBody(said, error.status, requestId)
}
