// The only file that imports http-proxy-3; its traps (src/README.md#trap-1, all of them reproduce on 2.0.1) are handled
// here and in flight.ts, each by its number.
import type { ClientRequest, IncomingMessage } from 'node:http'
import { createProxyServer } from 'http-proxy-3'
import { GatewayError } from '../../errors.ts'

/** One request on its way, with the proxy's events. */
export interface ProxiedRequest {
  /** the forwarded headers of the client */
  readonly headers: Readonly<Record<string, string>>
  onRequest (request: ClientRequest): void
  onResponse (response: IncomingMessage): void
  onError (error: Error): void
}

/** by the client's request */
export const proxied = new WeakMap<IncomingMessage, ProxiedRequest>()

/** For WebSockets too (websocket.ts). */
export const proxy = createProxyServer({})
proxy.on('proxyReq', (request, req) => { proxied.get(req)?.onRequest(request) })
proxy.on('proxyRes', (response, req) => { proxied.get(req)?.onResponse(response) })
// Trap 2: when the client leaves before the head, the call's callback is never called, and only this event comes. It
// may come before `exchange.signal` fires; the attribution must not depend on the order.
proxy.on('econnreset', (cause, req) => { proxied.get(req)?.onError(new GatewayError('client_closed', { cause })) })
// Its pass `deleteLength` removes the framing of a chunked DELETE: the body would be read as another request.
proxy.before('web', 'stream', (req) => { req.headers = { ...proxied.get(req)?.headers } })
