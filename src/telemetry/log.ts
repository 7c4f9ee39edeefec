// The log: JSON lines, one per request at its end; never bodies (except the beginning of an upstream's error), never
// secrets. And the one place that observes exchanges.
import { type DestinationStream, type Logger, pino, stdSerializers, symbols } from 'pino'
import { dateOfStep } from '../base/end-of-turn.ts'
import { JsonBytes } from '../base/json-bytes.ts'
import type { ChannelName, LogLevel } from '../config/config.ts'
import type { GatewayError } from '../errors.ts'
import { credentialFaultIn } from '../core/credential-fault.ts'
import type { Exchange, Outcome } from '../core/exchange.ts'
import { AbandonedCost, Accepted, ApiKey, Body, Charge, Model, Plan } from '../core/facts.ts'
import { nameCause } from '../core/name-cause.ts'
import type { UpstreamFailure } from '../core/plugin.ts'
import type { FailedAttempt } from '../core/upstream.ts'
import { type ExchangeRecord, ownTime, rounded } from '../core/record.ts'
import type { Usage } from '../money/usage.ts'
import type { Metrics } from './metrics.ts'
import { StandardOutput } from './log-output.ts'
import type { RequestLog } from './requests/request-log.ts'
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
  const now = dateOfStep()
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
 * @returns to be called for every exchange as soon as it exists: it is registered first, so called last, when all other
 * callbacks have run
 */
export function observer (
  { log, metrics, requests }: { readonly log: Logger, readonly metrics: Metrics,
    readonly requests: Pick<RequestLog, 'note'> },
  refusals: Refusals
): (exchange: Exchange) => void {
  const note = (record: ExchangeRecord, error: GatewayError | undefined): void => {
    logExchange(log, record, error)
    requests.note(record)
  }
  const noteRefusal = (record: ExchangeRecord, error: GatewayError): void => {
    const about = { status: error.status, code: record.code, route: record.route }
    refusals.note(about, () => { note(record, error) })
  }
  const end = (outcome: Outcome, exchange: Exchange): void => {
    const { record } = exchange
    conclude(record, exchange, outcome, performance.now())
    metrics.record(record)
    countFailure(exchange, outcome)
    // A failure of the gateway has its line even without a key.
    const isStranger = outcome.kind === 'failed' && outcome.error.status < 500 && record.key_id === undefined &&
      record.attempts === 0
    if (isStranger) noteRefusal(record, outcome.error)
    else note(record, outcome.kind === 'completed' ? undefined : outcome.error)
  }
  return (exchange) => {
    metrics.begin()
    exchange.onFinish(end)
  }
}

/** Counts a request of a known key that ended badly, and was not charged, in the sums of what is used. */
function countFailure (exchange: Exchange, outcome: Outcome): void {
  const { record, ledger } = exchange
  const { account, key_id: key, model = '', channel, nanos } = record
  if (outcome.kind === 'completed' || nanos !== undefined || account === undefined || key === undefined) return
  // Its client left, and has the task all the same: that counts when it is over.
  if (outcome.kind === 'interrupted' && exchange.find(Accepted) !== undefined) return
  ledger.failed({ account, key, model, ...(channel !== undefined && { channel }) })
}

function logExchange (log: Logger, record: ExchangeRecord, error: GatewayError | undefined): void {
  if (error === undefined) { logWhole(log, record); return }
  const line = fieldsOf(record, error)
  // A fault of the gateway: its stack is the first thing that an operator needs.
  if (error.row === 'server_error') log.error({ ...line, err: error.cause ?? error }, REQUEST)
  else if (refusesUs(error.cause)) log.warn(
    {
      ...line,
      cause: nameCause(error.cause),
      hint: `the upstream refuses the gateway's credentials: look at ` +
        `upstreams.${record.upstream}.${record.credential === undefined ? 'headers' : 'credentials'}`
    },
    REQUEST
  )
  else log.info({ ...line, cause: nameCause(error.cause) }, REQUEST)
}

/** Message of the lines of requests, and the end of such a line. */
const REQUEST = 'request'
const END = `,"msg":"${REQUEST}"}\n`

/** What pino's logger prints lines with. */
interface Printer {
  readonly [symbols.timeSym]: () => string
  /** beginning of a line, by level */
  readonly [symbols.lsCacheSym]: Readonly<Record<number, string>>
  /** base fields, behind a comma */
  readonly [symbols.chindingsSym]: string
  readonly [symbols.streamSym]: DestinationStream
}

/** The line that is printed at this moment. */
const line = new JsonBytes()

/**
 * Prints a line as pino would, if all of its names are the gateway's own, and it has no errors and no cycles: pino
 * prints each name and each value by itself, 47,000 instructions a request against a quarter of that (measured).
 */
function logWhole (log: Logger, record: ExchangeRecord): void {
  if (!log.isLevelEnabled('info')) return
  const printer = log as unknown as Printer
  line.clear()
  line.raw(printer[symbols.lsCacheSym][log.levels.values['info']!]!)
  line.raw(printer[symbols.timeSym]())
  line.raw(printer[symbols.chindingsSym])
  addFields(record, undefined)
  line.raw(END)
  const output = printer[symbols.streamSym]
  if (output instanceof StandardOutput) output.writeLine(line)
  else output.write(line.toString())
}

/** The fields of a line that pino prints, because it has more. */
function fieldsOf (record: ExchangeRecord, error: GatewayError): object {
  line.clear()
  addFields(record, error)
  return JSON.parse(`{${line.toString().slice(1)}}`) as object
}

