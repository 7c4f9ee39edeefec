// Decides holds and charges by balances and usage limits, in memory; records nothing. Shared by the drivers whose
// decisions are made in this process. Every call runs to its end without waiting, and changes nothing before its last
// check: each is atomic.
import { IdTable } from '../../base/id-table.ts'
import { MOST_NANOS, type Nanos } from '../../money/nanos.ts'
import { isDay, monthOf } from '../../money/calendar.ts'
import type { Usage } from '../../money/usage.ts'
import { isOver, nameOf, oldestKept } from '../periods.ts'
import type { Balance, Booking, HoldRequest, HoldResult, KeyUsage, Settlement } from '../store.ts'
import { SettledRequests } from './settled.ts'

const BLOCK = 1024

/**
 * A total and what is held, as integers of 64 bits in a block of many: in fields each change would make a new BigInt, a
 * dozen with every request. A credit that would make one pass 2^63 - 1 is refused; see `beyond`.
 */
class Amounts {
  static #next = new BigInt64Array(BLOCK)
  static #used = 0
  readonly id: string
  readonly #block: BigInt64Array
  readonly #at: number

  constructor (id: string) {
    this.id = id
    if (Amounts.#used === BLOCK) {
      Amounts.#next = new BigInt64Array(BLOCK)
      Amounts.#used = 0
    }
    this.#block = Amounts.#next
    this.#at = Amounts.#used
    Amounts.#used += 2
  }

  get total (): Nanos {
    return this.#block[this.#at]!
  }

  set total (nanos: Nanos) {
    this.#block[this.#at] = nanos
  }

  get held (): Nanos {
    return this.#block[this.#at + 1]!
  }

  set held (nanos: Nanos) {
    this.#block[this.#at + 1] = nanos
  }
}

/** Its total is its balance, as far as that can be spent. */
class Account extends Amounts {
  /** credits announced and not yet recorded: they can't be spent */
  coming = 0n
  /** the sum of the credits that are recorded */
  credited = 0n
  /** the balance above 2^63 - 1: charges and debits that were undone behind a credit up to there */
  beyond = 0n
  open_holds = 0

  get balance (): Nanos {
    return this.beyond === 0n ? this.total : this.total + this.beyond
  }

  change (nanos: Nanos): void {
    if (nanos <= 0n && this.beyond === 0n) { this.total += nanos; return }
    const balance = this.balance + nanos
    this.total = smaller(balance, MOST_NANOS)
    this.beyond = balance - this.total
  }
}

/** What a key has spent in all, ever or in a period; its id is that of the key, or of the period. */
class Spending extends Amounts {}

class Key extends Spending {
  /** by id of the day or month */
  readonly periods = new Map<string, Spending>()
  /** of its last hold */
  purses: Purses | undefined
}

/** Whose money a request takes. */
export interface Purses {
  readonly account: Account
  readonly key: Key
  readonly day: Spending | undefined
  readonly month: Spending | undefined
}

interface Limit {
  readonly purse: Spending
  readonly nanos: Nanos
  /** absent: the limit in total */
  readonly period?: 'day' | 'month'
}

const NO_LIMITS: never[] = []

/** The money of a request. */
export interface Hold {
  readonly request_id: string
  readonly purses: Purses
  /** the key's limits, the longest period first */
  readonly limits: readonly Limit[]
  nanos: Nanos
  /** milliseconds of the steady clock: the last record of its progress, or the hold itself */
  recordedAt: number
  hasProgress: boolean
}

/** What a refund tells again of the settlement. */
export interface Terms {
  readonly purses: Purses
  readonly model: string
  readonly channel: string | undefined
  readonly price_version: string | undefined
}

/** A hold that became an entry. */
export interface Charge {
  readonly hold: Hold
  readonly terms: Terms
  nanos: Nanos
}

export class Books {
  readonly #accounts = new Map<string, Account>()
  readonly #keys = new Map<string, Key>()
  readonly #holds = new IdTable<Hold>()
  readonly #settled = new SettledRequests<Terms>()
  /** of the last charge: those of the next one are mostly the same */
  #terms: Terms | undefined

  get openHolds (): number {
    return this.#holds.size
  }

