// Errors of vendors in all their shapes and places, for clients of every style: before an answer has begun another
// target answers, or the client reads what is wrong with its request; behind it the answer ends with an error.
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { GatewayError } from '../../src/errors.ts'
import { dialects } from '../../src/upstream/dialects/index.ts'
import { blameFor, isPassing } from '../../src/upstream/limits/attribution.ts'
import { ask, type Got } from '../support/billing-client.ts'
import { clientStyles, codeOf, type Style, styles, toldError } from '../support/client-styles.ts'
import { type Shape, shapes } from '../support/error-shapes.ts'
import { config, exchange, services, snapshot } from '../support/exchange.ts'
import { CALM, gateway, KEY } from '../support/gateway.ts'
import { answer, json, messageEnd, messageStop, messageStart, raw, type Script, sse, status, textBlock,
  upstream } from '../support/upstream.ts'

const NAMES = ['chat', 'messages', 'responses'] as const
type Dialect = typeof NAMES[number]

const events = (...all: readonly object[]): Script => all.map((one) => raw(`data: ${JSON.stringify(one)}\n\n`))
const text = { index: 0, delta: { role: 'assistant', content: 'Once' } }
const item = { type: 'message', id: 'msg_1', role: 'assistant', status: 'in_progress', content: [] }

/** An answer that has begun, in the words of each dialect. */
const OPENING: Readonly<Record<Dialect, Script>> = {
  chat: events({ choices: [text] }),
  messages: [messageStart(), textBlock(0, 'Once')],
  responses: events({ type: 'response.created', response: { id: 'resp_1', status: 'in_progress', output: [] } },
    { type: 'response.output_item.added', output_index: 0, item },
    { type: 'response.output_text.delta', output_index: 0, content_index: 0, item_id: 'msg_1', delta: 'Once' })
}
const DONE = raw('data: [DONE]\n\n')

/** Ways in which an error comes in a stream. */
const STREAMED: Readonly<Record<string, (body: unknown) => Script>> = {
  data: (body) => raw(`data: ${JSON.stringify(body)}\n\n`),
  'data without a space, unended': (body) => raw(`data:${JSON.stringify(body)}`),
  'event: error': (body) => raw(`event: error\ndata: ${JSON.stringify(body)}\n\n`),
  'the field error': (body) => raw(`error: ${JSON.stringify(body)}\n\n`),
  'a bare line': (body) => raw(`${JSON.stringify(body)}\n\n`),
  'a bare line before [DONE]': (body) => raw(`${JSON.stringify(body)}\ndata: [DONE]\n\n`),
  'printed over many lines': (body) => raw(`${JSON.stringify(body, null, 2)}\n`)
}

interface Subject {
  /** of the vendor that fails: a request of this style, for its model of this dialect */
  send (dialect: Dialect, style: Style, stream: boolean, script: Script): Promise<Got & { readonly requests: number,
    readonly isFromOther: boolean, readonly text: string }>
}

async function start (test: Test): Promise<Subject> {
  let script: Script = []
  const failing = await upstream(test, () => script)
  const other = await upstream(test, answer('from another'))
  const gw = await gateway(test, `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
store: { driver: memory, path: ./data }
pipeline: [auth, chat-to-messages, channel-router, billing-meter, error-normalize]
upstreams:
${NAMES.map((one) => `  ${one}: { url: "${failing.url}", dialect: ${one}, ${CALM} }`).join('\n')}
  other: { url: "${other.url}", dialect: messages, ${CALM} }
models:
${NAMES.map((one) => `  - id: of-${one}
    provider: acme
    created: 2026-01-01
    context: 200000
    max_output: 64000
    channels: { premium: { price: { input: 1, output: 10 }, targets: [
      { upstream: ${one}, model: vendor-model },
      { upstream: other, model: vendor-model, priority: 1 }] } }`).join('\n')}
accounts: [{ id: acme, opening_balance_usd: 100 }]
keys: [{ id: acme-dev, account: acme, secret: ${KEY} }]
`, { isForgetful: true })
  return {
    async send (dialect, style, stream, says) {
      script = says
      const [before, others] = [failing.requests.length, other.requests.length]
      const { path, asking, textOf, wholeText } = clientStyles[style]
      const got = await ask(gw.url + path, asking({ model: `of-${dialect}`, max_tokens: 100, stream,
        messages: [{ role: 'user', content: 'Hello' }] }), { headers: { authorization: `Bearer ${KEY}` } })
      return { ...got, requests: failing.requests.length - before, isFromOther: other.requests.length > others,
        text: stream ? got.events.map(textOf).join('') : wholeText(got.body ?? {}) }
    }
  }
}

