// The interface of a dialect: translates from the inner language (messages style) to the vendor's, and back. Pure: no
// file, no connection, no clock.
import type { Json } from '../../base/json.ts'
import type { Exchange } from '../../core/exchange.ts'
import type { Attempt } from '../../core/facts.ts'
import type { MadeImages } from '../../core/made-images.ts'
import type { StreamTransformer, UpstreamRequest } from '../../core/plugin.ts'
import type { Upstream } from '../../core/upstream.ts'
import type { Sample } from './sample.ts'

export interface OwnWords {
  readonly sent: Json
  readonly instead: Json
}

export interface StreamDecoder extends StreamTransformer {
  /** nothing that a whole answer needs is missing, and the rest is not worth waiting for long; absent: never */
  readonly isComplete?: boolean
}

export interface DialectModule {
  /**
   * The request to the upstream, for one attempt.
   * @throws {GatewayError} the client's request can't be expressed in this dialect
   */
  encode (exchange: Exchange, attempt: Attempt, upstream: Upstream): UpstreamRequest
  /**
   * A whole JSON answer as messages style.
   * @throws {ErrorReply} an error in a 200; {Error} it is no answer of this dialect
   */
  decodeReply (body: unknown, exchange: Exchange, upstream: Upstream): unknown
  /**
   * A whole answer with images, in the place of `decodeReply`: their base64 stays bytes.
   * @throws {Error} it is no answer of this dialect
   */
  decodeImages? (chunks: readonly Buffer[], exchange: Exchange): MadeImages
  /** A whole answer with a task, in the place of `decodeReply`. */
  decodeTask? (chunks: readonly Buffer[]): unknown
  /** limit of a whole answer in bytes; absent: that of text */
  readonly replyLimit?: number
  /**
   * A decoder with fresh state for one stream: one event in, none or many in messages style out. A throw: no event of
   * this dialect. `end` is called when the upstream's stream is over, for whatever reason: without it, or without a
   * terminal event from it, the answer is incomplete.
   */
  decodeStream (exchange: Exchange, upstream: Upstream): StreamDecoder
  /**
   * What it sends in a client's own words, and what the body has in their place, which may be less: the hold is for the
   * longer of both. Absent, or undefined: nothing.
   */
  ownWords? (exchange: Exchange, upstream: Upstream): OwnWords | undefined
  /** an answer of such a vendor; absent: no warm-up goes there */
  readonly sample?: Sample
  /** fewest tokens of output that its vendors can be asked for; absent: one */
  readonly leastOutput?: number
  /**
   * Whether an error says that thoughts of an earlier turn, which came from this vendor, were not taken back: then it
   * is asked again without them.
   */
  refusesThoughts? (error: unknown): boolean
  /**
   * Absent: no vendor of this dialect counts the tokens of a request. Called only where the upstream is configured to
   * count.
   */
  readonly countTokens?: {
    encode: DialectModule['encode']
    /** @throws {Error} it is no count */
    decode (body: unknown): number
  }
}
