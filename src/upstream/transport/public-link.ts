// Links that an upstream gives: they are followed to public addresses only, and to no other address than the one that
// was checked (src/README.md#no-fetch).
import type { lookup as resolve, LookupAddress } from 'node:dns'
import { isIP, type LookupFunction } from 'node:net'
import { isPublicAddress } from '../../base/public-address.ts'

export const MOST_REDIRECTS = 3

/** The link can't be used: a failure of the upstream that gave it. */
export class BadLink extends Error {
  override readonly name = 'BadLink'
}

/** Where an answer leads on to; undefined: it is no redirect. */
export function redirectOf (status: number, location: string | string[] | undefined): string | undefined {
  return [301, 302, 303, 307, 308].includes(status) && typeof location === 'string' ? location : undefined
}

/** @throws {BadLink} */
export function readLink (link: string, base?: URL): URL {
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
 * @throws {BadLink}
 */
export function checkHost ({ hostname }: URL): void {
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
