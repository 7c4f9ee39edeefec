// Rollups and the newest entries of the drivers of one process: that they are the sums of the entries whatever happens,
// that verify finds where they are not, and that no query reads the whole table.
import { existsSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { ITEMS, noUsage } from '../../src/money/usage.ts'
import { newestTasksSql } from '../../src/store/embedded/documents.ts'
import { Ledger } from '../../src/store/embedded/ledger.ts'
import { LISTS, listedSql, referenceSql, rowsSql, type Asked } from '../../src/store/embedded/newest.ts'
import { migrate, STEPS } from '../../src/store/embedded/schema.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import { type Cell, ENTRY, pushEntry, readRollups, TASK } from '../../src/store/local/cells.ts'
import { entryId } from '../../src/store/local/entry-ids.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import type { LocalStore } from '../../src/store/local/store.ts'
import { NO_WRITE } from '../../src/store/local/writer.ts'
import { AMOUNTS, COUNTS, GROUPS } from '../../src/store/rollup-sums.ts'
import type { EntryQuery, Rollup } from '../../src/store/rollups.ts'
import { copied, newLog, open, request, settlement } from '../support/embedded-store.ts'
import { folderFor } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { auditNewest, auditRollups, DAY, type Failed, HOUR,
  rollupsConformance } from '../support/store-rollups-conformance.ts'
import { until } from '../support/until.ts'

const NOON = Date.UTC(2026, 10, 22, 12)

void t.test('memory', async (t) => { rollupsConformance(t, async (now) => new MemoryStore(now)) })
void t.test('embedded', async (t) => { rollupsConformance(t, async (now) => await open(t, folderFor(t), { now })) })

type Step =
  | { readonly kind: 'charge', readonly key: number, readonly held: bigint, readonly cost: bigint,
    readonly model: string, readonly channel: string | undefined, readonly tokens: number, readonly items: number,
    readonly end: 'settle' | 'refund' | 'release' | 'stream' }
  | { readonly kind: 'refund', readonly of: number }
  | { readonly kind: 'fail', readonly key: number, readonly model: string }
  | { readonly kind: 'book', readonly as: 'credit' | 'debit' | 'refund', readonly reference: string }
  | { readonly kind: 'wait', readonly hours: number }
  | { readonly kind: 'reopen' | 'kill' | 'audit' }

const KEYS = [['acme', 'dev'], ['acme', 'ops'], ['other', 'theirs']] as const
const model = fc.constantFrom('m1', 'm2', 'POST /v1/embeddings')
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('charge' as const), key: fc.nat(2), held: fc.bigInt(0n, 50n),
    cost: fc.bigInt(0n, 80n), model, channel: fc.option(fc.constantFrom('premium', 'cheap'), { nil: undefined }),
    tokens: fc.nat(1000), items: fc.nat(3),
    end: fc.constantFrom('settle' as const, 'settle' as const, 'refund' as const, 'release' as const,
      'stream' as const) }) },
  fc.record({ kind: fc.constant('refund' as const), of: fc.nat(20) }),
  fc.record({ kind: fc.constant('fail' as const), key: fc.nat(2), model: fc.oneof(model, fc.constant('')) }),
  fc.record({ kind: fc.constant('book' as const), as: fc.constantFrom('credit' as const, 'debit' as const,
    'refund' as const), reference: fc.constantFrom('one', 'two') }),
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const),
    hours: fc.oneof(fc.integer({ min: -2, max: 30 }), fc.constant(7 * 24 + 1)) }) },
  fc.record({ kind: fc.constantFrom('reopen' as const, 'kill' as const, 'audit' as const) })
)

