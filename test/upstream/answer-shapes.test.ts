// The shapes in which vendors really answer: a client of each style gets the whole answer, from one upstream request,
// or an error; a call is never there twice, and never half.
import t, { type Test } from 'tap'
import { type DialectOf, dialectsOf } from '../../src/config/sections/dialects.ts'
import { FINISH_REASONS } from '../../src/protocols/chat.ts'
import { readFinish } from '../../src/upstream/dialects/finish.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { gateway, type GatewayTestOptions, KEY, type TestGateway, yaml } from '../support/gateway.ts'
import { readAnswer } from '../support/read-answer.ts'
import { json, raw, type Script, upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>
type Dialect = DialectOf<'text'>

interface Expected {
  readonly text?: string
  /** of a model that does not want to, in the words of OpenAI's styles */
  readonly refusal?: string
  readonly inputs?: readonly Json[]
  /** in the words of messages style */
  readonly stop?: string
}

interface Shape {
  readonly name: string
  readonly dialect: Dialect
  readonly stream?: readonly (Json | string)[]
  readonly reply?: Json
  /** absent: it is broken, and no client takes it for an answer */
  readonly expected?: Expected
}

const USAGE = { prompt_tokens: 20, completion_tokens: 5, total_tokens: 25 }
const USED = { input_tokens: 20, output_tokens: 5 }
const DONE = '[DONE]'

// Chat style.

const choice = (delta: Json, more: Json = {}): Json => ({ index: 0, delta, finish_reason: null, ...more })
const chunk = (...choices: readonly Json[]): Json => ({ id: 'c', object: 'chat.completion.chunk', created: 1, choices })
const said = (delta: Json): Json => chunk(choice(delta))
const over = (finish: unknown, more: Json = {}): readonly (Json | string)[] =>
  [chunk(choice({}, { finish_reason: finish, ...more })), { ...chunk(), usage: USAGE }, DONE]
const piece = (args: string, more: Json = {}): Json => said({ tool_calls: [{ index: 0, function: { arguments: args },
  ...more }] })
const begin = (args: string, more: Json = {}): Json => said({ tool_calls: [called(args, more)] })
const called = (args: unknown, more: Json = {}): Json =>
  ({ index: 0, id: 'call_1', type: 'function', function: { name: 'run', arguments: args }, ...more })
const completion = (choices: readonly Json[], more: Json = {}): Json =>
  ({ id: 'c', object: 'chat.completion', created: 1, choices, usage: USAGE, ...more })
const whole = (message: Json, finish: unknown = 'stop', more: Json = {}): Json =>
  completion([{ index: 0, message: { role: 'assistant', content: null, ...message }, finish_reason: finish, ...more }])

// Messages style.

const start = (id: unknown = 'msg_a'): Json => ({ type: 'message_start', message: { id, type: 'message',
  role: 'assistant', content: [], stop_reason: null, stop_sequence: null,
  usage: { input_tokens: 20, output_tokens: 1 } } })
const block = (index: number, content_block: Json): Json => ({ type: 'content_block_start', index, content_block })
const tool = (index: number, id = 'toolu_1'): Json => block(index, { type: 'tool_use', id, name: 'run', input: {} })
const input = (index: number, partial_json: string): Json =>
  ({ type: 'content_block_delta', index, delta: { type: 'input_json_delta', partial_json } })
const words = (index: number, text: string): readonly Json[] =>
  [block(index, { type: 'text', text: '' }),
    { type: 'content_block_delta', index, delta: { type: 'text_delta', text } }, stopOf(index)]
const stopOf = (index: number): Json => ({ type: 'content_block_stop', index })
const ended = (stop: unknown, usage: unknown = { output_tokens: 5 }): readonly Json[] =>
  [{ type: 'message_delta', delta: { stop_reason: stop, stop_sequence: null }, usage }, { type: 'message_stop' }]
const message = (content: unknown, stop: unknown = 'end_turn', more: Json = {}): Json =>
  ({ id: 'msg_a', type: 'message', role: 'assistant', content, stop_reason: stop, stop_sequence: null, usage: USED,
    ...more })
const toolUse = (given: unknown, id = 'toolu_1'): Json => ({ type: 'tool_use', id, name: 'run', input: given })

// Responses style.

const item = (text: string, more: Json = {}): Json => ({ type: 'message', id: 'msg_1', role: 'assistant',
  status: 'completed', content: [{ type: 'output_text', text, annotations: [] }], ...more })
const fn = (args: string, more: Json = {}): Json =>
  ({ type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'run', status: 'completed', arguments: args, ...more })
const custom = (name: string, more: Json = {}): Json =>
  ({ type: 'custom_tool_call', id: 'ctc_1', call_id: 'call_x', name, status: 'completed', input: 'ships', ...more })
const response = (output: unknown, more: Json = {}): Json =>
  ({ id: 'resp_1', object: 'response', status: 'completed', output, usage: USED, ...more })
const event = (type: string, fields: Json): Json => ({ type: `response.${type}`, ...fields })
const delta = (text: string, more: Json = {}): Json =>
  event('output_text.delta', { output_index: 0, item_id: 'msg_1', content_index: 0, delta: text, ...more })
const completed = (output: unknown = [], more: Json = {}): Json =>
  event('completed', { response: response(output, more) })
const added = (one: Json, place = 0): Json => event('output_item.added', { output_index: place, item: one })
const done = (one: Json, place = 0): Json => event('output_item.done', { output_index: place, item: one })

const ONE: Expected = { inputs: [{ a: 1 }], stop: 'tool_use' }
const HELLO: Expected = { text: 'Hello', stop: 'end_turn' }
const torn = '{"a":'

const shapes: readonly Shape[] = [
  // A2 and V14
  { name: 'A2: no message, cut by the limit', dialect: 'chat', expected: { stop: 'max_tokens' },
    reply: completion([{ index: 0, finish_reason: 'length' }]),
    stream: [chunk({ index: 0, finish_reason: 'length' }), DONE] },
  { name: 'A2: no message, filtered', dialect: 'chat', expected: { stop: 'refusal' },
    reply: completion([{ index: 0, finish_reason: 'content_filter' }]) },
  { name: 'A2: no choice, with usage', dialect: 'chat', expected: { stop: 'end_turn' }, reply: completion([]),
    stream: [{ ...chunk(), usage: USAGE }, DONE] },
  { name: 'A2: no choices, with usage', dialect: 'chat', expected: { stop: 'end_turn' },
    reply: { id: 'c', object: 'chat.completion', usage: USAGE } },
  { name: 'A2: a message of null', dialect: 'chat', expected: { stop: 'end_turn' },
    reply: completion([{ index: 0, message: null, finish_reason: 'stop' }]) },
  { name: 'A2: a response without output', dialect: 'responses', expected: { stop: 'end_turn' },
    reply: response(undefined), stream: [event('completed', { response: response(undefined) })] },
  { name: 'A2: an incomplete response without output', dialect: 'responses', expected: { stop: 'max_tokens' },
    reply: response(undefined, { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } }) },
  { name: 'A2: a message without content', dialect: 'messages', expected: { stop: 'max_tokens' },
    reply: message(undefined, 'max_tokens') },
  { name: 'A2: a message without content and type', dialect: 'messages', expected: { stop: 'end_turn' },
    reply: message(undefined, 'end_turn', { type: undefined }) },
  { name: 'V14: nothing, with a reason', dialect: 'messages', expected: { stop: 'end_turn' },
    reply: message([]), stream: [start(), ...ended('end_turn')] },
  { name: 'V14: nothing, with a reason', dialect: 'chat', expected: { stop: 'end_turn' },
    reply: whole({ content: '' }), stream: [said({ role: 'assistant', content: '' }), ...over('stop')] },
  { name: 'V14: nothing, with a status', dialect: 'responses', expected: { stop: 'end_turn' },
    reply: response([]), stream: [completed()] },
  { name: 'A0: nothing but usage', dialect: 'messages', expected: { stop: 'end_turn' },
    reply: message([], null), stream: [start(), { type: 'message_stop' }] },
  { name: 'A0: an error that says that there is none', dialect: 'chat', expected: HELLO,
    reply: { ...whole({ content: 'Hello' }), error: { code: 200, message: 'OK' } },
    stream: [{ ...said({ content: 'Hello' }), error: { code: '0', message: 'success' } }, ...over('stop')] },
  { name: 'A0: an error that says that there is none', dialect: 'messages', expected: HELLO,
    stream: [start(), ...words(0, 'Hello').map((one) => ({ ...one, error: { code: 200 } })), ...ended('end_turn')] },
  { name: 'A0: an empty error, and no status', dialect: 'responses', expected: HELLO,
    reply: response([item('Hello')], { status: undefined, error: {} }) },

  // A3
  { name: 'A3: text in one choice, calls in the next', dialect: 'chat',
    expected: { text: 'Hello', ...ONE },
    reply: completion([{ index: 0, message: { content: 'Hello' }, finish_reason: 'tool_calls' },
      { index: 1, message: { content: null, tool_calls: [called('{"a":1}')] }, finish_reason: 'tool_calls' }]),
    stream: [said({ content: 'Hello' }), chunk(choice({ tool_calls: [called('{"a"')] }, { index: 1 })),
      chunk(choice({ tool_calls: [{ index: 0, function: { arguments: ':1}' } }] }, { index: 1 })), ...over('stop')] },
  { name: 'A3: the same, both with index 0', dialect: 'chat', expected: { text: 'Hello', ...ONE },
    reply: completion([{ index: 0, message: { content: 'Hello' }, finish_reason: 'stop' },
      { index: 0, message: { content: null, tool_calls: [called('{"a":1}')] }, finish_reason: 'tool_calls' }]),
    stream: [chunk(choice({ content: 'Hello' }), choice({ tool_calls: [called('{"a":1}')] })), ...over('tool_calls')] },
  { name: 'A3: calls of two choices at the same place, and text of the first that has any', dialect: 'chat',
    expected: { text: 'Hello', inputs: [{ a: 1 }, { b: 2 }], stop: 'tool_use' },
    reply: completion([{ index: 0, message: { content: '', tool_calls: [called('{"a":1}', { id: undefined })] } },
      { index: 1, message: { content: 'Hello', tool_calls: [called('{"b":2}', { id: undefined })] } },
      { index: 2, message: { content: 'Bye' }, finish_reason: 'stop' }]),
    stream: [chunk(choice({ tool_calls: [called(torn, { id: undefined })] }),
      choice({ content: 'Hel', tool_calls: [called('{"b":', { id: undefined })] }, { index: 1 })),
    chunk(choice({ content: 'lo', tool_calls: [{ index: 0, function: { arguments: '2}' } }] }, { index: 1 }),
      choice({ content: 'Bye' }, { index: 2 })), piece('1}'), ...over('stop')] },

  // A4
  { name: 'A4: a call that is there twice', dialect: 'chat', expected: ONE,
    reply: whole({ tool_calls: [called('{"a":1}'), called('{"a": 1}')] }, 'tool_calls'),
    stream: [begin('{"a"'), piece(':1}'), begin('{"a":1}'), ...over('tool_calls')] },
  { name: 'A4: a call without an id that is there twice', dialect: 'chat', expected: ONE,
    reply: whole({ tool_calls: [called('{"a":1}', { id: undefined }), called('{"a":1}', { id: '' })] }, 'tool_calls') },
  { name: 'A4: arguments that are there twice', dialect: 'chat', expected: ONE,
    reply: whole({ tool_calls: [called('{"a":1}{"a":1}')] }, 'tool_calls'),
    stream: [begin('{"a":1}{"a":1}'), ...over('tool_calls')] },
  { name: 'A4: a tail that is there twice', dialect: 'chat', expected: ONE,
    reply: whole({ tool_calls: [called('{"a":1}1}')] }, 'tool_calls'),
    stream: [begin(torn), piece('1}1}'), ...over('tool_calls')] },
  { name: 'A4: two ids are two calls', dialect: 'chat', expected: { inputs: [{ a: 1 }, { a: 1 }], stop: 'tool_use' },
    reply: whole({ tool_calls: [called('{"a":1}'), called('{"a":1}', { id: 'call_2' })] }, 'tool_calls'),
    stream: [begin('{"a":1}'), begin('{"a":1}', { id: 'call_2' }), ...over('tool_calls')] },
  { name: 'A4: other arguments behind the end', dialect: 'chat',
    reply: whole({ tool_calls: [called('{"a":1}{"a":2}')] }, 'tool_calls'),
    stream: [begin('{"a":1}{"a":2}'), ...over('tool_calls')] },
  { name: 'A4: a call that is there twice', dialect: 'messages', expected: ONE,
    reply: message([toolUse({ a: 1 }), toolUse({ a: 1 })], 'tool_use'),
    stream: [start(), tool(0), tool(0), input(0, '{"a":1}'), stopOf(0), ...ended('tool_use')] },
  { name: 'A4: doubled input', dialect: 'messages',
    stream: [start(), tool(0), input(0, '{"a":1}'), input(0, '{"a":1}'), stopOf(0), ...ended('tool_use')] },
  { name: 'A4: doubled input in one piece', dialect: 'messages',
    stream: [start(), tool(0), input(0, '{"a":1}{"a":1}'), stopOf(0), ...ended('tool_use')] },
  { name: 'A4: a call that is there twice', dialect: 'responses', expected: ONE,
    reply: response([fn('{"a":1}'), fn('{"a":1}', { id: 'fc_2' })]),
    stream: [added(fn('')), added(fn('')), done(fn('{"a":1}')), completed([fn('{"a":1}')])] },
  { name: 'A4: the input as text', dialect: 'messages', expected: ONE,
    reply: message([toolUse('{"a":1}')], 'tool_use') },

  // A11
  { name: 'A11: two messages in one', dialect: 'messages',
    stream: [start('msg_a'), tool(0), input(0, torn), start('msg_b'), tool(0, 'toolu_2'), input(0, '{"a":1}'),
      stopOf(0), ...ended('tool_use')] },
  { name: 'A11: another message behind the first block', dialect: 'messages',
    stream: [start('msg_a'), ...words(0, 'Hel'), start('msg_b'), ...words(0, 'Hello'), ...ended('end_turn')] },
  { name: 'A11: the same start inside a block', dialect: 'messages',
    stream: [start(), tool(0), input(0, torn), start(), input(0, '1}'), stopOf(0), ...ended('tool_use')] },
  { name: 'A11: the same start again', dialect: 'messages', expected: HELLO,
    stream: [start(), start(), ...words(0, 'Hello'), ...ended('end_turn')] },
  { name: 'A11: half a call under tool_use', dialect: 'messages',
    stream: [start(), tool(0), input(0, torn), stopOf(0), ...ended('tool_use')],
    reply: message([toolUse(torn)], 'tool_use') },
  { name: 'A11: half a call under end_turn, whose block never ends', dialect: 'messages',
    stream: [start(), tool(0), input(0, torn), ...ended('end_turn')] },
  { name: 'A11: half a call of a complete response', dialect: 'responses',
    reply: response([fn(torn)]), stream: [added(fn('')), done(fn(torn)), completed([fn(torn)])] },

  // A12
  { name: 'A12: a call of the vendor\'s own tool', dialect: 'responses', expected: HELLO,
    reply: response([custom('x_keyword_search'), item('Hello')]),
    stream: [added(custom('x_keyword_search', { input: '' })),
      event('custom_tool_call_input.delta', { output_index: 0, item_id: 'ctc_1', delta: 'ships' }),
      event('custom_tool_call_input.done', { output_index: 0, item_id: 'ctc_1', input: 'ships' }),
      done(custom('x_keyword_search')), delta('Hello', { output_index: 1 }), done(item('Hello'), 1),
      completed([custom('x_keyword_search'), item('Hello')])] },
  { name: 'A12: the same without its beginning', dialect: 'responses', expected: HELLO,
    stream: [event('custom_tool_call_input.delta', { output_index: 0, item_id: 'ctc_1', delta: 'ships' }),
      done(custom('x_keyword_search')), delta('Hello', { output_index: 1 }), completed()] },
  { name: 'A12: a function that nobody declared', dialect: 'responses', expected: ONE,
    reply: response([fn('{"a":1}', { name: 'walk' })]) },

  // A14 and V12
  { name: 'A14: a text that contradicts its pieces', dialect: 'responses', expected: { text: 'ab.', stop: 'end_turn' },
    stream: [delta('ab.'), event('output_text.done', { output_index: 0, content_index: 0, text: 'abc def' }),
      done(item('abc def')), completed([item('abc def')])] },
  { name: 'A14: before a piece has left', dialect: 'responses', expected: { text: 'abc def', ...ONE },
    stream: [added(fn('')), event('function_call_arguments.delta', { output_index: 0, delta: torn }),
      delta('ab.', { output_index: 1, item_id: 'msg_2' }),
      event('output_text.done', { output_index: 1, item_id: 'msg_2', content_index: 0, text: 'abc def' }),
      event('function_call_arguments.delta', { output_index: 0, delta: '1}' }), done(fn('{"a":1}')), completed()] },
  { name: 'A14: arguments in another spelling', dialect: 'responses', expected: ONE,
    stream: [added(fn('')), event('function_call_arguments.delta', { output_index: 0, delta: '{"a":1}' }),
      done(fn('{ "a": 1 }')), completed()] },
  ...[[0, 1], [1, 0], [1, 2]].map(([one, other]): Shape => ({ name: `V12: pieces of part ${one}, the end of ${other}`,
    dialect: 'responses', expected: HELLO,
    stream: [added(item('', { content: [] })), delta('Hel', { content_index: one }),
      delta('lo', { content_index: one }),
      event('output_text.done', { output_index: 0, content_index: other, text: 'Hello' }), done(item('Hello')),
      completed([item('Hello')])] })),
  { name: 'V12: an empty part before the text', dialect: 'responses', expected: HELLO,
    stream: [delta('Hello'), done(item('', { content: [{ type: 'output_text', text: '' },
      { type: 'output_text', text: 'Hello' }] })), completed()] },
  { name: 'V12: items that are counted otherwise', dialect: 'responses', expected: HELLO,
    stream: [delta('Hello'), done(item('Hello'), 1), completed([item('Hello')])] },
  { name: 'a call that only the end has', dialect: 'responses', expected: { text: 'Hello', ...ONE },
    stream: [delta('Hello'), done(item('Hello')), completed([item('Hello'), fn('{"a":1}')])] },

  // V9, V10
  { name: 'V9: a function call that says nothing', dialect: 'chat', expected: HELLO,
    reply: whole({ content: 'Hello', function_call: { name: '', arguments: '' } }),
    stream: [said({ content: 'Hello', function_call: { name: '', arguments: '' } }), ...over('stop')] },
  { name: 'V9: calls that say nothing', dialect: 'chat', expected: HELLO,
    reply: whole({ content: 'Hello', tool_calls: [called('', { id: '', function: { name: '', arguments: '' } })] }),
    stream: [said({ content: 'Hello', tool_calls: [called('', { function: { name: '', arguments: '' } })] }),
      ...over('tool_calls')] },
  ...['tool_calls', 'stop', 'length'].map((finish): Shape => ({ name: `V10: half a call under ${finish}`,
    dialect: 'chat', expected: { text: 'Hello', stop: 'max_tokens' },
    reply: whole({ content: 'Hello', tool_calls: [called(torn)] }, finish) })),
  { name: 'V10: half a call behind a whole one', dialect: 'chat', expected: { inputs: [{ a: 1 }], stop: 'max_tokens' },
    reply: whole({ tool_calls: [called('{"a":1}'), called(torn, { id: 'call_2', index: 1 })] }, 'tool_calls') },
  { name: 'V10: OpenRouter says that the limit has cut it', dialect: 'chat',
    expected: { text: 'Hello', stop: 'max_tokens' },
    reply: whole({ content: 'Hello' }, 'stop', { native_finish_reason: 'length' }),
    stream: [said({ content: 'Hello' }), ...over('stop', { native_finish_reason: 'MAX_TOKENS' })] },
  { name: 'V10: a call that its item says is incomplete', dialect: 'responses', expected: { text: 'Hello',
    stop: 'max_tokens' }, reply: response([item('Hello'), fn(torn, { status: 'incomplete' })]) },

  // V11
  { name: 'V11: a refusal', dialect: 'chat', expected: { refusal: 'I will not.' },
    reply: whole({ refusal: 'I will not.' }),
    stream: [said({ role: 'assistant', refusal: 'I will ' }), said({ refusal: 'not.' }), ...over('stop')] },
  { name: 'V11: a refusal', dialect: 'responses', expected: { refusal: 'I will not.' },
    reply: response([item('', { content: [{ type: 'refusal', refusal: 'I will not.' }] })]),
    stream: [event('refusal.delta', { output_index: 0, content_index: 0, delta: 'I will ' }),
      event('refusal.delta', { output_index: 0, content_index: 0, delta: 'not.' }),
      event('refusal.done', { output_index: 0, content_index: 0, refusal: 'I will not.' }),
      done(item('', { content: [{ type: 'refusal', refusal: 'I will not.' }] })), completed()] },

  // V13
  { name: 'V13: content that is an object', dialect: 'chat', expected: { text: '{"a":1}', stop: 'end_turn' },
    reply: whole({ content: { a: 1 } }), stream: [said({ content: { a: 1 } }), ...over('stop')] },
  { name: 'V13: content that is a list of values', dialect: 'chat', expected: { text: '[{"a":1}]', stop: 'end_turn' },
    reply: whole({ content: [{ a: 1 }] }) },
  { name: 'V13: content that is one part', dialect: 'chat', expected: HELLO,
    reply: whole({ content: { type: 'text', text: 'Hello' } }) },
  { name: 'V13: content that is an object', dialect: 'messages', expected: { text: '{"a":1}', stop: 'end_turn' },
    reply: message({ a: 1 }) },
  { name: 'V13: a text that is an object', dialect: 'messages', expected: { text: '{"a":1}', stop: 'end_turn' },
    reply: message([{ type: 'text', text: { a: 1 } }]) },
  { name: 'blocks that say nothing', dialect: 'messages', expected: HELLO,
    reply: message([null, {}, 'Hello', { type: 'tool_use', name: '', input: {} }]) },

  // The words for the end.
  { name: 'words: of chat style in a message', dialect: 'messages', expected: { text: 'Hello', stop: 'max_tokens' },
    reply: message([{ type: 'text', text: 'Hello' }], 'length'),
    stream: [start(), ...words(0, 'Hello'), ...ended('length')] },
  { name: 'words: the end of a turn with a call', dialect: 'messages', expected: ONE,
    reply: message([toolUse({ a: 1 })], 'stop'),
    stream: [start(), tool(0), input(0, '{"a":1}'), stopOf(0), ...ended('end_turn')] },
  { name: 'words: a text for null in each chunk', dialect: 'chat', expected: HELLO,
    stream: [chunk(choice({ content: 'Hel' }, { finish_reason: 'null' })),
      chunk(choice({ content: 'lo' }, { finish_reason: '' })), ...over('STOP')] },
  { name: 'words: unknown ones', dialect: 'chat', expected: HELLO, reply: whole({ content: 'Hello' }, 'sunset'),
    stream: [said({ content: 'Hello' }), ...over('sunset')] },
  { name: 'a whole message in the place of pieces', dialect: 'chat', expected: { text: 'Hello', ...ONE },
    stream: [completion([{ index: 0, message: { content: 'Hello', tool_calls: [called('{"a":1}')] },
      finish_reason: 'tool_calls' }]), DONE] }
]

