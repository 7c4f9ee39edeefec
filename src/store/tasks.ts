// The interface to what outlives the request that began it: tasks with their holds, and answers that are given again.
// Every driver has it beside `Store`, and a task keeps that one's invariants: its hold is open until the task ends, it
// is settled at most once, and both survive the process.
import type { Awaitable } from '../base/awaitable.ts'
import type { Nanos } from '../money/nanos.ts'
import type { Settlement } from './store.ts'

/**
 * Work that an upstream does for a request that was answered long ago. While it is open it owns the hold of that
 * request.
 */
export interface Task {
  /** public */
  readonly id: string
  /** of its hold, and the reference of its entry */
  readonly request_id: string
  readonly account: string
  readonly key: string
  /** milliseconds since the epoch */
  readonly created: number
  /** what is held while it is open; then what was charged */
  readonly nanos: Nanos
  /** false: it is over, and its hold is settled or given back */
  readonly is_open: boolean
  /** JSON: all that only its maker has to know */
  readonly text: string
}

export type NewTask = Omit<Task, 'is_open'>

export interface TaskPage {
  /** id of a task: only those that follow it */
  readonly after?: string
  readonly limit: number
  readonly order: 'asc' | 'desc'
}

export interface Tasks {
  /**
   * Gives the hold of a running request to a task, as far as the task needs it; the rest is free again. From then on
   * `release` and `refund` of that request do nothing. When this has answered, a kill of this process loses neither.
   * @throws {GatewayError} service_unavailable: it can't be recorded, there is no task, and the hold is the request's
   * @throws {Error} the request has no hold, or one of less, or gave it back meanwhile; there is no task
   */
  openTask (task: NewTask): Awaitable<void>
  /** What is known of it by now. Recorded soon; nobody waits. Nothing happens where none is open. */
  noteTask (id: string, text: string): void
  /**
   * The end: settled, or given back without a settlement. Once: a repetition changes nothing. When it has answered, a
   * kill of this process loses it no more.
   * @returns what was charged; undefined: no task is open
   * @throws {GatewayError} service_unavailable: it can't be recorded, and the task is open as before
   */
  endTask (id: string, text: string, settlement?: Omit<Settlement, 'request_id'>): Awaitable<Nanos | undefined>
  /** @returns false: it is open, or unknown */
  removeTask (id: string): Awaitable<boolean>
  /**
   * Those that are over since then, milliseconds since the epoch by their creation, are forgotten.
   * @returns how many
   */
  forgetTasks (createdBefore: number): Awaitable<number>
  task (id: string): Awaitable<Task | undefined>
  /** Of an account, in the order of their creation. @returns undefined: `after` is none of them */
  tasks (account: string, page: TaskPage): Awaitable<readonly Task[] | undefined>
  /** At once; undefined: it is not open, or unknown. */
  findOpenTask (id: string): Task | undefined
  openTasks (): readonly Task[]
  /**
   * Where several processes share the store, each watches tasks of its own: `findOpenTask` and `openTasks` know only
   * those. Calls back with the ids of open tasks that another process has left, and that are this one's now. @returns
   * ends that
   */
  watchTasks? (onTaken: (id: string) => void): () => void
}

/** What a request was answered, for whoever sends it again under the same name. */
export interface Answer {
  readonly account: string
  /** the client's name for it */
  readonly name: string
  /** of the request's body */
  readonly hash: string
  /** of the request that was answered */
  readonly request_id: string
  /** milliseconds since the epoch */
  readonly created: number
  /** the JSON body; undefined: it was too large to be kept */
  readonly text: string | undefined
}

export interface Answers {
  /**
   * Kept before the request is settled, so that no charge is without its answer. One that was neither settled nor
   * became a task, or whose charge was given back, is given to nobody, and forgotten at the next start: who asks again
   * is served again, and charged once.
   * @throws {Error} it can't be recorded
   */
  keepAnswer (answer: Answer): Awaitable<void>
  answer (account: string, name: string): Awaitable<Answer | undefined>
  dropAnswer (account: string, name: string): Awaitable<void>
  /** @returns how many were older, or more than `most` */
  forgetAnswers (createdBefore: number, most: number): Awaitable<number>
  /**
   * Where several processes share the store: of the requests of one name only one is served at a time. While it runs
   * the name is its.
   * @returns false: another one is served under that name
   */
  claimAnswer? (account: string, name: string, requestId: string): Awaitable<boolean>
  /** Nothing happens where it has none. */
  unclaimAnswer? (requestId: string): Awaitable<void>
}

/** For moving everything to another store: what can't be read by anything else. */
export interface Movable {
  allTasks (): AsyncIterable<Task>
  allAnswers (): AsyncIterable<Answer>
}
