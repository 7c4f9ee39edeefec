// Rate windows and concurrency slots, in memory: no span of 60 seconds ever holds more requests than a limit. Shared by
// the drivers that decide in memory. Every call runs to its end without waiting, and changes nothing before its last
// check.
import { isMachineClock, timeOfStep } from '../../base/end-of-turn.ts'
import { IdTable } from '../../base/id-table.ts'
import type { Admission, AdmissionResult, WindowLimit, WindowState } from '../store.ts'

const SECOND = 1000
const MINUTE = 60 * SECOND

/**
 * The requests within one second of its first one. It counts until 60 seconds after its last request: never one too
 * many, at most a second too late. Counted until 60 seconds after its second's end, a client that fills a limit at the
 * beginning of a second would wait for 61 seconds, and no client waits for more than 60 (src/README.md#retry-after).
 */
interface SubWindow {
  readonly first: number
  last: number
  count: number
}

/** The requests of one name. All times are milliseconds of a steady clock. */
class Window {
  /** oldest first; at most 61, whatever the limit */
  readonly #parts: SubWindow[] = []
  #count = 0

  countAt (now: number): number {
    for (let oldest = this.#parts[0]; oldest !== undefined && oldest.last + MINUTE <= now; oldest = this.#parts[0]) {
      this.#count -= oldest.count
      this.#parts.shift()
    }
    return this.#count
  }

  add (now: number): void {
    this.#count++
    const newest = this.#parts.at(-1)
    if (newest === undefined || now - newest.first >= SECOND) {
      this.#parts.push({ first: now, last: now, count: 1 })
      return
    }
    newest.last = now
    newest.count++
  }

  partsAt (now: number): readonly Readonly<SubWindow>[] {
    this.countAt(now)
    return this.#parts
  }

  /** Appends a part that is newer than all others. */
  put (part: SubWindow): void {
    this.#parts.push(part)
    this.#count += part.count
  }

  stateAt (now: number, { name, limit }: WindowLimit): WindowState {
    const count = this.countAt(now)
    const newest = this.#parts.at(-1)
    return {
      name,
      limit,
      remaining: Math.max(0, limit - count),
      next_ms: this.#until(Math.max(1, count - limit + 1), now),
      reset_ms: newest === undefined ? 0 : newest.last + MINUTE - now
    }
  }

  /** Milliseconds until the oldest `many` requests no longer count. */
  #until (many: number, now: number): number {
    let left = many
    for (const { last, count } of this.#parts) {
      left -= count
      if (left <= 0) return last + MINUTE - now
    }
    return 0
  }
}

/** Those that requests have of one name. */
interface Slots {
  taken: number
}

export class Windows {
  readonly #given: () => number
  readonly #now: () => number
  readonly #windows = new Map<string, Window>()
  /** windows and slots from which on those that count nothing are looked for */
  #most = 1024
  /** by name */
  readonly #slots = new Map<string, Slots>()
  /** where a request has one of them, by its id */
  readonly #slotsOf = new IdTable<Slots>()
  #fullUntil = 0

  /** @param now milliseconds since the epoch */
  constructor (now: () => number) {
    this.#given = now
    this.#now = steady(now)
  }

  /**
   * Makes every name full until `until`, in milliseconds since the epoch: after a start without knowledge of what was
   * counted.
   */
  fill (until: number): void {
    this.#fullUntil = this.#now() + until - this.#given()
  }

