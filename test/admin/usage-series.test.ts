// GET /usage/series and the newest entries, over real sockets: what requests have cost is in them, whatever becomes of
// the key; time zones, ranges, tables for spreadsheets, and what is refused.
import fc from 'fast-check'
import t from 'tap'
import { csvOf } from '../../src/admin/api/csv.ts'
import { AdminApi } from '../../src/admin/api/api.ts'
import type { ApiParts } from '../../src/admin/api/operation.ts'
import { Refusal } from '../../src/admin/api/refusal.ts'
import { noUsage } from '../../src/money/usage.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import { judge } from '../support/admin-answers.ts'
import { request, settlement } from '../support/embedded-store.ts'
import { gateway, messagesRequest, yaml } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, upstream } from '../support/upstream.ts'

const NOON = Date.UTC(2026, 10, 22, 12)
const HOUR = 3_600_000
const DAY = 24 * HOUR

interface Series {
  readonly from: string
  readonly to: string
  readonly data: readonly Readonly<Record<string, unknown>>[]
  readonly total: Readonly<Record<string, unknown>>
}

/** The API on a store, without sockets; each answer is judged by the document. */
function api (store: MemoryStore, now: () => number): {
  ask (address: string): Promise<Series>
  refusal (address: string): Promise<string>
} {
  const parts = { services: { store, now, directory: {} }, plugins: new Map() }
  const whole = new AdminApi(parts as unknown as ApiParts)
  const ask = async (address: string): Promise<Series> => {
    const { pathname: path, searchParams: query } = new URL(address, 'http://x/')
    const asked = { method: 'GET', path: `/admin/v1${path}` }
    const { status, body } = await whole.answer({ ...asked, query, body: undefined,
      by: { who: 'test', role: 'viewer', address: '' } })
    const wrong = judge({ ...asked, status, text: JSON.stringify(body),
      headers: { 'x-request-id': 'r', 'content-type': 'application/json' } })
    if (wrong !== undefined) throw new Error(wrong)
    return body as Series
  }
  return {
    ask,
    async refusal (address) {
      try { await ask(address) } catch (thrown) {
        if (thrown instanceof Refusal && thrown.status === 400) return thrown.message
        throw thrown
      }
      throw new Error(`${address} was answered`)
    }
  }
}

function charge (store: MemoryStore, id: string, nanos: bigint, more: object = {}, key = 'dev'): void {
  store.hold(request(id, 1_000_000n, { key }))
  void store.settle(settlement(id, nanos, { usage: { ...noUsage, input: 3, output: 2 }, ...more }))
}

function newStore (now: () => number): MemoryStore {
  const store = new MemoryStore(now)
  store.credit('acme', 'c', 1_000_000_000n)
  return store
}

