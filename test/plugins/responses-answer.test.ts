// The answer side of responses-to-messages: streams of messages as a vendor and its imitators send them, whole and cut
// at every event, come out as streams that a strict reader takes, and say what the messages said.
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { toResponse } from '../../plugins/responses-to-messages/reply.ts'
import type { Frame } from '../../plugins/responses-to-messages/response.ts'
import type { ClientTool, ResponseShape } from '../../plugins/responses-to-messages/shape.ts'
import { toResponseEvents } from '../../plugins/responses-to-messages/stream.ts'
import { wholeCharacters } from '../../src/base/json.ts'
import { GatewayError } from '../../src/errors.ts'
import { chatStyle } from '../../src/protocols/chat.ts'
import { shapeError } from '../../src/protocols/error-shape.ts'
import { SseEvent } from '../../src/core/sse.ts'
import { codePoint } from '../support/code-point.ts'
import { type ReadResponse, readResponse } from '../support/responses-reader.ts'

type Json = Readonly<Record<string, unknown>>

const UNIQUE = '0123456789abcdefABCDEF01'
const ID = `req_${UNIQUE}`
const NOW = Date.parse('2026-11-20T10:00:00.500Z')
const frame: Frame = { id: `resp_${UNIQUE}`, created: 1000, model: 'm1', now: () => NOW }
const seal = (text: string): string => `sealed:${text}`

const tools: ReadonlyMap<string, ClientTool> = new Map([
  ['read', { type: 'function', name: 'read' }],
  ['agents__wait', { type: 'function', name: 'wait', namespace: 'agents' }],
  ['patch', { type: 'custom', name: 'patch' }],
  ['functions__exec', { type: 'custom', name: 'exec', namespace: 'functions' }],
  ['tool_search', { type: 'tool_search', name: 'tool_search' }],
  ['local_shell', { type: 'local_shell', name: 'local_shell' }],
  ['shell', { type: 'shell', name: 'shell' }],
  ['apply_patch', { type: 'apply_patch', name: 'apply_patch' }]
])

const echo: Json = { instructions: 'Be brief.', tools: [{ type: 'function', name: 'read' }], tool_choice: 'auto',
  temperature: 1, metadata: {} }

function shaped (more: Partial<ResponseShape> = {}): ResponseShape {
  return { echo, tools, showsThoughts: true, hasSchema: false, answerTool: undefined, allowed: undefined, ...more }
}

const event = (type: string, more: Json = {}): SseEvent => SseEvent.of(type, { type, ...more })

/** All that the client gets of these events. @param pings before which of them the stream is silent for long */
function streamed (events: readonly SseEvent[], shape = shaped(), pings: ReadonlySet<number> = new Set()): SseEvent[] {
  const stream = toResponseEvents(frame, shape, seal)
  return events.flatMap((one, i) => {
    const before = pings.has(i) ? stream.ping() ?? [] : []
    stream.mark()
    return [...before, ...[stream.event(one) ?? []].flat()]
  })
}

const cutError = new GatewayError('upstream_stream_interrupted')

/** The same, cut behind these events; or the last of them was lost on its way, with what was made of it. */
function cut (events: readonly SseEvent[], isLastLost: boolean, shape = shaped(), error = cutError): SseEvent[] {
  const stream = toResponseEvents(frame, shape, seal)
  const out = events.map((one) => {
    stream.mark()
    return [stream.event(one) ?? []].flat()
  })
  if (isLastLost) {
    out.pop()
    stream.takeBack()
    out.push([...stream.ping()!])                             // settling it may take its time
  }
  return [...out.flat(), ...stream.fail(error, shapeError(error, chatStyle, ID))]
}

// A message, as a generator makes it: blocks, and how they are cut into events.

type Block =
  | { readonly type: 'text', readonly text: string }
  | { readonly type: 'thinking', readonly thinking: string, readonly signature: string }
  | { readonly type: 'redacted_thinking', readonly data: string }
  | { readonly type: 'tool_use', readonly name: string, readonly input: Json }
  | { readonly type: 'server_tool_use', readonly name: string, readonly input: Json }

