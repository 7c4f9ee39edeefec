// The embedded store: what it keeps over a restart, what it refuses, and that it decides as memory does.
import { randomUUID } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import fc from 'fast-check'
import t from 'tap'
import { Books } from '../../src/store/local/balances.ts'
import { REMEMBERED } from '../../src/store/local/settled.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import { Decisions } from '../../src/store/local/batch.ts'
import { Ledger } from '../../src/store/embedded/ledger.ts'
import { migrate, STEPS } from '../../src/store/embedded/schema.ts'
import { ENTRY, settlementRow } from '../../src/store/local/cells.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import { NO_WRITE } from '../../src/store/local/writer.ts'
import type { Entry, Settlement, Store } from '../../src/store/store.ts'
import { copied, newLog, open, request, settlement } from '../support/embedded-store.ts'
import { folderFor } from '../support/spawned.ts'
import { all, conformance } from '../support/store-conformance.ts'
import { pagesOf } from '../support/store-rollups-conformance.ts'
import { until } from '../support/until.ts'

void t.test('embedded', async (t) => {
  conformance(t, async (now) => await openEmbedded({ folder: folderFor(t), log: newLog(), ...(now && { now }) }), 20)
})

void t.test('what was recorded is there after a restart: balances, usage, entries, references, charges', async (t) => {
  const folder = folderFor(t)
  const usage = { input: 1, cache_read: 2, cache_write_5m: 3, cache_write_1h: 4, output: 5, extras: { web_search: 6 } }
  const before = await open(t, folder)
  await before.credit('acme', 'c', 1000n)
  before.hold(request('r1', 60n))
  await before.settle(settlement('r1', 75n, { usage, usage_source: 'estimated' }))
  before.hold(request('open', 100n))
  const entries = await all(before)
  await before.close()
  t.throws(() => before.hold(request('r2', 1n)), /closed/)

  const after = await open(t, folder)
  t.strictSame(await all(after), entries)
  t.strictSame(after.balance('acme'), { balance: 940n, held: 0n, open_holds: 0 }, 'a hold ends with its process')
  t.strictSame(after.keyUsage('dev'), { spent: 60n, held: 0n })
  t.equal(await after.credit('acme', 'c', 1000n), false)
  t.equal(await after.settle(settlement('r1', 1n)), 60n)
  t.throws(() => after.hold(request('r1', 1n)), /r1/)
  await after.credit('acme', 'd', 1n)
  const ids = (await all(after)).map(({ id }) => id)
  t.strictSame(ids, ids.toSorted(), 'later entries sort after the earlier ones')
})

void t.test('numbers that no entry got are given again, and found by their account', async (t) => {
  const folder = folderFor(t)
  const credits = async (store: Store, name: string, count: number): Promise<void> => {
    await Promise.all(Array.from({ length: count }, (_, i) => store.credit('acme', `${name}${i}`, 1n)))
  }
  const listed = async (store: Awaited<ReturnType<typeof open>>): Promise<readonly string[]> =>
    (await pagesOf(store, { account: 'acme', limit: 400 })).map(({ reference }) => reference)
  const before = await open(t, folder)
  await credits(before, 'old', 990)
  await credits(before, 'old', 20)                            // known: their numbers end where the index takes a part
  await before.close()
  const after = await open(t, folder)
  await credits(after, 'new', 20)
  t.strictSame(await listed(after), (await all(after)).map(({ reference }) => reference).reverse())
  await after.close()

  const file = new DatabaseSync(join(folder, 'gateway.db'))
  file.exec('UPDATE indexed SET seq = 1100')                  // as an earlier release may have left it
  file.close()
  const last = await open(t, folder)
  await credits(last, 'newer', 20)
  t.strictSame(await listed(last), (await all(last)).map(({ reference }) => reference).reverse())
})

void t.test('a stop does not wait for the next fsync', async (t) => {
  const store = await open(t, folderFor(t), { fsync_interval: 60_000 })
  await store.credit('acme', 'c', 1n)
  let isClosed = false
  void store.close().then(() => { isClosed = true })
  await until(() => isClosed, 30_000)
  t.pass()
})

