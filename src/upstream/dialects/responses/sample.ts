// An answer as its vendors give it, for the warm-up.
import { sseOf, type Sample, WORDS } from '../sample.ts'

const begun = { id: 'resp_warm-up', object: 'response', created_at: 1_760_000_000, status: 'in_progress',
  model: 'warm-up', output: [] as readonly object[], usage: null }
const open = { id: 'msg_warm-up', type: 'message', role: 'assistant', status: 'in_progress', content: [] }
const text = WORDS.join(' ')
const part = { type: 'output_text', text, annotations: [], logprobs: [] }
const item = { ...open, status: 'completed', content: [part] }
const done = { ...begun, status: 'completed', output: [item], usage: { input_tokens: 150,
  input_tokens_details: { cached_tokens: 50 }, output_tokens: 40, output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 190 } }
const at = { item_id: open.id, output_index: 0, content_index: 0 }

export const sample: Sample = {
  reply: JSON.stringify(done),
  events: sseOf([
    { type: 'response.created', response: begun },
    { type: 'response.output_item.added', output_index: 0, item: open },
    { type: 'response.content_part.added', ...at, part: { ...part, text: '' } },
    ...WORDS.map((delta) => ({ type: 'response.output_text.delta', ...at, delta, logprobs: [] })),
    { type: 'response.output_text.done', ...at, text, logprobs: [] },
    { type: 'response.content_part.done', ...at, part },
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response: done }
  ].map((event, i) => ({ ...event, sequence_number: i })))
}
