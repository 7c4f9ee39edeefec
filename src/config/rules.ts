// What a schema cannot say: names that must exist, be unique and stand in order. Works on values that may not fit the schema,
// so that all mistakes are found at once.
import { isIP } from 'node:net'
import type { Plugin } from '../plugin.ts'
import { findTree, formatPointer, isMap, type Path, printSpot, problemAt, type Tree } from './place.ts'
import type { Problem } from './problem.ts'
import { quote } from './sentence.ts'
import { nearest, suggest } from './suggest.ts'

export interface RuleInput {
  readonly value: Record<string, unknown>
  readonly tree: Tree
  /** by `use`: shipped ones by name, the user's own by absolute path */
  readonly plugins: ReadonlyMap<string, Plugin>
  /** names for `serve:`; absent: any */
  readonly endpoints?: readonly string[] | undefined
}

export interface Findings { readonly problems: Problem[], readonly warnings: Problem[] }

interface Item { readonly item: Record<string, unknown>, readonly path: Path }
type Report = (path: Path, message: string, hint?: string, atKey?: boolean) => void

/** Written by the core, not by a plugin (facts.ts). */
const CORE_FACTS = ['body', 'model']
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']
/** Belong to one connection, or are counted by the client: an upstream's headers cannot set them (RFC 9110 7.6.1). */
const OWN_HEADERS = ['connection', 'content-length', 'host', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade']
const METER = 'billing-meter'
/** protocol.md K 2.1a */
const KEY_PREFIX = 'sk-gw-'

export function applyRules (input: RuleInput): Findings {
  const problems: Problem[] = []
  const warnings: Problem[] = []
  const into = (target: Problem[]): Report => (path, message, hint, atKey = false) => {
    const { tree, exact } = findTree(input.tree, path)
    if (exact && tree.isBroken === true) return
    target.push(problemAt(atKey && exact ? tree.key ?? tree.at : tree.at, formatPointer(path), message, hint))
  }
  const report = into(problems)
  const warn = into(warnings)
  checkServer(input, report)
  checkUpstreams(input, report)
  checkPipeline(input, report)
  checkModels(input, report, warn)
  checkRoutes(input, report)
  checkKeys(input, report, warn)
  return { problems, warnings }
}

function items (value: unknown, name: string): Item[] {
  return Array.isArray(value) ? value.flatMap((item: unknown, index) => isMap(item) ? [{ item, path: [name, index] }] : []) : []
}

function at (value: unknown, ...path: string[]): unknown {
  for (const step of path) value = isMap(value) && Object.hasOwn(value, step) ? value[step] : undefined
  return value
}

/** Texts only, and none whose ${...} gave nothing. */
function text (value: unknown, tree: Tree, path: Path): string | undefined {
  const found = findTree(tree, path)
  return typeof value === 'string' && !(found.exact && found.tree.isBroken === true) ? value : undefined
}

function checkUnique (list: readonly Item[], field: string, noun: string, { tree }: RuleInput, report: Report): ReadonlyMap<string, Item> {
  const seen = new Map<string, Item>()
  for (const entry of list) {
    const id = text(entry.item[field], tree, [...entry.path, field])
    if (id === undefined) continue
    const first = seen.get(id)
    if (first === undefined) seen.set(id, entry)
    else report([...entry.path, field], `two ${noun} have the id ${quote(id)}; the other is at ${printSpot(findTree(tree, [...first.path, field]).tree.at)}`)
  }
  return seen
}

function checkServer ({ value, tree }: RuleInput, report: Report): void {
  const listeners = new Map<string, string>()
  for (const name of ['api', 'public', 'admin']) {
    const path = ['server', name, 'listen']
    const address = text(at(value, ...path), tree, path)
    if (address === undefined) continue
    const wrong = explainListen(address)
    if (wrong !== undefined) { report(path, `must be "host:port" such as 127.0.0.1:8080, found ${quote(address)}`, wrong); continue }
    const other = listeners.get(address)
    if (other !== undefined && !address.endsWith(':0')) report(path, `server.${other} listens on ${address} already`)
    listeners.set(address, name)
  }
  const proxies = at(value, 'server', 'trusted_proxies')
  for (const [index, network] of (Array.isArray(proxies) ? proxies : []).entries()) {
    const path = ['server', 'trusted_proxies', index]
    const cidr = text(network, tree, path)
    if (cidr === undefined || isCidr(cidr)) continue
    const version = isIP(cidr)
    report(path, `must be a network such as 10.0.0.0/8, found ${quote(cidr)}`, version === 0 ? undefined : `one address is written ${cidr}/${version === 4 ? 32 : 128}`)
  }
  const [limit, memory] = [at(value, 'server', 'body_limit'), at(value, 'server', 'body_memory')]
  if (typeof limit === 'number' && typeof memory === 'number' && memory < limit) {
    report(['server', 'body_memory'], 'must not be less than body_limit: the largest body would never fit')
  }
}

function explainListen (address: string): string | undefined {
  const match = /^(\[[^\]]*\]|[^:[\]\s/]+):(\d{1,5})$/.exec(address)
  if (match === null) {
    if (/^\d{1,5}$/.test(address) || /^:\d{1,5}$/.test(address)) return `for all addresses write "0.0.0.0:${address.replace(':', '')}"`
    if (address.split(':').length > 2) return 'an IPv6 address stands in brackets: "[::1]:8080"'
    return address.includes(':') ? 'the port is a number' : 'add a port, such as ":8080"'
  }
  if (match[1]!.startsWith('[') && isIP(match[1]!.slice(1, -1)) !== 6) return 'only an IPv6 address stands in brackets'
  return Number(match[2]) > 65535 ? 'a port is at most 65535' : undefined
}

