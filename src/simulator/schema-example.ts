// A value that fits a JSON Schema, made from the words of a prompt: the input of a tool call, a structured answer.
import { isObject } from './dialect.ts'

/**
 * Follows type, enum, const, default, properties, items, anyOf; of the rest it knows nothing. The same words give the
 * same value.
 */
export function exampleOf (schema: unknown, words: string, name = '', depth = 0): unknown {
  if (!isObject(schema) || depth > 8) return {}
  if ('const' in schema) return schema['const']
  if ('default' in schema) return schema['default']
  if (Array.isArray(schema['enum'])) return schema['enum'][0]
  const choices = schema['anyOf'] ?? schema['oneOf']
  if (Array.isArray(choices)) return exampleOf(choices[0], words, name, depth + 1)

  const type: unknown = Array.isArray(schema['type']) ? schema['type'][0] : schema['type']
  if (type === 'string') return stringFor(name, words)
  if (type === 'integer' || type === 'number') return typeof schema['minimum'] === 'number' ? schema['minimum'] : 1
  if (type === 'boolean') return true
  if (type === 'null') return null
  if (type === 'array') return 'items' in schema ? [exampleOf(schema['items'], words, name, depth + 1)] : []
  const properties = isObject(schema['properties']) ? schema['properties'] : {}
  return Object.fromEntries(
    Object.entries(properties).map(([key, value]) => [key, exampleOf(value, words, key, depth + 1)])
  )
}

/** "What is the weather in Oslo?" has a city. */
function stringFor (name: string, words: string): string {
  const place = /\b(?:in|at|for|of)\s+(\p{Lu}[\p{L}'-]*)/u.exec(words)?.[1]
  if (/city|location|place|town/i.test(name)) return place ?? 'Oslo'
  return words.slice(0, 100) || 'something'
}
