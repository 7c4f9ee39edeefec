// The newest tasks of stores that keep no index of them.
import { asRecord, parseOr } from '../base/json.ts'
import type { Task, TaskSearch } from './tasks.ts'

/** However many there are, few are kept. */
const MOST_KEPT = 1000

/** Looks through all tasks, in any order. */
export class NewestTasks {
  readonly #search: TaskSearch
  #found: Task[] = []

  constructor (search: TaskSearch) {
    this.#search = search
  }

  see (task: Task): void {
    const { account, status, before, limit } = this.#search
    if (
      (account !== undefined && task.account !== account) || (before !== undefined && byAge(task, before) <= 0) ||
      (status !== undefined && statusOf(task) !== status)
    ) return
    this.#found.push(task)
    if (this.#found.length > 2 * limit + MOST_KEPT) this.#found = [...this.first()]
  }

  first (): readonly Task[] {
    return this.#found.toSorted(byAge).slice(0, this.#search.limit)
  }
}

type Aged = Pick<Task, 'created' | 'id'>

function byAge (one: Aged, other: Aged): number {
  return other.created - one.created || (one.id === other.id ? 0 : one.id > other.id ? -1 : 1)
}

function statusOf ({ text }: Task): unknown {
  return asRecord(parseOr(text)).status
}