  balance (id: string): Balance {
    const { balance, held, open_holds } = this.#accounts.get(id) ?? { balance: 0n, held: 0n, open_holds: 0 }
    return { balance, held, open_holds }
  }

  credited (id: string): Nanos {
    return this.#accounts.get(id)?.credited ?? 0n
  }

  /** @param period a day or a month */
  keyUsage (id: string, period?: string): KeyUsage {
    const key = this.#keys.get(id)
    const { total: spent, held } = (period === undefined ? key : key?.periods.get(period)) ?? { total: 0n, held: 0n }
    return { spent, held }
  }

  /**
   * Begins a booking: a credit waits for `deposit`, a debit takes the money now.
   * @returns false: a debit of more than is available beside open holds; nothing has changed
   * @throws {RangeError} as `refuseBooking`, or the balance would pass 2^63 - 1 nano-dollars
   */
  announce (booking: Booking): boolean {
    refuseBooking(booking)
    const { kind, account: id, nanos } = booking
    const account = this.#account(id)
    if (kind === 'debit') {
      if (nanos > account.total - account.held) return false
      account.change(-nanos)
      return true
    }
    if (account.balance + account.coming + nanos > MOST_NANOS) {
      throw new RangeError(`the balance of ${id} would pass ${MOST_NANOS} nano-dollars`)
    }
    account.coming += nanos
    return true
  }

  /** Ends an announced booking that was recorded: a credit can be spent. */
  deposit ({ kind, account: id, nanos }: Booking): void {
    if (kind === 'debit') return
    const account = this.#account(id)
    account.coming -= nanos
    if (kind === 'credit') account.credited += nanos
    account.change(nanos)
  }

  /** Takes back an announced booking that could not be recorded. */
  withdraw ({ kind, account: id, nanos }: Booking): void {
    const account = this.#account(id)
    if (kind === 'debit') account.change(nanos)
    else account.coming -= nanos
  }

  /** @param at milliseconds of the steady clock, for `recordedAt` */
  hold (request: HoldRequest, at: number): HoldResult {
    const hold = this.#prepare(request, this.#account(request.account), at)
    const result = this.#judge(request, hold)
    if (result.kind === 'held') {
      hold.nanos = result.nanos
      this.#take(hold)
    }
    return result
  }

  /** The result that `hold` would have. Changes nothing. */
  wouldHold (request: HoldRequest): HoldResult {
    return this.#judge(request, this.#prepare(request, this.#account(request.account), 0))
  }