function eventText (one: Json | string): string {
  return typeof one === 'string' ? `data: ${one}\n\n`
    : `${typeof one['type'] === 'string' ? `event: ${one['type']}\n` : ''}data: ${JSON.stringify(one)}\n\n`
}

const parameters = { type: 'object', properties: { a: { type: 'number' } } }
const tools: Readonly<Record<Style, readonly object[]>> = {
  messages: [{ name: 'run', input_schema: parameters }],
  chat: [{ type: 'function', function: { name: 'run', parameters } }],
  responses: [{ type: 'function', name: 'run', parameters, strict: false }]
}

interface World {
  readonly gw: TestGateway
  answers (script: Script): void
  requests (): number
}

async function startWorld (test: Test, options: GatewayTestOptions = {}, server = ''): Promise<World> {
  let script: Script = []
  const vendor = await upstream(test, () => script)
  const dialects = dialectsOf('text')
  const model = (dialect: Dialect): string => `  - { id: ${dialect}, provider: acme, created: 2025-01-01,
    context: 200000, max_output: 8192, channels: { premium: { price: { input: 1, output: 10 },
      targets: [{ upstream: ${dialect}, model: vendor }] } } }\n`
  const text = yaml([]).replace(/upstreams:\n[^]*(?=accounts:)/, `upstreams:\n${dialects.map((dialect) =>
    `  ${dialect}: { url: "${vendor.url}", dialect: ${dialect}, retries: { attempts: 2, backoff: 1ms, max_backoff: 2ms } }\n`).join('')}models:\n${
    dialects.map(model).join('')}`).replace('server:\n', `server:\n${server}`)
  const gw = await gateway(test, text, options)
  return { gw, answers (made) { script = made }, requests: () => vendor.requests.length }
}

