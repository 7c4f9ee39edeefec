// The items of a streamed response as content blocks: what each said so far, and what its end says beyond that, since
// not every vendor sends all of its content in pieces.
import type { Exchange } from '../../../core/exchange.ts'
import type { SseEvent } from '../../../core/sse.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { isRecord, type Json, parseOr } from '../../../base/json.ts'
import { type Block, Blocks, type Call } from '../answer-blocks.ts'
import { CallIds } from '../call-ids.ts'
import { textIn } from '../json.ts'
import { JsonEnd } from '../json-end.ts'
import { ClientTools } from './client-tools.ts'
import { BETWEEN, signatureOf } from './reasoning.ts'
import { partsOf, textOfPart } from './reply.ts'

type Kind = 'text' | 'thinking' | 'tool_use'

interface Item {
  readonly kind: Kind
  block: Block | undefined
  /** characters of each part so far, by its name */
  readonly said: Map<string, number>
  /** of a call, so far: a client would run a tool with what is no JSON */
  input: string
  isDone: boolean
}

const KINDS: ReadonlyMap<unknown, Kind> = new Map<unknown, Kind>([['message', 'text'], ['reasoning', 'thinking'],
  ['function_call', 'tool_use'], ['custom_tool_call', 'tool_use']])

/** A call with a text is one with an object in the inner language. */
const [BEFORE_TEXT, BEHIND_TEXT] = ['{"input":"', '"}']

export class Items {
  readonly #exchange: Exchange
  readonly #upstream: Upstream
  readonly #blocks = new Blocks()
  readonly #ids: CallIds
  readonly #tools: ClientTools
  /** by their place in the answer, and by the id of their beginning; some vendors change that */
  readonly #placed = new Map<number, Item>()
  readonly #named = new Map<string, Item>()
  readonly #calls: Item[] = []
  #last: Item | undefined
  /** of output */
  characters = 0
  isRefusal = false

  constructor (exchange: Exchange, upstream: Upstream) {
    this.#exchange = exchange
    this.#upstream = upstream
    this.#ids = new CallIds(exchange)
    this.#tools = new ClientTools(exchange, upstream)
  }

  get isEmpty (): boolean {
    return this.#last === undefined
  }

  get hasCalls (): boolean {
    return this.#calls.length > 0
  }

  /** @throws {Error} a call's input is no JSON object */
  checkInputs (): void {
    for (const { input, said } of this.#calls) {
      if (said.has('text') || input.trim() === '' || isRecord(parseOr(input))) continue
      throw new Error('the arguments of a call are no JSON object')
    }
  }

  /** The events made since the last call. */
  take (): SseEvent[] {
    return this.#blocks.take()
  }

  /**
   * Ends the answer.
   * @param isShort its last call may be half of one, and stays so
   * @throws {Error} a call has no name
   */
  end (isShort: boolean): void {
    if (!isShort) for (const item of this.#calls) this.#endText(item)
    this.#blocks.end()
  }

  /** Begins an item; those of unknown types say nothing. */
  begin (data: Json): void {
    const said = isRecord(data.item) ? data.item : {}
    const kind = KINDS.get(said.type)
    if (kind !== undefined) this.#begin(kind, data, said)
  }

  /**
   * More of an item, or the whole of a part of it.
   * @param part its name in the item: what the vendor calls the text, and its number
   */
  say (kind: Kind, data: Json, part: string, text: unknown, isWhole: boolean): void {
    const item = this.#find(data, kind) ?? this.#begin(kind, data, {})
    if (kind === 'thinking' && isOtherForm(item, part)) return
    if (isWhole) this.#complete(item, part, textIn(text))
    else this.#add(item, part, textIn(text))
  }

  /** The whole item, as it is when it is done. */
  done (data: Json): void {
    const said = isRecord(data.item) ? data.item : {}
    const kind = KINDS.get(said.type)
    if (kind === undefined) return
    const item = this.#find(data, kind) ?? this.#begin(kind, data, said)
    if (item.isDone) return
    if (kind === 'text') this.#readMessage(item, said)
    else if (kind === 'tool_use') this.#readCall(item, said)
    else this.#readReasoning(item, said)
    item.isDone = true
    if (item.block !== undefined) this.#blocks.done(item.block)
  }

  #find ({ output_index: place, item_id: id, item }: Json, kind: Kind): Item | undefined {
    const own = id ?? (isRecord(item) ? item.id : undefined)
    const found = typeof place === 'number'
      ? this.#placed.get(place)
      : (typeof own === 'string' ? this.#named.get(own) : undefined) ?? this.#last
    return found?.kind === kind ? found : undefined
  }

  #begin (kind: Kind, { output_index: place, item_id: named }: Json, said: Json): Item {
    const item: Item = { kind, block: undefined, said: new Map(), input: '', isDone: false }
    const id = said.id ?? named
    if (typeof place === 'number') this.#placed.set(place, item)
    if (typeof id === 'string') this.#named.set(id, item)
    this.#last = item
    if (kind === 'tool_use') {
      const theirs = textIn(said.call_id)
      const call: Call = { kind, index: undefined, isClosed: false, waiting: '', input: new JsonEnd(),
        vendorsId: theirs, id: this.#ids.next(theirs), name: this.#tools.nameOf(said) }
      this.#calls.push(item)
      item.block = call
      this.#blocks.begin(call)
    }
    return item
  }

  /** Text and thinking are begun with their first content: without any, there is nothing to show. */
  #blockOf (item: Item): Block {
    const { kind, block } = item
    if (block !== undefined && !block.isClosed) return block
    // Reasoning goes on until it is done: only then its signature is known.
    const begun: Block = { kind, index: undefined, isClosed: false, waiting: '',
      ...(kind === 'thinking' && { isDone: item.isDone }) }
    item.block = begun
    this.#blocks.begin(begun)
    return begun
  }

