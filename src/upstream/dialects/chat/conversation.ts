// Translates system blocks and turns into the messages of a chat.
import { JSON_LINE } from '../../../translation/settings.ts'
import { argumentsOf } from '../../../translation/call-input.ts'
import { EMPTY_OUTPUT, GO_ON, isBlank } from '../../../translation/blocks.ts'
import { vendorId } from '../../../translation/vendor-id.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { SentIds } from '../call-ids.ts'
import type { ChatConfig } from '../../../config/config.ts'
import type { Exchange } from '../../../core/exchange.ts'
import { chatCall, chatFields } from '../../../protocols/chat.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { isSigned, opener, type OpenSignature, OwnSignatures, withPlaceholder } from './signatures.ts'
import { textIn } from '../json.ts'
import { isMarked, type MarkOf, withMark } from '../cache-marks.ts'
import { dataUrl, type PartStyle, readMarked, readParts, systemParts } from '../parts.ts'

const PARTS: PartStyle = {
  text: textPart,
  image: (url) => ({ type: 'image_url', image_url: { url } }),
  file: ({ type, title, source }) =>
    type === 'url' ? undefined : { type: 'file', file: { filename: title, file_data: dataUrl(source) } }
}

export interface ChatOptions {
  readonly exchange: Exchange
  readonly upstream: Upstream
  /** the field in which the vendor wants its own thoughts back; undefined: none */
  readonly reasoning: string | undefined
  /** what the vendor wants of signatures: the operator's word */
  readonly signatures: NonNullable<ChatConfig['thought_signatures']> | undefined
  /** whether an input of a call may stand for a text (src/translation/call-input.ts) */
  readonly mayBeRaw: boolean
  /** whether the vendor gets the client's own field for any JSON object */
  readonly hasJsonField: boolean
  /** whether the user's words right after the result of a call become a part of it */
  readonly isFolded: boolean
  /** cache marks, as the vendor gets them */
  readonly markOf: MarkOf
  /** the place of an address in the client's own request */
  placeOf (address: string): string | undefined
}

/**
 * @param own the body of a chat client, which alone has its thoughts
 * @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in chat style
 */
export function toChatMessages (body: Json, own: Json, options: ChatOptions): readonly Json[] {
  const messages: readonly unknown[] = Array.isArray(body.messages) ? body.messages : []
  const thoughts = options.reasoning === undefined ? undefined : thoughtsByCall(own)
  const { markOf } = options
  const open = options.signatures === 'drop' ? undefined : opener(messages, options.exchange, options.upstream)
  const reader: Reader = { style: { ...PARTS, placeOf: options.placeOf }, markOf,
    turns: new Turns(new SentIds(options.upstream), options.isFolded) }
  const { turns } = reader
  const system = systemParts(body.system, 'system', markOf)
  if (options.hasJsonField && system.at(-1)?.text === JSON_LINE) system.pop()
  for (const [i, message] of messages.entries()) {
    if (!isRecord(message)) continue
    const path = `messages[${i}].content`
    if (message.role === 'system') system.push(...systemParts(message.content, path, markOf))
    else if (message.role === 'assistant') addAnswer(message.content, options, thoughts, open, turns)
    else addQuestion(message.content, path, reader)
  }
  const said = turns.end()
  const first = contentOf(system.map((part) => ({ type: 'text', ...part })))
  const all = system.length === 0 ? said : [{ role: 'system', content: first }, ...said]
  return withLastMark(all, markOf(body))
}

/** The whole prompt is cached: the mark stands at its end, as the vendor of messages style has it. */
function withLastMark (messages: readonly Json[], mark: Json): readonly Json[] {
  const last = messages.at(-1)
  if (last === undefined || !isMarked(mark)) return messages
  const { content, tool_calls: calls } = last
  return messages.with(messages.length - 1, { ...last, ...(Array.isArray(calls)
    ? { tool_calls: withMark(calls as readonly Json[], mark) }
    : { content: withMark(partsOf(content as Content), mark) }) })
}

type Content = string | Json[]

function partsOf (content: Content): Json[] {
  return typeof content === 'string' ? [textPart(content)] : content
}

/** Both, in the first one where it has parts: a conversation may have very many. Text alone, where both are. */
function joined (first: Content, second: Content, separator: string): Content {
  if (typeof first === 'string' && typeof second === 'string') return first + separator + second
  const parts = partsOf(first)
  for (const part of partsOf(second)) parts.push(part)
  return parts
}

