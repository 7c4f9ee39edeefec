// The dialects that upstreams speak: from the inner language (messages style) to the vendor's, and back.
import type { Dialect } from '../../config/config.ts'
import type { Exchange } from '../../exchange.ts'
import type { Attempt } from '../../facts.ts'
import type { UpstreamRequest } from '../../plugin.ts'
import type { SseEvent } from '../../sse.ts'
import type { Upstream } from '../upstream.ts'
import { messages } from './messages.ts'

export interface DialectModule {
  /**
   * The request to the upstream, for one attempt.
   * @throws {GatewayError} what the client sent can't be said in this dialect
   */
  encode (exchange: Exchange, attempt: Attempt, upstream: Upstream): UpstreamRequest
  /** A whole JSON answer as messages style. @throws {Error} it is not what the dialect says */
  decodeReply (body: unknown, exchange: Exchange): unknown
  /** Fresh state for one stream: one event in, none or many in messages style out. A throw: not what the dialect says. */
  decodeStream (exchange: Exchange): (event: SseEvent) => SseEvent | readonly SseEvent[] | void
}

export const dialects: Readonly<Record<Dialect, DialectModule>> = { messages }
