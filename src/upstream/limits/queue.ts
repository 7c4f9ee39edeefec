// The fair queues of upstreams: a concurrency limit for each, shared fairly between accounts. They outlive reloads;
// limits come with each request's snapshot, and those of the newest snapshot hold for all.
//
// A free place goes to the waiting account with the fewest running requests there; of equals, to the one whose last
// turn is longest ago. Within an account the order is first in, first out. So an account that sends fifty times its
// share waits behind itself, and the others do not.
import type { Config, UpstreamLimits } from '../../config/config.ts'
import { GatewayError } from '../../errors.ts'
import type { Exchange } from '../../core/exchange.ts'
import { ApiKey } from '../../core/facts.ts'
import type { Awaitable } from '../../base/awaitable.ts'
import { Heap } from '../../base/heap.ts'
import { startTimer, type Timer } from '../../base/timer.ts'
import type { Upstream } from '../../core/upstream.ts'

type GiveBack = () => void

export interface QueueView {
  readonly upstream: string
  /** requests that have a place */
  readonly running: number
  readonly waiting: number
}

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

  /** Whether a request would be admitted without waiting. */
  hasRoom ({ name }: Upstream): boolean {
    return this.#queues.get(name)?.hasRoom ?? true
  }

  /**
   * Admits the exchange, at once or when its account has its turn.
   * @returns gives the place back; later calls do nothing
   * @throws {GatewayError} queue_full, queue_timeout; the abort reason of an exchange that ends meanwhile
   */
  enter ({ name, config: { limits } }: Upstream, exchange: Exchange): Awaitable<GiveBack> {
    let queue = this.#queues.get(name)
    if (queue === undefined) {
      if (limits === undefined) return nothingToGiveBack
      queue = this.#open(name)
    }
    queue.limit(limits, exchange.snapshot.generation)
    return queue.enter(exchange)
  }

  #open (name: string): FairQueue {
    const queue = new FairQueue(name, this.#now, this.#timer, () => { this.#queues.delete(name) })
    this.#queues.set(name, queue)
    return queue
  }

  /** Only of upstreams with limits that were asked. */
  view (): readonly QueueView[] {
    return [...this.#queues].map(([upstream, { running, waiting }]) => ({ upstream, running, waiting }))
  }

  /**
   * Applies the limits of a new configuration, so that a raised limit admits waiting requests at once, and forgets
   * upstreams that are gone.
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

/** The release of a request at an upstream without limits: shared, so that none is made. */
function nothingToGiveBack (): void {}

/** An account's requests at one upstream; forgotten when none runs or waits. */
interface Account {
  readonly id: string
  running: number
  waiting: number
  /** the ends of its list of waiting requests: the oldest, and the newest */
  first: Waiter | undefined
  last: Waiter | undefined
  /** a count, not a time: set when it began to wait, was last admitted, or last gave a place back */
  turn: number
}

interface Waiter {
  readonly account: Account
  readonly exchange: Exchange
  /** milliseconds since the epoch */
  readonly since: number
  readonly resolve: (giveBack: GiveBack) => void
  readonly reject: (error: unknown) => void
  /** stops the timer and the listener for the exchange's end */
  readonly forget: () => void
  before: Waiter | undefined
  after: Waiter | undefined
}

/** The account of requests without an API key. */
const NOBODY = ''
/** Weight of the newest interval in the average. */
const NEWEST_SHARE = 1 / 8
/**
 * Admissions in one turn of the event loop: each goes on at once, with a tenth of a millisecond of work (measured:
 * 3,000 stopped all else for 385 ms).
 */
const AT_ONCE = 100

/**
 * The fair queue of one upstream. While a place is free no request waits, except for the turns that it takes to admit
 * many.
 */
class FairQueue {
  readonly #name: string
  readonly #now: () => number
  readonly #timer: Timer
  readonly #onGone: () => void
  #limits: UpstreamLimits | undefined
  #generation = -1
  /** the upstream is in no newer configuration */
  #isRetired = false
  readonly #accounts = new Map<string, Account>()
  #running = 0
  #waiting = 0
  #turns = 0
  /** accounts with waiting requests, by whose turn is next */
  readonly #next = new Heap<Account>((one, other) =>
    one.running < other.running || (one.running === other.running && one.turn < other.turn)
  )
  /** the same accounts, by which one gives way when the queue is full */
  readonly #greediest = new Heap<Account>((one, other) => isGreedier(one, other, other.waiting))
  /**
   * start of the current interval: when all places were taken, or one last became free; milliseconds since the epoch
   */
  #fullSince = 0
  /** average milliseconds between two places that become free while all are taken; 0: not known yet */
  #interval = 0
  /** a `setImmediate` that admits more is due */
  #goesOn = false

  constructor (name: string, now: () => number, timer: Timer, onGone: () => void) {
    this.#name = name
    this.#now = now
    this.#timer = timer
    this.#onGone = onGone
  }

  get running (): number {
    return this.#running
  }

  get waiting (): number {
    return this.#waiting
  }

  get hasRoom (): boolean {
    return this.#running < (this.#limits?.concurrency ?? Infinity)
  }

  /** Without limits or retired, and no request that they counted is left. */
  get isGone (): boolean {
    return (this.#limits === undefined || this.#isRetired) && this.#running === 0 && this.#waiting === 0
  }

  /**
   * The upstream has left the configuration: the last limits still hold for waiting requests, because the vendor is the
   * same.
   */
  retire (): void {
    this.#isRetired = true
  }

  /**
   * Applies newer limits; undefined: none. Running requests go on, and those that began without limits are not counted.
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
    // Its turn is over, even where it is the only account: any other that waits comes first.
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
   * Makes room in a full queue: the newest request of the greediest account gives way, unless the newcomer's account
   * would be as greedy then: else two accounts would evict each other for ever.
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
   * Estimated milliseconds until one more request of this account would be admitted, at the pace at which places become
   * free: accounts take turns, so at most as many go first as wait.
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

/** Compares waiting requests; of equals, running ones. @param waiting of the other */
function isGreedier (one: Account, other: Account, waiting: number): boolean {
  return one.waiting > waiting || (one.waiting === waiting && one.running > other.running)
}
