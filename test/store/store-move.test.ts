// `gateway store export` and `import`: what one store kept another one keeps, to the nano-dollar, or nothing is moved
// at all.
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { storeCommand } from '../../src/commands/store.ts'
import { noUsage } from '../../src/money/usage.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import { fillFolder } from '../../src/store/embedded/import.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import type { Rollup, Rollups } from '../../src/store/rollups.ts'
import type { Store } from '../../src/store/store.ts'
import { Inventory, readRow, type Row, rowsOf, writeRow } from '../../src/store/transfer.ts'
import { rowsIn } from '../../src/store/transfer-file.ts'
import { fillStore, openStore } from '../../src/store/open.ts'
import { fillRedis } from '../../src/store/redis/import.ts'
import { GRACE_MS, LEASE_MS } from '../../src/store/redis/lua/account.ts'
import { Outbox } from '../../src/store/redis/outbox.ts'
import { startClock } from '../support/clock.ts'
import { newLog, open, request, settlement } from '../support/embedded-store.ts'
import { freePort } from '../support/free-port.ts'
import { gateway, yaml } from '../support/gateway-command.ts'
import { byPeriodAndMembers } from '../support/store-rollups-conformance.ts'
import { redisCluster, redisServer } from '../support/redis-server.ts'
import { newPrefix, openRedis, redisConfig } from '../support/redis-store.ts'
import { folderFor } from '../support/spawned.ts'
import { until } from '../support/until.ts'

const day = new Date().toISOString().slice(0, 10)

/** Something of everything that a store keeps. */
async function use (folder: string, accounts = 2): Promise<void> {
  const store = await openEmbedded({ folder, log: newLog() })
  for (let i = 0; i < accounts; i++) {
    const account = `a${i}`
    const more = { account, key: `${account}-dev`, day }
    await store.credit(account, `opening:${account}`, 9_007_199_254_740_993n)
    store.hold(request(`${account}-used`, 100n, more))
    await store.settle(
      settlement(`${account}-used`, 150n, { usage: { ...noUsage, input: 3, output: 5, extras: { web_search: 2 } },
        price_version: 'p1' })
    )
    store.hold(request(`${account}-refunded`, 70n, more))
    await store.settle(settlement(`${account}-refunded`, 70n))
    await store.refund(`${account}-refunded`)
    await store.book({ kind: 'refund', account, reference: `ticket-${account}`, nanos: 20n,
      reason: 'cut off: "\u2028é"' })
    await store.book({ kind: 'debit', account, reference: `fee-${account}`, nanos: 30n, reason: 'a fee' })
    store.hold(request(`${account}-video`, 1000n, more))
    await store.openTask({ id: `video-${account}`, request_id: `${account}-video`, account, key: `${account}-dev`,
      created: 1_800_000_000_000 + i, nanos: 900n, text: '{"seconds":4}' })
    await store.endTask(`video-${account}`, '{"seconds":4,"done":true}', settlement('', 800n))
    store.hold(request(`${account}-free`, 0n, { account, key: `${account}-free` }))
    await store.keepAnswer({ account, name: 'again', hash: 'h', request_id: `${account}-free`,
      created: 1_800_000_000_000, text: '{"odd":"\u2028é"}' })
    await store.settle(settlement(`${account}-free`, 0n))
    store.failed({ account, key: `${account}-dev`, model: '' })
    for (let j = 0; j < 2; j++) store.failed({ account, key: `${account}-dev`, model: 'm', channel: 'premium' })
    await store.keepAnswer({ account, name: 'of the video', hash: 'h', request_id: `${account}-video`,
      created: 1_800_000_000_001, text: undefined })
    const record = { kind: 'account' as const, id: account, version: 1, text: '{"settings":{}}' }
    await store.change({ record, audit: `{"made":"${account}"}` })
    await store.change({ record: { ...record, version: 2, text: '{"settings":{"name":"Two"}}' },
      audit: '{"renamed":1}' })
  }
  await store.change({ audit: '{"only":"a line"}' })
  await store.close()
}

async function list (all: AsyncIterable<Row>): Promise<Row[]> {
  const rows: Row[] = []
  for await (const row of all) rows.push(row)
  return rows
}

