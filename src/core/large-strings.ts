// Base64 in bodies that the gateway does not read: large strings stay the bytes that came. Parsed, they would be copied
// four times and block the event loop for 40 ms per 5 MB (measured), and with it all streams.
import { isAscii } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import type { LongString } from '../base/json-limits.ts'

/**
 * Backslash, space, and control characters that occur in texts: JSON forbids all of them in a string that is not
 * escaped.
 */
const NOT_BASE64 = [92, 32, 0, 9, 10, 13]

/** Ends a placeholder, so that one is found quickly. */
const MARK = '\x7f'

/**
 * Field names of base64: `source.data` (messages style), `image_url.url` and `file_data` (chat style), and those of the
 * images API.
 */
const CARRIER = /"(?:data|url|image_url|file_data|b64_json|image|mask)"\s*:\s*(?:\[\s*)?"$/
const CARRIER_LENGTH = 40
/** The beginning of a data URL of base64; its words may be in any case (RFC 2397). */
const DATA_URL = /^data:[\w.+/;=-]{1,100};base64,/i
const DATA_URL_LENGTH = 120

/**
 * The base64 blobs of one request, as the pieces received. In the parsed body each is a placeholder at the end of its
 * string.
 */
export class Blobs {
  readonly #blobs: { readonly pieces: readonly Buffer[], readonly length: number }[] = []
  #nonce = ''
  #placeholder = /(?!)/g

  /** @returns the JSON text with a placeholder for every long string of base64 */
  lift (json: readonly Buffer[], strings: readonly LongString[]): Buffer {
    // Made after the body has arrived: a client can't know the nonce, so it can't forge a placeholder. Nor can an older
    // text that is read later, for the same request.
    if (this.#nonce === '') this.#begin()
    const text = new Pieces(json)
    const kept: Buffer[] = []
    let at = 0
    for (const { start: quoted, end } of strings) {
      if (!CARRIER.test(text.read(Math.max(0, quoted - CARRIER_LENGTH), quoted))) continue
      const start = quoted +
        (DATA_URL.exec(text.read(quoted, Math.min(end, quoted + DATA_URL_LENGTH)))?.[0].length ?? 0)
      const blob = text.slice(start, end)
      // ASCII without escapes and white space: base64, and no text that a plugin would read.
      if (!blob.every((piece) => isAscii(piece) && NOT_BASE64.every((byte) => !piece.includes(byte)))) continue
      kept.push(...text.slice(at, start), Buffer.from(`${this.#nonce}:${this.#blobs.length}${MARK}`))
      this.#blobs.push({ pieces: blob, length: end - start })
      at = end
    }
    kept.push(...text.slice(at, text.length))
    return Buffer.concat(kept)
  }

  /** bytes of all blobs */
  get bytes (): number {
    return this.#blobs.reduce((sum, { length }) => sum + length, 0)
  }

  /**
   * Keeps base64 that was not lifted out of a JSON text.
   * @param pieces must not be changed any more
   * @returns its placeholder
   */
  keep (pieces: readonly Buffer[]): string {
    if (this.#nonce === '') this.#begin()
    this.#blobs.push({ pieces, length: pieces.reduce((sum, { length }) => sum + length, 0) })
    return `${this.#nonce}:${this.#blobs.length - 1}${MARK}`
  }

  /** The blob of a string that is a placeholder and nothing else. */
  find (text: string): readonly Buffer[] | undefined {
    if (this.#blobs.length === 0 || !text.endsWith(MARK)) return undefined
    const [match] = text.matchAll(this.#placeholder)
    return match?.[0] === text ? this.#blobs[Number(match[1])]?.pieces : undefined
  }

  #begin (): void {
    this.#nonce = `blob-${randomBytes(12).toString('hex')}`
    this.#placeholder = new RegExp(`${this.#nonce}:(\\d+)${MARK}`, 'g')
  }

  /** The JSON text with the blobs in the place of their placeholders; in pieces, if there are any. */
  join (json: string): string | readonly Buffer[] {
    if (this.#blobs.length === 0) return json
    const pieces: Buffer[] = []
    let at = 0
    for (const match of json.matchAll(this.#placeholder)) {
      const blob = this.#blobs[Number(match[1])]
      if (blob === undefined) continue
      pieces.push(Buffer.from(json.slice(at, match.index)), ...blob.pieces)
      at = match.index + match[0].length
    }
    pieces.push(Buffer.from(json.slice(at)))
    return pieces
  }

  /** Bytes of a blob that a parsed string stands for. */
  hiddenBytes (text: string): number {
    if (this.#blobs.length === 0 || !text.endsWith(MARK)) return 0
    let bytes = 0
    for (const match of text.matchAll(this.#placeholder)) bytes += this.#blobs[Number(match[1])]?.length ?? 0
    return bytes
  }

  /** A parsed string as it was sent, for the few that must be read. */
  restore (text: string): string {
    if (this.#blobs.length === 0 || !text.endsWith(MARK)) return text
    return text.replace(this.#placeholder, (placeholder, index) => {
      const blob = this.#blobs[Number(index)]
      return blob === undefined ? placeholder : Buffer.concat(blob.pieces).toString('latin1')
    })
  }
}

/** Consecutive buffers read as one without concatenation: copies of megabytes are most of the cost of a large body. */
class Pieces {
  readonly length: number
  readonly #pieces: readonly { readonly at: number, readonly bytes: Buffer }[]

  constructor (buffers: readonly Buffer[]) {
    let at = 0
    this.#pieces = buffers.map((bytes) => {
      const piece = { at, bytes }
      at += bytes.length
      return piece
    })
    this.length = at
  }

  slice (start: number, end: number): Buffer[] {
    return this.#pieces
      .filter(({ at, bytes }) => at < end && at + bytes.length > start)
      .map(({ at, bytes }) => bytes.subarray(Math.max(0, start - at), end - at))
  }

  read (start: number, end: number): string {
    return Buffer.concat(this.slice(start, end)).toString('latin1')
  }
}
