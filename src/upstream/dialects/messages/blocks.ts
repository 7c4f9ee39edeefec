// Completes content blocks by their type: clients read these fields without checking that they exist.
import type { Exchange } from '../../../core/exchange.ts'
import { isRecord, type Json } from '../../../base/json.ts'

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

/** The blocks of one answer. */
export class WholeBlocks {
  readonly #exchange: Exchange
  #calls = 0

  constructor (exchange: Exchange) {
    this.#exchange = exchange
  }

  /**
   * @returns the same object where it is complete
   * @throws {Error} it has too little for a block, or a field of another type than its own requires
   */
  fill (block: unknown): Json {
    if (!isRecord(block)) throw new Error('a content block is no object')
    const type = block.type ?? TELLING.find(([field]) => field in block)?.[1]
    if (typeof type !== 'string') throw new Error('a content block has no type')
    let whole = block.type === type ? block : { ...block, type }
    const defaults = UNSAID[type]
    for (const name in defaults) {
      const said = block[name] ?? undefined
      if (said === undefined) { whole = { ...whole, [name]: defaults[name] } }
      else if (typeof said !== typeof defaults[name]) {
        throw new Error(`"${name}" of a content block of type "${type}" is of another type`)
      }
    }
    if (!isCall(type)) return whole
    if (typeof block.name !== 'string' || block.name === '') throw new Error('a call has no name')
    const call = this.#calls++
    return typeof block.id === 'string' && block.id !== '' ? whole : { ...whole, id: this.#idOf(type, call) }
  }

  #idOf (type: string, call: number): string {
    const { id } = this.#exchange
    return `${type === 'server_tool_use' ? 'srvtoolu' : 'toolu'}_${id.slice(id.indexOf('_') + 1)}_${call}`
  }
}
