// responses-to-messages, the request: tables of what each item, field and tool becomes in messages style, or how it is
// refused; and whatever a client sends, what goes on is a request that the vendor takes.
import fc from 'fast-check'
import t from 'tap'
import { responsesToMessages } from '../../plugins/responses-to-messages/index.ts'
import { toMessages, type Translated } from '../../plugins/responses-to-messages/request.ts'
import { toolCalled } from '../../plugins/responses-to-messages/shape.ts'
import { schemaValidate } from '../../plugins/schema-validate/index.ts'
import type { ModelConfig } from '../../src/config/config.ts'
import { Model } from '../../src/core/facts.ts'
import { Blobs } from '../../src/core/large-strings.ts'
import { isGatewayError } from '../../src/errors.ts'
import { withoutSystemTurns } from '../../src/upstream/dialects/messages/system-turns.ts'
import { checkBody } from '../../src/simulator/messages-body.ts'
import { config, exchange, model, snapshot, upstreamConfig } from '../support/exchange.ts'

type Json = Readonly<Record<string, unknown>>

const HELLO = { role: 'user', content: 'Hello' }
const THOUGHT = { type: 'thinking', thinking: 'hm', signature: 'sealed' }
const REDACTED = { type: 'redacted_thinking', data: 'dark' }
const CALL = { type: 'function_call', call_id: 'c1', name: 'look', arguments: '{"where":"here"}' }
const OUTPUT = { type: 'function_call_output', call_id: 'c1', output: 'nothing' }
const USE = { type: 'tool_use', id: 'c1', name: 'look', input: { where: 'here' } }
const RESULT = { type: 'tool_result', tool_use_id: 'c1', content: [text('nothing')] }
const IMAGE = 'data:image/png;base64,iVBORw0KGgo='
const IMAGE_BLOCK = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } }

function text (said: string): Json {
  return { type: 'text', text: said }
}

/** What is sealed here begins with a word for its purpose. */
function open (purpose: string, sealed: string): string | undefined {
  return sealed.startsWith(`${purpose}:`) ? sealed.slice(purpose.length + 1) : undefined
}

const reasoning = (...blocks: readonly Json[]): Json => ({ type: 'reasoning', id: 'rs_1', summary: [], content: null,
  encrypted_content: `reasoning:${JSON.stringify(blocks)}` })

function translate (body: Json, settings: Partial<ModelConfig> = {}, isLong = false): Translated {
  return toMessages({ model: 'm1', input: [HELLO], ...body }, { stream: body['stream'] === true,
    model: model('m1', { premium: 'u/vendor-m1*1' }, { max_output: 64_000, ...settings }), blobs: new Blobs(), isLong, open })
}

interface Refusal { readonly status: number, readonly code: string, readonly param: string | null,
  readonly message: string }

const configured = config({ upstreams: { u: upstreamConfig() },
  models: [model('m1', { premium: 'u/vendor-m1*1' }, { max_output: 64_000, accepts: ['text', 'image'] })] })
const both = snapshot(configured, [schemaValidate, responsesToMessages])
const alone = snapshot(configured, [responsesToMessages])

/** The refusal of a body by both plugins, or by the translator alone. @throws whatever is no GatewayError */
function refusal (body: Json, on = both): Refusal | undefined {
  const made = exchange(on, { path: '/v1/responses' })
  made.set(Model, on.models.get('m1')!)
  made.request = { body: JSON.parse(JSON.stringify({ model: 'm1', ...body })) as Json, stream: false }
  try {
    for (const { call } of made.route.hooks.onRequest) void call(made)
    return undefined
  } catch (thrown) {
    if (!isGatewayError(thrown)) throw thrown
    return { status: thrown.status, code: thrown.code, param: thrown.param, message: thrown.message }
  }
}

/** Of the vendor, in its words; undefined: it takes the body. */
function vendorRefusal (body: Json): string | undefined {
  try {
    checkBody(JSON.parse(JSON.stringify(body)), '2023-06-01', 'messages')
    return undefined
  } catch (thrown) {
    return String(thrown)
  }
}

const user = (...content: readonly unknown[]): Json => ({ role: 'user', content })
const system = (...content: readonly unknown[]): Json => ({ role: 'system', content })
const assistant = (...content: readonly unknown[]): Json => ({ role: 'assistant', content })
const MISSING = { type: 'tool_result', tool_use_id: 'c1',
  content: 'There is no output: the call was interrupted.', is_error: true }

