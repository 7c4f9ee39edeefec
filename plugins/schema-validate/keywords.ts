// The keywords of the schemas of requests that are not JSON Schema's, and its `if`, which makes nothing to throw away.
import { _, type Ajv, type CodeKeywordDefinition, type KeywordCxt } from 'ajv'
import { isRecord } from '../../src/base/json.ts'

/** A keyword beside `properties`: the names that are not required. */
export const OPTIONAL = 'optional'

export function addKeywords (ajv: Ajv): void {
  // For messages: what was expected, and what to do about it.
  ajv.addKeyword({ keyword: 'expected', valid: true })
  ajv.addKeyword({ keyword: 'hint', valid: true })
  // Before `$ref`, so that no keyword sees a null, or misses the field.
  ajv.addKeyword({ keyword: OPTIONAL, schemaType: 'array', before: '$ref', code: removeNulls })
  const usual = ajv.getKeyword('if') as CodeKeywordDefinition
  ajv.removeKeyword('if')
  ajv.addKeyword({ ...usual, before: 'then', code: (cxt) => { if (!compareField(cxt)) usual.code(cxt) } })
}

/**
 * Removes null fields, which many clients send for what they leave out, and many vendors refuse. In place: nothing is
 * copied, and no later code meets them. A line for each name, since a read by a variable name costs more.
 */
function removeNulls ({ gen, schema, data }: KeywordCxt): void {
  gen.if(_`typeof ${data} == "object" && ${data} !== null`, () => {
    for (const name of schema as readonly string[]) {
      gen.if(_`${data}[${name}] === null`, () => gen.code(_`delete ${data}[${name}]`))
    }
  })
}

/**
 * The code of an `if` that asks what kind of message or part something is: a comparison of a field with texts. The
 * usual code makes errors for each kind that it is not, and throws them away.
 * @returns false: the schema asks for something else
 */
function compareField (cxt: KeywordCxt): boolean {
  const { gen, data, schema, parentSchema } = cxt
  const kinds = kindsIn(schema)
  if (kinds === undefined || parentSchema.then === undefined || parentSchema.else !== undefined) return false
  const isKind = kinds.texts.map((text) => _`${data}[${kinds.field}] === ${text}`)
    .reduce((one, other) => _`${one} || ${other}`)
  const valid = gen.let('valid', true)
  // What is no object has the field, to JSON Schema.
  gen.if(_`!(${data} && typeof ${data} == "object" && !Array.isArray(${data})) || ${isKind}`, () => {
    const passes = gen.name('passes')                         // the code of the schema declares it
    const then = cxt.subschema({ keyword: 'then' }, passes)
    gen.assign(valid, passes)
    cxt.mergeValidEvaluated(then, valid)
  })
  cxt.ok(valid)
  return true
}

/** The texts that a schema wants a required field to be, and nothing else. Undefined: it is another kind of schema. */
function kindsIn (schema: unknown): { readonly field: string, readonly texts: readonly string[] } | undefined {
  const { required, properties, ...others } = schema as Readonly<Record<string, unknown>>
  if (!Array.isArray(required) || !isRecord(properties)) return undefined
  const [[field, { const: one, enum: some = [one], ...more } = {}] = [], ...fields] =
    Object.entries(properties as Readonly<Record<string, { readonly const?: unknown, readonly enum?: unknown[] }>>)
  const isOnly = [others, more, fields].every((rest) => Object.keys(rest).length === 0) &&
    required.length === 1 && required[0] === field
  return isOnly && some.every((text) => typeof text === 'string') ? { field: field!, texts: some } : undefined
}
