// What the types of the official SDKs allow is what schema-validate lets pass: written in those types, so that it
// compiles, and sent by the SDK itself. What is refused, and what nobody knows yet: plugins/schema-validate.test.ts.
import Anthropic from '@anthropic-ai/sdk'
import type OpenAI from 'openai'
import t from 'tap'
import { wholeTurns } from '../../src/upstream/dialects/whole-turns.ts'
import { gateway, KEY, yaml } from '../support/gateway.ts'
import { answer, json, upstream } from '../support/upstream.ts'

const PIPELINE = 'auth, schema-validate, chat-to-messages, channel-router, billing-meter, error-normalize'
const up = await upstream(t, ({ path }) => path.endsWith('count_tokens') ? json({ input_tokens: 3 }) : answer('hi'))
const gw = await gateway(t,
  yaml([up.url], '', PIPELINE).replace('dialect: messages', 'dialect: messages, count_tokens: true')
    .replace('accepts:', 'mid_system: true\n    accepts:'))

const post = (path: string, body: unknown): Promise<Response> =>
  fetch(gw.url + path, { method: 'POST', headers: { 'content-type': 'application/json', 'x-api-key': KEY },
    body: JSON.stringify(body) })

const image = { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } }
const tool = { name: 'weather', input_schema: { type: 'object' } }

const beta: Anthropic.Beta.MessageCreateParamsNonStreaming[] = [
  { model: 'm1', max_tokens: 4096, messages: [{ role: 'user', content: 'a' }], betas: ['context-management-2025-06-27'],
    context_management: {
      edits: [{ type: 'clear_thinking_20251015', keep: 'all' }, { type: 'clear_tool_uses_20250919' }]
    } },
  { model: 'm1', max_tokens: 4096,
    messages: [{ role: 'user', content: 'a' }, { role: 'system', output_config: { effort: 'low' } }],
    output_config: { task_budget: { type: 'tokens', total: 50_000 } } }
]

