// What an answer says that it costs is what is charged, also while requests of one account race for its last money, at
// two gateways that share a Redis; and what the clients of a key abandon is counted for both.
import t from 'tap'
import { limitsAbandoned } from '../support/abandoned.ts'
import { newPrefix } from '../support/redis-store.ts'
import { redisServer } from '../support/redis-server.ts'
import { holdsWhatIsReported } from '../support/reported-cost.ts'

await t.test('near the end of an account the reported cost is the charged cost', async (t) => {
  const { url } = await redisServer(t)
  const store = `{ driver: redis, path: ./data, url: "${url}", prefix: ${newPrefix()}, timeout: 5s }`
  await holdsWhatIsReported(t, [store, store])
})

await t.test('two gateways count together what a key abandons', async (t) => {
  const { url } = await redisServer(t)
  const store = `{ driver: redis, path: ./data, url: "${url}", prefix: ${newPrefix()}, timeout: 5s }`
  await limitsAbandoned(t, [store, store])
})
