// What a request of any API of text says, in one form, with the place of everything: the rules of vendors read it.
// Called before the body is checked, so it accepts any value.
import type { IncomingHttpHeaders } from 'node:http'
import { isObject, type Api } from './dialect.ts'

type Fields = Readonly<Record<string, unknown>>
export type Path = readonly (string | number)[]

/** A value, and where the body has it. */
export interface Placed<Value = unknown> {
  readonly path: Path
  readonly value: Value
}

export interface Call {
  readonly id: Placed
  readonly name: Placed
  /** a text in OpenAI's styles, an object in messages style */
  readonly input: Placed
}

export interface Turn {
  readonly path: Path
  /** `tool`: a message or item that is only the result of a call */
  readonly role: string
  readonly message: Fields
  readonly content: Placed
  readonly texts: readonly Placed[]
  readonly calls: readonly Call[]
  /** ids of the calls that are answered here */
  readonly results: readonly Placed[]
  /** media types of images; undefined: a link */
  readonly images: readonly Placed<string | undefined>[]
}

export interface Tool {
  readonly tool: Placed<Fields>
  readonly name: Placed
  readonly schema: Placed
}

export interface RequestView {
  readonly api: Api
  readonly body: Fields
  readonly headers: IncomingHttpHeaders
  readonly model: string
  readonly turns: readonly Turn[]
  readonly tools: readonly Tool[]
}

export function viewOf (api: Api, body: Fields, headers: IncomingHttpHeaders): RequestView {
  const turns = api === 'responses' ? itemsIn(body) : listOf(body['messages'], ['messages'])
    .map((message) => api === 'chat' ? chatTurn(message) : messagesTurn(message))
  return { api, body, headers, model: String(body['model']), turns: api === 'messages' ? joined(turns) : turns,
    tools: toolsIn(api, body) }
}

/** Neighbours of one role are one turn for the vendor. */
function joined (turns: readonly Turn[]): readonly Turn[] {
  const all: Turn[] = []
  for (const turn of turns) {
    const last = all.at(-1)
    if (last?.role !== turn.role) { all.push(turn); continue }
    const blocks = [last, turn].flatMap(({ message: { content } }): unknown[] =>
      Array.isArray(content) ? content : [{ type: 'text', text: content }])
    all[all.length - 1] = { ...last, message: { ...last.message, content: blocks },
      content: { path: last.content.path, value: blocks }, texts: [...last.texts, ...turn.texts],
      calls: [...last.calls, ...turn.calls], results: [...last.results, ...turn.results],
      images: [...last.images, ...turn.images] }
  }
  return all
}

function listOf (value: unknown, path: Path): readonly Placed<Fields>[] {
  return Array.isArray(value)
    ? value.map((one: unknown, i) => ({ path: [...path, i], value: isObject(one) ? one : {} }))
    : []
}

function placed (path: Path, value: unknown): Placed {
  return { path, value }
}

function chatTurn ({ path, value: message }: Placed<Fields>): Turn {
  const { role, content, tool_calls: calls, tool_call_id: id } = message
  const at = [...path, 'content']
  const parts = listOf(content, at)
  return {
    path, role: String(role), message, content: placed(at, content),
    texts: typeof content === 'string' ? [placed(at, content)]
      : parts.filter(({ value }) => value['type'] === 'text').map((part) => placed([...part.path, 'text'],
        part.value['text'])),
    calls: listOf(calls, [...path, 'tool_calls']).map((call) => {
      const named = isObject(call.value['function']) ? call.value['function'] : {}
      return { id: placed([...call.path, 'id'], call.value['id']),
        name: placed([...call.path, 'function', 'name'], named['name']),
        input: placed([...call.path, 'function', 'arguments'], named['arguments']) }
    }),
    results: role === 'tool' ? [placed([...path, 'tool_call_id'], id)] : [],
    images: parts.filter(({ value }) => value['type'] === 'image_url').map((part) => {
      const { image_url: image } = part.value
      return { path: [...part.path, 'image_url'], value: typeOfUrl(isObject(image) ? image['url'] : image) }
    })
  }
}

function typeOfUrl (url: unknown): string | undefined {
  return /^data:([^;,]*)/.exec(String(url))?.[1]
}

