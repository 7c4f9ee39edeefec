// The Redis driver, where somebody hears of something late: Redis of what ended while it was away, a new master of what
// its predecessor knew, a gateway of what became of its holds meanwhile. Nobody pays twice, nothing stays held, and no
// balance goes below zero.
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { Delivery, type Message } from '../../src/store/redis/outbox-delivery.ts'
import { AwayError } from '../../src/store/redis/connection.ts'
import { ASIDE_MS, GRACE_MS, LEASE_MS, SILENCE_MS } from '../../src/store/redis/lua/account.ts'
import { Outbox } from '../../src/store/redis/outbox.ts'
import type { RedisStore } from '../../src/store/redis/store.ts'
import { startTimer, type Timer } from '../../src/base/timer.ts'
import { startClock } from '../support/clock.ts'
import { newLog, request, settlement } from '../support/embedded-store.ts'
import { newPrefix, openRedis } from '../support/redis-store.ts'
import { redisServer, type RedisServer } from '../support/redis-server.ts'
import { folderFor } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { bill, task } from '../support/store-tasks-conformance.ts'
import { until } from '../support/until.ts'

const noTimer: Timer = () => () => {}

/** What Redis knows of acme now; a call of what it gives has Redis know that and no more, as after a failover. */
async function snapshot (t: Test, server: RedisServer, prefix: string): Promise<() => Promise<void>> {
  const client = new Redis(server.url)
  t.teardown(() => { client.disconnect() })
  const pattern = `{${prefix}:acme}:*`
  const known = await Promise.all(
    (await client.keys(pattern)).map(async (key) => ({ key, bytes: await client.dumpBuffer(key) }))
  )
  return async () => {
    await client.del(await client.keys(pattern))
    for (const { key, bytes } of known) await client.restore(key, 0, bytes!)
  }
}

/** As the entries of a ledger, without the first, which is a credit. */
async function booked (store: Parameters<typeof all>[0]): Promise<unknown[]> {
  return (await all(store)).slice(1).map(({ kind, reference, nanos, shortfall }) => [kind, reference, nanos, shortfall])
}

void t.test('the holds of a dead gateway end though its accounts are quiet, and so many that each is looked at only now and then', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const prefix = newPrefix()
  const dead = await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })
  await dead.credit('acme', 'c', 1000n)
  await dead.hold(request('r1', 600n))
  await dead.hold(request('r2', 300n))
  await clock.advance(3000)
  await dead.progress(settlement('r2', 20n))
  await server.ask('SADD', `${prefix}:accounts`, ...Array.from({ length: 1500 }, (_, i) => `other${i}`))

  let look = (): void => {}
  const alive = await openRedis(t, server, { prefix, now: clock.now, timer (ms, callback) {
    if (ms > 10_000) look = callback                          // else it renews its own
    return () => {}
  } })
  const scripts = async (): Promise<number> =>
    Number(/^cmdstat_evalsha:calls=(\d+)/m.exec(await server.ask('INFO', 'commandstats'))?.[1])
  let most = 0
  const lookOnce = async (): Promise<void> => {
    const [before, asked] = [look, await scripts()]
    await clock.advance(GRACE_MS + 500)
    before()
    await until(() => look !== before)
    most = Math.max(most, await scripts() - asked)
  }
  let rounds = 0
  for (; rounds < 20 && await alive.openHolds() > 0; rounds++) await lookOnce()
  for (let i = 0; i < 6; i++) await lookOnce()                // at each again, after a silence
  t.ok(most < 750, `${most} accounts in a round: those of 500 that have no leases are not looked at again in the next`)
  t.ok(rounds * GRACE_MS > SILENCE_MS, 'it was not looked at in each round')
  t.strictSame(await alive.balance('acme'), { balance: 980n, held: 0n, open_holds: 0 })
  t.strictSame(await booked(alive), [['settle', 'r2', -20n, undefined]])
})