void t.test('ids go on after a restart, even where the clock was set back', async (t) => {
  const folder = folderFor(t)
  const before = await open(t, folder, { now: () => 1_800_000_000_000 })
  await before.credit('acme', 'a', 1n)
  await before.close()
  const log = newLog()
  const after = await open(t, folder, { now: () => 1_700_000_000_000, log })
  t.match(log.about, [{ alert: 'ledger_ahead', last_entry: '2027-01-15T08:00:00.000Z' }])
  await after.credit('acme', 'b', 1n)
  const [a, b] = await all(after)
  t.ok(a!.id < b!.id)
  t.equal(a!.at, b!.at)
})

void t.test('amounts are as exact after a restart', async (t) => {
  const most = 2n ** 63n - 1n
  const folder = folderFor(t)
  const before = await open(t, folder)
  await before.credit('acme', 'c', most)
  before.hold(request('r1', most))
  await before.settle(settlement('r1', most - 1n))
  await before.credit('acme', 'd', most - 1n)
  await before.close()
  const after = await open(t, folder)
  t.strictSame([after.balance('acme').balance, after.keyUsage('dev').spent], [most, most - 1n])
  t.strictSame((await all(after)).map(({ nanos }) => nanos), [most, 1n - most, most - 1n])
  t.strictSame((await after.verify()).differences, [])
})

void t.test('a settlement that memory has forgotten and the ledger has not counts as it did then', async (t) => {
  const ledger = new Ledger(folderFor(t), false)
  t.teardown(() => { ledger.close([]) })
  const books = new Books()
  books.load('account', 'acme', 100n)
  const settle = (seq: number, nanos: bigint): Decisions => {
    books.hold(request('r1', 20n), 0)
    const decisions = new Decisions(books, { onEnd () {} })
    const charge = books.settle(settlement('r1', nanos))!
    decisions.settle(seq, charge)
    const { hold } = charge
    decisions.put('entries', settlementRow(seq, 0, 'settle', hold, -charge.nanos, null, settlement('r1', nanos)))
    if (nanos > charge.nanos) {
      const shortfall = nanos - charge.nanos
      decisions.put('entries', settlementRow(seq + 1, 0, 'shortfall', hold, 0n, shortfall, settlement('r1', nanos)))
    }
    decisions.onWritten(ledger.write(decisions.write))
    return decisions
  }
  settle(0, 7n)
  for (let i = 0; i < 2 * REMEMBERED; i++) books.remember(`other${i}`, 0n)
  const again = settle(1, 75n)
  t.equal(again.settlementOf('r1')!.charge.nanos, 7n)
  t.equal(books.chargeOf('r1'), 7n)
  t.strictSame([books.balance('acme'), books.keyUsage('dev')], [{ balance: 93n, held: 0n, open_holds: 0 }, { spent: 7n,
    held: 0n }])
  t.equal(ledger.read(-1, 9).length, ENTRY.length, 'nor has it a shortfall')
})

