// error-normalize: what an upstream's failure becomes, and what of its words a client reads.
import t from 'tap'
import { errorNormalize } from '../../plugins/error-normalize/index.ts'
import { GatewayError, type ErrorCode } from '../../src/errors.ts'
import type { Routed as Exchange } from '../../src/core/endpoint.ts'
import { Charge, Plan } from '../../src/core/facts.ts'
import { noUsage } from '../../src/money/usage.ts'
import type { UpstreamFailure } from '../../src/core/plugin.ts'
import { scrub } from '../../src/base/redact.ts'
import { ask, asking, config, exchange, model, services, snapshot, upstreamConfig } from '../support/exchange.ts'

const NOW = Date.parse('2026-01-01T00:00:00Z')
const UPSTREAM_KEY = 'plain-credential-of-ours'
const on = snapshot(config({
  upstreams: {
    u: upstreamConfig({ url: 'https://llm.corp-internal.example:8443/v1',
      headers: { 'x-api-key': UPSTREAM_KEY, authorization: 'Token very-secret-words',
        'anthropic-version': '2023-06-01' } })
  },
  models: [model('claude-sonnet', { premium: 'u/vendor-sonnet-4*1' })]
}), [errorNormalize], services(() => NOW))

async function tried (): Promise<Exchange> {
  const asked = asking(on, 'claude-sonnet')
  asked.set(Plan, {
    attempts: [{ upstream: 'u', model: 'vendor-sonnet-4', channel: 'premium',
      sold: on.models.get('claude-sonnet')!.channels.premium! }]
  })
  asked.record.attempts = 1
  asked.lastAttempt = asked.get(Plan).attempts[0]
  await ask(asked)
  return asked
}

async function name (failure: UpstreamFailure): Promise<GatewayError> {
  const asked = await tried()
  for (const { call } of asked.route.hooks.onUpstreamFailure) {
    const named = call(failure, asked, 'u')
    if (named !== undefined) return named
  }
  throw new Error('nobody named the failure')
}

type Head = Readonly<Record<string, string | string[] | undefined>>

function status (
  code: number,
  body: unknown = { type: 'error', error: { type: 'api_error', message: 'x' } },
  headers: Head = {}
): Promise<GatewayError> {
  return name({ kind: 'status', status: code, headers, body })
}

function anthropic (message: string, type = 'invalid_request_error'): unknown {
  return { type: 'error', error: { type, message }, request_id: 'req_vendor000000' }
}

function openai (
  message: string,
  code: string | null = null,
  type = 'invalid_request_error',
  param: string | null = null
): unknown {
  return { error: { message, type, param, code } }
}

const HTML = '<html><head><title>502 Bad Gateway</title></head><body>nginx at 10.0.0.7</body></html>'

t.test('every status of an upstream has one meaning', async (t) => {
  const table: readonly (readonly [number, ErrorCode, boolean])[] = [
    [400, 'invalid_request', false],
    [401, 'upstream_error', true],
    [402, 'upstream_error', true],
    [403, 'upstream_error', true],
    [404, 'upstream_error', true],
    [405, 'upstream_error', true],
    [408, 'upstream_error', true],
    [409, 'upstream_error', true],
    [413, 'request_too_large', false],
    [418, 'upstream_error', true],
    [422, 'invalid_request', false],
    [425, 'upstream_error', true],
    [429, 'model_overloaded', true],
    [500, 'upstream_error', true],
    [502, 'upstream_error', true],
    [503, 'model_overloaded', true],
    [504, 'upstream_error', true],
    [529, 'model_overloaded', true],
    [599, 'upstream_error', true],
    [302, 'upstream_error', true]
  ]
  for (const [code, row, retryable] of table) {
    const error = await status(code)
    t.equal(error.row, row, String(code))
    t.equal(error.retryable, retryable, `${code} retryable`)
    t.equal(error.retryAfter !== undefined, error.status === 429 || error.status === 503, `${code} Retry-After`)
  }
})

t.test('HTML, empty and senseless bodies never reach the client, whatever the status', async (t) => {
  for (const body of [HTML, '', '   ', null, [], {}, { error: {} }, { error: { message: 7 } }, 42]) {
    for (const code of [400, 422, 401, 500, 404]) {
      const error = await status(code, body)
      t.equal(error.row, 'upstream_error', `${code} ${JSON.stringify(body)}`)
      t.equal(error.status, 502)
      t.equal(error.retryable, true)
      t.notMatch(error.message, /nginx|html/)
    }
  }
  t.equal((await status(413, HTML)).row, 'request_too_large')
  t.equal((await status(529, HTML)).row, 'model_overloaded')
})

