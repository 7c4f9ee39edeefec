// Thoughts that a client echoes in sealed items. What is not ours is left out, because a vendor would refuse it
// (src/README.md#signatures); never refused, because one such item would end a conversation for good. Vendors of chat
// style sign nothing, and want their thoughts back: those of no signature go on, and each attempt takes its own.
import type { Block } from '../../src/translation/blocks.ts'
import { isRecord, parseOr } from '../../src/base/json.ts'

/** @returns what was sealed for this purpose and this account; undefined: it is not ours */
export type Open = (purpose: 'reasoning' | 'compaction', sealed: string) => string | undefined

export function readThoughts (sealed: unknown, open: Open): Block[] {
  const opened = typeof sealed === 'string' ? open('reasoning', sealed) : undefined
  const blocks: unknown = opened === undefined ? undefined : parseOr(opened)
  if (!Array.isArray(blocks)) return []
  return blocks.flatMap((block: unknown): Block[] => {
    if (!isRecord(block)) return []
    const { type, thinking, signature, data } = block
    if (type === 'redacted_thinking') return typeof data === 'string' && data !== '' ? [{ type, data }] : []
    return type === 'thinking' && typeof thinking === 'string' && typeof signature === 'string'
      ? [{ type, thinking, signature }]
      : []
  })
}
