// What a start asks of a Redis that is busy with all the others that start: it is patient with silence, and with
// nothing else.
import t, { type Test } from 'tap'
import { clientFor } from '../../src/store/redis/address.ts'
import { Link } from '../../src/store/redis/connection.ts'
import { startTimer } from '../../src/base/timer.ts'
import { newLog } from '../support/embedded-store.ts'
import { redisConfig } from '../support/redis-store.ts'
import { redisServer } from '../support/redis-server.ts'
import { until } from '../support/until.ts'

const server = await redisServer(t)

async function linked (t: Test, timeout: number): Promise<Link> {
  const link = new Link({ client: clientFor(redisConfig(server, { timeout })), name: 'redis:1', timeout, log: newLog(),
    timer: startTimer, onBack: async () => true })
  await link.open()
  t.teardown(() => { link.close() })
  return link
}

t.test('what is not answered in time is asked again when Redis answers', async (t) => {
  const link = await linked(t, 2000)
  server.pause()
  let asked = 0
  const answer = link.patiently(async () => {
    asked++
    return await link.call(async (client) => await client.get('nothing'))
  })
  await until(() => asked > 0 && !link.isUp)
  server.resume()
  t.equal(await answer, null)
  t.ok(asked > 1)
})

t.test('a Redis that stays silent is named, and what to do', async (t) => {
  const link = await linked(t, 2000)
  server.pause()
  t.teardown(() => {
    server.resume()
  })
  await t.rejects(link.patiently(async () => await link.call(async (client) => await client.get('nothing')), 100), {
    message:
      'Redis at redis:1 can\'t be used: it did not answer in time. Start it, or correct store: in the configuration.'
  })
  server.resume()
})

t.test('an answer is an answer: nothing is asked twice', async (t) => {
  const link = await linked(t, 5000)
  let asked = 0
  for (const [ask, error] of [
    [async () => { throw new Error('an import has not ended') }, /an import has not ended/],
    [async () => await link.call(async (client) => await client.call('NOSUCHCOMMAND')), /unknown command/],
    [
      async () =>
        await link.call(async (client) => await client.call('EVAL', 'return redis.error_reply(\'NOPERM no\')', '0')),
      /^NOPERM no/
    ]
  ] as const) {
    asked = 0
    await t.rejects(link.patiently(async () => { asked++; await ask() }), { message: error })
    t.equal(asked, 1)
  }
})
