// What the embedded store keeps of days and months: over a restart, a kill and a disk that fails, and from a file of an
// older gateway.
import { chmodSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import fc from 'fast-check'
import t from 'tap'
import { Ledger } from '../../src/store/embedded/ledger.ts'
import { migrate, STEPS } from '../../src/store/embedded/schema.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import { type Cell, pushEntry } from '../../src/store/local/cells.ts'
import type { LocalStore } from '../../src/store/local/store.ts'
import { NO_WRITE } from '../../src/store/local/writer.ts'
import { copied, newLog, open, request, settlement } from '../support/embedded-store.ts'
import { folderFor } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'

const DAY = 86_400_000
const APRIL = Date.parse('2026-04-01T00:10Z')
const PERIODS = ['2026-03-31', '2026-03', '2026-04-01', '2026-04']

function spent (store: LocalStore): bigint[] {
  return PERIODS.map((period) => store.keyUsage('dev', period).spent)
}

function change (folder: string, sql: string): void {
  const db = new DatabaseSync(join(folder, 'gateway.db'))
  try { db.exec(sql) } finally { db.close() }
}

function rows (folder: string): unknown[] {
  const db = new DatabaseSync(join(folder, 'gateway.db'))
  try {
    return db.prepare('SELECT period, key, nanos FROM key_periods ORDER BY period, key').all().map((row) =>
      Object.values(row)
    )
  } finally {
    db.close()
  }
}

void t.test('a restart knows what was spent today and this month, and a stream that a kill ended is charged to the day of its hold', async (t) => {
  const folder = folderFor(t)
  const options = { now: () => APRIL, progress_interval: 0 }
  const first = await open(t, folder, options)
  await first.credit('acme', 'c', 1000n)
  first.hold(request('r1', 30n, { day: '2026-03-31' }))
  await first.settle(settlement('r1', 30n))
  first.hold(request('r2', 20n, { day: '2026-04-01' }))
  await first.settle(settlement('r2', 20n))
  first.hold(request('cut', 60n, { day: '2026-03-31' }))
  first.progress(settlement('cut', 25n, { price_version: 'p7' }))
  await first.credit('acme', 'd', 1n)                          // answered after all before it

  const killed = copied(t, folder)
  const second = await open(t, killed, options)
  t.strictSame(spent(second), [55n, 55n, 20n, 20n])
  t.match((await all(second)).at(-1), { kind: 'settle', reference: 'cut', nanos: -25n, day: '2026-03-31',
    price_version: 'p7', usage_source: 'estimated' })
  t.match(second.hold(request('r3', 31n, { day: '2026-04-01', usage_limit_day: 50n })), { kind: 'refused',
    period: 'day', available: 30n })
  t.match(second.hold(request('r3', 6n, { day: '2026-03-31', usage_limit_month: 60n })), { kind: 'refused',
    period: 'month', available: 5n })
  t.strictSame((await second.verify()).differences, [])
  await second.close()

  const third = await open(t, killed, options)
  t.strictSame(spent(third), [55n, 55n, 20n, 20n])
  t.strictSame(third.keyUsage('dev', '2026-04-01'), { spent: 20n, held: 0n }, 'a hold ends with its process')
})

void t.test('what can\'t be recorded counts for no day, and is held for its day again', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { now: () => APRIL,
    worker: new URL('../support/store-faulty-worker.ts', import.meta.url) })
  await store.credit('acme', 'c', 1000n)
  store.hold(request('r1', 60n, { day: '2026-03-31', usage_limit_day: 60n }))
  writeFileSync(join(folder, 'disk-full'), '')
  const settling = store.settle(settlement('r1', 40n))
  t.strictSame(store.keyUsage('dev', '2026-03-31'), { spent: 40n, held: 0n })
  await t.rejects(async () => await settling, { code: 'service_unavailable' })
  t.strictSame(PERIODS.map((period) => store.keyUsage('dev', period)), [{ spent: 0n, held: 40n }, { spent: 0n,
    held: 40n }, { spent: 0n, held: 0n }, { spent: 0n, held: 0n }])
  rmSync(join(folder, 'disk-full'))
  t.equal(await store.settle(settlement('r1', 40n)), 40n)
  t.strictSame(spent(store), [40n, 40n, 0n, 0n])
  t.strictSame((await store.verify()).differences, [])
})

