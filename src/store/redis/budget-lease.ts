// What this process has set aside of accounts that it serves, so that it can go on serving them while Redis is away.
// Redis holds it like a request's hold, and nobody else can spend it; what is spent of it is charged when Redis is
// back.
import type { Nanos } from '../../money/nanos.ts'
import type { HoldRequest, HoldResult } from '../store.ts'
import { ASIDE_MS } from './lua/account.ts'
import { eachOf, type Space } from './keyspace.ts'

/** An account that nobody has asked for so long gets it back. */
const IDLE_MS = 60_000

interface Lease {
  left: Nanos
  /** as far as is known, Redis holds something of it for us */
  isSet: boolean
  /** of a clock that never goes back */
  until: number
  usedAt: number
  /** holds that were taken from it, and that are not over */
  open: number
}

export class Aside {
  readonly #space: Space
  readonly #owner: string
  readonly #nanos: Nanos
  readonly #now: () => number
  readonly #purses = new Map<string, Lease>()

  /**
   * @param nanos of each account
   * @param now a clock that never goes back
   */
  constructor (space: Space, owner: string, nanos: Nanos, now: () => number) {
    this.#space = space
    this.#owner = owner
    this.#nanos = nanos
    this.#now = now
  }

  /** Under this name Redis holds it, in each account. */
  get id (): string {
    return `aside ${this.#owner}`
  }

  /** The account is served: from the next renewal on something is set aside for it. */
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
   * Undefined: it can't be taken from here. What a key has spent elsewhere is not known, so neither is whether it may.
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

  /** Undefined: there is not so much, or others may have it by now. */
  extend (account: string, held: Nanos, nanos: Nanos, least: Nanos): HoldResult | undefined {
    const purse = this.#purses.get(account)
    if (purse === undefined || this.#now() >= purse.until || purse.left < least) return undefined
    const more = nanos < purse.left ? nanos : purse.left
    purse.left -= more
    return { kind: 'held', nanos: held + more }
  }

  /** A hold is over, and this is left of it. */
  end (account: string, rest: Nanos): void {
    const purse = this.#purses.get(account)
    if (purse === undefined) return
    purse.left += rest
    purse.open--
  }

  /** Redis is there, and knows all that was charged. @throws {AwayError} */
  async renew (): Promise<void> {
    const now = this.#now()
    await eachOf([...this.#purses], async ([account, purse]) => {
      if (purse.open > 0) return                              // what is held here is not known there
      await this.#set(account, now - purse.usedAt < IDLE_MS ? this.#nanos : 0n)
    })
  }

  /** Somebody needs it now. @throws {AwayError} */
  async giveBack (account: string): Promise<void> {
    if (this.#purses.get(account)?.open === 0) await this.#set(account, 0n)
  }

  /** A clean end. @throws {AwayError} */
  async close (): Promise<void> {
    await eachOf([...this.#purses.keys()], async (account) => { await this.#set(account, 0n) })
  }

  async #set (account: string, nanos: Nanos): Promise<void> {
    const purse = this.#purses.get(account)!
    // Before it is asked: while nobody knows, there is nothing.
    const until = this.#now() + ASIDE_MS
    purse.left = 0n
    purse.isSet = nanos > 0n
    purse.left = BigInt(await this.#space.ask('setAside', account, this.id, `${nanos}`) as string)
    purse.isSet = purse.left > 0n
    purse.until = until
    if (nanos === 0n) this.#purses.delete(account)
  }
}
