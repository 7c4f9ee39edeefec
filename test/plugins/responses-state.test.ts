// What the gateway keeps of the Responses API: an answer can be named instead of being sent again, by its account, as
// long as it is there; and a conversation that is named reaches the model as one that is sent.
import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { SseDecoder } from '../../src/core/sse.ts'
import { client, type Received } from '../support/client.ts'
import { gateway, KEY, yaml, type GatewayTestOptions, type TestGateway } from '../support/gateway.ts'
import { readResponse } from '../support/responses-reader.ts'
import { blockDelta, blockStart, blockStop, cut, json, message, messageEnd, messageStart, step, upstream, wait,
  type Script, type Upstream } from '../support/upstream.ts'
import { until } from '../support/until.ts'

type Json = Readonly<Record<string, unknown>>

const HOUR = 3_600_000
const OTHER = `sk-gw-${'o'.repeat(32)}`
const COLLEAGUE = `sk-gw-${'c'.repeat(32)}`
const MUTE = `sk-gw-${'m'.repeat(32)}`
const PIPELINE = 'auth, { responses-to-messages: { keep: 1h } }, channel-router, billing-meter, error-normalize'

function settings (up: Upstream, pipeline = PIPELINE): string {
  return yaml([up.url], '', pipeline)
    .replace('accepts: [text', 'thinking: adaptive\n    accepts: [text')
    .replace('accounts:\n', 'accounts:\n  - { id: other, name: Other, opening_balance_usd: 100 }\n')
    .replace('keys:\n', `keys:
  - { id: acme-two, account: acme, secret: ${COLLEAGUE} }
  - { id: acme-mute, account: acme, secret: ${MUTE}, store: false }
  - { id: other-dev, account: other, secret: ${OTHER} }
`)
}

/** A vendor's whole answer, or its stream. */
function say (content: readonly Json[], stop_reason = 'end_turn'): Script {
  const stream = [messageStart(), content.map((block, i) => {
    const { type, text, thinking, signature, input, ...rest } = block
    if (type === 'text') return [blockStart(i), blockDelta(i, { type: 'text_delta', text }), blockStop(i)]
    return type === 'thinking'
      ? [blockStart(i, { type, thinking: '', signature: '' }), blockDelta(i, { type: 'thinking_delta', thinking }),
        blockDelta(i, { type: 'signature_delta', signature }), blockStop(i)]
      : [blockStart(i, { type, ...rest, input: {} }),
        blockDelta(i, { type: 'input_json_delta', partial_json: JSON.stringify(input) }), blockStop(i)]
  }), messageEnd({ stop_reason })].flat(4) as Script
  const whole = json({ ...message('', { stop_reason }), content })
  return step(async (visit) => {
    const isStream = visit.request.body?.['stream'] === true
    for (const one of [isStream ? stream : whole].flat(5) as (typeof whole)[]) await one.run(visit)
  })
}

const hello = say([{ type: 'text', text: 'Hello!' }])

interface Session {
  readonly own: TestGateway
  readonly up: Upstream
  ask (more: Json, key?: string): Promise<Received>
  /** the terminal response, however it came */
  answered (more: Json, key?: string): Promise<Json>
  about (id: unknown, rest?: string, init?: { readonly method?: string, readonly key?: string }): Promise<{
    readonly status: number, readonly body: Json }>
}

async function session (
  t: Test,
  script: Parameters<typeof upstream>[1],
  options: GatewayTestOptions & { readonly text?: (up: Upstream) => string } = {}
): Promise<Session> {
  const up = await upstream(t, script)
  const own = await gateway(t, (options.text ?? settings)(up), options)
  const { post } = client(t, own, '/v1/responses')
  const ask: Session['ask'] = async (more, key = KEY) =>
    await post({ model: 'm1', ...more }, { authorization: `Bearer ${key}`, 'x-api-key': '' }).whole()
  return {
    own, up, ask,
    async answered (more, key) {
      const got = await ask(more, key)
      t.equal(got.status, 200, got.text)
      return more['stream'] === true ? readResponse(new SseDecoder().push(Buffer.from(got.text))).response
        : got.json as Json
    },
    async about (id, rest = '', { method = 'GET', key = KEY } = {}) {
      const got = await fetch(`${own.url}/v1/responses/${String(id)}${rest}`,
        { method, headers: { authorization: `Bearer ${key}` } })
      return { status: got.status, body: await got.json() as Json }
    }
  }
}

