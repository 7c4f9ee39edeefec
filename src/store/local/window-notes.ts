// Notes of what rate limits have counted, recorded so that a kill does not forget it. A note says how many more
// requests may be admitted before the next note: so not every admission is a write, and a start counts those as
// admitted.
import type { WindowState } from '../store.ts'
import type { Cell } from './cells.ts'
import type { Windows } from './rate-windows.ts'

/** Milliseconds after which a counting window is noted anew. */
export const NOTE_MS = 1000
/** A note covers a tenth of its limit ahead. */
const PARTS = 10

interface Note {
  /** requests that it still covers */
  left: number
  /** half of what it covered at first: below that it is noted anew */
  readonly half: number
  readonly at: number
}

export class Notes {
  readonly #windows: Windows
  readonly #now: () => number
  readonly #notes = new Map<string, Note>()
  /** size at which expired notes are looked for */
  #most = 1024

  /** @param now milliseconds of a steady clock */
  constructor (windows: Windows, now: () => number) {
    this.#windows = windows
    this.#now = now
  }

  /** notes that still count, or did until lately */
  get size (): number {
    return this.#notes.size
  }

  /** Counts one admission in each window. @returns the notes to be recorded now, as `WINDOW` */
  take (states: readonly WindowState[]): Cell[] {
    const now = this.#now()
    const cells: Cell[] = []
    for (const { name, limit, remaining } of states) {
      const note = this.#notes.get(name)
      if (note !== undefined && --note.left >= note.half && now < note.at + NOTE_MS) continue
      const ahead = Math.min(Math.ceil(limit / PARTS), remaining)
      if (this.#notes.size >= this.#most) this.#forget(now)
      this.#notes.set(name, { left: ahead, half: Math.ceil(ahead / 2), at: now })
      cells.push(name, ...this.#windows.saveOne(name), ahead)
    }
    return cells
  }

  /** Forgets a note that could not be recorded. */
  drop (name: string): void {
    this.#notes.delete(name)
  }

  #forget (now: number): void {
    for (const [name, { at }] of this.#notes) if (now >= at + NOTE_MS) this.#notes.delete(name)
    this.#most = Math.max(1024, this.#notes.size * 2)
  }
}
