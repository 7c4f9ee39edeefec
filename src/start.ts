// Joins configuration, services and servers into a running gateway: what `gateway start` runs, and what the tests boot.
import path from 'node:path'
import type { Logger } from 'pino'
import { adminHandler } from './admin/admin.ts'
import { AdminApi } from './admin/api/api.ts'
import { tryKeyOn } from './admin/api/try-key.ts'
import { createMetrics } from './admin/metrics.ts'
import type { Config } from './config/config.ts'
import { LiveConfig } from './config/live.ts'
import { PartError } from './config/problem.ts'
import { Snapshot } from './config/snapshot.ts'
import { keepSecret, randomSecret } from './data-folder.ts'
import { Directory } from './directory.ts'
import { type OpenFiles, openFiles } from './files/open.ts'
import { endpoints } from './endpoints.ts'
import { parseUsd } from './money/nanos.ts'
import { Tokens } from './money/tokens.ts'
import type { Plugin } from './plugin.ts'
import { rehearse } from './rehearse.ts'
import { GatewayServer, type Listeners } from './server.ts'
import type { Services } from './services.ts'
import { startSimulatorThread, type SimulatorThread } from './simulator/thread.ts'
import { openStore } from './store/open.ts'
import type { Records } from './store/store.ts'
import { Upstreams } from './upstream/upstream.ts'
import { outliving } from './videos/outliving.ts'
import { startTimer, type Timer } from './videos/watcher.ts'

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
}

export interface Gateway {
  readonly urls: Listeners
  readonly services: Services
  readonly live: LiveConfig
  readonly server: GatewayServer
  /** the demo account's key; undefined unless every upstream is the built-in simulator */
  demoKey (): string | undefined
  /** where the admin token was written, when it was generated */
  readonly adminTokenFile: string | undefined
  /** Ends well (SIGTERM): see GatewayServer.drain. */
  drain (): Promise<void>
  /** Ends at once: what runs is cut in-band. */
  stop (): Promise<void>
}

/**
 * Starts to listen once the configuration is live.
 * @throws {ConfigError} the configuration can't be used
 * @throws {Error} an address or the data folder can't be
 */
export async function startGateway ({ file, plugins, pluginsUrl, log, base = path.dirname(file), env = process.env, now = Date.now, timer = startTimer }: GatewayOptions): Promise<Gateway> {
  const metrics = createMetrics(now)
  const upstreams = new Upstreams()
  const tokens = new Tokens(log)
  /** the configuration says which store */
  let opened: Services & { readonly store: Records } | undefined
  const shipped = new Map(plugins.map((plugin) => [plugin.name, plugin]))
  let simulator: SimulatorThread | undefined
  let files: OpenFiles | undefined

  const live: LiveConfig = new LiveConfig({
    file, pluginsUrl, env, services: { log, metrics, now },
    async compile (loaded, generation, userPlugins) {
      if (Object.values(loaded.upstreams).some(({ url }) => url === 'simulator:')) {
        simulator ??= await startSimulatorThread({}, (err) => { log.error({ err }, 'the built-in simulator died') })
        upstreams.simulatorUrl = simulator.url
      }
      if (opened === undefined) {
        const store = await openStore(loaded.store, path.resolve(base, loaded.store.path), log, now)
        const directory = new Directory(store, now)
        files = await openFiles(loaded.store, loaded.server, path.resolve(base, loaded.store.path), log, now).catch(async (thrown: unknown) => {
          await store.close()
          throw thrown
        })
        const { links, temporary } = files
        opened = { log, metrics, store, ...outliving(store, { log, metrics, now }, { timer, current: () => live.current() }), directory, upstreams, links, temporary, tokens, now }
        await directory.load()
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
    creditedTo: (account) => opened?.store.creditOf(`opening:${account}`),
    onReload: ({ changed }) => { if (changed) log.level = live.current().config.log.level }
  })
  const end = async (): Promise<void> => {
    live.close()
    await opened?.videos.close()
    await upstreams.destroy()
    await simulator?.close()
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
  services.videos.start()
  const { config } = live.current()
  const { server: serverConfig } = config
  const folder = path.resolve(base, config.store.path)
  const token = serverConfig.admin.token === '' ? keepSecret(folder, 'admin-token', randomSecret) : serverConfig.admin.token
  log.level = config.log.level

  const server: GatewayServer = new GatewayServer(serverConfig, () => live.current(), services, adminHandler({
    services,
    token,
    api: new AdminApi({
      services,
      changes: async (after, limit) => await services.store.changes(after, limit),
      config: () => live.current().config,
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
    status: () => live.status(),
    ready: () => server.isDraining ? ['draining'] : []
  }))
  metrics.watch('gateway_body_memory_bytes', () => server.bodyMemory.used)
  metrics.watch('gateway_videos_open', () => services.tasks.openTasks().length)
  metrics.watch('gateway_holds_open', () => services.store.openHolds())
  let urls: Listeners
  try {
    urls = await server.listen()
  } catch (error) {
    await end()
    throw error
  }
  services.links.publicUrl = serverConfig.public.url ?? urls.public
  live.watch()
  return {
    urls, services, live, server,
    demoKey: () => live.current().config.keys.find(({ id }) => id === DEMO)?.secret,
    adminTokenFile: serverConfig.admin.token === '' ? path.join(folder, 'admin-token') : undefined,
    async drain () {
      await server.drain()
      await end()
    },
    async stop () {
      await server.stop()
      await end()
    }
  }
}

/** @throws {PartError} an id that the ledger knows as another's */
export function refuseTaken ({ accounts, keys }: Config, directory: Directory): void {
  const taken = (path: string, what: string, id: string): PartError =>
    new PartError(path, `the ${what} ${id} was made through the admin API, and the ledger knows it as that one`, 'choose another id')
  for (const [i, { id }] of accounts.entries()) if (directory.keptAccount(id) !== undefined) throw taken(`/accounts/${i}/id`, 'account', id)
  for (const [i, { id }] of keys.entries()) if (directory.keptKey(id) !== undefined) throw taken(`/keys/${i}/id`, 'key', id)
}

const DEMO = 'demo'

/**
 * Adds an account with play money and a generated key, while every upstream is the built-in simulator. As soon as one is
 * not, the key is unknown: what a stranger finds in a tutorial must never spend real money.
 */
export function withDemo (config: Config, folder: string, directory: Directory): Config {
  const isSimulated = Object.values(config.upstreams).every(({ url }) => url === 'simulator:')
  const isTaken = [...config.accounts, ...config.keys].some(({ id }) => id === DEMO) || directory.keptAccount(DEMO) !== undefined || directory.keptKey(DEMO) !== undefined
  if (!isSimulated || isTaken) return config
  return {
    ...config,
    accounts: [...config.accounts, { id: DEMO, name: 'Demo', opening_balance_usd: '1000', allow_fallback: true, suspended: false }],
    keys: [...config.keys, { id: DEMO, account: DEMO, secret: keepSecret(folder, 'demo-key', () => 'sk-gw-' + randomSecret()), frozen: false, streaming: true, routing_mode: 'premium', channels: ['premium', 'cheap'] }]
  }
}
