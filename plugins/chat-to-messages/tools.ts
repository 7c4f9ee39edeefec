// Tools from chat completions of a client to the inner language, and the choice among them.
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'
import { invalid, nameAt } from '../../src/translation/reads.ts'
import {
  byWord,
  type Choice,
  customTool,
  eachOf,
  functionTool,
  isChoiceWord,
  isForced,
  type Tools,
  withoutParallel
} from '../../src/translation/tools.ts'

export interface ChatTools extends Tools {
  /** names of the tools whose input is text */
  readonly custom: ReadonlySet<string>
}

const NO_TOOLS: ChatTools = { tools: Object.freeze([]), choice: undefined, custom: new Set() }

/** @throws {GatewayError} invalid_request, with the path of a part that can't be expressed in messages style */
export function readTools (body: Json): ChatTools {
  const { tools, functions, tool_choice: choice, function_call: deprecated } = body
  return isGiven(tools) || isGiven(functions) || isGiven(choice) || isGiven(deprecated) ? toolsIn(body) : NO_TOOLS
}

function toolsIn (body: Json): ChatTools {
  const custom = new Set<string>()
  const all: Json[] = []
  eachOf(body.tools, 'tools', (tool, path) => { all.push(readTool(tool, path, custom)) })
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

/**
 * A tool of chat style, or one whose fields stand in the tool itself, as messages and responses style have them.
 * @param custom gets its name where its input is text
 */
function readTool (tool: Json, path: string, custom: Set<string>): Json {
  const { type, input_schema: schema } = tool
  if (isRecord(tool.function)) return functionTool(tool.function, `${path}.function`, tool)
  if (isRecord(schema) && (type === 'custom' || !isGiven(type))) {
    return functionTool({ ...tool, parameters: schema }, path, tool)
  }
  const isFlat = !isRecord(tool.custom) && typeof tool.name === 'string'
  if (isFlat && (type === 'function' || !isGiven(type))) return functionTool(tool, path, tool)
  const declared = isRecord(tool.custom) ? tool.custom : isFlat && type === 'custom' ? tool : undefined
  if (declared === undefined) throw invalid(`${path}.type`, 'must be "function" or "custom", with an object of that name')
  const at = isFlat ? path : `${path}.custom`
  custom.add(nameAt(declared.name, `${at}.name`))
  const { format } = declared
  const rule = isRecord(format) && isRecord(format.grammar) ? format.grammar : format
  const grammar = isRecord(rule) && isGiven(rule.definition) ? rule : undefined
  return customTool(declared, grammar, `${at}.format.grammar`, tool)
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
  const choice: Choice = isChoiceWord(asked.type)
    ? byWord(asked.type, 'tool_choice.type')
    : { type: 'tool', name: nameIn(asked, 'tool_choice') }
  return { choice: asked.disable_parallel_tool_use === true ? withoutParallel(choice) : choice }
}

function readAllowed (list: unknown): ToolChoice {
  const path = 'tool_choice.allowed_tools'
  if (!isRecord(list)) throw invalid(path, 'must be an object')
  const allowed = new Set<string>()
  eachOf(list.tools, `${path}.tools`, (tool, at) => { allowed.add(nameIn(tool, at)) })
  return { choice: byWord(list.mode, `${path}.mode`), allowed }
}

/** The name in `{type: "function", function: {name}}`, in the same with "custom", or in the choice itself. */
function nameIn (named: Json, path: string): string {
  if (isGiven(named.name)) return nameAt(named.name, `${path}.name`)
  const kind = isRecord(named.custom) ? 'custom' : 'function'
  const inner = named[kind]
  if (!isRecord(inner)) throw invalid(path, 'must name a tool: {"type": "function", "function": {"name": …}}')
  return nameAt(inner.name, `${path}.${kind}.name`)
}
