// Ids of tool calls. Vendors of OpenAI's styles make them as they like ("functions.weather:0"), those of messages style
// refuse most of that: a conversation must be able to go on at either, and each vendor must get its own ids back.
import { hash } from 'node:crypto'
import type { Exchange } from '../../core/exchange.ts'
import type { Json } from '../../base/json.ts'

const PREFIX = 'gwid_'
const HASHED = 'gwhash_'
/**
 * Ids that vendors of messages style accept. An id with a prefix of the gateway's is replaced too, so that none is
 * mistaken for one.
 */
const TAKEN = /^(?!gw(?:id|hash)_)[\w-]{1,64}$/

/** The id for the client, which sends it back. */
export function clientId (id: string): string {
  if (TAKEN.test(id)) return id
  const coded = PREFIX + Buffer.from(id).toString('base64url')
  return coded.length <= 64 ? coded : HASHED + hash('sha256', id, 'base64url')
}

/** As the vendor made it; but for long ones, which stay what they became for the client. */
export function vendorsId (id: string): string {
  if (!id.startsWith(PREFIX)) return id
  const made = Buffer.from(id.slice(PREFIX.length), 'base64url').toString()
  return clientId(made) === id ? made : id
}

/** Most calls of an answer: no model makes as many. */
const MOST_CALLS = 1000

/** The ids of an answer's calls, as the client gets them. */
export class CallIds {
  readonly #request: string
  readonly #taken = new Set<string>()
  #calls = 0

  constructor ({ id }: Exchange) {
    this.#request = id.slice(id.indexOf('_') + 1)
  }

  /**
   * A generated id for a call without one, or with that of another call.
   * @throws {Error} there are too many calls
   */
  next (theirs: string): string {
    if (this.#calls === MOST_CALLS) throw new Error(`the answer has more than ${MOST_CALLS} calls`)
    const given = theirs === '' ? '' : clientId(theirs)
    const id = given !== '' && !this.#taken.has(given) ? given : `toolu_${this.#request}_${this.#calls}`
    this.#calls++
    this.#taken.add(id)
    return id
  }
}

/** Tells the calls of a whole answer that are there twice: vLLM repeats them. */
export class SeenCalls {
  readonly #first = new Map<string, Json>()
  /** of calls under one key, as JSON */
  readonly #all = new Map<string, Set<string>>()

  /** @param key the vendor's id, or the place @param call its name and input */
  isRepeated (key: string, call: Json): boolean {
    const first = this.#first.get(key)
    if (first === undefined) {
      this.#first.set(key, call)
      return false
    }
    let all = this.#all.get(key)
    if (all === undefined) this.#all.set(key, all = new Set([JSON.stringify(first)]))
    const text = JSON.stringify(call)
    if (all.has(text)) return true
    all.add(text)
    return false
  }
}
