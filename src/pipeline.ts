// The life of one request: the only file that knows the order of the phases (the chart is in README.md).
import type { Answer } from './attempt.ts'
import type { ModelKind } from './config/config.ts'
import { article } from './config/kinds.ts'
import { type ClientWriter, encode } from './client-writer.ts'
import { type ErrorReply, GatewayError, shapeError, toGatewayError } from './errors.ts'
import type { Exchange, Outcome, Served } from './exchange.ts'
import { Claimed } from './idempotency.ts'
import { Accepted, Body, Model } from './facts.ts'
import { settleHook } from './hooks.ts'
import { nearestModel } from './endpoints/models.ts'
import { isGiven } from './json-value.ts'
import { askedVersion, isTerminal } from './messages.ts'
import type { Awaitable, StreamTransformer } from './plugin.ts'
import type { BytesReply, JsonReply, Reply } from './reply.ts'
import type { Endpoint, OwnRequest } from './routes.ts'
import { SseEvent } from './sse.ts'
import type { Tunnel } from './upstream/tunnel.ts'
import { walk } from './walk.ts'

export interface Ways {
  /** Reads and parses the client's body. @throws {GatewayError} */
  readBody (exchange: Exchange): Promise<Body>
  /** Sends the client's bytes to the route's upstream, unread. @throws {GatewayError} nothing was committed */
  forward (exchange: Exchange, upstream: string, own?: OwnRequest): Promise<BytesReply>
  /** Of an upgrade to a WebSocket only: asks the route's upstream for one, which may answer otherwise. @throws {GatewayError} nothing was committed */
  connect? (exchange: Exchange, upstream: string): Promise<Tunnel | BytesReply>
  /** What a request of the same name was answered before; undefined: it is to be served. Not in a dry run. @throws {GatewayError} */
  recall? (exchange: Exchange): Promise<Reply | undefined>
}

/** Serves one exchange to its end. Never rejects. */
export async function serve (exchange: Exchange, writer: ClientWriter, ways: Ways): Promise<void> {
  let outcome: Outcome
  try {
    const end = await run(exchange, writer, ways)
    outcome = await end()
  } catch (thrown) {
    outcome = { kind: 'failed', error: exchange.abortReason ?? toGatewayError(thrown) }
    outcome = await fail(exchange, writer, outcome)
  }
  writer.abandon()
  await exchange.finish(outcome)
}

/** What is left to be done when the answer is there: writing it. By then nothing holds on to what it was made of. */
type End = () => Promise<Outcome>

async function run (exchange: Exchange, writer: ClientWriter, ways: Ways): Promise<End> {
  const { route } = exchange
  const reply = await descend(exchange, ways)
  if (reply !== undefined) return await respond(exchange, writer, reply)
  switch (route.endpoint.kind) {
    case 'local': return await respond(exchange, writer, await settleHook(route.endpoint.answer(exchange), route.name, exchange))
    case 'forward':
      if (ways.connect !== undefined) {
        const connected = await ways.connect(exchange, route.endpoint.upstream)
        const served = { upstream: route.endpoint.upstream }
        return 'join' in connected ? join(exchange, connected, served) : await respond(exchange, writer, connected, served)
      }
      return await respond(exchange, writer, await ways.forward(exchange, route.endpoint.upstream), { upstream: route.endpoint.upstream })
    case 'download': return await download(exchange, writer, ways, route.endpoint)
    case 'model': return await askUpstreams(exchange, writer)
  }
}

/** Whose turn it is: a plugin's, in one of its hooks, or the core's with the body. */
export type Turn = (who: string, hook: 'onHead' | 'body' | 'onRequest') => void

/**
 * Down the list, to where an upstream would be asked or the endpoint would answer.
 * @param tell called before each step
 * @returns the answer of a plugin that gave one
 * @throws whatever a plugin did; {GatewayError} the body can't be read, or names no model; the route is in maintenance
 */
