// A whole answer, read as what its bytes are: one JSON document, or a stream of events that was not requested. And the
// reverse: a message as the events of a stream, for a client that requested one.
import type { Exchange } from '../../core/exchange.ts'
import { DECIDING, framingOf, withoutBlanks } from '../../core/framing.ts'
import { SseDecoder, SseEvent } from '../../core/sse.ts'
import type { StreamTransformer } from '../../core/plugin.ts'
import type { Upstream } from '../../core/upstream.ts'
import { asRecord, isRecord, type Json, parseJson, parseOr } from '../../base/json.ts'
import { countedBefore, isCount, laterUsage, readUsage } from '../../money/usage.ts'
import { CHAT_DELTA, chatFields, chatTop } from '../../protocols/chat.ts'
import { isError, isTerminal } from '../../protocols/messages.ts'
import type { StreamDecoder } from './dialect.ts'
import { errorEvent, UpstreamErrorBody } from './error-reply.ts'
import { dialectOf } from './index.ts'
import { callInput, textIn } from './json.ts'
import { withWholeCharacters } from './whole-characters.ts'

/** Characters of one delta: a client that may get only a part of the answer gets about that part. */
const DELTA = 4096
const BLANK_LINE = Buffer.from('\n\n')

/**
 * @returns the answer as messages style
 * @throws {UpstreamErrorBody} an error in a 200; {Error} it is no answer of the upstream's dialect
 */
export function readAnswer (bytes: Buffer, exchange: Exchange, upstream: Upstream): unknown {
  const text = bytes.toString()
  const { decodeReply } = dialectOf(upstream)
  return framingOf(text.trimStart().slice(0, DECIDING), undefined) === 'events'
    ? readEvents(bytes, exchange, upstream)
    : decodeReply(readWhole(text, bytes), exchange, upstream)
}

/** The mark at the end of a stream: some proxies put it behind JSON too. */
const MARK_AT_END = /[\r\n](?:data:)?[ \t]*\[DONE\]\s*$/

/** @throws {UpstreamErrorBody} a stream begins with an error that has no field of events; {SyntaxError} no JSON */
function readWhole (text: string, bytes: Buffer): unknown {
  try {
    return parseJson(text)
  } catch (broken) {
    const before = parseOr(text.replace(MARK_AT_END, ''))
    if (typeof before === 'object') return before
    const [first] = new SseDecoder().push(Buffer.concat([bytes, BLANK_LINE]))
    const error = first && errorEvent(first)
    throw error === undefined ? broken : new UpstreamErrorBody(error.json)
  }
}

function readEvents (bytes: Buffer, exchange: Exchange, upstream: Upstream): Json {
  const decode = withWholeCharacters(dialectOf(upstream).decodeStream(exchange, upstream))
  const decoder = new SseDecoder()
  const message = new Collector()
  const add = (made: ReturnType<StreamTransformer['event']>): boolean => {
    if (made === undefined) return false
    return made instanceof Array ? made.some((event) => message.add(event)) : message.add(made)
  }
  for (const event of decoder.push(bytes)) if (add(decode.event(event))) return message.end()
  try {
    for (const event of decoder.push(BLANK_LINE)) if (add(decode.event(event))) return message.end()
  } catch (broken) {
    if (!(broken instanceof SyntaxError)) throw broken        // half a record is no part of the answer
  }
  if (add(decode.end?.())) return message.end()
  throw new Error('the stream of the answer does not end')
}

/**
 * Finds the end of an answer that comes as events although JSON was requested: its body may stay open behind it. The
 * bytes themselves are read when it is here.
 */
export class EndOfAnswer {
  readonly #decode: StreamDecoder
  #decoder: SseDecoder | undefined
  /** it is not known yet what it is; undefined: it is */
  #start: Buffer | undefined = Buffer.alloc(0)

  constructor (exchange: Exchange, upstream: Upstream) {
    this.#decode = withWholeCharacters(dialectOf(upstream).decodeStream(exchange, upstream))
  }

