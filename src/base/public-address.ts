// Addresses of the public internet, to which alone a link may lead (src/README.md#no-fetch). An address that is not
// known to be public is not.
import { isIP } from 'node:net'
import { compileNetworks } from './ip-address.ts'

/** IANA's special-purpose registry for IPv4, and multicast. */
const v4: readonly string[] = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.31.196.0/24',
  '192.52.193.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '192.175.48.0/24',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4'
]

/**
 * Parts of 2000::/3, the only allocated range, that are not public: special purposes and Teredo, documentation, 6to4.
 * The other special ranges carry no IPv6 host.
 */
const v6: readonly string[] = ['2001::/23', '2001:db8::/32', '2002::/16', '2620:4f:8000::/48', '3fff::/20']

const isSpecial = compileNetworks([...v4, ...v6])
const isHandedOut = compileNetworks(['2000::/3'])

/**
 * Addresses that embed an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo) lie outside 2000::/3 or in one of its
 * special parts, so none of them is public here, whatever they embed.
 * @param address from a resolver, or from a URL: without brackets
 */
export function isPublicAddress (address: string): boolean {
  const plain = address.split('%', 1)[0]!                     // the zone of a link-local address
  switch (isIP(plain)) {
    case 4: return !isSpecial(plain)
    case 6: return isHandedOut(plain) && !isSpecial(plain)
    default: return false
  }
}
