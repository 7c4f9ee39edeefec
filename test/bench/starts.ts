// What `gateway check`, and reloads of a gateway that runs, cost: each in a process of its own, in CPU time, which a
// busy machine moves less than the time on the clock.
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { packageRoot } from '../../src/base/package.ts'
import type { Experiment } from './experiments.ts'
import { median } from './statistics.ts'

const run = promisify(execFile)
const RELOADS = 5
const MODELS = 1000

interface Reloads { readonly cpuMs: readonly number[], readonly stallMs: readonly number[] }

async function reloads (models: number): Promise<Reloads> {
  const child = fileURLToPath(new URL('reloads-child.ts', import.meta.url))
  const { stdout } = await run(process.execPath, [child, String(models), String(RELOADS)], { env: cached() })
  return JSON.parse(stdout) as Reloads
}

/** As the launcher has it. */
function cached (): NodeJS.ProcessEnv {
  return { ...process.env, NODE_COMPILE_CACHE: join(packageRoot, 'node_modules', '.cache', 'compiled') }
}

const AT_EXIT = `import { writeFileSync } from 'node:fs'
process.on('exit', () => writeFileSync(process.env.BENCH_CPU, JSON.stringify(process.cpuUsage())))`

/** @returns ms of CPU, of all its threads */
async function check (): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-check-'))
  const file = join(folder, 'cpu.json')
  try {
    await run(process.execPath, ['--import', `data:text/javascript,${encodeURIComponent(AT_EXIT)}`,
      join(packageRoot, 'src/launcher.js'), 'check', join(packageRoot, 'gateway.yaml')],
    { env: { ...process.env, BENCH_CPU: file } })
    const { user, system } = JSON.parse(readFileSync(file, 'utf8')) as NodeJS.CpuUsage
    return (user + system) / 1000
  } finally {
    rmSync(folder, { recursive: true })
  }
}

export const starts: Experiment = {
  name: 'starts',
  title: `CPU of \`gateway check\` and of a reload, of the shipped gateway.yaml; of a reload of ${MODELS} models also ` +
    'the longest time that it keeps the thread which serves',
  only: ['gateway'],
  columns: [
    { key: 'checkMs', title: 'check, CPU ms', digits: 0 }, { key: 'reloadMs', title: 'reload, CPU ms', digits: 0 },
    { key: 'manyMs', title: `reload of ${MODELS} models, CPU ms`, digits: 0 },
    { key: 'stallMs', title: 'longest stall, ms', digits: 1 }
  ],
  rounds: ({ isQuick }) => isQuick ? 1 : 5,
  lasts: () => 0,
  async burst () {
    const checkMs = await check()
    const [shipped, many] = [await reloads(0), await reloads(MODELS)]
    return { checkMs, reloadMs: median(shipped.cpuMs), manyMs: median(many.cpuMs), stallMs: Math.max(...many.stallMs) }
  },
  goals (of) {
    const [checkMs, reloadMs] = [median(of('gateway', 'checkMs')), median(of('gateway', 'reloadMs'))]
    const stallMs = Math.max(...of('gateway', 'stallMs'))
    return [
      { text: '`gateway check` of the shipped gateway.yaml: under 0.7 s of CPU', isMet: checkMs < 700,
        found: `${checkMs.toFixed(0)} ms` },
      { text: 'a reload of it: under 0.3 s of CPU', isMet: reloadMs < 300, found: `${reloadMs.toFixed(0)} ms` },
      { text: `a reload of ${MODELS} models stalls no stream for more than 20 ms`, isMet: stallMs <= 20,
        found: `${stallMs.toFixed(1)} ms` }
    ]
  }
}
