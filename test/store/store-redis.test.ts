// The Redis driver against the conformance suites, on one server.
import t from 'tap'
import { openRedis } from '../support/redis-store.ts'
import { redisServer } from '../support/redis-server.ts'
import { conformance } from '../support/store-conformance.ts'
import { tasksConformance } from '../support/store-tasks-conformance.ts'

const { url } = await redisServer(t)

void t.test('single', async (t) => {
  conformance(t, async (now) => await openRedis(t, { url }, { now }), 60)
})

void t.test('tasks and answers', async (t) => {
  tasksConformance(t, async (t) => await openRedis(t, { url }))
})