for (const driver of ['memory', 'embedded']) {
  void t.test(`${driver}: requests of a key are in its series, errors too, and stay when it is deleted`, async (t) => {
    const up = await upstream(t, answer('Hello'))
    const own = await gateway(t, yaml([up.url], '', 'auth, key-policy, rate-limit, channel-router, billing-meter, error-normalize')
      .replace('driver: memory', `driver: ${driver}`))
    const ask = async (path: string, more: RequestInit = {}): Promise<Response> =>
      await fetch(`${own.urls.admin}/admin/v1${path}`, { ...more,
        headers: { authorization: 'Bearer test-admin-token', ...more.headers } })
    const say = async (secret: string, body: object = messagesRequest): Promise<number> => {
      const got = await own.messages(body as typeof messagesRequest, { headers: { 'x-api-key': secret } })
      await got.text()
      return got.status
    }
    const made = await ask('/keys', { method: 'POST', body: '{"id":"brief","account":"acme"}' })
    const { secret } = await made.json() as { readonly secret: string }
    for (let i = 0; i < 3; i++) t.equal(await say(secret), 200)
    t.equal(await say(secret, { ...messagesRequest, model: 'none' }), 400)
    t.equal(await say(secret, { ...messagesRequest, stream: 'yes' }), 400)
    t.equal(await say('sk-gw-' + 'x'.repeat(32)), 401, 'nobody\'s')
    t.equal((await fetch(`${own.urls.api}/v1/models`, { headers: { 'x-api-key': secret } })).status, 200)
    const explained = await ask('/explain', { method: 'POST',
      body: JSON.stringify({ key: 'brief', body: { ...messagesRequest, model: 'none' } }) })
    t.equal(explained.status, 200)
    await ask('/keys/brief', { method: 'DELETE' })
    const url = '/usage/series?group=key,model,channel&by=day'
    // Errors are counted with the next write, or a second later.
    const found = await until(async () => {
      const series = await (await ask(url)).json() as Series
      return series.total['errors'] === 2 ? series : undefined
    })
    t.match(found.data, [
      { key: 'brief', model: null, channel: null, requests: 0, errors: 1, charged_usd: '0' },
      { key: 'brief', model: 'm1', channel: null, requests: 0, errors: 1, charged_usd: '0' },
      { key: 'brief', model: 'm1', channel: 'premium', requests: 3, errors: 0, shortfall_usd: '0',
        charged_usd: /^0\.0*[1-9]/ }
    ])
    const entries = await (await ask('/ledger?order=newest&key=brief&limit=2')).json() as {
      readonly data: readonly Record<string, string>[], readonly next: string }
    t.match(entries.data, [{ kind: 'settle', key: 'brief' }, { kind: 'settle', key: 'brief' }])
    const rest = await (await ask(`/ledger?order=newest&key=brief&limit=2&after=${entries.next}`)).json()
    t.match(rest, { data: [{ kind: 'settle' }], next: null })
    const charged = entries.data.concat((rest as typeof entries).data)
      .reduce((sum, { amount_usd: usd }) => sum - Number(usd), 0)
    t.equal(Number(found.total['charged_usd']).toFixed(9), charged.toFixed(9))
    const csv = await ask(url, { headers: { accept: 'text/csv' } })
    t.match(csv.headers.get('content-type'), 'text/csv')
    t.match(await csv.text(), /^period,from,key,model,channel,requests,errors,input,.*\r\n20\S+,brief,/)
    t.match(await (await ask('/ledger/verify', { method: 'POST' })).json(), { ok: true })
    t.equal((await fetch(`${own.urls.admin}/admin/v1/usage/series`)).status, 401)
  })
}

void t.test('hours, days and months, of one and of all, with a total', async (t) => {
  let time = NOON - 60 * DAY
  const store = newStore(() => time)
  const { ask } = api(store, () => time)
  charge(store, 'old', 5n, { model: 'gone' })
  time = NOON
  charge(store, 'r1', 10n)
  charge(store, 'r2', 20n, { usage: { ...noUsage, extras: { image: 2 } } }, 'ops')
  time += HOUR
  await store.refund('r1')
  store.failed({ account: 'acme', key: 'dev', model: '' })
  const none = { ...noUsage }
  t.match(await ask('/usage/series?by=hour&group=key'), {
    from: '2026-11-21T14:00:00.000Z', to: '2026-11-22T14:00:00.000Z',
    data: [
      { period: '2026-11-22 12:00', from: '2026-11-22T12:00:00.000Z', key: 'dev', requests: 1, errors: 0,
        usage: { input: 3, output: 2, extras: {} }, charged_usd: '0.00000001', shortfall_usd: '0' },
      { period: '2026-11-22 12:00', key: 'ops', usage: { ...none, extras: { image: 2 } }, charged_usd: '0.00000002' },
      { period: '2026-11-22 13:00', key: 'dev', requests: 0, errors: 1, charged_usd: '-0.00000001' }
    ],
    total: { requests: 2, errors: 1, usage: { input: 3, extras: { image: 2 } }, charged_usd: '0.00000002' }
  })
  t.match(await ask('/usage/series?by=month&group=model&from=2026-01-01'), {
    from: '2026-01-01T00:00:00.000Z', to: '2026-12-01T00:00:00.000Z', by: 'month', group: ['model'],
    data: [{ period: '2026-09', model: 'gone', requests: 1 }, { period: '2026-11', model: null, errors: 1 },
      { period: '2026-11', model: 'm', requests: 2, charged_usd: '0.00000002' }]
  })
  t.match((await ask('/usage/series?from=2026-11-22&to=2026-11-23&key=ops')).data, [{ period: '2026-11-22', requests: 1 }])
  t.strictSame((await ask('/usage/series?from=2026-11-21&to=2026-11-22')).data, [], '`to` is not included')
  t.match((await ask('/usage/series?by=hour&from=2026-11-22T12:59:59Z&to=2026-11-22T13:00:00Z')).data,
    [{ requests: 2 }], 'periods are whole')
  t.match(await ask('/ledger?order=newest&from=2026-11-22&model=m&limit=1'), { data: [{ kind: 'adjust' }] })
  t.match(await ask('/ledger?order=newest&reference=r2'), { data: [{ kind: 'settle', reference: 'r2' }], next: null })
})

