// What this process knows of its own requests: their holds and charges. Redis decides; this says who asks, for which
// account, and what is to be renewed. A few thousand charges are remembered, so that settling again or giving back
// needs no question.
import type { Nanos } from '../../money/nanos.ts'
import type { Settlement } from '../store.ts'

export interface Hold {
  readonly account: string
  readonly key: string
  /** '' or a day, and the oldest that is kept when it is counted */
  readonly day: string
  readonly oldest: string
  /** what it was taken from while Redis was away; absent: Redis has it */
  readonly aside?: string
  /** as Redis said last */
  nanos: Nanos
  /** when it was taken or its progress noted last, and when its lease was renewed; of a clock that never goes back */
  notedAt: number
  renewedAt: number
  /**
   * the text of an entry that gives back what Redis may charge by itself, should it not hear of us: what we have told
   * it of our progress
   */
  progress?: string
}

export interface Charge {
  readonly hold: Hold
  readonly settlement: Settlement
  nanos: Nanos
  /** rejects when it could not be written down */
  readonly recorded: Promise<unknown>
  isGivenBack: boolean
}

/** As many as balances.ts remembers at least, of those that can be given back and of amounts. */
const REMEMBERED = 50_000

/** The last so many of a kind, and up to as many before. */
export class Recent<T> {
  readonly #most: number
  #newer = new Map<string, T>()
  #older = new Map<string, T>()

  constructor (most = REMEMBERED) {
    this.#most = most
  }

  get (id: string): T | undefined {
    return this.#newer.get(id) ?? this.#older.get(id)
  }

  set (id: string, one: T): void {
    this.#newer.set(id, one)
    if (this.#newer.size < this.#most) return
    this.#older = this.#newer
    this.#newer = new Map()
  }

  delete (id: string): void {
    this.#newer.delete(id)
    this.#older.delete(id)
  }
}
