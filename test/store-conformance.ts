// What every driver of the store must do: test/store.test.ts runs it against each.
import fc from 'fast-check'
import type { Test } from 'tap'
import { noUsage } from '../src/money/usage.ts'
import type { Entry, HoldRequest, HoldResult, Settlement, Store } from '../src/store/store.ts'

/** @param open an empty store; the suite closes it */
export function conformance (t: Test, open: () => Promise<Store>): void {
  const test = (sentence: string, body: (t: Test, store: Store) => Promise<void>): void => {
    void t.test(sentence, async (t) => {
      const store = await open()
      t.teardown(() => store.close())
      await body(t, store)
    })
  }

  test('an account that was never credited has nothing, and can hold nothing', async (t, store) => {
    t.strictSame(await store.balance('nobody'), { balance: 0n, held: 0n, open_holds: 0 })
    t.strictSame(await store.keyUsage('nokey'), { spent: 0n, held: 0n })
    t.strictSame(await store.hold(request('r1', 1n)), { kind: 'refused', by: 'balance', needed: 1n, available: 0n, held_by_others: 0n })
    t.strictSame(await store.hold(request('r2', 0n)), { kind: 'held' }, 'but what is free needs no balance')
    t.strictSame(await all(store), [])
  })

  test('a credit counts once per reference, ever', async (t, store) => {
    t.equal(await store.credit('acme', 'opening:acme', 25n), true)
    t.equal(await store.credit('acme', 'opening:acme', 25n), false)
    t.equal(await store.credit('other', 'opening:acme', 25n), false, 'a reference is unique over all accounts')
    t.equal(await store.credit('acme', 'invoice:1', 5n), true)
    t.equal((await store.balance('acme')).balance, 30n)
    t.equal((await store.balance('other')).balance, 0n)
    t.strictSame((await all(store)).map(({ kind, reference, nanos }) => [kind, reference, nanos]), [['credit', 'opening:acme', 25n], ['credit', 'invoice:1', 5n]])
  })

  test('a credit racing with itself counts once', async (t, store) => {
    const told = await Promise.all(Array.from({ length: 20 }, async () => await store.credit('acme', 'same', 7n)))
    t.equal(told.filter(Boolean).length, 1)
    t.equal((await store.balance('acme')).balance, 7n)
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
    t.strictSame(entry, { kind: 'settle', account: 'acme', key: 'dev', reference: 'r1', nanos: -42n, model: 'm', channel: 'cheap', usage, usage_source: 'estimated' })
    t.match(at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    t.type(id, 'string')
  })

  test('what was free has its entry of zero', async (t, store) => {
    await store.hold(request('r1', 0n))
    t.equal(await store.settle(settlement('r1', 0n)), 0n)
    t.strictSame((await all(store)).map(({ kind, nanos }) => [kind, nanos]), [['settle', 0n]])
  })

  test('a settlement repeated changes nothing and answers as the first time (lesson 7)', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 60n))
    const told = await Promise.all([10n, 20n, 10n, 60n].map(async (nanos) => await store.settle(settlement('r1', nanos))))
    t.strictSame(told, [10n, 10n, 10n, 10n])
    t.equal((await store.balance('acme')).balance, 90n)
    t.equal((await all(store)).filter(({ kind }) => kind === 'settle').length, 1)
  })

  test('a release gives everything back, once; settled or unknown, it does nothing (lesson 7)', async (t, store) => {
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
    t.match(short, { kind: 'shortfall', account: 'acme', key: 'dev', reference: 'r1', nanos: 0n, shortfall: 15n, model: 'm' })
    t.equal(settled && 'shortfall' in settled, false)
  })

  test('a refusal tells what was compared, and changes nothing (lesson 9)', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    t.strictSame(await store.hold(request('r1', 101n)), { kind: 'refused', by: 'balance', needed: 101n, available: 100n, held_by_others: 0n })
    await store.hold(request('r2', 70n, { usage_limit: 80n }))
    t.strictSame(await store.hold(request('r3', 31n)), { kind: 'refused', by: 'balance', needed: 31n, available: 30n, held_by_others: 70n })
    t.strictSame(await store.hold(request('r4', 11n, { usage_limit: 80n })), { kind: 'refused', by: 'usage_limit', needed: 11n, available: 10n, held_by_others: 70n })
    await store.settle(settlement('r2', 50n))
    t.strictSame(await store.hold(request('r5', 31n, { usage_limit: 80n })), { kind: 'refused', by: 'usage_limit', needed: 31n, available: 30n, held_by_others: 0n })
    t.strictSame(await store.hold(request('r6', 30n, { usage_limit: 80n })), { kind: 'held' }, 'to the last nano-dollar')
    t.strictSame(await store.balance('acme'), { balance: 50n, held: 30n, open_holds: 1 })
  })

  test('of two limits that refuse, the one that waiting cannot help is named', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 90n, { key: 'busy' }))
    t.match(await store.hold(request('r2', 20n, { usage_limit: 15n })), { by: 'usage_limit', available: 15n, held_by_others: 0n }, 'the balance would be free again')
    t.match(await store.hold(request('r3', 101n, { usage_limit: 15n })), { by: 'balance', available: 10n, held_by_others: 90n })
  })

  test('a limit that was lowered below what is spent refuses, with a negative rest', async (t, store) => {
    await store.credit('acme', 'c', 100n)
    await store.hold(request('r1', 50n, { usage_limit: 80n }))
    await store.settle(settlement('r1', 50n))
    t.strictSame(await store.hold(request('r2', 1n, { usage_limit: 20n })), { kind: 'refused', by: 'usage_limit', needed: 1n, available: -30n, held_by_others: 0n })
  })

  test('accounts and keys are apart', async (t, store) => {
    await store.credit('acme', 'c1', 100n)
    await store.credit('beta', 'c2', 100n)
    await store.hold(request('r1', 100n))
    t.match(await store.hold(request('r2', 100n, { account: 'beta', key: 'beta-dev', usage_limit: 100n })), { kind: 'held' })
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
  })

  void t.test('concurrent holds never pass the balance or the usage limit (lesson 4)', async (t) => {
    await t.resolves(fc.assert(fc.asyncProperty(
      fc.bigInt(0n, 1000n), fc.bigInt(0n, 1000n), fc.array(fc.bigInt(0n, 300n), { minLength: 1, maxLength: 30 }),
      async (balance, limit, wanted) => {
        const store = await open()
        try {
          await store.credit('acme', 'c', balance)
          const told = await Promise.all(wanted.map(async (nanos, i) => await store.hold(request(`r${i}`, nanos, { usage_limit: limit }))))
          const held = wanted.reduce((sum, nanos, i) => told[i]!.kind === 'held' ? sum + nanos : sum, 0n)
          const state = await store.balance('acme')
          same(state.held, held)
          if (held > balance || held > limit) throw new Error(`${held} held of ${balance} and ${limit}`)
          // Nor is anybody refused who would have fitted into what is left at the end.
          const room = balance < limit ? balance - held : limit - held
          wanted.forEach((nanos, i) => { if (told[i]!.kind === 'refused' && nanos <= room) throw new Error(`${nanos} was refused with ${room} left`) })
          // Everything costs twice as much as was held: still nothing goes below zero.
          await Promise.all(wanted.map(async (nanos, i) => told[i]!.kind === 'held' ? await store.settle(settlement(`r${i}`, nanos * 2n)) : 0n))
          same(await store.balance('acme'), { balance: balance - held, held: 0n, open_holds: 0 })
        } finally {
          await store.close()
        }
      })))
  })

  void t.test('any sequence of calls answers as a simple model does, and the books balance', async (t) => {
    await t.resolves(fc.assert(fc.asyncProperty(fc.array(call, { maxLength: 60 }), async (calls) => {
      const store = await open()
      const model = new Model()
      try {
        for (const call of calls) same(await answer(() => apply(store, call)), await answer(async () => apply(model, call)), JSON.stringify(call, print))
        await audit(store, model)
      } finally {
        await store.close()
      }
    }), { numRuns: 200 }))
  })
}

