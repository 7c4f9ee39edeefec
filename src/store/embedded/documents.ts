// What is asked of the ledger beside its decisions: records with their audit log, tasks, answers that are given again,
// rollups and entries. Part of ledger.ts, which owns the file.
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite'
import { REFUNDED_LATE } from '../late-entries.ts'
import type { Nanos } from '../../money/nanos.ts'
import { readTask, TASK, withTexts, type Cell } from '../local/cells.ts'
import type { Documents, EntryStep, RollupStep } from '../local/writer.ts'
import type { EntryQuery, RollupQuery } from '../rollups.ts'
import type { AuditLine, BookingKind, Change, StoredRecord } from '../store.ts'
import type { Answer, Task, TaskPage, TaskSearch } from '../tasks.ts'
import { TASK_STATUS } from './schema.ts'
import type { EntryIndex } from './newest.ts'
import type { RollupTables } from './rollup-tables.ts'

/** Rows deleted in one statement: writes wait meanwhile. */
const AT_ONCE = 1000

/** Rows read in one statement. */
const PAGE = 500
const ANSWER = 'account, name, hash, request_id, created, text'

/** Condition on an answer: its request was charged and not refunded, or became a task. */
const CHARGED = `(EXISTS (SELECT 1 FROM tasks WHERE tasks.request_id = answers.request_id)
  OR EXISTS (SELECT 1 FROM entries WHERE reference = answers.request_id AND kind = 'settle')
  AND NOT EXISTS (SELECT 1 FROM entries WHERE reference IN (answers.request_id, answers.request_id || '${REFUNDED_LATE}') AND kind = 'adjust'))`

/** How the newest tasks are found: by an index, whatever is asked for. */
export function newestTasksSql ({ account, status, before, limit }: TaskSearch): {
  readonly sql: string
  readonly values: readonly SQLInputValue[]
} {
  const bounds = [...(account === undefined ? [] : ['account = ?']),
    ...(status === undefined ? [] : [`${TASK_STATUS} = ?`]), ...(before === undefined ? [] : ['(created, id) < (?, ?)'])]
  return {
    sql: `${bounds.length === 0 ? '' : `WHERE ${bounds.join(' AND ')}`} ORDER BY created DESC, id DESC LIMIT ?`,
    values: [...(account === undefined ? [] : [account]), ...(status === undefined ? [] : [status]),
      ...(before === undefined ? [] : [before.created, before.id]), limit]
  }
}

export class Tables implements Documents {
  readonly #db: DatabaseSync
  readonly #rollups: RollupTables
  readonly #index: EntryIndex
  readonly #transact: (work: () => void) => void
  readonly #put: StatementSync
  readonly #booked: StatementSync

