// Leases in Redis, to the millisecond: of holds, slots, tasks and the names of answers; whom a silence spares; and what
// is said to a process of whose requests Redis knows nothing any more.
import { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import type { AdmissionResult } from '../../src/store/store.ts'
import type { RedisStore } from '../../src/store/redis/store.ts'
import { GRACE_MS, LEASE_MS, SILENCE_MS } from '../../src/store/redis/lua/account.ts'
import { Outbox } from '../../src/store/redis/outbox.ts'
import type { Message } from '../../src/store/redis/outbox-delivery.ts'
import { startTimer, type Timer } from '../../src/base/timer.ts'
import { type Clock, startClock } from '../support/clock.ts'
import { newLog, request, settlement } from '../support/embedded-store.ts'
import { newPrefix, openRedis } from '../support/redis-store.ts'
import { redisServer } from '../support/redis-server.ts'
import { slowProxy } from '../support/slow-proxy.ts'
import { folderFor } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { bill, task } from '../support/store-tasks-conformance.ts'
import { until } from '../support/until.ts'

const noTimer: Timer = () => () => {}
const server = await redisServer(t)

interface Both {
  readonly clock: Clock
  readonly prefix: string
  /** a process of which nothing is heard, where no timer is given, and another one; the account has 1000 */
  readonly one: RedisStore
  readonly other: RedisStore
  /** the answer of Redis to a command about a key of the account */
  readonly ask: (command: string, name: string, ...more: readonly string[]) => Promise<string>
}

async function both (t: Test, timer: Timer = noTimer): Promise<Both> {
  const [clock, prefix] = [startClock(), newPrefix()]
  const options = { prefix, now: clock.now, timer }
  const [one, other] = [await openRedis(t, server, options), await openRedis(t, server, options)] as const
  await one.credit('acme', 'c', 1000n)
  return { clock, prefix, one, other,
    ask: async (command, name, ...more) => await server.ask(command, `{${prefix}:acme}:${name}`, ...more) }
}

/** Until the leases are over, and it is certain that their process was not only silent. */
async function sweepAll ({ clock, other }: Both): Promise<void> {
  for (const ms of [LEASE_MS + 1, GRACE_MS]) {
    await clock.advance(ms)
    await other.hold(request(`swept at ${ms}`, 0n))
    await other.release(`swept at ${ms}`)
  }
}

void t.test('a hold ends with its lease where the account was heard of every twenty seconds', async (t) => {
  const { clock, one, other } = await both(t)
  await one.hold(request('r1', 600n))
  await clock.advance(SILENCE_MS)
  await other.hold(request('a', 1n))
  await clock.advance(LEASE_MS - SILENCE_MS - 1)
  t.match(await other.hold(request('b', 500n)), { kind: 'refused', held_by_others: 601n })
  await clock.advance(1)
  t.match(await other.hold(request('b', 500n)), { kind: 'held' })
})

void t.test('after a longer silence no lease ends for fifteen seconds', async (t) => {
  const { clock, one, other } = await both(t)
  await one.hold(request('r1', 600n))
  await clock.advance(SILENCE_MS + 1)
  await other.hold(request('a', 1n))
  await clock.advance(GRACE_MS - 1)
  t.match(await other.hold(request('b', 500n)), { kind: 'refused', held_by_others: 601n })
  await clock.advance(1)
  t.match(await other.hold(request('b', 500n)), { kind: 'held' })
})

void t.test('that an account was heard of is noted once a second', async (t) => {
  const { clock, one, ask } = await both(t)
  const seenAfter = async (ms: number): Promise<number> => {
    await clock.advance(ms)
    await one.hold(request(`at ${clock.now()}`, 1n))
    return Number(await ask('HGET', 'account', 'seen'))
  }
  const begin = clock.now()
  t.equal(await seenAfter(0), begin)
  t.equal(await seenAfter(1000), begin)
  t.equal(await seenAfter(1), begin + 1001)
})

void t.test('twenty leases that are over are looked at with each hold, and one without a hold is in nobody\'s way', async (t) => {
  const { clock, one, other, ask } = await both(t)
  for (let i = 0; i < 21; i++) await one.hold(request(`r${i}`, 1n))
  await ask('ZADD', 'leases', ...Array.from({ length: 20 }, (_, i) => ['1', `unknown${i}`]).flat())
  const openAfter = async (ms: number): Promise<number> => {
    await clock.advance(ms)
    await other.hold(request(`at ${clock.now()} ${ms}`, 0n))
    return await other.openHolds()
  }
  t.equal(await openAfter(SILENCE_MS), 21 + 1, 'twenty without a hold')
  t.equal(await openAfter(LEASE_MS - SILENCE_MS), 1 + 2, 'twenty of the dead')
  t.equal(await openAfter(0), 3)
  t.equal(await ask('ZCARD', 'leases'), '3')
  await other.release(`at ${clock.now()} 0`)
  t.equal(await ask('ZCARD', 'leases'), '2')
})

void t.test('where more is held than there is, because the balance was changed by hand, nobody is charged less than nothing', async (t) => {
  const { one, ask } = await both(t)
  await one.hold(request('r1', 600n))
  await one.hold(request('r2', 400n))
  await ask('HINCRBY', 'account', 'balance', '-700')
  await one.settle(settlement('r1', 500n))
  await until(() => one.health.pending === 0)
  t.strictSame(await one.balance('acme'), { balance: 300n, held: 400n, open_holds: 1 })
  t.match((await all(one)).slice(1), [{ kind: 'settle', nanos: 0n }, { kind: 'shortfall', shortfall: 500n }])
})

void t.test('the time of the last entry is kept, for a clock that is set back', async (t) => {
  const { one, ask } = await both(t)
  await one.credit('acme', 'd', 1n)
  const [id] = (await ask('XREVRANGE', 'ledger', '+', '-', 'COUNT', '1')).split('\n')
  t.equal(await ask('HGET', 'account', 'entry_time'), id!.split('-')[0])
})

void t.test('all holds and slots of a process are renewed, in accounts that have both or one of them', async (t) => {
  const { clock, prefix, other } = await both(t)
  const log = newLog()
  const living = await openRedis(t, server, { prefix, now: clock.now, timer: clock.timer, log })
  const slot = { name: 's', limit: 2 }
  for (const account of ['acme', 'holds', 'slots']) {
    await living.credit(account, account, 1000n)
    for (const id of [`${account}1`, `${account}2`]) {
      if (account !== 'slots') await living.hold(request(id, 10n, { account }))
      if (account !== 'holds') await living.admit({ request_id: id, account, windows: [], slot })
    }
  }
  for (let i = 0; i < 12; i++) {
    await clock.advance(5000)
    await living.balance('acme')                              // what the timers began has gone to Redis before this
    for (const account of ['acme', 'holds', 'slots']) {
      await other.hold(request('x', 0n, { account }))
      await other.release('x')
      t.match(await other.balance(account), { held: account === 'slots' ? 0n : 20n })
      const told = await other.admit({ request_id: 'x', account, windows: [], slot })
      t.equal(told.kind, account === 'holds' ? 'admitted' : 'refused')
      await other.leave('x')
    }
  }
  t.strictSame(log.errors, [])
})

/** A hold and a slot of the request r1. @returns the commands' answers about the two leases */
async function leased (
  { ask }: { readonly ask: typeof server.ask },
  store: RedisStore,
  prefix: string
): Promise<(command: string, ...more: readonly string[]) => Promise<readonly string[]>> {
  await store.credit('acme', 'c', 1000n)
  await store.hold(request('r1', 10n))
  await store.admit({ request_id: 'r1', account: 'acme', windows: [], slot: { name: 's', limit: 1 } })
  return async (command, ...more) => await Promise.all(['leases', 'slot:s'].map(async (name) =>
    await ask(command, `{${prefix}:acme}:${name}`, ...more, 'r1')))
}

void t.test('leases are renewed when a third of their life is over, and not before', async (t) => {
  const [clock, prefix] = [startClock(), newPrefix()]
  const store = await openRedis(t, server, { prefix, now: clock.now, timer: clock.timer })
  const leases = await leased(server, store, prefix)
  const first = await leases('ZSCORE')
  await clock.advance(6000)
  await store.balance('acme')                                 // what the timers began has gone to Redis before this
  t.strictSame(await leases('ZSCORE'), first)
  await clock.until(async () => (await leases('ZSCORE')).every((end, i) => Number(end) > Number(first[i])))
})

void t.test('a Redis that is back hears of all leases, as it may have forgotten that they were just renewed', async (t) => {
  const [own, prefix, log] = [await redisServer(t), newPrefix(), newLog()]
  // What looks for Redis runs, and nothing that renews or sweeps by itself.
  const timer: Timer = (ms, callback) => ms < 3000 ? startTimer(ms, callback) : () => {}
  const leases = await leased(own, await openRedis(t, own, { prefix, timer, log }), prefix)
  await leases('ZADD', '1')
  await own.ask('CLIENT', 'KILL', 'TYPE', 'normal')
  await until(() => log.lines.some((line) => line.endsWith('answers again')))
  for (const end of await leases('ZSCORE')) t.ok(Number(end) > 1)
})

void t.test('who watches tasks keeps them, gives them to others at its end, and leaves nothing of those that are over', async (t) => {
  const { clock, prefix, one, other } = await both(t)
  const living = await openRedis(t, server, { prefix, now: clock.now, timer: clock.timer })
  for (const id of ['v1', 'v2', 'v3']) {
    await living.hold(request(`r-${id}`, 60n))
    await living.openTask(task(id, 40n))
  }
  const ids = (store: RedisStore): string[] => store.openTasks().map(({ id }) => id).toSorted()
  const watched = async (): Promise<string[]> => [await server.ask('ZCARD', `{${prefix}}:open`),
    await server.ask('HLEN', `{${prefix}}:watchers`)]
  t.strictSame(await watched(), ['3', '3'])
  const opens = async (): Promise<RedisStore> => await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })
  for (let i = 0; i < 12; i++) {
    await clock.advance(5000)
    await living.balance('acme')
    if (i % 4 === 3) t.strictSame(ids(await opens()), [], 'a gateway that begins takes only what nobody watches')
  }
  t.strictSame(ids(living), ['v1', 'v2', 'v3'])
  t.equal(await living.endTask('v1', '{}', bill(40n)), 40n)
  await until(async () => (await watched()).join() === '2,2')
  await living.close()
  const next = await opens()
  t.strictSame(ids(next), ['v2', 'v3'], 'at once, since its end was clean')
  t.strictSame(ids(await opens()), [], 'and nobody else')
  for (const id of ['v2', 'v3']) t.equal(await next.endTask(id, '{}'), 0n)
  await until(async () => (await watched()).join() === '0,0')
  t.strictSame(await one.balance('acme'), { balance: 960n, held: 0n, open_holds: 0 })
  t.strictSame(ids(other), [])
})

