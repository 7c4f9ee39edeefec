// Shapes errors for clients, by the style of the route.
import type { GatewayError } from '../errors.ts'
import type { ErrorReply } from '../core/reply.ts'
import type { Style } from '../core/style.ts'

/**
 * The error in the style of its route. Pure, and cannot throw: the core's last resort.
 * @param charged cost of the request, in decimal US dollars
 */
export function shapeError (error: GatewayError, style: Style, requestId: string, charged = '0'): ErrorReply {
  const body = style.errorBody(error, { message: `${error.message} Request ID: ${requestId}`, charged, requestId })
  return {
    status: error.status,
    headers: {
      ...error.headers,
      ...(error.status === 401 && { 'www-authenticate': 'Bearer' }),       // RFC 9110 11.6.1
      // Both vendors' SDKs obey it; without it Claude Code repeats a 401 for three minutes.
      'x-should-retry': String(error.repeatable),
      ...(error.retryAfter !== undefined && { 'retry-after': String(error.retryAfter) })
    },
    body,
    events: style.errorEvents(JSON.stringify(body))
  }
}
