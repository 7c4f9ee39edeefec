// Reduces a client's JSON Schema to the keywords of the vendor's structured outputs: those it compiles to a grammar,
// all others it answers with 400. Limits are told to the model instead, and objects closed; a schema that needs other
// keywords has no grammar.
import { isRecord, type Json } from '../base/json.ts'

const FORMATS: ReadonlySet<unknown> = new Set(['date-time', 'time', 'date', 'duration', 'email', 'hostname', 'uri',
  'ipv4', 'ipv6', 'uuid'])

/** The numbers of items that a grammar may require. */
const LEAST: ReadonlySet<unknown> = new Set([0, 1])

/** Keywords that no grammar has, except for the values above. */
const LIMITS: ReadonlySet<string> = new Set([
  'minLength',
  'maxLength',
  'pattern',
  'format',
  'minimum',
  'maximum',
  'exclusiveMinimum',
  'exclusiveMaximum',
  'multipleOf',
  'minItems',
  'maxItems',
  'uniqueItems',
  'minProperties',
  'maxProperties',
  'default'
])

/** Keywords without which a schema would mean something else. */
const UNSAYABLE: ReadonlySet<string> = new Set([
  'allOf',
  'not',
  'if',
  'then',
  'else',
  'dependencies',
  'dependentRequired',
  'dependentSchemas',
  'patternProperties',
  'propertyNames',
  'unevaluatedProperties',
  'prefixItems',
  'additionalItems',
  'contains',
  'unevaluatedItems',
  '$dynamicRef',
  '$recursiveRef'
])

/** References to names that need no decoding; other ones are not for the vendor. */
const REF = /^#\/(\$defs|definitions)\/([^/%~]+)$/

/** No body is deeper, but recursive definitions are. They have no grammar. */
const DEEPEST = 64

/**
 * Most schemas that are read of one request, at 2 µs each (measured). OpenAI accepts 5,000 properties, and this vendor
 * fewer.
 */
const MOST_SCHEMAS = 10_000

const NONE: Json = Object.freeze({})

/**
 * @returns for each schema of one request its grammar; undefined: it has none, or with it the request would be too much
 * for the vendor ("Schemas contains too many optional parameters (…) … (limit: 24)", and the like)
 */
export function grammars (): (schema: Json) => Json | undefined {
  let roots = 20
  let optional = 24
  let unions = 16
  let schemas = MOST_SCHEMAS
  return (schema) => {
    if (roots === 0) return undefined
    const reader = new Reader(schema, schemas)
    const grammar = reader.readRoot()
    schemas = reader.left
    if (grammar === undefined || reader.optional > optional || reader.unions > unions) return undefined
    roots--
    optional -= reader.optional
    unions -= reader.unions
    return grammar
  }
}

class Reader {
  optional = 0
  unions = 0
  /** schemas that may still be read */
  left: number
  #isSayable = true
  readonly #root: Json
  /** definitions that are referred to */
  readonly #read = { $defs: new Map<string, Json>(), definitions: new Map<string, Json>() }

  constructor (root: Json, left: number) {
    this.#root = root
    this.left = left
  }

  readRoot (): Json | undefined {
    const root = this.#schema(this.#root, 0)
    if (!this.#isSayable) return undefined
    const { $defs, definitions } = this.#read
    return {
      ...root,
      ...($defs.size > 0 && { $defs: Object.fromEntries($defs) }),
      ...(definitions.size > 0 && { definitions: Object.fromEntries(definitions) })
    }
  }

  #unsayable (): Json {
    this.#isSayable = false
    return NONE
  }

  #schema (schema: unknown, depth: number): Json {
    if (!this.#isSayable || this.left === 0 || !isRecord(schema) || depth > DEEPEST) return this.#unsayable()
    this.left--
    const words = Object.keys(schema)
    if (words.some((word) => UNSAYABLE.has(word))) return this.#unsayable()
    if (schema.$ref !== undefined) return this.#reference(schema, depth)
    const shape = this.#shape(schema, depth)
    const limits = words.filter((word) => LIMITS.has(word) && shape[word] === undefined).flatMap((word) =>
      limit(word, schema[word])
    )
    const said = typeof schema.description === 'string' ? [schema.description] : []
    if (limits.length > 0) said.push(`(${limits.join(', ')})`)
    return { ...shape, ...(typeof schema.title === 'string' && { title: schema.title }),
      ...(said.length > 0 && { description: said.join(' ') }) }
  }

