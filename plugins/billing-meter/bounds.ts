// The worst case of one exchange: held before an upstream is called, whichever target answers.
import { after, type Awaitable } from '../../src/base/awaitable.ts'
import { bodyStep } from '../../src/core/body-step.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import type { Upstream } from '../../src/core/upstream.ts'
import { modalities } from '../../src/config/sections/modalities.ts'
import { Model, Plan, type WorstCase } from '../../src/core/facts.ts'
import { GatewayError } from '../../src/errors.ts'
import { boundInput, boundValue, NO_CONTEXT, type InputBound } from '../../src/tokens/bound.ts'
import { formatUsd, MOST_NANOS, type Nanos } from '../../src/money/nanos.ts'
import { priceAt, type PriceSpan } from '../../src/money/price-schedule.ts'
import { type CompiledPrice, flatCost, noUses, worstCase, type Uses } from '../../src/money/price.ts'
import { dialectOf } from '../../src/upstream/dialects/index.ts'
import { boundUses, refuseSurcharges } from './surcharges.ts'
import { MOST_USES, type Believed } from '../../src/money/usage.ts'
import { dearestItem } from './items.ts'

/** Tokens of output that are held for a stream at first, and with each extension (src/README.md#hold-first). */
export const SLICE = 4096
/** Fewest tokens with which a stream may begin, where the balance does not cover a whole slice. */
const LEAST = 64

/**
 * A stream is cut at so many times its `max_tokens`, by the gateway's estimate, or so many tokens more: far beyond the
 * error of the estimate.
 */
const CEILING = 2
const CEILING_MARGIN = 1024

/** A report is believed up to so many times the model's maximum. */
const BELIEVED = 2

/** The bounds of one exchange. */
export interface Bounds extends WorstCase {
  /** smallest hold to begin with; undefined: `first` */
  readonly least: Nanos | undefined
  readonly uses: Uses
  /** what would make it cost less, in words; undefined: no field of the request would */
  readonly cheaper: string | undefined
  /** of a text model: its usage is compared with these; undefined: no text model, and no bill exceeds `most` */
  readonly text: TextBounds | undefined
}

export interface TextBounds {
  /** tokens of output at which a stream is cut, whose upstream ignores `max_tokens` */
  readonly ceiling: number
  /** the request's own bound; `input` of the bounds adds what upstreams were seen to add */
  readonly input: InputBound
  readonly believed: Believed
}

/**
 * @param at milliseconds since the epoch: the prices in force then apply
 * @throws {GatewayError} a part of the request has no price, or the amount is not countable
 */
export function boundsOf (exchange: Exchange, at: number): Awaitable<Bounds> {
  const { endpoint } = exchange.route
  if (endpoint.kind === 'forward') return flatBounds(flatCost(endpoint.price), at)
  const { item } = modalities[exchange.get(Model).kind]
  return item === undefined ? dearest(exchange, at) : flatBounds(dearestItem(exchange), at, item.cheaper)
}

function flatBounds (nanos: Nanos, at: number, cheaper?: string): Bounds {
  refuseUncountable(nanos)
  return { first: nanos, least: undefined, most: nanos, input: 0, output: 0, uses: noUses, at, cheaper,
    text: undefined }
}

/** The worst case of the dearest attempt, because the same hold pays for any of them. */
function dearest (exchange: Exchange, at: number): Awaitable<Bounds> {
  const prices = exchange.get(Plan).attempts.map(({ sold }) => priceAt(sold, at))
  const upstreams = upstreamsOf(exchange)
  return after(readBody(exchange, upstreams, prices), (read) => dearestOf(exchange, at, prices, upstreams, read))
}

interface ReadBody {
  readonly shown: InputBound
  readonly uses: Uses
}

/** What the whole body says of the price. @throws {GatewayError} a part of it has none */
const readBody = bodyStep('billing-meter', (
  exchange, upstreams: readonly Upstream[], prices: readonly PriceSpan[]
): ReadBody => {
  const { body } = exchange.request
  refuseSurcharges(body, prices.map(({ written }) => written))
  return { shown: boundShown(exchange, upstreams), uses: boundUses(body, prices.map(({ price }) => price)) }
}, { isRead: true })

