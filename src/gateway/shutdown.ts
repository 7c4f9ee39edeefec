// The end of a serving process: by a signal, or by an uncaught error. It ends in any case.
import type { Logger } from 'pino'
import type { LogOutput } from '../telemetry/log-output.ts'
import type { Gateway } from './gateway.ts'

/** Signals within so many milliseconds are one. */
const SAME_SIGNAL_MS = 500
/** Milliseconds that an uncaught error leaves at least, to end the running requests. */
const LEAST_MS = 1000
/**
 * Milliseconds behind `drain_delay` and `drain_timeout` after which the process ends, whatever it still waits for: the
 * last error frames take 5 s at most, threads 2 s, and an outbox a few more.
 */
const LAST_MS = 12_000

export class Ending {
  readonly #log: Logger
  readonly #output: LogOutput
  readonly #over = Promise.withResolvers<void>()
  #gateway: Gateway | undefined
  readonly #lastMs: number
  #isDraining = false
  #hasGivenUp = false
  #code = 0

  /** @param lastMs for tests */
  constructor (log: Logger, output: LogOutput, lastMs = LAST_MS) {
    this.#log = log
    this.#output = output
    this.#lastMs = lastMs
    // Standard error may be closed.
    process.stderr.on('error', () => {})
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
          process.exit(1)
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
    if (gateway === undefined) return
    const { drain_delay: delay, drain_timeout: timeout } = gateway.live.current().config.server
    setTimeout(() => { this.#giveUp(gateway) }, delay + timeout + this.#lastMs).unref()
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
    this.#hasGivenUp = true
    this.#over.resolve()
  }

  /** Waits for the end, and for the log as far as its reader takes it. @returns the exit code */
  async wait (): Promise<number> {
    await this.#over.promise
    await this.#output.end(this.#hasGivenUp ? LEAST_MS : this.#patience)
    return this.#code
  }

  get #patience (): number {
    return Math.max(LEAST_MS, this.#gateway?.live.current().config.server.drain_timeout ?? 0)
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
    if (this.#gateway === undefined) { this.#over.resolve(); return }
    // The last moments are for the log.
    setTimeout(this.#over.resolve, this.#patience - LEAST_MS / 2)
    this.drain(true)
  }
}
