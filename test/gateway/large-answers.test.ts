// Large answers are read in threads: a client, the log and the money can't tell. And no answer is lost with the thread
// that had it: the next one reads it again.
import { strict as assert } from 'node:assert'
import { Worker } from 'node:worker_threads'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { guarded, LargeReply } from '../../src/core/reply-step.ts'
import { finished, gateway, KEY, messagesRequest, type TestGateway } from '../support/gateway.ts'
import { options, outcomeOf, stylesYaml } from '../support/large.ts'
import { message, raw, type Script, status, upstream } from '../support/upstream.ts'
import { until } from '../support/until.ts'

type Json = Readonly<Record<string, unknown>>

const RUNS = Number(process.env['RUNS'] ?? 150)

const optional = <T>(made: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(made, { nil: undefined, freq: 4 })
const oftenRight = <T>(made: fc.Arbitrary<T>): fc.Arbitrary<unknown> =>
  fc.oneof({ arbitrary: made as fc.Arbitrary<unknown>, weight: 40 },
    { arbitrary: fc.jsonValue({ maxDepth: 2 }), weight: 1 })
const word = fc.oneof(
  fc.constantFrom('Hello', ' ', '', 'END', 'ж "quoted" \\ \u2028', '\ud800', 'word '.repeat(70_000)),
  fc.string({ unit: 'grapheme', maxLength: 30 }))
const input = fc.oneof(fc.dictionary(word, fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3 }), fc.constant({}))
const name = fc.constantFrom('t', 'u', 'c', 'unknown', '', 'functions.t')
const id = fc.constantFrom('toolu_1', 'call:1', 'x'.repeat(90), '')
const count = oftenRight(fc.constantFrom(0, 9, 1e12, -1, 50_000, null))
const model = fc.constant('vendor')
/** of any vendor */
const error = fc.record({ type: fc.constantFrom('error', undefined),
  error: fc.record({ type: fc.constantFrom('overloaded_error', 'invalid_request_error', 'api_error'), message: word,
    code: optional(fc.constantFrom('context_length_exceeded', 'rate_limit_exceeded')) }) })

const block = fc.oneof(
  fc.record({ type: fc.constant('text'), text: word }),
  fc.record({ type: fc.constant('thinking'), thinking: word, signature: optional(fc.constantFrom('', 'EqQB')) }),
  fc.record({ type: fc.constant('redacted_thinking'), data: fc.constant('abc') }),
  fc.record({ type: fc.constant('tool_use'), id: optional(id), name, input: oftenRight(input) }),
  fc.record({ type: fc.constant('server_tool_use'), id, name: fc.constant('web_search'), input }),
  fc.record({ type: fc.constant('more'), other: fc.jsonValue({ maxDepth: 2 }) }))
const ofMessages = fc.record({ id: optional(fc.constant('msg_1')), type: optional(fc.constant('message')), model,
  content: oftenRight(fc.array(oftenRight(block), { minLength: 1, maxLength: 4 })),
  stop_sequence: optional(fc.constant('END')),
  stop_reason: optional(fc.constantFrom('end_turn', 'max_tokens', 'tool_use', 'refusal')),
  usage: optional(oftenRight(fc.record({ input_tokens: optional(count), output_tokens: optional(count),
    cache_read_input_tokens: optional(count), server_tool_use: optional(fc.constant({ web_search_requests: 2 })) }))) })
const argumentsText = fc.oneof(fc.constantFrom('', '{', 'null', '[]'), input.map((value) => JSON.stringify(value)))
const chatMessage = fc.record({ role: fc.constant('assistant'),
  content: optional(fc.oneof(word, fc.array(fc.record({ type: fc.constant('text'), text: word }), { maxLength: 2 }))),
  reasoning_content: optional(word), refusal: optional(word), annotations: optional(fc.constant([{ a: 1 }])),
  tool_calls: optional(fc.array(oftenRight(fc.record({ id, type: fc.constant('function'),
    function: fc.record({ name, arguments: argumentsText }) })), { maxLength: 3 })) })
