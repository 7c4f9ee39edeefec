// The limits of a key per day and month, over real sockets on a clock that the test sets: where days begin and end in
// two zones, what a refusal says, what is charged to which day, what the admin API shows, and that nothing passes a
// limit.
import t from 'tap'
import { plugins } from '../../plugins/index.ts'
import { calendarOf } from '../../src/money/calendar.ts'
import { startGateway } from '../../src/gateway/gateway.ts'
import { ask, errorOf, type Got } from '../support/billing-client.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { folderFor, run } from '../support/spawned.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, messageStart, stall, textDelta, upstream, wait } from '../support/upstream.ts'

const OTHER = 'sk-gw-' + 'o'.repeat(32)
const ALL =
  'auth, key-policy, rate-limit, chat-to-messages, channel-router, billing-meter: { low_balance_usd: 0 }, error-normalize'

/**
 * 1000 × 15000 nano-dollars are held for its output, and as many charged; input is held by its bytes, and 10 × 3000 are
 * charged.
 */
const request = { ...messagesRequest, max_tokens: 1000 }
const usage = { input_tokens: 10, output_tokens: 1000 }
const COST = 15_030_000n
/** enough for one of them, and not for two */
const ONE = '0.02'
const LEFT = '0.00497'

function put (
  running: TestGateway,
  { secret = KEY, stream = false, ...more }: { readonly secret?: string, readonly stream?: boolean,
    readonly max_tokens?: number } = {}
): Promise<Got> {
  return ask(running.url + '/v1/messages', { ...request, ...more, stream }, { headers: { 'x-api-key': secret } })
}

async function statusOf (running: TestGateway, secret = KEY): Promise<number> {
  return (await put(running, { secret })).status
}

/** @param settings of the only key */
function limited (url: string, settings: string): string {
  return yaml([url], '', ALL).replace('account: acme, secret', `account: acme, ${settings}, secret`)
}

async function admin (
  running: TestGateway,
  method: string,
  path: string,
  body?: unknown
): Promise<Record<string, unknown>> {
  const got = await fetch(running.urls.admin + '/admin/v1' + path, { method,
    headers: { authorization: 'Bearer test-admin-token' }, ...(body !== undefined && { body: JSON.stringify(body) }) })
  return await got.json() as Record<string, unknown>
}

const HOUR = 3_600_000

void t.test('a day\'s limit opens again when the day ends there: of 23 hours, of 25, and where midnight is left out', async (t) => {
  const up = await upstream(t, answer('hi', { usage }))
  for (const [zone, from, hours, end] of [
    ['Europe/Berlin', '2026-03-28T23:00Z', 23, '2026-03-30 00:00'],
    ['Europe/Berlin', '2026-10-24T22:00Z', 25, '2026-10-26 00:00'],
    ['America/New_York', '2026-03-08T05:00Z', 23, '2026-03-09 00:00'],
    ['America/New_York', '2026-11-01T04:00Z', 25, '2026-11-02 00:00'],
    ['America/Sao_Paulo', '2018-11-03T03:00Z', 24, '2018-11-04 01:00']
  ] as const) {
    await t.test(`${zone}, ${hours} hours until ${end}`, async (t) => {
      const begin = Date.parse(from)
      let time = begin - 1
      const running = await gateway(t, limited(up.url, `usage_limit_day_usd: ${ONE}, time_zone: ${zone}`), {
        now: () => time
      })
      t.equal(await statusOf(running), 200, 'the last millisecond of the day before')
      t.equal(await statusOf(running), 402)
      time = begin
      t.equal(await statusOf(running), 200)
      for (const later of [0, hours * HOUR / 2, hours * HOUR - 1]) {
        time = begin + later
        const got = await put(running)
        t.strictSame([got.status, errorOf(got)?.code, errorOf(got)?.charged_usd], [402, 'insufficient_quota', '0'])
        t.ok(
          errorOf(got)!.message.includes(
            `, and the key's limit of $${ONE} for the day that ends at ${end} ${zone} has $${LEFT} left. Lower max_tokens, or raise the limit, or wait until then. Request ID: `
          ),
          errorOf(got)!.message
        )
      }
      time = begin + hours * HOUR
      t.equal(await statusOf(running), 200)
      t.strictSame((await running.services.store.verify()).differences, [])
    })
  }
})

