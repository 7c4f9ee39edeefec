// A vendor's answer that calls tools, in each dialect.
import type { DialectOf } from '../../src/config/sections/dialects.ts'
import { json, raw, type Script } from './upstream.ts'

type Json = Readonly<Record<string, unknown>>

export interface VendorCall {
  readonly id: string
  readonly name: string
}

const eventText = (all: readonly Json[]): string => all.map((one) => typeof one['type'] === 'string'
  ? `event: ${one['type']}\ndata: ${JSON.stringify(one)}\n\n` : `data: ${JSON.stringify(one)}\n\n`).join('')

/** The answer with these calls, whose arguments are empty. */
export const answersWith: Readonly<Record<DialectOf<'text'>,
  (calls: readonly VendorCall[], stream: boolean) => Script>> = {
  messages (calls, stream) {
    const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'v', stop_reason: 'tool_use',
      stop_sequence: null, usage: { input_tokens: 9, output_tokens: 2 } }
    const blocks = calls.map((call) => ({ type: 'tool_use', ...call, input: {} }))
    return stream ? raw(eventText([{ type: 'message_start', message: { ...message, content: [], stop_reason: null } },
      ...blocks.flatMap((content_block, index) => [{ type: 'content_block_start', index, content_block },
        { type: 'content_block_stop', index }]),
      { type: 'message_delta', delta: { stop_reason: 'tool_use', stop_sequence: null }, usage: { output_tokens: 2 } },
      { type: 'message_stop' }])) : json({ ...message, content: blocks })
  },
  chat (calls, stream) {
    const tool_calls = calls.map(({ id, name }, index) => ({ index, id, type: 'function',
      function: { name, arguments: '{}' } }))
    const usage = { prompt_tokens: 9, completion_tokens: 2, total_tokens: 11 }
    return stream ? raw(`${eventText([{ choices: [{ index: 0, delta: { role: 'assistant', tool_calls } }] },
      { choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }], usage }])}data: [DONE]\n\n`)
      : json({ id: 'c', object: 'chat.completion', created: 1, usage, choices: [{ index: 0,
        message: { role: 'assistant', content: null, tool_calls }, finish_reason: 'tool_calls' }] })
  },
  responses (calls, stream) {
    const output = calls.map(({ id, name }, i) => ({ type: 'function_call', id: `fc_${i}`, call_id: id, name,
      arguments: '{}', status: 'completed' }))
    const response = { id: 'resp_1', object: 'response', status: 'completed', output,
      usage: { input_tokens: 9, output_tokens: 2, total_tokens: 11 } }
    return stream ? raw(eventText([...output.map((item, output_index) =>
      ({ type: 'response.output_item.done', output_index, item })), { type: 'response.completed', response }]))
      : json(response)
  }
}
