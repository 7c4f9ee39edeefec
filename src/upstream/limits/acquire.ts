// The way to a target: first a place at its upstream's gate, then the pass of its health. Both end together.
import { GatewayError } from '../../errors.ts'
import type { Exchange } from '../../core/exchange.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
import { waitFor } from '../../core/queue-time.ts'
import { upstreamsOf } from '../pool.ts'
import type { Pass } from './permit.ts'
import type { Upstream } from '../../core/upstream.ts'

/**
 * Waits for a place, if it must.
 * @param tried keys of the credentials that are out of the question
 * @param isBlamed the exchange has failed there before, by the target's fault
 * @returns undefined: the target can't be asked now, though it could before the wait
 * @throws {GatewayError} queue_full, queue_timeout; why the exchange can't go on
 */
export async function admit (
  exchange: Exchange,
  upstream: Upstream,
  model: string,
  tried?: ReadonlySet<string>,
  isBlamed?: boolean
): Promise<Pass | undefined> {
  const { gates, health } = upstreamsOf(exchange.snapshot.services)
  const entering = gates.enter(upstream, exchange)
  const giveBack = entering instanceof Promise ? await waitFor(exchange, entering) : entering
  const pass = health.enter(upstream, model, tried, giveBack, isBlamed)
  if (pass === undefined) giveBack()
  return pass
}

/**
 * The same for bytes that are forwarded unread: there is only this one target, the route's.
 * @throws {GatewayError} model_overloaded: it can't be asked before its Retry-After
 */
export async function admitUnread (exchange: Exchange, upstream: Upstream): Promise<Pass> {
  const { health } = upstreamsOf(exchange.snapshot.services)
  const model = exchange.route.name
  // Before it waits: who may not go in anyway takes nobody's place in the queue.
  const pass = health.waitOf(upstream, model) > 0 ? undefined : await admit(exchange, upstream, model)
  if (pass === undefined) {
    throw new GatewayError('model_overloaded', {
      message: 'The provider behind this address does not answer well now. Try again in {wait}.',
      retryAfter: health.recoveryOf(upstream, model) / 1000
    })
  }
  exchange.credential = pass.credential
  return pass
}

/**
 * A credential may not be allowed what a client asks for by a path of its own choice: that says nothing of what else it
 * is good for.
 */
export function failUnread (pass: Pass, failure: UpstreamFailure, error: GatewayError): void {
  if (failure.kind === 'status' && [401, 402, 403].includes(failure.status)) pass.leave()
  else pass.fail(failure, error)
}
