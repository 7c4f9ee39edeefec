// routes: their matches, their endpoints, and their plugins.
import type { PluginDescriptor, Role } from '../plugin-descriptor.ts'
import { findTree, type Path, printSpot } from '../yaml/position.ts'
import { quote } from '../check/messages.ts'
import { suggest } from '../check/suggest.ts'
import { endpointsWith, shippedRoutesWith } from './endpoints.ts'
import { items, providerOf, type Report, type RuleInput, text } from './input.ts'
import { CORE_FACTS, hasUnknown, pluginsInOrder } from './pipeline.ts'
import { freeOr } from './prices.ts'
import { checkUpstreamName } from './upstreams.ts'
import { flag, list, maintenance, map, type Of, price } from './schema.ts'

const requestPrice = map('US dollars per request of a forward route.', {
  usd: price('US dollars per request.')
}, { required: ['usd'] })

const route = map('A method and path of the API.', {
  match: {
    description: '"METHOD /path"; a forward route may name several methods, "GET,POST /v1/x", and end in "/*".',
    type: 'string'
  },
  serve: { description: 'The endpoint that answers, or "none" to remove the shipped route.', type: 'string' },
  forward: { description: 'The upstream that gets the bytes.', type: 'string' },
  websocket: flag('Of a forward route: whether its GET takes WebSockets too. The price is that of the connection.'),
  maintenance: maintenance('true: 503 maintenance.'),
  price: freeOr('US dollars per request of a forward route. Or "free".', requestPrice),
  pipeline: list('Names of the plugins of this route, in the order of the pipeline; absent: all of them.', {
    description: 'Name of a plugin.', type: 'string'
  })
}, { required: ['match'] })

export const routes = list('Added before the shipped routes.', route, { default: [] })

type Written = Of<typeof route>
/** Shipped routes are written in code, without defaults. */
export type RouteConfig = Omit<Written, 'maintenance'> & Partial<Pick<Written, 'maintenance'>>

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']

export function checkRoutes (input: RuleInput, report: Report, warn: Report): void {
  const { value, tree } = input
  const pipeline = pluginsInOrder(input)
  const endpoints = endpointsWith(input.plugins.values())
  const seen = new Map<string, Path>()
  for (const { item, path } of items(value.routes, 'routes')) {
    const here = (field: string): Path => [...path, field]
    const isForward = item.forward !== undefined
    const match = text(item.match, tree, here('match'))
    const serve = text(item.serve, tree, here('serve'))
    if (match !== undefined) checkMatch(match, isForward, here('match'), seen, input, report)
    if (isForward === (item.serve !== undefined)) {
      report(path,
        isForward ? 'a route has either "serve" or "forward", not both' : 'a route needs "serve" or "forward"',
        isForward ? 'remove one of them' : 'serve: messages, or forward: NAME-OF-AN-UPSTREAM')
    }
    const endpoint = serve !== undefined && Object.hasOwn(endpoints, serve) ? endpoints[serve] : undefined
    if (serve !== undefined && serve !== 'none' && endpoint === undefined) {
      report(here('serve'), `there is no endpoint ${quote(serve)}`, suggest(serve, [...Object.keys(endpoints), 'none']))
    }
    const used = checkRoutePipeline(item, path, pipeline, input, report, isForward)
    const needs = endpoint?.needs
    if (needs !== undefined && used !== undefined && !isProvided(needs, used, pipeline)) {
      const needed = providerOf(needs, input)
      const isLeftOut = pipeline.some(({ plugin }) => plugin.name === needed)
      report(here(isLeftOut ? 'pipeline' : 'serve'),
        isLeftOut ? `lacks ${needed}, which ${serve!} needs` : `${serve!} needs ${needed}, which is not in pipeline:`,
        `add ${needed} above ${providerOf('routing', input)}`)
    }
    if (isForward) {
      checkUpstreamName(text(item.forward, tree, here('forward')), here('forward'), input, report)
      if (item.price === undefined) {
        report(path, '"price" is missing: a forward route costs something',
          'write "price: { usd: 0.0001 }", or "price: free"')
      } else if (item.price !== 'free' && used !== undefined && !isProvided('identity', used, pipeline)) {
        const needed = providerOf('identity', input)
        report(
          Array.isArray(item.pipeline) ? here('pipeline') : path,
          `a route with a price needs ${needed} in its pipeline: else nobody pays`,
          `add ${needed}, or write "price: free"`
        )
      }
      if (item.websocket === true && match !== undefined && !/^(?:[A-Z]+,)*GET[ ,]/.test(match)) {
        report(here('websocket'), 'a WebSocket begins with GET, which the route does not take', 'add GET to "match"')
      }
    } else if (item.price !== undefined && item.serve !== undefined) {
      report(here('price'), 'only a forward route has a price; models have their own', 'remove it', true)
    }
    if (serve === 'none' && item.maintenance === true) {
      report(here('maintenance'), 'nothing is served here', 'name an endpoint in "serve", or remove it', true)
    }
    if (!isForward && item.websocket !== undefined) {
      report(here('websocket'), 'only a forward route takes WebSockets', 'remove it', true)
    }
  }
  checkShipped(input, pipeline, seen, warn)
}

type Pipeline = readonly { readonly plugin: PluginDescriptor }[]

/** Whether one of the named plugins has a role. */
function isProvided (role: Role, names: readonly string[], pipeline: Pipeline): boolean {
  return pipeline.some(({ plugin }) => names.includes(plugin.name) && plugin.provides?.includes(role) === true)
}

