// The end of an exchange: settled first, then sent to the client, in the stream where one has begun.
import type { Client } from './client.ts'
import { encode } from './encode-reply.ts'
import { type GatewayError, toGatewayError } from '../errors.ts'
import { shapeError } from '../protocols/error-shape.ts'
import type { ErrorReply } from '../core/reply.ts'
import type { Routed } from '../core/endpoint.ts'
import type { Outcome, Served } from '../core/exchange.ts'
import { callHook, unwaited } from '../core/hooks.ts'
import type { Awaitable } from '../base/awaitable.ts'
import { mark } from '../base/stall-marks.ts'
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

/**
 * Ends an uncommitted exchange: gives back the hold, then sends the client the error, in the stream if its head was
 * sent.
 */
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
    if (client.isStreaming) await client.endStream(errorEvents(error, exchange, outcome))
    else if (!client.hasHead) await client.json(shape(error, exchange, outcome))
  } catch {
    // The client left during the write: the outcome stays what it was.
  }
  return outcome
}

/** Settles an exchange. A callback that never ends counts as failed, so it can't hang a request. */
export function settle (exchange: Routed, outcome: Outcome): Awaitable<void> {
  mark('settle', exchange)
  try {
    const told = callHook(exchange.settle(outcome), 'onSettle', exchange)
    return told instanceof Promise ? marked(told, exchange) : told
  } catch (thrown) {
    exchange.hasSettleFailed = true
    throw thrown
  }
}

function marked (told: Promise<void>, exchange: Routed): Promise<void> {
  return told.catch((thrown: unknown) => {
    exchange.hasSettleFailed = true
    throw thrown
  })
}

/** Settles a failed or interrupted exchange, of which the client must be told even if a callback throws. */
export async function settleAnyway (exchange: Routed, outcome: Outcome): Promise<void> {
  try {
    await settle(exchange, outcome)
  } catch (err) {
    exchange.snapshot.services.log.error({ request_id: exchange.id, err },
      'an exchange that did not end well could not be settled')
  }
}

/** The events that end a stream with an error. */
export function errorEvents (error: GatewayError, exchange: Routed, outcome: Outcome): readonly SseEvent[] {
  const shaped = shape(error, exchange, outcome)
  if (exchange.ownEvents === undefined) return shaped.events
  try {
    const events = exchange.ownEvents.fail(error, shaped)
    if (!areEvents(events)) throw new TypeError('what ends a stream with an error are not events')
    return events
  } catch (err) {
    exchange.snapshot.services.log.error({ request_id: exchange.id, err },
      'a plugin threw while it ended a stream with an error')
    return shaped.events
  }
}

function areEvents (made: readonly unknown[]): boolean {
  return made.every((event) => event instanceof SseEvent)
}

/** Shapes an error by the plugins, from the client's side inward; the core's own shape can't throw. */
function shape (error: GatewayError, exchange: Routed, outcome: Outcome): ErrorReply {
  for (const { plugin, call } of exchange.route.hooks.onError) {
    try {
      const shaped = unwaited(call(error, exchange, outcome), exchange)
      if (shaped === undefined) continue
      encode(shaped)
      if (!areEvents(shaped.events)) throw new TypeError('the events of a shaped error are not events')
      return shaped
    } catch (err) {
      exchange.snapshot.services.log.error({ request_id: exchange.id, plugin, err },
        'a plugin threw while it shaped an error')
    }
  }
  return shapeError(error, exchange.route.style, exchange.id)
}
