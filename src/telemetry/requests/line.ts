// A line of the log of requests: a JSON array. Never a prompt, an answer or a secret, and nothing that a client may
// write as it likes, such as its user agent.
import type { JsonBytes } from '../../base/json-bytes.ts'
import { isRequestId, microsOf } from '../../base/request-id.ts'
import { MOST_FAILURES } from '../../core/failed-attempt.ts'
import type { ExchangeRecord } from '../../core/record.ts'
import type { Usage, UsageSource } from '../../money/usage.ts'

/** A finished request, as it is kept. Null: it has none, or did not come so far. */
export interface LoggedRequest {
  readonly request_id: string
  readonly account: string | null
  readonly key: string | null
  readonly model: string | null
  /** "ok", or the code of the error */
  readonly code: string
  /** status that the client got; 0: nothing was written */
  readonly status: number
  readonly route: string
  /** name of the client's style */
  readonly style: string
  readonly channel: string | null
  readonly stream: boolean | null
  readonly outcome: ExchangeRecord['outcome']
  /** the side that cut it */
  readonly by: NonNullable<ExchangeRecord['by']> | null
  readonly config_generation: number
  /** milliseconds since its arrival */
  readonly first_byte_ms: number | null
  readonly duration_ms: number
  readonly own_ms: number
  readonly queue_ms: number
  /** charged nano-dollars */
  readonly nanos: number | null
  readonly usage: Usage | null
  readonly usage_source: UsageSource | null
  /** attempts that were begun */
  readonly begun: number
  /** oldest first; of many failed ones the first twenty */
  readonly attempts: readonly LoggedAttempt[]
}

export interface LoggedAttempt {
  readonly upstream: string
  /** the model there, or the forward route */
  readonly target: string | null
  /** null: the upstream has only one */
  readonly credential: string | null
  /** of the upstream's answer */
  readonly status: number | null
  /** such as "status 404" or "refused: ECONNREFUSED", or the request's code; null: it answered */
  readonly error: string | null
  /** the first 300 characters of what the upstream said about its failure, without secrets */
  readonly said: string | null
}

type AttemptCells = [upstream: string, target: string | null, credential: string | null, status: number | null,
  error: string | null, said: string | null]

/** Times are whole microseconds: fractions take much longer to print. */
type Cells = [id: string, account: string | null, key: string | null, model: string | null, code: string,
  status: number, route: string, style: string, channel: string | null, stream: boolean | null,
  outcome: LoggedRequest['outcome'], by: LoggedRequest['by'], generation: number, firstByte: number | null,
  duration: number, own: number, queue: number, nanos: number | null, source: UsageSource | null,
  input: number | null, cacheRead: number, cacheWrite5m: number, cacheWrite1h: number, output: number,
  extras: Usage['extras'] | null, begun: number, attempts: AttemptCells[]]

const CELLS = 27

/** Adds the line, without its end. */
export function addLine (line: JsonBytes, record: ExchangeRecord): void {
  const { stream, usage, first_byte_ms: firstByte, nanos } = record
  line.raw('[')
  line.text(record.request_id)
  addText(line, record.account)
  addText(line, record.key_id)
  addText(line, record.model)
  addText(line, record.code)
  addNumber(line, record.status)
  addText(line, record.route)
  addText(line, record.style)
  addText(line, record.channel)
  line.raw(stream === undefined ? ',null' : stream ? ',true' : ',false')
  addText(line, record.outcome)
  addText(line, record.by)
  addNumber(line, record.config_generation)
  addNumber(line, firstByte === undefined ? undefined : toMicros(firstByte))
  addNumber(line, toMicros(record.duration_ms))
  addNumber(line, toMicros(record.own_ms))
  addNumber(line, toMicros(record.queue_ms))
  addNumber(line, nanos === undefined ? undefined : Number(nanos))
  addText(line, record.usage_source)
  if (usage === undefined) line.raw(',null,0,0,0,0,null')
  else {
    addNumber(line, usage.input)
    addNumber(line, usage.cache_read)
    addNumber(line, usage.cache_write_5m)
    addNumber(line, usage.cache_write_1h)
    addNumber(line, usage.output)
    line.raw(',')
    line.object(usage.extras)
  }
  addNumber(line, record.attempts)
  line.raw(',[')
  addAttempts(line, record)
  line.raw(']]')
}

