// Searches the log of requests, file by file, so that no step is longer than reading one file: two thousand lines.
import { beginningOfIds, microsOf } from '../../base/request-id.ts'
import { idOf, type LoggedRequest, readLine } from './line.ts'
import { isFull, numberOf, type Segment, type SegmentFiles, segmentsOf } from './segments.ts'

/** All that are given must fit. */
export interface RequestQuery {
  readonly request_id?: string
  readonly key?: string
  readonly account?: string
  readonly model?: string
  readonly code?: string
  readonly status?: number
}

export interface PageQuery extends RequestQuery {
  /** id of a request: only those that came before it; absent: from the newest on */
  readonly before?: string
  /** most requests */
  readonly limit: number
}

/** Full files may be made while others are read: then it is looked again, so often. */
const LOOKS = 3

/**
 * The newest requests first, by their arrival.
 * @param since microseconds since the epoch: earlier ones are left out
 */
export async function search (files: SegmentFiles, query: PageQuery, since: number): Promise<readonly LoggedRequest[]> {
  const { before, limit, ...wanted } = query
  const found = new Found(wanted, before, limit, beginningOfIds(since))
  const { open, full } = await look(files)
  for (const text of open) found.take(text)
  const end = before === undefined ? Infinity : microsOf(before)
  for (const { name, oldest, newest } of full) {
    if (newest < since || found.hasAllAfter(newest)) break
    if (oldest > end || !found.mayBeWithin(oldest, newest)) continue
    const text = await files.read(name)
    if (text !== undefined) found.take(text)                  // it was too old, and went meanwhile
  }
  return found.requests()
}

/** The texts of the open files, and the full ones as they were at that moment. */
async function look (
  files: SegmentFiles
): Promise<{ readonly open: readonly string[], readonly full: readonly Segment[] }> {
  let names = await files.names()
  for (let looks = 1;; looks++) {
    const texts = await Promise.all(names.flatMap((name) => numberOf(name) === undefined ? [] : files.read(name)))
    const after = await files.names()
    const hasChanged = after.some((name) => isFull(name) && !names.includes(name))
    names = after
    if (!hasChanged || looks === LOOKS) {
      return { open: texts.filter((text) => text !== undefined), full: segmentsOf(names) }
    }
  }
}

/** The newest requests so far that fit. */
class Found {
  readonly #wanted: readonly (readonly [string, unknown])[]
  /** what a line that fits holds, as JSON */
  readonly #marks: readonly string[]
  readonly #only: number | undefined
  readonly #before: string | undefined
  readonly #limit: number
  /** ids that are less don't count */
  #least: string
  #hits: LoggedRequest[] = []

  constructor (wanted: RequestQuery, before: string | undefined, limit: number, least: string) {
    this.#wanted = Object.entries(wanted).filter(([, value]) => value !== undefined)
    this.#marks = this.#wanted.map(([, value]) => JSON.stringify(value))
    this.#only = wanted.request_id === undefined ? undefined : microsOf(wanted.request_id)
    this.#before = before
    this.#limit = limit
    this.#least = least
  }

  /** Whether there are as many as are wanted, and none that came until then, in microseconds, can be among them. */
  hasAllAfter (newest: number): boolean {
    return this.#hits.length === this.#limit && microsOf(this.#least) > newest
  }

  mayBeWithin (oldest: number, newest: number): boolean {
    return this.#only === undefined || (oldest <= this.#only && this.#only <= newest)
  }

  take (text: string): void {
    if (!this.#marks.every((mark) => text.includes(mark))) return
    // The last lines are the newest, more or less: with them most others need not be read.
    for (let end = text.length; end > 0;) {
      const start = end < 2 ? 0 : text.lastIndexOf('\n', end - 2) + 1
      const id = idOf(text, start)
      if (id > this.#least && (this.#before === undefined || id < this.#before)) {
        const request = this.#read(text.slice(start, end))
        if (request !== undefined) this.#hits.push(request)
        if (this.#hits.length > 2 * this.#limit) this.#cut()
      }
      end = start
    }
    this.#cut()
  }

  requests (): readonly LoggedRequest[] {
    return this.#hits
  }

  /** Undefined: it does not fit, or is damaged. */
  #read (line: string): LoggedRequest | undefined {
    if (!this.#marks.every((mark) => line.includes(mark))) return undefined
    const request = readLine(line)
    return this.#wanted.every(([name, value]) => request?.[name as keyof RequestQuery] === value) ? request : undefined
  }

  #cut (): void {
    this.#hits.sort((a, b) => a.request_id < b.request_id ? 1 : -1)
    // One that was read twice: its file got another name meanwhile.
    const once = this.#hits.filter(({ request_id: id }, i) => this.#hits[i - 1]?.request_id !== id)
    this.#hits = once.slice(0, this.#limit)
    if (this.#hits.length === this.#limit) this.#least = this.#hits.at(-1)!.request_id
  }
}
