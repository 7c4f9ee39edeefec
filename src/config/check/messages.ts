// Turns ajv's errors into one message per mistake. Never prints a value that may be a secret.
import type { ErrorObject } from 'ajv/dist/2020.js'
import type { JsonSchema } from '../plugin-descriptor.ts'
import { findTree, formatPointer, isMap, parsePointer, type Path, type Tree } from '../yaml/position.ts'
import { suggest } from './suggest.ts'

export interface Sentence {
  readonly path: Path
  /** true: the key is wrong, not its value */
  readonly atKey: boolean
  readonly message: string
  readonly hint?: string
}

const typeNames: Readonly<Record<string, string>> = {
  object: 'a map',
  array: 'a list',
  string: 'a text',
  number: 'a number',
  integer: 'a whole number',
  boolean: 'true or false',
  null: 'nothing'
}

/** Errors without information: they only say that a branch was taken, or that another error beside them exists. */
const NOISE = new Set(['if', 'propertyNames'])

function typeOf (value: unknown): string {
  if (value === null || value === undefined) return 'nothing'
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'object') return 'a map'
  if (typeof value === 'string') return value === '' ? 'an empty text' : 'a text'
  return typeof value === 'boolean' ? String(value) : 'a number'
}

/** Whether a text is shaped like a credential: a key may have been put into the wrong place. */
export function looksSecret (text: string): boolean {
  return /^(?:sk|pk|rk|ak|key|xai|gsk|hf|ghp|bearer|basic)[-_ ](?!policy)/i.test(text) || /^AIza/.test(text) ||
    /[A-Za-z0-9_-]{28}/.test(text)
}

/** A word of the file, quoted for a message. */
export function quote (text: string): string {
  if (looksSecret(text)) return '"***"'
  // credentials stand before the @ of a URL, or in its query
  const masked = text.replace(/\/\/[^/\s]*@/, '//***@')
  const scheme = masked.indexOf('://')
  const query = scheme < 0 ? -1 : masked.indexOf('?', scheme)
  const shown = query < 0 ? masked : `${masked.slice(0, query)}?***`
  return JSON.stringify(shown.length > 80 ? shown.slice(0, 79) + '…' : shown)
}

/** The value as a message may show it. */
export function show (value: unknown, tree: Tree | undefined, isSecret: boolean): string {
  if (tree?.origin !== undefined) return `the value of ${tree.origin}`
  if (isSecret || typeof value === 'object' || value === undefined) return typeOf(value)
  if (typeof value === 'string') return value === '' ? typeOf(value) : quote(value)
  return typeof value === 'number' && tree?.text !== undefined && tree.text.length <= 80 ? tree.text : String(value)
}

function list (values: readonly unknown[]): string {
  const words = values.map(String)
  return words.length === 1 ? words[0]! : `one of ${words.join(', ')}`
}

export function toSentences (errors: readonly ErrorObject[], tree: Tree): Sentence[] {
  return collapse(errors.filter(({ keyword }) => !NOISE.has(keyword))).map((error) => toSentence(error, tree))
}

/** Errors of the schema that are reported. */
const MOST_ERRORS = 2000

/**
 * Reduces the errors of all branches of an anyOf or oneOf. The branch that was meant is the one whose errors lie
 * deepest; where there is no such branch, the choice itself is the one error.
 */
function collapse (errors: readonly ErrorObject[]): ErrorObject[] {
  // Each choice looks at all errors. Nobody reads thousands of mistakes at a time.
  const first = errors.slice(0, MOST_ERRORS)
  let left = first
  for (const choice of first) {
    if ((choice.keyword !== 'anyOf' && choice.keyword !== 'oneOf') || !left.includes(choice)) continue
    const branches = new Map<string, ErrorObject[]>()
    for (const error of left) {
      if (
        error === choice || !error.schemaPath.startsWith(choice.schemaPath + '/') ||
        !error.instancePath.startsWith(choice.instancePath)
      ) continue
      const branch = error.schemaPath.slice(choice.schemaPath.length + 1).split('/', 1)[0]!
      branches.set(branch, [...branches.get(branch) ?? [], error])
    }
    const meant = [...branches.values()].filter((branch) => !branch.some((error) =>
      error.instancePath === choice.instancePath && ['type', 'const', 'enum', 'if'].includes(error.keyword)))
    const drop = new Set([...branches.values()].flat())
    if (meant.length === 1) {
      for (const error of meant[0]!) drop.delete(error)
      drop.add(choice)
    }
    left = left.filter((error) => !drop.has(error))
  }
  return left
}

