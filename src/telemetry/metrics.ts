// Metrics for Prometheus. Recording is map lookups and additions: 0.5 µs for a whole request, where prom-client hashes
// labels for 1 to 3 µs at each of its ten calls. Printing yields to requests: prom-client's would block the event loop
// for 0.4 s with 1,000 models (both measured). Only the metrics of the process are prom-client's own.
import { collectDefaultMetrics, Registry } from 'prom-client'
import type { Config } from '../config/config.ts'
import { modalities } from '../config/sections/modalities.ts'
import { targetsIn } from '../config/targets.ts'
import { version } from '../base/package.ts'
import { catalogue } from '../errors.ts'
import { PHASES, type Phase } from '../base/stall-marks.ts'
import type { Nanos } from '../money/nanos.ts'
import type { ExchangeRecord } from '../core/record.ts'
import type { Metrics as CoreMetrics } from '../core/services.ts'
import { DURATION_S, FIRST_TOKEN_S, GEN_AI, GEN_AI_LABELS, OPERATIONS, PER_TOKEN_S, TOKENS } from './conventions.ts'
import { watchEventLoop } from './event-loop-lag.ts'
import { type Count, counters, type Distribution, histograms, LIMIT, OTHER } from './families.ts'
import { type Gauge, MANY, printGauge, printMany, type Sample, WATCHED, type Watched,
  type WatchedMany } from './gauges.ts'
import { Lately, type LatelyView } from './lately.ts'
import type { LoggedRequest } from './requests/line.ts'

/** The fields of a finished exchange that metrics count. */
export type Finished = Readonly<Pick<ExchangeRecord, 'route' | 'status' | 'code' | 'outcome' | 'by' | 'model'
  | 'provider' | 'kind' | 'channel' | 'upstream' | 'stream' | 'nanos' | 'cost' | 'abandoned' | 'usage' | 'first_byte_ms'
  | 'duration_ms' | 'own_ms'> & Partial<Pick<ExchangeRecord, 'key_id'>>>

/**
 * The end of a video task. `lost`: its upstream does not know it any more; `unknown`: no upstream could tell in time.
 * Only `completed` is charged.
 */
export type VideoEnd = 'completed' | 'failed' | 'lost' | 'unknown'

/** Where a charge is counted, and what its answer has cost us; undefined: nobody has said what its target costs. */
export interface Charged {
  readonly model: string
  readonly channel: string
  readonly upstream: string
  readonly nanos: Nanos
  readonly cost: Nanos | undefined
}

/** All recording: that of the core, and that of this process. */
export interface Metrics extends CoreMetrics {
  /** An exchange began; `record` ends it. */
  begin (): void
  record (finished: Finished): void
  /** The event loop was stopped. @param phase what was running */
  stalled (phase: Phase, ms: number): void
  /** A worker has ended and is started again. */
  workerRestarted (): void
  /** A video task is over. */
  videoEnded (end: VideoEnd, charged: Charged): void
  /** What counts the attempts at a target, for as long as the live configuration has it. */
  target (upstream: string, model: string): TargetCounts
  /** All entries of the ledger were added up again. @param differences balances and sums that are wrong */
  verified (differences: number): void
  /** Differences at the last verification; undefined: none has run since the start. */
  ledgerDifferences (): number | undefined
  /** A configuration went live. Forgets the series of what it no longer has. */
  configLive (generation: number, config: Config): void
  /** The plugins of the configuration that went live; it knows a user's own by their files only. */
  pluginsLive (names: readonly string[]): void
  configRefused (): void
  watch (name: Watched, read: () => number | Promise<number>): void
  watchMany (name: WatchedMany, read: () => Iterable<Sample>): void
  readonly contentType: string
  /** the exposition, as Prometheus scrapes it */
  print (): Promise<string>
  /** what the requests of this process came to in the last minutes, and in the last day */
  lately (): LatelyView
  /** Counts a request that a process before this one has served in what `lately` tells. */
  recall (request: LoggedRequest): void
}

export interface TargetCounts {
  /** An attempt's answer has begun: a stream's first content came, or the whole of another answer. */
  answered (ms: number): void
  /** An attempt is over; one that was given up, because its client left, is not counted. */
  done (result: TargetResult): void
}

/** `failed`: by the fault of the target or of its credential. `refused`: by that of the request. */
export type TargetResult = 'ok' | 'failed' | 'refused'

