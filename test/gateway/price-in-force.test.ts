// Prices that follow each other: which one holds, for whom, what the lists and the ledger say of it. The clock is the
// test's own.
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { ChannelConfig } from '../../src/config/config.ts'
import { type TextPrice, priceAt, spansOf } from '../../src/money/price-schedule.ts'
import { type TokenPrice, compilePrice, cost } from '../../src/money/price.ts'
import type { Usage } from '../../src/money/usage.ts'
import { parseFrom } from '../../src/base/schedule.ts'
import type { Entry } from '../../src/store/store.ts'
import { ask } from '../support/billing-client.ts'
import { gateway, KEY, messagesRequest, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, blockStop, messageEnd, messageStart, status, textDelta, upstream,
  wait } from '../support/upstream.ts'

const sold = (price: TextPrice): ChannelConfig => ({
  enabled: true,
  maintenance: false,
  sticky: false,
  price,
  targets: [{ upstream: 'u', model: 'm', weight: 1, priority: 0 }]
})

t.test('from when: a day is its midnight in UTC, an instant has a zone, and there is nothing else', async (t) => {
  for (const [text, instant] of [
    ['2027-01-31', '2027-01-31T00:00:00.000Z'],
    ['2028-02-29', '2028-02-29T00:00:00.000Z'],
    ['2027-01-31T18:30:00Z', '2027-01-31T18:30:00.000Z'],
    ['2027-01-31T18:30:00.25Z', '2027-01-31T18:30:00.250Z'],
    ['2027-01-31T00:30:00+02:00', '2027-01-30T22:30:00.000Z'],
    ['2027-12-31T23:59:59-11:30', '2028-01-01T11:29:59.000Z']
  ] as const) { t.equal(new Date(parseFrom(text)!).toISOString(), instant, text) }
  for (const text of ['2027-02-29', '2027-02-30', '2027-04-31', '2027-13-01', '2027-1-1', '2027-01-31T24:00:00Z',
    '2027-01-31T18:00Z', '2027-01-31T18:00:00', '2027-01-31 18:00:00Z', '2027-01-31T18:00:60Z',
    '2027-01-31T18:00:00+15:00', 'tomorrow', '']) {
    t.equal(parseFrom(text), undefined, text)
  }
})

t.test('at every instant one price holds: the last that has begun', async () => {
  const DAY = 86_400_000
  fc.assert(
    fc.property(fc.uniqueArray(fc.integer({ min: 1, max: 2000 }), { minLength: 1, maxLength: 8 }), fc.boolean(),
      fc.integer({ min: 0, max: 2100 * DAY }), (days, isOpen, at) => {
      const begins = days.toSorted((a, b) => a - b)
      const list = begins.map((day, i) => ({
        ...(!(isOpen && i === 0) && { from: new Date(day * DAY).toISOString().slice(0, 10) }),
        input: String(i),
        output: '1'
      }))
      const { from, until: end, written } = priceAt(sold(list), at)
      // Walked the other way, and with nothing but the days.
      let wanted = 0
      begins.forEach((day, i) => {
        if (i > 0 && day * DAY <= at) wanted = i
      })
      const isWithin = (from <= at || wanted === 0) && at < end
      return isWithin && (written as TokenPrice).input === String(wanted)
    })
  )
})

t.test('a single price always holds, and free may be followed by a price', async (t) => {
  t.strictSame(spansOf(sold('free')).map(({ from, until: end }) => [from, end]), [[-Infinity, Infinity]])
  t.strictSame(spansOf(sold({ input: '1', output: '2' })).map(({ from, until: end }) => [from, end]), [[-Infinity,
    Infinity]])
  const list = sold(['free', { from: '2027-01-01', input: '1', output: '2' }])
  t.equal(priceAt(list, Date.parse('2026-12-31T23:59:59.999Z')).price.isFree, true)
  t.equal(priceAt(list, Date.parse('2027-01-01')).price.isFree, false)
})

const decimal = fc.tuple(fc.nat(999), fc.nat(999_999)).map(([whole, fraction]) =>
  `${whole}.${String(fraction).padStart(6, '0')}`
)
const count = fc.nat(1_000_000)

