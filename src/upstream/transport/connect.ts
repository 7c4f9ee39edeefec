// Makes connections to upstreams: TLS with their own authorities and certificates, through a proxy, in bounded time.
// Used by undici's pools and by the agent of forward routes.
import { lookup as resolve } from 'node:dns'
import { request } from 'node:http'
import { isIPv6, type LookupFunction, type OnReadOpts, type Socket } from 'node:net'
import { buildConnector } from 'undici'
import { lacksResources } from '../../base/descriptors.ts'
import type { UpstreamConfig } from '../../config/config.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
import { readingBehind } from './interim-heads.ts'
import { connectToAny } from './addresses.ts'

export type Dial = buildConnector.connector
type Dialed = buildConnector.Callback

/** No connection was made, so nothing was sent. */
export class NotConnected extends Error {
  readonly kind: 'refused' | 'connect_timeout' | 'exhausted'

  constructor (cause: Error) {
    super(cause.message, { cause })
    this.kind = lacksResources(cause) ? 'exhausted'
      : (cause as NodeJS.ErrnoException).code === 'UND_ERR_CONNECT_TIMEOUT' ? 'connect_timeout' : 'refused'
  }
}

/** The failure of a request that ended without an answer. */
export function failureOf (error: Error): UpstreamFailure {
  return error instanceof NotConnected ? { kind: error.kind, cause: error.cause } : { kind: 'reset', cause: error }
}

export interface DialOptions {
  /** offers HTTP/2 beside HTTP/1.1 */
  readonly http2: boolean
  /** absent: the system's resolver */
  readonly lookup?: LookupFunction | undefined
  /** reads without the machinery of streams; not over TLS, nor through a proxy */
  readonly onread?: OnReadOpts
}

/** A connector that resolves the name for each connection; a failure is a NotConnected. */
export function createDialer ({ timeouts, tls, proxy }: UpstreamConfig, { http2, lookup, onread }: DialOptions): Dial {
  const { server_name: servername, ...secure } = tls ?? {}
  const toAny = (connect: Dial): Dial => connectToAny(connect, lookup ?? resolve, timeouts.connect)
  const connectHere = buildConnector({ timeout: timeouts.connect, allowH2: http2, preferH2: http2, ...secure,
    ...(onread !== undefined && { onread }) })
  const connect = toAny(connectHere)
  const connectToProxy = toAny(buildConnector({ timeout: timeouts.connect }))
  return (asked, callback) => {
    const done: Dialed = (...[error, socket]) => {
      if (error !== null) callback(new NotConnected(error), null)
      else callback(null, socket)
    }
    const options = servername === undefined ? asked : { ...asked, servername }
    if (proxy === undefined) { connect(options, done); return }
    openTunnel(new URL(proxy), options, timeouts.connect, connectToProxy, (...[error, socket]) => {
      if (error !== null) done(error, null)
      else if (options.protocol === 'https:') connectHere({ ...options, httpSocket: socket }, done)
      else done(null, socket)
    })
  }
}

/** Asks the proxy for a tunnel to the upstream (RFC 9110 9.3.6), whose bytes it cannot read, if they are TLS. */
function openTunnel (
  proxy: URL, { hostname, protocol, port }: buildConnector.Options, timeoutMs: number,
  connect: Dial, callback: Dialed
): void {
  const usual = protocol === 'https:' ? 443 : 80
  const authority = `${isIPv6(hostname) ? `[${hostname}]` : hostname}:${port === '' ? usual : port}`
  const { username, password } = proxy
  const credentials = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64')
  const asking = request({
    host: proxy.hostname,
    method: 'CONNECT',
    path: authority,
    headers: { host: authority, ...(username !== '' && { 'proxy-authorization': `Basic ${credentials}` }) },
    createConnection (_options, connected) {
      connect({ hostname: proxy.hostname.replace(/^\[|\]$/g, ''), host: proxy.host, protocol: 'http:',
        port: proxy.port }, (...[error, socket]) => {
        // Node (26.10) takes any answer to CONNECT for the last one.
        if (error === null) readingBehind(socket).begin()
        connected(error, socket as Socket)
      })
      return undefined
    }
  })
  const timer = setTimeout(() => {
    asking.destroy(problem('UND_ERR_CONNECT_TIMEOUT', `the proxy had not connected after ${timeoutMs} ms`))
  }, timeoutMs)
  asking.on('connect', ({ statusCode = 0 }, socket: Socket, head: Buffer) => {
    clearTimeout(timer)
    if (statusCode < 200 || statusCode > 299) {
      socket.destroy()
      callback(problem(`PROXY_${statusCode}`, `the proxy answered ${statusCode}`), null)
      return
    }
    if (head.length > 0) socket.unshift(head)
    callback(null, socket.setNoDelay(true))
  })
  asking.on('error', (error) => { clearTimeout(timer); callback(error, null) })
  asking.end()
}

/** @param code for the log, which prints no messages */
function problem (code: string, message: string): Error {
  return Object.assign(new Error(message), { code })
}
