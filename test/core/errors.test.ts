// The catalogue of errors, both shapes, and the table of src/endpoints/README.md.
import t from 'tap'
import { withErrorTable } from '../../src/tools/errors-table.ts'
import { catalogue, type ErrorCode, GatewayError, isGatewayError, toGatewayError } from '../../src/errors.ts'
import type { Style } from '../../src/core/style.ts'
import { chatStyle } from '../../src/protocols/chat.ts'
import { shapeError } from '../../src/protocols/error-shape.ts'
import { styles } from '../../src/protocols/index.ts'
import { messagesStyle } from '../../src/protocols/messages.ts'
import { responsesStyle } from '../../src/protocols/responses.ts'
import { createRequestId } from '../../src/base/request-id.ts'
import { SseDecoder } from '../../src/core/sse.ts'
import { errorPage } from '../support/goldens.ts'

const codes = (Object.keys(catalogue) as ErrorCode[])
const sent = codes.filter((code) => code !== 'client_closed')

/** HTTP status, what the client reads as code, type; as in the specification, not as in the code. */
const specified = [
  [400,
    'model_required bad_request invalid_request model_not_found context_length_exceeded image_input_not_supported content_policy_violation invalid_state channel_not_allowed previous_response_not_found item_not_found',
    'invalid_request_error'],
  [401, 'authentication_error unauthorized', 'authentication_error'],
  [402, 'insufficient_quota account_frozen', 'billing_error'],
  [403,
    'model_not_in_channel channel_not_allowed fallback_not_allowed ip_not_allowed origin_not_allowed client_not_allowed model_not_allowed',
    'permission_error'],
  [404, 'not_found', 'not_found_error'],
  [405, 'bad_request', 'invalid_request_error'],
  [408, 'bad_request', 'invalid_request_error'],
  [413, 'request_too_large', 'request_too_large'],
  [416, 'invalid_request', 'invalid_request_error'],
  [417, 'bad_request', 'invalid_request_error'],
  [426, 'bad_request', 'invalid_request_error'],
  [429, 'rate_limited family_rate_limited org_queue_full queue_full queue_timeout low_balance', 'rate_limit_error'],
  [431, 'bad_request', 'invalid_request_error'],
  [500, 'server_error', 'api_error'],
  [502, 'server_error empty_response upstream_stream_interrupted stream_incomplete', 'api_error'],
  [503, 'model_overloaded', 'overloaded_error'],
  [503, 'model_unavailable maintenance auth_unavailable service_unavailable channel_unavailable', 'api_error']
] as const

t.test('the catalogue is the table of the specification, no row more and none less', async (t) => {
  const expected = specified.flatMap(([status, names, type]) =>
    names.split(' ').map((code) => `${status} ${code} ${type}`)
  ).sort()
  const actual = sent.map((code) => new GatewayError(code)).map(({ status, code, type }) => `${status} ${code} ${type}`)
    .sort()
  const help = 'write the row of a new error below `specified` in test/core/errors.test.ts too'
  t.strictSame(actual.filter((row) => !expected.includes(row)), [], `in src/errors.ts alone: ${help}`)
  t.strictSame(expected.filter((row) => !actual.includes(row)), [], `in \`specified\` alone`)
  t.equal(actual.length, expected.length)
})

t.test('429 and 503 carry a Retry-After of 1 to 60 whole seconds, and nothing else does', async (t) => {
  for (const code of codes) {
    const error = new GatewayError(code)
    const header = shapeError(error, chatStyle, 'req_x').headers['retry-after']
    if (error.status === 429 || error.status === 503) t.match(header, /^([1-9]|[1-5]\d|60)$/, code)
    else t.equal(header, undefined, code)
  }
  for (const [given, expected] of [[0, '1'], [-5, '1'], [0.2, '1'], [1.01, '2'], [59.5, '60'], [61, '60'], [1e9,
    '60']] as const) {
    t.equal(
      shapeError(new GatewayError('rate_limited', { retryAfter: given }), messagesStyle, 'req_x').headers['retry-after'],
      expected
    )
  }
  t.equal(shapeError(new GatewayError('bad_request', { retryAfter: 5 }), chatStyle, 'req_x').headers['retry-after'],
    undefined)
})

t.test('401 says how to authenticate (RFC 9110 11.6.1), 405 keeps its Allow', async (t) => {
  t.equal(shapeError(new GatewayError('authentication_error'), messagesStyle, 'req_x').headers['www-authenticate'],
    'Bearer')
  t.equal(shapeError(new GatewayError('unauthorized'), chatStyle, 'req_x').headers['www-authenticate'], 'Bearer')
  t.strictSame(
    shapeError(new GatewayError('method_not_allowed', { headers: { allow: 'POST' } }), chatStyle, 'req_x').headers,
    { allow: 'POST', 'x-should-retry': 'false' }
  )
})

t.test('F9: every error says whether the same request may succeed, because SDKs and agents obey that', async (t) => {
  for (const code of codes) {
    const error = new GatewayError(code)
    const mayRetry = error.status >= 500 || [408, 409, 429].includes(error.status)
    for (const style of [messagesStyle, chatStyle]) {
      t.equal(shapeError(error, style, 'req_x').headers['x-should-retry'], String(mayRetry), code)
    }
  }
  t.equal(shapeError(new GatewayError('authentication_error'), messagesStyle, 'req_x').headers['x-should-retry'],
    'false', 'a wrong key stays wrong')
})

