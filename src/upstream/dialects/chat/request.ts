// Translates a body in messages style into a chat body. An allow-list (src/README.md#allow-list): other fields are not
// sent, except those that the operator names, so that no field that changes the vendor's price can be smuggled through
// (plugins/billing-meter/surcharges.ts).
import type { ChatConfig } from '../../../config/config.ts'
import type { Exchange } from '../../../core/exchange.ts'
import { Body, Model } from '../../../core/facts.ts'
import { chatStyle } from '../../../protocols/chat.ts'
import { toChatMessages } from './conversation.ts'
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { isClosed, toChatChoice, toChatTools } from './tools.ts'

/** Fields of a chat client's own body without an equivalent in messages style; they are official, old, and free. */
const KEPT = ['seed', 'presence_penalty', 'frequency_penalty', 'logit_bias'] as const

const NOTHING: Json = Object.freeze({})

/** @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in chat style */
export function toChat (exchange: Exchange, modelId: string, options: ChatConfig): Json {
  const { body, stream } = exchange.request
  // A chat client's own fields: where this dialect accepts them, they are not translated back and forth.
  const own = exchange.route.style === chatStyle ? exchange.find(Body) ?? NOTHING : NOTHING
  const model = exchange.get(Model)
  const chat: Record<string, unknown> = {}
  const add = (name: string, value: unknown): void => { if (isGiven(value)) chat[name] = value }

  for (const name of options.fields ?? []) add(name, body[name] ?? own[name])
  for (const name of KEPT) add(name, own[name])
  add('model', modelId)
  add('messages', toChatMessages(body, own, options.reasoning_field))
  add(options.max_tokens_field ?? 'max_tokens', body.max_tokens)
  if (model.sampling) {
    add('temperature', body.temperature)
    add('top_p', body.top_p)
  }
  const stops = Array.isArray(body.stop_sequences) ? body.stop_sequences : []
  if (stops.length > 0) add('stop', stops)
  const tools = toChatTools(body.tools)
  if (tools.length > 0) {
    add('tools', tools)
    add('tool_choice', toChatChoice(body.tool_choice, tools))
    if (isRecord(body.tool_choice) && body.tool_choice.disable_parallel_tool_use === true) {
      add('parallel_tool_calls', false)
    }
  }
  if (model.thinking !== 'none') add('reasoning_effort', own.reasoning_effort ?? effortOf(body))
  add('response_format', formatOf(body, own))
  add('user', isRecord(body.metadata) ? body.metadata.user_id : undefined)
  if (stream) {
    add('stream', true)
    // Without it most vendors report no usage of a stream.
    if (options.include_usage !== false) add('stream_options', { include_usage: true })
  }
  return chat
}

/** LiteLLM's steps. Without thinking the vendor's own default applies: few accept "none". */
function effortOf ({ thinking, output_config: output }: Json): unknown {
  if (isRecord(thinking) && thinking.type === 'disabled') return undefined
  const effort = isRecord(output) ? output.effort : undefined
  if (isGiven(effort)) return effort === 'xhigh' || effort === 'max' ? 'high' : effort
  if (!isRecord(thinking) || typeof thinking.budget_tokens !== 'number') return undefined
  return thinking.budget_tokens <= 1024 ? 'low' : thinking.budget_tokens <= 2048 ? 'medium' : 'high'
}

function formatOf ({ output_config: output }: Json, { response_format: own }: Json): unknown {
  const format = isRecord(output) ? output.format : undefined
  const ownType = isRecord(own) ? own.type : undefined
  if (!isRecord(format) || format.type !== 'json_schema') return ownType === 'json_object' ? own : undefined
  // The schema as it was, not the grammar for a vendor of messages style.
  if (ownType === 'json_schema') return own
  return { type: 'json_schema',
    json_schema: { name: 'output', schema: format.schema, ...(isClosed(format.schema) && { strict: true }) } }
}
