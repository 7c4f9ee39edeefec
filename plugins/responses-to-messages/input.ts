// Reads the input of a Responses request: items become system blocks and turns (src/README.md#responses-request).
import { GatewayError, isGatewayError } from '../../src/errors.ts'
import { JsonGuard } from '../../src/base/json-limits.ts'
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'
import { type Block, isBlank, textBlock, type Turn } from '../../src/translation/blocks.ts'
import { inputOf } from '../../src/translation/call-input.ts'
import { invalid, nameAt, textAt } from '../../src/translation/reads.ts'
import { MOST_OPENED } from '../../src/translation/thinking.ts'
import { actionAt, foundTools, mcpResult, recordAt, shellOutput } from './own-tools.ts'
import type { Parts } from './parts.ts'
import { type Open, readThoughts } from './reasoning.ts'
import type { ToolNames } from './tool-names.ts'
import { spaceAt, type ToolBox } from './tools.ts'
import { Turns } from './turns.ts'

export interface Means {
  readonly names: ToolNames
  readonly parts: Parts
  readonly open: Open
}

export interface Conversation {
  readonly system: readonly Block[]
  readonly turns: readonly Turn[]
}

/** Items of tools that ran at a vendor, or of what only the vendor keeps: nothing of them can be said again. */
const DROPPED: ReadonlySet<unknown> = new Set([
  'web_search_call',
  'file_search_call',
  'code_interpreter_call',
  'image_generation_call',
  'computer_call',
  'computer_call_output',
  'mcp_list_tools',
  'mcp_approval_request',
  'mcp_approval_response',
  'program',
  'program_output'
])

/** What is asked in the place of an answer, where a client wants its conversation made shorter. */
const SUMMARIZE = 'Summarize the conversation so far, so that the work can go on from your summary alone: everything ' +
  'before it will be gone. Say what was asked for, and every instruction and wish that still holds, word for word ' +
  'where that matters; what was done and found out, with names, paths, numbers and decisions, and why; what failed; ' +
  'what was being done last, and what comes next. Call no tools and answer nothing. Write the summary only.'

/** What items of the input say about the request as a whole. */
export interface Updates {
  readonly reasoning: unknown
  readonly text: unknown
}

/**
 * Reads what must be known before the first turn: tools that come with the input, and changes of the settings. Those of
 * an earlier request ended with it.
 * @param history items of the conversation that the request goes on from
 * @throws {GatewayError} invalid_request: the input, or one of these items, is not what it must be
 */
export function readUpdates (
  { input, reasoning, text }: Json, box: ToolBox, history: readonly Json[]
): Updates {
  let updates: Updates = { reasoning, text }
  asHistory(history, ({ type, tools }) => {
    if (type === 'additional_tools' || type === 'tool_search_output') box.add(tools, 'tools')
  })
  if (!Array.isArray(input)) return updates
  for (let i = 0; i < input.length; i++) {
    const item: unknown = input[i]
    if (!isRecord(item)) throw invalid(`input[${i}]`, 'must be an object')
    if (item.type === 'additional_tools' || item.type === 'tool_search_output') {
      box.add(item.tools, `input[${i}].tools`)
    } else if (item.type === 'configuration_update') {
      updates = { reasoning: item.reasoning ?? updates.reasoning, text: item.text ?? updates.text }
    }
  }
  return updates
}

/** Whether the input asks for a summary of what stands before its last item. */
export function endsInTrigger (input: unknown): boolean {
  return Array.isArray(input) && isRecord(input.at(-1)) && input.at(-1).type === 'compaction_trigger'
}

/**
 * @param compacts a summary of the conversation is asked for
 * @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in messages style
 */
