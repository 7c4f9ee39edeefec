// Writes one answer to one client: JSON, bytes, or events with back-pressure and pings. The only file that touches the
// response.
import { validateHeaderName, validateHeaderValue, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { atEndOfTurn } from '../base/end-of-turn.ts'
import { piecesOf } from '../base/pieces.ts'
import { Alarm } from '../base/wheel.ts'
import { corsHeaders } from './cors.ts'
import { GatewayError, isGatewayError } from '../errors.ts'
import type { ErrorReply, BytesReply, Headers, JsonReply } from '../core/reply.ts'
import type { Exchange } from '../core/exchange.ts'
import type { TemporaryFile } from '../core/files.ts'
import { SseEvent } from '../core/sse.ts'
import type { Outgoing } from './outgoing.ts'
import type { SendListener } from '../pipeline/client.ts'
import { encode } from '../pipeline/encode-reply.ts'
import { type ExchangeRecord, ownTime, rounded, upstreamTime } from '../core/record.ts'

/** src/README.md#stream-headers */
const STREAM_HEADERS: Headers = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no'
}

/** Bytes per write of a longer body. */
const SLICE = 256 * 1024

/**
 * Milliseconds that a slice may take: for a slower client the rest of the body is moved to the disk, so that it does
 * not occupy memory.
 */
const SOON_MS = 1000

/** Most bytes of an unread request body that are discarded for less than a new connection costs. */
const SMALL_BODY = 64 * 1024
/** Milliseconds that a client which is still sending gets to read its error. */
const DISCARD_MS = 2000

export interface WriterLimits {
  readonly write_stall: number
  readonly ping: number
}

export class ClientWriter {
  readonly #req: IncomingMessage | undefined
  readonly #res: Outgoing
  readonly #exchange: Exchange
  readonly #limits: WriterLimits
  /** of a stream, once its head was sent */
  #silence: Alarm | undefined
  /** once the client was waited for; set while it is */
  #stall: Alarm | undefined
  #onDrain: (() => void) | undefined
  #isBrokenOff = false
  /** a stream's chunks get their frames here: its head was written */
  #isFramed = false
  /** what is sent at the end of the turn, and ends the answer */
  #last: string | Buffer = ''
  #encoding: 'latin1' | 'utf8' = 'utf8'
  /** of the end, while it is not known how that went */
  #listener: SendListener | undefined

  /** @param req undefined: all of it was read */
  constructor (req: IncomingMessage | undefined, res: Outgoing, exchange: Exchange, limits: WriterLimits) {
    this.#req = req
    this.#res = res
    this.#exchange = exchange
    this.#limits = limits
  }

  /** Whether errors must go into the stream, because its head was sent. */
  get isStreaming (): boolean {
    return this.#silence !== undefined
  }

  /** true: the connection was cut because the source of the bytes broke off; the client did not leave */
  get isBrokenOff (): boolean {
    return this.#isBrokenOff
  }

  get hasHead (): boolean {
    return this.#res.headersSent
  }

  json (reply: ErrorReply): Promise<void> {
    return new Promise((resolve, reject) => {
      this.send(reply, encode(reply), { onSent: resolve, onUnsent: reject })
    })
  }

