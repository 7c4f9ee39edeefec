// A messages upstream that leaves things out, in every way that a generator finds: unmodified SDKs read what comes of
// it, through real sockets, as messages and as chat completions, whole and streamed. They get what
// src/README.md#message-shape promises, all that was said, and the ledger says `estimated` where the upstream did not
// count. A failure prints its seed; repeat it with FC_SEED=… node test/e2e/sdk-omissions.test.ts
import { strict as assert } from 'node:assert'
import { createAnthropic } from '@ai-sdk/anthropic'
import Anthropic from '@anthropic-ai/sdk'
import { streamText } from 'ai'
import AnthropicOld from 'anthropic-sdk-0'
import fc from 'fast-check'
import OpenAI from 'openai'
import OpenAIOld from 'openai-6'
import t from 'tap'
import type { Entry } from '../../src/store/store.ts'
import { events, fate } from '../support/client.ts'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { answer, blockDelta, blockStart, blockStop, errorEvent, eventBytes, json, message, messageDelta, messageEnd,
  messageStart, messageStop, ping, raw, sse, textBlock, textDelta, upstream, type Script } from '../support/upstream.ts'

Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })
const RUNS = 60

type Fields = Record<string, unknown>

interface Block { readonly kind: 'text' | 'thinking' | 'tool_use', readonly pieces: readonly string[] }

interface Case {
  readonly blocks: readonly Block[]
  readonly reason: 'end_turn' | 'max_tokens' | undefined
  /** whether the vendor tells what it counted: of the input, of the output in its end */
  readonly input: 'start' | 'end' | 'never'
  readonly output: boolean
  /** fields that are left out, wherever they are; `event:` is the line */
  readonly lacking: readonly string[]
  /** events that are left out, wherever they are */
  readonly missing: readonly string[]
  readonly isStartTwice: boolean
  /** the blocks stand in message_start */
  readonly isEarly: boolean
}

const LACKING = ['id', 'role', 'type of message', 'content', 'model', 'stop_sequence', 'stop_reason of start', 'index',
  'type of delta', 'type of block', 'type of event', 'event:', 'text of block', 'input of block', 'id of block',
  'usage of start', 'usage of end', 'delta of end'] as const
/** Not the end, without which an answer is unfinished (A5). */
const MISSING = ['message_start', 'content_block_start', 'content_block_stop'] as const

const word = fc.constantFrom('Hello', ' world', ' of snow', ' ☃ and', ' "more"', '\n', ' 1 2 3')
const block: fc.Arbitrary<Block> = fc.record({ kind: fc.constantFrom('text', 'thinking', 'tool_use'),
  pieces: fc.array(word, { minLength: 1, maxLength: 3 }) })
const cases: fc.Arbitrary<Case> = fc.record({
  // What ends in a thought says nothing.
  blocks: fc.array(block, { minLength: 1, maxLength: 4 }).map((all) =>
    all.some(({ kind }) => kind !== 'thinking') ? all : [...all, { kind: 'text' as const, pieces: ['so'] }]
  ),
  reason: fc.constantFrom('end_turn', 'max_tokens', undefined),
  input: fc.constantFrom('start', 'end', 'never'),
  output: fc.boolean(),
  lacking: fc.subarray([...LACKING]),
  missing: fc.subarray([...MISSING]),
  isStartTwice: fc.boolean(),
  isEarly: fc.boolean()
})

const call: Block = { kind: 'tool_use', pieces: ['Hello'] }
const plain: Case = { blocks: [call], reason: 'end_turn', input: 'start', output: true, lacking: [], missing: [],
  isStartTwice: false, isEarly: false }
/** What failed once: a corrected reason without its type, a count before a whole call, a signature behind counts. */
const FOUND: readonly Case[] = [
  { ...plain, lacking: ['type of event'] },
  { ...plain, output: false, isEarly: true },
  { ...plain, blocks: [{ kind: 'text', pieces: ['Hello'] }, { kind: 'thinking', pieces: ['Hello'] }],
    missing: ['content_block_stop'], isStartTwice: true }
]

const inputOf = ({ pieces }: Block): Fields => ({ words: pieces })

function without (fields: Fields, ...names: readonly string[]): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)))
}

