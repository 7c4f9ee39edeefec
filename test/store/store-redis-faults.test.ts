// The Redis driver when things go wrong: Redis is killed, paused, replaced or failed over, connections break, gateways
// die. What was charged is charged once, whatever happens; what can't be decided is refused, and never free.
import t, { type Test } from 'tap'
import { acceptLoss } from '../../src/store/redis/accept-loss.ts'
import type { RedisStore } from '../../src/store/redis/store.ts'
import { CHARGE_MS, GRACE_MS, LEASE_MS } from '../../src/store/redis/lua/account.ts'
import { startTimer } from '../../src/base/timer.ts'
import { startClock } from '../support/clock.ts'
import { newLog, request, settlement } from '../support/embedded-store.ts'
import { newPrefix, openRedis, redisConfig } from '../support/redis-store.ts'
import { redisSentinel, redisServer, type RedisServer } from '../support/redis-server.ts'
import { slowProxy } from '../support/slow-proxy.ts'
import { folderFor } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { task } from '../support/store-tasks-conformance.ts'
import { until } from '../support/until.ts'

const AWAY = { code: 'auth_unavailable', status: 503 }

async function isDone (store: RedisStore): Promise<void> {
  await until(() => store.health.isUp && store.health.pending === 0)
}

/** An empty Redis counts as one that has lost the ledger. */
async function accept (store: RedisStore, server: RedisServer, prefix: string, folder: string): Promise<void> {
  await until(() => store.health.loss !== undefined)
  await acceptLoss(redisConfig(server, { prefix }), folder)
}

/** With an account that has 1000. */
async function funded (
  t: Test,
  server: RedisServer,
  options: Parameters<typeof openRedis>[2] = {}
): Promise<RedisStore> {
  const store = await openRedis(t, server, options)
  await store.credit('acme', 'c', 1000n)
  return store
}

void t.test('while Redis is dead nothing is decided, nothing is lost, and each charge counts once when it is back', async (t) => {
  const server = await redisServer(t)
  const log = newLog()
  const store = await funded(t, server, { log, config: { timeout: 1000 } })
  for (const id of ['r1', 'r2', 'r3', 'r4', 'r-v1']) await store.hold(request(id, 50n))
  await store.openTask(task('v1', 50n))
  await server.kill()
  await until(() => !store.health.isUp)

  await t.rejects(store.hold(request('r5', 1n)), AWAY)
  await t.rejects(store.admit({ request_id: 'r5', account: 'acme', windows: [{ name: 'k', limit: 5 }] }), AWAY)
  await t.rejects(Promise.resolve(store.balance('acme')), { code: 'service_unavailable' })
  t.match(await store.task('v1'), { is_open: true }, 'a task that is watched here is known here')
  t.equal(await store.settle(settlement('r1', 30n)), 30n, 'what was held is known here')
  t.equal(await store.settle(settlement('r2', 70n)), 50n)
  t.equal(await store.settle(settlement('r1', 30n)), 30n)
  await store.settle(settlement('r3', 20n))
  await store.refund('r3')
  await store.release('r4')
  await store.release('r5')
  t.equal(store.health.pending, 4)
  t.ok(store.health.refusesKeys)

  await server.restart()
  await isDone(store)
  t.strictSame((await all(store)).map(({ kind, reference, nanos }) => [kind, reference, nanos]).toSorted(), [
    ['adjust', 'r3', 20n],
    ['credit', 'c', 1000n],
    ['settle', 'r1', -30n],
    ['settle', 'r2', -50n],
    ['settle', 'r3', -20n],
    ['shortfall', 'r2', 0n]
  ])
  t.equal((await store.balance('acme')).balance, 920n)
  t.strictSame((await store.verify()).differences, [])
  t.equal(log.lines.filter((line) => line.includes('does not answer')).length, 1, 'said once')
  t.equal(log.lines.filter((line) => line.includes('answers again')).length, 1)
})

