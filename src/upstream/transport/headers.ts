// Which headers pass, both ways, so that no credential, cookie or organisation passes by accident
// (src/README.md#allow-list).
import type { IncomingHttpHeaders } from 'node:http'
import { version } from '../../base/package.ts'
import type { UpstreamConfig } from '../../config/config.ts'
import type { Exchange } from '../../core/exchange.ts'
import { traceHeaders } from '../../core/trace.ts'
import type { Upstream } from '../../core/upstream.ts'

/** Headers of a client's request on a forward route. */
const REQUEST = new Set([
  'accept', 'accept-encoding', 'content-type', 'content-length', 'content-encoding', 'range',
  'if-match', 'if-none-match', 'if-modified-since', 'if-range', 'if-unmodified-since', 'idempotency-key',
  // which version of its API a vendor is asked in: without them some addresses of it do not exist
  'anthropic-version', 'openai-beta'
])

/** Headers of an upstream's answer to a request of the gateway's own, such as one for a video's file. */
const RESPONSE = new Set([
  'content-type', 'content-length', 'content-encoding', 'content-range', 'content-disposition', 'content-language',
  'accept-ranges', 'etag', 'last-modified', 'cache-control', 'expires', 'vary', 'allow'
])

/** Headers that are meant for the next hop only (RFC 9110 7.6.1), beside those that `connection` names. */
const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding',
  'upgrade', 'proxy-authenticate', 'proxy-authentication-info'])

/**
 * Headers that say something of an origin to its clients, whose origin is the gateway: what it says itself, and what
 * would move them to another address or change what they keep of this one.
 */
const OF_ORIGIN = new RegExp('^(?:x-gateway-.*|x-request-id|request-id|server-timing|idempotent-replayed|' +
  'access-control-.*|timing-allow-origin|set-cookie2?|alt-svc|strict-transport-security|expect-ct|public-key-pins.*|' +
  'clear-site-data|nel|report-to|reporting-endpoints)$')

/**
 * Words in the names of headers about the operator's account at the vendor: who it is, what it may do, and what it has
 * left. `anthropic-priority-input-tokens-remaining` is one, `x-litellm-key-spend` another.
 */
const OF_ACCOUNT = new Set(['organization', 'organisation', 'org', 'project', 'account', 'accountid', 'tenant',
  'subscription', 'workspace', 'customer', 'team', 'user', 'userid', 'deployment', 'key', 'apikey', 'token', 'secret',
  'credential', 'authenticate', 'authentication', 'authorization', 'ratelimit', 'limit', 'remaining', 'reset', 'quota',
  'budget', 'spend', 'cost', 'billing', 'balance', 'credits'])

/** Headers of a client's upgrade to a WebSocket. */
const UPGRADE = new Set(['upgrade', 'sec-websocket-key', 'sec-websocket-version', 'sec-websocket-protocol',
  'sec-websocket-extensions'])

/** Headers of an upstream's 101. */
const ACCEPT = new Set(['upgrade', 'sec-websocket-accept', 'sec-websocket-protocol', 'sec-websocket-extensions'])

/**
 * Protocols in which web pages send what they can't send as headers of a WebSocket: a key, an organisation, a project.
 */
const SECRET_PROTOCOL = /^openai-(?:insecure-api-key|organization|project)\./i

function pick (headers: IncomingHttpHeaders, allowed: Pick<ReadonlySet<string>, 'has'>): Record<string, string> {
  const picked: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    if (allowed.has(name) && value !== undefined) picked[name] = Array.isArray(value) ? value.join(', ') : value
  }
  return picked
}

const USER_AGENT = `model-gateway/${version}`

interface Made {
  readonly whole: Readonly<Record<string, string>>
  readonly stream: Readonly<Record<string, string>>
}

/** Put together once for each upstream: the lane knows headers by their being the same texts as before. */
const made = new WeakMap<Upstream, Made>()

