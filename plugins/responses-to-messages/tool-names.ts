// Names of tools for the model; the way back is in shape.ts. A tool may stand in a namespace, and vendors want one
// short name.
import { shortName, VALID_NAME } from '../../src/translation/short-name.ts'

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
    for (let i = 0; !VALID_NAME.test(given) || this.#given.has(given); i++) given = shortName(whole, `${key}\n${i}`)
    this.#names.set(key, given)
    this.#given.add(given)
    return given
  }
}