void t.test('who was silent for so long that its tasks were taken watches them no more', async (t) => {
  const { clock, prefix, other } = await both(t)
  const timers: (() => void)[] = []
  const silent = await openRedis(t, server, { prefix, now: clock.now, timer (_, callback) {
    timers.push(callback)
    return () => {}
  } })
  for (const id of ['v1', 'v2']) {
    await silent.hold(request(`r-${id}`, 60n))
    await silent.openTask(task(id, 40n))
  }
  await clock.advance(LEASE_MS)
  const taker = await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })
  t.equal(taker.openTasks().length, 2)
  await clock.advance(LEASE_MS - 1)
  for (const look of timers.splice(0)) look()
  await until(() => silent.openTasks().length === 0)
  t.equal(await taker.endTask('v1', '{}', bill(30n)), 30n)
  t.match(await other.balance('acme'), { balance: 970n, held: 40n })
})

void t.test('a task whose client was told that there is none goes with its hold, whether or not it had been opened', async (t) => {
  const whole = await both(t)
  const { clock, prefix, one, other, ask } = whole
  for (const id of ['never', 'v1', 'v2']) await one.hold(request(`r-${id}`, 60n))
  await one.openTask(task('v1', 40n))
  await one.openTask(task('v2', 50n))
  const folder = folderFor(t)
  const outbox = await Outbox.open(`${folder}/outbox`, newLog() as never)
  for (const id of ['never', 'v1', 'nobody']) {
    const message: Message = { of: 'untask', account: 'acme', id: `r-${id}`, task: id }
    await outbox.append(JSON.stringify(message))
  }
  await outbox.close()
  const teller = await openRedis(t, server, { prefix, now: clock.now, folder, timer: noTimer })
  await until(() => teller.health.pending === 0)
  t.strictSame(await other.balance('acme'), { balance: 1000n, held: 50n, open_holds: 1 })
  t.equal(await other.task('v1'), undefined)
  t.strictSame((await other.tasks('acme', { limit: 9, order: 'asc' }))!.map(({ id }) => id), ['v2'])
  t.equal(await ask('HKEYS', 'tasked'), 'r-v2')
  await one.settle(settlement('r-never', 30n))
  await until(() => one.health.pending === 0)
  t.equal((await all(other)).length, 1, 'what was given back is not charged')
})

