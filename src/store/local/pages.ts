// Text lines in pages of bytes: a ledger of millions of entries that the garbage collector need not scan. As objects,
// the entries of 200,000 requests made each full collection block all streams for 50 ms (measured).
import type { JsonBytes } from '../../base/json-bytes.ts'

const PAGE_BYTES = 256 * 1024
const LINE_FEED = 10

export class Pages {
  readonly #full: Buffer[] = []
  #page = Buffer.allocUnsafe(PAGE_BYTES)
  #used = 0

  /** @param line without a line feed in it */
  add ({ bytes, length }: JsonBytes): void {
    if (this.#used + length >= this.#page.length) {
      this.#full.push(this.#page.subarray(0, this.#used))
      this.#page = Buffer.allocUnsafe(Math.max(PAGE_BYTES, length + 1))
      this.#used = 0
    }
    this.#used += bytes.copy(this.#page, this.#used, 0, length)
    this.#page[this.#used++] = LINE_FEED
  }

  /** The lines that are there when it is called, page by page. */
  lines (): Iterable<string> {
    return linesOf(this.#pages())
  }

  /** The pages that are there when it is called, the last one first: the lines of each, in their order. */
  * backwards (): Iterable<readonly string[]> {
    for (const page of this.#pages().reverse()) {
      const lines = [...linesOf([page])]
      if (lines.length > 0) yield lines
    }
  }

  #pages (): Buffer[] {
    return [...this.#full, this.#page.subarray(0, this.#used)]
  }
}

function * linesOf (pages: readonly Buffer[]): Iterable<string> {
  for (const page of pages) {
    for (const line of page.toString('utf8').split('\n')) if (line !== '') yield line
  }
}
