// A deadline for a whole answer, that rests while a slow client holds the answer back.

export class Deadline {
  readonly #ms: number
  readonly #onOver: () => void
  readonly #startedAt = performance.now()
  /** milliseconds of earlier rests */
  #rested = 0
  /** start of the present rest; undefined: it runs */
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

  /** Rests are only added up: a timer that checks again at its end costs less than one that is moved at each rest. */
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
