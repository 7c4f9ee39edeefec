// Reads answers of HTTP/1.1 (RFC 9112) that leave nothing to interpretation. Anything else is not for the lane: the
// reader says so, and what undici's parser has to be given to go on from there.
import type { IncomingHttpHeaders } from 'node:http'
import { type AnswerHeads, IDLE_MS } from './answer-heads.ts'

const LF = 0x0A
const CR = 0x0D

/** Most digits of a chunk's size, so that it is a whole number without any care. */
const SIZE_DIGITS = 8

/** A chunk of one byte, in the place of one whose bytes were delivered. */
const DELIVERED_CHUNK = Buffer.from('1\r\n.')

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
  #head: Buffer | undefined
  /** beginning of a size or a delimiter whose end did not come with the same read */
  #kept: Buffer | undefined
  readonly #heads: AnswerHeads

  /** @param heads of all answers of one origin */
  constructor (heads: AnswerHeads) {
    this.#heads = heads
  }

  /** Gets ready for the next answer. */
  reset (): void {
    this.phase = 'head'
    this.headers = this.body = this.handed = this.#kept = this.#head = undefined
    this.excess = 0
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
      replay: [this.#head!, ...(isDelimiter ? [DELIVERED_CHUNK] : []), copied(bytes, at, length)],
      delivered: isDelimiter ? 1 : 0
    }
  }

  /** @returns offset behind the head; negative: it is not for the lane */
  #readHead (bytes: Buffer, length: number): number {
    const heads = this.#heads
    const end = heads.read(bytes, length)
    if (end < 0) return end
    this.status = heads.status
    this.headers = heads.headers
    this.closes = heads.closes
    this.idleMs = heads.idleMs
    this.isChunked = heads.isChunked
    this.#missing = heads.isChunked ? 0 : heads.length
    this.#head = heads.isChunked ? copied(bytes, 0, end) : undefined
    this.phase = heads.isChunked ? 'size' : 'bytes'
    return end
  }
}

/** @returns offset behind CRLF */
function readDelimiter (bytes: Buffer, at: number, end: number): number {
  if (at === end) return UNFINISHED
  if (bytes[at] !== CR) return FOREIGN
  if (at + 1 === end) return UNFINISHED
  return bytes[at + 1] === LF ? at + 2 : FOREIGN
}

function copied (bytes: Buffer, from: number, to: number): Buffer {
  const copy = Buffer.allocUnsafe(to - from)
  bytes.copy(copy, 0, from, to)
  return copy
}