/** Runs steps on a driver; a kill and a reopening are nothing to the memory driver. */
async function play (t: Test, driver: 'memory' | 'embedded', steps: readonly Step[]): Promise<void> {
  let time = NOON
  const now = (): number => time
  let folder = folderFor(t)
  const reopened = async (): Promise<LocalStore> => await openEmbedded({ folder, log: newLog(), now,
    progress_interval: 0 })
  let store: LocalStore = driver === 'memory' ? new MemoryStore(now) : await reopened()
  const failures: Failed[] = []
  let noted = 0
  /** A commit, which takes along what was counted before it. */
  const commit = async (): Promise<void> => { await store.credit('acme', `commit ${noted++}`, 1n) }
  const audit = async (): Promise<void> => {
    await commit()
    await auditRollups(store, failures)
    await auditNewest(store)
  }
  try {
    for (const [account] of KEYS) await store.credit(account, `opening:${account}`, 1_000_000n)
    for (const [i, one] of steps.entries()) {
      switch (one.kind) {
        case 'charge': {
          const [account, key] = KEYS[one.key]!
          const extras = Object.fromEntries(ITEMS.slice(0, one.items).map((item, k) => [item, k + 1]))
          const bill = settlement(`r${i}`, one.cost, { model: one.model,
            usage: { ...noUsage, input: one.tokens, output: one.items, cache_read: i, extras } })
          const { channel: _channel, ...rest } = bill
          const billed = one.channel === undefined ? rest : { ...rest, channel: one.channel }
          await store.hold(request(`r${i}`, one.held, { account, key }))
          if (one.end === 'stream') await store.progress(billed)
          else if (one.end === 'release') await store.release(`r${i}`)
          else await store.settle(billed)
          if (one.end === 'refund') await store.refund(`r${i}`)
          break
        }
        case 'refund': await store.refund(`r${one.of}`); break
        case 'fail': {
          const [account, key] = KEYS[one.key]!
          const failure = { account, key, model: one.model }
          store.failed(failure)
          failures.push({ ...failure, at: time })
          break
        }
        case 'book':
          await store.book({ kind: one.as, account: 'acme', reference: `${one.as}:acme:${one.reference}`, nanos: 7n })
          break
        case 'wait': time += one.hours * HOUR; break
        case 'audit': await audit(); break
        default:
          if (driver === 'memory') break
          if (one.kind === 'kill') {
            await commit()
            const left = copied(t, folder)
            await store.close()
            folder = left
          } else await store.close()
          store = await reopened()
      }
    }
    await audit()
  } finally {
    await store.close()
  }
}

for (const driver of ['memory', 'embedded'] as const) {
  void t.test(`${driver}: whatever is charged, given back, cut by a kill or started again, rollups are the sums of the entries`, async (t) => {
    await t.resolves(fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40 }), async (steps) => {
        await play(t, driver, steps)
      }),
      { numRuns: driver === 'memory' ? 60 : 30 }
    ))
  })
}

void t.test('hours that are older than 7 days become days, some with each write, and verify compares all of them', async (t) => {
  const folder = folderFor(t)
  let time = NOON
  const store = await open(t, folder, { now: () => time })
  await store.credit('acme', 'c', 1_000_000n)
  const charge = async (id: string): Promise<void> => {
    await store.hold(request(id, 1n, { key: id }))
    await store.settle(settlement(id, 1n))
  }
  await Promise.all(Array.from({ length: 1200 }, async (_, i) => { await charge(`r${i}`) }))
  time += 7 * DAY
  await charge('same')
  const hours = { by: 'hour', from: NOON, to: NOON + HOUR, groups: [], only: {} } as const
  t.match(await store.rollups(hours), [{ requests: 1200 }], 'the first hour of the last 7 days')
  time += HOUR
  await charge('next')
  t.match(await store.rollups(hours), [{ requests: 700 }], 'a kept transaction is no long one')
  const days = { ...hours, by: 'day', from: 0, to: time } as const
  t.match(await store.rollups(days), [{ requests: 1200 }, { requests: 2 }], 'and days are whole all the while')
  const months = { ...days, by: 'month' } as const
  t.match(await store.rollups(months), [{ requests: 1202 }])
  t.strictSame((await store.verify()).differences, [], 'verify knows which half of an hour is where')
  await charge('third')
  t.match(await store.rollups(hours), [{ requests: 200 }])
  t.strictSame((await store.verify()).differences, [])
  await charge('fourth')
  t.strictSame(await store.rollups(hours), [])
  t.match(await store.rollups(days), [{ requests: 1200 }, { requests: 4 }])
  t.match(await store.rollups(months), [{ requests: 1204 }])
  t.strictSame((await store.verify()).differences, [])
  time += 40 * DAY
  for (let i = 0; i < 4; i++) await charge(`later ${i}`)
  t.match(await store.rollups({ ...months, to: time }), [{ requests: 1204 }, { requests: 4 }])
  t.match(await store.rollups({ ...months, to: time, only: { key: 'r7' } }), [{ requests: 1 }])
  t.strictSame((await store.verify()).differences, [])
})

