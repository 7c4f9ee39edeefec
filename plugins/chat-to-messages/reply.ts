// Translates a message into a chat completion (src/README.md#chat-answer).
import { chatCall, chatFields, chatTop } from '../../src/protocols/chat.ts'
import { readUsage } from '../../src/money/usage.ts'
import { isRecord, type Json } from '../../src/base/json.ts'
import { costOf } from '../../src/translation/cost.ts'
import { customText } from '../../src/translation/custom-input.ts'
import { thinkingTokens } from '../../src/translation/thinking.ts'
import { type AnswerShape, isAnswer } from './chat.ts'
import { chatUsage, finishReason } from './ending.ts'

/** The fields that all answers to one request share. */
export interface Frame {
  readonly id: string
  /** seconds */
  readonly created: number
  /** the client's name of it */
  readonly model: unknown
}

/** @param charged what it cost, in decimal US dollars, if that is known */
export function toCompletion (
  message: Json,
  { id, created, model }: Frame,
  asked: AnswerShape,
  charged: unknown
): Json {
  const blocks: readonly unknown[] = Array.isArray(message.content) ? message.content : []
  let calls: Json[] | undefined
  let text: string | undefined
  let thoughts: string | undefined
  let answer: string | undefined
  for (const block of blocks) {
    if (!isRecord(block)) continue
    if (block.type === 'text' && typeof block.text === 'string') { text = (text ?? '') + block.text }
    else if (block.type === 'thinking' && typeof block.thinking === 'string') {
      thoughts = (thoughts ?? '') + block.thinking
    } else if (block.type !== 'tool_use') { continue }
    else if (isAnswer(block.name, asked)) { answer ??= JSON.stringify(block.input) }
    else { (calls ??= []).push(toCall(block, asked)) }
  }
  const words = asked.hasSchema && calls !== undefined ? null : text
  const own = ownOf(message)
  const content = answer ?? words ?? (calls === undefined && own?.refusal === undefined ? '' : null)
  const said: Record<string, unknown> = { role: 'assistant', content, refusal: null }
  if (thoughts !== undefined) said.reasoning_content = thoughts
  Object.assign(said, own)
  if (calls !== undefined) said.tool_calls = calls
  return {
    id,
    object: 'chat.completion',
    created,
    model,
    // OpenRouter's SDK rejects a completion without it. No vendor's: the fingerprint is of its deployment.
    system_fingerprint: null,
    choices: [{ index: 0, message: said, logprobs: null,
      finish_reason: finishReason(message.stop_reason, calls !== undefined) }],
    usage: Object.assign(chatUsage(readUsage(message.usage), thinkingTokens(message.usage)), costOf(charged)),
    ...(message as { readonly [chatTop]?: Json })[chatTop]
  }
}

/** An upstream's fields of chat style that messages style does not have. */
function ownOf (message: Json): Json | undefined {
  return (message as { readonly [chatFields]?: Json })[chatFields]
}

function toCall (block: Json, { customTools }: AnswerShape): Json {
  const { id, name, input } = block
  const own = (block as { readonly [chatCall]?: Json })[chatCall]
  if (!customTools.has(name as string)) {
    return { id, type: 'function', function: { name, arguments: JSON.stringify(input ?? {}) }, ...own }
  }
  return { id, type: 'custom', custom: { name, input: customText(input) }, ...own }
}