void t.test('property: entries that one statement writes are those that a statement for each would write', async (t) => {
  const kinds = ['settle', 'shortfall', 'credit', 'adjust'] as const
  const row = fc.record({ seq: fc.nat(120), kind: fc.constantFrom(...kinds), reference: fc.nat(90),
    nanos: fc.bigInt(1n, 9n), isNew: fc.boolean() })
  await fc.assert(
    fc.asyncProperty(fc.array(fc.record({ rows: fc.array(row, { maxLength: 40 }), isRepeated: fc.boolean() }),
      { minLength: 1, maxLength: 5 }), async (batches) => {
      const ledger = new Ledger(folderFor(t), false)
      try {
        let next = 1000
        let entries = new Map<string, { readonly seq: number, readonly nanos: bigint }>()
        for (const { rows, isRepeated } of batches) {
          const cells = rows.flatMap(({ seq, kind, reference, nanos, isNew }) => {
            const number = isNew ? next++ : seq
            return [number, number, kind, `a${reference % 3}`, 'k', isNew ? `new ${number}` : `r${reference}`, nanos,
              ...ENTRY.slice(7).map(() => null)]
          })
          for (let times = isRepeated ? 2 : 1; times > 0; times--) {
            const wanted = new Map(entries)
            const known: [number, bigint][] = []
            let isRefused = false
            let skipped: string | undefined
            for (let i = 0; i < cells.length; i += ENTRY.length) {
              const [seq, , kind, , , reference, nanos] = cells.slice(i) as [number, number, string, string, string,
                string, bigint]
              if (kind === 'shortfall' && reference === skipped) continue
              const before = wanted.get(`${kind} ${reference}`)
              if (before === undefined) {
                isRefused ||= [...wanted.values()].some((other) => other.seq === seq)
                wanted.set(`${kind} ${reference}`, { seq, nanos })
              } else if (before.seq !== seq) {
                known.push([seq, before.nanos])
                skipped = reference
              }
            }
            const write = { ...NO_WRITE, entries: cells }
            if (isRefused) {
              t.throws(() => ledger.write(write), /was used for another entry/)
            } else {
              t.strictSame(ledger.write(write), known)
              entries = wanted
            }
            const found = ledger.read(-1, Infinity)
            t.strictSame(found.filter((_, i) => i % ENTRY.length === 0),
              [...entries.values()].map(({ seq }) => seq).toSorted((a, b) => a - b))
          }
        }
        for (const { cells } of [...ledger.verify('')].filter((step) => step !== undefined)) {
          for (let i = 0; i < cells.length; i += 3) t.equal(cells[i + 1], cells[i + 2], String(cells[i]))
        }
      } finally {
        ledger.close([])
      }
    }),
    { numRuns: 150 }
  )
})

void t.test('money that is not recorded yet can\'t be spent, and what is charged is gone at once', async (t) => {
  const store = await open(t, folderFor(t))
  const crediting = store.credit('acme', 'c', 100n)
  t.match(store.hold(request('r1', 1n)), { kind: 'refused', by: 'balance', available: 0n })
  t.throws(() => store.credit('acme', 'd', 2n ** 63n - 100n), /the balance of acme would pass/,
    'it counts, though, for what a balance may be')
  await crediting
  store.hold(request('r1', 60n))
  const settling = store.settle(settlement('r1', 60n))
  t.equal(store.balance('acme').balance, 40n)
  t.match(store.hold(request('r2', 41n)), { kind: 'refused' })
  await settling
})

void t.test('the write-ahead log is emptied after about a thousand pages, in large batches as in small ones', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder)
  for (let i = 0; i < 50; i++) {
    await Promise.all(Array.from({ length: 1000 }, (_, k) => store.credit('acme', `c${i} ${k}`, 1n)))
  }
  t.ok(statSync(join(folder, 'gateway.db-wal')).size < 1000 * 4096, 'of more than 5 MB')
})

void t.test('thousands of entries are read in slices, as they were when it began', async (t) => {
  const store = await open(t, folderFor(t))
  await Promise.all(Array.from({ length: 1700 }, (_, i) => store.credit('acme', `c${i}`, 1n)))
  const found: Entry[] = []
  for await (const entry of store.entries()) {
    if (found.length === 0) await store.credit('acme', 'later', 1n)
    found.push(entry)
  }
  t.strictSame(found.map(({ reference }) => reference), Array.from({ length: 1700 }, (_, i) => `c${i}`))
})

void t.test('verify adds everything up while others write, and they do not disturb it', async (t) => {
  const store = await open(t, folderFor(t))
  await Promise.all(Array.from({ length: 6000 }, (_, i) => store.credit(`a${i % 7}`, `c${i}`, 100n)))
  let isOver = false
  let settled = 0
  const spend = async (spender: number): Promise<void> => {
    for (let i = 0; !isOver; i++) {
      store.hold(request(`r${spender}-${i}`, 1n, { account: `a${spender % 7}` }))
      await store.settle(settlement(`r${spender}-${i}`, 1n))
      settled++
    }
  }
  const verified = store.verify().finally(() => { isOver = true })
  // As many as wait for no more, so sent right behind the question: they are recorded while it is worked on, and others
  // are always on their way.
  await Promise.all([verified, ...Array.from({ length: 40 }, async (_, spender) => { await spend(spender) })])
  const { entries, accounts, keys, differences } = await verified
  t.strictSame({ accounts, keys, differences }, { accounts: 7, keys: 1, differences: [] })
  t.ok(entries >= 6000, `${entries} were added up, those that came meanwhile too`)
  t.ok(settled > 0, `${settled} were settled meanwhile`)
})

