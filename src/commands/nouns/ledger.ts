// `gateway ledger …`: the entries, and whether they add up.
import { done, pages } from '../answer.ts'
import { table } from '../print.ts'
import { print } from '../stdout.ts'
import type { Noun } from '../verb.ts'

/** Also in `gateway store`. */
export const DIFFERENCE_COLUMNS = ['of', 'id', 'sum', 'entries_usd', 'kept_usd', 'entries', 'kept', 'where']

export const ledger: Noun = {
  export: {
    takes: [], options: ['account', 'key'],
    async run (client, { values }) {
      for await (const rows of pages(client, '/ledger', values)) {
        await print(rows.map((row) => JSON.stringify(row) + '\n').join(''))
      }
      return 0
    }
  },
  verify: {
    takes: [],
    async run (client, { json }) {
      const found = await done(client, 'POST', '/ledger/verify')
      const { ok, entries, accounts, keys, differences } = found
      if (json) await print(JSON.stringify(found) + '\n')
      else if (ok === true) {
        const counted = `${String(entries)} entries, ${String(accounts)} accounts, ${String(keys)} keys`
        await print(`The ledger is right: ${counted}.\n`)
      } else {
        const listed = table(
          differences as readonly Record<string, unknown>[], DIFFERENCE_COLUMNS
        )
        await print(`The ledger is WRONG: a balance, or a sum of usage, is not that of its entries.\n${listed}`)
      }
      return ok === true ? 0 : 1
    }
  }
}
