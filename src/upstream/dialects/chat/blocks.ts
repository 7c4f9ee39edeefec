// The content blocks of a streamed answer: opened and closed one after the other, whatever the order in which a vendor
// sends their pieces.
import { SseEvent } from '../../../core/sse.ts'
import type { JsonEnd } from './json-end.ts'

type Kind = 'text' | 'thinking' | 'tool_use'

/** One that is open, or waits until those before it are over. */
export interface Block {
  readonly kind: Kind
  /** undefined: it is not open yet */
  index: number | undefined
  isClosed: boolean
  /** what came of it before it was open */
  waiting: string
}

export interface Call extends Block {
  readonly kind: 'tool_use'
  /** the vendor's */
  readonly vendorsId: string
  /** the client's */
  readonly id: string
  name: string
  readonly input: JsonEnd
}

/** Characters that wait. Only of parallel calls whose pieces take turns, and a model writes no more of them. */
const MOST_WAITING = 4 * 1024 * 1024

export class Blocks {
  /** in the order of the answer; the first is open, but a call without a name yet */
  readonly #blocks: Block[] = []
  #opened = 0
  #waiting = 0
  #out: SseEvent[] = []

  /** Words or thoughts. */
  say (kind: 'text' | 'thinking', piece: string): void {
    if (piece === '') return
    let last = this.#blocks.at(-1)
    if (last?.kind !== kind) this.#blocks.push(last = { kind, index: undefined, isClosed: false, waiting: '' })
    this.#add(last, piece)
  }

  /** A call that begins. */
  call (call: Call): void {
    this.#blocks.push(call)
    this.#advance()
  }

  /** @throws {Error} the call is over: what comes now would be lost */
  input (call: Call, piece: string): void {
    if (call.isClosed && piece.trim() !== '') throw new Error('a call goes on behind its end')
    // A few vendors say so of a call without arguments; a client would take it for its input.
    if (piece === '' || call.isClosed || (call.input.isBlank && piece.trim() === 'null')) return
    call.input.read(piece)
    this.#add(call, piece)
  }

  /** The answer is over. @throws {Error} a call has no name */
  end (): void {
    for (let [first] = this.#blocks; first !== undefined; [first] = this.#blocks) {
      this.#open(first)
      if (first.index === undefined) throw new Error('a call has no name')
      this.#close(first)
    }
  }

  /** What these made of the answer, since it was asked last. */
  take (): SseEvent[] {
    const out = this.#out
    this.#out = []
    return out
  }

  #add (block: Block, piece: string): void {
    if (block.index === undefined) {
      this.#waiting += piece.length
      if (this.#waiting > MOST_WAITING) {
        throw new Error(`more than ${MOST_WAITING} characters wait for calls before them`)
      }
      block.waiting += piece
    } else this.#delta(block, piece)
    this.#advance()
  }

  /** Closes what is over where something follows it, and opens what is first then. */
  #advance (): void {
    for (let [first, next] = this.#blocks; first !== undefined; [first, next] = this.#blocks) {
      this.#open(first)
      if (next === undefined || !isOver(first)) return
      this.#close(first)
    }
  }

  #open (block: Block): void {
    if (block.index !== undefined || (isCall(block) && block.name === '')) return
    block.index = this.#opened++
    this.#out.push(
      SseEvent.of('content_block_start', { type: 'content_block_start', index: block.index,
        content_block: empty(block) })
    )
    if (block.waiting === '') return
    this.#waiting -= block.waiting.length
    this.#delta(block, block.waiting)
    block.waiting = ''
  }

  #delta ({ kind, index }: Block, piece: string): void {
    const delta = kind === 'text' ? { type: 'text_delta', text: piece }
      : kind === 'thinking' ? { type: 'thinking_delta', thinking: piece }
      : { type: 'input_json_delta', partial_json: piece }
    this.#out.push(SseEvent.of('content_block_delta', { type: 'content_block_delta', index, delta }))
  }

  #close (block: Block): void {
    this.#blocks.shift()
    block.isClosed = true
    const { kind, index } = block
    // Nobody signed it. Clients that wait for a signature before they send a thought back get one that says so.
    const unsigned = { type: 'signature_delta', signature: '' }
    if (kind === 'thinking') {
      this.#out.push(SseEvent.of('content_block_delta', { type: 'content_block_delta', index, delta: unsigned }))
    }
    this.#out.push(SseEvent.of('content_block_stop', { type: 'content_block_stop', index }))
  }
}

/** A call goes on until its input is whole, whatever comes between. */
function isOver (block: Block): boolean {
  return block.index !== undefined && (!isCall(block) || block.input.isWhole)
}

function isCall (block: Block): block is Call {
  return block.kind === 'tool_use'
}

function empty (block: Block): object {
  if (isCall(block)) return { type: 'tool_use', id: block.id, name: block.name, input: {} }
  return block.kind === 'text' ? { type: 'text', text: '' } : { type: 'thinking', thinking: '', signature: '' }
}
