// Leaves a target alone that fails, and lets one request at a time find out whether it answers again. No timers: it is
// asked.
import type { BreakerConfig } from '../../config/config.ts'
import { Recent } from './sliding-window.ts'

export type BreakerState = 'closed' | 'open' | 'half_open'

/** Milliseconds after which somebody who finds a probe running may look again: nobody knows when it will be over. */
const LOOK_MS = 250

export class Breaker {
  readonly #recent = new Recent()
  /** how often in a row it was opened; 0: it is closed */
  #openings = 0
  /** milliseconds since the epoch, as every `now` here; never goes back (src/README.md#retry-time-grows) */
  #until = 0
  /** how long it is open the first time, in milliseconds */
  #open = 0
  /** until when the probe that runs is the only one; 0: none runs */
  #probeUntil = 0
  /** Counts up with every change of state: what was sent in an earlier one says nothing of this one. */
  #term = 0

  state (now: number): BreakerState {
    if (this.#openings === 0) return 'closed'
    return now < this.#until ? 'open' : 'half_open'
  }

  /** Milliseconds until a request may go, at the latest; 0: now. */
  recovery (now: number): number {
    return this.#openings === 0 ? 0 : Math.max(0, this.#until - now, this.#probeUntil - now)
  }

  /** The same, but soon while a probe runs: it may be over at any time. */
  wait (now: number): number {
    const recovery = this.recovery(now)
    return now < this.#until ? recovery : Math.min(LOOK_MS, recovery)
  }

  /**
   * To be called where nothing is to be waited for. A long answer may be a minute's work: the next probe goes while it
   * runs.
   * @returns the term, to be given back with what becomes of it
   */
  enter (now: number): number {
    if (this.#openings > 0) this.#probeUntil = now + this.#open
    return this.#term
  }

  /**
   * The answer has begun: a probe has shown enough, however long the rest of it takes.
   * @returns the term from here on
   */
  begin (term: number): number {
    if (term !== this.#term || this.#openings === 0) return term
    this.#change(0)
    this.#recent.clear()
    return this.#term
  }

  succeed (term: number, now: number): void {
    const current = this.begin(term)
    if (current === this.#term) this.#recent.note(false, now)
  }

  /**
   * @param isNews false: of a request that has failed here before; only of a probe that says something
   * @returns for how many milliseconds it is open now; undefined: it was not opened by this
   */
  fail (
    term: number,
    { failures, ratio, window, open, max_open: longest }: BreakerConfig,
    now: number,
    isNews = true
  ): number | undefined {
    if (term !== this.#term) return undefined
    if (this.#openings === 0) {
      if (!isNews) return undefined
      this.#recent.note(true, now)
      const { all, marked } = this.#recent.count(window, now)
      if (marked < failures || marked * 100 < all * ratio) return undefined
    }
    this.#open = open
    this.#until = Math.max(this.#until, now + Math.min(longest, open * 2 ** Math.min(this.#openings, 30)))
    this.#change(this.#openings + 1)
    return this.#until - now
  }

  /** It said nothing about the target: the next may be the probe. */
  leave (term: number): void {
    if (term === this.#term) this.#probeUntil = 0
  }

  /** What ended within the window, and how much of it failed. */
  count (window: number, now: number): { readonly all: number, readonly marked: number } {
    return this.#recent.count(window, now)
  }

  #change (openings: number): void {
    this.#openings = openings
    this.#probeUntil = 0
    this.#term++
  }
}
