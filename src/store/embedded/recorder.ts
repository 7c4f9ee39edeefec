// Keeps a thread alive that records. What it has not acknowledged when it dies goes to the next one, in the same order: writing an entry
// twice changes nothing (ledger.ts), so nobody has to guess what the dead one had written.
import { randomUUID } from 'node:crypto'
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { Logger } from 'pino'
import type { Difference } from '../store.ts'
import type { Answers, Cell, FromThread, Known, Loaded, Opened, Question, ThreadInput, ToThread, Write } from './wire.ts'

/** From a checkout the file is .ts, from the packed build .js: as this one. */
const file = new URL(`./worker${extname(import.meta.url)}`, import.meta.url)

/** Before the next life; twice as long after each that recorded nothing. */
const RESTART_MS = 50
const LONGEST_RESTART_MS = 30_000

/** How often it is looked whether the disk answers, or does again. */
const WATCH_MS = 1000
/** Looks that may find the same batch unanswered. */
const PATIENCE = 5

/** Each is told the one or the other, once. */
export interface Batch {
  readonly write: Omit<Write, 'kind' | 'no'>
  onWritten (known: readonly Known[]): void
  /** nothing of it is recorded */
  onFailed (error: Error): void
}

export interface RecorderOptions {
  readonly folder: string
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  readonly fsyncInterval: number
  readonly now: () => number
  /** another file for the thread to run, for tests */
  readonly worker?: URL | undefined
  onLoaded (of: Loaded, cells: readonly Cell[]): void
  /** it can be recorded again */
  onCure (): void
}

/** Told id, sum of the entries and sum as kept on disk, of several. */
type OnCompared = (of: Difference['of'], cells: readonly Cell[]) => void

interface Sent {
  readonly no: number
  readonly batch: Batch
}

interface Asked<T> {
  resolve (answer: T): void
  reject (error: Error): void
}

interface Slice {
  readonly cells: readonly Cell[]
  readonly upTo: number
}

export class Recorder {
  readonly #options: RecorderOptions
  readonly #log: RecorderOptions['log']
  readonly #owner = randomUUID()
  readonly #watch: NodeJS.Timeout
  /** oldest first */
  readonly #unanswered: Sent[] = []
  readonly #reads: Asked<Slice>[] = []
  readonly #asked: Asked<Answers[keyof Answers]>[] = []
  #verifying: Asked<number> & { readonly onCompared: OnCompared } | undefined
  #opening: Asked<Opened> | undefined
  #closing: { readonly windows: readonly Cell[], resolve (): void } | undefined
  #worker: Worker | undefined
  #isOpen = false
  #trouble: Error | undefined
  #restart: NodeJS.Timeout | undefined
  #delay = RESTART_MS
  #lastNo = 0
  /** the batch that was the oldest without an answer at the last look, and at how many before */
  #seen = { no: 0, looks: 0 }

  constructor (options: RecorderOptions) {
    this.#options = options
    this.#log = options.log
    this.#watch = setInterval(() => { this.#look() }, WATCH_MS).unref()
  }

  /** Why nothing can be recorded at this moment, as far as is known. */
  get trouble (): Error | undefined {
    return this.#trouble
  }

  /** @throws {Error} the data folder can't be used: says why */
  async open (): Promise<Opened> {
    return await new Promise<Opened>((resolve, reject) => {
      this.#opening = { resolve, reject }
      this.#start(false)
    })
  }

