// The tool that replaces a schema of the answer where a model has no structured outputs, or none for that schema.
import type { Json } from '../base/json.ts'
import { isForced, objectSchema, type Tools } from './tools.ts'

export interface AnswerTools extends Tools {
  readonly answerTool: string
}

export interface Format {
  readonly schema: Json
  readonly description: string | undefined
}

const CALL_IT = 'Gives the final answer. Always answer by calling it, never with text.'

/**
 * Adds a tool whose input is the answer. Beside tools of the client's own the model must call one or the other; where
 * the client forces one of its own there is no answer to shape.
 * @param isThinking a tool can't be forced then
 * @returns undefined: not needed
 */
export function withAnswerTool (
  { tools, choice }: Tools,
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
    input_schema: objectSchema(schema)
  }
  const type = isThinking ? 'auto' : own.length > 0 ? 'any' : 'tool'
  return {
    tools: [...own, tool],
    choice: {
      type,
      ...(type === 'tool' && { name: answerTool }),
      ...((own.length === 0 || choice?.disable_parallel_tool_use === true) && { disable_parallel_tool_use: true })
    },
    answerTool
  }
}
