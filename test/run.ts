// `npm test`, `npm run test:rest` and `npm run test:all`: runs their part of the test files, and says what it has left
// out.
import { execFileSync, spawnSync } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { packageRoot } from '../src/base/package.ts'
import { packed, runFiles } from './run-files.ts'
import { sets } from './sets.ts'

const { quick: all, redis, e2e } = sets()
/** Tests of these folders see how requests and answers travel: without the lanes, all others would say the same. */
const SERVING = ['cluster', 'endpoints', 'gateway', 'http', 'pipeline', 'upstream']
const hasLanes = process.env['FAST_LANE'] !== 'off'
const quick = hasLanes ? all : all.filter((path) => SERVING.includes(path.split('/')[1]!) && !triesBoth(path))
const rest = [...redis, ...e2e].toSorted().map((file) => [file])
const parts: Readonly<Record<string, readonly (readonly string[])[]>> = {
  quick: packed(quick), rest, all: [...packed(quick), ...rest]
}
const part = process.argv[2] ?? ''
const packs = parts[part]
if (packs === undefined) throw new Error(`say which: ${Object.keys(parts).join(', ')}`)

// Command lines with nothing in them that varies: through the shell, because npm is a .cmd on Windows.
const options = { cwd: packageRoot, shell: true, stdio: 'inherit' } as const
let status = 0
if (part !== 'quick') {
  install(join('test', 'e2e'))
  try {
    install(join('test', 'e2e', 'agents'))
  } catch {
    console.log('The agents of test/e2e/agents can\'t be installed here: their tests are skipped.')
  }
  status = spawnSync('npm run --silent types -- --project test/e2e', options).status ?? 1
}
execFileSync(process.execPath, [join('test', 'build-tap.ts')], { cwd: packageRoot, stdio: 'inherit' })
// Each of our modules is stripped of its types and compiled once for all processes.
const env = { ...process.env, NODE_COMPILE_CACHE: join(packageRoot, 'node_modules', '.cache', 'compiled') }
const { fail } = await runFiles(packs, env, (text) => { process.stdout.write(text) })
if (fail > 0) status = 1
if (part === 'quick') {
  const names = (paths: readonly string[]): string => paths.map((path) => basename(path, '.test.ts')).join(', ')
  console.log(`\nLeft out, and run by npm run test:all:
  ${redis.length} files of tests that start Redis (redis-server has to be installed): ${names(redis)}
  ${e2e.length} in test/e2e, of whole processes, of SDKs and of agents (which it installs there): ${names(e2e)}`)
}
process.exitCode = status

/** The packages that a folder names. Does nothing where they are. @throws {Error} npm failed */
function install (path: string): void {
  const folder = join(packageRoot, path)
  const changedMs = (name: string): number => statSync(join(folder, name), { throwIfNoEntry: false })?.mtimeMs ?? 0
  if (changedMs('node_modules/.package-lock.json') < changedMs('package-lock.json')) {
    execFileSync('npm ci', { ...options, cwd: folder })
  }
}

/** Whether a file asks each thing with the lanes and without them. */
function triesBoth (path: string): boolean {
  return readFileSync(join(packageRoot, path), 'utf8').includes('fast_lane: off')
}
