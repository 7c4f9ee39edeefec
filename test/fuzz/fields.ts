// Every documented field of every route, in one request that has them all, and what may stand in its place that is of
// another type.

export type JsonType = 'null' | 'boolean' | 'number' | 'string' | 'array' | 'object'

export interface Route {
  readonly path: string
  /** valid, and with every documented field that it can have at once */
  readonly body: object
  /**
   * by the path of a field, such as "messages[].content": the types that it may have, where it is not just the one that
   * it has there
   */
  readonly takes: Readonly<Record<string, readonly JsonType[]>>
  /** paths of fields that must be there, with indices where it depends on what is around them */
  readonly required: readonly string[]
}

export interface Field {
  /** where it is: names, and indices of lists */
  readonly at: readonly (string | number)[]
  /** with indices */
  readonly path: string
  readonly name: string
  readonly isRequired: boolean
  readonly takes: readonly JsonType[]
}

/** What is below these is the client's own JSON, or a vendor's. */
const OPEN: ReadonlySet<string> = new Set(['input', 'input_schema', 'parameters', 'schema', 'action', 'operation',
  'arguments'])

const TEXT_OR_PARTS: readonly JsonType[] = ['string', 'array']
const SCHEMA = { type: 'object', properties: { where: { type: 'string' } }, required: ['where'],
  additionalProperties: false }
const CACHED = { cache_control: { type: 'ephemeral', ttl: '5m' } }
const PNG = 'iVBORw0KGgo='
/** By the simulator, for "hm". */
const SIGNED = '5NiqsT4iGPj8pCxSNRs34zhm/+QLrtrLrLIAs80UqeA='

const about = {
  messages: [
    { role: 'system', content: 'Be kind.' },
    { role: 'user', content: [
      { type: 'text', text: 'Hello', ...CACHED },
      { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } },
      { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
      { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'words' }, title: 'A', context: 'B' },
      { type: 'document', source: { type: 'content', content: [{ type: 'text', text: 'more' }] } },
      { type: 'search_result', source: 'https://example.com', title: 'A', content: [{ type: 'text', text: 'found' }] }
    ] },
    { role: 'assistant',
      content: [{ type: 'thinking', thinking: 'hm', signature: SIGNED }, { type: 'redacted_thinking', data: 'x' }, {
        type: 'tool_use',
        id: 'toolu_1',
        name: 'look',
        input: { where: 'here' }
      }] },
    { role: 'user',
      content: [{ type: 'tool_result', tool_use_id: 'toolu_1', is_error: false,
        content: [{ type: 'text', text: 'nothing' }] }] }
  ],
  system: [{ type: 'text', text: 'Be brief', ...CACHED }],
  thinking: { type: 'enabled', budget_tokens: 1024 },
  tools: [{ type: 'custom', name: 'look', description: 'looks', input_schema: SCHEMA, ...CACHED }],
  tool_choice: { type: 'auto', disable_parallel_tool_use: false },
  output_config: { effort: 'low', format: { type: 'json_schema', schema: SCHEMA } }
}

const aboutTakes: Route['takes'] = { 'messages[].content': TEXT_OR_PARTS, 'messages[].content[].content': TEXT_OR_PARTS,
  'messages[].content[].source.content': TEXT_OR_PARTS, system: TEXT_OR_PARTS }
const aboutRequires = [
  'model',
  'messages',
  'messages[].role',
  'messages[1].content',
  'messages[2].content',
  'messages[3].content',
  'messages[].content[].type',
  'messages[].content[].text',
  'messages[].content[].source',
  'messages[].content[].source.type',
  'messages[].content[].source.media_type',
  'messages[].content[].source.data',
  'messages[].content[].source.url',
  'messages[].content[].source.content',
  'messages[].content[].source.content[].type',
  'messages[].content[].source.content[].text',
  'messages[1].content[5].title',
  'messages[1].content[5].content',
  'messages[].content[].content[].type',
  'messages[].content[].content[].text',
  'messages[].content[].thinking',
  'messages[].content[].data',
  'messages[].content[].id',
  'messages[].content[].name',
  'messages[].content[].input',
  'messages[].content[].tool_use_id',
  'messages[].content[].cache_control.type',
  'system[].type',
  'system[].text',
  'system[].cache_control.type',
  'thinking.type',
  'thinking.budget_tokens',
  'tools[].name',
  'tools[].input_schema',
  'tools[].cache_control.type',
  'tool_choice.type',
  'output_config.format.type'
]

const call = { name: 'look', arguments: '{"where":"here"}' }

