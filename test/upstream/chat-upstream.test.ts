// The dialect `chat` by its goldens: test/fixtures/chat-upstream holds what comes in and what goes out, side by side,
// written by hand of chat style. Every field, and every quirk seen in the wild, has a case, or this test fails.
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { chatToMessages } from '../../plugins/chat-to-messages/index.ts'
import { CHAT_DELTA, chatFields, FINISH_REASONS } from '../../src/protocols/chat.ts'
import { readFinish } from '../../src/upstream/dialects/finish.ts'
import type { ChatConfig, ModelConfig } from '../../src/config/config.ts'
import { type GatewayError, isGatewayError } from '../../src/errors.ts'
import type { Routed as Exchange } from '../../src/core/endpoint.ts'
import { Body as BodyFact, Model } from '../../src/core/facts.ts'
import { checkChat } from '../../src/simulator/chat-body.ts'
import { seededRandom } from '../../src/simulator/random.ts'
import { SseDecoder, SseEvent } from '../../src/core/sse.ts'
import type { Upstream } from '../../src/core/upstream.ts'
import { clientId, SentIds } from '../../src/upstream/dialects/call-ids.ts'
import { dialects } from '../../src/upstream/dialects/index.ts'
import { codePoint } from '../support/code-point.ts'
import { config, exchange, model, snapshot, upstreamConfig, upstreamOf } from '../support/exchange.ts'
import { fixtureCases, fixtures } from '../support/fixtures.ts'

type Body = Readonly<Record<string, unknown>>

interface Setting {
  readonly body?: Body | undefined
  /** a chat client's own */
  readonly own?: Body | undefined
  readonly model?: Partial<ModelConfig> | undefined
  readonly options?: ChatConfig | undefined
  readonly url?: string
  readonly headers?: Readonly<Record<string, string>>
}

const HELLO = [{ role: 'user', content: 'Hello' }]
const COMMON = { model: 'm1', max_tokens: 100, messages: HELLO }

function asked (
  { body = {}, own, model: settings = {}, options, url = 'http://127.0.0.1:9', headers = {} }: Setting = {}
): Exchange {
  const upstream = upstreamConfig({ dialect: 'chat', url, headers, ...(options !== undefined && { chat: options }) })
  const on = snapshot(
    config({ upstreams: { u: upstream },
      models: [model('m1', { premium: 'u/vendor-m1*1' }, { max_output: 64_000, ...settings })] }),
    [chatToMessages]
  )
  const made = exchange(on, { path: own === undefined ? '/v1/messages' : '/v1/chat/completions' })
  const sent = own === undefined ? { ...COMMON, ...body } : { model: 'm1', messages: HELLO, ...own } as Body
  made.set(BodyFact, sent)
  made.set(Model, on.models.get('m1')!)
  made.request = { body: sent, stream: sent.stream === true }
  for (const { call } of made.route.hooks.onRequest) void call(made)
  return made
}

function encode (of: Exchange): ReturnType<typeof dialects.chat.encode> {
  const sold = of.get(Model).channels.premium!
  return dialects.chat.encode(of, { upstream: 'u', model: 'vendor-m1', channel: 'premium', sold },
    of.snapshot.upstreams.get('u')!)
}

function refusal (work: () => unknown): GatewayError | undefined {
  try {
    work()
    return undefined
  } catch (thrown) {
    if (!isGatewayError(thrown)) throw thrown
    return thrown
  }
}

/** The first column of B6, requests. */
const ROWS = [
  'system string/array',
  'role system in messages',
  'text',
  'image base64',
  'image url',
  'document (PDF)',
  'assistant thinking',
  'redacted_thinking',
  'tool_use',
  'tool_result',
  'tools',
  'tool_choice',
  'max_tokens',
  'stop_sequences',
  'temperature, top_p',
  'thinking enabled',
  'output_config.format',
  'metadata.user_id',
  'stream true',
  'dropped',
  'chat client'
]

