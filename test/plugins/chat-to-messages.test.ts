// chat-to-messages by its goldens: test/fixtures/chat holds what comes in and what goes out, side by side, written by
// hand from requests, replies and streams. Every field has a case, or this test fails.
import { Ajv } from 'ajv'
import fc, { type GeneratorValue } from 'fast-check'
import t from 'tap'
import { chatToMessages } from '../../plugins/chat-to-messages/index.ts'
import { customText, unwrapInput } from '../../src/translation/custom-input.ts'
import { grammars } from '../../src/translation/grammar.ts'
import { BLOB_BYTES, JsonGuard } from '../../src/base/json-limits.ts'
import type { BodyPieces } from '../../src/core/body-memory.ts'
import { base64In } from '../../src/core/large-strings.ts'
import type { ModelConfig } from '../../src/config/config.ts'
import { type GatewayError, isGatewayError } from '../../src/errors.ts'
import type { Routed as Exchange } from '../../src/core/endpoint.ts'
import { Model } from '../../src/core/facts.ts'
import type { StreamTransformer } from '../../src/core/plugin.ts'
import { json, type JsonReply } from '../../src/core/reply.ts'
import { checkBody } from '../../src/simulator/messages-body.ts'
import { SseDecoder, SseEvent } from '../../src/core/sse.ts'
import { dialects } from '../../src/upstream/dialects/index.ts'
import { codePoint } from '../support/code-point.ts'
import { config, exchange, model, services, snapshot, upstreamConfig, upstreamOf } from '../support/exchange.ts'
import { fixtureCases, fixtures } from '../support/fixtures.ts'

type Body = Readonly<Record<string, unknown>>

const NOW = Date.parse('2026-11-20T10:00:00.500Z')
const CREATED = NOW / 1000 - 0.5

function asked (chat: Body = {}, settings: Partial<ModelConfig> = {}, options: Body = {}): Exchange {
  const on = snapshot(
    config({ pipeline: [{ use: 'chat-to-messages', with: options }], upstreams: { u: upstreamConfig() },
      models: [model('m1', { premium: 'u/vendor-m1*1' }, { max_output: 64_000, ...settings })] }),
    [chatToMessages],
    services(() => NOW)
  )
  const made = exchange(on, { path: '/v1/chat/completions' })
  made.set(Model, on.models.get('m1')!)
  made.request = { body: { model: 'm1', max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }], ...chat },
    stream: chat.stream === true }
  return made
}

/** Runs what the plugin does with a request. */
function translate (of: Exchange): Exchange {
  for (const { call } of of.route.hooks.onRequest) void call(of)
  return of
}

/** What it is refused with. @throws whatever is no GatewayError */
function refusal (of: Exchange): GatewayError | undefined {
  try {
    translate(of)
    return undefined
  } catch (thrown) {
    if (!isGatewayError(thrown)) throw thrown
    return thrown
  }
}

function idOf (of: Exchange): string {
  return `chatcmpl-${of.id.slice('req_'.length)}`
}

// The first columns of the tables.

const B3 = [
  'system / developer messages',
  'user text',
  'consecutive same role',
  'first message is assistant',
  'empty text',
  'assistant content + tool_calls',
  'assistant refusal part',
  'assistant reasoning_content',
  'tool message',
  'tool content parts',
  'image_url http(s)',
  'image_url data:',
  'image_url.detail',
  'file',
  'input_audio',
  'max_completion_tokens, max_tokens',
  'temperature',
  'top_p',
  'models that refuse sampling params',
  'stop',
  'n',
  'tools[].function',
  'tools[].custom',
  'tool_choice none/auto/required/function',
  'parallel_tool_calls:false',
  'deprecated functions/function_call',
  'response_format json_schema',
  'response_format json_object',
  'reasoning_effort',
  'reasoning',
  'user, safety_identifier',
  'stream_options.include_usage',
  'accepted and ignored',
  'modalities with audio, web_search_options',
  'vendor extras',
  'forced tool_choice together with thinking',
  'assistant message last (prefill)'
]
const B4 = [
  'id',
  'object, created, model',
  'all text blocks',
  'thinking blocks',
  'redacted_thinking',
  'tool_use',
  'citations, server tool blocks',
  'stop_details.explanation on refusal',
  'end_turn',
  'stop_sequence',
  'max_tokens',
  'model_context_window_exceeded',
  'tool_use (reason)',
  'pause_turn',
  'refusal',
  'compaction',
  'null / unknown',
  'input + cache_creation + cache_read',
  'output_tokens',
  'sum',
  'cache_read_input_tokens',
  'cache_creation_input_tokens',
  'output_tokens_details.thinking_tokens'
]
/** But `error / cut`, which chat-sockets.test.ts has: the core says that. */
const B5 = [
  'message_start',
  'content_block_start text/thinking',
  'text_delta',
  'thinking_delta',
  'signature_delta',
  'content_block_start tool_use',
  'input_json_delta',
  'ping',
  'message_delta',
  'message_stop'
]

