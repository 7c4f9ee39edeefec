// What was used, period by period: from rollups, which are kept with each charge, never from entries. In bounded steps.
import { type Calendar, calendarOf, isTimeZone, type Period } from '../../money/calendar.ts'
import { formatUsd } from '../../money/nanos.ts'
import { ITEMS } from '../../money/usage.ts'
import { addRollup, COUNTS, DAY_MS, firstKept, GROUPS, HOUR_MS, hourOf, NOBODY, noSum, rollupOf,
  RollupSums } from '../../store/rollup-sums.ts'
import type { Rollup, RollupGroup, RollupPeriod, RollupQuery, Rollups } from '../../store/rollups.ts'
import { choice, instant, list, money, object, orNull, text, usageAnswer, whole } from './answers.ts'
import { csvOf } from './csv.ts'
import { type ApiAnswer, type ApiParts, type Call, type Operation, readQuery, readTime } from './operation.ts'
import { Refusal } from './refusal.ts'
import type { Properties } from './schemas.ts'

const SERIES = ['from', 'to', 'by', 'group', ...GROUPS, 'time_zone', 'format']

export const PERIODS = ['hour', 'day', 'month'] as const
export const FORMATS = ['json', 'csv'] as const
type By = typeof PERIODS[number]

/** Periods that are shown where `from` is absent, the present one among them. */
const SHOWN: Readonly<Record<By, number>> = { hour: 24, day: 30, month: 12 }
/** More rows would take long to print: the request is refused. */
const MOST_ROWS = 10_000
/** Milliseconds that are read from the store at a time. */
const STEP: Readonly<Record<RollupPeriod, number>> = { hour: DAY_MS, day: 7 * DAY_MS,
  month: 366 * DAY_MS }
/** The longest range: reading more would take long, even where there is nothing. */
const LONGEST_MS = 3660 * DAY_MS

const summed: Properties = {
  requests: whole('That were answered and settled, those for nothing too.'),
  errors: whole('Requests of a known key that ended without that, and videos that failed.'),
  usage: usageAnswer,
  charged_usd: money('Less what was given back: below 0 where that had been charged in an earlier period.'),
  shortfall_usd: money('Cost beyond what was held, which the operator bears.')
}

const series = object('UsageSeries', 'What was used, period by period.', {
  from: instant('The beginning of the first period.'),
  to: instant('The end of the last one.'),
  by: choice('The length of a period.', PERIODS),
  time_zone: text('Of days and months.'),
  group: list('By what periods are divided.', choice('A group.', GROUPS)),
  data: list('The oldest first; what nothing is in is left out.', object('UsageOfPeriod', 'What was used in a period.', {
    period: text('In the time zone: 2026-11-21 05:00, 2026-11-21 or 2026-11.'),
    from: instant('When it begins.'),
    account: text('The account, where they are asked for.'),
    key: text('The key.'),
    model: orNull(text('The model, or the route where no model was called; null: none was chosen.')),
    channel: orNull(text('The channel; null: none.')),
    ...summed
  }, GROUPS)),
  total: object('UsageTotal', 'The sum of all rows.', summed)
})

export function seriesOperations (parts: ApiParts): readonly Operation[] {
  return [{
    method: 'GET',
    path: '/usage/series',
    name: 'listUsageSeries',
    isCostly: true,
    summary: 'What was used and charged, by hour, day or month and by account, key, model and channel, with a total. ' +
      'Deleted keys stay in it. `format=csv`, or `Accept: text/csv`, gives a table.',
    query: SERIES,
    gives: series,
    hasCsv: true,
    answer: async (call) => await answer(call, parts)
  }]
}

interface Asked {
  readonly by: By
  readonly zone: Calendar
  /** beginning of the first period and end of the last one */
  readonly from: number
  readonly to: number
  readonly groups: readonly RollupGroup[]
  readonly only: RollupQuery['only']
  /** the rollups that periods are made of; span: those of its days */
  readonly of: RollupQuery['by']
}

async function answer ({ query, accept }: Call, { services: { store, now } }: ApiParts): Promise<ApiAnswer> {
  const read = readQuery(query, SERIES)
  const isCsv = isCsvAsked(read.get('format'), accept)
  const asked = readAsked(read, now())
  const { by, zone, from, to, groups } = asked
  const total = noSum()
  let period = periodAt(asked, from)
  let iso = new Date(period.start).toISOString()
  const data = (await rowsOf(store, asked)).map((rollup): SeriesRow => {
    addRollup(total, rollup)
    if (rollup.from !== period.start) {
      period = periodAt(asked, rollup.from)
      iso = new Date(period.start).toISOString()
    }
    const row: Record<string, unknown> = { period: period.id, from: iso }
    for (const group of groups) row[group] = rollup[group] === '' ? null : rollup[group] ?? null
    return Object.assign(row, viewOf(rollup)) as unknown as SeriesRow
  })
  if (isCsv) return { status: 200, body: seriesCsv(data, groups), type: 'text/csv; charset=utf-8' }
  return { status: 200,
    body: { from: new Date(from).toISOString(), to: new Date(to).toISOString(), by, time_zone: zone.zone, group: groups,
      data, total: viewOf(rollupOf({ start: 0, members: NOBODY, sum: total }, [])) } }
}

