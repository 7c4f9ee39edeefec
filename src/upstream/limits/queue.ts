// How much each upstream gets at a time, and who waits for it: fair between accounts. Outlives reloads; limits come
// with each question, from the snapshot of the request that asks, and those of the newest snapshot hold for all.
//
// A free place goes to the waiting account that runs least there; of equals, to the one whose last turn is longest ago.
// Within an account who came first is let in first. So an account that sends fifty times its share waits for itself,
// and not the others for it.
import type { Config, UpstreamLimits } from '../../config/config.ts'
import { GatewayError } from '../../errors.ts'
import type { Exchange } from '../../core/exchange.ts'
import { ApiKey } from '../../core/facts.ts'
import type { Awaitable } from '../../base/awaitable.ts'
import { Heap } from '../../base/heap.ts'
import { startTimer, type Timer } from '../../base/timer.ts'
import type { Upstream } from '../../core/upstream.ts'

type GiveBack = () => void

export class FairQueues {
  readonly #now: () => number
  readonly #timer: Timer
  /** only of upstreams that have limits, or had them and are not empty yet */
  readonly #queues = new Map<string, FairQueue>()

  /** @param now milliseconds since the epoch */
  constructor (now: () => number = Date.now, timer: Timer = startTimer) {
    this.#now = now
    this.#timer = timer
  }

  /** Whether one would be let in without waiting. */
  hasRoom ({ name }: Upstream): boolean {
    return this.#queues.get(name)?.hasRoom ?? true
  }

  /**
   * Lets the exchange in, at once or when it is its account's turn.
   * @returns gives the place back; to be called once, more do nothing
   * @throws {GatewayError} queue_full, queue_timeout; why the exchange can't go on, when it ends meanwhile
   */
  enter ({ name, config: { limits } }: Upstream, exchange: Exchange): Awaitable<GiveBack> {
    let queue = this.#queues.get(name)
    if (queue === undefined) {
      if (limits === undefined) return nothingToGiveBack
      queue = new FairQueue(name, this.#now, this.#timer, () => { this.#queues.delete(name) })
      this.#queues.set(name, queue)
    }
    queue.limit(limits, exchange.snapshot.generation)
    return queue.enter(exchange)
  }

  /** How many wait, by upstream; of those that have limits and were asked. */
  waiting (): readonly (readonly [upstream: string, waiting: number])[] {
    return [...this.#queues].map(([name, { waiting }]) => [name, waiting])
  }

  /**
   * A configuration went live: where a limit was raised, who waits is let in without another one coming first. Forgets
   * what is gone.
   */
  reload (upstreams: Config['upstreams'], generation: number): void {
    for (const [name, queue] of this.#queues) {
      const upstream = upstreams[name]
      if (upstream === undefined) queue.retire()
      else queue.limit(upstream.limits, generation)
      if (queue.isGone) this.#queues.delete(name)
    }
  }
}

/** Of all upstreams without limits: nothing is made for a request there. */
function nothingToGiveBack (): void {}

/** Who pays, at one upstream; forgotten when nothing of it runs or waits there. */
interface Account {
  readonly id: string
  running: number
  waiting: number
  /** of those that wait: who came first, and who came last */
  first: Waiter | undefined
  last: Waiter | undefined
  /** when it began to wait, was last let in, or last gave a place back: a count, not a time */
  turn: number
}

interface Waiter {
  readonly account: Account
  readonly exchange: Exchange
  /** milliseconds since the epoch */
  readonly since: number
  readonly resolve: (giveBack: GiveBack) => void
  readonly reject: (error: unknown) => void
  /** stops the timer, and no longer listens for the exchange's end */
  readonly forget: () => void
  before: Waiter | undefined
  after: Waiter | undefined
}

/** Requests of which nobody knows who pays share one account. */
const NOBODY = ''
/** How much one more place that became free says about how fast they do. */
const NEWEST_SHARE = 1 / 8
/**
 * Let in before others have a turn: each goes on at once, with a tenth of a millisecond of work (measured: 3,000
 * stopped all else for 385 ms).
 */
const AT_ONCE = 100

/** One upstream's. While a place is free nobody waits, but for the turns that it takes to let in many. */
class FairQueue {
  readonly #name: string
  readonly #now: () => number
  readonly #timer: Timer
  readonly #onGone: () => void
  #limits: UpstreamLimits | undefined
  #generation = -1
  /** no newer configuration has the upstream */
  #isRetired = false
  readonly #accounts = new Map<string, Account>()
  #running = 0
  #waiting = 0
  #turns = 0
  /** accounts with somebody who waits: whose turn it is */
  readonly #next = new Heap<Account>((one, other) =>
    one.running < other.running || (one.running === other.running && one.turn < other.turn)
  )
  /** the same: who gives way when the queue is full */
  readonly #greediest = new Heap<Account>((one, other) => isGreedier(one, other, other.waiting))
  /** since when all places are taken, or when one of them last became free; milliseconds since the epoch */
  #fullSince = 0
  /** milliseconds between two places that become free while all are taken, averaged; 0: not known yet */
  #interval = 0
  /** the next of those who may come in do so in the next turn */
  #goesOn = false

  constructor (name: string, now: () => number, timer: Timer, onGone: () => void) {
    this.#name = name
    this.#now = now
    this.#timer = timer
    this.#onGone = onGone
  }

  get waiting (): number {
    return this.#waiting
  }

  get hasRoom (): boolean {
    return this.#running < (this.#limits?.concurrency ?? Infinity)
  }

  /** It has no limits any more, and nothing of what they counted runs. */
  get isGone (): boolean {
    return (this.#limits === undefined || this.#isRetired) && this.#running === 0 && this.#waiting === 0
  }

  /** Its last limits hold for those who still wait: the vendor is the same as before. */
  retire (): void {
    this.#isRetired = true
  }

  /**
   * What a newer configuration says; undefined: no limits. What runs is not ended, and what began without limits is not
   * counted.
   */
  limit (limits: UpstreamLimits | undefined, generation: number): void {
    if (generation <= this.#generation) return
    this.#generation = generation
    this.#isRetired = false
    const hadRoom = this.hasRoom
    this.#limits = limits
    if (hadRoom && !this.hasRoom) this.#fullSince = this.#now()
    this.#letIn()
  }

  enter (exchange: Exchange): Awaitable<GiveBack> {
    const id = exchange.find(ApiKey)?.account.id ?? NOBODY
    let account = this.#accounts.get(id)
    if (account === undefined) {
      account = { id, running: 0, waiting: 0, first: undefined, last: undefined, turn: 0 }
      this.#accounts.set(id, account)
    }
    if (this.hasRoom) return this.#admit(account)
    try {
      exchange.throwIfAborted()
      this.#makeWay(account, exchange)
      return this.#wait(account, exchange)
    } finally {
      this.#forgetIfEmpty(account)
    }
  }

  #admit (account: Account): GiveBack {
    this.#running++
    account.running++
    account.turn = ++this.#turns
    this.#rank(account)
    if (!this.hasRoom) this.#fullSince = this.#now()
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      this.#leave(account)
    }
  }

  #leave (account: Account): void {
    if (!this.hasRoom) this.#timeFreed()
    this.#running--
    account.running--
    // Its turn is over, also where it is the only one: whoever else waits comes before it.
    account.turn = ++this.#turns
    this.#rank(account)
    this.#forgetIfEmpty(account)
    this.#letIn()
    if (this.isGone) this.#onGone()
  }

