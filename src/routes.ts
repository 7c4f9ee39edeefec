// Which request goes where: method and path to a route. The query is not looked at (protocol.md K 4.0c).
import type { ModelKind } from './config/config.ts'
import type { GatewayError, Style } from './errors.ts'
import type { Exchange } from './exchange.ts'
import type { Attempt } from './facts.ts'
import type { RouteHooks } from './hooks.ts'
import type { Awaitable } from './plugin.ts'
import type { BytesReply, JsonReply, Reply } from './reply.ts'
import type { Price } from './money/nanos.ts'

/** Which body an endpoint reads: the name of its JSON Schema in config/requests/. */
export type RequestSchema = 'messages' | 'count-tokens' | 'chat-completions' | 'images-generations' | 'images-edits' | 'videos'

/** What a route does when its plugins let the exchange through. */
export type Endpoint =
  /**
   * A JSON body in the client's style that the pipeline reads and an upstream answers; `needs`: the plugin without which it is not served;
   * `gives`: the kind of its models, text if it says nothing; `form`: it takes multipart/form-data too; `accept`: makes the client's answer
   * of the upstream's
   */
  | { readonly kind: 'model', readonly style: Style, readonly gives?: ModelKind, readonly form?: true, readonly needs?: string, readonly schema?: RequestSchema, accept? (exchange: Exchange, reply: JsonReply, attempt: Attempt): Awaitable<JsonReply> }
  /** answered by the gateway itself, in the path's style if it names none; `reads`: from a JSON body that names a model, as above, or from any JSON object */
  | { readonly kind: 'local', readonly style?: Style, readonly reads?: 'body' | 'json', readonly schema?: RequestSchema, answer (exchange: Exchange): Awaitable<Reply> }
  /** bytes of an upstream, unread; which ones the endpoint finds out */
  | { readonly kind: 'download', readonly style?: Style, locate (exchange: Exchange): Awaitable<Download> }
  /** bytes to one upstream, unread; `websocket`: upgrades too */
  | { readonly kind: 'forward', readonly upstream: string, readonly price: Price, readonly websocket?: boolean }

/** What an upstream is asked, in the place of what the client has asked. */
export interface OwnRequest {
  /** with the upstream's base path and the query */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** the id of the credential that it wants */
  readonly credential?: string
}

export interface Download {
  /** name in `upstreams:` */
  readonly upstream: string
  readonly own: OwnRequest
  /** what the client gets of the answer's head */
  reply (bytes: BytesReply): BytesReply
  /** what the client is told when the upstream fails */
  refuse (error: GatewayError): GatewayError
}

export interface Route {
  /** its `match`, such as "POST /v1/messages": the label in log and metrics */
  readonly name: string
  readonly methods: readonly string[]
  /** "/v1/x", or "/v1/x/*" for everything below it */
  readonly path: string
  readonly style: Style
  readonly endpoint: Endpoint
  /** it answers 503: itself, or the upstream that it forwards to */
  readonly isInMaintenance: boolean
  /** the plugins of this route, in list order */
  readonly plugins: readonly string[]
  readonly hooks: RouteHooks
}

/** Of one path, in a route: everything below it. */
const REST = /\/(?:\*|\{\w+\})$/

/** A name in the middle of a path: one segment, any. */
const WITHIN = /\{\w+\}(?=\/)/

const MESSAGES = /^\/v1\/messages(?:\/|$)/

/** A request's path and its query: the absolute form is what proxies are sent, and all must take it (RFC 9112 3.2.2). */
export function readTarget (target: string): { readonly path: string, readonly query: string } {
  const url = target.startsWith('/') ? target : target.replace(/^https?:\/\/[^/?#]*/i, '')
  const mark = url.indexOf('?')
  return mark === -1 ? { path: url, query: '' } : { path: url.slice(0, mark), query: url.slice(mark) }
}

/** How errors look at a path, whether or not there is anything (spec 7.1, 7.2; protocol.md K 4.8b). */
export function styleOf (path: string): Style {
  return MESSAGES.test(path) ? 'messages' : 'chat'
}

export class RouteTable {
  readonly all: readonly Route[]
  readonly #exact = new Map<string, Route>()
  readonly #within: readonly { readonly segments: readonly string[], readonly route: Route }[]
  /** longest first */
  readonly #below: readonly { readonly prefix: string, readonly route: Route }[]

  /** @param routes earlier ones win */
  constructor (routes: readonly Route[]) {
    this.all = routes
    for (const route of routes) {
      if (REST.test(route.path) || WITHIN.test(route.path)) continue
      for (const method of route.methods) {
        const key = `${method} ${route.path}`
        if (!this.#exact.has(key)) this.#exact.set(key, route)
      }
    }
    this.#within = routes
      .filter(({ path }) => WITHIN.test(path) && !REST.test(path))
      .map((route) => ({ segments: route.path.split('/'), route }))
    this.#below = routes
      .filter(({ path }) => REST.test(path))
      .map((route) => ({ prefix: route.path.replace(REST, '/'), route }))
      .sort((a, b) => b.prefix.length - a.prefix.length)
  }

  /** @param path without the query */
  find (method: string, path: string): Route | undefined {
    const route = this.#find(method, path)
    if (route !== undefined || method !== 'HEAD') return route
    // Whatever we answer to GET, without its body (RFC 9110 9.3.2); what an upstream answers is for the route to say.
    const got = this.#find('GET', path)
    return got?.endpoint.kind === 'local' || got?.endpoint.kind === 'download' ? got : undefined
  }

  #find (method: string, path: string): Route | undefined {
    const plain = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path
    return this.#exact.get(`${method} ${plain}`) ??
      this.#within.find(({ segments, route }) => route.methods.includes(method) && fits(plain.split('/'), segments))?.route ??
      this.#below.find(({ prefix, route }) => plain.startsWith(prefix) && plain.length > prefix.length && route.methods.includes(method))?.route
  }

  /** The methods that some route takes at this path: for 405 and Allow. */
  methodsAt (path: string): readonly string[] {
    const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS']
    return methods.filter((method) => this.find(method, path) !== undefined)
  }
}

/** Segment by segment; a name takes any but none. */
function fits (path: readonly string[], segments: readonly string[]): boolean {
  return path.length === segments.length && segments.every((segment, i) => segment === path[i] || (segment.startsWith('{') && path[i] !== ''))
}
