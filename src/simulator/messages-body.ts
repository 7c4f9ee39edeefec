// Checks requests of the messages dialect as the vendor does. Refusals have the vendor's wording.
import { isObject, VendorError } from './dialect.ts'

export interface CacheControl {
  readonly type: 'ephemeral'
  readonly ttl?: '5m' | '1h'
}

/** A content block; which other fields it has depends on the type. */
export interface Block {
  readonly type: string
  readonly cache_control?: CacheControl | null
  readonly [field: string]: unknown
}

export interface Message {
  readonly role: 'user' | 'assistant' | 'system'
  readonly content: string | readonly Block[]
}

export interface Tool {
  readonly name: string
  readonly input_schema?: unknown
  readonly cache_control?: CacheControl | null
  readonly [field: string]: unknown
}

export interface MessagesBody {
  readonly model: string
  readonly max_tokens: number
  readonly messages: readonly Message[]
  readonly system?: string | readonly Block[]
  readonly stream?: boolean
  readonly stop_sequences?: readonly string[]
  readonly thinking?: { readonly type: 'enabled' | 'adaptive' | 'between_tools' | 'disabled',
    readonly budget_tokens?: number, readonly display?: string | null }
  readonly tools?: readonly Tool[]
  readonly tool_choice?: { readonly type: 'auto' | 'any' | 'tool' | 'none', readonly name?: string }
  readonly output_config?: { readonly format?: { readonly type: string, readonly schema?: unknown } | null }
  readonly cache_control?: CacheControl | null
  readonly context_management?: unknown
}

const fields = new Set([
  'model',
  'max_tokens',
  'messages',
  'system',
  'metadata',
  'stop_sequences',
  'stream',
  'temperature',
  'top_p',
  'top_k',
  'thinking',
  'tools',
  'tool_choice',
  'output_config',
  'cache_control',
  'service_tier',
  'speed',
  'container',
  'inference_geo',
  'diagnostics',
  'mcp_servers',
  'context_management',
  'fallbacks',
  'thread'
])
const versions = ['2023-01-01', '2023-06-01', '2026-10-21']
const mediaTypes = ['image/jpeg', 'image/png', 'image/gif', 'image/webp']

/** @throws {VendorError} */
export function checkHeaders (
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
  key: string | undefined,
  betas: readonly string[] | undefined
): void {
  // With both headers the vendor looks at x-api-key only.
  const given = headers['x-api-key'] ?? /^Bearer +([^ ].*)$/i.exec(String(headers['authorization'] ?? ''))?.[1]
  if (given === undefined || given === '') throw new VendorError(401, 'x-api-key header is required')
  if (key !== undefined && given !== key) throw new VendorError(401, 'invalid x-api-key')

  const version = headers['anthropic-version']
  if (version === undefined) refuse('anthropic-version: header is required')
  if (!versions.includes(String(version))) refuse(`anthropic-version: "${version}" is not a valid version`)
  if (betas === undefined) return
  for (const beta of String(headers['anthropic-beta'] ?? '').split(',').map((name) => name.trim())) {
    if (beta !== '' && !betas.includes(beta)) {
      refuse(`Unexpected value(s) \`${beta}\` for the \`anthropic-beta\` header.`)
    }
  }
}

/** @throws {VendorError} */
export function checkBody (body: unknown, version: string, endpoint: 'messages' | 'count_tokens'): MessagesBody {
  if (!isObject(body)) refuse('The request body is not valid JSON: expected an object')
  for (const name of Object.keys(body)) if (!fields.has(name)) refuse(`${name}: Extra inputs are not permitted`)
  if (typeof body['model'] !== 'string' || body['model'] === '') refuse('model: Field required')
  if (endpoint === 'messages') {
    const limit = body['max_tokens']
    if (limit === undefined) refuse('max_tokens: Field required')
    if (!Number.isInteger(limit) || (limit as number) < 0) {
      refuse('max_tokens: Input should be greater than or equal to 0')
    }
  }
  if (body['stream'] !== undefined && typeof body['stream'] !== 'boolean') {
    refuse('stream: Input should be a valid boolean')
  }
  checkSampling(body, version)
  checkStopSequences(body['stop_sequences'])
  checkTools(body['tools'], body['tool_choice'])
  checkThinking(body)
  if (body['system'] !== undefined && typeof body['system'] !== 'string') checkBlocks(body['system'], 'system')
  checkMessages(body['messages'])
  const checked = body as unknown as MessagesBody
  const marks = countCacheMarks(checked)
  if (marks > 4) refuse(`A maximum of 4 blocks with cache_control may be provided. Found ${marks}.`)
  return checked
}

