// Holds the worst case before an upstream is called, counts the usage, and settles once. The only plugin that moves
// money.
import { after, type Awaitable, afterWith } from '../../src/base/awaitable.ts'
import { fieldOf, isRecord, type Json } from '../../src/base/json.ts'
import type { Config } from '../../src/config/config.ts'
import { isSoldByTokens } from '../../src/config/sections/modalities.ts'
import { usd } from '../../src/config/sections/schema.ts'
import type { Exchange, Outcome } from '../../src/core/exchange.ts'
import { AbandonedCost, Accepted, ApiKey, Charge, fact, Model, Plan, Variant, WorstCase } from '../../src/core/facts.ts'
import { limitsOf } from '../../src/accounts/key-limits.ts'
import { itemPrice } from '../../src/money/item-price.ts'
import { isTerminal } from '../../src/protocols/messages.ts'
import { formatUsd, type Nanos, parseUsd } from '../../src/money/nanos.ts'
import { spansOf } from '../../src/money/price-schedule.ts'
import type { Believed, Usage } from '../../src/money/usage.ts'
import { type AttemptHooks, definePlugin } from '../../src/core/plugin.ts'
import type { JsonReply } from '../../src/core/reply.ts'
import { type LargeReply, replyRead } from '../../src/core/reply-step.ts'
import { SseEvent } from '../../src/core/sse.ts'
import { type Bounds, boundsOf } from './bounds.ts'
import { imagesIn } from './items.ts'
import { Meter } from './meter.ts'
import { showUsage, ShownUsage } from './shown-usage.ts'
import { readReply, type Tally, type Told } from './tally.ts'

/** The meter of one exchange. Private to this plugin. */
const Metered = fact<Meter>('billing-meter')

/** What an answer tells of its usage. */
const readAnswer = replyRead('billing-meter', (body, _exchange, believed: Believed | undefined) =>
  readReply(body, believed))

interface Options {
  readonly low_balance_usd: string
}

export const billingMeter = definePlugin<Options>({
  name: 'billing-meter',
  readsInSteps: true,
  schema: {
    properties: {
      low_balance_usd: usd('While the balance of an account is below it, its requests run one at a time.', '1')
    }
  },
  reads: [ApiKey, Model, Plan, Variant],
  writes: [AbandonedCost, Charge, Metered, WorstCase],
  provides: ['billing'],
  always: true,
  create ({ low_balance_usd: low }, config, services) {
    compilePrices(config)
    const lowBalance = parseUsd(low)
    const begin = (bounds: Bounds, exchange: Exchange): Awaitable<void> => {
      exchange.set(WorstCase, bounds)
      const owner = exchange.find(ApiKey)
      if (owner === undefined) {
        if (bounds.most === 0n) return
        // Better an error at the first request than a route that gives away what has a price
        // (src/README.md#no-unpriced).
        throw new Error(
          `the route ${exchange.route.name} has a price, and nobody to charge: put auth into its pipeline`
        )
      }
      const meter = new Meter(exchange, services, bounds, lowBalance)
      exchange.set(Metered, meter)
      // Before the hold is taken (src/README.md#settle-once). The second call has work only where the first threw.
      exchange.onSettle(endMeter)
      exchange.onFinish(endMeter)
      return meter.hold(owner)
    }
    return {
      onRequest (exchange) {
        const { endpoint } = exchange.route
        if (endpoint.kind === 'local' || endpoint.kind === 'download') return
        return afterWith(boundsOf(exchange, services.now()), begin, exchange)
      },

      perAttempt (attempt, exchange) {
        const meter = exchange.find(Metered)
        if (meter === undefined) return {}
        if (!isSoldByTokens(exchange.get(Model).kind)) {
          meter.beginItems(attempt)
          return { onUpstreamReply (reply) { meter.images = imagesIn(reply.body) } }
        }
        return new Metering(exchange, meter, meter.begin(attempt))
      },

      onReply (reply, exchange) {
        const meter = exchange.find(Metered)
        if (meter === undefined) return
        meter.status = reply.status
        // A task is charged later, and tells its cost then.
        if (reply.kind !== 'json' || exchange.find(Accepted) !== undefined) return
        if (!isSoldByTokens(exchange.find(Model)?.kind ?? 'text')) {
          return afterWith(meter.completedCharge, withItemCost, reply)
        }
        const usage = meter.unshownUsage
        return usage === undefined ? afterWith(meter.completedCharge, withCost, reply)
          : completed(reply, exchange, meter, usage)
      },

      onStream (exchange) {
        const meter = exchange.find(Metered)
        const tally = meter?.tally
        if (meter === undefined || tally === undefined) return
        const isTold = tellsCost(exchange)
        const shown = new ShownUsage()
        let charge = 0n
        return {
          ready (event) {
            if (!isTerminal(event)) return meter.ready(tally, event)
            if (!isTold) return
            const told = after(meter.completedCharge, (nanos) => { charge = nanos })
            return told instanceof Promise ? told : undefined
          },
          event (event) {
            if (isTold && isTerminal(event)) {
              return [SseEvent.of('ping', { type: 'ping', charged_usd: formatUsd(charge) }), event]
            }
            meter.deliver(tally, event)
            if (tally.counted >= meter.nextCheckpoint) meter.checkpoint(tally)
            switch (event.event) {
              case 'message_start': return shown.start(event, () => tally.estimateInput(exchange))
              case 'message_delta': return isEnd(event)
                ? shown.end(event, tally.count('completed', exchange).usage)
                : undefined
            }
            return event
          }
        }
      }
    }
  }
})

