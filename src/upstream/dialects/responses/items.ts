// The items of a streamed response as content blocks: what each said so far, and what its end says beyond that, since
// not every vendor sends all of its content in pieces.
import type { Exchange } from '../../../core/exchange.ts'
import type { SseEvent } from '../../../core/sse.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { isGiven, isRecord, type Json, parseOr } from '../../../base/json.ts'
import { type Block, Blocks, type Call } from '../answer-blocks.ts'
import { CallIds } from '../call-ids.ts'
import { UnusableCall } from '../error-reply.ts'
import { textIn } from '../json.ts'
import { JsonEnd } from '../json-end.ts'
import { isChatClient } from '../../../protocols/chat.ts'
import { ClientTools } from './client-tools.ts'
import { BETWEEN, signatureOf } from './reasoning.ts'
import { partsOf, refusalOf, textOfPart } from './reply.ts'

type Kind = 'text' | 'thinking' | 'tool_use'

interface Part {
  /** so far; undefined: it is too long to be kept */
  text: string | undefined
  length: number
  isWhole: boolean
}

interface Item {
  readonly kind: Kind
  /** the vendor's, from its beginning */
  readonly id: string
  callId: string
  block: Block | undefined
  /** by its name */
  readonly said: Map<string, Part>
  /** the name of the last part that began */
  last: string
  /** of a call, so far: a client would run a tool with what is no JSON */
  input: string
  isDone: boolean
  /** the vendor says that the limit has cut it */
  isIncomplete: boolean
  /** a call that the vendor has made itself: no part of the answer */
  isDropped: boolean
}

