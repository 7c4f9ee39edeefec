// Says what stopped the event loop: a stall of more than 100 ms is counted, and logged with the request and the phase
// that was running. A thread raises a flag while the loop does not turn (stall-thread.ts), and the next mark behind it
// keeps what was running (base/stall-marks.ts).
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Logger } from 'pino'
import { BEAT, current, FLAG, type Phase, shared, takeCulprit } from '../base/stall-marks.ts'

/** Milliseconds between two turns of the timer, and of a stall that is reported. */
const BEAT_MS = 25
const STALL_MS = 100
/** Milliseconds between two lines in the log: stalls in between are counted in the next one. */
const LOG_EVERY_MS = 1000

interface StallParts {
  readonly log: Pick<Logger, 'warn'>
  readonly metrics: { stalled (phase: Phase, ms: number): void }
}

export class StallWatch {
  readonly #parts: StallParts
  readonly #thread: Worker
  readonly #timer: NodeJS.Timeout
  /** of the last turn, by `performance.now()` */
  #beatAt = performance.now()
  /** microseconds that the thread of the loop had computed by then */
  #computed = computedSoFar()
  #loggedAt = -Infinity
  #unlogged = 0

  constructor (parts: StallParts) {
    this.#parts = parts
    // Read by the thread through the debugger's protocol, which sees globals only.
    Object.assign(globalThis, { [Symbol.for('gateway.stall')]: current })
    this.#timer = setInterval(() => { this.#beat() }, BEAT_MS).unref()
    this.#thread = new Worker(new URL(`./stall-thread${extname(import.meta.url)}`, import.meta.url), {
      workerData: shared.buffer, execArgv: [], stdout: false
    })
    this.#thread.unref()
    this.#thread.on('error', (err) => { parts.log.warn({ err }, 'nothing watches the event loop: its thread died') })
  }

  async close (): Promise<void> {
    clearInterval(this.#timer)
    await this.#thread.terminate()
  }

  #beat (): void {
    const now = performance.now()
    const ms = Math.round(now - this.#beatAt - BEAT_MS)
    this.#beatAt = now
    const before = this.#computed
    this.#computed = computedSoFar()
    shared[BEAT]!++
    // A process that was suspended has seen no stall, nor has its thread.
    const isSeen = shared[FLAG] === 1
    const { phase, id, plugin } = takeCulprit()
    if (!isSeen || ms < STALL_MS) return
    this.#parts.metrics.stalled(phase, ms)
    if (now - this.#loggedAt < LOG_EVERY_MS) { this.#unlogged++; return }
    const cpuMs = Math.round((this.#computed - before) / 1000)
    const line = { request_id: id, phase, plugin, ms, cpu_ms: cpuMs,
      ...(this.#unlogged > 0 && { more: this.#unlogged }) }
    this.#parts.log.warn(line, 'the event loop was stopped, and all requests with it')
    this.#loggedAt = now
    this.#unlogged = 0
  }
}

/** Microseconds. Less than the wall clock's where the thread waited: for a processor, a disk, or the collector. */
function computedSoFar (): number {
  const { user, system } = process.threadCpuUsage()
  return user + system
}
