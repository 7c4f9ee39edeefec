// What answers cost the operator: the `cost:` of their targets, in the forms of prices. Metrics only: no charge, no
// entry of the ledger and no limit depends on it.
import { compileItemPrice, itemCost, type PriceRow, rateOf, type Variant } from './item-price.ts'
import type { Nanos } from './nanos.ts'
import { compilePrice, cost, type TokenPrice } from './price.ts'
import type { Usage } from './usage.ts'

/** Of a text model, or of an image or video model. */
export type Cost = TokenPrice | readonly PriceRow[]

const compiled = new WeakMap<Cost, {
  readonly tokens?: ReturnType<typeof compilePrice>
  readonly items?: ReturnType<typeof compileItemPrice>
}>()

function compile (written: Cost): NonNullable<ReturnType<typeof compiled.get>> {
  let made = compiled.get(written)
  if (made === undefined) {
    made = isRows(written) ? { items: compileItemPrice(written) } : { tokens: compilePrice(written) }
    compiled.set(written, made)
  }
  return made
}

/** The cost of this usage. Undefined: the target does not say. */
export function costOfTokens (usage: Usage, written: Cost | undefined): Nanos | undefined {
  const tokens = written === undefined ? undefined : compile(written).tokens
  return tokens === undefined ? undefined : cost(usage, tokens)
}

/** The cost of so many images, or of a video of so many seconds. Undefined: the target does not say. */
export function costOfItems (
  variant: Variant,
  written: Cost | undefined,
  images: number,
  seconds = 0
): Nanos | undefined {
  const items = written === undefined ? undefined : compile(written).items
  const rate = items === undefined ? undefined : rateOf(variant, items)
  return rate === undefined ? undefined : itemCost(rate, images, seconds)
}

/** `Array.isArray` does not narrow to readonly arrays. */
function isRows (written: Cost): written is readonly PriceRow[] {
  return Array.isArray(written)
}
