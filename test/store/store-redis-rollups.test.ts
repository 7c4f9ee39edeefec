// Rollups in Redis: part of the charge, whoever makes it, how often it is delivered and whatever Redis forgets; entries
// of an earlier version get their share; and pages of the newest entries, which cost the same wherever they are.
import { randomUUID } from 'node:crypto'
import { cpSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { Redis } from 'ioredis'
import t from 'tap'
import { createRequestId } from '../../src/base/request-id.ts'
import { startTimer, type Timer } from '../../src/base/timer.ts'
import { noUsage } from '../../src/money/usage.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import { fillRedis } from '../../src/store/redis/import.ts'
import { GRACE_MS, LEASE_MS } from '../../src/store/redis/lua/account.ts'
import { rollups } from '../../src/store/redis/lua/rollups.ts'
import type { RedisStore } from '../../src/store/redis/store.ts'
import type { RollupQuery } from '../../src/store/rollups.ts'
import { rowsOf } from '../../src/store/transfer.ts'
import { startClock } from '../support/clock.ts'
import { newLog, request, settlement } from '../support/embedded-store.ts'
import { newPrefix, openRedis, redisConfig } from '../support/redis-store.ts'
import { redisServer } from '../support/redis-server.ts'
import { folderFor } from '../support/spawned.ts'
import { MADE, PREFIX, putRedis } from '../support/store-kept.ts'
import { auditNewest, auditRollups, pagesOf, rollupsConformance } from '../support/store-rollups-conformance.ts'
import { task } from '../support/store-tasks-conformance.ts'
import { until } from '../support/until.ts'

const noTimer: Timer = () => () => {}
const fast: Timer = (ms, call) => startTimer(ms / 50, call)
const server = await redisServer(t)
const client = new Redis(server.url)
t.teardown(() => { client.disconnect() })

const DAY = 86_400_000
const EVERYTHING: Omit<RollupQuery, 'by'> = { from: 0, to: 8.64e15, groups: ['account', 'key', 'model', 'channel'],
  only: {} }

/** @throws {Error} rollups are not the sums of the entries, or the newest entries not the last of them */
async function check (store: RedisStore): Promise<void> {
  await store.credit('acme', randomUUID(), 1n)                // at this time: hours are kept for 7 days before it
  const { differences } = await store.verify()
  if (differences.length > 0) {
    throw new Error(
      differences.map(({ id, sum, entries, kept }) => `${id} ${sum}: ${entries} in entries, ${kept} kept`).join('\n')
    )
  }
  await auditRollups(store, [])
  await auditNewest(store)
}

/** What is known of acme, by key. */
async function snapshot (prefix: string): Promise<() => Promise<void>> {
  const pattern = `{${prefix}:acme}:*`
  const known = await Promise.all(
    (await client.keys(pattern)).map(async (key) => [key, await client.dumpBuffer(key)] as const)
  )
  return async () => {
    await client.del(await client.keys(pattern))
    for (const [key, bytes] of known) await client.restore(key, 0, bytes)
  }
}

void t.test('as every driver', async (t) => {
  rollupsConformance(t, async (now) => await openRedis(t, server, { now, timer: fast }))
})

void t.test('amounts are exact to the last nano-dollar, whatever they add up to', async (t) => {
  const store = await openRedis(t, server)
  const much = 2n ** 62n - 1n
  await store.credit('acme', 'c', 2n ** 63n - 1n)
  for (const [id, held, cost] of [['r1', much, much], ['r2', much, much], ['r3', 1n, 2n]] as const) {
    await store.hold(request(id, held))
    await store.settle(settlement(id, cost))
  }
  t.match(await store.rollups({ ...EVERYTHING, by: 'day' }), [{ nanos: 2n * much + 1n, shortfall: 1n }])
})

/** Names with what separates others, and what is more than a byte. */
const NAMES = ['a', 'a b', 'a:b', '["a"]', 'a","b', 'é"\\', '/', '12n', 'n', '\u2028', '🂡'] as const

void t.test('whatever accounts, keys and models are called, rollups are the sums of the entries', async (t) => {
  const name = fc.constantFrom(...NAMES)
  const step = fc.record({
    wait: fc.oneof(fc.constant(0), fc.nat(DAY / 12), fc.constantFrom(DAY / 24, DAY, 2 * DAY)),
    account: fc.constantFrom('acme', 'é:"', '🂡'),
    key: name,
    model: name,
    channel: fc.constantFrom('premium', 'cheap', undefined),
    cost: fc.bigInt(0n, 90n),
    used: fc.nat(1e9),
    end: fc.constantFrom('settle', 'refund', 'release', 'task', 'book')
  })
  await t.resolves(fc.assert(fc.asyncProperty(
    fc.array(step, { minLength: 1, maxLength: 30, size: 'max' }), async (steps) => {
      const clock = startClock()
      const store = await openRedis(t, server, { now: clock.now, timer: noTimer })
      for (const account of ['acme', 'é:"', '🂡']) await store.credit(account, `c ${account}`, 400n)
      for (const [i, { wait, account, key, model, channel, cost, used, end }] of steps.entries()) {
        await clock.advance(wait)
        const id = `r${i}`
        if (steps[i - 1]?.end === 'refund') await store.refund(`r${i - 1}`)
        if (end === 'book') {
          await store.book({ kind: used % 2 === 0 ? 'debit' : 'refund', account, reference: id, nanos: cost })
          continue
        }
        if ((await store.hold(request(id, 30n, { account, key }))).kind !== 'held') continue
        const { channel: _, request_id: _id, ...costs } = settlement(id, cost, { model, usage: { input: used,
          cache_read: used % 7, cache_write_5m: used % 5, cache_write_1h: used % 3, output: used % 2,
          extras: { web_search: used % 4, image: used % 3 } } })
        const whole = { ...costs, ...(channel !== undefined && { channel }) }
        if (end === 'release') { await store.release(id); continue }
        if (end === 'task') {
          await store.openTask(task(`t${i}`, 30n, { request_id: id, account, key }))
          await store.endTask(`t${i}`, '{}', used % 3 === 0 ? undefined : whole)
          continue
        }
        await store.settle({ ...whole, request_id: id })
        await store.settle({ ...whole, request_id: id, nanos: cost + 1n })
      }
      await check(store)
      await store.close()
    }), { numRuns: 20 }))
})

void t.test('who charges late, dies, delivers twice or forgets: rollups are the sums of the entries', async (t) => {
  type Step =
    | { readonly kind: 'begin', readonly who: number, readonly held: bigint, readonly streams: boolean }
    | { readonly kind: 'end', readonly which: number, readonly how: 'settle' | 'release' | 'task',
      readonly cost: bigint }
    | { readonly kind: 'refund', readonly which: number }
    | { readonly kind: 'kill', readonly who: number }
    | { readonly kind: 'silence' | 'remember' | 'forget' | 'verify' }
    | { readonly kind: 'wait', readonly ms: number }
  const which = fc.nat(30)
  const steps: fc.Arbitrary<Step> = fc.oneof(
    { weight: 6, arbitrary: fc.record({ kind: fc.constant('begin' as const), who: fc.nat(1), held: fc.bigInt(1n, 90n),
      streams: fc.boolean() }) },
    { weight: 6, arbitrary: fc.record({ kind: fc.constant('end' as const), which,
      how: fc.constantFrom('settle' as const, 'settle' as const, 'release' as const, 'task' as const),
      cost: fc.bigInt(0n, 120n) }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('refund' as const), which }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('kill' as const), who: fc.nat(1) }) },
    { weight: 2, arbitrary: fc.record({
      kind: fc.constantFrom('silence' as const, 'remember' as const, 'forget' as const, 'verify' as const)
    }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('wait' as const), ms: fc.nat(DAY) }) }
  )
  await t.resolves(fc.assert(fc.asyncProperty(fc.array(steps, { minLength: 10, maxLength: 40, size: 'max' }),
    async (steps) => {
      const prefix = newPrefix()
      const clock = startClock()
      const opened: RedisStore[] = []
      const folders = [folderFor(t), folderFor(t)]
      const start = async (who: number): Promise<RedisStore> => {
        const store = await openRedis(t, server, { prefix, now: clock.now, timer: noTimer, folder: folders[who]! })
        opened.push(store)
        await until(() => store.health.pending === 0)
        return store
      }
      const stores = [await start(0), await start(1)]
      /** Its next process knows what was written down by then, and what else it would have said is said as well. */
      const kill = async (who: number, isOther: boolean): Promise<void> => {
        const folder = folderFor(t)
        cpSync(join(folders[who]!, 'outbox'), join(folder, 'outbox'), { recursive: true })
        if (isOther) rmSync(join(folder, 'outbox', 'redis-ids.json'), { force: true })
        folders[who] = folder
        stores[who] = await start(who)
      }
      await stores[0]!.credit('acme', 'c', 2000n)
      let forget = await snapshot(prefix)
      const open: { readonly id: string, readonly store: RedisStore }[] = []
      const ended: typeof open = []
      const used = { ...noUsage, input: 3, output: 5 }
      for (const [i, step] of steps.entries()) {
        switch (step.kind) {
          case 'begin': {
            const [id, store] = [`r${i}`, stores[step.who]!]
            if ((await store.hold(request(id, step.held, { day: '2027-01-15' }))).kind !== 'held') break
            open.push({ id, store })
            if (!step.streams) break
            await clock.advance(3000)
            await store.progress(settlement(id, step.held / 2n, { usage: { ...used, output: 1 } }))
            break
          }
          case 'end': {
            const [one] = open.splice(step.which % (open.length || 1), 1)
            if (one === undefined) break
            const { id, store } = one
            const { request_id: _, ...costs } = settlement(id, step.cost, { usage: used })
            if (step.how === 'release') { await store.release(id); break }
            if (step.how === 'settle') await store.settle({ ...costs, request_id: id })
            else {
              // Redis may have given its hold back.
              await store.openTask(task(`t${id}`, 1n, { request_id: id })).catch(() => {})
              await store.endTask(`t${id}`, '{}', costs)
            }
            ended.push(one)
            break
          }
          case 'refund': {
            const one = ended[step.which % (ended.length || 1)]
            if (one !== undefined) await one.store.refund(one.id)
            break
          }
          case 'kill':
            open.splice(0, Infinity, ...open.filter(({ store }) => store !== stores[step.who]))
            await kill(step.who, false)
            break
          case 'silence':
            for (const ms of [LEASE_MS + 1, GRACE_MS]) {
              await clock.advance(ms)
              await stores[0]!.hold(request(`swept ${i} ${ms}`, 0n))
              await stores[0]!.release(`swept ${i} ${ms}`)
            }
            break
          case 'remember':
            for (const store of opened) await until(() => store.health.pending === 0)
            forget = await snapshot(prefix)
            break
          case 'forget':
            for (const store of opened) await until(() => store.health.pending === 0)
            await forget()
            open.length = 0
            for (const who of [0, 1]) await kill(who, true)
            break
          case 'verify':
            t.strictSame((await stores[0]!.verify()).differences, [])
            break
          case 'wait':
            await clock.advance(step.ms)
        }
      }
      for (const store of opened) await until(() => store.health.pending === 0)
      await check(stores[0]!)
      for (const store of opened) await store.close()
    }), { numRuns: 25 }))
})

