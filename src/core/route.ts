// A route as all rooms know it: data. The code that runs on it is in endpoint.ts and hooks.ts, for the pipeline alone.
import type { ModelKind } from '../config/config.ts'
import type { Price } from '../money/nanos.ts'
import type { Style } from './style.ts'

/** The kinds of endpoints, by the bodies that they read and write. */
export type EndpointKind =
  /** A JSON body in the client's style that the pipeline reads and an upstream answers */
  | {
    readonly kind: 'model'
    readonly style: Style
    /** the kind of its models */
    readonly modality: ModelKind
    /** it takes multipart/form-data too */
    readonly form?: true
    /** its answer is a summary of the conversation, which stands for that in later requests */
    readonly compacts?: true
    /** of the body: the name of a file in config/requests/ */
    readonly schema?: string
    /** one line, for the description of the API */
    readonly summary?: string
  }
  /** answered by the gateway itself, in the path's style if it names none */
  | {
    readonly kind: 'local'
    readonly style?: Style
    /** media type of its answer; absent: JSON */
    readonly type?: string
    /** reads a JSON body that names a model, as above, or any JSON object */
    readonly reads?: 'body' | 'json'
    /** of the body: the name of a file in config/requests/ */
    readonly schema?: string
    /** one line, for the description of the API */
    readonly summary?: string
  }
  /** bytes of an upstream that the endpoint chooses, unread */
  | { readonly kind: 'download', readonly style?: Style, readonly summary?: string }
  /** bytes to one upstream, unread; `websocket`: upgrades too */
  | { readonly kind: 'forward', readonly upstream: string, readonly price: Price, readonly websocket?: boolean }

export interface Route {
  /** its `match`, such as "POST /v1/messages": the label in log and metrics */
  readonly name: string
  readonly methods: readonly string[]
  /** "/v1/x", or "/v1/x/*" for everything below it */
  readonly path: string
  /** the style of its clients */
  readonly style: Style
  readonly endpoint: EndpointKind
  /** answers 503: the route itself, or the upstream that it forwards to, is in maintenance */
  readonly isInMaintenance: boolean
  /** the plugins of this route, in list order */
  readonly plugins: readonly string[]
}

/** Whether its requests have a JSON body that the pipeline reads. */
export function readsBody (endpoint: EndpointKind): boolean {
  return endpoint.kind === 'model' || (endpoint.kind === 'local' && endpoint.reads !== undefined)
}

/**
 * What its bodies ask models for: text, too, where only tokens are counted. Undefined: its bodies are nothing for a
 * model, or are not read.
 */
export function modalityOfBodies (endpoint: EndpointKind): ModelKind | undefined {
  if (endpoint.kind === 'model') return endpoint.modality
  return endpoint.kind === 'local' && endpoint.reads === 'body' ? 'text' : undefined
}
