// Looks at the bytes of a JSON text while they arrive, before anything parses them: how deep, how many, and which are long.
// 32 MB of "[[[[" would become a gigabyte of arrays, and 32 MB of "1,1,1," stop the loop for half a second.
import { BLOB_BYTES, type LongString } from './blobs.ts'
import { GatewayError } from './errors.ts'

const QUOTE = 34
const BACKSLASH = 92

/** Deepest nesting of a request body, in levels. */
export const MAX_DEPTH = 64
/** Most values in a request body. 100,000 messages, the vendor's own limit, stay far below. */
export const MAX_VALUES = 1_000_000

export class JsonGuard {
  #inString = false
  #escaped = false
  #depth = 0
  #values = 0
  /** bytes of the chunks before this one */
  #offset = 0
  #stringStart = 0
  /** strings of BLOB_BYTES and more, in order */
  readonly longStrings: LongString[] = []

  /** @throws {GatewayError} bad_request: too deep, or too many values */
  push (chunk: Buffer): void {
    let i = 0
    while (i < chunk.length) {
      if (this.#inString) {
        i = this.#skipString(chunk, i)
        continue
      }
      switch (chunk[i++]) {
        case QUOTE: this.#inString = true; this.#stringStart = this.#offset + i; break
        case 91: case 123:                                    // [ {
          if (++this.#depth > MAX_DEPTH) throw new GatewayError('bad_request', { message: `The request body is nested deeper than ${MAX_DEPTH} levels. Flatten it.` })
          this.#values++
          break
        case 93: case 125: this.#depth--; break               // ] }
        case 44:                                              // ,
          if (++this.#values > MAX_VALUES) throw new GatewayError('bad_request', { message: `The request body holds more than ${MAX_VALUES} values. Send fewer.` })
      }
    }
    this.#offset += chunk.length
  }

  /** Goes on behind the end of the string; base64 of megabytes costs one memchr. */
  #skipString (chunk: Buffer, from: number): number {
    let i = from
    if (this.#escaped) { this.#escaped = false; i++ }
    const quote = chunk.indexOf(QUOTE, i)
    const end = quote === -1 ? chunk.length : quote
    let backslashes = 0
    for (let b = end - 1; b >= i && chunk[b] === BACKSLASH; b--) backslashes++
    if (quote === -1) {
      this.#escaped = backslashes % 2 === 1
      return end
    }
    this.#inString = backslashes % 2 === 1
    const stringEnd = this.#offset + quote
    if (!this.#inString && stringEnd - this.#stringStart >= BLOB_BYTES) this.longStrings.push({ start: this.#stringStart, end: stringEnd })
    return quote + 1
  }
}
