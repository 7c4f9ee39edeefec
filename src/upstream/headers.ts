// Which headers travel: allow-lists both ways, so that no credential, cookie or organisation passes by accident (protocol.md H).
import type { IncomingHttpHeaders } from 'node:http'

/** Of a client's head, on a forward route. */
const REQUEST = new Set([
  'accept', 'accept-encoding', 'content-type', 'content-length', 'content-encoding', 'range',
  'if-match', 'if-none-match', 'if-modified-since', 'if-range', 'if-unmodified-since', 'idempotency-key'
])

/** Of an upstream's head, on a forward route. */
const RESPONSE = new Set([
  'content-type', 'content-length', 'content-encoding', 'content-range', 'content-disposition', 'content-language',
  'accept-ranges', 'etag', 'last-modified', 'cache-control', 'expires', 'vary'
])

function pick (headers: IncomingHttpHeaders, allowed: ReadonlySet<string>): Record<string, string> {
  const picked: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    if (allowed.has(name) && value !== undefined) picked[name] = Array.isArray(value) ? value.join(', ') : value
  }
  return picked
}

export function forwardable (headers: IncomingHttpHeaders): Record<string, string> {
  const picked = pick(headers, REQUEST)
  // Hop-by-hop, but it frames the body: without it node sends the bytes of a chunked GET unframed, and the upstream
  // reads them as another request.
  if (headers['transfer-encoding'] !== undefined) picked['transfer-encoding'] = 'chunked'
  return picked
}

export function returnable (headers: IncomingHttpHeaders): Record<string, string> {
  return pick(headers, RESPONSE)
}
