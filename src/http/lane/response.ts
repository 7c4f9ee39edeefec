// The answer to a request of the lane: what the writer uses of node's ServerResponse, with the same bytes on the wire.
import { STATUS_CODES, validateHeaderName, validateHeaderValue } from 'node:http'
import type { Socket } from 'node:net'
import { Writable } from 'node:stream'
import type { Outgoing } from '../outgoing.ts'

/** The connection of a response. */
export interface ResponseConnection {
  readonly socket: Socket
  /** the connection ends with this answer */
  readonly isClosing: boolean
  /** seconds that the client is promised between two requests */
  readonly keepAlive: number
  /** the callback of the write of a response's last bytes */
  readonly onEnded: Taken
}

type Listener = () => void
/** Called when the system has taken the bytes, or never will. */
type Taken = (error?: Error | null) => void

export class LaneResponse implements Outgoing {
  readonly #connection: ResponseConnection
  /** written and not sent */
  #head = ''
  #hasBody = true
  #keepsAlive = true
  #onClose: Listener | undefined
  /** further ones: hardly ever is there more than one */
  #others: Listener[] | undefined
  headersSent = false
  chunkedEncoding = false
  destroyed = false
  writableFinished = false

  constructor (connection: ResponseConnection) {
    this.#connection = connection
  }

  get socket (): Socket | null {
    return this.destroyed ? null : this.#connection.socket
  }

  /** Whether the connection takes another request behind this answer. */
  get keepsAlive (): boolean {
    return this.#keepsAlive
  }

  get writableLength (): number {
    return this.destroyed ? 0 : this.#connection.socket.writableLength
  }

  get writableNeedDrain (): boolean {
    return !this.destroyed && this.#connection.socket.writableNeedDrain
  }

  writeHead (status: number, fields: readonly string[]): void {
    let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'unknown'}\r\n`
    let connection: string | undefined
    let [hasLength, hasEncoding, hasDate] = [false, false, false]
    for (let i = 0; i < fields.length; i += 2) {
      const name = fields[i]!
      const value = fields[i + 1]!
      validateHeaderName(name)
      validateHeaderValue(name, value)
      // A plugin without types may give a list, which node sends line by line.
      head += Array.isArray(value) ? value.map((one) => `${name}: ${one}\r\n`).join('') : `${name}: ${value}\r\n`
      switch (name.length) {
        case 4:
          hasDate ||= name.toLowerCase() === 'date'
          break
        case 10:
          if (name.toLowerCase() === 'connection') connection = value
          break
        case 14:
          hasLength ||= name.toLowerCase() === 'content-length'
          break
        case 17:
          hasEncoding ||= name.toLowerCase() === 'transfer-encoding'
      }
    }
    if (!hasDate) head += `Date: ${dateNow()}\r\n`
    if (connection !== undefined) this.#keepsAlive = !/close/i.test(connection)
    else if (this.#connection.isClosing) {
      this.#keepsAlive = false
      head += 'Connection: close\r\n'
    } else head += `Connection: keep-alive\r\nKeep-Alive: timeout=${this.#connection.keepAlive}\r\n`
    this.#hasBody = status >= 200 && status !== 204 && status !== 304
    this.chunkedEncoding = this.#hasBody && (hasEncoding || !hasLength)
    if (this.chunkedEncoding && !hasEncoding) head += 'Transfer-Encoding: chunked\r\n'
    this.#head = `${head}\r\n`
    this.headersSent = true
  }

