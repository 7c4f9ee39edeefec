// Checks requests of the chat dialect as its vendors do, and translates them for the simulated model. Refusals have the
// vendors' wording.
import { isObject, VendorError } from './dialect.ts'
import type { Block, Message, MessagesBody } from './messages-body.ts'

type Fields = Readonly<Record<string, unknown>>

/** The official fields that cost nothing, and those of vLLM and its like. */
const fields = new Set([
  'model',
  'messages',
  'max_tokens',
  'max_completion_tokens',
  'temperature',
  'top_p',
  'stop',
  'seed',
  'presence_penalty',
  'frequency_penalty',
  'logit_bias',
  'n',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'response_format',
  'reasoning_effort',
  'user',
  'stream',
  'stream_options',
  'top_k',
  'min_p',
  'repetition_penalty',
  'chat_template_kwargs'
])

/** @throws {VendorError} */
export function checkKey (headers: Fields, key: string | undefined): void {
  const given = /^Bearer +([^ ].*)$/i.exec(String(headers['authorization'] ?? ''))?.[1] ?? headers['x-api-key']
  if (given === undefined || given === '') throw new VendorError(401, 'You didn\'t provide an API key.')
  if (key !== undefined && given !== key) throw new VendorError(401, `Incorrect API key provided: ${String(given)}.`)
}

/** @param isOpen whether fields that are unknown here pass @throws {VendorError} */
export function checkChat (body: unknown, isOpen = false): Fields {
  if (!isObject(body)) refuse('We could not parse the JSON body of your request.')
  for (const name of isOpen ? [] : Object.keys(body)) {
    if (!fields.has(name)) refuse(`Unrecognized request argument supplied: ${name}`)
  }
  if (typeof body['model'] !== 'string' || body['model'] === '') refuse('you must provide a model parameter')
  if (body['max_tokens'] !== undefined && body['max_completion_tokens'] !== undefined) {
    refuse('Setting \'max_tokens\' and \'max_completion_tokens\' at the same time is not supported.')
  }
  const most = body['max_completion_tokens'] ?? body['max_tokens']
  if (most !== undefined && (!Number.isInteger(most) || (most as number) < 1)) {
    refuse('Invalid \'max_tokens\': integer below minimum value. Expected a value >= 1.')
  }
  const { temperature, stop, stream_options: options } = body
  if (temperature !== undefined && (typeof temperature !== 'number' || temperature < 0 || temperature > 2)) {
    refuse('Invalid \'temperature\': Expected a value between 0 and 2.')
  }
  if (Array.isArray(stop) && stop.length > 4) {
    refuse(
      `Invalid 'stop': array too long. Expected an array with maximum length 4, ` +
      `but got an array with length ${stop.length} instead.`
    )
  }
  if (options !== undefined && body['stream'] !== true) {
    refuse('The \'stream_options\' parameter is only allowed when \'stream\' is enabled.')
  }
  checkTools(body)
  checkMessages(body['messages'])
  return body
}

function checkTools ({ tools, tool_choice: choice, parallel_tool_calls: parallel }: Fields): void {
  const list: unknown[] = Array.isArray(tools) ? tools : []
  if (tools !== undefined && list.length === 0) {
    refuse('Invalid \'tools\': empty array. Expected an array with minimum length 1.')
  }
  for (const [index, tool] of list.entries()) {
    const named = isObject(tool) ? tool['function'] : undefined
    if (!isObject(tool) || tool['type'] !== 'function' || !isObject(named)) {
      refuse(`Missing required parameter: 'tools[${index}].function'.`)
    }
    if (typeof named['name'] !== 'string' || !/^[\w-]{1,64}$/.test(named['name'])) {
      refuse(`Invalid 'tools[${index}].function.name'.`)
    }
    if (named['parameters'] !== undefined && !isObject(named['parameters'])) {
      refuse(`Invalid type for 'tools[${index}].function.parameters'.`)
    }
  }
  if (list.length > 0) return
  if (choice !== undefined) {
    refuse('Invalid value for \'tool_choice\': \'tool_choice\' is only allowed when \'tools\' are specified.')
  }
  if (parallel !== undefined) {
    refuse(
      'Invalid value for \'parallel_tool_calls\': \'parallel_tool_calls\' is only allowed when \'tools\' are specified.'
    )
  }
}

function checkMessages (messages: unknown): void {
  if (!Array.isArray(messages) || messages.length === 0) {
    refuse('Invalid \'messages\': empty array. Expected an array with minimum length 1.')
  }
  let open: string[] = []
  for (const [index, message] of messages.entries()) {
    const at = `messages[${index}]`
    if (!isObject(message)) refuse(`Invalid type for '${at}'.`)
    const { role, content } = message
    if (role === 'tool') {
      const id = String(message['tool_call_id'])
      if (!open.includes(id)) {
        refuse(
          `Invalid parameter: messages with role 'tool' must be a response to a preceeding message with ` +
          `'tool_calls': ${id}.`
        )
      }
      open = open.filter((one) => one !== id)
    } else if (open.length > 0) refuse(
      `An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. ` +
      `The following tool_call_ids did not have response messages: ${open.join(', ')}`
    )
    if (role === 'assistant') open = checkAnswer(message, at)
    else if (role !== 'tool' && role !== 'system' && role !== 'user') refuse(
      `Invalid value: '${String(role)}'. Supported values are: 'system', 'assistant', 'user', and 'tool'.`
    )
    else checkContent(content, role === 'user', `${at}.content`)
  }
  if (open.length > 0) {
    refuse(
      `An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. ` +
      `The following tool_call_ids did not have response messages: ${open.join(', ')}`
    )
  }
}

