// Translates the events of a streamed response into those of a message: begun with the first event, ended by the
// terminal one; without that it is incomplete, whatever else the vendor sends.
import type { Exchange } from '../../../core/exchange.ts'
import type { StreamTransformer } from '../../../core/plugin.ts'
import { SseEvent } from '../../../core/sse.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { fieldOf, isRecord, type Json } from '../../../base/json.ts'
import { CHAT_DELTA, isChatClient } from '../../../protocols/chat.ts'
import { errorEvent } from '../error-reply.ts'
import { cutsCalls, graver, isCounted, stopReason } from '../finish.ts'
import { inclusiveUsage, RESPONSES } from '../inclusive-usage.ts'
import { reportOf, startOf } from '../omissions.ts'
import { finishOf } from './ending.ts'
import { Items } from './items.ts'

export function toEvents (exchange: Exchange, upstream: Upstream): StreamTransformer {
  return new ResponseStream(exchange, upstream)
}

/** Events that begin an answer, by which a client knows that it was heard. */
const BEGINNING = new Set(['response.created', 'response.queued', 'response.in_progress'])

class ResponseStream implements StreamTransformer {
  readonly #exchange: Exchange
  readonly #items: Items
  #hasStarted = false
  #isOver = false

  constructor (exchange: Exchange, upstream: Upstream) {
    this.#exchange = exchange
    this.#items = new Items(exchange, upstream)
  }

  event (event: SseEvent): readonly SseEvent[] | undefined {
    if (this.#isOver) return undefined
    const error = errorEvent(event)
    if (error !== undefined) return [error]
    const text = event.data.trim()
    // Texts between the events ("[DONE]", or nothing) are no part of the answer; a broken event is.
    if (!text.startsWith('{')) return undefined
    const data = event.json
    if (!isRecord(data)) return undefined
    const type = typeof data.type === 'string' ? data.type : event.event
    switch (type) {
      case 'response.failed':
      case 'response.cancelled':
        return [...reportIn(data), SseEvent.of('error', { error: fieldOf(data.response, 'error') ?? {} })]
      case 'response.completed':
      case 'response.incomplete': return this.#end(type, isRecord(data.response) ? data.response : {})
    }
    if (BEGINNING.has(type)) return [...this.#start(), ...this.#items.take(), ...reportIn(data)]
    return this.#read(type, data) ? [...this.#start(), ...this.#items.take()] : undefined
  }

  /** @returns false: nothing of the answer is in it */
  #read (type: string, data: Json): boolean {
    const { content_index: part = 0, summary_index: summary = 0, delta } = data
    const isWhole = type.endsWith('.done')
    switch (type) {
      case 'response.output_item.added':
        this.#items.begin(data)
        return true
      case 'response.output_item.done':
        this.#items.done(data)
        return true
      case 'response.output_text.delta':
      case 'response.output_text.done':
        this.#items.say('text', data, `text ${String(part)}`, isWhole ? data.text : delta, isWhole)
        return true
      case 'response.refusal.delta':
      case 'response.refusal.done':
        this.#items.refuse(data, `text ${String(part)}`, isWhole ? data.refusal : delta, isWhole)
        return true
      case 'response.reasoning_summary_text.delta':
      case 'response.reasoning_summary_text.done':
        this.#items.say('thinking', data, `summary ${String(summary)}`, isWhole ? data.text : delta, isWhole)
        return true
      case 'response.reasoning_text.delta':
      case 'response.reasoning_text.done':
        this.#items.say('thinking', data, `thoughts ${String(part)}`, isWhole ? data.text : delta, isWhole)
        return true
      case 'response.custom_tool_call_input.delta':
      case 'response.custom_tool_call_input.done':
        this.#items.say('tool_use', data, 'text', isWhole ? data.input : delta, isWhole)
        return true
      case 'response.function_call_arguments.delta':
      case 'response.function_call_arguments.done':
        this.#items.say('tool_use', data, 'arguments', isWhole ? data.arguments : delta, isWhole)
        return true
    }
    return false
  }

  #start (): SseEvent[] {
    if (this.#hasStarted) return []
    this.#hasStarted = true
    return [startOf(this.#exchange)]
  }

  /** @throws {UnusableCall} half a call, although the answer was not cut short: a client would run the tool with it */
  #end (type: string, said: Json): readonly SseEvent[] {
    const ended = finishOf(type === 'response.incomplete' ? { ...said, status: 'incomplete' } : said)
    if (Array.isArray(said.output)) this.#items.complete(said.output)
    const finish = !cutsCalls(ended) && this.#items.isCut ? 'max_tokens' : ended
    this.#items.end(cutsCalls(finish))
    this.#isOver = true
    const isChat = isChatClient(this.#exchange)
    const { hasCalls, hasContent, hasRefusal, refusal } = this.#items
    const usage = inclusiveUsage(said.usage, RESPONSES) ?? {}
    const delta = { stop_reason: stopReason(hasRefusal && !isChat ? graver(finish, 'refusal') : finish, hasCalls,
      hasContent, isCounted(usage)), stop_sequence: null }
    return [
      ...this.#start(),
      ...this.#items.take(),
      ...(refusal === '' ? [] : [SseEvent.of(CHAT_DELTA, { type: CHAT_DELTA, delta: { refusal } })]),
      SseEvent.of('message_delta', { type: 'message_delta', delta, usage }),
      SseEvent.of('message_stop', { type: 'message_stop' })
    ]
  }
}

/** Usage is reported with the end, but a few vendors report it before, or with a failure. */
function reportIn ({ response }: Json): readonly SseEvent[] {
  const usage = inclusiveUsage(fieldOf(response, 'usage'), RESPONSES)
  return usage === undefined ? [] : [reportOf(usage)]
}