void t.test('a Redis that stands still is away, and what it does afterwards of what it was asked is nobody\'s', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const prefix = newPrefix()
  const store = await funded(t, server, { prefix, now: clock.now, config: { timeout: 1000 } })
  await store.hold(request('r1', 100n))
  server.pause()
  await t.rejects(store.hold(request('late', 700n)), AWAY)
  await t.rejects(store.hold(request('r2', 1n)), AWAY, 'at once')
  t.equal(await store.settle(settlement('r1', 40n)), 40n)
  await store.release('late')
  server.resume()
  await isDone(store)
  // It may have heard of the hold. Nobody renews it.
  const other = await openRedis(t, server, { prefix, now: clock.now })
  await clock.advance(LEASE_MS + 1)
  await other.hold(request('r3', 1n))
  await clock.advance(GRACE_MS)
  t.match(await other.hold(request('r4', 900n)), { kind: 'held' })
  t.strictSame((await other.verify()).differences, [])
})

void t.test('a Redis that comes back as another one hears of the last credits and charges again, once', async (t) => {
  const server = await redisServer(t, { appendonly: false })
  const [prefix, folder] = [newPrefix(), folderFor(t)]
  const log = newLog()
  const store = await funded(t, server, { prefix, folder, log })
  t.ok(log.lines.some((line) => /^Redis at \S+:\d+ writes nothing down/.test(line)), 'there was a warning')
  await store.hold(request('r1', 50n))
  await store.settle(settlement('r1', 30n))
  await store.hold(request('r2', 50n))
  await isDone(store)
  await server.restart()
  await accept(store, server, prefix, folder)
  await until(async () => store.health.isUp && (await store.balance('acme')).balance === 970n)
  t.equal(await store.settle(settlement('r2', 20n)), 20n, 'its hold is forgotten, and it was promised')
  await isDone(store)
  t.strictSame((await all(store)).map(({ kind, reference, nanos }) => [kind, reference, nanos]), [['credit', 'c',
    1000n], ['settle', 'r1', -30n], ['settle', 'r2', -20n]])
  t.strictSame(await store.keyUsage('dev'), { spent: 50n, held: 0n })
  t.equal(await store.credit('acme', 'c', 1000n), false)
  t.strictSame((await store.verify()).differences, [])
})

void t.test('a Redis that has lost refunds and debits hears of them again, once; a debit takes what is left', async (t) => {
  const server = await redisServer(t, { appendonly: false })
  const [prefix, folder, log] = [newPrefix(), folderFor(t), newLog()]
  const store = await funded(t, server, { prefix, folder, log })
  const debit = { kind: 'debit' as const, account: 'acme', reference: 'd', nanos: 900n, reason: 'a fee' }
  t.equal(await store.book(debit), 'new')
  t.equal(await store.book({ kind: 'refund', account: 'acme', reference: 'r', nanos: 20n, reason: 'cut off' }), 'new')
  t.equal(await store.book({ ...debit, reference: 'e', nanos: 121n }), 'short')
  await isDone(store)
  await server.restart()
  await accept(store, server, prefix, folder)
  await until(async () => store.health.isUp && (await store.balance('acme')).balance === 120n)
  t.strictSame(await Promise.all([store.book(debit), store.book({ ...debit, kind: 'refund', reference: 'r' })]), [
    'known',
    'known'
  ])
  t.strictSame((await all(store)).map(({ kind, reference, nanos, reason }) => [kind, reference, nanos, reason]), [
    ['credit', 'c', 1000n, undefined], ['debit', 'd', -900n, 'a fee'], ['refund', 'r', 20n, 'cut off']
  ])
  // Told to one that knows the reference of it, and of its money less than there was.
  t.strictSame(log.lines.filter((line) => line.includes('has refused')), [])
  t.strictSame((await store.verify()).differences, [])
})

