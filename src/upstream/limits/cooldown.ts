// Something that may not be used for a while, and for twice as long each time that it is no better then.

export class Aside {
  /** milliseconds since the epoch */
  #until = 0
  /** how often, without a success between them */
  #inARow = 0
  /** Counts up each time. Requests that ran beside each other hear the same no: that is one, not twenty. */
  #term = 0

  get term (): number {
    return this.#term
  }

  /** milliseconds; 0: it may be used */
  wait (now: number): number {
    return Math.max(0, this.#until - now)
  }

  /**
   * @param term that it had when the request was sent
   * @param times milliseconds
   * @param asked milliseconds that the upstream asks for; undefined: it does not say
   * @returns whether it is the first time since it worked
   */
  put (
    term: number,
    { first, longest }: { readonly first: number, readonly longest: number },
    now: number,
    asked?: number
  ): boolean {
    const isNew = term === this.#term
    if (isNew) {
      this.#term++
      this.#inARow++
    }
    const ms = asked ?? (isNew ? Math.min(longest, first * 2 ** Math.min(this.#inARow - 1, 30)) : 0)
    this.#until = Math.max(this.#until, now + ms)
    return isNew && this.#inARow === 1
  }

  /** It works. */
  reset (term: number): void {
    if (term === this.#term) this.#inARow = 0
  }
}
