// The output items of a response while they are made: each takes the pieces of a content block, and says what of them
// its client is told at once, and what it is when it is whole.
import { asRecord, type Json, parseInputOr, parseOr } from '../../src/base/json.ts'
import { unwrapInput } from '../../src/translation/custom-input.ts'
import type { ClientTool } from './shape.ts'

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete'

/**
 * Makes text that only the gateway can read again, for the same account.
 * @param text of the blocks of a thought, exactly as the upstream sent them, as JSON; or a summary
 * @param purpose absent: reasoning
 */
export type Seal = (text: string, purpose?: 'compaction') => string

/** The place of an item in the answer. */
export interface Place {
  readonly id: string
  /** its number among the items that were begun */
  readonly index: number
}

export interface Item {
  /** begins its id */
  readonly prefix: string
  /** Undefined until it is begun. */
  place: Place | undefined
  /** @returns the text that the client is told now, or '' */
  add (piece: string): string
  /** Its content has ended. @returns the rest of the text */
  end (): string
  /** The item as it is now. */
  json (status: ItemStatus): Json
}

export class MessageItem implements Item {
  readonly prefix = 'msg'
  place: Place | undefined
  text = ''

  add (piece: string): string {
    this.text += piece
    return piece
  }

  end (): string { return '' }

  /** Without its content, as it begins: a part that is there already breaks the SDK. */
  begun (): Json {
    return { id: this.place!.id, type: 'message', role: 'assistant', status: 'in_progress', content: [] }
  }

  json (status: ItemStatus): Json {
    return { ...this.begun(), status,
      content: [{ type: 'output_text', text: this.text, annotations: [], logprobs: [] }] }
  }
}

/** A thinking block, or one that is redacted. */
export class ReasoningItem implements Item {
  readonly prefix = 'rs'
  place: Place | undefined
  readonly #block: Json
  readonly #seal: Seal
  readonly #isShown: boolean
  signature: string
  thinking = ''

  /** @param block as it begins, without its thinking @param isShown whether the client asked for summaries */
  constructor (block: Json, isShown: boolean, seal: Seal) {
    this.#block = block
    this.#seal = seal
    this.#isShown = isShown
    this.signature = typeof block.signature === 'string' ? block.signature : ''
  }

  /** The text that the client is shown of it. */
  get summary (): string {
    return this.#isShown ? this.thinking : ''
  }

  add (piece: string): string {
    this.thinking += piece
    return this.#isShown ? piece : ''
  }

  end (): string { return '' }

  /** Without its content, as it begins. */
  begun (): Json {
    return { id: this.place!.id, type: 'reasoning', summary: [], encrypted_content: null, status: 'in_progress' }
  }

  json (status: ItemStatus): Json {
    const { summary } = this
    const { type, data } = this.#block
    const block = type === 'redacted_thinking' ? { type, data }
      : { type, thinking: this.thinking, signature: this.signature }
    // A thought that was cut has no signature, without which the vendor does not take it back.
    const isTaken = status === 'completed' || type === 'redacted_thinking' || this.signature !== ''
    return { ...this.begun(), summary: summary === '' ? [] : [{ type: 'summary_text', text: summary }],
      encrypted_content: isTaken ? this.#seal(JSON.stringify([block])) : null, status }
  }
}

/** A call: `id` is the upstream's, by which the client answers it. */
interface Called {
  readonly id: unknown
  readonly tool: Pick<ClientTool, 'name' | 'namespace'>
}

export class FunctionItem implements Item {
  readonly prefix = 'fc'
  place: Place | undefined
  readonly #called: Called
  #arguments = ''

  constructor (called: Called) {
    this.#called = called
  }

