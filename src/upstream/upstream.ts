// Upstreams with their connection pools. Pools outlive a reload: snapshots that name the same origin share one.
import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { Pool } from 'undici'
import type { UpstreamConfig } from '../config/config.ts'
import { dialects, type DialectModule } from './dialects/index.ts'

export interface Upstream {
  readonly name: string
  readonly config: UpstreamConfig
  readonly dialect: DialectModule
  /** before the dialect's own path; '' or "/prefix" */
  readonly basePath: string
  readonly origin: string
  /** for bodies that the pipeline reads */
  readonly pool: Pool
  /** for bytes that pass through unread */
  readonly agent: HttpAgent
}

interface Connections {
  readonly pool: Pool
  readonly agent: HttpAgent
  users: number
}

export class Upstreams {
  readonly #open = new Map<string, Connections>()
  /** where "simulator:" leads */
  simulatorUrl: string | undefined

  /** Each `open` has one `close`. */
  open (name: string, configured: UpstreamConfig): Upstream {
    // The simulator wants a key, as vendors do; any will do.
    const config = configured.url !== 'simulator:' ? configured
      : { ...configured, url: this.simulatorUrl!, headers: { 'x-api-key': 'simulated', ...configured.headers } }
    const url = new URL(config.url)
    const connections = this.#connect(url.origin, config.timeouts.connect)
    connections.users++
    return {
      name,
      config,
      dialect: dialects[config.dialect],
      basePath: url.pathname.replace(/\/+$/, ''),
      origin: url.origin,
      pool: connections.pool,
      agent: connections.agent
    }
  }

  close (upstream: Upstream): void {
    const key = poolKey(upstream.origin, upstream.config.timeouts.connect)
    const connections = this.#open.get(key)
    if (connections === undefined || --connections.users > 0) return
    this.#open.delete(key)
    // A graceful close: what is in flight ends first. There is nobody left to tell if it fails.
    connections.pool.close().catch(() => {})
    connections.agent.destroy()
  }

  /** Ends every connection at once. */
  async destroy (): Promise<void> {
    const all = [...this.#open.values()]
    this.#open.clear()
    for (const { agent } of all) agent.destroy()
    await Promise.all(all.map(({ pool }) => pool.destroy()))
  }

  #connect (origin: string, connectTimeout: number): Connections {
    const key = poolKey(origin, connectTimeout)
    const known = this.#open.get(key)
    if (known !== undefined) return known
    const made: Connections = {
      // Our own timers replace undici's: they stop while we hold a stream back for a slow client (see call.ts).
      // `pipelining: 1` because an answer may stream for minutes and must not block another.
      pool: new Pool(origin, { connections: null, pipelining: 1, allowH2: false, headersTimeout: 0, bodyTimeout: 0, connect: { timeout: connectTimeout } }),
      // Without an agent of ours http-proxy-3 closes every upstream connection (style.md 1.7).
      agent: origin.startsWith('https:') ? new HttpsAgent({ keepAlive: true }) : new HttpAgent({ keepAlive: true }),
      users: 0
    }
    this.#open.set(key, made)
    return made
  }
}

function poolKey (origin: string, connectTimeout: number): string {
  return `${origin} ${connectTimeout}`
}