function refusal (code: string, param?: string): Json {
  return { error: { code, ...(param !== undefined && { param }) } }
}

t.test('an answer is kept before its end is written, whole or streamed, and gone on from', async (t) => {
  const { up, answered, about } = await session(t, hello)
  for (const stream of [false, true]) {
    const first = await answered({ input: 'Hi', instructions: 'Be brief', stream })
    t.equal(first['store'], true)
    const told = await about(first['id'])
    t.equal(told.status, 200)
    const { usage, completed_at: _at, ...rest } = first
    t.match(told.body, rest)
    t.match(usage, told.body['usage'] as Json)
    const before = up.requests.length
    const second = await answered({ input: 'And?', previous_response_id: first['id'], stream })
    t.equal(second['previous_response_id'], first['id'])
    const { messages, system } = up.requests[before]!.body!
    t.equal(system, undefined, 'instructions are those of each request')
    const turn = (role: string, text: string): Json => ({ role, content: [{ type: 'text', text }] })
    t.strictSame(messages, [turn('user', 'Hi'), turn('assistant', 'Hello!'), turn('user', 'And?')])
    await answered({ input: [{ role: 'user', content: 'So?' }], previous_response_id: second['id'], stream })
    t.strictSame(up.requests[before + 1]!.body!['messages'],
      [...messages as Json[], turn('assistant', 'Hello!'), turn('user', 'So?')])
  }
})

t.test('what is not to be kept is not, and says so', async (t) => {
  const { answered, about, ask } = await session(t, hello)
  for (const stream of [false, true]) {
    for (const [more, key] of [[{ store: false }, KEY], [{}, MUTE], [{ store: true }, MUTE]] as const) {
      const response = await answered({ input: 'Hi', stream, ...more }, key)
      t.equal(response['store'], false)
      t.equal((await about(response['id'])).status, 404)
      t.match((await ask({ input: 'And?', previous_response_id: response['id'] })).json,
        refusal('previous_response_not_found', 'previous_response_id'))
    }
  }
  const kept = await answered({ input: 'Hi', store: null })
  t.equal((await answered({ input: 'And?', previous_response_id: kept['id'] }, MUTE))['store'], false,
    'which may go on from what another key has kept')
})

t.test('without a line of gateway.yaml nothing is kept', async (t) => {
  const { answered, about, ask } = await session(t, hello, { text: (up) => settings(up, PIPELINE.replace(
    '{ responses-to-messages: { keep: 1h } }, ', '')) })
  const response = await answered({ input: 'Hi', store: true })
  t.equal(response['store'], false)
  t.match(await about(response['id']), { status: 404, body: refusal('not_found') })
  t.match((await ask({ input: 'And?', previous_response_id: response['id'] })).json,
    refusal('previous_response_not_found'))
})

t.test('what belongs to another account does not exist, and keys of one account share', async (t) => {
  const { answered, about, ask } = await session(t, hello)
  const { id, output: [item] } = await answered({ input: 'Hi' }) as { readonly id: string, readonly output: Json[] }
  const unknown = `resp_${'0'.repeat(24)}`
  for (const [one, key] of [[id, OTHER], [unknown, KEY], ['resp_1', KEY], ['x%2F..%2Fy', KEY], ['__proto__', KEY]]) {
    for (const [rest, method] of [['', 'GET'], ['/input_items', 'GET'], ['', 'DELETE'], ['/cancel', 'POST']]) {
      t.match(await about(one, rest, { method: method!, key: key! }), { status: 404, body: refusal('not_found') },
        `${method} ${one} ${rest}`)
    }
    const got = await ask({ input: 'And?', previous_response_id: one }, key)
    t.match(got, { status: 400, json: refusal('previous_response_not_found', 'previous_response_id') })
  }
  t.match(await ask({ input: [{ type: 'item_reference', id: item!['id'] }, { role: 'user', content: 'And?' }] }, OTHER),
    { status: 400, json: refusal('item_not_found', 'input[0].id') })
  t.equal((await about(id, '', { key: COLLEAGUE })).status, 200)
  t.equal((await ask({ input: 'And?', previous_response_id: id }, COLLEAGUE)).status, 200)
})