export async function descend (exchange: Exchange, ways: Pick<Ways, 'readBody' | 'recall'>, tell?: Turn): Promise<Reply | void> {
  const { endpoint, hooks, isInMaintenance } = exchange.route
  if (isInMaintenance) throw new GatewayError('maintenance', { message: 'This address is under maintenance. Try again in {wait}.' })
  for (const { plugin, call } of hooks.onHead) {
    tell?.(plugin, 'onHead')
    const answered = settleHook(call(exchange), plugin, exchange)
    const reply = answered instanceof Promise ? await answered : answered
    if (reply !== undefined) return reply
  }
  if (endpoint.kind === 'model' || (endpoint.kind === 'local' && endpoint.reads !== undefined)) {
    tell?.('core', 'body')
    await receive(exchange, ways)
    // What is made once and paid once has a name. Before anything looks at the request that could refuse it now, and did not then.
    if (endpoint.kind === 'model' && endpoint.gives !== undefined) {
      const reply = await ways.recall?.(exchange)
      if (reply !== undefined) return reply
    }
  }
  for (const { plugin, call } of hooks.onRequest) {
    tell?.(plugin, 'onRequest')
    const answered = settleHook(call(exchange), plugin, exchange)
    const reply = answered instanceof Promise ? await answered : answered
    if (reply !== undefined) return reply
  }
}

/** Reads the body and finds the model: the facts that the core writes. */
async function receive (exchange: Exchange, ways: Pick<Ways, 'readBody'>): Promise<void> {
  const body = await ways.readBody(exchange)
  exchange.set(Body, body)
  if (exchange.route.endpoint.kind === 'local' && exchange.route.endpoint.reads === 'json') return
  if (!isGiven(body.model) || body.model === '') throw new GatewayError('model_required', { param: 'model' })
  if (typeof body.model !== 'string') throw new GatewayError('invalid_request', { message: 'The field "model" must be a string, the id of a model. GET /v1/models lists the models of your key.', param: 'model' })
  const model = exchange.snapshot.modelOf(body.model)
  if (model === undefined) {
    const asked = body.model.slice(0, 100)
    const near = nearestModel(exchange, asked)
    throw new GatewayError('model_not_found', { message: `There is no model ${JSON.stringify(asked)}. ${near === undefined ? '' : `Did you mean "${near}"? `}GET /v1/models lists the models of your key.`, param: 'model' })
  }
  const { endpoint } = exchange.route
  const gives = endpoint.kind === 'model' ? endpoint.gives ?? 'text' : 'text'
  if (model.kind !== gives) {
    throw new GatewayError('invalid_request', { message: `${JSON.stringify(body.model)} is ${article[model.kind]}, and this address takes ${article[gives]}. Use ${ADDRESSES[model.kind]}.`, param: 'model' })
  }
  exchange.set(Model, model)
  if (isGiven(body.stream) && typeof body.stream !== 'boolean') {
    throw new GatewayError('invalid_request', { message: `The field "stream" must be true or false, not of type ${typeof body.stream}.`, param: 'stream' })
  }
  if (exchange.route.style === 'messages') askedVersion(exchange.received.headers)
  // From here on it is the model that was asked for, and the answer names it: as vendors do with their own "-latest".
  const isAlias = body.model !== model.id
  if (isAlias) {
    exchange.alias = body.model
    Object.assign(body, { model: model.id })                  // just parsed: nobody else has it
  }
  exchange.request = { body, stream: body.stream === true }
}

/** Where each kind of model is asked, for sentences. */
const ADDRESSES: Readonly<Record<ModelKind, string>> = {
  text: 'POST /v1/messages or POST /v1/chat/completions',
  image: 'POST /v1/images/generations, or POST /v1/images/edits to change an image',
  video: 'POST /v1/videos'
}

/** Bytes of an upstream that the endpoint has chosen. */
async function download (exchange: Exchange, writer: ClientWriter, ways: Ways, endpoint: Endpoint & { readonly kind: 'download' }): Promise<End> {
  const { upstream, own, reply, refuse } = await settleHook(endpoint.locate(exchange), exchange.route.name, exchange)
  let bytes: BytesReply
  try {
    bytes = await ways.forward(exchange, upstream, own)
  } catch (thrown) {
    throw refuse(toGatewayError(thrown))
  }
  return await respond(exchange, writer, reply(bytes), { upstream })
}

