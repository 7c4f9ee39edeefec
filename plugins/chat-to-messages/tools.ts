// Tools from chat completions of a client to the inner language, and the choice among them.
import { isRecord, type Json } from '../../src/base/json.ts'
import { cacheControl, invalid, nameAt, textAt } from './chat.ts'

export interface Choice {
  readonly type: 'auto' | 'any' | 'tool' | 'none'
  readonly name?: string
  readonly disable_parallel_tool_use?: true
}

export interface Tools {
  readonly tools: readonly Json[]
  readonly choice: Choice | undefined
  /** names of the tools whose input is text */
  readonly custom: ReadonlySet<string>
}

/** Whether a tool must be called, which the vendor refuses while it thinks. */
export function isForced (choice: Choice | undefined): boolean {
  return choice?.type === 'any' || choice?.type === 'tool'
}

/** @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in messages style */
export function readTools (body: Json): Tools {
  const custom = new Set<string>()
  const all: Json[] = []
  eachOf(body.tools, 'tools', (tool, path) => {
    if (isRecord(tool.function)) all.push(functionTool(tool.function, `${path}.function`, tool))
    else if (isRecord(tool.custom)) {
      custom.add(nameAt(tool.custom.name, `${path}.custom.name`))
      all.push(customTool(tool.custom, `${path}.custom`, tool))
    } else throw invalid(`${path}.type`, 'must be "function" or "custom", with an object of that name')
  })
  eachOf(body.functions, 'functions', (tool, path) => { all.push(functionTool(tool, path, tool)) })
  const { choice, allowed } = readChoice(body)
  const tools = allowed === undefined ? all : all.filter(({ name }) => allowed.has(name as string))
  if (allowed !== undefined && tools.length === 0) {
    throw invalid('tool_choice.allowed_tools.tools', 'must name tools of this request')
  }
  // Without tools there is nothing to choose; one that must be called all the same is for the upstream to refuse.
  if (tools.length === 0) return { tools, choice: isForced(choice) ? choice : undefined, custom }
  return { tools, choice: body.parallel_tool_calls === false ? withoutParallel(choice) : choice, custom }
}

function eachOf (list: unknown, name: string, read: (item: Json, path: string) => void): void {
  if (list === undefined || list === null) return
  if (!Array.isArray(list)) throw invalid(name, 'must be an array')
  for (let i = 0; i < list.length; i++) {
    const item: unknown = list[i]
    if (!isRecord(item)) throw invalid(`${name}[${i}]`, 'must be an object')
    read(item, `${name}[${i}]`)
  }
}

function functionTool (declared: Json, path: string, outer: Json): Json {
  const { description, parameters, strict } = declared
  return {
    name: nameAt(declared.name, `${path}.name`),
    ...(typeof description === 'string' && { description }),
    input_schema: objectSchema(parameters, `${path}.parameters`),
    ...(typeof strict === 'boolean' && { strict }),
    ...cacheControl(outer.cache_control ?? declared.cache_control)
  }
}

/** The whole schema, whose root must be an object for the vendor. */
export function objectSchema (schema: unknown, path: string): Json {
  if (schema === undefined || schema === null) return { type: 'object', properties: {} }
  if (!isRecord(schema)) throw invalid(path, 'must be a JSON Schema object')
  return schema.type === undefined ? { type: 'object', ...schema } : schema
}

/** The vendor compiles the schema of a strict tool. Where it can't, the tool is not strict. */
export function withGrammar (tool: Json, compile: (schema: Json) => Json | undefined): Json {
  const { strict, input_schema: whole, ...rest } = tool
  if (strict !== true || !isRecord(whole)) return tool
  const grammar = compile(whole)
  return grammar?.type === 'object' ? { ...rest, input_schema: grammar, strict } : { ...rest, input_schema: whole }
}

/** A tool that takes text: a function with one string. */
function customTool (declared: Json, path: string, outer: Json): Json {
  const { name, description, format } = declared
  const grammar = isRecord(format) && isRecord(format.grammar) ? format.grammar : undefined
  const at = `${path}.format.grammar`
  const rule = grammar === undefined
    ? {}
    : {
      description: `Must match this ${textAt(grammar.syntax, `${at}.syntax`)} ` +
        `grammar:\n${textAt(grammar.definition, `${at}.definition`)}`
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

interface ToolChoice {
  readonly choice: Choice | undefined
  /** names; absent: all */
  readonly allowed?: ReadonlySet<string>
}

function readChoice ({ tool_choice: asked, function_call: deprecated }: Json): ToolChoice {
  if (asked === undefined || asked === null) {
    if (deprecated === undefined || deprecated === null) return { choice: undefined }
    if (isRecord(deprecated)) return { choice: { type: 'tool', name: nameAt(deprecated.name, 'function_call.name') } }
    return { choice: byWord(deprecated, 'function_call') }
  }
  if (!isRecord(asked)) return { choice: byWord(asked, 'tool_choice') }
  if (asked.type === 'allowed_tools') return readAllowed(asked.allowed_tools)
  return { choice: { type: 'tool', name: nameIn(asked, 'tool_choice') } }
}

function byWord (word: unknown, path: string): Choice {
  switch (word) {
    case 'none':
    case 'auto': return { type: word }
    case 'required': return { type: 'any' }
    default: throw invalid(path, 'must be "none", "auto", "required", or an object that names a tool')
  }
}

function readAllowed (list: unknown): ToolChoice {
  const path = 'tool_choice.allowed_tools'
  if (!isRecord(list)) throw invalid(path, 'must be an object')
  const allowed = new Set<string>()
  eachOf(list.tools, `${path}.tools`, (tool, at) => { allowed.add(nameIn(tool, at)) })
  return { choice: byWord(list.mode, `${path}.mode`), allowed }
}

/** The name in `{type: "function", function: {name}}`, or in the same with "custom". */
function nameIn (named: Json, path: string): string {
  const kind = isRecord(named.custom) ? 'custom' : 'function'
  const inner = named[kind]
  if (!isRecord(inner)) throw invalid(path, 'must name a tool: {"type": "function", "function": {"name": …}}')
  return nameAt(inner.name, `${path}.${kind}.name`)
}

function withoutParallel (choice: Choice = { type: 'auto' }): Choice {
  return choice.type === 'none' ? choice : { ...choice, disable_parallel_tool_use: true }
}
