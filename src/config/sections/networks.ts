// Lists of addresses and networks: an ambiguous entry is refused, because such a list grants access.
import { lowestOf, parseNetwork, type Network } from '../../base/ip-address.ts'
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
