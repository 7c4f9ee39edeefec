// What an answer says that it costs is what is charged, also while requests of one account race for its last money, at
// two gateways that share a Redis.
import t from 'tap'
import { newPrefix } from '../support/redis-store.ts'
import { redisServer } from '../support/redis-server.ts'
import { holdsWhatIsReported } from '../support/reported-cost.ts'

await t.test('near the end of an account the reported cost is the charged cost', async (t) => {
  const { url } = await redisServer(t)
  const store = `{ driver: redis, path: ./data, url: "${url}", prefix: ${newPrefix()}, timeout: 5s }`
  await holdsWhatIsReported(t, [store, store])
})
