// The open tasks in memory, and the requests whose holds they own. Shared by the drivers that decide in this process.
import type { Task } from '../tasks.ts'

export class OpenTasks {
  readonly #tasks = new Map<string, Task>()
  /** ids of requests whose hold belongs to a task, or is about to */
  readonly #claimed = new Set<string>()

  /** Gives the request's hold to a task: the request can't release it any more. */
  claim (requestId: string): void {
    this.#claimed.add(requestId)
  }

  /** Gives the hold back to the request, or ends it. */
  unclaim (requestId: string): void {
    this.#claimed.delete(requestId)
  }

  owns (requestId: string): boolean {
    return this.#claimed.size > 0 && this.#claimed.has(requestId)
  }

  /** Adds or replaces a task. */
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
