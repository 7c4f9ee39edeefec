// WebSockets of forward routes: the upgrade, then bytes both ways, unread. http-proxy-3 sends the upgrade and joins the
// two sides; its own messages to the client are suppressed: errors have the gateway's shape, and the 101 has the
// gateway's headers and comes after the settlement.
import { createHash } from 'node:crypto'
import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { parseOr } from '../../base/json.ts'
import { GatewayError, isGatewayError, toGatewayError } from '../../errors.ts'
import type { Routed } from '../../core/endpoint.ts'
import { nameFailure } from '../../core/hooks.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
import { version as gatewayVersion } from '../../base/package.ts'
import type { BytesReply } from '../../core/reply.ts'
import { acquireUnread, failUnread } from '../limits/acquire.ts'
import { isOfRequest } from '../limits/attribution.ts'
import { failureOf } from '../transport/connect.ts'
import { below } from '../dialects/versioned.ts'
import { readError } from './error-body.ts'
import { refuseEscapes } from './forward.ts'
import { proxy } from './proxy.ts'
import { acceptable, returnable, traceFor, upgradable } from '../transport/headers.ts'
import type { Permit } from '../limits/permit.ts'
import { connectionsOf } from '../pool.ts'

/** A WebSocket accepted by the upstream and not yet announced to the client. */
export interface Tunnel {
  /**
   * Sends the client its 101, and resolves when both sides are closed: undefined if they were closed as WebSockets are.
   * To be called once.
   */
  join (): Promise<Broken | undefined>
}

export interface Broken {
  readonly by: 'client' | 'upstream' | 'gateway'
  readonly error: GatewayError
}

/** An upgrade request of a client, with its socket. */
export interface Upgrade {
  readonly req: IncomingMessage
  /** for errors: it has the socket until `join` */
  readonly res: ServerResponse
  readonly socket: Socket
  /** Puts the bytes received so far back into the socket; to be called once, before another reader takes over. */
  handOver (): void
}

type Join = (response: IncomingMessage, socket: Socket, head: Buffer) => void

/**
 * Most bytes that are buffered of a client that sends before its 101, which it must not (RFC 6455 4.1). Beyond them the
 * socket is not read, and the client's leaving is not noticed.
 */
const EARLY_BYTES = 64 * 1024
/** Milliseconds that one side has for the last bytes when the other is closed. */
const LINGER_MS = 5000
/** TCP keep-alive: a vanished peer is noticed after so many milliseconds and ten probes. */
const PROBE_MS = 30_000

/** RFC 6455 1.3 */
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'

/** An upgrade on its way, with the proxy's events. */
interface ProxiedUpgrade {
  onRequest (request: ClientRequest): void
  onError (error: Error): void
}

/** by the client's request */
const proxied = new WeakMap<IncomingMessage, ProxiedUpgrade>()
proxy.on('proxyReqWs', (request, req) => { proxied.get(req)?.onRequest(request) })
// Trap 7: errors of the client's socket are emitted here, and an error event without a listener ends the process.
proxy.on('error', () => {})

/**
 * Reads the socket before the two sides are joined, when it has no other reader: only a reader notices that the client
 * has left.
 * @param head bytes received behind the request's head
 */
export function noticeEnd (socket: Socket, head: Buffer): Pick<Upgrade, 'handOver'> {
  const early = [head]
  let bytes = head.length
  const leave = (): void => { socket.destroy() }
  const keep = (chunk: Buffer): void => {
    early.push(chunk)
    bytes += chunk.length
    if (bytes > EARLY_BYTES) socket.destroy()
  }
  socket.once('end', leave).on('data', keep)
  return {
    handOver () {
      socket.off('end', leave).off('data', keep).pause()
      // A destroyed socket takes nothing back.
      if (bytes > 0 && !socket.destroyed) socket.unshift(Buffer.concat(early))
    }
  }
}

/**
 * Asks the upstream for a WebSocket.
 * @returns its answer, where that says what is wrong with the client's own request
 * @throws {GatewayError} the upstream can't be asked now, refused or failed; nothing was written to the client
 */
export async function connectTunnel (
  exchange: Routed,
  upstreamName: string,
  upgrade: Upgrade
): Promise<Tunnel | BytesReply> {
  refuseEscapes(exchange.received.path)
  const key = checkHandshake(upgrade.req)
  const permit = await acquireUnread(exchange, exchange.snapshot.upstreams.get(upstreamName)!)
  try {
    exchange.throwIfAborted()
    exchange.record.attempts = 1
    exchange.record.body_at = exchange.record.dispatched_at = performance.now()
    return await new Handshake(exchange, permit, key, upgrade).send()
  } catch (thrown) {
    permit.leave()                                            // unless it has ended already
    throw thrown
  }
}

