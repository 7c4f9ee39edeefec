// Requests and answers of growing size from their bytes to their bytes: for each style of clients and each dialect of
// upstreams, wide histories, lists and texts, and deep ones, cost at most n log n (rule growth).
import t from 'tap'
import { growsTooFast, type Grown } from '../support/growth.ts'
import { recall } from '../../plugins/responses-to-messages/state.ts'
import { chatToMessages } from '../../plugins/chat-to-messages/index.ts'
import { responsesToMessages } from '../../plugins/responses-to-messages/index.ts'
import { schemaValidate } from '../../plugins/schema-validate/index.ts'
import { dialectsOf } from '../../src/config/sections/dialects.ts'
import type { Routed } from '../../src/core/endpoint.ts'
import { ApiKey, Body, Model } from '../../src/core/facts.ts'
import { base64In } from '../../src/core/large-strings.ts'
import { json, type Reply } from '../../src/core/reply.ts'
import { JsonGuard } from '../../src/base/json-limits.ts'
import { parseBody } from '../../src/http/parse-body.ts'
import { encodeReply } from '../../src/pipeline/encode-reply.ts'
import type { KeptResponse } from '../../src/store/responses.ts'
import { eventsOf, readAnswer } from '../../src/upstream/dialects/whole-answer.ts'
import { SseEvent } from '../../src/core/sse.ts'
import { isGatewayError } from '../../src/errors.ts'
import { dialects } from '../../src/upstream/dialects/index.ts'
import { inputEstimate } from '../../src/tokens/bound.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { account, config, exchange, key, model, snapshot, upstreamConfig, upstreamOf } from '../support/exchange.ts'

type Json = Readonly<Record<string, unknown>>

/** Items of the smallest input; the largest one has eight times as many. */
const LEAST = 5000

const dialectNames = dialectsOf('text')
const many = <T>(size: number, make: (i: number) => T): T[] => Array.from({ length: size }, (_, i) => make(i))
const text = (i: number): string => `text ${i}`
const schema = { type: 'object', properties: { a: { type: 'string' } } }
const turn = (role: string, content: unknown): Json => ({ role, content })
/** The user and the other role by turns. */
const turns = (size: number, other: string): readonly Json[] =>
  many(size, (i) => turn(i % 2 === 0 ? 'user' : other, text(i)))
const parts = (size: number, type = 'text'): readonly Json[] => many(size, (i) => ({ type, text: text(i) }))
const HELLO = turn('user', 'hi')
const chatCall = (i: number): Json =>
  ({ id: `call_${i}`, type: 'function', function: { name: 'a', arguments: '{}' } })
const chatResult = (i: number): Json => ({ role: 'tool', tool_call_id: `call_${i}`, content: 'x' })
const chatCalls = (calls: readonly Json[]): Json => ({ role: 'assistant', content: null, tool_calls: calls })
const toolUse = { type: 'tool_use', id: 'toolu_1', name: 'a', input: {} }
const toolResult = { type: 'tool_result', tool_use_id: 'toolu_1', content: 'x' }
const marked = (i: number): Json => ({ type: 'text', text: text(i), cache_control: { type: 'ephemeral' } })
const item = (i: number): Json => ({ type: 'function_call', call_id: `call_${i}`, name: 'a', arguments: '{}' })
const output = (i: number): Json => ({ type: 'function_call_output', call_id: `call_${i}`, output: 'x' })
const tool = (name: string): Json => ({ type: 'function', name, parameters: schema, strict: false })

/** Lists within lists. */
const deep = (size: number): unknown => JSON.parse('['.repeat(size) + ']'.repeat(size)) as unknown
/** At most as deep as a body may be, and as wide as it takes. */
const trees = (size: number): unknown => many(Math.ceil(size / 40), () => deep(40))

