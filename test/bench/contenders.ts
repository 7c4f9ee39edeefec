// Who is compared, and how each is started: direct, bare http-proxy-3, bare undici translation, and the gateway with
// each store.
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parse, stringify } from 'yaml'
import { freePort } from '../support/free-port.ts'
import type { RedisServer } from '../support/redis-server.ts'
import { startChild, type Child } from './children.ts'
import { sleep } from './load.ts'
import { apiKey, MOST_TOKENS, outageModel, publicModel, sharedModel, sharers, thinkPath, upstreamModel } from './payloads.ts'

export const contenderNames = ['direct', 'http-proxy-3', 'undici', 'gateway', 'embedded', 'redis', 'workers'] as const
export type ContenderName = typeof contenderNames[number]

export interface Instance {
  readonly name: ContenderName
  readonly port: number
  /** absent for direct, which has no process between */
  readonly child?: Child
}

export interface LaunchOptions {
  readonly upstreamPort: number
  /** of the model that has several targets */
  readonly targetPorts: readonly number[]
  /** temporary: configs, logs, data */
  readonly folder: string
  readonly isPinned: boolean
  /** about its memory */
  readonly isAsked?: boolean
  readonly profileFolder?: string
}

const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url))
const launcher = fileURLToPath(new URL('../../src/launcher.js', import.meta.url))
const shippedConfig = new URL('../../gateway.yaml', import.meta.url)

/** @returns why this one can't run, or undefined */
export function whatIsMissing (name: ContenderName): string | undefined {
  return isGateway(name) && !(existsSync(launcher) && existsSync(main)) ? 'not built yet' : undefined
}

/**
 * The gateway: `gateway` with the memory store, `workers` two of them with Redis, the others by the name of the store.
 */
export function isGateway (name: ContenderName): boolean {
  return ['gateway', 'embedded', 'redis', 'workers'].includes(name)
}

/** Only where it is looked for by name: it has more than its own core, or is no quicker than another. */
export function isShared (name: ContenderName): boolean {
  return name === 'redis' || name === 'workers'
}

let redis: Promise<RedisServer> | undefined

/** One for all; it ends with this process. On the core of the load generator, as all that is not measured. */
async function redisUrl (): Promise<string> {
  // Not before it is wanted: what else imports this file needs no Redis.
  redis ??= import('../support/redis-server.ts').then(async ({ redisServer }) => await redisServer({ teardown () {} }))
  return (await redis).url
}

let launches = 0

export async function launch (name: ContenderName, options: LaunchOptions): Promise<Instance> {
  const { upstreamPort, targetPorts, isPinned, profileFolder } = options
  if (name === 'direct') return { name, port: upstreamPort }
  const folder = mkdtempSync(join(options.folder, `${name}-`))
  const logFile = join(folder, 'log')
  const [port, publicPort, adminPort] = await Promise.all([freePort(), freePort(), freePort()])
  const args = isGateway(name)
    ? [launcher, 'start', '--config',
      writeConfig(folder, { api: port, public: publicPort, admin: adminPort }, upstreamPort, targetPorts, isShared(name)
        ? { driver: 'redis', path: './data', url: await redisUrl(), prefix: basename(folder), timeout: '10s' }
        : { driver: name === 'embedded' ? 'embedded' : 'memory', path: './data' }, name === 'workers' ? 2 : 1)]
    : [fileURLToPath(new URL(name === 'undici' ? 'translation.ts' : 'pass-through.ts', import.meta.url)), String(port),
      String(upstreamPort)]
  const child = startChild({
    args, cwd: folder, logFile, isPinned,
    ...(options.isAsked === true && { answersFile: join(folder, 'answers') }),
    ...(profileFolder !== undefined && { profile: { folder: profileFolder, name: `${name}-${launches++}.cpuprofile` } })
  })
  try {
    await becomesReady(child, port, isGateway(name) ? adminPort : undefined)
  } catch (error) {
    await child.stop()
    throw error
  }
  return { name, port, child }
}

