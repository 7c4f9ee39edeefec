// Opens the store that the configuration names.
import type { Logger } from 'pino'
import type { StoreConfig } from '../config/config.ts'
import { EmbeddedStore } from './embedded.ts'
import { fillFolder } from './embedded/fill.ts'
import { MemoryStore } from './memory.ts'
import { RedisStore } from './redis.ts'
import { fillRedis } from './redis/fill.ts'
import { refuseUndelivered } from './redis/undelivered.ts'
import type { Row } from './moving.ts'
import type { Records, Store } from './store.ts'
import type { Answers, Movable, Tasks } from './tasks.ts'
import { steady } from './windows.ts'

/**
 * @param folder the data folder, absolute
 * @throws {Error} the data folder or Redis can't be used: says why, in words for the operator
 */
export async function openStore (config: StoreConfig, folder: string, log: Logger, now: () => number): Promise<Store & Records & Tasks & Answers & Movable> {
  const { driver, fsync_interval, windows } = config
  if (driver !== 'redis') await refuseUndelivered(folder, log)
  if (driver === 'redis') return await RedisStore.open({ config, folder, log, ...(now !== Date.now && { now: steady(now) }) })
  return driver === 'memory' ? new MemoryStore(now) : await EmbeddedStore.open({ folder, log, now, fsync_interval, windows })
}

/**
 * Puts what another store kept into an empty one that nobody has opened.
 * @param folder the data folder, absolute
 * @throws {Error} it is not empty, or can't take them: then nothing is in it
 */
export async function fillStore (config: StoreConfig, folder: string, log: Logger, rows: AsyncIterable<Row>): Promise<void> {
  if (config.driver === 'memory') throw new Error('what store.driver: memory keeps ends with its process')
  if (config.driver === 'redis') { await fillRedis(config, log, rows); return }
  await refuseUndelivered(folder, log)
  await fillFolder(folder, rows)
}