void t.test('on the disk, too, days and months that are over are deleted; a clock that is set back deletes none', async (t) => {
  const folder = folderFor(t)
  let time = Date.parse('2026-01-10T12:00Z')
  let store = await open(t, folder, { now: () => time })
  await store.credit('acme', 'c', 1_000_000n)
  const spend = async (id: string): Promise<void> => {
    for (const key of ['dev', 'ops']) {
      store.hold(request(`${id}-${key}`, 1n, { key, day: new Date(time).toISOString().slice(0, 10) }))
      await store.settle(settlement(`${id}-${key}`, 1n))
    }
  }
  for (let i = 0; i < 40; i++, time += DAY) {
    await spend(`r${i}`)
    if (i % 7 !== 3) continue
    await store.close()
    store = await open(t, folder, { now: () => time })
  }
  time -= 3 * DAY
  await spend('back')
  await store.close()
  const kept = ['2026-02', '2026-02-14', '2026-02-15', '2026-02-16', '2026-02-17', '2026-02-18']
  const of = (period: string): number => period === '2026-02' ? 19 : period === '2026-02-16' ? 2 : 1
  t.strictSame(rows(folder), kept.flatMap((period) => ['dev', 'ops'].map((key) => [period, key, of(period)])))
  const after = await open(t, folder, { now: () => time })
  t.strictSame((await after.verify()).differences, [])
})

void t.test('days that are over are looked for when a day begins, not with each charge', async (t) => {
  const ledger = new Ledger(folderFor(t), false)
  t.teardown(() => { ledger.close([]) })
  let seq = 0
  const days = (): unknown[] =>
    [...ledger.load()].flatMap(([of, cells]) => of === 'period' ? cells : []).filter((_, i) => i % 3 === 0)
  const charge = (day: string): unknown[] => {
    const entries: Cell[] = []
    pushEntry(entries, { id: '', kind: 'settle', account: 'acme', key: 'dev', reference: `r${seq}`, nanos: -1n, at: '',
      day }, seq++, 0)
    ledger.write({ ...NO_WRITE, entries })
    return days()
  }
  charge('2026-04-20')
  const late = ['2026-04', '2026-04-10', '2026-04-20']
  t.strictSame(charge('2026-04-10'), late, 'a charge that comes late')
  t.strictSame(charge('2026-04-20'), late)
  t.strictSame(charge('2026-04-21'), ['2026-04', '2026-04-20', '2026-04-21'])
})

void t.test('verify finds a day that was changed by hand, in the file and in what was read from it', async (t) => {
  const folder = folderFor(t)
  const before = await open(t, folder, { now: () => APRIL })
  await before.credit('acme', 'c', 100n)
  before.hold(request('r1', 10n, { day: '2026-04-01' }))
  await before.settle(settlement('r1', 10n))
  await before.close()
  change(folder,
    'UPDATE key_periods SET nanos = 3 WHERE period = \'2026-04-01\'; INSERT INTO key_periods VALUES (\'2026-04-01\', \'other\', 7), (\'2026-01-01\', \'other\', 7)')
  const after = await open(t, folder, { now: () => APRIL })
  t.strictSame((await after.verify()).differences, [
    { of: 'period', id: '2026-04-01 dev', entries: 10n, kept: 3n, where: 'disk' },
    { of: 'period', id: '2026-04-01 dev', entries: 10n, kept: 3n, where: 'memory' },
    { of: 'period', id: '2026-04-01 other', entries: 0n, kept: 7n, where: 'disk' },
    { of: 'period', id: '2026-04-01 other', entries: 0n, kept: 7n, where: 'memory' }
  ], 'but none of January, which limits nothing any more')
})

void t.test('verify compares days while others write, past midnight', async (t) => {
  let time = APRIL
  const store = await open(t, folderFor(t), { now: () => time })
  await store.credit('acme', 'c', 1_000_000n)
  let isOver = false
  const spend = async (spender: number): Promise<void> => {
    for (let i = 0; !isOver; i++) {
      store.hold(
        request(`r${spender}-${i}`, 1n, { key: `k${spender % 3}`, day: new Date(time).toISOString().slice(0, 10) })
      )
      await store.settle(settlement(`r${spender}-${i}`, 1n))
    }
  }
  const spending = Promise.all(Array.from({ length: 20 }, async (_, spender) => { await spend(spender) }))
  for (let i = 0; i < 6; i++) {
    const verified = store.verify()
    time += DAY
    t.strictSame((await verified).differences, [])
  }
  isOver = true
  await spending
})

const SETTLED = '\'premium\', \'provider\', 1, 2, 3, 4, 5, \'{"web_search":6}\''

