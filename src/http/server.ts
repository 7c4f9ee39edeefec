// The listeners: from a socket to an exchange, on the snapshot that is current then, and the refusal of requests that
// get none: an unknown address, a bad head, an overload.
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type RequestListener, type Server,
  type ServerOptions, ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { observer } from '../telemetry/log.ts'
import { Refusals } from '../telemetry/sampled-refusals.ts'
import { Bag } from '../base/bag.ts'
import { type BodyLimits, BodyMemory } from '../core/body-memory.ts'
import { discard, hasMuchUnread } from './response-writer.ts'
import type { ServerConfig } from '../config/config.ts'
import { drainTimes } from '../config/drain-times.ts'
import type { CompiledRoute, LeasedSnapshot, Routed } from '../core/endpoint.ts'
import { HttpClient } from './client.ts'
import { corsHeaders, preflight } from './cors.ts'
import { GatewayError } from '../errors.ts'
import { shapeError } from '../protocols/error-shape.ts'
import { type ClientRequest, Exchange, type Outcome } from '../core/exchange.ts'
import { unrouted, shownPath } from '../core/not-found.ts'
import { memoryLimitOf, Overload, type WatchLoad, watchProcess } from './overload.ts'
import { Pace } from './body-rate.ts'
import { serve } from '../pipeline/pipeline.ts'
import type { Headers } from '../core/reply.ts'
import { createRequestId } from '../base/request-id.ts'
import { readTarget } from '../core/router.ts'
import { styleOf } from '../protocols/index.ts'
import type { Services } from '../core/services.ts'
import type { Idempotency } from '../pipeline/idempotency.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { RequestLog } from '../telemetry/requests/request-log.ts'
import { inTurn } from './pipelining.ts'
import { LaneClient } from './lane/client.ts'
import type { Running } from './lane/connection.ts'
import { Lane } from './lane/lane.ts'
import type { LaneRequest } from './lane/read-request.ts'
import type { LaneResponse } from './lane/response.ts'
import { noticeEnd, type Upgrade } from '../upstream/passthrough/websocket.ts'

/** Limits of a request's head: bytes, and header lines. */
const HEADER_LIMIT = 64 * 1024
const MOST_HEADERS = 1000
/** Milliseconds that a stop waits for the last error frames to be sent. */
const LAST_WORDS_MS = 5000

export interface Listeners {
  /** such as "http://127.0.0.1:8080" */
  readonly api: string
  readonly public: string
  readonly admin: string
}

/** Services for the begin and end of exchanges, beside those of plugins. */
export interface ServerServices extends Services {
  readonly metrics: Metrics
  readonly idempotency: Pick<Idempotency, 'recall'>
  readonly requests: Pick<RequestLog, 'note'>
}

/** An error of node's parser: `reason` is its own text, which quotes nothing of the request. */
type ParserError = NodeJS.ErrnoException & { readonly reason?: string }

/** @param upgrade present: the request wants a WebSocket */
type Handle = (req: IncomingMessage, res: ServerResponse, upgrade?: Upgrade) => void

export class GatewayServer {
  readonly #config: ServerConfig
  readonly #current: () => LeasedSnapshot
  readonly #services: ServerServices
  readonly bodyMemory: BodyMemory
  readonly overload: Overload
  readonly #refusals: Refusals
  readonly #observe: (exchange: Exchange) => void
  readonly #pace: Pace
  readonly #servers: readonly Server[]
  /** in front of the API's server; undefined: there is none */
  readonly #lane: Lane | undefined
  readonly #bodyLimits: BodyLimits
  /** exchanges that a drain's deadline aborts */
  readonly #running = new Bag<Exchange>()
  /** of all of them */
  readonly #onEnd = this.#ended.bind(this)
  /** running upgrades to WebSockets */
  #tunnels = 0
  #idle: (() => void) | undefined
  #isDraining = false
  #isAsked = false

