// An upstream of chat style behind unmodified SDKs of all three styles: each habit of its vendors gives each of them a
// valid answer, with the usage that the vendor reported and the charge for it. The simulator's log says what was really
// sent.
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import type Anthropic from '@anthropic-ai/sdk'
import { generateText, isStepCount, jsonSchema, streamText, tool } from 'ai'
import type OpenAI from 'openai'
import t, { type Test } from 'tap'
import type { RequestRecord } from '../../src/simulator/request-log.ts'
import { ask, type ClientEvent } from '../support/billing-client.ts'
import { asSigned, chargeOf, SEALED, simulate, THEIRS, thrown } from '../support/sdk.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { fate } from '../support/client.ts'
import { cut, errorReply, json, message, raw, upstream, wait, type Script } from '../support/upstream.ts'
import { chatBody, clientsOf, messagesBody, place, ways, type Asking, type Got } from './ways.ts'

type Json = Readonly<Record<string, unknown>>

const PIPELINE = 'auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'
const CHAT = 'dialect: chat, chat: { reasoning_field: reasoning_content }'

/** `m1` is sold by the urls in turn; those named in `chats` speak chat. */
function config (urls: readonly string[], chats: readonly number[], more = ''): string {
  let text = yaml(urls, more, PIPELINE).replace('accepts: [text, image]',
    'accepts: [text, image]\n    thinking: adaptive\n    structured_outputs: true')
  for (const i of chats) {
    text = text.replace(`u${i}: { url: "${urls[i]!}", dialect: messages`, `u${i}: { url: "${urls[i]!}", ${CHAT}`)
  }
  return text
}

interface Quirk extends Asking {
  /** what the vendor reports of the tokens used */
  readonly usage?: 'zero' | 'missing'
  readonly streamOnly?: true
}

const habits: readonly Quirk[] = [
  { directive: 'tokens=12' },
  { directive: 'finish_twice' },
  { directive: 'finish_null' },
  { directive: 'usage_null' },
  { directive: 'usage_with_finish' },
  { directive: 'usage_each' },
  { directive: 'usage_missing', usage: 'missing' },
  { directive: 'usage_zero', usage: 'zero' },
  { directive: 'usage_late' },
  { directive: 'usage_late usage_with_finish' },
  { directive: 'cached=7' },
  { directive: 'no_terminal', streamOnly: true },
  { directive: 'empty_frames' },
  { directive: 'noise' },
  { directive: 'unknown_event', streamOnly: true },
  { directive: 'noise empty_frames crlf chunk=1 tokens=3' },
  { directive: 'chunk=7 finish_twice tokens=5' },
  { directive: 'burst' },
  { directive: 'tokens=5', thinks: true },
  { directive: 'reasoning_name=reasoning', thinks: true },
  { directive: 'reasoning_name=reasoning_content finish_twice chunk=5 tokens=3', thinks: true },
  { directive: 'tool_calls=3', tools: true },
  { directive: 'tool_calls=3', tools: true, thinks: true },
  { directive: 'tool_calls=3 tool_whole', tools: true },
  { directive: 'tool_calls=3 tool_whole tool_same_index', tools: true },
  { directive: 'tool_calls=3 tool_same_index', tools: true },
  { directive: 'tool_calls=3 tool_no_index', tools: true },
  { directive: 'tool_calls=3 tool_no_id', tools: true },
  { directive: 'tool_calls=3 tool_no_index tool_no_id', tools: true },
  { directive: 'tool_calls=3 tool_no_index tool_no_id tool_whole finish_twice', tools: true },
  { directive: 'tool_calls=3 tool_turns', tools: true },
  { directive: 'tool_calls=3 tool_turns tool_no_id finish_null', tools: true },
  { directive: 'tool_calls=3 usage_missing no_terminal', tools: true, usage: 'missing', streamOnly: true }
]

/** Each of them also of a vendor that counts nothing, and of one that counts to zero. */
const quirks = habits.flatMap((habit): readonly Quirk[] =>
  habit.directive.includes('usage') || habit.directive.includes('cached') ? [habit] : [
    habit,
    { ...habit, directive: `${habit.directive} usage_missing`, usage: 'missing' },
    { ...habit, directive: `${habit.directive} usage_zero`, usage: 'zero' }
  ]
  // With neither a finish reason nor a count the answer is unfinished (A5).
).filter(({ directive }) => !/finish_null.*usage_(?:missing|zero)/.test(directive))

