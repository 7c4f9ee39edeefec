// Metrics for Prometheus. Recording is map lookups and additions: 0.5 µs for a whole request, where prom-client hashes
// labels for 1 to 3 µs at each of its ten calls. Printing yields to requests: prom-client's would block the event loop
// for 0.4 s with 1,000 models (both measured). Only the metrics of the process are prom-client's own.
import { collectDefaultMetrics, Registry } from 'prom-client'
import type { Config } from '../config/config.ts'
import { modalities } from '../config/sections/modalities.ts'
import { catalogue } from '../errors.ts'
import type { Nanos } from '../money/nanos.ts'
import type { ExchangeRecord } from '../core/record.ts'
import type { Metrics as CoreMetrics } from '../core/services.ts'
import { type Count, counters, type Distribution, histograms, LIMIT, OTHER } from './families.ts'
import { type Gauge, MANY, printGauge, printMany, type Sample, WATCHED, type Watched,
  type WatchedMany } from './gauges.ts'

/** The fields of a finished exchange that metrics count. */
export type Finished = Readonly<Pick<ExchangeRecord, 'route' | 'status' | 'code' | 'outcome' | 'by' | 'model'
  | 'provider' | 'kind' | 'channel' | 'upstream' | 'stream' | 'nanos' | 'usage' | 'first_byte_ms' | 'duration_ms'
  | 'own_ms'>>

/**
 * The end of a video task. `lost`: its upstream does not know it any more; `unknown`: no upstream could tell in time.
 * Only `completed` is charged.
 */
export type VideoEnd = 'completed' | 'failed' | 'lost' | 'unknown'

/** All recording: that of the core, and that of this process. */
export interface Metrics extends CoreMetrics {
  /** An exchange began; `record` ends it. */
  begin (): void
  record (finished: Finished): void
  /** A worker has ended and is started again. */
  workerRestarted (): void
  /** A video task is over. */
  videoEnded (end: VideoEnd, model: string, channel: string, charged: Nanos): void
  /** A configuration went live. Forgets the series of what it no longer has. */
  configLive (generation: number, config: Config): void
  configRefused (): void
  watch (name: Watched, read: () => number | Promise<number>): void
  watchMany (name: WatchedMany, read: () => Iterable<Sample>): void
  readonly contentType: string
  /** the exposition, as Prometheus scrapes it */
  print (): Promise<string>
}

const UNKNOWN = 'unknown'

/** Labels with few values begin with all of them: `increase()` does not see the first event of a new series. */
const REJECTIONS = ['admin_token', 'bad_request', 'expectation_failed', 'headers_too_large', 'invalid_request',
  'method_not_allowed', 'not_found', 'overloaded',
  'request_timeout'] as const satisfies readonly (keyof typeof catalogue | 'admin_token' | 'overloaded')[]
const FAILURES = (Object.keys(catalogue) as (keyof typeof catalogue)[]).filter((row) => 'retryable' in catalogue[row])
const ATTEMPT_ENDS = ['ok', 'client_closed', 'stream_incomplete', 'upstream_stream_interrupted', ...FAILURES]
const CLASSES = ['input', 'cache_read', 'cache_write_5m', 'cache_write_1h', 'output'] as const
const VIDEO_ENDS: readonly VideoEnd[] = ['completed', 'failed', 'lost', 'unknown']

/** Buckets of the OpenTelemetry conventions for GenAI. */
const DURATION_S = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
const FIRST_TOKEN_S = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]
const OVERHEAD_S = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1]

