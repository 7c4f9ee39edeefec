// Opens the Redis store for tests: each with keys of its own in the same servers, and a folder of its own.
import { randomUUID } from 'node:crypto'
import type { Test } from 'tap'
import type { StoreConfig } from '../../src/config/config.ts'
import { RedisStore } from '../../src/store/redis/store.ts'
import type { Timer } from '../../src/base/timer.ts'
import { newLog } from './embedded-store.ts'
import { folderFor } from './spawned.ts'

export interface RedisStoreOptions {
  readonly config?: Partial<StoreConfig>
  /** of another store, to share its keys */
  readonly prefix?: string
  readonly folder?: string
  readonly now?: (() => number) | undefined
  readonly timer?: Timer
  readonly log?: ReturnType<typeof newLog>
}

/**
 * What is not asked for within five seconds is not away in a test that is not about that: a loaded machine may stand
 * still for a while.
 */
export function redisConfig (server: Partial<StoreConfig>, more: Partial<StoreConfig> = {}): StoreConfig {
  return { driver: 'redis', path: '', fsync_interval: 100, windows: 'full', prefix: 'test', timeout: 5000,
    verify_interval: 0,
    on_outage: { auth: 'deny', limits: 'deny', money: 'deny', lease_usd: '1' }, ...server, ...more }
}

/** The test closes it, or the end of the test does. */
export async function openRedis (
  t: Test,
  server: Partial<StoreConfig>,
  { config = {}, prefix = newPrefix(), folder = folderFor(t), now, timer, log = newLog() }: RedisStoreOptions = {}
): Promise<RedisStore> {
  const store = await RedisStore.open({ config: redisConfig(server, { prefix, ...config }), folder, log,
    ...(now !== undefined && { now }), ...(timer !== undefined && { timer }) })
  t.teardown(async () => {
    await store.close()
  })
  return store
}

export function newPrefix (): string {
  return `t-${randomUUID()}`
}