void t.test('a charge that comes late, when another process has made it as far as it was known', async (t) => {
  const [prefix, clock] = [newPrefix(), startClock()]
  const [late, other] = await Promise.all([1, 2].map(async () =>
    await openRedis(t, server, { prefix, now: clock.now, timer: noTimer }))) as [RedisStore, RedisStore]
  await late.credit('acme', 'c', 1000n)
  for (const id of ['r1', 'r2', 'r3']) await late.hold(request(id, 95n))
  await clock.advance(3000)
  for (const id of ['r1', 'r2', 'r3']) {
    await late.progress(settlement(id, 60n, { usage: { ...noUsage, output: 5 } }))
  }
  await client.zadd(`{${prefix}:acme}:leases`, 1, 'r1', 1, 'r2', 1, 'r3')
  await other.hold(request('other', 30n))
  await clock.advance(DAY)
  for (const id of ['r1', 'r2']) await late.settle(settlement(id, 97n, { usage: { ...noUsage, output: 9 } }))
  await late.refund('r2')
  await late.release('r3')
  await until(() => late.health.pending === 0)
  const told = await other.rollups({ ...EVERYTHING, by: 'day', groups: ['key'] })
  t.strictSame(told.map(({ requests, nanos, shortfall, usage }) => [requests, nanos, shortfall, usage.output]), [
    [3, 180n, 0n, 15], [0, 2n * 35n - 95n - 60n, 4n, 0]
  ])
  await check(other)
})

