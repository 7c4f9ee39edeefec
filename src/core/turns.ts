// Which of the jobs that wait is next: keys take turns by bytes, the shortest first, and none waits for ever. So large
// bodies and answers wait for a thread, and the costly operations of the admin API for the event loop.
//
// This is self-clocked fair queueing (Golestani, "A self-clocked fair queueing scheme", 1994). Each key has an account
// in virtual time, in bytes: a job's tag is where the key stands, plus the job's bytes. The lowest tag is next, and the
// clock goes to the tag of the job that runs. So a short job comes before a long one of a key that has used as much. A
// long job keeps its tag while the clock moves on, so short ones pass it only until their bytes add up to its own. A
// key that sends one body after the other moves its own tags away, and waits for itself.

export interface Waiting {
  /** of the body or the answer that it is about */
  readonly id: string
  /** whose turn it takes */
  readonly key: string
  readonly bytes: number
}

interface Entry<Job> {
  readonly job: Job
  /** the clock when it came */
  readonly since: number
}

interface Queue<Job> {
  /** the tag that the key has reached */
  used: number
  readonly entries: Entry<Job>[]
}

interface Candidate<Job> {
  readonly queue: Queue<Job>
  readonly entry: Entry<Job>
  readonly tag: number
}

export class Turns<Job extends Waiting> {
  readonly #queues = new Map<string, Queue<Job>>()
  /** tags by id of what was begun: it is finished first, to free its memory */
  readonly #begun = new Map<string, number>()
  #clock = 0
  #size = 0

  /** jobs that wait */
  get size (): number {
    return this.#size
  }

  add (job: Job): void {
    let queue = this.#queues.get(job.key)
    if (queue === undefined) this.#queues.set(job.key, queue = { used: 0, entries: [] })
    queue.entries.push({ job, since: this.#clock })
    this.#size++
  }

  /** Gives up a job that waits. @returns whether it still did */
  remove (job: Job): boolean {
    const entries = this.#queues.get(job.key)?.entries ?? []
    const place = entries.findIndex((entry) => entry.job === job)
    if (place < 0) return false
    entries.splice(place, 1)
    this.#size--
    return true
  }

  /** Nobody asks for it again. To be called for each id that had its turn. */
  forget (id: string): void {
    this.#begun.delete(id)
  }

  /**
   * Takes the next job out. Looks at all that wait: the caller bounds them, the memory of bodies to a few thousand.
   * @param canRun whether it can run now
   */
  next (canRun: (job: Job) => boolean): Job | undefined {
    if (this.#size === 0) return undefined
    let best: Candidate<Job> | undefined
    for (const [key, queue] of this.#queues) {
      if (queue.entries.length === 0) {
        if (queue.used <= this.#clock) this.#queues.delete(key)
        continue
      }
      const own = this.#bestOf(queue, canRun)
      if (own !== undefined && (best === undefined || own.tag < best.tag)) best = own
    }
    if (best === undefined) return undefined
    this.#take(best)
    return best.entry.job
  }

  #bestOf (queue: Queue<Job>, canRun: (job: Job) => boolean): Candidate<Job> | undefined {
    let best: Entry<Job> | undefined
    for (const entry of queue.entries) {
      if ((best === undefined || this.#isBefore(entry, best)) && canRun(entry.job)) best = entry
    }
    if (best === undefined) return undefined
    const { since, job: { id, bytes } } = best
    return { queue, entry: best, tag: this.#begun.get(id) ?? Math.max(queue.used, since) + bytes }
  }

  /** Of one key's jobs. A long one is passed only until as many bytes have run as it has. */
  #isBefore (one: Entry<Job>, other: Entry<Job>): boolean {
    const [begun, otherBegun] = [this.#begun.get(one.job.id), this.#begun.get(other.job.id)]
    if (begun === undefined && otherBegun === undefined) {
      return one.since + one.job.bytes < other.since + other.job.bytes
    }
    return (begun ?? Infinity) < (otherBegun ?? Infinity)
  }

  #take ({ queue, entry, tag }: Candidate<Job>): void {
    const { id, bytes } = entry.job
    queue.entries.splice(queue.entries.indexOf(entry), 1)
    this.#size--
    queue.used = Math.max(queue.used, entry.since) + bytes
    this.#clock = Math.max(this.#clock, tag)
    // Where it began, so that no body comes before it that is still to be parsed.
    if (!this.#begun.has(id)) this.#begun.set(id, tag - bytes)
  }

  /** @returns all jobs, which wait no longer */
  clear (): readonly Job[] {
    const jobs = [...this.#queues.values()].flatMap(({ entries }) => entries.map(({ job }) => job))
    this.#queues.clear()
    this.#begun.clear()
    this.#size = 0
    return jobs
  }
}
