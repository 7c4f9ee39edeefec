// schema-validate: what is refused and how it is said, and that everything passes which an unmodified client may send.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020 } from 'ajv/dist/2020.js'
import fc from 'fast-check'
import t from 'tap'
import { addKeywords } from '../../plugins/schema-validate/keywords.ts'
import { schemaValidate } from '../../plugins/schema-validate/index.ts'
import { leastTokens } from '../../plugins/schema-validate/least-tokens.ts'
import { compileRequests } from '../../plugins/schema-validate/requests.ts'
import { endpoints } from '../../src/endpoints/index.ts'
import { isGatewayError } from '../../src/errors.ts'
import type { GatewayRequest } from '../../src/core/exchange.ts'
import { type Body, Model } from '../../src/core/facts.ts'
import { packageRoot } from '../../src/base/package.ts'
import { config, exchange, model, snapshot, upstreamConfig } from '../support/exchange.ts'
import { gateway, KEY, messagesRequest, yaml } from '../support/gateway.ts'
import { answer, upstream } from '../support/upstream.ts'

type Json = Readonly<Record<string, unknown>>

/** Images and videos: images.test.ts, multipart.test.ts, and the tests of videos. */
const MEDIA = ['images-generations', 'images-edits', 'videos'] as const
type TextSchema = 'messages' | 'chat-completions' | 'count-tokens'

const PATHS: Readonly<Record<TextSchema, string>> = {
  messages: '/v1/messages', 'chat-completions': '/v1/chat/completions', 'count-tokens': '/v1/messages/count_tokens'
}
const PIPELINE = 'auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'

const BLIND = `models:
  - { id: blind, provider: acme, created: 2025-09-29, context: 200000, max_output: 64000, accepts: [text], channels: { premium: { price: { input: 3, output: 15 }, targets: [{ upstream: u0, model: x, weight: 1 }] } } }
`

/** Without sockets, for what has no route of its own and for every param: the messages style does not show it. */
const on = snapshot(config({
  upstreams: { u: upstreamConfig() },
  models: [
    model('m1', { premium: 'u/x*1' }, { context: 200_000, max_output: 64_000, accepts: ['text', 'image'] }),
    model('blind', { premium: 'u/x*1' }, { context: 1000 }),
    model('unknown', { premium: 'u/x*1', cheap: 'elsewhere/x*1' }),
    model('wide', { premium: 'u/x*1' }, { context: 1_000_000 })
  ],
  routes: [
    ...Object.entries(PATHS).map(([serve, path]) => ({ match: `POST ${path}`, serve })),
    { match: 'POST /v1/forwarded', forward: 'u', price: 'free' as const }
  ]
}), [schemaValidate])

interface Refusal { readonly code: string, readonly param: string | null, readonly message: string }

/** What the plugin makes of a body that came over the wire: the request that goes on, or its refusal. */
function check (
  schema: TextSchema,
  body: Json,
  headers: Readonly<Record<string, string>> = {},
  bytes = JSON.stringify(body).length
): GatewayRequest | Refusal {
  const asked = exchange(on, { path: PATHS[schema], headers })
  asked.bodyBytes = bytes
  const parsed = JSON.parse(JSON.stringify(body)) as Body
  asked.set(Model, on.models.get(String(body['model']))!)
  asked.request = { body: parsed, stream: body['stream'] === true }
  try {
    for (const { call } of asked.route.hooks.onRequest) void call(asked)
    return asked.request
  } catch (thrown) {
    if (!isGatewayError(thrown)) throw thrown
    return { code: thrown.code, param: thrown.param, message: thrown.message }
  }
}

const up = await upstream(t, answer('hi'))
const gw = await gateway(t,
  yaml([up.url], 'routes: [{ match: "POST /v1/embeddings", forward: u0, price: free }]\n', PIPELINE).replace(
    'models:\n',
    BLIND
  ))

const hello = { model: 'm1', max_tokens: 4096, messages: [{ role: 'user', content: 'Hello' }] }
const chatHello = { model: 'm1', messages: [{ role: 'user', content: 'Hello' }] }
const saying = (...content: readonly unknown[]): Json => ({ messages: [{ role: 'user', content }] })
const without = (body: Json, name: string): Json =>
  Object.fromEntries(Object.entries(body).filter(([key]) => key !== name))
const image = { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } }
const base64 = (more: Json): Json => ({
  type: 'image',
  source: { type: 'base64', media_type: 'image/png', data: 'aGk=', ...more }
})
const tool = { name: 'weather', input_schema: { type: 'object' } }
const grammar = (written: unknown): Json => ({
  tools: [{ type: 'custom', custom: { name: 'a', format: { type: 'grammar', grammar: written } } }]
})
const NO_FILES = 'There is no Files API here'

/** what is changed in a good body, the path that the error names, and a part of what it says */
type Row = readonly [change: Json, param: string, message: string]

