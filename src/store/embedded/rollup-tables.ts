// The tables of rollups: hours of the last 7 days, days and months. Part of ledger.ts, which owns the file.
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite'
import { type Cell, cellsOf } from '../local/cells.ts'
import { addSum, AMOUNTS, COUNTS, DAY_MS, dayOf, differencesOf, firstKept, GROUPS, HOUR_MS, hourOf, membersOf,
  type Members, monthStartOf, nameOf, nextMonthOf, NOBODY, noSum, PERIOD_OF, RollupSums, type Sum,
  type SumsAt, titleOf } from '../rollup-sums.ts'
import type { RollupPeriod, RollupQuery } from '../rollups.ts'
import type { RollupStep } from '../local/writer.ts'

/** The tables, by what their periods are. */
const TABLES = { hour: 'usage_hours', day: 'usage_days', month: 'usage_months' } as const
const ID = ['start', ...GROUPS].join()
const SUMS = [...COUNTS, ...AMOUNTS]
const COLUMNS = `${ID},${SUMS.join()}`
const MARKS = `(${COLUMNS.split(',').map(() => '?').join()})`
const ADD = `ON CONFLICT DO UPDATE SET ${SUMS.map((name) => `${name} = ${name} + excluded.${name}`).join()}`
/** Amounts that JavaScript's numbers would round are text. */
const ADDED_UP = [...COUNTS.map((name) => `sum(${name})`), ...AMOUNTS.map((name) =>
  `iif(abs(sum(${name})) <= ${Number.MAX_SAFE_INTEGER}, sum(${name}), CAST(sum(${name}) AS TEXT))`)].join()
/** Amounts are text. */
const KEPT = [...COUNTS, ...AMOUNTS.map((name) => `CAST(${name} AS TEXT) AS ${name}`)].join()
/** The period in which a row begins. */
const PERIOD: Readonly<Record<RollupPeriod, string>> = { hour: 'start', day: `start - start % ${DAY_MS}`,
  month: "unixepoch(start / 1000, 'unixepoch', 'start of month') * 1000" }

/** Rows at a time: a millisecond or two, because commits wait meanwhile. */
const SLICE = 500
/** Periods that one step of a query reads. */
const PERIODS: Readonly<Record<RollupPeriod, number>> = { hour: 24, day: 4, month: 1 }

type Row = Readonly<Record<string, string | number | null>>

/** What rows are ordered by. */
interface Id {
  readonly start: number
  readonly members: Members
}

/**
 * Rows of periods that are over are added to the next table, some with each write: those before a mark, in the order of
 * their ids. They stay where they are, but for hours, which are forgotten after 7 days.
 */
class Carrier {
  readonly #of: 'hours' | 'days'
  readonly #add: StatementSync
  readonly #next: StatementSync
  readonly #mark: StatementSync
  readonly #found: StatementSync

