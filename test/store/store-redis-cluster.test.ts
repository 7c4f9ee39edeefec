// The Redis driver against the conformance suites, on a cluster of three masters, and behind Sentinels.
import t from 'tap'
import { startTimer } from '../../src/base/timer.ts'
import { newPrefix, openRedis } from '../support/redis-store.ts'
import { redisCluster, redisSentinel } from '../support/redis-server.ts'
import { conformance } from '../support/store-conformance.ts'
import { rollupsConformance } from '../support/store-rollups-conformance.ts'
import { tasksConformance } from '../support/store-tasks-conformance.ts'
import { until } from '../support/until.ts'

void t.test('a cluster of three masters', async (t) => {
  const { nodes } = await redisCluster(t)
  const cluster = nodes.map(({ url }) => url)

  void t.test('money and limits', async (t) => {
    conformance(t, async (now) => await openRedis(t, { cluster }, { now }), 10)
  })

  void t.test('tasks and answers', async (t) => { tasksConformance(t, async (t) => await openRedis(t, { cluster })) })

  void t.test('rollups and newest entries', async (t) => {
    rollupsConformance(t, async (now) =>
      await openRedis(t, { cluster }, { now, timer: (ms, call) => startTimer(ms / 50, call) }))
  })

  void t.test('what others change is told', async (t) => {
    const prefix = newPrefix()
    const [one, other] = [await openRedis(t, { cluster }, { prefix }),
      await openRedis(t, { cluster }, { prefix })] as const
    let changes = 0
    other.watchRecords(() => { changes++ })
    await until(() => changes > 0)
    const seen = changes
    t.equal(await one.change({ record: { kind: 'account', id: 'a', version: 1, text: '{}' }, audit: '{}' }), true)
    await until(() => changes > seen)
    t.strictSame(await other.records(), [{ kind: 'account', id: 'a', version: 1, text: '{}' }])
  })
})

void t.test('a master that Sentinels know', async (t) => {
  const { name, sentinels } = await redisSentinel(t, { downAfter: 60_000 })
  const server = { sentinels: sentinels.map(({ url }) => url), sentinel_name: name }

  void t.test('money and limits', async (t) => {
    conformance(t, async (now) => await openRedis(t, server, { now }), 10)
  })

  void t.test('tasks and answers', async (t) => { tasksConformance(t, async (t) => await openRedis(t, server)) })
})