/** The plan is walked (walk.ts), and its answer goes up the list. */
async function askUpstreams (exchange: Exchange, writer: ClientWriter): Promise<End> {
  // Nothing committed for too long: the head and pings keep the client and what is between us from giving up.
  const holdHead = exchange.request.stream ? setTimeout(() => { hold(exchange, writer) }, exchange.snapshot.config.server.api.timeouts.hold_head) : undefined
  let answer: Answer
  try {
    answer = await walk(exchange)
  } finally {
    clearTimeout(holdHead)
  }
  return answer.kind === 'json'
    ? await respond(exchange, writer, await accept(exchange, answer), answer.attempt)
    : () => relay(exchange, writer, answer)
}

function hold (exchange: Exchange, writer: ClientWriter): void {
  try {
    writer.startStream()
    writer.ping()
  } catch (thrown) {
    exchange.abort(toGatewayError(thrown))                    // a plugin made a head that can't be sent
  }
}

/** What the client gets in the place of the upstream's own words. */
async function accept (exchange: Exchange, { reply, attempt }: Extract<Answer, { kind: 'json' }>): Promise<JsonReply> {
  const { endpoint, name } = exchange.route
  return endpoint.kind !== 'model' || endpoint.accept === undefined ? reply : await settleHook(endpoint.accept(exchange, reply, attempt), name, exchange)
}

/** A whole answer: up the list; JSON is settled before it is written, bytes behind the last one. */
async function respond (exchange: Exchange, writer: ClientWriter, first: Reply, served?: Served): Promise<End> {
  let reply = first
  for (const { plugin, call } of exchange.route.hooks.onReply) {
    const changed = settleHook(call(reply, exchange), plugin, exchange)
    reply = (changed instanceof Promise ? await changed : changed) ?? reply
  }
  // What an upstream has accepted is made, and paid for: it is recorded, whoever has left.
  if (exchange.find(Accepted) === undefined) exchange.throwIfAborted()
  const completed: Outcome = served === undefined ? { kind: 'completed' } : { kind: 'completed', served }
  if (reply.kind === 'bytes') return passOn(exchange, writer, reply, completed, served)
  const text = encode(reply)
  const claim = served === undefined ? undefined : exchange.find(Claimed)
  if (claim !== undefined) await settleHook(claim.keep(exchange.answerBlobs === undefined ? text : undefined), 'idempotency', exchange)
  await settle(exchange, completed)
  claim?.confirm()
  return write(exchange, writer.prepare(reply, text), completed, served)
}

function write (exchange: Exchange, send: () => Promise<void>, completed: Outcome, served: Served | undefined): End {
  return async () => {
    try {
      await send()
      return completed
    } catch (thrown) {
      return interrupted(exchange, served, 'client', thrown)
    }
  }
}

function passOn (exchange: Exchange, writer: ClientWriter, reply: BytesReply, completed: Outcome, served: Served | undefined): End {
  return async () => {
    try {
      await writer.bytes(reply)
    } catch (thrown) {
      if (!writer.hasHead) throw thrown                       // a plugin made what can't be sent
      const left = exchange.abortReason
      const by = left === undefined ? 'upstream' : left.row === 'client_closed' ? 'client' : 'gateway'
      const cut = interrupted(exchange, served, by, left ?? new GatewayError('upstream_stream_interrupted', { cause: thrown }))
      await settle(exchange, cut)
      return cut
    }
    // Bytes that pass unread have no terminal event to hold back: they are settled when the last one is out.
    await settle(exchange, completed)
    return completed
  }
}

/** A WebSocket is paid for when it begins: what passes then nobody reads. */
function join (exchange: Exchange, tunnel: Tunnel, served: Served): End {
  return async () => {
    exchange.throwIfAborted()
    const completed: Outcome = { kind: 'completed', served }
    await settle(exchange, completed)
    exchange.status = 101
    const broken = await tunnel.join()
    return broken === undefined ? completed : interrupted(exchange, served, broken.by, broken.error)
  }
}

function interrupted (exchange: Exchange, served: Served | undefined, by: 'client' | 'upstream' | 'gateway', thrown: unknown): Outcome {
  const error = toGatewayError(thrown)
  return served === undefined ? { kind: 'failed', error } : { kind: 'interrupted', served, by, error }
}

