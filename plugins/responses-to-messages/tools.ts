// Tools of a Responses request to the inner language: of the request itself, and of items of its input.
import { isRecord, type Json } from '../../src/base/json.ts'
import { invalid, nameAt, textAt } from '../../src/translation/reads.ts'
import { customTool, eachOf, functionTool } from '../../src/translation/tools.ts'
import { builtIns, isBuiltIn, isHere } from './built-ins.ts'
import type { DeclaredTool, ToolSpace } from '../../src/protocols/responses.ts'
import type { ClientTool } from './shape.ts'
import type { ToolNames } from './tool-names.ts'

/** Characters of a type that is not known, and types, that the header repeats. */
const SHOWN = 40
const MOST_SHOWN = 20

/** Each tool repeats the name of its namespace: one of a megabyte would become gigabytes. */
const LONGEST_SPACE = 256
/**
 * Most characters of descriptions of namespaces that are repeated with further tools of theirs, of one request: the
 * first tool of each says it anyway.
 */
const MOST_REPEATED = 1024 * 1024

export class ToolBox {
  readonly #names: ToolNames
  /** the model has structured outputs, so that `strict` means something */
  readonly #canBeStrict: boolean
  readonly #tools = new Map<string, { readonly inner: Json, readonly client: ClientTool,
    readonly declared: DeclaredTool }>()
  readonly #dropped = new Set<string>()
  /** namespaces that a tool has described */
  readonly #described = new Set<ToolSpace>()
  #repeatable = MOST_REPEATED

  constructor (names: ToolNames, canBeStrict: boolean) {
    this.#names = names
    this.#canBeStrict = canBeStrict
  }

  /** For the model, each under a name of its own. */
  get inner (): readonly Json[] {
    return [...this.#tools.values()].map(({ inner }) => inner)
  }

  /** The client's tools by these names. */
  get clients (): ReadonlyMap<string, ClientTool> {
    return new Map([...this.#tools].map(([name, { client }]) => [name, client]))
  }

  /** The same, as the client declared them. */
  get declared (): ReadonlyMap<string, DeclaredTool> {
    return new Map([...this.#tools].map(([name, { declared }]) => [name, declared]))
  }

  /** Types that run at a vendor, or are not known: they are left out. */
  get dropped (): readonly string[] {
    return [...this.#dropped]
  }

  /**
   * Adds tools; one with the name of an earlier one takes its place.
   * @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in messages style
   */
  add (list: unknown, path: string): void {
    eachOf(list, path, (tool, at) => {
      if (tool.type === 'namespace') this.#addSpace(tool, at)
      else this.#add(tool, at)
    })
  }

  #addSpace ({ name, description, tools }: Json, path: string): void {
    const space = { name: nameAt(name, `${path}.name`),
      description: typeof description === 'string' ? description : '' }
    if (space.name.length > LONGEST_SPACE) {
      throw invalid(`${path}.name`, `must have at most ${LONGEST_SPACE} characters`)
    }
    eachOf(tools, `${path}.tools`, (tool, at) => { this.#add(tool, at, space) })
  }

  #add (tool: Json, path: string, space?: ToolSpace): void {
    const type = textAt(tool.type, `${path}.type`)
    if (type === 'function') this.#keep(type, functionTool(tool, path, tool), tool, space)
    else if (type === 'custom') {
      nameAt(tool.name, `${path}.name`)
      this.#keep(type, customTool(tool, grammarOf(tool.format), `${path}.format`, tool), tool, space)
    } else if (space === undefined && isBuiltIn(type) && isHere(tool)) {
      this.#keep(type, builtIns[type](tool, path), tool)
    } else if (type !== 'tool_search' && this.#dropped.size < MOST_SHOWN) {
      // Of a search at the vendor nothing is lost: its tools are all shown at once.
      this.#dropped.add(type.replace(/[^\w.-]/g, '_').slice(0, SHOWN))
    }
  }

  /** What one more tool says of its namespace. */
  #about (space: ToolSpace | undefined): string {
    if (space === undefined) return ''
    if (this.#described.has(space)) {
      this.#repeatable -= space.description.length
      return this.#repeatable < 0 ? '' : space.description
    }
    this.#described.add(space)
    return space.description
  }

  #keep (type: ClientTool['type'], inner: Json, declared: Json, space?: ToolSpace): void {
    const { strict, description, ...rest } = inner
    const name = rest.name as string
    const given = this.#names.give(name, space?.name)
    const told = [this.#about(space), description].filter((line) => typeof line === 'string' && line !== '')
      .join('\n\n')
    this.#tools.set(given, {
      inner: { ...rest, name: given, ...(told !== '' && { description: told }),
        ...(strict === true && this.#canBeStrict && { strict }) },
      client: { type, name, ...(space !== undefined && { namespace: space.name }) },
      declared: { name, space, declared }
    })
  }
}

/** The rules of a custom tool's text; undefined: any text. */
function grammarOf (format: unknown): Json | undefined {
  return isRecord(format) && format.type === 'grammar' ? format : undefined
}

/** @throws {GatewayError} invalid_request: it is neither the name of a namespace nor left out */
export function spaceAt (value: unknown, path: string): string | undefined {
  if (value === undefined || value === null || value === '') return undefined
  if (typeof value !== 'string') throw invalid(path, 'must be a string')
  return value
}
