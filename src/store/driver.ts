// The interface of a store driver: the folder of its name has a driver.ts, which exports one as `driver`. Its row is in
// config/sections/drivers.ts.
import type { Logger } from 'pino'
import type { Awaitable } from '../base/awaitable.ts'
import type { StoreConfig } from '../config/config.ts'
import type { Backup, Restored } from './backup.ts'
import type { ResponseStore } from './responses.ts'
import type { Rollups } from './rollups.ts'
import type { Records, Store } from './store.ts'
import type { Answers, Movable, Tasks } from './tasks.ts'
import type { Row } from './transfer.ts'

export type OpenStore = Store & Records & Tasks & Answers & Movable & Rollups & {
  readonly responses: ResponseStore
  /** undefined: nothing outlives the process */
  readonly backup: Backup | undefined
}

export interface Driver {
  /** @param folder the data folder, absolute */
  open (config: StoreConfig, folder: string, log: Logger, now: () => number): Promise<OpenStore>
  /** Fills an empty store with the rows of another one. @throws {Error} as `fillStore` */
  fill (config: StoreConfig, folder: string, log: Logger, rows: AsyncIterable<Row>): Promise<void>
  /**
   * Puts a backup that is a database into a folder without a ledger. Absent: this driver's backups are files of rows,
   * which `fill` takes.
   * @throws {Error} it can't be used: then the folder is as it was
   */
  restore? (folder: string, file: string, now: number): Promise<Restored>
  /** Whether a ledger is in the folder, or what is left of a lost one. Absent: it is not in a folder. */
  hasLedger? (folder: string): boolean
  /**
   * Accepts that the ledger is lost: gateways go on with what is left. Absent: this driver's data ends with its
   * process.
   * @returns what was done, for the operator; undefined: no ledger is lost
   */
  acceptLoss? (config: StoreConfig, folder: string): Awaitable<string | undefined>
}
