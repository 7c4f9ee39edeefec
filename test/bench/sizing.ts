// What a request costs the gateway and its Redis: round trips, CPU of both, memory. `node test/bench/sizing.ts` prints
// the numbers of config/deploy/README.md, "Sizing". CPU, not time: other work on the machine disturbs it less.
// Loopback, one Redis 7 of its own, AOF on.
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { noUsage } from '../../src/money/usage.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import { RedisStore } from '../../src/store/redis/store.ts'
import type { HoldRequest, Settlement, Store } from '../../src/store/store.ts'
import { startClock } from '../support/clock.ts'
import { redisServer, type RedisServer } from '../support/redis-server.ts'
import { redisConfig } from '../support/redis-store.ts'

const { values } = parseArgs({ options: { requests: { type: 'string', default: '20000' } } })
const REQUESTS = Number(values.requests)
const PARALLEL = 64
const ACCOUNTS = 1000
const quiet = { info () {}, warn () {}, error () {} }
const day = new Date().toISOString().slice(0, 10)

const ends: (() => unknown)[] = []
const t = { teardown: (end: () => unknown) => { ends.unshift(end) } }

const accountOf = (i: number): string => `account-${i % ACCOUNTS}`
const keyOf = (i: number): string => `key-${i % ACCOUNTS}`
const idOf = (run: string, i: number): string => `req_${run}_${String(i).padStart(10, '0')}`

function holdOf (run: string, i: number): HoldRequest {
  return { request_id: idOf(run, i), account: accountOf(i), key: keyOf(i), nanos: 15_000_000n, least: 1_000_000n,
    usage_limit: 10n ** 15n, day, usage_limit_day: 10n ** 14n, low_balance: 10n ** 9n }
}

function settlementOf (run: string, i: number): Settlement {
  return { request_id: idOf(run, i), nanos: 3_123_456n, model: 'claude-sonnet', channel: 'premium',
    usage: { ...noUsage, input: 1234, output: 345 }, usage_source: 'provider', price_version: '2026-11-21' }
}

interface Cost {
  /** microseconds of CPU, per time */
  readonly gateway: number
  readonly redis: number
  /** commands of Redis's that a client sent, per time */
  readonly commands: number
}

async function each (count: number, work: (i: number) => Promise<unknown>): Promise<void> {
  let next = 0
  await Promise.all(Array.from({ length: PARALLEL }, async () => { while (next < count) await work(next++) }))
}

async function redisUsage (
  redis: RedisServer | undefined
): Promise<{ readonly cpu: number, readonly commands: number, readonly bytes: number }> {
  if (redis === undefined) return { cpu: 0, commands: 0, bytes: 0 }
  const info = await redis.ask('INFO', 'everything')
  const read = (name: string): number => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)![1])
  const calls = [...info.matchAll(/^cmdstat_(\S+?):calls=(\d+)/gm)].filter(([, name]) =>
    name === 'evalsha' || name === 'eval'
  ).reduce((sum, [, , count]) => sum + Number(count), 0)
  return { cpu: (read('used_cpu_user_main_thread') + read('used_cpu_sys_main_thread')) * 1e6, commands: calls,
    bytes: read('used_memory') }
}

/** @param count how many times `work` does what is told */
async function measure (redis: RedisServer | undefined, count: number, work: () => Promise<unknown>): Promise<Cost> {
  const [cpu, before] = [process.cpuUsage(), await redisUsage(redis)]
  await work()
  const [{ user, system }, after] = [process.cpuUsage(cpu), await redisUsage(redis)]
  return { gateway: (user + system) / count, redis: (after.cpu - before.cpu) / count,
    commands: (after.commands - before.commands) / count }
}

function print (what: string, { gateway, redis, commands }: Cost): void {
  console.log(
    `| ${what} | ${gateway.toFixed(0)} | ${redis === 0 ? '–' : redis.toFixed(1)} | ${commands === 0 ? '–' : commands.toFixed(2)} |`
  )
}

/** Everything that a request asks of its store, in the order of the pipeline. */
async function request (store: Store, run: string, i: number): Promise<void> {
  const [id, key] = [idOf(run, i), keyOf(i)]
  await store.admit({ request_id: id, account: accountOf(i), windows: [{ name: `key:${key}`, limit: 1_000_000 }],
    slot: { name: `key:${key}`, limit: 1000 } })
  await store.hold(holdOf(run, i))
  await store.settle(settlementOf(run, i))
  await store.leave(id)
}

async function fund (store: Store): Promise<void> {
  await each(ACCOUNTS, async (i) => await store.credit(accountOf(i), `opening:${accountOf(i)}`, 10n ** 15n))
}

