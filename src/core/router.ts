// Routes requests by method and path. The query is ignored (src/README.md#not-found-first).
import type { Route } from './route.ts'

/** The end of a route's path that matches everything below it. */
const REST = /\/(?:\*|\{\w+\})$/

/** A name in the middle of a path, which matches one segment. */
const WITHIN = /\{\w+\}(?=\/)/

/**
 * Path and query of a request target: the absolute form is sent to proxies, and all servers must accept it (RFC 9112
 * 3.2.2).
 */
export function readTarget (target: string): { readonly path: string, readonly query: string } {
  const url = target.startsWith('/') ? target : target.replace(/^https?:\/\/[^/?#]*/i, '')
  const mark = url.indexOf('?')
  return mark === -1 ? { path: url, query: '' } : { path: url.slice(0, mark), query: url.slice(mark) }
}

export class RouteTable<R extends Route> {
  readonly all: readonly R[]
  /** by method, and then by path */
  readonly #exact = new Map<string, Map<string, R>>()
  readonly #within: readonly { readonly segments: readonly string[], readonly route: R }[]
  /** longest first */
  readonly #below: readonly { readonly prefix: string, readonly route: R }[]

  /** @param routes earlier ones win */
  constructor (routes: readonly R[]) {
    this.all = routes
    for (const route of routes) {
      if (REST.test(route.path) || WITHIN.test(route.path)) continue
      for (const method of route.methods) {
        const ofMethod = this.#exact.get(method) ?? new Map<string, R>()
        if (!ofMethod.has(route.path)) ofMethod.set(route.path, route)
        this.#exact.set(method, ofMethod)
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
  find (method: string, path: string): R | undefined {
    const route = this.#find(method, path)
    if (route !== undefined || method !== 'HEAD') return route
    // HEAD is GET without its body (RFC 9110 9.3.2), for endpoints of the gateway; a forward route lists its own
    // methods.
    const got = this.#find('GET', path)
    return got?.endpoint.kind === 'local' || got?.endpoint.kind === 'download' ? got : undefined
  }

  #find (method: string, path: string): R | undefined {
    const plain = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path
    return this.#exact.get(method)?.get(plain) ?? this.#findPattern(method, plain)
  }

  #findPattern (method: string, plain: string): R | undefined {
    return this.#within.find(({ segments, route }) =>
      route.methods.includes(method) && fits(plain.split('/'), segments)
    )?.route ??
      this.#below.find(({ prefix, route }) =>
        plain.startsWith(prefix) && plain.length > prefix.length && route.methods.includes(method)
      )?.route
  }

  /** The methods of all routes at this path: for 405 and Allow. */
  methodsAt (path: string): readonly string[] {
    const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS']
    return methods.filter((method) => this.find(method, path) !== undefined)
  }
}

/** Compares segment by segment; a name matches any segment that is not empty. */
function fits (path: readonly string[], segments: readonly string[]): boolean {
  return path.length === segments.length &&
    segments.every((segment, i) => segment === path[i] || (segment.startsWith('{') && path[i] !== ''))
}
