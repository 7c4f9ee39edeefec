// The shape of gateway.yaml after it was read, checked and filled with defaults. Data only: frozen, cloneable between threads.
// Durations are milliseconds, sizes are bytes, prices and amounts are the decimal text that stood in the YAML (never a float).

export type Milliseconds = number
export type Bytes = number
/** A decimal of US dollars exactly as written, such as "0.0125". */
export type Usd = string

export interface Config {
  readonly server: ServerConfig
  readonly store: StoreConfig
  readonly log: { readonly level: LogLevel, readonly format: LogFormat }
  readonly videos: VideosConfig
  /** the longest that one plugin hook may take before the request fails */
  readonly hook_timeout: Milliseconds
  readonly pipeline: readonly PipelineItem[]
  readonly upstreams: Readonly<Record<string, UpstreamConfig>>
  readonly models: readonly ModelConfig[]
  readonly aliases: readonly AliasConfig[]
  readonly routes: readonly RouteConfig[]
  readonly accounts: readonly AccountConfig[]
  readonly keys: readonly KeyConfig[]
  /** not of gateway.yaml: the demo key, which there once was */
  readonly demo_off?: DemoOff
}

export interface DemoOff {
  /** of the key, hexadecimal: who holds it is told */
  readonly sha256: string
  /** JSON pointer of what is to blame; '': nothing in particular */
  readonly path: string
  /** goes on behind "because" */
  readonly why: string
}

export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent'

/** `auto`: readable lines in a terminal, else JSON */
export type LogFormat = 'auto' | 'json' | 'pretty'

export interface ServerConfig {
  /** processes that share the addresses of clients; 1: this one is the gateway */
  readonly workers: number
  readonly api: ListenerConfig & { readonly timeouts: ApiTimeouts }
  readonly public: ListenerConfig & PublicConfig
  readonly admin: ListenerConfig & { readonly token: string }
  readonly trusted_proxies: readonly string[]
  readonly body_limit: Bytes
  readonly body_memory: Bytes
  readonly body_disk: Bytes
  /** of answers that are read whole; absent: an eighth of V8's heap, at most 512 MB */
  readonly answer_memory?: Bytes
  /** a second, of a body that comes; 0: whatever comes */
  readonly body_rate: Bytes
  readonly overload: OverloadConfig
  readonly drain_delay: Milliseconds
  readonly drain_timeout: Milliseconds
}

/** When the process itself has too much to do, and refuses new requests. */
export interface OverloadConfig {
  /** 0: never */
  readonly event_loop_delay: Milliseconds
  /** percent of the heap's limit, or of `memory_limit`; 0: never */
  readonly memory: number
  /** of all processes of the gateway; absent: the container's, if it has one */
  readonly memory_limit?: Bytes
}

export interface ListenerConfig {
  /** "host:port"; port 0 takes a free one */
  readonly listen: string
}

export interface PublicConfig {
  /** under which clients reach this listener, without a slash at its end; absent: where it listens */
  readonly url?: string
  /** of a link to an image */
  readonly link_life: Milliseconds
  /** all images behind links */
  readonly link_space: Bytes
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
  readonly driver: 'embedded' | 'redis' | 'memory'
  /** the data folder: the ledger, or what waits for Redis; and generated secrets */
  readonly path: string
  /** what a power loss may take of the ledger; 0: nothing, and every charge waits for the disk */
  readonly fsync_interval: Milliseconds
  /** what rate limits count after anything but a clean stop: the most that may have been admitted, or nothing */
  readonly windows: 'full' | 'forget'
  /** of Redis, with credentials; beside `sentinels` only those count. With driver redis there is this one, `cluster` or `sentinels` */
  readonly url?: string
  /** nodes of a Redis Cluster */
  readonly cluster?: readonly string[]
  readonly sentinels?: readonly string[]
  /** what the Sentinels call the master */
  readonly sentinel_name?: string
  /** what all keys in Redis begin with */
  readonly prefix: string
  /** how long Redis may take for a command */
  readonly timeout: Milliseconds
  readonly on_outage: OutageConfig
}

/** What becomes of requests while Redis is away, for each thing that is asked of it. */
export interface OutageConfig {
  /** whether keys that are known go on being good */
  readonly auth: 'deny' | 'cached'
  /** whether nobody is admitted, each process counts for itself, or nobody counts */
  readonly limits: 'deny' | 'local' | 'allow'
  /** whether nothing that costs something is served, or what each process has set aside for it before */
  readonly money: 'deny' | 'leased'
  /** that each process sets aside of each account that it serves */
  readonly lease_usd: Usd
}

/** How tasks are watched that upstreams work on. */
export interface VideosConfig {
  /** between two questions about a new task; up to six times as long for an old one */
  readonly poll_interval: Milliseconds
  /** questions to an upstream at a time */
  readonly poll_concurrency: number
  /** a task of which nobody knows by then what became of it has failed */
  readonly max_age: Milliseconds
  /** one that its upstream denies for so long is lost, and has failed */
  readonly lost_after: Milliseconds
  /** how long the file of a finished video can be had, unless its upstream says sooner */
  readonly file_life: Milliseconds
  /** how long a task that is over is listed */
  readonly keep: Milliseconds
}