void t.test('what ended while Redis was away is free as soon as it is back', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  // No lease ends in this test.
  const store = await openRedis(t, server, { now: clock.now, config: { timeout: 1000 } })
  await store.credit('acme', 'c', 1000n)
  const admission = { account: 'acme', windows: [], slot: { name: 's', limit: 1 } }
  t.match(await store.admit({ request_id: 'r1', ...admission }), { kind: 'admitted' })
  await store.hold(request('r1', 500n))
  server.pause()
  await Promise.all([
    t.rejects(store.hold(request('r2', 400n)), { code: 'auth_unavailable' }, 'Redis may do it afterwards'),
    t.rejects(store.admit({ request_id: 'r2', ...admission, slot: { name: 'other', limit: 1 } }), {
      code: 'auth_unavailable'
    })
  ])
  await t.rejects(store.hold(request('r3', 1n)), { code: 'auth_unavailable' }, 'at once: Redis never hears of it')
  for (const id of ['r1', 'r2', 'r3']) {
    await store.release(id)
    await store.leave(id)
  }
  server.resume()
  await until(() => store.health.isUp)
  t.strictSame(await store.balance('acme'), { balance: 1000n, held: 0n, open_holds: 0 })
  t.match(await store.admit({ request_id: 'r4', ...admission }), { kind: 'admitted' })
  t.match(await store.admit({ request_id: 'r5', ...admission, slot: { name: 'other', limit: 1 } }), {
    kind: 'admitted'
  })
  t.match(await store.hold(request('r4', 1000n)), { kind: 'held' })
})

void t.test('what is free in the end is free, though Redis had taken its gateway for dead and charged how far it had come', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const options = { prefix: newPrefix(), now: clock.now, timer: noTimer }
  const silent = await openRedis(t, server, options)
  const other = await openRedis(t, server, options)
  await silent.credit('acme', 'c', 1000n)
  await silent.hold(request('r1', 50n, { day: '2027-01-15' }))
  await clock.advance(3000)
  await silent.progress(settlement('r1', 20n))
  for (const ms of [LEASE_MS + 1, GRACE_MS]) {
    await clock.advance(ms)
    await other.hold(request(`at ${ms}`, 1n))
  }
  t.equal((await other.balance('acme')).balance, 980n)
  await silent.release('r1')
  await until(() => silent.health.pending === 0)
  t.strictSame(await booked(other), [['settle', 'r1', -20n, undefined], ['adjust', 'r1', 20n, undefined]])
  t.match(await other.keyUsage('dev', '2027-01-15'), { spent: 0n })
  t.strictSame((await other.verify()).differences, [])
})

void t.test('a failover that forgets how far a hold was extended: all is charged that there is money for, and no more', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const options = { prefix: newPrefix(), now: clock.now, timer: noTimer }
  const store = await openRedis(t, server, options)
  await store.credit('acme', 'c', 1000n)
  await store.hold(request('r1', 50n))
  const forget = await snapshot(t, server, options.prefix)
  await store.extend('r1', 400n)
  await forget()
  t.equal(await store.settle(settlement('r1', 450n)), 450n)
  await until(() => store.health.pending === 0)
  t.strictSame(await store.balance('acme'), { balance: 550n, held: 0n, open_holds: 0 })

  await store.hold(request('r2', 50n))
  const forgetAgain = await snapshot(t, server, options.prefix)
  await store.extend('r2', 450n)
  await forgetAgain()
  await store.hold(request('r3', 480n))
  await store.settle(settlement('r3', 480n))
  await clock.advance(3000)
  await store.progress(settlement('r2', 490n))
  await store.close()
  const other = await openRedis(t, server, options)
  for (const ms of [LEASE_MS + 1, GRACE_MS]) {
    await clock.advance(ms)
    await other.hold(request(`at ${ms}`, 100n))
  }
  t.strictSame(await other.balance('acme'), { balance: 0n, held: 0n, open_holds: 0 })
  t.strictSame(await booked(other), [['settle', 'r1', -450n, undefined], ['settle', 'r3', -480n, undefined], ['settle',
    'r2', -70n, undefined], ['shortfall', 'r2', 0n, 420n]])
  t.strictSame((await other.verify()).differences, [])
})