void t.test('a month\'s limit holds to its end, over days that are longer', async (t) => {
  const up = await upstream(t, answer('hi', { usage }))
  let time = Date.parse('2026-09-30T21:59:59.999Z')
  const running = await gateway(t, limited(up.url, `usage_limit_month_usd: ${ONE}, time_zone: Europe/Berlin`), {
    now: () => time
  })
  t.equal(await statusOf(running), 200, 'September')
  t.equal(await statusOf(running), 402)
  time++
  t.equal(await statusOf(running), 200, 'October')
  for (const at of ['2026-10-01T22:00Z', '2026-10-25T12:00Z', '2026-10-31T22:59:59.999Z']) {
    time = Date.parse(at)
    t.match(errorOf(await put(running))?.message,
      `the key's limit of $${ONE} for the month that ends at 2026-11-01 00:00 Europe/Berlin has $${LEFT} left.`)
  }
  time++
  t.equal(await statusOf(running), 200, 'November')
  t.strictSame((await running.services.store.verify()).differences, [])
})

for (const stream of [false, true]) {
  void t.test(`what is asked before midnight and answered after it is of the day before: ${stream ? 'SSE' : 'JSON'}`, async (t) => {
    const asked = Promise.withResolvers<undefined>()
    const midnight = Promise.withResolvers<undefined>()
    let isFirst = true
    const up = await upstream(t, () => {
      if (!isFirst) return answer('hi', { usage })
      isFirst = false
      asked.resolve(undefined)
      return [wait(midnight.promise), answer('hi', { usage })]
    })
    let time = Date.parse('2026-06-30T21:59:00Z')
    const running = await gateway(t,
      limited(up.url, `usage_limit_day_usd: ${ONE}, usage_limit_month_usd: 5, time_zone: Europe/Berlin`), {
      now: () => time
    })
    const { store } = running.services
    const late = put(running, { stream })
    await asked.promise
    time += 2 * 60_000
    t.equal(await statusOf(running), 200, 'the new day is whole')
    midnight.resolve(undefined)
    t.equal((await late).ended, 'whole')
    await until(async () => await store.openHolds() === 0)
    for (const period of ['2026-06-30', '2026-06', '2026-07-01', '2026-07']) {
      t.strictSame(await store.keyUsage('acme-dev', period), { spent: COST, held: 0n }, period)
    }
    time -= 2 * 60_000
    t.equal(await statusOf(running), 402, 'and the old one is used up')
  })
}

