// The content of an answer of chat style, whole or in a delta: thoughts and text under their various names, calls, and
// the finish reason.
import { chatFields, chatStyle, STOP_REASONS } from '../../../protocols/chat.ts'
import type { Exchange } from '../../../core/exchange.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { textIn } from '../json.ts'

/** Finish reasons that are failures, whatever came before: vendors' own words for "it broke". */
const FAILED = new Set<unknown>(['error', 'insufficient_system_resource'])

export function hasFailed (finish: unknown): boolean {
  return FAILED.has(finish)
}

/** Thinking before text. */
export interface Spoken {
  readonly thought: string
  readonly text: string
}

/** Reads a message or a delta. */
export function readSpoken ({ content, reasoning_content: reasoning, reasoning: other, refusal }: Json): Spoken {
  let thought = textIn(reasoning) || textIn(other)
  let text = textIn(content)
  for (const part of Array.isArray(content) ? content as readonly unknown[] : []) {
    if (!isRecord(part)) continue
    if (part.type === 'text') text += textIn(part.text)
    else if (part.type === 'thinking') thought += thoughtIn(part.thinking)
  }
  return { thought, text: text + textIn(refusal) }
}

/** A text, or a list of texts. */
function thoughtIn (thinking: unknown): string {
  if (!Array.isArray(thinking)) return textIn(thinking)
  return thinking.map((part: unknown) => isRecord(part) ? textIn(part.text) : '').join('')
}

/** The calls, including the deprecated `function_call`. */
export function callsIn ({ tool_calls: calls, function_call: call }: Json): readonly Json[] {
  if (Array.isArray(calls)) return calls.filter(isRecord)
  return isRecord(call) ? [{ function: call }] : []
}

/** A few vendors send an object. */
export function argumentsOf (call: unknown): string {
  const { arguments: given } = isRecord(call) ? call : {}
  return isRecord(given) ? JSON.stringify(given) : textIn(given)
}

export interface Stop {
  readonly stop_reason: string
  readonly stop_sequence: string | null
}

/** @param vendors `stop_reason` of vLLM: the sequence, where one ended the answer */
export function stopOf (finish: unknown, vendors: unknown, hasCalls: boolean, { request: { body } }: Exchange): Stop {
  const reason = STOP_REASONS.get(finish) ?? 'end_turn'
  if (reason !== 'end_turn' && reason !== 'tool_use') return { stop_reason: reason, stop_sequence: null }
  // Whatever the vendor's reason: clients run the tools only if this one says so.
  if (hasCalls) return { stop_reason: 'tool_use', stop_sequence: null }
  const isSequence = Array.isArray(body.stop_sequences) && typeof vendors === 'string' &&
    body.stop_sequences.includes(vendors)
  return isSequence
    ? { stop_reason: 'stop_sequence', stop_sequence: vendors }
    : { stop_reason: 'end_turn', stop_sequence: null }
}

/** Whether the reason, which the client gets, is one that may cut a call in the middle. */
export function cutsCalls (finish: unknown): boolean {
  const reason = STOP_REASONS.get(finish)
  return reason === 'max_tokens' || reason === 'refusal'
}

const TRANSLATED = new Set(['role', 'content', 'reasoning_content', 'reasoning', 'refusal', 'tool_calls',
  'function_call'])

/**
 * The vendor's further fields in a message or a delta, for a client of its own style: annotations, audio, details of
 * reasoning.
 */
export function ownFields (said: Json, { route: { style } }: Exchange): Json | undefined {
  if (style !== chatStyle) return undefined
  let own: Record<string, unknown> | undefined
  for (const name in said) {
    const value = said[name]
    if (TRANSLATED.has(name) || value === null || value === '' || (Array.isArray(value) && value.length === 0)) continue
    own ??= {}
    own[name] = value
  }
  return own
}

export function withOwnFields (message: Json, own: Json | undefined): Json {
  return own === undefined ? message : { ...message, [chatFields]: own }
}
