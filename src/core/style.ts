// What an API style is: all that depends on what a client speaks. The objects are in protocols/, a file each; the core
// and the plugins ask them, and compare no names.
import type { GatewayError } from '../errors.ts'
import type { WindowState } from '../store/store.ts'
import type { SseEvent } from './sse.ts'

export interface Style {
  readonly name: string
  /** the endpoint of its text models */
  readonly endpoint: StyleEndpoint
  /** Whether errors at this path have its shape, be there a route or not (src/README.md#error-shapes). */
  matches (path: string): boolean
  /** @throws {GatewayError} invalid_request: a header that belongs to the style is not what it has to be */
  checkHead? (headers: Readonly<Record<string, string | readonly string[] | undefined>>): void
  /** keeps a stream open while there is nothing to say */
  readonly ping: Buffer
  /** The body of an error. Pure, and cannot throw. */
  errorBody (error: GatewayError, told: ToldError): unknown
  /** The events that end a stream with an error. @param body its body, as JSON */
  errorEvents (body: string): readonly SseEvent[]
  /** What the vendor's own clients read of a rate limit. @param now milliseconds since the epoch */
  rateHeaders (window: WindowState, now: number): Readonly<Record<string, string>>
  /** the fields of a request that limit its output: the first that is given counts, the last is the one to name */
  readonly outputLimits: readonly [...(keyof OutputLimits)[], 'max_tokens']
  /** Its streams end with what they cost, whether or not the client has asked for it. */
  readonly tellsCost: boolean
  /** Puts right in place what this style's clients may write otherwise than its vendor reads it. */
  mend? (body: Readonly<Record<string, unknown>>): void
}

export interface StyleEndpoint {
  /** its name in gateway.yaml */
  readonly serve: string
  /** where it is served if gateway.yaml says nothing else */
  readonly match: string
  /** of its bodies: the name of a file in config/requests/ */
  readonly schema?: string
}

export interface OutputLimits {
  readonly max_tokens?: number | null
  readonly max_completion_tokens?: number | null
}

export interface ToldError {
  readonly message: string
  /** what the request cost, in decimal US dollars */
  readonly charged: string
  readonly requestId: string
}