/** All families counted here, in the order in which they are printed. */
function createFamilies () {
  return {
    requests: counters(
      'gateway_requests_total',
      'Requests that are over, by the code that the client read ("ok": none).',
      ['route', 'model', 'channel'],
      ['status', 'code']
    ),
    durations: histograms(
      'gen_ai_server_request_duration_seconds',
      'From the arrival of a request to the last byte of its answer.',
      DURATION_S,
      ['gen_ai_provider_name', 'gen_ai_request_model'],
      ['gen_ai_operation_name', 'error_type']
    ),
    firstTokens: histograms(
      'gen_ai_server_time_to_first_token_seconds',
      'From the arrival of a streaming request to the first byte of its answer.',
      FIRST_TOKEN_S,
      ['gen_ai_provider_name', 'gen_ai_request_model'],
      ['gen_ai_operation_name']
    ),
    tokenUsage: histograms(
      'gen_ai_client_token_usage',
      'Tokens of one charged request; input with all that was read from or written to a cache.',
      TOKENS,
      ['gen_ai_provider_name', 'gen_ai_request_model'],
      ['gen_ai_operation_name', 'gen_ai_token_type']
    ),
    tokens: counters('gateway_tokens_total', 'Charged tokens, each in exactly one class.', ['model'], ['class']),
    overheads: histograms('gateway_own_overhead_seconds',
      'The gateway\'s own part of a request: neither the client\'s sending nor the upstream.', OVERHEAD_S, ['route'], []),
    attempts: counters('gateway_upstream_attempts_total',
      'Attempts that are over, by upstream and outcome ("ok", or the code of the error).', ['upstream'], ['outcome']),
    charged: counters('gateway_charged_nanodollars_total', 'What clients were charged.', ['model', 'channel'], []),
    shortfalls: counters('gateway_shortfall_nanodollars_total',
      'What answers cost beyond their holds: the operator\'s loss.', [], []),
    rejections: counters('gateway_rejected_total', 'Requests that never reached the pipeline.', [], ['reason']),
    videos: counters('gateway_videos_ended_total',
      'Video tasks that are over; only completed ones are charged. "unknown": nobody could tell in time; ' +
      'the provider may charge for it.',
      ['model', 'channel'], ['end']),
    retries: counters('gateway_upstream_retries_total',
      'Requests that were sent to the same target again, by the error before it ("credential": with another credential).',
      ['upstream'], ['reason']),
    queueWaits: histograms('gateway_upstream_queue_wait_seconds',
      'How long requests waited that had to wait for a place at an upstream, and got one.', DURATION_S, ['upstream'], []),
    queueRefusals: counters('gateway_upstream_queue_refused_total',
      'Times that an upstream had no place for a request, and no room to wait or no patience; ' +
      'another may have served it.',
      ['upstream'], ['reason']),
    hookTimeouts: counters('gateway_hook_timeouts_total',
      'Hooks of plugins that took longer than hook_timeout.', ['plugin'], []),
    workerRestarts: counters('gateway_worker_restarts_total',
      'Workers that have ended and were started again (server.workers).', [], []),
    reloads: counters('gateway_config_reloads_total',
      'Configurations that were tried after the first.', [], ['result'])
  } as const
}

type Families = ReturnType<typeof createFamilies>

interface ConfigState {
  generation: number
  /** 1 or 0 */
  isLastLive: number
  liveAt: number
}

/** Gauges of this process. */
function ownGauges (config: ConfigState, inFlight: () => number): readonly Gauge[] {
  return [
    { name: 'gateway_requests_in_flight', help: 'Requests that have arrived and are not over.', read: inFlight },
    { name: 'gateway_config_generation', help: 'The configuration that new requests get.',
      read: () => config.generation },
    { name: 'gateway_config_last_reload_success',
      help: '1: the last configuration that was tried went live. 0: it was refused, the one before it works on.',
      read: () => config.isLastLive },
    { name: 'gateway_config_last_reload_timestamp_seconds', help: 'When the last configuration went live.',
      read: () => config.liveAt / 1000 }
  ]
}

