// store: one valid address with Redis, none without it.
import { findTree } from '../yaml/position.ts'
import { at, type Report, type RuleInput, text, texts } from './input.ts'
import { driverNamed, driverNames, drivers, standardDriver } from './drivers.ts'
import { choice, duration, list, map, type Of, usd } from './schema.ts'

function redisUrl (description: string) {
  return {
    description, type: 'string', pattern: '^rediss?://[^\\s?#]+$',
    expected: 'a URL that begins with redis:// or rediss://', secret: true
  } as const
}

/** The default of `path`. */
export const DATA_FOLDER = './data'

export const store = map('Where balances, holds and the ledger live. A change needs a restart.', {
  driver: choice(driverNames.map((name) => `${name}: ${drivers[name].meaning}`).join(' '), driverNames, standardDriver),
  path: {
    description: 'The data folder: the ledger, and what the gateway generates itself; with driver redis, charges ' +
      'that wait for it. One gateway writes to it at a time.',
    type: 'string', minLength: 1, default: DATA_FOLDER
  },
  fsync_interval: duration(
    'What a power loss may take of the ledger; a mere kill takes nothing. 0s: nothing either, and every charge ' +
    'waits for the disk.',
    '100ms', { min: '0s', max: '1m' }
  ),
  windows: choice(
    'What rate limits count after anything but a clean stop. full: what was written down, at least once a second, ' +
    'and the most that may have been admitted since (a tenth of a limit at most), so that no limit is passed. ' +
    'forget: nothing.',
    ['full', 'forget'], 'full'
  ),
  verify_interval: duration(
    'How often a store in this process adds up its whole ledger again, in the background, for the metric ' +
    'gateway_ledger_differences; 0s: only when it is asked to.',
    '24h', { min: '0s' }
  ),
  url: redisUrl(
    'Address of a Redis server, with its credentials: redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// for ' +
    'TLS. Beside sentinels its host does not count.'
  ),
  cluster: list('Addresses of some nodes of a Redis Cluster, in the place of url. All have the credentials of the ' +
    'first.', redisUrl('A node.'), { minItems: 1, secret: true }),
  sentinels: list(
    'Addresses of Redis Sentinels, which know the server, in the place of url.', redisUrl('A Sentinel.'),
    { minItems: 1, secret: true }
  ),
  sentinel_name: { description: 'What the Sentinels call the server.', type: 'string', minLength: 1 },
  prefix: {
    description: 'What all keys in Redis begin with: gateways with the same one share everything.',
    type: 'string',
    pattern: '^[A-Za-z0-9._-]{1,64}$',
    expected: 'up to 64 letters, digits and . _ -', default: 'gateway'
  },
  timeout: duration(
    'How long Redis may take for a command; a slower one is away.', '250ms', { min: '10ms', max: '10s' }
  ),
  on_outage: map('What becomes of requests while Redis is away. What they cost is never forgotten: it waits in the ' +
    'data folder.', {
    auth: choice(
      'deny: no key is good, since it may have been frozen meanwhile; requests get auth_unavailable (503). ' +
      'degrade: what was known of keys counts.',
      ['deny', 'degrade'], 'deny'
    ),
    limits: choice(
      'deny: requests of keys with limits get auth_unavailable (503). degrade: each process counts for itself, ' +
      'so that as many times the limit may pass as there are processes.',
      ['deny', 'degrade'], 'deny'
    ),
    money: choice(
      'deny: what costs something gets auth_unavailable (503). degrade: each process serves from what it has set ' +
      'aside of the balance before, for at most five minutes; keys with usage limits are refused.',
      ['deny', 'degrade'], 'deny'
    ),
    lease_usd: usd(
      'With money: degrade, what each process sets aside of the balance of each account that it serves, where there ' +
      'is four times as much.',
      '1'
    )
  }, { default: {} })
}, { default: {} })

export type StoreConfig = Of<typeof store>
/** The policy for requests while Redis is away, for each kind of decision. */
export type OutageConfig = StoreConfig['on_outage']

/** A URL of Redis. One with another scheme is reported by the schema. */
const SCHEME = /^rediss?:\/\/[^\s?#]+$/
const WAYS = ['url', 'cluster', 'sentinels'] as const

/** Values of `degrade` in 0.1, by setting: still accepted (yaml/normalize.ts). */
export const FORMER_OUTAGE: Readonly<Record<string, readonly string[]>> = {
  auth: ['cached'], limits: ['local', 'allow'], money: ['leased']
}

export function checkStore ({ value, tree }: RuleInput, report: Report, warn: Report): void {
  for (const [name, words] of Object.entries(FORMER_OUTAGE)) {
    const path = ['store', 'on_outage', name]
    const { tree: { text: word = '' }, exact } = findTree(tree, path)
    if (!exact || !words.includes(word)) continue
    const other = word === 'allow' ? ', and each process counts for itself' : ''
    warn(path, `"${word}" is called "degrade"${other}`, `write "${name}: degrade"`)
  }
  const has = (name: string): boolean => at(value, 'store', name) !== undefined
  const ways = WAYS.filter(has)
  const driver = at(value, 'store', 'driver')
  const traits = driverNamed(driver ?? standardDriver)
  if (traits !== undefined && traits.isServer !== true) {
    for (const name of [...ways, ...(has('sentinel_name') ? ['sentinel_name'] : [])]) {
      report(['store', name], 'is of Redis only', 'write "driver: redis" beside it, or take it away', true)
    }
  }
  if (traits?.isServer !== true) return
  const url = text(at(value, 'store', 'url'), tree, ['store', 'url'])
  const lists = ['cluster', 'sentinels'].flatMap((name) => texts(at(value, 'store', name), tree, ['store', name]))
  for (const { entry, here } of [...url === undefined ? [] : [{ entry: url, here: ['store', 'url'] }], ...lists]) {
    if (SCHEME.test(entry) && !isReadable(entry)) {
      report(here, 'is no URL that can be read',
        'in a password write %2F for "/", %40 for "@", %3A for ":", %23 for "#", %3F for "?" and %25 for "%"')
    }
  }
  if (ways.length === 0) {
    report(['store'], 'it is not said where Redis is',
      'write "url: ${REDIS_URL}"; or "cluster:", or "sentinels:" and "sentinel_name:"')
  }
  if (has('cluster') && ways.length > 1) {
    report(['store', 'cluster'], `there is ${ways.find((way) =>
      way !== 'cluster'
    )!} too: only one of them can be right`, 'keep the one that is', true)
  }
  if (has('sentinels') && !has('sentinel_name')) {
    report(['store', 'sentinels'], 'it is not said what the Sentinels call the server',
      'add "sentinel_name: mymaster", as their configuration has it', true)
  }
  if (has('sentinel_name') && !has('sentinels')) {
    report(['store', 'sentinel_name'], 'there are no sentinels that could know it',
      'add "sentinels: [redis://HOST:26379]"', true)
  }
}

/** Characters of a password that end a part of the URL unless they are written as %XX. */
function isReadable (entry: string): boolean {
  try {
    const { hostname, username, password, pathname } = new URL(entry)
    decodeURIComponent(username + password)
    return hostname !== '' && !pathname.includes('@')
  } catch {
    return false
  }
}