/** One after the other, as a vendor would send them that leaves nothing out. */
function wholeBlock ({ kind, pieces }: Block, i: number, lacking: readonly string[]): Fields {
  const text = pieces.join('')
  const whole: Fields = kind === 'text'
    ? { type: 'text', text }
    : kind === 'thinking'
    ? { type: 'thinking', thinking: text, signature: 'sig' }
    : { type: 'tool_use', id: `toolu_${i}`, name: 'write', input: inputOf({ kind, pieces }) }
  return without(whole, ...lacking.includes('type of block') ? ['type'] : [],
    ...lacking.includes('id of block') ? ['id'] : [])
}

function deltasOf ({ kind, pieces }: Block): Fields[] {
  if (kind === 'text') return pieces.map((text) => ({ type: 'text_delta', text }))
  if (kind === 'thinking') {
    return [...pieces.map((thinking) => ({ type: 'thinking_delta', thinking })), { type: 'signature_delta',
      signature: 'sig' }]
  }
  const text = JSON.stringify(inputOf({ kind, pieces }))
  return [text.slice(0, 5), text.slice(5)].map((partial_json) => ({ type: 'input_json_delta', partial_json }))
}

function streamOf (one: Case): Buffer[] {
  const { blocks, lacking, missing } = one
  const lacks = (what: string): boolean => lacking.includes(what)
  const out: Buffer[] = []
  const say = (name: string, data: Fields): void => {
    out.push(
      eventBytes(lacks('event:') && !lacks('type of event') ? '' : name,
        lacks('type of event') ? without(data, 'type') : data)
    )
  }
  const start = without({
    id: 'msg_upstream', type: 'message', role: 'assistant', model: 'vendor-m1', stop_reason: null, stop_sequence: null,
    content: one.isEarly ? blocks.map((block, i) => wholeBlock(block, i, lacking)) : [],
    usage: { ...one.input === 'start' && { input_tokens: 10 }, output_tokens: 1 }
  }, ...lacks('id') ? ['id'] : [], ...lacks('role') ? ['role'] : [], ...lacks('type of message') ? ['type'] : [],
    ...lacks('content') && !one.isEarly ? ['content'] : [], ...lacks('model') ? ['model'] : [],
    ...lacks('stop_reason of start') ? ['stop_reason', 'stop_sequence'] : [],
    ...lacks('usage of start') && one.input !== 'start' ? ['usage'] : [])
  const isStarted = !missing.includes('message_start') || one.isEarly || one.input === 'start'
  for (let i = 0; i < (isStarted ? one.isStartTwice ? 2 : 1 : 0); i++) {
    say('message_start', { type: 'message_start', message: start })
  }
  out.push(eventBytes('ping', { type: 'ping' }))
  for (const [index, block] of one.isEarly ? [] : blocks.entries()) {
    const number = lacks('index') ? {} : { index }
    const empty = without(
      block.kind === 'text'
        ? { type: 'text', text: '' }
        : block.kind === 'thinking'
        ? { type: 'thinking', thinking: '', signature: '' }
        : { type: 'tool_use', id: `toolu_${index}`, name: 'write', input: {} },
      ...lacks('text of block') && !lacks('type of block') ? ['text', 'thinking', 'signature'] : [],
      ...lacks('input of block') ? ['input'] : [],
      ...lacks('id of block') ? ['id'] : [],
      ...lacks('type of block') ? ['type'] : []
    )
    if (!missing.includes('content_block_start') || block.kind === 'tool_use') {
      say('content_block_start', { type: 'content_block_start', ...number, content_block: empty })
    }
    for (const delta of deltasOf(block)) {
      say('content_block_delta', { type: 'content_block_delta', ...number,
        delta: lacks('type of delta') ? without(delta, 'type') : delta })
    }
    if (!missing.includes('content_block_stop')) {
      say('content_block_stop', { type: 'content_block_stop', ...number })
    }
  }
  const usage = { ...one.input === 'end' && { input_tokens: 10 }, ...one.output && { output_tokens: 7 } }
  say('message_delta',
    without({ type: 'message_delta',
      delta: { ...one.reason !== undefined && { stop_reason: one.reason },
        ...!lacks('stop_sequence') && { stop_sequence: null } }, usage },
      ...lacks('usage of end') && Object.keys(usage).length === 0 ? ['usage'] : [],
      ...lacks('delta of end') && one.reason === undefined ? ['delta'] : []))
  say('message_stop', { type: 'message_stop' })
  return out
}

