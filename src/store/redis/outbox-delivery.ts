// What must reach Redis whatever happens: charges, and what is given back. Each is first in the outbox, and then on its
// way. Redis may be away: then they wait there, in this process or the next, and go when it is back. Every one is safe
// to repeat.
import type { Logger } from 'pino'
import { AwayError } from './connection.ts'
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
  | { readonly of: 'refund', readonly account: string, readonly id: string, readonly key: string, readonly day: string,
    readonly what: string }
  /** a task that may have been opened, of which its client was told that there is none */
  | { readonly of: 'untask', readonly account: string, readonly id: string, readonly task: string }
  /** Told to Redis already, as the next one: for one that comes back without it */
  | { readonly of: 'credit', readonly account: string, readonly reference: string, readonly nanos: string }
  | { readonly of: 'book', readonly kind: 'refund' | 'debit', readonly account: string, readonly reference: string,
    readonly nanos: string, readonly reason?: string }

/** On their way at a time, when a backlog is sent: all gateways do that in the moment when Redis is back. */
const AT_ONCE = 50
/** The same, while Redis has requests to serve. */
const FEW_AT_ONCE = 10
/**
 * More than replication is ever behind where all is well: older charges are known to a Redis that has taken the place
 * of another one.
 */
const RECENT_MS = 10_000
/** Until what Redis refused is tried again. */
const RETRY_MS = 30_000

/** What was acknowledged lately is told to a Redis that may not know it. */
interface Telling {
  /** of that Redis */
  readonly ids: string
  /** what was acknowledged since then is told first; milliseconds since the epoch */
  readonly since: number
  /** of the others it knows those before this number */
  from: number
  /** has Redis heard the first ones? */
  newest: Promise<boolean> | undefined
  /** how often it was asked for */
  asked: number
  /** how many have arrived */
  count: number
}

export class Delivery {
  readonly #outbox: Outbox
  readonly #send: (message: Message) => Promise<void>
  readonly #log: Pick<Logger, 'info' | 'error'>
  /** numbers of those on their way */
  readonly #sent = new Set<number>()
  readonly #idle = new Set<() => void>()
  #draining: Promise<boolean> | undefined
  #telling: Telling | undefined
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
      this.#log.error({ alert: 'outbox_refused', err: thrown, message: { ...message, what: undefined } },
        'Redis has refused what must be charged or given back: it is tried again, and stays in the outbox until then')
      return 'refused'
    } finally {
      this.#sent.delete(no)
      if (this.#sent.size === 0) for (const done of this.#idle) done()
    }
  }

  /** Sends what has not arrived. Never rejects. @returns whether Redis was there for all of it */
  async drain (): Promise<boolean> {
    if (!this.#isBehind || performance.now() - this.#refusedAt < RETRY_MS) return true
    return await (this.#draining ??= this.#drain().finally(() => { this.#draining = undefined }))
  }

  async #drain (): Promise<boolean> {
    this.#isBehind = false
    try {
      const { count, lost } = await this.#sendAll(this.#outbox.pending(), AT_ONCE)
      if (count > 0) this.#log.info({ count }, 'what had to wait for Redis was charged')
      return lost === undefined
    } catch (thrown) {
      this.#isBehind = true
      this.#log.error({ err: thrown }, 'the outbox can\'t be read: what waits in it is not charged yet')
      return false
    }
  }

  /**
   * Sends all to a Redis that may not know what has arrived lately either. What it can't know is first: the newest,
   * with the bookings that pay for it, and what has not arrived. The rest follows while it serves requests already.
   * Repeated for the same Redis, it goes on. Never rejects.
   * @param ids of that Redis
   * @param onWhole it has heard all
   * @returns whether it was there for the first
   */
  async tell (ids: string, onWhole: () => void): Promise<boolean> {
    if (this.#telling?.ids !== ids) {
      this.#telling = { ids, since: this.#outbox.lastAcknowledged - RECENT_MS, from: 0, newest: undefined, asked: 0,
        count: 0 }
    }
    const telling = this.#telling
    telling.asked++
    telling.newest ??= this.#tellNewest(telling, onWhole)
    if (!await telling.newest) return false
    // Whatever another one has refused.
    this.#isBehind = true
    this.#refusedAt = -Infinity
    return await this.drain()
  }

  async #tellNewest (telling: Telling, onWhole: () => void): Promise<boolean> {
    const lost = await this.#again(telling, AT_ONCE, isFirst(telling))
    const isTold = lost === undefined && this.#telling === telling
    if (isTold) void this.#tellOlder(telling, onWhole)
    else telling.newest = undefined
    return isTold
  }

  /** Never rejects. */
  async #tellOlder (telling: Telling, onWhole: () => void): Promise<void> {
    const isNew = isFirst(telling)
    let asked: number
    do {
      asked = telling.asked
      const lost = await this.#again(telling, FEW_AT_ONCE, (no, text, at) => no >= telling.from && !isNew(no, text, at))
      if (this.#telling !== telling) return                   // it is another one, or the end
      if (lost === undefined) {
        this.#telling = undefined
        if (telling.count > 0) {
          this.#log.info({ count: telling.count },
            'Redis may be another one than before: what was charged lately was told to it again')
        }
        onWhole()
        return
      }
      telling.from = Math.max(telling.from, lost)
    } while (telling.asked > asked)                           // it was away for a moment, and is back already
    telling.newest = undefined
  }

  /** Never rejects. @returns the first that it does not know; undefined: it was there for all of it */
  async #again (
    telling: Telling,
    most: number,
    isWanted: (no: number, text: string, at: number) => boolean
  ): Promise<number | undefined> {
    try {
      const { count, lost } = await this.#sendAll(this.#outbox.kept(isWanted), most, () => this.#telling !== telling)
      telling.count += count
      return lost
    } catch (thrown) {
      this.#log.error({ err: thrown }, 'the outbox can\'t be read: what was charged lately is not told again')
      return 0
    }
  }

  /** @returns how many have arrived, and the first that has not: it ends when Redis is away */
  async #sendAll (
    entries: AsyncIterable<OutboxEntry>,
    most: number,
    isOver: () => boolean = () => false
  ): Promise<{ readonly count: number, readonly lost: number | undefined }> {
    const running = new Set<Promise<void>>()
    let count = 0
    let lost: number | undefined
    for await (const { no, text } of entries) {
      if (this.#sent.has(no)) continue
      const message = JSON.parse(text) as Message
      // What it pays for comes after it.
      if (isBooking(message)) await Promise.all(running)
      const one: Promise<void> = this.#deliver(no, message).then((end) => {
        running.delete(one)
        if (end === 'arrived') count++
        if (end === 'away') lost = Math.min(no, lost ?? no)
      })
      running.add(one)
      if (running.size >= most || isBooking(message)) await Promise.race(running)
      if (lost !== undefined || isOver()) break
    }
    await Promise.all(running)
    return { count, lost }
  }

  /** Nothing more is told again: the next process does it. */
  stop (): void {
    this.#telling = undefined
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

function isBooking ({ of }: Message): boolean {
  return of === 'credit' || of === 'book'
}

/** What is told first, of what was acknowledged at that time. */
function isFirst ({ since }: Telling): (no: number, text: string, at: number) => boolean {
  return (_no, text, at) => at >= since || text.startsWith('{"of":"credit"') || text.startsWith('{"of":"book"')
}
