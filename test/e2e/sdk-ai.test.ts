// The `ai` package, unmodified, as a client: with its Anthropic provider, with both of its providers for chat
// completions, and with both for the Responses API. It checks answers with schemas that are stricter than the official
// SDKs: a missing signature or counter is "Invalid JSON response" there.
import { Buffer } from 'node:buffer'
import { setImmediate } from 'node:timers/promises'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenResponses } from '@ai-sdk/open-responses'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { APICallError, generateObject, generateText, isStepCount, jsonSchema, Output, RetryError, streamText, tool,
  type LanguageModel, type ModelMessage } from 'ai'
import t, { type Test } from 'tap'
import { KEY } from '../support/gateway.ts'
import { freeing, keys, overloaded, simulated, thrown } from '../support/sdk.ts'

Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })

/** By a name of which the provider knows that it writes up to 128,000 tokens, and asks for so many by itself. */
const TALKATIVE = 'claude-opus-4-8'
const { gw, simulator, lastBody, isLeft } = await simulated(t, {
  models: `  - { id: ${TALKATIVE}, provider: acme, created: 2025-11-01, context: 200000, max_output: 64000, over_max_output: clamp, channels: { premium: { price: { input: 1, output: 1 }, targets: [{ upstream: u0, model: vendor-talkative }] } } }\n`
})
const limited = await freeing(t)
const busy = await overloaded(t)

interface Access { readonly apiKey?: string, readonly url?: string, readonly fetch?: typeof globalThis.fetch }

interface Provider {
  readonly name: string
  model (id: string, access?: Access): Exclude<LanguageModel, string>
  /** in the body of an error */
  codeOf (body: unknown): string
  /** what it says of an answer that broke off: that a retry could help, or nothing */
  readonly canRetryStream: boolean
  /** it speaks the Responses API, which has no field for stop sequences */
  readonly isResponses?: true
}

const settings = ({ apiKey = KEY, url = gw.url, fetch = globalThis.fetch }: Access): {
  readonly apiKey: string
  readonly baseURL: string
  readonly fetch: typeof globalThis.fetch
} => ({
  apiKey,
  baseURL: `${url}/v1`,
  fetch
})
const anthropic = createAnthropic(settings({}))
const chatCode = (body: unknown): string => (body as { error: { code: string } }).error.code

const messages: Provider = {
  name: '@ai-sdk/anthropic',
  model: (id, access = {}) => createAnthropic(settings(access))(id),
  codeOf: (body) => (body as { error: { details: { error_code: string } } }).error.details.error_code,
  canRetryStream: true
}
const openai: Provider = { name: '@ai-sdk/openai', model: (id, access = {}) => createOpenAI(settings(access)).chat(id),
  codeOf: chatCode, canRetryStream: true }
// Both are off unless asked for: then it sends no schemas, and knows nothing of the usage of streams.
const compatible: Provider = {
  name: '@ai-sdk/openai-compatible',
  model: (id, access = {}) =>
    createOpenAICompatible({ name: 'gateway', includeUsage: true, supportsStructuredOutputs: true,
      ...settings(access) })(id),
  codeOf: chatCode,
  canRetryStream: false
}
const responses: Provider = { name: '@ai-sdk/openai, responses',
  model: (id, access = {}) => createOpenAI(settings(access))(id), codeOf: chatCode, canRetryStream: true,
  isResponses: true }
const open: Provider = {
  name: '@ai-sdk/open-responses',
  model: (id, access = {}) => {
    const { baseURL, ...rest } = settings(access)
    return createOpenResponses({ name: 'gateway', url: `${baseURL}/responses`, ...rest })(id)
  },
  codeOf: chatCode,
  canRetryStream: false,
  isResponses: true
}

const place = jsonSchema<{ city: string }>({ type: 'object', properties: { city: { type: 'string' } },
  required: ['city'], additionalProperties: false })
const toolsOf = (seen: string[]) => ({
  weather: tool({ description: 'The weather', inputSchema: place, execute: ({ city }) => {
    seen.push(city)
    return `snow in ${city}`
  } })
})
const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64'
)
const sim = (directive: string): string => `Hello [[sim: ${directive}]]`

// Its only request for the next minute.
await generateText({ model: messages.model('m1', { apiKey: keys.slow }), prompt: 'Hello' })