const codeIn = (got: Got): string => codeOf(toldError(got)!)

t.test('an error in every shape and place, for every dialect and client', async (t) => {
  const { send } = await start(t)
  const cases = fc.record({
    shape: fc.constantFrom(...Object.keys(shapes) as Shape[]),
    dialect: fc.constantFrom(...NAMES),
    style: fc.constantFrom(...styles),
    isTooLong: fc.boolean(),
    place: fc.constantFrom(...Object.keys(STREAMED), 'JSON', 'status', 'a stream with a status'),
    stream: fc.boolean(),
    hasBegun: fc.boolean(),
    hasDone: fc.boolean()
  })
  await fc.assert(fc.asyncProperty(cases, async (one) => {
    const { shape, dialect, style, isTooLong, place } = one
    const stream = one.stream || place in STREAMED
    const code = isTooLong ? 400 : 500
    const body = shapes[shape](isTooLong ? 'prompt is too long: 9 tokens > 8 maximum' : 'out of memory', code)
    const streamed = STREAMED[place]
    const hasBegun = streamed !== undefined && one.hasBegun
    const end = one.hasDone && !place.endsWith('unended') ? [DONE] : []
    const script: Script = streamed !== undefined
      ? [...(hasBegun ? [OPENING[dialect]].flat() : []), ...[streamed(body)].flat(), ...end]
      : place === 'JSON' ? json(body)
      : place === 'status' ? json(body, code)
      : [status(code, { 'content-type': 'text/event-stream' }), raw(`event: error\ndata: ${JSON.stringify(body)}\n\n`)]
    const got = await send(dialect, style, stream, script)
    assert.equal(got.requests, 1)
    if (hasBegun) {
      assert.ok(clientStyles[style].isFailed(got.events), JSON.stringify(got.events))
      assert.equal(got.text, 'Once')
      assert.equal(codeIn(got), isTooLong && style === 'responses' ? 'context_length_exceeded'
        : 'upstream_stream_interrupted')
      assert.equal(got.isFromOther, false)
    } else if (isTooLong) {
      assert.deepEqual([got.status, codeIn(got), got.isFromOther], [400, 'context_length_exceeded', false])
    } else assert.deepEqual([got.status, got.text, got.isFromOther], [200, 'from another', true])
  }), { numRuns: 300 })
})

t.test('A5: a failure in an unknown format, then [DONE], is no answer', async (t) => {
  const { send } = await start(t)
  const failures = ['data: {"object":"error","message":"out of memory","code":500}\n\n',
    'error: {"code":500,"message":"out of memory","type":"server_error"}\n\n', 'error: out of memory\n\n',
    'event: error\ndata: out of memory\n\n', 'event: error\n\n', '{"error":"out of memory"}\n\n',
    'data: {"detail":"out of memory"}\n\n', 'data: {"type":"error"}\n\n',
    'data: [{"error":{"code":500,"message":"out of memory","status":"INTERNAL"}}]\n\n']
  for (const dialect of NAMES) {
    for (const style of styles) {
      for (const failure of failures) {
        const got = await send(dialect, style, true, [OPENING[dialect], raw(failure), DONE].flat())
        const name = `${dialect}, ${style}, ${failure}`
        t.ok(clientStyles[style].isFailed(got.events), name)
        t.equal(codeIn(got), 'upstream_stream_interrupted', name)
        t.strictSame([got.requests, got.isFromOther, got.text], [1, false, 'Once'], name)
      }
    }
  }
})

