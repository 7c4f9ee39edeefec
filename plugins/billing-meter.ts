// Holds the worst case before an upstream is called, counts what was used, and settles once. The only plugin that moves money.
import { after } from '../src/after.ts'
import type { ChannelConfig, Config } from '../src/config/config.ts'
import { GatewayError } from '../src/errors.ts'
import type { Exchange, Outcome } from '../src/exchange.ts'
import { ApiKey, Charge, fact, Model, Plan, type Attempt } from '../src/facts.ts'
import { boundInput, estimateInput } from '../src/money/bound.ts'
import { formatUsd, parseUsd, type Nanos } from '../src/money/nanos.ts'
import { compilePrice, cost, flatCost, unpricedExtras, worstCase, type CompiledPrice } from '../src/money/price.ts'
import { Tally, type Ending } from '../src/money/tally.ts'
import { refuseSurcharges } from '../src/money/surcharges.ts'
import { noUsage } from '../src/money/usage.ts'
import { definePlugin, type Awaitable } from '../src/plugin.ts'
import type { Services } from '../src/services.ts'
import type { HoldResult, Settlement } from '../src/store/store.ts'

/** What is open about one exchange. Private to this plugin. */
const Metered = fact<Meter>('billing-meter')

export const billingMeter = definePlugin({
  name: 'billing-meter',
  reads: [ApiKey, Model, Plan],
  writes: [Charge, Metered],
  create (_options, config, services) {
    const priceOf = compilePrices(config)
    return {
      onRequest (exchange) {
        const { endpoint } = exchange.route
        if (endpoint.kind === 'local') return
        const worst = endpoint.kind === 'forward' ? flatCost(endpoint.price) : dearest(exchange, priceOf)
        const owner = exchange.find(ApiKey)
        if (owner === undefined) {
          if (worst === 0n) return
          // Better an error at the first try than a route that gives away what has a price (lesson 28).
          throw new Error(`the route ${exchange.route.name} has a price, and nobody to charge: put auth into its pipeline`)
        }
        const meter = new Meter(exchange, services, worst)
        exchange.set(Metered, meter)
        // Before the hold is taken (lesson 6). The second finds work only where the first threw.
        const end = (outcome: Outcome): Awaitable<void> => meter.end(outcome)
        exchange.onSettle(end)
        exchange.onFinish(end)
        return meter.hold(owner)
      },

      perAttempt (attempt, exchange) {
        const meter = exchange.find(Metered)
        if (meter === undefined) return {}
        const tally = meter.begin(attempt, priceOf(attempt.sold))
        return {
          onUpstreamReply (reply) { tally.readReply(reply.body) },
          onUpstreamEvent (event) { tally.see(event) }
        }
      },

      onReply (reply, exchange) {
        const meter = exchange.find(Metered)
        if (meter === undefined) return
        meter.status = reply.status
        if (reply.kind !== 'json') return
        return after(meter.completedCharge, (nanos) => ({ ...reply, headers: { ...reply.headers, 'x-gateway-cost-usd': formatUsd(nanos) } }))
      },

      onStream (exchange) {
        const tally = exchange.find(Metered)?.tally
        if (tally === undefined) return
        return {
          event (event) {
            tally.deliver(event)
            return event
          }
        }
      }
    }
  }
})

interface Bill extends Omit<Settlement, 'request_id'> {}

class Meter {
  /** of the attempt that was begun last: the one that is served, if any is */
  tally: Tally | undefined
  /** of the answer, once it is there */
  status = 0
  readonly #exchange: Exchange
  readonly #services: Services
  readonly #worst: Nanos
  #attempt: Attempt | undefined
  #price: CompiledPrice | undefined
  /** a hold that the store has not answered yet */
  #holding: Promise<void> | undefined
  #completed: Awaitable<Bill | undefined>
  /** what was said last about how it ends */
  #outcome: Outcome | undefined
  #isOver = false

  constructor (exchange: Exchange, services: Services, worst: Nanos) {
    this.#exchange = exchange
    this.#services = services
    this.#worst = worst
  }