function bodyOf (one: Case): Fields {
  const lacks = (what: string): boolean => one.lacking.includes(what)
  return without({
    id: 'msg_upstream', type: 'message', role: 'assistant', model: 'vendor-m1',
    content: one.blocks.map((block, i) => wholeBlock(block, i, one.lacking)),
    stop_reason: one.reason, stop_sequence: null,
    usage: { ...one.input !== 'never' && { input_tokens: 10 }, ...one.output && { output_tokens: 7 } }
  }, ...lacks('id') ? ['id'] : [], ...lacks('role') ? ['role'] : [], ...lacks('type of message') ? ['type'] : [],
    ...lacks('model') ? ['model'] : [], ...one.reason === undefined ? ['stop_reason'] : [],
    ...lacks('stop_sequence') ? ['stop_sequence'] : [],
    ...one.input === 'never' && !one.output && lacks('usage of end') ? ['usage'] : [])
}

/** Spec 6.1, in a row. */
function checkStream (text: string): void {
  const all = events(text).filter(({ event }) => event !== 'ping')
  for (const { event, data } of all) assert.equal(data['type'], event)
  const [first, ...rest] = all
  const last = rest.pop()
  const end = rest.pop()
  assert.equal(first?.event, 'message_start')
  checkHead(first.data['message'] as Fields)
  assert.deepEqual((first.data['message'] as Fields)['content'], [])
  assert.equal(last?.event, 'message_stop')
  assert.equal(end?.event, 'message_delta')
  assert.equal(typeof (end.data['delta'] as Fields)['stop_reason'], 'string')
  assert.ok(Number.isSafeInteger((end.data['usage'] as Fields)['output_tokens']))
  let count = 0
  const open = new Set<unknown>()
  for (const { event, data } of rest) {
    if (event === 'content_block_start') {
      assert.equal(data['index'], count++)
      checkBlock(data['content_block'] as Fields)
      open.add(data['index'])
    } else {
      assert.ok(open.has(data['index']), `${event} of a block that is not open`)
      if (event === 'content_block_stop') open.delete(data['index'])
      else assert.equal(typeof (data['delta'] as Fields)['type'], 'string')
    }
  }
  assert.equal(open.size, 0, 'every block has its end')
}

function checkHead ({ id, type, role, model, usage }: Fields): void {
  assert.match(String(id), /^msg_\w+$/)
  assert.deepEqual({ type, role, model }, { type: 'message', role: 'assistant', model: 'm1' })
  const { input_tokens: input, output_tokens: output } = usage as Fields
  assert.ok(Number.isSafeInteger(input) && Number.isSafeInteger(output), JSON.stringify(usage))
}

function checkBlock ({ type, text, thinking, id, name, input }: Fields): void {
  if (type === 'text') assert.equal(typeof text, 'string')
  else if (type === 'thinking') assert.equal(typeof thinking, 'string')
  else assert.deepEqual([type, typeof id, name, typeof input], ['tool_use', 'string', 'write', 'object'])
}

const textOf = ({ blocks }: Case, kind: Block['kind']): string =>
  blocks.filter((block) => block.kind === kind).map(({ pieces }) => pieces.join('')).join('')
const callsOf = ({ blocks }: Case): readonly Fields[] => blocks.filter(({ kind }) => kind === 'tool_use').map(inputOf)
/** Clients run tools only if the reason says so: the calls count, whatever the vendor's word for a whole answer. */
const reasonOf = ({ reason = 'end_turn', ...one }: Case): string =>
  reason === 'end_turn' && callsOf(one as Case).length > 0 ? 'tool_use' : reason

function checkMessage (
  one: Case,
  got: { readonly content: readonly unknown[], readonly stop_reason: unknown, readonly usage: unknown }
): void {
  checkHead(got as unknown as Fields)
  const content = got.content as readonly Fields[]
  content.forEach(checkBlock)
  assert.equal(content.map(({ text = '' }) => text).join(''), textOf(one, 'text'))
  assert.equal(content.map(({ thinking = '' }) => thinking).join(''), textOf(one, 'thinking'))
  assert.deepEqual(content.filter(({ type }) => type === 'tool_use').map(({ input }) => input), callsOf(one))
  assert.equal(new Set(content.flatMap(({ id }) => id === undefined ? [] : [id])).size, callsOf(one).length,
    'each call has an id of its own')
  assert.equal(got.stop_reason, reasonOf(one))
  const { output_tokens: output } = got.usage as Fields
  if (one.output) assert.equal(output, 7)
}

