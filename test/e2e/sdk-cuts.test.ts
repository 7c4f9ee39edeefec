// Streams of upstreams that are cut, at every event and in the middle of any: whatever unmodified SDK reads what is
// left of one, it gets the whole answer or an error, never the half of one that looks like an end. And the ledger says
// what the log says. CUTS=1 tries every byte with every SDK, and both ways to end; CUTS=100 every hundredth.
import Anthropic from '@anthropic-ai/sdk'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenResponses } from '@ai-sdk/open-responses'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { ChatAnthropic } from '@langchain/anthropic'
import type { AIMessageChunk } from '@langchain/core/messages'
import { ChatOpenAI } from '@langchain/openai'
import { Agent, OpenAIProvider, Runner, tool as agentTool } from '@openai/agents'
import { jsonSchema, streamText, tool, type LanguageModel } from 'ai'
import last0 from 'anthropic-sdk-0'
import OpenAI from 'openai'
import last6 from 'openai-6'
import t, { type Test } from 'tap'
import { startSimulator } from '../../src/simulator/simulator.ts'
import type { Entry } from '../../src/store/store.ts'
import { gateway, KEY, yaml, type TestGateway } from '../support/gateway.ts'
import { until } from '../support/until.ts'
import { cut, end, raw, upstream, type Script } from '../support/upstream.ts'

Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })

const STRIDE = Number(process.env['CUTS'] ?? 0)
/** Bytes that are tried of each stream, spread over it; each with one SDK after the other. */
const SAMPLES = 128

const PROMPT = 'Look [[sim: tool_calls=1 burst]]'
const city = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] as string[] } as const
const messagesTool = { name: 'weather', input_schema: city }
const chatTool = { type: 'function', function: { name: 'weather', parameters: city } } as const
const responsesTool = { type: 'function', name: 'weather', parameters: city, strict: false } as const

// What vendors say: a thought, a text, a call.

type Dialect = 'messages' | 'chat' | 'responses'

const asked: Readonly<Record<Dialect, { readonly path: string, readonly body: object }>> = {
  messages: { path: '/v1/messages', body: { max_tokens: 3000, thinking: { type: 'enabled', budget_tokens: 1024 },
    tools: [messagesTool], messages: [{ role: 'user', content: PROMPT }] } },
  chat: { path: '/v1/chat/completions', body: { stream_options: { include_usage: true }, reasoning_effort: 'low',
    tools: [chatTool], messages: [{ role: 'user', content: PROMPT }] } },
  responses: { path: '/v1/responses', body: { store: false, include: ['reasoning.encrypted_content'],
    reasoning: { effort: 'low', summary: 'auto' }, tools: [responsesTool], input: [{ role: 'user', content: PROMPT }] } }
}

const simulator = await startSimulator({ firstDelayMs: 0, tokenDelayMs: 0 })
t.teardown(() => simulator.close())

/** The bytes of a whole stream. */
async function recorded (dialect: Dialect): Promise<Buffer> {
  const { path, body } = asked[dialect]
  const headers = { 'content-type': 'application/json', 'x-api-key': 'k', authorization: 'Bearer k',
    'anthropic-version': '2023-06-01' }
  const response = await fetch(simulator.url + path, { method: 'POST', headers,
    body: JSON.stringify({ model: 'v', stream: true, ...body }) })
  if (response.status !== 200) throw new Error(await response.text())
  return Buffer.from(await response.arrayBuffer())
}

// What SDKs make of it.

/** Text and calls of an answer that is over; a throw or `told`: an error; undefined: it ended, and nothing says how. */
type Heard = { readonly text: string, readonly calls: readonly (readonly [name: string, input: unknown])[] } | 'told'
  | undefined
type Listen = (url: string, fetch: typeof globalThis.fetch) => Promise<Heard>

const call = (name: string, input: string): readonly [string, unknown] => [name, JSON.parse(input)]

function ofMessage ({ content, stop_reason: reason }: Anthropic.Message): Heard {
  return reason === null ? undefined : {
    text: content.flatMap((block) => block.type === 'text' ? [block.text] : []).join(''),
    calls: content.flatMap((block) => block.type === 'tool_use' ? [[block.name, block.input] as const] : [])
  }
}

function ofResponse ({ status, output }: OpenAI.Responses.Response): Heard {
  if (status === 'failed') return 'told'
  return status !== 'completed' ? undefined : {
    text: output.flatMap((item) => item.type === 'message' ? item.content : [])
      .flatMap((part) => part.type === 'output_text' ? [part.text] : []).join(''),
    calls: output.flatMap((item) => item.type === 'function_call' ? [call(item.name, item.arguments)] : [])
  }
}