/** Charges acme as the script of a gateway did before there were rollups. */
async function chargeAsBefore (prefix: string, reference: string, nanos: bigint, at: number): Promise<void> {
  const what = { model: 'm', channel: 'premium', usage: { ...noUsage, output: 2 }, usage_source: 'provider' }
  await client.sadd(`${prefix}:accounts_of:dev`, 'acme')
  await client.eval(`
    local account, base = KEYS[1], string.sub(KEYS[1], 1, -8)
    local time = redis.call('TIME')
    local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
    local at = math.max(micros, tonumber(redis.call('HGET', account, 'entry_time') or '0'))
    redis.call('HSET', account, 'entry_time', string.format('%.0f', at))
    local id = string.format('%.0f-%.0f', at, redis.call('HINCRBY', account, 'entries', 1))
    redis.call('XADD', base .. 'ledger', id, 'kind', 'settle', 'reference', ARGV[1], 'nanos', '-' .. ARGV[2],
      'at', ARGV[3], 'key', 'dev', 'day', '', 'what', ARGV[4])
    redis.call('HINCRBY', account, 'balance', '-' .. ARGV[2])
    redis.call('HINCRBY', base .. 'key:dev', 's', ARGV[2])
    redis.call('SADD', base .. 'keys', 'dev')
  `, 1, `{${prefix}:acme}:account`, reference, `${nanos}`, at, JSON.stringify(what))
}

