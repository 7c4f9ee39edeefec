// What an upstream may say: a right answer of its style, with members left out and spoiled, events lost, doubled and
// out of order, a head that does not fit, and bytes that are none of it.
import type { Dialect } from '../../src/config/sections/dialects.ts'
import { pieces, spoilJson, wound, type Chance } from './chance.ts'

export interface Asked {
  /** raw: of a forward route */
  readonly vendor: Dialect | 'raw'
  readonly isStream: boolean
}

type Event = readonly [name: string | undefined, data: object | string]

const USAGE = { input_tokens: 10, output_tokens: 5, cache_read_input_tokens: 0, cache_creation_input_tokens: 0,
  server_tool_use: { web_search_requests: 1 } }
const MESSAGE = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'vendor',
  content: [{ type: 'thinking', thinking: 'hm', signature: 'x' }, { type: 'text', text: 'Hello', citations: [] }, {
    type: 'tool_use',
    id: 'toolu_1',
    name: 'look',
    input: { a: 1 }
  }],
  stop_reason: 'tool_use',
  stop_sequence: null,
  usage: USAGE
}
const MESSAGE_EVENTS: readonly Event[] = [
  { type: 'message_start', message: { ...MESSAGE, content: [], stop_reason: null } },
  { type: 'ping' },
  { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
  { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Hello' } },
  { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: ' you 🎩' } },
  { type: 'content_block_stop', index: 0 },
  { type: 'content_block_start', index: 1,
    content_block: { type: 'tool_use', id: 'toolu_1', name: 'look', input: {} } },
  { type: 'content_block_delta', index: 1, delta: { type: 'input_json_delta', partial_json: '{"a":1}' } },
  { type: 'content_block_stop', index: 1 },
  { type: 'message_delta', delta: { stop_reason: 'tool_use', stop_sequence: null }, usage: USAGE },
  { type: 'message_stop' }
].map((data) => [data.type, data])

const CHAT_USAGE = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15,
  prompt_tokens_details: { cached_tokens: 2 }, completion_tokens_details: { reasoning_tokens: 1 } }
const CALL = { index: 0, id: 'call_1', type: 'function', function: { name: 'look', arguments: '{"a":1}' } }
const COMPLETION = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'vendor',
  choices: [{ index: 0,
    message: { role: 'assistant', content: 'Hello', reasoning_content: 'hm', refusal: null, tool_calls: [CALL] },
    logprobs: null, finish_reason: 'tool_calls' }],
  usage: CHAT_USAGE
}
const chunk = (
  choices: object[],
  more: object = {}
): Event => [undefined, { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'vendor', choices,
  ...more }]
const CHAT_EVENTS: readonly Event[] = [
  chunk([{ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null }]),
  chunk([{ index: 0, delta: { reasoning_content: 'hm' } }]),
  chunk([{ index: 0, delta: { content: 'Hello 🎩' }, finish_reason: null }]),
  chunk([{ index: 0, delta: { tool_calls: [{ ...CALL, function: { name: 'look', arguments: '' } }] } }]),
  chunk([{ index: 0, delta: { tool_calls: [{ index: 0, function: { arguments: '{"a":1}' } }] } }]),
  chunk([{ index: 0, delta: {}, finish_reason: 'tool_calls' }]),
  chunk([], { usage: CHAT_USAGE }),
  [undefined, '[DONE]']
]

