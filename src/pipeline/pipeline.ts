// The life of one request: the order of its phases (the chart is in README.md). An attempt, to its commit, is
// attempt.ts; a stream from there on is relay.ts; how an exchange ends is ending.ts.
import type { Answer, AnswerListener } from './attempt.ts'
import type { Awaitable } from '../base/awaitable.ts'
import { modalities } from '../config/sections/modalities.ts'
import type { Client, SendListener } from './client.ts'
import { encodeReply } from './encode-reply.ts'
import { fail, interrupted, settle } from './ending.ts'
import { GatewayError, toGatewayError } from '../errors.ts'
import type { BytesReply, JsonReply, Reply } from '../core/reply.ts'
import type { DownloadEndpoint, Routed } from '../core/endpoint.ts'
import type { Outcome, Served } from '../core/exchange.ts'
import { type Claim, Claimed, type Idempotency } from './idempotency.ts'
import { Accepted, ApiKey, Body, Model } from '../core/facts.ts'
import { type Chain, callHook } from '../core/hooks.ts'
import { readsBody } from '../core/route.ts'
import { nearestModel } from '../catalog/offers.ts'
import { isGiven } from '../base/json.ts'
import { mark } from '../base/stall-marks.ts'
import { Alarm } from '../base/wheel.ts'
import type { Tunnel } from '../upstream/passthrough/websocket.ts'
import { walk } from './failover.ts'
import { relay } from './relay.ts'

/**
 * Looks up the answer to an earlier request with the same idempotency key; undefined: the request is to be served.
 * @throws {GatewayError}
 */
type Recall = Pick<Idempotency, 'recall'>

/**
 * Serves one exchange to its end. Never throws. Each step is taken in the turn of the event loop that makes it
 * possible: what is there already needs no promise.
 */
export function serve (exchange: Routed, client: Client, idempotency: Recall): void {
  new Serving(exchange, client, idempotency).begin()
}

/** What a step makes of the value of the one before it. */
type Next<T> = (this: Serving, value: T) => void

/** Its steps are methods: what one hands on to a later one is in its fields, so that no step makes a closure. */
class Serving implements AnswerListener, SendListener {
  readonly #exchange: Routed
  readonly #client: Client
  readonly #idempotency: Recall
  /** of a stream without an answer: see `hold` */
  #holdHead: Alarm | undefined
  /** undefined: the gateway has answered, or nothing has yet */
  #served: Served | undefined
  #reply: JsonReply | undefined
  #encoded: string | readonly Buffer[] | undefined
  /** the outcome, if nothing goes wrong from here on */
  #completed: Outcome | undefined
  #isEnding = false

  constructor (exchange: Routed, client: Client, idempotency: Recall) {
    this.#exchange = exchange
    this.#client = client
    this.#idempotency = idempotency
  }

  begin (): void {
    mark('request', this.#exchange)
    this.#take(this.#request, undefined)
  }

  #request (): void {
    this.#goOn(runRequestPhase(this.#exchange, this.#client, this.#idempotency), this.#answer)
  }

  #answer (given: Reply | void): void {
    if (given !== undefined) { this.#respond(given); return }
    const exchange = this.#exchange
    const client = this.#client
    const { endpoint, name } = exchange.route
    switch (endpoint.kind) {
      case 'local':
        this.#goOn(callHook(endpoint.answer(exchange), name, exchange), this.#respond)
        break
      case 'forward':
        this.#served = { upstream: endpoint.upstream }
        if (client.isUpgrade) this.#goOn(client.connect(exchange, endpoint.upstream), this.#connected)
        else this.#goOn(client.forward(exchange, endpoint.upstream), this.#respond)
        break
      case 'download':
        this.#goOn(download(exchange, client, endpoint), this.#downloaded)
        break
      case 'model':
        this.#askUpstreams()
    }
  }

