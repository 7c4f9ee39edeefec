// Links to files: signed, so that a link can be neither guessed nor prolonged, and with their expiry in them, so that
// no lookup is needed.
import { createHmac, timingSafeEqual } from 'node:crypto'
import type { FileStore } from './file-store.ts'
import type { Linked, Links as LinksPort } from '../core/files.ts'

/** Most bytes of one file. */
const FILE_LIMIT = 64 * 1024 * 1024
/** Bytes of a signature: as hard to guess as a key. */
const SIGNATURE_BYTES = 16

export interface LinkOptions {
  /** the signing key of all links */
  readonly secret: string
  /** milliseconds */
  readonly ttl: number
  readonly now: () => number
}

export class Links implements LinksPort {
  readonly store: FileStore
  readonly #options: LinkOptions
  /** of the public listener, without a slash at its end; set when that listens */
  publicUrl = ''

  constructor (store: FileStore, options: LinkOptions) {
    this.store = store
    this.#options = options
  }

  /**
   * @returns the link
   * @throws {NotAnImage} @throws {FilesFull} as FileStore.put
   */
  async keep (bytes: AsyncIterable<Uint8Array>): Promise<string> {
    const { now, ttl } = this.#options
    // Rounded up to whole seconds: a link lives at least as long as was promised.
    const expires = Math.ceil((now() + ttl) / 1000)
    const name = await this.store.put(bytes, expires * 1000, FILE_LIMIT)
    return `${this.publicUrl}/files/${this.#token(name, expires)}/${name}`
  }

  get room (): number {
    return this.store.room
  }

  /** Removes a file whose link will reach no client. @param link one made by `keep` */
  async forget (link: string): Promise<void> {
    await this.store.remove(link.slice(link.lastIndexOf('/') + 1))
  }

  /** @param path behind "/files/". Undefined: forged, expired or removed, which are not told apart. */
  async find (path: string): Promise<Linked | undefined> {
    const match = /^([0-9a-z]{1,9})\.([\w-]{22})\/([\w.-]{1,80})$/.exec(path)
    if (match === null) return undefined
    const [, written, , name] = match
    const seconds = Number.parseInt(written!, 36)
    const expected = Buffer.from(this.#token(name!, seconds))
    const given = Buffer.from(`${written!}.${match[2]!}`)
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined
    if (seconds * 1000 <= this.#options.now()) return undefined
    const file = await this.store.open(name!)
    return file && { name: name!, file, expires: seconds * 1000 }
  }

  #token (name: string, seconds: number): string {
    const end = seconds.toString(36)
    const signature = createHmac('sha256', this.#options.secret).update(`${end}\n${name}`).digest().subarray(0,
      SIGNATURE_BYTES)
    return `${end}.${signature.toString('base64url')}`
  }
}