t.test('items are named by their ids: thoughts, texts, calls, and those of the input', async (t) => {
  const thought = [{ type: 'thinking', thinking: 'Hm', signature: 'sig' }, { type: 'text', text: 'Let me look' },
    { type: 'tool_use', id: 'toolu_1', name: 'look', input: { at: 'it' } }]
  const { up, answered, ask, about } = await session(t, (request) =>
    up.requests.length === 1 && request.method === 'POST' ? say(thought, 'tool_use') : hello)
  const tools = [{ type: 'function', name: 'look', parameters: { type: 'object' } }]
  const first = await answered({ input: [{ role: 'user', content: 'Look' }], tools, stream: true }) as {
    readonly id: string, readonly output: Json[] }
  const { data: [question] } = (await about(first.id, '/input_items')).body as { readonly data: Json[] }
  const [reasoning, text, call] = first.output
  await answered({ tools, input: [{ id: question!['id'], type: 'item_reference' }, { type: 'item_reference',
    id: reasoning!['id'] }, { id: text!['id'] }, { type: null, id: call!['id'] },
  { type: 'function_call_output', call_id: 'toolu_1', output: 'seen' }] })
  t.match(up.requests[1]!.body!['messages'], [
    { role: 'user', content: [{ type: 'text', text: 'Look' }] },
    { role: 'assistant', content: thought },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1' }] }
  ])
  for (const id of [`msg_${'0'.repeat(24)}_0`, `${first.id.replace('resp', 'msg')}_9`, 'msg_1', '', 7]) {
    t.match(await ask({ input: [{ role: 'user', content: 'x' }, { type: 'item_reference', id }] }),
      { status: 400, json: refusal('item_not_found', 'input[1].id') }, String(id))
  }
  // A request that names items is gone on from, and its items are listed as what they are.
  const third = await answered({ input: [{ type: 'item_reference', id: text!['id'] }, { role: 'user', content: 'So?' }] })
  t.match((await about(third['id'], '/input_items?order=asc')).body, { data: [{ id: text!['id'], type: 'message' },
    { role: 'user', content: [{ type: 'input_text', text: 'So?' }] }] })
  const before = up.requests.length
  await answered({ input: 'Well?', previous_response_id: third['id'] })
  t.match(up.requests[before]!.body!['messages'], [{ role: 'assistant', content: [{ text: 'Let me look' }] },
    { role: 'user' }, { role: 'assistant' }, { role: 'user', content: [{ text: 'Well?' }] }])
})

t.test('input items come in pages', async (t) => {
  const { answered, about } = await session(t, hello)
  const input = Array.from({ length: 25 }, (_, i) => ({ role: 'user', content: `n${i}` }))
  const { id } = await answered({ input })
  const page = async (query: string): Promise<{ readonly texts: unknown[], readonly body: Json }> => {
    const { body } = await about(id, `/input_items${query}`)
    const data = body['data'] as { readonly content: { readonly text: string }[] }[]
    return { body, texts: data.map(({ content: [part] }) => part!.text) }
  }
  const first = await page('')
  t.strictSame(first.texts, input.slice(5).toReversed().map(({ content }) => content), 'the last ones first, 20 of them')
  t.match(first.body, { object: 'list', has_more: true })
  const rest = await page(`?after=${String(first.body['last_id'])}`)
  t.strictSame(rest.texts, ['n4', 'n3', 'n2', 'n1', 'n0'])
  t.equal(rest.body['has_more'], false)
  t.strictSame((await page('?order=asc&limit=2')).texts, ['n0', 'n1'])
  const one = await answered({ input: 'Hi' })
  t.match((await about(one['id'], '/input_items')).body, { data: [{ type: 'message', role: 'user', status: 'completed',
    content: [{ type: 'input_text', text: 'Hi' }] }] })
  for (const query of ['?limit=0', '?limit=101', '?order=up', '?after=msg_1']) {
    t.match(await about(id, `/input_items${query}`), { status: 400, body: refusal('invalid_request') }, query)
  }
})

