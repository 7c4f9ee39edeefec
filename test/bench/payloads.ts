// What travels: requests, replies and events of the benchmark, in the three client dialects. Strings are ASCII, so
// length is bytes.
import { seededRandom } from './statistics.ts'

export type DialectName = 'messages' | 'chat' | 'responses'

export const publicModel = 'bench-model'
/** with three targets */
export const outageModel = 'bench-outage'
/** at an upstream that takes a while, and only so many at a time */
export const sharedModel = 'bench-shared'
export const upstreamModel = 'bench-upstream-model'
export const apiKey = 'sk-gw-' + 'BenchKey'.repeat(4)
/** of accounts that share an upstream: the first wants more than its share */
export const sharers: readonly string[] = Array.from({ length: 25 }, (_, i) => 'sk-gw-' + `Sharer${i}`.padEnd(32, 'x'))
/** milliseconds that the shared upstream thinks about an answer, and below which path it is */
export const thinkMs = 40
export const thinkPath = '/think'

export interface Dialect {
  readonly path: string
  /** a request's body */
  request (options: { readonly stream: boolean, readonly content: unknown }): string
  /** an image of so many bytes of base64, as a content block */
  image (base64: string): unknown
  /** what an upstream of this dialect answers */
  readonly reply: string
  readonly opening: readonly string[]
  event (text: string): string
  /** what stands before the stamp of an event, and in no event that repeats it */
  readonly stamped: string
  readonly closing: readonly string[]
  /** stands in the last event of a stream that ended well */
  readonly terminal: string
}

const words =
  'the quick brown fox jumps over the lazy dog while a gateway counts every token of it and bills none twice '

/** About 1 KB of request on the wire. */
export const prompt = words.repeat(7)

// An event carries the time of its sending: upstream and client are one process, so they share the clock.
const stampDigits = 14
export const stamp = (nowMs: number): string => `@${nowMs.toFixed(3).padStart(stampDigits, '0')}`

/** @returns the time of sending that an event carries, or NaN: pings and frames carry none */
export function readStamp (event: string, { stamped }: Dialect): number {
  const at = event.indexOf(stamped)
  return at === -1 ? NaN : Number(event.slice(at + stamped.length, at + stamped.length + stampDigits))
}

const sse = (json: { readonly type: string }): string => `event: ${json.type}\ndata: ${JSON.stringify(json)}\n\n`
const chunk = (json: object): string => `data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1760000000, model: upstreamModel, ...json })}\n\n`

export const message = {
  id: 'msg_01BenchBenchBenchBenchBe', type: 'message', role: 'assistant', model: upstreamModel,
  stop_reason: null as string | null, stop_sequence: null,
  usage: { input_tokens: 180, cache_creation_input_tokens: 0, cache_read_input_tokens: 64, output_tokens: 1 }
}

const response = { id: 'resp_bench', object: 'response', created_at: 1760000000, status: 'in_progress',
  model: upstreamModel, output: [] as object[] }
const item = { id: 'msg_bench', type: 'message', role: 'assistant', status: 'in_progress', content: [] as object[] }
const inText = { item_id: 'msg_bench', output_index: 0, content_index: 0 }
const textPart = (text: string): object => ({ type: 'output_text', text, annotations: [], logprobs: [] })

/** The most that the model of the bench gives: a stream of the bench goes on for as long as a burst. */
export const MOST_TOKENS = 10_000_000

function tokensOf (stream: boolean): number {
  return stream ? MOST_TOKENS : 1024
}