interface RequestCase {
  readonly case: string
  readonly row: string
  readonly model?: Partial<ModelConfig>
  readonly chat: Body
  readonly messages?: Body
  readonly error?: string
  readonly says?: string
}

/**
 * What nearly all requests have in common is not repeated in the files: "model": "m1", "max_tokens": 100, on both
 * sides.
 */
const COMMON = { model: 'm1', max_tokens: 100 }

const requests = fixtureCases<RequestCase>('chat/requests')

t.test('requests', async (t) => {
  for (const one of requests) {
    await t.test(one.case, async (t) => {
      const of = asked({ ...COMMON, ...one.chat }, one.model)
      const before = JSON.stringify(one.chat)
      if (one.error !== undefined) {
        t.match(refusal(of), { row: 'invalid_request', param: one.error, message: `${one.error} ${one.says ?? ''}` })
        return
      }
      translate(of)
      t.strictSame(of.request.body, { ...COMMON, ...one.messages })
      t.ok(checkBody(of.request.body, '2023-06-01', 'messages'), 'the simulator takes it, as the vendor would')
      t.strictSame(Object.keys(of.request.body).filter((name) => of.request.body[name] === undefined), [])
      t.equal(of.request.stream, one.chat.stream === true)
      t.equal(JSON.stringify(one.chat), before, 'what the client sent is not changed')
    })
  }
})

interface ReplyCase {
  readonly case: string
  readonly rows: readonly string[]
  readonly model?: Partial<ModelConfig>
  readonly chat?: Body
  readonly message: Body
  readonly completion: Body
}

const replies = fixtureCases<ReplyCase>('chat/replies')

async function reply (of: Exchange, first: JsonReply): Promise<JsonReply> {
  let now = first
  for (const { call } of of.route.hooks.onReply) now = (await call(now, of) ?? now) as JsonReply
  return now
}

t.test('replies', async (t) => {
  for (const one of replies) {
    await t.test(one.case, async (t) => {
      const of = translate(asked(one.chat, one.model))
      const got = await reply(of,
        json({ id: 'msg_1', type: 'message', role: 'assistant', model: 'm1', stop_sequence: null, ...one.message }, {
          'x-gateway-cost-usd': '0.1'
        }))
      t.strictSame(JSON.parse(JSON.stringify(got.body)), { id: idOf(of), object: 'chat.completion', created: CREATED,
        model: 'm1', system_fingerprint: null, ...one.completion, usage: { ...one.completion['usage'] as Body, cost: 0.1 } })
      t.strictSame(got.headers, { 'x-gateway-cost-usd': '0.1' })
      t.equal(got.status, 200)
    })
  }
})

interface StreamCase {
  readonly title: string
  readonly rows: readonly string[]
  readonly model: Partial<ModelConfig>
  readonly chat: Body
  /**
   * why an upstream that says this is not taken at its word: what reads it throws this, before anything is translated
   */
  readonly refused: string | undefined
  /** an event, and the chunks that it becomes */
  readonly steps: readonly { readonly event: string, readonly data: Body, readonly chunks: string[] }[]
}

/** See any of the files: `<` is an event, its `type` left out; `>` a chunk's delta, or what the last chunks say. */
function readStream (text: string): StreamCase {
  const [title = '', ...lines] = text.split('\n')
  const steps: { event: string, data: Body, chunks: string[] }[] = []
  let rows: string[] = []
  let model: Partial<ModelConfig> = {}
  let chat: Body = {}
  let refused: string | undefined
  for (const line of lines) {
    const [, word, rest = ''] = /^(\S+) ?(.*)$/.exec(line) ?? []
    if (word === 'rows:') rows = rest.split('; ')
    else if (word === 'model:') model = JSON.parse(rest) as Partial<ModelConfig>
    else if (word === 'chat:') chat = JSON.parse(rest) as Body
    else if (word === 'refused:') refused = rest
    else if (word === '<') {
      const [, event = '', data = ''] = /^(\w+) (.*)$/.exec(rest) ?? []
      steps.push({ event, data: { type: event, ...JSON.parse(data) as Body }, chunks: [] })
    } else if (word === '>') steps.at(-1)!.chunks.push(rest)
    else if (word !== undefined) throw new Error(`not a line of a stream: ${line}`)
  }
  return { title, rows, model, chat, refused, steps }
}

