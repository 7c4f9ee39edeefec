// Translates a chat body into messages style (src/README.md#chat-request).
import type { Blobs } from '../../src/core/large-strings.ts'
import { chatReasoning } from '../../src/protocols/chat.ts'
import type { Model } from '../../src/core/facts.ts'
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'
import { isBlank } from '../../src/translation/blocks.ts'
import { composeBody } from '../../src/translation/body.ts'
import { invalid } from '../../src/translation/reads.ts'
import { opaqueId, outputOf } from '../../src/translation/settings.ts'
import { TextFiles } from '../../src/translation/text-files.ts'
import { type AskedThinking, thinkingWithin } from '../../src/translation/thinking.ts'
import type { AnswerShape } from './chat.ts'
import { readConversation } from './conversation.ts'
import { readFormat } from './format.ts'
import { readTools } from './tools.ts'

/** @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in messages style */
export function toMessages (
  body: Json,
  stream: boolean,
  model: Model,
  blobs: Blobs
): { readonly body: Json, readonly asked: AnswerShape } {
  const maxTokens = readMaxTokens(body)
  const { system, turns } = readConversation(body, new TextFiles(blobs, model))
  const { tools, choice, custom } = readTools(body)
  const { effort, thinking } = readThinking(body, model, maxTokens)
  const composed = composeBody({
    model: body.model, stream, maxTokens, system, turns, tools, choice, effort, thinking,
    format: readFormat(body.response_format), sampling: body,
    stops: readStop(body.stop), userId: opaqueId(body.safety_identifier) ?? opaqueId(body.user)
  }, model)
  return {
    body: composed.body,
    asked: {
      hasUsageChunk: includesUsage(body),
      hasSchema: isRecord(body.response_format) && body.response_format.type === 'json_schema',
      customTools: custom,
      answerTool: composed.answerTool
    }
  }
}

/** The vendor's own field wins. */
function readThinking (body: Json, model: Model, maxTokens: number | undefined): AskedThinking {
  const { effort, budget } = chatReasoning(body)
  if (budget === undefined || isRecord(body.thinking)) return { effort, thinking: body.thinking }
  return thinkingWithin(budget, model, outputOf(model, maxTokens))
}

/** In OpenAI's words, or in OpenRouter's: `usage: {include: true}`. */
export function includesUsage ({ stream_options: options, usage }: Json): boolean {
  return (isRecord(options) && options.include_usage === true) || (isRecord(usage) && usage.include === true)
}

function readMaxTokens (body: Json): number | undefined {
  const name = isGiven(body.max_completion_tokens) ? 'max_completion_tokens' : 'max_tokens'
  const asked = body[name]
  if (!isGiven(asked)) return undefined
  if (typeof asked !== 'number') throw invalid(name, 'must be a whole number')
  return asked
}

const NO_STOPS: readonly string[] = Object.freeze([])

/** Stop sequences without those of white space, which the vendor refuses. */
function readStop (stop: unknown): readonly string[] {
  return isGiven(stop) ? stopsIn(stop) : NO_STOPS
}

function stopsIn (stop: unknown): readonly string[] {
  const all: readonly unknown[] = Array.isArray(stop) ? stop : [stop]
  return all.filter((sequence, i): sequence is string => {
    if (typeof sequence !== 'string') throw invalid(Array.isArray(stop) ? `stop[${i}]` : 'stop', 'must be a string')
    return !isBlank(sequence)
  })
}
