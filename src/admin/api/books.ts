// Reads of the money and of the audit log: ledger, usage, changes. Reads only, in bounded steps.
import { viewUsage } from '../../accounts/key-limits.ts'
import { calendarOf } from '../../money/calendar.ts'
import { formatUsd } from '../../money/nanos.ts'
import { type Directory, roles } from '../../accounts/directory.ts'
import type { Rollups } from '../../store/rollups.ts'
import type { Difference, Entry, Store } from '../../store/store.ts'
import {
  type ApiAnswer, type ApiParts, type Call, isNewestFirst, type Operation, pageOf, readLimit, readQuery, readTime
} from './operation.ts'
import { anything, choice, entryAnswer, flag, instant, keyUsage, list, money, object, orNull, page, text, whole } from
  './answers.ts'
import { Refusal } from './refusal.ts'

/**
 * Most entries that one request reads: for an account with few of them the page is short, with the place to go on from.
 */
const LOOKED_AT = 20_000

const LEDGER = ['order', 'account', 'key', 'model', 'reference', 'from', 'to', 'after', 'limit']
/** Filters that only the newest entries are found by. */
const NEWEST = ['model', 'reference', 'from', 'to'] as const
const USAGE = ['account', 'after', 'limit']
const CHANGES = ['order', 'after', 'limit']

const verification = object('Verification', 'What all entries add up to, compared with what is kept.', {
  ok: flag('false: a balance, or a sum of usage, is not that of its entries.'),
  entries: whole('How many were added up.'),
  accounts: whole('How many balances were compared.'),
  keys: whole('How many keys were compared.'),
  differences: list('What does not fit.', object('Difference', 'A sum that does not fit its entries.', {
    of: choice('What the sum is of.', ['account', 'key', 'period', 'rollup']),
    id: text('Its id; of a period: the period, a space, and the id of the key; of a rollup: its month, day or hour in ' +
      'UTC, account, key, model and channel.'),
    sum: text('Of a rollup: which of its sums, such as nanos or output.'),
    where: text('Which copy is wrong: memory, which decides; disk; or redis.'),
    entries_usd: money('The sum of the entries.'),
    kept_usd: money('What is kept.'),
    entries: whole('The sum of the entries, where it is a count.'),
    kept: whole('What is kept, where it is a count.')
  }, ['sum', 'entries_usd', 'kept_usd', 'entries', 'kept']))
})

const usageOfKey = object('KeyUsage', 'What one key has spent, holds, and may still spend.', {
  key: text('Its id.'),
  account: text('The account that pays.'),
  usage_limit_usd: orNull(money('Its limit in total; null: none.')),
  usage_limit_day_usd: orNull(money('Its limit per day; null: none.')),
  usage_limit_month_usd: orNull(money('Its limit per month; null: none.')),
  time_zone: text('Where its days and months begin.'),
  ...keyUsage,
  deleted_at: instant('When it was deleted; absent: it was not.')
}, ['deleted_at'])

const change = object('Change', 'A line of the audit log.', {
  seq: whole('Counts up from line to line.'),
  at: instant('When.'),
  who: text('Who: the name of a token, or a command.'),
  token: text('The id of the token; absent: it is that of gateway.yaml, or none.'),
  role: choice('What that token may do.', roles),
  address: text('From where: an address of the network; of a command without a gateway, the name of its machine.'),
  what: text('What was done, such as key.create.'),
  id: text('To which key, account or token; of a backup, where it goes, as who asked for it has said.'),
  before: orNull(anything('Its settings before; null: it did not exist.')),
  after: orNull(anything('Its settings after; null: it does not exist any more.')),
  reference: text('Of a booking.'),
  amount_usd: money('Of a booking.'),
  reason: text('Of a booking.'),
  request: text('Of a key that was tried (key.try): method and path.'),
  model: text('Of a key that was tried: the model that was named.')
}, ['token', 'role', 'address', 'reference', 'amount_usd', 'reason', 'request', 'model'])