for (const provider of [messages, openai, compatible, responses, open]) {
  const once = { model: provider.model('m1'), maxRetries: 0, maxOutputTokens: 300 } as const

  t.test(provider.name, async (t) => {
    await t.test('generateText', async (t) => {
      const result = await generateText({ ...once, prompt: 'Hello there', instructions: 'Be brief.', temperature: 0.5,
        stopSequences: ['never'] })
      t.match(result.text, /^You said: “Hello there”/)
      t.equal(result.finishReason, 'stop')
      t.ok(result.usage.inputTokens! > 0 && result.usage.outputTokens! > 10)
      t.equal(result.usage.totalTokens, result.usage.inputTokens! + result.usage.outputTokens!)
      t.equal(result.response.modelId, 'm1', 'the public name')
      t.match(result.response.headers!['request-id'], /^req_/)
      t.match(lastBody(), { model: 'vendor-m1', max_tokens: 300, temperature: 0.5,
        ...provider.isResponses !== true && { stop_sequences: ['never'] },
        system: [{ type: 'text', text: 'Be brief.' }], messages: [{ role: 'user' }] })
      t.equal(simulator.requests.at(-1)!.headers['x-api-key'], 'upstream-secret-0')
      t.notMatch(JSON.stringify(simulator.requests.at(-1)!.headers), /ai-sdk|sk-gw/)
    })

    await t.test('streamText', async (t) => {
      const { text, usage } = await generateText({ ...once, prompt: 'Hello there' })
      const result = streamText({ ...once, prompt: 'Hello there' })
      const pieces: string[] = []
      for await (const piece of result.textStream) pieces.push(piece)
      t.equal(pieces.join(''), text)
      t.ok(pieces.length > 10, 'it came in pieces')
      t.equal(await result.finishReason, 'stop')
      const { inputTokens, outputTokens } = await result.usage
      t.strictSame([inputTokens, outputTokens], [usage.inputTokens, usage.outputTokens])
      t.equal((await result.response).modelId, 'm1')
    })

    await t.test('stop sequences, and maxOutputTokens is a length', async (t) => {
      const stopped = await generateText({ ...once, prompt: 'Hello there', stopSequences: ['there'] })
      if (provider.isResponses === true) t.match(stopped.warnings, [{ feature: 'stopSequences' }], 'it says so')
      else t.match(stopped, { text: 'You said: “Hello ', finishReason: 'stop' })
      t.equal((await generateText({ ...once, maxOutputTokens: 3, prompt: 'Hello' })).finishReason, 'length')
      t.equal(await streamText({ ...once, maxOutputTokens: 3, prompt: 'Hello' }).finishReason, 'length')
    })

    await t.test('tools are executed, and the loop ends with an answer (rule tool-input)', async (t) => {
      for (const [way, run] of [
        ['generateText', async (seen: string[]) =>
          await generateText({ ...once, tools: toolsOf(seen), stopWhen: isStepCount(3),
            prompt: 'What is the weather in Oslo?' })],
        ['streamText', async (seen: string[]) => {
          const result = streamText({ ...once, tools: toolsOf(seen), stopWhen: isStepCount(3),
            prompt: 'What is the weather in Oslo?' })
          return { text: await result.text, steps: await result.steps }
        }]
      ] as const) {
        await t.test(way, async (t) => {
          const seen: string[] = []
          const { text, steps } = await run(seen)
          t.equal(steps.length, 2)
          t.equal(steps[0]!.finishReason, 'tool-calls')
          t.match(steps[0]!.toolCalls, [{ toolName: 'weather', input: { city: 'Oslo' } }])
          t.strictSame(seen, ['Oslo'])
          t.match(text, 'The tool answered: “snow in Oslo')
        })
      }
      await t.test('parallel ones', async (t) => {
        const seen: string[] = []
        const result = streamText({ ...once, tools: toolsOf(seen), stopWhen: isStepCount(3),
          prompt: 'Look [[sim: tool_calls=3]]' })
        t.match(await result.text, /(?:The tool answered: “snow in [^”]*”\. ){3}/)
        t.equal(seen.length, 3)
        t.equal(new Set((await result.steps)[0]!.toolCalls.map(({ toolCallId }) => toolCallId)).size, 3)
      })
      await t.test('one that must be called, and none that may', async (t) => {
        const named = await generateText({ ...once, tools: toolsOf([]),
          toolChoice: { type: 'tool', toolName: 'weather' }, prompt: 'Hello' })
        t.match(named.toolCalls, [{ toolName: 'weather' }])
        t.strictSame(
          (await generateText({ ...once, tools: toolsOf([]), toolChoice: 'none', prompt: 'The weather?' })).toolCalls,
          []
        )
      })
    })

    await t.test('images, by bytes and by address', async (t) => {
      const content = [
        { type: 'file', mediaType: 'image/png', data: png },
        { type: 'file', mediaType: 'image/png', data: new URL('https://example.com/cat.png') },
        { type: 'text', text: 'What is this?' }
      ] as const
      // This provider trusts no vendor with an address: it sends the bytes, unless told otherwise.
      const model = provider === compatible
        ? createOpenAICompatible({ name: 'gateway', supportedUrls: () => ({ 'image/*': [/^https:/] }),
          ...settings({}) })('m1')
        : once.model
      t.match((await generateText({ ...once, model, messages: [{ role: 'user', content: [...content] }] })).text,
        /I see 2 images/)
      t.match((lastBody()['messages'] as { content: unknown[] }[])[0]!.content, [
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png.toString('base64') } },
        { type: 'image', source: { type: 'url', url: 'https://example.com/cat.png' } },
        { type: 'text', text: 'What is this?' }
      ])
      const large = Buffer.alloc(90_000, 7)
      t.match(
        (await generateText({ ...once,
          messages: [{ role: 'user', content: [{ type: 'file', mediaType: 'image/png', data: large }] }] })).text,
        /I see 1 image/
      )
      t.match((lastBody()['messages'] as { content: unknown[] }[])[0]!.content, [{
        source: { data: large.toString('base64') }
      }])
    })

    await t.test('structured output, of a model that has it and of one that has not', async (t) => {
      for (const id of ['m1', 'plain']) {
        const asking = { ...once, model: provider.model(id), prompt: 'Where? I am in Rome' }
        t.strictSame((await generateText({ ...asking, output: Output.object({ schema: place }) })).output, {
          city: 'Rome'
        })
        t.strictSame((await generateObject({ ...asking, schema: place })).object, { city: 'Rome' })
        const stream = streamText({ ...asking, output: Output.object({ schema: place }) })
        t.strictSame(await stream.output, { city: 'Rome' })
        t.equal(await stream.finishReason, 'stop')
      }
      // Where a tool gives the answer, the simulator would call the other one for ever.
      if (provider === messages) return
      const seen: string[] = []
      const both = await generateText({ ...once, tools: toolsOf(seen), stopWhen: isStepCount(3),
        output: Output.object({ schema: place }), prompt: 'What is the weather in Oslo?' })
      t.type(both.output.city, 'string')
      t.strictSame(seen, ['Oslo'], 'and tools before it')
    })

    await t.test('errors', async (t) => {
      const isCallError = (t: Test, error: unknown, status: number, code: string, isRetryable: boolean): void => {
        if (!APICallError.isInstance(error)) { t.fail(`not an APICallError: ${String(error)}`); return }
        t.equal(error.statusCode, status)
        t.equal(error.isRetryable, isRetryable)
        const id = error.responseHeaders!['x-request-id']!
        t.match(id, /^req_/)
        t.equal(provider.codeOf(JSON.parse(error.responseBody!)), code)
        t.ok(error.message.endsWith(`Request ID: ${id}`), error.message)
      }
      const as = (apiKey: string): typeof once.model => provider.model('m1', { apiKey })
      const cases: readonly [status: number, code: string, isRetryable: boolean,
        more: { readonly model?: typeof once.model, readonly prompt: string }][] = [
          [400, 'model_not_found', false, { model: provider.model('nope'), prompt: 'Hello' }],
          [400, 'context_length_exceeded', false, { prompt: sim('context') }],
          [401, 'authentication_error', false, { model: as(keys.wrong), prompt: 'Hello' }],
          [402, 'insufficient_quota', false, { model: as(keys.poor), prompt: 'Hello' }],
          [402, 'account_frozen', false, { model: as(keys.suspended), prompt: 'Hello' }],
          [403, 'model_not_in_channel', false, { model: as(keys.cheap), prompt: 'Hello' }],
          [413, 'request_too_large', false, { prompt: 'x'.repeat(2_000_000) }],
          [429, 'rate_limited', true, { model: as(keys.slow), prompt: 'Hello' }],
          [500, 'server_error', true, { model: as(keys.unlucky), prompt: 'Hello' }],
          [502, 'server_error', true, { prompt: sim('html=500') }],
          [502, 'empty_response', true, { prompt: sim('empty_body') }],
          [503, 'model_overloaded', true, { prompt: sim('status=429 retry_after=3') }]
        ]
      for (const [status, code, isRetryable, more] of cases) {
        await t.test(`${status} ${code}`, async (t) => {
          isCallError(t, await thrown(generateText({ ...once, ...more })), status, code, isRetryable)
          const seen: unknown[] = []
          const stream = streamText({ ...once, ...more, onError: ({ error }) => {
            seen.push(error)
          } })
          t.match(await thrown(stream.text), { name: 'AI_NoOutputGeneratedError' },
            'what was wrong, only onError is told')
          isCallError(t, seen[0], status, code, isRetryable)
        })
      }

      await t.test('429 is asked again when Retry-After says so, and then succeeds', async (t) => {
        const { fetch, statuses } = await limited.useUp()
        t.equal(
          (await generateText({ model: provider.model('m1', { apiKey: keys.slow, url: limited.url, fetch }),
            maxOutputTokens: 300, prompt: 'Hello' })).text,
          'Hello again'
        )
        t.strictSame(statuses, [429, 200])
      })
      await t.test('an overloaded model is asked as often as was wanted, what a retry can\'t help once', async (t) => {
        const { url, up: { requests } } = busy
        const before = requests.length
        const asking = { model: provider.model('m1', { url }), prompt: 'Hello' }
        isCallError(t, await thrown(generateText({ ...asking, maxOutputTokens: 100, maxRetries: 2 })), 400,
          'invalid_request', false)
        t.equal(requests.length, before + 1)
        const error = await thrown(generateText({ ...asking, maxOutputTokens: 200, maxRetries: 1 }))
        t.ok(RetryError.isInstance(error))
        isCallError(t, (error as RetryError).lastError, 503, 'model_overloaded', true)
        t.equal(requests.length, before + 3)
      })
      await t.test('an answer that breaks off is an error part behind what came', async (t) => {
        for (const [directive, code] of [['cut_after=8', 'upstream_stream_interrupted'], ['end_after=8',
          'stream_incomplete']] as const) {
          const stream = streamText({ ...once, prompt: sim(directive), onError: () => {} })
          let text = ''
          const errors: unknown[] = []
          for await (const part of stream.stream) {
            if (part.type === 'text-delta') text += part.text
            if (part.type === 'error') errors.push(part.error)
          }
          t.ok(text.length > 0)
          t.equal(errors.length, 1)
          t.match(errors[0], { name: 'AI_StreamProviderError', message: /Request ID: req_/,
            type: provider.isResponses === true ? 'response.failed' : 'api_error', isRetryable: provider.canRetryStream })
          t.equal(await stream.finishReason, 'error')
          t.match(gw.logged.findLast(({ msg }) => msg === 'request'), { outcome: 'interrupted', code })
        }
      })
    })

    await t.test('an abort ends the call upstream', async (t) => {
      let count = simulator.requests.length
      const controller = new AbortController()
      const stream = streamText({ ...once, prompt: sim('stall_after=8'), abortSignal: controller.signal })
      const types = new Set<string>()
      for await (const part of stream.stream) {
        types.add(part.type)
        if (part.type === 'text-delta') controller.abort()
      }
      t.ok(types.has('abort'))
      await isLeft(count + 1)

      count = simulator.requests.length
      const second = new AbortController()
      const waiting = thrown(generateText({ ...once, prompt: sim('stall'), abortSignal: second.signal }))
      await simulator.until(() => simulator.requests.length > count)
      second.abort()
      t.match(await waiting, { name: 'AbortError' })
      await isLeft(count + 1)
      while (gw.server.inFlight > 0) await setImmediate()
      t.equal(await gw.services.store.openHolds(), 0)
    })
  })
}

