// Failover: the order in which targets are asked. First each attempt of the plan once, then again those that may
// succeed soon. An attempt that failed before its commit costs nothing, so the client gets only the last error.
import { type Awaitable, proceed } from '../base/awaitable.ts'
import { mark } from '../base/stall-marks.ts'
import { type Answer, type AnswerListener, tryAttempt } from './attempt.ts'
import type { RetriesConfig } from '../config/config.ts'
import { modalities, type Modality } from '../config/sections/modalities.ts'
import { type ErrorCode, GatewayError, toGatewayError } from '../errors.ts'
import type { Routed } from '../core/endpoint.ts'
import { type Attempt, Plan } from '../core/facts.ts'
import { dialectOf } from '../upstream/dialects/index.ts'
import { acquire, notServed } from '../upstream/limits/acquire.ts'
import { isPassing, isTurnedAway } from '../upstream/limits/attribution.ts'
import type { Died, Permit } from '../upstream/limits/permit.ts'
import type { Upstream } from '../core/upstream.ts'
import { type Upstreams, upstreamsOf } from '../upstream/pool.ts'
import { pause } from '../core/queue-time.ts'

/** One attempt of the plan: its state, and the listener while it is asked. */
class Candidate implements AnswerListener {
  attempt: Attempt
  readonly upstream: Upstream
  /** `unasked`: not asked yet, or waiting for its target; `over`: asking it again would not help */
  state: 'unasked' | 'failed' | 'over' = 'unasked'
  /** keys of the credentials used in this round; undefined: none was at fault */
  tried: Set<string> | undefined
  /** repetitions so far, with the one about to begin */
  repetitions = 0
  /** its last answer was that the request itself is wrong */
  refusesRequest = false
  /** a failure of this exchange was the target's fault: that counts once */
  isBlamed = false
  /** row of the catalogue of its last error */
  reason = ''
  /** milliseconds that were spent on waiting for its recovery */
  waitedMs = 0
  /** times that another exchange took the recovered target first */
  lostRaces = 0
  /** of the call that runs */
  permit: Permit | undefined
  readonly #walk: Walk

  constructor (attempt: Attempt, upstream: Upstream, walk: Walk) {
    this.attempt = attempt
    this.upstream = upstream
    this.#walk = walk
  }

  onAnswer (answer: Answer): void {
    this.#walk.onAnswer(answer)
  }

  onFailed (thrown: unknown): void {
    this.#walk.onFailed(this, thrown)
  }
}

/** Statuses of errors that the request itself has caused. */
const OF_REQUEST: ReadonlySet<number> = new Set([400, 413, 422])
/** A shorter request is served at once by the target that says so, so clients get it rather than a failure. */
const FULL_CONTEXT = 'context_length_exceeded'

/** Ends the walk, whatever the targets do while it waits for places. */
const MOST_LOST_RACES = 10

/**
 * Walks the plan while the error says that another attempt may help, nothing is committed, and the client is there.
 * @param listener gets the answer; or a GatewayError once nothing is left to try, with a Retry-After at which it can
 * succeed
 */
export function walk (exchange: Routed, listener: AnswerListener): void {
  mark('attempt', exchange)
  try {
    new Walk(exchange, listener).begin()
  } catch (thrown) {
    listener.onFailed(thrown)
  }
}

class Walk {
  readonly #exchange: Routed
  readonly #listener: AnswerListener
  readonly #plan: Plan
  readonly #health: Upstreams['health']
  readonly #queues: Upstreams['queues']
  readonly #candidates: readonly Candidate[]
  /** all were asked that could be: from now on those that may succeed soon */
  #isSecondRound = false
  /** the last failure of a target, or of its queue */
  #last: unknown
  /** the last time that a target refused a credential of ours */
  #refusesUs: GatewayError | undefined
  /** the request's own fault, as the last target has named it */
  #refusal: GatewayError | undefined

  constructor (exchange: Routed, listener: AnswerListener) {
    const { upstreams, services } = exchange.snapshot
    const { health, queues } = upstreamsOf(services)
    this.#exchange = exchange
    this.#listener = listener
    this.#plan = exchange.get(Plan)
    this.#health = health
    this.#queues = queues
    const { attempts } = this.#plan
    const candidates: Candidate[] = new Array(attempts.length)
    for (let place = 0; place < candidates.length; place++) {
      const attempt = attempts[place]!
      candidates[place] = new Candidate(attempt, upstreams.get(attempt.upstream)!, this)
    }
    this.#candidates = candidates
  }