  /** @throws {GatewayError} there is not enough */
  hold ({ key, account }: ApiKey): Awaitable<void> {
    const result = this.#services.store.hold({
      request_id: this.#exchange.id,
      account: account.id,
      key: key.id,
      nanos: this.#worst,
      ...(key.usage_limit_usd !== undefined && { usage_limit: parseUsd(key.usage_limit_usd) })
    })
    if (!(result instanceof Promise)) { refuse(result); return }
    this.#holding = result.then(refuse).finally(() => { this.#holding = undefined })
    return this.#holding
  }

  /** A fresh tally for each attempt: what a failed one used is never charged. */
  begin (attempt: Attempt, price: CompiledPrice): Tally {
    this.#attempt = attempt
    this.#price = price
    this.tally?.drop()
    return this.tally = new Tally(this.#services.tokens)
  }

  /** What the client pays if nothing goes wrong from here: never more than what is held. */
  get completedCharge (): Awaitable<Nanos> {
    return after(this.#billOf('completed'), (bill) => {
      const nanos = bill?.nanos ?? 0n
      return nanos < this.#worst ? nanos : this.#worst
    })
  }

  /** Settles or releases, once; after a throw it may be tried again. Returns a promise only where the store or the count does. */
  end (outcome: Outcome): Awaitable<void> {
    if (this.#isOver) return
    if (this.#holding !== undefined) { this.#releaseAfter(this.#holding); return }
    this.#outcome = outcome
    if (outcome.kind === 'failed') {
      this.tally?.drop()
      return this.#release()
    }
    return after(this.#billOf(outcome.kind === 'completed' ? 'completed' : `cut by ${outcome.by}`), (bill) => {
      // While it was counted, hook_timeout made a failure of it: what is given back must not be charged after all.
      if (this.#isOver || this.#outcome !== outcome) return
      if (bill === undefined) return this.#release()
      return after(this.#services.store.settle({ request_id: this.#exchange.id, ...bill }), (charged) => { this.#note(bill, charged) })
    })
  }

  #release (): Awaitable<void> {
    return after(this.#services.store.release(this.#exchange.id), () => { this.#isOver = true })
  }

  /** The request was given up while its hold was on the way: a release now could be overtaken by it. Nobody waits for this one. */
  #releaseAfter (holding: Promise<void>): void {
    this.#isOver = true
    const release = (): Awaitable<void> => this.#services.store.release(this.#exchange.id)
    holding.then(release, release).catch((err: unknown) => {
      this.#services.log.error({ request_id: this.#exchange.id, err }, 'a hold could not be released')
    })
  }

  #note (bill: Bill, charged: Nanos): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#exchange.set(Charge, { nanos: charged, usage: bill.usage, source: bill.usage_source })
    const about = { request_id: this.#exchange.id, model: bill.model }
    const { log, metrics } = this.#services
    if (bill.nanos > charged) {
      metrics.shortfall(bill.nanos - charged)
      log.error({ ...about, shortfall_usd: formatUsd(bill.nanos - charged) }, 'an answer cost more than was held for it')
    }
    const unpriced = this.#price === undefined ? [] : unpricedExtras(bill.usage, this.#price)
    if (unpriced.length > 0) log.error({ ...about, extras: unpriced }, 'extras without a price were given away')
  }

  /** Undefined: there is nothing to charge for. */
  #billOf (ending: Ending): Awaitable<Bill | undefined> {
    if (ending !== 'completed') return this.#makeBill(ending)
    return this.#completed ??= this.#makeBill(ending)
  }

  #makeBill (ending: Ending): Awaitable<Bill | undefined> {
    const { endpoint, name } = this.#exchange.route
    if (endpoint.kind === 'forward') {
      // Its bytes are not counted: a whole answer, or one that the client did not want whole. An error is no answer (spec 1).
      if (this.status >= 400 || ending === 'cut by upstream' || ending === 'cut by gateway') return undefined
      return { nanos: this.#worst, model: name, usage: noUsage, usage_source: 'provider' }
    }
    if (this.tally === undefined) return undefined                          // a plugin answered, not an upstream
    const model = this.#exchange.get(Model)
    const [price, channel] = [this.#price!, this.#attempt!.channel]
    const counted = this.tally.count(ending, () => estimateInput(this.#exchange.request.body, model.context))
    return after(counted, ({ usage, source }) => ({ nanos: cost(usage, price), model: model.id, channel, usage, usage_source: source }))
  }
}

/** Prices are compiled with the snapshot, so that a bad one refuses the configuration and not a request. */
function compilePrices (config: Config): (sold: ChannelConfig) => CompiledPrice {
  const prices = new WeakMap<ChannelConfig, CompiledPrice>()
  const priceOf = (sold: ChannelConfig): CompiledPrice => {
    let price = prices.get(sold)
    if (price === undefined) prices.set(sold, price = compilePrice(sold.price))
    return price
  }
  for (const model of config.models) Object.values(model.channels).forEach(priceOf)
  for (const key of config.keys) if (key.usage_limit_usd !== undefined) parseUsd(key.usage_limit_usd)
  return priceOf
}

/** The worst case of the dearest attempt: whichever of them answers is paid from the same hold. */
function dearest (exchange: Exchange, priceOf: (sold: ChannelConfig) => CompiledPrice): Nanos {
  const model = exchange.get(Model)
  const { body } = exchange.request
  const { attempts } = exchange.get(Plan)
  refuseSurcharges(body, attempts.map(({ sold }) => sold.price))
  const input = boundInput(body, model.context, exchange.blobs)
  const output = boundOutput(body['max_tokens'], model)
  let held = 0n
  for (const attempt of attempts) {
    const nanos = worstCase(input, output, priceOf(attempt.sold))
    if (nanos > held) held = nanos
  }
  return held
}

/** Without a usable `max_tokens` the upstream decides, up to what the model can. */
function boundOutput (maxTokens: unknown, model: Model): number {
  const most = model.max_output ?? model.context ?? 128_000
  return typeof maxTokens === 'number' && maxTokens >= 0 ? Math.min(Math.ceil(maxTokens), model.max_output ?? 1e9) : most
}

/** @throws {GatewayError} with the numbers that were compared (lesson 9) */
function refuse (result: HoldResult): void {
  if (result.kind === 'held') return
  const { by, needed, available, held_by_others: heldByOthers } = result
  const total = available + heldByOthers
  const purse = by === 'balance' ? 'the balance of the account' : 'the usage limit of the key'
  const cure = by === 'balance' ? 'add credit' : 'raise the limit'
  const may = `This request may cost up to $${formatUsd(needed)}`
  throw needed <= total
    ? new GatewayError('low_balance', { message: `${may}, and running requests hold $${formatUsd(heldByOthers)} of the $${formatUsd(total)} that ${purse} has left. Wait until one of them ends, lower max_tokens, or ${cure}.` })
    : new GatewayError('insufficient_quota', { message: `${may}, and ${purse} has $${formatUsd(total)} left. Lower max_tokens, or ${cure}.` })
}
