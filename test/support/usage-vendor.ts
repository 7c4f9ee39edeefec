// Vendors of each dialect that report usage where a test wants it, and the usage that a client of each style reads.
import type { Test } from 'tap'
import type { Got } from './billing-client.ts'
import type { Style } from './client-styles.ts'
import { gateway, KEY, type GatewayTestOptions, type TestGateway } from './gateway.ts'
import { json, raw, type Received, type Script, upstream } from './upstream.ts'

export type Json = Readonly<Record<string, unknown>>
export const dialects = ['chat', 'messages', 'responses'] as const
export type Dialect = typeof dialects[number]

/** Where a stream reports usage: with its beginning, between words, with the finish reason, behind that. */
export const positions = ['start', 'middle', 'finish', 'after'] as const
export type Position = typeof positions[number]
export type Reports = Readonly<Partial<Record<Position, unknown>>>

/** Two pieces, between which is `middle`. */
export const PIECES = ['The ferry leaves at noon. '.repeat(20), 'It is back at three. '.repeat(20)] as const
export const TEXT = PIECES.join('')

/** The bytes of a stream, part by part; '' where a dialect has none. */
interface Parts {
  start (usage: unknown): string
  text (piece: string): string
  middle (usage: unknown): string
  finish (usage: unknown): string
  after (usage: unknown): string
  end (usage: unknown): string
  reply (usage: unknown): Json
}

const data = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`
const event = (type: string, fields: object): string => `event: ${type}\n${data({ type, ...fields })}`
const given = (usage: unknown): object => usage === undefined ? {} : { usage }
const chunk = (delta: object, finish: string | null, usage?: unknown): string =>
  data({ id: 'chatcmpl-1', choices: [{ index: 0, delta, finish_reason: finish }], ...given(usage) })
const usageChunk = (usage: unknown): string => usage === undefined ? '' : data({ choices: [], usage })
const usageEvent = (usage: unknown): string =>
  usage === undefined ? '' : event('message_delta', { delta: {}, usage })
const head = { id: 'msg_1', type: 'message', role: 'assistant', model: 'v' }
const item = { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content: [] }
const response = { id: 'resp_1', object: 'response', error: null }

export const parts: Readonly<Record<Dialect, Parts>> = {
  chat: {
    start: (usage) => chunk({ role: 'assistant', content: '' }, null, usage),
    text: (content) => chunk({ content }, null),
    middle: usageChunk,
    finish: (usage) => chunk({}, 'stop', usage),
    after: usageChunk,
    end: () => 'data: [DONE]\n\n',
    reply: (usage) => ({ id: 'chatcmpl-1', object: 'chat.completion',
      choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: TEXT } }], ...given(usage) })
  },
  messages: {
    start: (usage) => event('message_start', { message: { ...head, content: [], stop_reason: null, ...given(usage) } }) +
      event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
    text: (text) => event('content_block_delta', { index: 0, delta: { type: 'text_delta', text } }),
    middle: usageEvent,
    finish: (usage) => event('content_block_stop', { index: 0 }) +
      event('message_delta', { delta: { stop_reason: 'end_turn', stop_sequence: null }, ...given(usage) }),
    after: usageEvent,
    end: () => event('message_stop', {}),
    reply: (usage) => ({ ...head, content: [{ type: 'text', text: TEXT }], stop_reason: 'end_turn',
      stop_sequence: null, ...given(usage) })
  },
  responses: {
    start: (usage) => event('response.created', { response: { ...response, status: 'in_progress', output: [],
      ...given(usage) } }) + event('response.output_item.added', { output_index: 0, item }),
    text: (delta) => event('response.output_text.delta', { output_index: 0, item_id: 'msg_1', content_index: 0, delta }),
    middle: (usage) => usage === undefined ? '' : event('response.in_progress', { response: { ...response,
      status: 'in_progress', usage } }),
    finish: () => '',
    after: () => '',
    end: (usage) => event('response.completed', { response: { ...response, status: 'completed', output: [],
      ...given(usage) } }),
    reply: (usage) => ({ ...response, status: 'completed', ...given(usage),
      output: [{ ...item, content: [{ type: 'output_text', text: TEXT, annotations: [] }] }] })
  }
}

/** All parts of a stream. */
export function streamOf (dialect: Dialect, reports: Reports): readonly string[] {
  const { start, text, middle, finish, after, end } = parts[dialect]
  return [start(reports.start), text(PIECES[0]), middle(reports.middle), text(PIECES[1]), finish(reports.finish),
    after(reports.after), end(reports.finish)].filter((part) => part !== '')
}

export const MODEL = { context: 200_000, max_output: 64_000 } as const

/** A gateway with a model for each dialect, of its name; `apart` speaks chat and counts thoughts apart. */
export async function usageGateway (
  t: Test, script: (received: Received, dialect: Dialect) => Script | Promise<Script>,
  options: GatewayTestOptions & { readonly isFree?: boolean, readonly usageTimeout?: string,
    readonly plugin?: string } = {}
): Promise<TestGateway> {
  const vendor = await upstream(t, (received) => script(received, received.path.split('/')[1] as Dialect))
  const price = options.isFree === true ? 'free' : '{ input: 1, output: 10, cache_read: 0.1, cache_write: 1.25 }'
  const names = [...dialects, 'apart'] as const
  const dialectOf = (name: string): string => name === 'apart' ? 'chat' : name
  return await gateway(t, `
