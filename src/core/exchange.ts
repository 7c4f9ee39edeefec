// One request in flight: what came, what the plugins made of it, what they know, and who must be told when it is over.
import { Blobs } from './large-strings.ts'
import type { Ledger } from './ledger.ts'
import type { Snapshot } from './snapshot.ts'
import type { GatewayError } from '../errors.ts'
import type { ApiKey, Attempt, Fact } from './facts.ts'
import { ExchangeRecord } from './record.ts'
import type { Route } from './route.ts'
import type { Part } from './answer-memory.ts'
import { callSafely, isPromise, type Awaitable } from '../base/awaitable.ts'
import { within } from '../base/timeout.ts'
import { guardListeners } from './guarded-signal.ts'

/** What the client sent. Frozen; header names are lower case. */
export interface ClientRequest {
  readonly method: string
  /** without the query */
  readonly path: string
  /** with the question mark, or '' */
  readonly query: string
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  /** the peer of the socket; nothing that a header claims */
  readonly address: string
}

/**
 * What the plugins have made of the request, in messages style. Replaced; what is put right in a field of the client's
 * is written in place, for bodies are never copied.
 */
export interface GatewayRequest {
  readonly body: Readonly<Record<string, unknown>>
  readonly stream: boolean
}

/** On whose behalf an exchange is dry. */
export interface DryRun {
  /** Whoever it is takes the place of a secret. Undefined: nobody that is known. */
  readonly owner: ApiKey | undefined
  /** the exchange that asks, if one does: its key was found by its secret, and it was counted itself */
  readonly within?: Exchange
}

/** Who answered: an attempt of the plan, or the upstream of a forward route. */
export type Served = Attempt | { readonly upstream: string }

export type Outcome =
  /** the last byte was accepted by the client's socket */
  | { readonly kind: 'completed', readonly served?: Served }
  /** cut after the commit */
  | { readonly kind: 'interrupted', readonly served: Served, readonly by: 'client' | 'upstream' | 'gateway',
    readonly error: GatewayError }
  /** nothing of the answer was committed */
  | { readonly kind: 'failed', readonly error: GatewayError }

type Settle = (outcome: Outcome) => Awaitable<void>
type Finish = (outcome: Outcome) => Awaitable<void>

/** @template R the route, @template S the snapshot: with more than data, for those who run it (endpoint.ts) */
export class Exchange<R extends Route = Route, S extends Snapshot = Snapshot> {
  /** the request id: `req_` and 24 characters */
  readonly id: string
  readonly route: R
  readonly received: ClientRequest
  /** The configuration that this request began with, and ends on. */
  readonly snapshot: S
  /** The way to money and limits. That of a dry run answers alike, and changes nothing. */
  readonly ledger: Ledger
  /** It is only asked what would happen: no upstream is called. Undefined: it is real. */
  readonly dry: DryRun | undefined
  /** Core only: what its line in the log says, as far as that is known. */
  readonly record: ExchangeRecord
  /**
   * Written by the core: a callback of `onSettle` threw, or took longer than `hook_timeout`. The client hears of an
   * error, and of what was charged by then: whoever is still about to charge must not.
   */
  hasSettleFailed = false
  /** base64 that stayed bytes; see large-strings.ts */
  readonly blobs: Blobs
  /** the same of the answer, if it has any */
  answerBlobs: Blobs | undefined
  /** Core only: what the whole answer takes of the memory of answers. Undefined: it is small, or a stream. */
  answerPart: Part | undefined
  /** The last attempt that was begun. */
  lastAttempt: Attempt | undefined
  /** Written by the core: the name under which the client asked for the model, where it is an alias. */
  alias: string | undefined
  /**
   * Written by the core: the id of the credential that the last one went with; undefined: its upstream has no several.
   */
  credential: string | undefined
  /** Written by the core: the last one failed, and its upstream may be at work all the same. */
  mayBeExecuting = false
  /**
   * What goes into the head of whatever answer there will be, an error too. Names in lower case. Written before that
   * head is out.
   */
  readonly answerHeaders: Record<string, string> = {}

  #request: GatewayRequest | undefined
  /** values of facts, each in its slot */
  readonly #slots: unknown[] = []
  /** in the order of writing */
  readonly #written: Fact<unknown>[] = []
  readonly #onSettle: Settle[] = []
  #settled = false
  readonly #onFinish: Finish[] = []
  #outcome: Outcome | undefined
  #abortReason: GatewayError | undefined
  #onAbort: (() => void)[] = []
  #controller: AbortController | undefined

  /** @param dry given by dry-run.ts, and by nobody who has listened to a socket */
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

  /** Why it can't go on: the client has left, or the drain's deadline has passed. Undefined while it can. */
  get abortReason (): GatewayError | undefined {
    return this.#abortReason
  }

