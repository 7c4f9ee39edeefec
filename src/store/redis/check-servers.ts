// Checks that a Redis is fit to keep money: new enough, and without eviction; warns of one that does not persist.
import type { Redis } from 'ioredis'
import type { Logger } from 'pino'

const OLDEST = 7

/** @throws {Error} it would lose money: says how, and what to set */
export async function checkServers (servers: readonly Redis[], log: Pick<Logger, 'warn'>): Promise<void> {
  await Promise.all(servers.map(async (server) => { await check(server, log) }))
}

async function check (server: Redis, log: Pick<Logger, 'warn'>): Promise<void> {
  const { name, host, port } = server.options
  // Without Sentinels the client's option is null.
  const where = typeof name === 'string' ? `The Redis that Sentinels call ${name}` : `Redis at ${host}:${port}`
  const told = await fieldsOf(server)
  if (told === undefined) {
    log.warn(
      `${where} does not tell what it is (INFO is forbidden): see to it that its version is ${OLDEST} or later, ` +
      'that maxmemory-policy is noeviction, and that it has persistence'
    )
    return
  }
  const version = told.get('redis_version')
  if (version !== undefined && parseInt(version, 10) < OLDEST) {
    throw new Error(`${where} has version ${version}: the store needs ${OLDEST} or later`)
  }
  const policy = told.get('maxmemory_policy')
  if (policy !== undefined && policy !== 'noeviction' && told.get('maxmemory') !== '0') {
    throw new Error(
      `${where} forgets keys when its memory is full (maxmemory-policy ${policy}): balances would vanish. Set ` +
      'maxmemory-policy noeviction, and give it a Redis of its own.'
    )
  }
  if (told.get('aof_enabled') === '1') return
  const saves = await server.config('GET', 'save').then((pair) => (pair as string[])[1], () => undefined)
  if (saves === undefined) {
    log.warn(
      `${where} does not tell whether it saves what it knows (CONFIG is forbidden), and has no append-only file: ` +
      'what its restart forgets is gone, but for the charges of the last minutes'
    )
  } else if (saves === '') {
    log.warn(
      `${where} writes nothing down: with its restart all balances are gone, but for the charges of the last ` +
      'minutes. Set appendonly yes.'
    )
  } else {
    log.warn(
      `${where} has no append-only file, only snapshots: a crash of it takes what came since the last one, but for ` +
      'the charges of the last minutes. Set appendonly yes.'
    )
  }
}

/** Undefined: the user lacks the right to read them. */
async function fieldsOf (server: Redis): Promise<ReadonlyMap<string, string> | undefined> {
  try {
    const text = (await Promise.all(['server', 'memory', 'persistence'].map(async (section) =>
      await server.info(section)
    ))).join('\n')
    return new Map([...text.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name!, value!]))
  } catch (thrown) {
    if (/^(?:NOPERM|ERR unknown command)/.test((thrown as Error).message)) return undefined
    throw thrown
  }
}
