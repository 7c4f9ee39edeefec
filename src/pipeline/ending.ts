// How an exchange ends: settled first, then told to the client, in the stream where one has begun.
import type { Client } from './client.ts'
import { encode } from './encode-reply.ts'
import { type GatewayError, toGatewayError } from '../errors.ts'
import { shapeError } from '../protocols/error-shape.ts'
import type { ErrorReply } from '../core/reply.ts'
import type { Routed } from '../core/endpoint.ts'
import type { Outcome, Served } from '../core/exchange.ts'
import { callHook, unwaited } from '../core/hooks.ts'
import type { Awaitable } from '../base/awaitable.ts'
import { SseEvent } from '../core/sse.ts'

export function interrupted (
  exchange: Routed,
  served: Served | undefined,
  by: 'client' | 'upstream' | 'gateway',
  thrown: unknown
): Outcome {
  const error = toGatewayError(thrown)
  return served === undefined ? { kind: 'failed', error } : { kind: 'interrupted', served, by, error }
}

/** Nothing was committed: gives back what was held, then tells the client, in the stream if its head is out. */
export async function fail (
  exchange: Routed,
  client: Client,
  outcome: Outcome & { readonly kind: 'failed' }
): Promise<Outcome> {
  await settleAnyway(exchange, outcome)
  const { error } = outcome
  exchange.record.status = client.hasHead ? 200 : error.status
  if (error.row === 'client_closed') return outcome
  try {
    const shaped = shape(error, exchange, outcome)
    if (client.isStreaming) await client.endStream(shaped.events)
    else if (!client.hasHead) await client.json(shaped)
  } catch {
    // The client left while it was told: the outcome stays what it was.
  }
  return outcome
}

/** Tells whoever asked how the answer ends. A callback that never ends has failed: it can't hang a request. */
export function settle (exchange: Routed, outcome: Outcome): Awaitable<void> {
  const fail = (thrown: unknown): never => {
    exchange.hasSettleFailed = true
    throw thrown
  }
  try {
    const told = callHook(exchange.settle(outcome), 'onSettle', exchange)
    return told instanceof Promise ? told.catch(fail) : told
  } catch (thrown) {
    return fail(thrown)
  }
}

/** Where it did not end well the client must be told whatever that throws. */
export async function settleAnyway (exchange: Routed, outcome: Outcome): Promise<void> {
  try {
    await settle(exchange, outcome)
  } catch (err) {
    exchange.snapshot.services.log.error({ request_id: exchange.id, err },
      'an exchange that did not end well could not be settled')
  }
}

/** Asks the plugins from the client's side inward; the core's own shape can't throw. */
export function shape (error: GatewayError, exchange: Routed, outcome: Outcome): ErrorReply {
  for (const { plugin, call } of exchange.route.hooks.onError) {
    try {
      const shaped = unwaited(call(error, exchange, outcome), exchange)
      if (shaped === undefined) continue
      encode(shaped)
      if (!shaped.events.every((event) => event instanceof SseEvent)) {
        throw new TypeError('the events of a shaped error are not events')
      }
      return shaped
    } catch (err) {
      exchange.snapshot.services.log.error({ request_id: exchange.id, plugin, err },
        'a plugin threw while it shaped an error')
    }
  }
  return shapeError(error, exchange.route.style, exchange.id)
}
