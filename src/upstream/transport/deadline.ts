// A deadline for a whole answer, that rests while a slow client holds the answer back.
import { Alarm } from '../../base/wheel.ts'

export class Deadline {
  readonly #ms: number
  readonly #startedAt = performance.now()
  /** milliseconds of earlier rests */
  #rested = 0
  /** start of the present rest; undefined: it runs */
  #restingSince: number | undefined
  readonly #alarm: Alarm

  /** @param ms at most @param onOver called once, unless it is stopped */
  constructor (ms: number, onOver: () => void) {
    this.#ms = ms
    // Rests are only added up: looking again at the end costs less than moving the end at each rest.
    this.#alarm = new Alarm(() => {
      const left = this.#left
      if (left < 1) onOver()
      else this.#alarm.set(left)
    })
    this.#alarm.set(ms)
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
    this.#alarm.off()
  }

  get #left (): number {
    const now = performance.now()
    const rested = this.#rested + (this.#restingSince === undefined ? 0 : now - this.#restingSince)
    return this.#ms - (now - this.#startedAt - rested)
  }
}