/** What B6 says of streams, and what issue 6 lists. */
const QUIRKS = [
  'text',
  'finish stop',
  'finish tool_calls',
  'finish content_filter',
  'usage in a chunk of its own',
  '[DONE]',
  'two finish chunks',
  'usage with the finish reason',
  'usage null',
  'usage in every chunk',
  'usage elsewhere',
  'usage missing',
  'no [DONE]',
  'null finish_reason',
  'incomplete',
  'empty SSE frames',
  'non-JSON lines',
  'reasoning_content',
  'reasoning',
  'content in parts',
  'tool deltas by index',
  'tool deltas that take turns',
  'whole tool call in one chunk',
  'one index for all calls',
  'tool deltas without index',
  'tool deltas without index or id',
  'tool deltas that repeat the id',
  'tool without arguments',
  'function_call',
  'error',
  'vendor-specific fields'
]

interface RequestCase extends Setting {
  readonly case: string
  readonly row: string
  readonly messages?: Body
  readonly chat?: Body
  readonly error?: string
  readonly says?: string
}

const requests = fixtureCases<RequestCase>('chat-upstream/requests')

t.test('requests', async (t) => {
  for (const one of requests) {
    await t.test(`${one.row}: ${one.case}`, async (t) => {
      const of = asked({ ...one, body: one.messages })
      const before = JSON.stringify(of.request.body)
      if (one.error !== undefined) {
        const error = refusal(() => encode(of))
        // Another target may know the words.
        t.match(error, { row: 'invalid_request', param: one.error, retryable: true })
        t.ok(error?.message.startsWith(`${one.error} ${one.says ?? ''}`), String(error?.message))
        return
      }
      const { method, path: address, body } = encode(of)
      t.strictSame([method, address], ['POST', '/v1/chat/completions'])
      const expected = { model: 'vendor-m1', messages: HELLO, max_tokens: 100, ...one.chat }
      t.strictSame(body, Object.fromEntries(Object.entries(expected).filter(([, value]) => value !== null)))
      t.ok(checkChat(body), 'the simulator takes it, as a vendor would')
      t.equal(JSON.stringify(of.request.body), before, 'what others may still read is not changed')
    })
  }
})

t.test('the address: a version in the URL is the vendor\'s own', async (t) => {
  for (const [url, address] of [
    ['https://api.openai.com', '/v1/chat/completions'],
    ['https://api.openai.com/v1', '/v1/chat/completions'],
    ['https://api.openai.com/v1/', '/v1/chat/completions'],
    ['https://api.groq.com/openai', '/openai/v1/chat/completions'],
    ['https://example.com/v1beta/openai', '/v1beta/openai/chat/completions'],
    ['https://example.com/api/paas/v4', '/api/paas/v4/chat/completions'],
    ['https://example.com/vllm', '/vllm/v1/chat/completions']
  ] as const) t.equal(encode(asked({ url })).path, address, url)
})