server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
store: { driver: memory, path: ./data }
pipeline: [auth, chat-to-messages, channel-router, billing-meter, error-normalize${options.plugin === undefined ? '' : `, { use: ${options.plugin} }`}]
upstreams:
${names.map((name) => `  ${name}:
    url: "${vendor.url}/${dialectOf(name)}"
    dialect: ${dialectOf(name)}
    retries: { attempts: 0, max_backoff: 1ms }
    breaker: { failures: 1000000 }
    timeouts: { usage: ${options.usageTimeout ?? '1s'} }${name === 'apart' ? '\n    chat: { reasoning_tokens: apart }' : ''}`).join('\n')}
models:
${names.map((name) => `  - id: ${name}
    provider: acme
    created: 2026-01-01
    context: ${MODEL.context}
    max_output: ${MODEL.max_output}
    channels: { premium: { price: ${price}, targets: [{ upstream: ${name}, model: v }] } }`).join('\n')}
accounts: [{ id: acme, opening_balance_usd: 100000 }]
keys: [{ id: acme-dev, account: acme, secret: ${KEY} }]
`, options)
}

export function answering (dialect: Dialect, { body }: Received, reports: Reports): Script {
  return body?.stream === true ? streamOf(dialect, reports).map(raw) : json(parts[dialect].reply(reports.finish))
}

/** Tokens, as a client reads them. */
export interface Shown {
  /** of all classes */
  readonly input: number
  readonly read: number
  readonly output: number
}

interface Counts { readonly [name: string]: number | Counts | null | undefined }

const record = (value: unknown): Counts => (value ?? {}) as Counts
const number = (value: unknown): number => value as number

const readers: Readonly<Record<Style, (got: Got) => Shown>> = {
  messages ({ events, body }) {
    const reports = body === undefined
      ? events.map(({ data: { message, usage } }) => record((message as Json | undefined)?.usage ?? usage))
      : [record(body.usage)]
    const read: Record<string, number> = {}
    for (const report of reports) {
      for (const [name, value] of Object.entries(report)) if (typeof value === 'number') read[name] = value
    }
    const cached = read['cache_read_input_tokens'] ?? 0
    return { input: number(read['input_tokens']) + cached + (read['cache_creation_input_tokens'] ?? 0), read: cached,
      output: number(read['output_tokens']) }
  },
  chat ({ events, body }) {
    const usage = record((body ?? events.map(({ data: one }) => one).findLast((one) => one['usage']))?.['usage'])
    return { input: number(usage['prompt_tokens']),
      read: number(record(usage['prompt_tokens_details'])['cached_tokens']), output: number(usage['completion_tokens']) }
  },
  responses ({ events, body }) {
    const usage = record((body ?? events.at(-1)!.data['response'] as Json)['usage'])
    return { input: number(usage['input_tokens']),
      read: number(record(usage['input_tokens_details'])['cached_tokens']), output: number(usage['output_tokens']) }
  }
}

export function shownUsage (style: Style, got: Got): Shown {
  return readers[style](got)
}
