// Joins configuration, services and servers into a running gateway: what `gateway start` runs, and what the tests boot.
import path from 'node:path'
import type { Logger } from 'pino'
import { adminHandler } from './admin/admin.ts'
import { createMetrics } from './admin/metrics.ts'
import type { Config } from './config/config.ts'
import { LiveConfig } from './config/live.ts'
import { Snapshot } from './config/snapshot.ts'
import { keepSecret, randomSecret } from './data-folder.ts'
import { endpoints } from './endpoints.ts'
import { parseUsd } from './money/nanos.ts'
import { Tokens } from './money/tokens.ts'
import type { Plugin } from './plugin.ts'
import { GatewayServer, type Listeners } from './server.ts'
import type { Services } from './services.ts'
import { startSimulatorThread, type SimulatorThread } from './simulator/thread.ts'
import { MemoryStore } from './store/memory.ts'
import { Upstreams } from './upstream/upstream.ts'

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
export async function startGateway ({ file, plugins, pluginsUrl, log, base = path.dirname(file), env = process.env, now = Date.now }: GatewayOptions): Promise<Gateway> {
  const metrics = createMetrics(now)
  const store = new MemoryStore(now)
  const upstreams = new Upstreams()
  const tokens = new Tokens(log)
  const services: Services = { log, metrics, store, upstreams, tokens, now }
  const shipped = new Map(plugins.map((plugin) => [plugin.name, plugin]))
  let simulator: SimulatorThread | undefined

  const live: LiveConfig = new LiveConfig({
    file, pluginsUrl, env, services,
    endpoints: Object.keys(endpoints),
    async compile (loaded, generation, userPlugins) {
      if (Object.values(loaded.upstreams).some(({ url }) => url === 'simulator:')) {
        simulator ??= await startSimulatorThread({}, (err) => { log.error({ err }, 'the built-in simulator died') })
        upstreams.simulatorUrl = simulator.url
      }
      const config = withDemo(loaded, path.resolve(base, loaded.store.path))
      const inUse = config.pipeline.map(({ use }) => shipped.get(use) ?? userPlugins.get(use)!)
      const snapshot = new Snapshot({ config, generation, plugins: inUse, endpoints, services })
      try {
        // Last: a configuration that is refused has credited nobody, and a typing error in it is not kept for ever.
        for (const { id, opening_balance_usd: opening } of config.accounts) await store.credit(id, `opening:${id}`, parseUsd(opening))
      } catch (thrown) {
        snapshot.retire()
        throw thrown
      }
      return snapshot
    },
    onReload: ({ changed }) => { if (changed) log.level = live.current().config.log.level }
  })
  await live.start()
  await tokens.start()

  const { config } = live.current()
  const { server: serverConfig } = config
  const folder = path.resolve(base, config.store.path)
  const token = serverConfig.admin.token === '' ? keepSecret(folder, 'admin-token', randomSecret) : serverConfig.admin.token
  log.level = config.log.level

  const server: GatewayServer = new GatewayServer(serverConfig, () => live.current(), services, adminHandler({
    services,
    token,
    status: () => live.status(),
    ready: () => server.isDraining ? ['draining'] : []
  }))
  metrics.watch('gateway_body_memory_bytes', () => server.bodyMemory.used)
  metrics.watch('gateway_holds_open', () => store.openHolds())
  const end = async (): Promise<void> => {
    live.close()
    await upstreams.destroy()
    await simulator?.close()
    await tokens.end()
    await store.close()
  }
  let urls: Listeners
  try {
    urls = await server.listen()
  } catch (error) {
    await end()
    throw error
  }
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

const DEMO = 'demo'

/**
 * Adds an account with play money and a generated key, while every upstream is the built-in simulator. As soon as one is
 * not, the key is unknown: what a stranger finds in a tutorial must never spend real money.
 */
function withDemo (config: Config, folder: string): Config {
  const isSimulated = Object.values(config.upstreams).every(({ url }) => url === 'simulator:')
  const isTaken = config.accounts.some(({ id }) => id === DEMO) || config.keys.some(({ id }) => id === DEMO)
  if (!isSimulated || isTaken) return config
  return {
    ...config,
    accounts: [...config.accounts, { id: DEMO, name: 'Demo', opening_balance_usd: '1000', allow_fallback: true }],
    keys: [...config.keys, { id: DEMO, account: DEMO, secret: keepSecret(folder, 'demo-key', () => 'sk-gw-' + randomSecret()), routing_mode: 'premium', channels: ['premium', 'cheap'] }]
  }
}
