// The interface to the state that outlives a request: balances, holds, the ledger. Every decision is one atomic call.
// Invariants, whatever runs in parallel and whatever dies: available = balance - open holds, and never below zero;
// balance = sum of entries; one settlement per request; a hold that is settled or released is gone.
// An account that was never credited has a balance of zero; nothing has to be opened first.
// A driver may answer at once or with a promise; whoever calls must take both.
import type { Awaitable } from '../base/awaitable.ts'
import type { Nanos } from '../money/nanos.ts'
import type { Usage, UsageSource } from '../money/usage.ts'

export interface HoldRequest {
  readonly request_id: string
  readonly account: string
  readonly key: string
  /** not negative; 0 for what is free, which still gets its entry */
  readonly nanos: Nanos
  /** Where so much is there in total, but not `nanos`, all that is there is held; absent: `nanos` */
  readonly least?: Nanos
  /** total that the key may spend, ever; absent: no limit */
  readonly usage_limit?: Nanos
  /**
   * the calendar day that the charge belongs to, such as "2026-11-21", whenever it is settled; absent: it counts for no
   * day and no month
   */
  readonly day?: string
  /** what the key may spend on that day; absent: no limit */
  readonly usage_limit_day?: Nanos
  /** what it may spend in the month of that day; absent: no limit */
  readonly usage_limit_month?: Nanos
  /** While the balance is below this, who pays holds one at a time; absent: 0 */
  readonly low_balance?: Nanos
}

/**
 * Refusals carry the numbers that were compared (src/README.md#say-numbers), in nano-dollars: `needed` is more than
 * `available`, which is what `held_by_others` leaves of the balance, or of the key's limit. So waiting for those others
 * can help where `needed` is at most both together. Where several refuse, one that waiting cannot help is named: the
 * balance first, then the key's limit in total, that per month, that per day. `period` tells the latter two from the
 * first. By `low_balance`: the balance is below it, and another hold is open; `available` is what that one leaves.
 */
export type HoldResult =
  /** `nanos`: of this request, all together */
  | { readonly kind: 'held', readonly nanos: Nanos }
  | { readonly kind: 'refused', readonly by: 'balance' | 'usage_limit' | 'low_balance',
    readonly period?: 'day' | 'month', readonly needed: Nanos, readonly available: Nanos,
    readonly held_by_others: Nanos }

export interface Settlement {
  readonly request_id: string
  /** what it costs; not negative */
  readonly nanos: Nanos
  /** the public id of the model, or the name of the route where none was called */
  readonly model: string
  /** of the model that answered */
  readonly channel?: string
  readonly usage: Usage
  readonly usage_source: UsageSource
  /** of the price that `nanos` was computed with */
  readonly price_version?: string
}

/**
 * Requests in any 60 seconds, whatever begins them: never more than `limit` are admitted (src/README.md#strict-window).
 */
export interface WindowLimit {
  /** of what is counted, such as "key:acme-dev" */
  readonly name: string
  /** 1 or more; may change from one question to the next, and what was counted stays so */
  readonly limit: number
}

/** Requests at a time. */
export interface SlotLimit extends WindowLimit {}

export interface Admission {
  readonly request_id: string
  /** whose key it is, so that a driver can keep together what is asked together; absent: nobody's */
  readonly account?: string
  /** counted in all of them or in none */
  readonly windows: readonly WindowLimit[]
  /** taken until `leave` */
  readonly slot?: SlotLimit
}

export interface WindowState {
  readonly name: string
  readonly limit: number
  /** how many more would be admitted now */
  readonly remaining: number
  /** milliseconds until `remaining` grows, if nobody else comes: at most 60,000; 0 where nothing is counted */
  readonly next_ms: number
  /** milliseconds until all of `limit` would be, if nobody else comes */
  readonly reset_ms: number
}

/**
 * `windows` is as it is after the admission, in the order of the question. A refusal has changed nothing. It names a
 * window before a slot, and of several windows the one that opens last; `taken` is how many hold the slots now.
 */
export type AdmissionResult =
  | { readonly kind: 'admitted', readonly windows: readonly WindowState[] }
  | { readonly kind: 'refused', readonly by: 'window', readonly name: string, readonly windows: readonly WindowState[] }
  | { readonly kind: 'refused', readonly by: 'slot', readonly name: string, readonly taken: number,
    readonly windows: readonly WindowState[] }

/** What an operator does to a balance: money comes in, is given back, or is taken. */
export type BookingKind = 'credit' | 'refund' | 'debit'

export type EntryKind = BookingKind | 'settle' | 'adjust' | 'shortfall'

export interface Booking {
  readonly kind: BookingKind
  readonly account: string
  /** unique together with `kind`, ever, whatever the account: put the account's id into it */
  readonly reference: string
  /** not negative: a debit takes it, the others add it */
  readonly nanos: Nanos
  /** why, in words for people */
  readonly reason?: string
}