/** In the SDK's own types: what compiles here must pass. */
const sdkMessages: Anthropic.MessageCreateParams[] = [
  { model: 'm1', max_tokens: 1, messages: [{ role: 'user', content: '' }] },
  { model: 'm1', max_tokens: 64_000, stream: true,
    messages: [{ role: 'system', content: 'a' }, { role: 'assistant', content: 'b' }] },
  { model: 'm1', max_tokens: 4096, messages: [{ role: 'user', content: [] }], system: 'a', metadata: { user_id: null },
    stop_sequences: ['a', ''], stream: false },
  {
    model: 'm1',
    max_tokens: 4096,
    system: [{ type: 'text', text: 'x-anthropic-billing-header: cc_version=2', cache_control: null }, { type: 'text',
      text: 'b', cache_control: { type: 'ephemeral', ttl: '1h' }, citations: null }],
    cache_control: { type: 'ephemeral' },
    diagnostics: { previous_message_id: null },
    inference_geo: null,
    service_tier: 'auto',
    speed: 'standard',
    metadata: { user_id: 'user_1' },
    output_config: { effort: 'xhigh', format: { type: 'json_schema', schema: { type: 'object' } } },
    messages: [{ role: 'user',
      content: [{ type: 'text', text: 'a', cache_control: { type: 'ephemeral', ttl: '5m' } }] }]
  },
  ...[
    { type: 'enabled', budget_tokens: 1024 },
    { type: 'enabled', budget_tokens: 4095, display: 'omitted' },
    { type: 'adaptive', display: null },
    { type: 'between_tools' },
    { type: 'disabled' }
  ].map((thinking) => ({
    model: 'm1',
    max_tokens: 4096,
    messages: [{ role: 'user' as const, content: 'a' }],
    thinking: thinking as Anthropic.ThinkingConfigParam
  })),
  ...[
    { type: 'auto' },
    { type: 'any', disable_parallel_tool_use: true },
    { type: 'tool', name: 'weather' },
    { type: 'none' }
  ].map((choice) => ({
    model: 'm1',
    max_tokens: 4096,
    messages: [{ role: 'user' as const, content: 'a' }],
    tool_choice: choice as Anthropic.ToolChoice,
    tools: [tool as Anthropic.Tool]
  })),
  {
    model: 'm1',
    max_tokens: 4096,
    tools: [
      { name: 'a', input_schema: { type: 'object', properties: null, required: null, $defs: {} }, type: null,
        strict: true, defer_loading: true, eager_input_streaming: null, input_examples: [{}],
        cache_control: { type: 'ephemeral' } },
      { name: 'b', input_schema: { type: 'object' }, type: 'custom', description: 'b', allowed_callers: ['direct'] },
      { name: 'bash', type: 'bash_20250124' },
      { name: 'str_replace_based_edit_tool', type: 'text_editor_20250728', max_characters: null },
      { name: 'memory', type: 'memory_20250818' },
      { name: 'tool_search_tool_bm25', type: 'tool_search_tool_bm25' },
      { type: 'browser_toolset_20260801' },
      { type: 'computer_toolset_20260801', display_width_px: 1, display_height_px: 1 } as Anthropic.ToolUnion
    ],
    messages: [{ role: 'user', content: 'a' }]
  },
  {
    model: 'm1',
    max_tokens: 4096,
    messages: [
      {
        role: 'user',
        content: [
          { type: 'image', source: { type: 'base64', media_type: 'image/webp', data: 'aGk=' },
            transformations: { oversized_image: 'downsize' } },
          { type: 'image', source: { type: 'url', url: 'HTTPS://example.com/a.png' },
            cache_control: { type: 'ephemeral' } },
          { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'aGk=' }, title: null,
            context: 'a', citations: { enabled: true } },
          { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'a' } },
          { type: 'document', source: { type: 'content', content: 'a' } },
          { type: 'document',
            source: { type: 'content',
              content: [{ type: 'text', text: 'a' }, { type: 'image',
                source: { type: 'url', url: 'http://example.com/a.png' } }] } },
          { type: 'document', source: { type: 'url', url: 'https://example.com/a.pdf' } },
          { type: 'search_result', source: 'a', title: 'b', content: [{ type: 'text', text: 'c' }],
            citations: { enabled: false } }
        ]
      },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: '', signature: 'a' },
          { type: 'redacted_thinking', data: 'a' },
          { type: 'text', text: 'a', citations: [] },
          { type: 'tool_use', id: 'a', name: 'b', input: {}, caller: { type: 'direct' }, cache_control: null },
          { type: 'server_tool_use', id: 'a', name: 'web_search', input: 'anything' },
          { type: 'web_search_tool_result', tool_use_id: 'a',
            content: { type: 'web_search_tool_result_error', error_code: 'unavailable' } }
        ]
      },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 'a' },
          { type: 'tool_result', tool_use_id: 'a', content: 'b', is_error: true },
          { type: 'tool_result', tool_use_id: 'a',
            content: [{ type: 'text', text: 'a' }, image as Anthropic.ImageBlockParam, { type: 'tool_reference',
              tool_name: 'a' }, { type: 'browser_state', tabs: [] }] },
          { type: 'container_upload', file_id: 'a' }
        ]
      }
    ]
  }
]

t.test('messages: what the SDK\'s types allow passes, and may be counted', async (t) => {
  const official = new Anthropic({ baseURL: gw.url, apiKey: KEY, maxRetries: 0 })
  for (const body of sdkMessages) {
    const answered = await official.messages.create(body)
    if ('controller' in answered) for await (const { type } of answered) t.ok(type)
  }
  for (const body of beta) await official.beta.messages.create(body)
  // Results without their calls are mended (src/README.md#whole-turns).
  const sent = [...sdkMessages, ...beta.map(({ betas: _betas, ...body }) => body)].map((body) =>
    ({ ...body, messages: wholeTurns(body.messages) }))
  const withoutNulls = (bodies: readonly unknown[]): unknown =>
    JSON.parse(JSON.stringify(bodies, (_name, value: unknown) => value ?? undefined))
  t.strictSame(withoutNulls(up.requests.map(({ body }) => ({ ...body, model: 'm1' }))), withoutNulls(sent),
    'as it was sent, but for null')
  for (const body of sent) {
    const counted = await post('/v1/messages/count_tokens', body)
    t.match(await counted.json(), { input_tokens: Number }, JSON.stringify(body))
  }
})

