// Accounts in the admin API: created, changed, and their money booked. Of those of gateway.yaml only the money changes
// here.
import type { AccountConfig } from '../../config/config.ts'
import type { AccountRecord, Directory } from '../../accounts/directory.ts'
import { isRequestId } from '../../base/request-id.ts'
import { formatUsd, type Nanos, parseUsd } from '../../money/nanos.ts'
import type { JsonSchema } from '../../config/plugin-descriptor.ts'
import type { Rollups } from '../../store/rollups.ts'
import type { Booked, Booking, BookingKind, Entry, Store } from '../../store/store.ts'
import {
  type ApiAnswer, type ApiParts, type Call, checkVersion, isTagged, type Operation, pageOf, readQuery
} from './operation.ts'
import { accountAnswer, booked, declaredAt, page } from './answers.ts'
import { closed, Refusal } from './refusal.ts'
import { accountPatch, credit, debit, judge, merge, newAccount, refund } from './schemas.ts'

type Body = Readonly<Record<string, unknown>>

const LIST = ['tag', 'after', 'limit']

/** The result of a new booking, in the answer. */
const DONE: Readonly<Record<BookingKind, string>> = { credit: 'credited', refund: 'refunded', debit: 'debited' }

export function accountOperations (parts: ApiParts): readonly Operation[] {
  const accounts = new AccountApi(parts)
  return [
    {
      method: 'GET',
      path: '/accounts',
      name: 'listAccounts',
      isCostly: true,
      summary: 'All accounts, those of gateway.yaml too, by id.',
      query: LIST,
      gives: page(accountAnswer),
      answer: (call) => accounts.list(call)
    },
    {
      method: 'POST',
      path: '/accounts',
      name: 'createAccount',
      summary: 'Makes an account with a balance of nothing.',
      takes: newAccount,
      gives: accountAnswer,
      statuses: [201],
      refuses: ['already_exists'],
      isVersioned: true,
      answer: (call) => accounts.create(call)
    },
    {
      method: 'GET', path: '/accounts/{id}', name: 'getAccount', summary: 'One account and its balance.',
      gives: accountAnswer,
      isVersioned: true,
      answer: (call) => accounts.get(call)
    },
    {
      method: 'PATCH',
      path: '/accounts/{id}',
      name: 'changeAccount',
      summary:
        'Changes some settings, such as suspended; null sets one back to the standard. Holds from the next request on.',
      takes: accountPatch,
      gives: accountAnswer,
      refuses: ['read_only'],
      isVersioned: true,
      takesVersion: true,
      answer: (call) => accounts.change(call)
    },
    {
      method: 'POST',
      path: '/accounts/{id}/close',
      isGrave: true,
      name: 'closeAccount',
      summary: 'Ends an account: no requests, no new keys, no credits. Its balance stays, to be refunded or debited.',
      gives: accountAnswer,
      refuses: ['read_only'],
      isVersioned: true,
      takesVersion: true,
      answer: (call) => accounts.close(call, true)
    },
    {
      method: 'POST',
      path: '/accounts/{id}/reopen',
      name: 'reopenAccount',
      summary: 'Opens a closed account again. Holds from the next request on.',
      needs: 'owner',
      gives: accountAnswer,
      refuses: ['read_only'],
      isVersioned: true,
      takesVersion: true,
      answer: (call) => accounts.close(call, false)
    },
    booking('credit', { path: '/accounts/{id}/credits', name: 'creditAccount',
      summary: 'Adds money, once per reference.', takes: credit, gives: booked('Credited', DONE.credit),
      refuses: ['already_exists', 'account_closed'] }),
    booking('refund', { path: '/accounts/{id}/refunds', name: 'refundAccount',
      summary: 'Gives money back, once per reference: at most what the request was charged whose id the reference is, ' +
        'and at most what the account has paid in all. What keys have spent, and their limits, stay as they are.',
      takes: refund, gives: booked('Refunded', DONE.refund), refuses: ['already_exists', 'above_charge'] }),
    booking('debit', { path: '/accounts/{id}/debits', name: 'debitAccount',
      summary: 'Takes money, once per reference: at most what is available, beside what open requests hold.',
      takes: debit, gives: booked('Debited', DONE.debit), refuses: ['already_exists', 'insufficient_balance'] })
  ]

  function booking (
    kind: BookingKind,
    what: Pick<Operation, 'path' | 'name' | 'summary' | 'gives' | 'refuses'> & { readonly takes: JsonSchema }
  ): Operation {
    const judgeBooking = judge(what.takes)
    return { ...what, method: 'POST', needs: 'owner', isGrave: true, statuses: [200, 201],
      answer: (call) => accounts.book(call, kind, judgeBooking) }
  }
}