const ofChat = fc.record({ id: fc.constant('c'), model,
  choices: oftenRight(fc.array(fc.record({ index: fc.constant(0), message: oftenRight(chatMessage),
    stop_reason: optional(fc.constant('END')),
    finish_reason: fc.constantFrom('stop', 'length', 'tool_calls', 'content_filter', null, 'error') }),
  { minLength: 1, maxLength: 1 })),
  usage: optional(oftenRight(fc.record({ prompt_tokens: count, completion_tokens: count, total_tokens: count }))) })
const item = fc.oneof(
  fc.record({ type: fc.constant('message'), role: fc.constant('assistant'), content: fc.array(fc.oneof(
    fc.record({ type: fc.constant('output_text'), text: word }),
    fc.record({ type: fc.constant('refusal'), refusal: word })), { maxLength: 2 }) }),
  fc.record({ type: fc.constant('reasoning'), id: fc.constant('rs_1'), encrypted_content: optional(word),
    summary: fc.array(fc.record({ type: fc.constant('summary_text'), text: word }), { maxLength: 2 }) }),
  fc.record({ type: fc.constant('function_call'), call_id: id, name, namespace: optional(fc.constant('ns')),
    arguments: argumentsText }),
  fc.record({ type: fc.constant('custom_tool_call'), call_id: id, name: fc.constant('c'), input: word }))
const ofResponses = fc.record({ id: fc.constant('resp_1'), model,
  status: optional(fc.constantFrom('completed', 'completed', 'completed', 'incomplete', 'failed', 'queued')),
  error: optional(fc.constant(null)),
  incomplete_details: optional(fc.constant({ reason: 'max_output_tokens' })),
  output: oftenRight(fc.array(oftenRight(item), { minLength: 1, maxLength: 4 })),
  usage: optional(oftenRight(fc.record({ input_tokens: count, output_tokens: count, total_tokens: count }))) })
const answers: Readonly<Record<string, fc.Arbitrary<unknown>>> =
  { messages: ofMessages, chat: ofChat, responses: ofResponses }

const spoilt = fc.constantFrom<(text: string) => Buffer>((text) => Buffer.from(text.slice(0, -1)),
  (text) => Buffer.from(`${text}}`), () => Buffer.from('<p>Bad gateway</p>'), () => Buffer.from('null'),
  (text) => Buffer.concat([Buffer.from(text.slice(0, 20)), Buffer.from([0xff]), Buffer.from(text.slice(20))]))
const answerOf = (dialect: string): fc.Arbitrary<Buffer> => fc.oneof(
  { arbitrary: answers[dialect]!.map((body) => Buffer.from(JSON.stringify(body))), weight: 20 },
  { arbitrary: error.map((body) => Buffer.from(JSON.stringify(body))), weight: 2 },
  { arbitrary: fc.tuple(spoilt, answers[dialect]!).map(([spoil, body]) => spoil(JSON.stringify(body))), weight: 1 })

const messagesBody = fc.record({ max_tokens: fc.constantFrom(9, 6000), stop_sequences: optional(fc.constant(['END'])),
  messages: fc.constant([{ role: 'user', content: 'Hello' }]),
  tools: optional(fc.constant([{ name: 't', input_schema: { type: 'object' } }])) })
const functions = [{ type: 'function', function: { name: 't', parameters: { type: 'object' } } }]
const schema = { type: 'object', properties: { a: { type: 'string' } }, additionalProperties: false, required: ['a'] }
const chatBody = fc.record({ messages: fc.constant([{ role: 'user', content: 'Hello' }]), stop: optional(fc.constant('END')),
  tools: optional(fc.constant([...functions, { type: 'custom', custom: { name: 'c' } }])),
  response_format: optional(fc.constant({ type: 'json_schema', json_schema: { name: 'n', schema } })) })
const responsesBody = fc.record({ input: fc.constantFrom<unknown>('Hello', [{ role: 'user', content: 'Hello' }]),
  store: optional(fc.boolean()), reasoning: optional(fc.constant({ summary: 'auto' })),
  tools: optional(fc.constant([{ type: 'function', name: 't', parameters: { type: 'object' } },
    { type: 'custom', name: 'c' }, { type: 'namespace', name: 'ns', description: 'n',
      tools: [{ type: 'function', name: 't', parameters: { type: 'object' } }] }])),
  tool_choice: optional(fc.constant({ type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 't' }] })) })