interface Message {
  readonly blocks: readonly Block[]
  readonly stopReason: string
  readonly usage: Json
  /** where texts and inputs are cut */
  readonly cuts: readonly number[]
  /** the pieces of neighbouring calls come mixed */
  readonly isMixed: boolean
  /** what imitators leave out, and what they add */
  readonly misses: { readonly starts: boolean, readonly stops: boolean, readonly messageStart: boolean }
  readonly isNoisy: boolean
}

/** Of whole characters, as dialects make them. */
const texts = fc.oneof(fc.constantFrom('', 'a', '{"a": 1}', ' \n', '"\\\u2028😀'), fc.string({ unit: codePoint }))
  .map((text) => text.toWellFormed())
const input: fc.Arbitrary<Json> = fc.oneof(fc.constant({}), fc.record({ input: texts }),
  fc.dictionary(fc.string(), fc.jsonValue()))
const block: fc.Arbitrary<Block> = fc.oneof(
  fc.record({ type: fc.constant('text' as const), text: texts }),
  fc.record({ type: fc.constant('thinking' as const), thinking: texts, signature: fc.constantFrom('', 'EqQB+/=') }),
  fc.record({ type: fc.constant('redacted_thinking' as const), data: fc.string() }),
  fc.record({ type: fc.constant('tool_use' as const), name: fc.constantFrom(...tools.keys(), 'unheard_of'), input }),
  fc.record({ type: fc.constant('server_tool_use' as const), name: fc.constant('web_search'), input })
)
const counts = fc.option(fc.nat(1000), { nil: undefined })
const message: fc.Arbitrary<Message> = fc.record({
  blocks: fc.array(block, { maxLength: 6 }),
  stopReason: fc.constantFrom('end_turn', 'tool_use', 'stop_sequence', 'pause_turn', 'compaction', 'of_tomorrow',
    'max_tokens', 'model_context_window_exceeded', 'refusal'),
  usage: fc.record({ input_tokens: counts, output_tokens: counts, cache_read_input_tokens: counts,
    cache_creation_input_tokens: counts }),
  cuts: fc.array(fc.nat(30), { maxLength: 5 }),
  isMixed: fc.boolean(),
  misses: fc.record({ starts: fc.boolean(), stops: fc.boolean(), messageStart: fc.boolean() }),
  isNoisy: fc.boolean()
})

function pieces (text: string, cuts: readonly number[]): string[] {
  const places = [0, ...new Set(cuts.filter((at) => at < text.length).toSorted((a, b) => a - b)), text.length]
  return places.slice(1).map((to, i) => text.slice(places[i], to)).filter((piece) => piece !== '')
}

const callId = (i: number): string => `toolu_${i}`

/** The block as it begins. */
function beginning (block: Block, i: number): Json {
  switch (block.type) {
    case 'text': return { type: 'text', text: '' }
    case 'thinking': return { type: 'thinking', thinking: '', signature: '' }
    case 'redacted_thinking': return block
    default: return { ...block, id: callId(i), input: {} }
  }
}

function deltas (block: Block, cuts: readonly number[]): Json[] {
  switch (block.type) {
    case 'text': return pieces(block.text, cuts).map((text) => ({ type: 'text_delta', text }))
    case 'thinking': return [...pieces(block.thinking, cuts).map((thinking) => ({ type: 'thinking_delta', thinking })),
      { type: 'signature_delta', signature: block.signature }]
    case 'redacted_thinking': return []
    default: return Object.keys(block.input).length === 0 ? [] : pieces(JSON.stringify(block.input), cuts).map(
      (json) => ({ type: 'input_json_delta', partial_json: json })
    )
  }
}

