// The dialects that upstreams speak: from the inner language (messages style) to the vendor's, and back.
import type { Dialect } from '../../config/config.ts'
import type { Exchange } from '../../exchange.ts'
import type { Attempt } from '../../facts.ts'
import type { StreamTransformer, UpstreamRequest } from '../../plugin.ts'
import type { Upstream } from '../upstream.ts'
import { chat } from './chat.ts'
import { images } from './images.ts'
import { messages } from './messages.ts'
import { videos } from './videos.ts'

export interface DialectModule {
  /**
   * The request to the upstream, for one attempt.
   * @throws {GatewayError} what the client sent can't be said in this dialect
   */
  encode (exchange: Exchange, attempt: Attempt, upstream: Upstream): UpstreamRequest
  /** A whole JSON answer as messages style. @throws {ErrorReply} an error all the same; {Error} it is not what the dialect says */
  decodeReply (body: unknown, exchange: Exchange): unknown
  /**
   * Reads a whole answer in its own time, in the place of `decodeReply`. Undefined: there is nothing in it.
   * @throws {GatewayError} the gateway's own failure; {Error} it is not what the dialect says
   */
  readReply? (chunks: readonly Buffer[], exchange: Exchange, attempt: Attempt, upstream: Upstream): Promise<unknown>
  /** bytes of a whole answer; absent: as of a text */
  readonly replyLimit?: number
  /**
   * Fresh state for one stream: one event in, none or many in messages style out. A throw: not what the dialect says. `end` is asked
   * when the upstream says nothing more, for whatever reason: absent, or without a terminal event from it, the answer is incomplete.
   */
  decodeStream (exchange: Exchange): StreamTransformer
  /** Absent: nobody who speaks it counts the tokens of a request. Asked only where the upstream is configured to count. */
  readonly countTokens?: {
    encode: DialectModule['encode']
    /** @throws {Error} it is no count */
    decode (body: unknown): number
  }
}

export const dialects: Readonly<Record<Dialect, DialectModule>> = { messages, chat, images, videos }
