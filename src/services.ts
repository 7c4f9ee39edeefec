// What outlives a reload: made once in main, passed in, never reached for.
import type { Logger } from 'pino'
import type { Metrics } from './admin/metrics.ts'
import type { Directory } from './directory.ts'
import type { Links } from './files/links.ts'
import type { TemporaryFolder } from './files/temporary.ts'
import type { Overheads } from './money/overheads.ts'
import type { Tokens } from './money/tokens.ts'
import type { Idempotency } from './idempotency.ts'
import type { Store } from './store/store.ts'
import type { Tasks } from './store/tasks.ts'
import type { Upstreams } from './upstream/upstream.ts'
import type { VideoWatcher } from './videos/watcher.ts'

export interface Services {
  readonly log: Logger
  readonly metrics: Metrics
  readonly store: Store
  /** accounts and keys beside those of gateway.yaml */
  readonly directory: Directory
  /** tasks that outlive their requests, in the same store */
  readonly tasks: Tasks
  readonly videos: VideoWatcher
  readonly idempotency: Idempotency
  readonly upstreams: Upstreams
  /** files that clients fetch from the public listener */
  readonly links: Links
  /** files that live as long as a request */
  readonly temporary: TemporaryFolder
  readonly tokens: Tokens
  /** what upstreams count beyond what their requests show */
  readonly overheads: Overheads
  /** milliseconds since the epoch; tests bring their own */
  readonly now: () => number
}