void t.test('a task that was taken over, whose end a failover forgot, is charged again to its day', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const [prefix, log] = [newPrefix(), newLog()]
  const dead = await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })
  await dead.credit('acme', 'c', 1000n)
  await dead.hold(request('r-v1', 60n, { day: '2027-01-15' }))
  await dead.openTask(task('v1', 40n))
  await clock.advance(LEASE_MS + 1)
  const alive = await openRedis(t, server, { prefix, now: clock.now, log })
  const forget = await snapshot(t, server, prefix)
  t.equal(await alive.endTask('v1', '{}', bill(30n)), 30n)
  await forget()
  // On the disk before it is killed; another replication id has it told again.
  await server.ask('DEBUG', 'LOADAOF')
  await server.restart()
  await until(() => log.lines.some((line) => line.includes('was told to it again')))
  await until(() => alive.health.isUp)
  t.strictSame(await alive.keyUsage('dev', '2027-01-15'), { spent: 30n, held: 0n })
  t.strictSame(await alive.balance('acme'), { balance: 970n, held: 0n, open_holds: 0 })
})

void t.test('as much is set aside as is asked for where four times as much is free, or nothing', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const prefix = newPrefix()
  const opens = async (): Promise<RedisStore> => await openRedis(t, server, { prefix, now: clock.now,
    config: { on_outage: { auth: 'degrade', limits: 'deny', money: 'degrade', lease_usd: '0.0000001' } },
    timer: (ms, callback) => startTimer(ms / 50, callback) })
  const store = await opens()
  const heldOf = async (account: string): Promise<bigint> => (await store.balance(account)).held
  for (const [account, nanos] of [['poor', 399n], ['rich', 400n]] as const) {
    await store.credit(account, account, nanos)
    await store.hold(request(account, 1n, { account }))
    await store.release(account)
  }
  await until(async () => await heldOf('rich') === 100n)
  t.equal(await heldOf('poor'), 0n, 'which was asked before')
  await store.credit('poor', 'more', 1n)
  await until(async () => await heldOf('poor') === 100n)
  await store.credit('rich', 'much', 600n)
  const other = await opens()
  await other.hold(request('other', 300n, { account: 'rich' }))
  await until(async () => await heldOf('rich') === 500n)
  await other.release('other')
  t.equal(await heldOf('rich'), 200n, 'each process for itself')
  await store.close()
  t.equal(await other.balance('rich').then(({ held }) => held), 100n)
  await other.close()
  t.equal(await server.ask('EXISTS', ...['poor', 'rich'].map((account) => `{${prefix}:${account}}:holds`)), '0')
})

void t.test('what was set aside is spent by nobody after five minutes, not by a stream that wants more either', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const money = { timeout: 1000,
    on_outage: { auth: 'degrade', limits: 'deny', money: 'degrade', lease_usd: '0.0000001' } } as const
  const store = await openRedis(t, server, { now: clock.now, config: money,
    timer: (ms, callback) => startTimer(ms / 50, callback) })
  await store.credit('acme', 'c', 1000n)
  await store.hold(request('first', 1n))
  await store.release('first')
  await until(async () => (await store.balance('acme').catch(() => undefined))?.held === 100n)
  await server.kill()
  await until(() => !store.health.isUp)
  t.match(await store.hold(request('r1', 10n)), { kind: 'held' })
  t.match(await store.extend('r1', 10n), { kind: 'held', nanos: 20n })
  await clock.advance(ASIDE_MS)
  await t.rejects(store.extend('r1', 10n), { code: 'auth_unavailable' })
  await t.rejects(store.hold(request('r2', 10n)), { code: 'auth_unavailable' })
  t.equal(await store.settle(settlement('r1', 30n)), 20n)
})

void t.test('what a gateway that died had set aside is free after five minutes, and not before', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const prefix = newPrefix()
  let isDead = false
  const store = await openRedis(t, server, { prefix, now: clock.now,
    config: { on_outage: { auth: 'degrade', limits: 'deny', money: 'degrade', lease_usd: '0.0000001' } },
    timer: (ms, callback) => startTimer(ms / 50, () => { if (!isDead) callback() }) })
  await store.credit('acme', 'c', 1000n)
  await store.hold(request('first', 1n))
  await store.release('first')
  await until(async () => (await store.balance('acme')).held === 100n)
  isDead = true
  const other = await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })
  const heldAfter = async (ms: number): Promise<bigint> => {
    await clock.advance(ms)
    await other.hold(request(`x${ms}`, 1n))
    await other.release(`x${ms}`)
    return (await other.balance('acme')).held
  }
  t.equal(await heldAfter(ASIDE_MS - GRACE_MS - 1000), 100n)
  t.equal(await heldAfter(GRACE_MS + 999), 100n)
  t.equal(await heldAfter(1), 0n)
})