t.test('what is deleted is gone; nothing can be cancelled; no stream is given again', async (t) => {
  const { answered, about, ask } = await session(t, hello)
  const { id } = await answered({ input: 'Hi' })
  const next = await answered({ input: 'And?', previous_response_id: id })
  t.match(await about(id, '?stream=true'), { status: 400, body: refusal('invalid_request', 'stream') })
  t.equal((await about(id, '?stream=false&include=x')).status, 200)
  t.match(await about(id, '/cancel', { method: 'POST' }), { status: 400, body: refusal('invalid_request') })
  t.strictSame(await about(id, '', { method: 'DELETE' }),
    { status: 200, body: { id, object: 'response', deleted: true } })
  t.equal((await about(id)).status, 404)
  t.equal((await about(id, '', { method: 'DELETE' })).status, 404)
  t.equal((await about(next['id'])).status, 200)
  t.match((await ask({ input: 'So?', previous_response_id: next['id'] })).json,
    refusal('previous_response_not_found'), 'a conversation with a gap is not gone on from')
})

t.test('it lives for an hour from its last use, and for a day', async (t) => {
  let time = 1_800_000_000_000
  const { answered, about, ask } = await session(t, hello, { now: () => time })
  const idle = await answered({ input: 'Hi' })
  const root = await answered({ input: 'Hi' })
  let { id } = root
  for (let hours = 0; hours < 23.5; hours += 0.5) {
    time += HOUR / 2
    ;({ id } = await answered({ input: 'And?', previous_response_id: id }))
  }
  t.equal((await about(idle['id'])).status, 404)
  t.equal((await about(root['id'])).status, 200)
  time += HOUR / 2
  t.match((await ask({ input: 'And?', previous_response_id: id })).json, refusal('previous_response_not_found'))
  t.equal((await about(root['id'])).status, 404, 'a day after it was made')
  t.equal((await about(id)).status, 200)
  time += HOUR
  t.equal((await about(id)).status, 404)
})

t.test('of an answer that was not given in whole nothing is kept', async (t) => {
  const go = Promise.withResolvers<void>()
  const begin = [messageStart(), blockStart(0), blockDelta(0, { type: 'text_delta', text: 'Hel' })]
  const { own, answered, about, ask } = await session(t, ({ body }) => {
    const said = JSON.stringify(body)
    if (said.includes('cut me')) return [begin, cut()]
    if (said.includes('leave me')) return [begin, wait(go.promise), blockStop(0), messageEnd()]
    return said.includes('limit me') ? say([{ type: 'text', text: 'Hel' }], 'max_tokens') : hello
  })
  const failed = readResponse(new SseDecoder().push(Buffer.from((await ask({ input: 'cut me', stream: true })).text)))
  t.match(failed.response, { status: 'failed', store: false })
  t.equal((await about(failed.response['id'])).status, 404)

  const { post } = client(t, own, '/v1/responses')
  const call = post({ model: 'm1', input: 'leave me', stream: true }, { authorization: `Bearer ${KEY}`, 'x-api-key': '' })
  await call.sees('"delta":"Hel"')
  const id = /"id":"(resp_\w+)"/.exec(call.soFar)![1]!
  call.leave()
  await until(() => own.logged.some((line) => line['outcome'] === 'interrupted' && line['request_id'] ===
    id.replace('resp', 'req')))
  go.resolve()
  t.equal((await about(id)).status, 404)

  const short = await answered({ input: 'limit me', stream: true })
  t.match(short, { status: 'incomplete', store: true }, 'one that was cut by its limit was given')
  t.match((await about(short['id'])).body, { status: 'incomplete', store: true })
})

t.test('an answer that could not be settled does not stay', async (t) => {
  const unsettled = `export default { name: 'unsettled', create: () => ({
    onRequest (exchange) { exchange.onSettle(({ kind }) => { if (kind === 'completed') throw new Error('full') }) } }) }`
  const { about, ask } = await session(t, () => hello, { files: { 'unsettled.ts': unsettled },
    text: (up) => settings(up, PIPELINE.replace('auth,', 'auth, { use: ./unsettled.ts },')) })
  for (const stream of [false, true]) {
    const got = await ask({ input: 'Hi', stream })
    t.match(got.text, /Request ID: req_/, 'an error, in the answer or in its place')
    const id = `resp_${got.id!.slice('req_'.length)}`
    await until(async () => (await about(id)).status === 404)
    t.equal((await about(id, '', { method: 'DELETE' })).status, 404)
  }
})

