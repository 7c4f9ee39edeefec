// Accepts that Redis has lost the ledger: for a command, also while gateways run.
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import type { StoreConfig } from '../../config/config.ts'
import { startTimer } from '../../base/timer.ts'
import { clientFor, nameOf } from './address.ts'
import { Link } from './connection.ts'
import { acceptLedger } from './guard.ts'
import { Space } from './keyspace.ts'

/** @param folder the data folder, absolute @returns false: no ledger is lost @throws {Error} Redis can't be used */
export async function acceptLoss (config: StoreConfig, folder: string): Promise<boolean> {
  const workers = (await readdir(folder).catch(() => [])).filter((name) => /^worker-\d+$/.test(name))
  const link = new Link({ client: clientFor(config), name: nameOf(config), timeout: config.timeout,
    log: { info () {}, warn () {}, error () {} }, timer: startTimer, onBack: async () => true })
  try {
    await link.open()
    return await acceptLedger(new Space(link, config.prefix, undefined),
      ['', ...workers].map((part) => path.join(folder, part, 'outbox')))
  } finally {
    link.close()
  }
}