void t.test('a charge that comes late and finds too little takes what is there, and the rest is a shortfall', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const options = { prefix: newPrefix(), now: clock.now, timer: noTimer }
  const [late, other] = await Promise.all([openRedis(t, server, options), openRedis(t, server, options)])
  await late.credit('acme', 'c', 100n)
  await late.hold(request('late', 95n))
  await clock.advance(3000)
  await late.progress(settlement('late', 60n))
  await server.ask('ZADD', `{${options.prefix}:acme}:leases`, '1', 'late')
  t.match(await other.hold(request('other', 30n)), { kind: 'held' }, 'the late one was charged as far as it had come')
  await other.settle(settlement('other', 30n))
  await until(async () => (await other.balance('acme')).balance === 10n)
  await late.settle(settlement('late', 97n))
  await until(() => late.health.pending === 0)
  t.strictSame(await booked(other), [['settle', 'late', -60n, undefined], ['settle', 'other', -30n, undefined],
    ['adjust', 'late settle', -10n, undefined], ['shortfall', 'late settle', 0n, 27n]])
  t.strictSame(await other.balance('acme'), { balance: 0n, held: 0n, open_holds: 0 })
})

void t.test('a gateway that dies before it has noted that Redis heard it: all of that is delivered twice, and counts once', async (t) => {
  const server = await redisServer(t)
  const clock = startClock()
  const options = { prefix: newPrefix(), now: clock.now, timer: noTimer }
  const silent = await openRedis(t, server, options)
  const [folder, copy] = [folderFor(t), folderFor(t)]
  const dead = await openRedis(t, server, { ...options, timer: clock.timer, folder, config: { timeout: 1000 } })
  await dead.credit('acme', 'c', 10_000n)
  const day = '2027-01-15'
  for (const id of ['late', 'late and back']) await dead.hold(request(id, 100n, { day }))
  await clock.advance(3000)
  for (const id of ['late', 'late and back']) await dead.progress(settlement(id, 60n))
  // It was silent for so long that somebody charged it as far as it had come.
  await server.ask('ZADD', `{${options.prefix}:acme}:leases`, '1', 'late', '1', 'late and back')
  t.match(await silent.hold(request('x', 1n)), { kind: 'held' })
  await silent.release('x')
  for (const id of ['whole', 'short', 'back', 'never', 'begun']) await dead.hold(request(id, 100n, { day }))
  await clock.advance(3000)
  await dead.progress(settlement('begun', 60n))
  t.equal((await all(dead)).length, 3, 'two were charged by another')

  await server.kill()
  await until(() => !dead.health.isUp)
  await dead.settle(settlement('late', 90n))
  await dead.settle(settlement('late and back', 90n))
  await dead.refund('late and back')
  await dead.settle(settlement('whole', 70n))
  await dead.settle(settlement('short', 130n))
  await dead.settle(settlement('back', 80n))
  await dead.refund('back')
  await dead.release('never')
  await dead.release('begun')
  t.equal(dead.health.pending, 8)
  cpSync(join(folder, 'outbox'), join(copy, 'outbox'), { recursive: true })
  await server.restart()
  await clock.until(() => dead.health.isUp && dead.health.pending === 0)
  const [once, spent, balance] = [await booked(dead), await dead.keyUsage('dev', day), await dead.balance('acme')]
  t.strictSame(once.toSorted(), [
    ['adjust', 'back', 80n, undefined],
    ['adjust', 'late and back refund', 90n, undefined],
    ['adjust', 'late and back settle', -30n, undefined],
    ['adjust', 'late settle', -30n, undefined],
    ['settle', 'back', -80n, undefined],
    ['settle', 'late and back', -60n, undefined],
    ['settle', 'late', -60n, undefined],
    ['settle', 'short', -100n, undefined],
    ['settle', 'whole', -70n, undefined],
    ['shortfall', 'short', 0n, 30n]
  ].toSorted())
  t.strictSame(balance, { balance: 10_000n - 90n - 70n - 100n, held: 0n, open_holds: 0 })

  const next = await openRedis(t, server, { ...options, folder: copy })
  await until(() => next.health.isUp && next.health.pending === 0)
  t.strictSame(await booked(next), once)
  t.strictSame(await next.keyUsage('dev', day), spent)
  t.strictSame(await next.balance('acme'), balance)
  t.strictSame((await next.verify()).differences, [])
})

