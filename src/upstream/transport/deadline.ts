// A deadline for a whole answer, that rests while a slow client holds the answer back.
import { Alarm } from '../../base/wheel.ts'

export class Deadline<Of = unknown> extends Alarm<Of> {
  readonly #ms: number
  readonly #startedAt: number
  /** milliseconds of earlier rests */
  #rested = 0
  /** start of the present rest; undefined: it runs */
  #restingSince: number | undefined

  /**
   * @param ms at most
   * @param onOver called once, unless it is switched off
   * @param of what it is called with
   * @param now `performance.now()`
   */
  constructor (ms: number, onOver: (of: Of) => void, of?: Of, now = performance.now()) {
    super(onOver, of)
    this.#ms = ms
    this.#startedAt = Math.ceil(now)
    this.set(ms, this.#startedAt)
  }

  rest (): void {
    this.#restingSince ??= wholeNow()
  }

  goOn (): void {
    if (this.#restingSince === undefined) return
    this.#rested += wholeNow() - this.#restingSince
    this.#restingSince = undefined
  }

  /** Rests are only added up: looking again at the end costs less than moving the end at each rest. */
  protected override ring (): void {
    const now = wholeNow()
    const rested = this.#rested + (this.#restingSince === undefined ? 0 : now - this.#restingSince)
    const left = this.#ms - (now - this.#startedAt - rested)
    if (left < 1) super.ring()
    else this.set(left)
  }
}

/** As wheel.ts counts: a whole number needs no memory of its own. */
function wholeNow (): number {
  return Math.ceil(performance.now())
}
