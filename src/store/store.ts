// The interface to the state that outlives a request: balances, holds, the ledger. Every decision is one atomic call.
// Invariants, whatever runs in parallel and whatever dies: available = balance - open holds, and never below zero;
// balance = sum of entries; one settlement per request; a hold that is settled or released is gone.
// An account that was never credited has a balance of zero; no call opens an account first.
// A driver may answer at once or with a promise: callers must take both.
import type { Awaitable } from '../base/awaitable.ts'
import type { Nanos } from '../money/nanos.ts'
import type { Usage, UsageSource } from '../money/usage.ts'

export interface HoldRequest {
  readonly request_id: string
  readonly account: string
  readonly key: string
  /** not negative; 0 for a free request, which still gets its entry */
  readonly nanos: Nanos
  /**
   * the smallest hold that is acceptable: where `nanos` is not available but `least` is, all that is available is held;
   * absent: `nanos`
   */
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
  /** while the balance is below this, the account may have one open hold of more than 0 at a time; absent: 0 */
  readonly low_balance?: Nanos
}

/**
 * Refusals carry the numbers that were compared (src/README.md#say-numbers), in nano-dollars: `needed` is more than
 * `available`, and `available` is the balance, or the key's limit, less `held_by_others`. So waiting for other holds to
 * end can help where `needed` is at most `available` + `held_by_others`. Where several limits refuse, one that waiting
 * cannot help is named: the balance first, then the key's limit in total, that per month, that per day; `period` tells
 * the latter two from the first. `low_balance`: the balance is below the request's `low_balance` and another hold is
 * open; `available` is the balance less that hold.
 */
export type HoldResult =
  /** `nanos`: all that the request holds now */
  | { readonly kind: 'held', readonly nanos: Nanos }
  | { readonly kind: 'refused', readonly by: 'balance' | 'usage_limit' | 'low_balance',
    readonly period?: 'day' | 'month', readonly needed: Nanos, readonly available: Nanos,
    readonly held_by_others: Nanos }

export interface Settlement {
  readonly request_id: string
  /** cost of the answer; not negative */
  readonly nanos: Nanos
  /** public id of the model, or the route's name where no model was called */
  readonly model: string
  /** channel of the model that answered */
  readonly channel?: string
  readonly usage: Usage
  readonly usage_source: UsageSource
  /** version of the price that `nanos` was computed with */
  readonly price_version?: string
}

/**
 * A rate limit: of requests in any 60 seconds, wherever they begin, never more than `limit` are admitted
 * (src/README.md#strict-window).
 */
export interface WindowLimit {
  /** name of the counter, such as "key:acme-dev" */
  readonly name: string
  /** 1 or more; may change from one admission to the next, which keeps the count */
  readonly limit: number
}

/** A concurrency limit: requests at a time. */
export interface SlotLimit extends WindowLimit {}

export interface Admission {
  readonly request_id: string
  /**
   * account of the request's key, by which a driver keeps together the counters of one admission; absent: no account
   */
  readonly account?: string
  /** rate limits: the request is counted in all of them or in none */
  readonly windows: readonly WindowLimit[]
  /** concurrency limit: its slot is taken until `leave` */
  readonly slot?: SlotLimit
}

export interface WindowState {
  readonly name: string
  readonly limit: number
  /** requests that would be admitted now */
  readonly remaining: number
  /** milliseconds until `remaining` grows, if no other request is counted: at most 60,000; 0 for an empty window */
  readonly next_ms: number
  /** milliseconds until `remaining` is `limit`, if no other request is counted */
  readonly reset_ms: number
}

/**
 * `windows`: the state after the admission, in the order of the request's windows. A refusal has changed nothing. It
 * names a window before a slot, and of several full windows the one that opens last; `taken`: slots that are taken now.
 */
export type AdmissionResult =
  | { readonly kind: 'admitted', readonly windows: readonly WindowState[] }
  | { readonly kind: 'refused', readonly by: 'window', readonly name: string, readonly windows: readonly WindowState[] }
  | { readonly kind: 'refused', readonly by: 'slot', readonly name: string, readonly taken: number,
    readonly windows: readonly WindowState[] }

/** An operator's change to a balance: money comes in, is given back, or is taken. */
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
 * `known`: the reference was booked before; `short`: a debit of more than is available beside open holds. Neither
 * changes anything.
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
  /** version of the price that `nanos` was computed with */
  readonly price_version?: string
  /**
   * the calendar day that its hold was taken on, in the key's time zone, such as "2026-11-21": it counts for that day,
   * and for its month
   */
  readonly day?: string
  /** of a booking, in words for people */
  readonly reason?: string
}

