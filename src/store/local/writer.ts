// The interface of a store of one process to its writer: memory decides, and the writer records the decisions. The
// embedded driver's is a thread with SQLite; the memory driver's has recorded a batch as soon as it is sent, and
// nothing outlives the process.
import type { Awaitable } from '../../base/awaitable.ts'
import type { Nanos } from '../../money/nanos.ts'
import type { EntryQuery, RollupQuery } from '../rollups.ts'
import type { AuditLine, BookingKind, Change, Difference, StoredRecord } from '../store.ts'
import type { Answer, Task, TaskPage, TaskSearch } from '../tasks.ts'
import type { Cell } from './cells.ts'

/** The content of one transaction. */
export interface Write {
  /** rows of `ENTRY` */
  readonly entries: readonly Cell[]
  /** rows of `PROGRESS`; later ones replace earlier ones */
  readonly progress: readonly Cell[]
  /** request ids whose progress records are deleted */
  readonly forget: readonly string[]
  /** rows of `TASK`; later ones replace earlier ones */
  readonly tasks: readonly Cell[]
  /** rows of `WINDOW` */
  readonly windows: readonly Cell[]
  /** rows of `FAILURE` */
  readonly failures: readonly Cell[]
}

export const NO_WRITE: Write = Object.freeze({ entries: [], progress: [], forget: [], tasks: [], windows: [],
  failures: [] })

/**
 * An entry whose kind and reference were in the ledger already: its number, and the amount recorded there, which
 * counts.
 */
export type KnownEntry = readonly [seq: number, nanos: Nanos]

/** A write and its result: one of the two methods is called, once. */
export interface Batch {
  readonly write: Write
  onWritten (known: readonly KnownEntry[]): void
  /** the transaction failed as a whole */
  onFailed (error: Error): void
}

/** The beginning of an answer to a query of rollups, read without holding up writes. */
export interface RollupStep {
  /** rows as `readRollups` takes them, by period and then by members */
  readonly cells: readonly Cell[]
  /** the next query's `from`; absent: that was all */
  readonly next?: number
}

/** The beginning of a page of the newest entries. */
export interface EntryStep {
  /** rows of `ENTRY` with amounts as text, newest first */
  readonly cells: readonly Cell[]
  /** the next query's `before`; absent: there are no older ones */
  readonly next?: string
}

/** Records, the audit log, tasks and answers; and of the entries: sums, the newest, what a reference was booked for. */
export interface Documents {
  /** As many periods as are read in a moment. */
  rollups (query: RollupQuery): RollupStep
  /** As many entries, at most `limit`, as are found in a moment. */
  newest (query: EntryQuery): EntryStep
  booked (kind: BookingKind, reference: string): Nanos | undefined
  records (): readonly StoredRecord[]
  /** @returns false when the version before is not the stored one: nothing is changed */
  change (change: Change): boolean
  changes (after: number, limit: number): readonly AuditLine[]
  newestChanges (before: number | undefined, limit: number): readonly AuditLine[]
  task (id: string): Task | undefined
  /** @returns undefined: `after` is no task of this account */
  tasks (account: string, page: TaskPage): readonly Task[] | undefined
  newestTasks (search: TaskSearch): readonly Task[]
  /** A page of all tasks. @param after id of the last one before; '' at first */
  allTasks (after: string): readonly Task[]
  removeTask (id: string): boolean
  forgetTasks (createdBefore: number): number
  answer (account: string, name: string): Answer | undefined
  /** A page of all answers. @param account and name, of the last one before; '' at first */
  allAnswers (account: string, name: string): readonly Answer[]
  keepAnswer (answer: Answer): void
  dropAnswer (account: string, name: string): void
  forgetAnswers (createdBefore: number, most: number): number
}

export function answerFrom<Of extends keyof Documents> (
  documents: Documents, of: Of, args: Parameters<Documents[Of]>
): ReturnType<Documents[Of]> {
  const answer: (...args: readonly never[]) => unknown = documents[of]
  return answer.apply(documents, args as never[]) as ReturnType<Documents[Of]>
}

/**
 * Called with rows of id, sum of the entries, and stored sum; of rollups only those that differ: id, name of the sum,
 * sum of the entries, and stored sum.
 */
export type OnCompared = (of: Difference['of'], cells: readonly Cell[]) => void

export interface Writer {
  /** true: `send` and `ask` have done their work when they return */
  readonly isPrompt: boolean
  /** why nothing can be recorded at this moment, as far as is known */
  readonly trouble: Error | undefined
  /** Records batches in the order of the calls. */
  send (batch: Batch): void
  /**
   * Calls run in their order, after the batches sent before. @throws {Error} it is unknown whether the call was done
   */
  ask<Of extends keyof Documents> (of: Of, ...args: Parameters<Documents[Of]>): Awaitable<ReturnType<Documents[Of]>>
  /**
   * All entries after a number, as rows of `ENTRY` with amounts as text, oldest first; entries written meanwhile are
   * left out.
   */
  slices (after: number): AsyncIterable<readonly Cell[]>
  /**
   * Adds up all entries again, entries written meanwhile included; one call at a time.
   * @param oldest earlier days and months are not compared
   * @returns number of entries
   */
  verify (oldest: string, onCompared: OnCompared): Promise<number>
  /**
   * Ends when every sent batch is recorded or has failed. @param windows all windows that count, as rows of `WINDOW`
   */
  close (windows: readonly Cell[]): Awaitable<void>
}

/** A writer whose data outlives the process, and is loaded by the next one. */
export interface LastingWriter extends Writer {
  /**
   * @param onCure writing works again
   * @throws {Error} it can't be used: says why
   */
  open (onLoaded: (of: Loaded, cells: readonly Cell[]) => void, onCure: () => void): Promise<Opened>
}

/**
 * Rows of the same kind: account and balance; key and what it spent; day or month, key, and what that spent in it;
 * request id and its charge; account and the sum of its credits, in whole US dollars and in nano-dollars beside them; a
 * window as `WINDOW`; an open task as `TASK`.
 */
export type Loaded = 'account' | 'key' | 'period' | 'charge' | 'credits' | 'window' | 'task'

export interface Opened {
  readonly last: { readonly seq: number, readonly time: number }
  /** until when a process that noted no windows may have admitted requests; 0: it ended cleanly, or there was none */
  readonly aliveUntil: number
  /** requests that died with that process, and were charged what they had produced */
  readonly recovered: number
}
