// The warm-up: requests of the gateway to itself before it says that it is ready, so that V8 has compiled the way of a
// request before clients take it. They run on a gateway beside the real one, in this process: with its plugins, styles
// and dialects, but with a store, a log, metrics, upstreams and listeners of its own, which are thrown away. So no
// ledger, no count, no line and no vendor ever hears of them.
import { type AddressInfo, connect } from 'node:net'
import { Directory } from '../accounts/directory.ts'
import { newKeySecret } from '../accounts/key-secret.ts'
import { scratchSeals } from '../base/seals.ts'
import { startTimer } from '../base/timer.ts'
import type { Config, ModelConfig, UpstreamConfig } from '../config/config.ts'
import type { Plugin } from '../core/plugin.ts'
import { endpoints } from '../endpoints/index.ts'
import { GatewayServer } from '../http/server.ts'
import { scratchFiles } from '../media/open.ts'
import { styles } from '../protocols/index.ts'
import { scratchStore } from '../store/open.ts'
import { SealedResponses } from '../store/sealed-responses.ts'
import { createLogger } from '../telemetry/log.ts'
import { createMetrics } from '../telemetry/metrics.ts'
import { RequestLog } from '../telemetry/requests/request-log.ts'
import { MemoryFiles } from '../telemetry/requests/segments.ts'
import { Overheads } from '../tokens/overheads.ts'
import { TokenRates } from '../tokens/rates.ts'
import { dialects } from '../upstream/dialects/index.ts'
import type { Sample } from '../upstream/dialects/sample.ts'
import { Upstreams } from '../upstream/pool.ts'
import { backgroundServices } from './background.ts'
import { creditOpenings } from './opening-balances.ts'
import { isWhole, startVendor } from './warm-up-vendor.ts'
import type { GatewayServices } from './services.ts'
import { Snapshot } from './snapshot.ts'

/**
 * Requests: a client's first costs 4 ms then, and not 25, the next hundred a tenth more than all later ones, and not
 * twice as much (measured). Three times as many gain nothing that could be told from noise.
 */
const MOST = 1000
const MOST_MS = 2000
/**
 * As many as make tables of what is under way grow: else V8 compiles functions for tables that never do, and throws
 * them away when the first clients come (measured: a third of what their first hundred requests cost).
 */
const CONNECTIONS = 24
const NAME = 'warm-up'

export interface WarmUpOptions {
  /** the live one */
  readonly config: Config
  readonly shipped: ReadonlyMap<string, Plugin>
  readonly log: { info (fields: object, message: string): void }
  /** asked before each request: false ends the warm-up */
  readonly isWanted: () => boolean
  /** milliseconds after which no request is begun; after twice as many one that hangs is cut */
  readonly mostMs?: number
}

/** Runs in the background until it is enough, takes too long, or is not wanted any more. */
export class WarmUp {
  readonly #cut = new AbortController()
  readonly #over: Promise<void>
  #isOver = false

  constructor ({ config, shipped, log, isWanted, mostMs = MOST_MS }: WarmUpOptions) {
    const begin = performance.now()
    const passed = (): number => performance.now() - begin
    const patience = setTimeout(() => { this.#cut.abort() }, 2 * mostMs)
    const goesOn = (done: number): boolean => done < MOST && passed() < mostMs && isWanted()
    this.#over = warmUp(config, shipped, goesOn, this.#cut.signal).then((requests) => {
      if (requests > 0) log.info({ requests, duration_ms: Math.round(passed()) }, 'warmed up')
    }, (err: unknown) => {
      log.info({ err }, 'the warm-up failed: the first requests will take longer')
    }).finally(() => {
      clearTimeout(patience)
      this.#isOver = true
    })
  }

  get isOver (): boolean {
    return this.#isOver
  }

  /** Ends it at once. */
  async end (): Promise<void> {
    this.#cut.abort()
    await this.#over
  }
}

/** @returns how many requests were answered @throws {Error} one was not answered well */
async function warmUp (
  live: Config, shipped: ReadonlyMap<string, Plugin>, goesOn: (done: number) => boolean, cut: AbortSignal
): Promise<number> {
  const parts = partsOf(live)
  if (parts.length === 0) return 0
  const ends: (() => unknown)[] = []
  try {
    const ports: number[] = []
    for (const { sample } of parts) {
      const vendor = await startVendor(sample)
      ends.push(() => vendor.close())
      ports.push((vendor.address() as AddressInfo).port)
    }
    const config = configOf(live, parts, ports, shipped)
    const { store, ...services } = ownServices(live)
    ends.push(async () => { await services.upstreams.destroy() }, async () => { await services.requests.close() })
    const snapshot = new Snapshot({ config, generation: 1, plugins: config.pipeline.map(({ use }) => shipped.get(use)!),
      shipped, endpoints, services: { ...services, store } })
    ends.push(() => { snapshot.retire() })
    await creditOpenings(config.accounts, store)
    const server = new GatewayServer(config.server, () => snapshot, services, () => {}, () => () => {})
    ends.push(async () => { await server.stop() })
    const { api } = await server.listen(['api'])
    return await ask(Number(new URL(api).port), requestsFor(config, snapshot), goesOn, cut)
  } finally {
    for (const end of ends.reverse()) await end()
  }
}

