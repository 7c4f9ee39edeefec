// Completes the events of a message, in the order that clients expect (src/README.md#message-shape): vendors that
// imitate the style leave out events, or fields of them. A complete event passes as the bytes that came.
import type { Exchange } from '../../../core/exchange.ts'
import { asRecord, isRecord, type Json } from '../../../base/json.ts'
import { isCount, withoutCounts } from '../../../money/usage.ts'
import { SseEvent } from '../../../core/sse.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { errorEvent, UnfinishedAnswer, UnusableCall } from '../error-reply.ts'
import type { StreamDecoder } from '../dialect.ts'
import type { JsonEnd } from '../json-end.ts'
import { reportOf } from '../omissions.ts'
import { BLOCK_OF, deltaOf, type OpenBlock, OpenBlocks } from './open-blocks.ts'
import { cutsCalls, isCounted, stopReason } from '../finish.ts'
import { finishOf, headOf } from './reply.ts'

/** The field with the content of a delta, by its type. */
const FIELD_OF: Readonly<Record<string, string>> = { text_delta: 'text', thinking_delta: 'thinking',
  input_json_delta: 'partial_json', signature_delta: 'signature' }

const BEHIND_START = new Set(['content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta',
  'message_stop'])
const KNOWN = new Set([...BEHIND_START, 'message_start', 'ping', 'error'])

/** Most characters of a signature: beyond any that is meant. */
const LONGEST_SIGNATURE = 4 * 1024 * 1024

type Out = SseEvent | readonly SseEvent[] | undefined

/** The parts of a message_delta, from all events so far. */
interface Ending {
  readonly data: Json
  readonly delta: Json
  readonly usage: Json
}

export function toEvents (exchange: Exchange, upstream: Upstream): StreamDecoder {
  return new MessageStream(exchange, upstream)
}

class MessageStream implements StreamDecoder {
  readonly #exchange: Exchange
  readonly #blocks: OpenBlocks
  #hasStarted = false
  /** the vendor's id of the message; undefined: its start has not come */
  #id: unknown
  #isCounted = false
  #hasText = false
  /** last stop reason, whether the client has it or not */
  #reason: string | null | undefined
  /** finish in `message_start`: an answer whose calls were made by a program of the model's is whole from its start */
  #early: string | undefined
  /** an incomplete ending, held until more comes, or the stream ends */
  #unsaid: Ending | undefined
  #hasEnd = false

  constructor (exchange: Exchange, upstream: Upstream) {
    this.#exchange = exchange
    this.#blocks = new OpenBlocks(exchange, upstream)
  }

