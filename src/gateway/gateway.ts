// Joins configuration, services and servers into a running gateway: for `gateway start`, and for the tests.
import path from 'node:path'
import type { Logger } from 'pino'
import { adminHandler, type AdminParts } from '../admin/admin.ts'
import { AdminApi } from '../admin/api/api.ts'
import { askOwnApi } from '../admin/own-api.ts'
import { Sessions } from '../admin/web/sessions.ts'
import { tryKeyOn } from '../admin/api/try-key.ts'
import { MergedMetrics } from '../telemetry/merged-metrics.ts'
import { mergedLately } from '../telemetry/lately.ts'
import { StallWatch } from '../telemetry/stall-watch.ts'
import { createMetrics, type Metrics } from '../telemetry/metrics.ts'
import type { LogOutput } from '../telemetry/log-output.ts'
import type { Config } from '../config/config.ts'
import type { loadConfig } from '../config/load/load.ts'
import { LiveConfig } from './reload.ts'
import { PartError } from '../config/problem.ts'
import { Snapshot } from './snapshot.ts'
import { FEW_DESCRIPTORS, mostDescriptors } from '../base/descriptors.ts'
import { compileNetworks } from '../base/ip-address.ts'
import { nearUrl } from '../base/near-url.ts'
import { keepSecret, randomSecret } from '../base/secrets.ts'
import { DEMO, turnedOff, withDemo } from './demo.ts'
import type { Directory } from '../accounts/directory.ts'
import { endpoints } from '../endpoints/index.ts'
import type { Fleet, ProcessState } from '../cluster/heartbeat.ts'
import type { WatchLoad } from '../http/overload.ts'
import type { Plugin } from '../core/plugin.ts'
import { rehearse } from '../pipeline/dry-run.ts'
import { GatewayServer, type Listeners } from '../http/server.ts'
import type { GatewayServices } from './services.ts'
import { watchGauges } from './gauges.ts'
import { type ReadinessParts, reasonsOf, watchReadiness } from './readiness.ts'
import { StoreWait } from './wait-for-store.ts'
import { UnreachableError } from '../store/unreachable.ts'
import { creditOpenings, openingOf } from './opening-balances.ts'
import { type OpenServices, openServices } from './open-services.ts'
import { WarmUp } from './warm-up.ts'
import { startSimulatorThread, type SimulatorThread } from '../simulator/thread.ts'
import { dateOfStep } from '../base/end-of-turn.ts'
import { startTimer, type Timer } from '../base/timer.ts'
import { Upstreams } from '../upstream/pool.ts'
import { mergedView, resetCredentials, viewOf } from '../upstream/limits/status.ts'
import { Crew } from '../cluster/primary.ts'
import type { Seat } from '../cluster/worker.ts'

export interface GatewayOptions {
  readonly file: string
  /** the shipped plugins */
  readonly plugins: readonly Plugin[]
  /** the module that exports them, which the thread that checks configurations loads again */
  readonly pluginsUrl: string
  readonly log: Logger
  /** the folder that `store.path` is relative to; default: that of the file */
  readonly base?: string
  readonly env?: NodeJS.ProcessEnv
  readonly now?: () => number
  /** timer of background work; for tests */
  readonly timer?: Timer
  /** loads the configuration; for tests */
  readonly load?: typeof loadConfig
  /** bytes from which a body is read in a thread; for tests */
  readonly largeBody?: number
  /** samples the process's load; for tests */
  readonly watchLoad?: WatchLoad
  /**
   * destination of `log`, which the workers' logs share; absent: this process serves clients by itself, whatever
   * server.workers says
   */
  readonly output?: LogOutput
  /** present: this process is a worker */
  readonly seat?: Seat | undefined
  /** true: stalls of the event loop are counted and logged; one gateway of a process alone may do so */
  readonly watchesStalls?: boolean
  /** true: before it is ready, a process that serves clients warms up */
  readonly warmsUp?: boolean
}

export interface Gateway {
  /** a worker has no admin listener */
  readonly urls: Listeners
  readonly services: GatewayServices
  readonly live: LiveConfig
  readonly server: GatewayServer
  /** the demo account's key; undefined unless every upstream is the built-in simulator */
  demoKey (): string | undefined
  /** why the demo key, which there once was, is off */
  demoOff (): string | undefined
  /** Reads the configuration again, in all processes. */
  reload (): void
  /** why load balancers should send requests elsewhere; empty: ready */
  reasons (): readonly string[] | Promise<readonly string[]>
  /** file of the admin token, if it was generated */
  readonly adminTokenFile: string | undefined
  /** Shuts down gracefully (SIGTERM): see GatewayServer.drain. */
  drain (isUrgent?: boolean): Promise<void>
  /** Stops at once: running requests are cut in-band. */
  stop (): Promise<void>
  /** the part whose end a shutdown waits for, in words for operators; undefined: none */
  waitsFor (): string | undefined
}

