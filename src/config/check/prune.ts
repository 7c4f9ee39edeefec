// The part of a schema that a value can touch. ajv writes and compiles code for the whole of a schema, most of what a
// check costs, and a configuration names a few of its several hundred properties.
import type { JsonSchema } from '../plugin-descriptor.ts'
import { isMap } from '../yaml/position.ts'

/** What sentences about a property quote, also when it is missing. */
const ANNOTATIONS = ['description', 'hint', 'expected']

/** A reference may lead to any part of the schema that it stands in. */
const REFERENCES = ['$id', '$ref', '$defs', '$dynamicRef']

/** @returns a schema that judges these values as the whole one does, in the same words */
export function prune (schema: JsonSchema, values: readonly unknown[]): JsonSchema {
  if (values.length === 0) return annotationsOf(schema)
  if (REFERENCES.some((word) => word in schema)) return schema
  const pruned: Record<string, unknown> = { ...schema }
  const maps = values.filter(isMap)
  const { properties = {}, additionalProperties, items, oneOf, discriminator } = schema
  if (isMap(properties) && 'properties' in schema) pruned.properties = pruneEach(properties, maps)
  if (isMap(additionalProperties)) {
    const isOther = ([key]: [string, unknown]): boolean => !Object.hasOwn(properties as object, key)
    const others = maps.flatMap((map) => Object.entries(map).filter(isOther))
    pruned.additionalProperties = prune(additionalProperties, others.map(([, value]) => value))
  }
  const listed = values.flatMap((value) => Array.isArray(value) ? value as unknown[] : [])
  if (isMap(items)) pruned.items = prune(items, listed)
  if (Array.isArray(oneOf) && isMap(discriminator)) {
    const key = String(discriminator.propertyName)
    pruned.oneOf = oneOf.map((branch: JsonSchema) => {
      const { const: name } = (branch.properties as Readonly<Record<string, JsonSchema>>)[key]!
      return pruneBranch(branch, key, maps.filter((map) => map[key] === name))
    })
  }
  return pruned
}

type Values = Readonly<Record<string, unknown>>

function pruneEach (properties: Values, maps: readonly Values[]): Record<string, unknown> {
  return Object.fromEntries(Object.entries(properties).map(([key, schema]) => {
    if (!isMap(schema)) return [key, schema]
    // a default is put in before it is judged
    const values = maps.flatMap((map) =>
      Object.hasOwn(map, key) ? [map[key]] : 'default' in schema ? [schema.default] : [])
    return [key, prune(schema, values)]
  }))
}

/** The property that tells the branches apart stays as it is in each. */
function pruneBranch (branch: JsonSchema, key: string, maps: readonly Values[]): JsonSchema {
  const { [key]: chosen, ...others } = branch.properties as Values
  return { ...branch, properties: { [key]: chosen, ...pruneEach(others, maps) } }
}

function annotationsOf (schema: JsonSchema): JsonSchema {
  return Object.fromEntries(Object.entries(schema).filter(([word]) => ANNOTATIONS.includes(word)))
}