t.test('all else that an attempt can die of', async (t) => {
  for (const kind of ['refused', 'reset', 'connect_timeout', 'first_byte_timeout', 'idle_timeout',
    'malformed'] as const) {
    t.match(await name({ kind, cause: new Error('secret place 10.1.2.3') }), { row: 'upstream_error', status: 502,
      code: 'server_error', retryable: true, message: /provider failed/ }, kind)
  }
  t.match(await name({ kind: 'empty' }), { row: 'empty_response', retryable: true })
  for (const half of [{}, { isHalf: true }] as const) {
    t.match(await name({ kind: 'unusable', cause: undefined, ...half }), { row: 'upstream_error',
      retryable: 'isHalf' in half })
  }
  t.match(await name({ kind: 'incomplete' }), { row: 'stream_incomplete', retryable: true })
})

t.test('an error event that opens a stream', async (t) => {
  const event = (type: string, message = 'x'): Promise<GatewayError> =>
    name({ kind: 'error_event', body: anthropic(message, type) })
  t.match(await event('overloaded_error', 'Overloaded'), { row: 'model_overloaded', type: 'overloaded_error',
    retryable: true, retryAfter: 2 })
  t.match(await event('rate_limit_error'), { row: 'model_overloaded' })
  for (const type of ['api_error', 'timeout_error', 'authentication_error', 'permission_error', 'billing_error',
    'not_found_error', 'new_error']) { t.match(await event(type), { row: 'upstream_error', retryable: true }, type) }
  t.match(await event('invalid_request_error', 'prompt is too long: 208310 tokens > 200000 maximum'), {
    row: 'context_length_exceeded',
    retryable: false
  })
  t.match(await event('request_too_large'), { row: 'request_too_large', retryable: false })
  for (const body of [null, 'x', {}, { error: 'overloaded' }]) {
    t.ok((await name({ kind: 'error_event', body })).retryable)
  }
  // In chat style the code is often the status that it would have been.
  const coded = (code: unknown, message = 'x'): Promise<GatewayError> =>
    name({ kind: 'error_event', body: { error: { code, message } } })
  for (const code of [429, 503, 529]) { t.equal((await coded(code)).row, 'model_overloaded') }
  for (const code of [401, 402, 404, 408, 500, 502, 'server_error', null]) {
    t.match(await coded(code), { row: 'upstream_error', retryable: true })
  }
  t.match(await coded(400, 'The field top_k is wrong'), { row: 'invalid_request', message: 'The field top_k is wrong',
    retryable: false })
  t.equal((await coded(400, 'maximum context length is 8192 tokens')).row, 'context_length_exceeded')
})

t.test('a body that FastAPI finds wrong (vLLM and others) is refused with its list of what and where', async (t) => {
  const wrong = (loc: unknown, msg: unknown): unknown => ({
    type: 'missing',
    loc,
    msg,
    input: { secret: 'of the client' }
  })
  const refused = { row: 'invalid_request', status: 400, retryable: false }
  t.match(await status(422, { detail: [wrong(['body', 'input'], 'Field required')] }), { ...refused,
    message: 'body.input: Field required' })
  const two = {
    detail: [wrong(['body', 'messages', 0, 'role'], 'Input should be a valid string'),
      wrong(undefined, 'prompt is odd'), wrong(['body'], 5), null]
  }
  const error = await status(400, two)
  t.match(error, { ...refused, message: 'body.messages.0.role: Input should be a valid string; prompt is odd' })
  t.notMatch(error.message, /secret/)
  t.equal((await status(422, { detail: [wrong(['body'], 'maximum context length is 8192 tokens')] })).row,
    'context_length_exceeded')
  for (const detail of [[], [null], [{}], [7], {}]) {
    t.equal((await status(422, { detail })).row, 'upstream_error', JSON.stringify(detail))
  }
})

t.test('Claude Code can compute with the sentence about the context limit, which is kept to the letter', async (t) => {
  const sentence =
    'input length and `max_tokens` exceed context limit: 197202 + 21333 > 200000, decrease input length or `max_tokens` and try again'
  const error = await status(400, anthropic(sentence))
  t.match(error, { row: 'context_length_exceeded', status: 400, type: 'invalid_request_error', message: sentence,
    retryable: false })
  t.match(error.message, /input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+)/)
})

