// The way to a target: first a place in its upstream's queue, then the permit of its health. Both end together.
import type { Awaitable } from '../../base/awaitable.ts'
import { GatewayError } from '../../errors.ts'
import type { Exchange } from '../../core/exchange.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
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
 * @throws {GatewayError} model_overloaded: the target takes no request before its Retry-After
 */
export async function acquireUnread (exchange: Exchange, upstream: Upstream): Promise<Permit> {
  const { health } = upstreamsOf(exchange.snapshot.services)
  const model = exchange.route.name
  // Before the queue: a request that will be refused anyway must not take a place.
  const permit = health.waitOf(upstream, model) > 0 ? undefined : await acquire(exchange, upstream, model)
  if (permit === undefined) {
    throw new GatewayError('model_overloaded', {
      message: 'The provider behind this address does not answer well now. Try again in {wait}.',
      retryAfter: health.recoveryOf(upstream, model) / 1000
    })
  }
  exchange.credential = permit.credential
  return permit
}

/**
 * Ends a permit after a failure. A refusal of a credential does not count against it, because the client chose the
 * path: the credential may lack the right to that path only.
 */
export function failUnread (permit: Permit, failure: UpstreamFailure, error: GatewayError): void {
  if (failure.kind === 'status' && [401, 402, 403].includes(failure.status)) permit.leave()
  else permit.fail(failure, error)
}
