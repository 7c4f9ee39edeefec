// The memory of whole answers, from their first bytes until the client has them. Beyond the limit no new answer is
// requested; those requested before wait at their upstreams, which have made them, until there is room again. Limits
// come with each call.
import { getHeapStatistics } from 'node:v8'
import type { ServerConfig } from '../config/config.ts'
import { GatewayError } from '../errors.ts'

/**
 * An answer is in memory up to four times: its bytes, its text, the parsed value, and the text for the client. The rest
 * of the process needs memory too.
 */
const SHARE_OF_HEAP = 1 / 8
const MOST = 512 * 1024 * 1024
/** Asked once: the question costs as much as a hook, and the limit of a process does not change. */
const FROM_HEAP = Math.min(MOST, Math.floor(getHeapStatistics().heap_size_limit * SHARE_OF_HEAP))
/** Bytes up to which an answer is not counted: nearly all are so small, and one with a paid item must not wait. */
export const SMALL_ANSWER = 64 * 1024

/** @returns bytes */
export function answerLimit ({ answer_memory: configured }: Pick<ServerConfig, 'answer_memory'>): number {
  return configured ?? FROM_HEAP
}

export class AnswerMemory {
  #used = 0
  /** bytes of answers that are still arriving */
  #coming = 0
  /** oldest first; few, because most answers are small */
  #reading: Part[] = []
  /** a release of waiting answers is scheduled */
  #letsCome = false

  /** bytes */
  get used (): number {
    return this.#used
  }

  /** Called before an upstream is asked. @throws {GatewayError} service_unavailable */
  check (limit: number): void {
    if (this.#used < limit) return
    throw new GatewayError('service_unavailable', {
      message: 'The service holds as many answers as it can. Try again in {wait}.'
    })
  }

  /** @param source of an answer that begins to arrive */
  open (limit: number, source: Pausable): Part {
    return new Part(this, limit, source)
  }

  /** For parts. @returns whether more bytes may arrive */
  add (part: Part, bytes: number): boolean {
    if (part.bytes === 0) this.#reading.push(part)
    this.#used += bytes
    this.#coming += bytes
    return this.#mayPass(part)
  }

  /** For parts. */
  end (part: Part): void {
    if (!this.#reading.includes(part)) return
    this.#reading = this.#reading.filter((other) => other !== part)
    this.#coming -= part.bytes
    this.#letCome()
  }

  /** For parts. */
  give (bytes: number): void {
    this.#used -= bytes
    this.#letCome()
  }

  /**
   * Whether a part may exceed the limit: if all memory is held by arriving answers, none would ever be given back, so
   * the oldest goes on.
   */
  #mayPass (part: Part): boolean {
    return this.#used <= part.limit || (this.#used === this.#coming && this.#reading[0] === part)
  }

  /** Scheduled, because undici refuses to resume one answer during a read of another. */
  #letCome (): void {
    if (this.#letsCome) return
    this.#letsCome = true
    queueMicrotask(() => {
      this.#letsCome = false
      for (const part of this.#reading) if (this.#mayPass(part)) part.goOn()
    })
  }
}

export interface Pausable {
  pause (): void
  resume (): void
}

/** One answer's share of the memory. */
export class Part {
  readonly #memory: AnswerMemory
  readonly limit: number
  readonly #source: Pausable
  #isPaused = false
  #isGiven = false
  /** bytes that are counted */
  bytes = 0

  constructor (memory: AnswerMemory, limit: number, source: Pausable) {
    this.#memory = memory
    this.limit = limit
    this.#source = source
  }

  /** Updates the number of bytes that have arrived. */
  grow (size: number): void {
    if (this.#isGiven) return
    const more = size - this.bytes
    const mayGoOn = this.#memory.add(this, more)
    this.bytes = size
    if (mayGoOn || this.#isPaused) return
    this.#isPaused = true
    this.#source.pause()
  }

  goOn (): void {
    if (!this.#isPaused) return
    this.#isPaused = false
    this.#source.resume()
  }

  /** The answer has arrived completely. */
  end (): void {
    this.#memory.end(this)
  }

  /** Gives the memory back; later calls do nothing. */
  give (): void {
    if (this.#isGiven) return
    this.#isGiven = true
    this.end()
    this.#memory.give(this.bytes)
  }
}
