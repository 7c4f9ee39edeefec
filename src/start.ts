// Joins configuration, services and servers into a running gateway: what `gateway start` runs, and what the tests boot.
import path from 'node:path'
import type { Logger } from 'pino'
import { adminHandler } from './admin/admin.ts'
import { AdminApi } from './admin/api/api.ts'
import { tryKeyOn } from './admin/api/try-key.ts'
import { MergedMetrics } from './admin/merged-metrics.ts'
import { createMetrics } from './admin/metrics.ts'
import type { LogOutput } from './admin/output.ts'
import type { Config } from './config/config.ts'
import { LiveConfig } from './config/live.ts'
import { PartError } from './config/problem.ts'
import { Snapshot } from './config/snapshot.ts'
import { keepSecret, randomSecret } from './data-folder.ts'
import { DEMO, turnedOff, withDemo } from './demo.ts'
import { Directory } from './directory.ts'
import { type OpenFiles, openFiles } from './files/open.ts'
import { endpoints } from './endpoints.ts'
import { Fleet } from './fleet.ts'
import { parseUsd } from './money/nanos.ts'
import { Overheads } from './money/overheads.ts'
import { Tokens } from './money/tokens.ts'
import type { WatchLoad } from './overload.ts'
import type { Plugin } from './plugin.ts'
import { rehearse } from './rehearse.ts'
import { GatewayServer, type Listeners } from './server.ts'
import type { Services } from './services.ts'
import { startSimulatorThread, type SimulatorThread } from './simulator/thread.ts'
import { openStore } from './store/open.ts'
import type { Records } from './store/store.ts'
import { startTimer, type Timer } from './timer.ts'
import { Upstreams } from './upstream/upstream.ts'
import { mergedView, viewOf } from './upstream/view.ts'
import { outliving } from './videos/outliving.ts'
import { Crew } from './workers/crew.ts'
import { deliverLeftovers, folderOf } from './workers/leftovers.ts'
import type { Seat } from './workers/seat.ts'

export interface GatewayOptions {
  readonly file: string
  /** the shipped plugins */
  readonly plugins: readonly Plugin[]
  /** the module that exports them: the thread that checks configurations loads it again */
  readonly pluginsUrl: string
  readonly log: Logger
  /** what `store.path` is relative to; default: the folder of the file */
  readonly base?: string
  readonly env?: NodeJS.ProcessEnv
  readonly now?: () => number
  /** of what happens in the background; tests bring their own */
  readonly timer?: Timer
  /** how the process is; tests bring their own */
  readonly watchLoad?: WatchLoad
  /** where `log` goes, for workers to go there too; absent: whatever server.workers says, this process serves clients by itself */
  readonly output?: LogOutput
  /** this process is a worker */
  readonly seat?: Seat | undefined
}

export interface Gateway {
  /** of a worker without its admin listener: it has none */
  readonly urls: Listeners
  readonly services: Services
  readonly live: LiveConfig
  readonly server: GatewayServer
  /** the demo account's key; undefined unless every upstream is the built-in simulator */
  demoKey (): string | undefined
  /** why that key, which there once was, is off */
  demoOff (): string | undefined
  /** Reads the configuration again, in all processes. */
  reload (): void
  /** why requests should go elsewhere; empty: ready */
  reasons (): readonly string[] | Promise<readonly string[]>
  /** where the admin token was written, when it was generated */
  readonly adminTokenFile: string | undefined
  /** Ends well (SIGTERM): see GatewayServer.drain. */
  drain (isUrgent?: boolean): Promise<void>
  /** Ends at once: what runs is cut in-band. */
  stop (): Promise<void>
}

/**
 * Starts to listen once the configuration is live.
 * @throws {ConfigError} the configuration can't be used
 * @throws {Error} an address or the data folder can't be
 */
