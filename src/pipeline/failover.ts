// Which target is asked when: the only place that knows. First each of the plan once, then again those that may do
// better in a moment. An attempt that failed before its commit costs nothing, so the client hears of the last one only.
import { type Answer, tryAttempt } from './attempt.ts'
import type { RetriesConfig } from '../config/config.ts'
import { modalities, type Modality } from '../config/sections/modalities.ts'
import { GatewayError, toGatewayError } from '../errors.ts'
import type { Routed } from '../core/endpoint.ts'
import { type Attempt, Plan } from '../core/facts.ts'
import { acquire } from '../upstream/limits/acquire.ts'
import { isPassing, isTurnedAway } from '../upstream/limits/attribution.ts'
import type { Permit } from '../upstream/limits/permit.ts'
import type { Upstream } from '../core/upstream.ts'
import { upstreamsOf } from '../upstream/pool.ts'
import { pause } from '../core/queue-time.ts'

/** What has become of one attempt of the plan. */
interface Candidate {
  readonly attempt: Attempt
  readonly upstream: Upstream
  /** `unasked`: its turn has not come, or it waits for its target; `over`: it would not help to ask it again */
  state: 'unasked' | 'failed' | 'over'
  /** keys of the credentials that it was asked with in this round */
  readonly tried: Set<string>
  /** how often it was asked again, or is about to be */
  repetitions: number
  /** it has failed by its target's fault: that counts once */
  isBlamed: boolean
  /** row of the catalogue */
  reason: string
  /** milliseconds that were spent on waiting for it to recover */
  waitedMs: number
  /** how often somebody else was faster when it had recovered */
  lostRaces: number
}

/** So that a walk ends, whatever becomes of the targets while it waits for places. */
const MOST_MISSES = 10

/**
 * Walks the plan while the error says that another attempt may help, nothing is committed, and the client is there.
 * @param random from 0 to below 1
 * @throws {GatewayError} once nothing is left to try, with a Retry-After at which it can succeed
 */
