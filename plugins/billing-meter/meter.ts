// The money of one exchange: held, extended while a stream runs, and settled or given back, once.
import { after, type Awaitable } from '../../src/base/awaitable.ts'
import { GatewayError } from '../../src/errors.ts'
import type { Exchange, Outcome } from '../../src/core/exchange.ts'
import { AbandonedCost, Accepted, ApiKey, Charge, Model, Variant, type Attempt } from '../../src/core/facts.ts'
import { dayOf, limitsOf } from '../../src/accounts/key-limits.ts'
import { MOST_RATE } from '../../src/tokens/text-count.ts'
import { costOfItems, costOfTokens } from '../../src/money/goods.ts'
import { itemCost, type ItemRate } from '../../src/money/item-price.ts'
import { formatUsd, type Nanos } from '../../src/money/nanos.ts'
import { priceAt } from '../../src/money/price-schedule.ts'
import { cost, flatVersion, outputCovered, unpricedExtras, wholeCost, worstCase,
  type CompiledPrice } from '../../src/money/price.ts'
import { isShown } from './shown-usage.ts'
import { Tally, type Ending } from './tally.ts'
import { noUsage, type Usage, type UsageSource } from '../../src/money/usage.ts'
import type { Services } from '../../src/core/services.ts'
import type { SseEvent } from '../../src/core/sse.ts'
import type { HoldResult, Settlement } from '../../src/store/store.ts'
import { cheaperOf, SLICE, type Bounds } from './bounds.ts'
import { imageUsage, rateFor, videoCost } from './items.ts'
import { advise, purseOf, refusalOf, type Owner, type Refusal } from './refusal.ts'

/** Tokens left of a slice when the next one is asked for: at 100 tokens a second the store has 20 seconds to answer. */
const EARLY = SLICE / 2
/** Tokens between two checkpoints of the hold and of the recorded progress. */
const STEP = 64
/**
 * Milliseconds between two progress records of one stream, and before the first: most streams are shorter, and the
 * store keeps one every two seconds.
 */
const PROGRESS_MS = 1000

export class Meter {
  /** tally of the last attempt: the one that is served, if any is */
  tally: Tally | undefined
  /** status of the answer, once it is there */
  status = 0
  /** tokens of output that the hold pays for: the stream is cut before it passes them */
  limit = Infinity
  /** tokens of output at the next checkpoint */
  nextCheckpoint = STEP
  /** images that the attempt has delivered */
  images = 0
  #rate: ItemRate | undefined
  readonly #exchange: Exchange
  readonly #services: Services
  readonly #bounds: Bounds
  readonly #lowBalance: Nanos
  /** earliest time of the next progress record, by `performance.now()`; 0: not asked for yet */
  #nextProgress = 0
  /** held at the store */
  #held = 0n
  /** most that a whole answer may cost: with the input that the upstream has reported, once it has */
  #need = 0n
  /** an extension in flight: one at a time, so that what is held here is what the store holds */
  #extending: Promise<void> | undefined
  /** the cost that the answer reports: from then on the hold stays as it is (src/README.md#reported-is-charged) */
  #reported: Nanos | undefined
  /** reason why the last extension was refused */
  #refused: Refusal | undefined
  #attempt: Attempt | undefined
  #price: CompiledPrice | undefined
  /** a hold in flight */
  #holding: Promise<void> | undefined
  #completed: Settlement | undefined
  /** the model's estimate has learned from this answer */
  #hasLearned = false
  /** latest outcome reported for the exchange */
  #outcome: Outcome | undefined
  /** `settle` was called: whatever its result, it may have charged something */
  #hasSettled = false
  /** a task that takes the hold is being recorded: the hold can't be given back meanwhile */
  #isOpening = false
  /** id of the task that has the hold now */
  #opened: string | undefined
  #isOver = false

  /** @param lowBalance while the balance is below it, the account's requests run one at a time */
  constructor (exchange: Exchange, services: Services, bounds: Bounds, lowBalance: Nanos) {
    this.#exchange = exchange
    this.#services = services
    this.#bounds = bounds
    this.#lowBalance = lowBalance
  }

