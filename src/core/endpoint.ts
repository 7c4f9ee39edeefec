// The endpoint of a route, which answers when its plugins let the exchange through; and the compiled route.
import type { Awaitable } from '../base/awaitable.ts'
import type { GatewayError } from '../errors.ts'
import type { BodyThreads } from './body-step.ts'
import type { Exchange } from './exchange.ts'
import type { Attempt } from './facts.ts'
import type { Hooked } from './hooks.ts'
import type { Ledger } from './ledger.ts'
import type { MadeImages } from './made-images.ts'
import type { BytesReply, JsonReply, Reply } from './reply.ts'
import type { EndpointKind } from './route.ts'
import type { RouteTable } from './router.ts'
import type { Snapshot } from './snapshot.ts'
import type { Upstream } from './upstream.ts'

type Kind<K extends EndpointKind['kind']> = Extract<EndpointKind, { readonly kind: K }>

export type Endpoint = ModelEndpoint | LocalEndpoint | DownloadEndpoint | Kind<'forward'>

export type ModelEndpoint = Kind<'model'> & {
  /**
   * Called before an upstream is asked. @throws {GatewayError} the upstream's answer could not be given to the client
   */
  prepare? (exchange: Exchange): void
  /** Makes the answer of the upstream's images, within the attempt and its time. Undefined: there are none. */
  deliver? (made: MadeImages, exchange: Exchange, attempt: Attempt, upstream: Upstream): Promise<unknown>
  /** Makes the client's answer from the upstream's. */
  accept? (exchange: Exchange, reply: JsonReply, attempt: Attempt): Awaitable<JsonReply>
}

export type LocalEndpoint = Kind<'local'> & {
  answer (exchange: Routed): Awaitable<Reply>
}

export type DownloadEndpoint = Kind<'download'> & {
  locate (exchange: Exchange): Awaitable<Download>
}

/** The gateway's own request to an upstream, in the place of the client's. */
export interface OwnRequest {
  /** with the upstream's base path and the query */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** the id of the credential to be used */
  readonly credential?: string
  /** where the file is if the upstream knows no such path */
  readonly link?: string
}

export interface Download {
  /** name in `upstreams:` */
  readonly upstream: string
  readonly own: OwnRequest
  /** the client's response, from the upstream's */
  reply (bytes: BytesReply): BytesReply
  /** the client's error, when the upstream fails */
  refuse (error: GatewayError): GatewayError
}

export interface CompiledRoute extends Hooked {
  readonly endpoint: Endpoint
  /**
   * whether a thread may read its large bodies, and its large answers of text: everything that reads them is a step
   * (body-step.ts, reply-step.ts)
   */
  readonly readsInThreads: boolean
}

/** A snapshot for the rooms that begin exchanges. */
export interface LeasedSnapshot extends Snapshot {
  readonly routes: RouteTable<CompiledRoute>
  /** of the public listener */
  readonly publicRoutes: RouteTable<CompiledRoute>
  /** of real exchanges */
  readonly ledger: Ledger
  /** undefined: all bodies and answers are read on the event loop */
  readonly bodies: BodyThreads | undefined
  /** Leases the snapshot for one request; `release` exactly once. */
  lease (): this
  release (): void
}

/** An exchange as the pipeline has it, with its compiled route. Plugins see the data of the route only. */
export type Routed = Exchange<CompiledRoute, LeasedSnapshot>