function isCidr (network: string): boolean {
  const match = /^([^/]+)\/(\d{1,3})$/.exec(network)
  if (match === null) return false
  const version = isIP(match[1]!)
  return version !== 0 && !match[1]!.includes('%') && Number(match[2]) <= (version === 4 ? 32 : 128)
}

function checkUpstreams ({ value, tree }: RuleInput, report: Report): void {
  const upstreams = at(value, 'upstreams')
  for (const [name, upstream] of Object.entries(isMap(upstreams) ? upstreams : {})) {
    const url = text(at(upstream, 'url'), tree, ['upstreams', name, 'url'])
    if (url !== undefined && /^https?:/.test(url) && !URL.canParse(url)) report(['upstreams', name, 'url'], 'is not a valid URL')
    const headers = at(upstream, 'headers')
    const seen = new Map<string, string>()
    for (const header of Object.keys(isMap(headers) ? headers : {})) {
      const path = ['upstreams', name, 'headers', header]
      const lower = header.toLowerCase()
      if (OWN_HEADERS.includes(lower)) report(path, `the header ${lower} is set by the gateway itself`, 'remove it', true)
      const other = seen.get(lower)
      if (other !== undefined) report(path, `the header ${quote(header)} is set twice; the other is ${quote(other)}`, undefined, true)
      seen.set(lower, header)
    }
  }
}

function checkUpstreamName (name: string | undefined, path: Path, { value }: RuleInput, report: Report): void {
  const upstreams = at(value, 'upstreams')
  const known = isMap(upstreams) ? Object.keys(upstreams) : []
  if (name !== undefined && !known.includes(name)) report(path, `there is no upstream ${quote(name)}`, suggest(name, known) ?? 'add it to upstreams:')
}

function pluginsInOrder ({ value, plugins }: RuleInput): { readonly plugin: Plugin, readonly path: Path }[] {
  return items(value.pipeline, 'pipeline').flatMap(({ item, path }) => {
    const plugin = typeof item.use === 'string' ? plugins.get(item.use) : undefined
    return plugin === undefined ? [] : [{ plugin, path: [...path, 'use'] }]
  })
}

