// The launcher by itself, with a main of the test's own: what it runs, what it refuses and in which words, and that
// signals and exit codes pass through it. An old Node and a musl system are pretended by a preloaded module.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { untapped } from '../support/newcomer.ts'

const oldNode = 'Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.1.0" } })'
const musl = `import fs from 'node:fs'; import { syncBuiltinESMExports } from 'node:module'
  const exists = fs.existsSync; fs.existsSync = (path) => String(path).startsWith('/lib/ld-musl') || exists(path)
  syncBuiltinESMExports(); process.report.getReport = () => ({ header: {} })`
const main = `process.on('SIGTERM', () => process.exit(7)).on('SIGHUP', () => console.log('reload'))
  setInterval(() => {}, 1000); console.log('ready', process.argv.slice(2).join(), process.versions.node)`

t.test('a Node that is new enough runs main, with its arguments and its exit code', async (t) => {
  const gateway = launch(t, {})
  t.equal(await line(gateway), `ready start,--config,a b.yaml ${process.versions.node}`)
  gateway.kill('SIGTERM')
  t.strictSame(await once(gateway, 'exit'), [7, null])
})

t.test('without main.ts, as in a package, it runs the emitted main.js', async (t) => {
  const gateway = launch(t, { main: 'dist/src/main.js' })
  t.match(await line(gateway), 'ready')
})

t.test('an old Node hands over to the one that npm installed; signals and the exit code pass through', async (t) => {
  const gateway = launch(t, { preload: oldNode, runtime: true })
  t.match(await line(gateway), `ready start,--config,a b.yaml ${process.versions.node}`)
  gateway.kill('SIGHUP')
  t.equal(await line(gateway), 'reload')
  gateway.kill('SIGTERM')
  t.strictSame(await once(gateway, 'exit'), [7, null])
})

t.test('an old Node alone says what to do', async (t) => {
  const gateway = launch(t, { preload: oldNode })
  const [said, [code]] = await Promise.all([stderr(gateway), once(gateway, 'exit')])
  t.equal(code, 1)
  t.match(said, 'needs Node 24 or newer; this is Node 20.1.0')
  t.match(said, 'npm ci')
})

t.test('musl is refused in plain words', async (t) => {
  const gateway = launch(t, { preload: musl })
  const [said, [code]] = await Promise.all([stderr(gateway), once(gateway, 'exit')])
  t.equal(code, 1)
  t.match(said, 'does not run on Alpine')
})

t.test('a main that does not load ends with 1 and says why', async (t) => {
  const gateway = launch(t, { code: 'throw new Error("no such luck")' })
  const [said, [code]] = await Promise.all([stderr(gateway), once(gateway, 'exit')])
  t.equal(code, 1)
  t.match(said, 'no such luck')
})

const cached = `import { getCompileCacheDir } from 'node:module'; import { Worker } from 'node:worker_threads'
  import { dirname, relative } from 'node:path'
  const own = "require('node:worker_threads').parentPort.postMessage(require('node:module').getCompileCacheDir())"
  const show = (folder) => folder && relative(process.cwd(), dirname(folder))
  new Worker(own, { eval: true }).on('message', (there) => {
    console.log('main', show(getCompileCacheDir()), 'thread', show(there))
  })`

t.test('compiled code is kept where only those can put some who could change the modules', async (t) => {
  const said = async (options: Launch): Promise<string> => await line(launch(t, { code: cached, ...options }))
  const kept = 'node_modules/.cache/compiled'
  t.equal(await said({}), `main ${kept} thread ${kept}`)
  t.equal(await said({ env: { NODE_COMPILE_CACHE: 'mine' } }), 'main mine thread mine', 'the operator decides')
  const none = 'main undefined thread undefined'
  t.equal(await said({ env: { NODE_DISABLE_COMPILE_CACHE: '1' } }), none)
  for (const [name, mode] of [['.cache', 0o777], ['.cache/compiled', 0o770]] as const) {
    t.equal(await said({ prepare (modules) {
      mkdirSync(join(modules, '.cache/compiled'), { recursive: true })
      chmodSync(join(modules, name), mode)
    } }), none, `others can write to ${name}`)
  }
  t.equal(await said({ prepare (modules) { writeFileSync(join(modules, '.cache'), '') } }), none, 'it can not be made')
})

interface Launch {
  /** is given the folder node_modules */
  readonly prepare?: (modules: string) => void
  readonly env?: NodeJS.ProcessEnv
  readonly preload?: string
  readonly runtime?: boolean
  readonly main?: string
  readonly code?: string
}

function launch (t: Test, options: Launch): ChildProcess {
  // Outside the checkout, whose node_modules hold a Node that the launcher would find.
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'gateway-launcher-')))
  for (const name of ['src', 'dist/src', 'node_modules']) mkdirSync(join(folder, name), { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
  copyFileSync(join(packageRoot, 'src/launcher.js'), join(folder, 'src/launcher.js'))
  writeFileSync(join(folder, options.main ?? 'src/main.ts'), options.code ?? main)
  if (options.runtime) {
    const name = `node-${process.platform === 'darwin' && process.arch === 'arm64' ? 'bin-' : ''}${process.platform}-${process.arch}`
    mkdirSync(join(folder, 'node_modules', name, 'bin'), { recursive: true })
    symlinkSync(process.execPath, join(folder, 'node_modules', name, 'bin/node'))
  }
  options.prepare?.(join(folder, 'node_modules'))
  const { NODE_COMPILE_CACHE: _cache, ...env } = process.env
  const flags = options.preload === undefined
    ? []
    : ['--import', `data:text/javascript,${encodeURIComponent(options.preload)}`]
  const child = spawn(
    ...untapped(process.execPath, [...flags, join(folder, 'src/launcher.js'), 'start', '--config', 'a b.yaml']),
    { cwd: folder, env: { ...env, ...options.env }, stdio: ['ignore', 'pipe', 'pipe'] }
  )
  const ended = once(child, 'exit')
  t.teardown(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM')
    await ended
    rmSync(folder, { recursive: true, force: true })
  })
  return child
}

async function stderr (child: ChildProcess): Promise<string> {
  return child.stderr === null ? '' : await text(child.stderr)
}

/** The next thing that it prints: one line, because main prints one at a time and waits for a signal between. */
async function line (child: ChildProcess): Promise<string> {
  if (child.stdout === null) return ''
  const [chunk] = await once(child.stdout, 'data') as [Buffer]
  return chunk.toString().trim()
}