  constructor (db: DatabaseSync, from: 'hour' | 'day', to: 'day' | 'month') {
    this.#of = `${from}s`
    const rest = `FROM ${TABLES[from]} WHERE (${ID}) >= (?,?,?,?,?) AND start < ? ORDER BY ${ID} LIMIT`
    this.#add = db.prepare(`INSERT INTO ${TABLES[to]} (${COLUMNS})
      SELECT ${PERIOD[to]},${GROUPS.join()},${SUMS.join()} ${rest} ${SLICE} ${ADD}`)
    this.#next = db.prepare(`SELECT ${ID} ${rest} 1 OFFSET ${SLICE}`)
    this.#found = db.prepare(`SELECT ${ID} FROM carried WHERE of = ?`)
    this.#mark = db.prepare(`UPDATE carried SET (${ID}) = (?,?,?,?,?) WHERE of = ?`)
  }

  /** The first row that is not carried, or may not be. */
  get mark (): Id {
    return idOf(this.#found.get(this.#of) as Row)
  }

  /** Carries some rows of periods before an instant, as part of a transaction. @returns whether more are left */
  carry (before: number): boolean {
    const { mark } = this
    if (mark.start >= before) return false
    this.#add.run(...valuesOf(mark), before)
    const next = this.#next.get(...valuesOf(mark), before) as Row | undefined
    this.#mark.run(...valuesOf(next === undefined ? { start: before, members: NOBODY } : idOf(next)), this.#of)
    return next !== undefined
  }
}

export class RollupTables {
  readonly #db: DatabaseSync
  readonly #hours: Carrier
  readonly #days: Carrier
  readonly #add: Readonly<Record<RollupPeriod, StatementSync>>
  readonly #forget: StatementSync
  readonly #firstRow: StatementSync
  readonly #first: Readonly<Record<RollupPeriod, StatementSync>>
  /** the newest hour of an entry: no hour before the mark of hours */
  #newest: number
  /** rows may be left that are to be carried or forgotten */
  #mayCarry = true

  /** @param newest milliseconds since the epoch of the newest entry */
  constructor (db: DatabaseSync, newest: number) {
    this.#db = db
    this.#hours = new Carrier(db, 'hour', 'day')
    this.#days = new Carrier(db, 'day', 'month')
    // What is carried may go further than the entries: to an hour in which there were failures only.
    this.#newest = Math.max(hourOf(newest), this.#hours.mark.start)
    const each = (sql: (table: string) => string): Record<RollupPeriod, StatementSync> =>
      ({ hour: db.prepare(sql(TABLES.hour)), day: db.prepare(sql(TABLES.day)), month: db.prepare(sql(TABLES.month)) })
    this.#add = each((table) => `INSERT INTO ${table} (${COLUMNS}) VALUES ${MARKS} ${ADD}`)
    this.#forget = db.prepare(`DELETE FROM ${TABLES.hour} WHERE (${ID}) IN (
      SELECT ${ID} FROM ${TABLES.hour} WHERE start < ? AND (${ID}) < (?,?,?,?,?) ORDER BY ${ID} LIMIT ${SLICE})`)
    this.#firstRow = db.prepare(`SELECT ${ID} FROM ${TABLES.hour} ORDER BY ${ID} LIMIT 1`)
    this.#first = each((table) => `SELECT min(start) AS start FROM ${table} WHERE start >= ?`)
  }

  /**
   * Adds to hours, a statement for each hour and members, as part of a transaction; and to the days and months that
   * have the sums of that hour already: failures may be told late.
   */
  add (sums: RollupSums): void {
    let [hours, days]: readonly (Id | undefined)[] = []
    for (const { start, members, sum } of sums.rows()) {
      const row = (start: number): SQLInputValue[] =>
        [start, ...GROUPS.map((group) => members[group]), ...SUMS.map((name) => sum[name])]
      // The newest hour is not over.
      const isCarried = start < this.#newest && isBefore({ start, members }, hours ??= this.#hours.mark)
      if (!isCarried || start >= firstKept(this.#newest)) this.#add.hour.run(...row(start))
      if (!isCarried) continue
      const day = dayOf(start)
      this.#add.day.run(...row(day))
      if (isBefore({ start: day, members }, days ??= this.#days.mark)) this.#add.month.run(...row(monthStartOf(start)))
    }
  }

  /**
   * Adds some of the hours that are over to their days, and of the days that are over to their months; forgets some of
   * the hours of before the last 7 days. Part of a transaction.
   * @param time of the newest entry
   */
  carry (time: number): void {
    const hour = hourOf(time)
    if (hour > this.#newest) {
      this.#newest = hour
      this.#mayCarry = true
    }
    if (!this.#mayCarry) return
    const mayLeave = [this.#hours.carry(this.#newest)]
    const { mark } = this.#hours
    mayLeave.push(this.#days.carry(dayOf(mark.start)))
    mayLeave.push(Number(this.#forget.run(firstKept(this.#newest), ...valuesOf(mark)).changes) === SLICE)
    this.#mayCarry = mayLeave.includes(true)
  }

  /** The first periods of a query, and where the next ones begin. */
  read (query: RollupQuery): RollupStep {
    return query.by === 'span' ? { cells: this.#readSpan(query) } : this.#readPeriods(query, query.by)
  }

  #readPeriods ({ from, to, groups, only }: RollupQuery, by: RollupPeriod): RollupStep {
    const marks = { hour: this.#hours.mark, day: this.#days.mark }
    // From here on some of what the shorter periods have is not in the longer ones yet.
    const open = by === 'hour' ? Infinity : by === 'day' ? dayOf(marks.hour.start) : monthStartOf(marks.day.start)
    const starts: number[] = []
    let next = this.#next(by, from, marks)
    for (; next !== undefined && next < to && starts.length < PERIODS[by]; next = this.#next(by, next + 1, marks)) {
      if (next >= open && starts.length > 0 && starts[0]! < open) break
      starts.push(next)
    }
    if (starts.length === 0) return { cells: [] }
    const [first, end] = [starts[0]!, END_OF[by](starts.at(-1)!)]
    const filters = GROUPS.filter((group) => only[group] !== undefined)
    const where = (bounds: string): string => [bounds, ...filters.map((group) => `${group} = :${group}`)].join(' AND ')
    const values = `${GROUPS.join()},${SUMS.join()}`
    const rest = first < open ? [] : by === 'month' ? ['day', 'hour'] as const : ['hour'] as const
    const table = `${TABLES[by]} WHERE ${where('start >= :first AND start < :end')}`
    const asked = ['start', ...groups].join()
    // Of one table alone the rows are read in the order of its key, without sorting them where groups allow it.
    const found = this.#db.prepare(`SELECT ${asked},${ADDED_UP} FROM ${
      rest.length === 0
        ? table
        : `(SELECT start,${values} FROM ${table} ${
          rest.map((of) => `UNION ALL SELECT ${PERIOD[by]} AS start,${values} FROM ${TABLES[of]} WHERE ` + where(
            `start >= max(:first, :${of}_start) AND start < :end AND (${ID}) >= (${markNames(of).join()})`
          )).join(' ')
        })`
    } GROUP BY ${asked} ORDER BY ${asked}`)
    found.setReturnArrays(true)
    const rows = found.all({
      first,
      end,
      ...Object.fromEntries(filters.map((group) => [group, only[group]!])),
      ...Object.assign({}, ...rest.map((of) => namedMark(of, marks[of])))
    }) as unknown as Cell[][]
    return { cells: cellsOf(rows), ...(next !== undefined && next < to && { next }) }
  }

  /**
   * A day of another zone is the day in UTC that has most of it, with the hours that it has beside that, and without
   * those that it does not have: an eighth of its own hours, in Berlin.
   */
  #readSpan ({ from, to, groups, only }: RollupQuery): Cell[] {
    const day = dayOf((from + to) / 2)
    const end = day + DAY_MS
    const isRead = (from <= day || day >= firstKept(this.#newest)) &&
      Math.abs(day - from) + Math.abs(end - to) < to - from
    const { mark } = this.#hours
    const filters = GROUPS.filter((group) => only[group] !== undefined)
    const rows = (table: string, bounds: string, sign = ''): string =>
      `SELECT ${[...GROUPS, ...SUMS.map((name) => sign + name)].join()} FROM ${table} WHERE ` +
        [bounds, ...filters.map((group) => `${group} = :${group}`)].join(' AND ')
    const hours = (bounds: string, sign?: string): string => rows(TABLES.hour, bounds, sign)
    const parts = isRead
      ? [rows(TABLES.day, 'start = :day'),
        hours(`start >= max(:day, :hour_start) AND start < :end AND (${ID}) >= (${markNames('hour').join()})`),
        hours('start >= :from AND start < :day'), hours('start >= :end AND start < :to'),
        hours('start >= :day AND start < :from', '-'), hours('start >= :to AND start < :end', '-')]
      : [hours('start >= :from AND start < :to')]
    const sums = this.#db.prepare(`SELECT ${[':from', ...groups].join()},${ADDED_UP}
      FROM (SELECT ${[...GROUPS, ...SUMS].join()} FROM ${TABLES.hour} WHERE false UNION ALL ${parts.join(' UNION ALL ')})
      ${groups.length === 0 ? '' : `GROUP BY ${groups.join()} ORDER BY ${groups.join()}`}`)
    sums.setReturnArrays(true)
    const found = sums.all({ from, to, ...(isRead && { day, end, ...namedMark('hour', mark) }),
      ...Object.fromEntries(filters.map((group) => [group, only[group]!])) }) as unknown as Cell[][]
    // What was in the day only, and not in the span, is nothing now.
    return cellsOf(found.filter((row) => row.slice(1 + groups.length).some((cell) => cell !== 0 && cell !== null)))
  }

  /** The first period with anything in it that begins at an instant or later. */
  #next (by: RollupPeriod, from: number, marks: Readonly<Record<'hour' | 'day', Id>>): number | undefined {
    // A period that began earlier is not meant.
    const first = from === PERIOD_OF[by](from) ? from : END_OF[by](from)
    const found = (of: RollupPeriod, mark = 0): number[] => {
      const start = this.#first[of].get(Math.max(first, mark))!['start'] as number | null
      return start === null ? [] : [PERIOD_OF[by](start)]
    }
    const starts = [...found(by), ...by === 'hour' ? [] : found('hour', marks.hour.start),
      ...by === 'month' ? found('day', marks.day.start) : []]
    return starts.length === 0 ? undefined : Math.min(...starts)
  }

  /** Begins to add up all entries again. Nothing may be carried or forgotten until it has ended. */
  check (): RollupCheck {
    const row = this.#firstRow.get() as Row | undefined
    const kept = firstKept(this.#newest)
    const first = row === undefined ? undefined : idOf(row)
    return new RollupCheck(this.#db, {
      hour: this.#hours.mark,
      day: this.#days.mark,
      // Hours are forgotten row by row, and the first one may be half of it.
      isForgotten: (id) => id.start < kept && (first === undefined || isBefore(id, first))
    })
  }
}

const END_OF: Readonly<Record<RollupPeriod, (start: number) => number>> = {
  hour: (time) => hourOf(time) + HOUR_MS, day: (time) => dayOf(time) + DAY_MS, month: nextMonthOf
}

interface Carried {
  /** the first hour that is in no day, and the first day that is in no month */
  readonly hour: Id
  readonly day: Id
  readonly isForgotten: (hour: Id) => boolean
}

/** All entries added up again: to hours, and those that are carried to their days and months. */
export class RollupCheck implements SumsAt {
  readonly #tables: Readonly<Record<RollupPeriod, TableCheck>>
  readonly #carried: Carried
  /** entries of hours that are carried, and were not dealt out yet */
  readonly #sums = new RollupSums()

  constructor (db: DatabaseSync, carried: Carried) {
    this.#tables = { hour: new TableCheck(db, 'hour'), day: new TableCheck(db, 'day'), month: new TableCheck(db, 'month') }
    this.#carried = carried
  }

  at (time: number, members: Members): Sum {
    const start = hourOf(time)
    const isCarried = isBefore({ start, members }, this.#carried.hour)
    return (isCarried ? this.#sums : this.#tables.hour.sums).of(start, members)
  }

  /**
   * Compares the periods that can get no more entries than those that were added, or are added while it runs.
   * @param time of the last entry that was added; Infinity: all were
   * @returns title, name of the sum, sum of the entries, and stored sum, of those that differ
   */
  * compare (time: number): Iterable<Cell[]> {
    const { hour, day, month } = this.#tables
    const before = time === Infinity ? time : hourOf(time)
    for (const start of [...this.#sums.periods.keys()].toSorted((a, b) => a - b)) if (start < before) this.#deal(start)
    yield * hour.compare(before)
    // An hour that is carried gets no more entries: it was over.
    yield * day.compare(before === Infinity ? before : dayOf(before))
    yield * month.compare(before === Infinity ? before : monthStartOf(before))
  }

  /** Gives an hour that is carried to the tables that have it. */
  #deal (start: number): void {
    const { hour, day, month } = this.#tables
    for (const [name, sum] of this.#sums.periods.get(start)!) {
      const members = membersOf(name)
      const id = { start, members }
      if (!this.#carried.isForgotten(id)) addSum(hour.sums.of(start, members), sum)
      addSum(day.sums.at(start, members), sum)
      if (isBefore({ start: dayOf(start), members }, this.#carried.day)) addSum(month.sums.at(start, members), sum)
    }
    this.#sums.periods.delete(start)
  }
}

class TableCheck {
  readonly sums: RollupSums
  readonly #by: RollupPeriod
  readonly #find: StatementSync
  readonly #next: StatementSync
  readonly #slice: StatementSync
  /** periods that begin before it were compared */
  #from = 0

  constructor (db: DatabaseSync, by: RollupPeriod) {
    const table = TABLES[by]
    this.#by = by
    this.sums = new RollupSums(PERIOD_OF[by])
    this.#find = db.prepare(`SELECT ${KEPT} FROM ${table} WHERE (${ID}) = (?,?,?,?,?)`)
    this.#next = db.prepare(`SELECT min(start) AS start FROM ${table} WHERE start >= ? AND start < ?`)
    this.#slice = db.prepare(`SELECT ${GROUPS.join()},${KEPT} FROM ${table}
      WHERE start = ? AND (${GROUPS.join()}) > (?,?,?,?) ORDER BY ${GROUPS.join()} LIMIT ${SLICE}`)
  }

  /** Compares the periods that begin before an instant, a slice at each step. */
  * compare (before: number): Iterable<Cell[]> {
    for (let start = this.#first(before); start !== undefined; start = this.#first(before)) {
      yield * this.#compareOne(start)
      this.sums.periods.delete(start)
      this.#from = start + 1
    }
  }

  #first (before: number): number | undefined {
    const kept = this.#next.get(this.#from, Math.min(before, Number.MAX_SAFE_INTEGER))!['start'] as number | null
    const first = Math.min(kept ?? Infinity, ...this.sums.periods.keys())
    return first < before ? first : undefined
  }

  /** Each row and its sum are read in the same moment: writes may run between two steps. */
  * #compareOne (start: number): Iterable<Cell[]> {
    let looked = 0
    for (const [name, sum] of this.sums.periods.get(start) ?? []) {
      const members = membersOf(name)
      const kept = this.#find.get(start, ...GROUPS.map((group) => members[group])) as Row | undefined
      const cells = this.#cellsOf(start, members, sum, kept === undefined ? noSum() : sumIn(kept))
      if (cells.length > 0 || ++looked % SLICE === 0) yield cells
    }
    // Stored sums without any entry: they may count errors only.
    for (let after: readonly SQLInputValue[] | undefined = GROUPS.map(() => ''); after !== undefined;) {
      const rows = this.#slice.all(start, ...after) as unknown as Row[]
      yield rows.filter((row) => this.sums.periods.get(start)?.has(nameOf(membersIn(row))) !== true)
        .flatMap((row) => this.#cellsOf(start, membersIn(row), noSum(), sumIn(row)))
      after = rows.length < SLICE ? undefined : GROUPS.map((group) => rows.at(-1)![group]!)
    }
  }

  #cellsOf (start: number, members: Members, entries: Sum, kept: Sum): Cell[] {
    return differencesOf(entries, kept).flatMap(([name, ...values]) =>
      [titleOf(start, this.#by, members), name, ...values])
  }
}

/** Whether one comes before another in the order of SQLite: members by bytes. */
function isBefore (one: Id, other: Id): boolean {
  if (one.start !== other.start) return one.start < other.start
  const differing = GROUPS.find((group) => one.members[group] !== other.members[group])
  return differing !== undefined &&
    Buffer.compare(Buffer.from(one.members[differing]), Buffer.from(other.members[differing])) < 0
}

function idOf (row: Row): Id {
  return { start: row['start'] as number, members: membersIn(row) }
}

function valuesOf ({ start, members }: Id): SQLInputValue[] {
  return [start, ...GROUPS.map((group) => members[group])]
}

/** Parameters that say a mark. */
function markNames (of: 'hour' | 'day'): readonly string[] {
  return ['start', ...GROUPS].map((name) => `:${of}_${name}`)
}

function namedMark (of: 'hour' | 'day', { start, members }: Id): Readonly<Record<string, SQLInputValue>> {
  return { [`${of}_start`]: start, ...Object.fromEntries(GROUPS.map((group) => [`${of}_${group}`, members[group]])) }
}

function membersIn ({ account, key, model, channel }: Row): Members {
  const text = (cell: Row[string] | undefined): string => (cell ?? '') as string
  return { account: text(account), key: text(key), model: text(model), channel: text(channel) }
}

function sumIn (row: Row): Sum {
  return { ...row as unknown as Sum, nanos: BigInt(row['nanos']!), shortfall: BigInt(row['shortfall']!) }
}
