// Where the log goes: standard output, whatever it is and whoever reads it. Nothing here waits for a reader, and
// nothing throws.
import { fstatSync, write, writeSync } from 'node:fs'
import { isatty } from 'node:tty'
import type { DestinationStream } from 'pino'
import type { LogFormat } from '../config/config.ts'
import { Pretty } from './pretty-log.ts'

/** A reader that stands still must not fill our memory: beyond it lines are dropped. */
const BACKLOG_BYTES = 16 * 1024 * 1024
/** Lines wait for each other for so long, or until they fill a page. */
const GATHER_MS = 100
const PAGE_BYTES = 64 * 1024
/** A pipe that is full is tried again after so long. */
const RETRY_MS = 10
/** Whoever has taken nothing for so long at our end will not take the rest either. */
const PATIENCE_MS = 1000
const NEWLINE = 10

export interface LogOutput extends DestinationStream {
  /** how lines look from now on; until then: auto */
  format: LogFormat
  /** lines that could not be written: the disk is full, or nobody reads */
  readonly dropped: number
  /** Resolves when all is written, or no more will be. @param patienceMs the longest that it may take */
  end (patienceMs: number): Promise<void>
}

/**
 * Written in pages. pino's own `minLength` measures all that it holds again at every line (20 µs each), and lines kept
 * as strings are trees of 60 small ones that every garbage collection copies (a fifth of the CPU of a request): so a
 * line becomes bytes at once (both measured). Its own writer waits for ever for a pipe that nobody reads, and ends the
 * process when the disk is full.
 */
export class StandardOutput implements LogOutput {
  format: LogFormat = 'auto'
  readonly #fd: number
  readonly #isTerminal: boolean
  /** A write to it never waits: it fails with EAGAIN. */
  readonly #isPipe: boolean
  readonly #pretty: Pretty
  /** whole lines each, oldest first; the first may be written in part */
  readonly #pages: Buffer[] = []
  #backlog = 0
  #page = Buffer.allocUnsafe(PAGE_BYTES)
  #used = 0
  #gathering: NodeJS.Timeout | undefined
  /** `performance.now()` of the write that is under way; 0: none is */
  #writingSince = 0
  #retry: NodeJS.Timeout | undefined
  /** that was written */
  #lastByte = NEWLINE
  /** it was in the middle of a line, whose rest was given up */
  #isTorn = false
  #dropped = 0
  /** bytes that were taken, and pages that were given up: it grows as long as there is progress */
  #progress = 0

