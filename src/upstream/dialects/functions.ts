// The client's tools as functions of OpenAI's styles, and the choice among them.
import { clientTools } from '../../tokens/bound.ts'
import { isGiven, isRecord, type Json } from '../../base/json.ts'
import { textIn, unsayable } from './json.ts'

export interface FunctionTool {
  readonly name: string
  readonly description?: string
  readonly parameters: Json
  readonly strict?: true
}

/** @throws {GatewayError} invalid_request: a tool that only the vendor of messages style can describe to its model */
export function functionsOf (tools: unknown): readonly FunctionTool[] {
  const all: readonly unknown[] = Array.isArray(tools) ? tools : []
  return all.flatMap((tool, i) => {
    if (!isRecord(tool)) return []
    const { type, name, description, input_schema: schema, strict } = tool
    if (isGiven(type) && type !== 'custom') {
      if (clientTools.test(textIn(type))) {
        throw unsayable(`tools[${i}].type`, `is "${textIn(type).slice(0, 60)}", a tool that its vendor describes`)
      }
      return [] // runs at its vendor, and can't be called elsewhere
    }
    return [{
      name: textIn(name),
      ...(typeof description === 'string' && { description }),
      parameters: isRecord(schema) ? schema : { type: 'object', properties: {} },
      ...(strict === true && isClosed(schema) && { strict })
    }]
  })
}

/**
 * @param named how the style names a function that must be called
 * @throws {GatewayError} invalid_request: the tool that must be called can't be sent
 */
export function functionChoice (
  choice: unknown,
  functions: readonly FunctionTool[],
  named: (name: unknown) => unknown
): unknown {
  if (!isRecord(choice)) return undefined
  switch (choice.type) {
    case 'auto':
    case 'none': return choice.type
    case 'any': return 'required'
    case 'tool':
      if (!functions.some(({ name }) => name === choice.name)) {
        throw unsayable('tool_choice.name', 'names a tool that runs at its vendor')
      }
      return named(choice.name)
  }
  return undefined
}

const DEEPEST = 64

/** Whether `strict` is possible: vendors of OpenAI's styles refuse it for open objects, and for optional
 * properties. */
export function isClosed (schema: unknown, depth = 0): boolean {
  if (Array.isArray(schema)) return schema.every((one) => isClosed(one, depth + 1))
  if (!isRecord(schema)) return true
  if (depth > DEEPEST) return false
  if (schema.type === 'object' || schema.properties !== undefined) {
    const { properties, required, additionalProperties } = schema
    if (additionalProperties !== false || !isRecord(properties) || !Array.isArray(required)) return false
    const needed = new Set<unknown>(required)
    if (Object.keys(properties).some((name) => !needed.has(name))) return false
    return Object.values(properties).every((one) => isClosed(one, depth + 1)) && isClosedWithin(schema, depth)
  }
  return isClosedWithin(schema, depth)
}

function isClosedWithin (schema: Json, depth: number): boolean {
  if (!isClosed(schema.items, depth + 1) || !isClosed(schema.anyOf, depth + 1)) return false
  return [schema.$defs, schema.definitions].every((named) =>
    !isRecord(named) || Object.values(named).every((one) => isClosed(one, depth + 1))
  )
}
