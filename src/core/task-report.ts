// The state of a task that an upstream reports after the request was answered, in the client's terms.
import { GatewayError } from '../errors.ts'
import { errorIn } from './vendor-error.ts'

/** The values that SDKs know: they give up on any other. */
export type VideoStatus = 'queued' | 'in_progress' | 'completed' | 'failed'

/** A report of an upstream about a task. `unheard`: nothing known was said, treated like no report. */
export interface TaskReport {
  readonly status: VideoStatus | 'unheard'
  readonly progress: number
  /** milliseconds since the epoch */
  readonly expires?: number
  /** the length of the delivered video; absent: the upstream does not say */
  readonly seconds?: number
  /** the link of the file */
  readonly link?: string
  /** the upstream's word for the status, if it is unknown */
  readonly word?: string
  readonly error?: { readonly code: string, readonly message: string }
}

/** Words for a video that was withheld. For tasks only: in an error about text they may mean something else. */
const WITHHELD = /moderat|content[ _-]?(?:policy|filter)|safety|sensitive|inspection|nsfw|blocked/i

/** The part of an upstream's error that a client can act on; the upstream's message is not passed on. */
export function errorOf (said: unknown): { readonly code: string, readonly message: string } {
  const isPolicy = errorIn({ error: said }).means === 'policy' || WITHHELD.test(JSON.stringify(said) ?? '')
  const row = isPolicy ? 'content_policy_violation' : 'server_error'
  const sentence = row === 'server_error'
    ? 'The provider could not make this video. Nothing was charged. Create it again.'
    : new GatewayError(row).message
  return { code: row, message: sentence }
}