/** A method for each operation; one for the three that book money. */
class AccountApi {
  readonly #store: Store & Rollups
  readonly #directory: Directory
  readonly #now: () => number
  readonly #config: ApiParts['config']
  readonly #placeOf: ApiParts['placeOf']
  readonly #judgeAccount = judge(newAccount)

  constructor ({ services: { store, directory, now }, config, placeOf }: ApiParts) {
    this.#store = store
    this.#directory = directory
    this.#now = now
    this.#config = config
    this.#placeOf = placeOf
  }

  async list ({ query }: Call): Promise<ApiAnswer> {
    const read = readQuery(query, LIST)
    const all = [...this.#config().accounts, ...this.#directory.keptAccounts().map(({ record }) => record.settings)]
    const { rows, next } = pageOf(all.filter((account) => isTagged(account, read.get('tag'))), read)
    return { status: 200, body: { data: await Promise.all(rows.map(async ({ id }) => await this.#view(id))), next } }
  }

  async get ({ id }: Call): Promise<ApiAnswer> {
    return await this.#answer(id)
  }

  async create ({ body, by }: Call): Promise<ApiAnswer> {
    const settings = this.#read(body as Body)
    const { id } = settings
    await this.#directory.change(() => {
      if (this.#isDeclared(id)) throw readOnly(id)
      if (this.#directory.keptAccount(id) !== undefined) {
        throw new Refusal('already_exists',
          `There is an account ${id} already. Choose another id, or change that one.`)
      }
      const account: AccountRecord = { settings, created_at: new Date(this.#now()).toISOString() }
      return { account, audit: { ...by, what: 'account.create', id, before: null, after: audited(settings) } }
    })
    return { ...await this.#answer(id), status: 201 }
  }

  async change (call: Call): Promise<ApiAnswer> {
    const { id, body } = call
    return await this.#update(call, 'account.change', ({ closed: isClosed, ...before }) => {
      if (Object.hasOwn(body as Body, 'id') && (body as Body)['id'] !== id) {
        throw new Refusal('invalid_request',
          'The id of an account can\'t be changed: the ledger knows it. Make another account.')
      }
      const settings = this.#read(merge(audited(before), body as Body, newAccount))
      return { ...settings, ...(isClosed === true && { closed: true }) }
    })
  }

  async close (call: Call, isClosed: boolean): Promise<ApiAnswer> {
    return await this.#update(call, isClosed ? 'account.close' : 'account.reopen', ({ closed: _closed, ...open }) => ({
      ...open, ...(isClosed && { closed: true })
    }))
  }

  async #update (
    { id, ifMatch, by }: Call,
    what: string,
    decide: (before: AccountConfig) => AccountConfig
  ): Promise<ApiAnswer> {
    await this.#directory.change(() => {
      if (this.#isDeclared(id)) throw readOnly(id)
      const kept = this.#directory.keptAccount(id)
      if (kept === undefined) throw unknown(id)
      checkVersion(ifMatch, kept.version, `The account ${id}`)
      const settings = decide(kept.record.settings)
      return { account: { ...kept.record, settings },
        audit: { ...by, what, id, before: audited(kept.record.settings), after: audited(settings) } }
    })
    return await this.#answer(id)
  }

