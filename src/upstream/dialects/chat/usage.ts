// Translates usage of chat style into the disjoint classes of messages style: a token of a prompt is counted once,
// whatever cache it was read from (src/README.md#usage-classes).
import { guessedOutput } from '../../../money/usage.ts'
import { isRecord, type Json } from '../../../base/json.ts'

/** Undefined: nothing was reported. In a stream every chunk but one may have `null`. */
export function usageOf (chunk: Json, choice: unknown): Json | undefined {
  return toUsage(chunk.usage) ?? toUsage(isRecord(choice) ? choice.usage : undefined) ??
    toUsage(isRecord(chunk.x_groq) ? chunk.x_groq.usage : undefined)
}

function toUsage (reported: unknown): Json | undefined {
  if (!isRecord(reported)) return undefined
  const { prompt_tokens: prompt, completion_tokens: completion, total_tokens: total } = reported
  if (!isCount(prompt) || !isCount(completion)) return undefined
  const details = isRecord(reported.prompt_tokens_details) ? reported.prompt_tokens_details : {}
  const read = Math.min(prompt,
    [details.cached_tokens, reported.prompt_cache_hit_tokens, reported.cached_tokens].find(isCount) ?? 0)
  const written = Math.min(prompt - read, isCount(details.cache_write_tokens) ? details.cache_write_tokens : 0)
  const thought = isRecord(reported.completion_tokens_details)
    ? reported.completion_tokens_details.reasoning_tokens
    : undefined
  // Most vendors count thoughts among the completion; the total shows which do not.
  const isApart = isCount(thought) && thought > 0 && total === prompt + completion + thought
  return {
    input_tokens: prompt - read - written,
    cache_creation_input_tokens: written,
    cache_read_input_tokens: read,
    output_tokens: isApart ? completion + thought : completion,
    ...(isCount(thought) && { output_tokens_details: { thinking_tokens: thought } })
  }
}

function isCount (value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

/** Adds an estimate where there is more output than was reported. @param characters of output so far */
export function withGuessedOutput (usage: Json, characters: number): Json {
  const {
    input_tokens: input,
    cache_creation_input_tokens: written,
    cache_read_input_tokens: read,
    output_tokens: reported
  } = usage
  return {
    input_tokens: input, cache_creation_input_tokens: written, cache_read_input_tokens: read,
    output_tokens: Math.max(reported as number, Math.ceil(characters / 4)), [guessedOutput]: true
  }
}