const request = fc.oneof(
  fc.tuple(fc.constant('/v1/messages'), messagesBody as fc.Arbitrary<Json>),
  fc.tuple(fc.constant('/v1/chat/completions'), chatBody as fc.Arbitrary<Json>),
  fc.tuple(fc.constantFrom('/v1/responses', '/v1/responses', '/v1/responses/compact'),
    responsesBody as fc.Arbitrary<Json>))
const exchanges = fc.constantFrom(...Object.keys(answers)).chain((dialect) =>
  fc.tuple(fc.constant(dialect), request, answerOf(dialect)))

/** Bytes of what the threads were given. */
function watch ({ services: { bodies } }: TestGateway): number[] {
  const opened: number[] = []
  const open = bodies!.openReply.bind(bodies)
  Object.assign(bodies!, { openReply: (...args: Parameters<typeof open>) => {
    opened.push(args[2].pieces.reduce((sum, { length }) => sum + length, 0))
    return open(...args)
  } })
  return opened
}

/** What is kept of a response, as its client can ask for it. */
async function keptOf (gw: TestGateway, { said, status: code }: Json, requestId: string): Promise<unknown> {
  if (code !== 200 || !(said as string).includes('"object":"response"')) return undefined
  const asked = await fetch(`${gw.url}/v1/responses/resp_${requestId.slice(4)}`, { headers: { 'x-api-key': KEY } })
  return [asked.status, (await asked.text()).replaceAll(requestId.slice(4), 'ID').replaceAll(/gwseal1_[\w-]+/g, 'SEALED')
    .replaceAll(/req_\w+/g, 'ID')]
}

t.test('any answer, read in a thread, gives what it gives on the loop: bytes, codes, log and money', async (t) => {
  let answer: Buffer = Buffer.alloc(0)
  const up = await upstream(t, () => [status(200, { 'content-type': 'application/json' }), raw(answer)])
  const [here, there] = [await gateway(t, stylesYaml(up.url), { ...options, largeBody: Infinity }),
    await gateway(t, stylesYaml(up.url), { ...options, largeBody: 1 })]
  const opened = watch(there)
  const seen = { ok: 0, failed: 0 }
  const same = async (dialect: string, path: string, body: Json, bytes: Buffer): Promise<Json> => {
    answer = bytes
    const text = Buffer.from(JSON.stringify({ model: `m-${dialect}`, ...body }))
    const outcomes: Json[] = []
    for (const gw of [here, there]) {
      const outcome = await outcomeOf(gw, up, path, text)
      const { request_id: requestId } = gw.logged.findLast(({ msg }) => msg === 'request')!
      const kept = path === '/v1/responses' ? await keptOf(gw, outcome, requestId as string) : undefined
      if (kept !== undefined) await finished(gw)
      outcomes.push({ ...outcome, kept })
      if (outcome['status'] === 200) seen.ok++
      else seen.failed++
    }
    assert.deepEqual(outcomes[1], outcomes[0])
    return outcomes[1]!
  }
  await fc.assert(fc.asyncProperty(exchanges, async ([dialect, [path, body], bytes]) => {
    await same(dialect, path, body, bytes)
  }), { numRuns: RUNS })
  t.ok(seen.ok > 0 && seen.failed > 0, JSON.stringify(seen))
  const whole = (body: unknown): Buffer => Buffer.from(JSON.stringify(body))
  const call = { status: 'completed', usage: { input_tokens: 9, output_tokens: 2, total_tokens: 11 },
    output: [{ type: 'function_call', call_id: 'c', namespace: 'ns', name: 't', arguments: '{}' }] }
  const space = { type: 'namespace', name: 'ns', description: 'n',
    tools: [{ type: 'function', name: 't', parameters: { type: 'object' } }] }
  t.match(await same('responses', '/v1/responses', { input: 'Hello', tools: [space] }, whole(call)),
    { status: 200, said: /"name":"t","namespace":"ns"/ })
  t.match(await same('messages', '/v1/responses', { input: 'Hello' }, whole(message('Hi'))),
    { said: /"store":true/, kept: [200, /"text":"Hi"/] })
  t.match(await same('messages', '/v1/responses', { input: 'Hello' }, whole(message('word '.repeat(300_000)))),
    { said: /"store":false/, kept: [404] }, 'more than is kept')
  const keys = Object.fromEntries(Array.from({ length: 200_000 }, (_, i) => [`k${i}`, i]))
  for (const details of [keys, Object.values(keys), 'word '.repeat(200_000)]) {
    t.match(await same('messages', '/v1/messages', { max_tokens: 9, messages: [{ role: 'user', content: 'Hello' }] },
      whole({ type: 'error', error: { type: 'overloaded_error', message: 'Too much', details } })),
    { status: 503, line: { failures: /overloaded_error.*Too much/ } })
  }
  t.ok(opened.length >= RUNS)
  const { services: { store: mine } } = here
  const { services: { store: theirs } } = there
  t.equal(await theirs.openHolds(), 0)
  t.strictSame(await theirs.balance('acme'), await mine.balance('acme'))
})