void t.test('what is told late of an hour that is over is in its day and its month', async (t) => {
  let time = NOON
  const store = await open(t, folderFor(t), { now: () => time })
  await store.credit('acme', 'c', 1000n)
  const charge = async (id: string): Promise<void> => {
    await store.hold(request(id, 1n))
    await store.settle(settlement(id, 1n))
  }
  await charge('first')
  time += 45 * DAY
  await charge('second')
  await charge('third')
  const told = [0, 20 * DAY, 45 * DAY - 3 * HOUR, 45 * DAY]
  for (const passed of told) {
    time = NOON + passed
    store.failed({ account: 'acme', key: 'dev', model: 'm' })
    store.failed({ account: 'acme', key: 'dev', model: 'm', channel: 'premium' })
    await store.credit('acme', `after ${passed}`, 1n)
  }
  const errors = async (by: 'hour' | 'day' | 'month', groups: readonly 'model'[] = []): Promise<number[]> =>
    (await store.rollups({ by, from: 0, to: NOON + 50 * DAY, groups, only: {} })).map((row) => row.errors)
  t.strictSame(await errors('month'), [2, 2, 4])
  t.strictSame(await errors('day'), [2, 2, 4])
  t.strictSame(await errors('hour'), [2, 2], 'and not in hours that are forgotten')
  t.strictSame((await store.verify()).differences, [])
})

function change (folder: string, sql: string): void {
  const db = new DatabaseSync(join(folder, 'gateway.db'))
  try { db.exec(sql) } finally { db.close() }
}

void t.test('verify finds a sum that is wrong, one that is missing, and one of nothing', async (t) => {
  const folder = folderFor(t)
  let time = NOON
  const before = await open(t, folder, { now: () => time })
  await before.credit('acme', 'c', 1000n)
  const charge = async (store: LocalStore, id: string, key: string): Promise<void> => {
    await store.hold(request(id, 10n, { key }))
    await store.settle(settlement(id, 12n, { usage: { ...noUsage, output: 3, extras: { image: 2 } } }))
  }
  for (const id of ['r1', 'r2']) await charge(before, id, id)
  time += 8 * DAY
  for (const id of ['r3', 'r4', 'r5']) await charge(before, id, id)
  before.failed({ account: 'acme', key: 'dev', model: 'm' })
  await before.close()
  const zeros = (count: number): string => Array.from({ length: count }, () => '0').join()
  for (const sql of [
    'UPDATE usage_days SET output = 4 WHERE key = \'r1\'',
    'DELETE FROM usage_days WHERE key = \'r2\'',
    'UPDATE usage_hours SET nanos = 11, shortfall = 1 WHERE key = \'r3\'',
    'UPDATE usage_hours SET image = 0 WHERE key = \'r4\'',
    `INSERT INTO usage_hours SELECT start, account, 'nobody', model, channel, 1, ${zeros(12)}
      FROM usage_hours WHERE key = 'r5'`,
    `INSERT INTO usage_days SELECT start + ${DAY}, account, 'never', model, channel, 0, 7, 1, ${zeros(10)}
      FROM usage_days WHERE key = 'r1'`,
    'UPDATE usage_months SET nanos = 12 WHERE key = \'r1\''
  ]) change(folder, sql)
  const after = await open(t, folder, { now: () => time })
  const of = (id: string, sum: string, entries: bigint, kept: bigint): object =>
    ({ of: 'rollup', id: `${id} m premium`, sum, entries, kept, where: 'disk' })
  t.strictSame((await after.verify()).differences, [
    of('2026-11-22 acme r1', 'output', 3n, 4n),
    ...[['requests', 1n], ['output', 3n], ['image', 2n], ['nanos', 10n], ['shortfall', 2n]].map(([sum, right]) =>
      of('2026-11-22 acme r2', sum as string, right as bigint, 0n)),
    of('2026-11-23 acme never', 'input', 0n, 1n),
    of('2026-11-30T12 acme r3', 'nanos', 10n, 11n), of('2026-11-30T12 acme r3', 'shortfall', 2n, 1n),
    of('2026-11-30T12 acme r4', 'image', 2n, 0n),
    of('2026-11-30T12 acme nobody', 'requests', 0n, 1n),
    of('2026-11 acme r1', 'nanos', 10n, 12n)
  ], 'and not the errors, of which there are no entries')
})

