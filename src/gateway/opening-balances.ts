// Opening balances of accounts in gateway.yaml: each is credited once, ever.
import type { AccountConfig } from '../config/config.ts'
import { parseUsd } from '../money/nanos.ts'
import type { Store } from '../store/store.ts'

/**
 * Credits opening balances. Looks each one up first: for an account with half of what a ledger can count, a repeated
 * credit would be refused as too much, and the start or reload with it.
 * @throws {Error} the ledger can't record it
 */
export async function creditOpenings (
  accounts: readonly AccountConfig[],
  store: Pick<Store, 'credit' | 'amountOf' | 'health'>
): Promise<void> {
  // A ledger that is lost would seem to have credited none of them.
  if (store.health?.loss !== undefined) return
  await Promise.all(accounts.map(async ({ id, opening_balance_usd: opening }) => {
    const reference = openingOf(id)
    if (await store.amountOf('credit', reference) === undefined) await store.credit(id, reference, parseUsd(opening))
  }))
}

/** @returns reference of the credit */
export function openingOf (account: string): string {
  return `opening:${account}`
}
