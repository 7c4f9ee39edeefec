// The chat style, and the tables shared by the two translations between it and messages style: the plugin's for
// clients, the dialect's for upstreams.
import { SseEvent } from '../core/sse.ts'
import type { Style, ToldError } from '../core/style.ts'
import type { GatewayError } from '../errors.ts'
import type { Json } from '../base/json.ts'

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

/** Finish reasons by stop reason. Of several stop reasons with one finish reason the first is its translation back. */
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

/** Stop reasons by finish reason, with the names that vendors use beside the official ones. */
export const STOP_REASONS: ReadonlyMap<unknown, string> = new Map([
  ...[...FINISH_REASONS].reverse().map(([stop, finish]) => [finish, stop as string] as const),
  ['function_call', 'tool_use'],
  ['max_tokens', 'max_tokens'],
  ['model_length', 'max_tokens']
])

/**
 * Fields of an answer that only chat style has, on their way from an upstream of that style to a client of it: of a
 * JSON answer under this symbol, which is never written, so no other client gets them; of a stream as events of that
 * name.
 */
export const chatFields = Symbol('chat fields')
export const CHAT_DELTA = 'chat_delta'
