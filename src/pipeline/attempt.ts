// One attempt at one target: from the request in the inner language to the commit. Its state is its own; an earlier
// attempt leaves none in it.
import type { IncomingHttpHeaders } from 'node:http'
import { modalities } from '../config/sections/modalities.ts'
import type { Awaitable } from '../base/awaitable.ts'
import { atEndOfTurn } from '../base/end-of-turn.ts'
import { type Json, parseOr } from '../base/json.ts'
import { mark } from '../base/stall-marks.ts'
import { GatewayError, isGatewayError, toGatewayError } from '../errors.ts'
import type { Routed } from '../core/endpoint.ts'
import { credentialFaultIn } from '../core/credential-fault.ts'
import type { Attempt } from '../core/facts.ts'
import { nameFailure, callHook, unwaited } from '../core/hooks.ts'
import { commits, isEmptyReply, isError, isPing, isTerminal } from '../protocols/messages.ts'
import type { AttemptHooks, StreamTransformer, UpstreamFailure, UpstreamRequest } from '../core/plugin.ts'
import { SharedChunks } from '../core/body-memory.ts'
import { modalityOfBodies } from '../core/route.ts'
import type { BodyThreads } from '../core/body-step.ts'
import { json, type JsonReply } from '../core/reply.ts'
import { DECIDING, framingOf, withoutBlanks } from '../core/framing.ts'
import { SseDecoder, type SseEvent } from '../core/sse.ts'
import { answerLimit, type Part, SMALL_ANSWER } from '../core/answer-memory.ts'
import { type CallListener, type CallRequest, UpstreamCall } from '../upstream/transport/call.ts'
import { UnfinishedAnswer, UnusableCall, UpstreamErrorBody } from '../upstream/dialects/error-reply.ts'
import type { StreamDecoder } from '../upstream/dialects/dialect.ts'
import { dialectOf } from '../upstream/dialects/index.ts'
import { EndOfAnswer, eventsOf, readAnswer } from '../upstream/dialects/whole-answer.ts'
import { withWholeCharacters } from '../upstream/dialects/whole-characters.ts'
import { EncodedRequest, encodeLarge, encodeRequest } from '../upstream/transport/encode-body.ts'
import { traceFor } from '../upstream/transport/headers.ts'
import type { Permit } from '../upstream/limits/permit.ts'
import type { Upstream } from '../core/upstream.ts'

/** The answer of a committed attempt. */
export type Answer =
  | { readonly kind: 'json', readonly attempt: Attempt, readonly reply: JsonReply }
  | { readonly kind: 'stream', readonly attempt: Attempt, readonly stream: CommittedStream }

/** The receiver of a committed stream. The last call is either `onEvents` with a terminal event, or `onCut`. */
export interface StreamListener {
  /** all events of one chunk of the upstream; a terminal event is the last one */
  onEvents (events: readonly SseEvent[]): void
  /** the stream broke off: by the upstream, or by a plugin that threw */
  onCut (error: GatewayError, by: 'upstream' | 'gateway'): void
}

export interface CommittedStream {
  /** Delivers the held events, then the events as they come. To be called once. */
  listen (listener: StreamListener): void
  pause (): void
  resume (): void
  abort (): void
}

/** Bytes of events that are held before the commit (src/README.md#commit). */
const HELD_LIMIT = 64 * 1024
/** Most bytes of a JSON answer: no model writes more. */
const REPLY_LIMIT = 64 * 1024 * 1024
/** The same of one that is converted to a stream, on the loop: two million tokens. */
const CONVERTED_LIMIT = 8 * 1024 * 1024
/** Bytes kept of an error's body. */
const ERROR_LIMIT = 64 * 1024
const NO_HEADERS: IncomingHttpHeaders = {}
const BLANK_LINE = Buffer.from('\n\n')
const JSON_OBJECT = 0x7B
/** For events that are in messages style already. */
const AS_IT_IS: StreamTransformer = { event: (event) => event }
/**
 * Milliseconds that an upstream may take to end an answer behind its last event, or behind what makes it complete: some
 * vendors report usage once more, and some leave the body open.
 */
const LAST_BYTES_MS = 1000

/** Exactly one of them is called, once. */
export interface AnswerListener {
  /** The attempt is committed: a first content event, or a complete, parsed, non-empty body. */
  onAnswer (answer: Answer): void
  /** Nothing was committed; `retryable` of a GatewayError says whether another attempt may be tried. */
  onFailed (thrown: unknown): void
}