void t.test('verify compares rollups while others write, past the end of an hour', async (t) => {
  let time = NOON
  const store = await open(t, folderFor(t), { now: () => time })
  await store.credit('acme', 'c', 1_000_000n)
  let isOver = false
  const spend = async (spender: number): Promise<void> => {
    for (let i = 0; !isOver; i++) {
      await store.hold(request(`r${spender}-${i}`, 1n, { key: `k${spender % 3}` }))
      await store.settle(settlement(`r${spender}-${i}`, 2n))
      if (i % 5 === 0) store.failed({ account: 'acme', key: `k${spender % 3}`, model: 'm' })
    }
  }
  const spending = Promise.all(Array.from({ length: 20 }, async (_, spender) => { await spend(spender) }))
  for (const passed of [0, 1, 1, 30, 7 * 24, 1]) {
    const verified = store.verify()
    time += passed * HOUR
    t.strictSame((await verified).differences, [])
  }
  isOver = true
  await spending
})

void t.test('failures that could not be recorded are counted when the disk takes writes again', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { now: () => NOON,
    worker: new URL('../support/store-faulty-worker.ts', import.meta.url) })
  await store.credit('acme', 'c', 1000n)
  writeFileSync(join(folder, 'disk-full'), '')
  store.failed({ account: 'acme', key: 'dev', model: 'm' })
  await t.rejects(async () => await store.credit('acme', 'd', 1n), { code: 'service_unavailable' })
  store.failed({ account: 'acme', key: 'dev', model: 'm' })
  t.equal(existsSync(join(folder, 'disk-full')), true)
  rmSync(join(folder, 'disk-full'))
  await store.credit('acme', 'd', 1n)
  t.match(await store.rollups({ by: 'hour', from: NOON, to: NOON + HOUR, groups: [], only: {} }), [{ errors: 2 }])
})

void t.test('failures count once at most when the thread dies that records them, and those of later once', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { now: () => NOON,
    worker: new URL('../support/store-faulty-worker.ts', import.meta.url) })
  for (const death of ['die-before', 'die-after']) {
    store.failed({ account: 'acme', key: death, model: 'm' })
    writeFileSync(join(folder, death), '')
    const booked = store.credit('acme', death, 1n)
    await until(() => store.trouble)
    store.failed({ account: 'acme', key: `${death} and later`, model: 'm' })
    t.equal(await booked, true)
    await store.credit('acme', `behind ${death}`, 1n)
  }
  const rollups = await store.rollups({ by: 'hour', from: NOON, to: NOON + HOUR, groups: ['key'], only: {} })
  t.strictSame(rollups.map(({ key, errors }) => `${key!}: ${errors}`),
    ['die-after: 1', 'die-after and later: 1', 'die-before and later: 1'])
})

void t.test('failures alone are kept by themselves, and by the end of the process', async (t) => {
  const folder = folderFor(t)
  const first = await open(t, folder, { now: () => NOON })
  const of = { by: 'hour', from: NOON, to: NOON + HOUR, groups: [], only: {} } as const
  first.failed({ account: 'acme', key: 'dev', model: 'm' })
  while ((await first.rollups(of)).length === 0) await new Promise((resolve) => { setTimeout(resolve, 50) })
  first.failed({ account: 'acme', key: 'dev', model: 'm' })
  await first.close()
  const second = await open(t, folder, { now: () => NOON })
  t.match(await second.rollups(of), [{ errors: 2, requests: 0 }])
})