const messagesRows: readonly Row[] = [
  [{ messages: undefined }, 'messages', 'messages is missing: the conversation so far.'],
  [{ messages: null }, 'messages', 'messages must be an array, not null.'],
  [{ messages: 'Hello' }, 'messages', 'messages must be an array, not a string.'],
  [{ messages: [] }, 'messages', 'messages must not be empty.'],
  [{ messages: ['Hello'] }, 'messages[0]', 'messages[0] must be an object, not a string.'],
  [{ messages: [{ role: 'user', content: 'a' }, { content: 'b' }] }, 'messages[1].role',
    'messages[1].role is missing: who speaks.'],
  [{ messages: [{ role: 'assitant', content: 'a' }] }, 'messages[0].role',
    'must be one of user, assistant, system, not "assitant". Did you mean "assistant"?'],
  [{ messages: [{ role: 'developer', content: 'a' }] }, 'messages[0].role', 'not "developer".'],
  [{ messages: [{ role: 'user' }] }, 'messages[0].content',
    'messages[0].content is missing: what is said: a string, or an array of content blocks.'],
  [{ messages: [{ role: 'user', content: null }] }, 'messages[0].content',
    'must be a string or an array of content blocks, not null.'],
  [{ messages: [{ role: 'user', content: { type: 'text', text: 'a' } }] }, 'messages[0].content',
    'must be a string or an array of content blocks, not an object.'],

  [saying('Hello'), 'messages[0].content[0]', 'must be an object, not a string.'],
  [saying({ text: 'a' }), 'messages[0].content[0].type', 'is missing: which kind of block it is.'],
  [saying({ type: 5 }), 'messages[0].content[0].type', 'must be a string, not a number.'],
  [saying({ type: 'text', text: 'a' }, { type: 'text', text: 5 }), 'messages[0].content[1].text',
    'messages[0].content[1].text must be a string, not a number.'],
  [saying({ type: 'text' }), 'messages[0].content[0].text', 'is missing: the text.'],
  [saying({ type: 'text', text: 'a', cache_control: { type: 'ephemeral', ttl: '24h' } }),
    'messages[0].content[0].cache_control.ttl', 'must be one of 5m, 1h, not "24h".'],
  [saying({ type: 'text', text: 'a', cache_control: 'ephemeral' }), 'messages[0].content[0].cache_control',
    'must be an object, not a string.'],

  [saying({ type: 'image' }), 'messages[0].content[0].source', 'is missing: where the image is.'],
  [saying({ type: 'image', source: 'https://example.com/a.png' }), 'messages[0].content[0].source',
    'must be an object, not a string.'],
  [saying({ type: 'image', source: { url: 'https://example.com/a.png' } }), 'messages[0].content[0].source.type',
    'is missing'],
  [saying({ type: 'image', source: { type: 'file', file_id: 'file_1' } }), 'messages[0].content[0].source.type',
    NO_FILES],
  [saying({ type: 'image', source: { type: 'url' } }), 'messages[0].content[0].source.url', 'is missing'],
  [saying({ type: 'image', source: { type: 'url', url: 'file:///etc/passwd' } }), 'messages[0].content[0].source.url',
    'must be an http or https URL.'],
  [saying({ type: 'image', source: { type: 'url', url: 'data:image/png;base64,aGk=' } }),
    'messages[0].content[0].source.url', 'must be an http or https URL.'],
  [saying(base64({ media_type: 'image/jpg' })), 'messages[0].content[0].source.media_type',
    'Did you mean "image/jpeg"?'],
  [saying(base64({ media_type: 'application/pdf' })), 'messages[0].content[0].source.media_type',
    'must be one of image/jpeg, image/png, image/gif, image/webp, not "application/pdf".'],
  [saying(base64({ media_type: undefined })), 'messages[0].content[0].source.media_type', 'is missing'],
  [saying(base64({ data: 5 })), 'messages[0].content[0].source.data', 'must be a string, not a number.'],

  [saying({ type: 'document', source: { type: 'file', file_id: 'file_1' } }), 'messages[0].content[0].source.type',
    NO_FILES],
  [saying({ type: 'document', source: { type: 'base64', media_type: 'application/pdf' } }),
    'messages[0].content[0].source.data', 'is missing'],
  [saying({ type: 'document', source: { type: 'content', content: [{ type: 'image', source: { type: 'file' } }] } }),
    'messages[0].content[0].source.content[0].source.type', NO_FILES],
  [saying({ type: 'document', source: { type: 'url', url: '/etc/passwd' } }), 'messages[0].content[0].source.url',
    'must be an http or https URL.'],
  [saying({ type: 'search_result', source: 's', title: 't' }), 'messages[0].content[0].content', 'is missing'],
  [saying({ type: 'thinking', signature: 's' }), 'messages[0].content[0].thinking', 'is missing'],
  [saying({ type: 'redacted_thinking', data: {} }), 'messages[0].content[0].data', 'must be a string, not an object.'],
  [saying({ type: 'tool_use', id: 'a', name: 'b', input: '{}' }), 'messages[0].content[0].input',
    'must be an object, not a string.'],
  [saying({ type: 'tool_use', name: 'b', input: {} }), 'messages[0].content[0].id', 'is missing'],
  [saying({ type: 'tool_result', content: 'a' }), 'messages[0].content[0].tool_use_id', 'is missing'],
  [saying({ type: 'tool_result', tool_use_id: 'a', content: [{ type: 'text', text: ['a'] }] }),
    'messages[0].content[0].content[0].text', 'must be a string, not an array.'],
  [saying({ type: 'tool_result', tool_use_id: 'a', is_error: 'no' }), 'messages[0].content[0].is_error',
    'must be true or false, not a string.'],

  [{ max_tokens: undefined }, 'max_tokens', 'max_tokens is missing: the most tokens that may be generated.'],
  [{ max_tokens: null }, 'max_tokens', 'max_tokens must be a whole number, not null.'],
  [{ max_tokens: '100' }, 'max_tokens', 'max_tokens must be a whole number, not a string.'],
  [{ max_tokens: 1.5 }, 'max_tokens', 'max_tokens must be a whole number, not 1.5.'],
  [{ max_tokens: -1 }, 'max_tokens', 'max_tokens must be at least 0, not -1.'],
  [{ max_tokens: 64_001 }, 'max_tokens',
    'max_tokens: 64001 > 64000, which is the maximum allowed number of output tokens for m1.'],
  [{ temperature: 1.01 }, 'temperature', 'temperature must be a number from 0 to 1, not 1.01.'],
  [{ temperature: -0.1 }, 'temperature', 'temperature must be a number from 0 to 1, not -0.1.'],
  [{ temperature: '1' }, 'temperature', 'temperature must be a number from 0 to 1, not a string.'],
  [{ top_p: 2 }, 'top_p', 'top_p must be a number from 0 to 1, not 2.'],
  [{ top_k: 1.5 }, 'top_k', 'top_k must be a whole number, not 1.5.'],
  [{ stop_sequences: 5 }, 'stop_sequences', 'stop_sequences must be an array or a string, not a number.'],
  [{ stop_sequences: ['a', null] }, 'stop_sequences[1]', 'stop_sequences[1] must be a string, not null.'],
  [{ system: 5 }, 'system', 'system must be a string or an array, not a number.'],
  [{ system: [{ type: 'image', source: image.source }] }, 'system[0].text', 'is missing'],
  [{ system: [{ type: 'image', text: 'a' }] }, 'system[0].type', 'must be text, not "image".'],
  [{ thinking: true }, 'thinking', 'thinking must be an object, not true.'],
  [{ thinking: { budget_tokens: 2000 } }, 'thinking.type', 'is missing'],
  [{ thinking: { type: 'enable', budget_tokens: 2000 } }, 'thinking.type', 'Did you mean "enabled"?'],
  [{ thinking: { type: 'enabled' } }, 'thinking.budget_tokens', 'is missing'],
  [{ thinking: { type: 'enabled', budget_tokens: 1023 } }, 'thinking.budget_tokens',
    'must be a whole number of at least 1024, not 1023.'],
  [{ thinking: { type: 'enabled', budget_tokens: 4096 } }, 'thinking.budget_tokens',
    '`max_tokens` must be greater than `thinking.budget_tokens`, and 4096 is not greater than 4096.'],
  [{ tools: {} }, 'tools', 'tools must be an array, not an object.'],
  [{ tools: ['a'] }, 'tools[0]', 'tools[0] must be an object, not a string.'],
  [{ tools: [{ name: 'a' }] }, 'tools[0].input_schema', 'is missing: the JSON Schema of its input.'],
  [{ tools: [{ type: 'custom', input_schema: {} }] }, 'tools[0].name', 'is missing: what the model calls it by.'],
  [{ tools: [tool], tool_choice: 'auto' }, 'tool_choice', 'tool_choice must be an object, not a string.'],
  [{ tools: [tool], tool_choice: { type: 'required' } }, 'tool_choice.type',
    'must be one of auto, any, tool, none, not "required".'],
  [{ tools: [tool], tool_choice: { type: 'tool' } }, 'tool_choice.name', 'is missing'],
  [{ metadata: { user_id: 5 } }, 'metadata.user_id', 'must be a string, not a number.'],
  [{ output_config: { format: { type: 'json' } } }, 'output_config.format.type', 'must be json_schema, not "json".']
]