/** Adds all fields of a request to the line, each behind a comma, but those that are undefined. */
function addFields (record: ExchangeRecord, error: GatewayError | undefined): void {
  const { failures, stream, nanos, abandoned, usage, queue_ms, client } = record
  addText('request_id', record.request_id)
  addText('route', record.route)
  addNumber('status', record.status)
  addText('code', record.code)
  addText('outcome', record.outcome)
  addText('by', record.by)
  addText('key_id', record.key_id)
  addText('account', record.account)
  addText('model', record.model)
  addText('asked', record.asked)
  addText('channel', record.channel)
  addText('upstream', record.upstream)
  addText('credential', record.credential)
  addNumber('attempts', record.attempts)
  if (failures.length > 0) { line.name('failures'); line.value(failures.map(shown)) }
  if (stream !== undefined) { line.name('stream'); line.raw(stream ? 'true' : 'false') }
  if (nanos !== undefined) { line.name('nanos'); line.raw('"'); line.amount(nanos); line.raw('"') }
  if (abandoned !== undefined) { line.name('abandoned_nanos'); line.raw('"'); line.amount(abandoned); line.raw('"') }
  if (usage !== undefined) addUsage(usage)
  addText('usage_source', record.usage_source)
  addNumber('first_byte_ms', record.first_byte_ms)
  if (queue_ms !== 0) addNumber('queue_ms', rounded(queue_ms))
  addNumber('duration_ms', record.duration_ms)
  addNumber('own_ms', record.own_ms)
  addNumber('config_generation', record.config_generation)
  addText('client', client?.slice(0, CLIENT_LENGTH))
  addText('ip', record.ip)
  addText('trace_id', record.trace_id)
  addText('span_id', record.span_id)
  // The gateway's message names the field, limit or address; upstreams' messages are in `failures`, redacted.
  if (error !== undefined && error.cause === undefined) addText('reason', error.message)
}

function addText (name: string, value: string | undefined): void {
  if (value === undefined) return
  line.name(name)
  line.text(value)
}

function addNumber (name: string, value: number | undefined): void {
  if (value === undefined) return
  line.name(name)
  line.number(value)
}

function addUsage (usage: Usage): void {
  line.name('usage')
  line.raw('{"input":')
  line.number(usage.input)
  addNumber('cache_read', usage.cache_read)
  addNumber('cache_write_5m', usage.cache_write_5m)
  addNumber('cache_write_1h', usage.cache_write_1h)
  addNumber('output', usage.output)
  line.name('extras')
  line.object(usage.extras)
  line.raw('}')
}

/** Adds what the facts and the outcome tell. @param now `performance.now()` at the end */
function conclude (record: ExchangeRecord, exchange: Exchange, outcome: Outcome, now: number): void {
  record.style = exchange.route.style.name
  record.outcome = outcome.kind
  if (outcome.kind !== 'completed') record.code = outcome.error.code
  if (outcome.kind === 'interrupted') record.by = outcome.by
  const apiKey = exchange.find(ApiKey)
  record.key_id = apiKey?.key.id
  record.account = apiKey?.account.id
  const model = exchange.find(Model)
  const { endpoint } = exchange.route
  record.model = model?.id ?? (endpoint.kind === 'forward' ? record.route : undefined)
  record.provider = model?.provider
  // What the address makes, whatever kind of model was named; a count of tokens makes nothing.
  record.kind = endpoint.kind === 'model' ? endpoint.modality : undefined
  record.asked = exchange.asked
  const body = exchange.find(Body)
  if (body !== undefined) record.stream = body.stream === true
  const charge = exchange.find(Charge)
  record.nanos = charge?.nanos
  record.cost = charge?.cost
  record.abandoned = exchange.find(AbandonedCost)
  record.usage = charge?.usage
  record.usage_source = charge?.source
  const served = outcome.kind === 'failed' ? undefined : outcome.served
  // An answer of the gateway's own has no channel, whichever upstream was asked before.
  const tried = outcome.kind === 'completed' && served === undefined ? undefined : exchange.lastAttempt
  record.channel = tried?.channel ?? (outcome.kind === 'completed' ? undefined : refusedIn(exchange))
  record.upstream = served?.upstream ?? tried?.upstream ??
    (endpoint.kind === 'forward' && record.attempts > 0 ? endpoint.upstream : undefined)
  if (record.upstream !== undefined) {
    record.target = tried?.model ?? exchange.route.name
    record.credential = exchange.credential
  }
  if (record.first_byte_at !== 0) record.first_byte_ms = rounded(record.first_byte_at - record.started_at)
  record.duration_ms = rounded(now - record.started_at)
  record.own_ms = rounded(ownTime(record, now))
  const { trace } = exchange
  record.trace_id = trace.trace_id
  record.span_id = trace.span_id
}

/** The channel of a request that no target was asked for: all of its targets are out, or it is itself. */
function refusedIn (exchange: Exchange): ChannelName | undefined {
  const plan = exchange.find(Plan)
  return plan?.refused ?? plan?.attempts[0]?.channel
}

/** A failure in the log's field order; the request's id and time are those of the line. */
function shown ({ upstream, model, credential, cause, said }: FailedAttempt): Omit<FailedAttempt, 'request_id' | 'at'> {
  return { upstream, model, credential, cause, said }
}

/**
 * Whether an upstream refused the operator's credential: the client is told that the provider failed, and the operator
 * gets the true reason.
 */
function refusesUs (cause: unknown): boolean {
  const { kind, status } = (cause ?? {}) as { readonly kind?: unknown, readonly status?: unknown }
  if (kind !== 'status' && kind !== 'error_event') return false
  return [401, 402, 403].some((code) => code === status) || credentialFaultIn(cause as UpstreamFailure) !== undefined
}
