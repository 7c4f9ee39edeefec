// A configuration in use: compiled once, frozen, leased by each request for as long as it runs.
import { hookNames, sortHooks } from '../hooks.ts'
import type { Model } from '../facts.ts'
import { parsePrice } from '../money/nanos.ts'
import type { Hooks, Plugin } from '../plugin.ts'
import { type Endpoint, type Route, RouteTable, styleOf } from '../routes.ts'
import type { Services } from '../services.ts'
import { type Stage, stageAt, stagesOf } from '../stages.ts'
import { DryStore, DryTasks } from '../store/dry.ts'
import type { Upstream } from '../upstream/upstream.ts'
import { within } from '../within.ts'
import type { AliasConfig, Config, RouteConfig, StagedModel } from './config.ts'
import { PartError } from './problem.ts'
import { suggest } from './suggest.ts'
import { placeIn } from './user-plugin.ts'

/** The paths of the spec, below the routes of the configuration. */
export const shippedRoutes: readonly RouteConfig[] = [
  { match: 'POST /v1/messages', serve: 'messages' },
  { match: 'POST /v1/messages/count_tokens', serve: 'count-tokens' },
  { match: 'POST /v1/chat/completions', serve: 'chat-completions' },
  { match: 'POST /v1/quote', serve: 'quote' },
  { match: 'GET /v1/models', serve: 'models' },
  { match: 'GET /v1/models/info', serve: 'models-info' },
  { match: 'GET /v1/models/{id}', serve: 'model' },
  { match: 'POST /v1/images/generations', serve: 'images-generations' },
  { match: 'POST /v1/images/edits', serve: 'images-edits' },
  { match: 'POST /v1/videos', serve: 'create-video' },
  { match: 'GET /v1/videos', serve: 'videos' },
  { match: 'GET /v1/videos/{id}', serve: 'video' },
  { match: 'DELETE /v1/videos/{id}', serve: 'delete-video' },
  { match: 'GET /v1/videos/{id}/content', serve: 'video-content' },
  { match: 'POST /v1/videos/{id}/remix', serve: 'remix-video' }
]

/** Those of the public listener: nobody proves himself there. */
const publicRoutes: readonly RouteConfig[] = [
  { match: 'GET /api/public/models-info', serve: 'public-models-info', pipeline: [] },
  { match: 'GET /api/public/media-info', serve: 'public-media-info', pipeline: [] },
  { match: 'GET /files/*', serve: 'file', pipeline: [] }
]

/** Plugins that run on every route, whatever its `pipeline`: what costs money is metered, what fails is shaped. */
const ALWAYS = ['billing-meter', 'error-normalize']

export interface Parts {
  readonly config: Config
  readonly generation: number
  /** one for each item of `config.pipeline`, in its order */
  readonly plugins: readonly Plugin[]
  readonly endpoints: Readonly<Record<string, Endpoint>>
  readonly services: Services
  /** for dry runs only: plugins get a store that changes nothing, and there are no upstreams */
  readonly isDry?: boolean
}

/** What an alias stands for. */
type AliasStage = Pick<Stage<unknown>, 'from'> & { readonly model: Model }

interface Running {
  readonly name: string
  readonly hooks: Hooks
}

export class Snapshot {
  /** counts up with every configuration that went live: 1, 2, 3 … */
  readonly generation: number
  readonly config: Config
  readonly services: Services
  readonly models: ReadonlyMap<string, Model>
  readonly routes: RouteTable
  /** of the public listener */
  readonly publicRoutes: RouteTable
  readonly upstreams: ReadonlyMap<string, Upstream>
  readonly #aliases: ReadonlyMap<string, readonly AliasStage[]>
  readonly #running: Running[] = []
  readonly #parts: Parts
  #leases = 0
  #retired = false
  #rehearsal: Snapshot | undefined