  constructor (
    db: DatabaseSync, rollups: RollupTables, index: EntryIndex, transact: (work: () => void) => void
  ) {
    this.#db = db
    this.#rollups = rollups
    this.#index = index
    this.#transact = transact
    this.#put = db.prepare(`INSERT INTO tasks (${TASK.join()}) VALUES (${TASK.map(() => '?').join()})
      ON CONFLICT (id) DO UPDATE SET nanos = excluded.nanos, is_open = excluded.is_open, text = excluded.text`)
    this.#booked = db.prepare('SELECT CAST(nanos AS TEXT) AS nanos FROM entries WHERE reference = ? AND kind = ?')
  }

  /** Writes rows of `TASK` as part of a transaction; a later one replaces an earlier one. */
  writeTasks (cells: readonly Cell[]): void {
    for (let i = 0; i < cells.length; i += TASK.length) {
      this.#put.run(...cells.slice(i, i + TASK.length) as SQLInputValue[])
    }
  }

  rollups (query: RollupQuery): RollupStep {
    return this.#rollups.read(query)
  }

  newest (query: EntryQuery): EntryStep {
    return this.#index.newest(query)
  }

  booked (kind: BookingKind, reference: string): Nanos | undefined {
    const found = this.#booked.get(reference, kind) as { readonly nanos: string } | undefined
    return found && BigInt(found.nanos)
  }

  records (): StoredRecord[] {
    return this.#db.prepare('SELECT kind, id, version, text FROM records').all() as unknown as StoredRecord[]
  }

  change ({ record, audit }: Change): boolean {
    let isDone = true
    this.#transact(() => {
      if (record !== undefined) {
        const { kind, id, version, text } = record
        const { changes } = version === 1
          ? this.#db.prepare('INSERT INTO records VALUES (?, ?, 1, ?) ON CONFLICT DO NOTHING').run(kind, id, text)
          : this.#db.prepare('UPDATE records SET version = ?, text = ? WHERE kind = ? AND id = ? AND version = ?').run(
            version,
            text,
            kind,
            id,
            version - 1
          )
        isDone = changes === 1
      }
      if (isDone && audit !== undefined) this.#db.prepare('INSERT INTO audit (text) VALUES (?)').run(audit)
    })
    return isDone
  }

  changes (after: number, limit: number): AuditLine[] {
    return this.#db.prepare('SELECT id, text FROM audit WHERE id > ? ORDER BY id LIMIT ?').all(after,
      limit) as unknown as AuditLine[]
  }

  newestChanges (before: number | undefined, limit: number): AuditLine[] {
    return this.#db.prepare('SELECT id, text FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?').all(
      before ?? Number.MAX_SAFE_INTEGER,
      limit
    ) as unknown as AuditLine[]
  }

  /** Inserts a record as it was in another ledger. */
  putRecord ({ kind, id, version, text }: StoredRecord): void {
    this.#db.prepare('INSERT INTO records VALUES (?, ?, ?, ?)').run(kind, id, version, text)
  }

  /** Inserts a line of the audit log as it was in another ledger. */
  putAuditLine ({ id, text }: AuditLine): void {
    this.#db.prepare('INSERT INTO audit (id, text) VALUES (?, ?)').run(id, text)
  }

  task (id: string): Task | undefined {
    const found = this.#rows('WHERE id = ?', id)
    return found[0]
  }

  tasks (account: string, { after, limit, order }: TaskPage): readonly Task[] | undefined {
    const way = order === 'asc' ? 'ASC' : 'DESC'
    const by = `ORDER BY created ${way}, id ${way} LIMIT ?`
    if (after === undefined) return this.#rows(`WHERE account = ? ${by}`, account, limit)
    const last = this.#rows('WHERE id = ? AND account = ?', after, account)[0]
    return last &&
      this.#rows(`WHERE account = ? AND (created, id) ${order === 'asc' ? '>' : '<'} (?, ?) ${by}`, account,
        last.created, last.id, limit)
  }

  newestTasks (search: TaskSearch): readonly Task[] {
    const { sql, values } = newestTasksSql(search)
    return this.#rows(sql, ...values)
  }

  allTasks (after: string): readonly Task[] {
    return this.#rows('WHERE id > ? ORDER BY id LIMIT ?', after, PAGE)
  }

  removeTask (id: string): boolean {
    return this.#change('DELETE FROM tasks WHERE id = ? AND is_open = 0', id) > 0
  }

  forgetTasks (createdBefore: number): number {
    return this.#changeSlowly(
      'DELETE FROM tasks WHERE id IN (SELECT id FROM tasks WHERE is_open = 0 AND created < ? LIMIT ?)',
      createdBefore
    )
  }

  answer (account: string, name: string): Answer | undefined {
    return this.#answers('account = ? AND name = ?', account, name)[0]
  }

  allAnswers (account: string, name: string): readonly Answer[] {
    return this.#answers(`(account, name) > (?, ?)`, account, name, PAGE)
  }

  keepAnswer ({ account, name, hash, request_id: id, created, text }: Answer): void {
    this.#change(`INSERT OR REPLACE INTO answers (${ANSWER}) VALUES (?, ?, ?, ?, ?, ?)`, account, name, hash, id,
      created, text ?? null)
  }

  dropAnswer (account: string, name: string): void {
    this.#change('DELETE FROM answers WHERE account = ? AND name = ?', account, name)
  }

  forgetAnswers (createdBefore: number, most: number): number {
    const { count } = this.#db.prepare('SELECT count(*) AS count FROM answers').get() as { readonly count: number }
    const oldest =
      'DELETE FROM answers WHERE (account, name) IN (SELECT account, name FROM answers WHERE created < ? ORDER BY created LIMIT ?)'
    const old = this.#changeSlowly(oldest, createdBefore)
    return old + (count - old > most ? this.#change(oldest, Number.MAX_SAFE_INTEGER, count - old - most) : 0)
  }

  /** Drops answers of a process that died before it could charge for them: they were not sent to a client. */
  dropUncharged (): void {
    if (this.#db.prepare('SELECT 1 FROM answers LIMIT 1').get() === undefined) return
    this.#change(`DELETE FROM answers WHERE NOT ${CHARGED}`)
  }

  #rows (where: string, ...values: readonly SQLInputValue[]): Task[] {
    const query = this.#db.prepare(
      `SELECT ${withTexts(TASK)} FROM tasks ${where}`
    )
    query.setReturnArrays(true)
    return (query.all(...values) as unknown as Cell[][]).map((cells) => readTask(cells, 0).task)
  }

  #answers (where: string, account: string, name: string, limit = 1): Answer[] {
    const rows = this.#db.prepare(
      `SELECT ${ANSWER} FROM answers WHERE ${where} AND ${CHARGED} ORDER BY account, name LIMIT ?`
    ).all(account, name, limit) as unknown as (Answer & { readonly text: string | null })[]
    return rows.map((row) => ({ ...row, text: row.text ?? undefined }))
  }

  #change (sql: string, ...values: readonly SQLInputValue[]): number {
    let changes = 0
    this.#transact(() => { changes = Number(this.#db.prepare(sql).run(...values).changes) })
    return changes
  }

  #changeSlowly (sql: string, ...values: readonly SQLInputValue[]): number {
    let [sum, last] = [0, AT_ONCE]
    while (last === AT_ONCE) sum += last = this.#change(sql, ...values, AT_ONCE)
    return sum
  }
}