const once = { model: anthropic('m1'), maxRetries: 0, maxOutputTokens: 300 } as const

t.test('@ai-sdk/anthropic: the key as a bearer token', async (t) => {
  const bearer = createAnthropic({ baseURL: gw.url + '/v1', authToken: KEY })
  t.equal((await generateText({ ...once, model: bearer('m1'), prompt: 'Hello' })).finishReason, 'stop')
})

t.test('@ai-sdk/anthropic: reasoning is shown, and goes back signed (rule signatures)', async (t) => {
  const prompt: ModelMessage[] = [{ role: 'user', content: 'Hello' }]
  const asking = { ...once, maxOutputTokens: 3000,
    providerOptions: { anthropic: { thinking: { type: 'enabled', budgetTokens: 1024 } } } } as const
  const whole = await generateText({ ...asking, messages: prompt })
  t.match(whole.reasoningText, /The user says/)
  const stream = streamText({ ...asking, messages: prompt })
  const parts: string[] = []
  for await (const part of stream.stream) if (part.type === 'reasoning-delta') parts.push(part.text)
  t.equal(parts.join(''), whole.reasoningText)
  for (const before of [whole.responseMessages, await stream.responseMessages]) {
    const next = await generateText({ ...asking,
      messages: [...prompt, ...before, { role: 'user', content: 'And now?' }] })
    t.match(next.text, /And now\?/)
    t.match((lastBody()['messages'] as unknown[])[1], { role: 'assistant',
      content: [{ type: 'thinking', thinking: whole.reasoningText, signature: /.{20}/ }, { type: 'text' }] })
  }
})

