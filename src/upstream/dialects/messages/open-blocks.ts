// The content blocks of a stream, each begun once and ended once: vendors that imitate the style leave out ends of
// blocks, or their indexes.
import type { Exchange } from '../../../core/exchange.ts'
import type { Json } from '../../../base/json.ts'
import { SseEvent } from '../../../core/sse.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { saysSomething } from '../../../protocols/messages.ts'
import { CallIds } from '../call-ids.ts'
import type { CallFlaw } from '../error-reply.ts'
import { JsonEnd } from '../json-end.ts'
import { sealThought } from '../thoughts.ts'
import { isCall, WholeBlocks, withId } from './blocks.ts'
import { sealBlock } from './thoughts.ts'

/** A content block that has not ended. */
export interface OpenBlock {
  /** the client's index */
  readonly index: number
  /** the vendor's index, if it has one */
  readonly theirs: unknown
  readonly type: unknown
  /** of a thought, so far: vendors may send it in pieces, and it can be sealed only whole */
  signature: string
  /** of a call of the client's tools, with the vendor's id */
  readonly call?: { readonly id: unknown, readonly input: JsonEnd }
}

/**
 * The type of block for a delta without one. Calls are missing: their deltas lack the name, without which no call can
 * begin.
 */
export const BLOCK_OF: Readonly<Record<string, string>> = { text_delta: 'text', citations_delta: 'text',
  thinking_delta: 'thinking', signature_delta: 'thinking' }

/** Most blocks that are open at a time: parallel calls, of which no model makes as many. All are looked at for each. */
const MOST_OPEN = 1000

export class OpenBlocks {
  readonly #exchange: Exchange
  readonly #upstream: Upstream
  readonly #whole: WholeBlocks
  readonly #ids: CallIds
  /** in the order in which they began */
  readonly #open: OpenBlock[] = []
  #count = 0
  #hasCalls = false
  #hasContent = false
  /** of the calls that have ended */
  #flaw: CallFlaw | undefined

  constructor (exchange: Exchange, upstream: Upstream) {
    this.#exchange = exchange
    this.#upstream = upstream
    this.#whole = new WholeBlocks(exchange)
    this.#ids = new CallIds(exchange, upstream)
  }

  /** whether a tool of the client's was called, in this block or an earlier one */
  get hasCalls (): boolean {
    return this.#hasCalls
  }

  /** whether a block was more than an empty text or thought from its start */
  get hasContent (): boolean {
    return this.#hasContent
  }

  /** why the input of a call is no object; undefined: each is one, so far */
  get flaw (): CallFlaw | undefined {
    return this.#open.reduce((flaw, { call }) => flaw ?? call?.input.flaw, this.#flaw)
  }

  get last (): OpenBlock | undefined {
    return this.#open.at(-1)
  }

  /**
   * @param event the vendor's event, if there is one
   * @returns the block's start, and the deltas for content in it; nothing where it says nothing, or was begun before
   * @throws {Error} too many are open
   */
  begin (said: unknown, theirs: unknown, event?: SseEvent, data: Json = {}): readonly SseEvent[] {
    const block = this.#whole.fill(said)
    if (block === undefined || this.#isBegun(block, theirs)) return []
    const { type } = block
    const ended = this.#open.filter((one) => one.theirs === theirs || !isCall(one.type))
      .flatMap((one) => this.end(one))
    if (this.#open.length === MOST_OPEN) throw new Error(`more than ${MOST_OPEN} content blocks have no end`)
    const index = this.#count++
    const signature = type === 'thinking' ? block.signature as string : ''
    const isToolUse = type === 'tool_use'
    this.#open.push({ index, theirs, type, signature,
      ...(isToolUse && { call: { id: block.id, input: new JsonEnd() } }) })
    this.#hasCalls ||= isToolUse
    this.#hasContent ||= saysSomething(block)
    const { content, early } = split(withId(block, this.#ids), index)
    const start = type === 'redacted_thinking' ? sealBlock(content, this.#exchange, this.#upstream) : content
    const isWhole = event !== undefined && start === said && theirs === index
    return [...ended, isWhole
      ? event
      : SseEvent.of('content_block_start', { ...data, type: 'content_block_start', index, content_block: start }),
      ...early]
  }

  /** Whether it is the same call again. */
  #isBegun ({ id, type }: Json, theirs: unknown): boolean {
    return type === 'tool_use' && this.#open.some((one) =>
      one.theirs === theirs && one.call !== undefined && one.call.id === id && one.call.input.isBlank)
  }

  /**
   * @param event the vendor's end, if it has the client's index
   * @returns the end, behind the block's signature
   */
  end (block: OpenBlock, event?: SseEvent): readonly SseEvent[] {
    this.#open.splice(this.#open.indexOf(block), 1)
    this.#flaw ??= block.call?.input.flaw
    const { index, signature } = block
    const end = event ?? SseEvent.of('content_block_stop', { type: 'content_block_stop', index })
    if (signature === '') return [end]
    const sealed = sealThought(this.#exchange, this.#upstream, signature)
    return [deltaOf(index, { type: 'signature_delta', signature: sealed }), end]
  }

  endAll (): SseEvent[] {
    return [...this.#open].flatMap((block) => this.end(block))
  }

  /** The block of an event; without an index, the last one that may hold the delta. */
  find (theirs: unknown, delta?: string): OpenBlock | undefined {
    const fitting = delta === undefined ? this.#open : this.#open.filter(({ type }) => mayHold(type, delta))
    return theirs === undefined || theirs === null
      ? fitting.at(-1)
      : fitting.find((one) => one.theirs === theirs) ?? fitting.find((one) => one.theirs === undefined)
  }
}

/** What a start says of a block that later events say: text, a thought, its signature. */
function split (block: Json, index: number): { readonly content: Json, readonly early: readonly SseEvent[] } {
  const { type, text, thinking, signature } = block
  if (type === 'text' && text !== '') {
    return { content: { ...block, text: '' }, early: [deltaOf(index, { type: 'text_delta', text })] }
  }
  if (type !== 'thinking' || (thinking === '' && signature === '')) return { content: block, early: [] }
  return { content: { ...block, thinking: '', signature: '' },
    early: thinking === '' ? [] : [deltaOf(index, { type: 'thinking_delta', thinking })] }
}

export function deltaOf (index: number, said: Json): SseEvent {
  return SseEvent.of('content_block_delta', { type: 'content_block_delta', index, delta: said })
}

/**
 * Whether a block may hold a delta: text, thinking and the input of a call do not mix. Types that are unknown here may
 * hold any.
 */
function mayHold (block: unknown, delta: string): boolean {
  if (isCall(block)) return BLOCK_OF[delta] === undefined
  return block !== 'text' && block !== 'thinking'
    ? true
    : delta !== 'input_json_delta' && (BLOCK_OF[delta] ?? block) === block
}
