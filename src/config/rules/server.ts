// server: addresses to listen on, networks to believe, and sizes that must fit each other.
import { isIP } from 'node:net'
import { quote } from '../sentence.ts'
import { at, type Report, type RuleInput, text } from './input.ts'
import { checkNetworks } from './network.ts'

const SHORTEST_TOKEN = 8

export function checkServer ({ value, tree }: RuleInput, report: Report, warn: Report): void {
  const listeners = new Map<string, string>()
  for (const name of ['api', 'public', 'admin']) {
    const path = ['server', name, 'listen']
    const address = text(at(value, ...path), tree, path)
    if (address === undefined) continue
    const wrong = explainListen(address)
    if (wrong !== undefined) { report(path, `must be "host:port" such as 127.0.0.1:8080, found ${quote(address)}`, wrong); continue }
    const other = listeners.get(address)
    if (other !== undefined && !address.endsWith(':0')) report(path, `server.${other} listens on ${address} already`)
    listeners.set(address, name)
  }
  for (const { network, here } of checkNetworks(at(value, 'server', 'trusted_proxies'), tree, ['server', 'trusted_proxies'], report)) {
    // lesson 25
    if (network.prefix === 0) warn(here, 'every client is a trusted proxy, and may claim any address: no ip_whitelist holds', 'name the networks of your proxies')
  }
  const token = text(at(value, 'server', 'admin', 'token'), tree, ['server', 'admin', 'token'])
  if (token !== undefined && token !== '') {
    const path = ['server', 'admin', 'token']
    if (token.length < SHORTEST_TOKEN) report(path, `must have at least ${SHORTEST_TOKEN} characters: who guesses it can give himself money`, 'openssl rand -hex 16 makes one; without one the gateway does')
    else if (!/^[\x21-\x7e]+$/.test(token)) report(path, 'holds a space, or something that no header can', 'write letters and digits')
  }
  const workers = at(value, 'server', 'workers')
  if (typeof workers === 'number' && workers > 1 && at(value, 'store', 'driver') !== 'redis') {
    report(['server', 'workers'], 'more than one process needs a store that all of them share', 'write "store: { driver: redis, url: ... }", or "workers: 1"')
  }
  const [limit, memory] = [at(value, 'server', 'body_limit'), at(value, 'server', 'body_memory')]
  if (typeof limit === 'number' && typeof memory === 'number' && memory < limit) {
    report(['server', 'body_memory'], 'must not be less than body_limit: the largest body would never fit')
  }
  const all = at(value, 'server', 'overload', 'memory_limit')
  if (typeof all === 'number' && typeof memory === 'number' && all <= memory) {
    report(['server', 'overload', 'memory_limit'], 'must be more than body_memory: bodies alone would fill it', 'lower body_memory too')
  }
}

function explainListen (address: string): string | undefined {
  const match = /^(\[[^\]]*\]|[^:[\]\s/]+):(\d{1,5})$/.exec(address)
  if (match === null) {
    if (/^\d{1,5}$/.test(address) || /^:\d{1,5}$/.test(address)) return `for all addresses write "0.0.0.0:${address.replace(':', '')}"`
    if (address.split(':').length > 2) return 'an IPv6 address stands in brackets: "[::1]:8080"'
    return address.includes(':') ? 'the port is a number' : 'add a port, such as ":8080"'
  }
  if (match[1]!.startsWith('[') && isIP(match[1]!.slice(1, -1)) !== 6) return 'only an IPv6 address stands in brackets'
  return Number(match[2]) > 65535 ? 'a port is at most 65535' : undefined
}
