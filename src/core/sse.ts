// Server-Sent Events (WHATWG HTML 9.2): bytes to events and back. The only parser of the wire format.

import { isUtf8 } from 'node:buffer'
import { parseEvent } from '../base/json.ts'

const LF = 10
const CR = 13
const BLANK_LINE = Buffer.from('\n\n')
const NOTHING = Buffer.alloc(0)

/**
 * A piece of an answer in messages style, of which there is one for each token: its text stands between fixed words as
 * it is, unless JSON has to escape it. Behind it may be spaces, with which a vendor hides the sizes of its tokens.
 */
const DELTA = new RegExp(
  String.raw`event: content_block_delta\ndata: \{"type":"content_block_delta","index":[0-9],"delta":` +
    String.raw`\{"type":"(?:text_delta","text|thinking_delta","thinking)":"[^"\\\u0000-\u001F]*"\} *\}\n\n`,
  'y'
)
/** Offsets in it, and what stands between the kind of a delta and its text. */
const DATA_AT = 'event: content_block_delta\ndata: '.length
const INDEX_AT = DATA_AT + '{"type":"content_block_delta","index":'.length
const KIND_AT = INDEX_AT + '0,"delta":{"type":"'.length
const TEXT = 'text_delta","text":"'
const THINKING = 'thinking_delta","thinking":"'
const SHORTEST_END = '"}}\n\n'
const [ZERO, QUOTE] = [48, 34]

/**
 * One event. Made from bytes it is a view on them, and is written as those bytes unless it is replaced; its data and
 * their JSON are made on demand.
 */
export class SseEvent {
  /** the `event:` line, or '' without one */
  readonly event: string
  #data: string | undefined
  /** holds the event on the wire, from `start` to `end`, the blank line included, with LF */
  #source: string | Buffer | undefined
  #start: number
  #end: number
  #json: unknown

  /**
   * @param data undefined: of a delta, in the place that it has in each of them
   * @param source what it was read from: a text where that is UTF-8
   */
  constructor (
    event: string, data: string | undefined, source?: string | Buffer, start = 0, end = source?.length ?? 0
  ) {
    this.event = event
    this.#data = data
    this.#source = source
    this.#start = start
    this.#end = end
  }

