// Translates the chunks of a chat completion into the events of a message: begun with the first chunk, ended when
// finish reason and usage have come, or the stream ends.
import { CHAT_DELTA } from '../../../protocols/chat.ts'
import type { Exchange } from '../../../core/exchange.ts'
import type { StreamTransformer } from '../../../core/plugin.ts'
import { SseEvent } from '../../../core/sse.ts'
import { argumentsOf, callsIn, cutsCalls, hasFailed, ownFields, readSpoken, stopOf } from './answer.ts'
import { errorEvent, UnfinishedAnswer } from '../error-reply.ts'
import { Blocks } from '../answer-blocks.ts'
import { Calls } from './calls.ts'
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { textIn } from '../json.ts'
import { usageOf, withGuessedOutput } from './usage.ts'
import { guessUsage, messageId } from '../omissions.ts'

export function toEvents (exchange: Exchange): StreamTransformer {
  return new ChatStream(exchange)
}

class ChatStream implements StreamTransformer {
  readonly #exchange: Exchange
  readonly #blocks = new Blocks()
  readonly #calls: Calls
  #characters = 0
  #hasStarted = false
  #isOver = false
  /** Held: vendors send it twice, and usage with the second, or behind it (src/README.md#drain-to-end). */
  #finish: unknown
  #vendorsStop: unknown
  #usage: Json | undefined
  /** characters of output at the last report of usage */
  #reportedAt = 0

  constructor (exchange: Exchange) {
    this.#exchange = exchange
    this.#calls = new Calls(exchange)
  }

  event (event: SseEvent): SseEvent | readonly SseEvent[] | undefined {
    if (this.#isOver) return undefined
    const data = event.data.trim()
    if (data === '[DONE]') return this.#endByMark()
    const error = errorEvent(event)
    if (error !== undefined) return error
    // Texts between the chunks ("keepalive", or nothing) are no part of the answer; a broken chunk is.
    const chunk = data.startsWith('{') ? event.json : undefined
    return isRecord(chunk) ? this.#readChunk(chunk) : undefined
  }

  /** The end of the stream. Without a finish reason the answer is incomplete. */
  end (): readonly SseEvent[] {
    return this.#isOver || this.#finish === undefined ? [] : this.#end()
  }

  #readChunk (chunk: Json): readonly SseEvent[] {
    if (!Array.isArray(chunk.choices)) return []
    // One answer is requested. Of a vendor that sends more the first is read.
    const choice = chunk.choices.find((one) => isRecord(one) && (one.index === 0 || !isGiven(one.index))) as
      | Json
      | undefined
    const reported = usageOf(chunk, choice)
    const out = this.#start()
    const delta = isRecord(choice?.delta) ? choice.delta : {}
    this.#readDelta(delta)
    if (reported !== undefined) {
      this.#usage = reported
      this.#reportedAt = this.#characters
    }
    out.push(...this.#blocks.take())
    const own = ownFields(delta, this.#exchange)
    if (own !== undefined) out.push(SseEvent.of(CHAT_DELTA, { type: CHAT_DELTA, delta: own }))
    if (isGiven(choice?.finish_reason) && choice!.finish_reason !== '') {
      this.#finish = choice!.finish_reason
      this.#vendorsStop = choice!.stop_reason
      if (hasFailed(this.#finish)) {
        return [...out, SseEvent.of('error', { error: { type: 'api_error', message: String(this.#finish) } })]
      }
    }
    // Usage in chunks before the finish reason is not the last.
    if (this.#finish !== undefined && reported !== undefined) out.push(...this.#end())
    return out
  }

  #readDelta (delta: Json): void {
    const { thought, text } = readSpoken(delta)
    this.#characters += thought.length + text.length
    this.#blocks.say('thinking', thought)
    this.#blocks.say('text', text)
    for (const call of callsIn(delta)) this.#readCall(call)
  }

  #readCall (delta: Json): void {
    const its = isRecord(delta.function) ? delta.function : {}
    const piece = argumentsOf(its)
    let call = this.#calls.find(delta, piece)
    if (call === undefined) {
      call = this.#calls.begin(delta)
      this.#blocks.begin(call)
    } else if (call.name === '') call.name = textIn(its.name)
    this.#characters += piece.length
    this.#blocks.input(call, piece)
  }

  #start (): SseEvent[] {
    if (this.#hasStarted) return []
    this.#hasStarted = true
    const message = {
      id: messageId(this.#exchange), type: 'message', role: 'assistant', model: this.#exchange.request.body.model,
      content: [], stop_reason: null, stop_sequence: null, usage: guessUsage(this.#exchange, 0)
    }
    return [SseEvent.of('message_start', { type: 'message_start', message })]
  }

  /** @throws {UnfinishedAnswer} no finish reason and no usage: what made the answer has failed in words unknown here */
  #endByMark (): readonly SseEvent[] {
    const isEmpty = this.#characters === 0 && this.#calls.isEmpty
    if (this.#finish === undefined && this.#usage === undefined && !isEmpty) throw new UnfinishedAnswer()
    return this.#end()
  }

  #end (): readonly SseEvent[] {
    this.#isOver = true
    // With any other reason a client would run the tool with it.
    if (!cutsCalls(this.#finish) && this.#calls.hasTornInput) throw new Error('the arguments of a call are no JSON')
    this.#blocks.end()
    const delta = stopOf(this.#finish, this.#vendorsStop, !this.#calls.isEmpty, this.#exchange)
    return [
      ...this.#start(),
      ...this.#blocks.take(),
      SseEvent.of('message_delta', { type: 'message_delta', delta, usage: this.#usageSoFar() }),
      SseEvent.of('message_stop', { type: 'message_stop' })
    ]
  }

  /** Usage so far; output behind the last report is estimated. */
  #usageSoFar (): Json {
    if (this.#usage === undefined) return guessUsage(this.#exchange, this.#characters)
    return this.#characters === this.#reportedAt ? this.#usage : withGuessedOutput(this.#usage, this.#characters)
  }
}