/** name, items, turns, system */
const items: readonly (readonly [string, readonly Json[] | string, readonly Json[], (readonly Json[])?])[] = [
  ['a text is the user\'s', 'Hi', [user(text('Hi'))]],
  ['a message without a type', [HELLO], [user(text('Hello'))]],
  ['a message with one, an id that repeats, a phase, a status', [
    { type: 'message', id: 'msg_123', ...HELLO },
    { type: 'message', id: 'msg_123', role: 'assistant', phase: 'final_answer', status: 'completed',
      content: [{ type: 'output_text', text: 'Hi', annotations: [] }] },
    { type: 'message', id: 'msg_123', role: 'user', content: [{ type: 'input_text', text: 'Go' }] }
  ], [user(text('Hello')), assistant(text('Hi')), user(text('Go'))]],
  ['system and developer before the first turn are the system', [
    { role: 'system', content: 'A' }, { role: 'developer', content: [{ type: 'input_text', text: 'B' }] }, HELLO
  ], [user(text('Hello'))], [text('A'), text('B')]],
  ['later they stay where they are', [
    HELLO, { role: 'assistant', content: 'Hi' }, { role: 'developer', content: 'Be brief' }, { role: 'user', content: 'Go' }
  ], [user(text('Hello')), assistant(text('Hi')), user(text('Go')), system(text('Be brief'))]],
  ['several, between messages of the user', [
    HELLO, { role: 'developer', content: 'Be brief' }, { role: 'user', content: 'Go' }, { role: 'system', content: 'Or not' }
  ], [user(text('Hello'), text('Go')), system(text('Be brief'), text('Or not'))]],
  ['behind an answer there is a question first', [
    HELLO, { role: 'assistant', content: 'Hi' }, { role: 'developer', content: 'Be brief' },
    { role: 'assistant', content: 'Ho' }, { role: 'developer', content: 'Stop' }
  ], [user(text('Hello')), assistant(text('Hi')), user(text('Continue.')), system(text('Be brief')),
    assistant(text('Ho')), user(text('Continue.')), system(text('Stop'))]],
  ['a blank one is none', [HELLO, { role: 'developer', content: ' ' }], [user(text('Hello'))]],
  ['an image can be no system', [
    { role: 'system', content: [{ type: 'input_text', text: 'Like this:' }, { type: 'input_image', image_url: IMAGE }] },
    { role: 'developer', content: [{ type: 'input_image', image_url: IMAGE }, { type: 'input_text', text: 'Or this' }] },
    HELLO
  ], [user(IMAGE_BLOCK, IMAGE_BLOCK, text('Hello')), system(text('Or this'))], [text('Like this:')]],
  ['blank texts are left out', [{ role: 'user', content: ' ' }, HELLO, { role: 'assistant', content: [] }],
    [user(text('Hello'))]],
  ['turns of one role are one', [HELLO, { role: 'user', content: 'You' }], [user(text('Hello'), text('You'))]],
  ['a refusal is text', [HELLO, { role: 'assistant', content: [{ type: 'refusal', refusal: 'No' }] }, HELLO],
    [user(text('Hello')), assistant(text('No')), user(text('Hello'))]],
  ['the model\'s own words at the end', [HELLO, { role: 'assistant', content: 'Hi' }],
    [user(text('Hello')), assistant(text('Hi')), user(text('Continue.'))]],
  ['images and files', [{ role: 'user', content: [
    { type: 'input_image', image_url: IMAGE, detail: 'high' },
    { type: 'input_image', image_url: 'https://example.com/a.png' },
    { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' },
    { type: 'input_file', filename: 'a.txt', file_data: 'data:text/plain;base64,aGk=' },
    { type: 'input_file', file_url: 'https://example.com/a.pdf' }
  ] }], [user(
    IMAGE_BLOCK,
    { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
    { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0=' }, title: 'a.pdf' },
    { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'hi' }, title: 'a.txt' },
    { type: 'document', source: { type: 'url', url: 'https://example.com/a.pdf' } }
  )]],
  ['thoughts, text and calls are one turn, in their order', [
    HELLO, reasoning(THOUGHT, REDACTED), { role: 'assistant', content: 'I look' }, CALL, OUTPUT
  ], [user(text('Hello')), assistant(THOUGHT, REDACTED, text('I look'), USE), user(RESULT)]],
  ['as Codex sends it: thoughts, calls, outputs', [
    HELLO, reasoning(THOUGHT), CALL, { ...CALL, call_id: 'c2' }, { ...OUTPUT, call_id: 'c2' }, OUTPUT,
    reasoning(REDACTED), { ...CALL, call_id: 'c3' }, { ...OUTPUT, call_id: 'c3' }
  ], [
    user(text('Hello')), assistant(THOUGHT, USE, { ...USE, id: 'c2' }), user(RESULT, { ...RESULT, tool_use_id: 'c2' }),
    assistant(REDACTED, { ...USE, id: 'c3' }), user({ ...RESULT, tool_use_id: 'c3' })
  ]],
  ['what stands between a call and its output moves behind it', [
    HELLO, CALL, { role: 'developer', content: 'Quick' }, { role: 'user', content: 'Well?' }, OUTPUT
  ], [user(text('Hello')), assistant(USE),
    user(RESULT, text('Well?')), system(text('Quick'))]],
  ['several outputs of one call are one result', [HELLO, CALL, OUTPUT, { ...OUTPUT, output: 'more' }],
    [user(text('Hello')), assistant(USE), user({ ...RESULT, content: [text('nothing'), text('more')] })]],
  ['a late output of an earlier call joins it there', [
    HELLO, CALL, OUTPUT, { ...CALL, call_id: 'c2' }, { ...OUTPUT, output: 'more' }, { ...OUTPUT, call_id: 'c2' }
  ], [user(text('Hello')), assistant(USE), user({ ...RESULT, content: [text('nothing'), text('more')] }),
    assistant({ ...USE, id: 'c2' }), user({ ...RESULT, tool_use_id: 'c2' })]],
  ['a call without an output', [HELLO, CALL, { role: 'user', content: 'Stop' }],
    [user(text('Hello')), assistant(USE), user(MISSING, text('Stop'))]],
  ['a call without an output at the end', [HELLO, CALL], [user(text('Hello')), assistant(USE), user(MISSING)]],
  ['an output without a call', [HELLO, OUTPUT],
    [user(text('Hello'), text('The output of a call "c1" that is not shown:'), text('nothing'))]],
  ['a call that is there twice', [HELLO, CALL, CALL, OUTPUT], [user(text('Hello')),
    assistant(USE, { ...USE, id: 'gw_c1_2_S0_3zJP4bbgC0R_0QBQ0BQ' }), user(MISSING, { ...RESULT, tool_use_id: 'gw_c1_2' })]],
  ['an empty output', [HELLO, CALL, { ...OUTPUT, output: '' }],
    [user(text('Hello')), assistant(USE), user({ type: 'tool_result', tool_use_id: 'c1' })]],
  ['images of an output are images', [HELLO, CALL, { ...OUTPUT, output: [{ type: 'input_text', text: 'see' },
    { type: 'input_image', image_url: IMAGE }] }],
  [user(text('Hello')), assistant(USE), user({ ...RESULT, content: [text('see'), IMAGE_BLOCK] })]],
  ['arguments: none, blank, no JSON, no object', [
    HELLO, ...['', ' ', '{"a":', '[1]'].map((broken, i) => ({ ...CALL, call_id: `c${i}`, arguments: broken })),
    ...[0, 1, 2, 3].map((i) => ({ ...OUTPUT, call_id: `c${i}` }))
  ], [user(text('Hello')),
    assistant(...[{}, {}, { _raw: '{"a":' }, { _raw: '[1]' }].map((input, i) => ({ ...USE, id: `c${i}`, input }))),
    user(...[0, 1, 2, 3].map((i) => ({ ...RESULT, tool_use_id: `c${i}` })))]],
  ['an id that vendors refuse', [HELLO, { ...CALL, call_id: 'f:0' }, { ...OUTPUT, call_id: 'f:0' }], [user(text('Hello')),
    assistant({ ...USE, id: 'gw_f_0_' }), user({ ...RESULT, tool_use_id: 'gw_f_0_' })]],
  ['a namespace', [HELLO, { ...CALL, namespace: 'ns' }, OUTPUT],
    [user(text('Hello')), assistant({ ...USE, name: 'ns__look' }), user(RESULT)]],
  ['a custom call', [HELLO, { type: 'custom_tool_call', call_id: 'c1', name: 'patch', input: '*** Begin' },
    { type: 'custom_tool_call_output', call_id: 'c1', output: 'nothing' }],
  [user(text('Hello')), assistant({ ...USE, name: 'patch', input: { input: '*** Begin' } }), user(RESULT)]],
  ['a search for tools', [
    HELLO, { type: 'tool_search_call', call_id: 'c1', execution: 'client', arguments: { query: 'x' } },
    { type: 'tool_search_output', call_id: 'c1', tools: [
      { type: 'namespace', name: 'ns', description: '', tools: [{ type: 'function', name: 'look', parameters: {} }] }
    ] }
  ], [user(text('Hello')), assistant({ ...USE, name: 'tool_search', input: { query: 'x' } }),
    user({ ...RESULT, content: [text('These tools are there now: look')] })]],
  ['a search at the vendor', [HELLO, { type: 'tool_search_call', call_id: null, arguments: {} },
    { type: 'tool_search_output', call_id: null, tools: [] }], [user(text('Hello'))]],
  ['a local shell, whose output names the item', [
    HELLO, { type: 'local_shell_call', id: 'lsh_1', call_id: 'c1', action: { type: 'exec', command: ['ls'], env: {} } },
    { type: 'local_shell_call_output', id: 'lsh_1', output: 'nothing' }
  ], [user(text('Hello')), assistant({ ...USE, name: 'local_shell', input: { command: ['ls'], env: {} } }), user(RESULT)]],
  ['a shell', [
    HELLO, { type: 'shell_call', call_id: 'c1', action: { commands: ['ls', 'x'] } },
    { type: 'shell_call_output', call_id: 'c1', output: [
      { stdout: 'a', stderr: '', outcome: { type: 'exit', exit_code: 0 } }, { stdout: '', outcome: { type: 'timeout' } }
    ] }
  ], [user(text('Hello')), assistant({ ...USE, name: 'shell', input: { commands: ['ls', 'x'] } }),
    user({ ...RESULT, content: [text('{"stdout":"a","stderr":"","exit_code":0}'),
      text('{"stdout":"","stderr":"","timed_out":true}')] })]],
  ['a patch that failed', [
    HELLO, { type: 'apply_patch_call', call_id: 'c1', operation: { type: 'delete_file', path: 'a' } },
    { type: 'apply_patch_call_output', call_id: 'c1', status: 'failed', output: 'nothing' }
  ], [user(text('Hello')), assistant({ ...USE, name: 'apply_patch', input: { type: 'delete_file', path: 'a' } }),
    user({ ...RESULT, is_error: true })]],
  ['thoughts of others, and such as nothing follows, are left out', [
    HELLO, { type: 'reasoning', summary: [], encrypted_content: 'gAAAA' }, { type: 'reasoning', summary: [] },
    { ...reasoning(), encrypted_content: 'reasoning:{' }, reasoning({ type: 'text', text: 'x' }, { type: 'thinking' }),
    { role: 'assistant', content: 'Hi' }, reasoning(THOUGHT), { role: 'user', content: 'Go' }, reasoning(THOUGHT)
  ], [user(text('Hello')), assistant(text('Hi')), user(text('Go'))]],
  ['hosted tools are left out; what one has given is told', [
    HELLO, ...['web_search_call', 'file_search_call', 'code_interpreter_call', 'image_generation_call', 'computer_call',
      'computer_call_output', 'mcp_list_tools', 'mcp_approval_request', 'mcp_approval_response', 'program',
      'program_output'].map((type) => ({ type })),
    { type: 'mcp_call', name: 'find', server_label: 'docs', output: 'found' }, { type: 'mcp_call', name: 'find' }, HELLO
  ], [user(text('Hello')), assistant(text('The tool "find" of "docs" returned: found')), user(text('Hello'))]],
  ['a summary', [{ type: 'compaction', encrypted_content: 'compaction:All went well.' }, HELLO],
    [user(text('Summary of the conversation so far:\nAll went well.'), text('Hello'))]],
  ['tools and settings among the items are no turns', [
    { type: 'additional_tools', role: 'developer', tools: [] }, { type: 'configuration_update' }, HELLO
  ], [user(text('Hello'))]]
]

/** An id that is made of a hash, as far as a table says it. */
function shortIds (value: unknown): unknown {
  return JSON.parse(JSON.stringify(value).replace(/"(gw_c1_2|gw_f_0_)[\w-]*"/g, '"$1"'))
}

t.test('each item becomes what messages style has for it (rule responses-request)', async (t) => {
  for (const [name, input, turns, system] of items) {
    const { body } = translate({ input }, { thinking: 'adaptive' })
    t.strictSame(shortIds(body['messages']), shortIds(turns), name)
    t.strictSame(body['system'], system, name)
    t.equal(vendorRefusal(body), undefined, name)
    t.equal(refusal({ input: typeof input === 'string' ? input : input.filter(({ type }) => type !== 'compaction') }),
      undefined, `${name}: passes the schema`)
  }
})

t.test('ids that are replaced are told apart, and the same in call and output', async (t) => {
  const { body } = translate({ input: [HELLO, CALL, OUTPUT, CALL, OUTPUT, { ...CALL, call_id: 'f:0' }] })
  const blocks = (body['messages'] as readonly { readonly content: readonly Json[] }[]).flatMap(({ content }) => content)
  const made = blocks.flatMap(({ id }) => id ?? [])
  t.equal(new Set(made).size, 3)
  t.strictSame(blocks.flatMap(({ tool_use_id: id }) => id ?? []), made)
})

const LOOK = { type: 'function', name: 'look', description: 'looks', parameters: { type: 'object', properties: {} } }
const LOOK_TOOL = { name: 'look', description: 'looks', input_schema: { type: 'object', properties: {} } }

t.test('each tool becomes one of the model\'s, and is found by its name there', async (t) => {
  const custom = { type: 'custom', name: 'patch', description: 'patches',
    format: { type: 'grammar', syntax: 'lark', definition: 'start: "a"' } }
  const patch = { name: 'patch', description: 'patches', input_schema: { type: 'object', properties: {
    input: { type: 'string', description: 'Must match this lark grammar:\nstart: "a"' } }, required: ['input'],
  additionalProperties: false } }
  const space = { type: 'namespace', name: 'ns', description: 'Of the sea.', tools: [LOOK, custom] }
  /** name, tools, the model's tools (in parts), the client's by the model's names, types that were dropped */
  const rows: readonly (readonly [string, readonly Json[], readonly Json[], Json, (readonly string[])?])[] = [
    ['a function', [LOOK], [LOOK_TOOL], { look: { type: 'function', name: 'look' } }],
    ['one without parameters', [{ type: 'function', name: 'look', parameters: null, strict: null }],
      [{ name: 'look', input_schema: { type: 'object', properties: {} } }], { look: { type: 'function', name: 'look' } }],
    ['a custom tool', [custom], [patch], { patch: { type: 'custom', name: 'patch' } }],
    ['one that takes any text', [{ type: 'custom', name: 'say', format: { type: 'text' } }],
      [{ name: 'say', input_schema: { type: 'object', properties: { input: { type: 'string' } }, required: ['input'],
        additionalProperties: false } }], { say: { type: 'custom', name: 'say' } }],
    ['a namespace', [space], [{ ...LOOK_TOOL, name: 'ns__look', description: 'Of the sea.\n\nlooks' },
      { ...patch, name: 'ns__patch', description: 'Of the sea.\n\npatches' }],
    { ns__look: { type: 'function', name: 'look', namespace: 'ns' },
      ns__patch: { type: 'custom', name: 'patch', namespace: 'ns' } }],
    ['the later of two of one name', [LOOK, { type: 'custom', name: 'say' }, { ...LOOK, description: 'sees' }],
      [{ ...LOOK_TOOL, description: 'sees' }, { name: 'say' }],
      { look: { type: 'function', name: 'look' }, say: { type: 'custom', name: 'say' } }],
    ['a client\'s own tools', [{ type: 'local_shell' }, { type: 'shell' }, { type: 'apply_patch' },
      { type: 'tool_search', execution: 'client', description: 'finds', parameters: { type: 'object' } }],
    [{ name: 'local_shell', input_schema: { required: ['command'] } },
      { name: 'shell', input_schema: { required: ['commands'] } },
      { name: 'apply_patch', input_schema: { required: ['type', 'path'] } },
      { name: 'tool_search', description: 'finds', input_schema: { type: 'object' } }],
    { local_shell: { type: 'local_shell', name: 'local_shell' }, shell: { type: 'shell', name: 'shell' },
      apply_patch: { type: 'apply_patch', name: 'apply_patch' },
      tool_search: { type: 'tool_search', name: 'tool_search' } }],
    ['a shell here', [{ type: 'shell', environment: { type: 'local' } }], [{ name: 'shell' }],
      { shell: { type: 'shell', name: 'shell' } }],
    ['tools at a vendor, and such as are not known', [
      LOOK, { type: 'web_search' }, { type: 'web_search_preview' }, { type: 'file_search' }, { type: 'code_interpreter' },
      { type: 'image_generation' }, { type: 'mcp', server_label: 'x' }, { type: 'computer_use_preview' },
      { type: 'shell', environment: { type: 'container_auto' } }, { type: 'programmatic_tool_calling' },
      { type: 'new\r\nx: y' }, { type: 'tool_search' }, { type: 'web_search' },
      { type: 'namespace', name: 'ns', tools: [{ type: 'shell' }] }
    ], [LOOK_TOOL], { look: { type: 'function', name: 'look' } }, ['web_search', 'web_search_preview', 'file_search',
      'code_interpreter', 'image_generation', 'mcp', 'computer_use_preview', 'shell', 'programmatic_tool_calling',
      'new__x__y']]
  ]
  for (const [name, tools, inner, clients, dropped = []] of rows) {
    const made = translate({ tools })
    t.match(made.body['tools'], inner, name)
    t.equal((made.body['tools'] as readonly unknown[]).length, inner.length, name)
    t.strictSame(Object.fromEntries(made.shape.tools), clients, name)
    t.strictSame(made.dropped, dropped, name)
    t.match(made.shape.echo['tools'], tools, 'echoed as asked')
    t.equal(refusal({ input: 'Hi', tools }), undefined, `${name}: passes the schema`)
  }
  t.equal(translate({ tools: [{ type: 'web_search' }] }).body['tools'], undefined)
})

t.test('tools that come with the input are there too, the last one of a name', async (t) => {
  const named = (name: string, description: string): Json => ({ type: 'function', name, description })
  const { body, shape } = translate({
    tools: [named('a', 'first'), named('b', 'first')],
    input: [{ type: 'additional_tools', role: 'developer', tools: [
      { type: 'namespace', name: 'functions', description: '', tools: [{ type: 'custom', name: 'exec' }] }, named('a', 'second')
    ] }, HELLO, { type: 'tool_search_output', call_id: null, tools: [named('c', 'found')] }]
  })
  t.match(body['tools'], [{ name: 'a', description: 'second' }, { name: 'b' }, { name: 'functions__exec' }, { name: 'c' }])
  t.strictSame(shape.tools.get('functions__exec'), { type: 'custom', name: 'exec', namespace: 'functions' })
})

t.test('every name is one that vendors take, of its own; every spelling of it leads back (rule tool-names)', async (t) => {
  const long = 'x'.repeat(80)
  const tools = [
    { type: 'function', name: 'ns__look' }, { type: 'function', name: 'a.b' }, { type: 'function', name: 'a_b' },
    { type: 'namespace', name: 'ns', tools: [{ type: 'function', name: 'look' }, { type: 'function', name: long },
      { type: 'function', name: `${long}y` }] },
    { type: 'namespace', name: 'multi_agent_v1', tools: [{ type: 'function', name: 'wait_agent' }] }
  ]
  const { body, shape } = translate({ tools })
  const names = (body['tools'] as readonly { readonly name: string }[]).map(({ name }) => name)
  t.equal(new Set(names).size, 7)
  t.strictSame(names.filter((name) => !/^[\w-]{1,64}$/.test(name)), [])
  t.strictSame([...shape.tools.values()].map(({ name, namespace }) => [namespace, name]), [[undefined, 'ns__look'],
    [undefined, 'a.b'], [undefined, 'a_b'], ['ns', 'look'], ['ns', long], ['ns', `${long}y`],
    ['multi_agent_v1', 'wait_agent']])
  t.strictSame(names, (translate({ tools }).body['tools'] as readonly Json[]).map(({ name }) => name), 'each time')
  const wait = { type: 'function', name: 'wait_agent', namespace: 'multi_agent_v1' }
  for (const name of ['multi_agent_v1__wait_agent', 'wait_agent', 'multi_agent_v1.wait_agent', 'multi_agent_v1/wait_agent',
    'multi_agent_v1:wait_agent', 'functions.multi_agent_v1__wait_agent', 'functions.wait_agent', 'waitAgent',
    'Multi-Agent-V1_wait-agent']) t.strictSame(toolCalled(name, shape.tools), wait, name)
  for (const name of ['ab', 'nothing', '', '__proto__']) t.equal(toolCalled(name, shape.tools), undefined, name)
})

t.test('tool_choice', async (t) => {
  const tools = [LOOK, { type: 'custom', name: 'say' }, { type: 'apply_patch' }, { type: 'web_search' },
    { type: 'namespace', name: 'ns', tools: [LOOK, { type: 'function', name: 'far' }] }]
  const rows: readonly (readonly [unknown, Json | undefined])[] = [
    [undefined, undefined],
    ['none', { type: 'none' }], ['auto', { type: 'auto' }], ['required', { type: 'any' }],
    [{ type: 'function', name: 'look' }, { type: 'tool', name: 'look' }],
    [{ type: 'function', name: 'far' }, { type: 'tool', name: 'ns__far' }],
    [{ type: 'function', name: 'look', namespace: 'ns' }, { type: 'tool', name: 'ns__look' }],
    [{ type: 'custom', name: 'say' }, { type: 'tool', name: 'say' }],
    [{ type: 'apply_patch' }, { type: 'tool', name: 'apply_patch' }]
  ]
  for (const [choice, expected] of rows) {
    const { body, shape } = translate({ tools, tool_choice: choice })
    t.strictSame(body['tool_choice'], expected)
    t.equal((body['tools'] as readonly unknown[]).length, 5)
    t.strictSame(shape.echo['tool_choice'], choice ?? 'auto')
    t.equal(shape.allowed, undefined)
  }
  const allowed = { type: 'allowed_tools', mode: 'required',
    tools: [{ type: 'function', name: 'far' }, { type: 'custom', name: 'say' }, { type: 'web_search' }] }
  const { body, shape } = translate({ tools, tool_choice: allowed })
  t.strictSame(body['tool_choice'], { type: 'any' })
  t.match(body['tools'], [{ name: 'say' }, { name: 'ns__far' }])
  t.strictSame([...shape.allowed!].toSorted(), ['ns__far', 'say'])
  t.strictSame(translate({ tools, parallel_tool_calls: false }).body['tool_choice'],
    { type: 'auto', disable_parallel_tool_use: true })
  t.equal(translate({ tool_choice: 'none' }).body['tool_choice'], undefined, 'nothing to choose from')
  const thinking = { thinking: 'budget' } as const
  t.strictSame(translate({ tools, reasoning: { effort: 'high' }, tool_choice: 'required' }, thinking).body['thinking'],
    { type: 'disabled' }, 'no model thinks where it must call')
})

t.test('each field becomes what messages style has for it', async (t) => {
  const schema = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'], additionalProperties: false }
  const format = { type: 'json_schema', name: 'r', strict: true, schema }
  /** name, fields, the model's settings, what is in the body: undefined means that it is not */
  const rows: readonly (readonly [string, Json, Partial<ModelConfig>, Json])[] = [
    ['defaults', {}, {}, { model: 'm1', max_tokens: 8192, system: undefined, stream: undefined, tools: undefined,
      temperature: undefined, thinking: undefined, metadata: undefined, cache_control: undefined }],
    ['stream', { stream: true }, {}, { stream: true }],
    ['instructions before all others', { instructions: 'A', input: [{ role: 'system', content: 'B' }, HELLO] }, {},
      { system: [text('A'), text('B')] }],
    ['max_output_tokens', { max_output_tokens: 77 }, {}, { max_tokens: 77 }],
    ['sampling', { temperature: 0.5, top_p: 0.9 }, {}, { temperature: 0.5, top_p: 0.9 }],
    ['sampling of a model that takes none', { temperature: 0.5, top_p: 0.9 }, { sampling: false },
      { temperature: undefined, top_p: undefined }],
    ['effort with a budget', { reasoning: { effort: 'low' }, max_output_tokens: 10_000 }, { thinking: 'budget' },
      { thinking: { type: 'enabled', budget_tokens: 2000 }, max_tokens: 10_000 }],
    ['effort as the model sees fit', { reasoning: { effort: 'minimal' } }, { thinking: 'adaptive' },
      { thinking: { type: 'adaptive' }, output_config: { effort: 'low' } }],
    ['no effort', { reasoning: { effort: 'none' } }, { thinking: 'adaptive' }, { thinking: { type: 'disabled' } }],
    ['effort of a model that does not think', { reasoning: { effort: 'high' } }, {}, { thinking: undefined }],
    ['the last configuration_update', { reasoning: { effort: 'none' }, input: [HELLO,
      { type: 'configuration_update', reasoning: { effort: 'max' } }, { type: 'configuration_update', text: {} }] },
    { thinking: 'adaptive' }, { thinking: { type: 'adaptive' }, output_config: { effort: 'max' } }],
    ['an answer without thoughts to tools', { reasoning: { effort: 'high' }, input: [HELLO, CALL, OUTPUT] },
      { thinking: 'budget' }, { thinking: { type: 'disabled' } }],
    ['the same, and the system behind it', { reasoning: { effort: 'high' },
      input: [HELLO, CALL, OUTPUT, { role: 'developer', content: 'Quick' }] }, { thinking: 'budget' },
    { thinking: { type: 'disabled' } }],
    ['text', { text: { format: { type: 'text' }, verbosity: 'low' } }, {}, { output_config: undefined }],
    ['an empty text', { text: {} }, {}, { output_config: undefined }],
    ['a schema', { text: { format } }, { structured_outputs: true },
      { output_config: { format: { type: 'json_schema', schema } } }],
    ['a schema where there are none', { text: { format } }, {}, { output_config: undefined,
      tools: [{ name: 'json_answer', description: 'Gives the final answer. Always answer by calling it, never with text.',
        input_schema: schema }],
      tool_choice: { type: 'tool', name: 'json_answer', disable_parallel_tool_use: true } }],
    ['any JSON', { text: { format: { type: 'json_object' } } }, {}, { system: [
      text('Answer with one JSON object and nothing else: no Markdown, no words around it.')] }],
    ['safety_identifier', { safety_identifier: 'u1', user: 'u2' }, {}, { metadata: { user_id: 'u1' } }],
    ['user, where that names a person', { safety_identifier: 'a@b.example', user: 'u2' }, {},
      { metadata: { user_id: 'u2' } }],
    ['prompt_cache_key (rule auto-cache)', { prompt_cache_key: 'thread' }, {}, { cache_control: { type: 'ephemeral' } }],
    ['prompt_cache_key of a model that is not cached', { prompt_cache_key: 'thread' }, { auto_cache: false },
      { cache_control: undefined }],
    ['an empty one', { prompt_cache_key: '' }, {}, { cache_control: undefined }],
    ['strict where it means something', { tools: [{ ...LOOK, strict: true, parameters: schema }] },
      { structured_outputs: true }, { tools: [{ ...LOOK_TOOL, input_schema: schema, strict: true }] }],
    ['strict where it does not', { tools: [{ ...LOOK, strict: true }] }, {}, { tools: [LOOK_TOOL] }],
    ['what is ignored', {
      store: true, include: ['reasoning.encrypted_content', 'file_search_call.results'], truncation: 'auto',
      service_tier: 'priority', max_tool_calls: 3, top_logprobs: 0, background: false,
      stream_options: { include_obfuscation: false }, context_management: [{ type: 'compaction' }],
      client_metadata: { a: 'b' }, stop: ['x'], n: 2, seed: 1, anything: { new: [] }, prompt_cache_retention: '24h',
      prompt_cache_options: { mode: 'auto', ttl: '30m' }, moderation: { mode: 'log' }, image: {}, metadata: { a: 'b' },
      reasoning: { context: 'all_turns', mode: 'standard' }
    }, {}, { metadata: undefined, stop_sequences: undefined, service_tier: undefined, context_management: undefined }]
  ]
  for (const [name, fields, settings, expected] of rows) {
    const { body } = translate(fields, settings)
    for (const [field, value] of Object.entries(expected)) t.strictSame(body[field], value, `${name}: ${field}`)
    t.equal(vendorRefusal(body), undefined, name)
    t.equal(refusal({ input: 'Hi', ...fields }), undefined, `${name}: passes the schema`)
  }
  t.strictSame(Object.keys(translate(rows.at(-1)![1]).body), ['model', 'max_tokens', 'messages'], 'nothing else travels')
})

t.test('the answer is told what it needs of the request', async (t) => {
  const { shape } = translate({ reasoning: { effort: 'low', summary: 'auto' }, metadata: { a: 'b' }, temperature: 0.5,
    instructions: 'Be brief', max_output_tokens: 100, prompt_cache_key: 'k', safety_identifier: 'u', store: true,
    parallel_tool_calls: false, text: { verbosity: 'low' }, max_tool_calls: 2, truncation: 'auto' })
  t.strictSame(shape.echo, {
    instructions: 'Be brief', metadata: { a: 'b' }, parallel_tool_calls: false, temperature: 0.5, top_p: 1,
    tool_choice: 'auto', tools: [], presence_penalty: 0, frequency_penalty: 0, top_logprobs: 0, background: false,
    store: false, service_tier: 'default', truncation: 'disabled', text: { format: { type: 'text' }, verbosity: 'low' },
    reasoning: { effort: 'low', summary: 'auto' }, max_output_tokens: 100, max_tool_calls: 2,
    previous_response_id: null, prompt_cache_key: 'k', safety_identifier: 'u', access_programs: null
  })
  t.strictSame([shape.showsThoughts, shape.hasSchema, shape.answerTool], [true, false, undefined])
  t.equal(translate({}).shape.showsThoughts, false)
  t.equal(translate({ reasoning: { generate_summary: 'detailed' } }).shape.showsThoughts, true)
  t.match(translate({ text: { format: { type: 'json_schema', schema: {} } } }).shape,
    { hasSchema: true, answerTool: 'json_answer' })
  t.equal(translate({ instructions: 'x'.repeat(70_000) }).shape.echo['instructions'], null)
  for (const length of [200_000, 270_000]) {
    const tools = [{ type: 'function', name: 't', parameters: { type: 'object' }, description: 'x'.repeat(length) }]
    const { shape: { echo }, own } = translate({ tools }, {}, true)
    t.strictSame(echo['tools'], length === 200_000 ? [{ ...tools[0], strict: null }] : [], 'not what would make the answer as large')
    t.strictSame(own.tools.get('t')?.declared, tools[0])
  }
})

t.test('cache marks: the last four, one less beside that of the whole', async (t) => {
  const marked = (mark: Json): Json => ({ role: 'user', content: [{ type: 'input_text', text: 'x', ...mark }] })
  const explicit = { prompt_cache_breakpoint: { mode: 'explicit', ttl: '30m' } }
  const marks = (fields: Json): readonly unknown[] =>
    (translate(fields).body['messages'] as readonly { readonly content: readonly Json[] }[])
      .flatMap(({ content }) => content.map((block) => block['cache_control']))
  const ephemeral = { type: 'ephemeral' }
  const six = Array.from({ length: 6 }, () => marked(explicit))
  t.strictSame(marks({ input: six }), [undefined, undefined, ephemeral, ephemeral,
    ephemeral, ephemeral])
  t.strictSame(marks({ input: six, prompt_cache_key: 'k' }), [undefined, undefined, undefined,
    ephemeral, ephemeral, ephemeral])
  t.strictSame(marks({ input: [marked({ cache_control: { type: 'ephemeral', ttl: '1h' } }),
    marked({ prompt_cache_breakpoint: { mode: 'auto' } })] }), [{ type: 'ephemeral', ttl: '1h' }, undefined])
})

/** what is sent, the path that the error names, and a part of what it says */
const refused: readonly (readonly [Json, string, RegExp])[] = [
  [{}, 'input', /input/],
  [{ input: null }, 'input', /must be a string or an array of items/],
  [{ input: 5 }, 'input', /must be a string or an array of items/],
  [{ input: [] }, 'input', /must hold a message of the user/],
  [{ input: ' ' }, 'input', /must hold a message of the user/],
  [{ input: [reasoning(THOUGHT)] }, 'input', /must hold a message of the user/],
  [{ input: ['Hi'] }, 'input[0]', /must be an object/],
  [{ input: [HELLO, null] }, 'input[1]', /must be an object/],
  [{ input: [{ role: 'usr', content: 'Hi' }] }, 'input[0].role', /user/],
  [{ input: [{ role: 'user' }] }, 'input[0].content', /content/],
  [{ input: [{ role: 'user', content: {} }] }, 'input[0].content', /must be a string or an array of parts/],
  [{ input: [{ role: 'user', content: ['Hi'] }] }, 'input[0].content[0]', /must be an object/],
  [{ input: [{ role: 'user', content: [{ type: 'input_text' }] }] }, 'input[0].content[0].text', /text/],
  [{ input: [{ role: 'user', content: [{ type: 'input_audio' }] }] }, 'input[0].content[0]', /no audio|input_text/],
  [{ input: [{ role: 'user', content: [{ type: 'thing' }] }] }, 'input[0].content[0].type', /must be "input_text"/],
  [{ input: [{ role: 'assistant', content: [{ type: 'input_image', image_url: IMAGE }] }] }, 'input[0].content[0].type',
    /must be/],
  [{ input: [{ role: 'user', content: [{ type: 'input_image', file_id: 'file_1' }] }] }, 'input[0].content[0].file_id',
    /Send image_url/],
  [{ input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'file_1' }] }] }, 'input[0].content[0].file_id',
    /Send file_data/],
  [{ input: [{ role: 'user', content: [{ type: 'input_image' }] }] }, 'input[0].content[0].image_url', /must be/],
  [{ input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'ftp://x' }] }] },
    'input[0].content[0].image_url', /must be an http/],
  [{ input: [{ role: 'user', content: [{ type: 'input_file', file_url: 'file:///etc/passwd' }] }] },
    'input[0].content[0].file_url', /must be an http/],
  [{ input: [HELLO, { ...CALL, call_id: undefined }] }, 'input[1].call_id', /call_id/],
  [{ input: [HELLO, { ...CALL, name: 5 }] }, 'input[1].name', /must be a string/],
  [{ input: [HELLO, { ...CALL, arguments: {} }] }, 'input[1].arguments', /must be a string/],
  [{ input: [HELLO, CALL, { ...OUTPUT, output: { a: 1 } }] }, 'input[2].output', /must be a string or an array of parts/],
  [{ input: [HELLO, CALL, { ...OUTPUT, output: null }] }, 'input[2].output', /must be a string or an array of parts/],
  [{ input: [HELLO, CALL, { ...OUTPUT, call_id: null }] }, 'input[2].call_id', /must be a string/],
  [{ input: [HELLO, CALL, { ...OUTPUT, output: [{ type: 'input_text', text: 5 }] }] }, 'input[2].output[0].text',
    /must be a string/],
  [{ input: [HELLO, { type: 'custom_tool_call', call_id: 'c', name: 'n' }] }, 'input[1].input', /input/],
  [{ input: [HELLO, { type: 'shell_call', call_id: 'c', action: 'ls' }] }, 'input[1].action', /must be an object/],
  [{ input: [HELLO, { type: 'apply_patch_call', call_id: 'c', operation: [] }] }, 'input[1].operation',
    /must be an object/],
  [{ input: [HELLO, { type: 'shell_call_output', call_id: 'c', output: [5] }] }, 'input[1].output[0]',
    /must be an object/],
  [{ input: [HELLO, { type: 'teleport_call' }] }, 'input[1].type', /unknown input item type/],
  [{ input: [HELLO, { type: 'compaction', encrypted_content: 'of another' }] }, 'input[1].encrypted_content',
    /can't be read/],
  [{ input: [{ type: 'compaction_trigger' }, HELLO] }, 'input[0].type', /the last item/],
  [{ input: [HELLO, { type: 'additional_tools', tools: {} }] }, 'input[1].tools', /must be an array/],
  [{ input: 'Hi', instructions: 5 }, 'instructions', /must be a string/],
  [{ input: 'Hi', max_output_tokens: '5' }, 'max_output_tokens', /whole number/],
  [{ input: 'Hi', reasoning: 'high' }, 'reasoning', /must be an object/],
  [{ input: 'Hi', reasoning: { effort: 'highest' } }, 'reasoning.effort', /xhigh/],
  [{ input: 'Hi', reasoning: { summary: 'long' } }, 'reasoning.summary', /detailed/],
  [{ input: 'Hi', reasoning: { mode: 'pro' } }, 'reasoning.mode', /standard/],
  [{ input: 'Hi', text: 'json' }, 'text', /must be an object/],
  [{ input: 'Hi', text: { format: 'json' } }, 'text.format', /must be an object/],
  [{ input: 'Hi', text: { format: { type: 'xml' } } }, 'text.format.type', /json_schema/],
  [{ input: 'Hi', text: { format: { type: 'json_schema' } } }, 'text.format.schema', /schema/i],
  [{ input: 'Hi', tools: {} }, 'tools', /must be an array/],
  [{ input: 'Hi', tools: ['look'] }, 'tools[0]', /must be an object/],
  [{ input: 'Hi', tools: [{ name: 'look' }] }, 'tools[0].type', /type/],
  [{ input: 'Hi', tools: [{ type: 'function' }] }, 'tools[0].name', /name/],
  [{ input: 'Hi', tools: [{ type: 'function', name: 'a', parameters: [] }] }, 'tools[0].parameters', /object/],
  [{ input: 'Hi', tools: [{ type: 'custom', name: 'a', format: { type: 'grammar' } }] }, 'tools[0].format.syntax',
    /syntax/],
  [{ input: 'Hi', tools: [{ type: 'namespace', name: 'a', tools: [{ type: 'function' }] }] }, 'tools[0].tools[0].name',
    /name/],
  [{ input: 'Hi', tool_choice: 'some' }, 'tool_choice', /required/],
  [{ input: 'Hi', tool_choice: 'required' }, 'tool_choice', /there are no tools/],
  [{ input: 'Hi', tool_choice: 'required', tools: [{ type: 'web_search' }] }, 'tool_choice', /web_search would run/],
  [{ input: 'Hi', tool_choice: { type: 'web_search' }, tools: [LOOK] }, 'tool_choice.type', /run at a vendor/],
  [{ input: 'Hi', tool_choice: { type: 'mcp', server_label: 'x' }, tools: [LOOK] }, 'tool_choice.type', /run at a vendor/],
  [{ input: 'Hi', tool_choice: { type: 'function', name: 'no' }, tools: [LOOK] }, 'tool_choice.name', /tool of this request/],
  [{ input: 'Hi', tool_choice: { type: 'shell' }, tools: [LOOK] }, 'tool_choice.type', /tool of this request/],
  [{ input: 'Hi', tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [] }, tools: [LOOK] }, 'tool_choice.tools',
    /run here/],
  [{ input: 'Hi', include: ['message.output_text.logprobs'] }, 'include', /log probabilities/],
  [{ input: 'Hi', top_logprobs: 3 }, 'top_logprobs', /must be 0/],
  [{ input: 'Hi', background: true }, 'background', /must be false/],
  [{ input: 'Hi', conversation: 'conv_1' }, 'conversation', /not supported/],
  [{ input: 'Hi', prompt: { id: 'pmpt_1' } }, 'prompt', /not supported/],
  [{ input: 'Hi', access_programs: ['x'] }, 'access_programs', /not supported/],
  [{ input: 'Hi', moderation: { mode: 'block' } }, 'moderation', /not supported/],
  [{ input: 'Hi', prompt_cache_options: { prewarm: true } }, 'prompt_cache_options', /prewarm/],
  [{ input: 'Hi', metadata: { a: 5 } }, 'metadata', /texts/],
  [{ input: 'Hi', metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [i, ''])) }, 'metadata', /16/]
]