/**
 * Sends the request, and tells of the commit.
 * @param permit ends with the call; for a committed stream, with the stream
 */
export function tryAttempt (exchange: Routed, attempt: Attempt, permit: Permit, listener: AnswerListener): void {
  try {
    const hooks = hooksFor(attempt, exchange)
    const request = prepare(exchange, attempt, permit.upstream, hooks)
    if (request instanceof Promise) sendLater(request, hooks, exchange, attempt, permit, listener)
    else send(request, hooks, exchange, attempt, permit, listener)
  } catch (thrown) {
    giveUp(thrown, permit, listener)
  }
}

/** A function of its own: what closures use takes memory at each call, also where they are not made. */
function sendLater (
  request: Promise<UpstreamRequest>, hooks: OwnHooks, exchange: Routed, attempt: Attempt, permit: Permit,
  listener: AnswerListener
): void {
  request.then((made) => { send(made, hooks, exchange, attempt, permit, listener) })
    .catch((thrown: unknown) => { giveUp(thrown, permit, listener) })
}

function send (
  request: UpstreamRequest, hooks: OwnHooks, exchange: Routed, attempt: Attempt, permit: Permit,
  listener: AnswerListener
): void {
  exchange.throwIfAborted()
  begin(exchange, attempt, permit)
  const body = encodeRequest(request, exchange)
  const receiver = new Receiver(exchange, attempt, permit, hooks, listener)
  try {
    receiver.start(body)
  } catch (thrown) {
    receiver.giveUp(thrown)
  }
}

function giveUp (thrown: unknown, permit: Permit, listener: AnswerListener): void {
  permit.leave()                                              // unless it has ended already, with a failure
  listener.onFailed(thrown)
}

/** What the attempt's plugins have made for it, each at its place in the route's `perAttempt`. */
type OwnHooks = readonly AttemptHooks[]

function hooksFor (attempt: Attempt, exchange: Routed): OwnHooks {
  const { perAttempt } = exchange.route.hooks
  const hooks: AttemptHooks[] = new Array(perAttempt.length)
  for (let place = 0; place < hooks.length; place++) {
    hooks[place] = unwaited(perAttempt[place]!.call(attempt, exchange), exchange)
  }
  return hooks
}

/** Makes the request to the upstream: by its dialect, then by the plugins. */
function prepare (
  exchange: Routed, attempt: Attempt, upstream: Upstream, hooks: OwnHooks
): Awaitable<UpstreamRequest> {
  const { config: { server }, services: { upstreams } } = exchange.snapshot
  if (!exchange.request.stream) upstreams.answers.check(answerLimit(server))
  const { endpoint } = exchange.route
  if (endpoint.kind === 'model') endpoint.prepare?.(exchange)
  if (exchange.large !== undefined) return prepareLarge(exchange, attempt, upstream, hooks)
  const encoded = dialectOf(upstream).encode(exchange, attempt, upstream)
  return encoded instanceof Promise ? completeLater(encoded, exchange, upstream, hooks)
    : complete(encoded, exchange, upstream, hooks)
}

async function completeLater (
  encoded: Promise<UpstreamRequest>, exchange: Routed, upstream: Upstream, hooks: OwnHooks
): Promise<UpstreamRequest> {
  return await complete(await encoded, exchange, upstream, hooks)
}

async function prepareLarge (
  exchange: Routed, attempt: Attempt, upstream: Upstream, hooks: OwnHooks
): Promise<UpstreamRequest> {
  const made = await encodeLarge(exchange, attempt, upstream, 'answer')
  return await complete(new EncodedRequest(made), exchange, upstream, hooks)
}

function complete (
  request: UpstreamRequest, exchange: Routed, upstream: Upstream, hooks: OwnHooks
): Awaitable<UpstreamRequest> {
  Object.assign(request.headers, traceFor(upstream, exchange))
  const told = tellPlugins(exchange, request, hooks, 0)
  return told instanceof Promise ? told.then(returning(request)) : request
}

function returning<T> (value: T): () => T {
  return () => value
}

