// Log lines for refused requests without a key, sampled: a line for the first of a kind in a second, and one for the
// number of the others. Metrics count every one; with a line for each, any client could fill the disk.
import type { Logger } from 'pino'

const WINDOW_MS = 1000

export class Refusals {
  readonly #log: Pick<Logger, 'info'>
  /** number of refusals after the first of this second, by kind */
  readonly #more = new Map<string, { readonly about: object, count: number }>()
  #timer: NodeJS.Timeout | undefined

  constructor (log: Pick<Logger, 'info'>) {
    this.#log = log
  }

  /**
   * @param about the fields of a kind; there must be few kinds
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

  /** Writes the numbers at the end of a second, and at the end of the process. */
  tell (): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    for (const { about, count } of this.#more.values()) {
      if (count > 0) this.#log.info({ ...about, count }, 'refused as well, within a second')
    }
    this.#more.clear()
  }
}
