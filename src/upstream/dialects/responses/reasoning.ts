// The vendor's reasoning between two turns: nothing is stored there, so the client keeps what it has encrypted, sealed
// in the signature of a thinking block.
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { textIn } from '../json.ts'
import { openThought, sealThought } from '../thoughts.ts'

/** @param item that is done: before, its encrypted content is a placeholder @returns '': there is nothing to keep */
export function signatureOf (item: Json, exchange: Exchange, upstream: Upstream): string {
  const { id, encrypted_content: encrypted } = item
  if (textIn(encrypted) === '') return ''
  const kept = { ...(textIn(id) !== '' && { id }), encrypted_content: encrypted }
  return sealThought(exchange, upstream, JSON.stringify(kept))
}

/** The item for the vendor that has thought it. Undefined: another one did, or that can't be told. */
export function reasoningItem (signature: unknown, exchange: Exchange, upstream: Upstream): Json | undefined {
  const original = openThought(exchange, upstream, textIn(signature))
  if (original === undefined) return undefined
  const { id, encrypted_content: encrypted } = JSON.parse(original) as Json
  return { type: 'reasoning', ...(id !== undefined && { id }), summary: [], encrypted_content: encrypted }
}

/** What a client is shown of it: its summary, or the reasoning itself, as far as it came. */
export function shownIn ({ summary, content }: Json): string {
  const parts = textsIn(summary)
  return (parts.length > 0 ? parts : textsIn(content)).join(BETWEEN)
}

/** Between two parts of a summary. */
export const BETWEEN = '\n\n'

function textsIn (parts: unknown): readonly string[] {
  if (!Array.isArray(parts)) return []
  return parts.map((part: unknown) => isRecord(part) ? textIn(part.text) : '').filter((text) => text !== '')
}