function anthropicWays (name: string, SDK: typeof Anthropic): Readonly<Record<string, Listen>> {
  const body = { model: 'm1', max_tokens: 3000, messages: [{ role: 'user', content: 'Look' }],
    tools: [messagesTool] } as unknown as Anthropic.MessageCreateParamsNonStreaming
  const client = (url: string, fetch: typeof globalThis.fetch): Anthropic =>
    new SDK({ apiKey: KEY, baseURL: url, maxRetries: 0, fetch })
  return {
    [`${name}, messages.stream()`]: async (url, fetch) =>
      ofMessage(await client(url, fetch).messages.stream(body).finalMessage()),
    async [`${name}, create({ stream: true })`] (url, fetch) {
      let text = ''
      const calls: [string, string][] = []
      let isOver = false
      for await (const event of await client(url, fetch).messages.create({ ...body, stream: true })) {
        if (event.type === 'content_block_start' && event.content_block.type === 'tool_use') {
          calls.push([event.content_block.name, ''])
        } else if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') text += event.delta.text
        else if (event.type === 'content_block_delta' && event.delta.type === 'input_json_delta') {
          calls.at(-1)![1] += event.delta.partial_json
        } else if (event.type === 'message_stop') isOver = true
      }
      return isOver ? { text, calls: calls.map(([name, input]) => call(name, input)) } : undefined
    }
  }
}

interface Made { readonly function?: { readonly name?: string, readonly arguments?: string } }

function openaiWays (name: string, SDK: typeof OpenAI): Readonly<Record<string, Listen>> {
  const client = (url: string, fetch: typeof globalThis.fetch): OpenAI =>
    new SDK({ apiKey: KEY, baseURL: `${url}/v1`, maxRetries: 0, fetch })
  const chat: OpenAI.ChatCompletionCreateParamsNonStreaming = { model: 'm1', tools: [{ ...chatTool }],
    messages: [{ role: 'user', content: 'Look' }] }
  const responses: OpenAI.Responses.ResponseCreateParamsNonStreaming = { model: 'm1', input: 'Look',
    tools: [responsesTool], reasoning: { summary: 'auto' } }
  const calls = (made: readonly Made[] = []) =>
    made.map(({ function: { name = '', arguments: input = '' } = {} }) => call(name, input))
  return {
    async [`${name}, chat.completions.stream()`] (url, fetch) {
      const stream = client(url, fetch).chat.completions.stream({ ...chat, stream: true })
      const { message, finish_reason: reason } = (await stream.finalChatCompletion()).choices[0]!
      return reason as string | null === null ? undefined : { text: message.content ?? '',
        calls: calls(message.tool_calls as Parameters<typeof calls>[0]) }
    },
    async [`${name}, chat.completions.create({ stream: true })`] (url, fetch) {
      let text = ''
      let input = ''
      let tool = ''
      let isOver = false
      const chunks = await client(url, fetch).chat.completions.create({ ...chat, stream: true })
      for await (const { choices: [choice] } of chunks) {
        text += choice?.delta.content ?? ''
        tool += choice?.delta.tool_calls?.[0]?.function?.name ?? ''
        input += choice?.delta.tool_calls?.[0]?.function?.arguments ?? ''
        isOver ||= (choice?.finish_reason ?? null) !== null
      }
      return isOver ? { text, calls: tool === '' ? [] : [call(tool, input)] } : undefined
    },
    [`${name}, responses.stream()`]: async (url, fetch) =>
      ofResponse(await client(url, fetch).responses.stream({ ...responses, stream: true }).finalResponse()),
    async [`${name}, responses.create({ stream: true })`] (url, fetch) {
      let last: Heard
      for await (const event of await client(url, fetch).responses.create({ ...responses, stream: true })) {
        if (event.type === 'response.completed' || event.type === 'response.failed') last = ofResponse(event.response)
      }
      return last
    }
  }
}

interface Access { readonly apiKey: string, readonly baseURL: string, readonly fetch: typeof globalThis.fetch }
type ModelAt = (access: Access) => Exclude<LanguageModel, string>

function aiWays (name: string, modelAt: ModelAt): Readonly<Record<string, Listen>> {
  return {
    async [`ai, ${name}`] (url, fetch) {
      const model = modelAt({ apiKey: KEY, baseURL: `${url}/v1`, fetch })
      let text = ''
      let reason = ''
      let isTold = false
      const calls: (readonly [string, unknown])[] = []
      const { stream } = streamText({ model, maxRetries: 0, maxOutputTokens: 3000, prompt: 'Look',
        tools: { weather: tool({ inputSchema: jsonSchema(city) }) }, onError: () => {} })
      for await (const part of stream) {
        if (part.type === 'text-delta') text += part.text
        else if (part.type === 'tool-call') calls.push([part.toolName, part.input])
        else if (part.type === 'error') isTold = true
        else if (part.type === 'finish-step') reason = part.finishReason
      }
      if (isTold) return 'told'
      return reason === 'stop' || reason === 'tool-calls' ? { text, calls } : undefined
    }
  }
}

