// This process's own requests: their holds and charges. Redis decides; this keeps the account of each request, and the
// leases to be renewed. A few thousand charges are remembered, so that a repeated settlement or a refund needs no read.
import type { Nanos } from '../../money/nanos.ts'
import type { Settlement } from '../store.ts'

export interface Hold {
  readonly account: string
  readonly key: string
  /** '' or a day, and the oldest day that is kept when this one is counted */
  readonly day: string
  readonly oldest: string
  /** id of the budget that it was taken from during an outage; absent: Redis has the hold */
  readonly aside?: string
  /** amount as Redis last said */
  nanos: Nanos
  /** by a steady clock: last progress record or the hold itself, and last renewal of the lease */
  notedAt: number
  renewedAt: number
  /**
   * text of an entry that refunds the charge which Redis makes by itself, from the recorded progress, when this process
   * is silent for too long
   */
  progress?: string
}

export interface Charge {
  readonly hold: Hold
  readonly settlement: Settlement
  nanos: Nanos
  /** rejects when it could not be written into the outbox */
  readonly recorded: Promise<unknown>
  isGivenBack: boolean
}

/** As many as balances.ts remembers at least, both of charges and of amounts. */
const REMEMBERED = 50_000

/** The last so many items, and up to as many before them. */
export class RecentRequests<T> {
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
