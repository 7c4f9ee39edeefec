// The memory of request bodies: of a single one while it arrives, and of all together, with their limits.
import { setImmediate as turn } from 'node:timers/promises'
import type { Awaitable } from '../base/awaitable.ts'
import { collectGarbage, collectYoungGarbage } from '../base/collect-garbage.ts'
import { GatewayError } from '../errors.ts'
import { BodyShares } from './body-shares.ts'

/**
 * Bytes of bodies in flight, over all requests: beyond the limit new bodies are refused, so that the process is not
 * killed.
 */
export class BodyMemory {
  readonly shares: BodyShares
  readonly #limit: number
  #used = 0

  constructor (limit: number) {
    this.#limit = limit
    this.shares = new BodyShares(limit / 2)
  }

  get used (): number {
    return this.#used
  }

  /** @throws {GatewayError} queue_full: so many more do not fit now */
  check (bytes: number): void {
    if (this.#used + bytes > this.#limit) {
      throw new GatewayError('queue_full', {
        message: 'The service holds as many request bodies as it can. Try again in {wait}.'
      })
    }
  }

  /** @throws {GatewayError} queue_full */
  take (bytes: number): void {
    this.check(bytes)
    this.#used += bytes
  }

  give (bytes: number): void {
    this.#used -= bytes
  }
}

export interface BodyLimits {
  /** bytes, before and after decompression */
  readonly limit: number
  /** milliseconds between two chunks */
  readonly idle: number
  readonly memory: BodyMemory
}

export function tooLarge (limit: number): GatewayError {
  return new GatewayError('request_too_large', {
    message: `The request body is larger than ${limit} bytes (${limit / 1048576} MB). Send a smaller one.`
  })
}

const PAGE_BYTES = 64 * 1024
/** Chunks of this size are kept as they are; a buffer of one byte takes 300. */
const LARGE_CHUNK = 4 * 1024

/** Received bytes in order, in few buffers, however small the chunks were. */
export class Chunks {
  readonly #chunks: Buffer[] = []
  #page = Buffer.alloc(0)
  /** part of the page that is in no chunk yet: begin and end */
  #start = 0
  #end = 0
  #taken = 0

  /** bytes of memory taken: a page counts as a whole */
  get taken (): number {
    return this.#taken
  }

  add (chunk: Buffer): void {
    // The first chunk is nearly always the only one.
    if (chunk.length >= LARGE_CHUNK || (this.#chunks.length === 0 && this.#end === 0)) {
      this.#flush()
      this.#chunks.push(chunk)
      this.#taken += chunk.length
      return
    }
    if (this.#end + chunk.length > this.#page.length) {
      this.#flush()
      this.#page = Buffer.allocUnsafe(PAGE_BYTES)
      this.#start = this.#end = 0
      this.#taken += PAGE_BYTES
    }
    this.#end += chunk.copy(this.#page, this.#end)
  }

  all (): readonly Buffer[] {
    this.#flush()
    return this.#chunks
  }

  /** All of them, which are kept no longer. */
  take (): readonly Buffer[] {
    this.#flush()
    return this.#chunks.splice(0)
  }

  #flush (): void {
    if (this.#end > this.#start) this.#chunks.push(this.#page.subarray(this.#start, this.#end))
    this.#start = this.#end
  }
}

/** Bytes of a page that threads share. */
const SHARED_PAGE_BYTES = 256 * 1024
/** Most free pages that are kept: 32 MB. */
const MOST_FREE = 128
/**
 * Received bytes after which young garbage is collected. They lie outside of V8's heap, and few objects belong to them:
 * left to itself it makes a full collection, of everything, for each 20 to 30 MB (18 for 100 bodies of 5 MB, each 40 ms
 * of CPU in threads that may share the loop's core; measured).
 */
const YOUNG_BYTES = 16 * 1024 * 1024
/**
 * Bytes of new pages after which all garbage is collected. V8 does not count shared memory, so it would not do so by
 * itself, and pages that were not given back, or not kept, would fill the machine (120 bodies of 28 MB whose upstreams
 * broke the connection left 2.5 GB, measured).
 */
const NEW_BYTES = 256 * 1024 * 1024

/**
 * Memory that threads share, in pages that are used again: V8 frees such memory when all threads that have seen it have
 * collected their garbage, and one that rests collects none (150 bodies of 5 MB left a gigabyte, measured).
 */
export class SharedPages {
  readonly #free: Buffer[] = []
  #copied = 0
  /** bytes of pages made since the last collection */
  #made = 0