/** Histories and lists of a style's own shape, by number of items. */
const WIDE: Readonly<Record<Style, Readonly<Record<string, (size: number) => Json>>>> = {
  messages: {
    messages: (size) => ({ messages: turns(size, 'assistant') }),
    'messages of one role': (size) => ({ messages: turns(size, 'user') }),
    'blocks of a message': (size) => ({ messages: [turn('user', parts(size))] }),
    'blocks of the system': (size) => ({ system: parts(size) }),
    'system turns': (size) => ({ messages: [HELLO, ...turns(size, 'system')] }),
    tools: (size) => ({ tools: many(size, (i) => ({ name: `tool_${i}`, input_schema: schema })) }),
    'calls of one turn': (size) => ({ messages: [HELLO,
      turn('assistant', many(size, (i) => ({ type: 'tool_use', id: `toolu_${i}`, name: 'a', input: {} }))),
      turn('user',
        many(size, (i) => ({ type: 'tool_result', tool_use_id: `toolu_${size - i - 1}`, content: 'x' })))] }),
    'marks after a result': (size) => ({ messages: [HELLO, turn('assistant', [toolUse]), turn('user', [toolResult]),
      ...many(size, (i) => turn('user', [marked(i)]))] }),
    'marks after a call': (size) => ({ messages: [HELLO, turn('assistant', [toolUse]),
      ...many(size, (i) => turn('assistant', [marked(i)])), turn('user', [toolResult])] }),
    'stop sequences': (size) => ({ stop_sequences: many(size, text) }),
    'results within results': (size) => ({ messages: [HELLO,
      turn('assistant', [{ type: 'tool_use', id: 'toolu_1', name: 'a', input: { deep: trees(size) } }]),
      turn('user', [{ type: 'tool_result', tool_use_id: 'toolu_1', content: parts(size) }])] })
  },
  chat: {
    messages: (size) => ({ messages: turns(size, 'assistant') }),
    'system messages': (size) => ({ messages: turns(size, 'system') }),
    'parts of a message': (size) => ({ messages: [turn('user', parts(size))] }),
    tools: (size) => ({ tools: many(size, (i) => ({ type: 'function', function: { name: `tool_${i}`,
      parameters: schema } })) }),
    'calls and results': (size) => ({ messages: [HELLO, chatCalls(many(size, chatCall)),
      ...many(size, (i) => chatResult(size - i - 1))] }),
    'turns with a call': (size) => ({ messages: [HELLO,
      ...many(size, (i) => [chatCalls([chatCall(i)]), chatResult(i)]).flat()] }),
    'deep arguments': (size) => ({ messages: [HELLO,
      chatCalls([{ ...chatCall(1), function: { name: 'a', arguments: JSON.stringify({ deep: trees(size) }) } }]),
      chatResult(1)] }),
    'a deep schema': (size) => ({ tools: [{ type: 'function',
      function: { name: 'a', parameters: { ...schema, examples: trees(size) } } }] })
  },
  responses: {
    items: (size) => ({ input: turns(size, 'assistant') }),
    'parts of an item': (size) => ({ input: [turn('user', parts(size, 'input_text'))] }),
    tools: (size) => ({ tools: many(size, (i) => tool(`tool_${i}`)) }),
    'tools in namespaces': (size) => ({ tools: many(size, (i) => ({ type: 'namespace', name: `space_${i}`,
      description: 'x', tools: [tool('tool')] })) }),
    'calls, then outputs': (size) => ({ input: [HELLO, ...many(size, item),
      ...many(size, (i) => output(size - i - 1))] }),
    'outputs without calls': (size) => ({ input: [HELLO, ...many(size, output)] }),
    'calls without outputs': (size) => ({ input: [HELLO, ...many(size, item)] }),
    'deep arguments': (size) => ({ input: [HELLO,
      { ...item(1), arguments: JSON.stringify({ deep: trees(size) }) }, output(1)] }),
    'reasoning items': (size) => ({ input: [HELLO,
      ...many(size, (i) => ({ type: 'reasoning', id: `rs_${i}`, summary: [], encrypted_content: 'x' }))] })
  }
}

const on = (dialect: typeof dialectNames[number]): ReturnType<typeof snapshot> => snapshot(
  config({ upstreams: { u: upstreamConfig({ dialect,
    ...(dialect === 'chat' && { chat: { after_tool: 'fold', cache_control: true } }) }) },
    models: [model('m1', { premium: 'u/vendor-m1*1' }, { max_output: 64_000 })] }),
  [schemaValidate, chatToMessages, responsesToMessages]
)

/** The bytes of a request. */
function sent (style: Style, more: Json = {}): Buffer {
  return Buffer.from(JSON.stringify({ ...clientStyles[style].asking({ model: 'm1', max_tokens: 100,
    messages: [{ role: 'user', content: 'hi' }] }), ...more }))
}

/** A request as it stands before an upstream is asked. */
async function translated (live: ReturnType<typeof snapshot>, style: Style, bytes: Buffer): Promise<Routed> {
  const made = exchange(live, { path: clientStyles[style].path })
  const guard = new JsonGuard()
  guard.push(bytes)
  const body = parseBody([bytes], base64In([bytes], guard.longStrings), made.blobs)
  made.set(ApiKey, { key: key(), account: account() })
  made.set(Body, body)
  made.set(Model, live.models.get('m1')!)
  made.request = { body, stream: false }
  for (const { call } of made.route.hooks.onRequest) await call(made)
  return made
}