/** Characters of a part that are kept, to compare them with the whole part. */
const LONGEST_PART = 4 * 1024 * 1024

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
  readonly #all: Item[] = []
  #last: Item | undefined
  /** the parts of a refusal for a client of chat style, which gets them beside the message */
  readonly #refusals = new Map<string, string>()
  #lastRefusal = ''
  /** of output */
  characters = 0
  hasRefusal = false

  constructor (exchange: Exchange, upstream: Upstream) {
    this.#exchange = exchange
    this.#upstream = upstream
    this.#ids = new CallIds(exchange, upstream)
    this.#tools = new ClientTools(exchange, upstream)
  }

  get hasCalls (): boolean {
    return this.#calls.length > 0
  }

  get hasContent (): boolean {
    return this.characters > 0 || this.hasCalls
  }

  get #calls (): readonly Item[] {
    return this.#all.filter(({ block, isDropped }) =>
      block?.kind === 'tool_use' && !isDropped && (block as Call).name !== '')
  }

  /** Whether the limit has cut a call. @throws {UnusableCall} a call's input is something else than a JSON object */
  get isCut (): boolean {
    let isCut = false
    for (const { block, said, isIncomplete } of this.#calls) {
      const { flaw } = (block as Call).input
      if (isIncomplete) isCut = true
      else if (flaw !== undefined && !said.has('text')) throw new UnusableCall(flaw)
    }
    return isCut
  }

  /** The refusal for a client of chat style. */
  get refusal (): string {
    return [...this.#refusals.values()].join('')
  }

  /** The events made since the last call. */
  take (): SseEvent[] {
    return this.#blocks.take()
  }

  /**
   * Ends the answer.
   * @param isShort its last call may be half of one, and stays so
   * @throws {UnusableCall} a call with arguments has no name
   */
  end (isShort: boolean): void {
    if (!isShort) for (const item of this.#calls) if (!item.isIncomplete) this.#endText(item)
    this.#blocks.end()
  }

  /** Begins an item; those of unknown types say nothing. */
  begin (data: Json): void {
    const said = isRecord(data.item) ? data.item : {}
    const kind = KINDS.get(said.type)
    if (kind !== undefined && !this.#hasBegun(data, said)) this.#begin(kind, data, said)
  }

  /** Whether the beginning of an item came before: of a call also behind its end, or a client would run it twice. */
  #hasBegun ({ output_index: place }: Json, said: Json): boolean {
    const id = textIn(said.id)
    const found = typeof place === 'number' ? this.#placed.get(place) : this.#named.get(id)
    if (found?.id !== id) return false
    return !found.isDone || (found.callId !== '' && found.callId === said.call_id)
  }

  /**
   * More of an item, or the whole of a part of it.
   * @param part its name in the item: what the vendor calls the text, and its number
   */
  say (kind: Kind, data: Json, part: string, text: unknown, isWhole: boolean): void {
    const found = this.#find(data, kind)
    // Text in the place of an item that is done, under another id: some vendors give all of their items one number.
    const isOther = found?.isDone === true && kind === 'text' && !isWhole && isGiven(data.item_id) &&
      data.item_id !== found.id
    const item = found === undefined || isOther ? this.#begin(kind, data, {}) : found
    if (item.isDropped || (kind === 'thinking' && isOtherForm(item, part))) return
    if (isWhole) this.#complete(item, this.#nameIn(item, part, textIn(text)), textIn(text))
    else this.#add(item, part, textIn(text))
  }

  /** More of a refusal, or the whole of it. */
  refuse (data: Json, part: string, text: unknown, isWhole: boolean): void {
    this.hasRefusal = true
    if (isChatClient(this.#exchange)) this.#keepRefusal(`${String(data.output_index)} ${part}`, textIn(text), isWhole)
    else this.say('text', data, part, text, isWhole)
  }

  #keepRefusal (part: string, text: string, isWhole: boolean): void {
    const before = this.#refusals.get(part) ?? ''
    if (isWhole && (before !== '' || text === this.#refusals.get(this.#lastRefusal))) return
    this.#refusals.set(part, before + text)
    this.#lastRefusal = part
    this.characters += text.length
  }

  /** The whole item, as it is when it is done. */
  done (data: Json): void {
    const said = isRecord(data.item) ? data.item : {}
    const kind = KINDS.get(said.type)
    if (kind === undefined) return
    const item = this.#find(data, kind) ?? this.#begin(kind, data, said)
    this.#finish(item, data, said)
  }

  #finish (item: Item, data: Json, said: Json): void {
    if (item.isDone) return
    if (item.kind === 'text') this.#readMessage(item, data, said)
    else if (item.kind === 'tool_use') this.#readCall(item, said)
    else this.#readReasoning(item, said)
    item.isDone = true
    if (item.kind !== 'tool_use') item.said.clear()
    if (item.block !== undefined && !item.isDropped) this.#blocks.done(item.block)
  }

  /** The whole output, at the end: not every vendor sends all of its items before. */
  complete (output: readonly unknown[]): void {
    const items = output.flatMap((item, place) => isRecord(item) && KINDS.has(item.type)
      ? [{ kind: KINDS.get(item.type)!, data: { output_index: place, item } }]
      : [])
    const counts = Map.groupBy(items, ({ kind }) => kind)
    const known = Map.groupBy(this.#all, ({ kind }) => kind)
    const calls = new Map(this.#all.map((item) => [item.callId, item]))
    const numbers = new Map<Kind, number>()
    for (const { kind, data } of items) {
      const number = numbers.get(kind) ?? 0
      numbers.set(kind, number + 1)
      const before = known.get(kind) ?? []
      const theirs = textIn(data.item.call_id)
      const other = before[number]
      // Texts and thoughts have no ids that last, so they are told apart by their number alone.
      const found = kind !== 'tool_use' ? before.length === counts.get(kind)!.length ? other : undefined
        : theirs !== '' && calls.has(theirs) ? calls.get(theirs)
        : theirs === '' || other?.callId === '' ? other : undefined
      if (found !== undefined) this.#finish(found, data, data.item)
      else if (kind === 'tool_use' || before.length === 0) {
        this.#finish(this.#begin(kind, data, data.item), data, data.item)
      }
    }
  }

  #find ({ output_index: place, item_id: id, item }: Json, kind: Kind): Item | undefined {
    const own = textIn(id ?? (isRecord(item) ? item.id : undefined))
    const named = own === '' ? undefined : this.#named.get(own)
    const found = typeof place === 'number'
      // A vendor that counts its events otherwise than its items still names them.
      ? this.#placed.get(place) ?? (named?.isDone === false ? named : undefined)
      : named ?? this.#last
    return found?.kind === kind ? found : undefined
  }

  #begin (kind: Kind, { output_index: place, item_id: named }: Json, said: Json): Item {
    const id = textIn(said.id ?? named)
    const item: Item = { kind, id, callId: textIn(said.call_id), block: undefined, said: new Map(), last: '', input: '',
      isDone: false, isIncomplete: false,
      isDropped: said.type === 'custom_tool_call' && !this.#tools.isCustom(said) }
    if (typeof place === 'number') this.#placed.set(place, item)
    if (id !== '') this.#named.set(id, item)
    this.#all.push(item)
    this.#last = item
    if (kind === 'tool_use' && !item.isDropped) {
      const name = this.#tools.nameOf(said)
      const call: Call = { kind, index: undefined, isClosed: false, waiting: '', input: new JsonEnd(),
        vendorsId: item.callId, id: this.#ids.next(item.callId, name), name }
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

  #add (item: Item, name: string, text: string): void {
    if (text === '' || item.isDone) return
    let part = item.said.get(name)
    const isNext = item.kind === 'thinking' && part === undefined && item.said.size > 0
    if (part === undefined) {
      item.said.set(name, part = { text: '', length: 0, isWhole: false })
      item.last = name
    }
    part.length += text.length
    part.text = part.length > LONGEST_PART || part.text === undefined ? undefined : part.text + text
    this.characters += text.length
    if (item.kind === 'tool_use') this.#addInput(item, item.block as Call, text, name === 'text')
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

  /** The name under which a part began, where its end counts it otherwise (Bedrock). */
  #nameIn (item: Item, name: string, whole: string): string {
    if (item.kind === 'tool_use' || item.said.has(name)) return name
    const last = item.said.get(item.last)
    return last?.isWhole === false && startsWith(whole, last) ? item.last : name
  }

  /**
   * Adds what the pieces did not say. Where they said something else, they count, unless none has left.
   * @throws {Error} they said something else of a call
   */
  #complete (item: Item, name: string, whole: string): void {
    if (whole === '') return
    const part = item.said.get(name)
    if (part === undefined || startsWith(whole, part)) this.#add(item, name, whole.slice(part?.length ?? 0))
    else if (item.kind !== 'tool_use') this.#replace(item, part, whole)
    else if (sorted(item.input) !== sorted(whole)) throw new Error('a call is another at its end')
    const complete = item.said.get(name)
    if (complete !== undefined) complete.isWhole = true
  }

  #replace (item: Item, part: Part, whole: string): void {
    if (item.block === undefined || item.said.size > 1 || !this.#blocks.replace(item.block, whole)) return
    this.characters += whole.length - part.length
    part.text = whole
    part.length = whole.length
  }

  /** The parts of a whole item, which may count them otherwise than its events. */
  #readParts (item: Item, form: string, texts: readonly string[]): void {
    const names = [...item.said.keys()]
    const isSame = names.every((name) => texts[Number(name.slice(form.length + 1))] !== undefined)
    const parts = texts.map((text, i) => [`${form} ${i}`, text] as const)
    if (isSame && parts.every(([name, text]) => this.#fits(item, name, text))) {
      for (const [name, text] of parts) this.#complete(item, name, text)
      return
    }
    const said = texts.filter((text) => text !== '')
    // Behind the names that are taken.
    for (const [i, text] of said.entries()) this.#complete(item, names[i] ?? `${form} ${texts.length + i}`, text)
  }

  #fits (item: Item, name: string, text: string): boolean {
    const part = item.said.get(name)
    return part === undefined || startsWith(text, part)
  }

  #readMessage (item: Item, data: Json, said: Json): void {
    const parts = partsOf(said)
    for (const [i, part] of parts.entries()) {
      if (part.type !== 'refusal') continue
      this.hasRefusal = true
      if (isChatClient(this.#exchange)) this.#keepRefusal(`${String(data.output_index)} text ${i}`, refusalOf(part), true)
    }
    this.#readParts(item, 'text', parts.map((part) => textOfPart(part, this.#exchange)))
  }

  #readCall (item: Item, said: Json): void {
    if (item.isDropped) return
    const call = item.block as Call
    if (said.type === 'custom_tool_call' && !this.#tools.isCustom(said)) {
      item.isDropped = true
      this.#blocks.drop(call)
      return
    }
    if (call.name === '') call.name = this.#tools.nameOf(said)
    item.isIncomplete = said.status === 'incomplete'
    const { arguments: given, input } = said
    if (said.type === 'custom_tool_call') {
      this.#complete(item, 'text', textIn(input))
      if (item.isIncomplete) return
      if (!item.said.has('text')) this.#blocks.input(call, '{"input":""}')
      this.#endText(item)
      return
    }
    this.#complete(item, 'arguments', isRecord(given) ? JSON.stringify(given) : textIn(given))
  }

  #readReasoning (item: Item, said: Json): void {
    const form = hasText(said.summary) && !isOtherForm(item, 'summary') ? 'summary' : 'thoughts'
    const shown = form === 'summary' ? said.summary : said.content
    const texts = (Array.isArray(shown) ? shown as readonly unknown[] : [])
      .map((part) => isRecord(part) ? textIn(part.text) : '')
    if (!isOtherForm(item, form)) this.#readParts(item, form, texts)
    const signature = signatureOf(said, this.#exchange, this.#upstream)
    if (signature !== '') this.#blockOf(item).signature = signature
  }
}

function startsWith (whole: string, { text, length }: Part): boolean {
  return text === undefined ? whole.length >= length : whole.startsWith(text)
}

/** The input of a call as JSON, whatever the order of its fields. */
function sorted (input: string): string {
  return JSON.stringify(parseOr(input), (_, value: unknown) => isRecord(value)
    ? Object.fromEntries(Object.keys(value).toSorted().map((name) => [name, value[name]]))
    : value)
}

/** Whether reasoning came in another form before, as a summary or as it is: one of them is enough. */
function isOtherForm ({ said }: Item, part: string): boolean {
  const [first] = said.keys()
  return first !== undefined && first.split(' ')[0] !== part.split(' ')[0]
}

function hasText (parts: unknown): boolean {
  return Array.isArray(parts) && parts.some((part) => isRecord(part) && textIn(part.text) !== '')
}
