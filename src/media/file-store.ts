// The interface of a store for files that clients fetch by a link; an S3-compatible one could implement it. Drivers
// know nothing of links or HTTP.
import type { StoredFile } from '../core/files.ts'

export interface FileStore {
  /**
   * Keeps the bytes until `expires`. All or nothing: no reader can open a part.
   * @param expires milliseconds since the epoch
   * @param limit bytes
   * @returns its name: unguessable, safe in a path
   * @throws {NotAnImage} the bytes are no image, or too many
   * @throws {FilesFull} there is no room
   */
  put (bytes: AsyncIterable<Uint8Array>, expires: number, limit: number): Promise<string>
  /** Undefined: the file does not exist, or has expired. */
  open (name: string): Promise<StoredFile | undefined>
  /** A no-op where the file does not exist. */
  remove (name: string): Promise<void>
  /** bytes of all files */
  readonly used: number
  /** bytes that new files may take now */
  readonly room: number
  close (): Promise<void>
}

/** The bytes are no image, or more than an image may have: a failure of their sender. */
export class NotAnImage extends Error {
  override readonly name = 'NotAnImage'
}

/** The operator must make room: no image is deleted early for another one. */
export class FilesFull extends Error {
  override readonly name = 'FilesFull'
}
