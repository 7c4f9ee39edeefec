// Finds a member of the outermost object of a JSON text in its bytes, so that a large one need not be parsed.
import { setImmediate } from 'node:timers/promises'
import { JsonGuard, type LongString, type Outline } from './json-limits.ts'

/** Bytes that are read in one turn of the event loop: a millisecond. */
const PORTION = 256 * 1024
/** Bytes of a character of a key, at most: \u0062. */
const ESCAPED = 6

/** Where a value stands: from its first byte, or white space before it, to behind its last. */
export interface Span {
  readonly start: number
  readonly end: number
}

/**
 * @param json valid, or not: what is found in a text that is none means nothing
 * @returns each member of that name
 * @throws {GatewayError} bad_request: it breaks a limit of JsonGuard
 */
export async function membersNamed (name: string, json: Buffer): Promise<readonly Span[]> {
  const found = new Members(name, json)
  const guard = new JsonGuard(found)
  for (let at = 0; at < json.length; at += PORTION) {
    if (at > 0) await setImmediate()
    guard.push(json.subarray(at, at + PORTION))
  }
  found.end(json.length)                                      // of a text that ends too early
  return found.spans
}

class Members implements Outline {
  readonly spans: Span[] = []
  readonly #name: string
  readonly #json: Buffer
  /** of the value that is being read */
  #start: number | undefined

  constructor (name: string, json: Buffer) {
    this.#name = name
    this.#json = json
  }

  member (key: LongString, start: number): void {
    this.#start = this.#isNamed(key) ? start : undefined
  }

  end (end: number): void {
    if (this.#start !== undefined) this.spans.push({ start: this.#start, end })
    this.#start = undefined
  }

  #isNamed ({ start, end }: LongString): boolean {
    if (end - start > this.#name.length * ESCAPED) return false
    const text = this.#json.toString('utf8', start, end)
    if (!text.includes('\\')) return text === this.#name
    try {
      return JSON.parse(`"${text}"`) === this.#name
    } catch {
      return false
    }
  }
}
