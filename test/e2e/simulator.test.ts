// The simulator as its users meet it: over sockets, and with the vendor's own SDKs.
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import { promisify } from 'node:util'
import Anthropic from '@anthropic-ai/sdk'
import Anthropic0 from 'anthropic-sdk-0'
import OpenAI from 'openai'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { habits } from '../../src/simulator/habits.ts'
import { directives, faultsInModel, faultsInText, parseFaults } from '../../src/simulator/faults.ts'
import { startSimulatorThread } from '../../src/simulator/thread.ts'
import { simulate } from '../../src/commands/simulate.ts'
import { scriptDirective, type ScriptedAnswer } from '../../src/simulator/script.ts'
import { startSimulator, type Simulator, type SimulatorOptions } from '../../src/simulator/simulator.ts'
import { countTokens, tokensOf } from '../../src/simulator/tokens.ts'
import { SseDecoder, type SseEvent } from '../../src/core/sse.ts'
import { answer, bytes, cut, end, errorReply, json, messageEnd, messageStart, raw, refusing, sse, stall, status,
  textBlock, upstream, wait } from '../support/upstream.ts'

type Fields = Readonly<Record<string, unknown>>

async function simulator (t: Test, options: SimulatorOptions = {}): Promise<Simulator> {
  const started = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0, ...options })
  t.teardown(() => started.close())
  return started
}

const head = { 'x-api-key': 'k', 'anthropic-version': '2023-06-01', 'content-type': 'application/json' }

function ask (url: string, body: Fields | string, headers: Readonly<Record<string, string>> = head): Promise<Response> {
  return fetch(`${url}/v1/messages`, { method: 'POST', headers, body: typeof body === 'string'
    ? body
    : JSON.stringify({ model: 'm', max_tokens: 1000, messages: [{ role: 'user', content: 'Hello' }], ...body }) })
}

function say (url: string, content: unknown, more: Fields = {}): Promise<Response> {
  return ask(url, { messages: [{ role: 'user', content }], ...more })
}

/** Reads a stream to its end, or to where it was cut. */
async function eventsOf (
  response: Response
): Promise<{ readonly events: readonly SseEvent[], readonly bytes: Buffer, readonly error: unknown }> {
  const decoder = new SseDecoder()
  const events: SseEvent[] = []
  const chunks: Buffer[] = []
  try {
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      chunks.push(Buffer.from(chunk))
      events.push(...decoder.push(Buffer.from(chunk)))
    }
  } catch (error) {
    return { events, bytes: Buffer.concat(chunks), error }
  }
  return { events, bytes: Buffer.concat(chunks), error: undefined }
}

function namesOf (events: readonly SseEvent[]): string[] {
  return events.map(({ event }) => event).filter((name, index, all) => name !== all[index - 1])
}

async function errorOf (response: Response): Promise<{ status: number, type: string, message: string }> {
  const { error } = await response.json() as { error: { type: string, message: string } }
  return { status: response.status, type: error.type, message: error.message }
}

/** The last request, when it is over. */
function ended (simulator: Simulator, count = 1): Promise<Simulator['requests'][number]> {
  return simulator.until(() => {
    const record = simulator.requests[count - 1]
    return record?.ended !== undefined && record
  })
}

const weatherTool = { name: 'get_weather', description: 'Weather',
  input_schema: { type: 'object' as const,
    properties: { city: { type: 'string' }, unit: { type: 'string', enum: ['C', 'F'] } }, required: ['city'] } }
const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

const clients = [
  { name: '@anthropic-ai/sdk 1.11', make: (baseURL: string) => new Anthropic({ apiKey: 'k', baseURL, maxRetries: 0 }) },
  { name: '@anthropic-ai/sdk 0.137',
    make: (baseURL: string) => new Anthropic0({ apiKey: 'k', baseURL, maxRetries: 0 }) as unknown as Anthropic }
]

for (const { name, make } of clients) {
  t.test(`${name} takes it for its vendor`, async (t) => {
    const vendor = await simulator(t)
    const client = make(vendor.url)

    t.test('create', async (t) => {
      const message = await client.messages.create({ model: 'm1', max_tokens: 500,
        messages: [{ role: 'user', content: 'What is the capital of France?' }] })
      t.match(message, { type: 'message', role: 'assistant', model: 'm1', stop_reason: 'end_turn', stop_sequence: null,
        usage: { input_tokens: 6 } })
      const [block] = message.content
      t.match(block, { type: 'text', text: /What is the capital of France\?.*simulator/ })
      t.equal(message.usage.output_tokens, tokensOf(block?.type === 'text' ? block.text : '').length)
      t.match(message, { ['_request_id']: /^req_/ })
    })

    t.test('the stream helper, with events in the vendor\'s order', async (t) => {
      const stream = client.messages.stream({ model: 'm1', max_tokens: 500,
        messages: [{ role: 'user', content: 'Tell me “naïve” things' }] })
      const types: string[] = []
      stream.on('streamEvent', ({ type }) => { if (types.at(-1) !== type) types.push(type) })
      const message = await stream.finalMessage()
      t.strictSame(
        types,
        [
          'message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta',
          'message_stop'
        ]
      )
      const record = await vendor.until(() => vendor.requests.findLast((one) => one.stream && one.ended))
      t.equal(record.text_sent, message.content[0]?.type === 'text' ? message.content[0].text : '')
      t.equal(record.usage?.['output_tokens'], message.usage.output_tokens)
    })

    t.test('thinking, signed, accepted when it comes back and refused when it was changed', async (t) => {
      const question = { role: 'user' as const, content: 'Think, please' }
      const options = { model: 'm1', max_tokens: 3000, thinking: { type: 'enabled' as const, budget_tokens: 1024 } }
      const message = await client.messages.stream({ ...options, messages: [question] }).finalMessage()
      const whole = await client.messages.create({ ...options, messages: [question] })
      t.strictSame(message.content, whole.content)
      const [thinking, text] = message.content
      t.match(thinking, { type: 'thinking', thinking: /Think, please/, signature: /.{20}/ })
      t.match(text, { type: 'text' })
      t.equal(message.usage.output_tokens, tokensOf(thinking?.type === 'thinking' ? thinking.thinking : '').length +
        tokensOf(text?.type === 'text' ? text.text : '').length)
      await client.messages.create({ ...options,
        messages: [question, { role: 'assistant', content: message.content }, question] })
      const forged = message.content.map((block) =>
        block.type === 'thinking' ? { ...block, signature: 'forged' } : block
      )
      await t.rejects(
        client.messages.create({ ...options, messages: [question, { role: 'assistant', content: forged }, question] }),
        { status: 400, message: /Invalid `signature`/ },
        'it was not signed'
      )
    })

    t.test('tools: asked, answered, forced, several at a time', async (t) => {
      const question = { role: 'user' as const, content: 'What is the weather in Bergen?' }
      const first = await client.messages.stream({ model: 'm1', max_tokens: 500, tools: [weatherTool],
        messages: [question] }).finalMessage()
      t.equal(first.stop_reason, 'tool_use')
      const call = first.content.find((block) => block.type === 'tool_use')
      t.match(call, { name: 'get_weather', input: { city: 'Bergen', unit: 'C' }, id: /^toolu_/ })
      const second = await client.messages.create({
        model: 'm1',
        max_tokens: 500,
        tools: [weatherTool],
        messages: [question, { role: 'assistant', content: first.content }, { role: 'user',
          content: [{ type: 'tool_result', tool_use_id: call?.id ?? '', content: 'Rain, 8 degrees' }] }]
      })
      t.match(second, { stop_reason: 'end_turn', content: [{ text: /Rain, 8 degrees/ }] })
      const forced = await client.messages.create({ model: 'm1', max_tokens: 500, tools: [weatherTool],
        tool_choice: { type: 'tool', name: 'get_weather' }, messages: [{ role: 'user', content: 'Hello' }] })
      t.strictSame(forced.content.map(({ type }) => type), ['tool_use'])
      const two = await client.messages.stream({ model: 'm1', max_tokens: 500, tools: [weatherTool],
        messages: [{ role: 'user', content: '[[sim: tool_calls=2]] go' }] }).finalMessage()
      t.strictSame(two.content.map(({ type }) => type), ['text', 'tool_use', 'tool_use'])
    })

    t.test('images are seen and counted', async (t) => {
      const image = { type: 'image' as const,
        source: { type: 'base64' as const, media_type: 'image/png' as const, data: pixel } }
      const message = await client.messages.create({ model: 'm1', max_tokens: 500,
        messages: [{ role: 'user', content: [image, image, { type: 'text', text: 'What is this?' }] }] })
      t.match(message, { content: [{ text: /I see 2 images/ }], usage: { input_tokens: 2003 } })
    })

    t.test('errors are of the SDK\'s classes', async (t) => {
      for (const [status, type] of [[400, 'invalid_request_error'], [401, 'authentication_error'], [403,
        'permission_error'], [404, 'not_found_error'], [413, 'request_too_large'], [429, 'rate_limit_error'], [500,
        'api_error'], [529, 'overloaded_error']] as const) {
        const error = await client.messages.create({ model: `sim-error-${status}`, max_tokens: 5,
          messages: [{ role: 'user', content: 'x' }] }).catch((thrown: unknown) => thrown)
        t.match(error, { status, error: { error: { type }, request_id: /^req_/ }, requestID: /^req_/ })
      }
      const limited = await client.messages.create({ model: 'm', max_tokens: 5,
        messages: [{ role: 'user', content: '[[sim: status=429 retry_after=3]]' }] }).catch((thrown: unknown) => thrown)
      t.equal((limited as { headers: Headers }).headers.get('retry-after'), '3')
      const error = await client.messages.stream({
        model: 'm',
        max_tokens: 50,
        messages: [{ role: 'user', content: '[[sim: error_event_after=5]]' }]
      }).finalMessage()
        .catch((thrown: unknown) => thrown)
      t.match(error, { status: undefined, error: { error: { type: 'overloaded_error' } } })
    })

    t.test('count_tokens', async (t) => {
      t.strictSame(
        await client.messages.countTokens({ model: 'm1', system: 'Be brief',
          messages: [{ role: 'user', content: 'three short words' }] }),
        { input_tokens: 5 }
      )
    })
  })
}

