// Tools from chat completions of a client to the inner language, and the choice among them.
import { isGiven, isRecord, type Json } from '../../src/base/json.ts'
import { invalid, nameAt } from '../../src/translation/reads.ts'
import {
  byWord,
  type Choice,
  customTool,
  eachOf,
  functionTool,
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
  eachOf(body.tools, 'tools', (tool, path) => {
    if (isRecord(tool.function)) all.push(functionTool(tool.function, `${path}.function`, tool))
    else if (isRecord(tool.custom)) {
      custom.add(nameAt(tool.custom.name, `${path}.custom.name`))
      const { format } = tool.custom
      const grammar = isRecord(format) && isRecord(format.grammar) ? format.grammar : undefined
      all.push(customTool(tool.custom, grammar, `${path}.custom.format.grammar`, tool))
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
