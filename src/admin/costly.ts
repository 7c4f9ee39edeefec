// What the costly operations of the admin API may take of the process: long lists, sums, searches, and large bodies. A
// token has a few places, and what runs at a time is less than these: so however much one token asks for, requests of
// API clients run in between, and so do those of other tokens.
import { setImmediate } from 'node:timers/promises'
import { Turns, type Waiting } from '../core/turns.ts'
import { Refusal } from './api/refusal.ts'

/** Bytes from which a body is large: smaller ones keep the loop for a few milliseconds. */
export const LARGE = 64 * 1024

/**
 * `running` at a time, of one token or of all: a page of a thousand rows keeps the loop for 5 to 10 ms. `ofToken` and
 * `all`: places, also of what waits or is still on its way. Large bodies have 8 MiB of memory each; 32 reads are what
 * some open dashboards ask for.
 */
const KINDS = {
  read: { running: 4, isOfToken: true, ofToken: 32, all: 128 },
  body: { running: 1, isOfToken: false, ofToken: 4, all: 16 }
} as const
/** A read takes its turn as a body of so many bytes. */
const READ_BYTES = 256 * 1024

export type Kind = keyof typeof KINDS

interface Work extends Waiting {
  readonly kind: Kind
  begin (): void
}

export class Costly {
  /** places that are taken, by token */
  readonly #places = { read: new Map<string, number>(), body: new Map<string, number>() }
  readonly #turns = new Turns<Work>()
  readonly #running = new Set<Work>()
  #count = 0

  /**
   * Takes a place; of a body before it is read.
   * @returns gives it back
   * @throws {Refusal} all are taken
   */
  enter (token: string, kind: Kind): () => void {
    const places = this.#places[kind]
    const own = places.get(token) ?? 0
    const all = [...places.values()].reduce((sum, count) => sum + count, 0)
    const isTokenFull = own >= KINDS[kind].ofToken
    if (isTokenFull || all >= KINDS[kind].all) {
      throw new Refusal('busy', `Too many requests of ${isTokenFull ? 'this token' : 'all tokens'} are being worked on. ` +
        'Try again when one has ended.', { headers: { 'retry-after': '2', ...(kind === 'body' && { connection: 'close' }) } })
    }
    places.set(token, own + 1)
    return () => {
      const left = places.get(token)! - 1
      if (left === 0) places.delete(token)
      else places.set(token, left)
    }
  }

  /** Does the work when its turn has come. @param bytes of its body; absent: it is a read */
  async run<Result> (token: string, work: () => Promise<Result>, bytes?: number): Promise<Result> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const own: Work = { id: String(++this.#count), key: token, kind: bytes === undefined ? 'read' : 'body',
      bytes: bytes ?? READ_BYTES, begin: resolve }
    this.#turns.add(own)
    this.#next()
    await promise
    try {
      return await work()
    } finally {
      // API clients run between two of them.
      await setImmediate()
      this.#running.delete(own)
      this.#turns.forget(own.id)
      this.#next()
    }
  }

  #next (): void {
    for (let next; (next = this.#turns.next((one) => this.#canRun(one))) !== undefined;) {
      this.#running.add(next)
      next.begin()
    }
  }

  #canRun ({ key, kind }: Work): boolean {
    const { running, isOfToken } = KINDS[kind]
    let count = 0
    for (const one of this.#running) if (one.kind === kind && (one.key === key || !isOfToken)) count++
    return count < running
  }
}
