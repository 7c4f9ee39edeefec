// A cooldown with exponential backoff: a credential is not used for a while, and for twice as long after each further
// refusal.

export class Cooldown {
  /** milliseconds since the epoch */
  #until = 0
  /** refusals in a row, without a success between them */
  #inARow = 0
  /** Counts refusals. Parallel requests get the same refusal: that is one, not twenty. */
  #term = 0

  get term (): number {
    return this.#term
  }

  /** Milliseconds until the end of the cooldown; 0: none. */
  wait (now: number): number {
    return Math.max(0, this.#until - now)
  }

  /**
   * @param term the term when the request was sent
   * @param times milliseconds
   * @param asked milliseconds of the upstream's retry-after; undefined: it sent none
   * @returns whether it is the first refusal since a success
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

  /** Ends the cooldown after a success. */
  reset (term: number): void {
    if (term === this.#term) this.#inARow = 0
  }
}
