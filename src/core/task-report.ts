// What an upstream says of a task that it works on after the request was answered, in the words of clients.
import { GatewayError } from '../errors.ts'

/** SDKs give up on any other. */
export type VideoStatus = 'queued' | 'in_progress' | 'completed' | 'failed'

/** What an upstream says of a task. `unheard`: a word that nobody knows; it is as if nothing had been said. */
export interface TaskReport {
  readonly status: VideoStatus | 'unheard'
  readonly progress: number
  /** milliseconds since the epoch */
  readonly expires?: number
  readonly error?: { readonly code: string, readonly message: string }
}

/** What a client can act on in an error of the upstream; its own words stay here. */
export function errorOf (said: unknown): { readonly code: string, readonly message: string } {
  const { code, message } = (typeof said === 'object' && said !== null ? said : {}) as Readonly<Record<string, unknown>>
  const words = `${String(code)} ${String(message)}`
  const row = /moderation|content[ _-]?policy|safety|blocked/i.test(words) ? 'content_policy_violation' : 'server_error'
  const sentence = row === 'server_error'
    ? 'The provider could not make this video. Nothing was charged. Create it again.'
    : new GatewayError(row).message
  return { code: row, message: sentence }
}
