// `gateway check [FILE] [--json]`: validates a configuration offline, with all steps of a start before it listens.
// Makes no connection, opens nothing. The work is done in a thread, because a plugin may block for ever; this one only
// prints.
import { parseArgs } from 'node:util'
import type { Env } from '../config/yaml/interpolate.ts'
import { hearThread, startThread, type WorkerInput } from '../config/load/load.ts'
import { formatProblem, type Problem } from '../config/problem.ts'
import type { CommandParts } from './command.ts'
import { print } from './stdout.ts'

const HELP = `Usage: gateway check [FILE] [--json]

  FILE    the configuration; default: gateway.yaml in this folder, or the shipped one
  --json  problems and warnings as JSON

Says each mistake as FILE:LINE:COLUMN. Exit code 0: it can be used; 1: it can't. Calls nobody, opens nothing.
`

export interface CheckOptions {
  readonly json: boolean
  /** the module that exports the shipped plugins */
  readonly pluginsUrl: string | URL
  readonly env?: Env
  readonly write: (text: string) => void | Promise<void>
}

type Counted = 'models' | 'upstreams' | 'routes' | 'keys'

/** The thread's message. */
export interface Checked {
  readonly kind: 'checked'
  readonly ok: boolean
  readonly problems: readonly Problem[]
  readonly warnings: readonly Problem[]
  /** of a valid configuration */
  readonly counts?: Readonly<Record<Counted, number>>
}

/** @returns the exit code */
export async function checkCommand (
  args: readonly string[],
  { locate, pluginsUrl }: Omit<CommandParts, 'plugins'>
): Promise<number> {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: { json: { type: 'boolean', default: false }, help: { type: 'boolean', short: 'h', default: false } }
  })
  if (values.help) { await print(HELP); return 0 }
  return await check(locate(positionals[0]).file, { json: values.json, pluginsUrl, write: print })
}

/** @returns the exit code: 0 valid, 1 not */
export async function check (file: string, { json, pluginsUrl, env, write }: CheckOptions): Promise<number> {
  const input: WorkerInput = { file, env: { ...env ?? process.env }, pluginsUrl: String(pluginsUrl) }
  const heard = await hearThread<Checked>({ file, start: () => startThread('./check-thread', import.meta.url, input),
    onMessage: (message, resolve) => { resolve(message) } })
  const { ok, problems, warnings, counts }: Omit<Checked, 'kind'> = heard.kind === 'checked' ? heard
    : { ok: false, problems: heard.problems, warnings: [] }
  if (json) {
    await write(JSON.stringify({ ok, problems, warnings }, null, 2) + '\n')
  } else {
    for (const problem of problems) await write(formatProblem(problem) + '\n')
    for (const warning of warnings) await write(`warning: ${formatProblem(warning)}\n`)
    if (counts !== undefined) await write(`${file} is valid: ${say(counts)}\n`)
  }
  return ok ? 0 : 1
}

function say (counts: Readonly<Record<Counted, number>>): string {
  return (['models', 'upstreams', 'routes', 'keys'] as const).map((nouns) =>
    `${counts[nouns]} ${counts[nouns] === 1 ? nouns.slice(0, -1) : nouns}`).join(', ')
}
