// Keeps a thread alive that counts tokens. Loading, dead or hanging, nobody waits for it: what it can't count is estimated.
import type { Logger } from 'pino'
import { TokensThread } from './tokens-thread.ts'

/** Before the next life; twice as long after each that did not even load. */
const RESTART_MS = 1000
const LONGEST_RESTART_MS = 60_000

export class Tokens {
  readonly #log: Logger
  readonly #url: URL | undefined
  #thread: TokensThread | undefined
  #restart: NodeJS.Timeout | undefined
  #delay = RESTART_MS

  /** @param url another file for the thread to run, for tests */
  constructor (log: Logger, url?: URL) {
    this.#log = log
    this.#url = url
  }

  /** Undefined while there is none. */
  get thread (): TokensThread | undefined {
    return this.#thread
  }

  /** Until the thread counts, or can't: 200 ms, 10 s at most. Never throws. */
  async start (): Promise<void> {
    await new Promise<void>((resolve) => { this.#start(resolve) })
  }

  async end (): Promise<void> {
    clearTimeout(this.#restart)
    await this.#thread?.end()
    this.#thread = undefined
  }

  #start (onStarted: () => void): void {
    const onReady = (): void => {
      this.#delay = RESTART_MS
      onStarted()
    }
    const onBusy = (): void => {
      this.#log.warn('text comes faster than the thread that counts tokens can count it: what some cut answers produced is estimated')
    }
    const onDeath = (err: unknown): void => {
      this.#thread = undefined
      this.#log.error({ err }, 'the thread that counts tokens died: until there is another, what cut answers produced is estimated')
      this.#restart = setTimeout(() => { this.#start(() => {}) }, this.#delay).unref()
      this.#delay = Math.min(this.#delay * 2, LONGEST_RESTART_MS)
      onStarted()
    }
    try {
      this.#thread = new TokensThread({ onReady, onBusy, onDeath }, this.#url)
    } catch (thrown) {
      onDeath(thrown)
    }
  }
}
