// Delivers messages that must not be lost to Redis: charges and refunds. Each is written into the outbox, and then
// sent. While Redis is away they wait there, for this process or the next. Every message is safe to repeat.
import type { Logger } from 'pino'
import { AwayError } from './connection.ts'
import type { Outbox, OutboxEntry } from './outbox.ts'

/** A message as written into the outbox, in JSON. Amounts are text; `day` and `oldest` may be empty. */
export type Message =
  | {
    readonly of: 'settle'
    readonly account: string
    readonly id: string
    readonly key: string
    readonly day: string
    readonly oldest: string
    /** at most the hold */
    readonly nanos: string
    readonly shortfall: string
    readonly what: string
    /** id of the budget that the hold was taken from, during an outage */
    readonly aside?: string
    /** milliseconds since the epoch */
    readonly at: number
  }
  | { readonly of: 'refund', readonly account: string, readonly id: string, readonly key: string, readonly day: string,
    readonly what: string }
  /** a task that may have been opened, though its client was told that there is none */
  | { readonly of: 'untask', readonly account: string, readonly id: string, readonly task: string }
  /** bookings that Redis has executed: kept for a Redis that comes back without them */
  | { readonly of: 'credit', readonly account: string, readonly reference: string, readonly nanos: string }
  | { readonly of: 'book', readonly kind: 'refund' | 'debit', readonly account: string, readonly reference: string,
    readonly nanos: string, readonly reason?: string }

/** Messages in flight while a backlog is sent: all gateways do that at the moment when Redis is back. */
const AT_ONCE = 50
/** Messages in flight while Redis serves requests too. */
const FEW_AT_ONCE = 10
/** Milliseconds, more than a healthy replica's lag: older charges are known to a Redis that was promoted. */
const RECENT_MS = 10_000
/** Pause before a message that Redis has refused is sent again. */
const RETRY_MS = 30_000

/** A repetition of recently acknowledged messages, for a Redis that may not have them. */
interface Telling {
  /** replication ids of that Redis */
  readonly ids: string
  /** messages acknowledged since then are sent first; milliseconds since the epoch */
  readonly since: number
  /** number of the first older message that is still to be sent */
  from: number
  /** whether Redis has received the first ones */
  newest: Promise<boolean> | undefined
  /** how often the repetition was requested */
  asked: number
  /** messages that were received */
  count: number
}

export class Delivery {
  readonly #outbox: Outbox
  readonly #send: (message: Message) => Promise<void>
  readonly #log: Pick<Logger, 'info' | 'error'>
  /** numbers of the messages in flight */
  readonly #sent = new Set<number>()
  readonly #idle = new Set<() => void>()
  #draining: Promise<boolean> | undefined
  #telling: Telling | undefined
  #isBehind: boolean
  /** true: the backlog goes first, and new messages wait too */
  #isHeld = false
  #refusedAt = -Infinity

  /** @param send rejects with an AwayError where it is unknown whether the message was received */
  constructor (outbox: Outbox, send: (message: Message) => Promise<void>, log: Pick<Logger, 'info' | 'error'>) {
    this.#outbox = outbox
    this.#send = send
    this.#log = log
    this.#isBehind = outbox.size > 0
  }

  /** messages without acknowledgement, as far as is known */
  get size (): number {
    return this.#outbox.size
  }

  /**
   * Answers when a kill of this process loses the message no more; it is sent in the background.
   * @throws {GatewayError} service_unavailable: it can't be written, and is not sent
   */
  async post (message: Message): Promise<void> {
    const no = await this.#outbox.append(JSON.stringify(message))
    if (this.#isHeld) this.#isBehind = true
    else void this.#deliver(no, message)
  }

  /** Holds all messages back from now on. */
  hold (): void {
    this.#isHeld = true
  }

  /** Ends the holding, and sends what has waited. */
  async go (): Promise<void> {
    this.#isHeld = false
    await this.drain()
  }

  /** Keeps a message that Redis has executed, for a Redis that comes back without it. */
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

  /** Sends what was not acknowledged. Never rejects. @returns false: Redis was away before the end */
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
   * Sends all kept messages to a Redis that may not have the recent ones either. First those that it can't have: the
   * newest, with the bookings that pay for them, and those without acknowledgement. The rest follows while it serves
   * requests. A repeated call for the same Redis goes on. Never rejects.
   * @param ids of that Redis
   * @param onWhole called when it has received all
   * @returns false: it was away before the first were received
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
    // Messages that another Redis has refused are tried again.
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
      if (this.#telling !== telling) return                   // for another Redis, or stopped
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
    } while (telling.asked > asked)                           // Redis was away for a moment, and is back already
    telling.newest = undefined
  }

  /** Never rejects. @returns number of the first message that it lacks; undefined: it has all */
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

  /** @returns how many were received, and the first that was not: it ends when Redis is away */
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
      // A booking goes before the charges that it pays for.
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

  /** Stops the repetition: the next process begins it again. */
  stop (): void {
    this.#telling = undefined
  }

  /** Ends when no message is in flight. */
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

/** Selects the messages that are sent first. */
function isFirst ({ since }: Telling): (no: number, text: string, at: number) => boolean {
  return (_no, text, at) => at >= since || text.startsWith('{"of":"credit"') || text.startsWith('{"of":"book"')
}
