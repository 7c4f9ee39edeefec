// `gateway check [FILE] [--json]`: validates a configuration offline, by all that a start would do with it before it listens.
// Calls nobody, opens nothing.
import { createLogger } from '../admin/log.ts'
import { createMetrics } from '../admin/metrics.ts'
import { Directory } from '../directory.ts'
import { endpoints } from '../endpoints.ts'
import { scratchFiles } from '../files/open.ts'
import { Overheads } from '../money/overheads.ts'
import { Tokens } from '../money/tokens.ts'
import type { Plugin } from '../plugin.ts'
import { MemoryStore } from '../store/memory.ts'
import { Upstreams } from '../upstream/upstream.ts'
import { outliving } from '../videos/outliving.ts'
import type { Config } from './config.ts'
import type { Env } from './interpolate.ts'
import { LiveConfig } from './live.ts'
import { formatProblem } from './problem.ts'
import { Snapshot } from './snapshot.ts'

export interface CheckOptions {
  readonly json: boolean
  /** the shipped plugins, and the module that exports them */
  readonly plugins: readonly Plugin[]
  readonly pluginsUrl: string | URL
  readonly env?: Env
  readonly write: (text: string) => void | Promise<void>
}

/** @returns the exit code: 0 valid, 1 not */
export async function check (file: string, { json, plugins, pluginsUrl, env, write }: CheckOptions): Promise<number> {
  const log = createLogger('silent', { write () {} })
  const upstreams = new Upstreams()
  upstreams.simulatorUrl = 'http://127.0.0.1:9'             // is asked for nothing
  const store = new MemoryStore()
  const metrics = createMetrics(Date.now)
  const services = { log, metrics, store, ...outliving(store, { log, metrics, now: Date.now }), directory: new Directory(store, Date.now), upstreams, ...scratchFiles(Date.now), tokens: new Tokens(log), overheads: new Overheads(), now: Date.now }
  const shipped = new Map(plugins.map((plugin) => [plugin.name, plugin]))
  const live = new LiveConfig({
    file, pluginsUrl, services: { now: Date.now }, ...(env !== undefined && { env }),
    compile: (config, generation, own) =>
      new Snapshot({ config, generation, plugins: config.pipeline.map(({ use }) => shipped.get(use) ?? own.get(use)!), endpoints, services })
  })
  const { ok, problems, warnings } = await live.reload('start')
  if (json) {
    await write(JSON.stringify({ ok, problems, warnings }, null, 2) + '\n')
  } else {
    for (const problem of problems) await write(formatProblem(problem) + '\n')
    for (const warning of warnings) await write(`warning: ${formatProblem(warning)}\n`)
    if (ok) await write(`${file} is valid: ${count(live.current().config)}\n`)
  }
  if (ok) live.current().retire()
  return ok ? 0 : 1
}

function count ({ models, upstreams, routes, keys }: Config): string {
  const say = (amount: number, noun: string): string => `${amount} ${noun}${amount === 1 ? '' : 's'}`
  return [say(models.length, 'model'), say(Object.keys(upstreams).length, 'upstream'), say(routes.length, 'route'), say(keys.length, 'key')].join(', ')
}
