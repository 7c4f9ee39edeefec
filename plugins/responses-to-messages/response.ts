// The response object around its items: as JSON, and in the events that begin and end a stream.
import { type ReportedUsage, reportedInput } from '../../src/money/usage.ts'
import type { Json } from '../../src/base/json.ts'

/** The fields that all answers to one request share. */
export interface Frame {
  /** `resp_`, and what is its own */
  readonly id: string
  /** seconds */
  readonly created: number
  /** the client's name of it */
  readonly model: unknown
  /** milliseconds since the epoch */
  readonly now: () => number
}

/** How far a response is. */
export type State =
  | { readonly status: 'in_progress' }
  | { readonly status: 'completed', readonly usage: Json }
  | { readonly status: 'incomplete', readonly reason: string, readonly usage: Json }
  | { readonly status: 'failed', readonly error: Json }

/** All of a response but its `output`. @param echo the fields that it repeats of its request */
export function responseOf ({ id, created, model, now }: Frame, echo: Json, state: State): Json {
  return {
    ...echo,
    id,
    object: 'response',
    created_at: created,
    completed_at: state.status === 'completed' ? Math.floor(now() / 1000) : null,
    status: state.status,
    error: state.status === 'failed' ? state.error : null,
    incomplete_details: state.status === 'incomplete' ? { reason: state.reason } : null,
    model,
    usage: 'usage' in state ? state.usage : null
  }
}

/**
 * `input_tokens` INCLUDE cache reads and writes, which they do not in messages style (src/README.md#usage-classes).
 * All numbers are there: Codex needs each.
 */
export function responseUsage (reported: ReportedUsage, thinkingTokens: number): Json {
  const { input: fresh, cache_read: read, cache_write_5m: short, cache_write_1h: long } = reportedInput(reported)
  const input = fresh + read + short + long
  const output = reported.output ?? 0
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: read, cache_write_tokens: short + long },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: thinkingTokens },
    total_tokens: input + output
  }
}
