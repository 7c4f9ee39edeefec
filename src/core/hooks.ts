// The hooks of a route, sorted once per snapshot, and their guarded calls.
import type { KeyConfig } from '../config/config.ts'
import { GatewayError, isGatewayError, toGatewayError } from '../errors.ts'
import type { Exchange } from './exchange.ts'
import type { Hooks, UpstreamFailure } from './plugin.ts'
import { hearRejection, isPromise, type Awaitable } from '../base/awaitable.ts'
import type { Route } from './route.ts'
import { noteFailure } from './failed-attempt.ts'
import { within } from '../base/timeout.ts'

export interface NamedHook<F> {
  readonly plugin: string
  readonly call: F
}

/** The names of all hooks. */
export const hookNames: readonly string[] = [
  'onHead', 'onRequest', 'perKey', 'perAttempt', 'onReply', 'onStream', 'onError', 'onUpstreamFailure', 'close'
] satisfies (keyof Hooks)[]

type Of<Name extends keyof Hooks> = ReadonlyArray<NamedHook<NonNullable<Hooks[Name]>>>

/**
 * One array per hook, with only the plugins that have it, in the order of the calls: the request path builds nothing.
 */
export interface RouteHooks {
  readonly onHead: Of<'onHead'>
  readonly onRequest: Of<'onRequest'>
  readonly perKey: Of<'perKey'>
  /** in list order: called down it for the request and up it for the answer */
  readonly perAttempt: Of<'perAttempt'>
  readonly onReply: Of<'onReply'>
  readonly onStream: Of<'onStream'>
  readonly onError: Of<'onError'>
  readonly onUpstreamFailure: Of<'onUpstreamFailure'>
  /** plugins that enforce settings of keys */
  readonly enforcing: ReadonlySet<string>
}

/** A route with its hooks. */
export interface Hooked extends Route {
  readonly hooks: RouteHooks
  /** undefined: all keys have the same hooks */
  readonly keyChains: KeyChains | undefined
}

type DownHook = 'onHead' | 'onRequest'

/**
 * The hooks on the way down, with a hole for a plugin without work, so that a hook has one index in all chains of a
 * route.
 */
export type Chain = Readonly<Record<DownHook, ReadonlyArray<Of<DownHook>[number] | undefined>>>

/** The chains of each key on one route, compiled when the key is first used there. */
export class KeyChains {
  readonly #hooks: RouteHooks
  readonly #route: Route
  /** By the settings object: a changed key of the directory is another object. */
  readonly #chains = new WeakMap<KeyConfig, Chain>()

  constructor (hooks: RouteHooks, route: Route) {
    this.#hooks = hooks
    this.#route = route
  }

  of (key: KeyConfig): Chain {
    let chain = this.#chains.get(key)
    if (chain === undefined) this.#chains.set(key, chain = this.#compile(key))
    return chain
  }

  #compile (key: KeyConfig): Chain {
    const { onHead, onRequest, perKey } = this.#hooks
    const own = new Map(perKey.map(({ plugin, call }) => {
      const hooks = call(key, this.#route)
      const places: Readonly<Record<string, Of<keyof Chain>>> = { onHead, onRequest }
      checkKeyHooks(hooks, plugin, (name) => places[name]?.some((hook) => hook.plugin === plugin) === true)
      return [plugin, hooks]
    }))
    const compiled = (name: keyof Chain, hooks: Of<typeof name>): Chain[typeof name] =>
      hooks.map((hook) => {
        if (!own.has(hook.plugin)) return hook
        const call = own.get(hook.plugin)?.[name]
        return call === undefined ? undefined : { plugin: hook.plugin, call: call.bind(own.get(hook.plugin)) }
      })
    return { onHead: compiled('onHead', onHead), onRequest: compiled('onRequest', onRequest) }
  }
}

/**
 * Fails the request for a wrong hook: a policy that is silently left out would let every request through.
 * @throws {TypeError}
 */
