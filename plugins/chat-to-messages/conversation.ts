// Translates the messages of a chat into system blocks and alternating turns (src/README.md#chat-request).
import { JsonGuard } from '../../src/base/json-limits.ts'
import { isRecord, type Json, parseInput } from '../../src/base/json.ts'
import { type Block, isBlank, textBlock, type Turn } from '../../src/translation/blocks.ts'
import { invalid, nameAt } from '../../src/translation/reads.ts'
import type { TextFiles } from '../../src/translation/text-files.ts'
import { readPart } from './parts.ts'
import { ToolCalls } from './tool-calls.ts'

export interface Conversation {
  readonly system: readonly Block[]
  readonly turns: readonly Turn[]
}

/** @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in messages style */
export function readConversation (messages: unknown, files: TextFiles): Conversation {
  if (!Array.isArray(messages)) throw invalid('messages', 'must be an array')
  const reader = new Reader(files)
  for (let i = 0; i < messages.length; i++) reader.read(messages[i], i)
  reader.end()
  if (reader.turns.length === 0) throw invalid('messages', 'must hold a message of the user that is not empty')
  return reader
}

/** Empty content is '' or []. */
type Content = string | Block[]

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

  constructor (files: TextFiles) {
    this.#files = files
  }

  read (message: unknown, at: number): void {
    if (!isRecord(message)) throw invalid(`messages[${at}]`, 'must be an object')
    switch (message.role) {
      // At any position.
      case 'system':
      case 'developer':
        this.system = joined(this.system, blocksOf(this.#content(message.content, at, false)))
        break
      case 'user':
        this.#add('user', this.#content(message.content, at, true))
        break
      case 'assistant':
        this.#addAnswer(message, at)
        break
      case 'tool':
        this.#addResult(this.#toolCalls.answer(nameAt(message.tool_call_id, `messages[${at}].tool_call_id`), at),
          message, at)
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

  #addResult (id: string, { content }: Json, at: number): void {
    const said = this.#content(content, at, true)
    if (this.turns.at(-1)?.role !== 'user') this.#begin({ role: 'user', content: [] })
    this.#results ??= []
    this.#results.push({ type: 'tool_result', tool_use_id: id, ...(said.length > 0 && { content: said }) })
  }

  #addAnswer (message: Json, at: number): void {
    const thoughts = signedThoughts(message)
    const said = this.#content(message.content, at, false)
    const refused = typeof message.refusal === 'string' && !isBlank(message.refusal) ? message.refusal : ''
    const calls = this.#calls(message, at)
    if (thoughts.length === 0 && refused === '' && calls.length === 0) this.#add('assistant', said)
    else this.#add('assistant', [...thoughts, ...blocksOf(said), ...blocksOf(refused), ...calls])
    this.#toolCalls.keep()
  }

  #calls (message: Json, at: number): Block[] {
    const calls: Block[] = []
    const { tool_calls: toolCalls, function_call: functionCall } = message
    if (Array.isArray(toolCalls)) {
      for (let i = 0; i < toolCalls.length; i++) calls.push(this.#call(toolCalls[i], at, i))
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

  #call (call: unknown, at: number, index: number): Block {
    const path = `messages[${at}].tool_calls[${index}]`
    if (!isRecord(call)) throw invalid(path, 'must be an object')
    const id = this.#toolCalls.make(nameAt(call.id, `${path}.id`), at, index)
    if (isRecord(call.custom)) {
      if (typeof call.custom.input !== 'string') throw invalid(`${path}.custom.input`, 'must be a string')
      return toolUse(id, nameAt(call.custom.name, `${path}.custom.name`), { input: call.custom.input })
    }
    if (!isRecord(call.function)) throw invalid(`${path}.function`, 'must be an object')
    return toolUse(id, nameAt(call.function.name, `${path}.function.name`),
      this.#arguments(call.function.arguments, `${path}.function.arguments`))
  }

  #arguments (text: unknown, path: string): Json {
    if (text === undefined || text === null || text === '') return {}
    if (typeof text !== 'string') throw invalid(path, 'must be a string that holds a JSON object')
    if (isBlank(text)) return {}
    this.#guard ??= new JsonGuard()
    this.#guard.push(Buffer.from(text))
    let value: unknown
    try {
      value = parseInput(text)
    } catch {
      throw invalid(path, 'is not valid JSON. Send the arguments of the call as the model wrote them')
    }
    if (!isRecord(value)) throw invalid(path, 'is JSON, but not an object')
    return value
  }

  #content (content: unknown, at: number, mayBeMedia: boolean): Content {
    if (typeof content === 'string') return isBlank(content) ? '' : content
    if (content === undefined || content === null) return ''
    if (!Array.isArray(content)) throw invalid(`messages[${at}].content`, 'must be a string or an array of parts')
    const blocks: Block[] = []
    for (let i = 0; i < content.length; i++) {
      const block = readPart(content[i], mayBeMedia, this.#files, { message: at, part: i })
      if (block !== undefined) blocks.push(block)
    }
    return blocks
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
  return found.flatMap((block: unknown): Block[] => {
    if (!isRecord(block)) return []
    if (block.type === 'redacted_thinking') {
      return isSigned(block.data)
        ? [{ type: 'redacted_thinking', data: block.data }]
        : []
    }
    if (block.type !== 'thinking' || typeof block.thinking !== 'string' || !isSigned(block.signature)) return []
    return [{ type: 'thinking', thinking: block.thinking, signature: block.signature }]
  })
}

function isSigned (signature: unknown): boolean {
  return typeof signature === 'string' && signature !== ''
}
