// The schemas of tools for a vendor of another style than the client's. Each family refuses at the root what the other
// takes, and most clients write for one: no properties, several types, alternatives
// (src/README.md#tool-schemas).
import { isRecord, type Json } from '../base/json.ts'

/** Keywords that a vendor refuses at the root: other schemas that the input must match, or must not. */
const COMBINED: ReadonlySet<string> = new Set(['anyOf', 'oneOf', 'allOf', 'not', 'enum'])

/** @param tools of the inner language @returns the same value where nothing is to be adapted */
export function adaptTools (tools: unknown): unknown {
  if (!Array.isArray(tools) || !tools.some(isOdd)) return tools
  return tools.map((tool: unknown) => isOdd(tool) ? adapt(tool) : tool)
}

interface Tool extends Json {
  readonly input_schema: Json
}

function isOdd (tool: unknown): tool is Tool {
  if (!isRecord(tool) || !isRecord(tool.input_schema)) return false
  const { input_schema: schema } = tool
  return schema.type !== 'object' || !isRecord(schema.properties) || isCombined(schema) ||
    Object.entries(schema).some(isNull)
}

function isCombined (schema: Json): boolean {
  return Object.keys(schema).some((keyword) => COMBINED.has(keyword))
}

/** A null that says nothing, as Go prints an empty list. */
function isNull ([keyword, value]: readonly [string, unknown]): boolean {
  return value === null && keyword !== 'default' && keyword !== 'const'
}

/** What the union of the alternatives leaves out is said in words. */
function adapt ({ input_schema: schema, ...tool }: Tool): Json {
  const rest = Object.fromEntries(Object.entries(schema).filter((entry) => !isNull(entry) && !COMBINED.has(entry[0])))
  const isObject = rest.type === undefined || (Array.isArray(rest.type) && rest.type.includes('object'))
  const { properties, required } = new Union(schema)
  const adapted = { ...rest, type: isObject ? 'object' : rest.type, properties, ...(required.length > 0 && { required }) }
  if (!isCombined(schema)) return { ...tool, input_schema: adapted }
  const rule = `The input must match this JSON Schema: ${JSON.stringify(schema)}`
  const description = typeof tool.description === 'string' ? `${tool.description}\n\n${rule}` : rule
  return { ...tool, description, input_schema: adapted }
}

/** The properties of a schema and of all that it combines; required is what no alternative can leave out. */
class Union {
  readonly #root: Json
  /** by name, and by their JSON */
  readonly #found = new Map<string, Map<string, unknown>>()
  readonly #required = new Set<unknown>()
  /** each is read once, however often others refer to it */
  readonly #read = new Set<unknown>()

  constructor (root: Json) {
    this.#root = root
    const schemas: (readonly [schema: unknown, isCertain: boolean])[] = [[root, true]]
    for (const [schema, isCertain] of schemas) {
      if (!isRecord(schema) || this.#read.has(schema)) continue
      this.#read.add(schema)
      this.#add(schema, isCertain)
      if (typeof schema.$ref === 'string') schemas.push([this.#definition(schema.$ref), isCertain])
      for (const [keyword, isEach] of [['allOf', isCertain], ['anyOf', false], ['oneOf', false]] as const) {
        const all = schema[keyword]
        if (Array.isArray(all)) for (const one of all as readonly unknown[]) schemas.push([one, isEach])
      }
    }
  }

  get properties (): Json {
    return Object.fromEntries([...this.#found].map(([name, kinds]) => {
      const [first, ...others] = kinds.values()
      return [name, others.length === 0 ? first : { anyOf: [first, ...others] }]
    }))
  }

  get required (): readonly unknown[] {
    return [...this.#required]
  }

  #add ({ properties, required }: Json, isCertain: boolean): void {
    for (const [name, schema] of Object.entries(isRecord(properties) ? properties : {})) {
      const kinds = this.#found.get(name)
      if (kinds === undefined) this.#found.set(name, new Map([[JSON.stringify(schema), schema]]))
      else kinds.set(JSON.stringify(schema), schema)
    }
    if (!isCertain || !Array.isArray(required)) return
    for (const name of required as readonly unknown[]) this.#required.add(name)
  }

  #definition (reference: string): unknown {
    const [, group = '', name = ''] = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(reference) ?? []
    const named = this.#root[group]
    return isRecord(named) && Object.hasOwn(named, name) ? named[name] : undefined
  }
}
