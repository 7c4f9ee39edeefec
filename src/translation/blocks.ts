// Turns and content blocks of the inner language, as the translators of clients' styles make them.
import { isGiven, isRecord, type Json } from '../base/json.ts'

export type Block = Json

const VISIBLE = /\S/

/** Whether a text is only white space: the vendor refuses blocks of it. */
export function isBlank (text: string): boolean {
  const first = text.charCodeAt(0)
  return !(first > 0x20 && first < 0x7F) && !VISIBLE.test(text)
}

export function textBlock (text: string): Block {
  return { type: 'text', text }
}

/** The result of a call that has none: its client was interrupted. */
export const NO_OUTPUT = 'There is no output: the call was interrupted.'

/** Content of a result that says nothing, for vendors that refuse empty messages. */
export const EMPTY_OUTPUT = 'There is no output.'

/** What is asked where a conversation has no question, but needs one. */
export const GO_ON = 'Continue.'

/** Before the result of a call that is not in the conversation. */
export function notShown (id: string): Block {
  return textBlock(`The output of a call ${JSON.stringify(id.slice(0, 64))} that is not shown:`)
}

export interface Turn {
  /** `system`: it holds from its place on (src/README.md#system-turns) */
  readonly role: 'user' | 'assistant' | 'system'
  readonly content: string | readonly Block[]
}

/**
 * A vendor's extension of parts and tools, by its known fields only, so that nothing else is sent inside
 * (src/README.md#allow-list).
 */
export function cacheControl (value: unknown): Json {
  if (!isRecord(value)) return NOTHING
  return { cache_control: isGiven(value.ttl) ? { type: value.type, ttl: value.ttl } : { type: value.type } }
}

const NOTHING: Json = Object.freeze({})