/**
 * Starts to listen once the configuration is live.
 * @throws {ConfigError} the configuration can't be used
 * @throws {Error} an address or the data folder can't be
 */
export async function startGateway (options: GatewayOptions): Promise<Gateway> {
  const { file, plugins, log, now = dateOfStep, timer = startTimer, base = path.dirname(file), output, seat } = options
  const metrics = createMetrics(now)
  const upstreams = new Upstreams(undefined, now, timer, log, metrics)
  const shipped = new Map(plugins.map((plugin) => [plugin.name, plugin]))
  const simulator = builtInSimulator(log, seat)
  const parts: Parts = { options, base, metrics, upstreams, shipped, simulator, now, timer }
  const { live, opened, missing } = liveConfig(parts)
  const storeWait = new StoreWait({ log, timer })
  let warmUp: WarmUp | undefined
  let stalls: StallWatch | undefined
  let waitsFor: string | undefined
  const waitFor = async (part: string, ending: Promise<void> | undefined): Promise<void> => {
    waitsFor = part
    await ending
    waitsFor = undefined
  }
  const end = async (): Promise<void> => {
    await waitFor('the warm-up', warmUp?.end())
    live.close()
    await waitFor('background work and the threads of large bodies', opened()?.quiesce())
    await waitFor('connections to upstreams', upstreams.destroy())
    await waitFor('the simulator', simulator.close())
    await waitFor('the store', opened()?.close())
    await waitFor('the watch of the event loop', stalls?.close())
  }
  try {
    for (;;) {
      const isLive = await live.start().then(() => true, (thrown: unknown) => {
        if (missing() === undefined) throw thrown
        return false
      })
      if (isLive) break
      const { error, config: { server: { admin } } } = missing()!
      await storeWait.next(error, seat === undefined ? admin.listen : undefined)
    }
    await storeWait.end()
  } catch (error) {
    await storeWait.end()
    await end()
    throw error
  }

  const { services, fleet } = opened()!
  const { config } = live.current()
  const { server: serverConfig } = config
  const folder = path.resolve(base, config.store.path)
  const crew = output === undefined || seat !== undefined || serverConfig.workers === 1
    ? undefined
    : new Crew({ config: serverConfig, log, output, metrics, simulator: simulator.url })
  services.videos.start()
  const readiness: ReadinessParts = { services, server: () => server,
    isDraining: () => server.isDraining || crew?.isEnding === true, isWarmingUp: () => warmUp?.isOver === false }
  const reasons = (): readonly string[] | Promise<readonly string[]> =>
    (readiness.isDraining() ? undefined : crew?.reasons()) ?? reasonsOf(readiness)
  const token = serverConfig.admin.token === ''
    ? keepSecret(folder, 'admin-token', randomSecret)
    : serverConfig.admin.token
  const server: GatewayServer = new GatewayServer(serverConfig, () => live.current(), services,
    adminListener({ services, fleet, live, shipped, crew, token, reasons, timer, apiUrl: () => urls.api }),
    options.watchLoad)
  watchGauges({ services, fleet, server, live, output, isWorker: seat !== undefined })
  watchReadiness(metrics, () => reasonsOf(readiness))
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
  if (seat === undefined) warnOfFewDescriptors(log)
  services.links.publicUrl = services.addresses.public = serverConfig.public.url ?? urls.public
  services.addresses.api = serverConfig.api.url ?? urls.api
  live.watch()
  if (options.warmsUp === true && crew === undefined) {
    // A request of a client warms up too, and should not wait for others.
    const isWanted = (): boolean => !server.isAsked && !server.isDraining
    warmUp = new WarmUp({ config, shipped, log, isWanted })
  }
  // From here on: to start takes long in one piece, and no client waits for it.
  if (options.watchesStalls === true) stalls = new StallWatch({ log, metrics })
  if (crew === undefined) fleet.start(async () => await heartbeatOf({ live, server, services, reasons }))
  return {
    urls, services, live, server, reasons,
    waitsFor: () => waitsFor,
    reload () {
      void live.reload('sighup')
      crew?.reload()
    },
    demoKey: () => live.current().config.keys.find(({ id }) => id === DEMO)?.secret,
    demoOff: () => live.current().config.demo_off?.why,
    adminTokenFile: serverConfig.admin.token === '' ? path.join(folder, 'admin-token') : undefined,
    async drain (isUrgent = false) {
      await waitFor('the workers', crew?.drain(isUrgent))
      await waitFor('running requests', crew === undefined ? server.drain(isUrgent) : server.stop())
      await end()
    },
    async stop () {
      await crew?.stop()
      await server.stop()
      await end()
    }
  }
}

