// An attempt in progress at its target: counts as running until its end, whose result counts for the target and for the
// credential.
import type { Logger } from 'pino'
import type { GatewayError } from '../../errors.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
import type { Cooldown } from './cooldown.ts'
import { type Blame, blameFor } from './attribution.ts'
import type { Breaker } from './breaker.ts'
import type { FailedAttempt, Credential, Upstream } from '../../core/upstream.ts'

/** The permit for one attempt. Exactly one of `succeed`, `fail` and `leave` takes effect: the first call. */
export interface Permit {
  /** with the headers of the chosen credential */
  readonly upstream: Upstream
  /** undefined: the upstream has only one */
  readonly credential: string | undefined
  /** the failure that ended it; undefined: no failure of an upstream */
  readonly died: Died | undefined
  /** The answer has begun, which is enough for a probe. */
  begin (): void
  /** The answer is complete. */
  succeed (): void
  /**
   * The attempt failed; decides whether the target or its credential is at fault.
   * @param error as named for the client
   */
  fail (failure: UpstreamFailure, error: GatewayError): void
  /** Ended without a verdict on the target: the client left, a plugin threw, the gateway stops. */
  leave (): void
}

export interface Died {
  readonly failure: UpstreamFailure
  readonly blame: Blame
}

const LIMITED_MS = { first: 1000, longest: 60_000 }
const REFUSED_MS = { first: 30_000, longest: 600_000 }
/** Cooldown of an only credential: short, because a refusal by mistake or a bill paid late must not cost minutes. */
const ALONE_MS = { first: 1000, longest: 30_000 }

/** State of a model at an upstream. */
export interface Target {
  running: number
  readonly breaker: Breaker
  /** retry-after deadline, ms since epoch */
  until: number
  /** by the credential's key: vendors limit and forbid by model */
  readonly cooldowns: Map<string, Cooldown>
  /** the last failure, however long ago */
  lastError: FailedAttempt | undefined
  readonly counts: TargetCounts | undefined
}

/** State of a credential, over all models. */
export interface CredentialState {
  running: number
  readonly refused: Cooldown
}

export type Log = Pick<Logger, 'info' | 'warn'>

/** What becomes of the attempts at one target, for metrics: looked up once, as long as the target is known. */
export interface TargetCounts {
  /** An answer has begun: a stream's first content came, or the whole of another answer. */
  answered (ms: number): void
  /**
   * An attempt is over. `ok`: the answer came whole. `failed`: the target or its credential was at fault. `refused`:
   * the request was. One that was given up, because its client left, is none of them.
   */
  done (result: 'ok' | 'failed' | 'refused'): void
}

export interface TargetMetrics {
  target (upstream: string, model: string): TargetCounts
}

/** What all runs share. */
export interface RunParts {
  /** milliseconds since the epoch */
  readonly now: () => number
  readonly log: Log | undefined
}

/** The target, credential and breaker of an attempt. */
export interface Destination {
  readonly model: string
  readonly target: Target
  readonly credential: Credential
  /** the upstream has no other credential */
  readonly isAlone: boolean
  readonly account: CredentialState
  readonly cooldown: Cooldown
  /** this request has failed there before by the target's fault: another failure is not counted */
  readonly isBlamed: boolean
}

export class Run implements Permit {
  died: Died | undefined
  readonly #destination: Destination
  readonly #parts: RunParts
  readonly #onOver: (() => void) | undefined
  /** by `performance.now()` */
  readonly #began = performance.now()
  #hasAnswered = false
  /** term of the breaker, and of the cooldowns, at the beginning of the attempt */
  #term: number
  readonly #cooldownTerm: number
  readonly #refusedTerm: number
  #isOver = false

  /** @param now milliseconds since the epoch @param onOver called once, at its end */
  constructor (to: Destination, parts: RunParts, now: number, onOver: (() => void) | undefined) {
    const { target, account, cooldown } = this.#destination = to
    this.#parts = parts
    this.#onOver = onOver
    this.#term = target.breaker.enter(now)
    this.#cooldownTerm = cooldown.term
    this.#refusedTerm = account.refused.term
    target.running++
    account.running++
  }

  get upstream (): Upstream {
    return this.#destination.credential.upstream
  }

  get credential (): string | undefined {
    return this.#destination.credential.id
  }

  begin (): void {
    if (this.#isOver) return
    this.#close()
    this.#noteAnswer()
  }

  succeed (): void {
    if (!this.#end()) return
    const { target, account, cooldown } = this.#destination
    this.#close()
    target.breaker.succeed(this.#term, this.#parts.now())
    cooldown.reset(this.#cooldownTerm)
    account.refused.reset(this.#refusedTerm)
    this.#noteAnswer()
    target.counts?.done('ok')
  }

  fail (failure: UpstreamFailure, error: GatewayError): void {
    if (!this.#end()) return
    const blame = blameFor(failure, error, this.#parts.now)
    this.died = { failure, blame }
    this.#destination.target.counts?.done(blame.who === 'nobody' ? 'refused' : 'failed')
    if (blame.who === 'target') this.#blameTarget(blame.pause)
    else this.#destination.target.breaker.leave(this.#term)
    if (blame.who === 'credential') this.#blameCredential(blame, failure)
  }

  leave (): void {
    if (this.#end()) this.#destination.target.breaker.leave(this.#term)
  }

  #noteAnswer (): void {
    if (this.#hasAnswered) return
    this.#hasAnswered = true
    this.#destination.target.counts?.answered(performance.now() - this.#began)
  }

  /** @returns false: it had ended before */
  #end (): boolean {
    if (this.#isOver) return false
    this.#isOver = true
    this.#destination.target.running--
    this.#destination.account.running--
    this.#onOver?.()
    return true
  }

  /** Frees the place of the probe. */
  #close (): void {
    const term = this.#destination.target.breaker.begin(this.#term)
    if (term === this.#term) return
    this.#term = term
    this.#parts.log?.info({ upstream: this.upstream.name, model: this.#destination.model }, 'a target answers again')
  }

  #blameTarget (pause: number | undefined): void {
    const { model, target, isBlamed } = this.#destination
    const now = this.#parts.now()
    if (pause !== undefined) target.until = Math.max(target.until, now + pause)
    const open = target.breaker.fail(this.#term, this.upstream.config.breaker, now, !isBlamed)
    if (open !== undefined) {
      this.#parts.log?.warn({ upstream: this.upstream.name, model, open_ms: open },
        'a target fails: it is left alone for a while')
    }
  }

  #blameCredential (blame: Blame & { readonly who: 'credential' }, failure: UpstreamFailure): void {
    const { model, account, cooldown, isAlone } = this.#destination
    const now = this.#parts.now()
    if (blame.why === 'limited') { cooldown.put(this.#cooldownTerm, LIMITED_MS, now, blame.pause); return }
    const times = isAlone ? ALONE_MS : REFUSED_MS
    const isFirst = blame.why === 'forbidden'
      ? cooldown.put(this.#cooldownTerm, times, now)
      : account.refused.put(this.#refusedTerm, times, now)
    if (!isFirst) return
    const status = failure.kind === 'status' ? failure.status : failure.kind
    this.#parts.log?.warn(
      { upstream: this.upstream.name, model, credential: this.credential, status },
      `an upstream refuses ${this.credential === undefined ? 'our credentials' : 'a credential'}: put aside for a while`
    )
  }
}
