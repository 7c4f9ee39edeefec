// Turns what ajv reports into one useful sentence per mistake. Never prints a value that may be a secret.
import type { ErrorObject } from 'ajv/dist/2020.js'
import type { JsonSchema } from '../plugin-descriptor.ts'
import { findTree, formatPointer, isMap, parsePointer, type Path, type Tree } from '../yaml/position.ts'
import { suggest } from './suggest.ts'

export interface Sentence {
  readonly path: Path
  /** the key is wrong, not its value */
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

/** Noise: it only says that a branch was taken, or that one of several errors beside it exists. */
const NOISE = new Set(['if', 'propertyNames'])

function typeOf (value: unknown): string {
  if (value === null || value === undefined) return 'nothing'
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'object') return 'a map'
  if (typeof value === 'string') return value === '' ? 'an empty text' : 'a text'
  return typeof value === 'boolean' ? String(value) : 'a number'
}

/** Shaped like a credential, wherever it stands: somebody has put a key into the wrong place. */
export function looksSecret (text: string): boolean {
  return /^(?:sk|pk|rk|ak|key|xai|gsk|hf|ghp|bearer|basic)[-_ ](?!policy)/i.test(text) || /^AIza/.test(text) ||
    /[A-Za-z0-9_-]{28}/.test(text)
}

/** A word of the file, for a sentence. */
export function quote (text: string): string {
  if (looksSecret(text)) return '"***"'
  // credentials stand before the @ of a URL, or in its query
  const shown = text.replace(/\/\/[^/\s]*@/, '//***@').replace(/(:\/\/[^?]*\?).*/s, '$1***')
  return JSON.stringify(shown.length > 80 ? shown.slice(0, 79) + '…' : shown)
}

/** The value as a sentence may show it. */
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

/**
 * anyOf and oneOf report every branch. The branch that was meant is the one whose errors lie deepest; when that is none
 * in particular, the choice itself is the one sentence.
 */
