// The ways to ask for an answer: unmodified SDKs of all three styles, in one piece and as a stream. What each of them
// got is told in no style.
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { KEY, type TestGateway } from '../support/gateway.ts'

export interface Clients { readonly anthropic: Anthropic, readonly openai: OpenAI }

export const clientsOf = ({ url }: TestGateway): Clients => ({
  anthropic: new Anthropic({ apiKey: KEY, baseURL: url, maxRetries: 0 }),
  openai: new OpenAI({ apiKey: KEY, baseURL: `${url}/v1`, maxRetries: 0 })
})

/** What a client got, in no style. */
export interface Got {
  readonly id: string
  readonly text: string
  readonly thought: string
  readonly calls: readonly { readonly id: string, readonly name: string, readonly input: unknown }[]
  readonly reason: string | null
  /** all input, cached or not */
  readonly input: number
  readonly cached: number
  readonly output: number
}

export const place = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } as const
export const zone = { type: 'object',
  properties: { zone: { type: 'string' },
    list: { type: 'array', items: { type: 'object', properties: { 'a "b" \\ {': { type: 'string' } } } } } } as const

export interface Asking { readonly directive: string, readonly tools?: boolean, readonly thinks?: boolean }

const prompt = ({ directive }: Asking): string => `Weather in Tromsø, {“naïve” 🙂}? [[sim: ${directive}]]`

export function messagesBody (asking: Asking): Anthropic.MessageCreateParamsNonStreaming {
  return {
    model: 'm1', max_tokens: 900,
    messages: [{ role: 'user', content: prompt(asking) }],
    ...(asking.tools === true &&
      {
        tools: [{ name: 'weather', input_schema: place }, { name: 'clock',
          input_schema: zone }] as unknown as Anthropic.Tool[]
      }),
    ...(asking.thinks === true && { output_config: { effort: 'low' } })
  }
}

export function chatBody (asking: Asking): OpenAI.ChatCompletionCreateParamsNonStreaming {
  return {
    model: 'm1', max_tokens: 900,
    messages: [{ role: 'user', content: prompt(asking) }],
    ...(asking.tools === true &&
      {
        tools: [{ type: 'function', function: { name: 'weather', parameters: place } }, { type: 'function',
          function: { name: 'clock', parameters: zone } }] as unknown as OpenAI.ChatCompletionTool[]
      }),
    ...(asking.thinks === true && { reasoning_effort: 'low' })
  }
}

function responsesBody (asking: Asking): OpenAI.Responses.ResponseCreateParamsNonStreaming {
  return {
    model: 'm1', max_output_tokens: 900, store: false,
    input: prompt(asking),
    ...(asking.tools === true && { tools: [
      { type: 'function', name: 'weather', parameters: place, strict: false },
      { type: 'function', name: 'clock', parameters: zone, strict: false }
    ] as unknown as OpenAI.Responses.Tool[] }),
    ...(asking.thinks === true && { reasoning: { effort: 'low', summary: 'auto' } })
  }
}

function ofMessage (id: string | null | undefined, { content, stop_reason: reason, usage }: Anthropic.Message): Got {
  return {
    id: id!,
    text: content.map((block) => block.type === 'text' ? block.text : '').join(''),
    thought: content.map((block) => block.type === 'thinking' ? block.thinking : '').join(''),
    calls: content.flatMap((block) =>
      block.type === 'tool_use' ? [{ id: block.id, name: block.name, input: block.input }] : []
    ),
    reason: { end_turn: 'stop', tool_use: 'tool_calls' }[reason as string] ?? reason,
    input: usage.input_tokens + (usage.cache_read_input_tokens ?? 0),
    cached: usage.cache_read_input_tokens ?? 0,
    output: usage.output_tokens
  }
}

function ofCompletion (id: string | null | undefined, { choices, usage }: OpenAI.ChatCompletion): Got {
  const { message, finish_reason: reason } = choices[0]!
  return {
    id: id!,
    text: message.content ?? '',
    thought: (message as { readonly reasoning_content?: string }).reasoning_content ?? '',
    calls: (message.tool_calls ?? []).map((call) =>
      call.type === 'function'
        ? { id: call.id, name: call.function.name, input: JSON.parse(call.function.arguments) as unknown }
        : { id: call.id, name: '', input: undefined }
    ),
    reason,
    input: usage!.prompt_tokens,
    cached: usage!.prompt_tokens_details!.cached_tokens!,
    output: usage!.completion_tokens
  }
}

function ofResponse (id: string | null | undefined, response: OpenAI.Responses.Response): Got {
  const { status, error, output, output_text: text, usage } = response
  if (status === 'failed') throw new Error(error!.message)
  const calls = output.flatMap((item) => item.type === 'function_call'
    ? [{ id: item.call_id, name: item.name, input: JSON.parse(item.arguments) as unknown }]
    : [])
  return {
    id: id!,
    text,
    thought: output.flatMap((item) => item.type === 'reasoning' ? item.summary : []).map((part) => part.text).join(''),
    calls,
    reason: status !== 'completed' ? status! : calls.length > 0 ? 'tool_calls' : 'stop',
    input: usage!.input_tokens,
    cached: usage!.input_tokens_details.cached_tokens,
    output: usage!.output_tokens
  }
}

/** Each way to ask, by its name. */
export function ways ({ anthropic, openai }: Clients): Readonly<Record<string, (asking: Asking) => Promise<Got>>> {
  return {
    async 'messages, JSON' (asking) {
      const { data, request_id: id } = await anthropic.messages.create(messagesBody(asking)).withResponse()
      return ofMessage(id, data)
    },
    async 'messages, stream' (asking) {
      const stream = anthropic.messages.stream(messagesBody(asking))
      return ofMessage((await stream.withResponse()).request_id, await stream.finalMessage())
    },
    async 'chat, JSON' (asking) {
      const { data, request_id: id } = await openai.chat.completions.create(chatBody(asking)).withResponse()
      return ofCompletion(id, data)
    },
    async 'chat, stream' (asking) {
      let id: string | null = null
      const seen = new OpenAI({ apiKey: KEY, baseURL: openai.baseURL, maxRetries: 0, fetch: async (input, init) => {
        const response = await fetch(input, init)
        id = response.headers.get('x-request-id')
        return response
      } })
      const stream = seen.chat.completions.stream({ ...chatBody(asking), stream: true,
        stream_options: { include_usage: true } })
      // Of fields that it does not know the SDK keeps the last piece alone.
      let thought = ''
      stream.on('chunk', ({ choices: [choice] }) => {
        thought += (choice?.delta as { readonly reasoning_content?: string } | undefined)?.reasoning_content ?? ''
      })
      const completion = await stream.finalChatCompletion()
      return { ...ofCompletion(id, completion), thought }
    },
    async 'responses, JSON' (asking) {
      const { data, request_id: id } = await openai.responses.create(responsesBody(asking)).withResponse()
      return ofResponse(id, data)
    },
    async 'responses, stream' (asking) {
      const response = await openai.responses.stream({ ...responsesBody(asking), stream: true }).finalResponse()
      return ofResponse(response.id.replace('resp_', 'req_'), response)
    }
  }
}