/** Mixes the events of neighbouring calls, each in its own order; what stands between calls stays where it is. */
function mixed (lists: ReadonlyArray<{ readonly isCall: boolean, readonly events: readonly SseEvent[] }>): SseEvent[] {
  const out: SseEvent[] = []
  for (let i = 0; i < lists.length;) {
    const run = [lists[i]!]
    while (lists[i]!.isCall && lists[i + run.length]?.isCall === true) run.push(lists[i + run.length]!)
    const longest = Math.max(...run.map(({ events }) => events.length))
    for (let k = 0; k < longest; k++) out.push(...run.flatMap(({ events }) => events[k] ?? []))
    i += run.length
  }
  return out
}

/** The events of a message. @param isWhole false: without those that end it */
function eventsOf ({ blocks, stopReason, usage, cuts, isMixed, misses, isNoisy }: Message): SseEvent[] {
  const lists = blocks.map((block, index) => {
    const isMissing = misses.starts && (block.type === 'text' || block.type === 'thinking')
    return {
      isCall: block.type === 'tool_use',
      events: [
        ...isMissing ? [] : [event('content_block_start', { index, content_block: beginning(block, index) })],
        ...deltas(block, cuts).map((delta) => event('content_block_delta', { index, delta })),
        ...misses.stops && block.type !== 'tool_use' ? [] : [event('content_block_stop', { index })]
      ]
    }
  })
  const said = isMixed ? mixed(lists) : lists.flatMap(({ events }) => events)
  const start = event('message_start', { message: { usage: { input_tokens: 3, output_tokens: 1 } } })
  return [
    ...misses.messageStart ? [] : [start],
    ...isNoisy ? said.flatMap((one) => [event('ping'), one, event('future_event', { delta: { type: 'text_delta' } })])
      : said,
    event('message_delta', { delta: { stop_reason: stopReason }, usage }),
    event('message_stop')
  ]
}

/** What a block says alone, in the words of the API; undefined: nothing. */
function itemOf (block: Block, i: number, showsThoughts: boolean): Json | undefined {
  switch (block.type) {
    case 'text': return block.text === '' ? undefined : { type: 'message', text: block.text }
    case 'thinking': return { type: 'reasoning', summary: showsThoughts ? block.thinking : '',
      sealed: [{ type: 'thinking', thinking: block.thinking, signature: block.signature }] }
    case 'redacted_thinking': return { type: 'reasoning', summary: '', sealed: [block] }
    case 'tool_use': {
      const tool = tools.get(block.name) ?? { type: 'function', name: block.name }
      const { name } = tool
      const call = { call_id: callId(i), ...('namespace' in tool && { namespace: tool.namespace }) }
      if (tool.type === 'function') return { type: 'function_call', ...call, name, input: block.input }
      if (tool.type !== 'custom') return { type: `${tool.type}_call`, ...call }
      const { input } = block.input
      return { type: 'custom_tool_call', ...call, name,
        input: typeof input === 'string' ? input.toWellFormed() : wholeCharacters(JSON.stringify(block.input)) }
    }
    case 'server_tool_use': return undefined
  }
}

/** What the message says. */
function wanted ({ blocks, stopReason }: Message, showsThoughts: boolean): Json[] {
  const items: Json[] = []
  blocks.forEach((block, i) => {
    const item = itemOf(block, i, showsThoughts)
    const last = items.at(-1)
    if (item === undefined) return
    if (item.type === 'message' && last?.type === 'message') {
      items[items.length - 1] = { ...last, text: `${last.text as string}${item.text as string}` }
    } else items.push(item)
  })
  const isCut = ['max_tokens', 'model_context_window_exceeded', 'refusal'].includes(stopReason)
  const last = items.at(-1)
  if (isCut && last !== undefined && last.type !== 'message' && last.type !== 'reasoning') items.pop()
  if (!isCut && items.every(({ type }) => type === 'reasoning')) items.push({ type: 'message', text: '' })
  return items
}

