// The body in messages style, from what a client of any style asked for. An allow-list: other fields are not sent, so
// that no field that changes the vendor's price can be smuggled through (plugins/billing-meter/surcharges.ts).
import type { Model } from '../core/facts.ts'
import type { Json } from '../base/json.ts'
import { type Format, withAnswerTool } from './answer-tool.ts'
import { type Block, textBlock, type Turn } from './blocks.ts'
import { grammars } from './grammar.ts'
import { addSampling, JSON_LINE, outputOf } from './settings.ts'
import { type AskedThinking, isOff, isThinking, makeRoom, readEffort, readThinking, withoutLastThoughts }
  from './thinking.ts'
import { isForced, type Tools, withGrammar } from './tools.ts'

/** A request as its client's translator has read it. */
export interface AskedRequest extends AskedThinking, Tools {
  readonly model: unknown
  readonly stream: boolean
  /** tokens; undefined: the client sets no limit */
  readonly maxTokens: number | undefined
  readonly system: readonly Block[]
  readonly turns: readonly Turn[]
  /** 'object': any JSON object; undefined: text */
  readonly format: Format | 'object' | undefined
  /** temperature, top_p, top_k, where they are given */
  readonly sampling: Json
  readonly stops: readonly string[]
  /** that of the client's user, where it may be sent */
  readonly userId: string | undefined
  /** the prompt is cached up to its end */
  readonly isCached?: boolean
}

export interface ComposedBody {
  readonly body: Json
  /** a tool of the gateway's own whose input is the answer: the model has no structured outputs */
  readonly answerTool: string | undefined
}

/** @throws {GatewayError} invalid_request: the model can't produce as much as its thinking budget needs */
export function composeBody (asked: AskedRequest, model: Model): ComposedBody {
  const { maxTokens, turns, format, system } = asked
  const output = outputOf(model, maxTokens)
  const thinking = readThinking(asked, model, output, turns, isForced(asked.choice))
  const compile = model.structured_outputs ? grammars() : undefined
  const wanted = format === 'object' ? undefined : format
  const schema = wanted && compile?.(wanted.schema)
  const substitute = wanted !== undefined && schema === undefined
    ? withAnswerTool(asked, wanted, isThinking(thinking))
    : undefined
  const { tools, choice }: Tools = substitute ?? asked
  const effort = readEffort(asked.effort, model)

  const body: Record<string, unknown> = { model: asked.model, max_tokens: maxTokens ?? makeRoom(thinking, output) }
  const lines = format === 'object' ? [...system, textBlock(JSON_LINE)] : system
  if (lines.length > 0) body.system = lines
  body.messages = isOff(thinking, model) ? withoutLastThoughts(turns) : turns
  if (tools.length > 0) body.tools = compile === undefined ? tools : tools.map((tool) => withGrammar(tool, compile))
  if (choice !== undefined) body.tool_choice = choice
  if (thinking !== undefined) body.thinking = thinking
  if (effort !== undefined || schema !== undefined) {
    body.output_config = { ...(effort !== undefined && { effort }),
      ...(schema !== undefined && { format: { type: 'json_schema', schema } }) }
  }
  if (model.sampling) addSampling(body, asked.sampling, isThinking(thinking))
  if (asked.stops.length > 0) body.stop_sequences = asked.stops
  if (asked.userId !== undefined) body.metadata = { user_id: asked.userId }
  if (asked.isCached === true) body.cache_control = { type: 'ephemeral' }
  if (asked.stream) body.stream = true
  return { body, answerTool: substitute?.answerTool }
}
