// The file gateway.db: opens it, writes a batch in one transaction, reads and adds up in slices. Runs in a thread of
// its own; SQL is only here, in schema.ts, documents.ts and backup.ts.
import { closeSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite'
import { type Nanos, NANOS_PER_USD } from '../../money/nanos.ts'
import { monthOf } from '../../money/calendar.ts'
import { REMEMBERED } from '../local/settled.ts'
import { addFailures, addRow, cellsOf, ENTRY, PROGRESS, TASK, WINDOW, withTexts,
  type Cell } from '../local/cells.ts'
import { type KnownEntry, type Loaded, NO_WRITE, type Opened, type Write } from '../local/writer.ts'
import { isOver, oldestKept, partsOf } from '../periods.ts'
import { REFUNDED_LATE, SETTLED_LATE } from '../late-entries.ts'
import type { Difference } from '../store.ts'
import { RollupSums } from '../rollup-sums.ts'
import { Sums } from '../sums.ts'
import { copy } from './backup.ts'
import { LossError, readMark, refuseCut, refuseLoss, writeMark } from './ledger-mark.ts'
import { FOREIGN, migrate, refuseEmpty } from './schema.ts'
import { Tables } from './documents.ts'
import { EntryIndex } from './newest.ts'
import { type RollupCheck, RollupTables } from './rollup-tables.ts'

/** Rows at a time: less than a millisecond each, because commits wait meanwhile. */
const SLICE = 500

const [TIME, ACCOUNT, KEY, NANOS, DAY] = [ENTRY.indexOf('time'), ENTRY.indexOf('account'), ENTRY.indexOf('key'),
  ENTRY.indexOf('nanos'), ENTRY.indexOf('day')]

const LAST = 'SELECT seq, time FROM entries ORDER BY seq DESC LIMIT 1'

/** Stored sums that memory has too. */
type KeptSum = Exclude<Difference['of'], 'rollup'>

/**
 * Numbers of entries that one statement inserts, the largest first: a third less time for each than with a statement
 * for each (measured).
 */
const TOGETHER = [16, 4] as const

/** Tables of these sums, with the columns that identify a row. */
const KEPT: Readonly<Record<KeptSum, { readonly table: string, readonly id: readonly string[] }>> = {
  account: { table: 'balances', id: ['account'] },
  key: { table: 'key_usage', id: ['key'] },
  period: { table: 'key_periods', id: ['period', 'key'] }
}

/** The arguments of `OnCompared`. */
interface Compared { readonly of: Difference['of'], readonly cells: Cell[] }

export class Ledger {
  readonly documents: Tables
  readonly #folder: string
  readonly #db: DatabaseSync
  readonly #insert: StatementSync
  /** of `TOGETHER`, each with its cells */
  readonly #inserts: readonly { readonly cells: number, readonly statement: StatementSync }[]
  readonly #find: StatementSync
  readonly #addBalance: StatementSync
  readonly #addUsage: StatementSync
  readonly #addPeriod: StatementSync
  readonly #forgetPeriods: StatementSync
  readonly #note: StatementSync
  readonly #forget: StatementSync
  readonly #noteWindow: StatementSync
  readonly #probe: StatementSync
  readonly #slice: StatementSync
  readonly #last: StatementSync
  readonly #rollups: RollupTables
  readonly #index: EntryIndex
  /** sums of the entries that a running `verify` has seen; entries written meanwhile are added */
  #verified: { readonly sums: Sums, readonly rollups: RollupCheck } | undefined
  /** newest day of the entries that this thread has written */
  #today = ''

  /** @throws {Error} the folder can't be used, or its ledger was cut: says why, in words for the operator */
  constructor (folder: string, isDurable: boolean) {
    const file = path.join(folder, 'gateway.db')
    this.#folder = folder
    let db: DatabaseSync | undefined
    try {
      refuseLoss(folder)
      const mark = readMark(folder)
      create(folder, file)
      // The timeout is for the end of another process that is about to end, or of a dead thread of this one.
      this.#db = db = new DatabaseSync(file, { timeout: 1000 })
      // One connection for the process's life: the lock dies with the process, and the index of the write-ahead log is
      // in memory, not in a third file.
      this.#db.exec('PRAGMA locking_mode = EXCLUSIVE')
      const { journal_mode: mode } = this.#db.prepare('PRAGMA journal_mode = WAL').get()!
      if (mode !== 'wal') throw new Error(`its file system allows no write-ahead log, only ${mode}`)
      if (mark !== undefined) {
        refuseEmpty(db)
        refuseCut(folder, mark, lastOf(db.prepare(LAST)))     // before the first write: the missing log may come back
      }
      migrate(this.#db) // writes in any case: a disk that takes nothing is found here
    } catch (thrown) {
      const error = thrown instanceof LossError ? thrown : new Error(explain(thrown, folder), { cause: thrown })
      db?.close()
      throw error
    }
    try { writeFileSync(pidFile(folder), `${process.pid}\n`) } catch { /* it only serves a message */ }
    // recursive_triggers: without it INSERT OR REPLACE deletes unseen by the triggers that keep entries.
    this.#db.exec(
      `PRAGMA synchronous = ${isDurable ? 'FULL' : 'NORMAL'}; PRAGMA wal_autocheckpoint = 0; PRAGMA recursive_triggers = ON; PRAGMA journal_size_limit = 67108864`
    )

    const prepare = (sql: string): StatementSync => this.#db.prepare(sql)
    const insert = `INSERT INTO entries (${ENTRY.join()}) VALUES (${marks(ENTRY)})`
    this.#insert = prepare(`${insert} ON CONFLICT DO NOTHING`)
    this.#inserts = TOGETHER.map((rows) => ({ cells: rows * ENTRY.length,
      statement: prepare(`${insert}${`,(${marks(ENTRY)})`.repeat(rows - 1)}`) }))
    this.#find = prepare('SELECT seq, CAST(nanos AS TEXT) AS nanos FROM entries WHERE reference = ? AND kind = ?')
    this.#addBalance = prepare(
      'INSERT INTO balances VALUES (?, ?) ON CONFLICT DO UPDATE SET nanos = nanos + excluded.nanos'
    )
    this.#addUsage = prepare(
      'INSERT INTO key_usage VALUES (?, ?) ON CONFLICT DO UPDATE SET nanos = nanos + excluded.nanos'
    )
    this.#addPeriod = prepare(
      'INSERT INTO key_periods VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET nanos = nanos + excluded.nanos'
    )
    this.#forgetPeriods = prepare('DELETE FROM key_periods WHERE period < ? AND period <> ?')
    this.#note = prepare(`INSERT OR REPLACE INTO progress (${PROGRESS.join()}) VALUES (${marks(PROGRESS)})`)
    this.#forget = prepare('DELETE FROM progress WHERE reference = ?')
    this.#noteWindow = prepare(`INSERT OR REPLACE INTO noted_windows (${WINDOW.join()}) VALUES (${marks(WINDOW)})`)
    this.#probe = prepare('UPDATE life SET owner = owner')
    this.#last = prepare(LAST)
    this.#slice = prepare(
      `SELECT ${withTexts(ENTRY)} FROM entries WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ${SLICE}`
    )
    this.#slice.setReturnArrays(true)
    this.#rollups = new RollupTables(this.#db, this.last().time)
    this.#index = new EntryIndex(this.#db)
    this.documents = new Tables(this.#db, this.#rollups, this.#index, (work) => { this.#transact(work) })
  }

  /** Writes all in one transaction. @throws {Error} nothing was recorded */
  write ({ entries, progress, forget, tasks, windows, failures }: Write): KnownEntry[] {
    const known: KnownEntry[] = []
    const sums = new Sums()
    const used = new RollupSums()
    const failed = new RollupSums()
    addFailures(failures, failed)
    let today = this.#today
    this.#transact(() => {
      let skipped: Cell | undefined
      /** The cells before it are inserted; it falls behind for good where an entry is not new. */
      let inserted = 0
      for (let i = 0; i < entries.length; i += ENTRY.length) {
        if (i === inserted) inserted += this.#insertTogether(entries, i)
        const row = entries.slice(i, i + ENTRY.length)
        const [seq, , kind, account, key, reference, nanos] = row as [number, number, string, string, string | null,
          string, Nanos]
        if (kind === 'shortfall' && reference === skipped) continue
        if (i < inserted || this.#insert.run(...row as SQLInputValue[]).changes === 1) {
          const day = row[DAY] as string | null
          if (day !== null && day > today) today = day
          sums.add(account, key, nanos, day)
          addRow(row, used)
          this.#index.note(row)
          continue
        }
        const before = this.#find.get(reference, kind) as { readonly seq: number, readonly nanos: string } | undefined
        if (before === undefined) throw new Error(`the number ${seq} was used for another entry`)
        if (before.seq === seq) continue // repeated after the death of a thread that had written it
        known.push([seq, BigInt(before.nanos)])
        skipped = reference
      }
      for (const [account, nanos] of sums.accounts) { this.#addBalance.run(account, nanos) }
      for (const [key, nanos] of sums.keys) { this.#addUsage.run(key, nanos) }
      for (const [name, nanos] of sums.periods) { this.#addPeriod.run(...partsOf(name), nanos) }
      this.#rollups.add(used)
      this.#rollups.add(failed)
      if (entries.length > 0) {
        if (this.#verified === undefined) this.#rollups.carry(entries.at(TIME - ENTRY.length) as number)
        this.#index.add(entries.at(-ENTRY.length) as number)
      }
      if (today !== this.#today) this.#forgetPeriods.run(oldestKept(today), monthOf(oldestKept(today)))
      for (let i = 0; i < progress.length; i += PROGRESS.length) {
        this.#note.run(...progress.slice(i, i + PROGRESS.length) as SQLInputValue[])
      }
      for (const id of forget) { this.#forget.run(id) }
      this.documents.writeTasks(tasks)
      for (let i = 0; i < windows.length; i += WINDOW.length) {
        this.#noteWindow.run(...windows.slice(i, i + WINDOW.length) as SQLInputValue[])
      }
      // A write without entries may be a probe of whether the disk takes writes: so it writes something.
      if (entries.length === 0) this.#probe.run()
    })
    this.#today = today
    this.#verified?.sums.addAll(sums)
    if (this.#verified !== undefined) used.addTo(this.#verified.rollups)
    return known
  }

  /**
   * Inserts the next entries by one statement, if they are many enough and all of them are new.
   * @returns number of cells; 0: nothing is inserted
   */
  #insertTogether (entries: readonly Cell[], from: number): number {
    const insert = this.#inserts.find(({ cells }) => from + cells <= entries.length)
    if (insert === undefined) return 0
    try {
      insert.statement.run(...entries.slice(from, from + insert.cells) as SQLInputValue[])
      return insert.cells
    } catch (thrown) {
      // Such a statement takes back what it has done, and leaves the transaction open.
      if (codeOf(thrown) % 256 === CONSTRAINT) return 0
      throw thrown
    }
  }

  /**
   * Runs `work` in one transaction.
   * @throws {Error} the ledger is not empty, or an error of `work`: then nothing is changed
   */
  async fill (work: () => Promise<void>): Promise<void> {
    for (const table of ['entries', 'records', 'audit', 'tasks', 'answers', 'progress']) {
      if (this.#db.prepare(`SELECT 1 FROM ${table} LIMIT 1`).get() !== undefined) {
        throw new Error(
          `the data folder ${this.#folder} is not empty: there are ${table} in it. Name another one in store.path`
        )
      }
    }
    this.#db.exec('BEGIN IMMEDIATE')
    try {
      await work()
      this.#db.exec('COMMIT')
    } catch (thrown) {
      this.#rollBack()
      throw thrown
    }
  }

  /** Stores the name of this process, by which its later threads know the ledger as theirs. */
  begin (owner: string): void {
    this.#db.prepare('UPDATE life SET owner = ?').run(owner)
    this.#index.repair()
  }

  /** @throws {Error} another process had the folder meanwhile: this one's memory is out of date */
  resume (owner: string): void {
    const { owner: last } = this.#db.prepare('SELECT owner FROM life').get()!
    if (last !== owner) {
      throw new Error(`another gateway has written into ${this.#folder} meanwhile: this one must be started again`)
    }
  }

  /**
   * Charges the requests that a dead process had not settled, by their last progress, and deletes the progress in the
   * same transaction: a process that dies in here leaves all to the next start.
   * @returns how many
   */
  recover (now: number): number {
    const left = this.#db.prepare(`SELECT ${withTexts(PROGRESS)} FROM progress`)
    left.setReturnArrays(true)
    const rows = left.all() as unknown as Cell[][]
    let { seq, time } = this.last()
    time = Math.max(time, now)
    const entries: Cell[] = []
    for (const [account, key, reference, nanos, shortfall, model, channel, , ...usage] of rows) {
      const push = (kind: string, change: Nanos, short: Nanos | null): void => {
        entries.push(++seq, time, kind, account!, key!, reference!, change, short, model!, channel!, 'estimated',
          ...usage)
      }
      push('settle', BigInt(nanos!), null)
      if (shortfall !== null) push('shortfall', 0n, BigInt(shortfall!))
    }
    if (rows.length > 0) {
      this.write({ ...NO_WRITE, entries, forget: rows.map(([, , reference]) => reference as string) })
    }
    return rows.length
  }

  /** The state that memory needs before its first decision, slice by slice. */
  * load (): Iterable<readonly [Loaded, Cell[]]> {
    const queries: readonly (readonly [Loaded, string])[] = [
      ['account', 'SELECT account, CAST(nanos AS TEXT) FROM balances'],
      ['key', 'SELECT key, CAST(nanos AS TEXT) FROM key_usage'],
      ['period', 'SELECT period, key, CAST(nanos AS TEXT) FROM key_periods ORDER BY period'],
      ['charge',
        `SELECT reference, CAST(-nanos AS TEXT) FROM entries WHERE kind = 'settle'
        ORDER BY seq DESC LIMIT ${REMEMBERED}`],
      // Refunds and late settlements: after the settlements that they change.
      ['charge',
        `SELECT request, CAST(CASE WHEN reference = request || '${SETTLED_LATE}' THEN -nanos - coalesce((
            SELECT charge.nanos FROM entries AS charge WHERE charge.reference = request AND charge.kind = 'settle'
          ), 0) ELSE 0 END AS TEXT)
        FROM (
          SELECT seq, nanos, reference,
            replace(replace(reference, '${SETTLED_LATE}', ''), '${REFUNDED_LATE}', '') AS request
          FROM entries WHERE kind = 'adjust' AND seq > (SELECT coalesce(min(seq), 0) FROM (
            SELECT seq FROM entries WHERE kind = 'settle' ORDER BY seq DESC LIMIT ${REMEMBERED}
          ))
        ) ORDER BY seq`],
      // By the index of bookings. In two sums: one of nano-dollars could be more than 64 bits hold.
      ['credits',
        `SELECT account, CAST(sum(nanos / ${NANOS_PER_USD}) AS TEXT), CAST(sum(nanos % ${NANOS_PER_USD}) AS TEXT)
        FROM entries WHERE kind IN ('credit', 'refund', 'debit') AND kind = 'credit' GROUP BY account`],
      ['task', `SELECT ${withTexts(TASK)} FROM tasks WHERE is_open = 1 ORDER BY created`],
      ['window', `SELECT ${WINDOW.join()} FROM noted_windows`]
    ]
    for (const [of, sql] of queries) {
      const query = this.#db.prepare(sql)
      query.setReturnArrays(true)
      let cells: Cell[] = []
      for (const row of query.iterate() as Iterable<unknown> as Iterable<Cell[]>) {
        cells.push(...row)
        if (cells.length < SLICE * row.length) continue
        yield [of, cells]
        cells = []
      }
      if (cells.length > 0) yield [of, cells]
    }
  }

  last (): Opened['last'] {
    return lastOf(this.#last)
  }

  /** Marks the entries up to `last` as on the disk. @throws {Error} the mark can't be written */
  mark (last: Opened['last']): void {
    writeMark(this.#folder, last)
  }

  aliveUntil (): number {
    return Number(this.#db.prepare('SELECT alive_until FROM life').get()!['alive_until'])
  }

  /**
   * The slice after a number, with amounts as text. Entries never change and are only appended, so all slices up to a
   * number are a snapshot.
   */
  read (after: number, upTo: number): Cell[] {
    return cellsOf(this.#slice.all(after, upTo) as unknown as Cell[][])
  }

  /**
   * Adds up all entries again, a slice at each step, and yields what they and the stored sums are. Writes may run
   * between steps.
   * @param oldest earlier days and months are not compared
   */
  * verify (oldest: string): Generator<Compared | undefined, number> {
    const sums = new Sums(oldest)
    const rollups = this.#rollups.check()
    const { seq: upTo } = this.last()
    this.#verified = { sums, rollups }
    try {
      for (let after = -1; after < upTo;) {
        const rows = this.#slice.all(after, upTo) as unknown as Cell[][]
        for (const row of rows) {
          sums.add(row[ACCOUNT] as string, row[KEY] as string | null, BigInt(row[NANOS]!), row[DAY] as string | null)
          addRow(row, rollups)
        }
        const last = rows.at(-1)
        after = last?.[0] as number | undefined ?? upTo
        yield undefined
        // Entries come by time, and the last ones may not be all of their hour.
        if (last !== undefined) yield * ofRollups(rollups.compare(last[1] as number))
      }
      yield * ofRollups(rollups.compare(Infinity))
      yield * this.#compare('account', sums.accounts)
      yield * this.#compare('key', sums.keys)
      yield * this.#compare('period', sums.periods, oldest)
      return sums.entries
    } finally {
      this.#verified = undefined
    }
  }

  /** Copies the whole file, while writes run between its steps. @throws {Error} as `copy` */
  async backup (file: string, isWanted: () => boolean): Promise<void> {
    await copy(this.#db, file, isWanted)
  }

  /** @param how PASSIVE copies what it can without a wait; TRUNCATE copies everything, and syncs it */
  checkpoint (how: 'PASSIVE' | 'TRUNCATE'): void {
    const { busy } = this.#db.prepare(`PRAGMA wal_checkpoint(${how})`).get()!
    if (busy !== 0) throw new Error('something reads the ledger that should not')
  }

  /** Ends cleanly, with the windows saved. */
  close (windows: readonly Cell[]): void {
    const last = this.last()
    try {
      this.#transact(() => {
        this.#db.exec('DELETE FROM noted_windows; UPDATE life SET alive_until = 0')
        for (let i = 0; i < windows.length; i += WINDOW.length) {
          this.#noteWindow.run(...windows.slice(i, i + WINDOW.length) as SQLInputValue[])
        }
      })
    } finally {
      rmSync(pidFile(this.#folder), { force: true })            // while it is certainly this process's
      this.#db.close()
    }
    this.mark(last)
  }

  /** Closes a ledger to which nothing was written: what was found is as it was. */
  abandon (): void {
    rmSync(pidFile(this.#folder), { force: true })
    this.#db.close()
  }

  * #compare (of: KeptSum, sums: ReadonlyMap<string, Nanos>, oldest = ''): Iterable<Compared> {
    const { table, id: columns } = KEPT[of]
    const split = (id: string): readonly string[] => of === 'period' ? partsOf(id) : [id]
    const kept = this.#db.prepare(
      `SELECT CAST(nanos AS TEXT) AS nanos FROM ${table} WHERE (${columns.join()}) = (${marks(columns)})`
    )
    let cells: Cell[] = []
    for (const id of sums.keys()) {
      cells.push(id, sums.get(id)!, BigInt((kept.get(...split(id))?.['nanos'] ?? '0') as string))
      if (cells.length < SLICE * 3) continue
      yield { of, cells }
      cells = []
    }
    yield { of, cells }
    // Stored sums without any entry.
    const slice = this.#db.prepare(
      `SELECT ${columns.join(" || ' ' || ")} AS id, CAST(nanos AS TEXT) AS nanos FROM ${table}
      WHERE (${columns.join()}) > (${marks(columns)}) ORDER BY ${columns.join()} LIMIT ${SLICE}`
    )
    for (let after: readonly string[] | undefined = columns.map(() => ''); after !== undefined;) {
      const rows = slice.all(...after) as { readonly id: string, readonly nanos: string }[]
      const unsummed = rows.filter(({ id }) => !sums.has(id) && !(of === 'period' && isOver(split(id)[0]!, oldest)))
      yield { of, cells: unsummed.flatMap(({ id, nanos }) => [id, 0n, BigInt(nanos)]) }
      after = rows.length === 0 ? undefined : split(rows.at(-1)!.id)
    }
  }

  #rollBack (): void {
    this.#index.forget()
    if (this.#db.isTransaction) this.#db.exec('ROLLBACK')
  }

  /** Runs `body` in a transaction, or in the open one. */
  #transact (body: () => void): void {
    if (this.#db.isTransaction) {
      body()
      return
    }
    this.#db.exec('BEGIN IMMEDIATE')
    try {
      body()
      this.#db.exec('COMMIT')
    } catch (thrown) {
      this.#rollBack()
      throw thrown
    }
  }
}

function * ofRollups (differing: Iterable<Cell[]>): Iterable<Compared> {
  for (const cells of differing) yield { of: 'rollup', cells }
}

function marks (columns: readonly string[]): string {
  return columns.map(() => '?').join()
}

/**
 * Creates a file that only its owner can read. An existing file is not opened: closing it would end the locks that this
 * process may have on it.
 */
function create (folder: string, file: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  try {
    closeSync(openSync(file, 'wx', 0o600))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}

const BUSY = 5
/** In the last byte: what constraint it was is before it. */
const CONSTRAINT = 19
const CORRUPT = 11
const NOT_A_DATABASE = 26

/** SQLite's number of an error; NaN: it is none of SQLite's. */
function codeOf (thrown: unknown): number {
  return (thrown as { readonly errcode?: number }).errcode ?? NaN
}

const OF_TWO_TIMES = 'it is damaged, or gateway.db and its write-ahead log (gateway.db-wal) are two files that ' +
  'belong to different times. Put both back as they were at one time, or move them away and restore a backup: gateway store ' +
  'restore FILE'

/** Whether the ledger ends earlier than its mark. @throws {Error} the folder can't be used */
export function isCut (folder: string): boolean {
  try {
    new Ledger(folder, true).abandon()
    return false
  } catch (thrown) {
    if (thrown instanceof LossError) return true
    throw thrown
  }
}

export function isDamage (thrown: unknown): boolean {
  return codeOf(thrown) % 256 === CORRUPT
}

/** Also of an error after the opening: SQLite finds pages of another time when it reads them. */
export function explain (thrown: unknown, folder: string): string {
  const code = codeOf(thrown)
  if (code === BUSY) {
    return `the data folder ${folder} is in use by another gateway${pidIn(folder)}. Stop that one first, or name ` +
      'another folder in store.path.'
  }
  const why = code === NOT_A_DATABASE ? FOREIGN : isDamage(thrown) ? OF_TWO_TIMES : (thrown as Error).message
  return `the ledger ${path.join(folder, 'gateway.db')} can't be opened: ${why}. Another folder can be named in ` +
    'store.path.'
}

function lastOf (statement: StatementSync): Opened['last'] {
  return statement.get() as Opened['last'] | undefined ?? { seq: -1, time: 0 }
}

/** For people only: the lock is in gateway.db. */
function pidFile (folder: string): string {
  return path.join(folder, 'gateway.pid')
}

function pidIn (folder: string): string {
  try {
    return ` (process ${readFileSync(pidFile(folder), 'utf8').trim()})`
  } catch {
    return ''
  }
}
