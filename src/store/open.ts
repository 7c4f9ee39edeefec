// Opens the store that the configuration names: by the name of its driver, which stands nowhere outside this room and
// the choices of `store:` in src/config.
import type { Logger } from 'pino'
import type { StoreConfig } from '../config/config.ts'
import { drivers } from '../config/sections/drivers.ts'
import type { Driver, OpenStore } from './driver.ts'
import { MemoryStore } from './local/memory.ts'
import { refuseUndelivered } from './redis/undelivered.ts'
import type { Row } from './transfer.ts'

export type { OpenStore } from './driver.ts'

/** as this file's: .ts, or .js in the package */
const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))

/** When it is used: a gateway without Redis has no client of Redis. */
async function load ({ driver: name }: StoreConfig): Promise<Driver> {
  const { driver } = await import(`./${name}/driver${extension}`) as { readonly driver: Driver }
  return driver
}

/** What must be known of a driver before it is opened. */
export function traitsOf ({ driver }: StoreConfig): typeof drivers[StoreConfig['driver']] {
  return drivers[driver]
}

/**
 * Opens the store that the configuration names.
 * @param folder the data folder, absolute
 * @throws {Error} the data folder or the server can't be used: says why, in words for the operator
 */
export async function openStore (
  config: StoreConfig, folder: string, log: Logger, now: () => number
): Promise<OpenStore> {
  if (!traitsOf(config).isShared) await refuseUndelivered(folder, log)
  const driver = await load(config)
  return await driver.open(config, folder, log, now)
}

/**
 * Puts what another store kept into an empty one that nobody has opened.
 * @param folder the data folder, absolute
 * @throws {Error} it is not empty, or can't take them: then nothing is in it
 */
export async function fillStore (
  config: StoreConfig, folder: string, log: Logger, rows: AsyncIterable<Row>
): Promise<void> {
  const { isLasting, isShared } = traitsOf(config)
  if (isLasting && !isShared) await refuseUndelivered(folder, log)
  const driver = await load(config)
  await driver.fill(config, folder, log, rows)
}

/**
 * What is left of a ledger that is lost gets other names, so that the next start begins a new one.
 * @param folder the data folder, absolute
 * @returns those; undefined: none is lost
 */
export async function acceptLoss (config: StoreConfig, folder: string): Promise<readonly string[] | undefined> {
  const driver = await load(config)
  return driver.acceptLoss?.(folder)
}

/** For what nobody pays for: a check, a test. It ends with its process. */
export function scratchStore (): OpenStore {
  return new MemoryStore()
}