  /** Keeps only the bytes it needs, so no reply stays in memory for a slow client. @throws before the head */
  send (
    { status, headers }: JsonReply | ErrorReply, encoded: string | readonly Buffer[], listener: SendListener
  ): void {
    if (typeof encoded !== 'string') { this.#long(status, headers, encoded, listener); return }
    const joined = this.#exchange.answerBlobs?.join(encoded)
    if (typeof joined === 'object') this.#long(status, headers, joined.pieces, listener)
    else if (encoded.length <= SLICE) this.#short(status, headers, encoded, listener)
    else this.#long(status, headers, piecesOf(encoded, SLICE), listener)
  }

  /**
   * Head and body in one string leave in one packet: node joins a text to the head, not bytes. ASCII needs no encoding.
   */
  #short (status: number, headers: Headers, text: string, listener: SendListener): void {
    const length = Buffer.byteLength(text)
    this.#jsonHead(status, headers, length)
    const unread = this.#unread
    if (unread !== undefined) tell(this.#endAndDiscard(text, unread), listener)
    else this.#finish(text, length === text.length ? 'latin1' : 'utf8', listener)
  }

  #long (status: number, headers: Headers, pieces: readonly Buffer[], listener: SendListener): void {
    const rest = new Rest(pieces)
    this.#jsonHead(status, headers, rest.length)
    tell(this.#allSlices(rest), listener)
  }

  async #allSlices (rest: Rest): Promise<void> {
    const unread = this.#unread
    unread?.resume()
    await this.#slices(rest)
    if (unread !== undefined) await this.#endAndDiscard('', unread)
    else await this.#end('')
  }

  async bytes (reply: BytesReply): Promise<void> {
    if (reply.bytes.errored !== null) throw reply.bytes.errored     // before the head, which becomes that of an error
    this.#head(reply.status, reply.headers)
    reply.bytes.once('error', () => {
      this.#isBrokenOff = true
    }) // before `pipeline` destroys the response
    const to = this.#res.toStream?.() ?? this.#res as ServerResponse
    const stall = this.#watchStall(reply.bytes, to)
    try {
      await pipeline(reply.bytes, to)
    } finally {
      stall()
    }
  }

  /** Sends the head of a stream, and from then on a ping after each silence. */
  startStream (headers: Headers = {}): void {
    if (this.isStreaming) return
    this.#head(200, { ...STREAM_HEADERS, ...headers })
    this.#silence = new Alarm(() => { this.ping() })
    this.#silence.set(this.#limits.ping)
  }

  /** One write for all the events of one upstream chunk. @returns false: wait for `onDrain` */
  events (events: readonly SseEvent[], onDrain: () => void): boolean {
    if (events.length === 0) return true                      // no write: an earlier wait goes on
    this.#silence!.set(this.#limits.ping)
    if (this.#exchange.record.first_byte_at === 0) this.#exchange.record.first_byte_at = performance.now()
    if (this.#write(SseEvent.join(events))) return true
    this.#waitForDrain(onDrain)
    return false
  }

  /** Large events in slices: each slice taken shows that the client has not left. */
  #write (events: string | Buffer): boolean {
    if (events.length <= SLICE) return this.#writeChunk(events)
    const bytes = typeof events === 'string' ? Buffer.from(events) : events
    let isTaken = true
    for (let at = 0; at < bytes.length; at += SLICE) {
      isTaken = this.#writeChunk(bytes.subarray(at, at + SLICE), () => {
        if (this.#stall?.isSet === true) this.#startStall()
      })
    }
    return isTaken
  }

  /**
   * Writes to the socket, past node's own framing: that takes four writes for a chunk (RFC 9112 7.1), and a turn of the
   * event loop to join them again. The head is node's, and leaves with the first chunk.
   */
  #writeChunk (content: string | Buffer, onTaken?: () => void): boolean {
    const res = this.#res
    const { socket } = res
    if (socket === null) return res.write(content, onTaken)   // behind an earlier answer on this connection
    if (!this.#isFramed) return this.#writeFirst(socket, content, onTaken)
    if (!res.chunkedEncoding) return socket.write(content, onTaken)
    const isText = typeof content === 'string'
    const length = isText ? Buffer.byteLength(content) : content.length
    const head = `${length.toString(16)}\r\n`
    if (isText) return socket.write(`${head}${content}\r\n`, length === content.length ? 'latin1' : 'utf8', onTaken)
    socket.cork()
    socket.write(head, 'latin1')
    socket.write(content)
    const isTaken = socket.write('\r\n', 'latin1', onTaken)
    socket.uncork()
    return isTaken
  }

