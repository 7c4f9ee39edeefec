// The embedded store while its disk or its thread fails: what is refused, what stands, and what is there when all is
// well again.
import { existsSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { copied, newLog, open, request, settlement } from '../support/embedded-store.ts'
import { folderFor } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { until } from '../support/until.ts'

const faulty = new URL('../support/store-faulty-worker.ts', import.meta.url)

/** Until `end`. */
function begin (folder: string, fault: string): void {
  writeFileSync(join(folder, fault), '')
}

function end (folder: string, fault: string): void {
  rmSync(join(folder, fault))
}

void t.test('what can\'t be recorded is not charged: nothing is lost, and what was decided meanwhile stands', async (t) => {
  const folder = folderFor(t)
  const log = newLog()
  const store = await open(t, folder, { log, worker: faulty })
  await store.credit('acme', 'c', 100n)
  store.hold(request('r1', 60n))
  begin(folder, 'disk-full')
  const settling = store.settle(settlement('r1', 40n))
  const crediting = store.credit('acme', 'd', 1000n)
  const most = store.credit('beta', 'e', 2n ** 63n - 1n)
  t.match(store.hold(request('r2', 60n)), { kind: 'held' }, 'what the first did not need')
  await t.rejects(async () => await settling, { code: 'service_unavailable', status: 503 })
  await t.rejects(async () => await crediting, { code: 'service_unavailable' })
  await t.rejects(async () => await most, { code: 'service_unavailable' })
  t.strictSame(store.balance('acme'), { balance: 100n, held: 100n, open_holds: 2 },
    'all of it is held, and none of it twice')
  t.strictSame(store.keyUsage('dev'), { spent: 0n, held: 100n })
  t.throws(() => store.hold(request('r3', 0n)), { code: 'service_unavailable' }, 'nobody buys what can\'t be charged')
  t.throws(() => store.wouldHold(request('r3', 0n)), { code: 'service_unavailable' })
  t.throws(() => store.extend('r2', 1n), { code: 'service_unavailable' })
  await t.rejects(async () => await store.settle(settlement('r1', 40n)), { code: 'service_unavailable' })

  end(folder, 'disk-full')
  t.equal(await store.settle(settlement('r1', 75n)), 40n, 'tried again, with what is left of its hold')
  t.match(store.hold(request('r3', 0n)), { kind: 'held' }, 'what was recorded shows that the disk is back')
  store.release('r2')
  t.equal(await store.credit('acme', 'd', 1000n), true, 'the reference is free')
  t.strictSame(store.balance('acme'), { balance: 1060n, held: 0n, open_holds: 1 })
  t.strictSame((await all(store)).map(({ kind, nanos, shortfall }) => [kind, nanos, shortfall]), [['credit', 100n,
    undefined], ['settle', -40n, undefined], ['shortfall', 0n, 35n], ['credit', 1000n, undefined]])
  t.strictSame((await store.verify()).differences, [])
  t.strictSame(
    log.lines,
    [
      'the ledger can\'t be written: until it can, requests that cost something are refused',
      'the ledger can be written again'
    ]
  )
  t.equal(await store.credit('beta', 'e', 2n ** 63n - 1n), true, 'what failed counts for no balance')
})

void t.test('a debit that can\'t be recorded takes nothing, and a refund gives nothing; each counts once when it is booked again', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { worker: faulty })
  await store.credit('acme', 'c', 100n)
  const debit = { kind: 'debit' as const, account: 'acme', reference: 'd', nanos: 70n, reason: 'a fee' }
  const refund = { kind: 'refund' as const, account: 'acme', reference: 'r', nanos: 50n, reason: 'cut off' }
  begin(folder, 'disk-full')
  const [debiting, refunding] = [store.book(debit), store.book(refund)]
  t.equal(store.balance('acme').balance, 30n, 'what is taken is gone at once, and what is given back is not there yet')
  await t.rejects(async () => await debiting, { code: 'service_unavailable' })
  await t.rejects(async () => await refunding, { code: 'service_unavailable' })
  t.equal(store.balance('acme').balance, 100n)
  t.strictSame((await store.verify()).differences, [])
  end(folder, 'disk-full')
  for (const death of ['die-before', 'die-after']) {
    begin(folder, death)
    t.strictSame(
      await Promise.all([store.book({ ...debit, reference: death }),
        store.book({ ...refund, reference: death, nanos: 70n })]),
      ['new', 'new'],
      death
    )
  }
  t.strictSame(
    await Promise.all([store.book(debit), store.book(debit), store.book(refund), store.book(debit)]),
    ['new', 'known', 'new', 'known'],
    'a repetition on its way beside it is known, though there is no money for it'
  )
  t.equal(store.balance('acme').balance, 80n)
  t.strictSame((await all(store)).map(({ kind, reference, nanos }) => `${kind} ${reference} ${nanos}`), [
    'credit c 100',
    'debit die-before -70',
    'refund die-before 70',
    'debit die-after -70',
    'refund die-after 70',
    'debit d -70',
    'refund r 50'
  ])
  t.strictSame((await store.verify()).differences, [])
})

