// The listeners: from a socket to an exchange, and an end for what never becomes one. The only reader of the current
// snapshot.
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type RequestListener, type Server,
  type ServerOptions, ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { observe } from '../telemetry/log.ts'
import { Refusals } from '../telemetry/sampled-refusals.ts'
import { Bag } from '../base/bag.ts'
import { type BodyLimits, BodyMemory } from '../core/body-memory.ts'
import { discard, hasMuchUnread } from './response-writer.ts'
import type { ServerConfig } from '../config/config.ts'
import type { LeasedSnapshot } from '../core/endpoint.ts'
import { HttpClient } from './client.ts'
import { corsHeaders, preflight } from './cors.ts'
import { GatewayError } from '../errors.ts'
import { shapeError } from '../protocols/error-shape.ts'
import { Exchange } from '../core/exchange.ts'
import { nowhere, shownPath } from '../core/not-found.ts'
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
import { inTurn } from './pipelining.ts'
import { noticeEnd, type Upgrade } from '../upstream/passthrough/websocket.ts'

/** Bytes of a request's head, and header lines in it. */
const HEADER_LIMIT = 64 * 1024
const MOST_HEADERS = 1000
/** How long a drain waits after its deadline for the last error frames to leave. */
const LAST_WORDS_MS = 5000

export interface Listeners {
  /** such as "http://127.0.0.1:8080" */
  readonly api: string
  readonly public: string
  readonly admin: string
}

/** What begins and ends an exchange, beside what its plugins have. */
export interface ServerServices extends Services {
  readonly metrics: Metrics
  readonly idempotency: Pick<Idempotency, 'recall'>
}

/** What node's parser says of what it could not read: `reason` in its own words, which quote nothing. */
type ParserError = NodeJS.ErrnoException & { readonly reason?: string }

/** @param upgrade the request wants a WebSocket */
type Handle = (req: IncomingMessage, res: ServerResponse, upgrade?: Upgrade) => void

