// The `ai` package with its Anthropic provider, unmodified, as a client (protocol.md L3). It checks answers with schemas that
// are stricter than the official SDKs: a missing signature or counter is "Invalid JSON response" there (protocol.md A5).
import { setImmediate } from 'node:timers/promises'
import { createAnthropic } from '@ai-sdk/anthropic'
import { APICallError, generateObject, generateText, isStepCount, jsonSchema, Output, RetryError, streamText, tool, type ModelMessage } from 'ai'
import t, { type Test } from 'tap'
import { startSimulator } from '../src/simulator/simulator.ts'
import { gateway, KEY, yaml } from './gateway.ts'
import { errorReply, upstream } from './upstream.ts'

const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0, key: 'upstream-secret-0' })
t.teardown(() => simulator.close())
const gw = await gateway(t, yaml([simulator.url], `  - { id: poor, account: poor, secret: sk-gw-${'p'.repeat(32)} }\n`)
  .replace('accounts:\n', 'accounts:\n  - { id: poor, name: Poor, opening_balance_usd: 0.0001 }\n'))

const anthropic = createAnthropic({ baseURL: gw.url + '/v1', apiKey: KEY })
const model = anthropic('m1')
const once = { model, maxRetries: 0, maxOutputTokens: 300 } as const

const place = jsonSchema<{ city: string }>({ type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false })
const toolsOf = (seen: string[]) => ({
  weather: tool({ description: 'The weather', inputSchema: place, execute: ({ city }) => { seen.push(city); return `snow in ${city}` } })
})
const thinks = { anthropic: { thinking: { type: 'enabled', budgetTokens: 1024 } } } as const

async function thrown (work: PromiseLike<unknown>): Promise<unknown> {
  try {
    await work
  } catch (error) {
    return error
  }
  throw new Error('nothing was thrown')
}

const lastBody = (): Readonly<Record<string, unknown>> => simulator.requests.at(-1)!.body as Record<string, unknown>

t.test('generateText', async (t) => {
  const result = await generateText({ ...once, prompt: 'Hello there', instructions: 'Be brief.', temperature: 0.5, stopSequences: ['never'] })
  t.match(result.text, /^You said: “Hello there”/)
  t.equal(result.finishReason, 'stop')
  t.ok(result.usage.inputTokens! > 0 && result.usage.outputTokens! > 0)
  t.equal(result.response.modelId, 'm1', 'the public name')
  t.match(result.response.headers!['request-id'], /^req_/)
  t.match(lastBody(), { model: 'vendor-m1', temperature: 0.5, stop_sequences: ['never'], system: [{ type: 'text', text: 'Be brief.' }] })
  t.equal(simulator.requests.at(-1)!.headers['x-api-key'], 'upstream-secret-0')
  t.notMatch(JSON.stringify(simulator.requests.at(-1)!.headers), /ai-sdk|sk-gw/)
})

t.test('the key as a bearer token', async (t) => {
  const bearer = createAnthropic({ baseURL: gw.url + '/v1', authToken: KEY })
  t.equal((await generateText({ ...once, model: bearer('m1'), prompt: 'Hello' })).finishReason, 'stop')
})

t.test('streamText', async (t) => {
  const { text } = await generateText({ ...once, prompt: 'Hello there' })
  const result = streamText({ ...once, prompt: 'Hello there' })
  const pieces: string[] = []
  for await (const piece of result.textStream) pieces.push(piece)
  t.equal(pieces.join(''), text)
  t.ok(pieces.length > 10, 'it came in pieces')
  t.equal(await result.finishReason, 'stop')
  const usage = await result.usage
  t.ok(usage.inputTokens! > 0 && usage.outputTokens! > 10)
})

t.test('maxOutputTokens is a length', async (t) => {
  t.equal((await generateText({ ...once, maxOutputTokens: 3, prompt: 'Hello' })).finishReason, 'length')
  t.equal(await streamText({ ...once, maxOutputTokens: 3, prompt: 'Hello' }).finishReason, 'length')
})