export interface Balance {
  readonly balance: Nanos
  readonly held: Nanos
  readonly open_holds: number
}

export interface KeyUsage {
  readonly spent: Nanos
  /** most that the key's open holds could add */
  readonly held: Nanos
}

/**
 * A mismatch found by `verify`: an account's balance, what a key has spent, ever or in a period, or a rollup is not the
 * sum of its entries.
 */
export interface Difference {
  readonly of: 'account' | 'key' | 'period' | 'rollup'
  /**
   * of a period: its id, a space, and the key's id; of a rollup: its month, day or hour in UTC, account, key, model
   * and channel, with spaces between
   */
  readonly id: string
  /** of a rollup: the sum that is wrong, such as `nanos` or `output` */
  readonly sum?: string
  /** sum of the entries: nano-dollars, or a count where `sum` says so */
  readonly entries: Nanos
  readonly kept: Nanos
  /** which copy is wrong: memory decides, and the disk is what the next start begins with; a shared store has one */
  readonly where: 'memory' | 'disk' | 'redis'
}

/** The result of `verify`: numbers of what was added up, and the mismatches. */
export interface Verification {
  readonly entries: number
  readonly accounts: number
  readonly keys: number
  readonly differences: readonly Difference[]
}

/** Health of a store outside this process. */
export interface StoreHealth {
  readonly isUp: boolean
  /** true: the store is down, and the operator wants every key refused until it is back */
  readonly refusesKeys: boolean
  /** true: the store is down, and no request is served until it is back, but for few exceptions */
  readonly refusesRequests: boolean
  /** replication lag in seconds: a failover may forget the holds and admissions of so long */
  readonly lagSeconds: number
  /** charges that the store has not received yet */
  readonly pending: number
  /** open holds of this process */
  readonly holds: number
  /** why the ledger counts as lost, and nothing that costs is served until an operator accepts it */
  readonly loss?: string | undefined
}

export interface Store {
  /** absent: the store is in this process */
  readonly health?: StoreHealth
  /**
   * why `hold` refuses every request at this moment: its charge could not be recorded; undefined: it could, as far as
   * is known
   */
  readonly trouble?: Error | undefined
  /**
   * Adds money to a balance or takes it, once per reference. A credit can be spent when this has answered; a debit
   * takes only what is available beside open holds: no balance goes below zero, and no running request is cut for it.
   * What keys have spent stays as it is. When it has answered, a kill of this process loses it no more.
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
  /**
   * The amount booked under a reference, as in the booking; undefined: none yet.
   * @throws {Error} it can't be read at this moment
   */
  amountOf (kind: BookingKind, reference: string): Awaitable<Nanos | undefined>
  /**
   * The sum of an account's credits. Less its balance, it is what the account has paid and was not given back.
   * Undefined: an earlier version has not kept it.
   */
  credited (account: string): Awaitable<Nanos | undefined>
  /**
   * Takes a hold against the account's balance and the key's usage limit, both or none.
   * @throws {GatewayError} service_unavailable: its charge could not be recorded at this moment; auth_unavailable: the
   * store is away
   * @throws {Error} the request id has an open hold or a settlement
   * @throws {RangeError} a negative amount
   */
  hold (request: HoldRequest): Awaitable<HoldResult>
  /** The result that `hold` would have now, errors included. Changes nothing. */
  wouldHold (request: HoldRequest): Awaitable<HoldResult>
  /**
   * Adds to an open hold, within the balance and the limits that the hold was taken with. In a refusal `needed` is the
   * whole hold after the extension, and `held_by_others` leaves this hold out: the hold can grow to `available`.
   * @param least the smallest extension that is acceptable: where `nanos` is not available but `least` is, all that is
   * available is added; absent: `nanos`
   * @throws {GatewayError} service_unavailable, as `hold`
   * @throws {Error} there is no open hold
   * @throws {RangeError} a negative amount
   */
  extend (requestId: string, nanos: Nanos, least?: Nanos): Awaitable<HoldResult>
  /**
   * Turns the hold into an entry: `settle` of at most what was held, and a `shortfall` for the rest. Idempotent by
   * request id: a repetition changes nothing, whatever amount it has. When it has answered, a kill of this process
   * loses it no more.
   * @returns the client's charge of the first settlement; 0 once that was refunded
   * @throws {GatewayError} service_unavailable: it can't be recorded, so nothing is charged and the hold stays open, of
   * the amount that the charge would have been
   * @throws {Error} there is neither an open hold nor an earlier settlement
   * @throws {RangeError} a negative amount
   */
  settle (settlement: Settlement): Awaitable<Nanos>
  /** Gives a hold back. A no-op without an open hold (settled, released, never taken). */
  release (requestId: string): Awaitable<void>
  /**
   * Gives back the hold of a request whose client was told that nothing is charged, and the charge of a settlement that
   * had begun. That settlement is withdrawn and rejects, or is given back by one `adjust`; a repeated `settle` then
   * answers 0. For settlements of a moment ago: one that is thousands of settlements old, or refunded before, stays as
   * it is. When this has answered, a kill of this process undoes none of it; while the disk takes no writes it waits.
   */
  refund (requestId: string): Awaitable<void>
  /**
   * Records what a running request would be charged by now. A request that never ends, because this process is killed,
   * is charged that, as an estimate. Recorded at most every few seconds per request, and not before it has run for as
   * long; a no-op without an open hold.
   * @throws {RangeError} a negative amount
   */
  progress (soFar: Settlement): Awaitable<void>
  /**
   * Counts a request and takes its slot where no limit would be passed: all or nothing. The slot belongs to the request
   * id: a request has at most one, and may be counted several times.
   * @throws {GatewayError} auth_unavailable: the store is away
   */
  admit (admission: Admission): Awaitable<AdmissionResult>
  /** The result that `admit` would have now, errors included; `windows` leaves this request out. Changes nothing. */
  wouldAdmit (admission: Admission): Awaitable<AdmissionResult>
  /** Gives the slot back. A no-op without one. The request stays counted. */
  leave (requestId: string): Awaitable<void>
  balance (account: string): Awaitable<Balance>
  /** @param period a day such as "2026-11-21" or a month such as "2026-11", of the last few days; absent: ever */
  keyUsage (key: string, period?: string): Awaitable<KeyUsage>
  /** open holds of all accounts: zero when no request runs (src/README.md#settle-once) */
  openHolds (): Awaitable<number>
  /**
   * All entries, oldest first; entries written meanwhile may be missing.
   * @param after id of an entry: only entries behind it
   */
  entries (after?: string): AsyncIterable<Entry>
  /** Adds up all entries again, while requests go on. */
  verify (): Promise<Verification>
  close (): Awaitable<void>
}