/** @param now milliseconds since the epoch */
export function createMetrics (now: () => number = Date.now): Metrics {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })

  const families = createFamilies()
  const { tokens, attempts, charged, shortfalls, rejections, videos, retries, queueWaits, queueRefusals, hookTimeouts,
    workerRestarts, reloads } = families
  const all = Object.values(families)

  let inFlight = 0
  const config = { generation: 0, isLastLive: 0, liveAt: 0 }
  const watched = new Map<Watched, () => number | Promise<number>>()
  const watchedMany = new Map<WatchedMany, () => Iterable<Sample>>()
  const gauges: readonly Gauge[] = [
    ...ownGauges(config, () => inFlight),
    ...(Object.keys(WATCHED) as Watched[])
      .map((name) => ({ name, ...WATCHED[name], read: () => watched.get(name)?.() }))
  ]
  shortfalls.start([])
  workerRestarts.start([])
  reloads.start([['live', 'refused']])
  rejections.start([REJECTIONS])

  const bundles = new Bundles(families)

  return {
    begin () { inFlight++ },

    record (finished) {
      inFlight--
      const { requests, overhead, ofModel } = bundles.of(finished)
      requests.value++
      overhead.observe(finished.own_ms / 1000)
      countServed(finished)
      if (ofModel === undefined) return
      ofModel.duration.observe(finished.duration_ms / 1000)
      if (finished.stream === true && finished.outcome !== 'failed' && finished.first_byte_ms !== undefined) {
        ofModel.firstToken.observe(finished.first_byte_ms / 1000)
      }
      if (finished.nanos !== undefined) ofModel.charged.value += Number(finished.nanos)
      if (finished.usage === undefined) return
      const { input, cache_read, cache_write_5m, cache_write_1h, output, extras } = finished.usage
      if ('image' in extras) return                           // without tokens it would count as an empty answer
      ofModel.input.observe(input + cache_read + cache_write_5m + cache_write_1h)
      ofModel.output.observe(output)
      ofModel.classes.input.value += input
      ofModel.classes.cache_read.value += cache_read
      ofModel.classes.cache_write_5m.value += cache_write_5m
      ofModel.classes.cache_write_1h.value += cache_write_1h
      ofModel.classes.output.value += output
    },

    attempt (upstream, outcome) { attempts.cell(upstream, outcome).value++ },
    rejected (reason) { rejections.cell(reason).value++ },
    hookTimeout (plugin) { hookTimeouts.cell(plugin).value++ },
    upstreamRetried (upstream, reason) { retries.cell(upstream, reason).value++ },
    queued (upstream, ms) { queueWaits.cell(upstream).observe(ms / 1000) },
    queueRefused (upstream, reason) { queueRefusals.cell(upstream, reason).value++ },
    videoEnded (end, model, channel, nanos) {
      videos.cell(model, channel, end).value++
      if (nanos > 0n) charged.cell(model, channel).value += Number(nanos)
    },

    workerRestarted () { workerRestarts.cell().value++ },
    shortfall (nanos) { shortfalls.cell().value += Number(nanos) },

    configLive (generation, { models, upstreams, pipeline }) {
      if (config.generation !== 0) reloads.cell('live').value++
      config.generation = generation
      config.isLastLive = 1
      config.liveAt = now()
      const known = { model: new Set([...models.map(({ id }) => id), UNKNOWN, OTHER]),
        upstream: new Set([...Object.keys(upstreams), OTHER]) }
      for (const family of all) {
        family.retain('model', known.model)
        family.retain('gen_ai_request_model', known.model)
        family.retain('upstream', known.upstream)
      }
      bundles.retain(known.model)
      for (const { id, kind, channels } of models) {
        const { item, isTask } = modalities[kind]
        if (item === undefined) tokens.start([[id], CLASSES])
        if (isTask === true) videos.start([[id], Object.keys(channels), VIDEO_ENDS])
        charged.start([[id], Object.keys(channels)])
      }
      const names = Object.keys(upstreams)
      attempts.start([names, ATTEMPT_ENDS])
      retries.start([names, [...FAILURES, 'credential']])
      queueRefusals.start([names, ['queue_full', 'queue_timeout']])
      // A user's own plugin is its file here, and its name is the label.
      hookTimeouts.start([pipeline.flatMap(({ use }) => use.includes('/') ? [] : [use])])
    },

    configRefused () {
      reloads.cell('refused').value++
      config.isLastLive = 0
    },

    watch (name, read) { watched.set(name, read) },
    watchMany (name, read) { watchedMany.set(name, read) },
    contentType: registry.contentType,
    async print () {
      const parts = [await registry.metrics(), ...await Promise.all(gauges.map(printGauge)),
        ...[...watchedMany].map(([name, read]) => printMany(name, MANY[name], read()))]
      for (const family of all) { for await (const part of family.print()) { parts.push(part) } }
      return parts.join('')
    }
  }

  /** Counts the attempt that served, or that the client left; failed attempts were counted when they failed. */
  function countServed ({ upstream, channel, outcome, by, code }: Finished): void {
    if (upstream === undefined || channel === undefined) return
    if (outcome === 'completed') { attempts.cell(upstream, 'ok').value++ }
    else if (by === 'client' || (outcome === 'failed' && code === 'client_closed')) {
      attempts.cell(upstream, 'client_closed').value++
    }
  }
}

