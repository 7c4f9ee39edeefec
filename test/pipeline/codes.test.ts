// Every code that a client can read, in all styles: a table of what provokes each, and where in an answer it can
// come. Real sockets, the whole shipped pipeline, only the upstream is scripted. That the catalogue is the
// specification's: errors.test.ts.
import { request } from 'node:http'
import t, { type Test } from 'tap'
import { plugins } from '../../plugins/index.ts'
import { catalogue, GatewayError, type ErrorCode, type ErrorType } from '../../src/errors.ts'
import { SseDecoder } from '../../src/core/sse.ts'
import { formatUsd } from '../../src/money/nanos.ts'
import { type Style, styles } from '../support/client-styles.ts'
import { Call, events, fate, type Received } from '../support/client.ts'
import { CALM, gateway, messagesRequest, type TestGateway } from '../support/gateway.ts'
import { readResponse } from '../support/responses-reader.ts'
import { until } from '../support/until.ts'
import { answer, blockStart, blockStop, cut, end, errorEvent, errorReply, messageEnd, messageStart, raw, stall,
  textDelta, upstream, wait, type Script } from '../support/upstream.ts'


/** The upstream does what is said here before each request: they come one after the other. */
let script: Script = []
const target = await upstream(t, () => script)
const { host } = new URL(target.url)
const CREDENTIAL = 'upstream-secret-0'
const VENDOR_MODEL = 'vendor-model-7'
/** Upstreams quote what clients must not read. */
const LEAK = `${VENDOR_MODEL} for ${CREDENTIAL} at http://${host}/v1`

/** What a key may, by its id. */
const keys: Readonly<Record<string, string>> = {
  plain: 'account: acme',
  frozen: 'account: acme, frozen: true',
  suspended: 'account: suspended',
  broke: 'account: broke',
  poor: 'account: poor',
  capped: 'account: acme, usage_limit_usd: 0.0001',
  tight: 'account: acme, usage_limit_usd: 0.1',
  once: 'account: acme, rate_limit: 1',
  single: 'account: acme, concurrency: 1',
  home: 'account: acme, ip_whitelist: ["10.0.0.0/8"]',
  web: 'account: acme, allowed_origins: ["https://app.example.com"]',
  ide: 'account: acme, allowed_clients: [claude-code]',
  picky: 'account: acme, allowed_models: [blind]',
  whole: 'account: acme, streaming: false',
  cheap: 'account: acme, routing_mode: cheap, channels: [cheap]',
  torn: 'account: acme, routing_mode: premium, channels: [cheap]',
  thrifty: 'account: strict, routing_mode: auto_cheap'
}

const SOLD = `price: { input: 3, output: 15 }, targets: [{ upstream: u0, model: ${VENDOR_MODEL} }]`

/** What is special about a model, by its id. */
const models: Readonly<Record<string, string>> = {
  m1: `accepts: [text, image], channels: { premium: { ${SOLD} } }`,
  blind: `accepts: [text], channels: { premium: { ${SOLD} } }`,
  small: `accepts: [text], context: 100, channels: { premium: { ${SOLD} } }`,
  kin: `accepts: [text], family: kin, channels: { premium: { ${SOLD} } }`,
  both: `accepts: [text], channels: { premium: { ${SOLD} }, cheap: { ${SOLD} } }`,
  half: `accepts: [text], channels: { premium: { ${SOLD} }, cheap: { enabled: false, ${SOLD} } }`,
  off: `accepts: [text], channels: { premium: { enabled: false, ${SOLD} } }`
}

const BODY_MEMORY = 1024 * 1024

