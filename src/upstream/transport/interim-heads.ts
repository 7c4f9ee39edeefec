// Removes the heads of informational answers (1xx) in front of an answer. RFC 9110 15.2: a client must be able to read
// them, whether it has asked for one or not. Undici (8.12) destroys the connection on a 100.
import { Socket } from 'node:net'

/** Most bytes of such heads in front of one answer; what comes behind them undici may refuse. */
const MOST_BYTES = 64 * 1024

const [LF, CR] = [10, 13] as const
/** `#` stands for a digit. */
const START = Buffer.from('HTTP/1.# 1##')
const ANY_DIGIT = 35
/** Not informational for a client: the connection changes its protocol with it. */
const SWITCHING = '101'
const STATUS_AT = 'HTTP/1.1 '.length

const NOTHING = Buffer.alloc(0)

export class InterimHeads {
  /** bytes that may come before the final head; 0: that has begun, so everything passes */
  #left = 0
  /** the beginning of a head that may be informational */
  #start: Buffer = NOTHING
  /** within an informational head */
  #isInside = false
  /** nothing but a CR of the present line was read */
  #isBlank = false

  /** A request is written: what is read next is the head of an answer. */
  begin (): void {
    this.#left = MOST_BYTES
    this.#start = NOTHING
    this.#isInside = false
  }

  /** @returns what is left of the bytes; may be empty */
  read (bytes: Buffer): Buffer {
    if (this.#left === 0) return bytes
    let at = 0
    while (at < bytes.length && this.#left > 0) {
      if (this.#isInside) { at = this.#skip(bytes, at); continue }
      const known = this.#start.length
      const more = bytes.subarray(at, at + START.length - known)
      const start = known === 0 ? more : Buffer.concat([this.#start, more])
      if (!isStart(start)) break
      this.#start = start
      at += start.length - known
      if (start.length < START.length) return NOTHING
      this.#start = NOTHING
      this.#isInside = true
      this.#isBlank = false
    }
    if (at === bytes.length && this.#left > 0) return NOTHING
    this.#left = 0
    const start = this.end()
    return start.length === 0 ? bytes.subarray(at) : Buffer.concat([start, bytes.subarray(at)])
  }

  /** @returns what was read of a head that is not whole */
  end (): Buffer {
    const start = this.#start
    this.#start = NOTHING
    return start
  }

  /** @returns offset behind the head, or behind the bytes that may be skipped */
  #skip (bytes: Buffer, from: number): number {
    const limit = Math.min(bytes.length, from + this.#left)
    let at = from
    while (at < limit && this.#isInside) {
      const byte = bytes[at++]!
      if (byte !== LF) this.#isBlank &&= byte === CR
      else if (this.#isBlank) this.#isInside = false
      else this.#isBlank = true
    }
    this.#left -= at - from
    return at
  }
}

/** Whether an informational head may begin so. */
function isStart (bytes: Buffer): boolean {
  for (let i = 0; i < bytes.length; i++) {
    const isDigit = bytes[i]! >= 48 && bytes[i]! <= 57
    if (START[i] === ANY_DIGIT ? !isDigit : bytes[i] !== START[i]) return false
  }
  return bytes.toString('latin1', STATUS_AT) !== SWITCHING
}

const HEADS = Symbol('the informational heads of a socket')
type ReadBehind = Socket & { [HEADS]?: InterimHeads }

/** Removes them from what all readers of the socket get. One that is made with `onread` has none. */
export function readingBehind (socket: ReadBehind): InterimHeads {
  const heads = socket[HEADS] = new InterimHeads()
  Object.assign(socket, { push })
  return heads
}

function push (this: ReadBehind, bytes: Buffer | null, encoding?: BufferEncoding): boolean {
  const heads = this[HEADS]!
  const left = bytes === null ? heads.end() : heads.read(bytes)
  const takesMore = left.length === 0 || Socket.prototype.push.call(this, left, encoding)
  return bytes === null ? Socket.prototype.push.call(this, null) : takesMore
}