void t.test('verify finds what was changed by hand, in the file and in what was read from it', async (t) => {
  const folder = folderFor(t)
  const before = await open(t, folder)
  await before.credit('acme', 'c', 100n)
  await before.credit('other', 'd', 5n)
  before.hold(request('r1', 10n))
  await before.settle(settlement('r1', 10n))
  await before.close()
  change(folder, 'UPDATE balances SET nanos = 1000000 WHERE account = \'acme\'; DELETE FROM key_usage')
  const after = await open(t, folder)
  t.strictSame(await after.verify(), {
    entries: 3,
    accounts: 2,
    keys: 1,
    differences: [
      { of: 'account', id: 'acme', entries: 90n, kept: 1_000_000n, where: 'disk' },
      { of: 'account', id: 'acme', entries: 90n, kept: 1_000_000n, where: 'memory' },
      { of: 'key', id: 'dev', entries: 10n, kept: 0n, where: 'disk' },
      { of: 'key', id: 'dev', entries: 10n, kept: 0n, where: 'memory' }
    ]
  })
})

void t.test('no entry is changed or deleted, whoever has the file', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder)
  await store.credit('acme', 'c', 100n)
  await store.close()
  for (const sql of ['UPDATE entries SET nanos = 5', 'DELETE FROM entries']) {
    t.throws(() => {
      change(folder, sql)
    }, /append-only/)
  }
  t.throws(() => {
    change(folder,
      'INSERT INTO entries (seq, time, kind, account, reference, nanos) VALUES (99, 0, \'credit\', \'acme\', \'c\', 5)')
  }, /UNIQUE/)
})

function change (folder: string, sql: string): void {
  const db = new DatabaseSync(join(folder, 'gateway.db'))
  try { db.exec(sql) } finally { db.close() }
}

void t.test('a file that is empty becomes a ledger; one that is newer or another\'s is left alone, in plain words', async (t) => {
  const refused = async (folder: string, why: RegExp): Promise<void> => {
    const before = readFileSync(join(folder, 'gateway.db'))
    await t.rejects(openEmbedded({ folder, log: newLog() }), { message: why })
    t.ok(readFileSync(join(folder, 'gateway.db')).equals(before))
  }
  const empty = await open(t, folderFor(t, { 'gateway.db': '' }))
  t.equal(await empty.credit('acme', 'c', 1n), true)

  await refused(
    folderFor(t, {
      'gateway.db':
        'Dear diary, this is not a database, but it has more than a hundred characters, as every database has.'
    }),
    /gateway\.db can't be opened: it belongs to another program/
  )
  const foreign = folderFor(t)
  change(foreign, 'PRAGMA journal_mode = WAL; CREATE TABLE diary (text)')
  await refused(foreign, /another program/)
  const newer = folderFor(t)
  await (await open(t, newer)).close()
  change(newer, 'PRAGMA user_version = 999')
  await refused(newer,
    /written by a newer gateway \(its tables are of version 999, this gateway knows \d+\): start that one/)
  await t.rejects(openEmbedded({ folder: join(newer, 'gateway.db', 'x'), log: newLog() }), {
    message: /can't be opened: ENOTDIR.*store\.path/
  })
})

void t.test('each version leads to the next, once; a step that fails has changed nothing', async (t) => {
  const db = new DatabaseSync(':memory:')
  const steps = ['CREATE TABLE one (x)', 'CREATE TABLE two (x); INSERT INTO two VALUES (1)']
  migrate(db, steps.slice(0, 1))
  t.throws(() => { migrate(db, [...steps, 'CREATE TABLE three (x); CREATE TABLE one (x)']) }, /one/)
  t.strictSame(db.prepare('SELECT name FROM sqlite_schema').all().map(({ name }) => name), ['one'])
  for (let i = 0; i < 2; i++) migrate(db, steps)
  t.equal(db.prepare('SELECT count(*) AS n FROM two').get()!['n'], 1)
  t.equal(db.prepare('PRAGMA user_version').get()!['user_version'], 2)
})

