// The dialect `responses`: what goes out, in the eyes of the simulator, which is as strict as the vendor; what comes
// back, as the simulator streams it and as its imitators might; and streams that are broken in every place.
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { chatToMessages } from '../../plugins/chat-to-messages/index.ts'
import type { ModelConfig, ResponsesConfig } from '../../src/config/config.ts'
import { type GatewayError, isGatewayError } from '../../src/errors.ts'
import type { Routed as Exchange } from '../../src/core/endpoint.ts'
import { ApiKey, Body as BodyFact, Model } from '../../src/core/facts.ts'
import { SseDecoder, SseEvent } from '../../src/core/sse.ts'
import { isRecord } from '../../src/base/json.ts'
import { parseFaults } from '../../src/simulator/faults.ts'
import { checkResponses } from '../../src/simulator/responses-body.ts'
import { ResponsesMemory } from '../../src/simulator/responses-memory.ts'
import { responsesDialect } from '../../src/simulator/responses.ts'
import { seededRandom } from '../../src/simulator/random.ts'
import { errorIn } from '../../src/core/vendor-error.ts'
import type { UpstreamErrorBody } from '../../src/upstream/dialects/error-reply.ts'
import { dialects } from '../../src/upstream/dialects/index.ts'
import { sealThought } from '../../src/upstream/dialects/thoughts.ts'
import { codePoint } from '../support/code-point.ts'
import { account, config, exchange, key, model, snapshot, upstreamConfig, upstreamOf } from '../support/exchange.ts'

type Body = Readonly<Record<string, unknown>>

interface Setting {
  readonly body?: Body | undefined
  /** a chat client's own */
  readonly own?: Body | undefined
  readonly model?: Partial<ModelConfig> | undefined
  readonly options?: ResponsesConfig | undefined
  readonly url?: string
  /** one of two of the same vendor */
  readonly name?: string
}

const HELLO = [{ role: 'user', content: 'Hello' }]
const COMMON = { model: 'm1', max_tokens: 100, messages: HELLO }
const on = new Map<string, ReturnType<typeof snapshot>>()

/** Snapshots are kept: what one has sealed another can't open. */
function snapshotOf ({ model: settings = {}, options, url = 'http://127.0.0.1:9', name = 'u' }: Setting) {
  const spelt = JSON.stringify([settings, options, url, name])
  const upstream = upstreamConfig({ dialect: 'responses', url, headers: { authorization: 'Bearer secret' },
    ...(options !== undefined && { responses: options }) })
  const made = on.get(spelt) ?? snapshot(
    config({ upstreams: { [name]: upstream },
      models: [model('m1', { premium: `${name}/vendor-m1*1` }, { max_output: 64_000, thinking: 'adaptive',
        ...settings })] }),
    [chatToMessages]
  )
  on.set(spelt, made)
  return made
}

function asked (setting: Setting = {}, accountId = 'acme'): Exchange {
  const { body = {}, own } = setting
  const made = exchange(snapshotOf(setting), { path: own === undefined ? '/v1/messages' : '/v1/chat/completions' })
  const sent = own === undefined ? { ...COMMON, ...body } : { model: 'm1', messages: HELLO, ...own } as Body
  made.set(ApiKey, { key: key(), account: account({ id: accountId }) })
  made.set(BodyFact, sent)
  made.set(Model, made.snapshot.models.get('m1')!)
  made.request = { body: sent, stream: sent.stream === true }
  for (const { call } of made.route.hooks.onRequest) void call(made)
  return made
}

function encode (of: Exchange, withoutThoughts?: true): ReturnType<typeof dialects.responses.encode> {
  const sold = of.get(Model).channels.premium!
  return dialects.responses.encode(of, { upstream: 'u', model: 'vendor-m1', channel: 'premium', sold,
    ...(withoutThoughts && { withoutThoughts }) }, upstreamOf(of))
}

const vendor = new ResponsesMemory('the vendor')

/** What is sent, as the vendor takes it. */
function sentFor (setting: Setting): Body {
  const { body } = encode(asked(setting))
  checkResponses(body, vendor)
  return body
}

function refusal (work: () => unknown): GatewayError {
  try {
    work()
  } catch (thrown) {
    if (isGatewayError(thrown)) return thrown
    throw thrown
  }
  throw new Error('nothing was refused')
}

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PIXEL } }
const pdf = { type: 'document', title: 'a.pdf', source: { type: 'base64', media_type: 'application/pdf',
  data: 'JVBERi0=' } }
const call = { type: 'tool_use', id: 'toolu_1', name: 'look', input: { at: 'it' } }
const tools = [{ name: 'look', description: 'Looks', input_schema: { type: 'object' } }]