void t.test('a Redis of version 0.1.0 gets rollups of all that was charged before, by itself', async (t) => {
  const old = await redisServer(t)
  const folder = folderFor(t)
  await putRedis('0.1.0', old.url, folder)
  const clock = startClock(() => false, MADE + 10_000)
  const store = await openRedis(t, old, { prefix: PREFIX, folder, now: clock.now, timer: clock.timer })
  await until(() => store.health.pending === 0)
  await clock.until(async () => (await store.balance('acme')).open_holds === 1 && store.openTasks().length === 1)
  t.match(await store.rollups({ ...EVERYTHING, by: 'day', groups: [] }), [
    { from: Date.UTC(2026, 10, 22), nanos: 965n, shortfall: 50n, requests: 6 }
  ])
  await check(store)
})

void t.test('what a gateway of an earlier version charges beside this one counts later, and once', async (t) => {
  await t.resolves(fc.assert(fc.asyncProperty(
    fc.array(fc.constantFrom('old', 'new', 'free', 'verify', 'add'), { minLength: 1, maxLength: 30, size: 'max' }),
    async (steps) => {
      const [prefix, clock] = [newPrefix(), startClock()]
      const store = await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })
      await store.credit('acme', 'c', 1000n)
      for (const [i, step] of steps.entries()) {
        await clock.advance(100_000)
        if (step === 'old') await chargeAsBefore(prefix, `r${i}`, 3n, clock.now())
        else if (step === 'verify') t.strictSame((await store.verify()).differences, [])
        else if (step === 'add') await client.eval(rollups.addOld, 1, `{${prefix}:acme}:account`, clock.now(), 2)
        else {
          await store.hold(request(`r${i}`, 10n))
          await store.settle(settlement(`r${i}`, step === 'new' ? 12n : 0n))
        }
      }
      await check(store)
      await store.close()
    }), { numRuns: 25 }))
})

