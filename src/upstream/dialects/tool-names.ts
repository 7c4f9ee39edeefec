// Names of tools that vendors refuse: of MCP servers above 64 characters, or with dots. A request to an upstream has
// short ones in their place, everywhere, and its answer the client's own again. Nothing is stored: the names are
// computed from the request.
import { isRecord, type Json } from '../../base/json.ts'
import type { Exchange } from '../../core/exchange.ts'
import type { StreamTransformer } from '../../core/plugin.ts'
import { SseEvent } from '../../core/sse.ts'
import { shortName, VALID_NAME } from '../../translation/short-name.ts'
import { callsIn, EarlierCalls } from './call-ids.ts'
import type { DialectModule } from './dialect.ts'
import { textIn } from './json.ts'
import { changesIn } from './tool-changes.ts'

export type Names = ReadonlyMap<string, string>

const NONE: Names = new Map()

/** The names in a request that must change, with those in their place. */
export function shortNames (body: Json): Names {
  if (!isNaming(body)) return NONE
  const names = new Set(namesIn(body))
  let short: Map<string, string> | undefined
  for (const name of names) {
    if (name === '' || VALID_NAME.test(name)) continue
    let given = ''
    for (let i = 0; given === '' || names.has(given); i++) given = shortName(name, `${name}\n${i}`)
    names.add(given)
    short ??= new Map()
    short.set(name, given)
  }
  return short ?? NONE
}

/** Whether a request can have names of tools: nothing is allocated for one that can't. */
function isNaming ({ tools, tool_choice: choice, messages }: Json): boolean {
  if (Array.isArray(tools) || isRecord(choice)) return true
  if (!Array.isArray(messages)) return false
  for (let i = 0; i < messages.length; i++) {
    const turn: unknown = messages[i]
    if (isRecord(turn) && turn.role !== 'user' && Array.isArray(turn.content)) return true
  }
  return false
}

function * namesIn ({ tools, tool_choice: choice, messages }: Json): Generator<string> {
  for (const tool of listOf(tools)) yield textIn(tool.name)
  if (isRecord(choice)) yield textIn(choice.name)
  for (const call of callsIn(messages)) yield textIn(call.name)
  for (const { tool } of changesIn(messages)) {
    if (isRecord(tool)) yield textIn(isRecord(tool.definition) ? tool.definition.name : tool.name)
  }
}

function listOf (value: unknown): readonly Json[] {
  return Array.isArray(value) ? value.filter(isRecord) : []
}

/** The fields of a request with names of tools. */
export interface NamingFields {
  readonly tools?: unknown
  readonly tool_choice?: unknown
  readonly messages?: unknown
}

/**
 * The fields with short names: the same object where nothing changes.
 * @param body of the client @param fields of it, or what has become of them
 */
export function withShortNames (body: Json, fields: NamingFields = body, names = shortNames(body)): NamingFields {
  if (names.size === 0) return fields
  const { tools, tool_choice: choice, messages } = fields
  return { tools: renamed(tools, names), tool_choice: renamed(choice, names), messages: renamed(messages, names) }
}

/** The fields that hold names of tools, or what has such a field, by the type of the object; '': of all others. */
const FIELDS: ReadonlyMap<unknown, readonly string[]> = new Map([
  ['tool_use', ['name']],
  ['tool_result', ['content']],
  ['tool_reference', ['tool_name']],
  ['tool_addition', ['tool']],
  ['tool_removal', ['tool']],
  ['text', []],
  ['', ['name', 'content', 'definition']]
])

/** @param value tools, messages, their blocks, or one of them */
function renamed (value: unknown, names: Names): unknown {
  if (Array.isArray(value)) return value.map((one) => renamed(one, names))
  if (!isRecord(value)) return value
  let changed: Record<string, unknown> | undefined
  for (const field of FIELDS.get(value.type) ?? FIELDS.get('')!) {
    const own = value[field]
    const other = typeof own === 'string' ? field === 'content' ? own : names.get(own) ?? own : renamed(own, names)
    if (other !== own) (changed ??= { ...value })[field] = other
  }
  return changed ?? value
}

/** The client's names by those in their place. */
export function clientNames (exchange: Exchange): Names {
  const names = exchange.find(EarlierCalls)?.names ?? shortNames(exchange.request.body)
  return names.size === 0 ? NONE : new Map(Array.from(names, ([name, short]) => [short, name]))
}

/** The dialect with the client's names of tools in its answers. */
export function withClientNames (dialect: DialectModule): DialectModule {
  return {
    ...dialect,
    decodeReply (body, exchange, upstream) {
      const message = dialect.decodeReply(body, exchange, upstream)
      const names = clientNames(exchange)
      if (names.size === 0 || !isRecord(message) || !Array.isArray(message.content)) return message
      return { ...message, content: message.content.map((block) => isRecord(block) ? own(block, names) : block) }
    },
    decodeStream (exchange, upstream) {
      const stream = dialect.decodeStream(exchange, upstream)
      const names = clientNames(exchange)
      return names.size === 0 ? stream : new OwnNames(stream, names)
    }
  }
}

class OwnNames implements StreamTransformer {
  readonly #stream: StreamTransformer
  readonly #names: Names

  constructor (stream: StreamTransformer, names: Names) {
    this.#stream = stream
    this.#names = names
  }

  event (event: SseEvent): ReturnType<StreamTransformer['event']> {
    const made = this.#stream.event(event)
    if (made instanceof SseEvent) return this.#renamed(made)
    return made instanceof Array ? made.map((one) => this.#renamed(one)) : made
  }

  end (): readonly SseEvent[] {
    return (this.#stream.end?.() ?? []).map((event) => this.#renamed(event))
  }

  #renamed (event: SseEvent): SseEvent {
    if (event.event !== 'content_block_start') return event
    const data = event.json as Json
    const block = data.content_block
    if (!isRecord(block)) return event
    const named = own(block, this.#names)
    return named === block ? event : SseEvent.of('content_block_start', { ...data, content_block: named })
  }
}

function own (block: Json, names: Names): Json {
  const name = block.type === 'tool_use' ? names.get(textIn(block.name)) : undefined
  return name === undefined ? block : { ...block, name }
}
