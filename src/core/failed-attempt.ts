// Messages of upstreams about their failures: for the operator, in the log and in the admin API, where a client may not
// read them.
import { bodyStep } from './body-step.ts'
import type { Exchange } from './exchange.ts'
import { briefly, type Json, printed } from '../base/json.ts'
import { Body } from './facts.ts'
import { nameCause } from './name-cause.ts'
import type { UpstreamFailure } from './plugin.ts'
import type { FailedAttempt } from './upstream.ts'
import { withoutMarked, withoutQuotes } from './quotes.ts'
import { scrubStart } from '../base/redact.ts'
import { secretsOf } from './upstream-secrets.ts'
import type { ToldFailure } from './vendor-error.ts'

/** Characters that are kept of a message, and in which quotes are looked for: the beginning of one looks like none. */
const KEPT = 300
const LOOKED_AT = 1200
/** Most failures that are kept: a reader learns no more from further ones. */
export const MOST_FAILURES = 20
/** The fields of an error that tell what is wrong, of any vendor. */
const TELLING = ['error', 'errors', 'message', 'type', 'code', 'status', 'param', 'detail', 'details', 'msg', 'loc',
  'reason', 'title']
/** Characters that are read of a page. */
const READ = 8000

export function noteFailure (failure: UpstreamFailure, exchange: Exchange, upstream: string): void {
  const { record: { failures }, snapshot, route, lastAttempt, credential } = exchange
  const config = snapshot.upstreams.get(upstream)?.config
  if (config === undefined) return
  const { large } = exchange
  const secrets = secretsOf(config)
  const attempt: { -readonly [Name in keyof FailedAttempt]: FailedAttempt[Name] } = {
    at: snapshot.services.now(),
    request_id: exchange.id,
    upstream,
    model: lastAttempt?.model ?? route.name,
    credential,
    status: failure.kind === 'status' ? failure.status : undefined,
    cause: nameCause(failure) ?? failure.kind,
    said: large === undefined ? saidIn(failure, secrets, exchange.find(Body)) : undefined
  }
  if (large !== undefined) {
    // In time for the line in the log. Nothing where the client leaves meanwhile.
    const said = Promise.resolve(saidAtLast(exchange, bodyOf(failure), secrets))
      .then((text) => { attempt.said = text }).catch(() => {})
    exchange.onFinish(async () => { await said })
  }
  if (failures.length < MOST_FAILURES) failures.push(attempt)
  if (failure.kind !== 'exhausted') snapshot.services.upstreams.health.noteFailure(attempt)
}

export const SAID = 'said'

/** The same in the thread of a large body. */
const saidAtLast = bodyStep(SAID, (exchange, failure: ToldFailure | undefined, secrets: readonly string[]) =>
  failure && saidIn(failure, secrets, exchange.get(Body)), { isRead: true })

/** What can be copied of a failure, and is needed. */
function bodyOf (failure: UpstreamFailure): ToldFailure | undefined {
  return 'body' in failure ? { kind: 'error_event', body: briefly(failure.body) } : undefined
}

/**
 * @param secrets known values to be redacted
 * @param asked the request's body, which is not quoted; undefined: it was not read, so only such fields of the message
 *   are shown as do not repeat it, and nothing that stands in quotation marks and is long
 * @returns undefined: no message, or none that can be read
 */
export function saidIn (failure: UpstreamFailure, secrets: readonly string[], asked?: Json): string | undefined {
  if (failure.kind !== 'status' && failure.kind !== 'error_event') return undefined
  const { body } = failure
  if (body === undefined) return undefined
  // JSON may escape a secret, so the parsed value is printed.
  const text = typeof body === 'string' ? textOf(body) : printed(body, asked === undefined ? TELLING : undefined)
  const all = typeof body === 'string'
    ? secrets
    : secrets.flatMap((secret) => [secret, JSON.stringify(secret).slice(1, -1)])
  const said = scrubStart(text, all, LOOKED_AT)
  const clean = asked === undefined
    ? withoutMarked(said, typeof body === 'string' ? 'text' : 'json')
    : withoutQuotes(said, asked)
  return clean.slice(0, KEPT).trim() || undefined
}

/** The visible text of a page. */
function textOf (said: string): string {
  const head = said.slice(0, READ)
  return head.trimStart().startsWith('<') ? withoutTags(head).replace(/\s+/g, ' ').trim() : head
}

/** Without tags, and without what stands in scripts and styles. Looks for each kind of end once where there is none. */
function withoutTags (page: string): string {
  const lower = page.toLowerCase()
  const missing = new Set<string>()
  /** the first character behind the next such end; -1: there is none */
  const behind = (end: string, from: number): number => {
    if (missing.has(end)) return -1
    const at = lower.indexOf(end, from)
    if (at === -1) missing.add(end)
    return at === -1 ? -1 : at + end.length
  }
  let [text, done] = ['', 0]
  for (let at = page.indexOf('<'); at !== -1; at = page.indexOf('<', done)) {
    const name = /^<(style|script)\b/.exec(lower.slice(at, at + 8))?.[1]
    const whole = name === undefined ? -1 : behind(`</${name}>`, at)
    const next = whole === -1 ? behind('>', at) : whole
    if (next === -1) break
    text += `${page.slice(done, at)} `
    done = next
  }
  return text + page.slice(done)
}
