// Output that nobody is shown but that its vendor counts, such as reasoning. Learned from whole answers, for each model
// of each upstream, to estimate an answer whose client left and whose upstream did not report its usage in time.
import { PerCounter, type Counter } from './counter.ts'

/** Fewest tokens of an answer that is learned from: in shorter ones the frame and the rounding dominate. */
const LEAST_TOKENS = 32
/** Share of what was learned that a new answer leaves: about eight answers count. */
const KEPT = 7 / 8
/** Most accounts of a target that are kept; beyond them the one first seen is dropped. */
const ACCOUNTS = 1000
/** Most modes of a target: clients name them. */
const MODES = 20
/** Accounts that must have reports before others are charged by them. */
const WITNESSES = 2

/** Sums of an account's answers, newer ones with more weight. */
class Habit {
  #visible = 0
  #hidden = 0
  #answers = 0

  learn (visible: number, hidden: number): void {
    this.#visible = this.#visible * KEPT + visible
    this.#hidden = this.#hidden * KEPT + hidden
    this.#answers = this.#answers * KEPT + 1
  }

  /** By the visible part, so a client that leaves early pays little; at most what an answer has on average. */
  of (visible: number): number {
    return Math.min(visible * this.#hidden / Math.max(this.#visible, 1), this.#hidden / this.#answers)
  }
}

export class HiddenOutput {
  readonly #learned = new PerCounter<Map<string, Map<string, Habit>>>()

  /**
   * @param mode how much the request has the model think: answers of other modes say nothing of it
   * @param visible tokens of a whole answer that its client was shown, by estimate
   * @param hidden the others that its provider reports
   */
  learn (counter: Counter, mode: string, account: string, visible: number, hidden: number): void {
    if (visible + hidden < LEAST_TOKENS) return
    let modes = this.#learned.get(counter)
    if (modes === undefined) this.#learned.set(counter, modes = new Map())
    let accounts = modes.get(mode)
    if (accounts === undefined) {
      if (modes.size === MODES) return
      modes.set(mode, accounts = new Map())
    }
    let habit = accounts.get(account)
    if (habit === undefined) {
      if (accounts.size === ACCOUNTS) for (const first of accounts.keys()) { accounts.delete(first); break }
      accounts.set(account, habit = new Habit())
    }
    habit.learn(visible, hidden)
  }

  /**
   * Tokens that belong to so many visible ones: by the account's own answers, otherwise by the median of the others, so
   * that no account can raise what others are charged.
   */
  of (counter: Counter, mode: string, account: string, visible: number): number {
    const accounts = this.#learned.get(counter)?.get(mode)
    const own = accounts?.get(account)
    if (own !== undefined) return Math.round(own.of(visible))
    if (accounts === undefined || accounts.size < WITNESSES) return 0
    const all = [...accounts.values()].map((habit) => habit.of(visible)).toSorted((a, b) => a - b)
    return Math.round(all[(all.length - 1) >> 1]!)
  }
}
