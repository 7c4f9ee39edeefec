// Adds up entries to rollups: what drivers keep with each charge, what `verify` computes anew, and what a query asks
// for.
import type { Nanos } from '../money/nanos.ts'
import { ITEMS, type Usage } from '../money/usage.ts'
import type { FailureCount, Rollup, RollupGroup, RollupPeriod, RollupQuery } from './rollups.ts'
import type { EntryKind } from './store.ts'

export const HOUR_MS = 3_600_000
export const DAY_MS = 24 * HOUR_MS
/** Hours before the newest one that are kept as hours; of older ones there are only their days and months. */
const KEPT_HOURS = 7 * 24

export const GROUPS = ['account', 'key', 'model', 'channel'] as const satisfies readonly RollupGroup[]
export const COUNTS = ['requests', 'errors', 'input', 'cache_read', 'cache_write_5m', 'cache_write_1h', 'output',
  ...ITEMS] as const
export const AMOUNTS = ['nanos', 'shortfall'] as const

/** A member of each group; '': none. */
export type Members = Readonly<Record<RollupGroup, string>>

export const NOBODY: Members = { account: '', key: '', model: '', channel: '' }

/** All that a rollup adds up: amounts in nano-dollars. */
export type Sum = Record<typeof COUNTS[number], number> & Record<typeof AMOUNTS[number], Nanos>

/** The part of an entry that a rollup adds up. */
export interface Added {
  readonly kind: EntryKind
  readonly nanos: Nanos
  readonly shortfall?: Nanos | undefined
  readonly usage?: Usage | undefined
}

export function noSum (): Sum {
  return { requests: 0, errors: 0, input: 0, cache_read: 0, cache_write_5m: 0, cache_write_1h: 0, output: 0,
    web_search: 0, web_fetch: 0, image: 0, video_second: 0, nanos: 0n, shortfall: 0n }
}

/** Whether an entry is in a rollup: credits, refunds and debits are an operator's, and no usage. */
export function isUsage (kind: string): boolean {
  return kind === 'settle' || kind === 'adjust' || kind === 'shortfall'
}

/** Adds an entry. Its usage counts once, in the settlement: shortfalls and late settlements repeat it. */
export function addEntry (sum: Sum, { kind, nanos, shortfall = 0n, usage }: Added): void {
  sum.nanos -= nanos
  sum.shortfall += shortfall
  if (kind !== 'settle') return
  sum.requests++
  if (usage !== undefined) addUsage(sum, usage)
}

/** Adds a rollup, whatever its members. */
export function addRollup (sum: Sum, { requests, errors, usage, nanos, shortfall }: Omit<Rollup, 'from'>): void {
  sum.requests += requests
  sum.errors += errors
  sum.nanos += nanos
  sum.shortfall += shortfall
  addUsage(sum, usage)
}

function addUsage (sum: Sum, usage: Usage): void {
  sum.input += usage.input
  sum.cache_read += usage.cache_read
  sum.cache_write_5m += usage.cache_write_5m
  sum.cache_write_1h += usage.cache_write_1h
  sum.output += usage.output
  for (const name in usage.extras) if (isItem(name)) sum[name] += usage.extras[name]!
}

export function addSum (sum: Sum, more: Readonly<Sum>): void {
  for (const name of COUNTS) sum[name] += more[name]
  for (const name of AMOUNTS) sum[name] += more[name]
}

function isItem (name: string): name is typeof ITEMS[number] {
  return (ITEMS as readonly string[]).includes(name)
}

/** The beginning of the hour of an instant, both in milliseconds since the epoch. */
export function hourOf (time: number): number {
  return time - time % HOUR_MS
}

/** The beginning of the day in UTC. */
export function dayOf (time: number): number {
  return time - time % DAY_MS
}

/** The beginning of the month in UTC. */
export function monthStartOf (time: number): number {
  const at = new Date(time)
  return Date.UTC(at.getUTCFullYear(), at.getUTCMonth())
}

/** The beginning of the next month in UTC. */
export function nextMonthOf (time: number): number {
  const at = new Date(time)
  return Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1)
}

export const PERIOD_OF: Readonly<Record<RollupPeriod, (time: number) => number>> = { hour: hourOf, day: dayOf,
  month: monthStartOf }

/** The first hour that is kept as an hour, where `newest` is the newest. */
export function firstKept (newest: number): number {
  return newest - KEPT_HOURS * HOUR_MS
}

/** Sums that entries are added to. */
export interface SumsAt {
  /** The sum for an entry. @param time milliseconds since the epoch */
  at (time: number, members: Members): Sum
}

/** Sums by period and members. */
export class RollupSums implements SumsAt {
  /** by the beginning of the period, and `nameOf` */
  readonly periods = new Map<number, Map<string, Sum>>()
  readonly #periodOf: (time: number) => number

  /** @param periodOf the beginning of the period of an instant */
  constructor (periodOf = hourOf) {
    this.#periodOf = periodOf
  }

  /** The sum of these members in a period: nothing at first. */
  of (start: number, members: Members): Sum {
    let period = this.periods.get(start)
    if (period === undefined) this.periods.set(start, period = new Map<string, Sum>())
    const name = nameOf(members)
    let sum = period.get(name)
    if (sum === undefined) period.set(name, sum = noSum())
    return sum
  }