void t.test('a disk that is back is noticed, though nobody writes', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { worker: faulty })
  begin(folder, 'disk-full')
  await t.rejects(async () => await store.credit('acme', 'c', 1n))
  end(folder, 'disk-full')
  t.match(await until(() => {
    try {
      return store.hold(request('r1', 0n))
    } catch {
      return undefined
    }
  }), { kind: 'held' })
})

void t.test('a request that gives up while its settlement is on the way holds nothing afterwards, whatever becomes of that', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { worker: faulty })
  await store.credit('acme', 'c', 100n)
  store.hold(request('lost', 60n))
  begin(folder, 'disk-full')
  const lost = store.settle(settlement('lost', 40n))
  const told = store.release('lost')
  await t.rejects(async () => await lost)
  await told
  t.strictSame(store.balance('acme'), { balance: 100n, held: 0n, open_holds: 0 })

  end(folder, 'disk-full')
  await store.credit('acme', 'd', 0n)
  store.hold(request('made', 60n))
  const made = store.settle(settlement('made', 40n))
  await store.release('made')
  t.equal(await made, 40n)
  t.strictSame(store.balance('acme'), { balance: 60n, held: 0n, open_holds: 0 })
})

void t.test('a disk that hangs stops nobody but who waits for it; after a while nothing new is begun', async (t) => {
  const folder = folderFor(t)
  const log = newLog()
  const store = await open(t, folder, { log, worker: faulty })
  await store.credit('acme', 'c', 100n)
  store.hold(request('r1', 60n))
  begin(folder, 'hang')
  const settling = store.settle(settlement('r1', 40n))
  const again = store.settle(settlement('r1', 1n))
  t.match(store.hold(request('r2', 1n)), { kind: 'held' })
  await until(() => { try { store.hold(request(`r${Math.random()}`, 0n)); return false } catch { return true } })
  t.strictSame(log.lines, ['the disk does not answer: until it does, requests that cost something are refused'])
  t.strictSame(log.errors.map(({ message }) => message), ['nothing was recorded for 5000 ms'])
  end(folder, 'hang')
  t.strictSame(await Promise.all([settling, again]), [40n, 40n])
  t.match(store.hold(request('r3', 1n)), { kind: 'held' })
})

void t.test('a thread that dies is replaced, and what it was about is recorded once, written by it or not', async (t) => {
  const folder = folderFor(t)
  const log = newLog()
  const store = await open(t, folder, { log, worker: faulty, progress_interval: 0 })
  await store.credit('acme', 'c', 100n)
  store.hold(request('running', 10n))
  store.progress(settlement('running', 3n))
  for (const [i, death] of ['die-before', 'die-after'].entries()) {
    store.hold(request(`r${i}`, 20n))
    begin(folder, death)
    t.strictSame(
      await Promise.all([store.settle(settlement(`r${i}`, 10n)), store.credit('acme', `d${i}`, 7n)]), [10n, true], death
    )
  }
  t.equal(store.openHolds(), 1, 'what runs is not mistaken for what a dead gateway left')
  await until(() => {
    try {
      return store.hold(request('r9', 1n))
    } catch {
      return undefined
    }
  })
  t.strictSame(
    (await all(store)).map(({ kind, reference }) => `${kind} ${reference}`),
    ['credit c', 'settle r0', 'credit d0', 'settle r1', 'credit d1']
  )
  t.strictSame((await store.verify()).differences, [])
  t.equal(store.balance('acme').balance, 94n)
  t.equal(log.lines.filter((line) => line.startsWith('the thread that records died')).length, 2)
  t.equal(await store.settle(settlement('running', 5n)), 5n)
})