/** A folder with a configuration whose data lies in ./data, and a second one with theirs in ./other. */
async function prepared (t: Test): Promise<string> {
  const text = yaml(await freePort())
  return folderFor(t, { 'gateway.yaml': text, 'other.yaml': text.replace('./data', './other') })
}

const other = ['--config', 'other.yaml']
const pluginsUrl = new URL('../../plugins/index.ts', import.meta.url).href

/** In this process, because a new one costs a second: one that fails, and what it says. */
async function refused (folder: string, [verb, file, ...more]: readonly string[]): Promise<string> {
  const { error } = console
  const said: string[] = []
  console.error = (text: string) => { said.push(text) }
  try {
    const code = await storeCommand([verb!, ...file === undefined ? [] : [join(folder, file)], ...more], { pluginsUrl,
      locate: (name = 'gateway.yaml') => ({ file: join(folder, name), base: folder }) })
    return `${code}: ${said.join('\n')}`
  } finally {
    console.error = error
  }
}

void t.test('everything arrives: what the second store has is what the first had, with ids and order, and both are verified', async (t) => {
  const folder = await prepared(t)
  await use(join(folder, 'data'))
  const exported = await gateway(folder, ['store', 'export', 'all.jsonl'])
  t.match(exported, {
    code: 0,
    out:
      /^WHAT +IN THE FILE\naccounts and keys made in the dashboard +2\nlines of the audit log +5\ntasks +2\nanswers +4\nrequests and tasks that failed +6\nentries +18\naccounts with entries +2\nkeys with entries +4\nbalances, USD +18014398\.509480166\nspent by keys, USD +0\.0000018\nshortfalls, USD +0\.0000001\nfingerprint +\w{16}\n\nExported to all\.jsonl: the ledger is right/
  })
  t.equal(statSync(join(folder, 'all.jsonl')).mode & 0o777, 0o600, 'for its owner only')
  t.match(JSON.parse(readFileSync(join(folder, 'all.jsonl'), 'utf8').split('\n')[0]!), { format: 'model-gateway store',
    version: 2, driver: 'embedded', entries: 18, accounts: 2, keys: 4 })
  const imported = await gateway(folder, ['store', 'import', 'all.jsonl', ...other])
  t.match(imported, { code: 0,
    out:
      /^WHAT +IN THE FILE +IN THE STORE\n[^]*entries +18 +18\n[^]*balances, USD +18014398\.509480166 +18014398\.509480166\n[^]*Imported: the same on both sides/ })

  const [before, after] = [await open(t, join(folder, 'data')), await open(t, join(folder, 'other'))]
  t.strictSame(await list(rowsOf(after)), await list(rowsOf(before)))
  t.strictSame((await after.verify()).differences, [])
  for (const account of ['a0', 'a1']) {
    t.strictSame(after.balance(account), before.balance(account))
    t.strictSame([undefined, day, day.slice(0, 7)].map((period) => after.keyUsage(`${account}-dev`, period).spent), [
      900n,
      900n,
      900n
    ])
    t.equal(await after.amountOf('credit', `opening:${account}`), 9_007_199_254_740_993n)
    t.match(await after.answer(account, 'again'), { request_id: `${account}-free` })
    t.match(await after.task(`video-${account}`), { is_open: false, nanos: 800n })
  }
  t.equal(await after.credit('a0', 'opening:a0', 5n), false, 'an opening balance is credited once, ever')
  for (const kind of ['refund', 'debit'] as const) {
    t.equal(
      await after.book({ kind, account: 'a0', reference: kind === 'refund' ? 'ticket-a0' : 'fee-a0', nanos: 1n,
        reason: 'again' }),
      'known'
    )
  }
  t.equal(await after.settle(settlement('a0-used', 5n)), 100n, 'and a request settled once')
  t.equal(await after.credit('a0', 'new', 5n), true)
  t.match((await list(rowsOf(after))).findLast(({ of }) => of === 'entry'), { value: { reference: 'new' } },
    'what follows comes behind')
})

