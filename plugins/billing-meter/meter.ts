// The money of one exchange: held, extended while a stream runs, and settled or given back, once.
import { after, type Awaitable } from '../../src/base/awaitable.ts'
import { GatewayError } from '../../src/errors.ts'
import type { Exchange, Outcome } from '../../src/core/exchange.ts'
import { Accepted, ApiKey, Charge, Model, Variant, type Attempt } from '../../src/core/facts.ts'
import { limitsOf } from '../../src/accounts/key-limits.ts'
import { estimateInput } from '../../src/tokens/bound.ts'
import { MOST_RATE } from '../../src/tokens/text-count.ts'
import { itemCost, type ItemRate } from '../../src/money/item-price.ts'
import { formatUsd, type Nanos } from '../../src/money/nanos.ts'
import { priceAt } from '../../src/money/price-schedule.ts'
import { cost, dearestAmount, flatVersion, inputAmount, outputCovered, unpricedExtras, wholeCost, worstCase,
  type CompiledPrice } from '../../src/money/price.ts'
import { inputTokens, Tally, type Ending } from './tally.ts'
import { noUsage, type Usage, type UsageSource } from '../../src/money/usage.ts'
import type { Services } from '../../src/core/services.ts'
import type { SseEvent } from '../../src/core/sse.ts'
import type { Settlement } from '../../src/store/store.ts'
import { SLICE, type Bounds } from './bounds.ts'
import { imageUsage, rateFor, videoCost } from './items.ts'
import { advise, heldBy, purseOf, type Owner, type Refusal } from './refusal.ts'

/**
 * How many of them must be left when the next slice is asked for: at 100 tokens a second a store has 20 seconds to
 * answer.
 */
const EARLY = SLICE / 2
/** How many tokens go out between two looks: at the hold, and at what a kill would be charged. */
const STEP = 64
/**
 * Between two such records of one stream, and before the first: most streams are shorter, and the store keeps one every
 * two seconds.
 */
const PROGRESS_MS = 1000

interface Bill extends Omit<Settlement, 'request_id'> {}

