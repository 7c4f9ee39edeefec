// The official Anthropic SDKs, unmodified, as clients: today's major (Bearer, version 2026-10-21) and the last 0.x
// (x-api-key, version 2023-06-01). Their requests pass the whole pipeline to the simulator, which refuses what the
// vendor refuses.
import { Buffer } from 'node:buffer'
import { setImmediate } from 'node:timers/promises'
import * as newest from '@anthropic-ai/sdk'
import Anthropic from '@anthropic-ai/sdk'
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema'
import { jsonSchemaOutputFormat } from '@anthropic-ai/sdk/helpers/json-schema'
import * as last0 from 'anthropic-sdk-0'
import * as last0Tools from 'anthropic-sdk-0/helpers/beta/json-schema'
import * as last0Formats from 'anthropic-sdk-0/helpers/json-schema'
import t, { type Test } from 'tap'
import type { Simulator } from '../../src/simulator/simulator.ts'
import { fate } from '../support/client.ts'
import { gateway, KEY, yaml } from '../support/gateway.ts'
import { asSigned, chargeOf, freeing, keys, late, overloaded, SEALED, sdkGateway, simulate, simulated, THEIRS,
  thrown as caught, type Setting } from '../support/sdk.ts'
import { answer, errorReply, json, message, upstream, wait } from '../support/upstream.ts'

type Sdk = typeof Anthropic
type Client = InstanceType<Sdk>
type Body = Anthropic.MessageCreateParamsNonStreaming

const turn = (content: Anthropic.MessageParam['content']): Anthropic.MessageParam[] => [{ role: 'user', content }]
const hello: Body = { model: 'm1', max_tokens: 300, messages: turn('Hello there') }
const weather: Anthropic.Tool = { name: 'weather', description: 'The weather',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } }
const place = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } as const
const clock: Anthropic.Tool = { name: 'clock',
  input_schema: { type: 'object', properties: { zone: { type: 'string' } } } }

function textOf ({ content }: Anthropic.Message): string {
  return content.map((block) => block.type === 'text' ? block.text : '').join('')
}

const thrown = async (work: PromiseLike<unknown>): Promise<InstanceType<Sdk['APIError']>> =>
  await caught(work) as InstanceType<Sdk['APIError']>

/** What each of its errors must say. */
function isShaped (t: Test, error: InstanceType<Sdk['APIError']>, type: string, code: string): void {
  const body = error.error as { type: string, request_id: string,
    error: { type: string, message: string, charged_usd: string, details: { error_code: string } } }
  t.match(error.requestID, /^req_[0-9A-Za-z]{24}$/)
  t.equal(error.headers?.get('request-id'), error.requestID)
  t.equal(error.headers?.get('x-request-id'), error.requestID)
  t.equal(body.request_id, error.requestID)
  t.equal(body.type, 'error')
  t.equal(body.error.type, type)
  t.equal(body.error.details.error_code, code)
  t.ok(body.error.message.endsWith(` Request ID: ${error.requestID}`), body.error.message)
  t.equal(error.type, type)
  t.match(error.message, error.requestID!)
}

/** `m2`, on an upstream with a version and a beta of the operator's. */
function pinned (url: string): Setting {
  return {
    upstreams:
      `  pinned: { url: "${url}", dialect: messages, headers: { x-api-key: "upstream-secret-9", anthropic-version: "2026-10-21", anthropic-beta: "ours-1, shared-1" } }\n`,
    models:
      '  - { id: m2, name: Model Two, provider: acme, created: 2025-10-01, context: 200000, max_output: 64000, channels: { premium: { price: { input: 1, output: 1 }, targets: [{ upstream: pinned, model: vendor-m2 }] } } }\n'
  }
}

const sdks: readonly { readonly name: string, readonly SDK: Sdk, readonly exported: Readonly<Record<string, unknown>>,
  readonly tools: typeof betaTool, readonly format: typeof jsonSchemaOutputFormat, readonly isNew: boolean }[] = [
    { name: '@anthropic-ai/sdk 1.11', SDK: Anthropic, exported: newest, tools: betaTool, format: jsonSchemaOutputFormat,
      isNew: true },
    // The same calls; what its types lack or have more is not used here.
    { name: '@anthropic-ai/sdk 0.137', SDK: last0.default as unknown as Sdk, exported: last0,
      tools: last0Tools.betaTool as unknown as typeof betaTool,
      format: last0Formats.jsonSchemaOutputFormat as unknown as typeof jsonSchemaOutputFormat, isNew: false }
  ]

