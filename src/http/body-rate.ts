// How fast the bodies of requests come: one look a second at each connection that one comes on, whoever reads it, or
// throws it away.
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Bag } from '../base/bag.ts'
import { GatewayError } from '../errors.ts'
import type { Exchange } from '../core/exchange.ts'

/** A body that comes, or has come. */
interface Coming {
  readonly req: IncomingMessage
  readonly res: ServerResponse
  /** absent: it is refused, or somebody else's */
  readonly exchange: Exchange | undefined
}

/** One for as long as it is open: what is made for a request is not kept when that is over. */
interface Connection {
  readonly socket: Socket
  coming: Coming | undefined
  /** where the present span began */
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
   * @param least bytes a second; 0: whatever comes
   * @param span milliseconds over which they are counted
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
      const connection: Connection = { socket, coming: undefined, since: 0, bytes: 0 }
      const place = this.#connections.add(connection)
      this.#bySocket.set(socket, connection)
      socket.once('close', () => { this.#connections.remove(place) })
    })
  }

  close (): void {
    clearInterval(this.#timer)
  }

  /** Its head is here. @param exchange who is told when it is too slow, while nothing is answered */
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
    // What came while the loop stood still nobody has read yet.
    const isLate = now - this.#lookedAt > 2 * this.#interval
    this.#lookedAt = now
    for (const connection of this.#connections.all()) {
      const { socket, coming, since, bytes } = connection
      if (coming === undefined) continue
      const { req, res, exchange } = coming
      if (req.complete || socket.destroyed) { connection.coming = undefined; continue }
      // Nobody takes what there is: then it is not the client who is slow.
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