/** What an item of an answer says, in the same words. */
function saidBy (item: Json): Json {
  const { type, call_id: id, namespace, name, summary, content, encrypted_content: sealed } = item
  const call = { call_id: id, ...(namespace !== undefined && { namespace }) }
  switch (type) {
    case 'message': return { type, text: (content as Json[])[0]!.text }
    case 'reasoning': return { type, summary: (summary as Json[])[0]?.text ?? '',
      sealed: sealed === null ? null : JSON.parse((sealed as string).slice('sealed:'.length)) as unknown }
    case 'function_call': return { type, ...call, name, input: JSON.parse(item.arguments as string) as unknown }
    case 'custom_tool_call': return { type, ...call, name, input: item.input }
  }
  return { type, ...call }
}

/** A thought that was cut before its signature is not sealed: else they are alike. */
function isSaid (got: ReadResponse, message: Message, showsThoughts: boolean): boolean {
  const [found, expected] = [got.items.map(saidBy), wanted(message, showsThoughts)]
  const last = found.at(-1)
  if (last?.sealed === null) expected[expected.length - 1] = { ...expected.at(-1), sealed: null }
  return alike(found, expected)
}

/** As JSON: the generator's objects have no prototype. */
function alike (found: unknown, expected: unknown): boolean {
  return isDeepStrictEqual(JSON.parse(JSON.stringify(found)), JSON.parse(JSON.stringify(expected)))
}

const settings = { numRuns: 300 }

t.test('of any message comes a stream that is whole, and says what the message said', async (t) => {
  fc.assert(fc.property(message, fc.boolean(), fc.uniqueArray(fc.nat(30)), (made, showsThoughts, pings) => {
    const got = readResponse(streamed(eventsOf(made), shaped({ showsThoughts }), new Set(pings)))
    return isSaid(got, made, showsThoughts)
  }), settings)
  t.pass()
})

t.test('cut behind any event it ends with a failure that holds what was whole, and the half of a text', async (t) => {
  fc.assert(fc.property(message, fc.boolean(), (made, isLastLost) => {
    const events = eventsOf(made)
    const whole = readResponse(streamed(events)).items
    for (let k = isLastLost ? 1 : 0; k <= events.length - (isLastLost ? 0 : 1); k++) {
      const { response, items } = readResponse(cut(events.slice(0, k), isLastLost))
      if (response.status !== 'failed') return false
      // A last item may be half there, so only those before it are the same.
      if (!alike(items, whole.slice(0, items.length))) return false
    }
    return true
  }), { numRuns: 100 })
  t.pass()
})

t.test('a whole answer and a stream give the same output, whatever is asked for', async (t) => {
  const shapes = fc.record({ showsThoughts: fc.boolean(), hasSchema: fc.boolean(),
    answerTool: fc.constantFrom(undefined, 'read', 'patch') })
  fc.assert(fc.property(message, shapes, (made, more) => {
    const shape = shaped(more)
    const content = made.blocks.map((block, i) => block.type === 'tool_use' ? { ...block, id: callId(i) } : block)
    const answer = { type: 'message', content, stop_reason: made.stopReason, usage: made.usage }
    const whole = toResponse(answer, frame, shape, seal)
    const { response } = readResponse(streamed(eventsOf(made), shape))
    const { usage: _, ...told } = response
    const { usage: __, ...said } = whole
    return alike(told, said)
  }), settings)
  t.pass()
})

// By hand: what the generator does not look at.

const start = event('message_start', { message: { usage: { input_tokens: 10, cache_read_input_tokens: 100,
  cache_creation: { ephemeral_5m_input_tokens: 20, ephemeral_1h_input_tokens: 3 }, output_tokens: 1 } } })
const stop = event('message_stop')

function blockOf (index: number, content: Json, ...said: readonly Json[]): SseEvent[] {
  return [event('content_block_start', { index, content_block: content }),
    ...said.map((delta) => event('content_block_delta', { index, delta })), event('content_block_stop', { index })]
}

const text = (index: number, ...said: readonly string[]): SseEvent[] =>
  blockOf(index, { type: 'text', text: '' }, ...said.map((piece) => ({ type: 'text_delta', text: piece })))
