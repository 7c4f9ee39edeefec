// Entries in the accounts' streams, and their total order: by the microsecond in which they were written.
import type { Booking, BookingKind, Settlement, Entry, EntryKind } from '../store.ts'

/** A stream entry of Redis: its id, and fields and values in turn. */
export type Raw = readonly [id: string, fields: readonly string[]]

/** The fields of an entry that are in its JSON text; the rest are fields of the stream. */
type What = Pick<Entry, 'model' | 'channel' | 'usage' | 'usage_source' | 'price_version' | 'reason'>

/** The JSON text of a settlement's entries. */
export function textOf (
  { model, channel, usage, usage_source, price_version }: Omit<Settlement, 'request_id' | 'nanos'>
): string {
  return JSON.stringify(
    { model, channel, usage, usage_source, price_version } satisfies {
      readonly [Field in Exclude<keyof What, 'reason'>]-?: unknown
    }
  )
}

/** The JSON text of a refund's entry; the usage is in the settlement, so that it counts once. */
export function refundText (
  { model, channel, price_version }: Pick<Settlement, 'model' | 'channel' | 'price_version'>
): string {
  return JSON.stringify({ model, channel, price_version })
}

/** The JSON text of a booking's entry; empty: without a reason. */
export function reasonText ({ reason }: Pick<Booking, 'reason'>): string {
  return reason === undefined ? '' : JSON.stringify({ reason })
}

/** A name of the booking that is unique over all kinds. */
export function bookingName (kind: BookingKind, reference: string): string {
  return kind === 'credit' ? reference : `${kind} ${reference}`
}

/** The JSON text of an entry from another store. */
export function whatOf ({ model, channel, usage, usage_source, price_version }: Entry): string {
  return JSON.stringify({ model, channel, usage, usage_source, price_version })
}

export function readEntry (account: string, [id, fields]: Raw): Entry {
  const of: Record<string, string> = {}
  for (let i = 0; i < fields.length; i += 2) of[fields[i]!] = fields[i + 1]!
  const { kind, key, reference, nanos, shortfall, at, day, what } = of
  return {
    id: entryId(account, id),
    kind: kind as EntryKind,
    account,
    ...(key !== undefined && { key }),
    reference: reference!,
    nanos: BigInt(nanos!),
    ...(shortfall !== undefined && { shortfall: BigInt(shortfall) }),
    at: new Date(Number(at)).toISOString(),
    ...(what !== undefined && JSON.parse(what) as What),
    ...(day !== undefined && day !== '' && { day })
  }
}

/**
 * Sorts as text: 11 digits of the microsecond and 8 of the number in the account, in base 36; then the account, which
 * makes it unique.
 */
function entryId (account: string, id: string): string {
  const [micros, seq] = id.split('-') as [string, string]
  return `${Number(micros).toString(36).padStart(11, '0')}${Number(seq).toString(36).padStart(8, '0')}-${account}`
}

/** An id before that of each entry of a microsecond, and behind those of all earlier ones. */
export function idAt (micros: number): string {
  return entryId('', `${micros}-0`)
}

/** The parts of an entry's id; undefined: another driver made it. */
export function streamId (id: string): { readonly micros: number, readonly seq: number } | undefined {
  const [, micros, seq] = /^([0-9a-z]{11})([0-9a-z]{8})-/.exec(id) ?? []
  return micros === undefined ? undefined : { micros: parseInt(micros, 36), seq: parseInt(seq!, 36) }
}

/** Whether an id of a stream comes behind another one. */
export function isBehind (id: string, other: string): boolean {
  const [[micros, seq], [otherMicros, otherSeq]] = [id, other].map((one) => one.split('-').map(Number)) as
    [[number, number], [number, number]]
  return micros === otherMicros ? seq > otherSeq : micros > otherMicros
}

/** The first stream id behind an entry's. */
export function startAfter (id: string): string {
  const micros = parseInt(id.slice(0, 11), 36)
  return Number.isSafeInteger(micros) ? `${micros}` : '0'
}

/** Reads a page of an account, behind an id of its stream; an empty one is the last. */
export type Fetch = (account: string, from: string) => Promise<readonly Raw[]>

/** The entries of one account, page by page. */
class Reader {
  next: Entry | undefined
  readonly #account: string
  readonly #fetch: Fetch
  #page: readonly Raw[] = []
  #at = 0
  #from: string

