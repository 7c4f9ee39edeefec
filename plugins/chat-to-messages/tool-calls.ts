// Matches tool messages with their calls, and gives both the id for the vendor.
import { invalid } from '../../src/translation/reads.ts'
import { vendorId } from '../../src/translation/vendor-id.ts'

interface Call {
  /** the client's id */
  readonly id: string
  readonly vendorId: string
  /** index of its message */
  readonly at: number
  /** index within the message */
  readonly index: number
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

  /** @returns the vendor's id */
  make (id: string, at: number, index: number): string {
    const call = { id, vendorId: vendorId(id), at, index, isAnswered: false }
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

  /** @returns the vendor's id */
  answer (id: string, at: number): string {
    const call = this.#calls?.get(id)
    if (call === undefined) {
      throw invalid(`messages[${at}].tool_call_id`, 'answers no tool call of the assistant message before it')
    }
    call.isAnswered = true
    return call.vendorId
  }

  /** Ends the assistant's last turn with its answers. */
  end (): void {
    if (this.#calls === undefined) return
    for (const { at, index, isAnswered } of this.#calls.values()) {
      if (!isAnswered) {
        throw invalid(`messages[${at}].tool_calls[${index}].id`,
          'has no answer: a tool message with this tool_call_id must follow the assistant message')
      }
    }
    this.#calls = undefined
  }
}
