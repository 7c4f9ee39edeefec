// Accounts and keys of the admin API in Redis, however many: what one process changes others read, and no more than
// that; and whatever a failover takes back, all of them know it.
import t from 'tap'
import { Directory, type KeyRecord } from '../../src/accounts/directory.ts'
import { digestOf } from '../../src/accounts/digests.ts'
import { startClock } from '../support/clock.ts'
import { newLog } from '../support/embedded-store.ts'
import { openRedis, newPrefix } from '../support/redis-store.ts'
import { redisServer } from '../support/redis-server.ts'
import { until } from '../support/until.ts'

const server = await redisServer(t)

const textOf = (id: string, frozen = false): string => JSON.stringify({
  settings: { id, account: 'acme', frozen, streaming: true, routing_mode: 'premium', channels: ['premium'] },
  secrets: [{ sha256: digestOf(id).toString('hex') }], shown: 'sk…', created_at: '2027-01-01T00:00:00.000Z'
} satisfies KeyRecord)

/** How often Redis was asked for it. */
async function callsOf (command: string): Promise<number> {
  return Number(
    new RegExp(`^cmdstat_${command}:calls=(\\d+)`, 'm').exec(await server.ask('INFO', 'commandstats'))?.[1] ?? 0
  )
}

const frozen = (directory: Directory, id: string): boolean | undefined => directory.keptKey(id)?.record.settings.frozen

void t.test('of thousands of keys one that changes is read alone; after too many changes all are, in pages', async (t) => {
  const prefix = newPrefix()
  const [one, other] = [await openRedis(t, server, { prefix }), await openRedis(t, server, { prefix })] as const
  // All commands are in its log.
  await server.ask('CONFIG', 'SET', 'slowlog-log-slower-than', '0', 'slowlog-max-len', '100000')
  const pairs = Array.from({ length: 3000 }, (_, i) => [`key:k${i}`, `1 ${textOf(`k${i}`)}`]).flat()
  await server.ask('HSET', `{${prefix}}:records`, ...pairs)
  const change = async (id: string, version: number, text: string): Promise<boolean> =>
    await one.change({ record: { kind: 'key', id, version, text }, audit: '{}' })
  await change('first', 1, textOf('first'))
  const directory = new Directory(other, Date.now)
  await directory.load()
  t.equal(directory.keptKeys().length, 3001)
  t.ok(await callsOf('hscan') > 1, 'none of the questions is long')
  const same = directory.keptKey('k1')

  const before = await callsOf('hscan')
  t.teardown(directory.follow())
  t.equal(await change('k0', 2, textOf('k0', true)), true)
  t.equal(await change('new', 1, textOf('new')), true)
  await until(() => frozen(directory, 'k0') === true && directory.keptKey('new'))
  t.equal(directory.findKey(digestOf('new'))?.id, 'new')
  t.equal(await callsOf('hscan'), before)

  await server.ask('LTRIM', `{${prefix}}:changes`, '0', '0')     // as a thousand changes do
  await server.ask('HSET', `{${prefix}}:records`, 'key:k2', `2 ${textOf('k2', true)}`)
  await server.ask('LSET', `{${prefix}}:changes`, '0', 'unknown key:new')
  await until(() => frozen(directory, 'k2') === true)
  t.ok(await callsOf('hscan') > before)
  t.equal(directory.keptKey('k1'), same, 'what is as it was is the same object')
  t.notMatch(await server.ask('SLOWLOG', 'GET', '-1'), /\bhgetall\s+\S*:records\b/i, 'never all at once')
})

void t.test('no more than the last thousand changes are kept', async (t) => {
  const prefix = newPrefix()
  const store = await openRedis(t, server, { prefix })
  await server.ask('RPUSH', `{${prefix}}:changes`, ...Array.from({ length: 1000 }, (_, i) => `${i} key:k`))
  await store.change({ record: { kind: 'key', id: 'k', version: 1, text: textOf('k') }, audit: '{}' })
  t.equal(await server.ask('LLEN', `{${prefix}}:changes`), '1000')
  t.match(await server.ask('LINDEX', `{${prefix}}:changes`, '0'), /^[-0-9a-f]{36} key:k$/)
})

void t.test('a change that comes back with a version that was seen before, as after a failover, is seen', async (t) => {
  const prefix = newPrefix()
  const clock = startClock()
  const [one, other] = [await openRedis(t, server, { prefix }),
    await openRedis(t, server, { prefix, timer: clock.timer })] as const
  const change = async (version: number, text: string): Promise<boolean> =>
    await one.change({ record: { kind: 'key', id: 'k', version, text }, audit: '{}' })
  const directory = new Directory(other, Date.now)
  await directory.load()
  t.teardown(directory.follow())
  await change(1, textOf('k'))
  await change(2, textOf('k'))
  await until(() => directory.keptKey('k')?.version === 2)
  // The server that takes over knows nothing of the second change; another gateway makes another one before anybody
  // looks.
  await server.ask('EVAL', 'redis.call(\'HSET\', KEYS[1], \'key:k\', ARGV[1]) redis.call(\'LPOP\', KEYS[2])', '2',
    `{${prefix}}:records`, `{${prefix}}:changes`, `1 ${textOf('k')}`)
  t.equal(await change(2, textOf('k', true)), true)
  await until(() => frozen(directory, 'k') === true)
  t.equal(directory.keptKey('k')!.version, 2)

  // A change that is lost, and nobody makes another: the next look finds it.
  await server.ask('EVAL', 'redis.call(\'HSET\', KEYS[1], \'key:k\', ARGV[1]) redis.call(\'LPOP\', KEYS[2])', '2',
    `{${prefix}}:records`, `{${prefix}}:changes`, `1 ${textOf('k')}`)
  await clock.until(() => frozen(directory, 'k') === false)
  t.equal(directory.keptKey('k')!.version, 1, 'the store is right')
})

