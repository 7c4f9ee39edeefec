// The log of requests: the last ones with what became of each attempt, for operators. It is never on the way of a
// request: lines wait in memory, are written once a second or five hundred at a time, and what can't be written is
// dropped and counted.
import type { Logger } from 'pino'
import { isRequestId } from '../../base/request-id.ts'
import { within } from '../../base/timeout.ts'
import type { Timer } from '../../base/timer.ts'
import type { RequestLogConfig } from '../../config/config.ts'
import type { ExchangeRecord } from '../../core/record.ts'
import { arrivalOf, endOf, idOf, type LoggedRequest, readLine } from './line.ts'
import { type PageQuery, search } from './search.ts'
import { type Content, isFull, nameOfFull, nameOfOpen, numberOf, type Segment, type SegmentFiles, Segments,
  segmentsOf } from './segments.ts'
import { WaitingLines } from './waiting-lines.ts'

/** Lines that wait before they are written, and in a write. */
const BATCH = 500
/** Milliseconds until a line is written. */
const PAUSE_MS = 1000
/** Lines that may wait: they pass this only while the disk hangs. */
const MOST_WAITING = 4000
/** A file gets this part of what is kept, because little should go with the oldest one; and is read in one step. */
const SHARE = 100
const MOST_IN_FILE: Readonly<RequestLogConfig> = { keep: 2000, max_size: 1024 ** 2, max_age: 3_600_000 }
/** Least milliseconds between two looks for what is too old. */
const SHORTEST_SWEEP_MS = 1000
/** Milliseconds without trouble, after which it is over. */
const CURE_MS = 10_000
/** Milliseconds that the end of the process waits for the last write. */
const LAST_WRITE_MS = 2000

export interface RequestLogOptions {
  readonly files: SegmentFiles
  /** worker number; absent: no worker, and what all workers before this process have left is its own */
  readonly worker?: number | undefined
  readonly log: Pick<Logger, 'error' | 'info'>
  readonly timer: Timer
  /** milliseconds since the epoch, by the clock of request ids */
  readonly now?: () => number
  /** most requests that are kept, whatever the settings say */
  readonly most?: number
}

/** What operators read. */
export interface RequestReader {
  /** requests that are kept at most; 0: none */
  readonly keep: number
  /** The newest first, by their arrival. */
  list (query: PageQuery): Promise<readonly LoggedRequest[]>
}

/** Reads what processes that have ended have left. */
export function keptRequests (files: SegmentFiles, settings: RequestLogConfig): RequestReader {
  return { keep: settings.keep, list: async (query) => await read(files, query, settings, Date.now()) }
}

async function read (
  files: SegmentFiles, query: PageQuery, { keep, max_age: maxAge }: RequestLogConfig, now: number
): Promise<readonly LoggedRequest[]> {
  return keep === 0 ? [] : await search(files, query, oldestOf(now, maxAge))
}

/** The least age of what is too old, as microseconds since the epoch. */
function oldestOf (now: number, maxAge: number): number {
  return Math.max(0, now - maxAge) * 1000
}

/** The file that is appended to. */
interface Open extends Content {
  /** milliseconds since the epoch */
  readonly since: number
}

function empty (): Content {
  return { rows: 0, bytes: 0, oldest: Infinity, newest: 0 }
}

function contentOf (text: string): Content {
  const content = { ...empty(), bytes: Buffer.byteLength(text) }
  for (const line of text.split('\n').filter(isLine)) {
    content.rows++
    content.oldest = Math.min(content.oldest, arrivalOf(line))
    content.newest = Math.max(content.newest, arrivalOf(line))
  }
  return content
}

function isLine (text: string): boolean {
  return isRequestId(idOf(text))
}

/** What fails, for its line in the log. */
type Trouble = 'written' | 'kept within its bounds'

export class RequestLog implements RequestReader {
  readonly #options: Required<Pick<RequestLogOptions, 'now' | 'most'>> & RequestLogOptions
  readonly #files: SegmentFiles
  readonly #segments = new Segments()
  /** milliseconds since the epoch */
  readonly #begun: number
  /** undefined: before the first ones */
  #settings: RequestLogConfig | undefined
  #waiting = new WaitingLines(MOST_WAITING)
  /** of a write that is done, for what comes during the next one */
  #spare: WaitingLines | undefined
  #dropped = 0
  /** when each was last met, in milliseconds since the epoch */
  readonly #troubles = new Map<Trouble, number>()
  #open: Open | undefined
  /** All work on files, one after the other. Never rejects. */
  #work: Promise<void> = Promise.resolve()
  #cancelWrite: () => void = () => {}
  #cancelSweep: () => void = () => {}