t.test('the head: ours and what is configured, and nothing of the client', async (t) => {
  const { headers } = encode(
    asked({ body: { stream: true }, headers: { authorization: 'Bearer secret', 'x-own': '1' } })
  )
  t.match(headers, { 'content-type': 'application/json', accept: 'text/event-stream', 'accept-encoding': 'identity',
    'user-agent': /^model-gateway\//, authorization: 'Bearer secret', 'x-own': '1' })
  t.equal(Object.keys(headers).length, 6)
  t.equal(encode(asked()).headers.accept, 'application/json')
})

t.test('ids of calls: those that others refuse are coded, and the vendor gets its own back', async (t) => {
  const [own, other] = ['own', 'other'].map((name) =>
    ({ name, config: upstreamConfig({ dialect: 'chat' }) }) as unknown as Upstream) as [Upstream, Upstream]
  const back = (id: string, to: Upstream, name = 'f'): string => new SentIds(to).call(id, name)
  t.equal(clientId('call_1-x', own), 'call_1-x')
  t.match(clientId('functions.f:0', own, 'f'), /^gwnum_[\w-]{4}_0$/)
  t.match(clientId('functions.f:0', own, 'g'), /^gwenc_/, 'another name')
  t.match(clientId('functions.f:00', own, 'f'), /^gwenc_/)
  t.match(clientId('x'.repeat(41), own), /^gwown_[\w-]{4}_x{41}$/)
  t.match(clientId('x'.repeat(5000), own), /^gwhash_/)
  t.equal(back('gwid_ZnVuY3Rpb25zLmY6MA', other), 'functions.f:0', 'of an earlier version')
  t.equal(back('gwid_YR', own), 'gwid_YR', 'what we did not make stays')
  fc.assert(fc.property(fc.string({ unit: codePoint, minLength: 1, maxLength: 80 }), fc.constantFrom('', 'functions.f:'),
    (rest, kimi) => {
      const id = kimi + rest
      const coded = clientId(id, own, 'f')
      return /^[\w-]{1,500}$/.test(coded) && (back(coded, own) === id || coded.startsWith('gwhash_')) &&
        back(coded, other).length <= 40 && back(coded, other) === back(coded, other)
    }))
  fc.assert(fc.property(fc.constantFrom('gwid_', 'gwhash_', 'gwown_', 'gwenc_', 'gwnum_', 'gwnum_abcd_', 'gwenc_abcd_'),
    fc.stringMatching(/^[\w-]{1,30}$/), (prefix, rest) => {
      const coded = clientId(prefix + rest, own)
      return coded !== prefix + rest && back(coded, own) === prefix + rest
    }))
})

interface ReplyCase {
  readonly case: string
  readonly body?: Body
  readonly choice: Body
  readonly usage?: Body
  readonly message?: Body & { readonly usage: Body }
  readonly throws?: string
}

t.test('replies', async (t) => {
  for (const one of fixtureCases<ReplyCase>('chat-upstream/replies')) {
    await t.test(one.case, async (t) => {
      const of = asked({ body: one.body })
      const decode = (): unknown =>
        dialects.chat.decodeReply({ id: 'chatcmpl-v', object: 'chat.completion', model: 'vendor-m1',
          choices: [{ index: 0, ...one.choice }], ...(one.usage !== undefined && { usage: one.usage }) },
        of, upstreamOf(of))
      if (one.throws !== undefined) {
        t.throws(decode, { message: one.throws })
        return
      }
      const text = JSON.stringify(decode()).replaceAll(of.id.slice(4), 'ID')
      const { usage, ...message } = one.message!
      const { usage: got, ...rest } = JSON.parse(text) as Body & { readonly usage: Body }
      t.strictSame(rest, { id: 'msg_ID', type: 'message', role: 'assistant', model: 'm1', stop_sequence: null,
        ...message })
      t.strictSame(got, usage)
    })
  }
})

t.test('what a vendor says beside the style reaches a client of its own style alone', async (t) => {
  const completion = {
    choices: [{ finish_reason: 'stop',
      message: { role: 'assistant', content: 'Hi', refusal: null, tool_calls: [],
        annotations: [{ type: 'url_citation' }] } }]
  }
  const chat = asked({ own: { max_tokens: 9 } })
  const message = dialects.chat.decodeReply(completion, chat, upstreamOf(chat)) as { readonly [chatFields]?: unknown }
  t.strictSame(message[chatFields], { annotations: [{ type: 'url_citation' }] })
  t.notMatch(JSON.stringify(message), /annotations/)
  const messages = asked()
  const other = dialects.chat.decodeReply(completion, messages, upstreamOf(messages))
  t.equal((other as { readonly [chatFields]?: unknown })[chatFields], undefined)
})

interface StreamCase {
  readonly title: string
  readonly rows: readonly string[]
  readonly body: Body | undefined
  readonly isChat: boolean
  /** a record's data, or the end; and the events that it becomes */
  readonly steps: readonly { readonly record: SseEvent | 'end', readonly events: string[] }[]
}

const CHUNK = { id: 'chatcmpl-v', object: 'chat.completion.chunk', created: 1, model: 'vendor-m1' }

/**
 * See any of the files: `<` is a chunk's choice, with a word behind it something else of the stream; `>` an event in
 * few words.
 */
function readStream (text: string): StreamCase {
  const [title = '', ...lines] = text.split('\n')
  const steps: { record: SseEvent | 'end', events: string[] }[] = []
  let rows: string[] = []
  let body: Body | undefined
  let isChat = false
  const add = (record: SseEvent | 'end'): void => { steps.push({ record, events: [] }) }
  for (const line of lines) {
    const [, word, rest = ''] = /^(\S+) ?(.*)$/.exec(line) ?? []
    switch (word) {
      case undefined:
        break
      case 'rows:':
        rows = rest.split('; ')
        break
      case 'body:':
        body = JSON.parse(rest) as Body
        break
      case 'client:':
        isChat = rest === 'chat'
        break
      case '<':
        add(SseEvent.of('', { ...CHUNK, choices: [{ index: 0, finish_reason: null, ...JSON.parse(rest) as Body }] }))
        break
      case '<usage':
        add(SseEvent.of('', { ...CHUNK, choices: [], usage: JSON.parse(rest) as Body }))
        break
      case '<chunk':
        add(SseEvent.of('', { ...CHUNK, ...JSON.parse(rest) as Body }))
        break
      case '<data':
        add(new SseEvent('', rest))
        break
      case '<event':
        add(new SseEvent(rest.slice(0, rest.indexOf(' ')), rest.slice(rest.indexOf(' ') + 1)))
        break
      case '<end':
        add('end')
        break
      case '>':
        steps.at(-1)!.events.push(rest)
        break
      default:
        throw new Error(`not a line of a stream: ${line}`)
    }
  }
  return { title, rows, body, isChat, steps }
}

const EMPTY: Readonly<Record<string, Body>> = { text: { type: 'text', text: '' },
  thinking: { type: 'thinking', thinking: '', signature: '' } }

/** The events that a line of a file stands for. */
function spell (line: string): string[] {
  const [word = '', at = '', ...rest] = line.split(' ')
  const index = Number(at)
  const said = rest.join(' ')
  const event = (type: string, fields: object): string[] => [SseEvent.of(type, { type, ...fields }).bytes.toString()]
  const delta = (fields: object): string[] => event('content_block_delta', { index, delta: fields })
  switch (word) {
    case 'start':
      return event('message_start', {
        message: { id: 'msg_ID', type: 'message', role: 'assistant', model: 'm1', content: [], stop_reason: null,
          stop_sequence: null, usage: {} }
      })
    case 'open':
      return event('content_block_start', { index,
        content_block: EMPTY[rest[0]!] ?? { type: 'tool_use', id: rest[1], name: rest[2], input: {} } })
    case 'text':
      return delta({ type: 'text_delta', text: JSON.parse(said) as unknown })
    case 'thought':
      return delta({ type: 'thinking_delta', thinking: JSON.parse(said) as unknown })
    case 'sign':
      return delta({ type: 'signature_delta', signature: '' })
    case 'input':
      return delta({ type: 'input_json_delta', partial_json: JSON.parse(said) as unknown })
    case 'close':
      return event('content_block_stop', { index })
    case 'own':
      return event(CHAT_DELTA, { delta: JSON.parse(line.slice(4)) as unknown })
    case 'error':
      return [SseEvent.of('error', JSON.parse(line.slice(6))).bytes.toString()]
    case 'report':
      return event('message_delta', { delta: {}, usage: spellUsage([at, ...rest]) })
    case 'end': {
      const [reason = '', sequence = null] = at.split(':')
      return [
        ...event('message_delta', { delta: { stop_reason: reason === 'null' ? null : reason, stop_sequence: sequence },
          usage: spellUsage(rest) }),
        ...event('message_stop', {})
      ]
    }
  }
  throw new Error(`not an event: ${line}`)
}

/** @param counts input, read from a cache, output, thoughts; or `none` */
function spellUsage (counts: readonly string[]): object {
  if (counts[0] === 'none') return {}
  const [input, read, output, thought] = counts.map(Number)
  return { input_tokens: input, cache_creation_input_tokens: 0, cache_read_input_tokens: read, output_tokens: output,
    ...(thought !== undefined && { output_tokens_details: { thinking_tokens: thought } }) }
}

type Made = SseEvent | readonly SseEvent[] | void

const listed = (made: Made): readonly SseEvent[] => made === undefined ? [] : made instanceof SseEvent ? [made] : made

/** As in the server: decoder, then dialect. */
function feed (of: Exchange, chunks: readonly Buffer[], hasEnd: boolean): string {
  const decoder = new SseDecoder()
  const decode = dialects.chat.decodeStream(of, upstreamOf(of))
  const out = chunks.flatMap((chunk) => decoder.push(chunk)).flatMap((raw) => listed(decode.event(raw)))
  return SseEvent.join([...out, ...hasEnd ? decode.end!() : []]).toString('utf8').replaceAll(of.id.slice(4), 'ID')
}

/** Before every byte that continues a UTF-8 character, and between every CR and its LF. */
function cutInside (bytes: Buffer): Buffer[] {
  const pieces: Buffer[] = []
  let start = 0
  for (let i = 1; i < bytes.length; i++) {
    const isInside = (bytes[i]! & 0xC0) === 0x80 || (bytes[i - 1] === 13 && bytes[i] === 10)
    if (isInside) { pieces.push(bytes.subarray(start, i)); start = i }
  }
  return [...pieces, bytes.subarray(start)]
}

const streams = fixtures('chat-upstream/streams').map(({ text }) => readStream(text))

t.test('streams', async (t) => {
  for (const { title, body, isChat, steps } of streams) {
    await t.test(title, async (t) => {
      const of = asked(isChat ? { own: { stream: true, max_tokens: 100 } } : { body: { stream: true, ...body } })
      const expected = steps.flatMap(({ events }) => events.flatMap((line) => spell(line)))

      // one by one: each record becomes the events below it
      const decode = dialects.chat.decodeStream(of, upstreamOf(of))
      for (const { record, events } of steps) {
        const made = listed(record === 'end' ? decode.end!() : decode.event(record)).map((one) =>
          one.bytes.toString().replaceAll(of.id.slice(4), 'ID')
        )
        t.strictSame(made, events.flatMap((line) => spell(line)), record === 'end' ? record : record.data)
      }

      const wire = steps.flatMap(({ record }) => record === 'end' ? [] : [record.bytes.toString()]).join('')
      const hasEnd = steps.some(({ record }) => record === 'end')
      for (const [form, bytes] of [['LF', Buffer.from(wire)], ['CRLF',
        Buffer.from(wire.replaceAll('\n', '\r\n'))]] as const) {
        t.equal(feed(of, [bytes], hasEnd), expected.join(''), `whole, ${form}`)
        t.equal(feed(of, [...bytes].map((byte) => Buffer.from([byte])), hasEnd), expected.join(''),
          `byte by byte, ${form}`)
        t.equal(feed(of, cutInside(bytes), hasEnd), expected.join(''),
          `cut inside every character and every CR LF, ${form}`)
      }
    })
  }
})

t.test('every row of the table and every quirk has a case', async (t) => {
  const covered = (of: readonly string[]): string[] => [...new Set(of.flatMap((rows) => rows.split('; ')))].sort()
  t.strictSame(covered(requests.map(({ row }) => row)), [...ROWS].sort())
  t.strictSame(covered(streams.flatMap(({ rows }) => rows)), [...QUIRKS].sort())
})

t.test('both directions know the same reasons', async (t) => {
  for (const finish of new Set(FINISH_REASONS.values())) {
    t.equal(FINISH_REASONS.get(readFinish(finish)), finish)
  }
  t.strictSame(['stop', 'length', 'tool_calls', 'content_filter'].map((finish) => readFinish(finish)), [
    'end_turn',
    'max_tokens',
    'tool_use',
    'refusal'
  ])
})

t.test('what is broken is not passed over', async (t) => {
  const read = (...data: string[]): void => {
    const of = asked({ body: { stream: true } })
    const decode = dialects.chat.decodeStream(of, upstreamOf(of))
    for (const one of data) decode.event(new SseEvent('', one))
  }
  const call = (piece: unknown): string => JSON.stringify({ choices: [{ index: 0, delta: { tool_calls: [piece] } }] })
  const finish = (reason: string): string =>
    JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: reason }] })
  t.throws(() => {
    read('{"choices":[{"ind')
  }, SyntaxError)
  t.throws(() => {
    read(call({ index: 0, id: 'a', function: { name: 'f', arguments: '{}' } }),
      call({ index: 1, id: 'b', function: { name: 'g', arguments: '{}' } }),
      call({ index: 0, function: { arguments: ' "x"' } }))
  }, /goes on behind its end/)
  t.doesNotThrow(() => {
    read(call({ index: 0, id: 'a', function: { name: 'f', arguments: '{}' } }),
      call({ index: 1, id: 'b', function: { name: 'g', arguments: '{}' } }),
      call({ index: 0, function: { arguments: ' \n' } }))
  })
  t.throws(() => {
    read(call({ index: 0, id: 'a', function: { arguments: '{}' } }), finish('stop'), '[DONE]')
  }, /a call has no name/)
  t.throws(() => {
    read(call({ index: 0, id: 'a', function: { name: 'f', arguments: '{' } }),
      call({ index: 1, id: 'b', function: { name: 'g', arguments: 'x'.repeat(5 * 1024 * 1024) } }))
  }, /characters wait/)
  const half = call({ index: 0, id: 'a', function: { name: 'f', arguments: '{"path":"/tm' } })
  t.throws(() => {
    read(half, '[DONE]')
  }, /has no end/, 'a client would run the tool')
  t.doesNotThrow(() => {
    read(half, finish('content_filter'), '[DONE]')
  }, 'the client is told why')
})

