// White space at the end of an answer that the model is to go on with: this vendor refuses it, others do not.
import { isRecord } from '../../../base/json.ts'

/** @returns the same value, unless the last turn is an answer whose text ends in white space */
export function withoutEndSpace (turns: unknown): unknown {
  const last: unknown = Array.isArray(turns) ? turns.at(-1) : undefined
  if (!isRecord(last) || last.role !== 'assistant') return turns
  const content = trimmed(last.content)
  return content === last.content ? turns : [...(turns as readonly unknown[]).slice(0, -1), { ...last, content }]
}

function trimmed (content: unknown): unknown {
  if (typeof content === 'string') return content.trimEnd()
  const block: unknown = Array.isArray(content) ? content.at(-1) : undefined
  if (!isRecord(block) || block.type !== 'text') return content
  const text = trimmed(block.text)
  return text === block.text ? content : [...(content as readonly unknown[]).slice(0, -1), { ...block, text }]
}