async function send ({ gw }: World, dialect: Dialect, style: Style, stream: boolean, more: Json = {}): Promise<Got> {
  const { path, asking } = clientStyles[style]
  return await ask(gw.url + path, { ...asking({ model: dialect, max_tokens: 2000, stream,
    messages: [{ role: 'user', content: 'When does the ferry leave?' }] }), tools: tools[style], ...more },
  { headers: { authorization: `Bearer ${KEY}` } })
}

function stopFor (style: Style, stop: string): string | undefined {
  if (style === 'messages') return stop
  if (style === 'chat') return FINISH_REASONS.get(stop)
  return stop === 'max_tokens' || stop === 'refusal' ? 'incomplete' : 'completed'
}

/**
 * A refusal has a field in chat style; for the others it is text. In responses style the last call of an incomplete
 * answer is left out: whether the limit has cut it can't be told.
 */
function expectedOf ({ text = '', refusal, inputs = [], stop = 'end_turn' }: Expected, style: Style): object {
  const ending = refusal === undefined ? stop : style === 'chat' ? 'end_turn' : 'refusal'
  return { text: style === 'chat' ? text : text + (refusal ?? ''), refusal: style === 'chat' ? refusal ?? '' : '',
    inputs: style === 'responses' && stop === 'max_tokens' ? inputs.slice(0, -1) : inputs,
    stop: stopFor(style, ending) }
}

