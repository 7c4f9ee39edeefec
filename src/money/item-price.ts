// A channel's price of one image, or of a second of video: the first row of its table that matches the request's
// parameters. Exact; rounded once per charge.
import { formatPrice, parsePrice, type Nanos, type Price, type Usd } from './nanos.ts'
import type { Priced } from './price-schedule.ts'

/** A row of the table as configured: exactly one of the two prices. */
export interface PriceRow {
  /** values of parameters; a parameter that is not named may have any value. Absent: matches every variant */
  readonly when?: Readonly<Record<string, string>>
  /** of an image model: per delivered image */
  readonly usd?: Usd
  /** of a video model */
  readonly usd_per_second?: Usd
}

/**
 * The price of a channel of an image or video model: the first row that matches the request. A variant without a match
 * is not sold in this channel.
 */
export type ItemPrice = readonly PriceRow[] | 'free'

/** Values of a model's parameters by name, after defaults: they decide the price. */
export type Variant = Readonly<Record<string, string>>

/** A row of a price table. Rates in pico-dollars. */
export interface ItemRate {
  /** per delivered image; 0 where the row prices seconds */
  readonly each: Price
  /** per second of video; 0 where the row prices images */
  readonly perSecond: Price
  /** stored with each charge in the ledger: the row itself, such as "image=0.039 resolution=1K" */
  readonly version: string
}

interface Row extends ItemRate {
  readonly when: ReadonlyArray<readonly [name: string, value: string]>
}

/** The rows in the order of the file. */
export interface CompiledItemPrice {
  readonly rows: readonly Row[]
}

/** `price: free` was written (src/README.md#no-unpriced) */
const free: CompiledItemPrice = Object.freeze({ rows: [{ when: [], each: 0n, perSecond: 0n, version: 'free' }] })

/**
 * The price of a channel of an image or video model. The type of `price` is a text model's: the kind decides, and
 * config/sections/models.ts has checked it.
 */
export function itemPriceOf (sold: Priced): ItemPrice {
  return sold.price as unknown as ItemPrice
}

/** @throws {RangeError} a price that is no plain decimal of at most 12 decimals */
export function compileItemPrice (price: ItemPrice): CompiledItemPrice {
  if (price === 'free') return free
  return Object.freeze({ rows: price.map(compileRow) })
}

function compileRow ({ when, usd, usd_per_second: perSecond }: PriceRow): Row {
  const fits = Object.entries(when ?? {})
  const price = perSecond === undefined
    ? `image=${formatPrice(parsePrice(usd ?? '0'))}`
    : `second=${formatPrice(parsePrice(perSecond))}`
  return {
    when: fits, each: parsePrice(usd ?? '0'), perSecond: parsePrice(perSecond ?? '0'),
    version: [price, ...fits.map(([name, value]) => `${name}=${value}`)].join(' ')
  }
}

const compiled = new WeakMap<Priced, CompiledItemPrice>()

/** The compiled price of a channel, once per snapshot. */
export function itemPrice (sold: Priced): CompiledItemPrice {
  let price = compiled.get(sold)
  if (price === undefined) compiled.set(sold, price = compileItemPrice(itemPriceOf(sold)))
  return price
}

/** Undefined: the variant is not sold at this price list. */
export function rateOf (variant: Variant, { rows }: CompiledItemPrice): ItemRate | undefined {
  return rows.find(({ when }) => fits(when, variant))
}

function fits (when: Row['when'], variant: Variant): boolean {
  return when.every(([name, value]) => Object.hasOwn(variant, name) && variant[name] === value)
}

/** The cost of so many images, or of one video of so many seconds: rounded once, half up. */
export function itemCost ({ each, perSecond }: Omit<ItemRate, 'version'>, images: number, seconds = 0): Nanos {
  const pico = each * BigInt(images) + perSecond * BigInt(seconds)
  return (pico + 500n) / 1000n
}
