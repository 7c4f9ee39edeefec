// The table of commands. Each is loaded on demand: one that only prints loads no other code.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { inspect } from 'node:util'
import { packageRoot, version } from '../base/package.ts'
import { nearest } from '../config/check/suggest.ts'
import type { loadConfig } from '../config/load/load.ts'
import type { Plugin } from '../core/plugin.ts'
import type { CommandParts } from './command.ts'
import { complain, print, UnsaidError } from './stdout.ts'

const HELP = `gateway ${version}: a paid gateway to text, image and video models

  gateway start [--config FILE]     serve; FILE is gateway.yaml here, or the shipped one
  gateway check [FILE] [--json]     validate a configuration offline; exit code 0 or 1
  gateway explain --key ID          what would happen to a request, and why (--help lists its options)
  gateway keys COMMAND              create, list, show, update, freeze, rotate, delete …     (--help lists
  gateway accounts COMMAND          create, list, show, update, credit, close …                their options)
  gateway tokens COMMAND            create, list, revoke: who may use the admin API, and in which role
  gateway admin link                a link that signs a browser in to the pages at /ui/, once, within 10 minutes
  gateway audit [--limit NUMBER]    who changed what, newest first
  gateway usage COMMAND             list: by key; series: by hour, day or month and by account, key, model, channel
  gateway ledger COMMAND            export the entries as JSON lines; verify adds them up again
  gateway requests COMMAND          list the last requests, show ID: what became of each of its attempts
  gateway status [--json]           what a running gateway came to lately, and what needs somebody
  gateway upstreams [COMMAND]       the targets and credentials of a running gateway; reset UPSTREAM [CREDENTIAL]: end
                                    the cooldown of a credential
  gateway prices, gateway videos    what is sold at which price, now and as announced; the video tasks of all accounts
  gateway diff FILE                 what FILE would change in the live configuration, which stays as it is
  gateway fleet [--json]            the processes that serve from the same store, and the configuration that each runs
  gateway store COMMAND             backup FILE, restore FILE: while it runs, and back; export, import: moves everything
                                    to another store; new: after a loss
  gateway simulate [OPTIONS]        the built-in simulator of model vendors by itself (--help lists its options)
`

export interface Shipped {
  readonly plugins: () => Promise<readonly Plugin[]>
  readonly pluginsUrl: string
  /** loads the configuration; for tests */
  readonly load?: typeof loadConfig
}

type Command = (args: string[], shipped: Shipped) => Promise<number>

const commands: Readonly<Record<string, Command>> = {
  start: async (args, shipped) => await (await import('./start.ts')).startCommand(args, await parts(shipped)),
  check: async (args, shipped) => await (await import('./check.ts')).checkCommand(args, { locate, ...shipped }),
  keys: async (args, shipped) => await administer('keys', args, shipped),
  accounts: async (args, shipped) => await administer('accounts', args, shipped),
  usage: async (args, shipped) => await administer('usage', args, shipped),
  ledger: async (args, shipped) => await administer('ledger', args, shipped),
  tokens: async (args, shipped) => await administer('tokens', args, shipped),
  admin: async (args, shipped) => await administer('admin', args, shipped),
  audit: async (args, shipped) => await administer('audit', args, shipped),
  upstreams: async (args, shipped) => await administer('upstreams', args, shipped),
  fleet: async (args, shipped) => await administer('fleet', args, shipped),
  status: async (args, shipped) => await administer('status', args, shipped),
  prices: async (args, shipped) => await administer('prices', args, shipped),
  videos: async (args, shipped) => await administer('videos', args, shipped),
  diff: async (args, shipped) => await administer('diff', args, shipped),
  requests: async (args, shipped) => await administer('requests', args, shipped),
  explain: async (args, shipped) => await (await import('./explain.ts')).explainCommand(args, await parts(shipped)),
  store: async (args, shipped) => await (await import('./store.ts')).storeCommand(args, { locate, ...shipped }),
  simulate: async (args) => await (await import('./simulate.ts')).simulate(args),
  help: async ([name], shipped) => {
    if (name !== undefined && !isHelp(name)) return await runCommand([name, '--help'], shipped)
    await print(HELP)
    return 0
  },
  version: async ([option]) => { await print(isHelp(option) ? HELP : version + '\n'); return 0 }
}

function isHelp (option: string | undefined): boolean {
  return option === '--help' || option === '-h'
}

async function administer (noun: string, args: readonly string[], shipped: Shipped): Promise<number> {
  return await (await import('./admin.ts')).adminCommand(noun, args, await parts(shipped))
}

async function parts (shipped: Shipped): Promise<CommandParts> {
  return { ...shipped, locate, plugins: await shipped.plugins() }
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

/** Prints a command's error. @returns the exit code */
function failed (thrown: unknown): number {
  if (thrown instanceof UnsaidError) {
    if (!thrown.isQuiet) complain(thrown.message)
    return thrown.exitCode
  }
  // parseArgs' message names the unknown option in plain words.
  complain(
    (thrown as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS')
      ? `${(thrown as Error).message}\n\n${HELP}`
      : inspect(thrown)
  )
  return 1
}

/** @returns the exit code */
export async function runCommand ([name = 'help', ...args]: readonly string[], shipped: Shipped): Promise<number> {
  const short = new Map([['--help', 'help'], ['-h', 'help'], ['--version', 'version'], ['-v', 'version']])
  const meant = short.get(name) ?? name
  const command = Object.hasOwn(commands, meant) ? commands[meant] : undefined
  if (command === undefined) {
    const near = nearest(name, Object.keys(commands))
    complain(`There is no command "${name}"${near === undefined ? '.' : `: did you mean "${near}"?`}\n\n${HELP}`)
    return 1
  }
  try {
    return await command(args, shipped)
  } catch (error) {
    return failed(error)
  }
}
