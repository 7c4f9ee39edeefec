// `gateway accounts …`
import { newAccount } from '../../admin/api/schemas.ts'
import { CommandError } from '../admin-client.ts'
import { done } from '../answer.ts'
import { type Noun, settings, type Verb } from '../verb.ts'
import { list, one, show, update } from '../verbs.ts'
import { complain } from '../stdout.ts'

const ACCOUNT_COLUMNS = ['id', 'name', 'state', 'declared', 'balance_usd', 'held_usd']

const CLOSE_NOTE =
  '  Ends an account: its keys are refused, and it gets no new ones. Its balance stays, to be refunded or debited.\n'
const REFUND_NOTE =
  '  Gives money back to the account, once per reference: at most what it has paid; under the id of a request, at most ' +
    'what that\n  request was charged. What its keys have spent, and their usage limits, stay as they are: usage shows ' +
    'what was charged,\n  the ledger what was given back.\n'
const DEBIT_NOTE =
  '  Takes money from the account, once per reference: at most what is available, for no balance goes below zero.\n'

export const accounts: Noun = {
  create: { takes: ['ID'], settings: newAccount,
    run: async (client, { positionals: [id], values, json }) =>
      await show(await done(client, 'POST', '/accounts', { id, ...settings(values, newAccount) }), json) },
  list: { takes: [], options: ['tag'],
    run: async (client, said) => await list(client, '/accounts', ACCOUNT_COLUMNS, said) },
  show: { takes: ['ID'], run: async (client, said) => await one(client, 'GET', 'accounts', said) },
  update: update('accounts', newAccount),
  credit: booking('credited', '/credits', {
    reference: 'Name the payment: --reference TEXT. It is credited once, however often the command is repeated.'
  }),
  refund: booking('refunded', '/refunds', {
    reference:
      'Name the case, or the request: --reference TEXT. It is refunded once, however often the command is repeated.',
    reason: 'Say why: --reason TEXT. It stands in the ledger.'
  }, REFUND_NOTE),
  debit: booking('debited', '/debits', {
    reference: 'Name the case: --reference TEXT. It is debited once, however often the command is repeated.',
    reason: 'Say why: --reason TEXT. It stands in the ledger.'
  }, DEBIT_NOTE),
  suspend: { takes: ['ID'],
    run: async (client, said) => await one(client, 'PATCH', 'accounts', said, '', { suspended: true }) },
  resume: { takes: ['ID'],
    run: async (client, said) => await one(client, 'PATCH', 'accounts', said, '', { suspended: false }) },
  close: { takes: ['ID'], note: CLOSE_NOTE,
    run: async (client, said) => await one(client, 'POST', 'accounts', said, '/close') },
  reopen: { takes: ['ID'], run: async (client, said) => await one(client, 'POST', 'accounts', said, '/reopen') }
}

/** @param needs required options, each with the message when it is missing */
function booking (isDone: string, address: string, needs: Readonly<Record<string, string>>, note = ''): Verb {
  const names = Object.keys(needs)
  return {
    takes: ['ID', 'USD'], needs: names, note,
    async run (client, { positionals: [id, amount], values, json }) {
      const missing = names.find((name) => values[name] === undefined)
      if (missing !== undefined) throw new CommandError(needs[missing]!)
      const booked = await done(client, 'POST', `/accounts/${encodeURIComponent(id!)}${address}`, { amount_usd: amount,
        ...Object.fromEntries(names.map((name) => [name, values[name]])) })
      if (booked[isDone] === false) {
        complain(`The reference ${String(values['reference'])} was ${isDone} before: nothing was changed.`)
      }
      return await show(booked, json)
    }
  }
}