t.test('files: sealed, for their account and their name alone; and a folder that can\'t be used costs no answer', async (t) => {
  const embedded = (up: Upstream): string => settings(up).replace('driver: memory', 'driver: embedded')
  const { own, answered, about, ask } = await session(t, hello, { text: embedded })
  const folder = path.join(path.dirname(own.file), 'data', 'responses')
  const first = await answered({ input: 'a secret question', instructions: 'secretly' })
  const [name] = readdirSync(folder)
  t.equal(readdirSync(folder).length, 1)
  const bytes = readFileSync(path.join(folder, name!))
  for (const word of ['secret', 'Hello', 'acme', String(first['id'])]) t.notOk(bytes.includes(word), word)
  const second = await answered({ input: 'Hi' })
  const other = readdirSync(folder).find((one) => one !== name)!
  writeFileSync(path.join(folder, other), bytes)
  t.equal((await about(second['id'])).status, 404, 'put in the place of another')
  for (const at of [0, 10, 40, bytes.length - 1]) {
    writeFileSync(path.join(folder, name!), bytes.map((byte, i) => i === at ? byte ^ 1 : byte))
    t.equal((await about(first['id'])).status, 404, `a bit of byte ${at}`)
  }
  for (const length of [0, 31, bytes.length - 1]) {
    writeFileSync(path.join(folder, name!), bytes.subarray(0, length))
    t.match((await ask({ input: 'And?', previous_response_id: first['id'] })).json,
      refusal('previous_response_not_found'), `${length} bytes`)
  }
  writeFileSync(path.join(folder, name!), bytes)
  t.equal((await about(first['id'])).status, 200)

  renameSync(folder, `${folder}.away`)
  writeFileSync(folder, 'a file in the place of the folder')
  for (const stream of [false, true]) {
    const got = await answered({ input: 'Hi', stream })
    t.match(got, { status: 'completed', store: false })
    t.match(await about(first['id']), { status: 503, body: refusal('service_unavailable') })
    t.match(await ask({ input: 'And?', previous_response_id: first['id'], stream }),
      { status: 503, json: refusal('service_unavailable') })
  }
  t.ok(own.logged.some(({ msg }) => /could not be kept/.test(String(msg))))
  rmSync(folder)
  renameSync(`${folder}.away`, folder)
  t.equal((await answered({ input: 'And?', previous_response_id: first['id'] }))['store'], true)
})

t.test('what is too large is not kept, and images stay what they are', async (t) => {
  const { up, answered, about } = await session(t, hello)
  const image = `data:image/png;base64,${Buffer.alloc(150_000, 'png').toString('base64')}`
  const input = [{ role: 'user', content: [{ type: 'input_image', image_url: image, detail: 'auto' },
    { type: 'input_text', text: 'What?' }] }]
  const first = await answered({ input })
  t.equal(first['store'], true)
  t.match((await about(first['id'], '/input_items')).body, { data: [{ content: [{ image_url: image }, {}] }] })
  await answered({ input: [{ role: 'user', content: [{ type: 'input_image', image_url: image, detail: 'auto' }] }],
    previous_response_id: first['id'] })
  const [one, other] = [up.requests[0]!.body!['messages'], up.requests[1]!.body!['messages']] as readonly Json[][]
  t.strictSame(other![0], one![0])
  t.strictSame((other![2]!['content'] as Json[])[0], (one![0]!['content'] as Json[])[0])
  t.equal((await answered({ input: 'long '.repeat(1_700_000) }))['store'], false)
})

/** Counts bodies that threads have read, and that were read on the event loop after all. */
function watchLoop ({ services: { bodies } }: TestGateway): { opened: number, brought: number } {
  const seen = { opened: 0, brought: 0 }
  const open = bodies!.open.bind(bodies)
  Object.assign(bodies!, { async open (...args: Parameters<typeof open>) {
    const body = await open(...args)
    const { large } = args[0]
    seen.opened++
    const bringHere = large!.bringHere.bind(large)
    large!.bringHere = () => { seen.brought++; bringHere() }
    return body
  } })
  return seen
}