void t.test('of a task that nobody knows no more is asked than whose it is', async (t) => {
  const own = await redisServer(t)
  const store = await openRedis(t, own, { timer: noTimer })
  await own.ask('CONFIG', 'RESETSTAT')
  t.equal(await store.task('v1'), undefined)
  t.equal(await store.removeTask('v1'), false)
  const asked = [...(await own.ask('INFO', 'commandstats')).matchAll(/^cmdstat_(\w+):calls=(\d+)/gm)]
  t.strictSame(asked.map(([, command, calls]) => `${command} ${calls}`).filter((one) => /^(get|hgetall|eval)/.test(one)),
    ['get 2'])
})

void t.test('an answer to the opening of a task that is lost: the client hears of none, and there is none', async (t) => {
  const { prefix, other, ask } = await both(t)
  const proxy = await slowProxy(t, server.port)
  const store = await openRedis(t, { url: `redis://127.0.0.1:${proxy.port}` }, { prefix, config: { timeout: 10_000 } })
  await store.hold(request('r-v1', 60n))
  proxy.delay = 500
  const opening = store.openTask(task('v1', 40n))
  opening.catch(() => {})
  await until(async () => await ask('HGET', 'task:v1', 'is_open') === '1')
  proxy.delay = 0
  proxy.cut()
  await t.rejects(opening, { code: 'service_unavailable' })
  await until(() => store.health.isUp && store.health.pending === 0)
  t.equal(await other.task('v1'), undefined)
  t.strictSame(await other.balance('acme'), { balance: 1000n, held: 0n, open_holds: 0 })
})

