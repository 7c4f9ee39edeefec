// Reads a file of lines, however large, by its bytes: node:readline would end a line at U+2028 too, which JSON does not
// escape.
import { createReadStream } from 'node:fs'

export interface RawLine {
  /** without the line feed */
  readonly bytes: Buffer
  /** counts from 1 */
  readonly line: number
  /** false: the file ended without a line feed */
  readonly isWhole: boolean
}

/** @param length bytes of the file that are read */
export async function * linesOf (file: string, length = Infinity): AsyncIterable<RawLine> {
  let line = 1
  let begun: Buffer[] = []
  if (length === 0) return
  for await (const chunk of createReadStream(file, { end: length - 1 }) as AsyncIterable<Buffer>) {
    let at = 0
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, at)) {
      yield { bytes: Buffer.concat([...begun, chunk.subarray(at, end)]), line: line++, isWhole: true }
      begun = []
      at = end + 1
    }
    if (at < chunk.length) begun.push(chunk.subarray(at))
  }
  if (begun.length > 0) yield { bytes: Buffer.concat(begun), line, isWhole: false }
}
