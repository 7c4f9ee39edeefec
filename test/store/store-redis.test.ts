// The Redis driver against the conformance suites, on one server.
import t from 'tap'
import { request, settlement } from '../support/embedded-store.ts'
import { newPrefix, openRedis } from '../support/redis-store.ts'
import { redisServer } from '../support/redis-server.ts'
import { conformance } from '../support/store-conformance.ts'
import { tasksConformance } from '../support/store-tasks-conformance.ts'
import { until } from '../support/until.ts'

const { url } = await redisServer(t)

void t.test('single', async (t) => {
  conformance(t, async (now) => await openRedis(t, { url }, { now }), 60)
})

void t.test('tasks and answers', async (t) => {
  tasksConformance(t, async (t) => await openRedis(t, { url }))
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