export interface PipelineItem {
  /** a shipped plugin's name, or the path of a user's own, absolute once loaded */
  readonly use: string
  readonly with: Readonly<Record<string, unknown>>
  /** of a user's own plugin: a hash of its code and of what it imports by relative path */
  readonly version?: string
}

export type Dialect = 'messages' | 'chat' | 'images' | 'videos'

/** What differs among vendors of the dialect `chat`. */
export interface ChatConfig {
  /** its name for the most tokens of an answer; absent: max_tokens */
  readonly max_tokens_field?: 'max_tokens' | 'max_completion_tokens'
  /** where it wants its own thoughts back; absent: nowhere */
  readonly reasoning_field?: 'reasoning_content' | 'reasoning'
  /** false: it refuses `stream_options`; absent: it reports the usage of a stream if it is asked for it there */
  readonly include_usage?: boolean
  /** of a client's body, what goes on to it as it is, beside what is translated */
  readonly fields?: readonly string[]
}

export interface UpstreamConfig {
  /** http(s) URL, or "simulator:" for the built-in simulator */
  readonly url: string
  readonly dialect: Dialect
  /** it answers count_tokens; else the gateway estimates */
  readonly count_tokens: boolean
  /** what becomes of its links to images: the client gets them, or links of ours to copies */
  readonly links?: 'pass' | 'mirror'
  readonly headers: Readonly<Record<string, string>>
  /** more headers, of which each request gets one set; absent: only `headers` */
  readonly credentials?: readonly CredentialConfig[]
  readonly timeouts: UpstreamTimeouts
  /** absent: it takes whatever comes */
  readonly limits?: UpstreamLimits
  readonly retries: RetriesConfig
  readonly breaker: BreakerConfig
  /** true: nothing is sent to it */
  readonly maintenance: boolean
  /** absent: the system's authorities, no certificate of our own */
  readonly tls?: TlsConfig
  /** http URL of a proxy, with its credentials; absent: straight */
  readonly proxy?: string
  /** auto: where it is https, and the upstream offers it */
  readonly http2: 'auto' | 'off'
  readonly chat?: ChatConfig
}

/** One of several accounts at the same upstream. */
export interface CredentialConfig {
  /** in log and metrics */
  readonly id: string
  /** in the place of those of the upstream that have the same names */
  readonly headers: Readonly<Record<string, string>>
}

/** How much an upstream gets at a time, and how much waits for it. */
export interface UpstreamLimits {
  readonly concurrency: number
  /** 0: nothing waits */
  readonly queue: number
  readonly queue_timeout: Milliseconds
}

/** Before the commit, and only to a target that failed in a way that may pass. */
export interface RetriesConfig {
  /** how often one request may be sent to the same target again; 0: never */
  readonly attempts: number
  /** before the first of them; twice as long before each other, with jitter */
  readonly backoff: Milliseconds
  /** the longest that is waited: for a backoff, for what an upstream asks for, or for the first of all targets to recover */
  readonly max_backoff: Milliseconds
  /** of the requests of the last ten seconds, percent that may be sent again */
  readonly budget: number
}

/** When a target is left alone for a while, because it fails. */
export interface BreakerConfig {
  /** failures within `window` that open it, at least */
  readonly failures: number
  /** and their share of what was sent there, in percent, at least */
  readonly ratio: number
  readonly window: Milliseconds
  /** how long it stays open; twice as long after each probe that failed */
  readonly open: Milliseconds
  readonly max_open: Milliseconds
}

export interface UpstreamTimeouts {
  /** to make a connection, TLS included */
  readonly connect: Milliseconds
  readonly first_byte: Milliseconds
  /** between two pieces of the answer */
  readonly idle: Milliseconds
  /** from the sending of a request to the last byte of its answer; not of WebSockets and downloads */
  readonly total: Milliseconds
  /** without a byte from either side of a WebSocket */
  readonly websocket_idle: Milliseconds
  /** then it takes no more requests, and what the resolver says by then counts */
  readonly connection_age: Milliseconds
}

/** Texts in PEM. */
export interface TlsConfig {
  /** the only authorities that are believed */
  readonly ca?: string
  /** of the gateway itself, with its chain */
  readonly cert?: string
  readonly key?: string
  /** the name that is asked for and looked for in the upstream's certificate, in the place of the URL's host */
  readonly server_name?: string
}

/** What a model gives. */
export type ModelKind = 'text' | 'image' | 'video'

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

/** One of several prices that follow each other. */
export interface StagedPrice extends TokenPrice {
  /** a day (its midnight in UTC) or an instant with its zone (RFC 3339) from which it holds; only the first of a list may be without */
  readonly from?: string
}

/** What a text model costs; of a list, the last that has begun (money/price-in-force.ts). */
export type TextPrice = TokenPrice | 'free' | readonly (StagedPrice | 'free')[]