void t.test('a file of before there were rollups gets them from its entries, of hours and of days', async (t) => {
  const folder = folderFor(t)
  const file = new DatabaseSync(join(folder, 'gateway.db'))
  file.exec('PRAGMA journal_mode = WAL')
  migrate(file, STEPS.slice(0, 6))
  const cells: Cell[] = []
  const used = { ...noUsage, input: 7, cache_write_5m: 2, output: 5, extras: { web_fetch: 2, video_second: 8 } }
  const settled = { account: 'acme', key: 'dev', nanos: -10n, at: '', model: 'm', channel: 'premium', usage: used,
    usage_source: 'provider' as const }
  let seq = 0
  for (const age of [500, 169, 168, 167, 0]) {
    const time = NOON + 1234 - age * HOUR
    const one = { ...settled, id: '', reference: `r${age}` }
    pushEntry(cells, { ...one, kind: 'settle' }, seq++, time)
    pushEntry(cells, { ...one, kind: 'shortfall', nanos: 0n, shortfall: 3n }, seq++, time)
  }
  pushEntry(cells, { id: '', kind: 'credit', account: 'acme', reference: 'c', nanos: 100n, at: '' }, seq++, NOON + 2000)
  const of = { id: '', account: 'acme', key: 'dev', at: '' }
  pushEntry(cells, { ...of, kind: 'settle', reference: 'free', nanos: 0n, model: 'f' }, seq++, NOON + 2000)
  pushEntry(cells, { ...of, kind: 'adjust', reference: 'r0', nanos: 10n, model: 'm', channel: 'premium' }, seq++,
    NOON + 2000)
  const insert = file.prepare(`INSERT INTO entries VALUES (${Array.from({ length: 20 }, () => '?').join()})`)
  for (let i = 0; i < cells.length; i += 20) insert.run(...cells.slice(i, i + 20) as (string | number | null)[])
  file.exec('INSERT INTO balances VALUES (\'acme\', 60); INSERT INTO key_usage VALUES (\'dev\', 40)')
  file.close()
  const store = await open(t, folder, { now: () => NOON + 5000 })
  await auditRollups(store, [])
  await auditNewest(store)
  t.match(await store.rollups({ by: 'day', from: 0, to: NOON, groups: ['model'], only: {} }), [
    { requests: 1 }, { requests: 3, usage: { extras: { video_second: 24 } } }, { model: 'f', requests: 1, nanos: 0n },
    { model: 'm', requests: 1, nanos: 0n, shortfall: 3n }
  ])
})

void t.test('a file whose hours were days only when they were 7 days old gets whole days, and months', async (t) => {
  const folder = folderFor(t)
  const file = new DatabaseSync(join(folder, 'gateway.db'))
  file.exec('PRAGMA journal_mode = WAL')
  const cells: Cell[] = []
  const ages = [2000, 800, 170, 169, 168, 30, 2, 0]
  for (const [seq, age] of ages.entries()) {
    for (const [i, key] of ['dev', 'ops'].entries()) {
      pushEntry(cells, { id: '', kind: 'settle', account: 'acme', key, reference: `r${age} ${key}`, nanos: -10n, at: '',
        model: 'm', usage: { ...noUsage, output: 5 }, usage_source: 'provider' }, 2 * seq + i, NOON - age * HOUR)
    }
  }
  migrate(file, STEPS.slice(0, 6))
  const insert = file.prepare(`INSERT INTO entries VALUES (${ENTRY.map(() => '?').join()})`)
  for (let i = 0; i < cells.length; i += ENTRY.length) {
    insert.run(...cells.slice(i, i + ENTRY.length) as (string | number | null)[])
  }
  migrate(file, STEPS.slice(0, 8))
  // As that release left an hour of which it had folded only the first row.
  const [hour, day] = [NOON - 169 * HOUR, Math.floor((NOON - 169 * HOUR) / DAY) * DAY]
  for (const sql of [
    `INSERT INTO usage_hours SELECT ${hour}, account, 'ops', model, channel, 1, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 10, 0
      FROM usage_hours WHERE start = ${NOON} AND key = 'dev'`,
    `UPDATE usage_days SET requests = requests - 1, output = output - 5, nanos = nanos - 10
      WHERE key = 'ops' AND start = ${day}`,
    `INSERT INTO balances VALUES ('acme', ${-10 * 2 * ages.length})`,
    `INSERT INTO key_usage VALUES ('dev', ${10 * ages.length}), ('ops', ${10 * ages.length})`
  ]) file.exec(sql)
  file.close()
  const store = await open(t, folder, { now: () => NOON + 5000 })
  await auditRollups(store, [])
  t.match(await store.rollups({ by: 'month', from: 0, to: NOON, groups: [], only: {} }),
    [{ requests: 2 }, { requests: 2 }, { requests: 12 }])
  await store.credit('acme', 'c', 1_000_000n)
  await auditRollups(store, [])
})

