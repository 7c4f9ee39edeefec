// A store for files that clients fetch by a link: what an S3-compatible one could do too. Drivers know nothing of links
// or HTTP.
import type { StoredFile } from '../core/files.ts'

export interface FileStore {
  /**
   * Keeps the bytes until `expires`. All or nothing: nobody can open a part.
   * @param expires milliseconds since the epoch
   * @param limit bytes
   * @returns its name: unguessable, safe in a path
   * @throws {NotAnImage} the bytes are no image, or too many
   * @throws {FilesFull} there is no room
   */
  put (bytes: AsyncIterable<Uint8Array>, expires: number, limit: number): Promise<string>
  /** Undefined: there is no such file, or not any more. */
  open (name: string): Promise<StoredFile | undefined>
  /** Nothing happens when there is none. */
  remove (name: string): Promise<void>
  /** bytes of all files */
  readonly used: number
  /** bytes that more files may take now */
  readonly room: number
  close (): Promise<void>
}

/** What came is no image, or is larger than an image may be: whoever sent it has failed. */
export class NotAnImage extends Error {
  override readonly name = 'NotAnImage'
}

/** The operator must make room: nobody's image is thrown away for another's. */
export class FilesFull extends Error {
  override readonly name = 'FilesFull'
}