  send (batch: Batch): void {
    const sent = { no: ++this.#lastNo, batch }
    this.#unanswered.push(sent)
    if (this.#isOpen) this.#post({ kind: 'write', no: sent.no, ...batch.write })
  }

  /** Entries after a number. */
  async read (after: number, upTo?: number): Promise<Slice> {
    this.#refuseWhileDead()
    return await new Promise<Slice>((resolve, reject) => {
      this.#reads.push({ resolve, reject })
      this.#post({ kind: 'read', after, upTo })
    })
  }

  /** @throws {Error} nobody knows whether it was done */
  async ask<Of extends Question['of']> (question: Question & { readonly of: Of }): Promise<Answers[Of]> {
    this.#refuseWhileDead()
    return await new Promise<Answers[keyof Answers]>((resolve, reject) => {
      this.#asked.push({ resolve, reject })
      this.#post({ kind: 'ask', question })
    }) as Answers[Of]
  }

  /**
   * One at a time.
   * @param oldest days and months before it are not compared
   * @returns how many entries there are
   */
  async verify (oldest: string, onCompared: OnCompared): Promise<number> {
    this.#refuseWhileDead()
    return await new Promise<number>((resolve, reject) => {
      this.#verifying = { resolve, reject, onCompared }
      this.#post({ kind: 'verify', oldest })
    })
  }

  /** When all that was sent is recorded, or can't be. */
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
      // The flags of the process are not for it (`--input-type` alone would stop it).
      this.#worker = worker = new Worker(url, { workerData: input, execArgv: [] })
    } catch (thrown) {
      this.#noteEnd(thrown as Error)                          // the system has no thread to give
      return
    }
    worker.on('message', (message: FromThread) => {
      if (message.kind === 'refused') cause = new Error(message.message)
      else this.#take(message)
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
      case 'loaded': this.#options.onLoaded(message.of, message.cells); break
      case 'opened': this.#noteOpened(message.opened); break
      case 'read': this.#reads.shift()!.resolve(message); break
      case 'compared': this.#verifying!.onCompared(message.of, message.cells); break
      case 'verified': this.#verifying!.resolve(message.entries); break
      case 'answered': this.#asked.shift()!.resolve(message.answer); break
      case 'failed': (message.what === 'read' ? this.#reads.shift() : message.what === 'ask' ? this.#asked.shift() : this.#verifying)!.reject(new Error(message.message)); break
      case 'warning': this.#log.error(message.message)
    }
  }

  #noteOpened (opened: Opened): void {
    this.#isOpen = true
    if (this.#trouble !== undefined) this.#noteCure()         // whoever opens it has written to it
    this.#opening?.resolve(opened)
    this.#opening = undefined
    for (const { no, batch } of this.#unanswered) this.#post({ kind: 'write', no, ...batch.write })
    if (this.#closing !== undefined) this.#post({ kind: 'close', windows: this.#closing.windows })
  }

  #noteEnd (cause: Error): void {
    this.#worker = undefined
    this.#isOpen = false
    const died = new Error(`the thread that records died: ${cause.message}`, { cause })
    for (const { reject } of [...this.#reads.splice(0), ...this.#asked.splice(0)]) reject(died)
    this.#verifying?.reject(died)
    if (this.#opening !== undefined) {
      clearInterval(this.#watch)
      this.#opening.reject(cause)
    } else if (this.#closing !== undefined) {
      for (const { batch } of this.#unanswered.splice(0)) batch.onFailed(died)
      this.#closing.resolve()
    } else {
      this.#trouble = cause
      this.#log.error({ err: cause }, 'the thread that records died: until there is another, requests that cost something are refused')
      this.#restart = setTimeout(() => { this.#start(true) }, this.#delay)
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
    this.#options.onCure()
  }

  /** Nobody may come to spend on what can't be recorded; and when it can again, somebody has to find out. */
  #look (): void {
    const oldest = this.#unanswered[0]?.no ?? 0
    this.#seen = { no: oldest, looks: oldest === this.#seen.no ? this.#seen.looks + 1 : 0 }
    if (oldest !== 0) {
      if (this.#seen.looks === PATIENCE) this.#noteTrouble(new Error(`nothing was recorded for ${PATIENCE * WATCH_MS} ms`), 'the disk does not answer: until it does, requests that cost something are refused')
    } else if (this.#trouble !== undefined) {
      this.send({ write: { entries: [], progress: [], forget: [], tasks: [], windows: [] }, onWritten () {}, onFailed () {} })
    }
  }

  #refuseWhileDead (): void {
    if (!this.#isOpen) throw new Error('the ledger can\'t be read at this moment: try again', { cause: this.#trouble })
  }
}
