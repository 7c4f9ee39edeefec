// Translates system blocks and turns into the messages of a chat.
import { withoutJsonLine } from '../../../translation/settings.ts'
import { argumentsOf } from '../../../translation/call-input.ts'
import { SentIds, vendorsId } from '../call-ids.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import { textIn } from '../json.ts'
import { dataUrl, type PartStyle, readPart, readParts, systemLines } from '../parts.ts'

const PARTS: PartStyle = {
  text: textPart,
  image: (url) => ({ type: 'image_url', image_url: { url } }),
  file: ({ type, title, source }) =>
    type === 'url' ? undefined : { type: 'file', file: { filename: title, file_data: dataUrl(source) } }
}

/** Characters of the longest id of a call at OpenAI. */
const LONGEST_ID = 40

export interface ChatOptions {
  /** the field in which the vendor wants its own thoughts back; undefined: none */
  readonly reasoning: string | undefined
  /** whether an input of a call may stand for a text (src/translation/call-input.ts) */
  readonly mayBeRaw: boolean
  /** whether the vendor gets the client's own field for any JSON object */
  readonly hasJsonField: boolean
}

/**
 * @param own the body of a chat client, which alone has its thoughts
 * @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in chat style
 */
export function toChatMessages (body: Json, own: Json, options: ChatOptions): readonly Json[] {
  const messages: readonly unknown[] = Array.isArray(body.messages) ? body.messages : []
  const thoughts = options.reasoning === undefined ? undefined : thoughtsByCall(own)
  const lines = systemLines(body.system, 'system')
  const system = options.hasJsonField ? [...withoutJsonLine(lines)] : lines
  const turns = new Turns(new SentIds(LONGEST_ID))
  for (const [i, message] of messages.entries()) {
    if (!isRecord(message)) continue
    const path = `messages[${i}].content`
    if (message.role === 'system') system.push(...systemLines(message.content, path))
    else if (message.role === 'assistant') addAnswer(message.content, options, thoughts, turns)
    else addQuestion(message.content, path, turns)
  }
  const said = turns.end()
  return system.length === 0 ? said : [{ role: 'system', content: system.join('\n') }, ...said]
}

type Call = ReturnType<typeof toCall>

interface Answer extends Json {
  readonly role: 'assistant'
  content: string | null
  tool_calls?: Call[]
}

/**
 * The messages so far. Calls must be followed by their results, all of them and nothing else: so answers are one where
 * the first has calls, and what the user says waits until all results are there.
 */
class Turns {
  /** of the calls, as the vendor gets them */
  readonly ids: SentIds
  readonly #all: Json[] = []
  /** of the user, behind the last answer */
  #questions: Json[] = []
  /** with calls, and nothing behind it */
  #open: Answer | undefined

  constructor (ids: SentIds) {
    this.ids = ids
  }

  addAnswer (answer: Answer): void {
    this.#ask()
    const open = this.#open
    if (open === undefined) this.#all.push(answer)
    else {
      const texts = [open.content, answer.content].filter((text) => text !== null)
      open.content = texts.length === 0 ? null : texts.join('\n')
      for (const call of answer.tool_calls ?? []) open.tool_calls!.push(call)
    }
    if (answer.tool_calls !== undefined) this.#open ??= answer
  }

  addResult (result: Json): void {
    this.#open = undefined
    this.#all.push(result)
  }

  addQuestion (question: Json): void {
    this.#questions.push(question)
  }

  end (): readonly Json[] {
    this.#ask()
    return this.#all
  }

  #ask (): void {
    if (this.#questions.length === 0) return
    this.#open = undefined
    for (const question of this.#questions) this.#all.push(question)
    this.#questions = []
  }
}

/** Results of tools come first: chat style wants them right behind the calls. */
function addQuestion (content: unknown, path: string, turns: Turns): void {
  turns.ids.question()
  if (!Array.isArray(content)) {
    if (textIn(content) !== '') turns.addQuestion({ role: 'user', content })
    return
  }
  const shown: Json[] = []
  const said: Json[] = []
  for (const [i, block] of content.entries()) {
    if (isRecord(block) && block.type === 'tool_result') shown.push(...addResult(block, `${path}[${i}]`, turns))
    else said.push(...readPart(block, `${path}[${i}]`, PARTS))
  }
  const parts = [...shown, ...said]
  if (parts.length > 0) turns.addQuestion({ role: 'user', content: contentOf(parts) })
}

/** @returns parts that only a user message may have: images and files */
function addResult (
  { tool_use_id: id, content, is_error: isError }: Json,
  path: string,
  turns: Turns
): readonly Json[] {
  const parts = typeof content === 'string' ? [textPart(content)] : readParts(content, `${path}.content`, PARTS)
  const media = parts.filter(({ type }) => type !== 'text')
  const text = parts.map((part) => textIn(part.text)).filter((one) => one !== '').join('\n')
  const said = text === '' && media.length > 0 ? 'See what follows.' : text
  turns.addResult({ role: 'tool', tool_call_id: turns.ids.result(id),
    content: isError === true ? `Error: ${said}` : said })
  return media
}

function addAnswer (
  content: unknown,
  { reasoning, mayBeRaw }: ChatOptions,
  thoughts: Thoughts | undefined,
  turns: Turns
): void {
  const blocks: readonly unknown[] = Array.isArray(content) ? content : [textPart(textIn(content))]
  const calls: Call[] = []
  let first: string | undefined
  let text = ''
  let thought = ''
  for (const block of blocks) {
    if (!isRecord(block)) continue
    // The pieces of one answer are joined without a separator. Blocks of tools that ran at a vendor of messages style
    // have no equivalent here.
    if (block.type === 'text') text += textIn(block.text)
    else if (block.type === 'tool_use') {
      first ??= vendorsId(textIn(block.id))
      calls.push(toCall(block, turns.ids.call(block.id), mayBeRaw))
    }
    // A signature says that another vendor thought it (src/README.md#signatures).
    else if (block.type === 'thinking' && textIn(block.signature) === '') thought += textIn(block.thinking)
  }
  if (text === '' && calls.length === 0) return
  if (thought === '') thought = thoughts?.get(first)?.pop() ?? ''
  turns.addAnswer({
    role: 'assistant',
    content: text === '' ? null : text,
    ...(reasoning !== undefined && thought !== '' && { [reasoning]: thought }),
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
    const id = vendorsId(textIn(call.id))
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
function contentOf (parts: readonly Json[]): unknown {
  return parts.every(({ type }) => type === 'text') ? parts.map(({ text }) => text).join('\n') : parts
}

function textPart (text: string): Json {
  return { type: 'text', text }
}