  /** @throws {GatewayError} no target may be asked */
  begin (): void {
    this.#goOn()
  }

  /** Asks the next one. @throws {GatewayError} none is left */
  #goOn (): void {
    const unasked = this.#isSecondRound ? undefined : this.#nextUnasked()
    if (unasked !== undefined) { this.#ask(unasked); return }
    this.#isSecondRound = true
    for (let next = this.#soonest(); next !== undefined; next = this.#soonest()) {
      const { candidate, wait } = next
      if (!this.#mayAskAgain(candidate, wait)) continue
      this.#askAfter(candidate, wait)
      return
    }
    throw this.#verdict()
  }

  #askAfter (candidate: Candidate, wait: number): void {
    proceed(() => pause(this.#exchange, wait), () => { this.#ask(candidate) }, (thrown) => { this.#end(thrown) })
  }

  #end (thrown: unknown): void {
    this.#listener.onFailed(thrown)
  }

  /**
   * The next attempt in the order of the plan, but within a channel those first that need not wait for a place. Not
   * across channels, because another channel has another price.
   */
  #nextUnasked (): Candidate | undefined {
    let first: Candidate | undefined
    for (const candidate of this.#candidates) {
      const { state, lostRaces, attempt, upstream } = candidate
      if (state !== 'unasked' || lostRaces > 0 || this.#health.waitOf(upstream, attempt.model) !== 0) continue
      if (first !== undefined && attempt.channel !== first.attempt.channel) continue
      if (this.#queues.hasRoom(upstream)) return candidate
      first ??= candidate
    }
    return first
  }

  /** The candidate that may be asked again soonest, if it is soon enough. @returns wait in milliseconds */
  #soonest (): { readonly candidate: Candidate, readonly wait: number } | undefined {
    let found: { readonly candidate: Candidate, readonly wait: number } | undefined
    for (const candidate of this.#candidates) {
      const { attempt, upstream, state, repetitions, waitedMs } = candidate
      const { retries } = upstream.config
      if (state === 'over' || (state === 'failed' && repetitions >= retries.attempts)) continue
      const recovery = this.#health.waitOf(upstream, attempt.model)
      const wait = state === 'unasked' ? recovery : Math.max(recovery, backoffOf(retries, repetitions, Math.random))
      if (waitedMs + wait > retries.max_backoff) continue
      if (found === undefined || wait < found.wait) found = { candidate, wait }
    }
    return found
  }

  /**
   * Whether the candidate may be asked; counts a repetition in the upstream's retry budget, and a wait against its
   * limit.
   */
  #mayAskAgain (candidate: Candidate, wait: number): boolean {
    if (candidate.state !== 'failed') {
      candidate.waitedMs += wait
      return true
    }
    if (!this.#health.mayRepeat(candidate.upstream)) {
      candidate.state = 'over'
      return false
    }
    this.#exchange.snapshot.services.metrics.upstreamRetried(candidate.attempt.upstream, candidate.reason)
    candidate.repetitions++
    candidate.tried = undefined
    // It keeps its turn if it gets no permit: a timer may fire a millisecond before the clock is there.
    candidate.state = 'unasked'
    return true
  }

  /** @throws none is left */
  #ask (candidate: Candidate): void {
    const { attempt, upstream, tried, isBlamed } = candidate
    let acquired: Awaitable<Permit | undefined>
    try {
      acquired = acquire(this.#exchange, upstream, attempt.model, tried, isBlamed)
    } catch (thrown) {
      this.#withoutPlace(candidate, thrown)
      return
    }
    if (acquired instanceof Promise) this.#awaitPlace(candidate, acquired)
    else this.#enter(candidate, acquired)
  }