void t.test('many old entries get their share in steps, by one gateway, and those of long ago no hour', async (t) => {
  const [prefix, clock] = [newPrefix(), startClock()]
  const first = await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })
  await first.credit('acme', 'c', 1_000_000n)
  const times = [0, 6.9, 7.5, 8.5, 400].map((days) => clock.now() - days * DAY)
  for (let i = 0; i < 250; i++) await chargeAsBefore(prefix, `r${i}`, 3n, times[Math.floor(i / 50)]!)
  t.strictSame(await first.rollups({ ...EVERYTHING, by: 'day' }), [])
  await first.hold(request('new', 10n))
  await first.settle(settlement('new', 10n))
  t.strictSame(await first.rollups({ ...EVERYTHING, by: 'day' }), [], 'it waits behind them')

  const claim = `${prefix}:adds_old`
  await client.set(claim, 'another', 'PX', DAY)
  let looks = 0
  const stores = await Promise.all([1, 2].map(async () => await openRedis(t, server, { prefix, now: clock.now,
    timer: (ms, call) => fast(ms, () => {
      looks++
      call()
    }) })))
  await until(() => looks > 100)
  t.strictSame(await first.rollups({ ...EVERYTHING, by: 'day' }), [], 'another one has said that it adds them')
  await client.del(claim)
  await until(async () => await client.persist(claim) === 1)  // so one turn has to do
  const requests = async (by: RollupQuery['by']): Promise<unknown> =>
    (await first.rollups({ ...EVERYTHING, by })).map(({ from, requests }) => [from, requests])
  const of = (by: number, ...counts: readonly (readonly [time: number, count: number])[]): unknown =>
    counts.map(([time, count]) => [Math.floor(time / by) * by, count])
  await until(async () => (await requests('day') as unknown[]).length === 5)
  await until(async () => (await first.rollups({ ...EVERYTHING, by: 'day', groups: [] })).at(-1)!.requests === 51)
  const [now, week, more, over, year] = times as [number, number, number, number, number]
  t.strictSame(await requests('day'), of(DAY, [year, 50], [over, 50], [more, 50], [week, 50], [now, 51]))
  t.strictSame(await requests('hour'), of(DAY / 24, [week, 50], [now, 51]))
  const hours = (await client.keys(`{${prefix}:acme}:hour:*`)).map((key) => Number(key.split(':').at(-2)))
  t.strictSame(hours.toSorted(), [more, week, now].map((time) => Math.floor(time / (DAY / 24))))
  await check(stores[0]!)
  t.equal(await client.exists(claim), 1, 'and no other looks for more within a minute')
})

void t.test('hours are forgotten by themselves, eight days after they began, and days never', async (t) => {
  const [prefix, clock] = [newPrefix(), startClock()]
  const store = await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })
  await store.credit('acme', 'c', 100n)
  for (const id of ['r1', 'r2']) {
    await store.hold(request(id, 10n))
    await store.settle(settlement(id, 10n))
  }
  await until(() => store.health.pending === 0)
  const of = (name: string): string => `{${prefix}:acme}:${name}`
  const left = await client.pttl(of(`hour:${Math.floor(clock.now() / (DAY / 24))}:0`))
  t.ok(left > 7 * DAY && left <= 8 * DAY, `${left}`)
  for (const name of [`day:${Math.floor(clock.now() / DAY)}:0`, 'days', 'members']) {
    t.equal(await client.pttl(of(name)), -1)
  }
})