/** Headers of a request that a dialect made, with those of the upstream's configuration. They are the caller's. */
export function requestHeaders (upstream: Upstream, stream: boolean): Record<string, string> {
  let known = made.get(upstream)
  if (known === undefined) {
    made.set(upstream, known = { whole: { ...ownHeaders('application/json'), ...upstream.config.headers },
      stream: { ...ownHeaders('text/event-stream'), ...upstream.config.headers } })
  }
  return { ...(stream ? known.stream : known.whole) }
}

function ownHeaders (accept: string): Record<string, string> {
  return { 'content-type': 'application/json', accept, 'accept-encoding': 'identity', 'user-agent': USER_AGENT }
}

export function forwardable (headers: IncomingHttpHeaders): Record<string, string> {
  const picked = pick(headers, REQUEST)
  // A hop-by-hop header, but it frames the body: without it node sends the bytes of a chunked GET unframed, and the
  // upstream reads them as another request.
  if (headers['transfer-encoding'] !== undefined) picked['transfer-encoding'] = 'chunked'
  return picked
}

/** The upstream's own headers on a forward route, which win over the client's. @param headers of the client */
export function headersOf (config: UpstreamConfig, headers: IncomingHttpHeaders): Record<string, string> {
  const beta = betasOf(config, headers['anthropic-beta'])
  return { 'user-agent': USER_AGENT, ...config.headers, ...(beta !== '' && { 'anthropic-beta': beta }) }
}

/** The trace of the request, for an upstream that takes part in it. */
export function traceFor ({ config }: Upstream, exchange: Exchange): Readonly<Record<string, string>> | undefined {
  return config.trace ? traceHeaders(exchange.trace) : undefined
}

/**
 * The betas that are configured, and those of the client that the upstream knows, each once
 * (src/README.md#beta-headers).
 * @param isLetIn of the client's, whether it may pass
 */
export function betasOf (
  config: UpstreamConfig,
  asked: string | readonly string[] | undefined,
  isLetIn: (name: string) => boolean = isAny
): string {
  const configured = config.headers['anthropic-beta'] ?? ''
  return asked === undefined ? configured : joinedBetas(configured, asked, config.messages?.betas, isLetIn)
}

function isAny (): boolean {
  return true
}

function joinedBetas (
  configured: string, asked: string | readonly string[], known: readonly string[] | undefined,
  isLetIn: (name: string) => boolean
): string {
  const split = (list: string): string[] => list.split(',').map((name) => name.trim())
  const wanted = (typeof asked === 'string' ? [asked] : asked).flatMap(split).filter((name) =>
    isLetIn(name) && (known === undefined || known.some((one) => covers(one, name)))
  )
  return [...new Set([...split(configured), ...wanted])].filter((name) => name !== '').join(',')
}

/** @param known a name, or with "*" at its end the beginning of names */
function covers (known: string, name: string): boolean {
  return known.endsWith('*') ? name.startsWith(known.slice(0, -1)) : name === known
}

/** Of an answer on a forward route: all that is not for this hop, of the gateway's own, or about the account. */
export function returnable (
  headers: IncomingHttpHeaders,
  upstream: Pick<Upstream, 'origin' | 'basePath'>
): Record<string, string> {
  const ofHop = new Set(headers.connection?.toLowerCase().split(',').map((name) => name.trim()))
  const { location, ...passing } = pick(headers, {
    has: (name) => !HOP_BY_HOP.has(name) && !ofHop.has(name) && !OF_ORIGIN.test(name) &&
      !name.split(/[-_]/).some((word) => OF_ACCOUNT.has(word))
  })
  // Links to other pages, or to an operation: at the upstream itself the client has no key.
  const base = `${upstream.origin}${upstream.basePath}/`
  for (const name in passing) {
    if (passing[name]!.includes(base)) passing[name] = passing[name]!.replaceAll(base, '/')
  }
  return location === undefined ? passing : { ...passing, location: asSeenHere(location, upstream) }
}

/** Of an answer to a request of the gateway's own. */
export function ofFile (headers: IncomingHttpHeaders): Record<string, string> {
  return pick(headers, RESPONSE)
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