  constructor (account: string, fetch: Fetch, from: string) {
    this.#account = account
    this.#fetch = fetch
    this.#from = from
  }

  /** @returns false: there is no entry left */
  async advance (): Promise<boolean> {
    if (this.#at === this.#page.length) {
      this.#page = await this.#fetch(this.#account, this.#from)
      this.#at = 0
      const last = this.#page.at(-1)
      if (last !== undefined) this.#from = `(${last[0]}`
    }
    const raw = this.#page[this.#at++]
    this.next = raw && readEntry(this.#account, raw)
    return raw !== undefined
  }
}

/** Accounts that are read at a time: each holds a page. */
const PARALLEL = 50

/** All entries of these accounts, oldest first. @param after id of an entry: only entries behind it */
export async function* merged (
  accounts: readonly string[],
  fetch: Fetch,
  after: string | undefined
): AsyncIterable<Entry> {
  const heap = new Heap((one, other) => one.id < other.id)
  const from = after === undefined ? '-' : startAfter(after)
  for (let i = 0; i < accounts.length; i += PARALLEL) {
    await heap.open(accounts.slice(i, i + PARALLEL), fetch, from, ({ id }) => after === undefined || id > after)
  }
  for (let first = heap.pop(); first !== undefined; first = heap.pop()) {
    yield first.next!
    if (await first.advance()) heap.push(first)
  }
}

/** An account, and the microsecond of the newest entry that may be wanted of it. */
export interface Tip {
  readonly account: string
  readonly micros: number
}

/**
 * Entries, the newest first. Of an account nothing is read before its turn may have come: of thousands of accounts a
 * page has entries of a few.
 * @param from of the first read of each
 * @param before id of an entry: only entries written before it
 */
export async function* mergedBack (
  tips: readonly Tip[],
  fetch: Fetch,
  from: string,
  before: string | undefined
): AsyncIterable<Entry> {
  const heap = new Heap((one, other) => one.id > other.id)
  const waiting = tips.toSorted((a, b) => a.micros - b.micros)
  for (;;) {
    for (let tip; (tip = waiting.at(-1)) !== undefined;) {
      if (heap.first !== undefined && streamId(heap.first.id)!.micros > tip.micros) break
      const accounts = waiting.splice(-PARALLEL).map(({ account }) => account)
      await heap.open(accounts, fetch, from, ({ id }) => before === undefined || id < before)
    }
    const first = heap.pop()
    if (first === undefined) return
    yield first.next!
    if (await first.advance()) heap.push(first)
  }
}

/** A heap of readers, the one whose entry is next first: thousands of accounts cost a dozen comparisons per entry. */
class Heap {
  readonly #readers: Reader[] = []
  readonly #isBefore: (one: Entry, other: Entry) => boolean

  constructor (isBefore: (one: Entry, other: Entry) => boolean) {
    this.#isBefore = isBefore
  }

  /** the next entry */
  get first (): Entry | undefined {
    return this.#readers[0]?.next
  }

  /** Adds accounts, each from its first entry on that is wanted. */
  async open (
    accounts: readonly string[],
    fetch: Fetch,
    from: string,
    isWanted: (entry: Entry) => boolean
  ): Promise<void> {
    await Promise.all(accounts.map(async (account) => {
      const reader = new Reader(account, fetch, from)
      while (await reader.advance()) {
        if (!isWanted(reader.next!)) continue
        this.push(reader)
        return
      }
    }))
  }

  push (reader: Reader): void {
    const all = this.#readers
    let at = all.push(reader) - 1
    while (at > 0) {
      const above = (at - 1) >> 1
      if (this.#isBefore(all[above]!.next!, reader.next!)) break
      all[at] = all[above]!
      at = above
    }
    all[at] = reader
  }

  pop (): Reader | undefined {
    const all = this.#readers
    const first = all[0]
    const last = all.pop()
    if (last === undefined || all.length === 0) return first
    let at = 0
    for (;;) {
      let below = 2 * at + 1
      if (below >= all.length) break
      if (below + 1 < all.length && this.#isBefore(all[below + 1]!.next!, all[below]!.next!)) below++
      if (this.#isBefore(last.next!, all[below]!.next!)) break
      all[at] = all[below]!
      at = below
    }
    all[at] = last
    return first
  }
}