const UNKNOWN = 'unknown'

/** Labels with few values begin with all of them: `increase()` does not see the first event of a new series. */
const REJECTIONS = ['admin_token', 'bad_request', 'expectation_failed', 'headers_too_large', 'invalid_request',
  'method_not_allowed', 'not_found', 'overloaded',
  'request_timeout'] as const satisfies readonly (keyof typeof catalogue | 'admin_token' | 'overloaded')[]
const FAILURES = (Object.keys(catalogue) as (keyof typeof catalogue)[]).filter((row) => 'retryable' in catalogue[row])
const ATTEMPT_ENDS = ['ok', 'client_closed', 'stream_incomplete', 'upstream_stream_interrupted', ...FAILURES]
const RESULTS: readonly TargetResult[] = ['ok', 'failed', 'refused']
const CLASSES = ['input', 'cache_read', 'cache_write_5m', 'cache_write_1h', 'output'] as const
const VIDEO_ENDS: readonly VideoEnd[] = ['completed', 'failed', 'lost', 'unknown']

/** Buckets: seconds. */
const OVERHEAD_S = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1]

const OF_MODEL = [GEN_AI_LABELS.provider, GEN_AI_LABELS.model] as const

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
      GEN_AI.duration,
      'From the arrival of a request to the last byte of its answer.',
      DURATION_S,
      OF_MODEL,
      [GEN_AI_LABELS.operation, GEN_AI_LABELS.errorType]
    ),
    firstTokens: histograms(
      GEN_AI.firstToken,
      'From the arrival of a streaming request to the first byte of its answer.',
      FIRST_TOKEN_S,
      OF_MODEL,
      [GEN_AI_LABELS.operation]
    ),
    perTokens: histograms(
      GEN_AI.perToken,
      'Of a streamed answer that is complete: the time behind its first byte, for each token but the first.',
      PER_TOKEN_S,
      OF_MODEL,
      [GEN_AI_LABELS.operation]
    ),
    tokenUsage: histograms(
      GEN_AI.tokenUsage,
      'Tokens of one charged request; input with all that was read from or written to a cache.',
      TOKENS,
      OF_MODEL,
      [GEN_AI_LABELS.operation, GEN_AI_LABELS.tokenType]
    ),
    tokens: counters('gateway_tokens_total', 'Charged tokens, each in exactly one class.', ['model'], ['class']),
    overheads: histograms('gateway_own_overhead_seconds',
      'The gateway\'s own part of a request: neither the client\'s sending nor the upstream.', OVERHEAD_S, ['route'], []),
    attempts: counters('gateway_upstream_attempts_total',
      'Attempts that are over, by upstream and outcome ("ok", or the code of the error).', ['upstream'], ['outcome']),
    targetAttempts: counters('gateway_target_attempts_total',
      'Attempts that are over, by target; "failed": by its fault or its credential\'s, "refused": by the request\'s.',
      ['upstream', 'model'], ['result']),
    latencies: histograms('gateway_target_latency_seconds',
      'Of attempts that were answered: from their beginning to the first content of a stream, or to a whole answer.',
      DURATION_S, ['upstream', 'model'], []),
    charged: counters('gateway_charged_nanodollars_total', 'What clients were charged.', ['model', 'channel'], []),
    costs: counters('gateway_cost_nanodollars_total',
      'What charged answers cost at their providers, where the target says its cost.',
      ['model', 'channel', 'upstream'], []),
    costed: counters('gateway_costed_charge_nanodollars_total',
      'What clients were charged for these answers: less their cost, it is the margin.',
      ['model', 'channel', 'upstream'], []),
    abandoned: counters('gateway_abandoned_cost_nanodollars_total',
      'What requests have probably cost at their providers whose clients left before the answer began: nobody is ' +
      'charged for them.',
      ['model', 'channel'], []),
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
    stalls: counters('gateway_event_loop_stalls_total',
      'Times that the event loop was stopped for more than 100 ms, by what was running.', [], ['phase']),
    stallSeconds: counters('gateway_event_loop_stall_seconds_total',
      'How long the event loop was stopped in all of them.', [], ['phase']),
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

interface VerifiedState {
  /** undefined: not since the start */
  differences: number | undefined
  at: number
}