function ownError (thrown: unknown): void {
  if (!isGatewayError(thrown)) throw thrown
}

async function holds (name: string, of: Omit<Grown, 'from'>): Promise<readonly string[]> {
  const found = await growsTooFast({ ...of, from: LEAST })
  return found === undefined ? [] : [`${name}: ${found}`]
}

t.test('bodies that are no requests', async (t) => {
  const ODD: Readonly<Record<string, (size: number) => string>> = {
    lists: (size) => '['.repeat(size),
    objects: (size) => '{"a":'.repeat(size),
    'keys of one object': (size) => JSON.stringify(Object.fromEntries(many(size, (i) => [text(i), i]))),
    'one text': (size) => `{"a":"${'\\"'.repeat(size * 10)}"}`,
    'many texts': (size) => JSON.stringify({ a: many(size, text) }),
    'long texts of base64': (size) => JSON.stringify({ messages: many(8, () => 'QUFB'.repeat(size * 5)) }),
    'what is no JSON': (size) => `{"a": ${' '.repeat(size * 10)}x`
  }
  const live = on('messages')
  for (const [name, input] of Object.entries(ODD)) {
    const run = async (bytes: Buffer): Promise<void> => {
      await translated(live, 'messages', bytes).catch(ownError)
    }
    t.strictSame(await holds(name, { input: (size) => Buffer.from(input(size)), run }), [], name)
  }
})

t.test('requests of each style, for each dialect', async (t) => {
  const refused = new Set<string>()
  for (const style of styles) {
    for (const dialect of dialectNames) {
      const live = on(dialect)
      const slow: string[] = []
      for (const [name, input] of Object.entries(WIDE[style])) {
        slow.push(...await holds(name, { input: (size) => sent(style, input(size)), run: async (bytes: Buffer) => {
          try {
            const made = await translated(live, style, bytes)
            inputEstimate(made)
            const sold = made.get(Model).channels.premium!
            const attempt = { upstream: 'u', model: 'vendor-m1', channel: 'premium', sold } as const
            JSON.stringify(dialects[dialect].encode(made, attempt, upstreamOf(made)).body)
          } catch (thrown) {
            if (!isGatewayError(thrown)) throw thrown
            refused.add(`${style} to ${dialect}, ${name}: ${thrown.message}`)
          }
        } }))
      }
      t.strictSame(slow, [], `${style} to ${dialect}`)
    }
  }
  t.strictSame([...refused], [], 'none is refused, so each is read to its end')
})

type Sent = readonly [event: string, data: unknown]

/** An event whose data names its type too. */
const typed = (type: string, data: Json): Sent => [type, { type, ...data }]
const START = typed('message_start', { message: { id: 'm', type: 'message', role: 'assistant', content: [],
  usage: { input_tokens: 1, output_tokens: 1 } } })
const chunk = (delta: Json): Sent => ['', { choices: [{ index: 0, delta, finish_reason: null }] }]
const added = (of: string, i: number, item: Json): Sent =>
  typed(`response.output_item.${of}`, { output_index: i, item })
const called = (i: number, more: Json): Json =>
  ({ id: `fc_${i}`, type: 'function_call', call_id: `call_${i}`, name: 'a', ...more })
/** Pieces of one text of JSON. */
const piece = (i: number): string => i === 0 ? '{"a":"' : 'xxxx'

/** What an upstream of a dialect sends, by number of events. */
const STREAMS: Readonly<Record<string, Readonly<Record<string, (size: number) => readonly Sent[]>>>> = {
  messages: {
    blocks: (size) => [START, ...many(size, (index) => [
      typed('content_block_start', { index, content_block: { type: 'text', text: '' } }),
      typed('content_block_delta', { index, delta: { type: 'text_delta', text: 'x' } }),
      typed('content_block_stop', { index })]).flat()],
    'pieces of a call': (size) => [START,
      typed('content_block_start', { index: 0, content_block: { type: 'tool_use', id: 't', name: 'a', input: {} } }),
      ...many(size, (i) =>
        typed('content_block_delta', { index: 0, delta: { type: 'input_json_delta', partial_json: piece(i) } }))]
  },
  chat: {
    texts: (size) => many(size, () => chunk({ content: 'x' })),
    calls: (size) => many(size, (i) => chunk({ tool_calls: [{ index: i, ...chatCall(i) }] })),
    'pieces of a call': (size) => many(size, (i) => chunk({ tool_calls: [{ index: 0,
      ...(i === 0 && { id: 'call_1', type: 'function' }),
      function: { ...(i === 0 && { name: 'a' }), arguments: piece(i) } }] }))
  },
  responses: {
    items: (size) => many(size, (i) => [added('added', i, called(i, { arguments: '' })),
      added('done', i, called(i, { arguments: '{}', status: 'completed' }))]).flat(),
    'pieces of a text': (size) => [
      added('added', 0, { id: 'msg_1', type: 'message', role: 'assistant', content: [] }),
      ...many(size, () => typed('response.output_text.delta', { item_id: 'msg_1', output_index: 0, content_index: 0,
        delta: 'xxxx' }))]
  }
}