const sdkChat: OpenAI.ChatCompletionCreateParams[] = [
  { model: 'm1', messages: [{ role: 'user', content: 'a' }] },
  {
    model: 'm1',
    messages: [{ role: 'user', content: [{ type: 'text', text: 'a' }], name: 'b' }],
    max_tokens: null,
    max_completion_tokens: null,
    temperature: null,
    top_p: null,
    n: null,
    stop: null,
    stream: null,
    stream_options: null,
    response_format: { type: 'text' },
    reasoning_effort: null,
    modalities: null
  },
  {
    model: 'm1',
    messages: [{ role: 'developer', content: 'a' }, { role: 'system', content: [{ type: 'text', text: 'b' }] }, {
      role: 'user',
      content: 'c'
    }],
    max_tokens: 64_000,
    temperature: 1,
    n: 1,
    stop: 'a',
    stream: true,
    stream_options: { include_usage: true, include_obfuscation: false }
  },
  {
    model: 'm1',
    messages: [
      {
        role: 'user',
        content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,aGk=', detail: 'low' } }, {
          type: 'image_url',
          image_url: { url: 'http://example.com/a' }
        }, { type: 'file', file: { file_data: 'data:application/pdf;base64,aGk=', filename: 'a.pdf' } }]
      },
      { role: 'assistant', content: null,
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'b', arguments: '{}' } }, { id: 'c', type: 'custom',
          custom: { name: 'd', input: 'e' } }] },
      { role: 'tool', tool_call_id: 'a', content: 'b' },
      { role: 'tool', tool_call_id: 'c', content: [{ type: 'text', text: 'd' }] },
      { role: 'assistant', content: [{ type: 'text', text: 'a' }, { type: 'refusal', refusal: 'b' }], refusal: null,
        function_call: null, audio: null, name: 'c' },
      { role: 'assistant', function_call: { name: 'a', arguments: '' } },
      { role: 'function', name: 'a', content: null }
    ],
    tools: [{ type: 'function', function: { name: 'b', description: 'c', parameters: {}, strict: null } }, {
      type: 'custom',
      custom: { name: 'd', format: { type: 'text' } }
    }],
    parallel_tool_calls: false
  },
  ...(['none', 'auto', 'required', { type: 'function', function: { name: 'b' } }, { type: 'custom',
    custom: { name: 'b' } }, { type: 'allowed_tools',
    allowed_tools: { mode: 'auto', tools: [{ type: 'function', function: { name: 'b' } }] } }] as const)
    .map((choice): OpenAI.ChatCompletionCreateParams => ({
      model: 'm1',
      messages: [{ role: 'user', content: 'a' }],
      tools: [{ type: 'function', function: { name: 'b' } }],
      tool_choice: choice as OpenAI.ChatCompletionToolChoiceOption
    })),
  { model: 'm1', messages: [{ role: 'user', content: 'a' }], functions: [{ name: 'b' }], function_call: { name: 'b' } },
  {
    model: 'm1',
    messages: [{ role: 'user', content: 'a' }],
    functions: [{ name: 'b', parameters: {} }],
    function_call: 'auto'
  },
  ...(['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const)
    .map((effort): OpenAI.ChatCompletionCreateParams => ({
      model: 'm1',
      messages: [{ role: 'user', content: 'a' }],
      reasoning_effort: effort
    })),
  {
    model: 'm1',
    messages: [{ role: 'user', content: 'a' }],
    response_format: { type: 'json_schema', json_schema: { name: 'b', schema: {}, strict: true } }
  },
  {
    model: 'm1',
    messages: [{ role: 'user', content: 'a' }],
    response_format: { type: 'json_object' },
    modalities: ['text'],
    seed: 1,
    logprobs: true,
    top_logprobs: 5,
    logit_bias: { 5: 1 },
    presence_penalty: -2,
    frequency_penalty: 2,
    prediction: { type: 'content', content: 'a' },
    store: true,
    metadata: { a: 'b' },
    service_tier: 'flex',
    verbosity: 'low',
    prompt_cache_key: 'a',
    prompt_cache_retention: '24h',
    user: 'a',
    safety_identifier: 'b'
  }
]

t.test('chat-completions: what the SDK\'s types allow passes', async (t) => {
  for (const body of sdkChat) {
    const got = await post('/v1/chat/completions', body)
    t.equal(got.status, 200, `${JSON.stringify(body)}: ${await got.text()}`)
  }
})