const yaml = (holdHead: string): string => `
server:
  api: { listen: "127.0.0.1:0", timeouts: { hold_head: ${holdHead} } }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:0", token: test-admin-token }
  body_limit: 8KB
  body_memory: 1MB
store: { driver: memory, path: ./data }
pipeline: [${plugins.map(({ name }) => name === 'rate-limit' ? 'rate-limit: { default_rpm: 0, families: { kin: { rpm: 1 } } }' : name).join(', ')}]
upstreams:
  u0: { url: "${target.url}", dialect: messages, ${CALM}, headers: { x-api-key: ${CREDENTIAL} } }
models:
${Object.entries(models).map(([id, settings]) => `  - { id: ${id}, name: ${id}, provider: acme, kind: text, created: 2025-09-29, max_output: 64000, ${settings} }\n`).join('')}
accounts:
  - { id: acme, name: Acme, opening_balance_usd: 100 }
  - { id: suspended, name: Suspended, opening_balance_usd: 100, suspended: true }
  - { id: strict, name: Strict, opening_balance_usd: 100, allow_fallback: false }
  - { id: broke, name: Broke, opening_balance_usd: 0.0001 }
  - { id: poor, name: Poor, opening_balance_usd: 0.2 }
keys:
${Object.entries(keys).map(([id, settings]) => `  - { id: ${id}, secret: ${secretOf(id)}, ${settings} }\n`).join('')}`

function secretOf (key: string): string {
  return 'sk-gw-' + key.padStart(32, 'k')
}

/** Where it can come. */
type Place =
  /** the client asked for JSON */
  | 'instead of JSON'
  /** it asked for a stream, and has nothing yet: it gets JSON all the same */
  | 'instead of a stream'
  /** `hold_head` has sent the head of a stream, and a ping */
  | 'behind the head'
  /** the first words of the answer are out */
  | 'behind content'

const asJson: readonly Place[] = ['instead of JSON']
const before: readonly Place[] = ['instead of JSON', 'instead of a stream']
const uncommitted: readonly Place[] = [...before, 'behind the head']
const streams: readonly Place[] = ['instead of a stream', 'behind the head']
const committed: readonly Place[] = ['behind content']

/** What the client sends otherwise than `messagesRequest` as key `plain`. */
interface Asking {
  readonly key?: string
  readonly method?: string
  /** below that of the format */
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  /** other fields, in the words of messages style, or another body */
  readonly body?: Readonly<Record<string, unknown>> | string
}

/** What else happens; returns what undoes it. */
type Meanwhile = (gw: TestGateway, ask: () => Call) => Promise<() => unknown>

interface Row {
  /** of the catalogue */
  readonly row: ErrorCode
  readonly when: string
  readonly in: readonly Place[]
  readonly ask?: Asking | ((style: Style) => Asking)
  /** when the request has come to its place; default: it answers well */
  readonly upstream?: Script
  readonly meanwhile?: Meanwhile
  /** when all requests of such rows have come to their places */
  readonly isStopped?: true
  /** where it is not the catalogue's */
  readonly type?: ErrorType
  /** dollars; default: nothing */
  readonly cost?: string
  /** Nobody's request: it is counted, and the log may have one line for several. */
  readonly isStranger?: true
  /** default: all */
  readonly styles?: readonly Style[]
}

/** One that takes most of a purse that has 20 cents. */
const dear = { max_tokens: 4096 }
const says = (content: unknown, model = 'm1'): Asking => ({ body: { model, messages: [{ role: 'user', content }] } })
const image = {
  messages: { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } },
  chat: { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
  responses: { type: 'input_image', image_url: 'data:image/png;base64,iVBORw0KGgo=' }
}

const empty: Script = [messageStart({ usage: { input_tokens: 1000, output_tokens: 7 } }), blockStart(0)]
/** The 7 tokens that the upstream reports by then, at 15 dollars a million: of a cut answer the input costs nothing. */
const PRODUCED = '0.000105'
const answers = (status: number, type: string, headers = {}): Script => errorReply(status, type, LEAK, headers)
const refuses = (text: string): Script => errorReply(400, 'invalid_request_error', `${text} (${LEAK})`)