t.test('a stream is the same answer as JSON, token by token, with usage that only grows', async (t) => {
  const vendor = await simulator(t)
  const whole = await (await say(vendor.url, 'Hi there')).json() as { content: [{ text: string }], usage: Fields }
  const response = await say(vendor.url, 'Hi there', { stream: true })
  t.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8')
  const { events } = await eventsOf(response)
  t.strictSame(
    namesOf(events),
    [
      'message_start', 'ping', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta',
      'message_stop'
    ]
  )
  const deltas = events.filter(({ event }) => event === 'content_block_delta').map(({ json }) =>
    (json as { delta: { text: string } }).delta.text
  )
  t.equal(deltas.join(''), whole.content[0].text)
  t.equal(deltas.length, whole.usage['output_tokens'])
  t.match(events[0]?.json, {
    message: { content: [], stop_reason: null, usage: { input_tokens: 2, output_tokens: 1 } }
  })
  t.match(events.at(-2)?.json, { delta: { stop_reason: 'end_turn', stop_sequence: null },
    usage: { input_tokens: 2, output_tokens: deltas.length, cache_read_input_tokens: 0 } })
  t.match(await ended(vendor, 2), { ended: 'complete', status: 200, stream: true, events_sent: events.length,
    text_sent: deltas.join(''), usage: { output_tokens: deltas.length }, model: 'm' })
})

t.test('tokens: joined they are the text, each has at most 8 characters, and counting agrees', async (t) => {
  for (const text of ['', ' ', 'a', 'extraordinarily long', '  two  spaces\nand lines \n', '🙂'.repeat(20),
    'naïve “quotes”']) {
    const tokens = tokensOf(text)
    t.equal(tokens.join(''), text)
    t.equal(countTokens(text), tokens.length)
    t.ok(tokens.every((token) => Array.from(token.trim()).length <= 8))
  }
})

t.test('max_tokens and stop sequences end an answer', async (t) => {
  const vendor = await simulator(t)
  t.match(await (await say(vendor.url, 'Hi', { max_tokens: 3 })).json(), { stop_reason: 'max_tokens',
    usage: { output_tokens: 3 } })
  t.match(await (await say(vendor.url, 'Hi', { max_tokens: 0 })).json(), { stop_reason: 'max_tokens', content: [],
    usage: { output_tokens: 0 } })
  t.match(await (await say(vendor.url, 'Hi', { stop_sequences: ['zzz', ' simulator', 'gateway'] })).json(), {
    stop_reason: 'stop_sequence',
    stop_sequence: ' simulator',
    content: [{ text: /I am the$/ }]
  })
  t.match(await (await say(vendor.url, '[[sim: tokens=200]]')).json(), { stop_reason: 'end_turn',
    usage: { output_tokens: 200 } })
  t.match(
    await (await say(vendor.url, 'x', { tools: [weatherTool], tool_choice: { type: 'any' }, max_tokens: 2 })).json(),
    { stop_reason: 'max_tokens', content: [{ type: 'tool_use', input: {} }] }
  )
})

t.test('a structured answer fits its schema', async (t) => {
  const vendor = await simulator(t)
  const schema = { type: 'object',
    properties: { city: { type: 'string' }, sizes: { type: 'array', items: { type: 'integer', minimum: 4 } },
      kind: { enum: ['a', 'b'] }, open: { type: 'boolean' } } }
  const { content: [{ text }] } =
    await (await say(vendor.url, 'News in Turku', { output_config: { format: { type: 'json_schema', schema } } }))
      .json() as { content: [{ text: string }] }
  t.strictSame(JSON.parse(text), { city: 'Turku', sizes: [4], kind: 'a', open: true })
})

t.test('cached prompts: written once by their time to live, then read, longer ones on top, until they are forgotten', async (t) => {
  let now = 0
  const vendor = await simulator(t, { now: () => now })
  const long = (words: number, ttl?: string): Fields => ({
    type: 'text',
    text: Array.from({ length: words }, () => 'word').join(' '),
    ...(ttl === undefined ? {} : { cache_control: { type: 'ephemeral', ttl } })
  })
  const usage = async (system: unknown, model = 'm'): Promise<unknown> => {
    const { usage } = await (await say(vendor.url, 'two words', { system, model })).json() as {
      usage: Record<string, unknown>
    }
    const made = usage['cache_creation'] as Fields
    return [usage['input_tokens'], usage['cache_read_input_tokens'], usage['cache_creation_input_tokens'],
      made['ephemeral_5m_input_tokens'], made['ephemeral_1h_input_tokens']]
  }
  const prompt = [long(30, '1h'), long(20, '5m')]
  t.strictSame(await usage(prompt), [2, 0, 50, 20, 30])
  t.strictSame(await usage(prompt), [2, 50, 0, 0, 0])
  t.strictSame(await usage(prompt, 'other'), [2, 0, 50, 20, 30], 'each model has its own')
  t.strictSame(await usage([...prompt, long(7, '5m')]), [2, 50, 7, 7, 0], 'a known prefix is read, the rest is written')
  t.strictSame(await usage([long(30), long(20)]), [52, 0, 0, 0, 0], 'nothing is read without a mark')
  now += 6 * 60_000
  t.strictSame(await usage(prompt), [2, 30, 20, 20, 0], 'after six minutes only what lives for an hour')
  const marked = await (await say(vendor.url, 'two words', { cache_control: { type: 'ephemeral' } })).json()
  t.match(marked, { usage: { input_tokens: 0, cache_creation_input_tokens: 2 } },
    'a mark at the top level is one at the last block')
})

