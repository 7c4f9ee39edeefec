// gateway.yaml after it was read, checked and filled with defaults. Data only: frozen, cloneable between threads.
// Durations are milliseconds, sizes are bytes, prices and amounts are the decimal text of the YAML (never a float).
import type { AccountConfig } from './sections/accounts.ts'
import type { AliasConfig } from './sections/aliases.ts'
import type { KeyConfig } from './sections/keys.ts'
import type { LogConfig } from './sections/log.ts'
import type { ModelConfig } from './sections/models.ts'
import type { PipelineItem } from './sections/pipeline.ts'
import type { RouteConfig } from './sections/routes.ts'
import type { Milliseconds } from './sections/schema.ts'
import type { ServerConfig } from './sections/server.ts'
import type { StoreConfig } from './sections/store.ts'
import type { UpstreamConfig } from './sections/upstreams.ts'
import type { VideosConfig } from './sections/videos.ts'

export type * from './sections/accounts.ts'
export type * from './sections/aliases.ts'
export type * from './sections/keys.ts'
export type * from './sections/log.ts'
export type * from './sections/models.ts'
export type * from './sections/pipeline.ts'
export type * from './sections/prices.ts'
export type * from './sections/routes.ts'
export type * from './sections/schema.ts'
export type * from './sections/server.ts'
export type * from './sections/store.ts'
export type * from './sections/upstreams.ts'
export type * from './sections/videos.ts'

/** Sections that are read at a start only; the others change with a reload. */
export const restartSections = ['server', 'store'] as const

export interface Config {
  readonly server: ServerConfig
  readonly store: StoreConfig
  readonly log: LogConfig
  readonly videos: VideosConfig
  readonly hook_timeout: Milliseconds
  readonly pipeline: readonly PipelineItem[]
  readonly upstreams: Readonly<Record<string, UpstreamConfig>>
  readonly models: readonly ModelConfig[]
  readonly aliases: readonly AliasConfig[]
  readonly default_model?: string
  readonly routes: readonly RouteConfig[]
  readonly accounts: readonly AccountConfig[]
  readonly keys: readonly KeyConfig[]
  /** not from gateway.yaml: a demo key that is off now */
  readonly demo_off?: DemoOff
}

export interface DemoOff {
  /** of the key, hexadecimal: its holder is told */
  readonly sha256: string
  /** JSON pointer of the cause; '': none in particular */
  readonly path: string
  /** the text behind "because" */
  readonly why: string
}
