// One request to an upstream, by the fast lane or through undici, as bytes: exactly one of `onEnd` and `onFailure` is
// called, once, and nothing after it.
import type { IncomingHttpHeaders } from 'node:http'
import { getDefaultHighWaterMark, type Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type { Dispatcher } from 'undici'
import type { BodyPieces } from '../../core/body-memory.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
import { RACE_MS } from './connections.ts'
import type { LaneHandler, UsedConnection } from './lane/lane-call.ts'
import { Alarm } from '../../base/wheel.ts'
import { Deadline } from './deadline.ts'
import { failureOf, NotConnected } from './connect.ts'
import { type Coding, codingOf, Inflater } from './inflate.ts'
import type { Upstream } from '../../core/upstream.ts'
import { connectionsOf } from '../pool.ts'

export interface CallRequest {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** pieces are written one by one, so that other events pass between them */
  readonly body: string | BodyPieces | SizedBody
  /** true: it makes a paid item, such as a video, so it is not repeated where it may have been executed */
  readonly once?: boolean
}

/** A body that is read while it is sent. @throws {Error} by a read: the call fails as `reset` */
export interface SizedBody extends AsyncIterable<Buffer> {
  /** bytes */
  readonly length: number
}

export interface CallListener {
  onHead (status: number, headers: IncomingHttpHeaders): void
  /** @param bytes all that came of the body with one read of the socket */
  onData (bytes: Buffer): void
  onEnd (): void
  onFailure (failure: UpstreamFailure): void
}

/** Milliseconds that a request may wait on an open connection: it should be written at once. */
const STUCK_MS = 250

/** Bytes that end the frame of a chunk (RFC 9112 7.1). */
const CHUNK_END = 2

/** Bytes of a large body that are written in one turn of the event loop. */
const TURN_BYTES = 512 * 1024

export class UpstreamCall implements LaneHandler {
  readonly #upstream: Upstream
  readonly #request: CallRequest
  readonly #listener: CallListener
  #controller: Dispatcher.DispatchController | undefined
  /** of the present phase */
  readonly #alarm: Alarm<UpstreamCall>
  /** kind of the failure when it rings; undefined: writing has not begun */
  #late: 'connect_timeout' | 'first_byte_timeout' | 'idle_timeout' | undefined
  #lateMs = 0
  readonly #deadline: Deadline<UpstreamCall>
  #over = false
  #hasDeadline = false
  #hasHead = false
  /** the connection that it is written to */
  #connection: UsedConnection | undefined
  /** other requests were written to it before */
  #isReused = false
  /** bytes received on it before */
  #bytesBefore = 0
  /** `performance.now()`, in whole milliseconds */
  #writtenAt = 0
  #hasStarted = false
  #isAgain = false
  /** decoder of a compressed answer */
  #inflater: Inflater | undefined
  #isPaused = false
  /** chunks of the read that is being parsed */
  #chunks: Buffer[] | undefined
  /** failure to be reported when the bytes before it are decoded */
  #broken: UpstreamFailure | undefined
  /** timeout of the first byte */
  #beginAlarm: Alarm<UpstreamCall> | undefined

  constructor (upstream: Upstream, request: CallRequest, listener: CallListener) {
    this.#upstream = upstream
    this.#request = request
    this.#listener = listener
    const options = this.#dispatchOptions()                   // may throw: before any timer
    const now = performance.now()
    this.#deadline = new Deadline<UpstreamCall>(upstream.config.timeouts.total, UpstreamCall.#endTotal, this, now)
    this.#alarm = new Alarm<UpstreamCall>(UpstreamCall.#ring, this)
    connectionsOf(upstream).dispatch(options, this)
    if (!this.#hasStarted && !this.#over) this.#awaitStart(now)
  }

  // undici follows no redirects, so credentials never travel with one (src/README.md#allow-list).
  #dispatchOptions (): Dispatcher.DispatchOptions {
    const { method, path, headers, body } = this.#request
    if (typeof body === 'string') return this.#request as CallRequest & Dispatcher.DispatchOptions
    return {
      method: method as Dispatcher.HttpMethod,
      path,
      headers: { ...headers, 'content-length': String(lengthOf(body)) },
      // undici takes any iterable; its types name only some.
      body: writeInTurns(body) as unknown as Readable
    }
  }

  get isOnce (): boolean {
    return this.#request.once === true
  }

  get #timeouts (): Upstream['config']['timeouts'] {
    return this.#upstream.config.timeouts
  }

  /** Whether writing has begun: before that, no byte has left. */
  get isSent (): boolean {
    return this.#hasStarted
  }

  /** Stops reading, for a client that can't take more; the idle timer rests. */
  pause (): void {
    if (this.#over || this.#controller === undefined) return
    this.#isPaused = true
    this.#controller.pause()
    this.#inflater?.pause()
    this.#deadline.rest()
    this.#alarm.off()
  }

  resume (): void {
    if (this.#over || this.#controller === undefined) return
    if (!this.#hasDeadline) this.#startTimer(this.#timeouts.idle, 'idle_timeout')
    else if (!this.#alarm.isSet) this.#startTimer(this.#lateMs, 'idle_timeout')
    this.#deadline.goOn()
    this.#isPaused = false
    this.#inflater?.resume()
    if (this.#inflater?.isFull !== true) this.#controller.resume()
  }

  /** Keeps the timeout of the first byte running until `begun`, because comments and pings are bytes too. */
  awaitBegin (): void {
    if (this.#over) return
    this.#beginAlarm = new Alarm<UpstreamCall>(UpstreamCall.#endFirstByte, this)
    this.#beginAlarm.set(this.#timeouts.first_byte - (performance.now() - this.#writtenAt))
  }

  begun (): void {
    this.#beginAlarm?.off()
  }

  /** Limits the rest of the answer: it may not take longer, however busily it comes. */
  finishWithin (ms: number): void {
    if (this.#over) return
    this.#startTimer(ms, 'idle_timeout')
    this.#hasDeadline = true
  }

  /** Ends the call; no more calls to the listener. */
  abort (): void {
    if (this.#over) return
    this.#stop()
    this.#controller?.abort(new Error('the gateway ended the call'))
  }

  /** @param now `performance.now()` */
  #awaitStart (now: number): void {
    this.#late = undefined
    this.#alarm.set(STUCK_MS, now)
  }

  static #endTotal (call: UpstreamCall): void {
    call.#giveUp('total_timeout', new Error(`the answer was not over after ${call.#timeouts.total} ms`))
  }

  static #endFirstByte (call: UpstreamCall): void {
    call.#giveUp('first_byte_timeout', new Error(`nothing of an answer came for ${call.#timeouts.first_byte} ms`))
  }

  static #ring (call: UpstreamCall): void {
    if (call.#late !== undefined) {
      call.#giveUp(call.#late, new Error(`the upstream was silent for ${call.#lateMs} ms`))
      return
    }
    // A connection that is open and not written to: after a GOAWAY undici lets a request wait until the streams on it
    // have ended, maybe for minutes (8.12). No byte of this one was sent.
    if (call.#connection?.isConnected === true && !call.#isAgain) call.#dispatchAgain()
    else call.#startTimer(connectionsOf(call.#upstream).patience - STUCK_MS, 'connect_timeout')
  }

  #dispatchAgain (): void {
    this.#isAgain = true
    this.#hasStarted = false
    this.#startTimer(connectionsOf(this.#upstream).patience, 'connect_timeout')
    connectionsOf(this.#upstream).dispatchAlone(this.#dispatchOptions(), this)
  }

  takeConnection (connection: UsedConnection): void {
    this.#connection = connection
  }

  onRequestStart (controller: Dispatcher.DispatchController): void {
    if (this.#hasStarted) { controller.abort(new Error('the gateway has asked elsewhere')); return }
    this.#hasStarted = true
    this.#controller = controller
    if (this.#connection !== undefined) {
      this.#isReused = this.#connection.use()
      this.#bytesBefore = this.#connection.bytesRead
    }
    const now = performance.now()
    this.#writtenAt = Math.ceil(now)                          // a whole number needs no memory of its own
    if (this.#over) { controller.abort(new Error('the gateway ended the call')); return }
    this.#startTimer(this.#timeouts.first_byte, 'first_byte_timeout', now)
  }

  onResponseStart (_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (this.#over || status < 200) return                    // 1xx: the real head comes later
    this.#hasHead = true
    try {
      this.#inflate(headers['content-encoding'])
    } catch (cause) {
      this.#giveUp('malformed', cause as Error)
      return
    }
    this.#listener.onHead(status, headers)
    if (!this.#over && !this.#hasDeadline) this.#startTimer(this.#timeouts.idle, 'idle_timeout')
  }

  /** The lane knows what came with one read. */
  onResponseRead (_: Dispatcher.DispatchController, bytes: Buffer): void {
    if (!this.#over) this.#take(bytes)
  }

  /** Undici's chunks of one read are passed on together: they are decoded at once, and become one write. */
  onResponseData (_: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#over) return
    const isLast = endsRead(chunk)
    if (this.#chunks === undefined && isLast) { this.#take(chunk); return }
    if (this.#chunks === undefined) {
      this.#chunks = []
      queueMicrotask(() => { this.#takeChunks() })            // in case that none of them looks like the last one
    }
    this.#chunks.push(chunk)
    if (isLast) this.#takeChunks()
  }

  #takeChunks (): void {
    const chunks = this.#chunks
    this.#chunks = undefined
    if (chunks !== undefined && !this.#over) this.#take(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks))
  }

  #take (bytes: Buffer): void {
    if (!this.#hasDeadline && this.#alarm.isSet) this.#alarm.set(this.#timeouts.idle)
    if (this.#inflater === undefined) this.#listener.onData(bytes)
    else this.#inflater.write(bytes)
  }

  onResponseEnd (): void {
    this.#takeChunks()
    if (this.#over) return
    if (this.#inflater === undefined) this.#end()
    else this.#inflater.end()
  }

  #end (): void {
    this.#stop()
    this.#listener.onEnd()
  }

  /**
   * Decodes the answer. Bytes decoded so far are passed on before the end, and before a failure.
   * @throws {Error} it is compressed several times over
   */
  #inflate (encoding: string | string[] | undefined): void {
    const coding = codingOf(encoding)
    if (coding !== undefined) this.#decode(coding)
  }

  #decode (coding: NonNullable<Coding>): void {
    this.#inflater = new Inflater(coding, {
      onData: (chunk) => { if (!this.#over) this.#listener.onData(chunk) },
      onFull: () => { this.#controller?.pause() },
      onDrain: () => { if (!this.#isPaused && !this.#over) this.#controller?.resume() },
      onEnd: () => {
        if (this.#over) return
        if (this.#broken === undefined) this.#end()
        else this.#fail(this.#broken)
      },
      onError: (cause) => { this.#giveUp('malformed', cause) }
    })
  }

  onResponseError (controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#over || (this.#hasStarted && controller !== this.#controller)) return
    if (this.#isLostRace(error)) { this.#dispatchAgain(); return }
    this.#takeChunks()
    if (this.#over) return
    this.#broken = failureOf(error)
    if (this.#inflater === undefined) this.#fail(this.#broken)
    else this.#inflater.end()
  }

  /**
   * Whether the request may be written once more, on a connection of its own: this one was idle, and was closed without
   * a byte of an answer as soon as it was written to. RFC 9110 9.2.2 lets no proxy repeat a POST that it knows nothing
   * about; these requests are the gateway's own, and are tried at other targets too. The client pays for the one answer
   * that it gets.
   */
  #isLostRace (error: Error): boolean {
    return !this.isOnce && !this.#isAgain && !this.#hasHead && !(error instanceof NotConnected) &&
      this.#isReused && this.#connection!.bytesRead === this.#bytesBefore &&
      performance.now() - this.#writtenAt < RACE_MS
  }

  #startTimer (
    timeoutMs: number, kind: 'connect_timeout' | 'first_byte_timeout' | 'idle_timeout', now?: number
  ): void {
    this.#late = kind
    this.#lateMs = timeoutMs
    this.#alarm.set(timeoutMs, now)
  }

  #giveUp (
    kind: 'connect_timeout' | 'first_byte_timeout' | 'idle_timeout' | 'total_timeout' | 'malformed',
    cause: Error
  ): void {
    this.#fail({ kind, cause })
    this.#controller?.abort(cause)
  }

  #fail (failure: UpstreamFailure): void {
    if (this.#over) return
    this.#stop()
    this.#listener.onFailure(failure)
  }

  #stop (): void {
    this.#over = true
    this.#alarm.off()
    this.#beginAlarm?.off()
    this.#inflater?.destroy()
    this.#deadline.off()
  }
}

/** Whether the buffer that was read ends with this chunk: a guess, which is right for HTTP/1.1. */
function endsRead ({ buffer, byteOffset, length }: Buffer): boolean {
  return byteOffset + length + CHUNK_END >= buffer.byteLength
}

function lengthOf (body: BodyPieces | SizedBody): number {
  return 'pieces' in body ? body.pieces.reduce((length, piece) => length + piece.length, 0) : body.length
}

/** @throws {Error} the memory of the pieces is another's */
function writeInTurns (body: BodyPieces | SizedBody): AsyncIterable<Buffer> {
  return 'pieces' in body ? inTurns(body.pieces, body.memory?.lend()) : inTurns(body)
}

/**
 * Bytes of which a write fills a socket's buffer. Of a larger piece undici asks for the next one when the kernel or the
 * TLS layer has taken all of it, or the connection is closed; of a smaller one maybe before.
 */
const FILLING_BYTES = getDefaultHighWaterMark(false)

/**
 * Writes a body in pieces, between which other events pass: 5 MB written at once block the loop for 5 ms, and four such
 * bodies for 20 (measured).
 * @param written the memory of the pieces may be used again: all were asked for, and none is read any more
 */
async function * inTurns (
  pieces: Iterable<Buffer> | AsyncIterable<Buffer>, written?: () => void
): AsyncIterable<Buffer> {
  let bytes = 0
  for await (const piece of pieces) {
    yield written !== undefined && piece.length < FILLING_BYTES ? Buffer.from(piece) : piece
    bytes += piece.length
    if (bytes < TURN_BYTES) continue
    bytes = 0
    await setImmediate()
  }
  written?.()                                                 // not where it is given up: a write may go on
}
