// A file uploaded in a form: in memory while it is small, on disk when it is not. It can be sent to one upstream after
// another.
import { createHash } from 'node:crypto'
import { Chunks } from './body-memory.ts'
import type { TemporaryFile, TemporaryFolder } from './files.ts'

/** Bytes of a file above which it is moved to the disk. */
export const SPILL_BYTES = 1024 * 1024

/** Bytes of a file that show what it is. */
export const FIRST_BYTES = 512

export class Upload {
  readonly name: string
  readonly type: string
  readonly #folder: TemporaryFolder
  #chunks = new Chunks()
  #file: TemporaryFile | undefined
  #size = 0
  #isRemoved = false
  #first = Buffer.alloc(0)
  readonly #hash = createHash('sha256')
  #digest: string | undefined

  /** @param name the client's file name, @param type the client's media type */
  constructor (name: string, type: string, folder: TemporaryFolder) {
    this.name = name
    this.type = type
    this.#folder = folder
  }

  get size (): number {
    return this.#size
  }

  /** its first bytes, 512 at most */
  get first (): Buffer {
    return this.#first
  }

  /** bytes of memory that it takes */
  get inMemory (): number {
    return this.#file === undefined ? this.#chunks.taken : 0
  }

  /** Appends a chunk; each call is awaited before the next. @throws {Error} the disk is full */
  async add (chunk: Buffer): Promise<void> {
    this.#size += chunk.length
    if (this.#first.length < FIRST_BYTES) {
      this.#first = Buffer.concat([this.#first, chunk.subarray(0, FIRST_BYTES - this.#first.length)])
    }
    this.#hash.update(chunk)
    if (this.#file !== undefined) { await this.#file.add(chunk); return }
    this.#chunks.add(chunk)
    if (this.#size <= SPILL_BYTES) return
    const file = await this.#folder.create()
    this.#file = file
    const chunks = this.#chunks.all()
    this.#chunks = new Chunks()
    for (const kept of chunks) await file.add(kept)
    // The request was aborted meanwhile.
    if (this.#isRemoved) await file.remove()
  }

  async end (): Promise<void> {
    await this.#file?.close()
  }

  /** Reads the file from its beginning, each time. */
  async * read (): AsyncIterable<Buffer> {
    if (this.#isRemoved) throw new Error('the file was removed: its request is over')
    if (this.#file === undefined) yield * this.#chunks.all()
    else yield * this.#file.read()
  }

  async remove (): Promise<void> {
    this.#isRemoved = true
    this.#chunks = new Chunks()
    await this.#file?.remove()
  }

  /** Its form in a printed or compared body; only of a whole file. */
  toJSON (): unknown {
    return { name: this.name, type: this.type, size: this.#size, sha256: this.#digest ??= this.#hash.digest('hex') }
  }
}