for (const [where, options, server] of [
  ['on the loop', {}, ''],
  ['in threads', { largeBody: 1 }, ''],
  ['without the fast lanes', {}, '  fast_lane: off\n']
] as const) {
  t.test(`A2, A3, A4, A11, A12, A14, V9 to V14: each shape, for each client, ${where}`, async (t) => {
    const world = await startWorld(t, options, server)
    for (const { name, dialect, stream: events, reply, expected } of shapes) {
      for (const script of [reply && json(reply), events?.map((one) => raw(eventText(one)))]) {
        if (script === undefined) continue
        for (const style of styles) {
          for (const stream of [true, false]) {
            world.gw.heal()
            world.answers(script)
            const before = world.requests()
            const got = await send(world, dialect, style, stream)
            const about = `${name} (${dialect}, ${script instanceof Array ? 'events' : 'JSON'}), for a ${style} client, ${
              stream ? 'a stream' : 'JSON'}`
            const answer = readAnswer(style, stream, got)
            if (expected === undefined) {
              t.equal(answer, undefined, `${about}: broken`)
              continue
            }
            t.equal(got.status, 200, `${about}: ${JSON.stringify(got.body ?? {}).slice(0, 300)}`)
            const { calls = [], ids: _ids, ...rest } = answer ?? {}
            t.strictSame({ ...rest, inputs: calls.map((call) => call.input) }, expectedOf(expected, style), about)
            t.equal(world.requests() - before, 1, `${about}: one upstream request`)
          }
        }
      }
    }
    t.equal(await world.gw.services.store.openHolds(), 0)
  })
}

