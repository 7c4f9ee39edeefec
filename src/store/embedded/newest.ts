// The newest entries of the ledger, and the index by which they are found. Part of ledger.ts, which owns the file.
//
// SQLite's own indexes would be changed with each entry, a page of the file for each account, key and model: twice the
// time of a charge (measured). So entries are added to an index of ours a thousand at a time, as a list for each
// account, key and model; those that are not in it yet are looked at one by one.
import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite'
import { cellsOf, ENTRY, withTexts, type Cell } from '../local/cells.ts'
import { entryId, seqOf } from '../local/entry-ids.ts'
import type { EntryStep } from '../local/writer.ts'
import { REFUNDED_LATE, SETTLED_LATE } from '../late-entries.ts'
import type { EntryQuery } from '../rollups.ts'

/** Entries that may not be in the index yet. */
const BEHIND = 1000

/** Rows that one step looks at: less than a millisecond, because commits wait meanwhile. */
const STEP = 500

/** What is in the index; of several, the one that has the fewest entries of a member leads. */
const INDEXED = ['key', 'account', 'model'] as const
/** What is noted of an entry: its number, and then its members. */
const WIDTH = 1 + INDEXED.length
const [KEY, ACCOUNT, MODEL] = [ENTRY.indexOf('key'), ENTRY.indexOf('account'), ENTRY.indexOf('model')]

const ROW = withTexts(ENTRY)

/** The reference of a booking as its account knows it: as the index of that name has it. */
const KNOWN_REFERENCE = `iif(instr(reference, kind || ':' || account || ':') = 1,
  substr(reference, length(kind) + length(account) + 3), reference)`

/** Lists of a member that begin before a number, the newest first. */
export const LISTS = 'SELECT seqs FROM entry_index WHERE of = ? AND member = ? AND first < ? ORDER BY first DESC'

/** A statement and its parameters. */
export interface Asked {
  readonly sql: string
  readonly named: Readonly<Record<string, SQLInputValue>>
}

/** Entries between two numbers: `from` is the first of them, `before` is behind the last. */
export interface Range {
  readonly from: number
  readonly before: number
}

export class EntryIndex {
  readonly #db: DatabaseSync
  readonly #upTo: StatementSync
  readonly #some: StatementSync
  readonly #add: StatementSync
  readonly #mark: StatementSync
  readonly #lists: StatementSync
  /** entries up to it were in the index; it may be too much after a transaction that failed */
  #nearly: number
  /** of the entries that are not in the index, each with `WIDTH` cells; undefined: they have to be read */
  #noted: Cell[] | undefined

  constructor (db: DatabaseSync) {
    this.#db = db
    this.#upTo = db.prepare('SELECT seq FROM indexed')
    this.#some = db.prepare(`SELECT seq, ${INDEXED.join()} FROM entries WHERE seq > ? AND seq <= ? ORDER BY seq`)
    this.#some.setReturnArrays(true)
    this.#add = db.prepare('INSERT INTO entry_index VALUES (?, ?, ?, ?)')
    this.#mark = db.prepare('UPDATE indexed SET seq = ?')
    this.#lists = db.prepare(LISTS)
    this.#nearly = this.#last
  }

  /**
   * Notes an entry that is inserted, as part of a transaction: with the next many it is added to the index, and not
   * read again for that. @param row of `ENTRY`
   */
  note (row: readonly Cell[]): void {
    const noted = this.#noted
    if (noted === undefined) return
    const [seq] = row as [number]
    if (noted.length === 0 ? seq > this.#nearly : seq > (noted.at(-WIDTH) as number)) {
      noted.push(seq, row[KEY]!, row[ACCOUNT]!, row[MODEL]!)
    } else this.forget()
  }

  /** A transaction has failed: what is noted may not be there. */
  forget (): void {
    this.#noted = undefined
  }