const rows: readonly Row[] = [
  // The request is wrong.
  { row: 'bad_request', when: 'the body is no object', in: before, ask: { body: '"Hello"' } },
  { row: 'bad_request', when: 'the body is no JSON', in: before, ask: { body: '{"model": m1}' } },
  { row: 'model_required', when: 'the body names no model', in: before, ask: { body: { model: undefined } } },
  { row: 'model_required', when: 'the model is null', in: before, ask: { body: { model: null } } },
  { row: 'invalid_request', when: 'the model is no text', in: before, ask: { body: { model: 5 } } },
  { row: 'model_not_found', when: 'there is no such model', in: before, ask: { body: { model: 'm2' } } },
  { row: 'invalid_request', when: 'a field has the wrong type', in: before, ask: { body: { messages: 5 } } },
  { row: 'invalid_request', when: 'the key takes no streams', in: ['instead of a stream'], ask: { key: 'whole' } },
  { row: 'invalid_request', when: 'the upstream refuses a field', in: uncommitted,
    upstream: refuses('top_k: out of range') },
  { row: 'context_length_exceeded', when: 'the prompt is certainly too long', in: before,
    ask: says('word '.repeat(300), 'small') },
  { row: 'context_length_exceeded', when: 'the upstream counts too many tokens', in: uncommitted,
    upstream: refuses('prompt is too long: 208310 tokens > 200000 maximum') },
  { row: 'image_input_not_supported', when: 'the model takes no images', in: before,
    ask: (style) => says([image[style]], 'blind') },
  { row: 'image_input_not_supported', when: 'the upstream takes no images', in: uncommitted,
    ask: (style) => says([image[style]]), upstream: refuses('This model does not support image input') },
  { row: 'content_policy_violation', when: 'the upstream refuses the content', in: uncommitted,
    upstream: refuses('Output blocked by content filtering policy') },
  { row: 'request_too_large', when: 'the body is larger than body_limit', in: before, ask: says('x'.repeat(9000)) },
  { row: 'request_too_large', when: 'the upstream takes no bodies of this size', in: uncommitted,
    upstream: answers(413, 'request_too_large') },
  { row: 'previous_response_not_found', when: 'it goes on from another response', in: before, styles: ['responses'],
    ask: { body: { previous_response_id: 'resp_1' } } },
  { row: 'item_not_found', when: 'an item is named by its id', in: before, styles: ['responses'],
    ask: { body: { messages: [{ type: 'item_reference', id: 'msg_1' }] } } },
  { row: 'upgrade_refused', when: 'it asks for a WebSocket', in: asJson, styles: ['responses'], isStranger: true,
    ask: { method: 'GET', body: '', headers: { connection: 'Upgrade', upgrade: 'websocket',
      'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==', 'sec-websocket-version': '13' } } },
  { row: 'not_found', when: 'there is nothing at the address', in: asJson, ask: { path: '/nothing' },
    styles: ['messages', 'chat'], isStranger: true },
  { row: 'not_found', when: 'there is no such response', in: asJson, ask: { path: '/resp_1/cancel' },
    styles: ['responses'] },
  { row: 'method_not_allowed', when: 'the address takes other methods', in: asJson, ask: { method: 'PUT' },
    isStranger: true },

  // Who asks, from where, with what, for what.
  { row: 'authentication_error', when: 'nobody has this key', in: before, ask: { key: 'nobody' }, isStranger: true },
  { row: 'authentication_error', when: 'the key is frozen', in: before, ask: { key: 'frozen' }, isStranger: true },
  { row: 'account_frozen', when: 'the account is suspended', in: before, ask: { key: 'suspended' } },
  { row: 'ip_not_allowed', when: 'the address is not on the key\'s list', in: before, ask: { key: 'home' } },
  { row: 'origin_not_allowed', when: 'the web page is not on the key\'s list', in: before,
    ask: { key: 'web', headers: { origin: 'https://evil.example' } } },
  { row: 'client_not_allowed', when: 'the client is not on the key\'s list', in: before,
    ask: { key: 'ide', headers: { 'user-agent': 'curl/8.9' } } },
  { row: 'model_not_allowed', when: 'the model is not on the key\'s list', in: before, ask: { key: 'picky' } },
  { row: 'model_not_in_channel', when: 'none of the key\'s channels sells the model', in: before,
    ask: { key: 'cheap' } },
  { row: 'channel_not_allowed', when: 'the key\'s mode wants a channel that the key may not use', in: before,
    ask: { key: 'torn', body: { model: 'both' } } },
  { row: 'channel_unavailable', when: 'the only channel is switched off', in: before, ask: { body: { model: 'off' } } },
  { row: 'fallback_not_allowed', when: 'the first channel is switched off', in: before,
    ask: { key: 'thrifty', body: { model: 'half' } } },
  { row: 'fallback_not_allowed', when: 'the first channel fails', in: uncommitted,
    ask: { key: 'thrifty', body: { model: 'both' } }, upstream: answers(500, 'api_error') },

  // How much, how often, how many.
  { row: 'insufficient_quota', when: 'the balance does not pay for it', in: before, ask: { key: 'broke', body: dear } },
  { row: 'insufficient_quota', when: 'the key may not spend so much', in: before, ask: { key: 'capped', body: dear } },
  { row: 'low_balance', when: 'a running request holds what the balance has', in: before,
    ask: { key: 'poor', body: dear }, meanwhile: anotherRuns },
  { row: 'rate_limited', when: 'a running request holds what the key may spend', in: before,
    ask: { key: 'tight', body: dear }, meanwhile: anotherRuns },
  { row: 'rate_limited', when: 'the key has asked in this minute', in: before, ask: { key: 'once' },
    meanwhile: anotherWas },
  { row: 'family_rate_limited', when: 'the key has asked the family in this minute', in: before,
    ask: { body: { model: 'kin' } }, meanwhile: anotherWas },
  { row: 'org_queue_full', when: 'a request of the key is running', in: before, ask: { key: 'single' },
    meanwhile: anotherRuns },
  { row: 'queue_full', when: 'the bodies in flight fill body_memory', in: before, meanwhile: memoryIsFull },

  // The gateway can't.
  { row: 'auth_unavailable', when: 'the store does not say who may', in: before, meanwhile: storeFails('admit') },
  { row: 'server_error', when: 'the store takes no hold', in: before, meanwhile: storeFails('hold') },
  { row: 'server_error', when: 'the store does not settle: what is not recorded is not charged', in: asJson,
    meanwhile: storeFails('settle') },
  { row: 'server_error', when: 'the store does not settle a stream', in: committed,
    upstream: [blockStop(0), messageEnd()], meanwhile: storeFails('settle') },
  { row: 'service_unavailable', when: 'the gateway is stopped', in: uncommitted, upstream: stall(), isStopped: true },
  { row: 'stream_incomplete', when: 'the gateway is stopped', in: committed, upstream: stall(), isStopped: true,
    cost: PRODUCED },

  // The upstream can't.
  { row: 'upstream_error', when: 'the upstream fails', in: uncommitted, upstream: answers(500, 'api_error') },
  { row: 'service_unavailable', when: 'the upstream refuses our key', in: uncommitted,
    upstream: answers(401, 'authentication_error') },
  { row: 'upstream_error', when: 'the upstream hangs up before its head', in: uncommitted, upstream: cut() },
  { row: 'upstream_error', when: 'the upstream hangs up before content', in: streams, upstream: [empty, cut()] },
  { row: 'empty_response', when: 'the upstream has nothing to say', in: uncommitted, upstream: end() },
  { row: 'model_overloaded', when: 'the upstream is overloaded', in: uncommitted,
    upstream: answers(529, 'overloaded_error') },
  { row: 'model_overloaded', when: 'the upstream limits us for an hour', in: uncommitted,
    upstream: answers(429, 'rate_limit_error', { 'retry-after': '3600' }) },
  { row: 'model_overloaded', when: 'its stream says so before content', in: streams,
    upstream: [empty, errorEvent('overloaded_error', LEAK)] },
  { row: 'stream_incomplete', when: 'the upstream ends before content', in: streams, upstream: [empty, end()] },
  { row: 'stream_incomplete', when: 'the upstream ends in the middle', in: committed, upstream: end(), cost: PRODUCED },
  { row: 'upstream_stream_interrupted', when: 'the upstream hangs up in the middle', in: committed, upstream: cut(),
    cost: PRODUCED },
  { row: 'upstream_stream_interrupted', when: 'its stream says that it failed', in: committed,
    upstream: errorEvent('api_error', LEAK), cost: PRODUCED },
  { row: 'upstream_stream_interrupted', when: 'its stream says that it is overloaded', in: committed,
    upstream: errorEvent('overloaded_error', LEAK), type: 'overloaded_error', cost: PRODUCED },
  { row: 'upstream_stream_interrupted', when: 'the upstream sends nonsense', in: committed,
    upstream: raw('event: content_block_delta\ndata: {"type":\n\n'), cost: PRODUCED }
]

