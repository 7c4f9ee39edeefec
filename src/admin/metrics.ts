// Metrics for Prometheus. Recording is map lookups and additions: 0.5 µs for a whole request, where prom-client hashes labels
// for 1 to 3 µs at each of its ten calls. Printing gives way to requests: prom-client's would block the event loop for 0.4 s
// with 1,000 models (both measured). What it knows about the process is its own.
import { setImmediate } from 'node:timers/promises'
import { collectDefaultMetrics, Registry } from 'prom-client'
import type { Config, ModelKind } from '../config/config.ts'
import { catalogue } from '../errors.ts'
import type { Nanos } from '../money/nanos.ts'
import type { Usage, UsageSource } from '../money/usage.ts'
import type { FailedAttempt } from '../upstream/failed-attempt.ts'

/** An exchange that is over: what the log line and the metrics are made of. */
export interface FinishedExchange {
  readonly request_id: string
  readonly route: string
  /** that the client got; 0: nothing was written */
  readonly status: number
  /** "ok", or the code of the error */
  readonly code: string
  readonly outcome: 'completed' | 'interrupted' | 'failed'
  /** who cut it */
  readonly by?: 'client' | 'upstream' | 'gateway' | undefined
  readonly key_id?: string | undefined
  readonly account?: string | undefined
  readonly model?: string | undefined
  /** the alias of it that the client named */
  readonly asked?: string | undefined
  readonly provider?: string | undefined
  /** of the model */
  readonly kind?: ModelKind | undefined
  readonly channel?: string | undefined
  /** that served, or was tried last */
  readonly upstream?: string | undefined
  /** of the last attempt */
  readonly credential?: string | undefined
  readonly attempts: number
  /** what became of those that did not serve; undefined: there are none */
  readonly failures?: readonly Omit<FailedAttempt, 'request_id' | 'at'>[] | undefined
  /** undefined: the body was not read */
  readonly stream: boolean | undefined
  readonly nanos?: Nanos | undefined
  readonly usage?: Usage | undefined
  readonly usage_source?: UsageSource | undefined
  readonly first_byte_ms?: number | undefined
  /** in queues, and until targets recovered */
  readonly queue_ms?: number | undefined
  readonly duration_ms: number
  /** how much of the duration was the gateway's */
  readonly own_ms: number
  readonly config_generation: number
  /** user agent, cut */
  readonly client?: string | undefined
  /** of the socket's peer */
  readonly ip?: string | undefined
}

/** A number that somebody else knows; asked for at each scrape. */
export type Watched = 'gateway_answer_memory_bytes' | 'gateway_body_memory_bytes' | 'gateway_event_loop_delay_seconds' | 'gateway_overloaded' | 'gateway_fleet_processes' | 'gateway_holds_open' | 'gateway_log_dropped_total' | 'gateway_outbox_pending' | 'gateway_store_lag_seconds' | 'gateway_store_up' | 'gateway_videos_open'

/** The same for each of many. */
export type WatchedMany = 'gateway_upstream_breaker_state' | 'gateway_upstream_credential_aside' | 'gateway_upstream_queue_depth' | 'gateway_upstream_running'

export interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** How a video task ended. `lost`: its upstream knows it no more; `unknown`: nobody could tell in time. Only the first is charged. */
export type VideoEnd = 'completed' | 'failed' | 'lost' | 'unknown'

