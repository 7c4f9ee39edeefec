// One request in flight: what was received, what plugins make of it, their facts, and the callbacks for its end.
import type { LargeBody } from './large-body.ts'
import { Blobs } from './large-strings.ts'
import type { Ledger } from './ledger.ts'
import type { Snapshot } from './snapshot.ts'
import type { GatewayError } from '../errors.ts'
import { allFacts, type ApiKey, type Attempt, type Fact } from './facts.ts'
import { ExchangeRecord } from './record.ts'
import type { Route } from './route.ts'
import type { Part } from './answer-memory.ts'
import type { OwnEvents } from './own-events.ts'
import { type Trace, traceOf } from './trace.ts'
import { callSafely, isPromise, type Awaitable } from '../base/awaitable.ts'
import type { BagItem } from '../base/bag.ts'
import { within } from '../base/timeout.ts'
import { guardListeners } from './guarded-signal.ts'

/** The request as the client sent it. Frozen; header names are lower case. */
export interface ClientRequest {
  readonly method: string
  /** without the query */
  readonly path: string
  /** with the question mark, or '' */
  readonly query: string
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  /** the peer of the socket, never a header's claim */
  readonly address: string
  /**
   * What is the same object for all requests of a connection whose heads are the same but for `content-length`: what
   * was found out about one of them need not be found out again. Absent: nothing is known of the head.
   */
  readonly head?: object
}

/**
 * The request as plugins have made it, in the inner language of its modality. Plugins replace it; a single field of the
 * client's body is corrected in place, because bodies are never copied.
 */
export interface GatewayRequest {
  readonly body: Readonly<Record<string, unknown>>
  readonly stream: boolean
}

/** The client that a dry run stands for. */
export interface DryRun {
  /** The API key, in the place of a secret. Undefined: no known client. */
  readonly owner: ApiKey | undefined
  /** the exchange that asks for the dry run, if one does: its key was authenticated, and it was counted itself */
  readonly within?: Exchange
  /** whose turn its body takes at the threads; absent: the key's */
  readonly turn?: string
}

/** The answering side: an attempt of the plan, or the upstream of a forward route. */
export type Served = Attempt | { readonly upstream: string }

export type Outcome =
  /** the last byte was accepted by the client's socket */
  | { readonly kind: 'completed', readonly served?: Served }
  /** cut after the commit */
  | { readonly kind: 'interrupted', readonly served: Served, readonly by: 'client' | 'upstream' | 'gateway',
    readonly error: GatewayError }
  /** nothing of the answer was committed */
  | { readonly kind: 'failed', readonly error: GatewayError }

/** Called with the exchange too: so one function serves all exchanges, where a closure would be made for each. */
type Settle = (outcome: Outcome, exchange: Exchange) => Awaitable<void>
type Finish = (outcome: Outcome, exchange: Exchange) => Awaitable<void>

function behind (told: PromiseLike<unknown>, callback: Settle, outcome: Outcome, exchange: Exchange): Promise<void> {
  return Promise.resolve(told).then(() => callback(outcome, exchange))
}

/** Core only: an object with the method; it takes less memory than a function of its own that calls it. */
type AbortListener = (() => void) | { onAbort (): void }

/** @template R the route, @template S the snapshot: more than their data, for the code that runs them (endpoint.ts) */
export class Exchange<R extends Route = Route, S extends Snapshot = Snapshot> implements BagItem {
  /** the request id: `req_` and 24 characters */
  readonly id: string
  readonly route: R
  readonly received: ClientRequest
  /** The configuration of this request from begin to end. */
  readonly snapshot: S
  /** The interface to money and limits. That of a dry run gives the same results, and changes nothing. */
  readonly ledger: Ledger
  /** A dry run: no upstream is called. Undefined: a real request. */
  readonly dry: DryRun | undefined
  /** Core only: the exchange's line in the log, as far as it is known. */
  readonly record: ExchangeRecord
  /**
   * Written by the core: a callback of `onSettle` threw, or took longer than `hook_timeout`. The client gets an error
   * with the charge so far, so a callback that is still running must not charge any more.
   */
  hasSettleFailed = false
  /** Core only: its position among those that run. */
  place = 0
  /**
   * Bytes of its body after decompression, whatever its head announces; of a dry run, an upper bound. It has taken them
   * of the memory for bodies, which gets them back at its end. To be written by the core alone.
   */
  bodyBytes = 0
  /** base64 that stayed bytes; see large-strings.ts */
  readonly blobs: Blobs
  /** Core only: the body, where a thread has it (large-body.ts). Undefined: it is here. */
  large: LargeBody | undefined
  /** Core only: steps that run or wait in threads: time that no hook is to be blamed for. */
  inThreads = 0
  /** Core only: those that have ended */
  endedInThreads = 0
  /** base64 of the answer that stayed bytes */
  answerBlobs: Blobs | undefined
  /** Core only: the whole answer's share of the memory for answers. Undefined: a small answer, or a stream. */
  answerPart: Part | undefined
  /** The attempt that was begun last. */
  lastAttempt: Attempt | undefined
  /** Written by the core: the name by which the client asked for the model, where that is not its id. */
  asked: string | undefined
  /** Written by the core: `asked`, where it is an alias itself, and was not caught by one or by the default. */
  alias: string | undefined
  /** Written by the core: id of the credential of the last attempt; undefined: its upstream has only one. */
  credential: string | undefined
  /** Written by the plugin that translates the client's style, where a stream's ping or error depends on its state. */
  ownEvents: OwnEvents | undefined
  /** Written by the core: the last attempt failed, and its upstream may be executing it all the same. */
  mayBeExecuting = false
  /** Core only: ends the wait for the upstream's usage after the client has left. Undefined: there is none. */
  endWait: (() => void) | undefined
  /**
   * Headers of the answer, whatever it will be, errors included. Names in lower case. To be written before the head is
   * sent.
   */
  readonly answerHeaders: Record<string, string> = {}

