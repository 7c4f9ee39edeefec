// Adds up the entries again, one account after the other: the sums of an account and its keys change in one script with
// the ledger, so one script reads both consistently, while requests go on. So do its rollups; there may be too many for
// one script, so each read of them tells which entries are in them.
import type { Nanos } from '../../money/nanos.ts'
import { isOver, nameOf, oldestCompared } from '../periods.ts'
import { addEntry, addSum, differencesOf, dayOf, firstKept, hourOf, isUsage, membersOf, noSum, RollupSums, type Sum,
  titleOf } from '../rollup-sums.ts'
import type { Difference, Entry, Verification } from '../store.ts'
import { Sums } from '../sums.ts'
import { isBehind, readEntry, type Raw } from './entries.ts'
import { addAllOld, startsOf, sumsOf } from './rollups.ts'
import type { Space } from './keyspace.ts'

/** Entries of an account, from an id to another; an empty page is the last. */
type Page = (account: string, from: string, to: string) => Promise<readonly Raw[]>

export async function verify (space: Space, page: Page): Promise<Verification> {
  const oldest = oldestCompared(space.nearly)
  const differences: Difference[] = []
  const all = new Sums(oldest)
  for (const account of await space.accounts()) {
    // Those of before there were rollups have their share now.
    await space.orUnavailable(addAllOld(space, account))
    const [balance, upTo, rolled, ...purses] = await space.orUnavailable(space.ask('sums', account)) as [string, string,
      string, ...(string | string[])[]]
    const sums = new Sums(oldest)
    const rollups = new RollupCheck(space, account, page)
    for await (const { key, nanos, day } of rollups.entries(upTo, rolled)) sums.add(account, key, nanos, day)
    all.addAll(sums)
    const compare = (of: Difference['of'], id: string, entries: Nanos = 0n, kept: Nanos): void => {
      if (entries !== kept) differences.push({ of, id, entries, kept, where: 'redis' })
    }
    compare('account', account, sums.accounts.get(account), BigInt(balance))
    for (let i = 0; i < purses.length; i += 2) {
      const key = purses[i] as string
      for (const [period, kept] of spentIn(purses[i + 1] as string[])) {
        if (period === '') { compare('key', key, sums.keys.get(key), kept) }
        else if (!isOver(period, oldest)) {
          compare('period', nameOf(period, key), sums.periods.get(nameOf(period, key)), kept)
        }
      }
    }
    for await (const difference of rollups.differences()) differences.push(difference)
  }
  return { entries: all.entries, accounts: all.accounts.size, keys: all.keys.size, differences }
}

/** Sums in the fields of a key, by period; '': ever. */
function * spentIn (fields: readonly string[]): Iterable<readonly [period: string, nanos: Nanos]> {
  for (let i = 0; i < fields.length; i += 2) {
    const [, period] = /^s(?::(.+))?$/.exec(fields[i]!) ?? []
    if (fields[i]!.startsWith('s')) yield [period ?? '', BigInt(fields[i + 1]!)]
  }
}

/** The rollups of an account, computed from its entries, and compared with those that Redis keeps. */
class RollupCheck {
  readonly #space: Space
  readonly #account: string
  readonly #page: Page
  readonly #firstHour: number
  readonly #sums = { day: new RollupSums(), hour: new RollupSums() }
  /** entries that are not in Redis's rollups, as far as is known, the oldest first */
  readonly #waiting: Read[] = []
  #readTo = '0-0'

  constructor (space: Space, account: string, page: Page) {
    this.#space = space
    this.#account = account
    this.#page = page
    this.#firstHour = firstKept(hourOf(space.nearly))
  }

  /** Reads the entries up to one. @param rolled id of the last entry that is in Redis's rollups */
  async * entries (upTo: string, rolled: string): AsyncIterable<Entry> {
    for await (const read of this.#read(upTo)) {
      if (isBehind(read[0], rolled)) this.#waiting.push(read)
      else this.#add(read[1])
      yield read[1]
    }
  }

  /** The entries behind those that were read. */
  async * #read (upTo: string): AsyncIterable<Read> {
    while (isBehind(upTo, this.#readTo)) {
      const page = await this.#page(this.#account, `(${this.#readTo}`, upTo)
      for (const raw of page) yield [raw[0], readEntry(this.#account, raw)]
      this.#readTo = page.at(-1)?.[0] ?? upTo
    }
  }

  #add ({ at, account, key = '', model = '', channel = '', ...added }: Entry): void {
    if (!isUsage(added.kind)) return
    const time = Date.parse(at)
    addEntry(this.#sums.day.of(dayOf(time), { account, key, model, channel }), added)
    if (time < this.#firstHour) return
    addEntry(this.#sums.hour.of(hourOf(time), { account, key, model, channel }), added)
  }

  /** Adds what came into Redis's rollups meanwhile. */
  async #addTo (rolled: string): Promise<void> {
    for await (const read of this.#read(rolled)) this.#waiting.push(read)
    for (let first; (first = this.#waiting[0]) !== undefined && !isBehind(first[0], rolled); this.#waiting.shift()) {
      this.#add(first[1])
    }
  }

  /** What differs, behind `entries`. */
  async * differences (): AsyncIterable<Difference> {
    for (const by of ['day', 'hour'] as const) {
      const sums = this.#sums[by].periods
      const starts = [...new Set([...await startsOf(this.#space, this.#account, by), ...sums.keys()])]
      for await (const { starts: some, upTo, rows } of sumsOf(this.#space, this.#account, by, starts)) {
        await this.#addTo(upTo)
        const kept = new RollupSums()
        for (const { start, members, sum } of rows) addSum(kept.of(start, members), sum)
        for (const start of some) {
          const [wanted, found] = [sums.get(start) ?? NONE, kept.periods.get(start) ?? NONE]
          for (const name of new Set([...wanted.keys(), ...found.keys()])) {
            const id = titleOf(start, by, membersOf(name))
            const both = [wanted, found].map((sums) => sums.get(name) ?? noSum()) as [Sum, Sum]
            for (const [sum, entries, inRedis] of differencesOf(...both)) {
              yield { of: 'rollup', id, sum, entries, kept: inRedis, where: 'redis' }
            }
          }
        }
      }
    }
  }
}

type Read = readonly [id: string, Entry]

const NONE: ReadonlyMap<string, Sum> = new Map()
