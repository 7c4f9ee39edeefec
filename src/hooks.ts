// The hooks of a route, sorted once per snapshot; and the guard around calling one.
import { GatewayError, toGatewayError } from './errors.ts'
import type { Exchange } from './exchange.ts'
import type { Awaitable, Hooks, UpstreamFailure } from './plugin.ts'
import { noteFailure } from './upstream/failed-attempt.ts'
import { within } from './within.ts'

export interface NamedHook<F> {
  readonly plugin: string
  readonly call: F
}

/** All that a plugin can have. */
export const hookNames: readonly string[] = [
  'onHead', 'onRequest', 'perAttempt', 'onReply', 'onStream', 'onError', 'onUpstreamFailure', 'close'
] satisfies (keyof Hooks)[]

type Of<Name extends keyof Hooks> = ReadonlyArray<NamedHook<NonNullable<Hooks[Name]>>>

/** One array per hook, only of plugins that have it, in the order of the calls: the request path builds nothing. */
export interface RouteHooks {
  readonly onHead: Of<'onHead'>
  readonly onRequest: Of<'onRequest'>
  /** in list order: its users go down it for the request and up it for the answer */
  readonly perAttempt: Of<'perAttempt'>
  readonly onReply: Of<'onReply'>
  readonly onStream: Of<'onStream'>
  readonly onError: Of<'onError'>
  readonly onUpstreamFailure: Of<'onUpstreamFailure'>
}

export function sortHooks (plugins: ReadonlyArray<{ readonly name: string, readonly hooks: Hooks }>): RouteHooks {
  const of = <Name extends keyof Hooks>(name: Name): NamedHook<NonNullable<Hooks[Name]>>[] => plugins.flatMap(({ name: plugin, hooks }) => {
    const hook = hooks[name]
    return hook === undefined ? [] : [{ plugin, call: hook.bind(hooks) as NonNullable<Hooks[Name]> }]
  })
  return {
    onHead: of('onHead'),
    onRequest: of('onRequest'),
    perAttempt: of('perAttempt'),
    onReply: of('onReply').reverse(),
    onStream: of('onStream').reverse(),
    onError: of('onError'),
    onUpstreamFailure: of('onUpstreamFailure').reverse()
  }
}

/**
 * Waits for what a hook returned, but not for ever: a plugin can't hang a request.
 * @throws {GatewayError} server_error after `hook_timeout`; whatever the hook threw
 */
export function settleHook<T> (result: Awaitable<T>, plugin: string, exchange: Exchange): Awaitable<T> {
  if (!isPromise(result)) return result
  const limit = exchange.snapshot.config.hook_timeout
  return within(Promise.resolve(result), limit, () => {
    exchange.snapshot.services.metrics.hookTimeout(plugin)
    return new GatewayError('server_error', { cause: new Error(`the plugin ${plugin} took longer than hook_timeout (${limit} ms)`) })
  })
}

/** Whatever `await` waits for: a plugin may bring promises of its own kind. */
function isPromise<T> (result: Awaitable<T>): result is Promise<T> {
  return result instanceof Promise || (typeof result === 'object' && result !== null && 'then' in result && typeof result.then === 'function')
}

/** Asks the plugins, from the upstream's side outward, what went wrong there, and notes it for the operator. Never throws. */
export function nameFailure (failure: UpstreamFailure, exchange: Exchange, upstream: string): GatewayError {
  try {
    noteFailure(failure, exchange, upstream)
    for (const { call } of exchange.route.hooks.onUpstreamFailure) {
      const named = call(failure, exchange, upstream)
      if (named !== undefined) return named
    }
  } catch (thrown) {
    return toGatewayError(thrown)
  }
  return new GatewayError('upstream_error', { cause: 'cause' in failure ? failure.cause : failure.kind })
}
