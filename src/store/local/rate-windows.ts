// Counts requests so that no span of 60 seconds ever holds more than a limit, and holds slots for those that run: what
// the drivers that decide in memory share. Every call runs to its end without waiting, and changes nothing before its
// last check.
import type { Admission, AdmissionResult, WindowLimit, WindowState } from '../store.ts'

const SECOND = 1000
const MINUTE = 60 * SECOND

/**
 * All that came within one second of its first request. It counts until 60 seconds after its last: never one too many,
 * at most a second too late. Not until 60 seconds after its second's end: who fills a limit at the beginning of one
 * would wait for 61 seconds, and no client waits for more than 60 (src/README.md#retry-after).
 */
interface SubWindow {
  readonly first: number
  last: number
  count: number
}

/** One thing that is counted. All times are milliseconds of one clock that never goes back. */
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

  /** The newest of all. */
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

  /** Milliseconds until so many of the oldest no longer count. */
  #until (many: number, now: number): number {
    let left = many
    for (const { last, count } of this.#parts) {
      left -= count
      if (left <= 0) return last + MINUTE - now
    }
    return 0
  }
}

export class Windows {
  readonly #given: () => number
  readonly #now: () => number
  readonly #windows = new Map<string, Window>()
  /** how many there may be before those are looked for that count nothing any more */
  #most = 1024
  /** how many are taken, by name */
  readonly #slots = new Map<string, number>()
  /** the name of the slot, by request id */
  readonly #slotOf = new Map<string, string>()
  #fullUntil = 0

  /** @param now milliseconds since the epoch */
  constructor (now: () => number) {
    this.#given = now
    this.#now = steady(now)
  }

  /**
   * Every name is full until then, in milliseconds since the epoch: what was counted before is unknown, of each of
   * them.
   */
  fill (until: number): void {
    this.#fullUntil = this.#now() + until - this.#given()
  }

  /** All that counts, for `restore` after a restart: name, and the rest as `saveOne`. */
  save (): readonly (readonly [name: string, at: number, parts: string])[] {
    return [...this.#windows.keys()].map((name) => [name, ...this.saveOne(name)])
  }

  /** When that is, and first, last and count of each part, as JSON: milliseconds since the epoch, rounded up. */
  saveOne (name: string): readonly [at: number, parts: string] {
    const now = this.#now()
    const shift = this.#given() - now + 1
    return [now + shift, JSON.stringify(
      this.#of(name).partsAt(now).flatMap(({ first, last, count }) => [first + shift, last + shift, count])
    )]
  }

  /** What was counted before this process, by `saveOne`; and so many more that may have come in the time after it. */
  restore (name: string, at: number, parts: string, ahead: number, ms: number): void {
    const now = this.#now() // where the clock was set back meanwhile, nothing came later than now
    const all = JSON.parse(parts) as readonly number[]
    const put = (first: number, last: number, count: number): void => {
      this.#of(name).put({ first: Math.min(first, now), last: Math.min(last, now), count })
    }
    for (let i = 0; i < all.length; i += 3) { put(all[i]!, all[i + 1]!, all[i + 2]!) }
    if (ahead > 0) put(at, at + ms, ahead)
  }

  /** how many things are counted at present, or have been a while ago */
  get size (): number {
    return this.#windows.size
  }

  admit (admission: Admission): AdmissionResult {
    const now = this.#now()
    const result = this.#judge(admission, now)
    if (result.kind === 'refused') return result
    const { request_id: id, windows: limits, slot } = admission
    if (slot !== undefined) {
      this.#slots.set(slot.name, (this.#slots.get(slot.name) ?? 0) + 1)
      this.#slotOf.set(id, slot.name)
    }
    for (const { name } of limits) this.#of(name).add(now)
    return { kind: 'admitted', windows: limits.map((limit) => this.#stateOf(limit, now)) }
  }

  /** What `admit` would answer: counts nothing. */
  wouldAdmit (admission: Admission): AdmissionResult {
    return this.#judge(admission, this.#now())
  }

  #judge ({ request_id: id, windows: limits, slot }: Admission, now: number): AdmissionResult {
    if (slot !== undefined && this.#slotOf.has(id)) throw new Error(`the request ${id} has a slot already`)
    if (this.#windows.size >= this.#most) this.#forget(now)   // here, where none of them is about to count
    const before = limits.map((limit) => this.#stateOf(limit, now))
    const full = before.filter(({ remaining }) => remaining === 0)
    if (full.length > 0) {
      const { name } = full.reduce((one, other) => other.next_ms > one.next_ms ? other : one)
      return { kind: 'refused', by: 'window', name, windows: before }
    }
    if (slot !== undefined) {
      const taken = this.#slots.get(slot.name) ?? 0
      if (taken >= slot.limit) return { kind: 'refused', by: 'slot', name: slot.name, taken, windows: before }
    }
    return { kind: 'admitted', windows: before }
  }

  leave (requestId: string): void {
    const name = this.#slotOf.get(requestId)
    if (name === undefined) return
    this.#slotOf.delete(requestId)
    const taken = this.#slots.get(name)! - 1
    if (taken === 0) this.#slots.delete(name)
    else this.#slots.set(name, taken)
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

  #forget (now: number): void {
    for (const [name, window] of this.#windows) if (window.countAt(now) === 0) this.#windows.delete(name)
    this.#most = Math.max(1024, this.#windows.size * 2)
  }
}

/**
 * A clock that never goes back, near the given one. The machine's own is read where nobody sets it: a step forward
 * would empty the windows. Another clock counts as far as it goes forward, and stands while it goes back: windows would
 * not open for an hour otherwise.
 */
export function steady (now: () => number): () => number {
  if (now === Date.now) {
    const start = Date.now() - performance.now()
    return () => Math.floor(start + performance.now())
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
