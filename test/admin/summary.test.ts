// The overview of the admin API after real traffic: its numbers are those of the ledger, and what needs somebody is
// told.
import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import t, { type Test } from 'tap'
import { BOUNDS_MS, Lately, mergedLately, quantile } from '../../src/telemetry/lately.ts'
import type { LoggedRequest } from '../../src/telemetry/requests/line.ts'
import { beginningOfIds } from '../../src/base/request-id.ts'
import { gateway, type GatewayTestOptions, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, errorReply, upstream } from '../support/upstream.ts'

interface Live {
  readonly requests: number
  readonly errors: number
  readonly spent_usd: string
  readonly input_tokens: number
  readonly output_tokens: number
  readonly first_token_ms: First | null
}

interface First { readonly p50: number, readonly p95: number, readonly since: string }

interface Summary {
  readonly live: Live
  readonly day: { readonly requests: number, readonly errors: number, readonly spent_usd: string,
    readonly first_token_ms: First | null } | null
  readonly open_holds: number | null
  readonly low_balances: readonly { readonly account: string, readonly hours_left: number }[]
  readonly upstreams: { readonly targets: number, readonly out: readonly { readonly upstream: string }[] }
  readonly config: { readonly generation: number, readonly is_refused: boolean }
  readonly problems: readonly { readonly code: string, readonly message: string }[]
}

async function summary (own: TestGateway): Promise<Summary> {
  const headers = { authorization: 'Bearer test-admin-token' }
  const got = await fetch(`${own.urls.admin}/admin/v1/summary`, { headers })
  return await got.json() as Summary
}

async function serving (
  t: Test, text: (url: string) => string = (url) => yaml([url]), options: GatewayTestOptions = {}
): Promise<TestGateway> {
  const up = await upstream(t, (received) => received.body?.['system'] === 'fail'
    ? errorReply(400, 'invalid_request_error', 'no')
    : answer('Hello'))
  return await gateway(t, text(up.url), options)
}

const send = async (own: TestGateway, more: object = {}): Promise<number> => {
  const got = await own.messages({ ...messagesRequest, ...more })
  await got.text()
  return got.status
}

for (const driver of ['memory', 'embedded']) {
  void t.test(`${driver}: requests, errors, money and tokens of the last minutes and of the last day, as the ledger has them`, async (t) => {
    const own = await serving(t, (url) => yaml([url]).replace('driver: memory', `driver: ${driver}`))
    t.match(await summary(own), { live: { requests: 0, first_token_ms: null }, day: { requests: 0 }, open_holds: 0,
      upstreams: { targets: 1 }, config: { generation: 1, is_refused: false } })
    t.strictSame((await summary(own)).problems, [])
    for (let i = 0; i < 3; i++) t.equal(await send(own), 200)
    t.equal(await send(own, { stream: true }), 200)
    t.equal(await send(own, { system: 'fail' }), 400)
    await (await fetch(`${own.url}/v1/messages`, { method: 'POST', body: '{}' })).text()
    // What was not charged is counted a moment later.
    await until(async () => (await summary(own)).day?.errors === 1)
    const { live, day, open_holds: holds } = await summary(own)
    let [spent, settled] = [0n, 0]
    for await (const { kind, nanos } of own.services.store.entries()) {
      if (kind !== 'settle') continue
      spent -= nanos
      settled++
    }
    t.equal(settled, 4)
    t.equal(live.requests, 5, 'that of a stranger is none')
    t.equal(live.errors, 1)
    t.equal(Math.round(Number(live.spent_usd) * 1e9), Number(spent))
    t.ok(live.input_tokens > 0 && live.output_tokens > 0)
    t.ok(live.first_token_ms !== null && live.first_token_ms.p50 <= live.first_token_ms.p95)
    t.match(day, { requests: 4, errors: 1 })
    t.equal(Math.round(Number(day!.spent_usd) * 1e9), Number(spent))
    t.equal(holds, 0)
  })
}

