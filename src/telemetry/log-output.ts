// The log's destination: standard output, whether a file, a pipe or a terminal. No write waits for its reader, and none
// throws.
import { fstatSync, write, writeSync } from 'node:fs'
import { isatty } from 'node:tty'
import type { DestinationStream } from 'pino'
import type { JsonBytes } from '../base/json-bytes.ts'
import type { LogFormat } from '../config/config.ts'
import { Pretty } from './pretty-log.ts'

/** Most bytes that wait for a slow reader: beyond them lines are dropped. */
const BACKLOG_BYTES = 16 * 1024 * 1024
/** Lines are gathered for so long, or until they fill a page. */
const GATHER_MS = 100
const PAGE_BYTES = 64 * 1024
/** Milliseconds until a full pipe is tried again. */
const RETRY_MS = 10
/** Milliseconds at the process's end after which a reader that has taken nothing is given up. */
const PATIENCE_MS = 1000
const NEWLINE = 10

export interface LogOutput extends DestinationStream {
  /** format of the lines from now on; until it is set: auto */
  format: LogFormat
  /** lines that could not be written: the disk is full, or the pipe is not read */
  readonly dropped: number
  /** @param lines whole lines of JSON in UTF-8, whose memory is the output's from now on */
  writeBytes (lines: Buffer): void
  /** Resolves when all is written, or no more will be. @param patienceMs limit in milliseconds */
  end (patienceMs: number): Promise<void>
}

/**
 * Writes lines in pages. pino's own `minLength` measures its whole buffer at every line (20 µs each), and lines kept as
 * strings are trees of 60 small ones that every garbage collection copies (a fifth of the CPU of a request): so a line
 * becomes bytes at once (both measured). Its own writer waits for ever for a pipe that is not read, and ends the
 * process when the disk is full.
 */
export class StandardOutput implements LogOutput {
  format: LogFormat = 'auto'
  readonly #fd: number
  readonly #isTerminal: boolean
  /** true: a write never waits, and fails with EAGAIN */
  readonly #isPipe: boolean
  readonly #pretty: Pretty
  /** of whole lines, oldest first; the first may be written in part */
  readonly #pages: Buffer[] = []
  #backlog = 0
  #page = Buffer.allocUnsafe(PAGE_BYTES)
  #used = 0
  #gathering: NodeJS.Timeout | undefined
  /** `performance.now()` at the start of the current write; 0: none */
  #writingSince = 0
  #retry: NodeJS.Timeout | undefined
  /** last byte written */
  #lastByte = NEWLINE
  /** the last write ended in the middle of a line, whose rest was dropped */
  #isTorn = false
  #dropped = 0
  /** bytes taken, and pages dropped: it grows as long as there is progress */
  #progress = 0

  constructor (fd: 1 | 2 = 1) {
    this.#fd = fd
    this.#isTerminal = isatty(fd)
    // Creating the stream makes a pipe non-blocking. Other writers to it, such as plugins, fail like this one.
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
    const line = this.#isPretty ? this.#pretty.lines(text) : text
    const most = line.length * 3                              // UTF-8 of a UTF-16 unit
    if (this.#hasSpace(most)) this.#used += this.#page.write(line, this.#used)
    else this.#push(Buffer.from(line))
  }

  /** @param line of JSON, with its end */
  writeLine (line: JsonBytes): void {
    const { bytes, length } = line
    if (this.#isPretty || !this.#hasSpace(length)) this.write(line.toString())
    else this.#used += bytes.copy(this.#page, this.#used, 0, length)
  }

  get #isPretty (): boolean {
    return this.format === 'pretty' || (this.format === 'auto' && this.#isTerminal)
  }

  /** Whether the page has space for so many bytes, if need be another one. False: no page has. */
  #hasSpace (bytes: number): boolean {
    if (this.#used + bytes > PAGE_BYTES) this.#flush()
    if (bytes > PAGE_BYTES) return false
    this.#gathering ??= setTimeout(() => { this.#flush() }, GATHER_MS).unref()
    return true
  }

  writeBytes (lines: Buffer): void {
    if (this.#isPretty) { this.write(lines.toString()); return }
    this.#flush()                                             // the order of lines stays
    this.#push(lines)
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

  /** Writes in the thread pool: a slow disk or a stopped terminal blocks a thread and not the event loop. */
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

  /** Waits where the reader may go on; else drops the page, or the rest of it. */
  #failed ({ code }: NodeJS.ErrnoException): void {
    if (code === 'EAGAIN') {
      this.#retry = setTimeout(() => { this.#retry = undefined; this.#pump() }, RETRY_MS).unref()
      return
    }
    const page = this.#pages.shift()!
    this.#progress++
    this.#backlog -= page.length
    // A page that begins with the end of a line: that line was written.
    this.#dropped += linesIn(page) - (page[0] === NEWLINE ? 1 : 0)
    this.#isTorn = this.#lastByte !== NEWLINE
  }

  /** The process ends in this turn of the loop. A wait in `end` is over, or its reader has gone. */
  #endNow (): void {
    this.#flush()
    if (this.#writingSince !== 0) {
      // The exit would wait for ever for a thread that is stuck in a write.
      if (performance.now() - this.#writingSince > PATIENCE_MS) process.kill(process.pid, 'SIGKILL')
      if (this.#isTerminal) return
      this.#pages.shift()                                     // it is written before the process exits
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

/** For a wait that blocks the thread, in a process that ends. */
const NEVER = new Int32Array(new SharedArrayBuffer(4))

function linesIn (page: Buffer): number {
  let count = 0
  for (let at = page.indexOf(NEWLINE); at !== -1; at = page.indexOf(NEWLINE, at + 1)) count++
  return count
}
