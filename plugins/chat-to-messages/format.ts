// response_format, and the tool that replaces it where a model has no structured outputs, or none for that schema.
import { isRecord, type Json } from '../../src/base/json.ts'
import { invalid } from './chat.ts'
import { isForced, objectSchema, type Tools } from './tools.ts'

export interface AnswerTools extends Tools {
  readonly answerTool: string
}

export interface Format {
  readonly schema: Json
  readonly description: string | undefined
}

/** @returns 'object': any JSON object; undefined: text */
export function readFormat (format: unknown): Format | 'object' | undefined {
  if (!isRecord(format)) return undefined
  if (format.type === 'json_object') return 'object'
  if (format.type !== 'json_schema') return undefined
  const path = 'response_format.json_schema'
  if (!isRecord(format.json_schema)) throw invalid(path, 'must be an object')
  const { schema, description } = format.json_schema
  if (schema === undefined || schema === null) return 'object'
  if (!isRecord(schema)) throw invalid(`${path}.schema`, 'must be a JSON Schema object')
  return { schema, description: typeof description === 'string' ? description : undefined }
}

const CALL_IT = 'Gives the final answer. Always answer by calling it, never with text.'

/**
 * Adds a tool whose input is the answer. Beside tools of the client's own the model must call one or the other; where
 * the client forces one of its own there is no answer to shape.
 * @param isThinking a tool can't be forced then
 * @returns undefined: not needed
 */
export function withAnswerTool (
  { tools, choice, custom }: Tools,
  { schema, description }: Format,
  isThinking: boolean
): AnswerTools | undefined {
  if (isForced(choice)) return undefined
  const own = choice?.type === 'none' ? [] : tools
  let answerTool = 'json_answer'
  const taken = new Set(own.map(({ name }) => name))
  for (let i = 2; taken.has(answerTool); i++) answerTool = `json_answer_${i}`
  const tool = {
    name: answerTool,
    description: description === undefined ? CALL_IT : `${CALL_IT} The answer: ${description}`,
    input_schema: objectSchema(schema, 'response_format.json_schema.schema')
  }
  const type = isThinking ? 'auto' : own.length > 0 ? 'any' : 'tool'
  return {
    tools: [...own, tool],
    choice: {
      type,
      ...(type === 'tool' && { name: answerTool }),
      ...((own.length === 0 || choice?.disable_parallel_tool_use === true) && { disable_parallel_tool_use: true })
    },
    custom,
    answerTool
  }
}