t.test('an answer has 1,000 calls at most, whatever the vendor says of them', async (t) => {
  const calls = (count: number, about: (i: number) => object): Body[] =>
    Array.from({ length: count }, (_, i) => ({ ...about(i), function: { name: 'f', arguments: `{"i":${i}}` } }))
  for (const [name, about] of [['an index', (i: number) => ({ index: i })], ['an id', (i: number) => ({ id: `c${i}` })],
    ['one id for all', () => ({ id: 'c', index: 0 })], ['nothing', () => ({})]] as const) {
    const stream = (count: number): readonly SseEvent[] => {
      const of = asked({ body: { stream: true } })
      const decode = dialects.chat.decodeStream(of, upstreamOf(of))
      const made = [{ choices: [{ index: 0, delta: { tool_calls: calls(count, about) } }] }, {
        choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }],
        usage: { prompt_tokens: 1, completion_tokens: 1 }
      }]
        .flatMap((chunk) => listed(decode.event(SseEvent.of('', chunk))))
      return [...made, ...decode.end!()]
    }
    const reply = (count: number): unknown => {
      const of = asked()
      return dialects.chat.decodeReply({
        choices: [{ finish_reason: 'tool_calls', message: { tool_calls: calls(count, about) } }]
      }, of, upstreamOf(of))
    }
    t.equal(new Set(readStrictly(stream(1000)).ids).size, 1000, name)
    t.throws(() => stream(1001), /more than 1000 calls/, name)
    t.equal(new Set((reply(1000) as { content: { id: string }[] }).content.map(({ id }) => id)).size, 1000, name)
    t.throws(() => reply(1001), /more than 1000 calls/, name)
  }
})

