// Pages of the newest entries. Account and time are found by the streams themselves, which are ordered; a key is looked
// for in its accounts, and what else is asked for by reading: so many entries per page at most, and the page says where
// the next one goes on. A request's entries are found from the time that its id tells.
import { timeOfRequestId } from '../../base/request-id.ts'
import { isAbout } from '../late-entries.ts'
import type { EntryPage, EntryQuery } from '../rollups.ts'
import type { BookingKind, Entry } from '../store.ts'
import { bookingName, idAt, merged, mergedBack, streamId, type Fetch, type Tip } from './entries.ts'
import { eachOf, type Space } from './keyspace.ts'

/** Entries that are read for a page at most: less than a tenth of a second. */
const MOST_READ = 5000
/** Entries per read of an account: the first of many accounts, and the most. */
const FEW = 10
const MANY = 500
/** Microseconds that the clock of a gateway may be ahead of Redis's. */
const AHEAD = 60_000_000
const BOOKINGS: readonly BookingKind[] = ['credit', 'refund', 'debit']

export async function newest (space: Space, query: EntryQuery): Promise<EntryPage> {
  const { reference, before, limit } = query
  const accounts = await accountsOf(space, query)
  const begun = reference === undefined ? undefined : timeOfRequestId(reference)
  const first = Math.max(0, (begun ?? 0) - AHEAD, space.isRedisTime ? Math.ceil(query.from ?? 0) * 1000 : 0)
  if (begun !== undefined && before === undefined) {
    const found = (await soonBehind(space, accounts, first, query)).toReversed()
    if (found.length > limit) return { entries: found.slice(0, limit), next: found[limit - 1]!.id }
    if (found.length > 0) return { entries: found }
  }
  return await pageOf(space, accounts, first, query)
}

/** The accounts that may have such entries. */
async function accountsOf (space: Space, { account, key, reference }: EntryQuery): Promise<readonly string[]> {
  if (account !== undefined) return [account]
  const all = key === undefined
    ? await space.accounts()
    : await space.read(async (client) => await client.smembers(space.single(`accounts_of:${key}`)))
  if (reference === undefined) return all
  const known = await eachOf(all, async (one) => await isKnown(space, one, reference))
  // What became of a request is forgotten after a day: nobody who knows it means that all may have entries of it.
  return known.includes(true) ? all.filter((_, i) => known[i]) : all
}

/** Whether an account has something under a reference: a booking, or a request of the last day. */
async function isKnown (space: Space, account: string, reference: string): Promise<boolean> {
  const names = BOOKINGS.flatMap((kind) =>
    [reference, `${kind}:${account}:${reference}`].map((one) => bookingName(kind, one))
  )
  const [requests, bookings] = await space.read(async (client) => await Promise.all([
    client.exists(space.of(account, `charge:${reference}`)),
    client.smismember(space.of(account, 'references'), names)
  ]))
  return requests === 1 || bookings.includes(1)
}

async function pageOf (
  space: Space,
  accounts: readonly string[],
  first: number,
  query: EntryQuery
): Promise<EntryPage> {
  const { before, limit } = query
  const till = space.isRedisTime ? Math.ceil(query.to ?? Infinity) * 1000 - 1 : Infinity
  if (till < first) return { entries: [] }
  const last = before === undefined ? undefined : streamId(before)
  const [micros, end] = last !== undefined && last.micros <= till
    ? [last.micros, `${last.micros}-${last.seq}`]
    : [till, till === Infinity ? '+' : `${till}`]
  // One more tells whether there is one more; and `before` itself is read as well.
  const few = limit + (before === undefined ? 1 : 2)
  const fetch = growing(accounts.length === 1 ? few : FEW, async (account, from, count) =>
    await space.read(async (client) =>
      await client.xrevrange(space.of(account, 'ledger'), from, `${first}`, 'COUNT', count)))
  const found: Entry[] = []
  let read = 0
  for await (const entry of mergedBack(await tipsOf(space, accounts, micros), fetch, end, before)) {
    if (isWanted(entry, query)) {
      if (found.length === limit) return { entries: found, next: found.at(-1)!.id }
      found.push(entry)
    }
    if (++read === MOST_READ) return { entries: found, next: entry.id }
  }
  return { entries: found }
}

/** The entries of a request that were written soon behind its beginning, the oldest first. */
async function soonBehind (
  space: Space,
  accounts: readonly string[],
  first: number,
  query: EntryQuery
): Promise<readonly Entry[]> {
  const fetch = growing(accounts.length === 1 ? MANY : FEW, async (account, from, count) =>
    await space.read(async (client) => await client.xrange(space.of(account, 'ledger'), from, '+', 'COUNT', count)))
  const found: Entry[] = []
  let read = 0
  for await (const entry of merged(accounts, fetch, idAt(first))) {
    if (isWanted(entry, query)) found.push(entry)
    if (++read === MOST_READ) break
  }
  return found
}

function isWanted (entry: Entry, { key, model, reference, from = 0, to = Infinity }: EntryQuery): boolean {
  const at = Date.parse(entry.at)
  return at >= from && at < to && (key === undefined || entry.key === key) &&
    (model === undefined || entry.model === model) && (reference === undefined || isAbout(entry, reference))
}

/** @param last no entry behind this microsecond is wanted */
async function tipsOf (space: Space, accounts: readonly string[], last: number): Promise<readonly Tip[]> {
  if (accounts.length === 1) return [{ account: accounts[0]!, micros: last }]
  return await eachOf(accounts, async (account) => {
    const time = await space.read(async (client) => await client.hget(space.of(account), 'entry_time'))
    return { account, micros: Math.min(last, Number(time ?? 0)) }
  })
}

/** Reads few entries of an account at first, and more with each page. */
function growing (
  few: number,
  read: (account: string, from: string, count: number) => ReturnType<Fetch>
): Fetch {
  const counts = new Map<string, number>()
  return async (account, from) => {
    const count = Math.min(counts.get(account) ?? few, MANY)
    counts.set(account, count * 4)
    return await read(account, from, count)
  }
}