t.test('V10: half a call that was streamed ends with the limit, and is never given as a whole one', async (t) => {
  const world = await startWorld(t)
  for (const finish of ['tool_calls', 'stop', 'length']) {
    for (const style of styles) {
      world.answers([said({ content: 'Hello' }), begin(torn), ...over(finish)].map((one) => raw(eventText(one))))
      const before = world.requests()
      const answer = readAnswer(style, true, await send(world, 'chat', style, true))
      t.match(answer, { text: 'Hello', stop: stopFor(style, 'max_tokens') }, `${finish}, ${style}`)
      t.equal(answer?.calls.some(({ input }) => typeof input === 'object'), false, `${finish}, ${style}: no whole call`)
      t.equal(world.requests() - before, 1)
    }
  }
})

t.test('A12: a tool with a text that the client has declared is called', async (t) => {
  const world = await startWorld(t)
  const declared = [{ type: 'custom', name: 'patch', description: 'Patches' }]
  for (const stream of [true, false]) {
    world.answers(stream ? [added(custom('patch', { input: '' })), done(custom('patch')), completed([custom('patch')])]
      .map((one) => raw(eventText(one))) : json(response([custom('patch')])))
    const { body, events } = await send(world, 'responses', 'responses', stream, { tools: declared })
    const { output } = (stream ? events.at(-1)!.data['response'] : body) as { output: Json[] }
    t.match(output.filter(({ type }) => type !== 'message'),
      [{ type: 'custom_tool_call', name: 'patch', input: 'ships' }])
  }
})

