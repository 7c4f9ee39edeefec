// A real Exchange on a real Snapshot, without sockets: for tests of plugins and of what watches exchanges.
import { Writable } from 'node:stream'
import { scratchSeals } from '../../src/base/seals.ts'
import { createLogger } from '../../src/telemetry/log.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import type { AccountConfig, Config, KeyConfig, ModelConfig, UpstreamConfig } from '../../src/config/config.ts'
import { Snapshot } from '../../src/gateway/snapshot.ts'
import { endpoints } from '../../src/endpoints/index.ts'
import type { LeasedSnapshot, Routed } from '../../src/core/endpoint.ts'
import { Exchange, type ClientRequest } from '../../src/core/exchange.ts'
import { scratchFiles } from '../../src/media/open.ts'
import { ApiKey, Model, Plan } from '../../src/core/facts.ts'
import { Overheads } from '../../src/tokens/overheads.ts'
import { TokenRates } from '../../src/tokens/rates.ts'
import type { Plugin } from '../../src/core/plugin.ts'
import type { Upstream } from '../../src/core/upstream.ts'
import { createRequestId } from '../../src/base/request-id.ts'
import { Directory } from '../../src/accounts/directory.ts'
import type { GatewayServices } from '../../src/gateway/services.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import { SealedResponses } from '../../src/store/sealed-responses.ts'
import { Upstreams } from '../../src/upstream/pool.ts'
import { backgroundServices } from '../../src/gateway/background.ts'

export const SECRET = 'sk-gw-0123456789abcdefghijABCDEFGHIJkl'

export function account (more: Partial<AccountConfig> = {}): AccountConfig {
  return { id: 'acme', name: 'Acme', opening_balance_usd: '25', allow_fallback: true, suspended: false, ...more }
}

export function key (more: Partial<KeyConfig> = {}): KeyConfig {
  return { id: 'acme-dev', account: 'acme', secret: SECRET, frozen: false, streaming: true, routing_mode: 'premium',
    channels: ['premium', 'cheap'], ...more }
}

export function upstreamConfig (more: Partial<UpstreamConfig> = {}): UpstreamConfig {
  return {
    url: 'http://127.0.0.1:9',
    dialect: 'messages',
    count_tokens: false,
    links: 'pass',
    headers: {},
    timeouts: { connect: 1000, first_byte: 1000, idle: 1000, usage: 1000, websocket_idle: 1000,
      connection_age: 1000, total: 60_000 },
    retries: { attempts: 0, backoff: 1, max_backoff: 10, budget: 100 },
    breaker: { failures: 1000, ratio: 100, window: 10_000, open: 1000, max_open: 1000 },
    trace: false,
    maintenance: false,
    http2: 'off',
    ...more
  }
}

/** @param channels name to targets `upstream/model*weight`; a leading "!" switches the channel off */
export function model (
  id: string,
  channels: Readonly<Record<string, string>>,
  more: Partial<ModelConfig> = {}
): ModelConfig {
  return {
    id,
    name: id.toUpperCase(),
    provider: 'anthropic',
    kind: 'text',
    created: '2025-09-29',
    over_max_output: 'refuse',
    sampling: true,
    thinking: 'none',
    structured_outputs: false,
    mid_system: false,
    auto_cache: true,
    accepts: ['text'],
    maintenance: false,
    channels: Object.fromEntries(Object.entries(channels).map(([name, text]) => [name, {
      enabled: !text.startsWith('!'),
      maintenance: false,
      sticky: false,
      price: { input: '3', output: '15' },
      targets: text.replace('!', '').split(' ').map((target) => {
        const [, upstream, upstreamModel, weight] = /^(\w+)\/([\w-]+)\*(\d+)$/.exec(target)!
        return { upstream: upstream!, model: upstreamModel!, weight: Number(weight), priority: 0 }
      })
    }])),
    ...more
  }
}

