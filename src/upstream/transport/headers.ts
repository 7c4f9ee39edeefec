// Allow-lists of headers, both ways, so that no credential, cookie or organisation passes by accident
// (src/README.md#allow-list).
import type { IncomingHttpHeaders } from 'node:http'
import { version } from '../../base/package.ts'
import type { Upstream } from '../../core/upstream.ts'

/** Headers of a client's request on a forward route. */
const REQUEST = new Set([
  'accept', 'accept-encoding', 'content-type', 'content-length', 'content-encoding', 'range',
  'if-match', 'if-none-match', 'if-modified-since', 'if-range', 'if-unmodified-since', 'idempotency-key'
])

/** Headers of an upstream's response on a forward route. */
const RESPONSE = new Set([
  'content-type', 'content-length', 'content-encoding', 'content-range', 'content-disposition', 'content-language',
  'accept-ranges', 'etag', 'last-modified', 'cache-control', 'expires', 'vary', 'allow', 'location'
])

/** Headers of a client's upgrade to a WebSocket. */
const UPGRADE = new Set(['upgrade', 'sec-websocket-key', 'sec-websocket-version', 'sec-websocket-protocol',
  'sec-websocket-extensions'])

/** Headers of an upstream's 101. */
const ACCEPT = new Set(['upgrade', 'sec-websocket-accept', 'sec-websocket-protocol', 'sec-websocket-extensions'])

/**
 * Protocols in which web pages send what they can't send as headers of a WebSocket: a key, an organisation, a project.
 */
const SECRET_PROTOCOL = /^openai-(?:insecure-api-key|organization|project)\./i

function pick (headers: IncomingHttpHeaders, allowed: ReadonlySet<string>): Record<string, string> {
  const picked: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    if (allowed.has(name) && value !== undefined) picked[name] = Array.isArray(value) ? value.join(', ') : value
  }
  return picked
}

/** Headers of a request that a dialect made, below those of the upstream's configuration. */
export function ownHeaders (stream: boolean): Record<string, string> {
  return {
    'content-type': 'application/json',
    accept: stream ? 'text/event-stream' : 'application/json',
    'accept-encoding': 'identity',
    'user-agent': `model-gateway/${version}`
  }
}

export function forwardable (headers: IncomingHttpHeaders): Record<string, string> {
  const picked = pick(headers, REQUEST)
  // A hop-by-hop header, but it frames the body: without it node sends the bytes of a chunked GET unframed, and the
  // upstream reads them as another request.
  if (headers['transfer-encoding'] !== undefined) picked['transfer-encoding'] = 'chunked'
  return picked
}

export function returnable (
  headers: IncomingHttpHeaders,
  upstream: Pick<Upstream, 'origin' | 'basePath'>
): Record<string, string> {
  const { location, ...picked } = pick(headers, RESPONSE)
  return location === undefined ? picked : { ...picked, location: asSeenHere(location, upstream) }
}

/** Rewrites a redirect within the upstream to this gateway: at the upstream itself the client has no key. */
function asSeenHere (location: string, { origin, basePath }: Pick<Upstream, 'origin' | 'basePath'>): string {
  const base = /^\/(?!\/)/.test(location) ? basePath : origin + basePath
  return location.startsWith(`${base}/`) ? location.slice(base.length) : location
}

export function upgradable (headers: IncomingHttpHeaders): Record<string, string> {
  const { 'sec-websocket-protocol': offered, ...picked } = pick(headers, UPGRADE)
  const protocols = offered?.split(',').map((protocol) => protocol.trim()).filter((protocol) =>
    !SECRET_PROTOCOL.test(protocol)
  ).join(', ')
  return { connection: 'Upgrade', ...picked,
    ...(protocols !== undefined && protocols !== '' && { 'sec-websocket-protocol': protocols }) }
}

export function acceptable (headers: IncomingHttpHeaders): Record<string, string> {
  return { connection: 'Upgrade', ...pick(headers, ACCEPT) }
}