t.test('the last minutes and the last day go on where a process before has ended, as far as the log of requests reaches', async (t) => {
  const begun = Date.now()
  const own = await serving(t, (url) => yaml([url]).replace('driver: memory', 'driver: embedded'))
  for (let i = 0; i < 3; i++) await send(own, { stream: true })
  await send(own, { system: 'fail', stream: true })
  const { live: before, day } = await until(async () => {
    const told = await summary(own)
    return told.live.requests === 4 && told
  })
  await own.stop()
  const text = readFileSync(own.file, 'utf8').replace('path: ./data', `path: ${dirname(own.file)}/data`)
  const restarted = Date.now()
  const next = await gateway(t, text)
  const { live, day: nextDay } = await until(async () => {
    const told = await summary(next)
    return told.live.requests === 4 && told
  })
  t.strictSame({ ...live, first_token_ms: { ...live.first_token_ms, since: '' } },
    { ...before, first_token_ms: { ...before.first_token_ms, since: '' } })
  t.match(nextDay!.first_token_ms, { p50: day!.first_token_ms!.p50, p95: day!.first_token_ms!.p95 })
  const since = Date.parse(nextDay!.first_token_ms!.since)
  t.ok(since >= begun && since <= restarted, 'and from when on is told')
  await next.stop()
  const without = await gateway(t, text.replace('pipeline:', 'log: { requests: { keep: 0 } }\npipeline:'))
  await send(without, { stream: true })
  const { first_token_ms: first } = (await until(async () => {
    const told = await summary(without)
    return told.live.requests > 0 && told
  })).live
  t.ok(Date.parse(first!.since) >= restarted, 'without the log it is the start')
})

t.test('what needs somebody: a refused configuration, a target that is out, a balance that does not last, a store that is away', async (t) => {
  const now = Date.parse('2027-01-15T12:00:00Z')
  const own = await serving(t, (url) => yaml([url]).replace('opening_balance_usd: 100', 'opening_balance_usd: 0.01'),
    { now: () => now })
  const codes = async (): Promise<readonly string[]> => (await summary(own)).problems.map(({ code }) => code)
  const text = readFileSync(own.file, 'utf8')
  await own.rewrite(text.replace('kind: text', 'kind: txt'))
  t.strictSame(await codes(), ['config_refused'])
  t.equal((await summary(own)).config.is_refused, true)
  await own.rewrite(text)
  t.strictSame(await codes(), [])
  const { store } = own.services
  for (let i = 0; i < 5; i++) {
    await store.hold({ request_id: `r${i}`, account: 'acme', key: 'acme-dev', nanos: 1_800_000n })
    await store.settle({ request_id: `r${i}`, nanos: 1_800_000n, model: 'm1', channel: 'premium',
      usage_source: 'provider', usage: { input: 1, cache_read: 0, cache_write_5m: 0, cache_write_1h: 0, output: 1,
        extras: {} } })
  }
  // Of a cent nine tenths were spent in 36 hours: the rest lasts for four.
  t.strictSame((await summary(own)).low_balances, [{ account: 'acme', available_usd: '0.001', hours_left: 4 }])
  t.strictSame(await codes(), ['low_balance'])
  const { rollups } = store
  Object.assign(store, { rollups: () => { throw new Error('away') } })
  const without = await summary(own)
  Object.assign(store, { rollups })
  t.equal(without.day, null)
  t.strictSame(without.problems.map(({ code }) => code), ['store_away'])
})

t.test('a target whose breaker is open is out, and why', async (t) => {
  const up = await upstream(t, errorReply(500, 'api_error', 'no'))
  const own = await gateway(t, yaml([up.url]).replace('failures: 1000000', 'failures: 2'))
  for (let i = 0; i < 4; i++) await send(own)
  t.match(await summary(own), { upstreams: { targets: 1, out: [{ upstream: 'u0', model: 'vendor-m1', breaker: 'open',
    cause: 'status 500' }] },
  problems: [{ code: 'target_out', message: /^u0 is not asked for vendor-m1 now: status 500/ }] })
})

