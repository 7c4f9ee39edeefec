// A configuration in use: compiled once, leased by each request for as long as it runs.
import type { BodyThreads } from '../core/body-step.ts'
import { KeyChains, sortHooks } from '../core/hooks.ts'
import { readsBody, type Route } from '../core/route.ts'
import type { Style } from '../core/style.ts'
import type { Model } from '../core/facts.ts'
import { parsePrice } from '../money/nanos.ts'
import type { Plugin } from '../core/plugin.ts'
import type { Ledger } from '../core/ledger.ts'
import type { CompiledRoute, Endpoint, LeasedSnapshot } from '../core/endpoint.ts'
import { RouteTable } from '../core/router.ts'
import { styleOf } from '../protocols/index.ts'
import type { GatewayServices } from './services.ts'
import { type Stage, stageAt, stagesOf } from '../base/schedule.ts'
import type { Upstream } from '../core/upstream.ts'
import type { AliasConfig, Config, ModelKind, RouteConfig, StagedModel } from '../config/config.ts'
import { stemOf } from '../config/sections/aliases.ts'
import { endpointsWith, shippedRoutesWith } from '../config/sections/endpoints.ts'
import { RunningPlugins } from './running-plugins.ts'

/** Routes of the public listener, which has no authentication. */
const publicRoutes: readonly RouteConfig[] = [
  { match: 'GET /api/public/models-info', serve: 'public-models-info', pipeline: [] },
  { match: 'GET /api/public/media-info', serve: 'public-media-info', pipeline: [] },
  { match: 'GET /files/*', serve: 'file', pipeline: [] }
]

/** With `server.public.docs`. */
const docsRoutes: readonly RouteConfig[] = [
  { match: 'GET /docs', serve: 'docs', pipeline: [] },
  { match: 'GET /docs/*', serve: 'docs', pipeline: [] },
  { match: 'GET /openapi.json', serve: 'openapi', pipeline: [] }
]

export interface Parts {
  readonly config: Config
  readonly generation: number
  /** one for each item of `config.pipeline`, in its order */
  readonly plugins: readonly Plugin[]
  /** by name; those that translate a style run without being named */
  readonly shipped?: ReadonlyMap<string, Plugin>
  readonly endpoints: Readonly<Record<string, Endpoint>>
  readonly services: GatewayServices
}

/** Longest name that is caught, and not known by itself: it stands in logs. */
const LONGEST_CAUGHT = 256

/** The target of an alias. */
type AliasStage = Pick<Stage<unknown>, 'from'> & { readonly model: Model }

export class Snapshot implements LeasedSnapshot {
  /** counts up with every configuration that went live: 1, 2, 3 … */
  readonly generation: number
  readonly config: Config
  /** without the store: the pipeline moves money only by the ledger of the exchange */
  readonly services: Omit<GatewayServices, 'store'>
  readonly ledger: Ledger
  readonly bodies: BodyThreads | undefined
  readonly models: ReadonlyMap<string, Model>
  readonly routes: RouteTable<CompiledRoute>
  /** of the public listener */
  readonly publicRoutes: RouteTable<CompiledRoute>
  readonly upstreams: ReadonlyMap<string, Upstream>
  readonly #aliases: ReadonlyMap<string, readonly AliasStage[]>
  /** aliases that catch names by their beginning, the longest first */
  readonly #stems: readonly (readonly [stem: string, stages: readonly AliasStage[]])[]
  readonly #plugins: RunningPlugins
  #leases = 0
  #retired = false

