// The end of an answer in chat style: finish reason and usage (src/README.md#chat-answer).
import { FINISH_REASONS } from '../../src/protocols/chat.ts'
import { type ReportedUsage, reportedTokens } from '../../src/money/usage.ts'
import type { Json } from '../../src/base/json.ts'

/** @param hasCalls whether the client gets a call: the tool for structured outputs is none */
export function finishReason (stopReason: unknown, hasCalls: boolean): string {
  const reason = FINISH_REASONS.get(stopReason) ?? 'stop'
  return reason === 'tool_calls' && !hasCalls ? 'stop' : reason
}

/**
 * In chat style the prompt's tokens INCLUDE cache reads and writes, in messages style they do not
 * (src/README.md#usage-classes).
 */
export function chatUsage (reported: ReportedUsage, thinkingTokens: number | undefined): Json {
  const { input = 0, cache_read: read = 0, output: completion = 0 } = reported
  const prompt = reportedTokens(reported)
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: read, cache_write_tokens: prompt - input - read },
    ...(thinkingTokens !== undefined && { completion_tokens_details: { reasoning_tokens: thinkingTokens } })
  }
}
