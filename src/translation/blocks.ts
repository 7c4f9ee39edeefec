// Turns and content blocks of the inner language, as the translators of clients' styles make them.
import { isGiven, isRecord, type Json } from '../base/json.ts'

export type Block = Json

const VISIBLE = /\S/

/** Whether a text is only white space: the vendor refuses blocks of it. */
export function isBlank (text: string): boolean {
  return !VISIBLE.test(text)
}

export function textBlock (text: string): Block {
  return { type: 'text', text }
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
