// Whether the process itself has more to do than it can: then new requests are refused before they cost anything, and
// those that run go on. Looks at itself ten times a second, and never for a request.
import { totalmem } from 'node:os'
import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Logger } from 'pino'
import type { OverloadConfig, ServerConfig } from '../config/config.ts'
import { GatewayError } from '../errors.ts'

/** How a process is, at one moment. */
export interface Load {
  /** milliseconds by which the event loop is late */
  readonly delay: number
  /** Of the memory that it may have, from 0 to 1: V8's heap or all of it, whichever is fuller. */
  readonly memory: number
}

/** Tells the load, again and again. @returns stops it */
export type WatchLoad = (tell: (load: Load) => void) => () => void

const SAMPLE_MS = 100
/** In a row. One garbage collection, or one large body, is no overload. */
const SAMPLES_TO_ENTER = 3
const SAMPLES_TO_LEAVE = 10
/** Between two collections: each stops the process for as long as what lives is large. */
const SAMPLES_TO_COLLECT = 100
/**
 * A process may keep for good what a burst has made it take: then it is enough to be below where the overload began,
 * for so long.
 */
const SAMPLES_TO_SETTLE = 100
/**
 * Shares of the limits. Where it ends is below where it begins, or it would come and go. Memory that was used is given
 * back late.
 */
const ENTER: Load = { delay: 1, memory: 1 }
const LEAVE: Load = { delay: 0.5, memory: 0.9 }
const SETTLED: Load = { delay: LEAVE.delay, memory: ENTER.memory }
/** Seconds, over which those who were refused together are spread when they come again. */
const SPREAD = 5

export class Overload {
  readonly #limits: OverloadConfig
  readonly #log: Pick<Logger, 'warn' | 'info'>
  readonly #watch: WatchLoad
  readonly #collect: () => void
  #stop: (() => void) | undefined
  #load: Load = { delay: 0, memory: 0 }
  #isOverloaded = false
  /** in a row, that say otherwise */
  #samples = 0
  /** in a row, at which it would not go on if memory did not come back late */
  #calm = 0
  /** samples since the last collection */
  #uncollected = SAMPLES_TO_COLLECT
  #refused = 0

  /** @param collect frees what nobody uses any more */
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
   * What a request is told that is refused. Nobody's own limit is passed, and another gateway may take it: 503 (RFC
   * 9110 15.6.4), not 429.
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
   * Garbage is no load, and a process that refuses all makes none more that would have it collected (measured: 12 s
   * later it was all there).
   * @returns whether it is worth another look
   */
  #tidy (shares: Load): boolean {
    if (this.#uncollected < SAMPLES_TO_COLLECT || !this.#isFull(shares)) return false
    this.#uncollected = 0
    this.#collect()
    return true
  }
}

let collector: (() => void) | undefined

/** All of it, at once. */
function collectGarbage (): void {
  if (collector === undefined) {
    setFlagsFromString('--expose-gc')                         // of contexts that are made from now on
    collector = runInNewContext('gc') as () => void
  }
  collector()
}

/**
 * A timer that is late, and two counters: 0.03 ms a sample. `monitorEventLoopDelay` wakes the process up ten times as
 * often (measured: 7 ms of CPU a second, against 3). A loop that is late all the time looks up to one sample's time
 * better than it is.
 * @param memoryLimit bytes of all of the process; undefined: only the heap has a limit
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
 * @returns bytes that one process may have: its part of what was configured, or of what the container may have;
 * undefined: nobody says
 */
export function memoryLimitOf (
  { overload: { memory_limit: configured }, workers }: Pick<ServerConfig, 'overload' | 'workers'>
): number | undefined {
  // Without a limit it is 0, or more than there is.
  const container = process.constrainedMemory()
  const all = configured ?? (container > 0 && container < totalmem() ? container : undefined)
  return all === undefined ? undefined : all / workers
}
