// Which tests `npm test` runs, and which it leaves to `npm run test:all`: what needs Redis, and what takes long.
import { existsSync, globSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { packageRoot } from '../src/package-root.ts'

/** More than about eight seconds of a processor's time. Of each part of the gateway `npm test` keeps some. */
const LONG = new Set([
  'admin-api', 'admin-command', 'admin-command-refused', 'aliases', 'billing', 'billing-parallel', 'billing-random', 'channels', 'command', 'compressed', 'config', 'config-keys',
  'config-user-plugin', 'count-tokens', 'crash', 'drain', 'explain-command', 'failover', 'failure-table', 'files', 'forward', 'idempotency', 'images', 'key-limits',
  'key-policy', 'maintenance', 'memory', 'models-info', 'omissions', 'pack', 'plugin-faults', 'price-in-force', 'queue', 'quote', 'rehearse', 'reload', 'resilience', 'schema-validate', 'sdk-ai',
  'sdk-anthropic', 'sdk-chat-upstream', 'sdk-images', 'sdk-videos', 'store-embedded-kill', 'truth-table', 'user-plugin', 'video-content', 'videos', 'videos-kill', 'websocket', 'wrong-types'
])

export interface Sets {
  readonly quick: readonly string[]
  /** start Redis servers: `redis-server` and `redis-cli` have to be installed */
  readonly redis: readonly string[]
  readonly long: readonly string[]
}

/** @returns paths from the package's folder, sorted @throws {Error} a long one is not there */
export function sets (): Sets {
  const files = globSync('test/*.test.ts', { cwd: packageRoot }).map((path) => path.replaceAll('\\', '/')).toSorted()
  const nameOf = (path: string): string => basename(path, '.test.ts')
  const lost = [...LONG].filter((name) => !files.some((path) => nameOf(path) === name))
  if (lost.length > 0) throw new Error(`test/sets.ts names what is not there: ${lost.join(', ')}`)
  const redis = files.filter((path) => startsRedis(path))
  const long = files.filter((path) => LONG.has(nameOf(path)) && !redis.includes(path))
  return { quick: files.filter((path) => !redis.includes(path) && !long.includes(path)), redis, long }
}

/** By what it imports, and what that imports. */
function startsRedis (path: string, seen = new Set<string>()): boolean {
  if (path === 'test/redis-server.ts') return true
  if (seen.has(path)) return false
  seen.add(path)
  const imported = readFileSync(join(packageRoot, path), 'utf8').matchAll(/^import (?!type )[^']*'(\.{1,2}\/[^']+\.ts)'/gm)
  return [...imported].some(([, to]) => {
    const next = join(dirname(path), to!).replaceAll('\\', '/')
    return next.startsWith('test/') && existsSync(join(packageRoot, next)) && startsRedis(next, seen)    // not what an example in a text imports
  })
}
