// Translates a body in messages style into a Responses body. An allow-list (src/README.md#allow-list): other fields are
// not sent, so that no field that changes the vendor's price can be smuggled through
// (plugins/billing-meter/surcharges.ts): no service tier, nothing in the background, no tool that runs there.
import type { ResponsesConfig } from '../../../config/config.ts'
import type { Exchange } from '../../../core/exchange.ts'
import { conversationOf } from '../../../core/conversation.ts'
import { type Attempt, Body, Model } from '../../../core/facts.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { chatReasoning, chatStyle } from '../../../protocols/chat.ts'
import { messagesStyle } from '../../../protocols/messages.ts'
import { styleOfBody } from '../../../protocols/index.ts'
import { ResponsesOwn } from '../../../protocols/responses.ts'
import { type Effort, effortFor, isEffort, nearestEffort,
  withoutSealedThoughts } from '../../../translation/thinking.ts'
import { withoutJsonLine } from '../../../translation/settings.ts'
import { adaptTools } from '../../../translation/tool-schema.ts'
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { functionChoice, functionsOf, isClosed } from '../functions.ts'
import type { OwnWords } from '../dialect.ts'
import { textIn, unsayable } from '../json.ts'
import { systemLines } from '../parts.ts'
import { toolsInForce } from '../tool-changes.ts'
import { withShortNames } from '../tool-names.ts'
import { shortUserId } from '../user-id.ts'
import { wholeTurns } from '../whole-turns.ts'
import { ClientTools } from './client-tools.ts'
import { inputOf } from './input.ts'

const NOTHING: Json = Object.freeze({})
/** The vendor's smallest limit of output, below which it refuses: an answer may be longer than was asked for. */
export const LEAST_OUTPUT = 16

/** @throws {GatewayError} invalid_request, with the path of a part that this API can't be told */
export function toResponses (exchange: Exchange, attempt: Attempt, upstream: Upstream): Json {
  const { body, stream } = exchange.request
  const options = upstream.config.responses ?? {}
  const own = ownOf(exchange)
  const tools = new ClientTools(exchange, upstream)
  const model = exchange.get(Model)
  const named = withShortNames(body)
  const { tool_choice: choice } = named
  checkStops(body, options)
  const sent: Record<string, unknown> = {}
  const add = (name: string, value: unknown): void => { if (isGiven(value)) sent[name] = value }

  add('model', attempt.model)
  const text = textOf(body, own)
  const lines = systemLines(body.system, 'system')
  const system = isRecord(text?.format) && text.format.type === 'json_object' ? withoutJsonLine(lines) : lines
  if (system.length > 0) add('instructions', system.join('\n'))
  const whole = wholeTurns(named.messages)
  const turns = exchange.route.style === messagesStyle ? whole : withoutSealedThoughts(whole, body, model)
  add('input', inputOf(turns, exchange, attempt, upstream, tools))
  if (typeof body.max_tokens === 'number') add('max_output_tokens', Math.max(LEAST_OUTPUT, body.max_tokens))
  if (model.sampling) {
    add('temperature', body.temperature)
    add('top_p', body.top_p)
  }
  const declared = toolsInForce(named)
  const functions = functionsOf(exchange.find(ResponsesOwn) === undefined ? adaptTools(declared) : declared)
  if (functions.length > 0) {
    add('tools', tools.declare(functions))
    add('tool_choice', functionChoice(choice, functions, (name) => tools.choice(textIn(name))))
    if (isRecord(choice) && choice.disable_parallel_tool_use === true) {
      add('parallel_tool_calls', false)
    }
  }
  if (model.thinking !== 'none') {
    add('reasoning', reasoningOf(body, own, options))
    add('include', ['reasoning.encrypted_content'])
  }
  add('text', text)
  add('safety_identifier', shortUserId(body))
  add('prompt_cache_key', `gw-${conversationOf(exchange).toString(36)}`)
  add('store', false)
  if (stream) {
    add('stream', true)
    add('stream_options', { include_obfuscation: false })
  }
  return sent
}

/** @throws {GatewayError} invalid_request: the operator wants no answer that does not end where the client said */
function checkStops ({ stop_sequences: stops }: Json, { stop_sequences: rule }: ResponsesConfig): void {
  if (rule === 'refuse' && Array.isArray(stops) && stops.length > 0) {
    throw unsayable('stop_sequences', 'is something')
  }
}