const FINISH: Readonly<Record<string, string>> = { end_turn: 'stop', max_tokens: 'length', tool_use: 'tool_calls' }

t.test('whatever is left out, SDKs read the whole answer, and it is charged', async (t) => {
  let current: Case | undefined
  const up = await upstream(t,
    ({ body }) => body?.['stream'] === true ? streamOf(current!).map((event) => raw(event)) : json(bodyOf(current!)))
  const spare = await upstream(t, answer('from the spare'))
  const gw = await gateway(t, yaml([up.url, spare.url]))
  const ids: string[] = []
  let text = ''
  /** Keeps the request id, and a copy of what came. */
  const watching: typeof globalThis.fetch = async (input, init) => {
    const response = await fetch(input, init)
    ids.push(response.headers.get('x-request-id')!)
    if (!response.headers.get('content-type')!.startsWith('text/event-stream')) return response
    text = await response.text()
    return new Response(text, response)
  }
  const own = { apiKey: KEY, fetch: watching, maxRetries: 0 }
  const claudes = [new Anthropic({ ...own, baseURL: gw.url }),
    new AnthropicOld({ ...own, baseURL: gw.url }) as unknown as Anthropic]
  const openais = [new OpenAI({ ...own, baseURL: `${gw.url}/v1` }),
    new OpenAIOld({ ...own, baseURL: `${gw.url}/v1` }) as unknown as OpenAI]
  const ai = createAnthropic({ apiKey: KEY, baseURL: `${gw.url}/v1`, fetch: watching })
  const ask = { model: 'm1', max_tokens: 500, messages: [{ role: 'user' as const, content: 'Hello' }] }

  const ways: Readonly<Record<string, (one: Case, round: number) => Promise<void>>> = {
    'a message': async (one, round) => { checkMessage(one, await claudes[round % 2]!.messages.create(ask)) },
    'a stream of messages style': async (one, round) => {
      const got = await claudes[round % 2]!.messages.stream(ask).finalMessage()
      checkStream(text)
      checkMessage(one, got)
    },
    'a stream of messages style, by the ai package': async (one) => {
      const result = streamText({ model: ai('m1'), prompt: 'Hello', maxRetries: 0, onError: ({ error }) => {
        throw error
      } })
      assert.equal(await result.text, textOf(one, 'text'))
      assert.ok(Number.isSafeInteger((await result.usage).outputTokens))
    },
    'a chat completion': async (one, round) => {
      const { choices: [choice], usage } = await openais[round % 2]!.chat.completions.create(ask)
      assert.equal(choice!.message.content ?? '', textOf(one, 'text'))
      assert.deepEqual(
        (choice!.message.tool_calls ?? []).map((call) =>
          JSON.parse((call as { function: { arguments: string } }).function.arguments) as unknown
        ),
        callsOf(one)
      )
      assert.equal(choice!.finish_reason, FINISH[reasonOf(one)])
      assert.ok(usage!.total_tokens >= (one.output ? 7 : 0))
    },
    'a stream of chat style': async (one, round) => {
      const stream = openais[round % 2]!.chat.completions.stream({ ...ask, stream_options: { include_usage: true } })
      const { choices: [choice], usage } = await stream.finalChatCompletion()
      assert.equal(choice!.message.content ?? '', textOf(one, 'text'))
      assert.deepEqual(
        (choice!.message.tool_calls ?? []).map((call) =>
          JSON.parse((call as { function: { arguments: string } }).function.arguments) as unknown
        ),
        callsOf(one)
      )
      assert.equal(choice!.finish_reason, FINISH[reasonOf(one)])
      assert.equal(usage!.completion_tokens, one.output ? 7 : usage!.completion_tokens)
    }
  }
  let round = 0
  const check = async (one: Case): Promise<void> => {
    current = one
    round++
    for (const [way, read] of Object.entries(ways)) {
      try {
        await read(one, round)
      } catch (thrown) {
        throw new Error(
          `${way}: ${(thrown as Error).message}\n${way.includes('stream') ? text : JSON.stringify(bodyOf(one))}`,
          { cause: thrown }
        )
      }
      const { entries, openHolds, line } = await fate(gw, ids.at(-1)!)
      assert.equal(openHolds, 0)
      assert.equal(line['upstream'], 'u0')
      const [entry] = entries as readonly Entry[]
      assert.equal(entry?.usage_source, one.input !== 'never' && one.output ? 'provider' : 'estimated', way)
      const { input, output } = entry.usage!
      if (one.input !== 'never') assert.equal(input, 10)
      else assert.ok(input > 0)
      if (one.output) assert.equal(output, 7)
      else assert.ok(output > 0 && (output > 1 || textOf(one, 'text').length < 10), `counted: ${output}`)
      assert.equal(-entry.nanos, BigInt(input) * 3000n + BigInt(output) * 15_000n)
    }
  }
  const seed = process.env['FC_SEED']
  await fc.assert(fc.asyncProperty(cases, check), { numRuns: RUNS, examples: FOUND.map((one): [Case] => [one]),
    ...(seed !== undefined && { seed: Number(seed) }) })
  t.equal(spare.requests.length, 0)
  t.ok(round >= RUNS)
})