t.test('tools are executed, and the loop ends with an answer (lesson 29)', async (t) => {
  for (const [way, run] of [
    ['generateText', async (seen: string[]) => await generateText({ ...once, tools: toolsOf(seen), stopWhen: isStepCount(3), prompt: 'What is the weather in Oslo?' })],
    ['streamText', async (seen: string[]) => {
      const result = streamText({ ...once, tools: toolsOf(seen), stopWhen: isStepCount(3), prompt: 'What is the weather in Oslo?' })
      return { text: await result.text, steps: await result.steps }
    }]
  ] as const) {
    await t.test(way, async (t) => {
      const seen: string[] = []
      const { text, steps } = await run(seen)
      t.equal(steps.length, 2)
      t.equal(steps[0]!.finishReason, 'tool-calls')
      t.match(steps[0]!.toolCalls, [{ toolName: 'weather', input: { city: seen[0]! } }])
      t.equal(seen.length, 1)
      t.match(text, `The tool answered: “snow in ${seen[0]!}`)
    })
  }
  await t.test('parallel ones', async (t) => {
    const seen: string[] = []
    const result = streamText({ ...once, tools: toolsOf(seen), stopWhen: isStepCount(3), prompt: 'Look [[sim: tool_calls=3]]' })
    t.match(await result.text, /(?:The tool answered: “snow in [^”]*”\. ){3}/)
    t.equal(seen.length, 3)
    t.equal(new Set((await result.steps)[0]!.toolCalls.map(({ toolCallId }) => toolCallId)).size, 3)
  })
})

t.test('reasoning is shown, and goes back signed (lesson 18)', async (t) => {
  const prompt: ModelMessage[] = [{ role: 'user', content: 'Hello' }]
  const asking = { ...once, maxOutputTokens: 3000, providerOptions: thinks }
  const whole = await generateText({ ...asking, messages: prompt })
  t.match(whole.reasoningText, /The user says/)
  const stream = streamText({ ...asking, messages: prompt })
  const parts: string[] = []
  for await (const part of stream.stream) if (part.type === 'reasoning-delta') parts.push(part.text)
  t.equal(parts.join(''), whole.reasoningText)
  for (const before of [whole.responseMessages, await stream.responseMessages]) {
    const next = await generateText({ ...asking, messages: [...prompt, ...before, { role: 'user', content: 'And now?' }] })
    t.match(next.text, /And now\?/)
    t.match((lastBody()['messages'] as unknown[])[1], { role: 'assistant', content: [{ type: 'thinking', thinking: whole.reasoningText, signature: /.{20}/ }, { type: 'text' }] })
  }
})

t.test('structured output, in both ways that the provider has', async (t) => {
  for (const structuredOutputMode of ['jsonTool', 'outputFormat'] as const) {
    await t.test(structuredOutputMode, async (t) => {
      const asking = { ...once, providerOptions: { anthropic: { structuredOutputMode } } }
      t.type((await generateText({ ...asking, output: Output.object({ schema: place }), prompt: 'Where?' })).output.city, 'string')
      t.type((await generateObject({ ...asking, schema: place, prompt: 'Where?' })).object.city, 'string')
      const stream = streamText({ ...asking, output: Output.object({ schema: place }), prompt: 'Where?' })
      t.type((await stream.output).city, 'string')
      const body = lastBody()
      if (structuredOutputMode === 'outputFormat') t.match(body['output_config'], { format: { type: 'json_schema' } })
      else t.match(body['tools'], [{ name: 'json' }])
    })
  }
})

t.test('images, by bytes and by address', async (t) => {
  const png = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64')
  const result = await generateText({
    ...once,
    messages: [{
      role: 'user',
      content: [
        { type: 'file', mediaType: 'image/png', data: png },
        { type: 'file', mediaType: 'image/png', data: new URL('https://example.com/cat.png') },
        { type: 'text', text: 'What is this?' }
      ]
    }]
  })
  t.match(result.text, /I see 2 images/)
  t.match((lastBody()['messages'] as { content: unknown[] }[])[0]!.content, [
    { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png.toString('base64') } },
    { type: 'image', source: { type: 'url', url: 'https://example.com/cat.png' } },
    { type: 'text' }
  ])
})

t.test('a cached prompt', async (t) => {
  const asking = { ...once, messages: [{ role: 'user', content: 'A long text. '.repeat(100), providerOptions: { anthropic: { cacheControl: { type: 'ephemeral' } } } }] } satisfies Parameters<typeof generateText>[0]
  const first = await generateText(asking)
  const second = await generateText(asking)
  t.ok(first.usage.inputTokenDetails.cacheWriteTokens! > 100)
  t.equal(second.usage.inputTokenDetails.cacheReadTokens, first.usage.inputTokenDetails.cacheWriteTokens)
})

