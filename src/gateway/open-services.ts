// Opens the services that the first configuration decides for the process's life: the store, the files, and their
// users.
import path from 'node:path'
import type { Logger } from 'pino'
import { Directory } from '../accounts/directory.ts'
import { letHeapsDouble } from '../base/collect-garbage.ts'
import type { Timer } from '../base/timer.ts'
import { Fleet } from '../cluster/heartbeat.ts'
import { deliverLeftovers, folderOf } from '../cluster/orphaned-outboxes.ts'
import type { Config } from '../config/config.ts'
import type { LeasedSnapshot } from '../core/endpoint.ts'
import { openFiles } from '../media/open.ts'
import { type OpenStore, openStore, traitsOf } from '../store/open.ts'
import { SealedResponses } from '../store/sealed-responses.ts'
import type { Records } from '../store/store.ts'
import type { Movable } from '../store/tasks.ts'
import { LATELY_MS } from '../telemetry/lately.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { RequestLog } from '../telemetry/requests/request-log.ts'
import { FolderFiles, MemoryFiles, type SegmentFiles } from '../telemetry/requests/segments.ts'
import { Overheads } from '../tokens/overheads.ts'
import { TokenRates } from '../tokens/rates.ts'
import type { Upstreams } from '../upstream/pool.ts'
import { backgroundServices } from './background.ts'
import { LargeBodies } from './bodies/body-threads.ts'
import { openSeals } from './open-seals.ts'
import type { GatewayServices } from './services.ts'
import { verifyRegularly } from './verifying.ts'

/** Milliseconds that a thread of large bodies has to end by itself when the gateway closes. */
const THREADS_MS = 2000

/** Requests that are kept where nothing outlives the process. */
const MOST_IN_MEMORY = 10_000

/** The log of requests in the data folder, which all workers share. */
export function requestFiles (folder: string): SegmentFiles {
  return new FolderFiles(path.join(folder, 'requests'))
}

export interface OpenServices {
  readonly services: GatewayServices & {
    readonly store: Records & Movable & Pick<OpenStore, 'backup'>
    readonly requests: RequestLog
  }
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
  /** the module that exports the shipped plugins */
  readonly pluginsUrl: string
  /** bytes from which a body is read in a thread; for tests */
  readonly largeBody?: number | undefined
}

/**
 * @param folder of `store.path`, absolute
 * @throws {Error} the store or the folder can't be opened
 */
export async function openServices (
  config: Config,
  folder: string,
  { log, metrics, upstreams, now, timer, number, current, pluginsUrl, largeBody }: OpenParts
): Promise<OpenServices> {
  const { store: settings, server } = config
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
  const requests = new RequestLog({
    ...(isLasting ? { files: requestFiles(folder) } : { files: new MemoryFiles(), most: MOST_IN_MEMORY }),
    worker: number, log, timer
  })
  requests.configure(config.log.requests)
  // A worker's own files; and those of numbers that no worker has.
  const isOwn = (of: number): boolean => of === number ||
    (number === undefined && (server.workers === 1 || of === 0 || of > server.workers))
  void recall(requests.before(now() - LATELY_MS, isOwn), metrics)
  const close = async (): Promise<void> => {
    await requests.close()
    await files.close()
    await store.close()
  }
  const endWith = async (thrown: unknown): Promise<never> => {
    await close()
    throw thrown
  }
  const seals = await openSeals(config, folder, log, worker !== undefined).catch(endWith)
  letHeapsDouble()                                            // the bytes of bodies count as growth
  const bodies = new LargeBodies({ pluginsUrl, sealSecrets: seals.secrets, log, processes: server.workers,
    least: largeBody })
  const services = {
    log,
    metrics,
    store,
    ...backgroundServices(store, { log, metrics, now }, { timer, current }),
    directory,
    requests,
    upstreams,
    links: files.links,
    addresses: { api: '', public: '' },
    temporary: files.temporary,
    seals,
    responses: new SealedResponses(store.responses, seals, log, now),
    tokenRates: new TokenRates(),
    overheads: new Overheads(),
    bodies,
    now
  }
  const fleet = new Fleet({ records: store, now, timer, worker: number })
  await directory.load().catch(endWith)
  const unfollow = directory.follow()
  const stopVerifying = verifyRegularly(services, settings.verify_interval, timer)
  return {
    services,
    fleet,
    async quiesce () {
      unfollow()
      stopVerifying()
      await fleet.close()
      await services.videos.close()
      await bodies.close(THREADS_MS)
    },
    close
  }
}

/** Counts what was served before, so that the overview's last day does not begin with this process. Never rejects. */
async function recall (served: ReturnType<RequestLog['before']>, metrics: Metrics): Promise<void> {
  try {
    for await (const requests of served) for (const request of requests) metrics.recall(request)
  } catch {
    // The files can't be listed: the log of requests says so with its next line.
  }
}