  #awaitPlace (candidate: Candidate, acquired: Promise<Permit | undefined>): void {
    acquired.then((permit) => { this.#orEnd(() => { this.#enter(candidate, permit) }) },
      (thrown: unknown) => { this.#orEnd(() => { this.#withoutPlace(candidate, thrown) }) })
  }

  /** @param permit undefined: the target can't be asked now, though it could before the wait */
  #enter (candidate: Candidate, permit: Permit | undefined): void {
    if (permit !== undefined) { this.#send(candidate, permit); return }
    if (++candidate.lostRaces > MOST_LOST_RACES) candidate.state = 'over'
    this.#goOn()
  }

  /** No place in the queue: reported only if no target fails later. */
  #withoutPlace (candidate: Candidate, thrown: unknown): void {
    if (this.#exchange.abortReason !== undefined) throw thrown
    candidate.state = 'over'
    this.#last ??= thrown
    this.#goOn()
  }

  #send (candidate: Candidate, permit: Permit): void {
    const { attempt, upstream, tried } = candidate
    const isFirst = candidate.repetitions === 0 && tried === undefined && attempt.withoutThoughts !== true
    if (isFirst) this.#health.deposit(upstream)
    candidate.permit = permit
    tryAttempt(this.#exchange, attempt, permit, candidate)
  }

  onAnswer (answer: Answer): void {
    this.#listener.onAnswer(answer)
  }

  onFailed (candidate: Candidate, thrown: unknown): void {
    this.#orEnd(() => { this.#afterFailure(candidate, candidate.permit!, thrown) })
  }

  /** Nothing was committed, and another attempt may succeed. @throws no other may */
  #afterFailure (candidate: Candidate, permit: Permit, thrown: unknown): void {
    if (this.#exchange.abortReason !== undefined) throw thrown
    candidate.state = 'over'
    if (this.#forgetsThoughts(candidate, permit.died)) { this.#ask(candidate); return }
    this.#judge(candidate, permit.died, thrown)
    if (this.#hasOtherCredential(candidate, permit)) this.#ask(candidate)
    else this.#goOn()
  }

  #orEnd (step: () => void): void {
    try {
      step()
    } catch (thrown) {
      this.#end(thrown)
    }
  }

  /** Decides after a failed attempt about its candidate, and about all others. @throws no other may be asked */
  #judge (candidate: Candidate, died: Died | undefined, thrown: unknown): void {
    const error = toGatewayError(thrown)
    const { item, isTask = false } = modalityOf(this.#exchange)
    const { mayBeExecuting } = this.#exchange
    candidate.refusesRequest = OF_REQUEST.has(error.status)
    // A second video would be charged too, and the client would never learn of the first.
    if (mayBeExecuting && isTask) throw thrown
    if (!error.retryable && !(died !== undefined && this.#mayGoOnAfter(candidate, error.row))) throw thrown
    this.#keep(candidate, died, error)
    if (died === undefined) return
    // The upstream may still be making a paid item, and a repetition would make it twice.
    const isMadeTwice = isTask ? !isTurnedAway(died.failure) : item !== undefined && mayBeExecuting
    if (!isMadeTwice && isPassing(died.failure, error)) candidate.state = 'failed'
    candidate.reason = error.row
    if (died.blame.who === 'target') candidate.isBlamed = true
  }

  /** Keeps the error for the verdict. */
  #keep ({ refusesRequest }: Candidate, died: Died | undefined, error: GatewayError): void {
    if (refusesRequest) {
      // That a dialect can't express the request is less informative, and a full context can be helped.
      const isWorse = error.retryable || this.#refusal?.row === FULL_CONTEXT
      if (this.#refusal === undefined || !isWorse) this.#refusal = error
    } else if (died?.blame.who === 'credential' && died.blame.why !== 'limited') this.#refusesUs = error
    else this.#last = error
  }

  /**
   * Whether the walk goes on as if the plan did not have this target, which has refused the request: a target that was
   * preferred to it failed, or is unavailable or full, and may accept the request (src/README.md#hidden-outage).
   */
  #mayGoOnAfter (candidate: Candidate, code: ErrorCode): boolean {
    if (!candidate.refusesRequest || code === 'content_policy_violation') return false
    const place = this.#candidates.indexOf(candidate)
    return this.#candidates.some((other, i) => other !== candidate && !other.refusesRequest &&
      (other.state !== 'unasked' || i < place || (isEqual(other, candidate) && this.#waitOf(other) > 0)))
  }

  #waitOf ({ upstream, attempt }: Candidate): number {
    return this.#health.waitOf(upstream, attempt.model)
  }

  /**
   * Whether the target refused thoughts that it had made itself: for another organization, or with a key that is gone.
   * It is asked again without them, once; a conversation must not end with the account that it began with.
   */
  #forgetsThoughts (candidate: Candidate, died: Died | undefined): boolean {
    const { attempt, upstream } = candidate
    const failure = died?.failure
    if (attempt.withoutThoughts === true || (failure?.kind !== 'status' && failure?.kind !== 'error_event')) return false
    if (dialectOf(upstream).refusesThoughts?.(failure.body) !== true) return false
    candidate.attempt = { ...attempt, withoutThoughts: true }
    this.#exchange.snapshot.services.metrics.upstreamRetried(attempt.upstream, 'thoughts')
    return true
  }

  /** Whether the credential was at fault, and the target can be asked at once with another one. */
  #hasOtherCredential (candidate: Candidate, { died, upstream: asked }: Permit): boolean {
    if (died?.blame.who !== 'credential') return false
    const { attempt, upstream } = candidate
    const tried = candidate.tried ??= new Set()
    tried.add(asked.credentials[0]!.key)
    if (this.#health.waitOf(upstream, attempt.model, tried) !== 0) return false
    this.#exchange.snapshot.services.metrics.upstreamRetried(attempt.upstream, 'credential')
    return true
  }

  #verdict (): unknown {
    if (this.#candidates.length === 0) return new Error('the plan has no attempts')
    const candidates = this.#candidates.filter(({ refusesRequest }) => !refusesRequest)
    if (candidates.length === 0 || this.#refusal?.row === FULL_CONTEXT) return this.#refusal
    const recovery =
      Math.min(...candidates.map(({ upstream, attempt }) => this.#health.recoveryOf(upstream, attempt.model))) /
      1000
    const last = this.#last
    const error = last === undefined ? undefined : toGatewayError(last)
    const retryAfter = recovery > 0 && { retryAfter: recovery }
    if (this.#plan.otherwise !== undefined && error?.status !== 429) {
      return new GatewayError(this.#plan.otherwise, { cause: last ?? this.#refusesUs, ...retryAfter })
    }
    // Meanwhile a reset may have let the credentials in again: then nothing has to be waited for.
    const isReset = error === undefined && this.#refusesUs !== undefined && recovery === 0
    if (isReset || candidates.every(({ upstream, attempt }) => this.#health.refusesUs(upstream, attempt.model))) {
      return notServed(recovery * 1000, this.#refusesUs?.cause)
    }
    // No target failed: the operator gets the reasons.
    if (error === undefined) {
      return new GatewayError('model_overloaded', {
        cause: { kind: candidates.map((candidate) => this.#nameOut(candidate)).join(', ') }, ...retryAfter
      })
    }
    // The Retry-After of the last target does not apply to the others.
    if (error.row === 'model_overloaded' && recovery > 0) {
      return new GatewayError('model_overloaded', { cause: error.cause, retryAfter: recovery })
    }
    return last
  }

  #nameOut ({ attempt: { upstream: name, model }, upstream }: Candidate): string {
    return `${name}/${model}: ${this.#health.reasonOf(upstream, model) ?? 'out'}`
  }
}

/** Whether two targets are of one tier, within which the order is that of load and health. */
function isEqual ({ attempt: one }: Candidate, { attempt: other }: Candidate): boolean {
  return one.sold === other.sold && priorityOf(one) === priorityOf(other)
}

function priorityOf ({ sold: { targets }, upstream, model }: Attempt): number | undefined {
  return targets.find((target) => target.upstream === upstream && target.model === model)?.priority
}

/**
 * Full jitter: exchanges that failed together do not retry together.
 * @param n repetitions so far
 * @returns milliseconds
 */
export function backoffOf ({ backoff, max_backoff: longest }: RetriesConfig, n: number, random: () => number): number {
  return Math.min(longest, backoff * 2 ** n) * random()
}

function modalityOf ({ route: { endpoint } }: Routed): Modality {
  return modalities[endpoint.kind === 'model' ? endpoint.modality : 'text']
}
