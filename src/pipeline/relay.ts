// A committed stream: each event up the list, synchronously; the end only when it is settled.
import type { Answer, CommittedStream, StreamListener } from './attempt.ts'
import type { Client } from './client.ts'
import { errorEvents, fail, interrupted, settle, settleAnyway } from './ending.ts'
import { GatewayError, toGatewayError } from '../errors.ts'
import type { Routed } from '../core/endpoint.ts'
import type { Outcome } from '../core/exchange.ts'
import type { Attempt } from '../core/facts.ts'
import { callHook, unwaited } from '../core/hooks.ts'
import { isTerminal, writtenBy } from '../protocols/messages.ts'
import type { StreamTransformer } from '../core/plugin.ts'
import { hearRejection } from '../base/awaitable.ts'
import { Alarm } from '../base/wheel.ts'
import { SseEvent } from '../core/sse.ts'

/**
 * Characters of an answer that may come after its client has left: more of them are an answer that is not near its end
 * (src/README.md#charge-delivered).
 */
const REST = 1024

export function relay (
  exchange: Routed,
  client: Client,
  answer: Extract<Answer, { kind: 'stream' }>
): Promise<Outcome> {
  return new Promise((resolve) => {
    new Relay(exchange, client, answer, resolve).start()
  })
}

/** A transformer that may hold the stream back. */
interface Guard {
  readonly plugin: string
  ready (event: SseEvent): Promise<void> | undefined
}

class Relay implements StreamListener {
  readonly #exchange: Routed
  readonly #client: Client
  readonly #stream: CommittedStream
  readonly #attempt: Attempt
  readonly #resolve: (outcome: Outcome | Promise<Outcome>) => void
  readonly #transformers: StreamTransformer[] = []
  readonly #guards: Guard[] = []
  /** events that wait for a guard; how the stream broke off meanwhile, if it did */
  #waiting: SseEvent[] | undefined
  #broken: { readonly error: GatewayError, readonly by: 'upstream' | 'gateway' } | undefined
  /** the client takes no more for now */
  #isFull = false
  #isOver = false
  /** the client has left: the upstream is read for its usage alone */
  #left: GatewayError | undefined
  #usageAlarm: Alarm | undefined
  /** characters that came after the client had left */
  #dropped = 0
  #onAbort: (() => void) | undefined
  #onDrain: (() => void) | undefined

  constructor (
    exchange: Routed,
    client: Client,
    { stream, attempt }: Extract<Answer, { kind: 'stream' }>,
    resolve: (outcome: Outcome | Promise<Outcome>) => void
  ) {
    this.#exchange = exchange
    this.#client = client
    this.#stream = stream
    this.#attempt = attempt
    this.#resolve = resolve
  }