  #request: GatewayRequest | undefined
  /** values of facts, each at its slot */
  readonly #slots: unknown[] = new Array(allFacts().length)
  // An array that grows has space for seventeen: one that mostly has a few members is made with or for these.
  #onSettle: Settle[] | undefined
  #settled = false
  readonly #onFinish: Finish[] = new Array(4)
  /** those that are to be called */
  #finishes = 0
  #outcome: Outcome | undefined
  #abortReason: GatewayError | undefined
  #onAbort: AbortListener[] | undefined
  #controller: AbortController | undefined
  #trace: Trace | undefined

  /** @param dry given by dry-run.ts alone: never for a request from a socket */
  constructor (id: string, route: R, received: ClientRequest, snapshot: S, ledger: Ledger, dry?: DryRun) {
    this.id = id
    this.route = route
    this.received = received
    this.snapshot = snapshot
    this.ledger = ledger
    this.dry = dry
    this.record = new ExchangeRecord(id, route.name, snapshot.generation, received.headers['user-agent'],
      received.address)
    this.blobs = dry?.within?.blobs ?? new Blobs()
  }

  get trace (): Trace {
    return this.#trace ??= traceOf(this.received.headers)
  }

  /**
   * The reason why it was aborted: the client has left, or the drain's deadline has passed. Undefined while it runs.
   */
  get abortReason (): GatewayError | undefined {
    return this.#abortReason
  }

  /**
   * `abortReason` as a signal; made on demand, because it costs as much as all hooks together. An error of a listener
   * is reported, and stops no other.
   */
  get signal (): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      guardListeners(this.#controller.signal, (err) => { this.#reportListener(err) })
      if (this.#abortReason !== undefined) this.#controller.abort(this.#abortReason)
    }
    return this.#controller.signal
  }

