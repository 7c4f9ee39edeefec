// What a client of each style has in the end, whole or streamed, in the same words.
import type { ClientEvent, Got } from './billing-client.ts'
import { clientStyles, type Style } from './client-styles.ts'

type Json = Readonly<Record<string, unknown>>

export interface ClientAnswer {
  readonly text: string
  /** only chat style has a field for it */
  readonly refusal: string
  /** the input is what the client parses; text that is no JSON stays text */
  readonly calls: readonly { readonly name: unknown, readonly input: unknown }[]
  /** of the calls */
  readonly ids: readonly unknown[]
  /** as the style names it */
  readonly stop: unknown
}

const list = (value: unknown): readonly Json[] => Array.isArray(value) ? value as readonly Json[] : []
const record = (value: unknown): Json => (value ?? {}) as Json
const textOf = (value: unknown): string => typeof value === 'string' ? value : ''

function parsed (text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

function messageOf ({ content, stop_reason: stop }: Json): ClientAnswer {
  const calls = list(content).filter(({ type }) => type === 'tool_use')
  return { text: list(content).map(({ text }) => textOf(text)).join(''), refusal: '', stop,
    calls: calls.map(({ name, input }) => ({ name, input })), ids: calls.map(({ id }) => id) }
}

function messageOfEvents (events: readonly ClientEvent[]): ClientAnswer {
  const blocks = new Map<unknown, { readonly start: Json, pieces: string }>()
  let stop: unknown
  for (const { event, data } of events) {
    const delta = record(data['delta'])
    if (event === 'content_block_start') {
      blocks.set(data['index'], { start: record(data['content_block']), pieces: '' })
    } else if (event === 'content_block_delta') {
      blocks.get(data['index'])!.pieces += textOf(delta['text'] ?? delta['partial_json'])
    } else if (event === 'message_delta') stop = delta['stop_reason'] ?? stop
  }
  return messageOf({ stop_reason: stop, content: Array.from(blocks.values(), ({ start, pieces }) =>
    start['type'] === 'tool_use' ? { ...start, input: pieces === '' ? start['input'] : parsed(pieces) }
      : start['type'] === 'text' ? { ...start, text: textOf(start['text']) + pieces } : start) })
}

function completionOf ({ choices }: Json): ClientAnswer {
  const { message, finish_reason: stop } = list(choices)[0]!
  const { content, refusal, tool_calls: calls } = record(message)
  return { text: textOf(content), refusal: textOf(refusal), stop,
    calls: list(calls).map((call) => record(call['function'])).map(({ name, arguments: given }) =>
      ({ name, input: parsed(textOf(given)) })), ids: list(calls).map(({ id }) => id) }
}

function completionOfChunks (events: readonly ClientEvent[]): ClientAnswer {
  const calls = new Map<unknown, { id: unknown, name: unknown, arguments: string }>()
  let [text, refusal] = ['', '']
  let stop: unknown
  for (const { delta, finish_reason: finish } of events.flatMap(({ data }) => list(data['choices']))) {
    const { content, refusal: more, tool_calls: pieces } = record(delta)
    text += textOf(content)
    refusal += textOf(more)
    stop = finish ?? stop
    for (const { index, id, function: called } of list(pieces)) {
      const { name, arguments: piece } = record(called)
      const call = calls.get(index) ?? { id, name, arguments: '' }
      call.arguments += textOf(piece)
      calls.set(index, call)
    }
  }
  return { text, refusal, stop, ids: Array.from(calls.values(), ({ id }) => id),
    calls: Array.from(calls.values(), (call) => ({ name: call.name, input: parsed(call.arguments) })) }
}

function responseOf ({ output, status }: Json): ClientAnswer {
  const calls = list(output).filter(({ type }) => type === 'function_call')
  return { stop: status, refusal: '', ids: calls.map((item) => item['call_id']),
    text: list(output).flatMap(({ content, type }) => type === 'message' ? list(content) : [])
      .map(({ text }) => textOf(text)).join(''),
    calls: calls.map((item) => ({ name: item['name'], input: parsed(textOf(item['arguments'])) })) }
}

const READERS: Readonly<Record<Style, readonly [
  whole: (body: Json) => ClientAnswer, stream: (events: readonly ClientEvent[]) => ClientAnswer
]>> = {
  messages: [messageOf, messageOfEvents],
  chat: [completionOf, completionOfChunks],
  responses: [responseOf, (events) => responseOf(record(events.at(-1)?.data['response']))]
}

/** Undefined: it is an error, at once or at the end of a stream. */
export function readAnswer (style: Style, stream: boolean, { status, body, events }: Got): ClientAnswer | undefined {
  if (status !== 200) return undefined
  const [whole, streamed] = READERS[style]
  if (!stream) return whole(body ?? {})
  const last = style === 'responses' ? record(events.at(-1)?.data['response'])['status'] : undefined
  const isWhole = style === 'responses'
    ? last === 'completed' || last === 'incomplete'
    : clientStyles[style].isEnded(events)
  return isWhole ? streamed(events) : undefined
}
