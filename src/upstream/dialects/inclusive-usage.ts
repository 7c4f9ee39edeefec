// Reads a usage whose input includes what came from a cache, and translates it into the disjoint classes of messages
// style (src/README.md#usage-classes). OpenAI defined it (chat completions and responses); its imitators leave counts
// out, name them differently, or count beside each other what OpenAI counts inside. Sums decide which.
import { isCount, statedOutput } from '../../money/usage.ts'
import { isRecord, type Json } from '../../base/json.ts'

/** What OpenAI calls the counts in one of its APIs. */
interface CountNames {
  readonly input: string
  readonly output: string
}

export const CHAT: CountNames = { input: 'prompt_tokens', output: 'completion_tokens' }
export const RESPONSES: CountNames = { input: 'input_tokens', output: 'output_tokens' }

/** Where a vendor counts thoughts: within its output, or beside it. Undefined: its numbers decide. */
export type Thoughts = 'inside' | 'apart' | undefined

/** Of tokens read from a cache: at the top of a report, and in the details of its input. */
const READ = ['prompt_cache_hit_tokens', 'cached_tokens', 'cache_read_input_tokens'] as const
const READ_DETAILS = ['cached_tokens'] as const
/** Of tokens written to a cache. */
const WRITTEN = ['cache_creation_input_tokens'] as const
const WRITTEN_DETAILS = ['cache_write_tokens', 'cache_creation_tokens', 'cached_creation_tokens',
  'cache_creation_input_tokens'] as const

/** @returns usage of messages style, in tokens; undefined: nothing was reported, or a count is no number of tokens */
export function inclusiveUsage (reported: unknown, names: CountNames, thoughts?: Thoughts): Json | undefined {
  if (!isRecord(reported)) return undefined
  const total = isCount(reported.total_tokens) ? reported.total_tokens : undefined
  const input = countOr(reported[names.input], total, reported[names.output])
  const output = countOr(reported[names.output], total, reported[names.input])
  if (input === undefined || output === undefined) return undefined
  const inputDetails = detailsOf(reported, names.input)
  const thought = firstCount(detailsOf(reported, names.output), ['reasoning_tokens'])
  const read = firstCount(inputDetails, READ_DETAILS) ?? firstCount(reported, READ) ?? 0
  const written = firstCount(inputDetails, WRITTEN_DETAILS) ?? firstCount(reported, WRITTEN) ?? 0
  const cached = read + written
  const excess = total === undefined ? 0 : Math.max(0, total - input - output)
  // More than the input can't be a part of it, and what the total has in addition to both is none.
  const isBeside = cached > 0 && (read > input || written > input || excess === cached)
  // What was written may be what was read: a vendor counts the same tokens in both then.
  const inside = isBeside ? 0 : cached > input ? Math.max(read, written) : cached
  const isThoughtApart = thought !== undefined && thought > 0 && thoughts !== 'inside' &&
    (thoughts === 'apart' || thought > output || excess === thought)
  const explained = (isBeside && excess === cached) || excess === thought ? excess : isThoughtApart ? thought : 0
  // What nothing else explains is output: Google counts thoughts in the total alone. Mistral does so with audio, which
  // is input.
  const unexplained = Math.max(0, excess - explained)
  const isAudio = unexplained > 0 && (firstCount(inputDetails, ['audio_tokens']) ?? 0) >= unexplained
  const more = (isThoughtApart ? thought : 0) + (isAudio ? 0 : unexplained)
  return {
    input_tokens: input - inside + (isAudio ? unexplained : 0),
    cache_creation_input_tokens: written,
    cache_read_input_tokens: read,
    output_tokens: output + more,
    ...(more > 0 && { [statedOutput]: output }),
    ...(thought !== undefined && { output_tokens_details: { thinking_tokens: thought } })
  }
}

/**
 * A count that was left out is what the total has beyond the other one: encoders of protobuf leave zeros out. Without a
 * total it is not known, and what is no count makes the report useless.
 */
function countOr (count: unknown, total: number | undefined, other: unknown): number | undefined {
  if (isCount(count)) return count
  const isLeftOut = count === undefined || count === null
  if (!isLeftOut || total === undefined || !isCount(other)) return undefined
  return Math.max(0, total - other)
}

/** OpenAI's name of the details is that of the count, and `_details`. */
function detailsOf (reported: Json, name: string): Json {
  const details = reported[`${name}_details`]
  return isRecord(details) ? details : {}
}

function firstCount (of: Json, names: readonly string[]): number | undefined {
  for (const name of names) {
    const count = of[name]
    if (isCount(count)) return count
  }
  return undefined
}
