// error-normalize: the bottom of the list. Names every failure of an upstream by a row of the catalogue, and shapes
// every error for the client. An upstream's message reaches a client only from here, and only where the client can act
// on it.
import { type ErrorCode, GatewayError } from '../../src/errors.ts'
import { shapeError } from '../../src/protocols/error-shape.ts'
import { Charge, Model } from '../../src/core/facts.ts'
import type { Exchange } from '../../src/core/exchange.ts'
import { formatUsd } from '../../src/money/nanos.ts'
import { definePlugin, type UpstreamFailure } from '../../src/core/plugin.ts'
import { scrub } from '../../src/base/redact.ts'
import { readRetryAfter } from '../../src/upstream/limits/retry-after.ts'
import { secretsOf } from '../../src/core/upstream-secrets.ts'
import { asRecord } from '../../src/base/json.ts'

export const errorNormalize = definePlugin<Record<never, never>>({
  name: 'error-normalize',
  readsInSteps: true,
  always: true,
  // Reads Charge and Model by `find`: an error may come before either is written.
  create (_options, config, { now }) {
    const secrets = new Map(Object.entries(config.upstreams).map(([name, upstream]) => [name, secretsOf(upstream)]))
    return {
      onUpstreamFailure: (failure, exchange, upstream) =>
        name(failure, now, (text) => scrub(withPublicId(text, exchange), secrets.get(upstream) ?? [])),
      onError (error, exchange) {
        const charge = exchange.find(Charge)
        return shapeError(error, exchange.route.style, exchange.id,
          charge === undefined ? '0' : formatUsd(charge.nanos))
      }
    }
  }
})

/** The parts of an upstream's error, whichever vendor's. */
interface VendorError {
  /** type and code, lower case */
  readonly words: readonly string[]
  readonly text: string
  readonly param: string | undefined
  /** of an error in a stream, where vendors send it as a number: as `code`, or as `status` */
  readonly status: number | undefined
}

type Clean = (text: string) => string

/**
 * Names a failure, which becomes the cause, for the log. Before the commit all failures are retryable, except those
 * that the request itself has caused (src/README.md#channels).
 */
function name (failure: UpstreamFailure, now: () => number, clean: Clean): GatewayError {
  switch (failure.kind) {
    case 'status': return nameStatus(failure, now, clean)
    case 'error_event': return nameEvent(failure, clean)
    case 'empty': return new GatewayError('empty_response', { cause: failure })
    case 'incomplete': return new GatewayError('stream_incomplete', { cause: failure, retryable: true })
    default: return new GatewayError('upstream_error', { cause: failure })
  }
}

function nameStatus (failure: UpstreamFailure & { kind: 'status' }, now: () => number, clean: Clean): GatewayError {
  const { status, headers, body } = failure
  return nameByStatus(status, read(body), failure, () => readRetryAfter(headers, now), clean)
}

function nameByStatus (
  status: number,
  said: VendorError,
  failure: UpstreamFailure,
  retryAfter: () => number | undefined,
  clean: Clean
): GatewayError {
  switch (status) {
    case 400:
    case 422: return nameRefusal(said, failure, clean)
    // 413 comes from a proxy as often as from the API, as HTML: the status alone decides.
    case 413:
      return isAbout(said, CONTEXT)
        ? nameRefusal(said, failure, clean)
        : new GatewayError('request_too_large', { cause: failure })
    case 429:
    case 503:
    case 529: return overloaded(failure, retryAfter())
    // 401, 402, 403: the operator's credentials and bill. 404: the configuration. Never passed on
    // (src/README.md#own-words).
    default:
      return isAbout(said, OVERLOAD) && status >= 500
        ? overloaded(failure, retryAfter())
        : new GatewayError('upstream_error', { cause: failure })
  }
}

function nameEvent (failure: UpstreamFailure & { kind: 'error_event' }, clean: Clean): GatewayError {
  const said = read(failure.body)
  if (said.status !== undefined) return nameByStatus(said.status, said, failure, () => undefined, clean)
  if (isAbout(said, OVERLOAD)) return overloaded(failure, undefined)
  if (said.words.includes('request_too_large')) return new GatewayError('request_too_large', { cause: failure })
  if (said.words.includes('invalid_request_error')) return nameRefusal(said, failure, clean)
  return new GatewayError('upstream_error', { cause: failure })
}

function overloaded (cause: UpstreamFailure, retryAfter: number | undefined): GatewayError {
  return new GatewayError('model_overloaded', { cause, ...(retryAfter !== undefined && { retryAfter }) })
}

/**
 * The upstream refused the request itself. Its message is passed on, because it helps: Claude Code computes with the
 * numbers in one (src/README.md#own-words).
 */
function nameRefusal (said: VendorError, cause: UpstreamFailure, clean: Clean): GatewayError {
  // HTML, no text, or a fault that the operator must mend although it came as a 400.
  if (said.text === '' || isAbout(said, OPERATOR)) return new GatewayError('upstream_error', { cause })
  const code = classify(said)
  if (code === 'image_input_not_supported' || code === 'content_policy_violation') {
    return new GatewayError(code, { cause })
  }
  const message = clean(said.text)
  const param = said.param === undefined ? '' : clean(said.param)
  return new GatewayError(code, { cause, ...(message !== '' && { message }), ...(param !== '' && { param }) })
}

