// Items of tools that the API itself describes: what they were called with, and what they have returned.
import { isRecord, type Json, printed } from '../../src/base/json.ts'
import { type Block, isBlank, textBlock } from '../../src/translation/blocks.ts'
import { invalid } from '../../src/translation/reads.ts'

/** @throws {GatewayError} invalid_request: it is no object */
export function recordAt (value: unknown, path: string): Json {
  if (!isRecord(value)) throw invalid(path, 'must be an object')
  return value
}

/** The input of a shell's tool, from its item. */
export function actionAt (value: unknown, path: string): Json {
  const { type: _type, ...action } = recordAt(value, path)
  return action
}

/** @throws {GatewayError} invalid_request: it is neither text nor a list of what commands have printed */
export function shellOutput (output: unknown, path: string): Block[] {
  if (typeof output === 'string') return isBlank(output) ? [] : [textBlock(output)]
  if (!Array.isArray(output)) throw invalid(path, 'must be an array of what each command has printed')
  return output.map((one: unknown, i) => {
    const { stdout, stderr, outcome } = recordAt(one, `${path}[${i}]`)
    return textBlock(printed({ stdout: stdout ?? '', stderr: stderr ?? '', ...isRecord(outcome) && endOf(outcome) }))
  })
}

function endOf ({ type, exit_code: code }: Json): Json {
  return type === 'timeout' ? { timed_out: true } : { exit_code: code }
}

/** What a tool at a vendor has returned, which only the vendor could say as a result. */
export function mcpResult ({ name, server_label: server, output }: Json): Block {
  const said = typeof output === 'string' ? output : printed(output)
  return textBlock(`The tool ${printed(name)} of ${printed(server)} returned: ${said}`)
}

/** What a search for tools has found: they are among the tools. */
export function foundTools ({ tools }: Json): Block[] {
  const names = Array.isArray(tools) ? tools.flatMap((tool) => namesIn(tool)) : []
  return [textBlock(names.length === 0 ? 'No tools were found.' : `These tools are there now: ${names.join(', ')}`)]
}

/** Names of a tool, or of those in a namespace. */
function namesIn (tool: unknown): string[] {
  if (!isRecord(tool)) return []
  if (Array.isArray(tool.tools)) return tool.tools.flatMap((inner) => namesIn(inner))
  return typeof tool.name === 'string' ? [tool.name] : []
}