export interface Metrics {
  /** An exchange began; `record` ends it. */
  begin (): void
  record (finished: FinishedExchange): void
  /** An attempt is over, well ("ok") or not (the error's row in the catalogue). Of a plan's attempts only the failed ones: `record` knows which one served. */
  attempt (upstream: string, outcome: string): void
  /** A request that never became an exchange, such as a parser error or shed load. */
  rejected (reason: string): void
  hookTimeout (plugin: string): void
  /** A target was asked again. @param reason the error's row in the catalogue, or "credential": with another one */
  upstreamRetried (upstream: string, reason: string): void
  /** One that waited for a place at an upstream was let in. @param ms how long it waited */
  queued (upstream: string, ms: number): void
  queueRefused (upstream: string, reason: 'queue_full' | 'queue_timeout'): void
  /** What an answer cost beyond its hold: the operator's loss. */
  shortfall (nanos: Nanos): void
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

/** Label sets per metric (lesson 23); what comes after them is counted under "other". */
const LIMIT = 2000
const OTHER = 'other'
const UNKNOWN = 'unknown'

/** Label sets that are printed in one turn of the event loop: under 1 ms. */
const PRINTED_AT_ONCE = 100
/** A store that does not answer must not take the other metrics with it. */
const WATCH_TIMEOUT_MS = 1000

/** What is asked of a model: the first is OpenTelemetry's name, which has none for the others. */
const OPERATIONS: Readonly<Record<ModelKind, string>> = { text: 'chat', image: 'image_generation', video: 'video_generation' }

/** Labels that have few values begin with all of them: the first event of a series that is not there yet is none that `increase()` sees. */
const REJECTIONS = ['admin_token', 'bad_request', 'expectation_failed', 'headers_too_large', 'invalid_request', 'method_not_allowed', 'not_found', 'overloaded', 'request_timeout'] as const satisfies readonly (keyof typeof catalogue | 'admin_token' | 'overloaded')[]
const FAILURES = (Object.keys(catalogue) as (keyof typeof catalogue)[]).filter((row) => 'retryable' in catalogue[row])
const ATTEMPT_ENDS = ['ok', 'client_closed', 'stream_incomplete', 'upstream_stream_interrupted', ...FAILURES]
const CLASSES = ['input', 'cache_read', 'cache_write_5m', 'cache_write_1h', 'output'] as const
const VIDEO_ENDS: readonly VideoEnd[] = ['completed', 'failed', 'lost', 'unknown']

/** Buckets of the OpenTelemetry conventions for GenAI. */
const DURATION_S = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
const FIRST_TOKEN_S = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864]
const OVERHEAD_S = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1]