// The same answer, however a vendor cuts it, orders it and names its parts.

interface Answer {
  readonly thought: string
  readonly text: string
  readonly calls: readonly { readonly name: string, readonly input: Body }[]
}

interface Habits {
  readonly hasIndex: boolean
  readonly hasId: boolean
  readonly isSameIndex: boolean
  readonly inTurns: boolean
  readonly reasoning: 'reasoning' | 'reasoning_content'
  readonly usage: 'own chunk' | 'with the reason' | 'none'
  readonly isTwice: boolean
  readonly hasReason: boolean
  readonly hasDone: boolean
  readonly noise: readonly string[]
}

const key = fc.string({ unit: codePoint, maxLength: 6 })
const answers: fc.Arbitrary<Answer> = fc.record({
  thought: fc.string({ unit: codePoint, maxLength: 20 }),
  text: fc.string({ unit: codePoint, maxLength: 40 }),
  calls: fc.array(
    fc.record({ name: fc.constantFrom('f', 'g', 'h'),
      input: fc.dictionary(key, fc.oneof(fc.jsonValue({ maxDepth: 1 }), key), { maxKeys: 3 }) }),
    { maxLength: 4 }
  )
})
const habits: fc.Arbitrary<Habits> = fc.record({
  hasIndex: fc.boolean(),
  hasId: fc.boolean(),
  isSameIndex: fc.boolean(),
  inTurns: fc.boolean(),
  reasoning: fc.constantFrom('reasoning', 'reasoning_content'),
  usage: fc.constantFrom('own chunk', 'with the reason', 'none'),
  isTwice: fc.boolean(),
  hasReason: fc.boolean(),
  hasDone: fc.boolean(),
  noise: fc.array(
    fc.constantFrom('', '{}', 'keepalive', '{"choices":[]}', '{"choices":[{"index":0,"delta":{}}]}',
      '{"choices":[{"index":0,"delta":{"content":null,"tool_calls":[]},"finish_reason":null}]}'),
    { maxLength: 4 }
  )
})