  async book ({ id, body, by }: Call, kind: BookingKind, judgeBooking: (body: unknown) => void): Promise<ApiAnswer> {
    if (this.#find(id) === undefined) throw unknown(id)
    const wanted = { ...body as Body }
    judgeBooking(wanted)
    const { amount_usd, reference, ...more } = wanted as unknown as { readonly amount_usd: string,
      readonly reference: string, readonly reason?: string }
    const nanos = parseUsd(amount_usd)
    if (nanos === 0n) throw new Refusal('invalid_request', 'amount_usd must be more than 0. Nothing was changed.')
    const said = { reference, amount_usd: formatUsd(nanos), ...more }
    const full = `${kind}:${id}:${reference}`
    let isNew = false
    await this.#directory.change(async () => {
      const known = await this.#store.amountOf(kind, full)
      // A payment that is told of again, though the account was closed meanwhile, was credited.
      if (kind === 'credit' && this.#find(id)?.closed === true && known === undefined) {
        throw closed(id, 'gets no credit')
      }
      if (kind === 'refund' && known === undefined) await this.#checkRefund(id, reference, nanos)
      const before = await this.#store.balance(id)
      isNew = await this.#bookOnce({ kind, account: id, reference: full, nanos, ...more })
      if (!isNew && this.#mayBeOthers(id, reference) && !await this.#hasBooked(id, full)) {
        throw new Refusal('already_exists', `${JSON.stringify(full)} stands in the ledger for another account, whose ` +
          'id and reference read the same together. Choose another reference. Nothing was changed.')
      }
      if (!isNew) this.#checkSame(kind, reference, nanos, known ?? await this.#store.amountOf(kind, full))
      return {
        audit: { ...by, what: `account.${kind}${isNew ? '' : '_repeated'}`, id, ...said,
          before: { balance_usd: formatUsd(before.balance) },
          after: { balance_usd: formatUsd((await this.#store.balance(id)).balance) } }
      }
    })
    const { balance } = await this.#store.balance(id)
    return { status: isNew ? 201 : 200,
      body: { account: id, ...said, [DONE[kind]]: isNew, balance_usd: formatUsd(balance) } }
  }

  /** A repetition changes nothing and is no mistake, unless its amount is another one. @throws {Refusal} */
  #checkSame (kind: BookingKind, reference: string, nanos: Nanos, known: Nanos | undefined): void {
    if (known === undefined || known === nanos) return
    throw new Refusal('already_exists', `${JSON.stringify(reference)} was ${DONE[kind]} before with ` +
      `$${formatUsd(known)}, not with $${formatUsd(nanos)}. Choose another reference for another ${kind}. Nothing was ` +
      'changed.')
  }

  /**
   * A refund gives back what was paid, and no more (src/README.md#refund-paid). Charges that end meanwhile only make
   * it more.
   * @throws {Refusal}
   */
  async #checkRefund (id: string, reference: string, nanos: Nanos): Promise<void> {
    if (isRequestId(reference)) {
      const charged = await this.#chargeOf(id, reference)
      if (nanos > charged) {
        throw new Refusal('above_charge', `The account ${id} was charged $${formatUsd(charged)} for the request ` +
          `${reference}: at most that can be refunded under its id. Nothing was changed.`)
      }
    }
    const credited = await this.#store.credited(id)
    if (credited === undefined) return
    const { balance } = await this.#store.balance(id)
    const paid = credited > balance ? credited - balance : 0n
    if (nanos <= paid) return
    throw new Refusal('above_charge', `The account ${id} has paid $${formatUsd(paid)} in all, less what was given back: ` +
      'at most that can be refunded. To give it more, credit it. Nothing was changed.')
  }

  /** What an account was charged for a request, less what the gateway gave back; 0: nothing. */
  async #chargeOf (account: string, requestId: string): Promise<Nanos> {
    let charged = 0n
    for (let before: string | undefined; ;) {
      const { entries, next } = await this.#store.newest({ account, reference: requestId, limit: 100,
        ...(before !== undefined && { before }) })
      charged += chargeIn(entries)
      if (next === undefined) return charged
      before = next
    }
  }

  /** Whether another account has the same reference in the ledger for one of its own: b:x of a, and x of a:b. */
  #mayBeOthers (id: string, reference: string): boolean {
    const parts = `${id}:${reference}`.split(':')
    return parts.map((_, i) => parts.slice(0, i).join(':')).some((one) => one !== id && this.#find(one) !== undefined)
  }

  async #hasBooked (account: string, reference: string): Promise<boolean> {
    for (let before: string | undefined; ;) {
      const { entries, next } = await this.#store.newest({ account, reference, limit: 1,
        ...(before !== undefined && { before }) })
      if (entries.length > 0 || next === undefined) return entries.length > 0
      before = next
    }
  }

  /** @returns whether the reference is new @throws {Refusal} the balance does not allow it */
  async #bookOnce (wanted: Booking): Promise<boolean> {
    let booked: Booked
    try {
      booked = await this.#store.book(wanted)
    } catch (cause) {
      if (cause instanceof RangeError) {
        throw new Refusal('invalid_request',
          'amount_usd would make the balance more than 9,223,372,036 USD. Nothing was changed.', { cause })
      }
      throw cause
    }
    if (booked === 'short') {
      const { balance, held } = await this.#store.balance(wanted.account)
      throw new Refusal(
        'insufficient_balance',
        `The account ${wanted.account} has a balance of $${formatUsd(balance)}, of which open requests hold ` +
        `$${formatUsd(held)}: $${formatUsd(wanted.nanos)} can't be taken. Nothing was changed.`
      )
    }
    return booked === 'new'
  }

  #find (id: string): AccountConfig | undefined {
    return this.#config().accounts.find((account) => account.id === id) ?? this.#directory.account(id)
  }

  #isDeclared (id: string): boolean {
    return this.#config().accounts.some((account) => account.id === id)
  }

  /** @throws {Refusal} with all mistakes */
  #read (body: Body): AccountConfig {
    const wanted: Record<string, unknown> = { ...body }
    this.#judgeAccount(wanted)
    wanted['name'] ??= wanted['id']
    return { ...wanted as unknown as AccountConfig, opening_balance_usd: '0' }
  }

  async #answer (id: string): Promise<ApiAnswer> {
    const version = this.#directory.keptAccount(id)?.version
    return { status: 200, body: await this.#view(id), ...(version !== undefined && { version }) }
  }

  async #view (id: string): Promise<Readonly<Record<string, unknown>>> {
    const settings = this.#find(id)
    if (settings === undefined) throw unknown(id)
    const kept = this.#isDeclared(id) ? undefined : this.#directory.keptAccount(id)
    const { closed: isClosed, ...shown } = audited(settings)
    const { balance, held, open_holds } = await this.#store.balance(id)
    return {
      ...shown, tags: settings.tags ?? [], declared: kept === undefined,
      ...(kept === undefined && declaredAt(this.#placeOf?.('accounts', id))),
      state: isClosed === true ? 'closed' : settings.suspended ? 'suspended' : 'active',
      ...(kept !== undefined && { version: kept.version, created_at: kept.record.created_at }),
      balance_usd: formatUsd(balance), held_usd: formatUsd(held), available_usd: formatUsd(balance - held), open_holds
    }
  }
}

/** Of entries of one request. */
function chargeIn (entries: readonly Entry[]): Nanos {
  return entries.reduce((sum, { kind, nanos }) => kind === 'settle' || kind === 'adjust' ? sum - nanos : sum, 0n)
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
