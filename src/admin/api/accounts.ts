// Accounts in the admin API: made, changed, and their money booked. Of those of gateway.yaml only the money changes
// here.
import type { AccountConfig } from '../../config/config.ts'
import type { AccountRecord } from '../../accounts/directory.ts'
import { formatUsd, parseUsd } from '../../money/nanos.ts'
import type { JsonSchema } from '../../config/plugin-descriptor.ts'
import type { Booked, Booking, BookingKind } from '../../store/store.ts'
import { type ApiAnswer, type ApiParts, checkVersion, type Operation, pageOf, readQuery } from './operation.ts'
import { Refusal } from './refusal.ts'
import { accountPatch, credit, debit, judge, merge, newAccount, refund } from './schemas.ts'

type Body = Readonly<Record<string, unknown>>

/** What an answer says of a booking that was new. */
const DONE: Readonly<Record<BookingKind, string>> = { credit: 'credited', refund: 'refunded', debit: 'debited' }

export function accountOperations ({ services: { store, directory, now }, config }: ApiParts): readonly Operation[] {
  const judgeAccount = judge(newAccount)

  return [
    {
      method: 'GET',
      path: '/accounts',
      name: 'listAccounts',
      summary: 'All accounts, those of gateway.yaml too, by id.',
      query: ['after', 'limit'],
      async answer ({ query }) {
        const { rows, next } = pageOf([...config().accounts, ...directory.keptAccounts()],
          readQuery(query, ['after', 'limit']))
        return { status: 200, body: { data: await Promise.all(rows.map(async ({ id }) => await view(id))), next } }
      }
    },
    {
      method: 'POST',
      path: '/accounts',
      name: 'createAccount',
      summary: 'Makes an account with a balance of nothing.',
      takes: newAccount,
      async answer ({ body, who }) {
        const settings = read(body as Body)
        const { id } = settings
        await directory.change(() => {
          if (isDeclared(id)) throw readOnly(id)
          if (directory.keptAccount(id) !== undefined) {
            throw new Refusal('already_exists',
              `There is an account ${id} already. Choose another id, or change that one.`)
          }
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
      method: 'PATCH',
      path: '/accounts/{id}',
      name: 'changeAccount',
      summary:
        'Changes some settings, such as suspended; null sets one back to the standard. Holds from the next request on.',
      takes: accountPatch,
      async answer ({ id, body, ifMatch, who }) {
        await directory.change(() => {
          if (isDeclared(id)) throw readOnly(id)
          const kept = directory.keptAccount(id)
          if (kept === undefined) throw unknown(id)
          checkVersion(ifMatch, kept.version, `The account ${id}`)
          if (Object.hasOwn(body as Body, 'id') && (body as Body)['id'] !== id) {
            throw new Refusal('invalid_request',
              'The id of an account can\'t be changed: the ledger knows it. Make another account.')
          }
          const settings = read(merge(audited(kept.record.settings), body as Body, newAccount))
          return { account: { ...kept.record, settings },
            audit: { who, what: 'account.change', id, before: audited(kept.record.settings),
              after: audited(settings) } }
        })
        return await answer(id)
      }
    },
    booking('credit', { path: '/accounts/{id}/credits', name: 'creditAccount',
      summary: 'Adds money, once per reference.', takes: credit }),
    booking('refund', { path: '/accounts/{id}/refunds', name: 'refundAccount',
      summary: 'Gives money back, once per reference. What keys have spent, and their limits, stay as they are.',
      takes: refund }),
    booking('debit', { path: '/accounts/{id}/debits', name: 'debitAccount',
      summary: 'Takes money, once per reference: at most what is available, beside what open requests hold.',
      takes: debit })
  ]

  function booking (
    kind: BookingKind,
    what: Pick<Operation, 'path' | 'name' | 'summary'> & { readonly takes: JsonSchema }
  ): Operation {
    const judgeBooking = judge(what.takes)
    return {
      ...what, method: 'POST',
      async answer ({ id, body, who }) {
        if (!isDeclared(id) && directory.account(id) === undefined) throw unknown(id)
        const wanted = { ...body as Body }
        judgeBooking(wanted)
        const { amount_usd, reference, ...more } = wanted as unknown as { readonly amount_usd: string,
          readonly reference: string, readonly reason?: string }
        const nanos = parseUsd(amount_usd)
        if (nanos === 0n) throw new Refusal('invalid_request', 'amount_usd must be more than 0. Nothing was changed.')
        const said = { reference, amount_usd: formatUsd(nanos), ...more }
        let isNew = false
        await directory.change(async () => {
          const before = await store.balance(id)
          isNew = await book({ kind, account: id, reference: `${kind}:${id}:${reference}`, nanos, ...more })
          return {
            audit: { who, what: `account.${kind}${isNew ? '' : '_repeated'}`, id, ...said,
              before: { balance_usd: formatUsd(before.balance) },
              after: { balance_usd: formatUsd((await store.balance(id)).balance) } }
          }
        })
        const { balance } = await store.balance(id)
        return { status: isNew ? 201 : 200,
          body: { account: id, ...said, [DONE[kind]]: isNew, balance_usd: formatUsd(balance) } }
      }
    }
  }

  /** @returns whether the reference is new @throws {Refusal} the balance does not allow it */
  async function book (wanted: Booking): Promise<boolean> {
    let booked: Booked
    try {
      booked = await store.book(wanted)
    } catch (cause) {
      if (cause instanceof RangeError) {
        throw new Refusal('invalid_request',
          'amount_usd would make the balance more than 9,223,372,036 USD. Nothing was changed.', { cause })
      }
      throw cause
    }
    if (booked === 'short') {
      const { balance, held } = await store.balance(wanted.account)
      throw new Refusal(
        'insufficient_balance',
        `The account ${wanted.account} has a balance of $${formatUsd(balance)}, of which open requests hold ` +
        `$${formatUsd(held)}: $${formatUsd(wanted.nanos)} can't be taken. Nothing was changed.`
      )
    }
    return booked === 'new'
  }

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
  return new Refusal('read_only',
    `The account ${id} is declared in gateway.yaml, and is read-only here but for its money. Change it there, under ` +
    'accounts:; it is live a second later.')
}

function audited ({ opening_balance_usd: _opening, ...settings }: AccountConfig): Body {
  return settings
}