void t.test('what is held can\'t be moved: it says how much, and what to do', async (t) => {
  const folder = await prepared(t)
  const store = await openEmbedded({ folder: join(folder, 'data'), log: newLog() })
  await store.credit('a', 'c', 100n)
  store.hold(request('v', 50n, { account: 'a' }))
  await store.openTask({ id: 'video', request_id: 'v', account: 'a', key: 'dev', created: 1, nanos: 50n, text: '{}' })
  await store.close()
  t.match(await refused(folder, ['export', 'all.jsonl']),
    /^1: Money is held by 1 requests, of which 1 are videos that are still being made: an open hold can't be moved\. Start the gateway on this store again, wait until its metric gateway_holds_open is 0/)
  t.throws(() => statSync(join(folder, 'all.jsonl')))
})

void t.test('only into an empty store, from a file that is whole and right, and while nobody uses it; else nothing changes', async (t) => {
  const folder = await prepared(t)
  await use(join(folder, 'data'), 1)
  await gateway(folder, ['store', 'export', 'all.jsonl'])
  t.match(await refused(folder, ['export', 'all.jsonl']), /^1: .*all\.jsonl is there already/)
  t.match(await refused(folder, ['import', 'all.jsonl']),
    /^1: Nothing was imported: the data folder .*data is not empty: there are entries in it\. Name another one in store\.path/)

  const text = readFileSync(join(folder, 'all.jsonl'), 'utf8')
  const lines = text.split('\n')
  const wrong: Record<string, readonly [text: string, said: RegExp]> = {
    cut: [text.slice(0, -30), /all\.jsonl:\d+ is only half a line: the file is not whole/],
    'without its end': [lines.slice(0, -2).join('\n') + '\n', /has no end: it is not whole/],
    'with a row less': [lines.toSpliced(4, 1).join('\n'), /:\d+ does not add up to what is before it/],
    'with another amount': [text.replace('"-100"', '"-101"'), /:\d+ does not add up/],
    'with a broken row': [lines.with(3, lines[3]!.slice(0, -1)).join('\n'), /:4 can't be read: /],
    'with more behind its end': [text + lines[2]! + '\n', /:\d+ comes after the end/],
    'of another program': ['{"a":1}\n', /:1 is not the beginning of an exported store/],
    'of a newer gateway': [text.replace('"version":2', '"version":3'),
      /:1 is of version 3, and this gateway reads 1 and 2: use the gateway that exported it/]
  }
  for (const [what, [content, said]] of Object.entries(wrong)) {
    writeFileSync(join(folder, 'all.jsonl'), content)
    await t.rejects(list(rowsIn(join(folder, 'all.jsonl'))), said, what)
  }
  writeFileSync(join(folder, 'all.jsonl'), text.slice(0, -30))
  t.match(await refused(folder, ['import', 'all.jsonl', ...other]),
    /^1: Nothing was imported: .*all\.jsonl:\d+ is only half a line/)
  t.throws(() => statSync(join(folder, 'other')), 'no store was made')
  await t.rejects(list(rowsIn(join(folder, 'none.jsonl'))), /ENOENT: no such file/)
  t.match(await refused(folder, ['import']), /^1: Usage: gateway store backup FILE/)

  const holder = await open(t, join(folder, 'data'))
  t.match(await refused(folder, ['export', 'more.jsonl']),
    /^1: The store can't be opened: the data folder .* is in use by another gateway/)
  await holder.close()
})

void t.test('an import that is refused forgets nothing of what the folder has, rate limits included', async (t) => {
  const folder = folderFor(t)
  const ask = (store: Store): unknown =>
    store.admit({ request_id: 'r', account: 'a', windows: [{ name: 'k', limit: 3 }] })
  const before = await open(t, folder)
  await before.credit('a', 'c', 5n)
  t.match(ask(before), { kind: 'admitted', windows: [{ remaining: 2 }] })
  await before.close()
  const nothing = async function* (): AsyncIterable<Row> {}
  await t.rejects(fillFolder(folder, nothing()), /is not empty: there are entries in it/)
  t.match(ask(await open(t, folder)), { kind: 'admitted', windows: [{ remaining: 1 }] })
})

void t.test('a store that can\'t take a row takes none', async (t) => {
  const folder = folderFor(t)
  const entry: Row = { of: 'entry',
    value: { id: '0'.repeat(17), kind: 'credit', account: 'a', reference: 'c', nanos: 5n,
      at: '2026-11-21T00:00:00.000Z' } }
  const twice = async function* (): AsyncIterable<Row> {
    yield { of: 'record', value: { kind: 'key', id: 'k', version: 3, text: '{}' } }
    yield entry
    yield { ...entry, value: { ...entry.value, id: `${'0'.repeat(16)}1` } } as Row
  }
  await t.rejects(fillFolder(folder, twice()), /an entry is there twice/)
  const store = await open(t, folder)
  t.strictSame(await list(rowsOf(store)), [])
  t.strictSame(store.balance('a').balance, 0n)
})

async function total (store: Parameters<typeof rowsOf>[0]): Promise<Inventory['total']> {
  const inventory = new Inventory()
  for await (const row of rowsOf(store)) inventory.add(row)
  return inventory.total
}

for (const [what, start] of [
  ['one server', async (t: Test) => ({ url: (await redisServer(t)).url })],
  ['a cluster', async (t: Test) => ({ cluster: (await redisCluster(t)).nodes.map(({ url }) => url) })]
] as const) {
  void t.test(`from the embedded store to Redis (${what}) and back: the same on all sides, and Redis goes on from there`, async (t) => {
    const folder = folderFor(t)
    await use(join(folder, 'first'), 3)
    const first = await open(t, join(folder, 'first'))
    const prefix = newPrefix()
    const server = await start(t)
    await fillRedis(redisConfig(server, { prefix }), newLog(), rowsOf(first))
    const redis = await openRedis(t, server, { prefix })
    const moved = await total(redis)
    t.strictSame(moved, await total(first))
    t.match(await redis.verify(), { entries: moved.entries, accounts: 3, keys: 6, differences: [] })
    await fillFolder(join(folder, 'back'), rowsOf(redis))
    const back = await open(t, join(folder, 'back'))
    t.strictSame(await total(back), moved)
    t.strictSame((await back.verify()).differences, [])

    t.strictSame(await redis.balance('a1'), first.balance('a1'))
    for (const period of [undefined, day, day.slice(0, 7)]) {
      t.strictSame(await redis.keyUsage('a1-dev', period), { spent: 900n, held: 0n })
    }
    t.equal(await redis.amountOf('credit', 'opening:a1'), 9_007_199_254_740_993n)
    t.equal(await redis.credit('a1', 'opening:a1', 5n), false)
    for (const kind of ['refund', 'debit'] as const) {
      t.equal(
        await redis.book({ kind, account: 'a1', reference: kind === 'refund' ? 'ticket-a1' : 'fee-a1', nanos: 1n,
          reason: 'again' }),
        'known'
      )
    }
    t.match(await redis.answer('a1', 'again'), { request_id: 'a1-free' })
    t.match(await redis.answer('a1', 'of the video'), { request_id: 'a1-video' })
    t.match(await redis.task('video-a1'), { is_open: false, nanos: 800n })
    t.equal((await redis.tasks('a1', { limit: 10, order: 'asc' }))?.length, 1)
    t.match(await redis.hold(request('next', 200n, { account: 'a1', key: 'a1-dev', day, usage_limit_day: 1000n })), {
      kind: 'refused',
      by: 'usage_limit',
      period: 'day',
      available: 100n
    })
    await redis.hold(request('next', 50n, { account: 'a1', key: 'a1-dev', day }))
    await redis.settle(settlement('next', 50n))
    await redis.credit('a1', 'new', 5n)
    const entries = (await list(rowsOf(redis))).filter(({ of }) => of === 'entry')
    t.strictSame(entries.slice(-2).map(({ value }) => 'reference' in value && value.reference), ['next', 'new'])
    t.strictSame((await redis.verify()).differences, [])
    t.equal(await redis.change({ record: { kind: 'account', id: 'a1', version: 3, text: '{}' }, audit: '{}' }), true,
      'records keep their versions')
  })
}

const HOUR = 3_600_000

void t.test('requests that failed move too: by hour as long as hours are kept, by day ever after, whichever way', async (t) => {
  const folder = folderFor(t)
  const server = await redisServer(t)
  // The first hour of which the embedded store keeps the hour, at the end, is in the middle of a day.
  const end = Date.now()
  let time = end - 40 * 24 * HOUR
  const first = await open(t, join(folder, 'first'), { now: () => time })
  for (let i = 0; time <= end; i++, time += 5 * HOUR) {
    const [account, key] = i % 3 === 0 ? ['beta', 'beta-dev'] : ['acme', `k${i % 2}`]
    for (let j = 0; j < 1 + i % 4; j++) {
      first.failed({ account, key, model: i % 5 === 0 ? '' : 'm', ...(j % 2 === 0 && { channel: 'premium' }) })
    }
    await first.credit('acme', `c${i}`, 10n)
    first.hold(request(`r${i}`, 5n, { account: 'acme', key: 'k0' }))
    await first.settle(settlement(`r${i}`, 5n))
  }
  const used = async (store: Rollups, by: 'hour' | 'day', from: number): Promise<readonly Rollup[]> =>
    (await store.rollups({ by, from, to: end + 48 * HOUR, groups: ['account', 'key', 'model', 'channel'], only: {} }))
      .toSorted(byPeriodAndMembers)
  const days = await used(first, 'day', 0)
  const hours = await used(first, 'hour', end - 6 * 24 * HOUR)
  const failures = days.reduce((sum, { errors }) => sum + errors, 0)
  t.ok(failures > 400)
  const prefix = newPrefix()
  await fillRedis(redisConfig(server, { prefix }), newLog(), rowsOf(first))
  const redis = await openRedis(t, server, { prefix })
  await fillFolder(join(folder, 'back'), rowsOf(redis))
  const back = await open(t, join(folder, 'back'))
  await fillFolder(join(folder, 'copy'), rowsOf(first))
  const copy = await open(t, join(folder, 'copy'))
  const before = await total(first)
  t.equal(before.errors, failures)
  for (const [what, store] of Object.entries({ redis, back, copy })) {
    t.strictSame(await total(store), before, what)
    t.strictSame(await used(store, 'day', 0), days, what)
    t.strictSame(await used(store, 'hour', end - 6 * 24 * HOUR), hours, what)
    t.strictSame((await store.verify()).differences, [], what)
  }
})

void t.test('a file of before failures were in it is read as it was', async (t) => {
  const folder = await prepared(t)
  await use(join(folder, 'data'), 1)
  await gateway(folder, ['store', 'export', 'all.jsonl'])
  const lines = readFileSync(join(folder, 'all.jsonl'), 'utf8').split('\n')
  const inventory = new Inventory()
  const kept = lines.slice(1, -2).filter((line) => !line.startsWith('{"failures"'))
  for (const line of kept) inventory.add(readRow(line))
  t.equal(kept.length, lines.length - 5)
  t.notOk('errors' in inventory.total)
  writeFileSync(join(folder, 'old.jsonl'), [lines[0]!.replace('"version":2', '"version":1'), ...kept,
    JSON.stringify({ end: inventory.total }), ''].join('\n'))
  t.match(await gateway(folder, ['store', 'import', 'old.jsonl', ...other]), { code: 0,
    out: /requests and tasks that failed +0 +0\n[^]*Imported: the same on both sides/ })
})

void t.test('what was settled after its process had been given up moves too, as what it was charged in all', async (t) => {
  const server = await redisServer(t)
  const clock = startClock(undefined, Date.now())
  const options = { prefix: newPrefix(), now: clock.now, timer: () => () => {} }
  const [silent, living] = [await openRedis(t, server, options), await openRedis(t, server, options)] as const
  await silent.credit('acme', 'c', 1000n)
  /** by request: what it holds, what it was charged for it, and what it says later */
  const late = { less: [50n, 20n, 10n], more: [50n, 20n, 50n], back: [50n, 20n, 30n] } as const
  for (const [id, [held]] of Object.entries(late)) await silent.hold(request(id, held, { day }))
  await clock.advance(3000)
  for (const [id, [, soFar]] of Object.entries(late)) await silent.progress(settlement(id, soFar))
  await silent.balance('acme')
  await clock.advance(LEASE_MS + 1)
  await living.hold(request('somebody', 0n))
  await clock.advance(GRACE_MS)
  await living.hold(request('else', 0n))
  t.equal((await living.balance('acme')).balance, 1000n - 20n - 20n - 20n)
  for (const [id, [, , nanos]] of Object.entries(late)) await silent.settle(settlement(id, nanos))
  await silent.refund('back')
  await until(() => silent.health.pending === 0)
  for (const id of Object.keys(late)) {
    await silent.keepAnswer({ account: 'acme', name: `again ${id}`, hash: 'h', request_id: id, created: clock.now(),
      text: id })
  }
  for (const id of ['somebody', 'else']) { await living.release(id) }
  const before = await total(living)

  const prefix = newPrefix()
  await fillRedis(redisConfig(server, { prefix }), newLog(), rowsOf(living))
  const redis = await openRedis(t, server, { prefix })
  const folder = folderFor(t)
  await fillFolder(folder, rowsOf(redis))
  const embedded = await open(t, folder)
  for (const store of [redis, embedded]) {
    t.strictSame(await total(store), before)
    t.strictSame((await store.verify()).differences, [])
    t.match(await store.answer('acme', 'again more'), { text: 'more' }, 'whoever repeats it gets its answer')
    t.equal(await store.answer('acme', 'again back'), undefined)
  }
  for (const [id, nanos] of [['less', 10n], ['more', 50n], ['back', 0n]] as const) {
    t.equal(await server.ask('GET', `{${prefix}:acme}:charge:${id}`), nanos === 0n ? 'r 0' : `s ${nanos}`)
    t.equal(await embedded.settle(settlement(id, 5n)), nanos, 'and nobody pays twice')
  }
})

void t.test('whoever takes another store while charges wait for Redis is told where they are', async (t) => {
  const folder = folderFor(t)
  const embedded = redisConfig({}, { driver: 'embedded' })
  for (const part of ['', 'worker-2']) {
    const outbox = await Outbox.open(join(folder, part, 'outbox'), newLog())
    const no = await outbox.append('{}')
    await outbox.append('{}')
    await outbox.close()
    const refusal = {
      message: new RegExp(
        `^2 charges wait in ${join(folder, part, 'outbox')} for the Redis that store: named before.*gateway store export`
      )
    }
    await t.rejects(openStore(embedded, folder, newLog() as never, Date.now), refusal)
    await t.rejects(openStore({ ...embedded, driver: 'memory' }, folder, newLog() as never, Date.now), refusal)
    await t.rejects(fillStore(embedded, folder, newLog() as never, rowsOf(new MemoryStore())), refusal)
    t.notOk(existsSync(join(folder, 'gateway.db')), 'nothing was begun')
    const again = await Outbox.open(join(folder, part, 'outbox'), newLog())
    again.acknowledge(no)
    again.acknowledge(no + 1)
    await again.close()
  }
  await (await openStore(embedded, folder, newLog() as never, Date.now)).close()
  t.notOk(existsSync(join(folder, 'worker-2/gateway.db')))
})

void t.test('Redis takes all or nothing: a gateway refuses what an import has left, and the next import begins anew', async (t) => {
  const folder = folderFor(t)
  await use(folder, 1)
  const first = await open(t, folder)
  const server = await redisServer(t)
  const prefix = newPrefix()
  const config = redisConfig(server, { prefix })
  const breaking = async function * (): AsyncIterable<Row> {
    yield * rowsOf(first)
    throw new Error('the file ended')
  }
  await t.rejects(fillRedis(config, newLog(), breaking()), /the file ended/)
  t.equal(await server.ask('DBSIZE'), '0')

  // As a kill leaves it.
  await server.ask('SET', `{${prefix}}:filling`, '1')
  await server.ask('SADD', `${prefix}:accounts`, 'half')
  await t.rejects(openRedis(t, server, { prefix }),
    /an import into this Redis has not ended: repeat "gateway store import"/)
  await server.ask('SET', 'somebody-elses', '1')
  await fillRedis(config, newLog(), rowsOf(first))
  const redis = await openRedis(t, server, { prefix })
  t.strictSame(await total(redis), await total(first))
  t.equal(await server.ask('GET', 'somebody-elses'), '1')
  await t.rejects(fillRedis(config, newLog(), rowsOf(first)),
    /is not empty: there are 1 accounts in it\. Name another prefix/)
  await redis.beat('one', 60_000, '{}')
  await t.rejects(fillRedis(config, newLog(), rowsOf(first)), /1 gateways use Redis at .*: stop them first/)
})

void t.test('from the command line: the embedded store of one configuration into the Redis of another', async (t) => {
  const server = await redisServer(t)
  const text = yaml(await freePort())
  const folder = folderFor(t, { 'gateway.yaml': text,
    'other.yaml': text.replace('driver: embedded, path: ./data',
      `driver: redis, url: "${server.url}", path: ./other`) })
  await use(join(folder, 'data'), 1)
  t.match(await gateway(folder, ['store', 'export', 'all.jsonl']), { code: 0 })
  t.match(await gateway(folder, ['store', 'import', 'all.jsonl', ...other]), { code: 0,
    out: /\nImported: the same on both sides, and the ledger is right\.\n$/ })
  const waiting = await Outbox.open(join(folder, 'other/worker-2/outbox'), newLog() as never)
  await waiting.append(
    JSON.stringify({ of: 'settle', account: 'a0', id: 'late', key: 'a0-dev', day, oldest: day, nanos: '7',
      shortfall: '0', what: '{"model":"m"}', at: Date.now() })
  )
  t.match(await refused(folder, ['export', 'back.jsonl', ...other]),
    /^1: What a worker has left could not be charged: .*outbox is in use by another gateway/)
  await waiting.close()
  t.match(await gateway(folder, ['store', 'export', 'back.jsonl', ...other]), { code: 0,
    out: /balances, USD +9007199\.254740076\n/ }, 'and with what waited for Redis')
})

void t.test('a row is written and read as it was, and the order in which drivers give their fields and rows does not matter', async (t) => {
  const rows: Row[] = [
    { of: 'entry',
      value: { id: 'x', kind: 'shortfall', account: 'a', key: 'k', reference: 'r', nanos: -(2n ** 62n),
        shortfall: 2n ** 62n + 1n, at: '2026-11-21T00:00:00.000Z', usage: { ...noUsage, input: 1 },
        usage_source: 'provider' } },
    { of: 'task',
      value: { id: 't', request_id: 'r', account: 'a', key: 'k', created: 1, nanos: 3n, is_open: false, text: '{}' } },
    { of: 'audit', value: { id: 1, text: '{}' } }
  ]
  const failures = { account: 'a', key: 'k', model: '', count: 2 }
  const failed: Row[] = [{ of: 'failures', value: { ...failures, at: '2026-11-21T05:00:00.000Z' } },
    { of: 'failures', value: { ...failures, at: '2026-11-21T06:00:00.000Z', count: 3 } }]
  t.strictSame(failed.map((row) => readRow(writeRow(row))), failed)
  const [hours, day] = [new Inventory(), new Inventory()]
  for (const row of failed) hours.add(row)
  day.add({ of: 'failures', value: { ...failures, at: '2026-11-21T00:00:00.000Z', count: 5 } })
  t.strictSame(hours.total, day.total)
  t.match(day.total, { errors: 5, fingerprint: 'd10fae9352620673114a45d0fc7802e00ff7d4026700b3f943a662aba6897f8b' })
  t.strictSame(rows.map((row) => readRow(writeRow(row))), rows)
  t.throws(() => readRow('{"of":{}}'), /nobody knows what "of" is/)
  t.throws(() => readRow('{}'), { message: 'an empty object' })
  const [one, two] = [new Inventory(), new Inventory()]
  for (const row of rows) { one.add(row) }
  for (const { of, value } of rows.toReversed()) {
    two.add({ of, value: Object.fromEntries(Object.entries(value).reverse()) } as unknown as Row)
  }
  t.strictSame(one.total, two.total)
  two.add(rows[2]!)
  t.not(one.total.fingerprint, two.total.fingerprint)
  // That of every version: what one has exported adds up in all others.
  for (let i = 0; i < 8; i++) for (const row of rows) one.add(row)
  t.equal(one.total.fingerprint, '8be5ee381da77df8e107b2462b6e72fbdc691a0bd7e20692bd2092ad7661f654')
})
