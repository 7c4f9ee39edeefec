// What is tried: each kind makes an input of chance alone, and tries it.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { loadConfig } from '../../src/config/load/load.ts'
import { dialectNamed, dialectNames } from '../../src/config/sections/dialects.ts'
import { type Habit, habits } from '../../src/simulator/habits.ts'
import { clientStyles, styles } from '../support/client-styles.ts'
import { KEY, PATIENCE_MS, PLAIN_YAML, textModel, TOKEN, type Arena } from './arena.ts'
import { HOSTILE, request, type Input } from './request.ts'
import { keptOf, withIds } from './kept.ts'
import { pieces, spoilJson, wound, type Chance } from './chance.ts'
import { formOf } from './forms.ts'
import { answerOf, type Asked } from './upstreams.ts'
import { stallOf } from './stalls.ts'
import { judge, talk, type Verdict } from './wire.ts'

export interface Kind {
  readonly name: string
  /** how many at a time */
  readonly lanes: number
  /** of the count that others have: where each takes a quarter of a second */
  readonly share?: number
  /** @param number of the input, from 0: what the upstream knows it by */
  make (chance: Chance, number: number): Input
  /** Rejects where the arena can't be reached any more. */
  run (input: Input, number: number, arena: Arena): Promise<Verdict>
}

async function toApi ({ send, isTorn }: Input, arena: Arena, isOurs = true): Promise<Verdict> {
  return judge(await talk(arena.api, send, isTorn), isOurs, Buffer.concat(send))
}

const JSON_TYPE = { 'content-type': 'application/json' }
const TOOL = { name: 'look', description: 'looks',
  input_schema: { type: 'object', properties: { where: { type: 'string' } }, required: ['where'] } }