t.test('chat completions: reasoning is charged and counted, and who reads reasoning_content shows it', async (t) => {
  for (const provider of [openai, compatible]) {
    await t.test(provider.name, async (t) => {
      const asking = { ...once, model: provider.model('m1'), maxOutputTokens: 3000, reasoning: 'high' } as const
      const thought = provider === compatible ? /^The user says “Hello”.*sentence or two\.$/ : undefined
      const whole = await generateText({ ...asking, prompt: 'Hello' })
      t.match(whole.reasoningText, thought)
      t.strictSame(lastBody()['thinking'], { type: 'enabled', budget_tokens: 2400 })
      t.ok(whole.usage.outputTokenDetails.reasoningTokens! > 5)
      const stream = streamText({ ...asking, prompt: 'Hello' })
      t.equal(await stream.reasoningText, whole.reasoningText)
      t.equal(await stream.text, whole.text)
      t.equal((await stream.usage).outputTokenDetails.reasoningTokens, whole.usage.outputTokenDetails.reasoningTokens)
      const next = await generateText({ ...asking,
        messages: [{ role: 'user', content: 'Hello' }, ...whole.responseMessages, { role: 'user',
          content: 'And now?' }] })
      t.match(next.text, /And now\?/)
      t.strictSame((lastBody()['messages'] as unknown[])[1], { role: 'assistant', content: whole.text },
        'unsigned thoughts are not sent on (rule signatures)')
      const seen: string[] = []
      const steps = await generateText({ ...asking, tools: toolsOf(seen), stopWhen: isStepCount(3),
        prompt: 'What is the weather in Oslo?' })
      t.match(steps.text, /The tool answered: “snow in Oslo”/)
      if (provider === compatible) t.match(steps.steps[0]!.reasoningText, /weather in Oslo/)
    })
  }
})

