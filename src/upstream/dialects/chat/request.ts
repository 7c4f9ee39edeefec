// Translates a body in messages style into a chat body. An allow-list (src/README.md#allow-list): other fields are not
// sent, except those that the operator names, so that no field that changes the vendor's price can be smuggled through
// (plugins/billing-meter/surcharges.ts).
import type { ChatConfig } from '../../../config/config.ts'
import type { Exchange } from '../../../core/exchange.ts'
import { Body, Model } from '../../../core/facts.ts'
import { chatReasoning, chatStyle } from '../../../protocols/chat.ts'
import { messagesStyle } from '../../../protocols/messages.ts'
import { styleOfBody } from '../../../protocols/index.ts'
import type { Upstream } from '../../../core/upstream.ts'
import type { OwnWords } from '../dialect.ts'
import { thoughtsByCall, toChatMessages } from './conversation.ts'
import { type MarkOf, marksIn, noMark } from '../cache-marks.ts'
import { placeholdersIn, signaturesIn } from './signatures.ts'
import { toolsInForce } from '../tool-changes.ts'
import { isEffort, nearestEffort, SWITCHED_ON } from '../../../translation/thinking.ts'
import { adaptTools } from '../../../translation/tool-schema.ts'
import { withShortNames } from '../tool-names.ts'
import { shortUserId } from '../user-id.ts'
import { wholeTurns } from '../whole-turns.ts'
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { pathTo } from '../../../base/json-path.ts'
import { functionChoice, functionsOf, isClosed } from '../functions.ts'

/** Fields of a chat client's own body without an equivalent in messages style; they are official, old, and free. */
const KEPT = ['seed', 'presence_penalty', 'frequency_penalty', 'logit_bias'] as const

const NOTHING: Json = Object.freeze({})
const NO_FIELDS: readonly string[] = []

/** @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in chat style */
export function toChat (exchange: Exchange, modelId: string, upstream: Upstream): Json {
  const { body, stream } = exchange.request
  const options = upstream.config.chat ?? {}
  const own = ownOf(exchange)
  const model = exchange.get(Model)
  const format = formatOf(body, own)
  const named = withShortNames(body)
  const { tool_choice: choice } = named
  const chat: Record<string, unknown> = {}
  const omitted: readonly string[] = options.omit ?? NO_FIELDS
  const add = (name: string, value: unknown): void => {
    if (isGiven(value) && !omitted.includes(name)) chat[name] = value
  }

  for (const name of options.fields ?? []) {
    add(name, name === 'thinking' ? own[name] ?? switchOf(body[name]) : body[name] ?? own[name])
  }
  for (const name of KEPT) add(name, own[name])
  add('model', modelId)
  const markOf = options.cache_control === true ? marksIn(body) : noMark
  const talk = { system: body.system, messages: wholeTurns(named.messages), cache_control: body.cache_control }
  add('messages', toChatMessages(talk, own, { exchange, upstream,
    signatures: options.thought_signatures, reasoning: options.reasoning_field,
    mayBeRaw: exchange.route.style !== messagesStyle && options.call_arguments !== 'json',
    hasJsonField: isJsonObject(format),
    isFolded: options.after_tool === 'fold', markOf,
    placeOf: (address) => placeIn(exchange, address) }))
  add(options.max_tokens_field ?? (isGiven(own.max_completion_tokens) ? 'max_completion_tokens' : 'max_tokens'),
    body.max_tokens)
  if (model.sampling) {
    add('temperature', body.temperature)
    add('top_p', body.top_p)
  }
  const stops = Array.isArray(body.stop_sequences) ? body.stop_sequences : []
  if (stops.length > 0) add('stop', stops)
  const declared = own === NOTHING ? adaptTools(toolsInForce(named)) : toolsInForce(named)
  const functions = functionsOf(declared)
  if (functions.length > 0) {
    const marks = markedTools(declared, markOf)
    add('tools', functions.map((one) => ({ type: 'function', function: one, ...marks.get(one.name) })))
    add('tool_choice', functionChoice(choice, functions, (name) => ({ type: 'function', function: { name } })))
    if (isRecord(choice) && choice.disable_parallel_tool_use === true) {
      add('parallel_tool_calls', false)
    }
  }
  if (model.thinking !== 'none') add('reasoning_effort', effortSent(body, own, options))
  add('response_format', format)
  add('user', shortUserId(body))
  if (stream) {
    add('stream', true)
    // Without it most vendors report no usage of a stream.
    if (options.include_usage !== false) add('stream_options', { include_usage: true })
  }
  return chat
}

