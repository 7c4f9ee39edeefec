// The places of a chat completion, and of a chunk, in which vendors report usage.
import { fieldOf, type Json } from '../../../base/json.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { CHAT, inclusiveUsage } from '../inclusive-usage.ts'

/** Undefined: nothing was reported. In a stream every chunk but one may have `null`. */
export function usageOf (chunk: unknown, choice: Json | undefined, { config: { chat } }: Upstream): Json | undefined {
  const thoughts = chat?.reasoning_tokens
  return inclusiveUsage(fieldOf(chunk, 'usage'), CHAT, thoughts) ?? inclusiveUsage(choice?.usage, CHAT, thoughts) ??
    inclusiveUsage(fieldOf(fieldOf(chunk, 'x_groq'), 'usage'), CHAT, thoughts)
}
