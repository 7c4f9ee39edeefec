// Every error that a client can get: one table of codes, and the error that carries one.
// No status and no code for clients stands outside this file (src/README.md#error-shapes); a place that knows more says
// a more precise sentence.

export type ErrorType =
  | 'invalid_request_error' | 'authentication_error' | 'billing_error' | 'permission_error' | 'not_found_error'
  | 'request_too_large' | 'rate_limit_error' | 'api_error' | 'overloaded_error'

interface ErrorEntry {
  readonly status: number
  readonly type: ErrorType
  /** the client's `code`, where it is not the row's name */
  readonly code?: string
  /** seconds; on every 429 and 503 (src/README.md#retry-after) */
  readonly retryAfter?: number
  /** another target may succeed: the core may try the next attempt */
  readonly retryable?: true
  /**
   * what happened and what to do, in plain words; `{wait}` is replaced by the seconds of Retry-After, for which a
   * stream has no header
   */
  readonly message: string
}

export const catalogue = {
  bad_request: { status: 400, type: 'invalid_request_error',
    message: 'The request could not be read. Send a JSON object in UTF-8.' },
  method_not_allowed: { status: 405, code: 'bad_request', type: 'invalid_request_error',
    message: 'This address does not take that method. The Allow header lists those it takes.' },
  request_timeout: { status: 408, code: 'bad_request', type: 'invalid_request_error',
    message: 'The request did not arrive in time. Send it again on a new connection.' },
  upgrade_refused: { status: 426, code: 'bad_request', type: 'invalid_request_error',
    message: 'This address does not take WebSocket connections. Send a plain HTTP request.' },
  headers_too_large: { status: 431, code: 'bad_request', type: 'invalid_request_error',
    message: 'The request headers are larger than 64 KiB, or more than 1000. Send fewer or shorter ones.' },
  model_required: { status: 400, type: 'invalid_request_error',
    message: 'The field "model" is missing or empty. GET /v1/models lists the models of your key.' },
  invalid_request: { status: 400, type: 'invalid_request_error',
    message: 'The request is not valid. Compare it with the documentation of the API.' },
  channel_unknown: { status: 400, code: 'channel_not_allowed', type: 'invalid_request_error',
    message: 'There is no such channel. Ask for "premium" or "cheap".' },
  model_not_found: { status: 400, type: 'invalid_request_error',
    message: 'There is no such model. GET /v1/models lists the models of your key.' },
  context_length_exceeded: { status: 400, type: 'invalid_request_error',
    message: 'The prompt is too long for this model. Shorten it or choose a model with a larger context.' },
  previous_response_not_found: { status: 400, type: 'invalid_request_error',
    message: 'There is no such response here. Send the whole conversation as "input", without previous_response_id.' },
  item_not_found: { status: 400, type: 'invalid_request_error',
    message: 'There is no such item here. Send the items themselves as "input", and "store": false.' },
  image_input_not_supported: { status: 400, type: 'invalid_request_error',
    message: 'This model does not accept images. Remove them or choose a model that does.' },
  content_policy_violation: { status: 400, type: 'invalid_request_error',
    message: 'The request was refused because of its content. Change it; the same request will be refused again.' },
  invalid_state: { status: 400, type: 'invalid_request_error',
    message: 'This is not possible in the present state. Ask for the state first.' },
  authentication_error: { status: 401, type: 'authentication_error',
    message:
      'The API key is wrong, frozen or deleted. Send a valid one as "x-api-key: KEY" or "Authorization: Bearer KEY".' },
  unauthorized: { status: 401, type: 'authentication_error',
    message: 'The API key is wrong, frozen or deleted. Send a valid one as "Authorization: Bearer KEY".' },
  insufficient_quota: { status: 402, type: 'billing_error',
    message: 'The balance is used up. Add credit to the account.' },
  account_frozen: { status: 402, type: 'billing_error',
    message: 'The account is suspended. Its owner can find out why from the operator.' },
  model_not_in_channel: { status: 403, type: 'permission_error',
    message:
      'No channel that this key may use sells this model. Choose another model, ' +
        'or allow the key a channel that sells it.' },
  channel_not_allowed: { status: 403, type: 'permission_error',
    message:
      'The routing mode of this key wants a channel that the key may not use. ' +
        'Change its routing_mode or its channels.' },
  fallback_not_allowed: { status: 403, type: 'permission_error',
    message:
      'The channel failed, and the account does not allow falling back to another. Try again later, ' +
        'or set allow_fallback.' },
  ip_not_allowed: { status: 403, type: 'permission_error',
    message: 'This key may not be used from your network address. Allow it, or use another key.' },
  origin_not_allowed: { status: 403, type: 'permission_error',
    message: 'This key may not be used from this web origin. Allow it, or use another key.' },
  client_not_allowed: { status: 403, type: 'permission_error',
    message: 'This key may not be used with this client. Allow it, or use another key.' },
  model_not_allowed: { status: 403, type: 'permission_error',
    message: 'This key may not use this model. GET /v1/models lists the models of your key.' },
  not_found: { status: 404, type: 'not_found_error',
    message: 'There is nothing at this address. Check the path; the API lives under /v1.' },
  request_too_large: { status: 413, type: 'request_too_large',
    message: 'The request body is too large. Send a smaller one.' },
  range_not_satisfiable: { status: 416, code: 'invalid_request', type: 'invalid_request_error',
    message: 'There is nothing in the range that was asked for. The header Content-Range says how long the whole is.' },
  expectation_failed: { status: 417, code: 'bad_request', type: 'invalid_request_error',
    message:
      'The header Expect wants something that is not known here. Leave it out, or send "Expect: 100-continue".' },
  rate_limited: { status: 429, type: 'rate_limit_error', retryAfter: 1,
    message: 'Too many requests with this key. Try again in {wait}.' },
  family_rate_limited: { status: 429, type: 'rate_limit_error', retryAfter: 1,
    message: 'Too many requests with this key for this family of models. Try again in {wait}.' },
  org_queue_full: { status: 429, type: 'rate_limit_error', retryAfter: 1,
    message: 'Too many requests of this key are running. Wait until one of them ends.' },
  queue_full: { status: 429, type: 'rate_limit_error', retryAfter: 1,
    message: 'The service is busy. Try again in {wait}.' },
  queue_timeout: { status: 429, type: 'rate_limit_error', retryAfter: 2,
    message: 'The service was busy for too long. Try again in {wait}.' },
  low_balance: { status: 429, type: 'rate_limit_error', retryAfter: 1,
    message:
      'The balance is almost used up, so requests run one at a time. Wait until the running one ends, or add credit.' },
  server_error: { status: 500, type: 'api_error',
    message: 'The gateway failed on this request. Try again; if it persists, report the request id.' },
  upstream_error: { status: 502, code: 'server_error', type: 'api_error', retryable: true,
    message: 'The model\'s provider failed on this request. Try again in a second.' },
  empty_response: { status: 502, type: 'api_error', retryable: true,
    message: 'The model gave an empty answer. Try again.' },
  model_overloaded: { status: 503, type: 'overloaded_error', retryAfter: 2, retryable: true,
    message: 'The model is overloaded. Try again in {wait}.' },
  model_unavailable: { status: 503, type: 'api_error', retryAfter: 5,
    message:
      'The cheap channel cannot generate now. Nothing was charged. Try again later or use a key in another routing ' +
        'mode.' },
  maintenance: { status: 503, type: 'api_error', retryAfter: 60,
    message: 'This part of the service is under maintenance. Try again in {wait}.' },
  auth_unavailable: { status: 503, type: 'api_error', retryAfter: 2,
    message: 'Keys cannot be checked at this moment. Your key may be fine: try again in {wait}.' },
  service_unavailable: { status: 503, type: 'api_error', retryAfter: 2,
    message: 'The service is unavailable at this moment. Try again in {wait}.' },
  channel_unavailable: { status: 503, type: 'api_error', retryAfter: 30,
    message: 'The channel is switched off, and no other may serve this request. Try again in {wait}.' },
  // Agents on chat completions have no status in the middle of an answer, and decide by words whether to ask again:
  // Continue by "premature end", opencode by "retry your request".
  upstream_stream_interrupted: { status: 502, type: 'api_error',
    message: 'Premature end: the answer was cut off by the model\'s provider and is unfinished. Retry your request.' },
  stream_incomplete: { status: 502, type: 'api_error',
    message: 'Premature end: the answer ended early and is unfinished. Retry your request.' },
  /** never sent, because the client is gone; it names the outcome in log and metrics */
  client_closed: { status: 499, type: 'api_error', message: 'The client closed the connection.' }
} as const satisfies Record<string, ErrorEntry>

