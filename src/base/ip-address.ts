// IP addresses and networks. The only file that compares addresses: they have many spellings, and a list that misses
// one of them is no list.
import { BlockList, isIPv4, isIPv6, SocketAddress } from 'node:net'

type Family = 'ipv4' | 'ipv6'

/** A network; an address is one of full length. */
export interface Network {
  readonly family: Family
  /** canonical */
  readonly address: string
  /** bits of the prefix */
  readonly prefix: number
}

/** Whether a canonical address is in one of the networks. */
export type Networks = (address: string) => boolean

/** @param text an address or CIDR as written in gateway.yaml. Undefined: neither. */
export function parseNetwork (text: string): Network | undefined {
  const [written, bits, ...rest] = text.split('/') as [string, string?, ...string[]]
  // The zone of an address has a meaning on one machine only: a list with one would not hold on the others.
  const address = written.includes('%') ? undefined : canonical(written)
  if (
    address === undefined || rest.length > 0 || (bits !== undefined && !/^(?:0|[1-9]\d{0,2})$/.test(bits))
  ) return undefined
  const family = familyOf(address)
  const most = BITS[family]
  if (bits === undefined) return { family, address, prefix: most }
  // ::ffff:10.0.0.0/104 is 10.0.0.0/8
  const prefix = Number(bits) - (BITS[familyOf(written)] - most)
  return prefix < 0 || prefix > most ? undefined : { family, address, prefix }
}

/** @param texts networks by `parseNetwork`. @throws {Error} one is no network: names it */
export function compileNetworks (texts: readonly string[]): Networks {
  // One list per family: a single BlockList finds every IPv4 address in ::/0, which the author of that does not expect.
  const lists: Readonly<Record<Family, BlockList>> = { ipv4: new BlockList(), ipv6: new BlockList() }
  for (const text of texts) {
    const network = parseNetwork(text)
    if (network === undefined) {
      throw new Error(`${JSON.stringify(text)} is no address and no network such as 10.0.0.0/8 or 2001:db8::/32`)
    }
    lists[network.family].addSubnet(network.address, network.prefix, network.family)
  }
  return (address) => lists[familyOf(address)].check(address, familyOf(address))
}

const BITS: Readonly<Record<Family, number>> = { ipv4: 32, ipv6: 128 }

function familyOf (address: string): Family {
  return address.includes(':') ? 'ipv6' : 'ipv4'
}

/**
 * One spelling per address: IPv4 inside IPv6, as a dual-stack socket gives it, becomes IPv4; IPv6 as in RFC 5952; no
 * zone. Undefined: not an address. Stricter than `URL`, which takes 0x7f.1 for one.
 */
export function canonical (text: string): string | undefined {
  if (isIPv4(text)) return text
  if (!isIPv6(text)) return undefined
  const { address } = new SocketAddress({ family: 'ipv6', address: text })
  return address.startsWith('::ffff:') && address.includes('.') ? address.slice(7) : address
}

/** The address with all bits beyond the prefix cleared, in canonical form if the given one is. */
export function lowestOf ({ family, address, prefix }: Network): string | undefined {
  const width = family === 'ipv4' ? 8 : 16
  const pieces = family === 'ipv4' ? address.split('.').map(Number) : groupsOf(address)
  const kept = pieces.map((piece, index) => {
    const gone = width - Math.min(width, Math.max(0, prefix - index * width))
    return piece >> gone << gone
  })
  return parseNetwork(family === 'ipv4' ? kept.join('.') : kept.map((piece) => piece.toString(16)).join(':'))?.address
}

/** All eight groups of an IPv6 address. A URL has no other form for them than hexadecimal. */
function groupsOf (address: string): number[] {
  const [head = '', tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split('::')
  const read = (part: string): number[] => part === '' ? [] : part.split(':').map((group) => parseInt(group, 16))
  if (tail === undefined) return read(head)
  const [first, last] = [read(head), read(tail)]
  return [...first, ...Array.from({ length: 8 - first.length - last.length }, () => 0), ...last]
}