  /** Reads the delta that begins there, without a parser. Undefined: it is another event, or not of the usual form. */
  static deltaAt (text: string, start: number): SseEvent | undefined {
    DELTA.lastIndex = start
    if (!DELTA.test(text)) return undefined
    const end = DELTA.lastIndex
    let quote = end - SHORTEST_END.length
    while (text.charCodeAt(quote) !== QUOTE) quote--
    const kind = start + KIND_AT
    const made = new SseEvent('content_block_delta', undefined, text, start, end)
    made.#json = {
      type: 'content_block_delta',
      index: text.charCodeAt(start + INDEX_AT) - ZERO,
      delta: text[kind + 1] === 'e'
        ? { type: 'text_delta', text: text.slice(kind + TEXT.length, quote) }
        : { type: 'thinking_delta', thinking: text.slice(kind + THINKING.length, quote) }
    }
    return made
  }

  get data (): string {
    return this.#data ??= (this.#source as string).slice(this.#start + DATA_AT, this.#end - 2)
  }

  /** At least as many as the characters of its data; known without making them. */
  get size (): number {
    return this.#source === undefined ? this.data.length : this.#end - this.#start
  }

  /** An event whose data is JSON. @throws {TypeError} the value has no JSON, such as undefined */
  static of (event: string, json: unknown): SseEvent {
    const data = JSON.stringify(json) as string | undefined
    if (data === undefined) throw new TypeError(`the event "${event}" has no data that JSON can say`)
    const made = new SseEvent(event, data)
    made.#json = json
    return made
  }

  /**
   * Consecutive events on the wire: bytes where some came as bytes that are no UTF-8, else a text, which is written in
   * one call. Those that are adjacent in one source are taken out of it together.
   */
  static join (events: readonly SseEvent[]): string | Buffer {
    let text = ''
    let pieces: Buffer[] | undefined
    for (let i = 0; i < events.length;) {
      const first = events[i++]!
      const source = first.#wire()
      let end = first.#end
      for (; i < events.length && events[i]!.#source === source && events[i]!.#start === end; i++) end = events[i]!.#end
      const run = cut(source, first.#start, end)
      if (typeof run === 'string') { text += run; continue }
      if (text !== '') (pieces ??= []).push(Buffer.from(text))
      text = ''
      ;(pieces ??= []).push(run)
    }
    if (pieces === undefined) return text
    if (text !== '') pieces.push(Buffer.from(text))
    return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
  }

  /** @throws {SyntaxError} the data is not JSON */
  get json (): unknown {
    return this.#json ??= parseEvent(this.data)
  }

  /** The bytes on the wire, the blank line included; always with LF. */
  get bytes (): Buffer {
    const wire = cut(this.#wire(), this.#start, this.#end)
    return typeof wire === 'string' ? Buffer.from(wire) : wire
  }

  #wire (): string | Buffer {
    if (this.#source === undefined) {
      const { event, data } = this
      this.#source = `${event === '' ? '' : `event: ${event}\n`}data: ${
        data.includes('\n') ? data.replaceAll('\n', '\ndata: ') : data}\n\n`
      this.#end = this.#source.length
    }
    return this.#source
  }
}

function cut (source: string | Buffer, start: number, end: number): string | Buffer {
  return typeof source === 'string' ? source.slice(start, end) : source.subarray(start, end)
}

/**
 * Cuts a stream of bytes into events. Holds at most one unfinished event.
 * The same events come out however the bytes were cut, and for LF, CRLF and CR (a CR LF split between chunks included).
 */
export class SseDecoder {
  /** an unfinished event; later chunks that do not end it are joined only when its end comes */
  #rest: Buffer | undefined
  #more: Buffer[] = []
  #restLength = 0
  #started = false
  #afterCr = false
  readonly #limit: number

  /** @param limit most bytes of one event */
  constructor (limit = 16 * 1024 * 1024) {
    this.#limit = limit
  }

  /**
   * @returns the events that this chunk completes; comments and empty records are left out
   * @throws {Error} an event grew past the limit; the events before it were returned
   */
  push (chunk: Buffer): SseEvent[] {
    // Thrown by the chunk behind the one that passes the limit: the events that one completed are not lost.
    if (this.#restLength > this.#limit) throw new Error(`an event of more than ${this.#limit} bytes`)
    if (this.#started && this.#rest === undefined && !this.#afterCr && isUtf8(chunk)) {
      const text = chunk.toString()
      if (!text.includes('\r')) return this.#readText(text, chunk)
    }
    const bytes = this.#join(this.#normalise(chunk))
    if (bytes.length === 0) return []
    return isUtf8(bytes) ? this.#readText(bytes.toString(), bytes) : this.#readBytes(bytes)
  }

  /** @returns the chunk behind the unfinished event; nothing where that does not end in it */
  #join (chunk: Buffer): Buffer {
    if (this.#rest === undefined || chunk.length === 0) return chunk
    if (this.#endsIn(chunk)) return Buffer.concat([this.#rest, ...this.#more, chunk])
    this.#more.push(chunk)
    this.#restLength += chunk.length
    return NOTHING
  }

  /** Whether the unfinished event ends in this chunk, or between it and the one before. */
  #endsIn (chunk: Buffer): boolean {
    const last = this.#more.at(-1) ?? this.#rest!
    return chunk.includes('\n\n', 0, 'latin1') || (chunk[0] === LF && last[last.length - 1] === LF)
  }

  #keep (bytes: Buffer, start: number): void {
    this.#rest = start === bytes.length ? undefined : start === 0 ? bytes : bytes.subarray(start)
    this.#more = []
    this.#restLength = bytes.length - start
  }

  /** The common case: UTF-8, with one text for all events. */
  #readText (text: string, bytes: Buffer): SseEvent[] {
    const events: SseEvent[] = []
    let start = 0
    for (;;) {
      const delta = SseEvent.deltaAt(text, start)
      if (delta !== undefined) {
        events.push(delta)
        start += delta.size
        continue
      }
      const blank = text.indexOf('\n\n', start)
      if (blank === -1) break
      const end = blank + 2
      const event = parsePlain(text, start, blank, text, start, end)
      if (event !== undefined) events.push(event)
      else events.push(...parseLines(text.slice(start, end)))
      start = end
    }
    this.#keep(bytes, bytes.length - (start === text.length ? 0 : Buffer.byteLength(text.slice(start))))
    return events
  }

  #readBytes (bytes: Buffer): SseEvent[] {
    const events: SseEvent[] = []
    let start = 0
    for (let blank = bytes.indexOf(BLANK_LINE); blank !== -1; blank = bytes.indexOf(BLANK_LINE, start)) {
      const end = blank + BLANK_LINE.length
      const text = bytes.toString('utf8', start, end)
      const event = parsePlain(text, 0, text.length - 2, bytes, start, end)
      if (event !== undefined) events.push(event)
      else events.push(...parseLines(text))
      start = end
    }
    this.#keep(bytes, start)
    return events
  }

  /** Whether the stream may end here: no event is half received. */
  get isBetweenEvents (): boolean {
    return this.#rest === undefined || /^\s*$/.test(Buffer.concat([this.#rest, ...this.#more]).toString('latin1'))
  }

  /** Removes a byte order mark, turns CRLF and CR into LF. Costs one memchr where the stream has neither. */
  #normalise (chunk: Buffer): Buffer {
    let bytes = chunk
    if (!this.#started && bytes.length > 0) {
      if (this.#rest !== undefined) {
        bytes = Buffer.concat([this.#rest, bytes])
        this.#rest = undefined
        this.#restLength = 0
      }
      if (bytes[0] === 0xEF && bytes.length < 3) {
        this.#rest = bytes
        this.#restLength = bytes.length
        return NOTHING
      }
      this.#started = true
      if (bytes[0] === 0xEF && bytes[1] === 0xBB && bytes[2] === 0xBF) bytes = bytes.subarray(3)
    }
    if (!this.#afterCr && bytes.indexOf(CR) === -1) return bytes
    const out = Buffer.allocUnsafe(bytes.length)
    let length = 0
    for (const byte of bytes) {
      if (byte === LF && this.#afterCr) { this.#afterCr = false; continue }
      this.#afterCr = byte === CR
      out[length++] = byte === CR ? LF : byte
    }
    return out.subarray(0, length)
  }
}

/**
 * Reads the most common records, "event: x\ndata: y" or "data: y" without a further line.
 * @param text holds the record from `at` to its blank line
 * @param source holds it on the wire, from `start` to `end`
 */
function parsePlain (
  text: string, at: number, blank: number, source: string | Buffer, start: number, end: number
): SseEvent | undefined {
  if (text.startsWith('data: ', at) && text.indexOf('\n', at) === blank) {
    return new SseEvent('', text.slice(at + 6, blank), source, start, end)
  }
  if (!text.startsWith('event: ', at)) return undefined
  const line = text.indexOf('\n', at)
  if (!text.startsWith('data: ', line + 1) || text.indexOf('\n', line + 1) !== blank) return undefined
  return new SseEvent(text.slice(at + 7, line), text.slice(line + 7, blank), source, start, end)
}

/**
 * Reads one record: lines that end in LF, the last one blank. Also what servers write that have failed: a field `error`
 * (llama.cpp), and JSON without a field, in one line or in many.
 */
function parseLines (text: string): readonly SseEvent[] {
  let event = ''
  let data: string | undefined
  let error: SseEvent | undefined
  let isErrorFirst = false
  const bare: string[] = []
  for (const line of text.split('\n')) {
    const colon = line.indexOf(':')
    if (colon === 0) continue                                  // a comment
    const field = colon === -1 ? line : line.slice(0, colon)
    const value = colon === -1 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
    const isBare = line[0] === '{' || line[0] === '['
    if (field === 'event') event = value
    else if (field === 'data') data = data === undefined ? value : data + '\n' + value
    else if (field === 'error') error ??= new SseEvent('error', value)
    else if (isBare || bare.length > 0) bare.push(line)
    isErrorFirst ||= data === undefined && (isBare || field === 'error')
  }
  if (bare.length > 0) {
    error ??= new SseEvent('', /[\]}]$/.test(bare[0]!.trimEnd()) ? bare[0]! : bare.join('\n'))
  }
  if (data === undefined && event === 'error') data = ''
  const events = data === undefined ? [] : [new SseEvent(event, data)]
  return error === undefined ? events : isErrorFirst ? [error, ...events] : [...events, error]
}