/** Rows of the catalogue that are not here, and why. */
const elsewhere: Partial<Record<ErrorCode, string>> = {
  headers_too_large: 'there is no request yet: raw-socket.test.ts',
  expectation_failed: 'before any route: raw-socket.test.ts',
  request_timeout: 'a client that stops sending: raw-socket.test.ts',
  channel_unknown: 'GET /api/public/models-info, an address of one format: models-info.test.ts',
  unauthorized: 'image and video addresses: auth.test.ts',
  client_closed: 'nobody is there to read it',
  invalid_state: 'of video tasks: videos.test.ts',
  range_not_satisfiable: 'of downloads: video-content.test.ts',
  model_unavailable: 'of images, which are not there yet',
  queue_timeout: 'of queues in front of upstreams, which are not there yet',
  maintenance: 'of what the operator has put under it: maintenance.test.ts'
}

/** The same request runs already. */
async function anotherRuns (gw: TestGateway, ask: () => Call): Promise<() => unknown> {
  const seen = target.requests.length
  script = stall()
  const other = ask()
  await until(() => target.requests.length > seen)
  return async () => {
    other.leave()
    await until(() => gw.server.inFlight === 0)
  }
}

/** The same request came before. */
async function anotherWas (_: TestGateway, ask: () => Call): Promise<() => unknown> {
  script = answer('Hello')
  await ask().whole()
  return () => {}
}

