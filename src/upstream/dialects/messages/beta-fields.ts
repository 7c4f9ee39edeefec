// Fields of a request that its vendor takes together with a beta alone: without the beta they are a 400
// (src/README.md#beta-headers).
import { isGiven, isRecord, type Json } from '../../../base/json.ts'
import { textIn } from '../json.ts'

/** What goes with a beta. */
export interface Removal {
  /** fields of the body */
  readonly body?: readonly string[]
  /** fields of `output_config` */
  readonly output?: readonly string[]
  /** how the types of edits in `context_management` begin */
  readonly edits?: readonly string[]
  /** fields of tools */
  readonly tools?: readonly string[]
  /** how the types of tools, and names of their calls, begin */
  readonly kinds?: readonly string[]
  /** fields of `cache_control` */
  readonly marks?: readonly string[]
  /** fields of content blocks */
  readonly blocks?: readonly string[]
  /** types of content blocks; a reference to a tool becomes text */
  readonly types?: readonly string[]
  /** what only system turns among the messages have: they become what all vendors take */
  readonly turns?: readonly ['system']
}

/** By the names of betas without their dates. */
const BETAS: ReadonlyMap<string, Removal> = new Map<string, Removal>([
  ['context-management', { body: ['context_management'], edits: ['clear_'] }],
  ['compact', { body: ['context_management'], edits: ['compact_'] }],
  ['advanced-tool-use', { tools: ['defer_loading', 'allowed_callers', 'input_examples'],
    kinds: ['tool_search_tool_'], blocks: ['caller'], types: ['tool_reference', 'tool_search_tool_result'] }],
  ['tool-search-tool', { tools: ['defer_loading'], kinds: ['tool_search_tool_'],
    types: ['tool_reference', 'tool_search_tool_result'] }],
  ['tool-examples', { tools: ['input_examples'] }],
  ['fine-grained-tool-streaming', { tools: ['eager_input_streaming'] }],
  ['structured-outputs', { body: ['output_format'], tools: ['strict'] }],
  ['effort', { output: ['effort'] }],
  ['task-budgets', { output: ['task_budget'] }],
  ['fast-mode', { body: ['speed'] }],
  ['mcp-client', { body: ['mcp_servers'], kinds: ['mcp_toolset'] }],
  ['extended-cache-ttl', { marks: ['ttl'] }],
  ['prompt-caching-scope', { marks: ['scope'] }],
  ['mid-conversation-tool-changes', { turns: ['system'] }],
  ['per-turn-control', { turns: ['system'] }]
])

const PARTS = ['body', 'output', 'edits', 'tools', 'kinds', 'marks', 'blocks', 'types', 'turns'] as const

/**
 * What must go because the vendor does not get its beta. What another beta allows that it does get may stay.
 * @param wanted betas of the client @param sent those that the vendor gets
 * @returns undefined: nothing
 */
export function removalFor (wanted: string | readonly string[] | undefined, sent: string): Removal | undefined {
  if (wanted === undefined || wanted === sent) return undefined
  const kept = new Set(namesIn(sent))
  const dropped = removalsOf(namesIn(String(wanted)).filter((name) => !kept.has(name)))
  if (dropped.length === 0) return undefined
  const allowed = removalsOf(kept)
  const removal: Partial<Record<keyof Removal, readonly string[]>> = {}
  for (const part of PARTS) {
    const stays = allowed.flatMap((one): readonly string[] => one[part] ?? [])
    const goes = dropped.flatMap((one): readonly string[] => one[part] ?? []).filter((one) => !stays.includes(one))
    if (goes.length > 0) removal[part] = goes
  }
  return Object.keys(removal).length === 0 ? undefined : removal as Removal
}

function namesIn (betas: string): readonly string[] {
  return betas.split(',').map((name) => name.trim())
}

/** Each row of the table once. */
function removalsOf (names: Iterable<string>): readonly Removal[] {
  return [...new Set([...names].flatMap((name) => BETAS.get(name.replace(/-\d{4}-\d{2}-\d{2}$/, '')) ?? []))]
}

/** A field of the body, or what has become of it. */
export function fieldNow (name: string, body: Json, changes: Json): unknown {
  return Object.hasOwn(changes, name) ? changes[name] : body[name]
}

/**
 * The changes of a body, and what goes beside them.
 * @param changes made so far; undefined in the place of a removed field
 */
