// One thread of large bodies and answers, and the queue before it: it works on one thing at a time, so what waits can
// still be given up. A thread that dies or hangs fails what it was doing, and no more: the next one gets the others
// again.
import { once } from 'node:events'
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Logger } from 'pino'
import { GatewayError } from '../../errors.ts'
import type { Answer, Asked, ThreadInput, ToThread } from './messages.ts'

/** The thread's file: .ts in a checkout, .js in the packed build, as this one. */
const file = new URL(`./thread${extname(import.meta.url)}`, import.meta.url)

/** Milliseconds without work after which a thread is ended: it has megabytes of its own. */
const IDLE_MS = 60_000

export interface QueueOptions extends ThreadInput {
  readonly log: Pick<Logger, 'error'>
  /** milliseconds that a thread may take for one thing */
  readonly patience: number
  /** another file for the thread to run, for tests */
  readonly worker?: URL | undefined
}

export interface Job {
  /** of the exchange */
  readonly requestId: string
  /** of the body or the answer that it is about */
  readonly id: string
  readonly bytes: number
  /** threads that may still die of it, this one included */
  lives: number
  /** made when its turn comes. @param has whether the thread has that */
  ask (has: boolean): Asked
  resolve (answer: Answer): void
  reject (error: unknown): void
}

export class ThreadQueue {
  readonly #options: QueueOptions
  #worker: Worker | undefined
  /** ids of what it has */
  readonly #had = new Set<string>()
  #jobs: Job[] = []
  #running: Job | undefined
  #patience: NodeJS.Timeout | undefined
  #idle: NodeJS.Timeout | undefined
  #isClosed = false

  constructor (options: QueueOptions) {
    this.#options = options
  }

  /** bytes of what waits for it, or that it works on */
  get load (): number {
    return this.#jobs.reduce((sum, { bytes }) => sum + bytes, this.#running?.bytes ?? 0)
  }

  /** @returns whether there is a thread, or one could be started */
  prepare (): boolean {
    if (this.#isClosed) return false
    if (this.#worker !== undefined) return true
    const { pluginsUrl, sealSecrets, worker: url = file, log } = this.#options
    const input: ThreadInput = { pluginsUrl, sealSecrets }
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
      if (worker === this.#worker) this.#answered(answer)
    })
    worker.on('error', (error) => { cause = error })
    worker.on('exit', (code) => {
      if (worker === this.#worker) this.#died(cause ?? new Error(`it ended with code ${code}`))
    })
    this.#rest()
    return true
  }

  add (job: Job): void {
    this.#jobs.push(job)
    this.#next()
  }

  /** Gives up a job that waits. @returns whether it still did */
  remove (job: Job): boolean {
    const waiting = this.#jobs.length
    this.#jobs = this.#jobs.filter((other) => other !== job)
    return this.#jobs.length < waiting
  }

  /** Nobody asks for it again. */
  forget (id: string): void {
    if (!this.#had.delete(id)) return
    this.#worker?.postMessage({ id, isOver: true })
    this.#rest()
  }

  async close (): Promise<void> {
    this.#isClosed = true
    this.#clear(new Error('the gateway is closing'))
    await this.#end()
  }

  #next (): void {
    if (this.#running !== undefined) return
    const job = this.#jobs.shift()
    if (job === undefined) { this.#rest(); return }
    clearTimeout(this.#idle)
    if (!this.prepare()) {
      job.reject(lost(new Error('there is no thread')))
      this.#next()
      return
    }
    this.#running = job
    this.#patience = setTimeout(() => {
      const { patience } = this.#options
      const hung = this.#worker
      this.#worker = undefined
      void hung?.terminate()
      this.#died(new Error(`it took longer than ${patience} ms`))
    }, this.#options.patience).unref()
    const asked = job.ask(this.#had.has(job.id))
    try {
      this.#worker!.postMessage(asked)
      if (asked.isLast) this.#had.delete(job.id)
      else this.#had.add(job.id)
    } catch (thrown) {                                        // an argument that can't be copied
      clearTimeout(this.#patience)
      this.#running = undefined
      job.reject(thrown)
      this.#next()
    }
  }

  #answered (answer: Answer): void {
    const job = this.#running
    clearTimeout(this.#patience)
    this.#running = undefined
    job?.resolve(answer)                                      // before the next one of the same body begins
    this.#next()
  }

  #died (cause: unknown): void {
    const job = this.#running
    clearTimeout(this.#patience)
    this.#worker = this.#running = undefined
    this.#had.clear()
    this.#options.log.error({ err: cause, ...(job !== undefined && { request_id: job.requestId }) },
      'the thread of a large body died')
    if (job !== undefined && --job.lives > 0) this.#jobs.unshift(job)
    else job?.reject(lost(cause))
    this.#next()
  }

  /** Rejects everything. */
  #clear (cause: unknown): void {
    const jobs = this.#running === undefined ? this.#jobs : [this.#running, ...this.#jobs]
    this.#jobs = []
    this.#running = undefined
    clearTimeout(this.#patience)
    for (const job of jobs) job.reject(lost(cause))
  }

  /** Lets the thread end by itself: one that is terminated while it loads may take the process with it (tried). */
  async #end (): Promise<void> {
    const worker = this.#worker
    this.#worker = undefined
    this.#had.clear()
    clearTimeout(this.#idle)
    if (worker === undefined) return
    const ended = once(worker, 'exit')
    worker.postMessage({ isOver: true } satisfies ToThread)
    const hung = setTimeout(() => { void worker.terminate() }, this.#options.patience)
    await ended
    clearTimeout(hung)
  }

  #rest (): void {
    clearTimeout(this.#idle)
    if (this.#worker === undefined || this.#running !== undefined || this.#had.size > 0) return
    this.#idle = setTimeout(() => { void this.#end() }, IDLE_MS).unref()
  }
}

function lost (cause: unknown): GatewayError {
  return new GatewayError('server_error', { cause: new Error('the thread of a large body was lost', { cause }) })
}
