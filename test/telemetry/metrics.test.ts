// Metrics and the log line of a request: what is counted, that labels are bounded, that nothing secret is written.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import path from 'node:path'
import t from 'tap'
import { observer } from '../../src/telemetry/log.ts'
import { ExchangeRecord } from '../../src/core/record.ts'
import { Refusals } from '../../src/telemetry/sampled-refusals.ts'
import { until } from '../support/until.ts'
import { createMetrics, type Finished, type Metrics } from '../../src/telemetry/metrics.ts'
import { GatewayError } from '../../src/errors.ts'
import type { Exchange, Outcome } from '../../src/core/exchange.ts'
import type { Config } from '../../src/config/config.ts'
import { ApiKey, Body, Charge, Model, Plan } from '../../src/core/facts.ts'
import { noUsage } from '../../src/money/usage.ts'
import { packageRoot } from '../../src/base/package.ts'
import { account, asking, config, exchange, key, model, SECRET, services, snapshot,
  upstreamConfig } from '../support/exchange.ts'

const finished: Finished = {
  route: 'POST /v1/messages',
  status: 200,
  code: 'ok',
  outcome: 'completed',
  by: undefined,
  model: 'm1',
  provider: 'acme',
  kind: 'text',
  channel: 'premium',
  upstream: 'u1',
  stream: true,
  nanos: 1500n,
  cost: undefined, abandoned: undefined,
  usage: { input: 10, cache_read: 100, cache_write_5m: 3, cache_write_1h: 4, output: 20, extras: {} },
  first_byte_ms: 50,
  duration_ms: 300,
  own_ms: 0.3
}

type Times = Pick<ExchangeRecord, 'body_at' | 'dispatched_at' | 'first_byte_at' | 'upstream_end_at' | 'queue_ms'
  | 'first_queue_ms'>

/** The value of one series: name and labels exactly as printed. */
async function read (metrics: Metrics, series: string): Promise<number | undefined> {
  const line = (await metrics.print()).split('\n').find((one) => one.startsWith(series + ' '))
  return line === undefined ? undefined : Number(line.slice(series.length + 1))
}

t.test('one request is counted everywhere it belongs', async (t) => {
  const metrics = createMetrics()
  metrics.begin()
  t.equal(await read(metrics, 'gateway_requests_in_flight'), 1)
  metrics.record(finished)
  t.equal(await read(metrics, 'gateway_requests_in_flight'), 0)
  t.equal(
    await read(metrics,
      'gateway_requests_total{route="POST /v1/messages",model="m1",channel="premium",status="200",code="ok"}'),
    1
  )
  const genAi = 'gen_ai_provider_name="acme",gen_ai_request_model="m1",gen_ai_operation_name="chat"'
  t.equal(await read(metrics, `gen_ai_server_request_duration_seconds_sum{${genAi}}`), 0.3)
  t.equal(await read(metrics, `gen_ai_server_request_duration_seconds_bucket{${genAi},le="0.16"}`), 0)
  t.equal(await read(metrics, `gen_ai_server_request_duration_seconds_bucket{${genAi},le="0.32"}`), 1)
  t.equal(await read(metrics, `gen_ai_server_request_duration_seconds_bucket{${genAi},le="+Inf"}`), 1)
  t.equal(await read(metrics, `gen_ai_server_request_duration_seconds_count{${genAi}}`), 1)
  t.equal(await read(metrics, `gen_ai_server_time_to_first_token_seconds_sum{${genAi}}`), 0.05)
  t.equal(await read(metrics, `gen_ai_client_token_usage_sum{${genAi},gen_ai_token_type="input"}`), 117)
  t.equal(await read(metrics, `gen_ai_client_token_usage_sum{${genAi},gen_ai_token_type="output"}`), 20)
  t.equal(await read(metrics, 'gateway_tokens_total{model="m1",class="cache_read"}'), 100)
  t.equal(await read(metrics, 'gateway_tokens_total{model="m1",class="input"}'), 10)
  t.equal(await read(metrics, 'gateway_charged_nanodollars_total{model="m1",channel="premium"}'), 1500)
  t.equal(await read(metrics, 'gateway_own_overhead_seconds_bucket{route="POST /v1/messages",le="0.00025"}'), 0)
  t.equal(await read(metrics, 'gateway_own_overhead_seconds_bucket{route="POST /v1/messages",le="0.0005"}'), 1)
  t.equal(await read(metrics, 'gateway_upstream_attempts_total{upstream="u1",outcome="ok"}'), 1)
})

