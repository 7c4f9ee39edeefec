// Request ids: `req_` and 24 base62 characters, the first nine ordered by time (src/README.md#request-id).
import { randomFillSync } from 'node:crypto'

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const TIME_LENGTH = 9
const RANDOM_LENGTH = 15

const pool = Buffer.alloc(RANDOM_LENGTH * 256)
let used = pool.length
let lastMicros = 0

const text = Buffer.from('req_'.padEnd(4 + TIME_LENGTH + RANDOM_LENGTH, '0'))
const codes = Buffer.from(ALPHABET)

const REQUEST_ID = new RegExp(`^req_[${ALPHABET}]{${TIME_LENGTH + RANDOM_LENGTH}}$`)

export function isRequestId (text: string): boolean {
  return REQUEST_ID.test(text)
}

/**
 * @param start of the id in a longer text
 * @returns microseconds since the epoch at which the id was made
 */
export function microsOf (text: string, start = 0): number {
  let micros = 0
  for (let i = start + 4; i < start + 4 + TIME_LENGTH; i++) {
    const code = text.charCodeAt(i)
    micros = micros * 62 + code - (code < 58 ? 48 : code < 91 ? 55 : 61)
  }
  return micros
}

/** @returns the beginning of the ids that are made at this time, which comes before all of them and all later ones */
export function beginningOfIds (micros: number): string {
  let digits = ''
  for (let rest = micros; digits.length < TIME_LENGTH; rest = Math.floor(rest / 62)) {
    digits = ALPHABET[rest % 62]! + digits
  }
  return 'req_' + digits
}

export function createRequestId (): string {
  // Only the milliseconds are real: the microseconds count up, so that ids of one process never go back.
  lastMicros = Math.max(Date.now() * 1000, lastMicros + 1)
  for (let rest = lastMicros, i = 3 + TIME_LENGTH; i > 3; i--) {
    text[i] = codes[rest % 62]!
    rest = Math.floor(rest / 62)
  }
  if (used === pool.length) { randomFillSync(pool); used = 0 }
  for (let i = 4 + TIME_LENGTH; i < text.length; i++) text[i] = codes[pool[used++]! % 62]!
  return text.toString('latin1')
}

const FORM = new RegExp(`^req_([0-9A-Za-z]{${TIME_LENGTH}})[0-9A-Za-z]{${RANDOM_LENGTH}}$`)

/** When an id was made, in microseconds since the epoch, or soon after; undefined: it is none of this kind. */
export function timeOfRequestId (id: string): number | undefined {
  const digits = FORM.exec(id)?.[1]
  if (digits === undefined) return undefined
  return [...digits].reduce((micros, digit) => micros * 62 + ALPHABET.indexOf(digit), 0)
}
