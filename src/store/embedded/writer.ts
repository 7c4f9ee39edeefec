// Keeps a recording thread alive. Batches that a dead thread has not acknowledged go to the next one, in the same
// order: writing an entry twice changes nothing (ledger.ts), so it does not matter which of them were committed.
import { randomUUID } from 'node:crypto'
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Logger } from 'pino'
import { type Cell, ENTRY } from '../local/cells.ts'
import { type Batch, type Documents, type LastingWriter, NO_WRITE, type OnCompared,
  type Opened } from '../local/writer.ts'
import type { FromThread, ThreadInput, ToThread } from './messages.ts'

/** The thread's file: .ts in a checkout, .js in the packed build, as this one. */
const file = new URL(`./writer-thread${extname(import.meta.url)}`, import.meta.url)

/** Pause before the next thread; doubled after each thread that recorded nothing. */
const RESTART_MS = 50
const LONGEST_RESTART_MS = 30_000

/** Milliseconds between two checks of whether the disk answers. */
const WATCH_MS = 1000
/** Checks that may find the same batch unanswered. */
const PATIENCE = 5

export interface ThreadWriterOptions {
  readonly folder: string
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly fsyncInterval: number
  readonly now: () => number
  /** another file for the thread to run, for tests */
  readonly worker?: URL | undefined
}

interface Sent {
  readonly no: number
  readonly batch: Batch
  /** true: a thread has it, or had it and died: it may be committed */
  isPosted: boolean
}

interface Asked<T> {
  resolve (answer: T): void
  reject (error: Error): void
}

interface Slice {
  readonly cells: readonly Cell[]
  readonly upTo: number
}

export class ThreadWriter implements LastingWriter {
  readonly isPrompt = false
  readonly #options: ThreadWriterOptions
  readonly #log: ThreadWriterOptions['log']
  readonly #owner = randomUUID()
  readonly #watch: NodeJS.Timeout
  /** oldest first */
  readonly #unanswered: Sent[] = []
  readonly #reads: Asked<Slice>[] = []
  readonly #asked: Asked<unknown>[] = []
  #verifying: Asked<number> & { readonly onCompared: OnCompared } | undefined
  #backingUp: Asked<void> | undefined
  #opening: Asked<Opened> | undefined
  #onLoaded: Parameters<LastingWriter['open']>[0] = () => {}
  #onCure: () => void = () => {}
  #closing: { readonly windows: readonly Cell[], resolve (): void } | undefined
  #worker: Worker | undefined
  #isOpen = false
  #trouble: Error | undefined
  #restart: NodeJS.Timeout | undefined
  #delay = RESTART_MS
  #lastNo = 0
  /** the oldest unanswered batch at the last check, and the number of checks that found it so before */
  #seen = { no: 0, looks: 0 }

  constructor (options: ThreadWriterOptions) {
    this.#options = options
    this.#log = options.log
    this.#watch = setInterval(() => { this.#look() }, WATCH_MS).unref()
  }

  get trouble (): Error | undefined {
    return this.#trouble
  }

  async open (onLoaded: Parameters<LastingWriter['open']>[0], onCure: () => void): Promise<Opened> {
    this.#onLoaded = onLoaded
    this.#onCure = onCure
    return await new Promise<Opened>((resolve, reject) => {
      this.#opening = { resolve, reject }
      this.#start(false)
    })
  }

  send (batch: Batch): void {
    const sent: Sent = { no: ++this.#lastNo, batch, isPosted: false }
    this.#unanswered.push(sent)
    if (this.#isOpen) this.#write(sent)
  }

  /** Nothing tells a thread which failures the one before it has counted: they are lost rather than counted twice. */
  #write (sent: Sent): void {
    const { no, batch: { write }, isPosted } = sent
    this.#post({ kind: 'write', no, write: isPosted ? { ...write, failures: [] } : write })
    sent.isPosted = true
  }

  async * slices (from: number): AsyncIterable<readonly Cell[]> {
    let upTo: number | undefined
    for (let after = from; upTo === undefined || after < upTo;) {
      const slice: Slice = await this.#read(after, upTo)
      upTo = slice.upTo
      yield slice.cells
      after = slice.cells.at(-ENTRY.length) as number | undefined ?? upTo
    }
  }

  /** @param upTo absent: up to the newest entry */
  async #read (after: number, upTo?: number): Promise<Slice> {
    this.#refuseWhileDead()
    return await new Promise<Slice>((resolve, reject) => {
      this.#post({ kind: 'read', after, upTo })
      this.#reads.push({ resolve, reject })
    })
  }