/** What one conversation is read with. */
interface Reader {
  readonly style: PartStyle
  readonly markOf: MarkOf
  readonly turns: Turns
}

type Call = ReturnType<typeof toCall>

interface Message extends Json {
  readonly role: 'user' | 'tool'
  content: Content
}

interface Answer extends Json {
  readonly role: 'assistant'
  content: Content | null
  reasoning_details?: unknown[]
  extra_content?: Json
  tool_calls?: Call[]
}

/**
 * The messages so far. Calls must be followed by their results, all of them and nothing else: so answers in a row are
 * one, and what the user says waits until all results are there.
 */
class Turns {
  /** of the calls, as the vendor gets them */
  readonly ids: SentIds
  readonly #all: (Answer | Message)[] = []
  /** of the user, behind the last answer */
  #questions: Message[] = []
  readonly #isFolded: boolean
  /** the last answer, with nothing behind it */
  #open: Answer | undefined

  /** @param isFolded whether the user's words become a part of the result before them */
  constructor (ids: SentIds, isFolded: boolean) {
    this.ids = ids
    this.#isFolded = isFolded
  }

  addAnswer (answer: Answer): void {
    this.#ask()
    const open = this.#open
    if (open === undefined) {
      this.#all.push(answer)
      this.#open = answer
      return
    }
    const content = open.content === null || answer.content === null ? open.content ?? answer.content
      : joined(open.content, answer.content, '\n')
    const { tool_calls: calls = answer.tool_calls, reasoning_details: details = answer.reasoning_details } = open
    if (calls !== answer.tool_calls) for (const call of answer.tool_calls ?? []) calls!.push(call)
    if (details !== answer.reasoning_details) for (const one of answer.reasoning_details ?? []) details!.push(one)
    Object.assign(open, answer, { content }, calls && { tool_calls: calls }, details && { reasoning_details: details })
  }

  addResult (result: Message): void {
    this.#open = undefined
    this.#all.push(result)
  }

  addQuestion (question: Message): void {
    this.#questions.push(question)
  }

