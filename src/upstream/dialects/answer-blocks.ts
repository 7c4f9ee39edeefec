// The content blocks of a streamed answer: opened and closed one after the other, in whatever order a vendor sends
// their pieces.
import { SseEvent } from '../../core/sse.ts'
import { UnusableCall } from './error-reply.ts'
import type { Json } from '../../base/json.ts'
import type { JsonEnd } from './json-end.ts'

type Kind = 'text' | 'thinking' | 'tool_use'

/** A block that is open, or waits for the end of those before it. */
export interface Block {
  readonly kind: Kind
  /** undefined: it is not open yet */
  index: number | undefined
  isClosed: boolean
  /** its content so far, while it is not open */
  waiting: string
  /** the vendor says, or will say, that it is over. Undefined: it does not, its successor or its input does */
  isDone?: boolean
  /** of thinking */
  signature?: string
}

export interface Call extends Block {
  readonly kind: 'tool_use'
  /** the vendor's id */
  readonly vendorsId: string
  /** the client's id */
  readonly id: string
  name: string
  /** fields of chat style, for a client of it */
  own?: Json
  readonly input: JsonEnd
}

/** Most characters that wait: only those of parallel calls with interleaved pieces, of which a model writes no more. */
const MOST_WAITING = 4 * 1024 * 1024

export class Blocks {
  /** in the order of the answer; the first is open, unless it is a call without a name yet */
  readonly #blocks: Block[] = []
  #opened = 0
  #waiting = 0
  #out: SseEvent[] = []

  /** Adds text or thinking. */
  say (kind: 'text' | 'thinking', piece: string): void {
    if (piece === '') return
    let last = this.#blocks.at(-1)
    if (last?.kind !== kind) this.#blocks.push(last = { kind, index: undefined, isClosed: false, waiting: '' })
    this.#add(last, piece)
  }

  /** Adds what the vendor wants back of its thoughts: to the last thought, or as one without text. */
  sign (signature: string): void {
    let last = this.#blocks.at(-1)
    if (last?.kind !== 'thinking' || last.signature !== undefined) {
      this.#blocks.push(last = { kind: 'thinking', index: undefined, isClosed: false, waiting: '' })
    }
    last.signature = signature
    this.#advance()
  }

  begin (block: Block): void {
    this.#blocks.push(block)
    this.#advance()
  }

  /** More content of a block that is not closed. */
  add (block: Block, piece: string): void {
    if (piece !== '') this.#add(block, piece)
  }

  /** The vendor says that it is over. */
  done (block: Block): void {
    block.isDone = true
    this.#advance()
  }

  /** More arguments of a call. @throws {UnusableCall} they go on behind their end */
  input (call: Call, piece: string): void {
    if (call.isClosed || call.input.isWhole) {
      call.input.checkTail(piece)
      return
    }
    // A few vendors send "null" for a call without arguments; a client would take it for the input.
    if (piece === '' || (call.input.isBlank && piece.trim() === 'null')) return
    const length = call.input.read(piece)
    this.#add(call, length === piece.length ? piece : piece.slice(0, length))
    if (length < piece.length) call.input.checkTail(piece.slice(length))
  }

  /** Forgets a block of which nothing was said: it turns out to be no part of the answer. */
  drop (block: Block): void {
    this.#blocks.splice(this.#blocks.indexOf(block), 1)
    this.#waiting -= block.waiting.length
    this.#advance()
  }

  /** Replaces the content of a block. @returns false: some of it was said */
  replace (block: Block, content: string): boolean {
    if (block.index !== undefined) return false
    this.#waiting += content.length - block.waiting.length
    block.waiting = content
    return true
  }

  /** Ends the answer. @throws {UnusableCall} a call with arguments has no name */
  end (): void {
    for (let [first] = this.#blocks; first !== undefined; [first] = this.#blocks) {
      this.#open(first)
      if (first.index !== undefined) this.#close(first)
      else if (first.waiting === '') this.drop(first)
      else throw new UnusableCall('nameless')
    }
  }

  /** The events made since the last call. */
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

  /** Closes blocks that are over as far as anybody says or their successor shows, and opens the next one. */
  #advance (): void {
    for (let [first, next] = this.#blocks; first !== undefined; [first, next] = this.#blocks) {
      this.#open(first)
      if ((next === undefined && first.isDone !== true) || !isOver(first)) return
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
    const { kind, index, signature = '' } = block
    // Unsigned thinking gets an empty signature, for clients that wait for one before they send a thought back.
    const signed = { type: 'signature_delta', signature }
    if (kind === 'thinking') {
      this.#out.push(SseEvent.of('content_block_delta', { type: 'content_block_delta', index, delta: signed }))
    }
    this.#out.push(SseEvent.of('content_block_stop', { type: 'content_block_stop', index }))
  }
}

/** Whether a block may be closed: a call goes on until its input is whole, whatever comes between. */
function isOver (block: Block): boolean {
  return block.index !== undefined && (block.isDone ?? (!isCall(block) || block.input.isWhole))
}

function isCall (block: Block): block is Call {
  return block.kind === 'tool_use'
}

function empty (block: Block): object {
  if (isCall(block)) return { type: 'tool_use', id: block.id, name: block.name, input: {}, ...block.own }
  return block.kind === 'text' ? { type: 'text', text: '' } : { type: 'thinking', thinking: '', signature: '' }
}
