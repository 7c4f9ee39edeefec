// Lines of the log of requests that wait to be written: one behind the other, as the bytes that a file gets.
import { JsonBytes } from '../../base/json-bytes.ts'
import { microsOf } from '../../base/request-id.ts'
import type { ExchangeRecord } from '../../core/record.ts'
import { addLine } from './line.ts'

const LINE_FEED = '\n'

export class WaitingLines {
  readonly #text = new JsonBytes()
  /** by line: the bytes until its end, and its request's arrival in microseconds since the epoch */
  readonly #ends: Uint32Array
  readonly #arrivals: Float64Array
  #length = 0

  /** @param most lines that have space */
  constructor (most: number) {
    this.#ends = new Uint32Array(most)
    this.#arrivals = new Float64Array(most)
    this.clear()
  }

  get length (): number {
    return this.#length
  }

  clear (): void {
    this.#text.clear()
    this.#text.raw(LINE_FEED)
    this.#length = 0
  }

  /** @throws {TypeError} a plugin without types gave it what JSON can't say: no line is added */
  add (record: ExchangeRecord): void {
    const start = this.#text.length
    try {
      addLine(this.#text, record)
    } catch (thrown) {
      this.#text.cut(start)
      throw thrown
    }
    this.#text.raw(LINE_FEED)
    this.#arrivals[this.#length] = microsOf(record.request_id)
    this.#ends[this.#length++] = this.#text.length
  }

  arrivalOf (index: number): number {
    return this.#arrivals[index]!
  }

  /** Some lines, behind a line feed: the line before them in the file may be torn. Valid until `add` and `clear`. */
  bytesOf (from: number, to: number): Buffer {
    return this.#text.bytes.subarray(this.#startOf(from) - LINE_FEED.length, this.#startOf(to))
  }

  /** Bytes of some lines. */
  lengthOf (from: number, to: number): number {
    return this.#startOf(to) - this.#startOf(from)
  }

  #startOf (index: number): number {
    return index === 0 ? LINE_FEED.length : this.#ends[index - 1]!
  }
}
