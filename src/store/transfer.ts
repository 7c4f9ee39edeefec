// The contents of a store as rows: read from one driver and written into another. And their totals, by which both sides
// can be compared, in whatever order the rows come.
import { hash } from 'node:crypto'
import type { Nanos } from '../money/nanos.ts'
import type { AuditLine, Entry, Records, Store, StoredRecord } from './store.ts'
import type { FailureCount } from './rollups.ts'
import { Sums } from './sums.ts'
import type { Answer, Movable, Task } from './tasks.ts'

export type Row =
  | { readonly of: 'record', readonly value: StoredRecord }
  | { readonly of: 'audit', readonly value: AuditLine }
  | { readonly of: 'entry', readonly value: Entry }
  | { readonly of: 'task', readonly value: Task }
  | { readonly of: 'answer', readonly value: Answer }
  | { readonly of: 'failures', readonly value: FailureCount }

/** Lines of the audit log per read. */
const AUDIT_PAGE = 1000

/**
 * All rows. Of a store that goes on: what is charged for tasks and answers is in the entries, because entries
 * are read behind them.
 */
export async function * rowsOf (store: Store & Records & Movable): AsyncIterable<Row> {
  for (const value of await store.records()) yield { of: 'record', value }
  for (let after = 0; ;) {
    const page = await store.changes(after, AUDIT_PAGE)
    for (const value of page) yield { of: 'audit', value }
    if (page.length < AUDIT_PAGE) break
    after = page.at(-1)!.id
  }
  for await (const value of store.allTasks()) yield { of: 'task', value }
  for await (const value of store.allAnswers()) yield { of: 'answer', value }
  for await (const value of store.entries()) yield { of: 'entry', value }
  for await (const value of store.allFailures()) yield { of: 'failures', value }
}

/** A row as JSON. Amounts are text, because JSON's numbers are doubles. */
export function writeRow ({ of, value }: Row): string {
  return JSON.stringify({ [of]: value }, (_name, part: unknown) => typeof part === 'bigint' ? `${part}` : part)
}

/** @throws {Error} the text is no row */
export function readRow (text: string): Row {
  const [pair] = Object.entries(JSON.parse(text) as Record<string, Readonly<Record<string, unknown>>>)
  if (pair === undefined) throw new Error('an empty object')
  const [of, value] = pair
  switch (of) {
    case 'record': case 'audit': case 'answer': case 'failures': return { of, value } as unknown as Row
    case 'task': return { of, value: { ...value, nanos: amount(value['nanos']) } } as unknown as Row
    case 'entry': {
      const { shortfall } = value
      return { of,
        value: { ...value, nanos: amount(value['nanos']),
          ...(shortfall !== undefined && { shortfall: amount(shortfall) }) } } as unknown as Row
    }
    default: throw new Error(`nobody knows what "${of}" is`)
  }
}

/** @throws {Error} no amount of at most 19 digits, the most in 64 bits: the time of a longer one is its square */
function amount (text: unknown): bigint {
  if (typeof text !== 'string' || !/^-?\d{1,19}$/.test(text)) throw new Error(`no amount: ${String(text).slice(0, 40)}`)
  return BigInt(text)
}

/** Totals of all rows: stores with equal totals have equal contents. */
export interface Total {
  readonly records: number
  readonly audit: number
  readonly entries: number
  readonly tasks: number
  readonly answers: number
  /** requests and tasks that failed; absent: none, as in files of before these were in them */
  readonly errors?: number
  readonly accounts: number
  readonly keys: number
  /** sum over all accounts */
  readonly balance: string
  /** sum over all keys, ever */
  readonly spent: string
  /** sum of the shortfalls, which the operator bore */
  readonly shortfall: string
  /** a hash of all rows */
  readonly fingerprint: string
}

const MODULUS = 2n ** 256n

export class Inventory {
  readonly #sums = new Sums()
  readonly #counts: Record<Row['of'], number> = { record: 0, audit: 0, entry: 0, task: 0, answer: 0, failures: 0 }
  #shortfall: Nanos = 0n
  #fingerprint = 0n

  add (row: Row): void {
    const count = row.of === 'failures' ? row.value.count : 1
    this.#counts[row.of] += count
    // Summed, not chained: entries of several accounts of the same millisecond have no order that all drivers share.
    // And failures may come hour by hour, or day by day.
    const one = BigInt(`0x${hash('sha256', JSON.stringify(canonical(row)))}`)
    this.#fingerprint = (this.#fingerprint + one * BigInt(count)) % MODULUS
    if (row.of !== 'entry') return
    const { account, key, nanos, shortfall = 0n } = row.value
    this.#sums.add(account, key, nanos, undefined)            // without its day: over years, those would be millions
    this.#shortfall += shortfall
  }

  get total (): Total {
    const { record, audit, entry, task, answer, failures } = this.#counts
    const { accounts, keys } = this.#sums
    return {
      records: record, audit, entries: entry, tasks: task, answers: answer,
      ...(failures > 0 && { errors: failures }), accounts: accounts.size, keys: keys.size,
      balance: `${sum(accounts.values())}`,
      spent: `${sum(keys.values())}`,
      shortfall: `${this.#shortfall}`,
      fingerprint: this.#fingerprint.toString(16).padStart(64, '0')
    }
  }
}

function sum (amounts: Iterable<Nanos>): Nanos {
  let all = 0n
  for (const one of amounts) all += one
  return all
}

/**
 * The parts of a row that do not depend on the driver: an entry is identified by its kind and reference, a line of the
 * audit log by its text, and a failure by its day.
 */
function canonical ({ of, value }: Row): unknown {
  if (of === 'failures') return sorted({ [of]: { ...value, at: value.at.slice(0, 10), count: 1 } })
  return sorted({ [of]: of === 'audit' || of === 'entry' ? { ...value, id: '' } : value })
}

function sorted (value: unknown): unknown {
  if (typeof value === 'bigint') return `${value}`
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return value.map(sorted)
  return Object.fromEntries(
    Object.entries(value).toSorted(([a], [b]) => a < b ? -1 : 1).map(([name, part]) => [name, sorted(part)])
  )
}
