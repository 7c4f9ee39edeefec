// Detects an overload of the process: then new requests are refused before they cost anything, and running ones go on.
// Sampled ten times a second, never for a request.
import { totalmem } from 'node:os'
import { getHeapStatistics } from 'node:v8'
import type { Logger } from 'pino'
import type { OverloadConfig, ServerConfig } from '../config/config.ts'
import { GatewayError } from '../errors.ts'
import { collectGarbage } from '../base/collect-garbage.ts'

/** A sample of the process's load. */
export interface Load {
  /** milliseconds by which the event loop is late */
  readonly delay: number
  /** used part of the memory limit, from 0 to 1: V8's heap or the whole process, whichever is fuller */
  readonly memory: number
}

/** Reports samples repeatedly. @returns stops it */
export type WatchLoad = (tell: (load: Load) => void) => () => void

const SAMPLE_MS = 100
/** Samples in a row. One garbage collection, or one large body, is no overload. */
const SAMPLES_TO_ENTER = 3
const SAMPLES_TO_LEAVE = 10
/** Samples between two forced collections: each blocks the process, in proportion to its live memory. */
const SAMPLES_TO_COLLECT = 100
/**
 * Samples after which memory alone does not prolong an overload, if it is below the share at which the overload began:
 * a process may keep for good the memory of a burst.
 */
const SAMPLES_TO_SETTLE = 100
/**
 * Shares of the limits. An overload ends below the share at which it begins, or it would flap. Memory is given back
 * late.
 */
const ENTER: Load = { delay: 1, memory: 1 }
const LEAVE: Load = { delay: 0.5, memory: 0.9 }
const SETTLED: Load = { delay: LEAVE.delay, memory: ENTER.memory }
/** Seconds over which the Retry-After of refused requests is spread. */
const SPREAD = 5

export class Overload {
  readonly #limits: OverloadConfig
  readonly #log: Pick<Logger, 'warn' | 'info'>
  readonly #watch: WatchLoad
  readonly #collect: () => void
  #stop: (() => void) | undefined
  #load: Load = { delay: 0, memory: 0 }
  #isOverloaded = false
  /** samples in a row that contradict the current state */
  #samples = 0
  /** samples in a row that would end the overload if memory were given back at once */
  #calm = 0
  /** samples since the last forced collection */
  #uncollected = SAMPLES_TO_COLLECT
  #refused = 0

  /** @param collect collects garbage */
  constructor (limits: OverloadConfig, log: Pick<Logger, 'warn' | 'info'>, watch: WatchLoad, collect = collectGarbage) {
    this.#limits = limits
    this.#log = log
    this.#watch = watch
    this.#collect = collect
  }

  get isOverloaded (): boolean {
    return this.#isOverloaded
  }

  /** milliseconds, of the last sample */
  get delay (): number {
    return this.#load.delay
  }

  start (): void {
    this.#stop ??= this.#watch((load) => { this.#see(load) })
  }

  close (): void {
    this.#stop?.()
  }

  /**
   * The error for a refused request. No limit of the client is passed, and another gateway may take it: 503 (RFC 9110
   * 15.6.4), not 429.
   */
  refusal (): GatewayError {
    return new GatewayError('service_unavailable', {
      message: 'The service has more to do than it can at this moment. Try again in {wait}.',
      retryAfter: 1 + this.#refused++ % SPREAD
    })
  }

  #see (load: Load): void {
    this.#load = load
    this.#uncollected++
    this.#calm = this.#exceeds(SETTLED) ? 0 : this.#calm + 1
    const shares = this.#isOverloaded ? LEAVE : ENTER
    const exceeds = this.#exceeds(shares) && this.#calm < SAMPLES_TO_SETTLE
    if (exceeds === this.#isOverloaded) {
      this.#samples = 0
      if (exceeds) this.#tidy(shares)
      return
    }
    if (++this.#samples < (this.#isOverloaded ? SAMPLES_TO_LEAVE : SAMPLES_TO_ENTER)) return
    this.#samples = 0
    if (exceeds && this.#tidy(shares)) return
    this.#isOverloaded = !this.#isOverloaded
    const line = { event_loop_delay_ms: Math.round(load.delay), memory_percent: Math.round(load.memory * 100) }
    if (this.#isOverloaded) this.#log.warn(line, 'overloaded: new requests are refused')
    else this.#log.info({ ...line, refused: this.#refused }, 'not overloaded any more')
    this.#refused = 0
  }

  #exceeds (shares: Load): boolean {
    const { event_loop_delay: delay } = this.#limits
    return (delay > 0 && this.#load.delay >= delay * shares.delay) || this.#isFull(shares)
  }

  #isFull (shares: Load): boolean {
    const { memory } = this.#limits
    return memory > 0 && this.#load.memory * 100 >= memory * shares.memory
  }

  /**
   * Collects garbage before memory counts as load: a process that refuses all requests allocates too little to trigger
   * a collection (measured: 12 s later all garbage was still there).
   * @returns whether it has collected, so that another sample is needed
   */
  #tidy (shares: Load): boolean {
    if (this.#uncollected < SAMPLES_TO_COLLECT || !this.#isFull(shares)) return false
    this.#uncollected = 0
    this.#collect()
    return true
  }
}

/**
 * Measures the lateness of a timer, and two counters: 0.03 ms a sample. `monitorEventLoopDelay` wakes the process up
 * ten times as often (measured: 7 ms of CPU a second, against 3). A loop that is always late looks up to one interval
 * better than it is.
 * @param memoryLimit bytes of the whole process; undefined: only the heap has a limit
 */
export function watchProcess (memoryLimit: number | undefined): WatchLoad {
  return (tell) => {
    let last = performance.now()
    const timer = setInterval(() => {
      const now = performance.now()
      const delay = Math.max(0, now - last - SAMPLE_MS)
      last = now
      const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics()
      tell({ delay,
        memory: Math.max(used / limit, memoryLimit === undefined ? 0 : process.memoryUsage.rss() / memoryLimit) })
    }, SAMPLE_MS).unref()
    return () => { clearInterval(timer) }
  }
}

/**
 * @returns memory limit of one process in bytes: its share of the configured limit, or of the container's; undefined:
 * there is no limit
 */
export function memoryLimitOf (
  { overload: { memory_limit: configured }, workers }: Pick<ServerConfig, 'overload' | 'workers'>
): number | undefined {
  // Without a limit it is 0, or more than the machine has.
  const container = process.constrainedMemory()
  const all = configured ?? (container > 0 && container < totalmem() ? container : undefined)
  return all === undefined ? undefined : all / workers
}