t.test('what is whole passes as the bytes that came, and what is new to us too', async (t) => {
  const rest = [ping(), blockStart(0), textDelta(0, 'Hi ☃'), sse('future_event', { any: [1.0, 'x'] }), blockStop(0),
    blockStart(1, { type: 'future_block', a: 1 }), blockDelta(1, { type: 'future_delta', b: 2 }), blockStop(1),
    messageEnd({ usage: { more: 1 } })]
  const up = await upstream(t, [messageStart(), rest])
  const plain = await upstream(t, [messageStart(), rest])
  const gw = await gateway(t, yaml([up.url]))
  const vendors = await (await fetch(plain.url, { method: 'POST' })).text()
  const ours = await (await gw.messages({ ...messagesRequest, stream: true })).text()
  const behindStart = (text: string): string => text.slice(text.indexOf('\n\n') + 2)
  t.equal(behindStart(ours), behindStart(vendors))
  t.equal(ours.slice(0, ours.indexOf('\n\n')),
    vendors.slice(0, vendors.indexOf('\n\n')).replace('upstream-model', 'm1'))
})

t.test('what can\'t be made whole is the next target\'s, until something was said; behind that the answer breaks off', async (t) => {
  const uncounted = { input_tokens: 0, output_tokens: 0 }
  const scripts: Readonly<Record<string, Script>> = {
    'a text that is none': [messageStart(), blockStart(0), blockDelta(0, { type: 'text_delta', text: 5 }),
      messageEnd()],
    'nothing but a start without counts and an end': [messageStart({ usage: uncounted }), messageStop()],
    'nothing but an end': messageStop(),
    'an error with the status of an answer': json({ type: 'error',
      error: { type: 'overloaded_error', message: 'busy' } }),
    'an error behind the start': [messageStart(), errorEvent()]
  }
  const bodies: Readonly<Record<string, Fields>> = {
    'no object': [] as unknown as Fields,
    'no content': { id: 'msg_1', role: 'assistant' },
    'nothing in it, and nothing counted': { ...message('x', { usage: uncounted }), content: [],
      stop_reason: undefined },
    'an error': { type: 'error', error: { type: 'api_error', message: 'no' } }
  }
  let script: Script = []
  const up = await upstream(t, () => script)
  const spare = await upstream(t, answer('from the spare'))
  const gw = await gateway(t, yaml([up.url, spare.url]))
  for (const [name, said] of [...Object.entries(scripts),
    ...Object.entries(bodies).map(([name, body]) => [name, json(body)] as const)]) {
    await t.test(name, async (t) => {
      gw.heal()
      script = said
      const response = await gw.messages({ ...messagesRequest, stream: name in scripts })
      t.equal(response.status, 200)
      t.match(await response.text(), /from the spare/)
      t.match(await fate(gw, response.headers.get('x-request-id')!), { line: { upstream: 'u1', attempts: 2 },
        openHolds: 0 })
    })
  }
  const broken: Readonly<Record<string, Script>> = {
    'the input of no call': [blockDelta(1, { type: 'input_json_delta', partial_json: '{}' }), messageEnd()],
    'half a call without a limit': [blockStart(1, { ...call, name: 'f', input: {} }),
      blockDelta(1, { type: 'input_json_delta', partial_json: '{"a' }), blockStop(1),
      messageEnd({ stop_reason: 'tool_use' })],
    // An end without a reason is none, whatever was counted (A5).
    'no end': messageStop()
  }
  for (const [name, said] of Object.entries(broken)) {
    await t.test(`behind the first words: ${name}`, async (t) => {
      gw.heal()
      const before = spare.requests.length
      script = [messageStart(), textBlock(0, 'Hello'), said]
      const text = await (await gw.messages({ ...messagesRequest, stream: true })).text()
      t.equal(events(text).at(-1)?.event, 'error')
      t.match(text, name === 'no end' ? /Hello[^]*stream_incomplete/ : /Hello[^]*upstream_stream_interrupted/)
      t.equal(spare.requests.length, before)
    })
  }
})