  /** only usage may follow */
  get isComplete (): boolean {
    return this.#decode.isComplete === true
  }

  /** @returns whether nothing behind this chunk matters: the answer is over, an error, or broken */
  push (chunk: Buffer): boolean {
    if (this.#start === undefined) return this.#decoder !== undefined && this.#ends(this.#decoder, chunk)
    const start = this.#start = withoutBlanks(Buffer.concat([this.#start, chunk]))
    const framing = framingOf(start.toString('latin1', 0, DECIDING), undefined)
    if (framing === undefined) return false
    this.#start = undefined
    if (framing === 'whole') return false
    return this.#ends(this.#decoder = new SseDecoder(), start)
  }

  #ends (decoder: SseDecoder, chunk: Buffer): boolean {
    try {
      for (const event of decoder.push(chunk)) if (hasLast(this.#decode.event(event))) return true
      return false
    } catch {
      return true                                             // the reader of the bytes says why
    }
  }
}

function hasLast (made: ReturnType<StreamTransformer['event']>): boolean {
  if (made === undefined) return false
  return made instanceof Array ? made.some(isLast) : isLast(made)
}

function isLast (event: SseEvent): boolean {
  return isTerminal(event) || isError(event)
}

interface Block {
  readonly start: Json
  /** of its text, its thought or its input */
  readonly pieces: string[]
  signature: string
  readonly citations: unknown[]
}

/** Makes a message of the events of its stream. */
class Collector {
  #message: Json = {}
  #usage: Json = {}
  /** content came behind the last count of the output */
  #isBehind = false
  #delta: Json = {}
  #own: Record<string, unknown> | undefined
  #top: Json | undefined
  readonly #blocks = new Map<unknown, Block>()

  /** @returns whether the message is whole @throws {UpstreamErrorBody} the event is an error */
  add (event: SseEvent): boolean {
    if (isError(event)) throw new UpstreamErrorBody(event.json)
    if (isTerminal(event)) return true
    const data = asRecord(event.json)
    switch (event.event) {
      case 'message_start':
        this.#message = asRecord(data.message)
        this.#usage = asRecord(this.#message.usage)
        break
      case 'content_block_start':
        this.#blocks.set(data.index, { start: asRecord(data.content_block), pieces: [], signature: '', citations: [] })
        break
      case 'content_block_delta':
        this.#isBehind = true
        this.#addDelta(this.#blocks.get(data.index), asRecord(data.delta))
        break
      case 'message_delta':
        this.#delta = { ...this.#delta, ...asRecord(data.delta) }
        if (isRecord(data.usage)) this.#addUsage(data.usage)
        break
      case CHAT_DELTA:
        if (isRecord(data.delta)) join(this.#own ??= {}, data.delta)
        if (isRecord(data.top)) this.#top = { ...this.#top, ...data.top }
    }
    return false
  }

  #addUsage (usage: Json): void {
    const later = laterUsage(usage, readUsage(this.#usage))
    if (isCount(later.output_tokens)) this.#isBehind = false
    this.#usage = merged(this.#usage, later)
  }

  #addDelta (block: Block | undefined, delta: Json): void {
    const piece = delta.text ?? delta.thinking ?? delta.partial_json
    if (typeof piece === 'string') block?.pieces.push(piece)
    if (typeof delta.signature === 'string' && block !== undefined) block.signature += delta.signature
    if (delta.type === 'citations_delta') block?.citations.push(delta.citation)
  }

  /** @throws {Error} half a call, although the answer was not cut short */
  end (): Json {
    const { stop_reason: reason } = this.#delta
    const isShort = reason !== 'tool_use' && reason !== 'end_turn'
    return {
      ...this.#message,
      ...this.#delta,
      content: Array.from(this.#blocks.values()).flatMap((block) => whole(block, isShort) ?? []),
      usage: { ...this.#usage, ...(this.#isBehind && { [countedBefore]: true }) },
      ...(this.#own !== undefined && { [chatFields]: this.#own }),
      ...(this.#top !== undefined && { [chatTop]: this.#top })
    }
  }
}

/** Adds what a delta says: pieces of a refusal and of lists, which only this message holds. */
function join (own: Record<string, unknown>, delta: Json): void {
  for (const name in delta) {
    const before = own[name]
    const more = delta[name]
    if (Array.isArray(before) && Array.isArray(more)) for (const one of more as unknown[]) before.push(one)
    else own[name] = name === 'refusal' ? textIn(before) + textIn(more) : more
  }
}

/** The later value of each field that has one. */
function merged (usage: Json, later: Json): Json {
  const all: Record<string, unknown> = { ...usage, ...later }
  for (const name in later) all[name] = later[name] ?? usage[name]
  return all
}

/** Undefined: half a call. */
function whole ({ start, pieces, signature, citations }: Block, isShort: boolean): Json | undefined {
  const text = pieces.join('')
  switch (start.type) {
    case 'text': return { ...start, text: String(start.text ?? '') + text, ...(citations.length > 0 && { citations }) }
    case 'thinking': return { ...start, thinking: String(start.thinking ?? '') + text,
      signature: String(start.signature ?? '') + signature }
  }
  if (text === '') return start
  const input = callInput(text, isShort)
  return input && { ...start, input }
}

/** @param message as `decodeReply` of a dialect returns it */
export function eventsOf (message: Json): readonly SseEvent[] {
  const { content, stop_reason: reason, stop_sequence: sequence = null, usage, ...head } = message
  const { [chatFields]: own, [chatTop]: top } = message as { readonly [chatFields]?: Json, readonly [chatTop]?: Json }
  const blocks = content as readonly Json[]
  return [
    eventOf('message_start', { message: { ...head, content: [], stop_reason: null, stop_sequence: null,
      usage: { ...asRecord(usage), output_tokens: 0 } } }),
    ...blocks.flatMap(eventsOfBlock),
    ...(own === undefined && top === undefined ? [] : [eventOf(CHAT_DELTA, { delta: own, top })]),
    eventOf('message_delta', { delta: { stop_reason: reason, stop_sequence: sequence }, usage }),
    eventOf('message_stop', {})
  ]
}

function eventsOfBlock (block: Json, index: number): readonly SseEvent[] {
  const { start, deltas } = taken(block)
  return [
    eventOf('content_block_start', { index, content_block: start }),
    ...deltas.map((delta) => eventOf('content_block_delta', { index, delta })),
    eventOf('content_block_stop', { index })
  ]
}

/** A block as it begins, and the deltas with what was taken out. Blocks of other types are whole from their start. */
function taken (block: Json): { readonly start: Json, readonly deltas: readonly Json[] } {
  switch (block.type) {
    case 'text': {
      const citations = Array.isArray(block.citations) ? block.citations as readonly unknown[] : []
      return { start: { ...block, text: '', ...(citations.length > 0 && { citations: [] }) }, deltas: [
        ...piecesOf(block.text).map((text) => ({ type: 'text_delta', text })),
        ...citations.map((citation) => ({ type: 'citations_delta', citation }))
      ] }
    }
    case 'thinking': return { start: { ...block, thinking: '', signature: '' }, deltas: [
      ...piecesOf(block.thinking).map((thinking) => ({ type: 'thinking_delta', thinking })),
      { type: 'signature_delta', signature: block.signature }
    ] }
    case 'tool_use':
    case 'server_tool_use':
    case 'mcp_tool_use': return { start: { ...block, input: {} },
      deltas: piecesOf(JSON.stringify(block.input)).map((json) => ({ type: 'input_json_delta', partial_json: json })) }
  }
  return { start: block, deltas: [] }
}

/** Cuts no character in two. */
function piecesOf (text: unknown): readonly string[] {
  return typeof text === 'string' ? text.match(PIECE) ?? [] : []
}

const PIECE = new RegExp(`[^]{1,${DELTA}}`, 'gu')

function eventOf (type: string, fields: object): SseEvent {
  return SseEvent.of(type, { type, ...fields })
}