t.test('it refuses what the vendor refuses, in the vendor\'s shape', async (t) => {
  const vendor = await simulator(t, { key: 'right', betas: ['known-1'] })
  const good = { ...head, 'x-api-key': 'right' }
  const { 'anthropic-version': _, ...noVersion } = good
  const user = { role: 'user', content: 'x' }
  const call = { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_1', name: 'f', input: {} }] }
  const table: readonly (readonly [string, number, RegExp, Fields | string, Readonly<Record<string, string>>?])[] = [
    ['no version', 400, /anthropic-version/, {}, noVersion],
    ['an unknown version', 400, /not a valid version/, {}, { ...good, 'anthropic-version': '2023-06-01, 2023-06-01' }],
    ['no key', 401, /header is required/, {}, { 'anthropic-version': '2023-06-01' }],
    ['a wrong key', 401, /invalid x-api-key/, {}, { ...good, 'x-api-key': 'wrong' }],
    ['an unknown beta', 400, /nonsense/, {}, { ...good, 'anthropic-beta': 'known-1, nonsense' }],
    ['no JSON', 400, /valid JSON/, '{"model":'],
    ['an unknown field', 400, /foo: Extra inputs/, { foo: 1 }],
    ['no model', 400, /model: Field required/, { model: undefined }],
    ['no max_tokens', 400, /max_tokens: Field required/, { max_tokens: undefined }],
    ['no messages', 400, /at least one message/, { messages: [] }],
    ['an unknown role', 400, /messages\.0\.role/, { messages: [{ role: 'tool', content: 'x' }] }],
    ['empty text', 400, /non-empty/, { messages: [{ role: 'user', content: [{ type: 'text', text: ' ' }] }] }],
    ['an image of no kind', 400, /media_type/, {
      messages: [{ role: 'user',
        content: [{ type: 'image', source: { type: 'base64', media_type: 'image/bmp', data: 'x' } }] }]
    }],
    ['a call without its result', 400, /tool_use` ids were found without/, { messages: [user, call, user] }],
    ['a result without its call', 400, /unexpected `tool_use_id`/, {
      messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_9', content: 'x' }] }]
    }],
    ['a small thinking budget', 400, /1024/, { thinking: { type: 'enabled', budget_tokens: 100 } }],
    ['a thinking budget over max_tokens', 400, /must be greater than `thinking/, {
      thinking: { type: 'enabled', budget_tokens: 2000 }
    }],
    ['a forced tool while thinking', 400, /Thinking may not/, { max_tokens: 3000,
      thinking: { type: 'enabled', budget_tokens: 1024 }, tools: [weatherTool], tool_choice: { type: 'any' } }],
    ['a temperature over 1', 400, /temperature/, { temperature: 1.5 }],
    ['a temperature in the newest version', 400, /temperature: Extra/, { temperature: 1 }, { ...good,
      'anthropic-version': '2026-10-21' }],
    ['a tool choice without tools', 400, /tool_choice/, { tool_choice: { type: 'any' } }],
    ['a blank stop sequence', 400, /stop_sequences/, { stop_sequences: [' '] }],
    ['five cache marks', 400, /maximum of 4/, {
      system: Array.from({ length: 5 }, () => ({ type: 'text', text: 'x', cache_control: { type: 'ephemeral' } }))
    }],
    ['more than the context', 400, /^input length and `max_tokens` exceed context limit: 1 \+ 200000 > 200000,/, {
      max_tokens: 200_000
    }],
    ['an unknown directive', 400, /"nonsense"; it knows .*cut_after/, {
      messages: [{ role: 'user', content: '[[sim: nonsense]]' }]
    }],
    ['an unknown habit', 400, /"nonsense"; it knows no_label/, {
      messages: [{ role: 'user', content: '[[sim: habit=nonsense]]' }]
    }]
  ]
  for (const [name, status, message, body, headers = good] of table) {
    const response = await ask(vendor.url, body, headers)
    t.equal(response.headers.get('request-id'), vendor.requests.at(-1)?.id)
    const error = await errorOf(response)
    t.match(error, { status, type: status === 401 ? 'authentication_error' : 'invalid_request_error', message }, name)
  }
  const bearer = { authorization: 'Bearer right', 'anthropic-version': '2026-10-21', 'anthropic-beta': 'known-1' }
  t.equal((await ask(vendor.url, {}, bearer)).status, 200, 'a bearer token is a key too')
  t.match(await errorOf(await fetch(`${vendor.url}/v1/nothing`)), { status: 404, type: 'not_found_error' })
})

t.test('its heads tell too much, like the vendor\'s', async (t) => {
  const vendor = await simulator(t)
  const { headers } = await say(vendor.url, 'x')
  for (const name of ['anthropic-organization-id', 'cf-ray', 'set-cookie', 'server', 'request-id',
    'anthropic-ratelimit-requests-remaining']) { t.ok(headers.get(name), name) }
  for (const status of [401, 403]) {
    const { message } = await errorOf(await say(vendor.url, `[[sim: status=${status}]]`))
    t.match(message, headers.get('anthropic-organization-id') ?? 'absent')
    t.match(message, /sk-ant-api03-/)
  }
})

t.test('faults before an answer', async (t) => {
  const vendor = await simulator(t)
  t.match(await errorOf(await say(vendor.url, '[[sim: content_policy]]')), { status: 400, type: 'invalid_request_error',
    message: 'Output blocked by content filtering policy' })
  t.match(await errorOf(await say(vendor.url, '[[sim: context]]')), { status: 400,
    message: /^input length and `max_tokens` exceed context limit: 199001 \+ 1000 > 200000/ })
  const html = await say(vendor.url, '[[sim: html]]')
  t.match({ status: html.status, type: html.headers.get('content-type'), body: await html.text() }, { status: 502,
    type: 'text/html; charset=UTF-8', body: /<h1>502/ })
  t.equal(await (await say(vendor.url, '[[sim: empty_body]]')).text(), '')
  const moved = await fetch(`${vendor.url}/v1/messages`, { method: 'POST', redirect: 'manual', headers: head,
    body: JSON.stringify({ model: 'sim-redirect' }) })
  t.match([moved.status, moved.headers.get('location')], [302, `${vendor.url}/v1/echo`])
  await t.rejects(say(vendor.url, '[[sim: cut]]'))
  t.match(await ended(vendor, 6), { ended: 'cut', status: 0, events_sent: 0 })
  t.match(await (await say(vendor.url, '[[sim: refuse]]')).json(), { stop_reason: 'refusal',
    stop_details: { type: 'refusal' } })
  t.match(await (await say(vendor.url, '[[sim: empty]]')).json(), { content: [], usage: { output_tokens: 0 } })
  t.match(await errorOf(await say(vendor.url, '[[sim: error_event_first]]')), { status: 529 })
  await t.rejects((await say(vendor.url, '[[sim: malformed]]')).json(), SyntaxError)
  t.strictSame(
    (await Promise.all(Array.from({ length: 10 }, (_, index) => ended(vendor, index + 1)))).map(({ ended }) => ended),
    ['error', 'error', 'error', 'error', 'error', 'cut', 'complete', 'complete', 'error', 'error']
  )
})

t.test('faults in a stream, each as the table says, and the log says what was sent', async (t) => {
  const vendor = await simulator(t)
  const start = ['message_start', 'ping', 'content_block_start', 'content_block_delta']
  const table = [
    { directive: 'cut_after=5', names: start, count: 5, isCut: true, ending: 'cut' },
    { directive: 'cut_mid_event=4', names: start, count: 4, isCut: true, ending: 'cut' },
    { directive: 'end_after=5', names: start, count: 5, isCut: false, ending: 'cut' },
    { directive: 'tokens=3 no_terminal', names: [...start, 'content_block_stop', 'message_delta'], count: 8,
      isCut: false, ending: 'cut' },
    { directive: 'error_event_first', names: ['error'], count: 1, isCut: false, ending: 'error' },
    { directive: 'error_event_after=4 error_type=api_error', names: [...start, 'error'], count: 5, isCut: false,
      ending: 'error' },
    { directive: 'malformed', names: ['content_block_start'], count: 1, isCut: false, ending: 'error' },
    { directive: 'empty', names: ['message_start', 'ping', 'message_delta', 'message_stop'], count: 4, isCut: false,
      ending: 'complete' },
    { directive: 'tokens=3 unknown_event',
      names: ['message_start', 'future_event', 'ping', 'content_block_start', 'content_block_delta',
        'content_block_stop', 'message_delta', 'message_stop'], count: 10, isCut: false, ending: 'complete' }
  ]
  for (const [index, { directive, names, count, isCut, ending }] of table.entries()) {
    const { events, bytes, error } = await eventsOf(
      await say(vendor.url, `[[sim: ${directive}]] Hello`, { stream: true })
    )
    t.strictSame([namesOf(events), events.length, error !== undefined], [names, count, isCut], directive)
    const record = await ended(vendor, index + 1)
    t.match(record, { ended: ending, events_sent: count }, directive)
    const text = events.filter(({ event }) => event === 'content_block_delta').map(({ json }) =>
      (json as { delta: { text: string } }).delta.text
    ).join('')
    t.equal(record.text_sent, text, directive)
    if (directive.startsWith('cut_mid')) t.not(bytes.subarray(-2).toString(), '\n\n', 'half an event is on the wire')
  }
})

t.test('chat: faults in a stream', async (t) => {
  const vendor = await simulator(t)
  const table = [
    { directive: 'cut_after=3', count: 3, isCut: true, ending: 'cut' },
    { directive: 'cut_mid_event=3', count: 3, isCut: true, ending: 'cut' },
    { directive: 'end_after=3', count: 3, isCut: false, ending: 'cut' },
    { directive: 'tokens=2 no_terminal', count: 5, isCut: false, ending: 'cut' },
    { directive: 'error_event_first', count: 1, isCut: false, ending: 'error' },
    { directive: 'error_event_after=2', count: 3, isCut: false, ending: 'error' },
    { directive: 'malformed=2', count: 3, isCut: false, ending: 'error' },
    { directive: 'empty', count: 4, isCut: false, ending: 'complete' },
    { directive: 'tokens=2 unknown_event', count: 7, isCut: false, ending: 'complete' }
  ]
  for (const [index, { directive, count, isCut, ending }] of table.entries()) {
    const { events, error } = await eventsOf(
      await post(`${vendor.url}/v1/chat/completions`, { ...chatHello(directive), stream: true,
        stream_options: { include_usage: true } })
    )
    t.strictSame([events.length, error !== undefined], [count, isCut], directive)
    const record = await ended(vendor, index + 1)
    t.match(record, { ended: ending, events_sent: count }, directive)
    const text = events.filter(({ data }) => /"content":"./.test(data)).map(({ json }) =>
      (json as { choices: [{ delta: { content: string } }] }).choices[0].delta.content
    ).join('')
    t.equal(record.text_sent, text, directive)
  }
})

/** With the key of a vendor of chat style. */
function post (url: string, body: Fields, signal?: AbortSignal): Promise<Response> {
  return fetch(url, { method: 'POST', headers: { ...head, authorization: 'Bearer k' }, body: JSON.stringify(body),
    ...(signal !== undefined && { signal }) })
}

function chatHello (directive: string): Fields {
  return { model: 'm', messages: [{ role: 'user', content: `[[sim: ${directive}]] Hello` }] }
}

t.test('every failure that is no stream, in every dialect', async (t) => {
  const vendor = await simulator(t)
  const dialects: Readonly<Record<string, (directive: string) => Fields>> = {
    '/v1/messages': (directive) => ({ ...chatHello(directive), max_tokens: 9 }),
    '/v1/chat/completions': chatHello,
    '/v1/images/generations': (directive) => ({ model: 'm', prompt: `[[sim: ${directive}]] Hello` }),
    '/v1/videos': (directive) => ({ model: 'm', prompt: `[[sim: ${directive}]] Hello` })
  }
  for (const [path, body] of Object.entries(dialects)) {
    const say = (directive: string): Promise<Response> => post(vendor.url + path, body(directive))
    for (const status of [401, 403, 408, 429, 500, 503, 529]) {
      const response = await say(`status=${status}`)
      t.strictSame([response.status, response.headers.get('retry-after')], [status, null], `${path} ${status}`)
      t.type((await response.json() as { error: Fields }).error['message'], 'string')
    }
    t.equal((await say('status=429 retry_after=7')).headers.get('retry-after'), '7')
    t.match(await (await say('html=500')).text(), /^<html>/)
    t.equal(await (await say('empty_body')).text(), '')
    await t.rejects((await say('malformed')).json(), SyntaxError)
    await t.rejects((await say('cut_mid_event=0')).text(), TypeError)
    await t.rejects(say('cut'), TypeError)
    t.ok(JSON.parse(await (await say('trickle=1 chunk=50')).text()), 'slow, and whole')
  }
})

t.test('more than anybody takes: an event, and an answer', async (t) => {
  const vendor = await simulator(t)
  const text = { ...chatHello('oversize'), max_tokens: 9 }
  for (const [path, body, limit] of [
    ['/v1/messages', { ...text, stream: true }, 16],
    ['/v1/messages', text, 64],
    ['/v1/chat/completions', { ...text, stream: true }, 16],
    ['/v1/chat/completions', text, 64],
    ['/v1/images/generations', { model: 'm', prompt: '[[sim: oversize]] Hello' }, 160]
  ] as const) {
    const leave = new AbortController()
    const response = await post(vendor.url + path, body, leave.signal)
    const length = response.headers.get('content-length')
    if ('stream' in body) {
      let bytes = 0
      let hasEnd = false
      for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
        hasEnd ||= Buffer.from(chunk).includes('\n\n')
        if ((bytes += chunk.length) > limit * 1024 * 1024) break
      }
      t.strictSame([length, hasEnd], [null, false], `${path}: no end of the event`)
    } else t.ok(Number(length) > limit * 1024 * 1024, `${path}: ${length} bytes`)
    leave.abort()
  }
  for (let index = 0; index < 5; index++) {
    t.match(await ended(vendor, index + 1), { ended: 'client_left', status: 200, events_sent: 0, failure: undefined })
  }
})

