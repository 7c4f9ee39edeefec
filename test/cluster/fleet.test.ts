// Two gateways, as on two machines, on one Redis: what one is told, the other does within a moment, and all of them can
// be seen from any.
import t, { type Test } from 'tap'
import { Directory, type KeyRecord } from '../../src/accounts/directory.ts'
import { digestOf } from '../../src/accounts/digests.ts'
import { Fleet } from '../../src/cluster/heartbeat.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import type { Records, StoredRecord } from '../../src/store/store.ts'
import { startClock } from '../support/clock.ts'
import { gateway, messagesRequest, type TestGateway, yaml } from '../support/gateway.ts'
import { redisServer, type RedisServer } from '../support/redis-server.ts'
import { openRedis } from '../support/redis-store.ts'
import { until } from '../support/until.ts'
import { json, message, upstream } from '../support/upstream.ts'

const USAGE = { input_tokens: 2, output_tokens: 100 }
/** by the prices of test/support/gateway.ts */
const COST = 2n * 3000n + 100n * 15_000n

function settings (url: string, { url: redis }: RedisServer, more = ''): string {
  return yaml([url], more,
    'auth, key-policy, { rate-limit: { default_rpm: 0, default_concurrency: 0 } }, channel-router, billing-meter, error-normalize')
    .replace('server:\n', 'server:\n  overload: { event_loop_delay: 0s }\n')
    .replace('store: { driver: memory, path: ./data }',
      `store: { driver: redis, url: "${redis}", path: ./data, timeout: 10s }`)
}

async function two (
  t: Test
): Promise<
  { readonly redis: RedisServer, readonly url: string, readonly one: TestGateway, readonly other: TestGateway }
> {
  const redis = await redisServer(t)
  const { url } = await upstream(t, [json(message('Hello', { usage: USAGE }))])
  const [one, other] = await Promise.all([gateway(t, settings(url, redis)), gateway(t, settings(url, redis))])
  return { redis, url, one, other }
}

