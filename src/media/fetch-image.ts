// Fetches an image from a link of an upstream: never from an address that is not public, and from no other address than
// the one that was checked (src/README.md#no-fetch). Sends no credentials.
import { lookup as resolve, type LookupAddress } from 'node:dns'
import { isIP, type LookupFunction } from 'node:net'
import { Agent, type Dispatcher } from 'undici'
import { version } from '../base/package.ts'
import { isPublicAddress } from '../base/public-address.ts'

/** Most bytes of an image. */
const IMAGE_LIMIT = 32 * 1024 * 1024
const TIMEOUT_MS = 60_000
const CONNECT_MS = 5000
const MOST_REDIRECTS = 3

export interface FetchOptions {
  /** origins that are fetched from any address: the upstreams that the operator has configured */
  readonly trusted: readonly string[]
  readonly signal: AbortSignal
  /** for tests */
  readonly resolve?: typeof resolve
}

/** The link can't be used: a failure of the upstream that gave it. */
export class BadLink extends Error {
  override readonly name = 'BadLink'
}

/**
 * The bytes behind the link, as they come.
 * @throws {BadLink} it leads nowhere, or where it may not; also while the bytes are read
 */
export async function* fetchImage (
  link: string,
  { trusted, signal, resolve: resolver = resolve }: FetchOptions
): AsyncGenerator<Uint8Array> {
  const deadline = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)])
  // One pair of agents for each image: its sockets are never used for another host.
  const agents = {
    guarded: new Agent({ connect: { timeout: CONNECT_MS, lookup: guardedLookup(resolver) }, pipelining: 0 }),
    open: new Agent({ connect: { timeout: CONNECT_MS }, pipelining: 0 })
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
    if (cause instanceof BadLink) throw cause
    throw new BadLink('the image could not be fetched', { cause })
  } finally {
    await Promise.all([agents.guarded.destroy(), agents.open.destroy()])
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
    const { location } = headers
    if (![301, 302, 303, 307, 308].includes(statusCode) || typeof location !== 'string') {
      throw new BadLink(`the link answers with status ${statusCode}`)
    }
    url = readLink(location, url)
  }
  throw new BadLink('the link redirects too often')
}

function readLink (link: string, base?: URL): URL {
  const url = URL.parse(link, base?.href)
  if (url === null) throw new BadLink('the link is no URL')
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw new BadLink(`the link is not of the web: ${url.protocol}`)
  }
  if (url.username !== '' || url.password !== '') throw new BadLink('the link holds credentials')
  return url
}

/**
 * Checks an address in the URL itself, for which no lookup is made. The parser has normalized forms such as 0x7f.1 and
 * 2130706433.
 */
function checkHost ({ hostname }: URL): void {
  const host = hostname.replace(/^\[|\]$/g, '')
  if (isIP(host) !== 0 && !isPublicAddress(host)) throw new BadLink(`the link leads to ${host}, which is not public`)
}

/**
 * A DNS lookup that returns public addresses only. The connection uses its result, so no second lookup could differ.
 */
export function guardedLookup (resolver: typeof resolve): LookupFunction {
  return (hostname, options, callback) => {
    resolver(hostname, { ...options, all: true }, (error, found: readonly LookupAddress[]) => {
      if (error !== null) { callback(error, []); return }
      const refused = found.find(({ address }) => !isPublicAddress(address))
      if (refused !== undefined || found.length === 0) {
        callback(new BadLink(`the link leads to ${refused?.address ?? 'nowhere'}, which is not public`), [])
        return
      }
      if (options.all === true) callback(null, [...found])
      else callback(null, found[0]!.address, found[0]!.family)
    })
  }
}
