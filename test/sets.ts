// Which test files `npm test` runs, and which it leaves to `npm run test:rest`: the folder e2e, and what starts Redis.
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { packageRoot } from '../src/base/package.ts'

export interface Sets {
  /** needs nothing but `npm ci` */
  readonly quick: readonly string[]
  /** start Redis servers: `redis-server` and `redis-cli` have to be installed */
  readonly redis: readonly string[]
  /** real processes and kills, and the official SDKs, which the folder's own package.json names */
  readonly e2e: readonly string[]
}

/** @returns paths from the package's folder, sorted */
export function sets (): Sets {
  const files = globSync('test/**/*.test.ts', { cwd: packageRoot, exclude: ['**/node_modules/**'] })
    .map((path) => path.replaceAll('\\', '/')).toSorted()
  const e2e = files.filter((path) => path.startsWith('test/e2e/'))
  const redis = files.filter((path) => !e2e.includes(path) && startsRedis(path))
  return { quick: files.filter((path) => !e2e.includes(path) && !redis.includes(path)), redis, e2e }
}

/** By what it imports, and what that imports. */
function startsRedis (path: string, seen = new Set<string>()): boolean {
  if (path === 'test/support/redis-server.ts') return true
  if (seen.has(path)) return false
  seen.add(path)
  const imported = readFileSync(join(packageRoot, path), 'utf8').matchAll(
    /^import (?!type )[^']*'(\.{1,2}\/[^']+\.ts)'/gm
  )
  return [...imported].some(([, to]) => {
    const next = join(dirname(path), to!).replaceAll('\\', '/')
    // not what an example in a text imports
    return next.startsWith('test/') && existsSync(join(packageRoot, next)) && startsRedis(next, seen)
  })
}
