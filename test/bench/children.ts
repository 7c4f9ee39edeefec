// Contenders' processes: started on a core of their own, watched through /proc, ended by pid whatever happens to us.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { sleep } from './load.ts'
import type { Answers, Question } from './questions.ts'

export interface Child {
  readonly pid: number
  /** CPU of all its threads and processes so far, in ns; NaN where /proc is missing */
  cpuNs (): number
  /** calls of the system that read, of its first process so far; NaN where /proc is missing */
  reads (): number
  /** of one that was started to be asked */
  ask<Q extends Question> (question: Q): Promise<Answers[Q]>
  hasExited (): boolean
  /** for people: with which code or signal it ended, if it did */
  state (): string
  /** the last lines of its log, without those of requests that went well */
  logTail (): string
  stop (): Promise<void>
}

const running = new Set<ChildProcess>()
process.on('exit', () => { for (const child of running) child.kill('SIGKILL') })

/** @returns why we can't pin, or undefined */
export function pinningProblem (): string | undefined {
  if (availableParallelism() < 2) return 'fewer than two cores'
  for (const core of ['0', '1']) {
    if (spawnSync('taskset', ['-c', core, 'true']).status !== 0) return `taskset is missing or may not use core ${core}`
  }
  return undefined
}

/** Keeps the load generator and the upstream, all threads, off the contenders' core. */
export function pinOurselves (): void {
  spawnSync('taskset', ['-a', '-c', '-p', '1', String(process.pid)])
}

/** While it works, contenders and ourselves have both cores, wherever the scheduler puts them. */
export async function onBothCores<T> (children: readonly Child[], work: () => Promise<T>): Promise<T> {
  const put = (pid: number, cores: string): void => {
    spawnSync('taskset', ['-a', '-c', '-p', cores, String(pid)])
  }
  const all = children.flatMap(({ pid }) => familyOf(pid))
  for (const pid of [...all, process.pid]) put(pid, '0,1')
  try {
    return await work()
  } finally {
    for (const pid of all) put(pid, '0')
    put(process.pid, '1')
  }
}

function familyOf (pid: number): readonly number[] {
  return [pid, ...childrenOf(pid).flatMap(familyOf)]
}

export interface ChildOptions {
  readonly args: readonly string[]
  readonly cwd: string
  /** takes stdout and stderr */
  readonly logFile: string
  readonly isPinned: boolean
  /** set where it is asked something: where its answers go */
  readonly answersFile?: string
  /** set to profile the CPU: the folder and the file name */
  readonly profile?: { readonly folder: string, readonly name: string }
}

export function startChild (options: ChildOptions): Child {
  const { answersFile, profile } = options
  const nodeArgs = ['--import', fileURLToPath(new URL('./preload.ts', import.meta.url))]
  if (answersFile !== undefined) nodeArgs.push('--expose-gc')
  if (profile !== undefined) {
    nodeArgs.push('--cpu-prof', '--cpu-prof-dir', profile.folder, '--cpu-prof-name', profile.name)
  }
  const command = [process.execPath, ...nodeArgs, ...options.args]
  if (options.isPinned) command.unshift('taskset', '-c', '0')    // it execs: the pid is node's
  const log = openSync(options.logFile, 'a')
  const child = spawn(command[0] ?? '', command.slice(1), {
    cwd: options.cwd,
    stdio: ['pipe', log, log],
    env: { ...process.env, ...(answersFile !== undefined && { BENCH_ANSWERS: answersFile }) }
  })
  closeSync(log)
  running.add(child)
  child.on('error', () => running.delete(child))
  child.on('exit', () => running.delete(child))
  child.stdin?.on('error', () => {})    // the lifeline of preload.ts: heard of by its exit
  const pid = child.pid ?? -1
  const hasExited = (): boolean => child.exitCode !== null || child.signalCode !== null || child.pid === undefined

  async function ask<Q extends Question> (question: Q): Promise<Answers[Q]> {
    // Only whole lines: we may look between its opening of the file and its writing.
    const lines = (): string[] => {
      try { return readFileSync(answersFile ?? '', 'utf8').split('\n').slice(0, -1) } catch { return [] }
    }
    const before = lines().length
    child.stdin?.write(`${question}\n`)
    for (let tries = 0; tries < 500; tries++) {
      await sleep(20)
      const line = lines()[before]
      if (line !== undefined) return JSON.parse(line) as Answers[Q]
    }
    throw new Error(`no answer to "${question}" within 10 s`)
  }

  return {
    pid,
    cpuNs: () => cpuNs(pid),
    reads: () => reads(pid),
    ask,
    hasExited,
    state: () =>
      !hasExited()
        ? 'It is still running.'
        : `It has ended, ${child.signalCode !== null ? `by ${child.signalCode}` : `with code ${child.exitCode}`}.`,
    logTail: () =>
      readFileSync(options.logFile, 'utf8').split('\n').filter((line) => !line.includes('"outcome":"completed"')).slice(
        -15
      ).join('\n'),
    async stop () {
      if (hasExited()) return
      const exit = once(child, 'exit')
      child.kill('SIGTERM')
      const timer = setTimeout(() => child.kill('SIGKILL'), 10_000)
      await exit
      clearTimeout(timer)
    }
  }
}

/**
 * What processes that are not ours take of the two cores: a number measured on a busy machine must say so.
 * @returns the function that tells the shares since now, core by core; nothing where /proc is missing
 */
export function startForeignMeter (children: readonly Child[]): () => number[] {
  const read = (): number[] => {
    try {
      const ours = [children.reduce((sum, child) => sum + (child.hasExited() ? 0 : child.cpuNs()), 0) / 1e9,
        process.cpuUsage().user / 1e6 + process.cpuUsage().system / 1e6]
      return ours.map((seconds, core) => {
        const [user = 0, nice = 0, system = 0, _idle, _wait, irq = 0, softirq = 0, steal = 0] = new RegExp(
          `^cpu${core} (.*)$`, 'm'
        ).exec(readFileSync('/proc/stat', 'utf8'))?.[1]?.split(
          ' '
        )
          .map(Number) ?? []
        return (user + nice + system + irq + softirq + steal) / 100 - seconds
      })
    } catch {
      return []
    }
  }
  const before = read()
  const start = performance.now()
  return () =>
    read().map((seconds, core) => Math.max(0, (seconds - (before[core] ?? NaN)) / (performance.now() - start) * 1000))
}

// schedstat counts nanoseconds where stat counts ticks of 10 ms: a burst of a second needs the former.
// Threads that ended are not in either sum of tasks; the contenders have a fixed set while they are measured.
function cpuNs (pid: number): number {
  try {
    let sum = 0
    for (const task of readdirSync(`/proc/${pid}/task`)) {
      sum += Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0])
    }
    return childrenOf(pid).reduce((all, child) => all + cpuNs(child), sum)
  } catch {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      return (Number(fields[11]) + Number(fields[12])) * 10_000_000
    } catch {
      return NaN
    }
  }
}

function reads (pid: number): number {
  try {
    return Number(/^syscr: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1])
  } catch {
    return NaN
  }
}

function childrenOf (pid: number): readonly number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean).map(Number))
}