  #connected (connected: Tunnel | BytesReply): void {
    if ('join' in connected) this.#openWebSocket(connected)
    else this.#respond(connected)
  }

  #downloaded ([reply, served]: readonly [Reply, Served]): void {
    this.#served = served
    this.#respond(reply)
  }

  /** Walks the plan (failover.ts). */
  #askUpstreams (): void {
    const exchange = this.#exchange
    // Without a commit for too long, the head and pings keep the client and its proxies from giving up.
    if (exchange.request.stream) this.#awaitCommit()
    walk(exchange, this)
  }

  #awaitCommit (): void {
    this.#holdHead = new Alarm(() => { hold(this.#exchange, this.#client) })
    this.#holdHead.set(this.#exchange.snapshot.config.server.api.timeouts.hold_head)
  }

  onFailed (thrown: unknown): void {
    this.#holdHead?.off()
    this.#fail(thrown)
  }

  onAnswer (answer: Answer): void {
    this.#holdHead?.off()
    mark('answer', this.#exchange)
    this.#take(this.#answered, answer)
  }

  #answered (answer: Answer): void {
    if (answer.kind === 'stream') { this.#goOn(relay(this.#exchange, this.#client, answer), this.#finish); return }
    const { reply, attempt } = answer
    const { endpoint, name } = this.#exchange.route
    this.#served = attempt
    if (endpoint.kind !== 'model' || endpoint.accept === undefined) { this.#respond(reply); return }
    // The gateway's own answer in the place of an upstream's acceptance of a task.
    this.#goOn(callHook(endpoint.accept(this.#exchange, reply, attempt), name, this.#exchange), this.#respond)
  }

  /** A whole answer: up the list; JSON is settled before it is written, bytes after the last one. */
  #respond (first: Reply): void {
    this.#goOn(runReplyHooks(this.#exchange, first, 0), this.#deliver)
  }

  #deliver (reply: Reply): void {
    const exchange = this.#exchange
    // A task that an upstream has accepted is made and paid for, so it is recorded even if the client has left.
    if (exchange.find(Accepted) === undefined) exchange.throwIfAborted()
    const completed = this.#complete()
    if (reply.kind === 'bytes') {
      this.#goOn(passOn(exchange, this.#client, reply, completed, this.#served), this.#finish)
      return
    }
    this.#reply = reply
    this.#goOn(encodeReply(reply, exchange), this.#settle)
  }

  #settle (encoded: string | readonly Buffer[]): void {
    const exchange = this.#exchange
    this.#encoded = encoded
    const text = typeof encoded === 'string' && exchange.answerBlobs === undefined ? encoded : undefined
    const kept = this.#claim?.keep(text)
    if (kept === undefined) this.#settleKept()
    else this.#goOn(callHook(kept, 'idempotency', exchange), this.#settleKept)
  }

  #settleKept (): void {
    this.#goOn(settle(this.#exchange, this.#completed!), this.#send)
  }

  #send (): void {
    this.#claim?.confirm()
    const reply = this.#reply!
    const encoded = this.#encoded!
    // Freed before a slow client takes it.
    this.#reply = undefined
    this.#encoded = undefined
    try {
      this.#client.send(reply, encoded, this)
    } catch (thrown) {
      this.onUnsent(thrown)
    }
  }

  onSent (): void {
    this.#finish(this.#completed!)
  }

  onUnsent (thrown: unknown): void {
    this.#finish(interrupted(this.#exchange, this.#served, 'client', thrown))
  }

  /** A WebSocket is charged when it is opened: its messages are not read. */
  #openWebSocket (tunnel: Tunnel): void {
    const exchange = this.#exchange
    exchange.throwIfAborted()
    const completed = this.#complete()
    this.#goOn(settle(exchange, completed), () => {
      exchange.record.status = 101
      this.#goOn(tunnel.join(), (broken) => {
        this.#finish(broken === undefined ? completed : interrupted(exchange, this.#served, broken.by, broken.error))
      })
    })
  }

  #complete (): Outcome {
    const served = this.#served
    return this.#completed = served === undefined ? { kind: 'completed' } : { kind: 'completed', served }
  }

  /** Of an answer that is to be given again to the same idempotency key. */
  get #claim (): Claim | undefined {
    return this.#served === undefined ? undefined : this.#exchange.find(Claimed)
  }

  /** Takes a step, and those behind it whose values are there; an error of any fails the exchange. */
  #take<T> (step: Next<T>, value: T): void {
    try {
      step.call(this, value)
    } catch (thrown) {
      this.#fail(thrown)
    }
  }

  /** The next step: in this one where its value is there. */
  #goOn<T> (value: Awaitable<T>, next: Next<T>): void {
    if (value instanceof Promise) this.#goOnLater(value, next)
    else next.call(this, value)
  }

  /** A function of its own: what closures use takes memory at each call, also where they are not made. */
  #goOnLater<T> (value: Promise<T>, next: Next<T>): void {
    value.then((there) => {
      mark('request', this.#exchange)
      this.#take(next, there)
    }, (thrown: unknown) => { this.#fail(thrown) })
  }

  #fail (thrown: unknown): void {
    if (this.#isEnding) {
      const { id, snapshot: { services: { log } } } = this.#exchange
      log.error({ request_id: id, err: thrown }, 'an exchange failed at its end')
      return
    }
    this.#isEnding = true
    const error = this.#exchange.abortReason ?? toGatewayError(thrown)
    void fail(this.#exchange, this.#client, { kind: 'failed', error }).then((outcome) => { this.#finish(outcome) })
  }

  #finish (outcome: Outcome): void {
    this.#isEnding = true
    this.#client.abandon()
    this.#exchange.finish(outcome)
  }
}

