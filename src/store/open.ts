// Opens the store that the configuration names.
import type { Logger } from 'pino'
import type { StoreConfig } from '../config/config.ts'
import { EmbeddedStore } from './embedded.ts'
import { MemoryStore } from './memory.ts'
import type { Records, Store } from './store.ts'
import type { Answers, Tasks } from './tasks.ts'

/**
 * @param folder the data folder, absolute
 * @throws {Error} the data folder can't be used: says why, in words for the operator
 */
export async function openStore ({ driver, fsync_interval, windows }: StoreConfig, folder: string, log: Logger, now: () => number): Promise<Store & Records & Tasks & Answers> {
  return driver === 'memory' ? new MemoryStore(now) : await EmbeddedStore.open({ folder, log, now, fsync_interval, windows })
}
