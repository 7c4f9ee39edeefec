// The places of a chat completion, and of a chunk, in which vendors report usage.
import { fieldOf, type Json } from '../../../base/json.ts'
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { writesLong } from '../cache-marks.ts'
import { CHAT, inclusiveUsage } from '../inclusive-usage.ts'

/** Undefined: nothing was reported. In a stream every chunk but one may have `null`. */
export function usageOf (
  chunk: unknown, choice: Json | undefined, exchange: Exchange, upstream: Upstream
): Json | undefined {
  const reported = reportedIn(chunk, choice, upstream)
  const written = reported?.cache_creation_input_tokens
  return reported !== undefined && typeof written === 'number' && written > 0 &&
      upstream.config.chat?.cache_control === true && writesLong(exchange)
    ? { ...reported, cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: written } }
    : reported
}

function reportedIn (chunk: unknown, choice: Json | undefined, { config: { chat } }: Upstream): Json | undefined {
  const thoughts = chat?.reasoning_tokens
  return inclusiveUsage(fieldOf(chunk, 'usage'), CHAT, thoughts) ?? inclusiveUsage(choice?.usage, CHAT, thoughts) ??
    inclusiveUsage(fieldOf(fieldOf(chunk, 'x_groq'), 'usage'), CHAT, thoughts)
}
