// What the vendor of the Responses API remembers: responses that were stored, with their items; and what it lets its
// clients remember in its place: reasoning, encrypted for one organization.
import { createHmac, randomBytes } from 'node:crypto'

export type Item = Readonly<Record<string, unknown>>

/** Of the vendor's; the text behind it is not really secret here, but can't be changed. */
const ENCRYPTED = 'gAAAAAB'

export class ResponsesMemory {
  readonly #organization: string
  readonly #limit: number
  /** by the response's id: its input and its output */
  readonly #responses = new Map<string, readonly Item[]>()
  /** by the item's id */
  readonly #items = new Map<string, Item>()

  /** @param organization what is encrypted for one is foreign to every other */
  constructor (organization: string, limit = 1000) {
    this.#organization = organization
    this.#limit = limit
  }

  store (id: string, input: readonly Item[], output: readonly Item[]): void {
    keep(this.#responses, id, [...input, ...output], this.#limit)
    for (const item of output) keep(this.#items, String(item['id']), item, this.#limit)
  }

  /** Undefined: it was not stored. */
  response (id: string): readonly Item[] | undefined {
    return this.#responses.get(id)
  }

  /** Undefined: it was not stored. */
  item (id: string): Item | undefined {
    return this.#items.get(id)
  }

  encrypt (thought: string): string {
    const text = Buffer.from(thought).toString('base64url')
    return `${ENCRYPTED}${text}.${this.#sign(text)}`
  }

  /** As long as the real one, and of no use: what the vendor says before the reasoning is over. */
  placeholder (): string {
    return `${ENCRYPTED}${randomBytes(30).toString('base64url')}.${randomBytes(32).toString('base64url')}`
  }

  /** Undefined: of another organization, or changed. */
  decrypt (content: string): string | undefined {
    const [text = '', signature] = content.slice(ENCRYPTED.length).split('.')
    if (!content.startsWith(ENCRYPTED) || signature !== this.#sign(text)) return undefined
    return Buffer.from(text, 'base64url').toString()
  }

  #sign (text: string): string {
    return createHmac('sha256', this.#organization).update(text).digest('base64url')
  }
}

function keep<T> (map: Map<string, T>, id: string, value: T, limit: number): void {
  map.set(id, value)
  const oldest = map.keys().next()
  if (map.size > limit && oldest.done !== true) map.delete(oldest.value)
}
