// The calls of a streamed answer, told apart: vendors count them, name them, or do neither.
import type { Exchange } from '../../../core/exchange.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { CallIds } from './answer.ts'
import type { Call } from './blocks.ts'
import { textIn } from './json.ts'
import { JsonEnd } from './json-end.ts'

export class Calls {
  readonly #ids: CallIds
  readonly #all: Call[] = []
  /** the last of each, by the vendor's count and by the vendor's id */
  readonly #counted = new Map<number, Call>()
  readonly #named = new Map<string, Call>()

  constructor (exchange: Exchange) {
    this.#ids = new CallIds(exchange)
  }

  get isEmpty (): boolean {
    return this.#all.length === 0
  }

  /** The input of one is there in part. */
  get hasTornInput (): boolean {
    return this.#all.some(({ input }) => !input.isBlank && !input.isWhole)
  }

  /** The call that a piece belongs to; undefined: it begins another. */
  find ({ index, id, function: its }: Json, piece: string): Call | undefined {
    const name = isRecord(its) ? textIn(its.name) : ''
    const theirs = textIn(id)
    const known = typeof index === 'number' ? this.#counted.get(index)
      : theirs !== '' ? this.#named.get(theirs) : this.#all.at(-1)
    // A piece that says nothing of itself belongs to the call that was made last.
    if (known === undefined) return name === '' && theirs === '' ? this.#all.at(-1) : undefined
    if (name === '') return known
    // Gemini counts every call as 0; others repeat the name, or the id, with each piece.
    if (theirs !== '' && known.vendorsId !== '' && theirs !== known.vendorsId) return undefined
    // A name behind a whole input begins another call. Where an index or an id says that it does not, it must bring
    // input of its own.
    const hasMore = piece !== '' || (typeof index !== 'number' && theirs === '')
    const isAnother = known.name !== '' && (known.name !== name || (known.input.isWhole && hasMore))
    return isAnother ? undefined : known
  }

  begin ({ index, id, function: its }: Json): Call {
    const theirs = textIn(id)
    const call: Call = {
      kind: 'tool_use', index: undefined, isClosed: false, waiting: '', input: new JsonEnd(),
      vendorsId: theirs, id: this.#ids.next(theirs), name: isRecord(its) ? textIn(its.name) : ''
    }
    this.#all.push(call)
    if (typeof index === 'number') this.#counted.set(index, call)
    if (theirs !== '') this.#named.set(theirs, call)
    return call
  }
}
