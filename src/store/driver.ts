// The interface of a store driver: the folder of its name has a driver.ts, which exports one as `driver`. Its row is in
// config/sections/drivers.ts.
import type { Logger } from 'pino'
import type { StoreConfig } from '../config/config.ts'
import type { Records, Store } from './store.ts'
import type { Answers, Movable, Tasks } from './tasks.ts'
import type { Row } from './transfer.ts'

export type OpenStore = Store & Records & Tasks & Answers & Movable

export interface Driver {
  /** @param folder the data folder, absolute */
  open (config: StoreConfig, folder: string, log: Logger, now: () => number): Promise<OpenStore>
  /** Fills an empty store with the rows of another one. @throws {Error} as `fillStore` */
  fill (config: StoreConfig, folder: string, log: Logger, rows: AsyncIterable<Row>): Promise<void>
  /**
   * Renames the files that are left of a lost ledger, so that the next start begins a new one. Absent: this driver's
   * data is lost in other ways.
   * @returns the new names; undefined: no ledger is lost
   */
  acceptLoss? (folder: string): readonly string[] | undefined
}