t.test('V11: the content of a refusal is null in JSON of chat style', async (t) => {
  const world = await startWorld(t)
  world.answers(json(whole({ refusal: 'No.' })))
  const { body } = await send(world, 'chat', 'chat', false)
  t.match(body, { choices: [{ message: { content: null, refusal: 'No.' }, finish_reason: 'stop' }] })
})

t.test('V15: fields beside the choices reach a client of chat style, and no other', async (t) => {
  const world = await startWorld(t)
  const top = { citations: ['https://harbour.example'], search_results: [{ title: 'Ferries' }], provider: 'Azure',
    prompt_filter_results: [{ prompt_index: 0 }] }
  const chunks = [said({ content: 'Hel' }), said({ content: 'lo' }), ...over('stop')]
  for (const script of [json({ ...whole({ content: 'Hello' }), ...top, internal: 'x' }),
    chunks.map((one) => raw(eventText(typeof one === 'string' ? one : { ...one, ...top, internal: 'x' })))]) {
    for (const style of styles) {
      for (const stream of [true, false]) {
        world.answers(script)
        const got = await send(world, 'chat', style, stream)
        t.match(readAnswer(style, stream, got), { text: 'Hello' })
        const text = JSON.stringify(stream ? got.events : got.body)
        t.notMatch(text, 'internal')
        if (style !== 'chat') { t.notMatch(text, /harbour|Azure/, style); continue }
        const parts = stream ? got.events.map(({ data }) => data).filter(({ citations }) => citations !== undefined)
          : [got.body ?? {}]
        t.equal(parts.length, 1, 'once')
        t.match(parts[0], top, stream ? 'a chunk' : 'JSON')
      }
    }
  }
})

t.test('one table has the vendors\' words for the end', async (t) => {
  for (const [meaning, ...all] of [['end_turn', 'stop', 'STOP', 'eos', 'end_turn', 'sunset', 7],
    ['max_tokens', 'length', 'max_tokens', 'MAX_TOKENS', 'model_length'],
    ['tool_use', 'tool_calls', 'function_call', 'tool_use'],
    ['refusal', 'content_filter', 'refusal', 'SAFETY', 'RECITATION', 'content_filter: RECITATION'],
    ['stop_sequence', 'stop_sequence'], ['pause_turn', 'pause_turn'], ['error', 'error', 'ERROR'],
    [undefined, undefined, null, '', 'null']] as const) {
    for (const word of all) t.equal(readFinish(word), meaning, String(word))
  }
})
