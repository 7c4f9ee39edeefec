// What one exchange can cost: held before an upstream is called, whoever answers.
import type { Exchange } from '../../src/core/exchange.ts'
import { modalities } from '../../src/config/sections/modalities.ts'
import { Model, Plan, type WorstCase } from '../../src/core/facts.ts'
import { GatewayError } from '../../src/errors.ts'
import { boundInput, NO_CONTEXT, type InputBound } from '../../src/tokens/bound.ts'
import { formatUsd, MOST_NANOS, type Nanos } from '../../src/money/nanos.ts'
import { priceAt, type PriceSpan } from '../../src/money/price-schedule.ts'
import { flatCost, noUses, worstCase, type Uses } from '../../src/money/price.ts'
import { boundUses, refuseSurcharges } from './surcharges.ts'
import { MOST_USES, type Believed } from '../../src/money/usage.ts'
import { dearestItem } from './items.ts'

/** Tokens of output that are held for a stream at first, and with each extension (src/README.md#hold-first). */
export const SLICE = 4096
/** A stream whose first slice does not fit begins with what is left, if that pays for so many. */
const LEAST = 64

/**
 * A stream may have so many times its `max_tokens`, by our estimate, or so many tokens more: far beyond what an
 * estimate is wrong by.
 */
const CEILING = 2
const CEILING_MARGIN = 1024

/** A report is believed up to so many times what the model can have at most. */
const BELIEVED = 2

/** What one exchange can cost. */
export interface Bounds extends WorstCase {
  /** what must be there at least; undefined: `first` */
  readonly least: Nanos | undefined
  readonly uses: Uses
  /** what would make it cost less, in words; undefined: nothing that the client can ask for */
  readonly cheaper: string | undefined
  /** of a text model, what its usage is compared with; undefined: it has none, and no bill is ever more than `most` */
  readonly text: TextBounds | undefined
}

export interface TextBounds {
  /** tokens of output that a stream is cut at: its upstream ignores `max_tokens` */
  readonly ceiling: number
  /** as the request shows it; `input` of the bounds has what upstreams were seen to add */
  readonly input: InputBound
  readonly believed: Believed
}

/**
 * @param at milliseconds since the epoch: it pays the prices of then
 * @throws {GatewayError} what it asks for has no price, or one that nobody can count
 */
export function boundsOf (exchange: Exchange, at: number): Bounds {
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

/** The worst case of the dearest attempt: whichever of them answers is paid from the same hold. */
function dearest (exchange: Exchange, at: number): Bounds {
  const model = exchange.get(Model)
  const { body, stream } = exchange.request
  const { overheads } = exchange.snapshot.services
  const { attempts } = exchange.get(Plan)
  const prices = attempts.map(({ sold }) => priceAt(sold, at))
  refuseSurcharges(body, prices.map(({ written }) => written))
  const shown = boundInput(body, model.context, exchange.blobs)
  const inputs = attempts.map((attempt) => overheads.bound(attempt, shown, model.context))
  const output = boundOutput(body['max_tokens'], model)
  const uses = boundUses(body, prices.map(({ price }) => price))
  const of = (input: (i: number) => number, tokens: number, times = uses): Nanos =>
    prices.reduce((most, { price }, i) => {
      const nanos = worstCase(input(i), tokens, price, times)
      return nanos > most ? nanos : most
    }, 0n)
  const held = (tokens: number): Nanos => of((i) => inputs[i]!, tokens)
  const believed: Believed = { input: BELIEVED * (model.context ?? NO_CONTEXT),
    output: BELIEVED * Math.max(output, mostOutput(model)) }
  refuseUncountable(of(() => INPUT_CLASSES * believed.input, believed.output, mostUses(prices)))
  const most = held(output)
  const ceiling = Math.max(CEILING * output, output + CEILING_MARGIN)
  const text: TextBounds = { input: shown, believed, ceiling }
  const common = { most, input: Math.max(0, ...inputs), output, uses, at, cheaper: 'lower max_tokens', text }
  if (!stream) return { first: most, least: undefined, ...common }
  return { first: output <= SLICE ? most : held(SLICE), least: output <= LEAST ? undefined : held(LEAST), ...common }
}

/** Each is believed by itself. */
const INPUT_CLASSES = 4

/** Of everything that has a price per use. */
function mostUses (prices: readonly PriceSpan[]): Uses {
  const priced = prices.flatMap(({ price }) => [...price.extras.keys()])
  return priced.length === 0 ? noUses : Object.fromEntries(priced.map((name) => [name, MOST_USES]))
}

/**
 * No account could ever have so much, and the ledger could not write it down: better told now than when the upstream
 * has answered.
 */
function refuseUncountable (nanos: Nanos): void {
  if (nanos <= MOST_NANOS) return
  throw new GatewayError('insufficient_quota', {
    message: `This request may cost up to $${formatUsd(nanos)}, and amounts are counted up to ` +
      `$${formatUsd(MOST_NANOS)}. Nothing was charged: tell the operator that the price can't be right.`
  })
}

/** Without a usable `max_tokens` the upstream decides, up to what the model can. */
function boundOutput (maxTokens: unknown, model: Model): number {
  return typeof maxTokens === 'number' && maxTokens >= 0
    ? Math.min(Math.ceil(maxTokens), model.max_output ?? 1e9)
    : mostOutput(model)
}

function mostOutput ({ max_output: most, context }: Model): number {
  return most ?? context ?? 128_000
}