void t.test('a batch of many whose thread dies is recorded once, and what was known already stays what it was', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { worker: faulty })
  await store.credit('acme', 'c', 1000n)
  await store.credit('acme', 'repeated 30', 5n)
  for (const death of ['die-before', 'die-after']) {
    const settled = Array.from({ length: 40 }, (_, i) => `${death} ${i}`)
    for (const id of settled) store.hold(request(id, 9n))
    begin(folder, death)
    const crediting = store.credit('acme', 'repeated 30', 7n)
    t.strictSame(await Promise.all(settled.map(async (id) => await store.settle(settlement(id, 3n)))),
      settled.map(() => 3n), death)
    t.equal(await crediting, false)
  }
  t.strictSame(
    (await all(store)).map(({ reference }) => reference),
    ['c', 'repeated 30', ...['die-before', 'die-after']
      .flatMap((death) => Array.from({ length: 40 }, (_, i) => `${death} ${i}`))]
  )
  t.equal(store.balance('acme').balance, 1005n - 80n * 3n)
  t.strictSame((await store.verify()).differences, [])
})

void t.test('a thread that dies while it reads says so, and what was asked can be asked again', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { worker: faulty })
  await store.credit('acme', 'c', 100n)
  begin(folder, 'die-after')
  const credited = store.credit('acme', 'd', 1n)
  await turn()                                                 // it is sent at the end of this one
  await Promise.all([credited, t.rejects(all(store), /died/), t.rejects(all(store), /died/),
    t.rejects(async () => await store.amountOf('credit', 'c'), /died/),
    t.rejects(async () => await store.task('v1'), { cause: { message: /died/ } }), t.rejects(store.verify(), /died/)])
  t.equal((await all(store)).length, 2)
  t.strictSame(await store.verify(), { entries: 2, accounts: 1, keys: 0, differences: [] })
})

void t.test('the end waits for what is on its way, and is an end even where the disk is not there any more', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { worker: faulty })
  const told = Array.from({ length: 50 }, (_, i) => store.credit('acme', `c${i}`, 1n))
  await store.close()
  t.strictSame(new Set(await Promise.all(told)), new Set([true]))

  const broken = await open(t, folder, { worker: faulty })
  t.equal(broken.balance('acme').balance, 50n)
  begin(folder, 'disk-full')
  const refused = t.rejects(async () => await broken.credit('acme', 'more', 1n))
  await broken.close()
  await refused
  end(folder, 'disk-full')
  t.equal((await open(t, folder)).balance('acme').balance, 50n)
})

void t.test('the end does not leave a thread to come, where there is none', async (t) => {
  const folder = folderFor(t)
  const log = newLog()
  const timers = (): number => process.getActiveResourcesInfo().filter((one) => one === 'Timeout').length
  const before = timers()
  const store = await open(t, folder, { log, worker: faulty })
  begin(folder, 'stay-dead')
  begin(folder, 'die-before')
  const lost = t.rejects(async () => await store.credit('acme', 'c', 1n))
  await until(() => log.lines.length === 3)
  await store.close()
  await lost
  t.equal(timers(), before)
})

