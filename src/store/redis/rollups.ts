// What the entries of accounts add up to, as lua/rolling.ts keeps it: read, and compared with the entries. And what is
// added without a charge: requests that failed, and old entries, of before there were these sums.
import { setTimeout as pause } from 'node:timers/promises'
import { addSum, DAY_MS, failuresOf, firstKept, GROUPS, HOUR_MS, hourOf, type Members, noSum, periodIn, rollupOf,
  RollupSums, type Sum, type SumRow } from '../rollup-sums.ts'
import type { Failure, FailureCount, Rollup, RollupQuery } from '../rollups.ts'
import { AwayError } from './connection.ts'
import { eachOf, type Space } from './keyspace.ts'
import { TOKENS } from './lua/rolling.ts'

/** Redis keeps no months: they are added up from their days. */
type Period = 'hour' | 'day'

const LENGTHS: Readonly<Record<Period, number>> = { hour: HOUR_MS, day: DAY_MS }

/** Periods that a script is asked for, which stops where it has read much; a week of hours. */
const PERIODS_AT_ONCE = 200
/** Old entries per script: Redis serves nobody else meanwhile, which is a millisecond or two. */
const ENTRIES_AT_ONCE = 100
/** Milliseconds between two scripts for old entries while requests are served. */
const PAUSE_MS = 10
/** Milliseconds for which one gateway adds old entries, and no other one begins to. */
const CLAIM_MS = 60_000
/** Kinds of failures that wait for their second to end: whatever comes beyond them while Redis is away is lost. */
const MOST_FAILURES = 10_000

/** Some periods of an account, as they were after one of its entries. */
export interface ReadSums {
  /** of the account's stream */
  readonly upTo: string
  readonly rows: readonly SumRow[]
}

/** Reads sums. @param starts of the periods, milliseconds since the epoch @throws {GatewayError} service_unavailable */
export async function * sumsOf (
  space: Space,
  account: string,
  by: Period,
  starts: readonly number[]
): AsyncIterable<ReadSums & { readonly starts: readonly number[] }> {
  const length = LENGTHS[by]
  for (let i = 0, read = 0; i < starts.length; i += read) {
    const asked = starts.slice(i, i + PERIODS_AT_ONCE)
    const [upTo, count, ...told] = await space.orUnavailable(
      space.ask('sumsOf', account, by, ...asked.map((start) => start / length))
    ) as [string, number, ...(string | string[])[]]
    read = count
    // Behind the sums: each number in them has its name by then.
    const names = told.length === 0 ? [] : await membersOf(space, account)
    const rows = told.flatMap((one, at) =>
      at % 2 === 0 ? rowsIn(Number(one) * length, told[at + 1] as string[], names) : []
    )
    yield { starts: asked.slice(0, count), upTo, rows }
  }
}

/** The members of an account, by their numbers. */
async function membersOf (space: Space, account: string): Promise<readonly Members[]> {
  const names: Members[] = []
  const numbers = await space.read(async (client) => await client.hgetall(space.of(account, 'members')))
  for (const [name, number] of Object.entries(numbers)) {
    const [key, model, channel] = JSON.parse(name) as [string, string, string]
    names[Number(number)] = { account, key, model, channel }
  }
  return names
}

const NAMES: Readonly<Record<string, keyof Sum>> = { r: 'requests', e: 'errors', n: 'nanos', s: 'shortfall', ...TOKENS }

/** @param fields of a period, and their values, in turn */
function rowsIn (start: number, fields: readonly string[], names: readonly Members[]): readonly SumRow[] {
  const sums: Sum[] = []
  for (let i = 0; i < fields.length; i += 2) {
    const [, member, letter, item] = /^(\d+)([a-z])(.*)$/s.exec(fields[i]!)!
    const sum = sums[Number(member)] ??= noSum()
    const name = letter === 'x' ? item as keyof Sum : NAMES[letter!]!
    if (name === 'nanos' || name === 'shortfall') sum[name] = BigInt(fields[i + 1]!)
    else if (name in sum) sum[name] = Number(fields[i + 1])
  }
  // One without a name was named after a failover had forgotten the first of its name.
  return sums.flatMap((sum, i) => names[i] === undefined ? [] : [{ start, members: names[i], sum }])
}

/** The days that an account has sums of, and the hours that it may have. @throws {GatewayError} service_unavailable */
export async function startsOf (space: Space, account: string, by: Period): Promise<readonly number[]> {
  if (by === 'day') {
    const days = await space.read(async (client) => await client.smembers(space.of(account, 'days')))
    return days.map((day) => Number(day) * DAY_MS).toSorted((a, b) => a - b)
  }
  // One more: the clock of Redis may be ahead.
  const newest = hourOf(space.nearly) + HOUR_MS
  const first = firstKept(newest - HOUR_MS)
  return Array.from({ length: (newest - first) / HOUR_MS + 1 }, (_, i) => first + i * HOUR_MS)
}

