// A real Prometheus for tests: one server with a port and a folder of its own, which ends with the test; promtool; and
// the rules with shorter windows, so that minutes pass in seconds.
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { parse } from 'yaml'
import { packageRoot } from '../../src/base/package.ts'
import { freePort } from './free-port.ts'
import { folderFor } from './spawned.ts'
import { until } from './until.ts'

export interface Sample {
  readonly metric: Readonly<Record<string, string>>
  readonly value: number
}

export interface Prometheus {
  /** @throws {Error} it does not answer the expression: with what it says */
  query (expression: string): Promise<readonly Sample[]>
  firing (): Promise<readonly Alert[]>
}

export interface Alert {
  /** `alertname` is its name */
  readonly labels: Sample['metric']
  /** as they are sent */
  readonly annotations: Sample['metric']
}

export interface Rule {
  readonly alert?: string
  readonly record?: string
  readonly expr: string
  readonly labels?: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
}

export const rulesFile = join(packageRoot, 'config/prometheus/rules.yml')

export function rulesIn (text: string): readonly Rule[] {
  const { groups } = parse(text) as { readonly groups: readonly { readonly rules: readonly Rule[] }[] }
  return groups.flatMap(({ rules }) => rules)
}

/** The shipped rules with two seconds in the place of each minute. */
export function hastenedRules (): string {
  return readFileSync(rulesFile, 'utf8').replace(/(\[|for: )(\d+)([mh])\b/g,
    (_, before: string, amount: string, unit: string) => `${before}${Number(amount) * (unit === 'h' ? 60 : 1) * 2}s`)
}

/**
 * @param jobs addresses of what is scraped, such as 127.0.0.1:9090, by job
 * @throws {Error} it does not start: with what it said
 */
export async function startPrometheus (
  t: Test,
  jobs: Readonly<Record<string, readonly string[]>>,
  rules: string
): Promise<Prometheus> {
  const port = await freePort()
  const folder = folderFor(t, { 'rules.yml': rules, 'prometheus.yml': JSON.stringify({
    global: { scrape_interval: '1s', evaluation_interval: '1s' },
    rule_files: ['rules.yml'],
    scrape_configs: Object.entries(jobs).map(([job, targets]) => ({ job_name: job, static_configs: [{ targets }] }))
  }) })
  const child = spawn('prometheus', [`--config.file=${join(folder, 'prometheus.yml')}`,
    `--storage.tsdb.path=${join(folder, 'data')}`, `--web.listen-address=127.0.0.1:${port}`, '--log.level=warn'],
  { stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => { said = (said + text).slice(-10_000) })
  let failure: Error | undefined
  child.once('error', (error) => { failure = error })
  const ended = new Promise<void>((resolve) => {
    child.once('error', () => { resolve() })
    child.once('close', () => { resolve() })
  })
  let isOver = false
  void ended.then(() => { isOver = true })
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const origin = `http://127.0.0.1:${port}`
  await until(async () => {
    if (isOver) throw new Error(`prometheus ended (is it installed?): ${failure?.message ?? said}`)
    return await fetch(`${origin}/-/ready`).then(({ ok }) => ok, () => false)
  })
  const ask = async (path: string): Promise<unknown> => {
    const answer = await (await fetch(`${origin}/api/v1/${path}`)).json() as { readonly status: string,
      readonly error?: string, readonly data: unknown }
    if (answer.status !== 'success') throw new Error(`${decodeURIComponent(path)}: ${answer.error ?? ''}`)
    return answer.data
  }
  return {
    async query (expression) {
      const { result } = await ask(`query?query=${encodeURIComponent(expression)}`) as {
        readonly result: readonly { readonly metric: Sample['metric'], readonly value: readonly [number, string] }[]
      }
      return result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }))
    },
    async firing () {
      const { alerts } = await ask('alerts') as { readonly alerts: readonly (Alert & { readonly state: string })[] }
      return alerts.filter(({ state }) => state === 'firing')
    }
  }
}

/** What promtool says, and its exit code. @throws {Error} it is not installed */
export async function promtool (args: readonly string[], input?: string): Promise<readonly [number, string]> {
  const child = execFile('promtool', args, { maxBuffer: 64 * 1024 * 1024 })
  let said = ''
  for (const stream of [child.stdout!, child.stderr!]) {
    stream.setEncoding('utf8').on('data', (text: string) => { said += text })
  }
  child.stdin!.on('error', () => {}).end(input)
  const [code] = await once(child, 'close') as [number]
  return [code, said]
}
