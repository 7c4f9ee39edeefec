// Attribution of failures: only what an upstream has caused may count against it (src/README.md#blame).
import type { GatewayError } from '../../errors.ts'
import type { CredentialFault } from '../../core/credential-fault.ts'
import type { UpstreamFailure } from '../../core/plugin.ts'
import { readRetryAfter } from './retry-after.ts'
import { readError, type ToldFailure, type VendorError } from '../../core/vendor-error.ts'
import { printed } from '../../base/json.ts'

/** `pause`: milliseconds of the upstream's retry-after; undefined: it sent none. */
export type Blame =
  /** it is down, slow, or sends malformed answers */
  | { readonly who: 'target', readonly pause?: number | undefined }
  /** the credential has used up its rate */
  | { readonly who: 'credential', readonly why: 'limited', readonly pause?: number | undefined }
  /** the credential is refused: for everything, or `forbidden` only for this model */
  | { readonly who: 'credential', readonly why: CredentialFault | 'forbidden' }
  /** the request's fault, or the configuration's */
  | { readonly who: 'nobody' }

const NOBODY: Blame = { who: 'nobody' }
const TARGET: Blame = { who: 'target' }

const LONGEST_PAUSE_MS = 5 * 60_000

/**
 * Matches messages of a 403 about content, where other vendors answer 400: what a client has written must not put a
 * credential aside.
 */
const ABOUT_CONTENT = /moderat|flagged|content[ _-]?(?:policy|filter)|safety/i
const READ = 8000

/**
 * @param error as named for the client, with the meaning of the vendor's message
 * @param now milliseconds since the epoch
 */
export function blameFor (failure: UpstreamFailure, error: GatewayError, now: () => number): Blame {
  // A prompt can make a model answer nothing, or call a tool with nonsense: by it one client must not close a target to
  // all others.
  if (failure.kind === 'exhausted' || failure.kind === 'unusable') return NOBODY
  if (failure.kind === 'empty') return failure.isBlank === true ? TARGET : NOBODY
  if (failure.kind !== 'status' && failure.kind !== 'error_event') return TARGET
  const said = readError(failure)
  switch (said.status) {
    case 401: return { who: 'credential', why: 'bad_key' }
    case 402: return { who: 'credential', why: 'no_money' }
    case 403:
      return !said.isOfApi || ABOUT_CONTENT.test(printed(failure.body).slice(0, READ))
        ? NOBODY
        : { who: 'credential', why: 'forbidden' }
    case 429:
      return { who: 'credential', why: 'limited', pause: pauseIn(failure, said, now) }
    case 503:
    case 529: return { who: 'target', pause: pauseIn(failure, said, now) }
    case undefined: return error.status >= 500 ? TARGET : NOBODY
  }
  return mayPass(said.status) ? TARGET : NOBODY
}

/**
 * Whether a retry at the same target may succeed soon. Not after a timeout, which has taken its time already; not after
 * a refusal, which stays; and not after an empty answer, or one with a call that no client can run, which was paid for
 * and would come again for the same prompt.
 */
export function isPassing (failure: UpstreamFailure, error: GatewayError): boolean {
  switch (failure.kind) {
    case 'status':
    case 'error_event': {
      const { status, means } = readError(failure)
      return status === undefined ? error.status >= 500 : status === 429 || means === 'tool_use' || mayPass(status)
    }
    case 'empty': return failure.isBlank === true
    case 'exhausted':
    case 'unusable':
    case 'first_byte_timeout':
    case 'idle_timeout':
    case 'total_timeout': return false
    default: return true
  }
}

/**
 * Whether the upstream is certainly not executing the request: it did not arrive, or exceeded a rate limit. After a 500
 * or a 503 a task may exist: the database was slow, or a proxy lost the answer.
 */
export function isTurnedAway (failure: UpstreamFailure): boolean {
  return failure.kind === 'exhausted' || failure.kind === 'refused' || failure.kind === 'connect_timeout' ||
    (failure.kind === 'status' && failure.status === 429)
}

/**
 * Whether a status concerns only the client's own part of the request: its path, method, condition or address; not the
 * operator's account, its rate, or the upstream's health. With 400, 413 and 422 vendors may mean those too, and only
 * their messages tell.
 */
export function isOfRequest (status: number): boolean {
  return status >= 300 && status < 500 && ![400, 401, 402, 403, 407, 408, 413, 422, 429].includes(status)
}

/**
 * Whether a status is one of servers, or of proxies in front, that are unavailable for a moment; 52x are Cloudflare's,
 * 529 is Anthropic's.
 */
function mayPass (status: number): boolean {
  return status === 408 || (status >= 500 && status <= 504 && status !== 501) || (status >= 520 && status <= 529)
}

function pauseIn (failure: ToldFailure, said: VendorError, now: () => number): number | undefined {
  const seconds = readRetryAfter(failure.kind === 'status' ? failure.headers : {}, now) ?? said.retryAfter
  return seconds === undefined || seconds <= 0 ? undefined : Math.min(LONGEST_PAUSE_MS, seconds * 1000)
}
