// Budgets that this process has leased from the balances of accounts that it serves, so that it can go on serving them
// while Redis is away. Redis keeps a budget like a request's hold, so no other process can spend it; charges to it
// reach Redis when that is back.
import type { Nanos } from '../../money/nanos.ts'
import type { HoldRequest, HoldResult } from '../store.ts'
import { ASIDE_MS } from './lua/account.ts'
import { eachOf, type Space } from './keyspace.ts'

/** A budget is given back when its account has made no request for so long. */
const IDLE_MS = 60_000

interface Lease {
  left: Nanos
  /** as far as is known, Redis has set a budget aside for this process */
  isSet: boolean
  /** end of the lease, by a steady clock */
  until: number
  usedAt: number
  /** open holds that were taken from it */
  open: number
}

export class BudgetLease {
  readonly #space: Space
  readonly #owner: string
  readonly #nanos: Nanos
  readonly #now: () => number
  readonly #purses = new Map<string, Lease>()

  /**
   * @param nanos budget of each account
   * @param now a steady clock
   */
  constructor (space: Space, owner: string, nanos: Nanos, now: () => number) {
    this.#space = space
    this.#owner = owner
    this.#nanos = nanos
    this.#now = now
  }

  /** Id of the budget's hold in Redis, in each account. */
  get id (): string {
    return `aside ${this.#owner}`
  }

  /** Notes a request of the account: from the next renewal on a budget is leased for it. */
  note (account: string): void {
    const purse = this.#purses.get(account)
    if (purse === undefined) {
      this.#purses.set(account, { left: 0n, isSet: false, until: 0, usedAt: this.#now(), open: 0 })
    } else { purse.usedAt = this.#now() }
  }

  has (account: string): boolean {
    return this.#purses.get(account)?.isSet === true
  }

  /**
   * Takes a hold from the budget. Undefined: the budget is too small or its lease is over, or the key has limits: what
   * it has spent at other processes is unknown.
   */
  take (
    { account, nanos, least = nanos, usage_limit: ever, usage_limit_day: today, usage_limit_month: month }: HoldRequest
  ): HoldResult | undefined {
    const purse = this.#purses.get(account)
    if (
      purse === undefined || this.#now() >= purse.until || ever !== undefined || today !== undefined ||
      month !== undefined
    ) return undefined
    if (purse.left < least) return undefined
    const taken = nanos < purse.left ? nanos : purse.left
    purse.left -= taken
    purse.open++
    return { kind: 'held', nanos: taken }
  }

  /** Undefined: the budget is too small, or its lease is over. */
  extend (account: string, held: Nanos, nanos: Nanos, least: Nanos): HoldResult | undefined {
    const purse = this.#purses.get(account)
    if (purse === undefined || this.#now() >= purse.until || purse.left < least) return undefined
    const more = nanos < purse.left ? nanos : purse.left
    purse.left -= more
    return { kind: 'held', nanos: held + more }
  }

  /** Ends a hold, of which `rest` was not charged. */
  end (account: string, rest: Nanos): void {
    const purse = this.#purses.get(account)
    if (purse === undefined) return
    purse.left += rest
    purse.open--
  }

  /** Renews the leases; for a Redis that has received all charges. @throws {AwayError} */
  async renew (): Promise<void> {
    const now = this.#now()
    await eachOf([...this.#purses], async ([account, purse]) => {
      if (purse.open > 0) return                              // Redis does not know the holds taken from it
      await this.#set(account, now - purse.usedAt < IDLE_MS ? this.#nanos : 0n)
    })
  }

  /** Gives the budget back for a hold that the rest of the balance does not cover. @throws {AwayError} */
  async giveBack (account: string): Promise<void> {
    if (this.#purses.get(account)?.open === 0) await this.#set(account, 0n)
  }

  /** Gives all budgets back at a clean end. @throws {AwayError} */
  async close (): Promise<void> {
    await eachOf([...this.#purses.keys()], async (account) => { await this.#set(account, 0n) })
  }

  async #set (account: string, nanos: Nanos): Promise<void> {
    const purse = this.#purses.get(account)!
    // Zero until Redis has answered: before that it is unknown what is set aside.
    const until = this.#now() + ASIDE_MS
    purse.left = 0n
    purse.isSet = nanos > 0n
    purse.left = BigInt(await this.#space.ask('setAside', account, this.id, `${nanos}`) as string)
    purse.isSet = purse.left > 0n
    purse.until = until
    if (nanos === 0n) this.#purses.delete(account)
  }
}