  async ask<Of extends keyof Documents> (
    of: Of,
    ...args: Parameters<Documents[Of]>
  ): Promise<ReturnType<Documents[Of]>> {
    this.#refuseWhileDead()
    return await new Promise<unknown>((resolve, reject) => {
      this.#post({ kind: 'ask', of, args })                  // before the queue: where it throws, no answer comes
      this.#asked.push({ resolve, reject })
    }) as ReturnType<Documents[Of]>
  }

  async verify (oldest: string, onCompared: OnCompared): Promise<number> {
    this.#refuseWhileDead()
    return await new Promise<number>((resolve, reject) => {
      this.#verifying = { resolve, reject, onCompared }
      this.#post({ kind: 'verify', oldest })
    })
  }

  /**
   * Has a copy made, where `copyIn` says. One at a time.
   * @param signal gives it up
   * @throws {Error} it can't be made; then none is there
   */
  async backUp (signal: AbortSignal): Promise<void> {
    this.#refuseWhileDead()
    signal.throwIfAborted()
    const giveUp = (): void => { this.#worker?.postMessage({ kind: 'give up backup' } satisfies ToThread) }
    signal.addEventListener('abort', giveUp)
    try {
      await new Promise<void>((resolve, reject) => {
        this.#backingUp = { resolve, reject }
        this.#post({ kind: 'back up' })
      })
    } finally {
      signal.removeEventListener('abort', giveUp)
    }
  }

  async close (windows: readonly Cell[]): Promise<void> {
    clearInterval(this.#watch)
    clearTimeout(this.#restart)
    await new Promise<void>((resolve) => {
      this.#closing = { windows, resolve }
      if (this.#isOpen) this.#post({ kind: 'close', windows })
      else if (this.#worker === undefined) this.#start(true)
    })
  }

  #start (isResumed: boolean): void {
    const { folder, fsyncInterval, now, worker: url = file } = this.#options
    let cause: Error | undefined
    const input: ThreadInput = { folder, fsyncInterval, now: now(), owner: this.#owner, isResumed }
    let worker: Worker
    try {
      // Without the flags of the process: `--input-type` alone would stop the thread.
      this.#worker = worker = new Worker(url, { workerData: input, execArgv: [] })
    } catch (thrown) {
      this.#noteEnd(thrown as Error)                          // the system refuses a thread
      return
    }
    let isUnreadable = false
    worker.on('message', (message: FromThread) => {
      if (isUnreadable) return
      if (message.kind === 'refused') { cause = new Error(message.message); return }
      try {
        this.#take(message)
      } catch (thrown) {
        if (message.kind !== 'loaded') throw thrown
        isUnreadable = true
        cause = new Error(`the ledger of the data folder ${folder} can't be read: a row of kind "${message.of}" is ` +
          `broken (${(thrown as Error).message}). Put a backup of gateway.db in its place.`, { cause: thrown })
        void worker.terminate()
      }
    })
    worker.on('error', (error: unknown) => { cause ??= error instanceof Error ? error : new Error(String(error)) })
    worker.once('exit', (code) => { this.#noteEnd(cause ?? new Error(`it ended with code ${code}`)) })
  }

  #post (message: ToThread): void {
    this.#worker!.postMessage(message)
  }

  #take (message: Exclude<FromThread, { kind: 'refused' }>): void {
    switch (message.kind) {
      case 'written':
        this.#delay = RESTART_MS
        if (this.#trouble !== undefined) this.#noteCure()
        this.#unanswered.shift()!.batch.onWritten(message.known)
        break
      case 'unwritten': {
        const error = new Error(message.message)
        this.#noteTrouble(error, 'the ledger can\'t be written: until it can, requests that cost something are refused')
        this.#unanswered.shift()!.batch.onFailed(error)
        break
      }
      case 'loaded':
        this.#onLoaded(message.of, message.cells)
        break
      case 'opened':
        this.#noteOpened(message.opened)
        break
      case 'read':
        this.#reads.shift()!.resolve(message)
        break
      case 'compared':
        this.#verifying!.onCompared(message.of, message.cells)
        break
      case 'verified':
        this.#verifying!.resolve(message.entries)
        break
      case 'answered':
        this.#asked.shift()!.resolve(message.answer)
        break
      case 'backed up':
        this.#backingUp!.resolve()
        break
      case 'failed':
        this.#failed(message.what).reject(new Error(message.message))
        break
      case 'warning':
        this.#log.error(message.message)
    }
  }

  #failed (what: Extract<FromThread, { kind: 'failed' }>['what']): Pick<Asked<unknown>, 'reject'> {
    switch (what) {
      case 'read': return this.#reads.shift()!
      case 'ask': return this.#asked.shift()!
      case 'verify': return this.#verifying!
      case 'back up': return this.#backingUp!
    }
  }

  #noteOpened (opened: Opened): void {
    this.#isOpen = true
    if (this.#trouble !== undefined) this.#noteCure()         // opening has written to the ledger
    this.#opening?.resolve(opened)
    this.#opening = undefined
    for (const sent of this.#unanswered) this.#write(sent)
    if (this.#closing !== undefined) this.#post({ kind: 'close', windows: this.#closing.windows })
  }

  #noteEnd (cause: Error): void {
    this.#worker = undefined
    this.#isOpen = false
    const died = new Error(`the thread that records died: ${cause.message}`, { cause })
    for (const { reject } of [...this.#reads.splice(0), ...this.#asked.splice(0)]) reject(died)
    this.#verifying?.reject(died)
    this.#backingUp?.reject(died)
    if (this.#opening !== undefined) {
      clearInterval(this.#watch)
      this.#opening.reject(cause)
    } else if (this.#closing !== undefined) {
      for (const { batch } of this.#unanswered.splice(0)) batch.onFailed(died)
      this.#closing.resolve()
    } else {
      this.#trouble = cause
      this.#log.error({ err: cause },
        'the thread that records died: until there is another, requests that cost something are refused')
      this.#restart = setTimeout(() => {
        this.#start(true)
      }, this.#delay)
      this.#delay = Math.min(this.#delay * 2, LONGEST_RESTART_MS)
    }
  }

  #noteTrouble (error: Error, what: string): void {
    if (this.#trouble === undefined) this.#log.error({ err: error }, what)
    this.#trouble = error
  }

  #noteCure (): void {
    this.#trouble = undefined
    this.#log.info('the ledger can be written again')
    this.#onCure()
  }

  /**
   * Notes trouble when a batch stays unanswered, so that no request spends what can't be recorded; during trouble it
   * sends an empty batch, whose result tells whether the disk takes writes again.
   */
  #look (): void {
    const oldest = this.#unanswered[0]?.no ?? 0
    this.#seen = { no: oldest, looks: oldest === this.#seen.no ? this.#seen.looks + 1 : 0 }
    if (oldest !== 0) {
      if (this.#seen.looks === PATIENCE) {
        this.#noteTrouble(new Error(`nothing was recorded for ${PATIENCE * WATCH_MS} ms`),
          'the disk does not answer: until it does, requests that cost something are refused')
      }
    } else if (this.#trouble !== undefined) {
      this.send({ write: NO_WRITE, onWritten () {}, onFailed () {} })
    }
  }

  #refuseWhileDead (): void {
    if (!this.#isOpen) throw new Error('the ledger can\'t be read at this moment: try again', { cause: this.#trouble })
  }
}
