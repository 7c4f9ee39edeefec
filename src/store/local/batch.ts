// The decisions since the last batch was sent: what the writer records, and what changes in memory when it is recorded
// or fails.
import { GatewayError } from '../../errors.ts'
import type { Nanos } from '../../money/nanos.ts'
import { type Books, type Charge, changeOf } from './balances.ts'
import type { Booking, EntryKind } from '../store.ts'
import type { Sums } from '../sums.ts'
import { ENTRY, type Cell } from './cells.ts'
import type { Batch, KnownEntry, Write } from './writer.ts'

interface Announced {
  readonly seq: number
  readonly booking: Booking
  isNew: boolean
}

export interface Settled {
  readonly seq: number
  readonly charge: Charge
  /** released while the batch was on its way: a failure reopens no hold */
  isReleased: boolean
  /** withdrawn before the batch was sent: it is not written */
  isWithdrawn: boolean
}

interface Refund {
  readonly seq: number
  readonly charge: Charge
}

const [KIND, REFERENCE] = [ENTRY.indexOf('kind'), ENTRY.indexOf('reference')]
/** Frozen, so that nothing is put on it: typed as a list that is made later. */
const NONE = Object.freeze([]) as unknown as never[]
/** Kinds of entries that a settlement writes. */
const CHARGES: readonly unknown[] = ['settle', 'shortfall'] satisfies readonly EntryKind[]

/** The store whose decisions they are. */
export interface BatchOwner {
  onEnd (decisions: Decisions, isRecorded: boolean): void
}

/** A write that grows. */
type Rows = { -readonly [Of in keyof Write]: Write[Of][number][] }

/** Of most kinds a batch has none: their lists are made when there is one. */
export class Decisions implements Batch {
  readonly #write: Rows = { entries: NONE, progress: NONE, forget: NONE, tasks: NONE, windows: NONE, failures: NONE }
  #announced: Announced[] = NONE
  #settled: Settled[] = NONE
  #refunds: Refund[] = NONE
  isRecorded = false
  #hasWithdrawn = false
  readonly #books: Books
  readonly #owner: BatchOwner
  /** made when somebody waits for it: with the memory driver nobody does */
  #outcome: PromiseWithResolvers<void> | undefined
  #failure: GatewayError | undefined

  constructor (books: Books, owner: BatchOwner) {
    this.#books = books
    this.#owner = owner
  }

  get write (): Write {
    return this.#write
  }

  /** Puts more on a list of what is written. @param cells the first ones become the list: they are not the caller's */
  put<Of extends keyof Rows> (of: Of, cells: Rows[Of]): void {
    const list: (string | Cell)[] = this.#write[of]
    if (list === NONE) this.#write[of] = cells
    else for (let i = 0; i < cells.length; i++) list.push(cells[i]!)
  }

