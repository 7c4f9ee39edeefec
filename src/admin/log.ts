// The log: JSON lines, one per request at its end; never bodies (but the first of what an upstream said with an error), never secrets. And the one place that watches exchanges.
import { type DestinationStream, type Logger, pino, stdSerializers } from 'pino'
import type { LogLevel } from '../config/config.ts'
import type { GatewayError } from '../errors.ts'
import type { Exchange, Outcome } from '../exchange.ts'
import { ApiKey, Body, Charge, Model } from '../facts.ts'
import { nameCause } from '../name-cause.ts'
import type { Services } from '../services.ts'
import type { FailedAttempt } from '../upstream/failed-attempt.ts'
import type { FinishedExchange } from './metrics.ts'
import { StandardOutput } from './output.ts'
import type { Refusals } from './refusals.ts'

const CLIENT_LENGTH = 120
/** Nobody should log these. If somebody does, it stays a secret. */
const CENSORED = new Set(['secret', 'token', 'password', 'authorization', 'x-api-key', 'api-key', 'cookie', 'set-cookie', 'headers', 'body'])
const CENSORED_DEPTH = 3

let lastTime = 0
let lastStamp = ''

/** As pino's own, but many lines have the same millisecond. */
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
 * @param base what every line says
 */
export function createLogger (level: LogLevel, destination: DestinationStream = new StandardOutput(), base: Readonly<Record<string, unknown>> | null = null): Logger {
  return pino({
    level,
    base,
    timestamp: isoTime,
    formatters: { level: (label) => ({ level: label }), log: (line) => censor(line, CENSORED_DEPTH) },
    serializers: { err: (thrown: unknown) => thrown instanceof Error ? censor(stdSerializers.err(thrown), CENSORED_DEPTH) : thrown }
  }, destination)
}

/** pino's own redaction with the same names took 32 µs for the line of a request; this takes 1 (measured). */
function censor <T extends object> (line: T, depth: number): T {
  let clean: Record<string, unknown> | undefined
  for (const name in line) {
    const value: unknown = line[name]
    const kept: unknown = CENSORED.has(name) ? '***' : isOpen(value) && depth > 0 ? censor(value, depth - 1) : value
    if (kept !== value) (clean ??= (Array.isArray(line) ? [...line] : { ...line }) as Record<string, unknown>)[name] = kept
  }
  return (clean as T | undefined) ?? line
}

/** A copy of an error would lose its message; its serializer comes later. */
function isOpen (value: unknown): value is object {
  return typeof value === 'object' && value !== null && !(value instanceof Error)
}

/** Called for every exchange as soon as it exists: registered first, so told last, when all others have had their say. */
export function observe (exchange: Exchange, { log, metrics }: Pick<Services, 'log' | 'metrics'>, refusals: Refusals, status: () => number = () => exchange.status): void {
  metrics.begin()
  exchange.onFinish((outcome) => {
    const finished = summarise(exchange, outcome, status(), performance.now())
    metrics.record(finished)
    const error = outcome.kind === 'completed' ? undefined : outcome.error
    // What has failed by a fault of ours has its line, whoever asked.
    const isStranger = outcome.kind === 'failed' && outcome.error.status < 500 && finished.key_id === undefined && finished.attempts === 0
    if (isStranger) refusals.note({ status: outcome.error.status, code: finished.code, route: finished.route }, () => { logExchange(log, finished, error) })
    else logExchange(log, finished, error)
  })
}

export function logExchange (log: Logger, finished: FinishedExchange, error?: GatewayError): void {
  // Our own sentence says which field, limit or address it was; what upstreams wrote is in `failures`, scrubbed.
  const line = { ...finished, provider: undefined, kind: undefined, nanos: finished.nanos?.toString(), reason: error === undefined || error.cause !== undefined ? undefined : error.message }
  // Our own failure: the stack is the first thing that whoever is on call asks for.
  if (error?.row === 'server_error') log.error({ ...line, err: error.cause ?? error }, 'request')
  else if (error === undefined) log.info(line, 'request')
  else if (refusesUs(error.cause)) log.warn({ ...line, cause: nameCause(error.cause), hint: `the upstream refuses the gateway's credentials: look at upstreams.${finished.upstream}.${finished.credential === undefined ? 'headers' : 'credentials'}` }, 'request')
  else log.info({ ...line, cause: nameCause(error.cause) }, 'request')
}

