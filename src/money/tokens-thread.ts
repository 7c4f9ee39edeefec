// One life of the thread that counts tokens: text goes there under a number, a count comes back. What becomes of it when it dies is
// for tokens.ts to say.
import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'

export interface ToThread {
  readonly id: number
  readonly text: string
  /** `try` keeps nothing of the text; after the last two nothing of this id is left in the thread */
  readonly next: 'more' | 'peek' | 'try' | 'tell' | 'drop'
  /** the number of the question, of those that ask */
  readonly no: number
}

export type FromThread = 'ready' | { readonly no: number, readonly tokens: number }

/** Memory that both sides see, so that a look at the thread's progress costs no message. */
export const DONE = 0
export const OPEN = 1

/** Characters that may wait for the thread: 1 MB, which even noise lets it count in time. It counts 16,000 of prose in a millisecond, of random Han characters 250 (measured). */
const BACKLOG = 512 * 1024
/** How long a count may take: the client waits for it. Less than a millisecond, but behind a backlog of noise. */
const PATIENCE_MS = 2000
/** How long it may load: 200 ms on a machine with nothing else to do. */
const LOAD_MS = 10_000

/** From a checkout the file is .ts, from the packed build .js: as this one. */
const file = new URL(`./tokens-worker${extname(import.meta.url)}`, import.meta.url)

/** Each is told once at most. */
export interface LifeListener {
  onReady (): void
  /** a count came too late, or a text was not taken: more waits than it can count */
  onBusy (): void
  /** without having been asked to end */
  onDeath (cause: Error): void
}

export class TokensThread {
  readonly #worker: Worker
  /** how many characters are counted, wrapping; how many streams are open */
  readonly #progress = new Int32Array(new SharedArrayBuffer(8))
  /** by number of the question */
  readonly #asked = new Map<number, (tokens: number | undefined) => void>()
  readonly #listener: LifeListener
  readonly #loading: NodeJS.Timeout
  #cause: Error | undefined
  #sent = 0
  #lastId = 0
  #isReady = false
  #isOver = false
  #wasBusy = false

  /** @throws {Error} the system has no thread to give */
  constructor (listener: LifeListener, url = file) {
    this.#listener = listener
    // The flags of the process are not for it (`--input-type` alone would stop it). Its memory is the tokenizer's, up to 70 MB while
    // it loads, and its cache of 20 MB.
    this.#worker = new Worker(url, { workerData: this.#progress, execArgv: [], resourceLimits: { maxOldGenerationSizeMb: 256 } })
    this.#worker.unref()
    this.#loading = setTimeout(() => { this.#fail(new Error(`it did not load within ${LOAD_MS} ms`)) }, LOAD_MS)
    this.#worker.on('message', (message: FromThread) => {
      if (message !== 'ready') { this.#answer(message.no, message.tokens); return }
      clearTimeout(this.#loading)
      this.#isReady = true
      listener.onReady()
    })
    this.#worker.on('error', (error: unknown) => { this.#cause ??= error instanceof Error ? error : new Error(String(error)) })
    this.#worker.once('exit', (code) => { this.#close(new Error(`it ended with code ${code}`)) })
  }

  /** Characters that it was given and has not counted yet. */
  get backlog (): number {
    return (this.#sent - Atomics.load(this.#progress, DONE)) | 0
  }

  /** Streams of which it keeps something. */
  get open (): number {
    return Atomics.load(this.#progress, OPEN)
  }

  /** Until then it takes nothing. */
  get isReady (): boolean {
    return this.#isReady
  }

  newId (): number {
    return ++this.#lastId
  }

  /** False: it was not taken, and a count of this id would lack it. */
  add (id: number, text: string): boolean {
    if (!this.#canTake()) return false
    this.#post(id, text, 'more')
    return true
  }

  /** The count of an id up to this text, more of which may come. Undefined: it was not taken. Never throws. */
  peek (id: number, text: string): Promise<number | undefined> | undefined {
    return this.#canTake() ? this.#ask(id, text, 'peek') : undefined
  }

  /** What the count of an id would be with this text, which is not kept. Undefined: it was not taken. Never throws. */
  try (id: number, text: string): Promise<number | undefined> | undefined {
    return this.#canTake() ? this.#ask(id, text, 'try') : undefined
  }

  /** The whole count of an id that ends with this text; undefined where there is none to be had. Never throws. */
  async count (id: number, text: string): Promise<number | undefined> {
    if (this.#canTake()) return await this.#ask(id, text, 'tell')
    this.drop(id)
    return undefined
  }

  async #ask (id: number, text: string, next: 'peek' | 'try' | 'tell'): Promise<number | undefined> {
    const no = this.newId()
    const before = Atomics.load(this.#progress, DONE)
    return await new Promise((resolve) => {
      const timer = setTimeout(() => {
        if (Atomics.load(this.#progress, DONE) === before) this.#fail(new Error(`it counted nothing for ${PATIENCE_MS} ms`))
        else this.#noteBusy()
        this.#answer(no, undefined)
      }, PATIENCE_MS)
      this.#asked.set(no, (tokens) => {
        clearTimeout(timer)
        resolve(tokens)
      })
      this.#post(id, text, next, no)
    })
  }

  drop (id: number): void {
    if (!this.#isOver) this.#post(id, '', 'drop')
  }

  async end (): Promise<void> {
    this.#close()
    await this.#worker.terminate()
  }

  #canTake (): boolean {
    if (this.#isOver || !this.#isReady) return false
    if (this.backlog < BACKLOG) return true
    this.#noteBusy()
    return false
  }

  #post (id: number, text: string, next: ToThread['next'], no = 0): void {
    this.#sent = (this.#sent + text.length) | 0
    this.#worker.postMessage({ id, text, next, no } satisfies ToThread)
  }

  #answer (no: number, tokens: number | undefined): void {
    const told = this.#asked.get(no)
    this.#asked.delete(no)
    told?.(tokens)
  }

  #noteBusy (): void {
    if (this.#wasBusy) return
    this.#wasBusy = true
    this.#listener.onBusy()
  }

  #fail (cause: Error): void {
    this.#close(cause)
    void this.#worker.terminate()
  }

  /** @param cause absent: it was asked to end */
  #close (cause?: Error): void {
    if (this.#isOver) return
    this.#isOver = true
    clearTimeout(this.#loading)
    for (const no of this.#asked.keys()) this.#answer(no, undefined)
    if (cause !== undefined) this.#listener.onDeath(this.#cause ?? cause)
  }
}