  start (): void {
    try {
      this.#openTransformers()
    } catch (thrown) {
      this.#stream.abort()
      this.#resolve(fail(this.#exchange, this.#client, { kind: 'failed', error: toGatewayError(thrown) }))
      return
    }
    this.#listenToClient()
    const reason = this.#exchange.abortReason
    if (reason !== undefined) { void this.#cut(...causeOf(reason)); return }
    this.#client.startStream()
    this.#stream.listen(this)
  }

  #openTransformers (): void {
    for (const { plugin, call } of this.#exchange.route.hooks.onStream) {
      const transformer = unwaited(call(this.#exchange), this.#exchange)
      if (transformer === undefined) continue
      this.#transformers.push(transformer)
      if (transformer.ready !== undefined) this.#guards.push({ plugin, ready: transformer.ready.bind(transformer) })
    }
  }

  #listenToClient (): void {
    const onAbort = (): void => { this.#leave() }
    const onDrain = (): void => {
      this.#isFull = false
      if (this.#waiting === undefined) this.#stream.resume()
    }
    this.#onAbort = onAbort
    this.#onDrain = onDrain
    this.#exchange.onAbort(onAbort)
  }

  #leave (): void {
    if (this.#isOver) return
    const reason = this.#exchange.abortReason!
    const waiting = this.#waiting
    const hasEnded = this.#broken !== undefined || (waiting !== undefined && isTerminal(waiting.at(-1)!))
    const { usage } = this.#exchange.snapshot.upstreams.get(this.#attempt.upstream)!.config.timeouts
    if (reason.row === 'client_closed' && usage > 0 && !hasEnded) this.#awaitUsage(reason, usage)
    else void this.#cut(...causeOf(reason))
  }

  /**
   * Reads on without the client. The upstream reports at its end what the answer costs, with thoughts that nobody was
   * shown. Nothing is kept or sent.
   */
  #awaitUsage (left: GatewayError, ms: number): void {
    this.#left = left
    this.#waiting = undefined
    this.#client.abandon()
    const end = (): void => { void this.#cut('client', left) }
    this.#usageAlarm = new Alarm(end)
    this.#usageAlarm.set(ms)
    this.#exchange.endWait = end
    this.#stream.resume()
  }

  #drop (events: readonly SseEvent[], left: GatewayError): void {
    for (const event of events) {
      if (isTerminal(event)) { void this.#cut('client', left, true); return }
      this.#dropped += writtenBy(event).length
    }
    if (this.#dropped > REST) void this.#cut('client', left)
  }

  onEvents (events: readonly SseEvent[]): void {
    if (this.#isOver) return
    if (this.#left !== undefined) this.#drop(events, this.#left)
    else if (this.#waiting === undefined) this.#take(events, false)
    else this.#waiting.push(...events)
  }

  onCut (error: GatewayError, by: 'upstream' | 'gateway'): void {
    if (this.#left !== undefined) void this.#cut('client', this.#left)
    else if (this.#waiting === undefined) void this.#cut(by, error)
    else this.#broken ??= { error, by }                       // the events before it go to the client first
  }

  /** @param isReady the first event has passed the guards */
  #take (events: readonly SseEvent[], isReady: boolean): void {
    const out: SseEvent[] = []
    let isLast = false
    let good = 0
    try {
      for (let i = 0; i < events.length; i++) {
        const event = events[i]!
        good = out.length
        this.#exchange.ownEvents?.mark()
        const held = isReady && i === 0 ? undefined : this.#askGuards(event)
        if (held !== undefined) { this.#waiting = events.slice(i); void this.#wait(held); break }
        pass(this.#transformers, 0, event, out)
        isLast = isTerminal(event)
      }
      if (isLast) close(this.#transformers, out)
    } catch (thrown) {
      // The client gets the events before it in the same chunk, so that the result does not depend on the chunks.
      this.#client.events(out.slice(0, good), () => {})
      this.#takeBack()
      void this.#cut('gateway', toGatewayError(thrown))
      return
    }
    if (isLast) { this.#isOver = true; void this.#complete(out, good); return }
    if (!this.#client.events(out, this.#onDrain!)) this.#isFull = true
    // Not behind the terminal event: the rest of the answer is read for a moment, so that the connection can be reused.
    if (this.#isFull || (this.#waiting !== undefined && !isTerminal(this.#waiting.at(-1)!))) this.#stream.pause()
  }

  #askGuards (event: SseEvent): Promise<void> | undefined {
    let held: Promise<void> | undefined
    for (const guard of this.#guards) {
      const one = guard.ready(event)
      if (one === undefined) continue
      const settled = Promise.resolve(callHook(one, guard.plugin, this.#exchange))
      settled.catch(() => {})                                 // a rejection is handled even if the next guard throws
      held = held === undefined ? settled : Promise.all([held, settled]).then(() => {})
    }
    return held
  }

  async #wait (held: Promise<void>): Promise<void> {
    try {
      await held
      const events = this.#waiting
      this.#waiting = undefined
      if (this.#isOver || events === undefined) return        // the client has left
      this.#take(events, true)
    } catch (thrown) {
      if (this.#left === undefined) void this.#cut('gateway', toGatewayError(thrown))
      return
    }
    if (this.#isOver || this.#left !== undefined || this.#waiting !== undefined) return
    if (this.#broken !== undefined) void this.#cut(this.#broken.by, this.#broken.error)
    else if (!this.#isFull) this.#stream.resume()
  }

  async #complete (last: readonly SseEvent[], good: number): Promise<void> {
    const outcome: Outcome = { kind: 'completed', served: this.#attempt }
    try {
      const settled = settle(this.#exchange, outcome)
      if (settled !== undefined) await settled
    } catch (thrown) {
      // A settlement that fails to persist fails the response: a final event is never delivered uncharged.
      this.#unlisten()
      this.#client.events(last.slice(0, good), () => {})
      this.#takeBack()
      this.#resolve(await fail(this.#exchange, this.#client, { kind: 'failed', error: toGatewayError(thrown) }))
      return
    }
    try {
      await this.#client.endStream(last)
      this.#resolve(outcome)
    } catch (thrown) {
      this.#resolve(interrupted(this.#exchange, this.#attempt, 'client', thrown))
    }
    this.#unlisten()
  }

  /** A plugin that throws here must not keep the client from the error. */
  #takeBack (): void {
    try {
      this.#exchange.ownEvents?.takeBack()
    } catch (err) {
      this.#exchange.snapshot.services.log.error({ request_id: this.#exchange.id, err },
        'a plugin threw while it took back what was not sent')
    }
  }

  /** @param isWhole the upstream has ended its answer: its connection can be used again */
  async #cut (by: 'client' | 'upstream' | 'gateway', error: GatewayError, isWhole = false): Promise<void> {
    if (this.#isOver) return
    this.#isOver = true
    this.#unlisten()
    this.#usageAlarm?.off()
    if (!isWhole) this.#stream.abort()
    const outcome: Outcome = { kind: 'interrupted', served: this.#attempt, by, error }
    await settleAnyway(this.#exchange, outcome)
    this.#exchange.record.status = 200
    try {
      if (by !== 'client') await this.#client.endStream(errorEvents(error, this.#exchange, outcome))
    } catch {
      // The client left during the write: the outcome stays what it was.
    }
    this.#resolve(outcome)
  }

  #unlisten (): void {
    this.#exchange.offAbort(this.#onAbort!)
  }
}

/** Who ends a stream that is aborted, and the error for the client. */
function causeOf (reason: GatewayError): ['client' | 'gateway', GatewayError] {
  return reason.row === 'client_closed' ? ['client', reason]
    : ['gateway', new GatewayError('stream_incomplete', { cause: reason })]
}

/** Passes one event through the transformers from `from` on. */
function pass (transformers: readonly StreamTransformer[], from: number, event: SseEvent, out: SseEvent[]): void {
  for (let i = from; i < transformers.length; i++) {
    const made = transformers[i]!.event(event)
    if (made === undefined) return
    if (made instanceof Array) {
      for (const one of made) pass(transformers, i + 1, checked(one), out)
      return
    }
    event = checked(made)
  }
  out.push(event)
}

/** @throws {TypeError} a hook made no event, such as a promise: it would otherwise fail only when bytes are written */
function checked (made: unknown): SseEvent {
  if (made instanceof SseEvent) return made
  hearRejection(made, () => {})
  throw new TypeError('a transformer gave something that is not an event')
}

/** Ends the transformers: the last events of each go through those above it. */
function close (transformers: readonly StreamTransformer[], out: SseEvent[]): void {
  transformers.forEach((transformer, i) => {
    const events = hearRejection(transformer.end?.() ?? [], () => {})
    for (const event of events) pass(transformers, i + 1, checked(event), out)
  })
}
