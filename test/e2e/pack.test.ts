// What users install: the packed tarball, in an empty folder, with whatever Node the machine has, answers a stream
// (rule pinned: a published package that was broken for streaming; versions that nobody had pinned).
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdtempSync, mkdirSync, readFileSync, realpathSync, rmSync, symlinkSync,
  writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import type { PageFiles } from '../../src/admin/web/files.ts'
import { packageRoot } from '../../src/base/package.ts'
import { newcomersEnvironment, printedCurl, untapped } from '../support/newcomer.ts'

const run = promisify(execFile)

// Outside the checkout, whose node_modules would lend what the tarball lacks.
const folder = realpathSync(mkdtempSync(join(tmpdir(), 'gateway-pack-')))
t.teardown(() => rmSync(folder, { recursive: true, force: true }))
const checkout = join(folder, 'checkout')
const empty = join(folder, 'empty')
const installed = join(empty, 'node_modules', 'model-gateway')

const env = newcomersEnvironment()

interface Manifest {
  readonly version: string
  readonly dependencies: Readonly<Record<string, string>>
}
interface Lock {
  readonly packages: Readonly<
    Record<string, { readonly version: string, readonly dev?: boolean, readonly optional?: boolean }>
  >
}
interface Packed {
  readonly filename: string
  readonly size: number
  readonly files: readonly { readonly path: string }[]
}

await t.test('npm pack ships JavaScript, small, with its lock file and its licence, and leaves nothing behind', async (t) => {
  // In a copy, because other tests run beside this one and read the checkout.
  mkdirSync(checkout)
  for (const name of ['src', 'plugins', 'config', 'gateway.yaml', 'package.json', 'package-lock.json', 'tsconfig.json',
    'README.md', 'LICENSE']) {
    if (existsSync(join(packageRoot, name))) {
      cpSync(join(packageRoot, name), join(checkout, name), { recursive: true })
    }
  }
  symlinkSync(join(packageRoot, 'node_modules'), join(checkout, 'node_modules'))
  // --foreground-scripts=false keeps the compiler's words out of the JSON, but shows them when it fails.
  const { stdout } = await run(
    ...untapped('npm', ['pack', '--json', '--foreground-scripts=false', '--pack-destination', folder]),
    { cwd: checkout, env }
  )
  const [packed] = Object.values(JSON.parse(stdout) as Record<string, Packed>)
  t.ok(packed)
  if (packed === undefined) return
  const paths = packed.files.map((file) => file.path)
  t.strictSame(paths.filter((path) => /(?<!\.d)\.ts$|^test\/|^data\/|\.tgz$/.test(path)), [],
    'no TypeScript sources, no tests')
  for (const path of ['src/launcher.js', 'dist/src/main.js', 'dist/src/index.d.ts', 'gateway.yaml',
    'config/gateway.schema.json', 'npm-shrinkwrap.json', 'LICENSE', 'README.md', 'config/guide.md', 'plugins/README.md',
    'src/README.md', 'src/endpoints/README.md', 'src/admin/web/ui/index.html', 'dist/src/admin/web/ui/main.js']) {
    t.ok(paths.includes(path), path)
  }
  t.ok(packed.size < 1_500_000, `${packed.size} bytes`)
  t.notOk(existsSync(join(checkout, 'dist')) || existsSync(join(checkout, 'npm-shrinkwrap.json')))
  cpSync(join(folder, packed.filename), join(folder, 'package.tgz'))
})

