// The client of an exchange, as the pipeline has it: what it sends, and what it is told. A port: http/ has the sockets
// behind it.
import type { OwnRequest, Routed } from '../core/endpoint.ts'
import type { Body } from '../core/facts.ts'
import type { BytesReply, ErrorReply, JsonReply } from '../core/reply.ts'
import type { SseEvent } from '../core/sse.ts'
import type { Tunnel } from '../upstream/passthrough/websocket.ts'

export interface Client {
  /** Reads and parses its body. @throws {GatewayError} */
  readBody (exchange: Routed): Promise<Body>
  /** Sends its bytes to an upstream, unread. @throws {GatewayError} nothing was committed */
  forward (exchange: Routed, upstream: string, own?: OwnRequest): Promise<BytesReply>
  /** it wants a WebSocket */
  readonly isUpgrade: boolean
  /**
   * Of an upgrade only: asks the route's upstream for a WebSocket, which may answer otherwise.
   * @throws {GatewayError} nothing was committed
   */
  connect (exchange: Routed, upstream: string): Promise<Tunnel | BytesReply>

  /** Whether errors must go into the stream: its head is out. */
  readonly isStreaming: boolean
  readonly hasHead: boolean
  json (reply: ErrorReply): Promise<void>
  /**
   * @param text of `encode`
   * @returns writes it: what that needs is bytes, and nothing of the reply stays in memory for a client that is
   * slow
   */
  prepare (reply: JsonReply, text: string): () => Promise<void>
  bytes (reply: BytesReply): Promise<void>
  /** Sends the head of a stream, and from now on a ping whenever it is silent for too long. */
  startStream (): void
  ping (): void
  /** One write for all the events of one upstream chunk. @returns false: wait for `onDrain` */
  events (events: readonly SseEvent[], onDrain: () => void): boolean
  /** The last events, and the end. Resolves when the client's socket has taken all of it. */
  endStream (events: readonly SseEvent[]): Promise<void>
  /** Nobody is there any more: lets go of timers and of the socket. */
  abandon (): void
}