t.test('what a request becomes', async (t) => {
  const text = (words: string): Body => ({ type: 'input_text', text: words })
  const user = (content: unknown): Body => ({ type: 'message', role: 'user', content })
  const shown = { type: 'input_image', image_url: `data:image/png;base64,${PIXEL}`, detail: 'auto' }
  const file = { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' }
  const called = { type: 'function_call', call_id: 'toolu_1', name: 'look', arguments: '{"at":"it"}' }
  const output = (said: unknown): Body => ({ type: 'function_call_output', call_id: 'toolu_1', output: said })
  const loop = (result: Body, ...more: unknown[]): Body[] => [...HELLO, { role: 'assistant', content: [call] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', ...result }, ...more] }]
  const said = (...items: unknown[]): Body => ({ input: items })
  const schema = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'], additionalProperties: false }
  const table: readonly (readonly [what: string, asks: Body, becomes: Body])[] = [
    ['a text', {}, said(user('Hello'))],
    ['a system, without the line that Claude Code puts before it',
      { system: [{ type: 'text', text: 'x-anthropic-billing-header: 1' }, { type: 'text', text: 'Be' },
        { type: 'text', text: 'brief', cache_control: { type: 'ephemeral' } }] }, { instructions: 'Be\nbrief' }],
    ['a system in the middle', { messages: [...HELLO, { role: 'system', content: 'From now on' }] },
      said(user('Hello'), { type: 'message', role: 'developer', content: 'From now on' })],
    ['an image, a link to one, a PDF and a link to one', {
      messages: [{ role: 'user', content: [image, { type: 'image', source: { type: 'url', url: 'https://x/y.png' } },
        pdf, { type: 'document', source: { type: 'url', url: 'https://x/y.pdf' } }] }]
    }, said(user([shown, { ...shown, image_url: 'https://x/y.png' }, text('a.pdf'), file,
      { type: 'input_file', file_url: 'https://x/y.pdf' }]))],
    ['an answer', { messages: [...HELLO, { role: 'assistant', content: 'Hi' }, ...HELLO] },
      said(user('Hello'), { type: 'message', role: 'assistant', content: 'Hi' }, user('Hello'))],
    ['a call and its result', { messages: loop({ content: 'seen' }) }, said(user('Hello'), called, output('seen'))],
    ['a result in blocks', { messages: loop({ content: [{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }] }) },
      said(user('Hello'), called, output('a\nb'))],
    ['a result without content', { messages: loop({}) }, said(user('Hello'), called, output(''))],
    ['a result that is an image', { messages: loop({ content: [{ type: 'text', text: 'here' }, image] }) },
      said(user('Hello'), called, output([text('here'), shown]))],
    ['a result that is an error, and words behind it', { messages: loop({ content: 'no', is_error: true },
      { type: 'text', text: 'Again' }) }, said(user('Hello'), called, output('Error: no'), user([text('Again')]))],
    ['an image that is an error', { messages: loop({ content: [image], is_error: true }) },
      said(user('Hello'), called, output([text('Error:'), shown]))],
    ['thoughts of others, which nobody takes back', {
      messages: [...HELLO, { role: 'assistant', content: [{ type: 'thinking', thinking: 'hm', signature: 'theirs' },
        { type: 'thinking', thinking: 'hm', signature: '' }, { type: 'redacted_thinking', data: 'x' },
        { type: 'text', text: 'Hi' }] }, ...HELLO]
    }, said(user('Hello'), { type: 'message', role: 'assistant', content: 'Hi' }, user('Hello'))],
    ['tools, strict where that is possible', { tools: [...tools, { name: 'tell', input_schema: schema, strict: true },
      { name: 'open', input_schema: { type: 'object' }, strict: true },
      { type: 'web_search_20250305', name: 'web_search' }] }, { tools: [
      { type: 'function', name: 'look', description: 'Looks', parameters: { type: 'object', properties: {} }, strict: false },
      { type: 'function', name: 'tell', parameters: schema, strict: true },
      { type: 'function', name: 'open', parameters: { type: 'object', properties: {} }, strict: false }
    ] }],
    ['any tool, one at a time', { tools, tool_choice: { type: 'any', disable_parallel_tool_use: true } },
      { tool_choice: 'required', parallel_tool_calls: false }],
    ['this tool', { tools, tool_choice: { type: 'tool', name: 'look' } },
      { tool_choice: { type: 'function', name: 'look' } }],
    ['no tool', { tools, tool_choice: { type: 'none' } }, { tool_choice: 'none' }],
    ['a choice without tools', { tool_choice: { type: 'auto' } }, { tool_choice: null }],
    ['fewer tokens than the vendor takes', { max_tokens: 1 }, { max_output_tokens: 16 }],
    ['a temperature', { temperature: 0.5, top_p: 0.9, top_k: 3 }, { temperature: 0.5, top_p: 0.9 }],
    ['stop sequences, which it knows nothing of', { stop_sequences: ['x'] }, { stop: null, stop_sequences: null }],
    ['a schema', { output_config: { format: { type: 'json_schema', schema } } },
      { text: { format: { type: 'json_schema', name: 'output', schema, strict: true } } }],
    ['a schema that is open', { output_config: { format: { type: 'json_schema', schema: { type: 'object' } } } },
      { text: { format: { type: 'json_schema', name: 'output', schema: { type: 'object' }, strict: false } } }],
    ['a user', { metadata: { user_id: 'u1' } }, { safety_identifier: 'u1' }],
    ['a long user', { metadata: { user_id: 'u'.repeat(65) } },
      { safety_identifier: 'pFLfZhpR00Ql7NHwIr7PRA0y4u2x0PqM0fYOZfVvUxs' }],
    ['a stream', { stream: true }, { stream: true, stream_options: { include_obfuscation: false } }],
    ['nothing that changes the price', { service_tier: 'auto', speed: 'fast', background: true, store: true,
      previous_response_id: 'resp_1', container: 'x', mcp_servers: [] }, { service_tier: null, background: null,
      store: false, previous_response_id: null }]
  ]
  for (const [what, asks, becomes] of table) {
    const body = sentFor({ body: asks })
    const expected = Object.fromEntries(Object.keys(becomes).map((name) => [name, body[name] ?? null]))
    if (what === 'a long user') t.match(expected['safety_identifier'], /^[\w-]{43}$/, what)
    else t.strictSame(expected, becomes, what)
    const { store, include, prompt_cache_key: cacheKey } = body
    t.strictSame([store, include, /^gw-\w+$/.test(String(cacheKey))], [false, ['reasoning.encrypted_content'], true])
  }
  t.strictSame(Object.keys(sentFor({})).sort(), ['include', 'input', 'max_output_tokens', 'model', 'prompt_cache_key',
    'store'])
  t.strictSame(sentFor({ body: { temperature: 1 }, model: { sampling: false, thinking: 'none' } }),
    { model: 'vendor-m1', input: [user('Hello')], max_output_tokens: 100, store: false,
      prompt_cache_key: sentFor({})['prompt_cache_key'] })
})

t.test('an item whose type has the name of every object is of an unknown type', async (t) => {
  const of = asked({ body: { stream: true } })
  const decoder = dialects.responses.decodeStream(of, upstreamOf(of))
  const said = [{ type: 'response.output_item.added', output_index: 0, item: { type: 'constructor', id: 'x' } },
    { type: 'response.completed', response: { status: 'completed',
      output: [{ type: 'message', content: [{ type: 'output_text', text: 'Hello' }] }] } }]
  const out = said.flatMap((one) => decoder.event(SseEvent.of(one.type, one)) ?? [])
  t.ok(out.some(({ data }) => data.includes('Hello')))
})

t.test('of sealed thoughts the last two thousand are opened', async (t) => {
  const of = asked({ body: { messages: HELLO } })
  const thoughts = Array.from({ length: 2003 }, (_, i) => ({ type: 'thinking', thinking: '',
    signature: sealThought(of, upstreamOf(of), JSON.stringify({ id: `rs_${i}`, encrypted_content: 'dark' })) }))
  const messages = [...HELLO, { role: 'assistant', content: [...thoughts, { type: 'text', text: 'Hi' }] }, ...HELLO]
  const { input } = encode(asked({ body: { messages } })).body as { readonly input: readonly Body[] }
  t.strictSame(input.filter(({ type }) => type === 'reasoning').map(({ id }) => id),
    Array.from({ length: 2000 }, (_, i) => `rs_${i + 3}`))
})

t.test('the address, the head, and a number for the conversation', async (t) => {
  for (const [url, address] of [['https://api.openai.com', '/v1/responses'], ['https://api.x.ai/v1/', '/v1/responses'],
    ['https://x.openai.azure.com/openai/v1', '/openai/v1/responses']] as const) {
    t.equal(encode(asked({ url })).path, address, url)
  }
  const { method, headers } = encode(asked({ body: { stream: true } }))
  t.match({ method, ...headers }, { method: 'POST', accept: 'text/event-stream', authorization: 'Bearer secret' })
  const keyOf = (of: Exchange): unknown => encode(of).body['prompt_cache_key']
  const more = [...HELLO, { role: 'assistant', content: 'Hi' }, { role: 'user', content: 'More' }]
  t.equal(keyOf(asked()), keyOf(asked({ body: { messages: more } })))
  t.not(keyOf(asked()), keyOf(asked({}, 'other')), 'no account shares a cache with another')
  t.not(keyOf(asked()), keyOf(asked({ body: { messages: [{ role: 'user', content: 'Bye' }] } })))
})

t.test('reasoning: as much as was asked for, in the words that the models know', async (t) => {
  const of = (body: Body, options?: ResponsesConfig): unknown => sentFor({ body, options })['reasoning']
  const effort = (word: string): Body => ({ output_config: { effort: word } })
  const budget = (tokens: number): Body => ({ max_tokens: 10_000,
    thinking: { type: 'enabled', budget_tokens: tokens } })
  t.equal(of({}), undefined, 'the vendor\'s default')
  t.strictSame(of(effort('high')), { effort: 'high', summary: 'auto' })
  t.strictSame(of(effort('max')), { effort: 'xhigh', summary: 'auto' })
  t.strictSame(of(effort('max'), { efforts: ['low', 'high'] }), { effort: 'high', summary: 'auto' })
  t.strictSame(of(effort('medium'), { efforts: ['low', 'high'] }), { effort: 'low', summary: 'auto' })
  t.strictSame(of({ thinking: { type: 'adaptive' } }), { summary: 'auto' })
  t.strictSame(of({ thinking: { type: 'adaptive', display: 'omitted' }, ...effort('low') }), { effort: 'low' })
  t.strictSame(of(effort('low'), { summaries: false }), { effort: 'low' })
  t.strictSame(of({ thinking: { type: 'disabled' } }), { effort: 'none' })
  t.strictSame(of({ thinking: { type: 'disabled' } }, { efforts: ['minimal', 'high'] }), { effort: 'minimal',
    summary: 'auto' })
  for (const [tokens, word] of [[1024, 'low'], [2000, 'low'], [5000, 'medium'], [8000, 'high'],
    [9999, 'xhigh']] as const) {
    t.strictSame(of(budget(tokens)), { effort: word, summary: 'auto' }, `${tokens} of 10,000`)
  }
  const own = (word: string, thinking: ModelConfig['thinking'] = 'budget'): unknown =>
    sentFor({ own: { reasoning_effort: word, max_tokens: 9000 }, model: { thinking } })['reasoning']
  t.strictSame(own('high'), { effort: 'high', summary: 'auto' })
  t.strictSame(own('minimal'), { effort: 'low', summary: 'auto' })
  t.strictSame(own('none'), { effort: 'none' })
  t.equal(own('high', 'none'), undefined)
})

t.test('C3: thoughts as OpenRouter\'s clients ask for them', async (t) => {
  const of = (reasoning: Body): unknown =>
    sentFor({ own: { reasoning, max_tokens: 9000 } as Body, model: { thinking: 'budget' } })['reasoning']
  t.strictSame(of({ effort: 'high' }), { effort: 'high', summary: 'auto' })
  t.strictSame(of({ effort: 'none' }), { effort: 'none' })
  t.strictSame(of({ enabled: false }), { effort: 'none' })
  t.strictSame(of({ max_tokens: 4500 }), { effort: 'medium', summary: 'auto' })
})

t.test('of a chat client', async (t) => {
  const schema = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'], additionalProperties: false }
  const body = sentFor({ own: { response_format: { type: 'json_schema', json_schema: { name: 'city', schema,
    description: 'A city', strict: true } }, tools: [{ type: 'function', function: { name: 'f', parameters: schema } }],
  tool_choice: 'auto', user: 'u1', seed: 3, service_tier: 'priority', store: true, max_completion_tokens: 99,
  messages: [{ role: 'developer', content: 'Be brief' }, ...HELLO, { role: 'assistant', content: null,
    tool_calls: [{ id: 'functions.f:0', type: 'function', function: { name: 'f', arguments: '{}' } }] },
  { role: 'tool', tool_call_id: 'functions.f:0', content: 'done' }] } as Body, model: { structured_outputs: true } })
  t.match(body, { instructions: 'Be brief', max_output_tokens: 99, safety_identifier: 'u1', store: false,
    input: [{ role: 'user' }, { type: 'function_call', name: 'f', arguments: '{}' }, { output: 'done' }],
    tools: [{ type: 'function', name: 'f', strict: false }],
    text: { format: { type: 'json_schema', name: 'city', schema, description: 'A city', strict: true } } })
  const [, { call_id: id }, { call_id: back }] = body['input'] as [Body, Body, Body]
  t.equal(id, back)
  t.notOk('seed' in body || 'service_tier' in body)
  t.match(sentFor({ own: { response_format: { type: 'json_object' } }, model: { structured_outputs: true } })['text'],
    { format: { type: 'json_object' } })
})

t.test('what it can\'t be told is left to another target', async (t) => {
  for (const [body, param, options] of [
    [{ tools: [{ type: 'bash_20250124', name: 'bash' }] }, 'tools[0].type'],
    [{ tools: [...tools, { type: 'web_search_20250305', name: 'web_search' }],
      tool_choice: { type: 'tool', name: 'web_search' } }, 'tool_choice.name'],
    [{ messages: [{ role: 'user', content: [{ type: 'container_upload' }] }] }, 'messages[0].content[0].type'],
    [{ messages: [{ role: 'user', content: [{ type: 'document', source: { type: 'file', file_id: 'x' } }] }] },
      'messages[0].content[0].source'],
    [{ messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'file', file_id: 'x' } }] }] },
      'messages[0].content[0].source.type'],
    [{ stop_sequences: ['x'] }, 'stop_sequences', { stop_sequences: 'refuse' }]
  ] as const) {
    const error = refusal(() => encode(asked({ body, options })))
    t.match(error, { row: 'invalid_request', param, retryable: true })
    t.match(error.message, /which the provider of this model can't be told/)
  }
})