export class GatewayServer {
  readonly #config: ServerConfig
  readonly #current: () => LeasedSnapshot
  readonly #services: ServerServices
  readonly bodyMemory: BodyMemory
  readonly overload: Overload
  readonly #refusals: Refusals
  readonly #pace: Pace
  readonly #servers: readonly Server[]
  /** what a drain's deadline ends */
  readonly #running = new Bag<Exchange>()
  /** of those that run, upgrades to WebSockets */
  #tunnels = 0
  #idle: (() => void) | undefined
  #isDraining = false

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
    this.overload = new Overload(config.overload, services.log, watchLoad)
    this.#pace = new Pace(config.body_rate, config.api.timeouts.body_idle)
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
  }

  get isDraining (): boolean {
    return this.#isDraining
  }

  get inFlight (): number {
    return this.#running.size
  }

  /**
   * @param names the others are somebody else's
   * @throws {Error} an address can't be listened at: all listeners are closed again
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
   * Ends well: `isDraining` first (readyz fails), after `drain_delay` no new connections, streams may finish within
   * `drain_timeout`, then they are ended in-band and charged for what was produced. Admin answers until the last.
   * @param isUrgent without the delay, and so that all of it is over within `drain_timeout`
   */
  async drain (isUrgent = false): Promise<void> {
    const { drain_delay: delay, drain_timeout: patience } = this.#config
    await (isUrgent ? this.#end(0, patience - Math.min(LAST_WORDS_MS, patience / 2)) : this.#end(delay, patience))
  }

  /** The same without patience. */
  async stop (): Promise<void> {
    await this.#end(0, 0)
  }

  async #end (delay: number, patience: number): Promise<void> {
    this.#isDraining = true
    await sleep(delay)
    const [api, publicly, admin] = this.#servers as [Server, Server, Server]
    api.close()
    publicly.close()
    const idle = new Promise<void>((resolve) => { this.#idle = resolve; this.#checkIdle() })
    await Promise.race([idle, sleep(patience)])
    for (const exchange of this.#running.all()) {
      exchange.abort(
        new GatewayError('service_unavailable', { message: 'The gateway is restarting. Send the request again.' })
      )
    }
    await Promise.race([idle, sleep(LAST_WORDS_MS)])
    admin.close()
    this.overload.close()
    this.#pace.close()
    this.#refusals.tell()
    for (const server of this.#servers) server.closeAllConnections()
  }

  #listener (handle: Handle): Server {
    const options: ServerOptions = {
      maxHeaderSize: HEADER_LIMIT,
      headersTimeout: this.#config.api.timeouts.headers,
      requestTimeout: 0,                                      // bodies have their own timer, which knows about progress
      connectionsCheckingInterval: Math.min(1000, this.#config.api.timeouts.headers),
      keepAliveTimeout: 75_000,
      requireHostHeader: false,                               // node's own 400 has no shape; see #exchange
      // Other upgrades (h2c by curl --http2) may be ignored, RFC 9110 7.8; WebSockets must be told.
      shouldUpgradeCallback: ({ headers }: IncomingMessage) =>
        headers.upgrade?.toLowerCase() === 'websocket' && !announcesBody(headers)
    }
    // What goes wrong with one request is an answer to that one: thrown into node it would be the end of all.
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
    // Reading the body says "continue"; until then a refused client has sent nothing (RFC 9110 10.1.1).
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

  /** Gives a request that wants another protocol what node gives to all others: a way to answer. */
  #upgrade (req: IncomingMessage, socket: Socket, head: Buffer, handle: Handle): void {
    socket.on('error', () => {})
    // An answer to what was asked before it is still on its way: whoever pipelines an upgrade breaks RFC 6455 4.1.
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
      this.#refuse(req, res, methods.length === 0 ? nowhere(req.method!, path, table === 'publicRoutes')
        : new GatewayError('method_not_allowed', {
          message: `This address takes ${methods.join(', ')}, not ${req.method!}.`,
          headers: { allow: methods.join(', ') }
        }))
      return
    }
    if (
      upgrade !== undefined &&
      !(route.endpoint.kind === 'forward' && route.endpoint.websocket === true && req.method === 'GET')
    ) {
      this.#refuse(req, res, noWebSocket())
      return
    }
    // While nothing runs one is let in: whoever refuses all because of what nobody gives back would do so for ever.
    // WebSockets are open for hours: only the next one waits for their end.
    if (
      this.overload.isOverloaded && table === 'routes' &&
      this.#running.size > (upgrade === undefined ? this.#tunnels : 0)
    ) {
      this.#shed(req, res)
      return
    }
    const exchange = new Exchange(createRequestId(), route, {
      method: req.method!,
      path,
      query,
      headers: req.headers,
      address: req.socket.remoteAddress ?? ''
    }, snapshot.lease(), snapshot.ledger)
    observe(exchange, this.#services, this.#refusals)
    this.#pace.begin(req, res, exchange)
    const place = this.#running.add(exchange)
    if (upgrade !== undefined) this.#tunnels++
    const { timeouts } = this.#config.api
    const limits: BodyLimits = { limit: this.#config.body_limit, idle: timeouts.body_idle, memory: this.bodyMemory }
    const client = new HttpClient(req, res, exchange, timeouts, limits, upgrade)
    exchange.onFinish(() => {
      client.release()
      this.#running.remove(place)
      if (upgrade !== undefined) this.#tunnels--
      snapshot.release()
      this.#checkIdle()
    })
    // An answer that we broke off ourselves, because its upstream died, was not left by the client, who would pay for
    // it.
    const leave = (): void => {
      if (!res.writableFinished && !client.isBrokenOff) exchange.abort(new GatewayError('client_closed'))
    }
    res.on('close', leave)
    void serve(exchange, client, this.#services.idempotency)
  }

  #allow (req: IncomingMessage, res: ServerResponse, headers: Headers): void {
    this.#pace.begin(req, res)
    const id = createRequestId()
    if (hasMuchUnread(req)) res.shouldKeepAlive = false
    res.writeHead(204, { ...headers, 'x-request-id': id, 'request-id': id }).end()
  }

  /** A request that no route takes: shaped, with an id, before any plugin. */
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
   * Without a line in the log, which would be more work than the rest: that at the end of the overload says how many
   * there were.
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

  /** Who reports a request id can be found, also where no exchange was made. */
  #note (id: string, { status, code }: GatewayError, method: string | undefined, url: string | undefined): void {
    this.#refusals.note({ status, code }, () => {
      this.#services.log.info({ request_id: id, status, code, method, path: url && shownPath(readTarget(url).path) },
        'refused')
    })
  }

  /** What the parser could not read, or what came too slowly: there is no request object, only the socket. */
  #refuseBroken (error: ParserError, socket: Duplex): void {
    const refusal = error.code === 'HPE_HEADER_OVERFLOW' ? new GatewayError('headers_too_large')
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? new GatewayError('request_timeout')
        : new GatewayError('bad_request', {
          message: `The request is not valid HTTP${error.reason === undefined ? '' : ` (${error.reason})`}. ` +
            'Let an HTTP client write it.'
        })
    // An answer that is already on its way would be corrupted by another one.
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
    // `end` waits for the client's own end; one that never comes must not keep the socket.
    setTimeout(() => { socket.destroy() }, 1000).unref()
  }

  #checkIdle (): void {
    if (this.#running.size === 0) this.#idle?.()
  }
}

/**
 * No handshake of a WebSocket has one (RFC 6455 4.1), and node gives what is behind one as a stream that is no socket.
 */
function announcesBody ({ 'transfer-encoding': encoding, 'content-length': length }: IncomingHttpHeaders): boolean {
  return encoding !== undefined || (length !== undefined && Number(length) !== 0)
}

/**
 * Something other than to be told to send the body, which HTTP/1.0 can't be told and only ignores (RFC 9110 10.1.1).
 */
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
function bind (server: Server, listen: string, name: string): Promise<string> {
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