t.test('what can\'t be had is a 400 that names the place, with schema-validate and without', async (t) => {
  for (const [body, param, message] of refused) {
    const shown = JSON.stringify(body).slice(0, 120)
    t.match(refusal(body), { status: 400, code: 'invalid_request', param, message }, shown)
    const found = refusal(body, alone)
    t.match(found, { status: 400, code: 'invalid_request' }, shown)
    t.ok(found?.param?.startsWith(param), `${shown}: ${found?.param}`)
  }
  t.match(refusal({ input: 'Hi', temperature: 1.5 }), { status: 400, param: 'temperature' })
  t.match(refusal({ input: 'Hi', max_output_tokens: 64_001 }), { status: 400, param: 'max_output_tokens',
    message: /64001 > 64000/ })
})

t.test('what is not kept has codes of its own, by which clients send the whole', async (t) => {
  t.match(refusal({ input: 'Hi', previous_response_id: 'resp_1' }), { status: 400, code: 'previous_response_not_found',
    param: 'previous_response_id' })
  for (const item of [{ type: 'item_reference', id: 'msg_1' }, { id: 'msg_1' }, { type: null, id: 'msg_1' }]) {
    t.match(refusal({ input: [HELLO, item] }), { status: 400, code: 'item_not_found', param: 'input[1].id',
      message: /"msg_1".*store: false/ })
  }
})