/** A chat client's own fields: where this dialect accepts them, they are not translated back and forth. */
function ownOf (exchange: Exchange): Json {
  const asked = exchange.find(Body) ?? NOTHING
  return styleOfBody(exchange.route, asked) === chatStyle ? asked : NOTHING
}

/** The form of the answer, of which messages style may have a shorter version, and thoughts, which it may not have. */
export function ownWords (exchange: Exchange, { config: { chat: options } }: Upstream): OwnWords | undefined {
  const { body } = exchange.request
  const own = ownOf(exchange)
  const thoughts = options?.reasoning_field === undefined ? [] : [...thoughtsByCall(own).values()]
  const word = options?.thought_signatures
  const signatures = word === 'drop' ? [] : signaturesIn(own)
  if (word === 'google') signatures.push(...placeholdersIn(body.messages))
  if (thoughts.length + signatures.length === 0 && !isRecord(own.response_format)) return undefined
  return { sent: { response_format: formatOf(body, own), thoughts, signatures },
    instead: { output_config: body.output_config } }
}

/** The place of an address in a request that was translated. */
function placeIn (exchange: Exchange, address: string): string | undefined {
  return exchange.route.style === messagesStyle ? undefined : pathTo(address, exchange.find(Body))
}

/** The marks of tools, by name. */
function markedTools (tools: unknown, markOf: MarkOf): ReadonlyMap<unknown, Json> {
  const all: readonly unknown[] = Array.isArray(tools) ? tools : []
  return new Map(all.filter(isRecord).map((tool) => [tool.name, markOf(tool)]))
}

/** The switch of messages style in the words of vendors of chat style, which know neither `adaptive` nor `display`. */
function switchOf (thinking: unknown): unknown {
  if (!isRecord(thinking)) return thinking
  const { type, budget_tokens: budget } = thinking
  return { type: type === 'disabled' ? type : 'enabled', ...(isGiven(budget) && { budget_tokens: budget }) }
}

/** The effort for the upstream. One that gets the switch needs no `none`, which its vendors refuse. */
function effortSent (body: Json, own: Json, { fields, efforts }: ChatConfig): unknown {
  const hasSwitch = fields?.includes('thinking') === true
  const asked = chatReasoning(own).effort ??
    (hasSwitch && isRecord(own.thinking) ? undefined : switchedEffort(own) ?? effortOf(body, efforts === undefined))
  if (asked === 'none' && hasSwitch) return undefined
  return efforts !== undefined && isEffort(asked) ? nearestEffort(asked, efforts) : asked
}

/** A chat client's switch (DeepSeek's, Z.ai's): without it, thoughts that are switched off are paid for. */
function switchedEffort ({ thinking }: Json): string | undefined {
  const { type, budget_tokens: budget } = isRecord(thinking) ? thinking : NOTHING
  if (type === 'disabled') return 'none'
  return type === 'enabled' && !isGiven(budget) ? SWITCHED_ON : undefined
}

/**
 * LiteLLM's steps. Without a word about thinking the vendor's own default applies.
 * @param isBounded whether `high` is the most
 */
function effortOf ({ thinking, output_config: output }: Json, isBounded: boolean): unknown {
  if (isRecord(thinking) && thinking.type === 'disabled') return 'none'
  const effort = isRecord(output) ? output.effort : undefined
  if (isGiven(effort)) return isBounded && (effort === 'xhigh' || effort === 'max') ? 'high' : effort
  if (!isRecord(thinking) || typeof thinking.budget_tokens !== 'number') return undefined
  return thinking.budget_tokens <= 1024 ? 'low' : thinking.budget_tokens <= 2048 ? 'medium' : 'high'
}

function isJsonObject (format: unknown): boolean {
  return isRecord(format) && format.type === 'json_object'
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