/** @returns the ids of its calls */
function checkAnswer ({ content, tool_calls: calls }: Fields, at: string): string[] {
  if (content !== null) checkContent(content, false, `${at}.content`)
  if (calls === undefined) {
    if (content === null) refuse(`Invalid value for '${at}.content': expected a string, got null.`)
    return []
  }
  if (!Array.isArray(calls) || calls.length === 0) refuse(`Invalid '${at}.tool_calls': empty array.`)
  return calls.map((call: Fields, index) => {
    const named = call['function']
    if (
      typeof call['id'] !== 'string' || call['type'] !== 'function' || !isObject(named) ||
      typeof named['name'] !== 'string'
    ) refuse(`Missing required parameter: '${at}.tool_calls[${index}]'.`)
    if (typeof named['arguments'] !== 'string') {
      refuse(`Invalid type for '${at}.tool_calls[${index}].function.arguments': expected a string.`)
    }
    return call['id']
  })
}

function checkContent (content: unknown, mayShow: boolean, at: string): void {
  if (typeof content === 'string') return
  if (!Array.isArray(content)) refuse(`Invalid type for '${at}': expected one of a string or array of objects.`)
  for (const [index, part] of content.entries()) {
    const { type, text, image_url: image, file } = isObject(part) ? part : {}
    const isText = type === 'text' && typeof text === 'string'
    const isImage = mayShow && type === 'image_url' && isObject(image) &&
      /^(?:https?:\/\/|data:image\/(?:jpeg|png|gif|webp);base64,.)/.test(String(image['url']))
    const isFile = mayShow && type === 'file' && isObject(file) &&
      String(file['file_data']).startsWith('data:application/pdf;base64,')
    if (!isText && !isImage && !isFile) refuse(`Invalid value: '${at}[${index}]'.`)
  }
}

/** In the terms of the simulated model, which is in messages style. */
export function toModel (body: Fields): MessagesBody {
  const messages: Message[] = []
  const system: Block[] = []
  for (const message of body['messages'] as readonly Fields[]) {
    const { role, content } = message
    if (role === 'system') { system.push(...blocksIn(content)) }
    else if (role === 'assistant') {
      messages.push({ role,
        content: [...blocksIn(content),
          ...(message['tool_calls'] as readonly Fields[] | undefined ?? []).map(callBlock)] })
    } else {
      const blocks = role === 'tool'
        ? [{ type: 'tool_result', tool_use_id: message['tool_call_id'], content: blocksIn(content) }]
        : blocksIn(content)
      const last = messages.at(-1)
      if (last?.role === 'user') {
        messages[messages.length - 1] = { role: 'user', content: [...last.content as Block[], ...blocks] }
      } else { messages.push({ role: 'user', content: blocks }) }
    }
  }
  const { stop, tools, response_format: format, reasoning_effort: effort } = body
  const { type: form, json_schema: named } = isObject(format) ? format : {}
  const schema = isObject(named) ? named['schema'] : undefined
  return {
    model: String(body['model']),
    max_tokens: Number(body['max_completion_tokens'] ?? body['max_tokens'] ?? 4096),
    messages,
    system,
    stop_sequences: typeof stop === 'string' ? [stop] : stop as string[] | undefined ?? [],
    tools: (tools as readonly { readonly function: Fields }[] | undefined ?? [])
      .map(({ function: { name, description, parameters } }) =>
        ({ name: String(name), description, input_schema: parameters ?? {} })),
    ...choiceOf(body['tool_choice']),
    ...(typeof form === 'string' && { output_config: { format: { type: form, schema } } }),
    ...(effort !== undefined && effort !== 'none' && { thinking: { type: 'adaptive' as const } })
  }
}

function choiceOf (choice: unknown): Pick<MessagesBody, 'tool_choice'> {
  if (isObject(choice)) {
    return {
      tool_choice: { type: 'tool', name: String((choice['function'] as Fields)['name']) }
    }
  }
  return choice === 'none' || choice === 'auto'
    ? { tool_choice: { type: choice } }
    : choice === 'required'
    ? { tool_choice: { type: 'any' } }
    : {}
}

function blocksIn (content: unknown): Block[] {
  if (content === null || content === '') return []
  if (typeof content === 'string') return [{ type: 'text', text: content }]
  return (content as readonly Fields[]).map((part) =>
    part['type'] === 'text'
      ? { type: 'text', text: part['text'] }
      : { type: part['type'] === 'file' ? 'document' : 'image' }
  )
}

function callBlock ({ id, function: named }: Fields): Block {
  const { name, arguments: given } = named as Fields
  return { type: 'tool_use', id, name, input: inputIn(String(given)) }
}

/** Arguments of a history may be cut. */
function inputIn (text: string): unknown {
  try {
    return JSON.parse(text === '' ? '{}' : text)
  } catch {
    return {}
  }
}

function refuse (message: string): never {
  throw new VendorError(400, message)
}
