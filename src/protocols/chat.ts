// The chat style, and what the two translations between it and messages style share: the plugin's for clients, the
// dialect's for upstreams.
import { SseEvent } from '../core/sse.ts'
import type { Exchange } from '../core/exchange.ts'
import type { Style, ToldError } from '../core/style.ts'
import type { GatewayError } from '../errors.ts'
import { isGiven, isRecord, type Json } from '../base/json.ts'

/** @param none in the place of the field, where none is to blame */
export function chatError (
  { type, code, param }: GatewayError,
  { message, charged, requestId }: ToldError,
  none: '' | null = null
): Json {
  return { error: { message, type, code, param: param ?? none, charged_usd: charged, request_id: requestId } }
}

export const chatStyle: Style = {
  name: 'chat',
  endpoint: { serve: 'chat-completions', match: 'POST /v1/chat/completions', schema: 'chat-completions' },
  matches: (path) => /^\/v1\/chat(?:\/|$)/.test(path),
  ping: ': ping\n\n',
  errorBody: (error, told) => chatError(error, told),
  errorEvents: (body) => [new SseEvent('', body), new SseEvent('', '[DONE]')],
  addRateHeaders (headers, { limit, remaining, reset_ms: reset }) {
    headers['x-ratelimit-limit-requests'] = String(limit)
    headers['x-ratelimit-remaining-requests'] = String(remaining)
    headers['x-ratelimit-reset-requests'] = duration(reset)
  },
  conversation: 'messages',
  // the newer name wins
  outputLimits: ['max_completion_tokens', 'max_tokens'],
  tellsCost: true
}

/** In Go's format for up to a minute: 1m0s, 8.64s, 14ms, 0s. */
function duration (ms: number): string {
  if (ms >= 60_000) return '1m0s'
  return ms >= 1000 ? `${ms / 1000}s` : ms > 0 ? `${ms}ms` : '0s'
}

/** Finish reasons by stop reason. */
export const FINISH_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['tool_use', 'tool_calls'],
  ['pause_turn', 'stop'],
  ['refusal', 'content_filter'],
  ['compaction', 'length']
])

/**
 * Fields of an answer that only chat style has, on their way from an upstream to a client of it: of a JSON answer under
 * these symbols, which are never written, so no other client gets them; of a stream as events of that name, with
 * `delta` and `top`.
 */
export const chatFields = Symbol('fields of a chat message')
/** fields beside `choices` */
export const chatTop = Symbol('fields of a chat completion')
/** on a call: fields beside its function */
export const chatCall = Symbol('fields of a call in a chat message')
export const CHAT_DELTA = 'chat_delta'

export function isChatClient ({ route: { style } }: Exchange): boolean {
  return style === chatStyle
}

/** @param own fields of the chat message @param top fields beside the choices */
export function withChatFields (message: Json, own: Json | undefined, top?: Json): Json {
  return { ...message, ...(own !== undefined && { [chatFields]: own }), ...(top !== undefined && { [chatTop]: top }) }
}

/**
 * How much a chat client wants thought: `reasoning_effort`, or if that is absent OpenRouter's `reasoning`, which may
 * give a budget of tokens instead.
 */
export function chatReasoning ({ reasoning_effort: own, reasoning }: Json): {
  readonly effort: unknown
  readonly budget?: number
} {
  if (isGiven(own) || !isRecord(reasoning)) return { effort: own }
  const { effort, max_tokens: budget, enabled } = reasoning
  if (enabled === false || budget === 0) return { effort: 'none' }
  if (typeof budget === 'number') return { effort: undefined, budget }
  return { effort: effort ?? (enabled === true ? 'medium' : undefined) }
}
