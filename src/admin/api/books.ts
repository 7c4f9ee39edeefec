// Reads of the money and of the audit log: ledger, usage, changes. Reads only, in bounded steps.
import { viewUsage } from '../../accounts/key-limits.ts'
import { formatUsd } from '../../money/nanos.ts'
import type { Directory } from '../../accounts/directory.ts'
import type { Entry, Store } from '../../store/store.ts'
import {
  type ApiAnswer, type ApiParts, type Call, type Operation, pageOf, readLimit, readQuery
} from './operation.ts'
import { Refusal } from './refusal.ts'

/**
 * Most entries that one request reads: for an account with few of them the page is short, with the place to go on from.
 */
const LOOKED_AT = 20_000

const LEDGER = ['account', 'key', 'after', 'limit']
const USAGE = ['account', 'after', 'limit']
const CHANGES = ['after', 'limit']

export function bookOperations (parts: ApiParts): readonly Operation[] {
  const books = new BookApi(parts)
  return [
    {
      method: 'GET',
      path: '/ledger',
      name: 'listEntries',
      summary:
        'The entries of the ledger, oldest first. A page may be short, and even empty: ' +
          'it is the last when `next` is null.',
      query: LEDGER,
      answer: (call) => books.entries(call)
    },
    {
      method: 'POST',
      path: '/ledger/verify',
      name: 'verifyLedger',
      summary: 'Adds up all entries again and compares: `ok` is false where a balance is not the sum of its entries.',
      answer: (call) => books.verify(call)
    },
    {
      method: 'GET',
      path: '/usage',
      name: 'listUsage',
      summary:
        'What each key has spent, holds, and may still spend: in total, and on this day and in this month of its ' +
          'time zone. A deleted key stays, with `deleted_at`.',
      query: USAGE,
      answer: (call) => books.usage(call)
    },
    {
      method: 'GET',
      path: '/audit',
      name: 'listChanges',
      summary: 'Who changed what through this API, oldest first.',
      query: CHANGES,
      answer: (call) => books.changes(call)
    }
  ]
}

/** A method for each operation. */
class BookApi {
  readonly #store: Store
  readonly #directory: Directory
  readonly #now: () => number
  readonly #config: ApiParts['config']
  readonly #changes: ApiParts['changes']

  constructor ({ services: { store, directory, now }, config, changes }: ApiParts) {
    this.#store = store
    this.#directory = directory
    this.#now = now
    this.#config = config
    this.#changes = changes
  }

  async entries ({ query: sent }: Call): Promise<ApiAnswer> {
    const query = readQuery(sent, LEDGER)
    const limit = readLimit(query)
    const [account, key, after] = [query.get('account'), query.get('key'), query.get('after')]
    // An id of a driver of this process; or of Redis, which has the account in it.
    if (after !== undefined && !/^(?:[0-9a-z]{17}|[0-9a-z]{19}-.+)$/s.test(after)) {
      throw new Refusal('invalid_request', 'after must be the id of an entry, as `next` gave it.')
    }
    const data: unknown[] = []
    let looked = 0
    let next: string | null = null
    for await (const entry of this.#store.entries(after)) {
      if (data.length === limit || looked === LOOKED_AT) return { status: 200, body: { data, next } }
      looked++
      next = entry.id
      if ((account === undefined || entry.account === account) && (key === undefined || entry.key === key)) {
        data.push(entryView(entry))
      }
    }
    return { status: 200, body: { data, next: null } }
  }

  async verify ({ query }: Call): Promise<ApiAnswer> {
    readQuery(query, [])
    const { differences, ...counted } = await this.#store.verify()
    return { status: 200,
      body: { ok: differences.length === 0, ...counted,
        differences: differences.map(({ entries, kept, ...where }) => ({
          ...where,
          entries_usd: formatUsd(entries),
          kept_usd: formatUsd(kept)
        })) } }
  }

  async usage ({ query: sent }: Call): Promise<ApiAnswer> {
    const query = readQuery(sent, USAGE)
    const account = query.get('account')
    const deleted = this.#directory.deletedKeys()
    const ended = new Map(deleted.map(({ id, record }) => [id, record.deleted_at]))
    const kept = [...this.#directory.keptKeys(), ...deleted].map(({ record }) => record.settings)
    const all = [...this.#config().keys, ...kept].filter((key) => account === undefined || key.account === account)
    const { rows, next } = pageOf(all, query)
    const data = await Promise.all(rows.map(async (key) => {
      const {
        id,
        account: payer,
        usage_limit_usd: ever = null,
        usage_limit_day_usd: day = null,
        usage_limit_month_usd: month = null,
        time_zone = 'UTC'
      } = key
      return { key: id, account: payer, usage_limit_usd: ever, usage_limit_day_usd: day,
        usage_limit_month_usd: month, time_zone, ...await viewUsage(this.#store, key, this.#now()),
        ...(ended.has(id) && { deleted_at: ended.get(id) }) }
    }))
    return { status: 200, body: { data, next } }
  }

  async changes ({ query: sent }: Call): Promise<ApiAnswer> {
    const query = readQuery(sent, CHANGES)
    const limit = readLimit(query)
    const after = query.get('after') ?? '0'
    if (!/^\d{1,15}$/.test(after)) {
      throw new Refusal('invalid_request', 'after must be the id of a line, as `next` gave it.')
    }
    const lines = await this.#changes(Number(after), limit + 1)
    const data = lines.slice(0, limit).map(({ id, text }) => ({ seq: id, ...JSON.parse(text) as object }))
    return { status: 200, body: { data, next: lines.length > limit ? String(lines[limit - 1]!.id) : null } }
  }
}

function entryView ({ nanos, shortfall, ...entry }: Entry): Readonly<Record<string, unknown>> {
  return { ...entry, amount_usd: formatUsd(nanos),
    ...(shortfall !== undefined && { shortfall_usd: formatUsd(shortfall) }) }
}
