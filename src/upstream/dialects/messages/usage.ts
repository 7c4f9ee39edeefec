// Completes usage for clients of messages style, with estimates where the vendor has no counts. Charges are not
// computed from those.
import type { Exchange } from '../../../core/exchange.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { guessedInput, guessedOutput, isCount } from '../../../money/usage.ts'
import { charactersOf, guessInput, guessOutput, guessUsage } from '../omissions.ts'

/**
 * @param content of the answer so far
 * @returns the same object where it is complete
 */
export function wholeUsage (usage: unknown, exchange: Exchange, content: readonly Json[]): Json {
  const reported = isRecord(usage) ? usage : {}
  const {
    input_tokens: input,
    output_tokens: output,
    cache_read_input_tokens: read,
    cache_creation_input_tokens: written
  } = reported
  const hasInput = isCount(input) || isCount(read) || isCount(written)
  if (!hasInput && !isCount(output)) return { ...reported, ...guessUsage(exchange, charactersOf(content)) }
  if (isCount(input) && isCount(output)) return reported
  return {
    ...reported,
    // All input was read from a cache, or written to one.
    ...(!isCount(input) &&
      (hasInput ? { input_tokens: 0 } : { input_tokens: guessInput(exchange), [guessedInput]: true })),
    ...(!isCount(output) && { output_tokens: guessOutput(charactersOf(content)), [guessedOutput]: true })
  }
}
