// The plugins of a configuration, made by their `create` in the order of the list, and closed in the opposite one.
import { hookNames } from '../core/hooks.ts'
import type { Hooks, Plugin } from '../core/plugin.ts'
import type { Services } from '../core/services.ts'
import { within } from '../base/timeout.ts'
import type { Config } from '../config/config.ts'
import type { Role } from '../config/plugin-descriptor.ts'
import { PartError } from '../config/problem.ts'
import { suggest } from '../config/check/suggest.ts'
import { placeIn } from '../config/load/user-plugin.ts'

export interface Running {
  readonly name: string
  readonly plugin: Plugin
  readonly hooks: Hooks
}

export class RunningPlugins {
  readonly list: readonly Running[]
  readonly #config: Config
  readonly #services: Services

  /**
   * @param plugins one for each item of `config.pipeline`, in its order
   * @param shipped those of them that translate a style of clients run without being named
   * @throws {PartError} a plugin's `create` threw, or returned no hooks; the plugins before it are closed
   */
  constructor (
    plugins: readonly Plugin[],
    config: Config,
    services: Services,
    shipped: Iterable<Plugin> = []
  ) {
    this.#config = config
    this.#services = services
    const list: Running[] = []
    this.list = list
    try {
      for (const [i, plugin] of plugins.entries()) {
        const { with: options } = config.pipeline[i]!
        list.push({ name: plugin.name, plugin, hooks: create(plugin, options, `/pipeline/${i}/use`, config, services) })
      }
      const place = placeOfTranslators(plugins)
      for (const plugin of shipped) {
        if (plugin.translates === undefined || plugins.includes(plugin)) continue
        const hooks = create(plugin, {}, '/pipeline', config, services)
        list.splice(place, 0, { name: plugin.name, plugin, hooks })
      }
    } catch (thrown) {
      void this.close()
      throw thrown
    }
  }

  /** Never rejects. */
  async close (): Promise<void> {
    for (const { name, hooks } of this.list.toReversed()) {
      try {
        const closing = hooks.close?.()
        if (closing !== undefined) {
          await within(closing, this.#config.hook_timeout, () => new Error('it took longer than hook_timeout'))
        }
      } catch (err) {
        this.#services.log.error({ err, plugin: name }, 'a plugin failed to close')
      }
    }
  }
}

/**
 * The place of translators that gateway.yaml does not name: where other styles are translated, or else before the
 * targets are chosen.
 */
function placeOfTranslators (plugins: readonly Plugin[]): number {
  const provider = (role: Role): number => plugins.findIndex(({ provides }) => provides?.includes(role) === true)
  return [provider('chat-completions'), provider('routing'), plugins.length].find((place) => place !== -1)!
}

const REGISTERED = 'each request is asked to tell it: in onHead or onRequest call'
const OF_AN_ATTEMPT = 'it is one of an attempt: return it from perAttempt'

/** Names that look like hooks and are none, with the right call for each. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  onFinish: `${REGISTERED} exchange.onFinish((outcome) => { ... })`,
  onSettle: `${REGISTERED} exchange.onSettle((outcome) => { ... })`,
  onUpstreamRequest: OF_AN_ATTEMPT, onUpstreamReply: OF_AN_ATTEMPT, onUpstreamEvent: OF_AN_ATTEMPT,
  onClose: 'it is called "close"'
}

/** @throws {PartError} the plugin's own, or one that names the plugin */
function create (
  plugin: Plugin,
  options: Readonly<Record<string, unknown>>,
  path: string,
  config: Config,
  services: Services
): Hooks {
  const { name } = plugin
  let hooks: unknown
  try {
    hooks = plugin.create(options, config, services)
  } catch (cause) {
    if (cause instanceof PartError) throw cause                // it has a more exact place
    const place = cause instanceof Error ? placeIn(cause.stack ?? '') : undefined
    throw new PartError(path,
      `the plugin ${name} refused its configuration: ${cause instanceof Error ? cause.message : String(cause)}`,
      place && `thrown at ${place.file}:${place.line}:${place.column ?? 1}`, cause)
  }
  if (typeof hooks !== 'object' || hooks === null || 'then' in hooks) {
    // the promise is ignored: its rejection must not end the process
    if (hooks instanceof Promise) hooks.catch(() => {})
    const found = hooks === null || hooks === undefined
      ? String(hooks)
      : typeof hooks === 'object'
      ? 'a promise'
      : `a ${typeof hooks}`
    throw new PartError(path,
      `the "create" of the plugin ${name} must return an object of hooks, and returned ${found}`)
  }
  for (const hook of Object.keys(hooks)) {
    const isKnown = hookNames.includes(hook)
    if (!isKnown && /^on[A-Z]/.test(hook)) {
      throw new PartError(path, `the plugin ${name} has a hook "${hook}", which does not exist`,
        Object.hasOwn(ELSEWHERE, hook) ? ELSEWHERE[hook] : suggest(hook, hookNames))
    }
    const value = (hooks as Readonly<Record<string, unknown>>)[hook]
    if (isKnown && value !== undefined && typeof value !== 'function') {
      throw new PartError(path, `the hook "${hook}" of the plugin ${name} must be a function`)
    }
  }
  return hooks
}
