// The interface of an API style: all that depends on the client's protocol. The styles are in protocols/, a file each;
// the core and the plugins call them, and compare no names.
import type { GatewayError } from '../errors.ts'
import type { WindowState } from '../store/store.ts'
import type { SseEvent } from './sse.ts'

export interface Style {
  readonly name: string
  /** the endpoint of its text models */
  readonly endpoint: StyleEndpoint
  /** Whether errors at this path have its shape, be there a route or not (src/README.md#error-shapes). */
  matches (path: string): boolean
  /** @throws {GatewayError} invalid_request: a header of the style has an invalid value */
  checkHead? (headers: Readonly<Record<string, string | readonly string[] | undefined>>): void
  /** the event that keeps a silent stream open */
  readonly ping: string
  /** The body of an error. Pure, and cannot throw. */
  errorBody (error: GatewayError, told: ToldError): unknown
  /** The events that end a stream with an error. @param body its body, as JSON */
  errorEvents (body: string): readonly SseEvent[]
  /** The vendor's rate limit headers, as its clients read them. @param now milliseconds since the epoch */
  addRateHeaders (headers: Record<string, string>, window: WindowState, now: number): void
  /** the field of a request that holds its conversation: a list of turns, or the text of one */
  readonly conversation: 'messages' | 'input'
  /** the style at whose address for text its bodies are taken too, and answered in that style */
  readonly alsoAt?: Style
  /** the fields of a request that limit its output: the first that is given counts */
  readonly outputLimits: readonly (keyof OutputLimits)[]
  /** true: its streams end with their cost, whether or not the client has asked for it */
  readonly tellsCost: boolean
  /** true: its clients ask for a WebSocket first, and go on with plain requests where that is refused with 426 */
  readonly refusesSockets?: true
  /** Normalizes a body in place, where clients of this style may differ from what the vendor accepts. */
  mend? (body: Readonly<Record<string, unknown>>): void
}

export interface StyleEndpoint {
  /** its name in gateway.yaml */
  readonly serve: string
  /** the default route */
  readonly match: string
  /** of its bodies: the name of a file in config/requests/ */
  readonly schema?: string
}

export interface OutputLimits {
  readonly max_tokens?: number | null
  readonly max_completion_tokens?: number | null
  readonly max_output_tokens?: number | null
}

export interface ToldError {
  readonly message: string
  /** the charge, in decimal US dollars */
  readonly charged: string
  readonly requestId: string
}
