// How long an answer may take in all, but for the time that a slow client holds it back.

export class Deadline {
  readonly #ms: number
  readonly #onOver: () => void
  readonly #startedAt = performance.now()
  /** milliseconds that it rested, up to the last time */
  #rested = 0
  /** since when it rests; undefined: it runs */
  #restingSince: number | undefined
  #timer: NodeJS.Timeout

  /** @param ms at most @param onOver called once, unless it is stopped */
  constructor (ms: number, onOver: () => void) {
    this.#ms = ms
    this.#onOver = onOver
    this.#timer = this.#start(ms)
  }

  rest (): void {
    this.#restingSince ??= performance.now()
  }

  goOn (): void {
    if (this.#restingSince === undefined) return
    this.#rested += performance.now() - this.#restingSince
    this.#restingSince = undefined
  }

  stop (): void {
    clearTimeout(this.#timer)
  }

  /** Rests are only counted: a timer that is moved at each of them would cost more than one that looks again. */
  #start (ms: number): NodeJS.Timeout {
    return setTimeout(() => {
      const now = performance.now()
      const rested = this.#rested + (this.#restingSince === undefined ? 0 : now - this.#restingSince)
      const left = this.#ms - (now - this.#startedAt - rested)
      if (left < 1) this.#onOver()
      else this.#timer = this.#start(left)
    }, ms)
  }
}
