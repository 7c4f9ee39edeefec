// What the core must know of the inner language (messages style): what commits an answer, what ends it, what it lacks.
import { GatewayError } from './errors.ts'
import type { SseEvent } from './sse.ts'

export const DEFAULT_VERSION = '2023-06-01'

/** Stop reasons with which an answer without content is still an answer. */
const SAYS_ENOUGH = new Set(['refusal', 'max_tokens', 'stop_sequence', 'pause_turn', 'model_context_window_exceeded'])

interface Piece { readonly type?: unknown, readonly text?: unknown, readonly thinking?: unknown }

/** A content block, or the delta of one. */
function saysSomething ({ type, text, thinking }: Piece): boolean {
  switch (type) {
    case 'text': case 'text_delta': return text !== ''
    case 'thinking': case 'thinking_delta': return thinking !== ''
    case 'signature_delta': return false                      // of thoughts that nobody is shown
    default: return true                                      // a tool call, a search result: the block itself is content
  }
}

/** Whether a whole answer holds anything; one that does not is a failure (spec 7.3 `empty_response`). */
export function isEmptyReply (body: { readonly content: readonly Piece[], readonly stop_reason?: unknown }): boolean {
  return !body.content.some(saysSomething) && !SAYS_ENOUGH.has(body.stop_reason as string)
}

/** Whether from this event on the answer is the client's: nothing before it was worth keeping (design.md part 2). */
export function commits (event: SseEvent): boolean {
  switch (event.event) {
    case 'content_block_delta': return saysSomething((event.json as { delta: Piece }).delta)
    case 'content_block_start': return saysSomething((event.json as { content_block: Piece }).content_block)
    case 'message_delta': return SAYS_ENOUGH.has((event.json as { delta?: { stop_reason?: string } }).delta?.stop_reason ?? '')
    default: return false
  }
}

export function isTerminal (event: SseEvent): boolean {
  return event.event === 'message_stop'
}

export function isError (event: SseEvent): boolean {
  return event.event === 'error'
}

/**
 * The version of the style that a client asked for; without one the default, of several the first (protocol.md K 9.1, 9.2).
 * @throws {GatewayError} invalid_request: it is not a date
 */
export function askedVersion ({ 'anthropic-version': header }: Readonly<Record<string, string | readonly string[] | undefined>>): string {
  const asked = (typeof header === 'string' ? header : header?.[0])?.split(',')[0]?.trim()
  if (asked === undefined || asked === '') return DEFAULT_VERSION
  if (!/^\d{4}-\d{2}-\d{2}$/.test(asked)) {
    throw new GatewayError('invalid_request', { message: 'The header anthropic-version is not a date. Send "2023-06-01" or "2026-10-21".', param: 'anthropic-version' })
  }
  return asked
}

/** Says only that somebody is there. */
export function isPing (event: SseEvent): boolean {
  return event.event === 'ping'
}
