// The error of a response that failed while it was streamed, with the codes that its clients act on.
import { asRecord, type Json } from '../../src/base/json.ts'
import type { ErrorReply } from '../../src/core/reply.ts'
import { type ErrorCode, GatewayError, isGatewayError } from '../../src/errors.ts'

/** Seconds, where nothing says when the model can be asked again. */
const WAIT_S = 2

/** What a vendor may break off for, and would again: Codex asks again after every code but a few, which have these. */
const FINAL: ReadonlySet<ErrorCode> = new Set(['content_policy_violation', 'context_length_exceeded'])

/**
 * The error as the plugins have shaped it. An overload is `rate_limit_exceeded` with the seconds in its sentence: of
 * all errors in a stream Codex waits for that one alone, and asks again at once after others.
 */
export function failureOf (error: GatewayError, { body }: ErrorReply): Json {
  const shaped = asRecord(asRecord(body).error)
  const message = typeof shaped.message === 'string' ? shaped.message : error.message
  if (isGatewayError(error.cause) && FINAL.has(error.cause.row)) {
    const { type, code, message: sentence } = new GatewayError(error.cause.row)
    return { ...shaped, type, code, message: sentence + (ID.exec(message)?.[0] ?? '') }
  }
  const code = typeof shaped.code === 'string' ? shaped.code : error.code
  if (error.type !== 'overloaded_error' && error.status !== 429) return { ...shaped, code, message }
  return { ...shaped, code: 'rate_limit_exceeded', message: withWait(message, waitOf(error)) }
}

/** At the end of a sentence. */
const ID = / Request ID: \S+$/

function waitOf ({ retryAfter, cause }: GatewayError): number {
  return retryAfter ?? (isGatewayError(cause) ? cause.retryAfter : undefined) ?? WAIT_S
}

/** The sentence with the wait in the form that Codex reads, before the request id at its end. */
function withWait (message: string, seconds: number): string {
  const [, sentence, id] = /^([^]*?)( Request ID: \S+)?$/.exec(message)!
  const said = sentence!.replace(/ ?Try again in [^.]*\.$/, '')
  return `${said} Please try again in ${seconds}s.${id ?? ''}`
}
