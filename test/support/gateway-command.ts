// Commands of the gateway, in the test's own process or as real ones, and a configuration for them.
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { format } from 'node:util'
import { plugins } from '../../plugins/index.ts'
import { packageRoot } from '../../src/base/package.ts'
import { runCommand } from '../../src/commands/run.ts'
import { printTo } from '../../src/commands/stdout.ts'
import { openEmbedded } from '../../src/store/embedded/store.ts'
import { newLog } from './embedded-store.ts'
import { loadHere } from './load-here.ts'
import { newcomersEnvironment, untapped } from './newcomer.ts'

const pluginsUrl = new URL('../../plugins/index.ts', import.meta.url).href

export interface Ran { readonly code: number, readonly out: string, readonly err: string }

export async function gateway (folder: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> {
  const [file, all] = untapped(process.execPath, [join(packageRoot, 'src/launcher.js'), ...args])
  return await new Promise((resolve) => {
    execFile(file, all, { cwd: folder, env: { ...newcomersEnvironment(), ...env } }, (error, out, err) => {
      resolve({ code: error === null ? 0 : Number(error.code), out, err })
    })
  })
}

/** Commands have the working folder, the environment and the output of the process to themselves. */
let turn: Promise<unknown> = Promise.resolve()

/** The same in the test's own process, for what is not about processes: a real one costs half a second of CPU. */
export async function command (folder: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> {
  const ran = turn.then(async () => await runHere(folder, args, env))
  turn = ran.catch(() => {})
  return await ran
}

async function runHere (folder: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<Ran> {
  const before = { folder: process.cwd(), complain: console.error }
  const variables = Object.keys(env).map((name) => [name, process.env[name]] as const)
  let out = ''
  let err = ''
  printTo(new Writable({ decodeStrings: false, write (text: string, _encoding, done) { out += text; done() } }))
  console.error = (...said: unknown[]) => { err += format(...said) + '\n' }
  process.chdir(folder)
  Object.assign(process.env, env)
  try {
    const code = await runCommand(args, { plugins: async () => plugins, pluginsUrl, load: loadHere })
    return { code, out, err }
  } finally {
    process.chdir(before.folder)
    for (const [name, value] of variables) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
    console.error = before.complain
  }
}

export const jsonHere = async (folder: string, args: readonly string[]): Promise<unknown> => {
  const { code, out, err } = await command(folder, [...args, '--json'])
  if (code !== 0) throw new Error(err)
  return JSON.parse(out)
}

export const json = async (folder: string, args: readonly string[]): Promise<unknown> => {
  const { code, out, err } = await gateway(folder, [...args, '--json'])
  if (code !== 0) throw new Error(err)
  return JSON.parse(out)
}

/** What the first start of a gateway leaves, for commands that use the data folder themselves. */
export async function beginLedger (folder: string): Promise<void> {
  const store = await openEmbedded({ folder: join(folder, 'data'), log: newLog() })
  await store.close()
}

export function yaml (adminPort: number, driver = 'embedded'): string {
  return `server:
  api: { listen: "127.0.0.1:0" }
  public: { listen: "127.0.0.1:0" }
  admin: { listen: "127.0.0.1:${adminPort}" }
store: { driver: ${driver}, path: ./data }
pipeline: [auth, key-policy, rate-limit, channel-router, billing-meter, error-normalize]
upstreams:
  simulator: { url: "simulator:", dialect: messages }
models:
  - id: m1
    provider: acme
    created: 2025-09-29
    max_output: 1000
    channels: { premium: { price: { input: 3, output: 15 }, targets: [{ upstream: simulator, model: vendor-m1 }] } }
`
}