const chatRows: readonly Row[] = [
  [{ messages: [] }, 'messages', 'messages must not be empty.'],
  [{ messages: [{ role: 'asistant', content: 'a' }] }, 'messages[0].role',
    'must be one of user, assistant, system, developer, tool, function, not "asistant". Did you mean "assistant"?'],
  [{ messages: [{ role: 'user', content: null }] }, 'messages[0].content',
    'must be a string or an array of parts, not null.'],
  [{ messages: [{ role: 'system' }] }, 'messages[0].content', 'is missing'],
  [{ messages: [{ role: 'tool', content: 'a' }] }, 'messages[0].tool_call_id', 'is missing'],
  [{ messages: [{ role: 'function', content: 'a' }] }, 'messages[0].name', 'is missing'],
  [{ messages: [{ role: 'assistant', tool_calls: [{ function: { name: 'a', arguments: '' } }] }] },
    'messages[0].tool_calls[0].id', 'is missing'],
  [{
    messages: [{ role: 'assistant',
      tool_calls: [{ id: 'a', type: 'function', function: { name: 'a', arguments: {} } }] }]
  }, 'messages[0].tool_calls[0].function.arguments', 'must be a string, not an object.'],
  [{ messages: [{ role: 'assistant', tool_calls: [{ id: 'a', type: 'custom', custom: { name: 'a', input: {} } }] }] },
    'messages[0].tool_calls[0].custom.input', 'must be a string, not an object.'],
  [{ messages: [5] }, 'messages[0]', 'messages[0] must be an object, not a number.'],
  [saying(5), 'messages[0].content[0]', 'messages[0].content[0] must be an object, not a number.'],
  [saying({ text: 'a' }), 'messages[0].content[0].type', 'is missing: which kind of part it is.'],
  [{ tools: [5] }, 'tools[0]', 'tools[0] must be an object, not a number.'],
  [saying({ type: 'text', text: 5 }), 'messages[0].content[0].text', 'must be a string, not a number.'],
  [saying({ type: 'image_url', image_url: { url: 'ftp://example.com/a.png' } }), 'messages[0].content[0].image_url.url',
    'must be an http, https or data URL.'],
  [saying({ type: 'image_url', image_url: {} }), 'messages[0].content[0].image_url.url', 'is missing'],
  [saying({ type: 'input_audio', input_audio: { data: 'a', format: 'wav' } }), 'messages[0].content[0]',
    'is not supported. The models here take no audio.'],
  [saying({ type: 'file', file: { file_id: 'file-1' } }), 'messages[0].content[0].file.file_id', NO_FILES],
  [{ max_tokens: 0 }, 'max_tokens', 'must be a whole number of at least 1, not 0.'],
  [{ max_tokens: 64_001 }, 'max_tokens', 'max_tokens: 64001 > 64000'],
  [{ max_completion_tokens: 64_001, max_tokens: 10 }, 'max_completion_tokens',
    'max_completion_tokens: 64001 > 64000, which is the maximum allowed number of output tokens for m1.'],
  [{ temperature: 1.5 }, 'temperature', 'temperature must be a number from 0 to 1, not 1.5.'],
  [{ n: 2 }, 'n', 'n must be 1, not 2.'],
  [{ n: 0 }, 'n', 'n must be 1, not 0.'],
  [{ stop: 5 }, 'stop', 'stop must be an array or a string, not a number.'],
  [{ modalities: ['text', 'audio'] }, 'modalities[1]', 'must be text, not "audio".'],
  [{ web_search_options: {} }, 'web_search_options',
    'web_search_options is not supported. Web search is not sold here.'],
  [{ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, 'tools[0].type',
    'must be one of function, custom, not "web_search_20250305".'],
  [{ tools: [{ type: 'function', function: { name: 'a', parameters: 'none' } }] }, 'tools[0].function.parameters',
    'must be an object, not a string.'],
  [{ tools: [{ type: 'function', name: 5 }] }, 'tools[0].name', 'must be a string, not a number.'],
  [{ tools: [{ type: 'function', name: 'a', parameters: [] }] }, 'tools[0].parameters', 'must be an object, not an array'],
  [{ tool_choice: 'some' }, 'tool_choice', 'must be one of none, auto, required, any, not "some".'],
  [{ tool_choice: { type: 'function', function: {} } }, 'tool_choice.function.name', 'is missing'],
  [{ tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'some', tools: [] } } },
    'tool_choice.allowed_tools.mode', 'must be one of auto, required, any'],
  [{ response_format: { type: 'json_schema' } }, 'response_format.json_schema', 'is missing'],
  [{ response_format: 'json' }, 'response_format', 'must be an object, not a string.'],
  [grammar({ syntax: { toString: 1 }, definition: 'a' }), 'tools[0].custom.format.grammar.syntax',
    'must be a string, not an object.'],
  [grammar({ syntax: 'lark', definition: { toString: 1, valueOf: 1 } }), 'tools[0].custom.format.grammar.definition',
    'must be a string, not an object.'],
  [grammar({ syntax: 'lark' }), 'tools[0].custom.format.grammar.definition', 'is missing: its rules.'],
  [grammar('start: "a"'), 'tools[0].custom.format.grammar', 'must be an object, not a string.'],
  [{ reasoning_effort: 'extreme' }, 'reasoning_effort',
    'must be one of none, minimal, low, medium, high, xhigh, max, not "extreme".'],
  [{ stream_options: { include_usage: 'yes' } }, 'stream_options.include_usage',
    'must be true or false, not a string.'],
  [{ reasoning: { effort: 'extreme' } }, 'reasoning.effort', 'must be one of none, minimal'],
  [{ reasoning: { max_tokens: '5' } }, 'reasoning.max_tokens', 'must be a whole number'],
  [{ usage: { include: 'yes' } }, 'usage.include', 'must be true or false, not a string.'],
  [{ max_tokens: 2000, thinking: { type: 'enabled', budget_tokens: 2000 } }, 'thinking.budget_tokens',
    '`max_tokens` must be greater'],
  [{ max_completion_tokens: 2000, thinking: { type: 'enabled', budget_tokens: 3000 } }, 'thinking.budget_tokens',
    '`max_completion_tokens` must be greater']
]

