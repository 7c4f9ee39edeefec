// Large bodies of the admin API are worked on one at a time, so that requests of API clients run in between. Tokens
// take turns; of one token the smallest body is first.
import { setImmediate } from 'node:timers/promises'
import { Refusal } from './api/refusal.ts'

/** Bytes from which a body is large: smaller ones keep the loop for a few milliseconds. */
export const LARGE = 64 * 1024
/** Most large bodies at a time, also those that are still on their way: each is up to 8 MiB of memory. */
const MOST = 16
const MOST_OF_TOKEN = 4

interface Waiting {
  readonly token: string
  readonly bytes: number
  begin (): void
}

export class BodyTurns {
  readonly #places = new Map<string, number>()
  #waiting: Waiting[] = []
  /** Tokens, the one with the latest turn last. */
  readonly #served = new Set<string>()
  #isBusy = false

  /**
   * Takes a place before the body is read.
   * @returns gives the place back
   * @throws {Refusal} too many large bodies
   */
  enter (token: string): () => void {
    const own = this.#places.get(token) ?? 0
    const all = [...this.#places.values()].reduce((sum, count) => sum + count, 0)
    if (own >= MOST_OF_TOKEN || all >= MOST) {
      const count = own >= MOST_OF_TOKEN ? `${own} large bodies of this token` : `${all} large bodies`
      throw new Refusal('busy', `${count} are being worked on already. Try again when one has ended.`,
        { headers: { 'retry-after': '2', connection: 'close' } })
    }
    this.#places.set(token, own + 1)
    return () => {
      const left = this.#places.get(token)! - 1
      if (left === 0) this.#places.delete(token)
      else this.#places.set(token, left)
    }
  }

  async run<Result> (token: string, bytes: number, work: () => Promise<Result>): Promise<Result> {
    if (this.#isBusy) await new Promise<void>((resolve) => { this.#waiting.push({ token, bytes, begin: resolve }) })
    this.#isBusy = true
    this.#served.delete(token)
    this.#served.add(token)
    try {
      return await work()
    } finally {
      // API clients run between two bodies.
      await setImmediate()
      this.#next()
    }
  }

  #next (): void {
    const order = [...this.#served]
    const [next] = this.#waiting.toSorted((a, b) =>
      order.indexOf(a.token) - order.indexOf(b.token) || a.bytes - b.bytes)
    this.#waiting = this.#waiting.filter((one) => one !== next)
    // It stays busy until `next` goes on, so that nobody comes between.
    if (next === undefined) this.#isBusy = false
    else next.begin()
    if (this.#waiting.length === 0 && next === undefined) this.#served.clear()
  }
}
