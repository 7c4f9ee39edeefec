// How many of what happened within a sliding window were of the kind that is looked for. Whole seconds: a window of ten minutes is 600 numbers.

interface Second {
  /** seconds since the epoch */
  readonly at: number
  all: number
  marked: number
}

export class Recent {
  readonly #seconds: Second[] = []
  #all = 0
  #marked = 0

  /** @param now milliseconds since the epoch, as everywhere here */
  note (isMarked: boolean, now: number): void {
    const at = Math.floor(now / 1000)
    let last = this.#seconds.at(-1)
    // A clock that was set back goes on in the second that it had reached.
    if (last === undefined || last.at < at) this.#seconds.push(last = { at, all: 0, marked: 0 })
    last.all++
    this.#all++
    if (!isMarked) return
    last.marked++
    this.#marked++
  }

  /** @param window milliseconds, up to now */
  count (window: number, now: number): { readonly all: number, readonly marked: number } {
    const oldest = Math.floor(now / 1000) - Math.ceil(window / 1000)
    while (this.#seconds.length > 0 && this.#seconds[0]!.at <= oldest) {
      const { all, marked } = this.#seconds.shift()!
      this.#all -= all
      this.#marked -= marked
    }
    return { all: this.#all, marked: this.#marked }
  }

  clear (): void {
    this.#seconds.length = 0
    this.#all = this.#marked = 0
  }
}
