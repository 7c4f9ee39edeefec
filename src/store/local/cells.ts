// Entries, tasks and windows as rows of cells: flat arrays, which cost a third of objects to clone for another thread.
import type { Nanos } from '../../money/nanos.ts'
import { ITEMS, noUsage, type Usage, type UsageSource } from '../../money/usage.ts'
import { addEntry, AMOUNTS, COUNTS, isUsage, type RollupSums, type SumRow, type SumsAt } from '../rollup-sums.ts'
import type { Rollup, RollupGroup } from '../rollups.ts'
import type { Charge, Hold } from './balances.ts'
import { entryId } from './entry-ids.ts'
import type { Task } from '../tasks.ts'
import type { Booking, Entry, EntryKind, Settlement } from '../store.ts'

export type Cell = string | number | bigint | null

/**
 * The cells of all rows. `flat()` makes an array that may have holes, which takes four times as long to clone for
 * another thread (measured).
 */
export function cellsOf (rows: Iterable<readonly Cell[]>): Cell[] {
  const cells: Cell[] = []
  for (const row of rows) for (const cell of row) cells.push(cell)
  return cells
}

/** The columns of the table `entries`, in the order of the cells. */
export const ENTRY = ['seq', 'time', 'kind', 'account', 'key', 'reference', 'nanos', 'shortfall', 'model', 'channel',
  'usage_source', 'input', 'cache_read', 'cache_write_5m', 'cache_write_1h', 'output', 'extras', 'price_version', 'day',
  'reason'] as const

const [TIME, KIND, ACCOUNT, KEY, NANOS, SHORTFALL] = [ENTRY.indexOf('time'), ENTRY.indexOf('kind'),
  ENTRY.indexOf('account'), ENTRY.indexOf('key'), ENTRY.indexOf('nanos'), ENTRY.indexOf('shortfall')]
const [MODEL, CHANNEL, SOURCE, INPUT, CACHE_READ] = [ENTRY.indexOf('model'), ENTRY.indexOf('channel'),
  ENTRY.indexOf('usage_source'), ENTRY.indexOf('input'), ENTRY.indexOf('cache_read')]
const [WRITE_5M, WRITE_1H, OUTPUT, EXTRAS] = [ENTRY.indexOf('cache_write_5m'), ENTRY.indexOf('cache_write_1h'),
  ENTRY.indexOf('output'), ENTRY.indexOf('extras')]
const PRICE_VERSION = ENTRY.indexOf('price_version')

/** Columns of the table `progress`: a progress record has no number, time and kind. */
const PROGRESS_AT = 3
export const PROGRESS = ENTRY.slice(PROGRESS_AT)

/** The cells of an entry from `shortfall` to `day`, where no model was called. */
const NOTHING_USED: readonly null[] = ENTRY.slice(7, -1).map(() => null)

/** Columns of the table `tasks`; `day` is its hold's. */
export const TASK = ['id', 'request_id', 'account', 'key', 'nanos', 'day', 'created', 'is_open', 'text'] as const

/** Columns of the table `noted_windows`, as Windows.save and Notes give them. */
export const WINDOW = ['name', 'at', 'parts', 'ahead'] as const

/** Requests that ended without a settlement: the beginning of their hour, their members, and how many. */
export const FAILURE = ['hour', 'account', 'key', 'model', 'channel', 'count'] as const

/** All cells of a settlement's entry, or of its shortfall's. */
export function settlementRow (
  seq: number,
  time: number,
  kind: 'settle' | 'shortfall',
  hold: Hold,
  nanos: Nanos,
  shortfall: Nanos | null,
  { request_id: id, model, channel, usage, usage_source: source, price_version: priceVersion }: Settlement
): Cell[] {
  const { account, key, day } = hold.purses
  let extras: string | null = null
  for (const _ in usage.extras) {
    extras = JSON.stringify(usage.extras)
    break
  }
  return [seq, time, kind, account.id, key.id, id, nanos, shortfall, model, channel ?? null, source, usage.input,
    usage.cache_read, usage.cache_write_5m, usage.cache_write_1h, usage.output, extras, priceVersion ?? null,
    day?.id ?? null, null]
}

