// store: with Redis there is one way to it, which can be read, and without Redis none.
import { at, type Report, type RuleInput, text, texts } from './input.ts'

/** Of what has another one, the schema speaks. */
const SCHEME = /^rediss?:\/\/[^\s?#]+$/
const WAYS = ['url', 'cluster', 'sentinels'] as const

export function checkStore ({ value, tree }: RuleInput, report: Report): void {
  const has = (name: string): boolean => at(value, 'store', name) !== undefined
  const ways = WAYS.filter(has)
  const driver = at(value, 'store', 'driver')
  if (driver === 'embedded' || driver === 'memory' || driver === undefined) {
    for (const name of [...ways, ...(has('sentinel_name') ? ['sentinel_name'] : [])]) report(['store', name], 'is of Redis only', 'write "driver: redis" beside it, or take it away', true)
  }
  if (driver !== 'redis') return
  const url = text(at(value, 'store', 'url'), tree, ['store', 'url'])
  const lists = ['cluster', 'sentinels'].flatMap((name) => texts(at(value, 'store', name), tree, ['store', name]))
  for (const { entry, here } of [...url === undefined ? [] : [{ entry: url, here: ['store', 'url'] }], ...lists]) {
    if (SCHEME.test(entry) && !isReadable(entry)) report(here, 'is no URL that can be read', 'in a password write %2F for "/", %40 for "@", %3A for ":", %23 for "#", %3F for "?" and %25 for "%"')
  }
  if (ways.length === 0) report(['store'], 'it is not said where Redis is', 'write "url: ${REDIS_URL}"; or "cluster:", or "sentinels:" and "sentinel_name:"')
  if (has('cluster') && ways.length > 1) report(['store', 'cluster'], `there is ${ways.find((way) => way !== 'cluster')!} too: only one of them can be right`, 'keep the one that is', true)
  if (has('sentinels') && !has('sentinel_name')) report(['store', 'sentinels'], 'it is not said what the Sentinels call the server', 'add "sentinel_name: mymaster", as their configuration has it', true)
  if (has('sentinel_name') && !has('sentinels')) report(['store', 'sentinel_name'], 'there are no sentinels that could know it', 'add "sentinels: [redis://HOST:26379]"', true)
}

/** Characters of a password that are not written as %XX end the part of the URL that they stand in. */
function isReadable (entry: string): boolean {
  try {
    const { hostname, username, password, pathname } = new URL(entry)
    decodeURIComponent(username + password)
    return hostname !== '' && !pathname.includes('@')
  } catch {
    return false
  }
}