void t.test('the ledger can be read by its owner only', async (t) => {
  if (process.platform === 'win32') return
  const folder = join(folderFor(t), 'made')
  await open(t, folder)
  t.equal(statSync(folder).mode & 0o77, 0)
  for (const name of ['gateway.db', 'gateway.db-wal']) t.equal(statSync(join(folder, name)).mode & 0o77, 0)
})

void t.test('progress is kept at intervals, the first one too, and only until the request ends', async (t) => {
  let time = 1_800_000_000_000
  const now = (): number => time
  const folder = folderFor(t)
  const store = await open(t, folder, { now, progress_interval: 2000 })
  await store.credit('acme', 'c', 100n)
  const afterKill = async (): Promise<unknown> => {
    await store.credit('acme', 'c', 1n)                        // answered after all before it
    const killed = await open(t, copied(t, folder))
    return (await all(killed)).filter(({ kind }) => kind !== 'credit').map(({ reference, nanos }) => [reference, nanos])
  }
  store.hold(request('r1', 60n))
  time += 1999
  store.progress(settlement('r1', 10n))
  t.strictSame(await afterKill(), [], 'a short request costs no write')
  time++
  store.progress(settlement('r1', 20n))
  t.strictSame(await afterKill(), [['r1', -20n]])
  time += 1000
  store.progress(settlement('r1', 30n))
  t.strictSame(await afterKill(), [['r1', -20n]])
  time += 1000
  store.progress(settlement('r1', 40n))
  t.strictSame(await afterKill(), [['r1', -40n]])
  t.throws(() => { store.progress(settlement('r1', -1n)) }, RangeError)
  await store.settle(settlement('r1', 50n))
  t.strictSame(await afterKill(), [['r1', -50n]])

  store.hold(request('r2', 50n))
  time += 2000
  store.progress(settlement('r2', 5n))
  store.release('r2')
  store.progress(settlement('r2', 5n))
  t.strictSame(await afterKill(), [['r1', -50n]])
})

void t.test('rate limits: a clean stop keeps what was counted; after a kill they start with what was noted, unless that is to be forgotten', async (t) => {
  let time = 1_800_000_000_000
  const now = (): number => time
  const folder = folderFor(t)
  const ask = (store: Store, name = 'k'): unknown => store.admit({ request_id: 'r', windows: [{ name, limit: 3 }] })
  const first = await open(t, folder, { now })
  ask(first)
  time += 10_000
  ask(first)
  await first.close()

  time += 10_000
  const second = await open(t, folder, { now })
  t.match(ask(second), { kind: 'admitted', windows: [{ remaining: 0, next_ms: 40_001 }] })
  t.match(ask(second), { kind: 'refused', windows: [{ next_ms: 40_001 }] }, 'as if it had never stopped')
  t.match(ask(second, 'other'), { kind: 'admitted' })
  await second.credit('acme', 'c', 1n)

  const third = await open(t, copied(t, folder), { now })
  t.match(ask(third), { kind: 'refused', windows: [{ remaining: 0, next_ms: 40_002 }] })
  t.match(ask(third, 'other'), { kind: 'admitted', windows: [{ remaining: 0 }] },
    'another one may have come in that second')
  t.match(ask(third, 'other'), { kind: 'refused', by: 'window' })
  t.match(ask(third, 'never-seen'), { kind: 'admitted', windows: [{ remaining: 2 }] })
  await third.credit('acme', 'd', 1n)
  time += 62_000
  t.match(ask(third, 'other'), { kind: 'admitted', windows: [{ remaining: 2 }] })

  const forgetful = folderFor(t)
  const fourth = await open(t, forgetful, { now, windows: 'forget' })
  for (let i = 0; i < 3; i++) ask(fourth)
  await fourth.credit('acme', 'c', 1n)
  t.match(ask(await open(t, copied(t, forgetful), { now, windows: 'forget' })), { kind: 'admitted' })
})

