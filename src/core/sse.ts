// Server-Sent Events (WHATWG HTML 9.2): bytes to events and back. The only parser of the wire format.

import { isAscii } from 'node:buffer'

const LF = 10
const CR = 13

/**
 * One event. Made from bytes it is a view on them, and is written as those bytes unless it is replaced; text and JSON
 * are made on demand.
 */
export class SseEvent {
  /** the `event:` line, or '' without one */
  readonly event: string
  readonly data: string
  #source: Buffer | undefined
  #start: number
  #end: number
  #json: unknown

  /** @param source holds the event's bytes from `start` to `end`, the blank line included, with LF */
  constructor (event: string, data: string, source?: Buffer, start = 0, end = source?.length ?? 0) {
    this.event = event
    this.data = data
    this.#source = source
    this.#start = start
    this.#end = end
  }

  /** An event whose data is JSON. @throws {TypeError} the value has no JSON, such as undefined */
  static of (event: string, json: unknown): SseEvent {
    const data = JSON.stringify(json) as string | undefined
    if (data === undefined) throw new TypeError(`the event "${event}" has no data that JSON can say`)
    const made = new SseEvent(event, data)
    made.#json = json
    return made
  }

  /** The bytes of consecutive events. Those that are adjacent in one buffer are written without a copy. */
  static join (events: readonly SseEvent[]): Buffer {
    const [first] = events
    if (first === undefined) return Buffer.alloc(0)
    const source = first.#source
    if (source === undefined) return Buffer.concat(events.map(({ bytes }) => bytes))
    let end = first.#start
    for (const event of events) {
      if (event.#source !== source || event.#start !== end) return Buffer.concat(events.map(({ bytes }) => bytes))
      end = event.#end
    }
    return first.#start === 0 && end === source.length ? source : source.subarray(first.#start, end)
  }

  /** @throws {SyntaxError} the data is not JSON */
  get json (): unknown {
    return this.#json ??= JSON.parse(this.data)
  }

  /** The bytes on the wire, the blank line included; always with LF. */
  get bytes (): Buffer {
    if (this.#source === undefined) {
      this.#source = Buffer.from(
        (this.event === '' ? '' : `event: ${this.event}\n`) + `data: ${this.data.replaceAll('\n', '\ndata: ')}\n\n`
      )
      this.#end = this.#source.length
    }
    return this.#source.subarray(this.#start, this.#end)
  }
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
    if (this.#started && this.#rest === undefined && !this.#afterCr && isAscii(chunk)) return this.#pushAscii(chunk)
    return this.#push(this.#normalise(chunk))
  }

  #push (chunk: Buffer): SseEvent[] {
    if (chunk.length === 0) return []
    if (this.#rest !== undefined && !this.#endsIn(chunk)) {
      this.#more.push(chunk)
      this.#restLength += chunk.length
      return []
    }
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, ...this.#more, chunk])
    const events: SseEvent[] = []
    // A blank line can only end at or after the new bytes, or one byte before them.
    let from = Math.max(0, this.#restLength - 1)
    let start = 0
    for (;;) {
      const blank = bytes.indexOf('\n\n', from, 'latin1')
      if (blank === -1) break
      const end = blank + 2
      const event = parseEvent(bytes.subarray(start, end))
      if (event !== undefined) events.push(event)
      start = from = end
    }
    this.#keep(bytes, start)
    return events
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

  /** The common case: whole events in ASCII. One text for all of them, in which offsets are those of the bytes. */
  #pushAscii (chunk: Buffer): SseEvent[] {
    const text = chunk.toString('latin1')
    if (text.includes('\r')) return this.#push(this.#normalise(chunk))
    const events: SseEvent[] = []
    let start = 0
    for (let blank = text.indexOf('\n\n'); blank !== -1; blank = text.indexOf('\n\n', start)) {
      const end = blank + 2
      const event = parsePlain(text, start, blank, chunk) ?? parseEvent(chunk.subarray(start, end))
      if (event !== undefined) events.push(event)
      start = end
    }
    this.#keep(chunk, start)
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
        return Buffer.alloc(0)
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

/** Reads the most common records, "event: x\ndata: y" or "data: y" without a further line. */
function parsePlain (text: string, start: number, blank: number, source: Buffer): SseEvent | undefined {
  if (text.startsWith('data: ', start) && text.indexOf('\n', start) === blank) {
    return new SseEvent('', text.slice(start + 6, blank), source, start, blank + 2)
  }
  if (!text.startsWith('event: ', start)) return undefined
  const line = text.indexOf('\n', start)
  if (!text.startsWith('data: ', line + 1) || text.indexOf('\n', line + 1) !== blank) return undefined
  return new SseEvent(text.slice(start + 7, line), text.slice(line + 7, blank), source, start, blank + 2)
}

/** Reads one record: bytes with LF, ending in a blank line. */
function parseEvent (raw: Buffer): SseEvent | undefined {
  const text = raw.toString('utf8')
  const plain = parsePlain(text, 0, text.length - 2, raw)
  if (plain !== undefined) return new SseEvent(plain.event, plain.data, raw)
  let event = ''
  let data: string | undefined
  for (const line of text.split('\n')) {
    const colon = line.indexOf(':')
    if (colon === 0) continue                                  // a comment
    const field = colon === -1 ? line : line.slice(0, colon)
    const value = colon === -1 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1)
    if (field === 'event') event = value
    else if (field === 'data') data = data === undefined ? value : data + '\n' + value
  }
  return data === undefined ? undefined : new SseEvent(event, data)
}
