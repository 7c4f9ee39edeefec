// A file that came in a form: in memory while it is small, on disk when it is not. It can be sent to one upstream after
// another.
import { createHash } from 'node:crypto'
import { Chunks } from './body-memory.ts'
import type { TemporaryFile, TemporaryFolder } from './files.ts'

/** Bytes that a file may take of our memory. */
export const SPILL_BYTES = 1024 * 1024

export class Upload {
  readonly name: string
  readonly type: string
  readonly #folder: TemporaryFolder
  #chunks = new Chunks()
  #file: TemporaryFile | undefined
  #size = 0
  #isRemoved = false
  readonly #hash = createHash('sha256')
  #digest: string | undefined

  /** @param name as the client calls the file, @param type as it says */
  constructor (name: string, type: string, folder: TemporaryFolder) {
    this.name = name
    this.type = type
    this.#folder = folder
  }

  get size (): number {
    return this.#size
  }

  /** bytes that it takes of our memory */
  get inMemory (): number {
    return this.#file === undefined ? this.#chunks.taken : 0
  }

  /** One after the other: each is awaited before the next. @throws {Error} the disk is full */
  async add (chunk: Buffer): Promise<void> {
    this.#size += chunk.length
    this.#hash.update(chunk)
    if (this.#file !== undefined) { await this.#file.add(chunk); return }
    this.#chunks.add(chunk)
    if (this.#size <= SPILL_BYTES) return
    const file = await this.#folder.create()
    this.#file = file
    const chunks = this.#chunks.all()
    this.#chunks = new Chunks()
    for (const kept of chunks) await file.add(kept)
    // The request was given up meanwhile.
    if (this.#isRemoved) await file.remove()
  }

  async end (): Promise<void> {
    await this.#file?.close()
  }

  /** From its beginning, each time. */
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

  /** What it is to whoever prints or compares a body. When it is whole. */
  toJSON (): unknown {
    return { name: this.name, type: this.type, size: this.#size, sha256: this.#digest ??= this.#hash.digest('hex') }
  }
}