const tables = [['messages', hello, messagesRows], ['chat-completions', chatHello, chatRows]] as const

for (const [schema, good, rows] of tables) {
  void t.test(`${schema}: an error names the path, what was expected, and what was found`, async (t) => {
    t.match(check(schema, good), { body: good })
    for (const [change, param, message] of rows) {
      const got = check(schema, { ...good, ...change })
      t.match(got, { code: 'invalid_request', param }, JSON.stringify(change))
      t.ok('message' in got && got.message.includes(message), `${JSON.stringify(change)}: ${JSON.stringify(got)}`)
    }
  })
}

void t.test('over the wire each of them is a 400 in the style of its client, costs nothing, and no upstream hears of it', async (t) => {
  const before = up.requests.length
  for (const [schema, good, rows] of tables) {
    for (const [change, param, message] of rows) {
      const got = await post(schema, { ...good, ...change })
      const body = await got.json() as { readonly error: Json & { readonly message: string },
        readonly request_id?: string }
      t.equal(got.status, 400, JSON.stringify(change))
      t.match(body, schema === 'messages'
        ? { type: 'error',
          error: { type: 'invalid_request_error', charged_usd: '0', details: { error_code: 'invalid_request' } } }
        : { error: { type: 'invalid_request_error', code: 'invalid_request', param, charged_usd: '0' } },
        JSON.stringify(change))
      t.ok(body.error.message.includes(message), JSON.stringify([change, body.error.message]))
    }
  }
  t.equal(up.requests.length, before)
})

void t.test('count_tokens: the same checks of the same fields, and none of what is about the answer', async (t) => {
  const counting = without(hello, 'max_tokens')
  t.match(check('count-tokens', counting), { body: counting })
  const about = new Set(['max_tokens', 'temperature', 'top_p', 'top_k', 'stop_sequences', 'metadata'])
  for (const [change, param, message] of messagesRows) {
    const [field] = param.split(/[.[]/) as [string]
    const got = check('count-tokens', { ...counting, ...change })
    if (about.has(field) || message.startsWith('`max_tokens`')) t.match(got, { body: {} }, JSON.stringify(change))
    else t.match(got, { code: 'invalid_request', param }, JSON.stringify(change))
  }
  t.match(check('count-tokens', { ...counting, messages: [{ role: 'user', content: 'word '.repeat(600_000) }] }), {
    body: {}
  }, 'who counts wants to know how much too long it is')
  t.match(check('count-tokens', { ...counting, ...saying(image), model: 'blind' }), { code: 'image_input_not_supported',
    param: 'messages[0].content[0]' })
  const got = await post('count-tokens', { ...counting, messages: [] })
  t.match(await got.json(), { type: 'error',
    error: { message: /^messages must not be empty\./, details: { error_code: 'invalid_request' } } })
})

const openMessages: readonly Json[] = [
  { ...hello, new_field: { any: 'thing' }, temperature: 0, top_p: 1, top_k: 5 },
  { ...hello, temperature: 1, top_p: null, system: null, tools: null, tool_choice: null, thinking: null,
    stop_sequences: null },
  { ...hello, ...saying({ type: 'of_tomorrow', text: 5, content: [{ type: 'nor_this' }], source: 5 }) },
  { ...hello, ...saying({ type: 'thinking', thinking: 'unsigned' }, { type: 'text', text: 'a', of_tomorrow: 1 }) },
  { ...hello, messages: [{ role: 'user', content: 'a', name: 'of_tomorrow' }] },
  { ...hello, thinking: { type: 'disabled', budget_tokens: 0 } },
  { ...hello, tools: [{ ...tool, of_tomorrow: 1 }] }
]

const withoutNulls = (bodies: readonly unknown[]): unknown =>
  JSON.parse(JSON.stringify(bodies, (_name, value: unknown) => value ?? undefined))

void t.test('messages: what nobody knows yet passes as it was sent, but for null and fields beside those of the API', async (t) => {
  const before = up.requests.length
  for (const body of openMessages) { t.equal((await gw.messages(body)).status, 200, JSON.stringify(body)) }
  t.strictSame(withoutNulls(up.requests.slice(before).map(({ body }) => ({ ...body, model: 'm1' }))),
    withoutNulls(openMessages.map(({ new_field: _, ...others }) => others)))
  for (const body of openMessages) { t.match(check('count-tokens', body), { body: {} }) }
})

const openChat: readonly Json[] = [
  { ...chatHello, new_field: 1, thinking: { type: 'enabled', budget_tokens: 1024 }, top_k: 5,
    cache_control: 'whatever it is here' },
  { ...chatHello,
    ...saying({ type: 'text', text: 'a', cache_control: { type: 'ephemeral' },
      prompt_cache_breakpoint: { mode: 'explicit' } }) },
  { ...chatHello, ...saying({ type: 'image_url', image_url: 'https://example.com/a.png' }) },
  { ...chatHello, tools: [{ function: { name: 'a' } }] },
  { ...chatHello,
    messages: [{ role: 'user', content: 'a' }, { role: 'assistant', content: '', reasoning_content: 'b',
      tool_calls: [{ id: 'a', function: { name: 'b' } }] }, { role: 'tool', tool_call_id: 'a', content: null }] }
]

void t.test('chat-completions: what nobody knows yet passes', async (t) => {
  for (const body of openChat) {
    const got = await post('chat-completions', body)
    t.equal(got.status, 200, `${JSON.stringify(body)}: ${await got.text()}`)
  }
})

/** Where anything may be null that need not be there: of a client's own JSON nothing is known. */
const nulls = {
  temperature: null,
  top_p: null,
  top_k: null,
  stream: null,
  stop_sequences: null,
  thinking: null,
  tool_choice: null,
  cache_control: null,
  container: null,
  system: [{ type: 'text', text: 'a', cache_control: null, newer: null }],
  metadata: { user_id: null },
  output_config: { effort: null, format: null },
  tools: [{ type: null, name: 'b', description: null, input_schema: { type: 'object', default: null },
    cache_control: { type: 'ephemeral', ttl: null } }],
  messages: [
    { role: 'user',
      content: [{ type: 'document', title: null, context: null,
        source: { type: 'text', media_type: 'text/plain', data: 'a' } }] },
    { role: 'assistant',
      content: [{ type: 'thinking', thinking: 'c', signature: 'd' }, { type: 'tool_use', id: 'e', name: 'b',
        input: { f: null }, cache_control: null }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'e', content: null, is_error: null }] }
  ]
}