export type ErrorCode = keyof typeof catalogue

export interface ErrorOptions {
  /**
   * replaces the table's sentence; must say what happened and what to do, and hold no secret of the gateway or of an
   * upstream
   */
  readonly message?: string
  readonly cause?: unknown
  /** another attempt may succeed; default: the table's */
  readonly retryable?: boolean
  /**
   * replaces the table's: an answer that was cut because the model is overloaded has this type
   * (src/README.md#error-in-stream)
   */
  readonly type?: ErrorType
  /** JSON path of the field that is wrong, such as "messages[0].role" */
  readonly param?: string
  /**
   * code of the vendor of the messages style for this very case: `error_code` there, in the place of the gateway's,
   * where its SDKs act on it
   */
  readonly vendorCode?: string
  /** seconds until a retry can succeed; default: the table's */
  readonly retryAfter?: number
  /** false: the same request will fail again for longer than clients wait; default: the status decides */
  readonly repeatable?: boolean
  /** more response headers, such as Allow */
  readonly headers?: Readonly<Record<string, string>>
}

/** Statuses below 500 after which the same request may succeed. */
const REPEATED: ReadonlySet<number> = new Set([408, 409, 429])

const brand = Symbol.for('model-gateway.GatewayError')

/** The only error that a client can see. Everything else that is thrown becomes one by `toGatewayError`. */
export class GatewayError extends Error {
  readonly [brand] = true
  /** name of its row in the catalogue */
  readonly row: ErrorCode
  readonly status: number
  readonly type: ErrorType
  /** the client's `code` */
  readonly code: string
  readonly retryable: boolean
  readonly param: string | null
  readonly vendorCode: string | undefined
  /** whole seconds from 1 to 60, on every 429 and 503 (src/README.md#retry-after) */
  readonly retryAfter: number | undefined
  /** the same request may succeed soon: clients repeat it by themselves */
  readonly repeatable: boolean
  readonly headers: Readonly<Record<string, string>>