  #reference (schema: Json, depth: number): Json {
    const { $ref } = schema
    const match = typeof $ref === 'string' ? REF.exec($ref) : null
    if (match === null || hasShape(schema)) return this.#unsayable()
    const list = match[1] === '$defs' ? '$defs' : 'definitions'
    const name = match[2]!
    const all = this.#root[list]
    const read = this.#read[list]
    if (!read.has(name)) {
      if (!isRecord(all) || !Object.hasOwn(all, name)) return this.#unsayable()
      read.set(name, this.#schema(all[name], depth + 1))
    }
    return { $ref }
  }

  #shape (schema: Json, depth: number): Json {
    const { enum: values, const: value } = schema
    if (values !== undefined || value !== undefined) return this.#literals(values, value)
    const variants = schema.anyOf ?? schema.oneOf
    if (variants !== undefined) {
      if (!Array.isArray(variants) || hasShape(schema)) return this.#unsayable()
      return this.#union(variants.map((variant) => this.#schema(variant, depth + 1)))
    }
    const { type = schema.properties === undefined ? undefined : 'object' } = schema
    const types = [...new Set<unknown>(Array.isArray(type) ? type : [type])]
    return types.length === 1
      ? this.#typed(types[0], schema, depth)
      : this.#union(types.map((one) => this.#typed(one, schema, depth)))
  }

  #literals (values: unknown, value: unknown): Json {
    const isEnum = Array.isArray(values) && values.length > 0 && values.every(isPrimitive)
    if ((values !== undefined && !isEnum) || !isPrimitive(value)) return this.#unsayable()
    return { ...(isEnum && { enum: values }), ...(value !== undefined && { const: value }) }
  }

  #union (variants: readonly Json[]): Json {
    if (variants.length === 0) return this.#unsayable()
    this.unions++
    return { anyOf: variants }
  }

  #typed (type: unknown, schema: Json, depth: number): Json {
    switch (type) {
      case 'object':
        return this.#object(schema, depth)
      case 'array':
        return { type, items: this.#schema(schema.items, depth + 1),
          ...(LEAST.has(schema.minItems) && { minItems: schema.minItems }) }
      case 'string':
        return { type, ...(FORMATS.has(schema.format) && { format: schema.format }) }
      case 'integer':
      case 'number':
      case 'boolean':
      case 'null': return { type }
      default: return this.#unsayable()
    }
  }

  /** A grammar names all keys: a map whose names the model chooses has none. */
  #object ({ properties = NONE, required = [], additionalProperties: others }: Json, depth: number): Json {
    if (!isRecord(properties) || !Array.isArray(required) || (others !== false && others !== undefined)) {
      return this.#unsayable()
    }
    const all = Object.keys(properties)
    if (all.length > this.left || (all.length === 0 && others !== false)) return this.#unsayable()
    const needed = new Set<unknown>(required)
    for (const name of needed) {
      if (typeof name !== 'string' || !Object.hasOwn(properties, name)) return this.#unsayable()
    }
    this.optional += all.length - needed.size
    return {
      type: 'object',
      properties: Object.fromEntries(all.map((name) => [name, this.#schema(properties[name], depth + 1)])),
      ...(needed.size > 0 && { required: [...needed] }),
      additionalProperties: false
    }
  }
}

/** Beside a `$ref` or `anyOf` these would add to it, and closed objects can't be added to. */
function hasShape ({ properties, required, items }: Json): boolean {
  return properties !== undefined || required !== undefined || items !== undefined
}

/** Libraries write the safe integers as limits of each whole number: those are not told. */
function limit (word: string, value: unknown): string[] {
  if (!isPrimitive(value) || (typeof value === 'number' && Math.abs(value) >= Number.MAX_SAFE_INTEGER)) return []
  return [`${word}: ${JSON.stringify(value)}`]
}

function isPrimitive (value: unknown): boolean {
  return typeof value !== 'object' || value === null
}