/** @param reasonOf why its answer ended, as its last pieces say */
function langchainWays (
  name: string,
  modelAt: (access: Access) => Pick<ChatAnthropic | ChatOpenAI, 'bindTools'>,
  reasonOf: (whole: AIMessageChunk) => unknown
): Readonly<Record<string, Listen>> {
  return {
    async [`langchain, ${name}`] (url, fetch) {
      const model = modelAt({ apiKey: KEY, baseURL: url, fetch })
        .bindTools([{ name: 'weather', description: 'The weather', schema: city }])
      let whole: AIMessageChunk | undefined
      for await (const chunk of await model.stream('Look')) whole = whole?.concat(chunk) ?? chunk
      if (whole === undefined || typeof reasonOf(whole) !== 'string') return undefined
      return { text: whole.text, calls: whole.tool_calls?.map(({ name, args }) => [name, args] as const) ?? [] }
    }
  }
}

/** An agent that ends with the first call, or with what it says. */
const agentWays: Readonly<Record<string, Listen>> = {
  async '@openai/agents' (url, fetch) {
    const openAIClient = new OpenAI({ apiKey: KEY, baseURL: `${url}/v1`, maxRetries: 0, fetch })
    const calls: (readonly [string, unknown])[] = []
    const agent = new Agent({
      name: 'Helper', model: 'm1', toolUseBehavior: 'stop_on_first_tool',
      tools: [agentTool({ name: 'weather', description: 'The weather', strict: false,
        parameters: { ...city, additionalProperties: true }, execute (input) {
          calls.push(['weather', input])
          return 'snow'
        } })]
    })
    const runner = new Runner({ tracingDisabled: true, modelProvider: new OpenAIProvider({ openAIClient }) })
    const streamed = await runner.run(agent, 'Look', { stream: true })
    await streamed.completed
    const text = streamed.newItems.map((item) => item.type === 'message_output_item' ? item.content : '').join('')
    return { text, calls }
  }
}

/** Takes a failure for an end, unless it is told twice. */
const TOLD_TWICE = 'langchain, ChatOpenAI, useResponsesApi'

const ways: Readonly<Record<string, Listen>> = {
  ...anthropicWays('@anthropic-ai/sdk 1', Anthropic),
  ...anthropicWays('@anthropic-ai/sdk 0', last0 as unknown as typeof Anthropic),
  ...openaiWays('openai 7', OpenAI),
  ...openaiWays('openai 6', last6 as unknown as typeof OpenAI),
  ...aiWays('anthropic', (access) => createAnthropic(access)('m1')),
  ...aiWays('openai', (access) => createOpenAI(access)('m1')),
  ...aiWays('openai.chat', (access) => createOpenAI(access).chat('m1')),
  ...aiWays('openai-compatible', (access) => createOpenAICompatible({ name: 'gateway', ...access })('m1')),
  ...aiWays('open-responses', ({ baseURL, ...access }) =>
    createOpenResponses({ name: 'gateway', url: `${baseURL}/responses`, ...access })('m1')),
  ...langchainWays('ChatAnthropic', ({ apiKey, baseURL, fetch }) =>
    new ChatAnthropic({ model: 'm1', maxTokens: 3000, apiKey, anthropicApiUrl: baseURL, maxRetries: 0,
      clientOptions: { fetch } }), ({ additional_kwargs: { stop_reason: reason } }) => reason),
  ...langchainWays('ChatOpenAI', ({ apiKey, baseURL, fetch }) =>
    new ChatOpenAI({ model: 'm1', apiKey, configuration: { baseURL: `${baseURL}/v1`, fetch }, maxRetries: 0 }),
  ({ response_metadata: { finish_reason: reason } }) => reason),
  ...langchainWays('ChatOpenAI, useResponsesApi', ({ apiKey, baseURL, fetch }) =>
    new ChatOpenAI({ model: 'm1', apiKey, configuration: { baseURL: `${baseURL}/v1`, fetch }, maxRetries: 0,
      useResponsesApi: true }), ({ response_metadata: { status } }) => status === 'completed' ? status : undefined),
  ...agentWays
}

// Where it is cut.

interface Cut {
  /** bytes that the gateway gets */
  readonly at: number
  readonly isClean: boolean
  readonly way: string
}

