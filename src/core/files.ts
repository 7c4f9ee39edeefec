// The interfaces of files: those that live as long as a request, and those that clients fetch by a link. Ports: media/
// implements them.
import type { Readable } from 'node:stream'

/** A folder of files that live as long as their request. */
export interface TemporaryFolder {
  /** @throws {GatewayError} service_unavailable: there is no room; {Error} the disk fails */
  create (): Promise<TemporaryFile>
}

export interface TemporaryFile {
  /** Appends bytes; each call is awaited before the next. */
  add (bytes: Uint8Array): Promise<void>
  /** Ends the writing. */
  close (): Promise<void>
  /** Reads the file from its beginning, each time. */
  read (): AsyncIterable<Buffer>
  remove (): Promise<void>
}

export interface StoredFile {
  /** bytes */
  readonly size: number
  /** media type, detected from the bytes */
  readonly type: string
  readonly isRaster: boolean
  /** @param end exclusive; the caller destroys the stream */
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
  /** bytes that new files may take now */
  readonly room: number
  /** @returns the link @throws {Error} the bytes are no image; there is no room for them */
  keep (bytes: AsyncIterable<Uint8Array>): Promise<string>
  forget (link: string): Promise<void>
  /** Undefined: forged, expired, or never made. */
  find (path: string): Promise<Linked | undefined>
}