/** A small JSON document, replaced as a whole: an account, a key or a token that was made through the admin API. */
export interface StoredRecord {
  readonly kind: 'account' | 'key' | 'token'
  readonly id: string
  /** 1, and one more with each change */
  readonly version: number
  /** JSON */
  readonly text: string
}

export interface Change {
  /** the record after the change; absent: only the audit log changes */
  readonly record?: StoredRecord
  /** JSON: actor and action, without secrets; absent: nothing that anybody did, such as when a token was used last */
  readonly audit?: string
}

export interface AuditLine {
  /** counts up from line to line */
  readonly id: number
  /** JSON */
  readonly text: string
}

/** The heartbeat of a living process. */
export interface Beat {
  /** JSON */
  readonly text: string
  /** milliseconds since the heartbeat */
  readonly age_ms: number
}

/** The result of one read of the records. */
export interface ReadRecords {
  /** passed to the next read, which returns changes since this one */
  readonly mark: string
  /** true: `records` are all records; false: those changed since the mark */
  readonly isWhole: boolean
  readonly records: readonly StoredRecord[]
}

/** Accounts, keys and tokens, and the audit log of their changes. Every driver has this beside `Store`. */
export interface Records {
  records (): Awaitable<readonly StoredRecord[]>
  /**
   * Where several processes share the store: the records changed since a mark, or all records where the mark is
   * unknown.
   * @param mark '' at first
   */
  recordsSince? (mark: string): Promise<ReadRecords>
  /**
   * Writes the record and its audit line, both or none.
   * @returns false when the version before is not the stored one, because a concurrent change came first: nothing
   * changes
   */
  change (change: Change): Awaitable<boolean>
  /** The audit log after a line, oldest first: it is append-only. */
  changes (after: number, limit: number): Awaitable<readonly AuditLine[]>
  /** The audit log before a line, newest first. @param before undefined: from the newest line on */
  newestChanges (before: number | undefined, limit: number): Awaitable<readonly AuditLine[]>
  /**
   * Where several processes share the store: calls back within a second after another process may have changed a
   * record.
   * @returns stops watching
   */
  watchRecords? (onChange: () => void): () => void
  /** Where several processes share the store: a process says that it lives for so long from now. 0: it has ended. */
  beat? (id: string, life_ms: number, text?: string): Awaitable<void>
  /** Heartbeats of the processes that live. */
  beats? (): Awaitable<readonly Beat[]>
}
