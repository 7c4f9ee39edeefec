// A retry budget: repetitions are limited to a share of an upstream's requests, so that retries do not multiply an
// outage.
import type { RetriesConfig } from '../../config/config.ts'
import { SlidingWindow } from './sliding-window.ts'

const WINDOW_MS = 10_000
/** Repetitions that little traffic may have in a window too: a share of nine requests would be none. */
const FLOOR = 10

export class RetryBudget {
  /** requests that were sent; repetitions are marked */
  readonly #recent = new SlidingWindow()

  /** Counts a first attempt. @param now milliseconds since the epoch */
  deposit (now: number): void {
    this.#recent.note(false, now)
  }

  /** Whether the budget allows one more repetition; counts it if so. */
  take ({ budget }: RetriesConfig, now: number): boolean {
    const { all, marked } = this.#recent.count(WINDOW_MS, now)
    const most = budget === 0 ? 0 : Math.max(FLOOR, (all - marked) * budget / 100)
    if (marked >= most) return false
    this.#recent.note(true, now)
    return true
  }
}
