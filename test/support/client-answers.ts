// What a client of each style has of an answer in the end: its text, its first call, and why it stopped.
import type { ClientEvent } from './billing-client.ts'
import type { Style } from './client-styles.ts'

type Json = Readonly<Record<string, unknown>>

export interface ClientAnswer {
  readonly text: string
  readonly call?: { readonly name: unknown, readonly input: unknown } | undefined
  /** as the style names it */
  readonly stop: unknown
}

const list = (value: unknown): readonly Json[] => Array.isArray(value) ? value as readonly Json[] : []
const record = (value: unknown): Json => (value ?? {}) as Json

/** Arguments as a value; text that is no JSON stays text, so that the comparison shows it. */
function parsed (text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

export interface Reader {
  stream (events: readonly ClientEvent[]): ClientAnswer
  reply (body: Json): ClientAnswer
}

/** The whole answer that a client of each style has in the end. */
export const readers: Readonly<Record<Style, Reader>> = {
  messages: {
    stream (events) {
      const deltas = events.filter(({ event }) => event === 'content_block_delta').map(({ data }) => record(data.delta))
      const call = events.map(({ data }) => record(data.content_block)).find(({ type }) => type === 'tool_use')
      const input = deltas.map(({ partial_json: piece }) => piece ?? '').join('')
      return { text: deltas.map(({ text }) => text ?? '').join(''),
        call: call && { name: call.name, input: parsed(input) },
        stop: record(events.findLast(({ event }) => event === 'message_delta')?.data.delta).stop_reason }
    },
    reply: ({ content, stop_reason: stop }) => ({ text: list(content).map(({ text }) => text ?? '').join(''), stop,
      call: list(content).filter(({ type }) => type === 'tool_use').map(({ name, input }) => ({ name, input }))[0] })
  },
  chat: {
    stream (events) {
      const choices = events.flatMap(({ data }) => list(data.choices))
      const pieces = choices.flatMap(({ delta }) => list(record(delta).tool_calls)).map((call) => record(call.function))
      const name = pieces.find((piece) => piece.name !== undefined)?.name
      return { text: choices.map(({ delta }) => record(delta).content ?? '').join(''),
        call: name === undefined
          ? undefined
          : { name, input: parsed(pieces.map((piece) => piece.arguments ?? '').join('')) },
        stop: choices.findLast(({ finish_reason: finish }) => finish !== null)?.finish_reason }
    },
    reply ({ choices }) {
      const { message, finish_reason: stop } = list(choices)[0]!
      const call = list(record(message).tool_calls).map((one) => record(one.function))[0]
      return { text: String(record(message).content ?? ''), stop,
        call: call && { name: call.name, input: parsed(String(call.arguments)) } }
    }
  },
  responses: {
    stream: (events) => readers.responses.reply(record(events.at(-1)?.data.response)),
    reply: ({ output, status }) => ({ stop: status,
      text: list(output).flatMap(({ content, type }) => type === 'message' ? list(content) : [])
        .map(({ text }) => text).join(''),
      call: list(output).filter(({ type }) => type === 'function_call')
        .map((item) => ({ name: item.name, input: parsed(String(item.arguments)) }))[0] })
  }
}

const parameters = { type: 'object', properties: { harbour: { type: 'string' } }, required: ['harbour'] }
/** One tool, as each style declares it. */
export const tools: Readonly<Record<Style, readonly object[]>> = {
  messages: [{ name: 'timetable', description: 'Departures', input_schema: parameters }],
  chat: [{ type: 'function', function: { name: 'timetable', description: 'Departures', parameters } }],
  responses: [{ type: 'function', name: 'timetable', description: 'Departures', parameters, strict: false }]
}
