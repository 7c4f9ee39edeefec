// The life of one request: the order of its phases (the chart is in README.md). An attempt, to its commit, is
// attempt.ts; a stream from there on is relay.ts; how an exchange ends is ending.ts.
import type { Answer } from './attempt.ts'
import { modalities } from '../config/sections/modalities.ts'
import type { Client } from './client.ts'
import { encode } from './encode-reply.ts'
import { fail, interrupted, settle } from './ending.ts'
import { GatewayError, toGatewayError } from '../errors.ts'
import type { BytesReply, JsonReply, Reply } from '../core/reply.ts'
import type { DownloadEndpoint, Routed } from '../core/endpoint.ts'
import type { Outcome, Served } from '../core/exchange.ts'
import { Claimed, type Idempotency } from './idempotency.ts'
import { Accepted, ApiKey, Body, Model } from '../core/facts.ts'
import { type Chain, callHook } from '../core/hooks.ts'
import { nearestModel } from '../catalog/offers.ts'
import { isGiven } from '../base/json.ts'
import type { Tunnel } from '../upstream/passthrough/websocket.ts'
import { walk } from './failover.ts'
import { relay } from './relay.ts'

/**
 * Looks up the answer to an earlier request with the same idempotency key; undefined: the request is to be served.
 * @throws {GatewayError}
 */
type Recall = Pick<Idempotency, 'recall'>

/** Serves one exchange to its end. Never rejects. */
export async function serve (exchange: Routed, client: Client, idempotency: Recall): Promise<void> {
  let outcome: Outcome
  try {
    const end = await run(exchange, client, idempotency)
    outcome = await end()
  } catch (thrown) {
    outcome = { kind: 'failed', error: exchange.abortReason ?? toGatewayError(thrown) }
    outcome = await fail(exchange, client, outcome)
  }
  client.abandon()
  await exchange.finish(outcome)
}

/** Writes the finished answer. A closure, so that the state it was made of is freed before a slow client takes it. */
type End = () => Promise<Outcome>

