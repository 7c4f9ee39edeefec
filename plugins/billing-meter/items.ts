// What images cost, and a video at most: by the row of the channel's price table, which is the same from the hold to
// the charge.
import type { Exchange } from '../../src/core/exchange.ts'
import { type Attempt, Model, Plan, Variant } from '../../src/core/facts.ts'
import { itemCost, itemPrice, rateOf, type ItemRate } from '../../src/money/item-price.ts'
import type { Nanos } from '../../src/money/nanos.ts'
import { noUsage, type Usage } from '../../src/money/usage.ts'

/** What `n` may be at most where nobody has checked it. */
const MOST_IMAGES = 10

/** The dearest attempt, with all the images that are asked for, or all the seconds. */
export function dearestItem (exchange: Exchange): Nanos {
  const { kind } = exchange.get(Model)
  const variant = exchange.get(Variant)
  const images = kind === 'image' ? imagesAsked(exchange) : 0
  const seconds = kind === 'video' ? secondsIn(variant) : 0
  return exchange.get(Plan).attempts.reduce((dearest, attempt) => {
    const nanos = itemCost(rateFor(attempt, variant), images, seconds)
    return nanos > dearest ? nanos : dearest
  }, 0n)
}

/**
 * @throws {Error} the plan has an attempt in a channel that does not sell this variant: it was not made by
 * channel-router
 */
export function rateFor ({ channel, sold }: Attempt, variant: Variant): ItemRate {
  const rate = rateOf(variant, itemPrice(sold))
  if (rate === undefined) throw new Error(`the channel ${channel} has no price for ${JSON.stringify(variant)}`)
  return rate
}

/** By the seconds that were asked for, whatever comes of them. */
export function videoCost (rate: ItemRate, variant: Variant): Nanos {
  return itemCost(rate, 0, secondsIn(variant))
}

/** Counted in the answer as it goes to the client: what did not arrive is not charged. */
export function imagesIn (body: unknown): number {
  const data = typeof body === 'object' && body !== null ? (body as { readonly data?: unknown }).data : undefined
  return Array.isArray(data) ? data.length : 0
}

export function imageUsage (images: number): Usage {
  return { ...noUsage, extras: { image: images } }
}

function secondsIn (variant: Variant): number {
  return Number(variant['seconds'] ?? 0)
}

function imagesAsked (exchange: Exchange): number {
  const { n } = exchange.request.body
  return typeof n === 'number' && Number.isInteger(n) && n > 0 ? n : n === undefined || n === null ? 1 : MOST_IMAGES
}
