// What each driver's rollups and newest entries must be: said once more, from all entries, without any running sums.
import fc from 'fast-check'
import type { Test } from 'tap'
import { ITEMS, type Usage } from '../../src/money/usage.ts'
import type { EntryQuery, Failure, Rollup, RollupGroup, RollupQuery, Rollups } from '../../src/store/rollups.ts'
import type { Entry, Store } from '../../src/store/store.ts'
import { all } from './store-conformance.ts'
import { until } from './until.ts'

export type Summing = Store & Rollups

export const HOUR = 3_600_000
export const DAY = 24 * HOUR
const GROUPS: readonly RollupGroup[] = ['account', 'key', 'model', 'channel']

/** A failure, and the time at which it was told. */
export interface Failed extends Failure {
  readonly at: number
}

interface Part {
  readonly time: number
  readonly members: Readonly<Record<RollupGroup, string>>
  readonly requests: number
  readonly errors: number
  readonly usage?: Usage | undefined
  readonly nanos: bigint
  readonly shortfall: bigint
}

/** The rollups of a query, from entries and failures. */
export function recomputed (
  entries: readonly Entry[],
  failures: readonly Failed[],
  { by, from, to, groups, only }: RollupQuery
): Rollup[] {
  const parts: Part[] = [
    ...entries.filter(({ kind }) => ['settle', 'adjust', 'shortfall'].includes(kind)).map((entry): Part => ({
      time: Date.parse(entry.at), members: membersOf(entry), requests: entry.kind === 'settle' ? 1 : 0, errors: 0,
      usage: entry.kind === 'settle' ? entry.usage : undefined, nanos: -entry.nanos, shortfall: entry.shortfall ?? 0n
    })),
    ...failures.map((one): Part => ({ time: one.at, members: membersOf(one), requests: 0, errors: 1, nanos: 0n,
      shortfall: 0n }))
  ]
  const shown = { hour: 13, day: 10, month: 7, span: 13 }[by]
  const found = new Map<string, Part[]>()
  for (const part of parts) {
    const begun = Date.parse(new Date(part.time).toISOString().slice(0, shown) + '0000-01-01T00:00Z'.slice(shown))
    if (begun < from || begun >= to) continue
    const start = by === 'span' ? from : begun
    if (GROUPS.some((group) => only[group] !== undefined && only[group] !== part.members[group])) continue
    const name = JSON.stringify([start, ...GROUPS.map((group) => groups.includes(group) ? part.members[group] : '')])
    found.set(name, [...found.get(name) ?? [], part])
  }
  return [...found].map(([name, of]): Rollup => {
    const [start, ...members] = JSON.parse(name) as [number, ...string[]]
    const total = (value: (part: Part) => number | undefined): number =>
      of.reduce((sum, part) => sum + (value(part) ?? 0), 0)
    const extras = ITEMS.map((item) => [item, total(({ usage }) => usage?.extras[item])] as const)
    return {
      from: start,
      ...Object.fromEntries(GROUPS.map((group, i) => [group, members[i]!] as const)
        .filter(([group, member]) => groups.includes(group) && (group !== 'channel' || member !== ''))),
      requests: total(({ requests }) => requests),
      errors: total(({ errors }) => errors),
      usage: {
        input: total(({ usage }) => usage?.input),
        cache_read: total(({ usage }) => usage?.cache_read),
        cache_write_5m: total(({ usage }) => usage?.cache_write_5m),
        cache_write_1h: total(({ usage }) => usage?.cache_write_1h),
        output: total(({ usage }) => usage?.output),
        extras: Object.fromEntries(extras.filter(([, count]) => count !== 0))
      },
      nanos: of.reduce((sum, { nanos }) => sum + nanos, 0n),
      shortfall: of.reduce((sum, { shortfall }) => sum + shortfall, 0n)
    }
  }).toSorted(byPeriodAndMembers)
}

function membersOf ({ account, key = '', model = '', channel = '' }: Partial<Failure> & { readonly account: string }):
Part['members'] {
  return { account, key, model, channel }
}

export function byPeriodAndMembers (a: Rollup, b: Rollup): number {
  const name = ({ account = '', key = '', model = '', channel = '' }: Rollup): string =>
    [account, key, model, channel].join('\n')
  return a.from - b.from || (name(a) < name(b) ? -1 : 1)
}

