// Calls of scripts, as ioredis sends and answers them: against real servers.
import type { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { type Client, clientFor } from '../../src/store/redis/address.ts'
import { startTimer } from '../../src/base/timer.ts'
import { Link } from '../../src/store/redis/connection.ts'
import { LuaScript, ScriptCall } from '../../src/store/redis/script-call.ts'
import { newLog } from '../support/embedded-store.ts'
import { redisCluster, redisServer } from '../support/redis-server.ts'
import { redisConfig } from '../support/redis-store.ts'

const server = await redisServer(t)
const mirror = new LuaScript('return { KEYS[1], #ARGV, ARGV, 7, false }', 1)

async function connected (t: Test, client: Client): Promise<Client> {
  client.on('error', () => {})
  t.teardown(() => { client.disconnect() })
  await client.connect()
  return client
}

async function single (t: Test, timeout = 10_000): Promise<Redis> {
  return await connected(t, clientFor(redisConfig(server, { timeout }))) as Redis
}

/** Calls so far, of a command. */
async function calls (command: string): Promise<number> {
  return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(await server.ask('INFO', 'commandstats'))?.[1] ?? 0)
}

t.test('texts, numbers and bytes arrive as they are, and so does the reply', async (t) => {
  const client = await single(t)
  for (const args of [[], ['', 'ü€𝄞', 'a\r\n$3\r\nb'], [0, -1.5, 12], ['before', 3, Buffer.from('by€tes'), 'behind'],
    [Buffer.alloc(0), Buffer.from('ä'), Buffer.from('last')]]) {
    t.strictSame(await ScriptCall.send(client, mirror, ['key ä', ...args]),
      ['key ä', args.length, args.map(String), 7, null])
  }
})

t.test('the script goes over each connection once, and its hash from then on', async (t) => {
  const script = new LuaScript('return { "once", ARGV[1] }', 1)
  for (const client of [await single(t), await single(t)]) {
    const [whole, hashes] = [await calls('eval'), await calls('evalsha')]
    const replies = Array.from({ length: 5 }, async (_, i) => await ScriptCall.send(client, script, ['key', i]))
    t.strictSame(await Promise.all(replies), ['0', '1', '2', '3', '4'].map((i) => ['once', i]))
    t.equal(await calls('eval') - whole, 1)
    t.equal(await calls('evalsha') - hashes, 4)
  }
})

t.test('a server that has forgotten its scripts is sent them again, and each call is made once', async (t) => {
  const client = await single(t)
  const count = new LuaScript('return redis.call("INCR", KEYS[1])', 1)
  t.equal(await ScriptCall.send(client, count, ['counted']), 1)
  await server.ask('SCRIPT', 'FLUSH')
  const replies = await Promise.all(Array.from({ length: 5 }, async () =>
    await ScriptCall.send(client, count, ['counted'])))
  t.strictSame((replies as number[]).toSorted((a, b) => a - b), [2, 3, 4, 5, 6])
})

t.test('a script that always says so is sent twice, and no more', async (t) => {
  const client = await single(t)
  const whole = await calls('eval')
  await t.rejects(ScriptCall.send(client, new LuaScript('return redis.error_reply("NOSCRIPT no")', 1), ['key']),
    /NOSCRIPT no/)
  t.equal(await calls('eval') - whole, 2)
})

t.test('a script that fails says why, and those behind it go on', async (t) => {
  const client = await single(t)
  const replies = await Promise.allSettled([
    ScriptCall.send(client, new LuaScript('return redis.error_reply("it may not")', 1), ['key']),
    ScriptCall.send(client, mirror, ['key'])
  ])
  t.match(replies[0], { status: 'rejected', reason: /it may not/ })
  t.equal(replies[1]!.status, 'fulfilled')
})

t.test('no answer in time', async (t) => {
  const client = await single(t, 100)
  await ScriptCall.send(client, mirror, ['key'])
  server.pause()
  await t.rejects(ScriptCall.send(client, mirror, ['key']), { message: 'Command timed out' })
  server.resume()
  t.match(await ScriptCall.send(client, mirror, ['later']), ['later'], 'a late answer is taken for no other')
})

t.test('a connection that ends fails what it was to answer', async (t) => {
  const client = await single(t)
  await ScriptCall.send(client, mirror, ['key'])
  server.pause()
  const asked = ScriptCall.send(client, mirror, ['key'])
  client.disconnect()
  client.stream.destroy()                                     // without an answer to its end
  await t.rejects(asked, /Connection is closed/)
  server.resume()
  await t.rejects(ScriptCall.send(client, mirror, ['key']), /closed|writeable/, 'and what is asked behind its end')
})

t.test('in a cluster a call goes to the server that has its key, and each is sent the script', async (t) => {
  const { nodes } = await redisCluster(t)
  const urls = nodes.map(({ url }) => url) as [string, ...string[]]
  const { url: _url, ...config } = redisConfig(server)
  const client = clientFor({ ...config, cluster: urls })
  const link = new Link({ client, name: 'cluster', timeout: 10_000, log: newLog(), timer: startTimer,
    onBack: async () => true })
  await link.open()
  t.teardown(() => { link.close() })
  const count = new LuaScript('return redis.call("INCR", KEYS[1])', 1)
  const keys = Array.from({ length: 30 }, (_, i) => `{${i}}:counted`)
  for (const expected of [1, 2]) {
    const replies = await Promise.all(keys.map(async (key) => await ScriptCall.send(client, count, [key])))
    t.strictSame(replies, keys.map(() => expected))
    for (const node of nodes) await node.ask('SCRIPT', 'FLUSH')
  }
  for (const node of nodes) t.notMatch(await node.ask('INFO', 'errorstats'), /MOVED/, 'asked none that has not its key')
})
