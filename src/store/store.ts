// The interface to the state that outlives a request: balances, holds, the ledger. Every decision is one atomic call.
// Invariants, whatever runs in parallel and whatever dies: available = balance - open holds, and never below zero;
// balance = sum of entries; one settlement per request; a hold that is settled or released is gone.
// An account that was never credited has a balance of zero; nothing has to be opened first.
// A driver may answer at once or with a promise; whoever calls must take both.
import type { Nanos } from '../money/nanos.ts'
import type { Usage, UsageSource } from '../money/usage.ts'

type Awaitable<T> = T | Promise<T>

export interface HoldRequest {
  readonly request_id: string
  readonly account: string
  readonly key: string
  /** not negative; 0 for what is free, which still gets its entry */
  readonly nanos: Nanos
  /** total that the key may spend, ever; absent: no limit */
  readonly usage_limit?: Nanos
}

/**
 * Refusals carry the numbers that were compared (lesson 9), in nano-dollars: `needed` is more than `available`, which
 * is what `held_by_others` leaves of the balance, or of the key's limit. So waiting for those others can help where
 * `needed` is at most both together. Where both limits refuse, the one that waiting cannot help is named, balance first.
 */
export type HoldResult =
  | { readonly kind: 'held' }
  | { readonly kind: 'refused', readonly by: 'balance' | 'usage_limit', readonly needed: Nanos, readonly available: Nanos, readonly held_by_others: Nanos }

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
}

export type EntryKind = 'credit' | 'settle' | 'adjust' | 'shortfall'

export interface Entry {
  /** ordered by time: sorts as text in the order of writing */
  readonly id: string
  readonly kind: EntryKind
  readonly account: string
  readonly key?: string
  /** request id, or the reference of a credit; unique together with `kind` */
  readonly reference: string
  /** signed change of the balance in nano-dollars, so that the balance is the sum of all entries without exception; 0 in a shortfall */
  readonly nanos: Nanos
  /** only in a shortfall: what the answer cost beyond its hold, which the operator bears */
  readonly shortfall?: Nanos
  /** ISO 8601, UTC */
  readonly at: string
  readonly model?: string
  readonly channel?: string
  readonly usage?: Usage
  readonly usage_source?: UsageSource
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

export interface Store {
  /**
   * Adds money once per reference, ever, whatever the account: put the account's id into the reference.
   * @returns false when the reference was credited before (nothing changes)
   * @throws {RangeError} a negative amount
   */
  credit (account: string, reference: string, nanos: Nanos): Awaitable<boolean>
  /**
   * Takes a hold against the account's balance and the key's usage limit, both or none.
   * @throws {Error} the request id has an open hold or a settlement
   * @throws {RangeError} a negative amount
   */
  hold (request: HoldRequest): Awaitable<HoldResult>
  /**
   * Turns the hold into an entry: `settle` of at most what was held, and a `shortfall` for the rest. Idempotent by request id:
   * a repetition changes nothing, whatever it says.
   * @returns what the client was charged, the first time
   * @throws {Error} there is neither an open hold nor an earlier settlement
   * @throws {RangeError} a negative amount
   */
  settle (settlement: Settlement): Awaitable<Nanos>
  /** Gives a hold back. Nothing happens when there is none (settled, released, never taken). */
  release (requestId: string): Awaitable<void>
  balance (account: string): Awaitable<Balance>
  keyUsage (key: string): Awaitable<KeyUsage>
  /** of all accounts: what must be zero when nothing runs (lesson 6) */
  openHolds (): Awaitable<number>
  /** all entries, oldest first; those that are written meanwhile may be missing */
  entries (): AsyncIterable<Entry>
  close (): Awaitable<void>
}
