// The way to a target: first a place in its upstream's queue, then the permit of its health. Both end together.
import type { Awaitable } from '../../base/awaitable.ts'
import { GatewayError } from '../../errors.ts'
import type { Exchange } from '../../core/exchange.ts'
import { saysNoMoney } from '../../core/credential-fault.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
import { readError } from '../../core/vendor-error.ts'
import { waitFor } from '../../core/queue-time.ts'
import { upstreamsOf } from '../pool.ts'
import type { Health } from './health.ts'
import type { Permit } from './permit.ts'
import type { Upstream } from '../../core/upstream.ts'

/**
 * Acquires a permit for a target, after a place in the queue.
 * @param tried keys of the credentials that are out of the question
 * @param isBlamed the exchange has failed there before, by the target's fault
 * @returns undefined: the target can't be asked now, though it could before the wait
 * @throws {GatewayError} queue_full, queue_timeout; the abort reason of the exchange
 */
export function acquire (
  exchange: Exchange,
  upstream: Upstream,
  model: string,
  tried?: ReadonlySet<string>,
  isBlamed?: boolean
): Awaitable<Permit | undefined> {
  const { queues, health } = upstreamsOf(exchange.snapshot.services)
  const entering = queues.enter(upstream, exchange)
  return entering instanceof Promise
    ? enterBehind(waitFor(exchange, entering), health, upstream, model, tried, isBlamed)
    : enter(health, upstream, model, tried, isBlamed, entering)
}

function enterBehind (
  entering: Promise<() => void>,
  health: Health,
  upstream: Upstream,
  model: string,
  tried: ReadonlySet<string> | undefined,
  isBlamed: boolean | undefined
): Promise<Permit | undefined> {
  return entering.then((giveBack) => enter(health, upstream, model, tried, isBlamed, giveBack))
}

function enter (
  health: Health,
  upstream: Upstream,
  model: string,
  tried: ReadonlySet<string> | undefined,
  isBlamed: boolean | undefined,
  giveBack: () => void
): Permit | undefined {
  const permit = health.enter(upstream, model, tried, giveBack, isBlamed)
  if (permit === undefined) giveBack()
  return permit
}

/**
 * The same for bytes that are forwarded unread: the route has only this one target.
 * @throws {GatewayError} model_overloaded, service_unavailable: the target takes no request before its Retry-After
 */
export async function acquireUnread (exchange: Exchange, upstream: Upstream): Promise<Permit> {
  const { health } = upstreamsOf(exchange.snapshot.services)
  const model = exchange.route.name
  // Before the queue: a request that will be refused anyway must not take a place.
  const permit = health.waitOf(upstream, model) > 0 ? undefined : await acquire(exchange, upstream, model)
  if (permit === undefined) {
    const recovery = health.recoveryOf(upstream, model)
    throw health.refusesUs(upstream, model) ? notServed(recovery) : new GatewayError('model_overloaded', {
      message: 'The provider behind this address does not answer well now. Try again in {wait}.',
      retryAfter: recovery / 1000
    })
  }
  exchange.credential = permit.credential
  return permit
}

/**
 * Ends a permit after a failure. Of the refusals of a credential only an account without money counts against it: the
 * client chose the path, and the credential may lack the right to that path only.
 * @returns the client's error
 */
export function failUnread (
  permit: Permit, failure: UpstreamFailure, error: GatewayError, { snapshot, route }: Exchange
): GatewayError {
  if (isRefusal(failure) && !saysNoMoney(failure)) { permit.leave(); return error }
  permit.fail(failure, error)
  const { health } = upstreamsOf(snapshot.services)
  const upstream = snapshot.upstreams.get(permit.upstream.name)!
  return health.refusesUs(upstream, route.name) ? notServed(health.recoveryOf(upstream, route.name), error) : error
}

function isRefusal (failure: UpstreamFailure): boolean {
  return failure.kind === 'status' && [401, 402, 403].includes(readError(failure).status ?? 0)
}

/**
 * The client's error where no credential of ours is accepted. Not an overload, which is over in seconds. Retry-After
 * has a minute at most, and the sentence the whole time.
 * @param recovery milliseconds until the next probe
 */
export function notServed (recovery: number, cause?: unknown): GatewayError {
  const seconds = Math.max(1, Math.ceil(recovery / 1000))
  const wait = seconds > LONGEST_SECONDS ? `${Math.ceil(seconds / 60)} minutes` : '{wait}'
  return new GatewayError('service_unavailable', {
    message: `The service is unavailable at this moment. Try again in ${wait}.`,
    retryAfter: seconds,
    // Claude Code repeats a 503 ten times, a minute apart, and its user reads nothing meanwhile.
    repeatable: seconds <= LONGEST_SECONDS,
    cause: cause ?? { kind: 'credentials refused' }
  })
}

/** Seconds that a sentence gives as such. */
const LONGEST_SECONDS = 60