const CHAT_TOOL = { type: 'function', function: { name: 'look', parameters: TOOL.input_schema } }
const IMAGE = { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' }

const BODIES: readonly (readonly [path: string, body: object])[] = [
  ['/v1/messages', { model: 'good-text', max_tokens: 20, messages: [{ role: 'user', content: 'Hello' }] }],
  ['/v1/messages', {
    model: 'good-text',
    max_tokens: 50,
    stream: true,
    system: [{ type: 'text', text: 'Be brief', cache_control: { type: 'ephemeral' } }],
    messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello' }, { type: 'image', source: IMAGE }] }, {
      role: 'assistant',
      content: [{ type: 'thinking', thinking: 'hm', signature: 'x' }, { type: 'tool_use', id: 'toolu_1', name: 'look',
        input: { where: 'here' } }]
    }, { role: 'user',
      content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: [{ type: 'text', text: 'nothing' }] }] }],
    tools: [TOOL],
    tool_choice: { type: 'auto' },
    temperature: 0.5,
    top_p: 0.9,
    stop_sequences: ['END'],
    metadata: { user_id: 'u' }
  }],
  ['/v1/messages', {
    model: 'good-chat',
    max_tokens: 20,
    stream: true,
    system: 'x',
    messages: [{ role: 'user',
      content: [{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'words' } }, { type: 'text',
        text: 'x' }] }],
    tools: [TOOL],
    thinking: { type: 'enabled', budget_tokens: 1024 },
    output_config: { effort: 'low' }
  }],
  ['/v1/messages/count_tokens', { model: 'good-text', system: 'x', messages: [{ role: 'user', content: 'Hello' }],
    tools: [TOOL] }],
  ['/v1/chat/completions', {
    model: 'good-text',
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: 20,
    messages: [{ role: 'system', content: 'x' }, { role: 'user',
      content: [{ type: 'text', text: 'Hello' }, { type: 'image_url',
        image_url: { url: 'data:image/png;base64,iVBORw0KGgo=', detail: 'low' } }, { type: 'file',
        file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' } }] }, { role: 'assistant',
      content: null,
      tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'look', arguments: '{"where":"here"}' } }] }, {
      role: 'tool',
      tool_call_id: 'call_1',
      content: 'nothing'
    }],
    tools: [CHAT_TOOL, { type: 'custom',
      custom: { name: 'free', format: { type: 'grammar', grammar: { definition: 'x', syntax: 'lark' } } } }],
    tool_choice: 'auto',
    response_format: { type: 'json_schema',
      json_schema: { name: 'r', strict: true,
        schema: { type: 'object', properties: { a: { type: 'string' } }, required: ['a'],
          additionalProperties: false } } },
    reasoning_effort: 'low',
    stop: ['a', 'b']
  }],
  ['/v1/chat/completions', {
    model: 'good-chat',
    max_completion_tokens: 20,
    n: 1,
    seed: 1,
    logit_bias: { 50256: -100 },
    presence_penalty: 0.1,
    parallel_tool_calls: false,
    messages: [{ role: 'developer', content: 'x' }, { role: 'user', content: 'Hello', name: 'me' }],
    functions: [CHAT_TOOL.function],
    function_call: 'auto'
  }],
  ['/v1/responses', {
    model: 'good-text',
    stream: true,
    instructions: 'x',
    max_output_tokens: 20,
    input: [{ role: 'developer', content: 'x' }, { role: 'user',
      content: [{ type: 'input_text', text: 'Hello' }, { type: 'input_image',
        image_url: 'data:image/png;base64,iVBORw0KGgo=' }, { type: 'input_file', filename: 'a.pdf',
        file_data: 'data:application/pdf;base64,JVBERi0=' }] }, { type: 'reasoning', summary: [],
      encrypted_content: 'gwseal1_AAAA' }, { type: 'function_call', call_id: 'c1', namespace: 'ns', name: 'look',
      arguments: '{"where":"here"}' }, { type: 'custom_tool_call', call_id: 'c2', name: 'free', input: 'x' }, {
      type: 'function_call_output', call_id: 'c1', output: [{ type: 'input_text', text: 'nothing' }]
    }, { type: 'custom_tool_call_output', call_id: 'c2', output: 'nothing' }, { type: 'additional_tools',
      tools: [{ type: 'local_shell' }, { type: 'apply_patch' }] }, { type: 'configuration_update',
      reasoning: { effort: 'low' } }],
    tools: [{ type: 'namespace', name: 'ns', description: 'x', tools: [{ type: 'function', name: 'look',
      parameters: TOOL.input_schema, strict: false }] }, { type: 'custom', name: 'free',
      format: { type: 'grammar', syntax: 'lark', definition: 'x' } }, { type: 'web_search' }],
    tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'custom', name: 'free' }] },
    reasoning: { effort: 'low', summary: 'auto' },
    text: { format: { type: 'json_schema', name: 'r', schema: TOOL.input_schema } },
    include: ['reasoning.encrypted_content'],
    prompt_cache_key: 'k',
    metadata: { a: 'b' }
  }],
  ['/v1/responses', { model: 'good-chat', input: 'Hello', store: false, tools: [{ type: 'shell' }] }],
  ['/v1/responses/input_tokens', { model: 'good-text', input: 'Hello' }],
  ['/v1/images/generations', { model: 'good-image', prompt: 'a cat', n: 2, size: '1024x1024',
    response_format: 'b64_json' }],
  ['/v1/images/edits', { model: 'good-image', prompt: 'a hat',
    images: [{ image_url: 'data:image/png;base64,iVBORw0KGgo=' }], mask: { image_url: 'https://example.com/m.png' } }],
  ['/v1/videos', { model: 'good-clip', prompt: 'a cat', seconds: '4', size: '1280x720',
    input_reference: { image_url: 'data:image/png;base64,iVBORw0KGgo=' } }],
  ['/v1/quote', { path: '/v1/messages',
    body: { model: 'good-text', max_tokens: 20, messages: [{ role: 'user', content: 'Hello' }] } }]
]

