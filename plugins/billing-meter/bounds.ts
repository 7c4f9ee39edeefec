// What one exchange can cost: held before an upstream is called, whoever answers.
import type { Exchange } from '../../src/exchange.ts'
import { Model, Plan, type WorstCase } from '../../src/facts.ts'
import { boundInput } from '../../src/money/bound.ts'
import type { Nanos } from '../../src/money/nanos.ts'
import { priceAt, type PriceSpan } from '../../src/money/price-in-force.ts'
import { flatCost, noUses, worstCase, type Uses } from '../../src/money/price.ts'
import { boundUses, refuseSurcharges } from '../../src/money/surcharges.ts'
import { dearestItem } from './items.ts'

/** Tokens of output that are held for a stream at first, and with each extension (design.md part 6). */
export const SLICE = 4096
/** A stream whose first slice does not fit begins with what is left, if that pays for so many. */
const LEAST = 64

/** What one exchange can cost. */
export interface Bounds extends WorstCase {
  /** what must be there at least; undefined: `first` */
  readonly least: Nanos | undefined
  readonly uses: Uses
  /** what would make it cost less, in words; undefined: nothing that the client can ask for */
  readonly cheaper: string | undefined
}

/** @param at milliseconds since the epoch: it pays the prices of then. @throws {GatewayError} what it asks for has no price */
export function boundsOf (exchange: Exchange, at: number): Bounds {
  const { endpoint } = exchange.route
  if (endpoint.kind === 'forward') return flatBounds(flatCost(endpoint.price), at)
  const { kind } = exchange.get(Model)
  return kind === 'text' ? dearest(exchange, at) : flatBounds(dearestItem(exchange), at, CHEAPER[kind])
}

const CHEAPER = { image: 'ask for fewer or smaller images', video: 'ask for a shorter or smaller video' } as const

function flatBounds (nanos: Nanos, at: number, cheaper?: string): Bounds {
  return { first: nanos, least: undefined, most: nanos, input: 0, output: 0, uses: noUses, at, cheaper }
}

/** The worst case of the dearest attempt: whichever of them answers is paid from the same hold. */
function dearest (exchange: Exchange, at: number): Bounds {
  const model = exchange.get(Model)
  const { body, stream } = exchange.request
  const { attempts } = exchange.get(Plan)
  const prices = attempts.map(({ sold }) => priceAt(sold, at))
  refuseSurcharges(body, prices.map(({ written }) => written))
  const input = boundInput(body, model.context, exchange.blobs)
  const output = boundOutput(body['max_tokens'], model)
  const uses = boundUses(body, prices.map(({ price }) => price))
  const most = dearestOf(prices, input, output, uses)
  const cheaper = 'lower max_tokens'
  if (!stream) return { first: most, least: undefined, most, input, output, uses, at, cheaper }
  const first = output <= SLICE ? most : dearestOf(prices, input, SLICE, uses)
  const least = output <= LEAST ? undefined : dearestOf(prices, input, LEAST, uses)
  return { first, least, most, input, output, uses, at, cheaper }
}

function dearestOf (prices: readonly PriceSpan[], input: number, output: number, uses: Uses): Nanos {
  let dearest = 0n
  for (const { price } of prices) {
    const nanos = worstCase(input, output, price, uses)
    if (nanos > dearest) dearest = nanos
  }
  return dearest
}

/** Without a usable `max_tokens` the upstream decides, up to what the model can. */
function boundOutput (maxTokens: unknown, model: Model): number {
  const most = model.max_output ?? model.context ?? 128_000
  return typeof maxTokens === 'number' && maxTokens >= 0 ? Math.min(Math.ceil(maxTokens), model.max_output ?? 1e9) : most
}
