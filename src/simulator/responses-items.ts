// The items of an answer of the Responses API: each as it begins, and as it is when it is done.
import { token24, type Composition, type Part } from './composition.ts'
import type { Faults } from './faults.ts'
import type { Item, ResponsesMemory } from './responses-memory.ts'
import type { ClientTool } from './responses-model.ts'

type Fields = Readonly<Record<string, unknown>>

/** An item, and the pieces in which it is streamed: parts of texts, each in its tokens. */
export interface OutputItem {
  readonly added: Item
  readonly done: Item
  readonly kind: 'reasoning' | 'message' | 'refusal' | 'function_call' | 'custom_tool_call' | 'tool_search_call' |
    'unknown'
  readonly parts: readonly (readonly string[])[]
  /** of reasoning: as a summary, or as the thoughts themselves */
  readonly isRaw?: boolean
}

/** Why an answer is not complete. Undefined: it is. */
export function incompleteReason ({ stopReason }: Composition, faults: Faults): string | undefined {
  return faults.incomplete ?? (stopReason === 'max_tokens' ? 'max_output_tokens' : undefined)
}

export function outputOf (
  composition: Composition,
  tools: ReadonlyMap<string, ClientTool>,
  fields: Fields,
  memory: ResponsesMemory,
  faults: Faults
): readonly OutputItem[] {
  const { parts, stopReason } = composition
  const isShort = incompleteReason(composition, faults) !== undefined
  const included = Array.isArray(fields['include']) && fields['include'].includes('reasoning.encrypted_content')
  const items = parts.map((part, index): OutputItem => {
    const status = isShort && index === parts.length - 1 ? 'incomplete' : 'completed'
    if (part.kind === 'thinking') return reasoning(part, included ? memory : undefined, faults)
    if (part.kind === 'text') return message(part, status, stopReason === 'refusal')
    return call(part, status, tools.get(part.name) ?? { type: 'function', name: part.name })
  })
  const unknown = { type: 'future_call', id: `fut_${token24()}`, status: 'completed' }
  return faults.unknown_item === true
    ? [{ added: { ...unknown, status: 'in_progress' }, done: unknown, kind: 'unknown', parts: [] }, ...items]
    : items
}

/** @param memory undefined: the client does not want it encrypted */
function reasoning (
  { tokens, isShown }: Part & { readonly kind: 'thinking' },
  memory: ResponsesMemory | undefined,
  faults: Faults
): OutputItem {
  const id = `rs_${token24()}`
  const isRaw = faults.reasoning_text === true
  const parts = isShown || isRaw ? split(tokens, isRaw ? 1 : faults.summary_parts ?? 1) : []
  const texts = parts.map((part) => part.join(''))
  const thought = tokens.join('')
  const shown = isRaw
    ? { summary: [], content: texts.map((text) => ({ type: 'reasoning_text', text })) }
    : { summary: texts.map((text) => ({ type: 'summary_text', text })) }
  return {
    kind: 'reasoning', parts, isRaw,
    // The vendor says something before it is over, too, which no request may bring back.
    added: { id, type: 'reasoning', summary: [],
      ...(memory !== undefined && { encrypted_content: memory.placeholder() }), status: 'in_progress' },
    done: { id, type: 'reasoning', ...shown,
      ...(memory !== undefined && { encrypted_content: memory.encrypt(thought) }), status: 'completed' }
  }
}

/** Into so many parts, all but empty ones. */
function split (tokens: readonly string[], count: number): readonly (readonly string[])[] {
  const size = Math.max(1, Math.ceil(tokens.length / count))
  return Array.from({ length: Math.ceil(tokens.length / size) }, (_, at) => tokens.slice(at * size, (at + 1) * size))
}

function message ({ tokens }: Part & { readonly kind: 'text' }, status: string, isRefusal: boolean): OutputItem {
  const item = { id: `msg_${token24()}`, type: 'message', role: 'assistant' }
  const text = tokens.join('')
  const part = isRefusal
    ? { type: 'refusal', refusal: text }
    : { type: 'output_text', text, annotations: [], logprobs: [] }
  return { kind: isRefusal ? 'refusal' : 'message', parts: [tokens],
    added: { ...item, status: 'in_progress', content: [] }, done: { ...item, status, content: [part] } }
}

function call (part: Part & { readonly kind: 'tool_use' }, status: string, tool: ClientTool): OutputItem {
  const { type, name, namespace } = tool
  const text = part.tokens.join('')
  const item = { call_id: part.id.replace('toolu_', 'call_'), ...(type !== 'tool_search' && { name }),
    ...(namespace !== undefined && { namespace }) }
  if (type === 'function') {
    const about = { id: `fc_${token24()}`, type: 'function_call', ...item }
    return { kind: 'function_call', parts: [part.tokens], added: { ...about, arguments: '', status: 'in_progress' },
      done: { ...about, arguments: text, status } }
  }
  if (type === 'custom') {
    const about = { id: `ctc_${token24()}`, type: 'custom_tool_call', ...item }
    const input = inputOf(text)
    return { kind: 'custom_tool_call', parts: [[input]], added: { ...about, input: '', status: 'in_progress' },
      done: { ...about, input, status } }
  }
  const about = { id: `tsc_${token24()}`, type: 'tool_search_call', execution: 'client', ...item }
  return { kind: 'tool_search_call', parts: [], added: { ...about, arguments: {}, status: 'in_progress' },
    done: { ...about, arguments: parsed(text), status } }
}

/** Of a custom tool, which the model calls with one text. */
function inputOf (json: string): string {
  const { input } = parsed(json)
  return typeof input === 'string' ? input : json
}

/** max_output_tokens may end a call in the middle. */
function parsed (json: string): Fields {
  try {
    return JSON.parse(json) as Fields
  } catch {
    return {}
  }
}