/** As the vendor counted; undefined where it said nothing. */
interface Reported {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly prompt_tokens_details: { readonly cached_tokens: number }
}

t.test('each habit of a vendor, for each client', async (t) => {
  const simulator = await simulate(t, 'upstream-secret-0')
  const gw = await gateway(t, config([simulator.url], [0]))
  for (const [way, askBy] of Object.entries(ways(clientsOf(gw)))) {
    for (const quirk of quirks) {
      if (quirk.streamOnly === true && way.endsWith('JSON')) continue
      await t.test(`${way}: ${quirk.directive}${quirk.thinks === true ? ', thinking' : ''}`, async (t) => {
        const got = await askBy(quirk)
        const record = simulator.requests.at(-1)!
        // The answer may be whole before the vendor has said its last word.
        await simulator.until(() => record.ended)
        t.match(record, { path: '/v1/chat/completions',
          ended: quirk.directive.includes('no_terminal') ? 'cut' : 'complete', stream: way.endsWith('stream') })
        isWhole(t, got, record, quirk)
        await isPaid(t, gw, got, record, quirk)
      })
    }
  }
})

function isWhole (t: Test, got: Got, record: RequestRecord, { tools, thinks }: Quirk): void {
  t.equal(got.thought !== '', thinks === true)
  t.equal(got.reason, tools === true ? 'tool_calls' : 'stop')
  if (tools !== true) {
    t.equal(got.thought + got.text, record.text_sent, 'nothing is lost, and nothing said twice')
    return
  }
  t.equal(got.text, 'I will call weather and clock and weather.')
  t.match(got.calls, [{ name: 'weather', input: { city: 'Tromsø' } }, { name: 'clock',
    input: { list: [{ 'a "b" \\ {': /Tromsø, \{“naïve” 🙂/ }] } }, { name: 'weather', input: { city: 'Tromsø' } }])
  t.equal(got.calls.length, 3)
  t.equal(new Set(got.calls.map(({ id }) => id)).size, 3)
  // In the order of the answer; the vendor's order where its pieces take turns.
  t.equal(got.thought.length + got.text.length + got.calls.map(({ input }) => JSON.stringify(input)).join('').length,
    record.text_sent.length)
}

async function isPaid (t: Test, gw: TestGateway, got: Got, record: RequestRecord, { usage }: Quirk): Promise<void> {
  const { nanos, usage: counted, usage_source: source } = await chargeOf(gw, got.id)
  t.equal(-nanos,
    BigInt(counted!.input) * 3000n + BigInt(counted!.cache_read) * 300n + BigInt(counted!.output) * 15_000n)
  // Zeros beside content are no report.
  const isReported = usage !== 'missing' && usage !== 'zero'
  t.equal(source, isReported ? 'provider' : 'estimated')
  if (!isReported) {
    t.equal(record.usage === undefined, usage === 'missing')
    t.ok(counted!.input > 0 && counted!.output > 0, 'it is not free because nobody counted')
    t.ok(got.output > 0)
    t.equal(got.input, counted!.input, 'the client is told what it pays for')
    return
  }
  const { prompt_tokens: input, completion_tokens: output, prompt_tokens_details: { cached_tokens: cached } } = record
    .usage as unknown as Reported
  t.strictSame({ input: got.input, cached: got.cached, output: got.output }, { input, cached, output })
  t.match(counted, { input: input - cached, cache_read: cached, output })
}

t.test('structured output, images, and a tool whose result comes back', async (t) => {
  const simulator = await simulate(t, 'upstream-secret-0')
  const { anthropic, openai } = clientsOf(await gateway(t, config([simulator.url], [0])))
  const lastBody = (): Json => simulator.requests.at(-1)!.body as Json

  await t.test('output_config.format', async (t) => {
    const { content } = await anthropic.messages.create({ model: 'm1', max_tokens: 99,
      messages: [{ role: 'user', content: 'In Oslo' }],
      output_config: { format: { type: 'json_schema', schema: { ...place, additionalProperties: false } } } })
    t.strictSame(JSON.parse((content[0] as { text: string }).text), { city: 'Oslo' })
    t.match(lastBody(), { response_format: { type: 'json_schema', json_schema: { name: 'output', strict: true } } })
  })

  await t.test('the head: the credential of the upstream, and nothing of the client', async (t) => {
    await openai.chat.completions.create(chatBody({ directive: 'tokens=2' }))
    const { headers } = simulator.requests.at(-1)!
    t.equal(headers['x-api-key'], 'upstream-secret-0')
    t.notMatch(JSON.stringify(headers), /sk-gw|stainless|OpenAI|anthropic/)
  })

  await t.test('response_format', async (t) => {
    const { choices } = await openai.chat.completions.create({ model: 'm1',
      messages: [{ role: 'user', content: 'In Oslo' }],
      response_format: { type: 'json_schema',
        json_schema: { name: 'city', schema: place as unknown as Record<string, unknown> } } })
    t.strictSame(JSON.parse(choices[0]!.message.content!), { city: 'Oslo' })
    t.match(lastBody(), { response_format: { json_schema: { name: 'city', strict: undefined } } })
  })

  await t.test('an image', async (t) => {
    const { content } = await anthropic.messages.create({ model: 'm1', max_tokens: 99,
      messages: [{ role: 'user',
        content: [{ type: 'text', text: 'Look' }, { type: 'image',
          source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0K'.repeat(12_000) } }] }] })
    t.match(content, [{ text: /I see 1 image/ }])
    t.ok(simulator.requests.at(-1)!.body_bytes > 96_000, 'all of its bytes')
  })

  await t.test('thoughts go back to the vendor that had them, with the call', async (t) => {
    const asking = messagesBody({ directive: 'tool_calls=1', tools: true, thinks: true })
    const first = await anthropic.messages.create(asking)
    t.match(first.content, [{ type: 'thinking', signature: '' }, { type: 'text' }, { type: 'tool_use' }])
    const call = first.content.find((block) => block.type === 'tool_use')!
    const next = await anthropic.messages.create({ ...asking,
      messages: [...asking.messages, { role: 'assistant', content: first.content }, { role: 'user',
        content: [{ type: 'tool_result', tool_use_id: call.id, content: 'snow' }] }] })
    t.match(next.content.at(-1), { text: /The tool answered: “snow”/ })
    const thought = (first.content[0] as { thinking: string }).thinking
    t.match(lastBody(), {
      messages: [{ role: 'user' }, { role: 'assistant', reasoning_content: thought, tool_calls: [{ id: call.id }] }, {
        role: 'tool',
        tool_call_id: call.id,
        content: 'snow'
      }]
    })
  })

  await t.test('and for a chat client too', async (t) => {
    const asking = chatBody({ directive: 'tool_calls=1', tools: true, thinks: true })
    const { choices: [first] } = await openai.chat.completions.create(asking)
    const next = await openai.chat.completions.create({ ...asking,
      messages: [...asking.messages, first!.message, { role: 'tool', tool_call_id: first!.message.tool_calls![0]!.id,
        content: 'snow' }] })
    t.match(next.choices[0]!.message.content, /The tool answered: “snow”/)
    t.match((lastBody()['messages'] as Json[])[1], { role: 'assistant',
      reasoning_content: (first!.message as unknown as Json)['reasoning_content'] })
  })

  for (const kind of ['adaptive', 'budget']) {
    await t.test(`and for a client of the Responses API, of a model that is ${kind}`, async (t) => {
      const gw = await gateway(t, config([simulator.url], [0]).replace('thinking: adaptive', `thinking: ${kind}`))
      const { responses } = clientsOf(gw).openai
      const asking: OpenAI.Responses.ResponseCreateParamsNonStreaming = { model: 'm1', store: false,
        reasoning: { effort: 'high', summary: 'auto' },
        tools: [{ type: 'function', name: 'weather', parameters: { ...place }, strict: false }] }
      const asked = { role: 'user', content: 'Look [[sim: tool_calls=1]]' } as const
      const { output } = await responses.create({ ...asking, input: [asked] })
      t.match(output, [{ type: 'reasoning' }, { type: 'message' }, { type: 'function_call' }])
      const [{ summary }, , { call_id: id }] = output as unknown as
        [{ readonly summary: readonly { readonly text: string }[] }, unknown, { readonly call_id: string }]
      const next = await responses.create({ ...asking, input: [asked,
        ...output as never[], { type: 'function_call_output', call_id: id, output: 'snow' }] })
      t.match(next.output_text, /The tool answered: “snow”/)
      t.equal(next.output[0]!.type, 'reasoning', 'it thinks on')
      t.match(lastBody(), { reasoning_effort: 'high', messages: [{ role: 'user' }, { role: 'assistant',
        reasoning_content: summary[0]!.text, tool_calls: [{}] }, { role: 'tool', content: 'snow' }] })
    })
  }
})

t.test('the `ai` package, whose schemas are stricter: thoughts, a tool and its result, JSON and streams', async (t) => {
  Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })
  const simulator = await simulate(t, 'upstream-secret-0')
  const gw = await gateway(t, config([simulator.url], [0]))
  const access = { apiKey: KEY, baseURL: `${gw.url}/v1` }
  for (const [name, model] of [['anthropic', createAnthropic(access)('m1')], ['openai-compatible',
    createOpenAICompatible({ name: 'gateway', includeUsage: true, ...access })('m1')]] as const) {
    await t.test(name, async (t) => {
      const tools = {
        weather: tool({ description: 'The weather', inputSchema: jsonSchema<{ city: string }>(place as object),
          execute: ({ city }) => `snow in ${city}` })
      }
      const asking = {
        model,
        tools,
        maxRetries: 0,
        maxOutputTokens: 900,
        stopWhen: isStepCount(3),
        prompt: 'What is the weather in Tromsø?',
        providerOptions: { anthropic: { effort: 'low' }, gateway: { reasoningEffort: 'low' } }
      } as const
      const whole = await generateText(asking)
      t.match(whole.text, /The tool answered: “snow in Tromsø”/)
      t.match(whole.steps[0]!.reasoningText, /weather in Tromsø/)
      const stream = streamText(asking)
      t.equal(await stream.text, whole.text)
      t.equal((await stream.steps)[0]!.reasoningText, whole.steps[0]!.reasoningText)
      t.equal((await stream.totalUsage).outputTokens, whole.totalUsage.outputTokens)
      const [, answer] = (simulator.requests.at(-1)!.body as { messages: Json[] }).messages
      t.match(answer, { role: 'assistant', tool_calls: [{ function: { name: 'weather' } }],
        reasoning_content: /weather in Tromsø/ }, 'the vendor got its thoughts back')
    })
  }
})

t.test('a conversation goes on at a vendor of the other style', async (t) => {
  const chat = await simulate(t, 'upstream-secret-0')
  const other = await simulate(t, 'upstream-secret-1')
  const { anthropic } = clientsOf(await gateway(t, config([chat.url, other.url], [0])
    .replace('models:\n',
      'models:\n  - { id: m2, provider: acme, created: 2025-11-01, context: 200000, max_output: 64000, thinking: budget, channels: { premium: { price: { input: 1, output: 1 }, targets: [{ upstream: u1, model: vendor-m2 }] } } }\n')
    .replace(/, \{ upstream: u1, model: vendor-m1[^}]*\}/, '')))
  const asking = { ...messagesBody({ directive: 'tool_calls=1 ', tools: true, thinks: true }), max_tokens: 3000 }
  const first = await anthropic.messages.create(asking)
  const call = first.content.find((block) => block.type === 'tool_use')!
  const turns: Anthropic.MessageParam[] = [...asking.messages, { role: 'assistant', content: first.content }, {
    role: 'user',
    content: [{ type: 'tool_result', tool_use_id: call.id, content: 'snow' }]
  }]

  const next = await anthropic.messages.create({ ...asking, model: 'm2', output_config: {},
    thinking: { type: 'enabled', budget_tokens: 1024 }, messages: turns })
  t.match(next.content, [{ type: 'text', text: /The tool answered: “snow”/ }],
    'unsigned thoughts are no 400 (rule signatures)')
  const sent = other.requests.at(-1)!.body as { readonly messages: readonly Json[], readonly thinking: unknown }
  t.strictSame(sent.messages[1], { role: 'assistant', content: first.content.slice(1) })
  t.strictSame(sent.thinking, { type: 'disabled' }, 'it would insist on a thought of its own')

  const signed = await anthropic.messages.create({ ...asking, model: 'm2', output_config: {},
    thinking: { type: 'enabled', budget_tokens: 1024 }, tools: [], messages: [{ role: 'user', content: 'Hello' }] })
  t.match(signed.content[0], { type: 'thinking', signature: /.{20}/ })
  await anthropic.messages.create({ ...asking, model: 'm2', output_config: {},
    thinking: { type: 'enabled', budget_tokens: 1024 },
    messages: [{ role: 'user', content: 'Hello' }, { role: 'assistant', content: signed.content }, { role: 'user',
      content: 'Again' }] })
  const back = (other.requests.at(-1)!.body as { messages: { content: unknown }[] }).messages[1]!.content
  t.strictSame(asSigned(back, THEIRS), asSigned(signed.content, SEALED), 'its own come back to the byte')
  await anthropic.messages.create({ ...asking,
    messages: [{ role: 'user', content: 'Hello' }, { role: 'assistant', content: signed.content }, { role: 'user',
      content: 'Again' }] })
  t.strictSame((chat.requests.at(-1)!.body as { messages: unknown[] }).messages[1], { role: 'assistant',
    content: (signed.content[1] as { text: string }).text }, 'and go nowhere else')
})

t.test('failover between the styles, both ways: only who answers is paid', async (t) => {
  const simulator = await simulate(t, 'upstream-secret-1')
  const first = await upstream(t,
    ({ path, body }) =>
      failing(path, body?.['stream'] === true, JSON.stringify(body?.['messages'])))
  for (const [name, chats] of [['from messages to chat', [1]], ['from chat to messages', [0]]] as const) {
    const gw = await gateway(t, config([first.url, simulator.url], chats))
    for (const [way, askBy] of Object.entries(ways(clientsOf(gw)))) {
      for (const directive of ['tokens=5 burst', 'tokens=6', 'tokens=7', 'tokens=8']) {
        await t.test(`${name}, ${way}, ${directive}`, async (t) => {
          const before = first.requests.length
          const got = await askBy({ directive })
          t.ok(first.requests.length > before)
          const record = simulator.requests.at(-1)!
          t.equal(record.path, chats[0] === 1 ? '/v1/chat/completions' : '/v1/messages')
          t.equal(got.text, record.text_sent)
          const { nanos, usage } = await chargeOf(gw, got.id)
          t.equal(-nanos, BigInt(got.input) * 3000n + BigInt(got.output) * 15_000n)
          t.match(usage, { input: got.input, output: got.output })
        })
      }
    }
  }
})

/** What goes wrong before there is content, in the style of the path. */
function failing (path: string, isStream: boolean, said: string): Script {
  const isChat = path.endsWith('/chat/completions')
  if (said.includes('tokens=5')) return errorReply(529, 'overloaded_error', 'Overloaded')
  if (said.includes('tokens=6')) return cut()
  if (said.includes('tokens=7')) {
    if (!isStream) {
      return json(isChat ? { error: { message: 'Provider returned error', code: 502 } } : { type: 'error' })
    }
    return raw(
      isChat
        ? 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\ndata: {"error":{"message":"Provider returned error","code":502}}\n\n'
        : 'event: error\ndata: {"type":"error","error":{"type":"api_error"}}\n\n'
    )
  }
  // Neither content nor a reason nor counts. With a reason it would be an answer (rule one-request).
  if (!isStream) {
    return json(isChat
      ? { choices: [{ index: 0, finish_reason: null, message: { content: '' } }] }
      : { ...message('', { usage: { input_tokens: 0, output_tokens: 0 } }), content: [], stop_reason: null })
  }
  return raw(
    isChat
      ? 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\ndata: [DONE]\n\n'
      : 'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":0}}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
  )
}

/** Answers without content, all of them with a reason or counts, in the style of the path. */
function empty (path: string, isStream: boolean): Script {
  const isChat = path.endsWith('/chat/completions')
  if (!isStream) {
    return json(isChat
      ? { choices: [{ index: 0, finish_reason: 'stop', message: { content: '' } }],
        usage: { prompt_tokens: 9, completion_tokens: 9 } }
      : { ...message('', { usage: { input_tokens: 9, output_tokens: 9 } }), content: [] })
  }
  return raw(
    isChat
      ? 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":9}}\n\ndata: [DONE]\n\n'
      : 'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":9}}}\n\nevent: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
  )
}

t.test('an empty answer with a reason is one, is charged as counted, and nobody else is asked (rule one-request)', async (t) => {
  const spare = await simulate(t, 'upstream-secret-1')
  const first = await upstream(t, ({ path, body }) => empty(path, body?.['stream'] === true))
  for (const chats of [[0], [1]]) {
    const gw = await gateway(t, config([first.url, spare.url], chats))
    for (const [way, askBy] of Object.entries(ways(clientsOf(gw)))) {
      await t.test(`of ${chats[0] === 0 ? 'chat' : 'messages'}, ${way}`, async (t) => {
        const before = first.requests.length
        const got = await askBy({ directive: 'tokens=9' })
        t.match(got, { text: '', thought: '', calls: [], reason: 'stop', input: 9, output: 9 })
        t.equal(first.requests.length, before + 1)
        const { nanos, usage_source: source } = await chargeOf(gw, got.id)
        t.strictSame([-nanos, source], [9n * 3000n + 9n * 15_000n, 'provider'])
      })
    }
  }
  t.equal(spare.requests.length, 0)
})

t.test('what one vendor can\'t be told another is', async (t) => {
  const chat = await simulate(t, 'upstream-secret-0')
  const other = await simulate(t, 'upstream-secret-1')
  const bash = { model: 'm1', max_tokens: 99, messages: [{ role: 'user' as const, content: 'Hello' }],
    tools: [{ type: 'bash_20250124' as const, name: 'bash' as const }] }
  const both = clientsOf(await gateway(t, config([chat.url, other.url], [0])))
  t.match(await both.anthropic.messages.create(bash), { stop_reason: 'end_turn' })
  t.strictSame([chat.requests.length, other.requests.length], [0, 1])

  const gw = await gateway(t, config([chat.url], [0]))
  const error = await thrown(clientsOf(gw).anthropic.messages.create(bash)) as InstanceType<typeof Anthropic.APIError>
  t.match(error, { status: 400 })
  t.match(error.message,
    /tools\[0\]\.type is \\"bash_20250124\\", a tool that its vendor describes, which the provider of this model can't be told/)

  const alone = await gateway(t,
    config([chat.url], [0]).replace('opening_balance_usd: 100', 'opening_balance_usd: 100, allow_fallback: false')
      .replace(`secret: ${KEY}`, `secret: ${KEY}, routing_mode: auto_cheap`)
      .replace('channels:\n',
        'channels:\n      cheap: { price: { input: 1, output: 1 }, targets: [{ upstream: u0, model: x }] }\n'))
  t.match(await thrown(clientsOf(alone).anthropic.messages.create(bash)), { status: 400 },
    'not that another channel might have: to wait helps nobody')

  const bad = await upstream(t, errorReply(529, 'overloaded_error', 'Overloaded'))
  const failed = await thrown(
    clientsOf(await gateway(t, config([bad.url, chat.url], [1]))).anthropic.messages.create(bash)
  ) as InstanceType<typeof Anthropic.APIError>
  t.match(failed, { status: 503 }, 'the other would have known it, and may again')
})

/** Deltas of an answer of three tokens. */
const delta = (content: string): string =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`
const FINISH = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'

interface Broken { readonly script: Script, readonly code: string | undefined, readonly type?: string }

const endings: Readonly<Record<string, Broken>> = {
  'neither a reason nor [DONE]': { script: [raw(delta('one two three'))], code: 'stream_incomplete' },
  'a cut': { script: [raw(delta('one two three')), cut()], code: 'upstream_stream_interrupted' },
  'broken JSON': { script: [raw(delta('one two three')), raw('data: {"choices":[{"ind\n\n')],
    code: 'upstream_stream_interrupted' },
  'an error': { script: [raw(delta('one two three')), raw('data: {"error":{"message":"no","code":500}}\n\n')],
    code: 'upstream_stream_interrupted', type: 'api_error' },
  'an overload': { script: [raw(delta('one two three')), raw('data: {"error":{"message":"busy","code":429}}\n\n')],
    code: 'upstream_stream_interrupted', type: 'overloaded_error' },
  'it broke, says the reason': {
    script: [raw(delta('one two three')),
      raw('data: {"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}\n\n')],
    code: 'upstream_stream_interrupted'
  },
  'a cut behind the reason': { script: [raw(delta('one two three')), raw(FINISH), cut()], code: undefined },
  'silence behind the reason': { script: [raw(delta('one two three')), raw(FINISH), wait(new Promise(() => {}))],
    code: undefined },
  'half a record behind the reason': {
    script: [raw(delta('one two three')), raw(FINISH), raw('data: {"choices":[],"usa'), cut()],
    code: undefined
  },
  'half a record': { script: [raw(delta('one two three')), raw('data: {"choices":[{"ind')], code: 'stream_incomplete' },
  'usage before the words alone': {
    script: [raw('data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":0}}\n\n'),
      raw(delta('one two three')), raw(FINISH), raw('data: [DONE]\n\n')],
    code: undefined
  },
  'a last record without its blank line': {
    script: [raw(delta('one two three')), raw(FINISH),
      raw('data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":3}}')],
    code: undefined
  }
}

t.test('how a stream ends', async (t) => {
  const up = await upstream(t,
    ({ body }) => endings[String((body?.['messages'] as { content: string }[])[0]!.content)]!.script)
  const gw = await gateway(t, config([up.url], [0]).replace(`${CHAT},`, `${CHAT}, timeouts: { idle: 200ms },`))
  for (const [name, { code, type }] of Object.entries(endings)) {
    await t.test(name, async (t) => {
      gw.heal()
      const { events, headers } = await ask(`${gw.url}/v1/messages`, { model: 'm1', max_tokens: 99, stream: true,
        messages: [{ role: 'user', content: name }] }, { headers: { 'x-api-key': KEY } })
      t.equal(saidIn(events), 'one two three')
      const { entries, openHolds } = await fate(gw, String(headers['x-request-id']))
      t.equal(openHolds, 0)
      const last = events.at(-1)!
      if (code === undefined) {
        t.equal(last.event, 'message_stop')
        t.match(entries, [
          name.startsWith('a last')
            ? { usage: { input: 4, output: 3 }, usage_source: 'provider', nanos: -57_000n }
            : { usage: { output: 3 }, usage_source: 'estimated' }
        ])
        t.ok(entries[0]!.usage!.input > 0)
        return
      }
      t.match(last, { event: 'error',
        data: { error: { details: { error_code: code }, ...(type !== undefined && { type }) } } })
      t.match(entries, [{ usage: { input: 0, output: 3 }, usage_source: 'estimated', nanos: -45_000n }],
        'what was produced, and nothing else')
    })
  }
})

function saidIn (events: readonly ClientEvent[]): string {
  return events.map(({ event, data }) =>
    event === 'content_block_delta' ? (data['delta'] as { text?: string }).text ?? '' : ''
  ).join('')
}

t.test('a client that leaves before the vendor counts pays for its input too (rule charge-delivered)', async (t) => {
  const left = Promise.withResolvers<void>()
  const up = await upstream(t, [raw(delta('one two three')), wait(left.promise)])
  const gw = await gateway(t, config([up.url], [0]))
  const got = await ask(`${gw.url}/v1/messages`, { model: 'm1', max_tokens: 99, stream: true,
    messages: [{ role: 'user', content: 'x'.repeat(4000) }] }, { headers: { 'x-api-key': KEY }, leaveAfter: 3 })
  t.equal(got.ended, 'left')
  const { entries } = await fate(gw, String(got.headers['x-request-id']))
  left.resolve()
  const { usage, nanos, usage_source: source } = entries[0]!
  t.ok(usage!.input > 1000 && usage!.input < 1100, `${usage!.input} tokens for 4,000 bytes`)
  t.equal(usage!.output, 3)
  t.equal(-nanos, BigInt(usage!.input) * 3000n + 45_000n)
  t.equal(source, 'estimated')
})

/** The head of a call and the start of its input. */
const callDelta = (input: string): string => `data: ${JSON.stringify({ choices: [{ index: 0, delta: { tool_calls: [{ index: 0, id: 'a', function: { name: 'f', arguments: input } }] }, finish_reason: null }] })}\n\n`

t.test('of a client that leaves a call without input nothing was counted but by us', async (t) => {
  const left = Promise.withResolvers<void>()
  const up = await upstream(t, [raw(callDelta('')), wait(left.promise)])
  const gw = await gateway(t, config([up.url], [0]))
  const got = await ask(`${gw.url}/v1/messages`, { model: 'm1', max_tokens: 99, stream: true,
    messages: [{ role: 'user', content: 'Hello' }] }, { headers: { 'x-api-key': KEY }, leaveAfter: 2 })
  t.equal(got.ended, 'left')
  const { entries } = await fate(gw, String(got.headers['x-request-id']))
  left.resolve()
  t.match(entries, [{ usage: { output: 0 }, usage_source: 'estimated' }])
  t.ok(entries[0]!.usage!.input > 0)
})

t.test('a call that ends in the middle was cut by the limit, whatever the reason: no client runs it (rule tool-input)', async (t) => {
  const up = await upstream(
    t, [raw(callDelta('{"path":"/tm')), raw(FINISH.replace('"stop"', '"tool_calls"')), raw('data: [DONE]\n\n')]
  )
  const gw = await gateway(t, config([up.url], [0]))
  const { events } = await ask(`${gw.url}/v1/messages`, { model: 'm1', max_tokens: 99, stream: true,
    messages: [{ role: 'user', content: 'Hello' }] }, { headers: { 'x-api-key': KEY } })
  t.strictSame(events.map(({ event }) => event), ['message_start', 'content_block_start', 'content_block_delta',
    'content_block_stop', 'message_delta', 'message_stop'])
  t.match(events.at(-2)!.data, { delta: { stop_reason: 'max_tokens' } })
  t.equal(up.requests.length, 1)
})

t.test('an error with the status of an answer is named as one in a stream is', async (t) => {
  const errors = [
    [{ message: 'Provider is rate limited', code: 429 }, 503, 'model_overloaded'],
    [{ message: 'The prompt is too long: maximum context length is 8 tokens', code: 400 }, 400,
      'context_length_exceeded'],
    [{ message: 'Provider returned error', code: 502 }, 502, 'server_error']
  ] as const
  const up = await upstream(t, ({ body }) => {
    const error = errors[Number((body?.['messages'] as { content: string }[])[0]!.content)]![0]
    return body?.['stream'] === true
      ? raw(`data: ${JSON.stringify({ error })}\n\n`)
      : json({ id: 'gen-1', error, user_id: 'u' })
  })
  const gw = await gateway(t, config([up.url], [0]))
  for (const [i, [error, status, code]] of errors.entries()) {
    for (const stream of [false, true]) {
      gw.heal()
      const got = await ask(`${gw.url}/v1/chat/completions`, { model: 'm1', stream,
        messages: [{ role: 'user', content: String(i) }] }, { headers: { 'x-api-key': KEY } })
      t.equal(got.status, status, `${error.code}, ${stream ? 'stream' : 'JSON'}`)
      t.match(got.body, { error: { code, charged_usd: '0' } })
    }
  }
})

t.test('errors of a vendor in its own words', async (t) => {
  const simulator = await simulate(t, 'upstream-secret-0')
  const gw = await gateway(t, config([simulator.url], [0]))
  for (const [directive, status, code] of [
    ['context', 400, 'context_length_exceeded'],
    ['content_policy', 400, 'content_policy_violation'],
    ['status=429 retry_after=7', 503, 'model_overloaded'],
    ['status=401', 503, 'service_unavailable'],
    ['status=500', 502, 'server_error'],
    ['html', 502, 'server_error'],
    ['empty_body', 502, 'empty_response'],
    ['malformed', 502, 'server_error']
  ] as const) {
    for (const stream of [false, true]) {
      gw.heal()
      const response = await fetch(`${gw.url}/v1/chat/completions`, { method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
        body: JSON.stringify({ model: 'm1', stream, messages: [{ role: 'user', content: `[[sim: ${directive}]]` }] }) })
      const { error } = await response.json() as { error: { code: string, charged_usd: string } }
      t.strictSame([response.status, error.code, error.charged_usd], [status, code, '0'],
        `${directive}, ${stream ? 'stream' : 'JSON'}`)
      if (directive.startsWith('status=429')) t.equal(response.headers.get('retry-after'), '7')
    }
  }
})