void t.test('the end waits for charges that are on their way to Redis', async (t) => {
  const { prefix, other } = await both(t)
  const proxy = await slowProxy(t, server.port)
  const log = newLog()
  const store = await openRedis(t, { url: `redis://127.0.0.1:${proxy.port}` }, { prefix, log })
  await store.hold(request('r1', 60n))
  proxy.delay = 300
  await store.settle(settlement('r1', 40n))
  await store.close()
  t.equal((await other.balance('acme')).balance, 960n)
  t.notMatch(log.lines.join('\n'), 'wait in the outbox')
})

void t.test('the name of an answer is its request\'s until its lease is over, and who lost it can\'t free it', async (t) => {
  const { clock, one, other } = await both(t)
  await one.hold(request('seen', 1n))
  t.ok(await one.claimAnswer('acme', 'n', 'r1'))
  t.ok(await one.claimAnswer('acme', 'n', 'r1'), 'as it is renewed')
  await clock.advance(SILENCE_MS)
  t.notOk(await other.claimAnswer('acme', 'n', 'r2'))
  await clock.advance(LEASE_MS - SILENCE_MS - 1)
  t.notOk(await other.claimAnswer('acme', 'n', 'r2'))
  await clock.advance(1)
  t.ok(await other.claimAnswer('acme', 'n', 'r2'))
  await one.unclaimAnswer('r1')
  t.notOk(await one.claimAnswer('acme', 'n', 'r3'), 'it is the other\'s')
  await other.unclaimAnswer('r2')
  t.ok(await one.claimAnswer('acme', 'n', 'r3'))
})

