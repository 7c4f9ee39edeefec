// The way to a file that is not at its upstream's own address: redirects, and links that the upstream gave. Up to three
// are followed, with credentials at the upstream itself only, and to public addresses or configured upstreams only
// (src/README.md#no-fetch).
import { lookup } from 'node:dns'
import { request as requestHttp, type ClientRequest } from 'node:http'
import { request as requestHttps } from 'node:https'
import type { Socket } from 'node:net'
import { buildConnector } from 'undici'
import { version } from '../../base/package.ts'
import type { OwnRequest } from '../../core/endpoint.ts'
import type { Upstream } from '../../core/upstream.ts'
import { connectionsOf } from '../pool.ts'
import { connectToAny } from '../transport/addresses.ts'
import { NotConnected } from '../transport/connect.ts'
import { BadLink, checkHost, guardedLookup, MOST_REDIRECTS, readLink } from '../transport/public-link.ts'

const CONNECT_MS = 5000

type Headers = Readonly<Record<string, string>>

export class FileLinks {
  readonly #byOrigin: ReadonlyMap<string, Upstream>
  readonly #home: Upstream
  #url: URL
  #steps = 0

  /** @param own the request whose answer leads on */
  constructor (configured: Iterable<Upstream>, home: Upstream, own: OwnRequest) {
    this.#byOrigin = new Map([...configured, home].map((upstream) => [upstream.origin, upstream]))
    this.#home = home
    this.#url = new URL(own.path, home.origin)
  }

  /**
   * The request behind the link, not yet sent.
   * @param credentials sent to the origin of the upstream only
   * @throws {BadLink}
   */
  request (link: string, method: string, headers: Headers, credentials: Headers): ClientRequest {
    if (this.#steps++ === MOST_REDIRECTS) throw new BadLink('the link redirects too often')
    const url = this.#url = readLink(link, this.#url)
    const upstream = this.#byOrigin.get(url.origin)
    const sent = { ...headers, ...(upstream === this.#home ? credentials : { 'user-agent': `model-gateway/${version}` }) }
    const send = url.protocol === 'https:' ? requestHttps : requestHttp
    if (upstream !== undefined) {
      const { agent, uncertifiedAgent } = connectionsOf(upstream)
      return send(url, { method, headers: sent, agent: upstream === this.#home ? agent : uncertifiedAgent })
    }
    checkHost(url)
    const connect = connectToAny(buildConnector({ timeout: CONNECT_MS }), guardedLookup(lookup), CONNECT_MS)
    // No agent: a connection that was checked for this link is used for nothing else.
    return send(url, { method, headers: sent,
      createConnection (_options, connected) {
        connect({ hostname: url.hostname.replace(/^\[|\]$/g, ''), host: url.host, protocol: url.protocol,
          port: url.port }, (...[error, socket]) => {
          connected(error === null ? null : new NotConnected(error), socket as Socket)
        })
        return undefined
      } })
  }
}
