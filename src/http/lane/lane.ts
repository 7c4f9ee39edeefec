// The fast lane: whole small requests for models are read here, in front of node's server, which gets everything else
// with the bytes that were read. A connection begins in the lane; once it is node's it stays there.
import type { Server } from 'node:http'
import type { Socket } from 'node:net'
import { Bag } from '../../base/bag.ts'
import { LaneConnection, type LaneHost, type Running } from './connection.ts'
import { MOST_BODY, type LaneRequest } from './read-request.ts'
import type { LaneResponse } from './response.ts'

export interface LaneOptions {
  /** milliseconds until a connection's first request has come */
  readonly headers: number
  /** bytes */
  readonly bodyLimit: number
  readonly isDraining: () => boolean
  /** @returns undefined: node is to answer it, nothing has been done */
  begin (request: LaneRequest, body: Buffer, response: LaneResponse, address: string): Running | undefined
  /** Answers a connection on which no request has come in time. */
  refuseLate (socket: Socket): void
}

export class Lane implements LaneHost {
  readonly #options: LaneOptions
  readonly #server: Server
  /** node's own */
  readonly #listeners: readonly ((socket: Socket) => void)[]
  readonly #connections = new Bag<LaneConnection>()
  /** milliseconds between two looks at all connections */
  readonly #interval: number
  #timer: NodeJS.Timeout | undefined

  /** Takes the place of the server's own listeners for connections. */
  constructor (server: Server, options: LaneOptions) {
    this.#server = server
    this.#options = options
    this.#interval = Math.min(1000, options.headers)
    this.#listeners = server.listeners('connection') as ((socket: Socket) => void)[]
    server.removeAllListeners('connection')
    server.on('connection', (socket: Socket) => { this.#accept(socket) })
  }

  get isDraining (): boolean {
    return this.#options.isDraining()
  }

  get keepAlive (): number {
    return Math.floor(this.#server.keepAliveTimeout / 1000)
  }

  get mostBody (): number {
    return Math.min(MOST_BODY, this.#options.bodyLimit)
  }

  #accept (socket: Socket): void {
    const connection = new LaneConnection(socket, this)
    this.#connections.add(connection)
    this.#timer ??= setInterval(() => { this.#look() }, this.#interval).unref()
  }

  begin (request: LaneRequest, body: Buffer, response: LaneResponse, address: string): Running | undefined {
    return this.#options.begin(request, body, response, address)
  }

  handOver (socket: Socket): void {
    for (const listener of this.#listeners) listener.call(this.#server, socket)
  }

  closed (connection: LaneConnection): void {
    this.#connections.remove(connection)
  }

  /** A look at all once a second: an alarm that is set keeps the process alive, which idle connections must not. */
  #look (): void {
    const { keepAliveTimeout, keepAliveTimeoutBuffer = 1000 } = this.#server
    for (const connection of this.#connections.all()) {
      if (!connection.isIdle) continue
      const passed = ++connection.checks * this.#interval
      if (connection.isNew) {
        if (passed <= this.#options.headers) continue
        connection.release()
        this.#options.refuseLate(connection.socket)
      } else if (passed > keepAliveTimeout + keepAliveTimeoutBuffer) connection.socket.destroy()
    }
  }

  /** As node does it when a server is closed: connections between two requests end. */
  closeIdle (): void {
    for (const connection of this.#connections.all()) {
      if (connection.isIdle && !connection.isNew) connection.socket.destroy()
    }
  }

  closeAll (): void {
    clearInterval(this.#timer)
    for (const { socket } of this.#connections.all()) socket.destroy()
  }
}
