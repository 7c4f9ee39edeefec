// Holds and slots of requests that ended without a charge while Redis was away: given back as soon as it is back.
// Otherwise a key would be at its limit, and money held, until their leases end, without a running request.
import { AwayError } from './connection.ts'
import { eachOf, type Space } from './keyspace.ts'
import type { Argument } from './script-call.ts'

export class Ended {
  readonly #early: Space
  /** by script and request; at most the requests that ran when Redis went away */
  readonly #late = new Map<string, () => Promise<void>>()

  /** @param early for messages that Redis must have before any decision */
  constructor (early: Space) {
    this.#early = early
  }

  /** Gives back now, or when Redis is back. Safe to repeat. */
  async giveBack (
    script: 'release' | 'leave',
    account: string,
    id: string,
    ...args: readonly Argument[]
  ): Promise<void> {
    const ask = async (): Promise<void> => {
      await this.#early.ask(script, account, id, ...args)
    }
    try {
      await ask()
    } catch (thrown) {
      if (!(thrown instanceof AwayError)) throw thrown
      this.#late.set(`${script} ${id}`, ask)
    }
  }

  /** Gives back what has waited. @throws {AwayError} Redis is away again */
  async giveLate (): Promise<void> {
    await eachOf([...this.#late], async ([name, ask]) => {
      try {
        await ask()
      } catch (thrown) {
        if (thrown instanceof AwayError) throw thrown         // else Redis refuses it, and its lease ends by itself
      }
      this.#late.delete(name)
    })
  }
}