export async function walk (exchange: Routed, random: () => number = Math.random): Promise<Answer> {
  const { snapshot: { upstreams, services, services: { metrics } } } = exchange
  const { health, queues } = upstreamsOf(services)
  const plan = exchange.get(Plan)
  const { item, isTask = false } = modalityOf(exchange)
  const candidates = plan.attempts.map((attempt): Candidate => ({
    attempt,
    upstream: upstreams.get(attempt.upstream)!,
    state: 'unasked',
    tried: new Set(),
    repetitions: 0,
    isBlamed: false,
    reason: '',
    waitedMs: 0,
    lostRaces: 0
  }))
  /** what the client hears if nothing helps */
  let last: unknown

  for (let stop = nextUnasked(); stop !== undefined; stop = nextUnasked()) {
    const answer = await ask(stop)
    if (answer !== undefined) return answer
  }
  for (let again = soonest(); again !== undefined; again = soonest()) {
    const { stop, wait } = again
    if (stop.state === 'failed') {
      if (!health.mayRepeat(stop.upstream)) { stop.state = 'over'; continue }
      metrics.upstreamRetried(stop.attempt.upstream, stop.reason)
      stop.repetitions++
      stop.tried.clear()
      // So that it still has its turn where it finds no way in: a timer may come a millisecond before the clock is
      // there.
      stop.state = 'unasked'
    } else {
      stop.waitedMs += wait
    }
    await pause(exchange, wait)
    const answer = await ask(stop)
    if (answer !== undefined) return answer
  }
  throw verdict()

  /**
   * In the order of the plan, but of a channel those first that need not wait for a place: another channel has another
   * price.
   */
  function nextUnasked (): Candidate | undefined {
    const open = candidates.filter(({ state, lostRaces, attempt, upstream }) =>
      state === 'unasked' && lostRaces === 0 && health.waitOf(upstream, attempt.model) === 0
    )
    const [first] = open
    return open.find(({ attempt, upstream }) =>
      attempt.channel === first!.attempt.channel && queues.hasRoom(upstream)
    ) ?? first
  }

  /** Of those that may help after all, if one can be waited for. @returns with milliseconds */
  function soonest (): { readonly stop: Candidate, readonly wait: number } | undefined {
    let found: { readonly stop: Candidate, readonly wait: number } | undefined
    for (const stop of candidates) {
      const { attempt, upstream, state, repetitions, waitedMs } = stop
      const { retries } = upstream.config
      if (state === 'over' || (state === 'failed' && repetitions >= retries.attempts)) continue
      const recovery = health.waitOf(upstream, attempt.model)
      const wait = state === 'unasked' ? recovery : Math.max(recovery, backoffOf(retries, repetitions, random))
      if (waitedMs + wait <= retries.max_backoff && (found === undefined || wait < found.wait)) found = { stop, wait }
    }
    return found
  }

  /** @returns undefined: nothing of an answer came, and another may give one. @throws no other may */
  async function ask (stop: Candidate): Promise<Answer | undefined> {
    const { attempt, upstream, tried } = stop
    let permit: Permit | undefined
    try {
      permit = await acquire(exchange, upstream, attempt.model, tried, stop.isBlamed)
      if (permit === undefined) {
        if (++stop.lostRaces > MOST_MISSES) stop.state = 'over'
        return undefined
      }
      if (stop.repetitions === 0 && tried.size === 0) health.deposit(upstream)
      return await tryAttempt(exchange, attempt, permit)
    } catch (thrown) {
      if (exchange.abortReason !== undefined) throw thrown
      stop.state = 'over'
      const error = toGatewayError(thrown)
      // There was no place for it: that is heard if nothing else is.
      if (permit === undefined) { last ??= thrown; return undefined }
      // What one target can't be told is no news where another has failed, which could.
      if (last === undefined || error.status !== 400 || !error.retryable) last = thrown
      // A second video is paid for too, and nobody would ever hear of the first.
      if (!error.retryable || (exchange.mayBeExecuting && isTask)) throw thrown
      const { died } = permit
      if (died === undefined) return undefined
      // The upstream may still make what the operator pays for, and would make it once more.
      const isMadeTwice = isTask ? !isTurnedAway(died.failure) : item !== undefined && exchange.mayBeExecuting
      if (!isMadeTwice && isPassing(died.failure, error)) stop.state = 'failed'
      stop.reason = error.row
      if (died.blame.who === 'target') stop.isBlamed = true
      if (died.blame.who === 'credential') {
        tried.add(permit.upstream.credentials[0]!.key)
        if (health.waitOf(upstream, attempt.model, tried) === 0) {
          metrics.upstreamRetried(attempt.upstream, 'credential')
          return await ask(stop)
        }
      }
      return undefined
    }
  }

  function nameOut ({ attempt: { upstream: name, model }, upstream }: Candidate): string {
    return `${name}/${model}: ${health.reasonOf(upstream, model) ?? 'out'}`
  }

  function verdict (): unknown {
    if (candidates.length === 0) return new Error('the plan has no attempts')
    const recovery =
      Math.min(...candidates.map(({ upstream, attempt }) => health.recoveryOf(upstream, attempt.model))) /
      1000
    const error = last === undefined ? undefined : toGatewayError(last)
    const retryAfter = recovery > 0 && { retryAfter: recovery }
    if (plan.otherwise !== undefined && error?.status !== 400 && error?.status !== 429) {
      return new GatewayError(plan.otherwise, { cause: last, ...retryAfter })
    }
    // Nobody was asked: whoever is on call must find out why.
    if (error === undefined) {
      return new GatewayError('model_overloaded', { cause: { kind: candidates.map(nameOut).join(', ') },
        ...retryAfter })
    }
    // What the last target has asked for says nothing of the others.
    if (error.row === 'model_overloaded' && recovery > 0) {
      return new GatewayError('model_overloaded', { cause: error.cause, retryAfter: recovery })
    }
    return last
  }
}

/**
 * Full jitter: those that failed together do not come again together.
 * @param n how often it was asked again before
 * @returns milliseconds
 */
export function backoffOf ({ backoff, max_backoff: longest }: RetriesConfig, n: number, random: () => number): number {
  return Math.min(longest, backoff * 2 ** n) * random()
}

function modalityOf ({ route: { endpoint } }: Routed): Modality {
  return modalities[endpoint.kind === 'model' ? endpoint.modality : 'text']
}