  /**
   * The same for whatever takes a signal; made when first asked for, because it costs as much as all hooks together.
   * What a listener of it throws is reported, and stops no other.
   */
  get signal (): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      guardListeners(this.#controller.signal, (err) => { this.#reportListener(err) })
      if (this.#abortReason !== undefined) this.#controller.abort(this.#abortReason)
    }
    return this.#controller.signal
  }

  /** Core only. The first reason counts. */
  abort (reason: GatewayError): void {
    if (this.#abortReason !== undefined) return
    this.#abortReason = reason
    // A plugin's own, maybe: the others must hear of it, whoever has found out.
    for (const listener of this.#onAbort) callSafely(listener, (err) => { this.#reportListener(err) })
    this.#controller?.abort(reason)
  }

  /** @throws {GatewayError} the reason, once aborted */
  throwIfAborted (): void {
    if (this.#abortReason !== undefined) throw this.#abortReason
  }

  onAbort (listener: () => void): void {
    this.#onAbort.push(listener)
  }

  offAbort (listener: () => void): void {
    this.#onAbort = this.#onAbort.filter((other) => other !== listener)
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

  /** @throws {Error} nobody has written the fact yet: names it */
  get<T> (fact: Fact<T>): T {
    const value = this.#slots[fact.slot]
    if (value === undefined) throw new Error(`the fact "${fact.name}" was read before it was written`)
    return value as T
  }

  /** Names of those that are written by now, in the order of writing. */
  get factNames (): readonly string[] {
    return this.#written.map(({ name }) => name)
  }

  /** The value of a fact that may not have been written. */
  find<T> (fact: Fact<T>): T | undefined {
    return this.#slots[fact.slot] as T | undefined
  }

  /** @throws {Error} the fact has its value already: a fact has one writer */
  set<T> (fact: Fact<T>, value: T): void {
    if (this.#written.includes(fact)) throw new Error(`the fact "${fact.name}" was written twice`)
    this.#slots[fact.slot] = value
    this.#written.push(fact)
  }

  /**
   * How the answer ends is decided, and nothing of that end is written yet: neither the JSON body, nor the terminal
   * event, nor the error. The moment to record what it cost, and to give back what was held, on every path, once. A
   * throw on a `completed` outcome means that the client gets an error instead, and `onFinish` hears `failed`.
   */
  onSettle (callback: Settle): void {
    this.#onSettle.push(callback)
  }

  /**
   * The last byte is gone, or will never come. Called once for every exchange, on every path, newest first; a callback
   * that throws is reported and stops no other. Registered after the end, it is called at once.
   */
  onFinish (callback: Finish): void {
    if (this.#outcome !== undefined) { void this.#tell(callback, this.#outcome); return }
    this.#onFinish.push(callback)
  }

  /** Core only: the answer is in memory until the exchange is over, or the writer has put it elsewhere. */
  keepsAnswer (part: Part): void {
    this.answerPart = part
    this.onFinish(() => { part.give() })
  }

  /**
   * Core only; the second call does nothing. One after the other, in the order of the list: what throws above
   * billing-meter is heard before anything is charged. Returns a promise only where a callback did, so that an answer
   * that is settled in memory leaves in one write.
   */
  settle (outcome: Outcome): Awaitable<void> {
    if (this.#settled) return
    this.#settled = true
    let told: Awaitable<void> = undefined
    for (const callback of this.#onSettle) {
      // What a callback returns beside promises means nothing: `onSettle(() => set.delete(key))`.
      told = isPromise(told) ? Promise.resolve(told).then(() => callback(outcome)) : callback(outcome)
    }
    return isPromise(told) ? told : undefined
  }

  /** Core only. @throws {Error} called twice */
  async finish (outcome: Outcome): Promise<void> {
    if (this.#outcome !== undefined) throw new Error(`exchange ${this.id} was finished twice`)
    this.#outcome = outcome
    while (this.#onFinish.length > 0) {
      const told = this.#tell(this.#onFinish.pop()!, outcome)
      if (told !== undefined) await told
    }
  }

  /** Never throws, and is over after `hook_timeout`: who comes after it must be told too. */
  #tell (callback: Finish, outcome: Outcome): Awaitable<void> {
    const { hook_timeout: limit } = this.snapshot.config
    const report = (err: unknown): void => { this.#report(err, 'a callback at the end of an exchange failed') }
    try {
      const told = callback(outcome)
      if (isPromise(told)) {
        const late = (): Error => new Error(`it took longer than hook_timeout (${limit} ms)`)
        return within(Promise.resolve(told), limit, late).catch(report)
      }
    } catch (thrown) {
      report(thrown)
    }
  }

  #reportListener (err: unknown): void {
    this.#report(err, 'a listener for the end of an exchange failed')
  }

  #report (err: unknown, what: string): void {
    this.snapshot.services.log.error({ request_id: this.id, err }, what)
  }
}
