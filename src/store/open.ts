// Opens the store that the configuration names: each driver is a folder of that name, with its traits in
// config/sections/drivers.ts.
import type { Logger } from 'pino'
import type { StoreConfig } from '../config/config.ts'
import { drivers } from '../config/sections/drivers.ts'
import type { Driver, OpenStore } from './driver.ts'
import { type Content, isDatabase, type Restored } from './backup.ts'
import { MemoryStore } from './local/memory.ts'
import { refuseUndelivered } from './redis/undelivered.ts'
import type { Row } from './transfer.ts'
import { rowsIn } from './transfer-file.ts'

export type { OpenStore } from './driver.ts'

/** as this file's: .ts, or .js in the package */
const extension = import.meta.url.slice(import.meta.url.lastIndexOf('.'))

/** Imports a driver when it is used: a gateway without Redis loads no client of Redis. */
async function load ({ driver: name }: StoreConfig): Promise<Driver> {
  const { driver } = await import(`./${name}/driver${extension}`) as { readonly driver: Driver }
  return driver
}

/** Properties of a driver that are known without opening it. */
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
 * Fills an empty store, which no process has opened, with the rows of another one.
 * @param folder the data folder, absolute
 * @throws {Error} the store is not empty, or can't take the rows: then nothing is in it
 */
export async function fillStore (
  config: StoreConfig, folder: string, log: Logger, rows: AsyncIterable<Row>
): Promise<void> {
  const { isLasting, isShared } = traitsOf(config)
  if (isLasting && !isShared) await refuseUndelivered(folder, log)
  const driver = await load(config)
  await driver.fill(config, folder, log, rows)
}

/** Looks whether a backup is whole, of whatever driver. @throws {Error} it is cut or damaged: says where */
export async function contentOf (file: string): Promise<Pick<Content, 'entries' | 'time'>> {
  if (await isDatabase(file)) {
    const { inspect } = await import('./embedded/backup.ts')
    return await inspect(file)
  }
  let [entries, time] = [0, 0]
  for await (const { of, value } of rowsIn(file)) {
    if (of !== 'entry') continue
    entries++
    time = Math.max(time, Date.parse(value.at))
  }
  return { entries, time }
}

/**
 * Puts a backup into a data folder without a ledger.
 * @param folder the data folder, absolute
 * @returns undefined: it is a file of rows, which `fillStore` takes; nothing was done
 * @throws {Error} it can't be used: then nothing is changed
 */
export async function restoreStore (
  config: StoreConfig, folder: string, file: string, log: Logger, now: number
): Promise<Restored | undefined> {
  if (!await isDatabase(file)) return undefined
  const driver = await load(config)
  if (driver.restore === undefined) {
    throw new Error(
      `it is a backup of the embedded store, and store.driver is ${config.driver}. Restore it with store.driver: ` +
      'embedded, and move it from there: gateway store export, gateway store import'
    )
  }
  await refuseUndelivered(folder, log)
  return await driver.restore(folder, file, now)
}

/**
 * Accepts that the ledger is lost: gateways go on with what there is.
 * @param folder the data folder, absolute
 * @returns what was done, for the operator; undefined: no ledger is lost
 */
export async function acceptLoss (config: StoreConfig, folder: string): Promise<string | undefined> {
  const driver = await load(config)
  return await driver.acceptLoss?.(config, folder)
}

/**
 * Whether there is a ledger that a command can read: to open the store would begin an empty one.
 * @param folder the data folder, absolute
 */
export async function hasLedger (config: StoreConfig, folder: string): Promise<boolean> {
  const driver = await load(config)
  return driver.hasLedger?.(folder) !== false
}

/** An empty store in memory for a check or a test, in which no money is real. It ends with its process. */
export function scratchStore (): OpenStore {
  return new MemoryStore()
}