interface BuiltInSimulator {
  /** Starts the simulator on demand; of a worker, its primary's. */
  url (): Promise<string>
  close (): Promise<void>
}

function builtInSimulator (log: Logger, seat: Seat | undefined): BuiltInSimulator {
  let simulator: Promise<SimulatorThread> | undefined
  return {
    async url () {
      if (seat !== undefined) return await seat.simulator()
      simulator ??= startSimulatorThread({}, (err) => { log.error({ err }, 'the built-in simulator died') })
      return (await simulator).url
    },
    async close () {
      await (await simulator?.catch(() => undefined))?.close()
    }
  }
}

/** Parts that outlive every configuration and do not depend on it. */
interface Parts extends Required<Pick<GatewayOptions, 'base' | 'now' | 'timer'>> {
  readonly options: GatewayOptions
  readonly metrics: Metrics
  readonly upstreams: Upstreams
  readonly shipped: ReadonlyMap<string, Plugin>
  readonly simulator: BuiltInSimulator
}

interface Live {
  readonly live: LiveConfig
  /** services opened by the first configuration; undefined before */
  readonly opened: () => OpenServices | undefined
  /** the store that the last start did not reach; undefined: it did, or failed for another reason */
  readonly missing: () => MissingStore | undefined
}

interface MissingStore { readonly error: UnreachableError, readonly config: Config }

/** The live configuration and its services; the first one that is compiled decides their store. */
function liveConfig ({ options, base, metrics, upstreams, shipped, simulator, now, timer }: Parts): Live {
  const { file, pluginsUrl, log, env = process.env, load, output, seat } = options
  const pluginsOf = new WeakMap<Snapshot, readonly string[]>()
  let opened: OpenServices | undefined
  let missing: MissingStore | undefined
  const noteMissing = (config: Config) => (error: unknown): never => {
    if (error instanceof UnreachableError) missing = { error, config }
    throw error
  }
  /** The format of a worker's lines is decided where they are written: by its primary. */
  const speak = ({ level, format }: Config['log']): void => {
    log.level = level
    if (output !== undefined) output.format = seat === undefined ? format : 'json'
  }
  const live: LiveConfig = new LiveConfig({
    file,
    pluginsUrl,
    env,
    ...(load !== undefined && { load }),
    services: { log: seat === undefined ? log : withoutWarnings(log), metrics, now },
    async compile (loaded, generation, userPlugins) {
      missing = undefined
      if (Object.values(loaded.upstreams).some(({ url }) => url === 'simulator:')) {
        upstreams.simulatorUrl = await simulator.url()
      }
      const folder = path.resolve(base, loaded.store.path)
      if (opened === undefined) {
        speak(loaded.log)
        upstreams.fastLane = loaded.server.fast_lane === 'on' // as all of `server`: a change needs a restart
        opened = await openServices(loaded, folder,
          { log, metrics, upstreams, now, timer, number: seat?.number, current: () => live.current(), pluginsUrl,
            largeBody: options.largeBody }).catch(noteMissing(loaded))
      }
      const { services } = opened
      const config = withDemo(loaded, folder, services.directory)
      refuseTaken(config, services.directory)
      const inUse = config.pipeline.map(({ use }) => shipped.get(use) ?? userPlugins.get(use)!)
      const snapshot = new Snapshot({ config, generation, plugins: inUse, shipped, endpoints, services })
      pluginsOf.set(snapshot, inUse.map(({ name }) => name))
      return snapshot
    },
    goLive: async ({ config }) => {
      await creditOpenings(config.accounts, opened!.services.store).catch(noteMissing(config))
    },
    warnings: (before, { config }) => turnedOff(before?.config, config),
    creditedTo: (account) => opened?.services.store.amountOf('credit', openingOf(account)),
    onReload ({ changed }) {
      if (!changed) return
      const { config, generation } = live.current()
      metrics.pluginsLive(pluginsOf.get(live.current())!)
      speak(config.log)
      opened!.services.requests.configure(config.log.requests)
      upstreams.queues.reload(config.upstreams, generation)
      upstreams.health.retain(live.current())
      opened?.fleet.beat()
    }
  })
  return { live, opened: () => opened, missing: () => missing }
}

