// A durable journal of messages to Redis: settlements lie here until Redis has acknowledged them, and a while longer,
// for a Redis that comes back without them. A folder of files of lines, locked by one process.
//
// - All that was appended in one turn of the event loop is one line, and one write. A line begins with its checksum, so
//   it is there as a whole or not at all: what was refused is not there, and what was answered survives a kill of this
//   process. A power loss takes at most the last 100 ms.
// - Acknowledgements are written with the next line, or within 100 ms. A lost one makes a repetition: the receiver must
//   ignore repetitions.
// - Numbers count up without gaps, over restarts. A file is named by its first number, and deleted when all entries in
//   it and before it were acknowledged longer ago than the retention; the last file stays, because it knows the next
//   number. So an entry that is never acknowledged keeps all files after it.
// - In memory there are eight bytes for each entry of the files, and the entries that wait to be written.
import { type FileHandle, mkdir, open, readdir, rm, truncate } from 'node:fs/promises'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setImmediate as turn } from 'node:timers/promises'
import { crc32 } from 'node:zlib'
import type { Logger } from 'pino'
import { GatewayError } from '../../errors.ts'
import { linesOf } from '../../base/lines.ts'

export interface OutboxEntry {
  readonly no: number
  readonly text: string
}

export interface OutboxOptions {
  /** milliseconds since the epoch */
  readonly now?: () => number
  /** milliseconds for which acknowledged entries are kept */
  readonly retention?: number
  /** size at which a new file is begun, for tests */
  readonly file_bytes?: number
}

type Log = Pick<Logger, 'info' | 'warn' | 'error'>

/** A line of a file: `texts` are numbered from `no`; `done` were acknowledged by `at`. */
interface Line {
  readonly no: number
  readonly texts: readonly string[]
  readonly done: readonly number[]
  readonly at: number
}

interface JournalFile {
  readonly path: string
  /** number of its first entry, or of the next where it has none */
  readonly first: number
  /** time of each entry's acknowledgement, in the order of the entries */
  readonly acknowledged: number[]
  /** entries without acknowledgement */
  pending: number
  lastAcknowledged: number
  /** bytes of whole lines */
  length: number
}

interface Waiting {
  readonly text: string
  resolve (no: number): void
  reject (error: GatewayError): void
}

const NOT_YET = -1
/** Milliseconds between two syncs: the most that a power loss takes. */
const SYNC_MS = 100
/** Pause before a failed write is tried again. */
const RETRY_MS = 1000
const FILE_BYTES = 8 * 1024 * 1024
/** Limits of a line: characters of its texts, and acknowledgements. A line is read as a whole, so they bound memory. */
const LINE_LENGTH = 256 * 1024
const LINE_ACKNOWLEDGEMENTS = 10_000
/** Milliseconds after which a write without an answer counts as trouble of the disk. */
const PATIENCE_MS = 5000
/** Characters that may wait to be written: they pass this only while the disk hangs. */
const MOST_WAITING = 64 * 1024 * 1024

export class Outbox {
  readonly #folder: string
  readonly #log: Log
  readonly #now: () => number
  readonly #retention: number
  readonly #fileBytes: number
  readonly #lock: DatabaseSync
  /** oldest first; the last one is written to */
  readonly #files: JournalFile[] = []
  #handle: FileHandle | undefined
  #next = 1
  #size = 0
  #waiting: Waiting[] = []
  #waitingLength = 0
  /** acknowledgements to be written */
  #acknowledged: number[] = []
  #writing: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #isDirty = false
  /** bytes of a failed line may lie behind the last file's length */
  #isTorn = false
  #trouble: Error | undefined
  /** start of the current write, by the monotonic clock */
  #writingSince: number | undefined
  #closing: Promise<void> | undefined

  /**
   * @param folder made if it is not there
   * @throws {Error} the folder can't be used, or its files are damaged: says why, in words for the operator
   */
  static async open (folder: string, log: Log, options: OutboxOptions = {}): Promise<Outbox> {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    const outbox = new Outbox(folder, log, options)
    try {
      await outbox.#load()
    } catch (thrown) {
      outbox.#lock.close()
      throw thrown
    }
    return outbox
  }

  private constructor (
    folder: string,
    log: Log,
    { now = Date.now, retention = 600_000, file_bytes: fileBytes = FILE_BYTES }: OutboxOptions
  ) {
    this.#folder = folder
    this.#log = log
    this.#now = now
    this.#retention = retention
    this.#fileBytes = fileBytes
    this.#lock = lock(folder)
  }