t.test('what is odd and was paid for is the answer, and nobody else is asked (rule one-request)', async (t) => {
  const scripts: Readonly<Record<string, Script>> = {
    'a call without anything': [messageStart(), blockStart(0, { type: 'tool_use', id: 'toolu_1', input: {} }),
      blockStop(0), messageEnd()],
    'a block without anything': [messageStart(), blockStart(0, {}), messageEnd()],
    'nothing but a start with counts and an end': [messageStart(), messageStop()],
    'nothing but a reason': [messageStart({ usage: { input_tokens: 0, output_tokens: 0 } }),
      messageEnd({ usage: { output_tokens: 0 } })]
  }
  const bodies: Readonly<Record<string, Fields>> = {
    'a call without anything ': { ...message('x'), content: [{ type: 'tool_use', input: {} }] },
    'nothing in it but counts': { ...message('x'), content: [], stop_reason: undefined },
    'nothing but a reason ': { ...message('x', { usage: { input_tokens: 0, output_tokens: 0 } }), content: [] },
    'content of another kind': { ...message('x'), content: 5 }
  }
  let script: Script = []
  const up = await upstream(t, () => script)
  const spare = await upstream(t, answer('from the spare'))
  const gw = await gateway(t, yaml([up.url, spare.url]))
  const { messages } = new Anthropic({ apiKey: KEY, baseURL: gw.url, maxRetries: 0 })
  const asking = messagesRequest as unknown as Anthropic.MessageCreateParamsNonStreaming
  for (const [name, said] of [...Object.entries(scripts),
    ...Object.entries(bodies).map(([name, body]) => [name, json(body)] as const)]) {
    await t.test(name, async (t) => {
      script = said
      const got = name in scripts ? await messages.stream(asking).finalMessage()
        : await messages.create(asking)
      t.equal(got.stop_reason, 'end_turn')
      t.match(got.content, name === 'content of another kind' ? [{ type: 'text', text: '5' }] : [])
    })
  }
  t.equal(up.requests.length, Object.keys({ ...scripts, ...bodies }).length)
  t.equal(spare.requests.length, 0)
})

t.test('an answer whose calls a program made stands in message_start: it is an answer', async (t) => {
  const call = { type: 'tool_use', id: 'toolu_1', name: 'query', input: { sql: 'select 1' },
    caller: { type: 'code_execution_20250825', tool_id: 'srvtoolu_1' } }
  const start = { id: 'msg_1', type: 'message', role: 'assistant', model: 'vendor-m1', content: [call],
    stop_reason: null, stop_sequence: null, usage: { input_tokens: 10, output_tokens: 4 } }
  const up = await upstream(
    t,
    [
      sse('message_start', { type: 'message_start', message: start }),
      messageDelta({ stop_reason: 'tool_use' }),
      messageStop()
    ]
  )
  const gw = await gateway(t, yaml([up.url]))
  const got = await new Anthropic({ apiKey: KEY, baseURL: gw.url, maxRetries: 0 }).messages.stream(
    messagesRequest as unknown as Anthropic.MessageStreamParams
  ).finalMessage()
  t.match(got, { stop_reason: 'tool_use', content: [call] })
  const chat = await new OpenAI({ apiKey: KEY, baseURL: `${gw.url}/v1`, maxRetries: 0 }).chat.completions.stream({
    model: 'm1',
    messages: [{ role: 'user', content: 'x' }]
  }).finalChatCompletion()
  t.match(chat.choices[0], { finish_reason: 'tool_calls',
    message: { tool_calls: [{ id: 'toolu_1', function: { name: 'query', arguments: '{"sql":"select 1"}' } }] } })
})
