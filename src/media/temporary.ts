// Files that live no longer than a request: large uploads, and answers that wait for slow clients. Files left by a
// killed process are removed at the next start.
import { createReadStream } from 'node:fs'
import { mkdir, open, rm, type FileHandle } from 'node:fs/promises'
import path from 'node:path'
import { randomSecret } from '../base/secrets.ts'
import type { TemporaryFile as FilePort, TemporaryFolder as FolderPort } from '../core/files.ts'
import { GatewayError } from '../errors.ts'

export class TemporaryFolder implements FolderPort {
  readonly #folder: string
  readonly #space: number
  #used = 0
  #made: Promise<unknown> | undefined

  /**
   * @param folder of this process alone: its content is removed at the start
   * @param space bytes of all files together
   */
  constructor (folder: string, space: number) {
    this.#folder = folder
    this.#space = space
  }

  get used (): number {
    return this.#used
  }

  /** @throws {GatewayError} queue_full: so many more do not fit now */
  take (bytes: number): void {
    if (this.#used + bytes > this.#space) {
      throw new GatewayError('queue_full', {
        message: 'The service holds as many uploads as it can. Try again in {wait}.'
      })
    }
    this.#used += bytes
  }

  give (bytes: number): void {
    this.#used -= bytes
  }

  /** @throws {Error} the folder can't be removed */
  async clear (): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true })
    this.#made = undefined
  }

  /** @throws {Error} the disk is full, or the folder can't be written */
  async create (): Promise<TemporaryFile> {
    await (this.#made ??= mkdir(this.#folder, { recursive: true, mode: 0o700 }).catch((error: unknown) => {
      this.#made = undefined                                  // the next upload tries again
      throw error
    }))
    const file = path.join(this.#folder, randomSecret())
    return new TemporaryFile(file, await open(file, 'wx', 0o600), this)
  }
}

/** Written once, then read as often as needed. */
export class TemporaryFile implements FilePort {
  readonly #path: string
  #handle: FileHandle | undefined
  readonly #folder: TemporaryFolder
  #size = 0

  constructor (file: string, handle: FileHandle, folder: TemporaryFolder) {
    this.#path = file
    this.#handle = handle
    this.#folder = folder
  }

  /** @throws {GatewayError} queue_full: there is no room now; {Error} the disk is full */
  async add (bytes: Uint8Array): Promise<void> {
    if (this.#handle === undefined) throw new Error('the temporary file is closed')
    this.#folder.take(bytes.length)
    this.#size += bytes.length
    await this.#handle.writeFile(bytes)
  }

  async close (): Promise<void> {
    const handle = this.#handle
    this.#handle = undefined
    await handle?.close()
  }

  read (): AsyncIterable<Buffer> {
    return createReadStream(this.#path) as AsyncIterable<Buffer>
  }

  async remove (): Promise<void> {
    await this.close().catch(() => {})
    await rm(this.#path, { force: true })
    this.#folder.give(this.#size)
    this.#size = 0
  }
}