  /** entries without acknowledgement */
  get size (): number {
    return this.#size
  }

  /** Why nothing can be appended at this moment, as far as is known. The recovery is noticed without an append. */
  get trouble (): Error | undefined {
    if (this.#writingSince !== undefined && performance.now() - this.#writingSince > PATIENCE_MS) {
      return new Error(`the disk of the outbox did not answer for ${PATIENCE_MS} ms`)
    }
    return this.#trouble
  }

  /**
   * Answers when a kill of this process loses the entry no more.
   * @returns its number
   * @throws {GatewayError} service_unavailable: it can't be written, and is not in the journal
   */
  append (text: string): Promise<number> {
    return new Promise<number>((resolve, reject) => {
      if (this.#closing !== undefined) throw new Error('the outbox is closed')
      if (this.#waitingLength > MOST_WAITING) throw new GatewayError('service_unavailable', { cause: this.trouble })
      this.#waiting.push({ text, resolve, reject })
      this.#waitingLength += text.length
      this.#wake()
    })
  }

  /** A no-op for an entry that is acknowledged or deleted. */
  acknowledge (no: number): void {
    if (!this.#note(no, this.#now())) return
    this.#acknowledged.push(no)
    this.#wakeIn(SYNC_MS)
  }

  /**
   * Entries without acknowledgement, oldest first; entries appended meanwhile are left out.
   * @throws {Error} the files can't be read
   */
  async * pending (): AsyncIterable<OutboxEntry> {
    yield * this.#read((file) => file.pending > 0, (at) => at === NOT_YET)
  }

  /**
   * Entries acknowledged within the retention, oldest first.
   * @param isWanted `at`: the time of the acknowledgement, milliseconds since the epoch
   * @throws {Error} the files can't be read
   */
  async * kept (isWanted: (no: number, text: string, at: number) => boolean = () => true): AsyncIterable<OutboxEntry> {
    const since = this.#now() - this.#retention
    yield* this.#read((file) => file.lastAcknowledged >= since,
      (at, no, text) => at !== NOT_YET && at >= since && isWanted(no, text, at))
  }

  /** Time of the last acknowledgement, milliseconds since the epoch; 0: none, as far as is known. */
  get lastAcknowledged (): number {
    return Math.max(0, ...this.#files.map((file) => file.lastAcknowledged))
  }

  /** All entries up to this number are acknowledged. */
  get acknowledgedUpTo (): number {
    const file = this.#files.find(({ pending }) => pending > 0)
    return (file === undefined ? this.#next : file.first + file.acknowledged.indexOf(NOT_YET)) - 1
  }

  /** Whether all entries from this number on are here, with a tenth of the retention to send them in. */
  keeps (from: number): boolean {
    const since = this.#now() - this.#retention * 0.9
    return from >= this.#files[0]!.first && this.#files.every(({ first, acknowledged }) =>
      acknowledged.every((at, i) => first + i < from || at === NOT_YET || at >= since))
  }

  /** Ends when all appended entries and acknowledgements are on the disk, or can't be. */
  async close (): Promise<void> {
    await (this.#closing ??= this.#close())
  }

  async #close (): Promise<void> {
    clearTimeout(this.#timer)
    while (this.#writing !== undefined) await this.#writing
    for (let left = Infinity; this.#acknowledged.length > 0 && this.#acknowledged.length < left;) {
      left = this.#acknowledged.length
      await this.#write()
    }
    await this.#sync()
    await this.#handle!.close()
    this.#lock.close()
  }

  get #last (): JournalFile {
    return this.#files.at(-1)!
  }

  /** @returns false: it was acknowledged before, or is deleted */
  #note (no: number, at: number): boolean {
    const file = this.#files.findLast(({ first }) => first <= no)
    if (file?.acknowledged[no - file.first] !== NOT_YET) return false
    file.acknowledged[no - file.first] = at
    file.lastAcknowledged = Math.max(file.lastAcknowledged, at)
    file.pending--
    this.#size--
    return true
  }

  #wake (): void {
    this.#writing ??= this.#writeAll()
  }

  #wakeIn (ms: number): void {
    if (this.#closing !== undefined) return
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      void this.#sync()
      if (this.#acknowledged.length > 0 || this.#trouble !== undefined) this.#wake()
    }, ms)
  }

  async #writeAll (): Promise<void> {
    do {
      await turn()                                            // callers that resume now append in this turn too
      await this.#write()
    } while (this.#waiting.length > 0)
    this.#writing = undefined
  }

  /** Writes one line, and settles the calls that wait for it. Never throws. */
  async #write (): Promise<void> {
    const batch = this.#takeBatch()
    const done = this.#acknowledged.splice(0, LINE_ACKNOWLEDGEMENTS)
    const no = this.#next
    this.#writingSince = performance.now()
    try {
      // Only behind an entry: a file without one would have the name of the next.
      if (this.#last.length >= this.#fileBytes && this.#last.acknowledged.length > 0) await this.#beginFile(no)
      await this.#writeLine(encode({ no, texts: batch.map(({ text }) => text), done, at: this.#now() }))
    } catch (thrown) {
      const cause = thrown as Error
      this.#acknowledged = [...done, ...this.#acknowledged]
      if (this.#trouble === undefined) {
        this.#log.error({ err: cause },
          `the outbox ${this.#folder} can't be written: until it can, requests that cost something are refused`)
      }
      this.#trouble = cause
      for (const { reject } of batch) reject(new GatewayError('service_unavailable', { cause }))
      this.#wakeIn(RETRY_MS)
      return
    } finally {
      this.#writingSince = undefined
    }
    if (this.#trouble !== undefined) this.#log.info(`the outbox ${this.#folder} can be written again`)
    this.#trouble = undefined
    this.#isDirty = true
    this.#add(batch.length)
    for (const [i, { resolve }] of batch.entries()) resolve(no + i)
    await this.#forget()
    this.#wakeIn(SYNC_MS)
  }

  #takeBatch (): Waiting[] {
    let length = 0
    const tooMany = this.#waiting.findIndex(({ text }, i) => (length += text.length) > LINE_LENGTH && i > 0)
    const batch = this.#waiting.splice(0, tooMany === -1 ? this.#waiting.length : tooMany)
    for (const { text } of batch) this.#waitingLength -= text.length
    return batch
  }

