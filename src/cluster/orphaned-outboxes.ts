// Outboxes of worker numbers that do not exist any more, because there are fewer workers now: charges in their folders
// that the store does not have yet.
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import type { Logger } from 'pino'

/** The part of the data folder that belongs to one worker. */
export function folderOf (worker: number): string {
  return `worker-${worker}`
}

/**
 * Delivers them once, in the primary, before it serves. A charge that can't be delivered now is delivered at the next
 * start.
 * @param folder the data folder
 * @param workers present number of workers
 * @param open opens the store of such a folder, which delivers its outbox
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
