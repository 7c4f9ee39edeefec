// A start while the store does not answer: the process stays, is not ready, and starts again with
// the file as it is then.
import { createServer } from 'node:http'
import type { Logger } from 'pino'
import type { Timer } from '../base/timer.ts'
import { bind } from '../http/server.ts'
import type { UnreachableError } from '../store/unreachable.ts'
import type { Reason } from './readiness.ts'

/** Milliseconds between two attempts. An attempt loads the configuration again. */
const PAUSE_MS = 2000
/** Milliseconds between two lines of the log. */
const REPEAT_MS = 60_000

const REASONS: readonly Reason[] = ['warming_up', 'store_away']

export interface StoreWaitOptions {
  readonly log: Pick<Logger, 'error' | 'info'>
  readonly timer: Timer
}

export class StoreWait {
  readonly #options: StoreWaitOptions
  readonly #server = createServer((req, res) => {
    const isAlive = req.url === '/healthz'
    res.writeHead(isAlive ? 200 : 503, { 'content-type': 'application/json', 'retry-after': '2' })
    res.end(JSON.stringify(isAlive ? { status: 'ok' } : { ready: false, reasons: REASONS }) + '\n')
  })

  #loggedAt = -Infinity

  constructor (options: StoreWaitOptions) {
    this.#options = options
  }

  /**
   * Answers health checks until `end`, and waits for the next attempt.
   * @param listen address of the admin listener; undefined: another process has it
   * @throws {Error} the address can't be bound
   */
  async next ({ message }: UnreachableError, listen: string | undefined): Promise<void> {
    if (performance.now() - this.#loggedAt >= REPEAT_MS) {
      this.#loggedAt = performance.now()
      this.#options.log.error({ err: message },
        'the store does not answer: nothing is served until it does. The start is repeated, with the configuration ' +
        'as it is then')
    }
    if (listen !== undefined && !this.#server.listening) await bind(this.#server, listen, 'server.admin.listen')
    await new Promise<void>((resolve) => { this.#options.timer(PAUSE_MS, resolve) })
  }

  async end (): Promise<void> {
    if (!this.#server.listening) return
    const closed = new Promise((resolve) => { this.#server.close(resolve) })
    this.#server.closeAllConnections()
    await closed
  }
}
