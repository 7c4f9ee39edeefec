// Runs the commands of the README as a newcomer would: every ```sh block, in order, in a fresh copy of the checkout, with the
// machine's own Node. Run by .ci/run, not by `npm test`: it uses the ports of the shipped gateway.yaml.
//
// How to write a block: what it sets, and where it goes with cd, holds for the blocks below it. A block with `npm start` stays up until the
// next such block; the curl that it prints is run, and its demo key is in $GATEWAY_KEY. A curl that gets an error status fails its
// block. ```sh no-ci is not run: a placeholder, git clone, Docker. A block with `npm test` is run by .ci/run itself.
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { packageRoot } from '../src/package-root.ts'
import { newcomersEnvironment, printedCurl } from './newcomer.ts'

const blockTimeoutMs = 900_000
const stopTimeoutMs = 300_000 // longer than the shipped drain_timeout

t.setTimeout(0) // each block has its own

const home = realpathSync(mkdtempSync(join(tmpdir(), 'gateway-readme-')))
const copy = join(home, 'checkout')
let server: ChildProcess | undefined
t.teardown(async () => {
  await stop()
  rmSync(home, { recursive: true, force: true })
})

for (const path of execFileSync('git', ['ls-files', '-co', '--exclude-standard', '-z'], { cwd: packageRoot, encoding: 'utf8' }).split('\0').filter(Boolean)) {
  mkdirSync(dirname(join(copy, path)), { recursive: true })
  cpSync(join(packageRoot, path), join(copy, path))
}

const env: NodeJS.ProcessEnv = { ...newcomersEnvironment(), STATE: join(home, 'state') }

// Variables and folder go from block to block by way of a file, because each block is a shell of its own and may fail alone.
const resume = `set -euo pipefail
if [ -f "$STATE" ]; then source "$STATE"; cd "$(cat "$STATE.folder")"; fi
curl () { command curl --fail-with-body --silent --show-error "$@"; }
set -a
`
const remember = `trap 'export -p | grep -vE "^declare -(x GATEWAY_KEY=|[a-z]*r)" > "$STATE"; pwd > "$STATE.folder"' EXIT
`

const blocks = [...readFileSync(join(packageRoot, 'README.md'), 'utf8').matchAll(/^```sh([^\n]*)\n([^]*?)^```/gm)]
  .map(([, info = '', code = '']) => ({ name: code.trim().split('\n')[0] ?? '', code, isRun: !/\bno-ci\b/.test(info) && !/\bnpm (run )?test\b/.test(code) }))

t.ok(blocks.some((block) => /\bnpm start\b/.test(block.code) && block.isRun), 'the README says how to start')

for (const { name, code } of blocks.filter((block) => block.isRun)) {
  await t.test(name, async (t) => {
    if (/\bnpm start\b|\bgateway -- start\b/.test(code)) await start(t, code)
    else await paste(t, code)
  })
}

async function start (t: Test, code: string): Promise<void> {
  await stop()
  // A process group of its own: npm, its shell and the gateway are ended together.
  server = spawn('bash', ['-c', resume + code], { cwd: copy, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  const timer = setTimeout(() => signal('SIGKILL'), blockTimeoutMs)
  const curl = await printedCurl(server).finally(() => clearTimeout(timer))
  env['GATEWAY_KEY'] = /(?:x-api-key: *|bearer )([^\s'"]+)/i.exec(curl)?.[1]
  t.ok(env['GATEWAY_KEY'], 'the printed curl has a key')
  await paste(t, curl)
}

async function paste (t: Test, code: string): Promise<void> {
  const failure = await promisify(execFile)('bash', ['-c', resume + remember + code], { cwd: copy, env, timeout: blockTimeoutMs, maxBuffer: 64 << 20 })
    .then(() => undefined, (error: Error & { stdout: string, stderr: string }) => `${error.message}\n${error.stdout.slice(-4000)}\n${error.stderr.slice(-4000)}`)
  t.equal(failure, undefined, 'it ends with 0')
}

async function stop (): Promise<void> {
  if (server === undefined || server.exitCode !== null || server.signalCode !== null) return
  const ended = once(server, 'close') // not exit: npm may go before the gateway, which holds the pipe until it has drained
  signal('SIGTERM')
  const timer = setTimeout(() => signal('SIGKILL'), stopTimeoutMs)
  await ended.finally(() => clearTimeout(timer))
}

function signal (name: NodeJS.Signals): void {
  try { if (server?.pid !== undefined) process.kill(-server.pid, name) } catch { /* it is gone */ }
}