function classify (said: VendorError): ErrorCode {
  if (isAbout(said, CONTEXT)) return 'context_length_exceeded'
  if (isAbout(said, POLICY)) return 'content_policy_violation'
  if (
    isAbout(said, IMAGE) && !/format|media[ _]type|mime|\bsize\b|dimension|pixel/i.test(said.text)
  ) return 'image_input_not_supported'
  return 'invalid_request'
}

interface Topic {
  readonly words: readonly string[]
  readonly text: RegExp
}

/** Joins patterns into one, without regard to case. */
function anyOf (...patterns: readonly RegExp[]): RegExp {
  return new RegExp(patterns.map(({ source }) => source).join('|'), 'i')
}

const CONTEXT: Topic = {
  words: ['context_length_exceeded'],
  text: anyOf(
    /context[ _-]?(?:length|window|limit|size)|maximum context|(?:prompt|input) is too long/,
    /(?:input|prompt) (?:token count|tokens|length)[^.]{0,60}exceed|too many (?:input |prompt )?tokens/
  )
}
const POLICY: Topic = {
  words: ['content_policy_violation', 'content_filter', 'moderation_blocked', 'data_inspection_failed'],
  text: anyOf(
    /content[ _-]?(?:policy|filter|management polic|moderation)|usage polic/,
    /safety (?:system|polic|filter|guideline)|violat\w{0,5}\b[^.]{0,60}polic|flagged (?:as|for|by)\b/
  )
}
const IMAGE: Topic = {
  words: ['image_input_not_supported'],
  text: anyOf(
    /\b(?:images?|vision|multimodal)\b[^.]{0,60}(?:not supported|unsupported|n't supported|not enabled)/,
    /(?:not|n't) (?:support|accept)\b[^.]{0,40}\b(?:images?|vision|multimodal)\b/,
    /image_url is only supported/
  )
}
const OPERATOR: Topic = {
  words: ['insufficient_quota', 'billing_hard_limit_reached', 'billing_error', 'invalid_api_key', 'api_key_invalid',
    'authentication_error', 'permission_error', 'account_deactivated', 'model_not_found', 'not_found_error'],
  text: anyOf(
    /credit balance|billing (?:hard )?limit|(?:invalid|incorrect|expired|missing) (?:x-)?api[ _-]?key/,
    /api[ _-]?key (?:is |was |has )?(?:not|in)[ -]?(?:valid|found)|api[ _-]?key expired/,
    /insufficient (?:quota|funds|balance)/,
    /\byour (?:account|project|workspace|organi[sz]ation|plan|subscription)\b/,
    /organi[sz]ation must be verified|unknown model/,
    /\bmodel:? ?[`'"]?[\w./:-]{1,80}[`'"]? (?:does not exist|not found|is not found)/
  )
}
const OVERLOAD: Topic = {
  words: ['overloaded_error', 'overloaded', 'engine_overloaded', 'rate_limit_error', 'rate_limit_exceeded',
    'rate_limit_reached', 'resource_exhausted', 'server_is_overloaded', 'slow_down'],
  text: /\boverloaded\b/i
}

function isAbout ({ words, text }: VendorError, topic: Topic): boolean {
  return topic.words.some((word) => words.includes(word)) || topic.text.test(text)
}

/**
 * Reads `{error: {type, code, message}}` of Anthropic and OpenAI, `{message}`, `{detail}` of FastAPI (a text, or a list
 * of mistakes) and plain text; nothing of HTML.
 */
function read (body: unknown): VendorError {
  if (typeof body === 'string') {
    return { words: [], text: /^\s*</.test(body) ? '' : body.trim().slice(0, LONGEST_READ), param: undefined,
      status: undefined }
  }
  const outer = asRecord(body)
  const inner = typeof outer.error === 'object' ? asRecord(outer.error) : outer
  const details = asRecord(inner.details)
  const texts = [inner.message, outer.error, outer.message,
    Array.isArray(outer.detail) ? mistakes(outer.detail) : outer.detail]
  return {
    words: [inner.type, inner.code, inner.status, details.error_code]
      .filter((word) => typeof word === 'string')
      .map((word) => word.toLowerCase()),
    text: (texts.find((text) => typeof text === 'string')?.trim() ?? '').slice(0, LONGEST_READ),
    param: typeof inner.param === 'string' ? inner.param : undefined,
    status: [inner.code, inner.status].find((code) => typeof code === 'number')
  }
}

/**
 * Reads `[{loc: ['body', 'input'], msg: 'Field required'}]`, each with its path: FastAPI's mistakes in the shape of a
 * body.
 */
function mistakes (list: readonly unknown[]): string {
  return list.slice(0, MOST_MISTAKES).map(asRecord).filter(({ msg }) => typeof msg === 'string').map(({ loc, msg }) => {
    const place = Array.isArray(loc)
      ? loc.filter((step) => typeof step === 'string' || typeof step === 'number').join('.')
      : ''
    return place === '' ? msg : `${place}: ${msg}`
  }).join('; ')
}

const MOST_MISTAKES = 5

/** Characters that the patterns read: an upstream may send 64 KiB. */
const LONGEST_READ = 8000

/** Replaces the upstream's id of the model by the public one, which the client knows (src/README.md#public-model). */
function withPublicId (text: string, exchange: Exchange): string {
  const publicId = exchange.find(Model)?.id
  const upstreamId = exchange.lastAttempt?.model
  if (publicId === undefined || upstreamId === undefined || publicId === upstreamId) return text
  return text.replace(new RegExp(`(?<![\\w-])${upstreamId.replace(/[^\w]/g, '\\$&')}(?![\\w-])`, 'g'), () => publicId)
}