  constructor (row: ErrorCode, options: ErrorOptions = {}) {
    const entry: ErrorEntry = catalogue[row]
    const seconds = entry.retryAfter === undefined
      ? undefined
      : Math.min(60, Math.max(1, Math.ceil(options.retryAfter ?? entry.retryAfter)))
    super((options.message ?? entry.message).replace('{wait}', seconds === 1 ? 'a second' : `${seconds} seconds`),
      options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'GatewayError'
    this.row = row
    this.status = entry.status
    this.type = options.type ?? entry.type
    this.code = entry.code ?? row
    this.retryable = options.retryable ?? entry.retryable ?? false
    this.param = options.param ?? null
    this.vendorCode = options.vendorCode
    this.retryAfter = seconds
    this.repeatable = options.repeatable ?? (entry.status >= 500 || REPEATED.has(entry.status))
    this.headers = options.headers ?? {}
  }
}

/** By a brand, not instanceof: a user's plugin may hold another copy of this module. */
export function isGatewayError (value: unknown): value is GatewayError {
  return typeof value === 'object' && value !== null && brand in value
}

/** Turns any thrown value into an error of the catalogue, with the value as its `cause`, for the log only. */
export function toGatewayError (thrown: unknown): GatewayError {
  return isGatewayError(thrown) ? thrown : new GatewayError('server_error', { cause: thrown })
}