/**
 * Gives old entries of an account their share, some at a time.
 * @returns whether more may be left
 * @throws {AwayError}
 */
async function addOld (space: Space, account: string): Promise<boolean> {
  return await space.ask('addOld', account, ENTRIES_AT_ONCE) === ENTRIES_AT_ONCE
}

/** Gives all old entries of an account their share. @throws {AwayError} */
export async function addAllOld (space: Space, account: string): Promise<void> {
  let isMore = true
  while (isMore) isMore = await addOld(space, account)
}

export class RedisRollups {
  readonly #space: Space
  readonly #owner: string
  readonly #list: (account: string, key: string) => Promise<void>
  /** how many, by account, and the JSON of hour, key, model and channel */
  readonly #failures = new Map<string, Map<string, number>>()
  #kinds = 0
  #isClosed = false

  /** @param list puts an account and a key on Redis's lists */
  constructor (space: Space, owner: string, list: (account: string, key: string) => Promise<void>) {
    this.#space = space
    this.#owner = owner
    this.#list = list
  }

  async find (query: RollupQuery): Promise<readonly Rollup[]> {
    const { by, groups, only } = query
    const found = new RollupSums()
    const of = by === 'day' || by === 'month' ? 'day' : 'hour'
    await eachOf(await this.#accountsOf(query), async (account) => {
      const starts = (await startsOf(this.#space, account, of))
        .filter((start) => periodIn(query, start) !== undefined)
      for await (const { rows } of sumsOf(this.#space, account, of, starts)) {
        for (const { start, members, sum } of rows) {
          if (GROUPS.some((group) => only[group] !== undefined && only[group] !== members[group])) continue
          const asked = (group: keyof Members): string => groups.includes(group) ? members[group] : ''
          addSum(found.of(periodIn(query, start)!, { account: asked('account'), key: asked('key'), model: asked('model'),
            channel: asked('channel') }), sum)
        }
      }
    })
    return found.sorted().map((row) => rollupOf(row, groups))
  }

  async * allFailures (): AsyncIterable<FailureCount> {
    for (const account of await this.#space.accounts()) {
      const all = { from: 0, to: Infinity, groups: GROUPS, only: { account } }
      // First, so that a day has what its hours have.
      const hours = await this.find({ ...all, by: 'hour' })
      yield * failuresOf(hours, await this.find({ ...all, by: 'day' }))
    }
  }

  async #accountsOf ({ only: { account, key } }: RollupQuery): Promise<readonly string[]> {
    if (account !== undefined) return [account]
    if (key === undefined) return await this.#space.accounts()
    const list = this.#space.single(`accounts_of:${key}`)
    return await this.#space.read(async (client) => await client.smembers(list))
  }

  failed ({ account, key, model, channel = '' }: Failure): void {
    this.#count(account, JSON.stringify([hourOf(this.#space.nearly), key, model, channel]), 1)
  }

  #count (account: string, name: string, count: number): void {
    const known = this.#failures.get(account)?.get(name)
    if (known === undefined) {
      if (this.#kinds === MOST_FAILURES) return
      this.#kinds++
    }
    let counts = this.#failures.get(account)
    if (counts === undefined) this.#failures.set(account, counts = new Map<string, number>())
    counts.set(name, (known ?? 0) + count)
  }

  /**
   * Sends the failures since the last time. Those that Redis can't be asked to count wait for the next time, and those
   * of which it is unknown whether it has counted them are lost: none counts twice.
   * @throws {AwayError}
   */
  async sendFailures (): Promise<void> {
    const all = [...this.#failures]
    this.#failures.clear()
    this.#kinds = 0
    await eachOf(all, async ([account, counts]) => {
      const failures = [...counts].map(([name, count]) =>
        [count, ...JSON.parse(name) as [number, string, string, string]] as const
      )
      try {
        await eachOf(failures, async ([, , key]) => { await this.#list(account, key) })
        await this.#space.ask('fail', account, ...failures.flat())
      } catch (thrown) {
        if (!(thrown instanceof AwayError) || !thrown.isUnasked) throw thrown
        for (const [name, count] of counts) this.#count(account, name, count)
      }
    })
  }

  /**
   * Gives old entries of all accounts their share, while requests are served: those of a Redis from before there were
   * rollups, and those that a gateway of an older version writes beside this one. One gateway of all does it, once a
   * minute; what it leaves is for the next time.
   * @throws {AwayError}
   */
  async addOld (): Promise<void> {
    const { link } = this.#space
    const claim = this.#space.single('adds_old')
    const isOurs = await link.call(async (client) => await client.set(claim, this.#owner, 'PX', CLAIM_MS, 'NX'))
    if (isOurs === null) return
    const end = performance.now() + CLAIM_MS
    for (const account of await link.call(async (client) => await client.smembers(this.#space.single('accounts')))) {
      while (await addOld(this.#space, account)) {
        if (this.#isClosed || performance.now() > end) return
        await pause(PAUSE_MS)
      }
    }
  }

  close (): void {
    this.#isClosed = true
  }
}