/** Asks for rollups in many ways. @throws {Error} the answers are not those of all entries */
export async function auditRollups (store: Summing, failures: readonly Failed[]): Promise<void> {
  const entries = await all(store)
  const times = [...entries.map(({ at }) => Date.parse(at)), ...failures.map(({ at }) => at)]
  const newest = Math.max(0, ...times)
  const kept = Math.floor(newest / HOUR) * HOUR - 7 * DAY
  const [account, key, model] = [entries, entries.toReversed(), entries].map((of, i) =>
    of.map((entry) => membersOf(entry)[GROUPS[i]!]).find((member) => member !== ''))
  const filters: readonly RollupQuery['only'][] = [{}, { ...(account !== undefined && { account }) },
    { ...(key !== undefined && { key }) }, { ...(model !== undefined && { model }), channel: 'premium' }]
  const groups: readonly (readonly RollupGroup[])[] = [[], ['account'], ['model', 'channel'], GROUPS]
  for (const by of ['hour', 'day', 'month'] as const) {
    for (const [i, only] of filters.entries()) {
      const from = by === 'hour' ? kept : i % 2 === 0 ? 0 : newest - (by === 'day' ? 9 : 40) * DAY
      const query: RollupQuery = { by, from, to: i === 3 ? newest : newest + DAY, groups: groups[i]!, only }
      same((await store.rollups(query)).toSorted(byPeriodAndMembers), recomputed(entries, failures, query), query)
      const whole = { ...query, groups: GROUPS }
      same((await store.rollups(whole)).toSorted(byPeriodAndMembers), recomputed(entries, failures, whole), whole)
    }
  }
  for (const [i, only] of filters.entries()) {
    for (const [ago, zone] of [[0, 2], [1, -8], [3, 5.5], [6, 1], [7, -11]] as const) {
      const from = Math.floor(newest / DAY) * DAY - ago * DAY - zone * HOUR
      const query: RollupQuery = { by: 'span', from: Math.max(kept, from), to: from + DAY, groups: groups[i]!, only }
      if (query.from >= query.to) continue
      same((await store.rollups(query)).toSorted(byPeriodAndMembers), recomputed(entries, failures, query), query)
    }
  }
  same((await store.verify()).differences, [], 'verify')
}

/** Reads pages of the newest entries in many ways. @throws {Error} the answers are not those of all entries */
export async function auditNewest (store: Summing): Promise<void> {
  const entries = (await all(store)).toReversed()
  const some = fc.sample(fc.record({
    account: maybe(entries, ({ account }) => account), key: maybe(entries, ({ key }) => key),
    model: maybe(entries, ({ model }) => model), reference: maybe(entries, ({ kind, account, reference }) =>
      reference.replace(`${kind}:${account}:`, '').replace(/ .*$/, '')),
    from: maybe(entries, ({ at }) => Date.parse(at)), to: maybe(entries, ({ at }) => Date.parse(at)),
    limit: fc.integer({ min: 1, max: 5 })
  }, { requiredKeys: ['limit'] }), 12)
  for (const found of some) {
    const { limit } = found
    const query = Object.fromEntries(
      Object.entries(found).filter(([, value]) => value !== undefined)
    ) as unknown as EntryQuery
    same(await pagesOf(store, query), entries.filter((entry) => isMeant(entry, query)), { ...query, limit })
  }
}

function maybe<T> (entries: readonly Entry[], of: (entry: Entry) => T): fc.Arbitrary<T | undefined> {
  const values = entries.map(of).filter((value) => value !== undefined)
  if (values.length === 0) return fc.constant(undefined)
  return fc.option(fc.constantFrom(...values), { nil: undefined, freq: 1 })
}

/** All pages of a query. */
export async function pagesOf (store: Rollups, query: EntryQuery): Promise<Entry[]> {
  const found: Entry[] = []
  let { before } = query
  for (;;) {
    const { entries, next } = await store.newest({ ...query, ...(before !== undefined && { before }) })
    if (entries.length > query.limit) throw new Error(`${entries.length} entries, of at most ${query.limit}`)
    found.push(...entries)
    if (next === undefined) return found
    before = next
  }
}