/** An error of ajv with what its message needs. */
interface Violation {
  readonly error: ErrorObject
  readonly params: Readonly<Record<string, unknown>>
  /** the schema with the broken keyword */
  readonly schema: JsonSchema
  readonly path: Path
  /** where the value stands, or would stand */
  readonly tree: Tree
  readonly isSecret: boolean
  /** from the schema */
  readonly expected: string | undefined
  /** the value as a message may show it */
  readonly found: string
  readonly hint: string | undefined
}

/** Messages by keyword. */
const sentences: Readonly<Record<string, (violation: Violation) => Sentence>> = {
  required: missingKey,
  additionalProperties: unknownKey,
  unevaluatedProperties: unknownKey,
  type: wrongType,
  enum: (violation) => noneOf(violation, violation.params.allowedValues as readonly unknown[]),
  const: (violation) => noneOf(violation, [violation.params.allowedValue]),
  discriminator: unknownPlugin,
  anyOf: (violation) => noneOfForms(violation, violation.schema.anyOf),
  oneOf: (violation) => noneOfForms(violation, violation.schema.oneOf),
  duration: notConverted,
  size: notConverted,
  word: notConverted,
  usd: notConverted,
  pattern: noMatch,
  minimum: beyond('at least'),
  maximum: beyond('at most'),
  exclusiveMinimum: beyond('more than'),
  exclusiveMaximum: beyond('less than'),
  multipleOf: (violation) =>
    sentence(violation, `must be a multiple of ${String(violation.params.multipleOf)}, found ${violation.found}`),
  minLength: tooFew('characters'),
  maxLength: tooMany('characters'),
  minItems: tooFew('entries'),
  maxItems: tooMany('entries'),
  minProperties: tooFew('entries'),
  maxProperties: tooMany('entries'),
  uniqueItems: twice,
  not: (violation) => sentence(violation, 'is not allowed here')
}

function toSentence (error: ErrorObject, root: Tree): Sentence {
  const say = sentences[error.keyword]
  const violation = toViolation(error, root)
  return say === undefined ? sentence(violation, error.message ?? 'is wrong') : say(violation)
}

function toViolation (error: ErrorObject, root: Tree): Violation {
  const schema: JsonSchema = isMap(error.parentSchema) ? error.parentSchema : {}
  const path = parsePointer(error.instancePath)
  const { tree, exact } = findTree(root, path)
  const isSecret = schema.secret === true
  return {
    error,
    params: error.params as Record<string, unknown>,
    schema,
    path,
    tree,
    isSecret,
    expected: typeof schema.expected === 'string' ? schema.expected : undefined,
    found: show(error.data, exact ? tree : undefined, isSecret),
    hint: typeof schema.hint === 'string'
      ? schema.hint
      : error.data === null
      ? 'give it a value, or remove the key'
      : undefined
  }
}

/** A message about the value. */
function sentence ({ path, hint: standard }: Violation, message: string, hint = standard): Sentence {
  return { path, atKey: false, message, ...hintOf(hint) }
}

function missingKey (violation: Violation): Sentence {
  const { params, schema } = violation
  const key = String(params.missingProperty)
  const about = isMap(schema.properties) && isMap(schema.properties[key]) ? schema.properties[key] : {}
  const what = typeof about.description === 'string' ? `: ${about.description.replace(/\.$/, '')}` : ''
  return sentence(violation, `"${key}" is missing${what}`, typeof about.hint === 'string' ? about.hint : undefined)
}

function unknownKey ({ error: { data }, params, schema, path, tree }: Violation): Sentence {
  const key = String(params.additionalProperty ?? params.unevaluatedProperty)
  const known = isMap(schema.properties) ? Object.keys(schema.properties) : []
  // "0,30" in a { }
  const isDecimal = /^\d+$/.test(key) && isMap(data) && data[key] === null
  const hint = isDecimal
    ? 'a decimal is written with a point, such as 0.30'
    : known.length === 0
    ? 'nothing can be set here'
    : suggest(key, known.filter((name) => !(isMap(data) && name in data && tree.children?.has(name))))
  return { path: [...path, key], atKey: true, message: `unknown key ${quote(key)}`, ...hintOf(hint) }
}

function wrongType (violation: Violation): Sentence {
  const { error: { data }, params, expected, found, hint } = violation
  const types = [params.type].flat().map(String)
  const wanted = expected ?? types.map((type) => typeNames[type] ?? type).join(' or ')
  // in the place of a map, a text may be the secret that belongs into it
  const isScalar = types.some((type) => type !== 'object' && type !== 'array')
  return sentence(violation, `must be ${wanted}, found ${isScalar ? found : typeOf(data)}`,
    hint ?? typeHint(types, data))
}

function noneOf (violation: Violation, values: readonly unknown[]): Sentence {
  const { error: { data }, expected, found, hint } = violation
  const near = typeof data === 'string' ? suggest(data, values.map(String), 0) : undefined
  return sentence(violation, `must be ${expected ?? list(values)}, found ${found}`,
    near?.startsWith('did') === true ? near : hint)
}