t.test('silent between two bytes, it notices at once that the client leaves', async (t) => {
  const vendor = await simulator(t)
  const leave = new AbortController()
  const response = await post(`${vendor.url}/v1/messages`, { ...chatHello('trickle=999999999'), max_tokens: 9 },
    leave.signal)
  t.equal(response.status, 200)
  leave.abort()
  t.match(await ended(vendor), { ended: 'client_left', failure: undefined })
})

t.test('JSON answers are cut in half too', async (t) => {
  const vendor = await simulator(t)
  const response = await say(vendor.url, '[[sim: cut_after=1]]')
  t.equal(response.status, 200)
  await t.rejects(response.text())
  t.match(await ended(vendor), { ended: 'cut', text_sent: '', usage: undefined })
})

t.test('however the bytes are cut, the events are the same', async (t) => {
  const vendor = await simulator(t)
  const plain = await eventsOf(await say(vendor.url, 'naïve “words” 🙂', { stream: true }))
  for (const directive of ['chunk=1', 'crlf', 'burst', 'crlf chunk=3']) {
    const cut = await eventsOf(await say(vendor.url, `[[sim: ${directive}]] naïve “words” 🙂`, { stream: true }))
    t.equal(cut.bytes.includes('\r\n'), directive.includes('crlf'))
    const shape = (events: readonly SseEvent[]): unknown => events.slice(2, -2).map(({ event, data }) => [event, data])
    t.strictSame(shape(cut.events), shape(plain.events), directive)
  }
})

