// Base64 of an image is megabytes that nobody here reads: they stay the bytes that came. Parsed, they would be copied four
// times and stop the loop for 40 ms per 5 MB (measured), and with it everybody's streams.
import { isAscii } from 'node:buffer'
import { randomBytes } from 'node:crypto'

/** Where a long string of a JSON text stands: from behind its first quote to its last. */
export interface LongString {
  readonly start: number
  readonly end: number
}

/** Shorter strings are parsed like all others. */
export const BLOB_BYTES = 64 * 1024

/** Nobody can know it, so nobody can make us see a blob where there is none. The mark at the end finds it quickly. */
const NONCE = `blob-${randomBytes(12).toString('hex')}`
const MARK = '\x7f'
const placeholder = new RegExp(`${NONCE}:(\\d+):(\\d+)${MARK}`, 'g')

/** The names that vendors give to base64: `source.data` (messages style), `image_url.url` and `file_data` (chat style). */
const CARRIER = /"(?:data|url|image_url|file_data)"\s*:\s*"$/
const CARRIER_LENGTH = 40
/** Before the base64 of a data URL. */
const DATA_URL = /^data:[\w.+/;=-]{1,100};base64,/
const DATA_URL_LENGTH = 120

/** The blobs of one request, in the pieces that they came in. In its parsed body each is a placeholder, at the end of its string. */
export class Blobs {
  readonly #blobs: (readonly Buffer[])[] = []

  /** @returns the JSON text with a placeholder for every long string that is base64 */
  lift (json: readonly Buffer[], strings: readonly LongString[]): Buffer {
    const text = new Pieces(json)
    const kept: Buffer[] = []
    let at = 0
    for (const { start: quoted, end } of strings) {
      if (!CARRIER.test(text.read(Math.max(0, quoted - CARRIER_LENGTH), quoted))) continue
      const start = quoted + (DATA_URL.exec(text.read(quoted, Math.min(end, quoted + DATA_URL_LENGTH)))?.[0].length ?? 0)
      const blob = text.slice(start, end)
      // Neither escapes nor spaces nor letters beyond ASCII: base64, and no text that a plugin would want to read.
      if (!blob.every((piece) => isAscii(piece) && !piece.includes(92) && !piece.includes(32))) continue
      kept.push(...text.slice(at, start), Buffer.from(`${NONCE}:${this.#blobs.length}:${end - start}${MARK}`))
      this.#blobs.push(blob)
      at = end
    }
    kept.push(...text.slice(at, text.length))
    return Buffer.concat(kept)
  }

  /** The JSON text with the blobs where their placeholders stand; in pieces, if there are any. */
  join (json: string): string | readonly Buffer[] {
    if (this.#blobs.length === 0) return json
    const pieces: Buffer[] = []
    let at = 0
    for (const match of json.matchAll(placeholder)) {
      const blob = this.#blobs[Number(match[1])]
      if (blob === undefined) continue
      pieces.push(Buffer.from(json.slice(at, match.index)), ...blob)
      at = match.index + match[0].length
    }
    pieces.push(Buffer.from(json.slice(at)))
    return pieces
  }
}

/** Buffers in a row, read as one without making one of them: copies of megabytes are most of what a large body costs. */
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

/** How many bytes of a parsed string are not in it, because a placeholder stands for them. */
export function hiddenBytes (text: string): number {
  if (!text.endsWith(MARK)) return 0
  let bytes = 0
  for (const match of text.matchAll(placeholder)) bytes += Number(match[2])
  return bytes
}
