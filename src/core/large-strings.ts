// Base64 in bodies that the gateway does not read: large strings stay the bytes that came. Parsed, they would be copied
// four times and block the event loop for 40 ms per 5 MB (measured), and with it all streams.
import { isAscii } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import type { LongString } from '../base/json-limits.ts'
import { isSealed } from '../base/seals.ts'
import type { BodyPieces, Lender } from './body-memory.ts'

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
const CARRIER = /"(?:data|url|image_url|file_data|b64_json|images?|mask)"\s*:\s*(?:\[\s*)?"$/
const CARRIER_LENGTH = 40
/** Between two of a list. */
const NEXT = /^"\s*,\s*"$/
/** The beginning of a data URL of base64; its words may be in any case (RFC 2397). */
const DATA_URL = /^data:[\w.+/;=-]{1,100};base64,/i
const DATA_URL_LENGTH = 120

/** Position of base64 in a JSON text, within a long string. */
export interface Base64 {
  readonly start: number
  readonly end: number
}

/** Matches no text. */
const NOTHING = /(?!)/g

/**
 * The base64 blobs of one request, as the pieces received. In the parsed body each is a placeholder at the end of its
 * string.
 */
export class Blobs {
  /** Core only: the memory of the pieces, if it is used again behind the request's end. */
  memory: Lender | undefined
  readonly #blobs: { readonly pieces: readonly Buffer[], readonly length: number }[] = []
  #nonce = ''
  #placeholder = NOTHING

  /** @param base64 of `base64In` @returns the JSON text with placeholders in its place */
  lift (json: readonly Buffer[], base64: readonly Base64[]): Buffer {
    // Made after the body has arrived: a client can't know the nonce, so it can't forge a placeholder. Nor can an older
    // text that is read later, for the same request.
    if (this.#nonce === '') this.#begin()
    const text = new Pieces(json)
    const kept: Buffer[] = []
    let at = 0
    for (const { start, end } of base64) {
      kept.push(...text.slice(at, start), Buffer.from(`${this.#nonce}:${this.#blobs.length}${MARK}`))
      this.#blobs.push({ pieces: text.slice(start, end), length: end - start })
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

  /** The blob of a string that is a placeholder and nothing else. @throws {Error} its memory is another's */
  find (text: string): readonly Buffer[] | undefined {
    if (this.#blobs.length === 0 || !text.endsWith(MARK)) return undefined
    this.#check()
    const [match] = text.matchAll(this.#placeholder)
    return match?.[0] === text ? this.#blobs[Number(match[1])]?.pieces : undefined
  }

  #begin (): void {
    this.#nonce = `blob-${randomBytes(12).toString('hex')}`
    this.#placeholder = new RegExp(`${this.#nonce}:(\\d+)${MARK}`, 'g')
  }

  /**
   * The JSON text with the blobs in the place of their placeholders; in pieces, if there are any.
   * @throws {Error} their memory is another's
   */
  join (json: string): string | BodyPieces {
    if (this.#blobs.length === 0) return json
    this.#check()
    const pieces: Buffer[] = []
    let at = 0
    for (const match of json.matchAll(this.#placeholder)) {
      const blob = this.#blobs[Number(match[1])]
      if (blob === undefined) continue
      pieces.push(Buffer.from(json.slice(at, match.index)), ...blob.pieces)
      at = match.index + match[0].length
    }
    pieces.push(Buffer.from(json.slice(at)))
    return { pieces, memory: this.memory }
  }

  /** A hook that comes too late may ask for them behind the end of its request. */
  #check (): void {
    if (this.memory?.isGone === true) throw new Error('base64 was asked for behind the end of its request')
  }

  /** Bytes of a blob that a parsed string stands for. */
  hiddenBytes (text: string): number {
    if (this.#blobs.length === 0 || !text.endsWith(MARK)) return 0
    let bytes = 0
    for (const match of text.matchAll(this.#placeholder)) bytes += this.#blobs[Number(match[1])]?.length ?? 0
    return bytes
  }

  /** A parsed string as it was sent, for the few that must be read. @throws {Error} its memory is another's */
  restore (text: string): string {
    if (this.#blobs.length === 0 || !text.endsWith(MARK)) return text
    this.#check()
    return text.replace(this.#placeholder, (placeholder, index) => {
      const blob = this.#blobs[Number(index)]
      return blob === undefined ? placeholder : Buffer.concat(blob.pieces).toString('latin1')
    })
  }
}

/** @param strings the long strings of a JSON text @returns the base64 of those that carry some, in order */
export function base64In (json: readonly Buffer[], strings: readonly LongString[]): readonly Base64[] {
  return strings.length === 0 ? [] : base64Among(strings, new Pieces(json))
}

function base64Among (strings: readonly LongString[], text: Pieces): readonly Base64[] {
  /** end of the last one that stands in a list */
  let listed = -Infinity
  return strings.flatMap(({ start: quoted, end }): Base64[] => {
    const before = text.read(Math.max(0, quoted - CARRIER_LENGTH), quoted)
    const isNext = quoted - listed <= CARRIER_LENGTH && NEXT.test(text.read(listed, quoted))
    if (!isNext && !CARRIER.test(before)) return []
    if (isNext || /\[\s*"$/.test(before)) listed = end
    const beginning = text.read(quoted, Math.min(end, quoted + DATA_URL_LENGTH))
    // A thought that will be opened: 30 MB of one take 200 ms, which no body of pictures does.
    if (isSealed(beginning)) return []
    const start = quoted + (DATA_URL.exec(beginning)?.[0].length ?? 0)
    // ASCII without escapes and white space: base64, and no text that a plugin would read.
    const isBase64 = text.slice(start, end)
      .every((piece) => isAscii(piece) && NOT_BASE64.every((byte) => !piece.includes(byte)))
    return isBase64 ? [{ start, end }] : []
  })
}

/** Consecutive buffers read as one without concatenation: copies of megabytes are most of the cost of a large body. */
class Pieces {
  readonly length: number
  readonly #pieces: readonly Buffer[]
  /** where each begins */
  readonly #starts: readonly number[]

  constructor (buffers: readonly Buffer[]) {
    let at = 0
    this.#pieces = buffers
    this.#starts = buffers.map(({ length }) => {
      at += length
      return at - length
    })
    this.length = at
  }

  slice (start: number, end: number): Buffer[] {
    const slices: Buffer[] = []
    if (start === end) return slices
    for (let i = this.#pieceAt(start); i < this.#pieces.length && this.#starts[i]! < end; i++) {
      const at = this.#starts[i]!
      slices.push(this.#pieces[i]!.subarray(Math.max(0, start - at), end - at))
    }
    return slices
  }

  read (start: number, end: number): string {
    return Buffer.concat(this.slice(start, end)).toString('latin1')
  }

  /** The last piece that begins at a position or before: looking at all took 180 ms for 500 strings in 8000 pieces. */
  #pieceAt (position: number): number {
    let [low, high] = [0, this.#starts.length - 1]
    while (low < high) {
      const middle = Math.ceil((low + high) / 2)
      if (this.#starts[middle]! <= position) low = middle
      else high = middle - 1
    }
    return low
  }
}