  #writeFirst (socket: Socket, content: string | Buffer, onTaken?: () => void): boolean {
    this.#isFramed = true
    socket.cork()
    this.#res.flushHeaders()
    const isTaken = this.#writeChunk(content, onTaken)
    socket.uncork()
    return isTaken
  }

  /** Sends the last events, and the end. Resolves when the client's socket has taken all of it. */
  async endStream (events: readonly SseEvent[]): Promise<void> {
    this.#silence?.off()
    await this.#end(SseEvent.join(events))
  }

  /** The client is gone: releases timers and the socket. */
  abandon (): void {
    this.#silence?.off()
    this.#stall?.off()
    if (!this.#res.writableFinished) this.#res.destroy()
  }

  #jsonHead (status: number, headers: Headers, length: number): void {
    this.#head(status, { 'content-type': 'application/json', 'cache-control': 'no-store', ...headers,
      'content-length': String(length) })
  }

  #head (status: number, headers: Headers): void {
    const { id, snapshot, answerHeaders, received, record } = this.#exchange
    record.status = status
    const all: string[] = ['x-request-id', id, 'request-id', id, 'x-gateway-config-generation',
      String(snapshot.generation), 'server-timing', timing(record)]
    for (const name in answerHeaders) { all.push(name, answerHeaders[name]!) }
    for (const name in headers) { all.push(name, headers[name]!) }
    const cors = headers['access-control-allow-origin'] === undefined ? corsHeaders(received.headers) : undefined
    for (const name in cors) all.push(name, cors[name]!)
    if (this.#unread !== undefined) all.push('connection', 'close')
    try {
      this.#res.writeHead(status, all)
    } catch (thrown) {
      if (!this.#dropInvalidHeaders()) throw thrown
      this.#head(status, headers)
    }
  }

  /**
   * Removes invalid headers that a plugin has set: the answer, which may be paid for, is sent without them.
   * @returns whether there was one
   */
  #dropInvalidHeaders (): boolean {
    const { id, answerHeaders, snapshot } = this.#exchange
    const invalid = Object.entries(answerHeaders)
      .filter(([name, value]) => !isHeader(name, value))
      .map(([name]) => name)
    for (const name of invalid) delete answerHeaders[name]
    if (invalid.length > 0) {
      snapshot.services.log.error({ request_id: id, headers: invalid },
        'a plugin has set headers that cannot be sent: the answer goes out without them')
    }
    return invalid.length > 0
  }

  /**
   * Resolves when the last byte was handed to the system; rejects with the exchange's abort reason when the client is
   * gone.
   */
  #end (last: string | Buffer): Promise<void> {
    return new Promise((resolve, reject) => { this.#finish(last, 'utf8', { onSent: resolve, onUnsent: reject }) })
  }

  /** Sends the last bytes. */
  #finish (last: string | Buffer, encoding: 'latin1' | 'utf8', listener: SendListener): void {
    if (this.#exchange.record.first_byte_at === 0) this.#exchange.record.first_byte_at = performance.now()
    this.#listener = listener
    if (this.#res.destroyed) { this.#closed(); return }
    this.#last = last
    this.#encoding = encoding
    // `close` comes on every path, right after `finish` where the answer is whole.
    this.#res.once('close', () => { this.#closed() })
    atEndOfTurn(ClientWriter.#atEnd, this)
  }

  /** One function for all: a closure would be made for each answer. */
  static #atEnd (writer: ClientWriter): void {
    writer.#endNow()
  }

  #endNow (): void {
    const res = this.#res
    const last = this.#last
    this.#last = ''
    if (res.destroyed) return                                 // `close` tells
    try {
      res.end(last, this.#encoding)
    } catch (thrown) {
      this.#tellUnsent(thrown)
      return
    }
    // Bytes that the system has taken can't stall.
    if (res.writableLength > 0) this.#awaitClient()
  }

  #closed (): void {
    this.#stall?.off()
    if (!this.#res.writableFinished) {
      this.#tellUnsent(this.#exchange.abortReason ?? new Error('the connection was closed'))
      return
    }
    const listener = this.#listener
    this.#listener = undefined
    listener?.onSent()
  }

  #tellUnsent (thrown: unknown): void {
    const listener = this.#listener
    this.#listener = undefined
    listener?.onUnsent(thrown)
  }

  /** The request, where so much of it is unread that the connection can't be reused. */
  get #unread (): IncomingMessage | undefined {
    return this.#req !== undefined && hasMuchUnread(this.#req) ? this.#req : undefined
  }

  async #endAndDiscard (text: string, unread: IncomingMessage): Promise<void> {
    this.#res.write(text)
    await discard(unread, this.#res)
    await this.#end('')
  }

  /**
   * A long body in slices, so that a slow client is told from a stalled one. For a slow one the rest is moved to the
   * disk.
   */
  async #slices (rest: Rest): Promise<void> {
    for (let slice = rest.next(); slice !== undefined; slice = rest.next()) {
      const taken = this.#writeSlice(slice)
      if (taken === undefined) continue
      if (rest.length <= SLICE || await isSoon(taken)) { await taken; continue }
      await this.#fromDisk(rest, taken)
    }
  }

  /** @returns ends when the client has taken it; undefined: at once. Rejects with the exchange's abort reason. */
  #writeSlice (slice: Buffer): Promise<void> | undefined {
    if (this.#res.write(slice)) return undefined
    const taken = new Promise<void>((resolve, reject) => {
      const left = (): void => { reject(this.#exchange.abortReason ?? new Error('the connection was closed')) }
      if (this.#res.destroyed) { left(); return }             // `close` was emitted before
      this.#res.once('close', left)
      this.#waitForDrain(() => { this.#res.off('close', left); resolve() })
    })
    taken.catch(() => {})                                     // awaited later
    return taken
  }

  /** Without room on the disk the rest stays in memory. @param taken ends with the slice before */
  async #fromDisk (rest: Rest, taken: Promise<void>): Promise<void> {
    const file = await this.#putAside(rest)
    try {
      await taken
      if (file !== undefined) for await (const slice of file.read()) await this.#writeSlice(slice)
    } finally {
      await file?.remove()
    }
  }

  async #putAside (rest: Rest): Promise<TemporaryFile | undefined> {
    const { temporary, log } = this.#exchange.snapshot.services
    let file: TemporaryFile | undefined
    try {
      file = await temporary.create()
      for (const slice of rest.all()) await file.add(slice)
      await file.close()
      rest.drop()
      this.#exchange.answerPart?.give()
      return file
    } catch (err) {
      if (!isGatewayError(err)) {
        log.warn({ request_id: this.#exchange.id, err },
          'an answer could not be put on disk for a slow client: it stays in memory')
      }
      await file?.remove()
      return undefined
    }
  }

  /** what chunks are written to */
  get #target (): Socket | Outgoing {
    return this.#isFramed ? this.#res.socket ?? this.#res : this.#res
  }

  #waitForDrain (onDrain: () => void): void {
    this.#onDrain = onDrain
    this.#target.once('drain', () => { this.#drained() })
    this.#awaitClient()
  }

  /** Sends a ping at an event boundary, as every write here is. */
  ping (): void {
    // Behind unsent bytes a ping would be useless.
    if (!this.#target.writableNeedDrain) this.#write(this.#ping())
    this.#silence!.set(this.#limits.ping)
  }

  /** A plugin's error must not pass the alarm that calls it: the style's ping does as well. */
  #ping (): string | Buffer {
    const { ownEvents, route: { style }, snapshot, id } = this.#exchange
    if (ownEvents === undefined) return style.ping
    try {
      const events = ownEvents.ping()
      return events === undefined ? style.ping : SseEvent.join(events)
    } catch (err) {
      snapshot.services.log.error({ request_id: id, err }, 'a plugin threw while it kept a stream open')
      return style.ping
    }
  }

  /** From now on, where it does not already, the client has `write_stall` to take something. */
  #awaitClient (): void {
    if (this.#stall?.isSet !== true) this.#startStall()
  }

  /** Aborts a client that has taken nothing for `write_stall`. */
  #startStall (): void {
    this.#stall ??= new Alarm(() => {
      // Aborted here: destroying a socket does not look like a close by the client.
      this.#exchange.abort(new GatewayError('client_closed'))
      this.#res.destroy()
    })
    this.#stall.set(this.#limits.write_stall)
  }

  #drained (): void {
    this.#stall?.off()
    const resume = this.#onDrain
    this.#onDrain = undefined
    resume?.()
  }

  /** Runs the stall's alarm while piped bytes are held back by the client, and for what is left at their end. */
  #watchStall (bytes: Readable, to: Writable): () => void {
    const check = (): void => {
      if (to.writableNeedDrain) this.#awaitClient()
    }
    const checkRest = (): void => {
      if (to.writableLength > 0) this.#awaitClient()
    }
    const moved = (): void => { this.#stall?.off() }
    bytes.on('pause', check).once('end', checkRest)
    to.on('drain', moved)
    return () => {
      bytes.off('pause', check).off('end', checkRest)
      to.off('drain', moved)
      this.#stall?.off()
    }
  }
}