/** The rollups of whole periods, by period and then by members. @throws {Refusal} they would be too many rows */
async function rowsOf (store: Rollups, asked: Asked): Promise<readonly Rollup[]> {
  const { by, zone, from, to, groups, only, of } = asked
  const rows: Rollup[] = []
  const sums = new RollupSums()
  const isAddedUp = of === 'span' && by === 'month'
  for (let at = from, end = at; at < to; at = end) {
    end = of === 'span' ? zone.dayAt(at).end : Math.min(to, at + STEP[of])
    for (const rollup of await store.rollups({ by: of, from: at, to: end, groups, only })) {
      if (!isAddedUp) rows.push(rollup)
      else {
        const { account = '', key = '', model = '', channel = '' } = rollup
        addRollup(sums.of(periodAt(asked, rollup.from).start, { account, key, model, channel }), rollup)
      }
    }
    if (rows.length + sums.size > MOST_ROWS) {
      throw new Refusal('invalid_request', `These would be more than ${MOST_ROWS} rows. Ask for a shorter range, for ` +
        'longer periods (by), for fewer groups (group), or for one account, key, model or channel.')
    }
  }
  return isAddedUp ? sums.sorted().map((row) => rollupOf(row, groups)) : rows
}

/** @throws {Refusal} */
function readAsked (query: ReadonlyMap<string, string>, now: number): Asked {
  const by = choiceOf(query.get('by') ?? 'day', PERIODS, 'by')
  const groups = (query.get('group') ?? '').split(',').filter((text) => text !== '')
    .map((text) => choiceOf(text, GROUPS, 'group'))
  const zoneName = query.get('time_zone') ?? 'UTC'
  if (!isTimeZone(zoneName)) {
    throw new Refusal('invalid_request',
      'time_zone must be the name of a time zone such as Europe/Berlin. UTC is the standard.')
  }
  const zone = calendarOf(zoneName)
  const of = zoneName === 'UTC' || by === 'hour' ? by : 'span'
  const kept = of === 'hour' || of === 'span' ? firstKept(hourOf(now)) : 0
  const said = query.get('from')
  const first = said === undefined ? startBefore({ by, zone }, now, kept) : readTime(said, zone, 'from')
  const from = periodAt({ by, zone }, first).start
  const until = query.get('to')
  const to = periodAt({ by, zone }, until === undefined ? now : readTime(until, zone, 'to') - 1).end
  if (from < kept) {
    throw new Refusal('invalid_request',
      'Hours are kept for 7 days. So by=hour, and days and months of another time zone than UTC, can begin at ' +
      `${new Date(kept).toISOString()} or later. Ask for a later \`from\`, or for days or months in UTC.`)
  }
  if (from >= to) throw new Refusal('invalid_request', '`from` must be before `to`.')
  if (to - from > LONGEST_MS) {
    throw new Refusal('invalid_request', 'A range may have 10 years. Ask for a later `from`, or an earlier `to`.')
  }
  return { by, zone, from, to, of, groups: GROUPS.filter((group) => groups.includes(group)),
    only: Object.fromEntries(GROUPS.filter((group) => query.has(group)).map((group) => [group, query.get(group)!])) }
}

/** The beginning of the period from which on is shown what nobody has asked for more exactly. */
function startBefore (asked: Pick<Asked, 'by' | 'zone'>, now: number, kept: number): number {
  let { start } = periodAt(asked, now)
  for (let i = 1; i < SHOWN[asked.by]; i++) {
    const before = periodAt(asked, start - 1).start
    if (before < kept) break
    start = before
  }
  return start
}

/** The period of an instant: hours are those of UTC, and belong to the day in which they begin. */
function periodAt ({ by, zone }: Pick<Asked, 'by' | 'zone'>, at: number): Period {
  if (by === 'day') return zone.dayAt(at)
  if (by === 'month') return zone.monthAt(at)
  const start = hourOf(at)
  return { id: zone.print(start).slice(0, 16), start, end: start + HOUR_MS }
}

/** @throws {Refusal} */
function choiceOf<T extends string> (text: string, known: readonly T[], name: string): T {
  const found = known.find((one) => one === text)
  if (found !== undefined) return found
  throw new Refusal('invalid_request',
    `${name} knows no ${JSON.stringify(text.slice(0, 80))}: it takes ${known.join(', ')}.`)
}

/** @throws {Refusal} */
function isCsvAsked (format: string | undefined, accept = ''): boolean {
  return format === undefined
    ? /\btext\/csv\b/i.test(accept)
    : choiceOf(format, FORMATS, 'format') === 'csv'
}

function viewOf ({ requests, errors, usage, nanos, shortfall }: Rollup): Summed {
  return { requests, errors, usage, charged_usd: formatUsd(nanos), shortfall_usd: formatUsd(shortfall) }
}

interface Summed extends Pick<Rollup, 'requests' | 'errors' | 'usage'> {
  readonly charged_usd: string
  readonly shortfall_usd: string
}

/** A row of the answer. */
export interface SeriesRow extends Summed, Partial<Record<RollupGroup, string | null>> {
  readonly period: string
  readonly from: string
}

/** All columns of a row, in one level. */
export function seriesColumns (groups: readonly RollupGroup[]): readonly string[] {
  return ['period', 'from', ...groups, ...COUNTS, 'charged_usd', 'shortfall_usd']
}

export function flatRow ({ usage: { extras, ...tokens }, ...row }: Summed): Readonly<Record<string, unknown>> {
  return { ...row, ...tokens, ...Object.fromEntries(ITEMS.map((name) => [name, extras[name] ?? 0])) }
}

export function seriesCsv (data: readonly SeriesRow[], groups: readonly RollupGroup[]): string {
  return csvOf(data.map((row) => [
    row.period, row.from, ...groups.map((group) => row[group]), row.requests, row.errors, row.usage.input,
    row.usage.cache_read, row.usage.cache_write_5m, row.usage.cache_write_1h, row.usage.output,
    ...ITEMS.map((name) => row.usage.extras[name] ?? 0), row.charged_usd, row.shortfall_usd
  ]), seriesColumns(groups))
}
