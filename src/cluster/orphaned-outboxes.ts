// What workers have left that nobody has any more, because there are fewer now: charges that the store does not have
// yet, in their folders.
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import type { Logger } from 'pino'

/** The part of the data folder that is a worker's own. */
export function folderOf (worker: number): string {
  return `worker-${worker}`
}

/**
 * Once, by the process that is no worker, before it serves. What can't be delivered now is at the next start.
 * @param folder the data folder
 * @param workers how many there are now
 * @param open opens the store of such a folder, which delivers what is in it
 */
export async function deliverLeftovers (
  folder: string,
  workers: number,
  log: Pick<Logger, 'error'>,
  open: (folder: string) => Promise<{ close(): void | Promise<void> }>
): Promise<void> {
  const names = await readdir(folder).catch(() => [])
  for (const name of names) {
    const number = /^worker-(\d+)$/.exec(name)?.[1]
    if (number === undefined || (workers > 1 && Number(number) <= workers)) continue
    try {
      await (await open(path.join(folder, name))).close()
    } catch (err) {
      log.error({ err, folder: name },
        'what a former worker has left could not be delivered: it is tried again at the next start')
    }
  }
}
