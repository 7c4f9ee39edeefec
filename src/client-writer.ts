// Writes one answer to one client: JSON, bytes, or events with back-pressure and pings. The only file that touches the response.
import { type IncomingMessage, type ServerResponse, validateHeaderName, validateHeaderValue } from 'node:http'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { corsHeaders } from './cors.ts'
import { type ErrorReply, GatewayError, type Style } from './errors.ts'
import type { Exchange } from './exchange.ts'
import type { BytesReply, Headers, JsonReply } from './reply.ts'
import { SseEvent } from './sse.ts'

/** protocol.md H3 */
const STREAM_HEADERS: Headers = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no'
}

const PINGS: Readonly<Record<Style, Buffer>> = {
  messages: Buffer.from('event: ping\ndata: {"type":"ping"}\n\n'),
  chat: Buffer.from(': ping\n\n')
}

/** Bytes written at once, of a body that is longer. */
const SLICE = 256 * 1024

/** Bytes of an unread request body that are cheaper to swallow than a new connection. */
const SMALL_BODY = 64 * 1024
/** How long a client that is still sending gets to read its error. */
const DISCARD_MS = 2000

export interface WriterLimits {
  readonly write_stall: number
  readonly ping: number
}

export class ClientWriter {
  readonly #req: IncomingMessage
  readonly #res: ServerResponse
  readonly #exchange: Exchange
  readonly #limits: WriterLimits
  #pingTimer: NodeJS.Timeout | undefined
  #stallTimer: NodeJS.Timeout | undefined
  #onDrain: (() => void) | undefined
  #isBrokenOff = false

  constructor (req: IncomingMessage, res: ServerResponse, exchange: Exchange, limits: WriterLimits) {
    this.#req = req
    this.#res = res
    this.#exchange = exchange
    this.#limits = limits
  }

  /** Whether errors must go into the stream: its head is out. */
  get isStreaming (): boolean {
    return this.#pingTimer !== undefined
  }

  /** The bytes came to an early end, and with them the connection: the client did not leave. */
  get isBrokenOff (): boolean {
    return this.#isBrokenOff
  }

  get hasHead (): boolean {
    return this.#res.headersSent
  }