// What comes back.

function reply (response: Body, of: Exchange = asked()): Body {
  return dialects.responses.decodeReply({ id: 'resp_1', object: 'response', status: 'completed', error: null,
    output: [], ...response }, of, upstreamOf(of)) as Body
}

const USAGE = { input_tokens: 100, input_tokens_details: { cached_tokens: 60, cache_write_tokens: 30 },
  output_tokens: 20, output_tokens_details: { reasoning_tokens: 5 }, total_tokens: 120 }
const hello = { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed',
  content: [{ type: 'output_text', text: 'Hel', annotations: [] }, { type: 'output_text', text: 'lo' }] }
const fn = { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'look', arguments: '{"a":1}' }

t.test('whole answers', async (t) => {
  const of = asked()
  t.strictSame(reply({ output: [hello, { type: 'web_search_call', id: 'ws_1' }, { type: 'reasoning', summary: [] }, fn],
    usage: USAGE }, of), {
    id: `msg_${of.id.slice(4)}`, type: 'message', role: 'assistant', model: 'm1', stop_sequence: null,
    content: [{ type: 'text', text: 'Hello' }, { type: 'tool_use', id: 'call_1', name: 'look', input: { a: 1 } }],
    stop_reason: 'tool_use',
    usage: { input_tokens: 10, cache_creation_input_tokens: 30, cache_read_input_tokens: 60, output_tokens: 20,
      output_tokens_details: { thinking_tokens: 5 } }
  })
  const stop = (response: Body): unknown => reply({ output: [hello], ...response })['stop_reason']
  t.equal(stop({}), 'end_turn')
  t.equal(stop({ status: undefined }), 'end_turn')
  t.equal(stop({ output: [{ ...hello, content: [{ type: 'refusal', refusal: 'No' }] }] }), 'refusal')
  for (const [reason, becomes] of [['max_output_tokens', 'max_tokens'], ['content_filter', 'refusal'],
    ['steered', 'max_tokens']] as const) {
    t.equal(stop({ status: 'incomplete', incomplete_details: { reason }, output: [hello, fn] }), becomes)
  }
  t.strictSame(reply({ status: 'incomplete', output: [{ ...fn, arguments: '{"a' }] })['content'], [],
    'half a call is none')
  t.match(reply({ output: [{ ...fn, arguments: '' }, { ...fn, call_id: 'functions.f:0' }, { ...fn, call_id: '' }] }),
    { content: [{ id: 'call_1', input: {} }, { id: /^gwenc_[\w-]{4}_ZnVuY3Rpb25zLmY6MA$/ }, { id: /^toolu_/ }] })
  t.match(reply({ output: [{ type: 'reasoning', summary: [{ type: 'summary_text', text: 'a' }, { text: 'b' }] }, {
    type: 'reasoning', content: [{ type: 'reasoning_text', text: 'c' }] }, hello] }), { content: [
    { type: 'thinking', thinking: 'a\n\nb', signature: '' }, { thinking: 'c', signature: '' }, { type: 'text' }] })
  t.strictSame(reply({ output: [hello] })['usage'], {})
  for (const usage of [null, {}, { input_tokens: -1, output_tokens: 2 }]) {
    t.strictSame(reply({ output: [hello], usage })['usage'], {})
  }
  t.match(reply({ usage: { input_tokens: 5, output_tokens: 0, input_tokens_details: { cached_tokens: 9 } } })['usage'],
    { input_tokens: 5, cache_read_input_tokens: 9, output_tokens: 0 }, 'V2: more from a cache than the input is beside it')

  for (const [response, says] of [
    [{ output: [{ ...fn, name: '' }] }, /no name/], [{ output: [{ ...fn, arguments: '{"a' }] }, /no JSON/],
    [{ output: [{ ...fn, arguments: '[]' }] }, /no object/], [{ status: 'in_progress' }, /is "in_progress"/],
    [{ status: undefined, output: null }, /no response/]
  ] as const) t.throws(() => reply(response), { message: says })
  for (const failed of [{ status: 'failed', error: { code: 'server_is_overloaded', message: 'busy' } },
    { status: undefined, output: undefined, error: { code: undefined, message: 'no' } }]) {
    try {
      reply(failed)
      t.fail('an error is no answer')
    } catch (thrown) {
      t.match((thrown as UpstreamErrorBody).body, { error: { code: failed.error.code,
        message: failed.error.message } })
    }
  }
})