t.test('a version is the price itself: whoever has nothing but it computes the same charge', async () => {
  const prices = fc.record({ input: decimal, output: decimal, cache_read: decimal, cache_write: decimal,
    cache_write_5m: decimal, cache_write_1h: decimal,
    extras: fc.dictionary(fc.stringMatching(/^[a-z_]{1,12}$/), decimal, { maxKeys: 3 }) }, {
    requiredKeys: ['input', 'output']
  })
  const used = fc.record({ input: count, cache_read: count, cache_write_5m: count, cache_write_1h: count,
    output: count })
  fc.assert(fc.property(prices, used, count, (price, classes, uses) => {
    const compiled = compilePrice(price as TokenPrice)
    const usage: Usage = { ...classes,
      extras: Object.fromEntries(Object.keys(price.extras ?? {}).map((name) => [name, uses])) }
    const parts = compiled.version.split(' ').map((part) => part.split('=') as [string, string])
    const read = Object.fromEntries(parts.filter(([name]) => !name.startsWith('extras.')))
    const extras = Object.fromEntries(
      parts.filter(([name]) => name.startsWith('extras.')).map(([name, usd]) => [name.slice('extras.'.length), usd])
    )
    return cost(usage, compilePrice({ ...read, extras } as unknown as TokenPrice)) === cost(usage, compiled)
  }))
})

t.test('one price has one version, whatever its spelling', async (t) => {
  const version = (price: TokenPrice | 'free'): string => compilePrice(price).version
  t.equal(version({ input: '3', output: '15' }), 'input=3 output=15')
  t.equal(version({ input: '3.00', output: '015', cache_read: '3.0', cache_write: '3' }), 'input=3 output=15',
    'a class that costs what input does is not named')
  t.equal(
    version({ input: '3', output: '15', cache_read: '0.30', cache_write_5m: '3.75', cache_write_1h: '6',
      extras: { web_search: '0.01', fetch: '0' } }),
    'input=3 output=15 cache_read=0.3 cache_write_5m=3.75 cache_write_1h=6 extras.fetch=0 extras.web_search=0.01'
  )
  t.equal(version({ input: '3', output: '15', cache_write: '3.75' }),
    'input=3 output=15 cache_write_5m=3.75 cache_write_1h=3.75')
  t.equal(version({ input: '0.000000000001', output: '0' }), 'input=0.000000000001 output=0')
  t.equal(version('free'), 'free')
})

const CHANGE = Date.parse('2099-01-01T00:00:00Z')
const STAGED = '[{ input: 3, output: 15 }, { from: 2099-01-01, input: 6, output: 30, cache_read: 0.6 }]'
const OLD = 'input=3 output=15'
const NEW = 'input=6 output=30 cache_read=0.6'

/** m1 is sold at 3/15, and from the change on at 6/30. */
const staged = (urls: readonly string[], more = ''): string =>
  yaml(urls, more).replace(/price: \{ input: 3.*\}/, `price: ${STAGED}`)

class Clock {
  now = CHANGE - 10_000
  readonly read = (): number => this.now
}

async function entriesOf ({ services: { store } }: TestGateway): Promise<readonly Entry[]> {
  const all: Entry[] = []
  for await (const entry of store.entries()) if (entry.kind === 'settle') all.push(entry)
  return all
}

t.test('the change comes at its instant, without a reload: charges, versions and lists', async (t) => {
  const clock = new Clock()
  const up = await upstream(t, answer('Hello', { usage: { input_tokens: 20, output_tokens: 100 } }))
  const gw = await gateway(t, staged([up.url]), { now: clock.read })
  const lists = async (): Promise<unknown> => {
    const open = await fetch(`${gw.urls.public}/api/public/models-info`)
    const own = await fetch(`${gw.url}/v1/models/info`, { headers: { 'x-api-key': KEY } })
    const { data: [{ input_price_per_1m: input, output_price_per_1m: output, cache_read_price_per_1m: read }] } =
      await open.json() as { data: [Record<string, unknown>] }
    const { data: [{ input_price, output_price }] } = await own.json() as { data: [Record<string, unknown>] }
    return [open.headers.get('cache-control'), [input, output, read], [input_price, output_price]]
  }
  t.strictSame(await lists(), ['public, max-age=10', [3, 15, null], [3, 15]],
    'nobody keeps a list for longer than it is true')
  const before = await gw.messages(messagesRequest)
  t.equal(before.headers.get('x-gateway-cost-usd'), '0.00156')
  clock.now = CHANGE - 1
  t.strictSame(await lists(), ['public, max-age=0', [3, 15, null], [3, 15]])
  clock.now = CHANGE
  t.strictSame(await lists(), ['public, max-age=60', [6, 30, 0.6], [6, 30]])
  const after = await gw.messages(messagesRequest)
  t.equal(after.headers.get('x-gateway-cost-usd'), '0.00312')
  t.equal(after.headers.get('x-gateway-config-generation'), '1', 'nothing was reloaded')
  t.strictSame((await entriesOf(gw)).map(({ nanos, price_version }) => [nanos, price_version]), [[-1_560_000n, OLD], [
    -3_120_000n,
    NEW
  ]])
  const ledger = await fetch(`${gw.urls.admin}/admin/v1/ledger`, {
    headers: { authorization: 'Bearer test-admin-token' }
  })
  t.match(await ledger.json(), {
    data: [{ kind: 'credit' }, { price_version: OLD, amount_usd: '-0.00156' }, { price_version: NEW,
      amount_usd: '-0.00312' }]
  })
  clock.now = CHANGE - 100_000
  t.strictSame(await lists(), ['public, max-age=60', [3, 15, null], [3, 15]], 'a clock that was set back')
})