void t.test('a debit that a Redis has lost together with a credit of a gateway that is gone takes what is left', async (t) => {
  const server = await redisServer(t, { appendonly: false })
  const [prefix, folder, log] = [newPrefix(), folderFor(t), newLog()]
  const gone = await openRedis(t, server, { prefix })
  await gone.credit('acme', 'g', 900n)
  await gone.close()
  const store = await funded(t, server, { prefix, folder, log })
  t.equal(await store.book({ kind: 'debit', account: 'acme', reference: 'd', nanos: 1800n, reason: 'a fee' }), 'new')
  await isDone(store)
  await server.restart()
  await accept(store, server, prefix, folder)
  await until(() => log.lines.some((line) => line.includes('was told to it again')))
  t.strictSame((await all(store)).map(({ reference, nanos }) => [reference, nanos]), [['c', 1000n], ['d', -1000n]])
  t.strictSame(await store.balance('acme'), { balance: 0n, held: 0n, open_holds: 0 })
})

void t.test('a charge whose hold a Redis has lost counts to its own day, and to no other', async (t) => {
  const server = await redisServer(t, { appendonly: false })
  const [prefix, folder] = [newPrefix(), folderFor(t)]
  const store = await funded(t, server, { prefix, folder })
  const [before, day] = ['2027-01-14', '2027-01-15']
  await store.hold(request('r1', 100n, { day: before }))
  await store.settle(settlement('r1', 60n))
  await store.hold(request('r2', 100n, { day }))
  await isDone(store)
  await server.restart()
  await accept(store, server, prefix, folder)
  await until(async () => store.health.isUp && (await store.balance('acme')).balance === 940n)
  await store.settle(settlement('r2', 70n))
  await isDone(store)
  t.strictSame(await store.keyUsage('dev', before), { spent: 60n, held: 0n })
  t.strictSame(await store.keyUsage('dev', day), { spent: 70n, held: 0n })
})

void t.test('what waits when the gateway ends reaches Redis with the next one', async (t) => {
  const server = await redisServer(t)
  const [prefix, folder] = [newPrefix(), folderFor(t)]
  const log = newLog()
  const store = await funded(t, server, { prefix, folder, log })
  await store.hold(request('r1', 50n))
  await server.kill()
  await until(() => !store.health.isUp)
  await store.settle(settlement('r1', 30n))
  await store.close()
  t.match(log.about.at(-1), { pending: 1 })
  await server.restart()
  const nextLog = newLog()
  const next = await openRedis(t, server, { prefix, folder, log: nextLog })
  await isDone(next)
  t.strictSame(await next.balance('acme'), { balance: 970n, held: 0n, open_holds: 0 })
  await next.close()
  t.notMatch(nextLog.lines.join('\n'), 'wait in the outbox')
})

void t.test('a charge that is told again after Redis has forgotten what became of its request is found in the ledger', async (t) => {
  const server = await redisServer(t)
  const prefix = newPrefix()
  let later = 0
  const log = newLog()
  const store = await funded(t, server, { prefix, log, now: () => Date.now() + later })
  await store.hold(request('r1', 50n))
  await store.settle(settlement('r1', 30n))
  await isDone(store)
  t.equal(await server.ask('DEL', `{${prefix}:acme}:charge:r1`), '1', 'as after a day')
  later = CHARGE_MS
  // On the disk before it is killed, so that it comes back with all it knew.
  await server.ask('DEBUG', 'LOADAOF')
  await server.restart()
  await until(() => log.lines.some((line) => line.includes('was told to it again')))
  await isDone(store)
  t.equal((await store.balance('acme')).balance, 970n)
  t.equal((await all(store)).length, 2)
})

void t.test('a connection that breaks loses no decision, and doubles none', async (t) => {
  const server = await redisServer(t)
  const store = await funded(t, server)
  for (let round = 0; round < 5; round++) {
    const holds = Array.from({ length: 10 }, async (_, i) => await store.hold(request(`r${round}-${i}`, 10n)))
    await server.ask('CLIENT', 'KILL', 'TYPE', 'normal')
    t.ok((await Promise.all(holds)).every(({ kind }) => kind === 'held'))
  }
  t.strictSame(await store.balance('acme'), { balance: 1000n, held: 500n, open_holds: 50 })
})