/** As a client of messages style keeps it, and sends it back. */
function backTo (of: Exchange, content: unknown): Body {
  return { messages: [...HELLO, { role: 'assistant', content }, { role: 'user', content: 'And?' }],
    max_tokens: of.request.body['max_tokens'] }
}

t.test('reasoning goes to the client sealed, and back to the vendor alone', async (t) => {
  const encrypted = vendor.encrypt('hm')
  const reasoning = { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: encrypted }
  const of = asked()
  const { content } = reply({ output: [reasoning, hello] }, of) as { content: readonly Body[] }
  t.match(content, [{ type: 'thinking', thinking: '', signature: /^gwseal/ }, { type: 'text' }])
  t.notMatch(String(content[0]!['signature']), encrypted.slice(0, 20))

  const inputFor = (setting: Setting, accountId?: string, without?: true): readonly Body[] => {
    const { body } = encode(asked(setting, accountId), without)
    checkResponses(body, vendor)
    return body['input'] as readonly Body[]
  }
  const body = backTo(of, content)
  t.strictSame(inputFor({ body })[1], reasoning, 'its own words, under its own id')
  const lost = { type: 'message', role: 'assistant', content: 'Hello' }
  t.match(inputFor({ body }, 'other')[1], lost, 'another account')
  t.match(inputFor({ body }, undefined, true)[1], lost, 'an attempt without')
  t.match(inputFor({ body, name: 'v' })[1], lost, 'an upstream of another family')
  const [thought, said] = content as [Body, Body]
  const signature = String(thought['signature'])
  for (const changed of [signature.slice(0, -1) + (signature.endsWith('A') ? 'B' : 'A'), signature.slice(1), 5, null]) {
    t.match(inputFor({ body: backTo(of, [{ ...thought, signature: changed }, said]) })[1], lost, String(changed))
  }
  t.strictSame(inputFor({ body: backTo(of, [thought]) }).map(({ role }) => role), ['user', 'user'],
    'nothing without what it led to')
  t.equal(inputFor({ body: backTo(of, [thought, thought, said]) }).length, 4, 'not twice')
})

