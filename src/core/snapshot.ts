// A configuration in use, as an exchange has it: the same from the exchange's first byte to its last. Made by
// gateway/snapshot.ts.
import type { Config } from '../config/config.ts'
import type { Model } from './facts.ts'
import type { Services } from './services.ts'
import type { Upstream } from './upstream.ts'

export interface Snapshot {
  /** counts up with every configuration that went live: 1, 2, 3 … */
  readonly generation: number
  readonly config: Config
  readonly services: Services
  readonly models: ReadonlyMap<string, Model>
  /** by name */
  readonly upstreams: ReadonlyMap<string, Upstream>
  /** The model of a name at this moment: an id, or an alias. */
  modelOf (name: string): Model | undefined
}
