// What is in the store that test/fixtures/store/make.ts has made, by whatever version, and whatever driver opens it.
import type { Test } from 'tap'
import type { EntryKind, Records, Store } from '../../src/store/store.ts'
import type { Answers, Tasks } from '../../src/store/tasks.ts'
import { settlement } from './embedded-store.ts'
import { all } from './store-conformance.ts'
import { DAY } from './store-kept.ts'

type Charge = readonly [kind: EntryKind, reference: string, nanos: bigint]

const OPENING = 9_007_199_254_740_993n

/** @param late what is charged for the process that died, after all that it had charged itself */
export async function keptConformance (
  t: Test, store: Store & Records & Tasks & Answers, late: readonly Charge[]
): Promise<void> {
  const charged = late.reduce((sum, [, , nanos]) => sum - nanos, 900n)
  t.strictSame(await store.balance('acme'), { balance: OPENING + 20n - 30n - charged, held: 500n, open_holds: 1 })
  t.equal((await store.balance('other')).balance, 5n)
  for (const period of [undefined, DAY, DAY.slice(0, 7)]) {
    t.strictSame(await store.keyUsage('acme-dev', period), { spent: charged, held: 500n })
  }

  const entries = (await all(store)).filter(({ account }) => account === 'acme')
  t.strictSame(entries.map(({ kind, reference, nanos }) => [kind, reference, nanos]), [
    ['credit', 'opening:acme', OPENING], ['refund', 'ticket', 20n], ['debit', 'fee', -30n],
    ['settle', 'charged', -100n], ['shortfall', 'charged', 0n],
    ['settle', 'refunded', -70n], ['adjust', 'refunded', 70n],
    ['settle', 'free', 0n], ['settle', 'video-1', -800n],
    ...late
  ])
  t.match(entries[1], { reason: 'cut off: "\u2028é"', at: '2026-11-22T12:00:00.000Z' })
  t.match(entries[3], {
    key: 'acme-dev', day: DAY, model: 'm', channel: 'premium', price_version: 'p1',
    usage: { input: 3, output: 5, extras: { web_search: 2 } }, usage_source: 'provider'
  })
  t.equal(entries[4]!.shortfall, 50n)
  for (const entry of entries.slice(-late.length)) t.match(entry, { usage: { output: 4 }, usage_source: 'estimated' })
  const { differences, ...counts } = await store.verify()
  t.strictSame(counts, { entries: entries.length + 1, accounts: 2, keys: 2 })
  t.strictSame(differences, [])

  t.strictSame((await store.records()).toSorted((a, b) => a.kind < b.kind ? -1 : 1), [
    { kind: 'account', id: 'acme', version: 2, text: '{"settings":{"name":"Two: \u2028é"}}' },
    { kind: 'key', id: 'acme-dev', version: 1, text: '{"account":"acme"}' }
  ])
  t.strictSame((await store.changes(0, 10)).map(({ id, text }) => [id, text]), [
    [1, '{"made":"acme"}'], [2, '{"renamed":"acme"}'], [3, '{"made":"acme-dev"}'], [4, '{"only":"a line"}']
  ])
  const known = { kind: 'key' as const, id: 'acme-dev', version: 1, text: '{}' }
  t.equal(await store.change({ record: known, audit: '{}' }), false, 'a version is written once')

  t.match(await store.task('made'), {
    account: 'acme', key: 'acme-dev', request_id: 'video-1', is_open: false, nanos: 800n, text: '{"done":true}'
  })
  t.match(store.openTasks(), [
    { id: 'open', request_id: 'video-2', is_open: true, nanos: 500n, text: '{"progress":50}' }
  ])
  t.strictSame((await store.tasks('acme', { limit: 10, order: 'asc' }))?.map(({ id }) => id), ['made', 'open'])
  const again = await store.answer('acme', 'again')
  t.match(again, { hash: 'h', request_id: 'charged', text: '{"odd":"\u2028é"}' })
  t.match(await store.answer('acme', 'of the video'), { request_id: 'video-1', text: undefined })
  t.equal(await store.answer('acme', 'refunded'), undefined)

  // What was done once is not done again.
  t.equal(await store.credit('acme', 'opening:acme', 5n), false)
  t.equal(await store.amountOf('credit', 'opening:acme'), OPENING)
  for (const [kind, reference] of [['refund', 'ticket'], ['debit', 'fee']] as const) {
    t.equal(await store.book({ kind, account: 'acme', reference, nanos: 1n }), 'known')
  }
  // And what was begun ends.
  const { request_id: _, ...bill } = settlement('', 450n)
  t.equal(await store.endTask('open', '{"done":true}', bill), 450n)
  t.equal((await store.balance('acme')).held, 0n)
  t.strictSame((await store.verify()).differences, [])
}
