// accounts: payers, and their opening balances.
import { flag, id, line, list, map, nameOrId, type Of, tags, usd } from './schema.ts'

export const account = map('Who pays.', {
  id: id('Its name in keys and ledger.'),
  name: nameOrId('For people; absent: the id.'),
  opening_balance_usd: usd('Credited once, ever.', '0'),
  allow_fallback: flag('Whether a failed channel may be replaced by another.', true),
  suspended: flag('true: its keys are refused with account_frozen.', false),
  closed: flag(
    'true: it is over. Its keys are refused with account_frozen, and it gets no new ones; its balance stays.'
  ),
  contact: line('Whom to ask about it, such as a mail address.', 200),
  tags: tags('The operator\'s own words for it, by which the admin API filters; absent: none.')
}, { required: ['id'] })

export const accounts = list('Who pays; kept here instead of through the admin API.', account, { default: [] })

export type AccountConfig = Of<typeof account>
