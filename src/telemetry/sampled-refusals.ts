// Refusals of strangers, who have no key: a line for the first of a kind in a second, and one for how many more there
// were. Metrics count every one; a line for each would let anybody fill the disk.
import type { Logger } from 'pino'

const WINDOW_MS = 1000

export class Refusals {
  readonly #log: Pick<Logger, 'info'>
  /** By kind, how many came after the first of this second. */
  readonly #more = new Map<string, { readonly about: object, count: number }>()
  #timer: NodeJS.Timeout | undefined

  constructor (log: Pick<Logger, 'info'>) {
    this.#log = log
  }

  /**
   * @param about what all of a kind have in common; there must be few
   * @param write writes the whole line
   */
  note (about: { readonly status: number, readonly code: string, readonly route?: string }, write: () => void): void {
    const kind = `${about.status} ${about.code} ${about.route ?? ''}`
    const known = this.#more.get(kind)
    if (known !== undefined) { known.count++; return }
    this.#more.set(kind, { about, count: 0 })
    this.#timer ??= setTimeout(() => { this.tell() }, WINDOW_MS).unref()
    write()
  }

  /** The second is over. Also at the end of the process: what was counted is told. */
  tell (): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    for (const { about, count } of this.#more.values()) {
      if (count > 0) this.#log.info({ ...about, count }, 'refused as well, within a second')
    }
    this.#more.clear()
  }
}
