// The interface between the pipeline and the client of an exchange: its body, and the writes of its response. A port:
// http/ implements it on sockets.
import type { Awaitable } from '../base/awaitable.ts'
import type { OwnRequest, Routed } from '../core/endpoint.ts'
import type { Body } from '../core/facts.ts'
import type { BytesReply, ErrorReply, JsonReply } from '../core/reply.ts'
import type { SseEvent } from '../core/sse.ts'
import type { Tunnel } from '../upstream/passthrough/websocket.ts'

/** Hears how a write of a whole answer ends: one of both is called, once. */
export interface SendListener {
  /** The last byte was handed to the system. */
  onSent (): void
  /** The client is gone. @param thrown the exchange's abort reason */
  onUnsent (thrown: unknown): void
}

export interface Client {
  /** Reads and parses the request body. @throws {GatewayError} */
  readBody (exchange: Routed): Awaitable<Body>
  /** Sends the request's bytes to an upstream, unread. @throws {GatewayError} nothing was committed */
  forward (exchange: Routed, upstream: string, own?: OwnRequest): Promise<BytesReply>
  /** the request is an upgrade to a WebSocket */
  readonly isUpgrade: boolean
  /**
   * Asks the route's upstream for a WebSocket, which may answer with a plain response; of an upgrade only.
   * @throws {GatewayError} nothing was committed
   */
  connect (exchange: Routed, upstream: string): Promise<Tunnel | BytesReply>

  /** Whether errors must go into the stream, because its head was sent. */
  readonly isStreaming: boolean
  readonly hasHead: boolean
  json (reply: ErrorReply): Promise<void>
  /**
   * Sends a whole answer. Keeps only the bytes it needs, so no reply stays in memory for a slow client.
   * @param encoded the reply, by `encodeReply`
   * @throws before the head
   */
  send (reply: JsonReply, encoded: string | readonly Buffer[], listener: SendListener): void
  bytes (reply: BytesReply): Promise<void>
  /** Sends the head of a stream, and from then on a ping after each silence. */
  startStream (): void
  ping (): void
  /** One write for all the events of one upstream chunk. @returns false: wait for `onDrain` */
  events (events: readonly SseEvent[], onDrain: () => void): boolean
  /** Sends the last events, and the end. Resolves when the client's socket has taken all of it. */
  endStream (events: readonly SseEvent[]): Promise<void>
  /** The client is gone: releases timers and the socket. */
  abandon (): void
}
