// The minimum rate of request bodies: every connection on which a body arrives is checked once a second, whether the
// body is read or discarded.
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Bag, type BagItem } from '../base/bag.ts'
import { GatewayError } from '../errors.ts'
import type { Exchange } from '../core/exchange.ts'

/** A body that is arriving, or has arrived. */
interface Coming {
  readonly req: IncomingMessage
  readonly res: ServerResponse
  /** absent: the request was refused, or has no exchange */
  readonly exchange: Exchange | undefined
}

/** A connection while it is open; the state of a request is dropped with the request. */
interface Connection extends BagItem {
  readonly socket: Socket
  coming: Coming | undefined
  /** start of the current span, by the monotonic clock */
  since: number
  bytes: number
}

export class Pace {
  readonly #least: number
  readonly #span: number
  readonly #connections = new Bag<Connection>()
  readonly #bySocket = new WeakMap<Socket, Connection>()
  readonly #interval: number
  #timer: NodeJS.Timeout | undefined
  #lookedAt = 0

  /**
   * @param least bytes a second; 0: no minimum
   * @param span milliseconds over which the rate is measured
   */
  constructor (least: number, span: number) {
    this.#least = least
    this.#span = span
    this.#interval = Math.min(1000, span)
  }

  watch (server: Server): void {
    if (this.#least === 0) return
    this.#timer ??= setInterval(() => { this.#look() }, this.#interval).unref()
    server.on('connection', (socket: Socket) => {
      const connection: Connection = { socket, coming: undefined, since: 0, bytes: 0, place: 0 }
      this.#connections.add(connection)
      this.#bySocket.set(socket, connection)
      socket.once('close', () => { this.#connections.remove(connection) })
    })
  }

  close (): void {
    clearInterval(this.#timer)
  }

  /**
   * Begins to measure a body when the head has arrived. @param exchange aborted when the body is too slow, while no
   * head was sent
   */
  begin (req: IncomingMessage, res: ServerResponse, exchange?: Exchange): void {
    if (req.headers['content-length'] === undefined && req.headers['transfer-encoding'] === undefined) return
    const connection = this.#bySocket.get(req.socket)
    if (connection === undefined) return
    connection.coming = { req, res, exchange }
    this.#mark(connection)
  }

  #mark (connection: Connection): void {
    connection.since = performance.now()
    connection.bytes = connection.socket.bytesRead
  }

  #look (): void {
    const now = performance.now()
    // A blocked event loop has not read what arrived meanwhile.
    const isLate = now - this.#lookedAt > 2 * this.#interval
    this.#lookedAt = now
    for (const connection of this.#connections.all()) {
      const { socket, coming, since, bytes } = connection
      if (coming === undefined) continue
      const { req, res, exchange } = coming
      if (req.complete || socket.destroyed) { connection.coming = undefined; continue }
      // The bytes wait to be read: then the client is not the slow side.
      if (isLate || (req.readableFlowing !== true && !res.writableEnded)) { this.#mark(connection); continue }
      const passed = now - since
      if (passed < this.#span) continue
      if (socket.bytesRead - bytes >= this.#least * passed / 1000) { this.#mark(connection); continue }
      connection.coming = undefined
      if (exchange === undefined || res.headersSent) socket.destroy()
      else exchange.abort(new GatewayError('request_timeout', { headers: { connection: 'close' } }))
    }
  }
}