const call = (index: number, name: string, ...json: readonly string[]): SseEvent[] =>
  blockOf(index, { type: 'tool_use', id: `toolu_${index}`, name, input: {} },
    ...json.map((piece) => ({ type: 'input_json_delta', partial_json: piece })))
const end = (reason: string, more: Json = {}): SseEvent[] =>
  [event('message_delta', { delta: { stop_reason: reason, ...more }, usage: { output_tokens: 7,
    output_tokens_details: { thinking_tokens: 4 } } }), stop]

const read = (events: readonly SseEvent[], more: Partial<ResponseShape> = {}): ReadResponse =>
  readResponse(streamed(events, shaped(more)))

t.test('a stream on the wire, to the byte', async (t) => {
  const events = streamed([start, ...text(0, 'Hi "you"'), ...call(1, 'agents__wait', '{"s":1}'), ...end('tool_use')])
  const part = '{"type":"output_text","text":"Hi \\"you\\"","annotations":[],"logprobs":[]}'
  const [msg, fc] = [`msg_${UNIQUE}_0`, `fc_${UNIQUE}_1`]
  const inText = `"item_id":"${msg}","output_index":0,"content_index":0`
  const inCall = `"item_id":"${fc}","output_index":1`
  const call1 = (json: string, status: string): string => `{"id":"${fc}","type":"function_call","call_id":"toolu_1",` +
    `"name":"wait","namespace":"agents","arguments":${json},"status":"${status}"}`
  const wire = (type: string, number: number, fields: string): string =>
    `event: response.${type}\ndata: {"type":"response.${type}","sequence_number":${number},${fields}}\n\n`
  t.equal(SseEvent.join(events.slice(2, -1)).toString(), [
    wire('output_item.added', 2, '"output_index":0,"item":' +
      `{"id":"${msg}","type":"message","role":"assistant","status":"in_progress","content":[]}`),
    wire('content_part.added', 3, `${inText},"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}`),
    wire('output_text.delta', 4, `${inText},"delta":"Hi \\"you\\"","logprobs":[]`),
    wire('output_text.done', 5, `${inText},"text":"Hi \\"you\\"","logprobs":[]`),
    wire('content_part.done', 6, `${inText},"part":${part}`),
    wire('output_item.done', 7, '"output_index":0,"item":' +
      `{"id":"${msg}","type":"message","role":"assistant","status":"completed","content":[${part}]}`),
    wire('output_item.added', 8, `"output_index":1,"item":${call1('""', 'in_progress')}`),
    wire('function_call_arguments.delta', 9, `${inCall},"delta":"{\\"s\\":1}"`),
    wire('function_call_arguments.done', 10, `${inCall},"name":"wait","arguments":"{\\"s\\":1}"`),
    wire('output_item.done', 11, `"output_index":1,"item":${call1('"{\\"s\\":1}"', 'completed')}`)
  ].join(''))
})

t.test('numbers: the input holds what came from a cache and went into one; the charge is there', async (t) => {
  const usage = { input_tokens: 133, input_tokens_details: { cached_tokens: 100, cache_write_tokens: 23 },
    output_tokens: 7, output_tokens_details: { reasoning_tokens: 4 }, total_tokens: 140 }
  t.strictSame(read([start, ...text(0, 'a'), ...end('end_turn')]).response.usage, usage)
  const cost = event('ping', { charged_usd: '0.0105' })
  const { response, types } = read([start, ...text(0, 'a'), ...end('end_turn').toSpliced(1, 0, cost)])
  t.strictSame(response.usage, { ...usage, cost: 0.0105, charged_usd: '0.0105' })
  t.notOk(types.includes('ping'))
})

t.test('the request is repeated at the end, and its long fields there alone; the end has its time', async (t) => {
  const events = streamed([start, ...text(0, 'a'), ...end('end_turn')])
  const { response } = readResponse(events)
  t.match(response, { ...echo, id: `resp_${UNIQUE}`, object: 'response', created_at: 1000, model: 'm1',
    completed_at: NOW / 1000 - 0.5 })
  t.match((events[1]!.json as Json).response, { ...echo, instructions: null, tools: [], completed_at: null })
})