  /** @throws {PartError} a plugin's `create` did, or returned no hooks; nothing is left open */
  constructor (parts: Parts) {
    const { config, generation, plugins, endpoints, isDry = false } = parts
    const services = isDry ? { ...parts.services, store: new DryStore(parts.services.store), tasks: new DryTasks(parts.services.tasks) } : parts.services
    this.#parts = parts
    this.generation = generation
    this.config = config
    this.services = services
    this.models = new Map(config.models.map((model) => [model.id, model]))
    this.#aliases = new Map(config.aliases.map((alias) => [alias.id, this.#stagesOf(alias)]))
    const upstreams = new Map<string, Upstream>()
    this.upstreams = upstreams
    try {
      for (const [i, plugin] of plugins.entries()) this.#running.push({ name: plugin.name, hooks: create(plugin, i, config, services) })
      this.routes = new RouteTable(this.#compileRoutes(this.#apiRoutes(endpoints), endpoints))
      this.publicRoutes = new RouteTable(this.#compileRoutes(publicRoutes, endpoints))
      if (!isDry) for (const [name, upstream] of Object.entries(config.upstreams)) upstreams.set(name, services.upstreams.open(name, upstream))
    } catch (thrown) {
      void this.#close()
      throw thrown
    }
  }

  /** The model that clients mean by this name at this moment: its id, or an alias. */
  modelOf (name: string): Model | undefined {
    const model = this.models.get(name)
    if (model !== undefined) return model
    const stages = this.#aliases.get(name)
    return stages && stageAt(stages, this.services.now()).model
  }

  /** For one request; `release` exactly once. */
  lease (): this {
    this.#leases++
    return this
  }

  release (): void {
    this.#leases--
    if (this.#retired && this.#leases === 0) void this.#close()
  }

  /**
   * The same for dry runs, with plugins of its own: made by their `create` once more, so that none of them can have kept the store that
   * changes something. Made when first asked for; use it while this one is leased.
   */
  rehearsal (): Snapshot {
    return this.#rehearsal ??= this.#parts.isDry === true ? this : new Snapshot({ ...this.#parts, isDry: true })
  }

  /** Another snapshot took over: this one closes when its last request ends. */
  retire (): void {
    this.#retired = true
    if (this.#leases === 0) void this.#close()
  }

  async #close (): Promise<void> {
    if (this.#rehearsal !== undefined && this.#rehearsal !== this) void this.#rehearsal.#close()
    // first, so that no connection stays open because of a plugin that takes for ever
    for (const upstream of this.upstreams.values()) this.services.upstreams.close(upstream)
    for (const { name, hooks } of this.#running.toReversed()) {
      try {
        const closing = hooks.close?.()
        if (closing !== undefined) await within(closing, this.config.hook_timeout, () => new Error('it took longer than hook_timeout'))
      } catch (err) {
        this.services.log.error({ err, plugin: name }, 'a plugin failed to close')
      }
    }
  }

  #stagesOf ({ model }: AliasConfig): AliasStage[] {
    const list: readonly (string | StagedModel)[] = typeof model === 'string' ? [model] : model
    return stagesOf(list).map(({ from, written }) => ({ from, model: this.models.get(typeof written === 'string' ? written : written.model)! }))
  }

  /** The configuration's own, and below them the shipped ones that it neither replaces nor lacks the plugin for. */
  #apiRoutes (endpoints: Readonly<Record<string, Endpoint>>): RouteConfig[] {
    const own = this.config.routes
    const claimed = new Set(own.map(({ match }) => match))
    const isServed = ({ serve }: RouteConfig): boolean => {
      const endpoint = endpoints[serve!]!
      return endpoint.kind !== 'model' || endpoint.needs === undefined || this.#running.some(({ name }) => name === endpoint.needs)
    }
    return [...own.filter(({ serve }) => serve !== 'none'), ...shippedRoutes.filter((route) => !claimed.has(route.match) && isServed(route))]
  }

  #compileRoutes (routes: readonly RouteConfig[], endpoints: Readonly<Record<string, Endpoint>>): Route[] {
    const sorted = new Map<string, ReturnType<typeof sortHooks>>()
    return routes.map((route) => {
      const [methods, path] = route.match.split(' ') as [string, string]
      const chosen = this.#running.filter(({ name }) => route.pipeline === undefined || route.pipeline.includes(name) || ALWAYS.includes(name))
      const names = chosen.map(({ name }) => name)
      // Routes with the same plugins share their arrays of hooks.
      const hooks = sorted.get(names.join()) ?? sortHooks(chosen)
      sorted.set(names.join(), hooks)
      const endpoint: Endpoint = route.forward === undefined
        ? endpoints[route.serve!]!
        : { kind: 'forward', upstream: route.forward, price: route.price === undefined || route.price === 'free' ? 0n : parsePrice(route.price.usd), websocket: route.websocket === true }
      return {
        name: route.match,
        methods: methods.split(','),
        path,
        style: (endpoint.kind === 'forward' ? undefined : endpoint.style) ?? styleOf(path),
        endpoint,
        isInMaintenance: route.maintenance === true || (route.forward !== undefined && this.config.upstreams[route.forward]?.maintenance === true),
        plugins: names,
        hooks
      }
    })
  }
}

const REGISTERED = 'each request is asked to tell it: in onHead or onRequest call'
const OF_AN_ATTEMPT = 'it is one of an attempt: return it from perAttempt'

/** What is told to plugins, and by no hook of theirs. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  onFinish: `${REGISTERED} exchange.onFinish((outcome) => { ... })`,
  onSettle: `${REGISTERED} exchange.onSettle((outcome) => { ... })`,
  onUpstreamRequest: OF_AN_ATTEMPT, onUpstreamReply: OF_AN_ATTEMPT, onUpstreamEvent: OF_AN_ATTEMPT,
  onClose: 'it is called "close"'
}

/** @throws {PartError} the plugin's own, or one that names the plugin */
function create (plugin: Plugin, index: number, config: Config, services: Services): Hooks {
  const { name } = plugin
  const path = `/pipeline/${index}/use`
  let hooks: unknown
  try {
    hooks = plugin.create(config.pipeline[index]!.with, config, services)
  } catch (cause) {
    if (cause instanceof PartError) throw cause                // it knows the place better
    const place = cause instanceof Error ? placeIn(cause.stack ?? '') : undefined
    throw new PartError(path, `the plugin ${name} refused its configuration: ${cause instanceof Error ? cause.message : String(cause)}`,
      place && `thrown at ${place.file}:${place.line}:${place.column ?? 1}`, cause)
  }
  if (typeof hooks !== 'object' || hooks === null || 'then' in hooks) {
    // nobody waits for it: its rejection must not end the process
    if (hooks instanceof Promise) hooks.catch(() => {})
    const found = hooks === null || hooks === undefined ? String(hooks) : typeof hooks === 'object' ? 'a promise' : `a ${typeof hooks}`
    throw new PartError(path, `the "create" of the plugin ${name} must return an object of hooks, and returned ${found}`)
  }
  for (const hook of Object.keys(hooks)) {
    const isKnown = hookNames.includes(hook)
    if (!isKnown && /^on[A-Z]/.test(hook)) throw new PartError(path, `the plugin ${name} has a hook "${hook}", which does not exist`, Object.hasOwn(ELSEWHERE, hook) ? ELSEWHERE[hook] : suggest(hook, hookNames))
    const value = (hooks as Readonly<Record<string, unknown>>)[hook]
    if (isKnown && value !== undefined && typeof value !== 'function') throw new PartError(path, `the hook "${hook}" of the plugin ${name} must be a function`)
  }
  return hooks
}
