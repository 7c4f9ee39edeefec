// A file store on disk: a folder per hour in which files expire, so that a sweep removes folders and reads no file.
import { createReadStream } from 'node:fs'
import { mkdir, open, readdir, rename, rm, stat, type FileHandle } from 'node:fs/promises'
import path from 'node:path'
import { randomSecret } from '../base/secrets.ts'
import { FilesFull, NotAnImage, type FileStore } from './file-store.ts'
import type { StoredFile } from '../core/files.ts'
import { imageType, SNIFFED_BYTES } from './image-type.ts'

const HOUR_MS = 3_600_000
const SWEEP_MS = 60_000
/** the hour in which it expires, 32 letters or digits, and its type */
const NAME = /^(\d{6,10})-([A-Za-z0-9]{32})\.(png|jpg|gif|webp|avif|svg)$/

const TYPES: Readonly<Record<string, { readonly type: string, readonly isRaster: boolean }>> = {
  png: { type: 'image/png', isRaster: true },
  jpg: { type: 'image/jpeg', isRaster: true },
  gif: { type: 'image/gif', isRaster: true },
  webp: { type: 'image/webp', isRaster: true },
  avif: { type: 'image/avif', isRaster: true },
  svg: { type: 'image/svg+xml', isRaster: false }
}

export interface DiskOptions {
  /** created with the first file */
  readonly folder: string
  /** id of this process, where several write into the folder; absent: only this one does */
  readonly owner?: string
  /** bytes of all files together */
  readonly space: number
  readonly now: () => number
  /** called when a sweep fails; the next one tries again */
  readonly onTrouble: (err: unknown) => void
}

export class Disk implements FileStore {
  readonly #options: DiskOptions
  /** bytes by the hour of their expiry */
  readonly #hours = new Map<number, number>()
  /** suffix of the names of files that this process is writing */
  readonly #unfinished: string
  #used = 0
  #timer: NodeJS.Timeout | undefined

  constructor (options: DiskOptions) {
    this.#options = options
    this.#unfinished = options.owner === undefined ? '.part' : `.${options.owner}.part`
  }

  get used (): number {
    return this.#used
  }

  get room (): number {
    return this.#options.space - this.#used
  }

  /**
   * Called first: counts the files, and removes those that a killed process left half written.
   * @throws {Error} the folder can't be read
   */
  async start (): Promise<void> {
    for (const name of await list(this.#options.folder)) {
      if (!/^\d{6,10}$/.test(name)) continue
      const folder = path.join(this.#options.folder, name)
      for (const file of await list(folder)) {
        const whole = path.join(folder, file)
        if (file.endsWith(this.#unfinished)) await rm(whole, { force: true })
        else if (!file.endsWith('.part')) this.#add(Number(name), (await stat(whole)).size)
      }
    }
    await this.sweep()
    this.#timer = setInterval(() => { this.sweep().catch(this.#options.onTrouble) }, SWEEP_MS).unref()
  }

  async put (bytes: AsyncIterable<Uint8Array>, expires: number, limit: number): Promise<string> {
    // An hour later, because a link has its own expiry, and the file must outlive it.
    const hour = Math.floor(expires / HOUR_MS) + 1
    const folder = path.join(this.#options.folder, String(hour))
    await mkdir(folder, { recursive: true, mode: 0o700 })
    const part = path.join(folder, randomSecret() + this.#unfinished)
    let taken = 0
    const take = (size: number): void => {
      if (taken + size > limit) throw new NotAnImage(`it is larger than ${limit} bytes`)
      if (this.#used + size > this.#options.space) {
        throw new FilesFull(`the files take ${this.#used} bytes of ${this.#options.space}`)
      }
      taken += size
      this.#add(hour, size)
    }
    let file: FileHandle | undefined
    try {
      file = await open(part, 'wx', 0o600)
      const extension = await write(file, bytes, take)
      await file.close()
      file = undefined
      const name = `${hour}-${randomSecret()}.${extension}`
      await rename(part, this.#pathOf(name)!)
      return name
    } catch (error) {
      this.#add(hour, -taken)
      await file?.close().catch(() => {})
      await rm(part, { force: true }).catch(() => {})
      throw error
    }
  }

  async open (name: string): Promise<StoredFile | undefined> {
    const file = this.#pathOf(name)
    const kind = TYPES[NAME.exec(name)?.[3] ?? '']
    if (file === undefined || kind === undefined) return undefined
    try {
      const { size } = await stat(file)
      return { size, ...kind, read: (start, end) => createReadStream(file, { start, end: Math.max(start, end - 1) }) }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
      throw error
    }
  }

  async remove (name: string): Promise<void> {
    const file = this.#pathOf(name)
    const found = await this.open(name)
    if (file === undefined || found === undefined) return
    await rm(file, { force: true })
    this.#add(Number(NAME.exec(name)![1]), -found.size)
  }

  async close (): Promise<void> {
    clearInterval(this.#timer)
  }

  async sweep (): Promise<void> {
    const hour = Math.floor(this.#options.now() / HOUR_MS)
    for (const name of await list(this.#options.folder)) {
      // an hour more: a download that began in time may end
      if (!/^\d{6,10}$/.test(name) || Number(name) >= hour) continue
      await rm(path.join(this.#options.folder, name), { recursive: true, force: true })
      this.#add(Number(name), -(this.#hours.get(Number(name)) ?? 0))
      this.#hours.delete(Number(name))
    }
  }

  #add (hour: number, bytes: number): void {
    this.#used += bytes
    this.#hours.set(hour, (this.#hours.get(hour) ?? 0) + bytes)
  }

  /** Undefined: no name made by this store. No part of a forged name becomes part of a path. */
  #pathOf (name: string): string | undefined {
    const hour = NAME.exec(name)?.[1]
    return hour === undefined ? undefined : path.join(this.#options.folder, hour, name)
  }
}

/** @returns the extension, detected from the first bytes */
async function write (
  file: FileHandle,
  bytes: AsyncIterable<Uint8Array>,
  take: (size: number) => void
): Promise<string> {
  let first = Buffer.alloc(0)
  for await (const chunk of bytes) {
    if (chunk.length === 0) continue
    take(chunk.length)
    if (first.length < SNIFFED_BYTES) first = Buffer.concat([first, chunk.subarray(0, SNIFFED_BYTES - first.length)])
    await file.writeFile(chunk)
  }
  const type = imageType(first)
  if (type === undefined) throw new NotAnImage(first.length === 0 ? 'it is empty' : 'its bytes are no image')
  return type.extension
}

async function list (folder: string): Promise<readonly string[]> {
  try {
    return await readdir(folder)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}
