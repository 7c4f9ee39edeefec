// The driver `embedded`: SQLite in the data folder.
import type { Driver } from '../driver.ts'
import { findLoss, hasLedger, setAside } from './ledger-mark.ts'

export const driver: Driver = {
  async open ({ fsync_interval, windows }, folder, log, now) {
    const { openEmbedded } = await import('./store.ts')
    return await openEmbedded({ folder, log, now, fsync_interval, windows })
  },
  async fill (_config, folder, _log, rows) {
    const { fillFolder } = await import('./import.ts')
    await fillFolder(folder, rows)
  },
  async restore (folder, file, now) {
    const { restoreFolder } = await import('./restore.ts')
    return await restoreFolder(folder, file, now)
  },
  hasLedger,
  acceptLoss (_config, folder) {
    if (findLoss(folder) === undefined) return undefined
    return setAside(folder).map((file) => `kept as ${file}\n`).join('') +
      'The next start begins a new ledger, and credits the opening balances of gateway.yaml again.\n'
  }
}
