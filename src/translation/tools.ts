// Tools of the inner language and the choice among them, as the translators of clients' styles make them.
import { isRecord, type Json } from '../base/json.ts'
import { cacheControl } from './blocks.ts'
import { invalid, nameAt, textAt } from './reads.ts'

export interface Choice {
  readonly type: 'auto' | 'any' | 'tool' | 'none'
  readonly name?: string
  readonly disable_parallel_tool_use?: true
}

export interface Tools {
  readonly tools: readonly Json[]
  readonly choice: Choice | undefined
}

/** Whether a tool must be called, which the vendor refuses while it thinks. */
export function isForced (choice: Choice | undefined): boolean {
  return choice?.type === 'any' || choice?.type === 'tool'
}

/**
 * @param read one item, with its path
 * @throws {GatewayError} invalid_request: the list is none, or holds something else than objects
 */
export function eachOf (list: unknown, name: string, read: (item: Json, path: string) => void): void {
  if (list === undefined || list === null) return
  if (!Array.isArray(list)) throw invalid(name, 'must be an array')
  for (let i = 0; i < list.length; i++) {
    const item: unknown = list[i]
    if (!isRecord(item)) throw invalid(`${name}[${i}]`, 'must be an object')
    read(item, `${name}[${i}]`)
  }
}

/** @param outer where its cache_control stands too */
export function functionTool (declared: Json, path: string, outer: Json): Json {
  const { description, parameters, strict } = declared
  return {
    name: nameAt(declared.name, `${path}.name`),
    ...(typeof description === 'string' && { description }),
    input_schema: parametersAt(parameters, `${path}.parameters`),
    ...(typeof strict === 'boolean' && { strict }),
    ...cacheControl(outer.cache_control ?? declared.cache_control)
  }
}

function parametersAt (schema: unknown, path: string): Json {
  if (schema === undefined || schema === null) return { type: 'object', properties: {} }
  if (!isRecord(schema)) throw invalid(path, 'must be a JSON Schema object')
  return objectSchema(schema)
}

/** The whole schema, whose root must be an object for the vendor. */
export function objectSchema (schema: Json): Json {
  return schema.type === undefined ? { type: 'object', ...schema } : schema
}

/** The vendor compiles the schema of a strict tool. Where it can't, the tool is not strict. */
export function withGrammar (tool: Json, compile: (schema: Json) => Json | undefined): Json {
  const { strict, input_schema: whole, ...rest } = tool
  if (strict !== true || !isRecord(whole)) return tool
  const grammar = compile(whole)
  return grammar?.type === 'object' ? { ...rest, input_schema: grammar, strict } : { ...rest, input_schema: whole }
}

/**
 * A tool that takes text: a function with one string.
 * @param grammar that the text must match; undefined: none
 * @param path of the grammar
 * @param outer where its cache_control stands
 */
export function customTool ({ name, description }: Json, grammar: Json | undefined, path: string, outer: Json): Json {
  const rule = grammar === undefined
    ? {}
    : {
      description: `Must match this ${textAt(grammar.syntax, `${path}.syntax`)} ` +
        `grammar:\n${textAt(grammar.definition, `${path}.definition`)}`
    }
  const input = { type: 'string', ...rule }
  return {
    name,
    ...(typeof description === 'string' && { description }),
    input_schema: {
      type: 'object',
      properties: { input },
      required: ['input'],
      additionalProperties: false
    },
    ...cacheControl(outer.cache_control)
  }
}

/** Whether a word stands for a choice that names no tool: the words of all styles. */
export function isChoiceWord (word: unknown): boolean {
  return CHOICE_WORDS.has(word)
}

const CHOICE_WORDS: ReadonlySet<unknown> = new Set(['none', 'auto', 'required', 'any'])

/** @throws {GatewayError} invalid_request: it is no word for a choice */
export function byWord (word: unknown, path: string): Choice {
  switch (word) {
    case 'none':
    case 'auto': return { type: word }
    case 'any':                                               // Mistral's word, and that of messages style
    case 'required': return { type: 'any' }
    default: throw invalid(path, 'must be "none", "auto", "required", or an object that names a tool')
  }
}

/** Of several calls at a time the client wants none. */
export function withoutParallel (choice: Choice = { type: 'auto' }): Choice {
  return choice.type === 'none' ? choice : { ...choice, disable_parallel_tool_use: true }
}
