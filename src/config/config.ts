// The shape of gateway.yaml after it was read, checked and filled with defaults. Data only: frozen, cloneable between threads.
// Durations are milliseconds, sizes are bytes, prices and amounts are the decimal text that stood in the YAML (never a float).

export type Milliseconds = number
export type Bytes = number
/** A decimal of US dollars exactly as written, such as "0.0125". */
export type Usd = string

export interface Config {
  readonly server: ServerConfig
  readonly store: StoreConfig
  readonly log: { readonly level: LogLevel }
  /** the longest that one plugin hook may take before the request fails */
  readonly hook_timeout: Milliseconds
  readonly pipeline: readonly PipelineItem[]
  readonly upstreams: Readonly<Record<string, UpstreamConfig>>
  readonly models: readonly ModelConfig[]
  readonly routes: readonly RouteConfig[]
  readonly accounts: readonly AccountConfig[]
  readonly keys: readonly KeyConfig[]
}

export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent'

export interface ServerConfig {
  readonly api: ListenerConfig & { readonly timeouts: ApiTimeouts }
  readonly public: ListenerConfig
  readonly admin: ListenerConfig & { readonly token: string }
  readonly trusted_proxies: readonly string[]
  readonly body_limit: Bytes
  readonly body_memory: Bytes
  readonly drain_delay: Milliseconds
  readonly drain_timeout: Milliseconds
}

export interface ListenerConfig {
  /** "host:port"; port 0 takes a free one */
  readonly listen: string
}

export interface ApiTimeouts {
  /** from the first byte of a request to the end of its head */
  readonly headers: Milliseconds
  /** between two pieces of a request body */
  readonly body_idle: Milliseconds
  /** a client that takes nothing for so long has left */
  readonly write_stall: Milliseconds
  /** nothing committed after so long: send the head of the stream and pings */
  readonly hold_head: Milliseconds
  /** silence in a stream after which a ping is sent */
  readonly ping: Milliseconds
}

export interface StoreConfig {
  readonly driver: 'memory'
  /** the data folder: generated secrets (and, with drivers that keep it, the ledger) */
  readonly path: string
}

export interface PipelineItem {
  /** a shipped plugin's name, or the path of a user's own, absolute once loaded */
  readonly use: string
  readonly with: Readonly<Record<string, unknown>>
  /** of a user's own plugin: a hash of its code and of what it imports by relative path */
  readonly version?: string
}

export type Dialect = 'messages'

export interface UpstreamConfig {
  /** http(s) URL, or "simulator:" for the built-in simulator */
  readonly url: string
  readonly dialect: Dialect
  readonly headers: Readonly<Record<string, string>>
  readonly timeouts: { readonly connect: Milliseconds, readonly first_byte: Milliseconds, readonly idle: Milliseconds }
}

export type ChannelName = 'premium' | 'cheap'
export type RoutingMode = 'premium' | 'cheap' | 'auto_cheap' | 'max' | 'auto_premium'

/** USD per 1M tokens by class; `extras` are USD per use. */
export interface TokenPrice {
  readonly input: Usd
  readonly output: Usd
  readonly cache_read?: Usd
  readonly cache_write?: Usd
  readonly cache_write_5m?: Usd
  readonly cache_write_1h?: Usd
  readonly extras?: Readonly<Record<string, Usd>>
}

export interface TargetConfig {
  readonly upstream: string
  readonly model: string
  readonly weight: number
}

export interface ChannelConfig {
  readonly enabled: boolean
  readonly price: TokenPrice | 'free'
  readonly targets: readonly TargetConfig[]
}

export interface ModelConfig {
  readonly id: string
  readonly name: string
  readonly provider: string
  readonly kind: 'text'
  /** day of availability, YYYY-MM-DD */
  readonly created: string
  readonly family?: string
  /** tokens of input that fit */
  readonly context?: number
  readonly max_output?: number
  readonly accepts: readonly ('text' | 'image')[]
  readonly channels: Readonly<Partial<Record<ChannelName, ChannelConfig>>>
}

export interface RouteConfig {
  /** "METHOD /path"; a forward route may name several methods "GET,POST /v1/x" and end its path in "/*" */
  readonly match: string
  /** an endpoint by name, or "none" to remove the shipped one */
  readonly serve?: string
  /** forwards the bytes to this upstream */
  readonly forward?: string
  readonly price?: { readonly usd: Usd } | 'free'
  /** names of plugins of `pipeline:`; absent: all of them */
  readonly pipeline?: readonly string[]
}

export interface AccountConfig {
  readonly id: string
  readonly name: string
  readonly opening_balance_usd: Usd
  readonly allow_fallback: boolean
}

export interface KeyConfig {
  readonly id: string
  readonly account: string
  /** never leaves config/ and auth: printed as *** everywhere */
  readonly secret: string
  readonly usage_limit_usd?: Usd
  readonly routing_mode: RoutingMode
  readonly channels: readonly ChannelName[]
}