/** A committed stream: each event up the list, synchronously; the end only when it is settled. */
function relay (exchange: Exchange, writer: ClientWriter, { stream, attempt }: Extract<Answer, { kind: 'stream' }>): Promise<Outcome> {
  return new Promise((resolve) => {
    let isOver = false
    const transformers: StreamTransformer[] = []
    /** those of them that may hold the stream back */
    const guards: { readonly plugin: string, ready (event: SseEvent): Promise<void> | undefined }[] = []
    /** events that came while one is held back, and how it broke meanwhile */
    let waiting: SseEvent[] | undefined
    let broken: { readonly error: GatewayError, readonly by: 'upstream' | 'gateway' } | undefined
    let isFull = false

    const cut = async (by: 'client' | 'upstream' | 'gateway', error: GatewayError): Promise<void> => {
      if (isOver) return
      isOver = true
      exchange.offAbort(onAbort)
      stream.abort()
      const outcome: Outcome = { kind: 'interrupted', served: attempt, by, error }
      await settleAnyway(exchange, outcome)
      exchange.status = 200
      try {
        if (by !== 'client') await writer.endStream(shape(error, exchange, outcome).events)
      } catch {
        // The client left while it was told: the outcome stays what it was.
      }
      resolve(outcome)
    }

    const complete = async (last: readonly SseEvent[], good: number): Promise<void> => {
      const outcome: Outcome = { kind: 'completed', served: attempt }
      try {
        const settled = settle(exchange, outcome)
        if (settled !== undefined) await settled
      } catch (thrown) {
        // What can't be recorded is not charged, and an answer that is not charged does not end well.
        exchange.offAbort(onAbort)
        writer.events(last.slice(0, good), () => {})
        resolve(await fail(exchange, writer, { kind: 'failed', error: toGatewayError(thrown) }))
        return
      }
      try {
        await writer.endStream(last)
        resolve(outcome)
      } catch (thrown) {
        resolve(interrupted(exchange, attempt, 'client', thrown))
      }
      exchange.offAbort(onAbort)
    }

    const onAbort = (): void => {
      const reason = exchange.abortReason!
      if (reason.row === 'client_closed') void cut('client', reason)
      else void cut('gateway', new GatewayError('stream_incomplete', { cause: reason }))
    }

    const onEvents = (events: readonly SseEvent[]): void => {
      if (isOver) return
      if (waiting === undefined) take(events, false)
      else waiting.push(...events)
    }

    /** @param isReady the first of them was held back, and is not any more */
    const take = (events: readonly SseEvent[], isReady: boolean): void => {
      const out: SseEvent[] = []
      let isLast = false
      let good = 0
      try {
        for (let i = 0; i < events.length; i++) {
          const event = events[i]!
          const held = isReady && i === 0 ? undefined : askGuards(event)
          if (held !== undefined) { waiting = events.slice(i); void wait(held); break }
          good = out.length
          pass(transformers, 0, event, out)
          isLast = isTerminal(event)
        }
        if (isLast) close(transformers, out)
      } catch (thrown) {
        // What came before it in the same chunk is the client's: what it gets does not depend on how the bytes were cut.
        writer.events(out.slice(0, good), () => {})
        void cut('gateway', toGatewayError(thrown))
        return
      }
      if (isLast) { isOver = true; void complete(out, good); return }
      if (!writer.events(out, onDrain)) isFull = true
      // Nothing follows the terminal event, and what is left of the answer is read for a moment, so that the connection can be used again.
      if (isFull || (waiting !== undefined && !isTerminal(waiting.at(-1)!))) stream.pause()
    }

    const onDrain = (): void => {
      isFull = false
      if (waiting === undefined) stream.resume()
    }

    const askGuards = (event: SseEvent): Promise<void> | undefined => {
      let held: Promise<void> | undefined
      for (const guard of guards) {
        const one = guard.ready(event)
        if (one === undefined) continue
        const settled = Promise.resolve(settleHook(one, guard.plugin, exchange))
        held = held === undefined ? settled : Promise.all([held, settled]).then(() => {})
      }
      return held
    }

    const wait = async (held: Promise<void>): Promise<void> => {
      try {
        await held
      } catch (thrown) {
        void cut('gateway', toGatewayError(thrown))
        return
      }
      const events = waiting!
      waiting = undefined
      if (isOver) return
      take(events, true)
      if (isOver || waiting !== undefined) return
      if (broken !== undefined) void cut(broken.by, broken.error)
      else if (!isFull) stream.resume()
    }

    try {
      for (const { plugin, call } of exchange.route.hooks.onStream) {
        const transformer = call(exchange)
        if (transformer === undefined) continue
        transformers.push(transformer)
        if (transformer.ready !== undefined) guards.push({ plugin, ready: transformer.ready.bind(transformer) })
      }
    } catch (thrown) {
      stream.abort()
      resolve(fail(exchange, writer, { kind: 'failed', error: toGatewayError(thrown) }))
      return
    }
    exchange.onAbort(onAbort)
    if (exchange.abortReason !== undefined) { onAbort(); return }
    writer.startStream()
    const onCut = (error: GatewayError, by: 'upstream' | 'gateway'): void => {
      if (waiting === undefined) void cut(by, error)
      else broken ??= { error, by }                           // what came before it is the client's
    }
    stream.listen({ onEvents, onCut })
  })
}