export function withoutFields (body: Json, changes: Json, removal: Removal): Json {
  const made: Record<string, unknown> = { ...changes }
  const now = (name: string): unknown => fieldNow(name, body, made)
  const set = (name: string, value: unknown): void => { if (value !== now(name)) made[name] = value }
  for (const name of removal.body ?? []) set(name, undefined)
  if (removal.output !== undefined) set('output_config', orNothing(without(now('output_config'), removal.output)))
  if (removal.edits !== undefined) set('context_management', withoutEdits(now('context_management'), removal.edits))
  setTools(now, removal, set)
  const reader = new Content(removal)
  if (!reader.isNeeded) return made
  if (removal.marks !== undefined) set('cache_control', without(now('cache_control'), removal.marks))
  set('system', reader.list(now('system')))
  set('messages', reader.turns(now('messages')))
  return made
}

/** The same value where it has none of these fields. */
function without (value: unknown, names: readonly string[]): unknown {
  if (!isRecord(value) || !names.some((name) => value[name] !== undefined)) return value
  const kept: Record<string, unknown> = { ...value }
  for (const name of names) delete kept[name]
  return kept
}

function orNothing (value: unknown): unknown {
  return isRecord(value) && Object.keys(value).length === 0 ? undefined : value
}

function withoutEdits (management: unknown, beginnings: readonly string[]): unknown {
  if (!isRecord(management) || !Array.isArray(management.edits)) return management
  const { edits, ...others } = management
  const kept = edits.filter((edit) => !isRecord(edit) || !begins(edit.type, beginnings))
  if (kept.length === edits.length) return management
  return kept.length === 0 ? orNothing(others) : { ...others, edits: kept }
}

function begins (text: unknown, beginnings: readonly string[]): boolean {
  return typeof text === 'string' && beginnings.some((beginning) => text.startsWith(beginning))
}

function setTools (
  now: (name: string) => unknown, removal: Removal, set: (name: string, value: unknown) => void
): void {
  const [tools, choice] = [now('tools'), now('tool_choice')]
  if (!Array.isArray(tools)) return
  const { kinds = [], marks = [] } = removal
  const left = tools.filter((tool) => !isRecord(tool) || !begins(tool.type, kinds))
  const names = new Set(left.map((tool: unknown) => isRecord(tool) ? tool.name : undefined))
  const changed = left.map((tool: unknown) => withoutMarks(without(tool, removal.tools ?? []), marks))
  if (changed.length === tools.length && changed.every((tool, i) => tool === tools[i])) return
  set('tools', changed.length === 0 ? undefined : changed)
  const isGone = isRecord(choice) && (changed.length === 0 || (isGiven(choice.name) && !names.has(choice.name)))
  if (isGone && left.length < tools.length) set('tool_choice', undefined)
}

function withoutMarks (value: unknown, names: readonly string[]): unknown {
  if (!isRecord(value) || names.length === 0) return value
  const mark = without(value.cache_control, names)
  return mark === value.cache_control ? value : { ...value, cache_control: mark }
}

/** Content blocks without what goes: the same objects where nothing does. */
class Content {
  readonly #kinds: readonly string[]
  readonly #marks: readonly string[]
  readonly #blocks: readonly string[]
  readonly #types: ReadonlySet<unknown>

  constructor ({ kinds = [], marks = [], blocks = [], types = [] }: Removal) {
    this.#kinds = kinds
    this.#marks = marks
    this.#blocks = blocks
    this.#types = new Set(types)
  }

  get isNeeded (): boolean {
    return this.#kinds.length + this.#marks.length + this.#blocks.length + this.#types.size > 0
  }

  turns (turns: unknown): unknown {
    if (!Array.isArray(turns)) return turns
    return changed(turns, (turn) => {
      if (!isRecord(turn)) return turn
      const content = this.list(turn.content)
      if (content === turn.content) return turn
      // The vendor takes no empty turn.
      return Array.isArray(content) && content.length === 0 ? undefined : { ...turn, content }
    })
  }

  list (blocks: unknown): unknown {
    return Array.isArray(blocks) ? changed(blocks, (block) => this.#block(block)) : blocks
  }

  /** Undefined: it goes. */
  #block (block: unknown): unknown {
    if (!isRecord(block)) return block
    if (this.#types.has(block.type)) {
      if (block.type !== 'tool_reference') return undefined
      return { type: 'text', text: `Tool loaded: ${textIn(block.tool_name)}` }
    }
    if (block.type === 'server_tool_use' && begins(block.name, this.#kinds)) return undefined
    const kept = withoutMarks(without(block, this.#blocks), this.#marks) as Json
    // Results of tools, and of searches in them.
    const content = this.list(kept.content)
    return content === kept.content ? kept : { ...kept, content }
  }
}

/** The same list where nothing changes. */
function changed (list: readonly unknown[], change: (one: unknown) => unknown): readonly unknown[] {
  let made: unknown[] | undefined
  for (let i = 0; i < list.length; i++) {
    const one = list[i]
    const other = change(one)
    if (other === one) { made?.push(one); continue }
    made ??= list.slice(0, i)
    if (other !== undefined) made.push(other)
  }
  return made ?? list
}
