// Each driver of the store against the conformance suite, and what only one of them does.
import t from 'tap'
import { JsonBytes } from '../../src/base/json-bytes.ts'
import { noUsage } from '../../src/money/usage.ts'
import { Books } from '../../src/store/local/balances.ts'
import { REMEMBERED } from '../../src/store/local/settled.ts'
import { MemoryStore } from '../../src/store/local/memory.ts'
import { Pages } from '../../src/store/local/pages.ts'
import { all, conformance } from '../support/store-conformance.ts'

void t.test('memory', async (t) => { conformance(t, async (now) => new MemoryStore(now)) })

void t.test('memory answers at once: an answer that is settled in it leaves in one write', async (t) => {
  const store = new MemoryStore()
  t.equal(store.credit('acme', 'c', 1n), true)
  t.strictSame(store.hold({ request_id: 'r', account: 'acme', key: 'k', nanos: 1n }), { kind: 'held', nanos: 1n })
  t.equal(store.release('r'), undefined)
})

void t.test('a change of a record that somebody else was faster with is refused', async (t) => {
  const store = new MemoryStore()
  const change = { record: { kind: 'key', id: 'k', version: 1, text: '{}' }, audit: '{}' } as const
  t.equal(await store.change(change), true)
  t.equal(await store.change(change), false)
  t.equal(await store.change({ ...change, record: { ...change.record, version: 2, text: '{"a":1}' } }), true)
})

void t.test('a clock that is set back does not disorder the ledger', async (t) => {
  const times = [1_800_000_000_000, 1_700_000_000_000, 1_800_000_000_001]
  const store = new MemoryStore(() => times.shift()!)
  for (const reference of ['a', 'b', 'c']) store.credit('acme', reference, 1n)
  const entries = await all(store)
  t.strictSame(entries.map(({ reference }) => reference), ['a', 'b', 'c'])
  t.strictSame(entries.map(({ id }) => id).toSorted(), entries.map(({ id }) => id))
  t.strictSame(entries.map(({ at }) => Date.parse(at)), [1_800_000_000_000, 1_800_000_000_000, 1_800_000_000_001])
})

void t.test('what was read from the store cannot be changed through it', async (t) => {
  const store = new MemoryStore()
  store.credit('acme', 'c', 5n)
  Object.assign(store.balance('acme'), { balance: 1000n })
  t.equal(store.balance('acme').balance, 5n)
  for await (const entry of store.entries()) t.throws(() => { Object.assign(entry, { nanos: 1000n }) }, TypeError)
})

void t.test('pages give back every line, one that is longer than a page too', (t) => {
  const pages = new Pages()
  const lines = ['a', 'é'.repeat(200_000), 'b', '界'.repeat(300_000), 'c', 'x'.repeat(90_000), 'y'.repeat(90_000), 'd']
  const bytes = new JsonBytes()
  for (const line of lines) {
    bytes.clear()
    bytes.raw(line)
    pages.add(bytes)
  }
  t.ok([...pages.lines()].every((line, i) => line === lines[i]))
  t.equal([...pages.lines()].length, lines.length)
  t.end()
})

void t.test('a refund tells the model, channel and price of its own settlement, whatever was settled since', async (t) => {
  const store = new MemoryStore()
  await store.credit('acme', 'c', 1000n)
  const bills = [['m1', 'premium', 'v1'], ['m2', 'premium', 'v1'], ['m2', 'value', 'v1'], ['m2', 'value', 'v2']] as const
  for (const [i, [model, channel, version]] of bills.entries()) {
    await store.hold({ request_id: `r${i}`, account: 'acme', key: 'k', nanos: 5n })
    await store.settle({ request_id: `r${i}`, nanos: 5n, model, channel, usage: noUsage, usage_source: 'provider',
      price_version: version })
  }
  for (const i of bills.keys()) await store.refund(`r${i}`)
  const told: unknown[] = []
  for await (const { kind, model, channel, price_version: version } of store.entries()) {
    if (kind === 'adjust') told.push([model, channel, version])
  }
  t.strictSame(told, bills)
  t.equal((await store.balance('acme')).balance, 1000n)
})

void t.test('settlements that are undone make no others forgotten', (t) => {
  const books = new Books()
  books.load('account', 'a', 1000n)
  const settle = (id: string): ReturnType<Books['settle']> =>
    books.settle({ request_id: id, nanos: 5n, model: 'm', usage: noUsage, usage_source: 'provider' })
  const hold = (id: string): void => { books.hold({ request_id: id, account: 'a', key: 'k', nanos: 5n }, 0) }
  for (const id of ['req_1', 'req_2']) hold(id)
  settle('req_1')
  for (let i = 0; i < 2 * REMEMBERED + 10; i++) books.revoke(settle('req_2')!)
  for (let i = 0; i < REMEMBERED + 10; i++) {
    hold(`req_3${i}`)
    books.revoke(settle(`req_3${i}`)!)
    books.release(`req_3${i}`)
  }
  t.equal(books.chargeOf('req_1'), 5n)
  t.equal(settle('req_1'), undefined)
  t.strictSame(books.balance('a'), { balance: 995n, held: 5n, open_holds: 1 })
  t.end()
})

void t.test('of the requests that were settled last so many are remembered, and those of long ago are not', (t) => {
  const books = new Books()
  for (let i = 1; i < 2 * REMEMBERED; i++) books.remember(`r${i}`, BigInt(i))
  const [first, last] = [REMEMBERED, 2 * REMEMBERED - 1]
  for (const i of [first, first + 1, last]) t.equal(books.chargeOf(`r${i}`), BigInt(i))
  books.remember('next', 1n)
  t.equal(books.chargeOf(`r${first}`), undefined)
  t.equal(books.chargeOf(`r${first + 1}`), BigInt(first + 1))
  t.end()
})