void t.test('a stream is cut in-band where the day\'s limit ends, and says so', async (t) => {
  const up = await upstream(
    t,
    [
      messageStart({ usage: { input_tokens: 10 } }),
      blockStart(0),
      ...Array.from({ length: 400 }, (_, i) => textDelta(0, `word${i} `))
    ]
  )
  const time = Date.parse('2026-06-30T12:00:00Z')
  const running = await gateway(t, limited(up.url, 'usage_limit_day_usd: 0.003'), { now: () => time })
  const got = await put(running, { stream: true, max_tokens: 60_000 })
  const error = errorOf(got)
  t.match(error, { code: 'insufficient_quota',
    message:
      /than the \$0\.003 that the key's limit of \$0\.003 for the day that ends at 2026-07-01 00:00 UTC has for it\. Only the tokens that came are charged\. Raise the limit, or wait until then, or lower max_tokens\. / })
  const { spent } = await until(async () => {
    const now = await running.services.store.keyUsage('acme-dev', '2026-06-30')
    return now.held === 0n && now
  })
  t.ok(spent > 2_000_000n && spent <= 3_000_000n, `${spent} were charged`)
})

for (const name of ['day', 'month']) {
  void t.test(`parallel JSON requests and streams never pass the limit of a ${name}`, async (t) => {
    const limit = 70_000_000n
    const time = Date.parse('2026-06-30T12:00:00Z')
    const period = '2026-06-30'.slice(0, name === 'day' ? 10 : 7)
    const booted = Promise.withResolvers<TestGateway>()
    const up = await upstream(t, async () => {
      const { spent, held } = await (await booted.promise).services.store.keyUsage('acme-dev', period)
      if (spent + held > limit) t.fail(`${spent} spent and ${held} held of ${limit}`)
      return answer('hi', { usage: { input_tokens: 10, output_tokens: 700 } })
    })
    const running = await gateway(t, limited(up.url, `usage_limit_${name}_usd: 0.07`), { now: () => time })
    booted.resolve(running)
    const { store } = running.services
    const got: Got[] = []
    for (let isServed = true; isServed;) {
      const round = await Promise.all(Array.from({ length: 60 }, (_, i) => put(running, { stream: i % 2 === 0 })))
      got.push(...round)
      await until(async () => await store.openHolds() === 0)
      isServed = round.some(({ status, events }) => status === 200 && events.at(-1)?.event !== 'error')
    }
    const { spent } = await store.keyUsage('acme-dev', period)
    t.ok(spent <= limit && spent > limit - 2n * COST, `${spent} of ${limit}`)
    t.ok(got.some((one) => errorOf(one)?.code === 'rate_limited'),
      'who was refused for the others\' holds only may come again')
    t.ok(got.some((one) => errorOf(one)?.code === 'insufficient_quota'))
    t.strictSame((await store.verify()).differences, [])
  })
}

void t.test('a day\'s spending is there after a restart, and so is its limit', async (t) => {
  const up = await upstream(t, answer('hi', { usage }))
  let time = Date.parse('2026-03-29T01:30Z')
  const first = await gateway(t,
    limited(up.url, `usage_limit_day_usd: ${ONE}, time_zone: Europe/Berlin`).replace('driver: memory',
      'driver: embedded'), { now: () => time })
  t.equal(await statusOf(first), 200)
  await first.stop()
  const again = await startGateway({ file: first.file, plugins,
    pluginsUrl: new URL('../../plugins/index.ts', import.meta.url).href, log: first.services.log, now: () => time })
  t.teardown(() => again.stop())
  const second = Object.assign(Object.create(again) as TestGateway, { url: again.urls.api })
  t.equal(await statusOf(second), 402)
  time = Date.parse('2026-03-29T22:00Z')
  t.equal(await statusOf(second), 200)
  t.match(await admin(second, 'GET', '/ledger?key=acme-dev'), {
    data: [{ day: '2026-03-29', reference: String }, { day: '2026-03-30' }]
  })
  t.match(await admin(second, 'POST', '/ledger/verify'), { ok: true })
})

void t.test('a kill between two requests, and in the middle of one, leaves the day what was answered', async (t) => {
  const hangs = Promise.withResolvers<undefined>()
  let calls = 0
  const up = await upstream(t, () => {
    if (++calls === 1) return answer('hi', { usage })
    hangs.resolve(undefined)
    return stall()
  })
  // The process has the machine's clock: where it is about noon now, no midnight comes between.
  const hours = new Date().getUTCHours() - 12
  const zone = hours === 0 ? 'UTC' : `Etc/GMT${hours > 0 ? '+' : ''}${hours}`
  const text = limited(up.url, `usage_limit_day_usd: 0.034, time_zone: ${zone}`).replace('driver: memory',
    'driver: embedded').replace('path: ./data', 'path: ./data, windows: forget')
  const folder = folderFor(t, { 'gateway.yaml': text })
  const start = async (): Promise<{ readonly running: TestGateway, kill (): Promise<unknown> }> => {
    const spawned = run(t, folder, ['start', '--config', 'gateway.yaml'])
    const urls = await spawned.urls()
    return { running: { url: urls.api, urls } as unknown as TestGateway, kill: async () => {
      spawned.child.kill('SIGKILL')
      await spawned.ended
    } }
  }
  const first = await start()
  t.equal(await statusOf(first.running), 200)
  const lost = put(first.running)
  await hangs.promise
  t.match(await admin(first.running, 'GET', '/keys/acme-dev'), {
    this_day: { spent_usd: '0.01503', held_usd: /^0\.015/ }
  })
  await first.kill()
  t.equal((await lost).ended, 'cut')

  const { running } = await start()
  t.match(await admin(running, 'GET', '/keys/acme-dev'), { this_day: { spent_usd: '0.01503', held_usd: '0' },
    this_month: { spent_usd: '0.01503' } })
  t.match(await admin(running, 'POST', '/ledger/verify'), { ok: true, differences: [] })
  t.match(errorOf(await put(running, { max_tokens: 1300 }))?.message,
    `the key's limit of $0.034 for the day that ends at`)
})

void t.test('the admin API makes such limits, changes them, and shows what is left and until when', async (t) => {
  const up = await upstream(t, answer('hi', { usage }))
  let time = Date.parse('2026-10-24T22:30Z')
  const running = await gateway(t, yaml([up.url], '', ALL), { now: () => time })
  const made = await admin(running, 'POST', '/keys', { id: 'k', account: 'acme', time_zone: 'Europe/Berlin' })
  t.match(made, {
    warnings: [{ path: '/time_zone', message: 'changes nothing: the key has no limit per day or month' }]
  })
  const secret = made['secret'] as string
  t.equal(await statusOf(running, secret), 200, 'before there is a limit')

  t.match(await admin(running, 'PATCH', '/keys/k', { usage_limit_day_usd: ONE, usage_limit_month_usd: '0.05' }), {
    usage_limit_day_usd: ONE,
    usage_limit_month_usd: '0.05',
    time_zone: 'Europe/Berlin',
    spent_usd: '0.01503',
    remaining_usd: null,
    this_day: { day: '2026-10-25', spent_usd: '0.01503', held_usd: '0', remaining_usd: LEFT,
      resets_at: '2026-10-25T23:00:00.000Z' },
    this_month: { month: '2026-10', spent_usd: '0.01503', remaining_usd: '0.03497',
      resets_at: '2026-10-31T23:00:00.000Z' }
  })
  t.equal(await statusOf(running, secret), 402, 'what was spent since midnight counts for a limit that is set at noon')
  time = Date.parse('2026-10-25T23:00Z')
  t.equal(await statusOf(running, secret), 200)
  const left = { this_day: { day: '2026-10-26', spent_usd: '0.01503', remaining_usd: LEFT },
    this_month: { spent_usd: '0.03006', remaining_usd: '0.01994' } }
  t.match(await admin(running, 'GET', '/keys/k'), left)
  t.match(await admin(running, 'GET', '/usage?account=acme'), { data: [
    { key: 'acme-dev', usage_limit_day_usd: null, time_zone: 'UTC',
      this_day: { day: '2026-10-25', remaining_usd: null, resets_at: '2026-10-26T00:00:00.000Z' } },
    { key: 'k', usage_limit_day_usd: ONE, time_zone: 'Europe/Berlin', ...left }
  ] })
  t.match(await admin(running, 'GET', '/ledger?key=k'), { data: [{ day: '2026-10-25' }, { day: '2026-10-26' }] })

  t.match(await admin(running, 'PATCH', '/keys/k', { usage_limit_day_usd: '0.001' }), {
    this_day: { remaining_usd: '0' }
  }, 'lowered below what was spent')
  t.match(
    await admin(running, 'PATCH', '/keys/k', { usage_limit_day_usd: null, usage_limit_month_usd: null,
      time_zone: null }),
    { this_day: { day: '2026-10-25', remaining_usd: null } }
  )
  t.equal(await statusOf(running, secret), 200)
  for (const [wrong, said] of [
    [{ time_zone: 'Europe/Berln', usage_limit_day_usd: '1' },
      /must be the name of a time zone such as Europe\/Berlin, found "Europe\/Berln" \(did you mean "Europe\/Berlin"\?\)/],
    [{ usage_limit_day_usd: 5 }, /write it as a text/],
    [{ usage_limit_month_usd: '0.0000000001' }, /at most 9 decimals/]
  ] as const) {
    t.match(await admin(running, 'PATCH', '/keys/k', wrong), { error: { code: 'invalid_request', message: said } })
  }
  const { components } = await admin(running, 'GET', '/openapi.json') as { components: { schemas: object } }
  t.match(components.schemas, { NewKey: { properties: { usage_limit_month_usd: {}, time_zone: {} } } })
})

void t.test('two keys of one account have days of their own', async (t) => {
  const up = await upstream(t, answer('hi', { usage }))
  const time = Date.parse('2026-06-30T12:00:00Z')
  const running = await gateway(t, limited(up.url, `usage_limit_day_usd: ${ONE}`) +
    `  - { id: kiribati, account: acme, secret: ${OTHER}, usage_limit_day_usd: ${ONE}, time_zone: Pacific/Kiritimati }\n`,
    { now: () => time })
  t.strictSame(
    [await statusOf(running), await statusOf(running, OTHER), await statusOf(running), await statusOf(running, OTHER)],
    [200, 200, 402, 402]
  )
  t.equal(calendarOf('Pacific/Kiritimati').dayAt(time).id, '2026-07-01')
  t.match((await put(running, { secret: OTHER })).body, {
    error: { message: /ends at 2026-07-02 00:00 Pacific\/Kiritimati has/ }
  })
})