/** A whole answer in messages style. */
function saying (text: string): Script {
  return [status(200, { 'content-type': 'application/json' }), raw(JSON.stringify(message(text)))]
}

t.test('small answers never see a thread, nor do streams', async (t) => {
  let script: Script = []
  const up = await upstream(t, () => script)
  const gw = await gateway(t, stylesYaml(up.url), { ...options, largeBody: 100_000 })
  const opened = watch(gw)
  const ask = async (): Promise<string> =>
    await (await gw.messages({ ...messagesRequest, model: 'm-messages' })).text()
  script = saying('a'.repeat(90_000))
  t.match(await ask(), /a{90000}/)
  t.equal(opened.length, 0)
  script = saying('b'.repeat(110_000))
  t.match(await ask(), /b{110000}/)
  t.equal(opened.length, 1)
  t.ok(opened[0]! > 110_000)
})

/**
 * Lets threads die at the messages about answers of these numbers, counted from 0: of what they can't read. A thread is
 * there and warm.
 */
async function deathsAt (t: Test, numbers: readonly number[], ask: () => Promise<unknown>): Promise<void> {
  await ask()
  const post = Worker.prototype.postMessage
  let sent = 0
  Worker.prototype.postMessage = function (this: Worker, ...[told, ...more]: Parameters<typeof post>) {
    const isReply = (told as { readonly of?: unknown } | null)?.of === 'reply'
    post.call(this, isReply && numbers.includes(sent++) ? null : told, ...more)
  }
  t.teardown(() => { Worker.prototype.postMessage = post })
}

for (const [path, steps, body] of [
  ['/v1/messages', 3, messagesRequest],
  ['/v1/chat/completions', 4, { messages: messagesRequest.messages }],
  ['/v1/responses', 5, { input: 'Hello' }]
] as const) {
  t.test(`a thread that dies takes no answer with it, at whatever step: ${path}`, async (t) => {
    const up = await upstream(t, saying('Hello. '.repeat(20_000)))
    for (let step = 0; step < steps; step++) {
      await t.test(`step ${step}`, async (t) => {
        const gw = await gateway(t, stylesYaml(up.url), { ...options, largeBody: 50_000 })
        const shown = async (): Promise<string> => {
          const answer = await fetch(gw.url + path, { method: 'POST',
            headers: { 'x-api-key': KEY, 'content-type': 'application/json' },
            body: JSON.stringify({ ...body, model: 'm-messages' }) })
          return `${answer.status} ${await answer.text()}`.replaceAll(/(?<=[_-])[0-9A-Za-z]{24}/g, 'ID')
        }
        let expected = ''
        await deathsAt(t, [step], async () => { expected = await shown() })
        t.match(expected, /^200 .*Hello\. /)
        const deaths = (): number => gw.logged.filter(({ msg }) => msg === 'the thread of a large body died').length
        const [found, asked] = [await shown(), up.requests.length]
        t.equal(found, expected)
        t.equal(deaths(), 1)
        t.equal(up.requests.length, asked, 'the upstream is not asked again')
        const [first, second] = [await finished(gw), await finished(gw)]
        t.equal(second['charged_usd'], first['charged_usd'])
        t.equal(await gw.services.store.openHolds(), 0)
      })
    }
  })
}