await t.test('npm install in an empty folder brings the pinned versions and the pinned Node, and no tools', async (t) => {
  mkdirSync(empty)
  await run(...untapped('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', join(folder, 'package.tgz')]),
    { cwd: empty, env })
  const lock = readJson<Lock>(join(packageRoot, 'package-lock.json')).packages
  for (const name of Object.keys(readJson<Manifest>(join(installed, 'package.json')).dependencies)) {
    t.equal(readJson<Manifest>(join(empty, 'node_modules', name, 'package.json')).version,
      lock[`node_modules/${name}`]?.version, name)
  }
  const runtimes = await run('find', [empty, '-path', '*/node-*/bin/node', '-type', 'f'])
  t.equal(runtimes.stdout.trim().split('\n').length, 1, 'one Node, for this platform')
  t.notOk(existsSync(join(empty, 'node_modules', 'typescript')))
  const { preparePages } = await import(join(installed, 'dist/src/admin/web/files.js')) as {
    readonly preparePages: () => Promise<PageFiles>
  }
  const { first, byName } = await preparePages()
  t.ok(first.every((name) => byName.has(name)), 'the pages of the admin listener, and their libraries')
})

t.test('its lock file has each package that runs, as in ours (rule pinned)', async (t) => {
  const runs = (packages: Lock['packages']): unknown =>
    Object.entries(packages).filter(([path, entry]) => path !== '' && !entry.dev && !entry.optional)
  t.strictSame(runs(readJson<Lock>(join(installed, 'npm-shrinkwrap.json')).packages),
    runs(readJson<Lock>(join(packageRoot, 'package-lock.json')).packages))
})

await t.test('an editor finds the types of a user\'s own plugin', async (t) => {
  writeFileSync(join(empty, 'my-plugin.ts'), `
    import { definePlugin, GatewayError } from 'model-gateway'
    export default definePlugin<{ word: string }>({
      name: 'my-plugin',
      create: (options) => ({
        onRequest (exchange) {
          const id: string = exchange.id + options.word
          if (id === '') throw new GatewayError('invalid_request')
        }
      })
    })`)
  const args = [join(packageRoot, 'node_modules/typescript/bin/tsc'), '--noEmit', '--strict', '--module', 'nodenext',
    '--target', 'es2024', '--skipLibCheck', '--types', 'node', '--typeRoots', join(packageRoot, 'node_modules/@types'),
    'my-plugin.ts']
  const check = async (): Promise<string> =>
    await run(...untapped(process.execPath, args), { cwd: empty })
      .then(() => '', (error: Error & { readonly stdout: string }) => error.stdout || error.message)
  t.equal(await check(), '')
  writeFileSync(join(empty, 'my-plugin.ts'),
    readFileSync(join(empty, 'my-plugin.ts'), 'utf8').replace('exchange.id + ', 'exchange.idd + '))
  t.match(await check(), /'idd' does not exist on type 'Exchange\b/, 'and they are real ones: a slip is found')
})

await t.test('it starts on the shipped gateway.yaml, and the curl that it prints gets a whole stream (rule pinned)', async (t) => {
  // Beside the shipped file, whose paths are relative to it; only the ports are free ones.
  const config = join(installed, 'gateway.test.yaml')
  writeFileSync(config,
    readFileSync(join(installed, 'gateway.yaml'), 'utf8').replace(/"[^"]+:(?:8080|8081|9090)"/g, '"127.0.0.1:0"'))
  const gateway: ChildProcess = spawn(
    ...untapped(join(empty, 'node_modules/.bin/gateway'), ['start', '--config', config]),
    { cwd: empty, env, stdio: ['ignore', 'pipe', 'pipe'] }
  )
  const ended = once(gateway, 'exit')
  t.teardown(async () => {
    if (gateway.exitCode === null && gateway.signalCode === null) gateway.kill('SIGTERM')
    await ended
  })
  const curl = await printedCurl(gateway)
  const { stdout } = await run('bash', ['-c', curl], { cwd: empty, env })
  t.match(stdout, /event: message_start/)
  t.match(stdout, /event: content_block_delta/)
  t.match(stdout, /event: message_stop/)
  gateway.kill('SIGTERM')
  t.strictSame(await ended, [0, null], 'SIGTERM ends it cleanly, through the launcher')
})

function readJson<Shape> (path: string): Shape {
  return JSON.parse(readFileSync(path, 'utf8')) as Shape
}