  /** The sum of these members in the period of an instant. */
  at (time: number, members: Members): Sum {
    return this.of(this.#periodOf(time), members)
  }

  /** Adds the periods before an instant to those of other sums. */
  addTo (sums: SumsAt, before = Infinity): void {
    for (const { start, members, sum } of this.rows()) if (start < before) addSum(sums.at(start, members), sum)
  }

  /** Forgets the periods before an instant. */
  forget (before: number): void {
    for (const start of this.periods.keys()) if (start < before) this.periods.delete(start)
  }

  /** number of rows */
  get size (): number {
    return [...this.periods.values()].reduce((size, period) => size + period.size, 0)
  }

  /** By period, and then by members. */
  sorted (): SumRow[] {
    return [...this.periods].toSorted(([a], [b]) => a - b).flatMap(([start, period]) =>
      [...period].toSorted(([a], [b]) => a < b ? -1 : 1)
        .map(([name, sum]) => ({ start, members: membersOf(name), sum }))
    )
  }

  * rows (): Iterable<SumRow> {
    for (const [start, period] of this.periods) {
      for (const [name, sum] of period) yield { start, members: membersOf(name), sum }
    }
  }
}

export interface SumRow {
  /** milliseconds since the epoch: when the period begins */
  readonly start: number
  readonly members: Members
  readonly sum: Readonly<Sum>
}

/** No id has a line feed in it. */
export function nameOf ({ account, key, model, channel }: Members): string {
  return `${account}\n${key}\n${model}\n${channel}`
}

/** The inverse of `nameOf`. */
export function membersOf (name: string): Members {
  const [account, key, model, channel] = name.split('\n') as [string, string, string, string]
  return { account, key, model, channel }
}

/** The period of a query that rows have a share in which begin at an instant; undefined: they have none. */
export function periodIn ({ by, from, to }: RollupQuery, start: number): number | undefined {
  const period = by === 'span' ? start : PERIOD_OF[by](start)
  if (period < from || period >= to) return undefined
  return by === 'span' ? from : period
}

/** The answer to a query, from rows of periods that are no longer: in any order, several of a period too. */
export function rowsOf (rows: Iterable<SumRow>, query: RollupQuery): readonly SumRow[] {
  const { groups, only } = query
  const found = new RollupSums()
  for (const { start, members, sum } of rows) {
    const period = periodIn(query, start)
    if (period === undefined) continue
    if (GROUPS.some((group) => only[group] !== undefined && only[group] !== members[group])) continue
    const asked = (group: RollupGroup): string => groups.includes(group) ? members[group] : ''
    addSum(found.of(period, { account: asked('account'), key: asked('key'), model: asked('model'),
      channel: asked('channel') }), sum)
  }
  return found.sorted()
}

/** @param groups those that were asked for: the row says no others */
export function rollupOf ({ start, members, sum }: SumRow, groups: readonly RollupGroup[]): Rollup {
  const { requests, errors, nanos, shortfall, input, cache_read, cache_write_5m, cache_write_1h, output } = sum
  const extras: Record<string, number> = {}
  for (const name of ITEMS) if (sum[name] !== 0) extras[name] = sum[name]
  const rollup: Omit<Rollup, RollupGroup> & Partial<Record<RollupGroup, string>> = { from: start, requests, errors,
    usage: { input, cache_read, cache_write_5m, cache_write_1h, output, extras }, nanos, shortfall }
  for (const group of groups) if (group !== 'channel' || members.channel !== '') rollup[group] = members[group]
  return rollup
}

/**
 * The failures in rollups by hour, and in those by day of the same time, all by all groups: those of a day beyond its
 * hours are of hours that are not kept any more.
 */
export function * failuresOf (hours: readonly Rollup[], days: readonly Rollup[]): Iterable<FailureCount> {
  const left = new RollupSums(dayOf)
  for (const { from, errors, ...members } of days) left.at(from, withNobody(members)).errors += errors
  for (const { from, errors, ...members } of hours) {
    if (errors === 0) continue
    left.at(from, withNobody(members)).errors -= errors
    yield failureOf(from, withNobody(members), errors)
  }
  for (const { start, members, sum: { errors } } of left.rows()) if (errors > 0) yield failureOf(start, members, errors)
}

function withNobody ({ account = '', key = '', model = '', channel = '' }: Partial<Members>): Members {
  return { account, key, model, channel }
}

function failureOf (start: number, { account, key, model, channel }: Members, count: number): FailureCount {
  return { at: new Date(start).toISOString(), account, key, model, ...(channel !== '' && { channel }), count }
}

/** The sums of two rollups that differ. @returns name, and both values, of each */
export function differencesOf (
  of: Readonly<Sum>,
  other: Readonly<Sum>
): readonly (readonly [name: keyof Sum, Nanos, Nanos])[] {
  // No entry tells of an error.
  return ([...COUNTS, ...AMOUNTS] as const)
    .filter((name) => name !== 'errors' && of[name] !== other[name])
    .map((name) => [name, BigInt(of[name]), BigInt(other[name])])
}

/** Characters of the time at which a period begins. */
const TITLED: Readonly<Record<RollupPeriod, number>> = { hour: 13, day: 10, month: 7 }

/** The name of a rollup in a comparison: its period, and its members. */
export function titleOf (start: number, by: RollupPeriod, { account, key, model, channel }: Members): string {
  const period = new Date(start).toISOString().slice(0, TITLED[by])
  return [period, account, key, model, channel].join(' ').trimEnd()
}
