// What unmodified SDKs make of a stream: one way to read it for each of their methods.
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
import { KEY } from '../support/gateway.ts'

Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })

const city = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] as string[] } as const
export const messagesTool = { name: 'weather', input_schema: city }
export const chatTool = { type: 'function', function: { name: 'weather', parameters: city } } as const
export const responsesTool = { type: 'function', name: 'weather', parameters: city, strict: false } as const

/**
 * Text and calls of an answer that is over; a throw or `told`: an error; undefined: it ended, and nothing says how, or
 * that its limit did.
 */
export type Heard = { readonly text: string, readonly calls: readonly (readonly [name: string, input: unknown])[] } | 'told'
  | undefined
export type Listen = (url: string, fetch: typeof globalThis.fetch) => Promise<Heard>

const call = (name: string, input: string): readonly [string, unknown] => [name, JSON.parse(input)]

function ofMessage ({ content, stop_reason: reason }: Anthropic.Message): Heard {
  return reason === null || reason === 'max_tokens' ? undefined : {
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
      let isLimited = false
      for await (const event of await client(url, fetch).messages.create({ ...body, stream: true })) {
        if (event.type === 'content_block_start' && event.content_block.type === 'tool_use') {
          calls.push([event.content_block.name, ''])
        } else if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') text += event.delta.text
        else if (event.type === 'content_block_delta' && event.delta.type === 'input_json_delta') {
          calls.at(-1)![1] += event.delta.partial_json
        } else if (event.type === 'message_delta') isLimited = event.delta.stop_reason === 'max_tokens'
        else if (event.type === 'message_stop') isOver = true
      }
      return isOver && !isLimited ? { text, calls: calls.map(([name, input]) => call(name, input)) } : undefined
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
      return (reason as string | null ?? 'length') === 'length' ? undefined : { text: message.content ?? '',
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
        isOver ||= (choice?.finish_reason ?? 'length') !== 'length'
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
export const TOLD_TWICE = 'langchain, ChatOpenAI, useResponsesApi'

export const ways: Readonly<Record<string, Listen>> = {
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

export async function heard (listen: Listen, ...to: Parameters<Listen>): Promise<Heard> {
  try {
    return await listen(...to)
  } catch (error) {
    if (error instanceof SyntaxError) throw error             // of the arguments of a call that was said to be whole
    return 'told'
  }
}