t.test('chat: the official SDK takes it for its vendor', async (t) => {
  const vendor = await simulator(t)
  const client = new OpenAI({ apiKey: 'k', baseURL: `${vendor.url}/v1`, maxRetries: 0 })
  const hello = { model: 'm', messages: [{ role: 'user' as const, content: 'Hello' }] }
  t.match(await client.models.list(), { data: [{ id: 'simulated', object: 'model' }] })

  const whole = await client.chat.completions.create(hello)
  t.match(whole, { object: 'chat.completion', model: 'm',
    choices: [{ finish_reason: 'stop', message: { role: 'assistant', content: /You said: “Hello”/ } }],
    usage: { prompt_tokens: 1 } })
  t.equal(whole.usage?.total_tokens, 1 + tokensOf(whole.choices[0]!.message.content!).length)
  const streamed = await client.chat.completions.stream({ ...hello, stream: true,
    stream_options: { include_usage: true } }).finalChatCompletion()
  t.equal(streamed.choices[0]!.message.content, whole.choices[0]!.message.content)
  t.strictSame(streamed.usage, whole.usage)
  t.match(await ended(vendor, vendor.requests.length), { ended: 'complete',
    text_sent: whole.choices[0]!.message.content, usage: whole.usage })
  t.equal((await client.chat.completions.stream({ ...hello, stream: true }).finalChatCompletion()).usage, undefined,
    'who does not ask for usage gets none')

  const tools = [{ type: 'function' as const, function: { name: 'get_weather', parameters: weatherTool.input_schema } }]
  const asking = { ...hello, tools, messages: [{ role: 'user' as const, content: 'Weather in Oslo?' }] }
  const { choices: [call] } = await client.chat.completions.create(asking)
  t.match(call, { finish_reason: 'tool_calls', message: {
    tool_calls: [{ id: /^call_/, type: 'function',
      function: { name: 'get_weather', arguments: '{"city":"Oslo","unit":"C"}' } }]
  } })
  const next = await client.chat.completions.create({ ...asking,
    messages: [...asking.messages, call!.message, { role: 'tool', tool_call_id: call!.message.tool_calls![0]!.id,
      content: 'snow' }] })
  t.match(next.choices[0]!.message.content, /The tool answered: “snow”/)
})

t.test('chat: it refuses what its vendors refuse', async (t) => {
  const vendor = await simulator(t, { key: 'right' })
  const post = async (body: Fields, authorization = 'Bearer right'): Promise<Fields> => {
    const response = await fetch(`${vendor.url}/v1/chat/completions`, { method: 'POST',
      headers: { 'content-type': 'application/json', authorization },
      body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }], ...body }) })
    return { status: response.status, ...(await response.json() as { error: Fields }).error }
  }
  t.match(await post({}, 'Bearer wrong'), { status: 401, code: 'invalid_api_key', message: /Incorrect API key/ })
  const call = { role: 'assistant', content: null,
    tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }] }
  const table: readonly (readonly [Fields, RegExp])[] = [
    [{ thinking: {} }, /Unrecognized request argument supplied: thinking/],
    [{ max_tokens: 1, max_completion_tokens: 1 }, /at the same time/],
    [{ max_tokens: 0 }, /below minimum/],
    [{ temperature: 3 }, /temperature/],
    [{ stop: ['a', 'b', 'c', 'd', 'e'] }, /maximum length 4/],
    [{ stream_options: { include_usage: true } }, /stream_options/],
    [{ tools: [] }, /empty array/],
    [{ tool_choice: 'auto' }, /tool_choice/],
    [{ parallel_tool_calls: false }, /parallel_tool_calls/],
    [{ tools: [{ name: 'f', input_schema: {} }] }, /tools\[0\]\.function/],
    [{ tools: [{ type: 'function', function: { name: 'a b' } }] }, /function\.name/],
    [{ messages: [] }, /empty array/],
    [{ messages: [{ role: 'user', content: [{ type: 'image', source: {} }] }] }, /messages\[0\]\.content\[0\]/],
    [{ messages: [{ role: 'system', content: [{ type: 'image_url', image_url: { url: 'https://x' } }] }] },
      /messages\[0\]\.content\[0\]/],
    [{ messages: [{ role: 'human', content: 'x' }] }, /human/],
    [{ messages: [{ role: 'assistant', content: null }] }, /got null/],
    [{ messages: [call] }, /did not have response messages: c/],
    [{ messages: [call, { role: 'user', content: 'x' }] }, /did not have response messages: c/],
    [{ messages: [{ role: 'tool', tool_call_id: 'c', content: 'x' }] }, /must be a response/],
    [{
      messages: [{ role: 'assistant', content: null,
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: {} } }] }]
    }, /expected a string/]
  ]
  for (const [body, message] of table) {
    t.match(await post(body), { status: 400, type: 'invalid_request_error', message }, JSON.stringify(body))
  }
  for (const [directive, wanted] of [['context', { status: 400, code: 'context_length_exceeded' }], ['content_policy', {
    status: 400,
    code: 'content_filter'
  }], ['status=429', { status: 429, code: 'rate_limit_exceeded' }], ['status=500', { status: 500,
    type: 'server_error' }]] as const) {
    t.match(await post({ messages: [{ role: 'user', content: `[[sim: ${directive}]]` }] }), wanted, directive)
  }
})

