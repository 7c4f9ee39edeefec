// Computes amounts from usage and a channel's price: exact, in nano-dollars. The only place where money is rounded.
import { formatPrice, parsePrice, type Nanos, type Price, type Usd } from './nanos.ts'
import type { Usage } from './usage.ts'

/** USD per 1M tokens by class; `extras` are USD per use. */
export interface TokenPrice {
  readonly input: Usd
  readonly output: Usd
  readonly cache_read?: Usd
  readonly cache_write?: Usd
  readonly cache_write_5m?: Usd
  readonly cache_write_1h?: Usd
  readonly extras?: Readonly<Record<string, Usd | BoundedUse>>
}

/** A price per use, and the most uses of a tool in a request that sets no limit itself. */
export interface BoundedUse {
  readonly usd: Usd
  readonly most?: number
}

/** Rates in pico-dollars per 1M tokens; extras in pico-dollars per 1M uses, so that all of them add up in one unit. */
export interface CompiledPrice {
  readonly input: bigint
  readonly cache_read: bigint
  readonly cache_write_5m: bigint
  readonly cache_write_1h: bigint
  readonly output: bigint
  readonly extras: ReadonlyMap<string, bigint>
  /** uses that a request may make where it sets no limit itself, by the names of `extras` */
  readonly mostUses: ReadonlyMap<string, number>
  /** the highest rate of a token of input, whatever its class */
  readonly dearestInput: bigint
  readonly small: SmallRates
  /** `price: free` was written: usage without a rate is free on purpose (src/README.md#no-unpriced) */
  readonly isFree: boolean
  /** stored with each charge in the ledger */
  readonly version: string
}

/**
 * The same rates as numbers, for the amounts that safe integers hold: nearly all. Divided by what divides them all and
 * the nano-dollar too, of which there are `unit` parts then. One that is no safe integer itself is only near its rate:
 * no amount with it is safe.
 */
type SmallRates =
  Readonly<Record<'input' | 'cache_read' | 'cache_write_5m' | 'cache_write_1h' | 'output' | 'dearestInput' | 'unit',
    number>>

/** The input of an answer: as it was reported, or a bound of its tokens, of which each may be of the dearest class. */
export type Input = Omit<Usage, 'output' | 'extras'> | number

/**
 * Uses in one answer of everything with a price of its own, possible or counted: by the name of the price in `extras`.
 */
export type Uses = Readonly<Record<string, number>>
export const noUses: Uses = Object.freeze({})

const MILLION = 1_000_000n
/** pico-dollars per 1M tokens in a nano-dollar per token: 10^6 tokens × 10^3 pico-dollars */
const UNIT = 1_000_000_000n

const free: CompiledPrice = Object.freeze({
  input: 0n,
  cache_read: 0n,
  cache_write_5m: 0n,
  cache_write_1h: 0n,
  output: 0n,
  extras: new Map(),
  mostUses: new Map(),
  dearestInput: 0n,
  small: { input: 0, cache_read: 0, cache_write_5m: 0, cache_write_1h: 0, output: 0, dearestInput: 0, unit: 1 },
  isFree: true,
  version: 'free'
})

/**
 * Compiles a price as written in gateway.yaml. A cache class without its own price costs what an uncached token costs
 * (src/README.md#cache-prices); a cache write of a certain life falls back to `cache_write` first.
 * @throws {RangeError} a price that is no plain decimal of at most 12 decimals
 */
export function compilePrice (price: TokenPrice | 'free'): CompiledPrice {
  if (price === 'free') return free
  const input = parsePrice(price.input)
  const read = (text: string | undefined, otherwise: Price): Price => text === undefined ? otherwise : parsePrice(text)
  const cacheRead = read(price.cache_read, input)
  const cacheWrite = read(price.cache_write, input)
  const cacheWrite5m = read(price.cache_write_5m, cacheWrite)
  const cacheWrite1h = read(price.cache_write_1h, cacheWrite)
  const output = parsePrice(price.output)
  const uses = Object.entries(price.extras ?? {}).map(([name, use]) =>
    [name, typeof use === 'string' ? { usd: use } : use] as const)
  const extras = uses.map(([name, { usd }]) => [name, parsePrice(usd)] as const)
  const rates = { input, output, cache_read: cacheRead, cache_write_5m: cacheWrite5m, cache_write_1h: cacheWrite1h }
  const dearestInput = [input, cacheRead, cacheWrite5m, cacheWrite1h].reduce((a, b) => a > b ? a : b)
  return Object.freeze({
    ...rates,
    extras: new Map(extras.map(([name, each]) => [name, each * MILLION])),
    mostUses: new Map(uses.flatMap(([name, { most }]: readonly [string, BoundedUse]) =>
      most === undefined ? [] : [[name, most] as const])),
    dearestInput,
    small: smallRatesOf({ ...rates, dearestInput }),
    isFree: false,
    version: versionOf(rates, extras)
  })
}

function smallRatesOf (rates: Readonly<Record<Exclude<keyof SmallRates, 'unit'>, bigint>>): SmallRates {
  let shared = Number(UNIT)
  for (const rate of Object.values(rates)) shared = divisorOf(shared, Number(rate % BigInt(shared)))
  const small = (rate: bigint): number => Number(rate / BigInt(shared))
  return { input: small(rates.input), cache_read: small(rates.cache_read),
    cache_write_5m: small(rates.cache_write_5m), cache_write_1h: small(rates.cache_write_1h),
    output: small(rates.output), dearestInput: small(rates.dearestInput), unit: Number(UNIT) / shared }
}