/** A variant of an image or video model, and what it costs: exactly one of the two prices. */
export interface PriceRow {
  /** values of parameters; a parameter that is not named may have any value. Absent: fits everything */
  readonly when?: Readonly<Record<string, string>>
  /** of an image model: per delivered image */
  readonly usd?: Usd
  /** of a video model */
  readonly usd_per_second?: Usd
}

/** Of a channel of an image or video model: the first row that fits the request. What fits none is not sold in this channel. */
export type ItemPrice = readonly PriceRow[] | 'free'

/** What a client may choose of an image or video model, under the name that it has in a request. */
export interface ParameterConfig {
  /** numbers too as text, as they stand in the YAML */
  readonly values: readonly string[]
  /** of a request that names none; absent: it stays unset */
  readonly default?: string
  /** of `resolution`: by value, the pixels that it covers; a request that names only a size gets the smallest that covers it */
  readonly max_pixels?: Readonly<Record<string, number>>
}

export interface TargetConfig {
  readonly upstream: string
  readonly model: string
  readonly weight: number
  /** those of a higher number are asked when all of a lower one are out, or have failed */
  readonly priority: number
}

export interface ChannelConfig {
  readonly enabled: boolean
  /** true: as if it were not there, for a while */
  readonly maintenance: boolean
  /** true: the requests of one conversation go to the same target, whose prompt cache knows it */
  readonly sticky: boolean
  readonly price: TextPrice
  readonly targets: readonly TargetConfig[]
}

export interface ModelConfig {
  readonly id: string
  readonly name: string
  readonly provider: string
  readonly kind: ModelKind
  /** day of availability, YYYY-MM-DD */
  readonly created: string
  readonly family?: string
  /** tokens of input that fit */
  readonly context?: number
  readonly max_output?: number
  /** of a chat request that names none; absent: the smaller of max_output and 8192 */
  readonly default_max_tokens?: number
  /** whether it takes temperature, top_p and top_k; where not they are dropped */
  readonly sampling: boolean
  /** how it thinks when a chat request sets reasoning_effort: with a budget of tokens, as it sees fit, or not at all */
  readonly thinking: 'budget' | 'adaptive' | 'none'
  /** whether it takes a JSON Schema for its answer; where not a tool is forced in its place */
  readonly structured_outputs: boolean
  readonly accepts: readonly ('text' | 'image')[]
  /** true: it is not served for a while */
  readonly maintenance: boolean
  /** of image and video models: what decides the price */
  readonly parameters?: Readonly<Record<string, ParameterConfig>>
  /** `price` as typed is a text model's; that of the others is read through `itemPriceOf` (money/item-price.ts) */
  readonly channels: Readonly<Partial<Record<ChannelName, ChannelConfig>>>
}

/** Another name of a model, for clients. */
export interface AliasConfig {
  readonly id: string
  /** the id of a model; of a list, the last that has begun (stages.ts) */
  readonly model: string | readonly StagedModel[]
}

export interface StagedModel {
  /** as of a price; only the first of a list may be without */
  readonly from?: string
  readonly model: string
}

export interface RouteConfig {
  /** "METHOD /path"; a forward route may name several methods "GET,POST /v1/x" and end its path in "/*" */
  readonly match: string
  /** an endpoint by name, or "none" to remove the shipped one */
  readonly serve?: string
  /** forwards the bytes to this upstream */
  readonly forward?: string
  /** of a forward route: WebSockets too */
  readonly websocket?: boolean
  readonly price?: { readonly usd: Usd } | 'free'
  /** true: it answers 503 for a while */
  readonly maintenance?: boolean
  /** names of plugins of `pipeline:`; absent: all of them */
  readonly pipeline?: readonly string[]
}

export interface AccountConfig {
  readonly id: string
  readonly name: string
  readonly opening_balance_usd: Usd
  readonly allow_fallback: boolean
  /** true: its keys are refused with account_frozen */
  readonly suspended: boolean
}

export interface KeyConfig {
  readonly id: string
  readonly account: string
  /** never leaves config/ and auth: printed as *** everywhere */
  readonly secret: string
  /** true: it is refused like an unknown one */
  readonly frozen: boolean
  readonly usage_limit_usd?: Usd
  /** on a calendar day, or in a calendar month, of `time_zone` */
  readonly usage_limit_day_usd?: Usd
  readonly usage_limit_month_usd?: Usd
  /** a name of the IANA database; absent: UTC */
  readonly time_zone?: string
  /** requests in any 60 seconds; 0: no limit; absent: rate-limit's default_rpm */
  readonly rate_limit?: number
  /** requests at a time; 0: no limit; absent: rate-limit's default_concurrency */
  readonly concurrency?: number
  /** ids, or beginnings of ids with "*" at the end; absent: all */
  readonly allowed_models?: readonly string[]
  /** presets (protocol.md I) or user agents with "*"; absent: all */
  readonly allowed_clients?: readonly string[]
  /** addresses and networks (CIDR); absent: all */
  readonly ip_whitelist?: readonly string[]
  /** such as "https://app.example.com"; absent: all */
  readonly allowed_origins?: readonly string[]
  /** false: requests for a stream are refused */
  readonly streaming: boolean
  readonly routing_mode: RoutingMode
  readonly channels: readonly ChannelName[]
}
