// Streams whose pieces come mixed, in the wrong place, or of the wrong type, for clients of each style, in JSON and in
// streams, on the loop and in threads.
import t, { type Test } from 'tap'
import { ask, type Got } from '../support/billing-client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { gateway, KEY } from '../support/gateway.ts'
import { stylesYaml } from '../support/large.ts'
import { type ClientAnswer, readAnswer } from '../support/read-answer.ts'
import { raw, upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

interface Case {
  readonly name: string
  readonly dialect: Style
  /** JSON texts with halves of characters as escapes, or their values */
  readonly events: readonly (Json | string)[]
  /** absent: a broken answer */
  readonly text?: string
  readonly calls?: readonly object[]
}

const chunk = (delta: Json, finish: string | null = null, output = 1): Json =>
  ({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm',
    choices: [{ index: 0, delta, finish_reason: finish }],
    usage: { prompt_tokens: 10, completion_tokens: output, total_tokens: 10 + output } })
const called = (index: number, given: unknown): Json =>
  ({ tool_calls: [{ index, id: `call_${index}`, type: 'function', function: { name: 'run', arguments: given } }] })
const started: Json = { type: 'message_start', message: { id: 'msg_1', type: 'message', role: 'assistant', model: 'm',
  content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 10, output_tokens: 1 } } }
const begun: Json = { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }
const said = (text: string): Json => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })
const counted: Json = { type: 'message_delta', delta: {}, usage: { output_tokens: 2 } }
const ended: readonly Json[] = [{ type: 'content_block_stop', index: 0 },
  { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null }, usage: { output_tokens: 5 } },
  { type: 'message_stop' }]
const created: Json = { type: 'response.created', response: { id: 'resp_1', status: 'in_progress' } }
const completed: Json = { type: 'response.completed',
  response: { status: 'completed', usage: { input_tokens: 10, output_tokens: 5 } } }

const cases: readonly Case[] = [
  { name: 'A10: usage comes between two halves, with each chunk', dialect: 'chat', text: 'x\u{1F600}y', calls: [],
    events: [chunk({ content: 'x\uD83D' }), chunk({ content: '\uDE00y' }, null, 2), chunk({}, 'stop', 3), '[DONE]'] },
  { name: 'A10: a field of chat style comes between two halves', dialect: 'chat', text: 'x\u{1F600}y', calls: [],
    events: [chunk({ content: 'x\uD83D', annotations: [{ url: 'u' }] }), chunk({ content: '\uDE00y' }),
      chunk({}, 'stop'), '[DONE]'] },
  { name: 'A10: usage and an unknown event come between two halves', dialect: 'messages', text: 'x\u{1F600}y',
    calls: [], events: [started, begun, said('x\uD83D'), counted,
      { type: 'other' }, said('\uDE00y'), ...ended] },
  { name: 'A10: a half before the end', dialect: 'messages', text: 'x\uFFFD', calls: [],
    events: [started, begun, said('x\uD83D'), counted, ...ended] },
  { name: 'T5: arguments that are a list are not none', dialect: 'chat',
    events: [chunk(called(0, [1])), chunk({}, 'tool_calls'), '[DONE]'] },
  { name: 'A4: the whole arguments name their fields in another order', dialect: 'responses', text: '',
    calls: [{ name: 'run', input: { a: 1, b: 2 } }],
    events: [created, { type: 'response.output_item.added', output_index: 0,
      item: { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'run', arguments: '' } },
    { type: 'response.function_call_arguments.delta', output_index: 0, delta: '{"a":1,"b":2}' },
    { type: 'response.function_call_arguments.done', output_index: 0, arguments: '{"b":2, "a":1}' }, completed] },
  { name: 'V12: another item begins in the place of one that is done', dialect: 'responses', text: 'one two', calls: [],
    events: [created, { type: 'response.output_text.delta', output_index: 0, item_id: 'msg_1', delta: 'one' },
      { type: 'response.output_item.done', output_index: 0,
        item: { type: 'message', id: 'msg_1', content: [{ type: 'output_text', text: 'one' }] } },
      { type: 'response.output_text.delta', output_index: 0, item_id: 'msg_2', delta: ' two' },
      { type: 'response.output_text.done', output_index: 0, item_id: 'msg_2', text: ' two' }, completed] },
  { name: 'V12: a piece behind the end of its item', dialect: 'responses', text: 'one two', calls: [],
    events: [created, { type: 'response.output_text.delta', output_index: 0, item_id: 'msg_1', delta: 'one' },
      { type: 'response.output_item.done', output_index: 0,
        item: { type: 'message', id: 'msg_1', content: [{ type: 'output_text', text: 'one two' }] } },
      { type: 'response.output_text.delta', output_index: 0, item_id: 'msg_1', delta: ' two' }, completed] },
  { name: 'A4: the beginning of a call comes again behind its end', dialect: 'responses', text: '',
    calls: [{ name: 'run', input: { a: 1 } }],
    events: [created, ...['added', 'done', 'added', 'done'].map((what) => ({ type: `response.output_item.${what}`,
      output_index: 0, item: { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'run',
        arguments: '{"a":1}' } })), completed] },
  { name: 'A3: text in pieces, and a call in the whole message at the end alone', dialect: 'chat', text: 'one',
    calls: [{ name: 'run', input: { a: 1 } }],
    events: [chunk({ content: 'one' }), { ...chunk({}), choices: [{ index: 0, finish_reason: 'tool_calls',
      message: { role: 'assistant', content: 'one', ...called(0, '{"a":1}') } }] }, '[DONE]'] },
  { name: 'A11: more blocks are open than any model makes calls', dialect: 'messages',
    events: [started, ...Array.from({ length: 1001 }, (_, index) => ({ type: 'content_block_start', index,
      content_block: { type: 'tool_use', id: `toolu_${index}`, name: 'run', input: {} } })), ...ended] }
]