  /** Core only. The first reason counts; after the client's leaving, that of a drain ends `endWait` too. */
  abort (reason: GatewayError): void {
    if (this.#abortReason !== undefined) {
      if (reason.row !== 'client_closed') this.endWait?.()
      return
    }
    this.#abortReason = reason
    // Listeners may be a plugin's: each is called safely, so that all are called.
    if (this.#onAbort !== undefined) {
      for (const listener of this.#onAbort) {
        const call = typeof listener === 'function' ? listener : (): void => { listener.onAbort() }
        callSafely(call, (err) => { this.#reportListener(err) })
      }
    }
    this.#controller?.abort(reason)
  }

  /** @throws {GatewayError} the reason, once aborted */
  throwIfAborted (): void {
    if (this.#abortReason !== undefined) throw this.#abortReason
  }

  onAbort (listener: AbortListener): void {
    if (this.#onAbort === undefined) this.#onAbort = [listener]
    else this.#onAbort.push(listener)
  }

  offAbort (listener: AbortListener): void {
    const listeners = this.#onAbort
    const at = listeners?.indexOf(listener) ?? -1
    // While they are called, the list must not move.
    if (at !== -1) this.#onAbort = listeners!.length === 1 ? undefined : listeners!.toSpliced(at, 1)
  }

  /** @throws {Error} before the body was read, or on a route without one */
  get request (): GatewayRequest {
    if (this.#request === undefined) {
      throw new Error(`the route ${this.route.name} has no request body to look at in this phase`)
    }
    return this.#request
  }

  set request (request: GatewayRequest) {
    this.#request = Object.freeze(request)
  }

  /** @throws {Error} the fact is not written yet: names it */
  get<T> (fact: Fact<T>): T {
    const value = this.#slots[fact.slot]
    if (value === undefined) throw new Error(`the fact "${fact.name}" was read before it was written`)
    return value as T
  }

  /** Names of the facts written so far. */
  get factNames (): readonly string[] {
    return allFacts().filter(({ slot }) => this.#slots[slot] !== undefined).map(({ name }) => name)
  }

  /** The value of a fact that may not have been written. */
  find<T> (fact: Fact<T>): T | undefined {
    return this.#slots[fact.slot] as T | undefined
  }

  /** Core only: takes the body from its thread (large-body.ts). */
  bringBody (fact: Fact<GatewayRequest['body']>, body: GatewayRequest['body']): void {
    this.large = undefined
    this.#slots[fact.slot] = body
    if (this.#request !== undefined) this.request = { body, stream: this.#request.stream }
  }

  /** @throws {Error} the fact was written before: a fact has one writer */
  set<T> (fact: Fact<T>, value: T): void {
    if (this.#slots[fact.slot] !== undefined) throw new Error(`the fact "${fact.name}" was written twice`)
    this.#slots[fact.slot] = value
  }

  /**
   * Called once on every path, when it is decided how the answer ends, and before its end is written: the JSON body,
   * the terminal event or the error. Here the cost is recorded, and the hold given back. A throw on a `completed`
   * outcome gives the client an error instead, and `onFinish` gets `failed`.
   */
  onSettle (callback: Settle): void {
    if (this.#onSettle === undefined) this.#onSettle = [callback]
    else this.#onSettle.push(callback)
  }

  /**
   * Called once on every path, newest callback first, after the last byte was sent or the connection was lost. An error
   * of a callback is reported and stops no other. A callback registered after the end is called at once.
   */
  onFinish (callback: Finish): void {
    if (this.#outcome !== undefined) { void this.#tell(callback, this.#outcome); return }
    this.#onFinish[this.#finishes++] = callback
  }

  /** Core only: keeps an answer's share of memory until the exchange is over, or the writer has stored it elsewhere. */
  keepsAnswer (part: Part): void {
    this.answerPart = part
    this.onFinish(() => { part.give() })
  }

  /**
   * Core only; a second call does nothing. Runs the callbacks one after the other, in the order of the list: an error
   * of one above billing-meter comes before any charge. Returns a promise only where a callback did, so that an answer
   * that is settled in memory is sent in one write.
   */
  settle (outcome: Outcome): Awaitable<void> {
    if (this.#settled) return
    this.#settled = true
    if (this.#onSettle === undefined) return
    let told: Awaitable<void> = undefined
    for (const callback of this.#onSettle) {
      // A callback's result other than a promise means nothing: `onSettle(() => set.delete(key))`.
      told = isPromise(told) ? behind(told, callback, outcome, this) : callback(outcome, this)
    }
    return isPromise(told) ? told : undefined
  }

  /** Core only. @returns a promise only where a callback did. @throws {Error} called twice */
  finish (outcome: Outcome): Awaitable<void> {
    if (this.#outcome !== undefined) throw new Error(`exchange ${this.id} was finished twice`)
    this.#outcome = outcome
    return this.#tellAll(outcome)
  }

  #tellAll (outcome: Outcome): Awaitable<void> {
    while (this.#finishes > 0) {
      const told = this.#tell(this.#onFinish[--this.#finishes]!, outcome)
      if (told !== undefined) return told.then(() => this.#tellAll(outcome))
    }
  }

  /** Never throws, and ends after `hook_timeout`: the callbacks after it must be called too. */
  #tell (callback: Finish, outcome: Outcome): Awaitable<void> {
    try {
      const told = callback(outcome, this)
      if (isPromise(told)) return this.#inTime(told)
    } catch (thrown) {
      this.#reportFinish(thrown)
    }
  }

  #inTime (told: PromiseLike<unknown>): Promise<void> {
    const { hook_timeout: limit } = this.snapshot.config
    const late = (): Error => new Error(`it took longer than hook_timeout (${limit} ms)`)
    return within(Promise.resolve(told), limit, late).then(() => {}, (err: unknown) => { this.#reportFinish(err) })
  }

  #reportFinish (err: unknown): void {
    this.#report(err, 'a callback at the end of an exchange failed')
  }

  #reportListener (err: unknown): void {
    this.#report(err, 'a listener for the end of an exchange failed')
  }

  #report (err: unknown, what: string): void {
    this.snapshot.services.log.error({ request_id: this.id, err }, what)
  }
}
