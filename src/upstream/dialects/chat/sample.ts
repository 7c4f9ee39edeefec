// An answer as its vendors give it, for the warm-up.
import { type Sample, WORDS } from '../sample.ts'

const answer = { id: 'chatcmpl-warm-up', created: 1_760_000_000, model: 'warm-up' }
const usage = { prompt_tokens: 150, completion_tokens: 40, total_tokens: 190,
  prompt_tokens_details: { cached_tokens: 50 } }

export const sample: Sample = {
  reply: JSON.stringify({ ...answer, object: 'chat.completion', choices: [{ index: 0,
    message: { role: 'assistant', content: WORDS.join(' '), refusal: null }, logprobs: null, finish_reason: 'stop' }],
  usage }),
  events: [
    chunk({ role: 'assistant', content: '' }), ...WORDS.map((content) => chunk({ content })), chunk({}, 'stop'),
    `data: ${JSON.stringify({ ...answer, object: 'chat.completion.chunk', choices: [], usage })}\n\n`,
    'data: [DONE]\n\n'
  ]
}

function chunk (delta: object, finish: string | null = null): string {
  return `data: ${JSON.stringify({ ...answer, object: 'chat.completion.chunk',
    choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`
}