  /** @throws {GatewayError} the balance or a limit does not cover it */
  hold ({ key, account }: ApiKey): Awaitable<void> {
    const { first, least, at } = this.#bounds
    const result = this.#exchange.ledger.hold({
      request_id: this.#exchange.id,
      account: account.id,
      key: key.id,
      nanos: first,
      low_balance: this.#lowBalance,
      day: dayOf(key, at),
      ...(least !== undefined && { least }),
      ...limitsOf(key)
    })
    if (result instanceof Promise) return this.#holding = this.#hear(result)
    this.#take(result)
  }

  async #hear (result: Promise<HoldResult>): Promise<void> {
    try {
      this.#take(await result)
    } finally {
      this.#holding = undefined
    }
  }

  #take (result: HoldResult): void {
    if (result.kind === 'refused') throw refusalOf(result, this.#owner)
    this.#held = result.nanos
  }

  get #owner (): Owner {
    const { key } = this.#exchange.get(ApiKey)
    return { key, lowBalance: this.#lowBalance, at: this.#bounds.at, cheaper: cheaperOf(this.#exchange) }
  }

  /** Makes a fresh tally for each attempt: the usage of a failed one is never charged. */
  begin (attempt: Attempt): Tally {
    this.#attempt = attempt
    this.#price = priceAt(attempt.sold, this.#bounds.at).price
    this.tally = new Tally(this.#services.tokenRates.of(attempt), this.#bounds.text?.believed)
    this.updatePaidTokens()
    return this.tally
  }

  /** Begins an attempt for images or a video. */
  beginItems (attempt: Attempt): void {
    this.#attempt = attempt
    this.images = 0
    this.#rate = rateFor(attempt, this.#exchange.get(Variant))
  }

  /** Called between two events of a stream, every `STEP` tokens. */
  checkpoint (tally: Tally): void {
    this.nextCheckpoint = tally.soFar + STEP
    if (this.limit - tally.soFar < EARLY) void this.#extend()
    const now = performance.now()
    if (this.#nextProgress === 0) this.#nextProgress = this.#exchange.record.started_at + PROGRESS_MS
    if (now < this.#nextProgress) return
    this.#nextProgress = now + PROGRESS_MS
    this.#noteProgress(tally.countSoFar())
      .catch((err: unknown) => { this.#noteTrouble(err, 'what a stream has produced could not be noted') })
  }

  async #noteProgress (usage: Usage): Promise<void> {
    const bill = this.#priced(usage, 'estimated')
    await this.#makeRoom(bill)
    if (this.#outcome === undefined) await this.#exchange.ledger.progress(bill)
  }

  /**
   * Called before an event is sent: extends the hold where it does not cover the event, so that a stream is cut with
   * the last event that can be paid for. Never rejects.
   * @returns a promise while the store is asked: the event has to wait for it
   */
  ready (tally: Tally, event: SseEvent): Promise<void> | undefined {
    if (tally.atMost + MOST_RATE * event.size <= this.limit) return undefined
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
   * Counts an event that is sent to the client.
   * @throws {GatewayError} with this event the answer would have more tokens than are paid for, or than it may have
   */
  deliver (tally: Tally, event: SseEvent): void {
    const ceiling = this.#bounds.text?.ceiling ?? Infinity
    const isOver = tally.reportedBehind > ceiling
    if (tally.deliver(event, isOver ? 0 : Math.min(this.limit, ceiling))) return
    throw isOver || this.limit >= ceiling ? this.#endless(ceiling) : this.#usedUp()
  }

  /** The error of a stream that its upstream does not end. */
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

  /** The error in a stream whose tokens until here are charged. */
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
    const owner = this.#owner
    const { name, cure } = purseOf(this.#refused, owner)
    const beside = others > 0n ? ` beside the $${formatUsd(others)} that running requests hold` : ''
    return new GatewayError('insufficient_quota', {
      message: `${unfinished} $${formatUsd(available)} that ${name} has for it${beside}. ${charged} ` +
        `${advise(cure, owner.cheaper)}`
    })
  }

  /** Extends the hold by a slice, or by what is left of the whole answer. Never rejects. */
  #extend (): Promise<void> | undefined {
    if (this.#reported !== undefined) return
    return this.#extending ?? this.#growBy(smaller(worstCase(0, SLICE, this.#price!), this.#need - this.#held))
  }

  /**
   * To be called while no extension is in flight. Never rejects.
   * @param isForBill the bill needs it; false: what is still to come may
   */
  #growBy (nanos: Nanos, isForBill = false): Promise<void> {
    return this.#extending = this.#grow(nanos).catch((err: unknown) => { this.#notExtended(err, isForBill) })
      .finally(() => { this.#extending = undefined })
  }

  /** Holds so much more, or all that is available. */
  async #grow (nanos: Nanos): Promise<void> {
    const result = await this.#exchange.ledger.extend(this.#exchange.id, nanos, 1n)
    if (result.kind === 'refused') { this.#refused = result; return }
    this.#held = result.nanos
    this.updatePaidTokens()
  }

  /** The next checkpoint tries again; without an answer by then, the stream is cut where the hold ends. */
  #notExtended (err: unknown, isForBill: boolean): void {
    if (isForBill || !this.#isOver && this.#outcome === undefined) this.#noteTrouble(err, 'a hold could not be extended')
  }

  #noteTrouble (err: unknown, what: string): void {
    this.#services.log.error({ request_id: this.#exchange.id, err }, what)
  }

  /** Recomputes the paid tokens after a change of the hold, or of the known input. */
  updatePaidTokens (): void {
    const { input, output, uses, text } = this.#bounds
    if (this.#price === undefined || text === undefined) return
    const known = this.tally?.reportedInput ?? input
    this.#need = wholeCost(known, output, this.#price, uses)
    // The whole answer is paid for; output that an upstream makes beyond max_tokens is held for at its end.
    this.limit = this.#held >= this.#need ? Infinity : outputCovered(this.#held, known, this.#price, uses)
  }

  /** Usage of a whole answer that is charged, where the answer does not say it. */
  get unshownUsage (): Usage | undefined {
    const told = this.tally?.told
    const bill = told && this.#billOf('completed')
    return bill === undefined || isShown(told?.shown, bill.usage) ? undefined : bill.usage
  }

  /**
   * The charge if the answer completes, for the answer to report: never more than the hold, which is extended for it.
   * Other requests may end before this one is settled; money that they give back then is not charged any more.
   */
  get completedCharge (): Awaitable<Nanos> {
    const bill = this.#billOf('completed')
    if (bill === undefined) return 0n
    const made = this.#makeRoom(bill)
    return made === undefined ? this.#report(bill) : this.#reportBehind(made, bill)
  }

  async #reportBehind (made: Promise<void>, bill: Settlement): Promise<Nanos> {
    await made
    while (this.#extending !== undefined) await this.#extending
    return this.#report(bill)
  }

  #report ({ nanos }: Settlement): Nanos {
    return this.#reported ??= smaller(nanos, this.#held)
  }

  /**
   * Settles or releases, once; after a throw it may be called again. Returns a promise only where the store or the
   * count does.
   */
  end (outcome: Outcome): Awaitable<void> {
    if (this.#isOver) {
      // A plugin below threw when the task was recorded: the client is told that there is none.
      if (outcome.kind === 'failed' && this.#opened !== undefined) return this.#services.videos.takeBack(this.#opened)
      return
    }
    if (this.#holding !== undefined) { this.#releaseAfter(this.#holding); return }
    this.#outcome = outcome
    if (outcome.kind === 'failed') this.#noteAbandoned(outcome.error)
    if (outcome.kind === 'failed' || this.#isFree) return this.#giveBack()
    const accepted = this.#exchange.find(Accepted)
    if (accepted !== undefined) return this.#open(accepted)
    const bill = this.#billOf(outcome.kind === 'completed' ? 'completed' : `cut by ${outcome.by}`)
    if (bill === undefined) return this.#giveBack()
    const made = this.#makeRoom(bill)
    return made === undefined ? this.#settle(bill) : this.#settleBehind(made, bill, outcome)
  }

  #settleBehind (made: Promise<void>, bill: Settlement, outcome: Outcome): Promise<void> {
    // During the extension hook_timeout may have made a failure of the outcome: a released hold must not be charged
    // after all.
    const isGivenBack = (): boolean => this.#isOver || this.#isFree || this.#outcome !== outcome
    return made.then(() => isGivenBack() ? undefined : this.#settle(bill))
  }

  /** Extends the hold to a bill above it, as far as balance and limits allow. Never throws, and never rejects. */
  #makeRoom ({ nanos }: Settlement): Promise<void> | undefined {
    if (nanos <= this.#held || this.#bounds.text === undefined || this.#reported !== undefined) return
    return this.#growTo(nanos)
  }

  async #growTo (nanos: Nanos): Promise<void> {
    while (this.#extending !== undefined) await this.#extending
    if (nanos > this.#held && this.#reported === undefined) await this.#growBy(nanos - this.#held, true)
  }

  /**
   * Whether the client is told that nothing is charged: the exchange failed, or recording it took too long. A client
   * that has left is told nothing, and pays.
   */
  get #isFree (): boolean {
    const outcome = this.#outcome
    return outcome?.kind === 'failed' ||
      (this.#exchange.hasSettleFailed && !(outcome?.kind === 'interrupted' && outcome.by === 'client'))
  }

  #settle (bill: Settlement): Awaitable<void> {
    this.#hasSettled = true
    const charged = this.#exchange.ledger.settle(bill)
    return charged instanceof Promise ? this.#noteBehind(charged, bill) : this.#note(bill, charged)
  }

  #noteBehind (charged: Promise<Nanos>, bill: Settlement): Promise<void> {
    return charged.then((nanos) => this.#note(bill, nanos))
  }

  /** Opens the accepted task, with the hold: the task's watcher charges it when it is done. */
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
        if (this.#isFree) await this.#giveBack()              // an earlier release had to wait for the task
        throw thrown
      }
      this.#isOpening = false
      this.#isOver = true
      // It took too long: the client was told that there is no task.
      if (this.#isFree) await videos.takeBack(accepted.id)
      else this.#opened = accepted.id
    }
    return open()
  }

  /** What the operator may have to pay for an answer that its client did not wait for: its input, or its images. */
  #noteAbandoned ({ row }: GatewayError): void {
    const exchange = this.#exchange
    if (row !== 'client_closed' || !exchange.mayBeExecuting || exchange.find(AbandonedCost) !== undefined) return
    // A video is not given up with its client.
    const nanos = this.#rate === undefined ? this.#inputCost()
      : exchange.get(Model).kind === 'image' ? this.#bounds.most : undefined
    if (nanos !== undefined) exchange.set(AbandonedCost, nanos)
  }

  #inputCost (): Nanos | undefined {
    if (this.tally === undefined || this.#price === undefined) return undefined
    const usage = { ...noUsage, input: this.tally.estimateInput(this.#exchange) }
    return this.#costOf(usage) ?? cost(usage, this.#price)
  }

  #giveBack (): Awaitable<void> {
    if (this.#isOpening) return
    const { id, ledger } = this.#exchange
    return after(this.#hasSettled ? ledger.refund(id) : ledger.release(id), () => { this.#isOver = true })
  }

  /**
   * Releases a hold that was in flight when the request was aborted: a release now could be overtaken by it. Runs in
   * the background.
   */
  #releaseAfter (holding: Promise<void>): void {
    this.#isOver = true
    const release = (): Awaitable<void> => this.#exchange.ledger.release(this.#exchange.id)
    holding.then(release, release).catch((err: unknown) => {
      this.#services.log.error({ request_id: this.#exchange.id, err }, 'a hold could not be released')
    })
  }

  #note (bill: Settlement, charged: Nanos): Awaitable<void> {
    if (this.#isOver) return
    if (this.#isFree) return this.#giveBack()
    this.#isOver = true
    const cost = this.#costOf(bill.usage)
    this.#exchange.set(Charge, { nanos: charged, usage: bill.usage, source: bill.usage_source,
      ...(cost !== undefined && { cost }) })
    const { request_id, model } = bill
    const { log, metrics } = this.#services
    if (bill.nanos > charged) {
      metrics.shortfall(bill.nanos - charged)
      log.error({ request_id, model, shortfall_usd: formatUsd(bill.nanos - charged) },
        'an answer cost more than was held for it')
    }
    const extras = this.#price && unpricedExtras(bill.usage, this.#price)
    if (extras !== undefined && extras.length > 0) {
      log.error({ request_id, model, extras }, 'extras without a price were given away')
    }
  }

  /** Undefined: nothing to charge. */
  #billOf (ending: Ending): Settlement | undefined {
    if (ending !== 'completed') return this.#makeBill(ending)
    return this.#completed ??= this.#makeBill(ending)
  }

  #makeBill (ending: Ending): Settlement | undefined {
    const { id: requestId, route: { endpoint, name } } = this.#exchange
    if (endpoint.kind === 'forward') {
      // A download is charged as a whole, or for the part that the client wanted: its bytes are not counted. An error
      // is no answer, and neither is a redirect.
      if (
        (this.status >= 300 && this.status !== 304) || ending === 'cut by upstream' || ending === 'cut by gateway'
      ) return undefined
      return { request_id: requestId, nanos: this.#bounds.most, model: name, usage: noUsage, usage_source: 'provider',
        price_version: flatVersion(endpoint.price) }
    }
    if (this.#rate !== undefined) {
      const { id } = this.#exchange.get(Model)
      return { request_id: requestId, nanos: itemCost(this.#rate, this.images), model: id,
        channel: this.#attempt!.channel, usage: imageUsage(this.images), usage_source: 'provider',
        price_version: this.#rate.version }
    }
    if (this.tally === undefined) return undefined                          // the answer is a plugin's
    this.#learn(this.tally, ending)
    const hidden = ending === 'cut by client' ? this.#hiddenIn(this.tally) : 0
    const { usage, source } = this.tally.count(ending, this.#exchange, hidden)
    return this.#priced(usage, source)
  }

  /** Estimates the hidden output of an answer whose client left and whose upstream has not reported it. */
  #hiddenIn (tally: Tally): number {
    const visible = tally.uncovered
    if (visible === undefined) return 0
    const hidden = this.#services.tokenRates.hidden.of(this.#attempt!, this.#bounds.text!.mode, this.#account, visible)
    return Math.max(0, Math.min(hidden, Math.floor(this.#bounds.output - visible)))
  }

  get #account (): string {
    return this.#exchange.get(ApiKey).account.id
  }

  /** Learns from an answer once: a repeated report of the same answer is not a second one. */
  #learn (tally: Tally, ending: Ending): void {
    if (this.#hasLearned) return
    this.#hasLearned = true
    const { log, overheads, tokenRates } = this.#services
    const { upstream, model } = this.#attempt!
    const { lesson } = tally
    if (ending === 'completed' && lesson !== undefined) tokenRates.learn(this.#attempt!, lesson.text, lesson.reported)
    const parts = ending === 'completed' ? tally.parts : undefined
    if (parts !== undefined) {
      tokenRates.hidden.learn(this.#attempt!, this.#bounds.text!.mode, this.#account, parts.visible, parts.hidden)
    }
    const said = tally.reportedTokens
    if (said > 0) {
      const { context } = this.#exchange.get(Model)
      overheads.learn(this.#attempt!, this.#bounds.text!.input, said, context, this.#account)
    }
    if (tally.isAbsurd) {
      log.error({ request_id: this.#exchange.id, upstream, model },
        'an upstream reported more than its model can have: that is not charged, but estimated')
    }
    if (tally.isOfPasses) {
      log.error({ request_id: this.#exchange.id, upstream, model },
        'an upstream counted passes that its totals leave out: the sum of its passes is charged')
    }
  }

  #priced (usage: Usage, source: UsageSource): Settlement {
    return { request_id: this.#exchange.id, nanos: cost(usage, this.#price!), model: this.#exchange.get(Model).id,
      channel: this.#attempt!.channel, usage, usage_source: source, price_version: this.#price!.version }
  }

  /** Undefined: the target does not say. */
  #costOf (usage: Usage): Nanos | undefined {
    const written = this.#attempt?.cost
    if (this.#rate === undefined) return costOfTokens(usage, written)
    return costOfItems(this.#exchange.get(Variant), written, this.images)
  }
}

function smaller (a: Nanos, b: Nanos): Nanos {
  return a < b ? a : b
}
