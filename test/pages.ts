// Runs the commands of the pages as a newcomer would: every ```sh block of README.md, then those of each other page,
// in order, each page in a fresh copy of the checkout, with the machine's own Node. Run by .ci/run, not by `npm
// test`: it uses the ports of the shipped gateway.yaml.
//
// How to write a block: what it sets, and where it goes with cd, holds for the blocks below it on its page. A block
// with `npm start` stays up until the next such block or the end of its page; the curl that it prints is run, and its
// demo key is in $GATEWAY_KEY. A curl that gets an error status fails its block. ```sh no-ci is not run: a
// placeholder, git clone, Docker. A block with `npm test` is run by .ci/run itself. `npm ci` is run once, where
// README.md says so: the other pages get what it has installed. `{{base_url}}` of the customers' pages is the gateway
// of that checkout, which is started for each of them.
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdirSync, mkdtempSync, realpathSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { packageRoot } from '../src/base/package.ts'
import { newcomersEnvironment, printedCurl } from './support/newcomer.ts'
import { pages } from './support/pages.ts'

const blockTimeoutMs = 900_000
const stopTimeoutMs = 300_000 // longer than the shipped drain_timeout

t.setTimeout(0) // each block has its own

const home = realpathSync(mkdtempSync(join(tmpdir(), 'gateway-pages-')))
const installed = join(home, 'node_modules')
const listed = ['ls-files', '-co', '--exclude-standard', '-z']
const listing = execFileSync('git', listed, { cwd: packageRoot, encoding: 'utf8' })
const files = listing.split('\0').filter((path) => path !== '' && existsSync(join(packageRoot, path)))
let server: ChildProcess | undefined
t.teardown(async () => {
  await stop()
  rmSync(home, { recursive: true, force: true })
})

/** Where the blocks of a page run. */
interface Desk { readonly folder: string, readonly env: NodeJS.ProcessEnv }

// Variables and folder go from block to block by way of a file: each block is a shell of its own, and may fail alone.
const resume = `set -euo pipefail
if [ -f "$STATE" ]; then source "$STATE"; cd "$(cat "$STATE.folder")"; fi
curl () { command curl --fail-with-body --silent --show-error "$@"; }
set -a
`
const remember = `leave () {
  export -p | grep -vE "^declare -(x GATEWAY_KEY=|[a-z]*r)" > "$STATE"
  pwd > "$STATE.folder"
}
trap leave EXIT
`

/** The blocks of a page that are run, each with its first line as its name. */
function blocksOf (text: string): readonly { readonly name: string, readonly code: string }[] {
  return [...text.matchAll(/^```sh([^\n]*)\n([^]*?)^```/gm)]
    .filter(([, info = '', code = '']) => !/\bno-ci\b/.test(info) && !/\bnpm (run )?test\b/.test(code))
    .map(([, , code = '']) => code.replaceAll('{{base_url}}', 'http://127.0.0.1:8080'))
    .map((code) => ({ name: code.trim().split('\n')[0] ?? '', code }))
}

for (const [number, { path, text }] of pages().entries()) {
  const blocks = blocksOf(text)
  if (path === 'README.md') t.ok(blocks.some(({ code }) => code === 'npm ci && npm start\n'), 'how to start')
  if (blocks.length === 0) continue
  await t.test(path, async (t) => {
    const desk = lay(String(number))
    if (path.startsWith('docs/customers/')) await start(t, desk, 'npm start\n')
    for (const { name, code } of blocks) {
      await t.test(name, async (t) => {
        if (/\bnpm start\b|\bgateway -- start\b/.test(code)) await start(t, desk, code)
        else await paste(t, desk, code)
      })
    }
    await stop()
    if (existsSync(join(desk.folder, 'node_modules'))) renameSync(join(desk.folder, 'node_modules'), installed)
  })
}

/** A fresh copy of the checkout, with what the first page has installed. */
function lay (name: string): Desk {
  const folder = join(home, name, 'checkout')
  for (const path of files) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    cpSync(join(packageRoot, path), join(folder, path))
  }
  if (existsSync(installed)) renameSync(installed, join(folder, 'node_modules'))
  return { folder, env: { ...newcomersEnvironment(), STATE: join(home, name, 'state') } }
}

async function start (t: Test, desk: Desk, code: string): Promise<void> {
  await stop()
  // A process group of its own: npm, its shell and the gateway are ended together.
  const { folder: cwd, env } = desk
  server = spawn('bash', ['-c', resume + code], { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  const timer = setTimeout(() => signal('SIGKILL'), blockTimeoutMs)
  const curl = await printedCurl(server).finally(() => clearTimeout(timer))
  env['GATEWAY_KEY'] = /(?:x-api-key: *|bearer )([^\s'"]+)/i.exec(curl)?.[1]
  t.ok(env['GATEWAY_KEY'], 'the printed curl has a key')
  await paste(t, desk, curl)
}

interface Failure extends Error { readonly stdout: string, readonly stderr: string }

async function paste (t: Test, { folder, env }: Desk, code: string): Promise<void> {
  const options = { cwd: folder, env, timeout: blockTimeoutMs, maxBuffer: 64 << 20 }
  const failure = await promisify(execFile)('bash', ['-c', resume + remember + code], options).then(() => undefined,
    ({ message, stdout, stderr }: Failure) => `${message}\n${stdout.slice(-4000)}\n${stderr.slice(-4000)}`)
  t.equal(failure, undefined, 'it ends with 0')
}

async function stop (): Promise<void> {
  if (server === undefined || server.exitCode !== null || server.signalCode !== null) return
  // Not exit: npm may go before the gateway, which holds the pipe until it has drained.
  const ended = once(server, 'close')
  signal('SIGTERM')
  const timer = setTimeout(() => signal('SIGKILL'), stopTimeoutMs)
  await ended.finally(() => clearTimeout(timer))
}

function signal (name: NodeJS.Signals): void {
  try { if (server?.pid !== undefined) process.kill(-server.pid, name) } catch { /* it is gone */ }
}
