// What the requests of this process came to lately, for an overview: how many, how many failed, what they cost, and
// how long their clients waited for the first token. Kept for a day in slots of a minute, in 0.3 MB; a request costs a
// few additions. What the process before had served is counted again from the log of requests, so that the last day
// does not begin with each restart.
import type { ExchangeRecord } from '../core/record.ts'
import { endOf, type LoggedRequest } from './requests/line.ts'

type Ended = Readonly<Pick<ExchangeRecord, 'outcome' | 'code'>> & {
  readonly [Name in 'key_id' | 'by' | 'nanos' | 'usage' | 'stream' | 'first_byte_ms']?:
  ExchangeRecord[Name] | null | undefined
}

/** Of a process, or of several added up. Plain numbers: it crosses from workers to their primary. */
export interface LatelyView {
  /** requests since the start: changes with each */
  readonly total: number
  /** the last five minutes */
  readonly now: Sums
  /** the last 24 hours */
  readonly day: Sums
}

export interface Sums {
  /**
   * milliseconds since the epoch: the beginning of that time, or of what is known of it, where the process began later
   * and the log of requests has nothing older
   */
  readonly since: number
  readonly requests: number
  /** those of them that did not end well, but for those that their clients left */
  readonly errors: number
  /** nano-dollars */
  readonly nanos: number
  readonly input_tokens: number
  readonly output_tokens: number
  /** streams by the time until their first byte: one number for each of BOUNDS_MS, and one for those beyond */
  readonly first_token: readonly number[]
}

/** Upper bounds of the counts in `first_token`. */
export const BOUNDS_MS = [10, 25, 50, 100, 150, 200, 300, 400, 600, 800, 1000, 1500, 2000, 3000, 5000, 7500, 10_000,
  20_000, 40_000]

const SLOT_MS = 60_000
const SLOTS = 24 * 60
/** Milliseconds that are remembered. */
export const LATELY_MS = SLOTS * SLOT_MS
const NOW_SLOTS = 5

/** Numbers of a slot: the sums in the order of their fields, and then the times. */
const FIRST = 5
const WIDTH = FIRST + BOUNDS_MS.length + 1

export class Lately {
  readonly #now: () => number
  readonly #slots = new Float64Array(SLOTS * WIDTH)
  /** which minute since the epoch each slot has */
  readonly #minutes = new Float64Array(SLOTS).fill(-1)
  #total = 0
  /** milliseconds since the epoch, from which on all is counted */
  #since: number

  /** @param now milliseconds since the epoch */
  constructor (now: () => number) {
    this.#now = now
    this.#since = now()
  }

  /** Counts a request that is over. */
  record (ended: Ended): void {
    this.#total++
    this.#count(ended, this.#now())
  }

  /** Counts a request that a process before this one has served. */
  recall (request: LoggedRequest): void {
    const at = endOf(request)
    if (at < minuteBefore(this.#now(), SLOTS) * SLOT_MS) return
    this.#since = Math.min(this.#since, at)
    this.#count({ ...request, key_id: request.key, nanos: BigInt(request.nanos ?? 0) }, at)
  }

  view (): LatelyView {
    return { total: this.#total, now: this.#sum(NOW_SLOTS), day: this.#sum(SLOTS) }
  }

  /** Those of strangers, who have no key, are left out. @param time milliseconds since the epoch */
  #count ({ key_id: key, outcome, code, by, nanos, usage, stream, first_byte_ms: first }: Ended, time: number): void {
    if (typeof key !== 'string') return
    const at = this.#slot(time)
    const slots = this.#slots
    slots[at]!++
    if (outcome === 'failed' ? code !== 'client_closed' : outcome === 'interrupted' && by !== 'client') {
      slots[at + 1]!++
    }
    slots[at + 2]! += Number(nanos ?? 0)
    if (typeof usage === 'object' && usage !== null) {
      slots[at + 3]! += usage.input + usage.cache_read + usage.cache_write_5m + usage.cache_write_1h
      slots[at + 4]! += usage.output
    }
    if (stream === true && outcome !== 'failed' && typeof first === 'number') {
      const bucket = BOUNDS_MS.findIndex((bound) => first <= bound)
      slots[at + FIRST + (bucket === -1 ? BOUNDS_MS.length : bucket)]!++
    }
  }

  /** The first number of the slot of a minute, which is empty when the minute is new. */
  #slot (time: number): number {
    const minute = Math.floor(time / SLOT_MS)
    const slot = minute % SLOTS
    if (this.#minutes[slot] !== minute) {
      this.#minutes[slot] = minute
      this.#slots.fill(0, slot * WIDTH, (slot + 1) * WIDTH)
    }
    return slot * WIDTH
  }

  #sum (minutes: number): Sums {
    const first = minuteBefore(this.#now(), minutes)
    const sums = new Array<number>(WIDTH).fill(0)
    for (let minute = first; minute < first + minutes; minute++) {
      const slot = minute % SLOTS
      if (this.#minutes[slot] !== minute) continue
      for (let i = 0; i < WIDTH; i++) sums[i]! += this.#slots[slot * WIDTH + i]!
    }
    const [requests = 0, errors = 0, nanos = 0, input = 0, output = 0] = sums
    return { since: Math.max(first * SLOT_MS, this.#since), requests, errors, nanos, input_tokens: input,
      output_tokens: output, first_token: sums.slice(FIRST) }
  }
}

/** The first of so many minutes, of which the last one is that of an instant; counted since the epoch. */
function minuteBefore (time: number, minutes: number): number {
  return Math.floor(time / SLOT_MS) - minutes + 1
}

/** Several processes added up. */
export function mergedLately (views: readonly LatelyView[]): LatelyView {
  return views.reduce((a, b) => ({ total: a.total + b.total, now: added(a.now, b.now), day: added(a.day, b.day) }))
}

function added (a: Sums, b: Sums): Sums {
  return { since: Math.min(a.since, b.since), requests: a.requests + b.requests,
    errors: a.errors + b.errors, nanos: a.nanos + b.nanos,
    input_tokens: a.input_tokens + b.input_tokens, output_tokens: a.output_tokens + b.output_tokens,
    first_token: a.first_token.map((count, i) => count + b.first_token[i]!) }
}

/**
 * The time below which a part of the streams had their first byte, in milliseconds, as well as the counts tell.
 * @param part from 0 to 1 @returns undefined: there were none
 */
export function quantile (counts: readonly number[], part: number): number | undefined {
  const all = counts.reduce((sum, count) => sum + count, 0)
  if (all === 0) return undefined
  let below = 0
  for (const [i, count] of counts.entries()) {
    if (below + count >= part * all && count > 0) {
      const [from, to] = [BOUNDS_MS[i - 1] ?? 0, BOUNDS_MS[i] ?? BOUNDS_MS.at(-1)!]
      return Math.round(from + (to - from) * Math.max(0, part * all - below) / count)
    }
    below += count
  }
  return BOUNDS_MS.at(-1)!
}
