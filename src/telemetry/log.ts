// The log: JSON lines, one per request at its end; never bodies (except the beginning of an upstream's error), never
// secrets. And the one place that observes exchanges.
import { type DestinationStream, type Logger, pino, stdSerializers } from 'pino'
import type { LogLevel } from '../config/config.ts'
import type { GatewayError } from '../errors.ts'
import type { Exchange, Outcome } from '../core/exchange.ts'
import { ApiKey, Body, Charge, Model } from '../core/facts.ts'
import { nameCause } from '../core/name-cause.ts'
import type { FailedAttempt } from '../core/upstream.ts'
import type { ExchangeRecord } from '../core/record.ts'
import type { Metrics } from './metrics.ts'
import { StandardOutput } from './log-output.ts'
import type { Refusals } from './sampled-refusals.ts'

const CLIENT_LENGTH = 120
/** Names that must not be logged; if a plugin logs one, its value stays secret. */
const CENSORED = new Set(['secret', 'token', 'password', 'authorization', 'x-api-key', 'api-key', 'cookie',
  'set-cookie', 'headers', 'body'])
const CENSORED_DEPTH = 3

let lastTime = 0
let lastStamp = ''

/** As pino's own, but memoized, because many lines fall into one millisecond. */
function isoTime (): string {
  const now = Date.now()
  if (now !== lastTime) {
    lastTime = now
    lastStamp = `,"time":"${new Date(now).toISOString()}"`
  }
  return lastStamp
}

/**
 * @param destination default: standard output
 * @param base fields of every line
 */
export function createLogger (
  level: LogLevel,
  destination: DestinationStream = new StandardOutput(),
  base: Readonly<Record<string, unknown>> | null = null
): Logger {
  return pino({
    level,
    base,
    timestamp: isoTime,
    formatters: { level: (label) => ({ level: label }), log: (line) => censor(line, CENSORED_DEPTH) },
    serializers: {
      err: (thrown: unknown) => thrown instanceof Error ? censor(stdSerializers.err(thrown), CENSORED_DEPTH) : thrown
    }
  }, destination)
}

/** pino's own redaction with the same names took 32 µs for the line of a request; this takes 1 (measured). */
function censor <T extends object> (line: T, depth: number): T {
  let clean: Record<string, unknown> | undefined
  for (const name in line) {
    const value: unknown = line[name]
    const kept: unknown = CENSORED.has(name) ? '***' : isOpen(value) && depth > 0 ? censor(value, depth - 1) : value
    if (kept !== value) {
      ;(clean ??= (Array.isArray(line) ? [...line] : { ...line }) as Record<string, unknown>)[name] = kept
    }
  }
  return (clean as T | undefined) ?? line
}

/** Errors are left to their serializer: a copy would lose the message. */
function isOpen (value: unknown): value is object {
  return typeof value === 'object' && value !== null && !(value instanceof Error)
}

/**
 * Called for every exchange as soon as it exists: registered first, so called last, when all other callbacks have run.
 */
export function observe (
  exchange: Exchange,
  { log, metrics }: { readonly log: Logger, readonly metrics: Metrics },
  refusals: Refusals
): void {
  metrics.begin()
  exchange.onFinish((outcome) => {
    const { record } = exchange
    conclude(record, exchange, outcome, performance.now())
    metrics.record(record)
    const error = outcome.kind === 'completed' ? undefined : outcome.error
    // A failure of the gateway has its line even without a key.
    const isStranger = outcome.kind === 'failed' && outcome.error.status < 500 && record.key_id === undefined &&
      record.attempts === 0
    if (isStranger) {
      refusals.note({ status: outcome.error.status, code: record.code, route: record.route }, () => {
        logExchange(log, record, error)
      })
    } else { logExchange(log, record, error) }
  })
}

function logExchange (log: Logger, record: ExchangeRecord, error: GatewayError | undefined): void {
  const line = lineOf(record, error)
  // A fault of the gateway: its stack is the first thing that an operator needs.
  if (error?.row === 'server_error') log.error({ ...line, err: error.cause ?? error }, 'request')
  else if (error === undefined) log.info(line, 'request')
  else if (refusesUs(error.cause)) log.warn(
    {
      ...line,
      cause: nameCause(error.cause),
      hint: `the upstream refuses the gateway's credentials: look at ` +
        `upstreams.${record.upstream}.${record.credential === undefined ? 'headers' : 'credentials'}`
    },
    'request'
  )
  else log.info({ ...line, cause: nameCause(error.cause) }, 'request')
}