/** Called before each step: of a plugin in one of its hooks, or of the core with the body. */
export type Turn = (who: string, hook: 'onHead' | 'body' | 'onRequest') => void

/**
 * Down the list, to where an upstream would be asked or the endpoint would answer.
 * @param idempotency absent: in a dry run
 * @param tell called before each step
 * @returns the answer of a plugin that gave one
 * @throws the error of a plugin; {GatewayError} the body can't be read, or names no model; the route is in maintenance
 */
export function runRequestPhase (
  exchange: Routed,
  client: Pick<Client, 'readBody'>,
  idempotency: Recall | undefined,
  tell?: Turn
): Awaitable<Reply | void> {
  if (exchange.route.isInMaintenance) {
    throw new GatewayError('maintenance', { message: 'This address is under maintenance. Try again in {wait}.' })
  }
  const answered = runDown(exchange, 'onHead', 0, tell)
  return answered instanceof Promise ? answered.then((reply) => afterHead(exchange, client, idempotency, tell, reply))
    : afterHead(exchange, client, idempotency, tell, answered)
}

function afterHead (
  exchange: Routed,
  client: Pick<Client, 'readBody'>,
  idempotency: Recall | undefined,
  tell: Turn | undefined,
  answered: Reply | void
): Awaitable<Reply | void> {
  if (answered !== undefined) return answered
  if (!readsBody(exchange.route.endpoint)) return runDown(exchange, 'onRequest', 0, tell)
  tell?.('core', 'body')
  mark('body', exchange)
  const body = client.readBody(exchange)
  return body instanceof Promise ? afterBodyLater(body, exchange, idempotency, tell)
    : afterBody(exchange, idempotency, tell, body)
}

/** A function of its own: what closures use takes memory at each call, also where they are not made. */
function afterBodyLater (
  body: Promise<Body>, exchange: Routed, idempotency: Recall | undefined, tell: Turn | undefined
): Promise<Reply | void> {
  return body.then((there) => afterBody(exchange, idempotency, tell, there))
}

function afterBody (
  exchange: Routed, idempotency: Recall | undefined, tell: Turn | undefined, body: Body
): Awaitable<Reply | void> {
  mark('request', exchange)
  takeBody(exchange, body)
  const { endpoint } = exchange.route
  // An idempotency key counts for requests that are made and paid by the piece. Looked up before the hooks that could
  // refuse the repetition now, though they admitted the first request.
  return idempotency !== undefined && endpoint.kind === 'model' && modalities[endpoint.modality].item !== undefined
    ? recall(exchange, idempotency, tell)
    : runDown(exchange, 'onRequest', 0, tell)
}

async function recall (exchange: Routed, idempotency: Recall, tell: Turn | undefined): Promise<Reply | void> {
  const known = await idempotency.recall(exchange)
  if (known === undefined) return await runDown(exchange, 'onRequest', 0, tell)
  // The first request may have had another key of the account: the limits of this one hold for the repetition.
  return await runDown(exchange, 'onRequest', 0, tell, exchange.route.hooks.enforcing) ?? known
}

/**
 * Calls the plugins of one hook down the list, from a place on, until one answers.
 * @param only names of the plugins that are called; absent: all
 */
function runDown (
  exchange: Routed,
  name: 'onHead' | 'onRequest',
  from: number,
  tell: Turn | undefined,
  only?: ReadonlySet<string>
): Awaitable<Reply | void> {
  const { hooks } = exchange.route
  const { length } = listOf(hooks, name)
  let chain: Chain = hooks
  for (let place = from; place < length; place++) {
    if (chain === hooks) chain = chainOf(exchange, exchange.find(ApiKey))
    const hook = listOf(chain, name)[place]
    if (hook === undefined || only?.has(hook.plugin) === false) continue
    tell?.(hook.plugin, name)
    mark('plugin', exchange, hook.plugin)
    const answered = callHook(hook.call(exchange), hook.plugin, exchange)
    if (answered instanceof Promise) return goOnDown(answered, exchange, name, place + 1, tell, only)
    if (answered !== undefined) return answered
  }
}

/** By its name: a property that is chosen when it is read is looked for in a table of the engine (measured). */
function listOf (chain: Chain, name: 'onHead' | 'onRequest'): Chain['onHead' | 'onRequest'] {
  return name === 'onHead' ? chain.onHead : chain.onRequest
}

/** A function of its own: what a closure uses takes memory in each turn of a loop. */
function goOnDown (
  answered: Promise<Reply | void>, exchange: Routed, name: 'onHead' | 'onRequest', from: number,
  tell: Turn | undefined, only?: ReadonlySet<string>
): Promise<Reply | void> {
  return answered.then((reply) => reply ?? runDown(exchange, name, from, tell, only))
}