t.test('errors carry their type, and an answer that is not a stream has no first token', async (t) => {
  const metrics = createMetrics()
  metrics.record({ ...finished, stream: false })
  metrics.record({ ...finished, code: 'model_overloaded', status: 503, outcome: 'failed' })
  metrics.record({ ...finished, code: 'upstream_stream_interrupted', outcome: 'interrupted', by: 'upstream' })
  metrics.record({ ...finished, code: 'client_closed', outcome: 'interrupted', by: 'client' })
  const genAi = 'gen_ai_provider_name="acme",gen_ai_request_model="m1",gen_ai_operation_name="chat"'
  t.equal(await read(metrics, `gen_ai_server_time_to_first_token_seconds_count{${genAi}}`), 2)
  t.equal(await read(metrics, `gen_ai_server_request_duration_seconds_count{${genAi},error_type="model_overloaded"}`),
    1)
  t.equal(
    await read(metrics,
      'gateway_requests_total{route="POST /v1/messages",model="m1",channel="premium",status="503",code="model_overloaded"}'),
    1
  )
  t.equal(await read(metrics, 'gateway_upstream_attempts_total{upstream="u1",outcome="ok"}'), 1)
  t.equal(await read(metrics, 'gateway_upstream_attempts_total{upstream="u1",outcome="client_closed"}'), 1)
})

t.test('what is asked of a model: each kind by its own name', async (t) => {
  const metrics = createMetrics()
  for (const kind of ['text', 'image', 'video'] as const) metrics.record({ ...finished, model: kind, kind })
  for (const [model, operation] of [['text', 'chat'], ['image', 'image_generation'], ['video', 'video_generation']]) {
    t.equal(
      await read(metrics,
        `gen_ai_server_request_duration_seconds_count{gen_ai_provider_name="acme",gen_ai_request_model="${model}",gen_ai_operation_name="${operation}"}`),
      1
    )
  }
})

