// Forwards bytes to an upstream, unread.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { type BodyLimits, tooLarge } from '../../core/body-memory.ts'
import type { OwnRequest, Routed } from '../../core/endpoint.ts'
import type { BytesReply } from '../../core/reply.ts'
import { GatewayError, toGatewayError } from '../../errors.ts'
import { acquireUnread } from '../limits/acquire.ts'
import type { Permit } from '../limits/permit.ts'
import { credentialOf } from '../pool.ts'
import { ClientBody } from './client-body.ts'
import { Flight } from './flight.ts'

/**
 * Paths that an upstream could resolve to another one: dot segments, encoded dots and slashes, empty segments, a
 * fragment.
 */
const ESCAPES = /\/\.{1,2}(?:[/;]|$)|%2e|%2f|%5c|[\\#]|\/\//i

/**
 * Sends the request's bytes on, and resolves with the answer's head and its bytes, unread.
 * @param limits of the request body; its memory holds the bodies of requests that wait in the queue
 * @param own a request of the gateway's own in the place of the client's, which must have no body then
 * @throws {GatewayError} the upstream can't be asked now, failed before its head, or answered with an error; nothing
 * was written to the client
 */
export async function forward (
  exchange: Routed,
  upstreamName: string,
  req: IncomingMessage,
  res: ServerResponse,
  limits: BodyLimits,
  own?: OwnRequest
): Promise<BytesReply> {
  const configured = exchange.snapshot.upstreams.get(upstreamName)!
  refuseEscapes(exchange.received.path)
  // Only `chunked` is a framing of this hop; any other coding of the bytes would reach the upstream unannounced.
  if ((req.headers['transfer-encoding'] ?? 'chunked').trim().toLowerCase() !== 'chunked') {
    throw new GatewayError('bad_request', {
      message: 'The Transfer-Encoding is not supported. Send "chunked" or a Content-Length.'
    })
  }
  // The gateway's own request has no framing headers: a body's bytes would be read upstream as another request.
  if (
    own !== undefined &&
    (req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0)
  ) {
    throw new GatewayError('invalid_request', { message: 'This address takes no request body. Send none.' })
  }
  if (Number(req.headers['content-length'] ?? 0) > limits.limit) throw tooLarge(limits.limit)
  const body = new ClientBody(req, res, limits)
  // An error of the body aborts the exchange: also while it waits, and behind the head of an early answer.
  body.on('error', (error) => { exchange.abort(toGatewayError(error)) })
  // A body released without a wait has begun by then.
  setImmediate(() => { body.begin() })
  let permit: Permit | undefined
  try {
    // The gateway's own request carries the credential that its subject was made with, whatever its health.
    if (own === undefined) permit = await acquireUnread(exchange, configured)
    exchange.throwIfAborted()
    const { record } = exchange
    record.attempts = 1
    record.body_at = record.dispatched_at = performance.now()
    const upstream = permit?.upstream ?? credentialOf(configured, own?.credential).upstream
    return await new Flight({ exchange, upstream, permit, req, res, body, own }).send()
  } catch (thrown) {
    permit?.leave()                                           // unless it has ended already
    body.destroy()
    throw thrown
  }
}

/** @throws {GatewayError} */
export function refuseEscapes (path: string): void {
  if (!ESCAPES.test(path)) return
  throw new GatewayError('invalid_request', {
    message: 'The path holds dot segments, encoded slashes, empty segments or a fragment. Send it in its plain form.'
  })
}
