// The cost of images, and the most that a video costs: by a row of the channel's price table, the same for the hold and
// the charge.
import type { Exchange } from '../../src/core/exchange.ts'
import { type Attempt, Model, Plan, Variant } from '../../src/core/facts.ts'
import { itemCost, itemPrice, rateOf, type ItemRate } from '../../src/money/item-price.ts'
import type { Nanos } from '../../src/money/nanos.ts'
import { noUsage, type Usage } from '../../src/money/usage.ts'

/** Most images of a request where `n` was not checked. */
const MOST_IMAGES = 10

/** The dearest attempt, with all requested images or seconds. */
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

/** @throws {Error} the plan has an attempt in a channel that does not sell this variant: channel-router makes none */
export function rateFor ({ channel, sold }: Attempt, variant: Variant): ItemRate {
  const rate = rateOf(variant, itemPrice(sold))
  if (rate === undefined) throw new Error(`the channel ${channel} has no price for ${JSON.stringify(variant)}`)
  return rate
}

/** By the ordered seconds: the most that it is charged. */
export function videoCost (rate: ItemRate, variant: Variant): Nanos {
  return itemCost(rate, 0, secondsIn(variant))
}

/** Counted in the answer as the client gets it: an image that did not arrive is not charged. */
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
