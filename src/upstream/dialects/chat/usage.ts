// Finds the usage in what a chat upstream sends.
import { guessedOutput } from '../../../money/usage.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { type CountNames, inclusiveUsage } from '../inclusive-usage.ts'

/** Undefined: nothing was reported. In a stream every chunk but one may have `null`. */
export function usageOf (chunk: Json, choice: unknown): Json | undefined {
  return toUsage(chunk.usage) ?? toUsage(isRecord(choice) ? choice.usage : undefined) ??
    toUsage(isRecord(chunk.x_groq) ? chunk.x_groq.usage : undefined)
}

const NAMES: CountNames = { input: 'prompt_tokens', output: 'completion_tokens' }

function toUsage (reported: unknown): Json | undefined {
  return inclusiveUsage(reported, NAMES)
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
