// How long it waits until a worker that has ended is started again: not at all the first time, so that a crash costs
// nobody a request, then longer and longer, so that one that always crashes does not take the machine. Pure.

const FIRST_MS = 1000
const LONGEST_MS = 30_000
/** Who has worked for so long has recovered. */
const STEADY_MS = 60_000

export class Backoff {
  /** ends in a row */
  #ends = 0

  /**
   * @param workedMs how long it had worked; 0: it never began to
   * @returns milliseconds
   */
  next (workedMs: number): number {
    if (workedMs >= STEADY_MS) this.#ends = 0
    return this.#ends++ === 0 ? 0 : Math.min(LONGEST_MS, FIRST_MS * 2 ** (this.#ends - 2))
  }
}