t.test('streams of each dialect, for clients of each style', async (t) => {
  t.strictSame(Object.keys(STREAMS).toSorted(), [...dialectNames].toSorted(), 'each dialect has its streams: in STREAMS of this file')
  for (const dialect of dialectNames) {
    for (const style of styles) {
      const live = on(dialect)
      const slow: string[] = []
      for (const [name, stream] of Object.entries(STREAMS[dialect]!)) {
        slow.push(...await holds(name, {
          input: (size) => stream(size).map(([event, data]) => SseEvent.of(event, data as never)),
          async run (events: readonly SseEvent[]) {
            const made = await translated(live, style, sent(style))
            const decoder = dialects[dialect].decodeStream(made, upstreamOf(made))
            const { onStream } = made.route.hooks
            const transformers = onStream.map(({ call }) => call(made)).filter((one) => one !== undefined)
            try {
              for (const event of events) {
                let passed = [decoder.event(event) ?? []].flat()
                for (const one of transformers) passed = passed.flatMap((inner) => [one.event(inner) ?? []].flat())
              }
            } catch (thrown) {
              if (!/more than \d+ calls/.test(String(thrown))) throw thrown // a bound ends the answer
            }
          }
        }))
      }
      t.strictSame(slow, [], `${dialect} for ${style} clients`)
    }
  }
})

const usage = { input_tokens: 1, output_tokens: 1 }
const message = (content: unknown): Json => ({ id: 'm', type: 'message', role: 'assistant', model: 'x', content,
  stop_reason: 'end_turn', usage })