  get name (): string { return this.#called.tool.name }

  add (piece: string): string {
    this.#arguments += piece
    return piece
  }

  end (): string { return '' }

  json (status: ItemStatus): Json {
    const { id, tool } = this.#called
    return { id: this.place!.id, type: 'function_call', call_id: id, name: tool.name,
      ...(tool.namespace !== undefined && { namespace: tool.namespace }), arguments: this.#arguments, status }
  }
}

/** A call with a text, which the model was made to put into JSON. */
export class CustomItem implements Item {
  readonly prefix = 'ctc'
  place: Place | undefined
  readonly #called: Called
  readonly #reader = unwrapInput()
  #input = ''

  constructor (called: Called) {
    this.#called = called
  }

  add (piece: string): string {
    return this.#keep(this.#reader.push(piece))
  }

  end (): string {
    return this.#keep(this.#reader.end())
  }

  #keep (text: string): string {
    this.#input += text
    return text
  }

  json (status: ItemStatus): Json {
    const { id, tool } = this.#called
    return { id: this.place!.id, type: 'custom_tool_call', call_id: id, name: tool.name,
      ...(tool.namespace !== undefined && { namespace: tool.namespace }), input: this.#input, status }
  }
}

export type BuiltIn = Exclude<ClientTool['type'], 'function' | 'custom'>

/** A summary in the place of an answer. Its client gets it sealed, and sends it for what it tells of. */
export class CompactionItem implements Item {
  readonly prefix = 'cmp'
  place: Place | undefined
  readonly #seal: Seal
  #summary = ''

  constructor (seal: Seal) {
    this.#seal = seal
  }

  add (piece: string): string {
    this.#summary += piece
    return ''
  }

  end (): string { return '' }

  json (): Json {
    return { id: this.place!.id, type: 'compaction', encrypted_content: this.#seal(this.#summary, 'compaction') }
  }
}

/** A call of a tool that the API itself describes: its input is fields of the item, of which no part is told alone. */
export class BuiltInItem implements Item {
  readonly prefix: string
  place: Place | undefined
  readonly #type: BuiltIn
  readonly #id: unknown
  #input = ''

  constructor (type: BuiltIn, id: unknown) {
    this.prefix = PREFIXES[type]
    this.#type = type
    this.#id = id
  }

  add (piece: string): string {
    this.#input += piece
    return ''
  }

  end (): string { return '' }

  json (status: ItemStatus): Json {
    return { id: this.place!.id, type: `${this.#type}_call`, call_id: this.#id, status,
      ...FIELDS[this.#type](asRecord((this.#type === 'tool_search' ? parseInputOr : parseOr)(this.#input))) }
  }
}

const PREFIXES: Readonly<Record<BuiltIn, string>> = { tool_search: 'tsc', local_shell: 'lsh', shell: 'sh',
  apply_patch: 'apc' }

/** The fields of the items, whatever the model has made of the input: clients refuse the answer for a wrong type. */
const FIELDS: Readonly<Record<BuiltIn, (input: Json) => Json>> = {
  tool_search: (input) => ({ execution: 'client', arguments: input }),
  local_shell: ({ command, env, timeout_ms: limit, user, working_directory: folder }) => ({
    action: {
      type: 'exec',
      command: typeof command === 'string' ? ['bash', '-lc', command] : texts(command),
      env: Object.fromEntries(Object.entries(asRecord(env)).filter(([, value]) => typeof value === 'string')),
      ...(typeof limit === 'number' && { timeout_ms: limit }),
      ...(typeof user === 'string' && { user }),
      ...(typeof folder === 'string' && { working_directory: folder })
    }
  }),
  shell: ({ commands, timeout_ms: limit, max_output_length: length }) => ({
    action: {
      commands: typeof commands === 'string' ? [commands] : texts(commands),
      timeout_ms: typeof limit === 'number' ? limit : null,
      max_output_length: typeof length === 'number' ? length : null
    },
    environment: { type: 'local' }
  }),
  apply_patch: ({ type, path, diff }) => ({
    operation: { type: type === 'create_file' || type === 'delete_file' ? type : 'update_file', path: text(path),
      ...(type !== 'delete_file' && { diff: text(diff) }) }
  })
}

function text (value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function texts (value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === 'string') : []
}