void t.test('a charge is made though its share can\'t be, and verify finds that', async (t) => {
  const [prefix, clock] = [newPrefix(), startClock()]
  const store = await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })
  await store.credit('acme', 'c', 100n)
  const most = 2n ** 63n - 1n
  for (const id of ['r1', 'r2']) {
    await store.hold(request(id, 10n))
    t.equal(await store.settle(settlement(id, most)), 10n)
  }
  await store.hold(request('r3', 10n))
  t.equal(await store.settle(settlement('r3', 10n, { model: 'half of \uD83D' })), 10n)
  await until(() => store.health.pending === 0)
  t.equal((await store.balance('acme')).balance, 70n)
  const { differences } = await store.verify()
  const told = differences.map(({ of, id, sum, entries, kept }) =>
    [of, id.slice(id.indexOf(' ') + 1), sum, entries, kept].join()
  )
  t.strictSame(new Set(told),
    new Set([`rollup,acme dev m premium,shortfall,${2n * (most - 10n)},${most - 10n}`,
      'rollup,acme dev half of \uD83D premium,requests,1,0', 'rollup,acme dev half of \uD83D premium,nanos,10,0']))
})

void t.test('verify finds a rollup that was changed by hand: of a day with entries, without, and of an hour', async (t) => {
  const [prefix, clock] = [newPrefix(), startClock()]
  const store = await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })
  await store.credit('acme', 'c', 100n)
  await store.hold(request('r1', 10n))
  await store.settle(settlement('r1', 10n, { usage: { ...noUsage, output: 7 } }))
  await until(() => store.health.pending === 0)
  const of = (name: string): string => `{${prefix}:acme}:${name}`
  const [day, hour] = [DAY, DAY / 24].map((length) => Math.floor(clock.now() / length))
  await client.hincrby(of(`day:${day}:0`), '0n', 1)
  await client.hincrby(of(`hour:${hour}:0`), '0o', -7)
  await client.hset(of(`day:${day! - 3}:0`), '0r', 2)
  await client.sadd(of('days'), day! - 3)
  const dates = [day! * DAY, (day! - 3) * DAY].map((time) => new Date(time).toISOString().slice(0, 10))
  t.strictSame((await store.verify()).differences, [
    { of: 'rollup', id: `${dates[1]} acme dev m premium`, sum: 'requests', entries: 0n, kept: 2n, where: 'redis' },
    { of: 'rollup', id: `${dates[0]} acme dev m premium`, sum: 'nanos', entries: 10n, kept: 11n, where: 'redis' },
    { of: 'rollup', id: `${new Date(clock.now()).toISOString().slice(0, 13)} acme dev m premium`, sum: 'output',
      entries: 7n, kept: 0n, where: 'redis' }
  ])
})

void t.test('verify is right while gateways charge, of earlier versions too, over more days than one read takes', async (t) => {
  const [prefix, clock] = [newPrefix(), startClock()]
  const stores = await Promise.all([1, 2].map(async () =>
    await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })))
  await stores[0]!.credit('acme', 'c', 10n ** 12n)
  let count = 0
  const charge = async (i: number): Promise<void> => {
    const [id, store] = [`r${count++}`, stores[i % 2]!]
    await store.hold(request(id, 10n, { key: `k${i % 12}` }))
    await store.settle(settlement(id, 12n, { usage: { ...noUsage, input: i } }))
  }
  for (let day = 0; day < 40; day++, await clock.advance(DAY)) {
    await Promise.all(Array.from({ length: 12 }, async (_, i) => { await charge(i) }))
  }
  let isOver = false
  const charging = (async () => {
    while (!isOver) {
      await Promise.all(Array.from({ length: 10 }, async (_, i) => { await charge(i) }))
      await chargeAsBefore(prefix, `before ${count}`, 1n, clock.now())
    }
  })()
  for (let i = 0; i < 3; i++) {
    t.strictSame((await stores[i % 2]!.verify()).differences, [])
    await clock.advance(DAY / 24)
  }
  isOver = true
  await charging
  for (const store of stores) await until(() => store.health.pending === 0)
  await check(stores[0]!)
  const days = await client.smembers(`{${prefix}:acme}:days`)
  const [, read] = await client.eval(rollups.sumsOf, 1, `{${prefix}:acme}:account`, '', 'day', ...days) as number[]
  t.ok(read! > 0 && read! < days.length, `${read} of ${days.length} at once`)
})