  /** @throws {PartError} a plugin's `create` threw, or returned no hooks; nothing is left open */
  constructor ({ config, generation, plugins, shipped, endpoints, services: { store, ...services } }: Parts) {
    this.ledger = store
    this.bodies = services.bodies
    this.generation = generation
    this.config = config
    this.services = services
    this.models = new Map(config.models.map((model) => [model.id, model]))
    const isWhole = ({ id }: AliasConfig): boolean => stemOf(id) === undefined
    this.#aliases = new Map(config.aliases.filter(isWhole).map((alias) => [alias.id, this.#stagesOf(alias)]))
    this.#stems = config.aliases.filter((alias) => !isWhole(alias))
      .map((alias) => [stemOf(alias.id)!, this.#stagesOf(alias)] as const)
      .toSorted(([a], [b]) => b.length - a.length)
    const upstreams = new Map<string, Upstream>()
    this.upstreams = upstreams
    this.#plugins = new RunningPlugins(plugins, config, services, shipped?.values())
    try {
      this.routes = new RouteTable(this.#compileRoutes(this.#apiRoutes(), endpoints))
      this.publicRoutes = new RouteTable(this.#compileRoutes(
        config.server.public.docs ? [...publicRoutes, ...docsRoutes] : publicRoutes, endpoints))
      for (const [name, upstream] of Object.entries(config.upstreams)) {
        upstreams.set(name, services.upstreams.open(name, upstream))
      }
    } catch (thrown) {
      void this.#close()
      throw thrown
    }
  }

  modelOf (name: string, kind?: ModelKind): Model | undefined {
    const model = this.models.get(name)
    if (model !== undefined) return model
    const stages = this.#aliases.get(name) ?? this.#catching(name)
    if (stages !== undefined) return stageAt(stages, this.services.now()).model
    const { default_model: usual } = this.config
    return usual !== undefined && kind === 'text' && name.length <= LONGEST_CAUGHT ? this.models.get(usual) : undefined
  }

  isAlias (name: string): boolean {
    return this.#aliases.has(name)
  }

  #catching (name: string): readonly AliasStage[] | undefined {
    if (name.length > LONGEST_CAUGHT) return undefined
    return this.#stems.find(([stem]) => name.startsWith(stem))?.[1]
  }

  /** Leases the snapshot for one request; `release` exactly once. */
  lease (): this {
    this.#leases++
    return this
  }

  release (): void {
    this.#leases--
    if (this.#retired && this.#leases === 0) void this.#close()
  }

  /** Retires the snapshot after another took over: it closes when its last request ends. */
  retire (): void {
    this.#retired = true
    if (this.#leases === 0) void this.#close()
  }

  async #close (): Promise<void> {
    // first, so that no connection stays open because of a plugin whose `close` hangs
    for (const upstream of this.upstreams.values()) this.services.upstreams.close(upstream)
    await this.#plugins.close()
  }

  #stagesOf ({ model }: AliasConfig): AliasStage[] {
    const list: readonly (string | StagedModel)[] = typeof model === 'string' ? [model] : model
    return stagesOf(list).map(({ from, written }) => ({
      from,
      model: this.models.get(typeof written === 'string' ? written : written.model)!
    }))
  }

  /** The configured routes, and below them the shipped ones that are not replaced and whose plugins are configured. */
  #apiRoutes (): RouteConfig[] {
    const own = this.config.routes
    const claimed = new Set(own.map(({ match }) => match))
    const plugins = this.#plugins.list.map(({ plugin }) => plugin)
    const names = endpointsWith(plugins)
    const isServed = ({ serve }: RouteConfig): boolean => {
      const { needs } = names[serve!]!
      return needs === undefined || this.#plugins.list.some(({ plugin }) => plugin.provides?.includes(needs) === true)
    }
    return [...own.filter(({ serve }) => serve !== 'none'),
      ...shippedRoutesWith(plugins).filter((route) => !claimed.has(route.match) && isServed(route))]
  }

  #compileRoutes (routes: readonly RouteConfig[], endpoints: Readonly<Record<string, Endpoint>>): CompiledRoute[] {
    const sorted = new Map<string, ReturnType<typeof sortHooks>>()
    return routes.map((route) => {
      const [methods, path] = route.match.split(' ') as [string, string]
      const endpoint: Endpoint = route.forward === undefined
        ? endpoints[route.serve!]!
        : { kind: 'forward', upstream: route.forward,
          price: route.price === undefined || route.price === 'free' ? 0n : parsePrice(route.price.usd),
          websocket: route.websocket === true }
      const style = (endpoint.kind === 'forward' ? undefined : endpoint.style) ?? styleOf(path)
      const chosen = this.#plugins.list.filter(({ name, plugin: { always, translates } }) =>
        translates === undefined
          ? always === true || (route.pipeline?.includes(name) ?? true)
          : isTranslated(endpoint, style, translates)
      )
      const names = chosen.map(({ name }) => name)
      // Routes with the same plugins share their arrays of hooks.
      const hooks = sorted.get(names.join()) ?? sortHooks(chosen)
      sorted.set(names.join(), hooks)
      const data: Route = {
        name: route.match,
        methods: methods.split(','),
        path,
        style,
        endpoint,
        isInMaintenance: route.maintenance === true ||
          (route.forward !== undefined && this.config.upstreams[route.forward]?.maintenance === true),
        plugins: names
      }
      return {
        ...data,
        endpoint,
        readsInThreads: readsBody(endpoint) && chosen.every(({ plugin }) => plugin.readsInSteps === true),
        hooks,
        keyChains: hooks.perKey.length === 0 ? undefined : new KeyChains(hooks, data)
      }
    })
  }
}

/** Whether bodies of a style come to a route, at which another may be usual. */
function isTranslated (endpoint: Endpoint, usual: Style, style: Style): boolean {
  if (style === usual) return endpoint.kind === 'model' || (endpoint.kind === 'local' && endpoint.reads === 'body')
  return style.alsoAt === usual && endpoint.kind === 'model' && endpoint.modality === 'text'
}
