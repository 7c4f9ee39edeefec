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