void t.test('null for what is optional goes to no upstream; null in what is the client\'s own does', async (t) => {
  const sent = {
    model: 'vendor-m1', max_tokens: 4096,
    system: [{ type: 'text', text: 'a', newer: null }],
    metadata: {},
    output_config: {},
    tools: [{ name: 'b', input_schema: { type: 'object', default: null }, cache_control: { type: 'ephemeral' } }],
    messages: [
      { role: 'user', content: [{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'a' } }] },
      { role: 'assistant',
        content: [{ type: 'thinking', thinking: 'c', signature: 'd' }, { type: 'tool_use', id: 'e', name: 'b',
          input: { f: null } }] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'e' }] }
    ]
  }
  const asked = async (on: typeof gw, schema: TextSchema, body: Json): Promise<unknown> => {
    const before = up.requests.length
    t.equal(
      (await fetch(on.url + PATHS[schema], { method: 'POST', body: JSON.stringify(body),
        headers: { 'content-type': 'application/json', 'x-api-key': KEY } })).status,
      200
    )
    return up.requests[before]!.body
  }
  t.strictSame(await asked(gw, 'messages', { ...hello, ...nulls }), sent)
  const chat = {
    ...chatHello,
    max_tokens: null,
    max_completion_tokens: 4096,
    stop: null,
    temperature: null,
    top_p: null,
    top_k: null,
    n: null,
    user: null,
    safety_identifier: null,
    stream_options: null,
    response_format: null,
    reasoning_effort: null,
    tool_choice: null,
    parallel_tool_calls: null,
    functions: null,
    function_call: null,
    modalities: null,
    web_search_options: null,
    thinking: { type: 'disabled', budget_tokens: null, display: null },
    tools: [{ type: 'function', function: { name: 'b', description: null, parameters: null, strict: null },
      cache_control: { type: 'ephemeral', ttl: null } }, { type: 'custom',
      custom: { name: 'c', description: null, format: null } }]
  }
  t.notMatch(JSON.stringify(await asked(gw, 'chat-completions', chat)), /null/)
  // Without this plugin nothing is known of the fields: at the top null is nothing all the same.
  const bare = await gateway(t, yaml([up.url]))
  t.strictSame(
    await asked(bare, 'messages', { ...hello, temperature: null, system: null, tools: null, container: null }),
    { ...hello, model: 'vendor-m1' }
  )
  t.notMatch(JSON.stringify(await asked(bare, 'chat-completions', chat)), /null/)
})

void t.test('a version that is no date is refused on messages routes, whoever answers; elsewhere the header is not ours', async (t) => {
  const headers = { 'content-type': 'application/json', 'x-api-key': KEY, 'anthropic-version': 'latest' }
  const asked = async (on: typeof gw, path: string, body: unknown): Promise<Response> =>
    await fetch(on.url + path, { method: 'POST', headers, body: JSON.stringify(body) })
  const chatty = await gateway(t, yaml([up.url], '', PIPELINE).replace('dialect: messages', 'dialect: chat'))
  for (const on of [gw, chatty]) {
    const before = up.requests.length
    for (const schema of ['messages', 'count-tokens'] as const) {
      const refused = await asked(on, PATHS[schema], hello)
      t.equal(refused.status, 400)
      t.match(await refused.json(), { type: 'error',
        error: { type: 'invalid_request_error', message: /anthropic-version is not a date/,
          details: { error_code: 'invalid_request' } } })
    }
    t.equal(up.requests.length, before)
  }
  t.equal((await asked(gw, PATHS['chat-completions'], chatHello)).status, 200)
  t.equal(up.requests.at(-1)!.headers['anthropic-version'], '2023-06-01')
})

void t.test('stop_sequences as one text becomes a list, and only that', async (t) => {
  const before = up.requests.length
  t.equal((await gw.messages({ ...messagesRequest, stop_sequences: 'END' })).status, 200)
  t.strictSame(up.requests[before]!.body, { ...messagesRequest, model: 'vendor-m1', stop_sequences: ['END'] })
  t.match(check('messages', { ...hello, stream: true, stop_sequences: 'END' }), { stream: true,
    body: { ...hello, stop_sequences: ['END'] } })
})

void t.test('max_tokens 0 passes only where every provider of the model knows what it means', async (t) => {
  t.match(check('messages', { ...hello, max_tokens: 0 }), { body: { max_tokens: 0 } })
  t.match(check('messages', { ...hello, model: 'unknown', max_tokens: 0 }), { code: 'invalid_request',
    param: 'max_tokens', message: /must be at least 1, not 0/ })
})