export function readInput (
  { input, instructions }: Json, means: Means, history: readonly Json[], compacts: boolean
): Conversation {
  const system: Block[] = []
  if (isGiven(instructions)) {
    const text = textAt(instructions, 'instructions')
    if (!isBlank(text)) system.push(textBlock(text))
  }
  const before = system.length
  const items: readonly Json[] = Array.isArray(input) ? input : []
  const thoughts = [...history, ...items].filter(({ type }) => type === 'reasoning').length
  const reader = new Reader(system, means, thoughts)
  asHistory(history, (item) => { reader.read(item, 0) })
  if (typeof input === 'string') reader.read({ role: 'user', content: input }, 0)
  else if (!Array.isArray(input)) throw invalid('input', 'must be a string or an array of items')
  else {
    const end = compacts && endsInTrigger(input) ? input.length - 1 : input.length
    for (let i = 0; i < end; i++) reader.read(input[i] as Json, i)
    if (compacts && history.length + end === 0) throw invalid('input', 'must hold the conversation to be summarized')
  }
  if (compacts) reader.read({ role: 'user', content: SUMMARIZE }, 0)
  const said = reader.turns.end()
  // What the system says last is a turn of its own where there is no other; the instructions alone are no input.
  const isAlone = said.length === 0 && system.length > before
  const turns: readonly Turn[] = isAlone ? [{ role: 'system', content: [system.pop()!] }] : said
  if (turns.length === 0) throw invalid('input', 'must hold a message of the user that is not empty')
  return { system, turns }
}

/**
 * Reads items that the client did not send. @throws {GatewayError} invalid_request: they were read once, but can't be
 * now, such as for a model without eyes
 */
function asHistory (items: readonly Json[], read: (item: Json) => void): void {
  try {
    for (const item of items) read(item)
  } catch (thrown) {
    if (!isGatewayError(thrown)) throw thrown
    throw invalid('previous_response_id', `leads to an item that can't be sent again: ${thrown.message}`)
  }
}

class Reader {
  readonly turns = new Turns()
  readonly #system: Block[]
  readonly #means: Means
  /** Limits the content of all calls' arguments together: the guard of the body saw each as one string. */
  readonly #guard = new JsonGuard()
  #hasTurns = false
  /** thoughts before those that are opened */
  #skipped: number

  /** @param thoughts in the input */
  constructor (system: Block[], means: Means, thoughts: number) {
    this.#system = system
    this.#means = means
    this.#skipped = thoughts - MOST_OPENED
  }

  read (item: Json, at: number): void {
    switch (typeOf(item)) {
      case 'message': this.#message(item, at); break
      case 'reasoning':
        if (this.#skipped-- <= 0) this.turns.addThoughts(readThoughts(item.encrypted_content, this.#means.open))
        break
      case 'function_call':
        this.#call(item, at, this.#nameOf(item, at), this.#arguments(item.arguments, at)); break
      case 'custom_tool_call':
        this.#call(item, at, this.#nameOf(item, at), { input: textAt(item.input, `input[${at}].input`) }); break
      case 'tool_search_call':
        if (isGiven(item.call_id)) {
          this.#call(item, at, 'tool_search',
            isRecord(item.arguments) ? item.arguments : this.#arguments(item.arguments, at))
        }
        break
      case 'local_shell_call': this.#call(item, at, 'local_shell', actionAt(item.action, `input[${at}].action`)); break
      case 'shell_call': this.#call(item, at, 'shell', actionAt(item.action, `input[${at}].action`)); break
      case 'apply_patch_call':
        this.#call(item, at, 'apply_patch', recordAt(item.operation, `input[${at}].operation`)); break
      case 'function_call_output':
      case 'custom_tool_call_output':
      case 'local_shell_call_output': this.#output(item, at, this.#content(item.output, at)); break
      case 'tool_search_output': if (isGiven(item.call_id)) this.#output(item, at, foundTools(item)); break
      case 'shell_call_output': this.#output(item, at, shellOutput(item.output, `input[${at}].output`)); break
      case 'apply_patch_call_output':
        this.#output(item, at, isGiven(item.output) ? this.#content(item.output, at) : [], item.status === 'failed')
        break
      case 'mcp_call': if (isGiven(item.output)) this.turns.addAnswer([mcpResult(item)]); break
      case 'compaction': this.#summary(item, at); break
      case 'additional_tools':
      case 'configuration_update': break
      default: if (!DROPPED.has(item.type)) refuse(item, at)
    }
  }

  /**
   * System and developer messages are the system until a turn has begun: then each holds from its place on. Only texts
   * can be the system's.
   */
  #message ({ role, content }: Json, at: number): void {
    const path = (): string => `input[${at}].content`
    switch (role) {
      case 'user': this.#say(this.#means.parts.read(content, path, true)); break
      case 'assistant':
        this.#hasTurns = true
        this.turns.addAnswer(this.#means.parts.read(content, path, false))
        break
      case 'system':
      case 'developer': {
        const blocks = this.#means.parts.read(content, path, true)
        const texts = blocks.filter(({ type }) => type === 'text')
        if (this.#hasTurns) this.turns.addSystem(texts)
        else for (const block of texts) this.#system.push(block)
        this.#say(blocks.filter(({ type }) => type !== 'text'))
        break
      }
      default: throw invalid(`input[${at}].role`, 'must be "user", "assistant", "system" or "developer"')
    }
  }

  #say (blocks: readonly Block[]): void {
    if (blocks.length > 0) this.#hasTurns = true
    this.turns.addUser(blocks)
  }

  #call (item: Json, at: number, name: string, input: Json): void {
    this.#hasTurns = true
    const id = nameAt(item.call_id, `input[${at}].call_id`)
    // The output of a local shell names the item, not the call.
    const other = item.type === 'local_shell_call' && typeof item.id === 'string' ? item.id : id
    this.turns.addCall(other === id || other === '' ? [id] : [id, other], name, input)
  }

