// Money: integers of nano-dollars (1 USD = 1,000,000,000). Never a float.

/** A decimal of US dollars exactly as written, such as "0.0125". */
export type Usd = string

/** An amount of money in nano-dollars. */
export type Nanos = bigint

export const NANOS_PER_USD: Nanos = 1_000_000_000n

/**
 * 9.2 billion USD: the most in a signed integer of 64 bits. Every driver refuses more, because SQLite would round it.
 */
export const MOST_NANOS: Nanos = 2n ** 63n - 1n

/** A price in pico-dollars (1 USD = 10^12) per unit, so that 12 decimals of a dollar are exact. */
export type Price = bigint

const PRICE_DECIMALS = 12
const MOST_SAFE = BigInt(Number.MAX_SAFE_INTEGER)

/**
 * Reads a decimal of US dollars, such as "0.0125" or "3.33", exactly.
 * @returns pico-dollars
 * @throws {RangeError} not a plain non-negative decimal, or more than 12 decimals
 */
export function parsePrice (text: string): Price {
  const match = /^(\d{1,15})(?:\.(\d+))?$/.exec(text)
  if (match === null) throw new RangeError(`not a plain decimal of US dollars: ${JSON.stringify(text)}`)
  const fraction = (match[2] ?? '').replace(/(?<!0)0+$/, '')
  if (fraction.length > PRICE_DECIMALS) throw new RangeError(`more than ${PRICE_DECIMALS} decimals: ${text}`)
  return BigInt(match[1]! + fraction.padEnd(PRICE_DECIMALS, '0'))
}

/**
 * Reads a decimal of US dollars as nano-dollars, exactly.
 * @throws {RangeError} as parsePrice, or finer than a nano-dollar
 */
export function parseUsd (text: string): Nanos {
  const pico = parsePrice(text)
  if (pico % 1000n !== 0n) throw new RangeError(`finer than a nano-dollar: ${text}`)
  return pico / 1000n
}

/** Prints nano-dollars as a decimal of US dollars without trailing zeros: 39000000n is "0.039". */
export function formatUsd (nanos: Nanos): string {
  if (nanos === 0n) return '0'
  return format(nanos, 9)
}

/** Prints pico-dollars as a decimal of US dollars, in its shortest form. */
export function formatPrice (price: Price): string {
  return format(price, PRICE_DECIMALS)
}

/** Prints a price per 1M tokens as that of one token: 3000000000000n is "0.000003". */
export function formatPerToken (price: Price): string {
  return formatWide(price, PRICE_DECIMALS + 6)
}

function format (amount: bigint, decimals: number): string {
  if (amount >= 0n && amount <= MOST_SAFE) return formatSafe(Number(amount), decimals)
  return formatWide(amount, decimals)
}

function formatWide (amount: bigint, decimals: number): string {
  const sign = amount < 0n ? '-' : ''
  const digits = (amount < 0n ? -amount : amount).toString().padStart(decimals + 1, '0')
  const point = digits.length - decimals
  let end = digits.length
  while (end > point && digits[end - 1] === '0') end--
  return sign + digits.slice(0, point) + (end === point ? '' : '.' + digits.slice(point, end))
}

/** As `format`, of a safe integer: every answer says its cost. */
function formatSafe (amount: number, decimals: number): string {
  let unit = 10 ** decimals
  let rest = amount % unit
  const whole = String((amount - rest) / unit)
  if (rest === 0) return whole
  for (; rest % 10 === 0; rest /= 10) unit /= 10
  return `${whole}.${String(unit + rest).slice(1)}`           // the one of the unit keeps the zeros behind it
}