/** Cuts a text into pieces, also between the halves of a character: JSON can say those. */
function piecesOf (text: string, draw: () => number): string[] {
  const pieces: string[] = []
  for (let at = 0; at < text.length;) {
    const length = 1 + Math.floor(draw() * 7)
    pieces.push(text.slice(at, at + length))
    at += length
  }
  return pieces
}

/** As a vendor with these habits streams the answer. */
function chunksOf ({ thought, text, calls }: Answer, own: Habits, draw: () => number): string[] {
  const chunk = (choice: object, more: object = {}): string =>
    JSON.stringify({ id: 'x', choices: [{ index: 0, finish_reason: null, ...choice }], ...more })
  const usage = { usage: { prompt_tokens: 11, completion_tokens: 22 } }
  // Who neither counts nor names sends one after the other: nobody could tell them apart.
  const inTurns = own.inTurns && own.hasIndex && !own.isSameIndex
  const streams = calls.map(({ name, input }, at) => {
    const head = { ...(own.hasIndex && { index: own.isSameIndex ? 0 : at }) }
    // With one index for all it is the id that tells them apart.
    const first = { ...head, ...((own.hasId || own.isSameIndex) && { id: `c${at}` }), type: 'function' }
    return piecesOf(JSON.stringify(input), draw).map((piece, i) => ({
      delta: {
        tool_calls: [
          i === 0 ? { ...first, function: { name, arguments: piece } } : { ...head, function: { arguments: piece } }
        ]
      }
    }))
  })
  const made: object[] = []
  if (inTurns) {
    made.push(...streams.flatMap((stream) => stream.shift() ?? []))
    while (streams.some(({ length }) => length > 0)) {
      made.push(streams[Math.floor(draw() * streams.length)]!.shift() ?? { delta: {} })
    }
  }
  made.push(...streams.flat())
  const reason = { delta: {}, finish_reason: calls.length > 0 ? 'tool_calls' : 'stop' }
  // One of them says that it is whole.
  const isEnded = own.hasReason || !own.hasDone || own.usage !== 'own chunk'
  return [
    chunk({ delta: { role: 'assistant', content: '' } }),
    ...piecesOf(thought, draw).map((piece) => chunk({ delta: { [own.reasoning]: piece } })),
    ...piecesOf(text, draw).map((piece) => chunk({ delta: { content: piece } })),
    ...made.map((choice) => chunk(choice)),
    ...(isEnded
      ? own.isTwice
        ? [chunk(reason), chunk(reason, own.usage === 'with the reason' ? usage : {})]
        : [chunk(reason, own.usage === 'with the reason' ? usage : {})]
      : []),
    ...(own.usage === 'own chunk' ? [JSON.stringify({ choices: [], ...usage })] : []),
    ...(own.hasDone ? ['[DONE]'] : [])
  ].flatMap((one) => [...own.noise.filter(() => draw() < 0.3), one])
}

