// A messages upstream whose answer lacks any fields, or has nulls in their place: what a client gets is an error in its
// style, or an answer in which everything is that its SDK reads without checking (rule message-shape). Never half of
// one, never a failure of the gateway's own, and the ledger agrees.
import { strict as assert } from 'node:assert'
import fc from 'fast-check'
import t from 'tap'
import { SseDecoder } from '../../src/core/sse.ts'
import { client, events, fate, type Received } from '../support/client.ts'
import { gateway, yaml } from '../support/gateway.ts'
import { readResponse } from '../support/responses-reader.ts'
import { eventBytes, json, raw, upstream, type Script } from '../support/upstream.ts'

type Fields = Record<string, unknown>

const RUNS = 150

const WHOLE: Fields = {
  id: 'msg_upstream', type: 'message', role: 'assistant', model: 'vendor-m1',
  content: [
    { type: 'thinking', thinking: 'hm', signature: 'sig' },
    { type: 'text', text: 'Hello' },
    { type: 'tool_use', id: 'toolu_1', name: 'write', input: { words: ['a'] } }
  ],
  stop_reason: 'tool_use', stop_sequence: null,
  usage: { input_tokens: 10, output_tokens: 7, cache_read_input_tokens: 2 }
}
const STREAM: readonly (readonly [name: string, data: Fields])[] = [
  ['message_start', { type: 'message_start', message: { ...WHOLE, content: [], stop_reason: null,
    usage: { input_tokens: 10, output_tokens: 1 } } }],
  ['content_block_start', { type: 'content_block_start', index: 0,
    content_block: { type: 'thinking', thinking: '', signature: '' } }],
  ['content_block_delta', { type: 'content_block_delta', index: 0, delta: { type: 'thinking_delta', thinking: 'hm' } }],
  ['content_block_delta', { type: 'content_block_delta', index: 0, delta: { type: 'signature_delta', signature: 's' } }],
  ['content_block_stop', { type: 'content_block_stop', index: 0 }],
  ['content_block_start', { type: 'content_block_start', index: 1, content_block: { type: 'text', text: '' } }],
  ['content_block_delta', { type: 'content_block_delta', index: 1, delta: { type: 'text_delta', text: 'Hello' } }],
  ['content_block_stop', { type: 'content_block_stop', index: 1 }],
  ['content_block_start', { type: 'content_block_start', index: 2,
    content_block: { type: 'tool_use', id: 'toolu_1', name: 'write', input: {} } }],
  ['content_block_delta', { type: 'content_block_delta', index: 2,
    delta: { type: 'input_json_delta', partial_json: '{"words":["a"]}' } }],
  ['content_block_stop', { type: 'content_block_stop', index: 2 }],
  ['message_delta', { type: 'message_delta', delta: { stop_reason: 'tool_use', stop_sequence: null },
    usage: { output_tokens: 7 } }],
  ['message_stop', { type: 'message_stop' }]
]

type Path = readonly (string | number)[]
/** What becomes of a field: it is left out, or null. */
interface Change { readonly path: Path, readonly isNull: boolean }

function pathsOf (value: unknown, path: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [path]
  return [...(path.length === 0 ? [] : [path]),
    ...Object.entries(value).flatMap(([name, one]) =>
      pathsOf(one, [...path, Array.isArray(value) ? Number(name) : name]))]
}

function changed (whole: unknown, changes: readonly Change[]): unknown {
  const copy = structuredClone(whole)
  for (const { path, isNull } of changes) {
    const holder = path.slice(0, -1).reduce<unknown>((at, name) =>
      typeof at === 'object' && at !== null ? (at as Fields)[name as string] : undefined, copy)
    if (typeof holder !== 'object' || holder === null) continue
    const name = path.at(-1)!
    if (isNull) (holder as Fields)[name as string] = null
    else if (!Array.isArray(holder)) Reflect.deleteProperty(holder, name)
    else if (typeof name === 'number' && name < holder.length) holder.splice(name, 1)
  }
  return copy
}

const changesTo = (whole: unknown): fc.Arbitrary<readonly Change[]> =>
  fc.uniqueArray(fc.record({ path: fc.constantFrom(...pathsOf(whole)), isNull: fc.boolean() }), {
    maxLength: 6, selector: ({ path }) => path.join('.')
  })

const isText = (value: unknown): boolean => typeof value === 'string' && value !== ''
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0