/** One upgrade at its upstream, until both sides are joined or it has failed. */
class Handshake implements ProxiedUpgrade {
  readonly #exchange: Routed
  readonly #permit: Permit
  readonly #key: string
  readonly #upgrade: Upgrade
  readonly #answer = Promise.withResolvers<Tunnel | BytesReply>()
  /** the upstream has accepted, or failed */
  #isDecided = false
  #outgoing: ClientRequest | undefined
  #far: Socket | undefined
  #timer: NodeJS.Timeout | undefined

  constructor (exchange: Routed, permit: Permit, key: string, upgrade: Upgrade) {
    this.#exchange = exchange
    this.#permit = permit
    this.#key = key
    this.#upgrade = upgrade
  }

  /** @throws {GatewayError} the upstream refused or failed */
  async send (): Promise<Tunnel | BytesReply> {
    const exchange = this.#exchange
    const { first_byte: firstByte } = this.#permit.upstream.config.timeouts
    this.#timer = setTimeout(() => {
      this.#fail({ kind: 'first_byte_timeout', cause: new Error(`no answer for ${firstByte} ms`) })
    }, firstByte)
    exchange.onAbort(() => { this.#fail(exchange.abortReason!) })
    exchange.onFinish(() => {
      this.#close()
      this.#permit.leave()                                    // where it was never joined
    })
    proxied.set(this.#upgrade.req, this)
    if (exchange.abortReason !== undefined) this.#fail(exchange.abortReason)
    else this.#write()
    return await this.#answer.promise
  }

  #write (): void {
    const { upstream } = this.#permit
    const { received } = this.#exchange
    const { req, socket } = this.#upgrade
    req.url = below(upstream.basePath, received.path + received.query)
    req.headers = upgradable(req.headers)
    try {
      proxy.ws(req, socket, Buffer.alloc(0), {
        target: upstream.origin,
        // A pooled connection may be closed at the moment of the upgrade, and an upgraded one never returns to the
        // pool.
        agent: connectionsOf(upstream).newAgent,
        changeOrigin: true,
        toProxy: true,
        headers: { 'user-agent': `model-gateway/${gatewayVersion}`, ...upstream.config.headers,
          ...traceFor(upstream, this.#exchange) }
      }, (error) => { this.onError(error) })
    } catch (thrown) {
      this.#fail(toGatewayError(thrown))
      return
    }
    this.#listen(this.#outgoing!)
  }

  /**
   * Replaces the proxy's listeners: trap 8, they pass on any answer in the place of a 101, and close the client's
   * socket on an error.
   */
  #listen (outgoing: ClientRequest): void {
    const [join] = outgoing.listeners('upgrade') as Join[]
    for (const event of ['upgrade', 'response', 'error']) { outgoing.removeAllListeners(event) }
    outgoing.on('upgrade', (response, far, head) => { this.#onUpgrade(response, far as Socket, head, join!) })
    outgoing.on('response', (response) => { this.#onResponse(response) })
    outgoing.on('error', (error) => { this.onError(error) })
  }

  onRequest (request: ClientRequest): void {
    this.#outgoing = request
  }

  onError (error: Error): void {
    this.#fail(failureOf(error))
  }

  #onUpgrade (response: IncomingMessage, far: Socket, head: Buffer, join: Join): void {
    clearTimeout(this.#timer)
    far.on('error', () => {})                                 // until the join: then the proxy and `watch` listen
    this.#far = far
    // A server without this proof did not understand the upgrade, and may read what follows as requests.
    if (
      this.#isDecided || response.headers.upgrade?.toLowerCase() !== 'websocket' ||
      response.headers['sec-websocket-accept'] !== proofOf(this.#key)
    ) {
      far.destroy()
      this.#fail({
        kind: 'malformed',
        cause: new Error('the upstream did not accept the WebSocket as RFC 6455 says')
      })
      return
    }
    this.#isDecided = true
    this.#exchange.record.first_byte_at = performance.now()
    this.#exchange.snapshot.services.metrics.attempt(this.#permit.upstream.name, 'ok')
    this.#permit.begin()
    this.#answer.resolve({ join: async () => await this.#join(response, far, head, join) })
  }

  async #join (response: IncomingMessage, far: Socket, head: Buffer, join: Join): Promise<Broken | undefined> {
    const { id, snapshot, answerHeaders } = this.#exchange
    const { res, socket, handOver } = this.#upgrade
    handOver()
    res.detachSocket(socket)
    response.headers = { ...acceptable(response.headers), 'x-request-id': id, 'request-id': id,
      'x-gateway-config-generation': String(snapshot.generation), ...answerHeaders }
    join(response, far, head)
    for (const side of [socket, far]) side.setKeepAlive(true, PROBE_MS)
    const broken = await watch(this.#exchange, socket, far, this.#permit.upstream.config.timeouts.websocket_idle)
    // A server whose client left with bytes unread sends a reset too: it is no failure of the server.
    if (broken?.by === 'upstream') this.#permit.leave()
    else this.#permit.succeed()
    return broken
  }

  #onResponse (response: IncomingMessage): void {
    clearTimeout(this.#timer)
    const { upstream } = this.#permit
    const status = response.statusCode ?? 0
    const slow = setTimeout(() => { response.destroy() }, upstream.config.timeouts.idle)
    if (!this.#isDecided && isOfRequest(status)) {
      this.#isDecided = true
      response.pause().on('close', () => { clearTimeout(slow); this.#permit.leave() })
      this.#exchange.snapshot.services.metrics.attempt(upstream.name, 'ok')
      this.#answer.resolve(
        { kind: 'bytes', status, headers: returnable(response.headers, upstream), bytes: response }
      )
      return
    }
    void readError(response).then((text) => {
      clearTimeout(slow)
      this.#fail(status >= 400 && status <= 599
        ? { kind: 'status', status, headers: response.headers, body: parseOr(text) }
        : { kind: 'malformed', cause: new Error(`the upstream answered ${status} to a WebSocket`) })
    })
  }

  #fail (thrown: GatewayError | UpstreamFailure): void {
    if (this.#isDecided) return
    this.#isDecided = true
    this.#close()
    const { upstream } = this.#permit
    const error = isGatewayError(thrown) ? thrown : nameFailure(thrown, this.#exchange, upstream.name)
    const exchange = this.#exchange
    exchange.snapshot.services.metrics.attempt(upstream.name, error.row)
    this.#answer.reject(isGatewayError(thrown) ? thrown : failUnread(this.#permit, thrown, error, exchange))
  }

  #close (): void {
    clearTimeout(this.#timer)
    this.#far?.destroy()
    this.#outgoing?.destroy()
  }
}

/**
 * Closes the other side when one is closed, and resolves with how that came. To be called in the turn of the join: its
 * listener starts the flow.
 */
function watch (exchange: Routed, near: Socket, far: Socket, idle: number): Promise<Broken | undefined> {
  const { promise, resolve } = Promise.withResolvers<Broken | undefined>()
  let broken: Broken | undefined
  const note = (by: Broken['by'], error: GatewayError): void => { broken ??= { by, error } }
  /** Bytes on their way still arrive, where the peer takes them. */
  const end = (): void => {
    near.destroySoon()
    far.destroySoon()
    setTimeout(() => { near.destroy(); far.destroy() }, LINGER_MS).unref()
  }
  const timer = setTimeout(() => {
    note('gateway', new GatewayError('stream_incomplete', { cause: { kind: 'idle_timeout' } }))
    end()
  }, idle)
  const onAbort = (): void => {
    const reason = exchange.abortReason!
    note(reason.row === 'client_closed' ? 'client' : 'gateway', reason)
    end()
  }
  exchange.onAbort(onAbort)
  if (exchange.abortReason !== undefined) onAbort()           // it ended during the settlement
  near.on('error', (cause) => { note('client', new GatewayError('client_closed', { cause })) })
  far.on('error', (cause) => { note('upstream', new GatewayError('upstream_stream_interrupted', { cause })) })
  let open = 2
  for (const side of [near, far]) {
    side.on('data', () => { timer.refresh() })
    const closed = (): void => {
      end()
      if (--open > 0) return
      clearTimeout(timer)
      exchange.offAbort(onAbort)
      exchange.record.upstream_end_at = performance.now()
      resolve(broken)
    }
    if (side.destroyed) queueMicrotask(closed)                // its `close` may have been emitted already
    else side.once('close', closed)
  }
  return promise
}

/**
 * Checks the client's handshake (RFC 6455 4.2.1).
 * @returns the client's key
 * @throws {GatewayError}
 */
function checkHandshake ({ headers }: IncomingMessage): string {
  const refuse = (message: string): never => {
    throw new GatewayError('invalid_request', { message, headers: { 'sec-websocket-version': '13' } })
  }
  if (headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined) {
    refuse('A WebSocket begins without a request body. Send none.')
  }
  if (headers['sec-websocket-version'] !== '13') {
    refuse('Only version 13 of WebSocket is spoken here. Send "Sec-WebSocket-Version: 13".')
  }
  const key = headers['sec-websocket-key']
  if (key === undefined || !/^[A-Za-z0-9+/]{22}==$/.test(key)) {
    refuse('The header Sec-WebSocket-Key is missing, or not 16 bytes in base64.')
  }
  return key!
}

function proofOf (key: string): string {
  return createHash('sha1').update(key + GUID).digest('base64')
}
