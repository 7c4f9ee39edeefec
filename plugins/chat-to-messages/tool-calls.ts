// Matches tool messages with their calls, and gives both the id for the vendor.
import { invalid, nameAt } from '../../src/translation/reads.ts'
import { vendorId } from '../../src/translation/vendor-id.ts'

interface Call {
  /** the client's id */
  readonly id: string
  readonly vendorId: string
  /** of its id */
  readonly path: string
  isAnswered: boolean
}

/**
 * Checks that a turn's calls are answered in the next turn, all of them and no others, as the vendor requires. The
 * vendor's own messages for that have indexes that are not the client's.
 */
export class ToolCalls {
  /** calls of the message that is being read; undefined: none */
  #made: Call[] | undefined
  /** calls of the assistant's last turn, by the client's id; undefined: none */
  #calls: Map<string, Call> | undefined

  /**
   * @param path of the id
   * @returns the vendor's id
   * @throws {GatewayError} invalid_request: it is no id
   */
  make (value: unknown, path: string): string {
    const id = nameAt(value, path)
    const call = { id, vendorId: vendorId(id), path, isAnswered: false }
    this.#made ??= []
    this.#made.push(call)
    return call.vendorId
  }

  /** Ends the message: its calls are those of the assistant's last turn. */
  keep (): void {
    if (this.#made === undefined) return
    this.#calls ??= new Map()
    for (const call of this.#made) this.#calls.set(call.id, call)
    this.#made = undefined
  }

  /**
   * @param path of the id
   * @returns the vendor's id
   * @throws {GatewayError} invalid_request: there is no such call
   */
  answer (id: unknown, path: string): string {
    const call = this.#calls?.get(nameAt(id, path))
    if (call === undefined) throw invalid(path, 'answers no tool call of the assistant message before it')
    call.isAnswered = true
    return call.vendorId
  }

  /** Ends the assistant's last turn with its answers. */
  end (): void {
    if (this.#calls === undefined) return
    for (const { path, isAnswered } of this.#calls.values()) {
      if (!isAnswered) {
        throw invalid(path, 'has no answer: a tool message with this tool_call_id must follow the assistant message')
      }
    }
    this.#calls = undefined
  }
}