function dearestOf (
  exchange: Exchange, at: number, prices: readonly PriceSpan[], upstreams: readonly Upstream[],
  { shown, uses }: ReadBody
): Bounds {
  const model = exchange.get(Model)
  const { body, stream } = exchange.request
  const { overheads } = exchange.snapshot.services
  const { attempts } = exchange.get(Plan)
  const inputs = attempts.map((attempt) => overheads.bound(attempt, shown, model.context))
  const output = boundOutput(body['max_tokens'], model, upstreams)
  const believed: Believed = { input: BELIEVED * (model.context ?? NO_CONTEXT),
    output: BELIEVED * Math.max(output, mostOutput(model)) }
  for (const { price } of prices) refuseBeyondCount(price, believed)
  const most = dearestCase(inputs, output, prices, uses)
  const ceiling = Math.max(CEILING * output, output + CEILING_MARGIN)
  const text: TextBounds = { input: shown, believed, ceiling }
  const cheaper = `lower ${exchange.route.style.outputLimits.join(' or ')}`
  const first = stream && output > SLICE ? dearestCase(inputs, SLICE, prices, uses) : most
  const least = stream && output > LEAST ? dearestCase(inputs, LEAST, prices, uses) : undefined
  return { first, least, most, input: Math.max(0, ...inputs), output, uses, at, cheaper, text }
}

/** @param inputs tokens, by attempt */
function dearestCase (
  inputs: readonly number[], outputTokens: number, prices: readonly PriceSpan[], uses: Uses
): Nanos {
  let most = 0n
  for (let i = 0; i < prices.length; i++) {
    const nanos = worstCase(inputs[i]!, outputTokens, prices[i]!.price, uses)
    if (nanos > most) most = nanos
  }
  return most
}

/** Number of input classes, each of which is believed by itself. */
const INPUT_CLASSES = 4

/** The largest usage that is known to be countable at a price: nearly every request believes the same. */
const countable = new WeakMap<CompiledPrice, Believed>()

/** Refuses a price at which the usage that would be believed is no countable amount. */
function refuseBeyondCount (price: CompiledPrice, believed: Believed): void {
  const known = countable.get(price)
  if (known !== undefined && believed.input <= known.input && believed.output <= known.output) return
  const uses = price.extras.size === 0 ? noUses
    : Object.fromEntries([...price.extras.keys()].map((name) => [name, MOST_USES]))
  refuseUncountable(worstCase(INPUT_CLASSES * believed.input, believed.output, price, uses))
  countable.set(price, believed)
}

/**
 * Refuses an amount that no account could have and the ledger could not record: better now than when the upstream has
 * answered.
 */
function refuseUncountable (nanos: Nanos): void {
  if (nanos <= MOST_NANOS) return
  throw new GatewayError('insufficient_quota', {
    message: `This request may cost up to $${formatUsd(nanos)}, and amounts are counted up to ` +
      `$${formatUsd(MOST_NANOS)}. Nothing was charged: tell the operator that the price can't be right.`
  })
}

/** The upstreams that may be asked. */
function upstreamsOf (exchange: Exchange): readonly Upstream[] {
  const { attempts } = exchange.get(Plan)
  return [...new Set(attempts.map(({ upstream }) => exchange.snapshot.upstreams.get(upstream)!))]
}

/** The input as far as the request shows it, in the longest form in which it may be sent. */
function boundShown (exchange: Exchange, upstreams: readonly Upstream[]): InputBound {
  const { context } = exchange.get(Model)
  const { tokens, images } = boundInput(exchange.request.body, context, exchange.blobs)
  const weigh = (value: unknown): number => boundValue(value, context, exchange.blobs)
  const beyond = upstreams.map((upstream) => {
    const own = dialectOf(upstream).ownWords?.(exchange, upstream)
    return own === undefined ? 0 : weigh(own.sent) - weigh(own.instead)
  })
  return { tokens: Math.min(context ?? NO_CONTEXT, tokens + Math.max(0, ...beyond)), images }
}

/** Without a usable `max_tokens` the bound is the model's maximum. */
function boundOutput (maxTokens: unknown, model: Model, upstreams: readonly Upstream[]): number {
  if (typeof maxTokens !== 'number' || maxTokens < 0) return mostOutput(model)
  const least = upstreams.map((upstream) => dialectOf(upstream).leastOutput ?? 0)
  return Math.min(Math.max(Math.ceil(maxTokens), ...least), model.max_output ?? 1e9)
}

function mostOutput ({ max_output: most, context }: Model): number {
  return most ?? context ?? 128_000
}