/**
 * `known`: the reference was booked before; `short`: a debit of more than is there beside open holds. Both have changed
 * nothing.
 */
export type Booked = 'new' | 'known' | 'short'

export interface Entry {
  /** ordered by time: sorts as text in the order of writing */
  readonly id: string
  readonly kind: EntryKind
  readonly account: string
  readonly key?: string
  /** request id, or the reference of a credit, refund or debit; unique together with `kind` */
  readonly reference: string
  /**
   * signed change of the balance in nano-dollars, so that the balance is the sum of all entries without exception; 0 in
   * a shortfall
   */
  readonly nanos: Nanos
  /** only in a shortfall: what the answer cost beyond its hold, which the operator bears */
  readonly shortfall?: Nanos
  /** ISO 8601, UTC */
  readonly at: string
  readonly model?: string
  readonly channel?: string
  readonly usage?: Usage
  readonly usage_source?: UsageSource
  /** of the price that it was computed with */
  readonly price_version?: string
  /**
   * the calendar day that its hold was taken on, in the key's time zone, such as "2026-11-21": it counts for that day,
   * and for its month
   */
  readonly day?: string
  /** of a booking */
  readonly reason?: string
}

export interface Balance {
  readonly balance: Nanos
  readonly held: Nanos
  readonly open_holds: number
}

export interface KeyUsage {
  readonly spent: Nanos
  /** what its open holds could add */
  readonly held: Nanos
}

/** An account's balance, or what a key has spent, ever or in a period, where it is not what its entries add up to. */
export interface Difference {
  readonly of: 'account' | 'key' | 'period'
  /** of a period, with the key's after a space */
  readonly id: string
  /** what they add up to */
  readonly entries: Nanos
  readonly kept: Nanos
  /** memory decides; the disk is what the next start begins with */
  readonly where: 'memory' | 'disk'
}

/** How much was added up again, and what came out different: nothing, if all is well. */
export interface Verification {
  readonly entries: number
  readonly accounts: number
  readonly keys: number
  readonly differences: readonly Difference[]
}

/** Of a store that is somewhere else. */
export interface StoreHealth {
  readonly isUp: boolean
  /** true: it is not, and the operator wants no key to be good until it is */
  readonly refusesKeys: boolean
  /** true: it is not, and nothing is served until it is, or hardly anything */
  readonly refusesRequests: boolean
  /** seconds that its replicas are behind: a failover may forget so much of holds and admissions */
  readonly lagSeconds: number
  /** charges that it does not know yet */
  readonly pending: number
  /** open ones of this process */
  readonly holds: number
}