void t.test('property: whenever it is killed, a limit is never passed, and each kill takes no more of it than a tenth', async (t) => {
  await fc.assert(fc.asyncProperty(
    fc.integer({ min: 1, max: 100 }),
    fc.array(
      fc.array(fc.tuple(fc.oneof(fc.nat(50), fc.nat(20_000)), fc.integer({ min: 1, max: 20 })), { maxLength: 6 }),
      { minLength: 2, maxLength: 3 }
    ),
    async (limit, lives) => {
      let time = 1_800_000_000_000
      const now = (): number => time
      const admitted: number[] = []
      const countSince = (ms: number): number => admitted.filter((at) => at > time - ms).length
      let folder = folderFor(t)
      for (const [kills, life] of lives.entries()) {
        const store = await open(t, folder, { now })
        const admission = { request_id: 'r', windows: [{ name: 'k', limit }] }
        const { remaining } = store.wouldAdmit(admission).windows[0]!
        if (remaining > limit - countSince(60_000)) {
          throw new Error(`${remaining} are left, after ${countSince(60_000)} of ${limit}`)
        }
        if (remaining < limit - countSince(61_002) - kills * Math.ceil(limit / 10)) {
          throw new Error(`only ${remaining} are left, after ${countSince(61_002)} of ${limit} and ${kills} kills`)
        }
        for (const [pause, count] of life) {
          time += pause
          for (let i = 0; i < count; i++) if (store.admit(admission).kind === 'admitted') admitted.push(time)
          await store.credit('acme', randomUUID(), 0n)        // what is on its way is noted then
        }
        folder = copied(t, folder)
        await store.close()
      }
    }
  ), { numRuns: 15 })
})

void t.test('a folder of before that: rate limits are as it had saved them, and full where it was killed', async (t) => {
  let time = 1_800_000_000_000
  const now = (): number => time
  const ask = (store: Store, name: string): unknown => store.admit({ request_id: 'r', windows: [{ name, limit: 3 }] })
  const before = (aliveUntil: number): string => {
    const folder = folderFor(t)
    const db = new DatabaseSync(join(folder, 'gateway.db'))
    db.exec('PRAGMA journal_mode = WAL')
    migrate(db, STEPS.slice(0, 4))
    db.exec(
      `INSERT INTO windows VALUES ('k', ${time - 9000}, ${time - 8500}, 2), ('k', ${time - 5000}, ${time - 5000}, 1), ('other', ${time}, ${time}, 1); UPDATE life SET alive_until = ${aliveUntil}`
    )
    db.close()
    return folder
  }
  const stopped = await open(t, before(0), { now })
  t.match(ask(stopped, 'k'), { kind: 'refused', windows: [{ next_ms: 51_500 }] })
  t.match(ask(stopped, 'other'), { kind: 'admitted', windows: [{ remaining: 1 }] })
  const killed = await open(t, before(time + 5000), { now })
  t.match(ask(killed, 'never-seen'), { kind: 'refused', windows: [{ next_ms: 60_000 }] })
  time += 60_000
  t.match(ask(killed, 'never-seen'), { kind: 'admitted' })
})

/** Of the test's clock, and before. */
const DAYS = ['2027-01-14', '2027-01-15'] as const

type Step =
  | { readonly kind: 'credit', readonly reference: string, readonly nanos: bigint }
  | { readonly kind: 'hold' | 'settle' | 'progress', readonly id: string, readonly nanos: bigint, readonly day: string }
  | { readonly kind: 'release' | 'refund' | 'admit' | 'leave', readonly id: string }
  | { readonly kind: 'wait', readonly ms: number }
  | { readonly kind: 'restart' }

const id = fc.constantFrom('r1', 'r2', 'r3', 'r4', 'r5')
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 3,
    arbitrary: fc.record({ kind: fc.constant('credit' as const),
      reference: fc.constantFrom('c1', 'c2', 'c3', 'c4', 'c5', 'c6'), nanos: fc.bigInt(0n, 150n) }) },
  { weight: 12, arbitrary: fc.record({
    kind: fc.constantFrom('hold' as const, 'hold' as const, 'settle' as const, 'progress' as const),
    id,
    nanos: fc.bigInt(0n, 60n),
    day: fc.constantFrom(...DAYS)
  }) },
  { weight: 4, arbitrary: fc.record({
    kind: fc.constantFrom('release' as const, 'refund' as const, 'admit' as const, 'leave' as const),
    id
  }) },
  { weight: 1,
    arbitrary: fc.record({ kind: fc.constant('wait' as const), ms: fc.nat(4).map((times) => times * 7001) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('restart' as const) }) }
)