  json (reply: JsonReply | ErrorReply, text = encode(reply)): Promise<void> {
    const joined = this.#exchange.answerBlobs?.join(text)
    if (joined instanceof Array) {
      this.#head(reply.status, { 'content-type': 'application/json', 'cache-control': 'no-store', ...reply.headers, 'content-length': String(joined.reduce((sum, { length }) => sum + length, 0)) })
      return this.#slices(joined)
    }
    const length = Buffer.byteLength(text)
    this.#head(reply.status, { 'content-type': 'application/json', 'cache-control': 'no-store', ...reply.headers, 'content-length': String(length) })
    if (hasMuchUnread(this.#req)) return this.#endAndDiscard(text)
    // Head and body in one string leave in one packet. Text, not bytes, is what node joins to the head; ASCII needs no encoding.
    if (text.length <= SLICE) return this.#end(text, length === text.length ? 'latin1' : 'utf8')
    return this.#slices([Buffer.from(text)])
  }

  async bytes (reply: BytesReply): Promise<void> {
    if (reply.bytes.errored !== null) throw reply.bytes.errored     // before the head, which then is that of an error
    this.#head(reply.status, reply.headers)
    reply.bytes.once('error', () => { this.#isBrokenOff = true })   // heard before `pipeline` destroys the response for it
    const stall = this.#watchStall(reply.bytes)
    try {
      await pipeline(reply.bytes, this.#res)
    } finally {
      stall()
    }
  }

  /** Sends the head of a stream, and from now on a ping whenever it is silent for too long. */
  startStream (headers: Headers = {}): void {
    if (this.isStreaming) return
    this.#head(200, { ...STREAM_HEADERS, ...headers })
    this.#pingTimer = setTimeout(() => { this.ping() }, this.#limits.ping)
  }

  /** One write for all the events of one upstream chunk. @returns false: wait for `onDrain` */
  events (events: readonly SseEvent[], onDrain: () => void): boolean {
    if (events.length === 0) return true                      // nothing to wait for; what is waited for stays so
    this.#pingTimer!.refresh()
    if (this.#exchange.times.firstByte === 0) this.#exchange.times.firstByte = performance.now()
    if (this.#write(SseEvent.join(events))) return true
    this.#waitForDrain(onDrain)
    return false
  }

  /** A large event in slices: each that is taken shows that the client has not left. */
  #write (bytes: Buffer): boolean {
    if (bytes.length <= SLICE) return this.#res.write(bytes)
    let isTaken = true
    for (let at = 0; at < bytes.length; at += SLICE) {
      isTaken = this.#res.write(bytes.subarray(at, at + SLICE), () => { this.#stallTimer?.refresh() })
    }
    return isTaken
  }

  /** The last events, and the end. Resolves when the client's socket has taken all of it. */
  async endStream (events: readonly SseEvent[]): Promise<void> {
    clearTimeout(this.#pingTimer)
    await this.#end(SseEvent.join(events))
  }

  /** Nobody is there any more: lets go of timers and of the socket. */
  abandon (): void {
    clearTimeout(this.#pingTimer)
    clearTimeout(this.#stallTimer)
    if (!this.#res.writableFinished) this.#res.destroy()
  }

  #head (status: number, headers: Headers): void {
    const { id, snapshot, answerHeaders, received } = this.#exchange
    this.#exchange.status = status
    const all: string[] = ['x-request-id', id, 'request-id', id, 'x-gateway-config-generation', String(snapshot.generation)]
    for (const name in answerHeaders) all.push(name, answerHeaders[name]!)
    for (const name in headers) all.push(name, headers[name]!)
    const cors = headers['access-control-allow-origin'] === undefined ? corsHeaders(received.headers) : undefined
    for (const name in cors) all.push(name, cors[name]!)
    if (hasMuchUnread(this.#req)) all.push('connection', 'close')
    this.#res.writeHead(status, all)
  }

  /** Resolves when the last byte was handed to the system; rejects with what ended the exchange when the client is gone. */
  #end (last: string | Buffer, encoding: 'latin1' | 'utf8' = 'utf8'): Promise<void> {
    if (this.#exchange.times.firstByte === 0) this.#exchange.times.firstByte = performance.now()
    const res = this.#res
    return new Promise((resolve, reject) => {
      // `close` comes on every path, right behind `finish` where the answer is whole.
      const closed = (): void => {
        clearTimeout(this.#stallTimer)
        if (res.writableFinished) resolve()
        else reject(this.#exchange.abortReason ?? new Error('the connection was closed'))
      }
      if (res.destroyed) { closed(); return }
      res.once('close', closed)
      res.end(last, encoding)
      // What the system has taken already can't stall.
      if (res.writableLength > 0) this.#stallTimer ??= this.#startStall()
    })
  }

  async #endAndDiscard (text: string): Promise<void> {
    this.#res.write(text)
    await discard(this.#req, this.#res)
    await this.#end('')
  }

  /** A long body in pieces, so that a slow client is seen to make progress and a stalled one not to. */
  async #slices (body: readonly Buffer[]): Promise<void> {
    for (const slice of slicesOf(body)) {
      if (this.#res.write(slice)) continue
      if (this.#res.destroyed) throw this.#exchange.abortReason           // there will be no `close` any more
      await new Promise<void>((resolve, reject) => {
        const left = (): void => { reject(this.#exchange.abortReason) }
        this.#res.once('close', left)
        this.#waitForDrain(() => { this.#res.off('close', left); resolve() })
      })
    }
    await this.#end('')
  }

  #waitForDrain (onDrain: () => void): void {
    this.#onDrain = onDrain
    this.#res.once('drain', () => { this.#drained() })
    this.#stallTimer ??= this.#startStall()
  }

  /** At an event boundary, as every write here. */
  ping (): void {
    // A client that does not take what is there gets no ping on top of it.
    if (!this.#res.writableNeedDrain) this.#res.write(PINGS[this.#exchange.route.style])
    this.#pingTimer!.refresh()
  }

  /** A client that takes nothing for `write_stall` has left. */
  #startStall (): NodeJS.Timeout {
    return setTimeout(() => {
      // Said here: a socket that we destroy ourselves does not look like one that the client closed.
      this.#exchange.abort(new GatewayError('client_closed'))
      this.#res.destroy()
    }, this.#limits.write_stall)
  }

  #drained (): void {
    clearTimeout(this.#stallTimer)
    this.#stallTimer = undefined
    const resume = this.#onDrain
    this.#onDrain = undefined
    resume?.()
  }

  /** Back-pressure on piped bytes: the stall timer runs while the response is full. */
  #watchStall (bytes: Readable): () => void {
    const check = (): void => {
      if (this.#res.writableNeedDrain) this.#stallTimer ??= this.#startStall()
    }
    const moved = (): void => {
      clearTimeout(this.#stallTimer)
      this.#stallTimer = undefined
    }
    bytes.on('pause', check)
    this.#res.on('drain', moved)
    return () => {
      bytes.off('pause', check)
      this.#res.off('drain', moved)
      clearTimeout(this.#stallTimer)
    }
  }
}

function * slicesOf (pieces: readonly Buffer[]): Generator<Buffer> {
  for (const piece of pieces) {
    for (let at = 0; at < piece.length; at += SLICE) yield piece.subarray(at, at + SLICE)
  }
}

/**
 * The text of a JSON answer.
 * @throws {Error} a plugin made what can't be sent. To be found out before it is settled: then nothing is charged.
 */
export function encode ({ status, headers, body }: JsonReply | ErrorReply): string {
  const text = JSON.stringify(body) as string | undefined
  if (text === undefined || !(status >= 200 && status <= 599)) throw new TypeError('a reply needs a status from 200 to 599 and a body that is JSON')
  for (const name in headers) { validateHeaderName(name); validateHeaderValue(name, headers[name]!) }
  return text
}

/**
 * Of a client that was answered and is still sending. Closing at once would reset the connection, and the answer with it, before
 * the client reads it (RFC 9112 9.6): so what it sends is thrown away for a moment first.
 */
export async function discard (req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, DISCARD_MS)
  req.resume().once('close', resolve).once('end', resolve)
  res.once('close', resolve)
  await promise
  clearTimeout(timer)
}

/** The client is still sending, and much: the connection can't be used again. */
export function hasMuchUnread ({ complete, headers }: IncomingMessage): boolean {
  return !complete && (headers['transfer-encoding'] !== undefined || headers.expect !== undefined || Number(headers['content-length'] ?? 0) > SMALL_BODY)
}
