// A circuit breaker: keeps requests from a failing target, and lets one probe at a time find out whether it has
// recovered. No timers: its state is computed when it is asked.
import type { BreakerConfig } from '../../config/config.ts'
import { SlidingWindow } from './sliding-window.ts'

export type BreakerState = 'closed' | 'open' | 'half_open'

/**
 * Milliseconds after which a request that finds a probe running may check again: the probe's end is not known in
 * advance.
 */
export const LOOK_MS = 250

export class Breaker {
  readonly #recent = new SlidingWindow()
  /** times in a row that it was opened; 0: closed */
  #openings = 0
  /** milliseconds since the epoch, as every `now` here; never goes back (src/README.md#retry-time-grows) */
  #until = 0
  /** milliseconds that it is open the first time */
  #open = 0
  /** end of the running probe's exclusive time; 0: none runs */
  #probeUntil = 0
  /** Counts changes of state: the result of a request from an earlier term says nothing about this one. */
  #term = 0

  state (now: number): BreakerState {
    if (this.#openings === 0) return 'closed'
    return now < this.#until ? 'open' : 'half_open'
  }

  /** An upper bound of the milliseconds until a request may go; 0: now. */
  recovery (now: number): number {
    return this.#openings === 0 ? 0 : Math.max(0, this.#until - now, this.#probeUntil - now)
  }

  /** As `recovery`, but short while a probe runs: it may end at any time. */
  wait (now: number): number {
    const recovery = this.recovery(now)
    return now < this.#until ? recovery : Math.min(LOOK_MS, recovery)
  }

  /**
   * Begins a request, or the probe; only when `wait` is 0. A probe is exclusive for `open` only, because a long answer
   * may take minutes: the next probe goes while it runs.
   * @returns the term, to be passed with the result
   */
  enter (now: number): number {
    if (this.#openings > 0) this.#probeUntil = now + this.#open
    return this.#term
  }

  /**
   * The answer has begun, which is enough to close it after a probe, however long the rest takes.
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
   * @param isNews false: this request has failed here before, so the failure counts only for a probe
   * @returns milliseconds that it is open now; undefined: this failure did not open it
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

  /** A request that ended without a verdict on the target: the next one may be the probe. */
  leave (term: number): void {
    if (term === this.#term) this.#probeUntil = 0
  }

  /** Requests that ended within the window, and how many of them failed. */
  count (window: number, now: number): { readonly all: number, readonly marked: number } {
    return this.#recent.count(window, now)
  }

  #change (openings: number): void {
    this.#openings = openings
    this.#probeUntil = 0
    this.#term++
  }
}
