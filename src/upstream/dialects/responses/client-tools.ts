// Tools as their client declared them, where it speaks this API too: with grammars for their text and in namespaces, of
// which messages style knows nothing. All that run at the client; those of the vendor's have a price of their own.
import type { Exchange } from '../../../core/exchange.ts'
import type { Upstream } from '../../../core/upstream.ts'
import { type DeclaredTool, ResponsesOwn, ResponsesWords, type ToolName } from '../../../protocols/responses.ts'
import { messagesStyle } from '../../../protocols/messages.ts'
import { argumentsOf } from '../../../translation/call-input.ts'
import { isRecord, type Json } from '../../../base/json.ts'
import type { FunctionTool } from '../functions.ts'
import { textIn } from '../json.ts'

/** Names that the vendor takes: a tool or a namespace with another one has a name for every vendor already. */
const TAKEN = /^[\w-]{1,64}$/
const NONE: ReadonlyMap<string, never> = new Map<string, never>()
const NO_TOOLS: ReadonlySet<string> = new Set()

export class ClientTools {
  /** by their names in the inner language */
  readonly #declared: ReadonlyMap<string, DeclaredTool>
  readonly #names: ReadonlyMap<string, ToolName>
  /** names in the inner language of those whose input is text */
  readonly #custom: ReadonlySet<string>
  /** whether an input of a call may stand for a text (src/translation/call-input.ts) */
  readonly #mayBeRaw: boolean

  constructor (exchange: Exchange, { config: { responses: options } }: Upstream) {
    const areOwn = options?.client_tools !== 'functions'
    this.#declared = areOwn ? exchange.find(ResponsesOwn)?.tools ?? NONE : NONE
    const words = exchange.find(ResponsesWords)
    this.#names = areOwn ? words?.names ?? NONE : NONE
    this.#custom = words?.answer.customTools ?? NO_TOOLS
    this.#mayBeRaw = exchange.route.style !== messagesStyle
  }

  /** The tools of a request; members of a namespace stand where its first one stood. */
  declare (functions: readonly FunctionTool[]): readonly Json[] {
    const tools: Json[] = []
    const spaces = new Map<string, Json[]>()
    for (const one of functions) {
      const { space, declared } = this.#find(one.name) ?? {}
      const tool = declared === undefined ? toTool(one) : toOwn(declared, one)
      if (space === undefined) {
        tools.push(tool)
        continue
      }
      const { name, description } = space
      let members = spaces.get(name)
      if (members === undefined) {
        spaces.set(name, members = [])
        tools.push({ type: 'namespace', name, description, tools: members })
      }
      members.push(tool)
    }
    return tools
  }

  /** @param name in the inner language */
  choice (name: string): Json {
    const own = this.#find(name)
    return own === undefined ? { type: 'function', name } : { type: own.declared.type, name: own.name }
  }

  /** @param name in the inner language @param input an object */
  call (name: unknown, id: string, input: unknown): Json {
    const { name: own = name, space, declared } = this.#find(textIn(name)) ?? {}
    const about = { call_id: id, name: own, ...(space !== undefined && { namespace: space.name }) }
    if (declared?.type !== 'custom') {
      return { type: 'function_call', ...about, arguments: argumentsOf(input, this.#mayBeRaw) }
    }
    const text = isRecord(input) && typeof input.input === 'string' ? input.input : JSON.stringify(input ?? '')
    return { type: 'custom_tool_call', ...about, input: text }
  }

  /** The name in the inner language of the tool that an item calls. */
  nameOf ({ name, namespace }: Json): string {
    const called = textIn(name)
    const space = textIn(namespace)
    for (const [inner, tool] of this.#names) {
      if (tool.name === called && (tool.namespace ?? '') === space) return inner
    }
    return called
  }

  /** Whether the client declared a tool with a text. xAI reports calls of its own tools as such, which it has run. */
  isCustom (item: Json): boolean {
    return this.#custom.has(this.nameOf(item))
  }

  /** Undefined: it is a function under its name, such as those that the API itself describes. */
  #find (name: string): DeclaredTool | undefined {
    const tool = this.#declared.get(name)
    return (tool?.declared.type === 'function' || tool?.declared.type === 'custom') && TAKEN.test(tool.name) &&
      TAKEN.test(tool.space?.name ?? 'none') ? tool : undefined
  }
}

/** A tool is strict here unless it says otherwise. */
function toTool (one: FunctionTool): Json {
  return { type: 'function', ...one, strict: one.strict === true }
}

function toOwn ({ type, name, description, parameters, strict, format }: Json, one: FunctionTool): Json {
  const about = { type, name, ...(typeof description === 'string' && { description }) }
  return type === 'custom'
    ? { ...about, ...(isRecord(format) && { format: formatOf(format) }) }
    : { ...about, parameters: isRecord(parameters) ? parameters : one.parameters, strict: strict === true }
}

function formatOf ({ type, syntax, definition }: Json): Json {
  return type === 'grammar' ? { type, syntax, definition } : { type: 'text' }
}
