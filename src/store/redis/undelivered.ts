// Charges left in a data folder for a Redis that the configuration does not name any more.
import { access, readdir } from 'node:fs/promises'
import path from 'node:path'
import type { Logger } from 'pino'
import { Outbox } from './outbox.ts'

/**
 * Refuses a start with a driver that has no outbox: the charges in an old one would never be delivered.
 * @param folder the data folder, absolute
 * @throws {Error} charges wait there, or the folder can't be read: says where, and what to do
 */
export async function refuseUndelivered (folder: string, log: Pick<Logger, 'info' | 'warn' | 'error'>): Promise<void> {
  const workers = (await readdir(folder).catch(() => [])).filter((name) => /^worker-\d+$/.test(name))
  for (const outbox of ['', ...workers].map((part) => path.join(folder, part, 'outbox'))) {
    if (!await access(outbox).then(() => true, () => false)) continue
    const opened = await Outbox.open(outbox, log)
    const { size } = opened
    await opened.close()
    if (size > 0) {
      throw new Error(
        `${size} charges wait in ${outbox} for the Redis that store: named before, and would never be made. Name it ` +
        'again, and repeat "gateway store export", which delivers them; or move that folder away, and they are lost'
      )
    }
  }
}