// Whatever a client sends.

const words = fc.oneof(fc.constantFrom('', ' ', 'a'), fc.string())
const ids = fc.constantFrom('c1', 'c2', 'c3', 'f:0', 'x'.repeat(70))
const parts = fc.oneof(words, fc.array(fc.oneof(
  fc.record({ type: fc.constantFrom('input_text', 'output_text', 'text'), text: words }),
  fc.record({ type: fc.constant('refusal'), refusal: words })
), { maxLength: 3 }))
const media = fc.oneof(parts, fc.array(fc.record({ type: fc.constant('input_image'), image_url: fc.constant(IMAGE) }),
  { maxLength: 2 }))
const item = fc.oneof(
  fc.record({ role: fc.constantFrom('user', 'system', 'developer'), content: media }),
  fc.record({ role: fc.constant('assistant'), content: parts, phase: fc.constant('commentary') }),
  fc.array(fc.constantFrom(THOUGHT, REDACTED), { maxLength: 2 }).map((blocks) => reasoning(...blocks)),
  fc.record({ type: fc.constant('function_call'), call_id: ids, name: words.filter((name) => name !== ''),
    arguments: fc.oneof(words, fc.json()), namespace: fc.constantFrom(null, 'ns', 'a.b') }),
  fc.record({ type: fc.constantFrom('function_call_output', 'custom_tool_call_output'), call_id: ids, output: media }),
  fc.record({ type: fc.constant('custom_tool_call'), call_id: ids, name: fc.constant('say'), input: words }),
  fc.record({ type: fc.constant('shell_call'), call_id: ids, action: fc.dictionary(fc.string(), fc.jsonValue()) }),
  fc.record({ type: fc.constant('apply_patch_call_output'), call_id: ids, status: fc.constantFrom('completed', 'failed') }),
  fc.constantFrom({ type: 'web_search_call' }, { type: 'mcp_call', output: 'x' }, { type: 'additional_tools', tools: [] },
    { type: 'reasoning', summary: [] })
)
const tool = fc.oneof(
  fc.record({ type: fc.constantFrom('function', 'custom'), name: words.filter((name) => name !== '') }),
  fc.record({ type: fc.constant('namespace'), name: fc.constantFrom('ns', 'a.b'),
    tools: fc.array(fc.record({ type: fc.constant('function'), name: fc.constantFrom('look', 'see') }), { maxLength: 3 }) }),
  fc.constantFrom({ type: 'web_search' }, { type: 'shell' }, { type: 'apply_patch' })
)
const settings = fc.record({ sampling: fc.boolean(), structured_outputs: fc.boolean(), auto_cache: fc.boolean(),
  thinking: fc.constantFrom<ModelConfig['thinking']>('none', 'budget', 'adaptive') })