/** Tools as they were declared, and the form of the answer: of both, messages style may have a shorter version. */
export function ownWords (exchange: Exchange, upstream: Upstream): OwnWords | undefined {
  const { body } = exchange.request
  const own = ownOf(exchange)
  // A client of another style has no tools of its own here.
  const tools = exchange.find(ResponsesOwn) === undefined ? NOTHING
    : { tools: new ClientTools(exchange, upstream).declare(functionsOf(toolsInForce(body))) }
  if (tools === NOTHING && own.format === undefined) return undefined
  return { sent: { ...tools, text: textOf(body, own) },
    instead: { ...(tools !== NOTHING && { tools: body.tools }), output_config: body.output_config } }
}

/** What a client said itself: where this API has the same, it is not translated back and forth. */
interface Own {
  readonly effort: unknown
  /** how much of a summary; null: none; undefined: its style has no word for it */
  readonly summary: unknown
  /** with the fields of `text.format` */
  readonly format: Json | undefined
  readonly verbosity: unknown
}

function ownOf (exchange: Exchange): Own {
  const asked = exchange.find(Body) ?? NOTHING
  if (styleOfBody(exchange.route, asked) === chatStyle) {
    const { response_format: format } = asked
    const { effort } = chatReasoning(asked)
    const { type, json_schema: schema } = isRecord(format) ? format : NOTHING
    return { effort, summary: undefined, format: isGiven(type) ? { ...isRecord(schema) && schema, type } : undefined,
      verbosity: undefined }
  }
  const words = exchange.find(ResponsesOwn)
  const { effort, summary, generate_summary: former } = isRecord(words?.reasoning) ? words.reasoning : NOTHING
  const { format, verbosity } = isRecord(words?.text) ? words.text : NOTHING
  return { effort, summary: words === undefined ? undefined : summary ?? former ?? null,
    format: isRecord(format) ? format : undefined, verbosity }
}

/** Those of the vendor's newest models. */
const KNOWN: readonly Effort[] = ['none', 'low', 'medium', 'high', 'xhigh']

/**
 * Without an effort, the vendor's own default applies. Summaries go to a client that asked for thoughts, or, in the
 * words of this API, for summaries.
 */
function reasoningOf (body: Json, own: Own, { efforts = KNOWN, summaries }: ResponsesConfig): Json | undefined {
  const { thinking } = body
  const asked = own.effort ?? askedEffort(body)
  const effort = isEffort(asked) ? nearestEffort(asked, efforts) : asked
  const isWanted = own.summary === undefined
    ? (isGiven(asked) || isRecord(thinking)) && !(isRecord(thinking) && thinking.display === 'omitted')
    : own.summary !== null
  const isShown = isWanted && summaries !== false && effort !== 'none'
  if (!isGiven(effort) && !isShown) return undefined
  return { ...(isGiven(effort) && { effort }), ...(isShown && { summary: own.summary ?? 'auto' }) }
}

function askedEffort ({ thinking, output_config: output, max_tokens: most }: Json): unknown {
  const { type, budget_tokens: budget } = isRecord(thinking) ? thinking : {}
  if (type === 'disabled') return 'none'
  const effort = isRecord(output) ? output.effort : undefined
  if (isGiven(effort)) return effort
  return typeof budget === 'number' && typeof most === 'number' ? effortFor(budget, most) : undefined
}

const VERBOSITIES: ReadonlySet<unknown> = new Set(['low', 'medium', 'high'])

function textOf (body: Json, own: Own): Json | undefined {
  const format = formatOf(body, own)
  const text = { ...(format !== undefined && { format }),
    ...(VERBOSITIES.has(own.verbosity) && { verbosity: own.verbosity }) }
  return Object.keys(text).length === 0 ? undefined : text
}

function formatOf ({ output_config: output }: Json, { format: own }: Own): Json | undefined {
  const format = isRecord(output) ? output.format : undefined
  if (!isRecord(format) || format.type !== 'json_schema') {
    return own?.type === 'json_object' ? { type: own.type } : undefined
  }
  if (own?.type !== 'json_schema') {
    return { type: 'json_schema', name: 'output', schema: format.schema, strict: isClosed(format.schema) }
  }
  // The schema as it was, not the grammar for a vendor of messages style.
  const { name = 'output', schema, description, strict } = own
  return { type: 'json_schema', name, schema, ...(isGiven(description) && { description }), strict: strict === true }
}
