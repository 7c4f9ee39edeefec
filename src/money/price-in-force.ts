// Which of a text channel's prices holds at an instant: prices may follow each other, and the change needs no reload.
import type { ChannelConfig, TextPrice, TokenPrice } from '../config/config.ts'
import { compilePrice, type CompiledPrice } from './price.ts'

/** A price and the time for which it holds, in milliseconds since the epoch. */
export interface PriceSpan {
  /** -Infinity: it was never announced */
  readonly from: number
  /** Infinity: nothing follows */
  readonly until: number
  readonly written: TokenPrice | 'free'
  readonly price: CompiledPrice
}

/** A day, or an instant as RFC 3339 writes it, with its zone: 18:00 alone is another instant in every place. */
export const FROM = /^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?:T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,3})?(?:Z|[+-](?:0\d|1[0-4]):[0-5]\d))?$/

/** @returns milliseconds since the epoch; of a day its midnight in UTC. Undefined: there is no such day or instant */
export function parseFrom (text: string): number | undefined {
  if (!FROM.test(text)) return undefined
  const day = text.slice(0, 10)
  const midnight = Date.parse(day)
  // `Date` takes the 30th of February for the 2nd of March.
  if (Number.isNaN(midnight) || !new Date(midnight).toISOString().startsWith(day)) return undefined
  return Date.parse(text)
}

const compiled = new WeakMap<ChannelConfig, readonly PriceSpan[]>()

/**
 * Oldest first. Compiled once per channel of a configuration.
 * @throws {RangeError} a price that is no plain decimal of at most 12 decimals
 */
export function spansOf (sold: ChannelConfig): readonly PriceSpan[] {
  let spans = compiled.get(sold)
  if (spans === undefined) compiled.set(sold, spans = compile(sold.price))
  return spans
}

/** The last that has begun. Where the clock was set back to before them all, the first: nothing is ever sold without a price. */
export function priceAt (sold: ChannelConfig, now: number): PriceSpan {
  const spans = spansOf(sold)
  let i = spans.length - 1
  while (i > 0 && spans[i]!.from > now) i--
  return spans[i]!
}

function compile (price: TextPrice): readonly PriceSpan[] {
  if (price === 'free' || !isList(price)) return [{ from: -Infinity, until: Infinity, written: price, price: compilePrice(price) }]
  const begins = price.map((one) => one === 'free' || one.from === undefined ? -Infinity : parseFrom(one.from)!)
  return price.map((one, i) => ({ from: begins[i]!, until: begins[i + 1] ?? Infinity, written: one, price: compilePrice(one) }))
}

/** `Array.isArray` does not know readonly ones. */
function isList (price: TextPrice): price is Extract<TextPrice, readonly unknown[]> {
  return Array.isArray(price)
}
