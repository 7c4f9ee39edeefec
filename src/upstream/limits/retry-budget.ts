// How much an upstream may be asked again: a share of what it is asked, so that an outage is not multiplied by all who
// try again.
import type { RetriesConfig } from '../../config/config.ts'
import { Recent } from './sliding-window.ts'

const WINDOW_MS = 10_000
/** Repetitions in a window that little traffic may have too: a share of nine requests would be none. */
const FLOOR = 10

export class RetryBudget {
  /** what was sent; repetitions are marked */
  readonly #recent = new Recent()

  /** A request is sent for the first time. @param now milliseconds since the epoch */
  deposit (now: number): void {
    this.#recent.note(false, now)
  }

  /** Whether one may be sent again; counts it if so. */
  take ({ budget }: RetriesConfig, now: number): boolean {
    const { all, marked } = this.#recent.count(WINDOW_MS, now)
    const most = budget === 0 ? 0 : Math.max(FLOOR, (all - marked) * budget / 100)
    if (marked >= most) return false
    this.#recent.note(true, now)
    return true
  }
}