async function run (exchange: Routed, client: Client, idempotency: Recall): Promise<End> {
  const { route } = exchange
  const reply = await runRequestPhase(exchange, client, idempotency)
  if (reply !== undefined) return await respond(exchange, client, reply)
  switch (route.endpoint.kind) {
    case 'local':
      return await respond(exchange, client, await callHook(route.endpoint.answer(exchange), route.name, exchange))
    case 'forward':
      if (client.isUpgrade) {
        const connected = await client.connect(exchange, route.endpoint.upstream)
        const served = { upstream: route.endpoint.upstream }
        return 'join' in connected
          ? openWebSocket(exchange, connected, served)
          : await respond(exchange, client, connected, served)
      }
      return await respond(exchange, client, await client.forward(exchange, route.endpoint.upstream), {
        upstream: route.endpoint.upstream
      })
    case 'download':
      return await download(exchange, client, route.endpoint)
    case 'model':
      return await askUpstreams(exchange, client)
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
export async function runRequestPhase (
  exchange: Routed,
  client: Pick<Client, 'readBody'>,
  idempotency: Recall | undefined,
  tell?: Turn
): Promise<Reply | void> {
  const { endpoint, hooks, isInMaintenance } = exchange.route
  if (isInMaintenance) {
    throw new GatewayError('maintenance', { message: 'This address is under maintenance. Try again in {wait}.' })
  }
  let chain: Chain = hooks
  for (let place = 0; place < hooks.onHead.length; place++) {
    if (chain === hooks) chain = chainOf(exchange, exchange.find(ApiKey))
    const hook = chain.onHead[place]
    if (hook === undefined) continue
    tell?.(hook.plugin, 'onHead')
    const answered = callHook(hook.call(exchange), hook.plugin, exchange)
    const reply = answered instanceof Promise ? await answered : answered
    if (reply !== undefined) return reply
  }
  if (endpoint.kind === 'model' || (endpoint.kind === 'local' && endpoint.reads !== undefined)) {
    tell?.('core', 'body')
    await readRequest(exchange, client)
    // An idempotency key counts for requests that are made and paid by the piece. Looked up before any hook that could
    // refuse the repetition now, though it admitted the first request.
    if (endpoint.kind === 'model' && modalities[endpoint.modality].item !== undefined) {
      const reply = await idempotency?.recall(exchange)
      if (reply !== undefined) return reply
    }
  }
  for (let place = 0; place < hooks.onRequest.length; place++) {
    if (chain === hooks) chain = chainOf(exchange, exchange.find(ApiKey))
    const hook = chain.onRequest[place]
    if (hook === undefined) continue
    tell?.(hook.plugin, 'onRequest')
    const answered = callHook(hook.call(exchange), hook.plugin, exchange)
    const reply = answered instanceof Promise ? await answered : answered
    if (reply !== undefined) return reply
  }
}

/** The chain of the request's key, once that is known. A dry run takes the chain of all keys, to report each plugin. */
function chainOf ({ route: { hooks, keyChains }, dry }: Routed, owner: ApiKey | undefined): Chain {
  return keyChains === undefined || owner === undefined || dry !== undefined ? hooks : keyChains.of(owner.key)
}

/** Reads the body and finds the model: the facts that the core writes. */
async function readRequest (exchange: Routed, client: Pick<Client, 'readBody'>): Promise<void> {
  const body = await client.readBody(exchange)
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

/** Passes on the bytes of an upstream that the endpoint has chosen. */
async function download (exchange: Routed, client: Client, endpoint: DownloadEndpoint): Promise<End> {
  const { upstream, own, reply, refuse } = await callHook(endpoint.locate(exchange), exchange.route.name, exchange)
  let bytes: BytesReply
  try {
    bytes = await client.forward(exchange, upstream, own)
  } catch (thrown) {
    throw refuse(toGatewayError(thrown))
  }
  return await respond(exchange, client, reply(bytes), { upstream })
}

/** Walks the plan (failover.ts), and takes its answer up the list. */
async function askUpstreams (exchange: Routed, client: Client): Promise<End> {
  // Without a commit for too long, the head and pings keep the client and its proxies from giving up.
  const holdHead = exchange.request.stream
    ? setTimeout(() => {
      hold(exchange, client)
    }, exchange.snapshot.config.server.api.timeouts.hold_head)
    : undefined
  let answer: Answer
  try {
    answer = await walk(exchange)
  } finally {
    clearTimeout(holdHead)
  }
  return answer.kind === 'json'
    ? await respond(exchange, client, await adoptTask(exchange, answer), answer.attempt)
    : () => relay(exchange, client, answer)
}

function hold (exchange: Routed, client: Client): void {
  try {
    client.startStream()
    client.ping()
  } catch (thrown) {
    exchange.abort(toGatewayError(thrown))                    // a plugin made a head that can't be sent
  }
}

/** Replaces an upstream's acceptance of a task by the gateway's own answer. */
async function adoptTask (exchange: Routed, { reply, attempt }: Extract<Answer, { kind: 'json' }>): Promise<JsonReply> {
  const { endpoint, name } = exchange.route
  return endpoint.kind !== 'model' || endpoint.accept === undefined
    ? reply
    : await callHook(endpoint.accept(exchange, reply, attempt), name, exchange)
}

/** A whole answer: up the list; JSON is settled before it is written, bytes after the last one. */
async function respond (exchange: Routed, client: Client, first: Reply, served?: Served): Promise<End> {
  let reply = first
  for (const { plugin, call } of exchange.route.hooks.onReply) {
    const changed = callHook(call(reply, exchange), plugin, exchange)
    reply = (changed instanceof Promise ? await changed : changed) ?? reply
  }
  // A task that an upstream has accepted is made and paid for, so it is recorded even if the client has left.
  if (exchange.find(Accepted) === undefined) exchange.throwIfAborted()
  const completed: Outcome = served === undefined ? { kind: 'completed' } : { kind: 'completed', served }
  if (reply.kind === 'bytes') return passOn(exchange, client, reply, completed, served)
  const text = encode(reply)
  const claim = served === undefined ? undefined : exchange.find(Claimed)
  if (claim !== undefined) {
    await callHook(claim.keep(exchange.answerBlobs === undefined ? text : undefined), 'idempotency', exchange)
  }
  await settle(exchange, completed)
  claim?.confirm()
  return write(exchange, client.prepare(reply, text), completed, served)
}

function write (exchange: Routed, send: () => Promise<void>, completed: Outcome, served: Served | undefined): End {
  return async () => {
    try {
      await send()
      return completed
    } catch (thrown) {
      return interrupted(exchange, served, 'client', thrown)
    }
  }
}

function passOn (
  exchange: Routed,
  client: Client,
  reply: BytesReply,
  completed: Outcome,
  served: Served | undefined
): End {
  return async () => {
    try {
      await client.bytes(reply)
    } catch (thrown) {
      if (!client.hasHead) throw thrown                       // a plugin made a reply that can't be sent
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
}

/** A WebSocket is charged when it is opened: its messages are not read. */
function openWebSocket (exchange: Routed, tunnel: Tunnel, served: Served): End {
  return async () => {
    exchange.throwIfAborted()
    const completed: Outcome = { kind: 'completed', served }
    await settle(exchange, completed)
    exchange.record.status = 101
    const broken = await tunnel.join()
    return broken === undefined ? completed : interrupted(exchange, served, broken.by, broken.error)
  }
}
