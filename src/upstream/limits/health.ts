// Health of each target (a model of an upstream): its breaker, its load, and which of the upstream's credentials are
// usable. Outlives reloads; settings come with each call, from the snapshot of the calling request. No timers: states
// expire by the clock.
import type { Config } from '../../config/config.ts'
import { targetsIn } from '../../config/targets.ts'
import { Cooldown, type CooldownState } from './cooldown.ts'
import { Breaker, type BreakerState } from './breaker.ts'
import type { Credential, FailedAttempt, TargetHealth, Upstream } from '../../core/upstream.ts'
import { type CooldownReason, type CredentialState, type Log, type Permit, type Destination, PROBE_MS, Run,
  type RunParts, type Target, type TargetMetrics } from './permit.ts'
import { RetryBudget } from './retry-budget.ts'

export interface TargetView {
  readonly upstream: string
  /** model, or the forward route */
  readonly model: string
  readonly breaker: BreakerState
  readonly running: number
  /** attempts that ended within the breaker's window */
  readonly ended: number
  readonly failed: number
  /** milliseconds until it takes a request */
  readonly wait: number
  /** absent: no attempt has failed since the process started */
  readonly lastError?: FailedAttempt
}

export interface CredentialView {
  readonly upstream: string
  /** "headers" for an upstream without named credentials */
  readonly id: string
  readonly running: number
  /** `probing`: its cooldown is over, and the next request finds out whether it is accepted again */
  readonly state: CooldownState
  /** of the longest of its cooldowns; absent: it is healthy */
  readonly reason?: CooldownReason
  /** milliseconds until it may be used for all models: refused as a whole, or for the last of its models */
  readonly wait: number
}

/** State of one upstream. */
interface UpstreamHealth {
  readonly url: string
  readonly targets: Map<string, Target>
  /** by the credential's `key` */
  readonly accounts: Map<string, CredentialState>
  readonly budget: RetryBudget
}

/** The part of a snapshot that `retain` needs. */
interface Live {
  readonly config: Pick<Config, 'models' | 'routes'>
  readonly upstreams: ReadonlyMap<string, Upstream>
}

export class Health implements TargetHealth {
  readonly #now: () => number
  readonly #runs: RunParts
  readonly #metrics: TargetMetrics | undefined
  readonly #known = new Map<string, UpstreamHealth>()

  /** @param now milliseconds since the epoch */
  constructor (now: () => number, log?: Log, metrics?: TargetMetrics) {
    this.#now = now
    this.#runs = { now, log }
    this.#metrics = metrics
  }

  /** Attempts in progress at a target. */
  loadOf (upstream: string, model: string): number {
    return this.#known.get(upstream)?.targets.get(model)?.running ?? 0
  }

  /**
   * Milliseconds until an attempt may go to a target; 0: now. Changes nothing.
   * @param tried keys of the credentials that are out of the question; Infinity where no other is left
   */
  waitOf (upstream: Upstream, model: string, tried: ReadonlySet<string> = NONE): number {
    return this.#waitAt(this.#now(), upstream, model, tried)
  }