t.test('calls come back as the client knows its tools, however the model has spelt them', async (t) => {
  for (const name of ['agents__wait', 'agents.wait', 'agents/wait', 'functions.agents__wait', 'wait']) {
    const [item] = read([start, ...call(0, name, '{}'), ...end('tool_use')]).items
    t.match(item, { type: 'function_call', name: 'wait', namespace: 'agents', call_id: 'toolu_0' }, name)
  }
  const [unknown] = read([start, ...call(0, 'unheard_of', '{}'), ...end('tool_use')]).items
  t.match(unknown, { type: 'function_call', name: 'unheard_of' })
  t.notOk('namespace' in unknown!)
  const code = call(0, 'functions__exec', '{"input": "let a', ' = 1\\n"}')
  const [custom] = read([start, ...code, ...end('tool_use')]).items
  t.strictSame(custom, { id: `ctc_${UNIQUE}_0`, type: 'custom_tool_call', call_id: 'toolu_0', name: 'exec',
    namespace: 'functions', input: 'let a = 1\n', status: 'completed' })
})

t.test('calls of tools that the API describes, whatever the model has made of their input', async (t) => {
  const calls: readonly (readonly [string, Json, Json])[] = [
    ['tool_search', { query: 'x' }, { execution: 'client', arguments: { query: 'x' } }],
    ['local_shell', { command: ['ls'], env: { A: 'b', C: 1 }, timeout_ms: 5, working_directory: '/', user: 'u' },
      { action: { type: 'exec', command: ['ls'], env: { A: 'b' }, timeout_ms: 5, user: 'u', working_directory: '/' } }],
    ['local_shell', { command: 'ls | wc' }, { action: { type: 'exec', command: ['bash', '-lc', 'ls | wc'], env: {} } }],
    ['shell', { commands: ['ls', 'pwd'], max_output_length: 9 },
      { action: { commands: ['ls', 'pwd'], timeout_ms: null, max_output_length: 9 }, environment: { type: 'local' } }],
    ['shell', { commands: 'ls' }, { action: { commands: ['ls'], timeout_ms: null, max_output_length: null },
      environment: { type: 'local' } }],
    ['apply_patch', { type: 'create_file', path: 'a', diff: '+b' },
      { operation: { type: 'create_file', path: 'a', diff: '+b' } }],
    ['apply_patch', { type: 'delete_file', path: 'a' }, { operation: { type: 'delete_file', path: 'a' } }],
    ['apply_patch', { diff: 1 }, { operation: { type: 'update_file', path: '', diff: '' } }]
  ]
  for (const [name, input, fields] of calls) {
    const [{ id, ...item }] = read([start, ...call(0, name, JSON.stringify(input)), ...end('tool_use')]).items as [Json]
    t.match(id, new RegExp(`^[a-z]{2,3}_${UNIQUE}_0$`))
    t.strictSame(item, { type: `${name}_call`, call_id: 'toolu_0', status: 'completed', ...fields })
  }
})

t.test('a call that tool_choice does not allow is not the client\'s error', async (t) => {
  const shape = shaped({ allowed: new Set(['read']) })
  const fine = [start, ...call(0, 'read', '{}')]
  t.equal(readResponse(streamed([...fine, ...end('tool_use')], shape)).items.length, 1)
  const refused = { row: 'upstream_error', message: /tool_choice does not allow/ }
  for (const name of ['patch', 'unheard_of']) {
    t.throws(() => streamed([...fine, ...call(1, name, '{}')], shape), refused)
    const content = [{ type: 'tool_use', id: 'toolu_1', name, input: {} }]
    t.throws(() => toResponse({ content, stop_reason: 'tool_use' }, frame, shape, seal), refused)
  }
})

