// Names of a tool's properties that Anthropic refuses, such as OData's "$filter" and the "page[size]" of JSON:API: MCP
// servers make them from descriptions of APIs. For a client of another style the vendor gets others in their place, in
// the schema and in earlier calls, and the client its own again. Nothing is stored: they are computed from the request.
import { isRecord, type Json } from '../../../base/json.ts'
import type { Exchange } from '../../../core/exchange.ts'
import type { StreamTransformer } from '../../../core/plugin.ts'
import { SseEvent } from '../../../core/sse.ts'
import { messagesStyle } from '../../../protocols/messages.ts'
import { shortName } from '../../../translation/short-name.ts'
import { adaptTools } from '../../../translation/tool-schema.ts'
import { EarlierCalls } from '../call-ids.ts'
import type { DialectModule } from '../dialect.ts'
import { type Names, withShortNames } from '../tool-names.ts'

/** "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'": at the root of a schema, and nowhere else. */
const VALID = /^[\w.-]{1,64}$/
const LONGEST = 64

/** By the vendor's name of a tool: the vendor's names of its properties, by the client's. */
export type PropertyNames = ReadonlyMap<unknown, Names>

const NONE: PropertyNames = new Map()

interface NamedTool extends Json {
  readonly input_schema: { readonly properties: Json } & Json
}

/** The names that must change. @param tools as the vendor gets them otherwise */
export function propertyNames (tools: unknown): PropertyNames {
  if (!Array.isArray(tools)) return NONE
  let found: Map<unknown, Names> | undefined
  for (const tool of tools as readonly unknown[]) {
    if (!hasProperties(tool)) continue
    const names = namesFor(Object.keys(tool.input_schema.properties))
    if (names === undefined) continue
    found ??= new Map()
    found.set(tool.name, names)
  }
  return found ?? NONE
}

function hasProperties (tool: unknown): tool is NamedTool {
  return isRecord(tool) && isRecord(tool.input_schema) && isRecord(tool.input_schema.properties)
}

/** Undefined: all are valid. */
function namesFor (own: readonly string[]): Names | undefined {
  if (own.every((name) => VALID.test(name))) return undefined
  const taken = new Set(own.filter((name) => VALID.test(name)))
  const names = new Map<string, string>()
  for (const name of own) {
    if (VALID.test(name)) continue
    const similar = name.slice(0, LONGEST).replace(/[^\w.-]/g, '_')
    const free = similar !== '' && !taken.has(similar) ? similar : shortName(name, name)
    taken.add(free)
    names.set(name, free)
  }
  return names
}

/** @returns the same value where nothing changes */
export function withVendorProperties (tools: unknown, names: PropertyNames): unknown {
  if (names.size === 0 || !Array.isArray(tools)) return tools
  return tools.map((tool: unknown) => {
    const own = isRecord(tool) ? names.get(tool.name) : undefined
    if (own === undefined || !hasProperties(tool)) return tool
    const { input_schema: { properties, required, ...schema } } = tool
    return { ...tool, input_schema: { ...schema, properties: renamed(properties, own),
      ...(required !== undefined && { required: Array.isArray(required)
        ? required.map((name: unknown) => own.get(name as string) ?? name) : required }) } }
  })
}

/** @returns the same value where nothing changes */
export function withVendorInputs (messages: unknown, names: PropertyNames): unknown {
  if (names.size === 0 || !Array.isArray(messages)) return messages
  return messages.map((turn: unknown) => {
    if (!isRecord(turn) || turn.role !== 'assistant' || !Array.isArray(turn.content)) return turn
    return { ...turn, content: turn.content.map((block: unknown) => isRecord(block) ? withInput(block, names) : block) }
  })
}

function withInput (block: Json, names: PropertyNames): Json {
  const own = block.type === 'tool_use' ? names.get(block.name) : undefined
  return own === undefined || !isRecord(block.input) ? block : { ...block, input: renamed(block.input, own) }
}

function renamed (fields: Json, names: Names): Json {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [names.get(name) ?? name, value]))
}

/** For an answer that is read where the request's body is not. */
export function clientProperties (exchange: Exchange): PropertyNames {
  const known = exchange.find(EarlierCalls)
  if (known !== undefined) return known.properties
  const { route: { style }, request: { body } } = exchange
  if (style === messagesStyle || !Array.isArray(body.tools)) return NONE
  return propertyNames(adaptTools(withShortNames(body).tools))
}

function reversed (names: PropertyNames): PropertyNames {
  return new Map(Array.from(names, ([tool, own]) =>
    [tool, new Map(Array.from(own, ([name, theirs]) => [theirs, name]))]))
}

