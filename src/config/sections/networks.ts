// Lists of addresses and networks: an ambiguous entry is refused, because such a list grants access.
import { parseNetwork, type Network } from '../../base/ip-address.ts'
import type { Path, Tree } from '../yaml/position.ts'
import { type Report, texts } from './input.ts'

/** @returns the networks that could be read, with their positions */
export function checkNetworks (
  list: unknown,
  tree: Tree,
  path: Path,
  report: Report
): { readonly network: Network, readonly here: Path }[] {
  return texts(list, tree, path).flatMap(({ entry, here, shown }) => {
    const network = parseNetwork(entry)
    const lowest = network === undefined ? undefined : lowestOf(network)
    if (network === undefined) report(here, `must be an address or a network such as 10.0.0.0/8, found ${shown}`)
    // 10.1.2.3/8 is all of 10.0.0.0/8, or the one host 10.1.2.3: only its author knows
    else if (lowest !== network.address) {
      report(here, `${shown} names one host and a whole network`,
        `did you mean "${lowest}/${network.prefix}", or "${network.address}"?`)
    }
    return network === undefined ? [] : [{ network, here }]
  })
}

/** The address with all bits beyond the prefix cleared, in canonical form if the given one is. */
function lowestOf ({ family, address, prefix }: Network): string | undefined {
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