t.test('what a limit has cut: a text says so, a call is not there, an unsigned thought can\'t be sent back', async (t) => {
  const half = read([start, ...text(0, 'half'), ...end('max_tokens')])
  t.match(half, { response: { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } },
    items: [{ status: 'incomplete', content: [{ text: 'half' }] }] })
  const called = read([start, ...text(0, 'so'), ...call(1, 'read', '{"a":1'), ...end('max_tokens')])
  t.match(called.items, [{ type: 'message', status: 'completed' }])
  t.equal(called.items.length, 1)
  t.equal(called.types.filter((type) => type === 'response.output_item.added').length, 2)
  const thinking = { type: 'thinking', thinking: '', signature: '' }
  const hm = { type: 'thinking_delta', thinking: 'hm' }
  t.match(read([start, ...blockOf(0, thinking, hm), ...end('max_tokens')]).items,
    [{ type: 'reasoning', status: 'incomplete', encrypted_content: null, summary: [{ text: 'hm' }] }])
  const signed = blockOf(0, thinking, hm, { type: 'signature_delta', signature: 'EqQB' })
  t.match(read([start, ...signed, ...end('max_tokens')]).items, [{ status: 'incomplete', encrypted_content: /EqQB/ }])
})

t.test('the items end with the stop reason: a call need not wait until the answer is recorded', async (t) => {
  const [last] = end('tool_use')
  const types = streamed([start, ...call(0, 'read', '{}'), last!]).map(({ event }) => event)
  t.equal(types.at(-1), 'response.output_item.done')
})

t.test('a block that never ends is over when another begins under its index', async (t) => {
  const [first, , , second] = [...call(0, 'read', '{"a":1}'), ...call(0, 'wait', '{"b":2}')]
  const piece = (json: string): SseEvent =>
    event('content_block_delta', { index: 0, delta: { type: 'input_json_delta', partial_json: json } })
  const { items } = read([start, first!, piece('{"a":1}'), second!, piece('{"b":2}'), ...end('tool_use')])
  t.match(items, [{ name: 'read', arguments: '{"a":1}' }, { name: 'wait', arguments: '{"b":2}' }])
})

t.test('a refusal is incomplete, and its explanation a part of the text', async (t) => {
  const details = { stop_details: { type: 'refusal', category: null, explanation: 'No.' } }
  const got = read([start, ...text(0, 'I'), ...end('refusal', details)])
  t.match(got, { response: { status: 'incomplete', incomplete_details: { reason: 'content_filter' } } })
  t.strictSame(got.items.map(saidBy), [{ type: 'message', text: 'I\n\nNo.' }])
  t.strictSame(read([start, ...end('refusal', details)]).items.map(saidBy), [{ type: 'message', text: 'No.' }])
  t.strictSame(read([start, ...end('refusal', { stop_details: { explanation: null } })]).items, [])
})

t.test('a complete answer has a text or a call: agents would ask again and again', async (t) => {
  t.strictSame(read([start, ...end('stop_sequence')]).items.map(saidBy), [{ type: 'message', text: '' }])
  t.strictSame(read([stop]).items.map(saidBy), [{ type: 'message', text: '' }])
})

t.test('with a schema the text is the answer, or nothing', async (t) => {
  const said = (events: readonly SseEvent[], more: Partial<ResponseShape> = {}): readonly Json[] =>
    read([start, ...events, ...end('end_turn')], { hasSchema: true, ...more }).items.map(saidBy)
  t.strictSame(said(text(0, ' ', '\n{"a"', ':1}')), [{ type: 'message', text: ' \n{"a":1}' }])
  t.strictSame(said(text(0, 'Well')), [{ type: 'message', text: 'Well' }], 'nothing else came')
  t.strictSame(said([...text(0, 'Well'), ...call(1, 'read', '{}')]).map(({ type }) => type), ['function_call'])
  const answerTool = 'json_answer'
  const answer = call(1, answerTool, '{"a"', ':1}')
  t.strictSame(said([...text(0, 'Well'), ...answer], { answerTool }), [{ type: 'message', text: '{"a":1}' }])
  t.strictSame(said([...answer, ...call(2, answerTool, '{"a":2}')], { answerTool }),
    [{ type: 'message', text: '{"a":1}' }], 'a second answer is dropped')
  t.strictSame(said([...answer, ...call(2, 'read', '{}')], { answerTool }).map(({ type }) => type),
    ['message', 'function_call'])
})