/**
 * As a strict client reads it: one block at a time, in the order of their numbers.
 * @throws {Error} it is not what the style demands
 */
function readStrictly (
  events: readonly SseEvent[]
): Answer & { readonly usage: Body, readonly stop: unknown, readonly ids: readonly unknown[] } {
  const calls: { name: string, text: string, id: unknown }[] = []
  let open: { index: number, type: string } | undefined
  let blocks = 0
  let thought = ''
  let text = ''
  let usage: Body = {}
  let stop: unknown
  // The meter takes the reports out that come before the end.
  const sent = events.filter(({ event, data }) => event !== 'message_delta' || data.includes('"stop_reason"'))
  for (const [i, { event, data }] of sent.entries()) {
    const fields = JSON.parse(data) as Record<string, never>
    const { index, content_block: block, delta } = fields as unknown as { index: number,
      content_block: Record<string, string>, delta: Record<string, string> }
    if (
      (event === 'message_start') !== (i === 0) || (event === 'message_stop') !== (i === sent.length - 1)
    ) throw new Error(`${event} is number ${i}`)
    if (event === 'content_block_start') {
      if (open !== undefined || index !== blocks++) throw new Error('a block begins inside another, or out of order')
      open = { index, type: block['type']! }
      if (open.type === 'tool_use') calls.push({ name: block['name']!, text: '', id: block['id'] })
    } else if (event === 'content_block_delta') {
      const type =
        { text: 'text_delta', thinking: delta['type'] === 'signature_delta' ? 'signature_delta' : 'thinking_delta',
          tool_use: 'input_json_delta' }[open!.type]
      if (open?.index !== index || type !== delta['type']) {
        throw new Error('a delta of no open block, or of another kind')
      }
      thought += delta['thinking'] ?? ''
      text += delta['text'] ?? ''
      if (open.type === 'tool_use') calls.at(-1)!.text += delta['partial_json']!
    } else if (event === 'content_block_stop') {
      if (open?.index !== index) throw new Error('the end of no open block')
      open = undefined
    } else if (event === 'message_delta') { usage = fields['usage']!; stop = delta['stop_reason'] }
  }
  if (open !== undefined) throw new Error('a block never ends')
  return { thought, text, calls: calls.map((call) => ({ name: call.name, input: JSON.parse(call.text) as Body })),
    usage, stop, ids: calls.map(({ id }) => id) }
}