function ownServices (
  { log: { level, requests: kept }, server: { fast_lane: lane }, upstreams: real }: Config
): GatewayServices & { readonly requests: RequestLog } {
  const [now, store, metrics, seals] = [Date.now, scratchStore(), createMetrics(Date.now, false), scratchSeals()]
  const log = createLogger(level, { write () {} })
  const requests = new RequestLog({ files: new MemoryFiles(), most: MOST, log, timer: startTimer })
  requests.configure(kept)
  const upstreams = new Upstreams()
  // Where one of the real ones is asked through undici, that is what warms up: it takes longest.
  upstreams.fastLane = lane === 'on' && Object.values(real).every(({ url, proxy }) =>
    new URL(url).protocol !== 'https:' && proxy === undefined)
  return { log, metrics, store, ...backgroundServices(store, { log, metrics, now }), requests,
    directory: new Directory(store, now), upstreams, ...scratchFiles(now), seals,
    responses: new SealedResponses(store.responses, seals, log, now), tokenRates: new TokenRates(),
    overheads: new Overheads(), addresses: { api: '', public: '' }, now }
}

/** A dialect in use, with a model and an upstream of it. */
interface Part {
  readonly model: ModelConfig
  readonly upstream: UpstreamConfig
  readonly sample: Sample
}

function partsOf ({ models, upstreams }: Config): Part[] {
  const parts = new Map<string, Part>()
  for (const model of models) {
    for (const { upstream: name } of Object.values(model.channels).flatMap(({ targets }) => targets)) {
      const upstream = upstreams[name]!
      const { sample } = dialects[upstream.dialect]
      if (sample !== undefined && !parts.has(upstream.dialect)) parts.set(upstream.dialect, { model, upstream, sample })
    }
  }
  return [...parts.values()]
}

/** The live configuration with these parts alone: without secrets, and without plugins of users. */
function configOf (
  live: Config, parts: readonly Part[], ports: readonly number[], shipped: ReadonlyMap<string, Plugin>
): Config {
  const { default_model: _default, demo_off: _demo, ...rest } = live
  const names = parts.map((_part, i) => `${NAME}-${i}`)
  return {
    ...rest,
    server: { ...live.server, api: { ...live.server.api, listen: '127.0.0.1:0' } },
    pipeline: live.pipeline.filter(({ use }) => shipped.has(use)),
    upstreams: Object.fromEntries(parts.map(({ upstream }, i) => {
      const { credentials: _credentials, limits: _limits, tls: _tls, proxy: _proxy, ...others } = upstream
      return [names[i]!,
        { ...others, url: `http://127.0.0.1:${ports[i]!}`, headers: {}, http2: 'off', maintenance: false }]
    })),
    // Without a family, whose limit would refuse most of it.
    models: parts.map(({ model: { family: _family, ...model } }, i) => ({
      ...model, id: names[i]!, context: 100_000, max_output: 1000, maintenance: false,
      channels: { premium: { enabled: true, maintenance: false, sticky: false, price: { input: '1', output: '1' },
        targets: [{ upstream: names[i]!, model: NAME, weight: 1, priority: 0 }] } }
    })),
    aliases: [],
    routes: [],
    accounts: [{ id: NAME, name: NAME, opening_balance_usd: '1000000', allow_fallback: true, suspended: false }],
    keys: [{ id: NAME, account: NAME, secret: newKeySecret(live), frozen: false, streaming: true,
      routing_mode: 'premium', channels: ['premium'], rate_limit: 1_000_000_000, concurrency: 1_000_000 }]
  }
}

/** One of each kind, by style, dialect, and whether it streams. */
function requestsFor ({ models, keys }: Config, { routes }: Snapshot): Buffer[] {
  return styles.flatMap(({ endpoint: { match }, conversation, outputLimits: [limit] }) => {
    const [method, path] = match.split(' ') as [string, string]
    if (routes.find(method, path)?.endpoint.kind !== 'model') return []
    return models.flatMap(({ id: model }) => [false, true].map((stream) => {
      const body = JSON.stringify({ model, stream, [limit!]: 100, temperature: 0.5,
        [conversation]: [{ role: 'user', content: 'This is only a warm-up. '.repeat(40) }] })
      return Buffer.from(`${method} ${path} HTTP/1.1\r\nhost: ${NAME}\r\nx-api-key: ${keys[0]!.secret}\r\n` +
        `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`)
    }))
  })
}

/** Each connection has a request under way. @returns how many were answered until they did not go on, or were cut */
async function ask (
  port: number, requests: readonly Buffer[], goesOn: (done: number) => boolean, cut: AbortSignal
): Promise<number> {
  let done = 0
  let next = 0
  await Promise.all(Array.from({ length: CONNECTIONS }, async () => await new Promise<void>((resolve, reject) => {
    const socket = connect(port, '127.0.0.1')
    const end = (): void => { socket.destroy() }
    let text = ''
    const send = (): void => {
      text = ''
      if (cut.aborted || !goesOn(done)) end()
      else socket.write(requests[next++ % requests.length]!)
    }
    cut.addEventListener('abort', end)
    socket.setEncoding('latin1').on('connect', send).on('error', reject).on('close', () => { resolve() })
    socket.on('data', (chunk: string) => {
      text += chunk
      if (!isWhole(text)) return
      if (!text.startsWith('HTTP/1.1 200 ')) { end(); reject(new Error(text)); return }
      done++
      send()
    })
  })))
  return done
}
