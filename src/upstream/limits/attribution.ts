// Whose fault a failure is: only what an upstream has caused may count against it (src/README.md#blame).
import type { GatewayError } from '../../errors.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
import { readRetryAfter } from './retry-after.ts'
import { asRecord, printed } from '../../base/json.ts'

/** `pause`: milliseconds for which the upstream does not want to be asked; undefined: it does not say. */
export type Blame =
  /** it is down, slow, or speaks nonsense */
  | { readonly who: 'target', readonly pause?: number | undefined }
  /** the credential has used up its rate */
  | { readonly who: 'credential', readonly why: 'limited', readonly pause?: number | undefined }
  /** the credential may not: anything, or `forbidden` only this */
  | { readonly who: 'credential', readonly why: 'refused' | 'forbidden' }
  /** the request's, or the configuration's */
  | { readonly who: 'nobody' }

const NOBODY: Blame = { who: 'nobody' }
const TARGET: Blame = { who: 'target' }

const LONGEST_PAUSE_MS = 5 * 60_000

/** Of a 403: some vendors say so where others answer 400. What a client has written must not put a credential aside. */
const ABOUT_CONTENT = /moderat|flagged|content[ _-]?(?:policy|filter)|safety/i
const READ = 8000

/**
 * @param error as it was named for the client: it knows what vendors' words mean
 * @param now milliseconds since the epoch
 */
export function blameFor (failure: UpstreamFailure, error: GatewayError, now: () => number): Blame {
  if (failure.kind === 'error_event') {
    if (isRateLimit(failure.body)) return { who: 'credential', why: 'limited' }
    return error.status >= 500 ? TARGET : NOBODY
  }
  // A prompt can bring a model to say nothing: a client must not close a target to all others with it.
  if (failure.kind === 'empty') return failure.isBlank === true ? TARGET : NOBODY
  if (failure.kind !== 'status') return TARGET
  const { status, headers, body } = failure
  switch (status) {
    case 401:
    case 402:
      return { who: 'credential', why: 'refused' }
    case 403:
      return !isApiError(body) || ABOUT_CONTENT.test(printed(body).slice(0, READ))
        ? NOBODY
        : { who: 'credential', why: 'forbidden' }
    case 429:
      return { who: 'credential', why: 'limited', pause: pauseIn(headers, now) }
    case 503:
    case 529: return { who: 'target', pause: pauseIn(headers, now) }
  }
  return mayPass(status) ? TARGET : NOBODY
}

/**
 * Whether the same target may do better in a moment. A timeout has taken its time already, who is refused stays so, and
 * an empty answer was paid for: the prompt that had it would have it again.
 */
export function isPassing (failure: UpstreamFailure, error: GatewayError): boolean {
  switch (failure.kind) {
    case 'status': return failure.status === 429 || mayPass(failure.status)
    case 'error_event': return error.status >= 500
    case 'empty': return failure.isBlank === true
    case 'first_byte_timeout':
    case 'idle_timeout':
    case 'total_timeout': return false
    default: return true
  }
}

/**
 * Whether it surely works on nothing: the request did not arrive, or was turned away for its rate. Behind a 500 or a
 * 503 a task may have been made: of a database that was slow, or of a proxy that lost the answer.
 */
export function isTurnedAway (failure: UpstreamFailure): boolean {
  return failure.kind === 'refused' || failure.kind === 'connect_timeout' ||
    (failure.kind === 'status' && failure.status === 429)
}

/**
 * Whether a status says something of the request that a client has made up, and of nothing else: a path, a method, a
 * condition, another address. Not of our account there, of its rate, or of how the upstream fares; with 400, 413 and
 * 422 vendors may mean those too, and only their words tell.
 */
export function isOfRequest (status: number): boolean {
  return status >= 300 && status < 500 && ![400, 401, 402, 403, 407, 408, 413, 422, 429].includes(status)
}

/**
 * Statuses of servers, and of proxies before them, that are not there for a moment; 52x are Cloudflare's, 529 is
 * Anthropic's.
 */
function mayPass (status: number): boolean {
  return status === 408 || (status >= 500 && status <= 504 && status !== 501) || (status >= 520 && status <= 529)
}

function pauseIn (headers: Parameters<typeof readRetryAfter>[0], now: () => number): number | undefined {
  const seconds = readRetryAfter(headers, now)
  return seconds === undefined || seconds <= 0 ? undefined : Math.min(LONGEST_PAUSE_MS, seconds * 1000)
}

/** As messages style and chat style say it within a stream. */
function isRateLimit (body: unknown): boolean {
  const { error } = asRecord(body)
  const { type, code, status } = asRecord(error ?? body)
  return [type, code, status].some((word) =>
    word === 429 || (typeof word === 'string' && /^(?:429|rate_limit\w*)$/.test(word))
  )
}

/** In one of the shapes of APIs. The page of a firewall is none: what is in a prompt can set that off. */
function isApiError (body: unknown): boolean {
  const { error, type, code, status } = asRecord(body)
  return (typeof error === 'object' && error !== null) ||
    [type, code, status].some((word) => typeof word === 'string' || typeof word === 'number')
}