function addText (line: JsonBytes, value: string | undefined): void {
  if (value === undefined) { line.raw(',null'); return }
  line.raw(',')
  line.text(value)
}

function addNumber (line: JsonBytes, value: number | undefined): void {
  if (value === undefined) { line.raw(',null'); return }
  line.raw(',')
  line.number(value)
}

function addAttempts (line: JsonBytes, record: ExchangeRecord): void {
  const { upstream, target, credential, outcome, status, code, attempts, failures } = record
  for (let i = 0; i < failures.length; i++) {
    const one = failures[i]!
    if (i > 0) line.raw(',')
    addAttempt(line, one.upstream, one.model, one.credential, one.status, one.cause, one.said)
  }
  // The last attempt, if it is no failure: it answered, or its client left.
  const isWhole = outcome === 'completed'
  if (upstream === undefined) return
  if (!isWhole && (attempts <= failures.length || failures.length === MOST_FAILURES)) return
  if (failures.length > 0) line.raw(',')
  addAttempt(line, upstream, target, credential, outcome === 'failed' ? undefined : status, isWhole ? undefined : code,
    undefined)
}

function addAttempt (
  line: JsonBytes, upstream: string, target: string | undefined, credential: string | undefined,
  status: number | undefined, error: string | undefined, said: string | undefined
): void {
  line.raw('[')
  line.text(upstream)
  addText(line, target)
  addText(line, credential)
  addNumber(line, status)
  addText(line, error)
  addText(line, said)
  line.raw(']')
}

/** Behind `["` */
const ID_AT = 2
const ID_LENGTH = 28

/** The request id of a line that begins at an index of a text; of a damaged one anything. */
export function idOf (text: string, start = 0): string {
  return text.slice(start + ID_AT, start + ID_AT + ID_LENGTH)
}

/** @returns microseconds since the epoch at which the request of a whole line came */
export function arrivalOf (line: string): number {
  return microsOf(line, ID_AT)
}

/** @returns milliseconds since the epoch at which a request was over */
export function endOf ({ request_id: id, duration_ms: duration }: LoggedRequest): number {
  return microsOf(id) / 1000 + duration
}

/** @returns undefined: the line is torn, damaged, or of another release */
export function readLine (line: string): LoggedRequest | undefined {
  try {
    const cells = JSON.parse(line) as Cells
    return cells.length === CELLS && isRequestId(cells[0]) ? requestOf(cells) : undefined
  } catch {
    return undefined
  }
}

function requestOf (cells: Cells): LoggedRequest {
  const [request_id, account, key, model, code, status, route, style, channel, stream, outcome, by, config_generation,
    firstByte, duration, own, queue, nanos, usage_source, input, cache_read, cache_write_5m, cache_write_1h, output,
    extras, begun, attempts] = cells
  return { request_id, account, key, model, code, status, route, style, channel, stream, outcome, by,
    config_generation, first_byte_ms: firstByte === null ? null : firstByte / 1000, duration_ms: duration / 1000,
    own_ms: own / 1000, queue_ms: queue / 1000, nanos, usage_source,
    usage: input === null ? null : { input, cache_read, cache_write_5m, cache_write_1h, output, extras: extras ?? {} },
    begun, attempts: attempts.map(([upstream, target, credential, its, error, said]): LoggedAttempt =>
      ({ upstream, target, credential, status: its, error, said })) }
}

function toMicros (ms: number): number {
  return Math.round(ms * 1000)
}
