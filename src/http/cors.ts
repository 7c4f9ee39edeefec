// CORS: preflights and headers for web pages (Fetch, CORS protocol; src/README.md#browser-origin). It opens nothing by
// itself: cookies are never read, and key-policy decides from which origins a key may be used.
import type { ClientRequest } from '../core/exchange.ts'
import type { Headers } from '../core/reply.ts'

/** Headers of an answer that a page may read. */
const EXPOSED = [
  'x-request-id', 'request-id', 'retry-after', 'retry-after-ms', 'x-should-retry',
  'ratelimit', 'ratelimit-policy',
  ...['limit', 'remaining', 'reset'].map((name) => `x-ratelimit-${name}-requests`),
  ...['limit', 'remaining', 'reset'].map((name) => `anthropic-ratelimit-requests-${name}`),
  'x-gateway-cost-usd', 'x-gateway-count', 'x-gateway-max-tokens', 'x-gateway-dropped-tools',
  'x-gateway-ignored-fields',
  'x-gateway-config-generation', 'server-timing'
].join(', ')

/** Seconds that a browser may cache a preflight; Chromium's maximum. */
const MAX_AGE = '7200'

/** A list of header names, without characters that could end a header line. */
const NAMES = /^[\w!#$%&'*+.^`|~, -]{1,4096}$/

/**
 * A possible origin: a host name has 253 characters at most. The echo of a longer one could make a head that proxies
 * refuse as a fault of the gateway.
 */
const ORIGIN = /^[!-~]{1,300}$/

/**
 * Headers of every answer to a page, errors too, which it could not read otherwise. Undefined: the client is no page.
 */
export function corsHeaders ({ origin }: ClientRequest['headers']): Headers | undefined {
  if (typeof origin !== 'string' || !ORIGIN.test(origin)) return undefined
  return { 'access-control-allow-origin': origin, vary: 'Origin', 'access-control-expose-headers': EXPOSED }
}

/**
 * The answer to a preflight, which carries no key. Undefined: the request is none, or no route is at its path.
 * @param headers of a request with the method OPTIONS
 * @param methods of the routes at its path
 */
export function preflight (headers: ClientRequest['headers'], methods: readonly string[]): Headers | undefined {
  const { 'access-control-request-method': wanted, 'access-control-request-headers': asked } = headers
  const granted = corsHeaders(headers)
  if (methods.length === 0 || granted === undefined || wanted === undefined) return undefined
  return {
    ...granted,
    'access-control-allow-methods': [...new Set([...methods, 'OPTIONS'])].join(', '),
    ...(typeof asked === 'string' && NAMES.test(asked) && { 'access-control-allow-headers': asked }),
    'access-control-max-age': MAX_AGE,
    vary: 'Origin, Access-Control-Request-Headers'
  }
}