void t.test('what a disk did not sync is put on it in another way before anything else is', async (t) => {
  const folder = folderFor(t)
  const log = newLog()
  const store = await open(t, folder, { log, worker: faulty, fsync_interval: 1 })
  for (let i = 0; i < 20; i++) await store.credit('acme', `c${i}`, 1n)
  // Here already: the first sync that fails may be that of the last credit, and then the next one empties the log.
  const before = statSync(join(folder, 'gateway.db-wal')).size
  begin(folder, 'no-sync')
  await store.credit('acme', 'unsynced', 1n)
  await until(() => log.lines.length > 0)
  t.match(log.lines[0], /may not survive a power loss: EIO/)
  end(folder, 'no-sync')
  await store.credit('acme', 'd', 1n)
  t.ok(statSync(join(folder, 'gateway.db-wal')).size < before, 'all of the log went into the file')
})

void t.test('a log that is new has its name on the disk before anything is answered', {
  skip: process.platform === 'win32' && 'a folder can\'t be synced there'
}, async (t) => {
  const folder = folderFor(t)
  await open(t, folder, { worker: faulty })
  t.ok(existsSync(join(folder, 'folder-synced')))
})

void t.test('with an interval of zero every commit waits for the disk', async (t) => {
  const store = await open(t, folderFor(t), { fsync_interval: 0 })
  t.equal(await store.credit('acme', 'c', 1n), true)
})

void t.test('progress that could not be forgotten while the disk was full is forgotten when it is back', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { worker: faulty, progress_interval: 0 })
  await store.credit('acme', 'c', 100n)
  store.hold(request('r1', 60n))
  store.progress(settlement('r1', 10n))
  await store.credit('acme', 'c', 1n)
  begin(folder, 'disk-full')
  store.release('r1')
  await t.rejects(async () => await store.credit('acme', 'd', 1n))
  end(folder, 'disk-full')
  await store.close()
  t.equal((await open(t, folder)).balance('acme').balance, 100n)
})

void t.test('admissions that could not be noted are noted with the next: a kill after it forgets none', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { worker: faulty })
  const admission = { request_id: 'r', windows: [{ name: 'k', limit: 3 }] }
  begin(folder, 'disk-full')
  store.admit(admission)
  await t.rejects(async () => await store.credit('acme', 'c', 1n))
  end(folder, 'disk-full')
  t.match((await open(t, copied(t, folder))).admit(admission), { kind: 'admitted', windows: [{ remaining: 2 }] })
  store.admit(admission)
  await store.credit('acme', 'c', 1n)
  t.match((await open(t, copied(t, folder))).admit(admission), { kind: 'refused', by: 'window' },
    'two, and perhaps one more')
})

void t.test('a gateway that lost its folder to another one, while it had no thread, does not take it back', async (t) => {
  const folder = folderFor(t)
  const log = newLog()
  const first = await open(t, folder, { log, worker: faulty })
  await first.credit('acme', 'c', 100n)
  begin(folder, 'stay-dead')
  begin(folder, 'die-before')
  const lost = Promise.resolve(first.credit('acme', 'lost', 1n))
  void lost.catch(() => {})
  await until(() => log.lines.length > 0)
  const second = await open(t, folder)
  t.equal(await second.credit('acme', 'd', 1n), true)
  await second.close()
  end(folder, 'stay-dead')
  await until(() => log.errors.some(({ message }) => /another gateway has written into .* meanwhile/.test(message)))
  t.throws(() => first.hold(request('r1', 1n)), { code: 'service_unavailable' })
  await first.close()
  await t.rejects(async () => await lost)
  const third = await open(t, folder)
  t.strictSame((await all(third)).map(({ reference }) => reference), ['c', 'd'])
})