const limited = await freeing(t)
const busy = await overloaded(t)
const silent = await late(t)
const bad = await upstream(t, errorReply(529, 'overloaded_error', 'Overloaded'))
const two = await gateway(t, yaml([bad.url, (await upstream(t, json(message('from the second')))).url]), {
  isForgetful: true
})

for (const { name, SDK, exported, tools, format, isNew } of sdks) {
  t.test(name, async (t) => {
    const second = await simulate(t, 'upstream-secret-9')
    const { gw, simulator, isLeft } = await simulated(t, pinned(second.url))
    const clientOf = (apiKey: string): Client => new SDK({ apiKey, baseURL: gw.url, maxRetries: 0 })
    const client = clientOf(KEY)
    const last = (of: Simulator = simulator): Simulator['requests'][number] => of.requests.at(-1)!

    await t.test('sends its own head, and none of its credentials go on', async (t) => {
      await client.messages.create(hello)
      const { headers, body } = last()
      t.equal(headers['x-api-key'], 'upstream-secret-0')
      t.equal(headers.authorization, undefined)
      t.equal(headers['anthropic-version'], isNew ? '2026-10-21' : '2023-06-01', 'the version of the SDK')
      t.notMatch(JSON.stringify(headers), /stainless|Anthropic\/JS|sk-gw/)
      t.equal((body as Body).model, 'vendor-m1')
    })

    await t.test('create', async (t) => {
      const { data, response, request_id: id } = await client.messages.create(hello).withResponse()
      t.match(data, { type: 'message', role: 'assistant', model: 'm1', stop_reason: 'end_turn', stop_sequence: null,
        usage: { cache_read_input_tokens: 0 } })
      t.match(textOf(data), /^You said: “Hello there”/)
      t.ok(data.usage.input_tokens > 0 && data.usage.output_tokens > 0)
      t.match(id, /^req_[0-9A-Za-z]{24}$/)
      t.equal((data as { _request_id?: string | null })._request_id, id)
      const { nanos } = await chargeOf(gw, id)
      t.equal(-nanos, BigInt(data.usage.input_tokens) * 3000n + BigInt(data.usage.output_tokens) * 15_000n)
      t.equal(response.headers.get('x-gateway-cost-usd'), `0.${String(-nanos).padStart(9, '0')}`.replace(/0+$/, ''))
    })

    await t.test('create({ stream: true }) gives the vendor\'s events, in order', async (t) => {
      const whole = await client.messages.create(hello)
      const { data: stream, request_id: id } = await client.messages.create({ ...hello, stream: true }).withResponse()
      const events: Anthropic.RawMessageStreamEvent[] = []
      for await (const event of stream) events.push(event)
      const types = events.map(({ type }) => type as string).filter((type) => type !== 'ping')
      t.same([types.slice(0, 2), new Set(types.slice(2, -3)), types.slice(-3)], [
        ['message_start', 'content_block_start'],
        new Set(['content_block_delta']),
        ['content_block_stop', 'message_delta', 'message_stop']
      ])
      t.equal(
        events.map((event) =>
          event.type === 'content_block_delta' && event.delta.type === 'text_delta' ? event.delta.text : ''
        ).join(''),
        textOf(whole)
      )
      t.match(events[0], { type: 'message_start',
        message: { model: 'm1', usage: { input_tokens: whole.usage.input_tokens } } })
      const delta = events.find((event) => event.type === 'message_delta')!
      t.equal(delta.usage.output_tokens, whole.usage.output_tokens)
      t.equal(-(await chargeOf(gw, id)).nanos,
        BigInt(whole.usage.input_tokens) * 3000n + BigInt(whole.usage.output_tokens) * 15_000n)
    })

    await t.test('a stream whose cost is asked for is the same to the SDK, and to the wire but for one ping', async (t) => {
      const headers = { 'x-gateway-cost': 'stream' }
      const { data: stream, request_id: id } = await client.messages.create({ ...hello, stream: true }, { headers })
        .withResponse()
      const types: string[] = []
      for await (const event of stream) { types.push(event.type) }
      t.same(
        types.filter((type) => type !== 'content_block_delta' && type !== 'ping'),
        ['message_start', 'content_block_start', 'content_block_stop', 'message_delta', 'message_stop']
      )
      const { nanos } = await chargeOf(gw, id)
      t.equal((await client.messages.stream(hello, { headers }).finalMessage()).stop_reason, 'end_turn')
      const raw = await (await client.messages.create({ ...hello, stream: true }, { headers }).asResponse()).text()
      const charged = `0.${String(-nanos).padStart(9, '0')}`.replace(/0+$/, '')
      t.ok(
        raw.endsWith(
          `event: ping\ndata: {"type":"ping","charged_usd":"${charged}"}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n`
        ),
        raw.slice(-300)
      )
    })

    await t.test('stream() and its helpers', async (t) => {
      const whole = await client.messages.create(hello)
      const pieces: string[] = []
      const stream = client.messages.stream(hello).on('text', (text) => { pieces.push(text) })
      const final = await stream.finalMessage()
      t.equal(pieces.join(''), textOf(whole))
      t.equal(await stream.finalText(), textOf(whole))
      t.equal(final.model, 'm1')
      t.equal(final.stop_reason, 'end_turn')
      t.equal(final.usage.output_tokens, whole.usage.output_tokens)
      t.match(stream.request_id, /^req_/)
    })

    await t.test('one tool, there and back', async (t) => {
      const messages = turn('What is the weather in Oslo?')
      const first = await client.messages.create({ ...hello, messages, tools: [weather] })
      t.equal(first.stop_reason, 'tool_use')
      const call = first.content.find((block) => block.type === 'tool_use')!
      t.equal(call.name, 'weather')
      t.type((call.input as { city: unknown }).city, 'string')
      const second = await client.messages.create({
        ...hello,
        tools: [weather],
        messages: [...messages, { role: 'assistant', content: first.content }, { role: 'user',
          content: [{ type: 'tool_result', tool_use_id: call.id, content: 'snow' }] }]
      })
      t.equal(second.stop_reason, 'end_turn')
      t.match(textOf(second), /The tool answered: “snow”/)
    })

    await t.test('parallel tools in a stream, there and back; a forced one; an error as result (rule tool-input)', async (t) => {
      const messages = turn('Look [[sim: tool_calls=2]]')
      const first = await client.messages.stream({ ...hello, messages, tools: [weather, clock] }).finalMessage()
      t.equal(first.stop_reason, 'tool_use')
      const calls = first.content.filter((block) => block.type === 'tool_use')
      t.same(calls.map(({ name }) => name), ['weather', 'clock'])
      t.not(calls[0]!.id, calls[1]!.id)
      for (const { input } of calls) { t.equal(Object.keys(input as object).length, 1, 'the input was put together') }
      const results: Anthropic.ToolResultBlockParam[] = calls.map(({ id }, i) => ({
        type: 'tool_result',
        tool_use_id: id,
        content: [{ type: 'text', text: `result ${i}` }],
        is_error: i === 1
      }))
      const second = await client.messages.stream({ ...hello, tools: [weather, clock],
        messages: [...messages, { role: 'assistant', content: first.content }, { role: 'user', content: results }] })
        .finalMessage()
      t.match(textOf(second), /The tool answered: “result 0”\. The tool failed: “result 1”/)
      const forced = await client.messages.create({ ...hello, tools: [weather, clock],
        tool_choice: { type: 'tool', name: 'clock' } })
      t.match(forced.content, [{ type: 'tool_use', name: 'clock' }])
    })

    await t.test('thinking comes signed, and its signature goes back unchanged (rule signatures)', async (t) => {
      const asking = { ...hello, max_tokens: 3000, thinking: { type: 'enabled', budget_tokens: 1024 } } as const
      for (const first of [await client.messages.create(asking), await client.messages.stream(asking).finalMessage()]) {
        const [thought] = first.content
        t.match(thought, { type: 'thinking', thinking: /The user says/, signature: SEALED })
        const second = await client.messages.create({ ...asking,
          messages: [...asking.messages, { role: 'assistant', content: first.content }, { role: 'user',
            content: 'And now?' }] })
        t.match(textOf(second), /And now\?/)
        t.strictSame(asSigned((last().body as Body).messages[1]!.content, THEIRS), asSigned(first.content, SEALED), 'byte for byte')
      }
      const forged = thrown(
        client.messages.create({ ...asking,
          messages: [...asking.messages, { role: 'assistant',
            content: [{ type: 'thinking', thinking: 'x', signature: 'forged' }] }, { role: 'user',
            content: 'And now?' }] })
      )
      isShaped(t, await forged, 'invalid_request_error', 'invalid_request')
      t.match((await forged).message, /signature/)
    })

    await t.test('thoughts and calls in one stream, event by event, and back', async (t) => {
      const asking: Body = { ...hello, max_tokens: 3000, thinking: { type: 'enabled', budget_tokens: 1024 },
        tools: [weather], messages: turn('What is the weather in Oslo?') }
      const stream = client.messages.stream(asking)
      const heard = { thinking: '', text: '', json: '', signature: '', blocks: [] as string[] }
      stream.on('thinking', (piece) => { heard.thinking += piece })
      stream.on('signature', (signature) => { heard.signature = signature })
      stream.on('text', (piece) => { heard.text += piece })
      stream.on('inputJson', (piece) => { heard.json += piece })
      stream.on('contentBlock', ({ type }) => { heard.blocks.push(type) })
      const { content, stop_reason: reason } = await stream.finalMessage()
      t.equal(reason, 'tool_use')
      t.strictSame(heard.blocks, ['thinking', 'text', 'tool_use'])
      t.match(content, [{ thinking: heard.thinking, signature: heard.signature }, { text: heard.text }, {
        name: 'weather',
        input: { city: 'Oslo' }
      }])
      t.match(heard, { thinking: /weather in Oslo/, text: 'I will call weather.', json: '{"city":"Oslo"}',
        signature: /.{20}/ })
      const call = content.find((block) => block.type === 'tool_use')!
      const next = await client.messages.stream({ ...asking,
        messages: [...asking.messages, { role: 'assistant', content }, { role: 'user',
          content: [{ type: 'tool_result', tool_use_id: call.id, content: 'snow' }] }] }).finalMessage()
      t.match(next.content, [{ type: 'thinking' }, { text: /The tool answered: “snow”/ }])
      t.strictSame(asSigned((last().body as Body).messages[1]!.content, THEIRS), asSigned(content, SEALED))
    })

    await t.test('the tool runner, and an answer that is parsed', async (t) => {
      const before = simulator.requests.length
      const seen: string[] = []
      const tool = tools({ name: 'weather', description: 'The weather', inputSchema: place, run: ({ city }) => {
        seen.push(city)
        return `snow in ${city}`
      } })
      const final = await client.beta.messages.toolRunner({ ...hello,
        messages: [{ role: 'user', content: 'What is the weather in Oslo?' }], tools: [tool] })
      t.match(final.content, [{ type: 'text', text: /The tool answered: “snow in Oslo”/ }])
      t.strictSame(seen, ['Oslo'])
      t.equal(simulator.requests.length, before + 2,
        'a thread, which today\'s asks for at first, is refused, and it goes on without')
      const parsed = await client.messages.parse({ ...hello, messages: turn('Where? I am in Rome'),
        output_config: { format: format(place) } })
      t.strictSame(parsed.parsed_output, { city: 'Rome' })
      t.match((last().body as Body).output_config, {
        format: { type: 'json_schema', schema: { properties: { city: { type: 'string' } } } }
      })
    })

    await t.test('countTokens says what a request will be charged for', async (t) => {
      const asking = { model: 'm1', messages: hello.messages, system: 'Be brief.', tools: [weather] }
      const { data, request_id: id } = await client.messages.countTokens(asking).withResponse()
      t.equal(data.input_tokens, (await client.messages.create({ ...asking, max_tokens: 300 })).usage.input_tokens)
      const { entries, line } = await fate(gw, id!)
      t.strictSame(entries, [], 'and costs nothing')
      t.match(line, { route: 'POST /v1/messages/count_tokens', status: 200 })
    })

    await t.test('images, by bytes and by address', async (t) => {
      const data = Buffer.from('not really a picture').toString('base64')
      const content: Anthropic.ContentBlockParam[] = [
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data } },
        { type: 'image', source: { type: 'url', url: 'https://example.com/cat.png' } },
        { type: 'text', text: 'What is this?' }
      ]
      t.match(textOf(await client.messages.create({ ...hello, messages: turn(content) })), /I see 2 images/)
      t.same((last().body as Body).messages[0]!.content, content)
    })

    await t.test('a cached prompt is written once and read then, and each is charged at its price', async (t) => {
      const asking: Body = { ...hello,
        system: [{ type: 'text', text: `A long system prompt of ${name}. `.repeat(50),
          cache_control: { type: 'ephemeral' } }] }
      const first = await client.messages.create(asking)
      const second = await client.messages.stream(asking).finalMessage()
      const written = first.usage.cache_creation_input_tokens!
      t.ok(written > 100)
      t.equal(first.usage.cache_read_input_tokens, 0)
      t.equal(second.usage.cache_read_input_tokens, written)
      t.equal(second.usage.cache_creation_input_tokens, 0)
      const entry = await chargeOf(gw, (first as { _request_id?: string })._request_id)
      t.match(entry.usage, { cache_write_5m: written, input: first.usage.input_tokens, cache_read: 0 })
      t.equal(-entry.nanos, BigInt(first.usage.input_tokens) * 3000n + BigInt(written) * 3750n +
        BigInt(first.usage.output_tokens) * 15_000n)
    })

    await t.test('stop sequences and max_tokens', async (t) => {
      const stopped = await client.messages.create({ ...hello, stop_sequences: ['there'] })
      t.match(stopped, { stop_reason: 'stop_sequence', stop_sequence: 'there' })
      t.equal(textOf(stopped), 'You said: “Hello ')
      t.equal((await client.messages.create({ ...hello, max_tokens: 3 })).stop_reason, 'max_tokens')
      t.equal((await client.messages.stream({ ...hello, max_tokens: 3 }).finalMessage()).stop_reason, 'max_tokens')
    })

    await t.test('system prompts, metadata and fields that nobody here knows pass', async (t) => {
      const more = { system: 'Be brief.', metadata: { user_id: 'u-1' }, service_tier: 'standard_only' } as const
      await client.messages.create({ ...hello, ...more })
      t.match(last().body, more)
    })

    await t.test('beta calls: each name once, with the operator\'s first', async (t) => {
      const urls: string[] = []
      const watching = new SDK({ apiKey: KEY, baseURL: gw.url, maxRetries: 0, fetch: (url, init) => {
        urls.push(String(url))
        return fetch(url as string, init)
      } })
      t.match(await watching.beta.messages.create({ ...hello, betas: ['b-1', 'b-2', 'b-1'] }), { model: 'm1',
        type: 'message' })
      t.equal(last().headers['anthropic-beta'], 'b-1,b-2')
      await watching.beta.messages.create({ ...hello, model: 'm2', betas: ['shared-1', 'b-2'] })
      t.equal(last(second).headers['anthropic-beta'], 'ours-1,shared-1,b-2')
      await watching.beta.messages.stream({ ...hello, betas: ['b-3'] }).finalMessage()
      t.equal(last().headers['anthropic-beta'], 'b-3')
      await watching.beta.messages.create({ ...hello,
        betas: ['b-1', 'context-1m-2025-08-07', '"context-1m-2025-08-07"'] })
      t.equal(last().headers['anthropic-beta'], 'b-1',
        'more context than the model is sold with costs more than is held')
      t.equal(urls.every((url) => url.endsWith('?beta=true') === !isNew), true, 'the query is not looked at')
      await client.messages.create(hello)
      t.equal(last().headers['anthropic-beta'], undefined)
    })

    await t.test('versions', async (t) => {
      const sampling = { ...hello, temperature: 0.5 } as Body
      await client.messages.create(sampling)
      t.equal(last().headers['anthropic-version'], '2023-06-01', 'the newer one refuses sampling')
      t.equal((last().body as { temperature?: number }).temperature, 0.5)
      await client.messages.create(hello, { headers: { 'anthropic-version': '2026-10-21, 2023-06-01' } })
      t.equal(last().headers['anthropic-version'], '2026-10-21', 'the first of several')
      await client.messages.create(hello, { headers: { 'anthropic-version': '2023-01-01' } })
      t.equal(last().headers['anthropic-version'], '2023-01-01')
      await client.messages.create({ ...sampling, model: 'm2' }, { headers: { 'anthropic-version': '2023-06-01' } })
      t.equal(last(second).headers['anthropic-version'], '2026-10-21', 'the operator\'s wins')
      t.notOk('temperature' in (last(second).body as object), 'and what it refuses is left out')
      const count = simulator.requests.length
      const error = await thrown(client.messages.create(hello, { headers: { 'anthropic-version': 'latest' } }))
      t.ok(error instanceof SDK.BadRequestError)
      isShaped(t, error, 'invalid_request_error', 'invalid_request')
      t.match(error.message, /anthropic-version/)
      t.equal(simulator.requests.length, count, 'nobody was asked')
    })

    await t.test('both ways to send a key', async (t) => {
      const own = new SDK({ apiKey: KEY, baseURL: gw.url, maxRetries: 0 })
      const bearer = new SDK({ apiKey: null, authToken: KEY, baseURL: gw.url, maxRetries: 0 })
      const header = new SDK({ apiKey: null, authToken: null, baseURL: gw.url, maxRetries: 0,
        defaultHeaders: { 'x-api-key': KEY, authorization: 'Bearer a-dummy-of-a-tool' } })
      for (const client of [own, bearer, header]) { t.equal((await client.messages.create(hello)).model, 'm1') }
    })

    await t.test('models.list and models.retrieve', async (t) => {
      const models: Anthropic.ModelInfo[] = []
      for await (const model of client.models.list()) { models.push(model) }
      t.match(models, [{ id: 'm2', type: 'model' }, { id: 'plain' }, { id: 'm1', type: 'model',
        display_name: 'Model One', created_at: '2025-09-29T00:00:00Z', max_input_tokens: 200000, max_tokens: 64000 }])
      t.equal(models.length, 3)
      const paged: string[] = []
      for await (const { id } of client.models.list({ limit: 1 })) paged.push(id)
      t.same(paged, ['m2', 'plain', 'm1'], 'page by page')
      t.match(await client.models.retrieve('m1'), { id: 'm1', display_name: 'Model One' })
    })

    await t.test('error classes', async (t) => {
      const [wrong, poor, suspended, cheap, slow, unlucky] = [clientOf(keys.wrong), clientOf(keys.poor),
        clientOf(keys.suspended), clientOf(keys.cheap), clientOf(keys.slow), clientOf(keys.unlucky)]
      await slow.messages.create(hello)
      const picture = turn([{ type: 'image', source: { type: 'url', url: 'https://example.com/cat.png' } }])
      const sim = (directive: string): Body => ({ ...hello, messages: turn(`Hello [[sim: ${directive}]]`) })
      const cases: readonly [work: () => Promise<unknown>, cls: string, status: number, type: string, code: string,
        message?: RegExp][] = [
          [() => client.messages.create({ ...hello, model: 'nope' }), 'BadRequestError', 400, 'invalid_request_error',
            'model_not_found', /no model .{1,2}nope/],
          [() => client.messages.create({ ...hello, model: '' }), 'BadRequestError', 400, 'invalid_request_error',
            'model_required'],
          [() => client.messages.create({ ...hello, messages: [] }), 'BadRequestError', 400, 'invalid_request_error',
            'invalid_request', /messages must not be empty/],
          [() => client.messages.create({ ...hello, temperature: 1.5 } as Body), 'BadRequestError', 400,
            'invalid_request_error', 'invalid_request', /temperature must be .*1/],
          [() => client.messages.create({ ...hello, model: 'plain', messages: picture }), 'BadRequestError', 400,
            'invalid_request_error', 'image_input_not_supported'],
          [() => client.messages.create(sim('context')), 'BadRequestError', 400, 'invalid_request_error',
            'context_length_exceeded', /input length and `max_tokens` exceed context limit: \d+ \+ 300 > 200000/],
          [() => client.messages.create(sim('content_policy')), 'BadRequestError', 400, 'invalid_request_error',
            'content_policy_violation'],
          [() => wrong.messages.create(hello), 'AuthenticationError', 401, 'authentication_error',
            'authentication_error'],
          [() => poor.messages.create(hello), isNew ? 'PaymentRequiredError' : 'APIError', 402, 'billing_error',
            'insufficient_quota', /\$0\.0001 left/],
          [() => suspended.messages.create(hello), isNew ? 'PaymentRequiredError' : 'APIError', 402, 'billing_error',
            'account_frozen'],
          [() => cheap.messages.create(hello), 'PermissionDeniedError', 403, 'permission_error',
            'model_not_in_channel'],
          [() => client.messages.create({ ...hello, messages: turn('x'.repeat(2_000_000)) }),
            isNew ? 'ContentTooLargeError' : 'APIError', 413, 'request_too_large', 'request_too_large'],
          [() => slow.messages.create(hello), 'RateLimitError', 429, 'rate_limit_error', 'rate_limited',
            /limit of 1 request in any 60 seconds/],
          [() => unlucky.messages.create(hello), 'InternalServerError', 500, 'api_error', 'server_error'],
          [() => client.messages.create(sim('status=401')),
            isNew ? 'ServiceUnavailableError' : 'InternalServerError', 503, 'api_error', 'service_unavailable'],
          [() => client.messages.create(sim('html=502')), 'InternalServerError', 502, 'api_error', 'server_error'],
          [() => client.messages.create(sim('empty_body')), 'InternalServerError', 502, 'api_error', 'empty_response'],
          [() => client.messages.create(sim('malformed')), 'InternalServerError', 502, 'api_error', 'server_error'],
          [() => client.messages.create(sim('status=429 retry_after=9')),
            isNew ? 'ServiceUnavailableError' : 'InternalServerError', 503, 'overloaded_error', 'model_overloaded'],
          [() => client.messages.create({ ...sim('status=529'), stream: true }),
            isNew ? 'ServiceUnavailableError' : 'InternalServerError', 503, 'overloaded_error', 'model_overloaded'],
          [() => client.messages.create({ ...sim('error_event_first'), stream: true }),
            isNew ? 'ServiceUnavailableError' : 'InternalServerError', 503, 'overloaded_error', 'model_overloaded'],
          [() => client.messages.create({ ...sim('empty_body'), stream: true }), 'InternalServerError', 502, 'api_error',
            'empty_response']
        ]
      for (const [work, cls, status, type, code, message] of cases) {
        await t.test(`${status} ${code} is ${cls}`, async (t) => {
          const error = await thrown(work())
          t.equal(error.status, status)
          t.equal(error.constructor, exported[cls])
          isShaped(t, error, type, code)
          if (isNew) t.match(error, { errorCode: code, details: { error_code: code } })
          if (message !== undefined) t.match(error.message, message)
          t.equal(error.headers!.has('retry-after'), status === 429 || status === 503)
          t.notMatch(error.message + JSON.stringify([...error.headers!]),
            /upstream-secret|sk-ant|5d3c1a9e|cloudflare|vendor-m1/)
        })
      }
      await t.test('404 is NotFoundError', async (t) => {
        const error = await thrown(client.models.retrieve('nope'))
        t.equal(error.constructor, SDK.NotFoundError)
        t.equal(error.status, 404)
        t.equal(error.type, 'not_found_error' as string,
          'the models list is not a messages address, but the type is the same')
        t.match(error.requestID, /^req_/)
      })
    })

    await t.test('an answer that breaks off throws an APIError with the type and the id', async (t) => {
      const endings = [
        ['cut_after=8', 'upstream_stream_interrupted', 'api_error'],
        ['cut_mid_event=8', 'upstream_stream_interrupted', 'api_error'],
        // The word by which clients know that a retry can help.
        ['error_event_after=8', 'upstream_stream_interrupted', 'overloaded_error'],
        ['error_event_after=8 error_type=api_error', 'upstream_stream_interrupted', 'api_error'],
        ['end_after=8', 'stream_incomplete', 'api_error']
      ] as const
      for (const [directive, code, type] of endings) {
        const asking = { ...hello, messages: turn(`Hello [[sim: ${directive}]]`) }
        const { data: stream, response } = await client.messages.create({ ...asking, stream: true }).withResponse()
        let text = ''
        const error = await thrown((async () => {
          for await (const event of stream) {
            if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') {
              text += event.delta.text
            }
          }
        })())
        t.ok(text.length > 0, 'what was produced arrived')
        t.ok(error instanceof SDK.APIError, directive)
        t.equal(error.status, undefined)
        t.equal(error.requestID, response.headers.get('request-id'))
        t.equal((error.error as { error: { type: string } }).error.type, type)
        t.equal(error.type, type as string)
        t.match(error.message, code)
        t.match(error.message, `Request ID: ${error.requestID}`)
        if (isNew) t.equal(error.errorCode, code)
        const { usage, nanos } = await chargeOf(gw, error.requestID)
        t.match(usage, { input: 0 }, 'only what was produced is charged')
        t.ok(nanos < 0n)
      }
      const stream = client.messages.stream({ ...hello, messages: turn('Hello [[sim: cut_after=8]]') })
      const error = await thrown(stream.finalMessage())
      t.ok(error instanceof SDK.APIError)
      t.equal(error.requestID, stream.request_id)
    })

    await t.test('a client that aborts ends the call upstream, and pays for what it got', async (t) => {
      let count = simulator.requests.length
      const { data: stream, request_id: id } = await client.messages.create({ ...hello,
        messages: turn('Hello [[sim: stall_after=8]]'), stream: true }).withResponse()
      let deltas = 0
      for await (const { type } of stream) {
        if (type === 'content_block_delta' && ++deltas === 3) stream.controller.abort()
      }
      await isLeft(count + 1)
      t.ok((await chargeOf(gw, id)).nanos < 0n)

      count = simulator.requests.length
      const helper = client.messages.stream({ ...hello, messages: turn('Hello [[sim: stall_after=8]]') })
      helper.once('text', () => { helper.abort() })
      t.ok(await thrown(helper.finalMessage()) instanceof SDK.APIUserAbortError)
      await isLeft(count + 1)

      count = simulator.requests.length
      const controller = new AbortController()
      const waiting = thrown(
        client.messages.create({ ...hello, messages: turn('Hello [[sim: stall]]') }, { signal: controller.signal })
      )
      await simulator.until(() => simulator.requests.length > count)
      controller.abort()
      t.ok(await waiting instanceof SDK.APIUserAbortError)
      await isLeft(count + 1)
      while (gw.server.inFlight > 0) await setImmediate()
      t.equal(await gw.services.store.openHolds(), 0)
    })
  })

  t.test(`${name} retries`, async (t) => {
    const calls: number[] = []
    const timed = (url: string, maxRetries: number, apiKey = KEY): Client => new SDK({
      apiKey, baseURL: url, maxRetries,
      fetch: (url, init) => { calls.push(performance.now()); return fetch(url as string, init) }
    })
    t.beforeEach(() => { calls.length = 0 })

    await t.test('429 rate_limited when Retry-After says so, and then succeeds', async (t) => {
      const { fetch, statuses } = await limited.useUp()
      t.equal(
        textOf(await new SDK({ apiKey: keys.slow, baseURL: limited.url, fetch }).messages.stream(hello).finalMessage()),
        'Hello again'
      )
      t.strictSame(statuses, [429, 200])
    })
    await t.test('429 low_balance too; it is a RateLimitError where it may not retry', async (t) => {
      const free = Promise.withResolvers<void>()
      const up = await upstream(t, ({ body }) =>
        body!['max_tokens'] === 100 ? [wait(free.promise), answer('first')] : answer('second'))
      const gw = await sdkGateway(t, up.url, { balance: '0.003' })
      const first = timed(gw.url, 0).messages.create({ ...hello, max_tokens: 100 })
      await up.nextRequest()
      const error = await thrown(timed(gw.url, 0).messages.create({ ...hello, max_tokens: 100 }))
      t.equal(error.constructor, SDK.RateLimitError)
      isShaped(t, error, 'rate_limit_error', 'low_balance')
      t.match(error.headers!.get('retry-after'), /^[1-9]\d?$/)

      calls.length = 0
      const before = gw.logged.length
      const second = timed(gw.url, 2).messages.create({ ...hello, max_tokens: 101 })
      while (!gw.logged.slice(before).some(({ status }) => status === 429)) await setImmediate()
      free.resolve()
      t.equal(textOf(await first), 'first')
      t.equal(textOf(await second), 'second')
      t.equal(calls.length, 2)
      t.ok(calls[1]! - calls[0]! >= 990, `waited ${calls[1]! - calls[0]!} ms; by itself it would wait less than 500`)
      t.equal(up.requests.length, 2, 'the refused ones never reached the upstream')
    })
    await t.test('503 of an overloaded model, each time asking the upstream', async (t) => {
      const before = busy.up.requests.length
      const error = await thrown(timed(busy.url, 1).messages.create(hello))
      t.equal(error.status, 503)
      t.ok(error instanceof SDK.InternalServerError)
      t.equal(error.headers!.get('retry-after'), '1', 'the upstream\'s, passed on')
      t.equal(busy.up.requests.length, before + 2)
      t.ok(calls[1]! - calls[0]! >= 990)
    })
    await t.test('nothing that a retry can\'t help', async (t) => {
      t.equal((await thrown(timed(busy.url, 2).messages.create({ ...hello, max_tokens: 100 }))).status, 400)
      t.equal((await thrown(timed(busy.url, 2, keys.poor).messages.create(hello))).status, 402)
      t.equal(calls.length, 2)
    })
    await t.test('nothing that is in the stream already, behind pings that go unnoticed', async (t) => {
      const { messages } = new SDK({ apiKey: KEY, baseURL: silent.url, fetch: silent.fetch })
      t.equal(await messages.stream({ ...hello, max_tokens: 200 }).finalText(), 'At last')
      const error = await thrown(messages.stream(hello).finalText())
      t.ok(error instanceof SDK.APIError)
      t.equal(error.status, undefined)
      t.equal(error.type, 'overloaded_error')
      t.match(error.message, /Request ID: req_.*model_overloaded/)
    })
    await t.test('a second target instead, where there is one: the client sees one answer', async (t) => {
      const before = bad.requests.length
      t.equal(textOf(await timed(two.url, 2).messages.create(hello)), 'from the second')
      t.equal(calls.length, 1)
      t.equal(bad.requests.length, before + 1)
    })
  })
}
