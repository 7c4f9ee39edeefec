// Which tool message answers which call, and by which id the vendor knows both.
import { hash } from 'node:crypto'
import { invalid } from './chat.ts'

/**
 * What the vendor takes, in the length that the strictest host of its style takes. A chat begun elsewhere has other ids
 * ("functions.f:0").
 */
const TAKEN = /^(?!gw_)[\w-]{1,64}$/
const KEPT_LENGTH = 36
const HASH_LENGTH = 22

/**
 * The same for every request, so that what the vendor cached of a chat stays good. An id that looks like one of these
 * becomes another too: nobody can name a call like it.
 */
export function vendorId (id: string): string {
  if (TAKEN.test(id)) return id
  // Not as UTF-8, to which all lone surrogates are the same.
  const digest = hash('sha256', Buffer.from(id, 'utf16le'), 'base64url').slice(0, HASH_LENGTH)
  return `gw_${id.slice(0, KEPT_LENGTH).replace(/[^\w-]/g, '_')}_${digest}`
}

interface Call {
  /** the client's */
  readonly id: string
  readonly vendorId: string
  /** of the message */
  readonly at: number
  /** in the message */
  readonly index: number
  isAnswered: boolean
}

/**
 * The vendor wants the answers to all calls of a turn in the next one, and no others. Its own words for that count
 * messages that are not the client's.
 */
export class ToolCalls {
  /** of the message that is being read */
  #made: Call[] = []
  /** of the assistant's last turn */
  readonly #calls = new Map<string, Call>()

  /** @returns the vendor's id */
  make (id: string, at: number, index: number): string {
    const call = { id, vendorId: vendorId(id), at, index, isAnswered: false }
    this.#made.push(call)
    return call.vendorId
  }

  /** What was made is in the assistant's last turn now. */
  keep (): void {
    for (const call of this.#made) this.#calls.set(call.id, call)
    if (this.#made.length > 0) this.#made = []
  }

  /** @returns the vendor's id */
  answer (id: string, at: number): string {
    const call = this.#calls.get(id)
    if (call === undefined) {
      throw invalid(`messages[${at}].tool_call_id`, 'answers no tool call of the assistant message before it')
    }
    call.isAnswered = true
    return call.vendorId
  }

  /** The assistant's last turn, and what answers it, are over. */
  end (): void {
    for (const { at, index, isAnswered } of this.#calls.values()) {
      if (!isAnswered) {
        throw invalid(`messages[${at}].tool_calls[${index}].id`,
          'has no answer: a tool message with this tool_call_id must follow the assistant message')
      }
    }
    this.#calls.clear()
  }
}