export async function startGateway ({ file, plugins, pluginsUrl, log, base = path.dirname(file), env = process.env, now = Date.now, timer = startTimer, watchLoad, output, seat }: GatewayOptions): Promise<Gateway> {
  const metrics = createMetrics(now)
  const upstreams = new Upstreams(undefined, now, timer, log)
  const tokens = new Tokens(log)
  /** the configuration says which store */
  let opened: Services & { readonly store: Records, readonly fleet: Fleet } | undefined
  const shipped = new Map(plugins.map((plugin) => [plugin.name, plugin]))
  let simulator: Promise<SimulatorThread> | undefined
  const simulatorUrl = async (): Promise<string> => {
    if (seat !== undefined) return await seat.simulator()
    simulator ??= startSimulatorThread({}, (err) => { log.error({ err }, 'the built-in simulator died') })
    return (await simulator).url
  }
  const worker = seat === undefined ? undefined : folderOf(seat.number)
  /** How the lines of a worker look is decided where they are written: by its primary. */
  const speak = ({ level, format }: Config['log']): void => {
    log.level = level
    if (output !== undefined) output.format = seat === undefined ? format : 'json'
  }
  let files: OpenFiles | undefined
  let unfollow: () => void = () => {}

  const live: LiveConfig = new LiveConfig({
    file, pluginsUrl, env, services: { log: seat === undefined ? log : withoutWarnings(log), metrics, now },
    async compile (loaded, generation, userPlugins) {
      if (Object.values(loaded.upstreams).some(({ url }) => url === 'simulator:')) {
        upstreams.simulatorUrl = await simulatorUrl()
      }
      if (opened === undefined) {
        speak(loaded.log)
        const folder = path.resolve(base, loaded.store.path)
        const open = async (of: string): ReturnType<typeof openStore> => await openStore(loaded.store, of, log, now)
        const store = await open(path.join(folder, worker ?? ''))
        if (worker === undefined && loaded.store.driver === 'redis') await deliverLeftovers(folder, loaded.server.workers, log, open)
        const directory = new Directory(store, now, timer)
        files = await openFiles(loaded.store, loaded.server, folder, log, now, worker).catch(async (thrown: unknown) => {
          await store.close()
          throw thrown
        })
        const { links, temporary } = files
        opened = { log, metrics, store, ...outliving(store, { log, metrics, now }, { timer, current: () => live.current() }), directory, upstreams, links, temporary, tokens, overheads: new Overheads(), now, fleet: new Fleet({ records: store, now, timer, worker: seat?.number }) }
        await directory.load()
        unfollow = directory.follow()
      }
      const services = opened
      const config = withDemo(loaded, path.resolve(base, loaded.store.path), services.directory)
      refuseTaken(config, services.directory)
      const inUse = config.pipeline.map(({ use }) => shipped.get(use) ?? userPlugins.get(use)!)
      const snapshot = new Snapshot({ config, generation, plugins: inUse, endpoints, services })
      try {
        // Last: a configuration that is refused has credited nobody, and a typing error in it is not kept for ever.
        await Promise.all(config.accounts.map(async ({ id, opening_balance_usd: opening }) => { await services.store.credit(id, `opening:${id}`, parseUsd(opening)) }))
      } catch (thrown) {
        snapshot.retire()
        throw thrown
      }
      return snapshot
    },
    warnings: (before, { config }) => turnedOff(before?.config, config),
    creditedTo: (account) => opened?.store.creditOf(`opening:${account}`),
    onReload ({ changed }) {
      if (!changed) return
      const { config, generation } = live.current()
      speak(config.log)
      upstreams.gates.reload(config.upstreams, generation)
      upstreams.health.retain(live.current())
      opened?.fleet.beat()
    }
  })
  const end = async (): Promise<void> => {
    live.close()
    unfollow()
    await opened?.fleet.close()
    await opened?.videos.close()
    await upstreams.destroy()
    await (await simulator?.catch(() => undefined))?.close()
    await files?.close()
    await tokens.end()
    await opened?.store.close()
  }
  try {
    await live.start()
  } catch (error) {
    await end()
    throw error
  }
  await tokens.start()

  const services = opened!
  const { config } = live.current()
  const { server: serverConfig } = config
  const folder = path.resolve(base, config.store.path)
  const token = serverConfig.admin.token === '' ? keepSecret(folder, 'admin-token', randomSecret) : serverConfig.admin.token

  const crew = output === undefined || seat !== undefined || serverConfig.workers === 1 ? undefined : new Crew({ config: serverConfig, log, output, metrics, simulator: simulatorUrl })
  services.videos.start()
  const merged = new MergedMetrics(async () => [{ worker: 'primary', process: '', text: await metrics.print() }, ...await crew!.pages()])
  const ownReasons = (): readonly string[] => {
    const { health, trouble } = services.store
    return [...(server.overload.isOverloaded ? ['overloaded'] : []), ...(health?.refusesRequests === true ? ['store_away'] : []), ...(trouble !== undefined ? ['ledger_unwritable'] : [])]
  }
  const reasons = (): readonly string[] | Promise<readonly string[]> => server.isDraining || crew?.isEnding === true ? ['draining'] : crew?.reasons() ?? ownReasons()

  const server: GatewayServer = new GatewayServer(serverConfig, () => live.current(), services, adminHandler({
    services,
    token,
    api: new AdminApi({
      services,
      changes: async (after, limit) => await services.store.changes(after, limit),
      config: () => live.current().config,
      processes: async () => await services.fleet.processes(),
      upstreams: { view: async () => mergedView([viewOf(upstreams.health, live.current()), ...await crew?.upstreams() ?? []]), live: () => live.current() },
      plugins: shipped,
      tryKey: tryKeyOn(shipped, services),
      async rehearse (question) {
        const snapshot = live.current().lease()
        try {
          return await rehearse(snapshot, question)
        } finally {
          snapshot.release()
        }
      }
    }),
    metrics: async () => await (crew === undefined ? metrics : merged).print(),
    status: async () => ({ ...live.status(), ...(crew !== undefined && { workers: await crew.states() }) }),
    reasons
  }), watchLoad)
  if (output !== undefined) metrics.watch('gateway_log_dropped_total', () => output.dropped)
  metrics.watch('gateway_overloaded', () => Number(server.overload.isOverloaded))
  metrics.watch('gateway_event_loop_delay_seconds', () => server.overload.delay / 1000)
  metrics.watch('gateway_body_memory_bytes', () => server.bodyMemory.used)
  metrics.watch('gateway_answer_memory_bytes', () => upstreams.answers.used)
  metrics.watch('gateway_fleet_processes', async () => (await services.fleet.processes()).length)
  if (services.store.health !== undefined) {
    metrics.watch('gateway_store_up', () => services.store.health!.isUp ? 1 : 0)
    metrics.watch('gateway_store_lag_seconds', () => services.store.health!.lagSeconds)
    metrics.watch('gateway_outbox_pending', () => services.store.health!.pending)
  }
  metrics.watch('gateway_videos_open', () => services.tasks.openTasks().length)
  metrics.watch('gateway_holds_open', () => services.store.health?.holds ?? services.store.openHolds())
  metrics.watchMany('gateway_upstream_breaker_state', () => upstreams.health.targets(live.current()).map(({ upstream, model, breaker }) => ({ labels: { upstream, model }, value: BREAKER_VALUES[breaker] })))
  metrics.watchMany('gateway_upstream_queue_depth', () => upstreams.gates.waiting().map(([upstream, value]) => ({ labels: { upstream }, value })))
  metrics.watchMany('gateway_upstream_running', () => upstreams.health.targets(live.current()).map(({ upstream, model, running }) => ({ labels: { upstream, model }, value: running })))
  metrics.watchMany('gateway_upstream_credential_aside', () => upstreams.health.credentials(live.current()).map(({ upstream, id, wait }) => ({ labels: { upstream, credential: id }, value: wait > 0 ? 1 : 0 })))
  let urls: Listeners
  try {
    urls = {
      ...await crew?.start() ?? await server.listen(['api', 'public']),
      admin: seat === undefined ? (await server.listen(['admin'])).admin : ''
    }
  } catch (error) {
    await crew?.stop()
    await end()
    throw error
  }
  services.links.publicUrl = serverConfig.public.url ?? urls.public
  live.watch()
  if (crew === undefined) {
    services.fleet.start(async () => {
      const { generation, hash } = live.state()
      return { generation, hash, requests_in_flight: server.inFlight, ...(services.store.health !== undefined && { outbox: services.store.health.pending }), reasons: await reasons() }
    })
  }
  return {
    urls, services, live, server, reasons,
    reload () {
      void live.reload('sighup')
      crew?.reload()
    },
    demoKey: () => live.current().config.keys.find(({ id }) => id === DEMO)?.secret,
    demoOff: () => live.current().config.demo_off?.why,
    adminTokenFile: serverConfig.admin.token === '' ? path.join(folder, 'admin-token') : undefined,
    async drain (isUrgent = false) {
      await crew?.drain(isUrgent)
      await (crew === undefined ? server.drain(isUrgent) : server.stop())
      await end()
    },
    async stop () {
      await crew?.stop()
      await server.stop()
      await end()
    }
  }
}

/** What is odd about a configuration, the primary says for all its workers. */
function withoutWarnings (log: Logger): Pick<Logger, 'info' | 'warn' | 'error'> {
  return Object.assign(Object.create(log) as Logger, { warn () {} })
}

/** @throws {PartError} an id that the ledger knows as another's */
export function refuseTaken ({ accounts, keys }: Config, directory: Directory): void {
  const taken = (path: string, what: string, id: string): PartError =>
    new PartError(path, `the ${what} ${id} was made through the admin API, and the ledger knows it as that one`, 'choose another id')
  for (const [i, { id }] of accounts.entries()) if (directory.keptAccount(id) !== undefined) throw taken(`/accounts/${i}/id`, 'account', id)
  for (const [i, { id }] of keys.entries()) if (directory.keptKey(id) !== undefined) throw taken(`/keys/${i}/id`, 'key', id)
}

const BREAKER_VALUES = { closed: 0, half_open: 1, open: 2 } as const
