// A configuration in use, as an exchange has it: the same from the exchange's first byte to its last. Made by
// gateway/snapshot.ts.
import type { Config, ModelKind } from '../config/config.ts'
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
  /**
   * The model of a name at this moment: by its id, by an alias, or by the alias with the longest beginning of the name.
   * @param kind of what is asked for: text may come from `default_model`, whatever the name
   */
  modelOf (name: string, kind?: ModelKind): Model | undefined
  /** Whether a name is that of an alias itself, and not one of those that it catches. */
  isAlias (name: string): boolean
}
