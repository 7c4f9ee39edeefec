// The messages style, and the core's knowledge of it as the inner language: the events that commit or end an answer,
// and an answer's missing parts.
import { GatewayError } from '../errors.ts'
import { asRecord } from '../base/json.ts'
import { SseEvent } from '../core/sse.ts'
import type { Style } from '../core/style.ts'

export const messagesStyle: Style = {
  name: 'messages',
  endpoint: { serve: 'messages', match: 'POST /v1/messages', schema: 'messages' },
  matches: (path) => /^\/v1\/messages(?:\/|$)/.test(path),
  checkHead: askedVersion,
  ping: 'event: ping\ndata: {"type":"ping"}\n\n',
  errorBody: ({ type, code, vendorCode }, { message, charged, requestId }) => ({
    type: 'error',
    error: { type, message, charged_usd: charged, details: { error_code: vendorCode ?? code } },
    request_id: requestId
  }),
  errorEvents: (body) => [new SseEvent('error', body)],
  addRateHeaders (headers, { limit, remaining, reset_ms: reset }, now) {
    headers['anthropic-ratelimit-requests-limit'] = String(limit)
    headers['anthropic-ratelimit-requests-remaining'] = String(remaining)
    headers['anthropic-ratelimit-requests-reset'] = rfc3339(Math.ceil((now + reset) / 1000))
  },
  conversation: 'messages',
  outputLimits: ['max_tokens'],
  // Off by default: clients ask for the ping with the cost by a header.
  tellsCost: false,
  // The vendor takes a list only; a single text is accepted too. Changed in place, as with nulls: nothing is copied.
  mend (body) {
    if (typeof body.stop_sequences === 'string') Object.assign(body, { stop_sequences: [body.stop_sequences] })
  }
}

let lastSecond = NaN
let lastText = ''

/** Memoized, because many answers fall into one second. */
function rfc3339 (second: number): string {
  if (second !== lastSecond) {
    lastSecond = second
    lastText = new Date(second * 1000).toISOString().replace('.000Z', 'Z')
  }
  return lastText
}

export const DEFAULT_VERSION = '2023-06-01'

export interface Piece { readonly type?: unknown, readonly text?: unknown, readonly thinking?: unknown }

/** Whether a content block, or the delta of one, has content. */
export function saysSomething ({ type, text, thinking }: Piece): boolean {
  switch (type) {
    case 'text':
    case 'text_delta':
      return text !== ''
    case 'thinking':
    case 'thinking_delta':
      return thinking !== ''
    case 'signature_delta':
      return false // of thoughts that are not shown
    default:
      return true // a tool call, a search result: the block itself is content
  }
}

/**
 * The text that the model has written in a content block, or in a delta. The input of a tool is whole in a JSON answer,
 * and empty at the start of a streamed block.
 */
export function writtenIn (piece: unknown): string {
  const { type, text, partial_json: json, thinking, input: said } = asRecord(piece)
  const written = text ?? json ?? thinking
  if (typeof written === 'string') return written
  const input = type === 'tool_use' ? said : undefined
  return typeof input !== 'object' || input === null || Object.keys(input).length === 0 ? '' : JSON.stringify(input)
}

/** The same of an event of a stream. */
export function writtenBy (event: SseEvent): string {
  if (event.event !== 'content_block_delta' && event.event !== 'content_block_start') return ''
  const { delta, content_block: block } = asRecord(event.json)
  return writtenIn(delta ?? block)
}

/**
 * Whether a whole answer is none, which is a failure (`empty_response`): dialects give no stop reason where the vendor
 * has sent neither content nor a reason nor usage (src/README.md#one-request).
 */
export function isEmptyReply ({ stop_reason: reason }: { readonly stop_reason?: unknown }): boolean {
  return reason === null
}

/** Whether this event commits the answer: no event before it had content (src/README.md#commit). */
export function commits (event: SseEvent): boolean {
  switch (event.event) {
    case 'content_block_delta':
      return saysSomething((event.json as { delta: Piece }).delta)
    case 'content_block_start':
      return saysSomething((event.json as { content_block: Piece }).content_block)
    case 'message_delta':
      return typeof (event.json as { delta?: { stop_reason?: unknown } }).delta?.stop_reason === 'string'
    default:
      return false
  }
}

export function isTerminal (event: SseEvent): boolean {
  return event.event === 'message_stop'
}

export function isError (event: SseEvent): boolean {
  return event.event === 'error'
}

/**
 * The version of the style that a client asked for; without one the default, of several the first
 * (src/README.md#version-header).
 * @throws {GatewayError} invalid_request: it is not a date
 */
export function askedVersion (
  { 'anthropic-version': header }: Readonly<Record<string, string | readonly string[] | undefined>>
): string {
  const asked = (typeof header === 'string' ? header : header?.[0])?.split(',')[0]?.trim()
  if (asked === undefined || asked === '') return DEFAULT_VERSION
  if (!/^\d{4}-\d{2}-\d{2}$/.test(asked)) {
    throw new GatewayError('invalid_request', {
      message: 'The header anthropic-version is not a date. Send "2023-06-01" or "2026-10-21".',
      param: 'anthropic-version'
    })
  }
  return asked
}

/** An event without content, which only keeps the connection alive. */
export function isPing (event: SseEvent): boolean {
  return event.event === 'ping'
}