const picture = { model: 'image', prompt: 'a cat', n: 1, resolution: '1K', size: '512x512', tier: 'lite',
  response_format: 'url', user: 'u', stream: false, partial_images: 0 }
/** Numbers are taken for what a price depends on: vendors' clients write seconds so. */
const priced: readonly JsonType[] = ['string', 'number']
const pictureTakes: Route['takes'] = { resolution: priced, size: priced, tier: priced }

export const ROUTES: readonly Route[] = [
  {
    path: '/v1/messages',
    body: { ...about, model: 'text', max_tokens: 2000, stream: false, stop_sequences: ['END'],
      metadata: { user_id: 'u' } },
    takes: { ...aboutTakes, stop_sequences: TEXT_OR_PARTS },
    required: [...aboutRequires, 'max_tokens']
  },
  { path: '/v1/messages',
    body: { model: 'text', max_tokens: 20, temperature: 0.5, messages: [{ role: 'user', content: 'Hello' }] },
    takes: aboutTakes, required: ['model', 'max_tokens', 'messages', 'messages[].role', 'messages[].content'] },
  { path: '/v1/messages',
    body: { model: 'text', max_tokens: 20, top_p: 0.9, top_k: 5, messages: [{ role: 'user', content: 'Hello' }] },
    takes: aboutTakes, required: ['model', 'max_tokens', 'messages', 'messages[].role', 'messages[].content'] },
  { path: '/v1/messages/count_tokens', body: { ...about, model: 'text' }, takes: aboutTakes, required: aboutRequires },
  ...['text', 'chat'].map((model): Route => ({
    path: '/v1/chat/completions',
    body: {
      model,
      max_tokens: 2000,
      max_completion_tokens: 2000,
      temperature: 0.5,
      top_p: 0.9,
      stream: false,
      stream_options: { include_usage: true },
      stop: ['END'],
      n: 1,
      messages: [
        { role: 'system', content: 'Be brief' }, { role: 'developer', content: [{ type: 'text', text: 'and kind' }] },
        { role: 'user', content: [
          { type: 'text', text: 'Hello', ...CACHED },
          { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } },
          { type: 'image_url', image_url: 'https://example.com/a.png' },
          { type: 'file', file: { filename: 'a.txt', file_data: 'data:text/plain;base64,aGk=' } }
        ] },
        { role: 'assistant', content: [{ type: 'text', text: 'x' }, { type: 'refusal', refusal: 'no' }],
          refusal: 'no' },
        { role: 'user', content: 'again' },
        { role: 'assistant', content: 'x',
          tool_calls: [{ id: 'call_1', type: 'function', function: call }, { id: 'call_2', type: 'custom',
            custom: { name: 'free', input: 'x' } }] },
        { role: 'tool', tool_call_id: 'call_1', content: [{ type: 'text', text: 'nothing' }] },
        { role: 'tool', tool_call_id: 'call_2', content: 'nothing' },
        { role: 'user', content: 'again' },
        { role: 'assistant', content: 'x', function_call: call },
        { role: 'function', name: 'look', content: 'nothing' }
      ],
      tools: [
        { type: 'function', function: { name: 'look', description: 'looks', parameters: SCHEMA, strict: true } },
        { type: 'custom',
          custom: { name: 'free', description: 'takes words',
            format: { type: 'grammar', grammar: { syntax: 'lark', definition: 'start: "a"' } } } }
      ],
      functions: [{ name: 'old', description: 'is old', parameters: SCHEMA }],
      tool_choice: 'auto', function_call: 'auto', parallel_tool_calls: false, reasoning_effort: 'none',
      response_format: { type: 'json_schema', json_schema: { name: 'r', strict: true, schema: SCHEMA } },
      modalities: ['text'], user: 'u', safety_identifier: 'u', thinking: { type: 'disabled' }, top_k: 5
    },
    takes: { 'messages[].content': TEXT_OR_PARTS, 'messages[].content[].image_url': ['string', 'object'],
      stop: TEXT_OR_PARTS, tool_choice: ['string', 'object'], function_call: ['string', 'object'] },
    required: [
      'model',
      'messages',
      'messages[].role',
      ...[0, 1, 2, 4, 8].map((i) => `messages[${i}].content`),
      'messages[].content[].type',
      'messages[].content[].text',
      'messages[].content[].refusal',
      'messages[].content[].image_url',
      'messages[].content[].image_url.url',
      'messages[].content[].file',
      'messages[].content[].file.file_data',
      'messages[].content[].cache_control.type',
      'messages[].tool_calls[].id',
      'messages[].tool_calls[].function',
      'messages[].tool_calls[].function.name',
      'messages[].tool_calls[].custom',
      'messages[].tool_calls[].custom.name',
      'messages[].tool_calls[].custom.input',
      'messages[].function_call.name',
      'messages[].name',
      'messages[].tool_call_id',
      'tools[].function',
      'tools[].function.name',
      'tools[].custom',
      'tools[].custom.name',
      'tools[].custom.format.grammar.syntax',
      'tools[].custom.format.grammar.definition',
      'functions[].name',
      'response_format.type',
      'response_format.json_schema',
      'thinking.type'
    ]
  })),
  ...['text', 'chat'].map((model): Route => ({
    path: '/v1/responses',
    body: {
      model,
      instructions: 'Be brief',
      max_output_tokens: 2000,
      temperature: 0.5,
      top_p: 0.9,
      stream: false,
      store: false,
      background: false,
      include: ['reasoning.encrypted_content'],
      input: [
        { role: 'developer', content: [{ type: 'input_text', text: 'and kind' }] },
        { type: 'message', id: 'msg_1', role: 'user', content: [
          { type: 'input_text', text: 'Hello', prompt_cache_breakpoint: { mode: 'explicit' } },
          { type: 'input_image', image_url: `data:image/png;base64,${PNG}`, detail: 'low' },
          { type: 'input_file', filename: 'a.txt', file_data: 'data:text/plain;base64,aGk=' }
        ] },
        { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'x' },
        { type: 'message', role: 'assistant',
          content: [{ type: 'output_text', text: 'x' }, { type: 'refusal', refusal: 'no' }] },
        { type: 'function_call', id: 'fc_1', call_id: 'call_1', namespace: 'ns', ...call },
        { type: 'custom_tool_call', call_id: 'call_2', name: 'free', input: 'x' },
        { type: 'shell_call', call_id: 'call_3', action: { commands: ['ls'] } },
        { type: 'local_shell_call', call_id: 'call_4', action: { type: 'exec', command: ['ls'] } },
        { type: 'apply_patch_call', call_id: 'call_5', operation: { type: 'delete_file', path: 'a' } },
        { type: 'tool_search_call', call_id: 'call_6', arguments: { query: 'x' } },
        { type: 'function_call_output', call_id: 'call_1', output: [{ type: 'input_text', text: 'nothing' }] },
        { type: 'custom_tool_call_output', call_id: 'call_2', output: 'nothing' },
        { type: 'shell_call_output', call_id: 'call_3', output: [{ stdout: 'x' }] },
        { type: 'local_shell_call_output', call_id: 'call_4', output: 'x' },
        { type: 'apply_patch_call_output', call_id: 'call_5', status: 'failed', output: 'x' },
        { type: 'tool_search_output', call_id: 'call_6', tools: [{ type: 'function', name: 'found' }] },
        { type: 'additional_tools', tools: [{ type: 'custom', name: 'more' }] },
        { type: 'configuration_update', reasoning: { effort: 'none' }, text: { verbosity: 'low' } },
        { type: 'web_search_call', id: 'ws_1' },
        { role: 'user', content: 'again' }
      ],
      tools: [
        { type: 'function', name: 'look', description: 'looks', parameters: SCHEMA, strict: true },
        { type: 'custom', name: 'free', description: 'takes words',
          format: { type: 'grammar', syntax: 'lark', definition: 'start: "a"' } },
        { type: 'namespace', name: 'ns', description: 'more', tools: [{ type: 'function', name: 'look' }] },
        { type: 'tool_search', execution: 'client', description: 'finds', parameters: SCHEMA },
        { type: 'shell', environment: { type: 'local' } }
      ],
      tool_choice: 'auto', parallel_tool_calls: false, max_tool_calls: 3, top_logprobs: 0,
      reasoning: { effort: 'low', summary: 'auto', generate_summary: 'auto', mode: 'standard' },
      text: { verbosity: 'low',
        format: { type: 'json_schema', name: 'r', description: 'x', strict: true, schema: SCHEMA } },
      metadata: { a: 'b' }, user: 'u', safety_identifier: 'u', prompt_cache_key: 'k', prompt_cache_options: {},
      prompt_cache_retention: '24h', service_tier: 'auto', truncation: 'auto', context_management: [],
      stream_options: {}
    },
    takes: { input: TEXT_OR_PARTS, 'input[].content': TEXT_OR_PARTS, 'input[].output': TEXT_OR_PARTS,
      'input[9].arguments': ['string', 'object'], tool_choice: ['string', 'object'] },
    required: [
      'model',
      'input',
      ...[0, 1, 3, 19].map((i) => `input[${i}].content`),
      'input[].content[].type',
      'input[].content[].text',
      'input[].content[].refusal',
      'input[].role',
      ...[4, 5, 6, 7, 8, 10, 11, 12, 14].map((i) => `input[${i}].call_id`),
      ...[4, 5].map((i) => `input[${i}].name`),
      'input[5].input',
      'input[].action',
      'input[].operation',
      ...[10, 11, 12, 13].map((i) => `input[${i}].output`),
      'input[].output[].type',
      'input[].output[].text',
      'input[].tools[].type',
      'input[].tools[].name',
      'tools[].type',
      ...[0, 1, 2].map((i) => `tools[${i}].name`),
      'tools[].format.syntax',
      'tools[].format.definition',
      'tools[].tools[].type',
      'tools[].tools[].name',
      'text.format.type',
      'text.format.schema',
      'metadata.a'
    ]
  })),
  { path: '/v1/images/generations', body: picture, takes: pictureTakes, required: ['model', 'prompt'] },
  {
    path: '/v1/images/edits',
    body: { ...picture, images: [{ image_url: `data:image/png;base64,${PNG}` }],
      mask: { image_url: 'https://example.com/m.png' } },
    takes: { ...pictureTakes, images: ['array', 'object', 'string'], 'images[]': ['object', 'string'],
      'images[].image_url': ['string', 'object'], mask: ['array', 'object', 'string'],
      'mask.image_url': ['string', 'object'] },
    required: ['model', 'prompt', 'images', 'images[]', 'images[].image_url', 'mask.image_url']
  },
  {
    path: '/v1/videos',
    body: { model: 'clip', prompt: 'a cat', seconds: '4', size: '1280x720',
      input_reference: { image_url: `data:image/png;base64,${PNG}` }, stream: false },
    takes: { seconds: priced, size: priced },
    required: ['model', 'prompt', 'input_reference.image_url']
  },
  {
    path: '/v1/quote',
    body: { path: '/v1/messages',
      body: { model: 'text', max_tokens: 20, messages: [{ role: 'user', content: 'Hello' }] } },
    takes: { 'body.messages[].content': TEXT_OR_PARTS },
    required: ['path', 'body.model', 'body.max_tokens', 'body.messages', 'body.messages[].role',
      'body.messages[].content']
  }
]