function checkMessage (
  { id, type, role, model, content, stop_reason: reason, stop_sequence: stop, usage }: Fields
): void {
  assert.match(String(id), /^msg_\w+$/)
  assert.deepEqual({ type, role, model }, { type: 'message', role: 'assistant', model: 'm1' })
  for (const block of content as Fields[]) checkBlock(block)
  assert.ok(isText(reason) && (stop === null || isText(stop)), `${String(reason)} ${String(stop)}`)
  checkUsage(usage)
}

function checkUsage (usage: unknown): void {
  const { input_tokens: input, output_tokens: output } = usage as Fields
  assert.ok(isCount(input) && isCount(output), JSON.stringify(usage))
}

function checkBlock ({ type, text, thinking, signature, id, name, input }: Fields): void {
  switch (type) {
    case 'text': assert.equal(typeof text, 'string'); break
    case 'thinking': assert.deepEqual([typeof thinking, typeof signature], ['string', 'string']); break
    default: assert.deepEqual([type, isText(id), name, typeof input], ['tool_use', true, 'write', 'object'])
  }
}

function checkEvents (text: string): void {
  const all = events(text).filter(({ event }) => event !== 'ping')
  const last = all.pop()!
  if (last.event === 'error') { checkError(last.data, 'messages'); return }
  assert.equal(last.event, 'message_stop')
  const end = all.pop()!
  assert.equal(end.event, 'message_delta')
  const { delta, usage } = end.data as { delta: Fields, usage: Fields }
  assert.ok(isText(delta['stop_reason']) && isCount(usage['output_tokens']), JSON.stringify(end.data))
  const { event, data } = all.shift()!
  assert.equal(event, 'message_start')
  checkMessage({ ...data['message'] as Fields, stop_reason: 'x' })
  const open = new Map<unknown, Fields>()
  for (const { event, data } of all) {
    const { index, content_block: block, delta } = data as { index: number, content_block: Fields, delta: Fields }
    if (event === 'content_block_start') { checkBlock(block); open.set(index, block); continue }
    assert.ok(open.has(index), `${event} of block ${index}`)
    if (event === 'content_block_stop') open.delete(index)
    else assert.ok(isText(delta['type']))
  }
  assert.equal(open.size, 0)
}

function checkCompletion ({ id, object, created, model, choices, usage }: Fields): void {
  assert.match(String(id), /^chatcmpl-\w+$/)
  assert.deepEqual([object, model, isCount(created)], ['chat.completion', 'm1', true])
  const [{ message, finish_reason: reason, index }] = choices as [Fields & { readonly message: Fields }]
  assert.deepEqual([index, message['role'], isText(reason)], [0, 'assistant', true])
  assert.ok(message['content'] === null || typeof message['content'] === 'string')
  for (const call of message['tool_calls'] as Fields[] ?? []) checkCall(call)
  const { prompt_tokens: prompt, completion_tokens: completion, total_tokens: total } = usage as Fields
  assert.ok(isCount(prompt) && isCount(completion) && isCount(total))
}

function checkCall ({ id, type, function: called }: Fields): void {
  const { name, arguments: said } = called as Fields
  assert.deepEqual([isText(id), type, name], [true, 'function', 'write'])
  JSON.parse(said as string)
}

function checkChunks (text: string): void {
  const lines = text.split('\n\n').filter((line) => line !== '' && !line.startsWith(':'))
  assert.equal(lines.pop(), 'data: [DONE]')
  const chunks = lines.map((line) => JSON.parse(line.slice('data: '.length)) as Fields)
  const last = chunks.at(-1)!
  if ('error' in last) { checkError(last, 'chat'); return }
  const usage = chunks.pop()!
  assert.deepEqual(usage['choices'], [])
  assert.ok(isCount((usage['usage'] as Fields)['prompt_tokens']))
  const calls = new Map<unknown, Fields>()
  for (const { choices, id, object, model } of chunks) {
    assert.deepEqual([isText(id), object, model], [true, 'chat.completion.chunk', 'm1'])
    const [{ delta }] = choices as [{ delta: { tool_calls?: Fields[] } }]
    for (const { index, id, function: called } of delta.tool_calls ?? []) {
      const before = calls.get(index) ??
        { id, type: 'function', function: { name: (called as Fields)['name'], arguments: '' } }
      const whole = before['function'] as Fields
      whole['arguments'] = String(whole['arguments']) + String((called as Fields)['arguments'] ?? '')
      calls.set(index, before)
    }
  }
  for (const call of calls.values()) checkCall(call)
  const [{ finish_reason: reason }] = chunks.at(-1)!['choices'] as [Fields]
  assert.ok(isText(reason))
}

