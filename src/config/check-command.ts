// `gateway check [FILE] [--json]`: validates a configuration offline. Calls nobody, opens nothing.
import { stdout } from 'node:process'
import { endpoints } from '../endpoints.ts'
import type { Config } from './config.ts'
import type { Env } from './interpolate.ts'
import { loadConfig } from './load.ts'
import { formatProblem } from './problem.ts'

export interface CheckOptions {
  readonly json: boolean
  readonly pluginsUrl: string | URL
  readonly env?: Env
  /** absent: standard output */
  readonly write?: (text: string) => void
}

/** @returns the exit code: 0 valid, 1 not */
export async function check (file: string, { json, pluginsUrl, env, write = (text) => { stdout.write(text) } }: CheckOptions): Promise<number> {
  const result = await loadConfig(file, { pluginsUrl, endpoints: Object.keys(endpoints), ...(env !== undefined && { env }) })
  const problems = result.kind === 'invalid' ? result.problems : []
  const warnings = result.kind === 'valid' ? result.warnings : []
  if (json) {
    write(JSON.stringify({ ok: result.kind === 'valid', problems, warnings }, null, 2) + '\n')
  } else {
    for (const problem of problems) write(formatProblem(problem) + '\n')
    for (const warning of warnings) write(`warning: ${formatProblem(warning)}\n`)
    if (result.kind === 'valid') write(`${file} is valid: ${count(result.config)}\n`)
  }
  return result.kind === 'valid' ? 0 : 1
}

function count ({ models, upstreams, routes, keys }: Config): string {
  const say = (amount: number, noun: string): string => `${amount} ${noun}${amount === 1 ? '' : 's'}`
  return [say(models.length, 'model'), say(Object.keys(upstreams).length, 'upstream'), say(routes.length, 'route'), say(keys.length, 'key')].join(', ')
}
