// The gateway as operators run it: a process of its own, in a folder of its own, its log in a file.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { newcomersEnvironment, untapped } from './newcomer.ts'
import { until } from './until.ts'

export interface Spawned {
  readonly child: ChildProcess
  readonly folder: string
  /** what it wrote for people, so far */
  stderr (): string
  /** what it wrote to standard output, so far */
  stdout (): string
  /** the lines of its log, so far */
  log (): Record<string, unknown>[]
  /** exit code and signal */
  readonly ended: Promise<readonly [number | null, NodeJS.Signals | null]>
  /** Waits until it listens. @throws {Error} it ended before: with what it said */
  urls (): Promise<{ readonly api: string, readonly admin: string }>
}

/** A folder that goes with the test. */
export function folderFor (t: Test, files: Readonly<Record<string, string>> = {}): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'gateway-process-')))
  t.teardown(() => { rmSync(folder, { recursive: true, force: true }) })
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content)
  return folder
}

/**
 * Runs `node src/launcher.js ARGS` in the folder. It is ended with the test.
 * @param output a descriptor in the place of the file; then nothing is known of what it wrote to it
 */
export function run (
  t: Test,
  folder: string,
  args: readonly string[],
  { output, ...options }: { readonly uid?: number, readonly output?: number } = {}
): Spawned {
  const log = join(folder, 'gateway.log')
  const out = openSync(log, 'w')
  const child = spawn(...untapped(process.execPath, [join(packageRoot, 'src/launcher.js'), ...args]), { cwd: folder,
    env: newcomersEnvironment(), stdio: ['ignore', output ?? out, 'pipe'], ...options })
  closeSync(out)
  let errors = ''
  child.stderr!.setEncoding('utf8').on('data', (chunk: string) => { errors += chunk })
  // `close`, not `exit`: all that it said has arrived.
  const ended = once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>
  let isOver = false
  void ended.then(() => { isOver = true })
  t.teardown(async () => {
    if (!isOver) child.kill('SIGKILL')
    await ended
  })
  const stdout = (): string => readFileSync(log, 'utf8')
  return {
    child, folder, ended, stdout,
    stderr: () => errors,
    log: () =>
      stdout().split('\n').filter((line) => line.startsWith('{')).flatMap((line) => {
        try {
          return [JSON.parse(line) as Record<string, unknown>]
        } catch {
          return []
        }
      }),
    urls: () =>
      until(() => {
        const found = /API +(http:\S+?)\/v1\n[^]*admin +(http:\S+)/.exec(errors)
        if (found !== null) return { api: found[1]!, admin: found[2]! }
        if (isOver) throw new Error(`it ended, and said: ${errors}`)
        return undefined
      })
  }
}