/** The dialect with the client's names of properties in the calls of its answers. */
export function withClientProperties (dialect: DialectModule): DialectModule {
  return {
    ...dialect,
    decodeReply (body, exchange, upstream) {
      const message = dialect.decodeReply(body, exchange, upstream)
      if (!isRecord(message) || !Array.isArray(message.content)) return message
      if (!message.content.some((block) => isRecord(block) && block.type === 'tool_use')) return message
      const names = clientProperties(exchange)
      if (names.size === 0) return message
      const theirs = reversed(names)
      return { ...message,
        content: message.content.map((block) => isRecord(block) ? withInput(block, theirs) : block) }
    },
    decodeStream (exchange, upstream) {
      const stream = dialect.decodeStream(exchange, upstream)
      const names = clientProperties(exchange)
      return names.size === 0 ? stream : new OwnProperties(stream, reversed(names))
    }
  }
}

class OwnProperties implements StreamTransformer {
  readonly #stream: StreamTransformer
  readonly #names: PropertyNames
  /** of the open calls, by their index */
  readonly #calls = new Map<unknown, InputKeys>()

  constructor (stream: StreamTransformer, names: PropertyNames) {
    this.#stream = stream
    this.#names = names
  }

  event (event: SseEvent): ReturnType<StreamTransformer['event']> {
    const made = this.#stream.event(event)
    if (made instanceof SseEvent) return this.#renamed(made)
    return made instanceof Array ? made.flatMap((one) => this.#renamed(one)) : made
  }

  end (): readonly SseEvent[] {
    return (this.#stream.end?.() ?? []).flatMap((event) => this.#renamed(event))
  }

  #renamed (event: SseEvent): SseEvent | SseEvent[] {
    switch (event.event) {
      case 'content_block_start': return this.#begin(event)
      case 'content_block_delta': return this.#add(event)
      case 'content_block_stop': return this.#stop(event)
      default: return event
    }
  }

  #begin (event: SseEvent): SseEvent {
    const data = event.json as Json
    const { index, content_block: block } = data
    const own = isRecord(block) && block.type === 'tool_use' ? this.#names.get(block.name) : undefined
    if (own === undefined) return event
    this.#calls.set(index, new InputKeys(own))
    return SseEvent.of(event.event!, { ...data, content_block: withInput(block as Json, this.#names) })
  }

  #add (event: SseEvent): SseEvent | SseEvent[] {
    const data = event.json as Json
    const call = this.#calls.get(data.index)
    const delta = data.delta as Json
    if (call === undefined || typeof delta.partial_json !== 'string') return event
    const json = call.push(delta.partial_json)
    return json === '' ? [] : inputDelta(data.index, json)
  }

  #stop (event: SseEvent): SseEvent | SseEvent[] {
    const { index } = event.json as Json
    const left = this.#calls.get(index)?.held ?? ''
    this.#calls.delete(index)
    return left === '' ? event : [inputDelta(index, left), event]
  }
}

function inputDelta (index: unknown, json: string): SseEvent {
  return SseEvent.of('content_block_delta', { type: 'content_block_delta', index,
    delta: { type: 'input_json_delta', partial_json: json } })
}

/** Renames the keys of an object whose JSON comes in pieces. Holds back at most a key. */
class InputKeys {
  readonly #names: Names
  #depth = 0
  #isObject = false
  #isString = false
  #isEscaped = false
  #expectsKey = false
  /** the beginning of a key, with its quotation mark */
  held = ''

  constructor (names: Names) {
    this.#names = names
  }

  push (piece: string): string {
    let json = ''
    for (const character of piece) json += this.#isString ? this.#inString(character) : this.#outside(character)
    return json
  }

  #inString (character: string): string {
    if (this.#isEscaped) this.#isEscaped = false
    else if (character === '\\') this.#isEscaped = true
    else if (character === '"') this.#isString = false
    if (this.held === '') return character
    this.held += character
    if (this.#isString) return ''
    const key = this.held
    this.held = ''
    const own = this.#names.get(key.slice(1, -1))
    return own === undefined ? key : JSON.stringify(own)
  }

  #outside (character: string): string {
    switch (character) {
      case '"':
        this.#isString = true
        if (!this.#expectsKey) return character
        this.#expectsKey = false
        this.held = character
        return ''
      case '{':
      case '[':
        if (++this.#depth === 1) this.#expectsKey = this.#isObject = character === '{'
        return character
      case '}':
      case ']':
        this.#depth--
        return character
      case ',':
        this.#expectsKey = this.#isObject && this.#depth === 1
        return character
      default:
        return character
    }
  }
}
