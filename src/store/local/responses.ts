// Kept responses of the memory driver: they end with their process.
import type { Life, ResponseStore } from '../responses.ts'
import { type Place, Shelf } from './shelf.ts'

/** Bytes of all accounts together. */
const SPACE = 256 * 1024 * 1024
const SWEEP_MS = 60_000

interface Kept extends Place {
  readonly content: Buffer
}

export class MemoryResponses implements ResponseStore {
  readonly #shelf: Shelf<Kept>
  readonly #now: () => number
  #sweptAt = 0

  /** @param now milliseconds since the epoch */
  constructor (now: () => number, space = SPACE) {
    this.#shelf = new Shelf(space, now)
    this.#now = now
  }

  keep (owner: string, id: string, content: Buffer, { life, space }: Life): boolean {
    const now = this.#now()
    if (now >= this.#sweptAt + SWEEP_MS) {
      this.#sweptAt = now
      this.#shelf.sweep()
    }
    return this.#shelf.add({ owner, id, bytes: content.length, expires: now + life, content }, space) !== undefined
  }

  find (owner: string, id: string): Buffer | undefined {
    return this.#shelf.find(owner, id)?.content
  }

  prolong (owner: string, id: string, life: number): void {
    const place = this.#shelf.find(owner, id)
    if (place !== undefined) this.#shelf.use(place, this.#now() + life)
  }

  drop (owner: string, id: string): boolean {
    const place = this.#shelf.find(owner, id)
    if (place !== undefined) this.#shelf.remove(place)
    return place !== undefined
  }

  close (): void {}
}