t.test('labels of few values begin with all of them at 0, so that the first event of each is an increase', async (t) => {
  const metrics = createMetrics()
  const clip = { ...model('clip', { premium: 'u1/vendor*1' }), kind: 'video' as const }
  const models = [model('m1', { premium: 'u1/vendor*1', cheap: 'u1/vendor*1' }), clip]
  const busy = upstreamConfig({ limits: { concurrency: 1, queue: 1, queue_timeout: 1 },
    retries: { attempts: 1, backoff: 1, max_backoff: 1, budget: 1 },
    credentials: ['a', 'b'].map((id) => ({ id, headers: { 'x-api-key': id } })) })
  const { server } = config()
  metrics.configLive(1, config({ server: { ...server, workers: 2 }, upstreams: { u1: busy }, models }))
  const zeros = async (of: Metrics): Promise<readonly string[]> =>
    (await of.print()).split('\n').filter((line) => / 0$/.test(line)).map((line) => line.slice(0, -2))
  const series = await zeros(metrics)
  for (const expected of [
    'gateway_rejected_total{reason="overloaded"}',
    'gateway_rejected_total{reason="bad_request"}',
    'gateway_config_reloads_total{result="refused"}',
    'gateway_worker_restarts_total',
    'gateway_shortfall_nanodollars_total',
    'gateway_tokens_total{model="m1",class="cache_read"}',
    'gateway_charged_nanodollars_total{model="m1",channel="cheap"}',
    'gateway_charged_nanodollars_total{model="clip",channel="premium"}',
    ...['completed', 'failed', 'lost', 'unknown'].map((end) =>
      `gateway_videos_ended_total{model="clip",channel="premium",end="${end}"}`
    ),
    'gateway_upstream_attempts_total{upstream="u1",outcome="upstream_error"}',
    'gateway_upstream_retries_total{upstream="u1",reason="credential"}',
    'gateway_upstream_retries_total{upstream="u1",reason="upstream_error"}',
    'gateway_upstream_queue_refused_total{upstream="u1",reason="queue_full"}',
    ...['ok', 'failed', 'refused'].map((result) =>
      `gateway_target_attempts_total{upstream="u1",model="vendor",result="${result}"}`
    )
  ]) t.ok(series.includes(expected), expected)
  t.notOk(series.some((one) => one.startsWith('gateway_videos_ended_total{model="m1"')))
  const plain = createMetrics()
  const free = model('free', { premium: 'u1/vendor*1' })
  plain.configLive(1, config({ upstreams: { u1: upstreamConfig() },
    models: [{ ...free, channels: { premium: { ...free.channels.premium!, price: 'free' } } }] }))
  const unmoved = /^gateway_(worker_restarts|upstream_retries|upstream_queue_refused|charged)/
  t.strictSame((await zeros(plain)).filter((one) => unmoved.test(one)), [], 'what can\'t move is not there')
  t.notMatch(await plain.print(), /^# TYPE gateway_worker_restarts_total/m)
  // Idle models must not take the places of busy ones.
  const many = createMetrics()
  many.configLive(1,
    config({ models: Array.from({ length: 1000 }, (_, i) => model(`m${i}`, { premium: 'u1/vendor*1' })) }))
  t.ok((await many.print()).split('\n').filter((line) => line.startsWith('gateway_tokens_total{')).length <= 1000)
})

t.test('images and videos have no series that only texts can move, and neither has a count of tokens', async (t) => {
  const metrics = createMetrics()
  metrics.record({ ...finished, model: 'image', kind: 'image' })
  metrics.record({ ...finished, model: 'counted', kind: undefined, nanos: undefined, usage: undefined })
  const printed = await metrics.print()
  t.strictSame(printed.match(/^(?!gen_ai_server_request_duration|# ).*"(?:image|counted)".*$/gm)
    ?.map((line) => line.split('{')[0]), ['gateway_requests_total', 'gateway_requests_total',
    'gateway_charged_nanodollars_total'])
  t.notMatch(printed, /gen_ai_request_model="counted"/)
})

t.test('the time for each token is that behind the first byte, of complete streams', async (t) => {
  const metrics = createMetrics()
  metrics.record({ ...finished, first_byte_ms: 50, duration_ms: 1000 })          // 20 tokens of output
  for (const other of [{ stream: false }, { outcome: 'interrupted' as const }, { first_byte_ms: undefined },
    { usage: { ...finished.usage!, output: 1 } }]) metrics.record({ ...finished, ...other })
  const name = 'gen_ai_server_time_per_output_token_seconds'
  const labels = 'gen_ai_provider_name="acme",gen_ai_request_model="m1",gen_ai_operation_name="chat"'
  t.equal(await read(metrics, `${name}_count{${labels}}`), 1)
  t.equal(await read(metrics, `${name}_sum{${labels}}`), 0.95 / 19)
})

t.test('cost is counted beside the charge of the same answers, where a target says it', async (t) => {
  const metrics = createMetrics()
  metrics.record({ ...finished, nanos: 1500n, cost: 1000n })
  metrics.record({ ...finished, nanos: 0n, cost: 7n })
  metrics.record({ ...finished, nanos: 99n })
  const video = { model: 'clip', channel: 'premium', upstream: 'u2' }
  metrics.videoEnded('completed', { ...video, nanos: 400n, cost: 300n })
  metrics.videoEnded('failed', { ...video, nanos: 0n, cost: undefined })
  for (const [labels, charged, cost] of [['model="m1",channel="premium",upstream="u1"', 1500, 1007],
    ['model="clip",channel="premium",upstream="u2"', 400, 300]] as const) {
    t.equal(await read(metrics, `gateway_cost_nanodollars_total{${labels}}`), cost)
    t.equal(await read(metrics, `gateway_costed_charge_nanodollars_total{${labels}}`), charged)
  }
  t.equal(await read(metrics, 'gateway_charged_nanodollars_total{model="m1",channel="premium"}'), 1599)
})

t.test('targets: attempts by their result, and the time to an answer; gone with their targets', async (t) => {
  const metrics = createMetrics()
  const at = (id: string): Config => config({ upstreams: { u1: upstreamConfig() },
    models: [model('m1', { premium: `u1/${id}*1` })] })
  metrics.configLive(1, at('vendor'))
  const counts = metrics.target('u1', 'vendor')
  counts.answered(100)
  counts.done('ok')
  counts.done('failed')
  t.equal(await read(metrics, 'gateway_target_attempts_total{upstream="u1",model="vendor",result="failed"}'), 1)
  t.equal(await read(metrics, 'gateway_target_latency_seconds_sum{upstream="u1",model="vendor"}'), 0.1)
  metrics.configLive(2, at('vendor'))
  t.equal(await read(metrics, 'gateway_target_latency_seconds_sum{upstream="u1",model="vendor"}'), 0.1,
    'kept, though no model of ours has that name')
  metrics.configLive(3, at('another'))
  t.notMatch(await metrics.print(), /"vendor"/)
  t.equal(await read(metrics, 'gateway_target_attempts_total{upstream="u1",model="another",result="ok"}'), 0)
})

t.test('what a verification of the ledger has found, once there was one', async (t) => {
  const metrics = createMetrics(() => 5000)
  t.notMatch(await metrics.print(), /gateway_ledger/)
  metrics.verified(2)
  t.equal(await read(metrics, 'gateway_ledger_differences'), 2)
  t.equal(await read(metrics, 'gateway_ledger_verified_timestamp_seconds'), 5)
  t.match(await metrics.print(), /^gateway_build_info\{version="[\d.]+",node="[\d.]+"\} 1$/m)
})

t.test('gauges that are called counters are left out', async (t) => {
  const types = (await createMetrics().print()).matchAll(/^# TYPE (\w+) (\w+)$/gm)
  t.strictSame([...types].filter(([, name, type]) => name!.endsWith('_total') !== (type === 'counter')), [])
})

t.test('a request without a model counts as a request only', async (t) => {
  const metrics = createMetrics()
  metrics.record(Object.assign(new ExchangeRecord('req_1', 'GET /v1/models', 1, undefined, '127.0.0.1'), { status: 401,
    code: 'authentication_error', outcome: 'failed' as const, stream: false, duration_ms: 1, own_ms: 1 }))
  t.equal(
    await read(metrics,
      'gateway_requests_total{route="GET /v1/models",model="unknown",channel="unknown",status="401",code="authentication_error"}'),
    1
  )
  t.equal(await read(metrics, 'gateway_own_overhead_seconds_count{route="GET /v1/models"}'), 1)
  t.notMatch(await metrics.print(), /gen_ai_request_model=/)
})

t.test('what happens beside requests', async (t) => {
  let now = 5000
  const metrics = createMetrics(() => now)
  metrics.attempt('u1', 'model_overloaded')
  metrics.attempt('u1', 'model_overloaded')
  metrics.rejected('bad_request')
  metrics.hookTimeout('my-plugin')
  metrics.shortfall(12n)
  metrics.shortfall(30n)
  t.equal(await read(metrics, 'gateway_upstream_attempts_total{upstream="u1",outcome="model_overloaded"}'), 2)
  t.equal(await read(metrics, 'gateway_rejected_total{reason="bad_request"}'), 1)
  t.equal(await read(metrics, 'gateway_hook_timeouts_total{plugin="my-plugin"}'), 1)
  t.equal(await read(metrics, 'gateway_shortfall_nanodollars_total'), 42)

  t.equal(await read(metrics, 'gateway_body_memory_bytes'), undefined, 'nobody knows yet')
  let bytes = 17
  metrics.watch('gateway_body_memory_bytes', () => bytes)
  metrics.watch('gateway_holds_open', async () => 3)
  t.equal(await read(metrics, 'gateway_body_memory_bytes'), 17)
  bytes = 18
  t.equal(await read(metrics, 'gateway_body_memory_bytes'), 18)
  t.equal(await read(metrics, 'gateway_holds_open'), 3)

  metrics.configLive(1, config())
  t.equal(await read(metrics, 'gateway_config_generation'), 1)
  t.equal(await read(metrics, 'gateway_config_last_reload_success'), 1)
  t.equal(await read(metrics, 'gateway_config_last_reload_timestamp_seconds'), 5)
  now = 9000
  metrics.configRefused()
  t.equal(await read(metrics, 'gateway_config_generation'), 1)
  t.equal(await read(metrics, 'gateway_config_last_reload_success'), 0)
  t.equal(await read(metrics, 'gateway_config_last_reload_timestamp_seconds'), 5, 'when what works went live')
  metrics.configLive(2, config())
  t.equal(await read(metrics, 'gateway_config_last_reload_success'), 1)
  t.equal(await read(metrics, 'gateway_config_reloads_total{result="live"}'), 1)
  t.equal(await read(metrics, 'gateway_config_reloads_total{result="refused"}'), 1)
})

t.test('process and event loop metrics are there, and the exposition is one that Prometheus reads', async (t) => {
  const metrics = createMetrics()
  metrics.record(finished)
  metrics.record({ ...finished, model: 'odd "model" \\ with\nlines' })
  const start = performance.now()
  while (performance.now() - start < 250) { /* the event loop is kept for longer than it waits between two looks */ }
  let printed = ''
  await until(async () => (printed = await metrics.print()).includes('nodejs_eventloop_lag_seconds'))
  for (const name of ['process_cpu_seconds_total', 'process_resident_memory_bytes', 'nodejs_heap_size_used_bytes',
    'nodejs_eventloop_lag_min_seconds', 'nodejs_eventloop_lag_mean_seconds', 'nodejs_eventloop_lag_stddev_seconds',
    'nodejs_eventloop_lag_p50_seconds', 'nodejs_eventloop_lag_p90_seconds']) {
    t.match(printed, new RegExp(`^${name}\\b`, 'm'), name)
  }
  for (const name of ['max', 'p99']) {
    const [, seconds] = new RegExp(`^nodejs_eventloop_lag_${name}_seconds (.+)$`, 'm').exec(printed) ?? []
    t.ok(Number(seconds) >= 0.1, `late by what it was kept for, less the time between two looks: ${name} ${seconds}`)
  }
  t.match(metrics.contentType, /^text\/plain; version=0\.0\.4/)
  const line =
    /^(# (HELP|TYPE) [a-z0-9_]+ .+|[a-z0-9_]+(\{[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*\})? -?(\d+(\.\d+)?(e[+-]?\d+)?|Nan|NaN|\+Inf))$/
  for (const one of printed.split('\n').filter(Boolean)) { if (!line.test(one)) t.fail(one) }
  const names = [...printed.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name)
  t.equal(new Set(names).size, names.length)
})

t.test('what somebody else knows of many is asked for at each scrape', async (t) => {
  const metrics = createMetrics()
  const states = [{ upstream: 'a', model: 'm', value: 2 }, { upstream: 'b"\\', model: '', value: 0 }]
  metrics.watchMany('gateway_upstream_breaker_state', () => states.map(({ value, ...labels }) => ({ labels, value })))
  t.equal(await read(metrics, 'gateway_upstream_breaker_state{upstream="a",model="m"}'), 2)
  t.equal(await read(metrics, 'gateway_upstream_breaker_state{upstream="b\\"\\\\"}'), 0)
  states[0]!.value = 1
  t.equal(await read(metrics, 'gateway_upstream_breaker_state{upstream="a",model="m"}'), 1)
  states.push(...Array.from({ length: 3000 }, (_, i) => ({ upstream: `u${i}`, model: 'm', value: 0 })))
  t.equal(
    (await metrics.print()).split('\n').filter((line) => line.startsWith('gateway_upstream_breaker_state{')).length,
    2000
  )
  metrics.upstreamRetried('a', 'credential')
  t.equal(await read(metrics, 'gateway_upstream_retries_total{upstream="a",reason="credential"}'), 1)
})

t.test('labels are bounded; what comes after 2,000 sets is counted under "other"', async (t) => {
  const metrics = createMetrics()
  for (let i = 0; i < 5000; i++) {
    metrics.record({ ...finished, model: `m${i}` })
    metrics.attempt(`u${i}`, 'upstream_error')
    metrics.hookTimeout(`p${i}`)
  }
  const printed = await metrics.print()
  const series = (name: string): number => printed.split('\n').filter((line) => line.startsWith(name)).length
  t.equal(series('gateway_requests_total{'), 2001)
  t.equal(series('gen_ai_server_request_duration_seconds_count{'), 2001)
  t.ok(series('gateway_upstream_attempts_total{') <= 2002)
  t.equal(series('gateway_hook_timeouts_total{'), 2001)
  t.equal(
    await read(metrics, 'gateway_requests_total{route="other",model="other",channel="other",status="200",code="ok"}'),
    3000
  )
  t.equal(await read(metrics, 'gateway_upstream_attempts_total{upstream="other",outcome="upstream_error"}'), 3001,
    'the outcome stays; u1 has taken the place of "ok"')
  t.equal(await read(metrics, 'gateway_hook_timeouts_total{plugin="other"}'), 3000)
})

t.test('a reload forgets the series of models and upstreams that are gone, and keeps the others', async (t) => {
  const metrics = createMetrics()
  const withModels = (...ids: string[]) =>
    config({ models: ids.map((id) => model(id, { premium: 'u1/x*1' })), upstreams: { u1: upstreamConfig() } })
  metrics.configLive(1, withModels('m1', 'gone'))
  for (const id of ['m1', 'gone']) metrics.record({ ...finished, model: id })
  metrics.attempt('gone-too', 'upstream_error')
  metrics.configLive(2, withModels('m1'))
  const printed = await metrics.print()
  t.notMatch(printed, /"gone|gone-too"/)
  t.equal(await read(metrics, 'gateway_tokens_total{model="m1",class="output"}'), 20)
  metrics.record({ ...finished, model: 'gone' })
  t.equal(
    await read(metrics,
      'gateway_requests_total{route="POST /v1/messages",model="gone",channel="premium",status="200",code="ok"}'),
    1,
    'an old exchange that ends later counts again'
  )
  metrics.record(finished)
  t.equal(await read(metrics, 'gateway_tokens_total{model="m1",class="output"}'), 40,
    'what is printed is what is counted')
})

t.test('the end of an exchange', async (t) => {
  const own = services()
  const on = snapshot(config({ models: [model('m1', { premium: 'u1/vendor*1 u2/vendor*1' })] }), [], own)
  const headers = { 'user-agent': 'claude-cli/2.0 ' + 'x'.repeat(500), 'x-api-key': SECRET }
  const end = async (asked: Exchange, outcome: Outcome, status: number): Promise<Record<string, unknown>> => {
    asked.record.status = status
    await asked.finish(outcome)
    return own.lines.at(-1)!
  }
  const served = (asked: Exchange): Exchange => {
    observer(own, new Refusals(own.log))(asked)
    asked.set(ApiKey, { key: key({ secret: '***' }), account: account() })
    asked.set(Body, { model: 'm1', stream: true, messages: [{ role: 'user', content: 'my secret prompt' }] })
    return asked
  }

  t.test('is one line with all that on-call asks for', async (t) => {
    const asked = asking(on, 'm1')
    observer(own, new Refusals(own.log))(asked)
    asked.set(Body, { model: 'm1', stream: true, messages: [{ role: 'user', content: 'my secret prompt' }] })
    const { premium } = on.models.get('m1')!.channels
    asked.set(Plan, {
      attempts: premium!.targets.map(({ upstream, model: id }) => ({
        upstream,
        model: id,
        channel: 'premium' as const,
        sold: premium!
      }))
    })
    asked.record.attempts = 2
    asked.lastAttempt = asked.get(Plan).attempts[1]
    const { started_at: start } = asked.record
    Object.assign(asked.record, { body_at: start + 1, dispatched_at: start + 1.5, first_byte_at: start + 20,
      upstream_end_at: start + 30 })
    asked.set(Charge, { nanos: 12345678901234567890n, usage: { ...noUsage, output: 7 }, source: 'estimated' })
    const before = own.lines.length
    const line = await end(asked, { kind: 'completed', served: asked.get(Plan).attempts[1]! }, 200)
    t.equal(own.lines.length, before + 1)
    t.match(line, {
      level: 'info',
      msg: 'request',
      request_id: asked.id,
      route: 'POST /v1/messages',
      status: 200,
      code: 'ok',
      outcome: 'completed',
      key_id: 'acme-dev',
      account: 'acme',
      model: 'm1',
      channel: 'premium',
      upstream: 'u2',
      attempts: 2,
      stream: true,
      nanos: '12345678901234567890',
      usage: { output: 7 },
      usage_source: 'estimated',
      first_byte_ms: 20,
      config_generation: 7
    })
    t.type(line.duration_ms, 'number')
    t.match(line.time, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/)
    t.notMatch(JSON.stringify(line), /secret prompt/)
    const { level: _level, time: _time, msg: _msg, ...fields } = line
    own.log.info(fields, 'request')
    const { time: _later, ...printed } = own.lines.at(-1)!
    const { time: _then, ...whole } = line
    t.equal(JSON.stringify(printed), JSON.stringify(whole), 'printed as any line is, in the same order')
  })

  t.test('is counted by what its address makes, whatever kind of model was named', async (t) => {
    const route = { match: 'POST /v1/raw', forward: 'u1', price: { usd: '1' } }
    const made = services()
    const there = snapshot(config({ upstreams: { u1: upstreamConfig() }, routes: [route],
      models: [model('m1', { premium: 'u1/vendor*1' })] }), [], made)
    const lines: unknown[] = []
    for (const path of ['/v1/messages', '/v1/messages/count_tokens', '/v1/images/generations', '/v1/raw']) {
      const asked = exchange(there, { path })
      observer(made, new Refusals(made.log))(asked)
      if (path !== '/v1/raw') asked.set(Model, there.models.get('m1')!)
      asked.set(Charge, { nanos: 5n, usage: noUsage, source: 'provider' })
      await asked.finish({ kind: 'completed' })
      lines.push(made.lines.at(-1)?.model)
    }
    t.strictSame(lines, ['m1', 'm1', 'm1', 'POST /v1/raw'])
    const printed = await made.metrics.print()
    t.strictSame([...printed.matchAll(/^gen_ai_server_request_duration_seconds_count\{.*operation_name="(\w+)"\} (\d)$/gm)]
      .map(([, operation, count]) => `${operation} ${count}`), ['chat 1', 'image_generation 1'])
    t.match(printed, /^gateway_charged_nanodollars_total\{model="POST \/v1\/raw",channel="unknown"\} 5$/m)
    made.metrics.configLive(1, there.config)
    t.match(await made.metrics.print(), /^gateway_charged_nanodollars_total\{model="POST \/v1\/raw",/m,
      'a route that there is is not forgotten')
  })

  t.test('without an attempt has the channel that was refused', async (t) => {
    const { premium } = on.models.get('m1')!.channels
    const attempt = { upstream: 'u1', model: 'vendor', channel: 'cheap' as const, sold: premium! }
    for (const plan of [{ attempts: [attempt] }, { attempts: [], refused: 'cheap' as const }]) {
      const asked = served(exchange(on))
      asked.set(Plan, plan)
      const error = new GatewayError('model_overloaded')
      t.match(await end(asked, { kind: 'failed', error }, 503), { code: 'model_overloaded', channel: 'cheap' })
      const own = served(exchange(on))
      own.set(Plan, plan)
      t.equal((await end(own, { kind: 'completed' }, 200)).channel, undefined, 'the gateway has answered itself')
    }
  })

  t.test('is told last, after all who were told about the exchange', async (t) => {
    const asked = served(exchange(on, { headers }))
    let before = -1
    asked.onFinish(async () => { await Promise.resolve(); before = own.lines.length })
    await end(asked, { kind: 'completed' }, 200)
    t.equal(own.lines.length, before + 1)
  })

  t.test('holds no secret and no more of a user agent than 120 characters', async (t) => {
    const line = await end(served(exchange(on, { headers })), { kind: 'completed' }, 200)
    t.equal((line.client as string).length, 120)
    t.notMatch(JSON.stringify(line), new RegExp(SECRET))
  })

  t.test('names what an error came from, but quotes nobody', async (t) => {
    const cause = async (of: unknown): Promise<unknown> =>
      (await end(served(exchange(on)), { kind: 'failed', error: new GatewayError('upstream_error', { cause: of }) },
        502)).cause
    t.equal(
      await cause({ kind: 'status', status: 401, headers: { 'set-cookie': 'x' },
        body: { error: { message: 'invalid key sk-1234567890' } } }),
      'status 401'
    )
    t.equal(
      await cause({ kind: 'refused',
        cause: Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }) }),
      'refused: ECONNREFUSED'
    )
    t.equal(
      await cause({ kind: 'malformed', cause: new SyntaxError('Unexpected token, "my secret prompt" is not JSON') }),
      'malformed: SyntaxError'
    )
    t.equal(await cause(new GatewayError('model_overloaded', { cause: { kind: 'status', status: 529 } })),
      'model_overloaded: status 529')
    t.equal(await cause(undefined), undefined)
    t.equal(await cause('empty'), 'empty')
    t.match(own.lines.at(-1), { code: 'server_error', status: 502, level: 'info', outcome: 'failed', attempts: 0 })
  })

  t.test('of our own failure is an error with its stack', async (t) => {
    const line = await end(served(exchange(on)), { kind: 'failed',
      error: new GatewayError('server_error', { cause: new Error('a bug') }) }, 500)
    t.match(line, { level: 'error', code: 'server_error', status: 500,
      err: { message: 'a bug', stack: /metrics\.test\.ts/ } })
  })

  t.test('says who cut it', async (t) => {
    const asked = served(exchange(on))
    const line = await end(asked, { kind: 'interrupted', by: 'client', served: { upstream: 'u9' },
      error: new GatewayError('client_closed') }, 200)
    t.match(line, { outcome: 'interrupted', by: 'client', code: 'client_closed', upstream: 'u9' })
  })

  t.test('has counted every one of them', async (t) => {
    t.equal(await read(own.metrics, 'gateway_requests_in_flight'), 0)
    t.equal(
      await read(own.metrics,
        'gateway_requests_total{route="POST /v1/messages",model="m1",channel="premium",status="200",code="ok"}'),
      1
    )
  })
})

t.test('the time that was ours is what is left without the client\'s sending, the upstream, and the client\'s taking', async (t) => {
  const own = services()
  const on = snapshot(config(), [], own)
  const ownMs = async (times: Partial<Times>): Promise<number> => {
    const asked = exchange(on)
    observer(own, new Refusals(own.log))(asked)
    for (const [name, at] of Object.entries(times)) {
      Object.assign(asked.record, { [name]: name.endsWith('queue_ms') ? at : asked.record.started_at + at })
    }
    await asked.finish({ kind: 'completed' })
    return own.lines.at(-1)!.own_ms as number
  }
  // Times in the future, so that the moment of the end does not come into it.
  t.equal(await ownMs({ body_at: 1000, dispatched_at: 1002, upstream_end_at: 9000, first_byte_at: 9003 }), 5,
    'a JSON answer')
  t.equal(await ownMs({ body_at: 1000, dispatched_at: 1002, first_byte_at: 3000 }), 2, 'the upstream has not ended')
  t.equal(
    await ownMs({ body_at: 1000, dispatched_at: 1502, upstream_end_at: 9000, first_byte_at: 9003, queue_ms: 800,
      first_queue_ms: 500 }),
    5,
    'a wait for a turn is not ours (rule queue-time); one between two attempts is between them'
  )
  t.equal(own.lines.at(-1)!.queue_ms, 800)
  t.equal(await ownMs({ body_at: 1000, first_byte_at: 3000, queue_ms: 1990 }), 10, 'nobody was asked')
})

t.test('secrets that somebody logs by mistake stay secrets', async (t) => {
  const { log, lines } = services()
  const logged = { secret: 'a1', token: 'a2', upstream: { token: 'a3', headers: { authorization: 'a4' } },
    keys: [{ id: 'k', secret: 'a6' }], headers: { cookie: 'a7' }, body: 'a8' }
  log.info(logged, 'x')
  t.notMatch(JSON.stringify(lines.at(-1)), /"a[1-8]"/)
  t.match(lines.at(-1), { secret: '***', keys: [{ id: 'k', secret: '***' }], upstream: { headers: '***' } })
  t.equal(logged.keys[0]!.secret, 'a6', 'what is logged is not changed')
  log.error({ err: Object.assign(new Error('x'), { headers: { 'x-api-key': 'a5' }, request: { body: 'a8' } }) }, 'x')
  t.notMatch(JSON.stringify(lines.at(-1)), /"a[1-8]"/)
  t.match(lines.at(-1), { err: { message: 'x', headers: '***' } })
})

t.test('what was logged last is written when the process ends', async (t) => {
  const program = `import { createLogger } from ${JSON.stringify(path.join(packageRoot, 'src/telemetry/log.ts'))}
    const log = createLogger('info')
    for (let i = 0; i < 2000; i++) log.info({ i }, 'line')
    process.exit(0)`
  const child = spawn(process.execPath, ['--input-type=module-typescript', '--eval', program], {
    stdio: ['ignore', 'pipe', 'inherit']
  })
  const [printed] = await Promise.all([text(child.stdout), once(child, 'close')])
  const lines = printed.trim().split('\n').map((line) => JSON.parse(line) as { i: number })
  t.equal(lines.length, 2000)
  t.equal(lines.at(-1)!.i, 1999)
})
