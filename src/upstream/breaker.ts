// Leaves a target alone that fails, and lets one request at a time find out whether it answers again. No timers: it is asked.
import type { BreakerConfig } from '../config/config.ts'
import { Recent } from './recent.ts'

export type BreakerState = 'closed' | 'open' | 'half_open'

/** Milliseconds after which somebody who finds a probe running may look again: nobody knows when it will be over. */
const PROBE_MS = 250

export class Breaker {
  readonly #recent = new Recent()
  /** how often in a row it was opened; 0: it is closed */
  #openings = 0
  /** milliseconds since the epoch, as every `now` here; never goes back (lesson 20) */
  #until = 0
  #isProbing = false
  /** Counts up with every change of state: what was sent in an earlier one says nothing of this one. */
  #term = 0

  state (now: number): BreakerState {
    if (this.#openings === 0) return 'closed'
    return now < this.#until ? 'open' : 'half_open'
  }

  /** Milliseconds until a request may go; 0: now. */
  wait (now: number): number {
    if (this.#openings === 0) return 0
    return now < this.#until ? this.#until - now : this.#isProbing ? PROBE_MS : 0
  }

  /** To be called where nothing is to be waited for. @returns the term, to be given back with what becomes of it */
  enter (): number {
    this.#isProbing = this.#openings > 0
    return this.#term
  }

  /** The answer has begun: a probe has shown enough, however long the rest of it takes. @returns the term from here on */
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

  /** @returns for how many milliseconds it is open now; undefined: it was not opened by this */
  fail (term: number, { failures, ratio, window, open, max_open: longest }: BreakerConfig, now: number): number | undefined {
    if (term !== this.#term) return undefined
    if (this.#openings === 0) {
      this.#recent.note(true, now)
      const { all, marked } = this.#recent.count(window, now)
      if (marked < failures || marked * 100 < all * ratio) return undefined
    }
    this.#until = Math.max(this.#until, now + Math.min(longest, open * 2 ** Math.min(this.#openings, 30)))
    this.#change(this.#openings + 1)
    return this.#until - now
  }

  /** It said nothing about the target: the next may be the probe. */
  leave (term: number): void {
    if (term === this.#term) this.#isProbing = false
  }

  /** What ended within the window, and how much of it failed. */
  count (window: number, now: number): { readonly all: number, readonly marked: number } {
    return this.#recent.count(window, now)
  }

  #change (openings: number): void {
    this.#openings = openings
    this.#isProbing = false
    this.#term++
  }
}