t.test('chat: the habits of its vendors', async (t) => {
  const vendor = await simulator(t)
  const shape = async (directive: string, more: Fields = {}): Promise<string> => {
    const body = { model: 'm', stream: true, stream_options: { include_usage: true },
      messages: [{ role: 'user', content: `[[sim: ${directive}]] x` }], ...more }
    const { bytes } = await eventsOf(
      await fetch(`${vendor.url}/v1/chat/completions`, { method: 'POST', headers: head, body: JSON.stringify(body) })
    )
    return bytes.toString().split('\n\n').filter((record) => record !== '').map((record) =>
      short(record.replace(/^data: /, ''))
    ).join(' ')
  }
  const tools = {
    tools: ['f', 'g'].map((name) => ({
      type: 'function',
      function: { name, parameters: { type: 'object', properties: { a: { type: 'boolean' } } } }
    }))
  }
  const table: readonly (readonly [string, string, Fields?])[] = [
    ['tokens=2', 'role content content stop usage [DONE]'],
    ['tokens=2 finish_twice', 'role content content stop role+stop+usage [DONE]'],
    ['tokens=1 finish_null', 'role content - usage [DONE]'],
    ['tokens=1 usage_null', 'role+null content+null stop+null usage [DONE]'],
    ['tokens=1 usage_with_finish', 'role content stop+usage [DONE]'],
    ['tokens=1 usage_each', 'role+usage content+usage stop+usage [DONE]'],
    ['tokens=1 usage_missing', 'role content stop [DONE]'],
    ['tokens=1 usage_late', 'role+usage content stop usage [DONE]'],
    ['tokens=1 no_terminal', 'role content stop usage'],
    ['tokens=1 empty_frames', 'data: {} role data: {} content data: {} stop data: {} usage data: {} [DONE]'],
    ['tokens=1 noise',
      ': PROCESSING keepalive role : PROCESSING keepalive content : PROCESSING keepalive stop : PROCESSING keepalive usage : PROCESSING keepalive [DONE]'],
    ['tokens=1 reasoning_name=reasoning', `role${' reasoning'.repeat(11)} content stop usage [DONE]`, {
      reasoning_effort: 'low'
    }],
    ['tool_calls=2',
      'role content content content content content content 0:id:f 0 0 1:id:g 1 1 tool_calls usage [DONE]', tools],
    ['tool_calls=2 tool_whole',
      'role content content content content content content 0:id:f 1:id:g tool_calls usage [DONE]', tools],
    ['tool_calls=2 tool_turns',
      'role content content content content content content 0:id:f 1:id:g 0 1 0 1 tool_calls usage [DONE]', tools],
    ['tool_calls=2 tool_no_index',
      'role content content content content content content -:id:f - - -:id:g - - tool_calls usage [DONE]', tools],
    ['tool_calls=2 tool_no_id tool_same_index',
      'role content content content content content content 0:f 0 0 0:g 0 0 tool_calls usage [DONE]', tools]
  ]
  for (const [directive, expected, more] of table) t.equal(await shape(directive, more), expected, directive)
})

/** A chunk in a few words. */
function short (data: string): string {
  if (!data.startsWith('{"')) return data === '' ? 'data:' : data
  const { choices, usage } = JSON.parse(data) as { choices: { delta: Fields, finish_reason: string | null }[],
    usage?: unknown }
  if (choices[0] === undefined) return 'usage'
  const { delta, finish_reason: reason } = choices[0]
  const [call] = (delta['tool_calls'] ?? []) as { index?: number, id?: string, function: { name?: string } }[]
  const said = call === undefined
    ? Object.keys(delta)[0]
    : [call.index ?? '-', call.id?.replace(/.*/s, 'id'), call.function.name].filter((part) => part !== undefined).join(
      ':'
    )
  const reported = usage === undefined ? undefined : usage === null ? 'null' : 'usage'
  return [said, reason ?? undefined, reported].filter((part) => part !== undefined).join('+') || '-'
}

t.test('usage that is zero, late or missing (rules zero-is-zero, last-usage-wins)', async (t) => {
  const vendor = await simulator(t)
  const usages = async (directive: string): Promise<unknown[]> => {
    const { events } = await eventsOf(
      await say(vendor.url, `[[sim: ${directive}]] four words are here`, { stream: true })
    )
    const first = events[0]?.json as { message: { usage?: Fields } }
    const last = events.at(-2)?.json as { usage?: Fields }
    return [first.message.usage?.['input_tokens'], last.usage?.['input_tokens'],
      vendor.requests.at(-1)?.usage?.['input_tokens']]
  }
  t.strictSame(await usages('usage_zero'), [0, 0, 0])
  t.strictSame(await usages('usage_late'), [3, 7, 7])
  t.strictSame(await usages('usage_missing'), [undefined, undefined, undefined])
  t.notOk('usage' in (await (await say(vendor.url, '[[sim: usage_missing]]')).json() as Fields))
})

t.test('silent before the head, and in the middle: it notices at once that the client leaves', async (t) => {
  const vendor = await simulator(t)
  for (const [index, directive] of ['stall', 'stall_after=4', 'tokens=100000 delay=1'].entries()) {
    const leave = new AbortController()
    const response = fetch(`${vendor.url}/v1/messages`, { method: 'POST', headers: head, signal: leave.signal,
      body: JSON.stringify({ model: 'm', max_tokens: 100_000, stream: true,
        messages: [{ role: 'user', content: `[[sim: ${directive}]]` }] }) })
    response.catch(() => {})
    const sent = directive === 'stall' ? 0 : 4
    await vendor.until(() =>
      vendor.requests[index] !== undefined && vendor.requests[index].body_bytes > 0 &&
      vendor.requests[index].events_sent >= sent
    )
    leave.abort()
    const record = await ended(vendor, index + 1)
    t.equal(record.ended, 'client_left', directive)
    t.equal(record.failure, undefined)
    if (directive !== 'tokens=100000 delay=1') t.equal(record.events_sent, sent)
  }
})

t.test('a client that leaves while it asks has left', async (t) => {
  const vendor = await simulator(t)
  const socket = connect(Number(new URL(vendor.url).port), '127.0.0.1')
  socket.write('POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"model"')
  await once(vendor.events, 'open')
  socket.destroy()
  t.match(await ended(vendor), { ended: 'client_left', status: 0, failure: undefined })
})

t.test('faults by rate: about so many, and the same ones for the same seed', async (t) => {
  const run = async (seed: number): Promise<number[]> => {
    const vendor = await simulator(t, { errorRate: 0.3, errorStatuses: [429, 529], seed })
    const statuses: number[] = []
    for (let count = 0; count < 60; count++) statuses.push((await say(vendor.url, 'x')).status)
    return statuses
  }
  const [first, again, other] = [await run(7), await run(7), await run(8)]
  t.strictSame(first, again)
  t.notSame(first, other)
  const failed = first.filter((status) => status !== 200)
  t.ok(failed.length > 5 && failed.length < 35, `${failed.length} of 60 failed`)
  t.strictSame(new Set(failed), new Set([429, 529]))
})

t.test('of several faults each request gets one, the same ones for the same seed', async (t) => {
  const run = async (seed: number): Promise<string[]> => {
    const vendor = await simulator(t, { faults: ['status=429 retry_after=7', 'status=503', 'html'], faultRate: 0.6,
      seed })
    const got: string[] = []
    for (let count = 0; count < 60; count++) {
      const { status, headers } = await say(vendor.url, 'x')
      got.push(`${status} ${headers.get('retry-after')}`)
    }
    return got
  }
  const [first, again, other] = [await run(7), await run(7), await run(8)]
  t.strictSame(first, again)
  t.notSame(first, other)
  t.strictSame(new Set(first), new Set(['200 null', '429 7', '503 null', '502 null']))
})

