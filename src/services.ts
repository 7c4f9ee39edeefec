// What outlives a reload: made once in main, passed in, never reached for.
import type { Logger } from 'pino'
import type { Metrics } from './admin/metrics.ts'
import type { Tokens } from './money/tokens.ts'
import type { Store } from './store/store.ts'
import type { Upstreams } from './upstream/upstream.ts'

export interface Services {
  readonly log: Logger
  readonly metrics: Metrics
  readonly store: Store
  readonly upstreams: Upstreams
  readonly tokens: Tokens
  /** milliseconds since the epoch; tests bring their own */
  readonly now: () => number
}