function collapse (errors: readonly ErrorObject[]): ErrorObject[] {
  let left = [...errors]
  for (const choice of errors) {
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

function toSentence (error: ErrorObject, root: Tree): Sentence {
  const { keyword } = error
  const params = error.params as Record<string, unknown>
  const schema: JsonSchema = isMap(error.parentSchema) ? error.parentSchema : {}
  const path = parsePointer(error.instancePath)
  const { tree, exact } = findTree(root, path)
  const isSecret = schema.secret === true
  const expected = typeof schema.expected === 'string' ? schema.expected : undefined
  const found = show(error.data, exact ? tree : undefined, isSecret)
  const hint = typeof schema.hint === 'string'
    ? schema.hint
    : error.data === null
    ? 'give it a value, or remove the key'
    : undefined
  const sentence = (message: string, more = hint): Sentence => ({
    path,
    atKey: false,
    message,
    ...(more !== undefined && { hint: more })
  })

  switch (keyword) {
    case 'required': {
      const key = String(params.missingProperty)
      const about = isMap(schema.properties) && isMap(schema.properties[key]) ? schema.properties[key] : {}
      const what = typeof about.description === 'string' ? `: ${about.description.replace(/\.$/, '')}` : ''
      return sentence(`"${key}" is missing${what}`, typeof about.hint === 'string' ? about.hint : undefined)
    }
    case 'additionalProperties':
    case 'unevaluatedProperties': {
      const key = String(params.additionalProperty ?? params.unevaluatedProperty)
      const known = isMap(schema.properties) ? Object.keys(schema.properties) : []
      // "0,30" in a { }
      const isDecimal = /^\d+$/.test(key) && isMap(error.data) && error.data[key] === null
      const more = isDecimal
        ? 'a decimal is written with a point, such as 0.30'
        : known.length === 0
        ? 'nothing can be set here'
        : suggest(key, known.filter((name) => !(isMap(error.data) && name in error.data && tree.children?.has(name))))
      return { path: [...path, key], atKey: true, message: `unknown key ${quote(key)}`,
        ...(more !== undefined && { hint: more }) }
    }
    case 'type': {
      const types = [params.type].flat().map(String)
      const wanted = expected ?? types.map((type) => typeNames[type] ?? type).join(' or ')
      // where a map belongs, a text may be the secret that belongs into it
      const isScalar = types.some((type) => type !== 'object' && type !== 'array')
      return sentence(`must be ${wanted}, found ${isScalar ? found : typeOf(error.data)}`,
        hint ?? typeHint(types, error.data))
    }
    case 'enum':
    case 'const': {
      const values = keyword === 'enum' ? params.allowedValues as readonly unknown[] : [params.allowedValue]
      const near = typeof error.data === 'string' ? suggest(error.data, values.map(String), 0) : undefined
      return sentence(`must be ${expected ?? list(values)}, found ${found}`,
        near?.startsWith('did') === true ? near : hint)
    }
    case 'discriminator': {
      if (params.error !== 'mapping') return sentence('"use" must be the name or path of a plugin')
      const known = Array.isArray(schema.oneOf) ? schema.oneOf.flatMap((branch) => useOf(branch)) : []
      const name = String(params.tagValue)
      return { path: [...path, 'use'], atKey: false, message: `there is no plugin ${quote(name)}`,
        ...hintOf(suggest(name, known)) }
    }
    case 'anyOf':
    case 'oneOf': {
      const branches = (Array.isArray(schema[keyword]) ? schema[keyword] : []).map(describe)
      return sentence(expected !== undefined || branches.every((branch) => branch !== '')
        ? `must be ${expected ?? [...new Set(branches)].join(' or ')}, found ${found}`
        : `fits none of the forms that are allowed here, found ${found}`)
    }
    case 'duration':
    case 'size':
    case 'word':
    case 'usd': return sentence(
      `${error.message ?? 'is wrong'}, found ${found}`,
      typeof params.hint === 'string' && tree.origin === undefined ? params.hint : hint
    )
    case 'pattern': return error.propertyName === undefined
      ? sentence(`must be ${expected ?? `a text that matches ${String(params.pattern)}`}, found ${found}`)
      : {
        path: [...path, error.propertyName],
        atKey: true,
        message: `the key ${quote(error.propertyName)} must be ` +
          `${expected ?? `a text that matches ${String(params.pattern)}`}`
      }
    case 'minimum': return sentence(`must be at least ${String(params.limit)}, found ${found}`)
    case 'maximum': return sentence(`must be at most ${String(params.limit)}, found ${found}`)
    case 'exclusiveMinimum': return sentence(`must be more than ${String(params.limit)}, found ${found}`)
    case 'exclusiveMaximum': return sentence(`must be less than ${String(params.limit)}, found ${found}`)
    case 'multipleOf': return sentence(`must be a multiple of ${String(params.multipleOf)}, found ${found}`)
    case 'minLength': return sentence(params.limit === 1
      ? 'must not be empty'
      : `must have at least ${String(params.limit)} characters`)
    case 'maxLength': return sentence(`must have at most ${String(params.limit)} characters`)
    case 'minItems':
    case 'minProperties':
      return sentence(params.limit === 1 ? 'must not be empty' : `must have at least ${String(params.limit)} entries`)
    case 'maxItems':
    case 'maxProperties': return sentence(`must have at most ${String(params.limit)} entries`)
    case 'uniqueItems': {
      // ajv names the two in either order
      const second = Math.max(Number(params.i), Number(params.j))
      return { path: [...path, second], atKey: false,
        message: `is in the list twice: ${show(isMapOrList(error.data)[second], undefined, isSecret)}` }
    }
    case 'not': return sentence('is not allowed here')
    default: return sentence(error.message ?? 'is wrong')
  }
}

function isMapOrList (value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

function hintOf (hint: string | undefined): { readonly hint?: string } {
  return hint === undefined ? {} : { hint }
}

function useOf (branch: unknown): string[] {
  const use = isMap(branch) && isMap(branch.properties) && isMap(branch.properties.use)
    ? branch.properties.use.const
    : undefined
  // a path is not a word that somebody has mistyped
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

/** A JSON pointer for a problem. A key that somebody does not know may be a secret in the wrong place. */
export function pointerOf ({ path, atKey }: Sentence): string {
  const last = String(path.at(-1))
  return formatPointer(atKey && looksSecret(last) ? [...path.slice(0, -1), '***'] : path)
}
