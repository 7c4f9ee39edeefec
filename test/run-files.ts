// Runs test files, each in a process of its own, and prints TAP: a line for each file, and all that one has said which
// fails. `tap run` does the same with hooks in each process, which cost half a second.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { packageRoot } from '../src/base/package.ts'

/** Assertions, and each file that fails without one. */
export interface Counts { total: number, pass: number, fail: number, skip: number }

interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  /** standard output and error, as they came */
  readonly said: string
}

/** Files at once: what two cores can do. */
const LANES = 2
/** of a test that has no limit of its own */
export const TEST_LIMIT_S = 900
/** A file ends by itself at the limits of its tests, unless its process hears nothing any more. */
const FILE_LIMIT_MS = 4 * TEST_LIMIT_S * 1000

/**
 * @param files paths from the package's folder
 * @param print takes lines
 * @param lastWordsMs what a process has said is read for, when it has ended and another holds its output
 */
export async function runFiles (
  files: readonly string[],
  env: NodeJS.ProcessEnv,
  print: (text: string) => void,
  lastWordsMs = 10_000
): Promise<Counts> {
  const started = performance.now()
  const sum: Counts = { total: 0, pass: 0, fail: 0, skip: 0 }
  const left = files.values()
  const running = new Set<ChildProcess>()
  let done = 0
  const end = (signal: NodeJS.Signals): void => {
    for (const child of running) child.kill(signal)
    process.exit(1)
  }
  for (const signal of SIGNALS) process.once(signal, end)
  const lane = async (): Promise<void> => {
    for (const file of left) {
      const began = performance.now()
      const ended = await run(file, env, running, lastWordsMs)
      const counts = countsIn(ended.said)
      const wrong = wrongWith(ended, counts)
      if (wrong !== undefined && counts.fail === 0) { counts.total++; counts.fail++ }
      for (const name of NAMES) sum[name] += counts[name]
      print(`${wrong === undefined ? 'ok' : 'not ok'} ${++done} - ${file} # time=${msSince(began)}\n`)
      if (wrong !== undefined) print(`  # ${wrong}\n${ended.said.replace(/^(?=.)/gm, '    ')}\n`)
      else for (const [line] of ended.said.matchAll(/\bok \d+ - .* # SKIP.*/g)) print(`  # ${line}\n`)
    }
  }
  print(`TAP version 14\n1..${files.length}\n`)
  await Promise.all(Array.from({ length: LANES }, lane))
  for (const signal of SIGNALS) process.removeListener(signal, end)
  const counted = NAMES.filter((name) => name === 'total' || name === 'pass' || sum[name] > 0)
  print(`# { ${counted.map((name) => `${name}: ${sum[name]}`).join(', ')} }\n# time=${msSince(started)}\n`)
  return sum
}

const NAMES = ['total', 'pass', 'fail', 'skip'] as const
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

function msSince (started: number): string {
  return `${Math.round(performance.now() - started)}ms`
}

async function run (
  file: string, env: NodeJS.ProcessEnv, running: Set<ChildProcess>, lastWordsMs: number
): Promise<Ended> {
  const child = spawn(process.execPath, [file], {
    cwd: packageRoot, stdio: ['ignore', 'pipe', 'pipe'], timeout: FILE_LIMIT_MS, killSignal: 'SIGKILL',
    env: { TAP_TIMEOUT: String(TEST_LIMIT_S), ...env }
  })
  running.add(child)
  let said = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => { said += text })
  }
  // A process that the file has left behind may hold the other ends of these pipes.
  child.once('exit', () => setTimeout(() => { child.stdout.destroy(); child.stderr.destroy() }, lastWordsMs).unref())
  const [code, signal] = await once(child, 'close') as [Ended['code'], Ended['signal']]
  running.delete(child)
  return { code, signal, said }
}

/** What tap has counted at the end of the file; all 0: it did not come to its end. */
function countsIn (said: string): Counts {
  const [, sum = ''] = /^# \{ (total: .*) \}$/m.exec(said) ?? []
  const of = (name: string): number => Number(new RegExp(`\\b${name}: (\\d+)`).exec(sum)?.[1] ?? 0)
  return { total: of('total'), pass: of('pass'), fail: of('fail'), skip: of('skip') }
}

/** Undefined: nothing. */
function wrongWith ({ code, signal }: Ended, { total, fail }: Counts): string | undefined {
  if (signal !== null) return `ended by ${signal}`
  if (code !== 0) return fail > 0 ? `${fail} of ${total} failed` : `exit code ${code}`
  return total === 0 ? 'has no tests, or has ended before them' : undefined
}
