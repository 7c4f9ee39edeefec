// The connections to one origin, made in one way: a pool for bodies that the pipeline reads, an agent for bytes that
// pass unread. Knows their ages, which were used before, and how all of them are closed.
import { Agent, type AgentOptions, type ClientRequest } from 'node:http'
import type { LookupFunction, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { Client, type Dispatcher, Pool } from 'undici'
import type { UpstreamConfig } from '../../config/config.ts'
import { createDialer, type Dial } from './connect.ts'
import { type InterimHeads, readingBehind } from './interim-heads.ts'
import { IDLE_MS, IDLE_MS_AT_MOST } from './lane/answer-heads.ts'
import type { ConnectionUser, LaneHandler, UsedConnection } from './lane/lane-call.ts'
import { onread } from './lane/lane-connection.ts'
import { Lane } from './lane/lane.ts'

/**
 * Milliseconds after a write within which a reset is a lost race: the upstream closed an idle connection just when a
 * request was written to it. A request whose connection breaks later may have been executed.
 */
export const RACE_MS = 1000

/**
 * Milliseconds that a request waits for its connection beyond the connect timeout. Until undici knows whether an
 * upstream speaks HTTP/2 it makes one connection at a time, and all requests wait for it; if it fails, all but one wait
 * for the next (8.12).
 */
const PATIENCE_MS = 500

/** One connection of the pool at a time: made anew when it is closed. */
export class SingleConnection extends Client implements UsedConnection {
  #socket: Socket | undefined
  #interim: InterimHeads | undefined
  /** requests written to the current connection */
  #requests = 0

  constructor (origin: string | URL, options: Client.Options, dial: Dial) {
    const connect: Dial = (asked, callback) => {
      dial(asked, (...[error, socket]) => {
        if (error !== null) { callback(error, null); return }
        this.#socket = socket
        this.#interim = readingBehind(socket)
        this.#requests = 0
        callback(null, socket)
      })
    }
    super(origin, { ...options, connect })
  }

  use (): boolean {
    this.#interim?.begin()
    return this.#requests++ > 0
  }

  get isConnected (): boolean {
    return this.#socket?.destroyed === false
  }

  get bytesRead (): number {
    return this.#socket?.bytesRead ?? 0
  }

  override dispatch (
    options: Dispatcher.DispatchOptions,
    handler: Dispatcher.DispatchHandler & Partial<ConnectionUser>
  ): boolean {
    handler.takeConnection?.(this)
    return super.dispatch(options, handler)
  }
}

/** An agent that speaks HTTP/1.1 only, as http-proxy-3 needs. */
class DialAgent extends Agent {
  readonly #dial: Dial
  readonly #maxAge: number
  readonly #born = new WeakMap<Duplex, number>()

  constructor (protocol: string, dial: Dial, maxAge: number) {
    super({ keepAlive: true })
    this.#dial = dial
    this.#maxAge = maxAge
    // node compares the protocol with the request's; its types hide it
    Object.assign(this, { protocol, defaultPort: protocol === 'https:' ? 443 : 80 })
  }

  override createConnection (
    options: AgentOptions & { readonly host?: string, readonly port?: number | string },
    callback: (error: Error | null, socket: Duplex) => void
  ): undefined {
    const { host = '', port = '' } = options
    this.#dial({ hostname: host, host, protocol: (this as unknown as { readonly protocol: string }).protocol,
      port: String(port) }, (...[error, socket]) => {
      if (error !== null) {
        callback(error, undefined as unknown as Duplex)
        return
      }
      this.#born.set(socket, performance.now())
      callback(null, socket)
    })
    return undefined
  }

  /**
   * A connection waits as long as one of undici's pool without a hint. One that is too old is closed, so that the next
   * request resolves the name anew.
   */
  override keepSocketAlive (socket: Duplex): boolean {
    if (performance.now() - (this.#born.get(socket) ?? 0) > this.#maxAge) return false
    // The base class heeds the upstream's keep-alive hint; its types hide the result.
    const isKept = (super.keepSocketAlive(socket) as unknown as boolean | undefined) === true
    const { timeout = 0 } = socket as Socket
    if (isKept && (timeout === 0 || timeout > IDLE_MS)) (socket as Socket).setTimeout(IDLE_MS)
    return isKept
  }

  override reuseSocket (socket: Duplex, request: ClientRequest): void {
    (socket as Socket).setTimeout(0)                          // no longer idle: the gateway's own timers watch
    super.reuseSocket(socket, request)
  }
}

export class Connections {
  /** for bodies that the pipeline reads */
  readonly pool: Pool
  /** for bytes that pass through unread */
  readonly agent: Agent
  /** the same, with a new connection for each request */
  readonly newAgent: Agent
  /** the same without the gateway's certificate: for what another upstream leads to */
  readonly uncertifiedAgent: Agent
  /** milliseconds that a request may wait for its connection: longer than making one may take */
  readonly patience: number
  /** in front of the pool; undefined: all requests go through that */
  readonly #lane: Lane | undefined
  readonly #origin: string
  readonly #dial: Dial
  readonly #options: Client.Options
  /** connections beside the pool */
  readonly #single = new Set<SingleConnection>()

  /**
   * @param lookup absent: the system's resolver
   * @param fastLane false: undici sends everything
   */
  constructor (origin: string, config: UpstreamConfig, lookup?: LookupFunction, fastLane = true) {
    const http2 = config.http2 === 'auto' && origin.startsWith('https:')
    const { connection_age: maxAge } = config.timeouts
    this.#origin = origin
    this.#dial = createDialer(config, { http2, lookup })
    // The gateway's own timers replace undici's: they stop while a stream is held back for a slow client (see call.ts).
    // Requests of HTTP/1.1 are not pipelined, because an answer may stream for minutes and must not block another.
    this.#options = { headersTimeout: 0, bodyTimeout: 0, keepAliveMaxTimeout: IDLE_MS_AT_MOST, allowH2: http2 }
    this.pool = new Pool(origin, {
      ...this.#options,
      connections: null,
      clientTtl: maxAge,
      factory: (url: URL, options: Client.Options) => new SingleConnection(url, options, this.#dial)
    })
    if (fastLane && origin.startsWith('http:') && config.proxy === undefined) {
      this.#lane = new Lane(origin, createDialer(config, { http2, lookup, onread }), maxAge)
    }
    // Without an own agent http-proxy-3 closes every upstream connection (src/README.md#trap-9).
    const dial = createDialer(config, { http2: false, lookup })
    const { protocol } = new URL(origin)
    this.agent = new DialAgent(protocol, dial, maxAge)
    this.newAgent = new DialAgent(protocol, dial, -1)
    this.uncertifiedAgent = config.tls?.cert === undefined ? this.agent
      : new DialAgent(protocol, createDialer(withoutCertificate(config), { http2: false, lookup }), maxAge)
    this.patience = config.timeouts.connect * (config.proxy === undefined ? 1 : 2) + PATIENCE_MS
  }

  /** Sends a request on a connection that waits, or a new one. @throws {Error} it can't be sent */
  dispatch (options: Dispatcher.DispatchOptions, handler: LaneHandler): void {
    if (this.#lane?.dispatch(options, handler) !== true) this.pool.dispatch(options, handler)
  }

  /** connections to the upstream but those of the agents, and requests that they have */
  get stats (): { readonly connected: number, readonly running: number } {
    const { connected, running } = this.pool.stats
    const lane = this.#lane?.stats
    return { connected: connected + (lane?.connected ?? 0), running: running + (lane?.running ?? 0) }
  }

  /** Sends a request on a connection of its own, which is closed after it. */
  dispatchAlone (options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): void {
    const connection = new SingleConnection(this.#origin, this.#options, this.#dial)
    this.#single.add(connection)
    connection.dispatch(options, handler)
    const over = (): void => { this.#single.delete(connection) }
    // Graceful: closes when the request is over.
    connection.close().then(over, over)
  }

  /** Closes all connections; requests in flight end first. */
  close (): void {
    this.#lane?.close()
    // A failure to close has no consequences.
    this.pool.close().catch(() => {})
    this.#closeAgents()
  }

  async destroy (): Promise<void> {
    this.#lane?.destroy()
    this.#closeAgents()
    await Promise.all([this.pool.destroy(), ...[...this.#single].map((connection) => connection.destroy())])
  }

  #closeAgents (): void {
    for (const agent of [this.agent, this.newAgent, this.uncertifiedAgent]) agent.destroy()
  }
}

function withoutCertificate (config: UpstreamConfig): UpstreamConfig {
  const { cert: _cert, key: _key, ...tls } = config.tls ?? {}
  return { ...config, tls }
}
