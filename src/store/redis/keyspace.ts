// State shared by the parts of the driver: the connection, the names of keys, and the clock.
import { randomUUID } from 'node:crypto'
import { GatewayError } from '../../errors.ts'
import type { Client } from './address.ts'
import { AwayError, type Link, type Way } from './connection.ts'
import type { Argument } from './script-call.ts'
import type { Script } from './scripts.ts'

export class Space {
  readonly link: Link
  readonly #way: Way
  readonly #prefix: string
  readonly #now: (() => number) | undefined
  readonly #who = randomUUID()
  #decisions = 0

  /**
   * @param now milliseconds since the epoch, for tests; absent: Redis's own time counts, so that gateways' clocks need
   * not agree
   * @param way of the scripts about accounts
   */
  constructor (link: Link, prefix: string, now: (() => number) | undefined, way: Way = link) {
    this.link = link
    this.#way = way
    this.#prefix = prefix
    this.#now = now
  }

  /** A key of an account: the part in braces decides the slot of a cluster. */
  of (account: string, name = 'account'): string {
    return `{${this.#prefix}:${account}}:${name}`
  }

  /** A key shared by all accounts, in a slot of its own. */
  shared (name: string): string {
    return `{${this.#prefix}}:${name}`
  }

  /** A key by itself: the slots of such keys differ. */
  single (name: string): string {
    return `${this.#prefix}:${name}`
  }

  /** The time argument of scripts, which take Redis's own time where it is empty. */
  get time (): Argument {
    return this.#now?.() ?? ''
  }

  /** Whether scripts take Redis's own time, of which the ids of entries are in any case. */
  get isRedisTime (): boolean {
    return this.#now === undefined
  }

  /** milliseconds since the epoch, by this process's clock */
  get nearly (): number {
    return this.#now?.() ?? Date.now()
  }

  /** Runs a script about an account. @throws {AwayError} it is unknown whether it was done */
  ask (script: Script, account: string, ...args: readonly Argument[]): Promise<unknown> {
    return this.#way.run(script, this.of(account), this.time, ...args)
  }

  /**
   * Runs a decision, and repeats it after a broken connection, within the time of a command: Redis knows it by its
   * number, the first argument. @throws {AwayError} it is unknown whether it was made
   */
  decide (script: Script, account: string, ...args: readonly Argument[]): Promise<unknown> {
    const decision = `${this.#who}:${++this.#decisions}`
    return this.link.repeated(() => this.ask(script, account, decision, ...args))
  }

  /** Turns an outage into an error for clients. @throws {GatewayError} service_unavailable */
  async orUnavailable<T> (asked: Promise<T>): Promise<T> {
    try {
      return await asked
    } catch (cause) {
      throw cause instanceof AwayError ? new GatewayError('service_unavailable', { cause }) : cause
    }
  }

  /** Reads for a client; repeated after a broken connection. @throws {GatewayError} service_unavailable */
  async read<T> (command: (client: Client) => Promise<T>): Promise<T> {
    return await this.orUnavailable(this.link.call(command))
  }

  /** Every account that was ever used. */
  async accounts (): Promise<readonly string[]> {
    return await this.read(async (client) => await client.smembers(this.single('accounts')))
  }
}

/** Accounts per round, where all are read. */
const AT_ONCE = 100

/** Calls `ask` for each, a number of them at a time; results in their order. */
export async function eachOf<T, R> (all: readonly T[], ask: (one: T) => Promise<R>): Promise<R[]> {
  const found: R[] = []
  for (let i = 0; i < all.length; i += AT_ONCE) found.push(...await Promise.all(all.slice(i, i + AT_ONCE).map(ask)))
  return found
}