/** When Redis has all that was charged. */
async function delivered (store: RedisStore): Promise<void> {
  while (store.health.pending > 0) await new Promise((resolve) => { setTimeout(resolve, 5) })
}

const folder = mkdtempSync(path.join(tmpdir(), 'gateway-sizing-'))
ends.push(() => { rmSync(folder, { recursive: true, force: true }) })
try {
  const redis = await redisServer(t, { settings: { appendfsync: 'everysec' } })
  const clock = startClock(undefined, Date.now())
  // Its background work comes when the clock is moved.
  const store = await RedisStore.open({ config: redisConfig({ url: redis.url }, { prefix: 'sizing' }),
    folder: path.join(folder, 'redis'), log: quiet, timer: clock.timer, now: clock.now })
  ends.unshift(async () => {
    await store.close()
  })
  const embedded = await openEmbedded({ folder: path.join(folder, 'embedded'), log: quiet })
  ends.unshift(async () => { await embedded.close() })

  /** Moves its clock by seconds, and waits after each until Redis has answered. */
  const live = async (seconds: number, wait: number): Promise<void> => {
    for (let i = 0; i < seconds; i++) {
      await clock.advance(1000)
      await new Promise((resolve) => { setTimeout(resolve, wait) })
    }
  }
  const bytes = async (): Promise<number> => (await redisUsage(redis)).bytes
  let at = await bytes()
  const memory: [string, number][] = []
  const note = async (what: string, count: number): Promise<void> => {
    const now = await bytes()
    memory.push([what, (now - at) / count])
    at = now
  }
  await fund(store)
  await note('an account, with its credit', ACCOUNTS)
  await fund(embedded)
  await each(2000, async (i) => { await request(embedded, 'warm', i) })
  await each(2000, async (i) => { await request(store, 'warm', i) })
  await delivered(store)
  await note('a key of it, with its windows, and two charges', ACCOUNTS)

  console.log('| What | gateway: CPU, µs | Redis: CPU, µs | scripts |\n| --- | ---: | ---: | ---: |')
  print('a whole request, embedded store', await measure(undefined, REQUESTS, async () => {
    await each(REQUESTS, async (i) => {
      await request(embedded, 'a', i)
    })
  }))
  print('a whole request, Redis', await measure(redis, REQUESTS, async () => {
    await each(REQUESTS, async (i) => { await request(store, 'a', i) })
    await delivered(store)
  }))
  await note('a charge: its entry, and what is remembered of it for 25 hours', REQUESTS)

  const some = Math.min(REQUESTS, 10_000)
  print('… admit', await measure(redis, some, async () => {
    await each(some, async (i) =>
      await store.admit({ request_id: idOf('s', i), account: accountOf(i),
        windows: [{ name: `key:${keyOf(i)}`, limit: 1_000_000 }], slot: { name: `key:${keyOf(i)}`, limit: 1000 } }))
  }))
  at = await bytes()
  print('… hold', await measure(redis, some, async () => {
    await each(some, async (i) =>
      await store.hold(holdOf('s', i)))
  }))
  await note('an open hold', some)
  await clock.advance(2500)
  print('… progress, every two seconds of a stream', await measure(redis, some, async () => {
    await each(some, async (i) => {
      await store.progress(settlementOf('s', i))
    })
  }))
  print('… renewal of hold and slot, every ten seconds of a request', await measure(redis, some, async () => {
    await live(12, 100)
  }))
  print('… settle, the outbox included', await measure(redis, some, async () => {
    await each(some, async (i) => await store.settle(settlementOf('s', i)))
    await delivered(store)
  }))
  print('… leave', await measure(redis, some, async () => {
    await each(some, async (i) => {
      await store.leave(idOf('s', i))
    })
  }))
  print('an idle gateway, per second of its life', await measure(redis, 60, async () => {
    await live(60, 20)
  }))

  const stream = Number(await redis.ask('MEMORY', 'USAGE', `{sizing:${accountOf(0)}}:ledger`, 'SAMPLES', '0'))
  const entries = Number(await redis.ask('XLEN', `{sizing:${accountOf(0)}}:ledger`))
  memory.push([`of it for ever: an entry of the ledger (${entries} in the stream)`, stream / entries])
  const outbox = path.join(folder, 'redis/outbox')
  const written = readdirSync(outbox).reduce((sum, name) => sum + statSync(path.join(outbox, name)).size, 0)
  memory.push(['and on the disk of its gateway for ten minutes: in the outbox',
    written / (ACCOUNTS + 2000 + REQUESTS + some)])
  console.log('\n| Memory of Redis | bytes |\n| --- | ---: |')
  for (const [what, size] of memory) console.log(`| ${what} | ${size.toFixed(0)} |`)
} finally {
  for (const end of ends) await end()
}
