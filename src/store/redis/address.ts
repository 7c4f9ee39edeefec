// Where Redis is, as gateway.yaml says it, in the words of ioredis: one server, a master that Sentinels name, or a
// cluster.
import { Cluster, Redis, type ClusterOptions, type RedisOptions } from 'ioredis'
import type { StoreConfig } from '../../config/config.ts'

export type Client = Redis | Cluster

/** Pause between two attempts to connect; longer with each. */
const FIRST_RETRY_MS = 50
const LONGEST_RETRY_MS = 2000
const CONNECT_MS = 2000
/** Milliseconds between two reads of a cluster's slots. */
const SLOTS_MS = 2000

/** A client that is not connected yet. */
export function clientFor ({ url, cluster, sentinels, sentinel_name: name, timeout }: StoreConfig): Client {
  const common: RedisOptions = {
    lazyConnect: true,
    connectTimeout: CONNECT_MS,
    commandTimeout: timeout,
    retryStrategy: retryAfter,
    // A command without an answer fails, and its caller decides: a repetition in here would exceed its time.
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    enableOfflineQueue: false,
    reconnectOnError: (error) => error.message.startsWith('READONLY'),   // after a failover there is another master
    disableClientInfo: true
  }
  if (cluster !== undefined) {
    const [first] = cluster
    const { db: _db, ...login } = loginOf(first!)
    const options: ClusterOptions = {
      lazyConnect: true,
      clusterRetryStrategy: retryAfter,
      enableOfflineQueue: false,
      slotsRefreshInterval: SLOTS_MS,
      retryDelayOnFailover: 0,
      retryDelayOnClusterDown: 0,
      redisOptions: { ...common, ...login }
    }
    return new Cluster(cluster.map((one) => { const { host, port } = parse(one); return { host, port } }), options)
  }
  if (sentinels !== undefined) {
    const { username, password, tls } = parse(sentinels[0]!)
    const options: RedisOptions = {
      ...common,
      ...(url !== undefined && loginOf(url)),
      name: name!,
      sentinels: sentinels.map((one) => { const { host, port } = parse(one); return { host, port } }),
      sentinelRetryStrategy: retryAfter,
      failoverDetector: true,
      ...(username !== undefined && { sentinelUsername: username }),
      ...(password !== undefined && { sentinelPassword: password }),
      ...(tls !== undefined && { sentinelTLS: tls, enableTLSForSentinelMode: true })
    }
    return new Redis(options)
  }
  return new Redis({ ...common, ...parse(url!) })
}

/** With jitter: many gateways lose their Redis at the same moment, and must not all come back at once. */
function retryAfter (times: number): number {
  return Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** (times - 1)) * (0.5 + Math.random())
}

interface Address extends Pick<RedisOptions, 'username' | 'password' | 'db' | 'tls'> {
  readonly host: string
  readonly port: number
}

function parse (text: string): Address {
  const { protocol, hostname, port, username, password, pathname } = new URL(text)
  const db = Number(pathname.slice(1))
  return {
    host: hostname.replace(/^\[|\]$/g, ''),
    port: port === '' ? 6379 : Number(port),
    ...(username !== '' && { username: decodeURIComponent(username) }),
    ...(password !== '' && { password: decodeURIComponent(password) }),
    ...(db > 0 && { db }),
    ...(protocol === 'rediss:' && { tls: {} })
  }
}

function loginOf (text: string): Omit<Address, 'host' | 'port'> {
  const { host: _host, port: _port, ...login } = parse(text)
  return login
}

/** The address for people: without credentials. */
export function nameOf ({ url, cluster, sentinels }: StoreConfig): string {
  return (cluster ?? sentinels ?? [url!]).map((one) => {
    const { host, port } = parse(one)
    return `${host}:${port}`
  }).join(', ')
}