void t.test('a refund during a hang: what had gone to the disk is given back behind it, what had not is never written', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { worker: faulty, progress_interval: 0 })
  await store.credit('acme', 'c', 100n)
  for (const id of ['gone', 'waiting', 'charged']) store.hold(request(id, 30n))
  store.progress(settlement('waiting', 5n))
  await store.credit('acme', 'c', 1n)                          // answered after all that came before it
  begin(folder, 'hang')
  const gone = store.settle(settlement('gone', 20n))
  await turn()                                                 // it is sent at the end of this one
  const waiting = store.settle(settlement('waiting', 45n))
  const charged = store.settle(settlement('charged', 7n))
  const refunds = [store.refund('gone'), store.refund('waiting'), store.refund('gone')]
  t.strictSame(store.balance('acme'), { balance: 73n, held: 0n, open_holds: 0 },
    'withdrawn at once; the other is gone until it is given back')
  end(folder, 'hang')
  await t.rejects(async () => await waiting, { code: 'service_unavailable' })
  await Promise.all(refunds)
  t.strictSame(await Promise.all([gone, charged]), [20n, 7n])
  const found = async (
    of: typeof store
  ): Promise<unknown> => [(await all(of)).map(({ kind, reference, nanos }) => `${kind} ${reference} ${nanos}`),
    of.balance('acme'), of.keyUsage('dev'), (await of.verify()).differences]
  const wanted = [['credit c 100', 'settle gone -20', 'settle charged -7', 'adjust gone 20'], { balance: 93n, held: 0n,
    open_holds: 0 }, { spent: 7n, held: 0n }, []]
  t.strictSame(await found(store), wanted)
  const next = await open(t, copied(t, folder))
  t.strictSame(await found(next), wanted, 'and after a kill: the progress of what was withdrawn is forgotten')
  t.equal(await next.settle(settlement('gone', 20n)), 0n)
  await next.refund('gone')
  t.strictSame(await found(next), wanted, 'for good')
})

void t.test('a refund that a full disk does not take is recorded when there is room, or at the end', async (t) => {
  for (const end_ of ['quiet', 'closed'] as const) {
    const folder = folderFor(t)
    const store = await open(t, folder, { worker: faulty })
    await store.credit('acme', 'c', 100n)
    store.hold(request('r1', 30n))
    await store.settle(settlement('r1', 20n))
    begin(folder, 'disk-full')
    const refunds = [store.refund('r1'), store.refund('r1')]
    await t.rejects(async () => await store.credit('acme', 'd', 1n))
    t.equal(store.balance('acme').balance, 80n, 'nobody spends what is not recorded')
    end(folder, 'disk-full')
    if (end_ === 'quiet') await Promise.all(refunds)
    await store.close()
    await Promise.all(refunds)
    t.equal(store.balance('acme').balance, 100n)
    const next = await open(t, folder)
    t.strictSame(
      (await all(next)).map(({ kind, nanos }) => `${kind} ${nanos}`), ['credit 100', 'settle -20', 'adjust 20']
    )
    t.strictSame(
      [next.balance('acme').balance, next.keyUsage('dev').spent, (await next.verify()).differences], [100n, 0n, []]
    )
  }
})

void t.test('when a refund of what ran for long has answered, a kill does not charge its progress', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { worker: faulty, progress_interval: 0 })
  await store.credit('acme', 'c', 100n)
  for (const id of ['hold', 'settling']) {
    store.hold(request(id, 30n))
    store.progress(settlement(id, 10n))
  }
  await store.credit('acme', 'c', 1n)
  await store.refund('hold')
  begin(folder, 'disk-full')
  const settling = store.settle(settlement('settling', 10n))
  await turn()
  const refunded = store.refund('settling')
  await t.rejects(async () => await settling)
  end(folder, 'disk-full')
  await refunded
  t.strictSame((await all(await open(t, copied(t, folder)))).map(({ reference }) => reference), ['c'])
})

void t.test('a row that can\'t be read refuses the folder in plain words, and ends nothing else', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder)
  await store.credit('acme', 'c', 5n)
  await store.close()
  const db = new DatabaseSync(join(folder, 'gateway.db'))
  db.exec("INSERT INTO noted_windows VALUES ('k', 1, '[1,2', 0)")
  db.close()
  await t.rejects(open(t, folder), { message: new RegExp('^the ledger of the data folder .* can\'t be read: a row of ' +
    'kind "window" is broken \\(.*JSON.*\\)\\. Put a backup of gateway\\.db in its place\\.$') })
  const again = new DatabaseSync(join(folder, 'gateway.db'))
  again.exec('DELETE FROM noted_windows')
  again.close()
  t.match((await open(t, folder)).balance('acme'), { balance: 5n })
})