const ACCOUNTS = ['acme', 'beta']
const KEYS = [['acme', 'a1'], ['acme', 'a2'], ['beta', 'b1']] as const

type Call =
  | { readonly kind: 'credit', readonly account: string, readonly reference: string, readonly nanos: bigint }
  | { readonly kind: 'hold', readonly id: string, readonly key: number, readonly nanos: bigint, readonly limit: bigint | undefined }
  | { readonly kind: 'settle', readonly id: string, readonly nanos: bigint }
  | { readonly kind: 'release', readonly id: string }

// Few ids and small amounts, so that calls meet each other.
const id = fc.constantFrom('r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'r7', 'r8')
const nanos = fc.bigInt(0n, 60n)
const call: fc.Arbitrary<Call> = fc.oneof(
  fc.record({ kind: fc.constant('credit' as const), account: fc.constantFrom(...ACCOUNTS), reference: fc.constantFrom('c1', 'c2', 'c3', 'c4'), nanos: fc.bigInt(0n, 150n) }),
  fc.record({ kind: fc.constant('hold' as const), id, key: fc.nat(KEYS.length - 1), nanos, limit: fc.option(fc.bigInt(0n, 120n), { nil: undefined }) }),
  fc.record({ kind: fc.constant('settle' as const), id, nanos }),
  fc.record({ kind: fc.constant('release' as const), id })
)

type Calls = Pick<Store, 'credit' | 'hold' | 'settle' | 'release'>

async function apply (store: Calls, call: Call): Promise<unknown> {
  switch (call.kind) {
    case 'credit': return await store.credit(call.account, call.reference, call.nanos)
    case 'settle': return await store.settle(settlement(call.id, call.nanos))
    case 'release': return await store.release(call.id)
    case 'hold': {
      const [account, key] = KEYS[call.key]!
      return await store.hold(request(call.id, call.nanos, { account, key, ...(call.limit !== undefined && { usage_limit: call.limit }) }))
    }
  }
}

/** Says the contract once more, with no running sums: everything is added up again at every question. */
class Model implements Calls {
  readonly credits: { account: string, reference: string, nanos: bigint }[] = []
  readonly requests: { held: HoldRequest, state: 'open' | 'released' | 'settled', charged: bigint, short: bigint }[] = []

  sum (of: (request: Model['requests'][number]) => bigint): bigint {
    return this.requests.reduce((total, request) => total + of(request), 0n)
  }

  balanceOf (account: string): bigint {
    return this.credits.filter((credit) => credit.account === account).reduce((total, { nanos }) => total + nanos, 0n) -
      this.sum(({ held, charged }) => held.account === account ? charged : 0n)
  }

  heldBy (field: 'account' | 'key', owner: string): bigint {
    return this.sum(({ held, state }) => state === 'open' && held[field] === owner ? held.nanos : 0n)
  }

  spentBy (key: string): bigint {
    return this.sum(({ held, charged }) => held.key === key ? charged : 0n)
  }

  credit (account: string, reference: string, nanos: bigint): boolean {
    if (this.credits.some((credit) => credit.reference === reference)) return false
    this.credits.push({ account, reference, nanos })
    return true
  }

  hold (held: HoldRequest): HoldResult {
    if (this.requests.some(({ held: { request_id }, state }) => request_id === held.request_id && state !== 'released')) throw new Error('again')
    const limits = [
      { by: 'balance' as const, total: this.balanceOf(held.account), others: this.heldBy('account', held.account) },
      ...(held.usage_limit === undefined ? [] : [{ by: 'usage_limit' as const, total: held.usage_limit - this.spentBy(held.key), others: this.heldBy('key', held.key) }])
    ]
    const broken = limits.find(({ total }) => held.nanos > total) ?? limits.find(({ total, others }) => held.nanos > total - others)
    if (broken !== undefined) return { kind: 'refused', by: broken.by, needed: held.nanos, available: broken.total - broken.others, held_by_others: broken.others }
    this.requests.push({ held, state: 'open', charged: 0n, short: 0n })
    return { kind: 'held' }
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
  }
  same(await store.openHolds(), model.requests.filter(({ state }) => state === 'open').length)
  same(new Set(entries.map(({ kind, reference }) => `${kind} ${reference}`)).size, entries.length, 'unique by kind and reference')
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

function print (_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? `${value}n` : value
}

function request (id: string, nanos: bigint, more: Partial<HoldRequest> = {}): HoldRequest {
  return { request_id: id, account: 'acme', key: 'dev', nanos, ...more }
}

function settlement (id: string, nanos: bigint): Settlement {
  return { request_id: id, nanos, model: 'm', channel: 'premium', usage: noUsage, usage_source: 'provider' }
}

export async function all (store: Store): Promise<Entry[]> {
  const entries: Entry[] = []
  for await (const entry of store.entries()) entries.push(entry)
  return entries
}
