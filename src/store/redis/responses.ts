// Kept responses in Redis (lua/responses.ts), over a connection of their own: megabytes on their way must not stand in
// front of holds and charges, nor a slow transfer be taken for an outage. It is made when the first response is kept or
// asked for.
import type { Logger } from 'pino'
import type { Timer } from '../../base/timer.ts'
import type { StoreConfig } from '../../config/config.ts'
import { GatewayError } from '../../errors.ts'
import type { Life, ResponseStore } from '../responses.ts'
import { clientFor, nameOf } from './address.ts'
import { Link } from './connection.ts'
import { Space } from './keyspace.ts'
import type { Argument } from './script-call.ts'
import type { Script } from './scripts.ts'

/** Milliseconds that a transfer may take at least. */
const TRANSFER_MS = 2000

export interface ResponsesOptions {
  readonly config: StoreConfig
  /** for tests; absent: Redis's own time */
  readonly now: (() => number) | undefined
  readonly timer: Timer
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>
}

export class RedisResponses implements ResponseStore {
  readonly #options: ResponsesOptions
  #opening: Promise<Space> | undefined
  #link: Link | undefined
  #isClosed = false

  constructor (options: ResponsesOptions) {
    this.#options = options
  }

  async keep (account: string, id: string, bytes: Buffer, { life, space }: Life): Promise<boolean> {
    const kept = await this.#run('keepResponse', account, id, Math.ceil(life), space, bytes)
    if (kept === -1) throw new Error('the memory of Redis is full but for what is left to the ledger')
    return kept === 1
  }

  async find (account: string, id: string): Promise<Buffer | undefined> {
    const space = await this.#open()
    return await space.orUnavailable((async () => {
      const [isThere, bytes] = await Promise.all([
        this.#ask(space, 'hasResponse', account, id),
        space.link.call(async (client) => await client.getBuffer(space.of(account, `response:${id}`)))
      ])
      return isThere === 1 ? bytes ?? undefined : undefined
    })())
  }

  async prolong (account: string, id: string, life: number): Promise<void> {
    await this.#run('prolongResponse', account, id, Math.ceil(life))
  }

  async drop (account: string, id: string): Promise<boolean> {
    return await this.#run('dropResponse', account, id) === 1
  }

  close (): void {
    this.#isClosed = true
    this.#link?.close()
  }

  async #run (script: Script, account: string, ...args: readonly Argument[]): Promise<unknown> {
    const space = await this.#open()
    return await space.orUnavailable(this.#ask(space, script, account, ...args))
  }

  async #ask (space: Space, script: Script, account: string, ...args: readonly Argument[]): Promise<unknown> {
    return await space.link.run(script, space.of(account, 'responses'), space.time, ...args)
  }

  /** @throws {GatewayError} service_unavailable: Redis can't be reached */
  async #open (): Promise<Space> {
    if (this.#isClosed) throw new GatewayError('service_unavailable', { cause: new Error('the store is closed') })
    this.#opening ??= this.#connect().catch((cause: unknown) => {
      this.#opening = undefined                               // the next request tries again
      throw new GatewayError('service_unavailable', { cause })
    })
    return await this.#opening
  }

  async #connect (): Promise<Space> {
    const { config, now, timer, log } = this.#options
    const timeout = Math.max(config.timeout, TRANSFER_MS)
    const link = this.#link = new Link({ client: clientFor({ ...config, timeout }), name: nameOf(config), timeout, log,
      timer, onBack: async () => true })
    await link.open()
    if (this.#isClosed) link.close()
    return new Space(link, config.prefix, now)
  }
}
