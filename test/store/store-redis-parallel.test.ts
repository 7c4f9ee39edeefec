// Four gateways on one Redis decide as one: limits are exact whatever runs in parallel, and each answer is charged once
// (rules hold-first, away-is-503).
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { RedisStore } from '../../src/store/redis/store.ts'
import type { AdmissionResult, HoldResult } from '../../src/store/store.ts'
import { request, settlement } from '../support/embedded-store.ts'
import { newPrefix, openRedis, type RedisStoreOptions } from '../support/redis-store.ts'
import { redisServer } from '../support/redis-server.ts'
import { all } from '../support/store-conformance.ts'

const { url } = await redisServer(t)

async function four (
  t: Test,
  { now, prefix = newPrefix() }: Pick<RedisStoreOptions, 'now' | 'prefix'> = {}
): Promise<readonly RedisStore[]> {
  return await Promise.all(Array.from({ length: 4 }, async () => await openRedis(t, { url }, { prefix, now })))
}

void t.test('no span of 60 seconds admits more than the limit, whoever asks whom when', async (t) => {
  const step = fc.record({ wait: fc.oneof(fc.constant(0), fc.nat(1500), fc.nat(30_000)), asks: fc.nat(12) })
  await t.resolves(
    fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 20 }), fc.array(step, { minLength: 1, maxLength: 15 }),
        async (limit, steps) => {
          let time = 1_800_000_000_000
          const stores = await four(t, { now: () => time })
          const admitted: number[] = []
          let id = 0
          for (const { wait, asks } of steps) {
            time += wait
            const told = await Promise.all(
              Array.from({ length: asks }, async (_, i) =>
                await stores[i % 4]!.admit({ request_id: `r${id++}`, account: 'acme',
                  windows: [{ name: 'k', limit }] }))
            )
            for (const { kind } of told) {
              if (kind === 'admitted') {
                admitted.push(time)
              }
            }
            const inSpan = admitted.filter((at) =>
              at > time - 60_000
            ).length
            if (inSpan > limit) throw new Error(`${inSpan} of ${limit}`)
            // Nor is anybody refused while there is room, but for the second in which a sub-window is not over yet.
            if (
              told.some(({ kind }) => kind === 'refused') && admitted.filter((at) => at > time - 61_000).length < limit
            ) throw new Error('refused for nothing')
          }
          await Promise.all(stores.map(async (store) => {
            await store.close()
          }))
        }),
      { numRuns: 25 }
    )
  )
})

void t.test('slots at a time are exact across processes, and none is left over', async (t) => {
  const stores = await four(t)
  for (let round = 0; round < 5; round++) {
    const told = await Promise.all(
      Array.from({ length: 100 }, async (_, i): Promise<AdmissionResult> =>
        await stores[i % 4]!.admit({ request_id: `r${i}`, account: 'acme', windows: [],
          slot: { name: 'k', limit: 17 } }))
    )
    t.equal(told.filter(({ kind }) =>
      kind === 'admitted'
    ).length, 17)
    await Promise.all(told.map(async (_, i) => {
      await stores[i % 4]!.leave(`r${i}`)
    }))
  }
})

void t.test('holds and charges of four processes never pass the balance or the usage limit, and add up', async (t) => {
  await t.resolves(fc.assert(fc.asyncProperty(
    fc.bigInt(0n, 1000n),
    fc.bigInt(0n, 1000n),
    fc.array(
      fc.record({ nanos: fc.bigInt(0n, 300n), cost: fc.bigInt(0n, 400n),
        end: fc.constantFrom('settle', 'settle', 'release', 'refund') }),
      { minLength: 1, maxLength: 40, size: 'max' }
    ),
    async (balance, limit, wanted) => {
      const prefix = newPrefix()
      const stores = await four(t, { prefix })
      await stores[0]!.credit('acme', 'c', balance)
      const charged = await Promise.all(wanted.map(async ({ nanos, cost, end }, i): Promise<bigint> => {
        const store = stores[i % 4]!
        const id = `r${i}`
        if ((await store.hold(request(id, nanos, { usage_limit: limit }))).kind !== 'held') return 0n
        if (end === 'release') { await store.release(id); return 0n }
        const told = await store.settle(settlement(id, cost))
        if (end === 'settle') return told
        await store.refund(id)
        return 0n
      }))
      const sum = charged.reduce((a, b) => a + b, 0n)
      await Promise.all(stores.map(async (store) => { await store.close() }))
      const after = await openRedis(t, { url }, { prefix })
      const state = await after.balance('acme')
      if (state.balance !== balance - sum || state.held !== 0n || state.open_holds !== 0) {
        throw new Error(`${balance} - ${sum} is ${state.balance}, with ${state.held} held`)
      }
      const { spent, held } = await after.keyUsage('dev')
      if (spent !== sum || held !== 0n || spent > limit) throw new Error(`${spent} spent of ${limit}, ${sum} told`)
      const { differences } = await after.verify()
      if (differences.length > 0) {
        throw new Error(
          JSON.stringify(differences, (_key, value: unknown) => typeof value === 'bigint' ? `${value}` : value)
        )
      }
      await after.close()
    }), { numRuns: 15 }))
})

void t.test('a usage limit and a day\'s limit are exact to the nano-dollar across processes', async (t) => {
  const stores = await four(t)
  await stores[0]!.credit('acme', 'c', 10_000n)
  const more = { usage_limit: 500n, day: '2026-11-21', usage_limit_day: 300n }
  const told = await Promise.all(
    Array.from({ length: 80 },
      async (_, i): Promise<HoldResult> => await stores[i % 4]!.hold(request(`r${i}`, 7n, more)))
  )
  t.equal(told.filter(({ kind }) => kind === 'held').length, 42, '42 times 7 is 294')
  t.match(await stores[3]!.hold(request('one', 7n, more)), { kind: 'refused', by: 'usage_limit', period: 'day',
    available: 6n, held_by_others: 294n })
})

void t.test('with a low balance one request runs at a time, whatever process it asks', async (t) => {
  const stores = await four(t)
  await stores[0]!.credit('acme', 'c', 100n)
  for (let round = 0; round < 8; round++) {
    const ids = Array.from({ length: 12 }, (_, i) => `r${round}-${i}`)
    const told = await Promise.all(
      ids.map(async (id, i) => await stores[i % 4]!.hold(request(id, 5n, { low_balance: 1000n })))
    )
    const winners = ids.filter((_, i) => told[i]!.kind === 'held')
    t.equal(winners.length, 1)
    t.ok(told.every((one) => one.kind === 'held' || one.by === 'low_balance'))
    await stores[ids.indexOf(winners[0]!) % 4]!.settle(settlement(winners[0]!, 5n))
    // Another process sees it when it has arrived.
    await stores[ids.indexOf(winners[0]!) % 4]!.balance('acme')
  }
  t.strictSame((await all(stores[1]!)).slice(1).map(({ nanos }) => nanos), Array(8).fill(-5n))
})
