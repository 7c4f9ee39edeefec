// Adds up the entries again, one account after the other: the sums of an account and its keys change in one script with
// the ledger, so one script reads both consistently, while requests go on.
import type { Nanos } from '../../money/nanos.ts'
import { isOver, nameOf, oldestCompared } from '../periods.ts'
import type { Difference, Verification } from '../store.ts'
import { Sums } from '../sums.ts'
import { readEntry, type Raw } from './entries.ts'
import type { Space } from './keyspace.ts'

/** @param page entries of an account, from an id to another; an empty one is the last */
export async function verify (
  space: Space,
  page: (account: string, from: string, to: string) => Promise<readonly Raw[]>
): Promise<Verification> {
  const oldest = oldestCompared(space.nearly)
  const differences: Difference[] = []
  const all = new Sums(oldest)
  for (const account of await space.accounts()) {
    const [balance, upTo, ...purses] = await space.orUnavailable(space.ask('sums', account)) as [string, string,
      ...(string | string[])[]]
    const sums = new Sums(oldest)
    for (let from = '-', raws: readonly Raw[]; upTo !== '0-0' && (raws = await page(account, from, upTo)).length > 0;
      from = `(${raws.at(-1)![0]}`) {
      for (const raw of raws) {
        const { key, nanos, day } = readEntry(account, raw)
        sums.add(account, key, nanos, day)
      }
    }
    all.addAll(sums)
    const compare = (of: Difference['of'], id: string, entries: Nanos = 0n, kept: Nanos): void => {
      if (entries !== kept) differences.push({ of, id, entries, kept, where: 'memory' })
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
