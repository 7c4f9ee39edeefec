// Large bodies are read in threads: a client, an upstream, the log and the money can't tell. And a thread that dies or
// hangs fails the request that it was working on, and no other.
import { strict as assert } from 'node:assert'
import { setImmediate, setTimeout } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { Seals } from '../../src/base/seals.ts'
import { SharedChunks, SharedPages } from '../../src/core/body-memory.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import { callHook } from '../../src/core/hooks.ts'
import { bodyOf, headOf } from '../../src/core/large-body.ts'
import type { Answer, Asked } from '../../src/gateway/bodies/messages.ts'
import type { Job } from '../../src/gateway/bodies/body-thread.ts'
import { ThreadPool } from '../../src/gateway/bodies/thread-pool.ts'
import { ResponsesOwn, ResponsesWords } from '../../src/protocols/responses.ts'
import { config as configOf, exchange, snapshot } from '../support/exchange.ts'
import { finished, gateway, KEY } from '../support/gateway.ts'
import { options, outcomeOf, SECRET, stylesYaml as config } from '../support/large.ts'
import { json, messageEnd, messageStart, type Received, type Script, stall, textBlock, upstream } from '../support/upstream.ts'
import { until } from '../support/until.ts'

type Json = Readonly<Record<string, unknown>>

const RUNS = Number(process.env['RUNS'] ?? 120)
const sealed = (upstreamName: string): string =>
  new Seals([SECRET]).seal('thinking', 'acme', JSON.stringify([`messages ${upstreamName}`, 'EqQB']))