  end (): readonly Json[] {
    this.#ask()
    // Calls follow a question, or Gemini refuses them.
    if (this.#all[0]?.tool_calls !== undefined) this.#all.unshift({ role: 'user', content: GO_ON })
    return this.#all
  }

  #ask (): void {
    if (this.#questions.length === 0) return
    this.#open = undefined
    const last = this.#all.at(-1)
    for (const question of this.#questions) {
      if (this.#isFolded && last?.role === 'tool') last.content = joined(last.content, question.content, '\n\n')
      else this.#all.push(question)
    }
    this.#questions = []
  }
}

/** Results of tools come first: chat style wants them right behind the calls. */
function addQuestion (content: unknown, path: string, reader: Reader): void {
  const { style, markOf, turns } = reader
  turns.ids.question()
  if (!Array.isArray(content)) {
    if (textIn(content) !== '') turns.addQuestion({ role: 'user', content: textIn(content) })
    return
  }
  const shown: Json[] = []
  const said: Json[] = []
  for (const [i, block] of content.entries()) {
    if (isRecord(block) && block.type === 'tool_result') shown.push(...addResult(block, `${path}[${i}]`, reader))
    else said.push(...readMarked(block, `${path}[${i}]`, style, markOf))
  }
  const parts = [...shown, ...said]
  if (parts.length > 0) turns.addQuestion({ role: 'user', content: contentOf(parts) })
}

/** @returns parts that only a user message may have: images and files */
function addResult (result: Json, path: string, { style, markOf, turns }: Reader): readonly Json[] {
  const { tool_use_id: id, content, is_error: isError } = result
  const parts = typeof content === 'string' ? [textPart(content)]
    : readParts(content, `${path}.content`, style, markOf)
  const media = parts.filter(({ type }) => type !== 'text')
  const texts = parts.filter(({ type, text }) => type === 'text' && text !== '')
  const text = texts.map((part) => textIn(part.text)).join('\n')
  const said = !isBlank(text) ? text : media.length > 0 ? 'See what follows.' : EMPTY_OUTPUT
  const own = markOf(result)
  const { cache_control: mark } = media.length === 0 && isMarked(own) ? own : texts.find(isMarked) ?? {}
  turns.addResult({ role: 'tool', tool_call_id: turns.ids.result(id),
    content: contentOf([{ ...textPart(isError === true ? `Error: ${said}` : said),
      ...(mark !== undefined && { cache_control: mark }) }]) })
  return withMark(media, own)
}

function addAnswer (
  content: unknown,
  { reasoning, mayBeRaw, markOf, signatures }: ChatOptions,
  thoughts: Thoughts | undefined,
  open: OpenSignature | undefined,
  turns: Turns
): void {
  const blocks: readonly unknown[] = Array.isArray(content) ? content : [textPart(textIn(content))]
  const calls: Call[] = []
  let first: string | undefined
  const texts: Json[] = []
  let thought = ''
  const own = new OwnSignatures()
  const opened = new Set<Json>()
  for (const block of blocks) {
    if (!isRecord(block) || open === undefined) continue
    const kept = open(block)
    if (kept !== undefined) {
      own.add(kept)
      opened.add(block)
    }
    const fields = (block as { readonly [chatFields]?: Json })[chatFields]
    if (fields !== undefined) own.addOwn(fields)
  }
  for (const block of blocks) {
    if (!isRecord(block)) continue
    // The pieces of one answer are joined without a separator. Blocks of tools that ran at a vendor of messages style
    // have no equivalent here.
    if (block.type === 'text') {
      if (textIn(block.text) !== '') texts.push({ ...textPart(textIn(block.text)), ...markOf(block) })
    }
    else if (block.type === 'tool_use') {
      first ??= textIn(block.id)
      const extra = own.ofCall(textIn(block.id)) ??
        (block as { readonly [chatCall]?: Json })[chatCall]?.extra_content
      calls.push({ ...toCall(block, turns.ids.call(block.id, block.name), mayBeRaw), ...markOf(block),
        ...(isRecord(extra) && signatures !== 'drop' && { extra_content: extra }) })
    }
    // A signature says that another vendor thought it (src/README.md#signatures).
    else if (block.type === 'thinking' && (textIn(block.signature) === '' || opened.has(block))) {
      thought += textIn(block.thinking)
    }
  }
  if (texts.length === 0 && calls.length === 0) return
  if (thought === '') thought = thoughts?.get(first)?.pop() ?? ''
  if (signatures === 'google' && calls.length > 0 && !calls.some(isSigned)) calls[0] = withPlaceholder(calls[0]!)
  turns.addAnswer({
    role: 'assistant',
    content: texts.length === 0 ? null : contentOf(texts, ''),
    // DeepSeek, whose field it is, refuses calls without it.
    ...(reasoning !== undefined && (thought !== '' || (reasoning === 'reasoning_content' && calls.length > 0)) &&
      { [reasoning]: thought }),
    ...(own.details.length > 0 && { reasoning_details: own.details }),
    ...(own.extra !== undefined && { extra_content: own.extra }),
    ...(calls.length > 0 && { tool_calls: calls })
  })
}

function toCall ({ name, input }: Json, id: string, mayBeRaw: boolean): Json {
  return { id, type: 'function', function: { name, arguments: argumentsOf(input, mayBeRaw) } }
}

/** the last ones first */
type Thoughts = ReadonlyMap<unknown, string[]>

/**
 * Thoughts by the id of the first call: vendors want them back only with calls, and some insist. Each goes out once,
 * also where a client counts its calls anew in each turn: repeated, one of them would make a body of gigabytes.
 */
export function thoughtsByCall ({ messages }: Json): Thoughts {
  const thoughts = new Map<unknown, string[]>()
  for (const message of Array.isArray(messages) ? (messages as readonly unknown[]).toReversed() : []) {
    if (!isRecord(message) || !Array.isArray(message.tool_calls)) continue
    const [call] = message.tool_calls as readonly unknown[]
    const thought = textIn(message.reasoning_content) || textIn(message.reasoning) || thoughtIn(message.content)
    if (!isRecord(call) || thought === '') continue
    const id = vendorId(textIn(call.id))
    const others = thoughts.get(id)
    if (others === undefined) thoughts.set(id, [thought])
    else others.push(thought)
  }
  return thoughts
}

/** The thoughts among an answer's parts, as Mistral has them. */
function thoughtIn (content: unknown): string {
  const parts: readonly unknown[] = Array.isArray(content) ? content : []
  return parts.flatMap((part) =>
    isRecord(part) && part.type === 'thinking' && Array.isArray(part.thinking) ? part.thinking : []
  ).map((piece: unknown) => isRecord(piece) ? textIn(piece.text) : '').join('')
}

/** Text alone where possible: fewer vendors accept parts. */
function contentOf (parts: Json[], separator = '\n'): Content {
  return parts.every((part) => part.type === 'text' && !isMarked(part))
    ? parts.map(({ text }) => text).join(separator)
    : parts
}

function textPart (text: string): Json {
  return { type: 'text', text }
}