/** Behind every event with every SDK, and in the middle of any with one after the other. */
function cutsOf (stream: Buffer): readonly Cut[] {
  const names = Object.keys(ways)
  const everyWay = (at: number, i: number): readonly Cut[] =>
    names.flatMap((way, j) =>
      (STRIDE > 0 ? [false, true] : [(i + j) % 2 === 0]).map((isClean) => ({ at, isClean, way })))
  if (STRIDE > 0) {
    return [...Array.from({ length: Math.ceil(stream.length / STRIDE) }, (_, i) => i * STRIDE), stream.length]
      .flatMap(everyWay)
  }
  const ends = [0]
  for (let blank = stream.indexOf('\n\n'); blank !== -1; blank = stream.indexOf('\n\n', blank + 2)) ends.push(blank + 2)
  const step = stream.length / SAMPLES
  return [...ends.flatMap(everyWay), ...Array.from({ length: SAMPLES }, (_, i) =>
    ({ at: Math.floor(i * step + Math.random() * step), isClean: i % 2 === 0, way: names[i % names.length]! }))]
}

async function heard (listen: Listen, ...to: Parameters<Listen>): Promise<Heard> {
  try {
    return await listen(...to)
  } catch (error) {
    if (error instanceof SyntaxError) throw error             // of the arguments of a call that was said to be whole
    return 'told'
  }
}

/** The entries of the ledger by their request. */
async function settled (t: Test, { services: { store } }: TestGateway): Promise<ReadonlyMap<string, Entry>> {
  const found = new Map<string, Entry>()
  for await (const entry of store.entries()) {
    if (entry.kind === 'credit') continue
    if (entry.kind !== 'settle' || found.has(entry.reference!)) t.fail(`not settled once: ${entry.reference}`)
    found.set(entry.reference!, entry)
  }
  t.equal(await store.openHolds(), 0)
  t.strictSame((await store.verify()).differences, [])
  return found
}

interface Case extends Cut {
  readonly got: Heard
  readonly id: string
}

for (const dialect of Object.keys(asked) as Dialect[]) {
  t.test(`an upstream that speaks ${dialect}`, async (t) => {
    const stream = await recorded(dialect)
    let script: Script = []
    const up = await upstream(t, () => script)
    const start = async (translators: string): Promise<TestGateway> =>
      await gateway(t, yaml([up.url], '', `auth, ${translators}, channel-router, billing-meter, error-normalize`)
        .replace('dialect: messages', `dialect: ${dialect}`).replace('balance_usd: 100', 'balance_usd: 100000'),
      { isForgetful: true })
    const gw = await start('chat-to-messages')
    const twice = await start('chat-to-messages, responses-to-messages: { error_event_after_failed: true }')
    const play = async (one: Cut): Promise<Case> => {
      script = [raw(stream.subarray(0, one.at)), one.isClean ? end() : cut()]
      let id = ''
      const got = await heard(ways[one.way]!, (one.way === TOLD_TWICE ? twice : gw).url, async (input, init) => {
        const response = await fetch(input, init)
        id = response.headers.get('x-request-id')!
        return response
      })
      return { ...one, got, id }
    }
    const wholes: Case[] = []
    for (const way of Object.keys(ways)) wholes.push(await play({ at: stream.length, isClean: true, way }))
    const expected = new Map(wholes.map(({ way, got }) => [way, JSON.stringify(got)]))
    const cases: Case[] = []
    for (const one of cutsOf(stream)) cases.push(await play(one))

    const requests = (): Readonly<Record<string, unknown>>[] =>
      [gw, twice].flatMap(({ logged }) => logged).filter(({ msg }) => msg === 'request')
    await until(() => requests().length === wholes.length + cases.length)
    const told = new Map(requests().map(({ request_id: id, nanos }) => [id, nanos]))
    const price = told.get(wholes[0]!.id)
    for (const { way, got } of wholes) {
      t.match(got, { text: /\w/, calls: [['weather', { city: 'Oslo' }]] }, `${way}: the whole answer`)
    }
    const entries = new Map([...await settled(t, gw), ...await settled(t, twice)])
    for (const { way, at, isClean, got, id } of [...wholes, ...cases]) {
      const about = `${way}, ${isClean ? 'ended' : 'cut'} at ${at} of ${stream.length}`
      const entry = entries.get(id)
      const charged = entry && String(-entry.nanos)
      if (charged !== told.get(id)) t.fail(`${about}: the ledger has ${charged}, the log ${told.get(id)}`)
      if (got === 'told') continue
      if (JSON.stringify(got) !== expected.get(way)) t.fail(`${about}: ${JSON.stringify(got) ?? 'silence'}`)
      // Chat style reports its usage behind the end of the answer.
      const isCounted = dialect !== 'chat' || entry?.usage_source === 'provider'
      if (charged === undefined || (isCounted && charged !== price)) t.fail(`${about}: whole for ${charged} of ${price}`)
    }
    const errors = cases.filter(({ got }) => got === 'told').length
    t.ok(errors > cases.length / 2 && errors < cases.length, `${errors} errors of ${cases.length}`)
  })
}
