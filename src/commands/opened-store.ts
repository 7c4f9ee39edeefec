// The store of a command that has it without a gateway.
import type { Logger } from 'pino'
import { deliverLeftovers } from '../cluster/orphaned-outboxes.ts'
import type { Config } from '../config/config.ts'
import { openStore, type OpenStore, traitsOf } from '../store/open.ts'
import { createLogger } from '../telemetry/log.ts'
import { CommandError, refuseMissing } from './admin-client.ts'

export const silent = createLogger('silent', { write () {} })

/**
 * Opens it, behind what the workers of this machine have left for it.
 * @throws {CommandError} there is none, or it can't be used
 */
export async function opened (config: Config, folder: string): Promise<OpenStore> {
  await refuseMissing(config, folder)
  if (traitsOf(config.store).isShared) await deliverAll(config, folder)
  return await open(config, folder)
}

async function open (config: Config, folder: string): Promise<OpenStore> {
  try {
    return await openStore(config.store, folder, silent, Date.now)
  } catch (cause) {
    throw new CommandError(`The store can't be opened: ${(cause as Error).message}`, { cause })
  }
}

/** Delivers the outboxes in the folders of workers. @throws {CommandError} charges are left in one */
async function deliverAll (config: Config, folder: string): Promise<void> {
  const failures: Error[] = []
  await deliverLeftovers(folder, 0, { error ({ err }: { readonly err: Error }) {
    failures.push(err)
  } } as Pick<Logger, 'error'>, async (one) => {
    const store = await open(config, one)
    try {
      refuseWaiting(store)
    } catch (thrown) {
      await store.close()
      throw thrown
    }
    return store
  })
  if (failures.length > 0) {
    throw new CommandError(`What a worker has left could not be charged: ${failures[0]!.message}`)
  }
}

/** @throws {CommandError} charges were not delivered */
export function refuseWaiting ({ health }: OpenStore): void {
  const pending = health?.pending ?? 0
  if (pending > 0) {
    throw new CommandError(
      `${pending} charges wait in the data folder, and Redis has not taken them: see why in the log of a gateway ` +
      'that is started on this store.'
    )
  }
}