t.test('a failure: a code that its clients act on, the sentence with the request id at its end', async (t) => {
  const failed = (error: GatewayError): Json =>
    readResponse(cut([start, ...text(0, 'half').slice(0, 2)], false, shaped(), error)).response.error as Json
  t.strictSame(failed(cutError), { message: `${cutError.message} Request ID: ${ID}`, type: 'api_error',
    code: 'upstream_stream_interrupted', param: null, charged_usd: '0', request_id: ID })
  const overloaded = new GatewayError('model_overloaded', { retryAfter: 7 })
  t.match(failed(new GatewayError('upstream_stream_interrupted', { type: 'overloaded_error', cause: overloaded })),
    { code: 'rate_limit_exceeded', type: 'overloaded_error',
      message: `${cutError.message} Please try again in 7s. Request ID: ${ID}` })
  t.match(failed(new GatewayError('upstream_stream_interrupted', { type: 'overloaded_error' })).message,
    ' Please try again in 2s. Request ID: ')
  t.equal(failed(overloaded).message, `The model is overloaded. Please try again in 7s. Request ID: ${ID}`)
  t.match(failed(new GatewayError('queue_timeout', { retryAfter: 1 })), { code: 'rate_limit_exceeded',
    message: /too long\. Please try again in 1s\. Request ID/ })
  t.match(failed(new GatewayError('context_length_exceeded')), { code: 'context_length_exceeded' })
  const filtered = new GatewayError('content_policy_violation')
  t.match(failed(new GatewayError('upstream_stream_interrupted', { cause: filtered })), { type: filtered.type,
    code: 'content_policy_violation', message: `${filtered.message} Request ID: ${ID}` }, 'to ask again is of no use')
})

t.test('a failure as another plugin has shaped it', async (t) => {
  const stream = toResponseEvents(frame, shaped(), seal)
  const shape = (body: unknown): Json =>
    (readResponse(stream.fail(cutError, { status: 502, headers: {}, body, events: [] })).response.error as Json)
  t.strictSame(shape({ error: { code: 'own', message: 'Own words.' } }), { code: 'own', message: 'Own words.' })
  for (const body of [undefined, null, 'text', [], { error: 'text' }, { error: { code: 1, message: null } }]) {
    const again = toResponseEvents(frame, shaped(), seal).fail(cutError, { status: 502, headers: {}, body, events: [] })
    t.match(readResponse(again).response.error, { code: cutError.code, message: cutError.message })
  }
})

t.test('where the option says so a failure is followed by an error, for clients that overlook it', async (t) => {
  const stream = toResponseEvents(frame, shaped(), seal, true)
  const events = stream.fail(cutError, shapeError(cutError, chatStyle, ID))
  t.strictSame(readResponse(events).types.slice(-2), ['response.failed', 'error'])
  t.match(events.at(-1)!.json, { code: cutError.code, message: `${cutError.message} Request ID: ${ID}`, param: null })
})

t.test('a silence before the answer begins it; behind its end there is nothing more to say', async (t) => {
  const stream = toResponseEvents(frame, shaped(), seal)
  const said = [...stream.ping()!, ...stream.ping()!]
  for (const one of [start, ...text(0, 'a'), ...end('end_turn')]) said.push(...[stream.event(one) ?? []].flat())
  t.strictSame(said.slice(0, 4).map(({ event }) => event),
    ['response.created', 'response.in_progress', 'keepalive', 'response.output_item.added'])
  t.equal(readResponse(said).response.status, 'completed')
  t.equal(stream.ping(), undefined, 'the end may still wait for the store')
  t.equal(stream.event(stop), undefined)
})