/** Gauges of this process. */
function ownGauges (config: ConfigState, ledger: VerifiedState, inFlight: () => number): readonly Gauge[] {
  return [
    { name: 'gateway_build_info', help: 'The version that runs, and that of Node.',
      labels: { version, node: process.versions.node }, read: () => 1 },
    { name: 'gateway_ledger_differences',
      help: 'Balances and sums that are not those of the entries, at the last look (`ledger verify`).',
      read: () => ledger.differences },
    { name: 'gateway_ledger_verified_timestamp_seconds', help: 'When all entries were added up last.',
      read: () => ledger.differences === undefined ? undefined : ledger.at / 1000 },
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

/** Gauges of prom-client that are called counters; each has another one that tells the same by type. */
const MISNAMED = ['nodejs_active_handles_total', 'nodejs_active_requests_total', 'nodejs_active_resources_total']
/** Milliseconds between two looks of prom-client at the event loop: none that matters, event-loop-lag.ts looks. */
const NEVER = 2 ** 31 - 1

/**
 * @param now milliseconds since the epoch
 * @param isOfProcess false: without those of the process, which are watched for as long as it lives
 */
export function createMetrics (now: () => number = Date.now, isOfProcess = true): Metrics {
  const registry = new Registry()
  const lags = isOfProcess ? watchEventLoop() : []
  if (isOfProcess) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER })
    for (const name of [...MISNAMED, ...lags.map((lag) => lag.name)]) registry.removeSingleMetric(name)
  }

  const families = createFamilies()
  const { tokens, attempts, targetAttempts, latencies, charged, costs, costed, abandoned, shortfalls, rejections,
    videos, retries, queueWaits, queueRefusals, hookTimeouts, stalls, stallSeconds, workerRestarts, reloads } = families
  const all = Object.values(families)
  /** their models are those of the upstreams */
  const byTarget: ReadonlySet<unknown> = new Set([targetAttempts, latencies])

  const lately = new Lately(now)
  let inFlight = 0
  const config = { generation: 0, isLastLive: 0, liveAt: 0 }
  const ledger: VerifiedState = { differences: undefined, at: 0 }
  const watched = new Map<Watched, () => number | Promise<number>>()
  const watchedMany = new Map<WatchedMany, () => Iterable<Sample>>()
  const gauges: readonly Gauge[] = [
    ...lags,
    ...ownGauges(config, ledger, () => inFlight),
    ...(Object.keys(WATCHED) as Watched[])
      .map((name) => ({ name, ...WATCHED[name], read: () => watched.get(name)?.() }))
  ]
  shortfalls.start([])
  reloads.start([['live', 'refused']])
  for (const family of [stalls, stallSeconds]) family.start([PHASES])
  rejections.start([REJECTIONS])

  const bundles = new Bundles(families)
  /** of `attempts`, by upstream, for as long as the family has them */
  const answers = new Map<string, Count>()

  return {
    begin () { inFlight++ },

    record (finished) {
      inFlight--
      lately.record(finished)
      const { nanos, cost, usage, upstream } = finished
      const bundle = bundles.of(finished)
      const { requests, overhead, duration, ofText } = bundle
      requests.value++
      overhead.observe(finished.own_ms / 1000)
      countServed(finished)
      duration?.observe(finished.duration_ms / 1000)
      if (nanos !== undefined) {
        bundle.charged ??= charged.cell(bundle.model, bundle.channel)
        bundle.charged.value += Number(nanos)
        const { model, channel } = bundle
        if (cost !== undefined) countCost({ model, channel, upstream: upstream ?? UNKNOWN, nanos, cost })
      }
      if (finished.abandoned !== undefined) {
        abandoned.cell(bundle.model, bundle.channel).value += Number(finished.abandoned)
      }
      if (ofText === undefined) return
      const { first_byte_ms: firstByte } = finished
      const isStream = finished.stream === true && firstByte !== undefined
      if (isStream && finished.outcome !== 'failed') ofText.firstToken.observe(firstByte / 1000)
      if (usage === undefined) return
      const { input, cache_read, cache_write_5m, cache_write_1h, output } = usage
      if (isStream && finished.outcome === 'completed' && output > 1) {
        ofText.perToken.observe((finished.duration_ms - firstByte) / 1000 / (output - 1))
      }
      ofText.input.observe(input + cache_read + cache_write_5m + cache_write_1h)
      ofText.output.observe(output)
      ofText.classes.input.value += input
      ofText.classes.cache_read.value += cache_read
      ofText.classes.cache_write_5m.value += cache_write_5m
      ofText.classes.cache_write_1h.value += cache_write_1h
      ofText.classes.output.value += output
    },

    attempt (upstream, outcome) { attempts.cell(upstream, outcome).value++ },
    rejected (reason) { rejections.cell(reason).value++ },
    stalled (phase, ms) {
      stalls.cell(phase).value++
      stallSeconds.cell(phase).value += ms / 1000
    },
    hookTimeout (plugin) { hookTimeouts.cell(plugin).value++ },
    upstreamRetried (upstream, reason) { retries.cell(upstream, reason).value++ },
    queued (upstream, ms) { queueWaits.cell(upstream).observe(ms / 1000) },
    queueRefused (upstream, reason) { queueRefusals.cell(upstream, reason).value++ },
    videoEnded (end, video) {
      videos.cell(video.model, video.channel, end).value++
      if (video.nanos > 0n) charged.cell(video.model, video.channel).value += Number(video.nanos)
      countCost(video)
    },
    target (upstream, model) {
      const latency = latencies.cell(upstream, model)
      const [ok, failed, refused] = RESULTS.map((result) => targetAttempts.cell(upstream, model, result))
      const results = { ok: ok!, failed: failed!, refused: refused! }
      return {
        answered (ms) { latency.observe(ms / 1000) },
        done (result) { results[result].value++ }
      }
    },
    verified (differences) {
      ledger.differences = differences
      ledger.at = now()
    },
    ledgerDifferences: () => ledger.differences,

    workerRestarted () { workerRestarts.cell().value++ },
    shortfall (nanos) { shortfalls.cell().value += Number(nanos) },

    configLive (generation, live) {
      if (config.generation !== 0) reloads.cell('live').value++
      config.generation = generation
      config.isLastLive = 1
      config.liveAt = now()
      retain(live)
      start(live)
    },

    pluginsLive (names) { hookTimeouts.start([names]) },

    configRefused () {
      reloads.cell('refused').value++
      config.isLastLive = 0
    },

    watch (name, read) { watched.set(name, read) },
    watchMany (name, read) { watchedMany.set(name, read) },
    contentType: registry.contentType,
    lately: () => lately.view(),
    recall (request) { lately.recall(request) },
    async print () {
      const parts = [await registry.metrics(), ...await Promise.all(gauges.map(printGauge)),
        ...[...watchedMany].map(([name, read]) => printMany(name, MANY[name], read()))]
      for (const family of all) { for await (const part of family.print()) { parts.push(part) } }
      return parts.join('')
    }
  }

  /** Forgets what the live configuration does not have. */
  function retain ({ models, upstreams, routes }: Config): void {
    const forwarded = routes.flatMap(({ forward, match }) => forward === undefined ? [] : [match])
    const known = new Set([...models.map(({ id }) => id), ...forwarded, UNKNOWN, OTHER])
    const upstreamNames = new Set([...Object.keys(upstreams), OTHER])
    const targets = new Set([...targetsIn({ models, routes })]
      .flatMap(([upstream, of]) => [...of, OTHER].map((model) => `${upstream}\n${model}`)))
    targets.add(`${OTHER}\n${OTHER}`)
    for (const family of all) {
      if (byTarget.has(family)) {
        family.retain(['upstream', 'model'], targets)
        continue
      }
      family.retain('model', known)
      family.retain(GEN_AI_LABELS.model, known)
      family.retain('upstream', upstreamNames)
    }
    bundles.retain(known)
    answers.clear()
  }

  /** Begins series at 0, where they can move: `increase()` does not see the first event of a new series. */
  function start ({ server, models, upstreams, routes }: Config): void {
    if (server.workers > 1) workerRestarts.start([])
    for (const { id, kind, channels } of models) {
      const { item, isTask } = modalities[kind]
      if (item === undefined) tokens.start([[id], CLASSES])
      if (isTask === true) videos.start([[id], Object.keys(channels), VIDEO_ENDS])
      if (isTask !== true) abandoned.start([[id], Object.keys(channels)])
      charged.start([[id], Object.entries(channels).flatMap(([name, { price }]) => price === 'free' ? [] : [name])])
    }
    for (const [upstream, of] of targetsIn({ models, routes })) targetAttempts.start([[upstream], [...of], RESULTS])
    attempts.start([Object.keys(upstreams), ATTEMPT_ENDS])
    for (const [name, { retries: { attempts: most }, credentials = [], limits }] of Object.entries(upstreams)) {
      retries.start([[name], [...most > 0 ? FAILURES : [], ...credentials.length > 1 ? ['credential'] : []]])
      if (limits !== undefined) queueRefusals.start([[name], ['queue_full', 'queue_timeout']])
    }
  }

  function countCost ({ model, channel, upstream, nanos, cost }: Charged): void {
    if (cost === undefined) return
    costs.cell(model, channel, upstream).value += Number(cost)
    costed.cell(model, channel, upstream).value += Number(nanos)
  }

  function answered (upstream: string): Count {
    const known = answers.get(upstream)
    if (known !== undefined) return known
    const cell = attempts.cell(upstream, 'ok')
    answers.set(upstream, cell)
    return cell
  }

  /** Counts the attempt that served, or that the client left; failed attempts were counted when they failed. */
  function countServed ({ upstream, channel, outcome, by, code }: Finished): void {
    if (upstream === undefined || channel === undefined) return
    if (outcome === 'completed') answered(upstream).value++
    else if (by === 'client' || (outcome === 'failed' && code === 'client_closed')) {
      attempts.cell(upstream, 'client_closed').value++
    }
  }
}

