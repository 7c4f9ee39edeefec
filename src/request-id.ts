// Request ids: `req_` and 24 base62 characters, the first nine ordered by time (protocol.md K 7.0d).
import { randomFillSync } from 'node:crypto'

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const TIME_LENGTH = 9
const RANDOM_LENGTH = 15

const pool = Buffer.alloc(RANDOM_LENGTH * 256)
let used = pool.length
let lastMicros = 0

export function createRequestId (): string {
  // Microseconds of which only the milliseconds are real: the rest counts, so that ids of one process never go back.
  lastMicros = Math.max(Date.now() * 1000, lastMicros + 1)
  let time = ''
  for (let rest = lastMicros, i = 0; i < TIME_LENGTH; i++) {
    time = ALPHABET[rest % 62] + time
    rest = Math.floor(rest / 62)
  }
  if (used === pool.length) { randomFillSync(pool); used = 0 }
  let random = ''
  for (const end = used + RANDOM_LENGTH; used < end; used++) random += ALPHABET[pool[used]! % 62]
  return `req_${time}${random}`
}
