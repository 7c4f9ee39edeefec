// Translates the messages of a chat into system blocks and alternating turns (src/README.md#chat-request).
import { JsonGuard } from '../../src/base/json-limits.ts'
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'
import { chatCall, chatFields } from '../../src/protocols/chat.ts'
import { type Block, cacheControl, isBlank, textBlock, type Turn } from '../../src/translation/blocks.ts'
import { inputOf, objectInput } from '../../src/translation/call-input.ts'
import { invalid, nameAt } from '../../src/translation/reads.ts'
import type { TextFiles } from '../../src/translation/text-files.ts'
import { contentPath, pathOf, type Place, readPart } from './parts.ts'
import { ToolCalls } from './tool-calls.ts'

export interface Conversation {
  readonly system: readonly Block[]
  readonly turns: readonly Turn[]
}

/**
 * Content may be in messages style, blocks and system included: Cursor's agents write chats so for models that have
 * `claude` in their name.
 * @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in messages style
 */
export function readConversation ({ messages, system }: Json, files: TextFiles): Conversation {
  if (!Array.isArray(messages)) throw invalid('messages', 'must be an array')
  const reader = new Reader(files)
  if (isGiven(system)) reader.readSystem(system)
  for (let i = 0; i < messages.length; i++) reader.read(messages[i], i)
  reader.end()
  if (reader.turns.length === 0) reader.askSystem()
  return reader
}

/** Empty content is '' or []. */
type Content = string | Block[]

/** Where content stands; only an answer has calls and thoughts, and only a question results of calls. */
type Holder = 'system' | 'question' | 'answer' | 'result'

interface OpenTurn extends Turn {
  content: Content
}

class Reader implements Conversation {
  system: Block[] = []
  turns: OpenTurn[] = []
  /** results of calls in the last turn; before all its other blocks, as the vendor requires */
  #results: Block[] | undefined
  readonly #files: TextFiles
  readonly #toolCalls = new ToolCalls()
  /** Limits the content of all calls' arguments together: the guard of the body saw each as one string. */
  #guard: JsonGuard | undefined
  /** id for a deprecated function call, which has none */
  #functionCall: string | undefined
  /** ids of calls in the content of the answer that is being read; undefined: none */
  #inContent: Set<string> | undefined

  constructor (files: TextFiles) {
    this.#files = files
  }

