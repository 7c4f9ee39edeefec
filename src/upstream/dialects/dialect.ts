// What a dialect is: from the inner language (messages style) to the vendor's, and back. Pure: no file, no connection,
// no clock.
import type { Exchange } from '../../core/exchange.ts'
import type { Attempt } from '../../core/facts.ts'
import type { MadeImages } from '../../core/made-images.ts'
import type { StreamTransformer, UpstreamRequest } from '../../core/plugin.ts'
import type { Upstream } from '../../core/upstream.ts'

export interface DialectModule {
  /**
   * The request to the upstream, for one attempt.
   * @throws {GatewayError} what the client sent can't be said in this dialect
   */
  encode (exchange: Exchange, attempt: Attempt, upstream: Upstream): UpstreamRequest
  /**
   * A whole JSON answer as messages style.
   * @throws {ErrorReply} an error all the same; {Error} it is not what the dialect says
   */
  decodeReply (body: unknown, exchange: Exchange): unknown
  /**
   * A whole answer that is images, in the place of `decodeReply`: their base64 stays bytes.
   * @throws {Error} it is not what the dialect says
   */
  decodeImages? (chunks: readonly Buffer[], exchange: Exchange): MadeImages
  /** A whole answer that is a task, likewise. */
  decodeTask? (chunks: readonly Buffer[]): unknown
  /** bytes of a whole answer; absent: as of a text */
  readonly replyLimit?: number
  /**
   * Fresh state for one stream: one event in, none or many in messages style out. A throw: not what the dialect says.
   * `end` is asked when the upstream says nothing more, for whatever reason: absent, or without a terminal event from
   * it, the answer is incomplete.
   */
  decodeStream (exchange: Exchange): StreamTransformer
  /**
   * Absent: nobody who speaks it counts the tokens of a request. Asked only where the upstream is configured to
   * count.
   */
  readonly countTokens?: {
    encode: DialectModule['encode']
    /** @throws {Error} it is no count */
    decode (body: unknown): number
  }
}