interface AdminListenerParts extends Pick<AdminParts, 'token' | 'reasons'> {
  readonly timer: Timer
  readonly services: OpenServices['services']
  readonly fleet: Fleet
  readonly live: LiveConfig
  readonly shipped: ReadonlyMap<string, Plugin>
  readonly crew: Crew | undefined
  /** where the API listens; once it does */
  readonly apiUrl: () => string
}

/** The admin listener of a process; a primary's answers for its workers too. */
function adminListener (
  { services, fleet, live, shipped, crew, token, reasons, timer, apiUrl }: AdminListenerParts
): ReturnType<typeof adminHandler> {
  const { metrics, upstreams } = services
  const printed = crew === undefined
    ? metrics
    : new MergedMetrics(
      async () => [{ worker: 'primary', process: '', text: await metrics.print() }, ...await crew.pages()]
    )
  const sessions = new Sessions(services.now)
  const { trusted_proxies: proxies, admin, api } = live.current().config.server
  return adminHandler({
    services,
    token,
    sessions,
    hosts: admin.hosts,
    trusted: compileNetworks(proxies),
    api: new AdminApi({
      services,
      audit: services.store,
      links: sessions,
      config: () => live.current().config,
      placeOf: (list, id) => live.placeOf(list, id),
      verified: (differences) => { metrics.verified(differences) },
      processes: async () => await fleet.processes(),
      upstreams: {
        view: async () => mergedView([viewOf(upstreams, live.current()), ...await crew?.upstreams() ?? []]),
        live: () => live.current(),
        async reset (what) {
          resetCredentials(upstreams, live.current(), what)
          await crew?.reset(what)
        }
      },
      running: {
        status: async () => ({ ...live.status(), ...(crew !== undefined && { workers: await crew.states() }) }),
        judge: async (text) => await live.judge(text),
        backup: services.store.backup,
        state: () => live.state(),
        reasons,
        lately: async () => mergedLately([metrics.lately(), ...await crew?.lately() ?? []]),
        ledgerDifferences: () => metrics.ledgerDifferences(),
        timer,
        log: services.log,
        api: {
          baseUrl: () => api.url ?? apiUrl(),
          ask: async (asked, signal) => await askOwnApi(nearUrl(apiUrl().replace(/^http:\/\//, '')), asked, signal)
        }
      },
      plugins: shipped,
      requests: services.requests,
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
    metrics: async () => await printed.print(),
    reasons,
    timer
  })
}

/** Why load balancers should send requests to another process. */
/** A process without descriptors refuses clients without a word, so it is said before. */
function warnOfFewDescriptors (log: Logger): void {
  const limit = mostDescriptors()
  if (limit === undefined || limit >= FEW_DESCRIPTORS) return
  log.warn({ limit, enough: FEW_DESCRIPTORS },
    'this process may open few files and connections, and each request takes two: raise the limit (ulimit -n, ' +
    'LimitNOFILE in a unit of systemd, ulimits in Compose)')
}

/** This process's heartbeat for the other processes. */
async function heartbeatOf (
  { live, server, services: { store: { health } }, reasons }: Pick<Gateway, 'live' | 'server' | 'services' | 'reasons'>
): Promise<ProcessState> {
  const { generation, hash } = live.state()
  return { generation, hash, requests_in_flight: server.inFlight,
    ...(health !== undefined && { outbox: health.pending }), reasons: await reasons() }
}

/** Without warnings: the primary logs those of the configuration for all its workers. */
function withoutWarnings (log: Logger): Pick<Logger, 'info' | 'warn' | 'error'> {
  return Object.assign(Object.create(log) as Logger, { warn () {} })
}

/** @throws {PartError} an id that the ledger knows as another account's or key's */
export function refuseTaken ({ accounts, keys }: Config, directory: Directory): void {
  const taken = (path: string, what: string, id: string): PartError =>
    new PartError(path, `the ${what} ${id} was made through the admin API, and the ledger knows it as that one`,
      'choose another id')
  for (const [i, { id }] of accounts.entries()) {
    if (directory.keptAccount(id) !== undefined) throw taken(`/accounts/${i}/id`, 'account', id)
  }
  for (const [i, { id }] of keys.entries()) {
    if (directory.keptKey(id) !== undefined) throw taken(`/keys/${i}/id`, 'key', id)
  }
}