  readSystem (system: unknown): void {
    this.system = blocksOf(this.#content(system, undefined, 'system'))
  }

  read (message: unknown, at: number): void {
    if (!isRecord(message)) throw invalid(`messages[${at}]`, 'must be an object')
    switch (message.role) {
      // At any position.
      case 'system':
      case 'developer':
        this.system = joined(this.system, blocksOf(this.#content(message.content, at, 'system')))
        break
      case 'user':
        this.#add('user', this.#content(message.content, at, 'question'))
        break
      case 'assistant':
        this.#addAnswer(message, at)
        break
      case 'tool':
        this.#addResult(this.#toolCalls.answer(message.tool_call_id, `messages[${at}].tool_call_id`), message, at)
        break
      case 'function':
        if (this.#functionCall === undefined) {
          throw invalid(`messages[${at}].role`, 'is "function", and no function_call comes before it')
        }
        this.#addResult(this.#functionCall, message, at)
        break
      default:
        throw invalid(`messages[${at}].role`,
          'must be "system", "developer", "user", "assistant", "tool" or "function"')
    }
  }

  /**
   * What the system says last is a turn of its own where there is no other.
   * @throws {GatewayError} invalid_request: it says nothing
   */
  askSystem (): void {
    const last = this.system.pop()
    if (last === undefined) throw invalid('messages', 'must hold a message of the user that is not empty')
    this.turns.push({ role: 'system', content: [last] })
  }

  end (): void {
    this.#toolCalls.end()
    this.#endTurn()
  }

  #endTurn (): void {
    const last = this.turns.at(-1)
    if (this.#results === undefined || last === undefined) return
    last.content = this.#results.concat(blocksOf(last.content))
    this.#results = undefined
  }

  #begin (turn: OpenTurn): void {
    this.#endTurn()
    this.turns = joined(this.turns, [turn])
  }

  /** Neighbours of the same role are joined into one turn. */
  #add (role: OpenTurn['role'], content: Content): void {
    if (content.length === 0) return
    const last = this.turns.at(-1)
    if (last?.role !== role) {
      if (role === 'assistant') this.#toolCalls.end()
      this.#begin({ role, content })
    } else if (last.content.length === 0) last.content = content
    else last.content = joined(blocksOf(last.content), blocksOf(content))
  }

  /** @param part index of the result, where it is a part of the message */
  #addResult (id: string, { content, is_error: isError, cache_control: mark }: Json, at: number, part?: number): void {
    const said = this.#content(content, at, 'result', part)
    if (this.turns.at(-1)?.role !== 'user') this.#begin({ role: 'user', content: [] })
    this.#results ??= []
    this.#results.push({ type: 'tool_result', tool_use_id: id, ...(said.length > 0 && { content: said }),
      ...(part !== undefined && isError === true && { is_error: true }), ...cacheControl(mark) })
  }

  #addAnswer (message: Json, at: number): void {
    const thoughts = signedThoughts(message)
    this.#inContent = undefined
    const said = this.#content(message.content, at, 'answer')
    const refused = typeof message.refusal === 'string' && !isBlank(message.refusal) ? message.refusal : ''
    const calls = this.#calls(message, at)
    const own = signaturesOf(message)
    if (thoughts.length === 0 && refused === '' && calls.length === 0 && own === undefined) this.#add('assistant', said)
    else {
      const words = [...blocksOf(said), ...blocksOf(refused), ...calls]
      if (own !== undefined && words.length > 0) words[0] = { ...words[0], [chatFields]: own }
      this.#add('assistant', [...thoughts, ...words])
    }
    this.#toolCalls.keep()
  }

  #calls (message: Json, at: number): Block[] {
    const calls: Block[] = []
    const { tool_calls: toolCalls, function_call: functionCall } = message
    if (Array.isArray(toolCalls)) {
      for (let i = 0; i < toolCalls.length; i++) {
        const call = this.#call(toolCalls[i], at, i)
        if (call !== undefined) calls.push(call)
      }
    }
    if (isRecord(functionCall)) {
      const path = `messages[${at}].function_call`
      this.#functionCall = `call_${at}`
      calls.push(
        toolUse(this.#functionCall, nameAt(functionCall.name, `${path}.name`),
          this.#arguments(functionCall.arguments, `${path}.arguments`))
      )
    }
    return calls
  }

  /** @returns undefined: the call is in the content too */
  #call (call: unknown, at: number, index: number): Block | undefined {
    const path = `messages[${at}].tool_calls[${index}]`
    if (!isRecord(call)) throw invalid(path, 'must be an object')
    if (this.#inContent?.has(call.id as string) === true) return undefined
    const id = this.#toolCalls.make(call.id, `${path}.id`)
    if (isRecord(call.custom)) {
      if (typeof call.custom.input !== 'string') throw invalid(`${path}.custom.input`, 'must be a string')
      return toolUse(id, nameAt(call.custom.name, `${path}.custom.name`), { input: call.custom.input })
    }
    if (!isRecord(call.function)) throw invalid(`${path}.function`, 'must be an object')
    const made = toolUse(id, nameAt(call.function.name, `${path}.function.name`),
      this.#arguments(call.function.arguments, `${path}.function.arguments`))
    const { extra_content: extra } = call
    return isRecord(extra) ? { ...made, [chatCall]: { extra_content: extra } } : made
  }

  #arguments (text: unknown, path: string): Json {
    if (text === undefined || text === null || text === '') return {}
    if (typeof text !== 'string') throw invalid(path, 'must be a string that holds a JSON object')
    this.#guard ??= new JsonGuard()
    this.#guard.next()
    this.#guard.push(Buffer.from(text))
    return inputOf(text)
  }

  /**
   * @param at index of the message; undefined: the system beside the messages
   * @param outer index of the part that it is the content of
   */
  #content (content: unknown, at: number | undefined, holder: Holder, outer?: number): Content {
    if (typeof content === 'string') return isBlank(content) ? '' : content
    if (content === undefined || content === null) return ''
    if (!Array.isArray(content)) {
      throw invalid(contentPath({ message: at, outer }), 'must be a string or an array of parts')
    }
    const blocks: Block[] = []
    for (let i = 0; i < content.length; i++) {
      const block = this.#part(content[i], holder, { message: at, outer, part: i })
      if (block !== undefined) blocks.push(block)
    }
    return blocks
  }

  #part (part: unknown, holder: Holder, place: Place): Block | undefined {
    if (isRecord(part)) {
      if (holder === 'answer') {
        if (part.type === 'tool_use') return this.#callInContent(part, pathOf(place))
        if (THOUGHTS.has(part.type)) return signedThought(part)
      } else if (holder === 'question' && part.type === 'tool_result') {
        this.#addResult(this.#toolCalls.answer(part.tool_use_id, `${pathOf(place)}.tool_use_id`), part, place.message!,
          place.part)
        return undefined
      }
    }
    return readPart(part, holder === 'question' || holder === 'result', this.#files, place)
  }

  #callInContent ({ id, name, input, cache_control: mark }: Json, path: string): Block {
    const vendorId = this.#toolCalls.make(id, `${path}.id`)
    this.#inContent ??= new Set()
    this.#inContent.add(id as string)
    return { ...toolUse(vendorId, nameAt(name, `${path}.name`),
      isRecord(input) ? objectInput(input) : this.#arguments(input, `${path}.input`)), ...cacheControl(mark) }
  }
}

