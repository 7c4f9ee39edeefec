// The command line: joins the shipped plugins with the commands. The only file of src that imports plugins.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { plugins } from '../plugins/index.ts'
import { createLogger } from './admin/log.ts'
import { StandardOutput } from './admin/output.ts'
import { adminCommand, adminNouns } from './commands/admin-command.ts'
import { explainCommand } from './commands/explain-command.ts'
import { complained, print, UnsaidError } from './commands/output.ts'
import { storeCommand } from './commands/store-command.ts'
import { check } from './config/check-command.ts'
import { ConfigError } from './config/problem.ts'
import { nearest } from './config/suggest.ts'
import { Ending } from './ending.ts'
import { packageRoot, version } from './package-root.ts'
import { simulate } from './simulator/simulate-command.ts'
import { startGateway, type Gateway } from './start.ts'
import { viewOf } from './upstream/view.ts'
import { Seat } from './workers/seat.ts'

/** .ts in a checkout, .js in the packed build: as this file. */
const pluginsUrl = new URL(`../plugins/index${path.extname(import.meta.url)}`, import.meta.url).href

const HELP = `gateway ${version}: a paid gateway to text, image and video models

  gateway start [--config FILE]     serve; FILE is gateway.yaml here, or the shipped one
  gateway check [FILE] [--json]     validate a configuration offline; exit code 0 or 1
  gateway explain --key ID          what would happen to a request, and why (--help lists its options)
  gateway keys COMMAND              create, list, show, freeze, unfreeze, delete, rotate     (--help lists
  gateway accounts COMMAND          create, list, show, credit, refund, debit …                their options)
  gateway ledger COMMAND            export the entries as JSON lines; verify adds them up again
  gateway fleet [--json]            the processes that serve from the same store, and the configuration that each runs
  gateway store COMMAND             export FILE, import FILE: moves everything to another store; new: after a loss
  gateway simulate [OPTIONS]        the built-in simulator of model vendors by itself (--help lists its options)
`

const HELP_OPTION = { help: { type: 'boolean', short: 'h', default: false } } as const

const START_HELP = `Usage: gateway start [--config FILE]

  --config, -c  the configuration; default: gateway.yaml in this folder, or the shipped one

Serves until SIGTERM or SIGINT, then drains. A change of a file is live within a second; SIGHUP reads all again.
`

const CHECK_HELP = `Usage: gateway check [FILE] [--json]

  FILE    the configuration; default: gateway.yaml in this folder, or the shipped one
  --json  problems and warnings as JSON

Says each mistake as FILE:LINE:COLUMN. Exit code 0: it can be used; 1: it can't. Calls nobody, opens nothing.
`

const commands: Readonly<Record<string, (args: string[]) => Promise<number>>> = {
  start: runStart,
  check: async (args) => {
    const { values, positionals } = parseArgs({ args, allowPositionals: true, options: { json: { type: 'boolean', default: false }, ...HELP_OPTION } })
    if (values.help) { await print(CHECK_HELP); return 0 }
    return await check(configFile(positionals[0]), { json: values.json, plugins, pluginsUrl, write: print })
  },
  ...Object.fromEntries(adminNouns.map((noun) => [noun, async (args: string[]) => await adminCommand(noun, args, { locate, plugins, pluginsUrl })])),
  fleet: async (args) => await adminCommand('fleet', ['list', ...args], { locate, plugins, pluginsUrl }),
  explain: async (args) => await explainCommand(args, { locate, plugins, pluginsUrl }),
  store: async (args) => await storeCommand(args, { locate, pluginsUrl }),
  simulate: (args) => simulate(args),
  help: async () => { await print(HELP); return 0 },
  version: async () => { await print(version + '\n'); return 0 }
}

/** Without a name: gateway.yaml of the working folder, else the shipped example. */
function configFile (name: string | undefined): string {
  return path.resolve(name ?? (existsSync('gateway.yaml') ? 'gateway.yaml' : path.join(packageRoot, 'gateway.yaml')))
}

/** The shipped example lies in the package, which is no place for secrets. */
function locate (name: string | undefined): { readonly file: string, readonly base: string } {
  const file = configFile(name)
  return { file, base: file === path.join(packageRoot, 'gateway.yaml') ? process.cwd() : path.dirname(file) }
}

