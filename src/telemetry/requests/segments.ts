// The files of the log of requests. Each process of a data folder appends to one of its own, which gets a name that
// tells what is in it when it is full, and is never changed again. So what is too old or too much goes file by file,
// and a file that is broken or gone costs its own lines.
import { appendFile, mkdir, readdir, readFile, rename, rmdir, unlink } from 'node:fs/promises'
import path from 'node:path'

/** Where the files are. */
export interface SegmentFiles {
  /** empty where there are none */
  names (): Promise<readonly string[]>
  /** Undefined: the file is gone, or can't be read. */
  read (name: string): Promise<string | undefined>
  /** Makes the file where it is missing. @param bytes may change when it has resolved */
  append (name: string, bytes: Buffer): Promise<void>
  /** A no-op where the file is gone. */
  rename (from: string, to: string): Promise<void>
  /** A no-op where the file is gone. */
  remove (name: string): Promise<void>
  /** Removes the folder, if it is empty. */
  end (): Promise<void>
}

/** What is in a file. */
export interface Content {
  rows: number
  bytes: number
  /** arrivals of its requests, in microseconds since the epoch */
  oldest: number
  newest: number
}

/** A full file. */
export interface Segment extends Readonly<Content> {
  readonly name: string
  /** of the process whose it was: 0, or that of a worker */
  readonly number: number
}

const FULL = /^(\d+)-(\d+)-(\d+)-(\d+)-(\d+)\.jsonl$/
const OPEN = /^open-(\d+)\.jsonl$/

/** @param number of the process: 0, or that of a worker */
export function nameOfOpen (number: number): string {
  return `open-${number}.jsonl`
}

/** Of the process whose open file it is. Undefined: it is no open file. */
export function numberOf (name: string): number | undefined {
  const number = OPEN.exec(name)?.[1]
  return number === undefined ? undefined : Number(number)
}

export function isFull (name: string): boolean {
  return FULL.test(name)
}

/** Ids of one process don't repeat a microsecond, so neither do the names of its files. */
export function nameOfFull (number: number, { oldest, newest, rows, bytes }: Readonly<Content>): string {
  return `${oldest}-${newest}-${number}-${rows}-${bytes}.jsonl`
}

/** The full files among these, by their newest request: the newest first. */
export function segmentsOf (names: readonly string[]): readonly Segment[] {
  return new Segments().among(names)
}

/** Full files, which keep their names: those of the last look are not read from them again. */
export class Segments {
  #known = new Map<string, Segment>()

  /** As `segmentsOf`. */
  among (names: readonly string[]): readonly Segment[] {
    const before = this.#known
    this.#known = new Map()
    for (const name of names) {
      const segment = before.get(name) ?? segmentOf(name)
      if (segment !== undefined) this.#known.set(name, segment)
    }
    return [...this.#known.values()].sort((a, b) => b.newest - a.newest)
  }
}

/** Undefined: it is no full file. */
function segmentOf (name: string): Segment | undefined {
  const found = FULL.exec(name)
  if (found === null) return undefined
  const [oldest, newest, number, rows, bytes] = found.slice(1).map(Number) as [number, number, number, number, number]
  return { name, number, oldest, newest, rows, bytes }
}

/** In a folder, which is made with the first file. */
export class FolderFiles implements SegmentFiles {
  readonly #folder: string

  constructor (folder: string) {
    this.#folder = folder
  }

  async names (): Promise<readonly string[]> {
    return await readdir(this.#folder).catch(unlessGone) ?? []
  }

  async read (name: string): Promise<string | undefined> {
    return await readFile(this.#of(name), 'utf8').catch(() => undefined)
  }

  async append (name: string, bytes: Buffer): Promise<void> {
    const write = async (): Promise<true> => { await appendFile(this.#of(name), bytes, { mode: 0o600 }); return true }
    if (await write().catch(unlessGone) === true) return
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    await write()
  }

  async rename (from: string, to: string): Promise<void> {
    await rename(this.#of(from), this.#of(to)).catch(unlessGone)
  }

  async remove (name: string): Promise<void> {
    await unlink(this.#of(name)).catch(unlessGone)
  }

  async end (): Promise<void> {
    await rmdir(this.#folder).catch(() => {})
  }

  #of (name: string): string {
    return path.join(this.#folder, name)
  }
}

/** @throws {Error} any other error than that a file or folder does not exist */
function unlessGone (thrown: unknown): undefined {
  if ((thrown as NodeJS.ErrnoException).code !== 'ENOENT') throw thrown
}

/** In memory, for a store that keeps nothing: bytes, which the garbage collector need not copy. */
export class MemoryFiles implements SegmentFiles {
  readonly #files = new Map<string, Buffer[]>()

  names (): Promise<readonly string[]> {
    return Promise.resolve([...this.#files.keys()])
  }

  read (name: string): Promise<string | undefined> {
    const parts = this.#files.get(name)
    return Promise.resolve(parts === undefined ? undefined : Buffer.concat(parts).toString('utf8'))
  }

  append (name: string, bytes: Buffer): Promise<void> {
    const parts = this.#files.get(name)
    if (parts === undefined) this.#files.set(name, [Buffer.from(bytes)])
    else parts.push(Buffer.from(bytes))
    return Promise.resolve()
  }

  rename (from: string, to: string): Promise<void> {
    const parts = this.#files.get(from)
    if (parts !== undefined) this.#files.set(to, parts)
    this.#files.delete(from)
    return Promise.resolve()
  }

  remove (name: string): Promise<void> {
    this.#files.delete(name)
    return Promise.resolve()
  }

  end (): Promise<void> {
    return Promise.resolve()
  }
}
