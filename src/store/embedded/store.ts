// Opens the store in a data folder: memory decides, and a thread with SQLite records. The only writer of its folder.
import path from 'node:path'
import type { Logger } from 'pino'
import { type LocalOptions, LocalStore } from '../local/store.ts'
import { backupOf } from './backup.ts'
import { FolderResponses } from './responses.ts'
import { ThreadWriter } from './writer.ts'

export interface EmbeddedOptions extends Omit<LocalOptions, 'writer' | 'responses' | 'backup'> {
  /** created if it is missing */
  readonly folder: string
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
  /** milliseconds whose records a power loss may take; 0: none, because every commit waits for the disk */
  readonly fsync_interval?: number
  /** another file for the thread to run, for tests */
  readonly worker?: URL
}

/** @throws {Error} the data folder can't be used: says why, in words for the operator */
export async function openEmbedded (
  { folder, log, fsync_interval: fsyncInterval = 100, worker, ...options }: EmbeddedOptions
): Promise<LocalStore> {
  const { now = Date.now } = options
  const writer = new ThreadWriter({ folder, log, fsyncInterval, now, worker })
  const responses = new FolderResponses({ folder: path.join(folder, 'responses'), now, log })
  const backup = backupOf(folder, async (signal) => { await writer.backUp(signal) })
  const store = await LocalStore.open({ ...options, writer, responses, backup }, log)
  responses.start()                                           // behind the ledger's lock, which makes the folder ours
  return store
}