void t.test('an answer that is lost with its connection: the decision that is asked again is the same one, and counts once', async (t) => {
  const server = await redisServer(t)
  const proxy = await slowProxy(t, server.port)
  const prefix = newPrefix()
  const of = (name: string): string => `{${prefix}:acme}:${name}`
  const store = await openRedis(t, { url: `redis://127.0.0.1:${proxy.port}` }, { prefix, config: { timeout: 10_000 } })
  await store.credit('acme', 'c', 1000n)

  /** Redis has decided, and its answer is on its way when the connection breaks. */
  async function lost <T> (asked: () => Promise<T>, isDecided: () => Promise<boolean>): Promise<T> {
    proxy.delay = 1000
    const answer = asked()
    answer.catch(() => {})
    await until(isDecided)
    proxy.delay = 0
    proxy.cut()
    return await answer
  }
  const held = async (): Promise<string> => await server.ask('HGET', of('account'), 'held')
  t.strictSame(await lost(async () => await store.hold(request('r1', 50n)), async () => await held() === '50'), {
    kind: 'held',
    nanos: 50n
  })
  t.strictSame(await lost(async () => await store.extend('r1', 30n), async () => await held() === '80'), { kind: 'held',
    nanos: 80n })
  t.strictSame(await store.balance('acme'), { balance: 1000n, held: 80n, open_holds: 1 })
  const admission = { request_id: 'r1', account: 'acme', windows: [{ name: 'k', limit: 5 }],
    slot: { name: 's', limit: 2 } }
  t.match(
    await lost(async () => await store.admit(admission),
      async () => await server.ask('EXISTS', of('window:k')) === '1'),
    { kind: 'admitted', windows: [{ remaining: 4 }] }
  )
  t.match(await store.admit({ ...admission, request_id: 'r2' }), { kind: 'admitted', windows: [{ remaining: 3 }] })
  await t.rejects(
    lost(async () => await store.credit('acme', 'c2', 7n),
      async () => await server.ask('HGET', of('account'), 'balance') === '1007'),
    { code: 'service_unavailable' }
  )
  await until(() => store.health.isUp)
  t.equal(await store.credit('acme', 'c2', 7n), false)
  t.equal((await store.balance('acme')).balance, 1007n)
})

void t.test('holds and slots of a dead gateway end with their leases; what had progress is charged that far', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const options = { prefix: newPrefix(), now: clock.now, timer: () => () => {} }
  const dead = await funded(t, server, options)
  const alive = await openRedis(t, server, options)
  await dead.hold(request('r1', 100n, { day: '2027-01-15' }))
  await dead.hold(request('r2', 100n, { day: '2027-01-15' }))
  await dead.hold(request('r3', 100n))
  const slot = { name: 's', limit: 1 }
  await dead.admit({ request_id: 'r1', account: 'acme', windows: [], slot })
  await clock.advance(3000)
  await dead.progress(settlement('r1', 60n))
  await dead.progress(settlement('r3', 60n))
  await dead.balance('acme')

  await clock.advance(LEASE_MS + 1)
  t.match(await alive.hold(request('a', 800n)), { kind: 'refused', by: 'balance', held_by_others: 300n },
    'nobody was heard of: Redis may have been away, and they get time to say so')
  t.match(await alive.admit({ request_id: 'a', account: 'acme', windows: [], slot }), { kind: 'refused', by: 'slot' })
  await clock.advance(GRACE_MS)
  t.match(await alive.hold(request('a', 800n)), { kind: 'held' })
  t.match(await alive.admit({ request_id: 'a', account: 'acme', windows: [], slot }), { kind: 'admitted' })
  t.strictSame(await alive.balance('acme'), { balance: 880n, held: 800n, open_holds: 1 })
  t.strictSame(await alive.keyUsage('dev', '2027-01-15'), { spent: 60n, held: 0n })

  // It was only silent, and its outbox has more to say: never twice, and never more than there is.
  t.equal(await dead.settle(settlement('r1', 90n)), 90n)
  t.equal(await dead.settle(settlement('r2', 70n)), 70n)
  t.equal(await dead.settle(settlement('r3', 40n)), 40n)
  await isDone(dead)
  t.equal((await alive.balance('acme')).balance, 1000n - 60n - 30n - 50n - 40n,
    'r2 was given back, and 50 were left of its 70')
  t.strictSame(
    (await all(alive)).slice(1).map(({ kind, reference, nanos, shortfall }) => [kind, reference, nanos, shortfall]),
    [
      ['settle', 'r1', -60n, undefined],
      ['settle', 'r3', -60n, undefined],
      ['adjust', 'r1 settle', -30n, undefined],
      ['settle', 'r2', -50n, undefined],
      ['shortfall', 'r2', 0n, 20n],
      ['adjust', 'r3 settle', 20n, undefined]
    ]
  )
  await dead.refund('r1')
  await isDone(dead)
  t.match((await all(alive)).at(-1), { kind: 'adjust', reference: 'r1 refund', nanos: 90n })
  t.strictSame((await alive.verify()).differences, [])
})

