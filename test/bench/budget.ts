// What one request makes: bytes, promises, timers, writes. Counted, not timed: a busy machine hardly moves it, but for
// the milliseconds of a collection.
import { readFileSync } from 'node:fs'
import type { Child } from './children.ts'
import type { Experiment } from './experiments.ts'
import { startClosedLoop } from './load.ts'
import { largeRequest, smallRequest, type Dialect } from './payloads.ts'
import type { ObjectCount } from './questions.ts'
import { median, quantile } from './statistics.ts'

const CONNECTIONS = 32
const IMAGE_CONNECTIONS = 4
const IMAGES = 50

/** Of one request. */
export interface HeapBudget {
  /** bytes on V8's heap, of the main thread */
  readonly allocated: number
  /** bytes that reach the old generation */
  readonly old: number
  /** system calls of the whole process that write; NaN where /proc does not tell */
  readonly writeCalls: number
  /** of each collection of the young generation */
  readonly scavengeMs: readonly number[]
}

/** A server that tells what it made for the requests that it was sent. */
export class Counted {
  readonly #child: Child
  readonly #port: number
  readonly #request: Buffer
  readonly #image: Buffer

  /** @param child started to be asked */
  constructor (child: Child, port: number, dialect: Dialect) {
    this.#child = child
    this.#port = port
    this.#request = smallRequest(dialect, false)
    this.#image = largeRequest(dialect)
  }

  /** @returns how many it were: what was under way is answered too */
  async serve (requests: number): Promise<number> {
    const loop = startClosedLoop(this.#port, this.#request, CONNECTIONS)
    await loop.reaches(requests)
    return loop.completed()
  }

  async heap (requests: number): Promise<HeapBudget> {
    await this.#child.ask('heap')
    const callsBefore = this.#writeCalls()
    const served = await this.serve(requests)
    const calls = this.#writeCalls() - callsBefore
    const { allocated, old, scavengeMs } = await this.#child.ask('heap')
    return { allocated: allocated / served, old: old / served, scavengeMs, writeCalls: calls / served }
  }

  /** Of the main thread's heap, for so many requests with an image of 5 MB. */
  async fullCollections (images: number): Promise<number> {
    await this.#child.ask('heap')
    const loop = startClosedLoop(this.#port, this.#image, IMAGE_CONNECTIONS)
    await loop.reaches(images)
    return (await this.#child.ask('heap')).fullCollections
  }

  /** Of one request. From here on everything is slower, and allocates: what is counted is. */
  async objects (requests: number): Promise<ObjectCount> {
    await this.#child.ask('objects')
    const served = await this.serve(requests)
    const { promises, timers, abortControllers, writes } = await this.#child.ask('objects')
    return { promises: promises / served, timers: timers / served, abortControllers: abortControllers / served,
      writes: writes / served }
  }

  #writeCalls (): number {
    try {
      return Number(/^syscw: (\d+)$/m.exec(readFileSync(`/proc/${this.#child.pid}/io`, 'utf8'))?.[1])
    } catch {
      return NaN
    }
  }
}

export const budget: Experiment = {
  name: 'budget',
  title: `What a JSON request of 1 KB makes on the main thread, ${CONNECTIONS} connections, after a warm-up: counted, ` +
    'not timed',
  columns: [{ key: 'allocatedKb', title: 'KB allocated', digits: 1 },
    { key: 'oldKb', title: 'KB into the old generation', digits: 2 },
    { key: 'scavengeMs', title: 'scavenge p10 ms', digits: 2 }, { key: 'promises', title: 'promises', digits: 2 },
    { key: 'timers', title: 'timers', digits: 2 }, { key: 'abortControllers', title: 'AbortControllers', digits: 2 },
    { key: 'writes', title: 'socket writes', digits: 2 },
    { key: 'writeCalls', title: 'system calls that write, all threads', digits: 2 },
    { key: 'fullCollections', title: `full collections for ${IMAGES} images of 5 MB`, digits: 1 }],
  isFresh: true,
  skips: ['direct'],
  rounds: ({ isQuick }) => isQuick ? 1 : 2,
  lasts: () => 0,
  async burst ({ dialect, isQuick }, { port, child }) {
    if (child === undefined) throw new Error('has no process')
    const counted = new Counted(child, port, dialect)
    await counted.serve(isQuick ? 8000 : 15_000)
    const { allocated, old, scavengeMs, writeCalls } = await counted.heap(isQuick ? 8000 : 15_000)
    const fullCollections = await counted.fullCollections(IMAGES)
    const objects = await counted.objects(2000)
    return { allocatedKb: allocated / 1024, oldKb: old / 1024, scavengeMs: quantile(scavengeMs, 0.1), writeCalls,
      fullCollections, ...objects }
  },
  goals (of) {
    const at = (key: string): number => median(of('gateway', key))
    return ([['at most 22 KB allocated', 'allocatedKb', 22, 'KB'],
      ['at most 1.2 KB that reach the old generation', 'oldKb', 1.2, 'KB'],
      ['scavenges at p10 under 2 ms', 'scavengeMs', 2, 'ms'], ['at most 4 promises', 'promises', 4, ''],
      ['no timer', 'timers', 0, ''], ['no AbortController', 'abortControllers', 0, ''],
      ['one write each way', 'writes', 2, ''],
      [`at most one full collection for ${IMAGES} images of 5 MB`, 'fullCollections', 1, '']] as const).map(([text, key, most, unit]) => ({
      text: `a request's budget: ${text}`,
      isMet: at(key) < most + 0.05,    // timers of the process itself fall into any time
      found: `${at(key).toFixed(2)} ${unit}`.trim()
    }))
  }
}