  /** @param hold the hold to be taken, of 0 so far */
  #judge (request: HoldRequest, hold: Hold): HoldResult {
    const { request_id: id, low_balance: low = 0n, least } = request
    const { account } = hold.purses
    let { nanos } = request
    refuseNegative(nanos)
    if (this.#holds.has(id) || this.#settled.has(id)) {
      throw new Error(`the request ${id} has a hold or a settlement already`)
    }
    if (least !== undefined && least > 0n) {
      let left = account.total
      for (const limit of hold.limits) left = smaller(left, limit.nanos - limit.purse.total)
      if (left >= least) nanos = smaller(nanos, left)
    }
    const refusal = refuse(hold, nanos, 0n, request.nanos)
    if (refusal !== undefined) return refusal
    // Money held, not the number of holds: a free request neither waits for others nor keeps others waiting.
    if (nanos > 0n && account.total < low && account.held > 0n) {
      return { kind: 'refused', by: 'low_balance', needed: nanos, available: account.total - account.held,
        held_by_others: account.held }
    }
    return { kind: 'held', nanos }
  }

  /** @throws {Error} there is no hold */
  extend (id: string, nanos: Nanos, least = nanos): HoldResult {
    refuseNegative(nanos)
    refuseNegative(least)
    const hold = this.#holds.get(id)
    if (hold === undefined) throw new Error(`the request ${id} has no hold to extend`)
    const room = roomFor(hold) - hold.nanos
    const more = least <= room ? smaller(nanos, room) : nanos
    const whole = hold.nanos + more
    const refusal = refuse(hold, whole, hold.nanos, whole)
    if (refusal !== undefined) return refusal
    hold.nanos = whole
    addHeld(hold.purses, more)
    return { kind: 'held', nanos: whole }
  }

  /**
   * Shrinks a hold to `nanos`; the rest is free again.
   * @returns the hold's day
   * @throws {Error} there is no hold, or a smaller one
   */
  lower (id: string, nanos: Nanos): string | undefined {
    refuseNegative(nanos)
    const hold = this.#holds.get(id)
    if (hold === undefined || hold.nanos < nanos) {
      throw new Error(`the request ${id} has no hold of ${nanos} nano-dollars`)
    }
    addHeld(hold.purses, nanos - hold.nanos)
    hold.nanos = nanos
    return hold.purses.day?.id
  }

  /** Takes a hold of an earlier process again, unchecked: it was within the limits when it was taken. */
  restore (
    { request_id: id, account, key, nanos, day }: Pick<HoldRequest, 'request_id' | 'account' | 'key' | 'nanos' | 'day'>
  ): void {
    const hold = this.#prepare({ request_id: id, account, key, nanos, ...(day !== undefined && { day }) },
      this.#account(account), 0)
    hold.nanos = nanos
    this.#take(hold)
  }

  dayOf (id: string): string | undefined {
    return this.#holds.get(id)?.purses.day?.id
  }

  hasHold (id: string): boolean {
    return this.#holds.has(id)
  }

  /**
   * Charges at most what was held. Undefined: it was settled before, and `chargeOf` has the amount.
   * @throws {Error} there is neither a hold nor an earlier settlement
   */
  settle (settlement: Settlement): Charge | undefined {
    const { request_id: id, nanos, usage } = settlement
    refuseAmount(nanos)
    refuseUsage(usage)
    const hold = this.#holds.delete(id)
    if (hold === undefined) {
      if (this.#settled.has(id)) return undefined
      throw new Error(`the request ${id} has no hold to settle`)
    }
    this.#noteEnd(hold)
    const charge = this.#chargeFor(hold, settlement)
    this.#settled.add(id, charge.nanos, charge.terms)
    addSpent(hold.purses, charge.nanos)
    return charge
  }

  /** A recent charge that was not given back. */
  recentCharge (id: string): Charge | undefined {
    const terms = this.#settled.termsOf(id)
    return terms === undefined ? undefined
      : { hold: holdOf(id, terms.purses, NO_LIMITS, 0), terms, nanos: this.#settled.nanosOf(id)! }
  }

  /** Refunds a charge for good: a repeated settlement changes nothing. */
  giveBack ({ hold, nanos }: Charge): void {
    this.remember(hold.request_id, 0n)
    addSpent(hold.purses, -nanos)
  }

  /** The charge that `settle` would make now. Undefined: there is no hold. */
  previewCharge (settlement: Settlement): Charge | undefined {
    const { request_id: id, nanos, usage } = settlement
    refuseAmount(nanos)
    refuseUsage(usage)
    const hold = this.#holds.get(id)
    return hold === undefined ? undefined : this.#chargeFor(hold, settlement)
  }

  /**
   * Undoes a charge that could not be recorded: balance and usage are as before it, and the hold is open again. The
   * hold is as large as the charge, not as before: the rest was free meanwhile and may be held by other requests, and
   * no balance may go below zero.
   */
  revoke ({ hold, nanos }: Charge): void {
    this.#settled.remove(hold.request_id)
    addSpent(hold.purses, -nanos)
    hold.nanos = nanos
    this.#take(hold)
  }

  /** Replaces a charge by the amount that the ledger has already for this request: the first one counts. */
  correct (charge: Charge, nanos: Nanos): void {
    addSpent(charge.hold.purses, -charge.nanos)
    charge.nanos = nanos
    this.#settled.amend(charge.hold.request_id, nanos)
  }

  /** Undefined: there was no hold. */
  release (id: string): Hold | undefined {
    const hold = this.#holds.delete(id)
    if (hold !== undefined) this.#noteEnd(hold)
    return hold
  }

  chargeOf (id: string): Nanos | undefined {
    return this.#settled.nanosOf(id)
  }

  remember (id: string, charged: Nanos): void {
    this.#settled.remember(id, charged)
  }

  /** Sets a balance, or what a key has spent, to the recorded sum at the start. */
  load (of: 'account' | 'key', id: string, nanos: Nanos): void {
    if (of === 'account') this.#account(id).total = nanos
    else this.#key(id).total = nanos
  }

  loadCredited (id: string, nanos: Nanos): void {
    this.#account(id).credited = nanos
  }

  loadPeriod (period: string, key: string, nanos: Nanos): void {
    this.#purse(this.#key(key), period).total = nanos
  }

  /** A copy, by account. */
  balances (): ReadonlyMap<string, Nanos> {
    return new Map([...this.#accounts.values()].map(({ id, balance }) => [id, balance]))
  }

  /** A copy, by key. */
  usages (): ReadonlyMap<string, Nanos> {
    return new Map([...this.#keys.values()].map(({ id, total }) => [id, total]))
  }

  /** A copy, as `Sums.periods`. */
  periods (): ReadonlyMap<string, Nanos> {
    return new Map(
      [...this.#keys.values()].flatMap(({ id: key, periods }) =>
        [...periods.values()].map(({ id, total }) => [nameOf(id, key), total])
      )
    )
  }

  #take (hold: Hold): void {
    this.#holds.set(hold.request_id, hold)
    hold.purses.account.open_holds++
    addHeld(hold.purses, hold.nanos)
  }

  #noteEnd ({ purses, nanos }: Hold): void {
    purses.account.open_holds--
    addHeld(purses, -nanos)
  }

  /** At most what is held. */
  #chargeFor (hold: Hold, { nanos, model, channel, price_version: version }: Settlement): Charge {
    let terms = this.#terms
    const isSame = terms?.purses === hold.purses && terms.model === model && terms.channel === channel &&
      terms.price_version === version
    if (!isSame) terms = this.#terms = { purses: hold.purses, model, channel, price_version: version }
    return { hold, terms: terms!, nanos: smaller(nanos, hold.nanos) }
  }

  /**
   * A hold of 0 and its limits. @throws {RangeError} the day is not a calendar day, or a limit per day or month lacks
   * one
   */
  #prepare (
    { request_id, key: id, usage_limit: ever, day: date, usage_limit_day: ofDay,
      usage_limit_month: ofMonth }: HoldRequest,
    account: Account,
    at: number
  ): Hold {
    const purses = this.#pursesOf(account, this.#key(id), date)
    if (date === undefined && (ofDay !== undefined || ofMonth !== undefined)) {
      throw new RangeError(`no calendar day: ${date}`)
    }
    const isLimited = ever !== undefined || ofMonth !== undefined || ofDay !== undefined
    const limits: Limit[] = isLimited ? [] : NO_LIMITS
    if (ever !== undefined) limits.push({ purse: purses.key, nanos: ever })
    if (ofMonth !== undefined) limits.push({ purse: purses.month!, nanos: ofMonth, period: 'month' })
    if (ofDay !== undefined) limits.push({ purse: purses.day!, nanos: ofDay, period: 'day' })
    return holdOf(request_id, purses, limits, at)
  }

  /** @throws {RangeError} the day is not a calendar day */
  #pursesOf (account: Account, key: Key, date: string | undefined): Purses {
    const { purses } = key
    // Those of the last hold are not forgotten: only a hold of another day forgets some, and its own take their place.
    if (purses?.account === account && purses.day?.id === date) return purses
    if (date !== undefined && !isDay(date)) throw new RangeError(`no calendar day: ${date}`)
    return key.purses = { account, key, day: date === undefined ? undefined : this.#purse(key, date),
      month: date === undefined ? undefined : this.#purse(key, monthOf(date)) }
  }

  #account (id: string): Account {
    let account = this.#accounts.get(id)
    if (account === undefined) this.#accounts.set(id, account = new Account(id))
    return account
  }

  #key (id: string): Key {
    let key = this.#keys.get(id)
    if (key === undefined) this.#keys.set(id, key = new Key(id))
    return key
  }

  #purse ({ periods }: Key, period: string): Spending {
    let purse = periods.get(period)
    if (purse !== undefined) return purse
    if (isDay(period)) {
      const oldest = oldestKept(period)
      for (const { id, held } of periods.values()) if (isOver(id, oldest) && held === 0n) periods.delete(id)
    }
    periods.set(period, purse = new Spending(period))
    return purse
  }
}

