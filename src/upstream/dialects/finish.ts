// Why an answer ended: the one reader of vendors' words for that, in all dialects.
import { readUsage, reportedTokens } from '../../money/usage.ts'
import { FINISH_REASONS } from '../../protocols/chat.ts'

/** A stop reason of messages style, or `error`: the answer broke off. */
export type Finish = string

/** The vendors' words by what they mean, besides the stop reasons of messages style, which mean themselves. */
const WORDS: Readonly<Record<string, readonly string[]>> = {
  end_turn: ['stop', 'stopped', 'eos', 'eos_token', 'end', 'endoftext', 'complete', 'completed', 'normal', 'finished'],
  tool_use: ['tool_calls', 'tool_call', 'function_call'],
  max_tokens: ['length', 'max_length', 'model_length', 'max_output_tokens', 'max_completion_tokens', 'max_new_tokens',
    'token_limit'],
  refusal: ['content_filter', 'content_filtered', 'content_policy', 'safety', 'image_safety', 'recitation', 'blocklist',
    'prohibited_content', 'spii', 'sensitive', 'guardrail_intervened', 'error_toxic'],
  error: ['error', 'insufficient_system_resource', 'network_error', 'abort', 'aborted', 'cancelled']
}
const MEANINGS: ReadonlyMap<string, Finish> = new Map([
  ...Array.from(FINISH_REASONS.keys(), (stop) => [stop as string, stop as string] as const),
  ...Object.entries(WORDS).flatMap(([meaning, words]) => words.map((word) => [word, meaning] as const))
])

/**
 * @param unknown what a word means that is not in the table
 * @returns undefined: the vendor says nothing (some encoders write the text "null")
 */
export function readFinish (word: unknown, unknown: Finish = 'end_turn'): Finish | undefined {
  if (word === undefined || word === null || word === '' || word === 'null') return undefined
  if (typeof word !== 'string') return unknown
  // Google writes "STOP", and "content_filter: RECITATION".
  return MEANINGS.get(word) ?? MEANINGS.get(word.slice(0, 64).trim().toLowerCase().split(/[:\s]/, 1)[0]!) ?? unknown
}

/** Of two reasons for one answer, such as those of its choices, the one that a client must know; else the later one. */
export function graver (one: Finish | undefined, other: Finish | undefined): Finish | undefined {
  return other === undefined || gravity(one) > gravity(other) ? one : other
}

function gravity (finish: Finish | undefined): number {
  return finish === 'error' ? 3 : finish === 'refusal' ? 2 : cutsCalls(finish) ? 1 : 0
}

/** Whether an answer that ended so may end in half a call, which no client then runs. */
export function cutsCalls (finish: Finish | undefined): boolean {
  return finish === 'max_tokens' || finish === 'model_context_window_exceeded' || finish === 'refusal'
}

/**
 * The stop reason of an answer: whatever the vendor's, clients run tools only if it is `tool_use`.
 * @param hasContent any content, calls included
 * @param hasUsage the vendor counted any tokens
 * @returns null: there is neither content nor a reason nor usage, so it is no answer (src/README.md#one-request)
 */
export function stopReason (
  finish: Finish | undefined, hasCalls: boolean, hasContent: boolean, hasUsage: boolean
): string | null {
  if (finish === undefined && !hasContent && !hasUsage) return null
  const reason = finish ?? 'end_turn'
  return hasCalls && reason === 'end_turn' ? 'tool_use' : reason
}

/** Whether a vendor counted any tokens. @param usage in messages style */
export function isCounted (usage: unknown): boolean {
  const reported = readUsage(usage)
  return reportedTokens(reported) + (reported.output ?? 0) > 0
}