/** Up the list, from a place on. */
function runReplyHooks (exchange: Routed, first: Reply, from: number): Awaitable<Reply> {
  const hooks = exchange.route.hooks.onReply
  let reply = first
  for (let place = from; place < hooks.length; place++) {
    const { plugin, call } = hooks[place]!
    mark('plugin', exchange, plugin)
    const changed = callHook(call(reply, exchange), plugin, exchange)
    if (changed instanceof Promise) return goOnUp(changed, exchange, reply, place + 1)
    reply = changed ?? reply
  }
  return reply
}

function goOnUp (changed: Promise<Reply | void>, exchange: Routed, before: Reply, from: number): Promise<Reply> {
  return changed.then((reply) => runReplyHooks(exchange, reply ?? before, from))
}

/** The chain of the request's key, once that is known. A dry run takes the chain of all keys, to report each plugin. */
function chainOf ({ route: { hooks, keyChains }, dry }: Routed, owner: ApiKey | undefined): Chain {
  return keyChains === undefined || owner === undefined || dry !== undefined ? hooks : keyChains.of(owner.key)
}

/** Finds the model that the body names: the facts that the core writes. @throws {GatewayError} */
function takeBody (exchange: Routed, body: Body): void {
  exchange.set(Body, body)
  if (exchange.route.endpoint.kind === 'local' && exchange.route.endpoint.reads === 'json') return
  if (!isGiven(body.model) || body.model === '') throw new GatewayError('model_required', { param: 'model' })
  if (typeof body.model !== 'string') {
    throw new GatewayError('invalid_request', {
      message: 'The field "model" must be a string, the id of a model. GET /v1/models lists the models of your key.',
      param: 'model'
    })
  }
  const { endpoint } = exchange.route
  const gives = endpoint.kind === 'model' ? endpoint.modality : 'text'
  const model = exchange.snapshot.modelOf(body.model, gives)
  if (model === undefined) {
    const asked = body.model.slice(0, 100)
    const near = nearestModel(exchange, asked)
    throw new GatewayError('model_not_found', {
      message: `There is no model ${JSON.stringify(asked)}. ` +
        `${near === undefined ? '' : `Did you mean "${near}"? `}GET /v1/models lists the models of your key.`,
      param: 'model'
    })
  }
  if (model.kind !== gives) {
    const { article, addresses } = modalities[model.kind]
    const takes = modalities[gives].article
    throw new GatewayError('invalid_request', {
      message: `${JSON.stringify(body.model)} is ${article}, and this address takes ${takes}. Use ${addresses}.`,
      param: 'model'
    })
  }
  exchange.set(Model, model)
  if (isGiven(body.stream) && typeof body.stream !== 'boolean') {
    throw new GatewayError('invalid_request', {
      message: `The field "stream" must be true or false, not of type ${typeof body.stream}.`,
      param: 'stream'
    })
  }
  exchange.route.style.checkHead?.(exchange.received.headers)
  // From here on the request names the model, and so does the answer: as vendors do with their own "-latest".
  if (body.model !== model.id) {
    exchange.asked = body.model
    if (exchange.snapshot.isAlias(body.model)) exchange.alias = body.model
    Object.assign(body, { model: model.id })                  // just parsed, and not shared
  }
  exchange.request = { body, stream: body.stream === true }
}

/** Asks for the bytes of an upstream that the endpoint has chosen. */
async function download (
  exchange: Routed,
  client: Client,
  endpoint: DownloadEndpoint
): Promise<readonly [Reply, Served]> {
  const { upstream, own, reply, refuse } = await callHook(endpoint.locate(exchange), exchange.route.name, exchange)
  let bytes: BytesReply
  try {
    bytes = await client.forward(exchange, upstream, own)
  } catch (thrown) {
    throw refuse(toGatewayError(thrown))
  }
  return [reply(bytes), { upstream }]
}

function hold (exchange: Routed, client: Client): void {
  try {
    client.startStream()
    client.ping()
  } catch (thrown) {
    exchange.abort(toGatewayError(thrown))                    // a plugin made a head that can't be sent
  }
}

async function passOn (
  exchange: Routed,
  client: Client,
  reply: BytesReply,
  completed: Outcome,
  served: Served | undefined
): Promise<Outcome> {
  try {
    await client.bytes(reply)
  } catch (thrown) {
    if (!client.hasHead) throw thrown                         // a plugin made a reply that can't be sent
    const left = exchange.abortReason
    const by = left === undefined ? 'upstream' : left.row === 'client_closed' ? 'client' : 'gateway'
    const cut = interrupted(exchange, served, by,
      left ?? new GatewayError('upstream_stream_interrupted', { cause: thrown }))
    await settle(exchange, cut)
    return cut
  }
  // Bytes that pass unread have no terminal event to hold back: they are settled when the last one is sent.
  await settle(exchange, completed)
  return completed
}
