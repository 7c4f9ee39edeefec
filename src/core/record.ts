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
  /** the alias that the client asked for */
  asked: string | undefined = undefined
  provider: string | undefined = undefined
  /** of the model */
  kind: ModelKind | undefined = undefined
  channel: string | undefined = undefined
  /** the upstream that served, or was tried last */
  upstream: string | undefined = undefined
  /** of the last attempt */
  credential: string | undefined = undefined
  /** attempts that were begun */
  attempts = 0
  /** failed attempts with the upstreams' messages, oldest first */
  readonly failures: FailedAttempt[] = []
  /** undefined: the body was not read */
  stream: boolean | undefined = undefined
  nanos: Nanos | undefined = undefined
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
