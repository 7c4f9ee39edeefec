// The output of a response, item by item, from the content blocks of a message: the same for a whole answer and for a
// stream. Items come strictly one after the other; neighbouring texts are one item.
import { isRecord, type Json } from '../../src/base/json.ts'
import { GatewayError } from '../../src/errors.ts'
import { BuiltInItem, CompactionItem, CustomItem, FunctionItem, type Item, type ItemStatus, MessageItem, ReasoningItem,
  type Seal } from './items.ts'
import { isTorn } from '../../src/upstream/dialects/json-end.ts'
import { type ResponseShape, toolCalled } from './shape.ts'

/** Is told of the items while they are made. */
export interface OutputListener {
  begun (item: Item): void
  /** text of the item, never empty */
  said (item: Item, text: string): void
  /** @param whole the item, in its last state */
  ended (item: Item, whole: Json): void
}

/** A content block in the making. */
interface Block {
  readonly kind: 'text' | 'thinking' | 'call' | 'answer'
  /** absent: its text goes into the message item */
  readonly item?: Item
  /** of a call, from its start: empty, except with upstreams that send no deltas */
  readonly input?: unknown
  hasInput: boolean
  /** what came while the block before it was not whole: upstreams may mix the pieces of parallel calls */
  waiting: string
  isWhole: boolean
}

/** The stop reasons with which an answer is not complete, and the reason as the API says it. */
const CUT: ReadonlyMap<unknown, string> = new Map([
  ['max_tokens', 'max_output_tokens'],
  ['model_context_window_exceeded', 'max_output_tokens'],
  ['refusal', 'content_filter']
])

/** Why an answer with this stop reason is incomplete; undefined: it is complete. */
export function incompleteReason (stopReason: unknown): string | undefined {
  return CUT.get(stopReason)
}

export class Output {
  readonly #shape: ResponseShape
  readonly #seal: Seal
  readonly #listener: OutputListener
  /** the part of the response's id that is its own */
  readonly #unique: string
  /** whole items */
  readonly items: Json[] = []
  /** the item that is being made; it ends when the next one begins, or the end of the answer is known */
  #open: Item | undefined
  /** of the last call that was begun, so far */
  #input = ''
  #begun = 0
  /** blocks that are not whole, by their index */
  readonly #blocks = new Map<unknown, Block>()
  #active: Block | undefined
  readonly #queue: Block[] = []
  /** With a schema, text is held: it is the content only if there is neither an answer nor a call. */
  #textIs: 'answer' | 'unclear' | 'words'
  #held = ''
  #hasAnswer = false
  #hasCalls = false
  #hasExplanation = false
  #markedItems = 0
  #markedOpen: Item | undefined
  #markedLength = 0

  /** @param id of the response */
  constructor (id: string, shape: ResponseShape, seal: Seal, listener: OutputListener) {
    this.#unique = id.slice(id.indexOf('_') + 1)
    this.#shape = shape
    this.#seal = seal
    this.#listener = listener
    this.#textIs = !shape.hasSchema ? 'answer' : shape.answerTool === undefined ? 'unclear' : 'words'
  }