  take (): Buffer {
    return this.#free.pop() ?? this.#make()
  }

  #make (): Buffer {
    this.#made += SHARED_PAGE_BYTES
    if (this.#made > NEW_BYTES) {
      this.#made = 0
      collectGarbage()
    }
    return Buffer.from(new SharedArrayBuffer(SHARED_PAGE_BYTES))
  }

  /** Notes that so many received bytes are garbage now. */
  copied (bytes: number): void {
    this.#copied += bytes
    if (this.#copied < YOUNG_BYTES) return
    this.#copied = 0
    collectYoungGarbage()
  }

  /** @param pages nobody looks at them any more */
  give (pages: readonly Buffer[]): void {
    for (const page of pages) if (this.#free.length < MOST_FREE) this.#free.push(page)
  }
}

/** Bytes that are copied in one turn of the event loop: 30 MB at once took 8 to 30 ms (measured). */
const COPIED_BYTES = 1024 * 1024

/** Memory that is used again when nobody reads it any more. */
export interface Lender {
  /** It was given back: what lies there is another's. */
  readonly isGone: boolean
  /**
   * Somebody reads it, who may go on behind the end of its request.
   * @returns to be called when he has finished. If it never is, the memory is left to the garbage collector
   * @throws {Error} it may belong to another already
   */
  lend (): () => void
}

/** Bytes in order, and whose memory they are. */
export interface BodyPieces {
  readonly pieces: readonly Buffer[]
  /** undefined: it is used once */
  readonly memory: Lender | undefined
}

/** The same in memory that threads share: each byte is copied once, as it comes, or some turns later. */
export class SharedChunks implements Lender {
  readonly #memory: SharedPages
  readonly pages: Buffer[] = []
  #readers = 0
  #isOver = false
  /** bytes of the last page that are free */
  #free = 0
  /** what is not copied yet, last first */
  #waiting: Buffer[]

  /** @param before what came until now, in order */
  constructor (memory: SharedPages, before: readonly Buffer[] = []) {
    this.#memory = memory
    this.#waiting = before.toReversed()
    this.#copySome()
  }

  add (chunk: Buffer): void {
    if (this.#isOver) return
    if (this.#waiting.length === 0) { this.#copy(chunk); return }
    this.#waiting.unshift(chunk)
    this.#copySome()
  }

  #copySome (): void {
    for (let bytes = 0; bytes < COPIED_BYTES;) {
      const chunk = this.#waiting.pop()
      if (chunk === undefined) return
      this.#copy(chunk)
      bytes += chunk.length
    }
  }

  #copy (chunk: Buffer): void {
    for (let at = 0; at < chunk.length;) {
      if (this.#free === 0) {
        this.pages.push(this.#memory.take())
        this.#free = SHARED_PAGE_BYTES
      }
      const copied = chunk.copy(this.pages.at(-1)!, SHARED_PAGE_BYTES - this.#free, at)
      at += copied
      this.#free -= copied
    }
    this.#memory.copied(chunk.length)
  }

  get isGone (): boolean {
    return this.#isOver && this.#readers === 0
  }

  lend (): () => void {
    if (this.isGone) throw new Error('memory was asked for that was given back')
    this.#readers++
    let isReading = true
    return () => {
      if (!isReading) return
      isReading = false
      this.#readers--
      this.#giveBack()
    }
  }

  /**
   * Nobody begins to read them any more, and no more come: when those who read have finished, their memory is used
   * again. To be called on every path; a second call does nothing.
   */
  end (): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#waiting = []
    this.#giveBack()
  }

  #giveBack (): void {
    if (this.isGone) this.#memory.give(this.pages.splice(0))
  }

  /** All of them, when they are copied. @throws {Error} they were ended before */
  all (): Awaitable<readonly Buffer[]> {
    return this.#waiting.length === 0 ? this.#pieces() : this.#allLater()
  }

  async #allLater (): Promise<readonly Buffer[]> {
    while (this.#waiting.length > 0) {
      await turn()                                            // other events pass meanwhile
      this.#copySome()
    }
    return this.#pieces()
  }

  #pieces (): readonly Buffer[] {
    if (this.#isOver) throw new Error('chunks were asked for that were ended')
    if (this.#free === 0) return [...this.pages]
    return [...this.pages.slice(0, -1), this.pages.at(-1)!.subarray(0, SHARED_PAGE_BYTES - this.#free)]
  }
}
