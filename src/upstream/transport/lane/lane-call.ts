// One request of the lane: what its handler is told, in undici's words, and what the handler asks for.
import type { Dispatcher } from 'undici'

/** The connection of a request, as its handler sees it. */
export interface UsedConnection {
  /** Counts a request that is about to be written. @returns whether others came before it */
  use (): boolean
  readonly isConnected: boolean
  /** bytes received since it was made */
  readonly bytesRead: number
}

/** Receives the connection of its request, just before the request is written to it. */
export interface ConnectionUser {
  takeConnection (connection: UsedConnection): void
}

/** As undici's handlers, but that the lane knows what came with one read. */
export interface LaneHandler extends Required<Pick<Dispatcher.DispatchHandler,
  'onRequestStart' | 'onResponseStart' | 'onResponseData' | 'onResponseEnd' | 'onResponseError'>>, ConnectionUser {
  /** the request must not reach the upstream twice */
  readonly isOnce: boolean
  /** @param bytes all that came of the body with one read of the socket; they are the handler's */
  onResponseRead (controller: Dispatcher.DispatchController, bytes: Buffer): void
}

/** What brings the answer of a call: its connection, or undici behind a hand-over. */
export interface Carrier {
  pause (): void
  resume (): void
  /** The call is over before its answer is. */
  drop (): void
}

const NO_TRAILERS = Object.freeze({})

/** Calls one of `onResponseEnd` and `onResponseError` of its handler, once, and nothing after it. Never throws. */
export class LaneCall implements Dispatcher.DispatchController {
  readonly handler: LaneHandler
  /** all lines of the request's head but the length */
  readonly head: string
  /** undefined: the request has none */
  readonly body: string | undefined
  /** of a call that is under way */
  carrier: Carrier | undefined
  isOver = false
  paused = false
  aborted = false
  reason: Error | null = null

  constructor (handler: LaneHandler, head: string, body: string | undefined) {
    this.handler = handler
    this.head = head
    this.body = body
  }

  /** @returns false: it was aborted meanwhile */
  start (connection: UsedConnection): boolean {
    try {
      this.handler.takeConnection(connection)
      this.handler.onRequestStart(this, null)
    } catch (thrown) {
      this.abort(thrown as Error)
    }
    return !this.isOver
  }

  /** @returns whether the handler takes more at once */
  takeHead (status: number, headers: Parameters<LaneHandler['onResponseStart']>[2]): boolean {
    try {
      this.handler.onResponseStart(this, status, headers)
    } catch (thrown) {
      this.abort(thrown as Error)
    }
    return !this.isOver && !this.paused
  }

  /** @returns whether the handler takes more at once */
  takeBody (bytes: Buffer): boolean {
    try {
      this.handler.onResponseRead(this, bytes)
    } catch (thrown) {
      this.abort(thrown as Error)
    }
    return !this.isOver && !this.paused
  }

  end (): void {
    if (!this.#finish()) return
    try {
      this.handler.onResponseEnd(this, NO_TRAILERS)
    } catch (thrown) {
      this.#tell(thrown as Error)                             // as undici
    }
  }

  fail (error: Error): void {
    if (this.#finish()) this.#tell(error)
  }

  abort (reason: Error): void {
    if (this.isOver) return
    this.aborted = true
    this.reason = reason
    this.carrier?.drop()
    this.fail(reason)
  }

  pause (): void {
    if (this.isOver || this.paused) return
    this.paused = true
    this.carrier?.pause()
  }

  resume (): void {
    if (this.isOver || !this.paused) return
    this.paused = false
    this.carrier?.resume()
  }

  #finish (): boolean {
    if (this.isOver) return false
    this.isOver = true
    this.carrier = undefined
    return true
  }

  #tell (error: Error): void {
    try {
      this.handler.onResponseError(this, error)
    } catch (thrown) {
      // Nobody is left to be told: it is uncaught, but breaks no other call.
      process.nextTick(() => { throw thrown })
    }
  }
}
