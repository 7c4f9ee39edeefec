// `npm test`, `npm run test:rest` and `npm run test:all`: runs their part of the tests in tap, and says what it has left out.
import { spawnSync } from 'node:child_process'
import { basename } from 'node:path'
import { sets } from './sets.ts'

const { quick, redis, long } = sets()
const rest = [...redis, ...long].toSorted()
const parts: Readonly<Record<string, readonly string[]>> = { quick, rest, all: [...quick, ...rest].toSorted() }
const files = parts[process.argv[2] ?? '']
if (files === undefined) throw new Error(`say which: ${Object.keys(parts).join(', ')}`)

// One command line with nothing in it that varies but names of ours: through the shell, because npm is a .cmd on Windows.
const { status } = spawnSync(`npm run --silent tap -- ${files.join(' ')}`, { shell: true, stdio: 'inherit' })
if (files === quick) {
  const names = (paths: readonly string[]): string => paths.map((path) => basename(path, '.test.ts')).join(', ')
  console.log(`\nLeft out, and run by npm run test:all:
  ${redis.length} files of tests that start Redis (redis-server has to be installed): ${names(redis)}
  ${long.length} that take longer: ${names(long)}`)
}
process.exit(status ?? 1)