function isMeant (entry: Entry, { account, key, model, reference, from, to }: EntryQuery): boolean {
  const at = Date.parse(entry.at)
  const names = [entry.reference, entry.reference.replace(/ (?:settle|refund)$/, ''),
    entry.reference.replace(`${entry.kind}:${entry.account}:`, '')]
  return (account === undefined || entry.account === account) && (key === undefined || entry.key === key) &&
    (model === undefined || entry.model === model) && (reference === undefined || names.includes(reference)) &&
    (from === undefined || at >= from) && (to === undefined || at < to)
}

function same (found: unknown, wanted: unknown, what: unknown): void {
  const print = (value: unknown): string =>
    JSON.stringify(value, (_name, part: unknown) => typeof part === 'bigint' ? `${part}n` : sorted(part))
  if (print(found) !== print(wanted)) throw new Error(`${print(what)}: found ${print(found)}, wanted ${print(wanted)}`)
}

function sorted (value: unknown): unknown {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => a < b ? -1 : 1))
    : value
}

/** @param open the store begins at this time, which the test moves on */
export function rollupsConformance (t: Test, open: (now: () => number) => Promise<Summing>): void {
  const NOON = Date.UTC(2026, 10, 22, 12)
  const usage = (input: number, output: number, extras: Usage['extras'] = {}): Usage => ({ input, cache_read: 1,
    cache_write_5m: 2, cache_write_1h: 3, output, extras })

  void t.test('what is charged is in the sums of its hour and its day; what operators book is not', async (t) => {
    let time = NOON
    const store = await open(() => time)
    await store.credit('acme', 'credit:acme:c1', 1000n)
    const settle = async (id: string, key: string, nanos: bigint, more: object = {}): Promise<void> => {
      await store.hold({ request_id: id, account: 'acme', key, nanos: 100n })
      await store.settle({ request_id: id, nanos, model: 'm', channel: 'premium', usage: usage(10, 5),
        usage_source: 'provider', ...more })
    }
    await settle('r1', 'dev', 130n)
    await settle('r2', 'dev', 0n, { model: 'pictures', usage: usage(0, 0, { image: 2, web_search: 1 }) })
    time += HOUR
    await settle('r3', 'ops', 40n, { channel: undefined })
    await store.refund('r1')
    await store.book({ kind: 'debit', account: 'acme', reference: 'debit:acme:d1', nanos: 5n, reason: 'why' })
    const of = { from: NOON, to: NOON + DAY, only: {} }
    const tokens = (requests: number): object => ({ cache_read: requests, cache_write_5m: 2 * requests,
      cache_write_1h: 3 * requests })
    t.strictSame(await store.rollups({ ...of, by: 'hour', groups: ['key'] }), [
      { from: NOON, key: 'dev', requests: 2, errors: 0, nanos: 100n, shortfall: 30n,
        usage: { input: 10, ...tokens(2), output: 5, extras: { web_search: 1, image: 2 } } },
      { from: NOON + HOUR, key: 'dev', requests: 0, errors: 0, nanos: -100n, shortfall: 0n,
        usage: { input: 0, ...tokens(0), output: 0, extras: {} } },
      { from: NOON + HOUR, key: 'ops', requests: 1, errors: 0, nanos: 40n, shortfall: 0n,
        usage: { input: 10, ...tokens(1), output: 5, extras: {} } }
    ])
    t.match(await store.rollups({ ...of, by: 'day', from: NOON - 12 * HOUR, groups: ['model', 'channel'],
      only: { account: 'acme' } }), [
      { from: NOON - 12 * HOUR, model: 'm', channel: undefined, requests: 1, nanos: 40n },
      { from: NOON - 12 * HOUR, model: 'm', channel: 'premium', requests: 1, nanos: 0n, shortfall: 30n },
      { from: NOON - 12 * HOUR, model: 'pictures', channel: 'premium', requests: 1, nanos: 0n }
    ])
    t.strictSame(await store.rollups({ ...of, by: 'day', groups: [] }), [], 'periods that begin in the range')
    t.strictSame(await store.rollups({ ...of, by: 'hour', groups: [], only: { key: 'nobody' } }), [])
    t.strictSame((await store.verify()).differences, [])
    await store.close()
  })

  void t.test('requests that end without a settlement are counted, and charge nothing', async (t) => {
    let time = NOON
    const store = await open(() => time)
    store.failed({ account: 'acme', key: 'dev', model: '' })
    store.failed({ account: 'acme', key: 'dev', model: 'm', channel: 'cheap' })
    store.failed({ account: 'acme', key: 'dev', model: 'm', channel: 'cheap' })
    time += HOUR
    store.failed({ account: 'acme', key: 'dev', model: 'm', channel: 'cheap' })
    await store.credit('acme', 'c', 1n)                       // takes them along, in a process of its own
    const query: RollupQuery = { by: 'hour', from: NOON, to: NOON + DAY, groups: GROUPS, only: {} }
    const found = await until(async () => {
      const rollups = await store.rollups(query)
      return rollups.reduce((sum, { errors }) => sum + errors, 0) === 4 && rollups
    })
    t.strictSame(found.map(({ from, key, model, channel, requests, errors, nanos }) =>
      [from, key, model, channel, requests, errors, nanos]), [
      [NOON, 'dev', '', undefined, 0, 1, 0n], [NOON, 'dev', 'm', 'cheap', 0, 2, 0n],
      [NOON + HOUR, 'dev', 'm', 'cheap', 0, 1, 0n]
    ])
    t.strictSame((await store.verify()).differences, [])
    await store.close()
  })

  void t.test('the newest entries come first, page by page, also by a reference as its account knows it', async (t) => {
    let time = NOON
    const store = await open(() => time)
    for (const [account, reference] of [['acme', 'credit:acme:inv-1'], ['other', 'credit:other:inv-1'],
      ['acme', 'credit:acme:credit:acme:inv-1'], ['acme', 'opening:acme']] as const) {
      await store.credit(account, reference, 1000n)
      time += HOUR
    }
    for (let i = 0; i < 5; i++) {
      await store.hold({ request_id: `r${i}`, account: 'acme', key: i % 2 === 0 ? 'dev' : 'ops', nanos: 5n })
      await store.settle({ request_id: `r${i}`, nanos: 8n, model: `m${i % 3}`, usage: usage(1, 1),
        usage_source: 'provider' })
      time += HOUR
    }
    await store.refund('r3')
    const references = async (query: Omit<EntryQuery, 'limit'>): Promise<string[]> =>
      (await pagesOf(store, { ...query, limit: 3 })).map(({ kind, reference }) => `${kind} ${reference}`)
    t.strictSame(await references({ key: 'ops' }), ['adjust r3', 'shortfall r3', 'settle r3', 'shortfall r1',
      'settle r1'])
    t.strictSame(await references({ key: 'ops', model: 'm1' }), ['shortfall r1', 'settle r1'])
    t.strictSame(await references({ account: 'other' }), ['credit credit:other:inv-1'])
    t.strictSame(await references({ reference: 'r3' }), ['adjust r3', 'shortfall r3', 'settle r3'])
    t.strictSame(await references({ reference: 'inv-1' }), ['credit credit:other:inv-1', 'credit credit:acme:inv-1'])
    t.strictSame(await references({ reference: 'inv-1', account: 'acme' }), ['credit credit:acme:inv-1'])
    t.strictSame(await references({ reference: 'credit:acme:inv-1' }),
      ['credit credit:acme:credit:acme:inv-1', 'credit credit:acme:inv-1'], 'also the whole one')
    t.strictSame(await references({ from: NOON + 3 * HOUR, to: NOON + 5 * HOUR }),
      ['shortfall r0', 'settle r0', 'credit opening:acme'])
    t.strictSame(await references({ reference: 'nothing' }), [])
    const first = await store.newest({ limit: 2 })
    t.strictSame(first.entries.map(({ kind, reference }) => `${kind} ${reference}`), ['adjust r3', 'shortfall r4'])
    t.equal(first.next, first.entries[1]!.id)
    t.strictSame(await pagesOf(store, { limit: 2 }), (await all(store)).toReversed())
    t.equal((await store.newest({ limit: 15 })).next, undefined, 'a page with the last entry says so')
    await store.close()
  })
}
