// Reads answers of HTTP/1.1 (RFC 9112) that leave nothing to interpretation. Anything else is not for the lane: the
// reader says so, and what undici's parser has to be given to go on from there.
import { type IncomingHttpHeaders, maxHeaderSize } from 'node:http'

const HTAB = 0x09
const LF = 0x0A
const CR = 0x0D
const SP = 0x20
const COLON = 0x3A
const A = 0x41
const Z = 0x5A

/** Most bytes of a head: it is no longer than undici would take, whose count leaves out what is between the fields. */
const HEAD_BYTES = Math.min(16_384, maxHeaderSize)
/** Most digits of a chunk's size, so that it is a whole number without any care. */
const SIZE_DIGITS = 8

/** Milliseconds that a connection waits for its next request, and what a hint of the upstream is shortened by. */
const IDLE_MS = 4000
const HINT_MARGIN_MS = 2000
const IDLE_MS_AT_MOST = 600_000

const START = 'HTTP/1.1 '
/** Where the reason begins, behind the three digits and a space. */
const REASON_AT = START.length + 4
/** A chunk of one byte, in the place of one whose bytes were delivered. */
const DELIVERED_CHUNK = Buffer.from('1\r\n.')

/** By character: of a name (RFC 9110 5.6.2), of a value (5.5) that is no space, a space. */
const NAME = 1
const VISIBLE = 2
const SPACE = 4
const KINDS = Uint8Array.from({ length: 256 }, (_, code) =>
  (/[!#$%&'*+\-.^_`|~0-9A-Za-z]/.test(String.fromCharCode(code)) ? NAME : 0) |
  ((code > SP && code < 0x7F) || code > 0x7F ? VISIBLE : 0) | (code === SP || code === HTAB ? SPACE : 0))

const NO_DIGIT = 16
const DIGITS = Uint8Array.from({ length: 256 }, (_, code) => {
  const digit = Number.parseInt(String.fromCharCode(code), 16)
  return Number.isNaN(digit) ? NO_DIGIT : digit
})

/** What comes next. `delimiter`: the end of the line behind a chunk's bytes. */
type Phase = 'head' | 'bytes' | 'size' | 'chunk' | 'delimiter' | 'over' | 'foreign'

/** Offsets that are none: the read ends before the element does, or the element is not for the lane. */
const UNFINISHED = -1
const FOREIGN = -2

/** Where undici's parser takes over. */
export interface Handed {
  /** the reader has said the head */
  readonly hasHead: boolean
  /** what it is given: the head, and the bytes from the last place on at which it is in the same state */
  readonly replay: readonly Buffer[]
  /** bytes of the body in `replay` that were delivered already */
  readonly delivered: number
}

/** Reads one answer after the other, each from the beginning of a read on. */
export class AnswerReader {
  phase: Phase = 'head'
  status = 0
  /** of an answer whose head was read and not taken yet */
  headers: IncomingHttpHeaders | undefined
  /** all that the last read brought of the body, a copy; undefined: nothing, or it was taken */
  body: Buffer | undefined
  /** bytes that came behind the end, with the same read */
  excess = 0
  /** milliseconds that the connection may wait for its next request; 0: it is closed behind this answer */
  idleMs = IDLE_MS
  /** `Connection: close` */
  closes = false
  /** present: the phase is `foreign` */
  handed: Handed | undefined
  isChunked = false
  /** bytes that are missing of the body, or of the chunk */
  #missing = 0
  /** head of a chunked answer */
  #head = ''
  /** beginning of a size or a delimiter whose end did not come with the same read */
  #kept: Buffer | undefined

  /** Gets ready for the next answer. */
  reset (): void {
    this.phase = 'head'
    this.headers = this.body = this.handed = this.#kept = undefined
    this.excess = 0
    this.#head = ''
  }

  /**
   * Reads what one read of the socket brought.
   * @param bytes read before the call returns: they may be written over then
   * @param length of what was read, from the beginning of `bytes`
   */
  read (bytes: Buffer, length: number): void {
    let at = 0
    if (this.#kept !== undefined) {
      bytes = Buffer.concat([this.#kept, bytes.subarray(0, length)])
      length = bytes.length
      this.#kept = undefined
    }
    if (this.phase === 'head') {
      at = this.#readHead(bytes, length)
      if (at < 0) {
        this.phase = 'foreign'
        this.handed = { hasHead: false, replay: [Buffer.from(bytes.subarray(0, length))], delivered: 0 }
        return
      }
    }
    if (this.isChunked) { this.#readChunks(bytes, at, length); return }
    const taken = Math.min(this.#missing, length - at)
    if (taken > 0) this.body = copied(bytes, at, at + taken)
    this.#missing -= taken
    if (this.#missing > 0) return
    this.phase = 'over'
    this.excess = length - at - taken
  }

  #readChunks (bytes: Buffer, at: number, length: number): void {
    let all: Buffer | undefined
    let size = 0
    let from = 0                                              // of the first chunk, which mostly is the only one
    let to = 0
    for (;;) {
      const start = at
      if (this.phase === 'chunk') {
        at = Math.min(at + this.#missing, length)
        this.#missing -= at - start
        if (to === 0) { from = start; to = at }
        else {
          if (all === undefined) {
            all = Buffer.allocUnsafe(length - from)
            size = bytes.copy(all, 0, from, to)
          }
          size += bytes.copy(all, size, start, at)
        }
        if (this.#missing > 0) break
        this.phase = 'delimiter'
        continue
      }
      at = this.phase === 'size' ? this.#readSize(bytes, at, length) : readDelimiter(bytes, at, length)
      if (at === UNFINISHED) {
        if (start < length) this.#kept = copied(bytes, start, length)
        break
      }
      if (at === FOREIGN) { this.#handOver(bytes, start, length); break }
      if (this.phase === 'delimiter') { this.phase = 'size'; continue }
      if (this.#missing > 0) { this.phase = 'chunk'; continue }
      this.phase = 'over'
      this.excess = length - at
      break
    }
    if (all !== undefined) this.body = all.subarray(0, size)
    else if (to > from) this.body = copied(bytes, from, to)
  }

  /** @returns offset behind the size, and of the last one behind the end of the answer */
  #readSize (bytes: Buffer, start: number, end: number): number {
    let size = 0
    let at = start
    for (; at < end; at++) {
      const digit = DIGITS[bytes[at]!]!
      if (digit === NO_DIGIT) break
      if (at - start === SIZE_DIGITS) return FOREIGN
      size = size * 16 + digit
    }
    if (at === end) return size === 0 && at - start > 1 ? FOREIGN : UNFINISHED
    if (at === start || (size === 0 && at - start > 1)) return FOREIGN
    this.#missing = size
    const behind = readDelimiter(bytes, at, end)
    return size > 0 || behind < 0 ? behind : readDelimiter(bytes, behind, end)
  }

  /** Undici's parser is in the same state in front of each size, and in front of the delimiter of each chunk. */
  #handOver (bytes: Buffer, at: number, length: number): void {
    const isDelimiter = this.phase === 'delimiter'
    this.phase = 'foreign'
    this.handed = {
      hasHead: true,
      replay: [Buffer.from(this.#head, 'latin1'), ...(isDelimiter ? [DELIVERED_CHUNK] : []), copied(bytes, at, length)],
      delivered: isDelimiter ? 1 : 0
    }
  }

  /**
   * A head that does not come with one read is rare, and not for the lane: to begin with it again and again would cost
   * its length in squares.
   * @returns offset behind the head, else FOREIGN
   */
  #readHead (bytes: Buffer, length: number): number {
    const text = bytes.toString('latin1', 0, Math.min(length, HEAD_BYTES))
    const end = text.indexOf('\r\n\r\n')
    if (end === -1 || !text.startsWith(START) || text.charCodeAt(REASON_AT - 1) !== SP) return FOREIGN
    const status = statusAt(text, START.length)
    if (status < 200 || status > 599 || status === 204 || status === 205 || status === 304) return FOREIGN
    let at = REASON_AT
    while ((KINDS[text.charCodeAt(at)]! & (VISIBLE | SPACE)) !== 0) at++
    this.#missing = -1
    this.isChunked = false
    this.closes = false
    this.idleMs = IDLE_MS
    const headers: Record<string, string | string[]> = {}
    let hasHint = false
    let hasConnection = false
    while (at < end) {
      if (text.charCodeAt(at) !== CR || text.charCodeAt(at + 1) !== LF) return FOREIGN
      const start = at += 2
      let isLower = true
      for (let code = text.charCodeAt(at); (KINDS[code]! & NAME) !== 0; code = text.charCodeAt(++at)) {
        if (code >= A && code <= Z) isLower = false
      }
      if (at === start || text.charCodeAt(at) !== COLON) return FOREIGN
      const name = isLower ? text.slice(start, at) : text.slice(start, at).toLowerCase()
      if (text.charCodeAt(++at) === SP) at++
      const from = at
      while ((KINDS[text.charCodeAt(at)]! & (VISIBLE | SPACE)) !== 0) at++
      // Of spaces around a value, and of empty ones, undici is to say what is left of them.
      if (at === from || KINDS[text.charCodeAt(from)] === SPACE || KINDS[text.charCodeAt(at - 1)] === SPACE) {
        return FOREIGN
      }
      const value = text.slice(from, at)
      switch (name) {
        case 'content-length':
          if (this.#missing !== -1 || this.isChunked || !/^\d{1,15}$/.test(value)) return FOREIGN
          this.#missing = Number(value)
          break
        case 'transfer-encoding':
          if (this.#missing !== -1 || this.isChunked || value.toLowerCase() !== 'chunked') return FOREIGN
          this.isChunked = true
          break
        case 'connection': {
          const option = value.toLowerCase()
          if (hasConnection || (option !== 'keep-alive' && option !== 'close')) return FOREIGN
          hasConnection = true
          this.closes = option === 'close'
          break
        }
        case 'keep-alive':
          if (hasHint) return FOREIGN
          hasHint = true
          this.idleMs = idleMsOf(value)
          break
        case 'proxy-connection': case 'upgrade': case 'trailer':
          return FOREIGN
      }
      const known = headers[name]
      if (known === undefined) headers[name] = value
      else if (typeof known === 'string') headers[name] = [known, value]
      else if (Array.isArray(known)) known.push(value)
      else return FOREIGN                                     // a name of the prototype's
    }
    if (at !== end) return FOREIGN
    if (this.isChunked) {
      this.#missing = 0
      this.#head = text.slice(0, end + 4)
      this.phase = 'size'
    } else if (this.#missing === -1) return FOREIGN           // it ends with the connection
    else this.phase = 'bytes'
    if (this.closes) this.idleMs = 0
    this.status = status
    this.headers = headers
    return end + 4
  }
}

/** @returns 0: these are not three digits */
function statusAt (text: string, at: number): number {
  let status = 0
  for (let i = at; i < at + 3; i++) {
    const digit = text.charCodeAt(i) - 0x30
    if (!(digit >= 0 && digit <= 9)) return 0
    status = status * 10 + digit
  }
  return status
}

/** @returns offset behind CRLF */
function readDelimiter (bytes: Buffer, at: number, end: number): number {
  if (at === end) return UNFINISHED
  if (bytes[at] !== CR) return FOREIGN
  if (at + 1 === end) return UNFINISHED
  return bytes[at + 1] === LF ? at + 2 : FOREIGN
}

/** The hint of an upstream as undici heeds it. @returns milliseconds; 0: the connection is closed behind the answer */
function idleMsOf (hint: string): number {
  const seconds = /(?:^|,)[\t ]*timeout=(\d+)/i.exec(hint)?.[1]
  if (seconds === undefined) return IDLE_MS
  return Math.max(0, Math.min(Number.parseInt(seconds, 10) * 1000 - HINT_MARGIN_MS, IDLE_MS_AT_MOST))
}

function copied (bytes: Buffer, from: number, to: number): Buffer {
  const copy = Buffer.allocUnsafe(to - from)
  bytes.copy(copy, 0, from, to)
  return copy
}
