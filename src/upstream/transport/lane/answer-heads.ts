// Reads the heads of one origin's answers that leave nothing to interpretation. Nearly all lines of a head are those of
// the one before, byte for byte: they are checked, and become texts, once.
import { type IncomingHttpHeaders, maxHeaderSize } from 'node:http'
import { KINDS, NAME, SPACE, VISIBLE } from '../../../base/field-characters.ts'

const LF = 0x0A
const CR = 0x0D
const SP = 0x20
const COLON = 0x3A
const ZERO = 0x30
const A = 0x41
const Z = 0x5A

/** Most bytes of a head: it is no longer than undici would take, whose count leaves out what is between the fields. */
const HEAD_BYTES = Math.min(16_384, maxHeaderSize)

/** Milliseconds that a connection waits for its next request, and what a hint of the upstream is shortened by. */
export const IDLE_MS = 4000
const HINT_MARGIN_MS = 2000

/**
 * Most milliseconds that it waits, whatever the upstream says: a NAT or a balancer on the way may drop it unseen, and a
 * request that is written to it then waits until `first_byte`.
 */
export const IDLE_MS_AT_MOST = 60_000

const START = Buffer.from('HTTP/1.1 ')
/** Where the reason begins, behind the three digits and a space. */
const REASON_AT = START.length + 4

/** In the place of what is not for the lane. */
const FOREIGN = -1

/** Of fields that say how an answer is read, and what becomes of its connection: each is said once at most. */
const LENGTH = 1
const CODING = 2
const CONNECTION = 4
const HINT = 8
const OTHERS = 16
const ROLES: ReadonlyMap<string, number> = new Map([['content-length', LENGTH], ['transfer-encoding', CODING],
  ['connection', CONNECTION], ['keep-alive', HINT], ['proxy-connection', OTHERS], ['upgrade', OTHERS],
  ['trailer', OTHERS]])

interface Field {
  /** offset of its line in the head, and the line's bytes */
  start: number
  size: number
  name: string
  /** bytes of the name and the colon */
  nameSize: number
  value: string
  /** 0: none */
  role: number
  /** what the value says, if there is a role */
  meaning: number
}

type Fields = Record<string, string | string[]>

export class AnswerHeads {
  // Of the head that was read last:
  status = 0
  headers: IncomingHttpHeaders = {}
  isChunked = false
  /** bytes of a body that is not chunked */
  length = 0
  /** `Connection: close` */
  closes = false
  /** milliseconds that the connection may wait for its next request; 0: it is closed behind this answer */
  idleMs = IDLE_MS

  /** the bytes of the last head, and those of its first line */
  #kept: Buffer = Buffer.alloc(0)
  #startSize = 0
  readonly #fields: Field[] = []
  /** how many of the fields are the last head's; 0: it is not kept */
  #count = 0
  /** its headers, to be copied; undefined: a name is repeated */
  #pattern: Fields | undefined

