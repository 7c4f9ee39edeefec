// The Redis driver against the conformance suites, on one server.
import fc from 'fast-check'
import t from 'tap'
import { Windows } from '../../src/store/local/rate-windows.ts'
import { request, settlement } from '../support/embedded-store.ts'
import { newPrefix, openRedis } from '../support/redis-store.ts'
import { redisServer } from '../support/redis-server.ts'
import { conformance } from '../support/store-conformance.ts'
import { refusesWhenClosed, tasksConformance } from '../support/store-tasks-conformance.ts'
import { until } from '../support/until.ts'

const { url, ask } = await redisServer(t)

void t.test('single', async (t) => {
  conformance(t, async (now) => await openRedis(t, { url }, { now }), 60)
})

void t.test('tasks and answers', async (t) => {
  tasksConformance(t, async (t) => await openRedis(t, { url }))
})

void t.test('a store that is closed refuses everything that would count', async (t) => {
  await refusesWhenClosed(t, await openRedis(t, { url }))
})

void t.test('verify finds a sum that was changed by hand, also that of a key that has paid for nothing yet', async (t) => {
  const prefix = newPrefix()
  const store = await openRedis(t, { url }, { prefix })
  await store.credit('acme', 'c', 1000n)
  await store.hold(request('r1', 5n))
  await ask('HINCRBY', `{${prefix}:acme}:account`, 'balance', '1')
  await ask('HSET', `{${prefix}:acme}:key:dev`, 's', '7')
  t.strictSame((await store.verify()).differences, [
    { of: 'account', id: 'acme', entries: 1000n, kept: 1001n, where: 'redis' },
    { of: 'key', id: 'dev', entries: 0n, kept: 7n, where: 'redis' }
  ])
})

/** At the edges of what is counted, and between them. */
const passing = fc.constantFrom(0, 1, 499, 999, 1000, 1001, 20_000, 58_999, 59_000, 59_999, 60_000, 60_001)
const limits = fc.uniqueArray(fc.record({ name: fc.constantFrom('k', 'l', 'm'), limit: fc.integer({ min: 1, max: 5 }) }),
  { minLength: 1, maxLength: 3, selector: ({ name }) => name })

void t.test('Redis counts as a process does by itself, to the millisecond', async (t) => {
  let time = 1_800_000_000_000
  const store = await openRedis(t, { url }, { now: () => time })
  let run = 0
  await t.resolves(fc.assert(fc.asyncProperty(
    fc.array(fc.record({ ms: passing, windows: limits, isAsked: fc.boolean() }), { maxLength: 40, size: 'max' }),
    async (steps) => {
      const local = new Windows(() => time)
      const account = `account${run++}`
      for (const { ms, windows, isAsked } of steps) {
        time += ms
        const admission = { request_id: 'r', account, windows }
        const what = isAsked ? 'wouldAdmit' : 'admit'
        const [told, wanted] = [await store[what](admission), local[what](admission)]
        if (JSON.stringify(told) !== JSON.stringify(wanted)) {
          throw new Error(`${JSON.stringify(told)} instead of ${JSON.stringify(wanted)}`)
        }
      }
    }
  ), { numRuns: 60 }))
})

void t.test('what was counted before a clock was set back came now at the latest', async (t) => {
  let time = 1_800_000_000_000
  const store = await openRedis(t, { url }, { now: () => time })
  const ask = async (): Promise<unknown> =>
    await store.admit({ request_id: 'r', account: 'acme', windows: [{ name: 'k', limit: 3 }] })
  await ask()
  time += 500
  await ask()
  time -= 3_600_000
  t.match(await ask(), { kind: 'admitted', windows: [{ remaining: 0, next_ms: 60_000, reset_ms: 60_000 }] })
  time += 59_999
  t.match(await ask(), { kind: 'refused', windows: [{ next_ms: 1, reset_ms: 1 }] })
  time += 1
  t.match(await ask(), { kind: 'admitted', windows: [{ remaining: 2 }] })
})

void t.test('what one process holds or has charged for a request no other one holds again', async (t) => {
  const [prefix, taken] = [newPrefix(), { message: /^the request r1 has a hold or a settlement already$/ }]
  const [one, other] = await Promise.all([openRedis(t, { url }, { prefix }), openRedis(t, { url }, { prefix })])
  await one.credit('acme', 'c', 100n)
  await one.hold(request('r1', 30n))
  await t.rejects(other.hold(request('r1', 30n)), taken)
  await one.settle(settlement('r1', 30n))
  await until(async () => (await other.balance('acme')).held === 0n)
  await t.rejects(other.hold(request('r1', 30n)), taken)
  t.strictSame(await other.balance('acme'), { balance: 70n, held: 0n, open_holds: 0 })
})
