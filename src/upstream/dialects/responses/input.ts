// Translates turns into the items of a Responses request. Items have no ids but those of reasoning: the vendor looks
// for whatever has one among what it has stored, and it stores nothing.
import type { Exchange } from '../../../core/exchange.ts'
import type { Attempt } from '../../../core/facts.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { MOST_OPENED } from '../../../translation/thinking.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { SentIds } from '../call-ids.ts'
import { textIn } from '../json.ts'
import { dataUrl, type PartStyle, readPart, readParts, systemLines } from '../parts.ts'
import type { ClientTools } from './client-tools.ts'
import { reasoningItem } from './reasoning.ts'

const PARTS: PartStyle = {
  text: (text) => ({ type: 'input_text', text }),
  image: (url) => ({ type: 'input_image', image_url: url, detail: 'auto' }),
  file: ({ type, title, source }) => ({ type: 'input_file',
    ...(type === 'url' ? { file_url: source.url } : { filename: title, file_data: dataUrl(source) }) })
}

/** @throws {GatewayError} invalid_request, with the path of a part that this API can't be told */
export function inputOf (
  said: unknown,
  exchange: Exchange,
  attempt: Attempt,
  upstream: Upstream,
  tools: ClientTools
): readonly Json[] {
  const messages: readonly unknown[] = Array.isArray(said) ? said : []
  const calls = new Calls(tools, upstream)
  const takesThoughts = attempt.withoutThoughts !== true
  /** ids of reasoning: the vendor refuses one that comes twice */
  const thought = new Set<unknown>()
  let skipped = thoughtsIn(messages) - MOST_OPENED
  const open = (signature: unknown): Json | undefined => {
    const item = takesThoughts && skipped-- <= 0 ? reasoningItem(signature, exchange, upstream) : undefined
    if (item?.id !== undefined && thought.has(item.id)) return undefined
    thought.add(item?.id)
    return item
  }
  return messages.flatMap((message, i) => {
    if (!isRecord(message)) return []
    const path = `messages[${i}].content`
    if (message.role === 'system') return systemItem(systemLines(message.content, path))
    return message.role === 'assistant'
      ? answerItems(message.content, calls, open)
      : questionItems(message.content, path, calls)
  })
}

function thoughtsIn (messages: readonly unknown[]): number {
  let count = 0
  for (const message of messages) {
    if (!isRecord(message) || message.role !== 'assistant' || !Array.isArray(message.content)) continue
    for (const block of message.content) if (isRecord(block) && block.type === 'thinking') count++
  }
  return count
}

/** In its place: a rule that begins to hold in the middle of a conversation does not hold before. */
function systemItem (lines: readonly string[]): readonly Json[] {
  return lines.length === 0 ? [] : [{ type: 'message', role: 'developer', content: lines.join('\n') }]
}

/** The calls of a conversation: an output is of the same kind as its call. */
class Calls {
  readonly #tools: ClientTools
  readonly #ids: SentIds
  readonly #outputs = new Map<string, string>()

  constructor (tools: ClientTools, upstream: Upstream) {
    this.#tools = tools
    this.#ids = new SentIds(upstream)
  }

  question (): void {
    this.#ids.question()
  }

  item ({ id, name, input }: Json): Json {
    const called = this.#ids.call(id, name)
    const item = this.#tools.call(name, called, input)
    this.#outputs.set(called, `${String(item.type)}_output`)
    return item
  }

  output (id: unknown, output: unknown): Json {
    const called = this.#ids.result(id)
    return { type: this.#outputs.get(called) ?? 'function_call_output', call_id: called, output }
  }
}

/** Outputs of calls come first, behind the calls. */
function questionItems (content: unknown, path: string, calls: Calls): readonly Json[] {
  calls.question()
  if (!Array.isArray(content)) return textIn(content) === '' ? [] : [{ type: 'message', role: 'user', content }]
  const outputs: Json[] = []
  const said: Json[] = []
  for (const [i, block] of content.entries()) {
    if (isRecord(block) && block.type === 'tool_result') outputs.push(outputItem(block, `${path}[${i}]`, calls))
    else said.push(...readPart(block, `${path}[${i}]`, PARTS))
  }
  return said.length === 0 ? outputs : [...outputs, { type: 'message', role: 'user', content: said }]
}

function outputItem ({ tool_use_id: id, content, is_error: isError }: Json, path: string, calls: Calls): Json {
  const parts = typeof content === 'string' ? [PARTS.text(content)] : readParts(content, `${path}.content`, PARTS)
  const isText = parts.every(({ type }) => type === 'input_text')
  const failed = isError === true ? 'Error: ' : ''
  return calls.output(id, isText
    ? failed + parts.map(({ text }) => text).join('\n')
    : failed === '' ? parts : [PARTS.text(failed.trim()), ...parts])
}

/**
 * Texts, calls and reasoning in their order. Blocks of tools that ran at a vendor of messages style have no equivalent
 * here; reasoning without anything behind it is refused.
 */
function answerItems (
  content: unknown,
  calls: Calls,
  open: (signature: unknown) => Json | undefined
): readonly Json[] {
  const blocks: readonly unknown[] = Array.isArray(content) ? content : [{ type: 'text', text: content }]
  const items = blocks.flatMap((block): readonly Json[] => {
    if (!isRecord(block)) return []
    const { type, text, signature } = block
    if (type === 'text') return textIn(text) === '' ? [] : [{ type: 'message', role: 'assistant', content: text }]
    if (type === 'tool_use') return [calls.item(block)]
    return type === 'thinking' ? [open(signature)].filter((item) => item !== undefined) : []
  })
  return items.slice(0, items.findLastIndex(({ type }) => type !== 'reasoning') + 1)
}