void t.test('the most output is what GET /v1/models/info tells: max_output, or what fits into the model', async (t) => {
  t.match(check('messages', { ...hello, max_tokens: 64_000 }), { body: {} })
  t.match(check('messages', { ...hello, model: 'blind', max_tokens: 1001 }), { param: 'max_tokens',
    message: /1001 > 1000/ })
  t.match(check('messages', { ...hello, model: 'unknown', max_tokens: 1e9 }), { body: {} })
  t.match(check('messages', { ...hello, max_completion_tokens: 1e9 }), { body: {} },
    'in messages style it is an unknown field')
})

void t.test('the thinking budget may pass max_tokens where the vendor lets it: spread over the calls of tools', async (t) => {
  const body = { ...hello, thinking: { type: 'enabled', budget_tokens: 10_000 } }
  t.match(check('messages', body, { 'anthropic-beta': 'oauth-1,interleaved-thinking-2025-05-14' }), { body: {} })
  t.match(check('messages', body, { 'anthropic-beta': 'oauth-1' }), { param: 'thinking.budget_tokens' })
})

void t.test('an image for a model that takes none is refused wherever it is', async (t) => {
  const nested = { type: 'tool_result', tool_use_id: 'a', content: [{ type: 'text', text: 'a' }, image] }
  const document = { type: 'document', source: { type: 'content', content: [image] } }
  const rows: readonly (readonly [TextSchema, Json, string])[] = [
    ['messages', image, '[1]'],
    ['messages', base64({}), '[1]'],
    ['messages', nested, '[1].content[1]'],
    ['messages', document, '[1].source.content[0]'],
    ['messages', { ...nested, content: [document] }, '[1].content[0].source.content[0]'],
    ['messages', { type: 'of_tomorrow', content: [image] }, '[1].content[0]'],
    ['count-tokens', nested, '[1].content[1]'],
    ['chat-completions', { type: 'image_url', image_url: { url: 'https://example.com/a.png' } }, '[1]'],
    ['chat-completions', { type: 'image_url', image_url: 'https://example.com/a.png' }, '[1]'],
    ['chat-completions', { type: 'input_image', image_url: 'https://example.com/a.png' }, '[1]'],
    ['chat-completions', { type: 'file', file: { file_data: 'data:image/png;base64,aGk=' } }, '[1]'],
    ['chat-completions', { type: 'file', file: { file_data: 'aGk=', filename: 'a.JPG' } }, '[1]'],
    ['chat-completions', { type: 'file', file_data: 'DATA:IMAGE/PNG;base64,aGk=' }, '[1]']
  ]
  for (const [schema, block, at] of rows) {
    const roles = schema === 'chat-completions'
      ? [{ role: 'user' }, { role: 'tool', tool_call_id: 'a' }, { role: 'assistant' }, { role: 'system' }]
      : [{ role: 'user' }, { role: 'assistant' }, { role: 'system' }]
    for (const role of roles) {
      const body = { model: 'blind', max_tokens: 10,
        messages: [{ role: 'user', content: 'a' }, { ...role, content: [{ type: 'text', text: 'a' }, block] }] }
      t.match(check(schema, body), { code: 'image_input_not_supported', param: `messages[1].content${at}` },
        JSON.stringify([role, block]))
      t.match(check(schema, { ...body, model: 'm1' }), { body: {} }, JSON.stringify([role, block]))
    }
  }
})

void t.test('what only looks like an image is none: a tool\'s input, a document, the name of a tool', async (t) => {
  for (const block of [{ type: 'tool_use', id: 'a', name: 'image', input: { content: [image], type: 'image' } }, {
    type: 'document',
    title: 'a.png',
    source: { type: 'base64', media_type: 'application/pdf', data: 'a' }
  }]) {
    t.match(check('messages', { ...hello, model: 'blind', max_tokens: 10, ...saying(block) }), { body: {} },
      JSON.stringify(block))
  }
  t.match(
    check('chat-completions', { ...chatHello, model: 'blind',
      ...saying({ type: 'file', file: { file_data: 'data:application/pdf;base64,aGk=', filename: 'a.png' } }) }),
    { body: {} }
  )
})

