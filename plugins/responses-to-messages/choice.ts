// tool_choice of a Responses request.
import { isRecord, type Json } from '../../src/base/json.ts'
import { invalid, nameAt } from '../../src/translation/reads.ts'
import { byWord, type Choice, eachOf, isChoiceWord, isForced, type Tools, withoutParallel } from '../../src/translation/tools.ts'
import { isBuiltIn } from './built-ins.ts'
import type { ResponseShape } from './shape.ts'
import { spaceAt, type ToolBox } from './tools.ts'

export interface Chosen extends Tools {
  readonly allowed: ResponseShape['allowed']
}

/** @throws {GatewayError} invalid_request: it names a tool that the request has not, or one that runs at a vendor */
export function chooseTools (body: Json, box: ToolBox): Chosen {
  const { inner: all, clients } = box
  const { choice, allowed } = readChoice(body.tool_choice, new Finder(clients))
  // As the only ones: the model can't call what it does not know.
  const tools = allowed === undefined ? all : all.filter(({ name }) => allowed.has(name as string))
  if (tools.length === 0) {
    if (!isForced(choice)) return { tools, choice: undefined, allowed }
    throw invalid('tool_choice', box.dropped.length === 0
      ? 'asks for a tool to be called, and there are no tools'
      : `asks for a tool to be called, and there is none that runs here: ${box.dropped.join(', ')} would run at a ` +
        'vendor')
  }
  return { tools, choice: body.parallel_tool_calls === false ? withoutParallel(choice) : choice, allowed }
}

interface ToolChoice {
  readonly choice: Choice | undefined
  readonly allowed?: ReadonlySet<string>
}

function readChoice (asked: unknown, finder: Finder): ToolChoice {
  if (asked === undefined || asked === null) return { choice: undefined }
  if (!isRecord(asked)) return { choice: byWord(asked, 'tool_choice') }
  if (isChoiceWord(asked.type)) return { choice: byWord(asked.type, 'tool_choice.type') }
  if (asked.type !== 'allowed_tools') return { choice: { type: 'tool', name: finder.find(asked, 'tool_choice') } }
  const allowed = new Set<string>()
  eachOf(asked.tools, 'tool_choice.tools', (tool, path) => {
    // One that runs at a vendor is left out here as among the tools.
    if (isNamed(tool.type)) allowed.add(finder.find(tool, path))
  })
  if (allowed.size === 0) throw invalid('tool_choice.tools', 'must name tools of this request that run here')
  return { choice: byWord(asked.mode, 'tool_choice.mode'), allowed }
}

function isNamed (type: unknown): type is string {
  return type === 'function' || type === 'custom' || (typeof type === 'string' && isBuiltIn(type))
}

/** Finds the tools that a choice names: each at once, because it may name thousands. */
class Finder {
  readonly #clients: ResponseShape['tools']
  /** names that the model was given, by the tool's own name; its namespace, or '', is within */
  readonly #named = new Map<string, Map<string, string>>()

  constructor (clients: ResponseShape['tools']) {
    this.#clients = clients
    for (const [given, { name, namespace = '' }] of clients) {
      const spaces = this.#named.get(name)
      if (spaces === undefined) this.#named.set(name, new Map([[namespace, given]]))
      else spaces.set(namespace, given)
    }
  }

  /**
   * @returns the name that the model was given; where the choice has no namespace, that of a tool without one first
   * @throws {GatewayError} invalid_request
   */
  find ({ type: kind, name, namespace }: Json, path: string): string {
    const type = kind ?? 'function'
    if (!isNamed(type)) {
      throw invalid(`${path}.type`,
        'must be "function", "custom", "apply_patch", "shell" or "allowed_tools": other tools run at a vendor')
    }
    const wanted = isBuiltIn(type) ? type : nameAt(name, `${path}.name`)
    const spaces = this.#named.get(wanted)
    const space = spaceAt(namespace, `${path}.namespace`)
    const found = isBuiltIn(type) || space !== undefined
      ? spaces?.get(space ?? '')
      : spaces?.get('') ?? spaces?.values().next().value
    if (found === undefined || (isBuiltIn(type) && this.#clients.get(found)!.type !== type)) {
      throw invalid(isBuiltIn(type) ? `${path}.type` : `${path}.name`, 'must name a tool of this request')
    }
    return found
  }
}
