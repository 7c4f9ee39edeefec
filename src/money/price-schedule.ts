// The price of a text channel at an instant: prices may follow each other, and the change needs no reload.
import { type Stage, stageAt, stagesOf } from '../base/schedule.ts'
import { compilePrice, type CompiledPrice, type TokenPrice } from './price.ts'

/** One of successive prices. */
export interface StagedPrice extends TokenPrice {
  /**
   * the beginning: a day (its midnight in UTC) or an instant with its zone (RFC 3339); only the first of a list may be
   * without
   */
  readonly from?: string
}

/** The price of a text model; of a list, the last that has begun holds. */
export type TextPrice = TokenPrice | 'free' | readonly (StagedPrice | 'free')[]

/** A channel, typed as a text model's; prices of other kinds are read through `itemPriceOf`. */
export interface Priced {
  readonly price: TextPrice
}

/** A price and the time for which it holds. */
export interface PriceSpan extends Stage<TokenPrice | 'free'> {
  readonly price: CompiledPrice
}

const compiled = new WeakMap<Priced, readonly PriceSpan[]>()

/**
 * Oldest first. Compiled once per channel of a configuration.
 * @throws {RangeError} a price that is no plain decimal of at most 12 decimals
 */
export function spansOf (sold: Priced): readonly PriceSpan[] {
  let spans = compiled.get(sold)
  if (spans === undefined) compiled.set(sold, spans = compile(sold.price))
  return spans
}

/** The price at an instant; there always is one. */
export function priceAt (sold: Priced, now: number): PriceSpan {
  return stageAt(spansOf(sold), now)
}

function compile (price: TextPrice): readonly PriceSpan[] {
  const list: readonly (StagedPrice | 'free')[] = price === 'free' || !isList(price) ? [price] : price
  return stagesOf(list).map((stage) => ({ ...stage, price: compilePrice(stage.written) }))
}

/** `Array.isArray` does not narrow to readonly arrays. */
function isList (price: TextPrice): price is Extract<TextPrice, readonly unknown[]> {
  return Array.isArray(price)
}