  #waitAt (now: number, upstream: Upstream, model: string, tried: ReadonlySet<string>): number {
    const known = this.#known.get(upstream.name)
    const target = known?.targets.get(model)
    const ofTarget = target === undefined ? 0 : Math.max(target.breaker.wait(now), target.until - now)
    let soonest = Infinity
    for (const credential of upstream.credentials) {
      if (!tried.has(credential.key)) soonest = Math.min(soonest, waitFor(credential, known, target, now))
    }
    return Math.max(ofTarget, soonest)
  }

  /**
   * An upper bound of the milliseconds until an attempt may go to a target, for Retry-After. While a probe runs it is
   * longer than `waitOf`, because the probe may end sooner.
   */
  recoveryOf (upstream: Upstream, model: string): number {
    const known = this.#known.get(upstream.name)
    const target = known?.targets.get(model)
    const now = this.#now()
    const ofCredentials = Math.min(...upstream.credentials.map(({ key }) =>
      Math.max(known?.accounts.get(key)?.refused.recovery(now) ?? 0, target?.cooldowns.get(key)?.recovery(now) ?? 0)))
    return Math.max(this.waitOf(upstream, model), target?.breaker.recovery(now) ?? 0, ofCredentials)
  }

  /** Whether none of our credentials is accepted there: only a probe or the operator ends that. */
  refusesUs (upstream: Upstream, model: string): boolean {
    const known = this.#known.get(upstream.name)
    const cooldowns = known?.targets.get(model)?.cooldowns
    const now = this.#now()
    return upstream.credentials.every(({ key }) => {
      const ofModel = cooldowns?.get(key)
      return (known?.accounts.get(key)?.refused.wait(now) ?? 0) > 0 ||
        (ofModel !== undefined && ofModel.wait(now) > 0 && ofModel.reason(now) === 'forbidden')
    })
  }

  /**
   * Ends the cooldowns of an upstream's credentials, for all models.
   * @param id absent: of all its credentials
   */
  reset (upstream: Upstream, id?: string): void {
    const known = this.#known.get(upstream.name)
    for (const credential of upstream.credentials) {
      if (id !== undefined && nameOf(credential) !== id) continue
      known?.accounts.get(credential.key)?.refused.clear()
      for (const { cooldowns } of known?.targets.values() ?? []) cooldowns.get(credential.key)?.clear()
    }
  }

  /** Whether a target takes an ordinary attempt now: neither it nor a credential needs a probe. */
  isWell (upstream: Upstream, model: string): boolean {
    const known = this.#known.get(upstream.name)
    const now = this.#now()
    return this.waitOf(upstream, model) === 0 &&
      (known?.targets.get(model)?.breaker.state(now) ?? 'closed') === 'closed' &&
      upstream.credentials.every(({ key }) => known?.accounts.get(key)?.refused.state(now) !== 'probing')
  }

  /** What keeps an attempt from a target now, for the log; undefined: nothing. */
  reasonOf (upstream: Upstream, model: string): string | undefined {
    if (this.waitOf(upstream, model) === 0) return undefined
    const known = this.#known.get(upstream.name)
    const target = known?.targets.get(model)
    const now = this.#now()
    if (target !== undefined && target.breaker.wait(now) > 0) return 'breaker open'
    if (target !== undefined && target.until > now) return 'asked to wait'
    return this.refusesUs(upstream, model) ? 'credentials refused' : 'credentials limited or refused'
  }

  /**
   * Takes a permit: a credential, and the place of the probe where the breaker is not closed.
   * @param tried keys of the credentials that this request has used there
   * @param onOver called once, when the permit ends
   * @param isBlamed this request has failed there before, by the target's fault
   * @returns undefined: the target can't be asked now
   */
  enter (
    upstream: Upstream,
    model: string,
    tried: ReadonlySet<string> = NONE,
    onOver?: () => void,
    isBlamed = false
  ): Permit | undefined {
    const now = this.#now()
    if (this.#waitAt(now, upstream, model, tried) > 0) return undefined
    const { targets, accounts } = this.#of(upstream)
    const target = targets.get(model) ?? put(targets, model, { running: 0, breaker: new Breaker(), until: 0,
      cooldowns: new Map(), lastError: undefined, counts: this.#metrics?.target(upstream.name, model) })
    let destination: Destination | undefined
    for (const credential of upstream.credentials) {
      const { key } = credential
      const account = accounts.get(key) ?? put(accounts, key, { running: 0, refused: new Cooldown(PROBE_MS) })
      const cooldown = target.cooldowns.get(key) ?? put(target.cooldowns, key, new Cooldown())
      if (
        tried.has(key) || account.refused.wait(now) > 0 || cooldown.wait(now) > 0 ||
        account.running >= (destination?.account.running ?? Infinity)
      ) continue
      const isAlone = upstream.credentials.length === 1
      destination = { model, target, credential, isAlone, account, cooldown, isBlamed }
    }
    return destination && new Run(destination, this.#runs, now, onOver)
  }

  /** Keeps a target's last failure; a target that has never been entered has no record. */
  noteFailure (attempt: FailedAttempt): void {
    const target = this.#known.get(attempt.upstream)?.targets.get(attempt.model)
    if (target !== undefined) target.lastError = attempt
  }

  /** Counts a first attempt in the retry budget. */
  deposit (upstream: Upstream): void {
    this.#of(upstream).budget.deposit(this.#now())
  }

  /** Whether the retry budget allows one more attempt; counts it if so. */
  mayRepeat (upstream: Upstream): boolean {
    return this.#of(upstream).budget.take(upstream.config.retries, this.#now())
  }

  /** Forgets upstreams and targets that the live configuration does not have. */
  retain ({ config, upstreams }: Live): void {
    const models = targetsIn(config)
    for (const [name, known] of this.#known) {
      const upstream = upstreams.get(name)
      if (upstream?.config.url !== known.url) { this.#known.delete(name); continue }
      const keys = new Set(upstream.credentials.map(({ key }) => key))
      for (const key of known.accounts.keys()) if (!keys.has(key)) known.accounts.delete(key)
      for (const [model, target] of known.targets) {
        if (models.get(name)?.has(model) !== true) { known.targets.delete(model); continue }
        for (const key of target.cooldowns.keys()) if (!keys.has(key)) target.cooldowns.delete(key)
      }
    }
  }

  targets ({ config, upstreams }: Live): readonly TargetView[] {
    const found: TargetView[] = []
    const models = targetsIn(config)
    const now = this.#now()
    for (const [name, upstream] of upstreams) {
      const known = this.#known.get(name)
      for (const model of models.get(name) ?? []) {
        const target = known?.targets.get(model)
        const { all, marked } = target?.breaker.count(upstream.config.breaker.window, now) ?? { all: 0, marked: 0 }
        found.push({ upstream: name, model, breaker: target?.breaker.state(now) ?? 'closed',
          running: target?.running ?? 0, ended: all, failed: marked, wait: this.recoveryOf(upstream, model),
          ...(target?.lastError !== undefined && { lastError: target.lastError }) })
      }
    }
    return found
  }

  credentials ({ upstreams }: Pick<Live, 'upstreams'>): readonly CredentialView[] {
    const found: CredentialView[] = []
    const now = this.#now()
    for (const [name, { credentials }] of upstreams) {
      const known = this.#known.get(name)
      for (const credential of credentials) {
        const { key } = credential
        const account = known?.accounts.get(key)
        const all = [...account === undefined ? [] : [account.refused],
          ...[...known?.targets.values() ?? []].flatMap(({ cooldowns }) => cooldowns.get(key) ?? [])]
        found.push({ upstream: name, id: nameOf(credential), running: account?.running ?? 0, ...longestOf(all, now) })
      }
    }
    return found
  }

  #of ({ name, config: { url } }: Upstream): UpstreamHealth {
    let known = this.#known.get(name)
    // A new address may be another vendor: the state starts afresh.
    if (known?.url !== url) {
      this.#known.set(name, known = { url, targets: new Map(), accounts: new Map(), budget: new RetryBudget() })
    }
    return known
  }
}

const NONE: ReadonlySet<string> = new Set()

/** The longest of a credential's cooldowns; without one, a probe that is due. */
function longestOf (
  all: ReadonlyArray<Cooldown<CooldownReason>>, now: number
): Pick<CredentialView, 'state' | 'reason' | 'wait'> {
  const [longest] = all.filter((one) => one.state(now) !== 'healthy')
    .toSorted((one, other) => other.wait(now) - one.wait(now))
  const reason = longest?.reason(now)
  return { state: longest?.state(now) ?? 'healthy', ...(reason !== undefined && { reason }),
    wait: longest?.wait(now) ?? 0 }
}

/** The name of a credential for operators: an upstream without named ones has `headers`. */
export function nameOf ({ id }: Credential): string {
  return id ?? 'headers'
}

function put<T> (all: Map<string, T>, key: string, one: T): T {
  all.set(key, one)
  return one
}

function waitFor (
  { key }: Credential,
  known: UpstreamHealth | undefined,
  target: Target | undefined,
  now: number
): number {
  return Math.max(known?.accounts.get(key)?.refused.wait(now) ?? 0, target?.cooldowns.get(key)?.wait(now) ?? 0)
}
