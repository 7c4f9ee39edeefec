// The worst case of one exchange: held before an upstream is called, whichever target answers.
import type { Awaitable } from '../../src/base/awaitable.ts'
import { asRecord, type Json } from '../../src/base/json.ts'
import { bodyStep } from '../../src/core/body-step.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import type { Upstream } from '../../src/core/upstream.ts'
import { modalities } from '../../src/config/sections/modalities.ts'
import { ApiKey, type Attempt, Model, Plan, type WorstCase } from '../../src/core/facts.ts'
import { GatewayError } from '../../src/errors.ts'
import { boundInput, boundValue, NO_CONTEXT, type InputBound } from '../../src/tokens/bound.ts'
import { formatUsd, MOST_NANOS, type Nanos } from '../../src/money/nanos.ts'
import { priceAt, type PriceSpan } from '../../src/money/price-schedule.ts'
import { type CompiledPrice, flatCost, noUses, worstCase, type Uses } from '../../src/money/price.ts'
import { dialectOf } from '../../src/upstream/dialects/index.ts'
import { boundUses, limitUses, refuseSurcharges, type UseBounds, type UseLimit } from './surcharges.ts'
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
  /** of a text model: its usage is compared with these; undefined: no text model, and no bill exceeds `most` */
  readonly text: TextBounds | undefined
}

export interface TextBounds {
  /** tokens of output at which a stream is cut, whose upstream ignores `max_tokens` */
  readonly ceiling: number
  /** the request's own bound; `input` of the bounds adds what upstreams were seen to add */
  readonly input: InputBound
  readonly believed: Believed
  /** whether and how much the model is to think: answers of other modes teach nothing of it */
  readonly mode: string
}

/**
 * @param at milliseconds since the epoch: the prices in force then apply
 * @throws {GatewayError} a part of the request has no price, or the amount is not countable
 */
export function boundsOf (exchange: Exchange, at: number): Awaitable<Bounds> {
  const { endpoint } = exchange.route
  if (endpoint.kind === 'forward') return flatBounds(flatCost(endpoint.price), at)
  return modalities[exchange.get(Model).kind].item === undefined
    ? dearest(exchange, at)
    : flatBounds(dearestItem(exchange), at)
}

/** What would make the exchange cost less, in words. Undefined: no field of the request would. */
export function cheaperOf (exchange: Exchange): string | undefined {
  const { endpoint, style } = exchange.route
  if (endpoint.kind === 'forward') return undefined
  return modalities[exchange.get(Model).kind].item?.cheaper ?? `lower ${style.outputLimits.join(' or ')}`
}

function flatBounds (nanos: Nanos, at: number): Bounds {
  refuseUncountable(nanos)
  return { first: nanos, least: undefined, most: nanos, input: 0, output: 0, uses: noUses, at, text: undefined }
}

/** The worst case of the dearest attempt, because the same hold pays for any of them. */
function dearest (exchange: Exchange, at: number): Awaitable<Bounds> {
  const prices = pricesAt(exchange.get(Plan), at)
  const upstreams = upstreamsOf(exchange)
  const read = readBody(exchange, upstreams, prices)
  if (read instanceof Promise) return dearestBehind(read, exchange, at, prices, upstreams)
  if (read.limits.length > 0) void setLimits(exchange, read.limits)
  return dearestOf(exchange, at, prices, upstreams, read)
}

async function dearestBehind (
  read: Promise<ReadBody>, exchange: Exchange, at: number, prices: readonly PriceSpan[], upstreams: readonly Upstream[]
): Promise<Bounds> {
  const there = await read
  if (there.limits.length > 0) await setLimits(exchange, there.limits)
  return dearestOf(exchange, at, prices, upstreams, there)
}

/** By attempt. */
function pricesAt ({ attempts }: Plan, at: number): readonly PriceSpan[] {
  const prices: PriceSpan[] = new Array(attempts.length)
  for (let i = 0; i < attempts.length; i++) prices[i] = priceAt(attempts[i]!.sold, at)
  return prices
}

interface ReadBody extends UseBounds {
  readonly shown: InputBound
  readonly mode: string
}

/** Whether and how much the model is to think, in the request's words. */
function modeOf ({ thinking, output_config: output }: Json): string {
  return `${wordOf(asRecord(thinking).type)} ${wordOf(asRecord(output).effort)}`
}

function wordOf (value: unknown): string {
  return typeof value === 'string' ? value.slice(0, 16) : ''
}

