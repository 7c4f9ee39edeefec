// Backups of gateway.db: made by the thread that has it open, with SQLite's online backup, while commits go on; read
// from a folder beside it; and looked at before they are used. Behind the last page a backup has a line with the digest
// of all that comes before it, which SQLite does not look at: a file that was cut or changed is known by itself.
import { createHash } from 'node:crypto'
import { closeSync, fdatasync, fdatasyncSync, openSync } from 'node:fs'
import { open, rm } from 'node:fs/promises'
import path from 'node:path'
import { backup as copyDatabase, DatabaseSync } from 'node:sqlite'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import type { Backup, Content } from '../backup.ts'
import { refuseNewer } from './schema.ts'

/** Pages of 4 KB that are copied at a time: commits wait meanwhile, for less than a millisecond. */
const STEP = 64
/**
 * Pages after which the copy is sent to its disk, beside further steps; and after which they wait for that, because the
 * disk is slower than they are: the last step syncs what is left, and commits wait for it.
 */
const SYNC = 1024
const MOST_UNSYNCED = 16_384
/** What the first step fails with where it comes between the statements of a transaction; Node says 0 (26.10). */
const BUSY: readonly unknown[] = [5, 0]

/**
 * Copies an open database into a new file. What its connection commits meanwhile is in the copy too.
 * @param isWanted false: it was given up
 * @throws {Error} the copy can't be written, or was given up
 */
export async function copy (db: DatabaseSync, file: string, isWanted: () => boolean): Promise<void> {
  const target = openSync(file, 'wx', 0o600)
  const sync = promisify(fdatasync)
  let unsynced = 0
  let syncing: Promise<void> | undefined
  const progress = (): void => {
    if (!isWanted()) throw new Error('the backup was given up')
    unsynced += STEP
    if (syncing === undefined && unsynced >= SYNC) {
      unsynced = 0
      // An error comes again, with the last step.
      syncing = sync(target).catch(() => {}).finally(() => { syncing = undefined })
    } else if (unsynced >= MOST_UNSYNCED) {
      unsynced = 0
      fdatasyncSync(target)
    }
  }
  try {
    for (;;) {
      try {
        await copyDatabase(db, file, { rate: STEP, progress })
        return
      } catch (thrown) {
        if (!BUSY.includes((thrown as { readonly errcode?: number }).errcode) || !isWanted()) throw thrown
      }
    }
  } finally {
    await syncing
    closeSync(target)
  }
}

/** Where the thread makes a copy. Whatever lies there at a start was left by a process that was killed. */
export function copyIn (folder: string): { readonly folder: string, readonly file: string } {
  const own = path.join(folder, 'backup-in-progress')
  return { folder: own, file: path.join(own, 'gateway.db') }
}

/** @param make has the copy made: answers when it is there */
export function backupOf (folder: string, make: (signal: AbortSignal) => Promise<void>): Backup {
  return {
    type: 'application/vnd.sqlite3',
    async * read (signal) {
      const target = copyIn(folder)
      try {
        await make(signal)
        const digest = createHash('sha256')
        const bytes = await open(target.file)
        try {
          for await (const chunk of bytes.createReadStream({ autoClose: false, signal }) as AsyncIterable<Buffer>) {
            digest.update(chunk)
            yield chunk
          }
        } finally {
          await bytes.close()
        }
        yield Buffer.from(endOf(digest.digest('hex')))
      } finally {
        await rm(target.folder, { recursive: true, force: true })
      }
    }
  }
}

function endOf (digest: string): string {
  return `\nmodel-gateway backup, sha256 of what is before this line: ${digest}\n`
}

const END_BYTES = endOf('0'.repeat(64)).length

/**
 * Looks whether a backup is whole: its digest, and then SQLite's own look at each page.
 * @throws {Error} it is cut or damaged, or a newer gateway has written it
 */
export async function inspect (file: string): Promise<Content> {
  const bytes = await open(file)
  try {
    const { size } = await bytes.stat()
    const digest = createHash('sha256')
    const end = Buffer.alloc(END_BYTES)
    await bytes.read(end, 0, END_BYTES, Math.max(0, size - END_BYTES))
    if (size > END_BYTES) {
      const all = bytes.createReadStream({ autoClose: false, start: 0, end: size - END_BYTES - 1 })
      for await (const chunk of all as AsyncIterable<Buffer>) digest.update(chunk)
    }
    if (end.toString('latin1') !== endOf(digest.digest('hex'))) {
      throw new Error('it is no whole backup: it was cut or changed, or another program made it')
    }
  } finally {
    await bytes.close()
  }
  const url = pathToFileURL(file)
  url.search = 'immutable=1'                                  // no log is made beside it
  const db = new DatabaseSync(url, { readOnly: true })
  try {
    refuseNewer(db)
    const found = db.prepare('PRAGMA integrity_check(1)').get()!['integrity_check']
    if (found !== 'ok') throw new Error(`it is damaged: ${String(found)}`)
    const { entries } = db.prepare('SELECT count(*) AS entries FROM entries').get() as { readonly entries: number }
    const last = db.prepare('SELECT seq, time FROM entries ORDER BY seq DESC LIMIT 1').get()
    return { entries, seq: -1, time: 0, ...last as Partial<Content> | undefined }
  } finally {
    db.close()
  }
}
