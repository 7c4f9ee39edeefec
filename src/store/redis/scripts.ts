// All scripts by name, as the client knows them: sent once over each connection, and called by their hash from then on.
import type { Client } from './address.ts'
import { limits } from './lua/limits.ts'
import { money } from './lua/money.ts'
import { records } from './lua/records.ts'
import { responses } from './lua/responses.ts'
import { rollups } from './lua/rollups.ts'
import { tasks } from './lua/tasks.ts'

const bodies = { ...money, ...limits, ...tasks, ...records, ...responses, ...rollups }

export type Script = keyof typeof bodies

export type Argument = string | number | Buffer

/** Number of keys per script; one by default, from which an account's other keys are made. */
const KEYS: Readonly<Partial<Record<Script, number>>> = { change: 3, since: 2 }

type Call = (...args: readonly Argument[]) => Promise<unknown>

/** @returns calls by name: key, then arguments; further keys are the first arguments */
export function defineScripts (
  client: Client
): Readonly<Record<Script, (key: string, args: readonly Argument[]) => Promise<unknown>>> {
  const names = Object.keys(bodies) as Script[]
  for (const name of names) client.defineCommand(commandOf(name), { lua: bodies[name], numberOfKeys: KEYS[name] ?? 1 })
  const commands = client as unknown as Readonly<Record<string, Call>>
  return Object.fromEntries(names.map((name) => [
    name,
    async (key: string, args: readonly Argument[]) => await commands[commandOf(name)]!(key, ...args)
  ])) as ReturnType<typeof defineScripts>
}

/** A name that no command of Redis has. */
function commandOf (name: Script): string {
  return `gateway_${name}`
}