async function becomesReady (child: Child, port: number, adminPort: number | undefined): Promise<void> {
  for (let tries = 0; tries < 600; tries++) {
    if (child.hasExited()) throw new Error(`ended at its start:\n${child.logTail()}`)
    if (await accepts(port) && (adminPort === undefined || await isReady(adminPort))) return
    await sleep(50)
  }
  throw new Error(`not ready within 30 s:\n${child.logTail()}`)
}

function accepts (port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => { socket.destroy(); resolve(true) })
    socket.on('error', () => resolve(false))
  })
}

async function isReady (adminPort: number): Promise<boolean> {
  try {
    const answer = await fetch(`http://127.0.0.1:${adminPort}/readyz`, { signal: AbortSignal.timeout(1000) })
    await answer.arrayBuffer()
    return answer.status === 200
  } catch {
    return false
  }
}

/** How a target that fails is left alone: the shipped times, ten times as fast. Milliseconds. */
export const outageTimes = { first_byte: 250, window: 1000, open: 500, max_open: 2000 } as const

/** Requests at a time that the shared upstream takes. */
export const sharedConcurrency = 8

/**
 * Our upstream and its model, a model with several targets, one that accounts share, much money, and the pipeline that
 * ships.
 */
function writeConfig (
  folder: string,
  ports: Readonly<Record<'api' | 'public' | 'admin', number>>,
  upstreamPort: number,
  targetPorts: readonly number[],
  store: object,
  workers: number
): string {
  const shipped = existsSync(shippedConfig)
    ? (parse(readFileSync(shippedConfig, 'utf8')) as { pipeline?: unknown }).pipeline
    : undefined
  const pipeline = shipped ?? ['auth', 'channel-router', 'billing-meter', 'error-normalize']
  const isLimited = JSON.stringify(pipeline).includes('rate-limit')
  const secrets = [apiKey, ...sharers]
  const file = join(folder, 'gateway.yaml')
  writeFileSync(file, stringify({
    server: {
      workers,
      ...(process.env['FAST_LANE'] === 'off' && { fast_lane: 'off' }),
      api: { listen: `127.0.0.1:${ports.api}` },
      public: { listen: `127.0.0.1:${ports.public}` },
      admin: { listen: `127.0.0.1:${ports.admin}` }
    },
    store,
    log: { level: 'info' },
    pipeline,
    upstreams: {
      bench: upstream(upstreamPort),
      shared: { ...upstream(upstreamPort, thinkPath), limits: { concurrency: sharedConcurrency } },
      ...Object.fromEntries(targetPorts.map((port, i) => [`target-${i}`, {
        ...upstream(port),
        timeouts: { first_byte: `${outageTimes.first_byte}ms` },
        breaker: { window: `${outageTimes.window}ms`, open: `${outageTimes.open}ms`,
          max_open: `${outageTimes.max_open}ms` }
      }]))
    },
    models: [model(publicModel, ['bench']), model(sharedModel, ['shared']),
      model(outageModel, targetPorts.map((_, i) => `target-${i}`))],
    accounts: secrets.map((_, i) => ({ id: `bench-${i}`, name: 'Bench', opening_balance_usd: 1_000_000 })),
    // The limits are counted, and never reached: 0 would take their work out of the measurement.
    keys: secrets.map((secret, i) => ({
      id: `bench-${i}`,
      account: `bench-${i}`,
      secret,
      ...(isLimited && { rate_limit: 1_000_000_000, concurrency: 100_000 })
    }))
  }))
  return file
}

function upstream (port: number, path = ''): object {
  return { url: `http://127.0.0.1:${port}${path}`, dialect: 'messages', headers: { 'x-api-key': 'bench' } }
}

function model (id: string, upstreams: readonly string[]): object {
  return {
    id,
    name: 'Bench',
    provider: 'bench',
    kind: 'text',
    created: '2025-09-29',
    context: 2 * MOST_TOKENS,
    max_output: MOST_TOKENS,
    accepts: ['text', 'image'],
    channels: { premium: {
      enabled: true,
      price: { input: 3, output: 15, cache_read: 0.30, cache_write: 3.75 },
      targets: upstreams.map((name) => ({ upstream: name, model: upstreamModel, weight: 1 }))
    } }
  }
}