/** Down the list, from a place on. */
function tellPlugins (exchange: Routed, request: UpstreamRequest, hooks: OwnHooks, from: number): Awaitable<void> {
  for (let place = from; place < hooks.length; place++) {
    const own = hooks[place]!
    if (own.onUpstreamRequest === undefined) continue
    const { plugin } = exchange.route.hooks.perAttempt[place]!
    const told = callHook(own.onUpstreamRequest(request), plugin, exchange)
    if (told instanceof Promise) return tellOthers(told, exchange, request, hooks, place + 1)
  }
}

function tellOthers (
  told: Promise<void>, exchange: Routed, request: UpstreamRequest, hooks: OwnHooks, from: number
): Promise<void> {
  return told.then(() => tellPlugins(exchange, request, hooks, from))
}

/** Notes that an attempt is sent now. */
function begin (exchange: Routed, attempt: Attempt, permit: Permit): void {
  const { record } = exchange
  if (record.attempts++ === 0) {
    record.dispatched_at = performance.now()
    record.first_queue_ms = record.queue_ms
  }
  record.upstream_end_at = 0
  exchange.lastAttempt = attempt
  exchange.credential = permit.credential
}

class Receiver implements CommittedStream, CallListener {
  readonly #exchange: Routed
  readonly #attempt: Attempt
  readonly #upstream: Upstream
  readonly #permit: Permit
  /** called from the last one to the first: up the list */
  readonly #hooks: OwnHooks
  readonly #answers: AnswerListener
  #call: UpstreamCall | undefined

  #status = 0
  #headers: IncomingHttpHeaders = NO_HEADERS
  #chunks: Buffer[] | undefined
  /** in the place of `#chunks`: a large answer, for a thread */
  #shared: SharedChunks | undefined
  #size = 0
  /** bytes taken from the memory for answers; undefined: a small answer */
  #part: Part | undefined

  #decoder: SseDecoder | undefined
  /** of a streaming request */
  #decode: StreamDecoder | undefined
  /** the rest of the answer is awaited for a moment only */
  #isComplete = false
  /** the answer to a streaming request is one JSON document, which is collected and converted */
  #isWhole = false
  /** of events that were requested as JSON */
  #endOfAnswer: EndOfAnswer | undefined
  #held: SseEvent[] | undefined
  #heldBytes = 0
  /** an event came that is more than a ping, though maybe not content */
  #hasBegun = false
  #isCommitted = false
  #isEnded = false
  #listener: StreamListener | undefined
  #cut: { readonly error: GatewayError, readonly by: 'upstream' | 'gateway' } | undefined

  constructor (
    exchange: Routed,
    attempt: Attempt,
    permit: Permit,
    hooks: OwnHooks,
    answers: AnswerListener
  ) {
    this.#exchange = exchange
    this.#attempt = attempt
    this.#upstream = permit.upstream
    this.#permit = permit
    this.#hooks = hooks
    this.#answers = answers
  }

  start (request: CallRequest): void {
    this.#exchange.onAbort(this)
    this.#exchange.mayBeExecuting = true
    this.#call = new UpstreamCall(this.#upstream, request, this)
  }