t.test('what is over for a while is forgotten, and workers are added up', async (t) => {
  let now = Date.parse('2027-01-15T12:00:00Z')
  const lately = new Lately(() => now)
  const ended = { key_id: 'k', outcome: 'completed', code: 'ok', by: undefined, nanos: 5n, stream: true,
    first_byte_ms: 120, usage: { input: 1, cache_read: 2, cache_write_5m: 3, cache_write_1h: 4, output: 7, extras: {} }
  } as const
  lately.record(ended)
  t.match(lately.view(), { total: 1, now: { requests: 1, errors: 0, nanos: 5, input_tokens: 10, output_tokens: 7 } })
  lately.record({ ...ended, outcome: 'interrupted', by: 'client' })
  lately.record({ ...ended, outcome: 'failed', code: 'client_closed' })
  t.equal(lately.view().now.errors, 0, 'who left is no error')
  lately.record({ ...ended, outcome: 'failed', code: 'server_error' })
  lately.record({ ...ended, outcome: 'interrupted', by: 'upstream' })
  t.equal(lately.view().now.errors, 2)
  now += 5 * 60_000
  t.match(lately.view(), { total: 5, now: { requests: 0 }, day: { requests: 5 } })
  now += 24 * 3_600_000 - 5 * 60_000
  t.match(lately.view().day, { requests: 0 })
  lately.record(ended)
  t.match(lately.view().day, { requests: 1, nanos: 5 }, 'its minute was that of a day ago, and is empty now')
  t.equal(lately.view().day.since, Math.floor(now / 60_000 - 1439) * 60_000, 'from the first minute of the day on')
  const recalled = { ...logged, request_id: idAt(now - 3_600_000), duration_ms: 500 }
  const young = new Lately(() => now)
  t.match(young.view().day, { since: now, requests: 0 })
  young.recall(recalled)
  young.recall({ ...recalled, request_id: idAt(now - 600_000) })
  young.recall({ ...recalled, request_id: idAt(now - 25 * 3_600_000) })
  t.match(young.view(), { total: 0, now: { requests: 0, since: now - 4 * 60_000 },
    day: { since: now - 3_600_000 + 500, requests: 2, errors: 0, nanos: 10, input_tokens: 20, output_tokens: 14 } })
  t.equal(young.view().day.first_token.reduce((sum, count) => sum + count), 2)
  const both = mergedLately([lately.view(), lately.view()])
  t.match(both, { total: 12, now: { requests: 2, nanos: 10 }, day: { requests: 2 } })
  t.equal(both.now.first_token.reduce((sum, count) => sum + count), 2)
})

/** A request id of this time. */
function idAt (ms: number): string {
  return beginningOfIds(ms * 1000).padEnd(28, '0')
}

/** As the log of requests has it. */
const logged: LoggedRequest = { request_id: '', account: 'a', key: 'k', model: 'm', code: 'ok', status: 200, route: 'r',
  style: 'messages', channel: null, stream: true, outcome: 'completed', by: null, config_generation: 1,
  first_byte_ms: 120, duration_ms: 0, own_ms: 1, queue_ms: 0, nanos: 5, usage_source: 'provider', begun: 1, attempts: [],
  usage: { input: 1, cache_read: 2, cache_write_5m: 3, cache_write_1h: 4, output: 7, extras: {} } }

t.test('a quantile lies between the bounds that it is found in', async (t) => {
  t.equal(quantile(BOUNDS_MS.map(() => 0), 0.5), undefined)
  const counts = [...BOUNDS_MS.map(() => 0), 0]
  counts[BOUNDS_MS.indexOf(100)] = 10
  t.ok(quantile(counts, 0.5)! > 50 && quantile(counts, 0.5)! <= 100)
  counts[BOUNDS_MS.indexOf(1000)] = 10
  t.ok(quantile(counts, 0.95)! > 800 && quantile(counts, 0.95)! <= 1000)
  t.ok(quantile(counts, 0.5)! <= 100)
  counts[BOUNDS_MS.length] = 1000
  t.equal(quantile(counts, 0.95), BOUNDS_MS.at(-1))
})

t.test('the key of a client does not open it', async (t) => {
  const own = await serving(t)
  const got = await fetch(`${own.urls.admin}/admin/v1/summary`, { headers: { authorization: `Bearer ${KEY}` } })
  t.equal(got.status, 401)
})

void t.test('differences of the ledger are shown until a verification finds none', async (t) => {
  const own = await serving(t)
  t.match(await summary(own), { store: { differences: null }, problems: [] })
  own.services.metrics.verified(2)
  t.match(await summary(own), { store: { differences: 2 }, problems: [{ code: 'ledger_differs', message: /^2 balances/ }] })
  own.services.metrics.verified(0)
  t.match(await summary(own), { store: { differences: 0 } })
  t.strictSame((await summary(own)).problems, [])
})