export function bookOperations (parts: ApiParts): readonly Operation[] {
  const books = new BookApi(parts)
  return [
    {
      method: 'GET',
      path: '/ledger',
      name: 'listEntries',
      isCostly: true,
      summary:
        'The entries of the ledger, oldest first; with `order=newest` newest first, found by indexes, by model, ' +
          'reference and time too. A page may be short, and even empty: it is the last when `next` is null.',
      query: LEDGER,
      gives: page(entryAnswer),
      answer: (call) => books.entries(call)
    },
    {
      method: 'POST',
      path: '/ledger/verify',
      name: 'verifyLedger',
      isCostly: true,
      needs: 'viewer',
      summary: 'Adds up all entries again and compares: `ok` is false where a balance, or a sum of usage, is not theirs.',
      gives: verification,
      answer: (call) => books.verify(call)
    },
    {
      method: 'GET',
      path: '/usage',
      name: 'listUsage',
      isCostly: true,
      summary:
        'What each key has spent, holds, and may still spend: in total, and on this day and in this month of its ' +
          'time zone. A deleted key stays, with `deleted_at`.',
      query: USAGE,
      gives: page(usageOfKey),
      answer: (call) => books.usage(call)
    },
    {
      method: 'GET',
      path: '/audit',
      name: 'listChanges',
      isCostly: true,
      summary: 'Who changed what through this API, oldest first; with `order=newest` newest first.',
      query: CHANGES,
      gives: page(change),
      answer: (call) => books.changes(call)
    }
  ]
}

/** A method for each operation. */
class BookApi {
  readonly #store: Store & Rollups
  readonly #directory: Directory
  readonly #now: () => number
  readonly #config: ApiParts['config']
  readonly #audit: ApiParts['audit']
  readonly #verified: ApiParts['verified']

  constructor ({ services: { store, directory, now }, config, audit, verified }: ApiParts) {
    this.#store = store
    this.#directory = directory
    this.#now = now
    this.#config = config
    this.#audit = audit
    this.#verified = verified
  }

  async entries ({ query: sent }: Call): Promise<ApiAnswer> {
    const query = readQuery(sent, LEDGER)
    const limit = readLimit(query)
    const [account, key, after] = [query.get('account'), query.get('key'), query.get('after')]
    // An id of a driver of this process; or of Redis, which has the account in it.
    if (after !== undefined && !/^(?:[0-9a-z]{17}|[0-9a-z]{19}-.+)$/s.test(after)) {
      throw new Refusal('invalid_request', 'after must be the id of an entry, as `next` gave it.')
    }
    if (isNewestFirst(query)) return await this.#newest(query, limit)
    const beyond = NEWEST.find((name) => query.has(name))
    if (beyond !== undefined) {
      throw new Refusal('invalid_request', `${beyond} is for the newest entries: send order=newest too.`)
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

  async #newest (query: ReadonlyMap<string, string>, limit: number): Promise<ApiAnswer> {
    const wanted = Object.fromEntries(
      (['account', 'key', 'model', 'reference'] as const).filter((name) => query.has(name))
        .map((name) => [name, query.get(name)!])
    )
    const times = Object.fromEntries(
      (['from', 'to'] as const).filter((name) => query.has(name))
        .map((name) => [name, readTime(query.get(name)!, calendarOf('UTC'), name)])
    )
    const after = query.get('after')
    const { entries, next = null } = await this.#store.newest({ ...wanted, ...times, limit,
      ...(after !== undefined && { before: after }) })
    return { status: 200, body: { data: entries.map(entryView), next } }
  }

  async verify ({ query }: Call): Promise<ApiAnswer> {
    readQuery(query, [])
    const { differences, ...counted } = await this.#store.verify()
    this.#verified?.(differences.length)
    return { status: 200,
      body: { ok: differences.length === 0, ...counted,
        differences: differences.map(differenceView) } }
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
    const after = query.get('after')
    if (after !== undefined && !/^\d{1,15}$/.test(after)) {
      throw new Refusal('invalid_request', 'after must be the id of a line, as `next` gave it.')
    }
    const lines = isNewestFirst(query)
      ? await this.#audit.newestChanges(after === undefined ? undefined : Number(after), limit + 1)
      : await this.#audit.changes(Number(after ?? 0), limit + 1)
    const data = lines.slice(0, limit).map(({ id, text }) => ({ seq: id, ...JSON.parse(text) as object }))
    return { status: 200, body: { data, next: lines.length > limit ? String(lines[limit - 1]!.id) : null } }
  }
}

function entryView ({ nanos, shortfall, ...entry }: Entry): Readonly<Record<string, unknown>> {
  return { ...entry, amount_usd: formatUsd(nanos),
    ...(shortfall !== undefined && { shortfall_usd: formatUsd(shortfall) }) }
}

/** Amounts are text in US dollars, and counts of rollups numbers. */
export function differenceView ({ entries, kept, ...where }: Difference): Readonly<Record<string, unknown>> {
  return where.sum === undefined || where.sum === 'nanos' || where.sum === 'shortfall'
    ? { ...where, entries_usd: formatUsd(entries), kept_usd: formatUsd(kept) }
    : { ...where, entries: Number(entries), kept: Number(kept) }
}
