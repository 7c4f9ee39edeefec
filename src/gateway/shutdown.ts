// How a process that serves comes to its end: told by a signal, or by an error that nobody caught. It does come to it.
import type { Logger } from 'pino'
import type { LogOutput } from '../telemetry/log-output.ts'
import type { Gateway } from './gateway.ts'

/** Two signals this close together are one. */
const SAME_SIGNAL_MS = 500
/** What an error that nobody caught leaves at least, to end what runs. */
const LEAST_MS = 1000

export class Ending {
  readonly #log: Logger
  readonly #output: LogOutput
  readonly #over = Promise.withResolvers<void>()
  #gateway: Gateway | undefined
  #isDraining = false
  #code = 0

  constructor (log: Logger, output: LogOutput) {
    this.#log = log
    this.#output = output
    // Nobody may be there to read what is said to people.
    process.stderr.on('error', () => {})
    // Also that of a promise which was rejected while nobody waited for it.
    process.on('uncaughtException', (err, origin) => { this.#fail(err, origin) })
  }

  /** @returns what was begun; undefined: an error ended the process meanwhile @throws whatever it did */
  async of (starting: Promise<Gateway>): Promise<Gateway | undefined> {
    return this.#gateway = await Promise.race([starting, this.#over.promise.then(() => undefined)])
  }

  /** From now on signals are heard. */
  hearSignals (): void {
    let first: { readonly signal: string, readonly at: number } | undefined
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        if (first !== undefined) {
          // Asked twice: at once. But npm passes a Ctrl-C on that the terminal has sent to us already.
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
    this.#gateway?.drain(isUrgent).then(this.#over.resolve, (err: unknown) => {
      this.#log.error({ err }, 'the drain failed')
      this.#code = 1
      this.#over.resolve()
    })
  }

  /** When it is over, and as much of the log is written as somebody takes. @returns the exit code */
  async wait (): Promise<number> {
    await this.#over.promise
    await this.#output.end(this.#patience)
    return this.#code
  }

  get #patience (): number {
    return Math.max(LEAST_MS, this.#gateway?.live.current().config.server.drain_timeout ?? 0)
  }

  /** What state it has left nobody knows: so no more is begun, and what runs is settled while that can be done. */
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