export interface Store {
  /** absent: it is in this process */
  readonly health?: StoreHealth
  /**
   * why `hold` refuses everything at this moment: what it will cost could not be recorded; undefined: it could, as far
   * as is known
   */
  readonly trouble?: Error | undefined
  /**
   * Adds money to a balance or takes it, once per reference. What comes in can be spent when this has answered; what is
   * taken is there, beside what open holds may need: no balance goes below zero, and no request that runs is cut for
   * it. What keys have spent stays as it is. When it has answered, a kill of this process loses it no more.
   * @throws {RangeError} a negative amount, or a balance of more than 2^63 - 1 nano-dollars
   * @throws {GatewayError} service_unavailable: it can't be recorded at this moment; `book` it again, with the same
   * reference
   */
  book (booking: Booking): Awaitable<Booked>
  /**
   * Books a credit.
   * @returns false when the reference was credited before (nothing changes)
   * @throws {RangeError} as `book`
   */
  credit (account: string, reference: string, nanos: Nanos): Awaitable<boolean>
  /** What was credited under a reference; undefined: nothing yet. @throws {Error} it can't be read at this moment */
  creditOf (reference: string): Awaitable<Nanos | undefined>
  /**
   * Takes a hold against the account's balance and the key's usage limit, both or none.
   * @throws {GatewayError} service_unavailable: what it will cost could not be recorded at this moment;
   * auth_unavailable: the store is away
   * @throws {Error} the request id has an open hold or a settlement
   * @throws {RangeError} a negative amount
   */
  hold (request: HoldRequest): Awaitable<HoldResult>
  /** What `hold` would answer now, or throw. Changes nothing. */
  wouldHold (request: HoldRequest): Awaitable<HoldResult>
  /**
   * Adds to an open hold, by the balance and by the limits that the hold was taken with. In a refusal `needed` is the
   * hold as it would be, and `held_by_others` is without it: so up to `available` it can be made larger.
   * @param least where there is not so much, but this, all that there is is added; absent: `nanos`, all of it or
   * nothing
   * @throws {GatewayError} service_unavailable, as `hold`
   * @throws {Error} there is no open hold
   * @throws {RangeError} a negative amount
   */
  extend (requestId: string, nanos: Nanos, least?: Nanos): Awaitable<HoldResult>
  /**
   * Turns the hold into an entry: `settle` of at most what was held, and a `shortfall` for the rest. Idempotent by
   * request id: a repetition changes nothing, whatever it says. When it has answered, a kill of this process loses it
   * no more.
   * @returns what the client was charged, the first time; 0 once that was given back
   * @throws {GatewayError} service_unavailable: it can't be recorded, so nothing is charged and the hold is open, of
   * what would have been
   * @throws {Error} there is neither an open hold nor an earlier settlement
   * @throws {RangeError} a negative amount
   */
  settle (settlement: Settlement): Awaitable<Nanos>
  /** Gives a hold back. Nothing happens when there is none (settled, released, never taken). */
  release (requestId: string): Awaitable<void>
  /**
   * The client was told that nothing is charged: gives back the hold, and what a settlement that was begun takes after
   * all. That one is withdrawn and rejects, or it is given back by an `adjust`, once; then a settlement repeated
   * answers 0. For what has begun to settle a moment ago: nothing happens to what was settled long ago (thousands of
   * settlements), or given back before. When it has answered, a kill of this process takes nothing of that back; it
   * waits for a disk that takes nothing.
   */
  refund (requestId: string): Awaitable<void>
  /**
   * Notes what a running request would be charged by now. If it never ends, because this process is killed, it is
   * charged that, as an estimate. Kept at most every few seconds for each request, and not before it has run for as
   * long; nothing happens without an open hold.
   * @throws {RangeError} a negative amount
   */
  progress (soFar: Settlement): Awaitable<void>
  /**
   * Counts a request and takes its slot, if no limit would be passed: all or nothing. The slot belongs to the request
   * id: a request has at most one, and may be counted several times.
   * @throws {GatewayError} auth_unavailable: the store is away
   */
  admit (admission: Admission): Awaitable<AdmissionResult>
  /** What `admit` would answer now, or throw; `windows` is as it is without this request. Changes nothing. */
  wouldAdmit (admission: Admission): Awaitable<AdmissionResult>
  /** Gives the slot back. Nothing happens when there is none. What was counted stays counted. */
  leave (requestId: string): Awaitable<void>
  balance (account: string): Awaitable<Balance>
  /** @param period a day such as "2026-11-21" or a month such as "2026-11", of the last few days; absent: ever */
  keyUsage (key: string, period?: string): Awaitable<KeyUsage>
  /** of all accounts: what must be zero when nothing runs (src/README.md#settle-once) */
  openHolds (): Awaitable<number>
  /**
   * All entries, oldest first; those that are written meanwhile may be missing.
   * @param after id of an entry: only those that follow it
   */
  entries (after?: string): AsyncIterable<Entry>
  /** Adds up all entries again; requests go on meanwhile. */
  verify (): Promise<Verification>
  close (): Awaitable<void>
}

/** A small JSON document, replaced as a whole: an account or a key that was made through the admin API. */
export interface StoredRecord {
  readonly kind: 'account' | 'key'
  readonly id: string
  /** 1, and one more with each change */
  readonly version: number
  /** JSON */
  readonly text: string
}

export interface Change {
  /** what it becomes; absent: nothing but the audit log changes */
  readonly record?: StoredRecord
  /** JSON: who did what, without secrets */
  readonly audit: string
}

export interface AuditLine {
  /** counts up */
  readonly id: number
  /** JSON */
  readonly text: string
}

/** A process that lives, as it says itself. */
export interface Beat {
  /** JSON */
  readonly text: string
  /** since it said so */
  readonly age_ms: number
}

/** What is kept of accounts and keys beside their money. Every driver has both this and `Store`. */
/** Records that were read together. */
export interface ReadRecords {
  /** to be given when they are read again */
  readonly mark: string
  /** whether these are all; else those that have changed since */
  readonly isWhole: boolean
  readonly records: readonly StoredRecord[]
}

export interface Records {
  records (): Awaitable<readonly StoredRecord[]>
  /**
   * Where several processes share the store: what has changed since a mark, or all where that is not known any more.
   * @param mark '' at first
   */
  recordsSince? (mark: string): Promise<ReadRecords>
  /**
   * The record and the line that tells of it, both or none.
   * @returns false when the record is not of the version before, because somebody else was faster: nothing changes
   */
  change (change: Change): Awaitable<boolean>
  /** The audit log after a line, oldest first: it is append-only. */
  changes (after: number, limit: number): Awaitable<readonly AuditLine[]>
  /**
   * Where several processes share the store: calls back when another may have changed a record, within a second.
   * @returns ends that
   */
  watchRecords? (onChange: () => void): () => void
  /** Where several processes share the store: one of them lives, for so long from now. 0: it has ended. */
  beat? (id: string, life_ms: number, text?: string): Awaitable<void>
  /** Those that live. */
  beats? (): Awaitable<readonly Beat[]>
}
