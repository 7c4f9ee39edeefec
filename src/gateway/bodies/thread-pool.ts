// All threads of large bodies and answers, and what waits for them. A body stays with the thread that has parsed it.
import { GatewayError } from '../../errors.ts'
import { BodyThread, type Job, type ThreadOptions } from './body-thread.ts'
import { Turns } from '../../core/turns.ts'

/**
 * Bytes from which a job is long: no thread but those before the last one takes it, so that one stays for what is
 * shorter. The longest of those takes some 50 ms.
 */
export const LONG = 2 * 1024 * 1024

export interface PoolOptions extends Omit<ThreadOptions, 'isForLong'> {
  readonly threads: number
}

export class ThreadPool {
  readonly #threads: readonly BodyThread[]
  readonly #turns = new Turns<Job>()
  /** threads that one account, and long jobs, may take at a time */
  readonly #share: number
  #isComing = false
  #isClosed = false

  constructor ({ threads, ...options }: PoolOptions) {
    this.#share = Math.max(1, threads - 1)
    this.#threads = Array.from({ length: threads }, (_, i) =>
      new BodyThread({ ...options, isForLong: i < this.#share }, (job, died) => { this.#onFree(job, died) }))
  }

  /** jobs that wait */
  get waiting (): number {
    return this.#turns.size
  }

  /** Starts a thread, if there is none. @returns whether there is one */
  prepare (): boolean {
    if (this.#isClosed) return false
    return this.#threads.some(({ isStarted }) => isStarted) || this.#threads[0]!.start()
  }

  add (job: Job): void {
    if (this.#isClosed) { job.reject(lost(closing())); return }
    this.#turns.add(job)
    this.#next()
  }

  /** Gives up a job that waits. @returns whether it still did */
  remove (job: Job): boolean {
    return this.#turns.remove(job)
  }

  /** Nobody asks for it again. */
  forget (id: string): void {
    this.#turns.forget(id)
    for (const thread of this.#threads) thread.forget(id)
  }

  /** Rejects all jobs. @param ms after which a thread that does not end is terminated */
  async close (ms: number): Promise<void> {
    this.#isClosed = true
    const ends = this.#threads.map((thread) => thread.end(ms))
    for (const job of [...ends.map(({ job }) => job), ...this.#turns.clear()]) job?.reject(lost(closing()))
    await Promise.all(ends.map(async ({ ended }) => { await ended }))
  }

  #onFree (job: Job | undefined, died: unknown): void {
    if (job !== undefined && died !== undefined) {
      if (--job.lives > 0 && !this.#isClosed) this.#turns.add(job)
      else job.reject(lost(died))
    }
    // In the next turn: by then the next step of the same body waits, too, and goes before bodies that are not parsed.
    if (this.#isComing) return
    this.#isComing = true
    setImmediate(() => {
      this.#isComing = false
      this.#next()
    })
  }

  #next (): void {
    while (!this.#isClosed) {
      const job = this.#turns.next((one) => this.#threadFor(one) !== undefined)
      if (job === undefined) return
      const thread = this.#threadFor(job)!
      for (const other of this.#threads) if (other !== thread) other.forget(job.id)
      if (thread.start()) thread.run(job)
      else job.reject(lost(new Error('there is no thread')))
    }
  }

  /** Undefined: it has to wait. */
  #threadFor ({ id, account, bytes }: Job): BodyThread | undefined {
    let own = 0
    for (const { running } of this.#threads) if (running?.account === account) own++
    if (own >= this.#share) return undefined
    const isLong = bytes >= LONG
    const home = this.#threads.find((thread) => thread.has(id) || thread.running?.id === id)
    // A short one does not wait for a long one: it is read again elsewhere.
    if (home !== undefined && (home.running === undefined || isLong || home.running.id === id ||
      home.running.bytes < LONG)) return home.running === undefined ? home : undefined
    return isLong ? this.#threads.slice(0, this.#share).find(isFree) : this.#threads.findLast(isFree)
  }
}

function isFree ({ running }: BodyThread): boolean {
  return running === undefined
}

function closing (): Error {
  return new Error('the gateway is closing')
}

function lost (cause: unknown): GatewayError {
  return new GatewayError('server_error', { cause: new Error('the thread of a large body was lost', { cause }) })
}
