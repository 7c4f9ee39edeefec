// Decodes the text files of one request, because the vendor takes text as text. The only place where base64 is read,
// and therefore limited.
import { isUtf8 } from 'node:buffer'
import type { Blobs } from '../core/large-strings.ts'
import type { Model } from '../core/facts.ts'
import { invalid } from './reads.ts'

/**
 * More bytes than a model can read are not decoded: without a limit a body of 31 MB blocked the loop for a second and
 * went on as 139 MB (measured).
 */
const BYTES_PER_TOKEN = 4
const MOST_BYTES = 1024 * 1024

/** JSON writes each of these as six bytes; texts do not have them. */
const CONTROL = /[\0-\x08\v\f\x0E-\x1F]/

export class TextFiles {
  readonly #blobs: Blobs
  readonly #most: number
  #left: number

  constructor (blobs: Blobs, { context = Infinity }: Model) {
    this.#blobs = blobs
    this.#most = this.#left = Math.min(context * BYTES_PER_TOKEN, MOST_BYTES)
  }

  /**
   * @param data base64, or its placeholder
   * @throws {GatewayError} invalid_request: it is too much, or no text
   */
  read (data: string, path: () => string): string {
    // Before the decoding. The placeholder of a blob counts too: forty bytes.
    this.#left -= Math.floor((data.length + this.#blobs.hiddenBytes(data)) / 4 * 3)
    if (this.#left < 0) {
      throw invalid(path(),
        `is too much text: all text files of a request may hold ${this.#most} bytes with this model. Send less of it`)
    }
    const bytes = Buffer.from(this.#blobs.restore(data), 'base64')
    if (!isUtf8(bytes)) {
      throw invalid(path(),
        'is no text in UTF-8. Encode it as UTF-8, or send a file that is no text with its own media type')
    }
    const text = bytes.toString('utf8')
    if (CONTROL.test(text)) {
      throw invalid(path(), 'holds control characters, which no text has but tabs and line ends. Remove them')
    }
    return text
  }
}