void t.test('what is moved into a Redis has its rollups there', async (t) => {
  const clock = startClock()
  const from = new MemoryStore(clock.now)
  await from.credit('acme', 'c', 100_000n)
  for (let i = 0; i < 300; i++) {
    from.hold(request(`r${i}`, 10n))
    await from.settle(settlement(`r${i}`, 12n, { usage: { ...noUsage, input: i } }))
    if (i % 100 === 99) await clock.advance(DAY)
  }
  const prefix = newPrefix()
  await fillRedis(redisConfig(server, { prefix }), newLog(), rowsOf(from))
  const store = await openRedis(t, server, { prefix, now: clock.now, timer: noTimer })
  t.equal((await store.rollups({ ...EVERYTHING, by: 'day' })).length, 3)
  await check(store)
  await store.hold(request('next', 10n))
  await store.settle(settlement('next', 12n))
  await check(store)
})

void t.test('failures wait while Redis is away, and none counts twice', async (t) => {
  const own = await redisServer(t)
  let send = (): void => {}
  const store = await openRedis(t, own, { config: { timeout: 1000 }, timer (ms, call) {
    // Only once a second, and when the test says so.
    if (ms < 900 || ms > 1100) return startTimer(ms, call)
    send = call
    return () => {}
  } })
  const errors = async (): Promise<number> =>
    (await store.rollups({ ...EVERYTHING, by: 'day', groups: [], only: { key: 'dev' } })).at(0)?.errors ?? 0
  const fail = (model: string): void => { store.failed({ account: 'acme', key: 'dev', model, channel: 'premium' }) }
  const sendOnce = async (): Promise<void> => {
    const before = send
    before()
    await until(() => send !== before)
  }
  for (const model of ['a', 'a', 'b']) fail(model)
  t.equal(await errors(), 0)
  await sendOnce()
  t.equal(await errors(), 3)
  await sendOnce()
  t.equal(await errors(), 3)
  own.pause()
  fail('a')
  await sendOnce()
  t.equal(store.health.isUp, false, 'nobody knows whether that one was counted')
  for (const model of ['a', 'c']) fail(model)
  await sendOnce()
  own.resume()
  await until(() => store.health.isUp)
  fail('a')
  await sendOnce()
  const counted = await errors()
  t.ok(counted === 6 || counted === 7, `${counted}`)
  t.strictSame(await store.balance('acme'), { balance: 0n, held: 0n, open_holds: 0 })
  fail('d')
  await store.close()
  const next = await openRedis(t, own, { prefix: 'other' })
  t.strictSame(await next.rollups({ ...EVERYTHING, by: 'day' }), [])
})

void t.test('of ten thousand kinds of failures at most the first are counted, and those all', async (t) => {
  const prefix = newPrefix()
  const store = await openRedis(t, server, { prefix, timer: noTimer })
  for (let round = 0; round < 2; round++) {
    for (let i = 0; i < 10_001; i++) store.failed({ account: `a${i % 3}`, key: 'dev', model: `m${i}` })
  }
  await store.close()
  const next = await openRedis(t, server, { prefix, timer: noTimer })
  t.match(await next.rollups({ ...EVERYTHING, by: 'day', groups: [] }), [{ errors: 20_000 }])
  t.equal((await next.rollups({ ...EVERYTHING, by: 'day', groups: ['model'] })).length, 10_000)
})