/** Paths have the type of a block behind its number, as the vendor writes them. */
function messagesTurn ({ path, value: message }: Placed<Fields>): Turn {
  const { role, content } = message
  const at = [...path, 'content']
  const blocks = listOf(content, at)
  const within = blocks.flatMap(({ path: outer, value }) => value['type'] === 'tool_result'
    ? listOf(value['content'], [...outer, 'tool_result', 'content']) : [])
  const of = (type: string, all = blocks): readonly Placed<Fields>[] => all
    .filter(({ value }) => value['type'] === type).map((block) => ({ path: [...block.path, type], value: block.value }))
  return {
    path, role: String(role), message, content: placed(at, content),
    texts: typeof content === 'string' ? [placed(at, content)]
      : of('text', [...blocks, ...within]).map((block) => placed([...block.path, 'text'], block.value['text'])),
    calls: of('tool_use').map((block) => ({ id: placed([...block.path, 'id'], block.value['id']),
      name: placed([...block.path, 'name'], block.value['name']),
      input: placed([...block.path, 'input'], block.value['input']) })),
    results: of('tool_result').map((block) => placed([...block.path, 'tool_use_id'], block.value['tool_use_id'])),
    images: of('image', [...blocks, ...within]).map((block) => {
      const { source } = block.value
      return { path: [...block.path, 'source', 'base64', 'media_type'],
        value: isObject(source) && source['type'] === 'base64' ? String(source['media_type']) : undefined }
    })
  }
}

function itemsIn ({ input }: Fields): readonly Turn[] {
  return listOf(input, ['input']).map(({ path, value: item }) => {
    const type = String(item['type'] ?? 'message')
    const at = [...path, 'content']
    const parts = listOf(item['content'], at)
    const isCall = type === 'function_call' || type === 'custom_tool_call'
    const input = type === 'custom_tool_call' ? 'input' : 'arguments'
    return {
      path, message: item, content: placed(at, item['content']),
      role: type === 'message' ? String(item['role']) : isCall ? 'assistant' : type.endsWith('_output') ? 'tool' : type,
      texts: typeof item['content'] === 'string' ? [placed(at, item['content'])]
        : parts.filter(({ value }) => typeof value['text'] === 'string').map((part) => placed([...part.path, 'text'],
          part.value['text'])),
      calls: isCall ? [{ id: placed([...path, 'call_id'], item['call_id']), name: placed([...path, 'name'], item['name']),
        input: placed([...path, input], item[input]) }] : [],
      results: type.endsWith('_output') ? [placed([...path, 'call_id'], item['call_id'])] : [],
      images: parts.filter(({ value }) => value['type'] === 'input_image').map((part) =>
        ({ path: [...part.path, 'image_url'], value: typeOfUrl(part.value['image_url']) }))
    }
  })
}

function toolsIn (api: Api, { tools }: Fields): readonly Tool[] {
  return listOf(tools, ['tools']).flatMap((tool): readonly Tool[] => {
    const { path, value } = tool
    if (api === 'chat') {
      const named = isObject(value['function']) ? value['function'] : {}
      return [{ tool, name: placed([...path, 'function', 'name'], named['name']),
        schema: placed([...path, 'function', 'parameters'], named['parameters']) }]
    }
    if (api === 'messages') {
      const type = value['type'] ?? 'custom'
      return type !== 'custom' ? [] : [{ tool, name: placed([...path, 'custom', 'name'], value['name']),
        schema: placed([...path, 'custom', 'input_schema'], value['input_schema']) }]
    }
    if (value['type'] === 'namespace') return toolsIn(api, { tools: value['tools'] })
    return value['type'] !== 'function' ? [] : [{ tool, name: placed([...path, 'name'], value['name']),
      schema: placed([...path, 'parameters'], value['parameters']) }]
  })
}

/** `messages[1].tool_calls[0].id` */
export function inBrackets (path: Path): string {
  return path.map((step, i) => typeof step === 'number' ? `[${step}]` : i === 0 ? step : `.${step}`).join('')
}

/** `messages.1.content.0.tool_use.id` */
export function inDots (path: Path): string {
  return path.join('.')
}
