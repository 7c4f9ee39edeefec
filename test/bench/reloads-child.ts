// A gateway in a process of its own that reloads its configuration again and again: what that costs, and how long its
// event loop, and with it every stream, stands still. Prints one line of JSON.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { plugins } from '../../plugins/index.ts'
import { packageRoot } from '../../src/base/package.ts'
import { startGateway } from '../../src/gateway/gateway.ts'
import { createLogger } from '../../src/telemetry/log.ts'

const [count = '0', rounds = '5'] = process.argv.slice(2)
/** The loop is asked so often whether it stands still. */
const TICK_MS = 1
/** Until the thread of a reload has ended. */
const REST_MS = 300

const folder = mkdtempSync(join(tmpdir(), 'gateway-reloads-'))
const file = join(folder, 'gateway.yaml')
const text = (round: number): string => (count === '0' ? shipped() : withModels(Number(count)))
  .replace('log: { level: info }', `log: { level: info }\nhook_timeout: ${1000 + round}ms`)

/** With free ports, and nothing that outlives this. */
function shipped (): string {
  return readFileSync(join(packageRoot, 'gateway.yaml'), 'utf8')
    .replace(/listen: "[^"]+:\d+"/g, 'listen: "127.0.0.1:0"')
    .replace('driver: embedded', 'driver: memory')
    .replace('config/models.yaml', join(packageRoot, 'config/models.yaml'))
}

function withModels (amount: number): string {
  const models = Array.from({ length: amount }, (_, i) => `  - id: model-${i}
    provider: acme
    created: 2025-09-29
    context: 200000
    max_output: 64000
    channels:
      premium: { price: { input: 3, output: 15 }, targets: [{ upstream: simulator, model: vendor-${i} }] }
`)
  return shipped().replace(/^include:\n.*\n/m, `models:\n${models.join('')}`)
}

writeFileSync(file, text(0))
const gateway = await startGateway({
  file, plugins, pluginsUrl: new URL('../../plugins/index.ts', import.meta.url).href,
  log: createLogger('silent', { write () {} })
})
/** Of the thread that serves, in ms of its own CPU: what another process takes of the core is no stall of ours. */
function ownMs (): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}

let worst = 0
function watchLoop (): NodeJS.Timeout {
  let last = ownMs()
  return setInterval(() => {
    const now = ownMs()
    worst = Math.max(worst, now - last)
    last = now
  }, TICK_MS)
}

await sleep(REST_MS)
const cpuMs: number[] = []
const stallMs: number[] = []
// The first is slower, as its code is new.
for (let round = 1; round <= 2 * Number(rounds) + 1; round++) {
  worst = 0
  // In turns: to be asked a thousand times a second costs CPU, too.
  const ticks = round % 2 === 0 ? watchLoop() : undefined
  const before = process.cpuUsage()
  const reloaded = gateway.live.reloaded()
  writeFileSync(file, text(round))
  const { ok, changed } = await reloaded
  if (!ok || !changed) throw new Error(`reload ${round} did not go live`)
  await sleep(REST_MS)
  const { user, system } = process.cpuUsage(before)
  clearInterval(ticks)
  if (ticks !== undefined) stallMs.push(worst)
  else if (round > 1) cpuMs.push((user + system) / 1000)
}
console.log(JSON.stringify({ cpuMs, stallMs }))
await gateway.stop()
rmSync(folder, { recursive: true })
process.exit()