void t.test('a page is read from where it begins, and one of what is rare says where the next goes on', async (t) => {
  const prefix = newPrefix()
  const store = await openRedis(t, server, { prefix, timer: noTimer })
  await store.credit('acme', 'c', 1000n)
  const begin = Date.now()
  const key = `{${prefix}:acme}:ledger`
  const fill = async (count: number, what: string): Promise<void> => {
    await client.eval(`local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1][1]
      local micros, seq = string.match(last, '(%d+)-(%d+)')
      for i = 1, ARGV[1] do
        redis.call('XADD', KEYS[1], string.format('%.0f-%.0f', micros + i, seq + i), 'kind', 'settle',
          'reference', ARGV[2] .. i, 'nanos', '0', 'at', ARGV[3], 'key', 'dev', 'day', '', 'what', '{"model":"m"}')
      end`, 1, key, count, what, begin)
  }
  const id = createRequestId()
  await store.hold(request(id, 10n))
  await store.settle(settlement(id, 12n, { model: 'rare' }))
  await until(() => store.health.pending === 0)
  await fill(12_000, 'r')
  const read = async (): Promise<number> =>
    Number(/^cmdstat_xrevrange:calls=(\d+)/m.exec(await server.ask('INFO', 'commandstats'))?.[1] ?? 0)

  const pages = []
  for (let before: string | undefined, isOver = false; !isOver && pages.length < 10;) {
    const { entries, next } = await store.newest({ limit: 5, account: 'acme', model: 'rare',
      ...(before !== undefined && { before }) })
    pages.push(entries.length)
    isOver = next === undefined
    before = next
  }
  t.strictSame(pages, [0, 0, 2])
  t.equal((await pagesOf(store, { limit: 50, model: 'rare' })).length, 2)

  const before = await read()
  const { entries, next } = await store.newest({ limit: 50, account: 'acme' })
  t.equal(await read() - before, 1, 'one read')
  t.strictSame(entries.map(({ reference }) => reference), Array.from({ length: 50 }, (_, i) => `r${12_000 - i}`))
  const second = await store.newest({ limit: 50, account: 'acme', before: next! })
  t.equal(await read() - before, 2)
  t.strictSame(second.entries[0]!.reference, 'r11950')

  const found = (await store.newest({ limit: 5, reference: id })).entries
  t.strictSame(found.map(({ kind }) => kind), ['shortfall', 'settle'], 'its id tells when it was')
  t.match(await store.newest({ limit: 1, reference: id }), { entries: [{ kind: 'shortfall' }], next: /./ })
  t.strictSame((await pagesOf(store, { limit: 1, reference: id })).map(({ kind }) => kind), ['shortfall', 'settle'])
  t.strictSame(await store.newest({ limit: 5, account: 'acme', to: begin - 60_000 }), { entries: [] })
  t.strictSame(await store.newest({ limit: 5, account: 'acme', from: Date.now() + 60_000 }), { entries: [] })
  t.equal((await pagesOf(store, { limit: 500, from: begin - 60_000, to: Date.now() + 60_000 })).length, 12_003)
})

void t.test('of many accounts a page asks those that have something new', async (t) => {
  const prefix = newPrefix()
  const store = await openRedis(t, server, { prefix, timer: noTimer })
  for (let i = 0; i < 300; i++) await store.credit(`a${i * 7 % 300}`, `b${i}`, 1n)
  for (let i = 0; i < 300; i++) await store.credit(`a${i}`, `c${i}`, 1n)
  const read = async (): Promise<number> =>
    Number(/^cmdstat_xrevrange:calls=(\d+)/m.exec(await server.ask('INFO', 'commandstats'))?.[1] ?? 0)
  const before = await read()
  t.strictSame((await store.newest({ limit: 5 })).entries.map(({ reference }) => reference),
    ['c299', 'c298', 'c297', 'c296', 'c295'])
  t.ok(await read() - before <= 100, 'fifty accounts, and whatever is left of those')
  const asked = await read()
  t.strictSame((await store.newest({ limit: 5, reference: 'b7' })).entries.map(({ account }) => account), ['a49'])
  t.equal(await read() - asked, 2, 'of the account that knows the reference, to its end')
  t.strictSame((await pagesOf(store, { limit: 7 })).map(({ reference }) => reference),
    ['c', 'b'].flatMap((round) => Array.from({ length: 300 }, (_, i) => `${round}${299 - i}`)))
})