  /**
   * Before the commit the abort ends the attempt; after it the listener decides, because a drain lets the stream end
   * properly.
   */
  onAbort (): void {
    if (!this.#isCommitted && !this.#outlivesClient) this.giveUp(this.#exchange.abortReason)
  }

  /** Ends it, unless it has ended already. */
  giveUp (reason: unknown): void {
    if (this.#isEnded) return
    this.abort()
    this.#answers.onFailed(reason)
  }

  /**
   * A task is not aborted with its client: an upstream that has the request makes the video anyway, so its answer is
   * awaited and charged.
   */
  get #outlivesClient (): boolean {
    const { route: { endpoint }, abortReason } = this.#exchange
    const isTask = endpoint.kind === 'model' && modalities[endpoint.modality].isTask === true
    return isTask && abortReason?.row === 'client_closed' && this.#call?.isSent === true
  }

  listen (listener: StreamListener): void {
    this.#listener = listener
    this.#deliver()
  }

  pause (): void { this.#call?.pause() }
  resume (): void { this.#call?.resume() }

  abort (): void {
    this.#end()
    this.#part?.give()
    this.#call?.abort()
  }

  onHead (status: number, headers: IncomingHttpHeaders): void {
    this.#status = status
    this.#headers = headers
    if (status >= 300) this.#call?.finishWithin(this.#upstream.config.timeouts.idle)
    if (status < 300 && this.#exchange.request.stream) {
      try {
        this.#decode = withWholeCharacters(dialectOf(this.#upstream).decodeStream(this.#exchange, this.#upstream))
      } catch (thrown) {
        this.#broke(thrown)                                   // an image, say, is no stream
        return
      }
      this.#call?.awaitBegin()
    }
  }

  onData (chunk: Buffer): void {
    try {
      this.#read(chunk)
    } catch (thrown) {
      this.#broke(thrown)
    }
  }

  onEnd (): void {
    this.#exchange.record.upstream_end_at = performance.now()
    atEndOfTurn(Receiver.#atEnd, this)
  }

  static #atEnd (receiver: Receiver): void {
    try {
      receiver.#readEnd()
    } catch (thrown) {
      receiver.#broke(thrown)
    }
  }

  onFailure (failure: UpstreamFailure): void {
    if (this.#isEnded) return
    this.#exchange.record.upstream_end_at = performance.now()
    mark('answer', this.#exchange)
    try {
      if (this.#endsWhole() || this.#readsWhole(failure)) return
    } catch (thrown) {
      this.#broke(thrown)
      return
    }
    // The status of an error is enough, whatever happens to its body.
    if (this.#status >= 300) this.#failWithStatus()
    else this.#fail(failure)
  }

  #read (chunk: Buffer): void {
    if (this.#isEnded) return
    this.#size += chunk.length
    mark(this.#decoder === undefined ? 'answer' : 'stream', this.#exchange)
    if (this.#decoder !== undefined) {
      this.#onEvents(this.#decoder.push(chunk))
      return
    }
    if (this.#status >= 300) {
      this.#keep(chunk)
      if (this.#size >= ERROR_LIMIT) this.#failWithStatus()   // the rest of an error is not worth waiting for
      return
    }
    if (this.#decode !== undefined && !this.#isWhole) { this.#begin(chunk); return }
    const limit = this.#decode !== undefined ? CONVERTED_LIMIT : dialectOf(this.#upstream).replyLimit ?? REPLY_LIMIT
    if (this.#size > limit) throw new Error(`the answer is larger than ${limit} bytes`)
    if (this.#shared !== undefined) this.#shared.add(chunk)
    else this.#keep(chunk)
    if (this.#size > SMALL_ANSWER) this.#grow()
    if (this.#shared === undefined) this.#share()
    if (this.#decode !== undefined) return
    const isFirst = this.#size === chunk.length
    if (isFirst && this.#mayBeEvents(chunk)) this.#endOfAnswer = new EndOfAnswer(this.#exchange, this.#upstream)
    if (this.#endOfAnswer !== undefined) this.#lookForEnd(this.#endOfAnswer, chunk)
  }

  #mayBeEvents (chunk: Buffer): boolean {
    return chunk[0] !== JSON_OBJECT && modalityOfBodies(this.#exchange.route.endpoint) === 'text'
  }

  /** Reads the answer at its end, for its body may stay open. */
  #lookForEnd (end: EndOfAnswer, chunk: Buffer): void {
    if (!end.push(chunk)) {
      if (end.isComplete) this.#awaitRest()
      return
    }
    this.#endOfAnswer = undefined
    this.#exchange.record.upstream_end_at = performance.now()
    // A thread takes its time, and what comes meanwhile is no part of it.
    if (this.#shared === undefined) this.#call!.finishWithin(LAST_BYTES_MS)
    else this.#call!.abort()
    this.#readEnd()
  }

  /** Decides what the answer to a streaming request is. */
  #begin (chunk: Buffer): void {
    const start = withoutBlanks(this.#chunks === undefined ? chunk : Buffer.concat([...this.#takeChunks(), chunk]))
    if (start.length === 0) return
    const framing = framingOf(start.toString('latin1', 0, DECIDING), this.#headers['content-type'])
    if (framing === 'events') {
      this.#decoder = new SseDecoder()
      this.#onEvents(this.#decoder.push(start))
      return
    }
    this.#keep(start)
    if (framing === undefined) return
    this.#isWhole = true
    this.#call?.begun()
  }

  #keep (chunk: Buffer): void {
    if (this.#chunks === undefined) this.#chunks = [chunk]    // an array that has grown has space for seventeen
    else this.#chunks.push(chunk)
  }

  /** Moves a large answer to memory that its thread sees. */
  #share (): void {
    const threads = this.#threads
    if (threads === undefined || this.#size < threads.least) return
    threads.prepare()
    this.#shared = new SharedChunks(threads.memory, this.#takeChunks())
    this.#exchange.onFinish(endOf(this.#shared))
  }

  /** Undefined: its answer is read here, whatever its size. */
  get #threads (): BodyThreads | undefined {
    const { route, snapshot } = this.#exchange
    const isOfText = modalityOfBodies(route.endpoint) === 'text'
    return route.readsInThreads && isOfText && !this.#exchange.request.stream ? snapshot.bodies : undefined
  }

  #grow (): void {
    const { config: { server }, services: { upstreams } } = this.#exchange.snapshot
    this.#part ??= upstreams.answers.open(answerLimit(server), this)
    this.#part.grow(this.#size)
  }

  /**
   * Passes on the events before one that fails, so that the result does not depend on the chunks.
   * @param raw undefined in the place of an event: the end of the stream
   */
  #onEvents (raw: readonly (SseEvent | undefined)[]): void {
    const events: SseEvent[] = []
    let failure: UpstreamFailure | undefined
    try {
      for (const one of raw) {
        const decoded = one === undefined ? this.#decode!.end?.() : this.#decode!.event(one)
        if (decoded === undefined) continue
        for (const event of decoded instanceof Array ? decoded : [decoded]) {
          if (!this.#hasBegun && !isPing(event)) {
            this.#hasBegun = true
            this.#call?.begun()
          }
          if (isError(event)) { failure = { kind: 'error_event', body: event.json }; return }
          this.#tellEvent(event)
          if (!this.#isCommitted && commits(event)) this.#commit()
          if (!isTerminal(event)) { events.push(event); continue }
          if (!this.#isCommitted) { failure = { kind: 'empty' }; return }
          events.push(event)
          this.#exchange.record.upstream_end_at = performance.now()
          this.#permit.succeed()
          this.#end() // whatever still comes is not part of the answer
          this.#call!.resume() // but is read for a moment, so that the connection can be used again
          this.#call!.finishWithin(LAST_BYTES_MS)
          return
        }
      }
      if (this.#decode!.isComplete === true) this.#awaitRest()
    } finally {
      this.#hand(events)
      if (failure !== undefined) this.#fail(failure)
    }
  }

  #awaitRest (): void {
    if (this.#isComplete) return
    this.#isComplete = true
    this.#call!.finishWithin(LAST_BYTES_MS)
  }

  /** Passes events to the listener, or holds them until the commit. */
  #hand (events: readonly SseEvent[]): void {
    if (events.length === 0) return
    if (this.#listener !== undefined) { this.#listener.onEvents(events); return }
    const held = this.#held ??= []
    for (const event of events) { held.push(event); this.#heldBytes += event.bytes.length }
    if (this.#heldBytes > HELD_LIMIT) this.#commit()
  }

  #commit (): void {
    if (this.#isCommitted || this.#isEnded) return
    this.#isCommitted = true
    this.#permit.begin()
    // In the next microtask: the events of this chunk are held first.
    queueMicrotask(() => { this.#answers.onAnswer({ kind: 'stream', attempt: this.#attempt, stream: this }) })
  }

  #deliver (): void {
    const events = this.#held
    this.#held = undefined
    if (events !== undefined) this.#listener!.onEvents(events)
    if (this.#cut !== undefined) this.#listener!.onCut(this.#cut.error, this.#cut.by)
  }

  #readEnd (): void {
    if (this.#isEnded) return
    if (this.#status >= 300) { this.#failWithStatus(); return }
    // No model makes an empty body: a server or a proxy has lost the answer.
    if (this.#size === 0) { this.#fail({ kind: 'empty', isBlank: true }); return }
    if (this.#decoder !== undefined) {
      if (!this.#endsWhole()) this.#fail({ kind: 'incomplete' })
      return
    }
    this.#part?.end()
    if (this.#decode !== undefined) { this.#readAsEvents(); return }
    const { decodeImages, decodeTask } = dialectOf(this.#upstream)
    const { endpoint } = this.#exchange.route
    if (decodeImages !== undefined && endpoint.kind === 'model' && endpoint.deliver !== undefined) {
      const made = decodeImages(this.#takeChunks(), this.#exchange)
      endpoint.deliver(made, this.#exchange, this.#attempt, this.#upstream).then((body) => {
        this.#finishReply(body)
      }).catch((thrown: unknown) => {
        this.#broke(thrown)
      })
      return
    }
    if (decodeTask !== undefined) { this.#commitReply(decodeTask(this.#takeChunks())); return }
    if (this.#shared === undefined) this.#readReply(this.#bytes())
    else {
      this.#readLarge(this.#threads!, this.#shared).catch((thrown: unknown) => {
        this.#broke(thrown)
      })
    }
  }

  /** Converts the JSON answer to a streaming request. */
  #readAsEvents (): void {
    if (!this.#isWhole && this.#chunks === undefined) { this.#fail({ kind: 'empty', isBlank: true }); return }
    const message = readAnswer(this.#bytes(), this.#exchange, this.#upstream) as Json
    if (this.#part !== undefined) this.#exchange.keepsAnswer(this.#part)
    this.#decode = AS_IT_IS
    this.#onEvents(eventsOf(message))
  }

  #readReply (bytes: Buffer): void {
    const body = readAnswer(bytes, this.#exchange, this.#upstream)
    if (isEmptyReply(body as Parameters<typeof isEmptyReply>[0])) this.#fail({ kind: 'empty' })
    else this.#commitReply(body)
  }

  async #readLarge (threads: BodyThreads, shared: SharedChunks): Promise<void> {
    const pieces = await shared.all()
    const opened = await threads.openReply(this.#exchange, this.#upstream, { pieces, memory: shared })
    if (this.#isEnded) return                                 // aborted meanwhile
    if (opened === undefined) { this.#readReply(Buffer.concat(pieces)); return }
    shared.end()                                              // its thread reads on, while it has to
    if (opened.isEmpty) { this.#fail({ kind: 'empty' }); return }
    const reply = json(opened.body)
    await this.#tellLarge(reply)
    this.#accept(reply)
  }

  /** A no-op for an attempt that was aborted meanwhile. */
  #finishReply (body: unknown): void {
    if (this.#isEnded) return
    if (body === undefined) this.#fail({ kind: 'empty' })
    else this.#commitReply(body)
  }

  #commitReply (body: unknown): void {
    const reply = json(body)
    this.#tellReply(reply)
    this.#accept(reply)
  }

  #accept (reply: JsonReply): void {
    if (this.#isEnded) return                                 // a plugin or the client has aborted the exchange
    if (this.#part !== undefined) this.#exchange.keepsAnswer(this.#part)
    this.#permit.succeed()
    this.#end()
    this.#isCommitted = true
    this.#answers.onAnswer({ kind: 'json', attempt: this.#attempt, reply })
  }

  /** Whether the dialect takes the events so far for a whole answer: not every vendor sends a terminal event. */
  #endsWhole (): boolean {
    if (this.#decoder === undefined) return false
    try {
      this.#onEvents(this.#decoder.push(BLANK_LINE))          // the last record may lack its blank line too
    } catch (thrown) {
      // An incomplete record fails the dialect: no verdict.
      if (isVerdict(thrown) || thrown instanceof UnfinishedAnswer) throw thrown
    }
    if (!this.#isEnded) this.#onEvents([undefined])
    return this.#isEnded
  }

  /**
   * The same of an answer that is collected: one that is here is not requested again because its connection broke.
   * @returns whether the attempt has ended with it, or will
   */
  #readsWhole (failure: UpstreamFailure): boolean {
    if (this.#status >= 300) return false
    if (this.#shared !== undefined) {
      this.#readLarge(this.#threads!, this.#shared).catch((thrown: unknown) => {
        if (isVerdict(thrown)) this.#broke(thrown)
        else this.#fail(failure)
      })
      return true
    }
    const chunks = this.#chunks
    if (chunks === undefined) return false
    try {
      this.#readEnd()
      return true
    } catch (thrown) {
      if (isVerdict(thrown)) throw thrown
      this.#chunks = chunks
      return false
    }
  }

  /** Takes the chunks out, so that their memory can be freed. */
  #takeChunks (): Buffer[] {
    const chunks = this.#chunks ?? []
    this.#chunks = undefined
    return chunks
  }

  #bytes (): Buffer {
    const chunks = this.#takeChunks()
    return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
  }

  #failWithStatus (): void {
    this.#fail({ kind: 'status', status: this.#status, headers: this.#headers,
      body: parseOr(this.#bytes().toString().slice(0, ERROR_LIMIT)) })
  }

  /** @throws {GatewayError} an error of a plugin's hook: it must not look like a malformed answer of the upstream */
  #tellEvent (event: SseEvent): void {
    try {
      for (let place = this.#hooks.length - 1; place >= 0; place--) {
        unwaited(this.#hooks[place]!.onUpstreamEvent?.(event), this.#exchange)
      }
    } catch (thrown) {
      throw toGatewayError(thrown)
    }
  }

  /** @throws {GatewayError} as `#tellEvent` */
  #tellReply (reply: JsonReply): void {
    try {
      for (let place = this.#hooks.length - 1; place >= 0; place--) {
        unwaited(this.#hooks[place]!.onUpstreamReply?.(reply), this.#exchange)
      }
    } catch (thrown) {
      throw toGatewayError(thrown)
    }
  }

  /** Of plugins with `readsInSteps`: what they wait for is a step. @throws {GatewayError} as `#tellEvent` */
  async #tellLarge (reply: JsonReply): Promise<void> {
    try {
      for (let place = this.#hooks.length - 1; place >= 0; place--) {
        const { plugin } = this.#exchange.route.hooks.perAttempt[place]!
        await callHook(this.#hooks[place]!.onUpstreamReply?.(reply), plugin, this.#exchange)
      }
    } catch (thrown) {
      throw toGatewayError(thrown)
    }
  }

  /** Errors between two chunks end the attempt, not the process. */
  #broke (thrown: unknown): void {
    if (isGatewayError(thrown)) this.#endWith(thrown, 'gateway')
    else if (thrown instanceof UpstreamErrorBody) this.#fail({ kind: 'error_event', body: thrown.body })
    else if (thrown instanceof UnfinishedAnswer) this.#fail({ kind: 'incomplete' })
    else if (thrown instanceof UnusableCall) {
      this.#fail({ kind: 'unusable', cause: thrown, ...(thrown.code === 'half' && { isHalf: true }) })
    }
    else this.#fail({ kind: 'malformed', cause: thrown })
  }

  #fail (failure: UpstreamFailure): void {
    if (this.#isEnded) return
    this.#exchange.mayBeExecuting = !isClear(failure)
    const named = nameFailure(failure, this.#exchange, this.#attempt.upstream)
    this.#permit.fail(failure, named)
    // After the commit the code tells only how the stream broke off (src/README.md#error-in-stream); the upstream's
    // error is the cause.
    this.#endWith(!this.#isCommitted ? named
      : new GatewayError(failure.kind === 'incomplete' ? 'stream_incomplete' : 'upstream_stream_interrupted', {
        cause: named,
        ...(named.type === 'overloaded_error' && { type: named.type })
      }), 'upstream')
  }

  #endWith (error: GatewayError, by: 'upstream' | 'gateway'): void {
    if (this.#isEnded) return
    this.abort()
    this.#exchange.snapshot.services.metrics.attempt(this.#attempt.upstream, error.row)
    if (!this.#isCommitted) { this.#answers.onFailed(error); return }
    if (this.#listener === undefined) this.#cut = { error, by }
    else this.#listener.onCut(error, by)
  }

  #end (): void {
    this.#isEnded = true
    this.#permit.leave()                                      // a no-op after a verdict
    this.#exchange.offAbort(this)
  }
}

/** Whether an answer was read, and is an error, or no use. */
function isVerdict (thrown: unknown): boolean {
  return isGatewayError(thrown) || thrown instanceof UpstreamErrorBody || thrown instanceof UnusableCall
}

/** Here, since what closures use takes memory at each call, also where they are not made. */
function endOf (shared: SharedChunks): () => void {
  return () => { shared.end() }
}

/**
 * Whether the upstream has certainly stopped: nothing was sent, or it refused. 502, 504 and 52x are sent by proxies
 * that lost the answer of the server behind them.
 */
function isClear (failure: UpstreamFailure): boolean {
  if (failure.kind === 'status') return failure.status <= 501 || failure.status === 503 || failure.status === 529
  return failure.kind === 'exhausted' || failure.kind === 'refused' || failure.kind === 'connect_timeout' ||
    credentialFaultIn(failure) !== undefined
}