/**
 * Of each type, what a client may send that is careless, or means harm: what a program of JavaScript asks of any value
 * is there, and is no function.
 */
export const VALUES: Readonly<Record<JsonType, readonly unknown[]>> = {
  null: [null],
  boolean: [true, false],
  number: [0, 5, -1, 0.5, 1e308, Number.MAX_SAFE_INTEGER],
  string: ['', 'x', '5', 'true', '\u0000', '\ud800', 'constructor', '__proto__', 'x'.repeat(1000)],
  array: [[], [[]], [null], [5], ['x'], [{}]],
  object: [{}, { toString: 1, valueOf: 1 }, { toJSON: 1, then: 1, length: 1e9 }, { constructor: { prototype: null } }, {
    type: { toString: null }
  }, JSON.parse('{"__proto__": {"type": "text"}}')]
}

export function typeOf (value: unknown): JsonType {
  return value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value as JsonType
}

/** All that are documented, the members of lists among them. */
export function fieldsOf ({ body, takes, required }: Route): readonly Field[] {
  const found: Field[] = []
  const look = (value: unknown, at: readonly (string | number)[], path: string): void => {
    const isList = Array.isArray(value)
    for (const [key, below] of Object.entries(value as object)) {
      const own = isList ? `${path}[${key}]` : path === '' ? key : `${path}.${key}`
      const any = own.replace(/\[\d+\]/g, '[]')
      const name = isList ? /(\w+)(?:\[\])*$/.exec(any)![1]! : key
      const here = [...at, isList ? Number(key) : key]
      // A member of a list is never just left out.
      found.push({ at: here, path: own, name, isRequired: isList || required.includes(any) || required.includes(own),
        takes: takes[own] ?? takes[any] ?? [typeOf(below)] })
      // The input of the Responses API is its conversation.
      const isOpen = OPEN.has(key) && own !== 'input'
      if (typeof below === 'object' && below !== null && !isOpen) look(below, here, own)
    }
  }
  look(body, [], '')
  return found
}

/** The body with another value in one place. */
export function withValue (body: object, at: readonly (string | number)[], value: unknown): object {
  const copy = structuredClone(body) as Record<string | number, unknown>
  let owner = copy
  for (const key of at.slice(0, -1)) owner = owner[key] as Record<string | number, unknown>
  owner[at.at(-1)!] = value
  return copy
}