  #letIn (): void {
    for (let count = 0; this.hasRoom; count++) {
      const waiter = this.#next.first?.first
      if (waiter === undefined) return
      if (count === AT_ONCE) {
        if (!this.#goesOn) setImmediate(() => { this.#goesOn = false; this.#letIn() })
        this.#goesOn = true
        return
      }
      this.#takeOut(waiter)
      waiter.exchange.snapshot.services.metrics.queued(this.#name, this.#now() - waiter.since)
      waiter.resolve(this.#admit(waiter.account))
    }
  }

  /**
   * In a full queue the newest of the greediest account gives way, unless the newcomer's would be as greedy then: else
   * two would throw each other out for ever.
   * @throws {GatewayError} queue_full
   */
  #makeWay (account: Account, exchange: Exchange): void {
    if (this.#waiting < (this.#limits?.queue ?? 0)) return
    const greediest = this.#greediest.first
    if (greediest === undefined || !isGreedier(greediest, account, account.waiting + 1)) {
      throw this.#refusal('queue_full', account, exchange)
    }
    this.#refuse(greediest.last!, 'queue_full')
  }

  #wait (account: Account, exchange: Exchange): Promise<GiveBack> {
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        this.#takeOut(waiter)
        this.#forgetIfEmpty(account)
        reject(exchange.abortReason)
      }
      const stop = this.#timer(this.#limits!.queue_timeout, () => { this.#refuse(waiter, 'queue_timeout') })
      const forget = (): void => {
        stop()
        exchange.offAbort(onAbort)
      }
      exchange.onAbort(onAbort)
      const waiter: Waiter = { account, exchange, since: this.#now(), resolve, reject, forget, before: account.last,
        after: undefined }
      if (account.last === undefined) {
        account.first = waiter
        account.turn = ++this.#turns
      } else account.last.after = waiter
      account.last = waiter
      account.waiting++
      this.#waiting++
      this.#rank(account)
    })
  }

  #takeOut ({ account, forget, before, after }: Waiter): void {
    forget()
    if (before === undefined) account.first = after
    else before.after = after
    if (after === undefined) account.last = before
    else after.before = before
    account.waiting--
    this.#waiting--
    this.#rank(account)
  }

  #refuse (waiter: Waiter, code: 'queue_full' | 'queue_timeout'): void {
    const { account, exchange, reject } = waiter
    this.#takeOut(waiter)
    reject(this.#refusal(code, account, exchange))
    this.#forgetIfEmpty(account)
  }

  #refusal (
    code: 'queue_full' | 'queue_timeout',
    account: Account,
    { snapshot: { services: { metrics } } }: Exchange
  ): GatewayError {
    metrics.queueRefused(this.#name, code)
    return new GatewayError(code, { retryAfter: this.#wayTo(account) / 1000 })
  }

  /**
   * Milliseconds until one more of this account would be let in, as fast as places become free: accounts take turns,
   * and all wait for no more than all.
   */
  #wayTo (account: Account): number {
    const places = Math.min(this.#waiting, (account.waiting + 1) * this.#next.size) + 1
    return places * Math.max(this.#interval, this.#now() - this.#fullSince)
  }

  #timeFreed (): void {
    const now = this.#now()
    const interval = now - this.#fullSince
    this.#interval += (interval - this.#interval) * (this.#interval === 0 ? 1 : NEWEST_SHARE)
    this.#fullSince = now
  }

  #rank (account: Account): void {
    if (account.waiting > 0) {
      this.#next.place(account)
      this.#greediest.place(account)
    } else {
      this.#next.remove(account)
      this.#greediest.remove(account)
    }
  }

  #forgetIfEmpty (account: Account): void {
    if (account.running === 0 && account.waiting === 0) this.#accounts.delete(account.id)
  }
}

/** By those that wait; of equals, by those that run. @param waiting of the other */
function isGreedier (one: Account, other: Account, waiting: number): boolean {
  return one.waiting > waiting || (one.waiting === waiting && one.running > other.running)
}
