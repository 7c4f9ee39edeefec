// What every driver of the store must do: test/store/store.test.ts runs it against each.
import { setImmediate as nextTurn } from 'node:timers/promises'
import fc from 'fast-check'
import type { Test } from 'tap'
import { noUsage } from '../../src/money/usage.ts'
import type { AdmissionResult, Booked, Booking, Entry, HoldRequest, HoldResult, Settlement, Store,
  WindowState } from '../../src/store/store.ts'

/**
 * @param open an empty store on this clock, or on the machine's; the suite closes it
 * @param runs of each property, with a store for each
 */
export function conformance (t: Test, open: (now?: () => number) => Promise<Store>, runs = 200): void {
  const test = (sentence: string, body: (t: Test, store: Store) => Promise<void>): void => {
    void t.test(sentence, async (t) => {
      const store = await open()
      t.teardown(() => store.close())
      await body(t, store)
    })
  }

  /** On 1 April 2026. */
  const onDays = (sentence: string, body: (t: Test, store: Store) => Promise<void>): void => {
    void t.test(sentence, async (t) => {
      const store = await open(() => APRIL)
      t.teardown(() => store.close())
      await body(t, store)
    })
  }

  test('an account that was never credited has nothing, and can hold nothing', async (t, store) => {
    t.strictSame(await store.balance('nobody'), { balance: 0n, held: 0n, open_holds: 0 })
    t.strictSame(await store.keyUsage('nokey'), { spent: 0n, held: 0n })
    t.strictSame(await store.hold(request('r1', 1n)), { kind: 'refused', by: 'balance', needed: 1n, available: 0n,
      held_by_others: 0n })
    t.strictSame(await store.hold(request('r2', 0n)), { kind: 'held', nanos: 0n }, 'but what is free needs no balance')
    t.strictSame(await all(store), [])
    t.match(await store.verify(), { entries: 0, differences: [] })
  })

  test('a credit counts once per reference, ever', async (t, store) => {
    t.equal(await store.credit('acme', 'opening:acme', 25n), true)
    t.equal(await store.credit('acme', 'opening:acme', 25n), false)
    t.equal(await store.credit('other', 'opening:acme', 25n), false, 'a reference is unique over all accounts')
    t.equal(await store.credit('acme', 'invoice:1', 5n), true)
    t.equal((await store.balance('acme')).balance, 30n)
    t.equal((await store.balance('other')).balance, 0n)
    const amounts = ['opening:acme', 'invoice:1', 'acme'].map((reference) => store.amountOf('credit', reference))
    t.strictSame(await Promise.all(amounts), [25n, 5n, undefined])
    t.strictSame([await store.credited('acme'), await store.credited('other')], [30n, await store.credited('nobody')])
    t.strictSame((await all(store)).map(({ kind, reference, nanos }) => [kind, reference, nanos]), [['credit',
      'opening:acme', 25n], ['credit', 'invoice:1', 5n]])
  })

  test('entries can be asked for from behind each of them', async (t, store) => {
    for (const reference of ['a', 'b', 'c']) await store.credit('acme', reference, 1n)
    for (const [i, { id }] of (await all(store)).entries()) {
      t.strictSame((await all(store, id)).map(({ reference }) => reference), ['a', 'b', 'c'].slice(i + 1))
    }
  })

  test('a credit racing with itself counts once', async (t, store) => {
    const told = await Promise.all(Array.from({ length: 20 }, async () => await store.credit('acme', 'same', 7n)))
    t.equal(told.filter(Boolean).length, 1)
    t.equal((await store.balance('acme')).balance, 7n)
  })

  test('a refund gives back and a debit takes, each once per reference, with its reason; keys have spent what they had', async (t, store) => {
    const booking = (kind: Booking['kind'], reference: string, nanos: bigint, account = 'acme'): Booking => ({
      kind,
      account,
      reference,
      nanos,
      reason: 'a ticket: "é" \u2028'
    })
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 30n))
    await store.settle(settlement('r1', 30n))
    t.equal(await store.book(booking('refund', 'r1', 20n)), 'new', 'the id of a request may be its reference')
    t.equal(await store.book(booking('refund', 'r1', 20n)), 'known')
    t.equal(await store.book(booking('refund', 'r1', 5n, 'other')), 'known', 'whatever account and amount: as a credit')
    t.equal(await store.book(booking('debit', 'r1', 15n)), 'new', 'of another kind it is another reference')
    t.equal(await store.book(booking('debit', 'r1', 15n)), 'known')
    t.equal(await store.credit('acme', 'r1', 1n), true)
    t.equal(await store.settle(settlement('r1', 30n)), 30n, 'its request is settled as it was')
    t.strictSame(await store.balance('acme'), { balance: 76n, held: 0n, open_holds: 0 })
    t.strictSame(await store.balance('other'), { balance: 0n, held: 0n, open_holds: 0 })
    t.strictSame(await store.keyUsage('dev'), { spent: 30n, held: 0n })
    const amounts = (['credit', 'refund', 'debit'] as const).map((kind) => store.amountOf(kind, 'r1'))
    t.strictSame(await Promise.all(amounts), [1n, 20n, 15n])
    t.equal(await store.credited('acme'), 101n, 'refunds and debits are no credits')
    t.strictSame((await all(store)).map(({ kind, account, key, reference, nanos, reason }) => [
      kind, account, key, reference, nanos, reason
    ]), [
      ['credit', 'acme', undefined, 'c', 100n, undefined], ['settle', 'acme', 'dev', 'r1', -30n, undefined],
      ['refund', 'acme', undefined, 'r1', 20n, 'a ticket: "é" \u2028'], [
        'debit', 'acme', undefined, 'r1', -15n, 'a ticket: "é" \u2028'
      ], ['credit', 'acme', undefined, 'r1', 1n, undefined]
    ])
    t.strictSame((await store.verify()).differences, [])
  })

  test('a debit takes what is there beside holds, or nothing', async (t, store) => {
    const debit = async (reference: string, nanos: bigint): Promise<Booked> =>
      await store.book({ kind: 'debit', account: 'acme', reference, nanos, reason: 'why' })
    t.equal(await debit('d', 1n), 'short', 'of an account that has nothing')
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 60n))
    t.equal(await debit('d', 41n), 'short')
    t.strictSame(await store.balance('acme'), { balance: 100n, held: 60n, open_holds: 1 })
    t.equal(await debit('d', 40n), 'new', 'the reference of the refused one is free')
    t.equal(await debit('d', 40n), 'known', 'though there is not so much any more')
    t.match(await store.hold(request('r2', 1n)), { kind: 'refused', by: 'balance' })
    t.equal(await store.settle(settlement('r1', 60n)), 60n, 'what was held was there')
    t.strictSame(await store.balance('acme'), { balance: 0n, held: 0n, open_holds: 0 })
    await t.rejects(async () => await debit('e', -1n), RangeError)
    await t.rejects(
      async () =>
        await store.book({ kind: 'refund', account: 'acme', reference: 'e', nanos: 2n ** 63n, reason: 'why' }),
      RangeError
    )
    await t.rejects(
      async () =>
        await store.book({ kind: 'refund', account: 'acme', reference: 'e', nanos: 1n, reason: 'half of \uD83D' }),
      RangeError
    )
    t.strictSame((await all(store)).map(({ kind, nanos }) => [kind, nanos]), [['credit', 100n], ['debit', -40n], [
      'settle',
      -60n
    ]])
    t.strictSame((await store.verify()).differences, [])
  })

  test('a debit racing with itself, with others and with holds counts once, and takes no more than there is',
    async (t, store) => {
      await store.credit('acme', 'c', 100n)
      const debit = async (reference: string): Promise<Booked> =>
        await store.book({ kind: 'debit', account: 'acme', reference, nanos: 30n, reason: 'why' })
      const [same, others, held] = await Promise.all([
        Promise.all(Array.from({ length: 20 }, async () => await debit('same'))),
        Promise.all(Array.from({ length: 20 }, async (_, i) => await debit(`d${i}`))),
        Promise.all(Array.from({ length: 20 }, async (_, i) => await store.hold(request(`r${i}`, 30n))))
      ])
      t.ok(same.filter((one) => one === 'new').length <= 1)
      t.strictSame([...new Set(same)].toSorted(), same.includes('new') ? ['known', 'new'] : ['short'],
        'all others say that it is known')
      const taken = [...same, ...others].filter((one) => one === 'new').length +
        held.filter(({ kind }) => kind === 'held').length
      t.ok(taken >= 1 && taken <= 3, `${taken} of 3`)
      const { balance, held: open } = await store.balance('acme')
      t.ok(balance - open >= 0n)
      t.equal(balance, total(await all(store)))
      t.strictSame((await store.verify()).differences, [])
    })

  test('negative amounts are refused, and change nothing', async (t, store) => {
    await store.credit('acme', 'c', 10n)
    await t.rejects(async () => await store.credit('acme', 'd', -1n), RangeError)
    await t.rejects(async () => await store.hold(request('r1', -1n)), RangeError)
    await store.hold(request('r2', 5n))
    await t.rejects(async () => await store.settle(settlement('r2', -1n)), RangeError)
    t.strictSame(await store.balance('acme'), { balance: 10n, held: 5n, open_holds: 1 })
    t.equal(await store.credit('acme', 'd', 1n), true, 'the reference of the refused credit is free')
  })

  test('a settled hold is an entry, and gives back what it did not need', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 60n))
    t.strictSame(await store.balance('acme'), { balance: 100n, held: 60n, open_holds: 1 })
    t.strictSame(await store.keyUsage('dev'), { spent: 0n, held: 60n })
    t.equal(await store.openHolds(), 1)

    const usage = { ...noUsage, input: 3, output: 4, extras: { web_search: 1 } }
    t.equal(await store.settle({ ...settlement('r1', 42n), usage, channel: 'cheap', usage_source: 'estimated' }), 42n)
    t.strictSame(await store.balance('acme'), { balance: 58n, held: 0n, open_holds: 0 })
    t.strictSame(await store.keyUsage('dev'), { spent: 42n, held: 0n })
    t.equal(await store.openHolds(), 0)
    const { id, at, ...entry } = (await all(store)).at(-1)!
    t.strictSame(entry, { kind: 'settle', account: 'acme', key: 'dev', reference: 'r1', nanos: -42n, model: 'm',
      channel: 'cheap', usage, usage_source: 'estimated' })
    t.match(at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    t.type(id, 'string')
  })

  test('what was free has its entry of zero', async (t, store) => {
    await store.hold(request('r1', 0n))
    t.equal(await store.settle(settlement('r1', 0n)), 0n)
    t.strictSame((await all(store)).map(({ kind, nanos }) => [kind, nanos]), [['settle', 0n]])
  })

  test('a settlement repeated changes nothing and answers as the first time (rule settle-once)', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 60n))
    const told = await Promise.all(
      [10n, 20n, 10n, 60n].map(async (nanos) => await store.settle(settlement('r1', nanos)))
    )
    t.strictSame(told, [10n, 10n, 10n, 10n])
    t.equal((await store.balance('acme')).balance, 90n)
    t.equal((await all(store)).filter(({ kind }) => kind === 'settle').length, 1)
  })

  test('a release gives everything back, once; settled or unknown, it does nothing (rule settle-once)',
    async (t, store) => {
      await store.credit('acme', 'c', 100n)
      await store.hold(request('r1', 60n))
      await store.hold(request('r2', 40n))
      await Promise.all([store.release('r1'), store.release('r1'), store.release('never')])
      t.strictSame(await store.balance('acme'), { balance: 100n, held: 40n, open_holds: 1 })
      await store.settle(settlement('r2', 40n))
      await store.release('r2')
      t.strictSame(await store.balance('acme'), { balance: 60n, held: 0n, open_holds: 0 })
      t.strictSame(await store.keyUsage('dev'), { spent: 40n, held: 0n })
    })

  test('there is nothing to settle without a hold, or after its release', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await t.rejects(async () => await store.settle(settlement('r1', 1n)), /r1/)
    await store.hold(request('r1', 60n))
    await store.release('r1')
    await t.rejects(async () => await store.settle(settlement('r1', 1n)), /r1/)
    t.strictSame(await store.balance('acme'), { balance: 100n, held: 0n, open_holds: 0 })
  })

  test('a request has one hold', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 1n))
    await t.rejects(async () => await store.hold(request('r1', 1n)), /r1/)
    await store.settle(settlement('r1', 1n))
    await t.rejects(async () => await store.hold(request('r1', 1n)), /r1/)
    t.strictSame(await store.balance('acme'), { balance: 99n, held: 0n, open_holds: 0 })
  })

  test('what an answer cost beyond its hold is the operator\'s, not the client\'s', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 60n))
    t.equal(await store.settle(settlement('r1', 75n)), 60n)
    t.equal((await store.balance('acme')).balance, 40n)
    t.equal((await store.keyUsage('dev')).spent, 60n)
    const [, settled, short] = await all(store)
    t.match(settled, { kind: 'settle', reference: 'r1', nanos: -60n })
    t.match(short, { kind: 'shortfall', account: 'acme', key: 'dev', reference: 'r1', nanos: 0n, shortfall: 15n,
      model: 'm' })
    t.equal(settled && 'shortfall' in settled, false)
  })

  test('a refusal tells what was compared, and changes nothing (rule say-numbers)', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    t.strictSame(await store.hold(request('r1', 101n)), { kind: 'refused', by: 'balance', needed: 101n, available: 100n,
      held_by_others: 0n })
    await store.hold(request('r2', 70n, { usage_limit: 80n }))
    t.strictSame(await store.hold(request('r3', 31n)), { kind: 'refused', by: 'balance', needed: 31n, available: 30n,
      held_by_others: 70n })
    t.strictSame(await store.hold(request('r4', 11n, { usage_limit: 80n })), { kind: 'refused', by: 'usage_limit',
      needed: 11n, available: 10n, held_by_others: 70n })
    await store.settle(settlement('r2', 50n))
    t.strictSame(await store.hold(request('r5', 31n, { usage_limit: 80n })), { kind: 'refused', by: 'usage_limit',
      needed: 31n, available: 30n, held_by_others: 0n })
    t.strictSame(await store.hold(request('r6', 30n, { usage_limit: 80n })), { kind: 'held', nanos: 30n },
      'to the last nano-dollar')
    t.strictSame(await store.balance('acme'), { balance: 50n, held: 30n, open_holds: 1 })
  })

  test('of two limits that refuse, the one that waiting cannot help is named', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 90n, { key: 'busy' }))
    t.match(await store.hold(request('r2', 20n, { usage_limit: 15n })), { by: 'usage_limit', available: 15n,
      held_by_others: 0n }, 'the balance would be free again')
    t.match(await store.hold(request('r3', 101n, { usage_limit: 15n })), { by: 'balance', available: 10n,
      held_by_others: 90n })
  })

  test('a limit that was lowered below what is spent refuses, with a negative rest', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 50n, { usage_limit: 80n }))
    await store.settle(settlement('r1', 50n))
    t.strictSame(await store.hold(request('r2', 1n, { usage_limit: 20n })), { kind: 'refused', by: 'usage_limit',
      needed: 1n, available: -30n, held_by_others: 0n })
  })

  onDays('a day\'s limit, and a month\'s, count what was charged to them, and refuse with its name and numbers',
    async (t, store) => {
      const limits = { usage_limit_day: 60n, usage_limit_month: 100n }
      await store.credit('acme', 'c', 1000n)
      await store.hold(request('r1', 40n, { day: '2026-03-30', ...limits }))
      t.strictSame(await store.hold(request('r2', 21n, { day: '2026-03-30', ...limits })), { kind: 'refused',
        by: 'usage_limit', needed: 21n, available: 20n, held_by_others: 40n, period: 'day' })
      await store.settle(settlement('r1', 30n))
      t.strictSame(await store.hold(request('r2', 31n, { day: '2026-03-30', ...limits })), { kind: 'refused',
        by: 'usage_limit', needed: 31n, available: 30n, held_by_others: 0n, period: 'day' })
      t.strictSame(await store.hold(request('r2', 30n, { day: '2026-03-30', ...limits })), { kind: 'held', nanos: 30n },
        'to the last nano-dollar')
      await store.settle(settlement('r2', 30n))
      t.strictSame(await store.hold(request('r3', 41n, { day: '2026-03-31', ...limits })), { kind: 'refused',
        by: 'usage_limit', needed: 41n, available: 40n, held_by_others: 0n, period: 'month' }, 'the day would have 60')
      t.match(await store.hold(request('r3', 40n, { day: '2026-03-31', ...limits })), { kind: 'held' })
      t.match(await store.hold(request('r4', 60n, { day: '2026-04-01', ...limits })), { kind: 'held' }, 'another month')
      t.match(await store.hold(request('r5', 60n, { key: 'other', day: '2026-03-30', ...limits })), { kind: 'held' },
        'another key')
      t.strictSame(
        await Promise.all(
          ['2026-03-30', '2026-03-31', '2026-03', '2026-04-01', '2026-04', undefined].map((period) =>
            store.keyUsage('dev', period)
          )
        ),
        [
          { spent: 60n, held: 0n },
          { spent: 0n, held: 40n },
          { spent: 60n, held: 40n },
          { spent: 0n, held: 60n },
          { spent: 0n, held: 60n },
          { spent: 60n, held: 100n }
        ]
      )
      t.strictSame((await store.verify()).differences, [])
    })

  onDays('a charge belongs to the day of its hold, however late it is settled, extended or given back',
    async (t, store) => {
      const usages = async (): Promise<unknown> =>
        await Promise.all(
          ['2026-03-31', '2026-03', '2026-04-01', '2026-04'].map((period) => store.keyUsage('dev', period))
        )
      const nothing = { spent: 0n, held: 0n }
      await store.credit('acme', 'c', 1000n)
      await store.hold(request('r1', 40n, { day: '2026-03-31', usage_limit_day: 60n }))
      await store.hold(request('r2', 50n, { day: '2026-04-01', usage_limit_day: 60n }))
      t.match(await store.extend('r1', 21n), { kind: 'refused', by: 'usage_limit', period: 'day', needed: 61n,
        available: 60n }, 'by the limit that it was taken with')
      t.match(await store.extend('r1', 20n), { kind: 'held', nanos: 60n })
      t.equal(await store.settle(settlement('r1', 55n)), 55n)
      await store.release('r2')
      t.strictSame(await usages(), [{ spent: 55n, held: 0n }, { spent: 55n, held: 0n }, nothing, nothing])
      t.match((await all(store)).at(-1), { kind: 'settle', reference: 'r1', day: '2026-03-31' })
      await store.refund('r1')
      t.strictSame(await usages(), [nothing, nothing, nothing, nothing])
      t.match((await all(store)).at(-1), { kind: 'adjust', reference: 'r1', day: '2026-03-31' })
      t.strictSame((await store.verify()).differences, [])
    })

  onDays('a day\'s spending counts before there is a limit for it', async (t, store) => {
    await store.credit('acme', 'c', 1000n)
    await store.hold(request('r1', 40n, { day: '2026-04-01' }))
    await store.settle(settlement('r1', 40n))
    await store.hold(request('r2', 7n, { day: '2026-04-01' }))
    t.match(await store.hold(request('r3', 4n, { day: '2026-04-01', usage_limit_day: 50n })), { kind: 'refused',
      period: 'day', available: 3n, held_by_others: 7n })
    t.match(await store.hold(request('r3', 1n, { day: '2026-04-01', usage_limit_month: 30n })), { kind: 'refused',
      period: 'month', available: -17n }, 'lowered below what was spent')
    t.match(await store.hold(request('r3', 100n, { day: '2026-04-01' })), { kind: 'held' },
      'or when there is none any more')
  })

  onDays('of several limits that refuse, that is named which waiting helps least', async (t, store) => {
    await store.credit('acme', 'c', 1000n)
    const day = '2026-04-01'
    t.match(
      await store.hold(request('r', 11n, { day, usage_limit: 10n, usage_limit_month: 10n, usage_limit_day: 10n })),
      { by: 'usage_limit', period: undefined }
    )
    t.match(
      await store.hold(request('r', 11n, { day, usage_limit: 20n, usage_limit_month: 10n, usage_limit_day: 10n })),
      { by: 'usage_limit', period: 'month' }
    )
    await store.hold(request('r1', 5n, { day }))
    t.match(await store.hold(request('r', 6n, { day, usage_limit: 10n, usage_limit_month: 10n, usage_limit_day: 5n })),
      { by: 'usage_limit', period: 'day', available: 0n, held_by_others: 5n }, 'the others wait for r1 only')
    t.match(await store.hold(request('r', 100n, { day, least: 5n, usage_limit: 50n, usage_limit_day: 10n })), {
      kind: 'refused',
      period: 'day',
      needed: 10n,
      available: 5n,
      held_by_others: 5n
    }, 'as much as the least of them has')
    await store.release('r1')
    t.strictSame(await store.hold(request('r', 100n, { day, least: 5n, usage_limit: 50n, usage_limit_day: 10n })), {
      kind: 'held',
      nanos: 10n
    })
  })

  onDays('a limit per day without a day, and a day that is none, are refused before anything is held',
    async (t, store) => {
      await store.credit('acme', 'c', 1000n)
      for (const more of [{ usage_limit_day: 5n }, { usage_limit_month: 5n }, { day: '2026-4-1' }, { day: '2026-04' }, {
        day: '2026-02-40'
      }]) {
        await t.rejects(async () => await store.hold(request('r', 1n, more)), RangeError, JSON.stringify(more, print))
      }
      t.strictSame(await store.balance('acme'), { balance: 1000n, held: 0n, open_holds: 0 })
    })

  onDays('the version of the price that was charged is in all entries of a request', async (t, store) => {
    await store.credit('acme', 'c', 1000n)
    await store.hold(request('r1', 40n))
    await store.settle({ ...settlement('r1', 45n), price_version: 'p1' })
    await store.refund('r1')
    t.strictSame((await all(store)).slice(1).map(({ kind, price_version, day }) => [kind, price_version, day]), [[
      'settle',
      'p1',
      undefined
    ], ['shortfall', 'p1', undefined], ['adjust', 'p1', undefined]])
  })

  void t.test('days that are over are forgotten, and the ledger keeps them', async (t) => {
    let time = Date.parse('2026-03-20T12:00Z')
    const store = await open(() => time)
    t.teardown(() => store.close())
    await store.credit('acme', 'c', 1000n)
    for (let i = 0; i < 20; i++, time += 86_400_000) {
      const day = new Date(time).toISOString().slice(0, 10)
      await store.hold(request(`r${i}`, 10n, { day, usage_limit_day: 10n }))
      t.match(await store.hold(request('more', 1n, { day, usage_limit_day: 10n })), { kind: 'refused',
        held_by_others: 10n })
      await store.settle(settlement(`r${i}`, 10n))
      t.strictSame((await store.verify()).differences, [], day)
    }
    t.strictSame(
      await Promise.all(
        ['2026-03-20', '2026-04-03', '2026-03', '2026-04-04', '2026-04-08', '2026-04'].map(async (period) =>
          (await store.keyUsage('dev', period)).spent
        )
      ),
      [0n, 0n, 0n, 10n, 10n, 80n]
    )
    t.strictSame((await all(store)).slice(1).map(({ day }) => day),
      Array.from({ length: 20 },
        (_, i) => new Date(Date.parse('2026-03-20') + i * 86_400_000).toISOString().slice(0, 10)))
  })

  void t.test('a day that is over is kept as long as a hold of it is open', async (t) => {
    let time = Date.parse('2026-03-20T12:00Z')
    const store = await open(() => time)
    t.teardown(() => store.close())
    await store.credit('acme', 'c', 1000n)
    await store.hold(request('slow', 7n, { day: '2026-03-20' }))
    for (let i = 0; i < 20; i++, time += 86_400_000) {
      const day = new Date(time).toISOString().slice(0, 10)
      await store.hold(request(`r${i}`, 10n, { day }))
      await store.settle(settlement(`r${i}`, 10n))
    }
    const usage = async (): Promise<unknown> =>
      await Promise.all(['2026-03-20', '2026-03'].map(async (period) => await store.keyUsage('dev', period)))
    t.strictSame(await usage(), [{ spent: 10n, held: 7n }, { spent: 120n, held: 7n }])
    await store.settle(settlement('slow', 7n))
    t.strictSame((await store.verify()).differences, [])
  })

  test('accounts and keys are apart', async (t, store) => {
    await store.credit('acme', 'c1', 100n)
    await store.credit('beta', 'c2', 100n)
    await store.hold(request('r1', 100n))
    t.match(await store.hold(request('r2', 100n, { account: 'beta', key: 'beta-dev', usage_limit: 100n })), {
      kind: 'held'
    })
    await store.settle(settlement('r1', 30n))
    t.equal((await store.balance('beta')).balance, 100n)
    t.strictSame(await store.keyUsage('beta-dev'), { spent: 0n, held: 100n })
  })

  test('entries sort by their ids as they were written', async (t, store) => {
    for (let i = 0; i < 50; i++) await store.credit('acme', `c${i}`, 1n)
    const entries = await all(store)
    t.strictSame(entries.map(({ reference }) => reference), Array.from({ length: 50 }, (_, i) => `c${i}`))
    t.strictSame(entries.map(({ id }) => id).toSorted(), entries.map(({ id }) => id))
    t.equal(new Set(entries.map(({ id }) => id)).size, 50)
    const times = entries.map(({ at }) => Date.parse(at))
    t.strictSame(times, times.toSorted((a, b) => a - b))
    t.ok(Math.abs(times[0]! - Date.now()) < 3_600_000, 'and they tell the time of day')
  })

  test('progress charges nothing while the request runs, and what is not open has none', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 60n))
    await store.progress(settlement('r1', 20n))
    await store.progress(settlement('never', 20n))
    t.strictSame(await store.balance('acme'), { balance: 100n, held: 60n, open_holds: 1 })
    await t.rejects(async () => await store.progress(settlement('r1', -1n)), RangeError)
    t.equal(await store.settle(settlement('r1', 10n)), 10n, 'less than noted: only the end counts')
    await store.progress(settlement('r1', 20n))
    t.strictSame((await all(store)).map(({ nanos }) => nanos), [100n, -10n])
  })

  test('a hold grows by all that is asked or by nothing, within the balance and the limit that it was taken with',
    async (t, store) => {
      await store.credit('acme', 'c', 100n)
      await store.hold(request('r1', 20n, { usage_limit: 80n }))
      t.strictSame(await store.extend('r1', 30n), { kind: 'held', nanos: 50n }, 'all together')
      t.strictSame(await store.extend('r1', 31n), { kind: 'refused', by: 'usage_limit', needed: 81n, available: 80n,
        held_by_others: 0n }, 'its own is not in the way')
      t.strictSame(await store.balance('acme'), { balance: 100n, held: 50n, open_holds: 1 },
        'a refusal changes nothing')
      await store.hold(request('r2', 40n, { key: 'other' }))
      t.strictSame(await store.extend('r1', 11n), { kind: 'refused', by: 'balance', needed: 61n, available: 60n,
        held_by_others: 40n })
      t.strictSame(await store.extend('r1', 10n), { kind: 'held', nanos: 60n }, 'up to what the refusal said')
      t.strictSame(await store.extend('r1', 0n), { kind: 'held', nanos: 60n })
      await t.rejects(async () => await store.extend('r1', -1n), RangeError)
      t.strictSame(await store.keyUsage('dev'), { spent: 0n, held: 60n })
      t.equal(await store.settle(settlement('r1', 60n)), 60n, 'what it grew by is paid from')
      await t.rejects(async () => await store.extend('r1', 1n), /r1/)
      await store.release('r2')
      await t.rejects(async () => await store.extend('r2', 1n), /r2/)
      await t.rejects(async () => await store.extend('never', 0n), /never/)
      t.strictSame(await store.balance('acme'), { balance: 40n, held: 0n, open_holds: 0 })
    })

  test('a hold that may grow by less than is asked grows by all that there is, of balance and limits the lowest',
    async (t, store) => {
      await store.credit('acme', 'c', 100n)
      await store.hold(request('r1', 20n, { usage_limit: 70n, day: '2026-03-14', usage_limit_day: 60n }))
      await store.hold(request('r2', 30n, { key: 'other' }))
      t.strictSame(await store.extend('r1', 500n, 41n), { kind: 'refused', by: 'balance', needed: 520n, available: 70n,
        held_by_others: 30n }, 'not even the least')
      t.strictSame(await store.extend('r1', 30n, 1n), { kind: 'held', nanos: 50n }, 'what fits is added whole')
      t.strictSame(await store.extend('r1', 500n, 1n), { kind: 'held', nanos: 60n }, 'by the limit of the day')
      t.match(await store.extend('r1', 500n, 1n), { kind: 'refused' }, 'there is no more')
      t.strictSame(await store.extend('r1', 500n, 0n), { kind: 'held', nanos: 60n }, 'at least nothing is there')
      t.strictSame(await store.extend('r2', 500n, 1n), { kind: 'held', nanos: 40n }, 'by the balance')
      await t.rejects(async () => await store.extend('r1', 1n, -1n), RangeError)
      t.equal(await store.settle(settlement('r1', 65n)), 60n)
      t.equal(await store.settle(settlement('r2', 40n)), 40n)
      t.strictSame(await store.balance('acme'), { balance: 0n, held: 0n, open_holds: 0 })
    })

  test('who needs less at least than is asked gets what is left in total, but never what others hold',
    async (t, store) => {
      await store.credit('acme', 'c', 100n)
      t.strictSame(await store.hold(request('r1', 150n, { least: 101n })), { kind: 'refused', by: 'balance',
        needed: 150n, available: 100n, held_by_others: 0n })
      t.strictSame(await store.hold(request('r2', 150n, { least: 50n })), { kind: 'held', nanos: 100n })
      t.strictSame(await store.hold(request('r3', 150n, { least: 50n })), { kind: 'refused', by: 'balance',
        needed: 100n, available: 0n, held_by_others: 100n }, 'what is there in total, when the other ends')
      await store.release('r2')
      t.strictSame(await store.hold(request('r4', 150n, { least: 50n, usage_limit: 70n })), { kind: 'held',
        nanos: 70n }, 'of several limits the lowest')
      t.strictSame(await store.hold(request('r5', 20n, { least: 10n })), { kind: 'held', nanos: 20n },
        'what fits is held whole')
      t.match(await store.hold(request('r6', 20n, { least: 5n })), { kind: 'refused', available: 10n },
        'no part of what others have left')
      t.match(await store.hold(request('r7', 150n, { least: 0n })), { kind: 'refused', needed: 150n },
        'at least nothing is no wish')
      t.strictSame(await store.balance('acme'), { balance: 100n, held: 90n, open_holds: 2 })
    })

  test('below the low balance who pays runs alone, and who pays nothing is not counted', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    const low = { low_balance: 50n }
    await store.hold(request('r1', 10n, low))
    t.match(await store.hold(request('r2', 10n, low)), { kind: 'held' },
      'the balance is not low yet, whatever is held of it')
    await store.settle(settlement('r1', 10n))
    await store.hold(request('r3', 45n, { key: 'big' }))
    await store.settle(settlement('r3', 45n))
    t.strictSame(await store.hold(request('r4', 10n, low)), { kind: 'refused', by: 'low_balance', needed: 10n,
      available: 35n, held_by_others: 10n })
    t.match(await store.hold(request('r5', 0n, low)), { kind: 'held' }, 'what is free waits for nobody')
    t.strictSame(await store.extend('r2', 5n), { kind: 'held', nanos: 15n }, 'who runs may go on')
    await store.release('r2')
    t.match(await store.hold(request('r6', 10n, low)), { kind: 'held' }, 'nor does anybody wait for what is free')
    t.match(await store.hold(request('r7', 50n, low)), { by: 'balance' }, 'what waiting can\'t help is named first')
    t.match(await store.hold(request('r8', 10n)), { kind: 'held' }, 'without a low balance')
  })

  test('a refund gives back the hold, or what the settlement took, once; and that is an entry', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.hold(request('open', 60n))
    await store.refund('open')
    t.strictSame(await store.balance('acme'), { balance: 100n, held: 0n, open_holds: 0 })
    await t.rejects(async () => await store.settle(settlement('open', 1n)), /open/, 'it comes too late')

    await store.hold(request('r1', 60n))
    await store.settle({ ...settlement('r1', 75n), usage: { ...noUsage, output: 3 } })
    await Promise.all([store.refund('r1'), store.refund('r1')])
    await store.refund('r1')
    await store.release('r1')
    t.strictSame(await store.balance('acme'), { balance: 100n, held: 0n, open_holds: 0 })
    t.strictSame(await store.keyUsage('dev'), { spent: 0n, held: 0n })
    t.equal(await store.settle(settlement('r1', 10n)), 0n, 'for good')
    await t.rejects(async () => await store.hold(request('r1', 1n)), /r1/)
    const { id: _id, at: _at, ...adjust } = (await all(store)).at(-1)!
    t.strictSame(adjust, { kind: 'adjust', account: 'acme', key: 'dev', reference: 'r1', nanos: 60n, model: 'm',
      channel: 'premium' }, 'what the client had paid; its tokens are in the settlement')
    t.strictSame((await all(store)).map(({ kind }) => kind), ['credit', 'settle', 'shortfall', 'adjust'])

    await store.hold(request('free', 0n))
    await store.settle(settlement('free', 0n))
    await store.refund('free')
    await store.refund('never')
    t.equal((await all(store)).length, 5, 'there was nothing to give back')
    t.strictSame((await store.verify()).differences, [])
  })

  test('a refund that overtakes the answer of the settlement gives back all the same', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    for (const [i, turns] of [0, 1, 2, 5].entries()) {
      await store.hold(request(`r${i}`, 60n))
      const settling = (async () => await store.settle(settlement(`r${i}`, 40n)))().catch(() => 'withdrawn')
      for (let turn = 0; turn < turns; turn++) await nextTurn()
      await store.refund(`r${i}`)
      t.ok([40n, 'withdrawn'].includes(await settling))
      t.strictSame(await store.balance('acme'), { balance: 100n, held: 0n, open_holds: 0 })
      t.strictSame(await store.keyUsage('dev'), { spent: 0n, held: 0n })
    }
    t.equal(total(await all(store)), 100n)
    t.strictSame((await store.verify()).differences, [])
  })

  test('amounts are exact in 64 bits, and refused beyond', async (t, store) => {
    const most = 2n ** 63n - 1n
    await t.rejects(async () => await store.credit('acme', 'c', most + 1n), RangeError)
    t.equal(await store.credit('acme', 'c', most - 1n), true, 'the reference of the refused credit is free')
    await t.rejects(async () => await store.credit('acme', 'd', 2n), RangeError)
    t.equal(await store.credit('acme', 'd', 1n), true)
    t.match(await store.hold(request('r1', most)), { kind: 'held' })
    await t.rejects(async () => await store.settle(settlement('r1', most + 1n)), RangeError)
    t.equal(await store.settle(settlement('r1', most - 5n)), most - 5n)
    t.equal((await store.balance('acme')).balance, 5n)
    await store.credit('acme', 'e', most - 5n)
    await t.rejects(async () => await store.hold(request('r2', 6n)), RangeError,
      'what a key has spent must be a number too')
    t.match(await store.hold(request('r3', 3n)), { kind: 'held' })
    await t.rejects(async () => await store.hold(request('r4', 3n)), RangeError, 'with what it holds')
    t.strictSame((await store.verify()).differences, [])
  })

  test('what can\'t be written down is refused before anything is charged', async (t, store) => {
    await t.rejects(async () => await store.credit('acme', 'half of \uD83D', 5n), RangeError)
    t.equal(await store.credit('acme', 'with a \0 in it', 5n), true)
    t.equal(await store.credit('acme', 'with a \0 in its middle', 5n), true)
    await store.hold(request('r1', 5n))
    for (const output of [0.5, NaN, Infinity, 2 ** 53]) {
      await t.rejects(async () => await store.settle({ ...settlement('r1', 5n), usage: { ...noUsage, output } }),
        RangeError)
    }
    t.strictSame(await store.balance('acme'), { balance: 10n, held: 5n, open_holds: 1 })
    t.strictSame((await all(store)).map(({ reference }) => reference), ['with a \0 in it', 'with a \0 in its middle'])
  })

  test('verify adds up what was written, and finds nothing else', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.credit('beta', 'd', 50n)
    await store.hold(request('r1', 60n))
    await store.settle(settlement('r1', 75n))
    await store.hold(request('r2', 40n))
    const [first, second] = await Promise.all([store.verify(), store.verify()])
    t.strictSame(first, { entries: 4, accounts: 2, keys: 1, differences: [] })
    t.equal(second, first, 'read once, however many ask')
  })

  test(
    'what was counted is told, and a request beyond the limit is refused with the time until one more would be admitted',
    async (t, store) => {
      const ask = async (i: number): Promise<AdmissionResult> =>
        await store.admit({ request_id: `r${i}`, windows: [{ name: 'k', limit: 3 }] })
      for (const [i, remaining] of [2, 1, 0].entries()) {
        const { kind, windows } = await ask(i)
        t.match({ kind, windows }, { kind: 'admitted', windows: [{ name: 'k', limit: 3, remaining }] })
        t.ok(isWait(windows[0]!.next_ms) && isWait(windows[0]!.reset_ms), 'when there will be more, and when all of it')
      }
      for (let i = 0; i < 5; i++) {
        const refused = await ask(3)
        t.match(refused, { kind: 'refused', by: 'window', name: 'k', windows: [{ name: 'k', limit: 3, remaining: 0 }] },
          'and a refusal counts for nothing')
        t.ok(isWait(refused.windows[0]!.next_ms) && isWait(refused.windows[0]!.reset_ms))
      }
      t.match(await store.admit({ request_id: 'r9', windows: [{ name: 'other', limit: 3 }] }), { kind: 'admitted',
        windows: [{ remaining: 2 }] })
    }
  )

  test('a limit may change from one question to the next, and no request is forgotten for it', async (t, store) => {
    const ask = async (limit: number): Promise<unknown> => {
      const { kind, windows: [{ remaining }] } = await store.admit({ request_id: 'r',
        windows: [{ name: 'k', limit }] }) as { kind: string, windows: [WindowState] }
      return [kind, remaining]
    }
    for (const remaining of [4, 3, 2]) t.strictSame(await ask(5), ['admitted', remaining])
    t.strictSame(await ask(3), ['refused', 0])
    t.strictSame(await ask(1), ['refused', 0], 'lower than what was admitted')
    t.strictSame(await ask(4), ['admitted', 0])
    t.strictSame(await ask(100), ['admitted', 95])
  })

  test('a request is counted in all its windows and takes its slot, or none of it', async (t, store) => {
    const key = { name: 'key', limit: 5 }
    const family = { name: 'family', limit: 2 }
    await store.admit({ request_id: 'holder', windows: [], slot: { name: 'taken', limit: 1 } })
    const left = async (): Promise<number[]> => (await store.admit({
      request_id: 'r',
      windows: [key, family],
      slot: { name: 'taken', limit: 1 }
    })).windows.map(({ remaining }) => remaining)
    t.strictSame(await left(), [5, 2], 'a slot that is taken refuses, and tells how the windows stand')
    t.match(await store.admit({ request_id: 'a', windows: [key, family], slot: { name: 's', limit: 1 } }), {
      kind: 'admitted',
      windows: [{ name: 'key', remaining: 4 }, { name: 'family', remaining: 1 }]
    })
    t.strictSame(await store.admit({ request_id: 'b', windows: [], slot: { name: 's', limit: 1 } }), { kind: 'refused',
      by: 'slot', name: 's', taken: 1, windows: [] })
    t.match(await store.admit({ request_id: 'b', windows: [key, family], slot: { name: 's', limit: 1 } }), {
      kind: 'refused',
      by: 'slot',
      name: 's',
      taken: 1
    })
    t.strictSame(await left(), [4, 1], 'what the slot refused is counted nowhere')
    t.match(await store.admit({ request_id: 'a', windows: [family] }), { kind: 'admitted',
      windows: [{ name: 'family', remaining: 0 }] }, 'counted once more, without another slot')
    t.match(await store.admit({ request_id: 'b', windows: [key, family], slot: { name: 'free', limit: 1 } }), {
      kind: 'refused',
      by: 'window',
      name: 'family',
      windows: [{ remaining: 4 }, { remaining: 0 }]
    })
    t.strictSame(await left(), [4, 0])
    t.match(await store.admit({ request_id: 'b', windows: [], slot: { name: 'free', limit: 1 } }), { kind: 'admitted',
      windows: [] }, 'what a window refused has no slot')
  })

  test('where a window and the slot refuse, the window is named: waiting for the slot would not help',
    async (t, store) => {
      const admission = { windows: [{ name: 'k', limit: 1 }], slot: { name: 's', limit: 1 } }
      await store.admit({ request_id: 'a', ...admission })
      t.match(await store.admit({ request_id: 'b', ...admission }), { kind: 'refused', by: 'window', name: 'k' })
    })

  test('what is only asked is answered like the real thing, and changes nothing', async (t, store) => {
    await store.credit('acme', 'opening:acme', 100n)
    const ask = async (nanos: bigint, more: Partial<HoldRequest> = {}): Promise<HoldResult> =>
      await store.wouldHold({ ...request('asked', nanos), ...more })
    t.strictSame(await ask(60n), { kind: 'held', nanos: 60n })
    t.strictSame(await ask(60n), { kind: 'held', nanos: 60n }, 'again and again')
    t.strictSame(await ask(101n), { kind: 'refused', by: 'balance', needed: 101n, available: 100n, held_by_others: 0n })
    t.strictSame(await ask(150n, { least: 1n }), { kind: 'held', nanos: 100n })
    await store.hold(request('real', 60n))
    t.strictSame(await ask(60n), { kind: 'refused', by: 'balance', needed: 60n, available: 40n, held_by_others: 60n })
    t.match(await ask(10n, { low_balance: 101n }), { kind: 'refused', by: 'low_balance' })
    t.match(await ask(10n, { usage_limit: 65n }), { kind: 'refused', by: 'usage_limit' })
    t.strictSame(await store.balance('acme'), { balance: 100n, held: 60n, open_holds: 1 })
    t.strictSame(await store.hold(request('asked', 40n)), { kind: 'held', nanos: 40n },
      'and the request can still have its hold')

    const admission = { windows: [{ name: 'k', limit: 2 }], slot: { name: 's', limit: 1 } }
    const wouldAdmit = async (): Promise<unknown[]> => {
      const { kind, windows: [window] } = await store.wouldAdmit({ request_id: 'asked', ...admission })
      return [kind, window!.remaining]
    }
    for (let i = 0; i < 3; i++) { t.strictSame(await wouldAdmit(), ['admitted', 2]) }
    await store.admit({ request_id: 'real', ...admission })
    t.strictSame(await wouldAdmit(), ['refused', 1], 'the slot is taken')
    await store.leave('real')
    await store.leave('asked')
    t.strictSame(await wouldAdmit(), ['admitted', 1])
    t.match(await store.admit({ request_id: 'asked', ...admission }), { kind: 'admitted', windows: [{ remaining: 0 }] })
    t.strictSame(await wouldAdmit().catch((error: Error) => error.message), 'the request asked has a slot already')
  })

  test('a slot is given back once, whoever gives it back how often', async (t, store) => {
    const take = async (id: string): Promise<string> =>
      (await store.admit({ request_id: id, windows: [], slot: { name: 's', limit: 2 } })).kind
    t.equal(await take('a'), 'admitted')
    t.equal(await take('b'), 'admitted')
    await Promise.all([store.leave('c'), store.leave('never')])
    t.equal(await take('c'), 'refused', 'who has none gives none back')
    await Promise.all([store.leave('a'), store.leave('a'), store.leave('a')])
    t.equal(await take('c'), 'admitted')
    t.equal(await take('d'), 'refused')
    await t.rejects(async () => await take('c'), /c/, 'a request has one slot')
    await store.leave('b')
    t.equal(await take('b'), 'admitted', 'and may take one again')
    t.match(await store.admit({ request_id: 'e', windows: [], slot: { name: 's', limit: 1 } }), { kind: 'refused',
      taken: 2 }, 'the limit was lowered meanwhile')
    t.match(await store.admit({ request_id: 'e', windows: [], slot: { name: 'S', limit: 1 } }), { kind: 'admitted' },
      'names are apart')
  })

  test('admissions in parallel never pass a limit, nor is any of it left over', async (t, store) => {
    const ask = (i: number): unknown =>
      store.admit({ request_id: `r${i}`, windows: [{ name: 'k', limit: 30 }, { name: 'wide', limit: 1000 }],
        slot: { name: 's', limit: 20 } })
    const told = await Promise.all(Array.from({ length: 100 }, (_, i) => ask(i))) as AdmissionResult[]
    t.equal(told.filter(({ kind }) => kind === 'admitted').length, 20)
    await Promise.all(told.map((_, i) => store.leave(`r${i}`)))
    const then = await Promise.all(told.map((_, i) => ask(i))) as AdmissionResult[]
    t.equal(then.filter(({ kind }) => kind === 'admitted').length, 10)
    t.match(await store.admit({ request_id: 'x', windows: [{ name: 'wide', limit: 1000 }] }), {
      windows: [{ remaining: 969 }]
    })
  })

  void t.test('what a refusal promises is kept to the millisecond', async (t) => {
    let time = 1_800_000_000_000
    const store = await open(() => time)
    t.teardown(() => store.close())
    const ask = async (limit = 2): Promise<AdmissionResult> =>
      await store.admit({ request_id: 'r', windows: [{ name: 'k', limit }] })
    const begin = time
    await ask()
    time = begin + 40_000
    t.match(await ask(), { kind: 'admitted', windows: [{ remaining: 0, next_ms: 20_000, reset_ms: 60_000 }] })
    t.match(await ask(), { kind: 'refused', windows: [{ next_ms: 20_000, reset_ms: 60_000 }] })
    t.match(await ask(1), { kind: 'refused', windows: [{ next_ms: 60_000 }] },
      'a lower limit waits for more of them to be over')
    time = begin + 59_999
    t.match(await ask(), { kind: 'refused', windows: [{ next_ms: 1, reset_ms: 40_001 }] })
    time = begin + 60_000
    t.match(await ask(), { kind: 'admitted', windows: [{ remaining: 0, next_ms: 40_000, reset_ms: 60_000 }] })
    time = begin + 200_000
    t.match(await ask(), { kind: 'admitted', windows: [{ remaining: 1, next_ms: 60_000, reset_ms: 60_000 }] })
    time = begin + 210_000
    const both = [{ name: 'k', limit: 3 }, { name: 'other', limit: 2 }]
    t.match(await store.admit({ request_id: 'r', windows: both }), { kind: 'admitted',
      windows: [{ remaining: 1, next_ms: 50_000, reset_ms: 60_000 },
        { remaining: 1, next_ms: 60_000, reset_ms: 60_000 }] }, 'each window by itself')
  })

  void t.test('concurrent holds never pass the balance or the usage limit (rule hold-first)', async (t) => {
    await t.resolves(fc.assert(fc.asyncProperty(
      fc.bigInt(0n, 1000n),
      fc.bigInt(0n, 1000n),
      fc.array(fc.bigInt(0n, 300n), { minLength: 1, maxLength: 30, size: 'max' }),
      async (balance, limit, wanted) => {
        const store = await open()
        try {
          await store.credit('acme', 'c', balance)
          const told = await Promise.all(
            wanted.map(async (nanos, i) => await store.hold(request(`r${i}`, nanos, { usage_limit: limit })))
          )
          const held = wanted.reduce((sum, nanos, i) => told[i]!.kind === 'held' ? sum + nanos : sum, 0n)
          const state = await store.balance('acme')
          same(state.held, held)
          if (held > balance || held > limit) throw new Error(`${held} held of ${balance} and ${limit}`)
          // Nor is anybody refused who would have fitted into what is left at the end.
          const room = balance < limit ? balance - held : limit - held
          wanted.forEach((nanos, i) => {
            if (told[i]!.kind === 'refused' && nanos <= room) {
              throw new Error(`${nanos} was refused with ${room} left`)
            }
          })
          // Everything costs twice as much as was held: still nothing goes below zero.
          await Promise.all(
            wanted.map(async (nanos, i) =>
              told[i]!.kind === 'held' ? await store.settle(settlement(`r${i}`, nanos * 2n)) : 0n
            )
          )
          same(await store.balance('acme'), { balance: balance - held, held: 0n, open_holds: 0 })
        } finally {
          await store.close()
        }
      }), { numRuns: runs }))
  })

  void t.test('any sequence of calls answers as a simple model does, and the books balance', async (t) => {
    await t.resolves(fc.assert(fc.asyncProperty(fc.array(call, { maxLength: 60, size: 'max' }), async (calls) => {
      const store = await open(() => APRIL)
      const model = new Model()
      try {
        for (const call of calls) {
          same(await answer(() => apply(store, call)), await answer(async () => apply(model, call)),
            JSON.stringify(call, print))
        }
        await audit(store, model)
      } finally {
        await store.close()
      }
    }), { numRuns: runs }))
  })
}