/** The greatest number that divides both (Euclid). */
function divisorOf (one: number, other: number): number {
  return other === 0 ? one : divisorOf(other, one % other)
}

/**
 * The price itself, such as "input=3 output=15 cache_read=0.3 extras.web_search=0.01": US dollars per 1M tokens, extras
 * per use. A class of input that is not named costs what input does. Not a hash: a reader of an entry years later has
 * no configuration of that day to look it up in. One price has one version, whatever its spelling, its model and the
 * day from which it holds.
 */
function versionOf (
  { input, output, ...caches }: Readonly<
    Record<'input' | 'output' | 'cache_read' | 'cache_write_5m' | 'cache_write_1h', Price>
  >,
  extras: readonly (readonly [name: string, price: Price])[]
): string {
  const named = extras.toSorted(([a], [b]) => a < b ? -1 : 1).map(([name, price]) => [`extras.${name}`, price] as const)
  const parts = [['input', input], ['output', output], ...Object.entries(caches).filter(([, price]) => price !== input),
    ...named] as const
  return parts.map(([name, price]) => `${name}=${formatPrice(price)}`).join(' ')
}

/** The cost of this usage: the exact sum over all classes, rounded once, half up. */
export function cost (usage: Usage, price: CompiledPrice): Nanos {
  return wholeCost(usage, usage.output, price, usage.extras)
}

/**
 * The most that so many tokens and uses can cost. Rounded as `cost` is, so that no charge within the bounds is larger.
 */
export function worstCase (
  inputTokens: number,
  outputTokens: number,
  price: CompiledPrice,
  uses: Uses = noUses
): Nanos {
  return wholeCost(inputTokens, outputTokens, price, uses)
}

/** The cost of a whole answer whose input is known, or bounded. */
export function wholeCost (input: Input, outputTokens: number, price: CompiledPrice, uses: Uses = noUses): Nanos {
  const sum = smallAmount(input, price.small) + outputTokens * price.small.output
  // No term is negative: where one was rounded, because it is too large, the sum is no safe integer either.
  if (Number.isSafeInteger(sum) && isEmpty(uses)) return roundSmall(sum, price.small.unit)
  return roundHalfUp(inputAmount(input, price) + BigInt(outputTokens) * price.output + costOfUses(uses, price), UNIT)
}

/** The cost of input before rounding, in parts of the unit of the small rates. */
function smallAmount (input: Input, rates: SmallRates): number {
  if (typeof input === 'number') return input * rates.dearestInput
  return input.input * rates.input + input.cache_read * rates.cache_read +
    input.cache_write_5m * rates.cache_write_5m + input.cache_write_1h * rates.cache_write_1h
}

/** The cost of input before rounding, in the unit of the rates. */
function inputAmount (input: Input, price: CompiledPrice): bigint {
  if (typeof input === 'number') return BigInt(input) * price.dearestInput
  return BigInt(input.input) * price.input + BigInt(input.cache_read) * price.cache_read +
    BigInt(input.cache_write_5m) * price.cache_write_5m + BigInt(input.cache_write_1h) * price.cache_write_1h
}

/** The cost of uses, in the unit of the rates. */
function costOfUses (uses: Uses, price: CompiledPrice): bigint {
  let sum = 0n
  for (const name in uses) sum += BigInt(uses[name]!) * (price.extras.get(name) ?? 0n)
  return sum
}

function isEmpty (uses: Uses): boolean {
  for (const _name in uses) return false
  return true
}

/** Tokens of output that an amount pays for, beside this input and all uses: the inverse of `wholeCost`. */
export function outputCovered (nanos: Nanos, input: Input, price: CompiledPrice, uses: Uses = noUses): number {
  if (price.output === 0n) return Infinity
  const left = nanos * UNIT - inputAmount(input, price) - costOfUses(uses, price)
  return left < 0n ? 0 : Number(left / price.output)
}

/** Extras that were used and have no row in the price: given away unless the operator is told. */
export function unpricedExtras (usage: Usage, price: CompiledPrice): readonly string[] {
  if (price.isFree) return NONE
  let unpriced = NONE
  for (const name in usage.extras) {
    if (usage.extras[name] !== 0 && !price.extras.has(name)) unpriced = [...unpriced, name]
  }
  return unpriced
}

const NONE: readonly string[] = []

/** The amount of a price per use, such as that of a forward route: rounded half up. */
export function flatCost (price: Price): Nanos {
  return roundHalfUp(price, 1000n)
}

/** The version of a price per use, in the form of one per token. */
export function flatVersion (price: Price): string {
  return price === 0n ? 'free' : `usd=${formatPrice(price)}`
}

/** Of a safe integer that is not negative. The division is exact. */
function roundSmall (amount: number, unit: number): bigint {
  const rest = amount % unit
  return BigInt((amount - rest) / unit + (2 * rest < unit ? 0 : 1))
}

/** Of a non-negative amount. */
function roundHalfUp (amount: bigint, unit: bigint): bigint {
  return (amount + unit / 2n) / unit
}
