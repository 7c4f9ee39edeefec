// Who is compared, and how each is started: direct, bare http-proxy-3, bare undici translation, and the gateway with either store.
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { connect, createServer, type AddressInfo } from 'node:net'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parse, stringify } from 'yaml'
import { startChild, type Child } from './children.ts'
import { sleep } from './load.ts'
import { apiKey, publicModel, upstreamModel } from './payloads.ts'

export const contenderNames = ['direct', 'http-proxy-3', 'undici', 'gateway', 'embedded'] as const
export type ContenderName = typeof contenderNames[number]

export interface Instance {
  readonly name: ContenderName
  readonly port: number
  /** absent for direct, which has no process between */
  readonly child?: Child
}

export interface LaunchOptions {
  readonly upstreamPort: number
  /** temporary: configs, logs, data */
  readonly folder: string
  readonly isPinned: boolean
  readonly collectsGarbage?: boolean
  readonly profileFolder?: string
}

const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url))
const launcher = fileURLToPath(new URL('../../src/gateway.js', import.meta.url))
const shippedConfig = new URL('../../gateway.yaml', import.meta.url)

/** @returns why this one can't run, or undefined */
export function whatIsMissing (name: ContenderName): string | undefined {
  return isGateway(name) && !(existsSync(launcher) && existsSync(main)) ? 'not built yet' : undefined
}

/** With the memory store, or with the embedded one. */
export function isGateway (name: ContenderName): boolean {
  return name === 'gateway' || name === 'embedded'
}

let launches = 0

export async function launch (name: ContenderName, options: LaunchOptions): Promise<Instance> {
  const { upstreamPort, isPinned, profileFolder } = options
  if (name === 'direct') return { name, port: upstreamPort }
  const folder = mkdtempSync(join(options.folder, `${name}-`))
  const logFile = join(folder, 'log')
  const [port, publicPort, adminPort] = await Promise.all([freePort(), freePort(), freePort()])
  const args = isGateway(name)
    ? [launcher, 'start', '--config', writeConfig(folder, { api: port, public: publicPort, admin: adminPort }, upstreamPort, name === 'embedded' ? 'embedded' : 'memory')]
    : [fileURLToPath(new URL(name === 'undici' ? 'translation.ts' : 'pass-through.ts', import.meta.url)), String(port), String(upstreamPort)]
  const child = startChild({
    args, cwd: folder, logFile, isPinned,
    ...(options.collectsGarbage === true && { collectedFile: join(folder, 'collected') }),
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

async function freePort (): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  await once(server.close(), 'close')
  return port
}

/** Our upstream, one model, one key, much money, and the pipeline that ships. */
function writeConfig (folder: string, ports: Readonly<Record<'api' | 'public' | 'admin', number>>, upstreamPort: number, driver: 'memory' | 'embedded'): string {
  const shipped = existsSync(shippedConfig) ? (parse(readFileSync(shippedConfig, 'utf8')) as { pipeline?: unknown }).pipeline : undefined
  const pipeline = shipped ?? ['auth', 'channel-router', 'billing-meter', 'error-normalize']
  const isLimited = JSON.stringify(pipeline).includes('rate-limit')
  const file = join(folder, 'gateway.yaml')
  writeFileSync(file, stringify({
    server: {
      api: { listen: `127.0.0.1:${ports.api}` }, public: { listen: `127.0.0.1:${ports.public}` }, admin: { listen: `127.0.0.1:${ports.admin}` }
    },
    store: { driver, path: './data' },
    log: { level: 'info' },
    pipeline,
    upstreams: { bench: { url: `http://127.0.0.1:${upstreamPort}`, dialect: 'messages', headers: { 'x-api-key': 'bench' } } },
    models: [{
      id: publicModel, name: 'Bench', provider: 'bench', kind: 'text', created: '2025-09-29', context: 200_000, max_output: 64_000, accepts: ['text', 'image'],
      channels: { premium: {
        enabled: true,
        price: { input: 3, output: 15, cache_read: 0.30, cache_write: 3.75 },
        targets: [{ upstream: 'bench', model: upstreamModel, weight: 1 }]
      } }
    }],
    accounts: [{ id: 'bench', name: 'Bench', opening_balance_usd: 1_000_000 }],
    // The limits are counted, and never reached: 0 would take their work out of the measurement.
    keys: [{ id: 'bench', account: 'bench', secret: apiKey, ...(isLimited && { rate_limit: 1_000_000_000, concurrency: 100_000 }) }]
  }))
  return file
}
