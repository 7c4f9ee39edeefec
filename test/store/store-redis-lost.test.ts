// A Redis that has lost the ledger: nothing that costs is served, no charge is sent, until an operator accepts it.
import { copyFile, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { acceptLoss } from '../../src/store/redis/accept-loss.ts'
import type { RedisStore } from '../../src/store/redis/store.ts'
import { startTimer } from '../../src/base/timer.ts'
import { newLog, request, settlement } from '../support/embedded-store.ts'
import { newPrefix, openRedis, redisConfig } from '../support/redis-store.ts'
import { redisServer, type RedisServer } from '../support/redis-server.ts'
import { folderFor } from '../support/spawned.ts'
import { all } from '../support/store-conformance.ts'
import { until } from '../support/until.ts'

const LOST = { code: 'service_unavailable', status: 503 }
/** Checks of Redis come twenty times as often. */
const quick = (ms: number, run: () => void): (() => void) => startTimer(ms / 20, run)

interface Gateway {
  readonly store: RedisStore
  readonly folder: string
  readonly log: ReturnType<typeof newLog>
}

async function gateway (t: Test, server: RedisServer, prefix: string, folder = folderFor(t)): Promise<Gateway> {
  const log = newLog()
  return { store: await openRedis(t, server, { prefix, folder, log, timer: quick }), folder, log }
}

async function charge ({ store }: Gateway, id: string, nanos: bigint): Promise<void> {
  await store.hold(request(id, 100n))
  await store.settle(settlement(id, nanos))
}

/** The file knows what was charged. */
async function isMarked ({ folder }: Gateway, number: number): Promise<void> {
  await until(async () =>
    (JSON.parse(await readFile(join(folder, 'outbox', 'ledger.json'), 'utf8')) as { readonly number: number })
      .number >= number)
}

/** The outbox goes on behind its messages, with an empty file. */
async function forgetMessages (folder: string): Promise<void> {
  const outbox = join(folder, 'outbox')
  for (const name of await readdir(outbox)) if (name.endsWith('.jsonl')) await rm(join(outbox, name))
  await writeFile(join(outbox, `${'4'.padStart(16, '0')}.jsonl`), '')
}

async function isLost (...gateways: readonly Gateway[]): Promise<void> {
  await until(() => gateways.every(({ store }) => store.health.loss !== undefined))
}

async function isFound (...gateways: readonly Gateway[]): Promise<void> {
  await until(() => gateways.every(({ store }) => store.health.loss === undefined && store.health.isUp &&
    store.health.pending === 0))
}

t.test('FLUSHALL: every gateway refuses, also one that is new, and charges wait; after the command all goes on', async (t) => {
  const server = await redisServer(t)
  const prefix = newPrefix()
  const [one, other] = [await gateway(t, server, prefix), await gateway(t, server, prefix)]
  await one.store.credit('acme', 'c', 1000n)
  await charge(one, 'r1', 30n)
  await one.store.hold(request('r2', 50n))
  await isMarked(one, 2)
  await server.ask('FLUSHALL')
  await isLost(one, other)
  const fresh = await gateway(t, server, prefix)
  for (const { store } of [one, other, fresh]) {
    await t.rejects(store.hold(request('r3', 1n)), LOST)
    await t.rejects(store.wouldHold(request('r3', 1n)), LOST)
    await t.rejects(store.credit('acme', 'opening:acme', 1000n), LOST)
  }
  t.equal(await one.store.settle(settlement('r2', 20n)), 20n, 'what runs ends well')
  t.equal(one.store.health.pending, 1, 'and its charge waits')
  t.equal(one.log.lines.filter((line) => line.includes('is lost')).length, 1)
  t.equal(await server.ask('EXISTS', `{${prefix}:acme}:account`), '0')
  const again = await gateway(t, server, prefix)
  t.ok(again.store.health.loss, 'a start finds it too')

  t.equal(await acceptLoss(redisConfig(server, { prefix }), one.folder), true)
  await isFound(one, other, fresh, again)
  await until(async () => (await one.store.balance('acme')).balance === 950n)
  await until(async () => (await all(one.store)).length === 3)
  await charge(other, 'r4', 10n)
  t.equal(await acceptLoss(redisConfig(server, { prefix }), one.folder), false, 'nothing is lost now')
})

t.test('an empty restart is found by the start of a gateway that was stopped meanwhile', async (t) => {
  const server = await redisServer(t, { appendonly: false })
  const [prefix, folder] = [newPrefix(), folderFor(t)]
  const first = await gateway(t, server, prefix, folder)
  await first.store.credit('acme', 'c', 1000n)
  await isMarked(first, 1)
  await first.store.close()
  await server.restart()
  const { store } = await gateway(t, server, prefix, folder)
  t.match(store.health.loss, /^Redis is empty/)
  await t.rejects(store.hold(request('r1', 1n)), LOST)
})

t.test('an old snapshot: what the outbox has is sent again; where it has not all, the ledger is lost', async (t) => {
  for (const isKept of [true, false]) {
    const server = await redisServer(t, { appendonly: false })
    const [prefix, folder] = [newPrefix(), folderFor(t)]
    let gate = await gateway(t, server, prefix, folder)
    await gate.store.credit('acme', 'c', 1000n)
    await charge(gate, 'r1', 30n)
    await isMarked(gate, 2)
    await server.ask('SAVE')
    await copyFile(join(server.folder, 'dump.rdb'), join(server.folder, 'old.rdb'))
    await charge(gate, 'r2', 40n)
    await isMarked(gate, 3)
    await gate.store.close()
    // As after the ten minutes of the outbox: its files begin behind what Redis knows.
    if (!isKept) await forgetMessages(folder)
    await server.kill()
    await copyFile(join(server.folder, 'old.rdb'), join(server.folder, 'dump.rdb'))
    await server.restart()
    gate = await gateway(t, server, prefix, folder)
    if (isKept) {
      await until(async () => (await gate.store.balance('acme')).balance === 930n)
      t.equal(gate.store.health.loss, undefined)
      continue
    }
    t.match(gate.store.health.loss, /^Redis went back from /)
    await t.rejects(gate.store.hold(request('r3', 1n)), LOST)
    t.equal(await acceptLoss(redisConfig(server, { prefix }), folder), true)
    await isFound(gate)
    t.equal((await gate.store.balance('acme')).balance, 970n)
    await charge(gate, 'r4', 10n)
  }
})

t.test('a Redis and a folder of an older version are adopted without a word', async (t) => {
  const server = await redisServer(t)
  const [prefix, folder] = [newPrefix(), folderFor(t)]
  const first = await gateway(t, server, prefix, folder)
  await first.store.credit('acme', 'c', 1000n)
  await first.store.close()
  await server.ask('DEL', `{${prefix}}:guard`)
  await rm(join(folder, 'outbox', 'ledger.json'))
  const second = await gateway(t, server, prefix, folder)
  t.equal(second.store.health.loss, undefined)
  await charge(second, 'r1', 10n)
  await isMarked(second, 2)
})

t.test('a second outbox that is gone: a Redis that went back further than outboxes reach is lost', async (t) => {
  const server = await redisServer(t)
  const prefix = newPrefix()
  let now = Date.now()
  const clocked = { prefix, now: () => now, timer: quick }
  const gone = await openRedis(t, server, clocked)
  const folder = folderFor(t)
  const log = newLog()
  const stays = { store: await openRedis(t, server, { ...clocked, folder, log }), folder, log }
  await gone.credit('acme', 'c', 1000n)
  const guard = `{${prefix}}:guard`
  const numbers = async (): Promise<string> => await server.ask('HGETALL', guard)
  await until(async () => /outbox:[-\w]+\n1/.test(await numbers()))
  const field = /outbox:[-\w]+(?=\n1)/.exec(await numbers())![0]
  now += 600_000
  await until(async () => (await server.ask('HGET', guard, 'at')) === `${now}`)
  await until(async () => (JSON.parse(await readFile(join(folder, 'outbox', 'ledger.json'), 'utf8')) as {
    readonly at: number
  }).at === now)
  await gone.close()
  await server.ask('HSET', guard, field, '0', 'at', `${now - 600_000}`)
  await isLost(stays)
})
