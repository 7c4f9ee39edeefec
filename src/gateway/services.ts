// The services that the gateway makes once and keeps over reloads, in whole; core/services.ts has the parts that
// plugins and the pipeline use.
import type { Directory } from '../accounts/directory.ts'
import type { BodyThreads } from '../core/body-step.ts'
import type { Services } from '../core/services.ts'
import type { Links } from '../media/links.ts'
import type { TemporaryFolder } from '../media/temporary.ts'
import type { VideoWatcher } from '../media/video-poller.ts'
import type { Idempotency } from '../pipeline/idempotency.ts'
import type { Rollups } from '../store/rollups.ts'
import type { Store } from '../store/store.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { Upstreams } from '../upstream/pool.ts'

export interface GatewayServices extends Services {
  readonly metrics: Metrics
  readonly store: Store & Rollups
  readonly directory: Directory
  readonly videos: VideoWatcher
  readonly idempotency: Idempotency
  /** undefined: all bodies and answers are read on the event loop */
  readonly bodies?: BodyThreads | undefined
  readonly upstreams: Upstreams
  readonly links: Links
  /** set when the listeners are open */
  readonly addresses: { api: string, public: string }
  readonly temporary: TemporaryFolder
}
