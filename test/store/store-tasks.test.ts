// What outlives a request, in every driver: tasks that own the hold of their request until they end, and answers that
// are given again.
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import fc from 'fast-check'
import t from 'tap'
import { MemoryStore } from '../../src/store/local/memory.ts'
import { copied, newLog, open, request, settlement } from '../support/embedded-store.ts'
import { folderFor } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { answer, bill, opened, refusesWhenClosed, task, tasksConformance,
  type Whole } from '../support/store-tasks-conformance.ts'

const faulty = new URL('../support/store-faulty-worker.ts', import.meta.url)

void t.test('memory', async (t) => { tasksConformance(t, async () => new MemoryStore()) })

void t.test('embedded', async (t) => { tasksConformance(t, async (t) => await open(t, folderFor(t))) })

void t.test('a store that is closed refuses everything that would count', async (t) => {
  await refusesWhenClosed(t, await open(t, folderFor(t)))
})

void t.test('memory and disk decide alike, whatever comes in which order, and what is available never goes below zero', async (t) => {
  const step = fc.record({ of: fc.nat(3), id: fc.nat(4), nanos: fc.nat(60) })
  let folder = 0
  const root = folderFor(t)
  await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
    const stores: readonly Whole[] = [new MemoryStore(), await open(t, join(root, String(folder++)))]
    const seen: unknown[][] = [[], []]
    for (const [i, store] of stores.entries()) {
      await store.credit('acme', 'c', 100n)
      for (const { of, id, nanos } of steps) {
        const say = async (call: () => Promise<unknown>): Promise<void> => {
          try { seen[i]!.push(await call()) } catch { seen[i]!.push('threw') }
        }
        if (of === 0) await say(async () => (await store.hold(request(`r-v${id}`, BigInt(nanos)))).kind)
        if (of === 1) {
          await say(async () => {
            await store.openTask(task(`v${id}`, BigInt(nanos)))
          })
        }
        if (of === 2) {
          await say(async () => await store.endTask(`v${id}`, '{}', nanos % 2 === 0 ? bill(BigInt(nanos)) : undefined))
        }
        if (of === 3) {
          await say(async () => {
            await store.release(`r-v${id}`)
          })
        }
        const { balance, held } = await store.balance('acme')
        if (balance - held < 0n) throw new Error(`below zero: ${balance} - ${held}`)
        seen[i]!.push([balance, held, store.openTasks().length])
      }
      const { differences } = await store.verify()
      if (differences.length > 0) throw new Error('the ledger differs')
      await store.close()
    }
    t.strictSame(seen[1], seen[0])
  }), { numRuns: 40 })
})

void t.test('an answer that its process did not come to charge leaves the disk at the next start', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder)
  await store.credit('acme', 'opening:acme', 1000n)
  for (const name of ['n1', 'n2']) {
    await store.hold(request(`r-${name}`, 10n))
    await store.keepAnswer(answer(name))
  }
  await store.settle({ ...settlement('r-n1', 10n) })
  const killed = copied(t, folder)
  const next = await open(t, killed)
  t.strictSame(await next.answer('acme', 'n1'), answer('n1'))
  await next.close()
  const db = new DatabaseSync(join(killed, 'gateway.db'), { readOnly: true })
  t.teardown(() => { db.close() })
  t.strictSame(db.prepare('SELECT name FROM answers').all().map(({ name }) => name), ['n1'])
})

void t.test('a kill loses neither task nor hold, and the next process goes on with both', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder)
  await opened(store)
  await store.hold(request('r-plain', 500n))
  store.noteTask('v1', '{"progress":7}')
  await store.hold(request('r-v2', 5n, { day: '2026-11-20', usage_limit_day: 100n }))
  await store.openTask(task('v2', 5n))

  const next = await open(t, copied(t, folder))
  t.strictSame(await next.balance('acme'), { balance: 1000n, held: 45n, open_holds: 2 },
    'the hold of the request that was no task is gone')
  t.strictSame(next.openTasks().map(({ id, text }) => [id, text]), [['v1', '{"progress":7}'], ['v2', '{"of":"v2"}']])
  t.strictSame(await next.keyUsage('dev', '2026-11-20'), { spent: 0n, held: 5n },
    'it belongs to the day that it was held on')
  await next.release('r-v1')
  t.equal(await next.endTask('v1', '{}', bill(40n)), 40n)
  t.equal(await next.endTask('v2', '{}', bill(5n)), 5n)
  t.equal((await next.keyUsage('dev', '2026-11-20')).spent, 5n)
  t.strictSame((await next.verify()).differences, [])
  t.strictSame(await next.balance('acme'), { balance: 955n, held: 0n, open_holds: 0 })
})

