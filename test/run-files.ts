// Runs test files and prints TAP: a line for each file, and all that one has said which fails. `tap run` does the same
// with hooks in each process, which cost half a second, and with a process for each file.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { dirname, join } from 'node:path'
import { packageRoot } from '../src/base/package.ts'

/** Assertions, and each process that fails without one. */
export interface Counts { total: number, pass: number, fail: number, skip: number }

interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  /** standard output and error, as they came */
  readonly said: string
  readonly ms: number
}

interface Report {
  readonly file: string
  readonly ms: number
  readonly said: string
  /** absent: nothing */
  readonly wrong?: string | undefined
}

/** Processes at once: what two cores can do. */
const LANES = 2
/** of a test that has no limit of its own */
export const TEST_LIMIT_S = 900
/** A file ends by itself at the limits of its tests, unless its process hears nothing any more. */
const FILE_LIMIT_MS = 4 * TEST_LIMIT_S * 1000
const PACK = join('test', 'pack.ts')
const NAMES = ['total', 'pass', 'fail', 'skip'] as const
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** Neighbours of one folder share a process: the same ones in every run, as long as there are no other files. */
export function packed (files: readonly string[], most = 6): readonly (readonly string[])[] {
  return [...Map.groupBy(files, (file) => dirname(file)).values()].flatMap((folder) => {
    const size = Math.ceil(folder.length / Math.ceil(folder.length / most))
    return folder.flatMap((_, i) => i % size === 0 ? [folder.slice(i, i + size)] : [])
  })
}

/**
 * @param packs files that share a process, by their paths from the package's folder
 * @param print takes lines
 * @param lastWordsMs what a process has said is read for, when it has ended and another holds its output
 */
export async function runFiles (
  packs: readonly (readonly string[])[],
  env: NodeJS.ProcessEnv,
  print: (text: string) => void,
  lastWordsMs = 10_000
): Promise<Counts> {
  const started = performance.now()
  const sum: Counts = { total: 0, pass: 0, fail: 0, skip: 0 }
  const left = [...packs]
  const running = new Set<ChildProcess>()
  let done = 0
  const end = (signal: NodeJS.Signals): void => {
    for (const child of running) child.kill(signal)
    process.exit(1)
  }
  for (const signal of SIGNALS) process.once(signal, end)
  const lane = async (): Promise<void> => {
    for (let pack = left.shift(); pack !== undefined; pack = left.shift()) {
      const ended = await run(pack, env, running, lastWordsMs)
      const counts = countsIn(ended.said)
      const reports = pack.length === 1 ? [reportOn(pack[0]!, ended, counts)] : reportsOn(pack, ended)
      if (counts.fail === 0 && reports.some(({ wrong }) => wrong !== undefined)) { counts.total++; counts.fail++ }
      for (const name of NAMES) sum[name] += counts[name]
      for (const report of reports) print(shown(report, ++done))
      // Those that the end of the process left out.
      if (reports.length < pack.length) left.unshift(pack.slice(reports.length))
    }
  }
  print(`TAP version 14\n1..${packs.flat().length}\n`)
  await Promise.all(Array.from({ length: LANES }, lane))
  for (const signal of SIGNALS) process.removeListener(signal, end)
  const counted = NAMES.filter((name) => name === 'total' || name === 'pass' || sum[name] > 0)
  print(`# { ${counted.map((name) => `${name}: ${sum[name]}`).join(', ')} }\n# time=${msSince(started)}ms\n`)
  return sum
}

async function run (
  files: readonly string[], env: NodeJS.ProcessEnv, running: Set<ChildProcess>, lastWordsMs: number
): Promise<Ended> {
  const started = performance.now()
  const child = spawn(process.execPath, files.length === 1 ? [...files] : [PACK, ...files], {
    cwd: packageRoot, stdio: ['ignore', 'pipe', 'pipe'], timeout: files.length * FILE_LIMIT_MS, killSignal: 'SIGKILL',
    env: { TAP_TIMEOUT: String(files.length * TEST_LIMIT_S), ...env }
  })
  running.add(child)
  let said = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => { said += text })
  }
  // A process that a test has left behind may hold the other ends of these pipes.
  child.once('exit', () => setTimeout(() => { child.stdout.destroy(); child.stderr.destroy() }, lastWordsMs).unref())
  const [code, signal] = await once(child, 'close') as [Ended['code'], Ended['signal']]
  running.delete(child)
  return { code, signal, said, ms: msSince(started) }
}

function msSince (started: number): number {
  return Math.round(performance.now() - started)
}

/** What tap has counted at the end of the process; all 0: it did not come to its end. */
function countsIn (said: string): Counts {
  const sum = [...said.matchAll(/^# \{ (total: .*) \}$/gm)].at(-1)?.[1] ?? ''
  const of = (name: string): number => Number(new RegExp(`\\b${name}: (\\d+)`).exec(sum)?.[1] ?? 0)
  return { total: of('total'), pass: of('pass'), fail: of('fail'), skip: of('skip') }
}

function reportOn (file: string, ended: Ended, { total, fail }: Counts): Report {
  const wrong = fail > 0 ? `${fail} of ${total} failed` : total === 0 ? endOf(ended) ?? 'has no tests' : endOf(ended)
  return { file, ms: ended.ms, said: ended.said, wrong }
}

/** Of each file that the process has begun: at least of the first. */
function reportsOn (pack: readonly string[], ended: Ended): readonly Report[] {
  const [before = '', ...parts] = ended.said.split(/^(?=# Subtest: )/m)
  if (parts.length === 0) parts.push(before)
  const reports = parts.map((said, i): Report => {
    const file = pack[i] ?? '?'
    const points = [...said.matchAll(/^(?:not )?ok \d+ - (.*?)(?: # time=([\d.]+)ms)?$/gm)]
    const [, name, ms = ended.ms] = points.find(([, one]) => one === file) ?? []
    const wrong = name === undefined ? endOf(ended) ?? 'has not ended'
      : /^not ok /m.test(said) ? 'has failed'
      : /^ {4}(?:not )?ok \d/m.test(said) ? undefined : 'has no tests'
    return { file, ms: Math.round(Number(ms)), said, wrong }
  })
  const after = endOf(ended)
  if (after === undefined || reports.some(({ wrong }) => wrong !== undefined)) return reports
  return [...reports.slice(0, -1), { ...reports.at(-1)!, wrong: after }]
}

/** Undefined: well. */
function endOf ({ code, signal }: Ended): string | undefined {
  return signal !== null ? `ended by ${signal}` : code !== 0 ? `exit code ${code}` : undefined
}

function shown ({ file, ms, said, wrong }: Report, number: number): string {
  if (wrong !== undefined) {
    return `not ok ${number} - ${file} # time=${ms}ms\n  # ${wrong}\n${said.replace(/^(?=.)/gm, '    ')}\n`
  }
  const skipped = [...said.matchAll(/\bok \d+ - .* # SKIP.*/g)].map(([line]) => `  # ${line}\n`)
  return `ok ${number} - ${file} # time=${ms}ms\n${skipped.join('')}`
}