  #add (item: Item, part: string, text: string): void {
    if (text === '' || item.isDone) return
    const before = item.said.get(part) ?? 0
    const isNext = item.kind === 'thinking' && before === 0 && item.said.size > 0
    item.said.set(part, before + text.length)
    this.characters += text.length
    if (item.kind === 'tool_use') this.#addInput(item, item.block as Call, text, part === 'text')
    else this.#blocks.add(this.#blockOf(item), isNext ? BETWEEN + text : text)
  }

  #addInput (item: Item, call: Call, piece: string, isText: boolean): void {
    const isFirst = item.input === ''
    item.input += piece
    this.#blocks.input(call, isText
      ? `${isFirst ? BEFORE_TEXT : ''}${JSON.stringify(piece).slice(1, -1)}`
      : piece)
  }

  /** The end of a text that was begun. */
  #endText (item: Item): void {
    const call = item.block as Call
    if (item.said.has('text') && !call.input.isWhole) this.#blocks.input(call, BEHIND_TEXT)
  }

  /** Adds what the pieces did not say. @throws {Error} they said something else of a call */
  #complete (item: Item, part: string, whole: string): void {
    if (!whole.startsWith(item.input)) throw new Error('a call is another at its end')
    this.#add(item, part, whole.slice(item.said.get(part) ?? 0))
  }

  #readMessage (item: Item, said: Json): void {
    for (const [i, part] of partsOf(said).entries()) {
      if (part.type === 'refusal') this.isRefusal = true
      this.#complete(item, `text ${i}`, textOfPart(part))
    }
  }

  #readCall (item: Item, said: Json): void {
    const call = item.block as Call
    if (call.name === '') call.name = this.#tools.nameOf(said)
    const { arguments: given, input } = said
    if (said.type === 'custom_tool_call') {
      this.#complete(item, 'text', textIn(input))
      if (said.status === 'incomplete') return
      if (!item.said.has('text')) this.#blocks.input(call, '{"input":""}')
      this.#endText(item)
      return
    }
    this.#complete(item, 'arguments', isRecord(given) ? JSON.stringify(given) : textIn(given))
  }

  #readReasoning (item: Item, said: Json): void {
    const form = hasText(said.summary) && !isOtherForm(item, 'summary') ? 'summary' : 'thoughts'
    const shown = form === 'summary' ? said.summary : said.content
    for (const [i, part] of (Array.isArray(shown) ? shown as readonly unknown[] : []).entries()) {
      if (!isOtherForm(item, form)) this.#complete(item, `${form} ${i}`, isRecord(part) ? textIn(part.text) : '')
    }
    const signature = signatureOf(said, this.#exchange, this.#upstream)
    if (signature !== '') this.#blockOf(item).signature = signature
  }
}

/** Whether reasoning came in another form before, as a summary or as it is: one of them is enough. */
function isOtherForm ({ said }: Item, part: string): boolean {
  const [first] = said.keys()
  return first !== undefined && first.split(' ')[0] !== part.split(' ')[0]
}

function hasText (parts: unknown): boolean {
  return Array.isArray(parts) && parts.some((part) => isRecord(part) && textIn(part.text) !== '')
}
