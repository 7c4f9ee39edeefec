// The answer to a request of the lane: what the writer uses of node's ServerResponse, with the same bytes on the wire.
import { STATUS_CODES, validateHeaderName, validateHeaderValue } from 'node:http'
import type { Socket } from 'node:net'
import { Writable } from 'node:stream'
import { atEndOfTurn, dateOfStep } from '../../base/end-of-turn.ts'
import { KINDS, NAME, SPACE, VISIBLE } from '../../base/field-characters.ts'
import { memoryFor, put, send } from '../../base/write-memory.ts'
import type { Outgoing } from '../outgoing.ts'
import { HeadLines } from './head-lines.ts'

/** The connection of a response. */
export interface ResponseConnection {
  readonly socket: Socket
  /** the connection ends with this answer */
  readonly isClosing: boolean
  /** seconds that the client is promised between two requests */
  readonly keepAlive: number
  /** called when the system has taken a response's last bytes, or never will */
  readonly onEnded: Taken
}

type Listener = () => void
/** Called when the system has taken the bytes, or never will. */
type Taken = (error?: Error | null) => void

export class LaneResponse implements Outgoing {
  readonly #connection: ResponseConnection
  #status = 0
  /** names and values in turns, of a head that is written and not sent */
  #fields: readonly string[] | undefined
  #hasDate = false
  /** lines behind the fields */
  #lastLines = ''
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
    let connection: string | undefined
    let [hasLength, hasEncoding, hasDate] = [false, false, false]
    for (let i = 0; i < fields.length; i += 2) {
      const name = fields[i]!
      const value = fields[i + 1]!
      if (!lines.has(name, value, i) && !isField(name, value)) {
        validateHeaderName(name)
        validateHeaderValue(name, value)
        this.writeHead(status, toTexts(fields))
        return
      }
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
    this.#fields = fields
    this.#status = status
    this.#hasDate = hasDate
    const { isClosing, keepAlive } = this.#connection
    this.#keepsAlive = connection === undefined ? !isClosing : !/close/i.test(connection)
    this.#hasBody = status >= 200 && status !== 204 && status !== 304
    this.chunkedEncoding = this.#hasBody && (hasEncoding || !hasLength)
    this.#lastLines = connection !== undefined ? '' : isClosing ? 'Connection: close\r\n' : keepAliveLines(keepAlive)
    if (this.chunkedEncoding && !hasEncoding) this.#lastLines += 'Transfer-Encoding: chunked\r\n'
    this.headersSent = true
  }

  /** Most bytes of the head that is not sent, whatever its encoding. */
  get #headLength (): number {
    const fields = this.#fields
    if (fields === undefined) return 0
    let length = MOST_OWN_LINES
    for (let i = 0; i < fields.length; i++) length += MOST_OF_CHARACTER * fields[i]!.length + OF_LINE
    return length
  }

  /** @returns offset behind the head */
  #putHead (bytes: Buffer, encoding: 'latin1' | 'utf8'): number {
    const fields = this.#fields
    if (fields === undefined) return 0
    this.#fields = undefined
    let at = put(bytes, 0, startLine(this.#status))
    const length = lines.write(fields)
    if (encoding === 'latin1') at += lines.bytes.copy(bytes, at, 0, length)
    else at += bytes.write(lines.bytes.toString('latin1', 0, length), at, encoding)
    if (!this.#hasDate) at = put(bytes, at, dateLine())
    at = put(bytes, at, this.#lastLines)
    bytes[at++] = CR
    bytes[at++] = LF
    return at
  }

  flushHeaders (): void {
    if (this.#fields === undefined || this.destroyed) return
    const { socket } = this.#connection
    const bytes = memoryFor(socket, this.#headLength)
    send(socket, bytes, this.#putHead(bytes, 'latin1'))
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

  /** A text leaves in one write with the head and the end. @param encoding also of the head, as in node's */
  end (content: string | Buffer, encoding: 'latin1' | 'utf8'): void {
    if (this.destroyed) return
    const { socket, onEnded } = this.#connection
    const last = this.chunkedEncoding ? '0\r\n\r\n' : ''
    if (typeof content === 'string' && content !== '' && this.#hasBody) {
      const body = this.chunkedEncoding
        ? `${Buffer.byteLength(content, encoding).toString(16)}\r\n${content}\r\n${last}`
        : content
      const bytes = memoryFor(socket, this.#headLength + Buffer.byteLength(body, encoding))
      const at = this.#putHead(bytes, encoding)
      send(socket, bytes, at + bytes.write(body, at, encoding))
      // Mostly the system has taken all of it by now: node's callback would cost 300 bytes, and a turn of its queue.
      if (socket.writableLength === 0 && socket.writable) atEndOfTurn(onEnded)
      else socket.write('', 'latin1', onEnded)
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

const [CR, LF] = [0x0D, 0x0A] as const
/** Bytes beside a name or a value. */
const OF_LINE = 2
/** Bytes of UTF-8 that a character of Latin-1 takes, as all of a head are. */
const MOST_OF_CHARACTER = 2
/** Bytes of the lines that are not fields. */
const MOST_OWN_LINES = 512

const startLines = new Map<number, string>()

function startLine (status: number): string {
  let line = startLines.get(status)
  if (line === undefined) startLines.set(status, line = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'unknown'}\r\n`)
  return line
}

let seconds = -1
let ofSeconds = ''

function keepAliveLines (timeout: number): string {
  if (timeout !== seconds) {
    seconds = timeout
    ofSeconds = `Connection: keep-alive\r\nKeep-Alive: timeout=${timeout}\r\n`
  }
  return ofSeconds
}

let second = 0
let date = ''

/** Whole seconds, as the field has it. */
function dateLine (): string {
  const now = Math.floor(dateOfStep() / 1000)
  if (now !== second) {
    second = now
    date = `Date: ${new Date(now * 1000).toUTCString()}\r\n`
  }
  return date
}

/** Of all responses: what the last head had need not be looked at again. */
const lines = new HeadLines()

/** Whether node takes them without any doubt. */
function isField (name: string, value: unknown): value is string {
  return name !== '' && isOf(name, NAME) && typeof value === 'string' && isOf(value, VISIBLE | SPACE)
}

function isOf (text: string, kind: number): boolean {
  for (let i = 0; i < text.length; i++) {
    if ((KINDS[text.charCodeAt(i)]! & kind) === 0) return false
  }
  return true
}

/** Fields of a plugin without types, which may give a list, that node sends line by line, or a number. */
function toTexts (fields: readonly unknown[]): string[] {
  const texts: string[] = []
  for (let i = 0; i < fields.length; i += 2) {
    const value = fields[i + 1]
    for (const one of Array.isArray(value) ? value : [value]) texts.push(String(fields[i]), String(one))
  }
  return texts
}
