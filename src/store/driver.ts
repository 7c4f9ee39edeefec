// What a driver of the store is: the folder of its name has a driver.ts, which exports one as `driver`. Its row is in
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
  /** Puts what another store kept into an empty one. @throws {Error} as `fillStore` */
  fill (config: StoreConfig, folder: string, log: Logger, rows: AsyncIterable<Row>): Promise<void>
  /**
   * What is left of a ledger that is lost gets other names, so that the next start begins a new one. Absent: what it
   * keeps is lost in other ways.
   * @returns those; undefined: none is lost
   */
  acceptLoss? (folder: string): readonly string[] | undefined
}