t.test('errors', async (t) => {
  const sim = (directive: string): string => `Hello [[sim: ${directive}]]`
  const poor = createAnthropic({ baseURL: gw.url + '/v1', apiKey: `sk-gw-${'p'.repeat(32)}` })
  const wrong = createAnthropic({ baseURL: gw.url + '/v1', apiKey: `sk-gw-${'w'.repeat(32)}` })
  const cases: readonly [status: number, code: string, isRetryable: boolean, more: { readonly model?: ReturnType<typeof anthropic>, readonly prompt: string }][] = [
    [400, 'model_not_found', false, { model: anthropic('nope'), prompt: 'Hello' }],
    [400, 'context_length_exceeded', false, { prompt: sim('context') }],
    [401, 'authentication_error', false, { model: wrong('m1'), prompt: 'Hello' }],
    [402, 'insufficient_quota', false, { model: poor('m1'), prompt: 'Hello' }],
    [502, 'server_error', true, { prompt: sim('html=500') }],
    [502, 'empty_response', true, { prompt: sim('empty') }],
    [503, 'model_overloaded', true, { prompt: sim('status=429 retry_after=3') }]
  ]
  const isCallError = (t: Test, error: unknown, status: number, code: string, isRetryable: boolean): void => {
    if (!APICallError.isInstance(error)) { t.fail(`not an APICallError: ${String(error)}`); return }
    t.equal(error.statusCode, status)
    t.equal(error.isRetryable, isRetryable)
    const id = error.responseHeaders!['request-id']!
    t.match(JSON.parse(error.responseBody!), { type: 'error', error: { details: { error_code: code } }, request_id: id })
    t.ok(error.message.endsWith(`Request ID: ${id}`), error.message)
  }
  for (const [status, code, isRetryable, more] of cases) {
    await t.test(`${status} ${code}`, async (t) => {
      isCallError(t, await thrown(generateText({ ...once, ...more })), status, code, isRetryable)
      const seen: unknown[] = []
      const stream = streamText({ ...once, ...more, onError: ({ error }) => { seen.push(error) } })
      await thrown(stream.text)
      isCallError(t, seen[0], status, code, isRetryable)
    })
  }

  await t.test('an overloaded model is asked again after Retry-After, as often as was wanted', async (t) => {
    const up = await upstream(t, errorReply(529, 'overloaded_error', 'Overloaded', { 'retry-after': '1' }))
    const { url } = await gateway(t, yaml([up.url]))
    const error = await thrown(generateText({ ...once, model: createAnthropic({ baseURL: url + '/v1', apiKey: KEY })('m1'), prompt: 'Hello', maxRetries: 1 }))
    t.ok(RetryError.isInstance(error))
    isCallError(t, (error as RetryError).lastError, 503, 'model_overloaded', true)
    t.equal((error as RetryError).errors.length, 2)
    t.equal(up.requests.length, 2)
  })
  await t.test('what a retry can\'t help is asked once', async (t) => {
    const up = await upstream(t, errorReply(400, 'invalid_request_error', 'messages: no'))
    const { url } = await gateway(t, yaml([up.url]))
    isCallError(t, await thrown(generateText({ ...once, model: createAnthropic({ baseURL: url + '/v1', apiKey: KEY })('m1'), prompt: 'Hello', maxRetries: 2 })), 400, 'invalid_request', false)
    t.equal(up.requests.length, 1)
  })
  await t.test('an answer that breaks off is an error part behind what came', async (t) => {
    for (const [directive, code] of [['cut_after=8', 'upstream_stream_interrupted'], ['end_after=8', 'stream_incomplete']] as const) {
      const stream = streamText({ ...once, prompt: sim(directive), onError: () => {} })
      let text = ''
      const errors: unknown[] = []
      for await (const part of stream.stream) {
        if (part.type === 'text-delta') text += part.text
        if (part.type === 'error') errors.push(part.error)
      }
      t.ok(text.length > 0)
      t.equal(errors.length, 1)
      t.match(String(errors[0] instanceof Error ? errors[0].message + JSON.stringify(errors[0]) : JSON.stringify(errors[0])), /Request ID: req_/)
      t.match(gw.logged.findLast(({ msg }) => msg === 'request'), { outcome: 'interrupted', code })
    }
  })
})

t.test('an abort ends the call upstream', async (t) => {
  const controller = new AbortController()
  const stream = streamText({ ...once, prompt: 'Hello [[sim: stall_after=8]]', abortSignal: controller.signal })
  const types = new Set<string>()
  for await (const part of stream.stream) {
    types.add(part.type)
    if (part.type === 'text-delta') controller.abort()
  }
  t.ok(types.has('abort'))
  await simulator.until(() => simulator.requests.at(-1)!.ended === 'client_left')

  const before = simulator.requests.length
  const second = new AbortController()
  const waiting = thrown(generateText({ ...once, prompt: 'Hello [[sim: stall]]', abortSignal: second.signal }))
  await simulator.until(() => simulator.requests.length > before)
  second.abort()
  t.match(await waiting, { name: 'AbortError' })
  await simulator.until(() => simulator.requests.at(-1)!.ended === 'client_left')
  while (gw.server.inFlight > 0) await setImmediate()
  t.equal(await gw.services.store.openHolds(), 0)
})