  /** @param admin serves the admin listener */
  constructor (
    config: ServerConfig,
    current: () => LeasedSnapshot,
    services: ServerServices,
    admin: RequestListener,
    watchLoad: WatchLoad = watchProcess(memoryLimitOf(config))
  ) {
    this.#config = config
    this.#current = current
    this.#services = services
    this.bodyMemory = new BodyMemory(config.body_memory)
    this.#refusals = new Refusals(services.log)
    this.#observe = observer(services, this.#refusals)
    this.overload = new Overload(config.overload, services.log, watchLoad)
    this.#pace = new Pace(config.body_rate, config.api.timeouts.body_idle)
    this.#bodyLimits = { limit: config.body_limit, idle: config.api.timeouts.body_idle, memory: this.bodyMemory }
    const listener = (handle: Handle): Server => this.#listener(handle)
    this.#servers = [
      listener((req, res, upgrade) => { this.#exchange(req, res, 'routes', upgrade) }),
      listener((req, res, upgrade) => { this.#exchange(req, res, 'publicRoutes', upgrade) }),
      listener((req, res, upgrade) => {
        if (upgrade !== undefined) { this.#refuse(req, res, noWebSocket()); return }
        this.#pace.begin(req, res)
        admin(req, res)
      })
    ]
    if (config.fast_lane === 'on') this.#lane = this.#openLane(this.#servers[0]!)
  }

  get isDraining (): boolean {
    return this.#isDraining
  }

  /** whether a client's request has come that has a route */
  get isAsked (): boolean {
    return this.#isAsked
  }

  get inFlight (): number {
    return this.#running.size
  }

  /**
   * @param names listeners of this process; others may belong to another one
   * @throws {Error} an address can't be bound: all listeners are closed again
   */
  async listen<Name extends keyof Listeners> (names: readonly Name[]): Promise<Pick<Listeners, Name>> {
    try {
      const urls: Partial<Record<Name, string>> = {}
      for (const name of names) {
        urls[name] = await bind(this.#servers[NAMES.indexOf(name)]!, this.#config[name].listen, `server.${name}.listen`)
      }
      this.overload.start()
      return urls as Pick<Listeners, Name>
    } catch (error) {
      this.overload.close()
      for (const server of this.#servers) server.close()
      throw error
    }
  }

  /**
   * Shuts down gracefully: `isDraining` first (readyz fails), after `drain_delay` no new connections; streams may
   * finish for most of `drain_timeout`, then they are ended in-band and charged for what was produced. The admin
   * listener closes last.
   * @param isUrgent without the delay
   */
  async drain (isUrgent = false): Promise<void> {
    const { close, abort, disconnect } = drainTimes(this.#config, isUrgent)
    await this.#end(close, abort - close, disconnect - abort)
  }

  /** Shuts down at once. */
  async stop (): Promise<void> {
    await this.#end(0, 0, LAST_WORDS_MS)
  }

  async #end (delay: number, patience: number, lastWords: number): Promise<void> {
    this.#isDraining = true
    await sleep(delay)
    const [api, publicly, admin] = this.#servers as [Server, Server, Server]
    api.close()
    this.#lane?.closeIdle()
    publicly.close()
    for (const exchange of this.#running.all()) exchange.endWait?.()
    const idle = new Promise<void>((resolve) => { this.#idle = resolve; this.#checkIdle() })
    await Promise.race([idle, sleep(patience)])
    for (const exchange of this.#running.all()) {
      exchange.abort(
        new GatewayError('service_unavailable', { message: 'The gateway is restarting. Send the request again.' })
      )
    }
    await Promise.race([idle, sleep(lastWords)])
    admin.close()
    this.overload.close()
    this.#pace.close()
    this.#refusals.tell()
    for (const server of this.#servers) server.closeAllConnections()
    this.#lane?.closeAll()
  }

  #listener (handle: Handle): Server {
    const options: ServerOptions = {
      maxHeaderSize: HEADER_LIMIT,
      headersTimeout: this.#config.api.timeouts.headers,
      requestTimeout: 0,                                      // bodies are timed by their progress, not as a whole
      connectionsCheckingInterval: Math.min(1000, this.#config.api.timeouts.headers),
      keepAliveTimeout: 75_000,
      requireHostHeader: false,                               // node's own 400 has no error shape; see #exchange
      // Other upgrades (h2c by curl --http2) may be ignored, RFC 9110 7.8; a WebSocket must be answered.
      shouldUpgradeCallback: ({ headers }: IncomingMessage) =>
        headers.upgrade?.toLowerCase() === 'websocket' && !announcesBody(headers)
    }
    // An error in one request answers that request: thrown into node it would end the process.
    const guarded: Handle = (req, res, upgrade) => {
      try {
        handle(req, res, upgrade)
      } catch (thrown) {
        this.#fail(req, res, thrown)
      }
    }
    const plain = inTurn((req, res) => {
      expectsMore(req) ? this.#refuse(req, res, new GatewayError('expectation_failed')) : guarded(req, res)
    })
    const server = createServer(options, plain)
    server.maxHeadersCount = MOST_HEADERS
    // Reading the body sends "continue"; until then a refused client has sent nothing (RFC 9110 10.1.1).
    this.#pace.watch(server)
    server.on('checkContinue', plain)
    server.on('checkExpectation', plain)
    server.on('clientError', (error: ParserError, socket) => {
      this.#refuseBroken(error, socket)
    })
    server.on('upgrade', (req: IncomingMessage, socket: Socket, head: Buffer) => {
      this.#upgrade(req, socket, head, guarded)
    })
    server.on('connect', (req: IncomingMessage, socket: Duplex) => {
      this.#writeRaw(socket, new GatewayError('method_not_allowed'), req.url ?? '')
    })
    return server
  }

  /** Makes the response that node gives to all requests but upgrades. */
  #upgrade (req: IncomingMessage, socket: Socket, head: Buffer, handle: Handle): void {
    socket.on('error', () => {})
    // The answer to an earlier request is still being sent: a pipelined upgrade breaks RFC 6455 4.1.
    if ((socket as { _httpMessage?: ServerResponse })._httpMessage != null) { socket.destroy(); return }
    const res = new ServerResponse(req)
    res.shouldKeepAlive = false
    res.assignSocket(socket)
    // `close` of the response comes with that of the socket.
    res.on('finish', () => { socket.end(() => { socket.destroy() }) })
    handle(req, res, { req, res, socket, ...noticeEnd(socket, head) })
  }

  #exchange (req: IncomingMessage, res: ServerResponse, table: 'routes' | 'publicRoutes', upgrade?: Upgrade): void {
    const { path, query } = readTarget(req.url ?? '')
    if (this.#isDraining) res.shouldKeepAlive = false
    if (req.headers.host === undefined && req.httpVersion === '1.1') {
      this.#refuse(req, res, new GatewayError('bad_request', { message: 'The Host header is missing.' }))
      return
    }
    const snapshot = this.#current()
    const allowed = req.method === 'OPTIONS' ? preflight(req.headers, snapshot[table].methodsAt(path)) : undefined
    // Before the routes: one that takes OPTIONS asks for a key, which a preflight never carries.
    if (allowed !== undefined) { this.#allow(req, res, allowed); return }
    const route = snapshot[table].find(req.method!, path)
    if (route === undefined) {
      const methods = snapshot[table].methodsAt(path)
      if (upgrade !== undefined && methods.length > 0 && styleOf(path).refusesSockets === true) {
        this.#refuse(req, res, new GatewayError('upgrade_refused', { headers: { upgrade: 'HTTP/1.1' } }))
        return
      }
      this.#refuse(req, res, unrouted(req.method!, path, methods, table === 'publicRoutes'))
      return
    }
    if (
      upgrade !== undefined &&
      !(route.endpoint.kind === 'forward' && route.endpoint.websocket === true && req.method === 'GET')
    ) {
      this.#refuse(req, res, noWebSocket())
      return
    }
    if (table === 'routes' && this.#isFull(upgrade !== undefined)) {
      this.#shed(req, res)
      return
    }
    const exchange = this.#open(route, snapshot, req.method!, path, query, req.headers, req.socket.remoteAddress ?? '')
    this.#pace.begin(req, res, exchange)
    if (upgrade !== undefined) {
      this.#tunnels++
      exchange.onFinish(() => { this.#tunnels-- })
    }
    const client = new HttpClient(req, res, exchange, this.#config.api.timeouts, this.#bodyLimits, upgrade)
    // An answer that was broken off here, because its upstream died, is not the client's leaving, for which the client
    // would pay.
    const leave = (): void => {
      if (!res.writableFinished && !client.isBrokenOff) exchange.abort(new GatewayError('client_closed'))
    }
    res.on('close', leave)
    this.#serve(exchange, client)
  }

  /**
   * Whether a request is refused for an overload. With none running, one is admitted: memory that no running request
   * holds would otherwise block all of them for ever. WebSockets are open for hours, so they do not count against
   * ordinary requests.
   */
  #isFull (isUpgrade: boolean): boolean {
    return this.overload.isOverloaded && this.#running.size > (isUpgrade ? 0 : this.#tunnels)
  }

  /** Makes the exchange of a request that is admitted. It holds a lease of the snapshot. */
  #open (
    route: CompiledRoute, snapshot: LeasedSnapshot, method: string, path: string, query: string,
    headers: ClientRequest['headers'], address: string, head?: object
  ): Routed {
    this.#isAsked = true
    const received: ClientRequest = head === undefined ? { method, path, query, headers, address }
      : { method, path, query, headers, address, head }
    const exchange = new Exchange(createRequestId(), route, received, snapshot.lease(), snapshot.ledger)
    this.#observe(exchange)
    return exchange
  }

  #serve (exchange: Routed, client: HttpClient | LaneClient): void {
    this.#running.add(exchange)
    exchange.onFinish(this.#onEnd)
    serve(exchange, client, this.#services.idempotency)
  }

  #ended (_outcome: Outcome, exchange: Exchange): void {
    this.bodyMemory.give(exchange.bodyBytes)
    this.#running.remove(exchange)
    const { snapshot } = exchange as Routed
    snapshot.release()
    this.#checkIdle()
  }

  #openLane (server: Server): Lane {
    return new Lane(server, {
      headers: this.#config.api.timeouts.headers,
      bodyLimit: this.#config.body_limit,
      isDraining: () => this.#isDraining,
      begin: (request, body, response, address) => this.#beginInLane(request, body, response, address),
      refuseLate: (socket) => {
        const late: ParserError = new Error('no request has come in time')
        late.code = 'ERR_HTTP_REQUEST_TIMEOUT'
        this.#refuseBroken(late, socket)
      }
    })
  }

  /** A request that is not plain, or comes at a moment that is not, is left to node; so is one that can't be begun. */
  #beginInLane (request: LaneRequest, body: Buffer, response: LaneResponse, address: string): Running | undefined {
    try {
      return this.#isDraining || this.overload.isOverloaded ? undefined
        : this.#serveInLane(request, body, response, address)
    } catch (err) {
      this.#services.log.error({ err }, 'a request could not be begun in the lane')
      return undefined
    }
  }

  #serveInLane (request: LaneRequest, body: Buffer, response: LaneResponse, address: string): Running | undefined {
    const snapshot = this.#current()
    const { path, query } = readTarget(request.target)
    const route = snapshot.routes.find('POST', path)
    const isLarge = snapshot.bodies !== undefined && body.length >= snapshot.bodies.least
    if (route?.endpoint.kind !== 'model' || isLarge) return undefined
    const exchange = this.#open(route, snapshot, 'POST', path, query, request.headers, address, request.head)
    const client = new LaneClient(response, exchange, this.#config.api.timeouts, this.#bodyLimits, body)
    this.#serve(exchange, client)
    return client
  }

  #allow (req: IncomingMessage, res: ServerResponse, headers: Headers): void {
    this.#pace.begin(req, res)
    const id = createRequestId()
    if (hasMuchUnread(req)) res.shouldKeepAlive = false
    res.writeHead(204, { ...headers, 'x-request-id': id, 'request-id': id }).end()
  }

  /** Refuses a request without an exchange: with an error shape and an id, before any plugin. */
  #refuse (req: IncomingMessage, res: ServerResponse, error: GatewayError): void {
    const id = createRequestId()
    this.#services.metrics.rejected(error.row)
    this.#note(id, error, req.method, req.url)
    this.#tell(req, res, error, id)
  }

  #fail (req: IncomingMessage, res: ServerResponse, err: unknown): void {
    const id = createRequestId()
    this.#services.log.error({ request_id: id, err }, 'a request could not be begun')
    if (res.headersSent) res.destroy()
    else this.#tell(req, res, new GatewayError('server_error', { cause: err }), id)
  }

  /**
   * Refuses a request in an overload, without a line in the log, which would cost more than the refusal: the line at
   * the end of the overload has their number.
   */
  #shed (req: IncomingMessage, res: ServerResponse): void {
    this.#services.metrics.rejected('overloaded')
    this.#tell(req, res, this.overload.refusal(), createRequestId())
  }

  #tell (req: IncomingMessage, res: ServerResponse, error: GatewayError, id: string): void {
    this.#pace.begin(req, res)
    const { status, headers, body } = shapeError(error, styleOf(readTarget(req.url ?? '').path), id)
    const text = JSON.stringify(body)
    const isSending = hasMuchUnread(req)
    if (isSending) res.shouldKeepAlive = false
    res.writeHead(status, { ...headers, ...corsHeaders(req.headers), 'content-type': 'application/json',
      'content-length': Buffer.byteLength(text), 'x-request-id': id, 'request-id': id })
    if (!isSending) {
      res.end(text)
      return
    }
    res.write(text)
    void discard(req, res).then(() => { res.end() })
  }

  /** Notes a refusal for the log, so that a client's request id is found there even without an exchange. */
  #note (id: string, { status, code }: GatewayError, method: string | undefined, url: string | undefined): void {
    this.#refusals.note({ status, code }, () => {
      this.#services.log.info({ request_id: id, status, code, method, path: url && shownPath(readTarget(url).path) },
        'refused')
    })
  }

