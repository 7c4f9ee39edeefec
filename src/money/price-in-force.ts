// Which of a text channel's prices holds at an instant: prices may follow each other, and the change needs no reload.
import type { ChannelConfig, StagedPrice, TextPrice, TokenPrice } from '../config/config.ts'
import { type Stage, stageAt, stagesOf } from '../stages.ts'
import { compilePrice, type CompiledPrice } from './price.ts'

/** A price and the time for which it holds. */
export interface PriceSpan extends Stage<TokenPrice | 'free'> {
  readonly price: CompiledPrice
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

/** Nothing is ever sold without a price. */
export function priceAt (sold: ChannelConfig, now: number): PriceSpan {
  return stageAt(spansOf(sold), now)
}

function compile (price: TextPrice): readonly PriceSpan[] {
  const list: readonly (StagedPrice | 'free')[] = price === 'free' || !isList(price) ? [price] : price
  return stagesOf(list).map((stage) => ({ ...stage, price: compilePrice(stage.written) }))
}

/** `Array.isArray` does not know readonly ones. */
function isList (price: TextPrice): price is Extract<TextPrice, readonly unknown[]> {
  return Array.isArray(price)
}