  constructor (options: RequestLogOptions) {
    this.#options = { now: Date.now, most: Infinity, ...options }
    this.#files = options.files
    this.#begun = this.#options.now()
  }

  get keep (): number {
    return this.#settings?.keep ?? 0
  }

  /** requests that could not be written */
  get dropped (): number {
    return this.#dropped
  }

  /** Keeps a finished request. */
  note (record: ExchangeRecord): void {
    if (this.keep === 0) return
    if (this.#waiting.length === MOST_WAITING) { this.#drop(1, new Error('the disk does not answer')); return }
    this.#waiting.add(record)
    const { length } = this.#waiting
    if (length === 1) this.#cancelWrite = this.#options.timer(PAUSE_MS, () => { void this.#write() })
    else if (length === BATCH) void this.#write()
  }

  /** Begins, or applies other settings. */
  configure ({ keep, ...bounds }: RequestLogConfig): void {
    const settings = { ...bounds, keep: Math.min(keep, this.#options.most) }
    const before = this.#settings
    if (JSON.stringify(before) === JSON.stringify(settings)) return
    this.#settings = settings
    this.#cancelSweep()
    if (keep === 0) { this.#end(); return }
    if (before === undefined) void this.#do(async () => { await this.#adopt() })
    this.#sweep()
  }

  async list (query: PageQuery): Promise<readonly LoggedRequest[]> {
    await this.#write()
    return this.#settings === undefined ? [] : await read(this.#files, query, this.#settings, this.#options.now())
  }

  /**
   * Reads what processes before this one have served, a file at each step, the newest first.
   * @param since milliseconds since the epoch
   * @param isOf whether the files of the process of this number are read: 0, or that of a worker
   */
  async * before (since: number, isOf: (number: number) => boolean): AsyncIterable<readonly LoggedRequest[]> {
    await this.#work                                          // files that were left open have ended then
    for (const { name, number, newest } of segmentsOf(await this.#files.names())) {
      if (newest < since * 1000) return
      if (!isOf(number)) continue
      yield (await this.#files.read(name) ?? '').split('\n').flatMap((line) => {
        const request = readLine(line)
        return request !== undefined && endOf(request) < this.#begun ? [request] : []
      })
    }
  }

  /** Writes what waits, when no request runs any more. Never rejects. */
  async close (): Promise<void> {
    this.#cancelSweep()
    await within(this.#write(), LAST_WRITE_MS, () => undefined).catch(() => {})
  }

  /** Removes everything. */
  #end (): void {
    this.#cancelWrite()
    this.#waiting.clear()
    void this.#do(async () => {
      this.#open = undefined
      for (const name of await this.#files.names()) {
        if (this.keep === 0 && (numberOf(name) !== undefined || isFull(name))) await this.#files.remove(name)
      }
      await this.#files.end()
    })
  }

  #write (): Promise<void> {
    this.#cancelWrite()
    return this.#do(async () => {
      const lines = this.#waiting                             // what came while the write before was on its way, too
      this.#waiting = this.#spare ?? new WaitingLines(MOST_WAITING)
      this.#spare = undefined
      for (let at = 0; at < lines.length && this.keep > 0;) at = await this.#append(lines, at)
      lines.clear()
      this.#spare = lines
    })
  }

  #do (work: () => Promise<void>): Promise<void> {
    const done = this.#work.then(work)
    return this.#work = done.catch((thrown: unknown) => { this.#tell('kept within its bounds', thrown) })
  }

  /** Appends some lines from an index on, at most as many as the file may still have. @returns the next index */
  async #append (lines: WaitingLines, from: number): Promise<number> {
    const open = this.#open ??= { ...empty(), since: this.#options.now() }
    // A full file that could not be ended takes what comes, as long as there is space.
    const isEndless = this.#troubles.has('kept within its bounds')
    const rows = isEndless ? BATCH : Math.min(BATCH, this.#share('keep') - open.rows)
    const bytes = isEndless ? Infinity : this.#share('max_size') - open.bytes
    let { oldest, newest } = open
    let at = from
    do {
      const arrival = lines.arrivalOf(at++)
      oldest = Math.min(oldest, arrival)
      newest = Math.max(newest, arrival)
    } while (at < lines.length && at - from < rows && lines.lengthOf(from, at) < bytes)
    Object.assign(open, { oldest, newest, rows: open.rows + at - from })
    const text = lines.bytesOf(from, at)
    try {
      if (open.bytes > this.#settings!.max_size) throw new Error('it is full')
      await this.#files.append(this.#nameOfOpen, text)
      open.bytes += text.length
      this.#cured('written')
    } catch (thrown) {
      this.#drop(at - from, thrown)
    }
    if (this.#isFull(open)) {
      await this.#fill(open).catch((thrown: unknown) => { this.#tell('kept within its bounds', thrown) })
    }
    return at
  }

  #isFull ({ rows, bytes }: Open): boolean {
    return rows >= this.#share('keep') || bytes >= this.#share('max_size')
  }

  /** The part that one file gets. */
  #share (of: keyof RequestLogConfig): number {
    return Math.max(1, Math.min(Math.floor(this.#settings![of] / SHARE), MOST_IN_FILE[of]))
  }

  /** Gives the file its last name, and begins another one. */
  async #fill (open: Open): Promise<void> {
    await this.#files.rename(this.#nameOfOpen, nameOfFull(this.#number, open))
    this.#open = undefined
    await this.#trim()
  }

  /** Removes what is too old or too much, the oldest first; at least as many requests stay as are to be kept. */
  async #trim (): Promise<void> {
    const { keep, max_size: size, max_age: age } = this.#settings!
    let { rows, bytes } = this.#open ?? { rows: 0, bytes: 0 }
    bytes += this.#share('max_size')
    const oldest = oldestOf(this.#options.now(), age)
    const gone: string[] = []
    for (const segment of this.#segments.among(await this.#files.names())) {
      bytes += segment.bytes
      if (rows >= keep || bytes > size || segment.newest < oldest) { gone.unshift(segment.name); continue }
      if (this.#options.worker === undefined && rows + segment.rows > keep + this.#share('keep')) {
        await this.#cut(segment, keep - rows)                 // the settings were others when it was filled
      }
      rows += segment.rows
    }
    for (const name of gone) await this.#files.remove(name)
    if (rows === 0) await this.#files.end()
    this.#cured('kept within its bounds')
  }

  /** Rewrites a file with its last lines only: more are kept in it than are to be kept in all. */
  async #cut ({ name }: Segment, rows: number): Promise<void> {
    const lines = (await this.#files.read(name) ?? '').split('\n').filter(isLine)
    const text = lines.slice(-rows).map((line) => line + '\n').join('')
    await this.#files.append(nameOfFull(this.#number, contentOf(text)), Buffer.from(text))
    await this.#files.remove(name)
  }

  /** Ends the files that processes before this one have left open. */
  async #adopt (): Promise<void> {
    for (const name of await this.#files.names()) {
      const number = numberOf(name)
      if (number === undefined || (this.#options.worker ?? number) !== number) continue
      const content = contentOf(await this.#files.read(name) ?? '')
      if (content.rows === 0) await this.#files.remove(name)
      else await this.#files.rename(name, nameOfFull(number, content))
    }
  }

  /** Looks for what is too old, from now on. */
  #sweep (): void {
    const pause = Math.max(this.#share('max_age'), SHORTEST_SWEEP_MS)
    void this.#do(async () => {
      if (this.keep === 0) return
      const open = this.#open
      const isOld = open !== undefined && this.#options.now() - open.since >= pause
      if (open !== undefined && (isOld || this.#isFull(open))) await this.#fill(open)
      else await this.#trim()
    })
    this.#cancelSweep = this.#options.timer(pause, () => { this.#sweep() })
  }

  get #number (): number {
    return this.#options.worker ?? 0
  }

  get #nameOfOpen (): string {
    return nameOfOpen(this.#number)
  }

  #drop (count: number, cause: unknown): void {
    this.#dropped += count
    this.#tell('written', cause)
  }

  #tell (what: Trouble, err: unknown): void {
    const isNew = !this.#troubles.has(what)
    this.#troubles.set(what, this.#options.now())
    if (!isNew) return
    this.#options.log.error({ err }, `the log of requests can't be ${what}: nothing else waits for it, and what is ` +
      'missing there is counted (gateway_request_log_dropped_total)')
  }

  /** After some time without trouble, so that what comes and goes does not fill the other log. */
  #cured (what: Trouble): void {
    if (this.#options.now() - (this.#troubles.get(what) ?? Infinity) < CURE_MS) return
    this.#troubles.delete(what)
    this.#options.log.info(`the log of requests can be ${what} again`)
  }
}