async function memoryIsFull ({ server: { bodyMemory } }: TestGateway): Promise<() => unknown> {
  bodyMemory.take(BODY_MEMORY)
  return () => { bodyMemory.give(BODY_MEMORY) }
}

function storeFails (at: 'admit' | 'hold' | 'settle'): Meanwhile {
  return async ({ services: { store } }) => {
    store[at] = () => { throw new Error(`the store is away: ${LEAK}`) }
    return () => Reflect.deleteProperty(store, at)
  }
}

const paths: Readonly<Record<Style, string>> = { messages: '/v1/messages', chat: '/v1/chat/completions',
  responses: '/v1/responses' }

/** A body in messages style in the words of another. */
function bodyIn (style: Style, body: Readonly<Record<string, unknown>>): unknown {
  if (style !== 'responses') return body
  const { messages: input, max_tokens: max_output_tokens, ...others } = body
  return { ...others, input, max_output_tokens }
}

function send (
  gw: TestGateway,
  { key = 'plain', method = 'POST', path = '', headers = {}, body = {} }: Asking,
  style: Style,
  stream: boolean
): Call {
  const authorization = style === 'messages'
    ? { 'x-api-key': secretOf(key) }
    : { authorization: `Bearer ${secretOf(key)}` }
  const sent = request(gw.url + paths[style] + path, { agent: false, method,
    headers: { 'content-type': 'application/json', ...authorization, ...headers } })
  const asked = { ...messagesRequest, stream, ...(typeof body === 'object' && body) }
  return new Call(sent.end(typeof body === 'string' ? body : JSON.stringify(bodyIn(style, asked))))
}

