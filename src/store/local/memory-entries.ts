// The entries of the memory driver, and what they add up to.
import { JsonBytes } from '../../base/json-bytes.ts'
import type { EntryQuery, RollupQuery } from '../rollups.ts'
import { dayOf, firstKept, hourOf, type Members, RollupSums, rowsOf, type Sum, type SumsAt } from '../rollup-sums.ts'
import { addFailures, addRow, ENTRY, pushRollup, readEntry, type Cell } from './cells.ts'
import { seqOf } from './entry-ids.ts'
import { Pages } from './pages.ts'
import type { EntryStep, RollupStep } from './writer.ts'
import { isAbout } from '../late-entries.ts'

const [SEQ, TIME] = [ENTRY.indexOf('seq'), ENTRY.indexOf('time')]

export class MemoryEntries implements SumsAt {
  /** rows of `ENTRY`, as JSON, in which amounts are text, because its numbers would round them */
  readonly #rows = new Pages()
  readonly #line = new JsonBytes()
  readonly #hours = new RollupSums()
  /** of the newest hour, by key: a few each, so that none is looked up by a name that is made for it */
  readonly #latest = new Map<string, { readonly members: Members, readonly sum: Sum }[]>()
  readonly #days = new RollupSums(dayOf)
  #newest = 0

  /** @param row of `ENTRY` */
  add (row: readonly Cell[]): void {
    this.#fold(row[TIME] as number)
    addRow(row, this)
    const line = this.#line
    line.clear()
    for (let i = 0; i < row.length; i++) {
      const cell = row[i]!
      line.raw(i === 0 ? '[' : ',')
      if (cell === null) line.raw('null')
      else if (typeof cell === 'string') line.text(cell)
      else if (typeof cell === 'number') line.number(cell)
      else { line.raw('"'); line.amount(cell); line.raw('"') }
    }
    line.raw(']')
    this.#rows.add(line)
  }

  /** The sum for an entry of the newest hour. */
  at (time: number, members: Members): Sum {
    const { account, key, model, channel } = members
    const ofKey = this.#latest.get(key)
    if (ofKey !== undefined) {
      for (const { members: of, sum } of ofKey) {
        if (of.model === model && of.channel === channel && of.account === account) return sum
      }
    }
    const sum = this.#hours.at(time, members)
    if (ofKey === undefined) this.#latest.set(key, [{ members, sum }])
    else ofKey.push({ members, sum })
    return sum
  }

  /** @param rows of `FAILURE` */
  addFailures (rows: readonly Cell[]): void {
    addFailures(rows, this.#hours)
  }

  /** The rows that are there when the first is read, oldest first. */
  * rows (): Iterable<readonly Cell[]> {
    for (const line of this.#rows.lines()) yield rowIn(line)
  }

  rollups (query: RollupQuery): RollupStep {
    const days = query.by === 'day' || query.by === 'month' ? this.#days.rows() : []
    const cells: Cell[] = []
    for (const row of rowsOf([...days, ...this.#hours.rows()], query)) pushRollup(cells, row, query.groups)
    return { cells }
  }

  /** Looks through one page of rows: this driver keeps no index. */
  newest (query: EntryQuery): EntryStep {
    const before = query.before === undefined ? Infinity : seqOf(query.before)
    for (const lines of this.#rows.backwards()) {
      const first = rowIn(lines[0]!)
      if (first[SEQ] as number >= before) continue
      const rows = lines.map(rowIn).filter((row) => (row[SEQ] as number) < before && isMeant(row, query)).reverse()
      const page = rows.slice(0, query.limit)
      const last = rows.length > query.limit ? page.at(-1)! : first
      const isOver = (last[TIME] as number) < (query.from ?? 0)
      return { cells: page.flat(), ...(!isOver && { next: readEntry(last, 0).id }) }
    }
    return { cells: [] }
  }

  /** All that is kept, in days. */
  get inDays (): RollupSums {
    const all = new RollupSums(dayOf)
    this.#days.addTo(all)
    this.#hours.addTo(all)
    return all
  }

  #fold (time: number): void {
    if (hourOf(time) === this.#newest) return
    this.#newest = hourOf(time)
    this.#latest.clear()
    const first = firstKept(this.#newest)
    this.#hours.addTo(this.#days, first)
    this.#hours.forget(first)
  }
}

function rowIn (line: string): readonly Cell[] {
  return JSON.parse(line) as readonly Cell[]
}

function isMeant (
  row: readonly Cell[],
  { account, key, model, reference, from = 0, to = Infinity }: EntryQuery
): boolean {
  const entry = readEntry(row, 0)
  const time = row[TIME] as number
  return (account === undefined || entry.account === account) && (key === undefined || entry.key === key) &&
    (model === undefined || entry.model === model) && (reference === undefined || isAbout(entry, reference)) &&
    time >= from && time < to
}