async function runStart (args: string[]): Promise<number> {
  const { values } = parseArgs({ args, options: { config: { type: 'string', short: 'c' }, ...HELP_OPTION } })
  if (values.help) { await print(START_HELP); return 0 }
  const { file, base } = locate(values.config)
  const seat = Seat.take()
  const output = new StandardOutput()
  const log = createLogger('info', output, seat === undefined ? null : { worker: seat.number })
  const ending = new Ending(log, output)
  let gateway: Gateway | undefined
  try {
    gateway = await ending.of(startGateway({ file, base, plugins, pluginsUrl, log, output, seat }))
  } catch (error) {
    const { message } = error as Error
    // A worker's primary says it, or starts it again.
    if (seat !== undefined) await seat.failed(message).catch(() => {})
    else console.error(error instanceof ConfigError ? `The configuration can't be used:\n${message}` : `The gateway did not start: ${message}`)
    await complained()
    return 1
  }
  if (gateway !== undefined) await attend(gateway, ending, file, seat)
  return await ending.wait()
}

async function attend (gateway: Gateway, ending: Ending, file: string, seat: Seat | undefined): Promise<void> {
  process.on('SIGHUP', () => { gateway.reload() })
  ending.hearSignals()
  // Last: who reads it may send a signal at once.
  if (seat === undefined) greet(gateway, file)
  else await seat.listens(gateway.urls, {
    async state () {
      const { generation, hash, loaded_at, last_reload, problems } = gateway.live.state()
      return { generation, hash, loaded_at, last_reload, problems, reasons: await gateway.reasons() }
    },
    metrics: async () => await gateway.services.metrics.print(),
    upstreams: () => viewOf(gateway.services.upstreams.health, gateway.live.current()),
    reload: () => { gateway.reload() },
    drain: (isUrgent) => { ending.drain(isUrgent) }
  })
}

/** For whoever looks at a terminal: where things are, and a first request. Goes to standard error, the log to output. */
function greet (gateway: Gateway, file: string): void {
  const { urls } = gateway
  const key = gateway.demoKey()
  const lines = [
    `model-gateway ${version} on ${path.relative(process.cwd(), file)}, pid ${process.pid}`,
    `  API      ${urls.api}/v1`,
    `  public   ${urls.public}   (/api/public/models-info, /api/public/media-info)`,
    `  admin    ${urls.admin}   (/metrics, /healthz, /readyz, /admin/v1)`
  ]
  if (gateway.adminTokenFile !== undefined) lines.push(`  admin token in ${path.relative(process.cwd(), gateway.adminTokenFile)}`)
  const off = gateway.demoOff()
  if (off !== undefined) lines.push(`  the demo key is off, because ${off}`)
  if (key !== undefined) {
    const model = gateway.live.current().config.models[0]?.id ?? 'MODEL'
    lines.push('', 'Try it (the demo key works only while every upstream is the built-in simulator):', '',
      `curl -N ${urls.api}/v1/messages -H 'x-api-key: ${key}' -H 'content-type: application/json' \\`,
      `  -d '{"model":"${model}","max_tokens":200,"stream":true,"messages":[{"role":"user","content":"Hello!"}]}'`, '')
  }
  console.error(lines.join('\n'))
}

/** Says what a command threw. @returns the exit code */
function failed (thrown: unknown): number {
  if (thrown instanceof UnsaidError) {
    if (!thrown.isQuiet) console.error(thrown.message)
    return thrown.exitCode
  }
  // parseArgs says in plain words which option it does not know.
  console.error((thrown as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS') ? `${(thrown as Error).message}\n\n${HELP}` : thrown)
  return 1
}

const [name = 'help', ...args] = process.argv.slice(2)
const meant = new Map([['--help', 'help'], ['-h', 'help'], ['--version', 'version'], ['-v', 'version']]).get(name) ?? name
const command = Object.hasOwn(commands, meant) ? commands[meant] : undefined
if (command === undefined) {
  const near = nearest(name, Object.keys(commands))
  console.error(`There is no command "${name}"${near === undefined ? '.' : `: did you mean "${near}"?`}\n\n${HELP}`)
  process.exitCode = 1
} else {
  try {
    process.exitCode = await command(args)
  } catch (error) {
    process.exitCode = failed(error)
  }
}
// What serves does not wait for whoever should read its complaints.
if (name !== 'start') await complained()
process.exit()
