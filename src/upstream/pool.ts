// Upstreams with their connections, health and queues, which outlive a reload: snapshots that reach the same origin in
// the same way share its connections.
import { hash } from 'node:crypto'
import type { LookupFunction } from 'node:net'
import type { Logger } from 'pino'
import type { UpstreamConfig } from '../config/config.ts'
import { startTimer, type Timer } from '../base/timer.ts'
import { AnswerMemory } from '../core/answer-memory.ts'
import type { Credential, Upstream, UpstreamServices } from '../core/upstream.ts'
import { Connections } from './transport/connections.ts'
import { FairQueues } from './limits/queue.ts'
import { Health } from './limits/health.ts'
import type { TargetMetrics } from './limits/permit.ts'

/** The credential of this id; any one, where it does not exist any more. */
export function credentialOf ({ credentials }: Upstream, id: string | undefined): Credential {
  return credentials.find((one) => one.id === id) ?? credentials[0]!
}

/** An upstream with its connections, which only this room uses. */
class OpenUpstream implements Upstream {
  readonly name: string
  readonly config: UpstreamConfig
  readonly basePath: string
  readonly origin: string
  readonly credentials: readonly Credential[]
  readonly #connections: Connections

  constructor ({ name, config, basePath, origin, credentials }: Upstream, connections: Connections) {
    this.name = name
    this.config = config
    this.basePath = basePath
    this.origin = origin
    this.credentials = credentials
    this.#connections = connections
  }

  as (config: UpstreamConfig, credentials: readonly Credential[]): OpenUpstream {
    return new OpenUpstream({ name: this.name, config, basePath: this.basePath, origin: this.origin, credentials },
      this.#connections)
  }

  static connectionsOf (upstream: Upstream): Connections {
    if (!(#connections in upstream)) throw new Error(`the upstream ${upstream.name} was opened by nobody`)
    return upstream.#connections
  }
}

/** @throws {Error} `Upstreams.open` has not made it */
export function connectionsOf (upstream: Upstream): Connections {
  return OpenUpstream.connectionsOf(upstream)
}

interface Shared {
  readonly connections: Connections
  users: number
}

/** @throws {Error} they are not an `Upstreams` */
export function upstreamsOf (services: { readonly upstreams: UpstreamServices }): Upstreams {
  const { upstreams } = services
  if (!(upstreams instanceof Upstreams)) throw new Error('the upstreams were made by nobody')
  return upstreams
}

export class Upstreams implements UpstreamServices {
  readonly #open = new Map<string, Shared>()
  readonly #lookup: LookupFunction | undefined
  /** origin of the upstreams "simulator:" */
  simulatorUrl: string | undefined
  /** whether those that are opened from now on have the fast lane (src/README.md#decisions, number 38) */
  fastLane = true

  readonly health: Health
  readonly queues: FairQueues
  readonly answers = new AnswerMemory()
  /** timer of the pauses before an upstream is asked again */
  readonly timer: Timer

  /**
   * @param lookup replaces the system's resolver
   * @param now milliseconds since the epoch
   */
  constructor (
    lookup?: LookupFunction,
    now: () => number = Date.now,
    timer: Timer = startTimer,
    log?: Pick<Logger, 'info' | 'warn'>,
    metrics?: TargetMetrics
  ) {
    this.#lookup = lookup
    this.timer = timer
    this.health = new Health(now, log, metrics)
    this.queues = new FairQueues(now, timer)
  }

  /** Each `open` has one `close`. */
  open (name: string, configured: UpstreamConfig): Upstream {
    // Any key will do: the simulator wants one, as vendors do. In lower case, as dialects write their headers: a name
    // in two spellings is sent twice.
    const headers = lowerCased(configured.headers)
    const config = configured.url !== 'simulator:' ? { ...configured, headers }
      : { ...configured, url: this.simulatorUrl!, headers: { 'x-api-key': 'simulated', ...headers } }
    const url = new URL(config.url)
    const shared = this.#connect(url.origin, config)
    shared.users++
    const credentials: Credential[] = []
    const basePath = url.pathname.replace(/(?<!\/)\/+$/, '')
    const upstream = new OpenUpstream({ name, config, basePath, origin: url.origin, credentials }, shared.connections)
    if (config.credentials === undefined) {
      credentials.push({ id: undefined, key: keyOf(undefined, config.headers), upstream })
    } else {
      credentials.push(...config.credentials.map(({ id, headers: own }) => as(upstream, id, {
        ...config.headers,
        ...lowerCased(own)
      })))
    }
    return upstream
  }

  close (upstream: Upstream): void {
    const connections = connectionsOf(upstream)
    const [key, shared] = [...this.#open].find(([, one]) => one.connections === connections) ?? []
    if (key === undefined || --shared!.users > 0) return
    this.#open.delete(key)
    connections.close()
  }

  /** Closes every connection at once. */
  async destroy (): Promise<void> {
    const all = [...this.#open.values()]
    this.#open.clear()
    await Promise.all(all.map(({ connections }) => connections.destroy()))
  }

  #connect (origin: string, config: UpstreamConfig): Shared {
    const key = wayTo(origin, config, this.fastLane)
    const known = this.#open.get(key)
    if (known !== undefined) return known
    const made: Shared = { connections: new Connections(origin, config, this.#lookup, this.fastLane),
      users: 0 }
    this.#open.set(key, made)
    return made
  }
}

/** One account of an upstream as a credential. */
function as (upstream: OpenUpstream, id: string, headers: Readonly<Record<string, string>>): Credential {
  const credentials: Credential[] = []
  const credential = { id, key: keyOf(id, headers),
    upstream: upstream.as({ ...upstream.config, headers }, credentials) }
  credentials.push(credential)
  return credential
}

function keyOf (id: string | undefined, headers: Readonly<Record<string, string>>): string {
  return hash('sha256', JSON.stringify([id, headers]))
}

function lowerCased (headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(headers).map(([header, value]) => [header.toLowerCase(), value]))
}

/** A key of all that a connection depends on: a renewed certificate, for example, gets connections of its own. */
function wayTo (origin: string, { timeouts, tls, proxy, http2 }: UpstreamConfig, fastLane: boolean): string {
  return JSON.stringify([origin, timeouts.connect, timeouts.connection_age, http2, proxy, tls, fastLane])
}