async function admin<T> ({ urls }: TestGateway, method: string, path: string, body?: unknown): Promise<T> {
  const response = await fetch(`${urls.admin}/admin/v1${path}`, {
    method,
    headers: { authorization: 'Bearer test-admin-token', 'content-type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) })
  })
  return await response.json() as T
}

async function asked (of: TestGateway, secret: string): Promise<number> {
  const response = await of.messages(messagesRequest, { headers: { 'x-api-key': secret } })
  await response.text()
  return response.status
}

interface Seen {
  readonly is_converged: boolean
  readonly data: readonly { readonly id: string, readonly generation: number, readonly hash: string,
    readonly pid: number, readonly requests_in_flight: number, readonly seen_s_ago: number }[]
}

t.test('a key that one is told of works at the other, and no longer when it is frozen or gone', async (t) => {
  const { one, other } = await two(t)
  const { id, secret } = await admin<{ readonly id: string, readonly secret: string }>(one, 'POST', '/keys', {
    account: 'acme'
  })
  t.equal(await asked(one, secret), 200, 'at once where it was made')
  await until(async () => await asked(other, secret) === 200)
  await admin(other, 'PATCH', `/keys/${id}`, { frozen: true })
  t.equal(await asked(other, secret), 401)
  await until(async () => await asked(one, secret) === 401)
  await admin(one, 'PATCH', `/keys/${id}`, { frozen: false })
  await until(async () => await asked(other, secret) === 200)
  const { secret: next } = await admin<{ readonly secret: string }>(other, 'POST', `/keys/${id}/rotate`)
  await until(async () => await asked(one, secret) === 401)
  t.strictSame([await asked(one, next), await asked(other, next)], [200, 200])
  await admin(one, 'DELETE', `/keys/${id}`)
  await until(async () => await asked(other, next) === 401)
  await admin(one, 'POST', '/accounts', { id: 'beta' })
  await until(async () => (await admin<{ readonly id?: string }>(other, 'GET', '/accounts/beta')).id === 'beta')
})

t.test('a token that is made at one is taken by the other, and refused by it when it is revoked', async (t) => {
  const { one, other } = await two(t)
  const made = await admin<{ readonly id: string, readonly secret: string }>(one, 'POST', '/tokens', { name: 'Ada',
    role: 'viewer' })
  const asks = async ({ urls }: TestGateway): Promise<number> => {
    const got = await fetch(`${urls.admin}/admin/v1/me`, { headers: { authorization: `Bearer ${made.secret}` } })
    await got.text()
    return got.status
  }
  const isKnown = (): boolean => other.services.directory.findToken(digestOf(made.secret)) !== undefined
  t.equal(await asks(one), 200)
  await until(isKnown)
  t.equal(await asks(other), 200)
  t.match(await admin(one, 'DELETE', `/tokens/${made.id}`), { state: 'revoked' })
  t.equal(await asks(one), 401)
  await until(() => !isKnown())
  t.equal(await asks(other), 401)
  t.match(await admin(other, 'GET', '/audit?order=desc&limit=1'), { data: [{ what: 'token.revoke', id: made.id }] })
})

t.test('one key has one rate limit and one balance, whoever serves it', async (t) => {
  const { one, other } = await two(t)
  const { secret } = await admin<{ readonly secret: string }>(one, 'POST', '/keys', { account: 'acme', rate_limit: 5 })
  await until(async () => (await admin<{ readonly data: readonly unknown[] }>(other, 'GET', '/keys')).data.length === 2)
  const statuses = await Promise.all(
    Array.from({ length: 12 }, async (_, i) => await asked(i % 2 === 0 ? one : other, secret))
  )
  t.strictSame(statuses.toSorted(), [...Array<number>(5).fill(200), ...Array<number>(7).fill(429)])
  const balances = async (): Promise<readonly string[]> =>
    await Promise.all(
      [one, other].map(async (of) =>
        (await admin<{ readonly balance_usd: string }>(of, 'GET', '/accounts/acme')).balance_usd
      )
    )
  const left = 100n * 1_000_000_000n - 5n * COST
  const shown = `${left / 1_000_000_000n}.${String(left % 1_000_000_000n).padStart(9, '0').replace(/0+$/, '')}`
  await until(async () => (await balances()).every((balance) => balance === shown))
  t.match(await admin(other, 'POST', '/ledger/verify'), { ok: true, entries: 6 })
})

t.test('each of them is seen from any, and a configuration that only one has is seen too', async (t) => {
  const { redis, url, one, other } = await two(t)
  const seen = async (): Promise<Seen> => await admin<Seen>(other, 'GET', '/fleet')
  const both = await until(async () => { const fleet = await seen(); return fleet.data.length === 2 && fleet })
  t.equal(both.is_converged, true)
  t.equal(new Set(both.data.map(({ id }) => id)).size, 2)
  t.match(both.data, [{ pid: process.pid, generation: 1, requests_in_flight: 0 }, { pid: process.pid, generation: 1 }])
  t.match(await (await fetch(`${one.urls.admin}/metrics`)).text(), /^gateway_fleet_processes 2$/m)
  const more = '  - { id: acme-new, account: acme, secret: sk-gw-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn }\n'
  await one.rewrite(settings(url, redis, more))
  const apart = await until(async () => { const fleet = await seen(); return !fleet.is_converged && fleet })
  t.strictSame(apart.data.map(({ generation }) => generation).toSorted(), [1, 2])
  await other.rewrite(settings(url, redis, more))
  const again = await until(async () => { const fleet = await seen(); return fleet.is_converged && fleet })
  t.strictSame(again.data.map(({ generation }) => generation), [2, 2])
  await one.stop()
  await until(async () => (await seen()).data.length === 1)
})

t.test('who dies without a word is missed ten seconds after its last sign of life', async (t) => {
  const clock = startClock()
  const store = await openRedis(t, { url: (await redisServer(t)).url }, { now: clock.now })
  const state = { generation: 1, hash: 'abc', requests_in_flight: 3, reasons: [] }
  /** It says one thing, and then nothing. */
  const dying = new Fleet({ records: store, now: clock.now, timer: () => () => {}, worker: 2 })
  const living = new Fleet({ records: store, now: clock.now, timer: clock.timer, worker: 1 })
  for (const fleet of [dying, living]) { fleet.start(() => state) }
  const both = await until(async () => {
    const seen = await living.processes()
    return seen.length === 2 && seen
  })
  t.match(both, [{ id: living.id, worker: 1, ...state, seen_s_ago: 0 }, { id: dying.id, worker: 2, ...state,
    seen_s_ago: 0 }])
  await clock.advance(1900)
  t.match(await living.processes(), [{ seen_s_ago: 1.9 }, { seen_s_ago: 1.9 }])
  const isSeenAgain = async (): Promise<boolean> => (await living.processes())[0]?.seen_s_ago === 0
  await clock.advance(8000)
  t.equal((await living.processes()).length, 2)
  await clock.advance(100)
  await until(isSeenAgain)
  t.match(await living.processes(), [{ id: living.id }])
  await living.close()
  t.strictSame(await living.processes(), [])
})

/** A store that others change, and that can fail. */
class Shared extends MemoryStore implements Records {
  isAway = false
  refused = 0
  tell: () => void = () => {}
  rows: readonly StoredRecord[] = []

  override async records (): Promise<readonly StoredRecord[]> {
    if (this.isAway) {
      this.refused++
      throw new Error('away')
    }
    return this.rows
  }

  watchRecords (onChange: () => void): () => void {
    this.tell = onChange
    return () => { this.tell = () => {} }
  }
}

const row = (id: string, version: number, secret: string): StoredRecord => ({
  kind: 'key', id, version,
  text: JSON.stringify({
    settings: { id, account: 'acme', frozen: false, streaming: true, routing_mode: 'premium', channels: ['premium'] },
    secrets: [{ sha256: digestOf(secret).toString('hex') }], shown: 'sk…', created_at: '2027-01-01T00:00:00.000Z'
  } satisfies KeyRecord)
})

t.test('a change by others replaces what has changed and nothing else; what the store has lost is gone', async (t) => {
  const store = new Shared()
  const directory = new Directory(store, Date.now)
  const find = (secret: string): string | undefined => directory.findKey(digestOf(secret))?.id
  store.rows = [row('a', 1, 'a1'), row('b', 1, 'b1')]
  await directory.load()
  const unfollow = directory.follow()
  const [a, b] = [directory.keptKey('a'), directory.keptKey('b')]
  store.rows = [row('a', 1, 'a1'), row('b', 2, 'b2'), row('c', 1, 'c1')]
  store.tell()
  await until(() => find('c1'))
  t.equal(directory.keptKey('a'), a, 'the very same object: nobody compiles it again')
  t.not(directory.keptKey('b'), b)
  t.strictSame([find('a1'), find('b1'), find('b2')], ['a', undefined, 'b'])
  store.rows = [row('b', 1, 'b1')]
  store.tell()
  await until(() => find('a1') === undefined)
  t.strictSame([find('b1'), find('b2'), find('c1')], ['b', undefined, undefined],
    'an older version too: the store is right')
  unfollow()
  store.rows = []
  store.tell()
  t.equal(find('b1'), 'b')
})

t.test('a store that can\'t be read when a change is told is read again later', async (t) => {
  const store = new Shared()
  const clock = startClock()
  const directory = new Directory(store, clock.now, clock.timer)
  await directory.load()
  t.teardown(directory.follow())
  store.isAway = true
  store.rows = [row('a', 1, 'a1')]
  store.tell()
  await clock.until(() => store.refused >= 3)
  t.equal(directory.keptKey('a'), undefined)
  store.isAway = false
  t.equal((await clock.until(() => directory.keptKey('a'))).version, 1)
})
