// Request ids: `req_` and 24 base62 characters, the first nine ordered by time (src/README.md#request-id).
import { randomFillSync } from 'node:crypto'
import { dateOfStep } from './end-of-turn.ts'

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const TIME_LENGTH = 9
const RANDOM_LENGTH = 15

/** The last digits of the time: what they count to is a small integer, with which a division costs next to nothing. */
const FAST_LENGTH = 5
const FAST_MICROS = 62 ** FAST_LENGTH

const pool = Buffer.alloc(RANDOM_LENGTH * 256)
let used = pool.length
let lastMicros = 0
/** the time of the digits before them */
let slowTime = -1

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
  lastMicros = Math.max(dateOfStep() * 1000, lastMicros + 1)
  const slow = Math.floor(lastMicros / FAST_MICROS)
  if (slow !== slowTime) writeDigits(slowTime = slow, 4, TIME_LENGTH - FAST_LENGTH)
  writeDigits(lastMicros - slow * FAST_MICROS, 4 + TIME_LENGTH - FAST_LENGTH, FAST_LENGTH)
  if (used === pool.length) { randomFillSync(pool); used = 0 }
  for (let i = 4 + TIME_LENGTH; i < text.length; i++) text[i] = codes[pool[used++]! % 62]!
  return text.toString('latin1')
}

const mirrored = Buffer.alloc(64)

/**
 * An id that leads to that of a request: its characters behind another prefix. In one piece: JSON of an object with a
 * text that was put together takes twice as long (measured).
 */
export function likeRequestId (prefix: string, requestId: string): string {
  const like = prefix + requestId.slice(requestId.indexOf('_') + 1)
  return like.length > mirrored.length ? like : mirrored.toString('latin1', 0, mirrored.write(like, 'latin1'))
}

function writeDigits (value: number, at: number, length: number): void {
  for (let i = at + length - 1; i >= at; i--) {
    text[i] = codes[value % 62]!
    value = Math.floor(value / 62)
  }
}

const FORM = new RegExp(`^req_([0-9A-Za-z]{${TIME_LENGTH}})[0-9A-Za-z]{${RANDOM_LENGTH}}$`)

/** When an id was made, in microseconds since the epoch, or soon after; undefined: it is none of this kind. */
export function timeOfRequestId (id: string): number | undefined {
  const digits = FORM.exec(id)?.[1]
  if (digits === undefined) return undefined
  return [...digits].reduce((micros, digit) => micros * 62 + ALPHABET.indexOf(digit), 0)
}