  /** A content block begins. @throws {GatewayError} it calls a tool that may not be called */
  start (index: unknown, block: Json): void {
    this.stop(index)                                          // of which another begins under the same index
    if (this.#shape.compacts === true && block.type !== 'text') return
    const made = this.#blockOf(block)
    if (made === undefined) return
    this.#blocks.set(index, made)
    if (this.#active === undefined || this.#active.isWhole) this.#activate(made)
    else this.#queue.push(made)
    if (made.kind === 'text') this.#addText(made, block.text)
    else if (made.kind === 'thinking') this.#give(made, block.thinking)
  }

  /** A piece of a block; of a text or a thought its block may not have begun. */
  add (index: unknown, { type, text, thinking, signature, partial_json: input }: Json): void {
    if (this.#shape.compacts === true && type !== 'text_delta') return
    switch (type) {
      case 'text_delta': this.#addText(this.#blocks.get(index) ?? this.#begin(index, 'text'), text); return
      case 'thinking_delta': this.#give(this.#blocks.get(index) ?? this.#begin(index, 'thinking'), thinking); return
      case 'input_json_delta': {
        const block = this.#blocks.get(index)
        if (block?.kind === 'call' || block?.kind === 'answer') this.#give(block, input)
        return
      }
      case 'signature_delta': {
        const { item } = this.#blocks.get(index) ?? this.#begin(index, 'thinking')
        if (item instanceof ReasoningItem && typeof signature === 'string') item.signature = signature
      }
    }
  }

  /** A block is whole. */
  stop (index: unknown): void {
    const block = this.#blocks.get(index)
    if (block === undefined) return
    this.#blocks.delete(index)
    this.#complete(block)
  }

  /** The answer is whole, or cut by a limit or a filter. May be called again, when more came. */
  end (stopReason: unknown, stopDetails: unknown): void {
    for (const index of this.#blocks.keys()) this.stop(index)
    if (this.#held !== '' && !this.#hasAnswer && !this.#hasCalls) this.#say(this.#message(), this.#held)
    this.#held = ''
    const isComplete = incompleteReason(stopReason) === undefined
    if (this.#shape.compacts === true) this.#refuseEmpty(stopReason)
    if (!isComplete && this.#open !== undefined && isCall(this.#open)) this.#open = undefined
    this.#explain(stopReason, stopDetails)
    // OpenAI's Agents SDK asks again and again for an answer that has neither a text nor a call.
    if (isComplete && !this.#isAnswered) this.#message()
    this.#close(isComplete ? 'completed' : 'incomplete')
  }

  /** @throws {GatewayError} what would be given as a summary is none */
  #refuseEmpty (stopReason: unknown): void {
    if (stopReason === 'refusal') throw new GatewayError('content_policy_violation')
    if (this.#begun > 0) return
    throw new GatewayError('upstream_error', {
      message: 'The model has made no summary of the conversation. Send the request again.'
    })
  }

  /** whether nothing is being made */
  get isWhole (): boolean {
    return this.#open === undefined && this.#blocks.size === 0
  }

  /** whether there is a text or a call, whole or not */
  get #isAnswered (): boolean {
    return this.items.some(({ type }) => type !== 'reasoning') ||
      (this.#open !== undefined && !(this.#open instanceof ReasoningItem))
  }

  /** Begins a change that may be taken back: what the client has is what there is now. */
  mark (): void {
    this.#markedItems = this.items.length
    this.#markedOpen = this.#open
    this.#markedLength = this.#open instanceof MessageItem ? this.#open.text.length : 0
  }

  /** Only what there was at the mark remains; nothing comes after it. */
  takeBack (): void {
    this.items.length = this.#markedItems
    this.#open = this.#markedOpen
    if (this.#open instanceof MessageItem) this.#open.text = this.#open.text.slice(0, this.#markedLength)
  }

  /** What a failed answer leaves: the whole items, and the text of one that is half there, but no half call. */
  get remains (): readonly Json[] {
    const open = this.#open
    return open instanceof MessageItem ? [...this.items, open.json('incomplete')] : this.items
  }

  #blockOf (block: Json): Block | undefined {
    switch (block.type) {
      case 'text': return { kind: 'text', hasInput: false, waiting: '', isWhole: false }
      case 'thinking':
      case 'redacted_thinking': return this.#withItem('thinking',
        new ReasoningItem(block, this.#shape.showsThoughts, this.#seal))
      case 'tool_use': return this.#callOf(block)
    }
    return undefined                                          // of the vendor's own tools
  }

  #withItem (kind: 'thinking' | 'call', item: Item, input?: unknown): Block {
    return { kind, item, input, hasInput: false, waiting: '', isWhole: false }
  }

  #callOf ({ id, name, input }: Json): Block | undefined {
    const { answerTool, hasSchema } = this.#shape
    if (answerTool !== undefined && name === answerTool) {
      if (this.#hasAnswer) return undefined                   // a second one is dropped
      this.#hasAnswer = true
      return { kind: 'answer', input, hasInput: false, waiting: '', isWhole: false }
    }
    this.#hasCalls = true
    if (hasSchema) this.#textIs = 'words'
    return this.#withItem('call', this.#toolItem(id, name as string), input)
  }

  #toolItem (id: unknown, name: string): Item {
    const { tools, allowed } = this.#shape
    const tool = toolCalled(name, tools)
    if (allowed !== undefined && ![...allowed].some((one) => tool !== undefined && tools.get(one) === tool)) {
      throw new GatewayError('upstream_error', {
        message: 'The model has called a tool that tool_choice does not allow. Send the request again.'
      })
    }
    if (tool === undefined) return new FunctionItem({ id, tool: { name } })
    switch (tool.type) {
      case 'function': return new FunctionItem({ id, tool })
      case 'custom': return new CustomItem({ id, tool })
      default: return new BuiltInItem(tool.type, id)
    }
  }

  /** A block whose start did not come. */
  #begin (index: unknown, type: 'text' | 'thinking'): Block {
    this.start(index, { type })
    return this.#blocks.get(index)!
  }

  #addText (block: Block, piece: unknown): void {
    if (typeof piece !== 'string' || piece === '' || block.kind !== 'text') return
    if (this.#textIs === 'answer') { this.#give(block, piece); return }
    this.#held += piece
    const first = this.#textIs === 'unclear' ? /\S/.exec(piece)?.[0] : undefined
    if (first === undefined) return
    this.#textIs = first === '{' || first === '[' ? 'answer' : 'words'
    if (this.#textIs === 'words') return
    const held = this.#held
    this.#held = ''
    this.#give(block, held)
  }

  #give (block: Block, piece: unknown): void {
    if (typeof piece !== 'string' || piece === '') return
    block.hasInput = true
    if (block !== this.#active) { block.waiting += piece; return }
    this.#say(block.item ?? this.#message(), piece)
  }

  #say (item: Item, piece: string): void {
    if (isCall(item)) this.#input += piece
    const said = item.add(piece)
    if (said !== '') this.#listener.said(item, said)
  }

  /** Arguments are JSON, even without any. */
  #complete (block: Block): void {
    const isCalled = block.kind === 'call' || block.kind === 'answer'
    if (isCalled && !block.hasInput) this.#give(block, JSON.stringify(isRecord(block.input) ? block.input : {}))
    block.isWhole = true
    while (this.#active?.isWhole === true && this.#queue.length > 0) this.#activate(this.#queue.shift()!)
  }

  #activate (block: Block): void {
    this.#active = block
    if (block.item !== undefined) this.#openItem(block.item)
    if (block.waiting === '') return
    const { waiting } = block
    block.waiting = ''
    this.#say(block.item ?? this.#message(), waiting)
  }

  /** The message or the summary that is being made, or a new one. */
  #message (): MessageItem | CompactionItem {
    if (this.#open instanceof MessageItem || this.#open instanceof CompactionItem) return this.#open
    return this.#openItem(this.#shape.compacts === true ? new CompactionItem(this.#seal) : new MessageItem())
  }

  #openItem<T extends Item> (item: T): T {
    // Of parallel calls the limit may have cut any, and what cut it is not known yet.
    if (this.#open !== undefined && isCall(this.#open) && isTorn(this.#input)) this.#open = undefined
    this.#input = ''
    this.#close('completed')
    const index = this.#begun++
    item.place = { id: `${item.prefix}_${this.#unique}_${index}`, index }
    this.#open = item
    this.#listener.begun(item)
    return item
  }

  #close (status: ItemStatus): void {
    const item = this.#open
    if (item === undefined) return
    this.#open = undefined
    const rest = item.end()
    if (rest !== '') this.#listener.said(item, rest)
    const whole = item.json(status)
    this.items.push(whole)
    this.#listener.ended(item, whole)
  }

  /** What a vendor says of its refusal is part of the text: clients show nothing else. */
  #explain (stopReason: unknown, stopDetails: unknown): void {
    const said = stopReason === 'refusal' && isRecord(stopDetails) ? stopDetails.explanation : undefined
    if (typeof said !== 'string' || said === '' || this.#hasExplanation) return
    this.#hasExplanation = true
    const message = this.#message() as MessageItem            // a refused summary was refused before
    this.#say(message, message.text === '' ? said : `\n\n${said}`)
  }
}

function isCall (item: Item): boolean {
  return !(item instanceof MessageItem || item instanceof ReasoningItem || item instanceof CompactionItem)
}