t.test('any items, in any order, are a request that the vendor takes', async (t) => {
  let taken = 0
  fc.assert(fc.property(
    fc.record({ input: fc.array(item, { maxLength: 12 }), tools: fc.array(tool, { maxLength: 5 }),
      reasoning: fc.record({ effort: fc.constantFrom(null, 'none', 'low', 'max') }),
      tool_choice: fc.constantFrom(null, 'auto', 'none'), parallel_tool_calls: fc.constantFrom(null, false),
      prompt_cache_key: fc.constantFrom(null, 'k') }),
    settings,
    (body, of) => {
      const made = translate({ ...body, input: [...body.input, HELLO] }, of)
      const vendors = vendorRefusal(made.body)
      if (vendors !== undefined) throw new Error(vendors)
      const names = (made.body['tools'] ?? []) as readonly { readonly name: string }[]
      if (names.some(({ name }) => !/^[\w-]{1,64}$/.test(name))) throw new Error('a name that vendors refuse')
      const turns = made.body['messages'] as readonly { readonly role: string }[]
      const roles = turns.map(({ role }) => role[0]).join('')
      if (!/^(?:a?us?)+$/.test(roles)) throw new Error(`turns in a wrong order: ${roles}`)
      const refolded = vendorRefusal({ ...made.body, ...withoutSystemTurns(made.body) })
      if (refolded !== undefined) throw new Error(`folded: ${refolded}`)
      taken++
    }
  ), { numRuns: 3000 })
  t.equal(taken, 3000)
})