function checkKeyHooks (hooks: unknown, plugin: string, has: (name: string) => boolean): void {
  if (hooks === undefined) return
  const isObject = typeof hooks === 'object' && hooks !== null && !isPromise(hooks)
  if (isPromise(hooks)) hearRejection(hooks, () => {})
  if (!isObject) throw new TypeError(`the perKey of ${plugin} returned no object of hooks`)
  for (const [name, hook] of Object.entries(hooks)) {
    if (typeof hook !== 'function' || !has(name)) {
      throw new TypeError(`the perKey of ${plugin} returned "${name}", which is no hook in the place of its own`)
    }
  }
}

interface CompiledPlugin {
  readonly name: string
  readonly hooks: Hooks
  readonly plugin: { readonly enforces?: readonly string[] }
}

export function sortHooks (plugins: readonly CompiledPlugin[]): RouteHooks {
  const of = <Name extends keyof Hooks>(name: Name): NamedHook<NonNullable<Hooks[Name]>>[] =>
    plugins.flatMap(({ name: plugin, hooks }) => {
      const hook = hooks[name]
      return hook === undefined ? [] : [{ plugin, call: hook.bind(hooks) as NonNullable<Hooks[Name]> }]
    })
  return {
    onHead: of('onHead'),
    onRequest: of('onRequest'),
    perKey: of('perKey'),
    perAttempt: of('perAttempt'),
    onReply: of('onReply').reverse(),
    onStream: of('onStream').reverse(),
    onError: of('onError'),
    onUpstreamFailure: of('onUpstreamFailure').reverse(),
    enforcing: new Set(plugins.filter(({ plugin: { enforces = [] } }) => enforces.length > 0).map(({ name }) => name))
  }
}

/**
 * Waits for the result of a hook at most `hook_timeout`, so that a plugin can't hang a request.
 * @throws {GatewayError} server_error after `hook_timeout`; the hook's own error
 */
export function callHook<T> (result: Awaitable<T>, plugin: string, exchange: Exchange): Awaitable<T> {
  return isPromise(result) ? inTime(result, plugin, exchange) : result
}

function inTime<T> (result: PromiseLike<T>, plugin: string, exchange: Exchange): Promise<T> {
  const limit = exchange.snapshot.config.hook_timeout
  const late = (): GatewayError => {
    exchange.snapshot.services.metrics.hookTimeout(plugin)
    return new GatewayError('server_error', {
      cause: new Error(`the plugin ${plugin} took longer than hook_timeout (${limit} ms)`)
    })
  }
  let ended = exchange.endedInThreads
  // What a hook does behind a long step has its whole time from then on.
  const hasWaited = (): boolean => {
    const before = ended
    ended = exchange.endedInThreads
    return exchange.inThreads > 0 || ended > before
  }
  return within(Promise.resolve(result), limit, late, hasWaited)
}

/**
 * The result of a hook that is not awaited. It should be no promise; the rejection of one, such as of an `async`
 * function, is reported, and must not end the process.
 */
export function unwaited<T> (result: T, exchange: Exchange): T {
  return isPromise(result) ? reporting(result, exchange) : result
}

function reporting<T> (result: T, exchange: Exchange): T {
  return hearRejection(result, (err) => {
    exchange.snapshot.services.log.error({ request_id: exchange.id, err },
      'a hook that nothing waits for is an async function, and was rejected')
  })
}

/** Names a failure by the plugins, from the upstream's side outward, and records it for the operator. Never throws. */
export function nameFailure (failure: UpstreamFailure, exchange: Exchange<Hooked>, upstream: string): GatewayError {
  try {
    noteFailure(failure, exchange, upstream)
    for (const { plugin, call } of exchange.route.hooks.onUpstreamFailure) {
      const named = unwaited(call(failure, exchange, upstream), exchange)
      if (named === undefined) continue
      if (!isGatewayError(named)) throw new TypeError(`the onUpstreamFailure of ${plugin} returned no GatewayError`)
      return named
    }
  } catch (thrown) {
    return toGatewayError(thrown)
  }
  return new GatewayError('upstream_error', { cause: 'cause' in failure ? failure.cause : failure.kind })
}