void t.test('a change is told at once to who is there, and not only found at the next look', async (t) => {
  const prefix = newPrefix()
  const [one, other] = [await openRedis(t, server, { prefix }),
    await openRedis(t, server, { prefix, timer: () => () => {} })] as const
  let told = 0
  t.teardown(other.watchRecords(() => { told++ }))
  const isHeard = async (): Promise<boolean> =>
    (await server.ask('PUBSUB', 'NUMSUB', `{${prefix}}:changed`)).endsWith('\n1')
  await until(async () => told === 1 && await isHeard())
  await one.change({ audit: '{"what":"no record"}' })
  for (const version of [1, 2]) {
    await one.change({ record: { kind: 'key', id: 'k', version, text: textOf('k') }, audit: '{}' })
    await until(() => told === 1 + version)
  }
  t.equal((await one.changes(0, 9)).length, 3)
  t.strictSame((await other.newestChanges(undefined, 2)).map(({ id, text }) => [id, text]), [[3, '{}'], [2, '{}']])
  t.strictSame((await other.newestChanges(2, 9)).map(({ id, text }) => [id, text]), [[1, '{"what":"no record"}']])
  t.strictSame([await other.newestChanges(1, 9), await other.newestChanges(99, 1)].flat().map(({ id }) => id), [3])
  await one.change({ record: { kind: 'key', id: 'k', version: 3, text: textOf('k') } })
  await until(() => told === 4)
  t.equal((await one.changes(0, 9)).length, 3, 'a record without a line')
  const { mark, isWhole, records } = await one.recordsSince('')
  t.strictSame([isWhole, records.map(({ version }) => version)], [true, [3]])
  t.strictSame(await one.recordsSince(mark), { mark, isWhole: false, records: [] })
})

void t.test('a process is among the living until its heartbeat is too old, or it says that it ends', async (t) => {
  const clock = startClock()
  const prefix = newPrefix()
  const store = await openRedis(t, server, { prefix, now: clock.now, timer: clock.timer })
  const kept = async (): Promise<string[]> => [await server.ask('ZCARD', `{${prefix}}:beats`),
    await server.ask('HLEN', `{${prefix}}:beats:texts`)]
  await store.beat('a', 1000, '{"of": "a"}')
  await clock.advance(400)
  await store.beat('b', 1000, 'b')
  t.strictSame((await store.beats()).toSorted((x, y) => x.age_ms - y.age_ms), [{ age_ms: 0, text: 'b' }, { age_ms: 400,
    text: '{"of": "a"}' }])
  await clock.advance(599)
  t.equal((await store.beats()).length, 2)
  await clock.advance(1)
  t.strictSame(await store.beats(), [{ age_ms: 600, text: 'b' }])
  t.strictSame(await kept(), ['2', '2'])
  await store.beat('c', 1000)
  t.strictSame(await kept(), ['2', '2'], 'who is not among the living any more is forgotten')
  await store.beat('c', 0)
  t.strictSame(await store.beats(), [{ age_ms: 600, text: 'b' }])
  t.strictSame(await kept(), ['1', '1'])
})

void t.test('who may not listen any more, and is cut off, looks for changes, and nothing ends by it', async (t) => {
  const prefix = newPrefix()
  const log = newLog()
  await server.ask('ACL', 'SETUSER', 'listener', 'on', 'nopass', '~*', '&*', '+@all')
  t.teardown(async () => { await server.ask('ACL', 'DELUSER', 'listener') })
  const one = await openRedis(t, server, { prefix })
  const other = await openRedis(t, { url: server.url.replace('://', '://listener:any@') }, { prefix, log })
  const directory = new Directory(other, Date.now)
  await directory.load()
  t.teardown(directory.follow())
  const change = async (id: string): Promise<boolean> =>
    await one.change({ record: { kind: 'key', id, version: 1, text: textOf(id) }, audit: '{}' })
  const clients = async (): Promise<string> => await server.ask('CLIENT', 'LIST', 'TYPE', 'pubsub')
  await until(async () => (await clients()).includes('user=listener'))
  await change('heard')
  await until(() => directory.keptKey('heard'))

  await server.ask('ACL', 'SETUSER', 'listener', 'resetchannels')
  await until(() => log.lines.some((line) => /does not tell at once/.test(line)))
  await change('found')
  await until(() => directory.keptKey('found'))

  await server.ask('ACL', 'SETUSER', 'listener', '&*')
  await server.ask('CLIENT', 'KILL', 'USER', 'listener')
  await until(async () => (await clients()).includes('user=listener'))
  await change('again')
  await until(() => directory.keptKey('again'))
})