t.test('a wrong type in any place is a refusal, or is taken: never a failure of the gateway', async (t) => {
  const whole: Json = { model: 'm1', instructions: 'x', metadata: { a: 'b' },
    reasoning: { effort: 'low', summary: 'auto' },
    text: { format: { type: 'json_schema', name: 'r', schema: { type: 'object' } } }, include: ['x'],
    tools: [LOOK, { type: 'namespace', name: 'ns', description: 'x', tools: [{ type: 'custom', name: 'say',
      format: { type: 'grammar', syntax: 'lark', definition: 'x' } }] },
    { type: 'shell', environment: { type: 'local' } },
    { type: 'tool_search', execution: 'client', description: 'x', parameters: {} }],
    tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'look' }] },
    max_output_tokens: 100, temperature: 0.5, top_p: 0.5, prompt_cache_key: 'k', safety_identifier: 'u', user: 'u',
    parallel_tool_calls: false,
    input: items.flatMap(([name, input]) => typeof input === 'string' || name === 'a summary' ? [] : input) }
  const odd = fc.oneof(fc.constantFrom(null, true, 0, -1, 1e308, '', 'x', '\ud800', 'constructor', '__proto__'),
    fc.constantFrom<unknown>([], [[]], [null], [5], {}, { toString: 1, valueOf: 1 },
      { toJSON: 1, then: 1, length: 1e9 }, { type: { toString: null } }))
  const places = [...placesIn(whole)]
  t.ok(places.length > 300)
  const verdicts = { refused: 0, taken: 0 }
  for (const place of places) {
    for (const value of fc.sample(odd, { numRuns: 4, seed: place.length })) {
      const body = withValue(whole, place, value)
      for (const on of [both, alone]) {
        const found = refusal(body, on)
        if (found !== undefined && found.status !== 400) t.fail(`${place.join('.')}: ${found.status}`)
        verdicts[found === undefined ? 'taken' : 'refused']++
      }
    }
  }
  t.ok(verdicts.refused > 500 && verdicts.taken > 500, JSON.stringify(verdicts))
})