const completion = (said: Json): Json => ({ id: 'c', object: 'chat.completion', model: 'x',
  choices: [{ index: 0, message: { role: 'assistant', content: null, ...said }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 1 } })
const response = (items: readonly Json[]): Json =>
  ({ id: 'resp_1', object: 'response', status: 'completed', model: 'x', output: items, usage })
const said = (texts: readonly string[]): Json => ({ type: 'message', id: 'msg_1', role: 'assistant',
  status: 'completed', content: texts.map((one) => ({ type: 'output_text', text: one, annotations: [] })) })
const long = (size: number): string => '<think>\n"'.repeat(size)

/** Whole answers of an upstream of a dialect, by number of items. */
const ANSWERS: Readonly<Record<string, Readonly<Record<string, (size: number) => unknown>>>> = {
  messages: {
    blocks: (size) => message(parts(size)),
    calls: (size) => message(many(size, (i) => ({ type: 'tool_use', id: `toolu_${i}`, name: 'a', input: {} }))),
    'a long text': (size) => message([{ type: 'text', text: long(size) }]),
    'a deep call': (size) => message([{ type: 'tool_use', id: 'toolu_1', name: 'a', input: { deep: trees(size) } }])
  },
  chat: {
    calls: (size) => completion({ tool_calls: many(size, chatCall) }),
    'a long text': (size) => completion({ content: long(size) }),
    'parts of a text': (size) => completion({ content: parts(size) }),
    'a long thought': (size) => completion({ content: 'x', reasoning_content: long(size) }),
    'deep arguments': (size) => completion({ tool_calls: [{ ...chatCall(1),
      function: { name: 'a', arguments: JSON.stringify({ deep: trees(size) }) } }] }),
    choices: (size) => ({ ...completion({}), choices: many(size, () => ({ message: { content: 'x' } })) })
  },
  responses: {
    calls: (size) => response(many(size, (i) => called(i, { arguments: '{}', status: 'completed' }))),
    messages: (size) => response(many(size, () => said(['x']))),
    'parts of a message': (size) => response([said(many(size, text))]),
    'a long text': (size) => response([said([long(size)])]),
    reasoning: (size) => response([...many(size, (i) => ({ type: 'reasoning', id: `rs_${i}`,
      summary: [{ type: 'summary_text', text: 'x' }], encrypted_content: 'x' })), said(['x'])])
  }
}
/** The same from upstreams of every dialect. */
const ODD_ANSWERS: Readonly<Record<string, (size: number) => string>> = {
  'lists within lists': (size) => '['.repeat(size) + ']'.repeat(size),
  'objects within objects': (size) => '{"error":'.repeat(size) + '1' + '}'.repeat(size),
  'content within content': (size) => '{"content":['.repeat(size) + ']}'.repeat(size),
  'keys of one object': (size) => JSON.stringify(Object.fromEntries(many(size, (i) => [text(i), i]))),
  'lines that are no events': (size) => 'data: {}\n\n'.repeat(size),
  blanks: (size) => ' \n'.repeat(size),
  page: (size) => '<html>'.repeat(size)
}

t.test('whole answers of each dialect, for clients of each style', async (t) => {
  t.strictSame(Object.keys(ANSWERS).toSorted(), [...dialectNames].toSorted(), 'each dialect has its answers: in ANSWERS of this file')
  for (const dialect of dialectNames) {
    for (const style of styles) {
      const live = on(dialect)
      const rows = [...Object.entries(ANSWERS[dialect]!).map(([name, answer]) =>
        [name, (size: number) => JSON.stringify(answer(size)), true] as const),
      ...Object.entries(ODD_ANSWERS).map(([name, answer]) => [name, answer, false] as const)]
      const slow: string[] = []
      for (const [name, answer, isRead] of rows) {
        slow.push(...await holds(name, {
          input: (size) => Buffer.from(answer(size)),
          async run (bytes: Buffer) {
            const made = await translated(live, style, sent(style))
            const { onReply, onStream } = made.route.hooks
            try {
              let reply: Reply = json(readAnswer(bytes, made, upstreamOf(made)))
              const events = eventsOf(reply.body as Json)
              const transformers = onStream.map(({ call }) => call(made)).filter((one) => one !== undefined)
              for (const event of events) {
                let passed: readonly SseEvent[] = [event]
                for (const one of transformers) passed = passed.flatMap((inner) => [one.event(inner) ?? []].flat())
              }
              for (const { call } of onReply) reply = await call(reply, made) ?? reply
              if (reply.kind === 'json') await encodeReply(reply, made)
            } catch (thrown) {
              if (isRead && !/more than \d+ calls/.test(String(thrown))) throw thrown
            }
          }
        }))
      }
      t.strictSame(slow, [], `${dialect} for ${style} clients`)
    }
  }
})

t.test('conversations that are kept', async (t) => {
  const items = (size: number, id: string): Buffer => Buffer.from(JSON.stringify(
    many(size, (i) => ({ type: 'message', id: `msg_${id}${i}`, role: 'user', content: 'x' }))))
  const idOf = (i: number): string => `resp_${String(i).padStart(24, '0')}`
  const kept = (i: number, previous: string | null, size: number): KeptResponse => ({ id: idOf(i), created: 0, previous,
    input: items(size, idOf(i).slice(5)), response: Buffer.from(JSON.stringify(response([said(['x'])]))) })
  interface Case { readonly body: Json, readonly all: readonly KeptResponse[] }
  const CASES: Readonly<Record<string, (size: number) => Case>> = {
    'a long chain': (size) => ({ body: { input: 'x', previous_response_id: idOf(size - 1) },
      all: many(size, (i) => kept(i, i === 0 ? null : idOf(i - 1), 1)) }),
    'a wide response': (size) => ({ body: { input: 'x', previous_response_id: idOf(0) },
      all: [kept(0, null, size * 40)] }),
    'a chain that goes in circles': (size) => ({ body: { input: 'x', previous_response_id: idOf(0) },
      all: many(size, (i) => kept(i, idOf((i + 1) % size), 1)) }),
    'references to one response': (size) => ({ all: [kept(0, null, size)], body: { input: many(size * 10, (i) =>
      ({ type: 'item_reference', id: `msg_${idOf(0).slice(5)}${i % size}` })) } }),
    'references to many responses': (size) => ({ all: many(size, (i) => kept(i, null, 10)), body: { input: many(
      size * 10, (i) => ({ type: 'item_reference', id: `msg_${idOf(i % size).slice(5)}${i % 10}` })) } }),
    'references to nothing': (size) => ({ all: [],
      body: { input: many(size * 10, (i) => ({ type: 'item_reference', id: `msg_${i}` })) } })
  }
  for (const [name, input] of Object.entries(CASES)) {
    t.equal(await growsTooFast({ from: 100, input, async run ({ body, all }: Case) {
      const known = new Map(all.map((one) => [one.id, one]))
      const responses = { find: async (_account: string, id: string) => known.get(id), take () {}, give () {} }
      const made = exchange(on('messages'), { path: '/v1/responses' })
      await Promise.resolve(recall(made, body, { responses: responses as never, account: 'acme', life: 1 }))
        .catch(ownError)
    } }), undefined, name)
  }
})
