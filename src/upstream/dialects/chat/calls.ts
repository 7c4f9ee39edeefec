// Tells the calls of a streamed answer apart: vendors number them, name them, or do neither.
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { CallIds } from '../call-ids.ts'
import type { Call } from '../answer-blocks.ts'
import { UnusableCall } from '../error-reply.ts'
import { textIn } from '../json.ts'
import { JsonEnd } from '../json-end.ts'

export class Calls {
  readonly #ids: CallIds
  readonly #all: Call[] = []
  /** the last call of each choice and index, and of each vendor's id */
  readonly #counted = new Map<string, Call>()
  readonly #named = new Map<string, Call>()

  constructor (exchange: Exchange, upstream: Upstream) {
    this.#ids = new CallIds(exchange, upstream)
  }

  /** Whether there is none; one that never got a name is none. */
  get isEmpty (): boolean {
    return this.#all.every(({ name }) => name === '')
  }

  /** Whether a call's input is incomplete. @throws {UnusableCall} one has its end, and is no object */
  get hasTornInput (): boolean {
    if (this.#all.some(({ input }) => input.flaw === 'other')) throw new UnusableCall('other')
    return this.#all.some(({ input }) => input.flaw === 'half')
  }

  /** The call that a piece belongs to; undefined: it begins another. */
  find ({ index, id, function: its }: Json, piece: string, choice: string): Call | undefined {
    const name = isRecord(its) ? textIn(its.name) : ''
    const theirs = textIn(id)
    const known = typeof index === 'number' ? this.#counted.get(`${choice} ${index}`)
      : theirs !== '' ? this.#named.get(theirs) : this.#all.at(-1)
    // A piece without index, id and name belongs to the last call.
    if (known === undefined) return name === '' && theirs === '' ? this.#all.at(-1) : undefined
    if (name === '') return known
    // Gemini numbers every call as 0; others repeat the name, or the id, with each piece.
    if (theirs !== '' && known.vendorsId !== '' && theirs !== known.vendorsId) return undefined
    // A name after a whole input begins another call. With an index or an id of the same call it must have input of its
    // own.
    const hasMore = piece !== '' || (typeof index !== 'number' && theirs === '')
    const isRepeated = typeof index === 'number' && piece !== '' && known.name === name && known.input.text === piece
    if (isRepeated) return known
    const isAnother = known.name !== '' && (known.name !== name || (known.input.isWhole && hasMore))
    return isAnother ? undefined : known
  }

  begin ({ index, id, function: its }: Json, choice: string): Call {
    const theirs = textIn(id)
    const name = isRecord(its) ? textIn(its.name) : ''
    const call: Call = {
      kind: 'tool_use', index: undefined, isClosed: false, waiting: '', input: new JsonEnd(),
      vendorsId: theirs, id: this.#ids.next(theirs, name), name
    }
    this.#all.push(call)
    if (typeof index === 'number') this.#counted.set(`${choice} ${index}`, call)
    if (theirs !== '') this.#named.set(theirs, call)
    return call
  }
}