type LabelsOf = Pick<Finished, 'route' | 'model' | 'channel' | 'provider' | 'kind' | 'status' | 'code'>

interface Bundle {
  readonly route: string
  readonly model: string
  readonly channel: string
  readonly status: number
  readonly code: string
  readonly requests: Count
  readonly overhead: Distribution
  /** absent: no model was called */
  readonly duration?: Distribution
  /** absent: no text */
  readonly ofText?: {
    readonly firstToken: Distribution
    readonly perToken: Distribution
    readonly input: Distribution
    readonly output: Distribution
    readonly classes: Readonly<Record<typeof CLASSES[number], Count>>
  }
  /** absent: nothing was charged yet */
  charged?: Count
}

/** The cells of one kind of request, looked up once. */
class Bundles {
  readonly #families: Families
  /** by model: a few each, so that none is looked up by a name that is made for it */
  readonly #cells = new Map<string, Bundle[]>()
  #size = 0

  constructor (families: Families) {
    this.#families = families
  }

  of (
    { route, model = UNKNOWN, channel = UNKNOWN, provider = UNKNOWN, kind, status, code }: LabelsOf
  ): Bundle {
    const ofModel = this.#cells.get(model)
    if (ofModel !== undefined) {
      for (const known of ofModel) {
        if (known.status === status && known.code === code && known.channel === channel && known.route === route) {
          return known
        }
      }
    }
    if (this.#size >= LIMIT && route !== OTHER) {
      return this.of({ route: OTHER, model: OTHER, channel: OTHER, provider: OTHER, kind, status, code })
    }
    const { requests, overheads, durations } = this.#families
    const made: Bundle = {
      route,
      model,
      channel,
      status,
      code,
      requests: requests.cell(route, model, channel, String(status), code),
      overhead: overheads.cell(route),
      ...(model !== UNKNOWN && kind !== undefined && {
        duration: durations.cell(provider, model, OPERATIONS[kind], code === 'ok' ? '' : code),
        ...(modalities[kind].item === undefined && { ofText: this.#ofText(provider, model, OPERATIONS[kind]) })
      })
    }
    if (ofModel === undefined) this.#cells.set(model, [made])
    else ofModel.push(made)
    this.#size++
    return made
  }

  #ofText (provider: string, model: string, operation: string): NonNullable<Bundle['ofText']> {
    const { firstTokens, perTokens, tokenUsage, tokens } = this.#families
    const labels = [provider, model, operation]
    return {
      firstToken: firstTokens.cell(...labels),
      perToken: perTokens.cell(...labels),
      input: tokenUsage.cell(...labels, 'input'),
      output: tokenUsage.cell(...labels, 'output'),
      classes: {
        input: tokens.cell(model, 'input'),
        cache_read: tokens.cell(model, 'cache_read'),
        cache_write_5m: tokens.cell(model, 'cache_write_5m'),
        cache_write_1h: tokens.cell(model, 'cache_write_1h'),
        output: tokens.cell(model, 'output')
      }
    }
  }

  /** Forgets the cells of models that are gone. */
  retain (models: ReadonlySet<string>): void {
    for (const [model, { length }] of this.#cells) {
      if (!models.has(model) && this.#cells.delete(model)) this.#size -= length
    }
  }
}