void t.test('a file whose newest hour has failures only takes entries of earlier ones: an import\'s', (t) => {
  const folder = folderFor(t)
  const file = new DatabaseSync(join(folder, 'gateway.db'))
  file.exec('PRAGMA journal_mode = WAL')
  migrate(file, STEPS.slice(0, 8))
  file.exec(`INSERT INTO usage_hours VALUES (${NOON}, 'acme', 'dev', 'm', '', 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)`)
  file.close()
  const ledger = new Ledger(folder, false)
  t.teardown(() => { ledger.close([]) })
  const entries: Cell[] = []
  for (const [seq, age] of [30, 28].entries()) {
    pushEntry(entries, { id: '', kind: 'settle', account: 'acme', key: 'dev', reference: `r${seq}`, nanos: -10n, at: '',
      model: 'm', usage: noUsage, usage_source: 'provider' }, seq, NOON - age * HOUR)
  }
  ledger.write({ ...NO_WRITE, entries })
  for (const by of ['day', 'month'] as const) {
    const found: Rollup[] = []
    for (let from: number | undefined = 0; from !== undefined;) {
      const { cells, next } = ledger.documents.rollups({ by, from, to: Infinity, groups: [], only: {} })
      found.push(...readRollups(cells, []))
      from = next
    }
    t.equal(found.reduce((sum, { requests }) => sum + requests, 0), 2, by)
    t.equal(found.reduce((sum, { errors }) => sum + errors, 0), 1, by)
  }
  t.strictSame([...ledger.verify('')].flatMap((compared) => compared?.of === 'rollup' ? compared.cells : []), [])
  t.end()
})

void t.test('each kind of sum is a column of all tables', async (t) => {
  const db = new DatabaseSync(':memory:')
  migrate(db)
  for (const table of ['usage_hours', 'usage_days', 'usage_months']) {
    t.strictSame(db.prepare('SELECT name FROM pragma_table_info(?)').all(table).map(({ name }) => name),
      ['start', ...GROUPS, ...COUNTS, ...AMOUNTS])
  }
})

void t.test('a batch adds one row for each hour and members, however many charges it has', async (t) => {
  const folder = folderFor(t)
  const ledger = new Ledger(folder, false)
  t.teardown(() => { ledger.close([]) })
  const entries: Cell[] = []
  for (let i = 0; i < 300; i++) {
    pushEntry(entries, { id: '', kind: 'settle', account: 'acme', key: `k${i % 3}`, reference: `r${i}`, nanos: -1n,
      at: '', model: 'm', usage: noUsage, usage_source: 'provider' }, i, NOON)
  }
  ledger.write({ ...NO_WRITE, entries })
  const { cells } = ledger.documents.rollups({ by: 'hour', from: NOON, to: NOON + HOUR, groups: ['key'], only: {} })
  t.strictSame(readRollups(cells, ['key']).map(({ requests }) => requests), [100, 100, 100])
})

/** How SQLite would find what is asked for. */
function planOf (db: DatabaseSync, { sql, named }: Asked): string[] {
  return db.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(named).map(({ detail }) => String(detail))
}

void t.test('a page of the newest entries is found by an index, whatever is asked for', async (t) => {
  const db = new DatabaseSync(':memory:')
  migrate(db)
  const range = { from: 3, before: 1_000_000 }
  const byNumber = 'SEARCH entries USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)'
  t.strictSame(planOf(db, { sql: LISTS.replaceAll('?', '1'), named: {} }),
    ['SEARCH entry_index USING PRIMARY KEY (of=? AND member=? AND first<?)'])
  const queries: EntryQuery[] = [{ limit: 50 }]
  for (const name of ['account', 'key', 'model'] as const) {
    queries.push(...queries.map((query) => ({ ...query, [name]: 'x' })))
  }
  for (const query of queries) {
    const said = JSON.stringify(query)
    t.strictSame(planOf(db, rowsSql(query, range, 50)), [byNumber], said)
    const byReference = planOf(db, referenceSql('r', query, range, 50))
    t.notOk(byReference.some((line) => line.startsWith('SCAN')), byReference.join('\n'))
    t.ok(byReference.some((line) => line.includes('bookings_by_reference')), said)
    t.ok(byReference.some((line) => line.includes('sqlite_autoindex_entries_1 (reference=?)')), said)
    t.match(planOf(db, listedSql(query, [1, 2], 50)), ['SEARCH entries USING INTEGER PRIMARY KEY (rowid=?)'], said)
  }
})

void t.test('the newest tasks are found by an index, whatever is asked for', async (t) => {
  const db = new DatabaseSync(':memory:')
  migrate(db)
  const before = { created: 5, id: 'v' }
  for (const search of [{}, { account: 'a' }, { status: 'failed' }, { account: 'a', status: 'failed' }]) {
    for (const more of [{}, { before }]) {
      const { sql, values } = newestTasksSql({ ...search, ...more, limit: 9 })
      const plan = db.prepare(`EXPLAIN QUERY PLAN SELECT id FROM tasks ${sql}`).all(...values)
        .map(({ detail }) => String(detail))
      t.equal(plan.length, 1, plan.join('\n'))
      t.match(plan[0], /USING (?:COVERING )?INDEX tasks_(?:by_creation|by_status|of_account)/)
    }
  }
})

