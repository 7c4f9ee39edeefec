// A connection in the lane: one request after the other, until one comes that is node's.
import type { Socket } from 'node:net'
import { atEndOfTurn } from '../../base/end-of-turn.ts'
import type { BagItem } from '../../base/bag.ts'
import { Alarm } from '../../base/wheel.ts'
import { type LaneRequest, RequestReader } from './read-request.ts'
import { LaneResponse, type ResponseConnection } from './response.ts'

/** Milliseconds in which a request has to be whole. */
const WHOLE_MS = 50
/** Most pieces in which it may come: each is read from its beginning. */
const MOST_PIECES = 16
/** Bytes behind a request that are kept while it is answered; then the socket is not read any more. */
const MOST_KEPT = 64 * 1024

/** The running exchange of a connection. */
export interface Running {
  /** The connection is gone, before the answer was whole. */
  left (): void
}

/** What connections have in common. */
export interface LaneHost {
  readonly isDraining: boolean
  /** seconds that a client is promised between two requests */
  readonly keepAlive: number
  readonly mostBody: number
  /** @returns undefined: node is to answer it, nothing has been done */
  begin (request: LaneRequest, body: Buffer, response: LaneResponse, address: string): Running | undefined
  /** Gives the socket to node for good, as it was accepted. */
  handOver (socket: Socket): void
  closed (connection: LaneConnection): void
}

export class LaneConnection implements ResponseConnection, BagItem {
  readonly socket: Socket
  /** among all connections; the host's */
  place = 0
  readonly #host: LaneHost
  readonly #reader: RequestReader
  readonly #address: string
  /** what came and belongs to no request that was begun */
  #bytes: Buffer | undefined
  #pieces = 0
  #request: LaneRequest | undefined
  #response: LaneResponse | undefined
  #running: Running | undefined
  /** set while a request is not whole */
  #whole: Alarm | undefined
  readonly #onData = this.#read.bind(this)
  readonly #onEnd = this.#halfClosed.bind(this)
  readonly #onClose = this.#closed.bind(this)
  readonly #begin = this.#serve.bind(this)
  readonly onEnded = this.#ended.bind(this)
  /** looks at it since the last answer, or since it was accepted */
  checks = 0
  /** no request has come yet */
  isNew = true

  constructor (socket: Socket, host: LaneHost) {
    this.socket = socket
    this.#host = host
    this.#reader = new RequestReader(host.mostBody)
    this.#address = socket.remoteAddress ?? ''
    socket.on('data', this.#onData).on('end', this.#onEnd).on('close', this.#onClose).on('error', ignore)
  }

  get isClosing (): boolean {
    return this.#host.isDraining
  }

  get keepAlive (): number {
    return this.#host.keepAlive
  }

  /** Nothing of a request has come since the last answer. */
  get isIdle (): boolean {
    return this.#bytes === undefined && this.#request === undefined && this.#response === undefined
  }

  #read (chunk: Buffer): void {
    const bytes = this.#bytes === undefined ? chunk : Buffer.concat([this.#bytes, chunk])
    this.#bytes = bytes
    if (this.#request !== undefined || this.#response !== undefined) {
      if (bytes.length > MOST_KEPT || ++this.#pieces > MOST_PIECES) this.socket.pause()
      return
    }
    const read = ++this.#pieces > MOST_PIECES ? 'foreign' : this.#reader.read(bytes)
    if (read === 'foreign') { this.#handOver(); return }
    if (read === 'more') {
      this.#whole ??= new Alarm(() => { this.#handOver() })
      if (!this.#whole.isSet) this.#whole.set(WHOLE_MS)
      return
    }
    this.#whole?.off()
    this.#request = read
    atEndOfTurn(this.#begin)
  }

  /** All sockets of this turn were read. */
  #serve (): void {
    const [request, bytes] = [this.#request!, this.#bytes!]
    this.#request = undefined
    if (this.socket.destroyed || this.socket.readableEnded) return
    const end = request.bodyAt + Number(request.headers['content-length'])
    const response = new LaneResponse(this)
    this.#response = response
    const running = this.#host.begin(request, bytes.subarray(request.bodyAt, end), response, this.#address)
    if (running === undefined) {
      this.#response = undefined
      this.#handOver()
      return
    }
    this.#running = running
    this.#bytes = bytes.length > end ? bytes.subarray(end) : undefined
    this.#pieces = 0
    this.isNew = false
  }

  #ended (error?: Error | null): void {
    const response = this.#response
    if (response === undefined || (error !== undefined && error !== null)) return
    this.#response = this.#running = undefined
    this.#pieces = this.checks = 0
    response.finish()
    if (!response.keepsAlive) {
      this.socket.off('data', this.#onData)
      this.socket.destroySoon()
    } else if (this.#bytes !== undefined) this.#handOver()
  }

  #halfClosed (): void {
    if (this.#bytes === undefined || this.#response !== undefined || this.#request !== undefined) {
      this.socket.end()
      return
    }
    // Nothing can be put back into a stream that has ended: node is told of both, and of the end a turn later, when
    // what the bytes ask for was begun.
    const { socket } = this
    const bytes = this.release()
    this.#host.handOver(socket)
    socket.emit('data', bytes)
    setImmediate(() => {
      setImmediate(() => { if (!socket.destroyed) socket.emit('end') })
    })
  }

  #closed (): void {
    this.#whole?.off()
    this.#host.closed(this)
    const [response, running] = [this.#response, this.#running]
    this.#response = this.#running = this.#bytes = undefined
    running?.left()
    response?.close()
  }

  /** The socket is another's from now on. @returns what was read and not served */
  release (): Buffer | undefined {
    const { socket } = this
    const bytes = this.#bytes
    this.#bytes = undefined
    this.#whole?.off()
    socket.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose).off('error', ignore)
    this.#host.closed(this)
    return bytes
  }

  /**
   * Node reads what was read here, as if it had just come. Not at once: this may be called within the stream's own
   * reading, which would start the socket again after node has stopped it.
   */
  #handOver (): void {
    const { socket } = this
    // As node, which answers nothing behind the client's end that it has not begun.
    if (socket.destroyed || socket.readableEnded) { socket.end(); return }
    const bytes = this.release()
    socket.pause()
    if (bytes !== undefined) socket.unshift(bytes)
    this.#host.handOver(socket)
    process.nextTick(() => { socket.resume() })
  }
}

function ignore (): void {}
