// Answers in shapes that are drawn by chance: choices and indexes in any order, arguments in pieces, twice or torn,
// blocks and items whose beginnings or ends are missing. A client of each style gets the whole answer, from one
// upstream request, or an error; no call is there twice, and none is half. The vendor is one that the simulator can be
// as strict as: it refuses neither the request nor the conversation that goes on from the answer.
import { strict as assert } from 'node:assert'
import fc from 'fast-check'
import t from 'tap'
import { type DialectOf } from '../../src/config/sections/dialects.ts'
import { FINISH_REASONS } from '../../src/protocols/chat.ts'
import { checkVendor, strictVendors, type VendorName } from '../../src/simulator/vendors.ts'
import { ask } from '../support/billing-client.ts'
import { clientStyles, type Style, styles } from '../support/client-styles.ts'
import { gateway, KEY, yaml } from '../support/gateway.ts'
import { bodyIn } from '../support/random-histories.ts'
import { type ClientAnswer, readAnswer } from '../support/read-answer.ts'
import { declarations, modelFields, upstreamOptions, vendorNames, vendorsOf } from '../support/strict-vendors.ts'
import { raw, type Script, upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>
type Dialect = DialectOf<'text'>

interface Call { readonly name: string, readonly input: Json }
interface Said { readonly text: string, readonly calls: readonly Call[] }
/** What the vendor sends, and whether that is broken; undefined: the answer is whole. */
interface Wire { readonly events: readonly (Json | string)[], readonly flaw?: 'cut' | 'broken' | undefined }

const RUNS = 150

const word = fc.string({ minLength: 1, maxLength: 8 })
const said: fc.Arbitrary<Said> = fc.record({
  text: fc.string({ minLength: 1, maxLength: 30 }),
  calls: fc.array(fc.record({ name: fc.constantFrom('run', 'look'),
    input: fc.dictionary(word, fc.oneof(word, fc.integer(), fc.constant(null)), { maxKeys: 3 }) }), { maxLength: 3 })
})

/** Draws whole numbers below `limit`. */
type Draw = (limit: number) => number
const draws: fc.Arbitrary<Draw> = fc.array(fc.nat(), { minLength: 60, maxLength: 60 }).map((numbers) => {
  let next = 0
  return (limit) => numbers[next++ % numbers.length]! % limit
})

function piecesOf (text: string, draw: Draw): string[] {
  const pieces: string[] = []
  for (let at = 0; at < text.length;) {
    const length = 1 + draw(7)
    pieces.push(text.slice(at, at += length))
  }
  return pieces
}

/** Mixes the lists; each keeps its own order. */
function mixed<T> (lists: readonly (readonly T[])[], draw: Draw): T[] {
  const left = lists.map((list) => [...list]).filter(({ length }) => length > 0)
  const out: T[] = []
  while (left.length > 0) {
    const at = draw(left.length)
    out.push(left[at]!.shift()!)
    if (left[at]!.length === 0) left.splice(at, 1)
  }
  return out
}

// Chat style: each call lies in a choice of its own or of all, and may be sent twice, or torn by the limit.

function chatWire ({ text, calls }: Said, draw: Draw): Wire {
  const chunk = (index: number, delta: Json, finish: unknown = null): Json =>
    ({ id: 'c', object: 'chat.completion.chunk', created: 1, choices: [{ index, delta, finish_reason: finish }] })
  const hasIds = draw(3) > 0
  const tears = calls.length > 0 && draw(4) === 0
  const streams = calls.map(({ name, input }, i) => {
    const whole = JSON.stringify(input)
    const isTorn = tears && i === calls.length - 1
    const choice = draw(3)
    // Within its choice a call has an index of its own. Mistral takes its own ids alone, of nine signs.
    const about = { index: i }
    const first = { ...about, ...(hasIds && { id: `callId00${i}` }), type: 'function' }
    const [head = '', ...rest] = piecesOf(isTorn ? whole.slice(0, -1) : whole, draw)
    const again = [
      [],
      [{ ...about, function: { arguments: whole } }],
      [{ ...first, function: { name, arguments: whole } }],
      [{ ...about, function: { arguments: '}' } }]
    ][isTorn ? 0 : draw(4)]!
    return [{ ...first, function: { name, arguments: head } },
      ...rest.map((piece) => ({ ...about, function: { arguments: piece } })), ...again]
      .map((call) => chunk(choice, { tool_calls: [call] }))
  })
  const speaker = draw(2)
  const words = piecesOf(text, draw).map((content) => chunk(speaker, { content }))
  const zeros = Array.from({ length: draw(3) }, () =>
    chunk(0, [{ function_call: { name: '', arguments: '' } }, { content: '', tool_calls: [] },
      { content: null }][draw(3)]!))
  const finish = calls.length === 0 ? ['stop', 'STOP', 'eos', 'sunset'] : ['tool_calls', 'stop', 'function_call']
  const usage = { id: 'c', choices: [], usage: { prompt_tokens: 20, completion_tokens: 5 } }
  return { flaw: tears ? 'cut' : undefined, events: [
    ...mixed([words, zeros, ...streams], draw),
    chunk(draw(2), {}, finish[draw(finish.length)]), ...(draw(2) === 0 ? [usage] : []), '[DONE]'
  ] }
}

// Messages style: blocks with or without indexes and ends; or one that is torn, doubled or spliced.

function messagesWire ({ text, calls }: Said, draw: Draw): Wire {
  const start = (id: string): Json => ({ type: 'message_start', message: { id, type: 'message', role: 'assistant',
    content: [], stop_reason: null, usage: { input_tokens: 20, output_tokens: 1 } } })
  const flaw = calls.length > 0 ? [undefined, undefined, undefined, 'torn', 'doubled', 'spliced'][draw(6)] : undefined
  const hasIndexes = draw(3) > 0
  const hasStops = draw(3) > 0
  const order = mixed([calls.map((_, i) => i), [calls.length]], draw)
  const blocks = order.flatMap((which, index) => {
    const call = calls[which]
    const at = hasIndexes ? { index } : {}
    const delta = (fields: Json): Json => ({ type: 'content_block_delta', ...at, delta: fields })
    const stop = hasStops ? [{ type: 'content_block_stop', ...at }] : []
    if (call === undefined) {
      const begin = { type: 'content_block_start', ...at, content_block: { type: 'text', text: '' } }
      return [...(draw(3) > 0 ? [begin] : []),
        ...piecesOf(text, draw).map((piece) => delta({ type: 'text_delta', text: piece })), ...stop]
    }
    const input = JSON.stringify(call.input)
    const isFlawed = which === 0
    const content = isFlawed && flaw === 'torn' ? input.slice(0, -1)
      : isFlawed && flaw === 'doubled' ? input + input : input
    const begin = { type: 'content_block_start', ...at,
      content_block: { type: 'tool_use', id: `toolu_${which}`, name: call.name, input: {} } }
    return [begin, ...(hasIndexes && draw(4) === 0 ? [begin] : []),
      ...piecesOf(content, draw).map((piece) => delta({ type: 'input_json_delta', partial_json: piece })),
      ...(isFlawed && flaw === 'spliced' ? [start('msg_b')] : []), ...stop]
  })
  const reason = ['tool_use', 'end_turn', 'stop', null][calls.length > 0 ? draw(4) : 1 + draw(3)]
  return { flaw: flaw === undefined ? undefined : 'broken', events: [
    start('msg_a'), ...(draw(4) === 0 ? [start('msg_a')] : []), ...blocks,
    { type: 'message_delta', delta: { stop_reason: reason, stop_sequence: null }, usage: { output_tokens: 5 } },
    { type: 'message_stop' }
  ] }
}

// Responses style: items of which events are missing or counted otherwise, beside the vendor's own calls.

function responsesWire ({ text, calls }: Said, draw: Draw): Wire {
  const message = { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed',
    content: [{ type: 'output_text', text, annotations: [] }] }
  const items: Json[] = [message, ...calls.map(({ name, input }, i) => ({ type: 'function_call', id: `fc_${i}`,
    call_id: `call_${i}`, name, status: 'completed', arguments: JSON.stringify(input) }))]
  const own = { type: 'custom_tool_call', id: 'ctc_1', call_id: 'call_own', name: 'x_search', status: 'completed',
    input: 'ferries' }
  if (draw(3) === 0) items.splice(draw(items.length + 1), 0, own)
  const isCutShort = draw(4) === 0
  const hasEnd = draw(2) === 0
  const shift = draw(2)
  const events = items.flatMap((item, place) => {
    const event = (type: string, fields: Json): Json =>
      ({ type: `response.${type}`, output_index: place, item_id: item['id'], ...fields })
    const isMissing = isCutShort && hasEnd && place === items.length - 1 && item !== message
    if (isMissing) return []
    const [kind, field, whole] = item === message ? ['output_text', 'text', text]
      : item === own ? ['custom_tool_call_input', 'input', own.input]
      : ['function_call_arguments', 'arguments', item['arguments'] as string]
    const part = item === message ? { content_index: shift } : {}
    const added = event('output_item.added', { item: { ...item, status: 'in_progress', content: [], [field]: '' } })
    const hasDeltas = draw(3) > 0
    const hasDone = draw(3) > 0
    return [added, ...(draw(4) === 0 ? [added] : []),
      ...(hasDeltas ? piecesOf(whole, draw).map((delta) => event(`${kind}.delta`, { ...part, delta })) : []),
      ...(draw(2) === 0 ? [event(`${kind}.done`, { content_index: 0, [field]: whole })] : []),
      ...(hasDone || !(hasEnd || hasDeltas) ? [event('output_item.done', { item })] : [])]
  })
  return { events: [...events, { type: 'response.completed', response: { id: 'resp_1', status: 'completed',
    output: hasEnd ? items : [], usage: { input_tokens: 20, output_tokens: 5 } } }] }
}

const wires: Readonly<Record<Dialect, (one: Said, draw: Draw) => Wire>> = {
  chat: chatWire, messages: messagesWire, responses: responsesWire
}

let script: Script = []
const vendor = await upstream(t, () => script)
const gw = await gateway(t, yaml([]).replace(/upstreams:\n[^]*(?=accounts:)/, `upstreams:\n${
  vendorNames.map((name) => `  ${name}: { url: "${vendor.url}", dialect: ${strictVendors[name].api}, ` +
    `retries: { attempts: 2, backoff: 1ms, max_backoff: 2ms }, breaker: { failures: 1000000 }${upstreamOptions(name)} }\n`)
    .join('')}models:\n${
  vendorNames.map((name) => `  - { id: ${name}, provider: acme, created: 2025-01-01, context: 200000, ` +
    `max_output: 8192${modelFields(name)}, channels: { premium: { price: { input: 1, output: 10 }, ` +
    `targets: [{ upstream: ${name}, model: "${declarations[name].model}" }] } } }\n`).join('')}`), { isForgetful: true })

function eventText (one: Json | string): string {
  return typeof one === 'string' ? `data: ${one}\n\n`
    : `${typeof one['type'] === 'string' ? `event: ${one['type']}\n` : ''}data: ${JSON.stringify(one)}\n\n`
}

const sorted = (calls: readonly { readonly name: unknown, readonly input: unknown }[]): string[] =>
  calls.map(({ name, input }) => JSON.stringify([name, input])).toSorted()

function stopFor (style: Style, stop: string): string | undefined {
  if (style === 'messages') return stop
  if (style === 'chat') return FINISH_REASONS.get(stop)
  return stop === 'max_tokens' ? 'incomplete' : 'completed'
}

const ended = (name: VendorName): Wire => wires[strictVendors[name].api]({ text: 'Done.', calls: [] }, () => 0)

/** @throws {AssertionError} the vendor refuses the last request */
function checkLast (name: VendorName): void {
  const { headers, body } = vendor.requests.at(-1)!
  assert.doesNotThrow(() => { checkVendor(strictVendors[name], strictVendors[name].api, { headers, body }) },
    `${name} refuses ${JSON.stringify(body)}`)
}

/** The client runs the calls and sends it all again, as it has read it. */
async function goOn (name: VendorName, style: Style, { text, calls, ids }: ClientAnswer): Promise<void> {
  const made = calls.map(({ name: tool, input }, i) => ({ id: String(ids[i]), name: String(tool),
    input: typeof input === 'string' ? input : JSON.stringify(input) }))
  script = raw(ended(name).events.map(eventText).join(''))
  const got = await ask(gw.url + clientStyles[style].path, { model: name, ...bodyIn[style]({ user: undefined,
    settings: { stream: true }, steps: [
      { kind: 'user', text: 'When?', inParts: false }, { kind: 'answer', text, inParts: false, calls: made },
      ...made.length === 0 ? [] : [{ kind: 'results' as const, texts: made.map(({ id }) => [id, 'At nine.'] as const),
        said: '' }],
      { kind: 'user', text: 'And back?', inParts: true }],
    tools: ['run', 'look'].map((tool) => ({ name: tool, schema: { type: 'object', properties: {} } })) }) },
  { headers: { authorization: `Bearer ${KEY}` } })
  assert.equal(readAnswer(style, true, got)?.text, 'Done.', `${name}, ${style}: ${got.status} ${JSON.stringify(got.body)}`)
  checkLast(name)
}

async function check (
  name: VendorName, one: Said, { events, flaw }: Wire, style: Style, stream: boolean
): Promise<void> {
  const { path, asking } = clientStyles[style]
  const before = vendor.requests.length
  script = raw(events.map(eventText).join(''))
  const got = await ask(gw.url + path, asking({ model: name, max_tokens: 2000, stream,
    messages: [{ role: 'user', content: 'When?' }] }), { headers: { authorization: `Bearer ${KEY}` } })
  checkLast(name)
  const answer = readAnswer(style, stream, got)
  const about = `${style}, ${stream ? 'a stream' : 'JSON'}: ${got.status} ${JSON.stringify(got.body ?? got.events)}`
  if (flaw === 'broken') { assert.equal(answer, undefined, about); return }
  assert.ok(answer !== undefined, about)
  assert.equal(vendor.requests.length - before, 1, `one upstream request: ${about}`)
  assert.equal(answer.text, one.text, about)
  await goOn(name, style, answer)
  if (flaw === 'cut') {
    // The calls that a client can read are the vendor's, each once; the torn one is none.
    const whole = sorted(one.calls.slice(0, -1))
    for (const call of sorted(answer.calls.filter(({ input }) => typeof input === 'object'))) {
      assert.ok(whole.includes(call), about)
      whole.splice(whole.indexOf(call), 1)
    }
    assert.equal(answer.stop, stopFor(style, 'max_tokens'), about)
    return
  }
  assert.deepEqual(sorted(answer.calls), sorted(one.calls), about)
  assert.equal(answer.stop, stopFor(style, one.calls.length > 0 ? 'tool_use' : 'end_turn'), about)
}

for (const dialect of ['chat', 'messages', 'responses'] as const) {
  t.test(`A0, A3, A4, A11, A12, V9, V10, V12: whatever the shape, ${dialect}`, async (t) => {
    await fc.assert(fc.asyncProperty(said, draws, async (one, draw) => {
      const wire = wires[dialect](one, draw)
      const name = vendorsOf(dialect)[draw(vendorsOf(dialect).length)]!
      for (const style of styles) await check(name, one, wire, style, draw(2) === 0)
    }), { numRuns: RUNS })
    t.equal(await gw.services.store.openHolds(), 0)
  })
}