  event (event: SseEvent): Out {
    const error = errorEvent(event)
    if (error !== undefined) return error
    // Before any other reader of the event: an event that is not JSON fails the attempt, or breaks the stream, whatever
    // would read it.
    const data = event.json
    if (!isRecord(data)) throw new Error('an event holds no object')
    const name = nameOf(event, data)
    if (name === '') return undefined
    if (name === 'message_start') {
      if (!isRecord(data.message)) throw new Error('message_start holds no message')
      return this.#start(data)
    }
    const named = withName(name, event, data)
    if (this.#hasStarted || !BEHIND_START.has(name)) return this.#read(name, named, data)
    const before = this.#start({}) as SseEvent
    const made = this.#read(name, named, data)
    return made === undefined ? before : made instanceof SseEvent ? [before, made] : [before, ...made]
  }

  /** The stop reason and the count are here; only the last event is missing. */
  get isComplete (): boolean {
    return this.#hasEnd
  }

  /** The end of the stream. Without a stop reason the answer is incomplete. */
  end (): readonly SseEvent[] {
    if (this.#reason === undefined) return []
    return [...this.#ending(), SseEvent.of('message_stop', { type: 'message_stop' })]
  }

  /**
   * Further starts are dropped, except for what they report.
   * @throws {Error} another message begins inside of this one: what was spliced is none
   */
  #start ({ message: said, ...data }: Json): Out {
    const message = isRecord(said) ? said : {}
    this.#isCounted ||= isCounted(message.usage)
    if (said !== undefined) this.#checkStart(message.id ?? '')
    if (this.#hasStarted) {
      const { output_tokens: _, ...usage } = isRecord(message.usage) ? message.usage : {}
      if (Object.keys(usage).length === 0) return undefined
      this.#unsaid = this.#join({}, {}, usage)
      return reportOf(usage)
    }
    this.#hasStarted = true
    this.#early = finishOf(message)
    const { content, usage } = message
    const whole = {
      ...message,
      ...headOf(message, this.#exchange),
      content: [],
      stop_reason: message.stop_reason ?? null,
      stop_sequence: message.stop_sequence ?? null,
      usage: asRecord(usage)
    }
    const event = SseEvent.of('message_start', { ...data, type: 'message_start', message: whole })
    // As of a turn whose calls a program of the model's has made: they are blocks like all others.
    return Array.isArray(content) && content.length > 0
      ? [event, ...content.flatMap((block: unknown, i) =>
        [...this.#blocks.begin(block, i), ...this.#blocks.endAll()])]
      : event
  }

  #checkStart (id: unknown): void {
    const isOther = id !== '' && (this.#id ?? '') !== '' && id !== this.#id
    if (isOther || (this.#id !== undefined && this.#blocks.last !== undefined)) {
      throw new Error('another message begins inside the answer')
    }
    if (id !== '' || this.#id === undefined) this.#id = id
  }

  #read (name: string, event: SseEvent, data: Json): Out {
    switch (name) {
      case 'content_block_start': {
        const made = this.#blocks.begin(data.content_block, data.index ?? undefined, event, data)
        return made.length < 2 ? made[0] : made
      }
      case 'content_block_delta': return this.#readDelta(event, data)
      case 'content_block_stop': return this.#readStop(event, data)
      case 'message_delta': return this.#readEnd(event, data)
      case 'message_stop': return this.#readLast(event)
    }
    return event
  }

  #readDelta (event: SseEvent, data: Json): Out {
    if (!isRecord(data.delta)) throw new Error('a delta holds none')
    const said = data.delta
    const type = said.type ?? Object.keys(FIELD_OF).find((one) => Object.hasOwn(said, FIELD_OF[one]!))
    if (typeof type !== 'string') return undefined
    const field = FIELD_OF[type]
    if (field !== undefined && (said[field] ?? undefined) === undefined) return undefined
    if (field !== undefined && typeof said[field] !== 'string') throw new Error(`"${field}" of a delta is no text`)
    if (field !== undefined && field !== 'signature') this.#hasText ||= said[field] !== ''
    this.#hasEnd = false                                      // more content behind it: the end comes again
    const block = this.#blocks.find(data.index, type)
    if (block !== undefined) {
      if (block.call !== undefined && type === 'input_json_delta' && !addInput(block.call.input, said.partial_json)) {
        return undefined
      }
      if (type === 'signature_delta' && block.type === 'thinking' && block.signature + String(said.signature) !== '') {
        return sign(block, String(said.signature))
      }
      return block.index === data.index && said.type === type
        ? event
        : SseEvent.of('content_block_delta', { ...data, type: 'content_block_delta', index: block.index,
          delta: { ...said, type } })
    }
    const begun = BLOCK_OF[type]
    if (type === 'input_json_delta') return withoutCall(said.partial_json)
    if (begun === undefined) throw new Error('a delta belongs to no content block')
    const before = this.#blocks.begin({ type: begun }, data.index)
    const last = this.#blocks.last!
    if (type !== 'signature_delta') return [...before, deltaOf(last.index, { ...said, type })]
    sign(last, String(said.signature))
    return before
  }

  #readStop (event: SseEvent, data: Json): Out {
    const block = this.#blocks.find(data.index)
    if (block === undefined) return undefined
    return this.#blocks.end(block, block.index === data.index ? event : undefined)
  }

  #readEnd (event: SseEvent, data: Json): Out {
    const said = isRecord(data.delta) ? data.delta : {}
    const usage = isRecord(data.usage) ? data.usage : {}
    const finish = finishOf(said)
    if (finish === 'error') {
      return [reportOf(usage),
        SseEvent.of('error', { type: 'error', error: { type: 'api_error', message: String(said.stop_reason) } })]
    }
    if (finish !== undefined) this.#reason = this.#reasonFor(finish)
    this.#isCounted ||= isCounted(usage)
    if (this.#unsaid === undefined && finish !== undefined && isCount(usage.output_tokens)) {
      this.#hasEnd = true
      const ended = this.#blocks.endAll()
      const whole = this.#reason === said.stop_reason ? event
        : SseEvent.of('message_delta', { ...data, type: 'message_delta',
          delta: { ...said, stop_reason: this.#reason } })
      return ended.length === 0 ? whole : [...ended, whole]
    }
    this.#unsaid = this.#join(data, said, usage)
    return Object.keys(usage).length > 0 ? reportOf(usage) : undefined
  }

  /** @throws {UnfinishedAnswer} there was no stop reason, which every whole answer has */
  #readLast (event: SseEvent): Out {
    const isEmpty = !this.#hasText && !this.#blocks.hasCalls
    if (this.#early !== undefined) this.#reason ??= this.#reasonFor(this.#early)
    if (!this.#hasEnd && this.#unsaid === undefined && !isEmpty && this.#reason === undefined) {
      throw new UnfinishedAnswer()
    }
    const before = this.#ending()
    return before.length === 0 ? event : [...before, event]
  }

  /** What is missing before the last event. @throws {UnusableCall} half a call came behind the stop reason */
  #ending (): SseEvent[] {
    const ended = this.#blocks.endAll()
    if (this.#unsaid === undefined && this.#hasEnd) return ended
    if (typeof this.#reason === 'string') this.#checkCalls(this.#reason)
    ended.push(this.#wholeEnd(this.#unsaid ?? this.#join({}, {}, {})))
    return ended
  }

  /** Without counts: each was reported when it came, and there may be more output now. */
  #wholeEnd ({ data, delta, usage }: Ending): SseEvent {
    return SseEvent.of('message_delta', {
      ...data, type: 'message_delta',
      delta: { ...delta, stop_reason: this.#reason ?? this.#reasonFor(undefined),
        stop_sequence: delta.stop_sequence ?? null },
      usage: withoutCounts(usage)
    })
  }

  /** @throws {UnusableCall} half a call, although the answer was not cut short: a client would run the tool with it */
  #reasonFor (finish: string | undefined): string | null {
    this.#checkCalls(finish)
    const { hasCalls, hasContent } = this.#blocks
    return stopReason(finish, hasCalls, hasContent || this.#hasText, this.#isCounted)
  }

  #checkCalls (finish: string | undefined): void {
    const { flaw } = this.#blocks
    if (flaw !== undefined && !cutsCalls(finish)) throw new UnusableCall(flaw)
  }

  /** Merges endings: later values replace earlier ones. */
  #join (data: Json, said: Json, usage: Json): Ending {
    const given = Object.fromEntries(Object.entries(said).filter(([, value]) => value !== null && value !== undefined))
    return { data: { ...this.#unsaid?.data, ...data }, delta: { ...this.#unsaid?.delta, ...given },
      usage: { ...this.#unsaid?.usage, ...usage } }
  }
}

/** @returns whether a client gets the piece @throws {UnusableCall} it is behind the end of the input */
function addInput (input: JsonEnd, piece: unknown): boolean {
  if (typeof piece !== 'string') return true
  if (input.isBlank && piece.trim() === 'null') return false
  const rest = input.isWhole ? piece : piece.slice(input.read(piece))
  if (rest.trim() !== '') throw new UnusableCall('tail')
  return true
}

/** The input of a call that did not begin, because it has no name. @throws {UnusableCall} it is one */
function withoutCall (piece: unknown): undefined {
  if (typeof piece !== 'string' || piece.trim() !== '') throw new UnusableCall('nameless')
}

/** Keeps the signature until its block ends. Some vendors say it whole twice: in the block's start, then here. */
function sign (block: OpenBlock, piece: string): undefined {
  if (piece !== block.signature) block.signature += piece
  if (block.signature.length > LONGEST_SIGNATURE) throw new Error('the signature of a thought has no end')
}

function nameOf ({ event }: SseEvent, { type }: Json): string {
  return typeof type === 'string' && !KNOWN.has(event) && (event === '' || KNOWN.has(type)) ? type : event
}

/**
 * Official clients drop records without an `event:` line, and read the type of those with one. An event of an unknown
 * type keeps its own.
 */
function withName (name: string, event: SseEvent, data: Json): SseEvent {
  if (event.event === name && (data.type === name || !KNOWN.has(name))) return event
  return data.type === name ? new SseEvent(name, event.data) : SseEvent.of(name, { ...data, type: name })
}
