// WebSockets of forward routes: the upgrade, then bytes both ways that nobody here reads. http-proxy-3 asks and joins
// the two sides; what it would tell the client by itself is taken out of its hands: errors are shaped, the 101 has our
// headers, and comes after the settlement.
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
import { acceptable, returnable, upgradable } from '../transport/headers.ts'
import type { Permit } from '../limits/permit.ts'
import { connectionsOf } from '../pool.ts'

/** An upstream that has agreed; the client does not know yet. */
export interface Tunnel {
  /** Tells the client, and resolves when both sides are closed: with undefined if that was how WebSockets end. Once. */
  join (): Promise<Broken | undefined>
}

export interface Broken {
  readonly by: 'client' | 'upstream' | 'gateway'
  readonly error: GatewayError
}

/** What a client sent with the upgrade, and the way back to it. */
export interface Upgrade {
  readonly req: IncomingMessage
  /** for errors: until `join` the socket is its */
  readonly res: ServerResponse
  readonly socket: Socket
  /** Once, before somebody else reads the socket: what has come by then is put back into it. */
  handOver (): void
}

type Join = (response: IncomingMessage, socket: Socket, head: Buffer) => void

/**
 * Bytes of a client that does not wait for its 101, as it must (RFC 6455 4.1). With more unread in its socket nobody
 * would notice that it leaves.
 */
const EARLY_BYTES = 64 * 1024
/** How long one side may take for the last bytes when the other is gone. */
const LINGER_MS = 5000
/** A peer that has vanished is noticed so much later, and ten probes. */
const PROBE_MS = 30_000

/** RFC 6455 1.3 */
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'

/** An upgrade on its way, as the proxy tells of it. */
interface ProxiedUpgrade {
  onRequest (request: ClientRequest): void
  onError (error: Error): void
}

/** By the client's request. */
const proxied = new WeakMap<IncomingMessage, ProxiedUpgrade>()
proxy.on('proxyReqWs', (request, req) => { proxied.get(req)?.onRequest(request) })
// Trap 7: an error of the client's socket is emitted here, and without a listener it is thrown: the process ends.
proxy.on('error', () => {})

/**
 * Nobody else reads the socket before the two sides are joined, and who does not read is not told that the client has
 * left.
 * @param head what came behind the head
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
      // What has ended takes nothing back; it is destroyed by now.
      if (bytes > 0 && !socket.destroyed) socket.unshift(Buffer.concat(early))
    }
  }
}

/**
 * Asks the upstream for a WebSocket.
 * @returns its answer, where that says what is wrong with the client's own request
 * @throws {GatewayError} it can't be asked now, refused or failed; nothing was written to the client
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

/** One upgrade at its upstream, until both sides are joined or it failed. */
class Handshake implements ProxiedUpgrade {
  readonly #exchange: Routed
  readonly #permit: Permit
  readonly #key: string
  readonly #upgrade: Upgrade
  readonly #answer = Promise.withResolvers<Tunnel | BytesReply>()
  /** the upstream has agreed, or failed */
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
      this.#permit.leave()                                    // where it never came to a join
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
        // One that waited may be closed at the moment of the upgrade, and this one is never given back.
        agent: connectionsOf(upstream).newAgent,
        changeOrigin: true,
        toProxy: true,
        headers: { 'user-agent': `model-gateway/${gatewayVersion}`, ...upstream.config.headers }
      }, (error) => { this.onError(error) })
    } catch (thrown) {
      this.#fail(toGatewayError(thrown))
      return
    }
    this.#listen(this.#outgoing!)
  }

  /**
   * Trap 8: the proxy's listeners pass on what an upstream says in the place of a 101, as it is, and close the client's
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
    far.on('error', () => {})                                 // until it is joined; then the proxy's and ours listen
    this.#far = far
    // Who does not prove that it has understood may read what follows as requests.
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
    // A server that its client made hang up, with bytes unread, resets too: that says nothing about it.
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
    if (!isGatewayError(thrown)) failUnread(this.#permit, thrown, error)
    this.#exchange.snapshot.services.metrics.attempt(upstream.name, error.row)
    this.#answer.reject(error)
  }

  #close (): void {
    clearTimeout(this.#timer)
    this.#far?.destroy()
    this.#outgoing?.destroy()
  }
}

/**
 * Ends what is left of a pair, and tells how it came to that. Called when they are joined, in the same turn: its
 * listener starts the flow.
 */
function watch (exchange: Routed, near: Socket, far: Socket, idle: number): Promise<Broken | undefined> {
  const { promise, resolve } = Promise.withResolvers<Broken | undefined>()
  let broken: Broken | undefined
  const note = (by: Broken['by'], error: GatewayError): void => { broken ??= { by, error } }
  /** What is on its way still arrives, where somebody takes it. */
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
  if (exchange.abortReason !== undefined) onAbort()           // while it was settled
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
    if (side.destroyed) queueMicrotask(closed)                // its `close` may have been
    else side.once('close', closed)
  }
  return promise
}

/**
 * RFC 6455 4.2.1
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
