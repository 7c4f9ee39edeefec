// server: addresses to listen on, trusted networks, and sizes that must fit each other.
import { isIP } from 'node:net'
import { quote } from '../check/messages.ts'
import { driverNamed } from './drivers.ts'
import { at, type Report, type RuleInput, text, texts } from './input.ts'
import { checkNetworks } from './networks.ts'
import { choice, duration, flag, list, map, type Of, size } from './schema.ts'

function listen (description: string, standard: string) {
  return { description, type: 'string', default: standard } as const
}

function url (description: string) {
  return { description, type: 'string', pattern: '^https?://[^\\s?#@]+[^\\s?#@/]$',
    expected: 'an http or https URL without credentials, query and a slash at its end' } as const
}

/** The default of `admin.listen`. */
export const ADMIN_LISTEN = '127.0.0.1:9090'

export const server = map('Where the gateway listens, and its limits. A change needs a restart.', {
  workers: {
    description: 'Processes that share the addresses of clients, on this machine; about one per core. More than ' +
      'one needs "store.driver: redis".',
    type: 'integer', minimum: 1, maximum: 128, default: 1
  },
  api: map('The address that API clients use.', {
    listen: listen('"host:port"; port 0 takes a free one; IPv6 as "[::1]:8080".', '127.0.0.1:8080'),
    url: url('The address under which clients reach this listener, for the commands that the page Try it shows; ' +
      'absent: where it listens.'),
    timeouts: map('How long a client may take.', {
      headers: duration('From the first byte of a request to the end of its head.', '10s'),
      body_idle: duration('Between two pieces of a request body.', '15s'),
      write_stall: duration('A client that takes nothing for so long has left.', '60s'),
      hold_head: duration(
        'When nothing is committed after so long, the head of the stream is sent, then pings.', '10s'
      ),
      ping: duration('Silence in a stream after which a ping is sent.', '15s')
    }, { default: {} })
  }, { default: {} }),
  public: map('The address of the public pages: prices, links to images and pages for customers.', {
    listen: listen('"host:port"; port 0 takes a free one.', '127.0.0.1:8081'),
    url: url('The address under which clients reach this listener, for links to images; absent: where it listens.'),
    docs: flag('Serves pages for customers at /docs and a description of the API at /openapi.json.', false),
    name: { description: 'The name that these pages show, such as that of your company; absent: a neutral one.',
      type: 'string', pattern: '^[^\\p{Cc}]{1,80}$', expected: '1 to 80 characters on one line' },
    link_life: duration('How long a link to an image works.', '24h', { min: '1m' }),
    link_space: size('All images behind links; beyond it no more are made until some expire.', '10GB', { min: '1MB' })
  }, { default: {} }),
  admin: map('The address of the operator: metrics, health, admin API.', {
    listen: listen('"host:port"; port 0 takes a free one. Keep it private.', ADMIN_LISTEN),
    token: {
      description: 'Bearer token of the admin API; empty: one is made in the data folder.',
      type: 'string', default: '', secret: true
    },
    hosts: list(
      'Names under which browsers may open the pages at /ui/, such as gateway.internal, and under which /metrics ' +
      'answers. IP addresses and loopback names always work.',
      {
        description: 'A name, without port.', type: 'string', pattern: '^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$',
        expected: 'a host name in small letters, without port'
      },
      { default: [] }
    )
  }, { default: {} }),
  seal_secrets: list(
    'What seals texts that clients keep and send back, such as thoughts: the first seals, all of them open. Gateways ' +
    'that share clients need the same. To change one, write the new one behind it, in all gateways, then before it; ' +
    'and leave the old one for as long as conversations last. Absent: one is generated in the data folder.',
    {
      description: 'A secret; "openssl rand -hex 32" makes one. Empty: none.', type: 'string', secret: true
    },
    { default: [] }
  ),
  trusted_proxies: list('Networks whose X-Forwarded-For is believed.', {
    description: 'An address, or a network such as 10.0.0.0/8.', type: 'string'
  }, { default: [] }),
  body_limit: size('Largest request body, after decompression.', '32MB', { min: '1KB', max: '1GB' }),
  body_memory: size(
    'All request bodies in flight; beyond it requests are refused with queue_full. Bodies of 1 MB or more of one ' +
    'account take half of it at most: its next one waits before it is read, for timeouts.body_idle, and is then ' +
    'refused with queue_full.',
    '512MB', { min: '1MB' }
  ),
  body_disk: size(
    'What waits on disk: files of forms of more than 1 MB, beyond which requests are refused with queue_full, and ' +
    'answers that their clients are slow to take.',
    '4GB', { min: '1MB' }
  ),
  answer_memory: size(
    'All answers in flight that are read whole (JSON of more than 64 KB), until their clients have them; beyond it ' +
    'no new ones are asked for (service_unavailable), and those that come wait. Absent: an eighth of the heap\'s ' +
    'limit, at most 512MB.',
    undefined, { min: '1MB' }
  ),
  body_rate: size(
    'Least bytes a second of a request body that comes, counted over timeouts.body_idle; a slower one gets ' +
    'request_timeout, and its connection ends. 0B: none.',
    '512B', { min: '0B', max: '1MB' }
  ),
  fast_lane: choice(
    'on: plain small requests, and plain upstreams, are served by code of the gateway\'s own, which takes less CPU than ' +
    'Node\'s; all others by Node. off: all by Node. Clients see no difference.',
    ['on', 'off'], 'on'
  ),
  overload: map('When the process itself has too much to do: new requests are refused with service_unavailable, ' +
    'those that run go on.', {
    event_loop_delay: duration(
      'How late its event loop is, three times in a row; 0s: never.', '500ms', { min: '0s', max: '1m' }
    ),
    memory: {
      description: 'Percent of the memory that it may have: of the heap\'s limit, or of memory_limit; 0: never.',
      type: 'integer', minimum: 0, maximum: 100, default: 90
    },
    memory_limit: size(
      'All that the processes of the gateway may have; absent: the limit of the container, if it has one.',
      undefined, { min: '64MB' }
    )
  }, { default: {} }),
  drain_delay: duration(
    'After SIGTERM, how long connections are still accepted while readyz already fails.', '0s', { min: '0s' }
  ),
  drain_timeout: duration(
    'Behind drain_delay, how long until the process is gone. Running requests may take all of it but the last quarter, ' +
    'or the last 5 seconds, if these are less.', '30s', { min: '0s' }
  )
}, { default: {} })

