// A client's body on its way to an upstream, with changes of some fields and without those that must not pass. It may
// have thousands of fields: then it is printed field by field, and not copied.
import { isGiven, type Json } from '../../base/json.ts'
import type { UpstreamRequest } from '../../core/plugin.ts'

/** Up to so many fields a copy that is printed at once costs less. */
const FEW = 32

/** Undefined: all of them. */
type Passing = Pick<ReadonlySet<string>, 'has'> | undefined

export class PassedRequest implements UpstreamRequest {
  readonly method = 'POST'
  path: string
  readonly headers: Record<string, string>
  readonly #own: Json
  readonly #changes: Json
  readonly #passing: Passing
  /** made when a plugin has read or replaced the body */
  #body: Json | undefined

  /**
   * @param changes replace fields of the body; null and undefined remove a field, as they do in the body
   * @param passing names of the body's fields that pass unchanged
   */
  constructor (path: string, headers: Record<string, string>, own: Json, changes: Json, passing: Passing) {
    this.path = path
    this.headers = headers
    this.#own = own
    this.#changes = changes
    this.#passing = passing
  }

  /** An object made on demand, for plugins. */
  get body (): Json {
    if (this.#body !== undefined) return this.#body
    const fields: [name: string, value: unknown][] = []
    this.#eachField((name, value) => { fields.push([name, value]) })
    return this.#body = Object.fromEntries(fields)
  }

  set body (body: Json) {
    this.#body = body
  }

  get text (): string {
    if (this.#body !== undefined) return JSON.stringify(this.#body)
    const copy = this.#copyOfFew()
    if (copy !== undefined) return JSON.stringify(copy)
    let fields = ''
    this.#eachField((name, value) => {
      const text = JSON.stringify(value) as string | undefined
      if (text !== undefined) fields += `${fields === '' ? '' : ','}${JSON.stringify(name)}:${text}`
    })
    return `{${fields}}`
  }

  /** Undefined: there are more, or one whose name would change the copy's prototype. */
  #copyOfFew (): Json | undefined {
    const own = this.#own
    const changes = this.#changes
    const passing = this.#passing
    const copy: Record<string, unknown> = {}
    let count = 0
    for (const name in own) {
      if (++count > FEW || name === '__proto__') return undefined
      if (isGiven(own[name]) && !Object.hasOwn(changes, name) && passing?.has(name) !== false) copy[name] = own[name]
    }
    for (const name in changes) if (isGiven(changes[name])) copy[name] = changes[name]
    return copy
  }

  #eachField (tell: (name: string, value: unknown) => void): void {
    const [own, changes, passing] = [this.#own, this.#changes, this.#passing]
    for (const name in own) {
      if (!Object.hasOwn(changes, name) && isGiven(own[name]) && passing?.has(name) !== false) tell(name, own[name])
    }
    for (const name in changes) if (isGiven(changes[name])) tell(name, changes[name])
  }
}

/** The JSON text of a request's body. */
export function textOf (request: UpstreamRequest): string {
  return request instanceof PassedRequest ? request.text : JSON.stringify(request.body)
}
