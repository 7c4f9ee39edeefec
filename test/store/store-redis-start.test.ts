// What a start asks of a Redis that is busy with all the others that start: it is patient with silence, and with
// nothing else.
import type { Redis, RedisOptions } from 'ioredis'
import t, { type Test } from 'tap'
import { clientFor } from '../../src/store/redis/address.ts'
import { AwayError, Link } from '../../src/store/redis/connection.ts'
import { startTimer } from '../../src/base/timer.ts'
import { newLog } from '../support/embedded-store.ts'
import { openRedis, redisConfig } from '../support/redis-store.ts'
import { redisCluster, redisServer } from '../support/redis-server.ts'
import { until } from '../support/until.ts'

const server = await redisServer(t)

async function linked (t: Test, timeout: number): Promise<Link> {
  const link = new Link({ client: clientFor(redisConfig(server, { timeout })), name: 'redis:1', timeout, log: newLog(),
    timer: startTimer, onBack: async () => true })
  await link.open()
  t.teardown(() => { link.close() })
  return link
}

t.test('what is sent in one turn of the event loop leaves in one write', async (t) => {
  const client = clientFor(redisConfig(server)) as Redis
  const link = new Link({ client, name: 'redis:1', timeout: 60_000, log: newLog(), timer: () => () => {},
    onBack: async () => true })
  await link.open()
  t.teardown(() => { link.close() })
  let writes = 0
  const { stream } = client
  for (const name of ['_write', '_writev'] as const) {
    const write = stream[name] as (...args: unknown[]) => void
    Object.assign(stream, { [name]: (...args: unknown[]) => { writes++; write.apply(stream, args) } })
  }
  const names = Array.from({ length: 10 }, (_, i) => `turn ${i}`)
  const asked = await Promise.all(names.map(async (name) => await link.call(async (one) => await one.echo(name))))
  t.strictSame(asked, names)
  t.equal(writes, 1)
  await link.call(async (one) => await one.echo('later'))
  t.equal(writes, 2, 'and nothing is held back behind the turn')
})

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

