// What must reach Redis whatever happens: charges, and what is given back. Each is first in the outbox, and then on its way. Redis may be
// away: then they wait there, in this process or the next, and go when it is back. Every one is safe to repeat.
import type { Logger } from 'pino'
import { AwayError } from './link.ts'
import type { Outbox, OutboxEntry } from './outbox.ts'

/** What is written into the outbox, as JSON. Amounts are text; `day` and `oldest` may be empty. */
export type Message =
  | {
    readonly of: 'settle'
    readonly account: string
    readonly id: string
    readonly key: string
    readonly day: string
    readonly oldest: string
    /** at most what was held */
    readonly nanos: string
    readonly shortfall: string
    readonly what: string
    /** what the hold was taken from, where Redis was away */
    readonly aside?: string
    /** milliseconds since the epoch */
    readonly at: number
  }
  | { readonly of: 'refund', readonly account: string, readonly id: string, readonly key: string, readonly day: string, readonly what: string }
  | { readonly of: 'release', readonly account: string, readonly id: string }
  /** a task that may have been opened, of which its client was told that there is none */
  | { readonly of: 'untask', readonly account: string, readonly id: string, readonly task: string }
  /** Told to Redis already: for one that comes back without it */
  | { readonly of: 'credit', readonly account: string, readonly reference: string, readonly nanos: string }

/** On their way at a time, when a backlog is sent. */
const AT_ONCE = 200
/** Until what Redis refused is tried again. */
const RETRY_MS = 30_000

export class Delivery {
  readonly #outbox: Outbox
  readonly #send: (message: Message) => Promise<void>
  readonly #log: Pick<Logger, 'info' | 'error'>
  /** numbers of those on their way */
  readonly #sent = new Set<number>()
  readonly #idle = new Set<() => void>()
  #draining: Promise<boolean> | undefined
  #isBehind = false
  /** Redis hears first what waits: what comes now waits too */
  #isHeld = false
  #refusedAt = -Infinity

  /** @param send rejects with an AwayError where it is unknown whether it has arrived */
  constructor (outbox: Outbox, send: (message: Message) => Promise<void>, log: Pick<Logger, 'info' | 'error'>) {
    this.#outbox = outbox
    this.#send = send
    this.#log = log
    this.#isBehind = outbox.size > 0
  }

  /** how many have not arrived, as far as is known */
  get size (): number {
    return this.#outbox.size
  }

  /**
   * Answers when a kill of this process loses it no more; it is on its way then.
   * @throws {GatewayError} service_unavailable: it can't be written down, and goes nowhere
   */
  async post (message: Message): Promise<void> {
    const no = await this.#outbox.append(JSON.stringify(message))
    if (this.#isHeld) this.#isBehind = true
    else void this.#deliver(no, message)
  }

  /** From now on everything waits. */
  hold (): void {
    this.#isHeld = true
  }

  /** No longer, nor does what waits. */
  async go (): Promise<void> {
    this.#isHeld = false
    await this.drain()
  }

  /** It has arrived: kept, should Redis come back without it. */
  async keep (message: Message): Promise<void> {
    this.#outbox.acknowledge(await this.#outbox.append(JSON.stringify(message)))
  }

  /** Never rejects. */
  async #deliver (no: number, message: Message): Promise<'arrived' | 'away' | 'refused'> {
    this.#sent.add(no)
    try {
      await this.#send(message)
      this.#outbox.acknowledge(no)
      return 'arrived'
    } catch (thrown) {
      this.#isBehind = true
      if (thrown instanceof AwayError) return 'away'
      this.#refusedAt = performance.now()
      this.#log.error({ alert: 'outbox_refused', err: thrown, message: { ...message, what: undefined } }, 'Redis has refused what must be charged or given back: it is tried again, and stays in the outbox until then')
      return 'refused'
    } finally {
      this.#sent.delete(no)
      if (this.#sent.size === 0) for (const done of this.#idle) done()
    }
  }

  /**
   * Sends what has not arrived. Never rejects.
   * @param all what has arrived lately too: this Redis may not know it
   * @returns whether Redis was there for all of it
   */
  async drain (all = false): Promise<boolean> {
    if (all) {
      await this.#draining
      return await (this.#draining = this.#drain(true).finally(() => { this.#draining = undefined }))
    }
    if (!this.#isBehind || performance.now() - this.#refusedAt < RETRY_MS) return true
    return await (this.#draining ??= this.#drain(false).finally(() => { this.#draining = undefined }))
  }

  async #drain (all: boolean): Promise<boolean> {
    this.#isBehind = false
    try {
      let count = 0
      let isWhole = true
      for (const entries of all ? [this.#outbox.kept(), this.#outbox.pending()] : [this.#outbox.pending()]) {
        const sent = await this.#sendAll(entries)
        count += sent.count
        isWhole &&= !sent.isAway
      }
      if (count > 0) this.#log.info({ count }, all ? 'Redis may be another one than before: what was charged lately was told to it again' : 'what had to wait for Redis was charged')
      return isWhole
    } catch (thrown) {
      this.#isBehind = true
      this.#log.error({ err: thrown }, 'the outbox can\'t be read: what waits in it is not charged yet')
      return false
    }
  }

  /** @returns how many have arrived; it ends when Redis is away */
  async #sendAll (entries: AsyncIterable<OutboxEntry>): Promise<{ readonly count: number, readonly isAway: boolean }> {
    const running = new Set<Promise<void>>()
    let count = 0
    let isAway = false
    for await (const { no, text } of entries) {
      if (this.#sent.has(no)) continue
      const message = JSON.parse(text) as Message
      // What it pays for comes after it.
      if (message.of === 'credit') await Promise.all(running)
      const one: Promise<void> = this.#deliver(no, message).then((end) => {
        running.delete(one)
        if (end === 'arrived') count++
        if (end === 'away') isAway = true
      })
      running.add(one)
      if (running.size >= AT_ONCE || message.of === 'credit') await Promise.race(running)
      if (isAway) break
    }
    await Promise.all(running)
    return { count, isAway }
  }

  /** When nothing is on its way. */
  async idle (): Promise<void> {
    await this.#draining
    if (this.#sent.size === 0) return
    await new Promise<void>((resolve) => {
      const done = (): void => {
        this.#idle.delete(done)
        resolve()
      }
      this.#idle.add(done)
    })
  }
}