  /**
   * Adds entries to the index, if many are not in it, as part of a transaction.
   * @param last a number that an entry was to have: one that was known already has left it free, and the next process
   * gives it to another
   */
  add (last: number): void {
    if (last - this.#nearly < BEHIND) return
    const newest = newestIn(this.#db)
    const noted = this.#noted ?? this.#read(newest)
    for (let i = 0; i < noted.length; i += BEHIND * WIDTH) this.#addSome(noted.slice(i, i + BEHIND * WIDTH))
    this.#mark.run(newest)
    this.#nearly = newest
    this.#noted = []
  }

  #read (upTo: number): Cell[] {
    return cellsOf(this.#some.all(this.#last, upTo) as unknown as Cell[][])
  }

  /** Takes back a mark beyond the newest entry, as earlier releases left it: entries to come would not be found. */
  repair (): void {
    if (this.#last <= newestIn(this.#db)) return
    const { seq } = this.#db.prepare("SELECT max(json_extract(seqs, '$[#-1]')) AS seq FROM entry_index").get()!
    this.#nearly = (seq ?? -1) as number
    this.#mark.run(this.#nearly)
  }

  #addSome (noted: readonly Cell[]): void {
    for (const [i, of] of INDEXED.entries()) {
      const lists = new Map<string, number[]>()
      for (let at = 0; at < noted.length; at += WIDTH) {
        const member = noted[at + 1 + i] as string | null
        if (member === null) continue
        const list = lists.get(member)
        if (list === undefined) lists.set(member, [noted[at] as number])
        else list.push(noted[at] as number)
      }
      for (const [member, list] of lists) this.#add.run(of, member, list[0]!, JSON.stringify(list))
    }
  }

  newest (query: EntryQuery): EntryStep {
    const { from, before } = rangeOf(this.#db, query)
    const limit = Math.min(query.limit, STEP)
    if (query.reference !== undefined) {
      return stepOf(this.#rows(referenceSql(query.reference, query, { from, before }, limit)), limit)
    }
    const lead = INDEXED.find((column) => query[column] !== undefined)
    if (lead === undefined) return stepOf(this.#rows(rowsSql(query, { from, before }, limit)), limit)
    const behind = Math.max(from, this.#last + 1)
    const rows = [...this.#rows(rowsSql(query, { from: behind, before }, limit))]
    const seqs = this.#listed(lead, query[lead]!, { from, before: Math.min(before, behind) })
    rows.push(...this.#rows(listedSql(query, seqs, limit - rows.length)))
    const step = stepOf(rows, limit)
    if (step.next !== undefined || seqs.length < STEP) return step
    const [edge] = this.#rows(listedSql({ limit: 1 }, seqs.slice(-1), 1))
    return { ...step, next: idOf(edge!) }
  }

  /** The newest numbers of a member's entries in a range, as many as a step looks at. */
  #listed (of: string, member: string, { from, before }: Range): number[] {
    const found: number[] = []
    for (const { seqs } of this.#lists.iterate(of, member, before) as Iterable<unknown> as Iterable<List>) {
      for (const seq of (JSON.parse(seqs) as number[]).reverse()) {
        if (seq < from || found.length === STEP) return found
        if (seq < before) found.push(seq)
      }
    }
    return found
  }

  /** Entries up to it are in the index. */
  get #last (): number {
    return this.#upTo.get()!['seq'] as number
  }

  #rows ({ sql, named }: Asked): readonly Cell[][] {
    const query = this.#db.prepare(sql)
    query.setReturnArrays(true)
    return query.all(named) as unknown as Cell[][]
  }
}

interface List {
  readonly seqs: string
}

/** The entries of a query in a range, found by their numbers. */
export function rowsSql (query: EntryQuery, { from, before }: Range, limit: number): Asked {
  const { where, named } = filtersOf(query)
  return { sql: `SELECT ${ROW} FROM entries WHERE seq >= :from AND seq < :before ${where}
    ORDER BY seq DESC LIMIT :limit`, named: { ...named, from, before, limit } }
}

/** Those of these numbers that are meant. */
export function listedSql (query: EntryQuery, seqs: readonly number[], limit: number): Asked {
  const { where, named } = filtersOf(query)
  return { sql: `SELECT ${ROW} FROM entries WHERE seq IN (SELECT value FROM json_each(:seqs)) ${where}
    ORDER BY seq DESC LIMIT :limit`, named: { ...named, seqs: JSON.stringify(seqs), limit } }
}

/** The entries of a request, or the bookings under a reference: a few. */
export function referenceSql (reference: string, query: EntryQuery, { from, before }: Range, limit: number): Asked {
  const { where, named } = filtersOf(query)
  return { sql: `SELECT ${ROW} FROM entries WHERE seq IN (
      SELECT seq FROM entries WHERE reference IN
        (:reference, :reference || '${SETTLED_LATE}', :reference || '${REFUNDED_LATE}')
      UNION SELECT seq FROM entries WHERE ${KNOWN_REFERENCE} = :reference AND kind IN ('credit', 'refund', 'debit')
    ) AND seq >= :from AND seq < :before ${where} ORDER BY seq DESC LIMIT :limit`,
  named: { ...named, reference, from, before, limit } }
}

function filtersOf (query: EntryQuery): { readonly where: string, readonly named: Record<string, string> } {
  const columns = INDEXED.filter((column) => query[column] !== undefined)
  return { where: columns.map((column) => `AND ${column} = :${column}`).join(' '),
    named: Object.fromEntries(columns.map((column) => [column, query[column]!])) }
}

function stepOf (found: readonly Cell[][], limit: number): EntryStep {
  return { cells: cellsOf(found), ...(found.length === limit && { next: idOf(found.at(-1)!) }) }
}

function idOf ([seq, time]: readonly Cell[]): string {
  return entryId(seq as number, time as number)
}

/** The number of the newest entry; -1: there is none. */
function newestIn (db: DatabaseSync): number {
  return (db.prepare('SELECT max(seq) AS seq FROM entries').get()!['seq'] ?? -1) as number
}

/** The numbers of a query's entries. Times only grow with numbers, so they need no index. */
function rangeOf (db: DatabaseSync, { before, from, to }: EntryQuery): Range {
  const last = newestIn(db)
  const probe = db.prepare('SELECT seq, time FROM entries WHERE seq >= ? ORDER BY seq LIMIT 1')
  const firstAt = (time: number): number => {
    let [low, high] = [0, last + 1]
    while (low < high) {
      const middle = Math.floor((low + high) / 2)
      const { seq, time: at } = probe.get(middle) as { readonly seq: number, readonly time: number }
      if (at >= time) high = middle
      else low = seq + 1
    }
    return low
  }
  return { from: from === undefined ? 0 : firstAt(from),
    before: Math.min(before === undefined ? last + 1 : seqOf(before), to === undefined ? last + 1 : firstAt(to)) }
}
