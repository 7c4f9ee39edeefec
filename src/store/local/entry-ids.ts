// Numbers and times of entries: both only grow, whatever the clock does, and over restarts. Together they are an
// entry's id.
export class Sequence {
  readonly #now: () => number
  #last: number
  #time: number

  /**
   * @param now milliseconds since the epoch
   * @param after the last number and time that were used before this process
   */
  constructor (now: () => number, after = { seq: -1, time: 0 }) {
    this.#now = now
    this.#last = after.seq
    this.#time = after.time
  }

  /** The number of the next entry; its time is then `time`. */
  next (): number {
    // A clock that is set back must not disorder the ledger.
    this.#time = Math.max(this.#time, this.#now())
    return ++this.#last
  }

  get time (): number {
    return this.#time
  }
}

/** Sorts as text in the order of writing: 9 digits of the time, 8 of the number, in base 36. */
export function entryId (seq: number, time: number): string {
  return time.toString(36).padStart(9, '0') + seq.toString(36).padStart(8, '0')
}

/** The number in an entry's id. */
export function seqOf (id: string): number {
  return parseInt(id.slice(9), 36)
}
