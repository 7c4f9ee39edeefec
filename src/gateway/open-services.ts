// Opens the services that the first configuration decides for the process's life: the store, the files, and their
// users.
import path from 'node:path'
import type { Logger } from 'pino'
import { Directory } from '../accounts/directory.ts'
import type { Timer } from '../base/timer.ts'
import { Fleet } from '../cluster/heartbeat.ts'
import { deliverLeftovers, folderOf } from '../cluster/orphaned-outboxes.ts'
import type { Config } from '../config/config.ts'
import type { LeasedSnapshot } from '../core/endpoint.ts'
import { openFiles } from '../media/open.ts'
import { openStore, traitsOf } from '../store/open.ts'
import type { Records } from '../store/store.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { Overheads } from '../tokens/overheads.ts'
import { TokenRates } from '../tokens/rates.ts'
import type { Upstreams } from '../upstream/pool.ts'
import { backgroundServices } from './background.ts'
import type { GatewayServices } from './services.ts'

export interface OpenServices {
  readonly services: GatewayServices & { readonly store: Records }
  readonly fleet: Fleet
  /** Starts no more work, and waits for records on their way. */
  quiesce (): Promise<void>
  /** To be called when no more is recorded. */
  close (): Promise<void>
}

export interface OpenParts {
  readonly log: Logger
  readonly metrics: Metrics
  readonly upstreams: Upstreams
  readonly now: () => number
  readonly timer: Timer
  /** this process's worker number; undefined: it is no worker */
  readonly number: number | undefined
  readonly current: () => LeasedSnapshot
}

/**
 * @param folder of `store.path`, absolute
 * @throws {Error} the store or the folder can't be opened
 */
export async function openServices (
  { store: settings, server }: Config,
  folder: string,
  { log, metrics, upstreams, now, timer, number, current }: OpenParts
): Promise<OpenServices> {
  const worker = number === undefined ? undefined : folderOf(number)
  const { isShared, isLasting } = traitsOf(settings)
  const open = async (of: string): ReturnType<typeof openStore> => await openStore(settings, of, log, now)
  const store = await open(path.join(folder, worker ?? ''))
  if (worker === undefined && isShared) await deliverLeftovers(folder, server.workers, log, open)
  const directory = new Directory(store, now, timer)
  const files = await openFiles(isLasting, server, folder, log, now, worker).catch(async (thrown: unknown) => {
    await store.close()
    throw thrown
  })
  const services = {
    log,
    metrics,
    store,
    ...backgroundServices(store, { log, metrics, now }, { timer, current }),
    directory,
    upstreams,
    links: files.links,
    temporary: files.temporary,
    tokenRates: new TokenRates(),
    overheads: new Overheads(),
    now
  }
  const fleet = new Fleet({ records: store, now, timer, worker: number })
  const close = async (): Promise<void> => {
    await files.close()
    await store.close()
  }
  await directory.load().catch(async (thrown: unknown) => {
    await close()
    throw thrown
  })
  const unfollow = directory.follow()
  return {
    services,
    fleet,
    async quiesce () {
      unfollow()
      await fleet.close()
      await services.videos.close()
    },
    close
  }
}