void t.test('entries come into the index a thousand at a time, also behind a batch that failed', async (t) => {
  const folder = folderFor(t)
  const ledger = new Ledger(folder, false)
  t.teardown(() => { ledger.close([]) })
  const write = (from: number, to: number, failing = false): void => {
    const entries: Cell[] = []
    for (let i = from; i < to; i++) {
      pushEntry(entries, { id: '', kind: 'settle', account: 'acme', key: i % 10 === 0 ? 'rare' : 'dev',
        reference: `r${i}`, nanos: -1n, at: '', model: 'm', usage: noUsage, usage_source: 'provider' }, i, NOON + i)
    }
    // A task without a name is refused by its table, behind the entries.
    ledger.write({ ...NO_WRITE, entries, ...(failing && { tasks: Array.from({ length: TASK.length }, () => null) }) })
  }
  const found = (key: string): number => {
    let count = 0
    for (let before: string | undefined = entryId(10_000, 0); before !== undefined;) {
      const { cells, next } = ledger.documents.newest({ limit: 300, key, before })
      count += cells.length / ENTRY.length
      before = next
    }
    return count
  }
  write(0, 990)
  t.strictSame([found('rare'), found('dev')], [99, 891], 'none is in the index')
  t.throws(() => { write(990, 1100, true) })
  t.strictSame([found('rare'), found('dev')], [99, 891])
  write(1100, 1200)
  t.strictSame([found('rare'), found('dev')], [109, 981])
  write(1200, 2200)
  t.strictSame([found('rare'), found('dev')], [209, 1881])
  for (let i = 2200; i < 4300; i += 7) write(i, i + 7)
  t.strictSame([found('rare'), found('dev')], [419, 3771])
  for (let i = 4300; i < 5000; i += 10) write(i, i + 10)
  t.throws(() => { write(5000, 6100, true) }, 'it would have taken those before it into the index')
  for (let i = 5000; i < 8000; i += 10) write(i, i + 10)
  t.strictSame([found('rare'), found('dev')], [789, 7101])
  const db = new DatabaseSync(join(copied(t, folder), 'gateway.db'))
  const lists = db.prepare("SELECT seqs FROM entry_index WHERE member IN ('rare', 'dev')").all()
    .map(({ seqs }) => JSON.parse(String(seqs)) as number[])
  const { seq } = db.prepare('SELECT seq FROM indexed').get() as { readonly seq: number }
  db.close()
  const written = Array.from({ length: seq + 1 }, (_, i) => i).filter((i) => i < 990 || i >= 1100)
  t.strictSame(lists.flat().toSorted((a, b) => a - b), written, 'each once, and none that was not recorded')
  t.ok(lists.every((list) => list.length <= 1000))
})

void t.test('where an index has many that are not meant, a page is short, and the next one goes on', async (t) => {
  const folder = folderFor(t)
  const ledger = new Ledger(folder, false)
  const cells: Cell[] = []
  for (let i = 0; i < 30_000; i++) {
    pushEntry(cells, { id: '', kind: 'settle', account: 'acme', key: 'dev', reference: `r${i}`, nanos: -1n, at: '',
      model: i === 5 ? 'rare' : i % 2 === 0 ? 'm1' : 'm2' }, i, NOON + i)
  }
  ledger.write({ ...NO_WRITE, entries: cells })
  ledger.close([])
  const store = await open(t, folder, { now: () => NOON + DAY })
  const first = await store.newest({ limit: 10, account: 'acme', model: 'rare' })
  t.strictSame(first.entries, [])
  t.ok(first.next)
  const second = await store.newest({ limit: 10, account: 'acme', model: 'rare', before: first.next! })
  t.strictSame(second.entries.map(({ reference }) => reference), ['r5'])
  t.equal(second.next, undefined)
  t.match(await store.newest({ limit: 1, model: 'rare' }), { entries: [{ reference: 'r5' }], next: undefined })
  t.strictSame((await store.newest({ limit: 3, key: 'dev', model: 'm1' })).entries.map(({ reference }) => reference),
    ['r29998', 'r29996', 'r29994'])
  t.equal((await all(store)).length, 30_000)
})