/**
 * Undefined: `nanos` can be held.
 * @param own held by the same request already
 * @param needed amount that the refusal names
 */
function refuse ({ purses, limits }: Hold, nanos: Nanos, own: Nanos, needed: Nanos): HoldResult | undefined {
  const { account, key } = purses
  const heldOfAccount = account.held - own
  if (nanos > account.total) return refusal('balance', account.total, heldOfAccount, needed)
  for (const limit of limits) {
    if (nanos > leftOf(limit)) {
      return { ...refusal('usage_limit', leftOf(limit), limit.purse.held - own, needed), ...periodIn(limit) }
    }
  }
  if (nanos > account.total - heldOfAccount) return refusal('balance', account.total, heldOfAccount, nanos)
  for (const limit of limits) {
    const held = limit.purse.held - own
    if (nanos > leftOf(limit) - held) {
      return { ...refusal('usage_limit', leftOf(limit), held, nanos), ...periodIn(limit) }
    }
  }
  if (key.total + key.held - own + nanos > MOST_NANOS) {
    throw new RangeError(`the usage of ${key.id} would pass ${MOST_NANOS} nano-dollars`)
  }
}

/** Most that this hold can grow to, what it holds already included. */
function roomFor ({ purses: { account }, limits, nanos }: Hold): Nanos {
  let room = account.total - account.held + nanos
  for (const limit of limits) room = smaller(room, leftOf(limit) - limit.purse.held + nanos)
  return room
}