void t.test('a process whose holds were given up is told so, and can give them back all the same', async (t) => {
  const whole = await both(t)
  const { one, other } = whole
  for (const id of ['r1', 'r2', 'r-v1']) await one.hold(request(id, 60n))
  await sweepAll(whole)
  await t.rejects(one.extend('r1', 1n), { message: 'the request r1 has no hold to extend' })
  await t.resolves(one.progress(settlement('r1', 10n)))
  await t.rejects(one.openTask(task('v1', 40n)), { message: 'the request r-v1 has no hold of 40 nano-dollars' })
  await t.resolves(one.release('r2'))
  t.strictSame(await other.balance('acme'), { balance: 1000n, held: 0n, open_holds: 0 })
  t.equal((await all(other)).length, 1)
})

void t.test('a task is not opened on a hold that Redis knows to be too small', async (t) => {
  const { prefix, one } = await both(t)
  const client = new Redis(server.url)
  t.teardown(() => { client.disconnect() })
  const holds = `{${prefix}:acme}:holds`
  await one.hold(request('r-v1', 60n))
  const before = await client.hgetBuffer(holds, 'r-v1')
  await one.extend('r-v1', 20n)
  await client.hset(holds, 'r-v1', before!)                  // as after a failover
  await t.rejects(one.openTask(task('v1', 70n)), { message: 'the request r-v1 has no hold of 70 nano-dollars' })
  await one.openTask(task('v1', 60n))
})

void t.test('a refund that would take the balance beyond what can be counted waits, and changes nothing', async (t) => {
  const { prefix, clock } = await both(t)
  const log = newLog()
  const store = await openRedis(t, server, { prefix, now: clock.now, timer: startTimer, log })
  await store.credit('rich', 'rich', 2n ** 63n - 1n)
  await store.hold(request('r1', 5n, { account: 'rich' }))
  await store.settle(settlement('r1', 5n))
  await until(() => store.health.pending === 0)
  await store.credit('rich', 'more', 5n)
  await store.refund('r1')
  await until(() => log.lines.some((line) => line.includes('has refused')))
  t.match(log.errors.at(-1), { message: /the balance would pass 2\^63 - 1 nano-dollars/ })
  t.equal(store.health.pending, 1)
  t.equal((await store.balance('rich')).balance, 2n ** 63n - 1n)
  t.strictSame(await store.keyUsage('dev'), { spent: 5n, held: 0n })
})

void t.test('a clock that jumps back closes a full window for a minute at most', async (t) => {
  const prefix = newPrefix()
  let time = 1_800_000_000_000
  const store = await openRedis(t, server, { prefix, now: () => time, timer: noTimer })
  let count = 0
  const admit = async (): Promise<AdmissionResult> =>
    await store.admit({ request_id: `r${++count}`, account: 'acme', windows: [{ name: 'k', limit: 2 }] })
  for (const back of [60_000, 3_600_000]) {
    t.match(await admit(), { kind: 'admitted' })
    t.match(await admit(), { kind: 'admitted' })
    time -= back
    for (const [passed, left] of [[0, 60_000], [30_000, 30_000], [29_999, 1]] as const) {
      time += passed
      t.match(await admit(), { kind: 'refused', by: 'window', windows: [{ next_ms: left }] }, `${back} back`)
    }
    time += 1
    t.match(await admit(), { kind: 'admitted' }, `${back} back: after a minute`)
    time += 60_000
  }
})