function checkSampling (body: Readonly<Record<string, unknown>>, version: string): void {
  for (const name of ['temperature', 'top_p', 'top_k']) {
    const value = body[name]
    if (value === undefined) continue
    // Removed in this version; refused even at the default value.
    if (version === '2026-10-21') refuse(`${name}: Extra inputs are not permitted`)
    if (typeof value !== 'number') refuse(`${name}: Input should be a valid number`)
    if (name !== 'top_k' && (value < 0 || value > 1)) refuse(`${name}: range: 0..1`)
  }
}

function checkStopSequences (sequences: unknown): void {
  if (sequences === undefined) return
  if (!Array.isArray(sequences)) refuse('stop_sequences: Input should be a valid list')
  for (const [index, sequence] of sequences.entries()) {
    if (typeof sequence !== 'string') refuse(`stop_sequences.${index}: Input should be a valid string`)
    if (sequence.trim() === '') refuse('stop_sequences: each stop sequence must contain non-whitespace')
  }
}

function checkTools (tools: unknown, choice: unknown): void {
  if (tools !== undefined && !Array.isArray(tools)) refuse('tools: Input should be a valid list')
  const list: unknown[] = Array.isArray(tools) ? tools : []
  for (const [index, tool] of list.entries()) {
    if (!isObject(tool) || typeof tool['name'] !== 'string') refuse(`tools.${index}.name: Field required`)
    const isCustom = tool['type'] === undefined || tool['type'] === null || tool['type'] === 'custom'
    if (isCustom && !isObject(tool['input_schema'])) refuse(`tools.${index}.custom.input_schema: Field required`)
  }
  if (choice === undefined) return
  if (!isObject(choice) || !['auto', 'any', 'tool', 'none'].includes(String(choice['type']))) {
    refuse('tool_choice: Input tag is none of \'auto\', \'any\', \'tool\', \'none\'')
  }
  if (list.length === 0 && choice['type'] !== 'none') {
    refuse('tool_choice: tool_choice may only be specified while providing tools')
  }
  if (choice['type'] === 'tool' && !list.some((tool) => isObject(tool) && tool['name'] === choice['name'])) {
    refuse(`Tool '${choice['name']}' not found in provided tools`)
  }
}

function checkThinking (body: Readonly<Record<string, unknown>>): void {
  const { thinking, max_tokens: limit, temperature, tool_choice: choice } = body
  if (thinking === undefined) return
  if (!isObject(thinking) || !['enabled', 'adaptive', 'between_tools', 'disabled'].includes(String(thinking['type']))) {
    refuse('thinking: Input tag is none of \'enabled\', \'adaptive\', \'between_tools\', \'disabled\'')
  }
  if (thinking['type'] === 'disabled') return
  if (thinking['type'] === 'enabled') {
    const budget = thinking['budget_tokens']
    if (budget === undefined) refuse('thinking.enabled.budget_tokens: Field required')
    if (!Number.isInteger(budget) || (budget as number) < 1024) {
      refuse('thinking.enabled.budget_tokens: Input should be greater than or equal to 1024')
    }
    if (limit !== undefined && (limit as number) <= (budget as number)) {
      refuse('`max_tokens` must be greater than `thinking.budget_tokens`.')
    }
  }
  if (temperature !== undefined && temperature !== 1) {
    refuse('`temperature` may only be set to 1 when thinking is enabled.')
  }
  if (isObject(choice) && (choice['type'] === 'any' || choice['type'] === 'tool')) {
    refuse('Thinking may not be enabled when tool_choice forces tool use.')
  }
}

function checkMessages (messages: unknown): void {
  if (messages === undefined) refuse('messages: Field required')
  if (!Array.isArray(messages)) refuse('messages: Input should be a valid list')
  if (messages.length === 0) refuse('messages: at least one message is required')
  for (const [index, message] of messages.entries()) {
    const at = `messages.${index}`
    if (!isObject(message) || !['user', 'assistant', 'system'].includes(String(message['role']))) {
      refuse(`${at}.role: Input should be 'user', 'assistant' or 'system'`)
    }
    const { content } = message
    if (typeof content === 'string') {
      if (content === '') {
        refuse(`${at}: all messages must have non-empty content except for the optional final assistant message`)
      }
    } else { checkBlocks(content, `${at}.content`) }
  }
  checkToolPairs(joined(messages as Message[]))
}

