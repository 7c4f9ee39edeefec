// Which request goes where: method and path to a route. The query is not looked at (protocol.md K 4.0c).
import type { Style } from './errors.ts'
import type { Exchange } from './exchange.ts'
import type { RouteHooks } from './hooks.ts'
import type { Reply } from './reply.ts'
import type { Price } from './money/nanos.ts'

/** What a route does when its plugins let the exchange through. */
export type Endpoint =
  /** a JSON body that the pipeline reads and an upstream answers */
  | { readonly kind: 'model' }
  /** answered by the gateway itself */
  | { readonly kind: 'local', answer (exchange: Exchange): Reply }
  /** bytes to one upstream, unread */
  | { readonly kind: 'forward', readonly upstream: string, readonly price: Price }

export interface Route {
  /** its `match`, such as "POST /v1/messages": the label in log and metrics */
  readonly name: string
  readonly methods: readonly string[]
  /** "/v1/x", or "/v1/x/*" for everything below it */
  readonly path: string
  readonly style: Style
  readonly endpoint: Endpoint
  /** the plugins of this route, in list order */
  readonly plugins: readonly string[]
  readonly hooks: RouteHooks
}

/** Of one path, in a route: everything below it. */
const REST = /\/(?:\*|\{\w+\})$/

/** How errors look at a path that no route may know (spec 7.1, 7.2; protocol.md K 4.8b). */
export function styleOf (path: string): Style {
  return path === '/v1/messages' || path.startsWith('/v1/messages/') ? 'messages' : 'chat'
}

export class RouteTable {
  readonly all: readonly Route[]
  readonly #exact = new Map<string, Route>()
  /** longest first */
  readonly #below: readonly { readonly prefix: string, readonly route: Route }[]

  /** @param routes earlier ones win */
  constructor (routes: readonly Route[]) {
    this.all = routes
    for (const route of routes) {
      if (REST.test(route.path)) continue
      for (const method of route.methods) {
        const key = `${method} ${route.path}`
        if (!this.#exact.has(key)) this.#exact.set(key, route)
      }
    }
    this.#below = routes
      .filter(({ path }) => REST.test(path))
      .map((route) => ({ prefix: route.path.replace(REST, '/'), route }))
      .sort((a, b) => b.prefix.length - a.prefix.length)
  }

  /** @param path without the query */
  find (method: string, path: string): Route | undefined {
    const plain = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path
    return this.#exact.get(`${method} ${plain}`) ??
      this.#below.find(({ prefix, route }) => plain.startsWith(prefix) && plain.length > prefix.length && route.methods.includes(method))?.route
  }

  /** The methods that some route takes at this path: for 405 and Allow. */
  methodsAt (path: string): readonly string[] {
    const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS']
    return methods.filter((method) => this.find(method, path) !== undefined)
  }
}

