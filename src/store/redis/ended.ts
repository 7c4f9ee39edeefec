// What ended while Redis was away, and cost nothing: the hold and the slot that it has there are given back as soon as
// Redis is back. Else a key would be at its limit, and money held, for as long as their leases, with nothing that runs.
import { AwayError, type Argument } from './connection.ts'
import { eachOf, type Space } from './keyspace.ts'

export class Ended {
  readonly #early: Space
  /** as many as were on their way or ran when Redis went */
  readonly #late = new Map<string, () => Promise<void>>()

  /** @param early for what Redis must hear before it is asked anything */
  constructor (early: Space) {
    this.#early = early
  }

  /** Now, or when Redis is back. A repetition does nothing. */
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

  /** Redis is back. @throws {AwayError} not any more */
  async giveLate (): Promise<void> {
    await eachOf([...this.#late], async ([name, ask]) => {
      try {
        await ask()
      } catch (thrown) {
        if (thrown instanceof AwayError) throw thrown         // else Redis refuses it: its lease ends by itself
      }
      this.#late.delete(name)
    })
  }
}