/** As Anthropic streams a turn whose calls were made by a program of the model's. */
const WHOLE_START = sse('message_start', { type: 'message_start', message: { id: 'msg_1', type: 'message',
  role: 'assistant', model: 'v', content: [{ type: 'tool_use', id: 'toolu_1', name: 'f', input: { a: 1 } }],
  stop_reason: 'tool_use', stop_sequence: null, usage: { input_tokens: 0, output_tokens: 0 } } })

t.test('A5: text and the mark of the end, with neither a finish reason nor usage', async (t) => {
  const { send } = await start(t)
  const its = { name: 'f', arguments: '{"a":1}' }
  const call = { index: 0, delta: { tool_calls: [{ index: 0, id: 'c', function: its }] } }
  const usage = { choices: [], usage: { prompt_tokens: 5, completion_tokens: 1, total_tokens: 6 } }
  for (const style of styles) {
    const { isFailed, isEnded } = clientStyles[style]
    for (const [dialect, script] of [['chat', [OPENING.chat, DONE]], ['chat', [events({ choices: [call] }), DONE]],
      ['messages', [OPENING.messages, messageStop()]]] as const) {
      const got = await send(dialect, style, true, script.flat())
      t.ok(isFailed(got.events), `${style}, ${dialect}`)
      t.equal(codeIn(got), 'stream_incomplete', `${style}, ${dialect}`)
      t.strictSame([got.requests, got.isFromOther], [1, false])
    }
    for (const [dialect, script] of [['chat', [OPENING.chat, events(usage), DONE]],
      ['chat', [OPENING.chat, events({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }), DONE]],
      ['messages', [OPENING.messages, messageEnd()]], ['messages', [WHOLE_START, messageStop()]]] as const) {
      const got = await send(dialect, style, true, script.flat())
      t.ok(isEnded(got.events), `${style}, ${dialect}: ${JSON.stringify(got.events.at(-1))}`)
      t.equal(toldError(got), undefined)
    }
  }
})

const google = (code: number, state: string, message: string, ...details: readonly object[]): unknown =>
  [{ error: { code, message, status: state, details } }]
const RETRY = { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '37s' }

t.test('A6: errors wrapped in an array', async (t) => {
  const { send } = await start(t)
  for (const style of styles) {
    for (const stream of [true, false]) {
      const wrong = await send('chat', style, stream, json(google(400, 'INVALID_ARGUMENT', 'top_k is odd'), 400))
      t.match(wrong, { status: 400, isFromOther: false, requests: 1 })
      t.equal(codeIn(wrong), 'invalid_request')
      t.match(JSON.stringify(wrong.body), /top_k is odd/)
      const inPlace = await send('chat', style, stream, json(google(400, 'INVALID_ARGUMENT', 'top_k is odd')))
      t.match(inPlace, { status: 400, requests: 1 }, 'in a 200')
      const limited = await send('chat', style, stream, json(google(429, 'RESOURCE_EXHAUSTED', 'quota', RETRY), 429))
      t.match(limited, { status: 200, text: 'from another', isFromOther: true })
    }
  }
  const named = new GatewayError('upstream_error')
  const blame = (code: number, body: unknown): unknown =>
    blameFor({ kind: 'status', status: code, headers: {}, body }, named, () => 0)
  const inStream = (body: unknown): unknown => blameFor({ kind: 'error_event', body }, named, () => 0)
  const denied = google(403, 'PERMISSION_DENIED', 'Your project has been denied access')
  t.strictSame([blame(403, denied), inStream(denied)], Array.from({ length: 2 },
    () => ({ who: 'credential', why: 'forbidden' })), 'a 403 cools down its credential')
  const limit = google(429, 'RESOURCE_EXHAUSTED', 'quota', RETRY)
  t.strictSame([blame(429, limit), inStream(limit)], Array.from({ length: 2 },
    () => ({ who: 'credential', why: 'limited', pause: 37_000 })), 'retryDelay is its Retry-After')
  const key = google(400, 'INVALID_ARGUMENT', 'API key not valid. Please pass a valid API key.')
  t.strictSame([blame(400, key), inStream(key)], Array.from({ length: 2 },
    () => ({ who: 'credential', why: 'bad_key' })))
})

