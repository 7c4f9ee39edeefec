// The official OpenAI SDKs, unmodified, as clients of /v1/chat/completions: today's major and the one before it. Their
// requests pass the whole pipeline to the simulator, which refuses what the vendor of the messages style refuses.
import { Buffer } from 'node:buffer'
import { setImmediate } from 'node:timers/promises'
import * as newest from 'openai'
import OpenAI from 'openai'
import { standardFunction, standardResponseFormat } from 'openai/helpers/standard-schema'
import * as last6 from 'openai-6'
import * as last6Schemas from 'openai-6/helpers/standard-schema'
import t, { type Test } from 'tap'
import { gateway, KEY, yaml } from '../support/gateway.ts'
import { chargeOf, freeing, keys, late, overloaded, simulated, thrown as caught } from '../support/sdk.ts'
import { blockDelta, blockStart, blockStop, messageEnd, messageStart, upstream } from '../support/upstream.ts'

type Sdk = typeof OpenAI
type ApiError = InstanceType<Sdk['APIError']>
type Body = Omit<OpenAI.ChatCompletionCreateParamsNonStreaming, 'stream'>
type Chunk = OpenAI.ChatCompletionChunk
type Said = OpenAI.ChatCompletionMessageParam
type Message = OpenAI.ChatCompletionMessage & { readonly reasoning_content?: string }
type Json = Readonly<Record<string, unknown>>

const turn = (content: string | OpenAI.ChatCompletionContentPart[]): Said[] => [{ role: 'user', content }]
const hello: Body = { model: 'm1', messages: turn('Hello there') }
const sim = (directive: string): Body => ({ ...hello, messages: turn(`Hello [[sim: ${directive}]]`) })

const place = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'],
  additionalProperties: false }
const weather = { type: 'function',
  function: { name: 'weather', description: 'The weather', parameters: place } } as const
const clock = { type: 'function',
  function: { name: 'clock', parameters: { type: 'object', properties: { zone: { type: 'string' } } } } } as const

/** As a library of schemas would write it: what people give to `parse`. */
const City = {
  '~standard': {
    version: 1,
    vendor: 'test',
    types: undefined as unknown as { readonly input: { city: string }, readonly output: { city: string } },
    validate: (value: unknown) =>
      typeof (value as { city?: unknown }).city === 'string'
        ? { value: value as { city: string } }
        : { issues: [{ message: 'no city' }] },
    jsonSchema: { input: () => place }
  }
} as const

const sdks: readonly { readonly name: string, readonly SDK: Sdk, readonly exported: Readonly<Record<string, unknown>>,
  readonly format: typeof standardResponseFormat, readonly func: typeof standardFunction }[] = [
    { name: 'openai 7.55', SDK: OpenAI, exported: newest, format: standardResponseFormat, func: standardFunction },
    // The same calls; what its types lack or have more is not used here.
    { name: 'openai 6.49', SDK: last6.default as unknown as Sdk, exported: last6,
      format: last6Schemas.standardResponseFormat as unknown as typeof standardResponseFormat,
      func: last6Schemas.standardFunction as unknown as typeof standardFunction }
  ]

/** What the SDK throws. */
const thrown = async (work: PromiseLike<unknown>): Promise<ApiError> => await caught(work) as ApiError

/** What each of its errors must say. */
function isShaped (t: Test, error: ApiError, type: string, code: string, param: string | null = null): void {
  const body = error.error as { message: string, request_id: string, charged_usd: string }
  t.match(error, { type, code, param })
  t.match(error.requestID, /^req_[0-9A-Za-z]{24}$/)
  t.equal(body.request_id, error.requestID)
  t.ok(body.message.endsWith(` Request ID: ${error.requestID}`), body.message)
  t.match(error.message, body.message)
}

const said = ({ choices }: OpenAI.ChatCompletion): string => choices[0]!.message.content ?? ''
const deltaOf = (
  { choices }: Chunk
): OpenAI.ChatCompletionChunk.Choice.Delta & { readonly reasoning_content?: string } => choices[0]?.delta ?? {}

async function collect<T> (stream: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const one of stream) all.push(one)
  return all
}

const limited = await freeing(t)
const busy = await overloaded(t)
const silent = await late(t)