  /**
   * A head that does not come with one read is rare, and not for the lane: to begin with it again and again would cost
   * its length in squares.
   * @param length of what was read, from the beginning of `bytes`
   * @returns offset behind the head, else FOREIGN
   */
  read (bytes: Buffer, length: number): number {
    const limit = Math.min(length, HEAD_BYTES)
    const known = this.#count
    this.#count = 0                                           // until it is known that the lane takes this one
    this.closes = false
    this.idleMs = IDLE_MS
    let isSame = known > 0 && this.#countSame(bytes, 0, limit, 0, this.#startSize) === this.#startSize
    let at = isSame ? this.#startSize : this.#readStart(bytes, limit)
    if (at === FOREIGN) return FOREIGN
    let count = 0
    let said = 0
    for (; bytes[at] !== CR; count++) {
      const field = this.#fields[count] ??= emptyField()
      const same = count < known ? this.#countSame(bytes, at, limit, field.start, field.size) : 0
      if (count >= known || same < field.size) {
        isSame = false
        if (!this.#readField(field, bytes, at, limit, count < known && same >= field.nameSize)) return FOREIGN
      }
      field.start = at
      at += field.size
      const { role, meaning } = field
      if ((said & role) !== 0) return FOREIGN
      said |= role
      if (role === LENGTH) this.length = meaning
      else if (role === CONNECTION) this.closes = meaning === 1
      else if (role === HINT) this.idleMs = meaning
    }
    at += 2
    if (at > limit || bytes[at - 1] !== LF) return FOREIGN
    // Both are a contradiction; without them it ends with the connection.
    const framing = said & (LENGTH | CODING)
    if (framing !== LENGTH && framing !== CODING) return FOREIGN
    this.isChunked = framing === CODING
    if (this.closes) this.idleMs = 0
    if (count !== known) { isSame = false; this.#pattern = undefined }
    const headers = this.#pattern === undefined ? this.#makeHeaders(count) : { ...this.#pattern }
    if (headers === undefined) return FOREIGN
    this.headers = headers
    if (!isSame) this.#keep(bytes, at)
    this.#count = count
    return at
  }

  /** @returns how many bytes from the beginning of a line are those of the kept one */
  #countSame (bytes: Buffer, at: number, limit: number, keptAt: number, size: number): number {
    const most = Math.min(size, limit - at)
    let same = 0
    while (same < most && bytes[at + same] === this.#kept[keptAt + same]) same++
    return same
  }

  #readStart (bytes: Buffer, limit: number): number {
    for (let i = 0; i < START.length; i++) if (bytes[i] !== START[i]) return FOREIGN
    let status = 0
    for (let i = START.length; i < REASON_AT - 1; i++) {
      const digit = bytes[i]! - ZERO
      if (!(digit >= 0 && digit <= 9)) return FOREIGN
      status = status * 10 + digit
    }
    if (bytes[REASON_AT - 1] !== SP) return FOREIGN
    if (status < 200 || status > 599 || status === 204 || status === 205 || status === 304) return FOREIGN
    this.status = status
    return this.#startSize = behindLine(bytes, behindValue(bytes, REASON_AT, limit), limit)
  }

  /** @param hasName the name is the one that it has. @returns whether it is for the lane */
  #readField (field: Field, bytes: Buffer, start: number, limit: number, hasName: boolean): boolean {
    if (!hasName) {
      this.#pattern = undefined
      let at = start
      let isLower = true
      for (; at < limit && (KINDS[bytes[at]!]! & NAME) !== 0; at++) {
        if (bytes[at]! >= A && bytes[at]! <= Z) isLower = false
      }
      if (at === start || at === limit || bytes[at] !== COLON) return false
      const name = bytes.toString('latin1', start, at)
      field.name = isLower ? name : name.toLowerCase()
      field.nameSize = at + 1 - start
      field.role = ROLES.get(field.name) ?? 0
    }
    let from = start + field.nameSize
    if (bytes[from] === SP) from++
    const end = behindValue(bytes, from, limit)
    // Of spaces around a value, and of empty ones, undici is to say what is left of them.
    if (end <= from || KINDS[bytes[from]!] === SPACE || KINDS[bytes[end - 1]!] === SPACE) return false
    const behind = behindLine(bytes, end, limit)
    if (behind === FOREIGN) return false
    field.size = behind - start
    field.value = bytes.toString('latin1', from, end)
    if (this.#pattern !== undefined) this.#pattern[field.name] = field.value
    if (field.role === 0) return true
    field.meaning = meaningOf(field.role, field.value)
    return field.meaning !== FOREIGN
  }

  /** Undefined: a name is not for the lane. */
  #makeHeaders (count: number): Fields | undefined {
    const headers: Fields = {}
    let hasRepeated = false
    for (let i = 0; i < count; i++) {
      const { name, value } = this.#fields[i]!
      const known = headers[name]
      if (known === undefined) { headers[name] = value; continue }
      hasRepeated = true
      if (typeof known === 'string') headers[name] = [known, value]
      else if (Array.isArray(known)) known.push(value)
      else return undefined                                   // a name of the prototype's
    }
    if (!hasRepeated) this.#pattern = { ...headers }
    return headers
  }

  #keep (bytes: Buffer, size: number): void {
    if (size > this.#kept.length) this.#kept = Buffer.allocUnsafeSlow(Math.min(2 * size, HEAD_BYTES))
    bytes.copy(this.#kept, 0, 0, size)
  }
}

function emptyField (): Field {
  return { start: 0, size: 0, name: '', nameSize: 0, value: '', role: 0, meaning: 0 }
}

/** @returns offset of the first byte that belongs to no value */
function behindValue (bytes: Buffer, from: number, limit: number): number {
  let at = from
  while (at < limit && (KINDS[bytes[at]!]! & (VISIBLE | SPACE)) !== 0) at++
  return at
}

/** @returns offset behind CRLF, else FOREIGN */
function behindLine (bytes: Buffer, at: number, limit: number): number {
  return at + 2 <= limit && bytes[at] === CR && bytes[at + 1] === LF ? at + 2 : FOREIGN
}

function meaningOf (role: number, value: string): number {
  switch (role) {
    case LENGTH: return /^\d{1,15}$/.test(value) ? Number(value) : FOREIGN
    case CODING: return value.toLowerCase() === 'chunked' ? 0 : FOREIGN
    case CONNECTION: {
      const option = value.toLowerCase()
      return option === 'close' ? 1 : option === 'keep-alive' ? 0 : FOREIGN
    }
    case HINT: return idleMsOf(value)
    default: return FOREIGN
  }
}

/** The hint of an upstream as undici heeds it. @returns milliseconds; 0: the connection is closed behind the answer */
function idleMsOf (hint: string): number {
  const seconds = /(?:^|,)[\t ]*timeout=(\d+)/i.exec(hint)?.[1]
  if (seconds === undefined) return IDLE_MS
  return Math.max(0, Math.min(Number.parseInt(seconds, 10) * 1000 - HINT_MARGIN_MS, IDLE_MS_AT_MOST))
}