/** All cells of a progress record. */
export function progressRow (hold: Hold, nanos: Nanos, shortfall: Nanos | null, soFar: Settlement): Cell[] {
  return settlementRow(0, 0, 'settle', hold, nanos, shortfall, soFar).slice(PROGRESS_AT)
}

/** All cells of a refund's entry. The usage is in the settlement, so that it counts once. */
export function refundRow (
  seq: number,
  time: number,
  { hold: { request_id: id, purses }, terms: { model, channel, price_version: version }, nanos }: Charge
): Cell[] {
  const { account, key, day } = purses
  return [seq, time, 'adjust', account.id, key.id, id, nanos, null, model, channel ?? null, null, null, null, null,
    null, null, null, version ?? null, day?.id ?? null, null]
}

/** All cells of a booking's entry. @param nanos the change of the balance */
export function bookingRow (
  seq: number,
  time: number,
  { kind, account, reference, reason }: Booking,
  nanos: Nanos
): Cell[] {
  return [seq, time, kind, account, null, reference, nanos, ...NOTHING_USED, reason ?? null]
}

/** The usage of an entry that begins at an index. */
function usageIn (cells: readonly Cell[], at: number): Usage | undefined {
  if (cells[at + SOURCE] === null) return undefined
  const extras = cells[at + EXTRAS] as string | null
  return { input: cells[at + INPUT] as number, cache_read: cells[at + CACHE_READ] as number,
    cache_write_5m: cells[at + WRITE_5M] as number, cache_write_1h: cells[at + WRITE_1H] as number,
    output: cells[at + OUTPUT] as number,
    extras: extras === null ? noUsage.extras : JSON.parse(extras) as Usage['extras'] }
}

/** An entry from its cells: amounts are text, because JavaScript's numbers would round them. */
export function readEntry (cells: readonly Cell[], at: number): Entry {
  const [seq, time, kind, account, key, reference, nanos, shortfall, model, channel, source] =
    cells.slice(at, at + INPUT) as [number, number, EntryKind, string, string | null, string, string, string | null,
      string | null, string | null, UsageSource | null]
  const [priceVersion, day, reason] = cells.slice(at + PRICE_VERSION, at + ENTRY.length) as
    [string | null, string | null, string | null]
  const usage = usageIn(cells, at)
  return {
    id: entryId(seq, time),
    kind,
    account,
    ...(key !== null && { key }),
    reference,
    nanos: BigInt(nanos),
    ...(shortfall !== null && { shortfall: BigInt(shortfall) }),
    at: new Date(time).toISOString(),
    ...(model !== null && { model }),
    ...(channel !== null && { channel }),
    ...(usage !== undefined && { usage, usage_source: source! }),
    ...(priceVersion !== null && { price_version: priceVersion }),
    ...(day !== null && { day }),
    ...(reason !== null && { reason })
  }
}

/** The cells of an entry. @param seq its number, and the milliseconds of its time, here */
export function pushEntry (
  cells: Cell[],
  {
    kind,
    account,
    key,
    reference,
    nanos,
    shortfall,
    model,
    channel,
    usage,
    usage_source: source,
    price_version: priceVersion,
    day,
    reason
  }: Entry,
  seq: number,
  time: number
): void {
  const extras = usage === undefined || Object.keys(usage.extras).length === 0 ? null : JSON.stringify(usage.extras)
  cells.push(seq, time, kind, account, key ?? null, reference, nanos, shortfall ?? null, model ?? null, channel ?? null,
    source ?? null, usage?.input ?? null, usage?.cache_read ?? null, usage?.cache_write_5m ?? null,
    usage?.cache_write_1h ?? null, usage?.output ?? null, extras, priceVersion ?? null, day ?? null, reason ?? null)
}