/** Counts what one attempt on text brings. */
class Metering implements AttemptHooks {
  readonly #exchange: Exchange
  readonly #meter: Meter
  readonly #tally: Tally

  constructor (exchange: Exchange, meter: Meter, tally: Tally) {
    this.#exchange = exchange
    this.#meter = meter
    this.#tally = tally
  }

  onUpstreamReply ({ body }: JsonReply): Awaitable<void> {
    return afterWith(readAnswer(body, this.#exchange, this.#tally.believed), hear, this.#tally)
  }

  onUpstreamEvent (event: SseEvent): void {
    if (this.#tally.see(event)) this.#meter.updatePaidTokens()
  }
}

function endMeter (outcome: Outcome, exchange: Exchange): Awaitable<void> {
  return exchange.get(Metered).end(outcome)
}

function hear (told: Told, tally: Tally): void {
  tally.hear(told)
}

/** The answer with the counts that are charged. */
async function completed (reply: JsonReply, exchange: Exchange, meter: Meter, usage: Usage): Promise<JsonReply> {
  const body = await showUsage(reply.body as Json | LargeReply, exchange, usage)
  return withCost(await meter.completedCharge, { ...reply, body })
}

/** Of a message_delta: another one only reports usage so far. */
function isEnd (event: SseEvent): boolean {
  return fieldOf(fieldOf(event.json, 'delta'), 'stop_reason') !== undefined
}

function withCost (nanos: Nanos, reply: JsonReply): JsonReply {
  return { ...reply, headers: { ...reply.headers, 'x-gateway-cost-usd': formatUsd(nanos) } }
}

/** Text has its cost in `usage` from the translator of its style. */
function withItemCost (nanos: Nanos, reply: JsonReply): JsonReply {
  const { body: answer } = reply
  if (!isRecord(answer)) return withCost(nanos, reply)
  const usage = { ...isRecord(answer.usage) && answer.usage, cost: Number(formatUsd(nanos)) }
  return withCost(nanos, { ...reply, body: { ...answer, usage } })
}

/**
 * Whether the end of a stream reports its cost: to a translator of styles, and to a client of messages style that asks
 * for it. For the latter it is in a ping of its own, which all clients skip: the other events stay the upstream's
 * bytes.
 */
function tellsCost ({ route, received }: Exchange): boolean {
  return route.style.tellsCost || received.headers['x-gateway-cost'] === 'stream'
}

/** Compiles prices with the snapshot, so that a bad one refuses the configuration and not a request. */
function compilePrices (config: Config): void {
  for (const { kind, channels } of config.models) {
    for (const sold of Object.values(channels)) {
      if (isSoldByTokens(kind)) spansOf(sold)
      else itemPrice(sold)
    }
  }
  for (const key of config.keys) limitsOf(key)
}