for (const { name, SDK, exported, format, func } of sdks) {
  t.test(name, async (t) => {
    const { gw, simulator, lastBody, isLeft } = await simulated(t)
    const clientOf = (apiKey: string): OpenAI =>
      new SDK({ apiKey, baseURL: `${gw.url}/v1`, maxRetries: 0, organization: 'org-client', project: 'proj-client' })
    const client = clientOf(KEY)
    const { completions } = client.chat

    await t.test('sends its own head, and none of it goes on', async (t) => {
      await completions.create(hello)
      const { headers, path } = simulator.requests.at(-1)!
      t.equal(path, '/v1/messages')
      t.equal(headers['x-api-key'], 'upstream-secret-0')
      t.equal(headers['anthropic-version'], '2023-06-01')
      t.equal(headers.authorization, undefined)
      t.notMatch(JSON.stringify(headers), /stainless|OpenAI\/JS|sk-gw|org-client|proj-client/)
    })

    await t.test('create', async (t) => {
      const { data, response, request_id: id } = await completions.create(hello).withResponse()
      t.match(data, { object: 'chat.completion', model: 'm1',
        choices: [{ index: 0, finish_reason: 'stop', logprobs: null,
          message: { role: 'assistant', refusal: null, content: /^You said: “Hello there”/ } }] })
      t.equal(data.choices.length, 1)
      t.equal(data.id, `chatcmpl-${id!.slice('req_'.length)}`)
      t.ok(Math.abs(data.created - Date.now() / 1000) < 60)
      t.equal((data as { _request_id?: string | null })._request_id, id)
      const { prompt_tokens: input, completion_tokens: output, total_tokens: total } = data.usage!
      t.ok(input > 0 && output > 10)
      t.equal(total, input + output)
      const { nanos } = await chargeOf(gw, id)
      t.equal(-nanos, BigInt(input) * 3000n + BigInt(output) * 15_000n)
      t.equal(response.headers.get('x-gateway-cost-usd'), `0.${String(-nanos).padStart(9, '0')}`.replace(/0+$/, ''))
      t.equal(response.headers.get('x-ratelimit-limit-requests'), '100000')
      t.strictSame(lastBody(), { model: 'vendor-m1', max_tokens: 8192,
        messages: [{ role: 'user', content: 'Hello there' }] })
    })

    await t.test('create({ stream: true }) gives chunks, and costs the same', async (t) => {
      const whole = await completions.create(hello)
      const { data: stream, request_id: id } = await completions.create({ ...hello, stream: true }).withResponse()
      const chunks = await collect(stream)
      t.strictSame(deltaOf(chunks[0]!), { role: 'assistant', content: '' })
      t.equal(chunks.map((chunk) => deltaOf(chunk).content ?? '').join(''), said(whole))
      t.ok(chunks.length > 20, 'it came in pieces')
      t.strictSame(chunks.map(({ choices }) => choices[0]!.finish_reason), chunks.map((_, i) =>
        i === chunks.length - 1 ? 'stop' : null
      ))
      t.strictSame(deltaOf(chunks.at(-1)!), {})
      for (const { id: itsId, object, model, created, usage } of chunks) {
        t.strictSame(
          [itsId, object, model, created, usage],
          [`chatcmpl-${id!.slice(4)}`, 'chat.completion.chunk', 'm1', chunks[0]!.created, undefined]
        )
      }
      t.equal((await chargeOf(gw, id)).nanos, (await chargeOf(gw, whole._request_id)).nanos)
    })

    await t.test('include_usage adds a chunk with the usage', async (t) => {
      const { data: { usage }, response } = await completions.create(hello).withResponse()
      const chunks = await collect(
        await completions.create({ ...hello, stream: true, stream_options: { include_usage: true } })
      )
      t.strictSame(chunks.at(-1)!.choices, [])
      t.strictSame(chunks.at(-1)!.usage as object, { ...usage,
        charged_usd: response.headers.get('x-gateway-cost-usd') }, 'and what it cost')
      t.equal(chunks.at(-2)!.choices[0]!.finish_reason, 'stop')
      t.equal(chunks.filter((chunk) => chunk.usage !== undefined).length, 1)
    })

    await t.test('stream() and its helpers', async (t) => {
      const whole = await completions.create(hello)
      const stream = completions.stream({ ...hello, stream_options: { include_usage: true } })
      const pieces: string[] = []
      const events: string[] = []
      stream.on('content', (delta) => { pieces.push(delta) })
      stream.on('content.done', ({ content }) => { events.push(content) })
      const final = await stream.finalChatCompletion()
      t.equal(pieces.join(''), said(whole))
      t.strictSame(events, [said(whole)])
      t.match(final, { object: 'chat.completion', model: 'm1', usage: whole.usage!,
        choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: said(whole) } }] })
      t.equal(await stream.finalContent(), said(whole))
      t.equal((await stream.finalMessage()).role, 'assistant')
      t.match(await stream.totalUsage(), { total_tokens: whole.usage!.total_tokens })
      const chunks = await collect(completions.stream(hello))
      t.equal(chunks.map((chunk) => deltaOf(chunk).content ?? '').join(''), said(whole), 'and as an iterator')
    })

    await t.test('one tool, there and back', async (t) => {
      const asking = { ...hello, messages: turn('What is the weather in Oslo?'), tools: [weather] }
      const first = await completions.create(asking)
      const { finish_reason: reason, message } = first.choices[0]!
      t.equal(reason, 'tool_calls')
      const [call] = message.tool_calls!
      t.match(call, { type: 'function', function: { name: 'weather', arguments: '{"city":"Oslo"}' } })
      const second = await completions.create({ ...asking,
        messages: [...asking.messages, message, { role: 'tool', tool_call_id: call!.id, content: 'snow' }] })
      t.equal(second.choices[0]!.finish_reason, 'stop')
      t.match(said(second), /The tool answered: “snow”/)
      t.match(lastBody()['messages'], [{}, { role: 'assistant',
        content: [{ type: 'text' }, { type: 'tool_use', id: call!.id, name: 'weather', input: { city: 'Oslo' } }] }, {
        role: 'user',
        content: [{ type: 'tool_result', tool_use_id: call!.id, content: 'snow' }]
      }])
    })

    await t.test('parallel tools in a stream, there and back (rule tool-input)', async (t) => {
      const asking = { ...hello, messages: turn('Look [[sim: tool_calls=2]]'), tools: [weather, clock] }
      const stream = completions.stream(asking)
      const done: { name: string, index: number, arguments: string }[] = []
      stream.on('tool_calls.function.arguments.done', (event) => { done.push(event) })
      const { message, finish_reason: reason } = (await stream.finalChatCompletion()).choices[0]!
      t.equal(reason, 'tool_calls')
      t.match(message.tool_calls, [{ type: 'function', function: { name: 'weather', arguments: '{"city":"Oslo"}' } }, {
        type: 'function',
        function: { name: 'clock', arguments: '{"zone":"Look"}' }
      }])
      t.match(done, [{ name: 'weather', index: 0, arguments: '{"city":"Oslo"}' }, { name: 'clock', index: 1 }])
      const [one, other] = message.tool_calls!
      t.not(one!.id, other!.id)

      const deltas = (await collect(await completions.create({ ...asking, stream: true }))).flatMap((chunk) =>
        deltaOf(chunk).tool_calls ?? []
      )
      for (const index of [0, 1]) {
        const own = deltas.filter((delta) => delta.index === index)
        t.match(own[0], { id: /^toolu_/, type: 'function',
          function: { name: index === 0 ? 'weather' : 'clock', arguments: '' } })
        t.ok(own.slice(1).every(({ id, type, function: fn }) =>
          id === undefined && type === undefined && fn!.name === undefined
        ))
        t.type(JSON.parse(own.map((delta) =>
          delta.function!.arguments
        ).join('')), 'object')
      }

      const results: Said[] = message.tool_calls!.map(({ id }, i) => ({
        role: 'tool',
        tool_call_id: id,
        content: [{ type: 'text', text: `result ${i}` }]
      }))
      t.match(
        said(
          await completions.stream({ ...asking, messages: [...turn('Look'), message, ...results] })
            .finalChatCompletion()
        ),
        /The tool answered: “result 0”\. The tool answered: “result 1”/
      )
    })

    await t.test('runTools calls functions until there is an answer', async (t) => {
      for (const stream of [false, true] as const) {
        const seen: string[] = []
        const tools = [{
          type: 'function' as const,
          function: { name: 'weather', description: 'The weather', parameters: place,
            parse: JSON.parse as (text: string) => { city: string }, function: ({ city }: { city: string }) => {
              seen.push(city)
              return `snow in ${city}`
            } }
        }]
        const asking = { ...hello, messages: turn('What is the weather in Oslo?'), tools }
        const runner = stream ? completions.runTools({ ...asking, stream }) : completions.runTools(asking)
        t.match(await runner.finalContent(), /The tool answered: “snow in Oslo”/)
        t.strictSame(seen, ['Oslo'])
        t.equal(runner.allChatCompletions().length, 2)
        t.equal(await runner.finalFunctionToolCallResult(), 'snow in Oslo')
      }
    })

    await t.test('tool_choice and parallel_tool_calls', async (t) => {
      const tools = [weather, clock]
      const named = await completions.create({ ...hello, tools,
        tool_choice: { type: 'function', function: { name: 'clock' } } })
      t.match(named.choices[0], { message: { content: null, tool_calls: [{ function: { name: 'clock' } }] } })
      t.match(
        (await completions.create({ ...hello, tools, tool_choice: 'required', parallel_tool_calls: false })).choices[0]!
          .message.tool_calls,
        [{ function: { name: 'weather' } }]
      )
      t.strictSame(lastBody()['tool_choice'], { type: 'any', disable_parallel_tool_use: true })
      const none = await completions.create({ ...hello, messages: turn('The weather?'), tools, tool_choice: 'none' })
      t.equal(none.choices[0]!.message.tool_calls, undefined)
      const allowed: OpenAI.ChatCompletionAllowedToolChoice = { type: 'allowed_tools',
        allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'clock' } }] } }
      t.match((await completions.create({ ...hello, tools, tool_choice: allowed })).choices[0]!.message.tool_calls, [{
        function: { name: 'clock' }
      }])
    })

    await t.test('functions, the deprecated way: the answer calls them as tools', async (t) => {
      const asking: Body = { ...hello, messages: turn('What is the weather in Oslo?'), functions: [weather.function],
        function_call: 'auto' }
      const first = await completions.create(asking)
      t.match(first.choices[0], { finish_reason: 'tool_calls',
        message: { tool_calls: [{ function: { name: 'weather', arguments: '{"city":"Oslo"}' } }] } })
      t.match(
        (await completions.stream({ ...asking, function_call: { name: 'weather' } }).finalChatCompletion()).choices[0],
        { finish_reason: 'tool_calls', message: { tool_calls: [{ function: { name: 'weather' } }] } }
      )
      const second = await completions.create({ ...asking,
        messages: [...asking.messages, { role: 'assistant', content: null,
          function_call: { name: 'weather', arguments: '{"city":"Oslo"}' } }, { role: 'function', name: 'weather',
          content: 'snow' }] })
      t.match(said(second), /The tool answered: “snow”/)
    })

    await t.test('images, by address, by bytes, and by so many bytes that nobody parses them', async (t) => {
      const small = Buffer.from('not really a picture').toString('base64')
      const large = Buffer.alloc(90_000, 'neither is this').toString('base64')
      const image = (url: string): OpenAI.ChatCompletionContentPart => ({
        type: 'image_url',
        image_url: { url, detail: 'high' }
      })
      const parts = [image('https://example.com/cat.png'), image(`data:image/png;base64,${small}`),
        image(`data:image/jpeg;base64,${large}`), { type: 'text', text: 'What is this?' } as const]
      t.match(said(await completions.create({ ...hello, messages: turn(parts) })), /I see 3 images/)
      t.strictSame(lastBody()['messages'], [{
        role: 'user',
        content: [
          { type: 'image', source: { type: 'url', url: 'https://example.com/cat.png' } },
          { type: 'image', source: { type: 'base64', media_type: 'image/png', data: small } },
          { type: 'image', source: { type: 'base64', media_type: 'image/jpeg', data: large } },
          { type: 'text', text: 'What is this?' }
        ]
      }])
      const { choices: [choice] } = await completions.stream({ ...hello, messages: turn(parts.slice(2)) })
        .finalChatCompletion()
      t.match(choice!.message.content, /I see 1 image\./)
    })

    await t.test('a file', async (t) => {
      const pdf = Buffer.from('%PDF-1.7').toString('base64')
      await completions.create({ ...hello,
        messages: turn([{ type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${pdf}` } },
          { type: 'text', text: 'Read this' }]) })
      t.match(lastBody()['messages'], [{
        content: [{ type: 'document', title: 'a.pdf',
          source: { type: 'base64', media_type: 'application/pdf', data: pdf } }, { type: 'text' }]
      }])
    })

    await t.test('reasoning_effort makes it think, and the thoughts are reasoning_content', async (t) => {
      const asking = { ...hello, reasoning_effort: 'high', max_completion_tokens: 4000 } as const
      const whole = await completions.create(asking)
      const { reasoning_content: thoughts, content } = whole.choices[0]!.message as Message
      t.match(thoughts, /^The user says/)
      t.match(content, /^You said/)
      t.strictSame(lastBody()['thinking'], { type: 'enabled', budget_tokens: 3200 })
      t.ok(whole.usage!.completion_tokens_details!.reasoning_tokens! > 5)

      const chunks = await collect(
        await completions.create({ ...asking, stream: true, stream_options: { include_usage: true } })
      )
      t.equal(chunks.map((chunk) => deltaOf(chunk).reasoning_content ?? '').join(''), thoughts)
      t.equal(chunks.map((chunk) => deltaOf(chunk).content ?? '').join(''), content)
      t.match(chunks.at(-1)!.usage, whole.usage!)
      const { message } = (await completions.stream(asking).finalChatCompletion()).choices[0]!
      t.equal(message.content, content)
      t.match(thoughts!.slice(0, -1), (message as Message).reasoning_content!.slice(0, -1),
        'the helper keeps the last piece only of what it does not know')

      const next = await completions.create({ ...asking,
        messages: [...asking.messages, whole.choices[0]!.message, { role: 'user', content: 'And now?' }] })
      t.match(said(next), /And now\?/)
      t.strictSame((lastBody()['messages'] as Json[])[1], { role: 'assistant', content },
        'unsigned thoughts are not sent on (rule signatures)')

      for (const [effort, model] of [['none', 'm1'], ['high', 'plain']] as const) {
        const without = await completions.create({ ...asking, model, reasoning_effort: effort })
        t.notOk('reasoning_content' in without.choices[0]!.message)
      }
      const both = await completions.create({ ...asking, messages: turn('What is the weather in Oslo?'),
        tools: [weather] })
      const answered = await completions.create({ ...asking,
        messages: [...turn('What is the weather in Oslo?'), both.choices[0]!.message, { role: 'tool',
          tool_call_id: both.choices[0]!.message.tool_calls![0]!.id, content: 'snow' }], tools: [weather] })
      t.match(said(answered), /The tool answered: “snow”/, 'also behind a call that was thought about')
    })

    await t.test('structured output, of a model that has it and of one that has not', async (t) => {
      for (const model of ['m1', 'plain']) {
        await t.test(model, async (t) => {
          const asking = { ...hello, model, messages: turn('Where? I am in Rome'),
            response_format: format(City, 'place') }
          const parsed = (await completions.parse(asking)).choices[0]!
          t.match(parsed, { finish_reason: 'stop', message: { content: '{"city":"Rome"}' } })
          t.strictSame(parsed.message.parsed, { city: 'Rome' })
          t.notOk(parsed.message.tool_calls?.length)
          if (model === 'm1') {
            t.match(lastBody()['output_config'], {
              format: { type: 'json_schema', schema: place }
            })
          } else {
            t.match(lastBody(), {
              tools: [{ name: 'json_answer', input_schema: place }],
              tool_choice: { type: 'tool', name: 'json_answer' }
            })
          }

          const stream = completions.stream(asking)
          const done: unknown[] = []
          const contents: string[] = []
          stream.on('content.delta', ({ snapshot }) => { contents.push(snapshot) })
          stream.on('content.done', ({ parsed }) => { done.push(parsed) })
          const final = (await stream.finalChatCompletion()).choices[0]!
          t.strictSame(final.message.parsed, { city: 'Rome' })
          t.equal(final.finish_reason, 'stop')
          t.strictSame(done, [{ city: 'Rome' }])
          t.equal(contents.at(-1), '{"city":"Rome"}')

          const raw = { type: 'json_schema', json_schema: { name: 'place', strict: true, schema: place } } as const
          t.strictSame((await completions.parse({ ...asking, response_format: raw })).choices[0]!.message.parsed, {
            city: 'Rome'
          })
          const short = await caught(completions.parse({ ...asking, max_tokens: 1 }))
          t.match(short, { message: /length limit was reached/ })
          const refused = await caught(completions.parse({ ...asking, messages: sim('refuse').messages }))
          t.match(refused, { message: /rejected by the content filter/ })
          t.match(await completions.create({ ...sim('refuse'), model }), {
            choices: [{ finish_reason: 'content_filter',
              message: { content: 'I can not help with that.', refusal: null } }]
          })

          const both = await completions.parse({ ...asking, messages: turn('What is the weather in Oslo?'),
            tools: [func({ name: 'weather', parameters: City })], tool_choice: 'required' })
          t.match(both.choices[0], { finish_reason: 'tool_calls',
            message: { parsed: null,
              tool_calls: [{ function: { name: 'weather', parsed_arguments: { city: 'Oslo' } } }] } })
        })
      }
      await completions.create({ ...hello, messages: [{ role: 'system', content: 'Be brief.' }, ...hello.messages],
        response_format: { type: 'json_object' } })
      t.match(lastBody()['system'], [{ text: 'Be brief.' }, { text: /one JSON object/ }])
    })

    await t.test('stop, max_tokens and its newer name', async (t) => {
      for (const stop of ['there', ['never', 'there']]) {
        t.match((await completions.create({ ...hello, stop })).choices[0], { finish_reason: 'stop',
          message: { content: 'You said: “Hello ' } })
      }
      for (const limit of [{ max_tokens: 3 }, { max_completion_tokens: 3 }, { max_completion_tokens: 3,
        max_tokens: 300 }]) {
        const whole = await completions.create({ ...hello, ...limit })
        t.equal(whole.choices[0]!.finish_reason, 'length')
        t.equal(whole.usage!.completion_tokens, 3)
        const streamed = await completions.stream({ ...hello, ...limit }).finalChatCompletion()
        t.match(streamed.choices[0], { finish_reason: 'length', message: { content: said(whole) } })
      }
    })

    await t.test('system and developer messages, wherever they stand', async (t) => {
      const messages: Said[] = [{ role: 'system', content: 'One.' }, ...hello.messages, { role: 'assistant',
        content: 'Hi.' }, { role: 'developer',
        content: [{ type: 'text', text: 'Two.' }, { type: 'text', text: 'Three.' }] }, { role: 'user',
        content: 'Go on' }]
      t.match(said(await completions.create({ ...hello, messages })), /^You said: “Go on”/)
      t.strictSame(lastBody()['system'], ['One.', 'Two.', 'Three.'].map((text) => ({ type: 'text', text })))
      t.strictSame(lastBody()['messages'], [{ role: 'user', content: 'Hello there' }, { role: 'assistant',
        content: 'Hi.' }, { role: 'user', content: 'Go on' }])
    })

    await t.test('what has no meaning here is taken and left out', async (t) => {
      await completions.create({
        ...hello,
        temperature: 0.5,
        top_p: 0.9,
        user: 'u-1',
        seed: 7,
        n: 1,
        logprobs: true,
        top_logprobs: 2,
        presence_penalty: 1,
        frequency_penalty: 1,
        logit_bias: { 50256: -100 },
        store: true,
        metadata: { a: 'b' },
        service_tier: 'priority',
        verbosity: 'low',
        modalities: ['text'],
        prompt_cache_key: 'k',
        prediction: { type: 'content', content: 'x' }
      })
      t.strictSame(lastBody(), { model: 'vendor-m1', max_tokens: 8192,
        messages: [{ role: 'user', content: 'Hello there' }], temperature: 0.5, top_p: 0.9,
        metadata: { user_id: 'u-1' } })
    })

    await t.test('a cached prompt is counted in the prompt, and charged at its price (rule usage-classes)', async (t) => {
      const text = { type: 'text', text: `A long system prompt of ${name}. `.repeat(50),
        cache_control: { type: 'ephemeral' } } as const
      const asking: Body = { ...hello, messages: [{ role: 'system', content: [text] }, ...hello.messages] }
      const [first, second] = [await completions.create(asking),
        await completions.stream({ ...asking, stream_options: { include_usage: true } }).finalChatCompletion()]
      const written = (first.usage!.prompt_tokens_details as { cache_write_tokens: number }).cache_write_tokens
      t.ok(written > 100)
      t.equal(second.usage!.prompt_tokens_details!.cached_tokens, written)
      t.equal(second.usage!.prompt_tokens, first.usage!.prompt_tokens)
      const { nanos } = await chargeOf(gw, first._request_id)
      t.equal(-nanos, BigInt(first.usage!.prompt_tokens - written) * 3000n + BigInt(written) * 3750n +
        BigInt(first.usage!.completion_tokens) * 15_000n)
    })

    await t.test('models.list and models.retrieve', async (t) => {
      const models = await collect(client.models.list())
      t.match(models, [{ id: 'plain', object: 'model', owned_by: 'acme' }, { id: 'm1', object: 'model',
        created: Date.parse('2025-09-29') / 1000, owned_by: 'acme' }])
      t.equal(models.length, 2)
      t.match(await client.models.retrieve('m1'), { id: 'm1', object: 'model', owned_by: 'acme' })
    })

    await t.test('error classes', async (t) => {
      await clientOf(keys.slow).chat.completions.create(hello)
      const picture = turn([{ type: 'image_url', image_url: { url: 'https://example.com/cat.png' } }])
      type Case = readonly [body: Body, cls: string, status: number, type: string, code: string,
        more?: { readonly key?: string, readonly param?: string, readonly message?: RegExp }]
      const cases: readonly Case[] = [
        [{ ...hello, model: 'nope' }, 'BadRequestError', 400, 'invalid_request_error', 'model_not_found', {
          param: 'model',
          message: /no model .{1,2}nope/
        }],
        [{ ...hello, model: '' }, 'BadRequestError', 400, 'invalid_request_error', 'model_required', {
          param: 'model'
        }],
        [{ ...hello, messages: [] }, 'BadRequestError', 400, 'invalid_request_error', 'invalid_request', {
          param: 'messages'
        }],
        [{ ...hello, temperature: 1.5 }, 'BadRequestError', 400, 'invalid_request_error', 'invalid_request', {
          param: 'temperature',
          message: /temperature must be .*1/
        }],
        [{ ...hello, n: 2 }, 'BadRequestError', 400, 'invalid_request_error', 'invalid_request', { param: 'n' }],
        [{ ...hello, max_tokens: 70_000 }, 'BadRequestError', 400, 'invalid_request_error', 'invalid_request', {
          param: 'max_tokens',
          message: /70000 > 64000/
        }],
        [{ ...hello, messages: [{ role: 'tool', tool_call_id: 'nobody', content: 'x' }] }, 'BadRequestError', 400,
          'invalid_request_error', 'invalid_request', { param: 'messages[0].tool_call_id',
          message: /answers no tool call/ }],
        [{ ...hello, model: 'plain', messages: picture }, 'BadRequestError', 400, 'invalid_request_error',
          'image_input_not_supported', { param: 'messages[0].content[0]' }],
        [sim('context'), 'BadRequestError', 400, 'invalid_request_error', 'context_length_exceeded', {
          message: /exceed context limit: \d+ \+ 8192 > 200000/
        }],
        [sim('content_policy'), 'BadRequestError', 400, 'invalid_request_error', 'content_policy_violation'],
        [hello, 'AuthenticationError', 401, 'authentication_error', 'authentication_error', { key: keys.wrong }],
        [hello, 'APIError', 402, 'billing_error', 'insufficient_quota', { key: keys.poor, message: /\$0\.0001 left/ }],
        [hello, 'APIError', 402, 'billing_error', 'account_frozen', { key: keys.suspended }],
        [hello, 'PermissionDeniedError', 403, 'permission_error', 'model_not_in_channel', { key: keys.cheap }],
        [{ ...hello, messages: turn('x'.repeat(2_000_000)) }, 'APIError', 413, 'request_too_large',
          'request_too_large'],
        [hello, 'RateLimitError', 429, 'rate_limit_error', 'rate_limited', { key: keys.slow,
          message: /limit of 1 request in any 60 seconds/ }],
        [hello, 'InternalServerError', 500, 'api_error', 'server_error', { key: keys.unlucky }],
        [sim('status=401'), 'InternalServerError', 503, 'api_error', 'service_unavailable'],
        [sim('html=502'), 'InternalServerError', 502, 'api_error', 'server_error'],
        [sim('empty_body'), 'InternalServerError', 502, 'api_error', 'empty_response'],
        [sim('malformed'), 'InternalServerError', 502, 'api_error', 'server_error'],
        [sim('status=529 retry_after=9'), 'InternalServerError', 503, 'overloaded_error', 'model_overloaded']
      ]
      for (const [body, cls, status, type, code, { key = KEY, param, message } = {}] of cases) {
        await t.test(`${status} ${code} is ${cls}`, async (t) => {
          for (const stream of [false, true]) {
            const error = await thrown(clientOf(key).chat.completions.create({ ...body, stream }))
            t.equal(error.status, status)
            t.equal(error.constructor, exported[cls])
            isShaped(t, error, type, code, param)
            t.ok(error.message.startsWith(`${status} `))
            t.equal((error.error as { charged_usd: string }).charged_usd, '0')
            if (message !== undefined) t.match(error.message, message)
            t.equal(error.headers!.has('retry-after'), status === 429 || status === 503)
            t.notMatch(error.message + JSON.stringify([...error.headers!]),
              /upstream-secret|sk-ant|5d3c1a9e|cloudflare|vendor-m1/)
          }
        })
      }
      await t.test('404 is NotFoundError', async (t) => {
        for (const work of [() => client.models.retrieve('nope'), () =>
          client.embeddings.create({ model: 'm1', input: 'x' }), () => client.files.list()]) {
          const error = await thrown(work())
          t.equal(error.constructor, exported['NotFoundError'])
          t.equal(error.status, 404)
          isShaped(t, error, 'not_found_error', 'not_found')
        }
      })
    })

    await t.test('an answer that breaks off throws an APIError with the code and the id', async (t) => {
      const endings = [
        ['cut_after=8', 'upstream_stream_interrupted', 'api_error'],
        ['error_event_after=8', 'upstream_stream_interrupted', 'overloaded_error'],
        ['end_after=8', 'stream_incomplete', 'api_error']
      ] as const
      for (const [directive, code, type] of endings) {
        await t.test(directive, async (t) => {
          const { data: stream, request_id: id } = await completions.create({ ...sim(directive), stream: true })
            .withResponse()
          let text = ''
          const error = await thrown((async () => {
            for await (const chunk of stream) { text += deltaOf(chunk).content ?? '' }
          })())
          t.ok(text.length > 0, 'what was produced arrived')
          t.equal(error.constructor, exported['APIError'])
          t.equal(error.status, undefined)
          t.equal(error.requestID, id)
          isShaped(t, error, type, code)
          const { usage, nanos } = await chargeOf(gw, id)
          t.match(usage, { input: 0 }, 'only what was produced is charged')
          t.equal(-nanos, BigInt(usage!.output) * 15_000n)
          t.ok(usage!.output > 0)

          const helper = completions.stream(sim(directive))
          const seen: unknown[] = []
          helper.on('error', (error) => { seen.push(error) })
          const other = await thrown(helper.finalChatCompletion())
          t.equal(other.constructor, exported['APIError'], 'and not: missing finish_reason')
          isShaped(t, other, type, code)
          t.strictSame(seen, [other])
        })
      }
    })

    await t.test('pings go unnoticed, and an error behind them is one in the stream: no status, and no retry', async (t) => {
      const { url, fetch } = silent
      const { chat: { completions } } = new SDK({ apiKey: KEY, baseURL: `${url}/v1`, fetch })
      t.equal(await completions.stream({ ...hello, max_tokens: 200 }).finalContent(), 'At last')
      const error = await thrown(completions.stream(hello).finalContent())
      t.equal(error.constructor, exported['APIError'])
      t.equal(error.status, undefined)
      isShaped(t, error, 'overloaded_error', 'model_overloaded')
      t.equal((error.error as { charged_usd: string }).charged_usd, '0')
    })

    await t.test('a client that aborts ends the call upstream, and pays for what it got', async (t) => {
      const asking = sim('tokens=100 stall_after=8')
      for (const leave of ['break', 'abort'] as const) {
        const count = simulator.requests.length
        const { data: stream, request_id: id } = await completions.create({ ...asking, stream: true }).withResponse()
        let text = ''
        for await (const chunk of stream) {
          text += deltaOf(chunk).content ?? ''
          if (text.length < 10) continue
          if (leave === 'break') break
          stream.controller.abort()
        }
        await isLeft(count + 1)
        const { usage, nanos } = await chargeOf(gw, id)
        t.equal(usage!.input, simulator.requests.at(-1)!.usage!.input_tokens, leave)
        t.ok(usage!.output > 0 && usage!.output < 10, `${usage!.output} tokens of output`)
        t.equal(-nanos, BigInt(usage!.input) * 3000n + BigInt(usage!.output) * 15_000n)
      }

      let count = simulator.requests.length
      const helper = completions.stream(asking)
      helper.once('content', () => { helper.abort() })
      t.equal((await thrown(helper.finalChatCompletion())).constructor, exported['APIUserAbortError'])
      await isLeft(count + 1)

      count = simulator.requests.length
      const controller = new AbortController()
      const waiting = thrown(completions.create(sim('stall'), { signal: controller.signal }))
      await simulator.until(() => simulator.requests.length > count)
      controller.abort()
      t.equal((await waiting).constructor, exported['APIUserAbortError'])
      await isLeft(count + 1)
      while (gw.server.inFlight > 0) await setImmediate()
      t.equal(await gw.services.store.openHolds(), 0)
    })
  })

  t.test(`${name} retries`, async (t) => {
    await t.test('429 after the time that Retry-After says, and then succeeds', async (t) => {
      for (const stream of [false, true]) {
        const { fetch, statuses } = await limited.useUp()
        const { chat: { completions } } = new SDK({ apiKey: keys.slow, baseURL: `${limited.url}/v1`, fetch })
        t.equal(stream ? await completions.stream(hello).finalContent() : said(await completions.create(hello)),
          'Hello again')
        t.strictSame(statuses, [429, 200])
      }
    })
    await t.test('503 of an overloaded model, but nothing that a retry can\'t help', async (t) => {
      const { url, up: { requests } } = busy
      const before = requests.length
      const { chat: { completions } } = new SDK({ apiKey: KEY, baseURL: `${url}/v1`, maxRetries: 1 })
      t.equal((await thrown(completions.create({ ...hello, max_tokens: 100 }))).status, 400)
      t.equal(requests.length, before + 1)
      const error = await thrown(completions.create({ ...hello, stream: true }))
      t.equal(error.status, 503)
      t.equal(error.headers!.get('retry-after'), '1', 'the upstream\'s, passed on')
      t.equal(requests.length, before + 3)
    })
  })
}

t.test('a custom tool, streamed to openai 7 (the helper of 6 knows none)', async (t) => {
  const usage = { input_tokens: 20, output_tokens: 7 }
  const script = [messageStart({ usage }), blockStart(0, { type: 'tool_use', id: 'toolu_1', name: 'shell', input: {} }),
    blockDelta(0, { type: 'input_json_delta', partial_json: '{"input":"ls \\"a' }),
    blockDelta(0, { type: 'input_json_delta', partial_json: '\\""}' }), blockStop(0),
    messageEnd({ usage, stop_reason: 'tool_use' })]
  const { url } = await gateway(t,
    yaml([(await upstream(t, script)).url], '',
      'auth, chat-to-messages, channel-router, billing-meter, error-normalize'))
  const { chat: { completions } } = new OpenAI({ apiKey: KEY, baseURL: `${url}/v1`, maxRetries: 0 })
  const made = await completions.stream({ ...hello, tools: [{ type: 'custom', custom: { name: 'shell' } }] })
    .finalChatCompletion()
  t.match(made.choices[0], { finish_reason: 'tool_calls',
    message: { content: '',
      tool_calls: [{ id: 'toolu_1', type: 'custom', custom: { name: 'shell', input: 'ls "a"' } }] } })
})
