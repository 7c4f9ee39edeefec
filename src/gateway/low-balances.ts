// The number of accounts whose balance is almost used up, for the metric of that name. Counted in the background and at
// most once a minute: with many accounts, or a store somewhere else, a scrape must not wait for it.
import { setImmediate } from 'node:timers/promises'
import type { Config } from '../config/config.ts'
import { parseUsd } from '../money/nanos.ts'
import type { GatewayServices } from './services.ts'

const AGE_MS = 60_000
/** Of a shared store: the pause until the next look, for each account. 100 commands a second are 2 % of a Redis. */
const SHARED_MS = 10
/** Accounts that are asked for in one turn of the event loop. */
const AT_ONCE = 200

type Parts = Pick<GatewayServices, 'store' | 'directory' | 'now'>

export class LowBalances {
  readonly #services: Parts
  readonly #config: () => Config
  #count: Promise<number> | undefined
  #countedAt = -Infinity
  #age = AGE_MS

  constructor (services: Parts, config: () => Config) {
    this.#services = services
    this.#config = config
  }

  /** @throws {Error} the store did not answer; it is asked again the next time */
  async read (): Promise<number> {
    const now = this.#services.now()
    if (this.#count === undefined || now - this.#countedAt >= this.#age) {
      this.#countedAt = now
      this.#count = this.#look()
      this.#count.catch(() => { this.#count = undefined })
    }
    return await this.#count
  }

  async #look (): Promise<number> {
    const { store, directory } = this.#services
    const config = this.#config()
    const low = boundIn(config)
    const accounts = [...config.accounts, ...directory.keptAccounts().map(({ record }) => record.settings)]
    const open = accounts.filter(({ suspended, closed }) => !suspended && !closed)
    if (store.health !== undefined) this.#age = Math.max(AGE_MS, open.length * SHARED_MS)
    let count = 0
    for (let i = 0; i < open.length; i += AT_ONCE) {
      if (i > 0) await setImmediate()
      const balances = await Promise.all(open.slice(i, i + AT_ONCE).map(({ id }) => store.balance(id)))
      count += balances.filter(({ balance }) => balance < low).length
    }
    return count
  }
}

function boundIn ({ pipeline }: Config): bigint {
  const usd = pipeline.find(({ use }) => use === 'billing-meter')?.with['low_balance_usd']
  return typeof usd === 'string' ? parseUsd(usd) : 0n
}
