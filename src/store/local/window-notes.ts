// What rate limits have counted, written down so that a kill does not forget it. A note of a window says how many more
// may be admitted before the next note: so not each admission is a write, and whoever finds the note counts those as
// admitted.
import type { WindowState } from '../store.ts'
import type { Cell } from './cells.ts'
import type { Windows } from './rate-windows.ts'

/** A window that counts is noted anew after so long. */
export const NOTE_MS = 1000
/** How much of its limit a note goes ahead: a tenth. */
const PARTS = 10

interface Note {
  /** how many more it covers */
  left: number
  /** are half of that */
  readonly half: number
  readonly at: number
}

export class Notes {
  readonly #windows: Windows
  readonly #now: () => number
  readonly #notes = new Map<string, Note>()
  /** how many there may be before those are looked for that cover nothing any more */
  #most = 1024

  /** @param now milliseconds of a clock that never goes back */
  constructor (windows: Windows, now: () => number) {
    this.#windows = windows
    this.#now = now
  }

  /** One more was admitted in each of them. @returns what is to be written down now, as `WINDOW` */
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

  /** It could not be written down. */
  drop (name: string): void {
    this.#notes.delete(name)
  }

  #forget (now: number): void {
    for (const [name, { at }] of this.#notes) if (now >= at + NOTE_MS) this.#notes.delete(name)
    this.#most = Math.max(1024, this.#notes.size * 2)
  }
}