function * placesIn (value: unknown, at: readonly string[] = []): Generator<readonly string[]> {
  if (typeof value !== 'object' || value === null) return
  for (const [name, below] of Object.entries(value)) {
    if (at.length === 0 && name === 'model') continue
    yield [...at, name]
    yield * placesIn(below, [...at, name])
  }
}

function withValue (body: Json, [name, ...rest]: readonly string[], value: unknown): Json {
  const copy = (Array.isArray(body) ? [...body as readonly unknown[]] : { ...body }) as Record<string, unknown>
  copy[name!] = rest.length === 0 ? value : withValue(copy[name!] as Json, rest, value)
  return copy
}

t.test('ten thousand items, thousands of calls at once, a message of 200,000 parts', async (t) => {
  const many = (count: number): Json => ({ input: [HELLO, ...Array.from({ length: count }, (_, i) => i).flatMap((i) => [
    reasoning(THOUGHT), { ...CALL, call_id: `c${i}` }, { ...CALL, call_id: `d${i}` }, { ...OUTPUT, call_id: `d${i}` },
    { ...OUTPUT, call_id: `c${i}` }
  ])] })
  const { body } = translate(many(2000))
  t.equal((body['messages'] as readonly unknown[]).length, 4001)
  t.equal(vendorRefusal(body), undefined)
  const parallel = translate({ input: [HELLO, ...Array.from({ length: 5000 }, (_, i) => ({ ...CALL, call_id: `c${i}` })),
    ...Array.from({ length: 5000 }, (_, i) => ({ ...OUTPUT, call_id: `c${4999 - i}` }))] })
  t.equal((parallel.body['messages'] as readonly unknown[]).length, 3)
  const parts = Array.from({ length: 200_000 }, () => ({ type: 'input_text', text: 'x' }))
  t.equal((translate({ input: [{ role: 'user', content: parts }] }).body['messages'] as readonly unknown[]).length, 1)
})