t.test('N7: the bytes of a body decide whether the loop reads it, and not those that its head announces', async (t) => {
  const { own } = await session(t, hello)
  const seen = watchLoop(own)
  const send = async (more: Json, encoding?: string, encode = (text: Buffer) => text): Promise<Response> =>
    await fetch(`${own.url}/v1/responses`, { method: 'POST',
      headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json',
        ...(encoding !== undefined && { 'content-encoding': encoding }) },
      body: encode(Buffer.from(JSON.stringify({ model: 'm1', ...more }))) })
  const long = 'long '.repeat(900_000)
  for (const [encoding, encode] of [['gzip', gzipSync], ['deflate', deflateSync], ['br', brotliCompressSync],
    ['zstd', zstdCompressSync], [undefined, undefined]] as const) {
    const answer = await send({ input: long }, encoding, encode)
    t.match(await answer.json(), { status: 'completed', store: false }, encoding ?? 'plain')
    const refused = await send({ input: long, previous_response_id: 'resp_x' }, encoding, encode)
    t.equal(refused.status, 413, encoding ?? 'plain')
    t.match(await refused.json(), { error: { message: /stored responses may have 4194304 bytes/ } })
  }
  t.strictSame(seen, { opened: 10, brought: 0 })
  const kept = await send({ input: 'long '.repeat(100_000) }, 'gzip', gzipSync)
  t.match(await kept.json(), { store: true })
  t.strictSame(seen, { opened: 11, brought: 1 })
})

t.test('a conversation that is named reaches the model as one that is sent', async (t) => {
  const word = fc.constantFrom('one', 'two', 'three "3"', 'vier\n', '五')
  const call = fc.record({ type: fc.constant('tool_use'), name: fc.constantFrom('look', 'sh__run', 'patch'), text: word })
  const block = fc.oneof(fc.record({ type: fc.constant('text'), text: word }),
    fc.record({ type: fc.constant('thinking'), text: word }), call)
  const turn = fc.record({ blocks: fc.array(block, { minLength: 1, maxLength: 4 }), ask: word, more: fc.boolean(),
    isNew: fc.boolean(), stream: fc.boolean(), names: fc.boolean() })
  const tools = [{ type: 'function', name: 'look', parameters: { type: 'object' } },
    { type: 'namespace', name: 'sh', tools: [{ type: 'function', name: 'run', parameters: { type: 'object' } }] },
    { type: 'custom', name: 'patch' }]
  let next: readonly Json[] = []
  const { up, answered } = await session(t, () =>
    say(next, next.some(({ type }) => type === 'tool_use') ? 'tool_use' : 'end_turn'))
  let calls = 0

  /** The same conversation, held in one of two ways: all is sent each time, or only what is new. */
  await t.resolves(fc.assert(fc.asyncProperty(fc.array(turn, { minLength: 1, maxLength: 4 }), async (turns) => {
    const history: unknown[] = []
    let previous: unknown = null
    let outputs: Json[] = []
    for (const { blocks, ask, more, isNew, stream, names } of turns) {
      next = blocks.map(({ type, text, ...rest }) => type === 'text' ? { type, text }
        : type === 'thinking' ? { type, thinking: text, signature: 'sig' }
        : { type, ...rest, id: `toolu_${calls++}`, input: rest['name' as never] === 'patch' ? { input: text } : { at: text } })
      const fresh = [...outputs, ...(more || outputs.length === 0 ? [{ role: 'user', content: ask }] : [])]
      const shared = { tools, stream, ...(isNew && { instructions: ask }) }
      const at = up.requests.length
      const sent = await answered({ ...shared, input: [...history, ...fresh] }) as { readonly output: readonly Json[] }
      // The ids of what is named are those of the first way: the second one's last answer is another response.
      const named = await answered({ ...shared, input: fresh, previous_response_id: previous }) as {
        readonly id: string, readonly output: readonly Json[] }
      const [one, other] = [up.requests[at]!.body!, up.requests[at + 1]!.body!]
      if (JSON.stringify(one) !== JSON.stringify(other)) {
        throw new Error(`${JSON.stringify(one['messages'])}\n${JSON.stringify(other['messages'])}`)
      }
      previous = named.id
      history.push(...fresh, ...sent.output.map((item) => names ? { type: 'item_reference', id: item['id'] } : item))
      outputs = sent.output.filter(({ call_id: id }) => id !== undefined).map(({ type, call_id }) => ({
        type: `${String(type)}_output`, call_id, output: 'done' }))
    }
  }), { numRuns: 25 }))
})