void t.test('the file of a gateway without days is taken over with all that is in it', async (t) => {
  const folder = folderFor(t)
  const file = join(folder, 'gateway.db')
  const old = new DatabaseSync(file)
  old.exec('PRAGMA journal_mode = WAL')
  migrate(old, STEPS.slice(0, 2))
  for (const row of [
    'INSERT INTO entries VALUES (0, 1000, \'credit\', \'acme\', NULL, \'c\', 1000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)',
    `INSERT INTO entries VALUES (1, 2000, 'settle', 'acme', 'dev', 'r1', -30, NULL, 'm', ${SETTLED})`,
    `INSERT INTO entries VALUES (2, 2000, 'shortfall', 'acme', 'dev', 'r1', 0, 4, 'm', ${SETTLED})`,
    'INSERT INTO balances VALUES (\'acme\', 970)',
    'INSERT INTO key_usage VALUES (\'dev\', 30)',
    `INSERT INTO progress VALUES ('acme', 'dev', 'cut', -25, NULL, 'm', ${SETTLED})`,
    'INSERT INTO records VALUES (\'account\', \'acme\', 1, \'{}\')'
  ]) old.exec(row)
  old.close()
  chmodSync(file, 0o600)

  const store = await open(t, folder, { now: () => APRIL })
  const usage = { input: 1, cache_read: 2, cache_write_5m: 3, cache_write_1h: 4, output: 5, extras: { web_search: 6 } }
  const settled = { account: 'acme', key: 'dev', model: 'm', channel: 'premium', usage }
  t.strictSame((await all(store)).map(({ id: _id, at: _at, ...entry }) => entry), [
    { kind: 'credit', account: 'acme', reference: 'c', nanos: 1000n },
    { kind: 'settle', reference: 'r1', nanos: -30n, ...settled, usage_source: 'provider' },
    { kind: 'shortfall', reference: 'r1', nanos: 0n, shortfall: 4n, ...settled, usage_source: 'provider' },
    { kind: 'settle', reference: 'cut', nanos: -25n, ...settled, usage_source: 'estimated' }
  ], 'nothing is invented for what was written before')
  t.strictSame(
    [store.balance('acme').balance, store.keyUsage('dev').spent, ...spent(store)], [945n, 55n, 0n, 0n, 0n, 0n]
  )
  t.equal((await store.records()).length, 1)
  store.hold(request('r2', 10n, { day: '2026-04-01', usage_limit_day: 10n }))
  await store.settle(settlement('r2', 10n, { price_version: 'p1' }))
  t.match((await all(store)).at(-1), { reference: 'r2', day: '2026-04-01', price_version: 'p1' })
  t.strictSame((await store.verify()).differences, [])
  await store.close()
  t.strictSame(spent(await open(t, folder, { now: () => APRIL })), [0n, 0n, 10n, 10n],
    'and a second start finds it as it is')
})

void t.test('parallel requests never pass a day\'s limit, whatever they cost, over midnight and restarts', async (t) => {
  const wanted = fc.record({ nanos: fc.bigInt(0n, 40n), cost: fc.bigInt(0n, 60n),
    end: fc.constantFrom('settle', 'settle', 'release', 'refund'), isLate: fc.boolean() })
  await t.resolves(
    fc.assert(
      fc.asyncProperty(fc.bigInt(0n, 150n), fc.bigInt(0n, 250n),
        fc.array(fc.array(wanted, { minLength: 1, maxLength: 15 }), { minLength: 1, maxLength: 6 }),
        async (ofDay, ofMonth, days) => {
          const folder = folderFor(t)
          let time = Date.parse('2026-03-29T12:00Z')
          const options = { folder, log: newLog(), now: () => time }
          let store = await openEmbedded(options)
          try {
            await store.credit('acme', 'c', 1_000_000n)
            for (const [n, requests] of days.entries()) {
              const day = new Date(time).toISOString().slice(0, 10)
              const held = requests.map(({ nanos }, i) =>
                store.hold(request(`r${n}-${i}`, nanos, { day, usage_limit_day: ofDay, usage_limit_month: ofMonth }))
                  .kind === 'held'
              )
              const finish = async (late: boolean): Promise<unknown> =>
                await Promise.all(requests.map(async ({ cost, end, isLate }, i) => {
                  if (!held[i] || isLate !== late) return
                  if (end === 'release') {
                    await store.release(`r${n}-${i}`)
                    return
                  }
                  await store.settle(settlement(`r${n}-${i}`, cost))
                  if (end === 'refund') await store.refund(`r${n}-${i}`)
                }))
              await finish(false)
              time += DAY
              await finish(true)
              if (n % 2 === 0) continue
              await store.close()
              store = await openEmbedded(options)
            }
            const sums = new Map<string, bigint>()
            for (const { day, nanos } of await all(store)) {
              for (const period of day === undefined
                ? []
                : [day, day.slice(0, 7)]) { sums.set(period, (sums.get(period) ?? 0n) - nanos) }
            }
            for (const [period, nanos] of sums) {
              if (nanos > (period.length === 7 ? ofMonth : ofDay)) {
                throw new Error(`${period}: ${nanos} of ${ofDay} and ${ofMonth}`)
              }
            }
            const { differences } = await store.verify()
            if (differences.length > 0) throw new Error(differences.map(({ id }) => id).join())
          } finally {
            await store.close()
          }
        }),
      { numRuns: 40 }
    )
  )
})