  flushHeaders (): void {
    if (this.#head === '' || this.destroyed) return
    const head = this.#head
    this.#head = ''
    this.#connection.socket.write(head, 'latin1')
  }

  write (content: string | Buffer, onTaken?: Taken): boolean {
    if (this.destroyed) return false
    const { socket } = this.#connection
    socket.cork()
    this.flushHeaders()
    const isTaken = this.#frame(content, 'utf8', '', onTaken)
    socket.uncork()
    return isTaken
  }

  /** A text leaves in one write with the head and the end. */
  end (content: string | Buffer, encoding: 'latin1' | 'utf8'): void {
    if (this.destroyed) return
    const { socket, onEnded } = this.#connection
    const last = this.chunkedEncoding ? '0\r\n\r\n' : ''
    if (typeof content === 'string' && content !== '' && this.#hasBody) {
      const head = this.#head
      this.#head = ''
      const body = this.chunkedEncoding
        ? `${Buffer.byteLength(content, encoding).toString(16)}\r\n${content}\r\n${last}`
        : content
      socket.write(head + body, encoding, onEnded)
      return
    }
    socket.cork()
    this.flushHeaders()
    this.#frame(content, encoding, last, onEnded)
    socket.uncork()
  }

  /** @param last what the end of the body adds (RFC 9112 7.1) */
  #frame (content: string | Buffer, encoding: 'latin1' | 'utf8', last: string, onTaken: Taken | undefined): boolean {
    const { socket } = this.#connection
    if (!this.#hasBody || content.length === 0) return socket.write(last, 'latin1', onTaken)
    if (!this.chunkedEncoding) return socket.write(content, encoding, onTaken)
    const length = typeof content === 'string' ? Buffer.byteLength(content, encoding) : content.length
    socket.write(`${length.toString(16)}\r\n`, 'latin1')
    socket.write(content, encoding)
    return socket.write(`\r\n${last}`, 'latin1', onTaken)
  }

  destroy (): void {
    if (this.destroyed) return
    this.destroyed = true
    this.#connection.socket.destroy()
  }

  /** The last byte was handed to the system: the connection may serve another request. */
  finish (): void {
    this.writableFinished = true
    this.close()
  }

  /** The answer is whole, or the connection is gone. */
  close (): void {
    this.destroyed = true
    const [first, others] = [this.#onClose, this.#others]
    this.#onClose = this.#others = undefined
    first?.()
    if (others !== undefined) for (const listener of others) listener()
  }

  on (event: 'close' | 'drain', listener: Listener): void {
    if (event === 'drain') this.#connection.socket.on('drain', listener)
    else this.once(event, listener)
  }

  once (event: 'close' | 'drain', listener: Listener): void {
    if (event === 'drain') this.#connection.socket.once('drain', listener)
    else if (this.#onClose === undefined) this.#onClose = listener
    else (this.#others ??= []).push(listener)
  }

  off (event: 'close' | 'drain', listener: Listener): void {
    if (event === 'drain') this.#connection.socket.off('drain', listener)
    else if (this.#onClose === listener) this.#onClose = undefined
    else if (this.#others?.includes(listener) === true) this.#others.splice(this.#others.indexOf(listener), 1)
  }

  toStream (): Writable {
    return new ResponseStream(this)
  }
}

/** A response as a stream, for bodies that are piped. Its buffer is the socket's. */
class ResponseStream extends Writable {
  readonly #response: LaneResponse

  constructor (response: LaneResponse) {
    super()
    this.#response = response
    response.once('close', () => { if (!response.writableFinished) this.destroy() })
  }

  override _write (content: Buffer, _encoding: string, done: Taken): void {
    if (this.#response.destroyed) done(CLOSED)
    else this.#response.write(content, done)
  }

  override _final (done: Taken): void {
    this.#response.once('close', () => { done(this.#response.writableFinished ? null : CLOSED) })
    this.#response.end('', 'latin1')
  }

  override _destroy (error: Error | null, done: Taken): void {
    if (!this.#response.writableFinished) this.#response.destroy()
    done(error)
  }
}

const CLOSED = new Error('the connection was closed')

let second = 0
let date = ''

/** As `Date` has it, whole seconds. */
function dateNow (): string {
  const now = Math.floor(Date.now() / 1000)
  if (now !== second) {
    second = now
    date = new Date(now * 1000).toUTCString()
  }
  return date
}
