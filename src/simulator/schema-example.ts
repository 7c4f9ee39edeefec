// A value that fits a JSON Schema, made from the words of a prompt: the input of a tool call, a structured answer.
import { isObject } from './dialect.ts'
import { matching } from './pattern-example.ts'

type Schema = Readonly<Record<string, unknown>>

/**
 * Follows what vendors support of JSON Schema: types, references within the schema, combinations, and limits of
 * numbers, texts and lists. Of the rest (`not`, `if`, `dependentRequired` …) it knows nothing. The same words give the
 * same value.
 */
export function exampleOf (schema: unknown, words: string): unknown {
  return new Examples(schema, words).of(schema)
}

/** Levels at which only what is required is made: a schema may contain itself. */
const DEEP = 8
/** Levels at which nothing more is made. */
const DEEPEST = 64
/** Items that are made at most, whatever `minItems` says. */
const MOST_ITEMS = 100
/** The same of characters. */
const MOST_CHARACTERS = 10_000

class Examples {
  readonly #root: unknown
  readonly #words: string

  constructor (root: unknown, words: string) {
    this.#root = root
    this.#words = words
  }

  /** @param name of the property that has the value */
  of (written: unknown, name = '', depth = 0): unknown {
    if (!isObject(written) || depth > DEEPEST) return {}
    const schema = this.#whole(written)
    if ('const' in schema) return schema['const']
    if ('default' in schema) return schema['default']
    if (Array.isArray(schema['enum'])) return schema['enum'][0]
    const choices = schema['anyOf'] ?? schema['oneOf']
    if (Array.isArray(choices)) {
      const { anyOf: _, oneOf: __, ...rest } = schema
      return this.of(merged(rest, this.#resolved(choiceAt(choices, depth))), name, depth + 1)
    }
    switch (typeOf(schema, depth)) {
      case 'string': return stringFor(schema, name, this.#words)
      case 'integer': return numberFor(schema, 1)
      case 'number': return numberFor(schema, 0)
      case 'boolean': return true
      case 'null': return null
      case 'array': return this.#list(schema, name, depth)
      default: return this.#object(schema, depth)
    }
  }

  /** The schema with what it refers to and what it combines. */
  #whole (written: Schema): Schema {
    const resolved = this.#resolved(written)
    const { allOf: all, ...rest } = isObject(resolved) ? resolved : {}
    return Array.isArray(all) ? all.map((one) => this.#resolved(one)).reduce<Schema>(merged, rest) : rest
  }

  /** Behind its references, which may lead from one to another. */
  #resolved (written: unknown): unknown {
    let schema = written
    for (let i = 0; i < DEEPEST && isObject(schema) && typeof schema['$ref'] === 'string'; i++) {
      const { $ref: reference, ...rest } = schema
      schema = merged(rest, this.#at(String(reference)))
    }
    return schema
  }

  /** @param reference such as `#/$defs/city` */
  #at (reference: string): unknown {
    let found = this.#root
    for (const part of reference.split('/').slice(1)) {
      const name = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~')
      found = (isObject(found) || Array.isArray(found)) && Object.hasOwn(found, name)
        ? (found as Schema)[name]
        : undefined
    }
    return found
  }

  #list (schema: Schema, name: string, depth: number): unknown[] {
    const { prefixItems: first, items, minItems: least, maxItems: most } = schema
    const own: readonly unknown[] = Array.isArray(first) ? first : []
    const usual = items === undefined || depth >= DEEP ? own.length : Math.max(1, own.length)
    const length = Math.min(Math.max(usual, countOr(least, 0)), countOr(most, MOST_ITEMS), MOST_ITEMS)
    return Array.from({ length }, (_, i) =>
      distinct(this.of(own[i] ?? items, name, depth + 1), schema['uniqueItems'] === true ? i : 0))
  }

  #object (schema: Schema, depth: number): Schema {
    const { properties, required, additionalProperties: others } = schema
    const known = isObject(properties) ? properties : {}
    const needed: readonly unknown[] = Array.isArray(required) ? required : []
    const names = [...depth >= DEEP ? [] : Object.keys(known), ...needed.map(String)]
    return Object.fromEntries([...new Set(names)].filter((name) => known[name] !== false).map((name) =>
      [name, this.of(known[name] ?? (isObject(others) ? others : { type: 'string' }), name, depth + 1)]))
  }
}