/** FAIL in a body: of the first target; BLIND: without usage. */
function answerTo ({ path, bytes, body }: Received): Script {
  const text = bytes.toString()
  if (path.startsWith('/bad/') && text.includes('FAIL')) {
    const quoted = /FAIL[^"\\]{0,80}/.exec(text)?.[0]
    return json({ error: { type: 'api_error', message: `could not read: ${quoted}` } }, 500)
  }
  const isBlind = text.includes('BLIND')
  if (path.endsWith('/count_tokens')) return isBlind ? json({}, 500) : json({ input_tokens: 7 })
  if (path.endsWith('/messages')) {
    if (body?.['stream'] === true) {
      return isBlind ? [messageStart({ usage: {} }), textBlock(0, 'Hi'), messageEnd({ usage: {} })]
        : [messageStart(), textBlock(0, 'Hi'), messageEnd()]
    }
    return json({ id: 'msg_1', type: 'message', role: 'assistant', model: 'vendor', stop_reason: 'end_turn',
      content: [{ type: 'text', text: 'Hi' }], ...(!isBlind && { usage: { input_tokens: 9, output_tokens: 2 } }) })
  }
  if (path.endsWith('/chat/completions')) {
    return json({ id: 'c', object: 'chat.completion', created: 1, model: 'vendor',
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop', stop_reason: 'END' }],
      ...(!isBlind && { usage: { prompt_tokens: 9, completion_tokens: 2, total_tokens: 11 } }) })
  }
  return json({ id: 'resp_1', object: 'response', status: 'completed', model: 'vendor',
    output: [{ type: 'message', id: 'msg_1', role: 'assistant', status: 'completed',
      content: [{ type: 'output_text', text: 'Hi', annotations: [] }] }],
    ...(!isBlind && { usage: { input_tokens: 9, output_tokens: 2, total_tokens: 11 } }) })
}

const optional = <T>(made: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(made, { nil: undefined, freq: 2 })
const oftenRight = <T>(made: fc.Arbitrary<T>): fc.Arbitrary<unknown> =>
  fc.oneof({ arbitrary: made as fc.Arbitrary<unknown>, weight: 30 },
    { arbitrary: fc.jsonValue({ maxDepth: 2 }), weight: 1 })
const word = fc.oneof(
  fc.constantFrom('FAIL and the words behind it', 'BLIND', 'END', 'Hello', ' ', '', 'ж "quoted" \\ \u2028'),
  fc.string({ unit: 'grapheme', maxLength: 30 }))
/** of which the gateway keeps bytes */
const blob = fc.integer({ min: 0, max: 3 }).map((n) => 'QUJD'.repeat(17_000 + n))
const base64 = fc.oneof({ arbitrary: fc.constant('QUJD'), weight: 3 }, { arbitrary: blob, weight: 1 })
const cache = optional(fc.constant({ type: 'ephemeral' }))
const schema = fc.record({ type: fc.constant('object'), properties: fc.dictionary(fc.constantFrom('a', 'b', 'c'),
  fc.constant({ type: 'string' })), additionalProperties: fc.boolean() }, { requiredKeys: ['type'] })
const stream = optional(oftenRight(fc.constant(false)))
const number = oftenRight(fc.integer({ min: 0, max: 9000 }))

const block = fc.oneof(
  fc.record({ type: fc.constant('text'), text: word, cache_control: cache }),
  fc.record({ type: fc.constant('image'), source: fc.record({ type: fc.constant('base64'),
    media_type: fc.constant('image/png'), data: base64 }) }),
  fc.record({ type: fc.constant('document'), source: fc.record({ type: fc.constant('text'),
    media_type: fc.constant('text/plain'), data: word }) })
)
const thought = fc.constantFrom('messages-bad', 'messages-good', 'other').map((name) =>
  ({ type: 'thinking', thinking: 'hm', signature: sealed(name) }))
const call = fc.integer({ min: 0, max: 3 }).map((n) => `toolu_${n}`)
const turn = fc.oneof(
  fc.record({ role: fc.constant('user'), content: fc.oneof(word, fc.array(oftenRight(block), { maxLength: 3 })) }),
  fc.record({ role: fc.constant('assistant'), content: fc.oneof(word, fc.array(fc.oneof(thought,
    fc.record({ type: fc.constant('text'), text: word }),
    fc.record({ type: fc.constant('tool_use'), id: call, name: fc.constant('t'), input: fc.dictionary(word, word) })),
  { maxLength: 3 })) }),
  fc.record({ role: fc.constant('user'), content: fc.array(fc.record({ type: fc.constant('tool_result'),
    tool_use_id: call, content: word }), { maxLength: 2 }) }),
  fc.record({ role: fc.constant('system'), content: word })
)
const model = oftenRight(fc.constantFrom('m-messages', 'm-chat', 'm-responses', 'latest'))
const others = fc.dictionary(fc.constantFrom('x', 'then', 'speed', '__proto__', 'user'), fc.jsonValue({ maxDepth: 2 }),
  { maxKeys: 2 })

const messagesBody = fc.record({ model, max_tokens: number,
  messages: oftenRight(fc.array(oftenRight(turn), { maxLength: 6 })),
  system: optional(fc.oneof(word, fc.array(fc.record({ type: fc.constant('text'), text: word, cache_control: cache })))),
  tools: optional(fc.array(oftenRight(fc.record({ name: fc.constantFrom('t', 'u'), input_schema: schema })),
    { maxLength: 2 })),
  thinking: optional(oftenRight(fc.constantFrom({ type: 'enabled', budget_tokens: 2000 }, { type: 'disabled' }, null))),
  stop_sequences: optional(oftenRight(fc.array(fc.constantFrom('END', '\n'), { maxLength: 2 }))),
  metadata: optional(oftenRight(fc.record({ user_id: word }))), temperature: optional(oftenRight(fc.constant(0.5))),
  stream: optional(fc.constantFrom<unknown>(false, true, null)) })
const image = base64.map((data) => `data:image/png;base64,${data}`)
const part = fc.oneof(fc.record({ type: fc.constant('text'), text: word }),
  fc.record({ type: fc.constant('image_url'), image_url: fc.record({ url: image }) }),
  fc.record({ type: fc.constant('file'), file: fc.record({ filename: fc.constant('a.txt'),
    file_data: base64.map((data) => `data:text/plain;base64,${data}`) }) }))
const chatTurn = fc.oneof(
  fc.record({ role: fc.constantFrom('user', 'system', 'developer'),
    content: fc.oneof(word, fc.array(part, { maxLength: 3 })) }),
  fc.record({ role: fc.constant('assistant'), content: optional(word),
    tool_calls: optional(fc.array(fc.record({ id: call, type: fc.constant('function'),
      function: fc.record({ name: fc.constant('t'), arguments: fc.constantFrom('{}', '{"a":1}', '{') }) }),
    { maxLength: 2 })) }),
  fc.record({ role: fc.constant('tool'), tool_call_id: call, content: word })
)
const chatBody = fc.record({ model, messages: fc.array(oftenRight(chatTurn), { maxLength: 6 }), stream,
  max_tokens: optional(number), max_completion_tokens: optional(number), stop: optional(oftenRight(fc.constant('END'))),
  tools: optional(fc.array(oftenRight(fc.record({ type: fc.constant('function'),
    function: fc.record({ name: fc.constantFrom('t', 'u'), parameters: schema }) })), { maxLength: 2 })),
  response_format: optional(oftenRight(fc.record({ type: fc.constant('json_schema'),
    json_schema: fc.record({ name: fc.constant('n'), schema }) }))),
  reasoning_effort: optional(oftenRight(fc.constantFrom('low', 'high'))), user: optional(word), seed: optional(number),
  prompt_cache_key: optional(word) })
const item = fc.oneof(
  fc.record({ role: fc.constantFrom('user', 'developer', 'system'), content: fc.oneof(word, fc.array(fc.oneof(
    fc.record({ type: fc.constant('input_text'), text: word }),
    fc.record({ type: fc.constant('input_image'), image_url: image })), { maxLength: 2 })) }),
  fc.record({ type: fc.constant('function_call'), call_id: call, name: fc.constant('t'), arguments: fc.constant('{}') }),
  fc.record({ type: fc.constant('function_call_output'), call_id: call, output: word }),
  fc.record({ type: fc.constant('item_reference'), id: fc.constant('msg_unknown') })
)
const responsesBody = fc.record({ model, input: fc.oneof(word, fc.array(oftenRight(item), { maxLength: 5 })),
  store: optional(oftenRight(fc.boolean())), previous_response_id: optional(fc.constantFrom<unknown>(null, 'resp_unknown')),
  instructions: optional(word), max_output_tokens: optional(number), stream,
  tools: optional(fc.array(oftenRight(fc.oneof(
    fc.record({ type: fc.constant('function'), name: fc.constantFrom('t', 'u'), parameters: schema }),
    fc.record({ type: fc.constant('custom'), name: fc.constant('c') }), fc.constant({ type: 'web_search' }))),
  { maxLength: 3 })),
  reasoning: optional(oftenRight(fc.record({ effort: fc.constantFrom('low', 'high') }))),
  text: optional(oftenRight(fc.record({
    format: fc.record({ type: fc.constant('json_schema'), name: fc.constant('n'), schema }) }))) })
const request = fc.oneof(
  fc.tuple(fc.constantFrom('/v1/messages', '/v1/messages', '/v1/messages/count_tokens'), fc.tuple(messagesBody, others)),
  fc.tuple(fc.constant('/v1/chat/completions'), fc.tuple(fc.oneof({ arbitrary: chatBody as fc.Arbitrary<Json>, weight: 4 },
    { arbitrary: responsesBody as fc.Arbitrary<Json>, weight: 1 }), others)),
  fc.tuple(fc.constantFrom('/v1/responses', '/v1/responses', '/v1/responses/input_tokens'),
    fc.tuple(responsesBody, others))
)

/** Of each ending at least one. */
const EXAMPLES = ([['', 'FAIL', 9], ['', 'BLIND', 9], ['', 'a', -1], ['/count_tokens', 'a', 9],
  ['/count_tokens', 'BLIND', 9]] as const).map(([more, content, limit]) =>
  [[`/v1/messages${more}`, [{ model: 'latest', max_tokens: limit, messages: [{ role: 'user', content }] }, {}]]])

t.test('any body, read in a thread, gives what it gives on the loop: bytes, codes, log and money', async (t) => {
  const up = await upstream(t, answerTo)
  const [here, there] = [await gateway(t, config(up.url), { ...options, largeBody: Infinity }),
    await gateway(t, config(up.url), { ...options, largeBody: 1 })]
  const seen = { ok: 0, refused: 0, failed: 0 }
  await fc.assert(fc.asyncProperty(request, async ([path, [body, more]]) => {
    const text = Buffer.from(JSON.stringify({ ...more, ...body }))
    const expected = await outcomeOf(here, up, path, text)
    const found = await outcomeOf(there, up, path, text)
    assert.deepEqual(found, expected)
    const { status, line } = expected as { readonly status: number, readonly line: Json }
    if (status === 200) seen.ok++
    else seen.refused++
    if (line['failures'] !== undefined || Number(line['attempts']) > 1) seen.failed++
  }), { numRuns: RUNS, examples: EXAMPLES as never })
  t.ok(seen.ok > 1 && seen.refused > 0 && seen.failed > 0, JSON.stringify(seen))
})

t.test('bodies that are no JSON, no UTF-8, compressed or nearly too large are the same, too', async (t) => {
  const up = await upstream(t, answerTo)
  const [here, there] = [await gateway(t, config(up.url), { ...options, largeBody: Infinity }),
    await gateway(t, config(up.url), { ...options, largeBody: 1000 })]
  const body = { model: 'm-messages', max_tokens: 9, messages: [{ role: 'user', content: 'a '.repeat(20_000) }] }
  const text = Buffer.from(JSON.stringify(body))
  const image = Buffer.from(JSON.stringify({ ...body, messages: [{ role: 'user', content: [{ type: 'image',
    source: { type: 'base64', media_type: 'image/png', data: 'A'.repeat(700_000) } }, { type: 'text', text: 'ж' }] }] }))
  const cases: readonly (readonly [Buffer, Record<string, string>?])[] = [
    [text], [image], [text.subarray(0, -1)], [Buffer.from(`[${text.toString()}]`)],
    [Buffer.concat([text.subarray(0, 300), Buffer.from([0xff]), text.subarray(300)])],
    [gzipSync(text), { 'content-encoding': 'gzip' }], [gzipSync(image), { 'content-encoding': 'gzip' }],
    [Buffer.from(JSON.stringify({ ...body, model: 'x'.repeat(5000) }))],
    [Buffer.from(JSON.stringify({ ...body, messages: [{ role: 'user', content: 'a '.repeat(2_000_000) }] }))]
  ]
  for (const [bytes, headers] of cases) {
    t.strictSame(await outcomeOf(there, up, '/v1/messages', bytes, headers),
      await outcomeOf(here, up, '/v1/messages', bytes, headers))
  }
})

t.test('megabytes of tools stay with their body: the loop has their names, and the answer does not repeat them', async (t) => {
  const up = await upstream(t, answerTo)
  const [here, there] = [await gateway(t, config(up.url), { ...options, largeBody: Infinity }),
    await gateway(t, config(up.url), { ...options, largeBody: 1000 })]
  const { bodies } = there.services
  const opened: Exchange[] = []
  const open = bodies!.open.bind(bodies)
  Object.assign(bodies!, { open: (...args: Parameters<typeof open>) => { opened.push(args[0]); return open(...args) } })
  const tools = [{ type: 'function', name: 't', description: 'word '.repeat(60_000), parameters: { type: 'object' } }]
  for (const [model, sent] of [['m-responses', tools],
    ['m-messages', [{ type: 'namespace', name: 'n', description: 'n', tools }]]]) {
    const text = Buffer.from(JSON.stringify({ model, input: 'Hello', store: false, tools: sent }))
    const found = await outcomeOf(there, up, '/v1/responses', text)
    t.strictSame(found, await outcomeOf(here, up, '/v1/responses', text))
    t.match(found, { status: 200, said: /"tools":\[\]/, asked: [{ bytes: /word word/ }] })
    t.ok(opened.at(-1)!.find(ResponsesWords))
    t.equal(opened.at(-1)!.find(ResponsesOwn), undefined)
  }
})

t.test('what base64 takes makes no body large: pictures are not parsed, so they need no thread', async (t) => {
  const up = await upstream(t, answerTo)
  const gw = await gateway(t, config(up.url), { ...options, largeBody: 300_000 })
  const { bodies } = gw.services
  let opened = 0
  const open = bodies!.open.bind(bodies)
  Object.assign(bodies!, { open: (...args: Parameters<typeof open>) => { opened++; return open(...args) } })
  const picture = 'QUJD'.repeat(500_000)
  const body = (content: unknown): Json => ({ model: 'm-messages', max_tokens: 9, messages: [{ role: 'user', content }] })
  const shown = (data: string): Json => body([{ type: 'image',
    source: { type: 'base64', media_type: 'image/png', data } }, { type: 'text', text: 'a' }])
  for (const [what, sent, isLarge] of [
    ['a picture', shown(picture), false],
    ['two of them', body([shown(picture), shown(picture)]), false],
    ['a picture in a long conversation', { ...shown(picture), system: 'word '.repeat(70_000) }, true],
    ['one text', body('word '.repeat(70_000)), true],
    ['many texts', body(Array.from({ length: 20 }, () => ({ type: 'text', text: 'word '.repeat(4000) }))), true],
    ['what a picture\'s field holds that is none', shown('word '.repeat(70_000)), true],
    ['escaped base64', shown(`${picture}\n`), true],
    ['a sealed thought, which is opened', { ...body('a'), messages: [{ role: 'user', content: 'a' }, { role: 'assistant',
      content: [{ type: 'redacted_thinking', data: `gwseal1_${picture}` }, { type: 'text', text: 'a' }] },
    { role: 'user', content: 'b' }] }, true],
    ['a picture where none is read', { ...body('a'), metadata: { other: picture } }, true]
  ] as const) {
    const before = [opened, up.requests.length]
    const { status, asked } = await outcomeOf(gw, up, '/v1/messages', Buffer.from(JSON.stringify(sent)))
    t.equal(opened - before[0]!, isLarge ? 1 : 0, `${what}: ${status}`)
    if (status === 200 && what === 'a picture') t.match((asked as { bytes: string }[])[0]!.bytes, picture)
  }
})

t.test('a client that leaves while its body is in a thread is one that leaves', async (t) => {
  const up = await upstream(t, stall())
  const gw = await gateway(t, config(up.url), { largeBody: 1 })
  const leaving = new AbortController()
  const asked = fetch(`${gw.url}/v1/messages`, { method: 'POST', signal: leaving.signal,
    headers: { 'content-type': 'application/json', 'x-api-key': KEY },
    body: JSON.stringify({ model: 'm-messages', max_tokens: 9, messages: [{ role: 'user', content: 'Hello' }] }) })
  const rejected = t.rejects(asked)
  await until(() => gw.server.inFlight === 1)
  leaving.abort()
  await rejected
  t.match(await finished(gw), { outcome: 'failed', code: 'client_closed' })
})

t.test('of a large body the loop sees a few fields, and reading any other is an error', async (t) => {
  const body = bodyOf(headOf({ model: 'm', stream: true, messages: [{ role: 'user' }], system: 'secret', max_tokens: 5,
    input: 'x'.repeat(5000), stream_options: { include_usage: true, more: 1 }, stop_sequences: ['a'],
    usage: { include: true, more: 1 } }, 'text'), 'text')
  t.equal(body['model'], 'm')
  t.strictSame(body['messages'], [], 'whether it is given')
  t.equal((body['input'] as string).length, 1000)
  t.strictSame(body['stream_options'], { include_usage: true })
  t.strictSame(body['usage'], { include: true }, 'C2')
  for (const read of [() => body['system'], () => Object.keys(body), () => 'tools' in body, () => ({ ...body }),
    () => JSON.stringify(body)]) t.throws(read, /outside of a body step/)
  t.equal(await Promise.resolve(body), body)
})

t.test('memory that threads share is used again, and shows nothing of the body before', async (t) => {
  const memory = new SharedPages()
  const kept = async (text: string, size: number, before = 0): Promise<SharedChunks> => {
    const all = Array.from({ length: Math.ceil(text.length / size) }, (_, i) =>
      Buffer.from(text.slice(i * size, (i + 1) * size)))
    const chunks = new SharedChunks(memory, all.slice(0, before))
    for (const chunk of all.slice(before)) chunks.add(chunk)
    t.equal(Buffer.concat(await chunks.all()).toString(), text)
    return chunks
  }
  const first = await kept('a'.repeat(600_000), 65_536)
  const pages = [...first.pages]
  t.equal(pages.length, 3)
  const [read, write] = [first.lend(), first.lend()]
  read()
  first.end()
  t.notOk((await kept('r', 1)).pages.some((page) => pages.includes(page)), 'somebody reads them')
  write()
  const second = await kept('b'.repeat(300_000), 7)
  t.ok(second.pages.every((page) => pages.includes(page)))
  t.notOk((await kept('c', 1)).pages.some((page) => second.pages.includes(page)), 'what is in use is nobody else\'s')
  const text = Array.from({ length: 100 }, (_, i) => String(i).repeat(50_000)).join('')
  for (const before of [0, 1, 30, 100, 150]) t.equal((await kept(text, 65_536, before)).pages.length, 37)
  const many = new SharedChunks(memory, Array.from({ length: 100 }, () => Buffer.alloc(65_536)))
  t.equal(many.pages.length, 4, 'a megabyte in one turn')
  await many.all()
  t.equal(many.pages.length, 25)
})

/** A thread alone keeps no process alive. */
function stayAlive (t: Test): void {
  const timer = setInterval(() => {}, 1000)
  t.teardown(() => { clearInterval(timer) })
}

/** A thread that does what the id of a body says. */
const wild = new URL(`data:text/javascript,${encodeURIComponent(`
  import { parentPort } from 'node:worker_threads'
  parentPort.on('message', (message) => {
    if (message.isOver) { if (message.id === undefined) parentPort.close(); return }
    if (message.id === 'die') process.exit(3)
    if (message.id === 'throw') throw new Error('of the thread')
    while (message.id === 'hang') { }
    if (message.id === 'late') {
      parentPort.postMessage({ result: 'late', facts: [], answerHeaders: {} })
      Atomics.store(message.args[0], 0, 1)
      Atomics.notify(message.args[0], 0)
      return
    }
    parentPort.postMessage({ result: message.opened, facts: [], answerHeaders: {} })
  })`)}`)

/** Resolves with whether the thread had the body already, or with the code and cause of the error. */
function ask (pool: ThreadPool, id: string, more: object = {}): Promise<unknown> {
  return new Promise((resolve) => {
    const job: Job = { requestId: id, id, key: 'k', account: 'a', bytes: 1, lives: 1,
      ask: (has) =>
        ({ id, opened: !has, known: {}, replay: [], call: undefined, isLast: false, ...more }) as unknown as Asked,
      resolve: ({ result }: Answer) => { resolve(result === true ? 'opened' : 'had') },
      reject: (error) => { resolve((error as { readonly row?: string }).row) } }
    pool.add(job)
  })
}

t.test('a thread that dies or hangs fails one body; the others are opened again by the next thread', async (t) => {
  stayAlive(t)
  const logged: unknown[] = []
  const log = { error (what: unknown) { logged.push(what) } }
  const pool = new ThreadPool({ threads: 1, pluginsUrl: '', sealSecrets: ['x'], log: log as never, patience: 5000,
    worker: wild })
  t.equal(await ask(pool, 'a'), 'opened')
  t.equal(await ask(pool, 'a'), 'had')
  for (const id of ['die', 'throw', 'hang']) {
    t.strictSame(await Promise.all([ask(pool, id), ask(pool, 'b'), ask(pool, 'a'), ask(pool, 'a')]),
      ['server_error', 'opened', 'opened', 'had'], id)
  }
  t.equal(logged.length, 3)
  t.match(logged[0], { request_id: 'die' })
  t.equal(await ask(pool, 'a', { isLast: true }), 'had')
  t.equal(await ask(pool, 'a'), 'opened', 'it was the last time')
  pool.forget('a')
  t.equal(await ask(pool, 'a'), 'opened', 'forgotten')
  await pool.close(1000)
  t.equal(await ask(pool, 'a'), 'server_error', 'closed')
})

t.test('what a thread says too late is nobody\'s answer', async (t) => {
  stayAlive(t)
  const patience = 5000
  const pool = new ThreadPool({ threads: 1, pluginsUrl: '', sealSecrets: ['x'], log: { error () {} } as never,
    patience, worker: wild })
  t.teardown(async () => { await pool.close(1000) })
  t.equal(await ask(pool, 'a'), 'opened')
  await setImmediate()                                        // the loop looks at its timers before it hears threads
  const said = new Int32Array(new SharedArrayBuffer(4))
  const outcomes = Promise.all([ask(pool, 'late', { args: [said] }), ask(pool, 'b')])
  const begun = performance.now()
  Atomics.wait(said, 0, 0)
  while (performance.now() - begun <= patience) Atomics.wait(said, 0, 1, 100)
  t.strictSame(await outcomes, ['server_error', 'opened'])
})

t.test('a hook is not blamed for the time of its step, nor for a moment behind it', async (t) => {
  const limit = 1000
  const of = exchange(snapshot(configOf({ hook_timeout: limit })))
  const work = async (steps: number): Promise<string> => {
    of.inThreads++
    await setImmediate()
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, limit)
    of.inThreads--
    of.endedInThreads += steps
    await setTimeout(50)                                      // the hook's limit is looked at meanwhile
    return 'done'
  }
  t.equal(await callHook(work(1), 'p', of), 'done')
  await t.rejects(callHook(work(0), 'p', of) as Promise<string>, { message: /^The gateway failed/ })
})

t.test('what waits for a thread can be given up', async (t) => {
  stayAlive(t)
  const pool = new ThreadPool({ threads: 1, pluginsUrl: '', sealSecrets: ['x'], log: { error () {} } as never,
    patience: 60_000, worker: wild })
  t.teardown(async () => { await pool.close(1000) })
  const first = ask(pool, 'a')
  const given: Job = { requestId: 'b', id: 'b', key: 'k', account: 'a', bytes: 5, lives: 1,
    ask: () => { throw new Error('asked') }, resolve () {}, reject () {} }
  pool.add(given)
  t.equal(pool.waiting, 1)
  t.equal(pool.remove(given), true)
  t.equal(await first, 'opened')
  t.equal(pool.remove(given), false)
  t.equal(pool.waiting, 0)
})