type LabelsOf = Pick<Finished, 'route' | 'model' | 'channel' | 'provider' | 'kind' | 'status' | 'code'>

interface Bundle {
  readonly model: string
  readonly requests: Count
  readonly overhead: Distribution
  readonly ofModel?: {
    readonly duration: Distribution
    readonly firstToken: Distribution
    readonly input: Distribution
    readonly output: Distribution
    readonly classes: Readonly<Record<'input' | 'cache_read' | 'cache_write_5m' | 'cache_write_1h' | 'output', Count>>
    readonly charged: Count
  }
}

/** The cells of one kind of request, looked up once. */
class Bundles {
  readonly #families: Families
  readonly #cells = new Map<string, Bundle>()

  constructor (families: Families) {
    this.#families = families
  }

  of (
    { route, model = UNKNOWN, channel = UNKNOWN, provider = UNKNOWN, kind = 'text', status, code }: LabelsOf
  ): Bundle {
    const key = `${route}\n${model}\n${channel}\n${status}\n${code}`
    const known = this.#cells.get(key)
    if (known !== undefined) return known
    if (this.#cells.size >= LIMIT && route !== OTHER) {
      return this.of({ route: OTHER, model: OTHER, channel: OTHER, provider: OTHER, kind, status, code })
    }
    const { operation } = modalities[kind]
    const { requests, overheads, durations, firstTokens, tokenUsage, tokens, charged } = this.#families
    const made: Bundle = {
      model,
      requests: requests.cell(route, model, channel, String(status), code),
      overhead: overheads.cell(route),
      ...(model !== UNKNOWN && {
        ofModel: {
          duration: durations.cell(provider, model, operation, code === 'ok' ? '' : code),
          firstToken: firstTokens.cell(provider, model, operation),
          input: tokenUsage.cell(provider, model, operation, 'input'),
          output: tokenUsage.cell(provider, model, operation, 'output'),
          classes: {
            input: tokens.cell(model, 'input'),
            cache_read: tokens.cell(model, 'cache_read'),
            cache_write_5m: tokens.cell(model, 'cache_write_5m'),
            cache_write_1h: tokens.cell(model, 'cache_write_1h'),
            output: tokens.cell(model, 'output')
          },
          charged: charged.cell(model, channel)
        }
      })
    }
    this.#cells.set(key, made)
    return made
  }

  /** Forgets the cells of models that are gone. */
  retain (models: ReadonlySet<string>): void {
    for (const [key, { model }] of this.#cells) if (!models.has(model)) this.#cells.delete(key)
  }
}
