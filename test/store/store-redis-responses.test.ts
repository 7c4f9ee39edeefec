// Kept responses in Redis: the conformance suite, on one server and on a cluster, and Redis away.
import { Redis } from 'ioredis'
import t from 'tap'
import { newPrefix, openRedis } from '../support/redis-store.ts'
import { redisCluster, redisServer } from '../support/redis-server.ts'
import { HOUR, life, responsesConformance } from '../support/store-responses-conformance.ts'
import { until } from '../support/until.ts'

const content = Buffer.from('content')
const UNAVAILABLE = { code: 'service_unavailable', status: 503 }

void t.test('one server', async (t) => {
  const { url } = await redisServer(t)
  responsesConformance(t, async (t, now) => await openRedis(t, { url }, { now }))
})

void t.test('a cluster of three masters', async (t) => {
  const { nodes } = await redisCluster(t)
  const cluster = nodes.map(({ url }) => url)
  responsesConformance(t, async (t, now) => await openRedis(t, { cluster }, { now }))
})

void t.test('gateways share what they keep, and Redis drops what is over by itself', async (t) => {
  const { url } = await redisServer(t)
  const prefix = newPrefix()
  const [one, other] = [await openRedis(t, { url }, { prefix }), await openRedis(t, { url }, { prefix })]
  const client = new Redis(url)
  t.teardown(() => { client.disconnect() })
  t.equal((await client.keys('*response*')).length, 0, 'nothing is there before it is used')
  await one.responses.keep('acme', 'resp_a', content, life({ life: HOUR }))
  t.strictSame(await other.responses.find('acme', 'resp_a'), content)
  const left = await Promise.all((await client.keys('*response*')).map(async (key) => await client.pttl(key)))
  t.equal(left.length, 3)
  t.ok(left.every((ms) => ms > HOUR / 2 && ms <= HOUR), 'all of it ends')
  await other.responses.keep('acme', 'resp_b', content, life({ life: 200 }))
  await until(async () => await client.exists(`{${prefix}:acme}:response:resp_b`) === 0)
  t.equal(await one.responses.find('acme', 'resp_b'), undefined)
  t.equal(await other.responses.drop('acme', 'resp_a'), true)
  t.equal(await one.responses.find('acme', 'resp_a'), undefined)
})

void t.test('while Redis is dead nothing is kept or found, which is no answer about what is there', async (t) => {
  const server = await redisServer(t)
  const store = await openRedis(t, server, { config: { timeout: 500 } })
  await store.responses.keep('acme', 'resp_a', content, life())
  await server.kill()
  await t.rejects(store.responses.keep('acme', 'resp_b', content, life()), UNAVAILABLE)
  await t.rejects(store.responses.find('acme', 'resp_a'), UNAVAILABLE)
  await t.rejects(store.responses.drop('acme', 'resp_a'), UNAVAILABLE)
  await server.restart()
  await until(async () => {
    try {
      return await store.responses.keep('acme', 'resp_c', content, life())
    } catch {
      return false
    }
  })
  t.strictSame(await store.responses.find('acme', 'resp_c'), content)
  await store.close()
  await t.rejects(store.responses.find('acme', 'resp_c'), UNAVAILABLE)
})

void t.test('a Redis that is away when the first response comes is asked again later', async (t) => {
  const server = await redisServer(t)
  const store = await openRedis(t, server, { config: { timeout: 500 } })
  await server.kill()
  await t.rejects(store.responses.find('acme', 'resp_a'), UNAVAILABLE)
  await server.restart()
  await until(async () => await store.responses.find('acme', 'resp_a').then(() => true, () => false))
  t.equal(await store.responses.keep('acme', 'resp_a', content, life()), true)
})

void t.test('the last quarter of the memory is the ledger\'s: nothing more is kept until there is room', async (t) => {
  const server = await redisServer(t, { settings: { maxmemory: '24mb' } })
  const store = await openRedis(t, server)
  const large = Buffer.alloc(1024 * 1024, 'sealed')
  const keep = async (i: number): Promise<boolean> =>
    await store.responses.keep(`account ${i}`, 'resp_a', large, life({ space: 9_000_000 }))
  let kept = 0
  await t.rejects((async () => { while (kept < 24 && await keep(kept)) kept++ })(), /full but for what is left/)
  t.ok(kept > 8, `${kept} are kept`)
  const used = Number(/used_memory:(\d+)/.exec(await server.ask('INFO', 'memory'))![1])
  t.ok(used < 24 * 1024 * 1024 * 0.8, `${used} bytes are used`)
  t.equal(await store.credit('acme', 'c0', 1n), true, 'the ledger goes on')
  t.ok(await store.responses.find('account 0', 'resp_a'), 'what is there stays')
  await t.rejects(keep(kept), /full but for what is left/)
  t.equal(await store.responses.find(`account ${kept}`, 'resp_a'), undefined)
  await store.responses.drop('account 0', 'resp_a')
  t.equal(await keep(kept), true)
})