export class Meter {
  /** of the attempt that was begun last: the one that is served, if any is */
  tally: Tally | undefined
  /** of the answer, once it is there */
  status = 0
  /** tokens of output that are paid for by what is held: the stream is cut before it passes them */
  limit = Infinity
  /** tokens of output at which `look` has something to do */
  nextCheckpoint = STEP
  /** that the attempt has delivered */
  images = 0
  #rate: ItemRate | undefined
  readonly #exchange: Exchange
  readonly #services: Services
  readonly #bounds: Bounds
  /** the earliest moment to record what a kill would be charged, by `performance.now()` */
  #nextProgress = performance.now() + PROGRESS_MS
  /** of which the store knows */
  #held = 0n
  /** what a whole answer may cost, as far as is known: with the input that the upstream has reported, once it has */
  #need = 0n
  /** an extension that the store has not answered yet */
  #extending: Promise<void> | undefined
  /** what has refused the last extension */
  #refused: Refusal | undefined
  #owner: Owner | undefined
  #attempt: Attempt | undefined
  #price: CompiledPrice | undefined
  /** a hold that the store has not answered yet */
  #holding: Promise<void> | undefined
  #completed: Bill | undefined
  /** What it has reported was learned. */
  #hasLearned = false
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
    const result = this.#exchange.ledger.hold({
      request_id: this.#exchange.id,
      account: account.id,
      key: key.id,
      nanos: first,
      ...(least !== undefined && { least }),
      low_balance: lowBalance,
      ...limitsOf(key, at)
    })
    if (!(result instanceof Promise)) {
      this.#held = heldBy(result, owner)
      return
    }
    this.#holding = result.then((result) => {
      this.#held = heldBy(result, owner)
    }).finally(() => {
      this.#holding = undefined
    })
    return this.#holding
  }

  /** A fresh tally for each attempt: what a failed one used is never charged. */
  begin (attempt: Attempt): Tally {
    this.#attempt = attempt
    this.#price = priceAt(attempt.sold, this.#bounds.at).price
    this.nextCheckpoint = STEP
    this.tally = new Tally(this.#services.tokenRates.of(attempt), this.#bounds.text?.believed)
    this.updatePaidTokens()
    return this.tally
  }

  /** The same for images and videos. */
  beginItems (attempt: Attempt): void {
    this.#attempt = attempt
    this.images = 0
    this.#rate = rateFor(attempt, this.#exchange.get(Variant))
  }

  /** Between two events of a stream, every `STEP` tokens of it. */
  checkpoint (tally: Tally): void {
    this.nextCheckpoint = tally.soFar + STEP
    if (this.limit - tally.soFar < EARLY) void this.#extend()
    const now = performance.now()
    if (now < this.#nextProgress) return
    this.#nextProgress = now + PROGRESS_MS
    this.#noteProgress(tally.countSoFar())
      .catch((err: unknown) => { this.#noteTrouble(err, 'what a stream has produced could not be noted') })
  }

  async #noteProgress (usage: Usage): Promise<void> {
    const bill = this.#priced(usage, 'estimated')
    await this.#makeRoom(bill)
    if (this.#outcome === undefined) await this.#exchange.ledger.progress({ request_id: this.#exchange.id, ...bill })
  }

  /**
   * Before an event goes out: asks for more where that is not held for it. So a stream is cut with the last event that
   * can be paid for. Never rejects.
   * @returns a promise where somebody has to be asked; then the event has to wait for it
   */
  ready (tally: Tally, event: SseEvent): Promise<void> | undefined {
    if (tally.soFar + MOST_RATE * event.data.length <= this.limit) return undefined
    const tokens = tally.tokensWith(event)
    return tokens <= this.limit ? undefined : this.#makeWay(tokens)
  }

  async #makeWay (tokens: number): Promise<void> {
    while (tokens > this.limit && !this.#isOver && this.#outcome === undefined) {
      const before = this.#held
      await this.#extend()
      if (this.#held === before) return
    }
  }

  /**
   * What goes out to the client.
   * @throws {GatewayError} with this event the answer would have more than is paid for, or than it may have
   */
  deliver (tally: Tally, event: SseEvent): void {
    const ceiling = this.#bounds.text?.ceiling ?? Infinity
    const isOver = tally.reportedBehind > ceiling
    if (tally.deliver(event, isOver ? 0 : Math.min(this.limit, ceiling))) return
    throw isOver || this.limit >= ceiling ? this.#endless(ceiling) : this.#usedUp()
  }

  /** What the client hears of a stream that its upstream does not end. */
  #endless (ceiling: number): GatewayError {
    const { upstream, model } = this.#attempt!
    const { output } = this.#bounds
    const about = { request_id: this.#exchange.id, upstream, model, max_tokens: output, ceiling }
    this.#services.log.error(about, 'an upstream went on far beyond max_tokens: its answer was cut')
    const said =
      `The answer is unfinished: it may have ${output} tokens, its provider did not end it there, and it was cut ` +
      `before it had more than ${ceiling}. Only the tokens that came are charged. Send the request again.`
    return new GatewayError('stream_incomplete', { message: said })
  }

  /** What the client hears in the stream, whose tokens until here are charged. */
  #usedUp (): GatewayError {
    const unfinished = 'The answer is unfinished: with what comes next it would cost more than the'
    const charged = 'Only the tokens that came are charged.'
    if (this.#refused === undefined) {
      return new GatewayError('insufficient_quota', {
        message: `${unfinished} $${formatUsd(this.#held)} that are held for it, and no more could be held in time. ` +
          `${charged} Send the request again.`
      })
    }
    const { available, held_by_others: others } = this.#refused
    const { name, cure } = purseOf(this.#refused, this.#owner!)
    const beside = others > 0n ? ` beside the $${formatUsd(others)} that running requests hold` : ''
    return new GatewayError('insufficient_quota', {
      message: `${unfinished} $${formatUsd(available)} that ${name} has for it${beside}. ${charged} ` +
        `${advise(cure, this.#bounds.cheaper)}`
    })
  }

  /** Another slice, or what is left of it. Nobody asks twice at a time. Never rejects. */
  #extend (): Promise<void> {
    return this.#extending ??= this.#grow(smaller(worstCase(0, SLICE, this.#price!), this.#need - this.#held))
      .catch((err: unknown) => { this.#notExtended(err) }).finally(() => { this.#extending = undefined })
  }

  /** Holds so much more, or all that there is. */
  async #grow (nanos: Nanos): Promise<void> {
    const result = await this.#exchange.ledger.extend(this.#exchange.id, nanos, 1n)
    if (result.kind === 'refused') { this.#refused = result; return }
    this.#held = result.nanos
    this.updatePaidTokens()
  }

  /** The next look asks again; if nobody answers by then, the stream is cut where the hold ends. */
  #notExtended (err: unknown): void {
    if (!this.#isOver && this.#outcome === undefined) this.#noteTrouble(err, 'a hold could not be extended')
  }

  #noteTrouble (err: unknown, what: string): void {
    this.#services.log.error({ request_id: this.#exchange.id, err }, what)
  }

  /** What is held, or known of the input, has changed: so has what is paid for. */
  updatePaidTokens (): void {
    const { input, output, uses, text } = this.#bounds
    if (this.#price === undefined || text === undefined) return
    const said = this.tally?.reportedInput
    const amount = said === undefined ? dearestAmount(input, this.#price) : inputAmount(said, this.#price)
    this.#need = wholeCost(amount, output, this.#price, uses)
    // The whole answer is paid for; what an upstream makes beyond max_tokens nonetheless is held for at its end.
    this.limit = this.#held >= this.#need ? Infinity : outputCovered(this.#held, amount, this.#price, uses)
  }

  /**
   * What the client pays if nothing goes wrong from here: never more than what is held, which is made as much as it
   * needs.
   */
  get completedCharge (): Awaitable<Nanos> {
    const bill = this.#billOf('completed')
    return bill === undefined ? 0n : after(this.#makeRoom(bill), () => smaller(bill.nanos, this.#held))
  }

  /**
   * Settles or releases, once; after a throw it may be tried again. Returns a promise only where the store or the count
   * does.
   */
  end (outcome: Outcome): Awaitable<void> {
    if (this.#isOver) {
      // A plugin below threw when the task was recorded: the client hears that there is none.
      if (outcome.kind === 'failed' && this.#opened !== undefined) return this.#services.videos.takeBack(this.#opened)
      return
    }
    if (this.#holding !== undefined) { this.#releaseAfter(this.#holding); return }
    this.#outcome = outcome
    if (outcome.kind === 'failed' || this.#isFree) return this.#giveBack()
    const accepted = this.#exchange.find(Accepted)
    if (accepted !== undefined) return this.#open(accepted)
    const bill = this.#billOf(outcome.kind === 'completed' ? 'completed' : `cut by ${outcome.by}`)
    if (bill === undefined) return this.#giveBack()
    // While more was held, hook_timeout may have made a failure of it: what is given back must not be charged after
    // all.
    const isGivenBack = (): boolean => this.#isOver || this.#isFree || this.#outcome !== outcome
    return after(this.#makeRoom(bill), () => isGivenBack() ? undefined : this.#settle(bill))
  }

  /**
   * What the provider counted is more than was held for: the rest is held too, as far as balance and limits have it.
   * Never throws.
   */
  #makeRoom ({ nanos }: Bill): Awaitable<void> {
    if (nanos <= this.#held || this.#bounds.text === undefined) return
    return this.#grow(nanos - this.#held).catch((thrown: unknown) => {
      this.#noteTrouble(thrown, 'a hold could not be extended')
    })
  }

  /**
   * The client hears that it is charged nothing: it failed, or to record it took too long. Who has left is told
   * nothing, and pays.
   */
  get #isFree (): boolean {
    const outcome = this.#outcome
    return outcome?.kind === 'failed' ||
      (this.#exchange.hasSettleFailed && !(outcome?.kind === 'interrupted' && outcome.by === 'client'))
  }

  #settle (bill: Bill): Awaitable<void> {
    this.#hasSettled = true
    return after(this.#exchange.ledger.settle({ request_id: this.#exchange.id, ...bill }),
      (charged) => this.#note(bill, charged))
  }

  /**
   * What was accepted is charged when it is done, and holds until then what it will cost: whoever watches it settles
   * it.
   */
  #open (accepted: Accepted): Awaitable<void> {
    const { id: requestId } = this.#exchange
    const { key, account } = this.#exchange.get(ApiKey)
    const { tasks, videos } = this.#services
    this.#isOpening = true
    const open = async (): Promise<void> => {
      try {
        await tasks.openTask({ ...accepted, request_id: requestId, account: account.id, key: key.id,
          nanos: videoCost(this.#rate!, this.#exchange.get(Variant)) })
      } catch (thrown) {
        this.#isOpening = false
        if (this.#isFree) await this.#giveBack()              // who was told so before could not give it back yet
        throw thrown
      }
      this.#isOpening = false
      this.#isOver = true
      // It took too long: the client has heard that there is no task.
      if (this.#isFree) await videos.takeBack(accepted.id)
      else this.#opened = accepted.id
    }
    return open()
  }

  #giveBack (): Awaitable<void> {
    if (this.#isOpening) return
    const { id, ledger } = this.#exchange
    return after(this.#hasSettled ? ledger.refund(id) : ledger.release(id), () => { this.#isOver = true })
  }

  /**
   * The request was given up while its hold was on the way: a release now could be overtaken by it. Nobody waits for
   * this one.
   */
  #releaseAfter (holding: Promise<void>): void {
    this.#isOver = true
    const release = (): Awaitable<void> => this.#exchange.ledger.release(this.#exchange.id)
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
      log.error({ ...about, shortfall_usd: formatUsd(bill.nanos - charged) },
        'an answer cost more than was held for it')
    }
    const unpriced = this.#price === undefined ? [] : unpricedExtras(bill.usage, this.#price)
    if (unpriced.length > 0) log.error({ ...about, extras: unpriced }, 'extras without a price were given away')
  }

  /** Undefined: there is nothing to charge for. */
  #billOf (ending: Ending): Bill | undefined {
    if (ending !== 'completed') return this.#makeBill(ending)
    return this.#completed ??= this.#makeBill(ending)
  }

  #makeBill (ending: Ending): Bill | undefined {
    const { endpoint, name } = this.#exchange.route
    if (endpoint.kind === 'forward') {
      // Its bytes are not counted: a whole answer, or one that the client did not want whole. An error is no answer,
      // and the way to another address none yet.
      if (
        (this.status >= 300 && this.status !== 304) || ending === 'cut by upstream' || ending === 'cut by gateway'
      ) return undefined
      return { nanos: this.#bounds.most, model: name, usage: noUsage, usage_source: 'provider',
        price_version: flatVersion(endpoint.price) }
    }
    if (this.#rate !== undefined) {
      const { id } = this.#exchange.get(Model)
      return { nanos: itemCost(this.#rate, this.images), model: id, channel: this.#attempt!.channel,
        usage: imageUsage(this.images), usage_source: 'provider', price_version: this.#rate.version }
    }
    if (this.tally === undefined) return undefined                          // a plugin answered, not an upstream
    const model = this.#exchange.get(Model)
    this.#learn(this.tally, ending)
    const { usage, source } = this.tally.count(ending, () => estimateInput(this.#exchange.request.body, model.context))
    return this.#priced(usage, source)
  }

  /** Once: what is said twice of the same answer is no second report. */
  #learn (tally: Tally, ending: Ending): void {
    if (this.#hasLearned) return
    this.#hasLearned = true
    const { log, overheads, tokenRates } = this.#services
    const { upstream, model } = this.#attempt!
    const { lesson } = tally
    if (ending === 'completed' && lesson !== undefined) tokenRates.learn(this.#attempt!, lesson.text, lesson.reported)
    const said = tally.reportedInput
    if (said !== undefined) overheads.learn(this.#attempt!, this.#bounds.text!.input, inputTokens(said))
    if (tally.isAbsurd) {
      log.error({ request_id: this.#exchange.id, upstream, model },
        'an upstream reported more than its model can have: that is not charged, but estimated')
    }
  }

  #priced (usage: Usage, source: UsageSource): Bill {
    return { nanos: cost(usage, this.#price!), model: this.#exchange.get(Model).id, channel: this.#attempt!.channel,
      usage, usage_source: source, price_version: this.#price!.version }
  }
}

function smaller (a: Nanos, b: Nanos): Nanos {
  return a < b ? a : b
}