export function config (more: Partial<Config> = {}): Config {
  const listener = { listen: '127.0.0.1:0' }
  return {
    server: {
      workers: 1,
      api: { ...listener,
        timeouts: { headers: 10_000, body_idle: 15_000, write_stall: 60_000, hold_head: 10_000, ping: 15_000 } },
      public: { ...listener, docs: false, link_life: 86_400_000, link_space: 10_737_418_240 },
      admin: { ...listener, token: 'admin-token', hosts: [] },
      seal_secrets: [],
      trusted_proxies: [],
      body_limit: 33_554_432,
      body_memory: 536_870_912,
      body_disk: 4_294_967_296,
      body_rate: 512,
      fast_lane: 'on',
      overload: { event_loop_delay: 500, memory: 90 },
      drain_delay: 0,
      drain_timeout: 30_000
    },
    store: { driver: 'memory', path: './data', fsync_interval: 100, windows: 'full', prefix: 'gateway', timeout: 250,
      verify_interval: 0, on_outage: { auth: 'deny', limits: 'deny', money: 'deny', lease_usd: '1' } },
    log: { level: 'info', format: 'json', requests: { keep: 0, max_age: 60_000, max_size: 1_048_576 } },
    videos: { poll_interval: 5000, poll_concurrency: 20, max_age: 86_400_000, lost_after: 600_000,
      file_life: 86_400_000, keep: 1_728_000_000 },
    hook_timeout: 5000,
    pipeline: [],
    upstreams: {},
    models: [],
    aliases: [],
    routes: [],
    accounts: [account()],
    keys: [key()],
    ...more
  }
}

export interface TestServices extends GatewayServices {
  /** what was logged, parsed */
  readonly lines: readonly Readonly<Record<string, unknown>>[]
  /** keeps none */
  readonly requests: { note (): void }
}

export function services (now: () => number = Date.now): TestServices {
  const lines: Record<string, unknown>[] = []
  const log = createLogger('trace', new Writable({ write (chunk: Buffer, _encoding, done) {
    lines.push(JSON.parse(String(chunk)) as Record<string, unknown>)
    done()
  } }))
  const [store, metrics, seals] = [new MemoryStore(now), createMetrics(now), scratchSeals()]
  return { log, metrics, store, ...backgroundServices(store, { log, metrics, now }),
    directory: new Directory(new MemoryStore(), now), upstreams: new Upstreams(undefined, now), ...scratchFiles(now),
    seals, responses: new SealedResponses(store.responses, seals, log, now), tokenRates: new TokenRates(),
    overheads: new Overheads(), addresses: { api: '', public: '' }, now, lines, requests: { note () {} } }
}

/** @param plugins with their options in the pipeline, `{}` if it names none */
export function snapshot (of: Config, plugins: readonly Plugin[] = [], own: GatewayServices = services()): Snapshot {
  const pipeline = plugins.map((plugin, i) => of.pipeline[i] ?? { use: plugin.name, with: {} })
  return new Snapshot({ config: { ...of, pipeline }, generation: 7, plugins, endpoints, services: own })
}

export function exchange (on: LeasedSnapshot, received: Partial<ClientRequest> = {}): Routed {
  const request = { method: 'POST', path: '/v1/messages', query: '', headers: {}, address: '127.0.0.1', ...received }
  const route = on.routes.find(request.method, request.path)
  if (route === undefined) throw new Error(`no route takes ${request.method} ${request.path}`)
  return new Exchange(createRequestId(), route, request, on, on.ledger)
}

/** With what auth and the core would have written by now. */
export function asking (
  on: LeasedSnapshot,
  modelId: string,
  more: { readonly key?: Partial<KeyConfig>, readonly account?: Partial<AccountConfig> } = {}
): Routed {
  const made = exchange(on)
  made.set(ApiKey, { key: key(more.key), account: account(more.account) })
  made.set(Model, on.models.get(modelId)!)
  return made
}

/** The upstream of an exchange whose configuration has but one. */
export function upstreamOf (of: Exchange): Upstream {
  const [only] = of.snapshot.upstreams.values()
  return only!
}

/** Runs what plugins do before an upstream is asked, as the core does. */
export async function ask (of: Routed): Promise<void> {
  for (const { call } of of.route.hooks.onHead) await call(of)
  for (const { call } of of.route.hooks.onRequest) await call(of)
}

export function planOf (of: Routed): string {
  return of.get(Plan).attempts.map(({ upstream, model: name, channel }) => `${channel}:${upstream}/${name}`).join(' ')
}
