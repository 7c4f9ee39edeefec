// Requests that ended without a settlement, counted until the next batch takes them along.
import { hourOf } from '../rollup-sums.ts'
import type { Failure } from '../rollups.ts'
import { FAILURE, type Cell } from './cells.ts'

export class Failures {
  /** number by hour and members */
  readonly #counts = new Map<string, number>()

  get size (): number {
    return this.#counts.size
  }

  /** @param now milliseconds since the epoch */
  note ({ account, key, model, channel = '' }: Failure, now: number): void {
    this.#add(JSON.stringify([hourOf(now), account, key, model, channel]), 1)
  }

  /** All that were noted, as rows of `FAILURE`; they are forgotten. */
  take (): Cell[] {
    const cells: Cell[] = []
    for (const [name, count] of this.#counts) cells.push(...JSON.parse(name) as Cell[], count)
    this.#counts.clear()
    return cells
  }

  /** Takes back rows that could not be recorded. */
  putBack (cells: readonly Cell[]): void {
    for (let i = 0; i < cells.length; i += FAILURE.length) {
      const end = i + FAILURE.length - 1
      this.#add(JSON.stringify(cells.slice(i, end)), cells[end] as number)
    }
  }

  #add (name: string, count: number): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + count)
  }
}