  constructor (fd: 1 | 2 = 1) {
    this.#fd = fd
    this.#isTerminal = isatty(fd)
    // Asking for the stream is what makes a pipe one that does not wait. Who else writes to it, such as a plugin, fails
    // as we do.
    const stream = fd === 1 ? process.stdout : process.stderr
    stream.on('error', () => {})
    const kind = fstatSync(fd)
    this.#isPipe = kind.isFIFO() || kind.isSocket()
    this.#pretty = new Pretty(this.#isTerminal)
    process.on('exit', () => { this.#endNow() })
  }

  get dropped (): number {
    return this.#dropped
  }

  /** @param text whole lines of JSON */
  write (text: string): void {
    const line = this.format === 'pretty' || (this.format === 'auto' && this.#isTerminal)
      ? this.#pretty.lines(text)
      : text
    const most = line.length * 3 // UTF-8 of a UTF-16 unit
    if (this.#used + most > PAGE_BYTES) this.#flush()
    if (most > PAGE_BYTES) {
      this.#push(Buffer.from(line))
      return
    }
    this.#used += this.#page.write(line, this.#used)
    this.#gathering ??= setTimeout(() => { this.#flush() }, GATHER_MS).unref()
  }

  async end (patienceMs: number): Promise<void> {
    this.#flush()
    const latest = performance.now() + patienceMs
    let progress = this.#progress
    let since = performance.now()
    while (this.#pages.length > 0) {
      await new Promise((resolve) => { setTimeout(resolve, RETRY_MS) })
      const now = performance.now()
      if (this.#progress !== progress) [progress, since] = [this.#progress, now]
      else if (now - since > PATIENCE_MS) return
      if (now > latest) return
    }
  }

  #flush (): void {
    clearTimeout(this.#gathering)
    this.#gathering = undefined
    if (this.#used === 0) return
    this.#push(this.#page.subarray(0, this.#used))
    this.#page = Buffer.allocUnsafe(PAGE_BYTES)
    this.#used = 0
  }

  #push (page: Buffer): void {
    if (this.#backlog + page.length > BACKLOG_BYTES) { this.#dropped += linesIn(page); return }
    this.#pages.push(page)
    this.#backlog += page.length
    this.#pump()
  }

  #pump (): void {
    while (this.#pages.length > 0 && this.#writingSince === 0 && this.#retry === undefined) {
      if (this.#isTorn) this.#mend()
      if (this.#isPipe) this.#writeNow()
      else this.#writeAside()
    }
  }

  #mend (): void {
    this.#isTorn = false
    this.#pages[0] = Buffer.concat([Buffer.of(NEWLINE), this.#pages[0]!])
    this.#backlog++
  }

  #writeNow (): void {
    try {
      this.#took(writeSync(this.#fd, this.#pages[0]!))
    } catch (error) {
      this.#failed(error as NodeJS.ErrnoException)
    }
  }

  /** A disk that is slow, or a terminal that is stopped, holds up a thread and not the loop. */
  #writeAside (): void {
    this.#writingSince = performance.now()
    write(this.#fd, this.#pages[0]!, (error, bytes) => {
      this.#writingSince = 0
      if (error === null) this.#took(bytes)
      else this.#failed(error)
      this.#pump()
    })
  }

  #took (bytes: number): void {
    const page = this.#pages[0]!
    this.#progress += bytes
    this.#backlog -= bytes
    if (bytes > 0) this.#lastByte = page[bytes - 1]!
    if (bytes === page.length) this.#pages.shift()
    else this.#pages[0] = page.subarray(bytes)
  }

  /** Waits where a reader may come; else gives up the page, or what is left of it. */
  #failed ({ code }: NodeJS.ErrnoException): void {
    if (code === 'EAGAIN') {
      this.#retry = setTimeout(() => { this.#retry = undefined; this.#pump() }, RETRY_MS).unref()
      return
    }
    const page = this.#pages.shift()!
    this.#progress++
    this.#backlog -= page.length
    // One that begins with the end of a line: that line is written.
    this.#dropped += linesIn(page) - (page[0] === NEWLINE ? 1 : 0)
    this.#isTorn = this.#lastByte !== NEWLINE
  }

  /**
   * The process ends in this turn of the loop. What `end` was asked for before has nothing left to do, or no reader.
   */
  #endNow (): void {
    this.#flush()
    if (this.#writingSince !== 0) {
      // A thread that is stuck in a write would be waited for, for ever.
      if (performance.now() - this.#writingSince > PATIENCE_MS) process.kill(process.pid, 'SIGKILL')
      if (this.#isTerminal) return
      this.#pages.shift()                                     // it is written before the process is gone
    }
    const latest = performance.now() + PATIENCE_MS
    while (this.#pages.length > 0 && performance.now() < latest) {
      if (this.#isTorn) this.#mend()
      this.#writeNow()
      if (this.#retry === undefined) continue
      clearTimeout(this.#retry)
      this.#retry = undefined
      Atomics.wait(NEVER, 0, 0, RETRY_MS)
    }
  }
}

/** What is waited for without giving way to anything: of a process that ends. */
const NEVER = new Int32Array(new SharedArrayBuffer(4))

function linesIn (page: Buffer): number {
  let count = 0
  for (let at = page.indexOf(NEWLINE); at !== -1; at = page.indexOf(NEWLINE, at + 1)) count++
  return count
}