function unknownPlugin (violation: Violation): Sentence {
  const { params, schema, path } = violation
  if (params.error !== 'mapping') return sentence(violation, '"use" must be the name or path of a plugin')
  const known = Array.isArray(schema.oneOf) ? schema.oneOf.flatMap((branch) => useOf(branch)) : []
  const name = String(params.tagValue)
  return { path: [...path, 'use'], atKey: false, message: `there is no plugin ${quote(name)}`,
    ...hintOf(suggest(name, known)) }
}

function noneOfForms (violation: Violation, forms: unknown): Sentence {
  const { expected, found } = violation
  const known = (Array.isArray(forms) ? forms : []).map(describe)
  return sentence(violation, expected !== undefined || known.every((form) => form !== '')
    ? `must be ${expected ?? [...new Set(known)].join(' or ')}, found ${found}`
    : `fits none of the forms that are allowed here, found ${found}`)
}

/** The message for a value that keywords.ts could not convert. */
function notConverted (violation: Violation): Sentence {
  const { error, params, tree, found, hint } = violation
  return sentence(violation, `${error.message ?? 'is wrong'}, found ${found}`,
    typeof params.hint === 'string' && tree.origin === undefined ? params.hint : hint)
}

function noMatch (violation: Violation): Sentence {
  const { error: { propertyName }, params, path, expected, found } = violation
  const wanted = expected ?? `a text that matches ${String(params.pattern)}`
  return propertyName === undefined
    ? sentence(violation, `must be ${wanted}, found ${found}`)
    : { path: [...path, propertyName], atKey: true, message: `the key ${quote(propertyName)} must be ${wanted}` }
}

function beyond (bound: string): (violation: Violation) => Sentence {
  return (violation) =>
    sentence(violation, `must be ${bound} ${String(violation.params.limit)}, found ${violation.found}`)
}

function tooFew (units: string): (violation: Violation) => Sentence {
  return (violation) =>
    sentence(violation, violation.params.limit === 1
      ? 'must not be empty'
      : `must have at least ${String(violation.params.limit)} ${units}`)
}

function tooMany (units: string): (violation: Violation) => Sentence {
  return (violation) => sentence(violation, `must have at most ${String(violation.params.limit)} ${units}`)
}

function twice ({ error: { data }, params, path, isSecret }: Violation): Sentence {
  // ajv names the two in either order
  const second = Math.max(Number(params.i), Number(params.j))
  const value: unknown = Array.isArray(data) ? data[second] : undefined
  return { path: [...path, second], atKey: false, message: `is in the list twice: ${show(value, undefined, isSecret)}` }
}

function hintOf (hint: string | undefined): { readonly hint?: string } {
  return hint === undefined ? {} : { hint }
}

function useOf (branch: unknown): string[] {
  const use = isMap(branch) && isMap(branch.properties) && isMap(branch.properties.use)
    ? branch.properties.use.const
    : undefined
  // a path is not a misspelt name
  return typeof use === 'string' && !use.includes('/') && !use.includes('\\') ? [use] : []
}

function describe (branch: unknown): string {
  if (!isMap(branch)) return ''
  if (typeof branch.expected === 'string') return branch.expected
  if ('const' in branch) return JSON.stringify(branch.const)
  if (Array.isArray(branch.enum)) return list(branch.enum)
  if (branch.duration !== undefined) return 'a duration such as 3s'
  if (branch.size !== undefined) return 'a size such as 32MB'
  if (branch.usd !== undefined) return 'an amount of US dollars'
  return typeof branch.type === 'string' ? typeNames[branch.type] ?? branch.type : ''
}

function typeHint (types: readonly string[], value: unknown): string | undefined {
  if (types.includes('string') && ['number', 'boolean'].includes(typeof value)) return 'put it in quotes'
  if (
    typeof value === 'string' && types.some((type) => type === 'number' || type === 'integer') &&
    /^\d+(?:\.\d+)?$/.test(value)
  ) return 'write it without quotes'
  if (
    types.includes('boolean') && typeof value === 'string' && /^(?:yes|no|on|off)$/i.test(value)
  ) return 'write true or false'
  if (
    types.includes('array') && typeof value === 'string'
  ) return 'a list is written as [a, b], or one "- item" per line'
  return undefined
}

/** The JSON pointer of a problem; an unknown key that looks like a secret in the wrong place is hidden. */
export function pointerOf ({ path, atKey }: Sentence): string {
  const last = String(path.at(-1))
  return formatPointer(atKey && looksSecret(last) ? [...path.slice(0, -1), '***'] : path)
}