/** What the whole body says of the price. @throws {GatewayError} a part of it has none */
const readBody = bodyStep('billing-meter', (
  exchange, upstreams: readonly Upstream[], prices: readonly PriceSpan[]
): ReadBody => {
  const { body } = exchange.request
  refuseSurcharges(body, prices)
  const shown = boundShown(exchange, upstreams)
  const { uses, limits } = boundUses(body, prices)
  return { shown, uses, limits, mode: modeOf(body) }
}, { isRead: true })

const setLimits = bodyStep('billing-meter limits', (exchange, limits: readonly UseLimit[]) => {
  limitUses(exchange.request.body, limits)
})

function dearestOf (
  exchange: Exchange, at: number, prices: readonly PriceSpan[], upstreams: readonly Upstream[],
  { shown, uses, mode }: ReadBody
): Bounds {
  const model = exchange.get(Model)
  const { body, stream } = exchange.request
  const output = boundOutput(body['max_tokens'], model, upstreams)
  const believed: Believed = { input: BELIEVED * (model.context ?? NO_CONTEXT),
    output: BELIEVED * Math.max(output, mostOutput(model)) }
  for (const { price } of prices) refuseBeyondCount(price, believed)
  const most = dearestCase(exchange, shown, output, prices, uses)
  const ceiling = Math.max(CEILING * output, output + CEILING_MARGIN)
  const text: TextBounds = { input: shown, believed, ceiling, mode }
  const first = stream && output > SLICE ? dearestCase(exchange, shown, SLICE, prices, uses) : most
  const least = stream && output > LEAST ? dearestCase(exchange, shown, LEAST, prices, uses) : undefined
  return { first, least, most, input: mostInput(exchange, shown), output, uses, at, text }
}

function dearestCase (
  exchange: Exchange, shown: InputBound, outputTokens: number, prices: readonly PriceSpan[], uses: Uses
): Nanos {
  const { attempts } = exchange.get(Plan)
  let most = 0n
  for (let i = 0; i < prices.length; i++) {
    const nanos = worstCase(inputOf(attempts[i]!, exchange, shown), outputTokens, prices[i]!.price, uses)
    if (nanos > most) most = nanos
  }
  return most
}

/** Tokens of whichever attempt counts most. */
function mostInput (exchange: Exchange, shown: InputBound): number {
  let most = 0
  for (const attempt of exchange.get(Plan).attempts) most = Math.max(most, inputOf(attempt, exchange, shown))
  return most
}

function inputOf (attempt: Attempt, exchange: Exchange, shown: InputBound): number {
  const { overheads } = exchange.snapshot.services
  return overheads.bound(attempt, shown, exchange.get(Model).context, exchange.find(ApiKey)?.account.id)
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
  const { upstreams } = exchange.snapshot
  let found: Upstream[] = []
  for (const { upstream: name } of attempts) {
    const upstream = upstreams.get(name)!
    if (found.length === 0) found = [upstream]                // an array that has grown has space for seventeen
    else if (!found.includes(upstream)) found.push(upstream)
  }
  return found
}

/** The input as far as the request shows it, in the longest form in which it may be sent. */
function boundShown (exchange: Exchange, upstreams: readonly Upstream[]): InputBound {
  const { context } = exchange.get(Model)
  const { blobs, request: { body } } = exchange
  const { tokens, images } = boundInput(body, context, blobs)
  let beyond = 0
  for (const upstream of upstreams) {
    const own = dialectOf(upstream).ownWords?.(exchange, upstream)
    if (own === undefined) continue
    beyond = Math.max(beyond, boundValue(own.sent, context, blobs) - boundValue(own.instead, context, blobs))
  }
  return { tokens: Math.min(context ?? NO_CONTEXT, tokens + beyond), images }
}

/** Without a usable `max_tokens` the bound is the model's maximum. */
function boundOutput (maxTokens: unknown, model: Model, upstreams: readonly Upstream[]): number {
  if (typeof maxTokens !== 'number' || maxTokens < 0) return mostOutput(model)
  let bound = Math.ceil(maxTokens)
  for (const upstream of upstreams) bound = Math.max(bound, dialectOf(upstream).leastOutput ?? 0)
  return Math.min(bound, model.max_output ?? 1e9)
}

function mostOutput ({ max_output: most, context }: Model): number {
  return most ?? context ?? 128_000
}