function checkPipeline (input: RuleInput, report: Report): void {
  const list = pluginsInOrder(input)
  const names = new Map<string, Path>()
  const writers = new Map<string, number>()
  for (const [index, { plugin, path }] of list.entries()) {
    const first = names.get(plugin.name)
    if (first !== undefined) { report(path, `the plugin ${plugin.name} is in the pipeline twice; the other is at ${printSpot(findTree(input.tree, first).tree.at)}`); continue }
    names.set(plugin.name, path)
    for (const { name } of plugin.writes ?? []) {
      const other = writers.get(name)
      if (CORE_FACTS.includes(name)) report(path, `${plugin.name} writes ${name}, which only the core may write`)
      else if (other !== undefined) report(path, `${plugin.name} writes ${name}, which ${list[other]!.plugin.name} writes too; a fact has one writer`, 'remove one of them')
      else writers.set(name, index)
    }
  }
  checkMeter(input, names, report)
  for (const [index, { plugin, path }] of list.entries()) {
    if (names.get(plugin.name) !== path) continue
    for (const { name } of plugin.reads ?? []) {
      const writer = writers.get(name)
      if (CORE_FACTS.includes(name) || (writer !== undefined && writer < index)) continue
      if (writer === index) report(path, `${plugin.name} reads ${name} before it writes it`)
      else if (writer !== undefined) report(path, `${plugin.name} reads ${name}, which ${list[writer]!.plugin.name} writes later`, `move ${list[writer]!.plugin.name} above it`)
      else report(path, `${plugin.name} reads ${name}, which nothing above it writes`, addWriter(name, input.plugins))
    }
  }
}

/** What has a price must be charged for (lesson 28). */
function checkMeter ({ value, plugins }: RuleInput, names: ReadonlyMap<string, Path>, report: Report): void {
  const isShipped = [...plugins.values()].some(({ name }) => name === METER)
  if (!isShipped || names.has(METER) || !Array.isArray(value.pipeline)) return
  const channels = items(value.models, 'models').flatMap(({ item }) => isMap(item.channels) ? Object.values(item.channels) : [])
  const isPriced = [...channels, ...items(value.routes, 'routes').map(({ item }) => item)].some((sold) => isMap(at(sold, 'price')))
  if (isPriced) report(['pipeline'], `lacks ${METER}: there are prices, and nobody would be charged`, `add ${METER} below channel-router`)
}

function addWriter (fact: string, plugins: ReadonlyMap<string, Plugin>): string | undefined {
  const writer = [...plugins.values()].find(({ writes }) => writes?.some(({ name }) => name === fact) === true)
  return writer === undefined ? undefined : `add ${writer.name} above it`
}

function checkModels (input: RuleInput, report: Report, warn: Report): void {
  const { value, tree } = input
  const models = items(value.models, 'models')
  checkUnique(models, 'id', 'models', input, report)
  for (const { item, path } of models) {
    const created = text(item.created, tree, [...path, 'created'])
    if (created !== undefined && /^\d{4}-\d{2}-\d{2}$/.test(created) && !isDay(created)) report([...path, 'created'], `there is no such day: ${created}`)
    const accepts = item.accepts
    if (Array.isArray(accepts) && accepts.length > 0 && !accepts.includes('text')) report([...path, 'accepts'], 'must hold text')
    const channels = isMap(item.channels) ? Object.entries(item.channels) : []
    for (const [name, channel] of channels) {
      const targets = at(channel, 'targets')
      const list = (Array.isArray(targets) ? targets : []) as readonly unknown[]
      for (const [index, target] of list.entries()) {
        const here = [...path, 'channels', name, 'targets', index, 'upstream']
        checkUpstreamName(text(at(target, 'upstream'), tree, here), here, input, report)
      }
      if (list.length > 0 && list.every((target) => at(target, 'weight') === 0)) report([...path, 'channels', name, 'targets'], 'all weights are 0: no target can be chosen', 'switch the channel off with "enabled: false"')
    }
    if (channels.length > 0 && channels.every(([, channel]) => at(channel, 'enabled') === false)) {
      warn([...path, 'channels'], 'all channels are switched off: the model cannot be called', undefined, true)
    }
  }
}