/** Whole JSON of the wrong shape, now and then no JSON at all. */
function spoiled (chance: Chance, body: object): Buffer {
  const text = Buffer.from(spoilJson(chance, body), chance.mostly<BufferEncoding>(0.97, 'utf8', ['utf16le', 'latin1']))
  return chance.is(0.15) ? wound(chance, text) : text
}

const bodies: Kind = {
  name: 'bodies',
  lanes: 8,
  make (chance) {
    const [path, body] = chance.of(BODIES)
    const type = chance.mostly(
      0.9,
      'application/json',
      [
        'application/json; charset=utf-8', 'application/json; charset=latin1', 'text/plain', '', 'application/json;;',
        'multipart/form-data; boundary=x'
      ]
    )
    const more = chance.is(0.1) ? { 'idempotency-key': `k${chance.below(5)}` } : {}
    return { send: pieces(chance, request(`POST ${path}`, { 'content-type': type, ...more }, spoiled(chance, body))) }
  },
  run: (input, _, arena) => toApi(input, arena)
}

const forms: Kind = {
  name: 'forms',
  lanes: 64,
  make (chance) {
    const { path, type, body } = formOf(chance)
    let whole = request(`POST ${path}`, { 'content-type': type }, body)
    if (chance.is(0.05)) {
      whole = Buffer.from(
        whole.toString('latin1').replace('content-length', 'x-length').replace('\r\n\r\n',
          `\r\ntransfer-encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n`) + '\r\n0\r\n\r\n',
        'latin1'
      )
    }
    const isTorn = chance.is(0.05)
    return { send: pieces(chance, isTorn ? whole.subarray(0, chance.below(whole.length)) : whole), isTorn }
  },
  run: (input, _, arena) => toApi(input, arena)
}

const TARGETS = ['/v1/messages', '/v1/chat/completions', '/v1/responses', '/v1/models', '/v1/models/good-text', '/v1/models/info',
  '/v1/videos?limit=5', '/v1/videos/video_1/content', '/v1/raw/fuzz-x', '/healthz', '/', '*', '//', '/%00',
  '/v1/%2e%2e/v1/models', '/v1/models/' + 'x'.repeat(5000), 'http://other/v1/models', '/v1/messages?beta=true&beta=1',
  '/files/a.b.c/1-x', '\u00e9']
const METHODS = ['POST', 'GET', 'HEAD', 'DELETE', 'OPTIONS', 'PUT', 'PATCH', 'CONNECT', 'TRACE', 'PRI', 'post', 'G',
  'M-SEARCH', 'QUERY']
