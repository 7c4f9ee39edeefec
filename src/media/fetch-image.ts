// Fetches an image from a link of an upstream: never from an address that is not public, and from no other address than
// the one that was checked (src/README.md#no-fetch). Sends no credentials.
import { lookup as resolve } from 'node:dns'
import type { LookupFunction } from 'node:net'
import { Agent, buildConnector, type Dispatcher } from 'undici'
import { lacksResources } from '../base/descriptors.ts'
import { version } from '../base/package.ts'
import { connectToAny } from '../upstream/transport/addresses.ts'
import { readingBehind } from '../upstream/transport/interim-heads.ts'
import { BadLink, checkHost, guardedLookup, MOST_REDIRECTS, readLink,
  redirectOf } from '../upstream/transport/public-link.ts'

/** Most bytes of an image. */
const IMAGE_LIMIT = 32 * 1024 * 1024
const TIMEOUT_MS = 60_000
const CONNECT_MS = 5000

export interface FetchOptions {
  /** origins that are fetched from any address: the upstreams that the operator has configured */
  readonly trusted: readonly string[]
  readonly signal: AbortSignal
  /** for tests */
  readonly resolve?: typeof resolve
}

/**
 * The bytes behind the link, as they come.
 * @throws {BadLink} it leads nowhere, or where it may not; also while the bytes are read. {Error} this machine lacks
 * what a connection takes
 */
export async function* fetchImage (
  link: string,
  { trusted, signal, resolve: resolver = resolve }: FetchOptions
): AsyncGenerator<Uint8Array> {
  const deadline = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)])
  // One pair of agents for each image: its sockets are never used for another host.
  const agents = {
    guarded: new Agent({ connect: dialer(guardedLookup(resolver)), pipelining: 0 }),
    open: new Agent({ connect: dialer(resolver as LookupFunction), pipelining: 0 })
  }
  try {
    const { body, length } = await follow(link, trusted, agents, deadline)
    if (length > IMAGE_LIMIT) throw new BadLink(`the image has ${length} bytes`)
    let size = 0
    for await (const chunk of body as AsyncIterable<Buffer>) {
      size += chunk.length
      if (size > IMAGE_LIMIT) throw new BadLink(`the image has more than ${IMAGE_LIMIT} bytes`)
      yield chunk
    }
  } catch (cause) {
    if (cause instanceof BadLink || lacksResources(cause as Error)) throw cause
    throw new BadLink('the image could not be fetched', { cause })
  } finally {
    await Promise.all([agents.guarded.destroy(), agents.open.destroy()])
  }
}

/** Each connection has one request. */
function dialer (lookup: LookupFunction): buildConnector.connector {
  const connect = connectToAny(buildConnector({ timeout: CONNECT_MS }), lookup, CONNECT_MS)
  return (asked, callback) => {
    connect(asked, (...[error, socket]) => {
      if (error !== null) { callback(error, null); return }
      readingBehind(socket).begin()
      callback(null, socket)
    })
  }
}

/** Follows redirects; each is checked as the first link was. */
async function follow (
  link: string,
  trusted: readonly string[],
  agents: { readonly guarded: Agent, readonly open: Agent },
  signal: AbortSignal
): Promise<{ readonly body: Dispatcher.ResponseData['body'], readonly length: number }> {
  let url = readLink(link)
  for (let step = 0; step <= MOST_REDIRECTS; step++) {
    const isTrusted = trusted.includes(url.origin)
    if (!isTrusted) checkHost(url)
    const { statusCode, headers, body } = await (isTrusted ? agents.open : agents.guarded).request({
      origin: url.origin, path: url.pathname + url.search, method: 'GET', signal,
      headers: { accept: 'image/*', 'accept-encoding': 'identity', 'user-agent': `model-gateway/${version}` }
    })
    if (statusCode === 200) return { body, length: Number(headers['content-length'] ?? 0) }
    body.on('error', () => {}).destroy()
    const location = redirectOf(statusCode, headers.location)
    if (location === undefined) throw new BadLink(`the link answers with status ${statusCode}`)
    url = readLink(location, url)
  }
  throw new BadLink('the link redirects too often')
}