/** One event through the transformers from `from` on. */
function pass (transformers: readonly StreamTransformer[], from: number, event: SseEvent, out: SseEvent[]): void {
  for (let i = from; i < transformers.length; i++) {
    const made = transformers[i]!.event(event)
    if (made === undefined) return
    if (made instanceof Array) {
      for (const one of made) pass(transformers, i + 1, one, out)
      return
    }
    event = made as SseEvent
  }
  // A promise, say: nobody would see that it is not there until the bytes are written.
  if (!(event instanceof SseEvent)) throw new TypeError('a transformer gave something that is not an event')
  out.push(event)
}

/** What each transformer still has to say goes through those above it. */
function close (transformers: readonly StreamTransformer[], out: SseEvent[]): void {
  transformers.forEach((transformer, i) => {
    for (const event of transformer.end?.() ?? []) pass(transformers, i + 1, event, out)
  })
}

/** Nothing was committed: gives back what was held, then tells the client, in the stream if its head is out. */
async function fail (exchange: Exchange, writer: ClientWriter, outcome: Outcome & { readonly kind: 'failed' }): Promise<Outcome> {
  await settleAnyway(exchange, outcome)
  const { error } = outcome
  exchange.status = writer.hasHead ? 200 : error.status
  if (error.row === 'client_closed') return outcome
  try {
    const shaped = shape(error, exchange, outcome)
    if (writer.isStreaming) await writer.endStream(shaped.events)
    else if (!writer.hasHead) await writer.json(shaped)
  } catch {
    // The client left while it was told: the outcome stays what it was.
  }
  return outcome
}

/** Tells whoever asked how the answer ends. A callback that never ends has failed: it can't hang a request. */
function settle (exchange: Exchange, outcome: Outcome): Awaitable<void> {
  const fail = (thrown: unknown): never => {
    exchange.hasSettleFailed = true
    throw thrown
  }
  try {
    const told = settleHook(exchange.settle(outcome), 'onSettle', exchange)
    return told instanceof Promise ? told.catch(fail) : told
  } catch (thrown) {
    return fail(thrown)
  }
}

/** Where it did not end well the client must be told whatever that throws. */
async function settleAnyway (exchange: Exchange, outcome: Outcome): Promise<void> {
  try {
    await settle(exchange, outcome)
  } catch (err) {
    exchange.snapshot.services.log.error({ request_id: exchange.id, err }, 'an exchange that did not end well could not be settled')
  }
}

/** Asks the plugins from the client's side inward; the core's own shape can't throw. */
function shape (error: GatewayError, exchange: Exchange, outcome: Outcome): ErrorReply {
  for (const { plugin, call } of exchange.route.hooks.onError) {
    try {
      const shaped = call(error, exchange, outcome)
      if (shaped === undefined) continue
      encode(shaped)
      if (!shaped.events.every((event) => event instanceof SseEvent)) throw new TypeError('the events of a shaped error are not events')
      return shaped
    } catch (err) {
      exchange.snapshot.services.log.error({ request_id: exchange.id, plugin, err }, 'a plugin threw while it shaped an error')
    }
  }
  return shapeError(error, exchange.route.style, exchange.id)
}
