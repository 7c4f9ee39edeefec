// The end of a serving process: by a signal, or by an uncaught error. It ends in any case, within `drain_delay` and
// `drain_timeout`.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Worker } from 'node:worker_threads'
import type { Logger } from 'pino'
import { drainTimes } from '../config/drain-times.ts'
import type { LogOutput } from '../telemetry/log-output.ts'
import type { Gateway } from './gateway.ts'

/** Signals within so many milliseconds are one. */
const SAME_SIGNAL_MS = 500
/** Milliseconds for the last lines of the log, where no gateway has started. */
const LOG_MS = 1000

export interface EndingOptions {
  /** its primary kills it a little later */
  readonly isWorker?: boolean
  /** Ends the process where `process.exit` would wait for a thread; for tests. */
  readonly kill?: () => void
}

export class Ending {
  readonly #log: Logger
  readonly #output: LogOutput
  readonly #options: EndingOptions
  readonly #over = Promise.withResolvers<void>()
  readonly #threads = new Set<Worker>()
  #gateway: Gateway | undefined
  #isDraining = false
  /** of the process, by `performance.now()`; undefined: it is not to end yet */
  #endAt: number | undefined
  #deadline: NodeJS.Timeout | undefined
  #code = 0

  constructor (log: Logger, output: LogOutput, options: EndingOptions = {}) {
    this.#log = log
    this.#output = output
    this.#options = options
    // Standard error may be closed.
    process.stderr.on('error', () => {})
    process.on('worker', (thread) => {
      this.#threads.add(thread)
      thread.once('exit', () => { this.#threads.delete(thread) })
    })
    // Node's own handlers would open a debugger, and end the process.
    for (const signal of ['SIGUSR1', 'SIGUSR2'] as const) process.on(signal, () => {})
    // Rejections of promises without a handler, too.
    process.on('uncaughtException', (err, origin) => { this.#fail(err, origin) })
  }

  /** @returns the started gateway; undefined: an error ended the process meanwhile @throws the error of the start */
  async of (starting: Promise<Gateway>): Promise<Gateway | undefined> {
    return this.#gateway = await Promise.race([starting, this.#over.promise.then(() => undefined)])
  }

  /** Handles signals from now on. */
  hearSignals (): void {
    let first: { readonly signal: string, readonly at: number } | undefined
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        if (first !== undefined) {
          // A second signal exits at once. But npm forwards a Ctrl-C that the terminal has sent to this process
          // already.
          if (signal === first.signal && performance.now() - first.at < SAME_SIGNAL_MS) return
          void this.#endThreads(SAME_SIGNAL_MS).then((stuck) => { stuck === 0 ? process.exit(1) : this.#kill() })
          return
        }
        first = { signal, at: performance.now() }
        this.#log.info({ signal }, 'draining')
        this.drain()
      })
    }
  }

  drain (isUrgent = false): void {
    if (this.#isDraining) return
    this.#isDraining = true
    const gateway = this.#gateway
    if (gateway === undefined) { this.#over.resolve(); return }
    const times = drainTimes(gateway.live.current().config.server, isUrgent)
    const [giveUp, end] = this.#options.isWorker === true ? [times.giveUpWorker, times.killWorkers]
      : [times.giveUp, times.end]
    this.#endAt = performance.now() + end
    this.#deadline = setTimeout(() => { this.#giveUp(gateway) }, giveUp)
    gateway.drain(isUrgent).then(this.#over.resolve, (err: unknown) => {
      this.#log.error({ err }, 'the drain failed')
      this.#code = 1
      this.#over.resolve()
    })
  }

  /** What is recorded is on the disk or in the outbox by then: the next start goes on from there, as after a kill. */
  #giveUp (gateway: Gateway): void {
    this.#log.fatal({ waits_for: gateway.waitsFor() },
      'the drain did not end in time: the process ends without the part that does not answer')
    this.#code = 1
    this.#over.resolve()
  }

  /** Waits for the end, and for the log as far as its reader takes it. @returns the exit code */
  async wait (): Promise<number> {
    await this.#over.promise
    clearTimeout(this.#deadline)
    const stuck = await this.#endThreads(this.#leftMs / 2)
    if (stuck > 0) this.#log.fatal({ threads: stuck }, 'a thread does not end: the process is killed')
    await this.#output.end(this.#leftMs)
    if (stuck > 0) this.#kill()
    return this.#code
  }

  get #leftMs (): number {
    return this.#endAt === undefined ? LOG_MS : Math.max(0, this.#endAt - performance.now())
  }

  /**
   * `process.exit` waits for all threads, and nothing stops one that is in native code.
   * @param ms the longest wait
   * @returns threads that have not ended
   */
  async #endThreads (ms: number): Promise<number> {
    if (this.#threads.size === 0) return 0
    const late = new AbortController()
    await Promise.race([Promise.all([...this.#threads].map(async (thread) => await thread.terminate())),
      sleep(ms, undefined, { signal: late.signal }).catch(() => {})])
    late.abort()
    return this.#threads.size
  }

  #kill (): void {
    if (this.#options.kill === undefined) process.kill(process.pid, 'SIGKILL')
    else this.#options.kill()
  }

  /**
   * After an uncaught error the state of the process is unknown: no request is admitted any more, and running ones are
   * settled while that is possible.
   */
  #fail (err: unknown, origin: string): void {
    this.#log.fatal({ err, origin },
      'nobody caught this error: nothing more is accepted, what runs may end, and then the process does')
    if (this.#code !== 0) return
    this.#code = 1
    if (this.#gateway === undefined) this.#over.resolve()
    else this.drain(true)
  }
}