  announce (seq: number, booking: Booking): Announced {
    const one: Announced = { seq, booking, isNew: true }
    if (this.#announced === NONE) this.#announced = [one]
    else this.#announced.push(one)
    return one
  }

  refund (seq: number, charge: Charge): void {
    if (this.#refunds === NONE) this.#refunds = []
    this.#refunds.push({ seq, charge })
  }

  /** Rejects when the batch failed as a whole. */
  get committed (): Promise<void> {
    if (this.#outcome !== undefined) return this.#outcome.promise
    if (this.isRecorded) return Promise.resolve()
    const outcome = this.#outcome = Promise.withResolvers<void>()
    outcome.promise.catch(() => {})                           // a rejection without a waiting caller is no error
    if (this.#failure !== undefined) outcome.reject(this.#failure)
    return outcome.promise
  }

  /** The settlement of a request, unless it was withdrawn. Looked for only where a request ends in an unusual way. */
  settlementOf (id: string): Settled | undefined {
    return this.#settled.find(({ charge: { hold }, isWithdrawn }) => hold.request_id === id && !isWithdrawn)
  }

  /** @param seq number of its entry */
  settle (seq: number, charge: Charge): Settled {
    const one: Settled = { seq, charge, isReleased: false, isWithdrawn: false }
    if (this.#settled === NONE) this.#settled = [one]         // an array that has grown has space for seventeen
    else this.#settled.push(one)
    return one
  }

  /**
   * Releases the hold of a settlement in this batch, should the batch fail. When it has answered nothing is held. Never
   * rejects.
   */
  async release (id: string): Promise<void> {
    const one = this.settlementOf(id)
    if (one !== undefined) one.isReleased = true
    await this.committed.catch(() => {})
  }

  /** Takes back a settlement before the batch is sent: no hold is left, and no entry is written. */
  withdraw (id: string): void {
    const one = this.settlementOf(id)!
    one.isWithdrawn = true
    this.#hasWithdrawn = true
    this.#books.revoke(one.charge)
    this.#books.release(id)
  }

  /** Fixes what is written: no settlement can be withdrawn any more. */
  seal (): void {
    if (!this.#hasWithdrawn) return
    const withdrawn = new Set<Cell | undefined>()
    for (const { charge, isWithdrawn } of this.#settled) {
      if (isWithdrawn) withdrawn.add(charge.hold.request_id)
    }
    const { entries } = this.#write
    let end = 0
    for (let i = 0; i < entries.length; i += ENTRY.length) {
      if (CHARGES.includes(entries[i + KIND]) && withdrawn.has(entries[i + REFERENCE])) continue
      for (let k = 0; k < ENTRY.length; k++) entries[end++] = entries[i + k]!
    }
    entries.length = end
  }

  /** Adds the changes that memory has made and the ledger has not recorded yet. */
  addTo (sums: Sums): void {
    for (const { booking } of this.#announced) {
      if (booking.kind === 'debit') sums.add(booking.account, undefined, changeOf(booking), undefined)
    }
    for (const { charge: { hold: { purses }, nanos }, isWithdrawn } of this.#settled) {
      if (isWithdrawn) continue
      sums.add(purses.account.id, purses.key.id, -nanos, purses.day?.id)
    }
  }

  onWritten (known: readonly KnownEntry[]): void {
    if (this.#announced !== NONE) this.#endBookings(known)
    if (known.length > 0) this.#correct(known)
    if (this.#refunds !== NONE) this.#giveBack(known)
    this.isRecorded = true
    this.#owner.onEnd(this, true)
    this.#outcome?.resolve()
  }

  #endBookings (known: readonly KnownEntry[]): void {
    for (const one of this.#announced) {
      one.isNew = amountOf(known, one.seq) === undefined
      if (one.isNew) this.#books.deposit(one.booking)
      else this.#books.withdraw(one.booking)
    }
  }

  #correct (known: readonly KnownEntry[]): void {
    for (const { seq, charge } of this.#settled) {
      const nanos = amountOf(known, seq)                      // one that was withdrawn was not written
      if (nanos !== undefined) this.#books.correct(charge, -nanos)
    }
  }

  #giveBack (known: readonly KnownEntry[]): void {
    for (const { seq, charge } of this.#refunds) if (amountOf(known, seq) === undefined) this.#books.giveBack(charge)
  }

  onFailed (error: Error): void {
    for (const { booking } of this.#announced) this.#books.withdraw(booking)
    for (const { charge, isReleased, isWithdrawn } of this.#settled) {
      if (isWithdrawn) continue
      this.#books.revoke(charge)
      if (isReleased) this.#books.release(charge.hold.request_id)
    }
    this.#owner.onEnd(this, false)
    this.#failure = new GatewayError('service_unavailable', { cause: error })
    this.#outcome?.reject(this.#failure)
  }
}

/** Undefined: the entry of this number is new. */
function amountOf (known: readonly KnownEntry[], seq: number): Nanos | undefined {
  return known.find(([one]) => one === seq)?.[1]
}

/** The amount charged, after the commit. @throws {GatewayError} the settlement was withdrawn meanwhile */
export function chargeIn ({ charge, isWithdrawn }: Settled): Nanos {
  if (!isWithdrawn) return charge.nanos
  throw new GatewayError('service_unavailable', {
    cause: new Error('it was withdrawn: the request has failed meanwhile')
  })
}
