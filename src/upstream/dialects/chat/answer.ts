// The content of an answer of chat style, whole or in a delta: thoughts and text under their various names, calls, and
// how it ends.
import type { Exchange } from '../../../core/exchange.ts'
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { type Finish, graver, isCounted, readFinish, stopReason } from '../finish.ts'
import { textIn } from '../json.ts'
import { isChatClient } from '../../../protocols/chat.ts'

/** Thinking before text. */
export interface Spoken {
  readonly thought: string
  readonly text: string
  /** of a model that does not want to */
  readonly refusal: string
}

/**
 * The choices of an answer or a chunk. One answer is requested, so what comes in several choices is one: Copilot puts
 * text into the first and calls into the second.
 */
export function choicesIn ({ choices }: Json): readonly Json[] {
  return Array.isArray(choices) ? choices.filter(isRecord) : []
}

/** How a choice ends. */
export function finishOf ({ finish_reason: finish, native_finish_reason: native }: Json): Finish | undefined {
  const reason = readFinish(finish)
  // OpenRouter's finish reason of a call that the limit has cut is that of a whole one.
  return reason !== undefined && readFinish(native) === 'max_tokens' ? graver(reason, 'max_tokens') : reason
}

/** Reads a message or a delta. */
export function readSpoken ({ content, reasoning_content: reasoning, reasoning: other, refusal }: Json): Spoken {
  let thought = textIn(reasoning) || textIn(other)
  if (typeof content === 'string' || !isGiven(content)) {
    return { thought, text: textIn(content), refusal: textIn(refusal) }
  }
  let text = ''
  let isOfParts = false
  for (const part of Array.isArray(content) ? content as readonly unknown[] : [content]) {
    isOfParts ||= typeof part === 'string' || (isRecord(part) && part.type !== undefined)
    if (typeof part === 'string') text += part
    else if (!isRecord(part)) continue
    else if (part.type === 'thinking') thought += thoughtIn(part.thinking)
    else text += textIn(part.text)
  }
  // Cloudflare parses what the model wrote as JSON.
  const isValue = !isOfParts && text === '' && !(Array.isArray(content) && content.length === 0)
  return { thought, text: isValue ? JSON.stringify(content) : text, refusal: textIn(refusal) }
}

/** A text, or a list of texts. */
function thoughtIn (thinking: unknown): string {
  if (!Array.isArray(thinking)) return textIn(thinking)
  return thinking.map((part: unknown) => isRecord(part) ? textIn(part.text) : '').join('')
}

/**
 * The calls, including the deprecated `function_call`. One that says nothing is none: Go writes empty objects where
 * there is no call.
 */
export function callsIn ({ tool_calls: calls, function_call: call }: Json): readonly Json[] {
  if (Array.isArray(calls) && calls.length > 0) return calls.filter(isCall)
  const old = { function: call }
  return isCall(old) ? [old] : []
}

function isCall (call: unknown): call is Json {
  if (!isRecord(call)) return false
  // A signature may come behind the call.
  if (!isRecord(call.function)) return isRecord(call.extra_content)
  const { name, arguments: given } = call.function
  return textIn(name) !== '' || textIn(call.id) !== '' || (isGiven(given) && given !== '')
}

/** A few vendors send an object. Any other value stays what it is, so that it is not taken for no arguments. */
export function argumentsOf (call: unknown): string {
  const { arguments: given } = isRecord(call) ? call : {}
  return typeof given === 'string' ? given : isGiven(given) ? JSON.stringify(given) : ''
}

export interface Stop {
  /** null: it is no answer */
  readonly stop_reason: string | null
  readonly stop_sequence: string | null
}

/** What an answer has. */
export interface Parts {
  readonly hasCalls: boolean
  /** any content, calls included */
  readonly hasContent: boolean
  readonly hasRefusal: boolean
}

/** @param vendors `stop_reason` of vLLM: the sequence, where one ended the answer */
export function stopOf (
  finish: Finish | undefined, vendors: unknown, { hasCalls, hasContent, hasRefusal }: Parts, usage: unknown,
  exchange: Exchange
): Stop {
  // A client of chat style gets the refusal as such, with the finish reason that belongs to it.
  const isRefused = hasRefusal && !isChatClient(exchange)
  const reason = isRefused ? 'refusal' : stopReason(finish === 'stop_sequence' ? 'end_turn' : finish, hasCalls,
    hasContent, isCounted(usage))
  const { stop_sequences: sequences } = exchange.request.body
  const isSequence = reason === 'end_turn' && Array.isArray(sequences) && typeof vendors === 'string' &&
    sequences.includes(vendors)
  if (isSequence) return { stop_reason: 'stop_sequence', stop_sequence: vendors }
  return { stop_reason: reason === 'tool_use' && !hasCalls ? 'end_turn' : reason, stop_sequence: null }
}

const TRANSLATED = new Set(['role', 'content', 'reasoning_content', 'reasoning', 'tool_calls', 'function_call'])
/** Fields beside the choices that a client of this style reads: of Perplexity, xAI, OpenRouter and Azure. */
const AT_TOP = ['citations', 'search_results', 'related_questions', 'images', 'provider', 'prompt_filter_results']

/**
 * The vendor's further fields in a message or a delta, for a client of its own style: a refusal, annotations, audio,
 * details of reasoning.
 */
export function ownFields (said: Json, exchange: Exchange): Json | undefined {
  if (!isChatClient(exchange)) return undefined
  let own: Record<string, unknown> | undefined
  for (const name in said) {
    const value = said[name]
    if (TRANSLATED.has(name) || value === null || value === '' || (Array.isArray(value) && value.length === 0)) continue
    own ??= {}
    own[name] = value
  }
  return own
}

/** Those of a call: what the vendor wants back with it. */
export function callFields ({ extra_content: extra }: Json, exchange: Exchange): Json | undefined {
  return isRecord(extra) && isChatClient(exchange) ? { extra_content: extra } : undefined
}

/** Those at the top of a completion or a chunk. */
export function topFields (completion: Json, exchange: Exchange): Json | undefined {
  if (!isChatClient(exchange)) return undefined
  let top: Record<string, unknown> | undefined
  for (const name of AT_TOP) {
    const value = completion[name]
    if (isGiven(value)) (top ??= {})[name] = value
  }
  return top
}
