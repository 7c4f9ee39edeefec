// Files as the life of a request knows them: those that live as long as it does, and those that clients fetch by a
// link. Ports: media/ has them.
import type { Readable } from 'node:stream'

/** Files that live as long as a request. */
export interface TemporaryFolder {
  /** @throws {GatewayError} service_unavailable: there is no room; {Error} the disk fails */
  create (): Promise<TemporaryFile>
}

export interface TemporaryFile {
  /** One after the other: each is awaited before the next. */
  add (bytes: Uint8Array): Promise<void>
  /** All of it was added. */
  close (): Promise<void>
  /** From its beginning, each time. */
  read (): AsyncIterable<Buffer>
  remove (): Promise<void>
}

export interface StoredFile {
  /** bytes */
  readonly size: number
  /** media type, as its bytes say */
  readonly type: string
  readonly isRaster: boolean
  /** @param end exclusive; the stream is destroyed by whoever reads it */
  read (start: number, end: number): Readable
}

export interface Linked {
  readonly name: string
  readonly file: StoredFile
  /** milliseconds since the epoch */
  readonly expires: number
}

/** Files that clients fetch from the public listener. */
export interface Links {
  /** bytes that more files may take now */
  readonly room: number
  /** @returns the address @throws {Error} the bytes are no image; there is no room for them */
  keep (bytes: AsyncIterable<Uint8Array>): Promise<string>
  forget (link: string): Promise<void>
  /** Undefined: forged, expired, or never made. */
  find (path: string): Promise<Linked | undefined>
}