void t.test('over any number of restarts it answers as a memory would that never ends', async (t) => {
  await t.resolves(fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 60, size: 'max' }), async (steps) => {
    let time = 1_800_000_000_000
    const now = (): number => time
    const folder = folderFor(t)
    const options = { folder, log: newLog(), now, progress_interval: 0 }
    const memory = new MemoryStore(now)
    let embedded = await openEmbedded(options)
    try {
      const open = new Map<string, Settlement | undefined>()
      /** settled by this process; and by those before it, of which nothing is given back */
      const [settled, old] = [new Set<string>(), new Set<string>()]
      for (const one of steps) {
        if (one.kind === 'wait') { time += one.ms; continue }
        if (one.kind === 'restart') {
          await embedded.close()
          embedded = await openEmbedded(options)
          for (const [request, soFar] of open) {
            memory.leave(request)
            if (soFar === undefined) memory.release(request)
            else { memory.settle({ ...soFar, usage_source: 'estimated' }); old.add(request) }
          }
          for (const request of settled) old.add(request)
          for (const request of ['r1', 'r2', 'r3', 'r4', 'r5']) memory.leave(request)
          open.clear()
        } else if (one.kind !== 'refund' || !old.has(one.id)) {
          const [found, wanted] = [await apply(embedded, one), await apply(memory, one)]
          same(found, wanted, print(one))
          if (one.kind === 'hold' && print(found).startsWith('{"kind":"held"')) open.set(one.id, undefined)
          if (one.kind === 'progress' && open.has(one.id)) open.set(one.id, settlement(one.id, one.nanos))
          if (one.kind === 'settle' && found !== 'threw') settled.add(one.id)
          if (one.kind === 'settle' || one.kind === 'release' || one.kind === 'refund') open.delete(one.id)
        }
        for (const store of ['balance', 'keyUsage'] as const) {
          same(embedded[store]('acme'), memory[store]('acme'), store)
        }
        for (const period of [...DAYS, '2027-01']) {
          same(embedded.keyUsage('acme', period), memory.keyUsage('acme', period), period)
        }
      }
      same(await booked(embedded), await booked(memory), 'entries')
      same((await embedded.verify()).differences, [])
      same((await memory.verify()).differences, [])
    } finally {
      await embedded.close()
    }
  }), { numRuns: 20 }))
})

async function apply (store: Store, step: Step): Promise<unknown> {
  try {
    switch (step.kind) {
      case 'credit':
        return await store.credit('acme', step.reference, step.nanos)
      case 'hold':
        return await store.hold(
          request(step.id, step.nanos, { key: 'acme', day: step.day, usage_limit: 200n, usage_limit_day: 120n })
        )
      case 'settle':
        return await store.settle(settlement(step.id, step.nanos, { price_version: 'p1' }))
      case 'progress':
        return await store.progress(settlement(step.id, step.nanos))
      case 'release':
        return await store.release(step.id)
      case 'refund':
        return await store.refund(step.id)
      case 'leave':
        return await store.leave(step.id)
      case 'admit': {
        const { kind, windows } = await store.admit({ request_id: step.id, windows: [{ name: 'k', limit: 5 }],
          slot: { name: 's', limit: 2 } })
        return [kind, windows.map(({ remaining }) => remaining)]
      }
    }
  } catch {
    return 'threw'
  }
}

/** Without what tells when and in which order: a restart settles what was left in an order of its own. */
async function booked (store: Store): Promise<unknown> {
  return (await all(store)).map(({ id: _, at: __, ...entry }) =>
    print(Object.entries(entry).toSorted(([a], [b]) => a < b ? -1 : 1))
  ).toSorted()
}

function same (found: unknown, wanted: unknown, what = ''): void {
  if (print(found) !== print(wanted)) throw new Error(`${what}: found ${print(found)}, wanted ${print(wanted)}`)
}

function print (value: unknown): string {
  return String(JSON.stringify(value, (_key, part: unknown) => typeof part === 'bigint' ? `${part}n` : part))
}
