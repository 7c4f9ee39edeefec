// The tables of rollups: hours of the last 7 days, and the days before. Part of ledger.ts, which owns the file.
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite'
import type { Cell } from '../local/cells.ts'
import { AMOUNTS, COUNTS, DAY_MS, dayOf, differencesOf, firstKept, GROUPS, HOUR_MS, hourOf, membersOf, type Members,
  nameOf, noSum, rollupOf, RollupSums, type Sum, type SumsAt, titleOf } from '../rollup-sums.ts'
import type { Rollup, RollupQuery } from '../rollups.ts'
import type { RollupStep } from '../local/writer.ts'

const HOURS = 'usage_hours'
const DAYS = 'usage_days'
const ID = ['start', ...GROUPS].join()
const SUMS = [...COUNTS, ...AMOUNTS]
const COLUMNS = `${ID},${SUMS.join()}`
const ADD = `ON CONFLICT DO UPDATE SET ${SUMS.map((name) => `${name} = ${name} + excluded.${name}`).join()}`
/** Amounts are text: as numbers they would be rounded. */
const ADDED_UP = [...COUNTS.map((name) => `sum(${name}) AS ${name}`),
  ...AMOUNTS.map((name) => `CAST(sum(${name}) AS TEXT) AS ${name}`)].join()
const KEPT = [...COUNTS, ...AMOUNTS.map((name) => `CAST(${name} AS TEXT) AS ${name}`)].join()

/** Rows at a time: a millisecond or two, because commits wait meanwhile. */
const SLICE = 500
/** Periods that one step of a query reads: a day may be 24 hours. */
const PERIODS: Readonly<Record<RollupQuery['by'], number>> = { hour: 24, day: 4 }
const LENGTHS: Readonly<Record<RollupQuery['by'], number>> = { hour: HOUR_MS, day: DAY_MS }

type Row = Readonly<Record<string, string | number | null>>

export class RollupTables {
  readonly #db: DatabaseSync
  readonly #add: StatementSync
  readonly #fold: StatementSync
  readonly #dropFolded: StatementSync
  readonly #firstRow: StatementSync
  readonly #firstHour: StatementSync
  readonly #firstDay: StatementSync
  /** the newest hour of an entry */
  #newest = 0
  /** hours may be left that are to be folded */
  #mayFold = true