/** The part of a body that is still to be written. */
class Rest {
  #pieces: Buffer[]

  constructor (pieces: readonly Buffer[]) {
    this.#pieces = [...pieces]
  }

  /** bytes */
  get length (): number {
    return this.#pieces.reduce((sum, { length }) => sum + length, 0)
  }

  next (): Buffer | undefined {
    const [first] = this.#pieces
    if (first === undefined) return undefined
    if (first.length > SLICE) this.#pieces[0] = first.subarray(SLICE)
    else this.#pieces.shift()
    return first.subarray(0, SLICE)
  }

  /** The remaining slices, without taking them out. */
  *all (): Generator<Buffer> {
    for (const piece of this.#pieces) {
      for (let at = 0; at < piece.length; at += SLICE) { yield piece.subarray(at, at + SLICE) }
    }
  }

  drop (): void {
    this.#pieces = []
  }
}

function tell (ended: Promise<void>, listener: SendListener): void {
  ended.then(() => { listener.onSent() }, (thrown: unknown) => { listener.onUnsent(thrown) })
}

/** Whether a slice is taken within the time that a reading client needs. */
async function isSoon (taken: Promise<void>): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const timer = setTimeout(resolve, SOON_MS, false)
  taken.then(() => { resolve(true) }, () => { resolve(true) })
  try {
    return await promise
  } finally {
    clearTimeout(timer)
  }
}