void t.test('a task that has ended has ended for the next process too', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder)
  await opened(store)
  await store.endTask('v1', '{"done":true}', bill(40n))
  const next = await open(t, copied(t, folder))
  t.strictSame(next.openTasks(), [])
  t.match(await next.task('v1'), { is_open: false, text: '{"done":true}', nanos: 40n })
  t.equal(await next.endTask('v1', '{}', bill(40n)), undefined)
  t.strictSame(await next.balance('acme'), { balance: 960n, held: 0n, open_holds: 0 })
})

void t.test('what can\'t be recorded has not happened: no task, and no end of one', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder, { log: newLog(), worker: faulty })
  await store.credit('acme', 'c', 1000n)
  store.hold(request('r-v1', 60n))
  store.hold(request('r-v2', 10n))
  await store.openTask(task('v2', 10n))
  writeFileSync(join(folder, 'disk-full'), '')
  await t.rejects(store.openTask(task('v1', 40n)), { code: 'service_unavailable' })
  t.strictSame(store.openTasks().map(({ id }) => id), ['v2'])
  await t.rejects(store.endTask('v2', '{}', bill(10n)), { code: 'service_unavailable' })
  await t.rejects(store.endTask('v2', '{}'), { code: 'service_unavailable' })
  await store.release('r-v2')
  t.strictSame(store.balance('acme'), { balance: 1000n, held: 50n, open_holds: 2 }, 'the task keeps its hold')
  await store.release('r-v1')
  t.strictSame(store.balance('acme'), { balance: 1000n, held: 10n, open_holds: 1 },
    'and the request can give back its own')
  rmSync(join(folder, 'disk-full'))
  t.equal(await store.endTask('v2', '{"done":true}', bill(10n)), 10n)
  t.match(await store.task('v2'), { is_open: false, text: '{"done":true}' })
  t.equal(await store.task('v1'), undefined)
  t.strictSame((await store.verify()).differences, [])
})

void t.test('a thread that dies with a task in its hands records it all the same', async (t) => {
  for (const fault of ['die-before', 'die-after']) {
    const folder = folderFor(t)
    const store = await open(t, folder, { worker: faulty })
    await store.credit('acme', 'c', 1000n)
    store.hold(request('r-v1', 40n))
    writeFileSync(join(folder, fault), '')
    await store.openTask(task('v1', 40n))
    writeFileSync(join(folder, fault), '')
    t.equal(await store.endTask('v1', '{"done":true}', bill(40n)), 40n, fault)
    t.match(await store.task('v1'), { is_open: false, nanos: 40n }, fault)
    t.equal((await all(store)).filter(({ kind }) => kind === 'settle').length, 1, fault)
    t.strictSame((await store.verify()).differences, [], fault)
  }
})

void t.test('answers outlive the process if they were charged or became a task, and only then', async (t) => {
  const folder = folderFor(t)
  const store = await open(t, folder)
  await opened(store)
  await store.keepAnswer(answer('of-task', { request_id: 'r-v1' }))
  store.hold(request('r-charged', 5n))
  await store.keepAnswer(answer('charged'))
  await store.settle(settlement('r-charged', 5n))
  store.hold(request('r-killed', 5n))
  await store.keepAnswer(answer('killed'))
  t.equal(await store.answer('acme', 'killed'), undefined)

  const next = await open(t, copied(t, folder))
  t.strictSame(await next.answer('acme', 'charged'), answer('charged'))
  t.strictSame(await next.answer('acme', 'of-task'), answer('of-task', { request_id: 'r-v1' }))
  t.equal(await next.answer('acme', 'killed'), undefined, 'it was not charged: who asks again is served again')
})
