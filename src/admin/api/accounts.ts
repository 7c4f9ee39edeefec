// Accounts in the admin API: made, changed, credited. Those of gateway.yaml can be credited, and nothing else of them changes.
import type { AccountConfig } from '../../config/config.ts'
import type { AccountRecord } from '../../directory.ts'
import { formatUsd, parseUsd } from '../../money/nanos.ts'
import { type ApiAnswer, type ApiParts, checkVersion, type Operation, pageOf, readQuery } from './operation.ts'
import { Refusal } from './refusal.ts'
import { accountPatch, credit, judge, merge, newAccount } from './schemas.ts'

type Body = Readonly<Record<string, unknown>>

export function accountOperations ({ services: { store, directory, now }, config }: ApiParts): readonly Operation[] {
  const judgeAccount = judge(newAccount)
  const judgeCredit = judge(credit)

  return [
    {
      method: 'GET', path: '/accounts', name: 'listAccounts', summary: 'All accounts, those of gateway.yaml too, by id.', query: ['after', 'limit'],
      async answer ({ query }) {
        const { rows, next } = pageOf([...config().accounts, ...directory.keptAccounts()], readQuery(query, ['after', 'limit']))
        return { status: 200, body: { data: await Promise.all(rows.map(async ({ id }) => await view(id))), next } }
      }
    },
    {
      method: 'POST', path: '/accounts', name: 'createAccount', summary: 'Makes an account with a balance of nothing.', takes: newAccount,
      async answer ({ body, who }) {
        const settings = read(body as Body)
        const { id } = settings
        await directory.change(() => {
          if (isDeclared(id)) throw readOnly(id)
          if (directory.keptAccount(id) !== undefined) throw new Refusal('already_exists', `There is an account ${id} already. Choose another id, or change that one.`)
          const account: AccountRecord = { settings, created_at: new Date(now()).toISOString() }
          return { account, audit: { who, what: 'account.create', id, before: null, after: audited(settings) } }
        })
        return { ...await answer(id), status: 201 }
      }
    },
    {
      method: 'GET', path: '/accounts/{id}', name: 'getAccount', summary: 'One account and its balance.',
      answer: async ({ id }) => await answer(id)
    },
    {
      method: 'PATCH', path: '/accounts/{id}', name: 'changeAccount', summary: 'Changes some settings, such as suspended; null sets one back to the standard. Holds from the next request on.', takes: accountPatch,
      async answer ({ id, body, ifMatch, who }) {
        await directory.change(() => {
          if (isDeclared(id)) throw readOnly(id)
          const kept = directory.keptAccount(id)
          if (kept === undefined) throw unknown(id)
          checkVersion(ifMatch, kept.version, `The account ${id}`)
          if (Object.hasOwn(body as Body, 'id') && (body as Body)['id'] !== id) throw new Refusal('invalid_request', 'The id of an account can\'t be changed: the ledger knows it. Make another account.')
          const settings = read(merge(audited(kept.record.settings), body as Body, newAccount))
          return { account: { ...kept.record, settings }, audit: { who, what: 'account.change', id, before: audited(kept.record.settings), after: audited(settings) } }
        })
        return await answer(id)
      }
    },
    {
      method: 'POST', path: '/accounts/{id}/credits', name: 'creditAccount', summary: 'Adds money, once per reference.', takes: credit,
      async answer ({ id, body, who }) {
        if (!isDeclared(id) && directory.account(id) === undefined) throw unknown(id)
        const wanted = { ...body as Body }
        judgeCredit(wanted)
        const { amount_usd, reference } = wanted as unknown as { readonly amount_usd: string, readonly reference: string }
        const nanos = parseUsd(amount_usd)
        if (nanos === 0n) throw new Refusal('invalid_request', 'amount_usd must be more than 0. Nothing was changed.')
        let isNew = false
        await directory.change(async () => {
          const before = await store.balance(id)
          try {
            isNew = await store.credit(id, `credit:${id}:${reference}`, nanos)
          } catch (cause) {
            if (cause instanceof RangeError) throw new Refusal('invalid_request', 'amount_usd would make the balance more than 9,223,372,036 USD. Nothing was changed.', { cause })
            throw cause
          }
          return { audit: { who, what: isNew ? 'account.credit' : 'account.credit_repeated', id, reference, amount_usd: formatUsd(nanos), before: { balance_usd: formatUsd(before.balance) }, after: { balance_usd: formatUsd((await store.balance(id)).balance) } } }
        })
        const { balance } = await store.balance(id)
        return { status: isNew ? 201 : 200, body: { account: id, reference, amount_usd: formatUsd(nanos), credited: isNew, balance_usd: formatUsd(balance) } }
      }
    }
  ]

  function isDeclared (id: string): boolean {
    return config().accounts.some((account) => account.id === id)
  }

  /** @throws {Refusal} with everything that is wrong with it */
  function read (body: Body): AccountConfig {
    const wanted: Record<string, unknown> = { ...body }
    judgeAccount(wanted)
    wanted['name'] ??= wanted['id']
    return { ...wanted as unknown as AccountConfig, opening_balance_usd: '0' }
  }

  async function answer (id: string): Promise<ApiAnswer> {
    const version = directory.keptAccount(id)?.version
    return { status: 200, body: await view(id), ...(version !== undefined && { version }) }
  }

  async function view (id: string): Promise<Readonly<Record<string, unknown>>> {
    const declared = config().accounts.find((account) => account.id === id)
    const kept = directory.keptAccount(id)
    const settings = declared ?? kept?.record.settings
    if (settings === undefined) throw unknown(id)
    const { balance, held, open_holds } = await store.balance(id)
    return {
      ...audited(settings), declared: declared !== undefined, state: settings.suspended ? 'suspended' : 'active',
      ...(declared === undefined && { version: kept!.version, created_at: kept!.record.created_at }),
      balance_usd: formatUsd(balance), held_usd: formatUsd(held), available_usd: formatUsd(balance - held), open_holds
    }
  }
}

function unknown (id: string): Refusal {
  return new Refusal('not_found', `There is no account ${id}. GET /admin/v1/accounts lists all.`)
}

function readOnly (id: string): Refusal {
  return new Refusal('read_only', `The account ${id} is declared in gateway.yaml, and is read-only here but for credits. Change it there, under accounts:; it is live a second later.`)
}

function audited ({ opening_balance_usd: _opening, ...settings }: AccountConfig): Body {
  return settings
}
