// Checks the bytes of a JSON text while they arrive, before they are parsed: its depth, its number of values, and its
// long strings. 32 MB of "[[[[" would become a gigabyte of arrays, 32 MB of "1,1,1," block the loop for half a second,
// and a million keys for one second to parse, and two more for each copy of the object (measured).
import { GatewayError } from '../errors.ts'

const QUOTE = 34
const BACKSLASH = 92
/** Bytes of a string that are read one by one before memchr: one call of it costs as much. */
const NEAR = 32

/** Position of a long string in a JSON text: from behind its first quote to its last. */
export interface LongString {
  readonly start: number
  readonly end: number
}

/** Bytes from which on a string is a long one. */
export const BLOB_BYTES = 64 * 1024

/** Deepest nesting of a request body, in levels. */
export const MAX_DEPTH = 64
/** Most values in a request body. 100,000 messages, the vendor's own limit, stay far below. */
export const MAX_VALUES = 1_000_000
/**
 * Most keys of one object. Tool schemas have hundreds; above a thousand V8 has no shapes any more, and each key is
 * looked up.
 */
export const MAX_KEYS = 10_000
/** Most keys of all objects together: 100,000 messages, each of one content block, have 400,000. */
export const MAX_MEMBERS = 500_000

const BRACKETS = [91, 123] as const
/** Brackets that are looked for with memchr: where there are more of them, reading all bytes is quicker (measured). */
const FEW = 8

/** Whether a whole text is so short and flat that it can't break any limit: most need no guard. */
export function isHarmless (json: Buffer): boolean {
  if (json.length > MAX_KEYS) return false
  let opened = 0
  for (const bracket of BRACKETS) {
    for (let at = json.indexOf(bracket); at !== -1; at = json.indexOf(bracket, at + 1)) {
      if (++opened > FEW) return isFlat(json)
    }
  }
  return true
}

function isFlat (json: Buffer): boolean {
  let opened = 0
  for (let i = 0; i < json.length; i++) {
    if ((json[i]! | 32) === 123) opened++                     // [ {
  }
  return opened <= MAX_DEPTH
}

/** Hears of the members of the outermost object. */
export interface Outline {
  /** @param key between its quotes @param start of the value, behind the colon */
  member (key: LongString, start: number): void
  /** @param end of the value that was begun; of none where the outermost is a list */
  end (end: number): void
}

export class JsonGuard {
  readonly #outline: Outline | undefined
  #inString = false
  #escaped = false
  #depth = 0
  #values = 0
  #members = 0
  /** keys so far of the open objects, by depth */
  readonly #keys: number[] = []
  /** bytes of the chunks before this one */
  #offset = 0
  #stringStart = 0
  /** of the last whole string */
  #stringEnd = 0
  /** strings of BLOB_BYTES and more, in order */
  readonly longStrings: LongString[] = []
  /** bytes of these */
  #long = 0

  constructor (outline?: Outline) {
    this.#outline = outline
  }

  /** Bytes so far of long strings, with one that has not ended. */
  get longBytes (): number {
    const open = this.#inString ? this.#offset - this.#stringStart : 0
    return open < BLOB_BYTES ? this.#long : this.#long + open
  }

  /** Begins another text, with whose values and keys the count goes on; the one before may have been broken off. */
  next (): void {
    this.#inString = this.#escaped = false
    this.#depth = 0
  }

  /** @throws {GatewayError} bad_request: too deep, too many values, too many keys */
  push (chunk: Buffer): void {
    let i = 0
    while (i < chunk.length) {
      if (this.#inString) {
        i = this.#skipString(chunk, i)
        continue
      }
      switch (chunk[i++]) {
        case QUOTE:
          this.#inString = true
          this.#stringStart = this.#offset + i
          break
        case 91:
        case 123: // [ {
          if (++this.#depth > MAX_DEPTH) {
            throw new GatewayError('bad_request', {
              message: `The request body is nested deeper than ${MAX_DEPTH} levels. Flatten it.`
            })
          }
          this.#values++
          this.#keys[this.#depth] = 0
          break
        case 58: // :
          if (this.#outline !== undefined && this.#depth === 1) {
            this.#outline.member({ start: this.#stringStart, end: this.#stringEnd }, this.#offset + i)
          }
          if (++this.#keys[this.#depth]! > MAX_KEYS) {
            throw new GatewayError('bad_request', {
              message: `An object in the request body has more than ${MAX_KEYS} keys. Send fewer, or a list.`
            })
          }
          if (++this.#members > MAX_MEMBERS) {
            throw new GatewayError('bad_request', {
              message: `The objects in the request body have more than ${MAX_MEMBERS} keys together. Send fewer.`
            })
          }
          break
        case 93:
        case 125:
          if (this.#outline !== undefined && this.#depth === 1) this.#outline.end(this.#offset + i - 1)
          this.#depth--
          break // ] }
        case 44: // ,
          if (this.#outline !== undefined && this.#depth === 1) this.#outline.end(this.#offset + i - 1)
          if (++this.#values > MAX_VALUES) {
            throw new GatewayError('bad_request', {
              message: `The request body holds more than ${MAX_VALUES} values. Send fewer.`
            })
          }
      }
    }
    this.#offset += chunk.length
  }

  /**
   * Skips to the end of the string: byte by byte where it is near, by memchr where it is far, so that base64 of
   * megabytes costs nothing.
   */
  #skipString (chunk: Buffer, from: number): number {
    let i = from
    if (this.#escaped) { this.#escaped = false; i++ }
    while (i < chunk.length) {
      for (const near = Math.min(chunk.length, i + NEAR); i < near; i++) {
        const byte = chunk[i]
        if (byte === QUOTE) return this.#endString(i)
        if (byte === BACKSLASH) i++
      }
      if (i >= chunk.length) break
      const quote = chunk.indexOf(QUOTE, i)
      const end = quote === -1 ? chunk.length : quote
      let backslashes = 0
      for (let b = end - 1; b >= i && chunk[b] === BACKSLASH; b--) backslashes++
      i = end + backslashes % 2
      if (quote !== -1 && backslashes % 2 === 0) return this.#endString(quote)
    }
    this.#escaped = i > chunk.length
    return chunk.length
  }

  /** @returns position behind the string */
  #endString (quote: number): number {
    this.#inString = false
    const end = this.#stringEnd = this.#offset + quote
    const length = end - this.#stringStart
    if (length >= BLOB_BYTES) {
      this.longStrings.push({ start: this.#stringStart, end })
      this.#long += length
    }
    return quote + 1
  }
}