function isDay (text: string): boolean {
  const date = new Date(`${text}T00:00:00Z`)
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text)
}

function checkRoutes (input: RuleInput, report: Report): void {
  const { value, tree, endpoints } = input
  const pipeline = pluginsInOrder(input)
  const seen = new Map<string, Path>()
  for (const { item, path } of items(value.routes, 'routes')) {
    const here = (field: string): Path => [...path, field]
    const isForward = item.forward !== undefined
    const match = text(item.match, tree, here('match'))
    const serve = text(item.serve, tree, here('serve'))
    if (match !== undefined) checkMatch(match, isForward, here('match'), seen, input, report)
    if (isForward === (item.serve !== undefined)) {
      report(path, isForward ? 'a route has either "serve" or "forward", not both' : 'a route needs "serve" or "forward"', isForward ? 'remove one of them' : 'serve: messages, or forward: NAME-OF-AN-UPSTREAM')
    }
    if (serve !== undefined && serve !== 'none' && endpoints !== undefined && !endpoints.includes(serve)) {
      report(here('serve'), `there is no endpoint ${quote(serve)}`, suggest(serve, [...endpoints.filter((name) => name !== 'none'), 'none']))
    }
    const used = checkRoutePipeline(item, path, pipeline, input, report, isForward)
    if (isForward) {
      checkUpstreamName(text(item.forward, tree, here('forward')), here('forward'), input, report)
      if (item.price === undefined) report(path, '"price" is missing: a forward route costs something', 'write "price: { usd: 0.0001 }", or "price: free"')
      else if (item.price !== 'free' && used !== undefined && !used.includes('auth')) {
        report(Array.isArray(item.pipeline) ? here('pipeline') : path, 'a route with a price needs auth in its pipeline: else nobody pays', 'add auth, or write "price: free"')
      }
    } else if (item.price !== undefined && item.serve !== undefined) {
      report(here('price'), 'only a forward route has a price; models have their own', 'remove it', true)
    }
  }
}

function checkMatch (match: string, isForward: boolean, path: Path, seen: Map<string, Path>, { tree }: RuleInput, report: Report): void {
  const parts = /^([A-Za-z]+(?:,[A-Za-z]+)*) (\/\S*)$/.exec(match)
  if (parts === null) {
    report(path, `must be "METHOD /path" such as POST /v1/messages, found ${quote(match)}`, match.startsWith('/') ? 'name the method first' : undefined)
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
  // such a path has two meanings, one here and one behind (lesson: escaping a prefix)
  else if (/\/\/|%2e|%2f|\/\.\.?(?:\/|$)/i.test(plain)) report(path, 'the path must not hold "//", dot segments, %2e or %2f')
  else if (plain.includes('*')) report(path, '"*" can only be the last segment of a path', 'such as /v1/files/*')
  else if (plain.length > 1 && plain.endsWith('/')) report(path, 'the path must not end in "/"', `write ${plain.slice(0, -1)}`)
  if (!isForward && methods.length > 1) report(path, 'only a forward route may name several methods')
  if (!isForward && below) report(path, 'only a forward route may end in "/*"')
  for (const method of new Set(methods)) {
    const first = seen.get(`${method} ${target}`)
    if (first === undefined) seen.set(`${method} ${target}`, path)
    else report(path, `${method} ${target} is matched twice; the other is at ${printSpot(findTree(tree, first).tree.at)}`)
  }
}

/** @returns the names of the route's plugins, or undefined when the list is not one of texts */
function checkRoutePipeline (
  item: Record<string, unknown>, path: Path, pipeline: readonly { readonly plugin: Plugin }[], input: RuleInput, report: Report, isForward: boolean
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
      report(here, isShipped ? `the plugin ${name} is not in pipeline:` : `there is no plugin ${quote(name)} in pipeline:`, isShipped ? 'add it there: a route can only leave plugins out' : suggest(name, known))
    } else if (position < last) report(here, `${name} stands after ${known[last]!} here, but before it in pipeline:`, 'keep the order of pipeline:')
    last = Math.max(last, position)
  }
  const chosen = pipeline.filter(({ plugin }) => names.includes(plugin.name))
  const written = new Set([...CORE_FACTS, ...chosen.flatMap(({ plugin }) => (plugin.writes ?? []).map(({ name }) => name))])
  for (const { plugin } of chosen) {
    for (const { name } of plugin.reads ?? []) {
      const writer = pipeline.find((other) => other.plugin.writes?.some((fact) => fact.name === name) === true)?.plugin
      // absent from the whole pipeline: said there already
      if (written.has(name) || writer === undefined) continue
      // a forward route has no body and no model, so what is made of them is absent by nature
      if (isForward && writer.reads?.some((fact) => CORE_FACTS.includes(fact.name)) === true) continue
      report([...path, 'pipeline', names.indexOf(plugin.name)], `${plugin.name} reads ${name}, which no plugin of this route writes`, `add ${writer.name}`)
    }
  }
  return names.filter((name) => typeof name === 'string')
}