t.test('nothing in a body makes its reading quadratic: the same id, the same call, thousands of tools', async (t) => {
  const times = <T>(count: number, one: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => one(i))
  const again = translate({ input: times(20_000, () => CALL) })
  const [{ content: calls }, { content: results }] = again.body['messages'] as
    readonly { readonly content: readonly Json[] }[] as [{ content: Json[] }, { content: Json[] }]
  t.equal(new Set(calls.map(({ id }) => id)).size, 20_000)
  t.strictSame(results.map(({ tool_use_id: id }) => id), calls.map(({ id }) => id))

  const late = translate({ input: [CALL, OUTPUT, ...times(50_000, (i) => ({ ...CALL, call_id: `d${i}` })),
    ...times(50_000, () => OUTPUT)] })
  t.equal((late.body['messages'] as readonly unknown[]).length, 4)

  const tools = times(20_000, (i) => ({ type: 'function', name: `look_${i}` }))
  const chosen = translate({ tools, tool_choice: { type: 'allowed_tools', mode: 'auto', tools } })
  t.equal((chosen.body['tools'] as readonly unknown[]).length, 20_000)
})

t.test('what a namespace says of itself is not multiplied by its tools', async (t) => {
  const members = Array.from({ length: 20_000 }, (_, i) => ({ ...LOOK, name: `look_${i}` }))
  const space = { type: 'namespace', name: 'ns', description: 'word '.repeat(100_000), tools: members }
  const told = (tools: readonly Json[]): readonly Json[] =>
    translate({ tools }).body['tools'] as readonly Json[]
  const lengths = told([space, { ...space, name: 'other', tools: [LOOK] }]).map(({ description }) =>
    String(description).length > 400_000)
  t.strictSame(lengths.flatMap((isLong, i) => isLong ? [i] : []), [0, 1, 2, 20_000], 'the first of each, and two more')
  t.match(refusal({ input: 'Hi', tools: [{ ...space, name: 'n'.repeat(257) }] }), { status: 400,
    param: 'tools[0].name', message: /at most 256 characters/ })
  t.equal(told([{ ...space, name: 'n'.repeat(256), description: '' }]).length, 20_000)
})

t.test('arguments that are no JSON do not make room for more of them', async (t) => {
  const wide = JSON.stringify(Object.fromEntries(Array.from({ length: 9000 }, (_, i) => [`k${i}`, 0])))
  const calls = (count: number): Json => ({ input: [HELLO, ...Array.from({ length: count }, (_, i) =>
    ({ ...CALL, call_id: `c${i}`, arguments: i % 2 === 0 ? wide : '{"a": "' }))] })
  t.equal(refusal(calls(100)), undefined)
  t.match(refusal(calls(120)), { status: 400, message: /more than 500000 keys/ })
})

t.test('of thoughts the last two thousand are opened', async (t) => {
  const { body } = translate({ input: [HELLO, ...Array.from({ length: 2003 }, (_, i) =>
    reasoning({ ...THOUGHT, thinking: `${i}` })), { role: 'assistant', content: 'Hi' }, HELLO],
    reasoning: { effort: 'low' } }, { thinking: 'adaptive' })
  const [, { content }] = body['messages'] as [unknown, { readonly content: readonly Json[] }]
  t.strictSame(content.map(({ thinking }) => thinking), [...Array.from({ length: 2000 }, (_, i) => `${i + 3}`), undefined])
})
