// Translates the chunks of a chat completion into the events of a message: begun with the first chunk, ended with
// [DONE] or the end of the stream, because usage next to the finish reason is provisional.
import { CHAT_DELTA, isChatClient } from '../../../protocols/chat.ts'
import type { Exchange } from '../../../core/exchange.ts'
import { SseEvent } from '../../../core/sse.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { cutsCalls, type Finish, graver, isCounted } from '../finish.ts'
import { argumentsOf, callFields, callsIn, choicesIn, finishOf, ownFields, readSpoken, stopOf,
  topFields } from './answer.ts'
import { errorEvent, UnfinishedAnswer, UnusableCall } from '../error-reply.ts'
import { Blocks, type Call } from '../answer-blocks.ts'
import { Calls } from './calls.ts'
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { textIn } from '../json.ts'
import type { StreamDecoder } from '../dialect.ts'
import { reportOf, startOf } from '../omissions.ts'
import { Signatures } from './signatures.ts'
import { usageOf } from './usage.ts'

/** Most characters of a choice that wait for the first one to have some. */
const MOST_KEPT = 4 * 1024 * 1024
const NONE: readonly SseEvent[] = []

export function toEvents (exchange: Exchange, upstream: Upstream): StreamDecoder {
  return new ChatStream(exchange, upstream)
}

class ChatStream implements StreamDecoder {
  readonly #exchange: Exchange
  readonly #upstream: Upstream
  readonly #blocks = new Blocks()
  readonly #calls: Calls
  /** of a client of another style */
  readonly #signatures: Signatures | undefined
  #characters = 0
  /** thoughts and text of another choice than the first, which may still have its own */
  readonly #others = new Map<'thinking' | 'text', { readonly choice: string, text: string }>()
  #hasRefusal = false
  /** fields of calls that have begun */
  readonly #late: SseEvent[] = []
  /** fields of chat style that its client got */
  #hasOwn = false
  /** those beside the choices, as JSON: some vendors repeat them in each chunk */
  #top = ''
  #hasStarted = false
  #isOver = false
  /** Held: vendors send it twice, and usage with the second, or behind it (src/README.md#drain-to-end). */
  #finish: Finish | undefined
  #isFirstOver = false
  #vendorsStop: unknown
  /** the last report that is not all zero */
  #usage: Json | undefined
  /** characters of output at that report */
  #reportedAt = 0

  constructor (exchange: Exchange, upstream: Upstream) {
    this.#exchange = exchange
    this.#upstream = upstream
    this.#calls = new Calls(exchange, upstream)
    this.#signatures = isChatClient(exchange) ? undefined : new Signatures(exchange, upstream)
  }