function written (event: Json | string): string {
  if (typeof event === 'string') return `data: ${event}\n\n`
  return `${typeof event['type'] === 'string' ? `event: ${event['type']}\n` : ''}data: ${JSON.stringify(event)}\n\n`
}

/** Asks in each style, in JSON and streams. */
async function each (
  t: Test, dialect: Style, events: readonly (Json | string)[],
  check: (answer: ClientAnswer | undefined, style: Style, stream: boolean, name: string, got: Got) => void
): Promise<void> {
  const up = await upstream(t, () => raw(events.map(written).join('')))
  for (const largeBody of [Infinity, 1]) {
    const gw = await gateway(t, stylesYaml(up.url), { largeBody })
    for (const style of styles) {
      for (const stream of [false, true]) {
        const asked = { model: `m-${dialect}`, max_tokens: 1000, stream, messages: [{ role: 'user', content: 'Go' }] }
        const got = await ask(gw.url + clientStyles[style].path, clientStyles[style].asking(asked),
          { headers: { authorization: `Bearer ${KEY}` } })
        check(readAnswer(style, stream, got), style, stream,
          `${style}, ${stream ? 'stream' : 'JSON'}, ${largeBody === 1 ? 'thread' : 'loop'}`, got)
      }
    }
  }
}

for (const { name, dialect, events, text, calls } of cases) {
  t.test(name, async (t) => {
    await each(t, dialect, events, (answer, _style, _stream, name) => {
      const wanted = text === undefined ? undefined : { text, calls }
      t.strictSame(answer && { text: answer.text, calls: answer.calls }, wanted, name)
    })
  })
}

t.test('V10: the first of two calls is cut: no client of the Responses API gets it as one that is done', async (t) => {
  const events = [chunk(called(0, '{"a"')), chunk(called(1, '{"b":1}')), chunk({}, 'tool_calls'), '[DONE]']
  await each(t, 'chat', events, (answer, style, _stream, name, got) => {
    t.equal(answer?.stop, { messages: 'max_tokens', chat: 'length', responses: 'incomplete' }[style], name)
    if (style !== 'responses') return
    t.strictSame(got.events.filter(({ event }) => event === 'response.output_item.done'), [], name)
    t.notMatch(JSON.stringify(answer), '\\"a\\"', name)
  })
})