t.test('one that flaps: good and bad for as long, by its clock', async (t) => {
  let now = 0
  const run = async (options: SimulatorOptions): Promise<unknown[]> => {
    const vendor = await simulator(t, { now: () => now, flapMs: 5000, ...options })
    const got: unknown[] = []
    for (const start = now; now < start + 20_000; now += 2500) {
      got.push(await say(vendor.url, 'x').then(({ status }) => status, () => 'closed'))
    }
    return got
  }
  t.strictSame(await run({}), [200, 200, 'closed', 'closed', 200, 200, 'closed', 'closed'])
  t.strictSame(await run({ faults: 'status=503' }), [200, 200, 503, 503, 200, 200, 503, 503])
  t.strictSame(await run({ errorRate: 1, errorStatuses: [529] }), [200, 200, 529, 529, 200, 200, 529, 529])
  const told = await simulator(t, { now: () => now, flapMs: 5000 })
  t.equal((await say(told.url, '[[sim: status=500]]')).status, 500, 'what a request asks for it gets')
})

t.test('faults for all, for a part of them, and none for the healthy one of two upstreams', async (t) => {
  const all = await simulator(t, { faults: 'cut_after=2' })
  t.equal((await eventsOf(await say(all.url, 'x', { stream: true }))).events.length, 2)
  const none = await simulator(t, { faults: 'status=500', faultRate: 0 })
  t.equal((await say(none.url, 'x')).status, 200)
  const healthy = await simulator(t, { directives: false })
  t.equal((await say(healthy.url, '[[sim: status=500]]', { model: 'sim-error-529' })).status, 200)
  await t.rejects(startSimulator({ faults: 'nonsense' }), /does not know the directive "nonsense"/)
})

t.test('directives are read from text and from models\' names, and mistakes are explained', async (t) => {
  t.strictSame(faultsInText('a [[sim: status=529 retry_after=3]] b [[sim: crlf]]'), { status: 529, retry_after: 3,
    crlf: true })
  t.strictSame(faultsInModel('sim-error-529'), { status: 529 })
  t.strictSame(faultsInModel('sim-cut-after-5'), { cut_after: 5 })
  t.strictSame(faultsInModel('sim-stall'), { stall: true })
  t.strictSame(faultsInModel('claude-sonnet-4-5'), {})
  t.strictSame(faultsInModel('sim-claude-4'), {})
  t.strictSame(parseFaults('html malformed'), { html: 502, malformed: 0 })
  for (const wrong of ['cut_after', 'cut_after=x', 'status=200', 'crlf=1', 'chunk=0', 'error_type']) {
    t.throws(() => parseFaults(wrong), { message: /directive/ }, wrong)
  }
})

t.test('the directives that stand in a prompt are not repeated in the answer', async (t) => {
  const vendor = await simulator(t)
  t.match(await (await say(vendor.url, '[[sim: crlf]] Hello')).json(), { content: [{ text: /^You said: “Hello”/ }] })
})

t.test('a prompt holds the script of its conversation, which is played answer by answer', async (t) => {
  const answers: readonly ScriptedAnswer[] = [
    { think: 50, say: 'Two calls.', calls: [{ name: 'run', input: { command: 'ls' } }, { name: 'run', input: {} }] },
    { calls: [{ name: 'run', input: { command: 'pwd' } }], faults: ['status=529', 'cut_after=4'] },
    { say: 'Done.' }
  ]
  const prompt = `Go ${scriptDirective(answers)}`
  const run = { name: 'run', input_schema: { type: 'object' } } as const
  const { url } = await simulator(t)
  const client = new Anthropic({ apiKey: 'k', baseURL: url, maxRetries: 0 })
  const asking = { model: 'm', max_tokens: 2000, thinking: { type: 'enabled', budget_tokens: 1024 } } as const
  const messages: Anthropic.MessageParam[] = [{ role: 'user', content: prompt }]
  const go = (): Promise<Anthropic.Message> => client.messages.create({ ...asking, messages, tools: [run] })
  const results = ({ content }: Anthropic.Message): Anthropic.MessageParam => ({ role: 'user',
    content: content.flatMap((block) =>
      block.type === 'tool_use' ? [{ type: 'tool_result', tool_use_id: block.id, content: 'ok' }] : []) })

  const first = await go()
  t.match(first, { stop_reason: 'tool_use', content: [{ type: 'thinking' }, { type: 'text', text: 'Two calls.' },
    { type: 'tool_use', name: 'run', input: { command: 'ls' } }, { type: 'tool_use', name: 'run', input: {} }] })
  t.equal(first.usage.output_tokens_details!.thinking_tokens, 50)
  messages.push({ role: 'assistant', content: first.content }, results(first))
  t.match(await go().catch((error: unknown) => error), { status: 529 }, 'the first time')
  const cut = client.messages.stream({ ...asking, messages, tools: [run] }).finalMessage()
  t.type(await cut.catch((error: unknown) => error), Error, 'the second time')
  const second = await go()
  t.match(second.content, [{ type: 'tool_use', input: { command: 'pwd' } }])
  messages.push({ role: 'assistant', content: second.content }, results(second))
  const third = await go()
  t.match(third, { stop_reason: 'end_turn', content: [{ text: 'Done.' }] })
  messages.push({ role: 'assistant', content: third.content }, { role: 'user', content: 'And now?' })
  t.match((await go()).content, [{ type: 'thinking' }, { text: /^You said: “And now\?”/ }], 'the script is over')

  const titled = await client.messages.create({ ...asking, messages: [{ role: 'user', content: prompt }] })
  t.match(titled.content, [{ type: 'thinking' }, { text: /^You said: “Go”/ }], 'no call without the tool')
  const chat = new OpenAI({ apiKey: 'k', baseURL: `${url}/v1`, maxRetries: 0 }).chat.completions
  const tool = { type: 'function', function: { name: 'run' } } as const
  const said = await chat.create({ model: 'm', messages: [{ role: 'user', content: prompt }], tools: [tool] })
  t.match(said.choices[0]!.message, { content: 'Two calls.',
    tool_calls: [{ function: { arguments: '{"command":"ls"}' } }, { function: { arguments: '{}' } }] })
  for (const wrong of ['nonsense', '%5B%7B%22say%22%3A1%7D%5D', '%E0']) {
    t.match(await errorOf(await say(url, `[[sim: script=${wrong}]]`)), { status: 400, message: /needs a list of/ })
  }
})

t.test('echo says what arrived, of any size; embeddings embed', async (t) => {
  const vendor = await simulator(t)
  const body = Buffer.alloc(3_000_000, 'é')
  const echoed = await (await fetch(`${vendor.url}/v1/echo?a=1`, { method: 'PUT', headers: { 'x-one': '1' }, body }))
    .json()
  t.match(echoed, { method: 'PUT', path: '/v1/echo', query: '?a=1', headers: { 'x-one': '1' },
    body: { bytes: body.length, sha256: createHash('sha256').update(body).digest('hex') } })
  t.equal((await fetch(`${vendor.url}/v1/echo?sim=html%3D503`)).status, 503, 'a query can hold a directive')
  const embed = (input: unknown): Promise<Response> =>
    fetch(`${vendor.url}/v1/embeddings`, { method: 'POST', headers: { authorization: 'Bearer k' },
      body: JSON.stringify({ model: 'e', input }) })
  const { data, usage } = await (await embed(['one word', 'one word', 'more'])).json() as {
    data: { embedding: number[] }[],
    usage: Fields
  }
  t.strictSame(data[0]?.embedding, data[1]?.embedding)
  t.notSame(data[0]?.embedding, data[2]?.embedding)
  t.strictSame(usage, { prompt_tokens: 5, total_tokens: 5 })
  t.equal((await embed([])).status, 400)
})