t.test('A6: the client hears when to come back', async (t) => {
  const vendor = await upstream(t, json(google(429, 'RESOURCE_EXHAUSTED', 'quota', RETRY), 429))
  const gw = await gateway(t, `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
store: { driver: memory, path: ./data }
pipeline: [auth, chat-to-messages, channel-router, billing-meter, error-normalize]
upstreams: { google: { url: "${vendor.url}", dialect: chat, ${CALM} } }
models:
  - id: m1
    provider: acme
    created: 2026-01-01
    context: 200000
    max_output: 64000
    channels: { premium: { price: { input: 1, output: 10 }, targets: [{ upstream: google, model: vendor-model }] } }
accounts: [{ id: acme, opening_balance_usd: 100 }]
keys: [{ id: acme-dev, account: acme, secret: ${KEY} }]
`)
  const got = await gw.messages({ model: 'm1', max_tokens: 10, messages: [{ role: 'user', content: 'Hello' }] })
  t.equal(got.status, 503)
  const seconds = Number(got.headers.get('retry-after'))
  t.ok(seconds > 30 && seconds <= 37, String(seconds))
})

t.test('A5: an error in the place of images or of a video', async (t) => {
  const of = exchange(snapshot(config({ models: [] }), [], services()), {})
  for (const shape of Object.values(shapes)) {
    const chunks = [Buffer.from(JSON.stringify(shape('out of memory', 500)))]
    t.throws(() => dialects.images.decodeImages!(chunks, of), { message: 'the answer is an error' })
    t.throws(() => dialects.videos.decodeTask!(chunks), { message: 'the answer is an error' })
  }
  t.throws(() => dialects.videos.decodeTask!([Buffer.from('{}')]), { message: 'the answer is no video task' })
})

t.test('F3: agents find the words that they look for', async (t) => {
  const { send } = await start(t)
  const said = 'This model\'s maximum prompt length is 131072 but the request contains 537812 tokens.'
  for (const dialect of NAMES) {
    for (const style of styles) {
      for (const code of [400, 413]) {
        const got = await send(dialect, style, true, json({ code: 'invalid-argument', error: said }, code))
        t.strictSame([got.status, codeIn(got)], [400, 'context_length_exceeded'], `${dialect}, ${style}, ${code}`)
        const { message } = toldError(got) as unknown as { readonly message: string }
        t.ok(message.startsWith(`Prompt is too long: ${said}`), message)
      }
    }
  }
  const large = await send('chat', 'chat', true, json({ error: { message: 'At most 20 MB, and 600 images' } }, 413))
  t.match(JSON.stringify(large.body), /At most 20 MB, and 600 images/, 'a 413 keeps its words')
  t.equal(codeIn(large), 'request_too_large')
})

t.test('V16: what another target may do better', async (t) => {
  const { send } = await start(t)
  for (const dialect of NAMES) {
    for (const body of [{ error: { message: 'Model not found: grok-9', type: 'invalid_request_error' } },
      { error: { message: 'x is not a valid model ID', code: 400 } },
      { error: { message: 'Failed to call a function.', type: 'invalid_request_error', code: 'tool_use_failed' } }]) {
      for (const script of [json(body, 400), json(body)]) {
        t.match(await send(dialect, 'messages', false, script), { status: 200, text: 'from another', requests: 1 })
      }
    }
    const long = { error: { message: 'The total length of all messages is too long.', type: 'too_many_prompt_tokens' } }
    t.match(await send(dialect, 'messages', false, json(long, 400)), { status: 400, isFromOther: false })
  }
  const failed = { kind: 'status', status: 400, headers: {}, body: { error: { code: 'tool_use_failed' } } } as const
  const error = new GatewayError('upstream_error')
  t.ok(isPassing(failed, error), 'the same target may do better too')
  t.strictSame(blameFor(failed, error, () => 0), { who: 'nobody' })
  t.notOk(isPassing({ ...failed, body: { error: { message: 'Model not found: x' } } }, error))
})