// Streams, as the simulator makes them: the emissions of each request, without a socket.

const simulated = responsesDialect({ contextTokens: 200_000, now: Date.now })

function eventsFor (directive: string, more: Body = {}): readonly SseEvent[] {
  const faults = parseFaults(directive)
  const { body } = encode(asked({ body: { stream: true, messages: [{ role: 'user', content: 'Weather in Oslo?' }],
    ...more } }))
  const made = simulated.endpoints['POST /v1/responses']!.answer({ requestId: 'r', method: 'POST',
    path: '/v1/responses', query: '', headers: { authorization: 'Bearer k' }, body, bodyBytes: 0, bodySha256: '',
    faults })
  if (made.kind !== 'events') throw new Error('no stream')
  return made.emissions.map(({ event }) => event)
}

function listed (made: SseEvent | readonly SseEvent[] | undefined | void): readonly SseEvent[] {
  return made === undefined ? [] : made instanceof SseEvent ? [made] : made
}

interface Heard {
  readonly thought: string
  readonly signatures: readonly string[]
  readonly text: string
  readonly calls: readonly { readonly id: string, readonly name: string, readonly input: string }[]
  readonly stop: string | undefined
  readonly usage: Body | undefined
  readonly error: Body | undefined
  readonly isWhole: boolean
  readonly names: readonly string[]
}

/**
 * As a strict client reads it: one block at a time, in the order of their numbers.
 * @throws {Error} it is not what the style demands
 */
function hear (events: readonly SseEvent[]): Heard {
  const calls: { id: string, name: string, input: string }[] = []
  const signatures: string[] = []
  let open: { readonly index: number, readonly type: string } | undefined
  let [blocks, thought, text] = [0, '', '']
  let stop: string | undefined
  let [usage, error]: (Body | undefined)[] = []
  let isWhole = false
  for (const [i, { event, data }] of events.entries()) {
    const fields = JSON.parse(data) as Body
    assert.equal(fields['type'] ?? 'error', event)
    assert.ok(!isWhole && error === undefined, `${event} behind the end`)
    const { index } = fields as { index: number }
    const { type, thinking = '', signature, ...delta } = (fields['delta'] ?? {}) as Readonly<Record<string, string>>
    assert.equal(event === 'message_start', i === 0 && event !== 'error', event)
    if (event === 'content_block_start') {
      const block = fields['content_block'] as Readonly<Record<string, string>>
      assert.ok(open === undefined && index === blocks++, 'a block begins inside another, or out of order')
      open = { index, type: block['type']! }
      if (open.type === 'tool_use') calls.push({ id: block['id']!, name: block['name']!, input: '' })
    } else if (event === 'content_block_delta') {
      assert.equal(open?.index, index)
      const kinds: Body = { text: 'text_delta', tool_use: 'input_json_delta',
        thinking: signature === undefined ? 'thinking_delta' : 'signature_delta' }
      assert.equal(type, kinds[open!.type])
      thought += thinking
      text += delta['text'] ?? ''
      if (signature !== undefined) signatures.push(signature)
      if (open!.type === 'tool_use') calls.at(-1)!.input += delta['partial_json']!
    } else if (event === 'content_block_stop') {
      assert.equal(open?.index, index)
      open = undefined
    } else if (event === 'message_delta') {
      assert.equal(open, undefined, 'a block never ends')
      usage = fields['usage'] as Body
      stop = delta['stop_reason']
    } else if (event === 'message_stop') isWhole = true
    else if (event === 'error') error = fields['error'] as Body
    else assert.equal(event, 'message_start')
  }
  return { thought, signatures, text, calls, stop, usage, error, isWhole, names: events.map(({ event }) => event) }
}

function decode (events: readonly SseEvent[], of = asked({ body: { stream: true } })): readonly SseEvent[] {
  const decoder = dialects.responses.decodeStream(of, upstreamOf(of))
  return [...events.flatMap((event) => listed(decoder.event(event))), ...decoder.end?.() ?? []]
}