t.test('a body over 32 MB is 413', async (t) => {
  const vendor = await simulator(t)
  t.match(await errorOf(await ask(vendor.url, JSON.stringify({ model: 'm', system: 'x'.repeat(33 * 1024 * 1024) }))), {
    status: 413,
    type: 'request_too_large'
  })
  t.equal(vendor.requests[0]?.body, undefined)
})

t.test('the log remembers the last requests only', async (t) => {
  const vendor = await simulator(t, { keepRequests: 2 })
  for (const word of ['one', 'two', 'three']) { await say(vendor.url, word) }
  t.strictSame(vendor.requests.map(({ body }) => (body as { messages: [{ content: string }] }).messages[0].content), [
    'two',
    'three'
  ])
})

t.test('closing it ends what is open', async (t) => {
  const vendor = await startSimulator()
  const stalled = say(vendor.url, '[[sim: stall]]')
  stalled.catch(() => {})
  await once(vendor.events, 'request')
  await vendor.close()
  await t.rejects(stalled)
})

t.test('on a thread of its own', async (t) => {
  const thread = await startSimulatorThread({ firstDelayMs: 0, tokenDelayMs: 0 })
  t.match(await (await say(thread.url, 'Hi')).json(), { content: [{ text: /“Hi”/ }] })
  await thread.close()
  await t.rejects(say(thread.url, 'Hi'))
  await t.rejects(startSimulatorThread({ faults: 'nonsense' }), /does not know the directive/)
})

t.test('the thread does not keep a process alive', async (t) => {
  const code = `import { startSimulatorThread } from ${JSON.stringify(new URL('../../src/simulator/thread.ts', import.meta.url).href)}
    console.log((await startSimulatorThread()).url)`
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', code])
  t.match(stdout, /^http:\/\/127\.0\.0\.1:\d+$/m)
})

t.test('`simulate` prints where it listens and an upstream to paste, and a line per request', async (t) => {
  const stop = new AbortController()
  const lines: string[] = []
  const complaints: string[] = []
  const commandLine = { print: (line: string) => {
    lines.push(line)
  }, complain: (line: string) => {
    complaints.push(line)
  }, signal: stop.signal }

  const printed = Promise.withResolvers<void>()
  const running = simulate(['--listen', '127.0.0.1:0', '--delay', '0', '--token-delay', '0', '--cut-after', '3',
    '--seed', '4'], { ...commandLine, print: (line) => {
      lines.push(line)
      printed.resolve()
    } })
  await printed.promise
  const yaml = parse(lines[0]?.slice(lines[0].indexOf('upstreams:'), lines[0].indexOf('Stop it')) ?? '') as {
    upstreams: { simulator: { url: string, dialect: string } }
  }
  t.equal(yaml.upstreams.simulator.dialect, 'messages')
  t.equal((await eventsOf(await say(yaml.upstreams.simulator.url, 'x', { stream: true }))).events.length, 3)
  stop.abort()
  t.equal(await running, 0)
  t.match(lines[1], 'POST /v1/messages m 200 3 events cut cut_after=3')

  const again = new AbortController()
  const flapping = Promise.withResolvers<string>()
  const other = simulate(['--listen', '127.0.0.1:0', '--delay', '0', '--fault', 'status=429 retry_after=3', '--fault',
    'html', '--cut-after', '1', '--fault-rate', '1', '--flap', '900000000', '--quiet'], { ...commandLine,
    signal: again.signal, print: flapping.resolve })
  t.equal((await say(/http:\S+\d/.exec(await flapping.promise)![0], 'x')).status, 200, 'for ten days it is well')
  again.abort()
  t.equal(await other, 0)

  t.equal(await simulate(['--help'], commandLine), 0)
  for (const name of [...Object.keys(directives), ...Object.keys(habits)]) {
    t.ok(lines.at(-1)?.includes(`  ${name}`), name)
  }
  for (const wrong of [['--nonsense'], ['--listen', 'x'], ['--error-rate', '2'], ['--delay', 'soon'], ['--fault',
    'nonsense'], ['--error-status', '200'], ['--flap', '0']]) {
    t.equal(await simulate(wrong, commandLine), 2)
    t.match(complaints.at(-1), /simulate: .*\nTry: gateway simulate --help/)
  }
})

t.test('the tests\' own upstream says what its script says', async (t) => {
  t.test('a good answer, as stream and as JSON, to the real SDK', async (t) => {
    const { url, requests } = await upstream(t,
      answer('Good day', { model: 'm7', usage: { input_tokens: 3, output_tokens: 2 } }))
    const client = new Anthropic({ apiKey: 'k', baseURL: url, maxRetries: 0 })
    const params = { model: 'm1', max_tokens: 9, messages: [{ role: 'user' as const, content: 'x' }] }
    for (const message of [await client.messages.create(params), await client.messages.stream(params).finalMessage()]) {
      t.match(message, { model: 'm7', content: [{ text: 'Good day' }], stop_reason: 'end_turn',
        usage: { input_tokens: 3, output_tokens: 2 } })
    }
    t.match(requests.map(({ path, body }) => [path, body]), [['/v1/messages', { max_tokens: 9 }], ['/v1/messages', {
      stream: true
    }]])
  })

  t.test('steps in order, waiting for the test, then a cut that loses nothing', async (t) => {
    const { promise: go, resolve } = Promise.withResolvers<void>()
    const vendor = await upstream(t, [messageStart({ usage: { input_tokens: 4 } }), textBlock(0, 'one', ' two'),
      wait(go), cut()])
    const asked = say(vendor.url, 'x', { stream: true })
    const received = await vendor.nextRequest()
    t.match(received, { method: 'POST', headers: { 'x-api-key': 'k' }, body: { stream: true } })
    const response = await asked
    resolve()
    const { events, error } = await eventsOf(response)
    t.equal(events.length, 5)
    t.ok(error)
    t.equal(await received.closed, 'left')
  })

  t.test('a script per request; a stall that ends when the client leaves; bytes that are no HTTP', async (t) => {
    const vendor = await upstream(t, ({ path }) => {
      if (path === '/stall') return [status(200, { 'x-a': '1' }), stall()]
      if (path === '/bytes') return [bytes('nonsense\r\n\r\n'), cut()]
      if (path === '/raw') return [raw('event: a\nda'), raw('ta: 1\n\n'), sse('b', { c: 2 }), messageEnd(), end()]
      return errorReply(529, 'overloaded_error', 'Busy', { 'retry-after': '2' })
    })
    const leave = new AbortController()
    const response = await fetch(`${vendor.url}/stall`, { signal: leave.signal })
    t.equal(response.headers.get('x-a'), '1')
    leave.abort()
    t.equal(await (await vendor.nextRequest()).closed, 'left')
    await t.rejects(fetch(`${vendor.url}/bytes`))
    t.strictSame((await eventsOf(await fetch(`${vendor.url}/raw`))).events.map(({ event }) => event), ['a', 'b',
      'message_delta', 'message_stop'])
    t.match(await errorOf(await fetch(vendor.url)), { status: 529, type: 'overloaded_error', message: 'Busy' })
    t.equal(vendor.requests.length, 4)
  })

  t.test('JSON, and nobody at all', async (t) => {
    const { url } = await upstream(t, json({ a: 1 }, 201))
    t.strictSame(await (await fetch(url)).json(), { a: 1 })
    const error = await fetch(await refusing()).catch((thrown: unknown) => thrown)
    t.match(error, { cause: { code: 'ECONNREFUSED' } })
  })
})
