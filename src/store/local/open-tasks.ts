// The tasks that are open, in memory, and whose holds are theirs. Shared by the drivers whose decisions are made in
// this process.
import type { Task } from '../tasks.ts'

export class OpenTasks {
  readonly #tasks = new Map<string, Task>()
  /** ids of requests whose hold belongs to a task, or is about to */
  readonly #claimed = new Set<string>()

  /** From now on the request can't give its hold back. */
  claim (requestId: string): void {
    this.#claimed.add(requestId)
  }

  /** The hold is the request's again, or is gone. */
  unclaim (requestId: string): void {
    this.#claimed.delete(requestId)
  }

  owns (requestId: string): boolean {
    return this.#claimed.has(requestId)
  }

  /** Replaces what was known of it. */
  put (task: Task): void {
    this.claim(task.request_id)
    this.#tasks.set(task.id, task)
  }

  remove ({ id, request_id: requestId }: Task): void {
    this.#tasks.delete(id)
    this.unclaim(requestId)
  }

  find (id: string): Task | undefined {
    return this.#tasks.get(id)
  }

  all (): readonly Task[] {
    return [...this.#tasks.values()]
  }
}