/** A chunk's whole text, from its line in the file. */
function chunkText (line: string, id: string): string {
  if (line === '[DONE]') return line
  const head = { id, object: 'chat.completion.chunk', created: CREATED, model: 'm1' }
  const [, word, rest = ''] = /^(?:(finish|usage) )?(.*)$/.exec(line)!
  const value: unknown = JSON.parse(rest)
  if (word === 'usage') return JSON.stringify({ ...head, choices: [], usage: value })
  return JSON.stringify({ ...head,
    choices: [{ index: 0, delta: word === 'finish' ? {} : value, finish_reason: word === 'finish' ? value : null }] })
}

/** As in the server: decoder, dialect, plugin. */
function feed (of: Exchange, chunks: readonly Buffer[]): string {
  const decoder = new SseDecoder()
  const decode = dialects.messages.decodeStream(of, upstreamOf(of))
  const [transformer] = of.route.hooks.onStream.flatMap(({ call }) => call(of) ?? [])
  const out: SseEvent[] = []
  for (const chunk of chunks) {
    for (const raw of decoder.push(chunk)) {
      for (const event of [decode.event(raw) ?? []].flat()) out.push(...pass(transformer!, event))
    }
  }
  return SseEvent.join([...out, ...transformer!.end?.() ?? []]).toString('utf8')
}

function pass (transformer: StreamTransformer, event: SseEvent): readonly SseEvent[] {
  const made = transformer.event(event)
  return made === undefined ? [] : made instanceof SseEvent ? [made] : made
}

const streams = fixtures('chat/streams').map(({ text }) => readStream(text))