void t.test('days of another time zone are made of hours, which belong to the day in which they begin', async (t) => {
  let time = Date.UTC(2026, 10, 21, 22, 59)
  const store = newStore(() => time)
  const { ask } = api(store, () => time)
  charge(store, 'late', 1n)                                    // 23:59 in Berlin, 04:29 of the next day in Kolkata
  time = Date.UTC(2026, 10, 21, 23, 0)
  charge(store, 'midnight', 2n)                                // 00:00 in Berlin
  time = Date.UTC(2026, 10, 22, 18, 45)
  charge(store, 'half', 4n)                                    // 00:15 in Kolkata, in an hour that began before midnight
  const days = async (zone: string): Promise<unknown[]> =>
    (await ask(`/usage/series?time_zone=${zone}`)).data.map(({ period, charged_usd: usd }) => [period, usd])
  t.strictSame(await days('UTC'), [['2026-11-21', '0.000000003'], ['2026-11-22', '0.000000004']])
  t.strictSame(await days('Europe/Berlin'), [['2026-11-21', '0.000000001'], ['2026-11-22', '0.000000006']])
  t.strictSame(await days('Asia/Kolkata'), [['2026-11-22', '0.000000007']])
  t.match((await ask('/usage/series?time_zone=Europe/Berlin&from=2026-11-22&to=2026-11-23')).from,
    '2026-11-21T23:00:00.000Z')
  t.match((await ask('/usage/series?by=hour&time_zone=Asia/Kolkata')).data.at(-1), { period: '2026-11-22 23:30' })
})

void t.test('the days of any zone are all that was charged in them', async (t) => {
  const zones = ['UTC', 'Europe/Berlin', 'America/St_Johns', 'Pacific/Apia', 'Asia/Kathmandu', 'Pacific/Kiritimati']
  const minutes = fc.array(fc.nat(6 * 24 * 60), { maxLength: 20 })
  await t.resolves(fc.assert(fc.asyncProperty(fc.constantFrom(...zones), minutes,
    async (zone, minutes) => {
      let time = NOON
      const store = newStore(() => time)
      const { ask } = api(store, () => time)
      const wanted = new Map<string, bigint>()
      for (const [i, minute] of minutes.toSorted((a, b) => a - b).entries()) {
        time = NOON + minute * 60_000
        charge(store, `r${i}`, 1n)
        const hour = new Date(time - time % HOUR)
        const day = new Intl.DateTimeFormat('sv-SE', { timeZone: zone, dateStyle: 'short' }).format(hour)
        wanted.set(day, (wanted.get(day) ?? 0n) + 1n)
      }
      const { data } = await ask(`/usage/series?time_zone=${zone}`)
      const found = data.map(({ period, charged_usd: usd }) => [period, usd])
      const right = [...wanted].map(([day, nanos]) => [day, `0.${String(nanos).padStart(9, '0').replace(/0+$/, '')}`])
      if (JSON.stringify(found) !== JSON.stringify(right)) throw new Error(`${JSON.stringify(found)} ${JSON.stringify(right)}`)
    }), { numRuns: 60 }))
})