function checkBlocks (blocks: unknown, at: string): void {
  if (!Array.isArray(blocks)) refuse(`${at}: Input should be a valid list`)
  for (const [index, block] of blocks.entries()) {
    if (!isObject(block) || typeof block['type'] !== 'string') refuse(`${at}.${index}.type: Field required`)
    if (block['type'] === 'text') {
      if (typeof block['text'] !== 'string') refuse(`${at}.${index}.text.text: Field required`)
      if (block['text'].trim() === '') refuse('messages: text content blocks must be non-empty')
    }
    if (block['type'] === 'image') checkImage(block['source'], `${at}.${index}.image.source`)
    if (block['type'] === 'thinking' && typeof block['signature'] !== 'string') {
      refuse(`${at}.${index}.thinking.signature: Field required`)
    }
  }
}

function checkImage (source: unknown, at: string): void {
  if (!isObject(source)) refuse(`${at}: Field required`)
  if (source['type'] === 'base64') {
    if (!mediaTypes.includes(String(source['media_type']))) {
      refuse(`${at}.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'`)
    }
    if (typeof source['data'] !== 'string' || source['data'] === '') refuse(`${at}.base64.data: Field required`)
  } else if (source['type'] === 'url') {
    if (typeof source['url'] !== 'string') refuse(`${at}.url.url: Field required`)
  } else if (source['type'] !== 'file') {
    refuse(`${at}: Input tag '${source['type']}' is none of 'base64', 'url', 'file'`)
  }
}

/** The vendor makes one turn of neighbours of one role. */
function joined (messages: readonly Message[]): readonly Message[] {
  const all: Message[] = []
  for (const message of messages) {
    const last = all.at(-1)
    if (last?.role !== message.role) all.push(message)
    else all[all.length - 1] = { role: last.role, content: [...blocksOf(last), ...blocksOf(message)] }
  }
  return all
}

function checkToolPairs (messages: readonly Message[]): void {
  let asked: string[] = []
  for (const [index, message] of messages.entries()) {
    const results = blocksOf(message).filter((block) => block.type === 'tool_result').map((block) =>
      String(block['tool_use_id'])
    )
    const missing = asked.filter((id) => !results.includes(id))
    if (missing.length > 0) {
      refuse(
        `messages.${index - 1}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ` +
        `${missing.join(', ')}. Each \`tool_use\` block must have a corresponding \`tool_result\` block in the next ` +
        'message.'
      )
    }
    const unasked = results.find((id) => !asked.includes(id))
    if (unasked !== undefined) {
      refuse(
        `messages.${index}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${unasked}. Each ` +
        `\`tool_result\` block must have a corresponding \`tool_use\` block in the previous message.`
      )
    }
    asked = blocksOf(message).filter((block) => block.type === 'tool_use').map((block) => String(block['id']))
  }
  if (asked.length > 0) {
    refuse(
      `messages.${messages.length - 1}: \`tool_use\` ids were found without \`tool_result\` blocks immediately ` +
      `after: ${asked.join(', ')}.`
    )
  }
}

function countCacheMarks (body: MessagesBody): number {
  const system = typeof body.system === 'string' ? [] : body.system ?? []
  const marked = [...body.tools ?? [], ...system, ...body.messages.flatMap(blocksOf)].filter((block) =>
    isObject(block.cache_control)
  )
  return marked.length + (isObject(body.cache_control) ? 1 : 0)
}

/** A message's content as blocks, whichever form it came in. */
export function blocksOf ({ content }: Message): readonly Block[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : content
}

/** The last turn of the user. */
export function lastTurn (body: MessagesBody): readonly Block[] {
  const message = body.messages.findLast(({ role }) => role === 'user')
  return message === undefined ? [] : blocksOf(message)
}

/** The text among blocks. */
export function textOf (blocks: readonly Block[]): string {
  return blocks.filter((block) => block.type === 'text').map((block) => String(block['text'])).join('\n')
}

function refuse (message: string): never {
  throw new VendorError(400, message)
}