/**
 * Discards the rest of a request for a moment after its answer. Closing at once would reset the connection, and the
 * answer with it, before the client reads it (RFC 9112 9.6).
 */
export async function discard (req: IncomingMessage, res: Pick<Outgoing, 'once'>): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, DISCARD_MS)
  req.resume().once('close', resolve).once('end', resolve)
  res.once('close', resolve)
  await promise
  clearTimeout(timer)
}

/** Where the time went until the head, in milliseconds (W3C Server Timing). */
function timing (record: ExchangeRecord): string {
  const now = performance.now()
  const queue = record.queue_ms === 0 ? NO_QUEUE : `queue;dur=${rounded(record.queue_ms)}, upstream;dur=`
  return `${queue}${rounded(upstreamTime(record, now))}, own;dur=${rounded(ownTime(record, now))}`
}

const NO_QUEUE = 'queue;dur=0, upstream;dur='

/** Whether so much of the request is unread that the connection can't be reused. */
export function hasMuchUnread ({ complete, headers }: IncomingMessage): boolean {
  return !complete &&
    (headers['transfer-encoding'] !== undefined || headers.expect !== undefined ||
      Number(headers['content-length'] ?? 0) > SMALL_BODY)
}

function isHeader (name: string, value: string): boolean {
  try {
    validateHeaderName(name)
    validateHeaderValue(name, value)
    return true
  } catch {
    return false
  }
}
