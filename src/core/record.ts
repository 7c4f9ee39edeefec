// What is known of an exchange by now, flat: at the end the log prints it, and metrics count it. Each part of the core
// writes what it knows; what plugins know they write as facts, which telemetry/ takes over at the end.
import type { ModelKind } from '../config/config.ts'
import type { Nanos } from '../money/nanos.ts'
import type { Usage, UsageSource } from '../money/usage.ts'
import type { FailedAttempt } from './upstream.ts'

/** A class, so that all records have one shape. */
export class ExchangeRecord {
  readonly request_id: string
  readonly route: string
  /** that the client got; 0: nothing was written */
  status = 0
  /** "ok", or the code of the error */
  code = 'ok'
  outcome: 'completed' | 'interrupted' | 'failed' = 'completed'
  /** who cut it */
  by: 'client' | 'upstream' | 'gateway' | undefined = undefined
  key_id: string | undefined = undefined
  account: string | undefined = undefined
  model: string | undefined = undefined
  /** the alias of it that the client named */
  asked: string | undefined = undefined
  provider: string | undefined = undefined
  /** of the model */
  kind: ModelKind | undefined = undefined
  channel: string | undefined = undefined
  /** that served, or was tried last */
  upstream: string | undefined = undefined
  /** of the last attempt */
  credential: string | undefined = undefined
  /** how many were begun */
  attempts = 0
  /** what upstreams said with those that failed, oldest first */
  readonly failures: FailedAttempt[] = []
  /** undefined: the body was not read */
  stream: boolean | undefined = undefined
  nanos: Nanos | undefined = undefined
  usage: Usage | undefined = undefined
  usage_source: UsageSource | undefined = undefined
  /** from the arrival; undefined: nothing was written */
  first_byte_ms: number | undefined = undefined
  /** how long it waited in queues, and for targets to recover; `first_queue_ms` before the first attempt */
  queue_ms = 0
  first_queue_ms = 0
  duration_ms = 0
  /** how much of the duration was the gateway's */
  own_ms = 0
  readonly config_generation: number
  /** user agent */
  readonly client: string | undefined
  /** of the socket's peer */
  readonly ip: string

  // Moments, of `performance.now()`; 0: has not happened.

  readonly started_at = performance.now()
  /** the last byte of the request's body had come */
  body_at = 0
  /** the first attempt was sent */
  dispatched_at = 0
  /** the first byte of the answer was written to the client */
  first_byte_at = 0
  /** the upstream sent its last byte; where something was waited for after it, the end of that wait */
  upstream_end_at = 0

  constructor (id: string, route: string, generation: number, client: unknown, ip: string) {
    this.request_id = id
    this.route = route
    this.config_generation = generation
    this.client = typeof client === 'string' ? client : undefined
    this.ip = ip
  }
}