const RESPONSE = {
  id: 'resp_1', object: 'response', status: 'completed', error: null, incomplete_details: null, model: 'vendor',
  output: [
    { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'hm' }], encrypted_content: 'gAAA',
      status: 'completed' },
    { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed',
      content: [{ type: 'output_text', text: 'Hello 🎩', annotations: [] }, { type: 'refusal', refusal: 'No' }] },
    { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'look', arguments: '{"a":1}', status: 'completed' }
  ],
  usage: { input_tokens: 10, input_tokens_details: { cached_tokens: 2, cache_write_tokens: 1 }, output_tokens: 5,
    output_tokens_details: { reasoning_tokens: 1 }, total_tokens: 15 }
}
const [THOUGHT, SAID, CALLED] = RESPONSE.output
const RESPONSE_EVENTS: readonly Event[] = [
  { type: 'response.created', response: { ...RESPONSE, status: 'in_progress', output: [], usage: null } },
  { type: 'response.output_item.added', output_index: 0, item: { ...THOUGHT, summary: [], encrypted_content: 'x' } },
  { type: 'response.reasoning_summary_part.added', item_id: 'rs_1', output_index: 0, summary_index: 0, part: {} },
  { type: 'response.reasoning_summary_text.delta', item_id: 'rs_1', output_index: 0, summary_index: 0, delta: 'hm' },
  { type: 'response.reasoning_summary_text.done', item_id: 'rs_1', output_index: 0, summary_index: 0, text: 'hm' },
  { type: 'response.output_item.done', output_index: 0, item: THOUGHT },
  { type: 'response.output_item.added', output_index: 1, item: { ...SAID, content: [] } },
  { type: 'response.output_text.delta', item_id: 'msg_1', output_index: 1, content_index: 0, delta: 'Hello 🎩' },
  { type: 'response.output_text.done', item_id: 'msg_1', output_index: 1, content_index: 0, text: 'Hello 🎩' },
  { type: 'response.refusal.delta', item_id: 'msg_1', output_index: 1, content_index: 1, delta: 'No' },
  { type: 'response.output_item.done', output_index: 1, item: SAID },
  { type: 'response.output_item.added', output_index: 2, item: { ...CALLED, arguments: '' } },
  { type: 'response.function_call_arguments.delta', item_id: 'fc_1', output_index: 2, delta: '{"a":1}' },
  { type: 'response.function_call_arguments.done', item_id: 'fc_1', output_index: 2, arguments: '{"a":1}' },
  { type: 'response.output_item.done', output_index: 2, item: CALLED },
  { type: 'response.completed', response: RESPONSE }
].map((data) => [data.type, data])

const IMAGES = { created: 1, data: [{ b64_json: 'iVBORw0KGgo=', revised_prompt: 'x' }], size: '1024x1024',
  usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 } }
const VIDEO = { id: 'video_1', object: 'video', model: 'vendor', status: 'queued', progress: 0, created_at: 1,
  completed_at: null, expires_at: null, prompt: 'x', size: '1280x720', seconds: '4', error: null }
const WRONG = [{ type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }, {
  error: { message: 'no', type: 'x', code: null }
}, { status: 'failed', error: { code: 'slow_down', message: 'no' } }, { error: 'no' }, { detail: [] }, {}]

/** What lies between two records: nothing of it is one. */
const BETWEEN = ['', '', '', '', ': comment\n\n', '\n', '\n\n\n', 'id: 1\nretry: 5\n', 'data\n\n', 'data:\n\n',
  'event: ping\ndata: {}\n\n', 'event: future\ndata: {"type":"future"}\n\n',
  'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"no"}}\n\n',
  'data: {"error":{"message":"no"}}\n\n', 'data: {"type":"response.failed","response":{}}\n\n',
  'nonsense\n', '\uFEFF', '\0', 'data: ' + 'x'.repeat(100_000) + '\n\n']

function stream (chance: Chance, all: readonly Event[]): Buffer {
  const events = [...all]
  for (let left = chance.below(4); left > 0; left--) {
    const at = chance.below(events.length)
    chance.of([
      () => { events.splice(at, 1) },
      () => { events.splice(at, 0, chance.of(all)) },
      () => { events.splice(at, 0, ...events.splice(chance.below(events.length), 1)) },
      () => { events.length = at },
      () => { events.push(...all.slice(at)) }
    ])()
  }
  const end = chance.mostly(0.9, '\n', ['\r\n', '\r'])
  return Buffer.from(events.map(([name, data]) => {
    const text = typeof data === 'string' ? data : chance.is(0.15) ? spoilJson(chance, data, 1) : JSON.stringify(data)
    const first = name === undefined || chance.is(0.03)
      ? ''
      : `event:${chance.mostly(0.97, ' ', ['', '  '])}${chance.mostly(0.97, name, ['ping', 'error', '', 'message'])}${end}`
    return `${first}data: ${text}${end}${chance.mostly(0.98, end, ['', `data: x${end}${end}`])}${chance.mostly(0.95, '', BETWEEN)}`
  }).join(''))
}

function json (chance: Chance, body: object): Buffer {
  return Buffer.from(chance.is(0.8) ? spoilJson(chance, body) : JSON.stringify(body))
}