/** @param now milliseconds since the epoch */
export function createMetrics (now: () => number = Date.now): Metrics {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })

  const requests = counters('gateway_requests_total', 'Requests that are over, by the code that the client read ("ok": none).', ['route', 'model', 'channel'], ['status', 'code'])
  const durations = histograms('gen_ai_server_request_duration_seconds', 'From the arrival of a request to the last byte of its answer.', DURATION_S, ['gen_ai_provider_name', 'gen_ai_request_model'], ['gen_ai_operation_name', 'error_type'])
  const firstTokens = histograms('gen_ai_server_time_to_first_token_seconds', 'From the arrival of a streaming request to the first byte of its answer.', FIRST_TOKEN_S, ['gen_ai_provider_name', 'gen_ai_request_model'], ['gen_ai_operation_name'])
  const tokenUsage = histograms('gen_ai_client_token_usage', 'Tokens of one charged request; input with all that was read from or written to a cache.', TOKENS, ['gen_ai_provider_name', 'gen_ai_request_model'], ['gen_ai_operation_name', 'gen_ai_token_type'])
  const tokens = counters('gateway_tokens_total', 'Charged tokens, each in exactly one class.', ['model'], ['class'])
  const overheads = histograms('gateway_own_overhead_seconds', 'The gateway\'s own part of a request: neither the client\'s sending nor the upstream.', OVERHEAD_S, ['route'], [])
  const attempts = counters('gateway_upstream_attempts_total', 'Attempts that are over, by upstream and outcome ("ok", or the code of the error).', ['upstream'], ['outcome'])
  const charged = counters('gateway_charged_nanodollars_total', 'What clients were charged.', ['model', 'channel'], [])
  const shortfalls = counters('gateway_shortfall_nanodollars_total', 'What answers cost beyond their holds: the operator\'s loss.', [], [])
  const rejections = counters('gateway_rejected_total', 'Requests that never reached the pipeline.', [], ['reason'])
  const videos = counters('gateway_videos_ended_total', 'Video tasks that are over; only completed ones are charged. "unknown": nobody could tell in time; the provider may charge for it.', ['model', 'channel'], ['end'])
  const retries = counters('gateway_upstream_retries_total', 'Requests that were sent to the same target again, by the error before it ("credential": with another credential).', ['upstream'], ['reason'])
  const queueWaits = histograms('gateway_upstream_queue_wait_seconds', 'How long requests waited that had to wait for a place at an upstream, and got one.', DURATION_S, ['upstream'], [])
  const queueRefusals = counters('gateway_upstream_queue_refused_total', 'Times that an upstream had no place for a request, and no room to wait or no patience; another may have served it.', ['upstream'], ['reason'])
  const hookTimeouts = counters('gateway_hook_timeouts_total', 'Hooks of plugins that took longer than hook_timeout.', ['plugin'], [])
  const workerRestarts = counters('gateway_worker_restarts_total', 'Workers that have ended and were started again (server.workers).', [], [])
  const reloads = counters('gateway_config_reloads_total', 'Configurations that were tried after the first.', [], ['result'])
  const families = [requests, durations, firstTokens, tokenUsage, tokens, overheads, attempts, charged, shortfalls, rejections, videos, retries, queueWaits, queueRefusals, hookTimeouts, workerRestarts, reloads]

  let inFlight = 0
  const config = { generation: 0, isLastLive: 0, liveAt: 0 }
  const watched = new Map<Watched, () => number | Promise<number>>()
  const watchedMany = new Map<WatchedMany, () => Iterable<Sample>>()
  const gauges: readonly Gauge[] = [
    { name: 'gateway_requests_in_flight', help: 'Requests that have arrived and are not over.', read: () => inFlight },
    { name: 'gateway_config_generation', help: 'The configuration that new requests get.', read: () => config.generation },
    { name: 'gateway_config_last_reload_success', help: '1: the last configuration that was tried went live. 0: it was refused, the one before it works on.', read: () => config.isLastLive },
    { name: 'gateway_config_last_reload_timestamp_seconds', help: 'When the last configuration went live.', read: () => config.liveAt / 1000 },
    { name: 'gateway_overloaded', help: '1: the process has too much to do, and refuses new requests.', read: () => watched.get('gateway_overloaded')?.() },
    { name: 'gateway_event_loop_delay_seconds', help: 'How late the event loop was at the last look.', read: () => watched.get('gateway_event_loop_delay_seconds')?.() },
    { name: 'gateway_body_memory_bytes', help: 'Request bodies in memory.', read: () => watched.get('gateway_body_memory_bytes')?.() },
    { name: 'gateway_log_dropped_total', help: 'Lines of the log that could not be written: the disk is full, or nobody reads.', type: 'counter', read: () => watched.get('gateway_log_dropped_total')?.() },
    { name: 'gateway_answer_memory_bytes', help: 'Answers of upstreams in memory, of more than 64 KB and read whole.', read: () => watched.get('gateway_answer_memory_bytes')?.() },
    { name: 'gateway_fleet_processes', help: 'Processes that serve clients from the same store.', read: () => watched.get('gateway_fleet_processes')?.() },
    { name: 'gateway_store_up', help: 'Of a store that is somewhere else: whether it answers.', read: () => watched.get('gateway_store_up')?.() },
    { name: 'gateway_store_lag_seconds', help: 'How far its replicas are behind: a failover may forget so much of holds and admissions, and no charge.', read: () => watched.get('gateway_store_lag_seconds')?.() },
    { name: 'gateway_outbox_pending', help: 'Charges that it does not know yet, and that wait on the disk.', read: () => watched.get('gateway_outbox_pending')?.() },
    { name: 'gateway_videos_open', help: 'Video tasks that are not over; each has a hold.', read: () => watched.get('gateway_videos_open')?.() },
    { name: 'gateway_holds_open', help: 'Holds that are neither settled nor released; where the store is shared, those of this process.', read: () => watched.get('gateway_holds_open')?.() }
  ]
  shortfalls.start([])
  workerRestarts.start([])
  reloads.start([['live', 'refused']])
  rejections.start([REJECTIONS])

  /** The cells that one kind of request counts in, found once. */
  const bundles = new Map<string, Bundle>()

  function bundleOf ({ route, model = UNKNOWN, channel = UNKNOWN, provider = UNKNOWN, kind = 'text', status, code }: LabelsOf): Bundle {
    const key = `${route}\n${model}\n${channel}\n${status}\n${code}`
    const known = bundles.get(key)
    if (known !== undefined) return known
    if (bundles.size >= LIMIT && route !== OTHER) return bundleOf({ route: OTHER, model: OTHER, channel: OTHER, provider: OTHER, kind, status, code })
    const operation = OPERATIONS[kind]
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
    bundles.set(key, made)
    return made
  }

  return {
    begin () { inFlight++ },

    record (finished) {
      inFlight--
      const { requests, overhead, ofModel } = bundleOf(finished)
      requests.value++
      overhead.observe(finished.own_ms / 1000)
      countServed(finished)
      if (ofModel === undefined) return
      ofModel.duration.observe(finished.duration_ms / 1000)
      if (finished.stream === true && finished.outcome !== 'failed' && finished.first_byte_ms !== undefined) ofModel.firstToken.observe(finished.first_byte_ms / 1000)
      if (finished.nanos !== undefined) ofModel.charged.value += Number(finished.nanos)
      if (finished.usage === undefined) return
      const { input, cache_read, cache_write_5m, cache_write_1h, output, extras } = finished.usage
      if ('image' in extras) return                           // no tokens: they would all be answers of none
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
      const known = { model: new Set([...models.map(({ id }) => id), UNKNOWN, OTHER]), upstream: new Set([...Object.keys(upstreams), OTHER]) }
      for (const family of families) {
        family.retain('model', known.model)
        family.retain('gen_ai_request_model', known.model)
        family.retain('upstream', known.upstream)
      }
      for (const [key, { model }] of bundles) if (!known.model.has(model)) bundles.delete(key)
      for (const { id, kind, channels } of models) {
        if (kind === 'text') tokens.start([[id], CLASSES])
        if (kind === 'video') videos.start([[id], Object.keys(channels), VIDEO_ENDS])
        charged.start([[id], Object.keys(channels)])
      }
      const names = Object.keys(upstreams)
      attempts.start([names, ATTEMPT_ENDS])
      retries.start([names, [...FAILURES, 'credential']])
      queueRefusals.start([names, ['queue_full', 'queue_timeout']])
      // Of your own plugins the file is known here, and the name is the label.
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
      const parts = [await registry.metrics(), ...await Promise.all(gauges.map(printGauge)), ...[...watchedMany].map(([name, read]) => printMany(name, MANY[name], read()))]
      for (const family of families) for await (const part of family.print()) parts.push(part)
      return parts.join('')
    }
  }

  /** Of a plan's attempts those that failed were counted when they did; this is the one that did not, or that the client left. */
  function countServed ({ upstream, channel, outcome, by, code }: FinishedExchange): void {
    if (upstream === undefined || channel === undefined) return
    if (outcome === 'completed') attempts.cell(upstream, 'ok').value++
    else if (by === 'client' || (outcome === 'failed' && code === 'client_closed')) attempts.cell(upstream, 'client_closed').value++
  }
}

