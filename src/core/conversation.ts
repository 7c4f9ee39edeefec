// The conversation of a request: its second turn must give the number of the first, and another conversation another
// number. A prompt cache knows a request by its beginning, byte by byte; so a client that profits from one sends the
// same beginning each time.
import { hash } from 'node:crypto'
import type { Exchange } from './exchange.ts'
import { ApiKey, Body } from './facts.ts'
import { fieldOf } from '../base/json.ts'

/**
 * Characters that are hashed: 2 KB of the beginning, and as much of a name as clients that put a session into it need.
 */
const OF_SYSTEM = 512
const OF_MESSAGE = 768
const OF_NAME = 512

/** Claude Code's first line of the system prompt differs in each request (src/README.md#chat-upstream). */
export const ATTRIBUTION = /^x-anthropic-billing-header/

/** The text behind that line; the same text where it has none. */
export function withoutAttribution (text: string): string {
  if (!ATTRIBUTION.test(text)) return text
  const end = text.indexOf('\n')
  return end === -1 ? '' : text.slice(end).trimStart()
}

/**
 * Hashes a request in messages style: the account, the client's name for itself or the conversation, and the beginning
 * of the conversation. No name is enough by itself: a company may send one with all its requests.
 * @returns 32 bits, the same in every process
 */
export function conversationOf (exchange: Exchange): number {
  const { metadata, system, messages } = exchange.request.body
  const first: unknown = Array.isArray(messages)
    ? messages.find((message: unknown) => fieldOf(message, 'role') === 'user')
    : undefined
  const said = textsOf(fieldOf(first, 'content'))
  return shortHash([
    exchange.get(ApiKey).account.id,
    nameIn(metadata, 'user_id'),
    nameIn(exchange.find(Body), 'prompt_cache_key'),          // of clients of other styles; it is not translated
    beginOf(textsOf(system), OF_SYSTEM),
    beginOf(said, OF_MESSAGE),
    endOf(said, OF_MESSAGE)                                   // distinguishes prompts made of one template
  ].join('\n'))
}

/** The first characters of the texts; no more than these are joined. */
function beginOf (texts: readonly string[], most: number): string {
  let begin = ''
  for (let i = 0; i < texts.length && begin.length < most; i++) begin += texts[i]!.slice(0, most - begin.length)
  return begin
}

function endOf (texts: readonly string[], most: number): string {
  let end = ''
  for (let i = texts.length - 1; i >= 0 && end.length < most; i--) end = texts[i]!.slice(-(most - end.length)) + end
  return end
}

function nameIn (value: unknown, field: string): string {
  const name = fieldOf(value, field)
  return typeof name === 'string' ? name.slice(0, OF_NAME) : ''
}

/**
 * The texts alone, because a cache mark moves from block to block, and a large image has another placeholder in each
 * request (large-strings.ts).
 */
function textsOf (content: unknown): readonly string[] {
  if (typeof content === 'string') return [content]
  if (!Array.isArray(content)) return []
  return content.map((block: unknown) => fieldOf(block, 'text')).filter((text): text is string =>
    typeof text === 'string' && !ATTRIBUTION.test(text)
  )
}

/** A hash of 32 bits, uniformly distributed. */
export function shortHash (text: string): number {
  return hash('sha256', text, 'buffer').readUInt32BE()
}
