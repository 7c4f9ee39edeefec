// The lines of answers' heads, as bytes (RFC 9112 2.1): most of a head are lines of the head before it, and are copied
// from there.
import { put } from '../../base/write-memory.ts'

const FIRST_BYTES = 2048
/** Bytes beside a name and a value. */
const OF_LINE = 4
const [COLON, SP, CR, LF] = [0x3A, 0x20, 0x0D, 0x0A] as const

export class HeadLines {
  /** of the last head: names and values in turns */
  #fields: readonly string[] = []
  /** its lines, and where each of them ends */
  #last = Buffer.allocUnsafe(FIRST_BYTES)
  #lastEnds: number[] = []
  /** the same of the head that is written next */
  #next = Buffer.allocUnsafe(FIRST_BYTES)
  #nextEnds: number[] = []

  /** Whether the last head had this field, at the same index. */
  has (name: string, value: string, index: number): boolean {
    return value === this.#fields[index + 1] && name === this.#fields[index]
  }

  /** What was written last is the beginning of it. */
  get bytes (): Buffer {
    return this.#last
  }

  /**
   * @param fields names and values in turns, of Latin-1
   * @returns bytes of their lines
   */
  write (fields: readonly string[]): number {
    this.#makeRoom(fields)
    const [last, ends, bytes] = [this.#last, this.#lastEnds, this.#next]
    const known = this.#fields.length
    let at = 0
    // What the last head has, and is not copied yet.
    let [from, to] = [0, 0]
    for (let i = 0; i < fields.length; i += 2) {
      const [name, value] = [fields[i]!, fields[i + 1]!]
      const line = i / 2
      if (i < known && name === this.#fields[i]) {
        if (value === this.#fields[i + 1]) {
          to = ends[line]!
          this.#nextEnds[line] = at + to - from
          continue
        }
        to += name.length + 2
        at += last.copy(bytes, at, from, to)
      } else {
        if (to > from) at += last.copy(bytes, at, from, to)
        at = put(bytes, at, name)
        bytes[at++] = COLON
        bytes[at++] = SP
      }
      at = put(bytes, at, value)
      bytes[at++] = CR
      bytes[at++] = LF
      this.#nextEnds[line] = at
      from = to = i < known ? ends[line]! : to
    }
    if (to > from) at += last.copy(bytes, at, from, to)
    this.#fields = fields
    ;[this.#last, this.#next] = [bytes, last]
    ;[this.#lastEnds, this.#nextEnds] = [this.#nextEnds, ends]
    return at
  }

  #makeRoom (fields: readonly string[]): void {
    let length = 0
    for (let i = 0; i < fields.length; i += 2) length += fields[i]!.length + fields[i + 1]!.length + OF_LINE
    if (length > this.#next.length) this.#next = Buffer.allocUnsafe(length)
  }
}
