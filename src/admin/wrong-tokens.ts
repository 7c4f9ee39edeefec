// Requests to the admin listener with a wrong token: counted, logged, and answered late. At most 64 wait at a time, so
// that guesses over many connections take neither memory nor sockets: those beyond are answered at once and lose their
// connection. It does not slow guessing down, and need not: the length of the token is the protection. A request with
// the right token never waits.
import type { Services } from '../core/services.ts'
import { startTimer, type Timer } from '../base/timer.ts'

const WAIT_MS = 500
/** Most answers that wait at a time; one beyond is sent at once, and its connection closed. */
const MOST_WAITING = 64
const LOG_EVERY_MS = 1000

export class Strangers {
  readonly #services: Pick<Services, 'log' | 'metrics' | 'now'>
  readonly #timer: Timer
  #waiting = 0
  #loggedAt = -Infinity
  #unlogged = 0

  constructor (services: Pick<Services, 'log' | 'metrics' | 'now'>, timer: Timer = startTimer) {
    this.#services = services
    this.#timer = timer
  }

  /** Resolves when the request may be answered. @returns false: at once, because too many wait */
  async note (address: string, path: string): Promise<boolean> {
    const { log, metrics, now } = this.#services
    metrics.rejected('admin_token')
    if (now() - this.#loggedAt >= LOG_EVERY_MS) {
      log.warn({ address, path, ...(this.#unlogged > 0 && { more: this.#unlogged }) }, 'a wrong admin token')
      this.#loggedAt = now()
      this.#unlogged = 0
    } else {
      this.#unlogged++
    }
    if (this.#waiting >= MOST_WAITING) return false
    this.#waiting++
    await new Promise<void>((resolve) => { this.#timer(WAIT_MS, resolve) })
    this.#waiting--
    return true
  }
}