t.test('nothing is lost and nothing doubled, whatever the habits of a vendor', async (t) => {
  const messages = asked({ body: { stream: true } })
  const chat = asked({ own: { stream: true, max_tokens: 100 } })
  fc.assert(fc.property(answers, habits, fc.integer(), (answer, own, seed) => {
    const chunks = chunksOf(answer, own, seededRandom(seed))
    const decode = dialects.chat.decodeStream(messages, upstreamOf(messages))
    const made = chunks.flatMap((data) => listed(decode.event(new SseEvent('', data))))
    const events = [...made, ...decode.end!()]
    const { usage, stop, ids, ...got } = readStrictly(events)
    assert.deepEqual(got, { ...answer,
      calls: answer.calls.map(({ name, input }) => ({ name, input: JSON.parse(JSON.stringify(input)) as Body })) })
    assert.equal(new Set(ids).size, answer.calls.length)
    assert.equal(stop, answer.calls.length > 0 ? 'tool_use' : 'end_turn')
    if (own.usage === 'own chunk' || own.usage === 'with the reason') {
      assert.deepEqual([usage['input_tokens'], usage['output_tokens']], [11, 22])
    } else { assert.deepEqual(usage, {}) }

    // And for a chat client the same once more.
    const [transformer] = chat.route.hooks.onStream.flatMap(({ call }) => call(chat) ?? [])
    const seen = { thought: '', text: '', calls: [] as { name: string, text: string }[] }
    for (const one of [...events].flatMap((one) => listed(transformer!.event(one)))) {
      if (one.data === '[DONE]') continue
      const { choices } = JSON.parse(one.data) as {
        choices: {
          delta: { content?: string, reasoning_content?: string,
            tool_calls?: { index: number, function: { name?: string, arguments: string } }[] }
        }[]
      }
      const delta = choices[0]?.delta ?? {}
      seen.thought += delta.reasoning_content ?? ''
      seen.text += delta.content ?? ''
      for (const { index, function: { name, arguments: piece } } of delta.tool_calls ?? []) {
        if (name !== undefined) seen.calls[index] = { name, text: '' }
        seen.calls[index]!.text += piece
      }
    }
    assert.deepEqual({ ...seen,
      calls: seen.calls.map((call) => ({ name: call.name, input: JSON.parse(call.text) as Body })) }, got)
  }), { numRuns: 300 })
  t.pass('300 answers')
})

void t.test('a thought of a chat client goes back once, with its own call, also where ids of calls come again', async (t) => {
  const call = { id: 'c1', type: 'function', function: { name: 'look', arguments: '{}' } }
  const turn = (thought?: string): Body[] => [{ role: 'assistant', tool_calls: [call],
    ...(thought !== undefined && { reasoning_content: thought }) }, { role: 'tool', tool_call_id: 'c1', content: 'x' }]
  const messages = [...HELLO, ...turn('first'), ...turn('second'), ...Array.from({ length: 100 }, () => turn()).flat()]
  const { body } = encode(asked({ own: { messages }, options: { reasoning_field: 'reasoning_content' } }))
  const sent = (body as { readonly messages: readonly Body[] }).messages
  t.equal(sent.filter(({ role }) => role === 'assistant').length, 102)
  t.strictSame(sent.flatMap(({ reasoning_content: thought }) => thought === '' ? [] : thought ?? []), ['first', 'second'])
})