type LabelsOf = Pick<FinishedExchange, 'route' | 'model' | 'channel' | 'provider' | 'kind' | 'status' | 'code'>

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

interface Count { value: number }

class Distribution {
  readonly bounds: readonly number[]
  /** one more than bounds: the last is all above them */
  readonly counts: number[]
  sum = 0

  constructor (bounds: readonly number[]) {
    this.bounds = bounds
    this.counts = new Array(bounds.length + 1).fill(0)
  }

  observe (value: number): void {
    let i = 0
    while (i < this.bounds.length && value > this.bounds[i]!) i++
    this.counts[i]!++
    this.sum += value
  }
}

interface Gauge {
  readonly name: string
  readonly help: string
  /** default: gauge */
  readonly type?: 'counter'
  /** undefined: nobody knows */
  readonly read: () => number | undefined | Promise<number>
}

async function printGauge ({ name, help, type, read }: Gauge): Promise<string> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<undefined>((resolve) => { timer = setTimeout(() => { resolve(undefined) }, WATCH_TIMEOUT_MS) })
  try {
    const value = await Promise.race([read(), late])
    return value === undefined ? '' : `${headOf(name, help, type ?? 'gauge')}${name} ${value}\n`
  } catch {
    return ''                                     // absent is how Prometheus says "unknown"
  } finally {
    clearTimeout(timer)
  }
}

const MANY: Readonly<Record<WatchedMany, string>> = {
  gateway_upstream_breaker_state: 'Whether a target is left alone because it fails: 0 it is not, 1 one request at a time tries it, 2 it is.',
  gateway_upstream_credential_aside: '1: the upstream has limited or refused this credential, and it is not used for a while.',
  gateway_upstream_queue_depth: 'Requests that wait for a place at an upstream.',
  gateway_upstream_running: 'Attempts that run at a target.'
}

/** No more than of other metrics: GET /admin/v1/upstreams has all. */
function printMany (name: WatchedMany, help: string, samples: Iterable<Sample>): string {
  const lines: string[] = []
  for (const { labels, value } of samples) {
    if (lines.length === LIMIT) break
    lines.push(`${name}{${Object.entries(labels).filter(([, text]) => text !== '').map(([label, text]) => `${label}="${escape(text)}"`).join(',')}} ${value}\n`)
  }
  return headOf(name, help, 'gauge') + lines.join('')
}

