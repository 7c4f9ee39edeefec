// The address that a request came from. The only file that trusts a header for it. In core and not in http/, because a
// plugin asks for it.
import { isIPv6 } from 'node:net'
import { canonical, type Networks } from '../base/ip-address.ts'
import type { ClientRequest } from './exchange.ts'

/**
 * The client's address in canonical form: that of the socket, unless it is a trusted proxy's. Then X-Forwarded-For is
 * read from its right, because each proxy appends the address it saw, and entries further left are unverified
 * (src/README.md#client-address). Undefined: unknown, because a trusted proxy passed on an entry that is no address; to
 * be treated as untrusted.
 */
export function clientAddress (
  { address, headers }: Pick<ClientRequest, 'address' | 'headers'>,
  trusted: Networks
): string | undefined {
  let nearest = canonical(address)
  const header = headers['x-forwarded-for']
  if (header === undefined) return nearest
  const chain = typeof header === 'string' ? header : header.join()
  // Read piece by piece from the end: a header may have 64 KiB, and the walk ends at the first untrusted address.
  for (let end = chain.length; end >= 0 && nearest !== undefined && trusted(nearest);) {
    const start = end === 0 ? 0 : chain.lastIndexOf(',', end - 1) + 1      // -1 would be taken for 0
    nearest = readForwarded(chain.slice(start, end).trim())
    end = start - 1
  }
  return nearest
}

/**
 * An entry of the header: an address, maybe with a port, maybe in quotes (as some proxies write it, after RFC 7239).
 */
function readForwarded (entry: string): string | undefined {
  const [, quoted] = /^"([^"]*)"$/.exec(entry) ?? []
  const bare = quoted ?? entry
  const [, v6, v4] = /^(?:\[([^\]]+)\](?::\d{1,5})?|([\d.]+):\d{1,5})$/.exec(bare) ?? []
  return v6 === undefined ? canonical(v4 ?? bare) : isIPv6(v6) ? canonical(v6) : undefined
}