function checkKeys (input: RuleInput, report: Report, warn: Report): void {
  const { value, tree } = input
  const accounts = [...checkUnique(items(value.accounts, 'accounts'), 'id', 'accounts', input, report).keys()]
  const keys = items(value.keys, 'keys')
  checkUnique(keys, 'id', 'keys', input, report)
  const prefix = keyPrefix(input)
  const real = Object.entries(isMap(value.upstreams) ? value.upstreams : {}).find(([, upstream]) => !['simulator:', undefined].includes(at(upstream, 'url') as string | undefined))
  if (keys.length === 0 && real !== undefined) {
    warn(['upstreams', real[0], 'url'], 'is not the built-in simulator, so the demo key is off; and there are no keys: nobody can use the models', 'add accounts: and keys:')
  }
  const secrets = new Map<string, Path>()
  for (const { item, path } of keys) {
    const account = text(item.account, tree, [...path, 'account'])
    if (account !== undefined && !accounts.includes(account)) {
      const near = nearest(account, accounts)
      report([...path, 'account'], `there is no account ${quote(account)}`, near === undefined ? 'add it to accounts:' : `did you mean "${near}"?`)
    }
    const where = [...path, 'secret']
    const secret = text(item.secret, tree, where)
    if (secret !== undefined) {
      // never the value, nor how much of it is right
      if (!secret.startsWith(prefix) || !/^[A-Za-z0-9]{32}$/.test(secret.slice(prefix.length))) report(where, `must be "${prefix}" and 32 letters or digits`, explainSecret(secret, prefix))
      const other = secrets.get(secret)
      if (other === undefined) secrets.set(secret, where)
      else report(where, `two keys have the same secret; the other is at ${printSpot(findTree(tree, other).tree.at)}`)
    }
    if (Array.isArray(item.channels) && item.channels.length === 1) {
      const [only] = item.channels as readonly unknown[]
      if ((item.routing_mode === 'premium' && only === 'cheap') || (item.routing_mode === 'cheap' && only === 'premium')) {
        warn(path, `routing_mode ${item.routing_mode} never uses the only channel of this key, ${only}`, `set routing_mode: ${only}, or add the channel ${item.routing_mode}`)
      }
    }
  }
}

/** The prefix of key secrets is an option of auth. */
function keyPrefix ({ value }: RuleInput): string {
  const auth = items(value.pipeline, 'pipeline').find(({ item }) => item.use === 'auth')
  const prefix = at(auth?.item, 'with', 'prefix')
  return typeof prefix === 'string' ? prefix : KEY_PREFIX
}

function explainSecret (secret: string, prefix: string): string {
  if (secret === '') return 'it is empty'
  if (secret.trim() !== secret) return 'it has a space or line break at one end'
  if (!secret.startsWith(prefix)) return `it does not begin with ${prefix}`
  const { length } = secret.slice(prefix.length)
  return length === 32 ? 'it holds something else than letters and digits' : `it has ${length} characters after ${prefix}`
}
