// What the store of one process writes with: memory decides, and a writer keeps what was decided. Embedded, that is a
// thread with SQLite; with the memory driver nothing outlives the process, and it is there as soon as it is sent.
import type { Awaitable } from '../../base/awaitable.ts'
import type { Nanos } from '../../money/nanos.ts'
import type { AuditLine, BookingKind, Change, Difference, StoredRecord } from '../store.ts'
import type { Answer, Task, TaskPage } from '../tasks.ts'
import type { Cell } from './cells.ts'

/** What is recorded together: one transaction. */
export interface Write {
  /** of `ENTRY` each */
  readonly entries: readonly Cell[]
  /** of `PROGRESS` each, later ones replace earlier ones */
  readonly progress: readonly Cell[]
  /** request ids whose progress is over */
  readonly forget: readonly string[]
  /** of `TASK` each, later ones replace earlier ones */
  readonly tasks: readonly Cell[]
  /** of `WINDOW` each */
  readonly windows: readonly Cell[]
}

/** The number of an entry whose kind and reference the ledger had already, with the amount that counts. */
export type KnownEntry = readonly [seq: number, nanos: Nanos]

/** Is told the one or the other, once. */
export interface Batch {
  readonly write: Write
  onWritten (known: readonly KnownEntry[]): void
  /** nothing of it is recorded */
  onFailed (error: Error): void
}

/** Records, the audit log, tasks and answers, and what was booked under a reference. */
export interface Documents {
  booked (kind: BookingKind, reference: string): Nanos | undefined
  records (): readonly StoredRecord[]
  /** @returns false when the record is not of the version before: nothing is changed */
  change (change: Change): boolean
  changes (after: number, limit: number): readonly AuditLine[]
  task (id: string): Task | undefined
  /** @returns undefined: `after` is none of them */
  tasks (account: string, page: TaskPage): readonly Task[] | undefined
  /** A page of all of them. @param after id of the last one before; '' at first */
  allTasks (after: string): readonly Task[]
  removeTask (id: string): boolean
  forgetTasks (createdBefore: number): number
  answer (account: string, name: string): Answer | undefined
  /** A page of all of them. @param account and name, of the last one before; '' at first */
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

/** Told id, sum of the entries and sum as it is kept, of several. */
export type OnCompared = (of: Difference['of'], cells: readonly Cell[]) => void

export interface Writer {
  /** it has answered `send` and `ask` when they return */
  readonly isPrompt: boolean
  /** why nothing can be recorded at this moment, as far as is known */
  readonly trouble: Error | undefined
  /** In the order of the calls. */
  send (batch: Batch): void
  /** In the order of the calls, after what was sent before. @throws {Error} nobody knows whether it was done */
  ask<Of extends keyof Documents> (of: Of, ...args: Parameters<Documents[Of]>): Awaitable<ReturnType<Documents[Of]>>
  /**
   * All entries after a number, `ENTRY` each with amounts as text, oldest first; those that are written meanwhile are
   * left out.
   */
  slices (after: number): AsyncIterable<readonly Cell[]>
  /**
   * Adds up all entries again, those that are written meanwhile included; one at a time.
   * @param oldest days and months before it are not compared
   * @returns how many entries there are
   */
  verify (oldest: string, onCompared: OnCompared): Promise<number>
  /** When all that was sent is recorded, or can't be. @param windows all that count, of `WINDOW` each */
  close (windows: readonly Cell[]): Awaitable<void>
}

/** Of which a start finds what the process before it had come to. */
export interface LastingWriter extends Writer {
  /**
   * @param onCure it can be recorded again
   * @throws {Error} it can't be used: says why
   */
  open (onLoaded: (of: Loaded, cells: readonly Cell[]) => void, onCure: () => void): Promise<Opened>
}

/**
 * Rows of the same kind: account and balance; key and what it spent; day or month, key, and what that spent in it;
 * request id and its charge; a window as `WINDOW`; an open task as `TASK`.
 */
export type Loaded = 'account' | 'key' | 'period' | 'charge' | 'window' | 'task'

export interface Opened {
  readonly last: { readonly seq: number, readonly time: number }
  /** until when a process that noted no windows may have admitted requests; 0: it ended cleanly, or never did */
  readonly aliveUntil: number
  /** how many requests died with that process, and were charged what they had produced */
  readonly recovered: number
  /** how many entries were on the disk before, and are not there any more */
  readonly lost: number
}
