// An attempt in progress at its target: counts as running until its end, whose result counts for the target and for the
// credential.
import type { Logger } from 'pino'
import type { GatewayError } from '../../errors.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
import type { CredentialFault } from '../../core/credential-fault.ts'
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
/** Until somebody has paid, or renewed the key: an operator who is faster resets it. */
const FAULT_MS = { first: 600_000, longest: 600_000 }
const FORBIDDEN_MS = { first: 30_000, longest: 600_000 }
/** The same for an only credential: short, because what a request asks for can be forbidden instead of the model. */
const ALONE_MS = { first: 1000, longest: 30_000 }
/** Milliseconds after which a second probe may go: the first one may be a long answer that is read whole. */
export const PROBE_MS = 30_000

/** Why a credential is not used for a model: `limited` and `forbidden` concern one model, the others all of them. */
export type CooldownReason = CredentialFault | 'forbidden' | 'limited'

/** State of a model at an upstream. */
export interface Target {
  running: number
  readonly breaker: Breaker
  /** retry-after deadline, ms since epoch */
  until: number
  /** by the credential's key: vendors limit and forbid by model */
  readonly cooldowns: Map<string, Cooldown<'forbidden' | 'limited'>>
  /** the last failure, however long ago */
  lastError: FailedAttempt | undefined
  readonly counts: TargetCounts | undefined
}

/** State of a credential, over all models. */
export interface CredentialState {
  running: number
  readonly refused: Cooldown<CredentialFault>
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
  readonly cooldown: Cooldown<'forbidden' | 'limited'>
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
    this.#cooldownTerm = cooldown.enter(now)
    this.#refusedTerm = account.refused.enter(now)
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
    const { target, cooldown } = this.#destination
    this.#close()
    target.breaker.succeed(this.#term, this.#parts.now())
    cooldown.reset(this.#cooldownTerm)
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
    this.#destination.account.refused.leave(this.#refusedTerm)                      // a no-op after a refusal
  }

  leave (): void {
    if (!this.#end()) return
    this.#destination.target.breaker.leave(this.#term)
    this.#destination.account.refused.leave(this.#refusedTerm)
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

  /** Frees the places of the probes: the target has answered, and accepts the credential. */
  #close (): void {
    if (this.#destination.account.refused.reset(this.#refusedTerm)) {
      this.#parts.log?.info({ upstream: this.upstream.name, credential: this.credential },
        'an upstream accepts a credential again')
    }
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
    const { why } = blame
    const now = this.#parts.now()
    if (why === 'limited') { cooldown.put(this.#cooldownTerm, why, LIMITED_MS, now, blame.pause); return }
    const isFirst = why === 'forbidden'
      ? cooldown.put(this.#cooldownTerm, why, isAlone ? ALONE_MS : FORBIDDEN_MS, now)
      : account.refused.put(this.#refusedTerm, why, FAULT_MS, now)
    if (!isFirst) return
    const status = failure.kind === 'status' ? failure.status : failure.kind
    this.#parts.log?.warn(
      { upstream: this.upstream.name, model, credential: this.credential, reason: why, status },
      `an upstream refuses ${this.credential === undefined ? 'our credentials' : 'a credential'}: put aside for a while`
    )
  }
}