/** Warns of a shipped route that is missing because the pipeline lacks the plugin that it needs. */
function checkShipped (input: RuleInput, pipeline: Pipeline, own: ReadonlyMap<string, Path>, warn: Report): void {
  const { value, plugins } = input
  const names = pipeline.map(({ plugin }) => plugin.name)
  // a configuration without models or routing lacks more than a route
  if (!isProvided('routing', names, pipeline) || items(value.models, 'models').length === 0) return
  const endpoints = endpointsWith(plugins.values())
  for (const { match, serve } of shippedRoutesWith(plugins.values())) {
    const needs = endpoints[serve]?.needs
    if (needs === undefined || isProvided(needs, names, pipeline) || own.has(match)) continue
    const needed = providerOf(needs, input)
    if (!plugins.has(needed)) continue
    const hint = `add ${needed} above ${providerOf('routing', input)}, or to routes: { match: ${match}, serve: none }`
    warn(['pipeline'], `lacks ${needed}: ${match} is not served`, hint)
  }
}

function checkMatch (
  match: string,
  isForward: boolean,
  path: Path,
  seen: Map<string, Path>,
  { tree }: RuleInput,
  report: Report
): void {
  const parts = /^([A-Za-z]+(?:,[A-Za-z]+)*) (\/\S*)$/.exec(match)
  if (parts === null) {
    report(path, `must be "METHOD /path" such as POST /v1/messages, found ${quote(match)}`,
      match.startsWith('/') ? 'name the method first' : undefined)
    return
  }
  const methods = parts[1]!.split(',')
  const target = parts[2]!
  const below = target.endsWith('/*')
  const plain = below ? target.slice(0, -2) : target
  for (const method of methods) {
    if (!METHODS.includes(method)) report(path, `unknown method ${quote(method)}`, suggest(method, METHODS))
  }
  if (/[?#]/.test(plain)) report(path, 'the path must not hold a query: it is not looked at')
  // such a path has two meanings, one here and one upstream
  else if (/\/\/|%2e|%2f|\/\.\.?(?:\/|$)/i.test(plain)) {
    report(path, 'the path must not hold "//", dot segments, %2e or %2f')
  } else if (plain.includes('*')) { report(path, '"*" can only be the last segment of a path', 'such as /v1/files/*') }
  else if (plain.length > 1 && plain.endsWith('/')) {
    report(path, 'the path must not end in "/"', `write ${plain.slice(0, -1)}`)
  }
  if (!isForward && methods.length > 1) report(path, 'only a forward route may name several methods')
  if (!isForward && below) report(path, 'only a forward route may end in "/*"')
  for (const method of new Set(methods)) {
    const first = seen.get(`${method} ${target}`)
    if (first === undefined) { seen.set(`${method} ${target}`, path) }
    else {
      report(path, `${method} ${target} is matched twice; the other is at ${printSpot(findTree(tree, first).tree.at)}`)
    }
  }
}

/** @returns the names of the route's plugins, or undefined when the list is not one of texts */
function checkRoutePipeline (
  item: Record<string, unknown>,
  path: Path,
  pipeline: readonly { readonly plugin: PluginDescriptor }[],
  input: RuleInput,
  report: Report,
  isForward: boolean
): readonly string[] | undefined {
  const known = pipeline.map(({ plugin }) => plugin.name)
  if (item.pipeline === undefined) return known
  if (!Array.isArray(item.pipeline)) return undefined
  const names = item.pipeline as readonly unknown[]
  let last = -1
  for (const [index, name] of names.entries()) {
    const here = [...path, 'pipeline', index]
    if (typeof name !== 'string') continue
    const position = known.indexOf(name)
    if (names.indexOf(name) < index) report(here, `the plugin ${quote(name)} is in the list twice`)
    else if (position === -1) {
      const isShipped = input.plugins.has(name)
      // it may be the name of a plugin that could not be loaded
      if (!isShipped && hasUnknown(input)) continue
      report(here,
        isShipped ? `the plugin ${name} is not in pipeline:` : `there is no plugin ${quote(name)} in pipeline:`,
        isShipped ? 'add it there: a route can only leave plugins out' : suggest(name, known))
    } else if (position < last) {
      report(here, `${name} stands after ${known[last]!} here, but before it in pipeline:`,
        'keep the order of pipeline:')
    }
    last = Math.max(last, position)
  }
  const chosen = pipeline.filter(({ plugin }) => names.includes(plugin.name))
  const written = new Set([...CORE_FACTS,
    ...chosen.flatMap(({ plugin }) => (plugin.writes ?? []).map(({ name }) => name))])
  for (const { plugin } of chosen) {
    for (const { name } of plugin.reads ?? []) {
      const writer = pipeline.find((other) => other.plugin.writes?.some((fact) => fact.name === name) === true)?.plugin
      // absent from the whole pipeline: reported there
      if (written.has(name) || writer === undefined) continue
      // a forward route has neither body nor model, nor facts made of them
      if (isForward && writer.reads?.some((fact) => CORE_FACTS.includes(fact.name)) === true) continue
      report([...path, 'pipeline', names.indexOf(plugin.name)],
        `${plugin.name} reads ${name}, which no plugin of this route writes`, `add ${writer.name}`)
    }
  }
  return names.filter((name) => typeof name === 'string')
}
