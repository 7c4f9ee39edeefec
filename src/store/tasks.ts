// The interface to state that outlives the request that began it: tasks with their holds, and answers to idempotent
// requests. Every driver has it beside `Store`, and a task keeps the store's invariants: its hold is open until the
// task ends, it is settled at most once, and both survive the process.
import type { Awaitable } from '../base/awaitable.ts'
import type { Nanos } from '../money/nanos.ts'
import type { FailureCount } from './rollups.ts'
import type { Settlement } from './store.ts'

/** Work of an upstream for a request that was answered long ago. While the task is open it owns that request's hold. */
export interface Task {
  /** public id */
  readonly id: string
  /** id of the request that began it: of its hold, and the reference of its entry */
  readonly request_id: string
  readonly account: string
  readonly key: string
  /** milliseconds since the epoch */
  readonly created: number
  /** the hold while the task is open; then the charge */
  readonly nanos: Nanos
  /** false: the task is over, and its hold is settled or given back */
  readonly is_open: boolean
  /** JSON: state that only the task's own code reads, but for its `status` */
  readonly text: string
}

export type NewTask = Omit<Task, 'is_open'>

export interface TaskPage {
  /** id of a task: only tasks behind it */
  readonly after?: string
  readonly limit: number
  readonly order: 'asc' | 'desc'
}

/** Of all accounts, the newest first. */
export interface TaskSearch {
  readonly account?: string
  /** `status` in the task's text, which is all that the store reads there */
  readonly status?: string
  /** only tasks that are older than this one; of the same age those whose id sorts before */
  readonly before?: Pick<Task, 'created' | 'id'>
  readonly limit: number
}

export interface Tasks {
  /**
   * Moves the hold of a running request to a task, as far as the task needs it; the rest is free again. From then on
   * `release` and `refund` of that request do nothing. When this has answered, a kill of this process loses neither
   * task nor hold.
   * @throws {GatewayError} service_unavailable: it can't be recorded; there is no task, and the hold is the request's
   * @throws {Error} the request has no hold, or a smaller one, or has given it back meanwhile; there is no task
   */
  openTask (task: NewTask): Awaitable<void>
  /** Updates the task's state; the write is not waited for. A no-op where the task is not open. */
  noteTask (id: string, text: string): void
  /**
   * Ends a task, once: its hold is settled, or given back without a settlement. A repetition changes nothing. When it
   * has answered, a kill of this process loses it no more.
   * @returns the charge; undefined: the task is not open
   * @throws {GatewayError} service_unavailable: it can't be recorded, and the task is open as before
   */
  endTask (id: string, text: string, settlement?: Omit<Settlement, 'request_id'>): Awaitable<Nanos | undefined>
  /** @returns false: the task is open, or unknown */
  removeTask (id: string): Awaitable<boolean>
  /**
   * Forgets tasks that are over and were created before `createdBefore`, milliseconds since the epoch.
   * @returns how many
   */
  forgetTasks (createdBefore: number): Awaitable<number>
  task (id: string): Awaitable<Task | undefined>
  /** Tasks of an account, in the order of their creation. @returns undefined: `after` is no task of the account */
  tasks (account: string, page: TaskPage): Awaitable<readonly Task[] | undefined>
  newestTasks (search: TaskSearch): Awaitable<readonly Task[]>
  /** An open task, from memory; undefined: it is not open, or unknown. */
  findOpenTask (id: string): Task | undefined
  openTasks (): readonly Task[]
  /**
   * Where several processes share the store, each watches tasks of its own: `findOpenTask` and `openTasks` know only
   * those. Calls back with the ids of open tasks that this process has taken over from another one.
   * @returns stops watching
   */
  watchTasks? (onTaken: (id: string) => void): () => void
}

/** The answer to a request with an idempotency key, given again to a repetition. */
export interface Answer {
  readonly account: string
  /** the idempotency key */
  readonly name: string
  /** hash of the request's body */
  readonly hash: string
  /** id of the request that was answered */
  readonly request_id: string
  /** milliseconds since the epoch */
  readonly created: number
  /** the JSON body; undefined: it was too large to be kept */
  readonly text: string | undefined
}

export interface Answers {
  /**
   * Keeps an answer before its request is settled, so that no charge is without its answer. An answer whose request was
   * neither settled nor became a task, or was refunded, is not given again, and is forgotten at the next start: a
   * repetition is served anew, and charged once.
   * @throws {Error} it can't be recorded
   */
  keepAnswer (answer: Answer): Awaitable<void>
  answer (account: string, name: string): Awaitable<Answer | undefined>
  dropAnswer (account: string, name: string): Awaitable<void>
  /** Forgets answers that are older, and the oldest beyond `most`. @returns how many */
  forgetAnswers (createdBefore: number, most: number): Awaitable<number>
  /**
   * Where several processes share the store: of the requests with one idempotency key only one is served at a
   * time: claims the key while this request runs.
   * @returns false: another request has claimed it
   */
  claimAnswer? (account: string, name: string, requestId: string): Awaitable<boolean>
  /** A no-op without a claim. */
  unclaimAnswer? (requestId: string): Awaitable<void>
}

/** Reads for moving everything to another store. */
export interface Movable {
  allTasks (): AsyncIterable<Task>
  allAnswers (): AsyncIterable<Answer>
  /** Those of an hour or a day may come in parts. */
  allFailures (): AsyncIterable<FailureCount>
}
