// Changes of the tools in the middle of a conversation, which the newest models of messages style know: what is left of
// them for an upstream that takes one list of tools.
import { isRecord, type Json } from '../../base/json.ts'

/** Blocks of a system turn that change the tools. */
export function isToolChange (block: unknown): boolean {
  return isRecord(block) && (block.type === 'tool_addition' || block.type === 'tool_removal')
}

/**
 * The tools at the end of the conversation: those of the request, without what was withdrawn, and with what was defined
 * later. The same value where nothing was changed.
 */
export function toolsInForce (
  { tools, messages }: { readonly tools?: unknown, readonly messages?: unknown }
): unknown {
  const changes = changesIn(messages)
  if (changes.length === 0) return tools
  const defined = new Map<unknown, Json>()
  const withdrawn = new Set<unknown>()
  for (const { type, tool } of changes) {
    if (!isRecord(tool)) continue
    const definition = isRecord(tool.definition) ? tool.definition : undefined
    const name = definition?.name ?? tool.name
    if (definition !== undefined) defined.set(name, definition)
    if (type === 'tool_removal') withdrawn.add(name)
    else withdrawn.delete(name)
  }
  const declared: readonly unknown[] = Array.isArray(tools) ? tools : []
  return [...declared.filter((tool) => !isRecord(tool) || !defined.has(tool.name)), ...defined.values()]
    .filter((tool) => !isRecord(tool) || tool.name === undefined || !withdrawn.has(tool.name))
}

/** All changes, in their order. */
export function changesIn (messages: unknown): readonly Json[] {
  const turns: readonly unknown[] = Array.isArray(messages) ? messages : []
  return turns.flatMap((turn) =>
    isRecord(turn) && turn.role === 'system' && Array.isArray(turn.content)
      ? (turn.content as readonly Json[]).filter(isToolChange)
      : [])
}
