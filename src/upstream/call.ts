// One request to an upstream through undici, as bytes: exactly one of `onEnd` and `onFailure` comes, once, and nothing after it.
import type { IncomingHttpHeaders } from 'node:http'
import type { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type { Dispatcher } from 'undici'
import type { UpstreamFailure } from '../plugin.ts'
import type { Upstream } from './upstream.ts'

export interface CallRequest {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** in pieces, it is written piece by piece: others' events pass between them */
  readonly body: string | readonly Buffer[]
}

export interface CallListener {
  onHead (status: number, headers: IncomingHttpHeaders): void
  onData (chunk: Buffer): void
  onEnd (): void
  onFailure (failure: UpstreamFailure): void
}

/** Errors that say: no connection was made, so nothing was sent. */
const NOT_CONNECTED = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'EADDRNOTAVAIL', 'EACCES'])

/** Bytes of a large body that are written without a pause. */
const TURN_BYTES = 512 * 1024

export class UpstreamCall implements Dispatcher.DispatchHandler {
  readonly #listener: CallListener
  readonly #firstByte: number
  readonly #idle: number
  #controller: Dispatcher.DispatchController | undefined
  #timer: NodeJS.Timeout | undefined
  #over = false
  #hasDeadline = false
  #hasHead = false

  constructor (upstream: Upstream, request: CallRequest, listener: CallListener) {
    this.#listener = listener
    this.#firstByte = upstream.config.timeouts.first_byte
    this.#idle = upstream.config.timeouts.idle
    // undici does not follow redirects, so credentials never travel with one (lesson 26).
    const { body } = request
    const isWhole = typeof body === 'string'
    upstream.pool.dispatch({
      method: request.method as Dispatcher.HttpMethod,
      path: request.path,
      headers: isWhole ? request.headers : { ...request.headers, 'content-length': String(body.reduce((length, piece) => length + piece.length, 0)) },
      // undici takes any iterable; its types name only some.
      body: isWhole ? body : inTurns(body) as unknown as Readable
    }, this)
  }

  /** The client can't take more: reads nothing, and the idle timer rests. */
  pause (): void {
    if (this.#over || this.#controller === undefined) return
    this.#controller.pause()
    clearTimeout(this.#timer)
  }

  resume (): void {
    if (this.#over || this.#controller === undefined) return
    if (!this.#hasDeadline) this.#startTimer(this.#idle, 'idle_timeout')
    this.#controller.resume()
  }

  /** What still comes is not worth more than this: it may not take longer, however busily it comes. */
  finishWithin (ms: number): void {
    if (this.#over) return
    this.#startTimer(ms, 'idle_timeout')
    this.#hasDeadline = true
  }

  /** Ends the call; the listener hears nothing more. */
  abort (): void {
    if (this.#over) return
    this.#stop()
    this.#controller?.abort(new Error('the gateway ended the call'))
  }

  onRequestStart (controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#over) { controller.abort(new Error('the gateway ended the call')); return }
    this.#startTimer(this.#firstByte, 'first_byte_timeout')
  }

  onResponseStart (_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (this.#over || status < 200) return                    // 1xx: the real head comes later
    this.#hasHead = true
    this.#listener.onHead(status, headers)
    if (!this.#over && !this.#hasDeadline) this.#startTimer(this.#idle, 'idle_timeout')
  }

  onResponseData (_: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#over) return
    if (!this.#hasDeadline) this.#timer?.refresh()
    this.#listener.onData(chunk)
  }

  onResponseEnd (): void {
    if (this.#over) return
    this.#stop()
    this.#listener.onEnd()
  }

  onResponseError (_: Dispatcher.DispatchController, error: Error): void {
    const code = (error as NodeJS.ErrnoException).code ?? ''
    const kind = code === 'UND_ERR_CONNECT_TIMEOUT' ? 'connect_timeout'
      : !this.#hasHead && (NOT_CONNECTED.has(code) || code.startsWith('ERR_TLS') || code.includes('CERT')) ? 'refused' : 'reset'
    this.#fail({ kind, cause: error })
  }

  #startTimer (timeoutMs: number, kind: 'first_byte_timeout' | 'idle_timeout'): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      const cause = new Error(`the upstream was silent for ${timeoutMs} ms`)
      this.#fail({ kind, cause })
      this.#controller?.abort(cause)
    }, timeoutMs)
  }

  #fail (failure: UpstreamFailure): void {
    if (this.#over) return
    this.#stop()
    this.#listener.onFailure(failure)
  }

  #stop (): void {
    this.#over = true
    clearTimeout(this.#timer)
  }
}

/** Others' events get their turn: 5 MB written at once stop the loop for 5 ms, and with four such bodies for 20 (measured). */
async function * inTurns (pieces: readonly Buffer[]): AsyncIterable<Buffer> {
  let bytes = 0
  for (const piece of pieces) {
    yield piece
    bytes += piece.length
    if (bytes < TURN_BYTES) continue
    bytes = 0
    await setImmediate()
  }
}