const TOOLS: Body = { tools: [
  { name: 'weather', input_schema: { type: 'object', properties: { city: { type: 'string' } } } },
  { name: 'clock', input_schema: { type: 'object', properties: { zone: { type: 'string' } } } }
] }
const THINKS: Body = { thinking: { type: 'adaptive' }, output_config: { effort: 'low' } }

t.test('streams of the simulator', async (t) => {
  const both = hear(decode(eventsFor('tool_calls=2 summary_parts=2', { ...TOOLS, ...THINKS })))
  t.match(both, { text: 'I will call weather and clock.', stop: 'tool_use', isWhole: true,
    calls: [{ id: /^call_/, name: 'weather', input: '{"city":"Oslo"}' }, { name: 'clock',
      input: '{"zone":"Weather in Oslo?"}' }] })
  t.match(both.thought, /^The user says “Weather[^]*\n\n[^]+ in a sentence or two\.$/, 'its parts are one thought')
  t.match(both.signatures, [/^gwseal/])
  const names = both.names.filter((name, i) => name !== both.names[i - 1])
  t.strictSame(names.slice(0, 6), ['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop',
    'content_block_start', 'content_block_delta'])

  // All but what is made by chance, and what the cache says.
  const plain = ({ usage: _, signatures, calls, ...more }: Heard): unknown => ({ ...more, signatures: signatures.length,
    calls: calls.map(({ id: _, ...one }) => one) })
  for (const directive of ['id_changes', 'unknown_item']) {
    const got = hear(decode(eventsFor(`tool_calls=2 summary_parts=2 ${directive}`, { ...TOOLS, ...THINKS })))
    t.strictSame(plain(got), plain(both), directive)
  }
  t.match(hear(decode(eventsFor('reasoning_text tokens=3', THINKS))), { thought: /^The user says/,
    text: 'one more word', stop: 'end_turn', signatures: [/^gwseal/] })
  const hidden = hear(decode(eventsFor('tokens=3', { thinking: { type: 'adaptive', display: 'omitted' },
    output_config: { effort: 'low' } })))
  t.match(hidden, { thought: '', text: 'one more word', signatures: [/^gwseal/] }, 'nothing is shown, and all is kept')
  t.match(hear(decode(eventsFor('refuse'))), { text: 'I can not help with that.', stop: 'refusal' })
  t.match(hear(decode(eventsFor('tokens=40', { max_tokens: 20 }))), { stop: 'max_tokens',
    usage: { output_tokens: 20 } })
  t.match(hear(decode(eventsFor('incomplete=content_filter'))), { stop: 'refusal' })
  t.match(hear(decode(eventsFor('tool_calls=4', { ...TOOLS, max_tokens: 16 }))), { stop: 'max_tokens',
    calls: [{ input: /^\{/ }] })
  t.match(hear(decode(eventsFor('usage_zero tokens=2'))), { usage: { input_tokens: 0, output_tokens: 0 } })
  const { usage } = hear(decode(eventsFor('cached=2 tokens=2')))
  t.match(usage, { cache_read_input_tokens: 2, cache_creation_input_tokens: 0, output_tokens: 2 })
  for (const type of ['rate_limit_exceeded', 'slow_down', 'server_is_overloaded', 'server_error', 'invalid_prompt']) {
    const failed = hear(decode(eventsFor(`failed_after=5 error_type=${type}`)))
    t.match(failed, { isWhole: false, error: { code: type } })
    t.equal(errorIn({ error: failed.error }).status === 400, type === 'invalid_prompt')
  }
  t.match(hear(decode(eventsFor('empty'))), { isWhole: true, stop: 'end_turn',
    names: ['message_start', 'message_delta', 'message_stop'] })
})

t.test('the placeholder of a beginning is never kept', async (t) => {
  const events = eventsFor('tokens=1', THINKS)
  const contents = events.filter(({ event }) => /output_item/.test(event)).map(({ json }) =>
    (json as { item: Body }).item['encrypted_content'])
  t.not(contents[0], contents[1])
  const of = asked({ body: { stream: true } })
  const { signatures: [signature] } = hear(decode(events, of))
  const { body } = encode(asked({ body: backTo(of, [{ type: 'thinking', thinking: 'x', signature },
    { type: 'text', text: 'one' }]) }))
  t.match(body['input'], [{}, { type: 'reasoning', encrypted_content: contents[1] }, {}, {}])
})

t.test('cut at any event or byte it is a beginning of the same answer, and never a whole one', async (t) => {
  const of = asked({ body: { stream: true } })
  const events = eventsFor('tool_calls=2 summary_parts=2', { ...TOOLS, ...THINKS })
  const whole = decode(events, of)
  for (let at = 0; at < events.length; at++) {
    const made = decode(events.slice(0, at), of)
    assert.equal(hear(made).isWhole, false)
    assert.deepEqual(made.map(({ event }) => event), whole.slice(0, made.length).map(({ event }) => event))
  }
  const bytes = Buffer.concat(events.map((event) => event.bytes))
  const whereEventsEnd = new Set<number>()
  events.reduce((at, event) => { whereEventsEnd.add(at + event.bytes.length); return at + event.bytes.length }, 0)
  for (let at = 0; at < bytes.length; at++) {
    const decoder = new SseDecoder()
    const made = decode(decoder.push(bytes.subarray(0, at)), of)
    assert.equal(hear(made).isWhole, false, `byte ${at}`)
    assert.equal(decoder.isBetweenEvents, at === 0 || whereEventsEnd.has(at))
  }
  t.ok(bytes.length > 5000)
})

// The same answer, however a vendor cuts it, orders it and names its parts.

interface Said {
  readonly thoughts: readonly string[]
  readonly texts: readonly string[]
  readonly calls: readonly { readonly name: string, readonly input: Body }[]
}

interface Habits {
  readonly hasDeltas: boolean
  readonly hasPartEnds: boolean
  readonly hasItemEnds: boolean
  readonly hasAdded: boolean
  readonly hasPlaces: boolean
  readonly hasNames: boolean
  readonly changesIds: boolean
  readonly inTurns: boolean
  readonly onlyEnd: boolean
  readonly hasCreated: boolean
  readonly isRaw: boolean
  readonly noise: readonly string[]
}

const words = fc.string({ unit: codePoint, minLength: 1, maxLength: 20 })
const answers: fc.Arbitrary<Said> = fc.record({
  thoughts: fc.array(words, { maxLength: 3 }),
  texts: fc.array(words, { maxLength: 2 }),
  calls: fc.array(
    fc.record({ name: fc.constantFrom('f', 'g', 'h'), input: fc.dictionary(words, fc.jsonValue({ maxDepth: 1 }),
      { maxKeys: 3 }) }),
    { maxLength: 3 }
  )
})
const habits: fc.Arbitrary<Habits> = fc.record({
  hasDeltas: fc.boolean(), hasPartEnds: fc.boolean(), hasItemEnds: fc.boolean(), hasAdded: fc.boolean(),
  hasPlaces: fc.boolean(), hasNames: fc.boolean(), changesIds: fc.boolean(), inTurns: fc.boolean(),
  onlyEnd: fc.boolean(), hasCreated: fc.boolean(), isRaw: fc.boolean(),
  noise: fc.array(fc.constantFrom('', '[DONE]', 'keepalive', '{}', '{"type":"keepalive","sequence_number":3}',
    '{"type":"response.future","x":1}', '{"type":"response.output_item.added","output_index":99,"item":{"type":"new"}}',
    '{"type":"response.output_text.annotation.added","annotation":{}}'), { maxLength: 4 })
})

/** Cuts a text into pieces, also between the halves of a character: JSON can say those. */
function piecesOf (text: string, draw: () => number): string[] {
  const pieces: string[] = []
  for (let at = 0; at < text.length;) {
    const length = 1 + Math.floor(draw() * 7)
    pieces.push(text.slice(at, at + length))
    at += length
  }
  return pieces
}

/** As a vendor with these habits streams the answer. */
function streamOf ({ thoughts, texts, calls }: Said, own: Habits, draw: () => number): string[] {
  const items: { item: Body, kind: string, parts: { about: Body, text: string }[] }[] = [
    ...(thoughts.length === 0 ? [] : [{ kind: own.isRaw ? 'reasoning_text' : 'reasoning_summary_text',
      item: { type: 'reasoning', encrypted_content: 'real', ...(own.isRaw
        ? { summary: [], content: thoughts.map((text) => ({ type: 'reasoning_text', text })) }
        : { summary: thoughts.map((text) => ({ type: 'summary_text', text })) }) },
      parts: thoughts.map((text, i) => ({ about: own.isRaw ? { content_index: i } : { summary_index: i }, text })) }]),
    ...texts.map((text) => ({ kind: 'output_text', item: { type: 'message', role: 'assistant',
      content: [{ type: 'output_text', text }] }, parts: [{ about: { content_index: 0 }, text }] })),
    ...calls.map(({ name, input }, at) => ({ kind: 'function_call_arguments', item: { type: 'function_call', name,
      call_id: `c${at}`, arguments: JSON.stringify(input) }, parts: [{ about: {}, text: JSON.stringify(input) }] }))
  ]
  const streams = items.map(({ item, kind, parts }, place) => {
    const at = { ...(own.hasPlaces && { output_index: place }), ...(own.hasNames && { item_id: `i${place}` }) }
    const empty = { ...item, id: `i${place}`, content: [], summary: [], arguments: '',
      ...(item['type'] === 'reasoning' && { encrypted_content: 'placeholder' }) }
    const field = kind === 'function_call_arguments' ? 'arguments' : 'text'
    return [
      ...(own.hasAdded ? [{ type: 'response.output_item.added', ...at, item: empty }] : []),
      ...parts.flatMap(({ about, text }) => [
        ...(own.hasDeltas
          ? piecesOf(text, draw).map((delta) => ({ type: `response.${kind}.delta`, ...at, ...about, delta }))
          : []),
        ...(own.hasPartEnds ? [{ type: `response.${kind}.done`, ...at, ...about, [field]: text }] : [])
      ]),
      ...(own.hasItemEnds ? [{ type: 'response.output_item.done', ...at,
        item: { ...item, id: own.changesIds ? `new${place}` : `i${place}` } }] : [])
    ] as Body[]
  })
  // Of calls alone: in what order texts of several items would have to be read nobody says.
  const made = streams.splice(0, streams.length - calls.length).flat()
  if (own.inTurns) made.push(...streams.flatMap((stream) => stream.splice(0, 1)))
  while (own.inTurns && streams.some(({ length }) => length > 0)) {
    made.push(...streams[Math.floor(draw() * streams.length)]!.splice(0, 1))
  }
  made.push(...streams.flat())
  const usage = { input_tokens: 11, output_tokens: 22 }
  const response = { id: 'resp_1', status: 'completed', usage, output: items.map(({ item }) => item) }
  return [
    ...(own.hasCreated ? [{ type: 'response.created', response: { ...response, status: 'in_progress' } }] : []),
    ...(own.onlyEnd ? [] : made),
    { type: 'response.completed', response }
  ].flatMap((one) => [...own.noise.filter(() => draw() < 0.3), JSON.stringify(one)])
}

t.test('nothing is lost and nothing doubled, whatever the habits of a vendor', async (t) => {
  const of = asked({ body: { stream: true } })
  fc.assert(fc.property(answers, habits, fc.integer(), (said, drawn, seed) => {
    // Who says nothing of an item but at the very end does so for all; and what is neither counted nor named comes in
    // order: nobody could tell it apart.
    const own = { ...drawn, hasPlaces: drawn.hasPlaces || drawn.inTurns,
      hasAdded: drawn.hasAdded || !drawn.hasItemEnds || !drawn.hasPlaces || drawn.inTurns,
      hasItemEnds: drawn.hasItemEnds || (!drawn.hasDeltas && !drawn.hasPartEnds) }
    const made = decode(streamOf(said, own, seededRandom(seed)).map((data) => new SseEvent('', data)), of)
    const { text, thought, calls, signatures, stop, usage, isWhole } = hear(made)
    assert.ok(isWhole)
    assert.equal(text, said.texts.join(''))
    assert.equal(thought, said.thoughts.join('\n\n'))
    assert.deepEqual(calls.map(({ name, input }) => [name, JSON.parse(input) as unknown]),
      said.calls.map(({ name, input }) => [name, JSON.parse(JSON.stringify(input)) as unknown]))
    assert.equal(signatures.length, said.thoughts.length > 0 ? 1 : 0)
    assert.equal(signatures.join('') !== '', said.thoughts.length > 0)
    assert.equal(new Set(calls.map(({ id }) => id)).size, said.calls.length)
    assert.equal(stop, said.calls.length > 0 ? 'tool_use' : 'end_turn')
    assert.deepEqual([usage!['input_tokens'], usage!['output_tokens']], [11, 22])
  }), { numRuns: 400 })
  t.pass('400 answers')
})

/** Spoils a value somewhere inside. */
function spoil (value: unknown, draw: () => number): unknown {
  const odd = [null, 5, -1, true, '', 'odd', [], {}, [null], { type: null }, '{"a', 1e300]
  if (typeof value !== 'object' || value === null || draw() < 0.15) return odd[Math.floor(draw() * odd.length)]
  const keys = Object.keys(value)
  const chosen = keys[Math.floor(draw() * keys.length)]
  if (chosen === undefined) return odd[0]
  if (draw() < 0.3) {
    return Array.isArray(value)
      ? value.filter((_, i) => String(i) !== chosen)
      : Object.fromEntries(Object.entries(value).filter(([name]) => name !== chosen))
  }
  const inner = spoil((value as Body)[chosen], draw)
  return Array.isArray(value) ? value.with(Number(chosen), inner) : { ...value, [chosen]: inner }
}

t.test('a call that goes on behind its end is an error of the answer', async (t) => {
  const of = asked({ body: { stream: true } })
  const decoder = dialects.responses.decodeStream(of, upstreamOf(of))
  const say = (type: string, data: object): unknown => decoder.event(SseEvent.of(type, { type, ...data }))
  say('response.output_item.added', { output_index: 0,
    item: { type: 'function_call', call_id: 'c1', name: 'look', id: 'fc_1' } })
  say('response.function_call_arguments.delta', { output_index: 0, delta: '{}' })
  say('response.output_text.delta', { output_index: 1, delta: 'Hello' })
  t.throws(() => say('response.function_call_arguments.delta', { output_index: 0, delta: '{"a":1}' }),
    { message: 'a call goes on behind its end' })
})

t.test('of a stream that is broken anyhow a client never reads what is no message', async (t) => {
  const of = asked({ body: { stream: true } })
  const streams = ['tool_calls=2 summary_parts=2', 'tokens=3 reasoning_text', 'refuse', 'incomplete=steered tokens=2',
    'failed_after=6', 'tool_calls=1 id_changes'].map((directive) => eventsFor(directive, { ...TOOLS, ...THINKS }))
  const ends = { whole: 0, error: 0, open: 0, thrown: 0 }
  fc.assert(fc.property(fc.constantFrom(...streams), fc.integer(), (all, seed) => {
    const draw = seededRandom(seed)
    const events = [...all]
    for (let left = 1 + Math.floor(draw() * 3); left > 0; left--) {
      const at = Math.floor(draw() * events.length)
      const odd = [
        () => { events.splice(at, 1) },
        () => { events.splice(at, 0, all[Math.floor(draw() * all.length)]!) },
        () => { events.splice(at, 0, ...events.splice(Math.floor(draw() * events.length), 1)) },
        () => { events.length = at },
        () => { events.push(...all.slice(at)) },
        () => { events[at] = SseEvent.of(events[at]?.event ?? '', spoil(events[at]?.json ?? {}, draw)) }
      ]
      odd[Math.floor(draw() * odd.length)]!()
    }
    const decoder = dialects.responses.decodeStream(of, upstreamOf(of))
    const made: SseEvent[] = []
    try {
      for (const event of events) {
        const more = listed(decoder.event(event))
        made.push(...more)
        if (more.some(({ event }) => event === 'error')) break
      }
    } catch (thrown) {
      assert.ok(thrown instanceof Error && !(thrown instanceof TypeError), String(thrown))
      ends.thrown++
    }
    const { isWhole, error, calls, stop } = hear(made)
    if (isWhole && stop === 'tool_use') {
      for (const { input } of calls) assert.ok(input.trim() === '' || isRecord(JSON.parse(input)))
    }
    ends[isWhole ? 'whole' : error !== undefined ? 'error' : 'open']++
  }), { numRuns: 1000 })
  t.ok(ends.whole > 0 && ends.error > 0 && ends.open > 0, JSON.stringify(ends))
})

t.test('half a call is no call', async (t) => {
  const event = (type: string, fields: Body): SseEvent => SseEvent.of(type, { type, ...fields })
  const half = [event('response.output_item.added', { output_index: 0, item: { ...fn, arguments: '' } }),
    event('response.function_call_arguments.delta', { output_index: 0, delta: '{"path":"/tm' })]
  const end = (status: string): SseEvent => event(`response.${status}`, { response: { status, output: [] } })
  t.throws(() => decode([...half, end('completed')]), /no JSON/)
  t.match(hear(decode([...half, end('incomplete')])), { stop: 'max_tokens', isWhole: true })
  t.throws(() => decode([event('response.function_call_arguments.delta', { output_index: 0, delta: '{}' }),
    end('completed')]), /no name/)
  const calls = Array.from({ length: 1001 }, (_, i) =>
    event('response.output_item.added', { output_index: i, item: { ...fn, arguments: '{}' } }))
  t.throws(() => decode(calls), /more than 1000 calls/)
  t.throws(() => decode([new SseEvent('response.created', '{"type":"resp')]), SyntaxError)
})