/** One literal without spreads: it has one shape, and is made for every request. Undefined fields are not printed. */
function lineOf (record: ExchangeRecord, error: GatewayError | undefined): object {
  const { failures, queue_ms, client } = record
  return {
    request_id: record.request_id,
    route: record.route,
    status: record.status,
    code: record.code,
    outcome: record.outcome,
    by: record.by,
    key_id: record.key_id,
    account: record.account,
    model: record.model,
    asked: record.asked,
    channel: record.channel,
    upstream: record.upstream,
    credential: record.credential,
    attempts: record.attempts,
    failures: failures.length === 0 ? undefined : failures.map(shown),
    stream: record.stream,
    nanos: record.nanos?.toString(),
    usage: record.usage,
    usage_source: record.usage_source,
    first_byte_ms: record.first_byte_ms,
    queue_ms: queue_ms === 0 ? undefined : round(queue_ms),
    duration_ms: record.duration_ms,
    own_ms: record.own_ms,
    config_generation: record.config_generation,
    client: client?.slice(0, CLIENT_LENGTH),
    ip: record.ip,
    // The gateway's message names the field, limit or address; upstreams' messages are in `failures`, redacted.
    reason: error === undefined || error.cause !== undefined ? undefined : error.message
  }
}

/** Adds what the facts and the outcome tell. @param now `performance.now()` at the end */
function conclude (record: ExchangeRecord, exchange: Exchange, outcome: Outcome, now: number): void {
  record.outcome = outcome.kind
  if (outcome.kind !== 'completed') record.code = outcome.error.code
  if (outcome.kind === 'interrupted') record.by = outcome.by
  const apiKey = exchange.find(ApiKey)
  record.key_id = apiKey?.key.id
  record.account = apiKey?.account.id
  const model = exchange.find(Model)
  record.model = model?.id
  record.provider = model?.provider
  record.kind = model?.kind
  record.asked = exchange.alias
  const body = exchange.find(Body)
  if (body !== undefined) record.stream = body.stream === true
  const charge = exchange.find(Charge)
  record.nanos = charge?.nanos
  record.usage = charge?.usage
  record.usage_source = charge?.source
  const { endpoint } = exchange.route
  const served = outcome.kind === 'failed' ? undefined : outcome.served
  // An answer of the gateway's own has no channel, whichever upstream was asked before.
  const tried = outcome.kind === 'completed' && served === undefined ? undefined : exchange.lastAttempt
  record.channel = tried?.channel
  record.upstream = served?.upstream ?? tried?.upstream ??
    (endpoint.kind === 'forward' && record.attempts > 0 ? endpoint.upstream : undefined)
  if (record.upstream !== undefined) record.credential = exchange.credential
  if (record.first_byte_at !== 0) record.first_byte_ms = round(record.first_byte_at - record.started_at)
  record.duration_ms = round(now - record.started_at)
  record.own_ms = round(ownTime(record, now))
}

/** A failure in the log's field order; the request's id and time are those of the line. */
function shown ({ upstream, model, credential, cause, said }: FailedAttempt): Omit<FailedAttempt, 'request_id' | 'at'> {
  return { upstream, model, credential, cause, said }
}

/**
 * The gateway's own time: from the parsed body to the first attempt, and from the upstream's last byte to the answer;
 * without the client's reading and sending, and without waits in a queue. Without an attempt: all after the body.
 */
function ownTime (record: ExchangeRecord, now: number): number {
  const { started_at, body_at, dispatched_at, first_byte_at, upstream_end_at } = record
  const read = body_at === 0 ? started_at : body_at
  const end = first_byte_at > upstream_end_at ? first_byte_at : now
  if (dispatched_at === 0) return end - read - record.queue_ms
  return dispatched_at - read - record.first_queue_ms + (upstream_end_at === 0 ? 0 : end - upstream_end_at)
}

/** Microseconds matter in own_ms, and no digit behind them. */
function round (ms: number): number {
  return Math.round(ms * 1000) / 1000
}

/**
 * Whether an upstream refused the operator's credential: the client is told that the provider failed, and the operator
 * gets the true reason.
 */
function refusesUs (cause: unknown): boolean {
  const { kind, status } = (cause ?? {}) as { readonly kind?: unknown, readonly status?: unknown }
  return kind === 'status' && (status === 401 || status === 403)
}