void t.test('who lives renews its leases, and keeps what it holds', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const options = { prefix: newPrefix(), now: clock.now }
  const store = await funded(t, server, { ...options, timer: clock.timer })
  const other = await openRedis(t, server, options)
  await store.hold(request('r1', 600n))
  await store.admit({ request_id: 'r1', account: 'acme', windows: [], slot: { name: 's', limit: 1 } })
  for (let i = 0; i < 12; i++) {
    await clock.advance(10_000)
    // What the timers began has gone to Redis before this.
    await store.balance('acme')
    t.match(await other.hold(request('r2', 500n)), { kind: 'refused', held_by_others: 600n })
    t.match(await other.admit({ request_id: 'r2', account: 'acme', windows: [], slot: { name: 's', limit: 1 } }), {
      kind: 'refused'
    })
  }
})

void t.test('tasks of a dead gateway are taken over by another, and charged once, to their day', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const options = { prefix: newPrefix(), now: clock.now }
  const dead = await funded(t, server, { ...options, timer: () => () => {} })
  const alive = await openRedis(t, server, { ...options, timer: clock.timer })
  const taken: string[] = []
  alive.watchTasks((id) => { taken.push(id) })
  await dead.hold(request('r-v1', 60n, { day: '2027-01-15' }))
  await dead.openTask(task('v1', 40n))
  t.strictSame(alive.openTasks(), [])
  t.match(await alive.task('v1'), { is_open: true, text: '{"of":"v1"}' })
  await clock.advance(LEASE_MS - 1)
  t.strictSame(taken, [])
  await clock.until(() => taken.length > 0)
  t.strictSame(alive.openTasks().map(({ id }) => id), ['v1'])
  const bill = { ...settlement('', 40n), usage_source: 'provider' as const }
  const told = await Promise.all([alive.endTask('v1', '{"done":1}', bill), dead.endTask('v1', '{"done":2}', bill)])
  t.strictSame(told.toSorted(), [40n, undefined], 'the first one counts')
  t.strictSame(await alive.balance('acme'), { balance: 960n, held: 0n, open_holds: 0 })
  t.strictSame(await alive.keyUsage('dev', '2027-01-15'), { spent: 40n, held: 0n })
  t.strictSame((await alive.verify()).differences, [])
})

void t.test('one name is served by one process at a time, and is free when that has ended or died', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const options = { prefix: newPrefix(), now: clock.now, timer: () => () => {} }
  const [one, other] = [await funded(t, server, options), await openRedis(t, server, options)] as const
  t.equal(await one.claimAnswer('acme', 'n', 'r1'), true)
  t.equal(await other.claimAnswer('acme', 'n', 'r2'), false)
  t.equal(await other.claimAnswer('beta', 'n', 'r2'), true, 'another account')
  await one.unclaimAnswer('r1')
  t.equal(await other.claimAnswer('acme', 'n', 'r2'), true)
  await clock.advance(LEASE_MS + 1)
  t.equal(await one.claimAnswer('acme', 'n', 'r3'), false, 'it may only have been silent')
  await clock.advance(GRACE_MS)
  t.equal(await one.claimAnswer('acme', 'n', 'r3'), true)
})