/** Adds an entry to its sum, where it is in one. @param row of `ENTRY`, in which amounts may be text */
export function addRow (row: readonly Cell[], sums: SumsAt): void {
  const kind = row[KIND] as EntryKind
  if (!isUsage(kind)) return
  const shortfall = row[SHORTFALL]!
  addEntry(sums.at(row[TIME] as number, { account: row[ACCOUNT] as string, key: (row[KEY] ?? '') as string,
    model: (row[MODEL] ?? '') as string, channel: (row[CHANNEL] ?? '') as string }), {
    kind, nanos: BigInt(row[NANOS]!), shortfall: shortfall === null ? 0n : BigInt(shortfall),
    usage: kind === 'settle' ? usageIn(row, 0) : undefined
  })
}

/** Adds requests that failed to their hours. @param cells rows of `FAILURE` */
export function addFailures (cells: readonly Cell[], sums: RollupSums): void {
  for (let i = 0; i < cells.length; i += FAILURE.length) {
    const [hour, account, key, model, channel, count] = cells.slice(i, i + FAILURE.length) as [number, string, string,
      string, string, number]
    sums.of(hour, { account, key, model, channel }).errors += count
  }
}

/** @param day of its hold */
export function taskRow (
  { id, request_id: requestId, account, key, nanos, created, is_open: isOpen, text }: Task,
  day: string | undefined
): Cell[] {
  return [id, requestId, account, key, nanos, day ?? null, created, isOpen ? 1 : 0, text]
}

/** The cells of rollups: when they begin, the members of the groups, then COUNTS and AMOUNTS. */
export function pushRollup (cells: Cell[], { start, members, sum }: SumRow, groups: readonly RollupGroup[]): void {
  cells.push(start)
  for (const group of groups) cells.push(members[group])
  for (const name of COUNTS) cells.push(sum[name])
  for (const name of AMOUNTS) cells.push(sum[name])
}

/** Rollups from their cells, in which amounts are text where numbers would round them. */
export function readRollups (cells: readonly Cell[], groups: readonly RollupGroup[]): Rollup[] {
  const rollups: Rollup[] = []
  const width = 1 + groups.length + COUNTS.length + AMOUNTS.length
  for (let row = 0; row < cells.length; row += width) {
    const first = row + 1 + groups.length
    const count = (name: typeof COUNTS[number]): number => cells[first + COUNT_AT[name]] as number
    let { extras } = noUsage
    for (const name of ITEMS) if (count(name) !== 0) extras = { ...extras, [name]: count(name) }
    const rollup: Mutable<Rollup> = {
      from: cells[row] as number,
      requests: count('requests'),
      errors: count('errors'),
      usage: { input: count('input'), cache_read: count('cache_read'), cache_write_5m: count('cache_write_5m'),
        cache_write_1h: count('cache_write_1h'), output: count('output'), extras },
      nanos: BigInt(cells[first + COUNTS.length]!),
      shortfall: BigInt(cells[first + COUNTS.length + 1]!)
    }
    for (let i = 0; i < groups.length; i++) {
      const member = cells[row + 1 + i] as string
      if (groups[i] !== 'channel' || member !== '') rollup[groups[i]!] = member
    }
    rollups.push(rollup)
  }
  return rollups
}

type Mutable<T> = { -readonly [name in keyof T]: T[name] }

const COUNT_AT = Object.fromEntries(COUNTS.map((name, i) => [name, i])) as Record<typeof COUNTS[number], number>

/** A task from its cells: the amount is text. */
export function readTask (
  cells: readonly Cell[],
  at: number
): { readonly task: Task, readonly day: string | undefined } {
  const [id, requestId, account, key, nanos, day, created, isOpen, text] = cells.slice(at, at + TASK.length) as [string,
    string, string, string, string, string | null, number, number, string]
  return {
    task: { id, request_id: requestId, account, key, nanos: BigInt(nanos), created, is_open: isOpen === 1, text },
    day: day ?? undefined
  }
}

/** Columns for SQL, with amounts as text: as numbers they would be rounded. */
export function withTexts (columns: readonly string[]): string {
  return columns.map((name) => name === 'nanos' || name === 'shortfall' ? `CAST(${name} AS TEXT)` : name).join()
}
