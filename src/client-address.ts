// Which address a request came from, and what a network is. The only file that believes a header about it, and the only one
// that compares addresses: they have many spellings, and a list that misses one of them is no list.
import { BlockList, isIPv4, isIPv6, SocketAddress } from 'node:net'
import type { ClientRequest } from './exchange.ts'

type Family = 'ipv4' | 'ipv6'

/** An address is the network of its whole length. */
export interface Network {
  readonly family: Family
  /** canonical */
  readonly address: string
  /** bits that count */
  readonly prefix: number
}

/** Says whether it holds a canonical address. */
export type Networks = (address: string) => boolean

/** @param text an address or CIDR as people write it in gateway.yaml. Undefined: it is neither. */
export function parseNetwork (text: string): Network | undefined {
  const [written, bits, ...rest] = text.split('/') as [string, string?, ...string[]]
  // The zone of an address means something on one machine only: a list that names one would hold on none of the others.
  const address = written.includes('%') ? undefined : canonical(written)
  if (address === undefined || rest.length > 0 || (bits !== undefined && !/^(?:0|[1-9]\d{0,2})$/.test(bits))) return undefined
  const family = familyOf(address)
  const most = BITS[family]
  if (bits === undefined) return { family, address, prefix: most }
  // ::ffff:10.0.0.0/104 is 10.0.0.0/8
  const prefix = Number(bits) - (BITS[familyOf(written)] - most)
  return prefix < 0 || prefix > most ? undefined : { family, address, prefix }
}

/** @param texts of which each is a network by `parseNetwork`. @throws {Error} one is not: names it */
export function compileNetworks (texts: readonly string[]): Networks {
  // One list per family: a BlockList finds every IPv4 address in ::/0, which who writes that has not thought of.
  const lists: Readonly<Record<Family, BlockList>> = { ipv4: new BlockList(), ipv6: new BlockList() }
  for (const text of texts) {
    const network = parseNetwork(text)
    if (network === undefined) throw new Error(`${JSON.stringify(text)} is no address and no network such as 10.0.0.0/8 or 2001:db8::/32`)
    lists[network.family].addSubnet(network.address, network.prefix, network.family)
  }
  return (address) => lists[familyOf(address)].check(address, familyOf(address))
}

/**
 * The address of who asks, canonical: that of the socket, unless it is a trusted proxy's. Then X-Forwarded-For is walked from its
 * right, because each proxy appends whom it saw, and everything further left is hearsay (protocol.md K 5.9, lessons 25).
 * Undefined: nobody can say, because a trusted proxy passed on something that is no address. It must be taken for a stranger.
 */
export function clientAddress ({ address, headers }: Pick<ClientRequest, 'address' | 'headers'>, trusted: Networks): string | undefined {
  let nearest = canonical(address)
  const header = headers['x-forwarded-for']
  if (header === undefined) return nearest
  const chain = typeof header === 'string' ? header : header.join()
  // Read piece by piece from the end: a header may have 64 KiB, and the walk ends at the first stranger.
  for (let end = chain.length; end >= 0 && nearest !== undefined && trusted(nearest);) {
    const start = end === 0 ? 0 : chain.lastIndexOf(',', end - 1) + 1      // -1 would be taken for 0
    nearest = readForwarded(chain.slice(start, end).trim())
    end = start - 1
  }
  return nearest
}

/** One entry: an address, maybe with a port, maybe in quotes (as some proxies write it, after RFC 7239). */
function readForwarded (entry: string): string | undefined {
  const [, quoted] = /^"([^"]*)"$/.exec(entry) ?? []
  const bare = quoted ?? entry
  const [, v6, v4] = /^(?:\[([^\]]+)\](?::\d{1,5})?|([\d.]+):\d{1,5})$/.exec(bare) ?? []
  return v6 === undefined ? canonical(v4 ?? bare) : isIPv6(v6) ? canonical(v6) : undefined
}

const BITS: Readonly<Record<Family, number>> = { ipv4: 32, ipv6: 128 }

function familyOf (address: string): Family {
  return address.includes(':') ? 'ipv6' : 'ipv4'
}

/**
 * One spelling per address: IPv4 inside IPv6, which a socket that takes both gives, is IPv4; IPv6 as in RFC 5952; no zone.
 * Undefined: not an address. Stricter than `URL`, which takes 0x7f.1 for one.
 */
function canonical (text: string): string | undefined {
  if (isIPv4(text)) return text
  if (!isIPv6(text)) return undefined
  const { address } = new SocketAddress({ family: 'ipv6', address: text })
  return address.startsWith('::ffff:') && address.includes('.') ? address.slice(7) : address
}