  #add (count: number): void {
    const file = this.#last
    for (let i = 0; i < count; i++) file.acknowledged.push(NOT_YET)
    file.pending += count
    this.#size += count
    this.#next += count
  }

  async #writeLine (line: Buffer): Promise<void> {
    const file = this.#last
    const handle = this.#handle!
    if (this.#isTorn) await handle.truncate(file.length)
    this.#isTorn = true
    try {
      for (let at = 0; at < line.length;) {
        at += (await handle.write(line, at, line.length - at, file.length + at)).bytesWritten
      }
    } catch (thrown) {
      // Where this fails too, it is tried again before the next line.
      await handle.truncate(file.length).then(() => { this.#isTorn = false }, () => {})
      throw thrown
    }
    this.#isTorn = false
    file.length += line.length
  }

  /** Begins a file when the one before is on the disk: only the last file may end in a broken line. */
  async #beginFile (first: number): Promise<void> {
    await this.#handle?.datasync()
    const file = path.join(this.#folder, nameOf(first))
    const handle = await open(file, 'w', 0o600)
    await syncNames(this.#folder)
    await this.#handle?.close()
    this.#handle = handle
    this.#isTorn = false
    this.#files.push({ path: file, first, acknowledged: [], pending: 0, lastAcknowledged: 0, length: 0 })
  }

  async #sync (): Promise<void> {
    if (!this.#isDirty) return
    this.#isDirty = false
    try {
      await this.#handle!.datasync()
    } catch (thrown) {
      this.#log.error({ err: thrown },
        `what was written last into the outbox ${this.#folder} may not survive a power loss`)
    }
  }

  async #forget (): Promise<void> {
    const since = this.#now() - this.#retention
    while (this.#files.length > 1 && this.#files[0]!.pending === 0 && this.#files[0]!.lastAcknowledged < since) {
      const file = this.#files.shift()!
      try {
        await rm(file.path)
      } catch (thrown) {
        this.#files.unshift(file) // later files stay too: a gap would be taken for a loss
        this.#log.warn({ err: thrown }, 'a file of the outbox that is not needed any more can\'t be deleted')
        return
      }
    }
  }

  async *#read (
    isNeeded: (file: JournalFile) => boolean,
    isWanted: (at: number, no: number, text: string) => boolean
  ): AsyncIterable<OutboxEntry> {
    const upTo = this.#next
    for (const file of this.#files.slice()) {
      if (!isNeeded(file)) continue
      try {
        for await (const { bytes, line: where } of linesOf(file.path, file.length)) {
          const line = decode(bytes)
          if (line === undefined) throw new Error(broken(file.path, where))
          for (const [i, text] of line.texts.entries()) {
            const no = line.no + i
            if (no >= upTo) return
            if (isWanted(file.acknowledged[no - file.first]!, no, text)) yield { no, text }
          }
        }
      } catch (thrown) {
        if (this.#files.includes(file)) throw thrown          // else deleted meanwhile: not needed
      }
    }
  }

  async #load (): Promise<void> {
    const names = (await readdir(this.#folder)).filter((name) => NAME.test(name)).toSorted()
    for (const [i, name] of names.entries()) await this.#loadFile(name, i === names.length - 1)
    if (names.length === 0) await this.#beginFile(this.#next)
    else this.#handle = await open(this.#last.path, 'r+')
    await this.#forget()
  }

  async #loadFile (name: string, isLast: boolean): Promise<void> {
    const first = parseInt(name, 10)
    const file: JournalFile = { path: path.join(this.#folder, name), first, acknowledged: [], pending: 0,
      lastAcknowledged: 0, length: 0 }
    if (this.#files.length > 0 && first !== this.#next) {
      throw new Error(
        `a file of the outbox is missing before ${file.path}: it would begin with the number ${this.#next}`
      )
    }
    this.#next = first
    this.#files.push(file)
    let brokenLine = 0
    let lost = 0
    for await (const { bytes, line: where, isWhole } of linesOf(file.path)) {
      if (brokenLine > 0) throw new Error(broken(file.path, brokenLine))
      const line = isWhole ? decode(bytes) : undefined
      if (line === undefined) {
        brokenLine = where
        lost = bytes.length
        continue
      }
      if (line.no !== this.#next) throw new Error(broken(file.path, where))
      file.length += bytes.length + 1
      this.#add(line.texts.length)
      for (const no of line.done) this.#note(no, line.at)
    }
    if (brokenLine === 0) return
    if (!isLast) throw new Error(broken(file.path, brokenLine))
    await truncate(file.path, file.length)
    this.#log.warn({ file: file.path, line: brokenLine, bytes: lost },
      'the gateway died while it wrote the last line of its outbox: it is cut off')
  }
}

const NAME = /^\d{16}\.jsonl$/

function nameOf (first: number): string {
  return `${String(first).padStart(16, '0')}.jsonl`
}

/** Eight digits of checksum, a space, JSON. */
function encode (line: Line): Buffer {
  const json = JSON.stringify(line)
  return Buffer.from(`${checksum(json)} ${json}\n`)
}

/** @returns undefined: the checksum does not match */
function decode (bytes: Buffer): Line | undefined {
  const json = bytes.subarray(9)
  return bytes.toString('latin1', 0, 9) === `${checksum(json)} ` ? JSON.parse(json.toString()) as Line : undefined
}

function checksum (json: string | Buffer): string {
  return crc32(json).toString(16).padStart(8, '0')
}

function broken (file: string, line: number): string {
  return `${file}:${line} is not what was written there: restore the file from a backup, or move it away, together ` +
    'with those after it, and what it would have charged is lost'
}

/** Syncs the folder: a file whose directory entry is not on the disk is lost with all that was synced into it. */
async function syncNames (folder: string): Promise<void> {
  if (process.platform === 'win32') return
  const handle = await open(folder, 'r')
  try { await handle.sync() } catch { /* not every file system can */ } finally { await handle.close() }
}

/**
 * Locks the folder by SQLite's lock of a file: it dies with the process, unlike a lock file. Nothing is written into
 * it.
 * @throws {Error} the folder is in use: says so for the operator
 */
function lock (folder: string): DatabaseSync {
  // The timeout is for the end of another process that is about to end.
  const database = new DatabaseSync(path.join(folder, 'lock'), { timeout: 1000 })
  try {
    database.exec('BEGIN EXCLUSIVE')
  } catch (cause) {
    database.close()
    throw new Error(`the outbox ${folder} is in use by another gateway: stop that one first, or give each its own`, {
      cause
    })
  }
  return database
}
