// Translates usage of the Responses API into the disjoint classes of messages style (src/README.md#usage-classes): its
// input holds what came from a cache and what went into one.
import { isRecord, type Json } from '../../../base/json.ts'
import { isCount } from '../../../money/usage.ts'

/** Undefined: nothing was reported. */
export function usageOf (reported: unknown): Json | undefined {
  if (!isRecord(reported)) return undefined
  const { input_tokens: input, output_tokens: output } = reported
  if (!isCount(input) || !isCount(output)) return undefined
  const { cached_tokens: cached, cache_write_tokens: kept } = recordIn(reported.input_tokens_details)
  const { reasoning_tokens: thought } = recordIn(reported.output_tokens_details)
  const read = Math.min(input, isCount(cached) ? cached : 0)
  const written = Math.min(input - read, isCount(kept) ? kept : 0)
  return {
    input_tokens: input - read - written,
    cache_creation_input_tokens: written,
    cache_read_input_tokens: read,
    output_tokens: output,
    ...(isCount(thought) && { output_tokens_details: { thinking_tokens: thought } })
  }
}

function recordIn (value: unknown): Json {
  return isRecord(value) ? value : {}
}
