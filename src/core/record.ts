// The flat record of an exchange, printed by the log and counted by metrics at its end. Each part of the core writes
// its fields; plugins write facts, which telemetry/ adds at the end.
import type { ModelKind } from '../config/config.ts'
import type { Nanos } from '../money/nanos.ts'
import type { Usage, UsageSource } from '../money/usage.ts'
import type { FailedAttempt } from './upstream.ts'

/** A class, so that all records have one shape. */
export class ExchangeRecord {
  readonly request_id: string
  readonly route: string
  /** name of its clients' style */
  style = ''
  /** status that the client got; 0: nothing was written */
  status = 0
  /** "ok", or the code of the error */
  code = 'ok'
  outcome: 'completed' | 'interrupted' | 'failed' = 'completed'
  /** the side that cut it */
  by: 'client' | 'upstream' | 'gateway' | undefined = undefined
  key_id: string | undefined = undefined
  account: string | undefined = undefined
  model: string | undefined = undefined
  /** the name that the client asked for, where it is not that of the model */
  asked: string | undefined = undefined
  provider: string | undefined = undefined
  /** what the address makes; undefined: no model is called there */
  kind: ModelKind | undefined = undefined
  channel: string | undefined = undefined
  /** the upstream that served, or was tried last */
  upstream: string | undefined = undefined
  /** of that upstream: the model there, or the forward route */
  target: string | undefined = undefined
  /** of the last attempt */
  credential: string | undefined = undefined
  /** attempts that were begun */
  attempts = 0
  /** failed attempts with the upstreams' messages, oldest first */
  readonly failures: FailedAttempt[] = []
  /** undefined: the body was not read */
  stream: boolean | undefined = undefined
  nanos: Nanos | undefined = undefined
  /** what the answer cost at its provider; undefined: its target does not say */
  cost: Nanos | undefined = undefined
  /** what it has probably cost there although its client left before the answer began */
  abandoned: Nanos | undefined = undefined
  usage: Usage | undefined = undefined
  usage_source: UsageSource | undefined = undefined
  /** since the arrival; undefined: nothing was written */
  first_byte_ms: number | undefined = undefined
  /** waits in queues, and for targets to recover; `first_queue_ms` before the first attempt */
  queue_ms = 0
  first_queue_ms = 0
  duration_ms = 0
  /** the gateway's own part of the duration */
  own_ms = 0
  readonly config_generation: number
  /** user agent */
  readonly client: string | undefined
  /** address of the socket's peer */
  readonly ip: string
  /** of its trace (trace.ts); undefined until its end */
  trace_id: string | undefined = undefined
  span_id: string | undefined = undefined

  // Times by `performance.now()`; 0: has not happened.

  readonly started_at = performance.now()
  /** the request's body was complete */
  body_at = 0
  /** the first attempt was sent */
  dispatched_at = 0
  /** the first byte of the answer was written to the client */
  first_byte_at = 0
  /** the upstream sent its last byte; where a wait followed, the end of the wait */
  upstream_end_at = 0

  constructor (id: string, route: string, generation: number, client: unknown, ip: string) {
    this.request_id = id
    this.route = route
    this.config_generation = generation
    this.client = typeof client === 'string' ? client : undefined
    this.ip = ip
  }
}

/**
 * The gateway's own time: from the parsed body to the first attempt, and from the upstream's last byte to the answer;
 * without the client's reading and sending, and without waits in a queue. Without an attempt: all after the body.
 * @param now `performance.now()`
 * @returns milliseconds
 */
export function ownTime (record: ExchangeRecord, now: number): number {
  const { started_at, body_at, dispatched_at, first_byte_at, upstream_end_at } = record
  const read = body_at === 0 ? started_at : body_at
  const end = first_byte_at > upstream_end_at ? first_byte_at : now
  if (dispatched_at === 0) return end - read - record.queue_ms
  return dispatched_at - read - record.first_queue_ms + (upstream_end_at === 0 ? 0 : end - upstream_end_at)
}

/**
 * The time of the upstreams that were tried, until the last byte, or until now; without waits between attempts.
 * @param now `performance.now()`
 * @returns milliseconds; 0: none was tried
 */
export function upstreamTime (record: ExchangeRecord, now: number): number {
  const { dispatched_at, upstream_end_at, queue_ms, first_queue_ms } = record
  if (dispatched_at === 0) return 0
  return (upstream_end_at === 0 ? now : upstream_end_at) - dispatched_at - (queue_ms - first_queue_ms)
}

/** Microseconds matter, and no digit behind them. */
export function rounded (ms: number): number {
  return Math.round(ms * 1000) / 1000
}