function checkError (body: unknown, style: string): void {
  const { error, request_id: id } = body as { error: Fields, request_id?: unknown }
  assert.ok(isText(error['message']) && isText(error['type']), JSON.stringify(body))
  assert.match(String(style === 'messages' ? id : error['request_id']), /^req_/)
}

function checkResponse ({ id, object, created_at: created, model, status, output, usage, error }: Fields): void {
  assert.match(String(id), /^resp_\w+$/)
  assert.deepEqual([object, model, isCount(created), error], ['response', 'm1', true, null])
  assert.ok(status === 'completed' || status === 'incomplete', String(status))
  checkUsage(usage)
  for (const { id, type, role, content, call_id: call, name, arguments: said, summary } of output as Fields[]) {
    assert.ok(isText(id))
    if (type === 'message') assert.deepEqual([role, Array.isArray(content)], ['assistant', true])
    else if (type === 'reasoning') assert.ok(Array.isArray(summary))
    else {
      assert.deepEqual([type, isText(call), name], ['function_call', true, 'write'])
      JSON.parse(said as string)
    }
  }
}

/** The reader throws at what a client would stumble over. */
function checkResponseStream (text: string): void {
  const { response } = readResponse(new SseDecoder().push(Buffer.from(text)))
  if (response['status'] === 'failed') assert.ok(isText((response['error'] as Fields)['code']))
  else checkResponse(response)
}

let answer: Script = []
const up = await upstream(t, () => answer)
const gw = await gateway(t, yaml([up.url]), { isForgetful: true })
const PATHS = { messages: '/v1/messages', chat: '/v1/chat/completions', responses: '/v1/responses' } as const

async function ask (style: keyof typeof PATHS, stream: boolean): Promise<Received> {
  const body = style === 'responses'
    ? { input: 'Hello', tools: [{ type: 'function', name: 'write', parameters: null, strict: null }],
      reasoning: { summary: 'auto' } }
    : { max_tokens: 100, messages: [{ role: 'user', content: 'Hello' }],
      ...(stream && style === 'chat' && { stream_options: { include_usage: true } }),
      ...(style === 'chat' && { tools: [{ type: 'function', function: { name: 'write' } }] }) }
  return await client(t, gw, PATHS[style]).post({ model: 'm1', stream, ...body }).whole()
}

let whole = 0

/** @param check of an answer that is none of an error */
async function holds (style: keyof typeof PATHS, stream: boolean, check: (got: Received) => void): Promise<void> {
  const got = await ask(style, stream)
  assert.ok(got.status === 200 || got.status === 502, `${got.status} ${got.text}`)
  assert.ok(got.isWhole)
  if (got.status === 200 && !/"error":\{|event: error/.test(got.text)) whole++
  if (got.status === 200) check(got)
  else checkError(got.json, style)
  const { entries, openHolds } = await fate(gw, got.id)
  assert.equal(openHolds, 0)
  assert.equal(entries.length, got.status === 200 ? 1 : 0)
}

t.test('a whole answer without any of its fields', async (t) => {
  await fc.assert(fc.asyncProperty(changesTo(WHOLE), async (changes) => {
    answer = json(changed(WHOLE, changes))
    await holds('messages', false, (got) => { checkMessage(got.json as Fields) })
    await holds('chat', false, (got) => { checkCompletion(got.json as Fields) })
    await holds('responses', false, (got) => { checkResponse(got.json as Fields) })
  }), { numRuns: RUNS })
  t.ok(whole > RUNS / 2, `${whole} answers were made whole`)
})

t.test('a stream without any of its fields and events', async (t) => {
  whole = 0
  const changes = changesTo(STREAM.map(([, data]) => data))
  await fc.assert(fc.asyncProperty(changes, fc.boolean(), async (changes, isNamed) => {
    const inEvents = changes.map(({ path: [index, ...path], isNull }): Change =>
      path.length === 0 ? { path: [index!], isNull: false } : { path: [index!, 'data', ...path], isNull })
    const sent = changed(STREAM.map(([name, data]) => ({ name, data })), inEvents)
    answer = (sent as { name: string, data: unknown }[])
      .map(({ name, data }) => raw(eventBytes(isNamed ? name : '', data)))
    await holds('messages', true, (got) => { checkEvents(got.text) })
    await holds('chat', true, (got) => { checkChunks(got.text) })
    await holds('responses', true, (got) => { checkResponseStream(got.text) })
  }), { numRuns: RUNS })
  t.ok(whole > RUNS / 2, `${whole} streams were made whole`)
})