t.test('an answer of which two threads die is an error that costs nothing, and the next one is read', async (t) => {
  const up = await upstream(t, saying('Hello. '.repeat(20_000)))
  const gw = await gateway(t, stylesYaml(up.url), { ...options, largeBody: 50_000 })
  const ask = (): Promise<Response> => gw.messages({ ...messagesRequest, model: 'm-messages' })
  await deathsAt(t, [0, 1], ask)
  const failed = await ask()
  t.equal(failed.status, 500)
  t.match(await failed.json(), { error: { details: { error_code: 'server_error' }, charged_usd: '0' } })
  t.equal((await ask()).status, 200)
  t.equal(await gw.services.store.openHolds(), 0)
})

t.test('a client that leaves while its answer is in a thread is one that leaves', async (t) => {
  const up = await upstream(t, saying('Hello. '.repeat(20_000)))
  const gw = await gateway(t, stylesYaml(up.url), { largeBody: 50_000 })
  const { bodies } = gw.services
  const open = bodies!.openReply.bind(bodies)
  const leaving = new AbortController()
  Object.assign(bodies!, { openReply: async (...args: Parameters<typeof open>) => {
    leaving.abort()
    await until(() => args[0].abortReason !== undefined)
    return await open(...args)
  } })
  await t.rejects(gw.messages({ ...messagesRequest, model: 'm-messages' }, { signal: leaving.signal }))
  t.match(await finished(gw), { outcome: 'failed', code: 'client_closed' })
  t.equal(await gw.services.store.openHolds(), 0)
})

t.test('a plugin that reads no answers, and hangs at one, fails its request', async (t) => {
  const up = await upstream(t, saying('Hello. '.repeat(20_000)))
  const config = stylesYaml(up.url).replace('pipeline: [', 'hook_timeout: 1s\npipeline: [{ use: ./hanging.ts }, ')
  const gw = await gateway(t, config, {
    ...options, largeBody: 50_000,
    files: { 'hanging.ts': `export default { name: 'hanging', readsInSteps: true,
      create: () => ({ perAttempt: () => ({ onUpstreamReply: () => new Promise(() => {}) }) }) }` }
  })
  const failed = await gw.messages({ ...messagesRequest, model: 'm-messages' })
  t.equal(failed.status, 500)
  t.match(await failed.json(), { error: { details: { error_code: 'server_error' }, charged_usd: '0' } })
  t.match(await gw.services.metrics.print(), /gateway_hook_timeouts_total\{plugin="hanging"\} 1\n/)
  t.equal(await gw.services.store.openHolds(), 0)
})

t.test('what threads have read gives its memory back when it is printed', async (t) => {
  const up = await upstream(t, saying('Hello. '.repeat(100_000)))
  const gw = await gateway(t, stylesYaml(up.url), { ...options, largeBody: 50_000 })
  const { memory } = gw.services.bodies!
  const given: unknown[] = []
  const give = memory.give.bind(memory)
  Object.assign(memory, { give: (pages: readonly Buffer[]) => {
    given.push([pages.length, gw.services.store.openHolds()])
    give(pages)
  } })
  await (await gw.messages({ ...messagesRequest, model: 'm-messages' })).text()
  t.strictSame(given, [[3, 1]], 'while its exchange is not settled')
})

t.test('of a large answer hooks see its type, and reading anything else is an error', async (t) => {
  class Some extends LargeReply {
    readonly type = 'message'
    readonly content = []
    async run (): Promise<unknown> { return await Promise.resolve(this.type) }
  }
  const body = guarded(new Some()) as LargeReply & Json
  t.equal(body.type, 'message')
  t.ok(body instanceof LargeReply)
  t.equal(await body.run('', []), 'message')
  t.equal(await Promise.resolve(body), body)
  for (const read of [() => body['content'], () => Object.keys(body), () => 'usage' in body, () => ({ ...body }),
    () => JSON.stringify({ body })]) t.throws(read, /outside of a reply step/)
})
