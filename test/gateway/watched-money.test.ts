// What is looked at in the background of requests for metrics: accounts that are almost out of money, and whether the
// ledger is right.
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import type { AccountConfig, Config } from '../../src/config/config.ts'
import { LowBalances } from '../../src/gateway/low-balances.ts'
import { verifyRegularly } from '../../src/gateway/verifying.ts'
import { formatUsd } from '../../src/money/nanos.ts'
import { startClock } from '../support/clock.ts'
import { account, config, services } from '../support/exchange.ts'

function withAccounts (accounts: readonly AccountConfig[], low: string): Config {
  return config({ accounts, pipeline: [{ use: 'billing-meter', with: { low_balance_usd: low } }] })
}

t.test('accounts below the bound are counted, but for those that are suspended or closed', async (t) => {
  const one = fc.record({ nanos: fc.bigInt({ min: 0n, max: 3_000_000_000n }), suspended: fc.boolean(),
    closed: fc.boolean() })
  await fc.assert(fc.asyncProperty(fc.array(one, { maxLength: 500 }), fc.bigInt({ min: 0n, max: 3_000_000_000n }),
    async (all, low) => {
      const own = services()
      const accounts = all.map(({ suspended, closed }, i) => account({ id: `a${i}`, suspended, closed }))
      for (const [i, { nanos }] of all.entries()) await own.store.credit(`a${i}`, `c${i}`, nanos)
      const live = withAccounts(accounts, formatUsd(low))
      t.equal(await new LowBalances(own, () => live).read(),
        all.filter(({ nanos, suspended, closed }) => !suspended && !closed && nanos < low).length)
    }), { numRuns: 30 })
})

t.test('they are looked at once a minute, and again at once when the store did not answer', async (t) => {
  const clock = startClock()
  const own = services(clock.now)
  const live = withAccounts([account({ id: 'a' })], '1')
  let asked = 0
  let isAway = false
  const store = Object.assign(Object.create(own.store) as typeof own.store, { balance (id: string) {
    asked++
    if (isAway) throw new Error('away')
    return own.store.balance(id)
  } })
  const low = new LowBalances({ ...own, store }, () => live)
  t.strictSame([await low.read(), await low.read(), asked], [1, 1, 1])
  await own.store.credit('a', 'c', 2_000_000_000n)
  await clock.advance(59_999)
  t.equal(await low.read(), 1)
  await clock.advance(1)
  isAway = true
  await t.rejects(low.read(), { message: 'away' })
  isAway = false
  t.strictSame([await low.read(), asked], [0, 3])
})

t.test('many accounts of a shared store are looked at less often, so that Redis has other things to do', async (t) => {
  const clock = startClock()
  const own = services(clock.now)
  const live = withAccounts(Array.from({ length: 7000 }, (_, i) => account({ id: `a${i}` })), '1')
  let asked = 0
  const store = Object.assign(Object.create(own.store) as typeof own.store, { health: { isUp: true },
    async balance (id: string) { asked++; return await own.store.balance(id) } })
  const low = new LowBalances({ ...own, store }, () => live)
  t.equal(await low.read(), 7000)
  await clock.advance(69_999)
  await low.read()
  t.equal(asked, 7000)
  await clock.advance(1)
  await low.read()
  t.equal(asked, 14_000)
})

t.test('the ledger is added up again and again, until the gateway ends; a shared one is not', async (t) => {
  const clock = startClock()
  const own = services(clock.now)
  let found = 0
  let asked = 0
  const verify = async (): Promise<object> => {
    if (asked++ === 1) throw new Error('the disk is gone')
    return { entries: 3, accounts: 1, keys: 1, differences: Array.from({ length: found }, () => ({})) }
  }
  const store = Object.assign(Object.create(own.store) as typeof own.store, { verify })
  const metric = async (): Promise<string | undefined> =>
    /^gateway_ledger_differences (\d+)$/m.exec(await own.metrics.print())?.[1]
  const stop = verifyRegularly({ ...own, store }, 3_600_000, clock.timer)
  await clock.advance(299_999)
  t.strictSame([asked, await metric()], [0, undefined])
  await clock.advance(1)
  t.strictSame([asked, await metric()], [1, '0'])
  await clock.advance(3_600_000)
  t.match(own.lines.at(-1), { level: 'error', err: { message: 'the disk is gone' } })
  t.strictSame([asked, await metric()], [2, '0'], 'what was found before')
  found = 2
  await clock.advance(3_600_000)
  t.match(own.lines.at(-1), { level: 'error', alert: 'ledger_differs', differences: 2 })
  t.strictSame([asked, await metric()], [3, '2'])
  stop()
  await clock.advance(36_000_000)
  t.equal(asked, 3)
  const shared = Object.assign(Object.create(store) as typeof own.store, { health: { isUp: true } })
  verifyRegularly({ ...own, store: shared }, 1, clock.timer)
  verifyRegularly({ ...own, store }, 0, clock.timer)
  await clock.advance(36_000_000)
  t.equal(asked, 3)
})

t.test('one that stops in the middle of a look begins no other', async (t) => {
  const clock = startClock()
  const own = services(clock.now)
  const looking = Promise.withResolvers<Awaited<ReturnType<typeof own.store.verify>>>()
  let asked = 0
  const store = Object.assign(Object.create(own.store) as typeof own.store,
    { verify: async () => { asked++; return await looking.promise } })
  const stop = verifyRegularly({ ...own, store }, 1000, clock.timer)
  await clock.advance(1000)
  stop()
  looking.resolve(await own.store.verify())
  await turn()
  await clock.advance(36_000_000)
  t.equal(asked, 1)
})
