// accounts: payers, and their opening balances.
import { flag, id, list, map, nameOrId, type Of, usd } from './schema.ts'

export const account = map('Who pays.', {
  id: id('Its name in keys and ledger.'),
  name: nameOrId('For people; absent: the id.'),
  opening_balance_usd: usd('Credited once, ever.', '0'),
  allow_fallback: flag('Whether a failed channel may be replaced by another.', true),
  suspended: flag('true: its keys are refused with account_frozen.', false)
}, { required: ['id'] })

export const accounts = list('Who pays; kept here instead of through the admin API.', account, { default: [] })

export type AccountConfig = Of<typeof account>
