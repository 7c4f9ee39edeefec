// Reduces a schema to the part that a value can touch. ajv generates and compiles code for a whole schema, which is
// most of the cost of a check, and a configuration names a few of its several hundred properties.
import type { JsonSchema } from '../plugin-descriptor.ts'
import { isMap } from '../yaml/position.ts'

/** Annotations that messages about a property quote, also when it is missing. */
const ANNOTATIONS = ['description', 'hint', 'expected']

/** Keywords of references, which may lead to any part of their schema. */
const REFERENCES = ['$id', '$ref', '$defs', '$dynamicRef']

/** @returns a schema that judges these values as the whole one does, with the same errors */
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
    // a default is filled in before the check
    const values = maps.flatMap((map) =>
      Object.hasOwn(map, key) ? [map[key]] : 'default' in schema ? [schema.default] : [])
    return [key, prune(schema, values)]
  }))
}

/** The property that tells the branches apart stays unchanged in each. */
function pruneBranch (branch: JsonSchema, key: string, maps: readonly Values[]): JsonSchema {
  const { [key]: chosen, ...others } = branch.properties as Values
  return { ...branch, properties: { [key]: chosen, ...pruneEach(others, maps) } }
}

function annotationsOf (schema: JsonSchema): JsonSchema {
  return Object.fromEntries(Object.entries(schema).filter(([word]) => ANNOTATIONS.includes(word)))
}