t.test('only what another target could do better is retryable', async (t) => {
  t.strictSame(codes.filter((code) => new GatewayError(code).retryable).sort(), ['empty_response', 'model_overloaded',
    'upstream_error'])
  t.equal(new GatewayError('stream_incomplete', { retryable: true }).retryable, true)
})

t.test('every error is whole in both formats, with the request id in its three places', async (t) => {
  const id = createRequestId()
  for (const code of codes) {
    const error = new GatewayError(code, { param: 'messages[0].role' })
    const chat = shapeError(error, chatStyle, id, '0.0125')
    t.strictSame(chat.body, {
      error: { message: `${error.message} Request ID: ${id}`, type: error.type, code: error.code,
        param: 'messages[0].role', charged_usd: '0.0125', request_id: id }
    })
    const messages = shapeError(error, messagesStyle, id, '0.0125')
    t.strictSame(messages.body, { type: 'error',
      error: { type: error.type, message: `${error.message} Request ID: ${id}`, charged_usd: '0.0125',
        details: { error_code: error.code } }, request_id: id })
    for (const { status } of [chat, messages]) { t.equal(status, error.status) }
  }
})

t.test('the suffix stands at the very end, once, whatever the sentence is', async (t) => {
  for (const message of ['Plain.', 'no full stop', '', 'with "quotes" and \u2028 and\nlines', 'A + B > C']) {
    for (const style of styles) {
      const { body, events } = shapeError(new GatewayError('invalid_request', { message }), style, 'req_abc')
      t.equal(textOf(body), `${message} Request ID: req_abc`)
      t.equal(textOf(events[0]!.json), `${message} Request ID: req_abc`)
    }
  }
})

t.test('it costs nothing unless it is said', async (t) => {
  for (const style of styles) {
    t.equal(
      (shapeError(new GatewayError('server_error'), style, 'x').body as { error: { charged_usd: string } }).error
        .charged_usd,
      '0'
    )
  }
})

t.test('in a stream: one error event for messages, an error object and [DONE] for chat, a failed response', async (t) => {
  const wire = (style: Style, code: ErrorCode): string =>
    Buffer.concat(shapeError(new GatewayError(code), style, 'req_abc').events.map(({ bytes }) => bytes)).toString()
  for (const code of sent) {
    const messages = new SseDecoder().push(Buffer.from(wire(messagesStyle, code)))
    t.equal(messages.length, 1)
    t.equal(messages[0]!.event, 'error')
    t.match(messages[0]!.json, { type: 'error', error: { details: { error_code: new GatewayError(code).code } },
      request_id: 'req_abc' })
    const chat = new SseDecoder().push(Buffer.from(wire(chatStyle, code)))
    t.equal(chat.length, 2)
    t.match(chat[0]!.json, { error: { code: new GatewayError(code).code, request_id: 'req_abc' } })
    t.strictSame([chat[0]!.event, chat[1]!.event, chat[1]!.data], ['', '', '[DONE]'])
    const responses = new SseDecoder().push(Buffer.from(wire(responsesStyle, code)))
    t.strictSame(responses.map(({ event }) => event), ['response.failed'])
    t.match(responses[0]!.json, { type: 'response.failed', response: { status: 'failed', output: [],
      error: { code: new GatewayError(code).code, request_id: 'req_abc' } } })
  }
  t.equal(wire(messagesStyle, 'stream_incomplete'), `event: error\ndata: ${JSON.stringify({ type: 'error', error: { type: 'api_error', message: `${catalogue.stream_incomplete.message} Request ID: req_abc`, charged_usd: '0', details: { error_code: 'stream_incomplete' } }, request_id: 'req_abc' })}\n\n`)
})

t.test('any thrown value becomes an error of the catalogue, and shows nothing of itself', async (t) => {
  for (const thrown of [new Error('secret'), 'secret', null, undefined, 0, { status: 401, message: 'secret' },
    Object.create(null)]) {
    const error = toGatewayError(thrown)
    t.match(error, { row: 'server_error', status: 500 })
    t.equal(error.cause, thrown)
    t.notMatch(JSON.stringify(shapeError(error, chatStyle, 'req_x')), /secret/)
  }
  const own = new GatewayError('low_balance')
  t.equal(toGatewayError(own), own)
  t.ok(isGatewayError(own))
  t.notOk(isGatewayError(new Error('x')))
})

t.test('each sentence says in plain words what happened and, where one can do something, what', async (t) => {
  for (const code of sent) {
    const { message } = new GatewayError(code)
    t.match(message, /^[A-Z].{15,200}[.]$/, code)
    t.notMatch(message, /upstream|undefined|null|\bundici\b|exception/i, code)
  }
})

t.test('the page of the API lists every error, and none that does not exist', async (t) => {
  const page = errorPage()
  t.equal(page.text, withErrorTable(page.text), `run "npm run goldens": it writes the table of ${page.path}`)
  t.throws(() => withErrorTable('# Errors'), /no table between/)
})

/** @param body of an error, or its event, which in responses style is that of a response */
function textOf (body: unknown): string {
  const { response, error } = body as Partial<Record<'response' | 'error', unknown>>
  return response === undefined ? (error as { message: string }).message : textOf(response)
}
