// The interface of a simulated vendor API: requests in, answers out, no socket. One sibling file per dialect.
import type { IncomingHttpHeaders } from 'node:http'
import type { SseEvent } from '../core/sse.ts'
import type { Faults } from './faults.ts'

export type Api = 'messages' | 'chat' | 'responses' | 'images' | 'videos' | 'plain'

/** A request that was read: the head, and the body as far as the endpoint wants it. */
export interface Asked {
  readonly requestId: string
  readonly method: string
  /** without the query */
  readonly path: string
  readonly query: string
  readonly headers: IncomingHttpHeaders
  /** parsed JSON; undefined where the endpoint does not want the body kept */
  readonly body: unknown
  readonly bodyBytes: number
  readonly bodySha256: string
  readonly faults: Faults
}

/**
 * Usage as the vendor spells it, field by field; a later value of a field replaces an earlier one
 * (src/README.md#last-usage-wins).
 */
export type ReportedUsage = Readonly<Record<string, unknown>>

/** An event, with its content and its usage. */
export interface Emission {
  readonly event: SseEvent
  /** the part of the answer's text in it; such an event waits for `delay` */
  readonly text?: string
  readonly usage?: ReportedUsage
}

export type Answer =
  | { readonly kind: 'json', readonly status: number, readonly headers?: Readonly<Record<string, string>>,
    readonly body: unknown, readonly text?: string, readonly usage?: ReportedUsage, readonly tokens?: number }
  | { readonly kind: 'events', readonly emissions: readonly Emission[] }
  | FileAnswer

/** Bytes that are made where they are asked for, whole or in part (RFC 9110 14). */
export interface FileAnswer {
  readonly kind: 'file'
  readonly type: string
  readonly size: number
  readonly etag: string
  /** what the request's headers say */
  readonly range: string | undefined
  readonly ifRange: string | undefined
  /** the connection is closed after so many bytes */
  readonly cutAfter: number | undefined
  read (at: number, length: number): Buffer
}

export interface Endpoint {
  /** false: the body is counted and hashed, not kept */
  readonly keepsBody: boolean
  /** the text that may hold directives */
  prompt (body: unknown): string
  /** @throws {VendorError} the vendor refuses the request */
  answer (asked: Asked): Answer
}

export interface Dialect {
  readonly name: Api
  /** by method and path: `POST /v1/messages`; `* /v1/echo` for any method */
  readonly endpoints: Readonly<Record<string, Endpoint>>
  /** endpoints with an id in their path */
  find? (method: string, path: string): Endpoint | undefined
  errorBody (error: VendorError, requestId: string): unknown
  /** an error in the stream, after the status was sent */
  errorEvent (type: string, requestId: string): Emission
  /** a broken first content event */
  brokenEvent (): Emission
  unknownEvent (): Emission
}

/** An error of the vendor, shaped by the dialect. */
export class VendorError extends Error {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>

  constructor (status: number, message: string, headers: Readonly<Record<string, string>> = {}) {
    super(message)
    this.status = status
    this.headers = headers
  }
}

export function isObject (value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
