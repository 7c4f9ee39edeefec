// Runs the gateway as its users do, `gateway start` in a process of its own, with a probe in it: what is measured there
// is not disturbed by the test's own work.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import { packageRoot } from '../../src/base/package.ts'
import { untapped } from './newcomer.ts'
import type { Answers, Question } from './probe.ts'
import { until } from './until.ts'

export interface GatewayProcess {
  readonly pid: number
  readonly api: string
  readonly admin: string
  /** the lines of its log so far, parsed, oldest first */
  readonly logged: readonly Readonly<Record<string, unknown>>[]
  readonly until: typeof until
  /** One question at a time. */
  ask<Q extends Question> (question: Q): Promise<Answers[Q]>
}

/**
 * @param flags of node
 * @throws {Error} it did not start: with what it said
 */
export async function startProcess (t: Test, file: string, flags: readonly string[] = []): Promise<GatewayProcess> {
  if (process.env['FAST_LANE'] === 'off') {
    writeFileSync(file, readFileSync(file, 'utf8').replace(/^server:\n/m, 'server:\n  fast_lane: off\n'))
  }
  const [command, args] = untapped(
    process.execPath,
    [
      '--expose-gc',
      ...flags,
      '--import',
      new URL('./probe.ts', import.meta.url).href,
      path.join(packageRoot, 'src/launcher.js'),
      'start',
      '--config',
      file
    ]
  )
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] })
  t.teardown(() => end(child))
  const logged: Record<string, unknown>[] = []
  const log = createInterface({ input: child.stdout! })
  log.on('line', (line) => { logged.push(JSON.parse(line) as Record<string, unknown>) })
  const [api, admin] = await greeted(child)
  return {
    pid: child.pid!,
    api,
    admin,
    logged,
    until,
    async ask (question) {
      const answered = once(child, 'message')
      child.send(question)
      const [answer] = await answered
      return answer
    }
  }
}

async function greeted (child: ChildProcess): Promise<[string, string]> {
  return await new Promise((resolve, reject) => {
    let said = ''
    child.stderr!.on('data', (chunk: Buffer) => {
      said += chunk.toString('latin1') // only searched, and addresses are ASCII
      const [api, admin] = ['API', 'admin'].map((name) =>
        new RegExp(`^ +${name} +(http://[\\d.]+:\\d+)`, 'm').exec(said)?.[1]
      )
      if (api !== undefined && admin !== undefined) resolve([api, admin])
    })
    child.once('error', reject)
    child.once('exit', (code) => { reject(new Error(`the gateway ended with ${code}:\n${said}`)) })
  })
}

async function end (child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGTERM')
  const timer = setTimeout(() => { child.kill('SIGKILL') }, 10_000)
  await exited
  clearTimeout(timer)
}