/** Both: what the first says wins, but for lists of needs and properties, which add up. */
function merged (one: Schema, other: unknown): Schema {
  if (!isObject(other)) return one
  const both = (name: string): Schema => isObject(one[name]) && isObject(other[name])
    ? { [name]: { ...other[name], ...one[name] } }
    : {}
  return { ...other, ...one, ...both('properties'), ...both('$defs'),
    ...(Array.isArray(one['required']) && Array.isArray(other['required']) &&
      { required: [...one['required'], ...other['required']] }),
    ...(Array.isArray(one['allOf']) && Array.isArray(other['allOf']) && { allOf: [...one['allOf'], ...other['allOf']] }) }
}

/** The first one; where it is deep, null if there is one. */
function choiceAt (choices: readonly unknown[], depth: number): unknown {
  const none = choices.find((one) => isObject(one) && (one['type'] === 'null' || one['const'] === null))
  return depth >= DEEP && none !== undefined ? none : choices[0]
}

function typeOf (schema: Schema, depth: number): unknown {
  const { type } = schema
  if (Array.isArray(type)) return depth >= DEEP && type.includes('null') ? 'null' : type[0]
  if (type !== undefined) return type
  if ('items' in schema || 'prefixItems' in schema || 'minItems' in schema) return 'array'
  if ('minimum' in schema || 'maximum' in schema || 'multipleOf' in schema) return 'number'
  return 'pattern' in schema || 'format' in schema || 'minLength' in schema ? 'string' : 'object'
}

/** The smallest that is allowed, or 1. @param whole the step between two of them; 0: there is none */
function numberFor (schema: Schema, whole: 0 | 1): number {
  const { multipleOf, minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below } = schema
  const step = typeof multipleOf === 'number' && multipleOf > 0 ? multipleOf : whole
  const least = Math.max(numberOr(minimum, -Infinity), numberOr(above, -Infinity))
  const most = Math.min(numberOr(maximum, Infinity), numberOr(below, Infinity))
  const start = least === -Infinity ? Math.min(1, most) : least
  if (step === 0) {
    const isInside = (value: number): boolean => value > numberOr(above, -Infinity) && value < numberOr(below, Infinity)
    if (isInside(start)) return start
    return least === -Infinity ? start - 1 : most === Infinity ? start + 1 : (least + most) / 2
  }
  const first = least === -Infinity ? Math.floor(start / step) : Math.ceil(start / step)
  if (first * step === above) return (first + 1) * step
  return first * step === below ? (first - 1) * step : first * step
}

function numberOr (value: unknown, otherwise: number): number {
  return typeof value === 'number' ? value : otherwise
}

function countOr (value: unknown, otherwise: number): number {
  return typeof value === 'number' && value >= 0 ? Math.floor(value) : otherwise
}

/** A value of its own for each item, where all must differ. */
function distinct (value: unknown, index: number): unknown {
  if (index === 0) return value
  if (typeof value === 'string') return `${value} ${index + 1}`
  return typeof value === 'number' ? value + index : value
}

/** Values in the formats that vendors know. */
const FORMATS: Readonly<Record<string, string>> = {
  'date-time': '2026-01-01T12:00:00Z', date: '2026-01-01', time: '12:00:00Z', duration: 'P1D',
  email: 'someone@example.com', hostname: 'example.com', ipv4: '192.0.2.1', ipv6: '2001:db8::1',
  uri: 'https://example.com/', uuid: '00000000-0000-4000-8000-000000000000'
}

function stringFor (
  { format, pattern, minLength: least, maxLength: most }: Schema, name: string, words: string
): string {
  if (typeof format === 'string' && Object.hasOwn(FORMATS, format)) return FORMATS[format]!
  if (typeof pattern === 'string') return matching(pattern, countOr(least, 0)) ?? wordsFor(name, words)
  const characters = Array.from(wordsFor(name, words))
  const length = Math.min(countOr(least, 0), MOST_CHARACTERS)
  const filled = characters.length >= length ? characters : Array.from(characters.join('').padEnd(2 * length, ' more'))
  return filled.slice(0, Math.max(length, Math.min(filled.length, countOr(most, filled.length)))).join('')
}

/** "What is the weather in Oslo?" has a city. */
function wordsFor (name: string, words: string): string {
  const place = /\b(?:in|at|for|of)\s+(\p{Lu}[\p{L}'-]*)/u.exec(words)?.[1]
  if (/city|location|place|town/i.test(name)) return place ?? 'Oslo'
  return words.slice(0, 100) || 'something'
}
