// The pause before an ended worker is started again: none the first time, so that a crash costs no request, then longer
// and longer, so that a worker that always crashes does not take the machine. Pure.

const FIRST_MS = 1000
const LONGEST_MS = 30_000
/** Milliseconds of work after which a worker has recovered. */
const STEADY_MS = 60_000

export class Backoff {
  /** ends in a row */
  #ends = 0

  /**
   * @param workedMs how long the worker had worked; 0: it had not started
   * @returns milliseconds
   */
  next (workedMs: number): number {
    if (workedMs >= STEADY_MS) this.#ends = 0
    return this.#ends++ === 0 ? 0 : Math.min(LONGEST_MS, FIRST_MS * 2 ** (this.#ends - 2))
  }
}
