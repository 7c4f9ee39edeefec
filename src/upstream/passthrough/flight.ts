// One request of a forward route at its upstream: sent once, a second time where a connection was lost in a race, and
// its answer handed over by its head, with the bytes unread.
import type { Agent, ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { parseOr } from '../../base/json.ts'
import type { OwnRequest, Routed } from '../../core/endpoint.ts'
import { nameFailure } from '../../core/hooks.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
import type { BytesReply } from '../../core/reply.ts'
import type { Upstream } from '../../core/upstream.ts'
import { GatewayError, isGatewayError, toGatewayError } from '../../errors.ts'
import { below } from '../dialects/versioned.ts'
import { failUnread } from '../limits/acquire.ts'
import { isOfRequest } from '../limits/attribution.ts'
import type { Permit } from '../limits/permit.ts'
import { connectionsOf } from '../pool.ts'
import { RACE_MS } from '../transport/connections.ts'
import { failureOf } from '../transport/connect.ts'
import { Deadline } from '../transport/deadline.ts'
import { forwardable, headersOf, ofFile, returnable, traceFor } from '../transport/headers.ts'
import { redirectOf } from '../transport/public-link.ts'
import type { ClientBody } from './client-body.ts'
import { readError } from './error-body.ts'
import { FileLinks } from './file-links.ts'
import { proxied, type ProxiedRequest, proxy } from './proxy.ts'

/** Statuses of an upstream that has no such address. */
const NOTHING_THERE = new Set([404, 405, 410, 501])

const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])

export interface FlightParts {
  readonly exchange: Routed
  readonly upstream: Upstream
  /** undefined: a request of the gateway's own, not counted by the upstream's limits */
  readonly permit: Permit | undefined
  readonly req: IncomingMessage
  readonly res: ServerResponse
  readonly body: ClientBody
  readonly own: OwnRequest | undefined
}

export class Flight implements ProxiedRequest {
  readonly headers: Readonly<Record<string, string>>
  readonly #upstreamHeaders: Readonly<Record<string, string>>
  readonly #parts: FlightParts
  readonly #answer = Promise.withResolvers<BytesReply>()
  readonly #deadline: Deadline | undefined
  /** the head was handed over, or the failure */
  #isDecided = false
  #outgoing: ClientRequest | undefined
  #incoming: IncomingMessage | undefined
  #timer: NodeJS.Timeout | undefined
  /** bytes read on its connection before the request was written */
  #bytesRead = 0
  #writtenAt = 0
  /** the request was sent a second time */
  #isAgain = false
  /** of a file: the links that were followed; undefined: none yet */
  #links: FileLinks | undefined
  /** why an answer broke off */
  #broken: UpstreamFailure = { kind: 'reset', cause: new Error('the answer broke off') }

