// Messages of upstreams about their failures: for the operator, in the log and in the admin API, where a client may not
// read them.
import type { Exchange } from './exchange.ts'
import { printed } from '../base/json.ts'
import { nameCause } from './name-cause.ts'
import type { UpstreamFailure } from './plugin.ts'
import type { FailedAttempt } from './upstream.ts'
import { scrubStart } from '../base/redact.ts'
import { secretsOf } from './upstream-secrets.ts'

/** Characters that are kept of a message. */
const KEPT = 300
/** Most failures that are kept: a reader learns no more from further ones. */
const MOST = 20
/** Characters that are read of a page. */
const READ = 8000

export function noteFailure (failure: UpstreamFailure, exchange: Exchange, upstream: string): void {
  const { record: { failures }, snapshot, route, lastAttempt, credential } = exchange
  const config = snapshot.upstreams.get(upstream)?.config
  if (config === undefined) return
  const attempt: FailedAttempt = {
    at: snapshot.services.now(),
    request_id: exchange.id,
    upstream,
    model: lastAttempt?.model ?? route.name,
    credential,
    cause: nameCause(failure) ?? failure.kind,
    said: saidIn(failure, secretsOf(config))
  }
  if (failures.length < MOST) failures.push(attempt)
  snapshot.services.upstreams.health.noteFailure(attempt)
}

/**
 * @param secrets known values to be redacted
 * @returns undefined: no message, or none that can be read
 */
export function saidIn (failure: UpstreamFailure, secrets: readonly string[]): string | undefined {
  if (failure.kind !== 'status' && failure.kind !== 'error_event') return undefined
  const { body } = failure
  if (body === undefined) return undefined
  // JSON may escape a secret, so the parsed value is printed.
  const text = typeof body === 'string' ? textOf(body) : printed(body)
  const all = typeof body === 'string'
    ? secrets
    : secrets.flatMap((secret) => [secret, JSON.stringify(secret).slice(1, -1)])
  return scrubStart(text, all, KEPT) || undefined
}

/** The visible text of a page. */
function textOf (said: string): string {
  const head = said.slice(0, READ)
  return /^\s*</.test(head)
    ? head.replace(/<(style|script)\b[^]*?<\/\1>|<[^>]*>/gi, ' ').replace(/\s+/g, ' ').trim()
    : head
}