const patient = await gateway(t, yaml('10s'))
/** It does not wait for an answer with the head of a stream. */
const eager = await gateway(t, yaml('20ms'))

interface Case {
  readonly row: Row
  readonly style: Style
  readonly place: Place
}

/** A request in its place. */
interface Brought {
  readonly gw: TestGateway
  readonly call: Call
  readonly undo?: (() => unknown) | undefined
}

async function bring (
  { row: { ask: asking = {}, upstream = answer('Hello'), meanwhile, isStopped }, style, place }: Case
): Promise<Brought> {
  const gw = place === 'behind the head' ? eager : patient
  const ask = (): Call =>
    send(gw, typeof asking === 'function' ? asking(style) : asking, style, place !== 'instead of JSON')
  const undo = await meanwhile?.(gw, ask)
  const isInPlace = Promise.withResolvers<void>()
  script = [place === 'behind content' ? [empty, textDelta(0, 'begun')] : [], wait(isInPlace.promise), upstream]
  const seen = target.requests.length
  const call = ask()
  if (place === 'behind the head') await call.head
  if (place === 'behind content') await call.sees('begun')
  if (isStopped) await until(() => target.requests.length > seen)
  isInPlace.resolve()
  return { gw, call, undo }
}

/** What a refusal for money advises to lower. */
const LIMITS: Readonly<Record<Style, RegExp>> = { messages: /ower max_tokens[,.]/,
  chat: /ower max_completion_tokens or max_tokens[,.]/, responses: /ower max_output_tokens[,.]/ }

interface Words {
  readonly error: { readonly message: string, readonly charged_usd: string, readonly param?: string | null }
}

interface LastWords {
  readonly words: Words
  /** names of the events before */
  readonly earlier: readonly string[]
}

