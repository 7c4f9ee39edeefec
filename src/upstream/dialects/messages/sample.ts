// An answer as its vendor gives it, for the warm-up.
import { sseOf, type Sample, WORDS } from '../sample.ts'

const message = { id: 'msg_01WarmUpWarmUpWarmUp1234', type: 'message', role: 'assistant', model: 'warm-up',
  content: [] as readonly object[], stop_reason: null as string | null, stop_sequence: null,
  usage: { input_tokens: 100, cache_creation_input_tokens: 0, cache_read_input_tokens: 50, output_tokens: 1 } }
const usage = { ...message.usage, output_tokens: 40 }

export const sample: Sample = {
  reply: JSON.stringify({ ...message, content: [{ type: 'text', text: WORDS.join(' ') }], stop_reason: 'end_turn',
    usage }),
  events: sseOf([
    { type: 'message_start', message },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    ...WORDS.map((text) => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })),
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 40 } },
    { type: 'message_stop' }
  ])
}