t.test('the list has another tag when another price holds, and a 304 does not outlive the change either', async (t) => {
  const clock = new Clock()
  const gw = await gateway(t, staged(['http://127.0.0.1:9']), { now: clock.read })
  const get = (etag = ''): Promise<Response> =>
    fetch(`${gw.urls.public}/api/public/models-info`, { headers: { 'if-none-match': etag } })
  const etag = (await get()).headers.get('etag')!
  const known = await get(etag)
  t.strictSame([known.status, known.headers.get('cache-control')], [304, 'public, max-age=10'])
  clock.now = CHANGE
  const changed = await get(etag)
  t.equal(changed.status, 200)
  t.not(changed.headers.get('etag'), etag)
})

const change = (clock: Clock): void => { clock.now = CHANGE + 5000 }

async function charged (t: Test, gw: TestGateway, nanos: bigint, version: string): Promise<void> {
  const [entry, ...others] = await until(async () => { const all = await entriesOf(gw); return all.length > 0 && all })
  t.strictSame([entry!.nanos, entry!.price_version, others.length], [-nanos, version, 0])
}

t.test('a request pays the price that held when its hold was taken: a stream that runs over the change', async (t) => {
  const clock = new Clock()
  const gate = Promise.withResolvers<void>()
  const usage = { input_tokens: 20, output_tokens: 100 }
  const up = await upstream(
    t,
    [
      messageStart({ usage: { input_tokens: 20, output_tokens: 1 } }),
      blockStart(0),
      textDelta(0, 'Hello'),
      wait(gate.promise),
      textDelta(0, ' world'),
      blockStop(0),
      messageEnd({ usage })
    ]
  )
  const gw = await gateway(t, staged([up.url]), { now: clock.read })
  const got = await ask(`${gw.url}/v1/messages`, { ...messagesRequest, stream: true }, {
    headers: { 'x-api-key': KEY },
    onEvent (so) { if (so === 3) { change(clock); gate.resolve() } }
  })
  t.equal(got.ended, 'whole')
  await charged(t, gw, 1_560_000n, OLD)
})

t.test('and so does one that fails over after it', async (t) => {
  const clock = new Clock()
  const failing = await upstream(t, () => { change(clock); return status(500) })
  const working = await upstream(t, answer('Hello', { usage: { input_tokens: 20, output_tokens: 100 } }))
  const gw = await gateway(t, staged([failing.url, working.url]), { now: clock.read })
  t.equal((await gw.messages(messagesRequest)).status, 200)
  t.equal(clock.now, CHANGE + 5000, 'the first was asked')
  await charged(t, gw, 1_560_000n, OLD)
})

t.test('what is held is the worst case of the price that holds', async (t) => {
  const clock = new Clock()
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let asked = 0
  const up = await upstream(t, () => [wait(gates[asked++]!.promise), answer('Hello')])
  const gw = await gateway(t, staged([up.url]), { now: clock.read })
  const held: bigint[] = []
  for (const gate of gates) {
    const running = gw.messages(messagesRequest)
    held.push((await until(async () => {
      const balance = await gw.services.store.balance('acme')
      return balance.open_holds > 0 && balance
    })).held)
    gate.resolve()
    await (await running).text()
    change(clock)
  }
  t.equal(held[1], held[0]! * 2n)
})

t.test('a forward route\'s entry says its price too', async (t) => {
  const up = await upstream(t, status(200))
  const gw = await gateway(t,
    yaml([up.url],
      'routes:\n  - { match: POST /v1/embeddings, forward: u0, price: { usd: 0.00010 } }\n  - { match: POST /v1/gifts, forward: u0, price: free }\n'))
  for (const path of ['embeddings', 'gifts']) {
    await (await fetch(`${gw.url}/v1/${path}`, { method: 'POST', headers: { 'x-api-key': KEY }, body: '{}' })).text()
  }
  t.strictSame((await entriesOf(gw)).map(({ nanos, price_version }) => [nanos, price_version]), [[-100_000n,
    'usd=0.0001'], [0n, 'free']])
})

t.test('a list that begins in the future is refused as long as it does', async (t) => {
  const clock = new Clock()
  const future = staged(['http://127.0.0.1:9']).replace('[{ input: 3', '[{ from: 2098-12-31T23:59:55Z, input: 3')
  await t.rejects(gateway(t, future, { now: clock.read }), { message: /no price holds until 2098-12-31T23:59:55Z/ })
  change(clock)
  t.equal((await gateway(t, future, { now: clock.read })).live.current().generation, 1)
})