  event (event: SseEvent): SseEvent | readonly SseEvent[] | undefined {
    if (this.#isOver) return undefined
    const data = event.data.trim()
    if (data === '[DONE]') return this.#endByMark()
    const error = errorEvent(event)
    if (error !== undefined) return [...this.#report(error.json), error]
    // Texts between the chunks ("keepalive", or nothing) are no part of the answer; a broken chunk is.
    const chunk = data.startsWith('{') ? event.json : undefined
    return isRecord(chunk) ? this.#readChunk(chunk) : undefined
  }

  /** Finish reason and usage are here; a better report may follow. */
  get isComplete (): boolean {
    return this.#finish !== undefined && this.#usage !== undefined
  }

  /** The end of the stream. Without a finish reason the answer is incomplete. */
  end (): readonly SseEvent[] {
    return this.#isOver || this.#finish === undefined ? [] : this.#end()
  }

  #readChunk (chunk: Json): readonly SseEvent[] {
    if (!Array.isArray(chunk.choices) && !isRecord(chunk.usage)) return []
    const choices = choicesIn(chunk)
    const out = this.#start()
    for (let i = 0; i < choices.length; i++) this.#readChoice(choices[i]!, i, out)
    out.push(...this.#report(chunk, choices))
    this.#readTop(chunk, out)
    if (this.#finish === 'error') {
      const word = choices.find((one) => finishOf(one) === 'error')?.finish_reason
      return [...out, SseEvent.of('error', { error: { type: 'api_error', message: String(word) } })]
    }
    return out
  }

  #report (chunk: unknown, choices: readonly Json[] = []): readonly SseEvent[] {
    const reported = usageOf(chunk, choices.find(({ usage }) => isRecord(usage)), this.#exchange, this.#upstream)
    if (reported === undefined) return NONE
    if (isCounted(reported)) {
      this.#usage = reported
      this.#reportedAt = this.#characters
    }
    return [reportOf(reported)]
  }

  #readChoice (choice: Json, place: number, out: SseEvent[]): void {
    const said = this.#saidIn(choice)
    const number = isGiven(choice.index) ? String(choice.index) : String(place)
    this.#readDelta(said, number)
    out.push(...this.#blocks.take(), ...this.#late.splice(0))
    const own = ownFields(said, this.#exchange)
    if (own !== undefined) {
      this.#hasOwn = true
      out.push(SseEvent.of(CHAT_DELTA, { type: CHAT_DELTA, delta: own }))
    }
    const finish = finishOf(choice)
    if (finish === undefined) return
    // That of the first choice counts, which may come later.
    const isFirst = number === '0'
    if (this.#finish === undefined || isFirst || finish === 'error') {
      this.#finish = this.#isFirstOver || !isFirst ? graver(this.#finish, finish) : finish
      this.#vendorsStop = choice.stop_reason
    }
    this.#isFirstOver ||= isFirst
  }

  /** What a choice adds. Its whole message counts only where nothing came in pieces, and its calls where none did. */
  #saidIn ({ delta, message, text }: Json): Json {
    const said = isRecord(delta) ? delta : isRecord(message) ? {} : { content: text }
    if (!isRecord(message) || !this.#calls.isEmpty || callsIn(said).length > 0) return said
    const { thought, text: words, refusal } = readSpoken(said)
    return thought + words + refusal === '' && !this.#hasContent ? message
      : { ...said, tool_calls: message.tool_calls, function_call: message.function_call }
  }

  get #hasContent (): boolean {
    return this.#characters > 0 || this.#hasOwn || !this.#calls.isEmpty
  }

  #readDelta (delta: Json, choice: string): void {
    const { thought, text, refusal } = readSpoken(delta)
    this.#say('thinking', thought, choice)
    this.#signatures?.readMessage(delta, true)
    if (text + refusal !== '') this.#sign()
    this.#say('text', text, choice)
    if (refusal !== '') {
      this.#characters += refusal.length
      this.#hasRefusal = true
      if (!isChatClient(this.#exchange)) this.#blocks.say('text', refusal)
    }
    for (const call of callsIn(delta)) this.#readCall(call, choice)
  }

  /** Of each kind what the first choice says that has any. */
  #say (kind: 'thinking' | 'text', piece: string, choice: string): void {
    if (piece === '') return
    if (choice !== '0') { this.#keep(kind, piece, choice); return }
    if (this.#others.get(kind)?.choice !== choice) this.#others.set(kind, { choice, text: '' })
    this.#characters += piece.length
    this.#blocks.say(kind, piece)
  }

  #keep (kind: 'thinking' | 'text', piece: string, choice: string): void {
    const kept = this.#others.get(kind)
    if (kept === undefined) this.#others.set(kind, { choice, text: piece })
    else if (kept.choice !== choice) return
    else if (kept.text.length + piece.length > MOST_KEPT) throw new Error('another choice than the first has no end')
    else kept.text += piece
  }

  #readCall (delta: Json, choice: string): void {
    const its = isRecord(delta.function) ? delta.function : {}
    const piece = argumentsOf(its)
    let call = this.#calls.find(delta, piece, choice)
    if (call === undefined) {
      call = this.#calls.begin(delta, choice)
      this.#readOwn(call, delta)
      this.#sign()
      this.#blocks.begin(call)
    } else {
      if (call.name === '') call.name = textIn(its.name)
      this.#readOwn(call, delta)
    }
    this.#characters += piece.length
    this.#blocks.input(call, piece)
  }

  #readOwn (call: Call, delta: Json): void {
    this.#signatures?.readCall(call.id, delta)
    const own = callFields(delta, this.#exchange)
    if (own === undefined) return
    if (call.index === undefined) call.own = own
    else this.#late.push(SseEvent.of(CHAT_DELTA, { type: CHAT_DELTA, index: call.index, delta: own }))
  }

  /** What the vendor wants back of the thoughts so far stands before the words that follow them. */
  #sign (): void {
    const signature = this.#signatures?.take() ?? ''
    if (signature !== '') this.#blocks.sign(signature)
  }

  #readTop (chunk: Json, out: SseEvent[]): void {
    const top = topFields(chunk, this.#exchange)
    if (top === undefined) return
    const text = JSON.stringify(top)
    if (text === this.#top) return
    this.#top = text
    out.push(SseEvent.of(CHAT_DELTA, { type: CHAT_DELTA, top }))
  }

  #start (): SseEvent[] {
    if (this.#hasStarted) return []
    this.#hasStarted = true
    return [startOf(this.#exchange)]
  }

  /** @throws {UnfinishedAnswer} no finish reason and no usage: what made the answer has failed in words unknown here */
  #endByMark (): readonly SseEvent[] {
    const isEmpty = this.#characters === 0 && this.#calls.isEmpty
    if (this.#finish === undefined && this.#usage === undefined && !isEmpty) throw new UnfinishedAnswer()
    return this.#end()
  }

  #end (): readonly SseEvent[] {
    this.#isOver = true
    // What waited for others may follow the report that counts it; with content behind it, that may not be repeated.
    const usage = this.#characters === this.#reportedAt ? this.#usage ?? {} : {}
    for (const [kind, { text }] of this.#others) {
      this.#characters += text.length
      this.#blocks.say(kind, text)
    }
    this.#sign()
    const isTorn = !cutsCalls(this.#finish) && this.#calls.hasTornInput
    if (isTorn && this.#finish === undefined) throw new UnusableCall('half')
    // vLLM's reason for half a call is that of a whole one, with which a client would run the tool.
    const finish = isTorn ? 'max_tokens' : this.#finish
    this.#blocks.end()
    const delta = stopOf(finish, this.#vendorsStop, { hasCalls: !this.#calls.isEmpty, hasContent: this.#hasContent,
      hasRefusal: this.#hasRefusal }, this.#usage, this.#exchange)
    return [
      ...this.#start(),
      ...this.#blocks.take(),
      SseEvent.of('message_delta', { type: 'message_delta', delta, usage }),
      SseEvent.of('message_stop', { type: 'message_stop' })
    ]
  }
}
