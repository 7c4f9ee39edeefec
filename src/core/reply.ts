// Replies to the client. Plugins and endpoints return one; only the core writes it.
import type { Readable } from 'node:stream'
import type { SseEvent } from './sse.ts'

export type Headers = Readonly<Record<string, string>>

export interface JsonReply {
  readonly kind: 'json'
  readonly status: number
  readonly headers: Headers
  readonly body: unknown
}

export interface BytesReply {
  readonly kind: 'bytes'
  readonly status: number
  readonly headers: Headers
  readonly bytes: Readable
}

/** A stream of events is not a Reply: it comes from an upstream only, and the core drives it (see `Hooks.onStream`). */
export type Reply = JsonReply | BytesReply

/** An error ready to be written: as a JSON answer, or as the last events of a stream. */
export interface ErrorReply {
  readonly status: number
  readonly headers: Headers
  readonly body: unknown
  readonly events: readonly SseEvent[]
}

/** Its headers are its own: plugins without types put more into them. */
export function json (body: unknown, headers: Headers = {}, status = 200): JsonReply {
  return { kind: 'json', status, headers, body }
}
