// Requests of the Responses API in the terms of the simulated model, which is in messages style.
import { isObject } from './dialect.ts'
import type { Block, Message, MessagesBody, Tool } from './messages-body.ts'
import { OUTPUT_OF, type ResponsesRequest } from './responses-body.ts'
import type { Item, ResponsesMemory } from './responses-memory.ts'


/** A tool as the client knows it. */
export interface ClientTool {
  readonly type: 'function' | 'custom' | 'tool_search'
  readonly name: string
  readonly namespace?: string
}

export interface Understood {
  readonly body: MessagesBody
  /** by the name that the model calls it */
  readonly tools: ReadonlyMap<string, ClientTool>
}

export function toModel ({ fields, items }: ResponsesRequest, memory: ResponsesMemory): Understood {
  const { instructions, reasoning, text, max_output_tokens: most, prompt_cache_key: cacheKey } = fields
  const tools = toolsOf([...listOf(fields['tools']), ...items.flatMap(({ tools: more }) => listOf(more))])
  const format = isObject(text) && isObject(text['format']) ? text['format'] : {}
  const { effort, summary } = isObject(reasoning) ? reasoning : {}
  const thinks = isObject(reasoning) && effort !== 'none'
  return {
    tools: new Map([...tools].map(([name, { tool }]) => [name, tool])),
    body: {
      model: String(fields['model']),
      max_tokens: typeof most === 'number' ? most : 4096,
      messages: turnsOf(items, memory),
      system: typeof instructions === 'string' && instructions !== '' ? [{ type: 'text', text: instructions }] : [],
      tools: [...tools].map(([name, { schema, description }]): Tool => ({ name, description, input_schema: schema })),
      ...choiceOf(fields['tool_choice']),
      ...(typeof format['type'] === 'string' &&
        { output_config: { format: { type: format['type'], schema: format['schema'] } } }),
      ...(thinks &&
        { thinking: { type: 'adaptive' as const, display: isGiven(summary) ? 'summarized' : 'omitted' } }),
      // The vendor's cache needs no marks: all that it has read under the same key it need not read again.
      ...(typeof cacheKey === 'string' && { cache_control: { type: 'ephemeral' as const } })
    }
  }
}

interface DeclaredTool {
  readonly tool: ClientTool
  readonly description: unknown
  readonly schema: unknown
}

/** Tools of the client's by the name that the model calls them; those of the vendor's are never called. */
function toolsOf (given: readonly unknown[], namespace?: string): Map<string, DeclaredTool> {
  const tools = new Map<string, DeclaredTool>()
  for (const one of given) {
    if (!isObject(one)) continue
    const { type, name, description, parameters } = one
    if (type === 'namespace') {
      for (const [key, member] of toolsOf(listOf(one['tools']), String(name))) tools.set(key, member)
    } else if (type === 'function' || type === 'custom') {
      const key = namespace === undefined ? String(name) : `${namespace}.${String(name)}`
      tools.set(key, { tool: { type, name: String(name), ...(namespace !== undefined && { namespace }) },
        description, schema: type === 'function' ? parameters ?? {} : INPUT })
    } else if (type === 'tool_search' && one['execution'] === 'client') {
      tools.set(type, { tool: { type, name: type }, description, schema: parameters ?? {} })
    }
  }
  return tools
}

/** Of a custom tool, which takes text. */
const INPUT = { type: 'object', properties: { input: { type: 'string' } } }

function turnsOf (items: readonly Item[], memory: ResponsesMemory): Message[] {
  const turns: { role: 'user' | 'assistant', content: Block[] }[] = []
  for (const item of items) {
    const role = isAnswer(item) ? 'assistant' : 'user'
    const blocks = blocksOf(item, memory)
    const last = turns.at(-1)
    if (last?.role === role) last.content.push(...blocks)
    else if (blocks.length > 0) turns.push({ role, content: blocks })
  }
  return turns
}

/** Whether the model said it. */
function isAnswer ({ role, type }: Item): boolean {
  return role === 'assistant' || type === 'reasoning' || Object.hasOwn(OUTPUT_OF, String(type))
}

function blocksOf (item: Item, memory: ResponsesMemory): Block[] {
  const { type, call_id: id, name, namespace } = item
  switch (type) {
    case 'message': return partsOf(item['content'])
    case 'reasoning': {
      const sealed = item['encrypted_content']
      return [{ type: 'thinking', thinking: typeof sealed === 'string' ? memory.decrypt(sealed) ?? '' : '' }]
    }
    case 'function_call':
    case 'custom_tool_call':
    case 'tool_search_call':
      return [{ type: 'tool_use', id, name: isGiven(namespace) ? `${String(namespace)}.${String(name)}` : name ?? type,
        input: item['arguments'] ?? item['input'] }]
    case 'function_call_output':
    case 'custom_tool_call_output':
      return [{ type: 'tool_result', tool_use_id: id, content: partsOf(item['output']) }]
    case 'tool_search_output':
      return [{ type: 'tool_result', tool_use_id: id,
        content: [{ type: 'text', text: JSON.stringify(item['tools']) }] }]
  }
  return []
}

function partsOf (content: unknown): Block[] {
  if (typeof content === 'string') return content === '' ? [] : [{ type: 'text', text: content }]
  return listOf(content).filter(isObject).map((part) =>
    part['type'] === 'input_image'
      ? { type: 'image' }
      : part['type'] === 'input_file'
      ? { type: 'document' }
      : { type: 'text', text: part['text'] ?? part['refusal'] }
  )
}

function choiceOf (choice: unknown): Pick<MessagesBody, 'tool_choice'> {
  if (isObject(choice)) {
    if (choice['type'] === 'allowed_tools') {
      return { tool_choice: { type: choice['mode'] === 'required' ? 'any' : 'auto' } }
    }
    return typeof choice['name'] === 'string' ? { tool_choice: { type: 'tool', name: choice['name'] } } : {}
  }
  return choice === 'none' || choice === 'auto'
    ? { tool_choice: { type: choice } }
    : choice === 'required'
    ? { tool_choice: { type: 'any' } }
    : {}
}

/** The text that the user said last. Called before the body is checked, so it accepts any value. */
export function promptIn (body: unknown): string {
  const input = isObject(body) ? body['input'] : undefined
  if (typeof input === 'string') return input
  const items = listOf(input).filter(isObject)
  const turn = items.slice(items.findLastIndex(isAnswer) + 1)
  const last = turn.findLast(({ role }) => role === 'user')
  return partsOf(last?.['content']).map((block) => typeof block['text'] === 'string' ? block['text'] : '').join('\n')
}

function listOf (value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value as readonly unknown[] : []
}

function isGiven (value: unknown): boolean {
  return value !== undefined && value !== null
}

