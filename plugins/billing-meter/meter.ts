// The money of one exchange: held, extended while a stream runs, and settled or given back, once.
import { after } from '../../src/after.ts'
import { GatewayError } from '../../src/errors.ts'
import type { Exchange, Outcome } from '../../src/exchange.ts'
import { Accepted, ApiKey, Charge, Model, Variant, type Attempt } from '../../src/facts.ts'
import { limitsOf } from '../../src/key-limits.ts'
import { estimateInput } from '../../src/money/bound.ts'
import { itemCost, type ItemRate } from '../../src/money/item-price.ts'
import { formatUsd, type Nanos } from '../../src/money/nanos.ts'
import { priceAt } from '../../src/money/price-in-force.ts'
import { cost, flatVersion, outputCovered, unpricedExtras, worstCase, type CompiledPrice } from '../../src/money/price.ts'
import { Tally, type Ending } from '../../src/money/tally.ts'
import { noUsage, type Usage, type UsageSource } from '../../src/money/usage.ts'
import type { Awaitable } from '../../src/plugin.ts'
import type { Services } from '../../src/services.ts'
import type { HoldResult, Settlement } from '../../src/store/store.ts'
import { SLICE, type Bounds } from './bounds.ts'
import { imageUsage, rateFor, videoCost } from './items.ts'
import { heldBy, purseOf, type Owner, type Refusal } from './refusal.ts'

/** How many of them must be left when the next slice is asked for: at 100 tokens a second a store has 20 seconds to answer. */
const EARLY = SLICE / 2
/** How many tokens go out between two looks: at the hold, and at what a kill would be charged. */
const STEP = 64
/** Between two such counts of one stream, and before the first: most streams are shorter, and the store keeps one every two seconds. */
const PROGRESS_MS = 1000

interface Bill extends Omit<Settlement, 'request_id'> {}

export class Meter {
  /** of the attempt that was begun last: the one that is served, if any is */
  tally: Tally | undefined
  /** of the answer, once it is there */
  status = 0
  /** tokens of output that are paid for by what is held: the stream is cut before it passes them */
  covered = Infinity
  /** tokens of output at which `look` has something to do */
  nextLook = STEP
  /** that the attempt has delivered */
  images = 0
  #rate: ItemRate | undefined
  readonly #exchange: Exchange
  readonly #services: Services
  readonly #bounds: Bounds
  /** the earliest moment to count what a kill would be charged, by `performance.now()` */
  #nextProgress = performance.now() + PROGRESS_MS
  /** of which the store knows */
  #held = 0n
  /** an extension that the store has not answered yet */
  #isExtending = false
  /** what has refused the last extension */
  #refused: Refusal | undefined
  #owner: Owner | undefined
  #attempt: Attempt | undefined
  #price: CompiledPrice | undefined
  /** a hold that the store has not answered yet */
  #holding: Promise<void> | undefined
  #completed: Awaitable<Bill | undefined>
  /** what was said last about how it ends */
  #outcome: Outcome | undefined
  /** The store was asked to settle: whatever it has answered, or will, it may have taken something. */
  #hasSettled = false
  /** A task is being recorded that takes the hold: it can't be given back meanwhile. */
  #isOpening = false
  /** id of the task that has the hold now */
  #opened: string | undefined
  #isOver = false

  constructor (exchange: Exchange, services: Services, bounds: Bounds) {
    this.#exchange = exchange
    this.#services = services
    this.#bounds = bounds
  }