const FIELDS: readonly (readonly [name: string, values: readonly string[]])[] = [
  ['content-length', ['', '-1', '0x10', '5, 5', '99999999999999999999', '1e3', ' 5', '+5']],
  ['transfer-encoding', ['chunked', 'Chunked', 'gzip, chunked', 'chunked, chunked', 'identity', 'xchunked', '']],
  ['content-encoding', ['gzip', 'br', 'deflate', 'zstd', 'identity', 'gzip, gzip', 'nonsense']],
  ['content-type', ['application/json', 'application/json; charset="', 'multipart/form-data', 'text/\u00e9', '']],
  ['expect', ['100-continue', '100-Continue, x', '200-ok', '']],
  ['connection', ['keep-alive', 'close', 'upgrade', 'content-length', 'close, x-api-key']],
  ['upgrade', ['websocket', 'h2c', 'TLS/1.0', '']],
  ['x-api-key', [KEY, '', 'sk-gw-x', `${KEY}, ${KEY}`, 'x'.repeat(9000)]],
  ['authorization', [`Bearer ${KEY}`, 'Bearer', 'bearer  x', 'Basic eDp5', '\u00e9', `Bearer ${KEY} x`]],
  ['anthropic-version', ['2023-06-01', '2023', '9'.repeat(100), '']],
  ['anthropic-beta', ['a,b', ',,', 'x'.repeat(3000)]],
  ['x-forwarded-for', ['1.2.3.4', '::1, ::ffff:1.2.3.4', 'unknown', ',']],
  ['origin', ['https://a.example', 'null', '*', 'http://[']],
  ['range', ['bytes=0-1', 'bytes=-1', 'bytes=5-1', 'lines=1', 'bytes=0-1,2-3']],
  ['idempotency-key', ['a', '', 'x'.repeat(300), '\u00e9']],
  ['host', ['gateway', '', 'a b', '[::1', 'x:99999']],
  ['traceparent', ['00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'x']],
  ['x-' + 'n'.repeat(500), ['v']],
  ['\u00e9', ['x']],
  ['a b', ['x']],
  ['', ['x']],
  ['cookie', ['a=b; c']],
  ['accept-encoding', ['gzip;q=0']],
  ['user-agent', ['\t', 'curl/8']]
]
const END_OF_LINE = ['\n', '\r', '\r\n ', '\r\n\r\n', '\0\r\n']

const heads: Kind = {
  name: 'heads',
  lanes: 64,                                                // many wait until the gateway has waited long enough
  make (chance) {
    const line = () => chance.mostly(0.95, '\r\n', END_OF_LINE)
    const body = chance.is(0.6)
      ? ''
      : chance.of([
        '{}',
        '{"model":"good-text","max_tokens":5,"messages":[{"role":"user","content":"x"}]}',
        '5\r\nhello\r\n0\r\n\r\n',
        'x'.repeat(100)
      ])
    const fields = chance.times(chance.is(0.02) ? 1200 : chance.below(8), () => {
      const [name, values] = chance.of(FIELDS)
      return `${name}${chance.mostly(0.95, ': ', [':', ' : ', '', ':\t', ': \x01'])}${chance.of(values)}${line()}`
    })
    const first = `${chance.mostly(0.6, 'POST', METHODS)}${chance.mostly(0.97, ' ', ['  ', '\t', ''])}${chance.of(TARGETS)} ${chance.mostly(0.9, 'HTTP/1.1', ['HTTP/1.0', 'HTTP/2.0', 'HTTP/1.2', 'http/1.1', 'HTTP/1.1 ', ''])}${line()}`
    const own = chance.is(0.8)
      ? `host: x\r\n${chance.is(0.7) ? `x-api-key: ${KEY}\r\n` : ''}${chance.is(0.6) ? `content-length: ${Buffer.byteLength(body)}\r\n` : ''}`
      : ''
    const whole = Buffer.from(
      `${first}${fields.slice(0, 4).join('')}${own}${fields.slice(4).join('')}\r\n${body}`,
      chance.mostly<BufferEncoding>(0.9, 'latin1', ['utf8'])
    )
    const hurt = chance.is(0.2) ? wound(chance, whole) : whole
    return { send: pieces(chance, chance.is(0.05) ? Buffer.concat(chance.times(20, () => hurt)) : hurt),
      isTorn: chance.is(0.1) }
  },
  run: (input, _, arena) => toApi(input, arena)
}

const upstreams: Kind = {
  name: 'upstreams',
  lanes: 12,
  make (chance, number) {
    const words = `fuzz-${number}`
    const isStream = chance.is(0.7)
    const style = chance.of(styles)
    const vendor = chance.of([...dialectNames, 'raw'] as const)
    const asked: Asked = { vendor, isStream: isStream && dialectNamed(vendor)?.kind === 'text' }
    const answer = answerOf(chance, asked)
    const post = (path: string, body: object): Input => ({
      send: [request(`POST ${path}`, JSON_TYPE, JSON.stringify(body))],
      answer
    })
    if (vendor === 'raw') {
      return chance.is(0.5)
        ? { send: [request(`GET /v1/raw/${words}`, {})], answer }
        : post(`/v1/raw/${words}`, {})
    }
    if (vendor === 'images') {
      return post('/v1/images/generations', { model: 'bad-image', prompt: words,
        ...(chance.is(0.5) && { response_format: 'b64_json' }) })
    }
    if (vendor === 'videos') return post('/v1/videos', { model: 'bad-clip', prompt: words })
    const model = textModel('bad', vendor)
    const about = { model, max_tokens: 100, stream: isStream, messages: [{ role: 'user', content: words }] }
    if (style === 'responses') return post('/v1/responses', { model, stream: isStream, input: words })
    return style === 'messages'
      ? post('/v1/messages', about)
      : post('/v1/chat/completions', { ...about, ...(isStream && { stream_options: { include_usage: true } }) })
  },
  async run (input, number, arena) {
    arena.answers.set(String(number), input.answer!)
    try {
      return await toApi(input, arena, !input.send[0]!.includes('/v1/raw/'))
    } finally {
      arena.answers.delete(String(number))
    }
  }
}

/** Those that put a credential aside would leave nothing to the others. */
const HABITS = Object.entries<Habit>(habits).filter(([, { isOfCredential }]) => isOfCredential !== true)
 .map(([name]) => name)

const vendorHabits: Kind = {
  name: 'habits',
  lanes: 8,
  make (chance) {
    const dialect = chance.of(dialectNames)
    const more = [chance.is(0.3) ? 'tool_calls' : '', chance.is(0.2) ? `chunk=${1 + chance.below(20)}` : '',
      chance.is(0.1) ? `cut_after=${chance.below(8)}` : '']
    const prompt = `[[sim: habit=${chance.of(HABITS)} ${more.join(' ')}]] Hi`
    const post = (path: string, body: object): Input => ({
      send: [request(`POST ${path}`, JSON_TYPE, JSON.stringify(body))]
    })
    if (dialect === 'images') return post('/v1/images/generations', { model: 'vendor-image', prompt })
    if (dialect === 'videos') return post('/v1/videos', { model: 'vendor-clip', prompt })
    const model = textModel('vendor', dialect)
    const { path, asking } = clientStyles[chance.of(styles)]
    return post(path, asking({ model, max_tokens: 100, stream: chance.is(0.6),
      messages: [{ role: 'user', content: prompt }] }))
  },
  run: (input, _, arena) => toApi(input, arena)
}

const stalls: Kind = {
  name: 'stalls',
  lanes: 2,
  share: 0.5,
  // Its numbers begin far behind those of `upstreams`, which the hostile upstream knows too.
  make: (chance, number) => stallOf(chance, `fuzz-${STALLS_FROM + number}`, `fuzz-${LINKS_FROM + number}`),
  async run ({ answer, linked, ...input }, number, arena) {
    const [id, link] = [String(STALLS_FROM + number), String(LINKS_FROM + number)]
    if (answer !== undefined) arena.answers.set(id, answer.map((piece) => piece.includes(HOSTILE)
      ? Buffer.from(piece.toString('latin1').replaceAll(HOSTILE, arena.hostile), 'latin1')
      : piece))
    if (linked !== undefined) arena.answers.set(link, linked)
    try {
      return await toApi(input, arena)
    } finally {
      arena.answers.delete(id)
      arena.answers.delete(link)
    }
  }
}
const STALLS_FROM = 1_000_000_000
const LINKS_FROM = 2_000_000_000

const kept: Kind = {
  name: 'kept',
  lanes: 2,
  share: 0.5,
  make: (chance) => keptOf(chance),
  run: async (input, _, arena) => await toApi(await withIds(input, arena), arena)
}

const CHANGES: readonly (readonly [line: string, body?: object])[] = [
  ['POST /admin/v1/accounts', { id: 'victim', name: 'Victim', suspended: false, allow_fallback: true }],
  ['PATCH /admin/v1/accounts/victim', { name: 'Victim', suspended: false }],
  ['POST /admin/v1/accounts/victim/credits', { amount_usd: '12.50', reference: 'invoice-1' }],
  ['POST /admin/v1/accounts/victim/credits', { amount_usd: `1.${'0'.repeat(200_000)}1`, reference: 'zeros' }],
  ['POST /admin/v1/accounts/victim/debits', { amount_usd: '9'.repeat(200_000), reference: 'nines' }],
  ['POST /admin/v1/accounts/victim/refunds', { amount_usd: '1.50', reference: 'ticket-1', reason: 'cut off' }],
  ['POST /admin/v1/accounts/victim/debits', { amount_usd: '0.50', reference: 'fee-1', reason: 'a fee' }],
  ['POST /admin/v1/keys', {
    id: 'victim-key',
    account: 'victim',
    rate_limit: 60,
    concurrency: 10,
    usage_limit_usd: '5',
    usage_limit_day_usd: '1',
    time_zone: 'Europe/Berlin',
    allowed_models: ['good-*'],
    allowed_clients: ['curl'],
    ip_whitelist: ['10.0.0.0/8'],
    allowed_origins: ['https://a.example'],
    routing_mode: 'premium',
    channels: ['premium'],
    expires_at: '2027-01-31T00:00:00Z',
    frozen: false,
    streaming: true
  }],
  ['PATCH /admin/v1/keys/victim-key', { rate_limit: null, frozen: true, allowed_models: null }],
  ['POST /admin/v1/keys/victim-key/rotate', { grace: '1h' }],
  ['POST /admin/v1/explain', { key: 'acme-dev', route: 'POST /v1/messages', headers: { 'user-agent': 'x' },
    ip: '127.0.0.1', body: { model: 'good-text', max_tokens: 5, messages: [{ role: 'user', content: 'x' }] } }],
  ['DELETE /admin/v1/keys/victim-key'],
  ['GET /admin/v1/keys?limit=5&after=a'],
  ['GET /admin/v1/ledger?limit=5&account=victim'],
  ['GET /admin/v1/usage?limit=5'],
  ['GET /admin/v1/audit?after=0&limit=5&order=desc'],
  ['PATCH /admin/v1/accounts/victim', { contact: 'pay@victim.example', tags: ['a', 'b'] }],
  ['POST /admin/v1/accounts/victim/close'],
  ['POST /admin/v1/accounts/victim/reopen'],
  ['POST /admin/v1/tokens', { name: 'Ada', role: 'viewer', expires_at: '2999-01-01T00:00:00Z' }],
  ['GET /admin/v1/tokens?limit=5&after=t'],
  ['DELETE /admin/v1/tokens/tok_0'],
  ['GET /admin/v1/accounts/victim'],
  ['GET /admin/v1/upstreams'],
  ['GET /admin/v1/try'],
  ['POST /admin/v1/try', { key: 'acme-dev', secret: KEY, path: '/v1/messages',
    body: { model: 'good-text', max_tokens: 5, stream: true, messages: [{ role: 'user', content: 'x' }] } }],
  ['GET /admin/v1/config']
]

const admin: Kind = {
  name: 'admin',
  lanes: 2,
  make (chance) {
    const [line, body] = chance.of(CHANGES)
    const whole = request(chance.is(0.8) ? line : wound(chance, Buffer.from(line)).toString('latin1'), {
      authorization: `Bearer ${chance.mostly(0.999, TOKEN, ['', 'x', KEY])}`,
      'content-type': chance.mostly(0.95, 'application/json', ['text/plain', '']),
      ...(chance.is(0.1) && { 'if-match': chance.of(['"1"', '*', 'W/"1"', '"', '1']) })
    }, body === undefined ? '' : spoiled(chance, body))
    return { send: pieces(chance, whole) }
  },
  run: async ({ send }, _, arena) => judge(await talk(arena.admin, send))
}

const PIECES = ['"', '\'', '“', ' ', '\u00a0', '\t', ':', ': ', '- ', '  ', '\n', '#', '&a ', '*a', '!!binary ',
  '!!js/function ', '<<: ', '{', '}', '[', ']', '|', '>', '?', '---\n', '...\n', '%YAML 9.9\n', '${X}',
  '${file:nothing}', '${X:-}', 'null', '~', 'yes', '0x1F', '1e999', '-1', '2026-13-45', '9'.repeat(30),
  'include: [gateway.yaml]\n', 'a: &a [*a, *a]\n', '\0', '\uFEFF', '\u2028', '\r', 'é',
  // what may stop a loop: long runs, and aliases of aliases
  '0'.repeat(100_000), `1.${'0'.repeat(100_000)}1`, '['.repeat(5000), '# '.repeat(20_000), '\n# x'.repeat(5000),
  `a0: &a0 [x]\n${Array.from({ length: 12 }, (_, i) => `a${i + 1}: &a${i + 1} [${`*a${i}, `.repeat(8)}]`).join('\n')}\n`]

function configuration (chance: Chance): Buffer {
  const lines = PLAIN_YAML.split('\n')
  for (let left = chance.between(1, 3); left > 0; left--) {
    const at = chance.below(lines.length)
    const line = lines[at]!
    const column = chance.below(line.length + 1)
    const words = line.match(/[\w.-]+|[^\w\s]/g) ?? ['']
    const doings = [
      () => {
        lines[at] = line.slice(0, column) + chance.of(PIECES) + line.slice(column)
      },
      () => {
        lines[at] = line.slice(0, column) + line.slice(column + chance.between(1, 5))
      },
      () => {
        lines[at] = line.replace(chance.of(words), () => chance.of(PIECES))
      },
      () => {
        lines[at] = line.replace(chance.of(words), () => chance.of(chance.of(lines).match(/[\w.-]+/g) ?? ['x']))
      },
      () => {
        lines.splice(at, 1)
      },
      () => {
        lines.splice(at, 0, ...lines.slice(at, at + chance.between(1, 10)))
      },
      () => {
        lines[at] = ' '.repeat(chance.below(4)) + line
      },
      () => {
        lines.splice(chance.below(lines.length), 0, line)
      }
    ]
    chance.of(doings)()
  }
  const text = Buffer.from(lines.join('\n'))
  return chance.is(0.1) ? wound(chance, text) : text
}

/** By the checker, as `gateway check` does. */
function yaml (folder: string): Kind {
  return {
    name: 'yaml',
    lanes: 1,
    share: 0.1,
    make: (chance) => ({ send: [configuration(chance)] }),
    async run ({ send }) {
      const file = join(folder, 'gateway.yaml')
      writeFileSync(file, Buffer.concat(send))
      const found = await loadConfig(file, { env: {},
        pluginsUrl: new URL('../../plugins/index.ts', import.meta.url).href, timeoutMs: PATIENCE_MS })
      if (found.kind === 'valid') return { what: 'valid' }
      const lines = Buffer.concat(send).toString('utf8').split(/\r\n|[\r\n]/).length
      const odd = found.problems.find(({ line, column, message }) =>
        /could not be checked|^the thread that checks it/.test(message) || message === '' || line < 1 || column < 1 ||
        line > lines
      )
      return odd === undefined && found.problems.length > 0
        ? { what: 'refused' }
        : { what: 'refused', wrong: `no problem at a place: ${JSON.stringify(odd ?? found.problems)}` }
    }
  }
}

/** By a gateway that runs. */
const reloads: Kind = {
  name: 'reloads',
  lanes: 1,
  share: 0.05,
  make: (chance) => ({ send: [configuration(chance)] }),
  async run ({ send }, _, arena) {
    return { what: await arena.reload(Buffer.concat(send)) }
  }
}

/** @param folder for files that pass */
export function kinds (folder: string): readonly Kind[] {
  return [forms, bodies, heads, upstreams, vendorHabits, stalls, kept, admin, yaml(folder), reloads]
}
