// Translates a chat body into messages style (src/README.md#chat-request). An allow-list: other fields are not sent, so
// that no field that changes the vendor's price can be smuggled through (plugins/billing-meter/surcharges.ts).
import type { Blobs } from '../../src/core/large-strings.ts'
import type { Model } from '../../src/core/facts.ts'
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'
import { type AnswerShape, invalid } from './chat.ts'
import { readConversation } from './conversation.ts'
import { readFormat, withAnswerTool } from './format.ts'
import { grammars } from './grammar.ts'
import { isBlank, textBlock } from './parts.ts'
import { TextFiles } from './text-files.ts'
import { isOff, isThinking, makeRoom, type Output, readEffort, readThinking, withoutLastThoughts } from './thinking.ts'
import { isForced, readTools, type Tools, withGrammar } from './tools.ts'

const STANDARD_MAX_TOKENS = 8192
/** The lowest top_p that the vendor accepts while it thinks. */
const LEAST_THINKING_TOP_P = 0.95

const JSON_LINE = 'Answer with one JSON object and nothing else: no Markdown, no words around it.'

/** @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in messages style */
export function toMessages (
  body: Json,
  stream: boolean,
  model: Model,
  blobs: Blobs
): { readonly body: Json, readonly asked: AnswerShape } {
  const named = readMaxTokens(body)
  const output = named === undefined ? outputOf(model) : { usual: named, most: named }
  const { system, turns } = readConversation(body.messages, new TextFiles(blobs, model))
  const own = readTools(body)
  const thinking = readThinking(body, model, output, turns, isForced(own.choice))
  const maxTokens = named ?? makeRoom(thinking, output)
  const format = readFormat(body.response_format)
  const compile = model.structured_outputs ? grammars() : undefined
  const wanted = format === 'object' ? undefined : format
  const schema = wanted && compile?.(wanted.schema)
  const substitute = wanted !== undefined && schema === undefined
    ? withAnswerTool(own, wanted, isThinking(thinking))
    : undefined
  const { tools, choice }: Tools = substitute ?? own
  const effort = readEffort(body, model)
  const userId = [body.safety_identifier, body.user].find(isOpaque)
  const stops = readStop(body.stop)

  const messages: Record<string, unknown> = { model: body.model, max_tokens: maxTokens }
  const lines = format === 'object' ? [...system, textBlock(JSON_LINE)] : system
  if (lines.length > 0) messages.system = lines
  messages.messages = isOff(thinking, model) ? withoutLastThoughts(turns) : turns
  if (tools.length > 0) messages.tools = compile === undefined ? tools : tools.map((tool) => withGrammar(tool, compile))
  if (choice !== undefined) messages.tool_choice = choice
  if (thinking !== undefined) messages.thinking = thinking
  if (effort !== undefined || schema !== undefined) {
    messages.output_config = { ...(effort !== undefined && { effort }),
      ...(schema !== undefined && { format: { type: 'json_schema', schema } }) }
  }
  if (model.sampling) addSampling(messages, body, isThinking(thinking))
  if (stops.length > 0) messages.stop_sequences = stops
  if (userId !== undefined) messages.metadata = { user_id: userId }
  if (stream) messages.stream = true
  return {
    body: messages,
    asked: {
      hasUsageChunk: isRecord(body.stream_options) && body.stream_options.include_usage === true,
      hasSchema: isRecord(body.response_format) && body.response_format.type === 'json_schema',
      customTools: own.custom,
      answerTool: substitute?.answerTool
    }
  }
}

function readMaxTokens (body: Json): number | undefined {
  const name = isGiven(body.max_completion_tokens) ? 'max_completion_tokens' : 'max_tokens'
  const asked = body[name]
  if (!isGiven(asked)) return undefined
  if (typeof asked !== 'number') throw invalid(name, 'must be a whole number')
  return asked
}

function outputOf ({ default_max_tokens: usual, max_output, context }: Model): Output {
  return { usual: usual ?? Math.min(max_output ?? STANDARD_MAX_TOKENS, STANDARD_MAX_TOKENS),
    most: max_output ?? context ?? Infinity }
}

/** A vendor's defaults are never sent: some models refuse the fields whatever their value. */
function addSampling (
  messages: Record<string, unknown>,
  { temperature, top_p: topP, top_k: topK }: Json,
  thinks: boolean
): void {
  if (isGiven(temperature) && !thinks) messages.temperature = temperature
  if (isGiven(topP) && !(thinks && Number(topP) < LEAST_THINKING_TOP_P)) messages.top_p = topP
  if (isGiven(topK) && !thinks) messages.top_k = topK
}

/** Stop sequences without those of white space, which the vendor refuses. */
function readStop (stop: unknown): readonly string[] {
  const all: readonly unknown[] = Array.isArray(stop) ? stop : isGiven(stop) ? [stop] : []
  return all.filter((sequence, i): sequence is string => {
    if (typeof sequence !== 'string') throw invalid(Array.isArray(stop) ? `stop[${i}]` : 'stop', 'must be a string')
    return !isBlank(sequence)
  })
}

/**
 * Whether an id may be sent to the vendor: it wants no e-mail addresses and phone numbers, and none longer than its
 * limit.
 */
function isOpaque (id: unknown): id is string {
  return typeof id === 'string' && id !== '' && id.length <= 256 && !/\S@\S+\.\S/.test(id) &&
    !/^\+?[\d\s().-]{7,}$/.test(id)
}