t.test('@ai-sdk/anthropic: both ways of structured output that the provider has', async (t) => {
  for (const structuredOutputMode of ['jsonTool', 'outputFormat'] as const) {
    const asking = { ...once, providerOptions: { anthropic: { structuredOutputMode } },
      output: Output.object({ schema: place }), prompt: 'Where? I am in Rome' }
    t.strictSame((await generateText(asking)).output, { city: 'Rome' })
    t.strictSame(await streamText(asking).output, { city: 'Rome' })
    if (structuredOutputMode === 'outputFormat') {
      t.match(lastBody()['output_config'], { format: { type: 'json_schema' } })
    } else { t.match(lastBody()['tools'], [{ name: 'json' }]) }
  }
})

t.test('@ai-sdk/anthropic: its own default for the output, which is more than the model gives', async (t) => {
  const asking = { model: anthropic(TALKATIVE), maxRetries: 0, prompt: 'Hello' } as const
  let asked: unknown
  const spy: typeof fetch = async (input, init) => {
    asked = (JSON.parse(init!.body as string) as { max_tokens: number }).max_tokens
    return await fetch(input, init)
  }
  const whole = await generateText({ ...asking, model: messages.model(TALKATIVE, { fetch: spy }) })
  t.equal(asked, 128_000)
  t.match(whole.text, /Hello/)
  t.match(lastBody(), { model: 'vendor-talkative', max_tokens: 64_000 })
  t.equal(whole.response.headers!['x-gateway-max-tokens'], '64000')
  t.match(await streamText(asking).text, /Hello/)
  t.equal(lastBody()['max_tokens'], 64_000)
})

t.test('@ai-sdk/anthropic: a cached prompt', async (t) => {
  const asking = { ...once,
    messages: [{ role: 'user', content: 'A long text. '.repeat(100),
      providerOptions: { anthropic: { cacheControl: { type: 'ephemeral' } } } }] } satisfies Parameters<
      typeof generateText
    >[0]
  const first = await generateText(asking)
  const second = await generateText(asking)
  t.ok(first.usage.inputTokenDetails.cacheWriteTokens! > 100)
  t.equal(second.usage.inputTokenDetails.cacheReadTokens, first.usage.inputTokenDetails.cacheWriteTokens)
})