/** What each kind of upstream says. */
const BODIES: Readonly<Record<Asked['vendor'], (chance: Chance, isStream: boolean) => Buffer>> = {
  messages: (chance, isStream) => isStream ? stream(chance, MESSAGE_EVENTS) : json(chance, MESSAGE),
  chat: (chance, isStream) => isStream ? stream(chance, CHAT_EVENTS) : json(chance, COMPLETION),
  responses: (chance, isStream) => isStream ? stream(chance, RESPONSE_EVENTS) : json(chance, RESPONSE),
  images: (chance) => json(chance, IMAGES),
  videos: (chance) => json(chance, VIDEO),
  raw: (chance) => Buffer.from(chance.times(chance.below(2000), () => chance.below(256)))
}

function bodyOf (chance: Chance, { vendor, isStream }: Asked): Buffer {
  if (chance.is(0.08)) return json(chance, chance.of(WRONG))
  return BODIES[vendor](chance, isStream !== chance.is(0.03))
}

const STATUSES = ['400 Bad', '401 No', '402 Pay', '403 No', '404 Not', '408 Late', '409 X', '413 Big', '418 Tea',
  '422 X', '429 Slow', '500 X', '502 X', '503 X', '529 X', '100 Continue', '101 Switching', '103 Early', '204 None',
  '206 Part', '301 Moved', '304 Same', '99 X', '099 X', '600 X', '999 X', '200', '0 X', 'OK 200']
const HEADS = ['content-length: 5', 'content-length: 999999', 'content-length: -1', 'content-length: 5, 6',
  'transfer-encoding: chunked', 'transfer-encoding: gzip, chunked', 'content-encoding: gzip', 'content-encoding: br',
  'content-encoding: nonsense', 'connection: upgrade\r\nupgrade: websocket', 'retry-after: -1', 'retry-after: never',
  'retry-after: 99999999999', 'retry-after-ms: 1e9', 'location: http://127.0.0.1:1/', 'set-cookie: a=b', 'no colon',
  'x: ' + 'y'.repeat(20_000), 'é: é', ' folded', '\0: x', 'openai-poll-after-ms: x', 'content-type: text/html',
  'request-id: ' + 'z'.repeat(1000), 'trailer: x', 'keep-alive: timeout=0']

/** Whole on the wire, in pieces; behind the last one the connection ends. */
export function answerOf (chance: Chance, asked: Asked): Buffer[] {
  const body = bodyOf(chance, asked)
  const status = chance.mostly(0.85, '200 OK', STATUSES)
  const isChunked = chance.is(0.4)
  const type = asked.isStream
    ? 'text/event-stream'
    : asked.vendor === 'raw'
    ? 'application/octet-stream'
    : 'application/json'
  const heads = [
    `content-type: ${chance.mostly(0.95, type, ['application/json', 'text/event-stream', 'text/html', 'text/event-stream; charset=utf-16', ''])}`,
    ...(isChunked
      ? ['transfer-encoding: chunked']
      : chance.is(0.6)
        ? [`content-length: ${chance.mostly(0.9, body.length, [0, body.length - 1, body.length + 10])}`]
        : []),
    ...(chance.is(0.12) ? chance.times(chance.mostly(0.9, 1, [3, 300]), () => chance.of(HEADS)) : [])
  ]
  const framed = isChunked
    ? Buffer.concat([
      ...pieces(chance, body).flatMap((piece) => [
        Buffer.from(`${piece.length.toString(16)}\r\n`),
        piece,
        Buffer.from('\r\n')
      ]),
      Buffer.from(chance.mostly(
        0.9, '0\r\n\r\n', ['', '0\r\n', '0\r\nx: y\r\n\r\n', 'zz\r\n', '0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n']
      ))
    ])
    : body
  const whole = Buffer.concat([
    Buffer.from(
      `${chance.mostly(0.98, 'HTTP/1.1', ['HTTP/1.0', 'HTTP/2', 'ICY', ''])} ${status}\r\n${heads.map((line) => `${line}\r\n`).join('')}\r\n`,
      'latin1'
    ),
    framed
  ])
  const hurt = chance.is(0.2) ? wound(chance, whole) : whole
  return pieces(chance, chance.is(0.1) ? hurt.subarray(0, chance.below(hurt.length + 1)) : hurt)
}