  /** Answers an unparsable or too slow request: there is no request object, only the socket. */
  #refuseBroken (error: ParserError, socket: Duplex): void {
    const refusal = error.code === 'HPE_HEADER_OVERFLOW' ? new GatewayError('headers_too_large')
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? new GatewayError('request_timeout')
        : new GatewayError('bad_request', {
          message: `The request is not valid HTTP${error.reason === undefined ? '' : ` (${error.reason})`}. ` +
            'Let an HTTP client write it.'
        })
    // A second answer would corrupt one that is being sent.
    const underWay = (socket as { _httpMessage?: ServerResponse })._httpMessage?.headersSent === true
    if (error.code === 'ECONNRESET' || !socket.writable || underWay) { socket.destroy(); return }
    this.#writeRaw(socket, refusal, '')
  }

  #writeRaw (socket: Duplex, error: GatewayError, path: string): void {
    const id = createRequestId()
    this.#services.metrics.rejected(error.row)
    this.#note(id, error, undefined, path)
    const { status, headers, body } = shapeError(error, styleOf(readTarget(path).path), id)
    const text = JSON.stringify(body)
    const head = { ...headers, 'content-type': 'application/json', 'content-length': Buffer.byteLength(text),
      'x-request-id': id, 'request-id': id, connection: 'close' }
    socket.on('error', () => {})
    const fields = Object.entries(head).map(([name, value]) => `${name}: ${value}\r\n`).join('')
    socket.end(`HTTP/1.1 ${status} ${REASONS[status] ?? 'Error'}\r\n${fields}\r\n${text}`)
    // `end` waits for the client's end, which may never come.
    setTimeout(() => { socket.destroy() }, 1000).unref()
  }

  #checkIdle (): void {
    if (this.#running.size === 0) this.#idle?.()
  }
}