void t.test('what can not be answered is refused with what to do', async (t) => {
  const store = newStore(() => NOON)
  const { refusal } = api(store, () => NOON)
  for (const [query, says] of [
    ['by=week', /by knows no "week": it takes hour, day, month\./],
    ['group=key,modle', /group knows no "modle"/],
    ['format=xml', /format knows no "xml": it takes json, csv/],
    ['time_zone=Mars/Base', /time_zone must be the name of a time zone/],
    ['time_zone=%2B02:00', /time_zone must be/],
    ['from=yesterday', /from must be a day such as 2026-11-21, or an instant/],
    ['from=2026-02-30', /from must be a day/],
    ['to=2026-11-21T25:00:00Z', /to must be a day/],
    ['from=2026-11-22&to=2026-11-20', /`from` must be before `to`/],
    ['from=1990-01-01', /A range may have 10 years/],
    ['by=hour&from=2026-11-15', /Hours are kept for 7 days[^]*2026-11-15T12:00:00.000Z or later/],
    ['time_zone=Europe/Berlin&from=2026-11-10', /Hours are kept for 7 days[^]*days or months in UTC/],
    ['by=month&time_zone=Europe/Berlin', /Hours are kept for 7 days/],
    ['tiem_zone=UTC', /did you mean "time_zone"/]
  ] as const) t.match(await refusal(`/usage/series?${query}`), says, query)
  for (const [query, says] of [
    ['order=upwards', /order must be oldest or newest/], ['model=m', /model is for the newest entries: send order=newest/],
    ['order=newest&from=x', /from must be a day/], ['order=newest&after=x', /after must be the id of an entry/]
  ] as const) t.match(await refusal(`/ledger?${query}`), says, query)
  for (let i = 0; i <= 10_000; i++) charge(store, `r${i}`, 0n, {}, `key-${i}`)
  t.match(await refusal('/usage/series?group=key'), /more than 10000 rows/)
  t.match(await refusal('/usage/series?group=key&format=csv'), /more than 10000 rows/)
})

void t.test('a table says nothing that a spreadsheet would compute, and reads as it was written', async (t) => {
  t.equal(csvOf([['=1+1', '@x'], ['-cmd', '-0.5'], ['+1', 'x,"y"'], ['\tx', null], [-3, undefined]],
    ['a', 'b']), 'a,b\r\n\'=1+1,\'@x\r\n\'-cmd,-0.5\r\n\'+1,"x,""y"""\r\n\'\tx,\r\n-3,\r\n')
  const cell = fc.string({ unit: fc.constantFrom('a', ',', '"', '\n', '\r', '=', '-', '@', '1', ' ', 'é'), maxLength: 6 })
  t.doesNotThrow(() => {
    fc.assert(fc.property(fc.array(fc.tuple(cell, cell)), (rows) => {
      const text = csvOf(rows, ['a', 'b'])
      const read = readCsv(text).slice(1)
      const plain = (said: string): string => /^'[=+\-@\t\r]/.test(said) ? said.slice(1) : said
      const same = read.length === rows.length &&
        read.every((line, i) => line.every((one, k) => plain(one) === rows[i]![k]))
      if (!same || read.flat().some((one) => /^[=+@\t\r]|^-(?!\d+$)/.test(one))) throw new Error(JSON.stringify([rows, text]))
    }))
  })
})

/** As RFC 4180 reads it. */
function readCsv (text: string): string[][] {
  const cells = [...text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)/g)]
  const lines: string[][] = [[]]
  for (const [, quoted, plain, end] of cells) {
    lines.at(-1)!.push(quoted?.replaceAll('""', '"') ?? plain!)
    if (end === '\r\n') lines.push([])
  }
  return lines.slice(0, -1)
}