  /** @throws {GatewayError} there is not enough */
  hold ({ key, account }: ApiKey, lowBalance: Nanos): Awaitable<void> {
    const { first, least, at, cheaper } = this.#bounds
    const owner = this.#owner = { key, lowBalance, at, cheaper }
    const result = this.#services.store.hold({
      request_id: this.#exchange.id,
      account: account.id,
      key: key.id,
      nanos: first,
      ...(least !== undefined && { least }),
      low_balance: lowBalance,
      ...limitsOf(key, at)
    })
    if (!(result instanceof Promise)) { this.#held = heldBy(result, owner); return }
    this.#holding = result.then((result) => { this.#held = heldBy(result, owner) }).finally(() => { this.#holding = undefined })
    return this.#holding
  }

  /** A fresh tally for each attempt: what a failed one used is never charged. */
  begin (attempt: Attempt): Tally {
    this.#attempt = attempt
    this.#price = priceAt(attempt.sold, this.#bounds.at).price
    this.tally?.drop()
    this.nextLook = STEP
    this.#cover()
    return this.tally = new Tally(this.#services.tokens)
  }

  /** The same for images and videos. */
  beginItems (attempt: Attempt): void {
    this.#attempt = attempt
    this.images = 0
    this.#rate = rateFor(attempt, this.#exchange.get(Variant))
  }

  /** Between two events of a stream, every `STEP` tokens of it. */
  look (tally: Tally): void {
    this.nextLook = tally.soFar + STEP
    if (this.covered - tally.soFar < EARLY) this.extend()
    const now = performance.now()
    if (now < this.#nextProgress) return
    this.#nextProgress = now + PROGRESS_MS
    this.#noteProgress(tally).catch((err: unknown) => { this.#noteTrouble(err, 'what a stream has produced could not be noted') })
  }

  async #noteProgress (tally: Tally): Promise<void> {
    const usage = await tally.countSoFar()
    if (tally !== this.tally || this.#outcome !== undefined) return
    await this.#services.store.progress({ request_id: this.#exchange.id, ...this.#priced(usage, 'estimated') })
  }

  /** What the client hears in the stream, whose tokens until here are charged. */
  usedUp (): GatewayError {
    const { name, cure } = purseOf(this.#refused ?? { by: 'balance' }, this.#owner!)
    const why = this.#refused === undefined ? 'no more could be held in time' : `${name} has $${formatUsd(this.#refused.available)} for it`
    return new GatewayError('insufficient_quota', { message: `The answer is unfinished: the $${formatUsd(this.#held)} that were held for it are used up, and ${why}. To get a whole one ${cure}, or lower max_tokens.` })
  }

  /** Another slice, or what is left of it. @returns whether it is there already */
  extend (): boolean {
    if (this.#isExtending) return false
    const before = this.#held
    this.#isExtending = true
    const slice = smaller(worstCase(0, SLICE, this.#price!), this.#bounds.most - this.#held)
    const rest = (refused: HoldResult): Awaitable<HoldResult> => {
      if (refused.kind === 'held') return refused
      const left = refused.available - this.#held
      return left > 0n ? this.#services.store.extend(this.#exchange.id, left) : refused
    }
    const note = (result: HoldResult): void => {
      this.#isExtending = false
      if (result.kind === 'refused') { this.#refused = result; return }
      this.#held = result.nanos
      this.#cover()
    }
    try {
      const asked = after(after(this.#services.store.extend(this.#exchange.id, slice), rest), note)
      if (asked instanceof Promise) asked.catch((err: unknown) => { this.#notExtended(err) })
    } catch (thrown) {
      this.#notExtended(thrown)
    }
    return this.#held > before
  }

  /** The next look asks again; if nobody answers by then, the stream is cut where the hold ends. */
  #notExtended (err: unknown): void {
    this.#isExtending = false
    if (!this.#isOver && this.#outcome === undefined) this.#noteTrouble(err, 'a hold could not be extended')
  }

  #noteTrouble (err: unknown, what: string): void {
    this.#services.log.error({ request_id: this.#exchange.id, err }, what)
  }

  #cover (): void {
    const { input, output, uses, most } = this.#bounds
    const covered = this.#held >= most || this.#price === undefined ? Infinity : outputCovered(this.#held, input, this.#price, uses)
    this.covered = covered >= output ? Infinity : covered          // the whole answer is paid for; the upstream keeps to max_tokens
  }

  /** What the client pays if nothing goes wrong from here: never more than what is held. */
  get completedCharge (): Awaitable<Nanos> {
    return after(this.#billOf('completed'), (bill) => {
      const nanos = bill?.nanos ?? 0n
      return smaller(nanos, this.#held)
    })
  }

  /** Settles or releases, once; after a throw it may be tried again. Returns a promise only where the store or the count does. */
  end (outcome: Outcome): Awaitable<void> {
    if (this.#isOver) {
      // A plugin below threw when the task was recorded: the client hears that there is none.
      if (outcome.kind === 'failed' && this.#opened !== undefined) return this.#services.videos.takeBack(this.#opened)
      return
    }
    if (this.#holding !== undefined) { this.#releaseAfter(this.#holding); return }
    this.#outcome = outcome
    if (outcome.kind === 'failed' || this.#isFree) {
      this.tally?.drop()
      return this.#giveBack()
    }
    const accepted = this.#exchange.find(Accepted)
    if (accepted !== undefined) return this.#open(accepted)
    return after(this.#billOf(outcome.kind === 'completed' ? 'completed' : `cut by ${outcome.by}`), (bill) => {
      // While it was counted, hook_timeout made a failure of it: what is given back must not be charged after all.
      if (this.#isOver || this.#isFree || this.#outcome !== outcome) return
      if (bill === undefined) return this.#giveBack()
      if (bill.nanos > this.#held && this.#held < this.#bounds.most) return this.#makeRoom(bill.nanos).then(() => this.#isOver || this.#isFree || this.#outcome !== outcome ? undefined : this.#settle(bill))
      return this.#settle(bill)
    })
  }

  /** What the provider counted is more than was seen of it: the rest is held too, as far as all of max_tokens would have been. */
  async #makeRoom (nanos: Nanos): Promise<void> {
    try {
      const { store } = this.#services
      const result = await store.extend(this.#exchange.id, smaller(nanos, this.#bounds.most) - this.#held)
      if (result.kind === 'refused' && result.available > this.#held) await store.extend(this.#exchange.id, result.available - this.#held)
    } catch (thrown) {
      this.#noteTrouble(thrown, 'a hold could not be extended')
    }
  }

  /** The client hears that it is charged nothing: it failed, or to record it took too long. Who has left is told nothing, and pays. */
  get #isFree (): boolean {
    const outcome = this.#outcome
    return outcome?.kind === 'failed' || (this.#exchange.hasSettleFailed && !(outcome?.kind === 'interrupted' && outcome.by === 'client'))
  }

  #settle (bill: Bill): Awaitable<void> {
    this.#hasSettled = true
    return after(this.#services.store.settle({ request_id: this.#exchange.id, ...bill }), (charged) => this.#note(bill, charged))
  }

  /** What was accepted is charged when it is done, and holds until then what it will cost: whoever watches it settles it. */
  #open (accepted: Accepted): Awaitable<void> {
    const { id: requestId } = this.#exchange
    const { key, account } = this.#exchange.get(ApiKey)
    const { tasks, videos } = this.#services
    this.#isOpening = true
    const open = async (): Promise<void> => {
      try {
        await tasks.openTask({ ...accepted, request_id: requestId, account: account.id, key: key.id, nanos: videoCost(this.#rate!, this.#exchange.get(Variant)) })
      } catch (thrown) {
        this.#isOpening = false
        if (this.#isFree) await this.#giveBack()              // who was told so before could not give it back yet
        throw thrown
      }
      this.#isOpening = false
      this.#isOver = true
      if (this.#isFree) await videos.takeBack(accepted.id)     // it took too long: the client has heard that there is no task
      else this.#opened = accepted.id
    }
    return open()
  }

  #giveBack (): Awaitable<void> {
    if (this.#isOpening) return
    const { store } = this.#services
    const { id } = this.#exchange
    return after(this.#hasSettled ? store.refund(id) : store.release(id), () => { this.#isOver = true })
  }

  /** The request was given up while its hold was on the way: a release now could be overtaken by it. Nobody waits for this one. */
  #releaseAfter (holding: Promise<void>): void {
    this.#isOver = true
    const release = (): Awaitable<void> => this.#services.store.release(this.#exchange.id)
    holding.then(release, release).catch((err: unknown) => {
      this.#services.log.error({ request_id: this.#exchange.id, err }, 'a hold could not be released')
    })
  }

  #note (bill: Bill, charged: Nanos): Awaitable<void> {
    if (this.#isOver) return
    if (this.#isFree) return this.#giveBack()
    this.#isOver = true
    this.#exchange.set(Charge, { nanos: charged, usage: bill.usage, source: bill.usage_source })
    const about = { request_id: this.#exchange.id, model: bill.model }
    const { log, metrics } = this.#services
    if (bill.nanos > charged) {
      metrics.shortfall(bill.nanos - charged)
      log.error({ ...about, shortfall_usd: formatUsd(bill.nanos - charged) }, 'an answer cost more than was held for it')
    }
    const unpriced = this.#price === undefined ? [] : unpricedExtras(bill.usage, this.#price)
    if (unpriced.length > 0) log.error({ ...about, extras: unpriced }, 'extras without a price were given away')
  }

  /** Undefined: there is nothing to charge for. */
  #billOf (ending: Ending): Awaitable<Bill | undefined> {
    if (ending !== 'completed') return this.#makeBill(ending)
    return this.#completed ??= this.#makeBill(ending)
  }

  #makeBill (ending: Ending): Awaitable<Bill | undefined> {
    const { endpoint, name } = this.#exchange.route
    if (endpoint.kind === 'forward') {
      // Its bytes are not counted: a whole answer, or one that the client did not want whole. An error is no answer, and the way to
      // another address none yet (spec 1).
      if ((this.status >= 300 && this.status !== 304) || ending === 'cut by upstream' || ending === 'cut by gateway') return undefined
      return { nanos: this.#bounds.most, model: name, usage: noUsage, usage_source: 'provider', price_version: flatVersion(endpoint.price) }
    }
    if (this.#rate !== undefined) {
      const { id } = this.#exchange.get(Model)
      return { nanos: itemCost(this.#rate, this.images), model: id, channel: this.#attempt!.channel, usage: imageUsage(this.images), usage_source: 'provider', price_version: this.#rate.version }
    }
    if (this.tally === undefined) return undefined                          // a plugin answered, not an upstream
    const model = this.#exchange.get(Model)
    const counted = this.tally.count(ending, () => estimateInput(this.#exchange.request.body, model.context))
    return after(counted, ({ usage, source }) => this.#priced(usage, source))
  }

  #priced (usage: Usage, source: UsageSource): Bill {
    return { nanos: cost(usage, this.#price!), model: this.#exchange.get(Model).id, channel: this.#attempt!.channel, usage, usage_source: source, price_version: this.#price!.version }
  }
}

function smaller (a: Nanos, b: Nanos): Nanos {
  return a < b ? a : b
}