void t.test('limits go on as the operator wants while Redis is away', async (t) => {
  const server = await redisServer(t)
  const admission = { account: 'acme', windows: [{ name: 'k', limit: 3 }], slot: { name: 's', limit: 2 } }
  const local = await openRedis(t, server, {
    config: { timeout: 1000, on_outage: { auth: 'degrade', limits: 'degrade', money: 'deny', lease_usd: '1' } }
  })
  t.match(await local.admit({ request_id: 'a', ...admission }), { kind: 'admitted', windows: [{ remaining: 2 }] })
  await server.kill()
  await until(() => !local.health.isUp)
  t.match(await local.admit({ request_id: 'b', ...admission }), { kind: 'admitted', windows: [{ remaining: 1 }] },
    'what it has admitted before counts')
  t.match(await local.admit({ request_id: 'c', ...admission }), { kind: 'refused', by: 'slot' })
  await local.leave('a')
  t.match(await local.admit({ request_id: 'c', ...admission }), { kind: 'admitted', windows: [{ remaining: 0 }] })
  await local.leave('b')
  t.match(await local.admit({ request_id: 'd', ...admission }), { kind: 'refused', by: 'window' })
  t.notOk(local.health.refusesKeys)
})

void t.test('what was set aside is spent while Redis is away, no more than that, and charged when it is back', async (t) => {
  const server = await redisServer(t)
  const prefix = newPrefix()
  const money = { timeout: 1000,
    on_outage: { auth: 'degrade', limits: 'deny', money: 'degrade', lease_usd: '0.0000001' } } as const
  const store = await funded(t, server, { prefix, config: money,
    timer: (ms, callback) => startTimer(ms / 50, callback) })
  const held = async (nanos: bigint): Promise<void> => {
    await until(async () => (await store.balance('acme').catch(() => undefined))?.held === nanos)
  }
  await store.hold(request('first', 1n))
  await store.release('first')
  await held(100n)
  const other = await openRedis(t, server, { prefix })
  t.match(await other.hold(request('o', 10n, { low_balance: 2000n })), { kind: 'held' }, 'it is nobody\'s request')
  await other.release('o')
  t.equal(await other.openHolds(), 0)
  t.match(await other.hold(request('rest', 900n)), { kind: 'held' })

  await server.kill()
  await until(() => !store.health.isUp)
  t.strictSame(await store.hold(request('a', 60n)), { kind: 'held', nanos: 60n })
  t.strictSame(await store.hold(request('b', 60n, { least: 10n })), { kind: 'held', nanos: 40n })
  await t.rejects(store.hold(request('c', 1n)), AWAY, 'it is used up')
  t.equal(await store.settle(settlement('a', 50n)), 50n)
  await t.rejects(store.hold(request('limited', 1n, { usage_limit: 1000n })), AWAY,
    'what it has spent elsewhere is unknown')
  t.strictSame(await store.extend('b', 5n), { kind: 'held', nanos: 45n })
  await t.rejects(store.extend('b', 6n), AWAY)
  t.equal(await store.settle(settlement('b', 50n)), 45n)
  t.strictSame(await store.hold(request('d', 5n)), { kind: 'held', nanos: 5n })
  await store.release('d')

  await server.restart()
  await isDone(store)
  t.equal((await store.balance('acme')).balance, 905n, 'charged from it, though nothing else is free')
  await other.release('rest')
  t.match((await all(store)).slice(1).map(({ kind, reference, nanos }) => [kind, reference, nanos]).toSorted(), [[
    'settle',
    'a',
    -50n
  ], ['settle', 'b', -45n], ['shortfall', 'b', 0n]])
  await held(100n)
  t.match(await store.hold(request('e', 905n)), { kind: 'held' }, 'it is given back when it is needed')
  await store.release('e')
  await store.hold(request('f', 1n))
  await store.release('f')
  await held(100n)
  await store.close()
  t.strictSame(await other.balance('acme'), { balance: 905n, held: 0n, open_holds: 0 })
  t.strictSame((await other.verify()).differences, [])
})

