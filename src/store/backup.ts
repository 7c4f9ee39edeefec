// The interface of a driver to backups that are made while it works, and what is said of their files.
import { open } from 'node:fs/promises'

export interface Backup {
  /** content type */
  readonly type: string
  /**
   * The bytes of a file that tells by itself whether it is whole. It holds every charge that was recorded before the
   * call. One at a time.
   * @param signal gives it up
   * @throws {Error} it can't be made: says why
   */
  read (signal: AbortSignal): AsyncGenerator<Uint8Array>
}

/** The content of a backup. */
export interface Content {
  readonly entries: number
  /** number and time of the last entry; -1 and 0: there is none */
  readonly seq: number
  readonly time: number
}

export interface Restored extends Content {
  /** how far the ledger had come that was lost; undefined: that is not known */
  readonly before: Pick<Content, 'seq' | 'time'> | undefined
}

const MAGIC = 'SQLite format 3\0'

/** Whether a file begins as a backup of the embedded store does. @throws {Error} it can't be read */
export async function isDatabase (file: string): Promise<boolean> {
  const bytes = await open(file)
  try {
    const { buffer, bytesRead } = await bytes.read(Buffer.alloc(MAGIC.length), 0, MAGIC.length, 0)
    return buffer.toString('latin1', 0, bytesRead) === MAGIC
  } finally {
    await bytes.close()
  }
}
