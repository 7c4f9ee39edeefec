// The interface to what the ledger adds up to, period by period, and to its newest entries. A charge and its share of
// the sums are written in one transaction, so the sum of all rollups is the sum of the entries that keys have caused.
import type { Awaitable } from '../base/awaitable.ts'
import type { Nanos } from '../money/nanos.ts'
import type { Usage } from '../money/usage.ts'
import type { Entry } from './store.ts'

/** By what rollups are kept apart, beside their period. */
export type RollupGroup = 'account' | 'key' | 'model' | 'channel'

/** Calendar units of UTC. */
export type RollupPeriod = 'hour' | 'day' | 'month'

/** The sum of what was used in one period: of all, or of one member of each group that was asked for. */
export interface Rollup {
  /** milliseconds since the epoch: when its hour, or its day or month in UTC, begins */
  readonly from: number
  readonly account?: string
  readonly key?: string
  readonly model?: string
  /** absent also where the model has none */
  readonly channel?: string
  /** settlements, those of nothing too */
  readonly requests: number
  /** requests that ended without one, behind the check of their key, and tasks that failed */
  readonly errors: number
  readonly usage: Usage
  /** charged, less what was given back by an `adjust` */
  readonly nanos: Nanos
  /** cost beyond holds, which the operator bears */
  readonly shortfall: Nanos
}

export interface RollupQuery {
  /**
   * hours are kept for the last 7 days, days and months of UTC for ever; span: the hours from `from` to `to` as one
   * period that begins at `from`, such as a day of another time zone
   */
  readonly by: RollupPeriod | 'span'
  /** milliseconds since the epoch: periods that begin at `from` or later, and before `to` */
  readonly from: number
  readonly to: number
  readonly groups: readonly RollupGroup[]
  /** only what belongs to these */
  readonly only: Readonly<Partial<Record<RollupGroup, string>>>
}

/** A request that ended without a settlement, or a task that failed. */
export interface Failure {
  readonly account: string
  readonly key: string
  /** '' where none was chosen yet */
  readonly model: string
  readonly channel?: string
}

/** What was told by `failed`, added up. */
export interface FailureCount extends Failure {
  /** ISO 8601, UTC: when its hour begins; where hours are not kept any more, its day */
  readonly at: string
  readonly count: number
}

export interface EntryQuery {
  /** id of an entry: only entries written before it; absent: from the newest on */
  readonly before?: string
  /** most entries */
  readonly limit: number
  readonly account?: string
  readonly key?: string
  readonly model?: string
  /** request id, or the reference of a booking as its account knows it */
  readonly reference?: string
  /** milliseconds since the epoch: written at `from` or later, and before `to` */
  readonly from?: number
  readonly to?: number
}

export interface EntryPage {
  /** newest first */
  readonly entries: readonly Entry[]
  /** the next page's `before`; absent: there is none */
  readonly next?: string
}

/** Every driver has this beside `Store`. */
export interface Rollups {
  /** The oldest first; periods and groups without anything are left out. */
  rollups (query: RollupQuery): Awaitable<readonly Rollup[]>
  /**
   * Counts a request that ended without a settlement, or a task that failed. Kept at the next best moment: a kill may
   * lose the last ones.
   */
  failed (failure: Failure): void
  /** The newest entries first, found by an index: a page costs the same wherever it is. */
  newest (query: EntryQuery): Awaitable<EntryPage>
}