export type ServerConfig = Of<typeof server>
export type PublicConfig = ServerConfig['public']
export type OverloadConfig = ServerConfig['overload']

const SHORTEST_TOKEN = 8
const SHORTEST_SEAL_SECRET = 32

export function checkServer ({ value, tree }: RuleInput, report: Report, warn: Report): void {
  const listeners = new Map<string, string>()
  for (const name of ['api', 'public', 'admin']) {
    const path = ['server', name, 'listen']
    const address = text(at(value, ...path), tree, path)
    if (address === undefined) continue
    const wrong = explainListen(address)
    if (wrong !== undefined) {
      report(path, `must be "host:port" such as 127.0.0.1:8080, found ${quote(address)}`, wrong)
      continue
    }
    const other = listeners.get(address)
    if (other !== undefined && !address.endsWith(':0')) report(path, `server.${other} listens on ${address} already`)
    listeners.set(address, name)
  }
  for (const { network, here } of checkNetworks(
    at(value, 'server', 'trusted_proxies'), tree, ['server', 'trusted_proxies'], report
  )) {
    // src/README.md#client-address
    if (network.prefix === 0) {
      warn(here, 'every client is a trusted proxy, and may claim any address: no ip_whitelist holds',
        'name the networks of your proxies')
    }
  }
  const token = text(at(value, 'server', 'admin', 'token'), tree, ['server', 'admin', 'token'])
  if (token !== undefined && token !== '') {
    const path = ['server', 'admin', 'token']
    if (token.length < SHORTEST_TOKEN) {
      report(path, `must have at least ${SHORTEST_TOKEN} characters: who guesses it can give himself money`,
        'openssl rand -hex 16 makes one; without one the gateway does')
    } else if (!/^[\x21-\x7e]+$/.test(token)) {
      report(path, 'holds a space, or something that no header can', 'write letters and digits')
    }
  }
  for (const { entry, here } of texts(at(value, 'server', 'seal_secrets'), tree, ['server', 'seal_secrets'])) {
    if (entry !== '' && entry.length < SHORTEST_SEAL_SECRET) {
      report(here, `must have at least ${SHORTEST_SEAL_SECRET} characters: who guesses it reads what it seals`,
        'openssl rand -hex 32 makes one; without any the gateway does')
    }
  }
  const workers = at(value, 'server', 'workers')
  const isShared = driverNamed(at(value, 'store', 'driver'))?.isShared === true
  if (typeof workers === 'number' && workers > 1 && !isShared) {
    report(['server', 'workers'], 'more than one process needs a store that all of them share',
      'write "store: { driver: redis, url: ... }", or "workers: 1"')
  }
  const [limit, memory] = [at(value, 'server', 'body_limit'), at(value, 'server', 'body_memory')]
  if (typeof limit === 'number' && typeof memory === 'number' && memory < limit) {
    report(['server', 'body_memory'], 'must not be less than body_limit: the largest body would never fit')
  }
  const all = at(value, 'server', 'overload', 'memory_limit')
  if (typeof all === 'number' && typeof memory === 'number' && all <= memory) {
    report(['server', 'overload', 'memory_limit'], 'must be more than body_memory: bodies alone would fill it',
      'lower body_memory too')
  }
}

function explainListen (address: string): string | undefined {
  const match = /^(\[[^\]]*\]|[^:[\]\s/]+):(\d{1,5})$/.exec(address)
  if (match === null) {
    if (/^\d{1,5}$/.test(address) || /^:\d{1,5}$/.test(address)) {
      return `for all addresses write "0.0.0.0:${address.replace(':', '')}"`
    }
    if (address.split(':').length > 2) return 'an IPv6 address stands in brackets: "[::1]:8080"'
    return address.includes(':') ? 'the port is a number' : 'add a port, such as ":8080"'
  }
  if (match[1]!.startsWith('[') && isIP(match[1]!.slice(1, -1)) !== 6) return 'only an IPv6 address stands in brackets'
  return Number(match[2]) > 65535 ? 'a port is at most 65535' : undefined
}