t.test('refusals of several vendors are told apart', async (t) => {
  const table: readonly (readonly [unknown, ErrorCode])[] = [
    [anthropic('prompt is too long: 208310 tokens > 200000 maximum'), 'context_length_exceeded'],
    [
      openai('This model\'s maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.',
        'context_length_exceeded'),
      'context_length_exceeded'
    ],
    [openai('too big', 'context_length_exceeded'), 'context_length_exceeded'],
    [{
      error: { code: 400, status: 'INVALID_ARGUMENT',
        message: 'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).' }
    }, 'context_length_exceeded'],
    [anthropic('max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for vendor-sonnet-4'),
      'invalid_request'],
    [anthropic('tools.0.custom.input_schema: exceeds the maximum depth'), 'invalid_request'],
    [openai('Your request was rejected as a result of our safety system.', 'content_policy_violation'),
      'content_policy_violation'],
    [anthropic('Output blocked by content filtering policy'), 'content_policy_violation'],
    [
      openai('The response was filtered due to the prompt triggering Azure OpenAI\'s content management policy.',
        'content_filter', ''),
      'content_policy_violation'
    ],
    [anthropic('This model does not support image input.'), 'image_input_not_supported'],
    [openai('Invalid content type. image_url is only supported by certain models.'), 'image_input_not_supported'],
    [anthropic('messages.0.content.0.image.source.media_type: image format not supported, use image/jpeg'),
      'invalid_request'],
    [anthropic('messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks'), 'invalid_request'],
    [anthropic('messages.1.content.0.thinking: Invalid `signature` in `thinking` block'), 'invalid_request'],
    [{ detail: 'temperature must be between 0 and 1' }, 'invalid_request'],
    [{ message: 'top_k out of range' }, 'invalid_request'],
    [{ error: 'bad tool' }, 'invalid_request'],
    ['unsupported value for "stop"', 'invalid_request']
  ]
  for (const [body, row] of table) {
    for (const code of [400, 422]) t.equal((await status(code, body)).row, row, JSON.stringify(body))
  }
})

t.test('what is ours to mend is not the client\'s fault, though the upstream calls it a bad request', async (t) => {
  const bodies = [
    anthropic('Your credit balance is too low to access the API. Please go to Plans & Billing.'),
    openai('Billing hard limit has been reached', 'billing_hard_limit_reached'),
    { error: { code: 400, status: 'INVALID_ARGUMENT', message: 'API key not valid. Please pass a valid API key.' } },
    openai('The model `vendor-sonnet-4` does not exist', 'model_not_found'),
    openai('Your organization must be verified to stream this model.')
  ]
  for (const body of bodies) {
    t.match(await status(400, body), { row: 'upstream_error', status: 502, retryable: true }, JSON.stringify(body))
  }
})

t.test('the sentence and the field of a bad request reach the client, the model under its public name', async (t) => {
  const error = await status(400,
    openai('Unsupported parameter: \'top_k\' is not supported with vendor-sonnet-4, not even in vendor-sonnet-45.',
      null, 'invalid_request_error', 'top_k'))
  t.match(error, { row: 'invalid_request', param: 'top_k',
    message: 'Unsupported parameter: \'top_k\' is not supported with claude-sonnet, not even in vendor-sonnet-45.' })
  t.match(await status(400, openai('x', 'content_policy_violation')), { message: /refused because of its content/ })
})

t.test('Retry-After is the upstream\'s, in whole seconds from 1 to 60', async (t) => {
  const after = async (headers: Head): Promise<number | undefined> => (await status(429, undefined, headers)).retryAfter
  t.equal(await after({}), 2, 'ours, if it names none')
  t.equal(await after({ 'retry-after': '7' }), 7)
  t.equal(await after({ 'retry-after': ['9', '30'] }), 9)
  t.equal(await after({ 'retry-after': '0' }), 1)
  t.equal(await after({ 'retry-after': '1.2' }), 2, 'up: a retry at that second succeeds')
  t.equal(await after({ 'retry-after': '3600' }), 60)
  t.equal(await after({ 'retry-after-ms': '1500', 'retry-after': '30' }), 2)
  t.equal(await after({ 'retry-after': 'Thu, 01 Jan 2026 00:00:20 GMT' }), 20)
  t.equal(await after({ 'retry-after': 'Thu, 01 Jan 2026 01:00:00 GMT' }), 60)
  t.equal(await after({ 'retry-after': 'Wed, 31 Dec 2025 00:00:00 GMT' }), 1)
  for (const bad of ['', 'soon', '-5', 'NaN', '1e9', '0x10', 'Infinity']) {
    t.equal(await after({ 'retry-after': bad }), 2, bad)
  }
  t.equal((await status(503, undefined, { 'retry-after': '11' })).retryAfter, 11)
  t.equal((await status(529, undefined, { 'retry-after': '11' })).retryAfter, 11)
  t.equal((await status(500, anthropic('x', 'overloaded_error'), { 'retry-after': '11' })).retryAfter, 11)
  t.equal((await status(500, undefined, { 'retry-after': '11' })).retryAfter, undefined)
})