t.test('what was lost, while Redis answers already, is asked again at once', async (t) => {
  const link = await linked(t, 5000)
  let asked = 0
  t.equal(await link.patiently(async () => {
    if (++asked === 1) throw new AwayError('the connection was lost')
    return await link.call(async (client) => await client.get('nothing'))
  }), null)
  t.equal(asked, 2)
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

t.test('a command that Redis refuses is no outage', async (t) => {
  const link = await linked(t, 5000)
  await t.rejects(link.call(async (client) => await client.call('NOSUCHCOMMAND')), /^ERR unknown command/)
  t.ok(link.isUp)
})

t.test('an outage is told of once, though Redis goes away again before it has heard everything', async (t) => {
  const log = newLog()
  let heard = 0
  const link = new Link({ client: clientFor(redisConfig(server)), name: 'redis:1', timeout: 5000, log,
    timer: startTimer, onBack: async () => ++heard > 3 })
  await link.open()
  t.teardown(() => { link.close() })
  await server.ask('CLIENT', 'KILL', 'TYPE', 'normal')
  await until(() => heard > 3 && link.isUp)
  t.match(log.lines, [/^Redis at redis:1 does not answer: /, 'Redis at redis:1 answers again'])
  t.equal(log.lines.length, 2)
})

t.test('a cluster of which no master is known is away', async (t) => {
  const { nodes: [node] } = await redisCluster(t, 1)
  let [heard, probes] = [0, 0]
  const link = new Link({ client: clientFor(redisConfig({ cluster: [node!.url] })), name: 'redis:1', timeout: 1000,
    log: newLog(), timer: (ms, callback) => startTimer(ms / 10, () => { probes++; callback() }),
    onBack: async () => { heard++; return true } })
  await link.open()
  t.teardown(() => { link.close() })
  await node!.kill()
  await t.rejects(link.call(async (client) => await client.get('nothing')), AwayError)
  await until(() => link.masters().length === 0)
  const before = probes
  await until(() => probes > before + 5)
  t.equal(heard, 0)
  t.notOk(link.isUp)
})

t.test('a connection does not introduce itself: older servers refuse that, and so may the rights of the user', async (t) => {
  const server = await redisServer(t)
  const store = await openRedis(t, server)
  await store.credit('acme', 'c', 1n)
  t.notMatch(await server.ask('INFO', 'errorstats'), 'errorstat_ERR')
  t.notMatch(await server.ask('INFO', 'commandstats'), 'setinfo')
})

t.test('the address names the database', async (t) => {
  for (const [path, db] of [['', 0], ['/', 0], ['/0', 0], ['/1', 1], ['/12', 12]] as const) {
    const client = clientFor(redisConfig({ url: server.url + path }))
    t.teardown(() => { client.disconnect() })
    await client.connect()
    t.match(await client.call('CLIENT', 'INFO'), new RegExp(` db=${db} `), path)
  }
})

t.test('each attempt to connect waits twice as long as the last, two seconds at most, and no two gateways the same', (t) => {
  const { retryStrategy } = clientFor(redisConfig(server)).options as RedisOptions
  const waits = (random: number): unknown[] => {
    t.intercept(Math, 'random', { value: () => random })
    return [1, 2, 3, 4, 5, 6, 7, 8, 10_000].map((times) => retryStrategy!(times))
  }
  t.strictSame(waits(0.5), [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000])
  t.strictSame(waits(0), [25, 50, 100, 200, 400, 800, 1000, 1000, 1000])
  t.end()
})

t.test('a Redis that is away is asked less and less often, and the next time as often as at first', async (t) => {
  const pauses: number[] = []
  let next = (): void => {}
  let isAway = false
  t.intercept(Math, 'random', { value: () => 0.5 })
  const client = clientFor(redisConfig(server))
  const ping = client.ping.bind(client)
  const disconnect = client.disconnect.bind(client)
  const doubts: number[] = []
  Object.assign(client, {
    ping: async () => isAway ? await Promise.reject(new Error('away')) : await ping(),
    disconnect: (...args: readonly boolean[]) => { doubts.push(pauses.length); disconnect(...args) }
  })
  const link = new Link({ client, name: 'redis:1', timeout: 5000, log: newLog(), onBack: async () => true,
    timer: (ms, callback) => { pauses.push(ms); next = callback; return () => {} } })
  await link.open()
  t.teardown(() => { link.close() })
  for (let outage = 0; outage < 2; outage++) {
    t.strictSame(pauses.splice(0), [2000])
    doubts.length = 0
    isAway = true
    client.emit('error', new Error('away'))
    while (pauses.length < 8) {
      const before = pauses.length
      next()
      await until(() => pauses.length > before)
    }
    t.strictSame(pauses.splice(0), [50, 100, 200, 400, 800, 1000, 1000, 1000])
    t.strictSame(doubts, [5], 'the fifth time in vain, it is connected to anew')
    isAway = false
    while (!link.isUp) {
      next()
      await until(() => pauses.length > 0)
      if (!link.isUp) pauses.splice(0)                        // it connects anew, because it was doubted
    }
  }
})

t.test('while a Redis hears what it may have missed, no look that was due before finds out that it is another one', async (t) => {
  const due: (() => void)[] = []
  const infos: ((id: string) => void)[] = []
  let told = Promise.withResolvers<boolean>()
  const client = clientFor(redisConfig(server))
  const info = client.info.bind(client) as (...args: readonly unknown[]) => unknown
  Object.assign(client, {
    info: (...args: readonly unknown[]) => args[0] === 'replication'
      ? new Promise((resolve) => { infos.push((id) => { resolve(`master_replid:${id}`) }) })
      : info(...args)
  })
  const link = new Link({ client, name: 'redis:1', timeout: 5000, log: newLog(),
    onBack: async () => await told.promise,
    timer: (_ms, callback) => {
      due.push(callback)
      return () => {
        if (due.includes(callback)) due.splice(due.indexOf(callback), 1)
      }
    } })
  t.teardown(() => { link.close() })
  const answer = async (id: string): Promise<void> => {
    await until(() => infos.length > 0)
    infos.shift()!(id)
  }
  const opened = link.open()
  await answer('a')
  await opened
  due.shift()!()
  const slow = infos.shift()!                                  // asked, and not answered for long
  client.emit('error', new Error('away'))
  due.shift()!()
  await answer('a')
  told.resolve(true)
  await until(() => link.isUp)
  told = Promise.withResolvers()
  slow('b')
  await until(() => !link.isUp)
  t.strictSame(due, [])
  told.resolve(true)
  await answer('b')
  await until(() => link.isUp)
  t.equal(due.length, 1)
})