  /** All windows for `restore` after a restart: name, and the rest as `saveOne`. */
  save (): readonly (readonly [name: string, at: number, parts: string])[] {
    return [...this.#windows.keys()].map((name) => [name, ...this.saveOne(name)])
  }

  /**
   * One window: when it was saved, and first, last and count of each part, as JSON; milliseconds since the epoch,
   * rounded up.
   */
  saveOne (name: string): readonly [at: number, parts: string] {
    const now = this.#now()
    const shift = this.#given() - now + 1
    return [now + shift, JSON.stringify(
      this.#of(name).partsAt(now).flatMap(({ first, last, count }) => [first + shift, last + shift, count])
    )]
  }

  /**
   * Restores a window of an earlier process, as saved by `saveOne`, and counts `ahead` more requests that may have come
   * in the `ms` after it.
   */
  restore (name: string, at: number, parts: string, ahead: number, ms: number): void {
    const now = this.#now() // where the clock was set back meanwhile, nothing came later than now
    const all = JSON.parse(parts) as readonly number[]
    const put = (first: number, last: number, count: number): void => {
      this.#of(name).put({ first: Math.min(first, now), last: Math.min(last, now), count })
    }
    for (let i = 0; i < all.length; i += 3) { put(all[i]!, all[i + 1]!, all[i + 2]!) }
    if (ahead > 0) put(at, at + ms, ahead)
  }

  /** names that count requests at present, or did until lately */
  get size (): number {
    return this.#windows.size
  }

  admit (admission: Admission): AdmissionResult {
    const now = this.#now()
    const refused = this.#refuse(admission, now)
    if (refused !== undefined) return refused
    const { request_id: id, windows: limits, slot } = admission
    if (slot !== undefined) {
      const slots = this.#slotsFor(slot.name)
      slots.taken++
      this.#slotsOf.set(id, slots)
    }
    for (const { name } of limits) this.#of(name).add(now)
    return { kind: 'admitted', windows: this.#statesOf(limits, now) }
  }

  /** The result that `admit` would have. Counts nothing. */
  wouldAdmit (admission: Admission): AdmissionResult {
    const now = this.#now()
    return this.#refuse(admission, now) ?? { kind: 'admitted', windows: this.#statesOf(admission.windows, now) }
  }

  /** Undefined: the request can be admitted. */
  #refuse ({ request_id: id, windows: limits, slot }: Admission, now: number): AdmissionResult | undefined {
    if (slot !== undefined && this.#slotsOf.has(id)) throw new Error(`the request ${id} has a slot already`)
    // Here, where none of them is about to count.
    if (this.#windows.size + this.#slots.size >= this.#most) this.#forget(now)
    if (this.#isAnyFull(limits, now)) {
      const windows = this.#statesOf(limits, now)
      const { name } = windows.filter(({ remaining }) => remaining === 0)
        .reduce((one, other) => other.next_ms > one.next_ms ? other : one)
      return { kind: 'refused', by: 'window', name, windows }
    }
    if (slot === undefined) return undefined
    const taken = this.#slots.get(slot.name)?.taken ?? 0
    if (taken < slot.limit) return undefined
    return { kind: 'refused', by: 'slot', name: slot.name, taken, windows: this.#statesOf(limits, now) }
  }

  leave (requestId: string): void {
    const slots = this.#slotsOf.delete(requestId)
    if (slots !== undefined) slots.taken--
  }

  #isAnyFull (limits: readonly WindowLimit[], now: number): boolean {
    for (const { name, limit } of limits) {
      if (now < this.#fullUntil || this.#of(name).countAt(now) >= limit) return true
    }
    return false
  }

  #statesOf (limits: readonly WindowLimit[], now: number): WindowState[] {
    const states: WindowState[] = new Array(limits.length)
    for (let i = 0; i < limits.length; i++) states[i] = this.#stateOf(limits[i]!, now)
    return states
  }

  #stateOf (limit: WindowLimit, now: number): WindowState {
    const state = this.#of(limit.name).stateAt(now, limit)
    const left = this.#fullUntil - now
    if (left <= 0) return state
    return { ...state, remaining: 0, next_ms: Math.max(state.next_ms, left), reset_ms: Math.max(state.reset_ms, left) }
  }

  #of (name: string): Window {
    let window = this.#windows.get(name)
    if (window === undefined) this.#windows.set(name, window = new Window())
    return window
  }

  #slotsFor (name: string): Slots {
    let slots = this.#slots.get(name)
    if (slots === undefined) this.#slots.set(name, slots = { taken: 0 })
    return slots
  }

  #forget (now: number): void {
    for (const [name, window] of this.#windows) if (window.countAt(now) === 0) this.#windows.delete(name)
    for (const [name, { taken }] of this.#slots) if (taken === 0) this.#slots.delete(name)
    this.#most = Math.max(1024, (this.#windows.size + this.#slots.size) * 2)
  }
}

/**
 * A steady clock: it never goes back, and stays near the given one. Where that is the machine's, the time elapsed is
 * counted, because a step forward of the machine's time would empty the windows. Another clock is followed as far as it
 * goes forward, and stands while it goes back: windows would not open for an hour otherwise.
 */
export function steady (now: () => number): () => number {
  if (isMachineClock(now)) {
    const start = Date.now() - performance.now()
    return () => Math.floor(start + timeOfStep())
  }
  let last: number | undefined
  let time = 0
  return () => {
    const current = now()
    time += last === undefined ? current : Math.max(0, current - last)
    last = current
    return time
  }
}