/** A delivery whose Redis answers when the test wants; and what it was asked, in that order. */
async function delivering (
  t: Test
): Promise<
  { readonly delivery: Delivery, readonly asked: string[], readonly answers: ((thrown?: Error) => void)[],
    readonly keep: (from: number, to: number) => Promise<void>, readonly advance: (ms: number) => void }
> {
  let now = Date.now()
  const outbox = await Outbox.open(folderFor(t), newLog() as never, { now: () => now })
  t.teardown(async () => { await outbox.close() })
  const asked: string[] = []
  const answers: ((thrown?: Error) => void)[] = []
  const delivery = new Delivery(outbox, async (message) => {
    asked.push('reference' in message ? message.reference : message.id)
    await new Promise<void>((resolve, reject) => {
      answers.push((thrown) => {
        if (thrown === undefined) resolve()
        else reject(thrown)
      })
    })
  }, newLog())
  return {
    delivery,
    asked,
    answers,
    advance (ms) {
      now += ms
    },
    async keep (from, to) {
      for (let i = from; i < to; i++) {
        await delivery.keep(
          { of: 'refund', account: 'acme', id: `r${i}`, key: '', day: '', what: '' } satisfies Message
        )
      }
    }
  }
}

void t.test('a Redis that may have forgotten the last seconds hears of them first, and of the rest while it serves', async (t) => {
  const { delivery, asked, answers, keep, advance } = await delivering(t)
  await delivery.keep({ of: 'credit', account: 'acme', reference: 'c', nanos: '1' })
  await keep(0, 25)
  advance(60_000)
  await keep(25, 26)
  advance(10_000)
  await keep(26, 28)
  let isWhole = false
  const onWhole = (): void => { isWhole = true }
  const answer = async (count: number): Promise<void> => {
    await until(() => answers.length >= count)
    for (const done of answers.splice(0, count)) done()
  }

  const first = delivery.tell('new', onWhole)
  const second = delivery.tell('new', onWhole)
  await answer(1)
  t.strictSame(asked, ['c'], 'what they are paid with')
  await answer(3)
  t.ok(await first, 'it serves now')
  t.ok(await second, 'it was told once')
  t.strictSame(asked.slice(1), ['r25', 'r26', 'r27'])

  await until(() => answers.length === 10)
  t.equal(isWhole, false)
  t.strictSame(asked.slice(4), Array.from({ length: 10 }, (_, i) => `r${i}`))
  // Away in the middle of them: it goes on where it ended.
  for (const [i, done] of answers.splice(0).entries()) done(i < 7 ? undefined : new AwayError('away'))
  await delivery.idle()
  asked.length = 0
  const again = delivery.tell('new', onWhole)
  await until(async () => {
    for (const done of answers.splice(0)) done()
    return isWhole
  })
  t.ok(await again)
  t.strictSame(asked.filter((id) => /^r([0-6])$/.test(id)), [], 'what it has heard it does not hear again')
  t.strictSame(asked.filter((id) => /^r(?:[7-9]|1\d|2[0-4])$/.test(id)),
    Array.from({ length: 18 }, (_, i) => `r${i + 7}`))
})

void t.test('what a Redis has refused is not asked of it again for half a minute, and of another one at once', async (t) => {
  const { delivery, asked, answers } = await delivering(t)
  await delivery.post({ of: 'refund', account: 'acme', id: 'r1', key: '', day: '', what: '' })
  await until(() => answers.length === 1)
  answers.shift()!(new Error('ERR what is that'))
  await delivery.idle()
  t.ok(await delivery.drain())
  t.strictSame(asked, ['r1'])
  let isTold = false
  const told = delivery.tell('new', () => {}).finally(() => { isTold = true })
  await until(() => isTold || answers.length === 1)
  answers.shift()?.()
  t.ok(await told)
  t.strictSame([asked, delivery.size], [['r1', 'r1'], 0])
})
