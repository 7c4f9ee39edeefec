// The driver `embedded`: SQLite in the data folder.
import type { Driver } from '../driver.ts'
import { findLoss, hasLedger, setAside, setMarkAside } from './ledger-mark.ts'

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
  async acceptLoss (_config, folder) {
    const listOf = (files: readonly string[]): string => files.map((file) => `kept as ${file}\n`).join('')
    if (findLoss(folder) !== undefined) {
      return listOf(setAside(folder)) +
        'The next start begins a new ledger, and credits the opening balances of gateway.yaml again.\n'
    }
    const { isCut } = await import('./ledger.ts')
    if (!hasLedger(folder) || !isCut(folder)) return undefined
    return `${listOf(setMarkAside(folder))}The next start goes on with the entries that gateway.db has.\n`
  }
}
