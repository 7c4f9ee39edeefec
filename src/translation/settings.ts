// Settings of a request that every style has: the output's limits, sampling, the user's id.
import type { Model } from '../core/facts.ts'
import { isGiven, type Json } from '../base/json.ts'
import type { Output } from './thinking.ts'

const STANDARD_MAX_TOKENS = 8192
/** The lowest top_p that the vendor accepts while it thinks. */
const LEAST_THINKING_TOP_P = 0.95

/** Asks for JSON where the client has no schema. */
export const JSON_LINE = 'Answer with one JSON object and nothing else: no Markdown, no words around it.'

/** Lines of a system without that one, for a vendor that gets the client's own field. */
export function withoutJsonLine (lines: readonly string[]): readonly string[] {
  return lines.at(-1) === JSON_LINE ? lines.slice(0, -1) : lines
}

/** Limits of the output. @param maxTokens the client's; undefined: it sets none */
export function outputOf ({ default_max_tokens: usual, max_output, context }: Model, maxTokens?: number): Output {
  if (maxTokens !== undefined) return { usual: maxTokens, most: maxTokens }
  return { usual: usual ?? Math.min(max_output ?? STANDARD_MAX_TOKENS, STANDARD_MAX_TOKENS),
    most: max_output ?? context ?? Infinity }
}

/** A vendor's defaults are never sent: some models refuse the fields whatever their value. */
export function addSampling (
  messages: Record<string, unknown>,
  { temperature, top_p: topP, top_k: topK }: Json,
  thinks: boolean
): void {
  if (isGiven(temperature) && !thinks) messages.temperature = temperature
  if (isGiven(topP) && !(thinks && Number(topP) < LEAST_THINKING_TOP_P)) messages.top_p = topP
  if (isGiven(topK) && !thinks) messages.top_k = topK
}

const PHONE = /^\+?[\d\s().-]{7,}$/

/** A user's id that may be sent to the vendor: it wants no e-mail addresses and phone numbers, and has a limit. */
export function opaqueId (id: unknown): string | undefined {
  return typeof id === 'string' && id !== '' && id.length <= 256 && !hasEmail(id) && !PHONE.test(id) ? id : undefined
}

/** Whether a word of it is an e-mail address, or looks like one. */
function hasEmail (text: string): boolean {
  return text.split(/\s/).some((word) => {
    const at = word.indexOf('@', 1)
    return at !== -1 && word.slice(at + 2, -1).includes('.')
  })
}