/** The second list behind the first, in whichever has them already. Pushed to, an empty one would get room for 17. */
function joined<T> (first: T[], second: T[]): T[] {
  if (first.length === 0) return second
  for (const one of second) first.push(one)
  return first
}

function blocksOf (content: Content): Block[] {
  return typeof content !== 'string' ? content : content === '' ? [] : [textBlock(content)]
}

function toolUse (id: string, name: string, input: Json): Block {
  return { type: 'tool_use', id, name, input }
}

/**
 * Thoughts that a client echoes. Unsigned ones are left out, because the vendor would refuse them on every later turn
 * (src/README.md#signatures).
 */
function signedThoughts (message: Json): Block[] {
  const { thinking_blocks: echoed, reasoning_content: thinking, reasoning_signature: signature } = message
  const found = Array.isArray(echoed) ? echoed : [{ type: 'thinking', thinking, signature }]
  return found.map((block: unknown) => isRecord(block) ? signedThought(block) : undefined)
    .filter((block) => block !== undefined)
}

/**
 * What vendors of chat style want back of their thoughts. It is never written in messages style: only an upstream of
 * chat style gets it.
 */
function signaturesOf ({ reasoning_details: details, extra_content: extra }: Json): Json | undefined {
  const hasDetails = Array.isArray(details) && details.length > 0
  if (!hasDetails && !isRecord(extra)) return undefined
  return { ...(hasDetails && { reasoning_details: details }), ...(isRecord(extra) && { extra_content: extra }) }
}

/** Types of thoughts in content: those of messages style, and Mistral's own, which are lists of texts. */
const THOUGHTS: ReadonlySet<unknown> = new Set(['thinking', 'redacted_thinking'])

/** @returns undefined: it is not signed */
function signedThought ({ type, thinking, signature, data }: Json): Block | undefined {
  if (type === 'redacted_thinking') return isSigned(data) ? { type, data } : undefined
  if (type !== 'thinking' || typeof thinking !== 'string' || !isSigned(signature)) return undefined
  return { type, thinking, signature }
}

function isSigned (signature: unknown): boolean {
  return typeof signature === 'string' && signature !== ''
}
