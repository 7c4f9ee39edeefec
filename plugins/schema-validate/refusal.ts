// Turns ajv's first error into a refusal with the path, what was expected there, and what was found. Quotes single
// words, never texts.
import type { ErrorObject } from 'ajv'
import { nearest } from '../../src/config/check/suggest.ts'
import { GatewayError } from '../../src/errors.ts'

/** The annotations of a schema; `expected` and `hint` are for these messages. */
interface Annotated {
  readonly expected?: string
  readonly hint?: string
  readonly type?: string | readonly string[]
  readonly properties?: Readonly<Record<string, { readonly description?: string }>>
  readonly [keyword: string]: unknown
}

const typeNames: Readonly<Record<string, string>> = {
  object: 'an object',
  array: 'an array',
  string: 'a string',
  number: 'a number',
  integer: 'a whole number',
  boolean: 'true or false'
}

/** @param error with its schema and value (ajv's `verbose`) */
export function refusalOf ({ keyword, instancePath, params, message, parentSchema, data }: ErrorObject): GatewayError {
  const { expected, hint, type, properties }: Annotated = parentSchema ?? {}
  const path = pathOf(instancePath)
  switch (keyword) {
    case 'required': {
      const name = String(params.missingProperty)
      const field = path === '' ? name : `${path}.${name}`
      return invalid(field, `is missing${inside(properties?.[name]?.description)}`, hint)
    }
    case 'enum':
    case 'const': {
      const values = wordsOf(keyword === 'enum' ? params.allowedValues : [params.allowedValue])
      const near = typeof data === 'string' && isWord(data) ? nearest(data, values) : undefined
      return invalid(path, `must be ${values.length === 1 ? '' : 'one of '}${values.join(', ')}, not ${show(data)}`,
        near === undefined ? hint : `Did you mean "${near}"?`)
    }
    case 'type': return invalid(
      path,
      `must be ${expected ?? wanted(type)}, not ` +
      `${typeof data === 'number' && wanted(type).includes('number') ? String(data) : kindOf(data)}`,
      hint
    )
    case 'minimum': return invalid(
      path, `must be ${expected ?? `at least ${String(params.limit)}`}, not ${show(data)}`, hint
    )
    case 'maximum': return invalid(
      path, `must be ${expected ?? `at most ${String(params.limit)}`}, not ${show(data)}`, hint
    )
    case 'pattern': return invalid(path, `must be ${expected ?? 'another text'}`, hint)
    case 'maxLength': return invalid(path, `must have at most ${String(params.limit)} characters`, hint)
    case 'minItems': return invalid(path, 'must not be empty', hint)
    case 'maxItems': return invalid(path, `must have at most ${String(params.limit)} items`, hint)
    case 'not': return invalid(path, 'is not supported', hint)
    default: return invalid(path, message ?? 'is wrong', hint)
  }
}

export function invalid (param: string, problem: string, hint?: string): GatewayError {
  return new GatewayError('invalid_request', { message: `${param} ${problem}.${hint === undefined ? '' : ` ${hint}`}`,
    param })
}

/**
 * /messages/2/content becomes messages[2].content. Its names are those of the schemas here, and none needs escaping.
 */
function pathOf (pointer: string): string {
  return pointer.slice(1).replace(/\/(\d+)(?=\/|$)/g, '[$1]').replaceAll('/', '.')
}

function inside (description: string | undefined): string {
  return description === undefined ? '' : `: ${description[0]!.toLowerCase()}${description.slice(1).replace(/\.$/, '')}`
}

function wordsOf (values: unknown): readonly string[] {
  return Array.isArray(values) ? values.filter((value) => value !== null).map(String) : []
}

function wanted (type: Annotated['type']): string {
  return [type ?? []].flat().filter((name) => name !== 'null').map((name) => typeNames[name] ?? name).join(' or ')
}

/**
 * Whether a value may be quoted: a prompt in the wrong place must not come back in an error, and from there into a log.
 */
function isWord (text: string): boolean {
  return text.length <= 40 && /^[\w./:-]+$/.test(text)
}

function show (value: unknown): string {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  return typeof value === 'string' && isWord(value) ? `"${value}"` : kindOf(value)
}

function kindOf (value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return typeNames['array']!
  return typeof value === 'boolean' ? String(value) : typeNames[typeof value] ?? typeof value
}