void t.test('what others change is told at once, and a Redis that forgets by itself is refused', async (t) => {
  const server = await redisServer(t)
  const prefix = newPrefix()
  const [one, other] = [await openRedis(t, server, { prefix }), await openRedis(t, server, { prefix })] as const
  let changes = 0
  const end = other.watchRecords(() => { changes++ })
  await until(() => changes > 0)
  const seen = changes
  t.equal(await one.change({ record: { kind: 'key', id: 'k', version: 1, text: '{}' }, audit: '{"what":1}' }), true)
  t.equal(await one.change({ record: { kind: 'key', id: 'k', version: 1, text: '{}' }, audit: '{"what":2}' }), false,
    'somebody was faster')
  await until(() => changes > seen)
  t.strictSame(await other.records(), [{ kind: 'key', id: 'k', version: 1, text: '{}' }])
  t.strictSame(await other.changes(0, 10), [{ id: 1, text: '{"what":1}' }])
  end()

  const forgetful = await redisServer(t, { settings: { 'maxmemory': '50mb', 'maxmemory-policy': 'allkeys-lru' } })
  await t.rejects(openRedis(t, forgetful), /maxmemory-policy allkeys-lru.*Set maxmemory-policy noeviction/)
  const empty = await redisServer(t)
  await empty.kill()
  await t.rejects(openRedis(t, empty), /Redis at 127\.0\.0\.1:\d+ can't be used/)
})

void t.test('how far the slowest replica is behind is told, and that it is not any more', async (t) => {
  const server = await redisServer(t)
  const settings = { replicaof: `127.0.0.1 ${server.port}` }
  const [slow] = await Promise.all([redisServer(t, { settings }), redisServer(t, { settings })])
  const store = await openRedis(t, server, { timer: (ms, callback) => startTimer(ms / 20, callback) })
  await until(async () => (await server.ask('INFO', 'replication')).match(/state=online/g)?.length === 2)
  slow.pause()
  await until(() => store.health.lagSeconds! > 2)
  slow.resume()
  await until(() => store.health.lagSeconds! <= 1)
  t.ok(store.health.isUp)
})

void t.test('a failover takes no charge with it', async (t) => {
  const { name, sentinels, master } = await redisSentinel(t)
  const store = await openRedis(t, { sentinels: sentinels.map(({ url }) => url), sentinel_name: name }, {
    config: { timeout: 1000 }
  })
  // They tell it of another master, and it leaves one that still answers.
  await until(async () => (await Promise.all(sentinels.map(async (one) => await one.ask('CLIENT', 'LIST'))))
    .every((clients) => / sub=1 /.test(clients)))
  await store.credit('acme', 'c', 1000n)
  for (let i = 0; i < 10; i++) await store.hold(request(`r${i}`, 50n))
  for (let i = 0; i < 5; i++) await store.settle(settlement(`r${i}`, 10n))
  const first = await master()
  await first.kill()
  for (let i = 5; i < 10; i++) t.equal(await store.settle(settlement(`r${i}`, 10n)), 10n)
  await isDone(store)
  await until(async () => (await store.balance('acme').catch(() => undefined))?.balance === 900n)
  t.equal((await all(store)).filter(({ kind }) => kind === 'settle').length, 10)
  // A connection to the old master may still be found dead by the command that takes it.
  t.match(await until(async () => await store.hold(request('after', 1n)).catch(() => undefined)), { kind: 'held' })
  t.strictSame((await until(async () => await store.verify().catch(() => undefined))).differences, [])
})