/** @param now `performance.now()` at the end */
export function summarise (exchange: Exchange, outcome: Outcome, status: number, now: number): FinishedExchange {
  const { received, times, startedAt } = exchange
  const apiKey = exchange.find(ApiKey)
  const model = exchange.find(Model)
  const charge = exchange.find(Charge)
  const served = outcome.kind === 'failed' ? undefined : outcome.served
  // What the gateway answered by itself was served by nobody, whom it may have asked before.
  const tried = outcome.kind === 'completed' && served === undefined ? undefined : exchange.tried
  const { endpoint } = exchange.route
  const isRead = exchange.find(Body) !== undefined
  const upstream = served?.upstream ?? tried?.upstream ?? (endpoint.kind === 'forward' && exchange.attempts > 0 ? endpoint.upstream : undefined)
  const client = received.headers['user-agent']
  // One literal, without spreads: it has one shape, and this runs for every request. What is undefined is not printed.
  return {
    request_id: exchange.id,
    route: exchange.route.name,
    status,
    code: outcome.kind === 'completed' ? 'ok' : outcome.error.code,
    outcome: outcome.kind,
    by: outcome.kind === 'interrupted' ? outcome.by : undefined,
    key_id: apiKey?.key.id,
    account: apiKey?.account.id,
    model: model?.id,
    asked: exchange.alias,
    provider: model?.provider,
    kind: model?.kind,
    channel: tried?.channel,
    upstream,
    credential: upstream === undefined ? undefined : exchange.credential,
    attempts: exchange.attempts,
    failures: exchange.failures.length === 0 ? undefined : exchange.failures.map(shown),
    stream: isRead ? exchange.find(Body)!.stream === true : undefined,
    nanos: charge?.nanos,
    usage: charge?.usage,
    usage_source: charge?.source,
    first_byte_ms: times.firstByte === 0 ? undefined : round(times.firstByte - startedAt),
    queue_ms: times.waited === 0 ? undefined : round(times.waited),
    duration_ms: round(now - startedAt),
    own_ms: round(ownTime(exchange, now)),
    config_generation: exchange.snapshot.generation,
    client: typeof client === 'string' ? client.slice(0, CLIENT_LENGTH) : undefined,
    ip: received.address
  }
}

/** In its own order; the request's id and time are those of the line. */
function shown ({ upstream, model, credential, cause, said }: FailedAttempt): Omit<FailedAttempt, 'request_id' | 'at'> {
  return { upstream, model, credential, cause, said }
}

/**
 * From the parsed body (before it we wait for the client) to the first attempt, and from the upstream's last byte to
 * the answer; neither the client's taking of it, nor the wait for a turn. Without an attempt: all after the body.
 */
function ownTime ({ times, startedAt }: Exchange, now: number): number {
  const read = times.body === 0 ? startedAt : times.body
  const end = times.firstByte > times.upstreamEnd ? times.firstByte : now
  if (times.dispatched === 0) return end - read - times.waited
  return times.dispatched - read - times.waitedFirst + (times.upstreamEnd === 0 ? 0 : end - times.upstreamEnd)
}

/** Microseconds matter in own_ms, and no digit behind them. */
function round (ms: number): number {
  return Math.round(ms * 1000) / 1000
}

/** A client is told that the provider failed; the operator, that it is not the provider. */
function refusesUs (cause: unknown): boolean {
  const { kind, status } = (cause ?? {}) as { readonly kind?: unknown, readonly status?: unknown }
  return kind === 'status' && (status === 401 || status === 403)
}