function leftOf ({ purse, nanos }: Limit): Nanos {
  return nanos - purse.total
}

function refusal (by: 'balance' | 'usage_limit', total: Nanos, held: Nanos, needed: Nanos): HoldResult {
  return { kind: 'refused', by, needed, available: total - held, held_by_others: held }
}

function periodIn ({ period }: Limit): { readonly period?: 'day' | 'month' } {
  return period === undefined ? {} : { period }
}

function addHeld ({ account, key, day, month }: Purses, nanos: Nanos): void {
  account.held += nanos
  key.held += nanos
  if (day !== undefined) day.held += nanos
  if (month !== undefined) month.held += nanos
}

/** @param nanos negative: a refund */
function addSpent ({ account, key, day, month }: Purses, nanos: Nanos): void {
  account.change(-nanos)
  key.total += nanos
  if (day !== undefined) day.total += nanos
  if (month !== undefined) month.total += nanos
}

function smaller (a: Nanos, b: Nanos): Nanos {
  return a < b ? a : b
}

/** A hold of 0. */
function holdOf (id: string, purses: Purses, limits: readonly Limit[], at: number): Hold {
  return { request_id: id, purses, limits, nanos: 0n, recordedAt: at, hasProgress: false }
}

export function refuseNegative (nanos: Nanos): void {
  if (nanos < 0n) throw new RangeError(`a negative amount: ${nanos} nano-dollars`)
}

export function refuseAmount (nanos: Nanos): void {
  refuseNegative(nanos)
  if (nanos > MOST_NANOS) throw new RangeError(`more than can be counted: ${nanos} nano-dollars`)
}

/** The signed change that a booking makes to the balance. */
export function changeOf ({ kind, nanos }: Pick<Booking, 'kind' | 'nanos'>): Nanos {
  return kind === 'debit' ? -nanos : nanos
}

/** @throws {RangeError} an amount out of range, or a text with an unpaired surrogate */
export function refuseBooking ({ account, reference, nanos, reason = '' }: Booking): void {
  refuseAmount(nanos)
  // UTF-8 encodes every unpaired surrogate alike: of two references that differ only there the second would be refused.
  if (![account, reference, reason].every((text) => text.isWellFormed())) {
    throw new RangeError('half a character can\'t be written down')
  }
}

/** Refuses counts out of range: one entry that can't be written would fail the whole batch. */
export function refuseUsage (
  { input, cache_read: read, cache_write_5m: write5m, cache_write_1h: write1h, output }: Usage
): void {
  const isCount = Number.isSafeInteger
  if (isCount(input) && isCount(read) && isCount(write5m) && isCount(write1h) && isCount(output)) return
  throw new RangeError('usage is counted in whole numbers')
}