void t.test('image_input_not_supported over the wire, with base64 that stays bytes', async (t) => {
  const before = up.requests.length
  const got = await gw.messages({ ...messagesRequest, model: 'blind',
    ...saying({ type: 'tool_result', tool_use_id: 'a', content: [base64({ data: 'A'.repeat(100_000) })] }) })
  t.equal(got.status, 400)
  t.match(await got.json(), {
    error: { type: 'invalid_request_error', details: { error_code: 'image_input_not_supported' } }
  })
  const chat = await post('chat-completions', { model: 'blind',
    ...saying({ type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(100_000)}` } }) })
  t.match(await chat.json(), { error: { code: 'image_input_not_supported', param: 'messages[0].content[0]' } })
  t.equal(up.requests.length, before)
})

void t.test('a prompt that certainly does not fit is refused in the vendor\'s words', async (t) => {
  const before = up.requests.length
  const got = await gw.messages({ ...messagesRequest, messages: [{ role: 'user', content: 'word '.repeat(500_000) }] })
  t.equal(got.status, 400)
  t.match(await got.json(), {
    error: { type: 'invalid_request_error', details: { error_code: 'context_length_exceeded' },
      message: /^prompt is too long: at least 250000 tokens > 200000 maximum\. / }
  })
  t.equal(up.requests.length, before)
  const chat = await post('chat-completions', { model: 'm1',
    messages: [{ role: 'user', content: [{ type: 'text', text: 'word '.repeat(500_000) }] }] })
  t.match(await chat.json(), { error: { code: 'context_length_exceeded', param: 'messages' } })
})

void t.test('N7: it is refused only when it is certain, by the bytes that there are', async (t) => {
  const refused = { code: 'context_length_exceeded', param: 'messages' }
  const of = (content: unknown, more: Json = {}): Json => ({
    model: 'blind',
    max_tokens: 10,
    messages: [{ role: 'user', content }],
    ...more
  })
  t.match(check('messages', of('word '.repeat(2002))), refused)
  t.match(check('messages', of('слово '.repeat(2002))), refused)
  t.match(
    check('messages',
      of([{ type: 'tool_result', tool_use_id: 'a', content: [{ type: 'text', text: 'word '.repeat(2002) }] }])),
    refused
  )
  t.match(check('messages', of(Array.from({ length: 2002 }, () => ({ type: 'text', text: ' a' })))), refused)
  t.match(check('messages', of('x'.repeat(128_001))), refused, 'no token is longer than 128')
  t.match(check('messages', of('word '.repeat(2002)), {}, 4001), refused)

  t.match(check('messages', of('word '.repeat(2002)), {}, 4000), { body: {} },
    'so few bytes can\'t hold so many tokens: nobody looks')
  t.match(check('messages', of('word '.repeat(2000))), { body: {} })
  t.match(check('messages', of(' '.repeat(128_000))), { body: {} })
  t.match(
    check('messages',
      of([{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'word '.repeat(5000) } }])),
    { body: {} }
  )
  t.match(check('messages', of('word '.repeat(5000), { context_management: { edits: [] } })), { body: {} },
    'the vendor may shorten it first')
  t.match(
    check('messages', of('a', {
      messages: [{ role: 'system', content: 'word '.repeat(5000), clear_at: 'next_user_message' }, { role: 'user',
        content: 'a' }]
    })),
    { body: {} }
  )
  t.match(check('messages', of('word '.repeat(5000), { model: 'unknown' })), { body: {} })
})

void t.test('the bound of tokens from below is one: no text has fewer, in either of two public vocabularies', async (t) => {
  const { natural, odd } = JSON.parse(
    readFileSync(join(packageRoot, 'test/fixtures/token-counts.json'), 'utf8')
  ) as Readonly<
    Record<'natural' | 'odd', readonly { readonly text: string, readonly o200k: number, readonly cl100k: number }[]>
  >
  t.ok(natural.length + odd.length > 30)
  for (const { text, o200k, cl100k } of [...natural, ...odd]) {
    const least = leastTokens([{ role: 'user', content: text }], 100_000)
    t.ok(least <= Math.min(o200k, cl100k), `${JSON.stringify(text.slice(0, 20))}: ${least}, of ${o200k} and ${cl100k}`)
  }
})

void t.test('what raises the vendor\'s price, or hides from what is held, is refused wherever it is said', async (t) => {
  const before = up.requests.length
  const adding = (definition: Json): Json =>
    saying({ type: 'tool_addition', tool: { type: 'tool_definition', definition } })
  const rows: readonly (readonly [Json, string])[] = [
    [{ thread: { type: 'create' } }, '"thread"'],
    [{ compaction: { type: 'summarize' } }, '"compaction"'],
    [{ context_management: { edits: [{ type: 'clear_thinking_20251015' }, { type: 'compact_20260112' }] } },
      '"compaction"'],
    [{ billing_policy: { type: 'billing_policy', bill_to: 'user_profile' } }, '"billing_policy"'],
    [{ inference_geo: 'us' }, '"inference_geo"'],
    [{ fallbacks: 'default' }, '"fallbacks"'],
    [{ mcp_servers: {} }, '"mcp_servers"'],
    [{ mcp_servers: [{ type: 'url', url: 'https://x', name: 'a' }] }, '"mcp_servers"'],
    [{ tools: [{ type: 'mcp_toolset', mcp_server_name: 'a' }] }, '"mcp_toolset"'],
    [{ tools: [{ type: 'advisor_20260301', name: 'advisor', model: 'm2' }] }, '"advisor"'],
    [{ tools: [{ type: 'web_fetch_20260318', name: 'web_fetch' }] }, '"web_fetch"'],
    [{ tools: [{ type: 'customs_20270101', name: 'a' }] }, '"customs"'],
    [adding({ type: 'web_search_20260318', name: 'web_search' }), '"web_search"']
  ]
  for (const [change, name] of rows) {
    const got = await gw.messages({ ...messagesRequest, ...change })
    t.equal(got.status, 400, JSON.stringify(change))
    const { error } = await got.json() as { error: { message: string, details: Json } }
    t.ok(error.message.includes(name), JSON.stringify([change, error.message]))
    t.match(error.details, { error_code: 'thread' in change ? 'thread_unsupported_request' : 'invalid_request' })
  }
  t.equal(up.requests.length, before)
  for (const change of [
    { thread: null, compaction: null, inference_geo: 'global', fallbacks: null, mcp_servers: [] },
    { context_management: { edits: [{ type: 'clear_tool_uses_20250919' }, { type: { toString: 1 } }, null] } },
    { context_management: null },
    { tools: [{ type: 'browser_toolset_20260801' }] },
    adding({ type: 'custom', name: 'a', input_schema: {} }),
    saying({ type: 'tool_addition', tool: { type: 'tool_reference', name: 'a' } })
  ]) { t.equal((await gw.messages({ ...messagesRequest, ...change })).status, 200, JSON.stringify(change)) }
})

void t.test('a chat body can\'t smuggle such a field past: what chat style does not know does not travel', async (t) => {
  const before = up.requests.length
  const extras = { speed: 'fast', inference_geo: 'us', container: 'c', mcp_servers: [{ url: 'https://x' }],
    fallbacks: 'default', thread: { type: 'create' }, compaction: {}, context_management: {}, service_tier: 'priority',
    betas: ['x'] }
  const got = await post('chat-completions', { ...chatHello, ...extras,
    tools: [{ type: 'function', function: { name: 'a', type: 'web_search_20250305' } }] })
  t.equal(got.status, 200)
  t.strictSame(Object.keys(up.requests[before]!.body!).filter((name) => name in extras), [])
  t.notMatch(JSON.stringify(up.requests[before]!.body), /web_search/)
})

void t.test('routes without a body of ours are left alone', async (t) => {
  const headers = { 'x-api-key': KEY, 'content-type': 'application/json' }
  t.equal((await fetch(`${gw.url}/v1/models`, { headers })).status, 200)
  t.equal((await fetch(`${gw.url}/v1/embeddings`, { method: 'POST', headers, body: '{"messages":5}' })).status, 200)
})

void t.test('no error repeats what may be a prompt', async (t) => {
  const secret = 'My password is hunter2, and do not tell'
  for (const [schema, good, rows] of tables) {
    for (const [change] of rows) {
      // the text in the place of every value, one after the other
      for (const body of replaced({ ...good, ...change }, secret)) {
        const got = check(schema, { ...body, model: 'm1' })
        if ('message' in got) t.notMatch(got.message, /hunter2/, JSON.stringify(body))
      }
    }
  }
})

void t.test('keys that every object has are no fields', async (t) => {
  const body =
    '{"model":"m1","max_tokens":10,"__proto__":{"temperature":5},"constructor":1,"messages":[{"role":"user","content":[{"__proto__":{"type":"image"},"type":"text","text":"a","toString":1}]}],"stop_sequences":"a"}'
  t.match(check('messages', JSON.parse(body) as Json), { body: { stop_sequences: ['a'] } })
  t.match(
    check('messages',
      JSON.parse('{"model":"m1","max_tokens":10,"messages":[{"__proto__":{"role":"user","content":"a"}}]}') as Json),
    { param: 'messages[0].content' }
  )
  t.match(check('messages', { ...hello, messages: [{ role: { toString: 1 }, content: 'a' }] }), {
    message: /not an object/
  })
})

void t.test('a body as large as bodies may be gets one error, or none', async (t) => {
  const many = (item: unknown, length = 300_000): unknown[] => Array.from({ length }, () => item)
  t.match(check('messages', { ...hello, messages: many({ role: 'user', content: '' }) }), { param: 'messages',
    message: 'messages must have at most 100000 items.' })
  t.match(check('messages', { ...hello, messages: [{ role: 'user', content: many('a') }] }), {
    param: 'messages[0].content[0]'
  })
  t.match(check('messages', { ...hello, messages: [{ role: 'user', content: many({ type: 'text', text: '' }) }] }), {
    body: {}
  })
  t.match(check('messages', { ...hello, messages: [{ role: 'r'.repeat(10_000_000), content: '' }] }), {
    message: 'messages[0].role must be one of user, assistant, system, not a string.'
  })
  t.match(check('messages', { ...hello, model: 'wide', ...saying({ type: 'text', text: ' '.repeat(10_000_000) }) }), {
    body: {}
  })
})

void t.test('nothing of a refused body is kept', async (t) => {
  t.match(check('messages', { ...hello, messages: [{ role: 'r'.repeat(1000), content: '' }] }), {
    param: 'messages[0].role'
  })
  t.strictSame(compileRequests().get('messages')!.errors!.map(({ data }) => data), [undefined])
})

const files = readdirSync(join(packageRoot, 'config', 'requests'))

void t.test('the schemas are valid, every endpoint\'s is there, and each says of every property what it is', async (t) => {
  t.strictSame(files.toSorted(), [...Object.keys(PATHS), ...MEDIA, 'responses'].map((name) => `${name}.json`).toSorted())
  for (const [name, endpoint] of Object.entries(endpoints)) {
    if ('schema' in endpoint) t.ok(files.includes(`${endpoint.schema}.json`), name)
  }
  t.ok(
    (JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as { files: string[] }).files.includes(
      'config'
    ),
    'shipped'
  )
  const ajv = new Ajv2020({ strict: false })
  for (const file of files) {
    const schema = JSON.parse(readFileSync(join(packageRoot, 'config', 'requests', file), 'utf8')) as Json
    t.equal(schema['$schema'], 'https://json-schema.org/draft/2020-12/schema')
    t.ok(ajv.validateSchema(schema), `${file}: ${ajv.errorsText()}`)
    t.strictSame(undescribed(schema), [], file)
  }
})

/** Properties without a description. What stands in `if` and `not` describes nothing, it asks. */
function undescribed (schema: unknown, path = ''): string[] {
  if (typeof schema !== 'object' || schema === null) return []
  return Object.entries(schema).flatMap(([name, value]: [string, unknown]) => {
    if (name === 'if' || name === 'not') return []
    const properties = name !== 'properties' || path.endsWith('/properties') ? {} : value
    const bare = Object.entries(properties as Readonly<Record<string, { readonly description?: unknown }>>)
      .filter(([, property]) => typeof property.description !== 'string')
      .map(([property]) => `${path}/properties/${property}`)
    return [...bare, ...undescribed(value, `${path}/${name}`)]
  })
}

/** The same value with `by` in the place of one of its leaves, for each of them. */
function * replaced (value: unknown, by: string): Generator<Json> {
  if (typeof value !== 'object' || value === null) return
  for (const [name, child] of Object.entries(value)) {
    const isLeaf = typeof child !== 'object' || child === null
    for (const other of isLeaf
      ? [by]
      : [by, ...replaced(child, by)]) {
      yield (Array.isArray(value)
        ? value.with(Number(name), other)
        : { ...value, [name]: other }) as Json
    }
  }
}

function post (schema: TextSchema, body: Json): Promise<Response> {
  return fetch(gw.url + PATHS[schema], { method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` }, body: JSON.stringify(body) })
}

void t.test('an `if` that compares a field decides as JSON Schema\'s own, with the same first mistake', async (t) => {
  const asks = (field: string, value: object, then: object): object =>
    ({ if: { required: [field], properties: { [field]: value } }, then })
  const schema = { allOf: [
    asks('kind', { const: 'a' }, { required: ['text'], properties: { text: { type: 'string' } } }),
    asks('kind', { enum: ['b', 'a"]\\'] }, { $ref: '#/$defs/other' }),
    asks('other', { const: 'b' }, { type: 'object', minProperties: 2 }),
    asks('kind', { enum: ['b', 1] }, { required: ['other'] })
  ], properties: { kind: { type: ['string', 'number'] } },
  $defs: { other: { type: 'object', properties: { other: asks('kind', { const: 'a' }, { required: ['text'] }) } } } }
  const [ours, usual] = [new Ajv2020({ strict: false }), new Ajv2020({ strict: false })]
  addKeywords(ours)
  const [own, plain] = [ours.compile(schema), usual.compile(schema)]
  const word = fc.constantFrom('a', 'b', 'a"]\\', 'c', 1, null, [])
  const other = fc.oneof(word, fc.record({ kind: word }, { requiredKeys: [] }))
  const some = fc.record({ kind: word, text: word, other }, { requiredKeys: [] })
  fc.assert(fc.property(fc.oneof({ weight: 9, arbitrary: some }, word), (value) => {
    t.equal(own(value), plain(value))
    const [{ instancePath, keyword } = {}] = own.errors ?? []
    const [first = {}] = plain.errors ?? []
    t.match(first, { instancePath, keyword })
  }), { numRuns: 500 })
  const [first] = schema.allOf
  t.notMatch(ours.compile(first!).toString(), /vErrors = \[/, 'and makes none to throw it away')
  t.match(usual.compile(first!).toString(), /vErrors = \[/)
})
