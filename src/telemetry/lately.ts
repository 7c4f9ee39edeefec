// What the requests of this process came to lately, for an overview: how many, how many failed, what they cost, and
// how long their clients waited for the first token. Kept for a day in slots of a minute, in 0.3 MB; a request costs a
// few additions.
import type { ExchangeRecord } from '../core/record.ts'

type Ended = Readonly<Pick<ExchangeRecord, 'outcome' | 'code' | 'by' | 'nanos' | 'usage' | 'stream' | 'first_byte_ms'>
  & Partial<Pick<ExchangeRecord, 'key_id'>>>

/** Of a process, or of several added up. Plain numbers: it crosses from workers to their primary. */
export interface LatelyView {
  /** requests since the start: changes with each */
  readonly total: number
  /** the last five minutes */
  readonly now: Sums
  /** the last 24 hours, as far as the process ran */
  readonly day: Sums
}

export interface Sums {
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

  /** @param now milliseconds since the epoch */
  constructor (now: () => number) {
    this.#now = now
  }

  /** Counts a request that is over. Those of strangers, who have no key, are left out. */
  record ({ key_id: key, outcome, code, by, nanos, usage, stream, first_byte_ms: first }: Ended): void {
    this.#total++
    if (key === undefined) return
    const at = this.#slot()
    const slots = this.#slots
    slots[at]!++
    if (outcome === 'failed' ? code !== 'client_closed' : outcome === 'interrupted' && by !== 'client') {
      slots[at + 1]!++
    }
    if (nanos !== undefined) slots[at + 2]! += Number(nanos)
    if (usage !== undefined) {
      slots[at + 3]! += usage.input + usage.cache_read + usage.cache_write_5m + usage.cache_write_1h
      slots[at + 4]! += usage.output
    }
    if (stream === true && outcome !== 'failed' && first !== undefined) {
      const bucket = BOUNDS_MS.findIndex((bound) => first <= bound)
      slots[at + FIRST + (bucket === -1 ? BOUNDS_MS.length : bucket)]!++
    }
  }

  view (): LatelyView {
    return { total: this.#total, now: this.#sum(NOW_SLOTS), day: this.#sum(SLOTS) }
  }

  /** The first number of the slot of this minute, which is empty when the minute is new. */
  #slot (): number {
    const minute = Math.floor(this.#now() / SLOT_MS)
    const slot = minute % SLOTS
    if (this.#minutes[slot] !== minute) {
      this.#minutes[slot] = minute
      this.#slots.fill(0, slot * WIDTH, (slot + 1) * WIDTH)
    }
    return slot * WIDTH
  }

  #sum (minutes: number): Sums {
    const last = Math.floor(this.#now() / SLOT_MS)
    const sums = new Array<number>(WIDTH).fill(0)
    for (let minute = last - minutes + 1; minute <= last; minute++) {
      const slot = minute % SLOTS
      if (this.#minutes[slot] !== minute) continue
      for (let i = 0; i < WIDTH; i++) sums[i]! += this.#slots[slot * WIDTH + i]!
    }
    const [requests = 0, errors = 0, nanos = 0, input = 0, output = 0] = sums
    return { requests, errors, nanos, input_tokens: input, output_tokens: output, first_token: sums.slice(FIRST) }
  }
}

/** Several processes added up. */
export function mergedLately (views: readonly LatelyView[]): LatelyView {
  return views.reduce((a, b) => ({ total: a.total + b.total, now: added(a.now, b.now), day: added(a.day, b.day) }))
}

function added (a: Sums, b: Sums): Sums {
  return { requests: a.requests + b.requests, errors: a.errors + b.errors, nanos: a.nanos + b.nanos,
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