  #output (item: Json, at: number, blocks: readonly Block[], hasFailed = false): void {
    this.#hasTurns = true
    const isLocal = item.type === 'local_shell_call_output' && !isGiven(item.call_id)
    this.turns.addOutput(nameAt(isLocal ? item.id : item.call_id, `input[${at}].${isLocal ? 'id' : 'call_id'}`), blocks,
      hasFailed)
  }

  #nameOf (item: Json, at: number): string {
    return this.#means.names.give(nameAt(item.name, `input[${at}].name`),
      spaceAt(item.namespace, `input[${at}].namespace`))
  }

  #content (content: unknown, at: number): Block[] {
    return this.#means.parts.read(content, () => `input[${at}].output`, true)
  }

  #arguments (value: unknown, at: number): Json {
    const text = isGiven(value) ? textAt(value, `input[${at}].arguments`) : ''
    this.#guard.next()
    this.#guard.push(Buffer.from(text))
    return inputOf(text)
  }

  #summary ({ encrypted_content: sealed }: Json, at: number): void {
    const path = `input[${at}].encrypted_content`
    const summary = this.#means.open('compaction', textAt(sealed, path))
    if (summary === undefined) {
      throw invalid(path, 'can\'t be read: the summary was made elsewhere, or for another account. Send the items that ' +
        'it stands for')
    }
    this.#say([textBlock(`Summary of the conversation so far:\n${summary}`)])
  }
}

/** Messages may leave it out, and references. */
function typeOf ({ type, role }: Json): unknown {
  return type ?? (isGiven(role) ? 'message' : 'item_reference')
}

/** @throws {GatewayError} always: the item can't be read, and to leave it out would change the answer in silence */
function refuse (item: Json, at: number): never {
  const { id } = item
  const type = typeOf(item)
  if (type === 'item_reference') {
    const named = typeof id === 'string' ? ` ${JSON.stringify(id.slice(0, 64))}` : ''
    throw new GatewayError('item_not_found', {
      message: `There is no item${named} here. Send store: false, and the items themselves in the place of references.`,
      param: `input[${at}].id`
    })
  }
  if (type === 'compaction_trigger') {
    throw invalid(`input[${at}].type`, 'must be the type of the last item: it asks for a summary of those before')
  }
  throw invalid(`input[${at}].type`, 'is an unknown input item type')
}
