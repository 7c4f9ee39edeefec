// Requests to one origin over plain HTTP/1.1, without undici: those that are whole texts, and of which undici would
// neither refuse nor change anything. Connections are used again, one request at a time.
import { type Dispatcher, errors } from 'undici'
import { ageOfTurn, atEndOfTurn, timeOfStep, turnCount } from '../../../base/end-of-turn.ts'
import type { Dial } from '../connect.ts'
import { AnswerHeads } from './answer-heads.ts'
import { LaneCall, type LaneHandler } from './lane-call.ts'
import { type ConnectionOwner, LaneConnection } from './lane-connection.ts'
import { RequestHeads } from './request-heads.ts'

/**
 * What an answer that is not for the lane weighs against one that is: to hand it over, and to connect anew, costs
 * several times what the lane saves. An origin with too much of that is left to undici for a while.
 */
const STRANGE_WEIGHT = 4
const STRANGE_AT_MOST = 4 * STRANGE_WEIGHT
const ASIDE_MS = 60_000
/** Milliseconds for which it counts that a turn of the event loop has asked the sockets: that is 30 requests' time. */
const FRESH_MS = 2

export class Lane implements ConnectionOwner {
  readonly answerHeads = new AnswerHeads()
  readonly #asked: Parameters<Dial>[0]
  readonly #dial: Dial
  readonly #maxAge: number
  readonly #heads: RequestHeads
  /** first those that rest, the one that was used last at their end, then those that have a request */
  readonly #connections: LaneConnection[] = []
  #resting = 0
  /** connections whose request is written when the sockets have been asked again */
  #ready: LaneConnection[] = []
  #written: LaneConnection[] = []
  #isClosed = false
  #isDestroyed = false
  /** weight of the answers that were not for the lane, less what those that were weigh */
  #strange = 0
  /** `performance.now()` until which it takes no requests */
  #asideUntil = 0
  /** closes connections that have rested for too long: one for all of them, which keeps no process alive */
  #timer: NodeJS.Timeout | undefined
  #ringsAt = Infinity

  /**
   * @param dial with the `onread` of lane-connection.ts
   * @param maxAge milliseconds after which a connection is not used again
   */
  constructor (origin: string, dial: Dial, maxAge: number) {
    const { host, hostname, port, protocol } = new URL(origin)
    this.#asked = { host, hostname: hostname.replace(/^\[|\]$/g, ''), port, protocol }
    this.#dial = dial
    this.#maxAge = maxAge
    this.#heads = new RequestHeads(host)
  }

  /** @returns false: undici is to send it */
  dispatch ({ method, path, headers, body }: Dispatcher.DispatchOptions, handler: LaneHandler): boolean {
    if (this.#isClosed || typeof body !== 'string') return false
    if (method !== 'POST' && (method !== 'GET' || body !== '')) return false
    if (this.#asideUntil !== 0 && performance.now() < this.#asideUntil) return false
    const head = this.#heads.of(method, path, headers as Readonly<Record<string, unknown>>)
    if (head === undefined) return false
    this.#send(new LaneCall(handler, head, method === 'POST' ? body : undefined))
    return true
  }

  /** connections that are open or being made, and those of them that have a request */
  get stats (): { readonly connected: number, readonly running: number } {
    return { connected: this.#connections.length, running: this.#connections.length - this.#resting }
  }

  /** Closes connections that rest at once, others when their request is over. */
  close (): void {
    this.#isClosed = true
    clearTimeout(this.#timer)
    while (this.#resting > 0) this.#connections[this.#resting - 1]!.destroy(new errors.ClientClosedError())
  }

  destroy (): void {
    this.#isDestroyed = true
    this.close()
    while (this.#connections.length > 0) this.#connections.at(-1)!.destroy(new errors.ClientDestroyedError())
  }

  rest (connection: LaneConnection, ms: number): void {
    if (this.#isClosed) { connection.destroy(new errors.ClientClosedError()); return }
    this.#swap(connection.place, this.#resting++)
    connection.restedIn = turnCount()
    const until = connection.restsUntil = timeOfStep() + ms
    if (until < this.#ringsAt) this.#ringAt(until)
  }

  remove (connection: LaneConnection): void {
    if (this.#connections[connection.place] !== connection) return
    if (connection.place < this.#resting) this.#swap(connection.place, --this.#resting)
    this.#swap(connection.place, this.#connections.length - 1)
    this.#connections.pop()
  }

  again (call: LaneCall): void {
    if (this.#isDestroyed) call.fail(new errors.ClientDestroyedError())
    else this.#send(call)
  }

  recordAnswer (isForLane: boolean): void {
    this.#strange = Math.max(0, this.#strange + (isForLane ? -1 : STRANGE_WEIGHT))
    if (this.#strange < STRANGE_AT_MOST) return
    this.#strange = 0
    this.#asideUntil = performance.now() + ASIDE_MS
  }

  #send (call: LaneCall): void {
    const resting = this.#take()
    if (resting === undefined) {
      const made = new LaneConnection(this)
      made.place = this.#connections.push(made) - 1
      made.open(this.#dial, this.#asked, call)
      return
    }
    resting.take(call)
    // Bytes that nobody has asked for would be taken for the answer, and a connection that the upstream has closed
    // loses the request. So its socket is asked before, as undici does; that this turn has done it is enough, but not
    // behind an answer of this turn, nor for a request that can't be sent once more.
    if (turnCount() - resting.restedIn > 1 && !call.handler.isOnce) atEndOfTurn(Lane.#writeInTurn, resting)
    else if (this.#ready.push(resting) === 1) setImmediate(Lane.#writeReady, this)
  }

  #take (): LaneConnection | undefined {
    if (this.#resting === 0) return undefined
    const now = timeOfStep()
    while (this.#resting > 0) {
      const last = this.#connections[--this.#resting]!
      if (last.restsUntil > now && (this.#maxAge <= 0 || now - last.bornAt <= this.#maxAge)) return last
      last.destroy(new errors.InformationalError('socket idle timeout'))
    }
    return undefined
  }

  static #writeInTurn (connection: LaneConnection): void {
    if (ageOfTurn() <= FRESH_MS) connection.write()
    else setImmediate(Lane.#write, connection)
  }

  static #write (connection: LaneConnection): void {
    connection.write()
  }

  static #writeReady (lane: Lane): void {
    const ready = lane.#ready
    lane.#ready = lane.#written
    lane.#written = ready
    try {
      for (const connection of ready) connection.write()
    } finally {
      ready.length = 0
    }
  }

  #ringAt (at: number): void {
    clearTimeout(this.#timer)
    this.#ringsAt = at
    this.#timer = setTimeout(() => { this.#closeOld() }, Math.max(0, at - performance.now())).unref()
  }

  #closeOld (): void {
    const now = performance.now()
    let next = Infinity
    for (let place = this.#resting - 1; place >= 0; place--) {
      const connection = this.#connections[place]!
      if (connection.restsUntil > now) next = Math.min(next, connection.restsUntil)
      else connection.destroy(new errors.InformationalError('socket idle timeout'))
    }
    this.#ringsAt = Infinity
    if (next !== Infinity) this.#ringAt(next)
  }

  #swap (one: number, other: number): void {
    const [first, second] = [this.#connections[one]!, this.#connections[other]!]
    this.#connections[one] = second
    this.#connections[other] = first
    first.place = other
    second.place = one
  }
}