export const dialects: Readonly<Record<DialectName, Dialect>> = {
  messages: {
    path: '/v1/messages',
    request: ({ stream, content }) =>
      JSON.stringify({
        model: publicModel,
        max_tokens: tokensOf(stream),
        stream,
        system: 'Answer in short sentences.',
        messages: [{ role: 'user', content }],
        temperature: 0.7
      }),
    image: (base64) => ({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: base64 } }),
    reply: JSON.stringify({
      ...message,
      content: [{ type: 'text', text: words.repeat(4) }],
      stop_reason: 'end_turn',
      usage: { ...message.usage, output_tokens: 96 }
    }),
    opening: [
      sse({ type: 'message_start', message: { ...message, content: [] } } as { type: string }),
      sse({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } } as { type: string })
    ],
    event: (text) =>
      sse({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } } as { type: string }),
    closing: [
      sse({ type: 'content_block_stop', index: 0 } as { type: string }),
      sse(
        { type: 'message_delta', delta: { stop_reason: 'end_turn', stop_sequence: null },
          usage: { output_tokens: 96 } } as { type: string }
      ),
      sse({ type: 'message_stop' })
    ],
    stamped: '"text":"@',
    terminal: '"message_stop"'
  },
  chat: {
    path: '/v1/chat/completions',
    request: ({ stream, content }) => JSON.stringify({
      model: publicModel, max_tokens: tokensOf(stream), stream, temperature: 0.7,
      messages: [{ role: 'system', content: 'Answer in short sentences.' }, { role: 'user', content }]
    }),
    image: (base64) => ({ type: 'image_url', image_url: { url: `data:image/png;base64,${base64}` } }),
    reply: JSON.stringify({
      id: 'chatcmpl-1',
      object: 'chat.completion',
      created: 1760000000,
      model: upstreamModel,
      choices: [{ index: 0, message: { role: 'assistant', content: words.repeat(4), refusal: null }, logprobs: null,
        finish_reason: 'stop' }],
      usage: { prompt_tokens: 244, completion_tokens: 96, total_tokens: 340 }
    }),
    opening: [chunk({ choices: [{ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null }] })],
    event: (text) => chunk({ choices: [{ index: 0, delta: { content: text }, finish_reason: null }] }),
    closing: [chunk({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }), 'data: [DONE]\n\n'],
    stamped: '"content":"@',
    terminal: '[DONE]'
  },
  responses: {
    path: '/v1/responses',
    request: ({ stream, content }) => JSON.stringify({
      model: publicModel, max_output_tokens: tokensOf(stream), stream, temperature: 0.7, store: false,
      instructions: 'Answer in short sentences.',
      input: [{ role: 'user', content: typeof content === 'string' ? content
        : (content as readonly { readonly type: string }[]).map((part) =>
          part.type === 'text' ? { ...part, type: 'input_text' } : part) }]
    }),
    image: (base64) => ({ type: 'input_image', detail: 'auto', image_url: `data:image/png;base64,${base64}` }),
    reply: JSON.stringify({
      ...response,
      status: 'completed',
      output: [{ ...item, status: 'completed', content: [textPart(words.repeat(4))] }],
      usage: { input_tokens: 244, input_tokens_details: { cached_tokens: 64 }, output_tokens: 96,
        output_tokens_details: { reasoning_tokens: 0 }, total_tokens: 340 }
    }),
    opening: [
      sse({ type: 'response.created', response } as { type: string }),
      sse({ type: 'response.output_item.added', output_index: 0, item } as { type: string }),
      sse({ type: 'response.content_part.added', ...inText, part: textPart('') } as { type: string })
    ],
    event: (text) => sse({ type: 'response.output_text.delta', ...inText, delta: text, logprobs: [] } as { type: string }),
    closing: [
      sse({ type: 'response.output_item.done', output_index: 0, item } as { type: string }),
      sse({ type: 'response.completed', response: { ...response, status: 'completed' } } as { type: string })
    ],
    stamped: '"delta":"@',
    terminal: '"response.completed"'
  }
}

/** A whole request, ready for the socket. */
export function toWire (path: string, body: string, key = apiKey): Buffer {
  return Buffer.from(
    `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: ${key}\r\nanthropic-version: 2023-06-01\r\n` +
      `user-agent: gateway-bench\r\naccept: */*\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    'latin1'
  )
}

/** One of 1 KB. */
export function smallRequest (dialect: Dialect, stream: boolean): Buffer {
  return toWire(dialect.path, dialect.request({ stream, content: prompt }))
}

// Random bytes, since a run of one letter would be kinder to caches than a picture is.
let largeBase64 = ''

/** One with a base64 image of 5 MB. */
export function largeRequest (dialect: Dialect): Buffer {
  if (largeBase64 === '') {
    const random = seededRandom(5)
    largeBase64 = Buffer.from(Uint8Array.from({ length: 5_000_000 / 4 * 3 }, () => random() * 256)).toString('base64')
  }
  return toWire(dialect.path,
    dialect.request({ stream: false, content: [dialect.image(largeBase64), { type: 'text', text: 'What is this?' }] }))
}
