// Upstreams with their connections. Those outlive a reload: snapshots that reach the same origin in the same way share them.
import type { LookupFunction } from 'node:net'
import type { UpstreamConfig } from '../config/config.ts'
import { Connections } from './connections.ts'
import { dialects, type DialectModule } from './dialects/index.ts'

export interface Upstream {
  readonly name: string
  readonly config: UpstreamConfig
  readonly dialect: DialectModule
  /** before the dialect's own path; '' or "/prefix" */
  readonly basePath: string
  readonly origin: string
  readonly connections: Connections
}

interface Shared {
  readonly connections: Connections
  users: number
}

export class Upstreams {
  readonly #open = new Map<string, Shared>()
  readonly #lookup: LookupFunction | undefined
  /** where "simulator:" leads */
  simulatorUrl: string | undefined

  /** @param lookup in the place of the system's resolver */
  constructor (lookup?: LookupFunction) {
    this.#lookup = lookup
  }

  /** Each `open` has one `close`. */
  open (name: string, configured: UpstreamConfig): Upstream {
    // The simulator wants a key, as vendors do; any will do.
    // In lower case, as dialects write theirs: a name in two spellings is sent twice.
    const headers = Object.fromEntries(Object.entries(configured.headers).map(([header, value]) => [header.toLowerCase(), value]))
    const config = configured.url !== 'simulator:' ? { ...configured, headers }
      : { ...configured, url: this.simulatorUrl!, headers: { 'x-api-key': 'simulated', ...headers } }
    const url = new URL(config.url)
    const shared = this.#connect(url.origin, config)
    shared.users++
    return {
      name,
      config,
      dialect: dialects[config.dialect],
      basePath: url.pathname.replace(/\/+$/, ''),
      origin: url.origin,
      connections: shared.connections
    }
  }

  close ({ origin, config }: Upstream): void {
    const key = wayTo(origin, config)
    const shared = this.#open.get(key)
    if (shared === undefined || --shared.users > 0) return
    this.#open.delete(key)
    shared.connections.close()
  }

  /** Ends every connection at once. */
  async destroy (): Promise<void> {
    const all = [...this.#open.values()]
    this.#open.clear()
    await Promise.all(all.map(({ connections }) => connections.destroy()))
  }

  #connect (origin: string, config: UpstreamConfig): Shared {
    const key = wayTo(origin, config)
    const known = this.#open.get(key)
    if (known !== undefined) return known
    const made: Shared = { connections: new Connections(origin, config, this.#lookup), users: 0 }
    this.#open.set(key, made)
    return made
  }
}

/** All that a connection is made by: a certificate that was renewed, say, gets connections of its own. */
function wayTo (origin: string, { timeouts, tls, proxy, http2 }: UpstreamConfig): string {
  return JSON.stringify([origin, timeouts.connect, timeouts.connection_age, http2, proxy, tls])
}
