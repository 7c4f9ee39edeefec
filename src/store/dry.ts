// The store as plugins see it in a dry run: what is there is read and decided on, and nothing of it changes, whatever they ask for.
// Every way to change something is here by name: one that the interface gains does not compile until somebody has thought of it.
import type { Admission, Booking, HoldRequest, Settlement, Store } from './store.ts'
import type { NewTask, Task, TaskPage, Tasks } from './tasks.ts'

export class DryStore implements Store {
  readonly #store: Store

  constructor (store: Store) {
    this.#store = store
  }

  hold (request: HoldRequest): ReturnType<Store['hold']> {
    return this.#store.hold({ ...request, dry: true })
  }

  admit (admission: Admission): ReturnType<Store['admit']> {
    return this.#store.admit({ ...admission, dry: true })
  }

  /** @throws {Error} always: nothing is held that could be made larger */
  extend (requestId: string): never {
    throw new Error(`the request ${requestId} has no hold to extend: this is a dry run`)
  }

  /** @throws {Error} always: whether the reference was booked before can't be known without booking it */
  book ({ kind, account }: Booking): never {
    throw new Error(`a ${kind} of the account ${account} can't be booked in a dry run`)
  }

  /** @throws {Error} always: whether the reference was credited before can't be known without crediting it */
  credit (account: string): never {
    throw new Error(`the account ${account} can't be credited in a dry run`)
  }

  creditOf (reference: string): ReturnType<Store['creditOf']> {
    return this.#store.creditOf(reference)
  }

  /** Charges nothing. */
  settle (_settlement: Settlement): bigint {
    return 0n
  }

  release (): void {}

  refund (): void {}

  progress (): void {}

  leave (): void {}

  balance (account: string): ReturnType<Store['balance']> {
    return this.#store.balance(account)
  }

  keyUsage (key: string, period?: string): ReturnType<Store['keyUsage']> {
    return this.#store.keyUsage(key, period)
  }

  openHolds (): ReturnType<Store['openHolds']> {
    return this.#store.openHolds()
  }

  entries (after?: string): ReturnType<Store['entries']> {
    return this.#store.entries(after)
  }

  verify (): ReturnType<Store['verify']> {
    return this.#store.verify()
  }

  /** The real one goes on. */
  close (): void {}
}

/** The same of tasks: they can be read. */
export class DryTasks implements Tasks {
  readonly #tasks: Tasks

  constructor (tasks: Tasks) {
    this.#tasks = tasks
  }

  /** @throws {Error} always: there is no hold that it could be given */
  openTask ({ request_id: id }: NewTask): never {
    throw new Error(`the request ${id} has no hold: this is a dry run`)
  }

  noteTask (): void {}

  endTask (): undefined {}

  removeTask (): boolean {
    return false
  }

  forgetTasks (): number {
    return 0
  }

  task (id: string): ReturnType<Tasks['task']> {
    return this.#tasks.task(id)
  }

  tasks (account: string, page: TaskPage): ReturnType<Tasks['tasks']> {
    return this.#tasks.tasks(account, page)
  }

  findOpenTask (id: string): Task | undefined {
    return this.#tasks.findOpenTask(id)
  }

  openTasks (): readonly Task[] {
    return this.#tasks.openTasks()
  }
}
