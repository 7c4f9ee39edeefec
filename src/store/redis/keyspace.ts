// What the parts of the driver share: the link, the names of keys, and whose time counts.
import { randomUUID } from 'node:crypto'
import { GatewayError } from '../../errors.ts'
import { AwayError, type Argument, type Link, type Way } from './connection.ts'
import type { Script } from './scripts.ts'

export class Space {
  readonly link: Link
  readonly #way: Way
  readonly #prefix: string
  readonly #now: (() => number) | undefined
  readonly #who = randomUUID()
  #decisions = 0

  /**
   * @param now milliseconds since the epoch, for tests; absent: Redis's own time counts, so that gateways need not
   * agree on theirs
   * @param way that scripts about accounts go
   */
  constructor (link: Link, prefix: string, now: (() => number) | undefined, way: Way = link) {
    this.link = link
    this.#way = way
    this.#prefix = prefix
    this.#now = now
  }

  /** Of an account: what is in the braces decides on the slot of a cluster. */
  of (account: string, name = 'account'): string {
    return `{${this.#prefix}:${account}}:${name}`
  }

  /** Of all accounts together. */
  shared (name: string): string {
    return `{${this.#prefix}}:${name}`
  }

  /** By itself: each lies where it happens to. */
  single (name: string): string {
    return `${this.#prefix}:${name}`
  }

  /** For scripts, which take their own time where it is empty. */
  get time (): Argument {
    return this.#now?.() ?? ''
  }

  /** milliseconds since the epoch, as near as this process knows */
  get nearly (): number {
    return this.#now?.() ?? Date.now()
  }

  /** A script about an account. @throws {AwayError} it is unknown whether it was done */
  async ask (script: Script, account: string, ...args: readonly Argument[]): Promise<unknown> {
    return await this.#way.run(script, this.of(account), this.time, ...args)
  }

  /**
   * A decision that is asked for once more where the connection broke, in the time that it may take: Redis knows it by
   * its number, which is the first argument. @throws {AwayError} it is unknown whether it was made
   */
  async decide (script: Script, account: string, ...args: readonly Argument[]): Promise<unknown> {
    const decision = `${this.#who}:${++this.#decisions}`
    return await this.link.repeated(async () => await this.ask(script, account, decision, ...args))
  }

  /** Whatever can't wait for Redis. @throws {GatewayError} service_unavailable */
  async orUnavailable<T> (asked: Promise<T>): Promise<T> {
    try {
      return await asked
    } catch (cause) {
      throw cause instanceof AwayError ? new GatewayError('service_unavailable', { cause }) : cause
    }
  }

  /** Every account that was ever used. */
  async accounts (): Promise<readonly string[]> {
    return await this.orUnavailable(this.link.call(async (client) => await client.smembers(this.single('accounts'))))
  }
}

/** At a time, where all accounts are asked. */
const AT_ONCE = 100

/** The same of each, in their order, a number of them at a time. */
export async function eachOf<T, R> (all: readonly T[], ask: (one: T) => Promise<R>): Promise<R[]> {
  const found: R[] = []
  for (let i = 0; i < all.length; i += AT_ONCE) found.push(...await Promise.all(all.slice(i, i + AT_ONCE).map(ask)))
  return found
}