/**
 * Whether an upgrade announces a body: no handshake of a WebSocket has one (RFC 6455 4.1), and node gives the bytes
 * behind it as a stream that is no socket.
 */
function announcesBody ({ 'transfer-encoding': encoding, 'content-length': length }: IncomingHttpHeaders): boolean {
  return encoding !== undefined || (length !== undefined && Number(length) !== 0)
}

/** Whether `expect` asks for more than 100-continue, which HTTP/1.0 can't be sent and ignores (RFC 9110 10.1.1). */
function expectsMore ({ headers: { expect = '' } }: IncomingMessage): boolean {
  return expect.split(',').some((one) => !['', '100-continue'].includes(one.trim().toLowerCase()))
}

function noWebSocket (): GatewayError {
  return new GatewayError('invalid_request', {
    message: 'This address does not take WebSocket connections. Send a plain HTTP request.'
  })
}

const REASONS: Readonly<Record<number, string>> = { 400: 'Bad Request', 405: 'Method Not Allowed',
  408: 'Request Timeout', 431: 'Request Header Fields Too Large' }

const NAMES: ReadonlyArray<keyof Listeners> = ['api', 'public', 'admin']

/** @param name where the address stands in gateway.yaml */
export function bind (server: Server, listen: string, name: string): Promise<string> {
  const [, host, port] = /^(.*):(\d+)$/.exec(listen)!
  const bare = host!.replace(/^\[|\]$/g, '')
  return new Promise((resolve, reject) => {
    const refuse = (cause: NodeJS.ErrnoException): void => {
      reject(new Error(
        `${UNBOUND[cause.code ?? ''] ?? `it can't listen at this address (${cause.message})`}: ${listen}. Change ` +
        `${name}, or free the address.`,
        { cause }
      ))
    }
    server.once('error', refuse)
    server.listen(Number(port), bare, () => {
      server.off('error', refuse)
      resolve(`http://${host}:${(server.address() as AddressInfo).port}`)
    })
  })
}

const UNBOUND: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another process listens at this address already',
  EACCES: 'this user may not listen at this address',
  EADDRNOTAVAIL: 'this machine does not have this address',
  ENOTFOUND: 'this host name is not known here'
}

/** Does not keep the process alive. */
function sleep (ms: number): Promise<void> {
  return new Promise((resolve) => { setTimeout(resolve, ms).unref() })
}
