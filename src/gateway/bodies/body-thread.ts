// One thread of large bodies and answers. It works on one job at a time, so what waits can still be given up. A thread
// that dies or hangs fails the job that it was working on, and no more.
import { extname } from 'node:path'
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import type { Logger } from 'pino'
import type { Answer, Asked, ThreadInput, ToThread } from './messages.ts'
import type { Waiting } from '../../core/turns.ts'

/** The thread's file: .ts in a checkout, .js in the packed build, as this one. */
const file = new URL(`./thread${extname(import.meta.url)}`, import.meta.url)

/** Milliseconds without work after which a thread is ended: it has megabytes of its own. */
const IDLE_MS = 60_000

export interface ThreadOptions extends ThreadInput {
  readonly log: Pick<Logger, 'error'>
  /** milliseconds that a thread may take for one job */
  readonly patience: number
  /** another file for the thread to run, for tests */
  readonly worker?: URL | undefined
}

export interface Job extends Waiting {
  /** of the exchange */
  readonly requestId: string
  /** id; of all of an account's jobs some thread stays free */
  readonly account: string
  /** threads that may still die of it, this one included */
  lives: number
  /** made when its turn comes. @param has whether the thread has that */
  ask (has: boolean): Asked
  resolve (answer: Answer): void
  reject (error: unknown): void
}

/** Called at each end of a job. @param died why its thread has died, with it or without */
export type OnFree = (job: Job | undefined, died?: unknown) => void

export class BodyThread {
  readonly #options: ThreadOptions
  readonly #onFree: OnFree
  #worker: Worker | undefined
  /** ids of what it has */
  readonly #has = new Set<string>()
  #running: Job | undefined
  #patience: NodeJS.Timeout | undefined
  #idle: NodeJS.Timeout | undefined

  constructor (options: ThreadOptions, onFree: OnFree) {
    this.#options = options
    this.#onFree = onFree
  }

  get running (): Job | undefined {
    return this.#running
  }

  get isStarted (): boolean {
    return this.#worker !== undefined
  }

  has (id: string): boolean {
    return this.#has.has(id)
  }

  /** @returns whether there is a thread, or one could be started */
  start (): boolean {
    if (this.#worker !== undefined) return true
    const { pluginsUrl, sealSecrets, isForLong, worker: url = file, log } = this.#options
    const input: ThreadInput = { pluginsUrl, sealSecrets, isForLong }
    let worker: Worker
    try {
      // Without the flags of the process: `--input-type` alone would stop the thread.
      worker = new Worker(url, { workerData: input, execArgv: [] })
    } catch (err) {
      log.error({ err }, 'the system gave no thread for a large body')
      return false
    }
    this.#worker = worker
    let cause: unknown
    worker.unref()
    worker.on('message', (answer: Answer) => {
      // What one that was given up still says would be taken for the answer to the next job.
      if (worker === this.#worker) this.#onAnswer(answer)
    })
    worker.on('error', (error) => { cause = error })
    worker.on('exit', (code) => {
      if (worker === this.#worker) this.#onDeath(cause ?? new Error(`it ended with code ${code}`))
    })
    this.#rest()
    return true
  }

  /** To be called on a thread that has started and runs nothing. */
  run (job: Job): void {
    clearTimeout(this.#idle)
    this.#running = job
    this.#patience = setTimeout(() => {
      const { patience } = this.#options
      const hung = this.#worker
      this.#worker = undefined
      void hung?.terminate()
      this.#onDeath(new Error(`it took longer than ${patience} ms`))
    }, this.#options.patience).unref()
    const asked = job.ask(this.#has.has(job.id))
    try {
      this.#worker!.postMessage(asked)
      if (asked.isLast) this.#has.delete(job.id)
      else this.#has.add(job.id)
    } catch (thrown) {                                        // an argument that can't be copied
      clearTimeout(this.#patience)
      this.#running = undefined
      job.reject(thrown)
      this.#onFree(undefined)
    }
  }

  /** Nobody asks this thread for it again. */
  forget (id: string): void {
    if (!this.#has.delete(id)) return
    this.#worker?.postMessage({ id, isOver: true } satisfies ToThread)
    this.#rest()
  }

  /**
   * Lets the thread end by itself: one that is terminated while it loads may take the process with it (tried).
   * @param ms after which it is terminated all the same
   * @returns the job that it was working on, and when it has ended
   */
  end (ms: number): { readonly job: Job | undefined, readonly ended: Promise<void> } {
    const [worker, job] = [this.#worker, this.#running]
    this.#worker = this.#running = undefined
    this.#has.clear()
    clearTimeout(this.#idle)
    clearTimeout(this.#patience)
    return { job, ended: worker === undefined ? Promise.resolve() : endOf(worker, ms) }
  }

  #onAnswer (answer: Answer): void {
    const job = this.#running
    clearTimeout(this.#patience)
    this.#running = undefined
    job?.resolve(answer)
    this.#rest()
    this.#onFree(job)
  }

  #onDeath (cause: unknown): void {
    const job = this.#running
    clearTimeout(this.#patience)
    this.#worker = this.#running = undefined
    this.#has.clear()
    this.#options.log.error({ err: cause, ...(job !== undefined && { request_id: job.requestId }) },
      'the thread of a large body died')
    this.#onFree(job, cause)
  }

  #rest (): void {
    clearTimeout(this.#idle)
    if (this.#worker === undefined || this.#running !== undefined || this.#has.size > 0) return
    this.#idle = setTimeout(() => { void this.end(this.#options.patience).ended }, IDLE_MS).unref()
  }
}

async function endOf (worker: Worker, ms: number): Promise<void> {
  const ended = once(worker, 'exit')
  worker.postMessage({ isOver: true } satisfies ToThread)
  const hung = setTimeout(() => { void worker.terminate() }, ms)
  await ended
  clearTimeout(hung)
}
