// A Redis as an earlier version has left it, and the outbox of a process that was killed: this version opens both.
import t from 'tap'
import { startClock } from '../support/clock.ts'
import { redisServer } from '../support/redis-server.ts'
import { openRedis } from '../support/redis-store.ts'
import { folderFor } from '../support/spawned.ts'
import { keptConformance } from '../support/store-kept-conformance.ts'
import { MADE, PREFIX, putRedis } from '../support/store-kept.ts'
import { until } from '../support/until.ts'

void t.test('a Redis of version 0.1.0', async (t) => {
  const server = await redisServer(t)
  const folder = folderFor(t)
  await putRedis('0.1.0', server.url, folder)
  const clock = startClock(() => false, MADE + 10_000)
  const store = await openRedis(t, server, { prefix: PREFIX, folder, now: clock.now, timer: clock.timer })
  await until(() => store.health.pending === 0)
  const windows = [{ name: 'key:acme-dev', limit: 10 }]
  const asked = await store.wouldAdmit({ request_id: 'asked', account: 'acme', windows })
  t.equal(asked.windows[0]!.remaining, 8)
  t.equal((await store.balance('acme')).held, 560n, 'of the task, and of a request that may still run')
  await clock.until(async () => (await store.balance('acme')).open_holds === 1 && store.openTasks().length === 1)
  await keptConformance(t, store, [['settle', 'waiting', -25n], ['settle', 'running', -40n]])
})