t.test('nothing of the upstream or its account gets through, in the message or the field', async (t) => {
  const leaks = [
    UPSTREAM_KEY,
    'very-secret-words',
    'llm.corp-internal.example',
    'llm.corp-internal.example:8443',
    'https://llm.corp-internal.example:8443/v1/messages?key=abc',
    'sk-ant-api03-AbCdEf',
    'sk-proj-*****wXyZ',
    'sk-0123456789abcdef',
    'Bearer abcdef123456',
    'AKIAIOSFODNN7EXAMPLE',
    'AIzaSyA1234567890abcdefghijklmnopqrstu',
    'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln',
    'org-AbCdEfGhIjKlMnOpQrStUvWx',
    'proj_AbCdEf123456',
    'req_011CSHoEeqs5C35K2UUqR7Fy',
    'ops@vendor.com',
    'api.openai.com',
    'gpu-7.eu-west.internal:9000',
    'localhost:11434',
    '10.0.0.7',
    '192.168.1.10:8000',
    '2001:db8::7',
    '[fe80::1]:443',
    '::1',
    'd41d8cd98f00b204e9800998ecf8427e',
    '123e4567-e89b-12d3-a456-426614174000',
    'Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MEFCQ0RFRg=='
  ]
  for (const leak of leaks) {
    const error = await status(400,
      openai(`The field top_k is wrong (${leak}) here.`, null, 'invalid_request_error', leak))
    t.equal(error.row, 'invalid_request', leak)
    t.match(error.message, /^The field top_k is wrong \(.*redacted.*\) here\.$/, error.message)
    t.notOk(error.message.includes(leak) || error.param!.includes(leak), leak)
    for (const part of leak.split(/[\s:/@.]+/).filter((word) => word.length > 9)) {
      t.notOk(error.message.includes(part), `${part} of ${leak}`)
    }
  }
})

t.test('what helps stays: places in the body, ids of the conversation, names of fields', async (t) => {
  const kept = [
    'messages.0.content.1.text: text content blocks must be non-empty',
    'messages.3: `tool_use` ids were found without `tool_result` blocks: toolu_01A09q90qw90lq917835lq9, toolu_bdrk_01A09q90qw90lq917835lq9AbCd',
    "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    'anthropic-version: "2023-06-01" and context_management.clear_tool_uses_20250919_beta_header: Extra inputs are not permitted',
    'temperature: 1.5 is above 1 at 12:30:45',
    'the organization-wide key-value user-provided settings, e.g. this one, are std::vector'
  ]
  for (const sentence of kept) t.equal((await status(400, anthropic(sentence))).message, sentence)
})

t.test('the words of an upstream are one short line', async (t) => {
  const long = await status(400, anthropic('word\n\u0000'.repeat(5000)))
  t.ok(long.message.length <= 1001)
  t.match(long.message, /^word word .* word…$/)
  t.equal((await status(400, anthropic('x'.repeat(60_000)))).message, '…', 'a word without an end may be half a key')
  t.equal(scrub(`x ${'y'.repeat(4000)}${UPSTREAM_KEY}`, [UPSTREAM_KEY]).includes('plain'), false)
})

t.test('what a terminal would obey is no part of a text', (t) => {
  t.equal(scrub('one\u001b[2J two\u009b2J\r\nthree\u0085four\u007f', []), 'one [2J two 2J three four')
  t.end()
})

t.test('no text makes the patterns run for ever', async (t) => {
  const pieces = ['a.', ':', '-', 'a', '::', 'sk-', 'org-', 'http://', '@', 'a@a.', 'model: ', '0.', 'violates ',
    'image ', '. ', 'input tokens ', 'no', 'user-a']
  for (const piece of pieces) {
    t.equal((await status(400, anthropic(piece.repeat(64 * 1024 / piece.length) + '!'))).status, 400, piece)
  }
})

t.test('the cause is kept for the log, and is no part of what the client reads', async (t) => {
  const error = await status(401, anthropic('invalid x-api-key sk-ant-api03-secret', 'authentication_error'))
  t.match(error.cause, { kind: 'status', status: 401 })
  t.match(error.message, /provider failed/)
})

t.test('onError shapes by the style of the route, and says what was charged', async (t) => {
  const messages = await tried()
  const shape = (asked: Exchange, error: GatewayError): unknown =>
    asked.route.hooks.onError[0]!.call(error, asked, { kind: 'failed', error })
  const error = new GatewayError('model_overloaded', { retryAfter: 9 })
  t.match(shape(messages, error), {
    status: 503,
    headers: { 'retry-after': '9' },
    body: { type: 'error',
      error: { type: 'overloaded_error', charged_usd: '0', details: { error_code: 'model_overloaded' } },
      request_id: messages.id }
  })
  messages.set(Charge, { nanos: 12_345_000n, usage: noUsage, source: 'provider' })
  t.match(shape(messages, error), { body: { error: { charged_usd: '0.012345' } } })
  const chat = exchange(on, { method: 'GET', path: '/v1/models' })
  t.match(shape(chat, error), {
    body: {
      error: { code: 'model_overloaded', type: 'overloaded_error', param: null, charged_usd: '0', request_id: chat.id }
    }
  })
})