  /** @param newest milliseconds since the epoch of the newest entry */
  constructor (db: DatabaseSync, newest: number) {
    this.#db = db
    this.#newest = hourOf(newest)
    const marks = COLUMNS.split(',').map(() => '?').join()
    this.#add = db.prepare(`INSERT INTO ${HOURS} (${COLUMNS}) VALUES (${marks}) ${ADD}`)
    const oldest = `FROM ${HOURS} WHERE start < ? ORDER BY ${ID} LIMIT ${SLICE}`
    this.#fold = db.prepare(`INSERT INTO ${DAYS} (${COLUMNS})
      SELECT start - start % ${DAY_MS},${GROUPS.join()},${SUMS.join()} ${oldest} ${ADD}`)
    this.#dropFolded = db.prepare(`DELETE FROM ${HOURS} WHERE (${ID}) IN (SELECT ${ID} ${oldest})`)
    this.#firstRow = db.prepare(`SELECT ${ID} FROM ${HOURS} ORDER BY ${ID} LIMIT 1`)
    this.#firstHour = db.prepare(`SELECT min(start) AS start FROM ${HOURS} WHERE start >= ?`)
    this.#firstDay = db.prepare(`SELECT min(start) AS start FROM ${DAYS} WHERE start >= ?`)
  }

  /** Adds to hours, a statement for each hour and members, as part of a transaction. */
  add (sums: RollupSums): void {
    for (const { start, members, sum } of sums.rows()) {
      if (start > this.#newest || start < firstKept(this.#newest)) this.#mayFold = true
      this.#newest = Math.max(this.#newest, start)
      this.#add.run(start, ...GROUPS.map((group) => members[group]), ...SUMS.map((name) => sum[name]))
    }
  }

  /**
   * Adds some of the hours of before the last 7 days to their days, in the order of their ids, as part of a
   * transaction.
   */
  fold (): void {
    if (!this.#mayFold) return
    const first = firstKept(this.#newest)
    this.#fold.run(first)
    this.#mayFold = Number(this.#dropFolded.run(first).changes) === SLICE
  }

  /** The first periods of a query, and where the next ones begin. */
  read ({ by, from, to, groups, only }: RollupQuery): RollupStep {
    const length = LENGTHS[by]
    const starts: number[] = []
    const isHour = by === 'hour'
    let next = this.#next(isHour, Math.ceil(from / length) * length)
    for (; next !== undefined && next < to && starts.length < PERIODS[by]; next = this.#next(isHour, next + length)) {
      starts.push(next)
    }
    const filters = GROUPS.filter((group) => only[group] !== undefined)
    const where = (listed: string): string =>
      [`start IN (SELECT value FROM json_each(:${listed}))`, ...filters.map((group) => `${group} = :${group}`)]
        .join(' AND ')
    const hours = `FROM ${HOURS} WHERE ${where('hours')}`
    const asked = ['start', ...groups].join()
    const sql = `SELECT ${asked},${ADDED_UP} ` + (isHour ? hours : `FROM (
        SELECT ${COLUMNS} FROM ${DAYS} WHERE ${where('days')}
        UNION ALL SELECT start - start % ${DAY_MS} AS start,${GROUPS.join()},${SUMS.join()} ${hours}
      )`) + ` GROUP BY ${asked} ORDER BY ${asked}`
    const rows = this.#db.prepare(sql).all({
      hours: JSON.stringify(isHour ? starts : starts.flatMap(hoursOf)),
      ...(!isHour && { days: JSON.stringify(starts) }),
      ...Object.fromEntries(filters.map((group) => [group, only[group]!]))
    }) as unknown as Row[]
    return {
      rollups: rows.map((row): Rollup =>
        rollupOf({ start: row['start'] as number, members: membersIn(row), sum: sumIn(row) }, groups)
      ),
      ...(next !== undefined && next < to && { next })
    }
  }

  /** The first period with anything in it that begins at an instant or later. */
  #next (isHour: boolean, from: number): number | undefined {
    const hour = this.#firstHour.get(from)!['start'] as number | null
    if (isHour) return hour ?? undefined
    const day = this.#firstDay.get(from)!['start'] as number | null
    if (hour === null) return day ?? undefined
    return day === null ? dayOf(hour) : Math.min(day, dayOf(hour))
  }

  /** Begins to add up all entries again. No hour may be folded until it has ended. */
  check (): RollupCheck {
    const row = this.#firstRow.get() as Row | undefined
    const kept = firstKept(this.#newest)
    const first = row === undefined ? kept : row['start'] as number
    // An hour is folded row by row, and this one may be half of it.
    const isFolded = (hour: number, members: Members): boolean =>
      hour < first || (hour === first && hour < kept && isBefore(members, membersIn(row!)))
    return new RollupCheck(new TableCheck(this.#db, DAYS), new TableCheck(this.#db, HOURS), isFolded, first)
  }
}

/** All entries added up again: to hours where those are kept, and to days before. */
export class RollupCheck implements SumsAt {
  readonly #days: TableCheck
  readonly #hours: TableCheck
  readonly #isFolded: (hour: number, members: Members) => boolean
  readonly #firstHour: number

  /** @param firstHour that is kept as one, though some of it may be folded */
  constructor (
    days: TableCheck,
    hours: TableCheck,
    isFolded: (hour: number, members: Members) => boolean,
    firstHour: number
  ) {
    this.#days = days
    this.#hours = hours
    this.#isFolded = isFolded
    this.#firstHour = firstHour
  }

  at (time: number, members: Members): Sum {
    return (this.#isFolded(hourOf(time), members) ? this.#days : this.#hours).sums.at(time, members)
  }

  /**
   * Compares the periods that can get no more entries than those that were added, or are added while it runs.
   * @param time of the last entry that was added; Infinity: all were
   * @returns title, name of the sum, sum of the entries, and stored sum, of those that differ
   */
  * compare (time: number): Iterable<Cell[]> {
    const hour = time === Infinity ? time : hourOf(time)
    yield * this.#days.compare(hour <= this.#firstHour ? dayOf(hour) : Infinity)
    yield * this.#hours.compare(hour)
  }
}

class TableCheck {
  readonly sums: RollupSums
  readonly #length: number
  readonly #find: StatementSync
  readonly #next: StatementSync
  readonly #slice: StatementSync
  /** periods that begin before it were compared */
  #from = 0

  constructor (db: DatabaseSync, table: typeof DAYS | typeof HOURS) {
    this.#length = table === DAYS ? DAY_MS : HOUR_MS
    this.sums = new RollupSums(table === DAYS ? dayOf : hourOf)
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
      [titleOf(start, this.#length, members), name, ...values])
  }
}

function hoursOf (day: number): number[] {
  return Array.from({ length: 24 }, (_, hour) => day + hour * HOUR_MS)
}

/** Whether one comes before another in the order of SQLite: by bytes. */
function isBefore (one: Members, other: Members): boolean {
  const differing = GROUPS.find((group) => one[group] !== other[group])
  return differing !== undefined && Buffer.compare(Buffer.from(one[differing]), Buffer.from(other[differing])) < 0
}

function membersIn ({ account, key, model, channel }: Row): Members {
  const text = (cell: Row[string] | undefined): string => (cell ?? '') as string
  return { account: text(account), key: text(key), model: text(model), channel: text(channel) }
}

function sumIn (row: Row): Sum {
  return { ...row as unknown as Sum, nanos: BigInt(row['nanos']!), shortfall: BigInt(row['shortfall']!) }
}
