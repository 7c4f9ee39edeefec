// Completes content blocks by their type: clients read these fields without checking that they exist.
import type { Exchange } from '../../../core/exchange.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import type { CallIds } from '../call-ids.ts'
import { UnusableCall } from '../error-reply.ts'
import { callInput } from '../json.ts'

/** Defaults of fields that a vendor leaves out, by the block's type. Blocks of unknown types pass as they are. */
const UNSAID: Readonly<Record<string, Json>> = {
  text: { text: '' },
  thinking: { thinking: '', signature: '' },
  redacted_thinking: { data: '' },
  tool_use: { input: {} },
  server_tool_use: { input: {} },
  mcp_tool_use: { input: {} }
}

/** The type of a block without one, by its field. */
const TELLING = [['text', 'text'], ['thinking', 'thinking'], ['name', 'tool_use']] as const

export function isCall (type: unknown): boolean {
  return type === 'tool_use' || type === 'server_tool_use' || type === 'mcp_tool_use'
}

/** A call of the client's tools gets the client's id. @returns the same object where that is the vendor's */
export function withId (block: Json, ids: CallIds): Json {
  if (block.type !== 'tool_use') return block
  const id = ids.next(block.id as string, block.name as string)
  return id === block.id ? block : { ...block, id }
}

/** The blocks of one answer. */
export class WholeBlocks {
  readonly #exchange: Exchange
  #calls = 0

  constructor (exchange: Exchange) {
    this.#exchange = exchange
  }

  /**
   * @param isShort whether the answer was cut short, and a call with it, maybe
   * @returns the same object where it is complete; undefined: it says nothing, or is half a call
   * @throws {UnusableCall} a call has no name, or an input that is no object
   */
  fill (said: unknown, isShort = false): Json | undefined {
    const block = typeof said === 'string' ? { type: 'text', text: said } : said
    if (!isRecord(block)) return undefined
    if (block.type === 'text' && typeof block.text === 'string') return block
    const type = block.type ?? TELLING.find(([field]) => field in block)?.[1]
    if (typeof type !== 'string') return undefined
    let whole = block.type === type ? block : { ...block, type }
    const defaults = UNSAID[type]
    for (const name in defaults) {
      const value = valueOf(block[name], name, defaults[name], isShort)
      if (value === undefined) return undefined
      if (value !== block[name]) whole = { ...whole, [name]: value }
    }
    if (!isCall(type)) return whole
    if (typeof block.name !== 'string' || block.name === '') {
      if (isShort || Object.keys(whole.input as object).length === 0) return undefined
      throw new UnusableCall('nameless')
    }
    const call = this.#calls++
    return typeof block.id === 'string' && block.id !== '' ? whole : { ...whole, id: this.#idOf(type, call) }
  }

  #idOf (type: string, call: number): string {
    const { id } = this.#exchange
    return `${type === 'server_tool_use' ? 'srvtoolu' : 'toolu'}_${id.slice(id.indexOf('_') + 1)}_${call}`
  }
}

/** A field as clients read it. Undefined: half a call's input. @throws {UnusableCall} an input that is no object */
function valueOf (said: unknown, name: string, unsaid: unknown, isShort: boolean): unknown {
  if (said === undefined || said === null) return unsaid
  if (name === 'input') return isRecord(said) ? said : inputOf(said, isShort)
  if (typeof said === typeof unsaid) return said
  return name === 'text' ? JSON.stringify(said) : unsaid
}

/** Some vendors send it as text, and PHP an empty object as an empty list. */
function inputOf (said: unknown, isShort: boolean): Json | undefined {
  if (Array.isArray(said) && said.length === 0) return {}
  return callInput(typeof said === 'string' ? said : JSON.stringify(said), isShort)
}
