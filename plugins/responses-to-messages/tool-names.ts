// Names of tools for the model; the way back is in shape.ts. A tool may stand in a namespace, and vendors want one
// short name.
import { hash } from 'node:crypto'

/** Names that every vendor takes. */
const TAKEN = /^[\w-]{1,64}$/
const KEPT_LENGTH = 52
const HASH_LENGTH = 10

export class ToolNames {
  readonly #names = new Map<string, string>()
  readonly #given = new Set<string>()

  /** @returns the same name for the same tool; one of its own for each */
  give (name: string, namespace = ''): string {
    const key = `${namespace}\n${name}`
    const known = this.#names.get(key)
    if (known !== undefined) return known
    const whole = namespace === '' ? name : `${namespace}__${name}`
    let given = whole
    for (let i = 0; !TAKEN.test(given) || this.#given.has(given); i++) given = shortened(whole, `${key}\n${i}`)
    this.#names.set(key, given)
    this.#given.add(given)
    return given
  }
}

function shortened (name: string, key: string): string {
  const digest = hash('sha256', Buffer.from(key, 'utf16le'), 'hex').slice(0, HASH_LENGTH)
  return `${name.slice(0, KEPT_LENGTH).replace(/[^\w-]/g, '_')}_${digest}`
}