  constructor (parts: FlightParts) {
    const { own, req, exchange, upstream } = parts
    const { config } = upstream
    this.#parts = parts
    this.headers = own === undefined ? forwardable(req.headers) : { ...own.headers }
    this.#upstreamHeaders = { ...headersOf(config, own === undefined ? req.headers : {}),
      ...traceFor(upstream, exchange) }
    const { total } = config.timeouts
    this.#deadline = own === undefined
      ? new Deadline(total, () => { this.#cut('total_timeout', `the answer was not over after ${total} ms`) })
      : undefined
  }

  /** Resolves with the head of the answer; to be called once. @throws {GatewayError} no answer came, or an error */
  async send (): Promise<BytesReply> {
    const { exchange, upstream, req, body, own } = this.#parts
    // Before the head it is a failure; behind it, a broken answer.
    exchange.onAbort(() => { this.#breakOff(exchange.abortReason!) })
    // On every path: also when a plugin refuses an answer, or the answer is over before the request is.
    exchange.onFinish(() => { this.#close() })
    proxied.set(req, this)
    if (exchange.abortReason !== undefined) this.#breakOff(exchange.abortReason)
    else {
      body.release()
      body.on('data', () => { this.#timer?.refresh() })
      this.#awaitHead()
      req.url = own?.path ?? below(upstream.basePath, exchange.received.path + exchange.received.query)
      // Trap 4: http-proxy-3 forwards all of req.headers, the client's key included. Only the allow-list stays.
      req.headers = { ...this.headers }
      this.#write(connectionsOf(upstream).agent, body)
    }
    return await this.#answer.promise
  }

  #write (agent: Agent, buffer: Readable): void {
    const { upstream, req, res } = this.#parts
    // Trap 6: this variable switches every call to `fetch`, which hands over answers without their bodies. It is read
    // at each call.
    delete process.env['FORCE_FETCH_PATH']
    try {
      proxy.web(req, res, {
        target: upstream.origin,
        agent,
        changeOrigin: true,
        // The address as received: a parsed and rewritten one can mean something else to an upstream.
        toProxy: true,
        // Trap 1: with its own piping a client of a dead upstream waits for ever. Trap 6: `fetch` is never set.
        selfHandleResponse: true,
        buffer,
        // Trap 3: setting headers in the proxyReq event throws once the request was queued.
        headers: this.#upstreamHeaders
      }, (error) => { this.onError(error) })
    } catch (thrown) {
      this.#fail(toGatewayError(thrown))
    }
  }

  /**
   * The timeout of the first byte: trap 5, proxyTimeout would look like a reset. It runs while the upstream has all
   * that the client has sent.
   */
  #awaitHead (): void {
    const { body, upstream: { config: { timeouts: { first_byte: firstByte } } } } = this.#parts
    this.#timer = setTimeout(() => {
      if (body.waitsForClient) this.#awaitHead()
      else this.#cut('first_byte_timeout', `no answer for ${firstByte} ms`)
    }, firstByte)
  }

  onRequest (request: ClientRequest): void {
    this.#outgoing = request
    this.#bytesRead = request.socket!.bytesRead
    this.#writtenAt = performance.now()
    if (this.#isDecided) request.destroy()
  }

  onError (error: Error): void {
    // The end of a request whose answer led on.
    if (this.#links !== undefined && !isGatewayError(error)) return
    if (!isGatewayError(error) && this.#isLostRace()) {
      this.#isAgain = true
      this.#write(connectionsOf(this.#parts.upstream).newAgent, Readable.from([]))
      return
    }
    // An upstream that refuses early often stops reading too: its answer counts.
    if (this.#incoming === undefined) this.#fail(isGatewayError(error) ? error : failureOf(error))
  }

  /** Whether the upstream closed an idle connection just when the request was written to it, and has not read it. */
  #isLostRace (): boolean {
    const socket = this.#outgoing?.socket
    return this.#isRepeatable() && !this.#isAgain && !this.#isDecided && this.#incoming === undefined &&
      this.#outgoing?.reusedSocket === true && socket?.bytesRead === this.#bytesRead &&
      performance.now() - this.#writtenAt < RACE_MS
  }

  /**
   * Whether the request may be sent twice: only if it is idempotent by its method or says so by a key (RFC 9110 9.2.2),
   * because the first one may have been executed; and only without a body, which is gone.
   */
  #isRepeatable (): boolean {
    const { method, headers } = this.#parts.exchange.received
    return (IDEMPOTENT.has(method) || headers['idempotency-key'] !== undefined) &&
      Number(headers['content-length'] ?? 0) === 0 && headers['transfer-encoding'] === undefined
  }

  onResponse (response: IncomingMessage): void {
    if (this.#isDecided) { response.destroy(); return }
    this.#incoming = response
    clearTimeout(this.#timer)
    const { own } = this.#parts
    const status = response.statusCode ?? 0
    if (status < 200 || status > 599) {
      this.#fail({ kind: 'malformed', cause: new Error(`the upstream answered with a status of ${status}`) })
      return
    }
    if (own !== undefined && status === 416) {
      this.#fail(new GatewayError('range_not_satisfiable', { headers: pickRange(response) }))
      return
    }
    if (own !== undefined && this.#leadsOn(response, status, own)) return
    const isGood = (status < 300 || status === 304) && (own === undefined || isFile(response, status))
    // A failed request of the gateway's own is the gateway's error: its client can't act on what the upstream says
    // about it.
    if (!isGood && (own !== undefined || !isOfRequest(status))) this.#failWithBody(response, status)
    else this.#handOver(response, status, isGood)
  }

  /** Follows a redirect to a file, or the link of one of which the upstream's own address knows nothing. */
  #leadsOn (response: IncomingMessage, status: number, own: OwnRequest): boolean {
    const link = redirectOf(status, response.headers.location) ??
      (this.#links === undefined && NOTHING_THERE.has(status) ? own.link : undefined)
    if (link === undefined) return false
    this.#incoming = undefined
    response.on('error', () => {}).destroy()
    try {
      const { exchange: { snapshot }, upstream, req } = this.#parts
      this.#links ??= new FileLinks(snapshot.upstreams.values(), upstream, own)
      const request = this.#links.request(link, req.method!, this.headers, this.#upstreamHeaders)
      this.#outgoing = request
      request.on('response', (next) => { this.onResponse(next) })
      request.on('error', (error) => { if (this.#incoming === undefined) this.#fail(failureOf(error)) })
      this.#awaitHead()
      request.end()
    } catch (cause) {
      this.#fail({ kind: 'malformed', cause })
    }
    return true
  }

  #failWithBody (response: IncomingMessage, status: number): void {
    this.#timer = setTimeout(() => { response.destroy() }, this.#parts.upstream.config.timeouts.idle)
    void readError(response).then((text) => {
      this.#fail({ kind: 'status', status, headers: response.headers, body: parseOr(text) })
    })
  }

  /** @param isGood the answer of a healthy upstream, not its refusal of this request */
  #handOver (response: IncomingMessage, status: number, isGood: boolean): void {
    const { exchange, upstream, permit, own } = this.#parts
    this.#isDecided = true
    exchange.record.first_byte_at = performance.now()
    exchange.snapshot.services.metrics.attempt(upstream.name, 'ok')
    if (isGood) permit?.begin()
    // A listener for data would start the flow before the writer is ready.
    response.pause()
    this.#watchSilence()
    response.on('data', () => {
      this.#timer!.refresh()
    }).on('pause', () => {
      clearTimeout(this.#timer)
      this.#deadline?.rest()
    }).on('resume', () => {
      this.#watchSilence()
      this.#deadline?.goOn()
    })
    response.on('end', () => {
      if (isGood) permit?.succeed()
      else permit?.leave()
    })
    response.on('close', () => {
      clearTimeout(this.#timer)
      this.#deadline?.off()
      exchange.record.upstream_end_at = performance.now()
      if (exchange.abortReason === undefined) {
        permit?.fail(this.#broken, new GatewayError('upstream_stream_interrupted', { cause: this.#broken }))
      } else { permit?.leave() }
    })
    const headers = own === undefined ? returnable(response.headers, upstream) : ofFile(response.headers)
    this.#answer.resolve({ kind: 'bytes', status, headers, bytes: response })
  }

  /**
   * The timeout between two chunks: traps 1 and 5, a dead or silent upstream must end the answer, and the gateway's own
   * timer tells the two apart. It pauses while a slow client holds the bytes back.
   */
  #watchSilence (): void {
    const { idle } = this.#parts.upstream.config.timeouts
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => { this.#cut('idle_timeout', `the upstream was silent for ${idle} ms`) }, idle)
  }

  #cut (kind: 'first_byte_timeout' | 'idle_timeout' | 'total_timeout', why: string): void {
    this.#broken = { kind, cause: new Error(why) }
    if (this.#isDecided) this.#incoming?.destroy(this.#broken.cause as Error)
    else this.#fail(this.#broken)
  }

  #breakOff (error: GatewayError): void {
    if (this.#isDecided) this.#incoming?.destroy(error)
    else this.#fail(error)
  }

  #fail (thrown: GatewayError | UpstreamFailure): void {
    if (this.#isDecided) return
    this.#isDecided = true
    const { exchange, upstream, permit } = this.#parts
    const error = isGatewayError(thrown) ? thrown : nameFailure(thrown, exchange, upstream.name)
    const isBlamed = permit !== undefined && !isGatewayError(thrown)
    const told = isBlamed ? failUnread(permit, thrown, error, exchange) : error
    this.#close()
    exchange.snapshot.services.metrics.attempt(upstream.name, error.row)
    this.#answer.reject(told)
  }

  /** Closes all that is still open; a no-op for what has ended. */
  #close (): void {
    const { permit, body, req } = this.#parts
    clearTimeout(this.#timer)
    this.#deadline?.off()
    permit?.leave()
    body.destroy()
    req.resume()
    this.#incoming?.destroy()
    this.#outgoing?.destroy()
  }
}

/** Whether an answer brings a file, or says that it has not changed: no "not yet" (202), and no JSON about it. */
function isFile ({ headers: { 'content-type': type = '' } }: IncomingMessage, status: number): boolean {
  return status !== 202 && status !== 204 && status !== 205 && (status === 304 || !/^\s*application\/json\b/i.test(type))
}

/** The total size, for a client whose range is beyond the end (RFC 9110 15.5.17). */
function pickRange ({ headers: { 'content-range': range } }: IncomingMessage): Readonly<Record<string, string>> {
  return range !== undefined && /^bytes \*\/\d+$/.test(range) ? { 'content-range': range } : {}
}
