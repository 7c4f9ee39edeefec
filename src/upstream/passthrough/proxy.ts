// The only file that imports http-proxy-3; its traps (src/README.md#trap-1, all of them reproduce on 2.0.1) are met
// here and in flight.ts, each with its number.
import type { ClientRequest, IncomingMessage } from 'node:http'
import { createProxyServer } from 'http-proxy-3'
import { GatewayError } from '../../errors.ts'

/** One request on its way, as the proxy tells of it. */
export interface ProxiedRequest {
  /** what travels of the client's head */
  readonly headers: Readonly<Record<string, string>>
  onRequest (request: ClientRequest): void
  onResponse (response: IncomingMessage): void
  onError (error: Error): void
}

/** By the client's request. */
export const proxied = new WeakMap<IncomingMessage, ProxiedRequest>()

/** For WebSockets too (websocket.ts). */
export const proxy = createProxyServer({})
proxy.on('proxyReq', (request, req) => { proxied.get(req)?.onRequest(request) })
proxy.on('proxyRes', (response, req) => { proxied.get(req)?.onResponse(response) })
// Trap 2: when the client leaves before the head the callback of the call is never called, only this event comes. It
// may come before `exchange.signal` tells; whose fault it was must not depend on that.
proxy.on('econnreset', (cause, req) => { proxied.get(req)?.onError(new GatewayError('client_closed', { cause })) })
// Its pass `deleteLength` takes the framing from a chunked DELETE: the body would be read as another request.
proxy.before('web', 'stream', (req) => { req.headers = { ...proxied.get(req)?.headers } })
