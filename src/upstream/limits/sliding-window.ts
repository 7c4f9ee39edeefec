// Counts events within a sliding window, and how many of them were marked. By whole seconds: a window of ten minutes is
// 600 numbers.

interface Second {
  /** seconds since the epoch */
  readonly at: number
  all: number
  marked: number
}

/** Seconds that are kept: the longest window of a breaker. Bounds the memory of a window that is never read. */
const KEPT = 600

export class SlidingWindow {
  readonly #seconds: Second[] = []
  #all = 0
  #marked = 0

  /** @param now milliseconds since the epoch, as everywhere here */
  note (isMarked: boolean, now: number): void {
    const at = Math.floor(now / 1000)
    let last = this.#seconds.at(-1)
    // After a clock was set back, the latest second goes on.
    if (last === undefined || last.at < at) {
      this.#drop(at - KEPT)
      this.#seconds.push(last = { at, all: 0, marked: 0 })
    }
    last.all++
    this.#all++
    if (!isMarked) return
    last.marked++
    this.#marked++
  }

  /** @param window milliseconds, up to now */
  count (window: number, now: number): { readonly all: number, readonly marked: number } {
    this.#drop(Math.floor(now / 1000) - Math.ceil(window / 1000))
    return { all: this.#all, marked: this.#marked }
  }

  clear (): void {
    this.#seconds.length = 0
    this.#all = this.#marked = 0
  }

  /** @param until last second to be dropped */
  #drop (until: number): void {
    while (this.#seconds.length > 0 && this.#seconds[0]!.at <= until) {
      const { all, marked } = this.#seconds.shift()!
      this.#all -= all
      this.#marked -= marked
    }
  }
}