t.test('streams', async (t) => {
  for (const one of streams) {
    await t.test(one.title, async (t) => {
      const of = translate(asked({ stream: true, ...one.chat }, one.model))
      const expected = one.steps.flatMap(({ chunks }) => chunks).map((line) => `data: ${chunkText(line, idOf(of))}\n\n`)
        .join('')

      // one by one: each event becomes the chunks below it
      const [transformer] = of.route.hooks.onStream.flatMap(({ call }) => call(of) ?? [])
      for (const { event, data, chunks } of one.steps) {
        t.strictSame(pass(transformer!, SseEvent.of(event, data)).map((chunk) => [chunk.event, chunk.data]),
          chunks.map((line) => ['', chunkText(line, idOf(of))]), `${event} ${JSON.stringify(data)}`)
      }

      const wire = one.steps.map(({ event, data }) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`).join('')
      for (const [form, bytes] of [['LF', Buffer.from(wire)], ['CRLF',
        Buffer.from(wire.replaceAll('\n', '\r\n'))]] as const) {
        if (one.refused !== undefined) {
          for (const pieces of [[bytes], [...bytes].map((byte) => Buffer.from([byte])), cutInside(bytes)]) {
            t.throws(() => feed(of, pieces), { message: one.refused }, form)
          }
          continue
        }
        t.equal(feed(of, [bytes]), expected, `whole, ${form}`)
        t.equal(feed(of, [...bytes].map((byte) => Buffer.from([byte]))), expected, `byte by byte, ${form}`)
        t.equal(feed(of, cutInside(bytes)), expected, `cut inside every character and every CR LF, ${form}`)
      }
    })
  }
})

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

t.test('every row of the tables has a case, and every case a row', async (t) => {
  const covered = (of: readonly (readonly string[])[]): string[] => [...new Set(of.flat())].sort()
  t.strictSame(covered(requests.map(({ row }) => [row])), [...B3].sort())
  t.strictSame(covered(replies.map(({ rows }) => rows)), [...B4].sort())
  t.strictSame(covered(streams.map(({ rows }) => rows)).filter((row) => !B4.includes(row)), [...B5].sort())
})

t.test('a chunk on the wire, to the byte', async (t) => {
  const of = translate(asked({ stream: true }))
  const wire = 'event: message_start\ndata: {"type":"message_start","message":{}}\n\nevent: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel\\nlo"}}\n\nevent: message_delta\ndata: {"type":"message_delta","delta":{}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
  const head = `data: {"id":"${idOf(of)}","object":"chat.completion.chunk","created":${CREATED},"model":"m1","choices":[{"index":0,"delta":`
  t.equal(feed(of, [Buffer.from(wire)]),
    `${head}{"role":"assistant","content":""},"finish_reason":null}]}\n\n${head}{"content":"Hel\\nlo"},"finish_reason":null}]}\n\n${head}{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n`)
})

t.test('what has no chat style is left alone', async (t) => {
  const on = asked().snapshot
  const messages = exchange(on)
  messages.request = { body: { model: 'm1', messages: 'as it came' }, stream: true }
  translate(messages)
  t.strictSame(messages.request.body, { model: 'm1', messages: 'as it came' })
  t.strictSame(messages.route.hooks.onStream.flatMap(({ call }) => call(messages) ?? []), [])
  const answer = json({ type: 'message', content: [] })
  t.equal(await reply(messages, answer), answer)
})

const WIRE = Buffer.from('event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":3}}}\n\n' +
  'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}\n\n' +
  'event: message_stop\ndata: {"type":"message_stop"}\n\n')

t.test('C1: a completion has system_fingerprint, which OpenRouter\'s SDK requires; chunks have none', async (t) => {
  const of = translate(asked())
  const got = await reply(of, json({ type: 'message', content: [{ type: 'text', text: 'Hi!' }] }))
  t.equal((got.body as Body)['system_fingerprint'], null)
  t.notMatch(feed(translate(asked({ stream: true })), [WIRE]), /system_fingerprint/)
})

t.test('C2: the usage of a stream, asked for as OpenRouter\'s clients do, or sent to every client', async (t) => {
  const isIn = (of: Exchange): boolean => feed(translate(of), [WIRE]).includes('"choices":[],"usage":{"prompt_tokens":3')
  t.ok(isIn(asked({ stream: true, usage: { include: true } })))
  t.notOk(isIn(asked({ stream: true, usage: { include: false } })))
  t.ok(isIn(asked({ stream: true, usage: { include: false }, stream_options: { include_usage: true } })))
  const always = { always_usage: true }
  t.ok(isIn(asked({ stream: true }, {}, always)))
  t.ok(isIn(asked({ stream: true, stream_options: { include_usage: false } }, {}, always)))
  t.notOk(isIn(asked({ stream: true })))
})

t.test('what a plugin answers in its own words is left alone, also where it answered before this one was asked', async (t) => {
  const own = json({ object: 'chat.completion', choices: [] })
  t.equal(await reply(translate(asked()), own), own)
  const early = json({ type: 'message', content: [] })
  t.equal(await reply(asked(), early), early)
})

t.test('base64 that stayed bytes is carried in its placeholder; of a text file it is read', async (t) => {
  const image = 'A'.repeat(BLOB_BYTES)
  const text = 'Ünïcode, and much of it. '.repeat(4000)
  const pdf = 'B'.repeat(BLOB_BYTES + 4)
  const of = asked()
  const sent = Buffer.from(JSON.stringify({
    ...of.request.body,
    messages: [{
      role: 'user',
      content: [
        { type: 'image_url', image_url: { url: `DATA:image/PNG;BASE64,${image}` } },
        { type: 'file',
          file: { filename: 'a.txt', file_data: `data:text/plain;base64,${Buffer.from(text).toString('base64')}` } },
        { type: 'file', file: { filename: 'a.pdf', file_data: pdf } }
      ]
    }]
  }))
  const guard = new JsonGuard()
  guard.push(sent)
  const lifted = of.blobs.lift([sent], base64In([sent], guard.longStrings)).toString()
  of.request = { body: JSON.parse(lifted) as Body, stream: false }
  t.ok(JSON.stringify(of.request.body).length < 1000)
  translate(of)
  t.ok(JSON.stringify(of.request.body).length < Buffer.byteLength(text) + 1000, 'image and PDF were not looked at')
  const toUpstream = JSON.parse(
    Buffer.concat((of.blobs.join(JSON.stringify(of.request.body)) as BodyPieces).pieces).toString()
  ) as { messages: unknown[] }
  t.strictSame(toUpstream.messages, [{
    role: 'user',
    content: [
      { type: 'image', source: { type: 'base64', media_type: 'image/png', data: image } },
      { type: 'document', source: { type: 'text', media_type: 'text/plain', data: text }, title: 'a.txt' },
      { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: pdf }, title: 'a.pdf' }
    ]
  }])
})

t.test('text files: no more than the model can read, in all of a request, and none is decoded for more', async (t) => {
  const file = (bytes: number): Body => ({
    type: 'file',
    file: { file_data: `data:text/plain;base64,${Buffer.alloc(bytes, 'a').toString('base64')}` }
  })
  const request = (context: number | undefined, ...sizes: number[]): Exchange =>
    asked({ messages: [{ role: 'user', content: sizes.map(file) }] }, context === undefined ? {} : { context })
  for (const [context, most] of [[3000, 12_000], [undefined, 2 ** 20], [1_000_000, 2 ** 20]] as const) {
    const half = Math.floor(most / 6) * 3                    // whole groups of base64
    t.equal(refusal(request(context, half, most - half - 3)), undefined)
    t.match(refusal(request(context, half, most - half + 3)), { row: 'invalid_request',
      param: 'messages[0].content[1].file.file_data', message: `${most} bytes` })
  }
  const of = request(undefined)
  const sent = Buffer.from(JSON.stringify({ messages: [{ role: 'user', content: [file(2 ** 20 + 3)] }] }))
  const guard = new JsonGuard()
  guard.push(sent)
  const lifted = of.blobs.lift([sent], base64In([sent], guard.longStrings)).toString()
  of.request = { body: JSON.parse(lifted) as Body, stream: false }
  of.blobs.restore = () => {
    throw new Error('looked into it')
  }
  t.match(refusal(of), { row: 'invalid_request', param: 'messages[0].content[0].file.file_data',
    message: '1048576 bytes' }, 'a blob too')
})

t.test('the answer tool has a name of its own, however many look like it', async (t) => {
  const names = ['json_answer', ...Array.from({ length: 20_000 }, (_, i) => `json_answer_${i + 2}`)]
  const { tools } = translate(
    asked({ tools: names.map((name) => ({ type: 'function', function: { name } })),
      response_format: { type: 'json_schema', json_schema: { name: 'a', schema: { type: 'object' } } } })
  ).request.body
  t.equal((tools as { name: string }[]).at(-1)!.name, 'json_answer_20002')
})

t.test('max_tokens that the client names are left to it: a beta of the vendor takes budgets above them', async (t) => {
  const thinking = { type: 'enabled', budget_tokens: 9000 }
  t.match(translate(asked({ max_tokens: 5000, thinking }, { thinking: 'budget' })).request.body, { max_tokens: 5000,
    thinking })
})

t.test('arguments can\'t hide what the guard of the body refuses', async (t) => {
  const call = (text: string): Exchange =>
    asked({
      messages: [{ role: 'assistant', tool_calls: [{ id: 'a', function: { name: 'f', arguments: text } }] }, {
        role: 'tool',
        tool_call_id: 'a',
        content: 'b'
      }]
    })
  t.match(refusal(call(`{"a":${'['.repeat(100_000)}${']'.repeat(100_000)}}`)), { row: 'bad_request' }, 'nesting')
  t.match(refusal(call(`{"a":[${'1,'.repeat(1_000_000)}1]}`)), { row: 'bad_request' }, 'a million values')
  t.strictSame(
    (translate(call('{"__proto__":{"a":1}}')).request.body.messages as { content: { input: object }[] }[])[0]!
      .content[0]!.input,
    JSON.parse('{"__proto__":{"a":1}}')
  )
})

t.test('a chat of a hundred thousand messages of one kind is one turn, in linear time', async (t) => {
  const of = translate(asked({
    messages: [
      { role: 'assistant', tool_calls: [{ id: 'x', function: { name: 'f' } }] },
      ...Array.from({ length: 100_000 },
        (_, i) => i % 2 === 0 ? { role: 'user', content: 'a' } : { role: 'tool', tool_call_id: 'x', content: 'b' })
    ]
  }))
  const turns = of.request.body.messages as { content: { type: string }[] }[]
  t.equal(turns.length, 2)
  t.equal(turns[1]!.content.findIndex(({ type }) => type === 'text'), 50_000)
  t.equal(
    (translate(
      asked({
        messages: [{ role: 'system', content: Array.from({ length: 200_000 }, () => ({ type: 'text', text: 'a' })) }, {
          role: 'user',
          content: 'b'
        }]
      })
    ).request.body.system as unknown[]).length,
    200_000
  )
})

t.test('the input of a custom tool is the same however its JSON was cut', async (t) => {
  fc.assert(
    fc.property(fc.string({ unit: codePoint }), fc.boolean(), fc.array(fc.nat(200), { maxLength: 10 }),
      (text, escapes, places) => {
        const whole = JSON.stringify({ input: text })
        const wire = escapes
          ? whole.replace(/[^\0-\x7F]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
          : whole
        const cuts = [0, ...places.map((place) => place % (wire.length + 1)).sort((a, b) => a - b), wire.length]
        const { push, end: rest } = unwrapInput()
        t.equal(cuts.slice(1).map((end, i) => push(wire.slice(cuts[i], end))).join('') + rest(), text)
      })
  )
  const other = fc.dictionary(fc.constantFrom('input', 'other', '__proto__'), fc.oneof(fc.string(), fc.jsonValue()))
  fc.assert(fc.property(other, fc.constantFrom('', ' ', ' '.repeat(100)), fc.nat(200), (input, space, place) => {
    const wire = space + JSON.stringify(input)
    const { push, end: rest } = unwrapInput()
    t.equal(push(wire.slice(0, place)) + push(wire.slice(place)) + rest(), customText(JSON.parse(wire)),
      'as in a reply that is JSON')
  }))
  t.throws(() => unwrapInput().push('{"input":"\\x"}'), { code: 'upstream_stream_interrupted' },
    'what is no JSON breaks the stream')
})

/** One of the schemas that take the value, written in any of the ways that libraries write it. */
function schemaOf (g: GeneratorValue, value: unknown, definitions: Record<string, Body>): Body {
  const more = (): boolean => g(fc.boolean)
  const other = { type: 'object', properties: { z: { type: 'null' } }, required: ['z'] }
  switch (g(fc.nat, 8)) {
    case 0:
      return {
        anyOf: more()
          ? [other, schemaOf(g, value, definitions)]
          : [schemaOf(g, value, definitions), { type: 'string', maxLength: 1 }],
        title: 'any'
      }
    case 1: {
      const name = `d${Object.keys(definitions).length}`
      definitions[name] = {}
      definitions[name] = schemaOf(g, value, definitions)
      return { $ref: `#/$defs/${name}`, description: 'elsewhere' }
    }
    case 2:
      if (typeof value !== 'object' || value === null) {
        return more()
          ? { const: value }
          : { enum: [value, 'else'], title: 'one of two' }
      }
  }
  const type = Array.isArray(value)
    ? 'array'
    : value === null
    ? 'null'
    : Number.isInteger(value) && more()
    ? 'integer'
    : typeof value
  return { type: more() ? type : [type, 'null'], ...shapeOf(g, value, definitions),
    ...(more() && { description: 'A value', default: null, examples: [1] }) }
}

function shapeOf (g: GeneratorValue, value: unknown, definitions: Record<string, Body>): Body {
  if (typeof value === 'string') {
    return { minLength: Math.min(value.length, 1), maxLength: value.length + 1,
      format: g(fc.constantFrom, 'phone', 'any'), pattern: '' }
  }
  if (typeof value === 'number') return { minimum: value, exclusiveMaximum: value + 1e300 }
  if (Array.isArray(value)) {
    return { items: value.length === 0 ? { type: 'null' } : { oneOf: [schemaOf(g, value[0], definitions)] },
      minItems: value.length, uniqueItems: false }
  }
  if (typeof value !== 'object' || value === null) return {}
  const names = Object.keys(value)
  return {
    properties: Object.fromEntries([
      ...Object.entries(value).map(([name, inside]) => [name, schemaOf(g, inside, definitions)] as const),
      ['optional', { type: 'string' }]
    ]),
    required: names.slice(g(fc.nat, names.length)),
    ...(g(fc.boolean) && { additionalProperties: false }),
    maxProperties: names.length
  }
}

t.test('what a schema takes its grammar takes, which has no other words than the vendor\'s', async (t) => {
  const words = new Set(['type', 'properties', 'required', 'additionalProperties', 'items', 'minItems', 'anyOf', 'enum',
    'const', 'format', 'title', 'description', '$ref', '$defs'])
  const value = fc.letrec((tie) => ({
    any: fc.oneof({ maxDepth: 3 }, fc.string({ maxLength: 5 }), fc.integer(),
      fc.double({ noNaN: true, noDefaultInfinity: true, min: -1e6, max: 1e6 }), fc.boolean(), fc.constant(null),
      tie('list'), tie('object')),
    list: fc.tuple(tie('any'), fc.nat(2)).map(([one, count]) => Array.from({ length: count }, () => one)),
    object: fc.dictionary(fc.stringMatching(/^[a-y]$/), tie('any'), { maxKeys: 3 })
  })).any
  let said = 0
  fc.assert(fc.property(value, fc.gen(), (taken, g) => {
    const definitions: Record<string, Body> = {}
    const schema = { ...schemaOf(g, taken, definitions), $defs: definitions }
    const grammar = grammars()({ $schema: 'https://json-schema.org/draft/2020-12/schema', ...schema })
    if (grammar === undefined) return
    said++
    const ajv = new Ajv({ strict: false, validateFormats: false, validateSchema: false })
    t.ok(ajv.compile(schema)(taken), 'the schema was made for it')
    t.ok(ajv.compile(grammar)(taken), JSON.stringify([schema, grammar, taken]))
    const look = (one: Body, isNames: boolean): void => {
      for (const [word, inside] of Object.entries(one)) {
        if (!isNames) t.ok(words.has(word), word)
        if (word === 'enum' || word === 'const') continue
        for (const each of Array.isArray(inside)
          ? inside
          : [inside]) {
          if (typeof each === 'object' && each !== null) {
            look(each as Body, !isNames && (word === 'properties' || word === '$defs'))
          }
        }
      }
    }
    look(grammar, false)
  }), { numRuns: 300 })
  t.ok(said > 200, `${said} of 300 had one`)
})

t.test('a grammar costs what its schema costs, however that is knotted', async (t) => {
  const property = { type: 'string', minLength: 1 }
  const wide = (width: number): Body => ({
    type: 'object',
    properties: Object.fromEntries(Array.from({ length: width }, (_, i) => [`p${i}`, property])),
    required: Array.from({ length: width }, (_, i) => `p${i}`)
  })
  t.equal(Object.keys(grammars()(wide(9999))!.properties as Body).length, 9999)
  t.equal(grammars()(wide(10_000)), undefined, 'more schemas than any vendor takes')
  const compile = grammars()
  t.same(
    [wide(6000), { type: 'array' }, wide(6000), wide(3000)].map((schema) => compile(schema) !== undefined),
    [true, false, false, true],
    'in all of a request; what fits beside the others has one'
  )
  const compileUnions = grammars()
  t.same(
    [10, 7, 6].map((length) =>
      compileUnions({ type: 'object',
        properties: Object.fromEntries(Array.from({ length }, (_, i) => [`u${i}`, { type: ['null', 'string'] }])) }) !==
        undefined
    ),
    [true, false, true],
    'unions too'
  )
  const chain = (length: number): Body => ({
    $ref: '#/$defs/d0',
    $defs: Object.fromEntries(Array.from({ length }, (_, i) => [
      `d${i}`,
      i === length - 1 ? property : { type: 'array', items: { $ref: `#/$defs/d${i + 1}` } }
    ]))
  })
  t.ok(grammars()(chain(20)), 'definitions in a row')
  t.equal(grammars()(chain(100_000)), undefined, 'more of them than the stack is deep')
  const twice = { $ref: '#/$defs/d0', $defs: Object.fromEntries(
    Array.from({ length: 15 }, (
      _,
      i
    ) => [`d${i}`, i === 14 ? property : { anyOf: Array.from({ length: 600 }, () => ({ $ref: `#/$defs/d${i + 1}` })) }])
  ) }
  t.ok(grammars()(twice), 'each is read once, though there are 600 to the 14th ways to it')
})

// A chat that the API's own SDK could send.

const name = fc.stringMatching(/^[a-z]{1,3}$/)
const text = fc.oneof(fc.constantFrom('', ' ', 'a'), fc.string())
const textPart = fc.record({ type: fc.constant('text'), text })
const userPart = fc.oneof(textPart,
  fc.record({ type: fc.constant('image_url'),
    image_url: fc.record({ url: fc.constantFrom('https://example.com/a.png', 'data:image/png;base64,AAAA') }) }))
const content = fc.oneof(text, fc.array(textPart, { maxLength: 3 }))
const turn = fc.oneof(
  fc.record({ role: fc.constantFrom('system', 'developer', 'assistant'), content }),
  fc.record({ role: fc.constant('user'), content: fc.oneof(text, fc.array(userPart, { maxLength: 3 })) }),
  // calls, and their results right behind them, as the API demands
  fc.tuple(content, fc.uniqueArray(fc.string({ minLength: 1 }), { minLength: 1, maxLength: 3 }), name,
    fc.dictionary(fc.string(), fc.jsonValue())).map(([said, ids, called, input]) => [
      { role: 'assistant', content: said,
        tool_calls: ids.map((id) => ({
          id,
          type: 'function',
          function: { name: called, arguments: JSON.stringify(input) }
        })) },
      ...ids.map((id) => ({ role: 'tool', tool_call_id: id, content: said }))
    ])
)
const tools = fc.uniqueArray(
  fc.record({ type: fc.constant('function'),
    function: fc.record({ name, parameters: fc.dictionary(fc.string(), fc.jsonValue()) }) }),
  { maxLength: 3, selector: (tool) => tool.function.name }
)
const toolFields = fc.tuple(tools, fc.constantFrom(null, 'none', 'auto', 'required', 'by name')).map(
  ([all, choice]) => {
    if (all.length === 0) return { tools: null, tool_choice: choice === 'auto' ? 'auto' : null }
    return { tools: all,
      tool_choice: choice === 'by name' ? { type: 'function', function: { name: all[0]!.function.name } } : choice }
  }
)
const chat = fc.record({
  messages: fc.array(turn, { minLength: 1, maxLength: 8 })
    .map((turns) => [...turns.flat(), { role: 'user', content: 'a' }]),
  max_tokens: fc.option(fc.integer({ min: 1, max: 64_000 })),
  temperature: fc.option(fc.constantFrom(0, 0.5, 1)),
  stop: fc.option(fc.oneof(text, fc.array(text, { maxLength: 4 }))),
  parallel_tool_calls: fc.option(fc.boolean()),
  reasoning_effort: fc.constantFrom(null, 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'),
  response_format: fc.constantFrom(null, { type: 'text' }, { type: 'json_object' }, { type: 'json_schema',
    json_schema: { name: 'a', schema: { type: 'object' } } })
})
const settings = fc.record({ sampling: fc.boolean(),
  thinking: fc.constantFrom('none' as const, 'budget' as const, 'adaptive' as const),
  structured_outputs: fc.boolean() })

t.test('of a valid chat comes what the vendor takes: the simulator checks it as the vendor does; and its turns alternate', async () => {
  fc.assert(fc.property(chat, toolFields, settings, (body, more, own) => {
    const { body: translated } = translate(asked({ ...body, ...more }, own)).request
    const { messages } = checkBody(translated, '2023-06-01', 'messages')
    for (const [i, { role }] of messages.entries()) {
      if (role === messages[i + 1]?.role) throw new Error(`two turns of the ${role}`)
    }
  }), { numRuns: 1000 })
})

t.test('whatever is sent, nothing but a GatewayError is thrown', async () => {
  const schemaWords = ['$ref', '$defs', 'anyOf', 'enum', 'properties', 'required', 'additionalProperties', 'items']
  const someSchema = fc.object({ maxDepth: 4, key: fc.constantFrom(...schemaWords, 'type', '__proto__'),
    values: [fc.constantFrom('object', 'array', 'string', '#/$defs/__proto__', '#/$defs/type', 'a'), fc.boolean(),
      fc.constant(null), fc.nat()] })
  const anything = fc.anything({
    withNullPrototype: false,
    maxDepth: 4,
    key: fc.constantFrom('role', 'content', 'type', 'text', 'image_url', 'url', 'file', 'file_data', 'function', 'name',
      'arguments', 'tool_calls', 'custom', 'id', 'input', '__proto__', 'json_schema', 'schema', 'tools', ...schemaWords)
  })
  const fields = ['messages', 'max_tokens', 'stop', 'tools', 'functions', 'function_call', 'tool_choice',
    'reasoning_effort', 'thinking', 'response_format', 'top_p', 'user', 'stream_options'] as const
  const roles = fc.constantFrom('system', 'user', 'assistant', 'tool', 'function')
  const part = fc.record({ type: fc.constantFrom('text', 'refusal', 'image_url', 'file'), text: anything,
    image_url: anything, file: anything, cache_control: anything })
  const message = fc.record({ role: roles, content: fc.oneof(anything, fc.array(part, { maxLength: 2 })),
    tool_calls: fc.oneof(anything, fc.array(anything, { maxLength: 2 })), thinking_blocks: anything,
    function_call: anything, tool_call_id: anything })
  const body = fc.record(
    Object.fromEntries(fields.map((field) => [field, field === 'messages'
      ? fc.oneof(anything, fc.array(message, { maxLength: 4 }))
      : field === 'response_format'
      ? fc.oneof(anything, someSchema.map((schema) => ({ type: 'json_schema', json_schema: { schema } })))
      : anything]
    )),
    { requiredKeys: [] }
  )
  fc.assert(fc.property(body, settings, (sent, own) => {
    refusal(asked(JSON.parse(JSON.stringify(sent)) as Body, own))
  }), { numRuns: 2000 })
})
