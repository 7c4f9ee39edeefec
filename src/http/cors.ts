// What browsers ask for before a page may call us (Fetch, CORS protocol; src/README.md#browser-origin). It opens
// nothing by itself: no cookie is ever looked at, and whether a key may be used from an origin is for key-policy to
// say, when there is a key.
import type { ClientRequest } from '../core/exchange.ts'
import type { Headers } from '../core/reply.ts'

/** What a page may read of an answer. */
const EXPOSED = [
  'x-request-id', 'request-id', 'retry-after', 'retry-after-ms', 'ratelimit', 'ratelimit-policy',
  ...['limit', 'remaining', 'reset'].map((name) => `x-ratelimit-${name}-requests`),
  ...['limit', 'remaining', 'reset'].map((name) => `anthropic-ratelimit-requests-${name}`),
  'x-gateway-cost-usd', 'x-gateway-count', 'x-gateway-config-generation'
].join(', ')

/** Seconds for which a browser need not ask again; Chromium keeps it for no longer. */
const MAX_AGE = '7200'

/** Lists of header names, and nothing that would end the line of a header. */
const NAMES = /^[\w!#$%&'*+.^`|~, -]{1,4096}$/

/**
 * What can be a page's origin: a host name has 253 characters at most. A longer echo makes heads that proxies refuse as
 * our fault.
 */
const ORIGIN = /^[!-~]{1,300}$/

/** Of every answer to a page, errors too: it could not read them otherwise. Undefined: who asks is no page. */
export function corsHeaders ({ origin }: ClientRequest['headers']): Headers | undefined {
  if (typeof origin !== 'string' || !ORIGIN.test(origin)) return undefined
  return { 'access-control-allow-origin': origin, vary: 'Origin', 'access-control-expose-headers': EXPOSED }
}

/**
 * The answer to a preflight, which carries no key. Undefined: the request is none, or nothing is at its path.
 * @param headers of a request with the method OPTIONS
 * @param methods that some route takes at its path
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
