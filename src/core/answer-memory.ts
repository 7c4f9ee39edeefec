// What whole answers take of the memory of the process, from their first bytes until the client has them. Beyond the
// limit no new ones are asked for; those that were wait at their upstreams, which have made them, until there is room
// again. Limits come with each question.
import { getHeapStatistics } from 'node:v8'
import type { ServerConfig } from '../config/config.ts'
import { GatewayError } from '../errors.ts'

/**
 * An answer is in memory up to four times: its bytes, its text, what that says, and the text for the client. The rest
 * has to live too.
 */
const SHARE_OF_HEAP = 1 / 8
const MOST = 512 * 1024 * 1024
/**
 * Bytes of an answer that is not counted: nearly all are so small, and one that made something that is paid for must
 * not wait.
 */
export const SMALL_ANSWER = 64 * 1024

/** @returns bytes */
export function answerLimit ({ answer_memory: configured }: Pick<ServerConfig, 'answer_memory'>): number {
  return configured ?? Math.min(MOST, Math.floor(getHeapStatistics().heap_size_limit * SHARE_OF_HEAP))
}

export class AnswerMemory {
  #used = 0
  /** of those that still come */
  #coming = 0
  /** oldest first; few: most are small */
  #reading: Part[] = []
  /** in a moment */
  #letsCome = false

  /** bytes */
  get used (): number {
    return this.#used
  }

  /** Before an upstream is asked. @throws {GatewayError} service_unavailable */
  check (limit: number): void {
    if (this.#used < limit) return
    throw new GatewayError('service_unavailable', {
      message: 'The service holds as many answers as it can. Try again in {wait}.'
    })
  }

  /** @param source of an answer that begins to come */
  open (limit: number, source: Pausable): Part {
    return new Part(this, limit, source)
  }

  /** For parts. @returns whether more may come */
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

  /** Where all that is held still comes, none would ever be given back: then the oldest goes on. */
  #mayPass (part: Part): boolean {
    return this.#used <= part.limit || (this.#used === this.#coming && this.#reading[0] === part)
  }

  /** Not at once: an answer may be read at this moment, and undici refuses to read another within that. */
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

/** What one answer takes. */
export class Part {
  readonly #memory: AnswerMemory
  readonly limit: number
  readonly #source: Pausable
  #isPaused = false
  #isGiven = false
  /** that are counted */
  bytes = 0

  constructor (memory: AnswerMemory, limit: number, source: Pausable) {
    this.#memory = memory
    this.limit = limit
    this.#source = source
  }

  /** So many have come by now. */
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

  /** All of it is here. */
  end (): void {
    this.#memory.end(this)
  }

  /** Nothing of it is in memory any more. More than once does nothing. */
  give (): void {
    if (this.#isGiven) return
    this.#isGiven = true
    this.end()
    this.#memory.give(this.bytes)
  }
}