const APRIL = Date.parse('2026-04-01T12:00Z')
const DAYS = ['2026-03-31', '2026-04-01', '2026-04-02']

const ACCOUNTS = ['acme', 'beta']
const KEYS = [['acme', 'a1'], ['acme', 'a2'], ['beta', 'b1']] as const

type Call =
  | Pick<Booking, 'kind' | 'account' | 'reference' | 'nanos'>
  | { readonly kind: 'hold', readonly id: string, readonly key: number, readonly nanos: bigint,
    readonly more: Partial<HoldRequest> }
  | { readonly kind: 'extend', readonly id: string, readonly nanos: bigint, readonly least?: bigint }
  | { readonly kind: 'settle', readonly id: string, readonly nanos: bigint }
  | { readonly kind: 'release' | 'give back', readonly id: string }

// Few ids and small amounts, so that calls meet each other.
const id = fc.constantFrom('r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'r7', 'r8')
const nanos = fc.bigInt(0n, 60n)
const limits = { usage_limit: fc.bigInt(0n, 120n), least: fc.bigInt(0n, 30n), low_balance: fc.bigInt(0n, 150n) }
const ofDays = { day: fc.constantFrom(...DAYS), usage_limit_day: fc.bigInt(0n, 100n),
  usage_limit_month: fc.bigInt(0n, 120n) }
const call: fc.Arbitrary<Call> = fc.oneof(
  fc.record({ kind: fc.constantFrom('credit' as const, 'refund' as const, 'debit' as const),
    account: fc.constantFrom(...ACCOUNTS), reference: fc.constantFrom('c1', 'c2', 'c3', 'c4'),
    nanos: fc.bigInt(0n, 150n) }),
  fc.record({ kind: fc.constant('hold' as const), id, key: fc.nat(KEYS.length - 1), nanos,
    more: fc.oneof(fc.record(limits, { requiredKeys: [] }),
      fc.record({ ...limits, ...ofDays }, { requiredKeys: ['day'] })) }),
  fc.record({ kind: fc.constant('extend' as const), id, nanos, least: fc.bigInt(0n, 60n) }, {
    requiredKeys: ['kind', 'id', 'nanos']
  }),
  fc.record({ kind: fc.constant('settle' as const), id, nanos }),
  fc.record({ kind: fc.constantFrom('release' as const, 'give back' as const), id })
)

type Calls = Pick<Store, 'book' | 'hold' | 'extend' | 'settle' | 'release' | 'refund'>

async function apply (store: Calls, call: Call): Promise<unknown> {
  switch (call.kind) {
    case 'credit':
    case 'refund':
    case 'debit':
      return await store.book({ ...call, ...(call.kind !== 'credit' && { reason: `why ${call.reference}` }) })
    case 'settle':
      return await store.settle(settlement(call.id, call.nanos))
    case 'release':
      return await store.release(call.id)
    case 'give back':
      return await store.refund(call.id)
    case 'extend':
      return await store.extend(call.id, call.nanos, call.least)
    case 'hold': {
      const [account, key] = KEYS[call.key]!
      return await store.hold(request(call.id, call.nanos, { account, key, ...call.more }))
    }
  }
}

/** Says the contract once more, with no running sums: everything is added up again at every question. */
class Model implements Calls {
  readonly booked: Booking[] = []
  readonly requests: { held: HoldRequest, state: 'open' | 'released' | 'settled', charged: bigint, short: bigint }[] =
    []

  sum (of: (request: Model['requests'][number]) => bigint): bigint {
    return this.requests.reduce((total, request) => total + of(request), 0n)
  }

  balanceOf (account: string): bigint {
    return this.booked.filter((one) => one.account === account).reduce(
      (total, { kind, nanos }) => kind === 'debit' ? total - nanos : total + nanos,
      0n
    ) -
      this.sum(({ held, charged }) => held.account === account ? charged : 0n)
  }

  /** @param period what its day begins with */
  heldBy (field: 'account' | 'key', owner: string, period = ''): bigint {
    return this.sum(({ held, state }) =>
      state === 'open' && held[field] === owner && (held.day ?? '').startsWith(period) ? held.nanos : 0n
    )
  }

  spentBy (key: string, period = ''): bigint {
    return this.sum(({ held, charged }) => held.key === key && (held.day ?? '').startsWith(period) ? charged : 0n)
  }

  book (wanted: Booking): Booked {
    const { kind, account, reference, nanos } = wanted
    if (this.booked.some((one) => one.kind === kind && one.reference === reference)) return 'known'
    if (kind === 'debit' && nanos > this.balanceOf(account) - this.heldBy('account', account)) return 'short'
    this.booked.push(wanted)
    return 'new'
  }

  hold (held: HoldRequest): HoldResult {
    if (
      this.requests.some(({ held: { request_id }, state }) => request_id === held.request_id && state !== 'released')
    ) throw new Error('again')
    const { least = 0n, low_balance: low = 0n } = held
    const room = this.limitsOf(held).map(({ total }) => total).reduce((a, b) => a < b ? a : b)
    const nanos = least > 0n && room >= least && room < held.nanos ? room : held.nanos
    const refusal = this.refuse(held, nanos, 0n)
    if (refusal !== undefined) return refusal
    const others = this.heldBy('account', held.account)
    const balance = this.balanceOf(held.account)
    if (nanos > 0n && others > 0n && balance < low) {
      return { kind: 'refused', by: 'low_balance', needed: nanos, available: balance - others, held_by_others: others }
    }
    this.requests.push({ held: { ...held, nanos }, state: 'open', charged: 0n, short: 0n })
    return { kind: 'held', nanos }
  }

  extend (requestId: string, wanted: bigint, least = wanted): HoldResult {
    const open = this.requests.find(({ held, state }) => held.request_id === requestId && state === 'open')
    if (open === undefined) throw new Error('nothing to extend')
    const room = this.limitsOf(open.held).map(({ total, others }) => total - others).reduce((a, b) => a < b ? a : b)
    const nanos = open.held.nanos + (least <= room && room < wanted ? room : wanted)
    const refusal = this.refuse(open.held, nanos, open.held.nanos)
    if (refusal !== undefined) return refusal
    open.held = { ...open.held, nanos }
    return { kind: 'held', nanos }
  }

  limitsOf (
    held: HoldRequest
  ): { by: 'balance' | 'usage_limit', period?: 'day' | 'month', total: bigint, others: bigint }[] {
    return [
      { by: 'balance', total: this.balanceOf(held.account), others: this.heldBy('account', held.account) },
      ...(held.usage_limit === undefined
        ? []
        : [{ by: 'usage_limit' as const, total: held.usage_limit - this.spentBy(held.key),
          others: this.heldBy('key', held.key) }]),
      ...(['month', 'day'] as const).flatMap((period) => {
        const limit = held[`usage_limit_${period}`]
        const id = held.day?.slice(0, period === 'month' ? 7 : 10)
        return limit === undefined
          ? []
          : [{ by: 'usage_limit' as const, period, total: limit - this.spentBy(held.key, id),
            others: this.heldBy('key', held.key, id) }]
      })
    ]
  }

  refuse (held: HoldRequest, nanos: bigint, own: bigint): HoldResult | undefined {
    const limits = this.limitsOf(held).map(({ others, ...limit }) => ({ ...limit, others: others - own }))
    const broken = limits.find(({ total }) => nanos > total) ??
      limits.find(({ total, others }) => nanos > total - others)
    if (broken !== undefined) {
      return {
        kind: 'refused',
        by: broken.by,
        needed: nanos,
        available: broken.total - broken.others,
        held_by_others: broken.others,
        ...(broken.period !== undefined && { period: broken.period })
      }
    }
  }

  settle ({ request_id, nanos }: Settlement): bigint {
    const settled = this.requests.find(({ held, state }) => held.request_id === request_id && state === 'settled')
    if (settled !== undefined) return settled.charged
    const open = this.requests.find(({ held, state }) => held.request_id === request_id && state === 'open')
    if (open === undefined) throw new Error('nothing to settle')
    open.state = 'settled'
    open.charged = nanos > open.held.nanos ? open.held.nanos : nanos
    open.short = nanos - open.charged
    return open.charged
  }

  release (requestId: string): void {
    const open = this.requests.find(({ held, state }) => held.request_id === requestId && state === 'open')
    if (open !== undefined) open.state = 'released'
  }

  refund (requestId: string): void {
    this.release(requestId)
    for (const request of this.requests) if (request.held.request_id === requestId) request.charged = 0n
  }
}

/** balance = sum of entries; held = sum of open holds; nothing below zero; a reference once per kind. */
async function audit (store: Store, model: Model): Promise<void> {
  const entries = await all(store)
  for (const account of ACCOUNTS) {
    const state = await store.balance(account)
    const open = model.requests.filter(({ held, state }) => state === 'open' && held.account === account)
    same(state, { balance: model.balanceOf(account), held: model.heldBy('account', account), open_holds: open.length })
    same(state.balance, total(entries.filter((entry) => entry.account === account)), 'balance = sum of entries')
    if (state.balance - state.held < 0n) throw new Error(`${account} has less than nothing available`)
  }
  for (const [, key] of KEYS) {
    same(await store.keyUsage(key), { spent: model.spentBy(key), held: model.heldBy('key', key) })
    same((await store.keyUsage(key)).spent, -total(entries.filter((entry) => entry.key === key)))
    for (const period of [...DAYS, '2026-03', '2026-04']) {
      same(await store.keyUsage(key, period), { spent: model.spentBy(key, period),
        held: model.heldBy('key', key, period) }, period)
      same((await store.keyUsage(key, period)).spent, -total(entries.filter((entry) =>
        entry.key === key && entry.day?.startsWith(period) === true
      )))
    }
  }
  const ofBookings = entries.filter(({ kind }) => kind === 'credit' || kind === 'refund' || kind === 'debit')
  same(
    ofBookings.map(({ kind, account, reference, nanos, reason }) => [
      kind, account, reference, kind === 'debit' ? -nanos : nanos, reason
    ]),
    model.booked.map(({ kind, account, reference, nanos, reason }) => [kind, account, reference, nanos, reason])
  )
  same((await store.verify()).differences, [])
  same(await store.openHolds(), model.requests.filter(({ state }) => state === 'open').length)
  same(new Set(entries.map(({ kind, reference }) => `${kind} ${reference}`)).size, entries.length,
    'unique by kind and reference')
  same(entries.reduce((sum, { shortfall = 0n }) => sum + shortfall, 0n), model.sum(({ short }) => short))
}

function total (entries: readonly Entry[]): bigint {
  return entries.reduce((sum, { nanos }) => sum + nanos, 0n)
}

/** What a call returned, or only that it threw: each driver has its own words. */
async function answer (call: () => Promise<unknown>): Promise<unknown> {
  try {
    return await call()
  } catch {
    return 'threw'
  }
}

function same (found: unknown, wanted: unknown, what = ''): void {
  const [a, b] = [JSON.stringify(found, print), JSON.stringify(wanted, print)]
  if (a !== b) throw new Error(`${what}: found ${a}, wanted ${b}`)
}

function isWait (ms: number): boolean {
  return ms > 0 && ms <= 60_000
}

function print (_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? `${value}n` : value
}

function request (id: string, nanos: bigint, more: Partial<HoldRequest> = {}): HoldRequest {
  return { request_id: id, account: 'acme', key: 'dev', nanos, ...more }
}

function settlement (id: string, nanos: bigint): Settlement {
  return { request_id: id, nanos, model: 'm', channel: 'premium', usage: noUsage, usage_source: 'provider' }
}

/** @param after id of an entry: only those that follow it */
export async function all (store: Store, after?: string): Promise<Entry[]> {
  const entries: Entry[] = []
  for await (const entry of store.entries(after)) entries.push(entry)
  return entries
}