/** The error as the style has it in a stream, and that the stream does not look whole. */
const lastWords: Readonly<Record<Style, (t: Test, got: Received) => LastWords>> = {
  messages (t, { text }) {
    const all = [...events(text)]
    const { event, data } = all.pop()!
    t.equal(event, 'error')
    t.notMatch(text, 'message_stop')
    return { words: data as unknown as Words, earlier: all.map(({ event }) => event) }
  },
  chat (t, { text }) {
    const records = text.split('\n\n')
    t.equal(records.pop(), '', 'it ends behind a record')
    t.equal(records.pop(), 'data: [DONE]')
    const last = records.pop()!
    t.match(last, /^data: \{"error":/)
    t.notMatch(text, '"finish_reason":"')
    return { words: JSON.parse(last.slice('data: '.length)) as Words,
      earlier: records.map((record) => record.replace(': ', '')) }
  },
  responses (t, { text, id, bytes }) {
    const all = new SseDecoder().push(bytes)
    const { response } = readResponse(all)
    t.match(text, /\n\n$/, 'it ends behind a record')
    t.notMatch(text, '[DONE]')
    t.match(response, { status: 'failed', id: id.replace('req_', 'resp_') })
    return { words: response as unknown as Words, earlier: all.slice(0, -1).map(({ event }) => event) }
  }
}

/** What a stream says while there is no content. */
const idle: Readonly<Record<Style, RegExp>> = { messages: /^ping$/, chat: /^ping$/,
  responses: /^response\.(?:created|in_progress)$|^keepalive$/ }

async function check (t: Test, { row, style, place }: Case, gw: TestGateway, got: Received): Promise<void> {
  const { code, status, type: ownType } = new GatewayError(row.row)
  const type = row.type ?? ownType
  const { id } = got
  const isStream = place.startsWith('behind')
  t.match(id, /^req_\w{24}$/)
  t.equal(got.headers['request-id'], id)
  t.equal(got.status, isStream ? 200 : status)
  t.match(got.headers['content-type'], isStream ? /^text\/event-stream/ : 'application/json')
  t.match(got.headers['retry-after'] ?? 'none',
    !isStream && (status === 429 || status === 503) ? /^(?:[1-9]|[1-5]\d|60)$/ : 'none')
  t.ok(got.isWhole)

  const { words, earlier } = isStream ? lastWords[style](t, got) : { words: got.json as Words, earlier: [] }
  if (place === 'behind the head') {
    t.ok(earlier.length > 0 && earlier.every((event) => idle[style].test(event)), 'pings and nothing else')
  }
  const { message, charged_usd, param } = words.error
  if (style === 'messages') {
    t.strictSame(words,
      { type: 'error', error: { type, message, charged_usd, details: { error_code: code } }, request_id: id })
  } else {
    // In a stream an overload has the name for which Codex waits.
    const isOverload = style === 'responses' && isStream && (type === 'overloaded_error' || status === 429)
    t.strictSame(style === 'responses' && isStream ? { error: words.error } : words, { error: { message, type,
      code: isOverload ? 'rate_limit_exceeded' : code, param, charged_usd, request_id: id } })
    if (isOverload) t.match(message, /Please try again in \d+s\. Request ID: /)
    t.ok(param === null || typeof param === 'string')
  }
  t.match(message, /^[A-Za-z].{19,}\S Request ID: req_\w{24}$/)
  t.ok(message.endsWith(` Request ID: ${id}`))
  if (message.includes('may cost up to')) t.match(message, LIMITS[style])
  for (const secret of [CREDENTIAL, host, VENDOR_MODEL]) t.notOk(got.text.includes(secret), secret)

  const { charged, openHolds } = row.isStranger ? { charged: 0n, openHolds: 0 } : await fate(gw, id)
  t.equal(charged_usd, row.cost ?? '0')
  t.equal(formatUsd(charged), charged_usd, 'the ledger says the same')
  t.equal(openHolds, 0)
  const lines = gw.logged.filter(({ msg, request_id }) => msg === 'request' && request_id === id)
  if (!row.isStranger) t.strictSame(lines.map(({ code, status }) => ({ code, status })), [{ code, status: got.status }])
}

const casesOf = (row: Row): readonly Case[] =>
  (row.styles ?? styles).flatMap((style) => row.in.map((place) => ({ row, style, place })))

for (const row of rows.filter(({ isStopped }) => !isStopped)) {
  t.test(`${row.row}: ${row.when}`, async (t) => {
    for (const one of casesOf(row)) {
      await t.test(`${one.style}, ${one.place}`, async (t) => {
        for (const each of [patient, eager]) each.heal()
        const { gw, call, undo } = await bring(one)
        const got = await call.whole()
        await undo?.()
        await check(t, one, gw, got)
      })
    }
  })
}

t.test('the gateway is stopped, and tells all that are running', async (t) => {
  const running: [Case, Brought][] = []
  for (const one of rows.filter(({ isStopped }) => isStopped).flatMap(casesOf)) running.push([one, await bring(one)])
  await Promise.all([patient.stop(), eager.stop()])
  for (const [one, { gw, call }] of running) {
    await t.test(`${one.row.row}: ${one.style}, ${one.place}`, async (t) => {
      await check(t, one, gw, await call.whole())
    })
  }
})

t.test('every error of the catalogue is provoked here, or it is said why not', async (t) => {
  const here = new Set(rows.map(({ row }) => row))
  t.strictSame([...here, ...Object.keys(elsewhere)].toSorted(), Object.keys(catalogue).toSorted(),
    'a code of src/errors.ts has a row in `rows` of this file, or a line in `elsewhere` with the test that provokes it')
})