function headOf (name: string, help: string, type: string): string {
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`
}

interface Kept<Cell> {
  readonly values: readonly string[]
  readonly cell: Cell
  /** its lines, from the texts that were made once */
  readonly print: () => string
}

interface Shape<Cell> {
  readonly type: 'counter' | 'histogram'
  create (): Cell
  /** @param labels such as `a="1",b="2"`; '' without any */
  printer (name: string, labels: string, cell: Cell): () => string
}

/** One metric: its cells by their labels. */
class Family<Cell> {
  readonly #name: string
  readonly #help: string
  readonly #shape: Shape<Cell>
  readonly #open: readonly string[]
  readonly #names: readonly string[]
  readonly #cells = new Map<string, Kept<Cell>>()

  /**
   * @param open labels whose values come from the configuration: beyond the limit they become "other"
   * @param closed labels whose values come from the code
   */
  constructor (name: string, help: string, shape: Shape<Cell>, open: readonly string[], closed: readonly string[]) {
    this.#name = name
    this.#help = help
    this.#shape = shape
    this.#open = open
    this.#names = [...open, ...closed]
  }

  /** @param values of the open labels, then of the closed ones */
  cell (...values: readonly string[]): Cell {
    const key = values.join('\n')
    const known = this.#cells.get(key)
    if (known !== undefined) return known.cell
    if (this.#cells.size >= LIMIT && this.#open.length > 0 && values[0] !== OTHER) return this.cell(...values.map((value, i) => i < this.#open.length ? OTHER : value))
    const cell = this.#shape.create()
    const labels = values.flatMap((value, i) => value === '' ? [] : [`${this.#names[i]!}="${escape(value)}"`]).join(',')
    this.#cells.set(key, { values, cell, print: this.#shape.printer(this.#name, labels, cell) })
    return cell
  }

  /** Cells that nothing has happened to yet, one for each combination; not where they would take the place of those that something does. */
  start (values: readonly (readonly string[])[]): void {
    let sets: readonly (readonly string[])[] = [[]]
    for (const some of values) sets = sets.flatMap((set) => some.map((value) => [...set, value]))
    if (this.#cells.size + sets.length <= LIMIT / 2) for (const set of sets) this.cell(...set)
  }

  /** Forgets the cells whose label has another value. */
  retain (label: string, known: ReadonlySet<string>): void {
    const at = this.#open.indexOf(label)
    if (at === -1) return
    for (const [key, { values }] of this.#cells) if (!known.has(values[at]!)) this.#cells.delete(key)
  }

  async * print (): AsyncGenerator<string> {
    yield headOf(this.#name, this.#help, this.#shape.type)
    let printed = 0
    for (const { print } of this.#cells.values()) {
      if (++printed % PRINTED_AT_ONCE === 0) await setImmediate()
      yield print()
    }
  }
}

function counters (name: string, help: string, open: readonly string[], closed: readonly string[]): Family<Count> {
  return new Family<Count>(name, help, {
    type: 'counter',
    create: () => ({ value: 0 }),
    printer (name, labels, cell) {
      const series = labels === '' ? name : `${name}{${labels}}`
      return () => `${series} ${cell.value}\n`
    }
  }, open, closed)
}

function histograms (name: string, help: string, bounds: readonly number[], open: readonly string[], closed: readonly string[]): Family<Distribution> {
  return new Family<Distribution>(name, help, {
    type: 'histogram',
    create: () => new Distribution(bounds),
    printer (name, labels, cell) {
      const buckets = [...bounds.map(String), '+Inf'].map((bound) => `${name}_bucket{${labels}${labels === '' ? '' : ','}le="${bound}"} `)
      const braced = labels === '' ? '' : `{${labels}}`
      return () => {
        let [total, text] = [0, '']
        for (let i = 0; i < buckets.length; i++) text += `${buckets[i]!}${total += cell.counts[i]!}\n`
        return `${text}${name}_sum${braced} ${cell.sum}\n${name}_count${braced} ${total}\n`
      }
    }
  }, open, closed)
}

function escape (value: string): string {
  return value.replace(/[\\"\n]/g, (character) => character === '\n' ? '\\n' : '\\' + character)
}
