// Puts a backup into a data folder that has no ledger. For a command that has the folder for itself.
import { chmodSync, mkdirSync, rmSync, statSync } from 'node:fs'
import { copyFile } from 'node:fs/promises'
import path from 'node:path'
import type { Nanos } from '../../money/nanos.ts'
import type { Restored } from '../backup.ts'
import { oldestCompared } from '../periods.ts'
import { inspect } from './backup.ts'
import { putInPlace } from './import.ts'
import { Ledger } from './ledger.ts'
import { findLoss, markFile, readMark, writeMark } from './ledger-mark.ts'

/**
 * @throws {Error} there is a ledger in the folder; or the backup is cut, damaged, of a newer gateway, or does not add
 * up: then the folder is as it was
 */
export async function restoreFolder (folder: string, file: string, now: number): Promise<Restored> {
  if ((statSync(path.join(folder, 'gateway.db'), { throwIfNoEntry: false })?.size ?? 0) > 0) {
    throw new Error(
      `there is a ledger in the data folder ${folder}, and a restore never replaces one. Move gateway.db and ` +
      'gateway.db-wal elsewhere, or name another folder in store.path'
    )
  }
  const isNew = findLoss(folder) === undefined
  const before = readMark(folder)
  if (isNew) {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    writeMark(folder, { seq: -1, time: 0 })                   // from now on a start finds a lost ledger
  }
  try {
    let content: Restored | undefined
    await putInPlace(folder, async (beside) => {
      const copy = path.join(beside, 'gateway.db')
      await copyFile(file, copy)
      chmodSync(copy, 0o600)
      content = { ...await inspect(copy), before }
      verify(beside, now)
    })
    return content!
  } catch (thrown) {
    if (isNew && findLoss(folder) !== undefined) rmSync(markFile(folder))
    throw thrown
  }
}

/** Brings it to this version's tables, and adds everything up. @throws {Error} a sum is not that of its entries */
function verify (folder: string, now: number): void {
  const ledger = new Ledger(folder, true)
  try {
    for (const compared of ledger.verify(oldestCompared(now))) {
      if (compared === undefined) continue
      const { of, cells } = compared
      // Of rollups only those that differ are told.
      const width = of === 'rollup' ? 4 : 3
      for (let i = 0; i < cells.length; i += width) {
        const [sum, kept] = cells.slice(i + width - 2, i + width) as [Nanos, Nanos]
        if (sum !== kept) {
          throw new Error(
            `it does not add up: the ${of} "${String(cells[i])}" has ${kept} in its sum, and ${sum} in its entries`
          )
        }
      }
    }
  } catch (thrown) {
    ledger.abandon()
    throw thrown
  }
  ledger.close([])
}
